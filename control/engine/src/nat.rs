//! A netstack's address translation: its rules, what it has counted, and the sessions that it has made.
//!
//! The translator lives in the netstack's home lane (`path/lane/src/stacks/translated.rs`); every lane is told of the rules, because all of
//! them then send what arrives to that one.

use std::sync::Arc;

use firelane_classify::Steering;
use firelane_lane::Control;
use firelane_nat::{NatConfig, NatCounts, NatList, NatRow};
use firelane_units::{Instant, LaneId, NetstackId};

use crate::engine::Engine;
use crate::error::ChangeError;
use crate::lists::List;
use crate::queue::Queue;
use crate::registry::Netstack;

/// Sessions that one look at a lane answers with.
const ROWS_PER_LOOK: usize = 256;

impl List for NatList {
    fn of(netstack: &mut Netstack) -> &mut Arc<Self> {
        &mut netstack.nat
    }

    fn compare(&mut self, before: &Arc<Self>) {
        self.compare(before);
    }

    fn control(self: Arc<Self>, netstack: NetstackId) -> Control<Queue> {
        Control::SetNat(netstack, self)
    }
}

impl Engine {
    /// Gives a netstack other rules of translation. They count for each packet from the next one on; what a rule has made that stays
    /// in the list stays. Without rules nothing is translated.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn set_nat(&self, netstack: NetstackId, config: NatConfig) -> Result<(), ChangeError> {
        self.0.replace_list(netstack, NatList::new(config))
    }

    /// What a netstack's translation has counted; nothing of one without rules.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn nat_counts(&self, netstack: NetstackId) -> Result<NatCounts, ChangeError> {
        let home = self.nat_home(netstack)?;
        let counted = self.0.fabric.visit(home, |_, lane| lane.nat_counts(netstack));
        Ok(counted.flatten().unwrap_or_default())
    }

    /// The sessions that a netstack's translation has made, read a few hundred at a time.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn nat_sessions(&self, netstack: NetstackId) -> Result<Vec<NatRow>, ChangeError> {
        let home = self.nat_home(netstack)?;
        let (mut rows, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let look = self.0.fabric.visit(home, |_, lane| lane.nat_rows(netstack, at, ROWS_PER_LOOK));
            let (some, next) = look.flatten().unwrap_or_default();
            rows.extend(some);
            from = next;
        }
        Ok(rows)
    }

    /// What time it is for the lanes, of which lists say when something ends.
    pub fn now(&self) -> Instant {
        self.0.fabric.now()
    }

    /// Ends all translated sessions of a netstack; how many there were.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn flush_nat(&self, netstack: NetstackId) -> Result<u64, ChangeError> {
        let home = self.nat_home(netstack)?;
        let ended = self.0.fabric.visit(home, |_, lane| lane.flush_nat(netstack));
        Ok(ended.flatten().unwrap_or_default())
    }

    fn nat_home(&self, netstack: NetstackId) -> Result<LaneId, ChangeError> {
        let lanes = self.0.registry().netstack_mut(netstack)?.all_lanes();
        Ok(Steering::even(&lanes).home())
    }
}
