//! All lanes of an engine, and every way into them.
//!
//! Owns the squeues; implements the outlet through which lanes reach each other, sleeping sockets and the
//! operator. Application threads enter with *process* and so do the work of their own call; a lane's worker
//! that runs application code itself leaves items to its next turn.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use firelane_frame::Terms;
use firelane_lane::{
    Backlogs, Connect, DatagramInfo, Fault, Host, Idle, Lane, LaneConfig, LaneMessage, Look, Looked, Mode,
    MovingQueue, Notice, Outlet, Question, Refused, Secrets, Snapshot, SocketCommand, Squeue, Stage,
    StreamInfo, Wake,
};
use firelane_socket::{ConnRef, Flags, Ready, SocketError, SocketToken};
use firelane_units::{Bytes, Instant, LaneId, NetstackId, SocketId};
use rustix::io::Errno;

use crate::bell::{Bell, Ringer};
use crate::calls::{self, Held, Stay};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::desk::Desk;
use crate::error::{ChangeError, lane_failed};
use crate::news::News;
use crate::notices::Notices;
use crate::programs::Programs;
use crate::queue::Queue;
use crate::sleepers::Sleepers;

/// How often a lane is looked at that has items waiting, by who must come after them.
const CATCH_UP_MAX: usize = 10_000;
/// In so many lanes, the first ones, programs can have sockets: a session has a bell for each.
pub(crate) const PROGRAM_LANES_MAX: usize = firelane_shm::layout::LANES_MAX as usize;
/// How many items wait before a squeue at the most.
const SQUEUE_ITEMS: usize = 4096;

pub(crate) type Message = LaneMessage<Queue>;
pub(crate) type LaneSqueue = Squeue<Host<Queue, FabricOutlet>, Message, Ringer>;

thread_local! {
    /// The lane whose worker this thread is, and the number of its fabric: each engine numbers its lanes anew.
    static WORKER_OF: Cell<Option<(u64, LaneId)>> = const { Cell::new(None) };
}

/// How many fabrics there have been.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The lanes.
pub(crate) struct Fabric {
    /// No other of this process has or will have it, as one may have its place.
    number: u64,
    pub(crate) clock: Clock,
    pub(crate) secrets: Secrets,
    pub(crate) chance: Chance,
    pub(crate) sleepers: Sleepers,
    pub(crate) news: News,
    pub(crate) desk: Desk<Question>,
    pub(crate) looks: Desk<Look>,
    pub(crate) programs: Programs,
    /// Those that netstacks spread over, and after them those in reserve.
    lanes: Box<[Place]>,
    common: usize,
    /// How many frames of each lane wait in others.
    pub(crate) backlogs: Arc<Backlogs>,
    pub(crate) notices: Mutex<Notices>,
}

/// A lane with its bell.
struct Place {
    squeue: LaneSqueue,
    bell: Arc<Bell>,
    /// The lane has failed, and what it has left behind is cleared up.
    is_cleared: AtomicBool,
    /// The engine has ended, and the lane has nothing to say.
    is_silent: AtomicBool,
    /// What it had counted when it was read last.
    last: Mutex<Option<Snapshot>>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("bell", &self.bell).finish_non_exhaustive()
    }
}

/// A lane's squeue did not take an item: it is full, or the lane is out of service after a panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EnterError {
    Full,
    LaneFailed,
}

