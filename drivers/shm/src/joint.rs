//! What two programs share whose connection is fused: a joint of 256 bytes, and storage for both directions.
//!
//! It lies in a segment, an arena that both programs and the daemon map. While a direction is joined, its writer writes to
//! the joint's ring instead of the one that the lane reads, and TCP carries nothing; what was written before is carried to
//! its end. So a stream is a row of extents, by turns TCP's and the joint's, and nothing is converted: bytes are numbered
//! apart in each, and `joined_at` says where in TCP's stream the joint's extent begins.
//!
//! - J1. The daemon offers a direction and takes that back; its reader opens it once it would notice what comes that way;
//!   its writer joins it when all that went that way before has been read. Each has bits of its own in the state word.
//! - J2. How much was written stands in the same word, above those bits: it is published, and the direction joined, by one
//!   swap from what the writer has seen. So a direction has ended where the word stands when JOINED is not there; the
//!   daemon parts it at any moment, and who dies while he writes has written nothing.
//! - J3. The reader takes TCP's bytes up to `joined_at`, then the joint's, then TCP's. It looks at TCP's cursor first: what
//!   came there behind an extent is seen only with the extent. While any byte of an extent is unread, no other begins.
//! - J4. With nothing unread the writer lays the cursor on the storage's begin, whose lines are in a cache.
//! - J5. Who has written, or made room that is wanted, looks behind that change whether somebody sleeps; who is about to
//!   sleep says so and looks behind that whether there is anything. All four are in the one order of such accesses, so one
//!   sees the other, and wakes are for sleepers alone.
//! - J6. Each program may write anything here at any time. What is read is copied first and checked; who says what cannot
//!   be true loses this connection.
//! - J8. Where a limit has a say the daemon sets LIMITED, and the writer writes up to the cursor that the daemon has granted. Without
//!   credit it says how far it would like to write, and asks. The daemon counts what it grants by itself: who writes over its
//!   words keeps only himself waiting, and who does not heed them is a program that does not use this library (SECURITY.md).
//! - J7. What the peer looks at while he waits, when something comes, and when he has written is one line of memory. How
//!   far this end has read is in the other, which the peer looks at now and then.
//! - J9. Who waits says on which CPU, and whether he tries if it pays to look before he sleeps (R3 of `wait.rs`).
//! - J10. A writer who joins or has joined says there, too, that nothing more comes (ENDED), so that his reader has the end when the call
//!   returns. It is an end of the bytes, not of the connection: TCP's FIN follows by the lane.
//! - J11. The daemon takes a direction that is at rest out of use to give its memory back: it parts it, changes the word for good (RESTED),
//!   looks whether all was read, and offers it again when the memory is gone. Who wrote to the storage meanwhile had seen another word, so he
//!   publishes nothing and begins anew. A rest that finds something unread takes that back, so there is at most one between two
//!   writes, and one bit says it. What was joined and is so no more begins anew in any case.

use std::io::{IoSlice, IoSliceMut};

use crate::bits::set_bits;
use crate::layout::{Inbox, SLOTS, order_for_models};
use crate::owner::spares_the_kernel;
use crate::stream::{Storage, copy_in, copy_out};
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::Mapping;
use crate::wait::{Sleep, Spin};

