//! Memory shared with a program, as rings use it: blocks of words and storage, given out and taken back.
//!
//! The driver that mapped the memory makes one of these and keeps the rest to itself (`drivers/shm`). What is free is
//! remembered here, in memory of our own, so nothing that the program writes can mislead it: the worst that a program
//! gets from its arena is its own bytes. Any lane and any thread may take and give; nobody waits for anybody.
//!
//! A1. What is free stands in stacks of indices (`index_stack.rs`).
//! A2. Who takes has what he took for himself until he gives it back (S2 there).
//! A3. Free storage keeps its pages until [`RingArena::give_pages_back`], which somebody calls who is in no hurry, a bounded piece at a
//!     time: it leaves those of a bounded number of bytes. Storage counts with what may have been touched of it since its pages were
//!     given back ([`Touched`]): a short connection in a large ring costs a page or two, and so do a thousand of them.
//! A4. Each class has records of its own, one for as many pages as its storage has, so that those of large rings lie side by side,
//!     too: storage of one class does not overlap, wherever it begins, and what is cut up never is whole again.

use core::any::Any;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use rustix::mm::{Advice, madvise};

use crate::byte_ring::RingWords;
use crate::index_stack::{Link, Links, Stack};

/// A block: the words of two rings, and as many for whoever shares them. All but one are zero when it is given out.
pub const BLOCK_BYTES: usize = 256;
/// The word of a block that counts how often it was given out.
pub const GENERATION_WORD: usize = 28;
/// The least storage is a page, the most what a ring may have.
const SHIFT_MIN: u32 = 12;
const SHIFT_MAX: u32 = 30;
const CLASSES: usize = (SHIFT_MAX - SHIFT_MIN + 1) as usize;
/// What free storage of an arena may keep of the memory that it has touched.
const KEPT_BYTES: usize = 16 << 20;
/// What a ring gets where there is no room for what it would like to have: the stream goes on.
const LEAST_BYTES: usize = 1 << 14;
/// How much is given back at a time: who touches memory that the kernel is taking waits until it has all of the piece, about a millisecond.
const PIECE_BYTES: usize = 4 << 20;

/// Where the parts of an arena lie, in bytes from its begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaParts {
    /// Where the first block is.
    pub blocks_at: usize,
    /// How many blocks there are.
    pub blocks: u32,
    /// Where storage begins.
    pub storage_at: usize,
    /// How much there is, in whole pages.
    pub storage_bytes: usize,
    /// How much of it may be in use at a time.
    pub quota: usize,
}

/// What an arena has given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArenaUse {
    /// Blocks.
    pub blocks: usize,
    /// Bytes of storage.
    pub storage: usize,
    /// How often there was no block, or no storage within the quota.
    pub refused: u64,
}

/// The blocks and the storage of an arena.
pub struct RingArena {
    base: NonNull<u8>,
    parts: ArenaParts,
    free_blocks: Stack,
    block_links: Box<[Link]>,
    fresh_block: AtomicU32,
    classes: [Class; CLASSES],
    /// What is known of storage, class by class (A4).
    records: Box<[Record]>,
    /// Where those of each class begin.
    begins: [usize; CLASSES],
    pages: u32,
    fresh_page: AtomicU32,
    kept: AtomicUsize,
    /// Somebody has been called to give memory back, and has not come yet.
    is_called: AtomicBool,
    blocks_used: AtomicUsize,
    storage_used: AtomicUsize,
    refused: AtomicU64,
    /// What keeps the memory mapped.
    _keeper: Arc<dyn Any + Send + Sync>,
}

// SAFETY: `base` is the address of memory that `_keeper` keeps, whichever thread has it; everything else is atomic.
unsafe impl Send for RingArena {}
// SAFETY: as above.
unsafe impl Sync for RingArena {}

/// Free storage of one size: with pages, and without.
#[derive(Default)]
struct Class {
    warm: Stack,
    cold: Stack,
}

