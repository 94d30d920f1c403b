//! The rules, compiled, and the search among them.
//!
//! As ipf(5) has it: rules are read in order, the last that matches counts, `quick` ends the search, `head` goes on with a
//! group's rules, whose last match counts more than the head's own, `call` goes on with the rules of the group that a map has for an
//! address, and `skip` leaves some out. A match of `count`, `log` or `call` is noted and decides nothing by itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use core::net::IpAddr;
use core::num::NonZeroU32;
use firelane_units::{
    Direction, FilterAction, FilterAddresses, FilterEnd, FilterMatch, FilterProtocol, FilterRule, GroupCall,
    Instant, LinkId, MapKey, PacketTrait, Port,
};
use firelane_wire::{IpProtocol, TcpFlags};

use crate::packet::{Packet, Piece};
use crate::pools::Pools;

/// Pools that rules name: a filter's own, and those of another that it has no pool of that number for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolsInSight<'a> {
    pub(crate) own: &'a Pools,
    pub(crate) beyond: Option<&'a Pools>,
}

impl PoolsInSight<'_> {
    fn contains(self, pool: u32, address: IpAddr, now: Instant) -> bool {
        match self.beyond {
            Some(beyond) if !self.own.has(pool) => beyond.contains(pool, address, now),
            _ => self.own.contains(pool, address, now),
        }
    }

    fn group(self, map: u32, address: IpAddr, now: Instant) -> Option<NonZeroU32> {
        match self.beyond {
            Some(beyond) if !self.own.has(map) => beyond.group(map, address, now),
            _ => self.own.group(map, address, now),
        }
    }
}

/// What a rule has met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuleCount {
    /// Packets, those that passed by its states included.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// Rules in their order, compiled, and compared with those whose place they take: what all lanes of a netstack share.
///
/// A list may have thousands of rules, and its making takes milliseconds then, as its end does. So whoever gives it to lanes makes it
/// before, and keeps the one before it until no lane follows that any more.
#[derive(Debug, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
    /// Of each direction: the main rules.
    main: [Vec<u32>; 2],
    groups: Vec<Vec<u32>>,
    /// Of each direction: which of them has a number.
    numbers: [BTreeMap<NonZeroU32, u32>; 2],
    /// A rule keeps state.
    keeps: bool,
    /// A rule may have no more than so many states.
    limits: bool,
    /// The list that it was compared with, and which rule of that each of its own is.
    before: (Weak<RuleList>, Vec<Option<u32>>),
}

/// The list that a filter follows, and what each rule has met.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    list: Arc<RuleList>,
    counts: Vec<RuleCount>,
}

#[derive(Debug)]
struct Rule {
    rule: FilterRule<LinkId>,
    /// The group that a match goes on with.
    group: Option<u32>,
    /// How many states it has in all lanes, if it may not have more than so many.
    states: Option<Arc<AtomicU32>>,
}

/// The packets that one end of a conversation sends the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneWay {
    /// In to the netstack, or out of it.
    pub direction: Direction,
    /// The protocol above IP.
    pub protocol: IpProtocol,
    /// Who sends them.
    pub from: (IpAddr, Port),
    /// Who gets them.
    pub to: (IpAddr, Port),
}

/// What a search has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    /// The rule that counts.
    pub rule: Option<u32>,
    /// The last `log` rule that was met, if it is not the same.
    pub logged: Option<u32>,
    /// Each packet of the same link, addresses, ports and protocol finds the same.
    pub is_for_all: bool,
}

