//! From counters that only rise to what each second brought, and from seconds to minutes and hours.
//!
//! Owned by `history/mod.rs` under its lock. What has come is gathered for ten seconds and written in one transaction,
//! or before somebody reads; seconds that brought nothing are not written at all, so an idle host writes nothing.

use std::collections::BTreeMap;

use firelane_api::{Traffic, Usage, UsageRequest, UsageSample};

use super::store::{Batch, STEPS, Store, is_locked};
use super::{FILE, Parting, Subject, Totals};

/// How long what has come may wait to be written.
const GATHER_SECONDS: u64 = 10;

/// How many pieces may wait while the file cannot be written: about what 100 busy links bring in an hour.
const PIECES_MAX: usize = 400_000;

/// Who has not looked for so long slept, or his clock was set forward: of that time nothing is known.
const PAUSE_SECONDS: u64 = 60;

/// The recorder.
#[derive(Debug)]
pub(super) struct Recorder {
    store: Store,
    /// The counters at the last reading.
    last: BTreeMap<Subject, Traffic>,
    batch: Batch,
    /// When the batch is to be written.
    due: Option<u64>,
    /// When the counters were last read.
    read: u64,
    /// Since when somebody else has the file locked.
    locked: Option<u64>,
    /// Why the file could not be written when it was last tried.
    fault: Option<String>,
    /// That is not what was told last.
    is_news: bool,
}

impl Recorder {
    /// Writes to `store`, with which something is wrong already if there is a `fault`.
    pub(super) fn new(store: Store, fault: Option<String>) -> Self {
        let (last, batch) = (BTreeMap::new(), Batch::default());
        Self { store, last, batch, due: None, read: 0, locked: None, fault, is_news: false }
    }

    /// Whether there is a file that can be asked. One that could not be opened is tried again.
    pub(super) fn is_open(&mut self, now: u64) -> bool {
        if !self.store.is_open() {
            self.write(now);
        }
        self.store.is_open()
    }

    /// Takes the counters as they were at the end of the second `now`.
    pub(super) fn record(&mut self, now: u64, totals: Totals) {
        // By a clock that was set back all of them are there anew: since when, they were not by the one before.
        let is_earlier = now < self.read;
        let has_paused = self.read > 0 && now > self.read + PAUSE_SECONDS;
        if has_paused {
            self.batch.paused = self.batch.paused.or(Some(self.read));
        }
        self.read = now;
        let mut last = BTreeMap::new();
        let mut changed = has_paused;
        for (subject, total) in totals {
            let before = self.last.remove(&subject);
            changed |= before.is_none();
            let came = total.since(before.unwrap_or_default());
            if before.is_none() || is_earlier || has_paused {
                self.batch.seen.insert(subject.clone(), now);
            }
            if came != Traffic::default() {
                changed = true;
                self.add(now, &subject, came);
            }
            last.insert(subject, total);
        }
        // What is left was there a second ago.
        for (subject, _) in std::mem::replace(&mut self.last, last) {
            changed = true;
            self.batch.gone.insert(subject, now);
        }
        if changed && self.due.is_none() {
            self.due = Some(now + GATHER_SECONDS);
        }
        if self.due.is_some_and(|due| due <= now || due > now + GATHER_SECONDS) {
            self.write(now);
        }
    }

    /// Takes what those had carried that ended in the second `now`. Who is made anew by the end of it begins at zero, and who
    /// goes on under another name where it was.
    pub(super) fn part(&mut self, now: u64, partings: &[Parting]) {
        for Parting { subject, total, heir } in partings {
            let before = self.last.insert(subject.clone(), Traffic::default());
            if before.is_none() {
                self.batch.seen.insert(subject.clone(), now);
            }
            let came = total.since(before.unwrap_or_default());
            if came != Traffic::default() {
                self.add(now, subject, came);
            }
            if let Some(heir) = heir {
                self.batch.seen.insert(heir.clone(), now);
                self.last.insert(heir.clone(), *total);
            }
        }
    }

