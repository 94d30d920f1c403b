//! The doorbells of peers' waiters, for each of which the daemon is asked once, and that are closed when their waiters are gone.
//!
//! A waiter is the slot that it has in a segment, and how often that was given out (`Inbox::owners`). Both are words that the peer's
//! program can write, so what questions come of them is limited: so many at once ([`AT_ONCE`]), and few a second from then on
//! ([`Questions`]). Whoever is not rung from here is told by the lane, which knows all waiters, so nobody's wake-up hangs on an answer.
//! Owned by `fused.rs`.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use firelane_shm::doorbell;
use firelane_shm::layout::{SLOT_SHARED, SLOTS};
use rustix::io::Errno;

use crate::{arenas, confining, process, session, sys, wait};

/// So many questions about a segment are asked at once: one for each of its waiters.
const AT_ONCE: u64 = SLOTS as u64;
/// In so many milliseconds there may be another one. Processes that come and go wait by the lane's bell when there are more of them.
const PAUSE: u64 = 100;

/// As many bells a process has at a time, each of which is a descriptor. Waiters beyond are told by the lane.
const MOST: usize = 128;

/// An owner that no slot has had as yet.
const NOBODY: u32 = u32::MAX;
/// That a slot's owner is known to have no bell, in place of one more than its number.
const NONE: u32 = u32::MAX;

/// The bells of one segment's waiters, a word each.
struct Bells {
    /// Above, which owner of the slot it is; below, one more than the descriptor's number, or [`NONE`]. Zero is not known.
    words: [AtomicU64; SLOTS as usize],
    questions: Questions,
}

static BELLS: [Bells; arenas::ARENAS_MAX] = [const { Bells::new() }; arenas::ARENAS_MAX];

/// How many questions were asked lately: until when, in milliseconds, those of [`AT_ONCE`] are paid for.
struct Questions(AtomicU64);

impl Questions {
    /// Whether there may be another one now.
    fn ask(&self, now: u64) -> bool {
        let next = |until: u64| until.max(now).saturating_add(PAUSE);
        let may = |until: &u64| *until <= now.saturating_add(AT_ONCE * PAUSE);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| Some(next(until)).filter(may))
            .is_ok()
    }
}

/// Rings a waiter of the peer's. Whether that could be done from here: those who share a slot are known to the daemon alone,
/// and a confined process rings nobody but lanes.
pub(super) fn ring(segment: u16, number: u64, slot: u32, owner: u32) -> bool {
    if slot == SLOT_SHARED || confining::is_confined() {
        return false;
    }
    let Some(bells) = BELLS.get(usize::from(segment)) else { return false };
    let mut has_asked = false;
    let asks = || {
        has_asked = true;
        if count() >= MOST {
            return Err(Errno::MFILE);
        }
        session::hide(session::bell(number, slot)?)
    };
    let found = bells.find(slot, owner, now, asks, session::close_hidden);
    found.iter().for_each(|&fd| doorbell::ring(sys::borrow(fd)));
    if has_asked {
        tidy_all();
    }
    found.is_some()
}

/// Closes the bells of a segment whose waiters are gone.
pub(super) fn tidy(segment: u16) {
    // Who only borrows this memory has descriptors of his own.
    if confining::is_confined() || process::is_borrowed() {
        return;
    }
    let (bells, memory) = (BELLS.get(usize::from(segment)), arenas::get(segment));
    let (Some(bells), Some(memory)) = (bells, memory) else { return };
    let owner = |slot| match arenas::is_buried(segment) {
        // Nobody rings those of a daemon that is gone.
        true => NOBODY,
        false => memory.slot(slot).map_or(0, |inbox| inbox.owners.load(Ordering::Acquire)),
    };
    bells.forget_those_gone(owner, session::close_hidden);
}

/// The same of all segments.
#[cold]
pub(super) fn tidy_all() {
    (0..arenas::ARENAS_MAX as u16).filter(|&place| arenas::is_segment(place)).for_each(tidy);
}

/// How many there are, of all segments.
fn count() -> usize {
    let words = BELLS.iter().flat_map(|bells| &bells.words);
    words.filter(|word| bell_of(word.load(Ordering::Relaxed)).is_some()).count()
}

