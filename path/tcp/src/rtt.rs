//! RFC 6298: the round-trip estimator and the retransmission time-out.
//!
//! Owns srtt, rttvar, the windowed minimum and the exponential back-off. Called by `flight`, and by the
//! handshake for the SYN. Reads no clock: a sample is a duration that the caller measured. Whether a
//! sample is usable (Karn's algorithm: never from a range that was retransmitted, unless a timestamp tells which
//! transmission was answered) is the caller's decision.

use core::time::Duration;

use firelane_units::Instant;

/// The bounds of the retransmission time-out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtoLimits {
    initial: u32,
    min: u32,
    max: u32,
}

impl RtoLimits {
    /// The least minimum: below one tick of a timer wheel a time-out means nothing.
    pub const FLOOR: Duration = Duration::from_millis(1);
    /// The greatest maximum, RFC 6298 §2.5 allows any bound of at least 60 s.
    pub const CEILING: Duration = Duration::from_secs(240);

    /// Bounds in microseconds resolution, each brought into order: `FLOOR <= min <= initial <= max <= CEILING`.
    pub fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        let max = max.clamp(Self::FLOOR, Self::CEILING);
        let min = min.clamp(Self::FLOOR, max);
        let initial = initial.clamp(min, max);
        Self { initial: micros(initial), min: micros(min), max: micros(max) }
    }
}

impl Default for RtoLimits {
    /// 1 s at first (RFC 6298 §2.1), 200 ms at least, 60 s at most (§2.5).
    ///
    /// We differ: §2.4 asks for a minimum of 1 s. Linux and the BSDs use 200 ms, because clocks are finer
    /// than in 1988 and spurious time-outs are detected and undone (RFC 5682).
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_millis(200), Duration::from_secs(60))
    }
}

/// A retransmission time-out: never zero, never beyond [`RtoLimits::CEILING`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rto(u32);

impl Rto {
    /// The time-out as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }
}

/// How long a minimum counts before a newer, larger one replaces it (Linux's `tcp_min_rtt_wlen`).
pub const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// The estimator of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    limits: RtoLimits,
    /// Smoothed round-trip time in eighths of a microsecond; zero before the first sample.
    smoothed: u32,
    /// Mean deviation in quarters of a microsecond.
    variation: u32,
    min: u32,
    /// When `min` was measured, in milliseconds since the epoch, wrapping.
    min_at: u32,
    latest: u32,
    backoff: u8,
}

impl Rtt {
    /// An estimator without samples.
    pub fn new(limits: RtoLimits) -> Self {
        Self { limits, smoothed: 0, variation: 0, min: 0, min_at: 0, latest: 0, backoff: 0 }
    }

    /// A round trip was measured (RFC 6298 §2.2 and §2.3).
    pub fn on_sample(&mut self, now: Instant, sample: Duration) {
        let micros = self.smooth(sample);
        self.note_minimum(now, micros);
    }

    /// A round trip that only a timestamp measured: up to a tick too long, so the minimum does not hear of it.
    pub fn on_coarse_sample(&mut self, sample: Duration) {
        self.smooth(sample);
    }

    /// The round trip of the newest range that an ACK covers: free of the peer's delay for earlier ones, it counts for
    /// the minimum alone.
    pub fn on_least(&mut self, now: Instant, sample: Duration) {
        self.note_minimum(now, micros(sample).clamp(1, SAMPLE_MAX));
    }

    fn smooth(&mut self, sample: Duration) -> u32 {
        // A sample of zero would read as "no sample".
        let sample = micros(sample).clamp(1, SAMPLE_MAX);
        self.latest = sample;
        if self.smoothed == 0 {
            self.smoothed = sample * 8;
            self.variation = sample * 2;
        } else {
            // RTTVAR <- 3/4 RTTVAR + 1/4 |SRTT - R'|, then SRTT <- 7/8 SRTT + 1/8 R', in this order.
            let deviation = (self.smoothed / 8).abs_diff(sample);
            self.variation = self.variation - self.variation / 4 + deviation;
            self.smoothed = (self.smoothed - self.smoothed / 8 + sample).max(1);
        }
        sample
    }

    fn note_minimum(&mut self, now: Instant, sample: u32) {
        let now = now.millis() as u32;
        let expired = u128::from(now.wrapping_sub(self.min_at)) > MIN_RTT_WINDOW.as_millis();
        if self.min == 0 || sample <= self.min || expired {
            self.min = sample;
            self.min_at = now;
        }
    }

    /// The retransmission time-out with the back-off applied.
    pub fn rto(&self) -> Rto {
        let base = if self.smoothed == 0 {
            self.limits.initial
        } else {
            // RFC 6298 §2.3 with G below a microsecond. Linux's floor applies to the variation, not to the
            // sum: a steady path of 300 ms keeps 200 ms of slack.
            let slack = self.variation.max(self.limits.min);
            (self.smoothed / 8).saturating_add(slack)
        };
        let backed_off = u64::from(base) << self.backoff.min(BACKOFF_MAX);
        Rto(backed_off.min(u64::from(self.limits.max)) as u32)
    }

    /// The time-out fired: the next one is twice as long (RFC 6298 §5.5).
    pub fn on_timeout(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// The peer acknowledged something new: the back-off ends.
    ///
    /// We differ from RFC 6298 §5.7, which waits for a fresh sample: as Linux does, any progress ends it,
    /// since a sample needs new data and the window may be closed.
    pub fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// The SYN was lost and nothing was measured: three seconds for the first data (RFC 6298 §5.7).
    pub fn on_untimed_handshake(&mut self) {
        if self.smoothed == 0 {
            let fallback = micros(Duration::from_secs(3));
            self.limits.initial = self.limits.initial.max(fallback).min(self.limits.max);
        }
    }

    /// How often in a row the time-out has doubled.
    pub const fn backoff(&self) -> u8 {
        self.backoff
    }

    /// The smoothed round-trip time, if there was a sample.
    pub fn smoothed(&self) -> Option<Duration> {
        (self.smoothed != 0).then(|| Duration::from_micros(u64::from(self.smoothed / 8).max(1)))
    }

    /// The smoothed mean deviation.
    pub fn variation(&self) -> Duration {
        Duration::from_micros(u64::from(self.variation / 4))
    }

    /// The least round-trip time of the last [`MIN_RTT_WINDOW`].
    pub fn minimum(&self) -> Option<Duration> {
        (self.min != 0).then(|| Duration::from_micros(self.min.into()))
    }

    /// The latest sample.
    pub fn latest(&self) -> Option<Duration> {
        (self.latest != 0).then(|| Duration::from_micros(self.latest.into()))
    }
}

/// More doublings than this exceed any maximum.
const BACKOFF_MAX: u8 = 18;
/// 256 s: larger samples are measurement errors, and eight of them still fit 32 bits.
const SAMPLE_MAX: u32 = 256_000_000;

/// Whole microseconds, rounded up so that a minimum is kept, saturating.
fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u32::MAX)
}