    /// Adds to the pieces of a subject that the second `now` is in.
    fn add(&mut self, now: u64, subject: &Subject, came: Traffic) {
        for step in STEPS {
            let piece = (subject.clone(), step, now - now % step);
            let sum = self.batch.pieces.entry(piece).or_default();
            *sum = sum.and(came);
        }
    }

    /// The host ends: everything is written.
    pub(super) fn end(&mut self, now: u64) {
        // Without it nobody waits, and that is all.
        let _ = self.store.end();
        self.batch.is_last = true;
        self.write(now);
    }

    /// What is wrong, or that nothing is any more, if that has changed since it was last asked.
    pub(super) fn take_news(&mut self) -> Option<Option<String>> {
        std::mem::take(&mut self.is_news).then(|| self.fault.clone())
    }

    /// What every subject carried.
    pub(super) fn usage(&mut self, request: &UsageRequest, now: u64) -> rusqlite::Result<Vec<Usage>> {
        self.ask(now, |store| store.usage(request, now))
    }

    /// What one carried, piece by piece; `None` if there was never one of that name.
    pub(super) fn samples(
        &mut self,
        name: &str,
        request: &UsageRequest,
        now: u64,
    ) -> rusqlite::Result<Option<Vec<UsageSample>>> {
        self.ask(now, |store| store.samples(name, request, now))
    }

    fn ask<R>(&mut self, now: u64, ask: impl Fn(&Store) -> rusqlite::Result<R>) -> rusqlite::Result<R> {
        self.write(now);
        match ask(&self.store) {
            Err(error) if self.begins_anew(now, &error) => {
                self.write(now);
                ask(&self.store)
            }
            answer => answer,
        }
    }

    /// Whether the file was damaged, and there is a new one.
    fn begins_anew(&mut self, now: u64, error: &rusqlite::Error) -> bool {
        let Some(aside) = self.store.begin_anew(error) else { return false };
        let present = self.last.keys().map(|subject| (subject.clone(), now));
        self.batch.seen.extend(present);
        self.fail(format!("{FILE}: {error}; it is kept as {aside}, and the history begins anew"));
        true
    }

    fn write(&mut self, now: u64) {
        self.due = None;
        self.batch.present = self.last.keys().cloned().collect();
        match self.store.write(&self.batch, now) {
            Ok(()) => {
                (self.batch, self.locked) = (Batch::default(), None);
                self.is_news |= self.fault.take().is_some();
            }
            Err(error) => {
                // A clock may have been set back.
                let since = self.locked.filter(|&since| since <= now).unwrap_or(now);
                self.locked = is_locked(&error).then_some(since);
                let pause = if self.locked.is_some() { 1 } else { GATHER_SECONDS };
                self.due = Some(now + pause);
                if self.begins_anew(now, &error) {
                    self.due = Some(now);
                } else if self.batch.pieces.len() > PIECES_MAX {
                    self.batch.pieces.clear();
                    self.fail(format!("{FILE}: {error}; {PIECES_MAX} pieces of history are lost"));
                } else if self.fault.is_none()
                    && self.locked.is_none_or(|since| now >= since + GATHER_SECONDS)
                {
                    // Whoever reads it has it locked for a moment.
                    self.fail(format!("{FILE}: {error}; the history waits in memory"));
                }
            }
        }
    }

