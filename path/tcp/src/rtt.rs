//! RFC 6298: the round-trip estimator and the retransmission time-out.
//!
//! Owns srtt, rttvar, the windowed minimum and the exponential back-off. Called by `flight`, and by the
//! handshake for the SYN. Reads no clock: a sample is a duration that the caller measured. Whether a sample
//! is usable (Karn's algorithm: never from a range that was retransmitted, unless a timestamp tells which
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

    /// Bounds in microseconds resolution, each brought into order: `FLOOR <= min <= initial <= max <=
    /// CEILING`.
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

    /// The same in nanoseconds.
    #[inline]
    pub(crate) const fn nanos(self) -> u64 {
        self.0 as u64 * 1_000
    }

    /// When it ends if it began when `before`, which ends at `at`, did.
    pub(crate) fn instead_of(self, before: Self, at: Instant) -> Instant {
        at - before.duration() + self.duration()
    }

    /// When it ends if it begins now.
    #[inline]
    pub(crate) const fn after(self, now: Instant) -> Instant {
        now.plus_nanos(self.nanos())
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
    samples: u32,
    total: Total,
    backoff: u8,
}

/// What an estimator has measured; its bounds are the configuration's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttRest {
    smoothed: u32,
    variation: u32,
    min: u32,
    min_at: u32,
    samples: u32,
    total: Total,
}

/// A sum of microseconds, at home beside words of 32 bits.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
struct Total(u64);

impl Rtt {
    /// The bounds follow the configuration. Before the first sample they may be wider (RFC 6298 §5.7).
    pub(crate) fn settle(&mut self, limits: RtoLimits) {
        if self.smoothed != 0 {
            self.limits = limits;
        }
    }

    /// What a connection at rest remembers; `None` before the first sample and while the time-out is doubled.
    pub(crate) fn rest(&self) -> Option<RttRest> {
        let Self { limits: _, smoothed, variation, min, min_at, samples, total, backoff } = *self;
        (smoothed != 0 && backoff == 0).then_some(RttRest {
            smoothed,
            variation,
            min,
            min_at,
            samples,
            total,
        })
    }

    /// The estimator that rested, with its bounds.
    pub(crate) fn wake_from(rest: RttRest, limits: RtoLimits) -> Self {
        let RttRest { smoothed, variation, min, min_at, samples, total } = rest;
        Self { limits, smoothed, variation, min, min_at, samples, total, backoff: 0 }
    }

    /// An estimator without samples.
    pub fn new(limits: RtoLimits) -> Self {
        Self { limits, smoothed: 0, variation: 0, min: 0, min_at: 0, samples: 0, total: Total(0), backoff: 0 }
    }

    /// Bounds of time-outs from here on.
    pub fn set_limits(&mut self, limits: RtoLimits) {
        self.limits = limits;
    }

    /// A round trip was measured (RFC 6298 §2.2 and §2.3).
    pub fn on_sample(&mut self, now: Instant, sample: Duration) {
        let micros = self.smooth(micros(sample));
        self.note_minimum(now, micros);
    }

    /// The same, `nanos` nanoseconds long.
    #[inline]
    pub(crate) fn on_sample_nanos(&mut self, now: Instant, nanos: u64) {
        let micros = self.smooth(u32::try_from(nanos.div_ceil(1_000)).unwrap_or(u32::MAX));
        self.note_minimum(now, micros);
    }

    /// A round trip that only a timestamp measured: up to a tick too long, so the minimum does not hear of
    /// it.
    pub fn on_coarse_sample(&mut self, sample: Duration) {
        self.smooth(micros(sample));
    }

    /// The round trip of the newest range that an ACK covers: free of the peer's delay for earlier ones, it
    /// counts for the minimum alone.
    pub fn on_least(&mut self, now: Instant, sample: Duration) {
        self.note_minimum(now, micros(sample).clamp(1, SAMPLE_MAX));
    }

