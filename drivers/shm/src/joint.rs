//! What two programs share whose connection is fused: a joint of 256 bytes, and storage for both directions.
//!
//! It lies in a segment, an arena that both programs and the daemon map. While a direction is joined, its writer writes to
//! the joint's ring instead of the one that the lane reads, and TCP carries nothing; what was written before is carried to
//! its end. So a stream is a row of extents, by turns TCP's and the joint's, and nothing is converted: bytes are numbered
//! apart in each, and `joined_at` says where in TCP's stream the joint's extent begins.
//!
//! - J1. The daemon offers a direction and takes that back; its reader opens it once it would notice what comes that way;
//!   its writer joins it when all that went that way before has been read. Each has bits of its own in the state word.
//! - J2. The writer holds HELD while it is inside. A direction has ended where `tail` stands when neither JOINED nor HELD
//!   is there, so the daemon parts it at any moment, whatever its programs do.
//! - J3. The reader takes TCP's bytes up to `joined_at`, then the joint's, then TCP's. What it judges by it reads in this
//!   order: the joint's tail, TCP's, the state, `joined_at`. While any byte of an extent is unread, no other begins.
//! - J4. With nothing unread the writer lays the cursor on the storage's begin, whose lines are in a cache.
//! - J5. Who has written, or made room that is wanted, looks behind a full fence whether somebody sleeps; who is about to
//!   sleep looks behind one whether there is anything. So one sees the other, and wakes are for sleepers alone.
//! - J6. Each program may write anything here at any time. What is read is copied first and checked; who says what cannot
//!   be true loses this connection.

use std::io::{IoSlice, IoSliceMut};

use crate::layout::{Inbox, SLOTS};
use crate::stream::{Storage, copy_in, copy_out};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::Mapping;
use crate::wait::Sleep;

/// The bits of [`Side::state`].
pub mod way {
    /// Daemon: the two ends may fuse.
    pub const OFFERED: u64 = 1;
    /// Reader: it has mapped the segment, and what waits for it is found there.
    pub const OPEN: u64 = 2;
    /// Writer: it writes here.
    pub const JOINED: u64 = 4;
    /// Writer: it is inside.
    pub const HELD: u64 = 8;
    /// Daemon: nobody reads any more.
    pub const CLOSED: u64 = 16;
    /// Reader: some who wait for it are known to the daemon alone, which is to be told too.
    pub const INDIRECT: u64 = 32;
    /// One change of the writer's.
    pub(super) const EPOCH: u64 = 1 << 32;
}
use way::{CLOSED, EPOCH, HELD, INDIRECT, JOINED, OFFERED, OPEN};

/// How much is published at a time, so that a reader begins while the rest is copied.
const CHUNK: usize = 32 << 10;
/// How often a look that met a change looks again.
const LOOKS: usize = 4;
/// The largest storage, by its power of two.
const SHIFT_MAX: u32 = 31;

/// What one program writes of a joint.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Side {
    /// Bytes that it has written here.
    pub tail: AtomicU64,
    /// Bytes that it has read here, of the other's.
    pub head: AtomicU64,
    /// The direction that it writes: [`way`].
    pub state: AtomicU64,
    /// The cursor that lies at the begin of its storage (J4).
    base: AtomicU64,
    _rest: [u64; 4],
    /// Where in TCP's stream the last extent begins.
    joined_at: AtomicU64,
    /// Where its storage is, from the segment's begin. The daemon's, as the next three.
    storage: AtomicU64,
    /// How much may be unread: the writer's SO_SNDBUF and the reader's SO_RCVBUF.
    limit: AtomicU32,
    /// How much of that is the reader's.
    room: AtomicU32,
    /// The storage's size, as a power of two.
    shift: AtomicU32,
    /// The stream's block in this program's arena.
    block: AtomicU32,
    /// Which use of the joint it is, in the second side.
    generation: AtomicU64,
    /// Where its threads sleep.
    pub sleep: Sleep,
    /// Waiters of the segment that are to be told, a bit each.
    pub waiters: AtomicU64,
    /// It waits for room to write.
    wants_room: AtomicU64,
}

/// The words of a fused connection.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Joint {
    /// Those of its two ends.
    pub sides: [Side; 2],
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    use firelane_frame::{BLOCK_BYTES, GENERATION_WORD};
    assert!(size_of::<Side>() == 128 && size_of::<Joint>() == BLOCK_BYTES && align_of::<Joint>() == 64);
    assert!(offset_of!(Side, joined_at) == 64 && offset_of!(Side, sleep) == 104);
    assert!(size_of::<Side>() + offset_of!(Side, generation) == 8 * GENERATION_WORD);
};

