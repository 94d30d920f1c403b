//! A set of blocks in three levels, filled by many and emptied by one, at home in memory that both ends see.
//!
//! A bit above says that the word below may have bits. Rules:
//! - R1. Who adds sets the lowest level first and then looks at *each* level above, whatever he found below:
//!   somebody may have died between two of them.
//! - R2. Who takes clears a level before he reads the one below. All of it is in one order (SeqCst), so a bit that he
//!   does not see below was set by somebody who will see the level above cleared, and set it again.
//!
//! Used by lanes and waiters through [`crate::layout::Inbox`].

use crate::layout::BLOCKS_MAX;
use crate::sync::{AtomicU64, Ordering};

/// Words of the lowest level; few in models.
const LEAVES: usize = if cfg!(loom) { 2 } else { (BLOCKS_MAX / 64) as usize };
/// Words of the middle level: one bit of the highest for each.
const BRANCHES: usize = LEAVES.div_ceil(64);

/// So many words [`Bits::take_near`] looks at in vain, and what is left is for the next time: who sets bits above without any below keeps a
/// lane for these alone. Mostly it is none.
const VAIN_MAX: usize = 128;

/// A set of blocks.
#[repr(C)]
#[derive(Debug)]
pub struct Bits {
    top: AtomicU64,
    _rest: [u64; 7],
    middle: [AtomicU64; BRANCHES],
    leaves: [AtomicU64; LEAVES],
}

