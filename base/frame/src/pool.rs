//! A fixed number of equal slots for frames, owned by one lane, returned by anyone.
//!
//! A pool is one slab of zeroed memory that the kernel faults in page by page, so a large pool costs nothing
//! until it is used. It never grows. The owner takes from a local list; a frame that is dropped anywhere
//! goes home through a lock-free stack (`return_stack.rs`), which the owner empties when its list is.
//!
//! R1. A slot is on the local list, on the return stack, or owned by exactly one [`Slot`]; never two of them.
//! R2. Only the holder of a slot touches its head and its bytes.
//! R3. `refs` starts at `slots + 1` and is untouched while the pool lives. When the pool is dropped it gives
//!     back one for itself and one for each slot that is home; a slot that finds the stack closed gives back
//!     its own. Whoever brings it to zero frees the slab, so a frame may outlive its pool and no frame pays
//!     for a reference count.

use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::slice;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error};

use crate::return_stack::{Closed, ReturnStack, SLOTS_MAX};
use crate::sync::{AtomicU32, Ordering};
use crate::{Frame, FrameMeta};

/// Bytes kept free before the content of a fresh frame: room for a virtio-net header and for the headers
/// of two encapsulations.
pub const HEADROOM: usize = 128;

/// Slots begin on a cache line.
const SLOT_ALIGN: usize = 64;
/// The allocator's own alignment: up to it, zeroed memory is fresh pages and is not written.
const SLAB_ALIGN: usize = 16;

/// How many small frames are taken before the pool looks for slots that have come home. Those were used last, so their
/// lines are still in a cache, which the lines of slots that have lain at home are not.
const LOOK_EVERY: u32 = 32;
/// Slots above this size are looked for each time: a look costs nothing beside their content.
const SMALL_BYTES: u32 = 4096;

/// The size of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// How many frames can exist at once.
    pub slots: u32,
    /// Bytes of each, headroom included; rounded up to a multiple of 64.
    pub slot_bytes: u32,
}

/// How a pool stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolUsage {
    /// Bytes of each slot, headroom included.
    pub slot_bytes: u32,
    /// How many slots there are.
    pub slots: usize,
    /// How many of them are free.
    pub free: usize,
    /// How often a frame was asked for and none was free.
    pub failures: u64,
}

/// A fixed number of equal slots.
pub struct Pool {
    shared: NonNull<Shared>,
    free: Vec<u32>,
    /// Frames that are taken before the next look at what came home.
    until_look: u32,
    look_every: u32,
    failures: u64,
}

// SAFETY: the pool's parts are plain memory and atomics; nothing depends on the thread.
unsafe impl Send for Pool {}

struct Shared {
    slots_begin: NonNull<u8>,
    slab: NonNull<u8>,
    layout: Layout,
    slots: u32,
    slot_bytes: u32,
    returns: ReturnStack,
    refs: AtomicU32,
}

impl Pool {
    /// A pool of `config.slots` slots.
    ///
    /// # Panics
    /// If the slots do not fit the address space or have no room beside the headroom.
    pub fn new(config: PoolConfig) -> Self {
        let slot_bytes = config.slot_bytes.next_multiple_of(SLOT_ALIGN as u32);
        assert!(slot_bytes as usize > HEADROOM, "a slot must have room beside the headroom");
        assert!(config.slots <= SLOTS_MAX, "too many slots for 32-bit links");
        let layout = stride(slot_bytes)
            .checked_mul(config.slots as usize)
            .and_then(|bytes| bytes.checked_add(SLOT_ALIGN))
            .and_then(|bytes| Layout::from_size_align(bytes, SLAB_ALIGN).ok())
            .expect("a pool fits the address space");
        // SAFETY: the layout has at least SLOT_ALIGN bytes.
        let slab =
            NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the offset is below SLOT_ALIGN, which the layout has beyond the slots.
        let slots_begin = unsafe { slab.add(slab.align_offset(SLOT_ALIGN)) };
        let shared = Box::new(Shared {
            slots_begin,
            slab,
            layout,
            slots: config.slots,
            slot_bytes,
            returns: ReturnStack::new(config.slots),
            refs: AtomicU32::new(config.slots + 1),
        });
        Self {
            shared: NonNull::from(Box::leak(shared)),
            free: (0..config.slots).rev().collect(),
            until_look: 0,
            look_every: if slot_bytes > SMALL_BYTES { 0 } else { LOOK_EVERY },
            failures: 0,
        }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: (R3) the pool's own reference is given back in `drop` only.
        unsafe { self.shared.as_ref() }
    }

