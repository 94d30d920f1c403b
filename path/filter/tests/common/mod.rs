//! Packets and rules for the filter's tests.
#![allow(dead_code, reason = "each test file uses some of it")]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_filter::{Filter, FilterConfig, Packet, Ruling, Verdict};
use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterAddresses, FilterEnd, FilterPorts, FilterProtocol,
    FilterRule, Instant, KeepState, LinkId, Port, SeqNum,
};
use firelane_wire::{
    FragmentRepr, Icmpv4Repr, IpProtocol, Ipv4Repr, Ipv6Repr, TcpFlags, TcpOptions, TcpRepr, UdpRepr,
};

pub(crate) const IN: Direction = Direction::In;
pub(crate) const OUT: Direction = Direction::Out;
pub(crate) const BLOCK: FilterAction = FilterAction::Block(BlockAnswer::Silent);
pub(crate) const PASS: FilterAction = FilterAction::Pass;
pub(crate) const BLOCKED: Verdict = Verdict::Block(BlockAnswer::Silent);
pub(crate) const LINK: LinkId = LinkId(1);

pub(crate) fn rule(direction: Direction, action: FilterAction) -> FilterRule<LinkId> {
    FilterRule::new(direction, action)
}

/// What tests ask of rules, one after the other.
pub(crate) trait With: Sized {
    fn with(self, change: impl FnOnce(&mut FilterRule<LinkId>)) -> Self;

    fn quick(self) -> Self {
        self.with(|it| it.quick = true)
    }
    fn proto(self, protocol: IpProtocol) -> Self {
        self.with(|it| it.matching.protocol = FilterProtocol::Number(protocol.0))
    }
    fn from(self, prefix: &str) -> Self {
        self.with(|it| it.matching.from = end(prefix, FilterPorts::Any))
    }
    fn to_port(self, port: u16) -> Self {
        self.with(|it| it.matching.to.ports = FilterPorts::Equal(Port(port)))
    }
    fn keep(self) -> Self {
        self.with(|it| it.keep_state = Some(KeepState::default()))
    }
}

impl With for FilterRule<LinkId> {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

pub(crate) fn end(prefix: &str, ports: FilterPorts) -> FilterEnd {
    FilterEnd { negated: false, addresses: FilterAddresses::Prefix(prefix.parse().unwrap()), ports }
}

pub(crate) fn filter(rules: Vec<FilterRule<LinkId>>) -> Filter {
    filter_of(rules, 1000)
}

pub(crate) fn filter_of(rules: Vec<FilterRule<LinkId>>, states_max: usize) -> Filter {
    let mut filter = Filter::new([(1, 2), (3, 4)], states_max);
    filter.set(FilterConfig { rules, pools: Vec::new() }, Instant::ZERO);
    filter
}

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

pub(crate) fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    Ipv4Repr::new(src, dst, protocol, payload.len() as u16).emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

pub(crate) fn v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    Ipv6Repr::new(src, dst, protocol, payload.len() as u16).emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn ip(src: IpAddr, dst: IpAddr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => v4(src, dst, protocol, payload),
        (IpAddr::V6(src), IpAddr::V6(dst)) => v6(src, dst, protocol, payload),
        _ => panic!("two families"),
    }
}

/// A segment between `ADDRESS:PORT`s.
pub(crate) fn tcp(src: &str, dst: &str, flags: TcpFlags, seq: u32, ack: u32, len: usize) -> Vec<u8> {
    let [src, dst] = [src, dst].map(|end| end.parse::<core::net::SocketAddr>().unwrap());
    let repr = TcpRepr {
        src_port: Port(src.port()),
        dst_port: Port(dst.port()),
        seq: SeqNum(seq),
        ack: flags.ack().then_some(SeqNum(ack)),
        flags,
        window: 1000,
        urgent: 0,
        options: TcpOptions::EMPTY,
    };
    let mut payload = vec![0; repr.emitted_len() + len];
    repr.emit(&mut payload);
    ip(src.ip(), dst.ip(), IpProtocol::TCP, &payload)
}

pub(crate) fn syn(src: &str, dst: &str) -> Vec<u8> {
    tcp(src, dst, TcpFlags::SYN, 99, 0, 0)
}

pub(crate) fn udp(src: &str, dst: &str) -> Vec<u8> {
    let [src, dst] = [src, dst].map(|end| end.parse::<core::net::SocketAddr>().unwrap());
    let mut payload = vec![0; 8];
    let repr = UdpRepr { src_port: Port(src.port()), dst_port: Port(dst.port()), payload_len: 0 };
    repr.emit(&mut payload);
    ip(src.ip(), dst.ip(), IpProtocol::UDP, &payload)
}

pub(crate) fn icmp(src: Ipv4Addr, dst: Ipv4Addr, repr: &Icmpv4Repr<'_>) -> Vec<u8> {
    let mut payload = vec![0; repr.emitted_len()];
    repr.emit(&mut payload);
    v4(src, dst, IpProtocol::ICMPV4, &payload)
}

/// The pieces of an IPv4 packet behind its first 24 bytes and the rest.
pub(crate) fn pieces(packet: &[u8], number: u16) -> [Vec<u8>; 2] {
    let (header, payload) = packet.split_at(20);
    let (first, rest) = payload.split_at(8);
    let piece = |part: &[u8], offset: u16, more: bool| {
        let mut bytes = [header, part].concat();
        let length = (20 + part.len()) as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..6].copy_from_slice(&number.to_be_bytes());
        bytes[6..8].copy_from_slice(&((offset / 8) | if more { 1 << 13 } else { 0 }).to_be_bytes());
        bytes
    };
    [piece(first, 0, true), piece(rest, 8, false)]
}

/// An IPv6 fragment.
pub(crate) fn v6_piece(src: Ipv6Addr, dst: Ipv6Addr, offset: u16, more: bool, part: &[u8]) -> Vec<u8> {
    let repr = FragmentRepr { next_header: IpProtocol::UDP, offset, more, identification: 77 };
    let mut payload = vec![0; 8];
    repr.emit(&mut payload);
    payload.extend(part);
    v6(src, dst, IpProtocol::FRAGMENT, &payload)
}

/// Asks about a packet at a time.
pub(crate) fn ask_at(
    filter: &mut Filter,
    direction: Direction,
    link: LinkId,
    bytes: &[u8],
    secs: u64,
) -> Ruling {
    let packet = Packet::read(direction, link, bytes).expect("a packet");
    filter.judge(&packet, Instant::from_secs(secs))
}

pub(crate) fn ask(filter: &mut Filter, direction: Direction, bytes: &[u8]) -> Verdict {
    ask_at(filter, direction, LINK, bytes, 0).verdict
}