impl RuleList {
    /// From the rules in their order.
    pub fn new(rules: Vec<FilterRule<LinkId>>) -> Self {
        let mut list = Self { rules: Vec::with_capacity(rules.len()), ..Self::default() };
        let Self { rules: compiled, main, groups, numbers, keeps, limits, .. } = &mut list;
        let mut number = |groups: &mut Vec<Vec<u32>>, direction: Direction, group| {
            *numbers[direction.index()].entry(group).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() as u32 - 1
            })
        };
        for (nth, rule) in rules.into_iter().enumerate() {
            let members = match rule.group {
                None => &mut main[rule.direction.index()],
                Some(group) => {
                    let at = number(groups, rule.direction, group);
                    &mut groups[at as usize]
                }
            };
            members.push(nth as u32);
            let group = rule.head.map(|head| number(groups, rule.direction, head));
            *keeps |= rule.keep_state.is_some();
            let states = rule.keep_state.and_then(|keep| keep.limit).map(|_| Arc::default());
            *limits |= states.is_some();
            compiled.push(Rule { rule, group, states });
        }
        list
    }

    /// Compares it with the list whose place it takes, so that nobody who follows that one has to. A rule that is there, too, goes on,
    /// and counts its states where it has counted them before.
    pub fn compare(&mut self, old: &Arc<Self>) {
        let same = self.find_same(old);
        for (rule, nth) in self.rules.iter_mut().zip(&same).filter(|(rule, _)| rule.states.is_some()) {
            rule.states = match nth {
                Some(nth) => old.rules[*nth as usize].states.clone(),
                None => Some(Arc::default()),
            };
        }
        self.before = (Arc::downgrade(old), same);
    }

    /// Its rules, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &FilterRule<LinkId>> {
        self.rules.iter().map(|it| &it.rule)
    }

    /// Whether a rule may have no more than so many states.
    pub(crate) const fn has_limits(&self) -> bool {
        self.limits
    }

    /// How many states a rule has in all lanes that follow the list, if that is limited.
    pub(crate) fn states(&self, nth: u32) -> Option<&AtomicU32> {
        self.rules.get(nth as usize)?.states.as_deref()
    }

    /// Which rule of `old` each one is; of equal rules the first is the first.
    fn find_same(&self, old: &Self) -> Vec<Option<u32>> {
        if old.rules.is_empty() {
            return vec![None; self.rules.len()];
        }
        let mut known: HashMap<&FilterRule<LinkId>, VecDeque<u32>> = HashMap::new();
        for (nth, it) in old.rules.iter().enumerate() {
            known.entry(&it.rule).or_default().push_back(nth as u32);
        }
        self.rules.iter().map(|it| known.get_mut(&it.rule)?.pop_front()).collect()
    }

    /// Whether it was compared with `old`.
    pub(crate) fn continues(&self, old: &Arc<Self>) -> bool {
        core::ptr::eq(self.before.0.as_ptr(), Arc::as_ptr(old))
    }

    /// The same without a search, if it was compared with `old`.
    fn same_as(&self, old: &Arc<Self>) -> Cow<'_, [Option<u32>]> {
        match self.continues(old) {
            true => Cow::Borrowed(&self.before.1),
            false => Cow::Owned(self.find_same(old)),
        }
    }
}

impl Rules {
    /// Follows another list: a rule that is there, too, goes on counting. Answers of each rule which one of the list before it is.
    pub(crate) fn follow<'a>(&mut self, list: &'a Arc<RuleList>) -> Cow<'a, [Option<u32>]> {
        let same = list.same_as(&self.list);
        let count = |nth: &Option<u32>| nth.map_or_else(RuleCount::default, |nth| self.counts[nth as usize]);
        self.counts = same.iter().map(count).collect();
        self.list = Arc::clone(list);
        same
    }

    /// Whether a rule keeps state.
    #[inline]
    pub(crate) fn keeps(&self) -> bool {
        self.list.keeps
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.rules.is_empty()
    }

    /// The rule `nth`.
    pub(crate) fn get(&self, nth: u32) -> Option<&FilterRule<LinkId>> {
        self.list.rules.get(nth as usize).map(|it| &it.rule)
    }

    /// What each has met, in their order.
    pub(crate) fn counts(&self) -> &[RuleCount] {
        &self.counts
    }

    /// A packet was let through, or not, by a rule.
    pub(crate) fn count(&mut self, nth: u32, bytes: u32) {
        self.count_times(nth, bytes, 1);
    }

    /// The same at so many gates.
    #[inline]
    pub(crate) fn count_times(&mut self, nth: u32, bytes: u32, gates: u32) {
        if let Some(count) = self.counts.get_mut(nth as usize) {
            count.packets += u64::from(gates);
            count.bytes += u64::from(bytes) * u64::from(gates);
        }
    }

    /// Whether a packet that goes this way, by a link that `may_carry` it, could meet a rule. Pools change, so any address may be
    /// in one; a group's rules are met behind one that is in none, and `skip` only takes away.
    pub(crate) fn may_meet(&self, way: &OneWay, may_carry: impl Fn(LinkId) -> bool) -> bool {
        let may_be_end = |end: &FilterEnd, (address, port): (IpAddr, Port)| {
            let may_be_there = match end.addresses {
                FilterAddresses::Any => !end.negated,
                FilterAddresses::Prefix(prefix) => prefix.contains(address) != end.negated,
                FilterAddresses::Pool(_) => true,
            };
            may_be_there && end.ports.contains(port)
        };
        let RuleList { rules, main, .. } = &*self.list;
        main[way.direction.index()].iter().map(|&nth| &rules[nth as usize].rule).any(|rule| {
            (rule.head.is_some() || !matches!(rule.action, FilterAction::Skip(_)))
                && is_protocol(rule.matching.protocol, way.protocol)
                && rule.link.is_none_or(&may_carry)
                && may_be_end(&rule.matching.from, way.from)
                && may_be_end(&rule.matching.to, way.to)
        })
    }

    /// Searches for what becomes of a packet.
    pub(crate) fn search(
        &mut self,
        packet: &Packet<'_>,
        is_out_of_window: bool,
        pools: PoolsInSight<'_>,
        now: Instant,
    ) -> Found {
        let Self { list, counts } = self;
        let RuleList { rules, main, groups, numbers, .. } = &**list;
        let numbers = &numbers[packet.direction.index()];
        let looked = Looked::at(packet, is_out_of_window);
        let mut found = Found { is_for_all: true, ..Found::default() };
        let mut search = Search { rules, groups, numbers, counts, looked: &looked, pools, now, calls: 0 };
        search.list(&main[packet.direction.index()], &mut found);
        found
    }
}

