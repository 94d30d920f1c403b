//! The file of the history: a table of subjects, one of when they were there before, and one of what they carried in each second,
//! minute and hour.
//!
//! Owned by `recorder.rs`. Times are seconds since 1970; a piece is named by its beginning. Everything that comes at
//! once is written in one transaction, so a crash loses seconds and never half of one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use firelane_api::{Traffic, Usage, UsageOf, UsageRequest, UsageSample};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::Subject;

/// The lengths of pieces in seconds, the finest first.
pub(super) const STEPS: [u64; 3] = [1, 60, 3600];

/// How long pieces of each length are kept: an hour, a week, two years.
const KEPT: [u64; 3] = [3600, 7 * 24 * 3600, 2 * 365 * 24 * 3600];

/// How many pieces of one subject are shown before coarser ones are taken.
const SHOWN_MAX: u64 = 3600;

/// How long somebody else's lock of the file is waited for: whoever asks for status meanwhile waits as well, and what was to be written
/// is kept for the next second.
const PATIENCE: Duration = Duration::from_millis(100);

/// The same when the daemon ends, and nothing is kept.
const PATIENCE_AT_END: Duration = Duration::from_secs(5);

/// How often old pieces are looked for.
const PRUNE_SECONDS: u64 = 60;

/// Who is made anew within this time has not been away: no more times are kept of anybody than there are such.
const AWAY_SECONDS: u64 = 60;

/// The layout of the file. Another number is a file that this program does not understand.
const VERSION: i64 = 3;

const LAYOUT: &str = "
    CREATE TABLE subjects (
        id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL, link TEXT NOT NULL,
        first INTEGER NOT NULL, last INTEGER NOT NULL, gone INTEGER NOT NULL,
        UNIQUE (kind, name, link));
    CREATE TABLE pieces (
        step INTEGER NOT NULL, subject INTEGER NOT NULL, time INTEGER NOT NULL,
        ipackets INTEGER NOT NULL, rbytes INTEGER NOT NULL, ierrors INTEGER NOT NULL,
        opackets INTEGER NOT NULL, obytes INTEGER NOT NULL, oerrors INTEGER NOT NULL,
        rfused INTEGER NOT NULL DEFAULT 0, ofused INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (step, subject, time)) WITHOUT ROWID;";

/// What the layout before lacked.
const SINCE_1: &str = "
    ALTER TABLE pieces ADD COLUMN rfused INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE pieces ADD COLUMN ofused INTEGER NOT NULL DEFAULT 0;";

/// And the one before it: the times of a subject before the one that it has itself, from its first second to its last. In few words: all
/// tables are told in the file's first page.
const SINCE_2: &str = "
    CREATE TABLE spans (subject, first, last, PRIMARY KEY (subject, first)) WITHOUT ROWID;
    PRAGMA user_version = 3;";

/// What is to be written at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Until when it is known of everybody that he was there, if nobody has looked for a while.
    pub(super) paused: Option<u64>,
    /// Subjects that are there anew, and since when.
    pub(super) seen: BTreeMap<Subject, u64>,
    /// Subjects that are there.
    pub(super) present: BTreeSet<Subject>,
    /// Subjects that went, and when.
    pub(super) gone: BTreeMap<Subject, u64>,
    /// What came, by subject, length and beginning.
    pub(super) pieces: BTreeMap<(Subject, u64, u64), Traffic>,
    /// The daemon ends: until when subjects were there is written, though nothing came.
    pub(super) is_last: bool,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.paused.is_none()
            && self.seen.is_empty()
            && self.gone.is_empty()
            && self.pieces.is_empty()
            && !self.is_last
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    db: Connection,
    /// When old pieces were last looked for.
    pruned: u64,
    /// Why there is none in which anything can be written.
    closed: Option<Closed>,
}

/// Why the file is not open.
#[derive(Debug)]
enum Closed {
    /// It could not be opened as yet.
    Unopened,
    /// It was damaged, and no other is begun as yet; where it is by then.
    Damaged(Option<String>),
}

impl Store {
    /// Opens the file at `path`, or makes it. One that is no history of this layout is put aside: the answer's second
    /// half is where.
    pub(super) fn open(path: &Path) -> rusqlite::Result<(Self, Option<String>)> {
        match Self::try_open(path) {
            Ok(store) => Ok((store, None)),
            Err(error) if is_foreign(&error) => {
                let aside = put_aside(path).map_err(|_| error)?;
                Ok((Self::try_open(path)?, Some(aside)))
            }
            Err(error) => Err(error),
        }
    }

