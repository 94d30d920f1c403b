//! Who of the many that hold a socket is inside one of its directions.
//!
//! Threads, and processes after fork(2), share a socket; a direction has one at a time, for the length of a copy and
//! never while he waits for bytes or room. The word names him, so that the daemon can free it when his session has
//! died inside. A signal handler that comes back into the direction that its thread is in is told so.

use core::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// A thread of a session, as owner words name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Holder(u64);

/// Why a direction was not entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// This thread is inside already: a signal handler interrupted it.
    Myself,
    /// Somebody has been inside for a tenth of a second: he is stopped, or died and his session has not been buried yet.
    Other(Holder),
}

/// How often to look again before others get the CPU, and before sleeping.
const LOOKS: u32 = 64;
const YIELDS: u32 = 64;
/// How long to sleep between looks, and how often: a tenth of a second in all.
const NAP: Duration = Duration::from_micros(200);
const NAPS: u32 = 500;

/// Who finds a direction taken, or wakes another program, makes no system calls in this process.
static SPARES_THE_KERNEL: AtomicBool = AtomicBool::new(false);
/// How often who makes none looks on instead.
const LOOKS_ON: u32 = 64;

/// From now on who finds a direction taken, or wakes who is fused with it, makes no system calls: they may be forbidden to this process.
pub fn spare_the_kernel() {
    SPARES_THE_KERNEL.store(true, Ordering::Relaxed);
}

/// Whether this process makes none that it could do without.
#[inline]
pub(crate) fn spares_the_kernel() -> bool {
    SPARES_THE_KERNEL.load(Ordering::Relaxed)
}

impl Holder {
    /// The thread `tid` of the session with this number. Neither is zero.
    pub const fn new(session: u32, tid: u32) -> Self {
        Self((session as u64) << 32 | tid as u64)
    }

    /// Who a word names.
    pub fn of_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// His session.
    pub const fn session(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// His thread.
    pub const fn tid(self) -> u32 {
        self.0 as u32
    }
}

/// A direction, entered; left when this is dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a AtomicU64);

impl<'a> Inside<'a> {
    /// Enters a direction.
    #[inline]
    pub(crate) fn enter(word: &'a AtomicU64, me: Holder) -> Result<Self, Busy> {
        match word.compare_exchange(0, me.0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Self(word)),
            Err(other) => Self::enter_slowly(word, me, other),
        }
    }

    #[cold]
    fn enter_slowly(word: &'a AtomicU64, me: Holder, mut other: u64) -> Result<Self, Busy> {
        for look in 0..LOOKS + YIELDS + NAPS {
            if other == me.0 {
                return Err(Busy::Myself);
            }
            match look {
                0..LOOKS => core::hint::spin_loop(),
                _ if spares_the_kernel() => {
                    (0..LOOKS_ON).for_each(|_| core::hint::spin_loop());
                }
                LOOKS.. if look < LOOKS + YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
            match word.compare_exchange(0, me.0, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Self(word)),
                Err(now) => other = now,
            }
        }
        Err(Busy::Other(Holder(other)))
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Daemon: whether a word names somebody of this session.
pub(crate) fn is_inside(word: &AtomicU64, session: u32) -> bool {
    Holder::of_word(word.load(Ordering::Acquire)).is_some_and(|holder| holder.session() == session)
}

/// Daemon: frees a word whose holder's session has died. Whether it was his.
pub(crate) fn bury(word: &AtomicU64, session: u32) -> bool {
    let now = word.load(Ordering::Acquire);
    Holder::of_word(now).is_some_and(|holder| holder.session() == session)
        && word.compare_exchange(now, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_is_inside_and_a_handler_of_his_is_told() {
        let (word, me, other) = (AtomicU64::new(0), Holder::new(1, 7), Holder::new(1, 8));
        let inside = Inside::enter(&word, me).unwrap();
        assert_eq!(Holder::of_word(word.load(Ordering::Relaxed)), Some(me));
        assert_eq!(Inside::enter(&word, me).unwrap_err(), Busy::Myself);
        assert_eq!(Inside::enter(&word, other).unwrap_err(), Busy::Other(me));
        drop(inside);
        assert!(Inside::enter(&word, other).is_ok());
    }

    #[test]
    fn the_dead_are_buried_by_their_session_only() {
        let word = AtomicU64::new(0);
        let inside = Inside::enter(&word, Holder::new(3, 9)).unwrap();
        core::mem::forget(inside);
        assert!(!bury(&word, 4));
        assert!(bury(&word, 3));
        assert!(!bury(&word, 3), "nobody is inside");
    }

    #[test]
    fn many_threads_take_turns() {
        // Read and written back apart: two inside would lose counts.
        let (word, seen) = (AtomicU64::new(0), core::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            for tid in 1..=3 {
                let (word, seen) = (&word, &seen);
                scope.spawn(move || {
                    for _ in 0..5000 {
                        let _inside = loop {
                            if let Ok(inside) = Inside::enter(word, Holder::new(1, tid)) {
                                break inside;
                            }
                        };
                        let before = seen.load(Ordering::Relaxed);
                        seen.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(seen.into_inner(), 15_000);
    }
}
