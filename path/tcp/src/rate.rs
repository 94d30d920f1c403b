//! The delivery-rate sampler of draft-ietf-ccwg-bbr §4.1: how fast did data arrive, and was the program in
//! the way?
//!
//! Owns the count of delivered bytes and the instants around it. A [`Snapshot`] is stored with every range
//! when it leaves; when the range arrives, the difference between then and the present is a [`RateSample`].
//! Called by `recovery`. Model-based congestion control and `tcp_info` read it.

use core::time::Duration;

use firelane_units::{BitRate, Bytes, Instant};

use crate::sent::SentRange;

/// What the sampler remembers with each range sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Bytes delivered so far.
    pub delivered: u64,
    /// When the last of them was known to be delivered.
    pub delivered_at: Instant,
    /// When the range left that began the sampling interval.
    pub first_sent_at: Instant,
    /// Bytes under way once it had left; of a burst, after its last segment.
    pub in_flight: u32,
    /// Whether the program, not the path, limited what was under way.
    pub app_limited: bool,
}

impl Snapshot {
    /// Whether the two differ only in how much of a burst had left before.
    pub fn shares_round(&self, other: &Self) -> bool {
        *self == Self { in_flight: self.in_flight, ..*other }
    }
}

/// One measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateSample {
    /// Bytes delivered in `interval`.
    pub delivered: Bytes,
    /// The longer of the time to send them and the time to see them acknowledged; zero if it is too short to mean
    /// anything.
    pub interval: Duration,
    /// Bytes that had been delivered when the newest range left that arrived.
    pub prior_delivered: Bytes,
    /// Bytes under way once that range had left.
    pub in_flight: Bytes,
    /// The count of lost bytes when it left, modulo 2^32.
    pub lost_before: u32,
    /// Whether the program limited the rate, so that it says nothing about the path.
    pub app_limited: bool,
}

impl RateSample {
    /// The rate; `None` for an interval too short to mean anything.
    pub fn rate(&self) -> Option<BitRate> {
        let nanos = self.interval.as_nanos();
        if nanos == 0 {
            return None;
        }
        let bits = u128::from(self.delivered.0) * 8 * 1_000_000_000 / nanos;
        Some(BitRate::from_bps(u64::try_from(bits).unwrap_or(u64::MAX)))
    }
}

/// The sampler of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSampler {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// The delivered count at which the last bubble in the pipe has drained; zero if there is none.
    app_limited_until: u64,
    /// The snapshot of the most recently sent range that arrived with the ACK being processed.
    newest: Option<(Instant, Snapshot, u32)>,
}

impl RateSampler {
    /// A range is about to leave; gives what to store with it. `idle` says that nothing is under way.
    pub fn on_sent(&mut self, now: Instant, idle: bool) -> Snapshot {
        if idle {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight: 0,
            app_limited: self.app_limited_until != 0,
        }
    }

    /// The program has nothing more to send while `in_flight` bytes are under way.
    pub fn on_app_limited(&mut self, in_flight: Bytes) {
        self.app_limited_until = (self.delivered + in_flight.0).max(1);
    }

    /// A range (or a piece of one) arrived.
    pub fn on_delivered(&mut self, now: Instant, range: &SentRange) {
        self.delivered += range.len().0;
        self.delivered_at = now;
        let newer = self.newest.is_none_or(|(sent_at, snapshot, _)| {
            (range.snapshot.delivered, range.sent_at) > (snapshot.delivered, sent_at)
        });
        if newer {
            self.newest = Some((range.sent_at, range.snapshot, range.lost_before));
        }
    }

    /// All ranges of an ACK were reported: the sample it gives, if it delivered anything. An interval below the least
    /// round trip was measured on a spurious retransmission, and counts as none.
    pub fn on_ack_done(&mut self, min_rtt: Duration) -> Option<RateSample> {
        self.leave_bubble();
        let (sent_at, prior, lost_before) = self.newest.take()?;
        let least = u64::try_from(min_rtt.as_nanos()).unwrap_or(u64::MAX);
        Some(self.sample(sent_at, &prior, lost_before, least))
    }

    /// An ACK delivered one range and nothing else: what [`RateSampler::on_delivered`] and
    /// [`RateSampler::on_ack_done`] make of it.
    #[inline]
    pub fn on_lone(&mut self, now: Instant, range: &SentRange, least_nanos: u64) -> RateSample {
        self.delivered += range.len().0;
        self.delivered_at = now;
        self.leave_bubble();
        self.sample(range.sent_at, &range.snapshot, range.lost_before, least_nanos)
    }

