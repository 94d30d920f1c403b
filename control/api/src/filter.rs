//! The packet filter of a netstack: its rules with what they have met, and how `ipf` changes them.
//!
//! A change is whole: rules that go and rules that come do so at once, so there is no moment without a filter between
//! `-Fa` and `-f`.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;

use firelane_model::{IpfRule, NetstackName, PlacedRule};
use firelane_units::Direction;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApiError, Status};

/// The way of the packets that a rule is of, as the netstack sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleDirection {
    /// `in`
    In,
    /// `out`
    Out,
}

impl RuleDirection {
    /// Both.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];

    /// Whether a rule is of this direction.
    pub fn is_of(self, rule: &IpfRule) -> bool {
        let direction = match self {
            Self::In => Direction::In,
            Self::Out => Direction::Out,
        };
        rule.rule().direction == direction
    }
}

impl fmt::Display for RuleDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::In => "in",
            Self::Out => "out",
        })
    }
}

/// What of a packet filter changes, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterChange {
    /// All rules of these directions go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flush: Vec<RuleDirection>,
    /// These rules go; each must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub remove: Vec<IpfRule>,
    /// These rules come, each after all others or where its `@` says; none may be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub add: Vec<PlacedRule>,
}

/// Body: changes a packet filter.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeFilter {
    /// What changes.
    pub change: FilterChange,
    /// Whether it is as before after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// What could not be followed is said of rules in these words.
pub(crate) const RULE_WORDS: [&str; 2] = ["no such rule", "the rule is there"];

/// The rules of a change that a filter could not follow, in its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Left<R> {
    /// Were to go, and are not there.
    pub(crate) absent: Vec<R>,
    /// Were to come, and are there.
    pub(crate) present: Vec<R>,
}

impl<R: Clone + Eq + Hash + fmt::Display> Left<R> {
    /// The refusal of a change of `field`, if anything is left; said of what is not there, and of what is.
    pub(crate) fn refusal(&self, field: &str, [absent, present]: [&str; 2]) -> Result<(), ApiError> {
        let error = |status, rule: &R, allowed: &str| ApiError::new(status, field, rule, allowed);
        match (self.absent.first(), self.present.first()) {
            (Some(rule), _) => Err(error(Status::NotFound, rule, absent)),
            (None, Some(rule)) => Err(error(Status::Exists, rule, present)),
            (None, None) => Ok(()),
        }
    }

    /// What is left in both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let both = |a: &[R], b: &[R]| {
            let other: HashSet<&R> = b.iter().collect();
            a.iter().filter(|rule| other.contains(rule)).cloned().collect()
        };
        Self { absent: both(&self.absent, &other.absent), present: both(&self.present, &other.present) }
    }
}

impl FilterChange {
    /// Changes `rules` as far as it goes.
    pub(crate) fn follow(&self, rules: &mut Vec<IpfRule>) -> Left<IpfRule> {
        rules.retain(|rule| !self.flush.iter().any(|it| it.is_of(rule)));
        follow(rules, &self.remove, &self.add, |rules, PlacedRule { place, rule }| {
            (rule, place.and_then(|place| nth(rules, rule, place)).unwrap_or(rules.len()))
        })
    }
}

/// Takes rules from a list and puts others into it, each where `placed` says; what could not be followed is left.
pub(crate) fn follow<R: Clone + Eq + Hash, A>(
    rules: &mut Vec<R>,
    remove: &[R],
    add: &[A],
    placed: impl for<'a> Fn(&[R], &'a A) -> (&'a R, usize),
) -> Left<R> {
    let mut going: HashMap<&R, bool> = remove.iter().map(|rule| (rule, false)).collect();
    rules.retain(|rule| going.get_mut(rule).is_none_or(|found| std::mem::replace(found, true)));
    let absent = remove.iter().filter(|rule| !going[rule]).cloned().collect();
    let mut left = Left { absent, present: Vec::new() };
    let mut known: HashSet<R> = rules.iter().cloned().collect();
    for asked in add {
        let (rule, at) = placed(rules, asked);
        if known.insert(rule.clone()) {
            rules.insert(at, rule.clone());
        } else {
            left.present.push(rule.clone());
        }
    }
    left
}

