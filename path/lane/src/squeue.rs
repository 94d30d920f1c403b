//! The squeue: a FIFO, one owner at a time, and three ways in.
//!
//! Application threads, the other lanes and the lane's own worker enter here; `perimeter.rs` keeps them
//! apart. *Fill* appends and wakes the worker. *No drain* runs the item at once if the lane is idle and
//! leaves the rest. *Process* does the same and then drains what came meanwhile, for at most
//! [`DRAIN_LIMIT`]; the worker has no limit. Nobody ever waits to get in: who finds somebody inside leaves
//! the item in the FIFO, where the owner or the worker finds it.
//!
//! An item for a connection of another lane is no business of this file: the handler puts it into its
//! outbox, and whoever leaves the perimeter fills it into the right squeue (`Inside::leave`).
//! The original is described in Solaris' `inet/squeue.c`; ours has no lock, and re-entry is a
//! value that the handler returns instead of a comparison of thread identities.

use crate::perimeter::{Owner, Perimeter, Poisoned};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use core::{hint, mem};
use firelane_frame::MpscRing;
use firelane_units::Instant;

/// How long a thread that is not the lane's worker may drain other people's items (Solaris
/// `squeue_drain_ms`). What is left then is the worker's.
pub const DRAIN_LIMIT: Duration = Duration::from_millis(20);

/// How many items the worker runs for one look at the clock. An item takes far less than a microsecond, a timer
/// is never finer than a few.
const ITEMS_PER_CLOCK: usize = 16;

/// What lives inside a perimeter and handles its items.
pub trait Inside<T> {
    /// Handles one item. What it returns is an item for this same squeue (one re-entry).
    fn run(&mut self, now: Instant, item: T) -> Option<T>;

    /// Work that items left undone: transmit, hand outboxes over. Called by every thread but the worker
    /// before it leaves; answers whether the worker must be woken (an earlier deadline than it sleeps to).
    fn leave(&mut self, now: Instant) -> bool;

    /// The worker's turn, after the waiting items ran.
    fn turn(&mut self, now: Instant, idle: Idle) -> Sleep;
}

/// What the worker will do if there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// It sleeps, and must be woken when something arrives.
    Sleeps,
    /// It comes again at once and looks itself. To ask for notifications that nobody waits for would cost both
    /// sides of every ring a cache line each time that it is empty.
    StaysAwake,
}

/// What the worker does after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sleep {
    /// The earliest instant at which there is something to do without being woken.
    pub until: Option<Instant>,
    /// There is something to do at once.
    pub work_left: bool,
    /// Devices are to wait until then: only what is told in other ways wakes the worker before.
    pub is_deaf: bool,
    /// There are devices that must have called before they are read: the worker listens even if there is work left, and before
    /// it waits for anything else.
    pub listens: bool,
    /// There is work left that others are to run for first: those who were woken, if they share the worker's CPU.
    pub yields: bool,
}

/// How the worker is woken. Wake-ups must not be lost between two waits (an eventfd keeps them).
pub trait Wake {
    /// Makes the worker run [`Squeue::work`] soon.
    fn wake(&self);
}

/// How an item enters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Append; wake the worker.
    Fill,
    /// Run mine if the lane is idle; leave the rest.
    NoDrain,
    /// Run mine if the lane is idle, then what came meanwhile, up to [`DRAIN_LIMIT`].
    Process,
}

/// What became of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// It has run.
    Ran,
    /// It waits for the owner or the worker.
    Queued,
}

/// The item was not taken: it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused<T> {
    /// The FIFO is full.
    Full(T),
    /// A handler has panicked inside; the lane is out of service.
    Poisoned(T),
}

/// A lane's serialisation queue around the state `S`, for items `T`, with the worker woken through `W`.
#[derive(Debug)]
pub struct Squeue<S, T, W> {
    perimeter: Perimeter<S>,
    fifo: MpscRing<T>,
    waker: W,
    counters: Counters,
}

