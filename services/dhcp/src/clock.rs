//! The clock of the clients' tasks: the state machines' time is since their task began.
//!
//! Used by the tasks of both protocols.

use std::time::{Duration, SystemTime};

use firelane_units::Instant;

use crate::outcome::Times;

/// The time since a task began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(tokio::time::Instant);

impl Clock {
    /// Begins now. It may be called outside of a runtime.
    pub(crate) fn begin() -> Self {
        Self(tokio::time::Instant::from_std(std::time::Instant::now()))
    }

    /// How long it runs.
    pub(crate) fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The times of a lease that lasts for `time` until `until`, and is renewed at `renew_at`.
    pub(crate) fn times(self, time: Option<Duration>, until: Instant, renew_at: Instant) -> Times {
        let (now, wall) = (self.now(), seconds_of(SystemTime::now()));
        let ahead = |at: Instant| wall + at.saturating_since(now).as_secs();
        match time {
            None => Times { began: wall, renews: None },
            Some(time) => {
                Times { began: ahead(until).saturating_sub(time.as_secs()), renews: Some(ahead(renew_at)) }
            }
        }
    }

    /// Sleeps until `at`, or for ever.
    pub(crate) async fn reach(self, at: Option<Instant>) {
        match at.filter(|at| *at != Instant::FAR_FUTURE) {
            Some(at) => tokio::time::sleep_until(self.0 + Duration::from_nanos(at.nanos())).await,
            None => std::future::pending().await,
        }
    }
}

/// Seconds since 1970.
pub(crate) fn seconds_of(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
