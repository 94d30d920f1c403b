//! What links and flows have carried: each second for an hour, each minute for a week, each hour for two years.
//!
//! A thread of its own reads the counters once a second, as `dlstat` would, and keeps what came since the second
//! before (`recorder.rs`) in a SQLite file of the state folder (`store.rs`). Who asks for history asks that file: no
//! lane and no lock of the host is touched. Called by `daemon.rs`, which starts and ends it, and by `host.rs` for
//! those who ask.

pub(crate) mod accounting;
mod recorder;
mod store;

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use firelane_api::{ApiError, Status, Traffic, Usage, UsageOf, UsageRequest, UsageSample};

use crate::calendar;
use crate::host::Host;
use accounting::{Fault, Writer};
use recorder::Recorder;
use store::Store;

/// The file's name in the state folder.
pub(crate) const FILE: &str = "history.db";

/// How long who changes accounting waits for the records that end with it: as long as a file on another host may take.
const FOLLOW_TIME: Duration = Duration::from_secs(5);

/// What is counted: a link of any class, or a flow of a link.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Subject {
    pub(crate) of: UsageOf,
    pub(crate) name: String,
    /// A flow's link; empty for links.
    pub(crate) link: String,
}

/// Who has changed what is wanted of accounting, and is told what was lost by it.
type Asker = Sender<Option<ApiError>>;

/// The history of a running host.
#[derive(Debug)]
pub(crate) struct History {
    recorder: Arc<Mutex<Recorder>>,
    /// Asks the thread to follow at once what is wanted of accounting, and to say so; without it the thread ends.
    ask: Option<Sender<Asker>>,
    thread: Option<JoinHandle<()>>,
}

impl History {
    /// Records what `host` carries in the folder `state`. A file that is none of ours is put aside, and said.
    pub(crate) fn start(state: &Path, host: &Arc<Host>) -> Result<Self, String> {
        let path = state.join(FILE);
        let named = |why: String| format!("{}: {why}: no history", path.display());
        let (store, fault) = match Store::open(&path) {
            Ok((store, put_aside)) => {
                if let Some(aside) = put_aside {
                    host.note_fault(format!("{}: unreadable, put aside as {aside}", path.display()));
                }
                (store, None)
            }
            // Accounting needs no history, and a disk that is full now is not for ever.
            Err(error) => {
                let fault = named(error.to_string()) + " before it can be opened; what comes waits in memory";
                tracing::error!("{fault}");
                host.note_history_fault(Some(fault.clone()));
                (Store::unopened(&path).map_err(|error| named(error.to_string()))?, Some(fault))
            }
        };
        let mut recorder = Recorder::new(store, fault);
        // What the configuration has made is known before anybody can ask.
        recorder.record(calendar::seconds(), host.totals().0);
        let recorder = Arc::new(Mutex::new(recorder));
        let (ask, asked) = mpsc::channel();
        let (watched, kept) = (Arc::downgrade(host), Arc::clone(&recorder));
        let mut writer = Writer::default();
        let run = move || while watch(&watched, &kept, &mut writer, &asked) {};
        let thread = std::thread::Builder::new().name("history".to_owned()).spawn(run);
        let thread = thread.map_err(|error| named(error.to_string()))?;
        Ok(Self { recorder, ask: Some(ask), thread: Some(thread) })
    }

    /// What is wanted of accounting is another now: returns when what came until then is written, or the fault is noted.
    ///
    /// # Errors
    /// It cannot be written and never will be, also if that came by a change before of which nobody was told.
    pub(crate) fn follow(&self) -> Result<(), ApiError> {
        let (done, followed) = mpsc::channel();
        if self.ask.as_ref().is_none_or(|ask| ask.send(done).is_err()) {
            return Ok(());
        }
        // Where the thread has ended, or its disk hangs, status says what is wrong.
        followed.recv_timeout(FOLLOW_TIME).ok().flatten().map_or(Ok(()), Err)
    }

