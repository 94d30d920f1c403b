//! The seed's generator: everything that a simulation chooses comes from here.
//!
//! SplitMix64, as the wires use it. Parts of a scenario fork a generator of their own, so that one more draw in
//! one part leaves the others as they were.

use core::ops::Range;
use core::time::Duration;

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A generator of its own for one part.
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }

    /// Below `bound`; zero if that is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Within `range`.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// A size whose magnitude is spread evenly: as many below 100 as above 10,000.
    pub fn size(&mut self, range: Range<u64>) -> u64 {
        let least = range.start.max(1).ilog2();
        let most = range.end.max(2).ilog2();
        let magnitude = self.within(least.into()..u64::from(most) + 1);
        let drawn = (1 << magnitude) + self.below(1 << magnitude);
        drawn.clamp(range.start, range.end - 1)
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A span of whole microseconds.
    pub fn micros(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.within(range))
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bytes of a stream: each is a function of the stream's seed and its place, so that any reader can tell
/// whether it got the right one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern(pub u64);

impl Pattern {
    /// Fills `bytes` with what belongs at `at`.
    pub fn fill(self, at: u64, bytes: &mut [u8]) {
        let mut place = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let word = mix(self.0 ^ (place / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
            let from = (place % 8) as usize;
            let count = rest.len().min(8 - from);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&word[from..from + count]);
            place = place.wrapping_add(count as u64);
            rest = later;
        }
    }

    /// Where the first byte is that does not belong at its place, if `bytes` begin at `at`.
    pub fn first_wrong(self, at: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; 512];
        for (n, chunk) in bytes.chunks(expected.len()).enumerate() {
            let start = at.wrapping_add((n * expected.len()) as u64);
            self.fill(start, &mut expected[..chunk.len()]);
            if let Some(wrong) = chunk.iter().zip(&expected).position(|(a, b)| a != b) {
                return Some(start + wrong as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_same_however_it_is_cut() {
        let pattern = Pattern(7);
        let mut whole = [0; 1000];
        pattern.fill(13, &mut whole);
        let mut random = Random::new(3);
        let mut at = 0;
        while at < whole.len() {
            let len = random.within(1..40).min((whole.len() - at) as u64) as usize;
            let mut part = vec![0; len];
            pattern.fill(13 + at as u64, &mut part);
            assert_eq!(part, whole[at..at + len]);
            at += len;
        }
        assert_eq!(pattern.first_wrong(13, &whole), None);
        whole[700] ^= 1;
        assert_eq!(pattern.first_wrong(13, &whole), Some(713));
        assert!(Pattern(8).first_wrong(13, &whole).is_some(), "another stream");
    }

    #[test]
    fn draws_stay_in_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..2000).map(|_| random.within(3..6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
        let sizes: Vec<u64> = (0..2000).map(|_| random.size(10..100_000)).collect();
        assert!(sizes.iter().all(|size| (10..100_000).contains(size)));
        assert!(sizes.iter().filter(|&&size| size < 1000).count() > 600);
        assert!(sizes.iter().filter(|&&size| size > 10_000).count() > 300);
    }
}
