//! The clock that lanes are given: nanoseconds since the engine's start.
//!
//! The only place of the data plane's process where time is read for lanes.

use std::time::Instant as Wall;

use firelane_units::Instant;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
