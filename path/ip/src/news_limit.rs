//! How often the other lanes of a netstack are told of neighbours, and of paths of which anybody may have spoken: each news
//! costs all of them.
//!
//! As for ICMP's errors, two buckets must both agree: one per hash of the neighbour or destination, so that one station that
//! speaks without end leaves the others theirs, and one for all.

use core::hash::{BuildHasher, Hash};

use firelane_units::Instant;

use crate::icmp_limit::{Bucket, Rate};
use crate::random::Keyed;

/// Of one neighbour, and of all: whoever is asked by many lanes at once answers each.
pub(crate) const NEIGHBOURS: (Rate, Rate) =
    (Rate { per_second: 20, burst: 32 }, Rate { per_second: 1000, burst: 256 });
/// Of one destination's path, which has few narrow links, and of all: what is believed for ten minutes has room for more.
pub(crate) const PATHS: (Rate, Rate) = (Rate { per_second: 1, burst: 8 }, Rate { per_second: 20, burst: 64 });
/// Buckets for neighbours or destinations; those that share one share its measure.
const BUCKETS: usize = 256;

/// What other lanes were told lately.
#[derive(Debug)]
pub(crate) struct NewsLimit {
    keyed: Keyed,
    rates: (Rate, Rate),
    each: Vec<Bucket>,
    all: Bucket,
}

impl NewsLimit {
    pub(crate) fn new(keyed: Keyed, rates: (Rate, Rate)) -> Self {
        Self { keyed, rates, each: vec![Bucket::default(); BUCKETS], all: Bucket::default() }
    }

    /// Whether the other lanes are told of somebody; if so he is charged.
    pub(crate) fn allow(&mut self, now: Instant, whom: impl Hash) -> bool {
        let at = self.keyed.hash_one(whom) as usize % BUCKETS;
        self.each[at].take_with(&mut self.all, now, self.rates, 1)
    }
}
