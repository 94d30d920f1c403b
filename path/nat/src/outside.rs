//! Which address and port outside stand for somebody inside.
//!
//! An address inside has one address outside as long as that has ports (RFC 4787 REQ-2: paired). A port stays the same where it
//! may and is free; else the search begins at a place that nobody can guess (RFC 6056 §3.3.3), and datagrams' ports stay
//! even or odd (RFC 4787 REQ-4). Never has one port two users (REQ-3).

use core::net::Ipv4Addr;

use firelane_units::LinkId;
use firelane_units::{IpPrefix, NAT_BLOCKS_FROM, NatPorts, NatRule, NatTarget, nat_block_ports};
use firelane_wire::IpProtocol;
use siphasher::sip::SipHasher13;

use crate::rules::{place_in, span};
use crate::taken::TakenPorts;
use crate::tuple::Tuple;

/// Of how many ports that no mapping has, the netstack is asked whether it uses them itself, of each parity.
const PORTS_TRIED: usize = 128;
/// How many addresses, if the first has no port.
const ADDRESSES_TRIED: u64 = 4;

/// The address of a link, or of a prefix.
pub(crate) fn target(target: NatTarget, of_link: Option<Ipv4Addr>) -> Option<(u32, u64)> {
    match target {
        NatTarget::OfLink => of_link.map(|address| (address.to_bits(), 1)),
        NatTarget::Prefix(prefix) => span(prefix),
    }
}

/// The other address of one that has one of its own (`bimap`), of `from` among `to`.
pub(crate) fn opposite(
    address: Ipv4Addr,
    from: IpPrefix,
    to: NatTarget,
    of_link: Option<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let (place, (first, count)) = (place_in(from, address)?, target(to, of_link)?);
    (u64::from(place) < count).then(|| Ipv4Addr::from_bits(first + place))
}

/// What a rule has for who sends a packet.
#[derive(Clone, Copy, Debug)]
struct Range {
    address: Ipv4Addr,
    first: u16,
    last: u16,
}

impl Range {
    /// Its ports below one, if it has others, too.
    fn below(self, port: u16) -> Option<Self> {
        let is_cut = self.first < port && port <= self.last;
        is_cut.then(|| Self { last: port - 1, ..self })
    }
}

/// Finds names outside for the source of `tuple` by a `map` rule that no mapping has and the netstack does not use. From the port on that
/// `own_from` says of an address others choose theirs there: those are given last.
pub(crate) fn choose(
    rule: &NatRule<LinkId>,
    (to, ports): (NatTarget, NatPorts),
    tuple: &Tuple,
    of_link: Option<Ipv4Addr>,
    hasher: &SipHasher13,
    (taken, is_used): (&TakenPorts, impl Fn(Ipv4Addr, u16) -> bool),
    own_from: impl Fn(Ipv4Addr) -> Option<u16>,
) -> Option<(Ipv4Addr, u16)> {
    let search = |range: Range| {
        let below = own_from(range.address).and_then(|port| range.below(port));
        let ranges = below.into_iter().chain([range]);
        ranges.into_iter().find_map(|range| search(tuple, range, source_hash(tuple, hasher), taken, &is_used))
    };
    let (first, count) = target(to, of_link)?;
    let port = tuple.ports[0];
    if let NatPorts::Block(each) = ports {
        let range = block(rule.from.prefix?, tuple.src, (first, count), each)?;
        return search(range);
    }
    // Whatever it sends, it has the same address.
    let owner = Tuple { dst: Ipv4Addr::UNSPECIFIED, ports: [0; 2], protocol: IpProtocol(0), ..*tuple };
    let home = u64::from(owner.hash(hasher)) % count;
    (0..count.min(ADDRESSES_TRIED)).find_map(|nth| {
        let address = Ipv4Addr::from_bits(first + ((home + nth) % count) as u32);
        let range = match ports {
            NatPorts::Range(first, last) => Range { address, first: first.0, last: last.0 },
            // Identifiers of queries are nobody's but the asker's.
            _ if tuple.protocol == IpProtocol::ICMPV4 => Range { address, first: 0, last: u16::MAX },
            _ => Range { address, first: port, last: port },
        };
        search(range)
    })
}

/// Where the search for a port begins.
fn source_hash(tuple: &Tuple, hasher: &SipHasher13) -> u32 {
    Tuple { dst: Ipv4Addr::UNSPECIFIED, ports: [tuple.ports[0], 0], ..*tuple }.hash(hasher)
}

