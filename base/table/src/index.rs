//! From the hash of a state's names to its place. Used by `path/classify` for connections, by `path/filter` and `path/nat`.
//!
//! Open addressing with linear probing in one array, at most half full, so that where a hash leads to is known before
//! anything was read, and can be fetched for several packets together ([`Index::touch`]), for which a library's table has no
//! call. The hash has a secret, so peers cannot aim at a place.

use firelane_frame::{prefer_large_pages, read_ahead};

/// Places by hash.
#[derive(Clone, Debug, Default)]
pub struct Index {
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    hash: u32,
    at: u32,
}

/// No state's place.
const NOWHERE: u32 = u32::MAX;
const EMPTY: Slot = Slot { hash: 0, at: NOWHERE };
const SLOTS_LEAST: usize = 8;

/// So many that lead nowhere.
fn empty(slots: usize) -> Vec<Slot> {
    let mut empty = Vec::with_capacity(slots);
    prefer_large_pages(&mut empty);
    empty.resize(slots, EMPTY);
    empty
}

impl Index {
    /// An empty one that takes so many without being moved.
    pub fn with_room(places: usize) -> Self {
        let slots = if places == 0 { 0 } else { (places * 2).next_power_of_two().max(SLOTS_LEAST) };
        Self { slots: empty(slots), len: 0 }
    }

    /// How many places it leads to.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it leads nowhere.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where a hash leads to, by its upper bits.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> u32::BITS) as usize
    }

    /// Begins to fetch what a search for `hash` begins with.
    #[inline]
    pub fn touch(&self, hash: u32) {
        self.slots.get(self.home(hash)).iter().for_each(|slot| read_ahead(*slot));
    }

    /// The first place under `hash` of which `is_it` says so.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut nth = self.home(hash);
        loop {
            let slot = self.slots.get(nth)?;
            if slot.at == NOWHERE {
                return None;
            }
            if slot.hash == hash && is_it(slot.at) {
                return Some(slot.at);
            }
            nth = self.behind(nth);
        }
    }

    /// What stands in the `nth` slot: `None` behind the last one, `Some(None)` where nothing stands. As long as nothing is entered, who
    /// goes through the slots in their order, and takes out what stands there before it goes on, meets everything.
    pub fn slot(&self, nth: usize) -> Option<Option<u32>> {
        self.slots.get(nth).map(|slot| (slot.at != NOWHERE).then_some(slot.at))
    }

    /// Enters a place that is not in it.
    pub fn insert(&mut self, hash: u32, at: u32) {
        if (self.len + 1) * 2 > self.slots.len() {
            let slots = (self.slots.len() * 2).max(SLOTS_LEAST);
            let old = core::mem::replace(&mut self.slots, empty(slots));
            old.into_iter().filter(|slot| slot.at != NOWHERE).for_each(|slot| self.put(slot));
        }
        self.put(Slot { hash, at });
        self.len += 1;
    }

    /// Takes a place out. Whether it was in.
    pub fn remove(&mut self, hash: u32, at: u32) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let mut free = self.home(hash);
        while self.slots[free] != (Slot { hash, at }) {
            if self.slots[free].at == NOWHERE {
                return false;
            }
            free = self.behind(free);
        }
        self.len -= 1;
        // Who comes behind moves up, unless the free place is before its home: no search ends too early.
        let mask = self.slots.len() - 1;
        let mut next = self.behind(free);
        while self.slots[next].at != NOWHERE {
            let from_home = next.wrapping_sub(self.home(self.slots[next].hash)) & mask;
            if from_home >= next.wrapping_sub(free) & mask {
                self.slots[free] = self.slots[next];
                free = next;
            }
            next = self.behind(next);
        }
        self.slots[free] = EMPTY;
        true
    }

    /// The bytes that it takes.
    pub fn allocated_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    fn behind(&self, nth: usize) -> usize {
        (nth + 1) & (self.slots.len() - 1)
    }

    fn put(&mut self, slot: Slot) {
        let mut nth = self.home(slot.hash);
        while self.slots[nth].at != NOWHERE {
            nth = self.behind(nth);
        }
        self.slots[nth] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((any::<bool>(), 0..4_u32, 0..12_u32), 0..300)) {
            let (mut index, mut model) = (Index::default(), HashSet::new());
            // Few hashes, at both ends of the table, so that places stand behind each other and around the end.
            let hash = |which: u32| [0, 1, u32::MAX, u32::MAX - 1][which as usize];
            for (adds, which, at) in steps {
                if adds && model.insert((which, at)) {
                    index.insert(hash(which), at);
                } else if !adds {
                    let was_in = model.remove(&(which, at));
                    prop_assert_eq!(index.remove(hash(which), at), was_in);
                }
                prop_assert_eq!((index.len(), index.is_empty()), (model.len(), model.is_empty()));
                for which in 0..4 {
                    let found = |at| index.find(hash(which), |its| its == at) == Some(at);
                    prop_assert!((0..12).all(|at| found(at) == model.contains(&(which, at))));
                    index.touch(hash(which));
                }
            }
        }
    }

    proptest! {
        /// Whoever moves up behind what is taken out moves to a slot that is still to be looked at.
        #[test]
        fn who_takes_out_what_stands_in_each_slot_meets_all(hashes in prop::collection::vec(0..6_u32, 0..200)) {
            // Few homes, some of them at the end of the table, so that many stand behind each other and around the end.
            let hash = |which: u32| if which < 3 { which } else { u32::MAX - which };
            let mut index = Index::default();
            hashes.iter().zip(0..).for_each(|(&which, at)| index.insert(hash(which), at));
            let (mut nth, mut met) = (0, HashSet::new());
            while let Some(slot) = index.slot(nth) {
                let Some(at) = slot else {
                    nth += 1;
                    continue;
                };
                prop_assert!(met.insert(at) && index.remove(hash(hashes[at as usize]), at));
            }
            prop_assert!(met.len() == hashes.len() && index.is_empty());
        }
    }

    #[test]
    fn what_has_room_is_not_moved() {
        for places in [0, 1, 3, 4, 5, 1000] {
            let mut index = Index::with_room(places);
            let bytes = index.allocated_bytes();
            (0..places as u32).for_each(|n| index.insert(n.wrapping_mul(0x9e37_79b9), n));
            assert_eq!(index.allocated_bytes(), bytes, "{places}");
        }
    }

    #[test]
    fn hashes_spread_over_the_whole_table() {
        let mut index = Index::default();
        (0..1000_u32).for_each(|n| index.insert(n.wrapping_mul(0x9e37_79b9), n));
        let mask = index.slots.len() - 1;
        let used = index.slots.iter().enumerate().filter(|(_, slot)| slot.at != NOWHERE);
        let worst = used.map(|(nth, slot)| nth.wrapping_sub(index.home(slot.hash)) & mask).max();
        assert!(worst < Some(8), "{worst:?}");
    }
}
