//! Pacing: a connection sends so much, and then nothing before a certain instant (draft-ietf-ccwg-bbr §5.6.2).
//!
//! Spreads what the window allows over the round trip, so that short queues on the path do not overflow from
//! bursts. Owns the instant at which the next segment may leave. Called by `flight`: [`Pacer::ask`] before a segment
//! is cut, [`Pacer::on_sent`] after it left; its deadline joins the connection's one timer. The rate is congestion
//! control's, and the program's own limit if it has one (`SO_MAX_PACING_RATE`).

use core::time::Duration;

use firelane_units::{BitRate, Bytes, Instant, Mss};

/// What one large segment holds: so much time's worth of the rate, and two segments at least (§5.6.3).
const QUANTUM: Duration = Duration::from_millis(1);
pub(crate) const QUANTUM_SEGMENTS: u64 = 2;

/// How much of the time that a segment was late for is made good. A lane's timers have ticks of a millisecond and
/// a turn may take as long again: without this, a fast connection would never reach its rate. A longer pause was
/// somebody's intention, and is no credit.
const LATE_MAX: Duration = Duration::from_millis(4);

/// The pacing of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// `None` while nothing limits.
    rate: Option<BitRate>,
    next_at: Instant,
    /// Something was told to wait until `next_at`.
    waits: bool,
    /// Nothing but pacing has held the connection up since something waited.
    is_busy: bool,
}

impl Pacer {
    /// Something wants to leave at `rate`: how much may go in one large segment, or `None` if it must wait for
    /// [`Pacer::deadline`].
    pub fn ask(&mut self, now: Instant, rate: Option<BitRate>, mss: Mss) -> Option<Bytes> {
        self.rate = rate;
        let Some(rate) = rate else {
            self.waits = false;
            return Some(Bytes(u64::MAX));
        };
        self.waits = now < self.next_at;
        if self.waits {
            self.is_busy = true;
            return None;
        }
        let least = Bytes(QUANTUM_SEGMENTS * u64::from(mss.bytes()));
        Some(rate.bytes_in(QUANTUM).max(least))
    }

    /// The program says so of what has left as well: its rest takes as long as it does at this rate, and what waits for it is asked anew.
    pub(crate) fn change(&mut self, now: Instant, rate: Option<BitRate>) {
        let left = self.next_at.saturating_since(now);
        match (self.rate, rate) {
            _ if left.is_zero() => {}
            (Some(before), Some(rate)) => self.next_at = now + rate.time_for(before.bytes_in(left)),
            // What comes behind a time without one does not wait for one before it.
            _ => self.next_at = now,
        }
        (self.rate, self.waits) = (rate, false);
    }

    /// A segment left; what follows waits for as long as it takes at the rate. A probe, which does not ask, counts,
    /// too.
    pub fn on_sent(&mut self, now: Instant, len: Bytes) {
        if let Some(rate) = self.rate {
            let late = if self.is_busy { LATE_MAX } else { Duration::ZERO };
            self.next_at = self.next_at.max(now - late) + rate.time_for(len);
        }
    }

    /// The program or the window holds the connection up: what it does not use now is lost.
    pub fn on_pause(&mut self) {
        (self.waits, self.is_busy) = (false, false);
    }

    /// Whether it has never held anything up, or was told to stop: asking it changes nothing then.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.rate.is_none() && !self.waits
    }

    /// Until when it holds up whatever may come, or keeps something waiting; `None` if forgetting it changes nothing.
    pub fn holds_until(&self, now: Instant) -> Option<Instant> {
        (self.waits || self.rate.is_some() && now < self.next_at).then_some(self.next_at)
    }

    /// When that may leave which was told to wait.
    pub fn deadline(&self) -> Option<Instant> {
        self.waits.then_some(self.next_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: Mss = Mss::clamped(1_000);
    /// A byte per microsecond.
    const RATE: BitRate = BitRate::from_mbps(8);

    fn at(micros: u64) -> Instant {
        Instant::from_secs(1) + Duration::from_micros(micros)
    }

    #[test]
    fn a_segment_waits_for_the_one_before() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.ask(at(0), Some(RATE), MSS), Some(Bytes(2_000)), "two segments at least");
        pacer.on_sent(at(0), Bytes(2_000));
        assert_eq!(pacer.deadline(), None, "nothing waits");
        assert_eq!(pacer.ask(at(500), Some(RATE), MSS), None);
        assert_eq!(pacer.deadline(), Some(at(2_000)));
        assert!(pacer.ask(at(2_000), Some(RATE), MSS).is_some());
        assert_eq!(pacer.deadline(), None);
    }

    #[test]
    fn a_large_segment_is_a_millisecond_of_a_fast_path() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.ask(at(0), Some(BitRate::from_mbps(400)), MSS), Some(Bytes(50_000)));
        assert_eq!(pacer.ask(at(0), None, MSS), Some(Bytes(u64::MAX)));
    }

    #[test]
    fn late_timers_are_made_good_and_silence_is_not() {
        let mut pacer = Pacer::default();
        let send = |pacer: &mut Pacer, now| {
            let mut sent = 0;
            while pacer.ask(now, Some(RATE), MSS).is_some() {
                pacer.on_sent(now, Bytes(1_000));
                sent += 1;
            }
            sent
        };
        assert_eq!(send(&mut pacer, at(0)), 1);
        assert_eq!(send(&mut pacer, at(2_500)), 2, "1.5 ms late");
        assert_eq!(send(&mut pacer, at(3_000)), 1);
        assert_eq!(send(&mut pacer, at(100_000)), 5, "no more than 4 ms");
        pacer.on_pause();
        assert_eq!(pacer.deadline(), None);
        assert_eq!(send(&mut pacer, at(200_000)), 1);
    }

    #[test]
    fn a_rate_of_zero_passes_nothing_after_the_first() {
        let mut pacer = Pacer::default();
        assert!(pacer.ask(at(0), Some(BitRate::ZERO), MSS).is_some());
        pacer.on_sent(at(0), Bytes(1));
        assert_eq!(pacer.ask(at(1 << 40), Some(BitRate::ZERO), MSS), None);
    }

    proptest! {
        /// Whenever the timers come, no more leaves than the rate allows, beside a late timer's credit and one segment;
        /// and if none is later than that credit, no less.
        #[test]
        fn the_rate_is_kept(mbps in 1u64..10_000, steps in prop::collection::vec(0u64..3_000, 1..200)) {
            let rate = BitRate::from_mbps(mbps);
            let mut pacer = Pacer::default();
            let (mut now, mut sent, mut last, mut count) = (at(0), 0, 0, 0);
            for step in steps {
                while let Some(quantum) = pacer.ask(now, Some(rate), MSS) {
                    last = quantum.0.min(64_000);
                    pacer.on_sent(now, Bytes(last));
                    sent += last;
                    count += 1;
                }
                let due = rate.bytes_in(now.saturating_since(at(0))).0;
                prop_assert!(sent <= due + last + 1, "{} of {}", sent, due);
                // A nanosecond of each segment is lost to rounding.
                prop_assert!(sent + 2 * count + 1 >= due, "{} of {}", sent, due);
                now += Duration::from_micros(step);
            }
        }
    }
}
