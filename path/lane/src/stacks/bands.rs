//! Who has something to send, most urgent first: three bands, as Linux' usual queue has them (SO_PRIORITY; socket(7),
//! tc-pfifo_fast(8)).
//!
//! Inside a band they have their turns one after the other. A band waits as long as the one before it has somebody: what is
//! urgent goes first where there is too much, in a turn of the lane, at a limit that gives credit, and at a device that
//! is free again. Kept by `conn.rs` and `shard.rs`.

use std::collections::VecDeque;

/// How urgent what a socket sends is (SO_PRIORITY).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Band {
    /// Before all others: who types, and who steers.
    Urgent,
    /// As it is without a choice.
    #[default]
    Usual,
    /// When nobody else has anything.
    Bulk,
}

impl Band {
    /// All of them, most urgent first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Usual, Self::Bulk];
}

/// Those of each band.
#[derive(Debug)]
pub(crate) struct Bands<T>([VecDeque<T>; Band::ALL.len()]);

impl<T> Default for Bands<T> {
    fn default() -> Self {
        Self(Band::ALL.map(|_| VecDeque::new()))
    }
}

impl<T> Bands<T> {
    /// Behind the others of its band.
    #[inline]
    pub(crate) fn push(&mut self, band: Band, item: T) {
        self.0[band as usize].push_back(item);
    }

    /// The most urgent one that has waited longest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.iter_mut().find_map(VecDeque::pop_front)
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is put in and taken out meanwhile: nobody overtakes in a band, and who is taken is of the first band
        /// that has anybody.
        #[test]
        fn who_is_most_urgent_and_has_waited_longest_is_next(
            steps in prop::collection::vec(prop::option::of(0usize..3), 0..200),
        ) {
            let (mut bands, mut waiting) = (Bands::default(), Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(band) => {
                        bands.push(Band::ALL[band], number);
                        waiting.push((band, number));
                    }
                    None => {
                        let next = waiting.iter().min().copied();
                        waiting.retain(|it| Some(*it) != next);
                        prop_assert_eq!(bands.pop(), next.map(|(_, number)| number));
                    }
                }
                prop_assert_eq!(bands.len(), waiting.len());
            }
        }
    }
}
