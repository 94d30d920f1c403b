//! Rings whose first party is another process: what its words show, and what is believed of what they say.
//!
//! Part of the byte rings; no unsafe code. The second party's own words are where they always are, in memory that
//! nobody else sees: its cursors, and the places and sizes of storage of *both* rings, which it alone attaches. The
//! other process has copies of them, and its own two cursors are believed only as far as they can be true:
//!
//! F1. Its read cursor lies between what it said before and what was published.
//! F2. Its write cursor is not before what it said before, nor further from what was released than the storage.
//! F3. Who says otherwise has lied: his word is not taken, and the stream remembers it until it is reset.

use core::ptr::NonNull;
// Models do not follow an arena: it is the process' own affair.
use std::sync::Arc;

use crate::arena::{RingArena, storage_for};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::{
    ATTACHED, Block, GROWN, HELD, Margin, MarginRef, Place, RingReader, RingSide, RingWords, RingWriter,
    SIZE, SIZE_SHIFT, clamped, detached, room_in, size_in,
};

/// The other process' side of two rings.
pub(super) struct Far {
    pub(super) arena: Arc<RingArena>,
    block: u32,
    /// The capacity of the ring that it writes.
    capacity: AtomicU32,
    has_lied: AtomicBool,
    /// Where each ring's storage was attached, and whether ours was written ahead of its cursor since.
    begun: [AtomicU64; 2],
    is_scattered: AtomicBool,
}

/// The ring that the other process writes, and the other one.
const THEIRS: usize = 0;
const OURS: usize = 1;

impl Far {
    pub(super) fn new(arena: &Arc<RingArena>, capacity: u32) -> Option<Self> {
        let block = arena.take_block()?;
        Some(Self {
            arena: Arc::clone(arena),
            block,
            capacity: AtomicU32::new(capacity),
            has_lied: AtomicBool::new(false),
            begun: core::array::from_fn(|_| AtomicU64::new(0)),
            is_scattered: AtomicBool::new(false),
        })
    }

    #[inline]
    pub(super) fn words(&self) -> &RingWords {
        self.arena.words(self.block)
    }

    #[cold]
    fn lie(&self) {
        self.has_lied.store(true, Ordering::Relaxed);
    }

    /// Takes storage for a ring of `own` that has none, of this capacity if possible, and shows it. Whether there was any.
    fn attach(&self, own: &RingWords, ring: usize, capacity: u32) -> bool {
        let taken = self.arena.take_for_ring(storage_for(capacity));
        if let Some(taken) = taken {
            self.show(own, ring, taken);
        }
        taken.is_some()
    }

    /// The same, all of it or nothing: for records, of which none is written in parts.
    fn attach_whole(&self, own: &RingWords, ring: usize, capacity: u32) -> bool {
        let len = storage_for(capacity);
        let taken = self.arena.take(len);
        if let Some(storage) = taken {
            self.show(own, ring, (storage, len));
        }
        taken.is_some()
    }

    /// Replaces the storage of our ring, which is empty, if there is larger storage for this capacity. What it has it
    /// keeps until then: somebody was promised that.
    fn enlarge(&self, own: &RingWords, capacity: u32) {
        let size = size_in(own.two.state.load(Ordering::Relaxed));
        if let Some(taken) = self.arena.take_more_than(storage_for(capacity), size) {
            self.withdraw(own);
            self.show(own, OURS, taken);
        }
    }

    /// Gives the storage of our ring back, with nothing in it.
    fn withdraw(&self, own: &RingWords) {
        // With nothing to read the reader touches no storage (R5).
        self.words().two.state.fetch_and(!ATTACHED, Ordering::Release);
        self.give(own, OURS);
    }

    /// Shows storage that was taken for a ring of `own`.
    fn show(&self, own: &RingWords, ring: usize, (storage, len): (NonNull<u8>, usize)) {
        self.begun[ring].store(self.tail(own, ring), Ordering::Relaxed);
        if ring == OURS {
            self.is_scattered.store(false, Ordering::Relaxed);
        }
        let [own, shown] = [own, self.words()].map(|words| side(words, ring));
        let size = u64::from(len.trailing_zeros()) << SIZE_SHIFT;
        let show = |side: &RingSide, place: *mut u8| {
            let state = side.state.load(Ordering::Relaxed) & !(SIZE | HELD | GROWN);
            side.storage.store(place, Ordering::Relaxed);
            side.state.store(state | size | ATTACHED, Ordering::Release);
        };
        show(own, storage.as_ptr());
        show(shown, core::ptr::without_provenance_mut(self.arena.distance(storage)));
    }

    /// Shows other storage by `shown`, whose word showed none; `size` is its size and that it has grown.
    pub(super) fn show_grown(&self, shown: &RingSide, storage: NonNull<u8>, size: u64) {
        let place = core::ptr::without_provenance_mut(self.arena.distance(storage));
        shown.storage.store(place, Ordering::Relaxed);
        let state = shown.state.load(Ordering::Relaxed) & !(SIZE | HELD);
        shown.state.store(state | size | ATTACHED, Ordering::Release);
    }

