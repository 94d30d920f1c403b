//! Unmodified programs: their sockets live in shared memory (`docs/shm.md`), their connections in lanes.
//!
//! Lanes work on the rings where they lie, in the program's arena. A program's kick reaches the worker of its
//! connection's lane, which takes it into the lane ([`Programs::take_kicks`]); what the lane has to tell goes to
//! the program's words and whoever sleeps there ([`Programs::tell`]). What is rare comes as requests to the [`Hub`],
//! which the daemon calls from one thread.
//!
//! - `arena.rs`: one program's memory, and who is to be told. `stream.rs`: one connection.
//! - `datagrams.rs`, `datagram_options.rs`: a datagram socket. `faults.rs`: what it is told of datagrams that did not arrive.
//! - `asked.rs`: questions about a connection.
//! - `segment.rs`: what two programs share whose connections are fused; `spares.rs`: what is left of it when one has gone.
//! - `pages.rs`: memory that goes back to the kernel. `space.rs`: how much address space arenas take.
//! - `waiters.rs`, `sharers.rs`: whom to wake; `wakings.rs`: requests about that.
//! - `pairs.rs`: the descriptors behind sockets. `arrivals.rs`: connections that no socket has as yet. `handing.rs`: telling
//!   listeners' programs of them; `waiting.rs`: where they wait for those.
//! - `ending.rs`: what nobody has any more; `remains.rs`: what the dead have left to be sent.
//! - `offers.rs`: blocks that are made ready to connect; `stream/offered.rs`: what becomes of one. `leaving.rs`: streams that were closed by their words.
//!   `closings.rs`: which of those can wait.
//! - `known.rs`: the programs as a worker knows them, near and quiet ones.
//! - `hangups.rs`: listeners that are closed and that lanes still have.
//! - `hub.rs`, `hub_bell.rs`: sessions and requests, and what wakes who serves them; `session.rs`: a program's session.
//! - `socket.rs`, `options.rs`: a socket before it is a stream, and its options.
//! - `later.rs`: options that wait for a connection. `fixed.rs`, `inert.rs`, `absent.rs`: those that change nothing, or are not done.
//! - `numbers.rs`: what both kinds of options have in common. `addresses.rs`: addresses, and the link that belongs to one.
//! - `shares.rs`: how much one program or user may have of what is for all. `lingering.rs`: who waits for the end of what he has closed.
//! - `shown.rs`: sockets as they are shown. `signals.rs`: SIGIO and SIGURG.

mod absent;
mod addresses;
mod alike;
mod arena;
mod arrivals;
mod asked;
mod closer;
mod closings;
mod cookies;
mod datagram_options;
mod datagrams;
mod ending;
mod faults;
mod fixed;
mod handing;
mod hangups;
mod headers;
mod hub;
mod hub_bell;
mod inert;
mod joining;
mod known;
mod later;
mod leaving;
mod lingering;
mod memberships;
mod numbers;
mod offers;
mod options;
mod pages;
mod pairs;
mod remains;
mod rights;
mod segment;
mod session;
mod sharers;
mod shares;
mod shown;
mod signals;
mod socket;
mod space;
mod spares;
mod stream;
mod waiters;
mod waiting;
mod wakings;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::task::Waker;
use std::time::Duration;

use firelane_frame::Terms;
use firelane_lane::Fault;
use firelane_shm::Spin;
use firelane_shm::layout::Inbox;
use firelane_socket::{Ready, SocketToken};
use firelane_units::{Bytes, Instant, LaneId};

use crate::bell::Bell;
use crate::fabric::{Fabric, Message};
use arena::{ProgramArena, StreamTable};
use hangups::Hangups;
use known::Near;
use leaving::Leaving;
use segment::{Bond, Joined, Segments, Wanted};
use shares::GroupShares;
use space::Space;
use stream::Stream;

pub use closer::{Closer, Foreign};
pub use hub::{Hub, send};
pub(crate) use known::Known;
pub use session::{Kin, Limits, Owner, Reply};
pub use shown::{ExplainedSocket, ProgramSocket};

