//! The XDP program: a few BPF instructions as values, and what they do with a frame.
//!
//! Used by `bpf.rs`. Encoding: `linux/bpf.h`, RFC 9669. The program claims every frame, or those for certain
//! addresses, and redirects them to the socket of their queue; where there is none, and what it does not claim,
//! goes on to the kernel (`XDP_PASS`).

/// A register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R6 = 6,
    /// The frame pointer.
    R10 = 10,
}

/// How many bytes a load or store moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}

/// An instruction; jumps name a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Insn {
    /// `to = from`
    Move { to: Reg, from: Reg },
    /// `to = value`
    Set { to: Reg, value: i32 },
    /// `to += value`
    Add { to: Reg, value: i32 },
    /// `to &= value`
    And { to: Reg, value: i32 },
    /// `to = *(size *)(from + at)`
    Load { size: Size, to: Reg, from: Reg, at: i16 },
    /// `*(size *)(to + at) = from`
    Store { size: Size, to: Reg, at: i16, from: Reg },
    /// `to = map`, two words long
    LoadMap { to: Reg, fd: i32 },
    /// `if a > b goto pass`
    PassIfGreater { a: Reg, b: Reg },
    /// `if a == 0 goto pass`
    PassIfZero { a: Reg },
    /// `if a != 0 goto claim`
    ClaimIfSet { a: Reg },
    /// A kernel function.
    Call { function: i32 },
    /// The label that claims.
    Claim,
    /// The label that passes.
    Pass,
    /// `return r0`
    Exit,
}

/// `bpf_map_lookup_elem`.
const MAP_LOOKUP: i32 = 1;
/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// The frame goes on to the kernel.
const XDP_PASS: i32 = 2;
/// `BPF_PSEUDO_MAP_FD`: the number in the instruction is a map's descriptor.
const PSEUDO_MAP_FD: u8 = 1;

/// The bytes of a key of the map of addresses: six of address and two of zero.
pub(crate) const CLAIM_KEY_BYTES: u32 = 8;

/// The program. With `claims`, a map of addresses, only frames for those are taken, and those for groups if
/// `groups`; without, every frame is.
pub(crate) fn redirect(sockets: i32, claims: Option<i32>, groups: bool) -> Vec<Insn> {
    use Insn::*;
    use Reg::*;
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index.
    let mut code = vec![Move { to: R6, from: R1 }];
    if let Some(claims) = claims {
        code.extend([
            Load { size: Size::Word, to: R2, from: R6, at: 0 },
            Load { size: Size::Word, to: R3, from: R6, at: 4 },
            Move { to: R1, from: R2 },
            Add { to: R1, value: 14 },
            PassIfGreater { a: R1, b: R3 },
        ]);
        if groups {
            // The lowest bit of an address' first byte says group (IEEE 802 section 8.2).
            code.extend([
                Load { size: Size::Byte, to: R1, from: R2, at: 0 },
                And { to: R1, value: 1 },
                ClaimIfSet { a: R1 },
            ]);
        }
        code.extend([
            Load { size: Size::Word, to: R1, from: R2, at: 0 },
            Store { size: Size::Word, to: R10, at: -8, from: R1 },
            Load { size: Size::Half, to: R1, from: R2, at: 4 },
            Store { size: Size::Word, to: R10, at: -4, from: R1 },
            LoadMap { to: R1, fd: claims },
            Move { to: R2, from: R10 },
            Add { to: R2, value: -8 },
            Call { function: MAP_LOOKUP },
            PassIfZero { a: R0 },
        ]);
    }
    code.extend([
        Claim,
        LoadMap { to: R1, fd: sockets },
        Load { size: Size::Word, to: R2, from: R6, at: 16 },
        // A queue without a socket: the frame goes on to the kernel.
        Set { to: R3, value: XDP_PASS },
        Call { function: REDIRECT_MAP },
        Exit,
    ]);
    if claims.is_some() {
        code.extend([Pass, Set { to: R0, value: XDP_PASS }, Exit]);
    }
    code
}

