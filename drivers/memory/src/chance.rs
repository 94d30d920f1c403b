//! Chances, and the seeded generator that decides them.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood 2014): one addition and a mix, good enough to choose which
//! frame is lost, and the same on every machine.

use core::time::Duration;

/// How likely something is, from never to always.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Chance(u64);

/// A chance of one.
const CERTAIN: u64 = 1 << 32;

impl Chance {
    /// It does not happen.
    pub const NEVER: Self = Self(0);
    /// It happens every time.
    pub const ALWAYS: Self = Self(CERTAIN);

    /// Between 0 and 1; what lies outside is brought to the nearer end.
    pub fn of(probability: f64) -> Self {
        Self((probability.clamp(0.0, 1.0) * CERTAIN as f64) as u64)
    }

    /// Between 0 and 100; what lies outside is brought to the nearer end.
    pub fn percent(percent: f64) -> Self {
        Self::of(percent / 100.0)
    }

    /// Once in `n`; never if `n` is zero.
    pub const fn one_in(n: u32) -> Self {
        if n == 0 { Self::NEVER } else { Self(CERTAIN / n as u64) }
    }

    /// Between 0 and 1.
    pub fn probability(self) -> f64 {
        self.0 as f64 / CERTAIN as f64
    }
}

/// A seeded generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is above zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws only if the outcome is open, so that a fault that is off leaves the others' sequence alone.
    pub(crate) fn happens(&mut self, chance: Chance) -> bool {
        match chance {
            Chance::NEVER => false,
            Chance::ALWAYS => true,
            Chance(threshold) => (self.next() >> 32) < threshold,
        }
    }

    /// Between zero and `most`, both included.
    pub(crate) fn duration_up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        if nanos == 0 { Duration::ZERO } else { Duration::from_nanos(self.below(nanos.saturating_add(1))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first outputs of the reference implementation for seed 1234567.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.next(), random.next(), random.next()], expected);
    }

    #[test]
    fn chances_come_true_as_often_as_they_say() {
        let mut random = Random::new(7);
        for (chance, least, most) in [
            (Chance::NEVER, 0, 0),
            (Chance::ALWAYS, 10_000, 10_000),
            (Chance::percent(50.0), 4_800, 5_200),
            (Chance::one_in(100), 60, 140),
            (Chance::of(-3.0), 0, 0),
            (Chance::of(9.0), 10_000, 10_000),
        ] {
            let happened = (0..10_000).filter(|_| random.happens(chance)).count();
            assert!((least..=most).contains(&happened), "{chance:?}: {happened}");
        }
    }

    #[test]
    fn durations_stay_in_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let drawn: Vec<u128> =
            (0..200).map(|_| random.duration_up_to(Duration::from_nanos(3)).as_nanos()).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&3)));
        assert_eq!(random.duration_up_to(Duration::ZERO), Duration::ZERO);
    }
}