impl Fabric {
    /// Lanes without threads.
    pub(crate) fn new(configs: &LaneSizes, chance: Chance) -> io::Result<Arc<Self>> {
        let mut random = [0; Secrets::BYTES];
        chance.fill(&mut random)?;
        let (clock, secrets) = (Clock::new(), Secrets::new(random));
        let all = configs.lanes + configs.reserve;
        let backlogs = Arc::new(Backlogs::new(all));
        let bells: Vec<_> = (0..all).map(|_| Bell::new()).collect::<io::Result<_>>()?;
        let programs = Programs::new(bells.iter().take(PROGRAM_LANES_MAX));
        Ok(Arc::new_cyclic(|fabric: &Weak<Self>| {
            let place = |(index, bell): (usize, Arc<Bell>)| {
                let id = LaneId(u16::try_from(index).expect("the engine has at most 256 lanes"));
                let mut config = LaneConfig::new(id, secrets, Arc::clone(&backlogs), clock.now());
                config.pools = configs.pools;
                let outlet = FabricOutlet { fabric: fabric.clone(), told: Vec::new() };
                let host = Host { lane: Lane::new(config), outlet };
                let squeue = Squeue::new(host, SQUEUE_ITEMS, Ringer(Arc::clone(&bell)));
                let [is_cleared, is_silent] = [(); 2].map(|()| AtomicBool::new(false));
                Place { squeue, bell, is_cleared, is_silent, last: Mutex::default() }
            };
            let lanes = bells.into_iter().enumerate().map(place).collect();
            Self {
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                clock,
                secrets,
                chance,
                sleepers: Sleepers::default(),
                news: News::default(),
                desk: Desk::default(),
                looks: Desk::default(),
                programs,
                lanes,
                common: configs.lanes,
                backlogs,
                notices: Mutex::default(),
            }
        }))
    }

    /// How many lanes netstacks spread over.
    pub(crate) fn lane_count(&self) -> usize {
        self.common
    }