    #[inline]
    fn smooth(&mut self, micros: u32) -> u32 {
        // A sample of zero would read as "no sample".
        let sample = micros.clamp(1, SAMPLE_MAX);
        self.samples = self.samples.wrapping_add(1);
        self.total = Total({ self.total.0 }.wrapping_add(sample.into()));
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
        let expired = u64::from(now.wrapping_sub(self.min_at)) > MIN_RTT_WINDOW.as_secs() * 1_000;
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

    /// The smoothed round-trip time in nanoseconds, if there was a sample.
    #[inline]
    pub(crate) fn smoothed_nanos(&self) -> Option<u64> {
        (self.smoothed != 0).then(|| u64::from(self.smoothed / 8).max(1) * 1_000)
    }

    /// The least round-trip time in nanoseconds; zero before the first sample.
    #[inline]
    pub(crate) fn minimum_nanos(&self) -> u64 {
        u64::from(self.min) * 1_000
    }

    /// The smoothed mean deviation.
    pub fn variation(&self) -> Duration {
        Duration::from_micros(u64::from(self.variation / 4))
    }

    /// The least round-trip time of the last [`MIN_RTT_WINDOW`].
    pub fn minimum(&self) -> Option<Duration> {
        (self.min != 0).then(|| Duration::from_micros(self.min.into()))
    }

    /// How many samples there were, and their sum.
    pub fn measured(&self) -> (u32, Duration) {
        (self.samples, Duration::from_micros(self.total.0))
    }
}

/// More doublings than this exceed any maximum.
const BACKOFF_MAX: u8 = 18;
/// 256 s: larger samples are measurement errors, and eight of them still fit 32 bits.
const SAMPLE_MAX: u32 = 256_000_000;

/// Whole microseconds, rounded up so that a minimum is kept, saturating.
fn micros(span: Duration) -> u32 {
    let whole = span.as_secs().saturating_mul(1_000_000);
    u32::try_from(whole.saturating_add(span.subsec_nanos().div_ceil(1_000).into())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn rtt(limits: RtoLimits, samples: &[u64]) -> Rtt {
        let mut rtt = Rtt::new(limits);
        for (n, &sample) in samples.iter().enumerate() {
            rtt.on_sample(Instant::from_secs(n as u64), millis(sample));
        }
        rtt
    }

    #[test]
    fn rfc_6298_section_2() {
        // §2.1: one second before any sample.
        assert_eq!(rtt(RtoLimits::default(), &[]).rto().duration(), Duration::from_secs(1));
        // §2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        let first = rtt(RtoLimits::default(), &[400]);
        assert_eq!((first.smoothed(), first.variation()), (Some(millis(400)), millis(200)));
        assert_eq!(first.rto().duration(), millis(1_200));
        // §2.3: RTTVAR = 3/4 200 + 1/4 |400 - 800| = 250, SRTT = 7/8 400 + 1/8 800 = 450.
        let second = rtt(RtoLimits::default(), &[400, 800]);
        assert_eq!((second.smoothed(), second.variation()), (Some(millis(450)), millis(250)));
        assert_eq!(second.rto().duration(), millis(1_450));
        // A steady path: the variation dies out and the floor is what remains above the round trip.
        let steady = rtt(RtoLimits::default(), &[50; 100]);
        assert_eq!(steady.rto().duration(), millis(250));
    }

    #[test]
    fn section_5_backs_off_and_progress_ends_it() {
        let mut rtt = rtt(RtoLimits::default(), &[100]);
        let base = rtt.rto().duration();
        let mut last = base;
        for _ in 0..30 {
            rtt.on_timeout();
            let next = rtt.rto().duration();
            assert_eq!(next, (last * 2).min(Duration::from_secs(60)));
            last = next;
        }
        rtt.on_progress();
        assert_eq!(rtt.rto().duration(), base);
    }

    #[test]
    fn section_5_7_a_lost_syn_without_a_sample() {
        let mut untimed = rtt(RtoLimits::default(), &[]);
        untimed.on_untimed_handshake();
        assert_eq!(untimed.rto().duration(), Duration::from_secs(3));
        let mut timed = rtt(RtoLimits::default(), &[10]);
        timed.on_untimed_handshake();
        assert_eq!(timed.rto().duration(), millis(210));
    }

    #[test]
    fn the_minimum_forgets() {
        let mut rtt = Rtt::new(RtoLimits::default());
        rtt.on_sample(Instant::from_secs(1), millis(10));
        rtt.on_least(Instant::from_secs(100), millis(30));
        assert_eq!(rtt.minimum(), Some(millis(10)));
        rtt.on_coarse_sample(millis(1));
        assert_eq!(rtt.minimum(), Some(millis(10)), "a tick is too coarse for a minimum");
        rtt.on_least(Instant::from_secs(302), millis(30));
        assert_eq!(rtt.minimum(), Some(millis(30)));
    }

    #[test]
    fn limits_are_brought_into_order() {
        let limits = RtoLimits::new(Duration::ZERO, Duration::from_secs(500), Duration::from_secs(300));
        let rto = Rtt::new(limits).rto().duration();
        assert_eq!(rto, RtoLimits::CEILING);
        let limits = RtoLimits::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        assert_eq!(Rtt::new(limits).rto().duration(), RtoLimits::FLOOR);
        assert!(core::mem::size_of::<Rtt>() <= 44);
    }

    proptest! {
        #[test]
        fn the_time_out_keeps_its_bounds(
            samples in prop::collection::vec(0u64..400_000_000_000, 1..60),
            timeouts in 0usize..30,
            min in 1u64..2_000,
            max in 2_000u64..200_000,
        ) {
            let limits = RtoLimits::new(millis(1_000), millis(min), millis(max));
            let mut rtt = Rtt::new(limits);
            for (n, &nanos) in samples.iter().enumerate() {
                rtt.on_sample(Instant::from_secs(n as u64), Duration::from_nanos(nanos));
                let smoothed = rtt.smoothed().expect("there was a sample");
                let rto = rtt.rto().duration();
                prop_assert!(rto >= millis(min) && rto <= millis(max));
                prop_assert!(rto >= smoothed.min(millis(max)));
                prop_assert!(rtt.minimum() <= Some(smoothed + Duration::from_micros(1)));
            }
            let mut last = rtt.rto();
            for _ in 0..timeouts {
                rtt.on_timeout();
                prop_assert!(rtt.rto() >= last);
                last = rtt.rto();
            }
            prop_assert!(last.duration() <= millis(max));
        }

        #[test]
        fn steady_samples_converge(micros in 1u64..10_000_000, start in 1u64..10_000_000) {
            let mut rtt = Rtt::new(RtoLimits::default());
            rtt.on_sample(Instant::ZERO, Duration::from_micros(start));
            for _ in 0..200 {
                rtt.on_sample(Instant::ZERO, Duration::from_micros(micros));
            }
            let smoothed = rtt.smoothed().expect("there were samples").as_micros() as u64;
            prop_assert!(smoothed.abs_diff(micros) <= 1 + micros / 1_000, "{} of {}", smoothed, micros);
        }
    }
}
