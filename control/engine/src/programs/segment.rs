//! Segments: memory that two programs share whose connections are fused (TCP Fusion; the words in `drivers/shm`).
//!
//! One for each two arenas between which there is such a connection, also for an arena and itself. Nobody maps it but the
//! two programs, who ask for it when they find it named in a stream's words, and the daemon. The lane decides which
//! connections may be fused; here they get a joint ([`Bond`]), which they keep as long as they last. What a program that has left has had
//! is emptied (`pages.rs`), and another's (`spares.rs`).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};

use firelane_frame::ArenaPair;
use firelane_shm::joint::{Lie, SideConfig};
#[cfg(test)]
use firelane_shm::joint::{Side, way};
use firelane_shm::{Arena, Joint, Layout};
use firelane_socket::ConnRef;
use firelane_units::{Bytes, Instant};

use super::Place;
use super::arena::ProgramArena;
use super::pages::Pages;
use super::session::Kin;
use super::spares::Spare;
use super::stream::Stream;
use super::waiters::Waiters;

/// The most fused connections between two programs at a time.
const JOINTS: u32 = 1 << 16;
/// Address space of their rings: memory is what was touched.
const STORAGE_BYTES: u64 = 64 << 30;
/// As many segments fit the daemon's address space beside as many arenas (128 TiB). Programs beyond stay with TCP.
pub(super) const SEGMENTS_MAX: usize = if cfg!(test) { 100 } else { 1024 };
/// Pairs that wait for their segment. Those behind them stay with TCP.
const WANTED_MAX: usize = 4096;

/// What a direction at rest keeps of its storage: short texts begin with it and touch no more.
const KEPT_BYTES: usize = 16 << 10;

/// No program sends more in its life.
const COUNT_MAX: u64 = 1 << 60;
/// No memory carries more: bytes in a nanosecond.
const BYTES_PER_NANO: u64 = 256;

/// Two arenas, by their places, the lower first.
pub(super) type Sides = [u32; 2];

/// The memory that two programs share.
#[derive(Debug)]
pub(super) struct Segment {
    arena: Arena,
    /// How much of it may be in use at a time.
    memory: u64,
    /// The places of the arenas of its sides, and their numbers.
    pub(super) sides: Sides,
    pub(super) numbers: [u64; 2],
    /// Whose programs have asked for its memory.
    mapped: [AtomicBool; 2],
    /// Whose programs are gone.
    left: [AtomicBool; 2],
    /// How many connections have something there.
    holds: AtomicU32,
    pub(super) waiters: Waiters,
    /// Who is told when there is memory to give back.
    pages: Weak<Pages>,
}

impl Segment {
    fn new(number: u64, ends: [&ProgramArena; 2], pages: Weak<Pages>) -> io::Result<Self> {
        let layout = layout_for(ends).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = memory_for(ends);
        let quota = memory.min(layout.storage_bytes);
        let arena = Arena::create_within(layout, number, quota).map_err(io::Error::other)?;
        let (sides, numbers) = names(ends);
        let (mapped, left, holds, waiters) = Default::default();
        Ok(Self { arena, memory, sides, numbers, mapped, left, holds, waiters, pages })
    }

    /// The same between others, of whom one has it.
    pub(super) fn between(mut self, ends: [&ProgramArena; 2], newcomer: usize) -> Self {
        (self.sides, self.numbers) = names(ends);
        self.mapped = [0, 1].map(|at| AtomicBool::new(at != newcomer));
        self.left = Default::default();
        self
    }

    /// Whether one that is made for these would be like it.
    pub(super) fn fits(&self, ends: [&ProgramArena; 2]) -> bool {
        layout_for(ends).as_ref() == Some(self.arena.mapping().layout()) && memory_for(ends) == self.memory
    }

    /// Who has some arenas, by their numbers, asks for its memory. Whether a side is his.
    pub(super) fn is_asked_by(&self, has: impl Fn(u64) -> bool) -> bool {
        let own = self.numbers.map(has);
        for (mapped, _) in self.mapped.iter().zip(own).filter(|(_, is_own)| *is_own) {
            mapped.store(true, Ordering::Relaxed);
        }
        own.contains(&true)
    }