    /// An empty frame with [`HEADROOM`], or `None` if every slot is in use. What its slot held before is
    /// still there.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        match self.until_look.checked_sub(1) {
            Some(fewer) => self.until_look = fewer,
            None => self.collect(),
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.collect_one()?,
        };
        let shared = self.shared();
        let head = Head {
            shared: self.shared.as_ptr(),
            index,
            bytes: shared.slot_bytes,
            start: HEADROOM as u32,
            len: 0,
            meta: FrameMeta::default(),
        };
        // SAFETY: the index is below `slots`, so the slot is within the slab; it is at home, so nobody else touches it (R1).
        let slot = unsafe {
            let at = shared.slots_begin.add(index as usize * stride(shared.slot_bytes)).cast::<Head>();
            at.write(head);
            Slot(at)
        };
        Some(Frame::in_slot(slot))
    }

    #[cold]
    fn collect_one(&mut self) -> Option<u32> {
        self.collect();
        let index = self.free.pop();
        self.failures += u64::from(index.is_none());
        index
    }

    fn collect(&mut self) {
        // SAFETY: as in `shared`; the borrow is not of `self`, so that the list can grow meanwhile.
        let shared = unsafe { self.shared.as_ref() };
        self.free.extend(shared.returns.take_all());
        self.until_look = self.look_every;
    }

    /// Takes a frame home: without an atomic operation if it is this pool's, through its own pool's stack
    /// if it is not.
    #[inline]
    pub fn put(&mut self, frame: Frame) {
        if self.owns(&frame) {
            let slot = ManuallyDrop::new(frame.into_slot());
            self.free.push(slot.head().index);
        }
    }

    /// Whether the frame's slot belongs to this pool.
    #[inline]
    pub fn owns(&self, frame: &Frame) -> bool {
        core::ptr::eq(frame.slot().head().shared, self.shared.as_ptr())
    }

    /// How many slots are free, those that came home meanwhile included.
    pub fn free(&mut self) -> usize {
        self.collect();
        self.free.len()
    }

    /// Whether more than so many slots are free.
    pub(crate) fn has_free(&mut self, count: usize) -> bool {
        self.free.len() > count || self.free() > count
    }

    /// How it stands, with what came home meanwhile.
    pub fn usage(&mut self) -> PoolUsage {
        let (free, slots) = (self.free(), self.slots());
        PoolUsage { slot_bytes: self.shared().slot_bytes, slots, free, failures: self.failures }
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.shared().slots as usize
    }

    /// The most content that a fresh frame has room for.
    pub fn frame_capacity(&self) -> usize {
        self.shared().slot_bytes as usize - HEADROOM
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let home = self.shared().returns.close().count() + self.free.len();
        // SAFETY: (R3) one for the pool itself and one for each slot that is home: no one else gives
        // these back, because the stack is closed and its content was counted here.
        unsafe { Shared::give_back(self.shared.as_ptr(), home as u32 + 1) };
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { slots, slot_bytes, .. } = self.shared();
        f.debug_struct("Pool")
            .field("slots", slots)
            .field("slot_bytes", slot_bytes)
            .field("free_at_home", &self.free.len())
            .finish()
    }
}

impl Shared {
    /// Gives `count` references back, and frees the slab with the last.
    ///
    /// # Safety
    /// The caller owns `count` of the references (R3) and does not touch `this` afterwards.
    unsafe fn give_back(this: *const Self, count: u32) {
        // SAFETY: the caller's references keep it alive up to here.
        let refs = unsafe { &(*this).refs };
        // Acquire: what the others did before they gave theirs back comes before the end of the slab.
        if refs.fetch_sub(count, Ordering::AcqRel) == count {
            // SAFETY: (R3) nobody else has a reference; it came from `Box::leak` and the slab from
            // `alloc_zeroed` with this layout.
            unsafe {
                let shared = Box::from_raw(this.cast_mut());
                dealloc(shared.slab.as_ptr(), shared.layout);
            }
        }
    }
}

