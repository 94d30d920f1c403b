//! The instant that a lane reads once per turn and passes down.
//!
//! Protocol crates never read a clock; they get an [`Instant`] from their caller. It counts nanoseconds
//! since an epoch of the caller's choosing (process start in the engine, zero in a simulation), so virtual
//! time is as good as real time.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since the caller's epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// The end of time: a deadline that is never reached (584 years after the epoch).
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// The instant `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The instant `secs` seconds after the epoch.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the epoch.
    pub const fn micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the epoch.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Nanoseconds since `earlier`; zero if `earlier` is in fact later.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `nanos` nanoseconds later, or the end of time.
    #[inline]
    #[must_use]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// The earliest of several deadlines, of which each may be none.
    #[inline]
    pub fn earliest<const N: usize>(deadlines: [Option<Self>; N]) -> Option<Self> {
        let first = deadlines.into_iter().fold(Self::FAR_FUTURE, |first, at| first.min(at.unwrap_or(first)));
        (first != Self::FAR_FUTURE).then_some(first)
    }

    /// Time since `earlier`; zero if `earlier` is in fact later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::FAR_FUTURE`].
    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::ZERO`].
    fn sub(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_earliest_is_found_among_those_that_are() {
        let [one, two] = [1, 2].map(|secs| Some(Instant::from_secs(secs)));
        assert_eq!(Instant::earliest([two, None, one]), one);
        assert_eq!(Instant::earliest([None, None]), None);
        assert_eq!(Instant::earliest([Some(Instant::FAR_FUTURE), None]), None, "never reached");
    }

    proptest! {
        #[test]
        fn adding_then_measuring_gives_the_duration(at in 0..u64::MAX / 2, by in 0..u64::MAX / 2) {
            let start = Instant::from_nanos(at);
            let by = Duration::from_nanos(by);
            prop_assert_eq!((start + by).saturating_since(start), by);
            prop_assert_eq!((start + by) - by, start);
        }
    }

    #[test]
    fn the_ends_saturate() {
        assert_eq!(Instant::FAR_FUTURE + Duration::from_secs(1), Instant::FAR_FUTURE);
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::ZERO.saturating_since(Instant::from_secs(1)), Duration::ZERO);
    }
}
