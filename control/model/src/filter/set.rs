//! Rules together: groups and their heads, what is skipped, and the links and pools that are named.
//!
//! A group is a list of rules of one direction that the match of another rule, its head, goes on with; groups form a tree
//! whose root is the main one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use core::num::NonZeroU32;

use firelane_units::{Direction, FilterAction, FilterAddresses};

use super::{IpfRule, IpnatRule, Pool, PoolNumber, maps};
use crate::limits::{FILTER_RULES_MAX, NAT_RULES_MAX, POOLED_MAX};
use crate::{LinkName, NatLimits};

/// The filter of a netstack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Its rules, in order.
    pub rules: Vec<IpfRule>,
    /// The pools that they may name.
    pub pools: BTreeMap<PoolNumber, Pool>,
    /// Its rules of translation, which stand before it on a packet's way in, and behind it on the way out.
    pub nat: Vec<IpnatRule>,
    /// How much these may have made, and how long it lasts.
    pub nat_limits: NatLimits,
}

/// The list that a rule is in: of a direction, the main one or a group.
pub(super) type Group = (Direction, Option<NonZeroU32>);

pub(super) fn group(rule: &IpfRule) -> Group {
    (rule.rule().direction, rule.rule().group)
}

pub(super) fn headed(rule: &IpfRule) -> Option<Group> {
    rule.rule().head.map(|head| (rule.rule().direction, Some(head)))
}

/// What is wrong: the rule, or nothing if it is none in particular, and why.
pub(crate) type Fault = (String, String);

/// Where in the filter the fault is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Filter,
    Pools,
    Nat,
}

/// Every fault of rules and pools together; `is_its` says which links the netstack has.
pub(crate) fn faults(
    rules: &[IpfRule],
    pools: &BTreeMap<PoolNumber, Pool>,
    nat: &[IpnatRule],
    is_its: impl Fn(&LinkName) -> bool,
) -> Vec<(Part, Fault)> {
    let mut faults = Vec::new();
    let pooled = pools.values().map(|pool| pool.entries().len()).sum::<usize>();
    for (part, count, most) in [
        (Part::Filter, rules.len(), FILTER_RULES_MAX),
        (Part::Pools, pooled, POOLED_MAX),
        (Part::Nat, nat.len(), NAT_RULES_MAX),
    ] {
        if count > most {
            faults.push((part, (count.to_string(), format!("at most {most}"))));
        }
    }
    for rule in nat.iter().filter(|rule| !is_its(&rule.rule().link)) {
        let why = format!("{} is no VNIC of this netstack", rule.rule().link);
        faults.push((Part::Nat, (rule.to_string(), why)));
    }
    for (number, _) in pools.iter().filter(|(_, pool)| maps::mixed(pool)) {
        let why = "networks of a group map all have a group, of one direction, and those of a pool have none";
        faults.push((Part::Pools, (number.to_string(), why.into())));
    }
    maps::faults(rules, pools, &mut |fault| faults.push((Part::Filter, fault)));
    let calls = maps::directions(rules);
    let heads = heads(rules, &mut |fault| faults.push((Part::Filter, fault)));
    let beyond = skips_beyond(rules);
    let lost = groups_without_root(&heads);
    for (place, rule) in rules.iter().enumerate() {
        let mut say = |why: String| faults.push((Part::Filter, (rule.to_string(), why)));
        if let Some(link) = rule.rule().link.as_ref().filter(|link| !is_its(link)) {
            say(format!("{link} is no VNIC of this netstack"));
        }
        for number in named_pools(rule).filter(|number| !pools.contains_key(number)) {
            say(format!("there is no pool {number}"));
        }
        if beyond.contains(&place) {
            say("skips more rules than its group has after it".into());
        }
        match group(rule) {
            // A map may lead there, now or once it has changed.
            (direction, Some(_)) if !heads.contains_key(&group(rule)) && calls[direction.index()] => {}
            (_, Some(number)) if !heads.contains_key(&group(rule)) => {
                say(format!("no rule of its direction is the head of group {number}"));
            }
            (_, Some(number)) if lost.contains(&group(rule)) => {
                say(format!("group {number} is within itself"))
            }
            _ => {}
        }
    }
    faults
}

/// The pools and maps that a rule names.
pub(super) fn named_pools(rule: &IpfRule) -> impl Iterator<Item = PoolNumber> {
    pools_of_ends(rule).chain(maps::called(rule))
}

/// The pools in place of addresses.
pub(super) fn pools_of_ends(rule: &IpfRule) -> impl Iterator<Item = PoolNumber> + use<> {
    let ends = [&rule.rule().matching.from, &rule.rule().matching.to];
    ends.map(|end| end.addresses).into_iter().filter_map(|addresses| match addresses {
        FilterAddresses::Pool(number) => Some(PoolNumber(number)),
        FilterAddresses::Any | FilterAddresses::Prefix(_) => None,
    })
}