    pub(super) fn is_mapped_by(&self, at: usize) -> bool {
        self.mapped[at].load(Ordering::Relaxed)
    }

    /// The arena in this place is gone: nobody joins connections here any more.
    fn is_gone(&self, place: u32) {
        for (left, _) in self.left.iter().zip(self.sides).filter(|(_, side)| *side == place) {
            left.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn is_left_by(&self, at: usize) -> bool {
        self.left[at].load(Ordering::SeqCst)
    }

    /// Whether no connection has anything there.
    pub(super) fn is_idle(&self) -> bool {
        self.holds.load(Ordering::SeqCst) == 0
    }

    /// The memfd, and its number.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }
}

/// A connection's hold on its segment. It is let go behind what the connection had there.
#[derive(Debug)]
pub(super) struct Hold(Arc<Segment>);

impl Hold {
    pub(super) fn new(segment: Arc<Segment>) -> Self {
        segment.holds.fetch_add(1, Ordering::SeqCst);
        Self(segment)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Self(segment) = self;
        let is_last = segment.holds.fetch_sub(1, Ordering::SeqCst) == 1;
        // Who has been told before that a program is gone has found a connection here.
        if is_last && [0, 1].into_iter().any(|at| segment.is_left_by(at)) {
            segment.pages.upgrade().into_iter().for_each(|pages| pages.look());
        } else if segment.arena.rings().calls_for_time() {
            segment.pages.upgrade().into_iter().for_each(|pages| pages.trim(segment.arena.rings()));
        }
    }
}

/// What they share has room in both. A program may share several.
fn layout_for(ends: [&ProgramArena; 2]) -> Option<Layout> {
    let room = ends[0].room.min(ends[1].room) / 4;
    Layout { lanes: 1, blocks: JOINTS, storage_bytes: STORAGE_BYTES }.within(room)
}

/// How much of what they share may be in use at a time: neither has more than its program may have.
fn memory_for(ends: [&ProgramArena; 2]) -> u64 {
    ends[0].memory.min(ends[1].memory)
}

/// The places of arenas, and their numbers.
fn names(ends: [&ProgramArena; 2]) -> (Sides, [u64; 2]) {
    (ends.map(|end| end.place), ends.map(|end| end.arena().number()))
}

/// Two connections that wait for their segment.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) places: [Place; 2],
    /// Who they were: their places may be others' by the time that there is a segment.
    pub(super) streams: [Weak<Stream>; 2],
    /// As many writes may be unread; zero is any number.
    pub(super) unread_min: u32,
}

/// All segments, and connections that wait for theirs.
#[derive(Debug, Default)]
pub(super) struct Segments {
    made: RwLock<BTreeMap<Sides, Arc<Segment>>>,
    /// All that are in use, by their numbers: connections keep theirs when one of the programs is gone.
    used: RwLock<BTreeMap<u64, Weak<Segment>>>,
    wanted: Mutex<Vec<Wanted>>,
    pub(super) pages: Arc<Pages>,
}

impl Segments {
    pub(super) fn of(&self, sides: Sides) -> Option<Arc<Segment>> {
        self.made.read().unwrap_or_else(PoisonError::into_inner).get(&sides).cloned()
    }

    pub(super) fn numbered(&self, number: u64) -> Option<Arc<Segment>> {
        self.used.read().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }

    fn each(&self, mut act: impl FnMut(&Segment)) {
        let used = self.used.read().unwrap_or_else(PoisonError::into_inner);
        used.values().filter_map(Weak::upgrade).for_each(|segment| act(&segment));
    }

    /// Makes one, which takes system calls: no lane does it. It has this number, unless there is a spare one.
    pub(super) fn make(&self, number: u64, ends: [&ProgramArena; 2]) -> io::Result<Arc<Segment>> {
        let spare = self.pages.take_spare(ends);
        if spare.is_none() {
            self.make_room()?;
        }
        let segment =
            Arc::new(spare.map_or_else(|| Segment::new(number, ends, Arc::downgrade(&self.pages)), Ok)?);
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        let segment = Arc::clone(made.entry(segment.sides).or_insert(segment));
        let mut used = self.used.write().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, segment| segment.strong_count() > 0);
        used.insert(segment.arena.number(), Arc::downgrade(&segment));
        Ok(segment)
    }

