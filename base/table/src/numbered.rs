//! What has a number that nothing else ever gets, found by it.
//!
//! Who gives numbers without end, as an engine does to its sockets, has soon given more than memory has room for; what is kept here takes
//! as much as there is of it at once. Used by `path/lane` for listeners and datagram sockets, and by `path/tcp` for what listeners have
//! half open.

use core::cell::Cell;

use crate::Index;

/// Values by number.
#[derive(Debug)]
pub struct Numbered<T> {
    places: Vec<Option<(u32, T)>>,
    free: Vec<u32>,
    index: Index,
    /// The place that was found last: who asks for one asks for it several times.
    last: Cell<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), index: Index::default(), last: Cell::new(0) }
    }
}

/// Numbers come one after the other, and nobody outside chooses them.
#[inline]
const fn hash(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b9)
}

impl<T> Numbered<T> {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// What has this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let place = self.find(number)?;
        Some(&self.places.get(place as usize)?.as_ref()?.1)
    }

    /// What has this number, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.find(number)?;
        Some(&mut self.places.get_mut(place as usize)?.as_mut()?.1)
    }

    /// Puts a value in; gives it back if another one has its number.
    ///
    /// # Errors
    /// The number is taken.
    pub fn insert(&mut self, number: u32, value: T) -> Result<(), T> {
        if self.find(number).is_some() {
            return Err(value);
        }
        self.enter(number, value);
        Ok(())
    }

    /// What has this number, or `value`, which has it from here on.
    pub fn get_or_insert(&mut self, number: u32, value: T) -> &mut T {
        let place = match self.find(number) {
            Some(place) => place,
            None => self.enter(number, value),
        };
        let (_, value) = self.places[place as usize].as_mut().expect("it was found or put there");
        value
    }

    /// Takes out what has this number. All memory goes with the last one.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.find(number)?;
        let (_, value) = self.places.get_mut(place as usize)?.take()?;
        self.index.remove(hash(number), place);
        match self.index.is_empty() {
            true => *self = Self::default(),
            false => self.free.push(place),
        }
        Some(value)
    }

    /// How many places there are, empty ones included: as many as there were values at once.
    pub const fn places(&self) -> usize {
        self.places.len()
    }

    /// What stands in the `nth` place, and its number. As long as it is there it stands in the same.
    pub fn at(&self, nth: usize) -> Option<(u32, &T)> {
        self.places.get(nth)?.as_ref().map(|(number, value)| (*number, value))
    }

    /// All of them with their numbers, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().flatten().map(|(number, value)| (*number, value))
    }

    fn enter(&mut self, number: u32, value: T) -> u32 {
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some((number, value));
                place
            }
            None => {
                self.places.push(Some((number, value)));
                self.places.len() as u32 - 1
            }
        };
        self.index.insert(hash(number), place);
        self.last.set(place);
        place
    }

    #[inline]
    fn find(&self, number: u32) -> Option<u32> {
        let last = self.last.get();
        if self.is_at(last, number) {
            return Some(last);
        }
        let found = self.index.find(hash(number), |place| self.is_at(place, number))?;
        self.last.set(found);
        Some(found)
    }

    #[inline]
    fn is_at(&self, place: u32, number: u32) -> bool {
        matches!(self.places.get(place as usize), Some(Some((its, _))) if *its == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0u8..4, 0u32..12, any::<u16>()), 0..300)) {
            let (mut table, mut model) = (Numbered::default(), BTreeMap::new());
            for (step, which, value) in steps {
                let number = number_of(which);
                match step {
                    0 => {
                        let is_taken = model.contains_key(&number);
                        prop_assert_eq!(table.insert(number, value), if is_taken { Err(value) } else { Ok(()) });
                        model.entry(number).or_insert(value);
                    }
                    1 => prop_assert_eq!(table.remove(number), model.remove(&number)),
                    2 => prop_assert_eq!(table.get_or_insert(number, value), model.entry(number).or_insert(value)),
                    _ => {
                        table.get_mut(number).into_iter().for_each(|it| *it = value);
                        model.get_mut(&number).into_iter().for_each(|it| *it = value);
                    }
                }
                prop_assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
                prop_assert!((0..12).map(number_of).all(|number| table.get(number) == model.get(&number)));
                let mut all: Vec<_> = table.iter().map(|(number, it)| (number, *it)).collect();
                let by_place = (0..table.places()).filter_map(|nth| table.at(nth)).map(|(number, it)| (number, *it));
                prop_assert!(by_place.eq(all.iter().copied()));
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(model.iter().map(|(number, it)| (*number, *it))));
                prop_assert!(table.places() <= 12);
            }
        }
    }

    /// Neighbours, and numbers as far from each other as there are.
    fn number_of(which: u32) -> u32 {
        if which < 8 { which } else { u32::MAX - which }
    }

    #[test]
    fn what_comes_and_goes_leaves_nothing() {
        let mut table = Numbered::default();
        table.insert(7, 0).unwrap();
        for number in 100..100_000 {
            table.insert(number, number).unwrap();
            assert_eq!((table.get(7).copied(), table.remove(number)), (Some(0), Some(number)));
        }
        assert_eq!((table.places(), table.len()), (2, 1));
        assert_eq!((table.remove(7), table.places()), (Some(0), 0));
    }
}