/// The bits of [`Side::state`].
pub mod way {
    /// Daemon: the two ends may fuse.
    pub const OFFERED: u64 = 1;
    /// Reader: it has mapped the segment, and what waits for it is found there.
    pub const OPEN: u64 = 2;
    /// Writer: it writes here.
    pub const JOINED: u64 = 4;
    /// Writer: it writes no more, here or elsewhere (J10).
    pub const ENDED: u64 = 8;
    /// Daemon: nobody reads any more.
    pub const CLOSED: u64 = 16;
    /// Reader: some who wait for it are known to the daemon alone, which is to be told too.
    pub const INDIRECT: u64 = 32;
    /// Daemon: the writer needs credit (J8).
    pub const LIMITED: u64 = 256;
    /// Daemon: how often a limit has begun, in sixteen bits.
    pub(super) const AGE: u64 = 0xffff << 16;
    /// Once more.
    pub(super) const AGE_ONE: u64 = 1 << 16;
    /// Daemon: the highest of them is another after each rest (J11). The count changes the lowest each time, so both at once are not as before.
    pub(super) const RESTED: u64 = 1 << 31;
    /// Writer: above, the lower half of how much it has written.
    pub const WRITTEN_SHIFT: u32 = 32;
}
use way::{AGE, AGE_ONE, CLOSED, ENDED, INDIRECT, JOINED, LIMITED, OFFERED, OPEN, RESTED, WRITTEN_SHIFT};

/// How much is published at a time, so that a reader begins while the rest is copied.
const CHUNK: usize = 32 << 10;
/// How much is written after a look at what the peer has read until the next, if there is room for certain: the word is in
/// the peer's cache.
const NEAR: u64 = 16 << 10;
/// How far the count of bytes may be behind the state word's half of it.
const COUNT_LAG: u64 = 1 << 30;
/// It waits for room; somebody is about to tell it that there is some.
const WANTED: u32 = 1;
const TOLD: u32 = 2;
/// How often a write begins anew because its limit has changed meanwhile. Where that goes on it is no limit, but the peer's writing.
const TRIES_MAX: u32 = 4;
/// The largest storage, by its power of two.
const SHIFT_MAX: u16 = 31;

/// What one program writes of a joint: a line that the other looks at (J7), and one of its own.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Side {
    /// The direction that it writes: [`way`].
    pub state: AtomicU64,
    /// The cursor that lies at the begin of its storage (J4).
    base: AtomicU64,
    /// Where in TCP's stream the last extent begins.
    joined_at: AtomicU64,
    /// Where its storage is, from the segment's begin. The daemon's, as the next three.
    storage: AtomicU64,
    /// How much may be unread: the writer's SO_SNDBUF and the reader's SO_RCVBUF.
    limit: AtomicU32,
    /// The storage's size, as a power of two.
    shift: AtomicU16,
    /// One above the CPU on which its program was when it last waited; zero is none. Above, [`TRIES`].
    cpu: AtomicU16,
    /// How many writes may be unread (`tcp_fusion_rcv_unread_min`); zero is any number.
    most_writes: AtomicU32,
    /// It waits for room to write: [`WANTED`], or [`TOLD`].
    wants_room: AtomicU32,
    /// Where its threads sleep.
    pub sleep: Sleep,
    /// Waiters of the segment that are to be told, a bit each.
    pub waiters: AtomicU64,
    /// Bytes that it has read here, of the other's.
    pub head: AtomicU64,
    /// Bytes that it has written here, or less: the state word has the rest.
    tail: AtomicU64,
    /// What the other had read when it last looked.
    seen_head: AtomicU64,
    /// How many writes there were since all was read, as far as they are counted.
    writes: AtomicU32,
    /// How much of `limit` is the reader's. The daemon's, as the next.
    room: AtomicU32,
    /// The generation's place is the arena's affair: which use of the joint it is, in the second side.
    generation: AtomicU64,
    /// The stream's block in this program's arena.
    block: AtomicU32,
    /// Its SO_SNDBUF, which may be more than the storage. The daemon's.
    send: AtomicU32,
    /// Up to where it may write, while it is limited. The daemon's.
    granted: AtomicU64,
    /// Up to where it would like to write.
    asked: AtomicU64,
}

/// A program tries whether it pays to look before it sleeps.
const TRIES: u16 = 1 << 15;

/// What a writer asks about when it waits for room and has nothing to write yet: the text of an Ethernet frame.
const ASKED_LEAST: u64 = 1460;

impl Side {
    /// How large its storage is.
    fn size(&self) -> usize {
        1 << self.shift.load(Ordering::Relaxed).min(SHIFT_MAX)
    }