    /// A file that cannot be opened now: that is tried again whenever something is to be written.
    pub(super) fn unopened(path: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open_in_memory()?;
        Ok(Self { path: path.to_owned(), db, pruned: 0, closed: Some(Closed::Unopened) })
    }

    /// Whether there is a file that can be asked.
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Begins another file after `error`, if that says that this one is damaged: a part of it may be that was not read when it was
    /// opened. Where the old one is. If that cannot be done, on a full disk, it is tried again after the next error.
    pub(super) fn begin_anew(&mut self, error: &rusqlite::Error) -> Option<String> {
        let aside = match &self.closed {
            Some(Closed::Damaged(aside)) => aside.clone(),
            _ if !is_foreign(error) => return None,
            _ => {
                // It is closed before it gets another name.
                self.db = Connection::open_in_memory().ok()?;
                self.closed = Some(Closed::Damaged(None));
                None
            }
        };
        let aside = match aside {
            Some(aside) => aside,
            None => put_aside(&self.path).ok()?,
        };
        self.closed = Some(Closed::Damaged(Some(aside.clone())));
        *self = Self::try_open(&self.path).ok()?;
        Some(aside)
    }

    fn try_open(path: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open(path)?;
        db.busy_timeout(PATIENCE)?;
        // Beside the file there is nothing but a journal while something is written, so little that a small disk does.
        // A crash of the machine may lose the last transactions.
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.pragma_update(None, "page_size", 1024)?;
        match db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? {
            0 => db.execute_batch(&format!("BEGIN;{LAYOUT}{SINCE_2}COMMIT;"))?,
            1 => db.execute_batch(&format!("BEGIN;{SINCE_1}{SINCE_2}COMMIT;"))?,
            2 => db.execute_batch(&format!("BEGIN;{SINCE_2}COMMIT;"))?,
            VERSION => {}
            _ => return Err(rusqlite::Error::InvalidQuery),
        }
        // Who was there when the last daemon ended is there again, or went meanwhile: the first writing says which.
        Ok(Self { path: path.to_owned(), db, pruned: 0, closed: None })
    }

    /// What is written from here on is lost if it cannot be.
    pub(super) fn end(&self) -> rusqlite::Result<()> {
        self.db.busy_timeout(PATIENCE_AT_END)
    }

    /// Tests need not wait for a disk.
    #[cfg(test)]
    pub(super) fn do_not_sync(&self) {
        self.db.pragma_update(None, "synchronous", "OFF").expect("the file is open");
    }

    /// What a question is answered with.
    #[cfg(test)]
    pub(super) fn count(&self, question: &str) -> i64 {
        self.db.query_row(question, [], |row| row.get(0)).expect("there is one number")
    }

    /// Writes a batch, and at times drops what is too old.
    pub(super) fn write(&mut self, batch: &Batch, now: u64) -> rusqlite::Result<()> {
        if let Some(Closed::Unopened) = self.closed {
            *self = Self::try_open(&self.path)?;
        }
        let is_first = self.pruned == 0;
        if batch.is_empty() && !is_first {
            return Ok(());
        }
        // A clock may have been set back.
        let prunes = now >= self.pruned + PRUNE_SECONDS || now < self.pruned;
        let transaction = self.db.transaction()?;
        if let Some(until) = batch.paused {
            transaction.execute(
                "UPDATE subjects SET gone = 1, last = max(last, ?1) WHERE gone = 0",
                [signed(until)],
            )?;
        }
        for (subject, since) in &batch.seen {
            see(&transaction, subject, *since)?;
        }
        for ((subject, step, time), traffic) in &batch.pieces {
            add(&transaction, (subject, *step, *time), traffic)?;
        }
        for (subject, when) in batch.gone.iter().filter(|(subject, _)| !batch.present.contains(subject)) {
            let kind = kind(subject.of);
            transaction
                .prepare_cached(
                    "UPDATE subjects SET gone = 1, last = ?1 WHERE kind = ?2 AND name = ?3 AND link = ?4",
                )?
                .execute(params![signed(*when), kind, subject.name, subject.link])?;
        }
        if is_first {
            bury(&transaction, &batch.present)?;
        }
        // Who is temporary goes with the daemon, and the next one knows no more of it than this. After a crash its pieces say.
        if batch.is_last {
            transaction
                .execute("UPDATE subjects SET last = ?1 WHERE gone = 0 AND last < ?1", [signed(now)])?;
        }
        if prunes {
            prune(&transaction, now)?;
        }
        transaction.commit()?;
        if prunes {
            self.pruned = now.max(1);
        }
        Ok(())
    }

