//! Records of what links and flows carried, added to a file of the operator's (`acctadm`).
//!
//! Called by `mod.rs`' thread once a second, with what the history reads anyway. A record is a line in JSON; what carried nothing has
//! none, so that an idle host writes nothing. The file is opened for the records of a moment and let go: whoever rotates logs may move
//! it at any time, and what comes then goes to a new one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use firelane_api::{ApiError, NetRecord, NetRecords, RECORD_SECONDS, Status, Traffic, UsageOf};
use firelane_model::Accounting;
use rustix::fs::OFlags;

use super::{Parting, Subject, Totals};
use crate::folder;
use crate::text::plain;

/// As much of a file as is looked at to see whose it is, and where its last record ends: longer than any record.
const LINE_MAX: u64 = 4096;

/// No disk hangs for so long: either the clock was set forward, or the machine slept, which carries nothing.
const LEAP_SECONDS: u64 = 3600;

/// What every record begins with.
const BEGINNING: &str = "{\"curtime\":";

/// The writer of records.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// What is followed.
    wanted: Accounting,
    /// The counters at the last record, or when accounting began.
    last: BTreeMap<Subject, Traffic>,
    /// Those of the last second, for who is deleted between two records.
    latest: BTreeMap<Subject, Traffic>,
    /// What was carried since the last record by who was deleted since.
    gone: BTreeMap<Subject, Traffic>,
    /// Up to when there are records.
    since: u64,
    /// When it was last asked.
    asked: u64,
    /// What the last change lost. It stands until the next one, and until who made a change was told.
    lost: Option<Fault>,
    /// Whether that one was.
    is_told: bool,
}

/// Why records are not in their file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    path: String,
    why: String,
    /// Of how many seconds there will never be any; without it they wait.
    lost: Option<u64>,
}

impl Fault {
    fn of(path: &str, error: &impl fmt::Display) -> Self {
        Self { path: path.to_owned(), why: plain(error), lost: None }
    }

    /// With what was lost before it.
    fn with(self, before: Option<Self>) -> Self {
        let more = before.and_then(|it| it.lost).unwrap_or_default();
        Self { lost: self.lost.map(|seconds| seconds.saturating_add(more)), ..self }
    }

    /// What is told who has asked for the change by which records are lost. Of those that wait, status tells.
    pub(crate) fn of_change(&self) -> Option<ApiError> {
        let seconds = self.lost?;
        let allowed =
            format!("{}; it is changed all the same, and records of {seconds} seconds are lost", self.why);
        Some(ApiError::new(Status::Io, "file", &self.path, allowed))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; ", self.path, self.why)?;
        match self.lost {
            None => f.write_str("records wait"),
            Some(seconds) => write!(f, "records of {seconds} seconds are lost"),
        }
    }
}

impl Writer {
    /// Follows `wanted`: writes what came by the end of the second `now` if it is time. Gives what is wrong with the file, or what the last
    /// change lost.
    pub(crate) fn follow(&mut self, wanted: &Accounting, now: u64, totals: &Totals) -> Result<(), Fault> {
        self.note_gone(totals);
        // A clock that is set back, or forward, moves the beginning with it.
        if now < self.asked || self.asked > 0 && now > self.asked + LEAP_SECONDS {
            self.since = now.saturating_sub(self.asked.saturating_sub(self.since));
        }
        self.asked = now;
        let written = if *wanted != self.wanted {
            self.turn(wanted, now, totals)
        } else if now.saturating_sub(self.since) >= RECORD_SECONDS {
            self.write(now, totals)
        } else {
            Ok(())
        };
        written.and(self.lost.clone().map_or(Ok(()), Err))
    }

    /// Tells who has changed what is wanted what was lost by it, if nobody was told; `tell` says whether that one has heard.
    pub(crate) fn tell(&mut self, tell: impl FnOnce(Option<&Fault>) -> bool) {
        // The second's tick may have followed a change before the one who made it asks.
        let untold = self.lost.as_ref().filter(|_| !self.is_told);
        self.is_told |= tell(untold) && untold.is_some();
    }

