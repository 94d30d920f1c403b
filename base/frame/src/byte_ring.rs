//! A stream of bytes between one writer and one reader, addressed by 64-bit cursors.
//!
//! A stream socket is two of these, one in each direction, in one allocation ([`byte_rings`]). A cursor counts
//! the bytes since the stream began, so TCP's sequence numbers are cursors plus a constant, and the send ring
//! is the retransmission buffer. The storage is not the stream: it is attached at the first write, may be
//! detached whenever no byte is in it, and may differ in size each time. Two rings without storage cost 152
//! bytes and their halves.
//!
//! The first party may be another process, to which part of an arena is shown ([`byte_rings_in`]). It is not trusted:
//! the second party's halves work as ever on words and storage places of their own, publish copies, and check what they
//! are told (`far.rs`).
//!
//! The second party may lend its halves, so that the first reads straight from a ring that somebody else's first party
//! writes, and the pair's own ring carries nothing (`fused.rs`).
//!
//! ```text
//!   released by the reader        published by the writer       end of what was written ahead
//!            head  <=  readable  <=  tail  <=  out of order, with holes  <=  ahead  <=  head + capacity
//! ```
//!
//! R1. Only the writer moves `tail` and attaches storage (in an arena the second party, for both rings; R6 is the exception);
//!     only the reader moves `head`. Each reads its own cursor back from there.
//! R2. The reader touches `head..tail`, the writer `tail..head + capacity`. A side gives bytes up by a release
//!     store of its cursor and gains them by an acquire load of the other's.
//! R3. While the writer is inside a write, or has bytes ahead of `tail`, it holds HELD in the state word, and
//!     nobody detaches. Leaving counts the epoch up, so an earlier reading of the word is recognised.
//! R4. Storage is detached by compare-and-swap of the whole state word from a value that was read before the
//!     ring was seen empty. It fails if the writer entered meanwhile (R3). The winner frees.
//! R5. With no byte in `head..tail` the reader touches no storage, so the writer may replace it, or turn it: lay the
//!     cursors on it anew. A ring that is emptied again and again begins each time at the same line of the storage's first page,
//!     which is still in a cache, instead of walking over all of it. Which line that is differs from storage to storage: large ones
//!     begin at multiples of their size, and their first lines would all want the same few places of a cache. In an arena nothing
//!     is turned.
//! R6. The reader may move what is unread to larger storage (`grow.rs`). It holds the old one as a writer does (R3) while
//!     the writer is not inside, who finds no room meanwhile. The new one is GROWN: all of it is the capacity, until it is
//!     detached.

use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use core::{ptr, slice};
// Pairs that are joined refer to each other weakly, which loom's counter does not know.
use std::sync::{Arc, Weak};

use crate::ahead::{Use, fetch_bytes, read_all_ahead};
use crate::arena::RingArena;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

mod far;
mod fused;
mod gate;
mod grow;
mod home;

use far::Far;
pub use far::FarView;
pub use fused::{FusedReader, FusedWriter, Halves, Terms, Visit, fuse, is_cramped, part, reopen};
pub use home::{Packed, move_home};

/// Storage is attached.
pub const ATTACHED: u64 = 1;
/// The writer is inside, or has bytes ahead (R3).
pub const HELD: u64 = 2;
/// Where the storage's size, as a power of two, begins: five bits of the state word.
pub const SIZE_SHIFT: u32 = 2;
const SIZE: u64 = 0x1f << SIZE_SHIFT;
/// All of the storage is the capacity (R6).
pub const GROWN: u64 = 1 << 7;
/// How far the storage is turned, in units of [`TURN_BYTES`]: 24 bits of the state word.
const TURN_SHIFT: u32 = 8;
const TURN: u64 = 0xff_ffff << TURN_SHIFT;
/// A cache line, which is written from its begin.
const TURN_BYTES: usize = 64;
/// One completed stay of the writer.
pub const EPOCH: u64 = 1 << 32;

/// The largest capacity: 1 GiB, the largest TCP window (RFC 7323 §2.3).
const CAPACITY_MAX: usize = 1 << 30;
/// The smallest storage.
const STORAGE_MIN: usize = 64;

const _: () = assert!(CAPACITY_MAX / TURN_BYTES <= 1 << 24 && STORAGE_MIN.is_multiple_of(TURN_BYTES));

/// What one party writes: the tail and the storage of the ring that it writes, the head of the one that it reads.
#[repr(C)]
#[derive(Debug, Default)]
pub struct RingSide {
    /// How many bytes it has published.
    pub tail: AtomicU64,
    /// How many bytes it has released of the ring that it reads.
    pub head: AtomicU64,
    /// The state word of the ring that it writes: [`ATTACHED`], [`HELD`], the size, the epoch.
    pub state: AtomicU64,
    /// Where the storage of the ring that it writes is: an address, or in shared memory the distance from its begin.
    pub storage: AtomicPtr<u8>,
}

