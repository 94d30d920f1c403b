//! Places for what packets make, which ends when nothing comes, and gives way when there are too many.
//!
//! Entries in a slab, and a hand that goes round it and takes out what has ended: an entry costs one write per packet and no
//! list. When all places are taken the half-open entry that waits longest goes first; what both ends have shown to be theirs
//! stays. Used by `path/filter` and `path/nat`.

use core::time::Duration;
use std::collections::VecDeque;

use firelane_units::Instant;

/// How long the hand takes for all entries, at the most.
const ROUND: Duration = Duration::from_secs(10);
/// How many it looks at in one go.
const LOOKED_AT: usize = 1000;
/// How often it looks, if there are few.
const LOOK: Duration = Duration::from_secs(1);

/// What may stand in a place.
pub trait Kept {
    /// The how manieth it is: no two have the same.
    fn number(&self) -> u64;

    /// When it ends, unless something comes for it.
    fn ends(&self) -> Instant;

    /// Whether nobody has shown that both ends are there.
    fn is_half_open(&self) -> bool;
}

/// The places.
#[derive(Debug)]
pub struct Places<T> {
    slab: Vec<Option<T>>,
    free: Vec<u32>,
    /// Half-open ones in the order in which they began, by place and number.
    half_open: VecDeque<(u32, u64)>,
    hand: usize,
    /// So many the hand still looks at in this go.
    left: usize,
    look_at: Instant,
    most: usize,
}

impl<T: Kept> Places<T> {
    /// None as yet, and never more than `most`.
    pub const fn new(most: usize) -> Self {
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            half_open: VecDeque::new(),
            hand: 0,
            left: 0,
            look_at: Instant::ZERO,
            most,
        }
    }

    /// How many there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.slab.len() - self.free.len()
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

    /// Never more than `most` from here on; those that are there stay.
    pub const fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// What stands there.
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        self.slab.get(at as usize)?.as_ref()
    }

    /// What stands there, to be changed.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slab.get_mut(at as usize)?.as_mut()
    }

    /// The place itself, for who reads ahead.
    #[inline]
    pub fn place(&self, at: u32) -> Option<&Option<T>> {
        self.slab.get(at as usize)
    }

    /// What stands in the places, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slab.iter().enumerate().filter_map(|(at, kept)| Some((at as u32, kept.as_ref()?)))
    }

    /// How many places there are, with those that are free.
    pub const fn places(&self) -> usize {
        self.slab.len()
    }

    /// Gives it a place; who asks has looked whether there is one ([`is_full`](Self::is_full)).
    pub fn enter(&mut self, kept: T) -> u32 {
        let (is_half_open, number) = (kept.is_half_open(), kept.number());
        let at = self.free.pop().unwrap_or(self.slab.len() as u32);
        if at as usize == self.slab.len() {
            self.slab.push(None);
        }
        self.slab[at as usize] = Some(kept);
        if is_half_open {
            if self.half_open.len() > 2 * self.most {
                let slab = &self.slab;
                self.half_open.retain(|&place| half_open_at(slab, place));
            }
            self.half_open.push_back((at, number));
        }
        at
    }

    /// Takes it out. All memory goes with the last one.
    pub fn take(&mut self, at: u32) -> Option<T> {
        let kept = self.slab.get_mut(at as usize)?.take()?;
        self.free.push(at);
        if self.is_empty() {
            (self.slab, self.free, self.hand) = (Vec::new(), Vec::new(), 0);
            self.half_open = VecDeque::new();
        }
        Some(kept)
    }

    /// The half-open one that waits longest: who needs room takes it out.
    pub fn oldest_half_open(&mut self) -> Option<u32> {
        while let Some(place) = self.half_open.pop_front() {
            if half_open_at(&self.slab, place) {
                return Some(place.0);
            }
        }
        None
    }

    /// The hand goes on to what has ended, if it is time to look; who is told takes it out and asks again. Nothing when it has
    /// looked at so many places as one go looks at.
    pub fn sweep(&mut self, now: Instant) -> Option<u32> {
        if self.is_empty() || (self.left == 0 && now < self.look_at) {
            self.left = 0;
            return None;
        }
        if self.left == 0 {
            self.left = LOOKED_AT.min(self.slab.len());
        }
        while self.left > 0 {
            let at = self.hand;
            self.hand = (at + 1) % self.slab.len();
            self.left -= 1;
            if self.left == 0 {
                self.end_go(now);
            }
            if self.slab[at].as_ref().is_some_and(|kept| kept.ends() <= now) {
                return Some(at as u32);
            }
        }
        None
    }

    fn end_go(&mut self, now: Instant) {
        // Those that both ends have answered for, or that have ended, need no place in the order.
        while self.half_open.front().is_some_and(|&place| !half_open_at(&self.slab, place)) {
            self.half_open.pop_front();
        }
        let rounds = (self.slab.len() / LOOKED_AT + 1) as u32;
        self.look_at = now + (ROUND / rounds).min(LOOK);
    }

    /// When to look again.
    pub fn poll_at(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.look_at)
    }

    /// The bytes that it takes.
    pub fn allocated_bytes(&self) -> usize {
        self.slab.capacity() * size_of::<Option<T>>()
            + self.free.capacity() * size_of::<u32>()
            + self.half_open.capacity() * size_of::<(u32, u64)>()
    }
}

/// Whether what was entered there with this number is still there, and half-open.
fn half_open_at<T: Kept>(slab: &[Option<T>], (at, number): (u32, u64)) -> bool {
    let kept = slab.get(at as usize).and_then(Option::as_ref);
    kept.is_some_and(|kept| kept.number() == number && kept.is_half_open())
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
        fn number(&self) -> u64 {
            self.number
        }
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
    fn memory_goes_with_the_last_one() {
        let mut places = Places::new(4);
        let ats: Vec<_> =
            (0..4).map(|number| places.enter(Entry { number, ends: 1, is_half_open: true })).collect();
        assert!(places.is_full() && places.allocated_bytes() > 0);
        assert_eq!(ats.into_iter().filter_map(|at| places.take(at)).count(), 4);
        assert_eq!((places.len(), places.allocated_bytes(), places.poll_at()), (0, 0, None));
    }
}