    /// Sees to it that there may be another one: what is spare goes first.
    fn make_room(&self) -> io::Result<()> {
        let count = || {
            let mut used = self.used.write().unwrap_or_else(PoisonError::into_inner);
            used.retain(|_, segment| segment.strong_count() > 0);
            used.len()
        };
        if count() >= SEGMENTS_MAX {
            self.pages.spares.clear();
        }
        if count() < SEGMENTS_MAX { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// Forgets those of an arena that is gone, which programs of one kin have seen. Connections keep what they use.
    pub(super) fn forget(&self, place: u32, kin: Option<Kin>) {
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        let gone = made.extract_if(.., |sides, _| sides.contains(&place)).map(|(_, segment)| segment);
        let gone: Vec<_> = gone.collect();
        drop(made);
        self.each(|segment| segment.is_gone(place));
        // Of those that wait to be spare ones some are none now.
        let spares = self.pages.spares.forget(place);
        self.pages.leave(gone.into_iter().map(|it| Spare::new(it, place, kin)).chain(spares));
    }

    /// Two connections wait for a segment. Whether they are remembered.
    pub(super) fn want(&self, one: Wanted) -> bool {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = wanted.len() < WANTED_MAX;
        if has_room {
            wanted.push(one);
        }
        has_room
    }

    pub(super) fn take_wanted(&self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A session has ended: what it waited with is gone.
    pub(super) fn forget_waiters(&self, session: u32) {
        self.each(|segment| {
            segment.waiters.remove(segment.arena.mapping(), session, None);
        });
    }
}

/// One end of a fused connection, as the other sees it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) stream: Weak<Stream>,
    pub(super) arena: Weak<ProgramArena>,
    pub(super) conn: ConnRef,
}

impl Credit {
    /// How much more than it has credit for it would like to write, as it says.
    fn lacks(&self, asked: u64) -> Option<Bytes> {
        let lacks = asked.wrapping_sub(self.granted);
        (self.is_limited && lacks.cast_signed() > 0).then_some(Bytes(lacks))
    }

    /// It gets so much more, where it says what it would like to write and has written. Whether it asks again at once: who has
    /// used up all before will use this, too, and nobody has more than two loans unused.
    fn lend(&mut self, bytes: Bytes, [asked, written]: [u64; 2]) -> bool {
        let has_used_all = self.granted.wrapping_sub(written).cast_signed() <= 0;
        self.granted = self.granted.wrapping_add(bytes.0);
        self.is_asked = false;
        has_used_all && self.lacks(asked).is_some()
    }
}

/// What the two ends of a fused connection share.
#[derive(Debug)]
pub(super) struct Bond {
    pair: ArenaPair,
    /// Behind the pair: it tells of what the pair gives back.
    segment: Hold,
    ends: [End; 2],
    /// Whose program has left.
    closed: [AtomicBool; 2],
    /// Whose program wants all to go by the lane.
    apart: [AtomicBool; 2],
    /// Somebody who has an end cannot reach it.
    is_given_up: AtomicBool,
    counted: Mutex<Counted>,
    /// What limits allow each end to write.
    credit: [Mutex<Credit>; 2],
    /// Who offers it reads this and never waits; who takes it out of use to give its memory back has it for himself (J11).
    offering: RwLock<()>,
    /// Somebody looks whether it has come to rest.
    is_watched: AtomicBool,
    /// What each end had written when its storage last had no memory.
    emptied: [AtomicU64; 2],
}

/// What limits allow one end to write. What its program sees is a copy (J8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Credit {
    is_limited: bool,
    /// Up to where it may write.
    granted: u64,
    /// The lane has been asked for more.
    is_asked: bool,
}

/// What the ends had written when that was last counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// When it was, or before: what is written while who counts has no CPU comes with the next count, whose time has to begin there.
    at: Instant,
    written: [u64; 2],
}

