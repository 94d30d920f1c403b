//! How a link's packets came in, lane by lane: by notification, by poll, or from this host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What came since counters were `before`. They begin again when an object is made anew: if any has fallen, all have.
pub(crate) fn since<const N: usize>(mut now: [u64; N], before: [u64; N]) -> [u64; N] {
    if now.iter().zip(before).all(|(now, before)| *now >= before) {
        now.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
    }
    now
}

/// What one lane has received of a link's packets since the link was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LaneReceived {
    /// Which lane.
    pub lane: u16,
    /// Packets, of whatever origin.
    pub ipackets: u64,
    /// Their bytes.
    pub rbytes: u64,
    /// Frames that were dropped.
    pub sdrops: u64,
    /// Packets of the first chain after a device's notification.
    pub intrs: u64,
    /// Packets that were fetched while notifications were off.
    pub polls: u64,
    /// The bytes of both; the other packets were made by this host.
    pub fetched_bytes: u64,
    /// Chains of fewer than 10 packets that devices brought, of 10 to 50, and of more.
    pub chains: [u64; 3],
}

/// What one ring of a link's device has carried since the link was made, as the link's user sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RingStats {
    /// Which ring.
    pub ring: u16,
    /// The lane that serves it now.
    pub lane: u16,
    /// Packets that the link has received by it, of those that a device brought.
    pub ipackets: u64,
    /// Their bytes.
    pub rbytes: u64,
    /// Packets of the first chain after a device's notification.
    pub intrs: u64,
    /// Packets that were fetched while notifications were off.
    pub polls: u64,
    /// Chains of fewer than 10 packets, of 10 to 50, and of more.
    pub chains: [u64; 3],
    /// Packets that the link has sent by it.
    pub opackets: u64,
    /// Their bytes.
    pub obytes: u64,
}

impl RingStats {
    /// What it has carried since `before`; all of it if the link was made anew in between.
    pub fn since(self, before: Self) -> Self {
        Self { ring: self.ring, lane: self.lane, ..Self::of(since(self.counts(), before.counts())) }
    }

    /// The sum of both, in the lane that serves it now.
    pub fn and(self, other: Self) -> Self {
        let (mut sum, more) = (self.counts(), other.counts());
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        Self { ring: self.ring, lane: self.lane, ..Self::of(sum) }
    }

    const fn counts(&self) -> [u64; 9] {
        let Self { ring: _, lane: _, ipackets, rbytes, intrs, polls, chains: [a, b, c], opackets, obytes } =
            *self;
        [ipackets, rbytes, intrs, polls, a, b, c, opackets, obytes]
    }

    const fn of(counts: [u64; 9]) -> Self {
        let [ipackets, rbytes, intrs, polls, a, b, c, opackets, obytes] = counts;
        Self { ring: 0, lane: 0, ipackets, rbytes, intrs, polls, chains: [a, b, c], opackets, obytes }
    }
}

impl LaneReceived {
    /// Packets that a device brought.
    pub const fn fetched(&self) -> u64 {
        self.intrs + self.polls
    }

    /// Packets, and their bytes, that this host made. The counters are read while lanes count, one after the other.
    pub const fn made_here(&self) -> [u64; 2] {
        [self.ipackets.saturating_sub(self.fetched()), self.rbytes.saturating_sub(self.fetched_bytes)]
    }

    /// The sum of both, under the name of neither lane.
    pub fn and(self, other: Self) -> Self {
        let [a, b, c] = self.chains;
        let [d, e, f] = other.chains;
        Self {
            lane: self.lane,
            ipackets: self.ipackets + other.ipackets,
            rbytes: self.rbytes + other.rbytes,
            sdrops: self.sdrops + other.sdrops,
            intrs: self.intrs + other.intrs,
            polls: self.polls + other.polls,
            fetched_bytes: self.fetched_bytes + other.fetched_bytes,
            chains: [a + d, b + e, c + f],
        }
    }

    /// What of it did not come as `other` did.
    pub fn without(self, other: Self) -> Self {
        let [a, b, c] = self.chains;
        let [d, e, f] = other.chains;
        Self {
            lane: self.lane,
            ipackets: self.ipackets.saturating_sub(other.ipackets),
            rbytes: self.rbytes.saturating_sub(other.rbytes),
            sdrops: self.sdrops.saturating_sub(other.sdrops),
            intrs: self.intrs.saturating_sub(other.intrs),
            polls: self.polls.saturating_sub(other.polls),
            fetched_bytes: self.fetched_bytes.saturating_sub(other.rbytes),
            chains: [a.saturating_sub(d), b.saturating_sub(e), c.saturating_sub(f)],
        }
    }

    /// What came since `before`; all of it if the link was made anew in between.
    pub fn since(self, before: Self) -> Self {
        Self { lane: self.lane, ..Self::of(since(self.counts(), before.counts())) }
    }

    const fn counts(&self) -> [u64; 9] {
        let Self { lane: _, ipackets, rbytes, sdrops, intrs, polls, fetched_bytes, chains: [a, b, c] } =
            *self;
        [ipackets, rbytes, sdrops, intrs, polls, fetched_bytes, a, b, c]
    }

    const fn of(counts: [u64; 9]) -> Self {
        let [ipackets, rbytes, sdrops, intrs, polls, fetched_bytes, a, b, c] = counts;
        Self { lane: 0, ipackets, rbytes, sdrops, intrs, polls, fetched_bytes, chains: [a, b, c] }
    }

    /// Whether nothing has come.
    pub fn is_silent(&self) -> bool {
        Self { lane: 0, ..*self } == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_link_that_was_made_anew_all_counters_begin_again() {
        let before = LaneReceived { lane: 3, ipackets: 100, rbytes: 9000, ..LaneReceived::default() };
        let now =
            LaneReceived { lane: 3, ipackets: 120, rbytes: 800, intrs: 120, fetched_bytes: 800, ..before };
        assert_eq!(now.since(before), now);
        assert_eq!(now.since(before).made_here(), [0, 0]);
        let later = LaneReceived { ipackets: 125, rbytes: 1000, ..now };
        let came = LaneReceived { lane: 3, ipackets: 5, rbytes: 200, ..LaneReceived::default() };
        assert_eq!((later.since(now), came.made_here()), (came, [5, 200]));
        let before = RingStats { ring: 1, ipackets: 7, obytes: 50, ..RingStats::default() };
        let now = RingStats { lane: 2, ipackets: 9, obytes: 40, ..before };
        assert_eq!(now.since(before), now);
        let came = RingStats { ipackets: 2, obytes: 0, ..now };
        assert_eq!(now.since(RingStats { obytes: 40, ..before }), came);
    }

    #[test]
    fn what_was_counted_between_two_looks_makes_nothing_of_less_than_nothing() {
        let torn = LaneReceived {
            ipackets: 4,
            rbytes: 400,
            intrs: 3,
            polls: 2,
            fetched_bytes: 500,
            ..LaneReceived::default()
        };
        assert_eq!(torn.made_here(), [0, 0]);
    }
}