    /// The lanes that netstacks spread over.
    pub(crate) fn common_lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..self.common).map(|index| LaneId(index as u16))
    }

    /// The lanes in reserve, for links and netstacks that are to have lanes of their own.
    pub(crate) fn reserve(&self) -> impl Iterator<Item = LaneId> + use<> {
        (self.common..self.lanes.len()).map(|index| LaneId(index as u16))
    }

    /// The lanes in which programs can have sockets.
    pub(crate) fn program_lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        self.lane_ids().take(PROGRAM_LANES_MAX)
    }

    /// All lanes: every change reaches those in reserve, too.
    pub(crate) fn lane_ids(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..self.lanes.len()).map(|index| LaneId(index as u16))
    }

    pub(crate) fn squeue(&self, lane: LaneId) -> &LaneSqueue {
        &self.lanes[lane.index()].squeue
    }

    /// Whether a handler has panicked in the lane.
    pub(crate) fn has_failed(&self, lane: LaneId) -> bool {
        self.squeue(lane).is_poisoned()
    }

    /// The worker of the lane has nothing to send for itself any more.
    pub(crate) fn fall_silent(&self, lane: LaneId) {
        self.lanes[lane.index()].is_silent.store(true, Ordering::Release);
    }

    /// Whether no worker has: others' frames leave by its devices.
    pub(crate) fn are_silent(&self) -> bool {
        self.lanes.iter().all(|place| place.is_silent.load(Ordering::Acquire) || place.squeue.is_poisoned())
    }

    /// What a call at a socket of the lane says if it is out of service: nothing more happens there then.
    pub(crate) fn failure<T>(&self, lane: LaneId) -> Option<io::Result<T>> {
        self.has_failed(lane).then(|| Err(lane_failed()))
    }

    /// What a lane had counted when it was read last: all that is known of one that is out of service. Who holds it goes into lanes, and
    /// whom he calls behind that may read it, too.
    pub(crate) fn last_read(&self, lane: LaneId) -> Held<'_, Option<Snapshot>> {
        calls::hold(&self.lanes[lane.index()].last)
    }

    pub(crate) fn bell(&self, lane: LaneId) -> &Arc<Bell> {
        &self.lanes[lane.index()].bell
    }

    /// Marks this thread as the worker of `lane`.
    pub(crate) fn become_worker(&self, lane: LaneId) {
        WORKER_OF.set(Some((self.number, lane)));
    }

    /// Whether this thread is.
    pub(crate) fn is_worker_of(&self, lane: LaneId) -> bool {
        WORKER_OF.get() == Some((self.number, lane))
    }

    /// Enters `lane` with an item: inline if nobody is inside, else it waits there.
    pub(crate) fn enter(&self, lane: LaneId, message: Message) -> Result<(), EnterError> {
        let _stay = Stay::begin();
        let mode = if self.leaves_to_worker(lane) { Mode::Fill } else { Mode::Process };
        match self.squeue(lane).enter(mode, message, &|| self.clock.now()) {
            Ok(_) => Ok(()),
            Err(Refused::Full(_)) => Err(EnterError::Full),
            Err(Refused::Poisoned(_)) => Err(EnterError::LaneFailed),
        }
    }

    /// Whether the lane's worker does what this thread brings. One that runs application code would do its lane's output once per item;
    /// its next turn does it once for all. Another thread that calls wakers would go on with what they bring about for ever.
    fn leaves_to_worker(&self, lane: LaneId) -> bool {
        self.is_worker_of(lane) || calls::is_calling()
    }

    /// Enters `lane` with what must not be lost. If this thread is the lane's worker, its next turn does it, together with
    /// what else the program began and ended meanwhile.
    pub(crate) fn enter_soon(&self, lane: LaneId, message: Message) -> Result<(), EnterError> {
        if !self.leaves_to_worker(lane) {
            return self.enter_surely(lane, message);
        }
        match self.squeue(lane).fill(message) {
            Ok(_) => Ok(()),
            Err(Refused::Full(message)) => self.enter_surely(lane, message),
            Err(Refused::Poisoned(_)) => Err(EnterError::LaneFailed),
        }
    }

    /// Enters `lane` and waits for room if its squeue is full: for changes, which must not be lost.
    pub(crate) fn enter_surely(&self, lane: LaneId, message: Message) -> Result<(), EnterError> {
        let _stay = Stay::begin();
        let mut message = message;
        loop {
            match self.squeue(lane).enter(Mode::Process, message, &|| self.clock.now()) {
                Ok(_) => return Ok(()),
                Err(Refused::Full(back)) => message = back,
                Err(Refused::Poisoned(_)) => return Err(EnterError::LaneFailed),
            }
            self.give_way(lane);
        }
    }

    /// Tells `lane` of a change, which is in force for every frame and call that comes after this has returned.
    pub(crate) fn change(&self, lane: LaneId, change: Message) -> Result<(), EnterError> {
        self.enter_surely(lane, change)?;
        self.catch_up(lane);
        Ok(())
    }

    /// Tells each of a netstack's `lanes` the same of a socket, which is in force everywhere when this has returned. One that has failed
    /// keeps no other from it, and has none of its connections.
    ///
    /// # Errors
    /// All have failed.
    pub(crate) fn tell_lanes(
        &self,
        netstack: NetstackId,
        lanes: &[LaneId],
        command: impl Fn() -> SocketCommand,
    ) -> io::Result<()> {
        // All are told before the first is waited for.
        let tell = |&lane: &LaneId| self.enter_surely(lane, LaneMessage::Socket(netstack, command())).is_ok();
        let told: Vec<_> = lanes.iter().copied().filter(tell).collect();
        told.iter().for_each(|&lane| self.catch_up(lane));
        if told.is_empty() { Err(lane_failed()) } else { Ok(()) }
    }

    /// Waits until `lane` has taken what was entered before, so that what is put in a ring now comes after it. A lane
    /// that is never done with others' items is not waited for without end.
    pub(crate) fn catch_up(&self, lane: LaneId) {
        self.has_caught_up(lane);
    }

    /// The same; whether it was seen without any.
    pub(crate) fn has_caught_up(&self, lane: LaneId) -> bool {
        for _ in 0..CATCH_UP_MAX {
            if self.squeue(lane).waiting() == 0 {
                return true;
            }
            self.give_way(lane);
        }
        false
    }

    /// A lane has failed: the frames that wait there are nobody's, and whoever has fetched them fetches more.
    #[cold]
    pub(crate) fn clear_up(&self, lane: LaneId) {
        let place = &self.lanes[lane.index()];
        if !place.squeue.is_poisoned() || place.is_cleared.swap(true, Ordering::AcqRel) {
            return;
        }
        for message in place.squeue.take_left() {
            if let LaneMessage::Frames(frames) = message {
                self.backlogs.consumed(frames.from, lane, frames.chain.len());
            }
        }
        // Those whose frames it had in its hands are among them.
        self.lanes.iter().for_each(|place| place.bell.ring());
        // Who waits for a socket of the lane is told so when he looks.
        self.sleepers.wake_everybody();
        self.programs.lane_failed(self, lane);
    }

    /// Lets what keeps this thread out of `lane` go on. If this thread is the lane's worker, nobody else will run what
    /// waits there.
    pub(crate) fn give_way(&self, lane: LaneId) {
        let _stay = Stay::begin();
        if self.is_worker_of(lane) {
            calls::note_turn();
            // A lane that has failed says so when it is entered.
            if let Ok(None) = self.squeue(lane).work(Idle::StaysAwake, &|| self.clock.now()) {
                // Another thread is inside.
                std::thread::yield_now();
            }
        } else if !self.squeue(lane).help(&|| self.clock.now()) {
            std::thread::yield_now();
        }
    }

    /// What is known of a connection.
    ///
    /// # Errors
    /// `NotConnected` if it is gone; its lane has failed.
    pub(crate) fn stream_info(&self, lane: LaneId, conn: ConnRef) -> io::Result<StreamInfo> {
        let info = self.visit(lane, |now, lane| lane.stream_info(now, conn));
        info.ok_or_else(lane_failed)?.ok_or_else(|| Errno::NOTCONN.into())
    }

    /// What is known of a datagram socket's way out; nothing if its lane has failed, or does not have it.
    pub(crate) fn datagram_info(
        &self,
        lane: LaneId,
        netstack: NetstackId,
        socket: SocketId,
    ) -> Option<DatagramInfo> {
        self.visit(lane, |now, lane| lane.datagram_info(now, netstack, socket)).flatten()
    }

    /// Does something inside `lane` between two of its items; `None` if it is out of service.
    pub(crate) fn visit<R>(
        &self,
        lane: LaneId,
        mut inside: impl FnMut(Instant, &mut Lane<Queue>) -> R,
    ) -> Option<R> {
        let _stay = Stay::begin();
        let squeue = self.squeue(lane);
        while !squeue.is_poisoned() {
            let now = self.now();
            if let Some(answer) = squeue.visit(now, |host| inside(now, &mut host.lane)) {
                return Some(answer);
            }
            self.give_way(lane);
        }
        None
    }

    /// Does the same inside all lanes that have not failed.
    ///
    /// # Errors
    /// All have failed.
    pub(crate) fn visit_all(&self, mut inside: impl FnMut(&mut Lane<Queue>)) -> Result<(), ChangeError> {
        let visited = self.lane_ids().filter(|&lane| self.visit(lane, |_, it| inside(it)).is_some()).count();
        if visited == 0 { Err(ChangeError::LaneFailed) } else { Ok(()) }
    }

    /// A thread that is about to wait for a socket of `lane`: if the worker pauses, it looks at the devices itself. Whether it did.
    pub(crate) fn look(&self, lane: LaneId) -> bool {
        let bell = self.bell(lane);
        if !bell.is_deaf() {
            return false;
        }
        let _stay = Stay::begin();
        let now = self.now();
        let looked = self.squeue(lane).visit(now, |host| {
            let looked = host.lane.look(now);
            if let Looked::Until(until) = looked {
                // While we are inside: a turn of the worker's that comes after us may say earlier, and is not to be overruled.
                bell.put_off(until.saturating_since(self.now()));
            }
            looked
        });
        if looked == Some(Looked::CallWorker) {
            bell.ring();
        }
        looked.is_some_and(|looked| looked != Looked::NoPause)
    }

    /// Lets the lanes count the text that applications have carried past them, and the frames that ended before them.
    pub(crate) fn count_fused(&self) {
        self.programs.count_fused(self);
        for lane in self.lane_ids() {
            self.visit(lane, |_, lane| lane.count_turned_away());
            let mut from = Some(0);
            while let Some(place) = from {
                from = self.visit(lane, |_, lane| lane.count_fused(place)).flatten();
            }
        }
    }

    /// Makes a driver's queue wake the worker of `lane`.
    pub(crate) fn watch(&self, lane: LaneId, queue: &mut Queue) -> io::Result<()> {
        match queue {
            Queue::Memory(end) => {
                end.set_waker(Waker::from(Arc::clone(self.bell(lane))));
                Ok(())
            }
            Queue::Tap(queue) => queue.watch(self.bell(lane)),
            Queue::Packet(socket) => socket.watch(self.bell(lane)),
            Queue::Shared(queue) => queue.watch(self.bell(lane)),
            Queue::Memif(_) | Queue::AfXdp(_) => match queue.descriptor() {
                Some(descriptor) => self.bell(lane).watch(descriptor),
                None => Ok(()),
            },
        }
    }

    /// Lets the device of a queue that moves wake the worker of `lane` in place of the one that it woke before.
    fn turn_to(&self, lane: LaneId, moving: &mut MovingQueue<Queue>) -> io::Result<()> {
        let before = moving.wakes();
        if before != lane {
            self.watch(lane, moving.driver_mut())?;
            moving.set_wakes(lane);
            if let Some(descriptor) = moving.driver_mut().descriptor() {
                self.bell(before).forget(descriptor);
            }
        }
        Ok(())
    }

    /// What time it was, since 1970, when the lanes' clock began.
    pub(crate) fn epoch(&self) -> Duration {
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        today.saturating_sub(Duration::from_nanos(self.now().nanos()))
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }
}

