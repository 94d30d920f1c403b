//! BPF instructions (RFC 9669, `linux/bpf.h`) as a program is written with them: an assembler with labels, for programs that look at
//! frames.
//!
//! Used by `program.rs`, which ends frames, and `choosing.rs`, which gives them a queue.

/// Instructions as they are written, with jumps to places of the kind `L` still open.
pub(crate) struct Code<L> {
    words: Vec<u64>,
    jumps: Vec<(usize, L)>,
    labels: Vec<(L, usize)>,
}

impl<L: Copy + PartialEq> Code<L> {
    pub(crate) const fn new() -> Self {
        Self { words: Vec::new(), jumps: Vec::new(), labels: Vec::new() }
    }

    /// `struct bpf_insn`: opcode, two registers in a byte, offset, immediate.
    pub(crate) fn put(&mut self, opcode: u8, [to, from]: [u8; 2], at: i16, value: i32) {
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let ([a0, a1], [v0, v1, v2, v3]) = (at.to_ne_bytes(), value.to_ne_bytes());
        self.words.push(u64::from_ne_bytes([opcode, registers, a0, a1, v0, v1, v2, v3]));
    }

    /// `to = value`, of 64 bits.
    pub(crate) fn set(&mut self, to: u8, kind: u8, low: i32, high: i32) {
        self.put(0x18, [to, kind], 0, low);
        self.put(0, [0, 0], 0, high);
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, [to, from], 0, 0);
    }

    /// `to OP= value`, of 64 bits.
    pub(crate) fn alu(&mut self, op: u8, to: u8, value: i32) {
        self.put(op | 0x07, [to, 0], 0, value);
    }

    /// `to OP= from`
    pub(crate) fn alu_with(&mut self, op: u8, to: u8, from: u8) {
        self.put(op | 0x0f, [to, from], 0, 0);
    }

    /// `to = *(u32 *)(from + at)`
    pub(crate) fn load_word(&mut self, to: u8, from: u8, at: i16) {
        self.put(0x61, [to, from], at, 0);
    }

    /// `to = *(u64 *)(from + at)`
    pub(crate) fn load(&mut self, to: u8, from: u8, at: i16) {
        self.put(0x79, [to, from], at, 0);
    }

    /// `*(u64 *)(to + at) = from`
    pub(crate) fn store(&mut self, to: u8, at: i16, from: u8) {
        self.put(0x7b, [to, from], at, 0);
    }

    /// `lock *(u64 *)(to + at) += from`
    pub(crate) fn add_to(&mut self, to: u8, at: i16, from: u8) {
        self.put(0xdb, [to, from], at, 0);
    }

    /// `r0 =` the frame's number of this size at `at`, in this host's byte order. Registers 1 to 5 are lost.
    pub(crate) fn read(&mut self, size: u8, at: i32) {
        self.put(0x20 | size, [0, 0], 0, at);
    }

    /// `if a OP value goto label`
    pub(crate) fn jump(&mut self, op: u8, a: u8, value: i32, label: L) {
        self.jumps.push((self.words.len(), label));
        self.put(op | 0x05, [a, 0], 0, value);
    }

    /// `if a OP b goto label`
    pub(crate) fn jump_with(&mut self, op: u8, [a, b]: [u8; 2], label: L) {
        self.jumps.push((self.words.len(), label));
        self.put(op | 0x0d, [a, b], 0, 0);
    }

    /// `if (u32) a OP value goto label`
    pub(crate) fn jump_word(&mut self, op: u8, a: u8, value: u32, label: L) {
        self.jumps.push((self.words.len(), label));
        self.put(op | 0x06, [a, 0], 0, value.cast_signed());
    }

    pub(crate) fn label(&mut self, label: L) {
        self.labels.push((label, self.words.len()));
    }

    pub(crate) fn exit(&mut self, answer: i32) {
        self.put(0xb7, [0, 0], 0, answer);
        self.put(0x95, [0, 0], 0, 0);
    }

    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (from, label) in self.jumps {
            let to = self.labels.iter().find(|(known, _)| *known == label).map_or(from, |&(_, to)| to);
            let mut bytes = self.words[from].to_ne_bytes();
            bytes[2..4].copy_from_slice(&((to as i64 - from as i64 - 1) as i16).to_ne_bytes());
            self.words[from] = u64::from_ne_bytes(bytes);
        }
        self.words
    }
}

pub(crate) const AND: u8 = 0x50;
pub(crate) const OR: u8 = 0x40;
pub(crate) const ADD: u8 = 0x00;
pub(crate) const MULTIPLY: u8 = 0x20;
pub(crate) const XOR: u8 = 0xa0;
pub(crate) const LEFT: u8 = 0x60;
pub(crate) const RIGHT: u8 = 0x70;
pub(crate) const MODULO: u8 = 0x90;
pub(crate) const EQUAL: u8 = 0x10;
pub(crate) const NOT_EQUAL: u8 = 0x50;
pub(crate) const ABOVE: u8 = 0x20;
pub(crate) const ALWAYS: u8 = 0x00;
pub(crate) const BELOW: u8 = 0xa0;
pub(crate) const WORD: u8 = 0x00;
pub(crate) const HALF: u8 = 0x08;
pub(crate) const BYTE: u8 = 0x10;

/// Of `struct __sk_buff`.
pub(crate) const LEN: i16 = 0;
pub(crate) const VLAN_PRESENT: i16 = 20;
