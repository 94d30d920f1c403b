//! Who waits for many sockets at once: a slot in each arena where they lie, and doorbells that wake its owner.
//!
//! The daemon rings one of them, for all arenas; each segment has one of its own, because the program at the segment's other
//! end is given it, and whoever has a bell can take back what was rung: its own rings, then, and nobody else's.
//!
//! An epoll set has one for its life; `poll` takes one for the length of a sleep and puts it back, with its slots, for the
//! next. An arena that many processes share may have fewer slots than they have waiters: the last slot is all the others'.
//! Its news may be anybody's, and are taken by whoever is first, so who shares it looks at all that he waits for, and the
//! daemon, which he tells the streams, rings him for those whether he sleeps or not. The order that loses no wake-up is that of
//! `drivers/shm` (`Inbox`): mark the block, say that one sleeps, look once more, sleep.
//!
//! Nobody's call fails because there are so many: who has no place, or is not known by the daemon, sleeps in [`Slices`].
//!
//! A signal handler may jump out of a call (siglongjmp(3)), which then gives nothing back. So a call's waiter has the call's thread and where its
//! frame lies, and is taken from it by that thread's next call, in whose place or below it that frame was; or when there is no other,
//! if that thread has ended.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use firelane_shm::layout::{Inbox, SLOT_SHARED};
use firelane_shm::{AcceptQueue, Beside, Block, Holder, StreamEnd, doorbell};
use libc::{epoll_event, pollfd};
use rustix::io::Errno;

use crate::epoll::BELL;
use crate::socket::{self, Kind};
use crate::sys::Limit;
use crate::table::{self, Word};
use crate::{arenas, confining, fused, process, session, sys, thread};

mod places;

use places::Descriptor;
pub(crate) use places::Place;

/// What stands for the shared slot in the `waiters` of a stream.
const SHARED_BIT: u64 = 1 << SLOT_SHARED;
/// The most bells of a waiter: the daemon's, and one for each segment.
pub(crate) const BELLS_MAX: usize = 1 + arenas::SEGMENTS_MAX;

/// As many calls on single sockets have one at a time. Each takes one of an arena's slots, of which epoll sets and others want some.
const SLEEPERS_MAX: usize = 16;

/// For as many sets a waiter is made ready; who has more of them makes it with a set's first socket.
const READY_MAX: usize = 16;

static SLEEPERS: AtomicUsize = AtomicUsize::new(0);

/// As far below a call's frame one is looked for that was left: stacks of one thread may be further apart.
const NEAR: usize = 32 << 10;

/// Whether an error says that a waiter had no room for something. Who waits looks at his sockets in [`Slices`] then.
pub(crate) fn is_lack(errno: Errno) -> bool {
    [Errno::NFILE, Errno::MFILE, Errno::NOSPC, Errno::NOMEM, Errno::NOBUFS].contains(&errno)
}

/// Short sleeps of who is not told of everything: each twice as long as the one before, up to a limit.
pub(crate) struct Slices {
    next: Option<Duration>,
}

impl Slices {
    const FIRST: Duration = Duration::from_micros(625);
    /// At most.
    pub(crate) const LONGEST: Duration = Duration::from_millis(10);

    /// For who `lacks` something.
    pub(crate) fn new(lacks: bool) -> Self {
        Self { next: lacks.then_some(Self::FIRST) }
    }

    /// He lacks something from here on.
    pub(crate) fn begin(&mut self) {
        self.next.get_or_insert(Self::FIRST);
    }

    /// How long the next sleep is, of one that is to be so long.
    pub(crate) fn limit(&mut self, whole: Limit) -> Limit {
        let Some(next) = self.next else { return whole };
        self.next = Some((2 * next).min(Self::LONGEST));
        Some(whole.map_or(next, |whole| whole.min(next)))
    }
}

/// A waiter, taken. It goes back when it is dropped.
pub(crate) struct Waiter {
    place: &'static Place,
    /// Which place that is.
    at: usize,
    /// The process whose slots it has.
    process: u32,
}