/// How large an engine's lanes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneSizes {
    pub(crate) lanes: usize,
    /// And how many are kept for links and netstacks that are to have lanes of their own.
    pub(crate) reserve: usize,
    pub(crate) pools: firelane_frame::PoolsConfig,
}

/// A lane's way out. Weak, because the fabric owns the lanes.
#[derive(Debug)]
pub(crate) struct FabricOutlet {
    fabric: Weak<Fabric>,
    /// Sockets that have become ready, and for what.
    told: Vec<(SocketToken, Ready)>,
}

impl FabricOutlet {
    /// Hands a connection to a lane that may have a port for it. If that has failed, whoever waits for it is to be told by the next one.
    fn hand_connect(
        &mut self,
        fabric: &Fabric,
        to: LaneId,
        netstack: NetstackId,
        (mut connect, first): (Box<Connect>, LaneId),
    ) -> Result<(), Message> {
        let mut lane = to;
        loop {
            if !fabric.has_failed(lane) {
                // Should it fail before it has looked, those that wait for it are told.
                connect.stream.shared().set_lane(lane);
            }
            let command = SocketCommand::ConnectElsewhere(connect, first);
            match fabric.squeue(lane).fill(LaneMessage::Socket(netstack, command)) {
                Err(Refused::Poisoned(LaneMessage::Socket(_, SocketCommand::ConnectElsewhere(back, _)))) => {
                    connect = back
                }
                Err(Refused::Full(message) | Refused::Poisoned(message)) => return Err(message),
                Ok(_) => return Ok(()),
            }
            lane = LaneId((lane.0 + 1) % fabric.lanes.len() as u16);
            if lane == first {
                let stream = &connect.stream;
                stream.fail(SocketError::NoPort);
                stream.shared().words().set_flags(Flags::CLOSED);
                stream.tell(Ready::ALL).into_iter().for_each(|token| self.ready(token, Ready::ALL));
                return Ok(());
            }
        }
    }
}

