//! A stream as its program has it: reading, writing and asking, by words that the lane sees.
//!
//! Nothing is kept here between calls, because threads and other processes may have the same socket: each call
//! enters its direction (`owner.rs`), works by the words of the block, and leaves. The rules of the rings are those of
//! `byte_ring.rs` in `base/frame` (R1 to R5), with one difference: storage is attached and detached by the lane alone,
//! for both rings. A writer that finds none asks for it and is told that there is no room.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use firelane_frame::ring_state::{ATTACHED, EPOCH, HELD, room_in, size_in};
use firelane_frame::{RingSide, RingWords};
use rustix::io::Errno;

use crate::joint::{Beside, Lie, Readable};
use crate::layout::{Block, FOLLOWED, Inbox, LOST, margin, request, status};
use crate::owner::{Busy, Holder, Inside, bury, is_inside};
use crate::readiness::Readiness;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys::Mapping;
use crate::wait::{Sleep, Spin, Woken};

/// Where the bytes of rings are.
pub(crate) trait Storage {
    /// As [`Mapping::copy_in`].
    fn copy_in(&self, at: u64, bytes: &[u8]) -> bool;
    /// As [`Mapping::copy_out`].
    fn copy_out(&self, at: u64, to: &mut [u8]) -> bool;
}

impl Storage for Mapping {
    #[inline]
    fn copy_in(&self, at: u64, bytes: &[u8]) -> bool {
        Self::copy_in(self, at, bytes)
    }

    #[inline]
    fn copy_out(&self, at: u64, to: &mut [u8]) -> bool {
        Self::copy_out(self, at, to)
    }
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteError {
    /// The ring is full or has no storage as yet, or the connection is not established.
    WouldBlock,
    /// The direction is shut, or the connection gone (EPIPE).
    Closed,
    /// The connection failed with this number of errno(3).
    Failed(i32),
    /// Somebody else is inside.
    Busy(Busy),
    /// The peer of a joint has said what cannot be true. The caller kicks the lane, which resets the connection.
    Lie,
}

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// The ring is empty, and more may come.
    WouldBlock,
    /// The connection failed with this number of errno(3).
    Failed(i32),
    /// Somebody else is inside.
    Busy(Busy),
    /// The peer of a joint has said what cannot be true. The caller kicks the lane, which resets the connection.
    Lie,
}

/// A stream, as one thread of the program sees it.
#[derive(Debug)]
pub struct StreamEnd<'a, M = Mapping> {
    pub(crate) memory: &'a M,
    pub(crate) block: &'a Block,
    number: u32,
    pub(crate) me: Holder,
    pub(crate) beside: Option<Beside<'a, M>>,
    /// A joint that it may have is not used here.
    is_alone: bool,
    /// Nor can it be: its segment is not mapped.
    is_unmapped: bool,
}

impl<M> Clone for StreamEnd<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for StreamEnd<'_, M> {}

impl<'a> StreamEnd<'a> {
    /// The stream of a block; `None` if the arena has no such block.
    #[inline]
    pub fn new(mapping: &'a Mapping, number: u32, me: Holder) -> Option<Self> {
        Some(Self {
            memory: mapping,
            block: mapping.block(number)?,
            number,
            me,
            beside: None,
            is_alone: false,
            is_unmapped: false,
        })
    }

    /// The same with the end of its joint.
    #[inline]
    #[must_use]
    pub fn with(self, beside: Beside<'a>) -> Self {
        Self { beside: Some(beside), ..self }
    }

    /// The same where its joint cannot be mapped. Its direction is not opened then.
    #[inline]
    #[must_use]
    pub fn alone(self) -> Self {
        Self { is_alone: true, is_unmapped: true, ..self }
    }

    /// The same as if there were no joint: what is urgent goes TCP's way (`urgent.rs`).
    #[must_use]
    pub fn apart(self) -> Self {
        Self { beside: None, is_alone: true, ..self }
    }

    /// The same as one that has not looked for its joint.
    #[must_use]
    pub fn anew(self) -> Self {
        Self { beside: None, is_alone: false, is_unmapped: false, ..self }
    }