/// Every group with the one that its head is in.
fn heads(rules: &[IpfRule], say: &mut dyn FnMut(Fault)) -> BTreeMap<Group, Group> {
    let mut heads = BTreeMap::new();
    for rule in rules {
        let Some(headed) = headed(rule) else { continue };
        match heads.entry(headed) {
            Entry::Vacant(free) => drop(free.insert(group(rule))),
            Entry::Occupied(_) => {
                let number = rule.rule().head.map_or(0, NonZeroU32::get);
                say((rule.to_string(), format!("group {number} has a head already in this direction")));
            }
        }
    }
    heads
}

/// Groups that are within themselves.
fn groups_without_root(heads: &BTreeMap<Group, Group>) -> BTreeSet<Group> {
    let (mut rooted, mut lost) = (BTreeSet::new(), BTreeSet::new());
    for start in heads.keys() {
        let mut way = BTreeSet::new();
        let mut at = *start;
        // A head in a group that has none is told of elsewhere.
        while let Some(&above) = heads.get(&at).filter(|_| !rooted.contains(&at) && !lost.contains(&at)) {
            if !way.insert(at) {
                break;
            }
            at = above;
        }
        let goes_round = way.contains(&at) || lost.contains(&at);
        if goes_round { lost.append(&mut way) } else { rooted.append(&mut way) }
    }
    lost
}

/// The places of rules that skip more than their group has after them.
fn skips_beyond(rules: &[IpfRule]) -> BTreeSet<usize> {
    let mut after = BTreeMap::<Group, usize>::new();
    let mut beyond = BTreeSet::new();
    for (place, rule) in rules.iter().enumerate().rev() {
        let left = after.entry(group(rule)).or_default();
        if let FilterAction::Skip(count) = rule.rule().action
            && usize::from(count) > *left
        {
            beyond.insert(place);
        }
        *left += 1;
    }
    beyond
}

impl Filter {
    /// The groups without a head to which nothing leads any more, if the rules go of which `goes` says so.
    fn uncalled(&self, goes: &[bool]) -> BTreeSet<Group> {
        let stays = |wanted: &dyn Fn(&IpfRule) -> bool| {
            let stay = self.rules.iter().zip(goes).filter(|(_, goes)| !**goes);
            stay.map(|(rule, _)| rule).filter(|rule| wanted(rule)).collect::<Vec<_>>()
        };
        let calling: BTreeSet<_> =
            stays(&|it| maps::called(it).is_some()).into_iter().map(|it| it.rule().direction).collect();
        let headed: BTreeSet<_> = self.rules.iter().filter_map(headed).collect();
        let groups = stays(&|it| it.rule().group.is_some()).into_iter().map(group);
        groups.filter(|it| !headed.contains(it) && !calling.contains(&it.0)).collect()
    }

    /// The same filter for a netstack without the links of which `gone` is so: to the packets of all others it does what
    /// this one does. Their rules are not there, nor the groups that these head; what skipped some of them skips fewer.
    #[must_use]
    pub fn without(&self, gone: impl Fn(&LinkName) -> bool) -> Self {
        let mut lists = BTreeMap::<Group, Vec<usize>>::new();
        for (place, rule) in self.rules.iter().enumerate() {
            lists.entry(group(rule)).or_default().push(place);
        }
        let mut goes: Vec<_> =
            self.rules.iter().map(|rule| rule.rule().link.as_ref().is_some_and(&gone)).collect();
        let heads = |place: &usize| headed(&self.rules[*place]);
        let mut empty: Vec<_> =
            (0..goes.len()).filter(|&place| goes[place]).filter_map(|it| heads(&it)).collect();
        if empty.is_empty() {
            empty.extend(self.uncalled(&goes));
        }
        while let Some(group) = empty.pop() {
            let members = lists.get(&group).map_or(&[][..], Vec::as_slice);
            members.iter().for_each(|&place| goes[place] = true);
            empty.extend(members.iter().filter_map(heads));
            // The last rule that called has gone: no map leads to a group any more.
            if empty.is_empty() {
                empty.extend(self.uncalled(&goes));
            }
        }
        let mut rules: Vec<_> = self.rules.iter().map(|rule| Some(rule.clone())).collect();
        for list in lists.values() {
            // How many of the list have gone before each place.
            let mut sums = vec![0_usize];
            for &place in list {
                sums.push(sums[sums.len() - 1] + usize::from(goes[place]));
            }
            for (at, &place) in list.iter().enumerate() {
                let FilterAction::Skip(count) = self.rules[place].rule().action else { continue };
                let end = (at + 1 + usize::from(count)).min(list.len());
                let fewer =
                    u16::try_from(sums[end] - sums[at + 1]).map_or(0, |gone| count.saturating_sub(gone));
                rules[place] = rules[place].take().map(|rule| rule.skipping(fewer));
            }
        }
        let rules = rules.into_iter().zip(goes).filter_map(|(rule, goes)| rule.filter(|_| !goes)).collect();
        let nat = self.nat.iter().filter(|rule| !gone(&rule.rule().link)).cloned().collect();
        Self { rules, pools: self.pools.clone(), nat, nat_limits: self.nat_limits }
    }
}