    /// Writes what came for what was wanted, and follows `wanted` from here on. What cannot be written goes on waiting if anything is
    /// written any more.
    fn turn(&mut self, wanted: &Accounting, now: u64, totals: &Totals) -> Result<(), Fault> {
        let ended = self.end(now, totals);
        let untold = self.lost.take().filter(|_| !self.is_told);
        self.is_told = false;
        let before = std::mem::replace(&mut self.wanted, wanted.clone()).net;
        if ended.is_ok() || wanted.writes_to().is_none() {
            let last: BTreeMap<_, _> = totals.iter().cloned().collect();
            // Of two changes that nobody was told of, the seconds of both are lost.
            let lost = match ended.err() {
                Some(fault) => Some(fault.with(untold)),
                None => untold,
            };
            *self = Self {
                lost,
                wanted: wanted.clone(),
                latest: last.clone(),
                last,
                since: now,
                asked: now,
                ..Self::default()
            };
            return Ok(());
        }
        self.lost = untold;
        if !before.is_of_flows() {
            let flows = totals.iter().filter(|(subject, _)| subject.of == UsageOf::Flows);
            self.last.extend(flows.cloned());
        }
        self.write(now, totals)
    }

    /// Keeps what those carried that were there a second ago.
    fn note_gone(&mut self, totals: &Totals) {
        if self.wanted.writes_to().is_none() {
            return;
        }
        let latest = totals.iter().cloned().collect();
        let mut before = std::mem::replace(&mut self.latest, latest);
        before.retain(|subject, _| !self.latest.contains_key(subject));
        for (subject, total) in before {
            let came = total.since(self.last.remove(&subject).unwrap_or_default());
            self.keep(subject, came);
        }
    }

    /// Until a record is written, as long as that may take.
    fn keep(&mut self, subject: Subject, came: Traffic) {
        if came != Traffic::default() && self.is_tracked(subject.of) {
            let kept = self.gone.entry(subject).or_default();
            *kept = kept.and(came);
        }
    }

    fn is_tracked(&self, of: UsageOf) -> bool {
        of == UsageOf::Links || self.wanted.net.is_of_flows()
    }

    /// Keeps what one had carried that has ended; who goes on under another name does so where it was.
    pub(crate) fn part(&mut self, Parting { subject, total, heir }: &Parting) {
        if self.wanted.writes_to().is_none() {
            return;
        }
        self.latest.remove(subject);
        let came = total.since(self.last.remove(subject).unwrap_or_default());
        self.keep(subject.clone(), came);
        if let Some(heir) = heir {
            self.last.insert(heir.clone(), *total);
        }
    }

    /// The host ends, or what is wanted: what came since the last record is written now or never.
    pub(crate) fn end(&mut self, now: u64, totals: &Totals) -> Result<(), Fault> {
        let seconds = self.seconds(now);
        self.write(now, totals).map_err(|fault| Fault { lost: Some(seconds), ..fault })
    }

    /// Since the last record. What came within one second was carried in it.
    fn seconds(&self, now: u64) -> u64 {
        now.saturating_sub(self.since).max(1)
    }

    /// Writes what came since the last record, if anybody asks for it.
    fn write(&mut self, now: u64, totals: &Totals) -> Result<(), Fault> {
        let Some(path) = self.wanted.writes_to() else { return Ok(()) };
        let seconds = self.seconds(now);
        let mut lines = String::new();
        let present = totals.iter().map(|(subject, total)| {
            (subject, total.since(self.last.get(subject).copied().unwrap_or_default()))
        });
        let all = present.chain(self.gone.iter().map(|(subject, came)| (subject, *came)));
        for (subject, came) in all.filter(|(subject, _)| self.is_tracked(subject.of)) {
            if came == Traffic::default() {
                continue;
            }
            let Subject { of, name, link } = subject;
            let record = NetRecord::new(*of, name, link, now, seconds, came);
            lines += &record.line(self.wanted.net).map_err(|error| Fault::of(path, &error))?;
            lines.push('\n');
        }
        if !lines.is_empty() {
            open(path)
                .and_then(|file| add(&file, lines.as_bytes()))
                .map_err(|error| Fault::of(path, &error))?;
        }
        (self.last, self.since) = (totals.iter().cloned().collect(), now);
        self.gone.clear();
        Ok(())
    }
}

/// Why what is not an ordinary file is refused.
const NOT_REGULAR: &str =
    "is no regular file; one is allowed, and no symbolic link, folder, pipe, socket or device";