impl Waiter {
    /// Takes one for the call that is running, until that returns.
    pub(crate) fn for_call() -> Result<Self, Errno> {
        let (own, frame) = (thread::kernel_number(), frame());
        // Mostly the thread has none.
        if thread::waiters().held > 0 {
            give_back(|place| place.was_left_by(own, frame));
        }
        let waiter = Self::taken(own).or_else(|error| {
            give_back(Place::is_of_the_dead);
            Self::taken(own).map_err(|_| error)
        })?;
        if waiter.place.is_full_of_names() {
            waiter.place.forget_names();
        }
        waiter.place.frame.store(frame, Ordering::Relaxed);
        waiter.place.thread.store(own, Ordering::Release);
        count_held(own);
        Ok(waiter)
    }

    /// The same for a call on one socket, of which only so many have one.
    pub(crate) fn for_sleep() -> Result<Self, Errno> {
        if SLEEPERS.load(Ordering::Relaxed) >= SLEEPERS_MAX {
            let (own, frame) = (thread::kernel_number(), frame());
            give_back(|place| place.was_left_by(own, frame));
        }
        if SLEEPERS.fetch_add(1, Ordering::Relaxed) >= SLEEPERS_MAX {
            SLEEPERS.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::NFILE);
        }
        let waiter = Self::for_call().inspect_err(|_| _ = SLEEPERS.fetch_sub(1, Ordering::Relaxed))?;
        waiter.place.is_sleepers.store(true, Ordering::Relaxed);
        Ok(waiter)
    }

    /// Takes one for longer than a call.
    pub(crate) fn take() -> Result<Self, Errno> {
        let waiter = Self::taken(0)?;
        waiter.place.forget_names();
        Ok(waiter)
    }

    /// Takes one that is free, or makes one.
    fn taken(thread: u32) -> Result<Self, Errno> {
        let process = session::own_process();
        let (at, place) = places::take(thread).ok_or(Errno::NFILE)?;
        place.arenas.store(0, Ordering::Relaxed);
        let waiter = Self { place, at, process };
        if place.bell.get() < 0 {
            // Who is confined takes one that has, while there is any.
            if confining::is_confined()
                && let Some((at, place)) = places::take_made()
            {
                drop(waiter);
                place.arenas.store(0, Ordering::Relaxed);
                return Ok(Self { place, at, process });
            }
            match doorbell::make().and_then(session::hide) {
                Ok(bell) => place.bell.put(bell),
                Err(errno) => {
                    drop(waiter);
                    let (at, place) = places::take_made().ok_or(errno)?;
                    place.arenas.store(0, Ordering::Relaxed);
                    return Ok(Self { place, at, process });
                }
            }
        }
        Ok(waiter)
    }

    /// Makes descriptors of as many waiters as `sets` may need. Where there are none, who needs one later tries again.
    pub(crate) fn make_ready(sets: usize) {
        let there = places::all().filter(|place| place.bell.get() >= 0).count();
        for _ in there..sets.min(READY_MAX) {
            let Some(place) = places::take_unmade() else { return };
            let made = doorbell::make().and_then(session::hide);
            if let Ok(bell) = made {
                place.bell.put(bell);
            }
            place.leave();
            if made.is_err() {
                return;
            }
        }
    }

    /// Whether it has the shared slot of an arena, so that its owner has to look at all that he waits for.
    pub(crate) fn is_sharing(&self) -> bool {
        let arenas = self.place.arenas.load(Ordering::Acquire);
        arenas::places(arenas).any(|arena| self.place.known_bit(arena) == SHARED_BIT)
    }

    /// Its doorbells: the daemon's first, then those of the segments in which it waits.
    pub(crate) fn bells(&self) -> impl Iterator<Item = c_int> + use<> {
        self.place.bells()
    }

    /// Puts its bells into an epoll descriptor, those too that it gets later.
    pub(crate) fn enter(&self, set: c_int) -> Result<(), Errno> {
        self.place.set.put(set);
        self.bells().try_for_each(|bell| enter(set, bell))
    }

    /// The descriptor in which its bells are has another number now.
    pub(crate) fn is_renamed(&self, from: c_int, to: c_int) {
        let _ = self.place.set.replace(from, to);
    }

    /// Whether it is this process' own, and not one that a fork has left here: its slots are the parent's then. A child does not
    /// begin a session for the answer.
    pub(crate) fn is_own(&self) -> bool {
        self.process == process::number()
    }

    /// From now on news of a stream come to this waiter.
    pub(crate) fn watch(&mut self, fd: c_int, word: Word) -> Result<(), Errno> {
        if socket::kind(word) != Kind::Stream || socket::is_dead(word) {
            return Ok(());
        }
        let arena = socket::arena(word);
        let (bit, _) = self.place.bit_in(arena, fd)?;
        let block = block_of(word).ok_or(Errno::BADF)?;
        if bit == SHARED_BIT {
            self.name(word, block)?;
        }
        block.waiters.fetch_or(bit, Ordering::SeqCst);
        // Who opens a joint later finds the mark. One that another process has opened is not opened here again.
        if let Some((segment, beside)) = end_of(word).and_then(|end| fused::reached(fd, &end)) {
            beside.watch(self.place.bit_in(segment, fd)?.0);
        }
        Ok(())
    }

    /// Its bells ring by themselves, too, and who reads one waits for that: all that a thread may do to which the rest is forbidden.
    pub(crate) fn rings_by_itself(&self) {
        self.place.all_bells().map(Descriptor::get).filter(|&bell| bell >= 0).for_each(|bell| {
            doorbell::ring_now_and_then(sys::borrow(bell));
        });
    }

    /// Reads the bell that is rung for the only stream that it watches, until that rings.
    pub(crate) fn read_bell(&self) {
        if let Some(bell) = self.bells().last() {
            let _ = rustix::io::read(sys::borrow(bell), &mut [0_u8; 8]);
        }
    }

    /// Asks for what it takes to wait for sockets of this process' own arena, and for all that it has by now.
    pub(crate) fn get_ready(&self) {
        // Who gets nothing now asks again when he waits.
        session::own_arena().into_iter().for_each(|own| _ = self.place.bit_in(own, -1));
        for fd in table::programs() {
            let is_stream = |&word: &Word| socket::kind(word) == Kind::Stream && !socket::is_dead(word);
            let Some(word) = table::get(fd).filter(is_stream) else { continue };
            let _ = self.place.bit_in(socket::arena(word), fd);
            if let Some((segment, _)) = end_of(word).and_then(|end| fused::reached(fd, &end)) {
                let _ = self.place.bit_in(segment, fd);
            }
        }
    }

    /// From now on news of a listener's accept queue come to this waiter, who looks once more. The mark that is taken back later; zero
    /// if it has no slot of its own there, and then he is told nothing.
    pub(crate) fn mark(&self, fd: c_int, word: Word, queue: &AcceptQueue) -> u64 {
        let mark = self.place.bit_in(socket::arena(word), fd).map_or(0, |(bit, _)| bit & !SHARED_BIT);
        if mark != 0 {
            queue.mark(mark);
        }
        mark
    }

    /// Tells the daemon for which stream it is to be rung, unless it knows.
    #[cold]
    fn name(&self, word: Word, block: &Block) -> Result<(), Errno> {
        let (arena, key) = (socket::arena(word), key(word, block));
        if self.place.has_named(key) {
            return Ok(());
        }
        let is_anew = self.place.begins_in(arena);
        session::share_slot(arena, socket::number(word), (self.at as u32, is_anew), self.place.bell.get())?;
        self.place.note_name(arena, key);
        Ok(())
    }

    /// From now on they do not, unless it is a parent's: its place may be another's here. Its words are its own still: what lies there in a
    /// listener's is no mark.
    pub(crate) fn unwatch(&self, word: Word) {
        if self.is_own()
            && socket::kind(word) == Kind::Stream
            && !socket::is_dead(word)
            && let Some(end) = end_of(word)
        {
            // The shared bit stays: another may wait for the same stream.
            let own = |arena| self.place.known_bit(arena) & !SHARED_BIT;
            end.block().waiters.fetch_and(!own(socket::arena(word)), Ordering::SeqCst);
            if let Some((segment, beside)) = fused::of(&end) {
                beside.unwatch(own(segment));
            }
        }
    }

    /// The inboxes, with the place of each one's arena.
    pub(crate) fn inboxes(&self) -> impl Iterator<Item = (u16, &'static Inbox)> + use<> {
        inboxes(self.place, self.place.arenas.load(Ordering::Acquire))
    }

    /// Whether there are news already.
    pub(crate) fn has_news(&self) -> bool {
        self.inboxes().any(|(_, inbox)| inbox.news.any())
    }

    /// From here on the bell is rung for news; a last look follows. Whether there are none as yet.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.inboxes().fold(true, |quiet, (_, inbox)| inbox.fall_asleep() && quiet)
    }

    /// The bell is not needed any more.
    pub(crate) fn wake_up(&self) {
        // A handler may have forked while it slept.
        if self.is_own() {
            self.place.wake_up();
        }
    }

    /// Takes the news out, for who looks at his sockets himself.
    pub(crate) fn forget_news(&self) {
        // Those from before it was taken, too.
        for (_, inbox) in inboxes(self.place, u64::MAX) {
            inbox.news.take_words().for_each(drop);
        }
    }

    /// Rings the bell.
    pub(crate) fn ring(&self) {
        self.place.ring();
    }

    /// Takes back what the bells have rung.
    pub(crate) fn silence(&self) {
        self.bells().for_each(silence);
    }
}

