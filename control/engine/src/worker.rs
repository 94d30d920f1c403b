//! A lane's worker: turn after turn, asleep when there is nothing to do.
//!
//! The engine starts one thread per lane with it; a program that wants its own thread to be the lane's drives
//! it by hand ([`Worker::run_once`]), and its socket calls on that thread cost no hand-off.

use std::collections::VecDeque;
use std::mem;
use std::num::{NonZeroU64, NonZeroUsize};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use firelane_lane::{Host, Idle, Poisoned, Sleep};
use firelane_shm::Spin;
use firelane_units::LaneId;

use crate::calls::{self, Call, Stay};
use crate::engine::Inner;
use crate::fabric::Fabric;
use crate::programs::Known;
use crate::unsaid::{LAST_WORDS, LAST_WORDS_MAX, LOOK};

/// Runs one lane.
pub struct Worker {
    fabric: Arc<Fabric>,
    lane: LaneId,
    stop: Arc<AtomicBool>,
    /// How long it looks for a program's next word before it sleeps.
    spin: Spin,
    /// The same where these are on its CPU.
    way: Spin,
    /// The programs that it serves.
    known: Known,
    /// Storage of the numbers of devices that have called.
    called: Vec<u32>,
    /// Wakers that it has yet to call: those before them go on without end.
    left: VecDeque<Call>,
    /// Whom it tells that the lane has failed; nobody any more when it has.
    engine: Weak<Inner>,
    /// The engine has ended, and what programs have left unsaid goes.
    says_last: bool,
}

/// How many turns what was said last has to get by other lanes to the devices.
const LAST_TURNS: usize = 5;

/// The most looks before sleeping: what being woken on a CPU that sleeps takes. Where those whom it waits for need its CPU it gives way to
/// them in place of looking ([`crate::programs::Programs::await_news`]).
const LOOKS_MAX: u32 = 2048;
/// Behind so many looks it lets others have the CPU, for who is to answer may have come to it since: more than an answer takes from another one.
const LOOKS_PER_PASS: u32 = 64;
/// The most turns that it gives to these before it sleeps. Where nobody wants the CPU, one takes two system calls.
const TURNS_MAX: u32 = 64;

/// Lets others have the CPU, and says how long they had it.
fn give_way() -> Duration {
    let begin = std::time::Instant::now();
    std::thread::yield_now();
    begin.elapsed()
}

/// What [`Worker::run_once`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// There is more to do at once.
    Busy,
    /// There was nothing more to do; the worker has slept, if it was allowed to.
    Idle,
    /// The lane is out of service: a handler has panicked inside.
    Failed,
}

