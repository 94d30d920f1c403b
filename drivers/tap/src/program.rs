//! The program at a TAP's door: instructions that find a frame's conversation in the table of
//! those that are shut out, count the frame there and drop it. Everything else passes.
//!
//! Used by `door.rs`, which writes the table and has the same idea of a conversation; a test lets both read the same frames.
//! The kernel runs it where the sender gives the TAP a frame, on the sender's CPU.

use crate::bpf::*;

/// What a conversation is told by: the two addresses, then ports, version, protocol and class in one word.
pub(crate) type Key = [u64; 5];

/// How many conversations can be shut out at once; each has a line of the table.
pub(crate) const SLOTS: usize = 64;
/// The table's first line begins with how many are shut out.
pub(crate) const HEAD_WORDS: usize = 8;
/// A line: state, key, frames, bytes.
pub(crate) const SLOT_WORDS: usize = 8;
pub(crate) const KEY_WORD: usize = 1;
pub(crate) const FRAMES_WORD: usize = 6;
pub(crate) const BYTES_WORD: usize = 7;
/// The state of a line whose conversation is shut out.
pub(crate) const SHUT: u64 = 1;
/// The table in bytes.
pub(crate) const TABLE_BYTES: usize = (HEAD_WORDS + SLOTS * SLOT_WORDS) * 8;

/// Without a pattern, so that every bit of a key reaches the line's number.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// What of the hash numbers a line: the source port is at the upper end of the key, and reaches the bits from 16 on.
const LINE_SHIFT: i32 = 20;
/// What the kernel does with more bytes than a frame has: it lets the frame pass whole.
const PASS: i32 = i32::MAX;

/// The line that a conversation has.
pub(crate) fn slot_of(key: &Key) -> usize {
    let mix = |hash: u64, word: &u64| {
        let hash = (hash ^ word).wrapping_mul(FACTOR);
        hash ^ hash >> 32
    };
    (key.iter().fold(0, mix) >> LINE_SHIFT) as usize % SLOTS
}

/// Up to the end of the ports behind IPv4's shortest header, and behind IPv6's.
const V4_BYTES: i32 = 38;
const V6_BYTES: i32 = 58;
/// `BPF_PSEUDO_MAP_VALUE`: the number in the instruction is a map's descriptor, and the register gets its memory.
const PSEUDO_MAP_VALUE: u8 = 2;

/// Where a jump leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    V6,
    Find,
    Pass,
}

/// Where a word of the key lies on the stack, from the frame pointer.
const fn spot(word: usize) -> i16 {
    -40 + 8 * word as i16
}

/// The program over the map `table`, for frames up to `frame_max` bytes: larger ones stand for several segments.
pub(crate) fn door(table: i32, frame_max: u32) -> Vec<u64> {
    let mut code = Code::new();
    // r6 is the frame and stays, as reading needs it; r9 the table.
    code.copy(6, 1);
    code.set(9, PSEUDO_MAP_VALUE, table, 0);
    code.load(0, 9, 0);
    code.jump(EQUAL, 0, 0, Label::Pass);
    code.load_word(0, 6, VLAN_PRESENT);
    code.jump(NOT_EQUAL, 0, 0, Label::Pass);
    code.load_word(7, 6, LEN);
    code.jump(ABOVE, 7, frame_max as i32, Label::Pass);
    // Who reads past the end of a frame drops it.
    code.jump(BELOW, 7, V4_BYTES, Label::Pass);
    code.read(HALF, 12);
    code.jump(EQUAL, 0, 0x86dd, Label::V6);
    code.jump(NOT_EQUAL, 0, 0x0800, Label::Pass);
    // No options and no fragment, so that ports are where they are looked for.
    code.read(BYTE, 14);
    code.jump(NOT_EQUAL, 0, 0x45, Label::Pass);
    code.read(HALF, 20);
    code.alu(AND, 0, 0x3fff);
    code.jump(NOT_EQUAL, 0, 0, Label::Pass);
    code.put(0xb7, [8, 0], 0, 4);
    take_protocol(&mut code, 23);
    code.read(BYTE, 15);
    take_class(&mut code);
    take_ports(&mut code, 34);
    for (at, word) in [(26, 0), (30, 2)] {
        code.read(WORD, at);
        code.store(10, spot(word + 1), 0);
        code.put(0xb7, [0, 0], 0, 0);
        code.store(10, spot(word), 0);
    }
    code.jump(ALWAYS, 0, 0, Label::Find);
    code.label(Label::V6);
    code.jump(BELOW, 7, V6_BYTES, Label::Pass);
    code.put(0xb7, [8, 0], 0, 6);
    take_protocol(&mut code, 20);
    code.read(WORD, 14);
    code.alu(RIGHT, 0, 20);
    code.alu(AND, 0, 0xff);
    take_class(&mut code);
    take_ports(&mut code, 54);
    for word in 0..4 {
        let at = 22 + 8 * word;
        code.read(WORD, at);
        code.copy(8, 0);
        code.alu(LEFT, 8, 32);
        code.read(WORD, at + 4);
        code.alu_with(OR, 8, 0);
        code.store(10, spot(word as usize), 8);
    }
    code.label(Label::Find);
    find_and_count(&mut code);
    code.label(Label::Pass);
    code.exit(PASS);
    code.finish()
}