impl RingArena {
    /// Takes over blocks and storage of an arena that begins at `base`.
    ///
    /// # Safety
    /// The parts lie in memory that is mapped while `keeper` lives, readable and writable, at an address that is a
    /// multiple of a page; blocks and storage begin on pages and do not overlap. Nobody in this process makes
    /// references to the storage, or others than to atomics in the blocks, and nobody else gives blocks or storage out.
    pub unsafe fn new(base: NonNull<u8>, parts: ArenaParts, keeper: Arc<dyn Any + Send + Sync>) -> Arc<Self> {
        let pages = (parts.storage_bytes >> SHIFT_MIN).min(u32::MAX as usize - 1) as u32;
        let mut records = 0;
        let begins = core::array::from_fn(|class| {
            let begin = records;
            records += (pages as usize >> class) + 1;
            begin
        });
        Arc::new(Self {
            base,
            free_blocks: Stack::default(),
            block_links: zeros(parts.blocks as usize),
            fresh_block: AtomicU32::new(0),
            classes: core::array::from_fn(|_| Class::default()),
            records: zeros(records),
            begins,
            pages,
            fresh_page: AtomicU32::new(0),
            kept: AtomicUsize::new(0),
            is_called: AtomicBool::new(false),
            blocks_used: AtomicUsize::new(0),
            storage_used: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            parts,
            _keeper: keeper,
        })
    }

    /// A block of zeros, but for its generation.
    pub(crate) fn take_block(&self) -> Option<u32> {
        let fresh = || {
            let more = |next: u32| (next < self.parts.blocks).then_some(next + 1);
            self.fresh_block.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
        };
        let Some(block) = self.free_blocks.pop(&*self.block_links).or_else(fresh) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.blocks_used.fetch_add(1, Ordering::Relaxed);
        // SAFETY: (`new`) the block is mapped and aligned, and is used as atomics only; any bytes are atomics.
        let words = unsafe { self.block_at(block).cast::<[AtomicU64; BLOCK_BYTES / 8]>().as_ref() };
        for (at, word) in words.iter().enumerate() {
            let kept = if at == GENERATION_WORD { word.load(Ordering::Relaxed).wrapping_add(1) } else { 0 };
            word.store(kept, Ordering::Relaxed);
        }
        Some(block)
    }

    /// Takes a block back that [`Self::take_block`] has given.
    pub(crate) fn give_block(&self, block: u32) {
        self.blocks_used.fetch_sub(1, Ordering::Relaxed);
        self.free_blocks.push(&*self.block_links, block);
    }

    fn block_at(&self, block: u32) -> NonNull<u8> {
        assert!(block < self.parts.blocks, "a block of this arena");
        // SAFETY: (`new`) all blocks are mapped.
        unsafe { self.base.add(self.parts.blocks_at + block as usize * BLOCK_BYTES) }
    }

    /// The words of a block.
    #[inline]
    pub(crate) fn words(&self, block: u32) -> &RingWords {
        // SAFETY: (`new`) as in `take_block`; a block begins with its words.
        unsafe { self.block_at(block).cast::<RingWords>().as_ref() }
    }