    /// The end of its joint, if it has one here.
    #[inline]
    pub fn beside(&self) -> Option<Beside<'a>> {
        self.beside
    }

    fn lane(&self) -> u32 {
        (self.rings().margin[margin::PLACE].load(Ordering::Relaxed) & 0xffff) as u32
    }

    /// Tells the lane that there is work, from this CPU. If it sleeps its bell is rung by `ring`, which says whether it has.
    pub fn kick(&self, cpu: u16, ring: impl FnOnce(u32) -> bool) {
        let lane = self.lane();
        let Some(inbox) = self.memory.lane(lane) else { return };
        inbox.is_told_on(cpu);
        // Told off afterwards: one who dies between the two leaves the next one to ring again.
        if let Some(nap) = inbox.tell(self.number)
            && ring(lane)
        {
            inbox.was_rung(nap);
        }
    }

    /// Whether the lane's worker was last on this CPU.
    pub fn has_lane_on(&self, cpu: u16) -> bool {
        self.memory.lane(self.lane()).is_some_and(|inbox| inbox.was_on(cpu))
    }

    /// Whether its lane was at work on this CPU, so that who runs there has interrupted it.
    pub fn interrupts_lane(&self, cpu: u16) -> bool {
        let is_awake = |inbox: &Inbox| inbox.sleeping.load(Ordering::Relaxed) == 0;
        self.memory.lane(self.lane()).is_some_and(|inbox| inbox.was_on(cpu) && is_awake(inbox))
    }
}

// What a stream's words lie in is known to the crate alone.
#[allow(private_bounds)]
impl<'a, M: Storage> StreamEnd<'a, M> {
    /// The same over other memory.
    #[cfg(all(test, loom))]
    pub(crate) fn over(memory: &'a M, block: &'a Block, me: Holder) -> Self {
        Self { memory, block, number: 0, me, beside: None, is_alone: false, is_unmapped: false }
    }

