//! When a listener reports its groups, and what it says (RFC 3376 §5, RFC 3810 §6, RFC 2236 §3).
//!
//! The state machine of one link and one protocol, driven by `group_io.rs`: changes are reported a few times, queries
//! are answered after a random wait, an old querier is spoken to in its own version. It knows no packets.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use firelane_units::Instant;
use firelane_wire::{GroupQuery, GroupVersion, OldKind, RecordKind};

use crate::groups::{FilterMode, SourceFilter};
use crate::random::Random;

/// RFC 3376 §8, RFC 3810 §9.
const ROBUSTNESS: u8 = 2;
const QUERY_INTERVAL: Duration = Duration::from_secs(125);
const RESPONSE_INTERVAL: Duration = Duration::from_secs(10);
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
/// RFC 2236 §8.10: for listeners of the older version.
const UNSOLICITED_INTERVAL_OLD: Duration = Duration::from_secs(10);
/// A querier cannot make a host repeat itself more often than this.
const ROBUSTNESS_MOST: u8 = 7;
/// V10: sources of queries that wait for an answer; a longer list is answered for all sources.
const ASKED_MAX: usize = 64;

/// A record of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    pub(crate) group: IpAddr,
    pub(crate) sources: Vec<IpAddr>,
}

/// What is to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Say {
    /// A report of the present version.
    Report(Vec<Record>),
    /// A message of an old one.
    Old(OldKind, IpAddr),
}

#[derive(Debug)]
struct Group {
    filter: SourceFilter,
    /// How often the change of its mode is still to be said.
    mode_left: u8,
    /// The same for sources.
    sources_left: Vec<(IpAddr, u8)>,
    /// When a change is said again.
    change_at: Option<Instant>,
    /// A query about this group that waits for its answer, and the sources that it names.
    asked: Option<(Instant, Vec<IpAddr>)>,
    /// This host was the last to report it to an old querier, so it says when it leaves.
    is_reporter: bool,
}

/// The reports of one protocol on one link.
#[derive(Debug)]
pub(crate) struct GroupReports {
    groups: BTreeMap<IpAddr, Group>,
    /// A query about all groups that waits for its answer.
    asked: Option<Instant>,
    /// When something is to be said.
    next: Option<Instant>,
    robustness: u8,
    /// Something was said that routers have not believed.
    is_unheard: bool,
    query_interval: Duration,
    /// Until when an old querier is taken to be there.
    old: [Option<Instant>; 2],
}

impl GroupReports {
    pub(crate) const fn new() -> Self {
        Self {
            groups: BTreeMap::new(),
            asked: None,
            next: None,
            robustness: ROBUSTNESS,
            is_unheard: false,
            query_interval: QUERY_INTERVAL,
            old: [None, None],
        }
    }

    /// The oldest version that a querier of this link speaks.
    pub(crate) fn version(&self, now: Instant) -> GroupVersion {
        let is_there = |until: Option<Instant>| until.is_some_and(|until| until > now);
        match self.old {
            [one, _] if is_there(one) => GroupVersion::One,
            [_, two] if is_there(two) => GroupVersion::Two,
            _ => GroupVersion::Three,
        }
    }