    /// The ring that the other process writes has other storage, with what it has written from `cursor` on.
    pub(super) fn note_grown(&self, cursor: u64) {
        self.begun[THEIRS].store(cursor, Ordering::Relaxed);
    }

    /// Where a ring is written by now. What the other process says is believed for the sake of its own memory alone.
    fn tail(&self, own: &RingWords, ring: usize) -> u64 {
        let words = if ring == OURS { own } else { self.words() };
        side(words, ring).tail.load(Ordering::Relaxed)
    }

    /// Gives the storage of a ring of `own` back.
    fn give(&self, own: &RingWords, ring: usize) {
        let from = self.begun[ring].load(Ordering::Relaxed);
        let passed = match ring == OURS && self.is_scattered.load(Ordering::Relaxed) {
            true => u64::MAX,
            false => self.tail(own, ring).wrapping_sub(from),
        };
        let own = side(own, ring);
        let state = own.state.load(Ordering::Relaxed);
        own.state.store(detached(state), Ordering::Relaxed);
        if state & ATTACHED != 0
            && let Some(storage) = NonNull::new(own.storage.load(Ordering::Relaxed))
        {
            self.arena.give(storage, size_in(state), from, passed);
        }
    }

    /// Both parties are gone.
    pub(super) fn end(&self, own: &RingWords) {
        self.give(own, THEIRS);
        self.give(own, OURS);
        self.arena.give_block(self.block);
    }
}

/// What another process sees of two rings.
#[derive(Clone, Copy)]
pub struct FarView<'a>(pub(super) &'a Far);

impl<'a> FarView<'a> {
    /// Which block of its arena.
    pub fn block(self) -> u32 {
        self.0.block
    }

    /// The words in the margin, for what it is to know. It may change them.
    pub fn margin(self) -> &'a Margin {
        &self.0.words().margin
    }

    /// The capacity of the ring that it writes, from the next storage on.
    pub fn set_capacity(self, capacity: usize) {
        self.0.capacity.store(clamped(capacity), Ordering::Relaxed);
    }

    /// How many bytes it has written behind `cursor`, as it says, and how many may stand there: nothing is done by the
    /// first number but to wake it.
    pub fn written_behind(self, own: &MarginRef, cursor: u64) -> [u64; 2] {
        let tail = self.0.words().one.tail.load(Ordering::Acquire);
        let capacity = self.0.capacity.load(Ordering::Relaxed) as usize;
        let state = own.0.one.state.load(Ordering::Relaxed);
        let room = if state & ATTACHED != 0 { room_in(state, capacity) as u64 } else { 0 };
        [tail.wrapping_sub(cursor), room]
    }

    /// It is to be taken for a liar.
    pub fn note_lie(self) {
        self.0.lie();
    }

    /// Whether it has said of its cursors what cannot be true (F3).
    pub fn has_lied(self) -> bool {
        self.0.has_lied.load(Ordering::Relaxed)
    }
}

impl Block {
    /// The other process' side. Only halves of [`super::Party::Far`] ask.
    #[inline]
    pub(super) fn other(&self) -> &Far {
        self.far().expect("a far half has a far side")
    }
}

/// The words of a ring's storage and of its writer.
fn side(words: &RingWords, ring: usize) -> &RingSide {
    if ring == OURS { &words.two } else { &words.one }
}

fn is_attached(side: &RingSide) -> bool {
    side.state.load(Ordering::Relaxed) & ATTACHED != 0
}

