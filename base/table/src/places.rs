//! Places for what packets make, which ends when nothing comes, and gives way when there are too many.
//!
//! A hand goes round the entries and takes out what has ended: a packet costs its entry one write. When all places are taken one that is
//! over goes first, if one is soon found, and then the half-open entry that waits longest; what both ends have shown to be theirs
//! stays. Used by `path/filter` and `path/nat`.

use core::time::Duration;

use firelane_units::Instant;

use crate::order::Order;
use crate::rooms::Rooms;

/// How long the hand takes for all entries, at the most.
const ROUND: Duration = Duration::from_secs(10);
/// How many it looks at in one go.
const LOOKED_AT: usize = 1000;
/// How often it looks, if there are few.
const LOOK: Duration = Duration::from_secs(1);
/// At how many places who needs room looks for one that is over: where that is why there is none, nearly all are.
const LOOKED_AT_FOR_ROOM: usize = 8;
/// The same if only some of them will do, of which a source with its full share has one in sixteen.
const LOOKED_AT_FOR_SOME: usize = 64;

/// What may stand in a place.
pub trait Kept {
    /// When it ends, unless something comes for it.
    fn ends(&self) -> Instant;

    /// Whether nobody has shown that both ends are there. Who is not half-open never becomes it.
    fn is_half_open(&self) -> bool;

    /// Whether its ends have said that it is over: it stays for what may be under way, as long as there is room.
    fn is_spent(&self) -> bool {
        false
    }
}

/// The places.
#[derive(Debug)]
pub struct Places<T> {
    rooms: Rooms<Option<T>>,
    /// Places in all rooms, with those that are free.
    count: usize,
    free: Vec<u32>,
    /// Half-open ones in the order in which they began. One that both ends have answered for stays until it is looked at.
    half_open: Order,
    hand: usize,
    /// Where who needs room looks next.
    seeker: usize,
    /// So many the hand still looks at in this go.
    left: usize,
    look_at: Instant,
    most: usize,
}

impl<T: Kept> Places<T> {
    /// None as yet, and never more than `most`.
    pub const fn new(most: usize) -> Self {
        Self {
            rooms: Rooms::new(),
            count: 0,
            free: Vec::new(),
            half_open: Order::new(),
            hand: 0,
            seeker: 0,
            left: 0,
            look_at: Instant::ZERO,
            most,
        }
    }

    /// How many there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count - self.free.len()
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether another one needs somebody's place.
    pub const fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    /// None, with as many allowed: the memory of all goes at once, without a look at any.
    pub const fn emptied(&self) -> Self {
        Self::new(self.most)
    }

    /// Never more than `most` from here on; those that are there stay.
    pub const fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// What stands there.
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        self.place(at)?.as_ref()
    }

    /// What stands there, to be changed.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.rooms.get_mut(at)?.as_mut()
    }

    /// The place itself, for who reads ahead.
    #[inline]
    pub fn place(&self, at: u32) -> Option<&Option<T>> {
        self.rooms.get(at)
    }

    /// What stands in the places, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.rooms.iter().zip(0..).filter_map(|(kept, at)| Some((at, kept.as_ref()?)))
    }

    /// How many places there are, with those that are free.
    pub const fn places(&self) -> usize {
        self.count
    }

    /// Gives it a place; who asks has looked whether there is one ([`is_full`](Self::is_full)).
    pub fn enter(&mut self, kept: T) -> u32 {
        let is_half_open = kept.is_half_open();
        let at = match self.free.pop() {
            Some(at) => {
                *self.rooms.get_mut(at).expect("a free place is a place") = Some(kept);
                at
            }
            None => self.append(kept),
        };
        if is_half_open {
            self.half_open.enter(at);
        }
        at
    }

    /// The same, in a place that nobody had before.
    fn append(&mut self, kept: T) -> u32 {
        let at = self.count as u32;
        self.rooms.push(at, Some(kept));
        self.half_open.append(at);
        self.count += 1;
        at
    }

    /// Takes it out. All memory goes with the last one.
    pub fn take(&mut self, at: u32) -> Option<T> {
        let kept = self.rooms.get_mut(at)?.take()?;
        self.free.push(at);
        self.half_open.leave(at);
        if self.is_empty() {
            (self.rooms, self.free) = (Rooms::new(), Vec::new());
            (self.count, self.hand, self.seeker) = (0, 0, 0);
            self.half_open = Order::new();
        }
        Some(kept)
    }

    /// The half-open one that waits longest, if it is found where one go looks: who needs room takes it out.
    pub fn oldest_half_open(&mut self) -> Option<u32> {
        for _ in 0..LOOKED_AT {
            let at = self.half_open.first()?;
            if self.get(at).is_some_and(Kept::is_half_open) {
                return Some(at);
            }
            self.half_open.leave(at);
        }
        None
    }

    /// One that is over or whose time is up, if there is one where this looks: who needs room takes it out before any other.
    pub fn spent(&mut self, now: Instant) -> Option<u32> {
        (0..LOOKED_AT_FOR_ROOM.min(self.count)).find_map(|_| {
            let at = self.seek();
            self.get(at).is_some_and(|kept| is_over(kept, now)).then_some(at)
        })
    }

    /// The same of those of which `is_its` says so; if none of them is over, the half-open one that ends first, of those where this looks.
    pub fn gives_way_of(&mut self, now: Instant, is_its: impl Fn(&T) -> bool) -> Option<u32> {
        let mut half_open: Option<(Instant, u32)> = None;
        for _ in 0..LOOKED_AT_FOR_SOME.min(self.count) {
            let at = self.seek();
            let Some(kept) = self.get(at).filter(|kept| is_its(kept)) else { continue };
            if is_over(kept, now) {
                return Some(at);
            }
            if kept.is_half_open() && half_open.is_none_or(|(ends, _)| kept.ends() < ends) {
                half_open = Some((kept.ends(), at));
            }
        }
        half_open.map(|(_, at)| at)
    }

    /// The next place to look at for who needs room.
    fn seek(&mut self) -> u32 {
        let at = self.seeker;
        self.seeker = (at + 1) % self.count;
        at as u32
    }

    /// The hand goes on to what has ended, if it is time to look; who is told takes it out and asks again. Nothing when it has
    /// looked at so many places as one go looks at.
    pub fn sweep(&mut self, now: Instant) -> Option<u32> {
        if self.is_empty() || (self.left == 0 && now < self.look_at) {
            self.left = 0;
            return None;
        }
        if self.left == 0 {
            self.left = LOOKED_AT.min(self.count);
        }
        while self.left > 0 {
            let at = self.hand;
            self.hand = (at + 1) % self.count;
            self.left -= 1;
            if self.left == 0 {
                let rounds = (self.count / LOOKED_AT + 1) as u32;
                self.look_at = now + (ROUND / rounds).min(LOOK);
            }
            let Some(kept) = self.get(at as u32) else { continue };
            let (has_ended, is_half_open) = (kept.ends() <= now, kept.is_half_open());
            if !is_half_open {
                // Who needs room need not pass by those that both ends have answered for.
                self.half_open.leave(at as u32);
            }
            if has_ended {
                return Some(at as u32);
            }
        }
        None
    }

    /// When to look again.
    pub fn poll_at(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.look_at)
    }

    /// The bytes that it takes.
    pub fn allocated_bytes(&self) -> usize {
        self.rooms.allocated_bytes()
            + self.free.capacity() * size_of::<u32>()
            + self.half_open.allocated_bytes()
    }
}

