//! The sessions, and who has begun how many.
//!
//! Each stands in [`Places`] and in one index twice, by what arrives on either way. When all places are taken one that is over goes, or the
//! half-open one that waits longest; what both ends have shown to be theirs stays, and the newcomer is refused.

use core::net::Ipv4Addr;
use std::collections::hash_map::Entry;

use firelane_table::{Index, Kept, Places};
use firelane_units::{Instant, NatLimits};
use siphasher::sip::SipHasher13;

use crate::keyed::{Keyed, KeyedMap};
use crate::session::Session;
use crate::tuple::Tuple;

/// Where a session is, and which of its ways a packet goes; good until the session ends, which is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatRef {
    /// The place, and in its lowest bit the way.
    place: u32,
    number: u64,
}

impl NatRef {
    pub(crate) const fn new(at: u32, way: usize, number: u64) -> Self {
        Self { place: at << 1 | way as u32, number }
    }

    pub(crate) const fn place(self) -> (u32, usize) {
        (self.place >> 1, (self.place & 1) as usize)
    }

    /// As words, for tables in which it is to be small.
    pub const fn to_words(self) -> [u32; 3] {
        [self.place, self.number as u32, (self.number >> 32) as u32]
    }

    /// From [`to_words`](Self::to_words)'s.
    pub const fn from_words([place, low, high]: [u32; 3]) -> Self {
        Self { place, number: (high as u64) << 32 | low as u64 }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Sessions {
    places: Places<Session>,
    index: Index,
    /// How many each address has begun.
    sources: KeyedMap<Ipv4Addr, u32>,
    added: u64,
    hasher: SipHasher13,
}

impl Sessions {
    pub(crate) fn new(hasher: SipHasher13, most: usize) -> Self {
        let sources = KeyedMap::with_hasher(Keyed(hasher));
        Self { places: Places::new(most), index: Index::default(), sources, added: 0, hasher }
    }

    /// All end, without a look at any; numbers go on.
    pub(crate) fn end_all(&mut self) {
        let emptied = Self {
            places: self.places.emptied(),
            index: Index::default(),
            sources: KeyedMap::with_hasher(Keyed(self.hasher)),
            ..*self
        };
        *self = emptied;
    }

    pub(crate) const fn set_most(&mut self, most: usize) {
        self.places.set_most(most);
    }

    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) const fn added(&self) -> u64 {
        self.added
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.places.is_full()
    }

    /// Who makes room for another one of this source's: one of its own that is over, or else a half-open one, if one is soon found. Half-open
    /// ones with packets of this moment are left: what needs room may be of one.
    pub(crate) fn gives_way_to_its_own(
        &mut self,
        source: Ipv4Addr,
        now: Instant,
        limits: &NatLimits,
    ) -> Option<u32> {
        let may_go = |it: &Session| it.is_spent() || !it.is_of_now(now, limits);
        let is_its = |it: &Session| it.keys[0].src == source && may_go(it);
        self.places.gives_way_of(now, is_its)
    }

    /// Who makes room for anybody's: one that is over, if it is soon found, or else the half-open one that waits longest.
    pub(crate) fn gives_way(&mut self, now: Instant) -> Option<u32> {
        self.places.spent(now).or_else(|| self.places.oldest_half_open())
    }

    /// How many sessions an address has begun.
    pub(crate) fn of_source(&self, source: Ipv4Addr) -> u32 {
        self.sources.get(&source).copied().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&Session> {
        self.places.get(at)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Session> {
        self.places.get_mut(at)
    }

    /// The session that is meant, if it is still there.
    #[inline]
    pub(crate) fn known(&mut self, known: NatRef) -> Option<(u32, usize)> {
        let (at, way) = known.place();
        self.places.get(at).filter(|session| session.number == known.number).map(|_| (at, way))
    }

    /// Which session a packet with these ends is of, and which way it goes.
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<(u32, usize)> {
        let way_of = |at: u32| self.places.get(at)?.keys.iter().position(|key| key == tuple);
        let at = self.index.find(tuple.hash(&self.hasher), |at| way_of(at).is_some())?;
        Some((at, way_of(at)?))
    }

    /// Enters one whose keys are nobody's.
    pub(crate) fn enter(&mut self, mut session: Session) -> u32 {
        self.added += 1;
        session.number = self.added;
        let (source, hashes) = (session.keys[0].src, session.keys.map(|key| key.hash(&self.hasher)));
        let at = self.places.enter(session);
        hashes.into_iter().for_each(|hash| self.index.insert(hash, at));
        *self.sources.entry(source).or_insert(0) += 1;
        at
    }

    pub(crate) fn take(&mut self, at: u32) -> Option<Session> {
        let session = self.places.take(at)?;
        for key in session.keys {
            self.index.remove(key.hash(&self.hasher), at);
        }
        if let Entry::Occupied(mut count) = self.sources.entry(session.keys[0].src) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if self.places.is_empty() {
            // All memory goes with the last one.
            self.index = Index::default();
            self.sources = KeyedMap::with_hasher(Keyed(self.hasher));
        }
        Some(session)
    }

    /// One that has ended, if it is time to look.
    pub(crate) fn sweep(&mut self, now: Instant) -> Option<u32> {
        self.places.sweep(now)
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.places.poll_at()
    }

    /// The first at or behind a place of which `is_it` says so.
    pub(crate) fn from(&self, at: u32, is_it: impl Fn(&Session) -> bool) -> Option<(u32, &Session)> {
        (at..self.places.places() as u32)
            .find_map(|at| Some((at, self.places.get(at).filter(|it| is_it(it))?)))
    }

    /// How many are half-open.
    pub(crate) fn half_open(&self) -> usize {
        self.places.iter().filter(|(_, session)| session.is_half_open()).count()
    }

    /// Begins to fetch what a packet of a session will ask for.
    #[inline]
    pub(crate) fn touch(&self, known: NatRef) {
        self.places.place(known.place().0).iter().for_each(|session| firelane_frame::read_ahead(*session));
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.places.allocated_bytes()
            + self.index.allocated_bytes()
            + self.sources.capacity() * size_of::<(Ipv4Addr, u32)>()
    }
}
