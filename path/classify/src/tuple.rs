//! The key of a connection: protocol, two addresses, two ports.
//!
//! IPv4 addresses are kept in IPv4-mapped form, so that a dual-stack socket needs one table. The hash that
//! chooses a lane is symmetric (both directions of a connection meet in one lane) and keyed (a peer cannot
//! choose ports that all meet in one lane).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::Port;
use firelane_wire::IpProtocol;

use crate::mix::{fold, halves};

/// The five values that name a connection, as one end sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuple {
    local: Address,
    remote: Address,
    local_port: Port,
    remote_port: Port,
    protocol: IpProtocol,
}

/// High and low half of an address: 128-bit integers would align a table's entries to 64 bytes.
type Address = [u64; 2];

/// The secret of the symmetric hash, drawn once per process.
#[derive(Clone, Copy, Debug)]
pub struct SteeringKey(pub [u64; 4]);

impl Tuple {
    /// The connection between two IPv4 ends.
    #[inline]
    pub const fn v4(protocol: IpProtocol, local: (Ipv4Addr, Port), remote: (Ipv4Addr, Port)) -> Self {
        Self {
            local: halves(mapped(local.0)),
            remote: halves(mapped(remote.0)),
            local_port: local.1,
            remote_port: remote.1,
            protocol,
        }
    }

    /// The connection between two IPv6 ends; `None` if one address is an IPv4-mapped one, because such a packet
    /// would claim an IPv4 connection.
    #[inline]
    pub const fn v6(protocol: IpProtocol, local: (Ipv6Addr, Port), remote: (Ipv6Addr, Port)) -> Option<Self> {
        let (local_bits, remote_bits) = (local.0.to_bits(), remote.0.to_bits());
        if is_mapped(local_bits) || is_mapped(remote_bits) {
            return None;
        }
        Some(Self {
            local: halves(local_bits),
            remote: halves(remote_bits),
            local_port: local.1,
            remote_port: remote.1,
            protocol,
        })
    }

    /// The connection between two ends of one family. IPv4-mapped IPv6 addresses, as dual-stack sockets
    /// use them, count as IPv4. `None` if the families differ.
    pub fn new(protocol: IpProtocol, local: (IpAddr, Port), remote: (IpAddr, Port)) -> Option<Self> {
        match (local.0.to_canonical(), remote.0.to_canonical()) {
            (IpAddr::V4(l), IpAddr::V4(r)) => Some(Self::v4(protocol, (l, local.1), (r, remote.1))),
            (IpAddr::V6(l), IpAddr::V6(r)) => Self::v6(protocol, (l, local.1), (r, remote.1)),
            _ => None,
        }
    }

    /// Whether both ends are IPv4's.
    #[inline]
    pub const fn is_v4(&self) -> bool {
        self.local[0] == 0 && self.local[1] >> 32 == (MAPPED >> 32) as u64
    }

    /// The connection between two ends as [`Tuple::halves`] has them.
    #[inline]
    pub const fn of_halves(protocol: IpProtocol, [local, remote]: [Address; 2], ports: [Port; 2]) -> Self {
        let [local_port, remote_port] = ports;
        Self { local, remote, local_port, remote_port, protocol }
    }

    /// The local address.
    pub fn local(&self) -> IpAddr {
        address(self.local)
    }

    /// The remote address.
    pub fn remote(&self) -> IpAddr {
        address(self.remote)
    }

    /// Both addresses, local first, as high and low half; IPv4 in its mapped form.
    #[inline]
    pub const fn halves(&self) -> [[u64; 2]; 2] {
        [self.local, self.remote]
    }

    /// The local port.
    pub const fn local_port(&self) -> Port {
        self.local_port
    }

    /// The remote port.
    pub const fn remote_port(&self) -> Port {
        self.remote_port
    }

    /// The transport protocol's number.
    pub const fn protocol(&self) -> IpProtocol {
        self.protocol
    }

    /// The same connection as the other end sees it.
    pub const fn reversed(&self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
            local_port: self.remote_port,
            remote_port: self.local_port,
            protocol: self.protocol,
        }
    }

    /// A hash that both ends compute alike, for steering to lanes.
    #[inline]
    pub fn symmetric_hash(&self, key: &SteeringKey) -> u32 {
        // By how much a port moves an address is a secret, too: else a port more made up for a network less.
        let step = key.0[2] | 1;
        let end = |[high, low]: Address, port: Port| {
            fold(low ^ key.0[0], high.wrapping_add(u64::from(port.0).wrapping_mul(step)) ^ key.0[1])
        };
        let (a, b) = (end(self.local, self.local_port), end(self.remote, self.remote_port));
        // Sum and exclusive-or forget which end came first, and together still name the pair.
        let word = fold(a.wrapping_add(b) ^ key.0[2], (a ^ b) ^ key.0[3] ^ u64::from(self.protocol.0));
        (word >> 32) as u32 ^ word as u32
    }

    /// A hash of the tuple that costs next to nothing and that a peer can aim.
    #[inline]
    pub(crate) const fn mixed(&self) -> u64 {
        let ports = (self.local_port.0 as u64) << 16 | self.remote_port.0 as u64;
        let local = self.local[0] ^ self.local[1].rotate_left(32) ^ ports << 24 | 1;
        fold(
            local.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            self.remote[0].rotate_left(17) ^ self.remote[1] ^ ports << 40,
        )
    }

    /// Every byte of the tuple, for a keyed hash.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; 37] {
        let mut bytes = [0; 37];
        bytes[..8].copy_from_slice(&self.local[0].to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.local[1].to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.remote[0].to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.remote[1].to_ne_bytes());
        bytes[32..34].copy_from_slice(&self.local_port.0.to_ne_bytes());
        bytes[34..36].copy_from_slice(&self.remote_port.0.to_ne_bytes());
        bytes[36] = self.protocol.0;
        bytes
    }
}