    /// What every subject carried in the time of the request, by name.
    pub(super) fn usage(&self, request: &UsageRequest, now: u64) -> rusqlite::Result<Vec<Usage>> {
        let until = request.until.unwrap_or(u64::MAX).min(now + 1);
        let mut subjects = self.db.prepare_cached(
            "SELECT id, name, link, first, last, gone FROM subjects WHERE kind = ?1 ORDER BY name, link",
        )?;
        let mut sums = self.db.prepare_cached(
            "SELECT total(ipackets), total(rbytes), total(ierrors), total(opackets), total(obytes), total(oerrors),
                    total(rfused), total(ofused)
             FROM pieces WHERE step = ?1 AND subject = ?2 AND time >= ?3 AND time < ?4",
        )?;
        let mut usages = Vec::new();
        let mut rows = subjects.query([kind(request.of)])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let gone: bool = row.get(5)?;
            if gone && !request.all {
                continue;
            }
            let mut spans = self.spans(id)?;
            spans.push((unsigned(row, 3)?, if gone { unsigned(row, 4)? } else { now }));
            let first = spans.iter().map(|span| span.0).min().unwrap_or(0);
            let last = spans.iter().map(|span| span.1).max().unwrap_or(0);
            let (begin, end) = (first.max(request.from), (last + 1).min(until));
            if begin >= end {
                continue;
            }
            // There is nothing of the time before it was there.
            let parts = parts(request.from, end, now);
            let mut traffic = Traffic::default();
            for &Part { step, from, until } in &parts {
                let sum = sums.query_row(params![signed(step), id, signed(from), signed(until)], |row| {
                    self::traffic(|index| row.get::<_, f64>(index).map(|it| it as u64))
                })?;
                traffic = traffic.and(sum);
            }
            // As long as what was summed, of which an edge may be kept in long pieces alone.
            let begin = parts.first().map_or(begin, |part| part.from);
            let end = parts.last().map_or(end, |part| part.until);
            let within = |(first, last): &(u64, u64)| (last + 1).min(end).saturating_sub(begin.max(*first));
            let seconds: u64 = spans.iter().map(within).sum();
            if seconds == 0 && traffic.is_nothing() {
                continue;
            }
            if traffic.is_nothing() && !request.all {
                continue;
            }
            let days = if request.days { self.days(id, request.from, until)? } else { Vec::new() };
            let (name, link) = (row.get(1)?, row.get(2)?);
            usages.push(Usage { name, link, deleted: gone, seconds, traffic, days });
        }
        Ok(usages)
    }

    /// When a subject was there before.
    fn spans(&self, id: i64) -> rusqlite::Result<Vec<(u64, u64)>> {
        let mut spans = self.db.prepare_cached("SELECT first, last FROM spans WHERE subject = ?1")?;
        spans.query_map([id], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))?.collect()
    }

    fn days(&self, id: i64, from: u64, until: u64) -> rusqlite::Result<Vec<u64>> {
        let mut days = self.db.prepare_cached(
            "SELECT DISTINCT time / 86400 FROM pieces
             WHERE step = 3600 AND subject = ?1 AND time >= ?2 AND time < ?3 ORDER BY 1",
        )?;
        let rows =
            days.query_map(params![id, signed(from - from % 3600), signed(until)], |row| unsigned(row, 0))?;
        rows.collect()
    }

    /// What the subject `name` carried, piece by piece; `None` if there was never one. Subjects of one name one after
    /// another are one.
    pub(super) fn samples(
        &self,
        name: &str,
        request: &UsageRequest,
        now: u64,
    ) -> rusqlite::Result<Option<Vec<UsageSample>>> {
        let known = self.db.query_row(
            "SELECT min(min(subjects.first, coalesce(spans.first, subjects.first)))
             FROM subjects LEFT JOIN spans ON subject = id WHERE kind = ?1 AND name = ?2",
            params![kind(request.of), name],
            |row| row.get::<_, Option<i64>>(0),
        );
        let Some(first) = known.optional()?.flatten() else { return Ok(None) };
        let until = request.until.unwrap_or(u64::MAX).min(now + 1);
        let from = request.from.max(u64::try_from(first).unwrap_or(0));
        let step = shown_step(from, until, now);
        let mut pieces = self.db.prepare_cached(
            "SELECT sum(ipackets), sum(rbytes), sum(ierrors), sum(opackets), sum(obytes), sum(oerrors),
                    sum(rfused), sum(ofused), time
             FROM pieces JOIN subjects ON subject = id
             WHERE kind = ?1 AND name = ?2 AND step = ?3 AND time >= ?4 AND time < ?5 GROUP BY time ORDER BY time",
        )?;
        let from = signed(from - from % step);
        let rows =
            pieces.query_map(params![kind(request.of), name, signed(step), from, signed(until)], |row| {
                let traffic = traffic(|index| unsigned(row, index))?;
                Ok(UsageSample { start: unsigned(row, 8)?, seconds: step, traffic })
            })?;
        let is_shown = |it: &UsageSample| request.all || !it.traffic.is_nothing();
        let samples: rusqlite::Result<Vec<_>> = rows.collect();
        samples.map(|samples| Some(samples.into_iter().filter(is_shown).collect()))
    }
}

