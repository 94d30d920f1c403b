//! What a neighbour on the same link may send a host, of whose connection he knows everything but its sequence numbers.
//!
//! `tests/attacked.rs` asks what the connection keeps of its rate beside that, and the benchmark `attack-cost` what a frame of it
//! costs a lane.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_units::{MacAddr, Port, SeqNum};
use firelane_wire::checksum::Sum;
use firelane_wire::{
    ArpRepr, EtherType, EthernetRepr, FragmentRepr, Icmpv4Repr, Icmpv4Unreachable, IpProtocol, Ipv4Repr,
    Ipv6Repr, TcpFlags, TcpOptions, TcpRepr, UdpRepr, icmpv6, tcp, udp,
};

use crate::{Random, station_mac};

/// Which station he is.
pub const STATION: u8 = 66;

/// What the attacker sends. Of the connection he knows everything but its sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Connections that never end their handshake, from any address.
    Syns,
    /// Segments of the connection with these flags.
    Blind(TcpFlags),
    /// Text of the connection.
    Text,
    /// "Your packets are too large", of the connection.
    TooLarge,
    /// "Nobody is there", of the connection.
    Unreachable,
    /// First fragments of packets that never get whole, from any address.
    Fragments,
    /// Datagrams to ports where nobody is.
    Datagrams,
    /// Questions for his address from every other, which go to him alone: sent to all they would take their share of the wire.
    Scan,
    /// "Your address is mine", to its owner alone: who else heard it would believe it, as ARP is, and neighbour discovery.
    Claims,
    /// A header, and then anything.
    Noise,
}

/// All of them.
pub const ATTACKS: [Attack; 14] = [
    Attack::Syns,
    Attack::Blind(TcpFlags::RST),
    Attack::Blind(TcpFlags::SYN),
    Attack::Blind(TcpFlags::FIN),
    Attack::Blind(TcpFlags::EMPTY),
    Attack::Blind(TcpFlags::URG),
    Attack::Text,
    Attack::TooLarge,
    Attack::Unreachable,
    Attack::Fragments,
    Attack::Datagrams,
    Attack::Scan,
    Attack::Claims,
    Attack::Noise,
];

/// One host of the connection, as the attacker sees it.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// Its station.
    pub mac: MacAddr,
    /// Its end of the connection.
    pub own: SocketAddr,
    /// The other one.
    pub peer: SocketAddr,
}

/// Anybody but the two hosts.
fn anybody(random: &mut Random, v6: bool) -> IpAddr {
    let n = random.below(1 << 16) as u16;
    match v6 {
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into(),
        false => Ipv4Addr::from(0xc633_0000 | u32::from(n)).into(),
    }
}

fn frame(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    EthernetRepr { dst, src: station_mac(STATION), ethertype }.emit(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// A packet of either family.
fn packet(from: IpAddr, to: IpAddr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16;
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0; 20];
            Ipv4Repr::new(from, to, protocol, len).emit(&mut header);
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut header = vec![0; 40];
            // As neighbour discovery wants it.
            Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(from, to, protocol, len) }.emit(&mut header);
            header
        }
        _ => panic!("both are of one family"),
    };
    packet.extend_from_slice(payload);
    packet
}

/// A segment with any sequence numbers.
fn segment(random: &mut Random, from: SocketAddr, to: SocketAddr, flags: TcpFlags, text: &[u8]) -> Vec<u8> {
    let has_ack = flags != TcpFlags::SYN;
    let repr = TcpRepr {
        src_port: Port(from.port()),
        dst_port: Port(to.port()),
        seq: SeqNum(random.bits() as u32),
        ack: has_ack.then(|| SeqNum(random.bits() as u32)),
        flags,
        window: random.bits() as u16,
        urgent: random.bits() as u16,
        options: TcpOptions::default(),
    };
    let mut bytes = vec![0; 20];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(text);
    let pseudo = Sum::pseudo(from.ip(), to.ip(), IpProtocol::TCP, bytes.len() as u32);
    tcp::fill_checksum(&mut bytes, pseudo);
    packet(from.ip(), to.ip(), IpProtocol::TCP, &bytes)
}

/// What a router says of a segment of the victim's that it has not seen: that it is too large for this MTU, or that nobody is there.
fn complaint(random: &mut Random, victim: &Victim, mtu: Option<u16>) -> Vec<u8> {
    let quoted = segment(random, victim.own, victim.peer, TcpFlags::EMPTY, &[]);
    match victim.own.ip() {
        IpAddr::V4(_) => {
            let reasons = [Icmpv4Unreachable::Host, Icmpv4Unreachable::Port, Icmpv4Unreachable::Protocol];
            let other = random.pick(&reasons);
            let reason = mtu.map_or(other, |mtu| Icmpv4Unreachable::FragmentationNeeded { mtu });
            let message = Icmpv4Repr::Unreachable { reason, quoted: &quoted[..28] };
            let mut bytes = vec![0; message.emitted_len()];
            message.emit(&mut bytes);
            packet(anybody(random, false), victim.own.ip(), IpProtocol::ICMPV4, &bytes)
        }
        IpAddr::V6(own) => {
            let (kind, word) = mtu.map_or((1, 0), |mtu| (2, u32::from(mtu)));
            let code = if kind == 1 { random.pick(&[0, 3, 4]) } else { 0 };
            let IpAddr::V6(from) = anybody(random, true) else { panic!("of the same family") };
            packet(
                from.into(),
                own.into(),
                IpProtocol::ICMPV6,
                &icmpv6(from, own, (kind, code), word, &quoted),
            )
        }
    }
}

