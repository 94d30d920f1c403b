//! Everything that can be read of an engine, summed over its lanes.
//!
//! Reading never stops a lane: a snapshot is taken by whoever is let in between two items, lane after lane. What a lane had counted
//! stays in the sums when it goes out of service, as far as somebody had read it: to whoever looks at differences a sum that falls would
//! be of something that began anew.

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
        let mut lost = Vec::new();
        for lane in fabric.lane_ids() {
            // Two that read at once leave what the later one has read. Who is called because of the visit may be one of them.
            let mut last = fabric.last_read(lane);
            if let Some(mut snapshot) = fabric.visit(lane, |_, lane| lane.snapshot()) {
                snapshot.squeue = fabric.squeue(lane).stats();
                snapshot.sleeps = fabric.bell(lane).sleeps();
                *last = Some(snapshot.clone());
                sum.add(snapshot);
            } else {
                lost.extend(last.clone());
            }
        }
        lost.into_iter().for_each(|lane| sum.keep(lane));
        sum
    }

    fn add(&mut self, lane: Snapshot) {
        self.count(&lane);
        self.held += lane.held;
        self.connections += lane.connections;
        self.time_wait += lane.time_wait;
        self.half_open += lane.half_open;
        self.rings.extend(lane.rings.iter().map(|ring| (lane.lane, *ring)));
        self.lanes.push(lane);
    }

    /// Adds what a lane had counted that is out of service, when all others have been added.
    fn keep(&mut self, mut lost: Snapshot) {
        // Each of them has all ports and flows: what none has is gone.
        if !self.lanes.is_empty() {
            lost.ports.retain(|(id, _)| self.ports.contains_key(id));
            lost.guards.retain(|(id, _)| self.guards.contains_key(id));
            lost.flows.retain(|(id, _)| self.flows.contains_key(id));
        }
        self.count(&lost);
    }

    fn count(&mut self, lane: &Snapshot) {
        self.counters.merge(&lane.counters);
        self.syn.merge(&lane.syn);
        self.fast_open.merge(&lane.fast_open);
        for (id, counters) in &lane.ports {
            let port = self.ports.entry(*id).or_default();
            port.inward.merge(&counters.inward);
            port.outward.merge(&counters.outward);
        }
        for (id, counters) in &lane.guards {
            let guard = self.guards.entry(*id).or_default();
            guard.iter_mut().zip(counters).for_each(|(sum, one)| *sum += one);
        }
        for (id, counters) in &lane.flows {
            let flow = self.flows.entry(*id).or_default();
            flow.iter_mut().zip(counters).for_each(|(sum, one)| sum.merge(one));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use firelane_units::{LaneId, Mtu};

    use crate::calls::{self, Call};
    use crate::{Engine, EngineConfig, NetstackConfig, UdpSocket, VnicConfig, VnicUser};

    #[test]
    fn what_a_lane_has_carried_stays_in_the_sums_when_it_is_lost() {
        let engine = Engine::start(&EngineConfig { lanes: 2, ..EngineConfig::default() }).unwrap();
        let link = engine.add_link(Mtu::ETHERNET).unwrap();
        let [(near, _), (far, gone)] = [1, 2].map(|nth| {
            let id = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
            let config = VnicConfig::new(format!("02:08:20:00:00:0{nth}").parse().unwrap());
            let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(id)).unwrap();
            engine.add_address(vnic, format!("10.0.0.{nth}/24").parse().unwrap()).unwrap();
            (engine.stack(id).unwrap(), vnic)
        });
        // Ports are dealt to both lanes.
        for port in 4000..4032 {
            let receiver = UdpSocket::bind(&far, ("10.0.0.2", port)).unwrap();
            let sender = UdpSocket::bind(&near, ("10.0.0.1", port)).unwrap();
            sender.send_to(b"text", ("10.0.0.2", port)).unwrap();
            receiver.recv_from(&mut [0; 8]).unwrap();
        }
        let before = engine.snapshot();
        let is_busy = |lane: &firelane_lane::Snapshot| {
            lane.ports.iter().any(|(_, it)| it.inward.packets + it.outward.packets > 0)
        };
        assert!(before.lanes.iter().all(is_busy));
        engine.0.fabric.fail(LaneId(1), || ());
        let after = engine.snapshot();
        assert_eq!(after.lanes.len(), 1);
        for (id, was) in &before.ports {
            let is = &after.ports[id];
            assert!(
                is.inward.packets >= was.inward.packets && is.outward.bytes >= was.outward.bytes,
                "{id:?}"
            );
        }
        let passed = |it: &super::EngineSnapshot| it.flows.values().flatten().map(|it| it.bytes).sum::<u64>();
        assert!(passed(&before) > 0 && passed(&after) >= passed(&before));
        // What the other one knows no more has gone, although this one never heard of that.
        engine.remove_vnic(gone).unwrap();
        assert_eq!(engine.snapshot().flows.len() + 1, before.flows.len());
    }

    /// Counts an engine's lanes when it is woken.
    struct Reader(Engine, Sender<usize>);

    impl Wake for Reader {
        fn wake(self: Arc<Self>) {
            let _ = self.1.send(self.0.snapshot().lanes.len());
        }
    }

    #[test]
    fn whom_a_reader_calls_may_read_too() {
        let engine = Engine::start(&EngineConfig { threads: false, ..EngineConfig::default() }).unwrap();
        let (sender, counted) = channel();
        std::thread::spawn(move || {
            let waker = Waker::from(Arc::new(Reader(engine.clone(), sender)));
            // As by the lane's items, which who visits it may have to run first.
            let last = engine.0.fabric.last_read(LaneId(0));
            calls::owe(Call::Task(waker));
            drop(last);
        });
        assert_eq!(counted.recv_timeout(Duration::from_secs(5)), Ok(1), "it waits for itself");
    }
}
