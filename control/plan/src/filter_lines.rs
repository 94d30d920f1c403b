//! What changes in a packet filter, line by line: rules that go and rules that come, in the order of the lists.
//!
//! Called by `step.rs`.

use core::fmt::Display;
use std::collections::BTreeSet;

use firelane_model::{Filter, Pool};

/// Pairs of rules that are compared to find the longest list that stays. Above it whatever stands between the first and
/// the last difference is shown as gone and come anew.
const COMPARED_MAX: usize = 1 << 20;

/// A line that goes or comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Goes,
    Comes,
}

/// The rules that go and come.
fn changes<'a, R: PartialEq>(from: &'a [R], to: &'a [R]) -> Vec<(Change, &'a R)> {
    let ahead = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let (from, to) = (&from[ahead..], &to[ahead..]);
    let behind = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
    let (from, to) = (&from[..from.len() - behind], &to[..to.len() - behind]);
    if from.len().saturating_mul(to.len()) > COMPARED_MAX {
        let gone = from.iter().map(|rule| (Change::Goes, rule));
        return gone.chain(to.iter().map(|rule| (Change::Comes, rule))).collect();
    }
    // The lengths of the longest common lists of what is left of each, from the ends.
    let width = to.len() + 1;
    let mut common = vec![0_u32; (from.len() + 1) * width];
    for (a, from) in from.iter().enumerate().rev() {
        for (b, to) in to.iter().enumerate().rev() {
            common[a * width + b] = match from == to {
                true => common[(a + 1) * width + b + 1] + 1,
                false => common[(a + 1) * width + b].max(common[a * width + b + 1]),
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut changes = Vec::new();
    while a < from.len() || b < to.len() {
        if a < from.len() && b < to.len() && from[a] == to[b] {
            (a, b) = (a + 1, b + 1);
        } else if b == to.len() || a < from.len() && common[(a + 1) * width + b] >= common[a * width + b + 1]
        {
            changes.push((Change::Goes, &from[a]));
            a += 1;
        } else {
            changes.push((Change::Comes, &to[b]));
            b += 1;
        }
    }
    changes
}

/// How many of `from` are not in `to`, or not with the same end.
fn missing(from: &Pool, to: &Pool) -> usize {
    from.entries().iter().filter(|it| to.get(it.network) != Some(it)).count()
}

/// `n added, m removed`
fn counts(what: &str, comes: usize, goes: usize) -> Option<String> {
    match (comes, goes) {
        (0, 0) => None,
        (comes, 0) => Some(format!("{what} {comes} added")),
        (0, goes) => Some(format!("{what} {goes} removed")),
        (comes, goes) => Some(format!("{what} {comes} added, {goes} removed")),
    }
}

/// What changes of pools, a text for each.
fn pools(from: &Filter, to: &Filter) -> Vec<String> {
    let numbers: BTreeSet<_> = from.pools.keys().chain(to.pools.keys()).collect();
    let none = Pool::default();
    let change = |number| match (from.pools.get(number), to.pools.get(number)) {
        (from, Some(to)) if from == Some(to) => None,
        (Some(_), None) => Some(format!("pool/{number} gone")),
        (from, to) => {
            let (from_it, to_it) = (from.unwrap_or(&none), to.unwrap_or(&none));
            let text = counts(&format!("pool/{number}"), missing(to_it, from_it), missing(from_it, to_it));
            // An empty pool is more than none.
            text.or_else(|| Some(format!("pool/{number} empty")))
        }
    };
    numbers.into_iter().filter_map(change).collect()
}

/// How many rules of a list come and go.
fn rules<R: PartialEq>(what: &str, from: &[R], to: &[R]) -> Option<String> {
    let changes = changes(from, to);
    let goes = changes.iter().filter(|(change, _)| *change == Change::Goes).count();
    counts(what, changes.len() - goes, goes)
}

/// The limits of translation, if they change.
fn limits(from: &Filter, to: &Filter) -> Option<String> {
    (from.nat_limits != to.nat_limits).then(|| format!("nat_limits {}", to.nat_limits))
}

/// The change on one line.
pub(crate) fn summary(from: &Filter, to: &Filter) -> String {
    let lists = [rules("rules", &from.rules, &to.rules), rules("nat", &from.nat, &to.nat)];
    lists.into_iter().flatten().chain(pools(from, to)).chain(limits(from, to)).collect::<Vec<_>>().join("; ")
}

fn changed<R: PartialEq + Display>(from: &[R], to: &[R]) -> Vec<String> {
    let line = |(change, rule): (Change, &R)| match change {
        Change::Goes => format!("- {rule}"),
        Change::Comes => format!("+ {rule}"),
    };
    changes(from, to).into_iter().map(line).collect()
}

/// The change rule by rule, `+` before what comes and `-` before what goes.
pub(crate) fn lines(from: &Filter, to: &Filter) -> Vec<String> {
    let pools = pools(from, to).into_iter().chain(limits(from, to)).map(|change| format!("  {change}"));
    let nat = changed(&from.nat, &to.nat);
    changed(&from.rules, &to.rules).into_iter().chain(nat).chain(pools).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter(rules: &[u8]) -> Filter {
        let rule = |ttl: &u8| format!("block in ttl {ttl} from any to any").parse().unwrap();
        Filter { rules: rules.iter().map(rule).collect(), ..Filter::default() }
    }

    #[test]
    fn limits_of_translation_are_told_when_they_change() {
        let limits = firelane_model::NatLimits { udp: Some(30), ..Default::default() };
        let (usual, said) = (filter(&[1]), Filter { nat_limits: limits, ..filter(&[1]) });
        assert_eq!(
            (summary(&usual, &said), lines(&usual, &said)),
            ("nat_limits udp=30".into(), vec!["  nat_limits udp=30".into()])
        );
        assert_eq!(summary(&said, &usual), "nat_limits usual");
        assert_eq!((summary(&said, &said), lines(&said, &said)), (String::new(), Vec::<String>::new()));
    }

    proptest! {
        #[test]
        fn the_lines_lead_from_one_list_to_the_other(
            from in prop::collection::vec(0u8..6, 0..12), to in prop::collection::vec(0u8..6, 0..12),
        ) {
            let (from, to) = (filter(&from), filter(&to));
            let mut kept = from.rules.iter();
            let mut made = to.rules.iter();
            // What is left of either list when its changes are taken out is the same.
            let (mut left_from, mut left_to) = (Vec::new(), Vec::new());
            for (change, rule) in changes(&from.rules, &to.rules) {
                match change {
                    Change::Goes => left_from.extend(kept.by_ref().take_while(|it| !std::ptr::eq(*it, rule))),
                    Change::Comes => left_to.extend(made.by_ref().take_while(|it| !std::ptr::eq(*it, rule))),
                }
            }
            left_from.extend(kept);
            left_to.extend(made);
            prop_assert_eq!(left_from, left_to);
            prop_assert_eq!(lines(&from, &to).is_empty(), from == to);
        }
    }

    #[test]
    fn a_moved_rule_goes_and_comes() {
        let said = lines(&filter(&[1, 2, 3, 4]), &filter(&[1, 4, 2, 3]));
        assert_eq!(said, ["+ block in ttl 4 from any to any", "- block in ttl 4 from any to any"]);
        assert_eq!(summary(&filter(&[1, 2]), &filter(&[2])), "rules 1 removed");
    }

    #[test]
    fn long_lists_are_replaced_between_their_ends() {
        let long = |first: u8| filter(&(0..2000).map(|n| (n as u8).wrapping_add(first)).collect::<Vec<_>>());
        assert_eq!(lines(&long(0), &long(1)).len(), 4000);
    }
}
