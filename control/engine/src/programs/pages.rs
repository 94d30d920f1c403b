//! Memory that goes back to the kernel: by a thread of its own, which nobody waits for.
//!
//! The kernel takes 0.3 to 0.75 us for each page that it gets back, so the end of a program whose buffers were full is a second's work for
//! each two GiB. No lane does that, nor the thread that answers requests, which every other program would wait for: they say here what is
//! left, and go on. One thread does all of it, a bounded piece at a time, as a thread that other work goes before:
//!
//! - free storage of an arena or a segment that keeps more than it should (A3 of `base/frame/src/arena.rs`);
//! - arenas of programs that are gone, once no lane has anything there;
//! - segments one of whose programs is gone, once no connection has anything there. All storage of such a one is emptied, also what no
//!   books know: the program that stays has it mapped for good, and who has left may have written anywhere. Then it is a spare one
//!   (`spares.rs`), if it may be;
//! - storage of fused connections that have carried something and are at rest, once a second.
//!
//! Begun and ended by `hub.rs`. Without the thread what is said here waits.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use firelane_frame::RingArena;
use firelane_shm::Arena;

use super::arena::ProgramArena;
use super::segment::{Bond, Segment};
use super::space::Taken;
use super::spares::{Spare, Spares};

/// How long a lane may have what it was told is gone: a turn or two. So long until the next look; an arena that a lane keeps for longer,
/// because it has failed, goes with that.
const NEXT_LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(2);
/// How often connections are looked at that may have come to rest.
const NEXT_REST: Duration = Duration::from_secs(1);
/// How much other threads go before it, as by nice(1).
const NICENESS: i32 = 10;

/// A connection, and what its ends had written at the last look.
type Watched = (Weak<Bond>, Option<[u64; 2]>);

/// What has memory to give back, and who does it.
#[derive(Debug, Default)]
pub(super) struct Pages {
    queue: Mutex<Queue>,
    bell: Condvar,
    /// Those that may come to rest. Whoever brings one does not wait for a look.
    watched: Mutex<Vec<Watched>>,
    pub(super) spares: Spares,
}

#[derive(Debug, Default)]
struct Queue {
    /// Those with too much that is free.
    hoards: Vec<Arc<RingArena>>,
    /// Those of programs that are gone, and since when.
    arenas: Vec<(Gone, Instant)>,
    /// Those that one of two programs has left.
    segments: Vec<Spare>,
    /// Connections that have carried something since the last look.
    used: Vec<Weak<Bond>>,
    /// Something is new.
    is_rung: bool,
    has_ended: bool,
}

/// An arena that is not given out any more.
#[derive(Debug)]
enum Gone {
    /// Lanes may still know it.
    Known(Arc<ProgramArena>),
    /// They do not, but may have some of its rings.
    Alone(Arena, Taken),
}

impl Pages {
    /// Somebody does what is said from here on, until [`Pages::end`].
    pub(super) fn begin(self: &Arc<Self>) -> io::Result<()> {
        self.queue().has_ended = false;
        let pages = Arc::clone(self);
        thread::Builder::new().name("pages".to_owned()).spawn(move || pages.run())?;
        Ok(())
    }

    /// Nobody does any more. What waits is gone.
    pub(super) fn end(&self) {
        let mut waits = Queue::default();
        self.ring(|queue| waits = std::mem::replace(queue, Queue { has_ended: true, ..Queue::default() }));
        let watched = std::mem::take(&mut *self.watched.lock().unwrap_or_else(PoisonError::into_inner));
        drop((waits, watched));
    }

    /// Free storage there keeps more than it should.
    pub(super) fn trim(&self, rings: &Arc<RingArena>) {
        self.ring(|queue| queue.hoards.push(Arc::clone(rings)));
    }

    /// The program of this arena is gone, and lanes are told.
    pub(super) fn bury(&self, arena: Arc<ProgramArena>) {
        self.ring(|queue| queue.arenas.push((Gone::Known(arena), Instant::now())));
    }

    /// One of these segments' programs is gone.
    pub(super) fn leave(&self, segments: impl IntoIterator<Item = Spare>) {
        self.ring(|queue| queue.segments.extend(segments));
    }

    /// The last connection in a segment that was left has ended.
    pub(super) fn look(&self) {
        self.ring(|_| {});
    }

