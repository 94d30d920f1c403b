//! A netstack's packet filter in the engine's words, and what it has counted in the interface's.
//!
//! Called by `works.rs` and `host.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use firelane::{
    Engine, FOREVER, FilterCounts, FilteredPacket, IpProtocol, NatConfig, Packet, PoolChange, StateCounts,
    Verdict,
};
use firelane_api::{ApiError, FilterInfo, Judged, PoolsInfo, RuleInfo, SocketFilterInfo, StateInfo, Status};
use firelane_model::{Filter, IpfRule, LinkName, Model, Pool, PoolEntry, PoolNumber};
use firelane_plan::{Action, Step};
use firelane_units::{Direction, FilterRule, Instant, LinkId, NetstackId};

use crate::calendar;
use crate::refusal::refused;
use crate::works::Upper;

/// Rules of links by number.
pub(crate) fn rules(
    filter: &Filter,
    vnics: &BTreeMap<LinkName, Upper>,
) -> Result<Vec<FilterRule<LinkId>>, ApiError> {
    filter.rules.iter().map(|rule| rule.rule().clone().try_map(|name| id_of(name, vnics))).collect()
}

/// Rules of translation of links by number.
pub(crate) fn nat(filter: &Filter, vnics: &BTreeMap<LinkName, Upper>) -> Result<NatConfig, ApiError> {
    let rules = filter.nat.iter().map(|rule| rule.rule().clone().try_map(|link| id_of(link, vnics)));
    Ok(NatConfig { rules: rules.collect::<Result<_, _>>()?, limits: filter.nat_limits.in_force() })
}

fn id_of(name: LinkName, vnics: &BTreeMap<LinkName, Upper>) -> Result<LinkId, ApiError> {
    let known = vnics.get(&name).map(|it| it.id);
    known.ok_or_else(|| ApiError::new(Status::NoIf, "interface", name, ""))
}

/// What comes into pools or gets another end, and what goes; `moment` says when a lane's clock shows what is so many seconds ahead.
pub(crate) fn pool_changes(
    from: &Filter,
    to: &Filter,
    moment: impl Fn(u64) -> Option<Instant>,
) -> (Vec<PoolChange>, Vec<PoolChange>) {
    let none = Pool::default();
    let (mut coming, mut going) = (Vec::new(), Vec::new());
    let numbers: BTreeSet<_> = from.pools.keys().chain(to.pools.keys()).collect();
    for number in numbers {
        let [before, after] = [from, to].map(|it| it.pools.get(number).unwrap_or(&none));
        let change = |entry: &PoolEntry, until| change_of(*number, entry, until);
        let comes = after.entries().iter().filter(|it| before.get(it.network) != Some(it));
        // What has ended by now comes no more.
        coming
            .extend(comes.filter_map(|it| Some(change(it, Some(it.until.map_or(Some(FOREVER), &moment)?)))));
        let goes = before.entries().iter().filter(|it| after.get(it.network).is_none());
        going.extend(goes.map(|it| change(it, None)));
    }
    (coming, going)
}

fn change_of(pool: PoolNumber, entry: &PoolEntry, until: Option<Instant>) -> PoolChange {
    let PoolEntry { network, is_exception, group, .. } = *entry;
    PoolChange { pool: pool.0, network, until, is_exception, group: group.map(|it| it.group) }
}

/// What has an end in these pools, with the end that it has now: who has ended goes, and who had by another time of day comes again.
pub(crate) fn ends_anew(
    pools: &BTreeMap<PoolNumber, Pool>,
    moment: impl Fn(u64) -> Option<Instant>,
) -> Vec<PoolChange> {
    let ends = |(number, pool): (&PoolNumber, &Pool)| {
        let ending = pool.entries().iter().filter_map(|entry| Some((entry, moment(entry.until?))));
        ending.map(|(entry, until)| change_of(*number, entry, until)).collect::<Vec<_>>()
    };
    pools.iter().flat_map(ends).collect()
}

