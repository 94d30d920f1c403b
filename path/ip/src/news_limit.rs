//! How often the other lanes of a netstack are told of neighbours: each news costs all of them.
//!
//! As for ICMP's errors, two buckets must both agree: one per hash of the neighbour, so that one station that speaks
//! without end leaves the others theirs, and one for all.

use core::hash::BuildHasher;
use core::net::IpAddr;

use firelane_units::{Instant, LinkId};

use crate::icmp_limit::{Bucket, Rate};
use crate::random::Keyed;

/// Of one neighbour: whoever is asked by many lanes at once answers each.
const EACH: Rate = Rate { per_second: 20, burst: 32 };
const ALL: Rate = Rate { per_second: 1000, burst: 256 };
/// Buckets for neighbours; those that share one share its measure.
const BUCKETS: usize = 256;

/// What other lanes were told of neighbours lately.
#[derive(Debug)]
pub(crate) struct NewsLimit {
    keyed: Keyed,
    each: Vec<Bucket>,
    all: Bucket,
}

impl NewsLimit {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { keyed, each: vec![Bucket::default(); BUCKETS], all: Bucket::default() }
    }

    /// Whether the other lanes are told of a neighbour; if so it is charged.
    pub(crate) fn allow(&mut self, now: Instant, link: LinkId, ip: IpAddr) -> bool {
        let at = self.keyed.hash_one((link, ip)) as usize % BUCKETS;
        self.each[at].take_with(&mut self.all, now, (EACH, ALL), 1)
    }
}
