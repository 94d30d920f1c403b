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
/// The longest step. The 16 bits of IPv4 last for eight thousand datagrams before they repeat.
const STEP_MAX: u64 = 8;

/// The counters.
#[derive(Debug)]
pub(crate) struct Identifications {
    counters: Vec<u32>,
    keyed: Keyed,
}

impl Identifications {
    pub(crate) fn new(keyed: Keyed, random: &mut Random) -> Self {
        Self { counters: (0..COUNTERS).map(|_| random.draw() as u32).collect(), keyed }
    }

    /// The next number for datagrams between these two.
    pub(crate) fn next(&mut self, src: IpAddr, dst: IpAddr, random: &mut Random) -> u32 {
        let at = self.keyed.hash_one((src, dst)) as usize % COUNTERS;
        let counter = &mut self.counters[at];
        *counter = counter.wrapping_add(1 + random.below(STEP_MAX) as u32);
        *counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i13_numbers_move_on_by_small_random_steps_and_differ_between_destinations() {
        let mut random = Random::new(Keyed::new([1; 16], 1));
        let mut ids = Identifications::new(Keyed::new([1; 16], 2), &mut random);
        let [a, b, c]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap());
        let first: Vec<u32> = (0..100).map(|_| ids.next(a, b, &mut random)).collect();
        let steps: Vec<u32> = first.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        assert!(steps.iter().all(|step| (1..=8).contains(step)));
        assert!(steps.iter().any(|step| *step != steps[0]));
        assert!(ids.next(a, c, &mut random).abs_diff(first[99]) > 8);
    }
}