    fn fail(&mut self, fault: String) {
        (self.fault, self.is_news) = (Some(fault), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use firelane_api::UsageOf;
    use rusqlite::Connection;

    /// Noon of a day in 2026, far from the beginning of every piece but its own.
    const NOON: u64 = 1_795_348_800;

    fn link(name: &str) -> Subject {
        Subject { of: UsageOf::Links, name: name.to_owned(), link: String::new() }
    }

    fn flow(name: &str, link: &str) -> Subject {
        Subject { of: UsageOf::Flows, name: name.to_owned(), link: link.to_owned() }
    }

    fn carried(rbytes: u64) -> Traffic {
        Traffic { ipackets: rbytes / 100, rbytes, ..Traffic::default() }
    }

    /// A part of the file that is not read when it is opened.
    #[test]
    fn a_file_that_is_damaged_behind_its_head_is_put_aside() {
        for asks in [false, true] {
            let folder = Scratch::new();
            let mut recorder = open(&folder);
            for nth in 0..400 {
                recorder.record(NOON + nth, vec![(link("a0"), carried(100 * (nth + 1)))]);
            }
            recorder.write(NOON + 400);
            drop(recorder);
            let path = folder.path().join(FILE);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[1024..].fill(0x5a);
            std::fs::write(&path, bytes).unwrap();
            let mut recorder = open(&folder);
            if !asks {
                for nth in 500..540 {
                    recorder.record(NOON + nth, vec![(link("a0"), carried(100 * nth))]);
                }
            }
            let carried = links(&mut recorder, NOON, NOON + 540);
            assert!(folder.path().join("history.db.broken").exists(), "asks {asks}");
            assert_eq!(carried.len(), usize::from(!asks), "{carried:?}");
            if !asks {
                assert_eq!(carried[0].1, 100 * 539);
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_begun_anew_is_when_it_can() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        recorder.record(NOON, vec![(link("a0"), carried(100))]);
        recorder.write(NOON);
        drop(recorder);
        let path = folder.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[1024..].fill(0x5a);
        std::fs::write(&path, bytes).unwrap();
        let mut recorder = open(&folder);
        // Nothing is put in the place of a folder.
        let in_the_way = folder.path().join("history.db.broken/a");
        std::fs::create_dir_all(&in_the_way).unwrap();
        for nth in 1..40 {
            recorder.record(NOON + nth, vec![(link("a0"), carried(100 * (nth + 1)))]);
        }
        recorder.write(NOON + 40);
        assert!(recorder.fault.is_some());
        std::fs::remove_dir_all(in_the_way.parent().unwrap()).unwrap();
        recorder.write(NOON + 40);
        let carried = links(&mut recorder, NOON, NOON + 40);
        assert!(folder.path().join("history.db.broken").is_file() && carried.len() == 1, "{carried:?}");
    }

    /// On a full disk, or where another program has it.
    #[test]
    fn a_file_that_cannot_be_opened_at_first_has_what_came_meanwhile_when_it_can() {
        for foreign in [false, true] {
            let folder = Scratch::new();
            let path = folder.path().join(FILE);
            std::fs::create_dir(&path).unwrap();
            assert!(Store::open(&path).is_err());
            let mut recorder = Recorder::new(Store::unopened(&path).unwrap(), Some("fault".to_owned()));
            for nth in 0..40 {
                recorder.record(NOON + nth, vec![(link("a0"), carried(100 * (nth + 1)))]);
            }
            assert!(!recorder.is_open(NOON + 40));
            assert_eq!(recorder.take_news(), None, "it has been told at the start");
            std::fs::remove_dir(&path).unwrap();
            if foreign {
                std::fs::write(&path, "no history, but as long as the head of one would be".repeat(40))
                    .unwrap();
            }
            for nth in 40..80 {
                recorder.record(NOON + nth, vec![(link("a0"), carried(100 * (nth + 1)))]);
            }
            assert_eq!(recorder.take_news(), Some(None), "it was opened without anybody asking");
            assert_eq!(links(&mut recorder, NOON, NOON + 80)[0].1, 100 * 80);
            assert_eq!(folder.path().join("history.db.broken").exists(), foreign);
        }
    }

    /// By somebody's `sqlite3`.
    #[test]
    fn a_file_that_is_locked_keeps_nobody_waiting_and_is_written_when_it_can_be() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        assert!(recorder.store.count("PRAGMA busy_timeout") <= 100, "ms");
        recorder.record(NOON, vec![(link("a0"), carried(100))]);
        recorder.write(NOON);
        let other = Connection::open(folder.path().join(FILE)).unwrap();
        let pieces = || other.query_row("SELECT count(*) FROM pieces WHERE step = 1", [], |row| row.get(0));
        let second = |recorder: &mut Recorder, nth: u64| {
            recorder.record(NOON + nth, vec![(link("a0"), carried(100 * (nth + 1)))]);
        };
        (1..10).for_each(|nth| second(&mut recorder, nth));
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        (10..13).for_each(|nth| second(&mut recorder, nth));
        assert_eq!((pieces(), recorder.take_news()), (Ok(1), None), "it waits, of which nobody need be told");
        other.execute_batch("COMMIT").unwrap();
        second(&mut recorder, 13);
        assert_eq!(pieces(), Ok(14), "the next second brings what has waited");
        // For longer it is a fault, and the next second is tried all the same.
        (14..24).for_each(|nth| second(&mut recorder, nth));
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        second(&mut recorder, 24);
        assert!(recorder.usage(&asked(UsageOf::Links, NOON), NOON + 24).is_err());
        second(&mut recorder, 34);
        assert!(recorder.take_news().flatten().is_some_and(|fault| fault.contains("locked")));
        other.execute_batch("COMMIT").unwrap();
        second(&mut recorder, 35);
        assert_eq!(recorder.take_news(), Some(None));
        assert_eq!(links(&mut recorder, NOON, NOON + 36)[0].1, 100 * 36);
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        recorder.record(NOON + 7200, vec![(link("a0"), carried(100))]);
        for second in 1..60 {
            recorder.record(NOON + second, vec![(link("a0"), carried(100 + second))]);
        }
        let pieces = |recorder: &Recorder| recorder.store.count("SELECT count(*) FROM pieces WHERE step = 1");
        assert!(pieces(&recorder) > 40, "they are written while nobody asks");
        assert_eq!(links(&mut recorder, NOON, NOON + 60), [("a0".to_owned(), 59, 60, false)]);
    }

    fn open(folder: &Scratch) -> Recorder {
        let (store, put_aside) = Store::open(&folder.path().join(FILE)).unwrap();
        assert_eq!(put_aside, None);
        store.do_not_sync();
        Recorder::new(store, None)
    }

    fn asked(of: UsageOf, from: u64) -> UsageRequest {
        UsageRequest { from, all: true, ..UsageRequest::new(of) }
    }

    /// Name, bytes, seconds and whether it was deleted, of every link.
    fn links(recorder: &mut Recorder, from: u64, now: u64) -> Vec<(String, u64, u64, bool)> {
        let usages = recorder.usage(&asked(UsageOf::Links, from), now).unwrap();
        usages.into_iter().map(|it| (it.name, it.traffic.rbytes, it.seconds, it.deleted)).collect()
    }

    #[test]
    fn what_came_is_in_its_second_its_minute_and_its_hour() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        // 100 bytes a second for two hours, but none in every tenth second.
        let mut total = 0;
        for second in 0..7200 {
            total += if second % 10 == 0 { 0 } else { 100 };
            recorder.record(NOON + second, vec![(link("web0"), carried(total))]);
        }
        let now = NOON + 7199;
        let mut samples = |from, until| {
            let request = UsageRequest { from, until: Some(until), ..UsageRequest::new(UsageOf::Links) };
            let samples = recorder.samples("web0", &request, now).unwrap().unwrap();
            let sum: u64 = samples.iter().map(|it| it.traffic.rbytes).sum();
            (samples[0].seconds, samples.len(), sum)
        };
        assert_eq!(samples(now - 99, now + 1), (1, 90, 9_000));
        assert_eq!(samples(NOON + 3600, now + 1), (1, 3240, 324_000));
        assert_eq!(
            samples(NOON, now + 1),
            (60, 120, 648_000),
            "an hour of seconds is kept, and two are asked for"
        );
        assert_eq!(samples(0, now + 1), (60, 120, 648_000));
        assert_eq!(links(&mut recorder, 0, now), [("web0".to_owned(), 648_000, 7200, false)]);
        assert_eq!(recorder.samples("nosuch0", &asked(UsageOf::Links, 0), now).unwrap(), None);
    }

    /// As much as was carried in the seconds that are said, whatever pieces are kept of them.
    #[test]
    fn what_is_summed_is_of_the_time_that_is_said() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        // 100 bytes a second, each second, for five hours.
        for second in 0..18_000 {
            recorder.record(NOON + second, vec![(link("web0"), carried(100 * (second + 1)))]);
        }
        let now = NOON + 17_999;
        let usage = |recorder: &mut Recorder, from, until, now| {
            let request = UsageRequest { until: Some(until), ..asked(UsageOf::Links, from) };
            let usages = recorder.usage(&request, now).unwrap();
            (usages[0].traffic.rbytes, usages[0].seconds)
        };
        // The last hour's seconds are kept, of what was before that minutes.
        for (from, until, wanted) in [
            (0, NOON + 60, 60),
            (now - 1799, now - 1700, 99),
            (now - 3500, now + 1, 3501),
            (now - 7300, now - 3, 7297 + 19),
            (NOON + 30, NOON + 90, 120),
            (NOON + 3600, NOON + 7200, 3600),
            (NOON + 60, NOON + 17_940, 17_880),
        ] {
            let (bytes, seconds) = usage(&mut recorder, from, until, now);
            assert_eq!((bytes, seconds), (100 * wanted, wanted), "{from} {until}");
        }
        // Ten days later hours are left.
        let later = NOON + 10 * 24 * 3600;
        recorder.record(later, vec![(link("web0"), carried(1_800_000))]);
        assert_eq!(usage(&mut recorder, NOON + 1800, NOON + 2700, later), (360_000, 3600));
    }

    #[test]
    fn who_is_deleted_stays_known_and_who_is_made_anew_goes_on() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        let both = |a, b| vec![(link("a0"), carried(a)), (link("b0"), carried(b))];
        recorder.record(NOON, both(0, 500));
        recorder.record(NOON + 1, both(300, 700));
        recorder.record(NOON + 2, vec![(link("b0"), carried(700))]);
        assert_eq!(
            links(&mut recorder, 0, NOON + 2),
            [("a0".to_owned(), 300, 3, true), ("b0".to_owned(), 700, 3, false)]
        );
        let plain = UsageRequest::new(UsageOf::Links);
        assert_eq!(
            recorder.usage(&plain, NOON + 2).unwrap().len(),
            1,
            "only who is there, if not asked for all"
        );
        // Its counters begin again.
        recorder.record(NOON + 9, both(50, 700));
        let (name, bytes, _, deleted) = links(&mut recorder, 0, NOON + 9).remove(0);
        assert_eq!((name.as_str(), bytes, deleted), ("a0", 350, false));
    }