/// A message of ICMPv6.
fn icmpv6(from: Ipv6Addr, to: Ipv6Addr, (kind, code): (u8, u8), word: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, code, 0, 0];
    bytes.extend(word.to_be_bytes());
    bytes.extend_from_slice(rest);
    icmpv6::fill_checksum(&mut bytes, from, to);
    bytes
}

/// The first fragment of a packet that has no other.
fn fragment(random: &mut Random, to: IpAddr) -> Vec<u8> {
    let (from, text) = (anybody(random, to.is_ipv6()), [0x66; 1024]);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut bytes = vec![0; 20];
            let whole = Ipv4Repr::new(from, to, IpProtocol::UDP, text.len() as u16);
            let identification = random.bits() as u16;
            Ipv4Repr { identification, dont_fragment: false, more_fragments: true, ..whole }.emit(&mut bytes);
            bytes.extend(text);
            bytes
        }
        _ => {
            let identification = random.bits() as u32;
            let repr = FragmentRepr { next_header: IpProtocol::UDP, offset: 0, more: true, identification };
            let mut bytes = vec![0; repr.emitted_len()];
            repr.emit(&mut bytes);
            bytes.extend(text);
            packet(from, to, IpProtocol::FRAGMENT, &bytes)
        }
    }
}

/// Who asks for the victim's address, and says that he is any neighbour; or who claims the address.
fn neighbour(random: &mut Random, victim: &Victim, is_claim: bool) -> Vec<u8> {
    let n = 100 + random.below(100) as u8;
    match victim.own.ip() {
        IpAddr::V4(own) => {
            let mac = station_mac(STATION);
            let repr = match is_claim {
                true => ArpRepr::announcement(mac, own),
                false => ArpRepr::request(mac, Ipv4Addr::new(10, 0, 0, n), own),
            };
            let mut bytes = vec![0; repr.emitted_len()];
            repr.emit(&mut bytes);
            frame(victim.mac, EtherType::ARP, &bytes)
        }
        IpAddr::V6(own) => {
            let asker = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into());
            // An advertisement of the victim's address that replaces what is known, or a question; either with the own Ethernet address.
            let (from, kind, word, option) = match is_claim {
                true => (own, 136, 1 << 29, 2),
                false => (asker, 135, 0, 1),
            };
            let mut rest = own.octets().to_vec();
            rest.extend([option, 1]);
            rest.extend(station_mac(STATION).0);
            let bytes = icmpv6(from, own, (kind, 0), word, &rest);
            frame(victim.mac, EtherType::IPV6, &packet(from.into(), own.into(), IpProtocol::ICMPV6, &bytes))
        }
    }
}

impl Attack {
    /// One frame of it.
    pub fn frame(self, random: &mut Random, victim: &Victim) -> Vec<u8> {
        let to = victim.own.ip();
        let v6 = to.is_ipv6();
        let stranger = SocketAddr::new(anybody(random, v6), 1024 + random.below(60_000) as u16);
        let bytes = match self {
            Self::Syns => segment(random, stranger, victim.own, TcpFlags::SYN, &[]),
            Self::Blind(flags) => segment(random, victim.peer, victim.own, flags, &[]),
            Self::Text => segment(random, victim.peer, victim.own, TcpFlags::PSH, &[0x66; 32]),
            Self::TooLarge => {
                let mtu = random.within(0..1500) as u16;
                complaint(random, victim, Some(mtu))
            }
            Self::Unreachable => complaint(random, victim, None),
            Self::Fragments => fragment(random, to),
            Self::Datagrams => {
                let dst_port = Port(30_000 + random.below(30_000) as u16);
                let mut bytes = vec![0; 8];
                UdpRepr { src_port: Port(9), dst_port, payload_len: 4 }.emit(&mut bytes);
                bytes.extend_from_slice(b"what");
                udp::fill_checksum(&mut bytes, Sum::pseudo(stranger.ip(), to, IpProtocol::UDP, 12));
                packet(stranger.ip(), to, IpProtocol::UDP, &bytes)
            }
            Self::Scan => return neighbour(random, victim, false),
            Self::Claims => return neighbour(random, victim, true),
            Self::Noise => {
                let len = random.within(0..200) as usize;
                let bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
                packet(stranger.ip(), to, IpProtocol(random.bits() as u8), &bytes)
            }
        };
        frame(victim.mac, if v6 { EtherType::IPV6 } else { EtherType::IPV4 }, &bytes)
    }
}
