//! The places of waiters: what each keeps from one call to the next, where they are, and whose is which.
//!
//! There are as many as are needed at a time. A thread finds the place of its last call again, where its slots are and what it has named:
//! else each of a thousand threads would name its streams anew for each place that it comes to. Of the first few anybody takes any,
//! so that a pool of threads of which few wait at a time has few. A place whose thread has ended is found when others run out.
//! Owned by `waiter.rs`.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arenas;
use crate::memory::Groups;
use crate::{confining, sys, thread};

/// So many are made at a time.
const GROUP: usize = 64;
/// More threads and sets than have descriptors. Who finds no place looks at his sockets now and then.
const GROUPS: usize = 1024;
/// Of the first ones anybody takes any: about as many as there are slots of one's own in an arena.
const ANYBODYS: usize = 48;
/// Streams that a waiter remembers to have named for a shared slot.
const NAMED: usize = 64;
/// Arenas in which a waiter can have slots.
const ARENAS: usize = arenas::ARENAS_MAX;

const FREE: u32 = 0;
const BUSY: u32 = 1;

/// A descriptor, or none. Zeroed memory says none.
pub(super) struct Descriptor(AtomicI32);

impl Descriptor {
    /// It; negative if there is none.
    pub(super) fn get(&self) -> c_int {
        self.0.load(Ordering::Acquire) - 1
    }

    pub(super) fn put(&self, fd: c_int) {
        self.0.store(fd + 1, Ordering::Release);
    }

    pub(super) fn take(&self) -> c_int {
        self.0.swap(0, Ordering::AcqRel) - 1
    }

    /// Puts it in place of another, or of none. Fails with what is there instead.
    pub(super) fn replace(&self, from: c_int, to: c_int) -> Result<c_int, c_int> {
        let replaced = self.0.compare_exchange(from + 1, to + 1, Ordering::AcqRel, Ordering::Acquire);
        replaced.map(|_| to).map_err(|theirs| theirs - 1)
    }
}

/// What a waiter keeps, whoever has it. Zeros are a new one.
pub(crate) struct Place {
    state: AtomicU32,
    /// The thread that finds it again, by the kernel's number; zero is none, and then it is anybody's while it is free.
    home: AtomicU32,
    /// The thread whose call has it, by the kernel's number; zero is none, as of a set's.
    pub(super) thread: AtomicU32,
    /// Where that call's frame lies.
    pub(super) frame: AtomicUsize,
    /// Whether it counts among those of calls on single sockets.
    pub(super) is_sleepers: AtomicBool,
    /// What the daemon rings.
    pub(super) bell: Descriptor,
    /// What the program at the other end of a segment rings, by the segment's place.
    pub(super) peers: [Descriptor; ARENAS],
    /// The epoll descriptor in which its bells are, if it is a set's.
    pub(super) set: Descriptor,
    /// One above the slot in each arena; zero is none.
    pub(super) slots: [AtomicU8; ARENAS],
    /// The arenas whose inbox its owner looks into, a bit each.
    pub(super) arenas: AtomicU64,
    /// The first streams that it has named for a shared slot since it has begun anew, as `waiter.rs` has them, and how many there were.
    named: [AtomicU64; NAMED],
    names: AtomicUsize,
    /// The arenas in which it has named any since, a bit each.
    named_in: AtomicU64,
}

static PLACES: Groups<Place, GROUPS, GROUP> = Groups::new();

/// One above the last of them that was ever taken.
static BOUND: AtomicUsize = AtomicUsize::new(0);

/// How many below that are free and no thread's, if not somewhat more.
static LOOSE: AtomicUsize = AtomicUsize::new(0);

/// All that ever were taken, with their numbers.
fn numbered() -> impl Iterator<Item = (usize, &'static Place)> {
    let bound = BOUND.load(Ordering::Acquire);
    let groups = (0..bound.div_ceil(GROUP)).filter_map(|group| PLACES.get(group));
    groups.flatten().take(bound).enumerate()
}

/// All that ever were taken.
pub(super) fn all() -> impl Iterator<Item = &'static Place> {
    numbered().map(|(_, place)| place)
}

/// Those that somebody has.
pub(super) fn busy() -> impl Iterator<Item = &'static Place> {
    all().filter(|place| place.state.load(Ordering::Acquire) == BUSY)
}

