//! The clock of the clients' tasks: the state machines' time is since their task began.
//!
//! Used by the tasks of both protocols. A lease ends while the machine sleeps, too (RFC 2131 §4.4.5), so the time is
//! CLOCK_BOOTTIME's, which goes on then; the runtime's timers stand still with CLOCK_MONOTONIC.

use std::time::{Duration, SystemTime};

use firelane_units::Instant;
use rustix::time::{ClockId, clock_gettime};

use crate::outcome::Times;

/// A sleep is looked up from at least as often as that, for the machine may have slept meanwhile.
const SLEEP_LONGEST: Duration = Duration::from_secs(30);

/// The time since a task began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What CLOCK_BOOTTIME said then.
    begun: Duration,
}

impl Clock {
    /// Begins now. It may be called outside of a runtime.
    pub(crate) fn begin() -> Self {
        Self { begun: since_boot() }
    }

    /// How long it runs.
    pub(crate) fn now(self) -> Instant {
        Instant::ZERO + since_boot().saturating_sub(self.begun)
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
        reach(at, || self.now()).await;
    }
}

async fn reach(at: Option<Instant>, now: impl Fn() -> Instant) {
    let Some(at) = at.filter(|at| *at != Instant::FAR_FUTURE) else {
        return std::future::pending().await;
    };
    loop {
        let left = at.saturating_since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLEEP_LONGEST)).await;
    }
}

fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Seconds since 1970.
pub(crate) fn seconds_of(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_while_the_machine_slept_is_seen_soon_after() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(async {
            // The runtime's clock has stood still for an hour, and has gone on for a second since.
            let woken = tokio::time::Instant::now();
            let hour = Duration::from_secs(3600);
            let slept = || if woken.elapsed() < Duration::from_secs(1) { Duration::ZERO } else { hour };
            reach(Some(Instant::ZERO + hour), || Instant::ZERO + woken.elapsed() + slept()).await;
            assert!(woken.elapsed() <= SLEEP_LONGEST + Duration::from_millis(10), "{:?}", woken.elapsed());
            // A machine that does not sleep is as exact as its timers.
            let begun = tokio::time::Instant::now();
            reach(Some(Instant::from_secs(100)), || Instant::ZERO + begun.elapsed()).await;
            assert!(begun.elapsed().as_secs_f64() - 100.0 <= 0.01, "{:?}", begun.elapsed());
        });
    }

    #[test]
    fn its_time_is_since_boot() {
        let clock = Clock { begun: Duration::ZERO };
        let (before, now, after) = (since_boot(), clock.now(), since_boot());
        let boot = Instant::ZERO;
        assert!(boot + before <= now && now <= boot + after, "{before:?} {now:?} {after:?}");
    }
}
