//! Programs that choose by which of a TAP's queues a frame comes: what is of a conversation by one queue, and what has a
//! queue set aside for it by that one.
//!
//! Used by `spread.rs`, which gives them to the kernel. That runs them where the sender gives the TAP a frame. Whatever they choose is
//! right, since each lane knows what to do with any frame; so they look only where headers have their usual form.

use std::net::{IpAddr, Ipv6Addr};

use firelane_units::{IpPrefix, PortRange};

use crate::bpf::*;

/// What the headers of frames have in common. Absent attributes match everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    /// The source address.
    pub source: Option<IpPrefix>,
    /// The destination address.
    pub destination: Option<IpPrefix>,
    /// The transport protocol's number.
    pub protocol: Option<u8>,
    /// The source port of TCP, UDP or SCTP.
    pub source_port: Option<PortRange>,
    /// The destination port.
    pub destination_port: Option<PortRange>,
}

/// Where a jump leads; several by their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    Next(usize),
    Ports(usize),
    Rest,
    V6,
    Find,
    First,
}

/// Without a pattern, so that every bit of the addresses and ports has a say.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const HAVE_PORTS: [u8; 3] = [6, 17, 132];

/// Where an IP packet of one version has what is asked for, from the frame's begin.
struct Layout {
    ethertype: i32,
    protocol: i32,
    source: i32,
    destination: i32,
    ports: i32,
}

const V4: Layout = Layout { ethertype: 0x0800, protocol: 23, source: 26, destination: 30, ports: 34 };
const V6: Layout = Layout { ethertype: 0x86dd, protocol: 20, source: 22, destination: 38, ports: 54 };

/// The program that lets a frame come by the queue of the first of `selectors` that matches it, and what none matches, or one without a
/// queue, by one of the first `rings` queues.
pub(crate) fn choose(rings: u16, selectors: &[(Selector, Option<u16>)]) -> Vec<u64> {
    let mut code = Code::new();
    // r6 is the frame and stays, as reading needs it; r9 what kind of packet it carries.
    code.copy(6, 1);
    code.load_word(0, 6, VLAN_PRESENT);
    code.jump(NOT_EQUAL, 0, 0, Label::Rest);
    code.read(HALF, 12);
    code.copy(9, 0);
    let by_version = selectors.iter().flat_map(|it| [(it, &V4), (it, &V6)]);
    for (nth, ((selector, queue), layout)) in by_version.enumerate() {
        if !selector.is_of(layout) {
            continue;
        }
        selector.check(&mut code, layout, nth);
        match queue {
            Some(queue) => code.exit(i32::from(*queue)),
            None => code.jump(ALWAYS, 0, 0, Label::Rest),
        }
        code.label(Label::Next(nth));
    }
    code.label(Label::Rest);
    spread(&mut code, rings);
    code.finish()
}

impl Selector {
    /// Whether packets of this version can be of it.
    fn is_of(&self, layout: &Layout) -> bool {
        let mut addresses = [self.source, self.destination].into_iter().flatten();
        let can_have_ports = self.protocol.is_none_or(|it| HAVE_PORTS.contains(&it));
        addresses.all(|it| it.addr().is_ipv4() == (layout.ethertype == V4.ethertype))
            && (!self.pins_ports() || can_have_ports)
    }

    fn pins_ports(&self) -> bool {
        self.source_port.is_some() || self.destination_port.is_some()
    }

