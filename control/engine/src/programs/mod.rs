//! Unmodified programs: their sockets live in shared memory (`docs/shm.md`), their connections in lanes.
//!
//! A program's kick reaches the worker of its connection's lane, which carries bytes between the program's rings and
//! the connection's ([`ferry::Ferry`]). What is rare comes as requests to the [`Hub`], which the daemon calls from one
//! thread. Everything goes through the engine's own sockets: to a lane, a program is a `TcpStream` like any other.
//!
//! - `arena.rs`, `rings.rs`: memory and cursors that are the daemon's own, beside words that the program may spoil.
//! - `ferry.rs`: one stream. `hub.rs`: sessions and requests; `socket.rs`, `options.rs`: a socket before it is a
//!   stream, and its options.

mod arena;
mod ferry;
mod hub;
mod options;
mod rings;
mod socket;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Waker;
use std::time::Duration;

use firelane_units::LaneId;

use crate::bell::Bell;
use crate::poller::{Event, Poller};
use arena::ProgramArena;
use ferry::SCRATCH;

pub use hub::{Hub, Owner, ProgramSocket, Reply, send};

/// Words of an inbox, of up to 64 streams each, that are looked at before the lane has its turn.
const WORDS_PER_TURN: usize = 64;

/// All arenas, and what each lane's worker needs to serve them.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Whether there was ever an arena: an engine without programs pays one load per turn.
    used: AtomicBool,
    arenas: RwLock<Vec<Option<Arc<ProgramArena>>>>,
    next_number: AtomicU64,
    lanes: Box<[LaneSide]>,
    /// Programs whose words could not be, ever.
    lies: AtomicU64,
}

/// A lane's worker's own.
#[derive(Debug)]
struct LaneSide {
    bell: Arc<Bell>,
    poller: Poller,
    desk: Mutex<Desk>,
}

/// What a worker works with; nobody else wants it.
#[derive(Debug)]
struct Desk {
    events: Vec<Event>,
    scratch: Box<[u8]>,
}

impl Programs {
    /// For lanes with these bells.
    pub(crate) fn new<'a>(bells: impl Iterator<Item = &'a Arc<Bell>>) -> Self {
        let side = |bell: &Arc<Bell>| LaneSide {
            bell: Arc::clone(bell),
            poller: Poller::waking(Waker::from(Arc::clone(bell))),
            desk: Mutex::new(Desk { events: Vec::new(), scratch: Box::default() }),
        };
        Self {
            used: AtomicBool::new(false),
            arenas: RwLock::default(),
            next_number: AtomicU64::new(1),
            lanes: bells.map(side).collect(),
            lies: AtomicU64::new(0),
        }
    }

    fn arena(&self, place: u32) -> Option<Arc<ProgramArena>> {
        self.arenas.read().unwrap_or_else(PoisonError::into_inner).get(place as usize)?.clone()
    }

    fn all(&self) -> Vec<Arc<ProgramArena>> {
        self.arenas.read().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    /// Makes an arena, which the lanes serve from then on.
    fn add_arena(&self) -> std::io::Result<Arc<ProgramArena>> {
        let arena = {
            let mut arenas = self.arenas.write().unwrap_or_else(PoisonError::into_inner);
            let free = arenas.iter().position(Option::is_none);
            let place = free.unwrap_or(arenas.len());
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let arena = Arc::new(ProgramArena::new(self.lanes.len(), place as u32, number)?);
            match free {
                Some(place) => arenas[place] = Some(Arc::clone(&arena)),
                None => arenas.push(Some(Arc::clone(&arena))),
            }
            arena
        };
        self.used.store(true, Ordering::Release);
        // A worker that sleeps now has not said so in this arena.
        self.lanes.iter().for_each(|lane| lane.bell.ring());
        Ok(arena)
    }

    fn remove_arena(&self, place: u32) {
        let mut arenas = self.arenas.write().unwrap_or_else(PoisonError::into_inner);
        let gone = arenas.get_mut(place as usize).and_then(Option::take);
        drop((arenas, gone));
    }

    /// How often a program's words could not be.
    pub(crate) fn lies(&self) -> u64 {
        self.lies.load(Ordering::Relaxed)
    }

    /// A worker, before its lane's turn: what connections and programs have told is carried out.
    pub(crate) fn serve(&self, lane: LaneId) {
        if !self.used.load(Ordering::Acquire) {
            return;
        }
        let Some(side) = self.lanes.get(lane.index()) else { return };
        let Ok(mut desk) = side.desk.try_lock() else { return };
        let Desk { events, scratch } = &mut *desk;
        if scratch.is_empty() {
            *scratch = vec![0; SCRATCH].into_boxed_slice();
        }
        side.poller.wait(events, Some(Duration::ZERO));
        for event in events.drain(..) {
            let (place, block) = ((event.key >> 32) as u32, event.key as u32);
            if let Some(ferry) = self.arena(place).and_then(|arena| arena.ferry(block)) {
                ferry.serve(self, scratch);
            }
        }
        for arena in self.all() {
            self.serve_kicks(lane, &arena, scratch);
        }
    }

    fn serve_kicks(&self, lane: LaneId, arena: &ProgramArena, scratch: &mut [u8]) {
        let Some(inbox) = arena.inbox(lane) else { return };
        for _ in 0..WORDS_PER_TURN {
            let Some((first, mut bits)) = inbox.news.take_word() else { return };
            while bits != 0 {
                let block = first + bits.trailing_zeros();
                bits &= bits - 1;
                // Programs may name blocks that nobody has.
                if let Some(ferry) = arena.ferry(block) {
                    ferry.serve(self, scratch);
                }
            }
        }
    }

    /// A worker that is about to sleep: programs are to ring from here on. Whether it may.
    pub(crate) fn fall_asleep(&self, lane: LaneId) -> bool {
        let is_used = self.used.load(Ordering::Acquire);
        !is_used || self.all().iter().all(|arena| arena.inbox(lane).is_none_or(|inbox| inbox.fall_asleep()))
    }

    /// A worker that is awake again.
    pub(crate) fn wake_up(&self, lane: LaneId) {
        if self.used.load(Ordering::Acquire) {
            self.all().iter().filter_map(|arena| arena.inbox(lane)).for_each(|inbox| inbox.wake_up());
        }
    }
}
