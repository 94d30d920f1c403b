//! Address translation of a netstack: its rules, what they have made, and how `ipnat` changes them.
//!
//! A change is whole: rules that go and rules that come do so at once. Sessions are no part of the configuration; to end them is
//! an act of its own.

use std::net::Ipv4Addr;

use firelane_model::{IpnatRule, NatLimits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::filter::{Left, follow};

/// What of a translation changes, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NatChange {
    /// All rules go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clear: bool,
    /// These rules go; each must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub remove: Vec<IpnatRule>,
    /// These rules come, each after all others; none may be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub add: Vec<IpnatRule>,
}

/// Body: changes a translation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeNat {
    /// What changes.
    pub change: NatChange,
    /// Whether it is as before after the next start.
    #[serde(default)]
    pub temporary: bool,
}

impl NatChange {
    /// Changes `rules` as far as it goes.
    pub(crate) fn follow(&self, rules: &mut Vec<IpnatRule>) -> Left<IpnatRule> {
        if self.clear {
            rules.clear();
        }
        follow(rules, &self.remove, &self.add, |rules, rule| (rule, rules.len()))
    }
}

/// A translation, and what it has counted since the netstack was made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NatInfo {
    /// Its rules, in order.
    pub rules: Vec<NatRuleInfo>,
    /// What was counted.
    pub totals: NatTotals,
    /// How much there may be, and how long it lasts.
    pub limits: Vec<NatLimitInfo>,
}

/// A limit of a translation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NatLimitInfo {
    /// Its name.
    pub limit: String,
    /// What holds.
    pub current: String,
    /// What holds if nothing is said.
    pub default: String,
    /// What can be said.
    pub possible: String,
}

impl NatLimitInfo {
    /// All that hold.
    pub fn of(limits: &NatLimits) -> Vec<Self> {
        let info =
            |[limit, current, default, possible]: [String; 4]| Self { limit, current, default, possible };
        limits.lines().into_iter().map(info).collect()
    }
}

/// A rule, and what it has made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NatRuleInfo {
    /// As `ipnat.conf` has it.
    #[schema(value_type = String)]
    pub rule: IpnatRule,
    /// Sessions that it has made since it came.
    pub made: u64,
    /// Of these, so many are there.
    pub sessions: u64,
}

/// Translation in totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NatTotals {
    /// Packets that were given other ends on their way in.
    #[serde(rename = "in")]
    pub inward: u64,
    /// The same on their way out.
    #[serde(rename = "out")]
    pub outward: u64,
    /// ICMP errors among them.
    pub errors: u64,
    /// Packets that ended.
    pub ended: u64,
    /// There are so many sessions.
    pub sessions: u64,
    /// Of these, so many have not shown both ends.
    pub half_open: u64,
    /// There are so many mappings.
    pub mappings: u64,
    /// So many fragments wait for the first one of their datagram.
    pub waiting: u64,
    /// Fragments came before the first one of their datagram, and had to wait.
    pub early: u64,
    /// Of these, so many waited in vain or had no room.
    pub given_up: u64,
    /// Sessions were made.
    pub added: u64,
    /// Ended for want of packets.
    pub expired: u64,
    /// Gave their place to others.
    pub evicted: u64,
    /// Were ended by command, or with their rule.
    pub flushed: u64,
}

/// A session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NatSession {
    /// What kind of rule made it, as lists have it: `MAP`, `MAP-BLOCK`, `BIMAP` or `RDR`.
    pub kind: String,
    /// The transport by its name or number.
    pub protocol: String,
    /// Who is inside.
    #[schema(value_type = String)]
    pub inside: Ipv4Addr,
    /// His port; 0 where there are none.
    pub inside_port: u16,
    /// As whom he is known outside.
    #[schema(value_type = String)]
    pub outside: Ipv4Addr,
    /// With which port.
    pub outside_port: u16,
    /// Who is at the other end.
    #[schema(value_type = String)]
    pub peer: Ipv4Addr,
    /// His port.
    pub peer_port: u16,
    /// How far it is.
    pub phase: String,
    /// Seconds until it ends, unless something comes.
    pub ttl: u64,
}

/// How many sessions were ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Flushed {
    /// So many.
    pub flushed: u64,
}

impl NatInfo {
    /// The same with these rules, which keep their counts place by place, and these limits.
    #[must_use]
    pub fn of_rules(mut self, rules: &[IpnatRule], limits: &NatLimits) -> Self {
        let mut counted = self.rules.iter().map(|it| (it.made, it.sessions));
        let info = |rule: &IpnatRule| {
            let (made, sessions) = counted.next().unwrap_or_default();
            NatRuleInfo { rule: rule.clone(), made, sessions }
        };
        self.rules = rules.iter().map(info).collect();
        self.limits = NatLimitInfo::of(limits);
        self
    }
}
