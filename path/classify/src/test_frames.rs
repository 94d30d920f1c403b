//! Frames for the tests of this crate, built with the representations of `base/wire`.
//!
//! Ports and addresses vary; everything else is the least that a valid frame needs.

use core::net::{Ipv4Addr, Ipv6Addr};

use firelane_units::{MacAddr, Port, SeqNum};
use firelane_wire::{
    EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv6Repr, TcpFlags, TcpOptions, TcpRepr, UdpRepr,
};

pub(crate) const DST: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 2]);
pub(crate) const SRC: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 1]);

/// Source and destination address.
#[derive(Clone, Copy)]
pub(crate) enum Ends {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// A frame with an IP packet that carries `payload`.
pub(crate) fn packet(ends: Ends, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16;
    let (ethertype, ip) = match ends {
        Ends::V4(src, dst) => {
            let repr = Ipv4Repr::new(src, dst, protocol, len);
            let mut header = vec![0; repr.emitted_len()];
            repr.emit(&mut header);
            (EtherType::IPV4, header)
        }
        Ends::V6(src, dst) => {
            let repr = Ipv6Repr::new(src, dst, protocol, len);
            let mut header = vec![0; repr.emitted_len()];
            repr.emit(&mut header);
            (EtherType::IPV6, header)
        }
    };
    let mut ethernet = vec![0; 14];
    EthernetRepr { dst: DST, src: SRC, ethertype }.emit(&mut ethernet);
    [&ethernet, &ip, payload].concat()
}

/// A SYN without options.
pub(crate) fn tcp(src_port: u16, dst_port: u16) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: Port(src_port),
        dst_port: Port(dst_port),
        seq: SeqNum(1),
        ack: None,
        flags: TcpFlags::SYN,
        window: 1000,
        urgent: 0,
        options: TcpOptions::default(),
    };
    let mut segment = vec![0; repr.emitted_len()];
    repr.emit(&mut segment);
    segment
}

fn udp(src_port: u16, dst_port: u16) -> Vec<u8> {
    let repr = UdpRepr { src_port: Port(src_port), dst_port: Port(dst_port), payload_len: 0 };
    let mut datagram = vec![0; repr.emitted_len()];
    repr.emit(&mut datagram);
    datagram
}

pub(crate) fn tcp_v4(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> Vec<u8> {
    packet(Ends::V4(src, dst), IpProtocol::TCP, &tcp(src_port, dst_port))
}

pub(crate) fn tcp_v6(src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> Vec<u8> {
    packet(Ends::V6(src, dst), IpProtocol::TCP, &tcp(src_port, dst_port))
}

pub(crate) fn udp_v4(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> Vec<u8> {
    packet(Ends::V4(src, dst), IpProtocol::UDP, &udp(src_port, dst_port))
}

/// The frame with tags (type and control word) behind its addresses.
pub(crate) fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|(t, c)| [t.to_be_bytes(), c.to_be_bytes()]).flatten().collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// One frame of every kind that the parser tells apart.
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let (a4, b4) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let v6 = Ends::V6(Ipv6Addr::LOCALHOST, 0xfd00_u128.into());
    let chained =
        [&[60, 0, 1, 4, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 7][..], &tcp(1, 2)];
    let tcp4 = tcp_v4(a4, b4, 1234, 80);
    vec![
        tagged(&tcp4, &[(0x8100, 5)]),
        tcp4,
        udp_v4(a4, b4, 53, 53),
        packet(v6, IpProtocol::TCP, &tcp(1234, 443)),
        packet(v6, IpProtocol::UDP, &udp(1234, 443)),
        packet(v6, IpProtocol::HOP_BY_HOP, &chained.concat()),
        packet(Ends::V4(a4, b4), IpProtocol::SCTP, &[7; 12]),
        packet(Ends::V4(a4, b4), IpProtocol::ICMPV4, &[8; 8]),
    ]
}
