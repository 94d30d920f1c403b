//! A lock for what a process keeps beside its sockets: its session, and its epoll sets.
//!
//! `fork` copies memory as it is, so a lock that another thread held is held for ever in the child. This one names the
//! process that holds it: a child that finds its parent's name takes the lock over, and is told so, because what
//! it guards may be half changed. It names the thread, too: a signal handler never waits for the call that it
//! interrupted. Either signals are held back meanwhile ([`Lock::take`]), or, where two system calls would cost too much,
//! the handler finds its own thread inside and goes without ([`Lock::enter`]).
//!
//! Who finds it held sleeps until it is released: he counts himself before he looks a last time, and who releases it looks at the
//! count afterwards and wakes one. A child may find its parent's threads counted, and wakes nobody then.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use crate::sys::Signals;
use crate::{process, thread};

/// How often to look again at once, before one sleeps.
const LOOKS: u32 = 100;

/// A value with one holder at a time.
pub(crate) struct Lock<T> {
    /// The process that holds it, and its thread below; zero is nobody.
    holder: AtomicU64,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
    /// How often it was released for one of those.
    released: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard alone, and there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, held.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Whether the lock was left by the parent of this process.
    pub(crate) is_inherited: bool,
    /// Held back until the lock is free again: fields are dropped after it.
    signals: Option<Signals>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        let (sleepers, released) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { holder: AtomicU64::new(0), sleepers, released, value: UnsafeCell::new(value) }
    }

    /// Waits until nobody has it, and takes it; no signal comes meanwhile. Never for a lock that is also entered.
    pub(crate) fn take(&self) -> Guard<'_, T> {
        let signals = Signals::hold_back();
        loop {
            if let Some(mut guard) = self.enter() {
                guard.signals = Some(signals);
                return guard;
            }
        }
    }

    /// Waits until nobody has it, and takes it; `None` if it is the calling thread that has it: this is a handler of a
    /// signal that came meanwhile.
    pub(crate) fn enter(&self) -> Option<Guard<'_, T>> {
        let process = u64::from(process::number()) << 32;
        let own = process | u64::from(thread::name());
        let mut looks = 0;
        loop {
            let holder = self.holder.load(Ordering::Relaxed);
            let is_free = holder >> 32 != own >> 32;
            if is_free
                && self.holder.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Some(Guard { lock: self, is_inherited: holder != 0, signals: None });
            }
            if holder == own {
                return None;
            }
            looks += 1;
            if looks < LOOKS { core::hint::spin_loop() } else { self.sleep_while(holder) }
        }
    }

    /// Sleeps until `holder` has released it.
    #[cold]
    fn sleep_while(&self, holder: u64) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.released.load(Ordering::SeqCst);
        if self.holder.load(Ordering::SeqCst) == holder {
            // A signal, or a release since: who waits looks again in any case.
            let _ = futex::wait(&self.released, futex::Flags::PRIVATE, seen, None);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    #[cold]
    fn wake(&self) {
        self.released.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.released, futex::Flags::PRIVATE, 1);
    }
}

impl<T> Guard<'_, T> {
    /// Children of a program that asks nothing of their ends may end meanwhile ([`Signals::ignore_children`]).
    pub(crate) fn ignore_children(&self) {
        self.signals.iter().for_each(Signals::ignore_children);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.holder.store(0, Ordering::SeqCst);
        if self.lock.sleepers.load(Ordering::SeqCst) != 0 {
            self.lock.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        static COUNT: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..1000).for_each(|_| *COUNT.take() += 1));
            }
        });
        assert_eq!(*COUNT.take(), 3000);
    }

    #[test]
    fn who_waits_for_it_leaves_the_cpu_to_others() {
        use rustix::time::{ClockId, clock_gettime};
        static LOCK: Lock<u64> = Lock::new(0);
        let held = LOCK.take();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        *LOCK.take() += 1;
                        clock_gettime(ClockId::ThreadCPUTime)
                    })
                })
                .collect();
            while LOCK.sleepers.load(Ordering::SeqCst) < 8 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(held);
            for waiter in waiters {
                let used = waiter.join().unwrap();
                assert!(used.tv_sec == 0 && used.tv_nsec < 20_000_000, "{used:?}");
            }
        });
        assert_eq!(*LOCK.take(), 8);
    }

    #[test]
    fn a_child_takes_over_what_its_parent_held() {
        let lock = Lock::new(7);
        lock.holder.store(u64::from(process::number() + 1) << 32 | 1, Ordering::Relaxed);
        assert!(lock.take().is_inherited);
        assert!(!lock.take().is_inherited);
    }

    #[test]
    fn a_handler_finds_its_own_thread_inside() {
        let lock = Lock::new(7);
        let inside = lock.enter();
        assert!(inside.is_some() && lock.enter().is_none());
        drop(inside);
        assert_eq!(lock.enter().as_deref(), Some(&7));
    }
}
