//! One program's arena, as the engine keeps it: whose stream each block is, and who is to be told.
//!
//! What is free of blocks and storage is the affair of `base/frame` ([`Arena::rings`]).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use firelane_frame::RingArena;
use firelane_shm::layout::{Inbox, SLOT_SHARED, SLOTS};
use firelane_shm::{Arena, Block, Layout, Mapping};
use firelane_units::LaneId;

use super::WORDS_PER_TURN;
use super::datagrams::DatagramTable;
use super::stream::Stream;
use crate::fabric::Message;

/// Waiters that share the last slot.
const SHARERS_MAX: usize = 1024;

/// An arena.
#[derive(Debug)]
pub(crate) struct ProgramArena {
    arena: Arena,
    /// Its place among the engine's arenas.
    pub(super) place: u32,
    streams: RwLock<Vec<Option<Arc<Stream>>>>,
    pub(super) datagrams: DatagramTable,
    waiters: RwLock<Vec<(u32, Waiter)>>,
    /// Somebody is on his way to give memory back.
    is_called: AtomicBool,
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
            streams: RwLock::default(),
            datagrams: DatagramTable::default(),
            waiters: RwLock::default(),
            is_called: AtomicBool::new(false),
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

    /// Its blocks and storage.
    pub(super) fn rings(&self) -> &Arc<RingArena> {
        self.arena.rings()
    }

    /// Whether somebody who is in no hurry is to be called, to give memory back: once.
    pub(super) fn calls_for_time(&self) -> bool {
        self.rings().hoards() && !self.is_called.swap(true, Ordering::AcqRel)
    }

    /// Gives memory back that free storage need not keep. It takes long.
    pub(super) fn give_pages_back(&self) {
        if self.is_called.swap(false, Ordering::AcqRel) {
            self.rings().give_pages_back();
        }
    }

    fn streams(&self) -> RwLockReadGuard<'_, Vec<Option<Arc<Stream>>>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the stream of a block, if it is anybody's.
    pub(super) fn with_stream(&self, block: u32, act: impl FnOnce(&Stream)) {
        if let Some(Some(stream)) = self.streams().get(block as usize) {
            act(stream);
        }
    }

    /// A session has died: what its threads held of streams is free.
    pub(super) fn bury(&self, session: u32) {
        let streams = self.streams();
        for stream in streams.iter().flatten() {
            if let Some(block) = self.mapping().block(stream.number()) {
                block.bury(session);
            }
        }
        self.datagrams.each(|socket| {
            if let Some(block) = self.mapping().block(socket.number()) {
                block.bury(session);
            }
        });
    }

    pub(super) fn insert(&self, block: u32, stream: Arc<Stream>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let place = block as usize;
        if streams.len() <= place {
            streams.resize(place + 1, None);
        }
        streams[place] = Some(stream);
    }

    /// A stream has ended. The block is free when its hold is dropped, so nobody else's can be there.
    pub(super) fn remove(&self, stream: &Stream) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let gone = streams.get_mut(stream.number() as usize).and_then(Option::take);
        drop((streams, gone));
    }

    /// What programs have kicked `lane` for is given to it.
    pub(super) fn take_kicks(&self, lane: LaneId, mut give: impl FnMut(Message)) {
        let Some(inbox) = self.inbox(lane) else { return };
        for _ in 0..WORDS_PER_TURN {
            let Some((first, mut bits)) = inbox.news.take_word() else { return };
            let streams = self.streams();
            while bits != 0 {
                let number = first + bits.trailing_zeros();
                bits &= bits - 1;
                // Programs may name blocks that nobody has, and streams of other lanes.
                let stream = streams.get(number as usize).and_then(Option::as_ref);
                if let Some(stream) = stream.filter(|stream| stream.lane() == lane)
                    && let Some(block) = self.mapping().block(number)
                {
                    stream.obey(block, &mut give);
                    continue;
                }
                self.datagrams.with(number, |socket| {
                    if let Some(block) = self.mapping().block(number).filter(|_| socket.lane() == lane) {
                        socket.obey(block, &mut give);
                    }
                });
            }
        }
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
            if self.mapping().slot(slot).is_some_and(|inbox| inbox.call(number)) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
