//! The least round trip (§5.5.7, §5.3.4.3): of ten seconds for the model, of five for the decision to measure it
//! anew. Owned by `mod.rs`; `probe_rtt.rs` acts on it.

use core::time::Duration;

use firelane_units::Instant;

/// MinRTTFilterLen.
const WINDOW: Duration = Duration::from_secs(10);
/// ProbeRTTInterval. The same for everybody, so that those who share a path drain it together.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// The two minima.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MinRtt {
    /// [`Duration::MAX`] before the first sample.
    least: Duration,
    least_at: Instant,
    recent: Duration,
    recent_at: Instant,
    /// The recent minimum is too old: it wants to be measured again.
    pub(super) expired: bool,
}

impl MinRtt {
    pub(super) fn new(now: Instant, rtt: Option<Duration>) -> Self {
        let least = rtt.unwrap_or(Duration::MAX);
        Self { least, least_at: now, recent: least, recent_at: now, expired: false }
    }

    /// The least round trip, once there is one.
    pub(super) fn get(&self) -> Option<Duration> {
        (self.least < Duration::MAX).then_some(self.least)
    }

    pub(super) fn on_ack(&mut self, now: Instant, rtt: Option<Duration>) {
        self.expired = now > self.recent_at + PROBE_INTERVAL;
        if let Some(rtt) = rtt.filter(|rtt| *rtt < self.recent || self.expired) {
            (self.recent, self.recent_at) = (rtt, now);
        }
        if self.recent < self.least || now > self.least_at + WINDOW {
            (self.least, self.least_at) = (self.recent, self.recent_at);
        }
    }

    /// The path was drained and measured: the next time is five seconds from here.
    pub(super) fn on_probed(&mut self, now: Instant) {
        self.recent_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greater_round_trip_counts_when_the_lesser_is_old() {
        let millis = Duration::from_millis;
        let at = Instant::from_secs;
        let mut rtt = MinRtt::new(at(0), None);
        assert_eq!(rtt.get(), None);
        rtt.on_ack(at(1), Some(millis(50)));
        rtt.on_ack(at(2), Some(millis(80)));
        assert_eq!((rtt.get(), rtt.expired), (Some(millis(50)), false));
        rtt.on_ack(at(7), Some(millis(80)));
        assert_eq!((rtt.get(), rtt.expired), (Some(millis(50)), true));
        rtt.on_ack(at(12), Some(millis(90)));
        assert_eq!(rtt.get(), Some(millis(80)));
    }
}