    /// How much may be unread: never more than the storage holds, whatever the word says (J6).
    fn limit(&self) -> u64 {
        (self.size() as u64).min(self.limit.load(Ordering::Relaxed).into())
    }

    /// How much may be unread, by the writer's SO_SNDBUF and the reader's SO_RCVBUF.
    fn set_limit(&self, send: u32, receive: u32) {
        let most = u32::try_from(self.size()).unwrap_or(u32::MAX);
        self.send.store(send, Ordering::Relaxed);
        self.room.store(receive.min(most), Ordering::Relaxed);
        self.limit.store(send.saturating_add(receive).min(most), Ordering::Relaxed);
    }

    /// Bytes that it has written here.
    pub(crate) fn written(&self) -> u64 {
        self.whole(self.state.load(Ordering::Acquire))
    }

    /// The same, as a state word has it. The count may have been brought up to date since that word was read, and then is
    /// ahead of it.
    fn whole(&self, state: u64) -> u64 {
        let tail = self.tail.load(Ordering::Relaxed);
        let ahead = ((state >> WRITTEN_SHIFT) as u32).wrapping_sub(tail as u32).cast_signed();
        tail.wrapping_add_signed(ahead.into())
    }

    /// How much more may be written, as far as limits go (J8).
    #[inline]
    fn credit(&self, state: u64, tail: u64) -> u64 {
        if state & LIMITED == 0 {
            return u64::MAX;
        }
        self.granted.load(Ordering::SeqCst).wrapping_sub(tail).cast_signed().max(0).cast_unsigned()
    }

    /// Whether the limit of unread writes allows another, with so many bytes unread: the reader who finds the end begins a new
    /// count.
    #[inline]
    fn may_write(&self, unread: u64) -> bool {
        let most = self.most_writes.load(Ordering::Relaxed);
        most == 0 || unread == 0 || self.writes.load(Ordering::Relaxed) < most
    }