/// Words of an inbox, of up to 64 streams each, that are looked at in a turn of the lane.
const WORDS_PER_TURN: usize = 64;
/// With more programs near than these a worker sleeps at once: somebody always has news.
const ARENAS_LOOKED_AT: usize = 8;
/// How often a worker looks for news before it ends what can wait: about as long as who has closed takes to ask for something else.
const LOOKS_AT_CLOSINGS: u32 = 32;
/// A look at memory takes some nanoseconds, one at devices a system call.
const LOOKS_PER_GLANCE: u32 = 64;
/// Tokens of programs' streams have it; those of the engine's own sockets are counted from one.
const TOKEN: u64 = 1 << 63;

/// All arenas, and what each lane's worker needs to serve them.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Whether there was ever an arena: an engine without programs pays one load per turn.
    used: AtomicBool,
    arenas: RwLock<Vec<Option<Arc<ProgramArena>>>>,
    /// How often the arenas have changed.
    changes: AtomicU64,
    next_number: AtomicU64,
    lanes: Box<[LaneSide]>,
    /// The address space that is for arenas.
    space: Space,
    segments: Segments,
    leaving: Leaving,
    hangups: Hangups,
    groups: GroupShares,
    /// A lane has failed, and the hub has yet to tell those who listen.
    has_lost_lanes: AtomicBool,
    /// Woken when there is something to do that takes long, which is nothing for a lane.
    idler: Mutex<Option<Waker>>,
    /// A netstack was removed, and nobody has looked whose programs have none any more.
    has_homeless: AtomicBool,
}

/// A lane's worker's own.
#[derive(Debug)]
struct LaneSide {
    bell: Arc<Bell>,
    /// On which CPUs programs are that were told something since the worker last had nothing to do, a bit each, modulo 64.
    told: AtomicU64,
    /// Whether one of these was asleep.
    has_woken: AtomicBool,
    /// Whether the last ones of these were on the worker's CPU. The worker's own.
    shares: AtomicBool,
}

/// Where a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    arena: u32,
    block: u32,
}

impl Place {
    fn token(self) -> SocketToken {
        SocketToken(TOKEN | u64::from(self.arena) << 32 | u64::from(self.block))
    }

    /// `None` if the token is a socket's of the engine's own.
    fn of_token(token: SocketToken) -> Option<Self> {
        let place = Self { arena: ((token.0 & !TOKEN) >> 32) as u32, block: token.0 as u32 };
        (token.0 & TOKEN != 0).then_some(place)
    }
}

/// A program's stream, and its arena.
type End<'a> = (&'a Arc<Stream>, &'a Arc<ProgramArena>);

fn stream_in(table: &StreamTable, place: Place) -> Option<&Arc<Stream>> {
    table.get(place.block as usize)?.as_ref()
}

