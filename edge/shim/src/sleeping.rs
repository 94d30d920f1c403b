//! The sleep of a call that has waited in vain for a slice: in the kernel's `ppoll`, by a waiter's doorbells, as poll(2) sleeps. There it wakes up for
//! nothing else. So many may sleep so; others sleep on in slices. A signal that comes while it is awake ends a call, too, by the handler that
//! runs (`handlers.rs`), and one whose handler no hook has seen by being held back from the first such sleep on. Called by `stream.rs`.

use core::ffi::c_int;
use core::time::Duration;

use firelane_shm::Woken;
use libc::pollfd;
use rustix::io::Errno;

use crate::cancelling;
use crate::confining;
use crate::handlers::Seen;
use crate::session;
use crate::sys::{Limit, Signals};
use crate::table::{self, Word};
use crate::wait::{self, Deadline};
use crate::waiter::{self, BELLS_MAX, Waiter};

/// How long a call sleeps otherwise. A signal that comes at the very end is lost, if no hook has seen its handler, so that is no time after
/// which timers run out.
const SHALLOW: Duration = Duration::from_micros(163_700);

/// Who closes a descriptor under another thread's call signals that as a rule, and may find it awake. So after so many sleeps it takes itself
/// for interrupted.
const CLOSED_MAX: u32 = 6;

/// The sleeps of one call.
pub(crate) struct Sleeper {
    /// The handlers that had run when it began, or had gone on after some.
    seen: Seen,
    /// A sleep on the futex was in vain.
    is_long: bool,
    /// From the first deep sleep on, until the call returns: what comes between two of them ends the next.
    signals: Option<Signals>,
    /// Sleeps in vain since its descriptor was closed.
    closed: u32,
}

impl Sleeper {
    /// Of a call that has begun when so many handlers had run.
    pub(crate) fn new(seen: Seen) -> Self {
        Self { seen, is_long: false, signals: None, closed: 0 }
    }

    /// What becomes of the call after a sleep that was interrupted ([`wait::interrupted`]).
    pub(crate) fn interrupted(&mut self, may_go_on: bool) -> Result<(), Errno> {
        wait::interrupted(&mut self.seen, may_go_on)
    }

    /// Sleeps until the socket of `own` may have what is waited for, or it is time to look again: at first by `shallow`. `own` is the
    /// call's descriptor and the word behind it; who has closed it has left the call a copy, behind which nobody finds it.
    pub(crate) fn sleep(
        &mut self,
        own: Option<(c_int, Word)>,
        deadline: Option<Deadline>,
        is_ready: impl Fn() -> bool,
        shallow: impl FnOnce(Duration, Seen) -> Woken,
    ) -> Woken {
        cancelling::sleeping(Woken::Interrupted, || self.sleep_on(own, deadline, is_ready, shallow))
    }

    fn sleep_on(
        &mut self,
        own: Option<(c_int, Word)>,
        deadline: Option<Deadline>,
        is_ready: impl Fn() -> bool,
        shallow: impl FnOnce(Duration, Seen) -> Woken,
    ) -> Woken {
        if confining::is_strict() {
            return self.strictly(own, is_ready);
        }
        let left = deadline.map(Deadline::left);
        if let Some((fd, word)) = own
            && self.is_long
            && let Some(woken) = self.deeply(fd, word, left, is_ready)
        {
            return woken;
        }
        // A signal that was held back would be forgotten when it is let through.
        if self.signals.take().is_some_and(|signals| !signals.pause(Duration::ZERO)) {
            return Woken::Interrupted;
        }
        let woken = shallow(left.unwrap_or(SHALLOW).min(SHALLOW), self.seen);
        self.is_long |= woken == Woken::TimeOut;
        self.closed += u32::from(woken == Woken::TimeOut && own.is_none());
        if self.closed > CLOSED_MAX { Woken::Interrupted } else { woken }
    }

    /// By a read(2) of a bell, which is all that is allowed.
    #[cold]
    fn strictly(&mut self, own: Option<(c_int, Word)>, is_ready: impl Fn() -> bool) -> Woken {
        let watching = own.and_then(|(fd, word)| {
            let mut waiter = Waiter::for_call().ok()?;
            waiter.watch(fd, word).is_ok().then_some((waiter, word))
        });
        if let Some((waiter, word)) = watching {
            waiter.forget_news();
            waiter.fall_asleep();
            if !is_ready() {
                waiter.read_bell();
            }
            waiter.unwatch(word);
        }
        // What else may have ended it cannot be asked.
        if self.seen.is_old() { Woken::Interrupted } else { Woken::Ready }
    }

    /// `None` if there is no place, or the system calls that it takes may be forbidden by now.
    fn deeply(&mut self, fd: c_int, word: Word, limit: Limit, is_ready: impl Fn() -> bool) -> Option<Woken> {
        if confining::is_confined() {
            return None;
        }
        let mut waiter = Waiter::for_sleep().ok()?;
        let signals = self.signals.get_or_insert_with(Signals::hold_back);
        // Who has closed it meanwhile may have signalled that, too, before signals were held back.
        let used = waiter::generation_of(word);
        let is_watched =
            waiter.watch(fd, word).is_ok() && !waiter.is_sharing() && table::get(fd) == Some(word);
        let woken = is_watched.then(|| sleep(&waiter, (signals, self.seen), limit, is_ready));
        // Another thread may have ended the connection, and its words may be another's by now.
        if waiter::generation_of(word) == used {
            waiter.unwatch(word);
        }
        woken
    }
}

fn sleep(
    waiter: &Waiter,
    (signals, seen): (&Signals, Seen),
    limit: Limit,
    is_ready: impl Fn() -> bool,
) -> Woken {
    waiter.forget_news();
    waiter.fall_asleep();
    if is_ready() {
        return Woken::Ready;
    }
    let mut all = [pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 1 + BELLS_MAX];
    // Of its control connection the daemon's death alone.
    (all[0].fd, all[0].events) = (session::control().unwrap_or(-1), libc::POLLRDHUP);
    let bells = all[1..].iter_mut().zip(waiter.bells());
    let count = bells.map(|(entry, bell)| entry.fd = bell).count();
    let woken = signals.poll(&mut all[..=count], limit, Some(seen));
    waiter::silence_rung(&all[1..=count]);
    match woken {
        Err(Errno::INTR) => Woken::Interrupted,
        Ok(0) | Err(_) => Woken::TimeOut,
        Ok(_) if all[0].revents != 0 => Woken::TimeOut,
        Ok(_) => Woken::Ready,
    }
}
