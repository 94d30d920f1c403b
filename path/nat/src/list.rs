//! A list of rules, as it is before a lane follows it: each with its name, compared with the list before it, and entered where packets
//! look for it.
//!
//! The making and the end of a long list take milliseconds. Whoever gives it to lanes makes it before, compares it with the one that they
//! follow ([`NatList::compare`]), and keeps that one until none of them does any more.

use core::net::Ipv4Addr;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use firelane_units::{
    FilterPorts, LinkId, NAT_BLOCKS_FROM, NatAction, NatEnd, NatLimits, NatPorts, NatRedirect, NatRule,
    NatTarget, Port,
};

use crate::NatConfig;
use crate::lookup::{Ask, Lookup};
use crate::rules::{Rule, span};

/// Rules in their order and limits, made for translators to follow.
#[derive(Clone, Debug, Default)]
pub struct NatList {
    pub(crate) rules: Vec<Rule>,
    pub(crate) limits: NatLimits,
    /// Which rule of the list has a name.
    named: HashMap<u32, u32>,
    /// So many names were given, by this list and those before it.
    names: u32,
    /// The list that it was compared with, and which rule of that each of its own is.
    before: (Weak<NatList>, Vec<Option<u32>>),
    pub(crate) asked: Asked,
}

/// Where packets look for rules. Of two, the first is for the rule's own link and the second for all others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// `map` and `bimap`, by what leaves.
    pub(crate) sources: Lookup,
    /// The same by the source alone.
    pub(crate) senders: Lookup,
    /// `map`, by the names that it gives; and where those are at the link's own address.
    pub(crate) given: Lookup,
    pub(crate) given_of_link: Lookup,
    /// `bimap`, by what arrives for who has the address outside.
    pub(crate) opposites: [Lookup; 2],
    pub(crate) opposites_of_link: Lookup,
    /// `map` and `bimap`, by the addresses that they give.
    pub(crate) outside: Lookup,
    pub(crate) outside_of_link: Lookup,
    /// `rdr`, by what arrives.
    pub(crate) destinations: [Lookup; 2],
    /// The same without ports, and for any link.
    pub(crate) receivers: [Lookup; 2],
    /// By who begins in the server's name.
    pub(crate) served: Lookup,
    /// By the server's address, as if it were a source.
    pub(crate) servers: Lookup,
}

impl NatList {
    /// From rules in their order.
    pub fn new(NatConfig { rules, limits }: NatConfig) -> Self {
        let mut list = Self { limits, ..Self::default() };
        for (rule, nth) in rules.into_iter().zip(0..) {
            list.asked.enter(nth, &rule);
            list.rules.push(Rule { id: nth + 1, rule });
        }
        list.names = list.rules.len() as u32;
        list.look_up_names();
        list
    }

    /// Compares it with the list whose place it takes, so that nobody who follows that one has to: a rule that is there, too, keeps its
    /// name.
    pub fn compare(&mut self, old: &Arc<Self>) {
        let same = self.find_same(old);
        self.names = old.names;
        for (rule, nth) in self.rules.iter_mut().zip(&same) {
            rule.id = nth.map_or_else(
                || {
                    self.names += 1;
                    self.names
                },
                |nth| old.rules[nth as usize].id,
            );
        }
        self.look_up_names();
        self.before = (Arc::downgrade(old), same);
    }

    /// Whether nothing is translated.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Which rule of `old` each one is, if it was compared with that.
    pub(crate) fn same_as(&self, old: &Arc<Self>) -> Option<&[Option<u32>]> {
        core::ptr::eq(self.before.0.as_ptr(), Arc::as_ptr(old)).then_some(&*self.before.1)
    }

    /// The how manieth rule has a name, if the list has it.
    pub(crate) fn nth(&self, id: u32) -> Option<usize> {
        self.named.get(&id).map(|&nth| nth as usize)
    }

