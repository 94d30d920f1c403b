//! What has a number from a mint, found by it.
//!
//! A [`Mint`] numbers what comes and goes without end, as an engine does its links, flows and netstacks. Its numbers only rise: one that is
//! gone is nobody else's for long, so what is still under way to it meets nobody. Who kept a place for each number there ever was would
//! need more memory from day to day; therefore the mint passes over numbers whose lower bits are those of one in use. As many of these
//! bits as tell apart what there is at once are the place in a [`Minted`] table: it is found with one index, and nothing is left of what
//! has gone.
//!
//! The engine owns mints; `path/lane` keeps ports, switches, guards, netstacks and places of flows in such tables, and `path/flow` its flows.

use core::mem;

/// Places of a mint that is new.
const PLACES_LEAST: usize = 16;

/// Gives numbers, each once until all have been given.
#[derive(Debug)]
pub struct Mint {
    next: u32,
    end: u32,
    /// What is in use, by as many lower bits as tell it apart: a power of two, of which a quarter is free.
    places: Vec<Option<u32>>,
    used: usize,
}

impl Mint {
    /// One that gives numbers below `end`.
    pub const fn below(end: u32) -> Self {
        Self { next: 0, end, places: Vec::new(), used: 0 }
    }

    /// The next number that differs from all in use where tables look; as long as nothing goes, that is the one after the last. None
    /// if all are in use.
    pub fn mint(&mut self) -> Option<u32> {
        // Zero is the very first one's, and nobody's later.
        if self.used + 1 >= self.end as usize {
            return None;
        }
        if (self.used + 1) * 4 > self.places.len() * 3 {
            self.grow();
        }
        loop {
            let number = self.next;
            self.next = if number + 1 < self.end { number + 1 } else { 1 };
            let place = self.place_of(number);
            if self.places[place].is_none() {
                self.places[place] = Some(number);
                self.used += 1;
                return Some(number);
            }
        }
    }

    /// What had this number is gone from all tables.
    pub fn give_back(&mut self, number: u32) {
        let place = self.place_of(number);
        if let Some(its) = self.places.get_mut(place)
            && its.take_if(|its| *its == number).is_some()
        {
            self.used -= 1;
        }
    }

    fn place_of(&self, number: u32) -> usize {
        number as usize & self.places.len().wrapping_sub(1)
    }

    fn grow(&mut self) {
        let len = (self.places.len() * 2).max(PLACES_LEAST);
        let before = mem::replace(&mut self.places, vec![None; len]);
        for number in before.into_iter().flatten() {
            let place = self.place_of(number);
            self.places[place] = Some(number);
        }
    }
}

/// Values by numbers of a mint. With any others it has as many places as it takes to tell these apart by their lower bits.
#[derive(Debug)]
pub struct Minted<T> {
    /// A power of two of them, or none.
    places: Vec<Option<(u32, T)>>,
    used: usize,
}