    /// What the members of `group` want has become `filter`.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        group: IpAddr,
        filter: SourceFilter,
        random: &mut Random,
    ) -> Option<Say> {
        let say = self.change(now, group, filter, random);
        self.schedule();
        say
    }

    fn change(
        &mut self,
        now: Instant,
        group: IpAddr,
        filter: SourceFilter,
        random: &mut Random,
    ) -> Option<Say> {
        let version = self.version(now);
        let robustness = self.robustness;
        let known = self.groups.entry(group).or_insert_with(|| Group {
            filter: SourceFilter::none(),
            mode_left: 0,
            sources_left: Vec::new(),
            change_at: None,
            asked: None,
            is_reporter: false,
        });
        let old = core::mem::replace(&mut known.filter, filter);
        if known.filter == old {
            self.tidy(group);
            return None;
        }
        if version < GroupVersion::Three {
            return self.set_old(now, group, &old, version, random);
        }
        known.note_change(&old, robustness);
        let say = known.say_change(group);
        let left = known.changes_left();
        known.change_at = left.then(|| now + random.within(UNSOLICITED_INTERVAL));
        self.tidy(group);
        say
    }

    /// A change, for an old querier (RFC 2236 §3).
    fn set_old(
        &mut self,
        now: Instant,
        group: IpAddr,
        old: &SourceFilter,
        version: GroupVersion,
        random: &mut Random,
    ) -> Option<Say> {
        let known = self.groups.get_mut(&group)?;
        let (was, is) = (!old.is_none(), !known.filter.is_none());
        let kind = if version == GroupVersion::One { OldKind::ReportV1 } else { OldKind::Report };
        if is && !was {
            known.is_reporter = true;
            known.asked = Some((now + random.within(UNSOLICITED_INTERVAL_OLD), Vec::new()));
            return Some(Say::Old(kind, group));
        }
        if was && !is {
            let says = known.is_reporter && version == GroupVersion::Two;
            self.groups.remove(&group);
            return says.then_some(Say::Old(OldKind::Leave, group));
        }
        None
    }

    /// Something was said from an address that routers do not believe.
    pub(crate) const fn note_unheard(&mut self) {
        self.is_unheard = true;
    }

    /// There is an address that routers believe: if they have not heard something, all of it is news again.
    pub(crate) fn say_again(&mut self, now: Instant, random: &mut Random) {
        if core::mem::take(&mut self.is_unheard) {
            self.say_all(now, random);
        }
    }

    /// Others may be there to hear it, who have heard nothing: all of it is news.
    pub(crate) fn say_all(&mut self, now: Instant, random: &mut Random) {
        let (is_old, robustness) = (self.version(now) < GroupVersion::Three, self.robustness);
        for known in self.groups.values_mut().filter(|known| !known.filter.is_none()) {
            if is_old {
                let at = now + random.within(UNSOLICITED_INTERVAL_OLD);
                known.asked.get_or_insert((at, Vec::new()));
                continue;
            }
            known.mode_left = robustness;
            known.sources_left.clear();
            known.change_at = Some(now + random.within(UNSOLICITED_INTERVAL));
        }
        self.schedule();
    }

    /// A group that nobody listens to is kept until that is said often enough.
    fn tidy(&mut self, group: IpAddr) {
        let is_done = |g: &Group| g.filter.is_none() && !g.changes_left();
        if self.groups.get(&group).is_some_and(is_done) {
            self.groups.remove(&group);
        }
    }

    /// A querier asks (RFC 3376 §5.2 and §7.2.1).
    pub(crate) fn on_query(&mut self, now: Instant, query: &GroupQuery<'_>, random: &mut Random) {
        self.note_querier(now, query);
        self.ask(now, query, random);
        self.schedule();
    }

    fn ask(&mut self, now: Instant, query: &GroupQuery<'_>, random: &mut Random) {
        let at = now + random.within(query.max_response);
        // Rule 1: what is said soon anyhow answers this too.
        if self.asked.is_some_and(|general| general < at) {
            return;
        }
        let Some(group) = query.group else {
            if self.version(now) == GroupVersion::Three {
                self.asked = Some(at);
            } else {
                self.ask_each(now, query.max_response, random);
            }
            return;
        };
        let Some(known) = self.groups.get_mut(&group).filter(|known| !known.filter.is_none()) else { return };
        let mut sources: Vec<IpAddr> = query.sources().take(ASKED_MAX + 1).collect();
        if sources.len() > ASKED_MAX {
            sources.clear();
        }
        known.asked = Some(match known.asked.take() {
            None => (at, sources),
            // Rule 4: one of both asks for all sources.
            Some((before, asked)) if asked.is_empty() || sources.is_empty() => (before.min(at), Vec::new()),
            // Rule 5.
            Some((before, mut asked)) => {
                asked
                    .extend(sources.into_iter().filter(|source| !asked.contains(source)).collect::<Vec<_>>());
                if asked.len() > ASKED_MAX {
                    asked.clear();
                }
                (before.min(at), asked)
            }
        });
    }

    fn note_querier(&mut self, now: Instant, query: &GroupQuery<'_>) {
        if query.version == GroupVersion::Three {
            self.robustness = query.robustness.unwrap_or(ROBUSTNESS).min(ROBUSTNESS_MOST);
            self.query_interval = query.interval.unwrap_or(QUERY_INTERVAL);
            return;
        }
        // RFC 3376 §8.12: the older querier present time-out.
        let until = now + self.query_interval * u32::from(self.robustness) + RESPONSE_INTERVAL;
        let was = self.version(now);
        self.old[usize::from(query.version == GroupVersion::Two)] = Some(until);
        if self.version(now) != was {
            // RFC 3376 §7.2.1: what waits is of no use to it.
            self.asked = None;
            for group in self.groups.values_mut() {
                group.forget_changes();
            }
            self.groups.retain(|_, group| !group.filter.is_none());
        }
    }

    /// An old querier asks for all groups: each is reported by itself.
    fn ask_each(&mut self, now: Instant, within: Duration, random: &mut Random) {
        for group in self.groups.values_mut() {
            let at = now + random.within(within);
            // RFC 2236 §3: a wait that is shorter already goes on.
            if group.asked.as_ref().is_none_or(|(before, _)| *before > at) {
                group.asked = Some((at, Vec::new()));
            }
        }
    }

    /// Another host has reported a group to an old querier: one report is enough.
    pub(crate) fn on_old_report(&mut self, now: Instant, group: IpAddr) {
        if self.version(now) < GroupVersion::Three
            && let Some(known) = self.groups.get_mut(&group)
        {
            known.asked = None;
            known.is_reporter = false;
            self.schedule();
        }
    }

    /// Finds what comes first.
    fn schedule(&mut self) {
        let groups = self.groups.values();
        let each = groups.flat_map(|g| [g.change_at, g.asked.as_ref().map(|a| a.0)]);
        self.next = each.flatten().chain(self.asked).min();
    }

    /// When something is to be said.
    pub(crate) const fn poll_at(&self) -> Option<Instant> {
        self.next
    }

    /// The next thing to say.
    pub(crate) fn poll(&mut self, now: Instant, random: &mut Random) -> Option<Say> {
        while self.next.is_some_and(|at| at <= now) {
            let say = self.say_next(now, random);
            self.schedule();
            if say.is_some() {
                return say;
            }
        }
        None
    }

    /// What is due first is said, if it is anything still.
    fn say_next(&mut self, now: Instant, random: &mut Random) -> Option<Say> {
        let version = self.version(now);
        if self.asked.is_some_and(|at| at <= now) {
            self.asked = None;
            let listened = self.groups.iter().filter(|(_, known)| !known.filter.is_none());
            let records: Vec<Record> = listened.map(|(group, known)| known.current(*group)).collect();
            return (!records.is_empty()).then_some(Say::Report(records));
        }
        let is_due = |known: &Group| {
            known.change_at.is_some_and(|at| at <= now) || known.asked.as_ref().is_some_and(|a| a.0 <= now)
        };
        let group = *self.groups.iter().find(|(_, known)| is_due(known))?.0;
        let known = self.groups.get_mut(&group)?;
        if let Some((_, sources)) = known.asked.take_if(|asked| asked.0 <= now) {
            if version < GroupVersion::Three {
                known.is_reporter = true;
                let kind = if version == GroupVersion::One { OldKind::ReportV1 } else { OldKind::Report };
                return Some(Say::Old(kind, group));
            }
            return known.answer(group, &sources).map(|record| Say::Report(vec![record]));
        }
        let say = known.say_change(group);
        known.change_at = known.changes_left().then(|| now + random.within(UNSOLICITED_INTERVAL));
        self.tidy(group);
        say
    }
}