impl Place {
    /// The bit of its slot in the `waiters` of what lies in an arena, and whether another bell than before rings for it; asks for a
    /// slot the first time. `fd` is a socket there.
    fn bit_in(&self, arena: u16, fd: c_int) -> Result<(u64, bool), Errno> {
        let slot = self.slots.get(usize::from(arena)).ok_or(Errno::NFILE)?;
        let bell = self.bell_in(arena)?;
        if slot.load(Ordering::Relaxed) == 0 {
            slot.store(session::waiter_slot(arena, bell, fd)? as u8 + 1, Ordering::Relaxed);
        }
        let rings_anew = arenas::is_segment(arena) && self.arenas.load(Ordering::Acquire) >> arena & 1 == 0;
        let set = self.set.get();
        if rings_anew && set >= 0 {
            enter(set, bell)?;
        }
        self.arenas.fetch_or(1 << arena, Ordering::AcqRel);
        Ok((self.known_bit(arena), rings_anew))
    }

    /// What is rung for news of an arena; makes a segment's the first time.
    fn bell_in(&self, arena: u16) -> Result<c_int, Errno> {
        if !arenas::is_segment(arena) {
            return Ok(self.bell.get());
        }
        let bell = self.peers.get(usize::from(arena)).ok_or(Errno::NFILE)?;
        let there = bell.get();
        if there >= 0 {
            return Ok(there);
        }
        let made = session::hide(doorbell::make()?)?;
        // Another thread may have been faster.
        Ok(bell.replace(-1, made).unwrap_or_else(|theirs| {
            session::close_hidden(made);
            theirs
        }))
    }