/// How many words the margin has.
pub const MARGIN_WORDS: usize = 8;

/// The words between the two parties' sides. They keep the sides on different cache lines, wherever the
/// allocation begins; whoever owns the rings may use them for what both parties must see.
pub type Margin = [core::sync::atomic::AtomicU64; MARGIN_WORDS];

/// The words of two rings in opposite directions: the same in this process' own memory and in shared memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct RingWords {
    /// What the first party writes.
    pub one: RingSide,
    /// What lies between, for what both parties must see.
    pub margin: Margin,
    /// What the second party writes.
    pub two: RingSide,
}

/// The words in this process' own memory; who goes last frees the storage.
#[repr(C)]
#[derive(Default)]
struct Block {
    words: RingWords,
    beside: BesideSlot,
}

/// What few pairs of rings have.
#[derive(Default)]
struct Beside {
    /// The first party is another process: the words here are the second party's own.
    far: Option<Far>,
    /// It was fused with another pair, and may be again.
    joint: std::sync::OnceLock<fused::Seat>,
}

/// A place for a [`Beside`], which is made once.
#[derive(Default)]
struct BesideSlot(AtomicPtr<Beside>);

impl BesideSlot {
    fn of_far(far: Far) -> Self {
        let beside = Beside { far: Some(far), ..Beside::default() };
        Self(AtomicPtr::new(Box::into_raw(Box::new(beside))))
    }

    #[inline]
    fn get(&self) -> Option<&Beside> {
        // SAFETY: the pointer is null or of a box that lives as long as the slot.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    fn get_or_make(&self) -> &Beside {
        if let Some(beside) = self.get() {
            return beside;
        }
        let made = Box::into_raw(Box::default());
        let null = ptr::null_mut();
        let at = match self.0.compare_exchange(null, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(there) => {
                // SAFETY: it was made just above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                there
            }
        };
        // SAFETY: as in `get`.
        unsafe { &*at }
    }
}

impl Drop for BesideSlot {
    fn drop(&mut self) {
        let at = self.0.load(Ordering::Acquire);
        if !at.is_null() {
            // SAFETY: nobody refers to the slot any more, so nobody refers to its box.
            drop(unsafe { Box::from_raw(at) });
        }
    }
}

impl Deref for Block {
    type Target = RingWords;

    #[inline]
    fn deref(&self) -> &RingWords {
        &self.words
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(core::mem::offset_of!(RingWords, two) - size_of::<RingSide>() >= 64);
    // `Arc` adds two counters.
    assert!(size_of::<Block>() + 16 == 152);
    assert!(size_of::<RingWriter>() + size_of::<RingReader>() == 56);
};

/// A stream of at most `capacity` unread bytes (up to 1 GiB), without storage as yet.
pub fn byte_ring(capacity: usize) -> (RingWriter, RingReader) {
    let ((writer, _), (_, reader)) = byte_rings(capacity, 1);
    (writer, reader)
}

/// Two streams between two parties: for each of them the half that it writes and the half that it reads. The
/// first party's stream has at most `one` unread bytes, the second's `two`.
pub fn byte_rings(one: usize, two: usize) -> ((RingWriter, RingReader), (RingWriter, RingReader)) {
    let block = Arc::new(Block::default());
    let writer = |by: Party, capacity: usize| RingWriter {
        block: Arc::clone(&block),
        ahead: 0,
        head_seen: Cell::new(0),
        capacity: clamped(capacity),
        by,
    };
    let reader = |by: Party| RingReader { block: Arc::clone(&block), tail_seen: Cell::new(0), by };
    ((writer(Party::One, one), reader(Party::One)), (writer(Party::Two, two), reader(Party::Two)))
}

/// Two streams of which the first party is a process that shares an arena: a reference that keeps them, and the
/// second party's halves. `None` if the arena has no block left.
pub fn byte_rings_in(
    arena: &std::sync::Arc<RingArena>,
    one: usize,
    two: usize,
) -> Option<(MarginRef, (RingWriter, RingReader))> {
    let far = Far::new(arena, clamped(one))?;
    let block = Arc::new(Block { words: RingWords::default(), beside: BesideSlot::of_far(far) });
    let by = Party::Far;
    let reader = RingReader { block: Arc::clone(&block), tail_seen: Cell::new(0), by };
    let writer = RingWriter {
        block: Arc::clone(&block),
        ahead: 0,
        head_seen: Cell::new(0),
        capacity: clamped(two),
        by,
    };
    Some((MarginRef(block), (writer, reader)))
}

/// Whose half it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Party {
    One,
    Two,
    /// The second party's, and the first is another process.
    Far,
    /// The second party's, and lent to the first: its own use has to wait.
    Lent,
}