impl Worker {
    pub(crate) fn new(fabric: Arc<Fabric>, lane: LaneId, stop: Arc<AtomicBool>, engine: Weak<Inner>) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let spin = Spin::in_bursts(LOOKS_MAX, cpus).passing(LOOKS_PER_PASS, LOOKS_PER_PASS, give_way);
        // Who gives way spins nowhere, on a single CPU neither.
        let way = Spin::in_bursts(TURNS_MAX, 2).passing_always(give_way);
        Self {
            fabric,
            lane,
            stop,
            spin,
            way,
            known: Known::default(),
            called: Vec::new(),
            left: VecDeque::new(),
            engine,
            says_last: false,
        }
    }

    /// Which lane it runs.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// Binds the calling thread to a CPU.
    ///
    /// # Errors
    /// The CPU does not exist, or this process may not use it.
    pub fn bind_to_cpu(&self, cpu: usize) -> std::io::Result<()> {
        let mut cpus = rustix::thread::CpuSet::new();
        if cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        cpus.set(cpu);
        Ok(rustix::thread::sched_setaffinity(None, &cpus)?)
    }

    /// Takes one turn and then sleeps for at most `limit` if there is nothing to do (`None`: until there is).
    pub fn run_once(&mut self, limit: Option<Duration>) -> Ran {
        self.fabric.become_worker(self.lane);
        self.fabric.bell(self.lane).clear();
        let idle = if limit == Some(Duration::ZERO) { Idle::StaysAwake } else { Idle::Sleeps };
        let worked = self.turn(idle);
        let fabric = &*self.fabric;
        let bell = fabric.bell(self.lane);
        let is_calling = !self.left.is_empty();
        let (until, is_deaf) = match worked {
            Err(_) => {
                self.call_left();
                self.tell_engine();
                return Ran::Failed;
            }
            Ok(None) if is_calling => return Ran::Busy,
            // Somebody else is inside and wakes us when he leaves.
            Ok(None) => (None, false),
            // A waker that has given the lane a turn may have left it less time than the one before had found.
            Ok(Some(sleep))
                if calls::take_turn() || is_calling || sleep.work_left || self.known.has_to_close() =>
            {
                if sleep.yields {
                    std::thread::yield_now();
                }
                if sleep.listens {
                    bell.listen();
                }
                return Ran::Busy;
            }
            Ok(Some(sleep)) => {
                if sleep.listens && bell.glance(false) && !sleep.is_deaf {
                    return Ran::Idle;
                }
                (sleep.until, sleep.is_deaf)
            }
        };
        // As with work (R1 of `bell.rs`): whoever ends the engine says so and then rings, so it is asked behind the bell.
        if idle == Idle::StaysAwake || self.is_to_stop() && !self.says_last {
            return Ran::Idle;
        }
        let until = until.map(|at| at.saturating_since(fabric.now()));
        let limit = [until, limit].into_iter().flatten().min();
        if limit != Some(Duration::ZERO) {
            self.rest(limit, is_deaf);
        }
        Ran::Idle
    }

    /// The turn, with what devices and programs have said, and behind it the calls that it owes.
    fn turn(&mut self, idle: Idle) -> Result<Option<Sleep>, Poisoned> {
        let fabric = &*self.fabric;
        let (bell, squeue) = (fabric.bell(self.lane), fabric.squeue(self.lane));
        let (numbers, known) = (&mut self.called, &mut self.known);
        let kicks = |host: &mut Host<_, _>, now| {
            if let Some(calls) = bell.take_heard(numbers) {
                host.lane.listened(calls);
            }
            let mut behind = Vec::new();
            fabric.programs.take_kicks(fabric, self.lane, known, now, |message| {
                // Who has heard that somebody listens goes on at once, but that listener may still wait in the squeue.
                if behind.is_empty() && squeue.waiting() == 0 {
                    host.lane.on_message(now, message);
                } else {
                    behind.push(message);
                }
            });
            behind
        };
        let (stay, clears) = (Stay::begin(), Clears { fabric, lane: self.lane });
        self.left.drain(..).for_each(calls::owe);
        let worked = squeue.work_after(idle, &|| fabric.now(), kicks);
        drop(clears);
        self.left = stay.end_turn();
        worked
    }

    /// Looks for a program's next word, and sleeps if none comes, for at most `limit`.
    fn rest(&mut self, limit: Option<Duration>, is_deaf: bool) {
        let Self { fabric, lane, spin, way, known, .. } = self;
        if fabric.programs.await_news(*lane, known, (spin, way), is_deaf) {
            return;
        }
        let patience = fabric.programs.patience(|| fabric.now());
        let limit = [limit, patience].into_iter().flatten().min();
        if fabric.programs.fall_asleep(*lane, known) {
            fabric.bell(*lane).sleep(limit, is_deaf);
        }
        fabric.programs.wake_up(*lane, known);
    }

    /// Runs until the engine ends.
    pub(crate) fn run(&mut self) {
        // The kernel's default gathers timers over 50 us; a limit wakes up for each frame. Where it cannot be
        // changed, wakes come that much later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let turns = catch_unwind(AssertUnwindSafe(|| {
            while !self.is_to_stop() && self.run_once(None) != Ran::Failed {}
            self.say_last();
        }));
        if let Err(panic) = turns {
            // The lane has failed in this thread, which does not come again.
            self.tell_engine();
            resume_unwind(panic);
        }
    }

    /// Nobody has a handle any more: what was written before is sent, also by this lane for others, and who has not acknowledged it after a
    /// while is told that it does not come. Who has acknowledged everything is told nothing: a RST would take from it what it has not read.
    fn say_last(&mut self) {
        self.says_last = true;
        let (began, mut last) = (Instant::now(), self.fabric.heard_of_unsaid(self.lane));
        let mut until = began + LAST_WORDS;
        loop {
            if !self.fabric.may_have_unsaid(self.lane) {
                self.fall_silent();
            }
            if self.fabric.are_silent() || self.run_once(Some(LOOK)) == Ran::Failed {
                return;
            }
            let now = Instant::now();
            if now >= until {
                let heard = self.fabric.heard_of_unsaid(self.lane);
                if heard == last && heard.is_some() || now >= began + LAST_WORDS_MAX {
                    return self.reset_unsaid();
                }
                (last, until) = (heard, now + LAST_WORDS);
            }
        }
    }

    /// Nobody waits for this lane any more.
    pub(crate) fn fall_silent(&self) {
        self.fabric.fall_silent(self.lane);
    }

    fn reset_unsaid(&mut self) {
        let mut is_done = false;
        for _ in 0..LAST_TURNS {
            let stay = Stay::begin();
            let (fabric, now) = (&*self.fabric, self.fabric.now());
            let reset = || fabric.squeue(self.lane).visit(now, |host| host.lane.reset_unsaid(now)).is_some();
            // Somebody may be inside.
            is_done = is_done || reset();
            drop(stay);
            if self.run_once(Some(LOOK)) == Ran::Failed {
                return;
            }
        }
    }

    /// No turn of this lane's comes that would call them.
    fn call_left(&mut self) {
        self.left.drain(..).for_each(calls::owe);
    }

    /// Lets the engine have done elsewhere what this lane did for others, once.
    #[cold]
    fn tell_engine(&mut self) {
        if let Some(engine) = mem::take(&mut self.engine).upgrade() {
            engine.lane_lost();
        }
    }

    /// Whether the engine ends. In one order with the bell's state, by which who has cleared the bell behind the ring sees it.
    fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.call_left();
    }
}

