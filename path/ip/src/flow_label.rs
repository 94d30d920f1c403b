//! Labels that tell the flows of IPv6 apart (RFC 6437, RFC 6438): what routers and network cards spread packets by.
//!
//! A flow's label is a keyed hash of its two ends: the same for all its packets, whoever sends them (a connection, or what
//! answers in the name of one that is not there yet or any more) and in whichever lane, and nobody outside can guess it
//! (RFC 6437 §3, §6.1). Asked for where a way's headers are made ready, so that a segment costs nothing more. It stays for
//! the whole flow, but for a connection that was not answered in time: each time-out makes another one, which may lead by
//! another path where routers choose by labels (RFC 6438; Linux' txrehash). What answers for the connection once it is gone
//! has the first one again.

use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use firelane_wire::{IpProtocol, Ipv4View, Ipv6View};

use crate::forward::{flow_v4, flow_v6};
use crate::random::Keyed;
use crate::stack::Ip;

/// How many labels there are beside zero, which says that there is none (RFC 6437 §2).
const LABELS: u64 = (1 << 20) - 1;

/// What labels are made from.
#[derive(Debug)]
pub(crate) struct FlowLabels(Keyed);

impl FlowLabels {
    pub(crate) const fn new(keyed: Keyed) -> Self {
        Self(keyed)
    }

    fn between(
        &self,
        protocol: IpProtocol,
        local: (Ipv6Addr, u16),
        remote: (Ipv6Addr, u16),
        way: u32,
    ) -> u32 {
        let octets = [local.0.octets(), remote.0.octets()];
        self.label(&(octets, [local.1, remote.1], protocol.0, way))
    }

    fn label(&self, flow: &impl core::hash::Hash) -> u32 {
        (1 + self.0.hash_one(flow) % LABELS) as u32
    }
}

impl Ip {
    /// The label of what `protocol` sends from `local` to `remote`; zero over IPv4, which has none.
    #[inline]
    pub fn flow_label(&self, protocol: IpProtocol, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.flow_label_of_way(protocol, local, remote, 0)
    }

    /// The same for who wants another way for the `way`-th time.
    #[inline]
    pub fn flow_label_of_way(
        &self,
        protocol: IpProtocol,
        local: SocketAddr,
        remote: SocketAddr,
        way: u32,
    ) -> u32 {
        match (local.ip(), remote.ip()) {
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                self.labels.between(protocol, (from, local.port()), (to, remote.port()), way)
            }
            _ => 0,
        }
    }

    /// The label of a tunnel's packets to `remote` that carry the flow of `packet` (RFC 6438 §3): those outside tell the flows
    /// inside apart by nothing else.
    pub fn flow_label_around(&self, remote: IpAddr, packet: &[u8]) -> u32 {
        let inner = match (remote, packet.first().map(|byte| byte >> 4)) {
            (IpAddr::V6(_), Some(4)) => Ipv4View::parse(packet).ok().map(|view| flow_v4(&view)),
            (IpAddr::V6(_), Some(6)) => Ipv6View::parse(packet).ok().map(|view| flow_v6(&view)),
            _ => None,
        };
        inner.map_or(0, |flow| self.labels.label(&flow))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::IpConfig;

    fn ip(secret: u8) -> Ip {
        Ip::new(IpConfig::new([secret; 16]))
    }

    fn end() -> impl Strategy<Value = SocketAddr> {
        (any::<u128>(), any::<u16>()).prop_map(|(bits, port)| (Ipv6Addr::from_bits(bits), port).into())
    }

    proptest! {
        #[test]
        fn a_flow_has_one_label_in_every_lane_and_it_is_not_zero(local in end(), remote in end(), protocol: u8) {
            let (one, other) = (ip(1), ip(1));
            let label = one.flow_label(IpProtocol(protocol), local, remote);
            prop_assert!((1..1 << 20).contains(&label));
            prop_assert_eq!(label, other.flow_label(IpProtocol(protocol), local, remote));
        }
    }

    /// Whoever knows thousands of flows' labels knows nothing of the next one's: they are spread as chance would, change
    /// with one port, with the direction and with the secret.
    #[test]
    fn labels_are_spread_and_cannot_be_guessed() {
        let (one, other) = (ip(1), ip(2));
        let remote: SocketAddr = "[fd00::2]:443".parse().unwrap();
        let local = |port: u16| SocketAddr::new("fd00::1".parse().unwrap(), port);
        let label = |of: &Ip, port| of.flow_label(IpProtocol::TCP, local(port), remote);
        let mut labels: Vec<u32> = (0..=u16::MAX).map(|port| label(&one, port)).collect();
        let same = (0..=u16::MAX).filter(|&port| label(&one, port) == label(&other, port)).count();
        assert!(same <= 4, "two secrets agree about {same} of 65,536 flows");
        let neighbours = labels.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 10).count();
        assert!(neighbours < 300, "{neighbours} of 65,535 steps are short, 128 would be by chance");
        labels.sort_unstable();
        labels.dedup();
        // By chance 63,534 different ones; the standard deviation is below 50.
        assert!((63_200..63_900).contains(&labels.len()), "{} different labels", labels.len());
        let back = one.flow_label(IpProtocol::TCP, remote, local(9));
        assert_ne!(back, label(&one, 9));
        assert_ne!(one.flow_label(IpProtocol::UDP, local(9), remote), label(&one, 9));
        let ways = |way| one.flow_label_of_way(IpProtocol::TCP, local(9), remote, way);
        let mut ways: Vec<u32> = (0..100).map(ways).collect();
        assert_eq!(ways[0], label(&one, 9));
        ways.sort_unstable();
        ways.dedup();
        assert!(ways.len() >= 98, "{} labels for 100 ways", ways.len());
    }

    #[test]
    fn ipv4_has_no_labels() {
        let end = |text: &str| text.parse().unwrap();
        assert_eq!(ip(1).flow_label(IpProtocol::TCP, end("10.0.0.1:1"), end("10.0.0.2:2")), 0);
        assert_eq!(ip(1).flow_label_around("10.0.0.2".parse().unwrap(), &[0x60; 40]), 0);
    }
}