fn at(number: usize) -> Option<&'static Place> {
    PLACES.get(number / GROUP)?.get(number % GROUP)
}

/// Takes one for a thread's call, or with zero for a set, and its number. It may have no bell as yet.
pub(super) fn take(thread: u32) -> Option<(usize, &'static Place)> {
    let own = own(thread);
    if let Some((number, place)) = own
        && place.enter()
    {
        return Some((number, place));
    }
    let is_anybodys = |number: usize, place: &Place| {
        // Who is confined has no more than there are.
        number < ANYBODYS || place.home.load(Ordering::Relaxed) == 0 || confining::is_confined()
    };
    let most =
        if LOOSE.load(Ordering::Acquire) > 0 || confining::is_confined() { usize::MAX } else { ANYBODYS };
    let free = |most| {
        let mut some = numbered().take(most);
        some.find(|&(number, place)| is_anybodys(number, place) && place.enter())
    };
    let (number, place) = free(most).or_else(|| {
        // Some may be of the dead.
        let is_full = BOUND.load(Ordering::Acquire).is_multiple_of(GROUP);
        if is_full && loosen() { free(usize::MAX) } else { None }.or_else(new)
    })?;
    // One that a handler takes in the middle of its thread's call is nobody's afterwards.
    let is_home = thread != 0 && own.is_none();
    place.home.store(if is_home { thread } else { 0 }, Ordering::Relaxed);
    if is_home {
        thread::set_waiters(thread::Waiters { home: number as u32 + 1, ..thread::waiters() });
    }
    Some((number, place))
}

/// Takes any that has a bell, where none can be made.
pub(super) fn take_made() -> Option<(usize, &'static Place)> {
    numbered().find(|(_, place)| place.bell.get() >= 0 && place.enter())
}

/// Takes one without a bell.
pub(super) fn take_unmade() -> Option<&'static Place> {
    let unmade = numbered().find(|(_, place)| place.bell.get() < 0 && place.enter());
    unmade.or_else(new).map(|(_, place)| place)
}

/// The place that a thread finds again.
fn own(thread: u32) -> Option<(usize, &'static Place)> {
    let number = thread::waiters().home.checked_sub(1).filter(|_| thread != 0)? as usize;
    let place = at(number)?;
    (place.home.load(Ordering::Relaxed) == thread).then_some((number, place))
}

/// Takes one that nobody had before.
fn new() -> Option<(usize, &'static Place)> {
    loop {
        let number = BOUND.load(Ordering::Acquire);
        let place = PLACES.make(number / GROUP).ok()?.get(number % GROUP)?;
        // From when others see it on, one of them may be first.
        LOOSE.fetch_add(1, Ordering::AcqRel);
        if BOUND.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            LOOSE.fetch_sub(1, Ordering::AcqRel);
        } else if place.enter() {
            return Some((number, place));
        }
    }
}

/// Makes those places anybody's whose threads have ended. Whether there are any such.
fn loosen() -> bool {
    if confining::is_confined() {
        return false;
    }
    super::give_back(Place::is_of_the_dead);
    for place in all() {
        let home = place.home.load(Ordering::Relaxed);
        if home != 0 && !sys::is_thread(home) && place.enter() {
            place.home.store(0, Ordering::Relaxed);
            place.leave();
        }
    }
    LOOSE.load(Ordering::Acquire) > 0
}

/// A forked child begins without; what it has of its parent's descriptors goes.
pub(super) fn forget_parents(mut close: impl FnMut(c_int)) {
    for place in all() {
        for bell in place.all_bells().map(Descriptor::take).filter(|&bell| bell >= 0) {
            close(bell);
        }
        place.set.take();
        place.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        place.forget_names();
        place.home.store(0, Ordering::Relaxed);
        place.thread.store(0, Ordering::Relaxed);
        place.is_sleepers.store(false, Ordering::Relaxed);
        place.state.store(FREE, Ordering::Relaxed);
    }
    LOOSE.store(0, Ordering::Relaxed);
    BOUND.store(0, Ordering::Relaxed);
    thread::set_waiters(thread::Waiters::default());
}

impl Place {
    /// Whether it was free and is the caller's now.
    fn enter(&self) -> bool {
        let has = self.state.load(Ordering::Relaxed) == FREE
            && self.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if has && self.home.load(Ordering::Relaxed) == 0 {
            LOOSE.fetch_sub(1, Ordering::AcqRel);
        }
        has
    }