    /// A write has been published, with so many bytes unread before it.
    #[inline]
    fn count_write(&self, unread: u64) {
        if self.most_writes.load(Ordering::Relaxed) != 0 {
            let before = if unread == 0 { 0 } else { self.writes.load(Ordering::Relaxed) };
            self.writes.store(before.saturating_add(1), Ordering::Relaxed);
        }
    }
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
    assert!(offset_of!(Side, head) == 64 && offset_of!(Side, sleep) == 48 && offset_of!(Side, block) == 104);
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
            side.shift.store(config.size.trailing_zeros() as u16, Ordering::Relaxed);
            side.set_limit(config.send, config.receive);
            side.block.store(config.block, Ordering::Relaxed);
        }
    }

    /// The end `at` has another SO_SNDBUF, as far as the storage goes.
    pub fn resize_sending(&self, at: usize, send: u32) {
        let side = &self.sides[at];
        side.set_limit(send, side.room.load(Ordering::Relaxed));
    }

    /// The end `at` has another SO_RCVBUF, as far as the storage goes.
    pub fn resize_receiving(&self, at: usize, receive: u32) {
        let side = &self.sides[1 - at];
        side.set_limit(side.send.load(Ordering::Relaxed), receive);
    }

    /// At most so many writes may be unread in each direction; zero is any number.
    pub fn limit_writes(&self, most: u32) {
        self.sides.iter().for_each(|side| side.most_writes.store(most, Ordering::Relaxed));
    }

    /// Both directions may be joined.
    pub fn offer(&self) {
        for side in &self.sides {
            // Each end's stream offers it, the second as a rule what the first has.
            if side.state.load(Ordering::Acquire) & OFFERED == 0 {
                side.state.fetch_or(OFFERED, Ordering::AcqRel);
            }
        }
    }

    /// Both directions go back to TCP, from the next write on (J2).
    pub fn part(&self) {
        self.sides.iter().for_each(|side| {
            side.state.fetch_and(!(OFFERED | JOINED), Ordering::AcqRel);
        });
    }

    /// Takes the direction that the end `at` writes out of use, until it is offered again (J11). Whether it is at rest: all that was written
    /// here was read, so that nothing in the storage is needed, as the two say. Nobody may offer it meanwhile.
    pub fn rest(&self, at: usize) -> bool {
        let side = &self.sides[at];
        side.state.fetch_and(!(OFFERED | JOINED), Ordering::SeqCst);
        // Behind that: who sees the word as it is from here on, and the direction offered, looks when its memory is gone.
        let written = side.whole(side.state.fetch_xor(RESTED, Ordering::SeqCst));
        let rests = written == self.sides[1 - at].head.load(Ordering::SeqCst);
        if !rests {
            side.state.fetch_xor(RESTED, Ordering::SeqCst);
        }
        rests
    }

    /// From now on the end `at` needs credit to write. What it has written until now, which is what it has credit for.
    pub fn begin_limit(&self, at: usize) -> u64 {
        let side = &self.sides[at];
        side.granted.store(side.written(), Ordering::SeqCst);
        // Another age: who has seen the credit of an earlier limit must look again, though the word would be as it was then.
        let state = side.state.load(Ordering::Acquire);
        side.state.fetch_xor((state ^ state.wrapping_add(AGE_ONE)) & AGE, Ordering::SeqCst);
        let written = side.whole(side.state.fetch_or(LIMITED, Ordering::SeqCst));
        side.granted.store(written, Ordering::SeqCst);
        written
    }

    /// It needs none any more.
    pub fn end_limit(&self, at: usize) {
        self.sides[at].state.fetch_and(!LIMITED, Ordering::SeqCst);
    }

    /// The end `at` may write up to this cursor.
    pub fn grant(&self, at: usize, cursor: u64) {
        self.sides[at].granted.store(cursor, Ordering::SeqCst);
    }

    /// Up to where the end `at` would like to write and has written, as it says.
    pub fn asked(&self, at: usize) -> [u64; 2] {
        let side = &self.sides[at];
        [side.asked.load(Ordering::SeqCst), side.written()]
    }

    /// Whether any direction is joined.
    pub fn is_joined(&self) -> bool {
        self.sides.iter().any(|side| side.state.load(Ordering::Acquire) & JOINED != 0)
    }

    /// Nobody has the end `at` any more. Whether something is unread that it should have read. Who writes to it later finds
    /// out by himself ([`Beside::tell`]).
    pub fn close(&self, at: usize) -> bool {
        let [mine, theirs] = [&self.sides[at], &self.sides[1 - at]];
        mine.state.fetch_and(!(OFFERED | JOINED), Ordering::SeqCst);
        theirs.state.fetch_and(!(OFFERED | JOINED), Ordering::SeqCst);
        theirs.state.fetch_or(CLOSED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.unread(1 - at) > 0
    }

    /// Whether the end `at` has said that it writes no more (J10).
    pub fn has_ended(&self, at: usize) -> bool {
        self.sides[at].state.load(Ordering::Acquire) & ENDED != 0
    }

    /// How much the end `at` has written that is unread, as the two say.
    pub fn unread(&self, at: usize) -> u64 {
        let unread = self.sides[at].written().wrapping_sub(self.sides[1 - at].head.load(Ordering::Acquire));
        unread.min(self.sides[at].limit())
    }

    /// Whether there is anything that the other end may not have heard of, if whoever had the end `at` died before he told: bytes that
    /// are unread, an end, or room that is waited for.
    pub fn may_be_untold(&self, at: usize) -> bool {
        let theirs = &self.sides[1 - at];
        self.unread(at) > 0 || self.has_ended(at) || theirs.wants_room.load(Ordering::SeqCst) != 0
    }

    /// How much of what the end `at` has written counts as unacknowledged: what the reader's buffer would not hold.
    pub fn unacknowledged(&self, at: usize) -> u64 {
        self.unread(at).saturating_sub(self.sides[at].room.load(Ordering::Relaxed).into())
    }

    /// The most of what the end `at` writes that was ever let be unread.
    pub fn most_unread(&self, at: usize) -> u64 {
        self.sides[at].size() as u64
    }

    /// What the end `at` has written and read here, as it says.
    pub fn passed(&self, at: usize) -> [u64; 2] {
        let side = &self.sides[at];
        [side.written(), side.head.load(Ordering::Acquire)]
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

/// Why a part was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unwritten {
    /// The peer has written what cannot be true.
    Lie,
    /// The limit that the part was cut to is another.
    Changed,
}

/// What can be read, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Readable {
    /// Of the ring that the lane writes.
    pub(crate) own: usize,
    /// Of the joint.
    pub(crate) beside: usize,
    /// Of the lane's ring again, which went that way when the joint's extent had ended.
    pub(crate) behind: usize,
}