/// The instructions in the kernel's form, jumps resolved.
pub(crate) fn encode(code: &[Insn]) -> Vec<u64> {
    let place = |label: Insn| {
        let before = code.iter().take_while(|&&insn| insn != label);
        before.map(words).sum::<i32>()
    };
    let (claim, pass) = (place(Insn::Claim), place(Insn::Pass));
    let mut out = Vec::new();
    for &insn in code {
        let next = out.len() as i32 + 1;
        match insn {
            Insn::Claim | Insn::Pass => {}
            Insn::LoadMap { to, fd } => {
                out.push(word(0x18, to as u8, PSEUDO_MAP_FD, 0, fd));
                out.push(0);
            }
            Insn::Move { to, from } => out.push(word(0xbf, to as u8, from as u8, 0, 0)),
            Insn::Set { to, value } => out.push(word(0xb7, to as u8, 0, 0, value)),
            Insn::Add { to, value } => out.push(word(0x07, to as u8, 0, 0, value)),
            Insn::And { to, value } => out.push(word(0x57, to as u8, 0, 0, value)),
            Insn::Load { size, to, from, at } => {
                out.push(word(0x61 | size as u8, to as u8, from as u8, at, 0));
            }
            Insn::Store { size, to, at, from } => {
                out.push(word(0x63 | size as u8, to as u8, from as u8, at, 0));
            }
            Insn::PassIfGreater { a, b } => {
                out.push(word(0x2d, a as u8, b as u8, (pass - next) as i16, 0));
            }
            Insn::PassIfZero { a } => out.push(word(0x15, a as u8, 0, (pass - next) as i16, 0)),
            Insn::ClaimIfSet { a } => out.push(word(0x55, a as u8, 0, (claim - next) as i16, 0)),
            Insn::Call { function } => out.push(word(0x85, 0, 0, 0, function)),
            Insn::Exit => out.push(word(0x95, 0, 0, 0, 0)),
        }
    }
    out
}

/// How many words an instruction has.
fn words(insn: &Insn) -> i32 {
    match insn {
        Insn::Claim | Insn::Pass => 0,
        Insn::LoadMap { .. } => 2,
        _ => 1,
    }
}

/// `struct bpf_insn`: opcode, two registers in a byte, offset, immediate.
fn word(opcode: u8, to: u8, from: u8, at: i16, value: i32) -> u64 {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    let ([a0, a1], [v0, v1, v2, v3]) = (at.to_ne_bytes(), value.to_ne_bytes());
    u64::from_ne_bytes([opcode, registers, a0, a1, v0, v1, v2, v3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_takes_everything_is_seven_words() {
        let code = encode(&redirect(5, None, true));
        let bytes: Vec<[u8; 8]> = code.iter().map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[0], [0xbf, 0x16, 0, 0, 0, 0, 0, 0], "r6 = r1");
        assert_eq!(bytes[1], [0x18, 0x11, 0, 0, 5, 0, 0, 0], "r1 = map 5");
        assert_eq!(bytes[3], [0x61, 0x62, 16, 0, 0, 0, 0, 0], "r2 = *(u32 *)(r6 + 16)");
        assert_eq!(bytes[5], [0x85, 0, 0, 0, 51, 0, 0, 0], "call bpf_redirect_map");
        assert_eq!((bytes.len(), bytes[6]), (7, [0x95, 0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn jumps_lead_to_their_labels() {
        for groups in [false, true] {
            let code = encode(&redirect(5, Some(6), groups));
            let jumps = code.iter().enumerate().filter_map(|(at, word)| {
                let [opcode, _, low, high, ..] = word.to_le_bytes();
                let target = at as i32 + 1 + i32::from(i16::from_le_bytes([low, high]));
                matches!(opcode, 0x2d | 0x15 | 0x55).then_some((opcode, target))
            });
            for (opcode, target) in jumps {
                let (to, text) = if opcode == 0x55 {
                    ([0x18, 0x11, 0, 0, 5, 0, 0, 0], "the redirect")
                } else {
                    ([0xb7, 0, 0, 0, 2, 0, 0, 0], "r0 = XDP_PASS")
                };
                assert_eq!(code[target as usize].to_le_bytes(), to, "{text}");
            }
        }
    }
}