impl<T> Default for Minted<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Minted<T> {
    /// Without any.
    pub const fn new() -> Self {
        Self { places: Vec::new(), used: 0 }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// What has this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.places.get(self.place_of(number)) {
            Some(Some((its, value))) if *its == number => Some(value),
            _ => None,
        }
    }

    /// What has this number, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.place_of(number);
        match self.places.get_mut(place) {
            Some(Some((its, value))) if *its == number => Some(value),
            _ => None,
        }
    }

    /// Puts a value in; gives it back if another one has its number.
    ///
    /// # Errors
    /// The number is taken.
    pub fn insert(&mut self, number: u32, value: T) -> Result<(), T> {
        if self.get(number).is_some() {
            return Err(value);
        }
        self.enter(number, value);
        Ok(())
    }

    /// What has this number, or its default, which it has from here on.
    pub fn get_or_default(&mut self, number: u32) -> &mut T
    where
        T: Default,
    {
        if self.get(number).is_none() {
            self.enter(number, T::default());
        }
        self.get_mut(number).expect("it is there, or was put there")
    }

    /// Takes out what has this number. All memory goes with the last one.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.place_of(number);
        let (_, value) = self.places.get_mut(place)?.take_if(|(its, _)| *its == number)?;
        self.used -= 1;
        if self.used == 0 {
            *self = Self::new();
        }
        Some(value)
    }

    /// The place of a number, whether it is there or not. Places are others when one more number needs more of them.
    #[inline]
    pub const fn place_of(&self, number: u32) -> usize {
        number as usize & self.places.len().wrapping_sub(1)
    }

    /// How many places there are, empty ones included.
    pub const fn places(&self) -> usize {
        self.places.len()
    }

    /// What its places take.
    pub const fn allocated_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<(u32, T)>>()
    }

    /// What stands in the `nth` place, and its number. It stands in the same until another is put in.
    pub fn at(&self, nth: usize) -> Option<(u32, &T)> {
        self.places.get(nth)?.as_ref().map(|(number, value)| (*number, value))
    }

    /// The same, to be changed.
    #[inline]
    pub fn at_mut(&mut self, nth: usize) -> Option<&mut T> {
        self.places.get_mut(nth)?.as_mut().map(|(_, value)| value)
    }

    /// All of them with their numbers, in the order of their places.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().flatten().map(|(number, value)| (*number, value))
    }

    /// All of them, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries().map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten().map(|(_, value)| value)
    }

    fn enter(&mut self, number: u32, value: T) {
        while self.places.get(self.place_of(number)).is_none_or(Option::is_some) {
            self.grow();
        }
        let place = self.place_of(number);
        self.places[place] = Some((number, value));
        self.used += 1;
    }

    /// What differs in its lower bits does so in one more of them.
    fn grow(&mut self) {
        let len = (self.places.len() * 2).max(1);
        let mut places = Vec::with_capacity(len);
        places.resize_with(len, || None);
        let before = mem::replace(&mut self.places, places);
        for (number, value) in before.into_iter().flatten() {
            let place = self.place_of(number);
            self.places[place] = Some((number, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const END: u32 = i32::MAX as u32;

    proptest! {
        /// With any numbers at all.
        #[test]
        fn a_table_behaves_as_a_map(steps in prop::collection::vec((0u8..4, 0u32..12, any::<u16>()), 0..300)) {
            let (mut table, mut model) = (Minted::new(), BTreeMap::new());
            for (step, which, value) in steps {
                let number = if which < 8 { which } else { (which << 6) + which };
                match step {
                    0 => {
                        let is_taken = model.contains_key(&number);
                        prop_assert_eq!(table.insert(number, value), if is_taken { Err(value) } else { Ok(()) });
                        model.entry(number).or_insert(value);
                    }
                    1 => prop_assert_eq!(table.remove(number), model.remove(&number)),
                    2 => {
                        *table.get_or_default(number) += 0;
                        model.entry(number).or_default();
                    }
                    _ => {
                        table.get_mut(number).into_iter().for_each(|it| *it = value);
                        model.get_mut(&number).into_iter().for_each(|it| *it = value);
                    }
                }
                prop_assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
                prop_assert!((0..1024).all(|number| table.get(number) == model.get(&number)));
                let mut all: Vec<_> = table.entries().map(|(number, it)| (number, *it)).collect();
                let by_place = (0..table.places()).filter_map(|nth| table.at(nth)).map(|(number, it)| (number, *it));
                prop_assert!(by_place.eq(all.iter().copied()));
                prop_assert!(table.iter().copied().eq(all.iter().map(|&(_, it)| it)));
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(model.iter().map(|(number, it)| (*number, *it))));
            }
        }

        /// Whatever comes and goes, in whichever order, and however long some of it stays: no number comes twice, and tables that have
        /// all or a part of it are no larger than what there was at once.
        #[test]
        fn numbers_rise_and_tables_do_not_grow(
            seed in any::<u64>(),
            most in 1usize..300,
            first in prop_oneof![Just(0), Just(END - 2_000)],
        ) {
            let mut mint = Mint { next: first, ..Mint::below(END) };
            let (mut every, mut third) = (Minted::new(), Minted::new());
            let (mut living, mut word, mut last) = (Vec::new(), seed | 1, None);
            for turn in 0..6_000u64 {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let choice = (word >> 33) as usize;
                if living.len() < most && (living.is_empty() || !choice.is_multiple_of(3)) {
                    let number = mint.mint().unwrap();
                    prop_assert!(number < END && !living.contains(&number));
                    let has_wrapped = number < 1024 && first > 0;
                    prop_assert!(last.is_none_or(|last| number > last) || has_wrapped, "{:?} {}", last, number);
                    prop_assert!(number > 0 || first == 0 && turn == 0, "turn {turn}");
                    last = Some(number);
                    living.push(number);
                    every.insert(number, turn).unwrap();
                    if number.is_multiple_of(3) {
                        third.insert(number, turn).unwrap();
                    }
                } else {
                    // Mostly the young ones go.
                    let nth = living.len() - 1 - choice % living.len().min(1 + choice % 7 * (most / 7));
                    let number = living.swap_remove(nth);
                    every.remove(number).unwrap();
                    third.remove(number);
                    mint.give_back(number);
                }
                prop_assert_eq!((every.len(), mint.used), (living.len(), living.len()));
            }
            let bound = (most * 8 / 3 + 1).max(PLACES_LEAST);
            prop_assert!(every.places().max(third.places()).max(mint.places.len()) <= bound, "{}", every.places());
            prop_assert!(living.iter().all(|&number| every.get(number).is_some()));
        }
    }

    #[test]
    fn few_in_a_row_are_one_after_the_other() {
        let mut mint = Mint::below(END);
        assert!((0..5_000).all(|number| mint.mint() == Some(number)));
        mint.give_back(7);
        assert_eq!(mint.mint(), Some(5_000), "a number that was given back is not the next one");
        mint.give_back(77_777);
        assert_eq!(mint.used, 5_000, "who has none gives none back");
    }

    #[test]
    fn numbers_come_to_an_end_and_back() {
        let mut mint = Mint::below(1 << 16);
        let all: Vec<_> = core::iter::from_fn(|| mint.mint()).collect();
        assert!(all.iter().copied().eq(0..u32::from(u16::MAX)));
        mint.give_back(0);
        mint.give_back(77);
        assert_eq!([mint.mint(), mint.mint(), mint.mint()], [Some(65_535), Some(77), None]);
    }

    #[test]
    fn what_comes_and_goes_leaves_nothing() {
        let (mut mint, mut table) = (Mint::below(END), Minted::new());
        let stays = mint.mint().unwrap();
        table.insert(stays, 0).unwrap();
        for _ in 0..100_000 {
            let number = mint.mint().unwrap();
            table.insert(number, number).unwrap();
            assert_eq!((table.get(stays).copied(), table.remove(number)), (Some(0), Some(number)));
            mint.give_back(number);
        }
        assert!(table.places() <= PLACES_LEAST && table.allocated_bytes() < 1_000);
        assert_eq!((table.remove(stays), table.allocated_bytes()), (Some(0), 0));
    }
}
