//! Which conversation a frame belongs to: addresses, protocol and ports, as far as they can be read.
//!
//! Asked only for frames that have to wait (`hold.rs`). Fragments have their addresses alone, because only the first of them
//! has ports. What is no IP is one conversation. The hash has no key: who shares a flow with others can find one that meets
//! theirs, and then shares a queue with them too; flows do not depend on it.

use core::net::IpAddr;

use firelane_frame::Frame;
use firelane_units::Port;
use firelane_wire::{EtherType, EthernetView, IpProtocol, Ipv4View, Ipv6View, VlanView};

/// A number that is the same for all frames of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversation(pub(crate) u32);

impl Conversation {
    /// That of the packets that this host sends from one address and port to another, as long as they are in one piece.
    #[inline]
    pub fn between(protocol: IpProtocol, src: (IpAddr, Port), dst: (IpAddr, Port)) -> Self {
        let ports = u32::from(src.1.0) << 16 | u32::from(dst.1.0);
        Self(mixed([src.0, dst.0], protocol, ports))
    }

    /// The same of a packet's pieces, of which but the first have no ports.
    pub fn in_pieces(protocol: IpProtocol, src: IpAddr, dst: IpAddr) -> Self {
        let protocol = if src.is_ipv4() { protocol } else { IpProtocol::FRAGMENT };
        Self(mixed([src, dst], protocol, 0))
    }

    /// That of a frame.
    pub fn of(frame: &Frame) -> Self {
        Self(conversation(frame.as_slice()))
    }

    /// That of this number.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// That of a frame.
pub(crate) fn conversation(frame: &[u8]) -> u32 {
    let Ok(ethernet) = EthernetView::parse(frame) else { return 0 };
    match ethernet.ethertype() {
        EtherType::VLAN => match VlanView::parse(ethernet.payload()) {
            Ok(vlan) => packet(vlan.ethertype(), vlan.payload()),
            Err(_) => 0,
        },
        ethertype => packet(ethertype, ethernet.payload()),
    }
}

fn packet(ethertype: EtherType, bytes: &[u8]) -> u32 {
    match ethertype {
        EtherType::IPV4 => match Ipv4View::parse(bytes) {
            Ok(ip) => {
                hash([ip.src().into(), ip.dst().into()], ip.protocol(), ip.payload(), !ip.is_fragment())
            }
            Err(_) => 0,
        },
        EtherType::IPV6 => match Ipv6View::parse(bytes) {
            Ok(ip) => hash([ip.src().into(), ip.dst().into()], ip.next_header(), ip.payload(), true),
            Err(_) => 0,
        },
        _ => 0,
    }
}

fn hash(addresses: [IpAddr; 2], protocol: IpProtocol, payload: &[u8], has_ports: bool) -> u32 {
    let ports = payload.first_chunk().filter(|_| has_ports && protocol.has_ports());
    mixed(addresses, protocol, ports.map_or(0, |&ports| u32::from_be_bytes(ports)))
}

fn mixed(addresses: [IpAddr; 2], protocol: IpProtocol, ports: u32) -> u32 {
    let mut hash = u64::from(protocol.0);
    for address in addresses {
        match address {
            IpAddr::V4(address) => mix(&mut hash, address.to_bits().into()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                mix(&mut hash, bits as u64);
                mix(&mut hash, (bits >> 64) as u64);
            }
        }
    }
    mix(&mut hash, ports.into());
    (hash >> 32) as u32
}

/// Multiplies by an odd number without a pattern, so that every bit of a word reaches the upper half.
fn mix(hash: &mut u64, word: u64) {
    *hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use firelane_units::MacAddr;
    use firelane_wire::{EthernetRepr, Ipv4Repr};

    /// A UDP datagram of conversation `n` in a frame of so many bytes, with a number in it.
    pub(crate) fn datagram(n: u16, serial: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(46)];
        EthernetRepr { dst: MacAddr::ZERO, src: MacAddr::ZERO, ethertype: EtherType::IPV4 }.emit(&mut bytes);
        let [src, dst] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let payload = bytes.len() - 34;
        Ipv4Repr::new(src, dst, IpProtocol::UDP, payload as u16).emit(&mut bytes[14..]);
        bytes[34..36].copy_from_slice(&n.to_be_bytes());
        bytes[42..46].copy_from_slice(&serial.to_be_bytes());
        bytes
    }

    #[test]
    fn frames_are_told_apart_by_what_makes_a_conversation() {
        let first = datagram(1, 0, 100);
        assert_eq!(conversation(&first), conversation(&datagram(1, 7, 60)));
        let mut all: Vec<u32> = (0..1000).map(|n| conversation(&datagram(n, 0, 60))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1000);
        // A tag changes nothing; a fragment is of its addresses, whatever it begins with.
        let mut tagged = first.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(conversation(&tagged), conversation(&first));
        let fragment = |n| {
            let mut bytes = datagram(n, 0, 100);
            bytes[20] |= 0x20;
            conversation(&bytes)
        };
        assert_eq!(fragment(1), fragment(2));
        assert_ne!(fragment(1), conversation(&first));
        assert_eq!((conversation(&[]), conversation(&first[..30])), (0, 0));
    }
}