impl Counted {
    /// What has been written since, if that can be true: the ends' counts are their programs' words (J6), which were read between the
    /// two times. At most `buffers` were written in no time.
    fn advance(
        &mut self,
        [before, behind]: [Instant; 2],
        written: [u64; 2],
        buffers: [u64; 2],
    ) -> Result<[u64; 2], Lie> {
        let nanos = behind.saturating_since(self.at).as_nanos().min(u64::MAX.into()) as u64;
        let came = [0, 1].map(|at| written[at].wrapping_sub(self.written[at]));
        let is_true =
            |at: usize| came[at] <= nanos.saturating_mul(BYTES_PER_NANO).saturating_add(buffers[at]);
        *self = Self { at: before, written };
        if is_true(0) && is_true(1) { Ok(came) } else { Err(Lie) }
    }
}

impl Bond {
    /// Makes a joint for two streams, unless the segment has no room for one. Offers nothing as yet.
    pub(super) fn new(
        segment: Arc<Segment>,
        ends: [(&Arc<Stream>, &Arc<ProgramArena>); 2],
        now: Instant,
    ) -> Option<Arc<Self>> {
        let [one, two] = ends.map(|(stream, _)| stream.capacities());
        let directions = [[one[0], two[1]], [two[0], one[1]]];
        let size = |[send, receive]: [u32; 2]| {
            (send as usize + receive as usize).next_power_of_two().clamp(1 << 12, 1 << 30)
        };
        let sizes = directions.map(size);
        let pair = segment.arena.rings().take_pair(sizes)?;
        let mut at = 0;
        let configs = directions.map(|[send, receive]| {
            let config = SideConfig {
                storage: pair.storage(at) as u64,
                size: sizes[at],
                send,
                receive,
                block: ends[at].0.number(),
            };
            at += 1;
            config
        });
        segment.arena.mapping().joint(pair.block())?.make(configs);
        let conns = ends.map(|(stream, _)| stream.conn());
        let [Some(first), Some(second)] = conns else { return None };
        let mut conns = [first, second].into_iter();
        let ends = ends.map(|(stream, arena)| End {
            stream: Arc::downgrade(stream),
            arena: Arc::downgrade(arena),
            conn: conns.next().unwrap_or(first),
        });
        let counted = Mutex::new(Counted { at: now, written: [0; 2] });
        let segment = Hold::new(segment);
        let (closed, apart, is_given_up, credit) = Default::default();
        let (offering, is_watched, emptied) = Default::default();
        Some(Arc::new(Self {
            pair,
            segment,
            ends,
            closed,
            apart,
            is_given_up,
            counted,
            credit,
            offering,
            is_watched,
            emptied,
        }))
    }

    fn joint(&self) -> &Joint {
        let joint = self.segment.0.arena.mapping().joint(self.pair.block());
        joint.expect("the block is the segment's")
    }

    /// What both ends have written, as they say.
    fn written(&self) -> [u64; 2] {
        [0, 1].map(|at| self.joint().passed(at)[0])
    }

    /// How much of an end's storage may have memory, where it says that it has written so much.
    fn touched(&self, at: usize, written: u64) -> u64 {
        match self.emptied[at].load(Ordering::Relaxed) {
            0 => written,
            emptied => written.wrapping_sub(emptied).saturating_add(KEPT_BYTES as u64),
        }
    }

    /// Gives the memory of its storage back, if it is at rest: nothing was written since the last look, and all was read. Otherwise it is
    /// to be looked at again. It takes long.
    pub(super) fn give_pages_back(self: &Arc<Self>, last: &mut Option<[u64; 2]>) -> bool {
        let (written, joint) = (self.written(), self.joint());
        if last.replace(written) != Some(written) || [0, 1].into_iter().any(|at| joint.unread(at) > 0) {
            return false;
        }
        let Ok(alone) = self.offering.try_write() else { return false };
        for at in (0..2).filter(|&at| self.touched(at, written[at]) > 2 * KEPT_BYTES as u64) {
            if joint.rest(at) {
                self.pair.give_pages_back(at, KEPT_BYTES);
                self.emptied[at].store(written[at], Ordering::Relaxed);
            }
        }
        drop(alone);
        self.offer_again();
        self.is_watched.store(false, Ordering::SeqCst);
        // What was counted before that was not said here.
        self.written() == written || self.is_watched.swap(true, Ordering::SeqCst)
    }

