//! One lock around the world, calls that wait, and who lets time pass meanwhile.
//!
//! packetdrill makes the calls that a script expects to block from a second thread, and everything else from the thread
//! that loaded the library. Only the latter lets time pass: a blocked call waits for it. Before the time goes on, every
//! waiting call has looked at what changed, and a call that has just ended has been given the chance to ask what time it
//! is, which is the first thing that packetdrill does then. So the outcome does not depend on the scheduler.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use firelane_units::Instant;

use crate::errno::{Sys, fail};
use crate::files::Files;
use crate::options::Options;
use crate::world::World;

/// How long (in real time) a call that has ended may take to ask for the time.
const GRACE: Duration = Duration::from_millis(100);

/// What an attempt at a call found.
pub(crate) enum Attempt<T> {
    /// Its result.
    Done(T),
    /// It waits, until something changes or to an instant.
    Wait(Option<Instant>),
}

/// The plug-in.
pub(crate) struct Plugin {
    inner: Mutex<Inner>,
    /// Something may have changed.
    changed: Condvar,
    /// A waiting call has looked.
    looked: Condvar,
    main: ThreadId,
}

/// What the lock protects.
pub(crate) struct Inner {
    pub(crate) world: World,
    pub(crate) files: Files,
    waiters: Vec<Waiter>,
    /// Rises when waiting calls must look again.
    round: u64,
    /// Threads whose call has ended after a wait, and that have not been heard since.
    returning: Vec<ThreadId>,
    is_over: bool,
}

struct Waiter {
    thread: ThreadId,
    until: Option<Instant>,
    /// The round in which it looked.
    seen: u64,
}

type Guard<'a> = MutexGuard<'a, Inner>;

impl Plugin {
    pub(crate) fn new(options: Options) -> Self {
        let inner = Inner {
            world: World::new(options),
            files: Files::new(),
            waiters: Vec::new(),
            round: 0,
            returning: Vec::new(),
            is_over: false,
        };
        Self {
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            looked: Condvar::new(),
            main: thread::current().id(),
        }
    }

    /// The lock, for a call that does not wait.
    pub(crate) fn enter(&self) -> Guard<'_> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let me = thread::current().id();
        inner.returning.retain(|&thread| thread != me);
        self.looked.notify_all();
        inner
    }

    fn is_main(&self) -> bool {
        thread::current().id() == self.main
    }

    /// Makes a call until it is done.
    pub(crate) fn call<T>(&self, mut attempt: impl FnMut(&mut Inner) -> Sys<Attempt<T>>) -> Sys<T> {
        let mut inner = self.enter();
        loop {
            let until = match attempt(&mut inner)? {
                Attempt::Done(value) => return Ok(value),
                Attempt::Wait(until) => until,
            };
            if !self.is_main() {
                return self.wait(inner, until, attempt);
            }
            inner = self.let_look(inner);
            let Some(next) = inner.next_deadline(until) else {
                // Nothing will ever happen: packetdrill's only other thread waits as well.
                return fail(libc::EDEADLK);
            };
            inner.world.step(next);
        }
    }

    /// A call in another thread waits for the main one to let something happen.
    fn wait<T>(
        &self,
        mut inner: Guard<'_>,
        until: Option<Instant>,
        mut attempt: impl FnMut(&mut Inner) -> Sys<Attempt<T>>,
    ) -> Sys<T> {
        let thread = thread::current().id();
        let seen = inner.round;
        inner.waiters.push(Waiter { thread, until, seen });
        let result = loop {
            let round = inner.round;
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            if inner.is_over {
                break fail(libc::EINTR);
            }
            if inner.round == round {
                continue;
            }
            match attempt(&mut inner) {
                Ok(Attempt::Wait(until)) => {
                    let round = inner.round;
                    if let Some(waiter) = inner.waiters.iter_mut().find(|w| w.thread == thread) {
                        (waiter.until, waiter.seen) = (until, round);
                    }
                    self.looked.notify_all();
                }
                Ok(Attempt::Done(value)) => break Ok(value),
                Err(error) => break Err(error),
            }
        };
        inner.waiters.retain(|waiter| waiter.thread != thread);
        inner.returning.push(thread);
        self.looked.notify_all();
        result
    }

    /// Lets every waiting call look at the present, and those that end by it return.
    pub(crate) fn let_look<'a>(&self, mut inner: Guard<'a>) -> Guard<'a> {
        inner.round += 1;
        self.changed.notify_all();
        while inner.waiters.iter().any(|waiter| waiter.seen < inner.round) {
            inner = self.looked.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        while !inner.returning.is_empty() {
            let waited = self.looked.wait_timeout(inner, GRACE).unwrap_or_else(PoisonError::into_inner);
            inner = waited.0;
            if waited.1.timed_out() {
                inner.returning.clear();
            }
        }
        inner
    }

    /// Lets time pass.
    pub(crate) fn sleep(&self, span: Duration) {
        let mut inner = self.enter();
        let until = inner.world.now() + span;
        while inner.world.now() < until {
            inner = self.let_look(inner);
            let next = inner.next_deadline(Some(until)).unwrap_or(until);
            inner.world.step(next);
        }
        drop(self.let_look(inner));
    }

    /// The packet that leaves next, and when; `None` if there is none for as long as patience lasts.
    pub(crate) fn next_packet(&self) -> Option<(Instant, Vec<u8>)> {
        let mut inner = self.enter();
        let limit = inner.world.now() + inner.world.options.patience;
        loop {
            if let Some(sent) = inner.world.packet() {
                return Some((sent.at, sent.packet));
            }
            inner = self.let_look(inner);
            if inner.world.has_packet() {
                continue;
            }
            let next = inner.next_deadline(None).filter(|&next| next <= limit)?;
            inner.world.step(next);
        }
    }

    /// The script is over: waiting calls return, and everything is closed.
    pub(crate) fn end(&self) {
        let mut inner = self.enter();
        inner.is_over = true;
        self.changed.notify_all();
        let Inner { world, files, .. } = &mut *inner;
        files.close_all(world);
    }
}

impl Inner {
    /// When something is due: in the lane, for a waiting call, or at `limit`.
    fn next_deadline(&self, limit: Option<Instant>) -> Option<Instant> {
        let waiting = self.waiters.iter().filter_map(|waiter| waiter.until).min();
        [self.world.next_deadline(), waiting, limit].into_iter().flatten().min()
    }
}
