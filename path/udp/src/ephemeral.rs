//! A local port for a socket that does not care which (RFC 6056).
//!
//! The ports of the range are tried in an order that a random number chooses, so nobody outside can guess
//! the next one; every port is tried once, so the answer "none" is true.

use core::ops::RangeInclusive;

use firelane_units::Port;

use crate::{Binding, UdpTable};

/// A port of `ports` at which `binding` overlaps with no socket, not even with one that shares, and which
/// `serves` accepts (the lane's own ports). `random` is 64 fresh random bits.
pub fn free_port(
    table: &UdpTable,
    binding: &Binding,
    ports: &RangeInclusive<u16>,
    random: u64,
    serves: impl Fn(Port) -> bool,
) -> Option<Port> {
    order(ports, random)
        .filter(|port| *port != Port(0))
        .find(|&port| serves(port) && table.is_free(&binding.at_port(port)))
}

/// Every port of the range once, in an order that depends on `random`.
fn order(ports: &RangeInclusive<u16>, random: u64) -> impl Iterator<Item = Port> + use<> {
    let (first, count) = (u32::from(*ports.start()), ports.len() as u32);
    let start = (random >> 32) as u32 % count.max(1);
    let stride = stride(count, random as u32);
    (0..count).map(move |step| {
        let place = u64::from(start) + u64::from(step) * u64::from(stride);
        Port((first + (place % u64::from(count)) as u32) as u16)
    })
}

/// A step that visits all places of a circle of `count`: one that has no divisor in common with it.
fn stride(count: u32, random: u32) -> u32 {
    let wanted = random % count.max(1);
    (wanted..=wanted + count).find(|&stride| gcd(stride, count) == 1).unwrap_or(1)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::SocketId;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn any() -> Binding {
        Binding::new("0.0.0.0:0".parse().unwrap(), false)
    }

    proptest! {
        #[test]
        fn every_port_is_tried_once(first in 1u16.., len in 0u16..3000, random: u64) {
            let ports = first..=first.saturating_add(len);
            let order: Vec<_> = order(&ports, random).collect();
            prop_assert_eq!(order.len(), ports.len());
            prop_assert!(order.iter().all(|port| ports.contains(&port.0)));
            prop_assert_eq!(order.iter().collect::<HashSet<_>>().len(), ports.len());
        }
    }

    #[test]
    fn the_last_free_port_is_found_and_then_none() {
        let ports = 40_000..=40_063;
        let mut table = UdpTable::new();
        let mut random = 1u64;
        for n in 0..64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let port = free_port(&table, &any(), &ports, random, |_| true).unwrap();
            table.bind(SocketId(n), any().at_port(port)).unwrap();
        }
        assert_eq!(free_port(&table, &any(), &ports, random, |_| true), None);
        // A specific address overlaps with the wildcards, IPv6 does not.
        let v4 = Binding::new("10.0.0.1:0".parse().unwrap(), false);
        let v6 = Binding::new("[fd00::1]:0".parse().unwrap(), false);
        assert_eq!(free_port(&table, &v4, &ports, random, |_| true), None);
        assert!(free_port(&table, &v6, &ports, random, |_| true).is_some());
        table.unbind(SocketId(7));
        assert!(free_port(&table, &any(), &ports, random, |_| true).is_some());
    }

    #[test]
    fn only_ports_that_the_lane_serves() {
        let even = |port: Port| port.0.is_multiple_of(2);
        for random in 0..200 {
            let port = free_port(&UdpTable::new(), &any(), &(1..=100), random << 20, even).unwrap();
            assert!(even(port));
        }
        #[expect(clippy::reversed_empty_ranges)]
        let none = 100..=1;
        assert_eq!(free_port(&UdpTable::new(), &any(), &none, 1, |_| true), None);
        assert_eq!(free_port(&UdpTable::new(), &any(), &(0..=0), 1, |_| true), None);
    }

    /// RFC 6056 §3.1: the next port must not be guessed from the last.
    #[test]
    fn successive_choices_are_spread() {
        let table = UdpTable::new();
        let mut random = 9u64;
        let chosen: HashSet<_> = (0..1000)
            .map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                free_port(&table, &any(), &(32_768..=65_535), random, |_| true).unwrap()
            })
            .collect();
        assert!(chosen.len() > 950, "{}", chosen.len());
    }
}
