//! What was decided for forwarded flows: from a packet's link and tuple to a value of the lane.
//!
//! One per lane and netstack, written by the slow path after a flow's first packet and read once per packet. It is a
//! cache: two flows that want one place take turns, and what is lost is decided again. The hash costs little and has
//! no secret: a peer whose tuples collide makes its own packets take the long way, and no worse. A value counts in
//! the generation in which it was entered.

use firelane_units::LinkId;
use firelane_wire::IpProtocol;

use crate::tuple::Tuple;

/// How many flows are remembered: at 64 bytes each what a core's second cache holds, with room for the frames.
const PLACES: usize = 1 << 15;

/// Places that a flow may have.
const WAYS: usize = 2;

/// Values by flow, of one generation.
#[derive(Debug)]
pub struct FlowCache<V> {
    /// Nothing until the first flow: most netstacks forward nothing.
    places: Vec<Place<V>>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Place<V> {
    tuple: Tuple,
    link: LinkId,
    /// Zero is no generation.
    generation: u32,
    value: V,
}

impl<V: Copy + Default> FlowCache<V> {
    /// Without flows.
    pub const fn new() -> Self {
        Self { places: Vec::new() }
    }

    /// The value of a flow, if it was entered in this generation.
    #[inline]
    pub fn lookup(&self, link: LinkId, tuple: &Tuple, generation: u32) -> Option<V> {
        let first = place(link, tuple);
        let place =
            self.places.get(first..first + WAYS)?.iter().find(|place| {
                place.tuple == *tuple && place.link == link && place.generation == generation
            })?;
        Some(place.value)
    }

    /// Reads a flow's place, so that it is near when the flow is looked up: of several flows at once the memory answers
    /// sooner than of one after the other. Answers what is of no use but to keep the read.
    #[inline]
    pub fn touch(&self, link: LinkId, tuple: &Tuple) -> u32 {
        self.places.get(place(link, tuple)).map_or(0, |place| place.generation)
    }

    /// Enters a flow, in the place of the one that is there if no place is free.
    pub fn insert(&mut self, link: LinkId, tuple: &Tuple, generation: u32, value: V) {
        if self.places.is_empty() {
            let nobody = Tuple::v4(IpProtocol(0), NO_END, NO_END);
            let free = Place { tuple: nobody, link: LinkId(0), generation: 0, value: V::default() };
            self.places = vec![free; PLACES];
        }
        let first = place(link, tuple);
        let places = &mut self.places[first..first + WAYS];
        let is_free = |place: &Place<V>| {
            place.generation != generation || (place.tuple == *tuple && place.link == link)
        };
        let nth = places.iter().position(is_free).unwrap_or_else(|| {
            // The first place has the flow that came last.
            places.rotate_right(1);
            0
        });
        places[nth] = Place { tuple: *tuple, link, generation, value };
    }

    /// How many bytes it takes.
    pub fn allocated_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place<V>>()
    }
}

impl<V: Copy + Default> Default for FlowCache<V> {
    fn default() -> Self {
        Self::new()
    }
}

const NO_END: (core::net::Ipv4Addr, firelane_units::Port) =
    (core::net::Ipv4Addr::UNSPECIFIED, firelane_units::Port(0));

/// The first of a flow's places.
#[inline]
const fn place(link: LinkId, tuple: &Tuple) -> usize {
    let mixed = tuple.mixed() ^ (link.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % (PLACES / WAYS) * WAYS
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
        assert!(found.len() > 9_000, "{} of 10,000 flows are remembered", found.len());
        assert_eq!(size_of::<Place<u32>>(), 64);
    }
}