impl Readable {
    pub(crate) fn total(self) -> usize {
        self.own + self.beside + self.behind
    }
}

/// What came of telling the peer ([`Beside::tell`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// The daemon is to tell it as well: it is gone, or cannot be told from here.
    pub asks_daemon: bool,
    /// It was asleep.
    pub has_woken: bool,
}

impl<'a> Beside<'a> {
    /// The end `at` of a joint; `None` if the segment has no such joint.
    pub fn new(segment: &'a Mapping, joint: u32, at: usize) -> Option<Self> {
        Some(Self { memory: segment, joint: segment.joint(joint)?, at: at & 1 })
    }

    /// Tells whoever of the peer's waits, after something was written, or room made (J5). A waiter is rung by `ring`, which says
    /// whether it has, and told off afterwards, so that one who dies between the two has rung twice at the worst.
    pub fn tell(&self, mut ring: impl FnMut(u32) -> bool) -> Told {
        let theirs = self.theirs();
        // A system call wakes threads, too: who makes none leaves it to the daemon.
        let mut is_deaf = spares_the_kernel() && theirs.sleep.has_sleepers();
        let mut has_woken = !is_deaf && self.wake_threads();
        for slot in set_bits(theirs.waiters.load(Ordering::SeqCst)) {
            let Some(inbox) = self.memory.slot(slot) else { continue };
            match inbox.tell_napper(theirs.block.load(Ordering::Relaxed)) {
                Some(nap) if ring(slot) => {
                    inbox.was_rung(nap);
                    has_woken = true;
                }
                Some(_) => is_deaf = true,
                None => {}
            }
        }
        let asks_daemon = is_deaf || self.mine().state.load(Ordering::Relaxed) & (CLOSED | INDIRECT) != 0;
        Told { asks_daemon, has_woken }
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

    /// The same over other memory.
    #[cfg(all(test, loom))]
    pub(crate) fn over(memory: &'a M, joint: &'a Joint, at: usize) -> Self {
        Self { memory, joint, at }
    }

    /// Wakes the peer's threads that sleep (J5). Whether any does.
    #[inline]
    pub(crate) fn wake_threads(&self) -> bool {
        order_for_models();
        self.theirs().sleep.wake_counted()
    }

    /// Where this end's threads sleep: the peer and the daemon wake them there.
    pub fn sleep(&self) -> &'a Sleep {
        &self.mine().sleep
    }