impl Outlet<Queue> for FabricOutlet {
    fn fill(&mut self, lane: LaneId, message: Message) -> Result<(), Message> {
        let Some(fabric) = self.fabric.upgrade() else { return Ok(()) };
        let (lane, message) = match message {
            LaneMessage::Queue(mut moving) => match fabric.turn_to(lane, &mut moving) {
                Ok(()) => (lane, LaneMessage::Queue(moving)),
                // A lane that its device cannot wake is none for it: the one that gave it away gets it back.
                Err(_) => (moving.wakes(), LaneMessage::Queue(moving)),
            },
            message => (lane, message),
        };
        if let LaneMessage::Socket(netstack, SocketCommand::ConnectElsewhere(connect, first)) = message {
            return self.hand_connect(&fabric, lane, netstack, (connect, first));
        }
        match fabric.squeue(lane).fill(message) {
            Ok(_) => Ok(()),
            // Who cannot be asked has nothing: the next one is asked. One that is none of the netstack's passes it on.
            Err(Refused::Poisoned(LaneMessage::Frames(frames)))
                if let Stage::Asked(_, first) = frames.stage
                    && first != lane =>
            {
                let next = LaneId((lane.0 + 1) % fabric.lanes.len() as u16);
                let (from, count) = (frames.from, frames.chain.len());
                self.fill(next, LaneMessage::Frames(frames))?;
                // They were counted as handed over to this lane. The one that they come from looks after it has emptied its outbox.
                fabric.backlogs.pass_on(from, lane, next, count);
                fabric.squeue(next).waker().wake();
                Ok(())
            }
            // Frames are counted where they were to go. What else a lane that has failed was to be told is said to nobody: who kept it
            // would try for ever.
            Err(Refused::Poisoned(message)) if !matches!(message, LaneMessage::Frames(_)) => Ok(()),
            Err(Refused::Full(message) | Refused::Poisoned(message)) => Err(message),
        }
    }

