//! Who waits for many sockets: the slots of an arena or a segment, and what wakes the owner of each.
//!
//! Owned by `arena.rs` and `segment.rs`. A slot's inbox lies in shared memory; its doorbell came from its owner.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};

use firelane_shm::layout::{SLOT_SHARED, SLOTS};
use firelane_shm::{Mapping, doorbell};

/// Waiters that share the last slot.
const SHARERS_MAX: usize = 1024;

/// The slots that are taken.
#[derive(Debug, Default)]
pub(super) struct Waiters(RwLock<Vec<(u32, Waiter)>>);

/// Who sleeps on a slot's descriptor.
#[derive(Debug)]
struct Waiter {
    session: u32,
    wakes: OwnedFd,
}

impl Waiters {
    /// A slot of `memory` for a waiter of `session` that `wakes` wakes; the shared one if no other is free.
    pub(super) fn add(&self, memory: &Mapping, session: u32, wakes: OwnedFd) -> Option<u32> {
        let mut waiters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let free = (0..SLOT_SHARED).find(|slot| waiters.iter().all(|(taken, _)| taken != slot));
        let slot = match free {
            Some(slot) => slot,
            None if waiters.len() < SLOTS as usize + SHARERS_MAX => SLOT_SHARED,
            None => return None,
        };
        waiters.push((slot, Waiter { session, wakes }));
        if let Some(inbox) = memory.slot(slot) {
            // Whoever has the descriptor of an earlier owner asks anew.
            inbox.owners.fetch_add(1, Ordering::AcqRel);
        }
        Some(slot)
    }

    /// The waiter is gone; without a slot, all of the session's are. Whether there was one.
    pub(super) fn remove(&self, session: u32, slot: Option<u32>) -> bool {
        let mut waiters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = waiters.len();
        waiters.retain(|(at, it)| it.session != session || slot.is_some_and(|slot| slot != *at));
        waiters.len() != before
    }

    /// Tells those whose bits are in `wanted` that `block` has news.
    pub(super) fn tell(&self, memory: &Mapping, wanted: u64, block: u32) {
        let mut wanted = wanted;
        while wanted != 0 {
            let slot = wanted.trailing_zeros();
            wanted &= wanted - 1;
            if memory.slot(slot).is_some_and(|inbox| inbox.call(block)) {
                self.wake(slot);
            }
        }
    }

    fn wake(&self, slot: u32) {
        let waiters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (_, waiter) in waiters.iter().filter(|(at, _)| *at == slot) {
            doorbell::ring(waiter.wakes.as_fd());
        }
    }

    /// What wakes the owner of a slot that is one's own, for a peer.
    pub(super) fn bell(&self, slot: u32) -> io::Result<OwnedFd> {
        let waiters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let owner = waiters.iter().find(|(at, _)| *at == slot && slot != SLOT_SHARED);
        owner.ok_or(io::ErrorKind::NotFound)?.1.wakes.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::arena::ProgramArena;

    #[test]
    fn slots_are_one_waiters_own_until_the_last_which_is_shared() {
        let arena = ProgramArena::new(1, 0, 7, u64::MAX).unwrap();
        let (waiters, memory) = (Waiters::default(), arena.mapping());
        let wakes = || doorbell::make().unwrap();
        let slots: Vec<_> = (0..66).map(|n| waiters.add(memory, n % 2, wakes()).unwrap()).collect();
        assert!(slots[..63].iter().copied().eq(0..63) && slots[63..] == [SLOT_SHARED; 3]);
        assert!(waiters.bell(62).is_ok() && waiters.bell(SLOT_SHARED).is_err());
        assert!(waiters.remove(0, Some(4)) && !waiters.remove(0, Some(4)));
        assert!(waiters.bell(4).is_err());
        assert!(!waiters.remove(0, Some(5)), "another session's");
        assert_eq!(waiters.add(memory, 9, wakes()), Some(4));
        assert_eq!(memory.slot(4).unwrap().owners.load(Ordering::Relaxed), 2);
        assert!(waiters.remove(1, None));
        assert_eq!(waiters.add(memory, 9, wakes()), Some(1));
    }
}