    /// The recorder, if it has a file.
    fn open(&self) -> Result<MutexGuard<'_, Recorder>, ApiError> {
        let mut recorder = lock(&self.recorder);
        if recorder.is_open(calendar::seconds()) { Ok(recorder) } else { Err(absent()) }
    }

    /// What every link or every flow carried.
    pub(crate) fn usage(&self, request: &UsageRequest) -> Result<Vec<Usage>, ApiError> {
        self.open()?.usage(request, calendar::seconds()).map_err(unreadable)
    }

    /// What one carried, piece by piece.
    pub(crate) fn samples(&self, name: &str, request: &UsageRequest) -> Result<Vec<UsageSample>, ApiError> {
        let samples = self.open()?.samples(name, request, calendar::seconds()).map_err(unreadable)?;
        samples.ok_or_else(|| ApiError::new(Status::NotFound, "name", name, ""))
    }
}

impl Drop for History {
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take() {
            // One that has panicked has nothing more to write.
            let _ = thread.join();
        }
    }
}

/// Waits for the next second and records what it brought, or follows what is wanted of accounting before; false when it is over.
fn watch(
    host: &Weak<Host>,
    recorder: &Mutex<Recorder>,
    writer: &mut Writer,
    asked: &mpsc::Receiver<Asker>,
) -> bool {
    let into = calendar::since_1970().subsec_nanos();
    let rest = Duration::from_secs(1).saturating_sub(Duration::from_nanos(into.into()));
    let is_over = match asked.recv_timeout(rest) {
        Ok(done) => {
            follow(host, recorder, writer);
            // Who has waited too long has gone, and the next one hears it.
            writer.tell(|lost| done.send(lost.and_then(Fault::of_change)).is_ok());
            return true;
        }
        Err(fault) => fault == RecvTimeoutError::Disconnected,
    };
    if let Some(host) = host.upgrade() {
        // What the second that has just ended brought.
        let (totals, partings) = host.totals();
        let second = calendar::seconds().saturating_sub(1);
        partings.iter().for_each(|parting| writer.part(parting));
        lock(recorder).part(second, &partings);
        host.account(|wanted| match is_over {
            true => writer.end(calendar::seconds(), &totals),
            false => writer.follow(wanted, calendar::seconds(), &totals),
        });
        lock(recorder).record(second, totals);
    }
    if is_over {
        lock(recorder).end(calendar::seconds());
    }
    let news = lock(recorder).take_news();
    if let (Some(fault), Some(host)) = (news, host.upgrade()) {
        match &fault {
            Some(fault) => tracing::error!("{fault}"),
            None => tracing::info!("{FILE}: is written again"),
        }
        host.note_history_fault(fault);
    }
    !is_over
}

/// Lets accounting follow what is wanted of it in the middle of a second, which the history reads at its end.
fn follow(host: &Weak<Host>, recorder: &Mutex<Recorder>, writer: &mut Writer) {
    let Some(host) = host.upgrade() else { return };
    let (totals, partings) = host.totals();
    let now = calendar::seconds();
    partings.iter().for_each(|parting| writer.part(parting));
    lock(recorder).part(now, &partings);
    host.account(|wanted| writer.follow(wanted, now, &totals));
}

/// Who has ended since the last reading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parting {
    pub(crate) subject: Subject,
    /// What it had carried then.
    pub(crate) total: Traffic,
    /// Who goes on with its counters under another name.
    pub(crate) heir: Option<Subject>,
}

/// The counters of all subjects since they were made.
pub(crate) type Totals = Vec<(Subject, Traffic)>;

fn lock(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    // What a panic left half-written is a transaction that was rolled back.
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// There is no history; why, has been said at the start.
pub(crate) fn absent() -> ApiError {
    ApiError::new(Status::Failed, "history", "", "is not kept: firelane status says why")
}

fn unreadable(error: rusqlite::Error) -> ApiError {
    ApiError::new(Status::Io, "history", FILE, error.to_string())
}