    /// This connection has carried something.
    pub(super) fn watch(&self, bond: Weak<Bond>) {
        self.ring(|queue| queue.used.push(bond));
    }

    /// A segment for these two, emptied, of which the one who stays has it mapped.
    pub(super) fn take_spare(&self, ends: [&ProgramArena; 2]) -> Option<Segment> {
        loop {
            let (spare, newcomer) = self.spares.take(ends)?;
            if !spare.segment.arena().is_small() {
                // Whoever has it mapped has written there since, and that takes long.
                self.leave([spare]);
                continue;
            }
            if spare.segment.arena().empty().is_err() {
                continue;
            }
            // Somebody may be looking at it, and then it is none.
            return Some(Arc::try_unwrap(spare.segment).ok()?.between(ends, newcomer));
        }
    }

    /// Does all that can be done now. Whether something is to be looked at again in a while.
    pub(super) fn work(&self) -> bool {
        let mut queue = self.queue();
        let (hoards, arenas) = (std::mem::take(&mut queue.hoards), std::mem::take(&mut queue.arenas));
        let segments: Vec<_> = queue.segments.extract_if(.., |it| it.segment.is_idle()).collect();
        drop(queue);
        hoards.iter().for_each(|rings| rings.give_pages_back());
        for spare in segments {
            // One of which something may be left is nobody's.
            if spare.segment.arena().empty().is_ok() {
                self.spares.put(spare);
            }
        }
        let waiting: Vec<_> =
            arenas.into_iter().filter_map(|(gone, since)| Some((gone.end(since)?, since))).collect();
        let waits = !waiting.is_empty();
        self.queue().arenas.extend(waiting);
        waits
    }

    /// Looks which connections are at rest, and gives their memory back. Whether there are others.
    pub(super) fn look_for_rest(&self) -> bool {
        let used = std::mem::take(&mut self.queue().used);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.extend(used.into_iter().map(|bond| (bond, None)));
        // Outside the queue's lock, for the last who has a connection tells of that there.
        watched.retain_mut(|(bond, last)| bond.upgrade().is_some_and(|bond| !bond.give_pages_back(last)));
        !watched.is_empty()
    }

    fn run(&self) {
        let this = rustix::thread::gettid();
        // Where that is refused it is a thread as others.
        let _ = rustix::process::setpriority_process(Some(this), NICENESS);
        let (mut waits, mut watches, mut rested) = (false, false, Instant::now());
        while self.sleep(waits, watches, rested) {
            waits = self.work();
            if rested.elapsed() >= NEXT_REST {
                watches = self.look_for_rest();
                rested = Instant::now();
            }
        }
    }

    /// Sleeps until there is something to do: soon, with something that waits; when it is time to look for what rests, with something that
    /// may. Whether it may go on.
    fn sleep(&self, waits: bool, watches: bool, rested: Instant) -> bool {
        let mut queue = self.queue();
        while !queue.is_rung && !queue.has_ended {
            let may_rest = watches || !queue.used.is_empty();
            let next_rest = may_rest.then(|| NEXT_REST.saturating_sub(rested.elapsed()));
            let Some(most) = waits.then_some(NEXT_LOOK).into_iter().chain(next_rest).min() else {
                queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue = self.bell.wait_timeout(queue, most).unwrap_or_else(PoisonError::into_inner).0;
            break;
        }
        queue.is_rung = false;
        !queue.has_ended
    }

    fn ring(&self, say: impl FnOnce(&mut Queue)) {
        let mut queue = self.queue();
        say(&mut queue);
        queue.is_rung = true;
        drop(queue);
        self.bell.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gone {
    /// Gives its memory back, once nobody has anything there, or has had time enough to let go. What is to be looked at again.
    fn end(self, since: Instant) -> Option<Self> {
        let may_wait = since.elapsed() < PATIENCE;
        let (alone, taken) = match self {
            Self::Known(arena) => match Arc::try_unwrap(arena) {
                Ok(arena) => arena.into_arena(),
                Err(arena) => return may_wait.then_some(Self::Known(arena)),
            },
            Self::Alone(arena, taken) => (arena, taken),
        };
        if !alone.is_alone() {
            return may_wait.then_some(Self::Alone(alone, taken));
        }
        // What is there no more costs nothing when it is unmapped, for which other threads that map something wait. If the kernel refuses,
        // it goes with the mapping.
        let _ = alone.empty();
        drop((alone, taken));
        None
    }
}