    fn wake(&mut self, lane: LaneId) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.squeue(lane).waker().wake();
        }
    }

    fn ready(&mut self, token: SocketToken, ready: Ready) {
        self.told.push((token, ready));
    }

    fn all_ready(&mut self) {
        if self.told.is_empty() {
            return;
        }
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.programs.tell(&fabric, &mut self.told);
            if !self.told.is_empty() {
                fabric.sleepers.wake_all(&self.told);
            }
        }
        self.told.clear();
    }

    fn join(&mut self, ends: [SocketToken; 2], terms: Terms) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.programs.join(fabric.now(), ends, terms);
        }
    }

    fn part(&mut self, token: SocketToken) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.programs.part(token);
        }
    }

    fn limit(&mut self, token: SocketToken, is_limited: bool) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.programs.limit(token, is_limited);
        }
    }

    fn lend(&mut self, token: SocketToken, bytes: Bytes) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.programs.lend(&fabric, token, bytes);
        }
    }

    fn fault(&mut self, token: SocketToken, fault: &Fault) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.programs.fault(token, fault);
        }
    }

    fn notice(&mut self, lane: LaneId, notice: Notice) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.notices.lock().unwrap_or_else(PoisonError::into_inner).push(lane, notice);
            fabric.news.tell();
        }
    }

    fn answer(&mut self, question: Question) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.desk.hand_back(question.ticket, question);
        }
    }

    fn show(&mut self, look: Look) {
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.looks.hand_back(look.ticket, look);
        }
    }
}

#[cfg(test)]
impl Fabric {
    /// Has a handler panic inside a lane, after `before`.
    pub(crate) fn fail(&self, lane: LaneId, mut before: impl FnMut()) {
        let panics = || {
            self.visit(lane, |_, _| {
                before();
                panic!("a handler has a fault")
            })
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    }
}

#[cfg(test)]
mod tests {
    use firelane_frame::{Chain, Pools, PoolsConfig};
    use firelane_lane::Frames;
    use firelane_socket::ConnRef;
    use firelane_units::{ConnId, LinkId, NetstackId};

    use super::*;
    use crate::engine::{Engine, EngineConfig};