impl<S: Inside<T>, T, W: Wake> Squeue<S, T, W> {
    /// A squeue for at most `capacity` waiting items around `state`.
    pub fn new(state: S, capacity: usize, waker: W) -> Self {
        let fifo = MpscRing::new(capacity);
        Self { perimeter: Perimeter::new(state), fifo, waker, counters: Counters::default() }
    }

    /// Enters with `item`. `clock` is read once per item that runs.
    pub fn enter(&self, mode: Mode, item: T, clock: &impl Fn() -> Instant) -> Result<Entered, Refused<T>> {
        if mode == Mode::Fill {
            return self.fill(item);
        }
        if let Some(owner) = self.perimeter.own_if_empty() {
            self.alarmed(|| self.run_inline(owner, mode, item, clock));
            return Ok(Entered::Ran);
        }
        let owes_wake = self.append(item, mode)?;
        if mode == Mode::Process
            && let Some(owner) = self.perimeter.own()
        {
            self.alarmed(|| self.drain(owner, clock));
        } else if owes_wake {
            self.wake();
        }
        Ok(Entered::Queued)
    }

    /// Appends `item`, and wakes the worker if nobody is inside.
    pub fn fill(&self, item: T) -> Result<Entered, Refused<T>> {
        if self.append(item, Mode::Fill)? {
            self.wake();
        }
        Ok(Entered::Queued)
    }

    /// The worker: runs what waits, without a limit, and takes one turn. `None` means that somebody is
    /// inside, who will wake the worker when he leaves; it sleeps meanwhile.
    pub fn work(&self, idle: Idle, clock: &impl Fn() -> Instant) -> Result<Option<Sleep>, Poisoned> {
        self.work_after(idle, clock, |_, _| Vec::new())
    }

    /// The same, and between the items and the turn what the worker brings along from where no items come from. What `bring` gives back
    /// runs after all that has entered by then: who did that before he asked for it finds it done first.
    pub fn work_after(
        &self,
        idle: Idle,
        clock: &impl Fn() -> Instant,
        bring: impl FnOnce(&mut S, Instant) -> Vec<T>,
    ) -> Result<Option<Sleep>, Poisoned> {
        let Some(mut owner) = self.perimeter.own_or_want()? else {
            Counters::add(&self.counters.worker_turned_back, 1);
            return Ok(None);
        };
        let mut now = clock();
        self.run_waiting(&mut owner, &mut now, clock);
        let behind = bring(&mut owner, now);
        if !behind.is_empty() {
            self.run_waiting(&mut owner, &mut now, clock);
            behind.into_iter().for_each(|item| self.run_item(&mut owner, now, item));
        }
        let mut sleep = owner.turn(now, idle);
        sleep.work_left |= owner.release().waiting > 0;
        Ok(Some(sleep))
    }

    /// A thread that is not the worker and finds the lane closed runs what waits, unless somebody is inside: a worker that a
    /// program drives may not come again. Whether nothing waits any more.
    pub fn help(&self, clock: &impl Fn() -> Instant) -> bool {
        if self.waiting() > 0
            && let Some(owner) = self.perimeter.own()
        {
            self.alarmed(|| self.drain(owner, clock));
            return self.waiting() == 0;
        }
        false
    }

    /// Runs `inside` in the lane if nobody is inside and nothing waits: the way for a question that needs
    /// an answer at once. `None` means that the caller has to send an item instead.
    pub fn visit<R>(&self, now: Instant, inside: impl FnOnce(&mut S) -> R) -> Option<R> {
        let mut owner = self.perimeter.own_if_empty()?;
        Some(self.alarmed(move || {
            let answer = inside(&mut owner);
            self.leave(owner, now);
            answer
        }))
    }

    /// What waits in a lane that has failed, where nobody runs it. Whoever takes it clears up behind it: the lanes that it
    /// comes from may wait for this one.
    #[cold]
    pub fn take_left(&self) -> Vec<T> {
        let mut left = Vec::new();
        while self.is_poisoned() && self.waiting() > 0 {
            match self.fifo.pop() {
                Some(item) => {
                    self.perimeter.withdraw();
                    left.push(item);
                }
                // Its producer has announced it and is still writing it.
                None => hint::spin_loop(),
            }
        }
        left
    }