impl Group {
    /// RFC 3376 §5.1: what is different from `old` is to be said, a few times.
    fn note_change(&mut self, old: &SourceFilter, robustness: u8) {
        if old.mode != self.filter.mode {
            self.mode_left = robustness;
            self.sources_left.clear();
            return;
        }
        let differs = |source: &&IpAddr| old.sources.contains(source) != self.filter.sources.contains(source);
        for source in old.sources.iter().chain(&self.filter.sources).filter(differs) {
            self.sources_left.retain(|(other, _)| other != source);
            self.sources_left.push((*source, robustness));
        }
    }

    fn changes_left(&self) -> bool {
        self.mode_left > 0 || !self.sources_left.is_empty()
    }

    fn forget_changes(&mut self) {
        self.mode_left = 0;
        self.sources_left.clear();
        self.change_at = None;
        self.asked = None;
    }

    /// Says once what has changed.
    fn say_change(&mut self, group: IpAddr) -> Option<Say> {
        if self.mode_left > 0 {
            self.mode_left -= 1;
            let kind = match self.filter.mode {
                FilterMode::Include => RecordKind::ToInclude,
                FilterMode::Exclude => RecordKind::ToExclude,
            };
            return Some(Say::Report(vec![Record { kind, group, sources: self.filter.sources.clone() }]));
        }
        let (allow, block): (Vec<_>, Vec<_>) = self
            .sources_left
            .iter()
            .map(|(source, _)| *source)
            .partition(|source| self.filter.hears(*source));
        self.sources_left.retain_mut(|(_, left)| {
            *left -= 1;
            *left > 0
        });
        let records = [(RecordKind::Allow, allow), (RecordKind::Block, block)];
        let records = records.into_iter().filter(|(_, sources)| !sources.is_empty());
        let records: Vec<Record> = records.map(|(kind, sources)| Record { kind, group, sources }).collect();
        (!records.is_empty()).then_some(Say::Report(records))
    }