    /// What nobody was is no time in which he carried nothing.
    #[test]
    fn who_was_away_was_not_there_meanwhile() {
        const DAY: u64 = 24 * 3600;
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        let seconds = |recorder: &mut Recorder, from, until, now| {
            let request = UsageRequest { from, until: Some(until), ..asked(UsageOf::Links, from) };
            let usages = recorder.usage(&request, now).unwrap();
            usages.iter().map(|it| (it.seconds, it.traffic.rbytes)).collect::<Vec<_>>()
        };
        // There for ten seconds, away for a day, and there for ten seconds again.
        for second in 0..10 {
            recorder.record(NOON + second, vec![(link("a0"), carried(100 * (second + 1)))]);
        }
        recorder.record(NOON + 10, vec![]);
        for second in 11..50 {
            recorder.record(NOON + second, vec![]);
        }
        // It is remembered over a restart.
        recorder.write(NOON + 50);
        drop(recorder);
        let mut recorder = open(&folder);
        let later = NOON + DAY;
        recorder.record(later - 1, vec![]);
        for second in 0..10 {
            recorder.record(later + second, vec![(link("a0"), carried(100 * (second + 1)))]);
        }
        let now = later + 9;
        assert_eq!(seconds(&mut recorder, 0, u64::MAX, now), [(21, 2000)]);
        assert_eq!(seconds(&mut recorder, NOON, NOON + 3600, now), [(11, 1000)]);
        assert_eq!(seconds(&mut recorder, NOON + 7200, NOON + 10_800, now), []);
        assert_eq!(seconds(&mut recorder, later, now + 1, now), [(10, 1000)]);
        let samples = recorder.samples("a0", &asked(UsageOf::Links, 0), now).unwrap().unwrap();
        assert_eq!(samples.iter().map(|it| it.traffic.rbytes).sum::<u64>(), 2000, "{samples:?}");
    }