    fn bells(&'static self) -> impl Iterator<Item = c_int> + use<> {
        let arenas = self.arenas.load(Ordering::Acquire);
        let of_segments = arenas::places(arenas).map(|arena| &self.peers[usize::from(arena)]);
        let all = core::iter::once(&self.bell).chain(of_segments);
        all.map(Descriptor::get).filter(|&bell| bell >= 0)
    }

    fn ring(&self) {
        doorbell::ring(sys::borrow(self.bell.get()));
    }

    /// Whether a call of this thread had it that a handler has jumped out of, as the one shows whose frame is at `frame`. On an
    /// alternate stack (sigaltstack(2)) that shows nothing.
    fn was_left_by(&self, thread: u32, frame: usize) -> bool {
        let is_below = || frame.checked_sub(self.frame.load(Ordering::Relaxed)).is_some_and(|far| far < NEAR);
        self.thread.load(Ordering::Acquire) == thread
            && is_below()
            && !confining::is_confined()
            && !sys::is_on_alternate_stack()
    }

    /// Whether the thread whose call had it is gone.
    fn is_of_the_dead(&self) -> bool {
        let thread = self.thread.load(Ordering::Acquire);
        thread != 0 && !confining::is_confined() && !sys::is_thread(thread)
    }

    fn wake_up(&'static self) {
        let own = |arena: &u16| self.known_bit(*arena) != SHARED_BIT;
        let all = inboxes(self, self.arenas.load(Ordering::Acquire));
        all.filter(|(arena, _)| own(arena)).for_each(|(_, inbox)| inbox.wake_up());
    }