/// What the daemon makes one direction with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideConfig {
    /// Where its storage is.
    pub storage: u64,
    /// The storage's size: a power of two.
    pub size: usize,
    /// The writer's SO_SNDBUF.
    pub send: u32,
    /// The reader's SO_RCVBUF.
    pub receive: u32,
    /// The writer's block in its arena.
    pub block: u32,
}

/// Somebody has said what cannot be true (J6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lie;

/// The daemon's part.
impl Joint {
    /// Makes a joint of a block of zeros, of which nothing is offered as yet.
    pub fn make(&self, configs: [SideConfig; 2]) {
        for (side, config) in self.sides.iter().zip(configs) {
            side.storage.store(config.storage, Ordering::Relaxed);
            side.limit.store(config.send.saturating_add(config.receive), Ordering::Relaxed);
            side.room.store(config.receive, Ordering::Relaxed);
            side.shift.store(config.size.trailing_zeros(), Ordering::Relaxed);
            side.block.store(config.block, Ordering::Relaxed);
        }
    }

    /// Both directions may be joined.
    pub fn offer(&self) {
        self.sides.iter().for_each(|side| {
            side.state.fetch_or(OFFERED, Ordering::AcqRel);
        });
    }

    /// Both directions go back to TCP, from the next write on (J2).
    pub fn part(&self) {
        self.sides.iter().for_each(|side| {
            side.state.fetch_and(!(OFFERED | JOINED), Ordering::AcqRel);
        });
    }

    /// Whether any direction is joined.
    pub fn is_joined(&self) -> bool {
        self.sides.iter().any(|side| side.state.load(Ordering::Acquire) & JOINED != 0)
    }

    /// Nobody has the end `at` any more. Whether something is unread that it should have read. Who writes to it later finds
    /// out by himself ([`Beside::tell`]).
    pub fn close(&self, at: usize) -> bool {
        let [mine, theirs] = [&self.sides[at], &self.sides[1 - at]];
        mine.state.fetch_and(!(OFFERED | JOINED | HELD), Ordering::SeqCst);
        theirs.state.fetch_and(!(OFFERED | JOINED), Ordering::SeqCst);
        theirs.state.fetch_or(CLOSED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.unread(1 - at) > 0
    }

    /// How much the end `at` has written that is unread, as the two say.
    pub fn unread(&self, at: usize) -> u64 {
        let tail = self.sides[at].tail.load(Ordering::Acquire);
        let unread = tail.wrapping_sub(self.sides[1 - at].head.load(Ordering::Acquire));
        unread.min(u64::from(self.sides[at].limit.load(Ordering::Relaxed)))
    }

    /// What the end `at` has written and read here, as it says.
    pub fn passed(&self, at: usize) -> [u64; 2] {
        let side = &self.sides[at];
        [side.tail.load(Ordering::Acquire), side.head.load(Ordering::Acquire)]
    }

    /// The state of what `at` writes, for [`Joint::bury`].
    pub fn state(&self, at: usize) -> u64 {
        self.sides[at].state.load(Ordering::Acquire)
    }

    /// Who was inside to write died there: frees what `state` shows held, unless somebody has taken it over since.
    pub fn bury(&self, at: usize, state: u64) {
        if state & HELD != 0 {
            let free = (state & !HELD).wrapping_add(EPOCH);
            let word = &self.sides[at].state;
            // If it fails, somebody has changed the word: whoever is inside now leaves by himself.
            let _ = word.compare_exchange(state, free, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// An end of a fused connection, as one thread of its program sees it. The other end is the peer's.
#[derive(Debug)]
pub struct Beside<'a, M = Mapping> {
    memory: &'a M,
    joint: &'a Joint,
    at: usize,
}

impl<M> Clone for Beside<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Beside<'_, M> {}

/// What can be read, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Readable {
    /// Of the ring that the lane writes.
    pub(crate) own: usize,
    /// Of the joint.
    pub(crate) beside: usize,
}

impl Readable {
    pub(crate) fn total(self) -> usize {
        self.own + self.beside
    }
}

impl<'a> Beside<'a> {
    /// The end `at` of a joint; `None` if the segment has no such joint.
    pub fn new(segment: &'a Mapping, joint: u32, at: usize) -> Option<Self> {
        Some(Self { memory: segment, joint: segment.joint(joint)?, at: at & 1 })
    }

    /// Tells whoever of the peer's waits, after something was written, or read. A waiter is rung by `ring`, which says
    /// whether it has, and told off afterwards, so that one who dies between the two has rung twice at the worst.
    /// Whether the daemon is to be told as well: the peer is gone or cannot be told from here.
    pub fn tell(&self, mut ring: impl FnMut(u32) -> bool) -> bool {
        fence(Ordering::SeqCst);
        let theirs = self.theirs();
        theirs.sleep.wake_counted();
        let mut is_deaf = false;
        let mut wanted = theirs.waiters.load(Ordering::Relaxed);
        while wanted != 0 {
            let slot = wanted.trailing_zeros();
            wanted &= wanted - 1;
            let Some(inbox) = self.memory.slot(slot) else { continue };
            match inbox.tell_napper(theirs.block.load(Ordering::Relaxed)) {
                Some(nap) if ring(slot) => inbox.was_rung(nap),
                Some(_) => is_deaf = true,
                None => {}
            }
        }
        is_deaf || self.mine().state.load(Ordering::Relaxed) & (CLOSED | INDIRECT) != 0
    }

    /// The inbox of a waiter, and who has it.
    pub fn inbox(&self, slot: u32) -> Option<&'a Inbox> {
        self.memory.slot(slot.min(SLOTS - 1))
    }
}

// What a stream's words lie in is known to the crate alone.
#[allow(private_bounds)]
impl<'a, M: Storage> Beside<'a, M> {
    fn mine(&self) -> &'a Side {
        &self.joint.sides[self.at]
    }

    fn theirs(&self) -> &'a Side {
        &self.joint.sides[1 - self.at]
    }

