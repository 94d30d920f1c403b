//! The rules, and the search among them: the first that matches counts, as in ipnat(5).

use core::net::Ipv4Addr;
use std::collections::{HashMap, VecDeque};

use firelane_units::{FilterProtocol, IpPrefix, LinkId, NatAction, NatRule, Port};
use firelane_wire::IpProtocol;

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
    pub(crate) count: RuleCount,
}

/// The rules.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) list: Vec<Rule>,
    /// Which rule of the list has a name.
    named: HashMap<u32, usize>,
    /// So many names were given.
    names: u32,
}

impl Rules {
    /// Follows another list: a rule that was there before keeps its name and its count. How many sessions are of rules that have gone.
    pub(crate) fn set(&mut self, rules: Vec<NatRule<LinkId>>) -> u64 {
        let mut known: HashMap<NatRule<LinkId>, VecDeque<Rule>> = HashMap::new();
        for rule in core::mem::take(&mut self.list) {
            known.entry(rule.rule).or_default().push_back(rule);
        }
        for rule in rules {
            let before = known.get_mut(&rule).and_then(VecDeque::pop_front);
            self.list.push(before.unwrap_or_else(|| {
                self.names += 1;
                Rule { id: self.names, rule, count: RuleCount::default() }
            }));
        }
        self.named = self.list.iter().enumerate().map(|(nth, rule)| (rule.id, nth)).collect();
        known.values().flatten().map(|rule| rule.count.active).sum()
    }

    /// The how manieth rule has a name, if the list still has it.
    pub(crate) fn nth(&self, id: u32) -> Option<usize> {
        self.named.get(&id).copied()
    }

    /// What the rule of a name has made.
    pub(crate) fn count(&mut self, id: u32) -> Option<&mut RuleCount> {
        let nth = self.nth(id)?;
        Some(&mut self.list[nth].count)
    }

    /// The first rule about sources by a link that is for a packet that leaves; as if it left, if it is one between two inside.
    pub(crate) fn of_source(&self, link: LinkId, tuple: &Tuple) -> Option<Rule> {
        self.first(|rule| {
            rule.link == link && !matches!(rule.action, NatAction::Redirect(_)) && matches(rule, tuple)
        })
    }

    /// The first `rdr` for a packet that arrives; from any other link than its own if `is_from_inside`.
    pub(crate) fn of_destination(&self, link: LinkId, tuple: &Tuple, is_from_inside: bool) -> Option<Rule> {
        self.first(|rule| {
            (rule.link == link) != is_from_inside
                && matches!(rule.action, NatAction::Redirect(_))
                && matches(rule, tuple)
        })
    }

    /// The first of the rules of which `is_it` says so.
    pub(crate) fn first(&self, is_it: impl Fn(&NatRule<LinkId>) -> bool) -> Option<Rule> {
        self.list.iter().find(|it| is_it(&it.rule)).copied()
    }
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