/// What rules ask of a packet, taken out of it once.
struct Looked<'a> {
    packet: &'a Packet<'a>,
    ports: Option<(Port, Port)>,
    flags: Option<TcpFlags>,
    icmp: Option<(u8, u8)>,
    is_out_of_window: bool,
}

impl<'a> Looked<'a> {
    fn at(packet: &'a Packet<'a>, is_out_of_window: bool) -> Self {
        Self {
            packet,
            ports: packet.ports_shown(),
            flags: packet.segment().map(|segment| segment.flags()),
            icmp: packet.icmp(),
            is_out_of_window,
        }
    }
}

struct Search<'a> {
    rules: &'a [Rule],
    groups: &'a [Vec<u32>],
    numbers: &'a BTreeMap<NonZeroU32, u32>,
    counts: &'a mut [RuleCount],
    looked: &'a Looked<'a>,
    pools: PoolsInSight<'a>,
    now: Instant,
    /// Calls that the search is in.
    calls: u8,
}

impl Search<'_> {
    /// Reads a group; whether the search has ended.
    fn list(&mut self, list: &[u32], found: &mut Found) -> bool {
        let mut skipped = 0;
        for &nth in list {
            if skipped > 0 {
                skipped -= 1;
                continue;
            }
            let Rule { rule, group, .. } = &self.rules[nth as usize];
            if !self.is_of_flow(rule) {
                continue;
            }
            if asks_more_than_flow(&rule.matching) {
                found.is_for_all = false;
                if !self.has_traits(&rule.matching) {
                    continue;
                }
            }
            match rule.action {
                FilterAction::Pass | FilterAction::Block(_) => found.rule = Some(nth),
                FilterAction::Skip(count) => skipped = count,
                FilterAction::Count => (found.is_for_all, _) = (false, self.note(nth)),
                FilterAction::Log => {
                    (found.is_for_all, found.logged) = (false, Some(nth));
                    self.note(nth);
                }
                FilterAction::Call(call) => {
                    (found.is_for_all, _) = (false, self.note(nth));
                    if self.call(call, rule.quick, found) {
                        return true;
                    }
                    continue;
                }
            }
            let groups = self.groups;
            let is_over = group.is_some_and(|group| self.list(&groups[group as usize], found));
            if is_over || rule.quick {
                return true;
            }
        }
        false
    }

    /// Goes on with the group that a map has; whether the search has ended. One of `quick` ends it if a rule of the group decides.
    fn call(&mut self, call: GroupCall, is_quick: bool, found: &mut Found) -> bool {
        let address = match call.by {
            MapKey::Source => self.looked.packet.src,
            MapKey::Destination => self.looked.packet.dst,
        };
        let (groups, before) = (self.groups, found.rule);
        let group = self.pools.group(call.map, address, self.now);
        let Some(&group) = group.and_then(|group| self.numbers.get(&group)) else { return false };
        // Groups are not within themselves; but maps change in parts while packets pass, and what is between two of them may go round.
        if self.calls == GroupCall::DEPTH_MAX {
            return false;
        }
        self.calls += 1;
        let is_over = self.list(&groups[group as usize], found);
        self.calls -= 1;
        is_over || (is_quick && found.rule != before)
    }

    /// A rule that decides nothing has met the packet.
    fn note(&mut self, nth: u32) {
        let count = &mut self.counts[nth as usize];
        count.packets += 1;
        count.bytes += u64::from(self.looked.packet.bytes);
    }

    /// Whether a rule is for the packet's link, protocol, addresses and ports.
    fn is_of_flow(&self, rule: &FilterRule<LinkId>) -> bool {
        let Looked { packet, ports, .. } = self.looked;
        let FilterMatch { protocol, from, to, .. } = &rule.matching;
        is_protocol(*protocol, packet.protocol)
            && rule.link.is_none_or(|link| link == packet.link)
            && self.is_end(from, packet.src, ports.map(|(from, _)| from))
            && self.is_end(to, packet.dst, ports.map(|(_, to)| to))
    }

    fn is_end(&self, end: &FilterEnd, address: IpAddr, port: Option<Port>) -> bool {
        let is_there = match end.addresses {
            FilterAddresses::Any => true,
            FilterAddresses::Prefix(prefix) => prefix.contains(address),
            FilterAddresses::Pool(pool) => self.pools.contains(pool, address, self.now),
        };
        // A packet without ports has none that a rule may ask for.
        let is_port = end.ports == firelane_units::FilterPorts::Any
            || port.is_some_and(|port| end.ports.contains(port));
        is_there != end.negated && is_port
    }

    /// Whether the packet has what a rule asks beyond that.
    fn has_traits(&self, matching: &FilterMatch) -> bool {
        let Looked { packet, flags, icmp, .. } = self.looked;
        let FilterMatch { tos, ttl, flags: wanted, icmp: kind, with, .. } = matching;
        let are_flags = wanted.is_none_or(|wanted| {
            flags.is_some_and(|flags| (flags.bits() & u16::from(wanted.mask)) as u8 == wanted.set)
        });
        let is_kind = kind.is_none_or(|(kind, code)| {
            icmp.is_some_and(|(its, its_code)| its == kind && code.is_none_or(|code| code == its_code))
        });
        tos.is_none_or(|tos| tos == packet.tos)
            && ttl.is_none_or(|ttl| ttl == packet.ttl)
            && are_flags
            && is_kind
            && with.iter().all(|&(which, is_wanted)| self.has(which) == is_wanted)
    }

    fn has(&self, which: PacketTrait) -> bool {
        let Looked { packet, is_out_of_window, .. } = self.looked;
        match which {
            PacketTrait::IpOptions => packet.has_options,
            PacketTrait::Short => packet.is_short,
            PacketTrait::Fragment => packet.piece != Piece::Whole,
            PacketTrait::FragmentBody => packet.piece == Piece::Later,
            PacketTrait::OutOfWindow => *is_out_of_window,
            PacketTrait::Multicast => packet.is_for_many(),
        }
    }
}