    /// Items waiting.
    pub fn waiting(&self) -> usize {
        self.perimeter.waiting()
    }

    /// Whether a handler has panicked inside.
    pub fn is_poisoned(&self) -> bool {
        self.perimeter.is_poisoned()
    }

    /// What has happened so far.
    pub fn stats(&self) -> SqueueStats {
        self.counters.read()
    }

    /// How the worker is woken.
    pub fn waker(&self) -> &W {
        &self.waker
    }

    /// The state, when the squeue ends.
    pub fn into_state(self) -> S {
        self.perimeter.into_inner()
    }

    fn run_inline(&self, mut owner: Owner<'_, S>, mode: Mode, item: T, clock: &impl Fn() -> Instant) {
        let now = clock();
        let counter =
            if mode == Mode::Process { &self.counters.ran_process } else { &self.counters.ran_no_drain };
        Counters::add(counter, 1);
        self.run_item(&mut owner, now, item);
        if mode == Mode::Process && owner.waiting() > 0 {
            self.drain(owner, clock);
        } else {
            self.leave(owner, now);
        }
    }

    /// Drains as a thread that is not the worker, then leaves.
    fn drain(&self, mut owner: Owner<'_, S>, clock: &impl Fn() -> Instant) {
        let mut now = clock();
        let limit = now + DRAIN_LIMIT;
        while owner.waiting() > 0 && now < limit {
            if !self.run_next(&mut owner, now) {
                break;
            }
            Counters::add(&self.counters.drained_by_others, 1);
            now = clock();
        }
        self.leave(owner, now);
    }

    /// Runs the first waiting item. `false` if its producer has announced it and is still writing it; then
    /// it stays counted, and whoever comes next finds it.
    /// The worker runs what waits by now.
    fn run_waiting(&self, owner: &mut Owner<'_, S>, now: &mut Instant, clock: &impl Fn() -> Instant) {
        let waiting = owner.waiting();
        let mut ran = 0;
        while ran < waiting && self.run_next(owner, *now) {
            ran += 1;
            if ran.is_multiple_of(ITEMS_PER_CLOCK) {
                *now = clock();
            }
        }
        if ran > 0 {
            Counters::add(&self.counters.drained_by_worker, ran as u64);
        }
    }

    fn run_next(&self, owner: &mut Owner<'_, S>, now: Instant) -> bool {
        let Some(item) = self.fifo.pop() else { return false };
        owner.took(1);
        self.run_item(owner, now, item);
        true
    }

    /// Runs `item`, and what its handler produces under the rule of one re-entry: at once if nothing waits;
    /// what *that* produces is queued, so that no chain of items keeps everybody else out.
    fn run_item(&self, owner: &mut Owner<'_, S>, now: Instant, item: T) {
        let Some(produced) = owner.run(now, item) else { return };
        if owner.waiting() > 0 {
            self.requeue(owner, now, produced);
            return;
        }
        Counters::add(&self.counters.re_entries, 1);
        if let Some(again) = owner.run(now, produced) {
            self.requeue(owner, now, again);
        }
    }

    /// Appends what a handler produced. With the FIFO full it runs at once: the owner may, and to lose it
    /// is worse than to let it pass others.
    fn requeue(&self, owner: &mut Owner<'_, S>, now: Instant, item: T) {
        let mut next = Some(item);
        while let Some(item) = next.take() {
            self.perimeter.announce();
            if let Err(item) = self.fifo.push(item) {
                self.perimeter.withdraw();
                next = owner.run(now, item);
            }
        }
    }

    /// Does what a thread that is not the worker does inside. If it unwinds, the worker comes and finds that the lane has failed.
    fn alarmed<R>(&self, inside: impl FnOnce() -> R) -> R {
        let alarm = Alarm(&self.waker);
        let result = inside();
        mem::forget(alarm);
        result
    }

