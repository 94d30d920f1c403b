//! RFC 9406: HyStart++, leaving slow start before it overflows the path.
//!
//! Watches the least round trip of each round of slow start. When it rises, growth slows to a quarter for up
//! to five rounds (conservative slow start); if it falls back, slow start resumes, else congestion avoidance
//! begins. Owned and called by `cubic` during the first slow start only.

use core::time::Duration;

use super::AckSample;

/// RFC 9406 §4.3's constants.
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;

/// No sample in this round.
const INFINITE: u32 = u32::MAX;

/// How slow start goes on after an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Growth by what arrived over this divisor.
    Grow(u32),
    /// The path is full: congestion avoidance.
    Leave,
}

/// The state of the watch; round trips in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HyStart {
    /// The end of what was sent when the round began.
    round_end: u64,
    last_min: u32,
    round_min: u32,
    /// The least round trip at which conservative slow start began; [`INFINITE`] outside it.
    baseline: u32,
    samples: u8,
    conservative_rounds: u8,
    on: bool,
}

impl HyStart {
    /// Watches from the first round.
    pub const fn new() -> Self {
        Self {
            round_end: 0,
            last_min: INFINITE,
            round_min: INFINITE,
            baseline: INFINITE,
            samples: 0,
            conservative_rounds: 0,
            on: true,
        }
    }

    /// Watches nothing: slow start after a loss has its threshold (RFC 9406 §4.3: "initial slow start only").
    pub const fn off() -> Self {
        Self { on: false, ..Self::new() }
    }

    /// An ACK in slow start.
    pub fn on_ack(&mut self, ack: &AckSample) -> Pace {
        if !self.on {
            return Pace::Grow(1);
        }
        if let Some(rtt) = ack.rtt {
            self.round_min = self.round_min.min(micros(rtt));
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= N_RTT_SAMPLE {
            self.compare();
        }
        if ack.una > self.round_end && self.end_round(ack.nxt) {
            return Pace::Leave;
        }
        Pace::Grow(if self.baseline == INFINITE { 1 } else { CSS_GROWTH_DIVISOR })
    }

    fn compare(&mut self) {
        if self.baseline != INFINITE {
            if self.round_min < self.baseline {
                self.baseline = INFINITE;
                self.conservative_rounds = 0;
            }
            return;
        }
        if self.last_min == INFINITE || self.round_min == INFINITE {
            return;
        }
        let threshold = (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.round_min >= self.last_min.saturating_add(threshold) {
            self.baseline = self.round_min;
        }
    }

    /// Begins the next round; says whether conservative slow start has had its rounds.
    fn end_round(&mut self, nxt: u64) -> bool {
        self.round_end = nxt;
        self.last_min = self.round_min;
        self.round_min = INFINITE;
        self.samples = 0;
        if self.baseline == INFINITE {
            return false;
        }
        self.conservative_rounds += 1;
        self.conservative_rounds >= CSS_ROUNDS
    }
}

impl Default for HyStart {
    fn default() -> Self {
        Self::new()
    }
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(INFINITE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::{Bytes, Instant};

    /// One round of ten ACKs with the given round trip; gives the last verdict.
    fn round(hystart: &mut HyStart, number: u64, millis: u64) -> Pace {
        let mut verdict = Pace::Grow(1);
        for n in 0..10 {
            verdict = hystart.on_ack(&AckSample {
                now: Instant::from_millis(number * millis),
                delivered: Bytes(1_000),
                una: number * 10_000 + n * 1_000 + 1_000,
                nxt: number * 10_000 + 10_000 + n * 1_000,
                rtt: Some(Duration::from_millis(millis)),
                smoothed: Duration::from_millis(millis),
                window_limited: true,
            });
            if verdict == Pace::Leave {
                break;
            }
        }
        verdict
    }

    #[test]
    fn steady_round_trips_never_end_slow_start() {
        let mut hystart = HyStart::new();
        for n in 0..50 {
            assert_eq!(round(&mut hystart, n, 40), Pace::Grow(1));
        }
    }

    #[test]
    fn a_rise_slows_down_and_five_rounds_later_ends() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 40);
        round(&mut hystart, 1, 40);
        // 40 / 8 = 5 ms is the threshold.
        assert_eq!(round(&mut hystart, 2, 44), Pace::Grow(1));
        let verdicts: Vec<_> = (3..9).map(|n| round(&mut hystart, n, 60)).collect();
        assert_eq!(verdicts[0], Pace::Grow(CSS_GROWTH_DIVISOR));
        assert!(verdicts.contains(&Pace::Leave), "{verdicts:?}");
    }

    #[test]
    fn a_fall_resumes_slow_start() {
        let mut hystart = HyStart::new();
        for (n, millis, pace) in [(0, 40, 1), (1, 40, 1), (2, 60, 4), (3, 60, 4), (4, 41, 1), (5, 41, 1)] {
            assert_eq!(round(&mut hystart, n, millis), Pace::Grow(pace), "round {n}");
        }
    }

    #[test]
    fn off_never_ends() {
        let mut hystart = HyStart::off();
        for n in 0..20 {
            assert_eq!(round(&mut hystart, n, 10 * (n + 1)), Pace::Grow(1));
        }
    }
}