    /// It is nobody's any more.
    fn end(&'static self) {
        self.wake_up();
        if self.is_sleepers.swap(false, Ordering::Relaxed) {
            SLEEPERS.fetch_sub(1, Ordering::Relaxed);
        }
        if self.set.take() >= 0 {
            // A call has other streams.
            self.forget_names();
        }
        self.leave();
    }

    /// The bit of its slot in an arena; none without a slot.
    fn known_bit(&self, arena: u16) -> u64 {
        let slot = self.slots.get(usize::from(arena)).map_or(0, |slot| slot.load(Ordering::Relaxed));
        slot.checked_sub(1).map_or(0, |slot| 1 << slot)
    }
}

/// A stream as it is used now, in a word: the arena's place, the block, and how often that was given out.
fn key(word: Word, block: &Block) -> u64 {
    let generation = block.generation.load(Ordering::Acquire) << 24 >> 24;
    u64::from(socket::arena(word)) << 58 | u64::from(socket::number(word)) << 40 | generation
}

/// Marks a stream's joint for those of this process' waiters that are marked, by `marks`, at the stream in `arena`. The
/// marks of which that was done.
pub(crate) fn mark_in(fd: c_int, arena: u16, marks: u64, segment: u16, beside: Beside<'static>) -> u64 {
    let mut done = 0;
    let is_it = |word: &Word| socket::kind(*word) == Kind::Stream && socket::arena(*word) == arena;
    let word = table::get(fd).filter(is_it);
    let key = word.and_then(|word| Some(key(word, block_of(word)?)));
    for place in places::busy() {
        let mark = place.known_bit(arena) & marks;
        if mark == SHARED_BIT && key.is_some_and(|key| !place.may_have_named(key)) {
            continue;
        }
        if mark != 0
            && let Ok((bit, has_new_bell)) = place.bit_in(segment, fd)
        {
            beside.watch(bit);
            if has_new_bell && place.set.get() < 0 {
                // Who sleeps on a list of descriptors makes it anew, with this bell.
                place.ring();
            }
            // Who looks a last time before he sleeps has told his other inboxes already.
            inboxes(place, 1 << segment).for_each(|(_, inbox)| _ = inbox.fall_asleep());
            // Other processes' waiters may have the shared slot, too.
            done |= mark & !SHARED_BIT;
        }
    }
    done
}

/// Which of this process' waiters wait for a stream, so that they can be rung when its words are not its own any more.
pub(crate) fn watchers(word: Word) -> Watchers {
    let arena = socket::arena(word);
    Watchers { arena, marks: block_of(word).map_or(0, |block| block.waiters.load(Ordering::SeqCst)) }
}

/// The waiters that were found to wait for a stream.
pub(crate) struct Watchers {
    arena: u16,
    marks: u64,
}

impl Watchers {
    /// Rings their bells, whether they sleep or not. Of those that have no slot of their own all are rung.
    pub(crate) fn ring(&self) {
        let is_one = |place: &&'static Place| place.known_bit(self.arena) & self.marks != 0;
        places::busy().filter(is_one).for_each(Place::ring);
    }
}

/// A stream, by its words alone.
pub(crate) fn end_of(word: Word) -> Option<StreamEnd<'static>> {
    let nobody = Holder::new(0, 0);
    StreamEnd::new(arenas::get(socket::arena(word))?, socket::number(word), nobody)
}

/// Which use of its block a stream is: that is counted up when it is given to another socket. Zero of what is no stream.
pub(crate) fn generation_of(word: Word) -> u64 {
    let is_stream = socket::kind(word) == Kind::Stream;
    is_stream.then(|| block_of(word)).flatten().map_or(0, |block| block.generation.load(Ordering::Acquire))
}

