//! Which descriptors of this process are our sockets: one word for each possible number.
//!
//! The words lie in zeroed memory that costs nothing where no descriptor was used. Reading one is a load, so a
//! descriptor that is not ours pays for that and no more. There is no object behind a word: whatever must be
//! shared, between the copies of a descriptor or between processes, is in the arena or with the daemon, so nothing
//! is counted here and nothing can be freed under a reader.
//!
//! A word is taken out *before* the kernel closes its descriptor, and put in before the number is returned to the
//! program, so that a number which another thread is given meanwhile is never mistaken for the old socket.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::socket;

/// As many as `fs.nr_open` allows a process by default. Higher numbers are refused for our sockets.
pub(crate) const DESCRIPTORS: usize = 1 << 20;

static WORDS: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

/// One above the highest number that was ever ours, so that looking through all of them ends early; and the same without the library's own
/// descriptors, which lie at the upper end of the program's range.
static BOUND: AtomicU64 = AtomicU64::new(0);
static PROGRAMS_BOUND: AtomicU64 = AtomicU64::new(0);

/// What stands behind a descriptor of ours, as one word. Copies of a descriptor have equal words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(u64);

impl Word {
    /// A word that is not zero; zero is a descriptor that is not ours.
    pub(crate) const fn new(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

#[inline]
fn word_of(fd: c_int) -> Option<&'static AtomicU64> {
    // A negative number is beyond the end as an unsigned one.
    WORDS.get(fd as u32 as usize)
}

/// What stands behind `fd`, if it is ours.
#[inline]
pub(crate) fn get(fd: c_int) -> Option<Word> {
    Word::new(word_of(fd)?.load(Ordering::Acquire))
}

/// Whether `fd` has a place here.
pub(crate) fn has_room_for(fd: c_int) -> bool {
    word_of(fd).is_some()
}

/// From now on `fd` is ours.
pub(crate) fn put(fd: c_int, word: Word) {
    if let Some(place) = word_of(fd) {
        BOUND.fetch_max(fd as u64 + 1, Ordering::Relaxed);
        if !socket::is_private(word) {
            PROGRAMS_BOUND.fetch_max(fd as u64 + 1, Ordering::Relaxed);
        }
        place.store(word.bits(), Ordering::Release);
    }
}

/// From now on `fd` is not ours. Returns what it was.
pub(crate) fn take(fd: c_int) -> Option<Word> {
    let place = word_of(fd)?;
    // Most descriptors are not ours, and a load leaves their page untouched.
    Word::new(place.load(Ordering::Relaxed)).and_then(|_| Word::new(place.swap(0, Ordering::AcqRel)))
}

/// The same if it is this. Whether it was.
pub(crate) fn take_as(fd: c_int, word: Word) -> bool {
    let swap =
        |place: &AtomicU64| place.compare_exchange(word.bits(), 0, Ordering::AcqRel, Ordering::Relaxed);
    word_of(fd).map(swap).is_some_and(|taken| taken.is_ok())
}

/// The descriptor with the word `from` becomes `to`: the socket behind it has changed its state. Whether it was that still: who closed or
/// replaced it meanwhile was faster.
pub(crate) fn replace_one(fd: c_int, from: Word, to: Word) -> bool {
    word_of(fd).is_some_and(|place| {
        place.compare_exchange(from.bits(), to.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// The same of every copy of the descriptor. Whether there was any.
pub(crate) fn replace(from: Word, to: Word) -> bool {
    programs().filter(|&fd| replace_one(fd, from, to)).count() > 0
}

/// The program's sockets and sets, lowest first. Looking for them does not go through the whole range of descriptors.
pub(crate) fn programs() -> impl Iterator<Item = c_int> {
    let is_programs = |fd: &c_int| get(*fd).is_some_and(|word| !socket::is_private(word));
    (0..PROGRAMS_BOUND.load(Ordering::Relaxed) as c_int).filter(is_programs)
}

/// The descriptors that are ours, from a number on, the library's own among them.
pub(crate) fn ours_from(first: c_int) -> impl Iterator<Item = c_int> {
    let bound = BOUND.load(Ordering::Relaxed) as c_int;
    (first..bound).filter(|&fd| get(fd).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The table is one for the process, so each test has numbers of its own.

    #[test]
    fn numbers_outside_the_table_are_nobodys() {
        for fd in [-1, c_int::MIN, DESCRIPTORS as c_int, c_int::MAX] {
            put(fd, Word(7));
            assert_eq!(get(fd), None);
            assert_eq!(take(fd), None);
            assert!(!has_room_for(fd));
        }
    }

    #[test]
    fn a_taken_word_is_gone_once() {
        put(900_001, Word(5));
        assert_eq!(get(900_001), Some(Word(5)));
        assert_eq!(take(900_001), Some(Word(5)));
        assert_eq!((take(900_001), get(900_001)), (None, None));
        put(900_001, Word(6));
        assert_eq!([5, 6, 6].map(|bits| take_as(900_001, Word(bits))), [false, true, false]);
    }

    #[test]
    fn all_copies_change_together_and_others_do_not() {
        // Words that are no socket's, as other tests of this process have some.
        let [from, other, to] = [1, 2, 3].map(|nth| Word(u64::MAX - nth));
        for (fd, word) in [(900_010, from), (900_011, other), (900_012, from)] {
            put(fd, word);
        }
        assert!(replace(from, to) && !replace(from, to));
        assert_eq!([900_010, 900_011, 900_012].map(get), [Some(to), Some(other), Some(to)]);
        let mine = programs().filter(|fd| (900_010..=900_012).contains(fd)).count();
        assert_eq!(mine, 3);
    }

    #[test]
    fn nobody_looks_for_the_programs_up_to_the_librarys_own() {
        let own = DESCRIPTORS as c_int - 1;
        put(own, socket::private());
        assert!(PROGRAMS_BOUND.load(Ordering::Relaxed) <= own as u64);
        assert_eq!(ours_from(own).collect::<Vec<_>>(), [own]);
        put(900_020, socket::private());
        put(900_021, socket::epoll(7));
        let near = |fd: &c_int| (900_020..=900_021).contains(fd);
        assert_eq!(programs().filter(near).collect::<Vec<_>>(), [900_021]);
    }
}
