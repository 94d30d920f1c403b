//! What was decided for forwarded flows: from a packet's link and tuple to a value of the lane.
//!
//! One per lane and netstack, written by the slow path after a flow's first packet and read once per packet. It is a
//! cache: where more flows want places than there are, most of those that have one keep it, and the others are decided
//! again. If the newcomer always came in, more flows in turn than there are places would throw each other out, and none
//! would ever be found. The hash costs little and has
//! no secret: a peer whose tuples collide makes its own packets take the long way, and no worse. A value counts in
//! the generation in which it was entered.
//!
//! A flow may be in any place of its set, so that nearly all places are taken before one flow finds none. Which of them it
//! is say the set's tags, one cache line of hashes; the place is another with everything else. The place that a flow's hash
//! names is looked at first, and taken if it is free: while the cache is not full, most flows are there.

use firelane_frame::{alike, read_ahead};
use firelane_units::LinkId;
use firelane_wire::IpProtocol;

use crate::tuple::Tuple;

/// How many flows are remembered: at 64 bytes each what a core's second cache and some of the third hold.
const PLACES: usize = 1 << 15;

/// Places that a flow may have: as many as tags fill a cache line.
const WAYS: usize = 16;

/// Values by flow, of one generation.
#[derive(Debug)]
pub struct FlowCache<V> {
    /// Nothing until the first flow: most netstacks forward nothing.
    sets: Vec<Tags>,
    places: Vec<Place<V>>,
    /// That of all flows that have a place.
    generation: u32,
    /// Flows that found no free place.
    late: u32,
    /// Places that are taken: where all are, none is looked for.
    taken: usize,
}

/// Of flows that find no free place, each so manieth gets one nevertheless: who has one may have ended. Not more, as another's place
/// is rarely near, and is written as a whole.
const LATE_TAKEN: u32 = 32;

/// Where a flow may be.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen(Option<u32>);

/// What the flows of a set hash to; zero is none.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Tags([u32; WAYS]);

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Place<V> {
    tuple: Tuple,
    link: LinkId,
    value: V,
}

impl Tags {
    /// Which of them it is.
    #[inline]
    fn find(&self, tag: u32) -> Option<usize> {
        let first = first_way(tag);
        if self.0[first] == tag { Some(first) } else { self.search(tag) }
    }

    /// Which of them a newcomer takes.
    fn free(&self, tag: u32) -> Option<usize> {
        let first = first_way(tag);
        if self.0[first] == 0 { Some(first) } else { self.search(0) }
    }

    /// The first place with this tag.
    #[inline]
    fn search(&self, tag: u32) -> Option<usize> {
        let bits = alike(&self.0, tag);
        (bits != 0).then(|| bits.trailing_zeros() as usize)
    }
}

impl<V: Copy + Default> FlowCache<V> {
    /// Without flows.
    pub const fn new() -> Self {
        Self { sets: Vec::new(), places: Vec::new(), generation: 0, late: 0, taken: 0 }
    }

    /// The value of a flow, if it was entered in this generation.
    #[inline]
    pub fn lookup(&self, link: LinkId, tuple: &Tuple, generation: u32) -> Option<V> {
        self.lookup_at(self.find(link, tuple), link, tuple, generation)
    }

    /// Finds a flow's place and begins to fetch it, so that it is near when the flow is looked up.
    #[inline]
    pub fn foresee(&self, link: LinkId, tuple: &Tuple) -> Foreseen {
        let at = self.find(link, tuple);
        at.0.and_then(|at| self.places.get(at as usize)).iter().for_each(|place| read_ahead(*place));
        at
    }

    /// As [`lookup`](Self::lookup), of a flow whose place was foreseen.
    #[inline]
    pub fn lookup_at(&self, at: Foreseen, link: LinkId, tuple: &Tuple, generation: u32) -> Option<V> {
        let place = self.places.get(at.0? as usize)?;
        let is_it = self.generation == generation && place.tuple == *tuple && place.link == link;
        is_it.then_some(place.value)
    }

