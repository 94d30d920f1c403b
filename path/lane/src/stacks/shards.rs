//! A lane's shards: whose something has happened, and when each has something to do by itself.
//!
//! A lane may have a thousand netstacks, of which a turn is about one or two. So nobody asks them all: whoever takes a shard to change
//! it has touched it, and those that were touched are asked whether they have something to send, and once until when to let them be.
//! Owned by `mod.rs`.

use firelane_table::Minted;
use firelane_units::{Instant, NetstackId};

use super::shard::Shard;
use crate::control::Refusal;
use crate::marked::Marked;

/// Every netstack's shard in a lane.
pub(super) struct Shards {
    /// A shard is large, and places are more than shards.
    all: Minted<Box<Shard>>,
    /// By the places that they have there.
    agenda: Agenda,
}

impl Shards {
    pub(super) fn new() -> Self {
        Self { all: Minted::new(), agenda: Agenda::default() }
    }

    #[inline]
    pub(super) fn get(&self, id: NetstackId) -> Option<&Shard> {
        self.all.get(id.0.into()).map(Box::as_ref)
    }

    /// A netstack's shard, which is touched by it.
    #[inline]
    pub(super) fn get_mut(&mut self, id: NetstackId) -> Option<&mut Shard> {
        let place = self.all.place_of(id.0.into());
        let shard = self.all.get_mut(id.0.into())?;
        self.agenda.touch(place);
        Some(shard)
    }

    /// Puts a shard in, unless its netstack has one.
    pub(super) fn insert(&mut self, shard: Shard) -> Result<(), Refusal> {
        let (number, places) = (shard.config.id.0.into(), self.all.places());
        self.all.insert(number, Box::new(shard)).map_err(|_| "the netstack exists")?;
        if self.all.places() == places {
            self.agenda.touch(self.all.place_of(number));
            return Ok(());
        }
        // All have other places than before.
        self.agenda = Agenda::default();
        self.agenda.grow(self.all.places());
        self.all.entries().for_each(|(number, _)| self.agenda.touch(self.all.place_of(number)));
        Ok(())
    }

    pub(super) fn remove(&mut self, id: NetstackId) -> Option<Box<Shard>> {
        let place = self.all.place_of(id.0.into());
        let shard = self.all.remove(id.0.into())?;
        self.agenda.forget(place);
        Some(shard)
    }

    /// How many places there are, empty ones included.
    pub(super) fn places(&self) -> usize {
        self.all.places()
    }