    /// Leaves the perimeter as a thread that is not the worker, and wakes the worker if it must come.
    fn leave(&self, mut owner: Owner<'_, S>, now: Instant) {
        let deadline_moved = owner.leave(now);
        let left = owner.release();
        if left.waiting > 0 || left.wanted || deadline_moved {
            self.wake();
        }
    }

    /// Puts `item` in the FIFO and counts it; answers whether a wake-up is owed.
    fn append(&self, item: T, mode: Mode) -> Result<bool, Refused<T>> {
        if self.perimeter.is_poisoned() {
            return Err(Refused::Poisoned(item));
        }
        let announced = self.perimeter.announce();
        if announced.is_poisoned {
            self.perimeter.withdraw();
            return Err(Refused::Poisoned(item));
        }
        if let Err(item) = self.fifo.push(item) {
            self.perimeter.withdraw();
            Counters::add(&self.counters.refused, 1);
            if announced.owes_wake {
                self.wake();
            }
            return Err(Refused::Full(item));
        }
        self.counters.queued(mode, announced.waiting);
        Ok(announced.owes_wake)
    }

    fn wake(&self) {
        Counters::add(&self.counters.wakes, 1);
        self.waker.wake();
    }
}

/// Wakes the worker when it goes.
struct Alarm<'a, W: Wake>(&'a W);

impl<W: Wake> Drop for Alarm<'_, W> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// What a squeue has done: queued and run by whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SqueueStats {
    /// Items that *fill* appended.
    pub queued_fill: u64,
    /// Items that *no drain* had to append.
    pub queued_no_drain: u64,
    /// Items that *process* had to append.
    pub queued_process: u64,
    /// Items that *no drain* ran at once.
    pub ran_no_drain: u64,
    /// Items that *process* ran at once.
    pub ran_process: u64,
    /// Waiting items that the worker ran.
    pub drained_by_worker: u64,
    /// Waiting items that another thread ran.
    pub drained_by_others: u64,
    /// Items that ran on top of the one that produced them.
    pub re_entries: u64,
    /// Items that found the FIFO full.
    pub refused: u64,
    /// Wake-ups of the worker.
    pub wakes: u64,
    /// Times that the worker found somebody inside.
    pub worker_turned_back: u64,
    /// The most items that ever waited.
    pub longest: u64,
}

/// [`SqueueStats`] as they are counted. Relaxed: nothing is decided by them.
#[derive(Debug, Default)]
struct Counters {
    queued_fill: AtomicU64,
    queued_no_drain: AtomicU64,
    queued_process: AtomicU64,
    ran_no_drain: AtomicU64,
    ran_process: AtomicU64,
    drained_by_worker: AtomicU64,
    drained_by_others: AtomicU64,
    re_entries: AtomicU64,
    refused: AtomicU64,
    wakes: AtomicU64,
    worker_turned_back: AtomicU64,
    longest: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    fn queued(&self, mode: Mode, waiting: usize) {
        let counter = match mode {
            Mode::Fill => &self.queued_fill,
            Mode::NoDrain => &self.queued_no_drain,
            Mode::Process => &self.queued_process,
        };
        Self::add(counter, 1);
        let waiting = waiting as u64;
        if self.longest.load(Ordering::Relaxed) < waiting {
            self.longest.fetch_max(waiting, Ordering::Relaxed);
        }
    }

