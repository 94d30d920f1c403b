//! Packets made by hand, right ones and wrong ones, and the victim that they are sent to.
//!
//! Shared by the conformance tables. [`victim`] knows the attacker's Ethernet address, so that whatever it
//! answers is on the wire at once; [`Sample`] is a well-formed packet whose bytes a case then spoils.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::{DropReason, Instant, MacAddr};
use firelane_wire::checksum::Sum;
use firelane_wire::{
    ArpRepr, EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, NdpMessage, NdpOption,
    NdpRepr, ethernet, icmpv6, ndp,
};

use crate::common::{Station, mac};

/// Where the network header begins.
pub const L3: usize = 14;
/// When everything happens, unless a case says otherwise.
pub const NOW: Instant = Instant::from_secs(10);
/// The victim's addresses.
pub const VICTIM_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const VICTIM_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// The attacker's addresses.
pub const ATTACKER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
pub const ATTACKER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub const VICTIM_MAC: MacAddr = mac(2);
pub const ATTACKER_MAC: MacAddr = mac(9);

/// A station that knows the attacker, with nothing left in its output and its events.
pub fn victim() -> Station {
    let mut station = Station::new(2, &["10.0.0.2/24", "fd00::2/64"]);
    introduce(&mut station);
    station
}

/// Lets the attacker ask the station something, so that it knows the attacker's Ethernet address.
pub fn introduce(station: &mut Station) {
    // The second announcement of its addresses.
    station.ip.on_timer(NOW, &mut station.pools);
    station.outputs(NOW);
    let question = arp(&ArpRepr::request(ATTACKER_MAC, ATTACKER_V4, VICTIM_V4));
    assert_eq!(station.input_bytes(NOW, &question), "consumed");
    assert_eq!(station.input_bytes(NOW, &solicit(VICTIM_V6)), "consumed");
    assert_eq!(station.outputs(NOW).len(), 2);
    station.events.clear();
}

/// What one frame did: how it ended, why, and what the station sent.
#[derive(Debug)]
pub struct Outcome {
    pub end: &'static str,
    pub reason: Option<DropReason>,
    pub sent: Vec<Vec<u8>>,
}

/// Gives a station one frame.
pub fn give(station: &mut Station, frame: &[u8]) -> Outcome {
    station.drops.clear();
    let end = station.input_bytes(NOW, frame);
    let reason = station.drops.pop();
    Outcome { end, reason, sent: station.outputs(NOW) }
}

/// Asserts that a frame is dropped for `reason`, and that nobody hears of it.
pub fn assert_silent_drop(name: &str, frame: &[u8], reason: DropReason) {
    let mut station = victim();
    let outcome = give(&mut station, frame);
    assert_eq!((outcome.end, outcome.reason), ("drop", Some(reason)), "{name}");
    assert_eq!(outcome.sent, Vec::<Vec<u8>>::new(), "{name}: something was sent");
    assert_eq!(station.events, [], "{name}: something was told");
}