    /// Both ends may use it again, unless somebody has wanted it otherwise, who has said so before he parted it. Who wanted to offer it
    /// meanwhile has left it to this.
    fn offer_again(self: &Arc<Self>) {
        let streams = self.ends.each_ref().map(|end| end.stream.upgrade());
        let is_parted = || streams.iter().any(|it| it.as_ref().is_none_or(|stream| stream.is_parted()));
        if is_parted() {
            return;
        }
        let joined = Joined { bond: Arc::clone(self), at: 0 };
        joined.offer();
        fence(Ordering::SeqCst);
        if is_parted() {
            joined.part();
        }
    }
}

impl Drop for Bond {
    /// What the programs say they have written is how much memory their storage may have taken.
    fn drop(&mut self) {
        for at in 0..2 {
            let [written, _] = self.joint().passed(at);
            self.pair.note_passed(at, self.touched(at, written));
        }
    }
}

/// A stream's end of what it shares with its peer.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    bond: Arc<Bond>,
    at: usize,
}

impl Joined {
    /// Those of both.
    pub(super) fn ends_of(bond: Arc<Bond>) -> [Self; 2] {
        [Self { bond: Arc::clone(&bond), at: 0 }, Self { bond, at: 1 }]
    }

    /// Its segment's number, and the joint and the end as the stream's words have them.
    pub(super) fn names(&self) -> [u64; 2] {
        [self.bond.segment.0.arena.number(), u64::from(self.bond.pair.block()) << 1 | self.at as u64]
    }

    fn joint(&self) -> &Joint {
        self.bond.joint()
    }

    /// Both ends may use it.
    pub(super) fn offer(&self) {
        let offering = self.bond.offering.try_read();
        if matches!(offering, Err(TryLockError::WouldBlock)) {
            // Its memory goes back; whoever does that offers it then.
            return;
        }
        let wanted = self.bond.apart.iter().chain([&self.bond.is_given_up]);
        let is_apart = || wanted.clone().any(|apart| apart.load(Ordering::SeqCst));
        if self.bond.closed.iter().all(|closed| !closed.load(Ordering::Acquire)) && !is_apart() {
            self.joint().offer();
            // Who has wanted it otherwise meanwhile may have parted them before.
            if is_apart() {
                self.joint().part();
            }
        }
    }

    /// From now on this end's program wants all to go by the lane, or does not any more.
    pub(super) fn keep_apart(&self, is_apart: bool) {
        let was = self.bond.apart[self.at].swap(is_apart, Ordering::SeqCst);
        if is_apart && !was {
            self.part();
        }
    }

    /// Somebody who has this end cannot reach it: neither goes there again. Whether text lies there that this end has yet to read.
    pub(super) fn give_up(&self) -> bool {
        self.bond.is_given_up.store(true, Ordering::SeqCst);
        self.part();
        self.unread() > 0
    }

    /// This end has another SO_SNDBUF, or with `receives` another SO_RCVBUF.
    pub(super) fn resize(&self, receives: bool, bytes: u32) {
        match receives {
            true => self.joint().resize_receiving(self.at, bytes),
            false => self.joint().resize_sending(self.at, bytes),
        }
    }

    /// At most so many writes may be unread each way; zero is any number.
    pub(super) fn limit_writes(&self, most: u32) {
        self.joint().limit_writes(most);
    }

    /// Neither may.
    pub(super) fn part(&self) {
        self.joint().part();
        self.wake();
        self.tell_peer();
    }

    /// Wakes the threads of this end's program that sleep there, and its waiters.
    pub(super) fn wake(&self) -> bool {
        let side = &self.joint().sides[self.at];
        side.sleep.wake()
    }