    /// It is free again.
    pub(super) fn leave(&self) {
        if self.home.load(Ordering::Relaxed) == 0 {
            LOOSE.fetch_add(1, Ordering::AcqRel);
        }
        self.state.store(FREE, Ordering::Release);
    }

    /// Its bells, where it has them.
    pub(super) fn all_bells(&self) -> impl Iterator<Item = &Descriptor> {
        core::iter::once(&self.bell).chain(&self.peers)
    }

    /// Whether the daemon knows that it is to be rung for a stream, by its key.
    pub(super) fn has_named(&self, key: u64) -> bool {
        let count = self.names.load(Ordering::Acquire);
        self.named.iter().take(count).any(|named| named.load(Ordering::Relaxed) == key)
    }

    /// Whether it may be one that is to be rung for a stream.
    pub(super) fn may_have_named(&self, key: u64) -> bool {
        self.names.load(Ordering::Acquire) > NAMED || self.has_named(key)
    }

    /// Whether it remembers as many names as it can.
    pub(super) fn is_full_of_names(&self) -> bool {
        self.names.load(Ordering::Relaxed) >= NAMED
    }

    /// Whether those are the first ones in an arena.
    pub(super) fn begins_in(&self, arena: u16) -> bool {
        self.named_in.load(Ordering::Relaxed) >> arena & 1 == 0
    }

    /// It has named a stream in an arena.
    pub(super) fn note_name(&self, arena: u16, key: u64) {
        let count = self.names.load(Ordering::Relaxed);
        if let Some(place) = self.named.get(count) {
            place.store(key, Ordering::Relaxed);
        }
        self.names.store(count + 1, Ordering::Release);
        self.named_in.fetch_or(1 << arena, Ordering::Relaxed);
    }

    /// It waits for none of those any more. The daemon hears of it with the next one.
    pub(super) fn forget_names(&self) {
        self.named_in.store(0, Ordering::Relaxed);
        self.names.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests of this process take places, too, so what is said here is of those that this one has.
    #[test]
    fn there_are_as_many_as_are_needed_and_a_thread_finds_its_own_again() {
        let taken: Vec<_> = (0..3000).map(|_| take(0).unwrap()).collect();
        let mut numbers: Vec<_> = taken.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 3000);
        let (own, rest) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let thread = thread::kernel_number();
                let (number, place) = take(thread).unwrap();
                // In the middle of its call a handler takes another.
                let (within, inner) = take(thread).unwrap();
                assert_ne!(number, within);
                inner.leave();
                place.leave();
                assert_eq!(take(thread).unwrap().0, number);
                place.leave();
                assert!(inner.home.load(Ordering::Relaxed) == 0);
                (number, within)
            });
            other.join().unwrap()
        });
        assert!(!numbers.contains(&own) && !numbers.contains(&rest));
        let begun = BOUND.load(Ordering::Relaxed);
        taken.iter().for_each(|(_, place)| place.leave());
        let again: Vec<_> = (0..2900).map(|_| take(0).unwrap()).collect();
        assert!(BOUND.load(Ordering::Relaxed) < begun + 64, "those that are free are taken first");
        again.iter().for_each(|(_, place)| place.leave());
    }

    #[test]
    fn places_of_threads_that_have_ended_are_found_again() {
        for _ in 0..2000 {
            let work = || take(thread::kernel_number()).unwrap().1.leave();
            std::thread::spawn(work).join().unwrap();
        }
        assert!(BOUND.load(Ordering::Relaxed) < 3000 + 64 * 4);
    }

    #[test]
    fn names_are_remembered_until_there_are_too_many() {
        let (_, place) = take(0).unwrap();
        assert!(place.begins_in(3) && !place.has_named(7));
        place.note_name(3, 7);
        assert!(place.has_named(7) && !place.may_have_named(8) && !place.begins_in(3) && place.begins_in(4));
        (1..NAMED as u64).for_each(|key| place.note_name(3, 100 + key));
        assert!(place.is_full_of_names() && !place.may_have_named(8));
        place.note_name(3, 9);
        assert!(place.may_have_named(8) && !place.has_named(9));
        place.forget_names();
        assert!(!place.may_have_named(7) && place.begins_in(3));
        place.leave();
    }
}