/// The path may lie in a folder of somebody else's, who is not root: what a symbolic link there names is not written to, a pipe that nobody
/// reads does not hang the thread, and a terminal becomes nobody's.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    options.read(true).append(true).custom_flags(flags.bits().cast_signed());
    options
}

/// What a path that could not be opened is, where the system's error says that.
fn said(error: &std::io::Error) -> Option<&'static str> {
    let errors = [rustix::io::Errno::LOOP, rustix::io::Errno::ISDIR, rustix::io::Errno::NXIO];
    errors.iter().any(|it| error.raw_os_error() == Some(it.raw_os_error())).then_some(NOT_REGULAR)
}

/// What has taken the place of the operator's file may be anything.
fn open(path: &str) -> std::io::Result<File> {
    let file = options()
        .create(true)
        .open(path)
        .map_err(|error| said(&error).map_or(error, std::io::Error::other))?;
    if let Some(why) = unfit(&file)? {
        return Err(std::io::Error::other(why));
    }
    cut_what_is_torn(&file)?;
    Ok(file)
}

/// Adds lines, all of them or none: they wait, and would be there twice.
fn add(mut file: &File, lines: &[u8]) -> std::io::Result<()> {
    let len = file.metadata()?.len();
    file.write_all(lines).inspect_err(|_| _ = file.set_len(len))
}

/// Whoever wrote there last may have ended in the middle of a line. A line behind it would be no record, nor would what follows.
fn cut_what_is_torn(mut file: &File) -> std::io::Result<()> {
    let len = file.metadata()?.len();
    let from = len.saturating_sub(LINE_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut last = Vec::new();
    file.take(LINE_MAX).read_to_end(&mut last)?;
    let torn = last.iter().rev().take_while(|&&byte| byte != b'\n').count() as u64;
    if torn == 0 || torn == LINE_MAX { Ok(()) } else { file.set_len(len - torn) }
}

/// What becomes of a file that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Absent {
    /// It is made.
    IsMade,
    /// Its folder is there, and nothing else is done.
    IsNotMade,
}

/// Whether records may be added to the file that is wanted: it is new, empty, or has some.
pub(crate) fn check(wanted: &Accounting, absent: Absent) -> Result<(), ApiError> {
    let Some(path) = wanted.begins_with() else { return Ok(()) };
    let refused = |status, why: String| ApiError::new(status, "file", path, why);
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied => refused(Status::Denied, String::new()),
        _ => refused(Status::Io, plain(&error)),
    };
    let file = match options().create(absent == Absent::IsMade).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && absent == Absent::IsNotMade => {
            return Path::new(path).parent().map_or(Ok(()), folder::may_have_more).map_err(failed);
        }
        opened => opened.map_err(|error| match said(&error) {
            Some(why) => refused(Status::BadArg, why.to_owned()),
            None => failed(error),
        })?,
    };
    match unfit(&file).map_err(failed)? {
        None => Ok(()),
        Some(why) => Err(refused(Status::BadArg, why.to_owned())),
    }
}

