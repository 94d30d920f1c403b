//! The list of rules that a translator follows, what each has made, and the searches among them: the first that matches counts, as in
//! ipnat(5).

use core::net::Ipv4Addr;
use std::sync::Arc;

use firelane_units::{FilterProtocol, IpPrefix, LinkId, NatAction, NatLimits, NatRule, NatTarget, Port};
use firelane_wire::IpProtocol;

use crate::Host;
use crate::list::NatList;
use crate::lookup::Names;
use crate::outside::target;
use crate::tuple::Tuple;

/// What a rule has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuleCount {
    /// Sessions that it began, ever.
    pub hits: u64,
    /// Those that are there.
    pub active: u64,
}

/// A rule of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Its name, which it keeps in other lists.
    pub(crate) id: u32,
    pub(crate) rule: NatRule<LinkId>,
}

/// The rules.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    list: Arc<NatList>,
    counts: Vec<RuleCount>,
}

impl Rules {
    /// Follows another list: a rule that was there before goes on counting. How many sessions are of rules that have gone.
    pub(crate) fn follow(&mut self, list: &Arc<NatList>) -> u64 {
        let before = self.active();
        // Of no rules there is nothing that could go on.
        let is_compared = self.list.is_empty() || list.same_as(&self.list).is_some();
        let list = if is_compared { Arc::clone(list) } else { self.compared(list) };
        let same = list.same_as(&self.list).unwrap_or_default();
        let count = |nth| same.get(nth).copied().flatten().map(|nth| self.counts[nth as usize]);
        self.counts = (0..list.rules.len()).map(|nth| count(nth).unwrap_or_default()).collect();
        self.list = list;
        before - self.active()
    }

    /// The same list, compared with the one that is followed here: whoever gave it has compared it with another one.
    #[cold]
    fn compared(&self, list: &NatList) -> Arc<NatList> {
        let mut list = list.clone();
        list.compare(&self.list);
        Arc::new(list)
    }

