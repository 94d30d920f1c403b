//! How long a call may still wait, and what ends it: a time, a signal, the daemon's death.
//!
//! A sleep ends with every signal whose handler has run since its call began, whatever the handler's flags; the kernel's own calls go on
//! after handlers with SA_RESTART. Which kind has run is noted (`handlers.rs`) but of handlers that no hook has seen. After one of those a
//! call goes on if every handler of the process has the flag, and else says EINTR, which every program that has a handler without
//! it must expect.

use core::time::Duration;

use rustix::io::Errno;

use crate::cancelling;
use crate::handlers::{Ran, Seen};
use crate::sys::{self, Limit};

/// A point in time, of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Deadline(Duration);

fn now() -> Duration {
    sys::clock(libc::CLOCK_MONOTONIC)
}

/// The same, as it was at the last tick of the system's clock, which takes a few nanoseconds to ask.
pub(crate) fn coarsely() -> Duration {
    sys::clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// What the clock of the day has said at a point of the monotonic clock.
pub(crate) fn day_of(at: Duration) -> Duration {
    let age = now().saturating_sub(at);
    sys::clock(libc::CLOCK_REALTIME).saturating_sub(age)
}

impl Deadline {
    /// After so much time.
    pub(crate) fn after(limit: Duration) -> Self {
        Self(now().saturating_add(limit))
    }

    /// A limit as a point in time; `None` is never.
    pub(crate) fn of(limit: Limit) -> Option<Self> {
        limit.map(Self::after)
    }

    /// How long until then.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(now())
    }

    /// Whether it is over.
    pub(crate) fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}

/// What a call does after a signal that came since `seen`: goes on, or answers EINTR, also where its thread is to be cancelled. It may
/// go on if it has no time limit and has moved nothing yet, as the kernel's.
pub(crate) fn interrupted(seen: &mut Seen, may_go_on: bool) -> Result<(), Errno> {
    let restarts = match seen.renew() {
        Ran::Restarting => true,
        Ran::Ending => false,
        Ran::Nothing => sys::all_handlers_restart(),
    };
    if may_go_on && restarts && !cancelling::is_wanted() { Ok(()) } else { Err(Errno::INTR) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        assert!(Deadline::after(Duration::ZERO).has_passed());
        let later = Deadline::after(Duration::from_secs(100));
        assert!(!later.has_passed() && later.left() <= Duration::from_secs(100));
        assert_eq!(Deadline::of(None), None);
        assert!(!Deadline::after(Duration::MAX).has_passed());
    }
}
