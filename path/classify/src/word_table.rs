//! From a word to a flow: the rules of one set that pin no address.
//!
//! Asked for every frame of a VNIC with such rules (`rules.rs`), mostly for words that are not there. Open addressing
//! with linear probing in one array, at most half full: a lookup is a multiplication and, nearly always, one cache
//! line. Only the operator chooses what the table holds, so the hash needs no secret.

use firelane_units::FlowId;

/// Flows by word.
#[derive(Clone, Debug)]
pub(crate) struct WordTable {
    slots: Vec<Slot>,
    /// How far the mixed word is shifted to a place.
    shift: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    word: u64,
    flow: FlowId,
}

/// No rule's word: it has more bits than a rule pins.
const NOTHING: u64 = u64::MAX;
const EMPTY: Slot = Slot { word: NOTHING, flow: FlowId(u32::MAX) };
const SLOTS_LEAST: usize = 8;

impl WordTable {
    pub(crate) fn new() -> Self {
        Self::with_slots(SLOTS_LEAST)
    }

    fn with_slots(slots: usize) -> Self {
        Self { slots: vec![EMPTY; slots], shift: u64::BITS - slots.ilog2(), len: 0 }
    }

    /// How many words there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The flow of a word.
    #[inline]
    pub(crate) fn find(&self, word: u64) -> Option<FlowId> {
        let mut at = self.home(word);
        loop {
            let slot = self.slots[at & (self.slots.len() - 1)];
            if slot.word == word {
                return Some(slot.flow);
            }
            if slot.word == NOTHING {
                return None;
            }
            at += 1;
        }
    }

    /// Enters a word that is not in the table.
    pub(crate) fn insert(&mut self, word: u64, flow: FlowId) {
        debug_assert!(word != NOTHING && self.find(word).is_none());
        if (self.len + 1) * 2 > self.slots.len() {
            let larger = Self::with_slots(self.slots.len() * 2);
            let old = core::mem::replace(self, larger);
            old.slots.iter().filter(|slot| slot.word != NOTHING).for_each(|slot| self.place(*slot));
        }
        self.place(Slot { word, flow });
    }

    /// Removes a word; its flow, if it was there.
    pub(crate) fn remove(&mut self, word: u64) -> Option<FlowId> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(word) & mask;
        while self.slots[at].word != word {
            if self.slots[at].word == NOTHING {
                return None;
            }
            at = (at + 1) & mask;
        }
        let flow = self.slots[at].flow;
        self.len -= 1;
        // Who comes behind moves up, unless the free place is before its home: no probe ends too early.
        let mut next = (at + 1) & mask;
        while self.slots[next].word != NOTHING {
            let from_home = next.wrapping_sub(self.home(self.slots[next].word)) & mask;
            if from_home >= next.wrapping_sub(at) & mask {
                self.slots[at] = self.slots[next];
                at = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[at] = EMPTY;
        Some(flow)
    }

    /// Fibonacci hashing: the high bits of the product mix most.
    #[inline]
    const fn home(&self, word: u64) -> usize {
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(slot.word) & mask;
        while self.slots[at].word != NOTHING {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((any::<bool>(), 0u64..48), 0..300)) {
            let (mut table, mut model) = (WordTable::new(), HashMap::new());
            for (n, (adds, word)) in (0..).zip(steps) {
                // Few homes, so that words stand behind each other and around the end.
                let word = (word % 3) << 45 | word;
                if adds && !model.contains_key(&word) {
                    table.insert(word, FlowId(n));
                    model.insert(word, FlowId(n));
                } else {
                    prop_assert_eq!(table.remove(word), model.remove(&word));
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for word in (0..48).map(|word| (word % 3) << 45 | word) {
                prop_assert_eq!(table.find(word), model.get(&word).copied());
            }
        }
    }

    #[test]
    fn ports_in_a_row_spread() {
        let mut table = WordTable::new();
        (0..10_000u64).for_each(|port| table.insert(6 << 40 | port << 24, FlowId(port as u32)));
        let mask = table.slots.len() - 1;
        let used = table.slots.iter().enumerate().filter(|(_, slot)| slot.word != NOTHING);
        let worst = used.map(|(at, slot)| at.wrapping_sub(table.home(slot.word)) & mask).max();
        assert!(worst < Some(8), "{worst:?}");
    }
}