fn is_protocol(wanted: FilterProtocol, protocol: IpProtocol) -> bool {
    match wanted {
        FilterProtocol::Any => true,
        FilterProtocol::TcpUdp => matches!(protocol, IpProtocol::TCP | IpProtocol::UDP),
        FilterProtocol::Number(number) => protocol.0 == number,
    }
}

/// Whether packets of one flow may differ in what a rule asks.
fn asks_more_than_flow(matching: &FilterMatch) -> bool {
    let FilterMatch { tos, ttl, flags, icmp, with, .. } = matching;
    tos.is_some() || ttl.is_some() || flags.is_some() || icmp.is_some() || !with.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it was compared with before is not looked at again; whoever follows another list has it compared with that.
    #[test]
    fn a_list_is_compared_once_with_the_one_before_it() {
        let rule = |ttl: &u8| {
            let mut rule = FilterRule::new(Direction::In, FilterAction::Pass);
            rule.matching.ttl = Some(*ttl);
            rule
        };
        let list = |rules: &[u8]| RuleList::new(rules.iter().map(rule).collect());
        let (first, other) = (Arc::new(list(&[1, 2, 2])), Arc::new(list(&[3])));
        let mut second = list(&[2, 3, 1, 2]);
        assert!(matches!(second.same_as(&first), Cow::Owned(_)));
        second.compare(&first);
        assert!(matches!(second.same_as(&first), Cow::Borrowed([Some(1), None, Some(0), Some(2)])));
        assert!(matches!(second.same_as(&other), Cow::Owned(_)));
        assert_eq!(*second.same_as(&other), [None, Some(0), None, None]);
        // A list that has ended has left its name to no other.
        drop(first);
        let later: Vec<_> = (0..64).map(|_| Arc::new(list(&[3]))).collect();
        assert!(later.iter().all(|later| matches!(second.same_as(later), Cow::Owned(_))));
    }
}
