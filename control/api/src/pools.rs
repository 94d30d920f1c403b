//! The pools of a netstack's packet filter: what is in them, and how `ippool` changes them.
//!
//! A change is whole, as one of rules is. Networks may have a time to live; who makes the change says what time it is, so that what
//! follows is the same wherever it is worked out.

use std::collections::{BTreeMap, HashSet};

use firelane_model::{Model, Pool, PoolEntry, PoolMember, PoolNumber};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::filter::Left;

/// What of pools changes, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolChange {
    /// All pools go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flush: bool,
    /// These pools go with what is in them; each must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub unmake: Vec<PoolNumber>,
    /// These pools come, empty; none may be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub make: Vec<PoolNumber>,
    /// These networks go; each must be there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub remove: BTreeMap<PoolNumber, Vec<PoolMember>>,
    /// These networks come into pools that are there; one that is there already must get another end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub add: BTreeMap<PoolNumber, Vec<PoolMember>>,
    /// These networks come, each with its pool if that is not there; one that is there already gets the end that it has here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub load: BTreeMap<PoolNumber, Vec<PoolMember>>,
    /// When times to live begin, in seconds since 1970. No request says it: who answers does.
    #[serde(skip)]
    pub now: u64,
}

/// Body: changes the pools of a packet filter.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePools {
    /// What changes.
    pub change: PoolChange,
    /// Whether it is as before after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// What could not be followed is said of pools in these words.
pub(crate) const POOL_WORDS: [&str; 2] = ["not there", "there already"];

impl PoolChange {
    /// Changes `pools` as far as it goes.
    pub(crate) fn follow(&self, pools: &mut BTreeMap<PoolNumber, Pool>) -> Left<String> {
        let mut left = Left { absent: Vec::new(), present: Vec::new() };
        if self.flush {
            pools.clear();
        }
        for number in &self.unmake {
            if pools.remove(number).is_none() {
                left.absent.push(format!("pool/{number}"));
            }
        }
        for number in &self.make {
            if pools.contains_key(number) {
                left.present.push(format!("pool/{number}"));
            }
            pools.entry(*number).or_default();
        }
        for (number, members) in &self.remove {
            match pools.get_mut(number) {
                Some(pool) => remove(*number, pool, members, &mut left),
                None => left.absent.push(format!("pool/{number}")),
            }
        }
        for (number, members) in &self.add {
            match pools.get_mut(number) {
                Some(pool) => self.add(*number, pool, members, &mut left),
                None => left.absent.push(format!("pool/{number}")),
            }
        }
        for (number, members) in &self.load {
            pools.entry(*number).or_default().extend(members.iter().map(|it| self.entry(it)));
        }
        left
    }

    fn entry(&self, member: &PoolMember) -> PoolEntry {
        let until = member.ttl.map(|ttl| self.now.saturating_add(ttl.into()));
        PoolEntry::new(member.network, until).excepting(member.is_exception).leading_to(member.group)
    }

    fn add(&self, number: PoolNumber, pool: &mut Pool, members: &[PoolMember], left: &mut Left<String>) {
        for entry in members.iter().map(|it| self.entry(it)) {
            if pool.get(entry.network) == Some(&entry) {
                left.present.push(format!("{} in pool/{number}", entry.network));
            }
        }
        pool.extend(members.iter().map(|it| self.entry(it)));
    }
}

fn remove(number: PoolNumber, pool: &mut Pool, members: &[PoolMember], left: &mut Left<String>) {
    let absent = members.iter().filter(|it| pool.get(it.network).is_none());
    left.absent.extend(absent.map(|it| format!("{} in pool/{number}", it.network.network())));
    let going: HashSet<_> = members.iter().map(|it| it.network.network()).collect();
    pool.retain(|it| !going.contains(&it.network));
}

/// Forgets the networks of all pools whose end has come.
pub fn forget_ended(model: &mut Model, now: u64) {
    let pools = model.netstacks.values_mut().flat_map(|it| it.pools.values_mut());
    for pool in pools.filter(|pool| pool.entries().iter().any(|it| it.has_ended(now))) {
        pool.retain(|it| !it.has_ended(now));
    }
}

/// The pools of a packet filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolsInfo {
    /// By number.
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub pools: BTreeMap<PoolNumber, Vec<PoolMember>>,
    /// How many networks each lane has in its own copy.
    pub held: Vec<u64>,
}