    /// An engine one of whose lanes has failed.
    fn failed(lanes: usize, lane: LaneId) -> Engine {
        let config = EngineConfig { lanes, threads: false, ..EngineConfig::default() };
        let engine = Engine::start(&config).unwrap();
        engine.0.fabric.fail(lane, || ());
        engine
    }

    #[test]
    fn what_is_for_a_lane_that_has_failed_is_kept_by_nobody() {
        let engine = failed(2, LaneId(0));
        let fabric = &engine.0.fabric;
        let mut outlet = FabricOutlet { fabric: Arc::downgrade(fabric), told: Vec::new() };
        let conn = ConnRef { conn: ConnId(0), generation: 1 };
        for lane in [LaneId(0), LaneId(1)] {
            assert!(outlet.fill(lane, LaneMessage::Kick { netstack: NetstackId(0), conn }).is_ok());
        }
        assert_eq!([LaneId(0), LaneId(1)].map(|lane| fabric.squeue(lane).waiting()), [0, 1]);
    }

    #[test]
    fn where_one_lane_has_failed_the_next_is_asked() {
        let engine = failed(4, LaneId(1));
        let fabric = &engine.0.fabric;
        let mut outlet = FabricOutlet { fabric: Arc::downgrade(fabric), told: Vec::new() };
        let mut pools = Pools::new(PoolsConfig { small_slots: 64, large_slots: 4 });
        let mut fill = |first| {
            let stage = Stage::Asked(NetstackId(0), first);
            let chain = Chain::from_iter((0..3).filter_map(|_| pools.copy_of(&[0; 60])));
            fabric.backlogs.add(LaneId(0), chain.len());
            let frames = Frames { from: LaneId(0), stage, link: LinkId(0), chain };
            outlet.fill(LaneId(1), LaneMessage::Frames(frames)).is_ok()
        };
        // Who has handed over three to a lane knows by these whether they are there.
        let taken = || [1, 2, 3].map(|lane| fabric.backlogs.taken(LaneId(0), LaneId(lane)) as isize);
        assert_eq!([LaneId(3), LaneId(1)].map(&mut fill), [true, false], "itself judges nothing");
        assert_eq!([0, 1, 2, 3].map(|lane| fabric.squeue(LaneId(lane)).waiting()), [0, 0, 1, 0]);
        assert!(fabric.bell(LaneId(2)).is_rung());
        assert_eq!(taken(), [3, -3, 0], "what the one asked takes was not handed over to it");
        fabric.fail(LaneId(2), || ());
        assert_eq!(taken(), [3, 0, 0], "it has taken them before");
        assert!(fill(LaneId(3)), "the first one judges");
        assert_eq!(fabric.squeue(LaneId(3)).waiting(), 1);
        assert_eq!(taken(), [6, 0, -3]);
    }

    #[test]
    fn a_worker_of_an_engine_that_is_gone_is_none_of_the_next() {
        let start = || Engine::start(&EngineConfig { threads: false, ..EngineConfig::default() }).unwrap();
        for _ in 0..20 {
            let mut worker = start().workers().remove(0);
            worker.run_once(Some(Duration::ZERO));
            drop(worker);
            // It may well lie where the other one lay.
            assert!(!start().0.fabric.is_worker_of(LaneId(0)));
        }
    }

    #[test]
    fn a_worker_of_one_engine_is_none_of_another() {
        let engines = [(); 2]
            .map(|()| Engine::start(&EngineConfig { threads: false, ..EngineConfig::default() }).unwrap());
        for engine in &engines {
            engine.workers().iter_mut().for_each(|worker| _ = worker.run_once(Some(Duration::ZERO)));
        }
        let conn = ConnRef { conn: ConnId(0), generation: 1 };
        let waiting = engines.each_ref().map(|engine| {
            let fabric = &engine.0.fabric;
            fabric.enter(LaneId(0), LaneMessage::Kick { netstack: NetstackId(0), conn }).unwrap();
            fabric.squeue(LaneId(0)).waiting()
        });
        assert_eq!(waiting, [0, 1], "this thread was the worker of the last one");
    }
}