    /// This end is about to wait on `cpu`: whether it pays to look, which it does not if the peer waited on the same one. When one
    /// end tries whether looking pays, the other does, too: else each would find the other asleep.
    pub fn meet(&self, cpu: u16, spin: &mut Spin) -> bool {
        let [mine, theirs] = [self.mine(), self.theirs()].map(|side| side.cpu.load(Ordering::Relaxed));
        let here = (cpu & !TRIES).saturating_add(1) & !TRIES;
        // Who tries because the other does, does not ask him to try again.
        let now = if spin.is_trying() { here | TRIES } else { here };
        if mine != now {
            self.mine().cpu.store(now, Ordering::Relaxed);
        }
        if theirs & TRIES != 0 {
            spin.try_now();
        }
        theirs & !TRIES != here
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

    /// This end's next writes are TCP's, until all that it has written here is read. The caller has the stream's sending
    /// direction to himself.
    pub(crate) fn leave(&self) {
        self.mine().state.fetch_and(!JOINED, Ordering::AcqRel);
    }

    /// From now on the waiters with these bits are told.
    pub fn watch(&self, bits: u64) {
        self.mine().waiters.fetch_or(bits, Ordering::SeqCst);
    }

    /// From now on they are not.
    pub fn unwatch(&self, bits: u64) {
        self.mine().waiters.fetch_and(!bits, Ordering::SeqCst);
    }

    /// How much the peer has written.
    pub(crate) fn written_there(&self) -> u64 {
        self.theirs().written()
    }

    /// What the peer and the daemon change of the room to write: what was read there, credit, and whether this end's next write
    /// finds none. Who has a direction changes nothing by itself.
    pub(crate) fn room_there(&self) -> [u64; 3] {
        let is_full = self.room().is_some_and(|(room, unread)| !crate::is_roomy(room as u64, unread as u64));
        [self.head(), self.mine().granted.load(Ordering::Acquire), u64::from(is_full)]
    }

    /// What the peer has read.
    fn head(&self) -> u64 {
        self.theirs().head.load(Ordering::SeqCst)
    }

    /// The storage of what a side writes.
    fn ring(side: &Side) -> (u64, usize) {
        (side.storage.load(Ordering::Relaxed), side.size())
    }

    /// Writes as much as there is room for; `None` if TCP has the direction. The caller has the stream's sending direction to
    /// himself, and `own_tail` is TCP's cursor.
    pub(crate) fn write(&self, own_tail: u64, pieces: &[IoSlice<'_>]) -> Option<Result<usize, Lie>> {
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let (mut done, mut tries) = (0, 0);
        while done < len {
            match self.write_part(own_tail, pieces, done, len) {
                // What was written before the direction ended was written.
                None if done > 0 => break,
                None => return None,
                Some(Err(Unwritten::Lie)) => return Some(Err(Lie)),
                Some(Err(Unwritten::Changed)) if tries < TRIES_MAX => tries += 1,
                Some(Ok(0) | Err(Unwritten::Changed)) => break,
                Some(Ok(count)) => done += count,
            }
        }
        Some(Ok(done))
    }

    /// Writes up to [`CHUNK`] bytes of the `len` in `pieces`, behind the first `done`, if the direction is joined or can be
    /// (J1, J2).
    #[inline]
    fn write_part(
        &self,
        own_tail: u64,
        pieces: &[IoSlice<'_>],
        done: usize,
        len: usize,
    ) -> Option<Result<usize, Unwritten>> {
        let mine = self.mine();
        let mut state = mine.state.load(Ordering::Acquire);
        let tail = mine.whole(state);
        let ring @ (_, size) = Self::ring(mine);
        let limit = mine.limit();
        let part = (len - done).min(CHUNK);
        let unread = self.unread_at_most(state, tail, part as u64, limit);
        if unread > size as u64 {
            return Some(Err(Unwritten::Lie));
        }
        let part = part.min(limit.saturating_sub(unread) as usize);
        let part = if done == 0 && !mine.may_write(unread) { 0 } else { part };
        let credit = mine.credit(state, tail);
        if credit < part as u64 {
            self.ask(tail.wrapping_add((len - done) as u64));
        }
        let part = (part as u64).min(credit) as usize;
        if part == 0 && may_join(state, unread) {
            return Some(Ok(0));
        }
        let base = if unread == 0 { tail } else { mine.base.load(Ordering::Relaxed) };
        if may_join(state, unread) && !copy_in(self.memory, ring, tail.wrapping_sub(base), part, pieces, done)
        {
            return Some(Err(Unwritten::Lie));
        }
        while may_join(state, unread) {
            if unread == 0 {
                mine.base.store(base, Ordering::Relaxed);
            }
            if state & JOINED == 0 {
                mine.joined_at.store(own_tail, Ordering::Relaxed);
            }
            let new = (state | JOINED).wrapping_add((part as u64) << WRITTEN_SHIFT);
            match mine.state.compare_exchange(state, new, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    if done == 0 {
                        mine.count_write(unread);
                    }
                    let now = tail.wrapping_add(part as u64);
                    if now.wrapping_sub(mine.tail.load(Ordering::Relaxed)) >= COUNT_LAG {
                        mine.tail.store(now, Ordering::Release);
                    }
                    return Some(Ok(part));
                }
                // Flags have changed: nobody else writes the count.
                // What was joined and is so no more may have had a rest, and another, whose bit is as it was then.
                Err(there) if (there ^ state) & (LIMITED | AGE | JOINED) == 0 => state = there,
                Err(_) => return Some(Err(Unwritten::Changed)),
            }
        }
        None
    }

    /// Says that this end writes no more (J10), if the direction is joined or can be; the reader is to be told. The caller has the
    /// stream's sending direction to himself, and `own_tail` is TCP's cursor.
    pub(crate) fn end(&self, own_tail: u64) -> bool {
        let mine = self.mine();
        let mut state = mine.state.load(Ordering::Acquire);
        while may_join(state, mine.whole(state).wrapping_sub(self.head())) {
            if state & JOINED == 0 {
                mine.joined_at.store(own_tail, Ordering::Relaxed);
            }
            let new = state | JOINED | ENDED;
            match mine.state.compare_exchange(state, new, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return true,
                Err(there) => state = there,
            }
        }
        false
    }

    /// Whether this end has said that it writes no more.
    pub(crate) fn is_at_end(&self) -> bool {
        self.mine().state.load(Ordering::Relaxed) & ENDED != 0
    }

    /// Whether the peer has said so, and all that it has written is there, with TCP's ring filled up to `own_tail`.
    #[inline]
    pub(crate) fn peer_has_ended(&self, own_tail: impl Fn() -> u64) -> bool {
        let theirs = self.theirs();
        theirs.state.load(Ordering::SeqCst) & ENDED != 0
            && own_tail().wrapping_sub(theirs.joined_at.load(Ordering::Relaxed)).cast_signed() >= 0
    }

    /// How much of what was written may be unread: exactly, unless there is room for `part` more near by for certain (J7).
    #[inline]
    fn unread_at_most(&self, state: u64, tail: u64, part: u64, limit: u64) -> u64 {
        let mine = self.mine();
        let most = tail.wrapping_sub(mine.seen_head.load(Ordering::Relaxed));
        let is_near = most > 0 && most.saturating_add(part) <= limit.min(NEAR);
        if is_near && state & JOINED != 0 && mine.most_writes.load(Ordering::Relaxed) == 0 {
            return most;
        }
        let head = self.head();
        mine.seen_head.store(head, Ordering::Relaxed);
        tail.wrapping_sub(head)
    }

    /// What can be read, where TCP's ring has been read up to `own_head` and filled up to `own_tail` (J3).
    #[inline]
    pub(crate) fn look(&self, own_head: u64, own_tail: impl Fn() -> u64) -> Result<Readable, Lie> {
        let (mine, theirs) = (self.mine(), self.theirs());
        let own = own_tail().wrapping_sub(own_head) as usize;
        let state = theirs.state.load(Ordering::SeqCst);
        let head = mine.head.load(Ordering::Relaxed);
        let beside = ((state >> WRITTEN_SHIFT) as u32).wrapping_sub(head as u32) as usize;
        if beside == 0 {
            return Ok(Readable { own, ..Readable::default() });
        }
        if beside > Self::ring(theirs).1 {
            return Err(Lie);
        }
        let joined_at = theirs.joined_at.load(Ordering::Relaxed);
        let before = joined_at.wrapping_sub(own_head).cast_signed().max(0) as usize;
        Ok(match own.checked_sub(before) {
            Some(behind) => Readable { own: before, beside, behind },
            None => Readable { own, ..Readable::default() },
        })
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
            // Whether room is wanted is looked for behind this (J5).
            mine.head.swap(head.wrapping_add(len as u64), Ordering::SeqCst);
        }
        Ok(())
    }

    /// Whether the peer waits for room, of which there is enough now: it is to be told, once, and that it was ([`Beside::has_told_of_room`]).
    pub fn makes_room(&self) -> bool {
        order_for_models();
        let theirs = self.theirs();
        if theirs.wants_room.load(Ordering::SeqCst) != WANTED {
            return false;
        }
        let unread = theirs.written().wrapping_sub(self.mine().head.load(Ordering::Relaxed));
        let limit = theirs.limit();
        crate::is_roomy(limit.saturating_sub(unread), unread)
            && theirs.wants_room.compare_exchange(WANTED, TOLD, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// It was told. Whoever dies before he says so leaves the daemon to tell ([`Joint::may_be_untold`]).
    pub fn has_told_of_room(&self) {
        let _ = self.theirs().wants_room.compare_exchange(TOLD, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// This end waits for room. It looks again after this.
    pub(crate) fn want_room(&self) {
        self.mine().wants_room.store(WANTED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Would like to write up to this cursor (J8).
    #[cold]
    fn ask(&self, cursor: u64) {
        self.mine().asked.store(cursor, Ordering::SeqCst);
    }

    /// Whether this end, which waits for room, has no credit. If it has not been said how far it would like to write, that is
    /// said now.
    pub(crate) fn lacks_credit(&self) -> bool {
        let mine = self.mine();
        let state = mine.state.load(Ordering::Acquire);
        if state & LIMITED == 0 {
            return false;
        }
        let tail = mine.whole(state);
        if mine.credit(state, tail) > 0 {
            return false;
        }
        if mine.asked.load(Ordering::Relaxed).wrapping_sub(tail).cast_signed() <= 0 {
            self.ask(tail.wrapping_add(ASKED_LEAST));
        }
        true
    }

    /// How much may be written as far as limits go; `None` if the next write is TCP's.
    pub(crate) fn credit(&self) -> Option<usize> {
        let mine = self.mine();
        let state = mine.state.load(Ordering::Acquire);
        let credit = mine.credit(state, mine.whole(state));
        self.room().map(|_| usize::try_from(credit).unwrap_or(usize::MAX))
    }

    /// Room to write, and what is unread of what was written; `None` if the next write is TCP's.
    pub(crate) fn room(&self) -> Option<(usize, usize)> {
        let mine = self.mine();
        let state = mine.state.load(Ordering::Acquire);
        let unread = mine.whole(state).wrapping_sub(self.head());
        let limit = mine.limit();
        let may_write = mine.may_write(unread) && mine.credit(state, mine.whole(state)) > 0;
        let room = if may_write { limit.saturating_sub(unread) } else { 0 };
        may_join(state, unread).then_some((room as usize, unread as usize))
    }

    /// What was written here and counts as unacknowledged: what the reader's buffer would not hold.
    pub(crate) fn unacknowledged(&self) -> usize {
        let mine = self.mine();
        let unread = mine.written().wrapping_sub(self.head());
        unread.min(mine.limit()).saturating_sub(mine.room.load(Ordering::Relaxed).into()) as usize
    }
}

/// Whether a write may come to a direction in this state, of which so much is unread.
fn may_join(state: u64, unread: u64) -> bool {
    state & (OFFERED | OPEN | CLOSED | ENDED) == OFFERED | OPEN && (state & JOINED != 0 || unread == 0)
}

#[cfg(all(test, not(loom)))]
mod tests;