    /// Storage of `len` bytes, a power of two; it holds what was there before.
    pub(crate) fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let class = class_of(len)?;
        let used = self.storage_used.fetch_add(len, Ordering::Relaxed);
        let page = (used + len <= self.parts.quota).then(|| self.take_pages(class)).flatten();
        if page.is_none() {
            self.storage_used.fetch_sub(len, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        page.map(|page| self.storage_at(page))
    }

    /// The same, if at most half of what may be in use is, with it: for what is good to have and not needed.
    pub(crate) fn take_spare(&self, len: usize) -> Option<NonNull<u8>> {
        if self.has_spare(len) { self.take(len) } else { None }
    }

    fn has_spare(&self, len: usize) -> bool {
        self.storage_used.load(Ordering::Relaxed).saturating_add(len) <= self.parts.quota / 2
    }

    /// Whether at most a quarter of what may be in use is, with so much more: then it may be promised to whoever may come for it, and
    /// who comes after others finds some.
    #[inline]
    pub(crate) fn is_plenty(&self, len: usize) -> bool {
        self.storage_used.load(Ordering::Relaxed).saturating_add(len) <= self.parts.quota / 4
    }

    /// Storage for a ring that would like to have `len` bytes, and how much it is: as much of that as there is to spare, and else
    /// [`LEAST_BYTES`], of which there are many where few would have all. Both are powers of two.
    pub(crate) fn take_for_ring(&self, len: usize) -> Option<(NonNull<u8>, usize)> {
        let least = len.min(LEAST_BYTES);
        if let Some(larger) = self.take_more_than(len, least) {
            return Some(larger);
        }
        if least < len {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        Some((self.take(least)?, least))
    }

    /// The same, if it is more than `than`.
    pub(crate) fn take_more_than(&self, len: usize, than: usize) -> Option<(NonNull<u8>, usize)> {
        let halves = core::iter::successors(Some(len), |len| Some(len / 2));
        halves.take_while(|&len| len > than).find_map(|len| Some((self.take_spare(len)?, len)))
    }

    /// How much a ring of this capacity may promise before it has storage: what it would get, as things are.
    pub fn foreseen(&self, capacity: usize) -> usize {
        let len = storage_for(u32::try_from(capacity).unwrap_or(u32::MAX >> 1));
        let least = len.min(LEAST_BYTES);
        let used = self.storage_used.load(Ordering::Relaxed);
        match used.saturating_add(least) <= self.parts.quota {
            _ if self.is_plenty(len) => capacity,
            true => capacity.min(least),
            false => 0,
        }
    }

    fn take_pages(&self, class: usize) -> Option<u32> {
        if let Some(page) = self.take_warm(class) {
            return Some(page);
        }
        let count = 1u32 << class;
        let more = |next: u32| {
            let end = next.checked_add(count)?;
            (end <= self.pages).then_some(end)
        };
        self.classes[class]
            .cold
            .pop(&self.records(class))
            .or_else(|| self.fresh_page.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok())
            .or_else(|| self.split(class))
    }

    /// Takes free storage that has pages.
    fn take_warm(&self, class: usize) -> Option<u32> {
        let page = self.classes[class].warm.pop(&self.records(class))?;
        self.kept.fetch_sub(self.touched(class, page).bytes(class), Ordering::Relaxed);
        Some(page)
    }

    /// Puts free storage that was touched so where it belongs.
    fn put(&self, page: u32, class: usize, touched: Touched) {
        let (free, records) = (&self.classes[class], self.records(class));
        records.of(page).touched.store(touched.word(), Ordering::Relaxed);
        if touched == Touched::default() {
            return free.cold.push(&records, page);
        }
        self.kept.fetch_add(touched.bytes(class), Ordering::Relaxed);
        free.warm.push(&records, page);
    }

    fn touched(&self, class: usize, page: u32) -> Touched {
        Touched::of_word(self.records(class).of(page).touched.load(Ordering::Relaxed))
    }

    /// Those of the storage of one class (A4).
    #[inline]
    fn records(&self, class: usize) -> Records<'_> {
        Records { all: &self.records[self.begins[class]..], class }
    }

    /// Cuts larger free storage up: the first piece is the caller's.
    #[cold]
    fn split(&self, class: usize) -> Option<u32> {
        (class + 1..CLASSES).find_map(|larger| {
            let page =
                self.take_warm(larger).or_else(|| self.classes[larger].cold.pop(&self.records(larger)))?;
            // Nobody knows which pages they were: each half may have them all.
            let touched = Touched { begin: 0, beyond: self.touched(larger, page).pages(larger) };
            (class..larger).for_each(|half| self.put(page + (1 << half), half, touched));
            self.records(class).of(page).touched.store(touched.word(), Ordering::Relaxed);
            Some(page)
        })
    }

    /// Takes storage back that [`Self::take`] has given for `len`, and through which so many bytes have passed since, the first of
    /// them with the stream's cursor at `from`.
    pub(crate) fn give(&self, storage: NonNull<u8>, len: usize, from: u64, passed: u64) {
        let Some(class) = class_of(len) else { return };
        let page = ((self.distance(storage) - self.parts.storage_at) >> SHIFT_MIN) as u32;
        self.storage_used.fetch_sub(len, Ordering::Relaxed);
        self.put(page, class, self.touched(class, page).and(class, from, passed));
    }

    /// Whether free storage keeps more memory than it should.
    #[inline]
    pub fn hoards(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > KEPT_BYTES
    }

    /// Whether somebody who is in no hurry is to be called to [`Self::give_pages_back`]: once, until he comes.
    #[inline]
    pub fn calls_for_time(&self) -> bool {
        self.hoards() && !self.is_called.swap(true, Ordering::AcqRel)
    }

    /// Gives memory of free storage back to the kernel, down to what may be kept, the largest pieces first. It takes
    /// long: some microseconds for each piece, and half a microsecond for each page.
    pub fn give_pages_back(&self) {
        self.is_called.store(false, Ordering::Release);
        for class in (0..CLASSES).rev() {
            while self.hoards() {
                let Some(page) = self.take_warm(class) else { break };
                // SAFETY: nobody else has the storage (A2).
                unsafe { self.remove(self.storage_at(page), bytes_of(class)) };
                self.put(page, class, Touched::default());
            }
        }
    }

    /// Somebody has given the memory of all free storage back by other means, so it counts as never touched.
    pub fn forget_pages(&self) {
        for class in 0..CLASSES {
            while let Some(page) = self.take_warm(class) {
                self.put(page, class, Touched::default());
            }
        }
    }

    /// Gives the memory of storage back, which reads as zeros from here on. If the kernel refuses, the pages stay, which harms nobody.
    ///
    /// # Safety
    /// The range is storage of this arena, and nobody relies on what is there.
    unsafe fn remove(&self, storage: NonNull<u8>, len: usize) {
        for at in (0..len).step_by(PIECE_BYTES) {
            // SAFETY: the range is mapped storage (`new`), to which no references exist, and nobody needs its bytes.
            let _ = unsafe {
                madvise(storage.add(at).as_ptr().cast(), PIECE_BYTES.min(len - at), Advice::LinuxRemove)
            };
        }
    }

    fn storage_at(&self, page: u32) -> NonNull<u8> {
        // SAFETY: (`new`) pages below the count of pages are mapped storage.
        unsafe { self.base.add(self.parts.storage_at + ((page as usize) << SHIFT_MIN)) }
    }

    /// How far storage is from the arena's begin: how the program finds it.
    pub(crate) fn distance(&self, storage: NonNull<u8>) -> usize {
        storage.addr().get() - self.base.addr().get()
    }

    /// Whether these bytes are storage of this arena.
    pub(crate) fn holds(&self, storage: *const u8, len: usize) -> bool {
        let begin = self.base.addr().get() + self.parts.storage_at;
        let at = storage.addr().checked_sub(begin).and_then(|at| at.checked_add(len));
        at.is_some_and(|end| end <= self.parts.storage_bytes)
    }

    /// A block, and storage for two rings of these sizes, powers of two; what they are for is whoever's that takes them.
    /// `None` if there is not all of it.
    pub fn take_pair(self: &Arc<Self>, sizes: [usize; 2]) -> Option<ArenaPair> {
        let mut pair = self.take_alone()?;
        for size in sizes {
            // What is there so far goes back with the pair.
            let storage = self.take(size)?;
            pair.storage.push((self.distance(storage), size));
        }
        Some(pair)
    }

    /// A block without storage.
    pub fn take_alone(self: &Arc<Self>) -> Option<ArenaPair> {
        let passed = [const { AtomicU64::new(u64::MAX) }; 2];
        Some(ArenaPair { arena: Arc::clone(self), block: self.take_block()?, storage: Vec::new(), passed })
    }

    /// What it has given out.
    pub fn in_use(&self) -> ArenaUse {
        ArenaUse {
            blocks: self.blocks_used.load(Ordering::Relaxed),
            storage: self.storage_used.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for RingArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingArena").field("in_use", &self.in_use()).finish_non_exhaustive()
    }
}

/// A block and storage that somebody else uses; they go back when it is dropped.
#[derive(Debug)]
pub struct ArenaPair {
    arena: Arc<RingArena>,
    block: u32,
    /// Where each is, from the arena's begin, and how long.
    storage: Vec<(usize, usize)>,
    /// What has passed through each, if somebody said so.
    passed: [AtomicU64; 2],
}

impl ArenaPair {
    /// Which block.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Where the storage of the first ring is, or of the second, from the arena's begin.
    pub fn storage(&self, ring: usize) -> usize {
        self.storage[ring].0
    }

    /// Gives the memory of the first ring's storage back, or the second's, but for its first `kept` bytes, whole pages. Who uses the pair
    /// says that nothing is in it; what is there all the same is zeros then.
    pub fn give_pages_back(&self, ring: usize, kept: usize) {
        let (distance, size) = self.storage[ring];
        let page = (distance - self.arena.parts.storage_at) >> SHIFT_MIN;
        let kept = kept.next_multiple_of(1 << SHIFT_MIN).min(size);
        // SAFETY: the range is storage of this pair, which lives; its bytes are whoever's that uses the pair, and he has asked for this.
        unsafe { self.arena.remove(self.arena.storage_at(page as u32).add(kept), size - kept) };
    }

    /// So many bytes have passed through the first ring, or the second, since it had no memory.
    pub fn note_passed(&self, ring: usize, bytes: u64) {
        self.passed[ring].store(bytes, Ordering::Relaxed);
    }
}

impl Drop for ArenaPair {
    fn drop(&mut self) {
        for ((distance, size), passed) in self.storage.drain(..).zip(&self.passed) {
            let page = (distance - self.arena.parts.storage_at) >> SHIFT_MIN;
            // Whoever uses them begins at the begin of each.
            self.arena.give(self.arena.storage_at(page as u32), size, 0, passed.load(Ordering::Relaxed));
        }
        self.arena.give_block(self.block);
    }
}

/// Storage of an arena for a ring of this capacity.
pub(crate) const fn storage_for(capacity: u32) -> usize {
    let len = (capacity as usize).next_power_of_two();
    if len < 1 << SHIFT_MIN { 1 << SHIFT_MIN } else { len }
}

/// Which class storage of `len` bytes belongs to.
fn class_of(len: usize) -> Option<usize> {
    let fits = len.is_power_of_two() && (SHIFT_MIN..=SHIFT_MAX).contains(&len.trailing_zeros());
    fits.then(|| (len.trailing_zeros() - SHIFT_MIN) as usize)
}

const fn bytes_of(class: usize) -> usize {
    1 << (class as u32 + SHIFT_MIN)
}

/// Zeros, which take memory only where they are used.
fn zeros<T: Zeros>(count: usize) -> Box<[T]> {
    // SAFETY: (`Zeros`).
    unsafe { Box::<[T]>::new_zeroed_slice(count).assume_init() }
}

/// What may be zeros.
///
/// # Safety
/// Zeros in each byte are a value of the type.
unsafe trait Zeros {}

// SAFETY: atomics alone.
unsafe impl Zeros for Link {}
// SAFETY: as above.
unsafe impl Zeros for Record {}

/// What is known of a piece of storage: together, for who looks at one needs the other.
#[repr(C)]
struct Record {
    /// What may have been touched of it ([`Touched`]).
    touched: AtomicU64,
    link: Link,
}

/// The records of one class, found by the page with which the storage begins.
struct Records<'a> {
    all: &'a [Record],
    class: usize,
}

impl Records<'_> {
    #[inline]
    fn of(&self, page: u32) -> &Record {
        &self.all[page as usize >> self.class]
    }
}