    /// Goes on only with packets of it, and with all others at the label of this number.
    fn check(&self, code: &mut Code<Label>, layout: &Layout, nth: usize) {
        let next = Label::Next(nth);
        code.jump_word(NOT_EQUAL, 9, layout.ethertype.cast_unsigned(), next);
        for (prefix, at) in [(self.source, layout.source), (self.destination, layout.destination)] {
            for (word, (bits, mask)) in (0..).zip(prefix.iter().flat_map(|&it| words_of(it))) {
                code.read(WORD, at + 4 * word);
                code.alu(AND, 0, mask.cast_signed());
                code.jump_word(NOT_EQUAL, 0, bits, next);
            }
        }
        if self.protocol.is_none() && !self.pins_ports() {
            return;
        }
        code.read(BYTE, layout.protocol);
        if let Some(protocol) = self.protocol {
            code.jump(NOT_EQUAL, 0, protocol.into(), next);
        }
        if !self.pins_ports() {
            return;
        }
        let [one, other, last] = HAVE_PORTS.map(i32::from);
        code.jump(EQUAL, 0, one, Label::Ports(nth));
        code.jump(EQUAL, 0, other, Label::Ports(nth));
        code.jump(NOT_EQUAL, 0, last, next);
        code.label(Label::Ports(nth));
        if layout.ethertype == V4.ethertype {
            ports_are_there(code, next);
        }
        for (range, at) in [(self.source_port, layout.ports), (self.destination_port, layout.ports + 2)] {
            let Some(range) = range else { continue };
            code.read(HALF, at);
            code.jump(BELOW, 0, range.first().0.into(), next);
            code.jump(ABOVE, 0, range.last().0.into(), next);
        }
    }
}

/// The words of a prefix that count, and which of their bits do.
fn words_of(prefix: IpPrefix) -> Vec<(u32, u32)> {
    let (bits, width) = match prefix.addr() {
        IpAddr::V4(it) => (Ipv6Addr::from_bits(u128::from(it.to_bits()) << 96), 1),
        IpAddr::V6(it) => (it, 4),
    };
    let mut left = u32::from(prefix.prefix_len());
    let mut words = Vec::new();
    for word in bits.octets().chunks_exact(4).take(width) {
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(left)).unwrap_or(0);
        left = left.saturating_sub(32);
        if mask != 0 {
            let word = word.first_chunk().map_or(0, |it| u32::from_be_bytes(*it));
            words.push((word & mask, mask));
        }
    }
    words
}

/// Goes on only if IPv4's header is the shortest, and the packet no fragment: behind it are ports then.
fn ports_are_there(code: &mut Code<Label>, otherwise: Label) {
    code.read(HALF, 20);
    code.alu(AND, 0, 0x3fff);
    code.jump(NOT_EQUAL, 0, 0, otherwise);
    code.read(BYTE, 14);
    code.jump(NOT_EQUAL, 0, 0x45, otherwise);
}

/// One of the first `rings` queues, by addresses and, where a packet has them, ports. What has no addresses comes by the first.
fn spread(code: &mut Code<Label>, rings: u16) {
    if rings > 1 {
        // r7 is what the conversation is told by.
        code.put(0xb7, [7, 0], 0, 0);
        code.read(HALF, 12);
        code.jump(EQUAL, 0, V6.ethertype, Label::V6);
        code.jump(NOT_EQUAL, 0, V4.ethertype, Label::First);
        mix_in(code, [V4.source, V4.destination]);
        ports_are_there(code, Label::Find);
        code.read(BYTE, V4.protocol);
        ports_follow(code);
        mix_in(code, [V4.ports]);
        code.jump(ALWAYS, 0, 0, Label::Find);
        code.label(Label::V6);
        mix_in(code, [22, 26, 30, 34, 38, 42, 46, 50]);
        code.read(BYTE, V6.protocol);
        ports_follow(code);
        mix_in(code, [V6.ports]);
        code.label(Label::Find);
        code.set(1, 0, FACTOR as i32, (FACTOR >> 32) as i32);
        code.alu_with(MULTIPLY, 7, 1);
        code.alu(RIGHT, 7, 32);
        code.alu(MODULO, 7, i32::from(rings));
        code.copy(0, 7);
        code.put(0x95, [0, 0], 0, 0);
    }
    code.label(Label::First);
    code.exit(0);
}

/// `r7 ^=` the frame's words there.
fn mix_in<const N: usize>(code: &mut Code<Label>, words: [i32; N]) {
    for at in words {
        code.read(WORD, at);
        code.alu_with(XOR, 7, 0);
    }
}

/// Goes on only if the protocol in r0 has ports: TCP's and UDP's are where they are looked for.
fn ports_follow(code: &mut Code<Label>) {
    code.copy(8, 0);
    code.alu(XOR, 8, 6);
    code.alu(XOR, 0, 17);
    code.alu_with(MULTIPLY, 8, 0);
    code.jump(NOT_EQUAL, 8, 0, Label::Find);
}