    #[inline]
    fn find(&self, link: LinkId, tuple: &Tuple) -> Foreseen {
        let (set, tag) = home(link, tuple);
        let nth = self.sets.get(set).and_then(|tags| tags.find(tag));
        Foreseen(nth.map(|nth| (set * WAYS + nth) as u32))
    }

    /// Enters a flow, if a place is free or it takes another's. Where all are taken a flow that has one may keep what it has.
    pub fn insert(&mut self, link: LinkId, tuple: &Tuple, generation: u32, value: V) {
        self.begin(generation);
        // Where all are taken most of those that come find no place: they do not look for one, either.
        let is_full = self.taken == PLACES;
        if is_full && !self.lets_in() {
            return;
        }
        let (set, tag) = home(link, tuple);
        let tags = self.sets[set];
        let nth = match tags.find(tag).or_else(|| tags.free(tag)) {
            Some(nth) => nth,
            None if is_full || self.lets_in() => (self.late / LATE_TAKEN) as usize % WAYS,
            None => return,
        };
        let tags = &mut self.sets[set];
        self.taken += usize::from(tags.0[nth] == 0);
        tags.0[nth] = tag;
        self.places[set * WAYS + nth] = Place { tuple: *tuple, link, value };
    }

    /// Whether a flow that finds no free place takes another's.
    const fn lets_in(&mut self) -> bool {
        self.late = self.late.wrapping_add(1);
        self.late.is_multiple_of(LATE_TAKEN)
    }

    /// What is entered from here on counts in `generation`, and what was entered in another does not.
    fn begin(&mut self, generation: u32) {
        if self.sets.is_empty() {
            let nobody = Tuple::v4(IpProtocol(0), NO_END, NO_END);
            self.places = vec![Place { tuple: nobody, link: LinkId(0), value: V::default() }; PLACES];
            self.sets = vec![NO_TAGS; PLACES / WAYS];
        }
        if self.generation != generation {
            self.sets.fill(NO_TAGS);
            (self.generation, self.taken) = (generation, 0);
        }
    }

    /// Gives a flow that is remembered another value.
    pub fn amend(&mut self, link: LinkId, tuple: &Tuple, generation: u32, value: V) {
        let Foreseen(Some(at)) = self.find(link, tuple) else { return };
        let place = &mut self.places[at as usize];
        if self.generation == generation && place.tuple == *tuple && place.link == link {
            place.value = value;
        }
    }

    /// How many bytes it takes.
    pub fn allocated_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place<V>>() + self.sets.capacity() * size_of::<Tags>()
    }
}

impl<V: Copy + Default> Default for FlowCache<V> {
    fn default() -> Self {
        Self::new()
    }
}

const NO_END: (core::net::Ipv4Addr, firelane_units::Port) =
    (core::net::Ipv4Addr::UNSPECIFIED, firelane_units::Port(0));
const NO_TAGS: Tags = Tags([0; WAYS]);

/// Which way of its set a flow is looked for first.
#[inline]
const fn first_way(tag: u32) -> usize {
    (tag >> 1) as usize % WAYS
}