    /// Where this end's threads sleep: the peer and the daemon wake them there.
    pub fn sleep(&self) -> &'a Sleep {
        &self.mine().sleep
    }

    /// Whether what the peer writes may come this way already (J1).
    #[inline]
    pub fn is_open(&self) -> bool {
        self.theirs().state.load(Ordering::Acquire) & OPEN != 0
    }

    /// What the peer writes may come this way: whoever waits for it here is marked. `knows_all` says that nobody waits
    /// whom only the daemon knows.
    pub fn open(&self, knows_all: bool) {
        let bits = if knows_all { OPEN } else { OPEN | INDIRECT };
        self.theirs().state.fetch_or(bits, Ordering::SeqCst);
    }

    /// From now on the waiters with these bits are told.
    pub fn watch(&self, bits: u64) {
        self.mine().waiters.fetch_or(bits, Ordering::SeqCst);
    }

    /// From now on they are not.
    pub fn unwatch(&self, bits: u64) {
        self.mine().waiters.fetch_and(!bits, Ordering::SeqCst);
    }

    /// Goes inside to write, if the direction is joined or can be; `own_tail` is TCP's cursor (J1, J2).
    fn enter(&self, own_tail: u64) -> Option<Inside<'a>> {
        let mine = self.mine();
        let mut state = mine.state.load(Ordering::Acquire);
        loop {
            if state & (OFFERED | OPEN | CLOSED) != OFFERED | OPEN {
                return None;
            }
            if state & JOINED == 0 {
                let is_read = mine.tail.load(Ordering::Relaxed) == self.theirs().head.load(Ordering::Acquire);
                if !is_read {
                    return None;
                }
                mine.joined_at.store(own_tail, Ordering::Relaxed);
            }
            // A hold that is there was left by one who died: it is taken over, and who buries him notices.
            let held = (state | JOINED | HELD).wrapping_add(EPOCH);
            match mine.state.compare_exchange(state, held, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Inside(&mine.state)),
                Err(now) => state = now,
            }
        }
    }

    /// Whether the next write comes here, as far as can be seen.
    fn is_way(&self) -> bool {
        let state = self.mine().state.load(Ordering::Acquire);
        let is_free = state & (OFFERED | OPEN | CLOSED) == OFFERED | OPEN;
        is_free && (state & JOINED != 0 || self.mine().tail.load(Ordering::Relaxed) == self.head())
    }

    /// What the peer has read.
    fn head(&self) -> u64 {
        self.theirs().head.load(Ordering::Acquire)
    }

    /// The storage of what a side writes.
    fn ring(side: &Side) -> (u64, usize) {
        let shift = side.shift.load(Ordering::Relaxed).min(SHIFT_MAX);
        (side.storage.load(Ordering::Relaxed), 1 << shift)
    }

    /// Writes as much as there is room for; `None` if TCP has the direction. The caller has the stream's sending direction to
    /// himself.
    pub(crate) fn write(&self, own_tail: u64, pieces: &[IoSlice<'_>]) -> Option<Result<usize, Lie>> {
        let _inside = self.enter(own_tail)?;
        let mine = self.mine();
        let (storage, size) = Self::ring(mine);
        let tail = mine.tail.load(Ordering::Relaxed);
        let unread = tail.wrapping_sub(self.head());
        if unread > size as u64 {
            return Some(Err(Lie));
        }
        if unread == 0 {
            mine.base.store(tail, Ordering::Relaxed);
        }
        let base = mine.base.load(Ordering::Relaxed);
        let limit = size.min(mine.limit.load(Ordering::Relaxed) as usize);
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let len = len.min(limit.saturating_sub(unread as usize));
        let mut done = 0;
        while done < len {
            let part = (len - done).min(CHUNK);
            let cursor = tail.wrapping_add(done as u64);
            let at = cursor.wrapping_sub(base);
            if !copy_in(self.memory, (storage, size), at, part, pieces, done) {
                return Some(Err(Lie));
            }
            done += part;
            mine.tail.store(tail.wrapping_add(done as u64), Ordering::Release);
        }
        Some(Ok(done))
    }

    /// What can be read, where TCP's ring has been read up to `own_head` and filled up to `own_tail` (J3).
    pub(crate) fn look(&self, own_head: u64, own_tail: impl Fn() -> u64) -> Result<Readable, Lie> {
        let (mine, theirs) = (self.mine(), self.theirs());
        for _ in 0..LOOKS {
            let tail = theirs.tail.load(Ordering::Acquire);
            let own = own_tail().wrapping_sub(own_head) as usize;
            let state = theirs.state.load(Ordering::Acquire);
            let joined_at = theirs.joined_at.load(Ordering::Relaxed);
            let beside = tail.wrapping_sub(mine.head.load(Ordering::Relaxed));
            if beside > Self::ring(theirs).1 as u64 {
                return Err(Lie);
            }
            if beside == 0 {
                let has_ended = state & (JOINED | HELD) == 0;
                if has_ended && theirs.tail.load(Ordering::Acquire) != tail {
                    continue;
                }
                return Ok(Readable { own, beside: 0 });
            }
            let before = joined_at.wrapping_sub(own_head).cast_signed().max(0) as usize;
            let beside = if own >= before { beside as usize } else { 0 };
            return Ok(Readable { own: own.min(before), beside });
        }
        Ok(Readable::default())
    }

    /// Copies `len` bytes, which [`Beside::look`] has found, into `pieces` behind the first `skip`, and releases them unless
    /// it only peeks. The caller has the stream's receiving direction to himself.
    pub(crate) fn read(
        &self,
        len: usize,
        pieces: &mut [IoSliceMut<'_>],
        skip: usize,
        peek: bool,
    ) -> Result<(), Lie> {
        let (mine, theirs) = (self.mine(), self.theirs());
        let head = mine.head.load(Ordering::Relaxed);
        let at = head.wrapping_sub(theirs.base.load(Ordering::Relaxed));
        if !copy_out(self.memory, Self::ring(theirs), at, len, pieces, skip) {
            return Err(Lie);
        }
        if !peek {
            mine.head.store(head.wrapping_add(len as u64), Ordering::Release);
        }
        Ok(())
    }

    /// Whether the peer waits for room, of which there is enough now: it is to be told, once.
    pub fn makes_room(&self) -> bool {
        fence(Ordering::SeqCst);
        let theirs = self.theirs();
        if theirs.wants_room.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let unread =
            theirs.tail.load(Ordering::Acquire).wrapping_sub(self.mine().head.load(Ordering::Relaxed));
        let limit = u64::from(theirs.limit.load(Ordering::Relaxed));
        crate::is_roomy(limit.saturating_sub(unread), unread)
            && theirs.wants_room.swap(0, Ordering::AcqRel) != 0
    }

    /// This end waits for room. It looks again after this.
    pub(crate) fn want_room(&self) {
        self.mine().wants_room.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Room to write, and what is unread of what was written; `None` if the next write is TCP's.
    pub(crate) fn room(&self) -> Option<(usize, usize)> {
        let mine = self.mine();
        let unread = mine.tail.load(Ordering::Relaxed).wrapping_sub(self.head()) as usize;
        let limit = mine.limit.load(Ordering::Relaxed) as usize;
        self.is_way().then(|| (limit.saturating_sub(unread), unread))
    }

    /// What was written here and counts as unacknowledged: what the reader's buffer would not hold.
    pub(crate) fn unacknowledged(&self) -> usize {
        let mine = self.mine();
        let unread = mine.tail.load(Ordering::Relaxed).wrapping_sub(self.head());
        let limit = mine.limit.load(Ordering::Relaxed);
        unread.min(limit.into()).saturating_sub(mine.room.load(Ordering::Relaxed).into()) as usize
    }
}

/// The state word of a direction while its writer is inside (J2).
struct Inside<'a>(&'a AtomicU64);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_and(!HELD, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