/// The finest pieces that still reach back to `from`.
fn finest(from: u64, now: u64) -> usize {
    KEPT.iter().position(|kept| from.saturating_add(*kept) > now).unwrap_or(STEPS.len() - 1)
}

/// Pieces of one length, from the first one's beginning to the last one's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    step: u64,
    from: u64,
    until: u64,
}

/// The pieces of which a time consists, in their order: long ones inside, shorter ones at the edges as far back as they are kept.
fn parts(begin: u64, end: u64, now: u64) -> Vec<Part> {
    let [.., longest] = STEPS;
    let mut parts: Vec<Part> = Vec::new();
    let mut at = begin;
    while at < end {
        let is_kept = |nth: &usize| at - at % STEPS[*nth] + KEPT[*nth] > now;
        let fine = (0..STEPS.len()).find(is_kept).unwrap_or(STEPS.len() - 1);
        let fits = |step: &&u64| at.is_multiple_of(**step) && at + **step <= end;
        let step = *STEPS[fine..].iter().rev().find(fits).unwrap_or(&STEPS[fine]);
        let from = at - at % step;
        // Nothing is longer: all that fit are taken at once.
        let until = if step == longest { (end - end % step).max(from + step) } else { from + step };
        match parts.last_mut() {
            Some(part) if part.step == step => part.until = until,
            _ => parts.push(Part { step, from, until }),
        }
        at = until;
    }
    parts
}

/// The length of pieces to show: fine enough to be there, coarse enough to be read.
fn shown_step(from: u64, until: u64, now: u64) -> u64 {
    let span = until.saturating_sub(from);
    let readable = STEPS.iter().position(|step| span / step <= SHOWN_MAX).unwrap_or(STEPS.len() - 1);
    STEPS[readable.max(finest(from, now))]
}

/// Gives the file another name, and tells it.
fn put_aside(path: &Path) -> std::io::Result<String> {
    let aside = path.with_extension("db.broken");
    std::fs::rename(path, &aside)?;
    // What belongs to the file that was put aside must not be taken for the new one's.
    let _ = std::fs::remove_file(path.with_extension("db-journal"));
    Ok(aside.display().to_string())
}

/// Whether somebody else has locked the file.
pub(super) fn is_locked(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Whether the file is not one of ours, or damaged.
fn is_foreign(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    let code = error.sqlite_error_code();
    matches!(error, rusqlite::Error::InvalidQuery) || matches!(code, Some(DatabaseCorrupt | NotADatabase))
}

/// Who was away for longer begins a new time, beside the one before.
fn see(transaction: &Transaction<'_>, subject: &Subject, since: u64) -> rusqlite::Result<()> {
    let (kind, away) = (kind(subject.of), signed(since.saturating_sub(AWAY_SECONDS)));
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO spans SELECT id, first, last FROM subjects
             WHERE kind = ?1 AND name = ?2 AND link = ?3 AND gone = 1 AND last < ?4",
        )?
        .execute(params![kind, subject.name, subject.link, away])?;
    transaction
        .prepare_cached(
            "INSERT INTO subjects (kind, name, link, first, last, gone) VALUES (?1, ?2, ?3, ?4, ?4, 0)
             ON CONFLICT (kind, name, link) DO UPDATE SET
                first = CASE WHEN gone = 1 AND last < ?5 THEN excluded.first ELSE min(first, excluded.first) END,
                gone = 0, last = max(last, excluded.last)",
        )?
        .execute(params![kind, subject.name, subject.link, signed(since), away])?;
    Ok(())
}