    /// What places and shards take, without the tables that these have.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.all.allocated_bytes() + self.all.len() * size_of::<Shard>()
    }

    /// The shard that stands in a place.
    pub(super) fn at(&self, place: usize) -> Option<&Shard> {
        self.all.at(place).map(|(_, shard)| shard.as_ref())
    }

    /// Does something with those of which `is_one` is true, and touches them alone.
    pub(super) fn each_where(&mut self, is_one: impl Fn(&Shard) -> bool, mut act: impl FnMut(&mut Shard)) {
        for place in 0..self.all.places() {
            if let Some(shard) = self.all.at_mut(place).filter(|shard| is_one(shard)) {
                self.agenda.touch(place);
                act(shard);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.all.iter().map(Box::as_ref)
    }

    /// How many may have something to send.
    pub(super) fn senders(&self) -> usize {
        self.agenda.senders.places().len()
    }

    /// The `nth` of those that may have something to send, if there are so many.
    #[inline]
    pub(super) fn nth_sender(&mut self, nth: usize) -> Option<&mut Shard> {
        let &index = self.agenda.senders.places().get(nth)?;
        self.agenda.changed.put(index);
        self.all.at_mut(index).map(Box::as_mut)
    }

    /// All of them have had their round: who has more to send is one of them still.
    #[inline]
    pub(super) fn end_round(&mut self) {
        let Self { all, agenda } = self;
        agenda.senders.retain(|index| all.at(index).is_some_and(|(_, shard)| shard.has_more()));
    }

    /// When the first one is due.
    #[inline]
    pub(super) fn first_due(&mut self) -> Instant {
        let Self { all, agenda } = self;
        agenda.first_due(|index| all.at(index)?.1.next_deadline())
    }

    /// The first place from `from` on whose shard is due.
    pub(super) fn next_due(&mut self, now: Instant, from: usize) -> Option<usize> {
        if self.first_due() > now { None } else { self.agenda.next_due(now, from) }
    }
}

/// Which places were touched, and when each is due.
#[derive(Debug)]
struct Agenda {
    /// Those that may have something to send.
    senders: Marked,
    /// Those that may be due at another time than was said.
    changed: Marked,
    /// When each is due; at the end of time, if nothing is.
    due: Vec<Instant>,
    /// The earliest of these.
    first: Instant,
}

impl Default for Agenda {
    fn default() -> Self {
        let (senders, changed) = (Marked::default(), Marked::default());
        Self { senders, changed, due: Vec::new(), first: Instant::FAR_FUTURE }
    }
}

impl Agenda {
    /// There are so many places now.
    fn grow(&mut self, places: usize) {
        self.senders.grow(places);
        self.changed.grow(places);
        self.due.resize(places, Instant::FAR_FUTURE);
    }

    #[inline]
    fn touch(&mut self, index: usize) {
        self.senders.put(index);
        self.changed.put(index);
    }

    /// The place is empty from here on.
    fn forget(&mut self, index: usize) {
        self.senders.retain(|other| other != index);
        if index < self.due.len() {
            self.changed.put(index);
        }
    }

    /// When the first place is due: those that were touched are asked.
    #[inline]
    fn first_due(&mut self, ask: impl Fn(usize) -> Option<Instant>) -> Instant {
        let Self { changed, due, first, .. } = self;
        let mut has_lost_first = false;
        for index in changed.take_all() {
            let at = ask(index).unwrap_or(Instant::FAR_FUTURE);
            let before = core::mem::replace(&mut due[index], at);
            has_lost_first |= before == *first && at > before;
            *first = at.min(*first);
        }
        if has_lost_first {
            *first = due.iter().copied().min().unwrap_or(Instant::FAR_FUTURE);
        }
        *first
    }

    /// The first place from `from` on that is due.
    fn next_due(&self, now: Instant, from: usize) -> Option<usize> {
        Some(from + self.due.get(from..)?.iter().position(|&at| at <= now)?)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        /// A place has this to do then, and more to send or not.
        Touch(usize, Option<u64>, bool),
        Forget(usize),
        EndRound,
        Ask(u64),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let touch = (0usize..6, prop::option::of(0u64..50), any::<bool>());
        let op = prop_oneof![
            4 => touch.prop_map(|(index, at, more)| Op::Touch(index, at, more)),
            1 => (0usize..6).prop_map(Op::Forget),
            1 => Just(Op::EndRound),
            2 => (0u64..50).prop_map(Op::Ask),
        ];
        prop::collection::vec(op, 1..80)
    }

    /// Those of which `is_one` is true.
    fn all(is_one: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..6).filter(|&index| is_one(index)).collect()
    }

    proptest! {
        /// Who asks only those that were touched knows of all of them when they are due, and loses nobody who has more to send.
        #[test]
        fn who_was_not_touched_need_not_be_asked(ops in ops()) {
            let mut agenda = Agenda::default();
            agenda.grow(6);
            let (mut due, mut sends) = ([None; 6], [false; 6]);
            let mut may_send = [false; 6];
            for op in ops {
                match op {
                    Op::Touch(index, at, more) => {
                        agenda.touch(index);
                        (due[index], sends[index], may_send[index]) = (at.map(Instant::from_secs), more, true);
                    }
                    Op::Forget(index) => {
                        agenda.forget(index);
                        (due[index], sends[index], may_send[index]) = (None, false, false);
                    }
                    Op::EndRound => {
                        agenda.senders.retain(|index| sends[index]);
                        may_send = core::array::from_fn(|index| may_send[index] && sends[index]);
                    }
                    Op::Ask(now) => {
                        let first = agenda.first_due(|index| due[index]);
                        prop_assert_eq!(first, due.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE));
                        let (now, mut from, mut found) = (Instant::from_secs(now), 0, Vec::new());
                        while let Some(index) = agenda.next_due(now, from) {
                            found.push(index);
                            from = index + 1;
                        }
                        prop_assert_eq!(found, all(|index| due[index].is_some_and(|at| at <= now)));
                    }
                }
                let mut senders = agenda.senders.places().to_vec();
                senders.sort_unstable();
                prop_assert_eq!(senders, all(|index| may_send[index]));
            }
        }
    }
}