/// Where the rule stands that is the `place`th of the group and direction of `like`.
fn nth(rules: &[IpfRule], like: &IpfRule, place: NonZeroU32) -> Option<usize> {
    let list = |rule: &IpfRule| (rule.rule().direction, rule.rule().group);
    let wanted = usize::try_from(place.get() - 1).ok()?;
    rules.iter().enumerate().filter(|(_, rule)| list(rule) == list(like)).nth(wanted).map(|(at, _)| at)
}

/// A packet filter, and what it has counted since its rules were last changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FilterInfo {
    /// Its rules, in order.
    pub rules: Vec<RuleInfo>,
    /// Packets that came in.
    #[serde(rename = "in")]
    pub inward: Judged,
    /// Packets that went out.
    #[serde(rename = "out")]
    pub outward: Judged,
    /// What is remembered of what was let through.
    pub states: StateInfo,
}

/// A rule, and what it has met.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleInfo {
    /// As `ipf.conf` has it.
    #[schema(value_type = String)]
    pub rule: IpfRule,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What became of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Judged {
    /// Went on.
    pub passed: u64,
    /// Ended.
    pub blocked: u64,
}

/// States in totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StateInfo {
    /// There are so many.
    pub active: u64,
    /// Were made.
    pub added: u64,
    /// Ended for want of packets.
    pub expired: u64,
    /// Gave their place to others.
    pub evicted: u64,
    /// Found no place.
    pub full: u64,
    /// Were more than their rule may have.
    pub rule_full: u64,
    /// Packets that passed by one.
    pub hits: u64,
    /// Packets outside the window of theirs.
    pub out_of_window: u64,
}

impl FilterInfo {
    /// The same with these rules, which keep their counts place by place.
    #[must_use]
    pub fn of_rules(mut self, rules: &[IpfRule]) -> Self {
        let mut counted = self.rules.iter().map(|it| (it.packets, it.bytes));
        let info = |rule: &IpfRule| {
            let (packets, bytes) = counted.next().unwrap_or_default();
            RuleInfo { rule: rule.clone(), packets, bytes }
        };
        self.rules = rules.iter().map(info).collect();
        self
    }
}

/// The refusal about a netstack that is not there.
pub(crate) fn no_netstack(name: &NetstackName) -> ApiError {
    ApiError::new(Status::NotFound, "netstack", name, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lines: &[&str]) -> Vec<IpfRule> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    fn followed(change: &FilterChange, lines: &[&str]) -> (Vec<String>, Left<IpfRule>) {
        let mut rules = rules(lines);
        let left = change.follow(&mut rules);
        (rules.iter().map(ToString::to_string).collect(), left)
    }

    #[test]
    fn a_place_is_counted_in_its_own_list() {
        let add = |line: &str| FilterChange { add: vec![line.parse().unwrap()], ..FilterChange::default() };
        let before = ["block out all", "block in all head 1", "count in all group 1", "pass in on w0 all"];
        let at = |line: &str, rule: &str| {
            followed(&add(line), &before).0.iter().position(|it| it == rule).expect("it was added")
        };
        assert_eq!(at("@1 log in all", "log in all"), 1);
        assert_eq!(at("@2 log in all", "log in all"), 3);
        assert_eq!(at("@3 log in all", "log in all"), 4);
        assert_eq!(at("log in all", "log in all"), 4);
        assert_eq!(at("@1 log in all group 1", "log in all group 1"), 2);
        assert_eq!(at("@1 log out all", "log out all"), 0);
    }

    #[test]
    fn what_goes_goes_before_what_comes() {
        let change = FilterChange {
            flush: vec![RuleDirection::In],
            remove: rules(&["pass out all", "count out all"]),
            add: vec!["block in all".parse().unwrap(), "block out all".parse().unwrap()],
        };
        let (after, left) = followed(&change, &["block in all", "block out all", "pass out all"]);
        assert_eq!(after, ["block out all", "block in all"]);
        let nothing = Left { absent: Vec::new(), present: Vec::new() };
        assert_eq!(left.absent, rules(&["count out all"]));
        assert_eq!(left.present, rules(&["block out all"]));
        assert_eq!(
            left.refusal("filter", RULE_WORDS).unwrap_err().to_string(),
            "object not found (filter=count out all: no such rule)"
        );
        assert_eq!(left.and(&nothing).refusal("filter", RULE_WORDS), Ok(()));
    }
}
