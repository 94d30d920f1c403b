//! What one netstack has counted, and the groups that it listens to, read from its lanes.
//!
//! As with a snapshot, no lane stops: each is looked at between two of its items.

use firelane_ip::Membership;
use firelane_lane::NetstackCounters;
use firelane_units::NetstackId;

use crate::engine::Engine;
use crate::error::ChangeError;

impl Engine {
    /// What a netstack has counted since it was made, summed over its lanes.
    ///
    /// # Errors
    /// It does not exist.
    pub fn netstack_counters(&self, id: NetstackId) -> Result<NetstackCounters, ChangeError> {
        let lanes = self.0.registry().netstack_mut(id)?.all_lanes();
        let mut sum = NetstackCounters::default();
        for lane in lanes {
            let counted = self.0.fabric.visit(lane, |_, lane| lane.netstack_counters(id));
            counted.flatten().iter().for_each(|counted| sum.merge(counted));
        }
        Ok(sum)
    }

    /// The groups that a netstack listens to, as its home lane knows them.
    ///
    /// # Errors
    /// It does not exist, or its lane is out of service.
    pub fn memberships(&self, id: NetstackId) -> Result<Vec<Membership>, ChangeError> {
        let home = self.0.registry().netstack_mut(id)?.steering.home();
        self.0.fabric.visit(home, |_, lane| lane.memberships(id)).ok_or(ChangeError::LaneFailed)
    }
}
