//! System calls that a program's own code makes: its number is loaded, and the call follows within a few instructions.
//!
//! Called by `elf.rs`. Such code leaves nothing to be put in front of: a Rust program whose crates speak to Linux without the C library, for
//! one, would have some sockets on the netstack and wait for them in the kernel.

/// What lies between a number and its call, with both.
pub(super) const LONGEST: usize = 32;

/// Those that make sockets, or wait for them. What else there is programs use for terminals and files as well.
const CALLS: [&str; 6] = ["socket", "connect", "accept4", "epoll_wait", "epoll_pwait", "epoll_pwait2"];

/// The first of them that `code` makes.
pub(super) fn first(code: &[u8]) -> Option<&'static str> {
    let calls = memchr::memmem::find_iter(code, machine::CALL);
    calls.filter_map(|at| machine::number(&code[at.saturating_sub(LONGEST)..at])).find_map(|number| {
        let nth = machine::NUMBERS.iter().position(|known| *known == Some(number))?;
        Some(CALLS[nth])
    })
}

#[cfg(not(target_arch = "aarch64"))]
mod machine {
    /// `syscall`
    pub(super) const CALL: &[u8] = &[0x0f, 0x05];

    pub(super) const NUMBERS: [Option<u32>; 6] =
        [Some(41), Some(42), Some(288), Some(232), Some(281), Some(441)];

    /// The number that was loaded last before a call: by `mov eax`, or by `push` and `pop rax`.
    pub(super) fn number(before: &[u8]) -> Option<u32> {
        const MOV_EAX: u8 = 0xb8;
        const PUSH: u8 = 0x6a;
        const POP_RAX: u8 = 0x58;
        (0..before.len()).rev().find_map(|at| match &before[at..] {
            [MOV_EAX, low, high, 0, 0, ..] => Some(u32::from(u16::from_le_bytes([*low, *high]))),
            [PUSH, number @ ..0x80, POP_RAX, ..] => Some(u32::from(*number)),
            _ => None,
        })
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    /// `svc #0`
    pub(super) const CALL: &[u8] = &[0x01, 0, 0, 0xd4];

    /// There is no `epoll_wait`.
    pub(super) const NUMBERS: [Option<u32>; 6] = [Some(198), Some(203), Some(242), None, Some(22), Some(441)];

    /// The number that was loaded last before a call: by `mov w8` or `mov x8`.
    pub(super) fn number(before: &[u8]) -> Option<u32> {
        before.rchunks_exact(4).find_map(|word| {
            let word = u32::from_le_bytes(word.try_into().ok()?);
            (word & 0x7fe0_001f == 0x5280_0008).then_some(word >> 5 & 0xffff)
        })
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_the_number_before_it() {
        for (code, wanted) in [
            (&b"\x90\xb8\x29\x00\x00\x00\x0f\x05\xc3"[..], Some("socket")),
            (b"\xb8\x19\x01\x00\x00\x49\x89\xca\x48\x89\xde\x0f\x05", Some("epoll_pwait")),
            (b"\x6a\x2a\x58\x0f\x05", Some("connect")),
            // Another number is loaded behind it.
            (b"\xb8\x29\x00\x00\x00\xb8\x01\x00\x00\x00\x0f\x05", None),
            (b"\xb8\x29\x00\x00\x00\xc3", None),
            // An address, and a byte of something longer.
            (b"\xb8\x29\x00\x01\x00\x0f\x05", None),
            (b"\x0f\x05", None),
            (b"", None),
        ] {
            assert_eq!(first(code), wanted, "{code:x?}");
        }
        let far = [&b"\xb8\x29\x00\x00\x00"[..], &[0x90; LONGEST], b"\x0f\x05"].concat();
        assert_eq!(first(&far), None, "nobody knows what is between");
    }
}
