//! One program's arena, as the daemon keeps it: which blocks and which storage are given out, and who is to be told.
//!
//! What is free is known here and not in the arena, which its program may scribble over. Storage has one size; a
//! stream has some only while it holds bytes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use firelane_shm::layout::{Inbox, SLOT_SHARED, SLOTS};
use firelane_shm::{Arena, Block, Layout, Mapping};
use firelane_units::LaneId;
use rustix::fs::FallocateFlags;

use super::ferry::Ferry;

/// The storage of a ring: what a segment of 64 KiB and its successor need.
pub(super) const EXTENT: u64 = 1 << EXTENT_SHIFT;
pub(super) const EXTENT_SHIFT: u32 = 17;
/// Pieces of storage that wait for their next user before memory goes back to the kernel.
const KEPT: usize = 64;
/// Waiters that share the last slot.
const SHARERS_MAX: usize = 1024;

/// An arena.
#[derive(Debug)]
pub(crate) struct ProgramArena {
    arena: Arena,
    /// Its place among the engine's arenas.
    pub(super) place: u32,
    room: Mutex<Room>,
    ferries: RwLock<Vec<Option<Arc<Ferry>>>>,
    waiters: RwLock<Vec<(u32, Waiter)>>,
}

/// What is free.
#[derive(Debug, Default)]
struct Room {
    blocks: Vec<u32>,
    next_block: u32,
    extents: Vec<u64>,
    next_extent: u64,
}

/// Who sleeps on a slot's descriptor.
#[derive(Debug)]
struct Waiter {
    session: u32,
    wakes: OwnedFd,
}

impl ProgramArena {
    /// Makes one for so many lanes.
    pub(super) fn new(lanes: usize, place: u32, number: u64) -> io::Result<Self> {
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        let arena = Arena::create(Layout::new(lanes), number).map_err(io::Error::other)?;
        Ok(Self {
            arena,
            place,
            room: Mutex::default(),
            ferries: RwLock::default(),
            waiters: RwLock::default(),
        })
    }