    /// Beyond the last bubble in the pipe, the path is the limit again.
    #[inline]
    fn leave_bubble(&mut self) {
        if self.app_limited_until != 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
    }

    /// The sample of the range that left at `sent_at`, when `prior` was the state.
    #[inline]
    fn sample(
        &mut self,
        sent_at: Instant,
        prior: &Snapshot,
        lost_before: u32,
        least_nanos: u64,
    ) -> RateSample {
        self.first_sent_at = sent_at;
        let send_elapsed = sent_at.nanos_since(prior.first_sent_at);
        let interval = send_elapsed.max(self.delivered_at.nanos_since(prior.delivered_at));
        // The least round trip is kept in whole microseconds, rounded up: so is what is compared with it.
        let is_too_short = interval + 999 < least_nanos;
        RateSample {
            delivered: Bytes(self.delivered - prior.delivered),
            interval: Duration::from_nanos(if is_too_short { 0 } else { interval }),
            prior_delivered: Bytes(prior.delivered),
            in_flight: Bytes(prior.in_flight.into()),
            lost_before,
            app_limited: prior.app_limited,
        }
    }

    /// Bytes delivered so far.
    pub fn delivered(&self) -> Bytes {
        Bytes(self.delivered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64, sent_at: Instant, snapshot: Snapshot) -> SentRange {
        SentRange::first(start..end, sent_at, snapshot)
    }

    #[test]
    fn a_steady_pipe_shows_its_rate() {
        // 1000 bytes per 10 ms over a round trip of 50 ms: 800 kb/s.
        let mut sampler = RateSampler::default();
        let at = |n: u64| Instant::from_millis(1_000 + 10 * n);
        let mut sent = Vec::new();
        let mut last = None;
        for n in 0..40u64 {
            if n >= 5 {
                sampler.on_delivered(at(n), &sent[n as usize - 5]);
                last = sampler.on_ack_done(Duration::from_millis(50));
            }
            let snapshot = sampler.on_sent(at(n), n == 0);
            sent.push(range(n * 1_000, (n + 1) * 1_000, at(n), snapshot));
        }
        let last = last.expect("the last ACK delivered something");
        assert_eq!(last.rate(), Some(BitRate::from_bps(800_000)));
        assert!(!last.app_limited);
    }

    #[test]
    fn a_bubble_marks_samples_until_it_has_drained() {
        let mut sampler = RateSampler::default();
        let t = Instant::from_millis;
        let first = range(0, 100, t(1), sampler.on_sent(t(1), true));
        sampler.on_app_limited(Bytes(100));
        let second = range(100, 200, t(2), sampler.on_sent(t(2), false));
        assert!(!first.snapshot.app_limited && second.snapshot.app_limited);
        sampler.on_delivered(t(11), &first);
        sampler.on_ack_done(Duration::ZERO);
        assert!(sampler.on_sent(t(11), false).app_limited, "100 of 100 are delivered, none more");
        sampler.on_delivered(t(12), &second);
        let sample = sampler.on_ack_done(Duration::ZERO).expect("delivered");
        assert!(sample.app_limited);
        assert!(!sampler.on_sent(t(12), false).app_limited);
    }

    /// The least round trip is rounded up to microseconds, as the estimator keeps it.
    #[test]
    fn what_took_the_least_round_trip_is_a_sample_and_what_took_less_is_none() {
        let sent = Instant::from_secs(1);
        let sample = |took: u64, least: u64| {
            let mut sampler = RateSampler::default();
            let lone = range(0, 1_000, sent, sampler.on_sent(sent, true));
            sampler.on_delivered(sent + Duration::from_nanos(took), &lone);
            let sample = sampler.on_ack_done(Duration::from_micros(least)).expect("delivered");
            sample.rate().is_some()
        };
        assert!(sample(12_640, 13) && sample(12_001, 13) && sample(13_000, 13) && sample(14_000, 13));
        assert!(!sample(12_000, 13) && !sample(11_999, 13) && !sample(1, 2));
    }

    #[test]
    fn an_ack_of_nothing_gives_no_sample() {
        assert_eq!(RateSampler::default().on_ack_done(Duration::ZERO), None);
    }
}