/// How far slots lie apart: an odd number of cache lines, so that the beginnings of frames spread over all sets of a
/// cache. At a power of two, a chain of small frames would share a few of them.
#[inline]
const fn stride(slot_bytes: u32) -> usize {
    (slot_bytes as usize + HEAD_BYTES) | SLOT_ALIGN
}

/// Slots on their way home: those of one pool, one behind the other, take one atomic operation.
pub(crate) struct Homeward {
    /// Null while there is none.
    shared: *const Shared,
    first: u32,
    last: u32,
    count: u32,
}

impl Homeward {
    pub(crate) const fn new() -> Self {
        Self { shared: core::ptr::null(), first: 0, last: 0, count: 0 }
    }

    /// Sends a frame home with those before it.
    #[inline]
    pub(crate) fn add(&mut self, frame: Frame) {
        let slot = ManuallyDrop::new(frame.into_slot());
        let &Head { shared, index, .. } = slot.head();
        if core::ptr::eq(self.shared, shared) {
            // SAFETY: (R3) the slots that are on their way keep the pool's shared part.
            unsafe { &*self.shared }.returns.link(index, self.first);
            (self.first, self.count) = (index, self.count + 1);
        } else {
            self.arrive();
            *self = Self { shared, first: index, last: index, count: 1 };
        }
    }

    fn arrive(&mut self) {
        if self.shared.is_null() {
            return;
        }
        // SAFETY: (R3) the slots' references keep it; after a successful push it is not touched again.
        let pushed = unsafe { &*self.shared }.returns.push_linked(self.first, self.last);
        if let Err(Closed) = pushed {
            // SAFETY: (R3) the pool is gone and left the slots' references to their holder.
            unsafe { Shared::give_back(self.shared, self.count) };
        }
        self.shared = core::ptr::null();
    }
}

impl Drop for Homeward {
    fn drop(&mut self) {
        self.arrive();
    }
}

/// What a slot begins with: whose it is, and what its holder knows of the frame in it.
#[repr(C, align(64))]
pub(crate) struct Head {
    shared: *const Shared,
    index: u32,
    /// Bytes behind the head.
    bytes: u32,
    /// The part of them that is in use.
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) meta: FrameMeta,
}

const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES == SLOT_ALIGN, "one cache line");

/// One slot, owned. Dropping it sends it home.
///
/// It is one word, because frames are moved from stage to stage many times: a larger owner is written in pieces and read in
/// other ones, and each move waits for the one before.
pub(crate) struct Slot(NonNull<Head>);

// SAFETY: a slot is memory that its holder alone touches (R2), and its way home is lock-free for all.
unsafe impl Send for Slot {}
// SAFETY: a shared slot can only be read.
unsafe impl Sync for Slot {}

impl Slot {
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: `Pool::take` has written the head, and this holder alone touches it (R2); the slot's reference keeps the
        // slab (R3).
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as in `head`; `&mut self` makes this the only borrow.
        unsafe { self.0.as_mut() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.head().bytes as usize
    }