fn is_over(kept: &impl Kept, now: Instant) -> bool {
    kept.ends() <= now || kept.is_spent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Entry {
        number: u64,
        ends: u64,
        is_half_open: bool,
    }

    impl Kept for Entry {
        fn ends(&self) -> Instant {
            Instant::from_secs(self.ends)
        }
        fn is_half_open(&self) -> bool {
            self.is_half_open
        }
    }

    proptest! {
        #[test]
        fn the_half_open_one_that_waits_longest_gives_way(open in prop::collection::vec(any::<bool>(), 1..60)) {
            let mut places = Places::new(64);
            for (number, &is_half_open) in open.iter().enumerate() {
                places.enter(Entry { number: number as u64, ends: 9, is_half_open });
            }
            let waiting = open.iter().enumerate().filter(|(_, is_open)| **is_open).map(|(nth, _)| nth as u64);
            for number in waiting {
                let at = places.oldest_half_open().unwrap();
                prop_assert_eq!(places.take(at).unwrap().number, number);
            }
            prop_assert_eq!(places.oldest_half_open(), None);
            prop_assert_eq!(places.len(), open.iter().filter(|is_open| !**is_open).count());
        }

        #[test]
        fn the_hand_tells_of_all_that_has_ended_and_no_others(ends in prop::collection::vec(0..20_u64, 0..3000)) {
            let mut places = Places::new(4000);
            for (number, &ends) in ends.iter().enumerate() {
                places.enter(Entry { number: number as u64, ends, is_half_open: number % 3 == 0 });
            }
            let mut ended = 0;
            for go in 0..ends.len().div_ceil(LOOKED_AT) as u64 {
                while let Some(at) = places.sweep(Instant::from_secs(10) + LOOK * go as u32) {
                    let kept = places.take(at).unwrap();
                    prop_assert!(kept.ends <= 10 + go);
                    ended += usize::from(kept.ends <= 10);
                }
            }
            prop_assert_eq!(ended, ends.iter().filter(|ends| **ends <= 10).count());
        }
    }

    #[test]
    fn who_needs_room_finds_what_is_over_and_looks_at_few() {
        let mut places = Places::new(100);
        assert_eq!(places.spent(Instant::from_secs(5)), None);
        (0..100).for_each(|number| {
            places.enter(Entry { number, ends: if number % 8 == 7 { 5 } else { 6 }, is_half_open: false });
        });
        let found =
            |places: &mut Places<Entry>| places.spent(Instant::from_secs(5)).and_then(|at| places.take(at));
        for number in (0..96).filter(|number| number % 8 == 7) {
            assert_eq!(found(&mut places).map(|kept| kept.number), Some(number));
        }
        assert!((0..99).all(|_| found(&mut places).is_none()), "nobody else");
        let of = |number: u64| move |kept: &Entry| kept.number == number;
        assert!(
            (0..2).all(|_| places.gives_way_of(Instant::from_secs(5), of(64)).is_none()),
            "it is not over"
        );
        assert!((0..2).any(|_| places.gives_way_of(Instant::from_secs(6), of(64)) == Some(64)));
    }

    #[test]
    fn of_ones_own_what_is_over_gives_way_before_what_is_half_open_and_that_before_nothing() {
        let mut places = Places::new(100);
        for (ends, is_half_open) in [(9, false), (8, true), (7, true), (9, true), (5, false)] {
            places.enter(Entry { number: ends, ends, is_half_open });
        }
        let mut found = |now| places.gives_way_of(Instant::from_secs(now), |kept| kept.number != 9);
        assert_eq!(found(5), Some(4), "it is over");
        assert_eq!(found(4), Some(2), "it ends before the other half-open ones");
        let none = places.gives_way_of(Instant::from_secs(4), |kept| kept.number == 5);
        assert_eq!(none, None, "both ends have answered for it");
    }

    proptest! {
        #[test]
        fn what_is_entered_stays_where_it_is(takes in prop::collection::vec(prop::option::of(any::<u32>()), 0..400)) {
            let (mut places, mut model) = (Places::new(1000), std::collections::BTreeMap::new());
            for (number, take) in takes.into_iter().enumerate() {
                let at = take.and_then(|nth| model.keys().nth(nth as usize % model.len().max(1)).copied());
                match at {
                    Some(at) => prop_assert_eq!(places.take(at), model.remove(&at)),
                    None => {
                        let entry = Entry { number: number as u64, ends: 9, is_half_open: false };
                        let at = places.enter(entry.clone());
                        prop_assert_eq!(model.insert(at, entry), None);
                    }
                }
                prop_assert!(places.iter().eq(model.iter().map(|(at, entry)| (*at, entry))));
                prop_assert_eq!(places.len(), model.len());
                prop_assert!(model.iter().all(|(at, entry)| places.get(*at) == Some(entry)));
            }
        }
    }

    /// An entry that counts who asks.
    struct Asked<'a>(&'a core::cell::Cell<u64>);

    impl Kept for Asked<'_> {
        fn ends(&self) -> Instant {
            Instant::from_secs(9)
        }
        fn is_half_open(&self) -> bool {
            self.0.set(self.0.get() + 1);
            true
        }
    }

    #[test]
    fn who_enters_where_there_are_more_than_allowed_looks_at_few() {
        let asked = core::cell::Cell::new(0);
        let mut places = Places::new(10_000);
        for _ in 0..10_000 {
            places.enter(Asked(&asked));
        }
        places.set_most(10);
        asked.set(0);
        for _ in 0..1000 {
            assert!(places.is_full());
            let oldest = places.oldest_half_open().unwrap();
            places.take(oldest);
            places.enter(Asked(&asked));
        }
        assert!(asked.get() < 10_000, "{}", asked.get());
        assert_eq!(places.len(), 10_000);
    }

    #[test]
    fn what_is_over_leaves_nothing_behind_one_that_waits() {
        let asked = core::cell::Cell::new(0);
        let mut places = Places::new(1000);
        let waits = places.enter(Asked(&asked));
        let mut bytes = 0;
        for round in 0..10_000 {
            asked.set(0);
            let at = places.enter(Asked(&asked));
            places.take(at);
            assert!(asked.get() <= 1, "round {round}: {}", asked.get());
            bytes = places.allocated_bytes();
            assert!(bytes < 4096, "round {round}: {bytes}");
        }
        let next = places.enter(Asked(&asked));
        assert_eq!(places.oldest_half_open(), Some(waits));
        places.take(waits);
        assert_eq!((places.oldest_half_open(), places.allocated_bytes()), (Some(next), bytes));
    }

    #[test]
    fn who_needs_room_passes_by_few_that_both_ends_have_answered_for() {
        let mut places = Places::new(10 * LOOKED_AT);
        for _ in 0..5 * LOOKED_AT {
            places.enter(Entry { number: 0, ends: 9, is_half_open: true });
        }
        let waits = places.enter(Entry { number: 1, ends: 9, is_half_open: true });
        for at in 0..waits {
            places.get_mut(at).unwrap().is_half_open = false;
        }
        assert!((0..5).all(|_| places.oldest_half_open().is_none()), "as many as it looks at in one go");
        assert_eq!(places.oldest_half_open(), Some(waits));
    }

    #[test]
    fn memory_goes_with_the_last_one() {
        let mut places = Places::new(4);
        let ats: Vec<_> =
            (0..4).map(|number| places.enter(Entry { number, ends: 1, is_half_open: true })).collect();
        assert!(places.is_full() && places.allocated_bytes() > 0);
        assert_eq!(ats.into_iter().filter_map(|at| places.take(at)).count(), 4);
        assert_eq!((places.len(), places.allocated_bytes(), places.poll_at()), (0, 0, None));
    }
}