    fn active(&self) -> u64 {
        self.counts.iter().map(|count| count.active).sum()
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The list that is followed.
    pub(crate) const fn list(&self) -> &Arc<NatList> {
        &self.list
    }

    pub(crate) fn limits(&self) -> NatLimits {
        self.list.limits
    }

    /// The how manieth rule has a name, if the list still has it.
    pub(crate) fn nth(&self, id: u32) -> Option<usize> {
        self.list.nth(id)
    }

    /// The rule of a name, if the list still has it.
    pub(crate) fn get(&self, id: u32) -> Option<&Rule> {
        self.list.rules.get(self.nth(id)?)
    }

    /// What each has made, in their order.
    pub(crate) fn counts(&self) -> &[RuleCount] {
        &self.counts
    }

    /// What the rule of a name has made.
    pub(crate) fn count(&mut self, id: u32) -> Option<&mut RuleCount> {
        let nth = self.nth(id)?;
        self.counts.get_mut(nth)
    }

    /// Of all rules all sessions have ended.
    pub(crate) fn end_all(&mut self) {
        self.counts.iter_mut().for_each(|count| count.active = 0);
    }

    fn rule(&self, nth: u32) -> &NatRule<LinkId> {
        &self.list.rules[nth as usize].rule
    }

    fn at(&self, nth: u32) -> Rule {
        self.list.rules[nth as usize]
    }

    /// The first rule about sources by a link that is for a packet that leaves; as if it left, if it is one between two inside.
    pub(crate) fn of_source(&self, link: LinkId, tuple: &Tuple) -> Option<Rule> {
        let found =
            self.list.asked.sources.first(&Names::of(link, tuple), |nth| matches(self.rule(nth), tuple));
        found.map(|nth| self.at(nth))
    }

    /// Whether a rule has another address for who sends by a link, whatever it sends.
    pub(crate) fn is_mapped(&self, link: LinkId, src: Ipv4Addr) -> bool {
        let is_it = |nth| {
            let from = &self.rule(nth).from;
            from.prefix.is_some_and(|prefix| prefix.contains(src.into())) != from.negated
        };
        self.list.asked.senders.first(&Names::of_source(link, src), is_it).is_some()
    }

    /// The first `rdr` for a packet that arrives; from any other link than its own if `is_from_inside`.
    pub(crate) fn of_destination(&self, link: LinkId, tuple: &Tuple, is_from_inside: bool) -> Option<Rule> {
        let destinations = &self.list.asked.destinations[usize::from(is_from_inside)];
        let is_it = |nth| {
            let rule = self.rule(nth);
            (rule.link == link) != is_from_inside && matches(rule, tuple)
        };
        destinations.first(&Names::of(link, tuple), is_it).map(|nth| self.at(nth))
    }

    /// The first `bimap` whose address outside a packet is for that arrives, and who has that inside; from any other link than the rule's
    /// own if `is_from_inside`.
    pub(crate) fn of_opposite(
        &self,
        link: LinkId,
        tuple: &Tuple,
        is_from_inside: bool,
        host: &impl Host,
    ) -> Option<(Rule, Ipv4Addr)> {
        let asked = &self.list.asked;
        let is_its = |rule: &NatRule<LinkId>| (rule.link == link) != is_from_inside;
        let is_it = |nth, of_link| {
            let rule = self.rule(nth);
            is_its(rule) && inside_of(rule, tuple, of_link).is_some()
        };
        let names = Names::of(link, tuple);
        let found = asked.opposites[usize::from(is_from_inside)].first(&names, |nth| is_it(nth, None));
        // Of rules with addresses of their own nobody is asked for one.
        let by = match is_from_inside {
            _ if asked.opposites_of_link.is_empty() => None,
            true => host.link_of(tuple.dst),
            false => Some(link),
        };
        let by = by.filter(|&by| host.address_of(by) == Some(tuple.dst));
        let of_link = by.and_then(|by| {
            asked.opposites_of_link.first(&Names::of(by, tuple), |nth| is_it(nth, Some(tuple.dst)))
        });
        let nth = found.into_iter().chain(of_link).min()?;
        Some((self.at(nth), inside_of(self.rule(nth), tuple, Some(tuple.dst))?))
    }

    /// Whether a `map` by a link may give somebody what a packet is for.
    pub(crate) fn may_give(&self, link: LinkId, tuple: &Tuple, host: &impl Host) -> bool {
        let (asked, names) = (&self.list.asked, Names::of(link, tuple));
        let of_link = || !asked.given_of_link.is_empty() && host.address_of(link) == Some(tuple.dst);
        asked.given.first(&names, |_| true).is_some()
            || (of_link() && asked.given_of_link.first(&names, |_| true).is_some())
    }

    /// The first rule by a link whose server may be who sends a packet, and of which `outside` says what names he has outside.
    pub(crate) fn of_server<T>(
        &self,
        link: LinkId,
        tuple: &Tuple,
        outside: impl Fn(&NatRule<LinkId>) -> Option<T>,
    ) -> Option<(u32, T)> {
        let is_it = |nth| outside(self.rule(nth)).is_some();
        let nth = self.list.asked.served.first(&Names::of(link, tuple), is_it)?;
        Some((self.at(nth).id, outside(self.rule(nth))?))
    }

    /// Whether packets to others are for an address.
    pub(crate) fn is_server(&self, address: Ipv4Addr) -> bool {
        self.list.asked.servers.first(&Names::of_source(LinkId::default(), address), |_| true).is_some()
    }

    /// Whether packets to an address are for somebody else, whatever their ports, from outside or from another inside.
    pub(crate) fn is_translated(&self, link: LinkId, tuple: &Tuple, host: &impl Host) -> bool {
        let (asked, names) = (&self.list.asked, Names::of(link, tuple));
        if asked.outside.first(&names, |_| true).is_some() {
            return true;
        }
        let is_it = |nth| {
            let rule = self.rule(nth);
            rule.from.has_address(tuple.src) && rule.to.has_address(tuple.dst)
        };
        let is_own = host.owns(tuple.dst);
        if asked.receivers[usize::from(is_own)].first(&names, is_it).is_some() {
            return true;
        }
        if asked.outside_of_link.is_empty() {
            return false;
        }
        let by = host.link_of(tuple.dst).filter(|&by| host.address_of(by) == Some(tuple.dst));
        by.is_some_and(|by| asked.outside_of_link.first(&Names::of(by, tuple), |_| true).is_some())
    }
}

/// Who has the address inside for which a `bimap` has a packet's destination outside, if the rule is for what it would send back.
fn inside_of(rule: &NatRule<LinkId>, tuple: &Tuple, of_link: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
    let NatAction::Bimap(to) = rule.action else { return None };
    let (first, count) = target(to, of_link.filter(|_| to == NatTarget::OfLink))?;
    let place = tuple.dst.to_bits().checked_sub(first).filter(|&place| u64::from(place) < count)?;
    let (inside, _) = span(rule.from.prefix?)?;
    let inside = Ipv4Addr::from_bits(inside.checked_add(place)?);
    // As if it had asked.
    let asked = Tuple { dst: inside, ..*tuple }.reversed();
    matches(rule, &asked).then_some(inside)
}

/// Whether a rule is for a packet's protocol, addresses and ports.
pub(crate) fn matches(rule: &NatRule<LinkId>, tuple: &Tuple) -> bool {
    let has_ports = matches!(tuple.protocol, IpProtocol::TCP | IpProtocol::UDP);
    let [from, to] = tuple.ports.map(|port| Some(Port(port)).filter(|_| has_ports));
    is_of_protocol(rule, tuple.protocol)
        && rule.from.contains(tuple.src, from)
        && rule.to.contains(tuple.dst, to)
}

/// Whether a rule is for a protocol.
pub(crate) fn is_of_protocol(rule: &NatRule<LinkId>, protocol: IpProtocol) -> bool {
    match rule.protocol {
        FilterProtocol::Any => true,
        FilterProtocol::TcpUdp => matches!(protocol, IpProtocol::TCP | IpProtocol::UDP),
        FilterProtocol::Number(number) => protocol.0 == number,
    }
}

/// How many addresses an IPv4 prefix has, and its first.
pub(crate) fn span(prefix: IpPrefix) -> Option<(u32, u64)> {
    let core::net::IpAddr::V4(first) = prefix.network().addr() else { return None };
    Some((first.to_bits(), 1 << (32 - prefix.prefix_len())))
}

/// The how manieth an address of a prefix is.
pub(crate) fn place_in(prefix: IpPrefix, address: Ipv4Addr) -> Option<u32> {
    let (first, _) = span(prefix).filter(|_| prefix.contains(address.into()))?;
    Some(address.to_bits() - first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrived, NatConfig};
    use firelane_units::{FilterPorts, NatEnd, NatPorts, NatRedirect};
    use proptest::prelude::*;
    use proptest::sample::select;

    /// A router with an address on each of its links but the last.
    struct Router;

    const LINKS: [LinkId; 4] = [LinkId(1), LinkId(2), LinkId(3), LinkId(4)];

    impl Host for Router {
        fn owns(&self, address: Ipv4Addr) -> bool {
            self.link_of(address).is_some()
        }
        fn address_of(&self, link: LinkId) -> Option<Ipv4Addr> {
            (link != LINKS[3]).then(|| Ipv4Addr::new(192, 0, 2, link.0 as u8))
        }
        fn link_of(&self, address: Ipv4Addr) -> Option<LinkId> {
            // The last address is an alias.
            LINKS
                .into_iter()
                .find(|&link| self.address_of(link) == Some(address))
                .or_else(|| (address == Ipv4Addr::new(192, 0, 2, 9)).then_some(LINKS[0]))
        }
        fn uses(&self, _: &Tuple) -> bool {
            false
        }
        fn chooses_from(&self, _: IpProtocol, _: Ipv4Addr) -> Option<Port> {
            None
        }
        fn expects(&self, _: &Tuple) -> bool {
            false
        }
        fn has_begun(&self, _: &Arrived) -> bool {
            false
        }
    }

    fn network() -> impl Strategy<Value = IpPrefix> {
        select(vec![
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.0.0.0/24",
            "10.0.0.7/24",
            "10.0.0.5/32",
            "10.0.0.6/31",
            "192.0.2.0/24",
            "192.0.2.1/32",
            "192.0.2.9/32",
            "203.0.113.0/30",
            "203.0.113.2/31",
            "255.255.255.0/24",
            "fd00::/8",
        ])
        .prop_map(|text| text.parse().unwrap())
    }

    fn port() -> impl Strategy<Value = Port> {
        select(vec![0, 1, 80, 81, 82, 1023, 1024, 5000, u16::MAX]).prop_map(Port)
    }

    fn ports() -> impl Strategy<Value = FilterPorts> {
        (0..12_u8, port(), port()).prop_map(|(kind, one, other)| match kind {
            0 => FilterPorts::NotEqual(one),
            1 => FilterPorts::Less(one),
            2 => FilterPorts::AtLeast(one),
            3 => FilterPorts::Inside(one, other),
            4 => FilterPorts::Outside(one, other),
            5 => FilterPorts::Range(one.min(other), one.max(other)),
            6..9 => FilterPorts::Equal(one),
            _ => FilterPorts::Any,
        })
    }

    fn end() -> impl Strategy<Value = NatEnd> {
        let negated = prop::bool::weighted(0.2);
        (negated, prop::option::of(network()), ports()).prop_map(|(negated, prefix, ports)| NatEnd {
            negated,
            prefix,
            ports,
        })
    }

    fn address() -> impl Strategy<Value = Ipv4Addr> {
        select(vec![
            "10.0.0.0",
            "10.0.0.5",
            "10.0.0.6",
            "10.0.0.7",
            "10.1.0.5",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.9",
            "203.0.113.0",
            "203.0.113.2",
            "203.0.113.3",
            "255.255.255.1",
            "8.8.8.8",
        ])
        .prop_map(|text| text.parse().unwrap())
    }

    fn action() -> impl Strategy<Value = NatAction> {
        let target = || prop_oneof![Just(NatTarget::OfLink), network().prop_map(NatTarget::Prefix)];
        let given = prop_oneof![
            Just(NatPorts::Same),
            (port(), port()).prop_map(|(one, other)| NatPorts::Range(one.min(other), one.max(other))),
            Just(NatPorts::Block(None)),
        ];
        let server = (address(), prop::option::of(address()), prop::option::of(port()), any::<bool>());
        prop_oneof![
            (target(), given).prop_map(|(to, ports)| NatAction::Map(to, ports)),
            target().prop_map(NatAction::Bimap),
            server.prop_map(|(address, second, port, is_range)| {
                NatAction::Redirect(NatRedirect { address, second, port, is_range })
            }),
        ]
    }

    fn rule() -> impl Strategy<Value = NatRule<LinkId>> {
        use FilterProtocol::{Any, Number, TcpUdp};
        let protocol = select(vec![Any, Any, TcpUdp, Number(1), Number(6), Number(17), Number(47)]);
        (select(LINKS.to_vec()), protocol, end(), end(), action()).prop_map(
            |(link, protocol, from, to, action)| NatRule { protocol, from, to, ..NatRule::new(link, action) },
        )
    }

    fn tuple() -> impl Strategy<Value = Tuple> {
        let protocol = select(vec![1, 6, 6, 17, 17, 47]).prop_map(IpProtocol);
        (address(), address(), port(), port(), protocol).prop_map(|(src, dst, from, to, protocol)| {
            let ports =
                if matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) { [from.0, to.0] } else { [0; 2] };
            Tuple { src, dst, ports, protocol }
        })
    }