fn add(
    transaction: &Transaction<'_>,
    (subject, step, time): (&Subject, u64, u64),
    it: &Traffic,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO pieces SELECT ?1, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM subjects
             WHERE kind = ?11 AND name = ?12 AND link = ?13
             ON CONFLICT (step, subject, time) DO UPDATE SET
                ipackets = ipackets + excluded.ipackets, rbytes = rbytes + excluded.rbytes,
                ierrors = ierrors + excluded.ierrors, opackets = opackets + excluded.opackets,
                obytes = obytes + excluded.obytes, oerrors = oerrors + excluded.oerrors,
                rfused = rfused + excluded.rfused, ofused = ofused + excluded.ofused",
        )?
        .execute(params![
            signed(step),
            signed(time),
            signed(it.ipackets),
            signed(it.rbytes),
            signed(it.ierrors),
            signed(it.opackets),
            signed(it.obytes),
            signed(it.oerrors),
            signed(it.rfused),
            signed(it.ofused),
            kind(subject.of),
            subject.name,
            subject.link,
        ])?;
    Ok(())
}

/// Subjects of an earlier daemon that are not there any more went while nobody looked: at the earliest when the last piece ended, the
/// finest of which says best when that was.
fn bury(transaction: &Transaction<'_>, present: &BTreeSet<Subject>) -> rusqlite::Result<()> {
    let mut known = transaction.prepare("SELECT id, kind, name, link, last FROM subjects WHERE gone = 0")?;
    let read = |row: &Row<'_>| {
        let of = if row.get::<_, i64>(1)? == kind(UsageOf::Links) { UsageOf::Links } else { UsageOf::Flows };
        let subject = Subject { of, name: row.get(2)?, link: row.get(3)? };
        Ok((row.get::<_, i64>(0)?, subject, unsigned(row, 4)?))
    };
    let known: Vec<_> = known.query_map([], read)?.collect::<rusqlite::Result<_>>()?;
    let mut latest = transaction.prepare("SELECT max(time) FROM pieces WHERE step = ?1 AND subject = ?2")?;
    for (id, _, last) in known.iter().filter(|(_, subject, _)| !present.contains(subject)) {
        let mut end = None;
        for step in STEPS {
            let begin = latest.query_row(params![signed(step), id], |row| row.get::<_, Option<i64>>(0))?;
            end = begin.map(|begin| u64::try_from(begin).unwrap_or(0) + step - 1);
            if end.is_some() {
                break;
            }
        }
        let last = end.map_or(*last, |end| end.max(*last));
        transaction
            .execute("UPDATE subjects SET gone = 1, last = ?1 WHERE id = ?2", params![signed(last), id])?;
    }
    Ok(())
}

/// Drops what is too old, and subjects of which nothing is left.
fn prune(transaction: &Transaction<'_>, now: u64) -> rusqlite::Result<()> {
    for (step, kept) in STEPS.into_iter().zip(KEPT) {
        transaction
            .prepare_cached(
                "DELETE FROM pieces WHERE step = ?1 AND time < ?2 AND subject IN (SELECT id FROM subjects)",
            )?
            .execute(params![signed(step), signed(now.saturating_sub(kept))])?;
    }
    let oldest = signed(now.saturating_sub(KEPT[STEPS.len() - 1]));
    transaction.execute("DELETE FROM subjects WHERE gone = 1 AND last < ?1", [oldest])?;
    // How long somebody was there is of the time of which it is known what he carried.
    transaction.execute("UPDATE subjects SET first = ?1 WHERE first < ?1", [oldest])?;
    transaction
        .execute("DELETE FROM spans WHERE last < ?1 OR subject NOT IN (SELECT id FROM subjects)", [oldest])?;
    transaction.execute("UPDATE OR REPLACE spans SET first = ?1 WHERE first < ?1", [oldest])?;
    Ok(())
}

fn kind(of: UsageOf) -> i64 {
    match of {
        UsageOf::Links => 0,
        UsageOf::Flows => 1,
    }
}

/// SQLite's integers have a sign; ours never need it.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(|it| u64::try_from(it).unwrap_or(0))
}

fn traffic(at: impl Fn(usize) -> rusqlite::Result<u64>) -> rusqlite::Result<Traffic> {
    let mut counts = [0; 8];
    for (index, count) in counts.iter_mut().enumerate() {
        *count = at(index)?;
    }
    Ok(Traffic::of(counts))
}