fn block_of(word: Word) -> Option<&'static Block> {
    arenas::get(socket::arena(word))?.block(socket::number(word))
}

/// Takes back what those of the bells have rung that the kernel found to have. One that rings unheard wakes the next sleeper once, in vain.
pub(crate) fn silence_rung(bells: &[pollfd]) {
    bells.iter().filter(|bell| bell.revents != 0).for_each(|bell| silence(bell.fd));
}

/// Takes back what a bell has rung. A confined process may only read it.
fn silence(bell: c_int) {
    let bell = sys::borrow(bell);
    if confining::is_confined() {
        let _ = rustix::io::read(bell, &mut [0_u8; 8]);
    } else {
        doorbell::silence(bell);
    }
}

/// Puts a bell into an epoll descriptor, where it may be already.
fn enter(set: c_int, bell: c_int) -> Result<(), Errno> {
    // By edges, so that nobody has to take back what was rung.
    let event = epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: BELL };
    match sys::epoll_ctl(set, libc::EPOLL_CTL_ADD, bell, event) {
        Err(Errno::EXIST) => Ok(()),
        entered => entered,
    }
}

/// The inboxes of a waiter's slots in some arenas.
fn inboxes(place: &'static Place, arenas: u64) -> impl Iterator<Item = (u16, &'static Inbox)> {
    arenas::places(arenas).filter_map(move |arena| {
        let slot = u32::from(place.slots[usize::from(arena)].load(Ordering::Relaxed)).checked_sub(1)?;
        Some((arena, arenas::get(arena)?.slot(slot)?))
    })
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // One that a fork left behind is nobody's: its descriptor and slots are the parent's.
        if self.is_own() {
            let thread = self.place.thread.swap(0, Ordering::AcqRel);
            if thread != 0 {
                let known = thread::waiters();
                thread::set_waiters(thread::Waiters { held: known.held.saturating_sub(1), ..known });
            }
            self.place.end();
        }
    }
}

/// Where its caller's frame ends.
#[inline(never)]
fn frame() -> usize {
    let here = 0_u8;
    core::hint::black_box(&raw const here).addr()
}

/// A thread's call has taken one. How many are its own by now is counted, where there were others: some may have been given back.
fn count_held(thread: u32) {
    let known = thread::waiters();
    let is_its = |place: &&Place| place.thread.load(Ordering::Acquire) == thread;
    let held = if known.held == 0 { 1 } else { places::all().filter(is_its).count() as u32 };
    thread::set_waiters(thread::Waiters { held, ..known });
}

/// Gives back what calls that do not return had taken. The marks that they have left bring news that nobody waits for.
fn give_back(is_left: impl Fn(&Place) -> bool) {
    for place in places::all() {
        let thread = place.thread.load(Ordering::Acquire);
        // In a handler that came between, too, it is given back once.
        if thread != 0
            && is_left(place)
            && place.thread.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            place.end();
        }
    }
}

/// A bell has another number.
pub(crate) fn moved(from: c_int, to: c_int) {
    places::all().flat_map(Place::all_bells).for_each(|bell| _ = bell.replace(from, to));
}

/// A forked child begins without waiters.
pub(crate) fn forget_parents() {
    SLEEPERS.store(0, Ordering::Relaxed);
    places::forget_parents(session::close_hidden);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_something_sleeps_in_slices_that_grow_to_a_limit() {
        let mut whole = Slices::new(false);
        assert_eq!([None, Some(Duration::MAX)].map(|limit| whole.limit(limit)), [None, Some(Duration::MAX)]);
        whole.begin();
        let slices: Vec<_> = (0..7).map(|_| whole.limit(None).unwrap().as_micros()).collect();
        assert_eq!(slices, [625, 1250, 2500, 5000, 10_000, 10_000, 10_000]);
        assert_eq!(whole.limit(Some(Duration::from_millis(3))), Some(Duration::from_millis(3)));
        whole.begin();
        assert_eq!(whole.limit(None), Some(Slices::LONGEST), "it has begun");
    }
}