impl Block {
    /// The ring that `party` writes.
    #[inline]
    fn written_by(&self, party: Party) -> Ring<'_> {
        match party {
            Party::One => Ring { writer: &self.one, reader: &self.two },
            Party::Two | Party::Far | Party::Lent => Ring { writer: &self.two, reader: &self.one },
        }
    }

    /// The ring that `party` reads.
    #[inline]
    fn read_by(&self, party: Party) -> Ring<'_> {
        match party {
            Party::One => self.written_by(Party::Two),
            Party::Two | Party::Far | Party::Lent => self.written_by(Party::One),
        }
    }
}

impl Block {
    /// The other process' side, if there is one.
    #[inline]
    fn far(&self) -> Option<&Far> {
        self.beside.get()?.far.as_ref()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(far) = self.far() {
            return far.end(&self.words);
        }
        for party in [Party::One, Party::Two] {
            let ring = self.written_by(party);
            let Place { storage, len, .. } = ring.storage();
            if ring.attached_bytes() > 0 {
                // SAFETY: all halves are gone.
                unsafe { memory::free(storage, len) };
            }
        }
    }
}

/// The margin of two rings, for who holds none of their halves.
#[derive(Clone)]
pub struct MarginRef(Arc<Block>);

impl Deref for MarginRef {
    type Target = Margin;

    #[inline]
    fn deref(&self) -> &Margin {
        &self.0.margin
    }
}

impl MarginRef {
    /// How many bytes of the first party's ring the second has released.
    pub fn released(&self) -> u64 {
        self.0.two.head.load(Ordering::Acquire)
    }

    /// How many bytes the second party has published.
    pub fn published(&self) -> u64 {
        self.0.two.tail.load(Ordering::Acquire)
    }

    /// What the other process sees, if there is one.
    pub fn far(&self) -> Option<FarView<'_>> {
        self.0.far().map(FarView)
    }

    /// The same without keeping the rings.
    pub fn downgrade(&self) -> WeakMarginRef {
        WeakMarginRef(Arc::downgrade(&self.0))
    }
}

/// Two rings that others may have.
#[derive(Clone)]
pub struct WeakMarginRef(Weak<Block>);

impl WeakMarginRef {
    /// The rings, if anybody has them.
    pub fn upgrade(&self) -> Option<MarginRef> {
        self.0.upgrade().map(MarginRef)
    }

    /// Whether nobody has them any more.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl fmt::Debug for WeakMarginRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakMarginRef").finish_non_exhaustive()
    }
}

impl fmt::Debug for MarginRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarginRef").finish_non_exhaustive()
    }
}

fn clamped(capacity: usize) -> u32 {
    capacity.clamp(1, CAPACITY_MAX) as u32
}

fn storage_for(capacity: u32) -> usize {
    (capacity as usize).next_power_of_two().max(STORAGE_MIN)
}

/// Storage, and how the cursors lie on it.
#[derive(Clone, Copy)]
struct Place {
    storage: *mut u8,
    len: usize,
    turn: usize,
}

impl Place {
    #[inline]
    fn new(storage: *mut u8, state: u64) -> Self {
        let turn = ((state & TURN) >> TURN_SHIFT) as usize * TURN_BYTES;
        Self { storage, len: size_in(state), turn }
    }

    /// The two pieces of storage for `len` bytes at `cursor`: offset and length of the first, length of the
    /// second, which begins at offset zero.
    #[inline]
    fn pieces(self, cursor: u64, len: usize) -> (usize, usize, usize) {
        let offset = (cursor as usize).wrapping_add(self.turn) & (self.len - 1);
        let first = len.min(self.len - offset);
        (offset, first, len - first)
    }
}

/// Lines of a page where the cursors of an empty ring may lie.
const FIRST_LINES: u64 = 32;

/// The state word of an empty ring with this storage, turned so that `cursor` lies at the storage's own line (R5).
#[inline]
fn turned(state: u64, cursor: u64, storage: *mut u8) -> u64 {
    let size = size_in(state);
    let units = (size / TURN_BYTES) as u64;
    // Neighbours have different ones; small storage lies where the allocator found room.
    let line = (storage.addr() / size) as u64 & (FIRST_LINES - 1);
    let turn = line.wrapping_sub(cursor / TURN_BYTES as u64) & (units - 1);
    state & !TURN | turn << TURN_SHIFT
}

/// One ring: the words of both parties that are about it.
#[derive(Clone, Copy)]
struct Ring<'a> {
    writer: &'a RingSide,
    reader: &'a RingSide,
}

