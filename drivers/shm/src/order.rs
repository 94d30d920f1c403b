//! In which order a waiter was told of blocks, as far as that is known.
//!
//! A set of blocks (`bits.rs`) has no order, but Linux tells of the descriptors of an epoll set in the order in which they became ready,
//! and programs rely on it. So the first few that were told since the owner last looked stand here as well. They are hints: who dies
//! in between, or writes what he likes, changes an order, and nothing else. Used through [`crate::layout::Inbox`].

use crate::sync::{AtomicU32, Ordering};

/// So many have an order; what is told beyond comes by the numbers of blocks.
const KEPT: usize = 10;

/// The order.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Order {
    told: AtomicU32,
    /// Each one more than the number of a block; zero is none.
    first: [AtomicU32; KEPT],
}

impl Order {
    /// A block was told that had not been since the owner looked.
    #[inline]
    pub(crate) fn note(&self, block: u32) {
        // What is a hint to its reader would be as many states more to a model.
        if cfg!(loom) {
            return;
        }
        let at = self.told.fetch_add(1, Ordering::Relaxed) as usize;
        if let Some(place) = self.first.get(at) {
            place.store(block.wrapping_add(1), Ordering::Release);
        }
    }

    /// Owner, before it takes the blocks themselves: those that are known, the one that was told first before the others.
    pub(crate) fn take(&self) -> impl Iterator<Item = u32> {
        let told =
            if self.told.load(Ordering::Relaxed) == 0 { 0 } else { self.told.swap(0, Ordering::Relaxed) };
        let known = self.first.iter().take(told as usize);
        known.filter_map(|place| place.swap(0, Ordering::Acquire).checked_sub(1))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is told and taken in turn: the first come out as they came, and none twice.
        #[test]
        fn the_first_come_as_they_came(rounds in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..20), 0..20)) {
            let order = Order::default();
            for told in rounds {
                told.iter().for_each(|&block| order.note(block));
                let known: Vec<u32> = told.iter().copied().take(KEPT).filter(|&block| block != u32::MAX).collect();
                prop_assert_eq!(order.take().collect::<Vec<u32>>(), known);
            }
        }

        /// A program may write there what it likes.
        #[test]
        fn garbage_is_an_order_of_no_meaning(words in prop::array::uniform10(any::<u32>()), told in any::<u32>()) {
            let order = Order { told: AtomicU32::new(told), first: words.map(AtomicU32::new) };
            prop_assert!(order.take().count() <= KEPT);
            order.note(7);
            prop_assert_eq!(order.take().collect::<Vec<u32>>(), [7]);
        }
    }
}
