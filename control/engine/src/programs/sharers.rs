//! Who shares a slot of an arena with others, because there are more waiters than slots: for which streams each is to be rung.
//!
//! Owned by `waiters.rs`. What a stream's event costs its lane is bounded, however many wait in the arena: it looks for those who have
//! named that stream, and rings the first few ([`RUNG_BY_LANE`]). If there are more, it leaves the block to the hub, which rings all of
//! them, some at a time. Nothing that takes long is done under the lock that a lane takes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::task::Waker;

use firelane_shm::{Mapping, doorbell};

/// So many of those who wait for one stream its lane rings, a system call each.
const RUNG_BY_LANE: usize = 16;
/// So many the hub rings until it turns to others.
const RUNG_AT_ONCE: usize = 256;
/// So many names go while a lane may wait for the lock.
const FORGOTTEN_AT_ONCE: usize = 64;
/// Names of an arena: as many as a program has sockets, some hundred bytes each. Who has no room for one looks at his sockets now and then.
const NAMES_MAX: usize = if cfg!(test) { 4096 } else { 1 << 17 };
/// Sharers of an arena, each of whom costs the daemon a descriptor.
const SHARERS_MAX: usize = 8192;

/// A waiter: its session, and what that calls it.
pub(super) type Who = (u32, u32);

/// A waiter says for which stream it is to be rung.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    pub(super) block: u32,
    /// The use of the stream's block.
    pub(super) generation: u64,
    pub(super) who: Who,
    /// Whatever it has named before, it waits for no more.
    pub(super) is_anew: bool,
}

/// The sharers of an arena's last slot.
#[derive(Debug, Default)]
pub(super) struct Sharers {
    names: RwLock<Names>,
    /// How many names there are. Mostly none.
    count: AtomicUsize,
    crowds: Mutex<Crowds>,
    /// Calls the hub for those.
    hub: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Names {
    /// Who has named which block.
    all: BTreeMap<(u32, Who), Name>,
    known: BTreeMap<Who, Known>,
}

#[derive(Debug)]
struct Name {
    generation: u64,
    wakes: Arc<OwnedFd>,
}

/// A sharer, and which blocks it has named.
#[derive(Debug)]
struct Known {
    wakes: Arc<OwnedFd>,
    blocks: BTreeSet<u32>,
}

/// Blocks of streams for which more wait than a lane rings.
#[derive(Debug, Default)]
struct Crowds {
    blocks: BTreeSet<u32>,
    /// The one whose waiters are being rung, and who was the last.
    current: Option<(u32, Who)>,
}

/// All names of a block.
fn of(block: u32) -> std::ops::RangeInclusive<(u32, Who)> {
    (block, (0, 0))..=(block, (u32::MAX, u32::MAX))
}

impl Sharers {
    /// Notes that a waiter is to be rung for a stream. Whether there was room.
    pub(super) fn share(&self, naming: Naming, wakes: OwnedFd, hub: impl FnOnce() -> Waker) -> bool {
        let Naming { block, generation, who, is_anew } = naming;
        if is_anew {
            self.forget_names_of(who);
        }
        let is_stale = |names: &Names| {
            names.all.range(of(block)).next().is_some_and(|(_, it)| it.generation != generation)
        };
        if is_stale(&self.read()) {
            self.forget(block);
        }
        let mut names = self.write();
        let is_new = !names.known.contains_key(&who);
        let has_room = names.all.len() < NAMES_MAX && (!is_new || names.known.len() < SHARERS_MAX);
        if !has_room {
            return names.all.get(&(block, who)).is_some_and(|it| it.generation == generation);
        }
        let known = names
            .known
            .entry(who)
            .or_insert_with(|| Known { wakes: Arc::new(wakes), blocks: BTreeSet::new() });
        known.blocks.insert(block);
        let wakes = Arc::clone(&known.wakes);
        names.all.insert((block, who), Name { generation, wakes });
        if names.all.range(of(block)).nth(RUNG_BY_LANE).is_some() {
            self.hub.get_or_init(hub);
        }
        self.count.store(names.all.len(), Ordering::Release);
        true
    }

    /// The stream of a block has ended: nobody waits for it any more.
    pub(super) fn forget(&self, block: u32) {
        self.forget_all(|names| names.all.range(of(block)).next().map(|(&key, _)| key));
    }

    /// The session has ended. Whether it had any.
    pub(super) fn remove(&self, session: u32) -> bool {
        let next =
            |names: &Names| names.known.range((session, 0)..=(session, u32::MAX)).next().map(|(&who, _)| who);
        let mut had_any = false;
        loop {
            let Some(who) = next(&self.read()) else { return had_any };
            had_any = true;
            self.forget_names_of(who);
            // Its descriptor is closed when no lane waits.
            let gone = self.write().known.remove(&who);
            drop(gone);
        }
    }