impl Ring<'_> {
    /// Where the storage is.
    #[inline]
    fn storage(self) -> Place {
        let state = self.writer.state.load(Ordering::Relaxed);
        Place::new(self.writer.storage.load(Ordering::Relaxed), state)
    }

    /// Detaches storage that `state` shows attached and not held, if the word is unchanged (R4).
    fn detach_from(self, state: u64) -> bool {
        // Read first: after the swap the writer may attach other storage.
        let (storage, len) = (self.writer.storage.load(Ordering::Relaxed), size_in(state));
        let swapped =
            self.writer.state.compare_exchange(state, detached(state), Ordering::AcqRel, Ordering::Relaxed);
        if swapped.is_ok() {
            // SAFETY: (R4) this side won the swap, so the storage is this side's to free; (R5) nobody
            // touches it.
            unsafe { memory::free(storage, len) };
        }
        swapped.is_ok()
    }

    fn attached_bytes(self) -> usize {
        let state = self.writer.state.load(Ordering::Acquire);
        if state & ATTACHED != 0 { size_in(state) } else { 0 }
    }
}

/// How long the storage is, by the state word.
#[inline]
pub const fn size_in(state: u64) -> usize {
    1 << ((state & SIZE) >> SIZE_SHIFT)
}

/// How many bytes may be unread in attached storage, of a ring that began with this `capacity`.
#[inline]
pub const fn room_in(state: u64, capacity: usize) -> usize {
    let size = size_in(state);
    if state & GROWN != 0 || size < capacity { size } else { capacity }
}

/// The state word without storage.
#[inline]
const fn detached(state: u64) -> u64 {
    state & !(ATTACHED | GROWN)
}

/// The side that writes the stream.
pub struct RingWriter {
    block: Arc<Block>,
    /// The end of the furthest byte written; `tail` or behind it unless data are out of order.
    ahead: u64,
    head_seen: Cell<u64>,
    capacity: u32,
    by: Party,
}