/// Why no records may be added to this file, if so.
fn unfit(mut file: &File) -> std::io::Result<Option<&'static str>> {
    if !file.metadata()?.is_file() {
        return Ok(Some(NOT_REGULAR));
    }
    file.seek(SeekFrom::Start(0))?;
    let mut first = Vec::new();
    file.take(LINE_MAX).read_to_end(&mut first)?;
    let text = String::from_utf8_lossy(&first);
    let line = text.split_inclusive('\n').next().unwrap_or_default();
    // Nothing but the first record, torn.
    let is_torn = line == text && (line.starts_with(BEGINNING) || BEGINNING.starts_with(line));
    let is_of_records = is_torn || NetRecords::read(line).is_ok();
    Ok((!is_of_records).then_some("it has something else than records of links and flows"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use firelane_api::UsageRequest;
    use firelane_model::Tracked;

    fn totals(rbytes: u64) -> Totals {
        let traffic = Traffic { rbytes, ..Traffic::default() };
        let link = Subject { of: UsageOf::Links, name: "web0".into(), link: String::new() };
        let flow = Subject { of: UsageOf::Flows, name: "http".into(), link: "web0".into() };
        vec![(link, traffic), (flow, traffic)]
    }

    fn wanted(folder: &Scratch, net: Tracked, active: bool) -> Accounting {
        let file = folder.path().join("net.log").to_str().expect("a plain path").to_owned();
        Accounting { active, file: Some(file), net }
    }

    fn carried(folder: &Scratch, of: UsageOf) -> Vec<(u64, u64)> {
        let text = std::fs::read_to_string(folder.path().join("net.log")).unwrap_or_default();
        let records = NetRecords::read(&text).expect("they are records");
        let usages = records.usage(&UsageRequest::new(of));
        usages.iter().map(|it| (it.seconds, it.traffic.rbytes)).collect()
    }

    #[test]
    fn what_came_while_it_was_active_is_written_every_twenty_seconds_and_at_the_end() {
        let folder = Scratch::new();
        let mut writer = Writer::default();
        let active = wanted(&folder, Tracked::EXTENDED, true);
        assert_eq!(writer.follow(&Accounting::default(), 100, &totals(500)), Ok(()));
        for second in 101..150 {
            assert_eq!(writer.follow(&active, second, &totals(500 + second)), Ok(()));
        }
        assert_eq!(carried(&folder, UsageOf::Links), [(40, 40)], "from 101 to 141");
        assert_eq!(carried(&folder, UsageOf::Flows), [(40, 40)]);
        let basic = wanted(&folder, Tracked::BASIC, true);
        assert_eq!(writer.follow(&basic, 150, &totals(700)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(49, 99)], "what was left");
        for second in 151..200 {
            assert_eq!(writer.follow(&basic, second, &totals(1000)), Ok(()));
        }
        assert_eq!(
            (carried(&folder, UsageOf::Links), carried(&folder, UsageOf::Flows)),
            (vec![(69, 399)], vec![(49, 99)])
        );
        assert_eq!(writer.end(200, &totals(1100)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(99, 499)], "also of the time without a record");
        let off = wanted(&folder, Tracked::BASIC, false);
        assert_eq!(writer.follow(&off, 201, &totals(1100)), Ok(()));
        assert_eq!(writer.follow(&off, 300, &totals(9000)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(99, 499)], "nobody asks for it any more");
    }

    #[test]
    fn records_have_the_items_that_are_tracked_at_their_time() {
        let folder = Scratch::new();
        let mut writer = Writer::default();
        let only = wanted(&folder, Tracked::NONE.with(Tracked::item("obytes").unwrap()), true);
        assert_eq!(writer.follow(&only, 100, &totals(0)), Ok(()));
        assert_eq!(writer.follow(&only, 120, &totals(5)), Ok(()));
        let text = std::fs::read_to_string(folder.path().join("net.log")).unwrap();
        assert_eq!(
            text,
            "{\"curtime\":120,\"name\":\"web0\",\"net\":\"link\",\"obytes\":0,\"seconds\":20}\n"
        );
        assert_eq!(carried(&folder, UsageOf::Links), [(20, 0)], "it is read, and knows no more");
    }

    #[test]
    fn what_was_deleted_between_two_records_is_in_the_next_one() {
        let folder = Scratch::new();
        let mut writer = Writer::default();
        let active = wanted(&folder, Tracked::BASIC, true);
        assert_eq!(writer.follow(&active, 100, &totals(0)), Ok(()));
        assert_eq!(writer.follow(&active, 101, &totals(30)), Ok(()));
        assert_eq!(writer.follow(&active, 102, &Totals::new()), Ok(()));
        // One of the same name begins anew.
        assert_eq!(writer.follow(&active, 103, &totals(4)), Ok(()));
        assert_eq!(writer.follow(&active, 120, &totals(4)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links).iter().map(|it| it.1).sum::<u64>(), 34);
        assert_eq!(writer.follow(&active, 140, &totals(4)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links).iter().map(|it| it.1).sum::<u64>(), 34);
    }

    #[test]
    fn what_waits_for_a_file_is_one_entry_for_each_name() {
        let folder = Scratch::new();
        let mut active = wanted(&folder, Tracked::BASIC, true);
        active.file = Some(folder.path().join("no/net.log").to_str().unwrap().into());
        let mut writer = Writer::default();
        assert_eq!(writer.follow(&active, 100, &Totals::new()), Ok(()));
        for life in 0..20 {
            let now = 101 + 2 * life;
            let _ =
                (writer.follow(&active, now, &totals(5)), writer.follow(&active, now + 1, &Totals::new()));
        }
        assert_eq!(writer.gone.values().map(|it| it.rbytes).collect::<Vec<_>>(), [100], "{:?}", writer.gone);
    }

    #[test]
    fn a_clock_that_is_set_forward_makes_no_record_longer() {
        let folder = Scratch::new();
        let mut writer = Writer::default();
        let active = wanted(&folder, Tracked::BASIC, true);
        for (nth, second) in (1000..1010).chain(1_795_348_800..1_795_348_812).enumerate() {
            assert_eq!(writer.follow(&active, second, &totals(nth as u64)), Ok(()));
        }
        assert_eq!(carried(&folder, UsageOf::Links), [(20, 21)]);
    }

    #[test]
    fn a_clock_that_is_set_back_delays_no_record() {
        let folder = Scratch::new();
        let mut writer = Writer::default();
        let active = wanted(&folder, Tracked::BASIC, true);
        for (nth, second) in (5000..5010).chain(1400..1412).enumerate() {
            assert_eq!(writer.follow(&active, second, &totals(nth as u64)), Ok(()));
        }
        assert_eq!(carried(&folder, UsageOf::Links), [(20, 21)]);
    }

    /// One that has followed since this second, and has written its first record.
    fn with_a_record(active: &Accounting, since: u64) -> Writer {
        let mut writer = Writer::default();
        for second in [since, since + 20] {
            assert_eq!(writer.follow(active, second, &totals(second)), Ok(()));
        }
        writer
    }

    #[test]
    fn a_record_that_is_torn_is_cut_off_before_the_next_one() {
        let folder = Scratch::new();
        let active = wanted(&folder, Tracked::BASIC, true);
        let path = folder.path().join("net.log");
        with_a_record(&active, 100);
        let whole = std::fs::read_to_string(&path).unwrap();
        for torn in ["{", "{\"curti", "{\"curtime\":1", "{\"curtime\":120,\"name\":\"web0\"}"] {
            for before in ["", &whole] {
                std::fs::write(&path, before.to_owned() + torn).unwrap();
                assert_eq!(check(&active, Absent::IsMade), Ok(()), "{torn} behind {before}");
                with_a_record(&active, 200);
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(text.starts_with(&(before.to_owned() + "{\"curtime\":220,")), "{text}");
                assert_eq!(NetRecords::read(&text).map(|_| text.ends_with('\n')), Ok(true), "{text}");
            }
        }
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_one_that_cannot_be_written_is_told_of() {
        let folder = Scratch::new();
        let active = wanted(&folder, Tracked::BASIC, true);
        assert_eq!(check(&active, Absent::IsNotMade), Ok(()), "its folder is there");
        assert!(!folder.path().join("net.log").exists());
        assert_eq!(check(&active, Absent::IsMade), Ok(()), "it is new");
        std::fs::write(folder.path().join("net.log"), "127.0.0.1 localhost\n").unwrap();
        assert_eq!(check(&active, Absent::IsMade).unwrap_err().status, Status::BadArg);
        let untracked = wanted(&folder, Tracked::NONE, true);
        assert_eq!(
            check(&untracked, Absent::IsNotMade).unwrap_err().status,
            Status::BadArg,
            "records may begin at any time"
        );
        assert_eq!(
            check(&Accounting { active: false, ..untracked }, Absent::IsMade),
            Ok(()),
            "nobody writes to it"
        );
        let nowhere =
            Accounting { file: Some(folder.path().join("no/net.log").to_str().unwrap().into()), ..active };
        for absent in [Absent::IsMade, Absent::IsNotMade] {
            assert_eq!(check(&nowhere, absent).unwrap_err().status, Status::Io);
        }
        let mut writer = Writer::default();
        assert_eq!(writer.follow(&nowhere, 100, &totals(0)), Ok(()));
        assert!(writer.follow(&nowhere, 120, &totals(5)).unwrap_err().to_string().contains("records wait"));
        std::fs::create_dir(folder.path().join("no")).unwrap();
        assert_eq!(writer.follow(&nowhere, 121, &totals(7)), Ok(()));
        let text = std::fs::read_to_string(folder.path().join("no/net.log")).unwrap();
        assert!(text.contains("\"ibytes\":7") && text.contains("\"seconds\":21"), "{text}");
    }

    /// Accounting that waits for the file `no/net.log`, whose folder is not there: since 100, with 5 bytes.
    fn waiting(folder: &Scratch, net: Tracked) -> Writer {
        let nowhere = Accounting { file: Some(path_in(folder, "no/net.log")), ..wanted(folder, net, true) };
        let mut writer = Writer::default();
        assert_eq!(writer.follow(&nowhere, 100, &totals(0)), Ok(()));
        let fault = writer.follow(&nowhere, 120, &totals(5)).unwrap_err().to_string();
        assert!(fault.contains("no/net.log") && fault.ends_with("records wait"), "{fault}");
        writer
    }

    fn path_in(folder: &Scratch, name: &str) -> String {
        folder.path().join(name).to_str().expect("a plain path").to_owned()
    }

    #[test]
    fn what_waits_goes_where_accounting_goes_on() {
        let folder = Scratch::new();
        let mut writer = waiting(&folder, Tracked::EXTENDED);
        let elsewhere = wanted(&folder, Tracked::EXTENDED, true);
        assert_eq!(writer.follow(&elsewhere, 130, &totals(7)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(30, 7)]);
        assert_eq!(writer.follow(&elsewhere, 150, &totals(8)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(50, 8)]);
        assert_eq!(carried(&folder, UsageOf::Flows), [(50, 8)]);
    }

    #[test]
    fn what_waits_waits_on_when_other_items_are_tracked() {
        let folder = Scratch::new();
        let mut writer = waiting(&folder, Tracked::BASIC);
        let more = Accounting { net: Tracked::EXTENDED, ..writer.wanted.clone() };
        assert!(writer.follow(&more, 130, &totals(7)).unwrap_err().to_string().ends_with("records wait"));
        std::fs::create_dir(folder.path().join("no")).unwrap();
        assert_eq!(writer.follow(&more, 131, &totals(9)), Ok(()));
        let text = std::fs::read_to_string(folder.path().join("no/net.log")).unwrap();
        let records = NetRecords::read(&text).unwrap();
        let carried = [UsageOf::Links, UsageOf::Flows]
            .map(|of| records.usage(&UsageRequest::new(of)).iter().map(|it| it.traffic.rbytes).sum::<u64>());
        assert_eq!(carried, [9, 2], "flows were not tracked before: {text}");
    }

    #[test]
    fn what_waits_and_is_never_written_is_told() {
        for ends in ["accounting", "tracking", "daemon"] {
            let folder = Scratch::new();
            let mut writer = waiting(&folder, Tracked::BASIC);
            let ended = match ends {
                "accounting" => writer.follow(&Accounting::default(), 130, &totals(7)),
                "tracking" => writer.follow(
                    &Accounting { net: Tracked::NONE, ..writer.wanted.clone() },
                    130,
                    &totals(7),
                ),
                _ => writer.end(130, &totals(7)),
            };
            let fault = ended.unwrap_err().to_string();
            assert!(
                fault.contains("no/net.log: ") && fault.ends_with("; records of 30 seconds are lost"),
                "{ends}: {fault}"
            );
            if ends == "accounting" {
                let again = writer.follow(&Accounting::default(), 131, &totals(7)).unwrap_err();
                assert_eq!(again.to_string(), fault, "status shows it on");
            }
        }
    }

    /// What an asker is told who hears it, or has gone.
    fn told(writer: &mut Writer, hears: bool) -> Option<String> {
        let mut told = None;
        writer.tell(|fault| {
            told = fault.and_then(Fault::of_change).map(|error| error.allowed);
            hears
        });
        told
    }

    #[test]
    fn what_the_second_s_tick_loses_is_told_who_asks_after_it_once() {
        let (folder, off) = (Scratch::new(), Accounting::default());
        let mut writer = waiting(&folder, Tracked::BASIC);
        assert_eq!(told(&mut writer, true), None, "it waits");
        // The tick is faster than who has ended it.
        let lost = writer.follow(&off, 130, &totals(7)).unwrap_err();
        assert_eq!(writer.follow(&off, 130, &totals(7)), Err(lost.clone()));
        for hears in [false, true] {
            let told = told(&mut writer, hears).expect("nobody has heard of it");
            assert!(told.ends_with("records of 30 seconds are lost"), "{told}");
        }
        assert_eq!(told(&mut writer, true), None);
        assert_eq!(writer.follow(&off, 140, &totals(7)), Err(lost), "status shows it on");
        let active = wanted(&folder, Tracked::BASIC, true);
        assert_eq!(writer.follow(&active, 141, &totals(7)), Ok(()), "it is of the change before");
    }

    #[test]
    fn what_nobody_was_told_of_outlasts_the_next_change() {
        let folder = Scratch::new();
        let mut writer = waiting(&folder, Tracked::BASIC);
        let nowhere = writer.wanted.clone();
        assert!(writer.follow(&Accounting::default(), 130, &totals(7)).is_err());
        assert!(writer.follow(&nowhere, 131, &totals(7)).is_err(), "it is still untold");
        assert!(writer.follow(&nowhere, 151, &totals(9)).is_err());
        assert!(writer.follow(&Accounting::default(), 161, &totals(9)).is_err());
        let told = told(&mut writer, true).expect("nobody has heard of it");
        assert!(told.ends_with("records of 60 seconds are lost"), "{told}");
    }

    #[test]
    fn what_is_no_regular_file_is_neither_followed_nor_waited_for() {
        let folder = Scratch::new();
        let active = wanted(&folder, Tracked::BASIC, true);
        let path = folder.path().join("net.log");
        let target = folder.path().join("target");
        let pipe = |path: &Path| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        };
        let makes: [(&str, &dyn Fn()); 5] = [
            ("link to nothing", &|| std::os::unix::fs::symlink(&target, &path).expect("a link")),
            ("link", &|| {
                std::fs::write(&target, "").expect("a file");
                std::os::unix::fs::symlink(&target, &path).expect("a link");
            }),
            ("pipe", &|| pipe(&path)),
            ("socket", &|| drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"))),
            ("folder", &|| std::fs::create_dir(&path).expect("a folder")),
        ];
        for (what, make) in makes {
            let mut writer = Writer::default();
            assert_eq!(writer.follow(&active, 100, &totals(0)), Ok(()));
            make();
            for absent in [Absent::IsMade, Absent::IsNotMade] {
                let error = check(&active, absent).unwrap_err();
                assert_eq!(error.status, Status::BadArg, "{what}");
                assert_eq!((error.field.as_str(), error.value.as_str()), ("file", path.to_str().unwrap()));
                assert_eq!(error.allowed, NOT_REGULAR, "{what}");
            }
            let fault = writer.follow(&active, 120, &totals(5)).unwrap_err().to_string();
            assert!(fault.contains(NOT_REGULAR) && fault.ends_with("records wait"), "{what}: {fault}");
            assert_eq!(std::fs::read(&target).unwrap_or_default(), b"", "{what}");
            assert_eq!(target.exists(), what == "link", "{what}");
            match what {
                "folder" => std::fs::remove_dir(&path).expect("it is there"),
                _ => std::fs::remove_file(&path).expect("it is there"),
            }
            let _ = std::fs::remove_file(&target);
            assert_eq!(writer.follow(&active, 121, &totals(5)), Ok(()));
            assert_eq!(carried(&folder, UsageOf::Links), [(21, 5)], "{what}");
            std::fs::remove_file(&path).expect("it was made");
        }
    }

    #[test]
    fn a_file_that_is_moved_away_or_deleted_is_made_anew() {
        let folder = Scratch::new();
        let active = wanted(&folder, Tracked::BASIC, true);
        let path = folder.path().join("net.log");
        let mut writer = with_a_record(&active, 100);
        std::fs::rename(&path, folder.path().join("net.log.1")).unwrap();
        assert_eq!(writer.follow(&active, 140, &totals(150)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(20, 30)], "what came since");
        std::fs::rename(folder.path().join("net.log.1"), &path).unwrap();
        assert_eq!(carried(&folder, UsageOf::Links), [(20, 20)], "what was before");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(writer.follow(&active, 160, &totals(151)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(20, 1)]);
        // Somebody else's file has taken its name.
        std::fs::write(&path, "127.0.0.1 localhost").unwrap();
        let fault = writer.follow(&active, 180, &totals(152)).unwrap_err().to_string();
        assert!(fault.contains("something else") && fault.ends_with("records wait"), "{fault}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "127.0.0.1 localhost");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(writer.follow(&active, 181, &totals(152)), Ok(()));
        assert_eq!(carried(&folder, UsageOf::Links), [(21, 1)]);
    }
}
