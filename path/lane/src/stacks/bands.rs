//! Who has something to send, most urgent first: three bands, as Linux' usual queue has them (SO_PRIORITY; socket(7),
//! tc-pfifo_fast(8)).
//!
//! They are of one netstack: others have their turns beside it (`turns.rs`). Inside a band they have theirs one after the other. A
//! band waits as long as the one before it has somebody: what is urgent goes first where there is too much, in a turn of the lane,
//! at a limit that gives credit, and at a device that is free again. But not for ever.
//!
//! We differ: in Linux a band may wait for ever where a device has too much. Here what is urgent competes for the lane as well,
//! and ACKs, FINs and answers of all other programs of the netstack would wait with the text: so each band has one turn in sixteen.
//! Kept by `turns.rs` and `shard.rs`, and in the lines of those who wait for a limit (`limited.rs`).

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

/// How often a band in which somebody waits is passed over: little beside what is urgent, and within a millisecond or so a first byte
/// leaves.
const PASSED_OVER_MAX: u8 = 15;

/// Which band is served next: how often another one was since somebody of it was, or came.
#[derive(Debug, Default)]
pub(super) struct PassedOver([u8; Band::ALL.len()]);

impl PassedOver {
    /// The most urgent one of those in which somebody waits, unless another was passed over often enough.
    #[inline]
    pub(super) fn next(&mut self, waits: impl Fn(usize) -> bool) -> Option<usize> {
        let first = (0..Band::ALL.len()).find(|&band| waits(band))?;
        let is_due = |band: &usize| self.0[*band] >= PASSED_OVER_MAX;
        let behind = first + 1..Band::ALL.len();
        let served = behind.clone().filter(|&band| waits(band)).find(is_due).unwrap_or(first);
        for band in behind.filter(|&band| waits(band)) {
            self.0[band] = self.0[band].saturating_add(1);
        }
        self.0[served] = 0;
        Some(served)
    }
}

/// Those of each band.
#[derive(Debug)]
pub(crate) struct Bands<T> {
    waiting: [VecDeque<T>; Band::ALL.len()],
    passed_over: PassedOver,
}

impl<T> Default for Bands<T> {
    fn default() -> Self {
        Self { waiting: Band::ALL.map(|_| VecDeque::new()), passed_over: PassedOver::default() }
    }
}

impl<T> Bands<T> {
    /// Behind the others of its band.
    #[inline]
    pub(crate) fn push(&mut self, band: Band, item: T) {
        self.waiting[band as usize].push_back(item);
    }

    /// The most urgent one that has waited longest, unless another band was passed over often enough.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let Self { waiting, passed_over } = self;
        let served = passed_over.next(|band| !waiting[band].is_empty())?;
        waiting[served].pop_front()
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is put in and taken out meanwhile: nobody overtakes in a band; who is taken is of the first band that has
        /// anybody, or of one that has waited as often as is bearable; and none waits for longer.
        #[test]
        fn who_is_most_urgent_and_has_waited_longest_is_next(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0usize..3), 0..400),
        ) {
            let (mut bands, mut waiting) = (Bands::default(), Vec::new());
            let mut waited = [0; 3];
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(band) => {
                        bands.push(Band::ALL[band], number);
                        waiting.push((band, number));
                    }
                    None => {
                        let next = bands.pop();
                        let at = waiting.iter().position(|&(_, number)| Some(number) == next);
                        prop_assert_eq!(at.is_none(), waiting.is_empty());
                        let Some((band, number)) = at.map(|at| waiting.remove(at)) else { continue };
                        prop_assert!(waiting.iter().all(|&it| it.0 != band || it.1 > number), "it has waited longest");
                        let is_first = waiting.iter().all(|it| it.0 >= band);
                        prop_assert!(is_first || waited[band] >= PASSED_OVER_MAX, "{waited:?}");
                        let has = |band: usize| waiting.iter().any(|it| it.0 == band);
                        for (other, waited) in waited.iter_mut().enumerate() {
                            *waited = if other != band && has(other) { *waited + 1 } else { 0 };
                        }
                        // Both of the others may have waited for as long.
                        prop_assert!(waited.iter().all(|&it| it <= PASSED_OVER_MAX + 1), "{waited:?}");
                    }
                }
                prop_assert_eq!(bands.len(), waiting.len());
            }
        }
    }

    #[test]
    fn what_is_urgent_goes_first_and_others_have_a_turn_in_sixteen() {
        let mut bands = Bands::default();
        bands.push(Band::Bulk, "bulk");
        bands.push(Band::Usual, "usual");
        let mut served = [0; 3];
        for _ in 0..161 {
            bands.push(Band::Urgent, "urgent");
            let next = bands.pop().unwrap();
            let band = ["urgent", "usual", "bulk"].iter().position(|&it| it == next).unwrap();
            served[band] += 1;
            if band > 0 {
                bands.push(Band::ALL[band], next);
            }
        }
        assert_eq!(served, [141, 10, 10]);
    }
}