    fn forget_names_of(&self, who: Who) {
        self.forget_all(|names| names.known.get(&who)?.blocks.first().map(|&block| (block, who)));
    }

    /// Forgets names as long as there is a next one.
    fn forget_all(&self, next: impl Fn(&Names) -> Option<(u32, Who)>) {
        while self.count.load(Ordering::Acquire) > 0 {
            let mut names = self.write();
            for _ in 0..FORGOTTEN_AT_ONCE {
                let Some(key) = next(&names) else {
                    return self.count.store(names.all.len(), Ordering::Release);
                };
                names.forget(key);
            }
            self.count.store(names.all.len(), Ordering::Release);
        }
    }

    /// Rings those who wait for a stream, by its block. Nobody knows which of them sleep.
    pub(super) fn wake(&self, memory: &Mapping, block: u32) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let generation = generation_of(memory, block);
        let names = self.read();
        let mut named = names.all.range(of(block));
        for (_, name) in named.by_ref().take(RUNG_BY_LANE).filter(|(_, it)| it.generation == generation) {
            doorbell::ring(name.wakes.as_fd());
        }
        let is_crowded = named.next().is_some();
        drop(names);
        if is_crowded
            && self.crowds().blocks.insert(block)
            && let Some(hub) = self.hub.get()
        {
            hub.wake_by_ref();
        }
    }