impl Links for Records<'_> {
    fn link(&self, page: u32) -> &Link {
        &self.of(page).link
    }
}

/// How many pages of storage may have been touched: no fewer than were. Streams that begin with it touch the same ones, one after the
/// other; of others nobody knows where they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Touched {
    /// The first ones.
    begin: u32,
    /// Others.
    beyond: u32,
}

impl Touched {
    const fn word(self) -> u64 {
        (self.beyond as u64) << 32 | self.begin as u64
    }

    const fn of_word(word: u64) -> Self {
        Self { begin: word as u32, beyond: (word >> 32) as u32 }
    }

    /// After so many bytes of a stream, from its cursor `from` on. They need not have begun with a page.
    fn and(self, class: usize, from: u64, passed: u64) -> Self {
        let all = 1 << class;
        let bounded = |pages: u64| pages.min(all) as u32;
        let pages = passed.div_ceil(1 << SHIFT_MIN);
        match (passed, from) {
            (0, _) => self,
            (_, 0) => Self { begin: self.begin.max(bounded(pages)), ..self },
            _ => Self {
                beyond: bounded(u64::from(self.beyond).saturating_add(pages).saturating_add(1)),
                ..self
            },
        }
    }

    fn pages(self, class: usize) -> u32 {
        self.begin.saturating_add(self.beyond).min(1 << class)
    }