/// By how much the time of day may change beside the lanes' clock before ends are reckoned anew.
const SLACK_NANOS: u128 = 1_000_000_000;

/// How far the time of day is ahead of the lanes' clock, by which the ends of pools' networks were reckoned. It changes when somebody sets
/// it, such as NTP after a start without a battery, and while the machine sleeps.
#[derive(Debug)]
pub(crate) struct TimeOfDay(i128);

impl TimeOfDay {
    /// As it is now.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self(Self::ahead(calendar::since_1970(), engine.moment_in(Duration::ZERO)))
    }

    /// One that was set since.
    #[cfg(test)]
    pub(crate) const fn of_another_day() -> Self {
        Self(0)
    }

    fn ahead(day: Duration, lanes: Instant) -> i128 {
        i128::try_from(day.as_nanos()).unwrap_or(i128::MAX) - i128::from(lanes.nanos())
    }

    /// Whether it is another one than when this was said last.
    pub(crate) fn was_set(&mut self, engine: &Engine) -> bool {
        self.is_another(calendar::since_1970(), engine.moment_in(Duration::ZERO))
    }

    fn is_another(&mut self, day: Duration, lanes: Instant) -> bool {
        let ahead = Self::ahead(day, lanes);
        let is_another = ahead.abs_diff(self.0) > SLACK_NANOS;
        if is_another {
            self.0 = ahead;
        }
        is_another
    }
}

/// The moment of a lane's clock at which it is `until`, in seconds since 1970; nothing if that has been.
pub(crate) fn moment(engine: &Engine, until: u64) -> Option<Instant> {
    let ahead =
        Duration::from_secs(until).checked_sub(calendar::since_1970()).filter(|ahead| !ahead.is_zero())?;
    Some(engine.moment_in(ahead))
}

/// What is in the pools of a netstack, and how much of it each lane has.
pub(crate) fn pools(
    engine: &Engine,
    netstack: NetstackId,
    pools: &BTreeMap<PoolNumber, Pool>,
) -> Result<PoolsInfo, ApiError> {
    let held = engine.pooled(netstack).map_err(refused)?;
    Ok(PoolsInfo::of(pools, calendar::seconds(), held.into_iter().map(|it| it as u64).collect()))
}

/// What can be done of a filter some of whose VNICs are missing: the rules of the others. A netstack that starts with a
/// fault stays guarded where it works.
pub(crate) fn as_far_as(step: &Step, present: &Model) -> Option<Step> {
    let Action::SetFilter(name, from, to) = &step.action else { return None };
    let missing = |link: &LinkName| !present.vnics.contains_key(link);
    let rest = to.without(missing);
    let action = Action::SetFilter(name.clone(), from.clone(), rest.clone());
    (rest != *to).then_some(Step { action, ..step.clone() })
}

/// What the filter of a program's socket has counted. The rules of a link that has gone meet nothing any more, and are not shown.
pub(crate) fn of_socket(
    rules: &[FilterRule<LinkId>],
    counted: &FilterCounts,
    links: &BTreeMap<LinkId, String>,
) -> SocketFilterInfo {
    let name = |link| links.get(&link).and_then(|name| name.parse::<LinkName>().ok()).ok_or(());
    let named = |rule: &FilterRule<LinkId>| IpfRule::new(rule.clone().try_map(name).ok()?).ok();
    let (rules, met): (Vec<IpfRule>, Vec<_>) = rules
        .iter()
        .enumerate()
        .filter_map(|(nth, rule)| Some((named(rule)?, counted.rules.get(nth).copied().unwrap_or_default())))
        .unzip();
    let counted = FilterCounts { rules: met, ..counted.clone() };
    let FilterInfo { rules, inward: Judged { passed, blocked }, .. } = info(&rules, &counted);
    SocketFilterInfo { passed, blocked, rules }
}

