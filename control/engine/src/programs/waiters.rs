//! Who waits for many sockets: the slots of an arena or a segment, and what wakes the owner of each.
//!
//! Owned by `arena.rs` and `segment.rs`. A slot's inbox lies in shared memory; its doorbell came from its owner. Where there are more
//! waiters than slots the last is everybody's, and those are rung for the streams that they have named.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use firelane_shm::layout::SLOT_SHARED;
use firelane_shm::{Mapping, doorbell, set_bits};

/// Streams by which those are known that share the last slot; and how many of them are rung for whatever happens.
const SHARED_MAX: usize = 1024;
/// No stream: those who are rung for whatever happens.
const ANYTHING: u32 = u32::MAX;

/// Who waits in an arena or a segment.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The slots that are one waiter's own.
    own: RwLock<Vec<(u32, Waiter)>>,
    /// Those who share the last, by the blocks of the streams that they wait for.
    sharers: RwLock<BTreeMap<u32, Vec<Sharer>>>,
    /// How many they are, as of the last change. Mostly none.
    shared: AtomicUsize,
}

/// Who sleeps on a slot's descriptor.
#[derive(Debug)]
struct Waiter {
    session: u32,
    wakes: OwnedFd,
}

/// Who shares a slot, and waits for a stream.
#[derive(Debug)]
struct Sharer {
    /// The session, and what that calls him.
    who: (u32, u32),
    /// The use of the stream's block.
    generation: u64,
    wakes: OwnedFd,
}

impl Waiters {
    /// A slot of `memory` for a waiter of `session` that `wakes` wakes; the shared one if no other is free.
    pub(super) fn add(&self, memory: &Mapping, session: u32, wakes: OwnedFd) -> u32 {
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        let free = (0..SLOT_SHARED).find(|slot| own.iter().all(|(taken, _)| taken != slot));
        let Some(slot) = free else { return SLOT_SHARED };
        own.push((slot, Waiter { session, wakes }));
        if let Some(inbox) = memory.slot(slot) {
            // Whoever has the descriptor of an earlier owner asks anew.
            inbox.owners.fetch_add(1, Ordering::AcqRel);
        }
        slot
    }

    /// Who shares the last slot is to be woken for a stream, by the block and its use. Whether there was room to know him.
    pub(super) fn share(&self, stream: (u32, u64), who: (u32, u32), wakes: OwnedFd) -> bool {
        let (block, generation) = stream;
        let mut sharers = self.sharers.write().unwrap_or_else(PoisonError::into_inner);
        let block = if self.shared.load(Ordering::Relaxed) < SHARED_MAX { block } else { ANYTHING };
        let known = sharers.entry(block).or_default();
        known.retain(|it| it.who != who && (it.generation == generation || block == ANYTHING));
        let has_room = known.len() < SHARED_MAX;
        if has_room {
            known.push(Sharer { who, generation, wakes });
        }
        self.count(&sharers);
        has_room
    }

    fn count(&self, sharers: &BTreeMap<u32, Vec<Sharer>>) {
        self.shared.store(sharers.values().map(Vec::len).sum(), Ordering::Relaxed);
    }

    /// The stream of a block has ended: nobody waits for it any more.
    pub(super) fn forget(&self, block: u32) {
        if self.shared.load(Ordering::Relaxed) > 0 {
            let mut sharers = self.sharers.write().unwrap_or_else(PoisonError::into_inner);
            let gone = sharers.remove(&block);
            self.shared.fetch_sub(gone.map_or(0, |known| known.len()), Ordering::Relaxed);
        }
    }

    /// The waiter is gone; without a slot, all of the session's are. Whether there was one.
    pub(super) fn remove(&self, session: u32, slot: Option<u32>) -> bool {
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        let goes = |at: u32, of: u32| of == session && slot.is_none_or(|slot| slot == at);
        let mut count = own.extract_if(.., |(at, it)| goes(*at, it.session)).count();
        let mut sharers = self.sharers.write().unwrap_or_else(PoisonError::into_inner);
        for known in sharers.values_mut() {
            count += known.extract_if(.., |it| goes(SLOT_SHARED, it.who.0)).count();
        }
        sharers.retain(|_, known| !known.is_empty());
        self.count(&sharers);
        count > 0
    }

    /// Tells those whose bits are in `wanted` that `block` has news.
    pub(super) fn tell(&self, memory: &Mapping, wanted: u64, block: u32) {
        for slot in set_bits(wanted) {
            if slot == SLOT_SHARED {
                self.wake_sharers(memory, block);
            } else if memory.slot(slot).is_some_and(|inbox| inbox.call(block)) {
                self.wake(slot);
            }
        }
    }

