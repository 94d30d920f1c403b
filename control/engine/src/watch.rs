//! Looking closely: frames followed on their way through all lanes, and what steps cost.
//!
//! What lanes have seen is taken out of them between two of their items. The end of the value is the end of the looking.

use std::sync::Arc;

use firelane_lane::{Followed, Numbers, Seen, StepCounts, Tracing, Wake};
use firelane_units::{FlowId, LaneId, LinkId, MacAddr};

use crate::engine::{Engine, Inner};
use crate::error::ChangeError;
use crate::registry::Netstack;
use crate::sys;

/// Which frames are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceOf {
    /// Those from or to an address.
    Address(std::net::IpAddr),
    /// Those of a flow of a VNIC.
    Flow(FlowId),
    /// Those that [`Trace::invent`] makes up.
    Invented,
}

/// A running trace.
pub struct Trace {
    engine: Arc<Inner>,
    numbers: Arc<Numbers>,
}

/// Steps that are being counted.
pub struct StepMeter {
    engine: Arc<Inner>,
}

impl Engine {
    /// Follows the next `frames` frames. One trace runs at a time.
    ///
    /// # Errors
    /// There is no such flow, a trace runs already, or all lanes have failed.
    pub fn trace(&self, of: TraceOf, frames: u32) -> Result<Trace, ChangeError> {
        let mut registry = self.0.registry();
        let of = match of {
            TraceOf::Address(address) => Followed::Address(address),
            TraceOf::Invented => Followed::Invented,
            TraceOf::Flow(flow) => {
                let owner = registry.flows.get(&flow).ok_or(ChangeError::NoFlow(flow))?.owner;
                // A link's own is its uplink's.
                let mac = registry.vnics.get(&owner).map(|vnic| vnic.mac);
                Followed::Flow { flow, owner, mac }
            }
        };
        if std::mem::replace(&mut registry.is_tracing, true) {
            return Err(ChangeError::Tracing);
        }
        drop(registry);
        let numbers = Arc::new(Numbers::new(frames));
        let trace = Trace { engine: Arc::clone(&self.0), numbers };
        trace.set(Some(of))?;
        Ok(trace)
    }

    /// The station that has an address of one of this engine's netstacks.
    pub fn station_of(&self, address: std::net::IpAddr) -> Option<MacAddr> {
        let registry = self.0.registry();
        let owned = |it: &Netstack| {
            let mut all = it.addresses.iter().chain(&it.configured);
            all.find(|(_, prefix)| prefix.addr() == address).map(|(link, _)| *link)
        };
        let link = registry.netstacks.values().find_map(owned)?;
        registry.vnics.get(&link).map(|vnic| vnic.mac)
    }

    /// Counts the frames and cycles of steps. One meter runs at a time.
    ///
    /// # Errors
    /// One runs already, or all lanes have failed.
    pub fn count_steps(&self) -> Result<StepMeter, ChangeError> {
        if std::mem::replace(&mut self.0.registry().is_metering, true) {
            return Err(ChangeError::Metering);
        }
        let meter = StepMeter { engine: Arc::clone(&self.0) };
        let fabric = &self.0.fabric;
        fabric.visit_all(|lane| lane.count_steps(Some(sys::cycles)))?;
        Ok(meter)
    }
}

impl Trace {
    fn set(&self, of: Option<Followed>) -> Result<(), ChangeError> {
        let tracing = of.map(|of| Tracing { of, numbers: Arc::clone(&self.numbers) });
        self.engine.fabric.visit_all(|lane| lane.trace(tracing.clone()))
    }

    /// Takes a made-up frame as if the user of `link` had sent it, or the device of an uplink had brought it.
    ///
    /// # Errors
    /// There is no such port, the lane has no buffer, or it has failed.
    pub fn invent(&self, link: LinkId, bytes: &[u8]) -> Result<u32, ChangeError> {
        let invented = self.engine.fabric.visit(LaneId(0), |now, lane| lane.invent(now, link, bytes));
        let number = invented.ok_or(ChangeError::LaneFailed)?.ok_or(ChangeError::NoLink(link))?;
        self.engine.fabric.squeue(LaneId(0)).waker().wake();
        Ok(number)
    }

    /// How many frames are followed by now.
    pub fn frames(&self) -> u32 {
        self.numbers.frames()
    }

    /// What was seen since the last call, lane by lane, and how much found no room.
    pub fn take(&self) -> (Vec<Seen>, u64) {
        let fabric = &self.engine.fabric;
        let (mut all, mut lost) = (Vec::new(), 0);
        for lane in fabric.lane_ids() {
            // A lane that has failed has seen nothing.
            if let Some((mut seen, missed)) = fabric.visit(lane, |_, lane| lane.take_seen()) {
                all.append(&mut seen);
                lost += missed;
            }
        }
        (all, lost)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // If all have failed nobody follows anything.
        let _ = self.set(None);
        self.engine.registry().is_tracing = false;
    }
}

impl StepMeter {
    /// What steps have cost since they are counted, in all lanes.
    pub fn counts(&self) -> StepCounts {
        let fabric = &self.engine.fabric;
        let mut sum = StepCounts::default();
        for lane in fabric.lane_ids() {
            if let Some(counts) = fabric.visit(lane, |_, lane| lane.step_counts()) {
                sum.merge(&counts);
            }
        }
        sum
    }
}

impl Drop for StepMeter {
    fn drop(&mut self) {
        // If all have failed nobody counts.
        let _ = self.engine.fabric.visit_all(|lane| lane.count_steps(None));
        self.engine.registry().is_metering = false;
    }
}
