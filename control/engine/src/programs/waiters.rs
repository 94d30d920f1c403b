//! Who waits for many sockets: the slots of an arena or a segment, and what wakes the owner of each.
//!
//! Owned by `arena.rs` and `segment.rs`. A slot's inbox lies in shared memory; its doorbell came from its owner. Where there are more
//! waiters than slots the last is everybody's, and those are rung for the streams that they have named (`sharers.rs`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};
use std::task::Waker;

use firelane_shm::layout::SLOT_SHARED;
use firelane_shm::{Mapping, doorbell, set_bits};

use super::sharers::{Naming, Sharers};

/// Who waits in an arena or a segment.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The slots that are one waiter's own.
    own: RwLock<Vec<(u32, Waiter)>>,
    /// Those who share the last.
    sharers: Sharers,
}

/// Who sleeps on a slot's descriptor.
#[derive(Debug)]
struct Waiter {
    session: u32,
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

    /// Who shares the last slot is to be woken for a stream, if need be by the hub, whom `hub` calls. Whether there was room to know him.
    pub(super) fn share(&self, naming: Naming, wakes: OwnedFd, hub: impl FnOnce() -> Waker) -> bool {
        self.sharers.share(naming, wakes, hub)
    }

    /// The stream of a block has ended: nobody waits for it any more.
    pub(super) fn forget(&self, block: u32) {
        self.sharers.forget(block);
    }

    /// The waiter is gone; without a slot, all of the session's are. Whether there was one in `memory`.
    pub(super) fn remove(&self, memory: &Mapping, session: u32, slot: Option<u32>) -> bool {
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        let goes = |at: u32, of: u32| of == session && slot.is_none_or(|slot| slot == at);
        let gone: Vec<_> = own.extract_if(.., |(at, it)| goes(*at, it.session)).collect();
        for inbox in gone.iter().filter_map(|(slot, _)| memory.slot(*slot)) {
            // He may have died asleep, with streams that are marked for him still: who tells of one finds nobody to be woken.
            inbox.wake_up();
            inbox.owners.fetch_add(1, Ordering::AcqRel);
        }
        drop(own);
        let had_shared = goes(SLOT_SHARED, session) && self.sharers.remove(session);
        !gone.is_empty() || had_shared
    }

    /// The hub rings those whom lanes have left to it, some at a time. Whether there are more.
    pub(super) fn ring_crowds(&self, memory: &Mapping) -> bool {
        self.sharers.ring_crowds(memory)
    }

    /// Tells those whose bits are in `wanted` that `block` has news. Whether one of them slept, of those with a slot of their own.
    pub(super) fn tell(&self, memory: &Mapping, wanted: u64, block: u32) -> bool {
        let mut has_woken = false;
        for slot in set_bits(wanted) {
            if slot == SLOT_SHARED {
                self.sharers.wake(memory, block);
            } else if memory.slot(slot).is_some_and(|inbox| inbox.call(block)) {
                self.wake(slot);
                has_woken = true;
            }
        }
        has_woken
    }

    fn wake(&self, slot: u32) {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, waiter)) = own.iter().find(|(at, _)| *at == slot) {
            doorbell::ring(waiter.wakes.as_fd());
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
    use crate::programs::space::Space;

    #[test]
    fn slots_are_one_waiters_own_until_the_last_which_is_shared() {
        let arena =
            ProgramArena::new(&Space::default(), 1, 0, 7, crate::programs::Limits::default(), None).unwrap();
        let (waiters, memory) = (Waiters::default(), arena.mapping());
        let wakes = || doorbell::make().unwrap();
        let slots: Vec<_> = (0..66).map(|n| waiters.add(memory, n % 2, wakes())).collect();
        assert!(slots[..63].iter().copied().eq(0..63) && slots[63..] == [SLOT_SHARED; 3]);
        assert!(waiters.bell(62).is_ok() && waiters.bell(SLOT_SHARED).is_err());
        assert!(waiters.remove(memory, 0, Some(4)) && !waiters.remove(memory, 0, Some(4)));
        assert!(waiters.bell(4).is_err());
        assert!(!waiters.remove(memory, 0, Some(5)), "another session's");
        assert_eq!(waiters.add(memory, 9, wakes()), 4);
        assert_eq!(memory.slot(4).unwrap().owners.load(Ordering::Relaxed), 3);
        assert!(waiters.remove(memory, 1, None));
        assert_eq!(waiters.add(memory, 9, wakes()), 1);
    }

    #[test]
    fn who_was_asleep_when_he_died_is_not_to_be_woken() {
        let arena =
            ProgramArena::new(&Space::default(), 1, 0, 7, crate::programs::Limits::default(), None).unwrap();
        let (waiters, memory) = (Waiters::default(), arena.mapping());
        let slots = [1, 2].map(|session| waiters.add(memory, session, doorbell::make().unwrap()));
        let inboxes = slots.map(|slot| memory.slot(slot).unwrap());
        inboxes.iter().for_each(|inbox| assert!(inbox.fall_asleep()));
        let owners = inboxes.map(|inbox| inbox.owners.load(Ordering::Relaxed));
        assert!(inboxes.iter().all(|inbox| inbox.tell_napper(3).is_some()));
        assert!(waiters.remove(memory, 1, None));
        let [dead, alive] = inboxes.map(|inbox| inbox.tell_napper(4));
        assert!(dead.is_none() && alive.is_some());
        let now = inboxes.map(|inbox| inbox.owners.load(Ordering::Relaxed));
        assert!(now[0] != owners[0] && now[1] == owners[1], "who has the bell of the dead closes it");
    }
}