/// `r8 = r8 << 8 | protocol`, if that has ports and answers to loss, or may be a flood.
fn take_protocol(code: &mut Code<Label>, at: i32) {
    code.read(BYTE, at);
    // TCP or UDP: 6 or 17, and no other number is either.
    code.copy(1, 0);
    code.alu(XOR, 1, 6);
    code.copy(2, 0);
    code.alu(XOR, 2, 17);
    code.alu_with(MULTIPLY, 1, 2);
    code.jump(NOT_EQUAL, 1, 0, Label::Pass);
    code.alu(LEFT, 8, 8);
    code.alu_with(OR, 8, 0);
}

/// `r8 = r8 << 8 | r0`
fn take_class(code: &mut Code<Label>) {
    code.alu(LEFT, 8, 8);
    code.alu_with(OR, 8, 0);
}

/// The key's last word: the ports above what r8 has.
fn take_ports(code: &mut Code<Label>, at: i32) {
    code.read(WORD, at);
    code.alu(LEFT, 0, 32);
    code.alu_with(OR, 8, 0);
    code.store(10, spot(4), 8);
}

/// As [`slot_of`], and then whether the line is that of the key on the stack.
fn find_and_count(code: &mut Code<Label>) {
    code.put(0xb7, [1, 0], 0, 0);
    code.set(2, 0, FACTOR as i32, (FACTOR >> 32) as i32);
    for word in 0..5 {
        code.load(0, 10, spot(word));
        code.alu_with(XOR, 1, 0);
        code.alu_with(MULTIPLY, 1, 2);
        code.copy(0, 1);
        code.alu(RIGHT, 0, 32);
        code.alu_with(XOR, 1, 0);
    }
    code.alu(RIGHT, 1, LINE_SHIFT);
    code.alu(AND, 1, SLOTS as i32 - 1);
    code.alu(LEFT, 1, (SLOT_WORDS * 8).ilog2() as i32);
    code.alu_with(ADD, 9, 1);
    let word = |n: usize| ((HEAD_WORDS + n) * 8) as i16;
    code.load(0, 9, word(0));
    code.jump(NOT_EQUAL, 0, SHUT as i32, Label::Pass);
    for n in 0..5 {
        code.load(0, 9, word(KEY_WORD + n));
        code.load(1, 10, spot(n));
        code.jump_with(NOT_EQUAL, [0, 1], Label::Pass);
    }
    code.put(0xb7, [1, 0], 0, 1);
    code.add_to(9, word(FRAMES_WORD), 1);
    code.add_to(9, word(BYTES_WORD), 7);
    code.exit(0);
}
