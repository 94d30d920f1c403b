//! How a link's packets came in, lane by lane: by notification, by poll, or from this host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
        let delta = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let [a, b, c] = self.chains;
        let [d, e, f] = before.chains;
        Self {
            ring: self.ring,
            lane: self.lane,
            ipackets: delta(self.ipackets, before.ipackets),
            rbytes: delta(self.rbytes, before.rbytes),
            intrs: delta(self.intrs, before.intrs),
            polls: delta(self.polls, before.polls),
            chains: [delta(a, d), delta(b, e), delta(c, f)],
            opackets: delta(self.opackets, before.opackets),
            obytes: delta(self.obytes, before.obytes),
        }
    }
}

impl LaneReceived {
    /// Packets that a device brought.
    pub const fn fetched(&self) -> u64 {
        self.intrs + self.polls
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
        let delta = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let [a, b, c] = self.chains;
        let [d, e, f] = before.chains;
        Self {
            lane: self.lane,
            ipackets: delta(self.ipackets, before.ipackets),
            rbytes: delta(self.rbytes, before.rbytes),
            sdrops: delta(self.sdrops, before.sdrops),
            intrs: delta(self.intrs, before.intrs),
            polls: delta(self.polls, before.polls),
            fetched_bytes: delta(self.fetched_bytes, before.fetched_bytes),
            chains: [delta(a, d), delta(b, e), delta(c, f)],
        }
    }

    /// Whether nothing has come.
    pub fn is_silent(&self) -> bool {
        Self { lane: 0, ..*self } == Self::default()
    }
}