    fn credit(&self) -> MutexGuard<'_, Credit> {
        self.bond.credit[self.at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this end needs credit to write, or needs none any more. Whether its program is to look again: if it has asked
    /// before, while it was not fused, that may have come to nothing.
    pub(super) fn limit(&self, is_limited: bool) -> bool {
        let mut credit = self.credit();
        if credit.is_limited == is_limited {
            return core::mem::take(&mut credit.is_asked);
        }
        *credit = Credit::default();
        match is_limited {
            true => {
                (credit.is_limited, credit.granted) = (true, self.joint().begin_limit(self.at));
            }
            false => self.joint().end_limit(self.at),
        }
        true
    }

    /// Its program asks for credit: how much it lacks and how much it has carried so far, unless it has asked already. The lane is
    /// to be asked.
    pub(super) fn wants(&self) -> Option<[Bytes; 2]> {
        let mut credit = self.credit();
        let [asked, _] = self.joint().asked(self.at);
        let lacks = credit.lacks(asked).filter(|_| !credit.is_asked)?;
        credit.is_asked = true;
        Some([lacks, Bytes(self.joint().passed(self.at)[0])])
    }

    /// It has credit for so much more. Whether it is to ask again at once: who has used up all before will use this, too.
    pub(super) fn lend(&self, bytes: Bytes) -> bool {
        let mut credit = self.credit();
        let asks_again = credit.lend(bytes, self.joint().asked(self.at));
        if credit.is_limited {
            self.joint().grant(self.at, credit.granted);
        }
        asks_again
    }

    /// Whether its program has let the peer's have the end of the stream.
    pub(super) fn has_ended(&self) -> bool {
        self.joint().has_ended(self.at)
    }

    /// Whether the peer's program has let ours have the end.
    pub(super) fn peer_has_ended(&self) -> bool {
        self.joint().has_ended(1 - self.at)
    }

    /// The program has left. Whether it leaves something unread.
    pub(super) fn close(&self) -> bool {
        self.bond.closed[self.at].store(true, Ordering::Release);
        self.joint().close(self.at)
    }

    /// The peer's connection, if its program has left, and has not read what ours has written.
    pub(super) fn deserted(&self) -> Option<ConnRef> {
        let peer = 1 - self.at;
        let is_closed = self.bond.closed[peer].load(Ordering::Acquire);
        (is_closed && self.joint().unread(self.at) > 0).then(|| self.bond.ends[peer].conn)
    }

    /// Whether there is anything that the peer's program may not have heard of, if who had this end has died before he told.
    pub(super) fn may_be_untold(&self) -> bool {
        self.joint().may_be_untold(self.at)
    }

    /// The peer's program may have news.
    pub(super) fn tell_peer(&self) {
        let End { stream, arena, .. } = &self.bond.ends[1 - self.at];
        if let (Some(stream), Some(arena)) = (stream.upgrade(), arena.upgrade()) {
            stream.call(&arena);
        }
    }

    /// Bytes that were written here and count as acknowledged, and bytes that have come.
    pub(super) fn carried(&self) -> [u64; 2] {
        let joint = self.joint();
        let ([sent, _], [received, _]) = (joint.passed(self.at), joint.passed(1 - self.at));
        // They are the programs' words: whatever they say can be added.
        [sent, received].map(|count| count.min(COUNT_MAX))
    }

    /// Whether anything was written at either end since that was last counted.
    pub(super) fn is_uncounted(&self) -> bool {
        let counted = self.bond.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.written != self.bond.written()
    }

    /// Bytes that were written here, and at the peer's end, since either end was last asked.
    pub(super) fn take_carried(&self, clock: impl Fn() -> Instant) -> Result<[u64; 2], Lie> {
        let joint = self.joint();
        let mut counted = self.bond.counted.lock().unwrap_or_else(PoisonError::into_inner);
        // By nobody's clock of before: what was written later than that would be a lie.
        let before = clock();
        let written = self.bond.written();
        let times = [before, clock()];
        let [one, two] = counted.advance(times, written, [0, 1].map(|at| joint.most_unread(at)))?;
        Ok(if self.at == 0 { [one, two] } else { [two, one] })
    }

    /// Something was carried: from now on somebody looks whether it has come to rest.
    pub(super) fn note_use(&self) {
        if !self.bond.is_watched.swap(true, Ordering::SeqCst) {
            let pages = self.bond.segment.0.pages.upgrade();
            pages.into_iter().for_each(|pages| pages.watch(Arc::downgrade(&self.bond)));
        }
    }

    /// Bytes that were written here and that the peer's buffer would not hold.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.joint().unacknowledged(self.at)
    }

