//! Identifications of datagrams that may be cut (RFC 6864 §4, RFC 7739).
//!
//! A counter per hash of the destination, begun at random and moved on by random steps: neither another
//! destination's numbers nor an idle scan can tell how much is sent (CVE-2020-36516, CVE-2021-45486).
//! Datagrams that may not be cut have no number at all.

use core::hash::BuildHasher;
use core::net::IpAddr;

use crate::random::{Keyed, Random};

/// Counters; a destination shares one with few others.
const COUNTERS: usize = 1024;
/// Bits of a step, which is 1 to 8: the 16 bits of IPv4 last for eight thousand datagrams before they repeat.
const STEP_BITS: u32 = 3;

/// The counter of a pair of addresses, for whoever sends often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CounterId(u16);

/// The counters.
#[derive(Debug)]
pub(crate) struct Identifications {
    counters: Vec<u32>,
    keyed: Keyed,
    /// Random bits for steps, and how many are left.
    bits: (u64, u32),
}

impl Identifications {
    pub(crate) fn new(keyed: Keyed, random: &mut Random) -> Self {
        Self { counters: (0..COUNTERS).map(|_| random.draw() as u32).collect(), keyed, bits: (0, 0) }
    }

    /// The counter for datagrams between these two.
    pub(crate) fn counter(&self, src: IpAddr, dst: IpAddr) -> CounterId {
        CounterId((self.keyed.hash_one((src, dst)) % COUNTERS as u64) as u16)
    }

    /// The next number of a counter.
    #[inline]
    pub(crate) fn next(&mut self, id: CounterId, random: &mut Random) -> u32 {
        if self.bits.1 < STEP_BITS {
            self.bits = (random.draw(), u64::BITS);
        }
        let step = 1 + (self.bits.0 & ((1 << STEP_BITS) - 1)) as u32;
        self.bits = (self.bits.0 >> STEP_BITS, self.bits.1 - STEP_BITS);
        let counter = &mut self.counters[usize::from(id.0)];
        *counter = counter.wrapping_add(step);
        *counter
    }
}

impl Identifications {
    /// Leaves out as many numbers as the datagrams behind the first of a frame take that will be cut (RFC 6864 §4.3).
    #[inline]
    pub(crate) fn leave_out(&mut self, id: CounterId, count: usize) {
        let counter = &mut self.counters[usize::from(id.0)];
        *counter = counter.wrapping_add(count as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i13_numbers_move_on_by_small_random_steps_and_differ_between_destinations() {
        let mut random = Random::new(Keyed::new([1; 16], 1), 0);
        let mut ids = Identifications::new(Keyed::new([1; 16], 2), &mut random);
        let [a, b, c]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap());
        let first: Vec<u32> = (0..100).map(|_| ids.next(ids.counter(a, b), &mut random)).collect();
        let steps: Vec<u32> = first.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        assert!(steps.iter().all(|step| (1..=8).contains(step)));
        assert!(steps.iter().any(|step| *step != steps[0]));
        assert!(ids.next(ids.counter(a, c), &mut random).abs_diff(first[99]) > 8);
    }
}
