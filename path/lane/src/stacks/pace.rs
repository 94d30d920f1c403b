//! How fast a datagram socket sends at most (SO_MAX_PACING_RATE, socket(7)).
//!
//! What goes out at once is one record; the next one waits until its time at the rate has passed. Silence earns nothing. Kept
//! by `datagrams.rs`, asked by `datagrams_out.rs`.

use firelane_tcp::leaves_in_time;
use firelane_units::{BitRate, Bytes, Instant};

/// A socket's pace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Pace {
    rate: Option<BitRate>,
    /// When the next one may go.
    next: Option<Instant>,
}

impl Pace {
    /// What it is at most.
    pub(super) fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    /// Another rate, for what waits as well: what has gone takes as long as it does at this one. `None` is none, and so is zero, as in
    /// Linux.
    pub(super) fn set(&mut self, now: Instant, rate: Option<BitRate>) {
        let rate = rate.filter(|&rate| rate != BitRate::ZERO);
        let left = self.next.map(|next| next.saturating_since(now)).filter(|left| !left.is_zero());
        let next = left.and_then(|left| Some(now + rate?.time_for(self.rate?.bytes_in(left))));
        *self = Self { rate, next };
    }

    /// Its program is gone, and so much is left to send: a pace at which that takes too long is none any more. Whether it is so.
    pub(super) fn end(&mut self, left: Bytes) -> bool {
        let is_over = self.rate.is_some_and(|rate| !leaves_in_time(left, rate));
        if is_over {
            *self = Self::default();
        }
        is_over
    }

    /// Until when a record has to wait.
    pub(super) fn not_before(&self, now: Instant) -> Option<Instant> {
        self.next.filter(|&next| next > now)
    }

    /// A record has gone whose packets have so many octets together.
    pub(super) fn passed(&mut self, now: Instant, octets: Bytes) {
        if let Some(rate) = self.rate {
            self.next = Some(self.next.unwrap_or(now).max(now) + rate.time_for(octets));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    proptest! {
        /// Whoever asks at any time and sends whenever he may: in no span does more go than the rate allows, and one record.
        #[test]
        fn no_span_has_more_than_the_rate_and_one_record(
            bps in 8_000u64..10_000_000, steps in prop::collection::vec((0u64..50_000, 1u64..3000), 1..100),
        ) {
            let rate = BitRate::from_bps(bps);
            let mut pace = Pace::default();
            let mut now = Instant::from_nanos(1_000_000);
            pace.set(now, Some(rate));
            let mut sent: Vec<(Instant, u64)> = Vec::new();
            for (micros, octets) in steps {
                now += Duration::from_micros(micros);
                if pace.not_before(now).is_none() {
                    pace.passed(now, Bytes(octets));
                    sent.push((now, octets));
                }
            }
            for (from, &(at, _)) in sent.iter().enumerate() {
                let mut total = 0;
                for pair in sent[from..].windows(2) {
                    total += pair[0].1;
                    let span = pair[1].0.saturating_since(at);
                    prop_assert!(span + Duration::from_nanos(1000) >= rate.time_for(Bytes(total)), "{span:?} {total}");
                }
            }
        }
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::default();
        let now = Instant::from_nanos(5);
        pace.passed(now, Bytes(1 << 40));
        assert_eq!(pace.not_before(now), None);
        pace.set(now, Some(BitRate::from_bps(8)));
        pace.passed(now, Bytes(1));
        assert_eq!(pace.not_before(now), Some(now + Duration::from_secs(1)));
        pace.end(Bytes(60));
        assert!(pace.not_before(now).is_some(), "a minute is not too long");
        pace.end(Bytes(61));
        assert_eq!(pace.not_before(now), None);
        pace.set(now, Some(BitRate::from_bps(0)));
        assert_eq!(pace.not_before(now), None, "the first one goes");
        pace.passed(now, Bytes(1));
        pace.end(Bytes(1));
        assert_eq!(pace.not_before(now), None, "for ever is");
        pace.set(now, Some(BitRate::from_bps(8)));
        pace.passed(now, Bytes(1));
        pace.set(now, None);
        assert_eq!(pace.not_before(now), None, "the limit is lifted at once");
    }

    #[test]
    fn another_rate_holds_for_what_waits_and_who_only_changes_it_gains_nothing() {
        let (mut pace, now) = (Pace::default(), Instant::from_secs(1));
        pace.set(now, Some(BitRate::from_bps(8_000)));
        pace.passed(now, Bytes(1000));
        let half = now + Duration::from_millis(500);
        for bps in [80_000, 800, 8_000] {
            pace.set(half, Some(BitRate::from_bps(bps)));
            let left = Duration::from_millis(500 * 8_000 / bps);
            assert_eq!(pace.not_before(half), Some(half + left), "{bps}");
        }
        pace.set(half, Some(BitRate::ZERO));
        pace.set(half, Some(BitRate::from_bps(8_000)));
        assert_eq!(pace.not_before(half), None, "nothing is left of a rate that lets nothing go");
    }
}