    fn is_in(to: NatTarget, address: Ipv4Addr, of_link: Option<Ipv4Addr>) -> bool {
        target(to, of_link).is_some_and(|(first, count)| {
            address.to_bits().checked_sub(first).is_some_and(|place| u64::from(place) < count)
        })
    }

    /// The searches, rule by rule.
    struct Plain<'a>(&'a [NatRule<LinkId>]);

    impl Plain<'_> {
        fn first(&self, is_it: impl Fn(&NatRule<LinkId>) -> bool) -> Option<u32> {
            self.0.iter().position(is_it).map(|nth| nth as u32 + 1)
        }

        fn of_source(&self, link: LinkId, tuple: &Tuple) -> Option<u32> {
            self.first(|rule| {
                rule.link == link && !matches!(rule.action, NatAction::Redirect(_)) && matches(rule, tuple)
            })
        }

        fn of_destination(&self, link: LinkId, tuple: &Tuple, is_from_inside: bool) -> Option<u32> {
            self.first(|rule| {
                (rule.link == link) != is_from_inside
                    && matches!(rule.action, NatAction::Redirect(_))
                    && matches(rule, tuple)
            })
        }

        fn of_opposite(&self, link: LinkId, tuple: &Tuple, is_from_inside: bool) -> Option<(u32, Ipv4Addr)> {
            let inside = |rule: &NatRule<LinkId>| inside_of(rule, tuple, Router.address_of(rule.link));
            let nth = self.first(|rule| (rule.link == link) != is_from_inside && inside(rule).is_some())?;
            Some((nth, inside(&self.0[nth as usize - 1])?))
        }

        fn may_give(&self, link: LinkId, tuple: &Tuple) -> bool {
            let is_it = |rule: &NatRule<LinkId>| {
                let NatAction::Map(to, ports) = rule.action else { return false };
                let (low, high) = match ports {
                    NatPorts::Range(low, high) => (low.0, high.0),
                    NatPorts::Block(_) => (firelane_units::NAT_BLOCKS_FROM, u16::MAX),
                    NatPorts::Same => return false,
                };
                rule.link == link
                    && (low..=high).contains(&tuple.ports[1])
                    && is_in(to, tuple.dst, Router.address_of(link))
            };
            self.first(is_it).is_some()
        }

        fn is_mapped(&self, link: LinkId, src: Ipv4Addr) -> bool {
            let is_it = |rule: &NatRule<LinkId>| {
                rule.link == link
                    && !matches!(rule.action, NatAction::Redirect(_))
                    && rule.from.prefix.is_some_and(|from| from.contains(src.into())) != rule.from.negated
            };
            self.first(is_it).is_some()
        }

        fn is_server(&self, address: Ipv4Addr) -> bool {
            let is_it = |rule: &NatRule<LinkId>| match rule.action {
                NatAction::Redirect(to) => to.address == address || to.second == Some(address),
                NatAction::Map(..) | NatAction::Bimap(_) => false,
            };
            self.first(is_it).is_some()
        }

        fn is_translated(&self, link: LinkId, tuple: &Tuple) -> bool {
            let is_it = |rule: &NatRule<LinkId>| {
                is_of_protocol(rule, tuple.protocol)
                    && match rule.action {
                        NatAction::Map(to, _) | NatAction::Bimap(to) => {
                            is_in(to, tuple.dst, Router.address_of(rule.link))
                        }
                        NatAction::Redirect(_) => {
                            (rule.link == link || Router.owns(tuple.dst))
                                && rule.from.has_address(tuple.src)
                                && rule.to.has_address(tuple.dst)
                        }
                    }
            };
            self.first(is_it).is_some()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]
        /// Whoever looks rules up finds what he finds who goes through all of them.
        #[test]
        fn the_first_rule_is_found_without_a_look_at_all(
            rules in prop::collection::vec(rule(), 0..40), packets in prop::collection::vec((select(LINKS.to_vec()), tuple()), 1..20),
        ) {
            let plain = Plain(&rules);
            let mut followed = Rules::default();
            followed.follow(&Arc::new(NatList::new(NatConfig { rules: rules.clone(), ..NatConfig::default() })));
            let id = |found: Option<Rule>| found.map(|rule| rule.id);
            for (link, tuple) in packets {
                let told = format!("{tuple:?} by {link}");
                prop_assert_eq!(id(followed.of_source(link, &tuple)), plain.of_source(link, &tuple), "{}", told);
                for inside in [false, true] {
                    let found = id(followed.of_destination(link, &tuple, inside));
                    prop_assert_eq!(found, plain.of_destination(link, &tuple, inside), "{} {}", told, inside);
                    let found = followed.of_opposite(link, &tuple, inside, &Router);
                    let found = found.map(|(rule, address)| (rule.id, address));
                    prop_assert_eq!(found, plain.of_opposite(link, &tuple, inside), "{} {}", told, inside);
                }
                if tuple.protocol == IpProtocol::TCP {
                    prop_assert_eq!(followed.may_give(link, &tuple, &Router), plain.may_give(link, &tuple), "{}", told);
                }
                prop_assert_eq!(followed.is_mapped(link, tuple.src), plain.is_mapped(link, tuple.src), "{}", told);
                prop_assert_eq!(followed.is_server(tuple.src), plain.is_server(tuple.src), "{}", told);
                let found = followed.is_translated(link, &tuple, &Router);
                prop_assert_eq!(found, plain.is_translated(link, &tuple), "{}", told);
                let server = (crate::Ipv4Addr::UNSPECIFIED.to_bits(), 1 << 32);
                let outside = |rule: &NatRule<LinkId>| crate::served::outside_of(rule, server, &tuple);
                let walked = plain.first(|rule| rule.link == link && outside(rule).is_some());
                let walked = walked.and_then(|nth| Some((nth, outside(&rules[nth as usize - 1])?)));
                prop_assert_eq!(followed.of_server(link, &tuple, outside), walked, "{}", told);
            }
        }
    }

    /// Of more addresses outside than inside those behind the last one inside are another rule's.
    #[test]
    fn addresses_outside_that_a_rule_has_nobody_for_are_those_of_the_next() {
        let to = NatTarget::Prefix("203.0.113.0/30".parse().unwrap());
        let rule = |from: &str| {
            let from = NatEnd { prefix: from.parse().ok(), ..NatEnd::default() };
            NatRule { from, ..NatRule::new(LINKS[0], NatAction::Bimap(to)) }
        };
        let mut followed = Rules::default();
        let rules = vec![rule("10.0.0.0/31"), rule("10.0.1.0/30")];
        followed.follow(&Arc::new(NatList::new(NatConfig { rules, ..NatConfig::default() })));
        for (outside, inside) in [(1, [10, 0, 0, 1]), (2, [10, 0, 1, 2])] {
            let dst = Ipv4Addr::new(203, 0, 113, outside);
            let tuple = Tuple { src: [8; 4].into(), dst, ports: [0; 2], protocol: IpProtocol(47) };
            let found = followed.of_opposite(LINKS[0], &tuple, false, &Router);
            assert_eq!(found.map(|(_, address)| address), Some(inside.into()));
        }
    }
}