impl RingWriter {
    #[inline]
    fn ring(&self) -> Ring<'_> {
        self.block.written_by(self.by)
    }

    /// The words between this ring's side and the other party's.
    #[inline]
    pub fn margin(&self) -> &Margin {
        &self.block.margin
    }

    /// The same, to be kept beside the halves.
    pub fn margin_ref(&self) -> MarginRef {
        MarginRef(Arc::clone(&self.block))
    }

    /// Begins to fetch the words of both rings, and what lies between them.
    #[inline]
    pub fn words_ahead(&self) {
        read_all_ahead(&self.block.words);
    }

    /// Begins to fetch the storage where the next bytes will be written. The words should be near.
    #[inline]
    pub fn storage_ahead(&self) {
        let ring = self.ring();
        let state = ring.writer.state.load(Ordering::Relaxed);
        if state & ATTACHED != 0 && self.by != Party::Far {
            let is_empty = ring.reader.head.load(Ordering::Relaxed) == self.cursor();
            let storage = ring.writer.storage.load(Ordering::Relaxed);
            let state = if is_empty { turned(state, self.cursor(), storage) } else { state };
            let place = Place::new(storage, state);
            let (offset, ..) = place.pieces(self.cursor(), 1);
            fetch_bytes(place.storage.wrapping_add(offset), 1, Use::Write);
        }
    }

    /// The most unread bytes.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Changes the capacity. Returns whether it holds at once; more than the attached storage holds takes
    /// effect when the ring is next empty. Less than what is unread leaves no room until it is read.
    pub fn set_capacity(&mut self, capacity: usize) -> bool {
        self.capacity = clamped(capacity);
        self.room_limit() == self.capacity()
    }

    /// Bytes published so far.
    #[inline]
    pub fn cursor(&self) -> u64 {
        self.ring().writer.tail.load(Ordering::Relaxed)
    }

    /// Published bytes that the reader has not released.
    pub fn unread(&self) -> usize {
        self.head_seen.set(match self.by {
            Party::Far => self.far_head(),
            _ => self.ring().reader.head.load(Ordering::Acquire),
        });
        (self.cursor() - self.head_seen.get()) as usize
    }

    /// How many bytes can be written after the cursor.
    pub fn free(&self) -> usize {
        let unread = self.unread();
        self.room_limit().saturating_sub(unread)
    }

    /// The capacity that holds at present: what was asked for, unless the storage is smaller and in use, or has grown.
    fn room_limit(&self) -> usize {
        let state = self.ring().writer.state.load(Ordering::Acquire);
        if state & ATTACHED == 0 {
            return self.capacity();
        }
        if state & HELD != 0 && !self.is_inside() {
            return 0;
        }
        let is_idle = || self.ahead <= self.cursor() && self.unread() == 0;
        // In an arena there may be no storage to replace it.
        let is_outgrown = size_in(state) < self.capacity();
        if is_outgrown && self.by != Party::Far && is_idle() {
            self.capacity()
        } else {
            room_in(state, self.capacity())
        }
    }

    /// Whether it is the writer who holds the storage, if it is held.
    #[inline]
    fn is_inside(&self) -> bool {
        self.by == Party::Far || self.ahead > self.cursor()
    }

    /// Writes as much of `bytes` as there is room for, publishes it and returns how much.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let count = self.write_at(self.cursor(), bytes);
        self.advance(count);
        count
    }

    /// Writes `bytes` at `cursor`, at or after the published cursor, without publishing; returns how many
    /// had room. Out-of-order data wait in place for [`RingWriter::advance`].
    ///
    /// # Panics
    /// If `cursor` is before the published cursor.
    pub fn write_at(&mut self, cursor: u64, bytes: &[u8]) -> usize {
        let ([one, two], first, second) = self.enter_at(cursor, bytes.len());
        let count = first + second;
        let (head, rest) = bytes[..count].split_at(first);
        // SAFETY: as in `space_at`; another process may write there too, so no reference is made.
        unsafe {
            one.copy_from_nonoverlapping(head.as_ptr(), first);
            // Text that goes around the end is rare.
            if second > 0 {
                two.copy_from_nonoverlapping(rest.as_ptr(), second);
            }
        }
        count
    }

    /// Room for up to `len` bytes at `cursor`, at or after the published cursor, for the caller to fill (a
    /// copy that also sums, or a read from a descriptor). The room counts as written.
    ///
    /// # Panics
    /// If `cursor` is before the published cursor, or the memory is another process' too.
    pub fn space_at(&mut self, cursor: u64, len: usize) -> (&mut [u8], &mut [u8]) {
        assert!(self.by != Party::Far, "bytes that somebody else may change are not lent");
        let ([one, two], first, second) = self.enter_at(cursor, len);
        if first == 0 {
            return (&mut [], &mut []);
        }
        // SAFETY: (R2) `room_at` kept the range within `tail..head + capacity`, and the capacity within the
        // storage, so the pieces are in bounds, do not overlap and are the writer's; (R3) `enter` holds the
        // storage until `advance`. Its bytes are initialised, by zeros or by a stream before.
        unsafe { (slice::from_raw_parts_mut(one, first), slice::from_raw_parts_mut(two, second)) }
    }

    /// The two pieces of room for up to `len` bytes at `cursor`, with the storage held (R3), and their lengths.
    #[inline(always)]
    fn enter_at(&mut self, cursor: u64, len: usize) -> ([*mut u8; 2], usize, usize) {
        assert!(cursor >= self.cursor(), "written bytes are the reader's");
        let len = self.room_at(cursor, len);
        if len == 0 {
            return ([ptr::dangling_mut(); 2], 0, 0);
        }
        let place = match self.by {
            Party::Far => {
                let Some(place) = self.enter_far() else { return ([ptr::dangling_mut(); 2], 0, 0) };
                self.wrote_far(cursor);
                place
            }
            Party::Lent => return ([ptr::dangling_mut(); 2], 0, 0),
            _ => match self.enter() {
                Some(place) => place,
                None => return ([ptr::dangling_mut(); 2], 0, 0),
            },
        };
        let len = self.within(place.len, cursor, len);
        if len == 0 {
            if self.ahead <= self.cursor() {
                self.leave();
            }
            return ([ptr::dangling_mut(); 2], 0, 0);
        }
        memory::touch(place.storage);
        self.ahead = self.ahead.max(cursor + len as u64);
        let (offset, first, second) = place.pieces(cursor, len);
        // SAFETY: the offset is within the storage.
        ([unsafe { place.storage.add(offset) }, place.storage], first, second)
    }

    /// How many of `len` bytes at `cursor` have room.
    fn room_at(&self, cursor: u64, len: usize) -> usize {
        let limit = self.room_limit();
        let room = |head: u64| (head + limit as u64).saturating_sub(cursor);
        let mut free = room(self.head_seen.get());
        if free < len as u64 {
            self.unread();
            free = room(self.head_seen.get());
        }
        len.min(free as usize)
    }

    /// How many of `len` bytes at `cursor` the storage that is held has room for. It may be smaller than the one for which
    /// that was asked: that had grown, and was detached since, empty.
    #[inline]
    fn within(&self, storage: usize, cursor: u64, len: usize) -> usize {
        let room = |head: u64| (head + storage as u64).saturating_sub(cursor);
        if room(self.head_seen.get()) >= len as u64 {
            return len;
        }
        self.unread();
        len.min(room(self.head_seen.get()) as usize)
    }

    /// Holds the storage (R3), attaching it if there is none, or if it is empty and of another size; if it is empty,
    /// turned to its begin (R5). `None` while the reader moves what is unread (R6).
    fn enter(&mut self) -> Option<Place> {
        let ring = self.ring();
        let wanted = storage_for(self.capacity);
        // Each round that fails has seen the reader detach or move the storage.
        let state = loop {
            let state = ring.writer.state.load(Ordering::Acquire);
            if state & HELD != 0 {
                return self.is_inside().then(|| ring.storage());
            }
            if state & ATTACHED == 0 {
                break state;
            }
            let is_empty = self.unread() == 0;
            if is_empty && size_in(state) < wanted {
                ring.detach_from(state);
                continue;
            }
            let storage = ring.writer.storage.load(Ordering::Relaxed);
            let entered = HELD | if is_empty { turned(state, self.cursor(), storage) } else { state };
            let word = &ring.writer.state;
            if word.compare_exchange(state, entered, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(ring.storage());
            }
        };
        // The storage is detached: by this side, by the reader, or it never was attached. Nobody but the
        // writer changes the word while it says so.
        let storage = memory::take(wanted);
        let size = u64::from(wanted.trailing_zeros()) << SIZE_SHIFT;
        ring.writer.storage.store(storage, Ordering::Relaxed);
        let state = turned(state & !SIZE | size | ATTACHED | HELD, self.cursor(), storage);
        ring.writer.state.store(state, Ordering::Release);
        Some(Place::new(storage, state))
    }

    /// Publishes the next `count` bytes, which were written before.
    ///
    /// # Panics
    /// If that is more than was written.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let tail = self.cursor() + count as u64;
        assert!(tail <= self.ahead, "advance past what was written");
        self.ring().writer.tail.store(tail, Ordering::Release);
        if self.by == Party::Far {
            self.publish_far(tail);
        }
        if self.ahead == tail {
            self.leave();
        }
    }

    /// Forgets bytes that were written ahead and not published, so that they do not hold the storage.
    pub fn discard_ahead(&mut self) {
        if self.ahead > self.cursor() {
            self.ahead = self.cursor();
            self.leave();
        }
    }

    /// The end of the furthest byte written: equal to the cursor unless data are out of order.
    pub fn ahead(&self) -> u64 {
        self.ahead.max(self.cursor())
    }

    /// Lets go of the storage (R3). While it is held, nobody else changes the state word.
    fn leave(&self) {
        let word = &self.ring().writer.state;
        let state = word.load(Ordering::Relaxed);
        debug_assert_eq!(state & (ATTACHED | HELD), ATTACHED | HELD, "the writer was inside");
        word.store((state & !HELD).wrapping_add(EPOCH), Ordering::Release);
    }

    /// Detaches the storage if no byte is in it. Returns whether this call did.
    pub fn detach_if_empty(&mut self) -> bool {
        if self.by == Party::Far {
            return self.detach_far();
        }
        let state = self.ring().writer.state.load(Ordering::Acquire);
        state & (ATTACHED | HELD) == ATTACHED && self.unread() == 0 && self.ring().detach_from(state)
    }

    /// How many bytes of storage are attached.
    pub fn attached_bytes(&self) -> usize {
        self.ring().attached_bytes()
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.discard_ahead();
    }
}

