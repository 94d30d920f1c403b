//! Group maps among the rules that call them: what they lead to, and what goes round.
//!
//! Called by `set.rs`. Groups and maps are the nodes of a graph: a group leads to those that its rules head and to the maps that
//! they call, a map to the groups of its networks.

use std::collections::{BTreeMap, BTreeSet};

use firelane_units::{Direction, FilterAction, GroupCall};

use super::set::{Fault, Group, group, headed, pools_of_ends};
use super::{IpfRule, Pool, PoolNumber};

/// The map that a rule calls.
pub(super) fn called(rule: &IpfRule) -> Option<PoolNumber> {
    match rule.rule().action {
        FilterAction::Call(call) => Some(PoolNumber(call.map)),
        _ => None,
    }
}

/// Whether rules of each direction call maps, which may lead to any group of it.
pub(super) fn directions(rules: &[IpfRule]) -> [bool; 2] {
    [Direction::In, Direction::Out]
        .map(|way| rules.iter().any(|rule| rule.rule().direction == way && called(rule).is_some()))
}

/// Every fault of calls, and of rules that take a map for a pool.
pub(super) fn faults(rules: &[IpfRule], pools: &BTreeMap<PoolNumber, Pool>, say: &mut dyn FnMut(Fault)) {
    let (rounds, deep) = endless(rules, pools);
    for (place, rule) in rules.iter().enumerate() {
        let mut say = |why: String| say((rule.to_string(), why));
        let is_map = |number: &PoolNumber| pools.get(number).is_some_and(|pool| direction(pool).is_some());
        for number in pools_of_ends(rule).filter(is_map) {
            say(format!("pool {number} is a group map, which rules call"));
        }
        if let Some((number, pool)) = called(rule).and_then(|it| pools.get_key_value(&it)) {
            fault(rule, *number, pool).into_iter().for_each(&mut say);
        }
        if rounds.contains(&place) {
            say("its group is within itself by what the map leads to".into());
        }
        if deep.contains(&place) {
            say(format!("calls are at most {} within each other", GroupCall::DEPTH_MAX));
        }
    }
}

/// Why a pool is neither a set of networks nor a map: its networks do not say the same kind of thing.
pub(super) fn mixed(pool: &Pool) -> bool {
    let kinds: BTreeSet<_> = pool.entries().iter().map(|it| it.group.map(|it| it.direction)).collect();
    kinds.len() > 1
}

/// Whose packets a map is about; nothing if the pool is a set of networks, or empty.
pub(super) fn direction(pool: &Pool) -> Option<Direction> {
    pool.entries().iter().find_map(|it| it.group).map(|it| it.direction)
}

/// What is wrong with a rule's call, if the pool that it names is there.
pub(super) fn fault(rule: &IpfRule, number: PoolNumber, pool: &Pool) -> Option<String> {
    match direction(pool) {
        None if pool.entries().is_empty() => None,
        None => Some(format!("pool {number} is no group map")),
        Some(its) if its != rule.rule().direction => {
            let way = if its == Direction::In { "in" } else { "out" };
            Some(format!("group map {number} is about packets that go {way}"))
        }
        Some(_) => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Group(Group),
    /// A map, as rules of a direction call it.
    Map(Direction, PoolNumber),
}

/// The places of rules whose call leads back to the group that they are in, and of those that are called too deep.
fn endless(rules: &[IpfRule], pools: &BTreeMap<PoolNumber, Pool>) -> (BTreeSet<usize>, BTreeSet<usize>) {
    if rules.iter().all(|rule| called(rule).is_none()) {
        return Default::default();
    }
    let (onward, before) = graph(rules, pools);
    let (settled, depths) = settle(&onward, before);
    let places = |is_so: &dyn Fn(Node, Node) -> bool| {
        let calls = rules.iter().enumerate().filter_map(|(place, rule)| Some((place, rule, called(rule)?)));
        let nodes = calls.map(|(place, rule, number)| {
            (place, Node::Group(group(rule)), Node::Map(rule.rule().direction, number))
        });
        nodes.filter(|(_, from, map)| is_so(*from, *map)).map(|it| it.0).collect::<BTreeSet<_>>()
    };
    let rounds = places(&|from, map| !settled.contains(&from) && !settled.contains(&map));
    let depth_of = |node| depths.get(&node).copied().unwrap_or(0);
    let deep =
        places(&|from, _| settled.contains(&from) && depth_of(from) >= u32::from(GroupCall::DEPTH_MAX));
    (rounds, deep)
}

/// What each node leads to, and how many lead to each.
type Graph = (BTreeMap<Node, BTreeSet<Node>>, BTreeMap<Node, usize>);

fn graph(rules: &[IpfRule], pools: &BTreeMap<PoolNumber, Pool>) -> Graph {
    let (mut onward, mut before) = (BTreeMap::<Node, BTreeSet<Node>>::new(), BTreeMap::<Node, usize>::new());
    let mut lead = |from: Node, to: Node| {
        if onward.entry(from).or_default().insert(to) {
            *before.entry(to).or_default() += 1;
        }
        before.entry(from).or_default();
    };
    for rule in rules {
        let from = Node::Group(group(rule));
        headed(rule).into_iter().for_each(|to| lead(from, Node::Group(to)));
        let Some(number) = called(rule) else { continue };
        let direction = rule.rule().direction;
        let map = Node::Map(direction, number);
        lead(from, map);
        let entries = pools.get(&number).map(Pool::entries).unwrap_or_default();
        for to in entries.iter().filter_map(|it| it.group).filter(|it| it.direction == direction) {
            lead(map, Node::Group((direction, Some(to.group))));
        }
    }
    (onward, before)
}

/// The nodes that go round nowhere and come behind none that does, and how many calls each is within.
fn settle(
    onward: &BTreeMap<Node, BTreeSet<Node>>,
    mut before: BTreeMap<Node, usize>,
) -> (BTreeSet<Node>, BTreeMap<Node, u32>) {
    let mut depths = BTreeMap::<Node, u32>::new();
    let mut free: Vec<Node> = before.iter().filter(|(_, count)| **count == 0).map(|it| *it.0).collect();
    let mut settled = BTreeSet::new();
    while let Some(node) = free.pop() {
        settled.insert(node);
        let depth = depths.get(&node).copied().unwrap_or(0) + u32::from(matches!(node, Node::Map(..)));
        for to in onward.get(&node).into_iter().flatten() {
            let its = depths.entry(*to).or_default();
            *its = depth.max(*its);
            if let Some(count) = before.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    free.push(*to);
                }
            }
        }
    }
    (settled, depths)
}