    pub(crate) fn rings(&self) -> &'a RingWords {
        &self.block.rings
    }

    /// Its words.
    pub fn block(&self) -> &'a Block {
        self.block
    }

    /// The joint that it has and that is not known here: its segment, which one it is there, and which end of it.
    #[inline]
    pub fn lacks(&self) -> Option<(u64, u32, usize)> {
        if self.beside.is_some() || self.is_alone {
            return None;
        }
        let segment = self.block.segment.load(Ordering::SeqCst);
        let joint = || self.block.joint.load(Ordering::Relaxed);
        (segment != 0).then(|| (segment, (joint() >> 1) as u32, (joint() & 1) as usize))
    }

    /// Whether its joint is of no use here, and text may be there: another process has it that has mapped the segment. What the lane's ring
    /// has may lie behind that text. Asked behind a look at the ring: what came there before anybody had mapped the segment is in its place.
    #[inline]
    pub fn is_cut_off(&self) -> bool {
        self.is_unmapped && self.was_followed()
    }

    #[cold]
    fn was_followed(&self) -> bool {
        self.block.file.load(Ordering::SeqCst) & FOLLOWED != 0
            && self.block.segment.load(Ordering::SeqCst) != 0
    }

    /// Whether it is, and the daemon has not said what became of that text: it is to be asked ([`StreamEnd::asks_to_part`]).
    #[inline]
    pub fn awaits_parting(&self) -> bool {
        self.is_cut_off() && self.block.file.load(Ordering::SeqCst) & LOST == 0
    }

    /// Asks that nothing more go to the joint, if it is of no use here. Whether nobody has before: the caller kicks the lane.
    #[inline]
    pub fn asks_to_part(&self) -> bool {
        self.awaits_parting() && self.asks(request::PART)
    }

    /// What has happened to it for good, with its error: [`status`].
    #[inline]
    pub fn status(&self) -> u64 {
        self.rings().margin[margin::STATUS].load(Ordering::Acquire)
    }

    /// Takes the error, so that it is told once (SO_ERROR); zero is none.
    pub fn take_error(&self) -> i32 {
        if self.status() >> status::ERROR_SHIFT == 0 {
            return 0;
        }
        let below = (1 << status::ERROR_SHIFT) - 1;
        let old = self.rings().margin[margin::STATUS].fetch_and(below, Ordering::AcqRel);
        (old >> status::ERROR_SHIFT) as i32
    }

    /// An error that was taken and could not be told is there again, unless there is another.
    pub fn put_back(&self, error: i32) {
        let first =
            |old| (old >> status::ERROR_SHIFT == 0).then_some(old | (error as u64) << status::ERROR_SHIFT);
        let word = &self.rings().margin[margin::STATUS];
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, first);
    }

    /// Writes as much as there is room for. The caller kicks the lane.
    ///
    /// # Errors
    /// Why nothing was written. Whether it was for want of storage, [`StreamEnd::asks_for_storage`] says.
    pub fn write(&self, pieces: &[IoSlice<'_>]) -> Result<usize, WriteError> {
        let Some(_inside) = self.enter_to_write(pieces)? else { return Ok(0) };
        if let Some(beside) = &self.beside {
            match beside.write(self.rings().one.tail.load(Ordering::Relaxed), pieces) {
                // Another thread has shut the direction meanwhile.
                None if beside.is_at_end() => return Err(WriteError::Closed),
                None => {}
                Some(Ok(0)) => return Err(WriteError::WouldBlock),
                Some(Ok(count)) => return Ok(count),
                Some(Err(Lie)) => return Err(WriteError::Lie),
            }
        }
        let held = Held::take(&self.rings().one.state).ok_or(WriteError::WouldBlock)?;
        match self.write_held(&held, pieces).map_err(|Lie| WriteError::Lie)? {
            0 => Err(WriteError::WouldBlock),
            count => {
                let tail = &self.rings().one.tail;
                tail.store(tail.load(Ordering::Relaxed).wrapping_add(count as u64), Ordering::Release);
                self.note_unsent();
                Ok(count)
            }
        }
    }

    /// Enters the sending direction, if there is anything to write.
    #[inline]
    pub(crate) fn enter_to_write(&self, pieces: &[IoSlice<'_>]) -> Result<Option<Inside<'a>>, WriteError> {
        let status = self.status();
        if status >> status::ERROR_SHIFT != 0 {
            match self.take_error() {
                0 => {}
                error => return Err(WriteError::Failed(error)),
            }
        }
        if status & (status::WRITE_CLOSED | status::CLOSED) != 0 {
            return Err(WriteError::Closed);
        }
        if status & status::CONNECTED == 0 {
            return Err(WriteError::WouldBlock);
        }
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Ok(None);
        }
        // Others may go on where this one cannot, and the peer reads that first.
        if self.is_cut_off() {
            return Err(if self.awaits_parting() { WriteError::WouldBlock } else { WriteError::Closed });
        }
        Inside::enter(&self.block.send_owner, self.me).map(Some).map_err(WriteError::Busy)
    }

    /// Copies as much as there is room for behind what was written, and leaves it to the caller to publish that. Storage that is not mapped
    /// here is a lie to this process.
    pub(crate) fn write_held(&self, held: &Held<'_>, pieces: &[IoSlice<'_>]) -> Result<usize, Lie> {
        let (ours, theirs) = (&self.rings().one, &self.rings().two);
        let storage = ours.storage.load(Ordering::Relaxed).addr() as u64;
        let (tail, head) = (ours.tail.load(Ordering::Relaxed), theirs.head.load(Ordering::Acquire));
        let (size, limit) = (held.size(), room_in(held.state, self.capacity(0)));
        let room = limit.saturating_sub(tail.wrapping_sub(head) as usize).min(self.unsent_room());
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>().min(room);
        if copy_in(self.memory, (storage, size), tail, len, pieces, 0) { Ok(len) } else { Err(Lie) }
    }

    /// Reads what there is, or with `peek` shows it and leaves it. Beside the count, whether the lane is to be kicked: a
    /// window update is worth a message when a good part of the ring was read since the last. `Ok(0)` for a
    /// caller with room is the end of the stream.
    ///
    /// # Errors
    /// Why nothing was read.
    pub fn read(&self, pieces: &mut [IoSliceMut<'_>], peek: bool) -> Result<(usize, bool), ReadError> {
        let _inside = Inside::enter(&self.block.recv_owner, self.me).map_err(ReadError::Busy)?;
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        let (mut count, mut told) = self.read_inside(pieces, peek)?;
        if count == 0 && wanted > 0 {
            self.why_empty()?;
            // The end may have come with the last bytes, after the look at the ring: look again.
            (count, told) = self.read_inside(pieces, peek)?;
        }
        Ok((count, told))
    }

    /// `Ok` if no more bytes come.
    fn why_empty(&self) -> Result<(), ReadError> {
        let status = self.status();
        if self.available() > 0 || self.peer_has_ended(status) {
            // What failed after the peer's end is told by the next write, as in Linux.
            return Ok(());
        }
        match self.take_error() {
            0 if status & status::READ_CLOSED != 0 || self.is_closed(status) => Ok(()),
            0 => Err(ReadError::WouldBlock),
            error => Err(ReadError::Failed(error)),
        }
    }

    /// Whether the peer writes no more and all that it has written is there, by TCP or by the joint.
    #[inline]
    pub(crate) fn peer_has_ended(&self, status: u64) -> bool {
        let tail = || self.rings().two.tail.load(Ordering::Acquire);
        let there = || self.beside.as_ref().is_some_and(|beside| beside.peer_has_ended(tail));
        status & status::PEER_CLOSED != 0 && !self.is_cut_off() || there()
    }

    /// Whether nothing more comes or goes. As long as text may be elsewhere that is not known; where it is lost, it is at once.
    #[inline]
    pub(crate) fn is_closed(&self, status: u64) -> bool {
        if self.is_cut_off() { !self.awaits_parting() } else { status & status::CLOSED != 0 }
    }

    /// What can be read of the lane's ring, and then of the joint.
    #[inline]
    pub(crate) fn look(&self) -> Result<Readable, Lie> {
        let head = self.rings().one.head.load(Ordering::Relaxed);
        let tail = || self.rings().two.tail.load(Ordering::Acquire);
        match &self.beside {
            None => {
                let own = tail().wrapping_sub(head) as usize;
                Ok(Readable { own: if self.is_cut_off() { 0 } else { own }, ..Readable::default() })
            }
            Some(beside) => beside.look(head, tail),
        }
    }

    fn read_inside(&self, pieces: &mut [IoSliceMut<'_>], peek: bool) -> Result<(usize, bool), ReadError> {
        let all = self.look().map_err(|Lie| ReadError::Lie)?;
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        let cut = self.cut(all.own);
        let readable = cut.of(all);
        let skipped = if peek || wanted == 0 {
            cut.hole as u64
        } else {
            self.pass(cut);
            0
        };
        let (own, tells) = match readable.own.min(wanted) {
            0 => (0, false),
            len => self.read_own(skipped, len, (pieces, 0), peek).map_err(|Lie| ReadError::Lie)?,
        };
        let count = readable.beside.min(wanted - own);
        // A ring that did not give what it has is not passed over.
        if count == 0 || own < readable.own.min(wanted) {
            return Ok((own, tells));
        }
        if let Some(beside) = &self.beside {
            beside.read(count, pieces, own, peek).map_err(|Lie| ReadError::Lie)?;
        }
        let shown = own + count;
        // What lies behind the joint's text is read once that is gone. Who only looks sees it now.
        let behind = readable.behind.min(wanted - shown);
        if !peek || behind == 0 || count < readable.beside {
            return Ok((shown, tells));
        }
        let skipped = skipped + own as u64;
        let (more, _) =
            self.read_own(skipped, behind, (pieces, shown), peek).map_err(|Lie| ReadError::Lie)?;
        Ok((shown + more, tells))
    }

    /// Copies `len` bytes of the ring that the lane writes, behind `skipped`, to the pieces behind their first bytes. How many there were, and
    /// whether the lane is to be told.
    fn read_own(
        &self,
        skipped: u64,
        len: usize,
        (pieces, filled): (&mut [IoSliceMut<'_>], usize),
        peek: bool,
    ) -> Result<(usize, bool), Lie> {
        let (ours, theirs) = (&self.rings().one, &self.rings().two);
        let head = ours.head.load(Ordering::Relaxed).wrapping_add(skipped);
        // With bytes in the ring the lane neither detaches nor replaces its storage (R4, R5).
        let ring = place(theirs);
        let len = len.min(ring.1);
        if !copy_out(self.memory, ring, head, len, pieces, filled) {
            return Err(Lie);
        }
        if peek {
            return Ok((len, false));
        }
        let cursor = head.wrapping_add(len as u64);
        ours.head.store(cursor, Ordering::Release);
        // The window is what there is storage for.
        let step = (self.capacity(1).min(ring.1) / 4).max(1) as u64;
        let is_far = cursor.wrapping_sub(self.block.told_at.load(Ordering::Relaxed)) >= step;
        if is_far {
            self.block.told_at.store(cursor, Ordering::Relaxed);
        }
        Ok((len, is_far))
    }

    /// The most bytes of the send ring (0) or the receive ring (1).
    pub(crate) fn capacity(&self, ring: usize) -> usize {
        self.block.capacity[ring].load(Ordering::Relaxed) as usize
    }

    /// Bytes that one read can give now, or who reads again and again until a mark.
    #[inline]
    pub fn available(&self) -> usize {
        // Who reads what is not so is told.
        self.look().map_or(1, |all| self.cut(all.own).of(all).total())
    }

    /// Bytes that the peer has not acknowledged (SIOCOUTQ): what its buffer would hold counts as acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.undelivered() + self.beside.as_ref().map_or(0, Beside::unacknowledged)
    }

    /// Bytes that the lane has and the peer has not acknowledged.
    pub(crate) fn undelivered(&self) -> usize {
        let head = self.rings().two.head.load(Ordering::Acquire);
        self.rings().one.tail.load(Ordering::Relaxed).wrapping_sub(head) as usize
    }

    /// After a write: whether the lane is to be kicked, because what was written goes its way.
    #[inline]
    pub fn concerns_lane(&self) -> bool {
        self.beside.is_none() || self.undelivered() > 0
    }

    /// Bytes that can be written now; none without storage.
    pub fn room(&self) -> usize {
        let credit = self.beside.as_ref().and_then(Beside::credit).unwrap_or(usize::MAX);
        self.room_and_unread().0.min(credit).min(self.unsent_room())
    }

    /// Room to write, and what lies before it in the same ring.
    pub(crate) fn room_and_unread(&self) -> (usize, usize) {
        if let Some(there) = self.beside.as_ref().and_then(Beside::room) {
            return there;
        }
        if self.is_cut_off() {
            return (0, 0);
        }
        let unread = self.undelivered();
        (self.own_room().saturating_sub(unread), unread)
    }

    /// How much the ring that the lane reads may hold.
    pub(crate) fn own_room(&self) -> usize {
        let state = self.rings().one.state.load(Ordering::Acquire);
        if state & ATTACHED == 0 {
            return 0;
        }
        room_in(state, self.capacity(0))
    }

    /// Whether the send ring waits for storage, or the joint for credit, that nobody has asked for. Who waits to write calls it before he sleeps,
    /// and kicks the lane if it answers so.
    pub fn asks_for_storage(&self) -> bool {
        if let Some(beside) = &self.beside
            && beside.room().is_some()
        {
            beside.want_room();
            return beside.lacks_credit() && self.asks(request::WANTS_CREDIT);
        }
        let status = self.status();
        let may_write =
            status & status::CONNECTED != 0 && status & (status::WRITE_CLOSED | status::CLOSED) == 0;
        let lacks = may_write && self.rings().one.state.load(Ordering::Acquire) & ATTACHED == 0;
        lacks && self.asks(request::WANTS_STORAGE)
    }

    /// Asks the lane for something. Whether nobody has before.
    fn asks(&self, bit: u64) -> bool {
        self.request(bit) & bit == 0
    }

    /// Asks the lane for something; the caller kicks it. What was asked for before.
    pub fn request(&self, bits: u64) -> u64 {
        self.block.requests.fetch_or(bits, Ordering::AcqRel)
    }

    /// Sets or clears an option of [`request`]; the caller kicks the lane.
    pub fn set_option(&self, bit: u64, on: bool) {
        match on {
            true => self.block.requests.fetch_or(bit, Ordering::AcqRel),
            false => self.block.requests.fetch_and(!bit, Ordering::AcqRel),
        };
        self.request(request::OPTIONS);
    }

    /// Ends the sending direction after what was written (SHUT_WR); the caller kicks the lane.
    pub fn shut_write(&self) {
        self.rings().margin[margin::STATUS].fetch_or(status::WRITE_CLOSED, Ordering::AcqRel);
        self.request(request::SHUT_WRITE);
    }

    /// Lets who is fused with it have the end of the stream at once, where that can be; he is to be told. By TCP it comes in any case.
    pub fn end_beside(&self) -> bool {
        let Some(beside) = &self.beside else { return false };
        let Ok(_inside) = Inside::enter(&self.block.send_owner, self.me) else { return false };
        beside.end(self.rings().one.tail.load(Ordering::Relaxed))
    }

    /// The program has closed the socket, and nobody else has it; the caller kicks the lane. Whether it will end so: a lane that
    /// has made no connection as yet does not look.
    pub fn leave(&self) -> bool {
        let is_made = self.status() & status::CONNECTED != 0;
        if is_made {
            self.request(request::CLOSE);
        }
        is_made
    }

    /// Reads no more than what is there (SHUT_RD); the caller kicks the lane. The peer is not told.
    pub fn shut_read(&self) {
        self.rings().margin[margin::STATUS].fetch_or(status::READ_CLOSED, Ordering::AcqRel);
        self.request(request::SHUT_READ);
    }

    /// Waits until one of `events`, or an error or hang-up, is there: looks again for a while and then sleeps, for at most
    /// `limit` and [`crate::SLICE`].
    pub fn wait(&self, events: u32, limit: Duration, spin: &mut Spin) -> Woken {
        let wanted = events | Readiness::ERROR | Readiness::HANGUP;
        self.wait_by(events, |ready| ready.has(wanted), limit, spin, crate::wait::sleep_on)
    }

    /// The same until `is_there`, asked of what is ready of `events`, and asleep in a call of `sleep_on` ([`crate::Sleep::until_by`]).
    pub fn wait_by(
        &self,
        events: u32,
        is_there: impl Fn(Readiness) -> bool,
        limit: Duration,
        spin: &mut Spin,
        sleep_on: impl FnOnce(&AtomicU32, u32, Duration) -> Result<(), Errno>,
    ) -> Woken {
        // Who waits for a stream that gets a joint meanwhile must wait there.
        let is_ready = || is_there(self.readiness_of(events)) || self.lacks().is_some();
        if spin.until(is_ready) { Woken::Ready } else { self.sleep().until_by(limit, is_ready, sleep_on) }
    }
}

#[allow(private_bounds)]
impl<'a, M: Storage> StreamEnd<'a, M> {
    /// Where its threads sleep.
    pub fn sleep(&self) -> &'a Sleep {
        self.beside.as_ref().map_or(&self.block.sleep, Beside::sleep)
    }
}

/// The state word of a ring while its writer is inside (R3).
pub(crate) struct Held<'a> {
    word: &'a AtomicU64,
    state: u64,
}

impl<'a> Held<'a> {
    /// Takes hold of the storage, if there is any.
    #[inline]
    pub(crate) fn take(word: &'a AtomicU64) -> Option<Self> {
        let mut state = word.load(Ordering::Acquire);
        loop {
            if state & ATTACHED == 0 {
                return None;
            }
            // The direction's owner is inside alone, so a hold that is there was left by one who died: it is taken over.
            let held = state | HELD;
            match word.compare_exchange(state, held, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Self { word, state: held }),
                Err(now) => state = now,
            }
        }
    }

    pub(crate) fn size(&self) -> usize {
        size_in(self.state)
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // While it is held, nobody else changes the word.
        self.word.store((self.state & !HELD).wrapping_add(EPOCH), Ordering::Release);
    }
}