/// The side that reads the stream.
pub struct RingReader {
    block: Arc<Block>,
    tail_seen: Cell<u64>,
    by: Party,
}

impl RingReader {
    #[inline]
    fn ring(&self) -> Ring<'_> {
        self.block.read_by(self.by)
    }

    /// The words between this ring's side and the other party's.
    #[inline]
    pub fn margin(&self) -> &Margin {
        &self.block.margin
    }

    /// The same, to be kept beside the halves.
    pub fn margin_ref(&self) -> MarginRef {
        MarginRef(Arc::clone(&self.block))
    }

    /// Bytes released so far.
    #[inline]
    pub fn cursor(&self) -> u64 {
        self.ring().reader.head.load(Ordering::Relaxed)
    }

    /// Begins to fetch the storage that holds the next bytes, if any wait. The words should be near.
    #[inline]
    pub fn storage_ahead(&self) {
        let ring = self.ring();
        let waits = ring.writer.tail.load(Ordering::Relaxed) != self.cursor();
        if waits && self.by != Party::Far && ring.writer.state.load(Ordering::Relaxed) & ATTACHED != 0 {
            let place = ring.storage();
            let (offset, ..) = place.pieces(self.cursor(), 1);
            fetch_bytes(place.storage.wrapping_add(offset), 1, Use::Read);
        }
    }

    /// How many bytes can be read.
    #[inline]
    pub fn available(&self) -> usize {
        self.tail_seen.set(match self.by {
            Party::Far => self.far_tail(),
            _ => self.ring().writer.tail.load(Ordering::Acquire),
        });
        (self.tail_seen.get() - self.cursor()) as usize
    }

    /// Up to `len` published bytes from `cursor` on, in at most two pieces.
    ///
    /// # Panics
    /// If `cursor` is before the released cursor, or the memory is another process' too.
    pub fn peek_at(&self, cursor: u64, len: usize) -> (&[u8], &[u8]) {
        assert!(self.by != Party::Far, "bytes that somebody else may change are not lent");
        let ([one, two], first, second) = self.pieces_at(cursor, len);
        // SAFETY: (R2) the range is within `head..tail`, so it is the reader's until `release`, which needs
        // `&mut self`; while it is not empty the storage stays (R4, R5), and the acquire load of `tail` made
        // the storage that the writer attached before visible.
        unsafe { (slice::from_raw_parts(one, first), slice::from_raw_parts(two, second)) }
    }

    /// The two pieces of storage of up to `len` published bytes from `cursor` on, and their lengths.
    #[inline(always)]
    fn pieces_at(&self, cursor: u64, len: usize) -> ([*const u8; 2], usize, usize) {
        assert!(cursor >= self.cursor(), "released bytes are the writer's");
        if self.tail_seen.get() < cursor.saturating_add(len as u64) {
            self.available();
        }
        let len = (len as u64).min(self.tail_seen.get().saturating_sub(cursor)) as usize;
        if len == 0 || self.by == Party::Lent {
            return ([ptr::dangling(); 2], 0, 0);
        }
        let place = self.ring().storage();
        memory::touch(place.storage);
        let (offset, first, second) = place.pieces(cursor, len);
        // SAFETY: the offset is within the storage.
        ([unsafe { place.storage.add(offset) }, place.storage], first, second)
    }

    /// Copies as much as there is into `to`, releases it and returns how much.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let count = self.copy_at(self.cursor(), to);
        self.release(count);
        count
    }

    /// Copies published bytes from `cursor` on into `to` without releasing them, and returns how many.
    pub fn copy_at(&self, cursor: u64, to: &mut [u8]) -> usize {
        let ([one, two], first, second) = self.pieces_at(cursor, to.len());
        let (head, rest) = to[..first + second].split_at_mut(first);
        // SAFETY: as in `peek_at`; another process may write there too, so no reference is made.
        unsafe {
            one.copy_to_nonoverlapping(head.as_mut_ptr(), first);
            if second > 0 {
                two.copy_to_nonoverlapping(rest.as_mut_ptr(), second);
            }
        }
        first + second
    }

    /// Gives the next `count` bytes up to the writer.
    ///
    /// # Panics
    /// If that is more than was published.
    pub fn release(&mut self, count: usize) {
        assert!(self.by != Party::Lent, "who has lent the ring releases nothing of it");
        let head = self.cursor() + count as u64;
        if head > self.tail_seen.get() {
            self.available();
            assert!(head <= self.tail_seen.get(), "release past what was published");
        }
        self.ring().reader.head.store(head, Ordering::Release);
        if self.by == Party::Far {
            self.publish_far(head);
        }
    }

    /// Detaches the storage if no byte is in it and the writer is not at work. Returns whether this call
    /// did.
    pub fn detach_if_empty(&mut self) -> bool {
        if self.by == Party::Far {
            return self.detach_far();
        }
        let state = self.ring().writer.state.load(Ordering::Acquire);
        state & (ATTACHED | HELD) == ATTACHED && self.available() == 0 && self.ring().detach_from(state)
    }

    /// How many bytes of storage are attached.
    pub fn attached_bytes(&self) -> usize {
        self.ring().attached_bytes()
    }
}