    fn bytes(self, class: usize) -> usize {
        (self.pages(class) as usize) << SHIFT_MIN
    }
}

#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod tests {
    use super::*;
    use std::collections::HashSet;

    const PAGE: usize = 4096;

    #[repr(C, align(4096))]
    struct Page(core::cell::UnsafeCell<[u8; PAGE]>);

    // SAFETY: the pages are used through the arena only.
    unsafe impl Send for Page {}
    // SAFETY: as above.
    unsafe impl Sync for Page {}

    /// An arena in this process' own memory: a page of blocks, and storage.
    pub(crate) fn arena(pages: usize, quota: usize) -> Arc<RingArena> {
        let memory: Vec<Page> =
            (0..pages + 1).map(|_| Page(core::cell::UnsafeCell::new([0xdd; PAGE]))).collect();
        let memory = Arc::new(memory);
        let base = NonNull::new(memory[0].0.get().cast::<u8>()).unwrap();
        let parts =
            ArenaParts { blocks_at: 0, blocks: 16, storage_at: PAGE, storage_bytes: pages * PAGE, quota };
        // SAFETY: the pages are one allocation, which the keeper keeps, and nobody else uses them.
        unsafe { RingArena::new(base, parts, memory) }
    }

    #[test]
    fn blocks_are_given_out_once_as_zeros_and_come_back() {
        let arena = arena(1, PAGE);
        let all: Vec<u32> = (0..16).map(|_| arena.take_block().unwrap()).collect();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
        assert_eq!(arena.take_block(), None);
        assert_eq!(arena.words(3).one.tail.load(Ordering::Relaxed), 0);
        arena.words(3).one.tail.store(9, Ordering::Relaxed);
        arena.give_block(3);
        assert_eq!(arena.take_block(), Some(3));
        assert_eq!(arena.words(3).one.tail.load(Ordering::Relaxed), 0);
        assert_eq!(arena.in_use(), ArenaUse { blocks: 16, storage: 0, refused: 1 });
    }

    #[test]
    fn storage_does_not_overlap_and_the_quota_holds() {
        let arena = arena(16, 12 * PAGE);
        let mut seen = HashSet::new();
        for len in [PAGE, 4 * PAGE, 2 * PAGE, 4 * PAGE] {
            let at = arena.distance(arena.take(len).unwrap());
            assert!((at..at + len).step_by(PAGE).all(|page| seen.insert(page)), "{at} {len}");
        }
        assert!(arena.take(2 * PAGE).is_none(), "11 of 12 pages are in use");
        assert!(arena.take(PAGE).is_some());
        assert!(arena.take(3 * PAGE).is_none() && arena.take(64).is_none(), "no such size");
    }

    #[test]
    fn what_is_kept_without_use_is_bounded_once_somebody_has_time() {
        let pages = 2 * KEPT_BYTES / PAGE;
        let arena = arena(pages, pages * PAGE);
        let taken: Vec<_> = (0..pages / 16).map(|_| arena.take(16 * PAGE).unwrap()).collect();
        assert!(!arena.hoards(), "it is all in use");
        taken.into_iter().for_each(|storage| arena.give(storage, 16 * PAGE, 0, 16 * PAGE as u64));
        assert!(
            arena.hoards() && arena.calls_for_time() && !arena.calls_for_time(),
            "somebody is called once"
        );
        arena.give_pages_back();
        assert!(!arena.hoards() && !arena.calls_for_time());
        let again: HashSet<_> =
            (0..pages / 16).map(|_| arena.distance(arena.take(16 * PAGE).unwrap())).collect();
        assert_eq!(again.len(), pages / 16, "all of it is there to be used again, once");
    }

    #[test]
    fn short_streams_that_follow_each_other_touch_the_same_page() {
        let arena = arena(64, 64 * PAGE);
        let pass = |from, bytes| {
            let storage = arena.take(64 * PAGE).unwrap();
            arena.give(storage, 64 * PAGE, from, bytes);
            arena.kept.load(Ordering::Relaxed) / PAGE
        };
        assert_eq!(pass(0, 0), 0);
        assert!((0..1000).all(|_| pass(0, 1200) == 1), "each begins with the storage");
        assert_eq!((pass(0, 3 * PAGE as u64), pass(0, 9)), (3, 3));
        assert_eq!([pass(70_000, 1), pass(70_000, 1)], [5, 7], "one that goes on may be anywhere");
        assert_eq!([pass(0, u64::MAX), pass(1, u64::MAX)], [64; 2]);
        arena.give_pages_back();
        assert_eq!(arena.distance(arena.take(PAGE).unwrap()), PAGE, "it is cut up");
        assert_eq!(arena.kept.load(Ordering::Relaxed) / PAGE, 63);
    }

    proptest::proptest! {
        /// What is counted is never less than what was touched, page by page.
        #[test]
        fn law_no_touched_page_is_left_out(
            class in 0..6_usize,
            uses in proptest::collection::vec((proptest::bool::ANY, 0..200_000_u64, 0..40_000_u64), 1..40),
        ) {
            let (mut touched, mut pages) = (Touched::default(), HashSet::new());
            for (is_new, from, passed) in uses {
                let from = if is_new { 0 } else { from };
                touched = Touched::of_word(touched.and(class, from, passed).word());
                pages.extend((from..from + passed).map(|at| at as usize % bytes_of(class) / PAGE));
                proptest::prop_assert!(touched.pages(class) as usize >= pages.len());
            }
        }
    }

    #[test]
    fn a_pair_is_whole_or_nothing_and_goes_back() {
        let arena = arena(8, 6 * PAGE);
        let pair = arena.take_pair([4 * PAGE, PAGE]).unwrap();
        assert_eq!((pair.block(), pair.storage(1)), (0, pair.storage(0) + 4 * PAGE));
        assert!(arena.take_pair([PAGE, PAGE]).is_none(), "one page is left within the quota");
        assert_eq!(arena.in_use(), ArenaUse { blocks: 1, storage: 5 * PAGE, refused: 1 });
        drop(pair);
        assert_eq!(arena.in_use(), ArenaUse { blocks: 0, storage: 0, refused: 1 });
    }

    #[test]
    fn what_is_known_of_large_storage_lies_side_by_side_and_is_of_one_piece_each() {
        let arena = arena(256, 256 * PAGE);
        let sizes = [1, 16, 4, 16, 2, 16, 1, 64, 16, 4];
        let taken: Vec<_> =
            sizes.iter().map(|pages| (arena.take(pages * PAGE).unwrap(), pages * PAGE)).collect();
        let places: HashSet<_> = taken
            .iter()
            .map(|&(storage, len)| {
                let page = (arena.distance(storage) - arena.parts.storage_at) / PAGE;
                let class = class_of(len).unwrap();
                let of_class = arena.records(class).all.as_ptr();
                let record: *const Record = arena.records(class).of(page as u32);
                assert!(record.addr() - of_class.addr() <= 256 / len.div_ceil(PAGE) * size_of::<Record>());
                record
            })
            .collect();
        assert_eq!(places.len(), taken.len());
        for (nth, &(storage, len)) in taken.iter().enumerate() {
            arena.give(storage, len, 0, nth as u64 % 2);
        }
        let again: HashSet<_> =
            sizes.iter().map(|pages| arena.distance(arena.take(pages * PAGE).unwrap())).collect();
        assert_eq!(again.len(), sizes.len());
    }

    #[test]
    fn large_storage_is_cut_up_when_nothing_else_is_left() {
        let arena = arena(8, 8 * PAGE);
        let whole = arena.take(8 * PAGE).unwrap();
        arena.give(whole, 8 * PAGE, 0, 1);
        let pages: HashSet<usize> = (0..8).map(|_| arena.distance(arena.take(PAGE).unwrap())).collect();
        assert_eq!(pages.len(), 8);
        assert!(arena.take(PAGE).is_none());
    }

    #[test]
    fn threads_never_have_the_same_storage() {
        let arena = arena(64, 64 * PAGE);
        std::thread::scope(|scope| {
            for mark in 1..=3u8 {
                let arena = &arena;
                scope.spawn(move || {
                    for round in 0..2000usize {
                        let len = PAGE << (round % 3);
                        let Some(at) = arena.take(len) else { continue };
                        // SAFETY: the storage is this thread's until it is given back.
                        unsafe {
                            at.as_ptr().write(mark);
                            at.as_ptr().add(len - 1).write(mark);
                            std::thread::yield_now();
                            assert_eq!((at.as_ptr().read(), at.as_ptr().add(len - 1).read()), (mark, mark));
                        }
                        arena.give(at, len, 0, len as u64);
                    }
                });
            }
        });
        assert_eq!(arena.in_use().storage, 0);
    }
}
