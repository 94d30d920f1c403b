//! A netstack's packet filter: its rules, and what it has counted.
//!
//! Called by the daemon for `[netstack.NAME] filter` and `ipfstat`. Rules become a list here, which all lanes share, and each has its own states; what one lets through
//! the others hear of where they must (`path/lane/src/stacks/filtered.rs`).

use core::time::Duration;
use std::sync::Arc;

use firelane_filter::{FilterCounts, PoolChange, RuleList};
use firelane_lane::Control;
use firelane_units::{FilterRule, Instant, LinkId, NetstackId};

use crate::engine::Engine;
use crate::error::ChangeError;
use crate::lists::List;
use crate::queue::Queue;
use crate::registry::Netstack;

impl List for RuleList {
    fn of(netstack: &mut Netstack) -> &mut Arc<Self> {
        &mut netstack.filter
    }

    fn compare(&mut self, before: &Arc<Self>) {
        self.compare(before);
    }

    fn control(self: Arc<Self>, netstack: NetstackId) -> Control<Queue> {
        Control::SetFilter(netstack, self)
    }
}

impl Engine {
    /// Gives a netstack's filter other rules; its pools stay. It counts for each packet from the next one on; what states let through
    /// before may go on. Without rules everything passes.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn set_filter(
        &self,
        netstack: NetstackId,
        rules: Vec<FilterRule<LinkId>>,
    ) -> Result<(), ChangeError> {
        self.0.replace_list(netstack, RuleList::new(rules))
    }

    /// Lets networks come into the pools that the rules name, and go, in this order. Each lane takes so many of them at a time that
    /// its packets do not wait.
    ///
    /// # Errors
    /// The netstack does not exist, or all lanes are out of service.
    pub fn change_pools(&self, netstack: NetstackId, changes: &[PoolChange]) -> Result<(), ChangeError> {
        /// Some tens of microseconds of a lane.
        const AT_ONCE: usize = 256;
        self.0.registry().netstack_mut(netstack)?;
        changes.chunks(AT_ONCE).try_for_each(|some| {
            let some: Arc<[PoolChange]> = some.into();
            self.0.tell_all(|_| Control::ChangePools(netstack, Arc::clone(&some)))
        })
    }

    /// How many networks the pools of a netstack have in each of its lanes.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn pooled(&self, netstack: NetstackId) -> Result<Vec<usize>, ChangeError> {
        let lanes = self.0.registry().netstack_mut(netstack)?.all_lanes();
        let held = |&lane| self.0.fabric.visit(lane, |_, lane| lane.pooled(netstack)).flatten();
        Ok(lanes.iter().filter_map(held).collect())
    }

    /// The moment of a lane's clock that is so far ahead.
    pub fn moment_in(&self, time: Duration) -> Instant {
        self.0.fabric.now() + time
    }

    /// What a netstack's filter has counted, summed over its lanes; of rules since they were given.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn filter_counts(&self, netstack: NetstackId) -> Result<FilterCounts, ChangeError> {
        let lanes = self.0.registry().netstack_mut(netstack)?.all_lanes();
        let mut sum = FilterCounts::default();
        for lane in lanes {
            let counted = self.0.fabric.visit(lane, |_, lane| lane.filter_counts(netstack));
            counted.flatten().iter().for_each(|counted| sum.merge(counted));
        }
        Ok(sum)
    }
}