    /// The memfd, and its number.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn mapping(&self) -> &Mapping {
        self.arena.mapping()
    }

    /// What programs tell `lane`.
    pub(super) fn inbox(&self, lane: LaneId) -> Option<&Inbox> {
        self.mapping().lane(u32::from(lane.0))
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block that nobody uses, all zeros.
    pub(super) fn take_block(&self) -> Option<u32> {
        let number = {
            let mut room = self.room();
            match room.blocks.pop() {
                Some(number) => number,
                None if room.next_block < self.mapping().layout().blocks => {
                    room.next_block += 1;
                    room.next_block - 1
                }
                None => return None,
            }
        };
        clear(self.mapping().block(number)?);
        Some(number)
    }

    /// A block whose stream did not begin.
    pub(super) fn give_block_back(&self, number: u32) {
        self.room().blocks.push(number);
    }

    /// Storage that nobody uses: how far it lies from the arena's begin.
    pub(super) fn take_extent(&self) -> Option<u64> {
        let layout = self.mapping().layout();
        let mut room = self.room();
        if let Some(at) = room.extents.pop() {
            return Some(at);
        }
        let at = layout.storage_at() + room.next_extent;
        (at + EXTENT <= layout.len()).then(|| {
            room.next_extent += EXTENT;
            at
        })
    }

    pub(super) fn give_extent_back(&self, at: u64) {
        let is_much = {
            let mut room = self.room();
            room.extents.push(at);
            room.extents.len() > KEPT
        };
        if is_much {
            // Memory that stays ours is wasted, not lost.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.arena, hole, at, EXTENT);
        }
    }

    /// The stream of a block.
    pub(super) fn ferry(&self, block: u32) -> Option<Arc<Ferry>> {
        self.ferries.read().unwrap_or_else(PoisonError::into_inner).get(block as usize)?.clone()
    }

    /// Every stream.
    pub(super) fn ferries(&self) -> Vec<Arc<Ferry>> {
        self.ferries.read().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    pub(super) fn insert(&self, block: u32, ferry: Arc<Ferry>) {
        let mut ferries = self.ferries.write().unwrap_or_else(PoisonError::into_inner);
        let place = block as usize;
        if ferries.len() <= place {
            ferries.resize(place + 1, None);
        }
        ferries[place] = Some(ferry);
    }

    /// A stream has ended: its block is free. One that has been removed already may be followed by another.
    pub(super) fn remove(&self, block: u32, ferry: &Ferry) {
        let mut ferries = self.ferries.write().unwrap_or_else(PoisonError::into_inner);
        let place = ferries.get_mut(block as usize);
        let its = place.filter(|it| it.as_ref().is_some_and(|it| std::ptr::eq(Arc::as_ptr(it), ferry)));
        let gone = its.and_then(Option::take);
        if gone.is_some() {
            self.room().blocks.push(block);
        }
        drop((ferries, gone));
    }

    /// A slot for a waiter of `session` that `wakes` wakes; the shared one if no other is free.
    pub(super) fn add_waiter(&self, session: u32, wakes: OwnedFd) -> Option<u32> {
        let mut waiters = self.waiters.write().unwrap_or_else(PoisonError::into_inner);
        let free = (0..SLOT_SHARED).find(|slot| waiters.iter().all(|(taken, _)| taken != slot));
        let slot = match free {
            Some(slot) => slot,
            None if waiters.len() < SLOTS as usize + SHARERS_MAX => SLOT_SHARED,
            None => return None,
        };
        waiters.push((slot, Waiter { session, wakes }));
        Some(slot)
    }

    /// The waiter is gone; without a slot, all of the session's are. Whether there was one.
    pub(super) fn remove_waiters(&self, session: u32, slot: Option<u32>) -> bool {
        let mut waiters = self.waiters.write().unwrap_or_else(PoisonError::into_inner);
        let before = waiters.len();
        waiters.retain(|(at, it)| it.session != session || slot.is_some_and(|slot| slot != *at));
        waiters.len() != before
    }

    /// Tells whoever waits for one of many sockets that `block` has news.
    pub(super) fn tell_waiters(&self, number: u32, block: &Block) {
        let mut wanted = block.waiters.load(Ordering::SeqCst);
        while wanted != 0 {
            let slot = wanted.trailing_zeros();
            wanted &= wanted - 1;
            if self.mapping().slot(slot).is_some_and(|inbox| inbox.tell(number)) {
                self.wake(slot);
            }
        }
    }

    fn wake(&self, slot: u32) {
        let waiters = self.waiters.read().unwrap_or_else(PoisonError::into_inner);
        for (_, waiter) in waiters.iter().filter(|(at, _)| *at == slot) {
            // One that is full wakes its reader already.
            let _ = rustix::io::write(&waiter.wakes, &1u64.to_ne_bytes());
        }
    }
}

/// All words of a block but its generation, which counts its uses.
fn clear(block: &Block) {
    for side in [&block.rings.one, &block.rings.two] {
        for word in [&side.tail, &side.head, &side.state] {
            word.store(0, Ordering::Relaxed);
        }
        side.storage.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
    let program = [&block.send_owner, &block.recv_owner, &block.told_at, &block.file];
    let waiting = [&block.recv_timeout, &block.send_timeout, &block.waiters, &block.requests];
    for word in block.rings.margin.iter().chain(program).chain(waiting) {
        word.store(0, Ordering::Relaxed);
    }
    for word in block.low_water.iter().chain(&block.capacity).chain([&block.sleepers]) {
        word.store(0, Ordering::Relaxed);
    }
    block.generation.fetch_add(1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_given_out_again_and_clean() {
        let arena = ProgramArena::new(1, 0, 7).unwrap();
        let (one, two) = (arena.take_block().unwrap(), arena.take_block().unwrap());
        assert_ne!(one, two);
        let block = arena.mapping().block(one).unwrap();
        block.rings.one.tail.store(9, Ordering::Relaxed);
        block.waiters.store(u64::MAX, Ordering::Relaxed);
        let uses = block.generation.load(Ordering::Relaxed);
        arena.room().blocks.push(one);
        assert_eq!(arena.take_block(), Some(one));
        assert_eq!(
            (block.rings.one.tail.load(Ordering::Relaxed), block.waiters.load(Ordering::Relaxed)),
            (0, 0)
        );
        assert_eq!(block.generation.load(Ordering::Relaxed), uses + 1);
        let extents: Vec<u64> = (0..KEPT + 2).map(|_| arena.take_extent().unwrap()).collect();
        assert!(extents.windows(2).all(|pair| pair[1] - pair[0] == EXTENT));
        extents.iter().for_each(|&at| arena.give_extent_back(at));
        assert_eq!(arena.take_extent(), extents.last().copied());
    }

    #[test]
    fn slots_are_one_waiters_own_until_the_last_which_is_shared() {
        let arena = ProgramArena::new(1, 0, 7).unwrap();
        let wakes = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let slots: Vec<_> = (0..66).map(|n| arena.add_waiter(n % 2, wakes()).unwrap()).collect();
        assert!(slots[..63].iter().copied().eq(0..63) && slots[63..] == [SLOT_SHARED; 3]);
        assert!(arena.remove_waiters(0, Some(4)) && !arena.remove_waiters(0, Some(4)));
        assert!(!arena.remove_waiters(0, Some(5)), "another session's");
        assert_eq!(arena.add_waiter(9, wakes()), Some(4));
        assert!(arena.remove_waiters(1, None));
        assert_eq!(arena.add_waiter(9, wakes()), Some(1));
    }
}