/// A flow's set, and its tag there.
#[inline]
const fn home(link: LinkId, tuple: &Tuple) -> (usize, u32) {
    let mixed = tuple.mixed() ^ (link.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) as usize % (PLACES / WAYS), mixed as u32 | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Port;

    fn tuple(n: u32) -> Tuple {
        let (a, b) = ((0x0a00_0001 + (n >> 8)).into(), (0xc000_0200 + n % 251).into());
        Tuple::v4(IpProtocol::UDP, (a, Port(n as u16)), (b, Port(53)))
    }

    #[test]
    fn a_flow_has_the_value_of_its_link_and_generation() {
        let mut cache = FlowCache::new();
        assert_eq!((cache.lookup(LinkId(1), &tuple(1), 1), cache.allocated_bytes()), (None, 0));
        cache.insert(LinkId(1), &tuple(1), 1, 7_u32);
        assert_eq!(cache.lookup(LinkId(1), &tuple(1), 1), Some(7));
        assert_eq!(cache.lookup(LinkId(2), &tuple(1), 1), None);
        assert_eq!(cache.lookup(LinkId(1), &tuple(1), 2), None);
        assert_eq!(cache.lookup(LinkId(1), &tuple(1).reversed(), 1), None);
        cache.insert(LinkId(1), &tuple(1), 2, 8);
        assert_eq!(
            (cache.lookup(LinkId(1), &tuple(1), 2), cache.lookup(LinkId(1), &tuple(1), 1)),
            (Some(8), None)
        );
        cache.amend(LinkId(1), &tuple(1), 2, 9);
        cache.amend(LinkId(1), &tuple(2), 2, 9);
        assert_eq!(cache.lookup(LinkId(1), &tuple(1), 2), Some(9));
        assert_eq!(cache.lookup(LinkId(1), &tuple(2), 2), None, "nobody has entered it");
    }

    /// Tuple-space explosion (CVE-2019-25076): random headers take no memory, and each pushes out one flow at most.
    #[test]
    fn r10_random_headers_leave_the_cache_as_large_and_as_fast() {
        let mut cache = FlowCache::new();
        cache.insert(LinkId(1), &tuple(0), 1, 7);
        let size = cache.allocated_bytes();
        let mut word = 1_u64;
        let mut held = 0;
        for n in 0..20_000_u32 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [a, b] = [(word >> 32) as u32, word as u32 ^ n];
            let end = |bits: u32| (bits.into(), Port((bits >> 7) as u16));
            cache.insert(LinkId(1), &Tuple::v4(IpProtocol((word >> 60) as u8), end(a), end(b)), 1, n);
            if cache.lookup(LinkId(1), &tuple(0), 1) == Some(7) {
                held += 1;
            } else {
                cache.insert(LinkId(1), &tuple(0), 1, 7);
            }
        }
        assert_eq!(cache.allocated_bytes(), size);
        assert!(held > 19_900, "a flow in use was found {held} times of 20,000");
    }

    #[test]
    fn more_flows_in_turn_than_places_do_not_throw_each_other_out() {
        let mut cache = FlowCache::new();
        let flows = 2 * PLACES as u32;
        let found = (0..4).map(|_| {
            let known = |cache: &mut FlowCache<u32>, n| {
                let is_known = cache.lookup(LinkId(1), &tuple(n), 1) == Some(n);
                cache.insert(LinkId(1), &tuple(n), 1, n);
                is_known
            };
            (0..flows).filter(|&n| known(&mut cache, n)).count()
        });
        let found: Vec<usize> = found.collect();
        assert!(found[3] > PLACES / 2, "{found:?} of {flows}");
        // A newcomer gets its place, if it comes often enough.
        assert!((0..LATE_TAKEN).any(|_| {
            cache.insert(LinkId(2), &tuple(7), 1, 7);
            cache.lookup(LinkId(2), &tuple(7), 1) == Some(7)
        }));
    }

    #[test]
    fn what_is_found_is_what_was_entered_last_and_most_flows_are_found() {
        let mut cache = FlowCache::new();
        for round in 0..2 {
            (0..10_000).for_each(|n| cache.insert(LinkId(1), &tuple(n), 1, n * 2 + round));
        }
        let found: Vec<u32> = (0..10_000)
            .filter(|&n| match cache.lookup(LinkId(1), &tuple(n), 1) {
                Some(value) => {
                    assert_eq!(value, n * 2 + 1);
                    true
                }
                None => false,
            })
            .collect();
        assert_eq!(found.len(), 10_000, "a third of the places has room for each in its set");
        assert_eq!((size_of::<Place<[u32; 4]>>(), size_of::<Tags>()), (64, 64));
    }
}