    fn look_up_names(&mut self) {
        self.named = self.rules.iter().zip(0..).map(|(rule, nth)| (rule.id, nth)).collect();
    }

    /// Of equal rules the first is the first.
    fn find_same(&self, old: &Self) -> Vec<Option<u32>> {
        let mut known: HashMap<&NatRule<LinkId>, VecDeque<u32>> = HashMap::new();
        for (it, nth) in old.rules.iter().zip(0..) {
            known.entry(&it.rule).or_default().push_back(nth);
        }
        self.rules.iter().map(|it| known.get_mut(&it.rule)?.pop_front()).collect()
    }
}

/// The network of one end, and whether the end is no more and no less than that.
fn network(end: &NatEnd) -> (Option<(u32, u8)>, bool) {
    match end.prefix.map(block) {
        None => (None, !end.negated),
        Some(Some(block)) if !end.negated => (Some(block), true),
        Some(_) => (None, false),
    }
}

/// The first address of an IPv4 prefix, and its length.
fn block(prefix: firelane_units::IpPrefix) -> Option<(u32, u8)> {
    span(prefix).map(|(first, _)| (first, prefix.prefix_len()))
}

/// What a rule asks of packets as they are before they are translated.
fn ask_of(rule: &NatRule<LinkId>) -> Ask {
    let [(src, is_src), (dst, is_dst)] = [&rule.from, &rule.to].map(network);
    Ask {
        link: Some(rule.link),
        protocol: rule.protocol,
        ends: [src, dst],
        ports: [rule.from.ports, rule.to.ports],
        is_all: is_src && is_dst,
    }
}

/// The other way: source and destination change places.
const fn reversed(ask: Ask) -> Ask {
    let ([src, dst], [from, to]) = (ask.ends, ask.ports);
    Ask { ends: [dst, src], ports: [to, from], ..ask }
}

impl Asked {
    fn enter(&mut self, nth: u32, rule: &NatRule<LinkId>) {
        let ask = ask_of(rule);
        match rule.action {
            NatAction::Map(to, ports) => {
                self.sources.enter(nth, rule.link, &ask);
                self.enter_source(nth, rule, to);
                self.enter_given(nth, rule.link, (to, ports));
            }
            NatAction::Bimap(to) => {
                self.sources.enter(nth, rule.link, &ask);
                self.enter_source(nth, rule, to);
                self.enter_opposite(nth, rule, &ask, to);
            }
            NatAction::Redirect(to) => {
                let without_ports = Ask { ports: [FilterPorts::Any; 2], ..ask };
                for (both, ask) in [(&mut self.destinations, ask), (&mut self.receivers, without_ports)] {
                    both[0].enter(nth, rule.link, &ask);
                    both[1].enter(nth, rule.link, &Ask { link: None, ..ask });
                }
                self.enter_server(nth, rule, to);
            }
        }
    }

    /// A rule that gives who sends an address outside.
    fn enter_source(&mut self, nth: u32, rule: &NatRule<LinkId>, to: NatTarget) {
        let (src, is_all) = network(&rule.from);
        let has_none = rule.from.prefix.is_none() && !rule.from.negated;
        if !has_none {
            // Who is of none is of all others than none, too.
            let is_all = is_all || rule.from.prefix.is_none();
            let ask = Ask { link: Some(rule.link), ends: [src, None], is_all, ..Ask::default() };
            self.senders.enter(nth, rule.link, &ask);
        }
        let ask = Ask { protocol: rule.protocol, ..Ask::default() };
        match to {
            NatTarget::OfLink => {
                self.outside_of_link.enter(nth, rule.link, &Ask { link: Some(rule.link), ..ask });
            }
            NatTarget::Prefix(prefix) => {
                if let Some(block) = block(prefix) {
                    self.outside.enter(nth, rule.link, &Ask { ends: [None, Some(block)], ..ask });
                }
            }
        }
    }