    /// What is wanted of the group now.
    fn current(&self, group: IpAddr) -> Record {
        let kind = match self.filter.mode {
            FilterMode::Include => RecordKind::IsInclude,
            FilterMode::Exclude => RecordKind::IsExclude,
        };
        Record { kind, group, sources: self.filter.sources.clone() }
    }

    /// The answer to a query about some sources, or about all (RFC 3376 §5.2, the table for the group timer).
    fn answer(&self, group: IpAddr, asked: &[IpAddr]) -> Option<Record> {
        if asked.is_empty() {
            return Some(self.current(group));
        }
        let sources: Vec<IpAddr> =
            asked.iter().copied().filter(|source| self.filter.hears(*source)).collect();
        (!sources.is_empty()).then_some(Record { kind: RecordKind::IsInclude, group, sources })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Keyed;
    use firelane_wire::GroupMessage;

    struct Lab {
        reports: GroupReports,
        random: Random,
        now: Instant,
    }

    fn group(n: u8) -> IpAddr {
        IpAddr::from([239, 0, 0, n])
    }

    fn filter(mode: FilterMode, sources: &[u8]) -> SourceFilter {
        SourceFilter { mode, sources: sources.iter().map(|&n| IpAddr::from([192, 0, 2, n])).collect() }
    }

    /// A record in words: what, which group, which sources.
    fn words(say: &Say) -> String {
        let last = |addr: &IpAddr| addr.to_string().rsplit('.').next().unwrap_or_default().to_owned();
        match say {
            Say::Old(kind, group) => format!("{kind:?} {}", last(group)),
            Say::Report(records) => {
                let record = |r: &Record| {
                    let sources: Vec<String> = r.sources.iter().map(last).collect();
                    format!("{:?} {} [{}]", r.kind, last(&r.group), sources.join(","))
                };
                records.iter().map(record).collect::<Vec<_>>().join(" ")
            }
        }
    }

    impl Lab {
        fn new() -> Self {
            let random = Random::new(Keyed::new([1; 16], 0), 0);
            Self { reports: GroupReports::new(), random, now: Instant::ZERO }
        }

        fn set(&mut self, n: u8, filter: SourceFilter) -> String {
            let said = self.reports.set(self.now, group(n), filter, &mut self.random);
            said.as_ref().map(words).unwrap_or_default()
        }

        fn query(&mut self, bytes: &[u8]) {
            let Ok(GroupMessage::Query(query)) = GroupMessage::parse_igmp(bytes) else { panic!("a query") };
            self.reports.on_query(self.now, &query, &mut self.random);
        }

        /// What is said within some seconds.
        fn run(&mut self, seconds: u64) -> Vec<String> {
            let end = self.now + Duration::from_secs(seconds);
            let mut said = Vec::new();
            while let Some(at) = self.reports.poll_at().filter(|&at| at <= end) {
                while let Some(say) = self.reports.poll(at, &mut self.random) {
                    said.push(words(&say));
                }
            }
            self.now = end;
            said
        }
    }

    const GENERAL: [u8; 12] = [0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];

    #[test]
    fn a_join_and_a_leave_are_said_twice() {
        let mut lab = Lab::new();
        assert_eq!(lab.set(1, SourceFilter::any()), "ToExclude 1 []");
        assert_eq!(lab.set(1, SourceFilter::any()), "");
        assert_eq!(lab.run(5), ["ToExclude 1 []"]);
        assert_eq!(lab.set(1, SourceFilter::none()), "ToInclude 1 []");
        assert_eq!(lab.run(5), ["ToInclude 1 []"]);
        assert!(lab.reports.groups.is_empty());
    }

    #[test]
    fn sources_that_come_and_go_are_said_by_themselves() {
        let mut lab = Lab::new();
        assert_eq!(lab.set(1, filter(FilterMode::Include, &[1, 2])), "Allow 1 [1,2]");
        lab.run(5);
        assert_eq!(lab.set(1, filter(FilterMode::Include, &[2, 3])), "Allow 1 [3] Block 1 [1]");
        lab.run(5);
        assert_eq!(lab.set(1, filter(FilterMode::Exclude, &[4])), "ToExclude 1 [4]");
        lab.run(5);
        assert_eq!(lab.set(1, filter(FilterMode::Exclude, &[5])), "Allow 1 [4] Block 1 [5]");
        assert_eq!(lab.run(5), ["Allow 1 [4] Block 1 [5]"]);
        // A change of the mode before the second report says it all.
        lab.set(1, filter(FilterMode::Exclude, &[6]));
        assert_eq!(lab.set(1, SourceFilter::none()), "ToInclude 1 []");
        assert_eq!(lab.run(5), ["ToInclude 1 []"]);
    }

    #[test]
    fn queries_are_answered_once_within_their_time() {
        let mut lab = Lab::new();
        lab.set(1, SourceFilter::any());
        lab.set(2, filter(FilterMode::Include, &[7]));
        lab.run(5);
        for _ in 0..1000 {
            lab.query(&GENERAL);
        }
        assert_eq!(lab.run(10), ["IsExclude 1 [] IsInclude 2 [7]"]);
        // About one group.
        lab.query(&[0x11, 10, 0, 0, 239, 0, 0, 2, 2, 125, 0, 0]);
        assert_eq!(lab.run(1), ["IsInclude 2 [7]"]);
        // About sources: those that are wanted, if any is.
        let about = |n, source| [0x11, 10, 0, 0, 239, 0, 0, n, 2, 125, 0, 1, 192, 0, 2, source];
        lab.query(&about(2, 7));
        lab.query(&about(2, 8));
        assert_eq!(lab.run(1), ["IsInclude 2 [7]"]);
        lab.query(&about(2, 8));
        assert_eq!(lab.run(1), [] as [&str; 0]);
        lab.query(&about(1, 8));
        assert_eq!(lab.run(1), ["IsInclude 1 [8]"]);
        // About a group that nobody here wants.
        lab.query(&about(3, 8));
        assert_eq!(lab.reports.poll_at(), None);
    }

    #[test]
    fn an_old_querier_is_spoken_to_in_its_own_version_until_it_is_gone() {
        let mut lab = Lab::new();
        lab.set(1, SourceFilter::any());
        lab.run(5);
        lab.query(&[0x11, 100, 0, 0, 0, 0, 0, 0]);
        assert_eq!(lab.run(10), ["Report 1"]);
        assert_eq!(lab.set(2, SourceFilter::any()), "Report 2");
        assert_eq!(lab.run(10), ["Report 2"]);
        assert_eq!(lab.set(2, SourceFilter::none()), "Leave 2");
        // Another host has reported it: it says when it leaves, not we.
        lab.query(&[0x11, 100, 0, 0, 0, 0, 0, 0]);
        lab.reports.on_old_report(lab.now, group(1));
        assert_eq!(lab.run(10), [] as [&str; 0]);
        assert_eq!(lab.set(1, SourceFilter::none()), "");
        lab.set(3, SourceFilter::any());
        lab.query(&[0x11, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(lab.run(10), ["ReportV1 3"]);
        assert_eq!(lab.set(3, SourceFilter::none()), "");
        // 2 times 125 seconds and 10 later both are forgotten.
        lab.run(260);
        assert_eq!(lab.set(4, SourceFilter::any()), "ToExclude 4 []");
    }

    #[test]
    fn v10_a_querier_cannot_make_a_host_repeat_itself_for_ever() {
        let mut lab = Lab::new();
        lab.query(&[0x11, 100, 0, 0, 0, 0, 0, 0, 7, 125, 0, 0]);
        lab.run(10);
        lab.set(1, SourceFilter::any());
        assert_eq!(lab.run(60).len(), 6);
    }
}