    fn wake(&self, slot: u32) {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, waiter)) = own.iter().find(|(at, _)| *at == slot) {
            doorbell::ring(waiter.wakes.as_fd());
        }
    }

    /// Nobody knows which of them sleep.
    fn wake_sharers(&self, memory: &Mapping, block: u32) {
        let generation = memory.block(block).map_or(0, |block| block.generation.load(Ordering::Acquire));
        let sharers = self.sharers.read().unwrap_or_else(PoisonError::into_inner);
        let of_block = sharers.get(&block).into_iter().flatten().filter(|it| it.generation == generation);
        for sharer in of_block.chain(sharers.get(&ANYTHING).into_iter().flatten()) {
            doorbell::ring(sharer.wakes.as_fd());
        }
    }

    /// What wakes the owner of a slot that is one's own, for a peer.
    pub(super) fn bell(&self, slot: u32) -> io::Result<OwnedFd> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        let owner = own.iter().find(|(at, _)| *at == slot);
        owner.ok_or(io::ErrorKind::NotFound)?.1.wakes.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::arena::ProgramArena;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn slots_are_one_waiters_own_until_the_last_which_is_shared() {
        let arena = ProgramArena::new(1, 0, 7, crate::programs::Limits::default(), None).unwrap();
        let (waiters, memory) = (Waiters::default(), arena.mapping());
        let wakes = || doorbell::make().unwrap();
        let slots: Vec<_> = (0..66).map(|n| waiters.add(memory, n % 2, wakes())).collect();
        assert!(slots[..63].iter().copied().eq(0..63) && slots[63..] == [SLOT_SHARED; 3]);
        assert!(waiters.bell(62).is_ok() && waiters.bell(SLOT_SHARED).is_err());
        assert!(waiters.remove(0, Some(4)) && !waiters.remove(0, Some(4)));
        assert!(waiters.bell(4).is_err());
        assert!(!waiters.remove(0, Some(5)), "another session's");
        assert_eq!(waiters.add(memory, 9, wakes()), 4);
        assert_eq!(memory.slot(4).unwrap().owners.load(Ordering::Relaxed), 2);
        assert!(waiters.remove(1, None));
        assert_eq!(waiters.add(memory, 9, wakes()), 1);
    }

    #[test]
    fn who_shares_a_slot_is_rung_for_the_streams_that_he_has_named() {
        let arena = ProgramArena::new(1, 0, 7, crate::programs::Limits::default(), None).unwrap();
        let (waiters, memory) = (Waiters::default(), arena.mapping());
        let bells: [OwnedFd; 3] = std::array::from_fn(|_| doorbell::make().unwrap());
        let copy = |at: usize| bells[at].try_clone().unwrap();
        let rung = || {
            waiters.tell(memory, 1 << SLOT_SHARED, 5);
            bells.each_ref().map(|bell| {
                let mut entry = [PollFd::new(bell, PollFlags::IN)];
                let is_rung = poll(&mut entry, Some(&Timespec::default())).unwrap() == 1;
                doorbell::silence(bell.as_fd());
                is_rung
            })
        };
        let generation = memory.block(5).unwrap().generation.load(Ordering::Relaxed);
        assert!(waiters.share((5, generation), (1, 0), copy(0)));
        assert!(waiters.share((6, generation), (1, 1), copy(1)));
        assert!(waiters.share((5, generation), (2, 0), copy(2)));
        assert_eq!(rung(), [true, false, true]);
        assert!(waiters.remove(2, None));
        assert_eq!(rung(), [true, false, false]);
        memory.block(5).unwrap().generation.fetch_add(1, Ordering::Relaxed);
        assert_eq!(rung(), [false; 3], "the block is another stream's");
        for n in 0..SHARED_MAX as u32 {
            assert!(waiters.share((100 + n, 0), (3, n), copy(2)));
            waiters.forget(100 + n);
        }
        let generation = memory.block(5).unwrap().generation.load(Ordering::Relaxed);
        assert!(waiters.share((5, generation), (1, 0), copy(0)) && waiters.share((6, 0), (2, 0), copy(1)));
        assert_eq!(rung(), [true, false, false], "streams that have ended count no more");
        waiters.forget(5);
        for n in 0..SHARED_MAX as u32 {
            assert!(waiters.share((100 + n, 0), (3, n), copy(1)));
        }
        assert_eq!(rung(), [false, true, false], "there are too many to know what each waits for");
    }
}
