//! Where the entry of a tuple is: an open-addressing index into a slab that somebody else owns.
//!
//! Linear probing with backward-shift deletion. Each slot keeps the 32 bits of keyed hash that place it, so that
//! nothing is hashed again when the index grows or closes a gap. Used by `syn.rs`.

use crate::tuple::{KeyedHash, Tuple};

/// No position.
pub(crate) const NIL: u32 = u32::MAX;

/// The fewest slots of an index that has any.
const SLOTS_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: Tag,
    position: u32,
}

const EMPTY: Slot = Slot { tag: Tag(0), position: NIL };

/// The part of a tuple's keyed hash that places it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

/// An index of tuples, at most half full.
#[derive(Debug)]
pub(crate) struct TupleIndex {
    hash: KeyedHash,
    slots: Vec<Slot>,
    len: usize,
}

impl TupleIndex {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { hash: KeyedHash::new(key), slots: Vec::new(), len: 0 }
    }

    /// How many tuples it has.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn tag(&self, tuple: &Tuple) -> Tag {
        Tag(self.hash.of(tuple) as u32)
    }

    /// The position of the tuple with `tag` that `is_it` recognises.
    pub(crate) fn find(&self, tag: Tag, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(tag)?;
        loop {
            let Slot { tag: other, position } = self.slots[at];
            if position == NIL {
                return None;
            }
            if other == tag && is_it(position) {
                return Some(position);
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Adds a tuple that it does not have.
    pub(crate) fn insert(&mut self, tag: Tag, position: u32) {
        if (self.len + 1) * 2 > self.slots.len() {
            let larger = vec![EMPTY; (self.slots.len() * 2).max(SLOTS_MIN)];
            let old = core::mem::replace(&mut self.slots, larger);
            old.into_iter().filter(|slot| slot.position != NIL).for_each(|slot| self.put(slot));
        }
        self.put(Slot { tag, position });
        self.len += 1;
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.tag).unwrap_or(0);
        while self.slots[at].position != NIL {
            at = (at + 1) & self.mask();
        }
        self.slots[at] = slot;
    }

    /// Takes out what [`TupleIndex::insert`] put in.
    pub(crate) fn remove(&mut self, tag: Tag, position: u32) {
        let Some(mut hole) = self.home(tag) else { return };
        while self.slots[hole].position != position {
            if self.slots[hole].position == NIL {
                return;
            }
            hole = (hole + 1) & self.mask();
        }
        self.len -= 1;
        let mask = self.mask();
        self.slots[hole] = EMPTY;
        let mut probe = (hole + 1) & mask;
        while self.slots[probe].position != NIL {
            let home = self.slots[probe].tag.0 as usize & mask;
            // Whether the hole lies on the way from the slot's home to where it is.
            if (probe.wrapping_sub(home) & mask) >= (probe.wrapping_sub(hole) & mask) {
                self.slots[hole] = core::mem::replace(&mut self.slots[probe], EMPTY);
                hole = probe;
            }
            probe = (probe + 1) & mask;
        }
    }

    /// Gives its memory back if it holds nothing.
    pub(crate) fn shrink_if_empty(&mut self) {
        if self.len == 0 {
            self.slots = Vec::new();
        }
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    fn home(&self, tag: Tag) -> Option<usize> {
        (!self.slots.is_empty()).then(|| tag.0 as usize & self.mask())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The index against a map, with few tags, so that they collide and wrap around the end.
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((any::<bool>(), 0u32..40), 0..300)) {
            let mut index = TupleIndex::new([0; 16]);
            let mut model = BTreeMap::new();
            for (adds, position) in steps {
                let tag = Tag(u32::MAX - position % 7);
                if adds && model.insert(position, tag).is_none() {
                    index.insert(tag, position);
                } else if !adds && model.remove(&position).is_some() {
                    index.remove(tag, position);
                }
                prop_assert_eq!(index.len(), model.len());
                for position in 0..40 {
                    let found = index.find(Tag(u32::MAX - position % 7), |at| at == position);
                    prop_assert_eq!(found, model.contains_key(&position).then_some(position));
                }
            }
        }
    }
}