/// The ring that the other process reads.
impl RingWriter {
    /// Whether the other party is another process.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.by == super::Party::Far
    }

    /// What the other process has released, as far as it can be true (F1).
    #[cold]
    pub(super) fn far_head(&self) -> u64 {
        let far = self.block.other();
        let (head, seen) = (far.words().one.head.load(Ordering::Acquire), self.head_seen.get());
        if (seen..=self.cursor()).contains(&head) {
            return head;
        }
        far.lie();
        seen
    }

    #[cold]
    pub(super) fn publish_far(&self, tail: u64) {
        self.block.other().words().two.tail.store(tail, Ordering::Release);
    }

    /// Whether the ring has no storage and may get none, or less than it would like to: [`RingWriter::free`] promises too
    /// much then, and [`RingWriter::back`] says how much is there.
    #[inline]
    pub fn is_unbacked(&self) -> bool {
        self.is_far() && !is_attached(&self.block.two)
    }

    /// Whether the storage is smaller than the ring would like it to be.
    pub fn is_short(&self) -> bool {
        self.is_far() && is_attached(&self.block.two) && self.attached_bytes() < storage_for(self.capacity)
    }

    /// How many bytes may be promised after the cursor: while memory is plenty all that the ring would like to have, without
    /// storage as yet; else what it has, or gets by this.
    #[cold]
    pub fn back(&self) -> usize {
        let is_plenty = |far: &Far| far.arena.is_plenty(storage_for(self.capacity));
        if self.is_unbacked() && !self.block.far().is_some_and(is_plenty) && !self.claim_far() {
            return 0;
        }
        self.free()
    }

    /// Takes larger storage, if the ring would like to have it, is empty, and there is some.
    #[cold]
    pub fn enlarge(&self) {
        if self.is_short() {
            self.claim_far();
        }
    }

    /// How many bytes a connection may promise that begins: what it would get, as things are.
    pub fn foreseen(&self) -> usize {
        match self.block.far() {
            Some(far) if self.is_unbacked() => far.arena.foreseen(self.capacity()),
            _ => self.free(),
        }
    }

    /// How many bytes can surely be written after the cursor: as [`RingWriter::free`], which in an arena promises
    /// storage that may not be there.
    #[inline]
    pub fn claim(&mut self) -> usize {
        if self.is_far() && !self.claim_far() { 0 } else { self.free() }
    }

    /// The same for a record, which is written whole or not at all: more than half of the memory may go for it.
    pub fn claim_whole(&mut self) -> usize {
        if self.is_short() {
            self.detach_far();
        }
        if self.is_unbacked() {
            self.block.other().attach_whole(&self.block, OURS, self.capacity);
        }
        self.claim()
    }

    /// Makes sure of storage, if possible of the size that is wanted. Whether there is any.
    #[cold]
    fn claim_far(&self) -> bool {
        let (own, far) = (&self.block.words, self.block.other());
        let state = own.two.state.load(Ordering::Relaxed);
        if state & ATTACHED == 0 {
            return far.attach(own, OURS, self.capacity);
        }
        let is_outgrown = size_in(state) < storage_for(self.capacity);
        if is_outgrown && state & HELD == 0 && self.unread() == 0 {
            far.enlarge(own, self.capacity);
        }
        true
    }

    /// Holds the storage, if there is any (R3).
    #[cold]
    pub(super) fn enter_far(&mut self) -> Option<Place> {
        let own = &self.block.two;
        if own.state.load(Ordering::Relaxed) & HELD == 0 {
            if !is_attached(own) && !self.claim_far() {
                return None;
            }
            self.block.two.state.fetch_or(HELD, Ordering::Relaxed);
        }
        Some(self.ring().storage())
    }

    /// Bytes were written at `cursor`, which may lie ahead.
    #[cold]
    pub(super) fn wrote_far(&self, cursor: u64) {
        if cursor > self.cursor() {
            self.block.other().is_scattered.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(super) fn detach_far(&mut self) -> bool {
        let state = self.block.two.state.load(Ordering::Relaxed);
        if state & (ATTACHED | HELD) != ATTACHED || self.unread() > 0 {
            return false;
        }
        self.block.other().withdraw(&self.block);
        true
    }
}

/// The ring that the other process writes.
impl RingReader {
    /// What another process sees, if it is the other party.
    pub fn far(&self) -> Option<FarView<'_>> {
        self.block.far().map(FarView)
    }

    /// Whether the other party is another process.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.by == super::Party::Far
    }

    /// What the other process has published, as far as it can be true (F2).
    #[cold]
    pub(super) fn far_tail(&self) -> u64 {
        let far = self.block.other();
        let (tail, seen) = (far.words().one.tail.load(Ordering::Acquire), self.tail_seen.get());
        if tail == seen && seen >= self.cursor() {
            // Nothing new, and what was said before was believed.
            return tail;
        }
        let most = self.cursor() + self.ring().attached_bytes() as u64;
        if (seen.max(self.cursor())..=most).contains(&tail) {
            return tail;
        }
        far.lie();
        seen.max(self.cursor())
    }

    #[cold]
    pub(super) fn publish_far(&self, head: u64) {
        self.block.other().words().two.head.store(head, Ordering::Release);
    }

    /// Whether the other process has no storage to write to.
    pub fn is_bare(&self) -> bool {
        self.is_far() && !is_attached(&self.block.one)
    }

    /// Gives the other process storage to write to, if it has none. Whether this call did.
    #[cold]
    pub fn attach_far(&mut self) -> bool {
        if !self.is_far() || is_attached(&self.block.one) {
            return false;
        }
        let far = self.block.other();
        far.attach(&self.block, THEIRS, far.capacity.load(Ordering::Relaxed))
    }

    /// The same, all that it would like to have: what writes records has no use for less.
    #[cold]
    pub fn attach_whole(&mut self) -> bool {
        if !self.is_bare() {
            return false;
        }
        let far = self.block.other();
        far.attach_whole(&self.block, THEIRS, far.capacity.load(Ordering::Relaxed))
    }

    #[cold]
    pub(super) fn detach_far(&mut self) -> bool {
        if !is_attached(&self.block.one) {
            return false;
        }
        let far = self.block.other();
        let word = &far.words().one.state;
        // Read before the ring is seen empty (R4). Whatever it says of storage is not believed.
        let state = word.load(Ordering::Acquire);
        if state & HELD != 0 || self.available() > 0 {
            return false;
        }
        let swapped = word.compare_exchange(state, state & !ATTACHED, Ordering::AcqRel, Ordering::Relaxed);
        if swapped.is_ok() {
            far.give(&self.block, THEIRS);
        }
        swapped.is_ok()
    }
}