impl fmt::Debug for RingWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingWriter")
            .field("cursor", &self.cursor())
            .field("ahead", &self.ahead())
            .field("capacity", &self.capacity)
            .finish()
    }
}

impl fmt::Debug for RingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader").field("cursor", &self.cursor()).finish_non_exhaustive()
    }
}

/// Storage: initialised bytes that the kernel faults in at first touch, and takes back where it is large.
#[cfg(not(loom))]
mod memory {
    use crate::{extents, small};
    use core::ptr::NonNull;
    use std::alloc::{Layout, handle_alloc_error};

    pub(super) fn take(len: usize) -> *mut u8 {
        if extents::serves(len) {
            let extent = extents::take(len).map(NonNull::as_ptr);
            return extent
                .unwrap_or_else(|| handle_alloc_error(Layout::array::<u8>(len).expect("at most 4 MiB")));
        }
        let storage = small::take(len).unwrap_or_else(|| vec![0u8; len].into_boxed_slice());
        Box::into_raw(storage).cast()
    }

    /// # Safety
    /// `storage` and `len` are of one `take`, freed once and touched by nobody.
    pub(super) unsafe fn free(storage: *mut u8, len: usize) {
        match NonNull::new(storage) {
            // SAFETY: the caller's promise; what has this length came from there.
            Some(extent) if extents::serves(len) => unsafe { extents::give(extent, len) },
            // SAFETY: the caller's promise.
            _ => small::give(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(storage, len)) }),
        }
    }

    #[inline]
    pub(super) fn touch(_storage: *mut u8) {}
}