    fn read(&self) -> SqueueStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SqueueStats {
            queued_fill: of(&self.queued_fill),
            queued_no_drain: of(&self.queued_no_drain),
            queued_process: of(&self.queued_process),
            ran_no_drain: of(&self.ran_no_drain),
            ran_process: of(&self.ran_process),
            drained_by_worker: of(&self.drained_by_worker),
            drained_by_others: of(&self.drained_by_others),
            re_entries: of(&self.re_entries),
            refused: of(&self.refused),
            wakes: of(&self.wakes),
            worker_turned_back: of(&self.worker_turned_back),
            longest: of(&self.longest),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::collections::VecDeque;

    /// Records what runs; an item may produce others.
    #[derive(Debug, Default)]
    struct Log {
        ran: Vec<u32>,
        produces: VecDeque<u32>,
        turns: u32,
        leaves: u32,
        deadline_moved: bool,
    }

    impl Inside<u32> for Log {
        fn run(&mut self, _now: Instant, item: u32) -> Option<u32> {
            self.ran.push(item);
            self.produces.pop_front()
        }

        fn leave(&mut self, _now: Instant) -> bool {
            self.leaves += 1;
            self.deadline_moved
        }

        fn turn(&mut self, _now: Instant, _idle: Idle) -> Sleep {
            self.turns += 1;
            Sleep { until: None, work_left: false, is_deaf: false, listens: false, yields: false }
        }
    }

    #[derive(Debug, Default)]
    struct Bell(AtomicU64);

    impl Wake for Bell {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    type TestQueue = Squeue<Log, u32, Bell>;

    fn queue() -> TestQueue {
        Squeue::new(Log::default(), 4, Bell::default())
    }

    fn bells(queue: &TestQueue) -> u64 {
        queue.waker().0.load(Ordering::Relaxed)
    }

    fn still() -> Instant {
        Instant::ZERO
    }

    #[test]
    fn fill_wakes_the_worker_once_and_runs_nothing() {
        let queue = queue();
        queue.fill(1).unwrap();
        queue.fill(2).unwrap();
        assert_eq!((bells(&queue), queue.waiting()), (1, 2));
        let sleep = queue.work(Idle::Sleeps, &still).unwrap().unwrap();
        assert!(!sleep.work_left);
        let stats = queue.stats();
        assert_eq!((stats.queued_fill, stats.drained_by_worker, stats.longest), (2, 2, 2));
        let log = queue.into_state();
        assert_eq!((log.ran, log.turns, log.leaves), (vec![1, 2], 1, 0));
    }

    #[test]
    fn what_is_brought_to_run_behind_does_so_after_all_that_has_entered_by_then() {
        let queue = queue();
        queue.fill(1).unwrap();
        let bring = |log: &mut Log, _| {
            assert_eq!(log.ran, [1]);
            queue.fill(2).unwrap();
            log.ran.push(7);
            vec![8, 9]
        };
        queue.work_after(Idle::Sleeps, &still, bring).unwrap();
        queue.fill(3).unwrap();
        queue.work_after(Idle::Sleeps, &still, |_, _| Vec::new()).unwrap();
        assert_eq!(queue.into_state().ran, [1, 7, 2, 8, 9, 3]);
    }

    #[test]
    fn who_finds_items_that_no_worker_comes_for_runs_them() {
        let queue = queue();
        queue.fill(1).unwrap();
        queue.fill(2).unwrap();
        assert_eq!(queue.visit(Instant::ZERO, |_| ()), None);
        assert!(queue.help(&still));
        assert_eq!((queue.waiting(), queue.stats().drained_by_others), (0, 2));
        assert_eq!(queue.visit(Instant::ZERO, |_| ()), Some(()));
        assert!(!queue.help(&still), "nothing waits");
        assert_eq!(queue.into_state().ran, vec![1, 2]);
    }

    #[test]
    fn an_idle_lane_runs_the_item_on_the_callers_thread() {
        let queue = queue();
        assert_eq!(queue.enter(Mode::NoDrain, 1, &still), Ok(Entered::Ran));
        assert_eq!(queue.enter(Mode::Process, 2, &still), Ok(Entered::Ran));
        assert_eq!((bells(&queue), queue.waiting()), (0, 0));
        assert_eq!(queue.stats().ran_process, 1);
        assert_eq!(queue.into_state().leaves, 2);
    }

    #[test]
    fn no_drain_leaves_the_backlog_and_process_takes_it() {
        let queue = queue();
        queue.fill(1).unwrap();
        assert_eq!(queue.enter(Mode::NoDrain, 2, &still), Ok(Entered::Queued));
        assert_eq!(queue.waiting(), 2);
        assert_eq!(queue.enter(Mode::Process, 3, &still), Ok(Entered::Queued));
        assert_eq!((queue.waiting(), queue.stats().drained_by_others), (0, 3));
        assert_eq!(queue.into_state().ran, [1, 2, 3]);
    }

    #[test]
    fn the_drain_limit_hands_the_rest_to_the_worker() {
        let queue = queue();
        queue.fill(1).unwrap();
        queue.fill(2).unwrap();
        let ticks = Cell::new(0);
        let clock = || {
            ticks.set(ticks.get() + 15);
            Instant::from_millis(ticks.get())
        };
        queue.enter(Mode::Process, 3, &clock).unwrap();
        // Clock readings: start 15, after the first item 30, after the second 45: past 15 + 20.
        assert_eq!((queue.waiting(), bells(&queue)), (1, 2));
        queue.work(Idle::Sleeps, &still).unwrap();
        assert_eq!(queue.into_state().ran, [1, 2, 3]);
    }

    #[test]
    fn one_re_entry_and_no_second() {
        let queue = queue();
        queue.visit(Instant::ZERO, |log| log.produces.extend([10, 11])).unwrap();
        queue.enter(Mode::NoDrain, 1, &still).unwrap();
        assert_eq!((queue.stats().re_entries, queue.waiting(), bells(&queue)), (1, 1, 1));
        assert_eq!(queue.visit(Instant::ZERO, |_| ()), None, "something waits");
        queue.work(Idle::Sleeps, &still).unwrap();
        assert_eq!(queue.into_state().ran, [1, 10, 11]);
    }

    #[test]
    fn what_a_handler_produces_does_not_pass_those_who_wait() {
        let queue = queue();
        queue.visit(Instant::ZERO, |log| log.produces.push_back(10)).unwrap();
        queue.fill(1).unwrap();
        queue.fill(2).unwrap();
        let sleep = queue.work(Idle::Sleeps, &still).unwrap().unwrap();
        assert!(sleep.work_left, "the produced item is behind the two");
        queue.work(Idle::Sleeps, &still).unwrap();
        assert_eq!(queue.into_state().ran, [1, 2, 10]);
    }

    #[test]
    fn a_full_queue_gives_the_item_back() {
        let queue = queue();
        for item in 0..4 {
            queue.fill(item).unwrap();
        }
        assert_eq!(queue.fill(4), Err(Refused::Full(4)));
        assert_eq!(queue.stats().refused, 1);
    }

    #[test]
    fn an_earlier_deadline_wakes_the_worker() {
        let queue = queue();
        queue.visit(Instant::ZERO, |log| log.deadline_moved = true).unwrap();
        assert_eq!(bells(&queue), 1);
    }

    #[test]
    fn many_threads_keep_the_order_of_each() {
        let queue = Squeue::new(Log::default(), 1024, Bell::default());
        let of_thread = |n: u32| (0..2000).map(move |i| n << 16 | i);
        std::thread::scope(|scope| {
            for n in 0..3 {
                let queue = &queue;
                scope.spawn(move || {
                    for item in of_thread(n) {
                        let mode = [Mode::Fill, Mode::NoDrain, Mode::Process][item as usize % 3];
                        while queue.enter(mode, item, &still).is_err() {
                            let _ = queue.work(Idle::Sleeps, &still);
                        }
                    }
                });
            }
        });
        while queue.waiting() > 0 {
            queue.work(Idle::Sleeps, &still).unwrap();
        }
        let ran = queue.into_state().ran;
        for n in 0..3 {
            let mine: Vec<u32> = ran.iter().copied().filter(|item| item >> 16 == n).collect();
            assert_eq!(mine, of_thread(n).collect::<Vec<_>>());
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    //! The loom model: every interleaving of two application threads and the worker.
    //! `RUSTFLAGS="--cfg loom" cargo test -p firelane-lane --release --lib model`

    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering as Seq};
    use loom::thread;

    #[derive(Debug)]
    struct Log(Vec<u32>);

    impl Inside<u32> for Log {
        fn run(&mut self, _now: Instant, item: u32) -> Option<u32> {
            self.0.push(item);
            None
        }

        fn leave(&mut self, _now: Instant) -> bool {
            false
        }

        fn turn(&mut self, _now: Instant, _idle: Idle) -> Sleep {
            Sleep { until: None, work_left: false, is_deaf: false, listens: false, yields: false }
        }
    }

    /// A wake-up that is kept, as an eventfd keeps it.
    #[derive(Debug)]
    struct Bell(AtomicBool);

    impl Wake for Bell {
        fn wake(&self) {
            // As an eventfd's counter: a read-modify-write, so that two wake-ups and a wait are ordered.
            self.0.swap(true, Seq::SeqCst);
        }
    }

    type ModelQueue = Squeue<Log, u32, Bell>;

    fn still() -> Instant {
        Instant::ZERO
    }

    /// The worker: at most `rounds` times, it works if it was woken. It answers whether it owes itself
    /// another round.
    fn worker(queue: &ModelQueue, rounds: usize) {
        for _ in 0..rounds {
            if queue.waker().0.swap(false, Seq::SeqCst) {
                if let Ok(Some(sleep)) = queue.work(Idle::Sleeps, &still)
                    && sleep.work_left
                {
                    queue.wake();
                }
            }
            thread::yield_now();
        }
    }

    fn check(first: [Mode; 2], second: [Mode; 2]) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let bell = Bell(AtomicBool::new(true));
            let queue = Arc::new(Squeue::new(Log(Vec::new()), 8, bell));
            let enter = |queue: Arc<ModelQueue>, modes: [Mode; 2], from: u32| {
                move || {
                    for (i, mode) in modes.into_iter().enumerate() {
                        assert!(queue.enter(mode, from + i as u32, &still).is_ok());
                    }
                }
            };
            let one = thread::spawn(enter(Arc::clone(&queue), first, 10));
            let two = thread::spawn(enter(Arc::clone(&queue), second, 20));
            worker(&queue, 2);
            one.join().unwrap();
            two.join().unwrap();
            // No lost wake-up: with everybody gone, whatever waits has the worker's bell rung for it.
            if queue.waiting() > 0 {
                assert!(queue.waker().0.load(Seq::SeqCst), "items wait and nobody will come");
            }
            while queue.waiting() > 0 {
                assert!(queue.work(Idle::Sleeps, &still).unwrap().is_some());
            }
            let log = Arc::try_unwrap(queue).ok().expect("all threads ended").into_state().0;
            let of = |decade: u32| log.iter().copied().filter(|i| i / 10 == decade).collect::<Vec<_>>();
            assert_eq!((of(1), of(2)), (vec![10, 11], vec![20, 21]), "each runs once, in order");
        });
    }

    #[test]
    fn process_and_process() {
        check([Mode::Process; 2], [Mode::Process; 2]);
    }

    #[test]
    fn process_and_fill() {
        check([Mode::Process, Mode::Fill], [Mode::Fill, Mode::Process]);
    }

    #[test]
    fn no_drain_and_fill() {
        check([Mode::NoDrain, Mode::Fill], [Mode::Fill, Mode::NoDrain]);
    }

    #[test]
    fn the_worker_that_was_turned_back_is_called() {
        loom::model(|| {
            let queue = Arc::new(Squeue::new(Log(Vec::new()), 8, Bell(AtomicBool::new(false))));
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.enter(Mode::NoDrain, 1, &still).is_ok())
            };
            let turned_back = matches!(queue.work(Idle::Sleeps, &still), Ok(None));
            other.join().unwrap();
            assert!(!turned_back || queue.waker().0.load(Seq::SeqCst), "a wish is remembered");
        });
    }
}
