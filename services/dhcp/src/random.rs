//! Chance for the clients' timers and transaction numbers: seeded by the caller, so that a run can be repeated.
//!
//! Used by `v4` and `v6`. Neither secrecy nor quality beyond an even spread is asked of it (SplitMix64).

use core::time::Duration;

/// A sequence of numbers that its seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Evenly from nothing to `most`.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(((u128::from(self.draw()) * (u128::from(most) + 1)) >> 64) as u64)
    }

    /// Evenly around `middle`, at most `by` away.
    pub(crate) fn around(&mut self, middle: Duration, by: Duration) -> Duration {
        (middle + self.up_to(by * 2)).saturating_sub(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_stays_within_its_bounds_and_reaches_both_halves() {
        let mut random = Random::new(1);
        let (middle, by) = (Duration::from_secs(4), Duration::from_secs(1));
        let drawn: Vec<_> = (0..200).map(|_| random.around(middle, by)).collect();
        assert!(drawn.iter().all(|it| *it >= middle - by && *it <= middle + by));
        assert!(drawn.iter().any(|it| *it < middle) && drawn.iter().any(|it| *it > middle));
    }
}
