//! How long a call may still wait, and what ends it: a time, a signal, the daemon's death.
//!
//! Sleeping on a block ends with every signal whose handler has run, whatever the handler's flags; the kernel's own calls
//! would go on after a handler with SA_RESTART. Which signal it was is not known afterwards, so a call goes on if
//! every handler of the process has the flag, and else says EINTR, which every program that has a handler without it
//! must expect.

use core::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::cancelling;
use crate::sys::{self, Limit};

/// A point in time, of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Deadline(Duration);

fn clock(id: ClockId) -> Duration {
    let now = clock_gettime(id);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn now() -> Duration {
    clock(ClockId::Monotonic)
}

/// What the clock of the day has said at a point of the monotonic clock.
pub(crate) fn day_of(at: Duration) -> Duration {
    let age = now().saturating_sub(at);
    clock(ClockId::Realtime).saturating_sub(age)
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

/// What a call with time limit `limited` does after a signal: goes on, or answers EINTR, also where its thread is to be cancelled. The
/// kernel's socket calls with a limit never go on.
pub(crate) fn interrupted(limited: bool) -> Result<(), Errno> {
    let ends = cancelling::is_wanted() || limited || !sys::all_handlers_restart();
    if ends { Err(Errno::INTR) } else { Ok(()) }
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