/// Where the storage of the ring that a side writes is, and how long.
pub(crate) fn place(side: &RingSide) -> (u64, usize) {
    let state = side.state.load(Ordering::Acquire);
    (side.storage.load(Ordering::Relaxed).addr() as u64, size_in(state))
}

/// The at most two pieces of storage for `len` bytes at `cursor`, and which of the bytes belong there.
pub(crate) fn parts(
    storage: u64,
    size: usize,
    cursor: u64,
    len: usize,
) -> impl Iterator<Item = (u64, (usize, usize))> {
    let offset = cursor as usize & (size - 1);
    let first = len.min(size - offset);
    let pieces = [(storage.wrapping_add(offset as u64), (0, first)), (storage, (first, len))];
    pieces.into_iter().filter(|(_, (from, to))| from < to)
}

/// Where the storage for `len` bytes at `cursor` is, if it is one piece.
#[inline]
fn whole(storage: u64, size: usize, cursor: u64, len: usize) -> Option<u64> {
    let offset = cursor as usize & (size - 1);
    (len <= size - offset).then(|| storage.wrapping_add(offset as u64))
}

/// Copies `len` bytes of `pieces`, behind the first `skip`, into a ring at `cursor`. Whether all of it is storage.
#[inline]
pub(crate) fn copy_in<M: Storage>(
    memory: &M,
    (storage, size): (u64, usize),
    cursor: u64,
    len: usize,
    pieces: &[IoSlice<'_>],
    skip: usize,
) -> bool {
    if let ([piece], Some(at)) = (pieces, whole(storage, size, cursor, len))
        && let Some(bytes) = piece.get(skip..skip + len)
    {
        return memory.copy_in(at, bytes);
    }
    let (mut skip, mut done) = (skip, 0);
    for piece in pieces {
        let begin = skip.min(piece.len());
        skip -= begin;
        let count = (piece.len() - begin).min(len - done);
        for (at, (from, to)) in parts(storage, size, cursor.wrapping_add(done as u64), count) {
            if !memory.copy_in(at, &piece[begin + from..begin + to]) {
                return false;
            }
        }
        done += count;
    }
    true
}

/// The same out of a ring.
#[inline]
pub(crate) fn copy_out<M: Storage>(
    memory: &M,
    (storage, size): (u64, usize),
    cursor: u64,
    len: usize,
    pieces: &mut [IoSliceMut<'_>],
    skip: usize,
) -> bool {
    if let ([piece], Some(at)) = (&mut *pieces, whole(storage, size, cursor, len))
        && let Some(room) = piece.get_mut(skip..skip + len)
    {
        return memory.copy_out(at, room);
    }
    let (mut skip, mut done) = (skip, 0);
    for piece in pieces {
        let begin = skip.min(piece.len());
        skip -= begin;
        let count = (piece.len() - begin).min(len - done);
        for (at, (from, to)) in parts(storage, size, cursor.wrapping_add(done as u64), count) {
            if !memory.copy_out(at, &mut piece[begin + from..begin + to]) {
                return false;
            }
        }
        done += count;
    }
    true
}

impl Block {
    /// Daemon: a session has died. Frees what its threads held of this stream. Whether they held anything.
    pub fn bury(&self, session: u32) -> bool {
        let has_written = is_inside(&self.send_owner, session);
        if has_written {
            // As long as the owner word names the dead, nobody else takes the hold: it is freed first.
            let word = &self.rings.one.state;
            let state = word.load(Ordering::Acquire);
            if state & HELD != 0 {
                let free = (state & !HELD).wrapping_add(EPOCH);
                let _ = word.compare_exchange(state, free, Ordering::AcqRel, Ordering::Relaxed);
            }
            bury(&self.send_owner, session);
        }
        bury(&self.recv_owner, session) || has_written
    }

    /// Daemon: something has happened to the stream for good ([`status`], with an error above), and whoever sleeps on it
    /// is woken. The first error stays. Whether somebody slept.
    pub fn tell(&self, news: u64) -> bool {
        self.note(news);
        self.wake()
    }

    /// The same for who wakes those who sleep afterwards.
    pub fn note(&self, news: u64) {
        let word = &self.rings.margin[margin::STATUS];
        let has_error = word.load(Ordering::Relaxed) >> status::ERROR_SHIFT != 0;
        let flags = news & ((1 << status::ERROR_SHIFT) - 1);
        word.fetch_or(if has_error { flags } else { news }, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