/// A bell has another number.
pub(crate) fn moved(from: c_int, to: c_int) {
    for word in BELLS.iter().flat_map(|bells| &bells.words) {
        let known = word.load(Ordering::Acquire);
        if bell_of(known) == Some(from) {
            let _ =
                word.compare_exchange(known, with(owner_of(known), to), Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

fn now() -> u64 {
    wait::coarsely().as_millis() as u64
}

const fn owner_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The bell of a word that has one.
fn bell_of(word: u64) -> Option<c_int> {
    let below = word as u32;
    if below == NONE { None } else { below.checked_sub(1).map(u32::cast_signed) }
}

fn with(owner: u32, bell: c_int) -> u64 {
    u64::from(owner) << 32 | u64::from(bell.unsigned_abs() + 1)
}

impl Bells {
    const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; SLOTS as usize], questions: Questions(AtomicU64::new(0)) }
    }

    /// The bell of a slot's owner; who is not known is asked for, unless there were too many questions by now.
    fn find(
        &self,
        slot: u32,
        owner: u32,
        now: impl FnOnce() -> u64,
        asks: impl FnOnce() -> Result<c_int, Errno>,
        close: impl Fn(c_int),
    ) -> Option<c_int> {
        let word = self.words.get(slot as usize)?;
        let known = word.load(Ordering::Acquire);
        if owner_of(known) == owner && known as u32 != 0 {
            return bell_of(known);
        }
        if !self.questions.ask(now()) {
            return None;
        }
        fetch(word, known, owner, asks, close)
    }

    /// Closes those of which `owner` says that another has the slot by now, or nobody.
    fn forget_those_gone(&self, owner: impl Fn(u32) -> u32, close: impl Fn(c_int)) {
        for (slot, word) in (0..).zip(&self.words) {
            let known = word.load(Ordering::Acquire);
            // Who has read the number a moment ago rings what is none, or another's bell, in vain: a ring does nothing else.
            if let Some(bell) = bell_of(known)
                && owner(slot) != owner_of(known)
                && word.compare_exchange(known, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                close(bell);
            }
        }
    }
}

/// Asks for the bell of an owner, where another was known or none.
#[cold]
fn fetch(
    word: &AtomicU64,
    known: u64,
    owner: u32,
    asks: impl FnOnce() -> Result<c_int, Errno>,
    close: impl Fn(c_int),
) -> Option<c_int> {
    let new = match asks() {
        Ok(bell) => with(owner, bell),
        // He is gone, and who comes after him is another owner.
        Err(Errno::NOENT) => u64::from(owner) << 32 | u64::from(NONE),
        // Descriptors have run out, say: in a while there may be some.
        Err(_) => return None,
    };
    match word.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            bell_of(known).into_iter().for_each(close);
            bell_of(new)
        }
        // Another thread was faster, whose answer is as good.
        Err(theirs) => {
            bell_of(new).into_iter().for_each(close);
            bell_of(theirs)
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};

    use super::*;

    /// Somebody who asks the daemon, and what he has closed.
    #[derive(Default)]
    struct Asker {
        asked: Cell<u32>,
        closed: RefCell<Vec<c_int>>,
    }

    impl Asker {
        fn find(
            &self,
            bells: &Bells,
            (slot, owner): (u32, u32),
            now: u64,
            answer: Result<c_int, Errno>,
        ) -> Option<c_int> {
            let asks = || {
                self.asked.set(self.asked.get() + 1);
                answer
            };
            bells.find(slot, owner, || now, asks, |fd| self.closed.borrow_mut().push(fd))
        }
    }

    #[test]
    fn a_bell_is_asked_for_once_and_so_is_one_that_is_none() {
        let (bells, asker) = (Bells::new(), Asker::default());
        assert!((0..9).all(|_| asker.find(&bells, (3, 1), 0, Ok(0)) == Some(0)));
        assert!((0..9).all(|_| asker.find(&bells, (4, 1), 0, Err(Errno::NOENT)).is_none()));
        assert_eq!(asker.asked.get(), 2);
        // The next owner is another one.
        assert_eq!(asker.find(&bells, (3, 2), 0, Ok(8)), Some(8));
        assert_eq!(asker.find(&bells, (4, 2), 0, Ok(9)), Some(9));
        assert_eq!((asker.asked.get(), asker.closed.take()), (4, vec![0]));
        // What another moment may have is asked for again.
        assert_eq!(asker.find(&bells, (5, 1), 0, Err(Errno::MFILE)), None);
        assert_eq!(asker.find(&bells, (5, 1), 0, Ok(10)), Some(10));
        assert_eq!(asker.find(&bells, (SLOTS, 1), 0, Ok(11)), None);
    }

    #[test]
    fn whatever_a_peer_says_of_its_waiters_questions_are_few() {
        let (bells, asker) = (Bells::new(), Asker::default());
        for now in 0..10_000 {
            for slot in 0..SLOTS {
                let answer = if slot % 2 == 0 { Err(Errno::NOENT) } else { Ok(7) };
                asker.find(&bells, (slot, now), now.into(), answer);
            }
        }
        assert_eq!(u64::from(asker.asked.get()), AT_ONCE + 9_999 / PAUSE);
        // Another segment has its own, and who has asked for nothing for a while may ask as often as at first.
        let at = 10_000 + AT_ONCE * PAUSE;
        assert!((0..SLOTS).all(|slot| asker.find(&bells, (slot, 1 << 20), at, Ok(8)) == Some(8)));
        assert_eq!(asker.find(&Bells::new(), (0, 1), at, Ok(9)), Some(9));
    }

    #[test]
    fn bells_of_who_is_gone_are_closed() {
        let (bells, asker) = (Bells::new(), Asker::default());
        for slot in 0..4 {
            asker.find(&bells, (slot, 1), 0, Ok(20 + slot.cast_signed()));
        }
        asker.find(&bells, (4, 1), 0, Err(Errno::NOENT));
        let mut closed = RefCell::new(Vec::new());
        let close = |fd| closed.borrow_mut().push(fd);
        bells.forget_those_gone(|slot| if slot % 2 == 0 { 1 } else { 2 }, close);
        assert_eq!(closed.get_mut().as_slice(), [21, 23]);
        assert_eq!(asker.find(&bells, (0, 1), 0, Ok(30)), Some(20));
        assert_eq!(asker.find(&bells, (1, 2), 0, Ok(31)), Some(31));
    }
}