    /// Rings those who wait for streams that lanes have left to the hub, [`RUNG_AT_ONCE`] of them. Whether there are more.
    pub(super) fn ring_crowds(&self, memory: &Mapping) -> bool {
        if self.hub.get().is_none() {
            return false;
        }
        let mut left = RUNG_AT_ONCE;
        while left > 0 {
            let Some((block, last)) = self.crowds().next() else { return false };
            let from = last.map_or(Bound::Included((block, (0, 0))), |who| Bound::Excluded((block, who)));
            let to = Bound::Included((block, (u32::MAX, u32::MAX)));
            let generation = generation_of(memory, block);
            let some = |((_, who), name): (&(u32, Who), &Name)| {
                let wakes = (name.generation == generation).then(|| Arc::clone(&name.wakes));
                (*who, wakes)
            };
            let next: Vec<_> = self.read().all.range((from, to)).take(left).map(some).collect();
            next.iter().filter_map(|(_, wakes)| wakes.as_ref()).for_each(|it| doorbell::ring(it.as_fd()));
            left -= next.len();
            if let Some((who, _)) = next.last().filter(|_| left == 0) {
                self.crowds().current = Some((block, *who));
            }
        }
        true
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn crowds(&self) -> MutexGuard<'_, Crowds> {
        self.crowds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    fn forget(&mut self, (block, who): (u32, Who)) {
        self.all.remove(&(block, who));
        if let Some(known) = self.known.get_mut(&who) {
            known.blocks.remove(&block);
        }
    }
}

impl Crowds {
    /// Whose waiters are to be rung next, and behind whom.
    fn next(&mut self) -> Option<(u32, Option<Who>)> {
        let current = self.current.take().map(|(block, who)| (block, Some(who)));
        current.or_else(|| Some((self.blocks.pop_first()?, None)))
    }
}

/// The use of a block by now.
fn generation_of(memory: &Mapping, block: u32) -> u64 {
    memory.block(block).map_or(0, |block| block.generation.load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::arena::ProgramArena;
    use crate::programs::space::Space;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    #[derive(Default)]
    struct Hub(AtomicBool);

    impl Wake for Hub {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Waiters with a doorbell each, by their numbers.
    struct Crowd {
        arena: ProgramArena,
        sharers: Sharers,
        hub: Arc<Hub>,
        bells: Vec<OwnedFd>,
    }

    impl Crowd {
        fn new(count: usize) -> Self {
            let arena =
                ProgramArena::new(&Space::default(), 1, 0, 7, crate::programs::Limits::default(), None)
                    .unwrap();
            let bells = (0..count).map(|_| doorbell::make().unwrap()).collect();
            Self { arena, sharers: Sharers::default(), hub: Arc::default(), bells }
        }

        fn share(&self, block: u32, who: Who, is_anew: bool) -> bool {
            let generation = generation_of(self.arena.mapping(), block);
            let naming = Naming { block, generation, who, is_anew };
            let wakes = self.bells[who.1 as usize % self.bells.len()].try_clone().unwrap();
            self.sharers.share(naming, wakes, || Waker::from(Arc::clone(&self.hub)))
        }

        fn tell(&self, block: u32) {
            self.sharers.wake(self.arena.mapping(), block);
        }

        /// Who has been rung, and is not any more.
        fn rung(&self) -> Vec<usize> {
            let is_rung = |bell: &OwnedFd| {
                let mut entry = [PollFd::new(bell, PollFlags::IN)];
                let is_rung = poll(&mut entry, Some(&Timespec::default())).unwrap() == 1;
                doorbell::silence(bell.as_fd());
                is_rung
            };
            self.bells.iter().enumerate().filter(|(_, bell)| is_rung(bell)).map(|(at, _)| at).collect()
        }

        fn is_hub_called(&self) -> bool {
            self.hub.0.swap(false, Ordering::Relaxed)
        }
    }

    #[test]
    fn who_shares_a_slot_is_rung_for_the_streams_that_he_has_named() {
        let crowd = Crowd::new(3);
        let told = |block| {
            crowd.tell(block);
            crowd.rung()
        };
        assert!(
            crowd.share(5, (1, 0), false) && crowd.share(6, (1, 1), false) && crowd.share(5, (2, 2), false)
        );
        assert_eq!((told(5), told(6), told(7)), (vec![0, 2], vec![1], vec![]));
        assert!(crowd.sharers.remove(2) && !crowd.sharers.remove(2));
        assert_eq!(told(5), [0]);
        assert!(crowd.share(6, (1, 0), false));
        assert_eq!((told(5), told(6)), (vec![0], vec![0, 1]));
        assert!(crowd.share(8, (1, 0), true));
        assert_eq!(
            (told(5), told(6), told(8)),
            (vec![], vec![1], vec![0]),
            "what he has named before is forgotten"
        );
        crowd.sharers.forget(6);
        assert_eq!(told(6), [], "the stream has ended");
        let block = crowd.arena.mapping().block(8).unwrap();
        block.generation.fetch_add(1, Ordering::Relaxed);
        assert_eq!(told(8), [], "the block is another stream's");
        assert!(crowd.share(8, (1, 1), false));
        assert_eq!(told(8), [1]);
        assert_eq!(crowd.sharers.read().all.len(), 1, "names of what has ended take no room");
    }

    #[test]
    fn what_an_event_costs_its_lane_does_not_grow_with_those_who_wait_for_others() {
        const MANY: u32 = 1000;
        let crowd = Crowd::new(MANY as usize);
        for waiter in 0..MANY {
            assert!(crowd.share(2 * waiter, (waiter % 7, waiter), false));
            assert!(crowd.share(2 * waiter + 1, (waiter % 7, waiter), false));
        }
        for waiter in [0, 500, MANY - 1] {
            crowd.tell(2 * waiter);
            assert_eq!(crowd.rung(), [waiter as usize]);
        }
        assert!(!crowd.is_hub_called());
    }

    #[test]
    fn a_lane_rings_a_few_of_a_crowd_and_the_hub_all_of_them() {
        const MANY: usize = 1000;
        let crowd = Crowd::new(MANY);
        (0..MANY as u32).for_each(|waiter| assert!(crowd.share(5, (waiter % 7, waiter), false)));
        crowd.tell(5);
        assert_eq!(crowd.rung().len(), RUNG_BY_LANE);
        assert!(crowd.is_hub_called());
        let memory = crowd.arena.mapping();
        assert!(crowd.sharers.ring_crowds(memory), "some at a time");
        assert_eq!(crowd.rung().len(), RUNG_AT_ONCE);
        // The next event comes in between.
        crowd.tell(5);
        assert!(crowd.is_hub_called());
        let turns = (1..).take_while(|_| crowd.sharers.ring_crowds(memory)).count();
        assert_eq!(turns + 2, (2 * MANY).div_ceil(RUNG_AT_ONCE));
        assert_eq!(crowd.rung().len(), MANY);
        assert!(!crowd.sharers.ring_crowds(memory) && crowd.rung().is_empty());
    }

    #[test]
    fn names_have_a_limit_and_who_ends_makes_room() {
        let crowd = Crowd::new(1);
        let names = |session| {
            (0..NAMES_MAX as u32).take_while(|&block| crowd.share(block, (session, 0), false)).count()
        };
        assert_eq!(names(3), NAMES_MAX);
        assert!(!crowd.share(NAMES_MAX as u32, (4, 0), false) && crowd.share(7, (3, 0), false));
        assert!(crowd.sharers.remove(3));
        assert_eq!(names(4), NAMES_MAX);
        crowd.sharers.forget(9);
        assert!(crowd.share(NAMES_MAX as u32, (4, 0), false) && !crowd.share(9, (4, 0), false));
    }
}
