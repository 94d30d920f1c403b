//! The clock that lanes are given: nanoseconds since the engine's start.
//!
//! The only place of the data plane's process where time is read for lanes.

use std::time::{Duration, Instant as Wall};

use firelane_units::Instant;
use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock with an epoch of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Wall,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Wall::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        let elapsed = self.start.elapsed();
        Instant::from_nanos(elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()))
    }

    /// What `CLOCK_MONOTONIC` said at the start: programs have no other way to read a lane's times.
    pub(crate) fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        now.saturating_sub(self.start.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_start_is_a_time_of_the_systems_clock() {
        let monotonic = || {
            let now = clock_gettime(ClockId::Monotonic);
            Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
        };
        let before = monotonic();
        let clock = Clock::new();
        let after = monotonic();
        std::thread::sleep(Duration::from_millis(2));
        let (start, slack) = (clock.start(), Duration::from_millis(1));
        assert!(before <= start + slack && start <= after + slack, "{before:?} {start:?} {after:?}");
    }

    #[test]
    fn it_advances_at_the_pace_of_the_wall() {
        let clock = Clock::new();
        let (before, wall) = (clock.now(), Wall::now());
        std::thread::sleep(Duration::from_millis(5));
        let measured = clock.now().saturating_since(before);
        assert!(
            measured >= Duration::from_millis(5) && measured <= wall.elapsed() + Duration::from_millis(1)
        );
    }
}