    fn enter_given(&mut self, nth: u32, link: LinkId, (to, ports): (NatTarget, NatPorts)) {
        let ports = match ports {
            NatPorts::Range(low, high) => FilterPorts::Range(low, high),
            NatPorts::Block(_) => FilterPorts::AtLeast(Port(NAT_BLOCKS_FROM)),
            NatPorts::Same => return,
        };
        let ask = Ask { link: Some(link), ports: [FilterPorts::Any, ports], ..Ask::default() };
        match to {
            NatTarget::OfLink => self.given_of_link.enter(nth, link, &ask),
            NatTarget::Prefix(prefix) => {
                if let Some(block) = block(prefix) {
                    self.given.enter(nth, link, &Ask { ends: [None, Some(block)], ..ask });
                }
            }
        }
    }

    /// What arrives for an address outside is for who has it inside, if the rule would be for what that one sends back.
    fn enter_opposite(&mut self, nth: u32, rule: &NatRule<LinkId>, ask: &Ask, to: NatTarget) {
        if rule.from.prefix.and_then(span).is_none() {
            return;
        }
        let answer = reversed(*ask);
        let [src, inside] = answer.ends;
        match to {
            NatTarget::OfLink => {
                self.opposites_of_link.enter(nth, rule.link, &Ask { ends: [src, None], ..answer });
            }
            NatTarget::Prefix(prefix) => {
                let Some((first, length)) = block(prefix) else { return };
                // Of more addresses outside than inside the first have somebody.
                let length = inside.map_or(length, |(_, inside)| length.max(inside));
                let ask = Ask { ends: [src, Some((first, length))], ..answer };
                self.opposites[0].enter(nth, rule.link, &ask);
                self.opposites[1].enter(nth, rule.link, &Ask { link: None, ..ask });
            }
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&Lookup> {
        let Self { sources, senders, given, given_of_link, opposites, opposites_of_link, outside, .. } = self;
        let Self { outside_of_link, destinations, receivers, served, servers, .. } = self;
        let alone = [sources, senders, given, given_of_link, opposites_of_link, outside, outside_of_link];
        let both = [opposites, destinations, receivers].into_iter().flatten();
        alone.into_iter().chain([served, servers]).chain(both).collect()
    }

    fn enter_server(&mut self, nth: u32, rule: &NatRule<LinkId>, to: NatRedirect) {
        let host = |address: Ipv4Addr| Some((address.to_bits(), 32));
        for server in [Some(to.address), to.second].into_iter().flatten() {
            self.servers.enter(nth, rule.link, &Ask { ends: [host(server), None], ..Ask::default() });
        }
        // The port inside from which the server answers (`served.rs`).
        let inside = match (rule.to.ports, to.port) {
            (_, None) => rule.to.ports,
            (FilterPorts::Equal(_), Some(port)) => FilterPorts::Equal(port),
            (FilterPorts::Range(low, high), Some(first)) if to.is_range => {
                let last = first.0.saturating_add(high.0.saturating_sub(low.0));
                FilterPorts::Range(first, Port(last))
            }
            _ => return,
        };
        // It depends on what else is asked which names outside it has.
        self.served.enter(
            nth,
            rule.link,
            &Ask {
                link: Some(rule.link),
                protocol: rule.protocol,
                ends: [host(to.address), None],
                ports: [inside, FilterPorts::Any],
                is_all: false,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;
    use firelane_units::FilterProtocol;

    const WAN: LinkId = LinkId(1);

    fn rule(from: &str, action: NatAction) -> NatRule<LinkId> {
        let from = NatEnd { prefix: from.parse().ok(), ..NatEnd::default() };
        NatRule { from, ..NatRule::new(WAN, action) }
    }

    fn list(rules: Vec<NatRule<LinkId>>) -> NatList {
        NatList::new(NatConfig { rules, ..NatConfig::default() })
    }

    /// A rule of each kind for each of many addresses and ports, and some for whole networks.
    fn many(count: u16) -> Vec<NatRule<LinkId>> {
        let each = |nth: u16| {
            let [high, low] = nth.to_be_bytes();
            let (inside, outside) = (format!("10.0.{high}.{low}/32"), format!("203.0.{high}.{low}/32"));
            let to = NatTarget::Prefix(outside.parse().unwrap());
            let server = |port, is_range| {
                let address = Ipv4Addr::new(10, 1, 0, 1);
                NatAction::Redirect(NatRedirect { address, second: None, port: Some(Port(port)), is_range })
            };
            let at = |ports| NatEnd { prefix: "192.0.2.1/32".parse().ok(), ports, ..NatEnd::default() };
            let first = 1024 + nth * 8;
            let redirect = |ports, action| NatRule {
                to: at(ports),
                protocol: FilterProtocol::TcpUdp,
                ..NatRule::new(WAN, action)
            };
            [
                rule(&inside, NatAction::Map(to, NatPorts::Range(Port(1024), Port(u16::MAX)))),
                rule(&inside, NatAction::Bimap(to)),
                redirect(FilterPorts::Equal(Port(first)), server(first, false)),
                redirect(FilterPorts::Range(Port(first + 1), Port(first + 5)), server(first + 1, true)),
            ]
        };
        let mut rules: Vec<_> = (0..count).flat_map(each).collect();
        rules.push(rule("10.2.0.0/16", NatAction::Map(NatTarget::OfLink, NatPorts::Block(None))));
        rules
    }

    /// A packet is looked up in few places, with few rules in each, however many rules there are.
    #[test]
    fn what_a_packet_costs_does_not_depend_on_how_many_rules_there_are() {
        let cost =
            |count| -> Vec<_> { list(many(count)).asked.all().into_iter().map(Lookup::cost).collect() };
        assert_eq!(cost(20), cost(2000));
        assert!(cost(2000).into_iter().all(|(places, rules)| places <= 12 && rules <= 2), "{:?}", cost(2000));
    }

    /// A rule that stays keeps its name, whether its list was compared or the translator has to do so itself.
    #[test]
    fn a_list_is_compared_once_with_the_one_before_it() {
        let rules = |nths: &[u8]| {
            let to = NatTarget::OfLink;
            let each = |nth| rule(&format!("10.0.0.{nth}/32"), NatAction::Map(to, NatPorts::Same));
            list(nths.iter().map(each).collect())
        };
        let ids = |list: &NatList| list.rules.iter().map(|rule| rule.id).collect::<Vec<_>>();
        let first = Arc::new(rules(&[1, 2, 2]));
        let mut second = rules(&[2, 3, 1, 2]);
        assert!(second.same_as(&first).is_none());
        second.compare(&first);
        assert_eq!(second.same_as(&first), Some(&[Some(1), None, Some(0), Some(2)][..]));
        assert_eq!(ids(&second), [2, 4, 1, 3]);
        let second = Arc::new(second);
        let mut third = rules(&[3, 4]);
        third.compare(&second);
        assert_eq!(ids(&third), [4, 5], "no name is given twice");
        let third = Arc::new(third);
        for skips in [false, true] {
            let mut followed = Rules::default();
            followed.follow(&first);
            for id in [1, 2, 3, 3] {
                followed.count(id).unwrap().active += 1;
            }
            if !skips {
                assert_eq!(followed.follow(&second), 0);
                assert!(Arc::ptr_eq(followed.list(), &second));
                let active: Vec<_> = followed.counts().iter().map(|count| count.active).collect();
                assert_eq!(active, [1, 0, 1, 2]);
            }
            assert_eq!(followed.follow(&third), 4, "of what is there no more {skips}");
            assert_eq!(Arc::ptr_eq(followed.list(), &third), !skips, "it was compared with another one");
        }
    }
}
