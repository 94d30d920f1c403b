//! System calls that a program's own code makes: its number is loaded, and the call follows within a few instructions.
//!
//! Called by `elf.rs`. Such code leaves nothing to be put in front of: a Rust program whose crates speak to Linux without the C library, for
//! one, would have some sockets on the netstack and wait for them in the kernel. Where it was compiled without optimisation the number
//! comes from the stack, and nobody knows it there. Of such a program, which has mostly kept its symbols, these tell what is called.

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

/// The longest of [`SYMBOLS`] is shorter.
pub(super) const SYMBOL_LONGEST: usize = 64;

/// Parts of the symbols of `rustix`, which has functions of these names also where it goes by the C library, and the calls that they make.
const SYMBOLS: [(&str, &str); 9] = [
    ("7backend3net8syscalls6socket", "socket"),
    ("7backend3net8syscalls11socket_with", "socket"),
    ("7backend3net8syscalls7connect", "connect"),
    ("7backend3net8syscalls10connect_v4", "connect"),
    ("7backend3net8syscalls10connect_v6", "connect"),
    ("7backend3net8syscalls12connect_unix", "connect"),
    ("7backend3net8syscalls6accept", "accept4"),
    ("7backend3net8syscalls11accept_with", "accept4"),
    ("7backend5event8syscalls10epoll_wait", "epoll_wait"),
];

/// Whether `code` makes a call whose number lies on the stack.
pub(super) fn has_unknown(code: &[u8]) -> bool {
    memchr::memmem::find_iter(code, machine::CALL).any(|at| machine::is_unknown(&code[..at]))
}

/// The first of [`SYMBOLS`] that there is in a piece of a file's names, for who [`has_unknown`] calls.
pub(super) fn named(names: &[u8]) -> Option<&'static str> {
    let mut known = SYMBOLS.iter();
    known.find(|(part, _)| memchr::memmem::find(names, part.as_bytes()).is_some()).map(|&(_, call)| call)
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

    /// Whether the last that was done before a call was to load its number from the stack: `mov rax, [rsp + N]`, or `[rbp + N]`.
    pub(super) fn is_unknown(before: &[u8]) -> bool {
        matches!(
            before,
            [.., 0x48, 0x8b, 0x44, 0x24, _]
                | [.., 0x48, 0x8b, 0x84, 0x24, _, _, _, _]
                | [.., 0x48, 0x8b, 0x04, 0x24]
                | [.., 0x48, 0x8b, 0x45, _]
                | [.., 0x48, 0x8b, 0x85, _, _, _, _]
        )
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

    /// Whether the last that was done before a call was to load its number from the stack: `ldr x8, [sp, N]`.
    pub(super) fn is_unknown(before: &[u8]) -> bool {
        let last = before.last_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        last & 0xffc0_03ff == 0xf940_03e8
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

    #[test]
    fn a_number_from_the_stack_is_unknown_and_symbols_tell_of_whom() {
        for (code, is_unknown) in [
            (&b"\x48\x8b\x44\x24\x28\x0f\x05"[..], true),
            (b"\x48\x8b\x04\x24\x0f\x05", true),
            (b"\x48\x8b\x84\x24\x90\x00\x00\x00\x0f\x05", true),
            (b"\x48\x8b\x45\xf8\x0f\x05", true),
            (b"\x48\x8b\x85\x70\xff\xff\xff\x0f\x05", true),
            // The first argument, and something behind it.
            (b"\x48\x8b\x7c\x24\x28\x0f\x05", false),
            (b"\x48\x8b\x44\x24\x28\x90\x90\x90\x90\x90\x0f\x05", false),
            (b"\xb8\x29\x00\x00\x00\x0f\x05", false),
            (b"\x48\x8b\x44\x24\x28\xc3", false),
            (b"\x0f\x05", false),
        ] {
            assert_eq!((has_unknown(code), first(code)), (is_unknown, first(code).filter(|_| !is_unknown)));
        }
        for (names, wanted) in [
            (&b"\0_ZN6rustix7backend3net8syscalls11socket_with17h4247969a61021435E\0"[..], Some("socket")),
            (b"\0_RNvNtNtNtCs1_6rustix7backend5event8syscalls10epoll_wait\0", Some("epoll_wait")),
            (b"\0_ZN6rustix7backend3net8syscalls10socketpair17h0E\0", None),
            (b"\0_ZN6rustix7backend2fs8syscalls4open17h0E\0", None),
        ] {
            assert_eq!(named(names), wanted, "{}", String::from_utf8_lossy(names));
        }
        assert!(SYMBOLS.iter().all(|(part, _)| part.len() <= SYMBOL_LONGEST));
    }
}