/// Storage for the models: never returned to the allocator, and behind the bytes a cell by which loom
/// finds a use that is not ordered before the end of the storage.
#[cfg(loom)]
mod memory {
    use loom::cell::UnsafeCell;

    /// Models use the smallest storage, and what it grows to.
    const STORAGE_MAX: usize = 2 * super::STORAGE_MIN;

    #[repr(C)]
    struct Block {
        bytes: [u8; STORAGE_MAX],
        alive: UnsafeCell<bool>,
    }

    pub(super) fn take(len: usize) -> *mut u8 {
        assert!(len <= STORAGE_MAX, "models use little storage");
        let block = Block { bytes: [0; STORAGE_MAX], alive: UnsafeCell::new(true) };
        Box::into_raw(Box::new(block)).cast()
    }

    pub(super) unsafe fn free(storage: *mut u8, _len: usize) {
        let block = storage.cast::<Block>();
        // SAFETY: blocks are leaked, so the pointer is valid; loom checks that the access is exclusive.
        unsafe {
            (*block).alive.with_mut(|alive| assert!(core::mem::replace(&mut *alive, false), "freed twice"));
            (*block).bytes.fill(0xdd);
        }
    }

    pub(super) fn touch(storage: *mut u8) {
        let block = storage.cast::<Block>();
        // SAFETY: as above; loom checks that no exclusive access is concurrent.
        unsafe { (*block).alive.with(|alive| assert!(*alive, "used after it was freed")) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use loom::thread;

    fn read_all(reader: &mut RingReader, got: &mut Vec<u8>) {
        let mut bytes = [0; 8];
        let count = reader.read(&mut bytes);
        got.extend_from_slice(&bytes[..count]);
    }

    #[test]
    fn a_detaching_reader_never_takes_bytes_along() {
        loom::model(|| {
            let (mut writer, mut reader) = byte_ring(8);
            let sender = thread::spawn(move || {
                assert_eq!(writer.write(&[1]), 1);
                assert_eq!(writer.write(&[2]), 1);
                writer
            });
            let mut got = Vec::new();
            reader.detach_if_empty();
            read_all(&mut reader, &mut got);
            reader.detach_if_empty();
            let writer = sender.join().unwrap();
            read_all(&mut reader, &mut got);
            assert_eq!(got, [1, 2]);
            drop(writer);
            reader.detach_if_empty();
            assert_eq!(reader.attached_bytes(), 0);
        });
    }

    #[test]
    fn both_sides_may_detach_at_once() {
        loom::model(|| {
            let (mut writer, mut reader) = byte_ring(8);
            writer.write(&[1]);
            let sender = thread::spawn(move || {
                let detached = writer.detach_if_empty();
                writer.write(&[2]);
                detached
            });
            let mut got = Vec::new();
            read_all(&mut reader, &mut got);
            let detached = reader.detach_if_empty();
            let other = sender.join().unwrap();
            read_all(&mut reader, &mut got);
            assert_eq!(got, [1, 2]);
            // Loom's blocks say so if both freed the same storage.
            let _ = (detached, other);
        });
    }

    #[test]
    fn storage_that_grows_keeps_every_byte() {
        loom::model(|| {
            let (mut writer, mut reader) = byte_ring(64);
            writer.write(&[1, 2]);
            let sender = thread::spawn(move || {
                // While the reader moves it, there is no room, and nothing is lost.
                let count = writer.write(&[3]);
                (count, writer)
            });
            let has_grown = reader.grow(128);
            let (count, mut writer) = sender.join().unwrap();
            assert_eq!(writer.free(), if has_grown { 128 } else { 64 } - 2 - count);
            writer.write(&[4]);
            let mut got = Vec::new();
            read_all(&mut reader, &mut got);
            assert_eq!(got, [&[1, 2][..], &[3][..count], &[4]].concat());
        });
    }

    #[test]
    fn bytes_ahead_hold_the_storage() {
        loom::model(|| {
            let (mut writer, mut reader) = byte_ring(8);
            let sender = thread::spawn(move || {
                writer.write_at(1, &[2]);
                writer.write_at(0, &[1]);
                writer.advance(2);
            });
            reader.detach_if_empty();
            sender.join().unwrap();
            let mut got = Vec::new();
            read_all(&mut reader, &mut got);
            assert_eq!(got, [1, 2]);
        });
    }
}