    /// Without a battery a machine begins in 1970.
    #[test]
    fn a_clock_that_is_set_forward_makes_nobody_older() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        for second in 0..20 {
            recorder.record(1000 + second, vec![(link("a0"), carried(100 * (second + 1)))]);
        }
        for second in 0..20 {
            recorder.record(NOON + second, vec![(link("a0"), carried(2000 + 100 * (second + 1)))]);
        }
        let now = NOON + 19;
        assert_eq!(links(&mut recorder, NOON - 1000, now), [("a0".to_owned(), 2000, 20, false)]);
        let all = links(&mut recorder, 0, now);
        assert!(all[0].2 <= 40, "{all:?}");
    }

    #[test]
    fn nobody_is_there_for_longer_than_is_known_of_him() {
        const YEAR: u64 = 365 * 24 * 3600;
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        // Once a minute for an hour, and nothing else for three years.
        for minute in 0..=60 {
            recorder.record(NOON + 60 * minute, vec![(link("a0"), carried(100 * (minute + 1)))]);
        }
        recorder.write(NOON + 3600);
        drop(recorder);
        let mut recorder = open(&folder);
        let now = NOON + 3 * YEAR;
        recorder.record(now, vec![(link("a0"), carried(500))]);
        assert_eq!(links(&mut recorder, 0, now), [("a0".to_owned(), 500, 2 * YEAR + 1, false)]);
        for huge in [u64::MAX, u64::MAX - 1, 1 << 63] {
            assert_eq!(recorder.samples("a0", &asked(UsageOf::Links, huge), now).unwrap(), Some(vec![]));
            assert!(links(&mut recorder, huge, now).is_empty());
        }
    }

    #[test]
    fn flows_of_one_name_on_two_links_one_after_the_other_are_one_in_its_samples() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        recorder.record(NOON, vec![(flow("http", "web0"), carried(100))]);
        recorder.record(NOON + 1, vec![(flow("http", "web1"), carried(900))]);
        let request = asked(UsageOf::Flows, 0);
        let usages = recorder.usage(&request, NOON + 1).unwrap();
        let shown: Vec<_> =
            usages.iter().map(|it| (it.link.as_str(), it.traffic.rbytes, it.deleted)).collect();
        assert_eq!(shown, [("web0", 100, true), ("web1", 900, false)]);
        assert_eq!(recorder.samples("http", &request, NOON + 1).unwrap().unwrap().len(), 2);
        assert!(recorder.usage(&asked(UsageOf::Links, 0), NOON + 1).unwrap().is_empty());
    }

    #[test]
    fn a_restart_goes_on_and_notices_who_went_meanwhile() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        recorder.record(NOON, vec![(link("a0"), carried(100)), (link("b0"), carried(200))]);
        recorder.write(NOON);
        drop(recorder);
        let mut recorder = open(&folder);
        recorder.record(NOON + 100, vec![(link("b0"), carried(30))]);
        let shown: Vec<_> = links(&mut recorder, 0, NOON + 100)
            .into_iter()
            .map(|(_, bytes, _, gone)| (bytes, gone))
            .collect();
        assert_eq!(shown, [(100, true), (230, false)]);
    }

    /// What was temporary is not there after a restart: what it carried up to then still counts.
    #[test]
    fn who_went_with_the_daemon_has_all_that_it_carried() {
        for (is_killed, says_last, seconds) in
            [(true, true, 41), (true, false, 41), (false, true, 61), (false, false, 41)]
        {
            let folder = Scratch::new();
            let mut recorder = open(&folder);
            for second in 10..=50 {
                recorder.record(NOON + second, vec![(link("tmp0"), carried(100 * (second - 9)))]);
            }
            recorder.write(NOON + 50);
            for second in 51..=70 {
                recorder.record(NOON + second, vec![(link("tmp0"), carried(4100))]);
            }
            if !is_killed {
                recorder.end(NOON + 70);
            }
            drop(recorder);
            if !says_last {
                // As files of earlier daemons are.
                let db = Connection::open(folder.path().join(FILE)).unwrap();
                db.execute("UPDATE subjects SET last = first", []).unwrap();
            }
            let mut recorder = open(&folder);
            recorder.record(NOON + 100, vec![]);
            assert_eq!(
                links(&mut recorder, 0, NOON + 100),
                [("tmp0".to_owned(), 4100, seconds, true)],
                "killed {is_killed}, says last {says_last}"
            );
        }
    }

    #[test]
    fn fine_pieces_go_first_and_in_the_end_the_subject() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        recorder.record(NOON, vec![(link("a0"), carried(100))]);
        recorder.record(NOON + 1, vec![]);
        recorder.write(NOON + 1);
        let count = |step: i64| -> i64 {
            let db = Connection::open(folder.path().join(FILE)).unwrap();
            db.query_row("SELECT count(*) FROM pieces WHERE step = ?1", [step], |row| row.get(0)).unwrap()
        };
        let day = 24 * 3600;
        for (later, left) in [(3600, [1, 1, 1]), (3700, [0, 1, 1]), (8 * day, [0, 0, 1]), (731 * day, [0; 3])]
        {
            recorder.batch.gone.insert(link("other"), NOON);
            recorder.write(NOON + later);
            assert_eq!([1, 60, 3600].map(count), left, "{later} seconds later");
        }
        assert!(links(&mut recorder, 0, NOON + 731 * day).is_empty());
    }

    #[test]
    fn a_file_that_is_no_history_is_put_aside() {
        let folder = Scratch::new();
        let path = folder.path().join(FILE);
        std::fs::write(&path, "this is no database, however long one looks at it".repeat(100)).unwrap();
        let (_, put_aside) = Store::open(&path).unwrap();
        let aside = put_aside.expect("it is put aside");
        assert!(std::fs::read_to_string(aside).unwrap().starts_with("this is no database"));
        drop(open(&folder));
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(Store::open(&path).unwrap().1.is_some(), "nor is one of a layout to come");
    }

    #[test]
    fn what_cannot_be_written_waits_and_is_told_of_once() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        let db = Connection::open(folder.path().join(FILE)).unwrap();
        db.execute_batch("ALTER TABLE pieces RENAME TO hidden").unwrap();
        let mut told = Vec::new();
        for second in 0..40 {
            recorder.record(NOON + second, vec![(link("a0"), carried(100 * (second + 1)))]);
            told.extend(recorder.take_news());
        }
        let [Some(fault)] = &told[..] else { panic!("{told:?}") };
        assert!(fault.contains("history.db") && fault.contains("no such table"), "{fault}");
        db.execute_batch("ALTER TABLE hidden RENAME TO pieces").unwrap();
        assert_eq!(links(&mut recorder, 0, NOON + 40)[0].1, 4000);
        assert_eq!(recorder.take_news(), Some(None), "and that it is over is told, too");
        assert_eq!(recorder.take_news(), None);
    }

    #[test]
    fn a_file_of_the_layout_before_is_kept_and_has_room_for_fused_bytes() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        recorder.record(NOON, vec![(link("a0"), carried(100))]);
        recorder.write(NOON);
        drop(recorder);
        let db = Connection::open(folder.path().join(FILE)).unwrap();
        let before =
            "DROP TABLE spans; ALTER TABLE pieces DROP COLUMN rfused; ALTER TABLE pieces DROP COLUMN ofused;";
        db.execute_batch(&format!("{before} PRAGMA user_version = 1;")).unwrap();
        drop(db);
        let mut recorder = open(&folder);
        let fused = Traffic { rfused: 7, ofused: 1 << 40, ..carried(0) };
        recorder.record(NOON + 1, vec![(link("a0"), fused)]);
        let usages = recorder.usage(&asked(UsageOf::Links, 0), NOON + 1).unwrap();
        let kept = usages[0].traffic;
        assert_eq!((kept.rbytes, kept.rfused, kept.ofused), (100, 7, 1 << 40));
    }

    #[test]
    fn an_idle_host_writes_nothing() {
        let folder = Scratch::new();
        let mut recorder = open(&folder);
        recorder.record(NOON, vec![(link("a0"), carried(100))]);
        recorder.write(NOON);
        for second in 1..100 {
            recorder.record(NOON + second, vec![(link("a0"), carried(100))]);
            assert_eq!(recorder.due, None);
        }
    }
}