fn address([high, low]: Address) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
}

const MAPPED: u128 = 0xffff_0000_0000;

/// An IPv4 address in the form that all tables use.
#[inline]
pub(crate) const fn mapped(address: Ipv4Addr) -> u128 {
    MAPPED | address.to_bits() as u128
}

const fn is_mapped(bits: u128) -> bool {
    bits >> 32 == MAPPED >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: SteeringKey = SteeringKey([
        0x243f_6a88_85a3_08d3,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
    ]);

    fn tuple(a: u32, b: u32, p: u16, q: u16) -> Tuple {
        Tuple::v4(IpProtocol::TCP, (a.into(), Port(p)), (b.into(), Port(q)))
    }

    proptest! {
        #[test]
        fn swapping_the_ends_keeps_the_hash(l: u128, r: u128, p: u16, q: u16, protocol: u8) {
            let Some(t) = Tuple::v6(IpProtocol(protocol), (l.into(), Port(p)), (r.into(), Port(q))) else { return Ok(()) };
            prop_assert_eq!(t.symmetric_hash(&KEY), t.reversed().symmetric_hash(&KEY));
            prop_assert_eq!(t.reversed().reversed(), t);
        }

        #[test]
        fn a_mapped_address_is_the_v4_address(a: u32, b: u32, p: u16, q: u16) {
            let (a4, b4) = (Ipv4Addr::from_bits(a), Ipv4Addr::from_bits(b));
            let ends = |x: IpAddr, y: IpAddr| Tuple::new(IpProtocol::TCP, (x, Port(p)), (y, Port(q)));
            let plain = ends(a4.into(), b4.into());
            prop_assert_eq!(plain, Some(tuple(a, b, p, q)));
            prop_assert_eq!(ends(a4.to_ipv6_mapped().into(), b4.to_ipv6_mapped().into()), plain);
            prop_assert_eq!(Tuple::v6(IpProtocol::TCP, (a4.to_ipv6_mapped(), Port(p)), (b4.to_ipv6_mapped(), Port(q))), None);
            prop_assert_eq!(plain.unwrap().local(), IpAddr::V4(a4));
        }
    }

    #[test]
    fn ports_of_one_pair_of_hosts_spread_over_128_entries() {
        let mut seen = [0u32; 128];
        for port in 0..12_800 {
            seen[tuple(0x0a00_0001, 0x0a00_0002, 80, port).symmetric_hash(&KEY) as usize % 128] += 1;
        }
        // 100 expected in each; six standard deviations on both sides.
        assert!(seen.iter().all(|n| (40..160).contains(n)), "{seen:?}");
    }

    /// R09: who has a network of his own to speak from knows of no two ends that have the same hash, whatever the key.
    #[test]
    fn r09_neighbouring_networks_and_ports_do_not_meet_in_one_entry() {
        let server = (Ipv6Addr::LOCALHOST, Port(443));
        let peer = |network: u64, port: u16| {
            let bits = u128::from(0x2001_0db8_0000_0000 + network) << 64 | 1;
            Tuple::v6(IpProtocol::TCP, server, (bits.into(), Port(port))).unwrap()
        };
        let ways: [fn(u16) -> (u64, u16); 4] = [
            |n| (n.into(), 40_000 - n),
            |n| (n.into(), 40_000 + n),
            |n| (n.into(), 40_000 ^ n),
            |n| (u64::from(n) << 16, 40_000 - n),
        ];
        for (nth, way) in ways.into_iter().enumerate() {
            let mut seen = [0u32; 128];
            for (network, port) in (0..12_800).map(way) {
                seen[peer(network, port).symmetric_hash(&KEY) as usize % 128] += 1;
            }
            // 100 expected in each; six standard deviations on both sides.
            assert!(seen.iter().all(|n| (40..160).contains(n)), "{nth}: {seen:?}");
        }
    }

    #[test]
    fn the_key_decides_where_a_connection_goes() {
        let other = SteeringKey([1, 2, 3, 4].map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let same = (0..1000u16)
            .filter(|&p| {
                tuple(1, 2, 80, p).symmetric_hash(&KEY) % 128
                    == tuple(1, 2, 80, p).symmetric_hash(&other) % 128
            })
            .count();
        assert!(same < 40, "{same}");
    }

    #[test]
    fn families_do_not_mix() {
        let v6 = (IpAddr::V6(Ipv6Addr::LOCALHOST), Port(1));
        assert_eq!(Tuple::new(IpProtocol::TCP, (IpAddr::V4(Ipv4Addr::LOCALHOST), Port(1)), v6), None);
    }
}