pub fn ethernet_frame(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; L3];
    EthernetRepr { dst, src: ATTACKER_MAC, ethertype }.emit(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

pub fn arp(packet: &ArpRepr) -> Vec<u8> {
    let mut payload = vec![0; packet.emitted_len()];
    packet.emit(&mut payload);
    ethernet_frame(MacAddr::BROADCAST, EtherType::ARP, &payload)
}

/// The frame that carries `packet` to `dst`, by its group's Ethernet address if it is a group.
fn to(dst: IpAddr, packet: &[u8]) -> Vec<u8> {
    let is_broadcast = matches!(dst, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[3] == 255);
    let dst_mac = match dst {
        _ if dst.is_multicast() => ethernet::group_mac(dst),
        _ if is_broadcast => MacAddr::BROADCAST,
        _ => VICTIM_MAC,
    };
    let ethertype = if dst.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    ethernet_frame(dst_mac, ethertype, packet)
}

/// The header of a packet from the attacker to the victim.
pub const fn header_v4(protocol: IpProtocol) -> Ipv4Repr {
    Ipv4Repr::new(ATTACKER_V4, VICTIM_V4, protocol, 0)
}

pub const fn header_v6(next_header: IpProtocol) -> Ipv6Repr {
    Ipv6Repr::new(ATTACKER_V6, VICTIM_V6, next_header, 0)
}

pub fn v4(header: &Ipv4Repr, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr { payload_len: payload.len() as u16, ..*header };
    let mut packet = vec![0; header.emitted_len()];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    to(header.dst.into(), &packet)
}

/// A packet with options: `options` is a multiple of four bytes, at most forty.
pub fn v4_with_options(header: &Ipv4Repr, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = v4(header, payload);
    frame.splice(L3 + 20..L3 + 20, options.iter().copied());
    frame[L3] = 0x40 | (5 + options.len() / 4) as u8;
    let len = (frame.len() - L3) as u16;
    frame[L3 + 2..L3 + 4].copy_from_slice(&len.to_be_bytes());
    repair_v4(&mut frame);
    frame
}

/// Makes the header checksum right again, over as much of the header as there is.
pub fn repair_v4(frame: &mut [u8]) {
    let header_len = usize::from(frame[L3] & 15) * 4;
    let end = (L3 + header_len.max(20)).min(frame.len());
    frame[L3 + 10..L3 + 12].fill(0);
    let checksum = Sum::of(&frame[L3..end]).checksum();
    frame[L3 + 10..L3 + 12].copy_from_slice(&checksum.to_be_bytes());
}

pub fn v6(header: &Ipv6Repr, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Repr { payload_len: payload.len() as u16, ..*header };
    let mut packet = vec![0; header.emitted_len()];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    to(header.dst.into(), &packet)
}

/// An ICMP message whose checksum is right.
pub fn icmpv4_message(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(rest);
    let checksum = Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// An ICMPv6 message whose checksum is right.
pub fn icmpv6_message(src: Ipv6Addr, dst: Ipv6Addr, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(rest);
    let pseudo = Sum::pseudo_v6(src, dst, IpProtocol::ICMPV6, message.len() as u32);
    let checksum = pseudo.combine(Sum::of(&message)).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A neighbour-discovery message from the attacker, at hop limit 255.
pub fn ndp_frame(src: Ipv6Addr, dst: Ipv6Addr, message: NdpMessage, options: &[NdpOption<'_>]) -> Vec<u8> {
    let repr = NdpRepr { message, options };
    let mut body = vec![0; repr.emitted_len()];
    repr.emit(&mut body);
    icmpv6::fill_checksum(&mut body, src, dst);
    let header = Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(src, dst, IpProtocol::ICMPV6, 0) };
    v6(&header, &body)
}

/// The attacker asks for `target`.
pub fn solicit(target: Ipv6Addr) -> Vec<u8> {
    let options = [NdpOption::SourceLinkLayer(ATTACKER_MAC)];
    ndp_frame(ATTACKER_V6, ndp::solicited_node(target), NdpMessage::NeighbourSolicit { target }, &options)
}

/// The attacker says that `target` is `mac`.
pub fn advert(dst: Ipv6Addr, target: Ipv6Addr, mac: MacAddr, solicited: bool, replace: bool) -> Vec<u8> {
    let message = NdpMessage::NeighbourAdvert { target, router: false, solicited, replace };
    ndp_frame(ATTACKER_V6, dst, message, &[NdpOption::TargetLinkLayer(mac)])
}

/// A datagram for a port on which nobody listens, without checksum.
pub fn udp(payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x30, 0x39, 0x00, 0x07, 0, 0, 0, 0];
    datagram[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    datagram.extend_from_slice(payload);
    datagram
}

/// The ICMP message in a frame that the victim sent to the attacker: type, code, the four bytes behind the
/// checksum, and the rest. Panics unless headers and checksums are right.
pub fn answer_v4(frame: &[u8]) -> (u8, u8, u32, Vec<u8>) {
    assert_eq!(frame[..6], ATTACKER_MAC.0);
    let view = Ipv4View::parse(&frame[L3..]).expect("what is sent is well formed");
    assert!(view.is_checksum_valid());
    assert_eq!((view.dst(), view.protocol()), (ATTACKER_V4, IpProtocol::ICMPV4));
    let message = view.payload();
    assert!(Sum::of(message).is_valid());
    (message[0], message[1], be32(&message[4..]), message[8..].to_vec())
}

/// The same for ICMPv6.
pub fn answer_v6(frame: &[u8]) -> (u8, u8, u32, Vec<u8>) {
    assert_eq!(frame[..6], ATTACKER_MAC.0);
    let view = firelane_wire::Ipv6View::parse(&frame[L3..]).expect("what is sent is well formed");
    assert_eq!((view.dst(), view.next_header()), (ATTACKER_V6, IpProtocol::ICMPV6));
    let message = view.payload();
    let pseudo = Sum::pseudo_v6(view.src(), view.dst(), IpProtocol::ICMPV6, message.len() as u32);
    assert!(pseudo.combine(Sum::of(message)).is_valid());
    (message[0], message[1], be32(&message[4..]), message[8..].to_vec())
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}