/// Clears up behind the lane if it has failed, also if its worker unwinds, who does not come again.
struct Clears<'a> {
    fabric: &'a Fabric,
    lane: LaneId,
}

impl Drop for Clears<'_> {
    fn drop(&mut self) {
        self.fabric.clear_up(self.lane);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use firelane_frame::{Chain, Pools, PoolsConfig};
    use firelane_lane::{Frames, LaneMessage, Stage};
    use firelane_units::LinkId;

    use super::*;
    use crate::engine::{Engine, EngineConfig};
    use crate::error::ChangeError;
    use crate::{
        Poller, Queue, Ready, Stack, StreamConfig, TcpListener, TcpStream, UdpSocket, WireConfig, wire,
    };

    fn stack(end: Queue, n: u8) -> Stack {
        let builder = Stack::builder().interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    }

    #[test]
    fn a_worker_that_had_not_seen_the_end_when_it_was_rung_does_not_sleep() {
        let engine = Engine::start(&EngineConfig { threads: false, ..EngineConfig::default() }).unwrap();
        let mut worker = engine.workers().pop().unwrap();
        // It looks, somebody ends the engine, and it goes on.
        assert!(!worker.is_to_stop());
        worker.stop.store(true, Ordering::SeqCst);
        worker.fabric.bell(worker.lane).ring();
        let (sender, ended) = channel();
        std::thread::spawn(move || sender.send(worker.run_once(None)));
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(Ran::Idle));
    }

    #[test]
    fn a_lane_that_has_failed_keeps_no_other_busy_nor_from_a_change() {
        let engine =
            Engine::start(&EngineConfig { lanes: 2, threads: false, ..EngineConfig::default() }).unwrap();
        let mut workers = engine.workers();
        let fabric = Arc::clone(&engine.0.fabric);
        fabric.fail(LaneId(0), || ());
        assert!(engine.add_netstack(Default::default()).is_ok(), "the other has taken it");
        let other = workers.iter_mut().find(|worker| worker.lane == LaneId(1)).unwrap();
        let run = |worker: &mut Worker| (0..20).map(|_| worker.run_once(Some(Duration::ZERO))).last();
        assert_eq!(run(other), Some(Ran::Idle));
        let netstack = firelane_units::NetstackId(0);
        let is_there = fabric.visit(LaneId(1), |_, lane| lane.netstack_counters(netstack).is_some());
        assert_eq!(is_there, Some(true), "the other has it");
    }

    #[test]
    fn a_lane_that_has_failed_keeps_no_frames_of_others() {
        let engine =
            Engine::start(&EngineConfig { lanes: 3, threads: false, ..EngineConfig::default() }).unwrap();
        let mut workers = engine.workers();
        let fabric = Arc::clone(&engine.0.fabric);
        workers.iter_mut().for_each(|worker| _ = worker.run_once(Some(Duration::ZERO)));
        let mut pools = Pools::new(PoolsConfig { small_slots: 64, large_slots: 4 });
        let mut hand_over = |from| {
            let chain = Chain::from_iter((0..20).filter_map(|_| pools.copy_of(&[0; 60])));
            fabric.backlogs.add(from, chain.len());
            let frames = Frames { from, stage: Stage::Deliver, link: LinkId(0), chain };
            fabric.squeue(LaneId(0)).fill(LaneMessage::Frames(frames)).unwrap();
        };
        // What waits when an application's thread fails there.
        fabric.fail(LaneId(0), || hand_over(LaneId(1)));
        assert!(fabric.bell(LaneId(0)).is_rung(), "the worker comes");
        assert!(!fabric.bell(LaneId(1)).is_rung());
        let worker = workers.iter_mut().find(|worker| worker.lane == LaneId(0)).unwrap();
        assert_eq!(worker.run_once(Some(Duration::ZERO)), Ran::Failed);
        assert!(fabric.bell(LaneId(1)).is_rung(), "it may fetch more");
        assert_eq!((fabric.backlogs.of(LaneId(1)), fabric.squeue(LaneId(0)).waiting()), (0, 0));
        assert_eq!(fabric.backlogs.taken(LaneId(1), LaneId(0)), 20, "nothing is on its way there");
    }

    #[test]
    fn who_waits_for_a_lane_hears_that_it_has_failed() {
        let (left, right) = wire(WireConfig::default());
        let (server, client) = (stack(left.into(), 1), stack(right.into(), 2));
        let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
        let stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
        let _accepted = listener.accept().unwrap();
        let datagrams = UdpSocket::bind(&client, "10.0.0.2:9").unwrap();
        let (poller, watched) = (Poller::new(), stream.clone());
        poller.watch(&watched, 4, Ready::READABLE).unwrap();
        poller.wait(&mut Vec::new(), Some(Duration::ZERO));
        let (sender, ended) = channel();
        let reads = sender.clone();
        std::thread::spawn(move || reads.send(std::io::Read::read(&mut &stream, &mut [0]).map(drop)));
        let receives = sender;
        let accepts = receives.clone();
        std::thread::spawn(move || receives.send(datagrams.recv_from(&mut [0]).map(drop)));
        let idle = TcpListener::bind(&client, "10.0.0.2:7").unwrap();
        std::thread::spawn(move || {
            for nonblocking in [false, true] {
                idle.set_nonblocking(nonblocking).unwrap();
                let _ = accepts.send(idle.accept().map(drop));
            }
        });
        assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "nothing comes");
        client.engine().0.fabric.fail(LaneId(0), || ());
        for _ in 0..4 {
            let told = ended.recv_timeout(Duration::from_secs(5)).expect("it waits on");
            assert_eq!(told.unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
        }
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::from_secs(5)));
        assert_eq!(events.iter().map(|event| event.key).collect::<Vec<_>>(), [4]);
        assert_eq!(watched.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
        let late = TcpStream::begin(&client, "10.0.0.1:7".parse().unwrap(), StreamConfig::default());
        assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
    }

    #[test]
    fn what_begins_anew_does_so_in_the_lanes_that_are_left() {
        let (left, right) = wire(WireConfig::default());
        let build = |end: Queue, n: u8| {
            let builder = Stack::builder().lanes(2).interface(end).mac(&format!("02:08:20:00:00:0{n}"));
            builder.unwrap().address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
        };
        let (stack, _peer) = (build(left.into(), 1), build(right.into(), 2));
        let inner = &stack.engine().0;
        let earlier = TcpListener::bind(&stack, "10.0.0.1:7").unwrap();
        earlier.set_nonblocking(true).unwrap();
        inner.fabric.fail(LaneId(0), || ());
        let lanes = (0..8).map(|_| inner.lane_to_begin(stack.id()).unwrap());
        assert!(lanes.into_iter().all(|lane| lane == LaneId(1)), "nothing begins in the other");
        assert!(TcpListener::bind(&stack, "10.0.0.1:8").is_ok(), "the other lane listens");
        assert_eq!(earlier.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "it may come");
        inner.fabric.fail(LaneId(1), || ());
        assert_eq!(earlier.accept().unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
        let late = TcpListener::bind(&stack, "10.0.0.1:9");
        assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
    }

    #[test]
    fn another_peer_is_not_waited_for_in_a_lane_that_has_failed() {
        let stack = stack(wire(WireConfig::default()).0.into(), 1);
        let (socket, engine) = (UdpSocket::bind(&stack, "10.0.0.1:9").unwrap(), stack.engine());
        let fabric = Arc::clone(&engine.0.fabric);
        let (sender, ended) = channel();
        let mut begun = Some(move || drop(sender.send(socket.connect("10.0.0.2:9"))));
        fabric.fail(LaneId(0), || {
            begun.take().map(std::thread::spawn);
            while fabric.squeue(LaneId(0)).waiting() == 0 {
                std::thread::yield_now();
            }
        });
        let told = ended.recv_timeout(Duration::from_secs(5)).expect("it waits on");
        assert_eq!(told.unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
    }

    #[test]
    fn a_queue_stays_where_it_is_while_a_lane_is_out_of_service() {
        let engine =
            Engine::start(&EngineConfig { lanes: 3, threads: false, ..EngineConfig::default() }).unwrap();
        engine.0.fabric.fail(LaneId(0), || ());
        let moved = engine.0.move_queue(LinkId(1), LaneId(1), LaneId(2));
        assert!(matches!(moved, Err(ChangeError::LaneFailed)), "{moved:?}");
    }
}