    /// Bytes that its program has yet to read.
    pub(super) fn unread(&self) -> u64 {
        self.joint().unread(1 - self.at)
    }
}

#[cfg(test)]
impl Joined {
    /// Where it is: the segment, the joint and the end.
    pub(super) fn place(&self) -> (&firelane_shm::Mapping, u32, usize) {
        (self.bond.segment.0.arena.mapping(), self.bond.pair.block(), self.at)
    }

    /// Where the storage is that it writes.
    pub(super) fn storage(&self) -> u64 {
        self.bond.pair.storage(self.at) as u64
    }

    /// How much memory the segment takes.
    pub(super) fn memory(&self) -> u64 {
        self.bond.segment.0.arena.memory().expect("it is open")
    }

    /// Whether both ends may use it.
    pub(super) fn is_offered(&self) -> bool {
        let is_offered = |side: &Side| side.state.load(Ordering::Acquire) & way::OFFERED != 0;
        self.joint().sides.iter().all(is_offered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        /// Whatever programs say, they have credit for what was lent and for nothing else; one that says the truth has at
        /// most two loans unused.
        #[test]
        fn words_give_no_credit(
            steps in proptest::collection::vec((any::<u64>(), any::<u64>(), 1u64..100_000), 1..60),
            wants in 1u64..1_000_000,
        ) {
            let mut credit = Credit { is_limited: true, granted: 7, is_asked: true };
            let mut sum = 7u64;
            for &(asked, written, bytes) in &steps {
                credit.lend(Bytes(bytes), [asked, written]);
                sum += bytes;
                prop_assert_eq!((credit.granted, credit.is_asked), (sum, false));
                prop_assert!(credit.lacks(asked).is_none_or(|lacks| lacks.0 <= 1 << 63));
            }
            let (mut honest, mut written) = (Credit { is_limited: true, ..Credit::default() }, 0);
            let (mut asked, mut is_under_way) = (wants, true);
            for &(_, uses, bytes) in &steps {
                if is_under_way {
                    is_under_way = honest.lend(Bytes(bytes), [asked, written]);
                }
                let unused = honest.granted - written;
                prop_assert!(unused < 2 * 100_000, "{unused} unused");
                written += uses % (unused + 1);
                if written == honest.granted {
                    asked = written + wants;
                    is_under_way = true;
                }
            }
        }

        /// Whatever programs say, no more is counted than memory could have carried; what is true is counted whole.
        #[test]
        fn what_cannot_be_true_is_not_counted(
            steps in proptest::collection::vec(
                ([0u64..2_000_000_000, 0..40_000_000, 0..40_000_000], any::<u64>(), 0u64..1 << 40, any::<bool>()), 1..60,
            ),
        ) {
            let mut counted = Counted { at: Instant::ZERO, written: [0; 2] };
            let (mut now, mut read_at, mut truth, mut sum) = (Instant::ZERO, Instant::ZERO, 0u64, 0u128);
            for ([nanos, until_read, since_read], lie, bytes, is_true) in steps {
                let before = now + Duration::from_nanos(nanos);
                let until = before + Duration::from_nanos(until_read);
                now = until + Duration::from_nanos(since_read);
                let most = |since: Duration| since.as_nanos() as u64 * BYTES_PER_NANO + 1000;
                let bytes = bytes.min(most(until.saturating_since(read_at)));
                read_at = until;
                let said = if is_true { counted.written[0].wrapping_add(bytes) } else { lie };
                let last = counted.at;
                match counted.advance([before, now], [said, 0], [1000; 2]) {
                    Ok([came, 0]) => {
                        prop_assert!(came <= most(now.saturating_since(last)));
                        sum += u128::from(came);
                        truth = truth.wrapping_add(if is_true { bytes } else { came });
                    }
                    Ok(_) => prop_assert!(false, "nobody has written at the other end"),
                    Err(Lie) => prop_assert!(!is_true),
                }
                prop_assert_eq!(sum, u128::from(truth));
            }
        }
    }
}