/// What the filter of `rules` has counted.
pub(crate) fn info(rules: &[IpfRule], counted: &FilterCounts) -> FilterInfo {
    let FilterCounts { passed, blocked, rules: met, states } = counted;
    let judged = |at: usize| Judged { passed: passed[at], blocked: blocked[at] };
    let rule = |(place, rule): (usize, &IpfRule)| {
        let met = met.get(place).copied().unwrap_or_default();
        RuleInfo { rule: rule.clone(), packets: met.packets, bytes: met.bytes }
    };
    FilterInfo {
        rules: rules.iter().enumerate().map(rule).collect(),
        inward: judged(0),
        outward: judged(1),
        states: state_info(states),
    }
}

fn state_info(it: &StateCounts) -> StateInfo {
    let StateCounts { active, added, expired, evicted, full, rule_full, hits, out_of_window, .. } = *it;
    StateInfo { active, added, expired, evicted, full, rule_full, hits, out_of_window }
}

/// A packet that somebody asked to be told of, in a line, with its begin in hexadecimal digits where the rule wants the body.
pub(crate) fn told(
    packet: &FilteredPacket,
    verdict: Verdict,
    vnics: &BTreeMap<LinkName, Upper>,
    rules: &[IpfRule],
) -> String {
    let FilteredPacket { direction, link, rule, ref bytes, .. } = *packet;
    let name = vnics.iter().find(|(_, it)| it.id == link).map_or("?", |(name, _)| name.as_str());
    let (word, way) = match (verdict, direction) {
        (Verdict::Pass, Direction::In) => ("pass", "in"),
        (Verdict::Pass, Direction::Out) => ("pass", "out"),
        (_, Direction::In) => ("block", "in"),
        (_, Direction::Out) => ("block", "out"),
    };
    let what = Packet::read_cut(direction, link, bytes).map_or_else(String::new, |it| summary(&it));
    let rule = rule.and_then(|nth| usize::try_from(nth).ok()).filter(|&nth| nth < rules.len());
    let by = rule.map_or_else(String::new, |nth| format!(" ({})", called(rules, nth)));
    let wants_body = rule.is_some_and(|nth| rules[nth].rule().log.is_some_and(|log| log.body));
    let body = if wants_body { format!(" {}", hexadecimal(bytes)) } else { String::new() };
    format!("{word} {way} on {name}: {what}{by}{body}")
}