/// The ports that an address inside has for itself.
fn block(
    from: IpPrefix,
    src: Ipv4Addr,
    (first, outside): (u32, u64),
    each: Option<core::num::NonZeroU16>,
) -> Option<Range> {
    let (_, inside) = span(from)?;
    let each = u64::from(each.or(nat_block_ports(inside, outside))?.get());
    let blocks = ((1 << 16) - u64::from(NAT_BLOCKS_FROM)) / each;
    let nth = u64::from(place_in(from, src)?);
    let (address, block) = (nth / blocks, nth % blocks);
    let begin = u64::from(NAT_BLOCKS_FROM) + block * each;
    (address < outside).then(|| Range {
        address: Ipv4Addr::from_bits(first + address as u32),
        first: begin as u16,
        last: (begin + each - 1) as u16,
    })
}

fn search(
    tuple: &Tuple,
    Range { address, first, last }: Range,
    begin: u32,
    taken: &TakenPorts,
    is_used: &impl Fn(Ipv4Addr, u16) -> bool,
) -> Option<(Ipv4Addr, u16)> {
    let (protocol, port) = (tuple.protocol, tuple.ports[0]);
    let is_free = |port| !taken.has(protocol, (address, port)) && !is_used(address, port);
    if !matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV4) {
        return is_free(0).then_some((address, 0));
    }
    if (first..=last).contains(&port) && is_free(port) {
        return Some((address, port));
    }
    let begin = first + (begin % (u32::from(last - first) + 1)) as u16;
    // Those that are as even as the port is inside, and then the others.
    [port & 1, !port & 1].into_iter().find_map(|parity| {
        let behind = taken.free(protocol, address, begin..=last, parity);
        let before = taken.free(protocol, address, first..=begin, parity);
        let free = behind.chain(before).take(PORTS_TRIED).find(|&port| !is_used(address, port))?;
        Some((address, free))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU16;
    use firelane_units::{NatAction, NatEnd, Port};
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn tuple(host: u8, port: u16, protocol: IpProtocol) -> Tuple {
        Tuple { src: [10, 0, 0, host].into(), dst: [192, 0, 2, 1].into(), ports: [port, 53], protocol }
    }

    fn rule(to: &str, ports: NatPorts) -> (NatRule<LinkId>, (NatTarget, NatPorts)) {
        let to = NatTarget::Prefix(to.parse().unwrap());
        let mut rule = NatRule::new(LinkId(1), NatAction::Map(to, ports));
        rule.from = NatEnd { prefix: "10.0.0.0/24".parse().ok(), ..NatEnd::default() };
        (rule, (to, ports))
    }

    fn none() -> TakenPorts {
        TakenPorts::new(SipHasher13::new_with_keys(1, 2))
    }

    /// The last free port of the largest range is found, wherever the search begins, without asking for the others.
    #[test]
    fn one_free_port_among_thousands_is_found() {
        let (rule, to) = rule("203.0.113.1/32", NatPorts::Range(Port(10_000), Port(60_000)));
        let hasher = SipHasher13::new_with_keys(1, 2);
        let mut all = none();
        let left = 31_007;
        (10_000..=60_000)
            .filter(|&port| port != left)
            .for_each(|port| all.put(IpProtocol::UDP, ([203, 0, 113, 1].into(), port)));
        for port in [1, 10_000, 31_006, 31_008, 65_535] {
            let asked = core::cell::Cell::new(0);
            let is_used = |_, _| asked.replace(asked.get() + 1) > 1000;
            let asks = tuple(7, port, IpProtocol::UDP);
            let found = choose(&rule, to, &asks, None, &hasher, (&all, is_used), |_| Some(32_768));
            assert_eq!(found, Some(([203, 0, 113, 1].into(), left)));
            assert_eq!(asked.get(), 1, "only of what no mapping has");
        }
        all.put(IpProtocol::UDP, ([203, 0, 113, 1].into(), left));
        let asks = tuple(7, 5000, IpProtocol::UDP);
        assert_eq!(choose(&rule, to, &asks, None, &hasher, (&all, |_, _| false), |_| None), None);
    }

    proptest! {
        /// Whatever is taken, what is chosen is free, in the range, and found if the range is small enough to be tried.
        #[test]
        fn a_free_port_of_the_range_is_found(
            taken in prop::collection::hash_set(2000_u16..2064, 0..64), used in prop::collection::hash_set(2000_u16..2064, 0..64),
            port in 1_u16.., host: u8, udp: bool,
        ) {
            let protocol = if udp { IpProtocol::UDP } else { IpProtocol::TCP };
            let mut all = none();
            taken.iter().for_each(|&port| all.put(protocol, ([203, 0, 113, 1].into(), port)));
            let busy: HashSet<u16> = taken.union(&used).copied().collect();
            let ports = NatPorts::Range(Port(2000), Port(2063));
            let (rule, to) = rule("203.0.113.1/32", ports);
            let tuple = tuple(host, port, protocol);
            let hasher = SipHasher13::new_with_keys(1, 2);
            let found = choose(&rule, to, &tuple, None, &hasher, (&all, |_, port| used.contains(&port)), |_| None);
            prop_assert_eq!(found.is_some(), busy.len() < 64);
            if let Some((_, chosen)) = found {
                prop_assert!((2000..2064).contains(&chosen) && !busy.contains(&chosen));
                let has_same_parity = |it: &u16| it % 2 == port % 2 && !busy.contains(it);
                prop_assert_eq!(chosen % 2 == port % 2, (2000..2064).any(|it| has_same_parity(&it)));
            }
        }
    }

    #[test]
    fn blocks_do_not_overlap_and_are_kept_to() {
        let (rule, to) = rule("203.0.113.0/30", NatPorts::Block(None));
        let hasher = SipHasher13::new_with_keys(1, 2);
        let mut seen = HashSet::new();
        for host in 0..=255 {
            let (_, block) = rule
                .from
                .prefix
                .map(|from| (from, block(from, [10, 0, 0, host].into(), (0, 4), None)))
                .unwrap();
            let block = block.unwrap();
            assert_eq!(block.last - block.first, 1007);
            assert!(seen.insert((block.address, block.first)) && block.first >= 1024);
            let found = choose(
                &rule,
                to,
                &tuple(host, 80, IpProtocol::TCP),
                None,
                &hasher,
                (&none(), |_, _| false),
                |_| None,
            )
            .unwrap();
            assert!((block.first..=block.last).contains(&found.1));
        }
        let small =
            super::block(rule.from.prefix.unwrap(), [10, 0, 0, 255].into(), (0, 1), NonZeroU16::new(1000));
        assert!(small.is_none(), "64 blocks are no 256");
    }

    #[test]
    fn without_a_range_the_port_stays_or_another_address_has_it() {
        let (rule, to) = rule("203.0.113.0/31", NatPorts::Same);
        let hasher = SipHasher13::new_with_keys(1, 2);
        let tcp = tuple(7, 4000, IpProtocol::TCP);
        let first = choose(&rule, to, &tcp, None, &hasher, (&none(), |_, _| false), |_| None).unwrap();
        let second =
            choose(&rule, to, &tcp, None, &hasher, (&none(), |address, _| address == first.0), |_| None)
                .unwrap();
        assert!(first.0 != second.0 && [first.1, second.1] == [4000; 2]);
        assert_eq!(choose(&rule, to, &tcp, None, &hasher, (&none(), |_, _| true), |_| None), None);
        let ping = tuple(7, 4000, IpProtocol::ICMPV4);
        let other = choose(&rule, to, &ping, None, &hasher, (&none(), |_, id| id == 4000), |_| None).unwrap();
        assert!(other.0 == first.0 && other.1 != 4000, "an identifier may change");
        assert_eq!(
            choose(&rule, to, &tuple(7, 0, IpProtocol(47)), None, &hasher, (&none(), |_, _| false), |_| None)
                .unwrap()
                .1,
            0
        );
    }

    /// A netstack that chooses ports of its own at an address gets them before others do.
    #[test]
    fn ports_that_others_choose_from_are_given_last() {
        let (rule, to) = rule("203.0.113.1/32", NatPorts::Range(Port(2000), Port(2063)));
        let hasher = SipHasher13::new_with_keys(1, 2);
        let mut given = HashSet::new();
        for nth in 0..64 {
            let asks = tuple(nth, 2040, IpProtocol::UDP);
            let is_taken = |_, port: u16| given.contains(&port);
            let (_, port) =
                choose(&rule, to, &asks, None, &hasher, (&none(), is_taken), |_| Some(2032)).unwrap();
            assert_eq!(port < 2032, nth < 32, "{nth}: {port}");
            given.insert(port);
        }
        // Of what has no others they are given.
        let asks = tuple(1, 2040, IpProtocol::UDP);
        let all = choose(&rule, to, &asks, None, &hasher, (&none(), |_, _| false), |_| Some(2000));
        assert_eq!(all.map(|(_, port)| port), Some(2040));
    }
}
