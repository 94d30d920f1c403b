//! Threads that are cancelled (pthread_cancel(3)). Libc's calls that wait are points where that happens, at their begin and while they wait; so
//! are the hooks that stand in front of them (`real.rs`). Libc wakes none that waits elsewhere than in its own calls; so `pthread_cancel` has a hook, too: it
//! notes whom it was called for, and interrupts who sleeps in a call of ours. The call then ends as by a signal, and its hook, in whose frame
//! nothing is left to be done, lets libc end the thread.
//!
//! Who is cancelled between his last look and the kernel would sleep on, so whoever sleeps is noted before he looks, and interrupted again
//! until he is not there any more.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use libc::pthread_t;

use crate::{sys, thread};

/// Whether any thread was ever cancelled.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Who was cancelled last, by the kernel's numbers, and where the next one is put.
static WANTED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Who sleeps in a call of ours. One who finds no place is not interrupted.
static ASLEEP: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];
const PROBES: usize = 8;

/// How often who sleeps is interrupted, some microseconds apart: as a rule he is gone after the first time.
const CALLS: u32 = 200;

fn places(thread: u32) -> impl Iterator<Item = &'static AtomicU32> {
    let first = thread as usize * PROBES;
    (0..PROBES).map(move |nth| &ASLEEP[(first + nth) % ASLEEP.len()])
}

/// A point where a thread may be cancelled: it may not return. Nothing may be left to be done by the frame that calls it.
#[inline(always)]
pub(crate) fn point() {
    if IS_USED.load(Ordering::Relaxed) {
        sys::test_cancel();
    }
}

/// The same behind a call that has ended as by a signal.
#[cold]
pub(crate) fn point_behind() {
    if IS_USED.load(Ordering::Relaxed) {
        sys::test_cancel();
        // It was another thread with this number, which has ended otherwise.
        forget(thread::kernel_number());
    }
}

/// Cancels a thread by `cancel`, libc's function.
pub(crate) fn cancel(thread: pthread_t, cancel: impl FnOnce() -> c_int) -> c_int {
    let number = sys::number_of(thread);
    IS_USED.store(true, Ordering::SeqCst);
    if let Some(number) = number {
        WANTED[NEXT.fetch_add(1, Ordering::Relaxed) % WANTED.len()].store(number, Ordering::SeqCst);
    }
    let answer = cancel();
    let Some(number) = number.filter(|_| answer == 0) else { return answer };
    let is_asleep = || places(number).any(|place| place.load(Ordering::SeqCst) == number);
    for _ in 0..CALLS {
        if !is_asleep() {
            break;
        }
        sys::interrupt(number);
        sys::nap();
    }
    answer
}

fn forget(thread: u32) {
    for wanted in &WANTED {
        let _ = wanted.compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whether the calling thread is to be cancelled, and lets that be.
pub(crate) fn is_wanted() -> bool {
    let is_named = || {
        let own = thread::kernel_number();
        WANTED.iter().any(|wanted| wanted.load(Ordering::SeqCst) == own)
    };
    IS_USED.load(Ordering::SeqCst) && is_named() && sys::may_be_cancelled()
}

/// Sleeps, unless the thread is to be cancelled: then the answer is `interrupted`, and it is cancelled when its call has ended.
pub(crate) fn sleeping<T>(interrupted: T, sleep: impl FnOnce() -> T) -> T {
    let _asleep = Asleep::begin();
    if is_wanted() { interrupted } else { sleep() }
}

/// Who is noted as sleeping until this is dropped.
struct Asleep {
    place: Option<&'static AtomicU32>,
    /// It may be cancelled at any moment otherwise, in the middle of a call of ours as well.
    at_once: bool,
}

impl Asleep {
    fn begin() -> Self {
        let own = thread::kernel_number();
        // A call that a handler has jumped out of may have left its own.
        let enter = |place: &&AtomicU32| {
            let was = place.compare_exchange(0, own, Ordering::SeqCst, Ordering::Relaxed);
            was.is_ok() || was == Err(own)
        };
        let at_once = sys::set_cancelled_at_once(false);
        // Who does not let himself be cancelled is not to be interrupted either.
        let place = if sys::may_be_cancelled() { places(own).find(enter) } else { None };
        Self { place, at_once }
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.store(0, Ordering::SeqCst);
        }
        // Libc would do it at once, and there is something left to be done.
        if self.at_once && !is_wanted() {
            sys::set_cancelled_at_once(true);
        }
    }
}

/// The threads of a forked child's parent are not its own.
pub(crate) fn forget_parents() {
    ASLEEP.iter().chain(&WANTED).for_each(|place| place.store(0, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_is_noted_and_who_was_cancelled_does_not_sleep() {
        let own = thread::kernel_number();
        let is_noted = || places(own).any(|place| place.load(Ordering::SeqCst) == own);
        assert!(sleeping(false, is_noted) && !is_noted());
        IS_USED.store(true, Ordering::SeqCst);
        WANTED[9].store(own, Ordering::SeqCst);
        assert!(is_wanted() && !sleeping(false, || true));
        assert!(!std::thread::spawn(is_wanted).join().unwrap());
        // Nobody has cancelled it.
        point();
        point_behind();
        assert!(!is_wanted() && sleeping(false, || true));
    }
}
