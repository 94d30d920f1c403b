//! Everything that can be read of an engine, summed over its lanes.
//!
//! Reading never stops a lane: a snapshot is taken by whoever is let in between two items, lane after lane.

use std::collections::BTreeMap;

use firelane_flow::Counters;
use firelane_lane::{LaneCounters, PortCounters, RingCounters, Snapshot};
use firelane_switch::GuardCounters;
use firelane_tcp::{FastOpenCounters, SynCounters};
use firelane_units::{FlowId, LaneId, LinkId};

use crate::fabric::Fabric;

/// All lanes' counters.
#[derive(Clone, Debug, Default)]
pub struct EngineSnapshot {
    /// Each lane's own.
    pub lanes: Vec<Snapshot>,
    /// The sum of the lanes' counters.
    pub counters: LaneCounters,
    /// Frames inside.
    pub held: u64,
    /// Each port's traffic.
    pub ports: BTreeMap<LinkId, PortCounters>,
    /// Each device's rings, and in which lane they are.
    pub rings: Vec<(LaneId, RingCounters)>,
    /// What protection has stopped at each port, in the order of `Protection::ALL`.
    pub guards: BTreeMap<LinkId, GuardCounters>,
    /// Each flow's traffic, inward and outward.
    pub flows: BTreeMap<FlowId, [Counters; 2]>,
    /// Connections of all netstacks.
    pub connections: usize,
    /// Records in TIME-WAIT.
    pub time_wait: usize,
    /// Half-open connections of all netstacks.
    pub half_open: usize,
    /// What the tables of half-open connections have counted.
    pub syn: SynCounters,
    /// What became of Fast Opens.
    pub fast_open: FastOpenCounters,
}

impl EngineSnapshot {
    pub(crate) fn take(fabric: &Fabric) -> Self {
        let mut sum = Self::default();
        fabric.count_fused();
        for lane in fabric.lane_ids() {
            if let Some(mut snapshot) = fabric.visit(lane, |_, lane| lane.snapshot()) {
                snapshot.squeue = fabric.squeue(lane).stats();
                snapshot.sleeps = fabric.bell(lane).sleeps();
                sum.add(snapshot);
            }
        }
        sum
    }

    fn add(&mut self, lane: Snapshot) {
        self.counters.merge(&lane.counters);
        self.held += lane.held;
        self.connections += lane.connections;
        self.time_wait += lane.time_wait;
        self.half_open += lane.half_open;
        self.syn.merge(&lane.syn);
        self.fast_open.merge(&lane.fast_open);
        for (id, counters) in &lane.ports {
            let port = self.ports.entry(*id).or_default();
            port.inward.merge(&counters.inward);
            port.outward.merge(&counters.outward);
        }
        self.rings.extend(lane.rings.iter().map(|ring| (lane.lane, *ring)));
        for (id, counters) in &lane.guards {
            let guard = self.guards.entry(*id).or_default();
            guard.iter_mut().zip(counters).for_each(|(sum, one)| *sum += one);
        }
        for (id, counters) in &lane.flows {
            let flow = self.flows.entry(*id).or_default();
            flow.iter_mut().zip(counters).for_each(|(sum, one)| sum.merge(one));
        }
        self.lanes.push(lane);
    }
}