impl Default for Bits {
    fn default() -> Self {
        Self {
            top: AtomicU64::new(0),
            _rest: [0; 7],
            middle: core::array::from_fn(|_| AtomicU64::new(0)),
            leaves: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Bits {
    /// Adds a block; whether it was not there. One that no arena has is left out.
    pub fn set(&self, block: u32) -> bool {
        let (leaf, branch, bit) = (block as usize / 64, block as usize / 64 / 64, 1 << (block % 64));
        let Some(word) = self.leaves.get(leaf) else { return false };
        let is_new = word.fetch_or(bit, Ordering::SeqCst) & bit == 0;
        add(&self.middle[branch], 1 << (leaf % 64));
        add(&self.top, 1 << branch);
        is_new
    }

    /// Whether there may be any.
    #[inline]
    pub fn any(&self) -> bool {
        self.top.load(Ordering::SeqCst) != 0
    }

    /// Takes up to 64 blocks out: the number of the first, and a bit for each from there on. A caller who must not be
    /// kept for ever by those who add counts its calls, or takes [`Bits::take_words`].
    pub fn take_word(&self) -> Option<(u32, u64)> {
        // Whoever sets bits above without any below is met by each of them once.
        self.take_word_within(LEAVES + BRANCHES + 1)
    }

    /// The same for who has others to look at: where there is none there may be more all the same ([`Bits::any`]), if 128 bits above
    /// had none below.
    pub fn take_near(&self) -> Option<(u32, u64)> {
        self.take_word_within(VAIN_MAX)
    }

    fn take_word_within(&self, looks: usize) -> Option<(u32, u64)> {
        for _ in 0..looks {
            let top = self.top.load(Ordering::SeqCst);
            if top == 0 {
                return None;
            }
            let branch = top.trailing_zeros() as usize;
            let middle = self.middle[branch].load(Ordering::SeqCst);
            if middle == 0 {
                self.top.fetch_and(!(1 << branch), Ordering::SeqCst);
                if self.middle[branch].load(Ordering::SeqCst) != 0 {
                    self.top.fetch_or(1 << branch, Ordering::SeqCst);
                }
                continue;
            }
            let leaf = branch * 64 + middle.trailing_zeros() as usize;
            self.middle[branch].fetch_and(!(1 << (leaf % 64)), Ordering::SeqCst);
            let bits = self.leaves[leaf].swap(0, Ordering::SeqCst);
            if bits != 0 {
                return Some((leaf as u32 * 64, bits));
            }
        }
        None
    }

    /// Takes out what there is, as [`Bits::take_word`] does; of what others go on adding meanwhile as many words at most as there are.
    pub fn take_words(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..LEAVES).map_while(|_| self.take_word())
    }
}

/// Which bits of a word are set, from the lowest on.
#[inline]
pub fn set_bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

/// Sets a bit above unless it is set (R1).
#[inline]
fn add(word: &AtomicU64, bit: u64) {
    if word.load(Ordering::SeqCst) & bit == 0 {
        word.fetch_or(bit, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn take_all(bits: &Bits) -> Vec<u32> {
        let mut all = Vec::new();
        for (first, word) in bits.take_words() {
            all.extend((0..64).filter(|n| word >> n & 1 != 0).map(|n| first + n));
        }
        all
    }

    proptest! {
        #[test]
        fn what_is_added_is_taken_once(blocks in prop::collection::vec(0..BLOCKS_MAX, 0..200)) {
            let bits = Box::<Bits>::default();
            for &block in &blocks {
                bits.set(block);
            }
            let expected: Vec<u32> = BTreeSet::from_iter(blocks).into_iter().collect();
            prop_assert_eq!(bits.any(), !expected.is_empty());
            prop_assert_eq!(take_all(&bits), expected);
            prop_assert!(!bits.any());
        }
    }

    #[test]
    fn who_adds_without_an_end_keeps_nobody() {
        let bits = Box::<Bits>::default();
        (0..BLOCKS_MAX).for_each(|block| _ = bits.set(block));
        let taken = bits.take_words().inspect(|&(first, _)| assert!(bits.set(first))).count();
        assert_eq!((taken, bits.any()), (LEAVES, true));
    }

    #[test]
    fn a_block_of_no_arena_is_left_out() {
        let bits = Box::<Bits>::default();
        bits.set(BLOCKS_MAX);
        bits.set(u32::MAX);
        assert_eq!(take_all(&bits), []);
    }

    #[test]
    fn bits_above_without_any_below_end() {
        let bits = Box::<Bits>::default();
        bits.top.store(u64::MAX, Ordering::Relaxed);
        bits.middle.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        bits.leaves[77].store(1, Ordering::Relaxed);
        assert_eq!(take_all(&bits), [77 * 64]);
        assert!(!bits.any());
    }

    #[test]
    fn who_died_between_two_levels_is_made_good_by_the_next() {
        for level in 0..2 {
            let bits = Box::<Bits>::default();
            bits.leaves[0].store(1, Ordering::Relaxed);
            if level == 1 {
                bits.middle[0].store(1, Ordering::Relaxed);
            }
            assert!(!bits.any());
            bits.set(1);
            assert_eq!(take_all(&bits), [0, 1]);
        }
    }

    #[test]
    fn whoever_sets_bits_above_without_any_below_is_looked_at_for_a_while() {
        let bits = Box::<Bits>::default();
        bits.set(BLOCKS_MAX - 1);
        bits.middle.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        bits.top.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(bits.take_near(), None, "the rest is for the next time");
        let mut times = 0;
        let found = (0..1000).find_map(|_| {
            times += 1;
            assert!(bits.any());
            bits.take_near()
        });
        assert_eq!(found, Some((BLOCKS_MAX - 64, 1 << 63)));
        assert!((20..100).contains(&times), "{times}");
        assert!(bits.take_near().is_none() && !bits.any());
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        const ROUNDS: u32 = 20_000;
        let bits = Box::<Bits>::default();
        let taken = std::thread::scope(|scope| {
            for part in 0..2u32 {
                let bits = &bits;
                scope.spawn(move || (0..ROUNDS).for_each(|n| _ = bits.set((n * 2 + part) * 6)));
            }
            let mut taken = 0;
            while taken < 2 * ROUNDS {
                match bits.take_word() {
                    Some((_, word)) => taken += word.count_ones(),
                    None => std::thread::yield_now(),
                }
            }
            taken
        });
        assert_eq!((taken, bits.take_word()), (2 * ROUNDS, None));
    }
}