/// What `ipfstat -n` calls a rule: by its number in its direction and group.
fn called(rules: &[IpfRule], nth: usize) -> String {
    let of = |it: &IpfRule| (it.rule().direction, it.rule().group);
    let list = of(&rules[nth]);
    let number = rules[..=nth].iter().filter(|it| of(it) == list).count();
    match list.1 {
        Some(group) => format!("rule @{number} of group {group}"),
        None => format!("rule @{number}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn summary(packet: &Packet<'_>) -> String {
    let Packet { src, dst, protocol, bytes, .. } = *packet;
    match (packet.ports(), packet.icmp()) {
        (Some((from, to)), _) => {
            let word = match protocol {
                IpProtocol::TCP => "tcp",
                IpProtocol::UDP => "udp",
                _ => "sctp",
            };
            let (from, to) = (SocketAddr::new(src, from.0), SocketAddr::new(dst, to.0));
            format!("{word} {from} > {to}, {bytes} bytes")
        }
        (None, Some((kind, code))) => format!("icmp {src} > {dst}, type {kind} code {code}, {bytes} bytes"),
        (None, None) => format!("protocol {} {src} > {dst}, {bytes} bytes", protocol.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_model::NetstackName;
    use firelane_plan::{apply_to_model, plan};
    use firelane_units::MacAddr;

    const WEB: &str = "[etherstub.sw0]\n[vnic.web0]\nover = 'sw0'\nnetstack = 'web'\n[vnic.web1]\nover = 'sw0'\nnetstack = 'web'\n\
                       [netstack.web]\nfilter = ['block in on web0 all head 1', 'pass in from pool/7 to any group 1', 'block in on web1 all']\n\
                       pools = { 7 = ['10.0.0.0/8', '192.0.2.1 until 60'] }\n";

    fn model() -> Model {
        Model::from_toml("test", WEB).unwrap_or_else(|faults| panic!("{faults:?}"))
    }

    #[test]
    fn names_become_numbers_and_pools_go_along() {
        let filter = model().netstacks["web"].packet_filter();
        let upper = |id| Upper {
            id: LinkId(id),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            device: None,
            memif: None,
            over: Some(LinkId(1)),
        };
        let mut vnics =
            BTreeMap::from([("web0".parse().unwrap(), upper(5)), ("web1".parse().unwrap(), upper(7))]);
        let links: Vec<_> = rules(&filter, &vnics).unwrap().into_iter().map(|rule| rule.link).collect();
        assert_eq!(links, [Some(LinkId(5)), None, Some(LinkId(7))]);
        let come = |network: &str, until| {
            let (is_exception, network) = network.strip_prefix('!').map_or((false, network), |it| (true, it));
            PoolChange { pool: 7, network: network.parse().unwrap(), until, is_exception, group: None }
        };
        let moment = |until: u64| (until > 50).then(|| Instant::from_secs(until - 50));
        assert_eq!(
            pool_changes(&Filter::default(), &filter, moment),
            (
                vec![come("10.0.0.0/8", Some(FOREVER)), come("192.0.2.1/32", Some(Instant::from_secs(10)))],
                vec![]
            )
        );
        let mut next = filter.clone();
        next.pools =
            BTreeMap::from([(PoolNumber(7), serde_json::from_str(r#"["10.0.0.0/8 until 70"]"#).unwrap())]);
        assert_eq!(
            pool_changes(&filter, &next, moment),
            (vec![come("10.0.0.0/8", Some(Instant::from_secs(20)))], vec![come("192.0.2.1/32", None)])
        );
        assert_eq!(pool_changes(&filter, &filter, moment), (vec![], vec![]));
        let mut map = filter.clone();
        map.pools = BTreeMap::from([(
            PoolNumber(7),
            serde_json::from_str(r#"["10.0.0.0/8 in group 9", "192.0.2.1/32 until 60"]"#).unwrap(),
        )]);
        let leads = PoolChange { group: std::num::NonZeroU32::new(9), ..come("10.0.0.0/8", Some(FOREVER)) };
        assert_eq!(
            pool_changes(&filter, &map, moment),
            (vec![leads], vec![]),
            "another group is another thing"
        );
        let mut contrary = filter.clone();
        contrary.pools = BTreeMap::from([(
            PoolNumber(7),
            serde_json::from_str(r#"["!10.0.0.0/8", "192.0.2.1/32 until 60"]"#).unwrap(),
        )]);
        assert_eq!(
            pool_changes(&filter, &contrary, moment),
            (vec![come("!10.0.0.0/8", Some(FOREVER))], vec![]),
            "an exception is another thing"
        );
        assert_eq!(pool_changes(&Filter::default(), &next, |_| None), (vec![], vec![]), "it has ended");
        vnics.remove("web1");
        let error = rules(&filter, &vnics).unwrap_err();
        assert_eq!(error.to_string(), "Interface does not exist (interface=web1)");
    }

    #[test]
    fn ends_are_those_of_the_time_of_day_that_was_set() {
        let pools = &model().netstacks["web"].pools;
        let come = |until| PoolChange {
            pool: 7,
            network: "192.0.2.1/32".parse().unwrap(),
            until,
            is_exception: false,
            group: None,
        };
        let at = |now: u64| ends_anew(pools, |until| (until > now).then(|| Instant::from_secs(until - now)));
        assert_eq!(at(20), [come(Some(Instant::from_secs(40)))]);
        assert_eq!(at(60), [come(None)], "it has ended");
        let (day, lanes) = (Duration::from_secs, Instant::from_secs);
        let mut time = TimeOfDay(TimeOfDay::ahead(day(100), lanes(500)));
        assert!(!time.is_another(day(200), lanes(600)));
        assert!(!time.is_another(day(201), lanes(600)), "so little is nothing");
        assert!(
            time.is_another(day(1_795_348_800), lanes(601))
                && !time.is_another(day(1_795_348_801), lanes(602))
        );
        assert!(time.is_another(day(7), lanes(603)), "or set back");
    }

    #[test]
    fn without_one_vnic_the_others_keep_their_rules() {
        let wanted = model();
        let name: NetstackName = "web".parse().unwrap();
        let (mut present, mut left) = (Model::default(), Vec::new());
        for step in plan(&wanted, &Model::default()) {
            let step = match &step.action {
                Action::CreateVnic(name, _) if name.as_str() == "web0" => continue,
                _ => as_far_as(&step, &present).unwrap_or(step),
            };
            apply_to_model(&mut present, &step);
            left = present.netstacks.get(&name).map(|it| it.filter.clone()).unwrap_or_default();
        }
        assert_eq!(left.iter().map(ToString::to_string).collect::<Vec<_>>(), ["block in on web1 all"]);
        assert_eq!(present.validate(), []);
    }

    #[test]
    fn a_packet_is_told_of_in_a_line() {
        let upper = Upper {
            id: LinkId(5),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            device: None,
            memif: None,
            over: Some(LinkId(1)),
        };
        let vnics = BTreeMap::from([("web0".parse().unwrap(), upper)]);
        // The first bytes of a datagram of 1,400.
        let mut bytes = vec![0x45, 0, 5, 0x78, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 7];
        bytes.extend([0x0f, 0xa0, 0, 53, 5, 0x64, 0, 0]);
        let rules = &model().netstacks["web"].filter;
        let packet = |direction, rule| FilteredPacket {
            direction,
            link: LinkId(5),
            rule,
            list: 1,
            bytes: bytes.clone(),
        };
        assert_eq!(
            told(&packet(Direction::In, Some(1)), Verdict::NoRoom, &vnics, rules),
            "block in on web0: udp 10.0.0.1:4000 > 192.0.2.7:53, 1400 bytes (rule @1 of group 1)"
        );
        let third = told(&packet(Direction::In, Some(2)), Verdict::NoRoom, &vnics, rules);
        assert!(third.ends_with(" (rule @2)"), "{third}");
        for rule in [None, Some(9)] {
            let out = told(&packet(Direction::Out, rule), Verdict::Pass, &BTreeMap::new(), rules);
            assert_eq!(out, "pass out on ?: udp 10.0.0.1:4000 > 192.0.2.7:53, 1400 bytes");
        }
        let whole: IpfRule = "block in log body on web0 all".parse().unwrap();
        let with_body = told(&packet(Direction::In, Some(0)), Verdict::NoRoom, &vnics, &[whole]);
        assert!(
            with_body
                .ends_with("1400 bytes (rule @1) 4500057800000000401100000a000001c00002070fa0003505640000"),
            "{with_body}"
        );
    }

    #[test]
    fn counts_stand_with_their_rules() {
        let rules = model().netstacks["web"].filter.clone();
        let met = |packets| firelane::RuleCount { packets, bytes: 10 * packets };
        let counted = FilterCounts {
            passed: [1, 2],
            blocked: [3, 4],
            rules: vec![met(5), met(6)],
            states: StateCounts { active: 7, ..StateCounts::default() },
        };
        let info = info(&rules, &counted);
        let shown: Vec<_> = info.rules.iter().map(|it| (it.packets, it.bytes)).collect();
        assert_eq!(shown, [(5, 50), (6, 60), (0, 0)]);
        assert_eq!((info.inward.passed, info.outward.blocked, info.states.active), (1, 4, 7));
    }
}