    #[inline]
    fn begin(&self) -> *mut u8 {
        // SAFETY: a slot's bytes lie behind its head, within the slab.
        unsafe { self.0.cast::<u8>().add(HEAD_BYTES).as_ptr() }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the slot's bytes were zeroed at birth, and only this holder writes them (R2).
        unsafe { slice::from_raw_parts(self.begin(), self.len()) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes this the only borrow.
        unsafe { slice::from_raw_parts_mut(self.begin(), self.len()) }
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        let &Head { shared, index, .. } = self.head();
        // SAFETY: (R3) this slot's reference keeps it; after a successful push it is not touched again.
        let pushed = unsafe { &*shared }.returns.push(index);
        if let Err(Closed) = pushed {
            // SAFETY: (R3) the pool is gone and left this slot's reference to its holder.
            unsafe { Shared::give_back(shared, 1) };
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(slots: u32) -> Pool {
        Pool::new(PoolConfig { slots, slot_bytes: 256 })
    }

    #[test]
    fn who_drops_what_he_takes_uses_few_slots() {
        for (slot_bytes, wanted) in [(256, LOOK_EVERY as usize + 1), (SMALL_BYTES + 1, 1)] {
            let mut pool = Pool::new(PoolConfig { slots: 1000, slot_bytes });
            let used = (0..1000).map(|_| pool.take().unwrap().as_slice().as_ptr() as usize);
            assert_eq!(used.collect::<std::collections::BTreeSet<_>>().len(), wanted);
        }
    }

    #[test]
    fn an_exhausted_pool_gives_nothing_until_a_frame_comes_home() {
        let mut pool = pool(2);
        let a = pool.take().unwrap();
        let b = pool.take().unwrap();
        assert!(pool.take().is_none());
        assert_eq!(pool.free(), 0);
        drop(a);
        assert_eq!(pool.free(), 1);
        let c = pool.take().unwrap();
        assert!(pool.take().is_none());
        pool.put(b);
        pool.put(c);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn slots_begin_on_cache_lines_and_do_not_overlap() {
        let mut pool = Pool::new(PoolConfig { slots: 3, slot_bytes: 200 });
        let mut frames: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        for (n, frame) in frames.iter_mut().enumerate() {
            let room = frame.tailroom();
            assert_eq!(room, 256 - HEADROOM);
            let content = frame.append(room);
            assert_eq!(content.as_ptr().align_offset(SLOT_ALIGN), 0);
            content.fill(n as u8 + 1);
        }
        for (n, frame) in frames.iter().enumerate() {
            assert!(frame.as_slice().iter().all(|&b| b == n as u8 + 1));
        }
    }

    #[test]
    fn frames_outlive_their_pool() {
        let mut pool = pool(3);
        let mut a = pool.take().unwrap();
        let b = pool.take().unwrap();
        drop(b);
        drop(pool);
        a.extend_from_slice(b"still here");
        assert_eq!(a.as_slice(), b"still here");
    }

    #[test]
    fn a_frame_of_another_pool_goes_to_its_own() {
        let (mut one, mut two) = (pool(1), pool(1));
        let frame = one.take().unwrap();
        assert!(one.owns(&frame) && !two.owns(&frame));
        two.put(frame);
        assert_eq!((one.free(), two.free()), (1, 1));
    }

    #[test]
    fn frames_come_home_from_other_threads_also_while_the_pool_closes() {
        for round in 0..50 {
            let mut pool = pool(64);
            let (send, receive) = std::sync::mpsc::channel::<Frame>();
            let receive = std::sync::Arc::new(std::sync::Mutex::new(receive));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let receive = std::sync::Arc::clone(&receive);
                    std::thread::spawn(move || {
                        loop {
                            let next = receive.lock().unwrap().recv();
                            let Ok(frame) = next else { return };
                            assert_eq!(frame.as_slice()[0] as usize, frame.len());
                        }
                    })
                })
                .collect();
            let mut sent = 0;
            while sent < 500 + round {
                let Some(mut frame) = pool.take() else {
                    std::thread::yield_now();
                    continue;
                };
                let len = 1 + sent % 100;
                frame.append(len).fill(len as u8);
                send.send(frame).unwrap();
                sent += 1;
            }
            if round % 2 == 0 {
                drop(pool);
                drop(send);
                threads.into_iter().for_each(|t| t.join().unwrap());
            } else {
                drop(send);
                threads.into_iter().for_each(|t| t.join().unwrap());
                assert_eq!(pool.free(), 64);
            }
        }
    }

    proptest! {
        #[test]
        fn slots_are_conserved(steps in prop::collection::vec(0u8..3, 0..200)) {
            let mut pool = pool(8);
            let mut held = Vec::new();
            for step in steps {
                match step {
                    0 => match pool.take() {
                        Some(mut frame) => {
                            frame.extend_from_slice(&(held.len() as u32).to_ne_bytes());
                            held.push(frame);
                        }
                        None => prop_assert_eq!(held.len(), 8),
                    },
                    1 => drop(held.pop()),
                    _ => if let Some(frame) = held.pop() { pool.put(frame) },
                }
                prop_assert_eq!(pool.free() + held.len(), 8);
                for (n, frame) in held.iter().enumerate() {
                    prop_assert_eq!(frame.as_slice(), (n as u32).to_ne_bytes());
                }
            }
        }
    }
}