impl Programs {
    /// For lanes with these bells.
    pub(crate) fn new<'a>(bells: impl Iterator<Item = &'a Arc<Bell>>) -> Self {
        let side = |bell: &Arc<Bell>| LaneSide {
            bell: Arc::clone(bell),
            told: AtomicU64::new(0),
            has_woken: AtomicBool::new(false),
            shares: AtomicBool::new(false),
        };
        Self {
            used: AtomicBool::new(false),
            arenas: RwLock::default(),
            changes: AtomicU64::new(0),
            next_number: AtomicU64::new(1),
            lanes: bells.map(side).collect(),
            space: Space::default(),
            segments: Segments::default(),
            leaving: Leaving::default(),
            hangups: Hangups::default(),
            groups: GroupShares::default(),
            has_lost_lanes: AtomicBool::new(false),
            idler: Mutex::default(),
            has_homeless: AtomicBool::new(false),
        }
    }

    /// Makes an arena, within its program's limits, which the lanes, whose clock began at `start`, serve from then on.
    fn add_arena(
        &self,
        limits: Limits,
        kin: Option<Kin>,
        start: Duration,
    ) -> std::io::Result<Arc<ProgramArena>> {
        // It takes system calls, for which no lane waits that has something to tell.
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let mut arena = ProgramArena::new(&self.space, self.lanes.len(), 0, number, limits, kin)?;
        let start = u64::try_from(start.as_nanos()).unwrap_or(u64::MAX);
        arena.mapping().header().clock_start.store(start, Ordering::Relaxed);
        let arena = {
            let mut arenas = self.arenas.write().unwrap_or_else(PoisonError::into_inner);
            let free = arenas.iter().position(Option::is_none);
            arena.place = free.unwrap_or(arenas.len()) as u32;
            let arena = Arc::new(arena);
            match free {
                Some(place) => arenas[place] = Some(Arc::clone(&arena)),
                None => arenas.push(Some(Arc::clone(&arena))),
            }
            arena
        };
        self.used.store(true, Ordering::Release);
        // A worker that sleeps now has not said so in this arena.
        self.note_change();
        Ok(arena)
    }

    fn remove_arena(&self, place: u32) {
        let mut arenas = self.arenas.write().unwrap_or_else(PoisonError::into_inner);
        let gone = arenas.get_mut(place as usize).and_then(Option::take);
        drop(arenas);
        self.segments.forget(place, gone.as_ref().and_then(|arena| arena.kin()));
        self.note_change();
        gone.into_iter().for_each(|arena| self.segments.pages.bury(arena));
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.lanes.iter().for_each(|lane| lane.bell.ring());
    }

    /// A lane has news of sockets: those of programs are told, and the others are left there.
    pub(crate) fn tell(&self, fabric: &Fabric, told: &mut Vec<(SocketToken, Ready)>) {
        if !told.iter().any(|(token, _)| Place::of_token(*token).is_some()) {
            return;
        }
        let arenas = self.arenas();
        told.retain(|&(token, ready)| {
            let Some(Place { arena, block }) = Place::of_token(token) else { return true };
            if let Some(Some(arena)) = arenas.get(arena as usize) {
                self.tell_one(fabric, arena, block, ready);
            }
            false
        });
    }

    fn tell_one(&self, fabric: &Fabric, arena: &ProgramArena, block: u32, ready: Ready) {
        let is_stream = arena.with_stream(block, |stream| {
            let has_woken = stream.tell(fabric, arena, ready);
            self.note_told(arena, stream.lane(), has_woken);
        });
        if !is_stream {
            arena.datagrams.with(block, |socket| {
                let has_woken = socket.tell(arena, ready);
                self.note_told(arena, socket.lane(), has_woken);
            });
        }
    }

    fn arenas(&self) -> RwLockReadGuard<'_, Vec<Option<Arc<ProgramArena>>>> {
        self.arenas.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane has told a program something, which it may have woken, and waits for what that does next.
    fn note_told(&self, arena: &ProgramArena, lane: LaneId, has_woken: bool) {
        let Some(side) = self.lanes.get(lane.index()) else { return };
        if has_woken {
            side.has_woken.store(true, Ordering::Relaxed);
        }
        if let Some(cpu) = arena.inbox(lane).and_then(Inbox::last_told_on) {
            let bit = bit_of(cpu);
            if side.told.load(Ordering::Relaxed) & bit == 0 {
                side.told.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// A datagram of a program did not arrive.
    pub(crate) fn fault(&self, token: SocketToken, fault: &Fault) {
        let Some(Place { arena, block }) = Place::of_token(token) else { return };
        let arenas = self.arenas();
        if let Some(Some(arena)) = arenas.get(arena as usize) {
            arena.datagrams.with(block, |socket| socket.fault(arena, fault));
        }
    }

    /// A program's stream, and its arena.
    fn stream(&self, Place { arena, block }: Place) -> Option<(Arc<Stream>, Arc<ProgramArena>)> {
        let arena = self.arenas().get(arena as usize)?.clone()?;
        Some((arena.stream(block)?, arena))
    }

    fn stream_of(&self, token: SocketToken) -> Option<(Arc<Stream>, Arc<ProgramArena>)> {
        self.stream(Place::of_token(token)?)
    }

    /// A lane lets two programs fuse a connection on these terms. What takes system calls is left to who has time.
    pub(crate) fn join(&self, now: Instant, tokens: [SocketToken; 2], terms: Terms) {
        let [Some(one), Some(two)] = tokens.map(Place::of_token) else { return };
        // In the order in which their segment names them.
        let mut ends = [(one, terms.limited[0]), (two, terms.limited[1])];
        ends.sort_by_key(|(place, _)| place.arena);
        let places = ends.map(|(place, _)| place);
        self.with_pair(places, |streams| {
            // Before they may write past the lane.
            for ((stream, arena), (_, is_limited)) in streams.into_iter().zip(ends) {
                stream.limit(arena, is_limited);
                stream.end_parting();
            }
            self.join_ends(now, places, streams, terms.most_writes);
        });
    }

    /// Does something with the two ends of a connection, if both are there. Their tables are locked meanwhile, and nobody's count is
    /// touched: lanes do this for each connection.
    fn with_pair(&self, [one, two]: [Place; 2], act: impl FnOnce([End<'_>; 2])) {
        let arenas = self.arenas();
        let arena = |place: Place| arenas.get(place.arena as usize)?.as_ref();
        let (Some(first), Some(second)) = (arena(one), arena(two)) else { return };
        // In the order of their places, since somebody may wait to change each; and a lock that is held is not asked for again.
        let own = first.streams();
        let other = (one.arena != two.arena).then(|| second.streams());
        let other = other.as_ref().unwrap_or(&own);
        if let (Some(one), Some(two)) = (stream_in(&own, one), stream_in(other, two)) {
            act([(one, first), (two, second)]);
        }
    }

    /// Their programs may carry text past the lane, with at most `unread_min` writes unread each way unless that is zero, as long as
    /// nobody has parted them.
    fn join_ends(&self, now: Instant, places: [Place; 2], ends: [End<'_>; 2], unread_min: u32) {
        let is_parted = || ends.into_iter().any(|(stream, _)| stream.is_parted());
        if is_parted() {
            return;
        }
        match ends[0].0.joined() {
            Some(joined) => {
                joined.limit_writes(unread_min);
                joined.offer();
            }
            None => self.make_joint(now, places, ends, unread_min),
        }
        // Whoever parts them says so before he looks for the joint.
        fence(Ordering::SeqCst);
        if is_parted()
            && let Some(joined) = ends[0].0.joined()
        {
            joined.part();
        }
    }

    /// They share what their programs' segment has room for, if there is one, else who has time makes it.
    fn make_joint(&self, now: Instant, places: [Place; 2], ends: [End<'_>; 2], unread_min: u32) {
        match self.segments.of(ends.map(|(_, arena)| arena.place)) {
            Some(segment) => {
                if let Some(bond) = Bond::new(segment, ends, now) {
                    for ((stream, arena), joined) in ends.into_iter().zip(Joined::ends_of(bond)) {
                        joined.limit_writes(unread_min);
                        stream.join(arena, joined);
                    }
                }
            }
            None => {
                let streams = ends.map(|(stream, _)| Arc::downgrade(stream));
                if self.segments.want(Wanted { places, streams, unread_min }) {
                    self.call_idler();
                }
            }
        }
    }

    /// A lane lets nothing more go past it.
    pub(crate) fn part(&self, token: SocketToken) {
        if let Some((stream, _)) = self.stream_of(token) {
            stream.part();
        }
    }

    /// A lane says whether the program of this connection needs credit for what it carries past the lane.
    pub(crate) fn limit(&self, token: SocketToken, is_limited: bool) {
        if let Some((stream, arena)) = self.stream_of(token) {
            stream.limit(&arena, is_limited);
        }
    }

    /// A lane lends it so much.
    pub(crate) fn lend(&self, fabric: &Fabric, token: SocketToken, bytes: Bytes) {
        if let Some((stream, arena)) = self.stream_of(token) {
            stream.lend(fabric, &arena, bytes);
        }
    }

    /// Makes the segments that connections wait for, and joins those. Called by who has time.
    fn make_segments(&self, now: Instant) {
        for Wanted { places, streams, unread_min } in self.segments.take_wanted() {
            // Segments take system calls, in which nobody's table is locked.
            let [Some(one), Some(two)] = places.map(|place| self.stream(place)) else { continue };
            let ends = [(&one.0, &one.1), (&two.0, &two.1)];
            let are_they =
                ends.iter().zip(&streams).all(|((stream, _), it)| Arc::as_ptr(stream) == Weak::as_ptr(it));
            if !are_they {
                continue;
            }
            let arenas = ends.map(|(_, arena)| &**arena);
            let is_there = self.segments.of(arenas.map(|arena| arena.place)).is_some();
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            // Without memory or descriptors the connection stays with TCP.
            if is_there || self.segments.make(number, arenas).is_ok() {
                self.join_ends(now, places, ends, unread_min);
            }
        }
    }

    fn all_arenas(&self) -> Vec<Arc<ProgramArena>> {
        let arenas = self.arenas();
        arenas.iter().flatten().cloned().collect()
    }

    /// A lane is out of service: programs are told at their sockets there.
    pub(crate) fn lane_failed(&self, fabric: &Fabric, lane: LaneId) {
        self.all_arenas().iter().for_each(|arena| arena.lane_failed(fabric, lane));
        self.has_lost_lanes.store(true, Ordering::Release);
        self.call_idler();
    }

    /// Whether lanes have failed since this was last asked.
    fn take_lost_lanes(&self) -> bool {
        self.has_lost_lanes.swap(false, Ordering::AcqRel)
    }

    /// Lets the lanes count what programs have carried past them.
    pub(crate) fn count_fused(&self, fabric: &Fabric) {
        for arena in self.all_arenas() {
            for stream in arena.uncounted() {
                stream.count_fused(fabric);
                stream.joined().into_iter().for_each(Joined::note_use);
            }
        }
    }

    /// A netstack was removed.
    pub(crate) fn netstack_removed(&self) {
        self.has_homeless.store(true, Ordering::Release);
        self.call_idler();
    }

    fn call_idler(&self) {
        if let Some(idler) = &*self.idler.lock().unwrap_or_else(PoisonError::into_inner) {
            idler.wake_by_ref();
        }
    }

    /// Whether there are programs, whose arenas a worker knows then as they are now.
    fn are_known(&self, known: &mut Known) -> bool {
        if !self.used.load(Ordering::Acquire) {
            return false;
        }
        let changes = self.changes.load(Ordering::Acquire);
        if known.changes != changes {
            known.follow(&self.arenas());
            known.changes = changes;
        }
        true
    }

    /// A worker, inside its lane: what programs have kicked for is given to the lane.
    pub(crate) fn take_kicks(
        &self,
        fabric: &Fabric,
        lane: LaneId,
        known: &mut Known,
        now: Instant,
        mut give: impl FnMut(Message),
    ) {
        if !self.are_known(known) {
            return;
        }
        // Who has its CPU goes on when it is done, and asks for nothing before.
        let shares = self.lanes.get(lane.index()).is_some_and(|side| side.shares.load(Ordering::Relaxed));
        known.hear(lane, here);
        let Known { near, closings, is_closing, looked, .. } = known;
        let may_begin = || {
            let holds = self.hangups.holds_now(looked, now);
            if holds {
                self.call_idler();
            }
            !holds
        };
        let (mut was_busy, mut has_given, mut closed) = (false, false, 0);
        *is_closing = false;
        for Near { arena, silent } in near {
            let later = |block| {
                *is_closing = true;
                closings.put((Arc::clone(arena), block));
            };
            let noted = |message| {
                has_given = true;
                give(message);
            };
            let taken = arena.take_kicks(lane, fabric, may_begin, later, noted);
            if taken.is_some() {
                (was_busy, *silent) = (true, 0);
            }
            let here = taken.unwrap_or(0);
            self.note_left(arena, here > 0);
            closed += here;
        }
        // Who has asked for something else, too, is busy with that next.
        *is_closing &= !has_given;
        let due = closings.take_due(was_busy && !shares);
        let mut close = |(arena, block): &(Arc<ProgramArena>, u32)| {
            let is_closed = arena.close(lane, fabric, *block, &mut give);
            self.note_left(arena, is_closed);
            is_closed
        };
        closed += due.filter(|it| close(it)).count();
        if self.leaving.note(now, closed) {
            self.call_idler();
        }
    }

    /// A worker has closed streams of an arena, or begun some, if that is so.
    fn note_left(&self, arena: &ProgramArena, has_some: bool) {
        if has_some && arena.has_new_left() {
            self.leaving.are_in(arena.place);
        }
    }

    /// The arenas with streams that lanes have closed, or begun, since this was last asked.
    fn take_leaving(&self) -> Vec<Arc<ProgramArena>> {
        let places = self.leaving.take_arenas();
        let arenas = self.arenas();
        let known = places.into_iter().filter_map(|place| arenas.get(place as usize)?.clone());
        known.inspect(|arena| arena.left_are_known()).collect()
    }

    /// A worker that is about to sleep: how long it may until it is to ask again, because of streams that nobody has any more.
    pub(crate) fn patience(&self, now: impl FnOnce() -> Instant) -> Option<Duration> {
        let patience = self.leaving.patience(now)?;
        if patience.is_zero() {
            self.call_idler();
            return None;
        }
        Some(patience)
    }

    /// Who has time for what takes long.
    fn set_idler(&self, waker: Waker) {
        *self.idler.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// A worker that has nothing to do looks for what comes next: an answer that a program is about to give costs neither
    /// side a wake-up then. Whether something came. How long is for `spin` to say, by what it has been worth. Where a program that it
    /// has told something is on its own CPU, it gives `way` to that one.
    pub(crate) fn await_news(
        &self,
        lane: LaneId,
        known: &mut Known,
        (spin, way): (&mut Spin, &mut Spin),
        is_deaf: bool,
    ) -> bool {
        if !self.are_known(known) {
            return false;
        }
        let Known { near, closings, .. } = known;
        if near.is_empty() || near.len() > ARENAS_LOOKED_AT {
            return closings.are_there();
        }
        let Some(side) = self.lanes.get(lane.index()) else { return false };
        self.hangups.look_ahead(&known.looked);
        let has_news = || side.bell.is_rung() || near.iter().any(|it| it.arena.has_news(lane));
        if side.shares_cpu(here()) {
            let mut has_passed = false;
            let is_there =
                || has_news() || std::mem::replace(&mut has_passed, true) && side.bell.glance(is_deaf);
            return closings.are_there() || way.until(is_there);
        }
        if closings.are_there() {
            (0..LOOKS_AT_CLOSINGS).any(|_| {
                std::hint::spin_loop();
                has_news()
            });
            return true;
        }
        if side.has_woken.load(Ordering::Relaxed) {
            side.has_woken.store(false, Ordering::Relaxed);
            spin.has_woken();
        }
        let mut looks = 0u32;
        spin.until(|| {
            looks += 1;
            has_news() || (looks.is_multiple_of(LOOKS_PER_GLANCE) && side.bell.glance(is_deaf))
        })
    }

    /// A worker that is about to sleep: programs are to ring from here on. Whether it may.
    pub(crate) fn fall_asleep(&self, lane: LaneId, known: &mut Known) -> bool {
        !self.are_known(known) || known.fall_asleep(lane, |rings| self.segments.pages.trim(rings))
    }

    /// A worker that is awake again.
    pub(crate) fn wake_up(&self, lane: LaneId, known: &mut Known) {
        if self.are_known(known) {
            known.wake_up(lane, here());
        }
    }
}

impl LaneSide {
    /// A worker that has nothing to do: whether programs that it has told something are on its CPU.
    fn shares_cpu(&self, cpu: u16) -> bool {
        let told = self.told.swap(0, Ordering::Relaxed);
        if told != 0 {
            self.shares.store(told & bit_of(cpu.into()) != 0, Ordering::Relaxed);
        }
        self.shares.load(Ordering::Relaxed)
    }
}

/// A CPU among 64 of them; others that have the same bit cost a look, or a wake-up.
const fn bit_of(cpu: u32) -> u64 {
    1 << (cpu % u64::BITS)
}

/// The CPU on which the caller is.
fn here() -> u16 {
    u16::try_from(rustix::thread::sched_getcpu()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineConfig};
    use firelane_shm::joint::way;

    #[test]
    fn a_worker_knows_whether_those_it_has_told_something_are_on_its_cpu() {
        let programs = Programs::new([Bell::new().unwrap()].iter());
        let arenas = [(); 2].map(|()| programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap());
        let (lane, side) = (LaneId(0), &programs.lanes[0]);
        let tell = |nth: usize| programs.note_told(&arenas[nth], lane, false);
        tell(0);
        assert!(!side.shares_cpu(0), "it has not said where it is");
        arenas[0].inbox(lane).unwrap().is_told_on(3);
        arenas[1].inbox(lane).unwrap().is_told_on(4);
        tell(0);
        assert!(side.shares_cpu(3) && side.shares_cpu(3), "nobody else was told anything since");
        tell(1);
        assert!(!side.shares_cpu(3));
        tell(0);
        tell(1);
        assert!(side.shares_cpu(4), "one of them is");
        programs.note_told(&arenas[0], LaneId(7), true);
        assert!(side.shares_cpu(4), "no such lane");
    }

    #[test]
    fn a_worker_gives_way_to_a_program_that_needs_its_cpu() {
        let programs = Programs::new([Bell::new().unwrap()].iter());
        let arena = programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap();
        let (lane, side) = (LaneId(0), &programs.lanes[0]);
        let inbox = arena.inbox(lane).unwrap();
        let (mut ways, mut known) = ((Spin::at_most(2048, 2), Spin::at_most(2048, 2)), Known::default());
        let shown = |(spin, way): &(Spin, Spin)| (format!("{spin:?}"), format!("{way:?}"));
        let mut await_news =
            |ways: &mut (Spin, Spin)| programs.await_news(lane, &mut known, (&mut ways.0, &mut ways.1), true);
        side.bell.clear();
        side.told.store(u64::MAX, Ordering::Relaxed);
        // What is left of the trials shows how it has waited in vain.
        let before = shown(&ways);
        assert!(!await_news(&mut ways));
        let gave_way = shown(&ways);
        assert!(gave_way.0 == before.0 && gave_way.1 != before.1, "it has not looked, but given way");
        inbox.tell(5);
        assert!(await_news(&mut ways), "what is there already is taken");
        while inbox.news.take_word().is_some() {}
        side.shares.store(false, Ordering::Relaxed);
        let before = shown(&ways);
        assert!(!await_news(&mut ways));
        let looked = shown(&ways);
        assert!(looked.0 != before.0 && looked.1 == before.1, "it has looked");
        programs.wake_up(lane, &mut known);
        assert!((0..=u16::MAX).any(|cpu| inbox.was_on(cpu)), "programs know where it is");
    }

    #[test]
    fn what_is_parted_before_there_is_a_segment_stays_so_until_it_is_joined_again() {
        for parts in [0, 1] {
            let programs = Programs::new([Bell::new().unwrap()].iter());
            let arenas =
                [(); 2].map(|()| programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap());
            let streams = [0, 1].map(|nth| Stream::connected(&arenas[nth], nth as u32));
            let place = |nth: usize| Place { arena: arenas[nth].place, block: streams[nth].number() };
            let tokens = [0, 1].map(|nth| place(nth).token());
            let terms = Terms { most_writes: 0, limited: [false; 2] };
            let is_offered = || streams[0].joined().is_some_and(Joined::is_offered);
            programs.join(Instant::ZERO, tokens, terms);
            programs.part(tokens[parts]);
            programs.make_segments(Instant::ZERO);
            assert!(!is_offered(), "the lane has parted them before");
            programs.join(Instant::ZERO, tokens, terms);
            programs.make_segments(Instant::ZERO);
            assert!(is_offered());
            programs.part(tokens[parts]);
            assert!(!is_offered());
        }
    }

    /// A program writes so much to its end of a joint, as far as the daemon sees it, and the peer reads it all.
    fn carry(joined: &Joined, bytes: usize) {
        let (mapping, number, at) = joined.place();
        let joint = mapping.joint(number).unwrap();
        let storage = joined.storage();
        assert!(mapping.copy_in(storage, &vec![7; bytes]));
        let [written, _] = joint.passed(at);
        joint.sides[at].state.fetch_add((bytes as u64) << way::WRITTEN_SHIFT, Ordering::SeqCst);
        joint.sides[1 - at].head.store(written + bytes as u64, Ordering::SeqCst);
    }

    #[test]
    fn a_fused_connection_at_rest_keeps_little_memory_and_goes_on() {
        let programs = Programs::new([Bell::new().unwrap()].iter());
        let arenas = [(); 2].map(|()| programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap());
        let streams = [0, 1].map(|nth| Stream::connected(&arenas[nth], nth as u32));
        let place = |nth: usize| Place { arena: arenas[nth].place, block: streams[nth].number() };
        let terms = Terms { most_writes: 0, limited: [false; 2] };
        programs.join(Instant::ZERO, [place(0).token(), place(1).token()], terms);
        programs.make_segments(Instant::ZERO);
        let (joined, pages) = (streams[0].joined().unwrap(), &programs.segments.pages);
        let memory = || joined.memory();
        let before = memory();
        let big = 300_000;
        carry(joined, big);
        assert!(memory() >= before + big as u64);
        joined.note_use();
        assert!(pages.look_for_rest() && memory() >= before + big as u64, "it was not looked at before");
        carry(joined, 1);
        assert!(pages.look_for_rest() && memory() >= before + big as u64, "it has carried something since");
        assert!(!pages.look_for_rest() && memory() <= before + (64 << 10));
        assert!(joined.is_offered(), "it goes on");
        // A lane parts it while its memory goes back, or has done so.
        carry(joined, big);
        joined.note_use();
        programs.part(place(1).token());
        assert!(pages.look_for_rest() && !pages.look_for_rest());
        assert!(memory() <= before + (64 << 10) && !joined.is_offered());
        programs.join(Instant::ZERO, [place(0).token(), place(1).token()], terms);
        assert!(joined.is_offered());
    }

    #[test]
    fn a_segment_joins_those_who_have_waited_for_it_and_not_who_has_their_places() {
        let programs = Programs::new([Bell::new().unwrap()].iter());
        let arenas = [(); 2].map(|()| programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap());
        let [one, two] = [0, 1].map(|nth| Stream::connected(&arenas[nth], nth as u32));
        let place = |nth: usize, stream: &Stream| Place { arena: arenas[nth].place, block: stream.number() };
        let tokens = [place(0, &one).token(), place(1, &two).token()];
        programs.join(Instant::ZERO, tokens, Terms { most_writes: 0, limited: [false; 2] });
        let block = two.number();
        arenas[1].remove(&two);
        drop(two);
        let next = Stream::connected(&arenas[1], 9);
        assert_eq!(next.number(), block);
        programs.make_segments(Instant::ZERO);
        assert!(one.joined().is_none() && next.joined().is_none());
    }

    #[test]
    fn a_program_that_names_nobodys_blocks_keeps_a_lane_no_longer_than_for_a_few() {
        let config = EngineConfig { lanes: 2, threads: false, ..EngineConfig::default() };
        let engine = Engine::start(&config).unwrap();
        let fabric = &engine.0.fabric;
        let arena = fabric.programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap();
        // A stream of another lane's is nothing for this one, either.
        let (lane, stream) = (LaneId(1), Stream::connected(&arena, 1));
        let inbox = arena.inbox(lane).unwrap();
        let looks = |blocks: u32| {
            (0..blocks).for_each(|block| _ = inbox.tell(block));
            let mut looks = 0;
            while arena.has_news(lane) {
                arena.take_kicks(lane, fabric, || true, |_| (), |_| ());
                looks += 1;
            }
            looks
        };
        // A last look finds that there is nothing more.
        assert_eq!((looks(1), looks(64), looks(64 * 64)), (1, 2, 65));
        assert!(arena.inbox(stream.lane()).unwrap().news.any(), "it is told where the stream is");
    }

    #[test]
    fn lanes_do_not_wait_while_an_arena_is_made() {
        let programs = Programs::new([Bell::new().unwrap()].iter());
        std::thread::scope(|scope| {
            // A lane tells programs something.
            let lane = programs.arenas();
            let begun = std::time::Instant::now();
            let added = scope.spawn(|| programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap());
            while programs.space.taken() == 0 && begun.elapsed() < Duration::from_secs(10) {
                std::thread::yield_now();
            }
            assert!(programs.space.taken() > 0, "it is made before anybody is kept from the table");
            drop(lane);
            assert_eq!(added.join().unwrap().place, 0);
        });
    }

    #[test]
    fn who_comes_when_much_address_space_is_taken_gets_a_small_arena_and_it_comes_back() {
        let programs = Programs::new([Bell::new().unwrap()].iter());
        let add = || programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap();
        let len = |arena: &ProgramArena| arena.mapping().layout().len();
        let first = add();
        let before = programs.space.share();
        let others = programs.space.take(900 * (before - (1 << 30)));
        let small = add();
        assert_eq!(programs.space.taken(), 900 * (before - (1 << 30)) + len(&first) + len(&small));
        assert!(len(&small) <= 1 << 30 && len(&small) > 1 << 29 && len(&first) > 64 << 30);
        drop(others);
        for arena in [first, small] {
            programs.remove_arena(arena.place);
            assert!(programs.space.taken() > 0, "it is mapped");
            drop(arena);
            programs.segments.pages.work();
        }
        assert_eq!(programs.space.taken(), 0);
    }

    #[test]
    fn tokens_of_streams_are_no_others() {
        for place in [Place { arena: 0, block: 0 }, Place { arena: 0x7fff_ffff, block: u32::MAX }] {
            assert_eq!(Place::of_token(place.token()), Some(place));
        }
        assert_eq!(Place::of_token(SocketToken(u64::from(u32::MAX) + 1)), None);
    }
}
