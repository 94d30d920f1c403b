//! What losses say (§5.5.10, §5.5.11): how much may be in flight, for long and for the moment.
//!
//! The long-term bound is the most that was in flight without too much being lost, learnt while probing. The
//! short-term ones follow what is delivered while others use the path, and are thrown away before the next probe.
//! Infinity is `u64::MAX`. Owned by `mod.rs`.

use crate::sent::LOSS_SHARE;

/// Beta: what a round with losses leaves at least.
pub(super) fn beta(value: u64) -> u64 {
    (u128::from(value) * 7 / 10) as u64
}

/// No bound.
pub(super) const INFINITE: u64 = u64::MAX;

/// The bounds and the signals that move them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    /// inflight_longterm.
    pub(super) inflight_long: u64,
    /// inflight_shortterm.
    pub(super) inflight_short: u64,
    /// bw_shortterm.
    pub(super) rate_short: u64,
    /// The greatest rate and volume delivered in this round of losses.
    rate_latest: u64,
    pub(super) inflight_latest: u64,
    /// The round of losses ends when something arrives that left after so many bytes had been delivered.
    round_end: u64,
    /// Whether the present ACK begins such a round.
    pub(super) round_starts: bool,
    /// Something was lost in it, or marked.
    pub(super) is_hurt: bool,
    /// In how many ACKs of it.
    pub(super) events: u8,
}

impl Bounds {
    pub(super) fn new() -> Self {
        Self {
            inflight_long: INFINITE,
            inflight_short: INFINITE,
            rate_short: INFINITE,
            rate_latest: 0,
            inflight_latest: 0,
            round_end: 0,
            round_starts: false,
            is_hurt: false,
            events: 0,
        }
    }

    /// UpdateLatestDeliverySignals.
    pub(super) fn on_delivery(&mut self, rate: u64, volume: u64, prior: u64, delivered: u64) {
        self.rate_latest = self.rate_latest.max(rate);
        self.inflight_latest = self.inflight_latest.max(volume);
        self.round_starts = prior >= self.round_end;
        if self.round_starts {
            self.round_end = delivered;
        }
    }

    /// AdvanceLatestDeliverySignals.
    pub(super) fn advance(&mut self, rate: u64, volume: u64) {
        if self.round_starts {
            (self.rate_latest, self.inflight_latest) = (rate, volume);
        }
    }

    /// NoteLoss. Says whether it is the first of its round.
    pub(super) fn note(&mut self, delivered: u64) -> bool {
        let is_first = !self.is_hurt;
        if is_first {
            self.round_end = delivered;
        }
        self.is_hurt = true;
        is_first
    }

    /// A round of losses ended while nobody probed: towards what was delivered, by three tenths at most.
    pub(super) fn lower(&mut self, max_rate: u64, window: u64) {
        if self.rate_short == INFINITE {
            self.rate_short = max_rate;
        }
        if self.inflight_short == INFINITE {
            self.inflight_short = window;
        }
        self.rate_short = self.rate_latest.max(beta(self.rate_short));
        self.inflight_short = self.inflight_latest.max(beta(self.inflight_short));
    }

    /// ResetShortTermModel.
    pub(super) fn forget_short(&mut self) {
        (self.rate_short, self.inflight_short) = (INFINITE, INFINITE);
    }

    /// ResetCongestionSignals.
    pub(super) fn forget_signals(&mut self) {
        (self.is_hurt, self.rate_latest, self.inflight_latest) = (false, 0, 0);
    }

    /// InflightWithHeadroom: fifteen percent are left to others.
    pub(super) fn with_headroom(&self, mss: u64, least: u64) -> u64 {
        if self.inflight_long == INFINITE {
            return INFINITE;
        }
        let headroom = (self.inflight_long / 100 * 15).max(mss);
        self.inflight_long.saturating_sub(headroom).max(least)
    }
}

/// IsInflightTooHigh: of `in_flight` bytes, `lost` were lost since they left.
pub(super) fn is_too_high(lost: u64, in_flight: u64, sack: bool) -> bool {
    lost.saturating_mul(LOSS_SHARE) > in_flight || (lost > 0 && !sack)
}

/// InflightAtLoss: at what volume did the share of losses cross the line, in the middle of a burst of `len` bytes?
pub(super) fn inflight_at_loss(in_flight: u64, lost: u64, len: u64) -> u64 {
    let (flight_before, lost_before) = (in_flight.saturating_sub(len), lost.saturating_sub(len));
    let prefix = flight_before.saturating_sub(LOSS_SHARE * lost_before) / (LOSS_SHARE - 1);
    flight_before + prefix.min(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_bounds_follow_deliveries_by_three_tenths_at_most() {
        let mut bounds = Bounds::new();
        bounds.on_delivery(400, 4_000, 0, 10_000);
        bounds.lower(1_000, 10_000);
        assert_eq!((bounds.rate_short, bounds.inflight_short), (700, 7_000));
        bounds.lower(1_000, 10_000);
        bounds.lower(1_000, 10_000);
        assert_eq!((bounds.rate_short, bounds.inflight_short), (400, 4_000));
        bounds.forget_short();
        assert_eq!(bounds.rate_short, INFINITE);
    }

    #[test]
    fn two_in_a_hundred_are_not_too_many() {
        assert!(!is_too_high(2_000, 100_000, true) && is_too_high(2_001, 100_000, true));
        assert!(!is_too_high(0, 0, false) && is_too_high(1, 100_000, false));
    }

    proptest! {
        /// §5.5.10.2: the volume lies within the burst, and there the share is the line, but for rounding.
        #[test]
        fn the_line_is_crossed_within_the_burst(
            in_flight in 10_000u64..10_000_000, len in 1_000u64..64_000, lost in 1_000u64..200_000,
        ) {
            prop_assume!(len <= lost && len < in_flight);
            let at = inflight_at_loss(in_flight, lost, len);
            prop_assert!(in_flight - len <= at && at <= in_flight);
            if at > in_flight - len && at < in_flight {
                let lost_there = lost - len + (at - (in_flight - len));
                prop_assert!(lost_there.abs_diff(at / LOSS_SHARE) <= 2);
            }
        }
    }
}