impl PoolsInfo {
    /// What is in pools now, each network with the time that it has left.
    pub fn of(pools: &BTreeMap<PoolNumber, Pool>, now: u64, held: Vec<u64>) -> Self {
        let member = |it: &PoolEntry| PoolMember {
            network: it.network,
            ttl: it.until.map(|until| u32::try_from(until - now).unwrap_or(u32::MAX)),
            is_exception: it.is_exception,
            group: it.group,
        };
        let members =
            |pool: &Pool| pool.entries().iter().filter(|it| !it.has_ended(now)).map(member).collect();
        let pools = pools.iter().map(|(number, pool)| (*number, members(pool))).collect();
        Self { pools, held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &[&str]) -> Vec<PoolMember> {
        serde_json::from_value(serde_json::json!(text)).unwrap()
    }

    fn change(text: &str) -> PoolChange {
        PoolChange { now: 1000, ..serde_json::from_str(text).unwrap() }
    }

    fn said(pools: &BTreeMap<PoolNumber, Pool>) -> String {
        serde_json::to_string(pools).unwrap()
    }

    #[test]
    fn pools_and_networks_come_and_go() {
        let mut pools = BTreeMap::new();
        let table = [
            (r#"{"add": {"7": ["10.0.0.1"]}}"#, "not there: pool/7", "{}"),
            (
                r#"{"make": ["7"], "add": {"7": ["10.0.0.1", "10.1.2.3/8 ttl 60"]}}"#,
                "",
                r#"{"7":["10.0.0.0/8 until 1060","10.0.0.1/32"]}"#,
            ),
            (
                r#"{"make": ["7"]}"#,
                "there already: pool/7",
                r#"{"7":["10.0.0.0/8 until 1060","10.0.0.1/32"]}"#,
            ),
            (
                r#"{"add": {"7": ["10.0.0.1"]}}"#,
                "there already: 10.0.0.1/32 in pool/7",
                r#"{"7":["10.0.0.0/8 until 1060","10.0.0.1/32"]}"#,
            ),
            (
                r#"{"add": {"7": ["10.0.0.0/8", "10.0.0.1 ttl 5"]}}"#,
                "",
                r#"{"7":["10.0.0.0/8","10.0.0.1/32 until 1005"]}"#,
            ),
            (
                r#"{"load": {"7": ["10.0.0.1", "::1"], "8": []}}"#,
                "",
                r#"{"7":["10.0.0.0/8","10.0.0.1/32","::1/128"],"8":[]}"#,
            ),
            (
                r#"{"remove": {"7": ["10.0.0.0/8", "10.0.0.2"], "9": []}}"#,
                "not there: 10.0.0.2/32 in pool/7, pool/9",
                r#"{"7":["10.0.0.1/32","::1/128"],"8":[]}"#,
            ),
            (r#"{"unmake": ["8", "9"]}"#, "not there: pool/9", r#"{"7":["10.0.0.1/32","::1/128"]}"#),
            (
                r#"{"make": ["9"], "add": {"9": ["10.0.0.1 in group 7 ttl 5"]}}"#,
                "",
                r#"{"7":["10.0.0.1/32","::1/128"],"9":["10.0.0.1/32 in group 7 until 1005"]}"#,
            ),
            (
                r#"{"add": {"9": ["10.0.0.1 in group 8"]}}"#,
                "",
                r#"{"7":["10.0.0.1/32","::1/128"],"9":["10.0.0.1/32 in group 8"]}"#,
            ),
            (r#"{"flush": true, "load": {"1": ["1.1.1.1"]}}"#, "", r#"{"1":["1.1.1.1/32"]}"#),
        ];
        for (text, refused, after) in table {
            let left = change(text).follow(&mut pools);
            let lists = POOL_WORDS.into_iter().zip([left.absent, left.present]);
            let lists = lists.filter(|(_, list)| !list.is_empty());
            let told: Vec<_> = lists.map(|(word, list)| format!("{word}: {}", list.join(", "))).collect();
            assert_eq!((told.join("; ").as_str(), said(&pools).as_str()), (refused, after), "{text}");
        }
    }

    #[test]
    fn what_has_ended_is_not_shown_and_is_forgotten() {
        let text = "[netstack.web.pools]\n7 = ['10.0.0.1 until 50', '10.0.0.2 until 90', '10.0.0.3']\n";
        let mut model = Model::from_toml("test", text).unwrap();
        let pools = |model: &Model| model.netstacks["web"].pools.clone();
        let info = PoolsInfo::of(&pools(&model), 50, vec![2]);
        assert_eq!(info.pools[&PoolNumber(7)], members(&["10.0.0.2 ttl 40", "10.0.0.3"]));
        forget_ended(&mut model, 90);
        assert_eq!(said(&pools(&model)), r#"{"7":["10.0.0.3/32"]}"#);
    }
}
