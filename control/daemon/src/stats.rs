//! The engine's counters under the names of the model.
//!
//! Called by `host.rs`, and by `interfaces.rs` before it gives a link another interface. What was carried before what is beneath a link
//! was made is added (`carried.rs`). Inward is towards a VNIC's user; on a link it is what came from outside, on an etherstub what VNICs
//! sent into it.

use std::collections::{BTreeMap, HashMap};

use firelane::{EngineSnapshot, PortCounters, PortTraffic, RingCounters, Traffic as OneWay};
use firelane_api::{DropInfo, FlowStats, LaneReceived, LinkStats, RingStats, Stopped, Traffic, UsageOf};
use firelane_model::{FlowName, LinkClass, LinkName, Model};
use firelane_units::{Direction, DropReason, LaneId, LinkId};

use crate::carried::Carried;
use crate::history::{Subject, Totals};
use crate::works::{Upper, Works};

/// Traffic of every link, etherstub and VNIC.
pub(crate) fn links(works: &Works, model: &Model) -> Vec<LinkStats> {
    links_in(&counted(works), works, model)
}

/// The engine's counters with what it has never seen: what users of TAPs have sent while these were full. The kernel says the number of
/// such packets alone, and not their bytes.
fn counted(works: &Works) -> EngineSnapshot {
    let mut snapshot = works.engine.snapshot();
    snapshot.counters.drops.add(DropReason::RingFull, works.kernel.overflowed());
    for (id, frames) in works.overflowed() {
        snapshot.counters.drops.add(DropReason::RingFull, frames);
        if let Some(port) = snapshot.ports.get_mut(&id) {
            port.outward.packets += frames;
            port.outward.dropped += frames;
        }
    }
    snapshot
}

/// What everything has carried, for the history, which asks each second.
pub(crate) fn totals(works: &Works, model: &Model) -> Totals {
    let snapshot = counted(works);
    let links = model.link_names().map(|(name, class)| {
        let subject = Subject { of: UsageOf::Links, name: name.to_string(), link: String::new() };
        (subject, carried(&snapshot, works, name, class))
    });
    let flows = flows_in(&snapshot, works, model).into_iter().map(|it| {
        (Subject { of: UsageOf::Flows, name: it.name.to_string(), link: it.link.to_string() }, it.traffic)
    });
    links.chain(flows).collect()
}

/// What a link has carried.
fn carried(snapshot: &EngineSnapshot, works: &Works, name: &LinkName, class: LinkClass) -> Traffic {
    let before = works.before.of_link(name).map(|it| it.traffic).unwrap_or_default();
    passed(snapshot, &ports(works, name, class)).and(before)
}

fn links_in(snapshot: &EngineSnapshot, works: &Works, model: &Model) -> Vec<LinkStats> {
    let reading = Reading::of(snapshot);
    let stats = |(name, class): (&LinkName, LinkClass)| {
        let now = reading.carried(works, name, &ports(works, name, class));
        let Carried { traffic, stopped, lanes, rings } = match works.before.of_link(name) {
            Some(before) => now.and(before),
            None => now,
        };
        LinkStats { name: name.clone(), traffic, stopped, lanes, rings }
    };
    model.link_names().map(stats).collect()
}

/// What everybody has carried since what is beneath him was made.
#[derive(Debug)]
pub(crate) struct Counted {
    /// All but etherstubs, of which VNICs have carried all.
    pub(crate) links: BTreeMap<LinkName, Carried>,
    pub(crate) flows: BTreeMap<FlowName, Traffic>,
    /// How what each VNIC has sent came into its etherstub.
    pub(crate) sent: BTreeMap<LinkName, Vec<LaneReceived>>,
}

impl Counted {
    /// Whether he is among them.
    pub(crate) fn has(&self, subject: &Subject) -> bool {
        match subject.of {
            UsageOf::Links => self.links.contains_key(subject.name.as_str()),
            UsageOf::Flows => self.flows.contains_key(subject.name.as_str()),
        }
    }
}

/// What everybody has carried, for who takes some of them away.
pub(crate) fn all(works: &Works, model: &Model) -> Counted {
    let snapshot = counted(works);
    let reading = Reading::of(&snapshot);
    let links = model.link_names().map(|(name, class)| {
        let ports = if class == LinkClass::Etherstub { Vec::new() } else { ports(works, name, class) };
        (name.clone(), reading.carried(works, name, &ports))
    });
    let sent = |(name, it): (&LinkName, &Upper)| {
        (name.clone(), reading.by_port.received(&[(it.id, Direction::Out)]))
    };
    Counted {
        links: links.collect(),
        flows: model.flows.keys().map(|it| (it.clone(), flow_in(&snapshot, works, it).0)).collect(),
        sent: works.vnics.iter().map(sent).collect(),
    }
}

/// What a link has carried by what is beneath it now, and each of its flows, before that is taken away.
pub(crate) fn carried_by(
    works: &Works,
    name: &LinkName,
    model: &Model,
) -> (Carried, Vec<(FlowName, Traffic)>) {
    let snapshot = counted(works);
    let carried = Reading::of(&snapshot).carried(works, name, &ports(works, name, LinkClass::Phys));
    let its = model.flows.iter().filter(|(_, flow)| flow.link == *name);
    (carried, its.map(|(flow, _)| (flow.clone(), flow_in(&snapshot, works, flow).0)).collect())
}

/// The engine's counters, looked through once for all links.
struct Reading<'a> {
    snapshot: &'a EngineSnapshot,
    by_port: ByPort<'a>,
    by_ring: ByRing,
}

impl<'a> Reading<'a> {
    fn of(snapshot: &'a EngineSnapshot) -> Self {
        Self { snapshot, by_port: ByPort::of(snapshot), by_ring: by_ring(snapshot) }
    }

    /// What has passed a link by these ports.
    fn carried(&self, works: &Works, name: &LinkName, ports: &[(LinkId, Direction)]) -> Carried {
        let guard = works.vnics.get(name).and_then(|it| self.snapshot.guards.get(&it.id)).copied();
        let [macspoofed, restricted, ipspoofed, dhcpspoofed] = guard.unwrap_or_default();
        Carried {
            traffic: passed(self.snapshot, ports),
            stopped: Stopped { macspoofed, restricted, ipspoofed, dhcpspoofed },
            lanes: self.by_port.received(ports),
            rings: rings(&self.by_ring, works, name),
        }
    }
}

/// What has passed these ports, as their link's user sees it.
fn passed(snapshot: &EngineSnapshot, ports: &[(LinkId, Direction)]) -> Traffic {
    let each = ports.iter().map(|(id, direction)| {
        let traffic = port(snapshot, *id);
        if *direction == Direction::In { traffic } else { turned(traffic) }
    });
    each.fold(Traffic::default(), Traffic::and)
}

fn port(snapshot: &EngineSnapshot, id: LinkId) -> Traffic {
    let Some(counters) = snapshot.ports.get(&id) else { return Traffic::default() };
    Traffic {
        ipackets: counters.inward.packets,
        rbytes: counters.inward.bytes,
        ierrors: counters.inward.dropped,
        opackets: counters.outward.packets,
        obytes: counters.outward.bytes,
        oerrors: counters.outward.dropped,
        rfused: counters.inward.fused,
        ofused: counters.outward.fused,
    }
}

/// The ports by which a link's packets come in, and which way they go for the ports' users.
fn ports(works: &Works, name: &LinkName, class: LinkClass) -> Vec<(LinkId, Direction)> {
    match class {
        LinkClass::Vnic | LinkClass::Vlan | LinkClass::Iptun => {
            works.vnics.get(name).map(|it| (it.id, Direction::In)).into_iter().collect()
        }
        LinkClass::Phys => {
            let uplink = works.links.get(name).and_then(|it| it.uplink);
            uplink.map(|id| (id, Direction::Out)).into_iter().collect()
        }
        LinkClass::Etherstub => {
            let vnics = works.links.get(name).into_iter().flat_map(|it| works.above.of(it.id));
            vnics.map(|id| (id, Direction::Out)).collect()
        }
    }
}

/// What each lane has counted of a port. All lanes have all ports, so they are looked through once for all links.
struct ByPort<'a>(HashMap<LinkId, Vec<(LaneId, &'a PortCounters)>>);

impl<'a> ByPort<'a> {
    fn of(snapshot: &'a EngineSnapshot) -> Self {
        let mut by_port = HashMap::<_, Vec<_>>::new();
        for lane in &snapshot.lanes {
            for (port, counters) in &lane.ports {
                by_port.entry(*port).or_default().push((lane.lane, counters));
            }
        }
        Self(by_port)
    }

    /// How packets came in by these ports, in each lane in which any did.
    fn received(&self, ports: &[(LinkId, Direction)]) -> Vec<LaneReceived> {
        let mut lanes = BTreeMap::new();
        for (port, direction) in ports {
            for (lane, counters) in self.0.get(port).into_iter().flatten() {
                let came = if *direction == Direction::In { counters.inward } else { counters.outward };
                let came = received(*lane, &came);
                lanes.entry(*lane).and_modify(|all: &mut LaneReceived| *all = all.and(came)).or_insert(came);
            }
        }
        lanes.into_values().filter(|it| !it.is_silent()).collect()
    }
}

fn received(lane: LaneId, traffic: &PortTraffic) -> LaneReceived {
    LaneReceived {
        lane: lane.0,
        ipackets: traffic.packets,
        rbytes: traffic.bytes,
        sdrops: traffic.dropped,
        intrs: traffic.arrivals.notified,
        polls: traffic.arrivals.polled,
        fetched_bytes: traffic.arrivals.bytes,
        chains: traffic.arrivals.chains(),
    }
}

/// The rings of each port's device, with the lanes that have them.
type ByRing = HashMap<LinkId, Vec<(LaneId, RingCounters)>>;

fn by_ring(snapshot: &EngineSnapshot) -> ByRing {
    let mut by_ring = ByRing::new();
    for (lane, ring) in &snapshot.rings {
        by_ring.entry(ring.port).or_default().push((*lane, *ring));
    }
    by_ring
}

/// What each ring of a link's device has carried, as the link's user sees it: who sends to a VNIC's device sends to the VNIC.
fn rings(by_ring: &ByRing, works: &Works, name: &LinkName) -> Vec<RingStats> {
    let upper = works.vnics.get(name).map(|it| (it.id, true));
    let lower = || works.links.get(name).and_then(|it| it.uplink).map(|id| (id, false));
    let Some((port, is_vnic)) = upper.or_else(lower) else { return Vec::new() };
    let stats = |(lane, it): &(LaneId, RingCounters)| {
        let firelane::RingTraffic { fetched, sent } = it.traffic;
        let (received, sent) = if is_vnic { (sent, fetched) } else { (fetched, sent) };
        let arrivals = received.arrivals;
        RingStats {
            ring: it.ring,
            lane: lane.0,
            ipackets: arrivals.notified + arrivals.polled,
            rbytes: arrivals.bytes,
            intrs: arrivals.notified,
            polls: arrivals.polled,
            chains: arrivals.chains(),
            opackets: sent.packets,
            obytes: sent.bytes,
        }
    };
    let its = by_ring.get(&port).into_iter().flatten().copied();
    let (lent, mut own): (Vec<_>, Vec<_>) = its.partition(|(_, it)| it.is_lent);
    // What a lane has sent by a ring that is lent to it is the ring's; one that has ended is where it was at last.
    for (lane, lent) in lent {
        match own.iter_mut().find(|(_, it)| it.ring == lent.ring) {
            Some((_, ring)) => ring.traffic.merge(&lent.traffic),
            None => own.push((lane, lent)),
        }
    }
    let mut rings: Vec<_> = own.iter().map(stats).collect();
    rings.sort_by_key(|it| it.ring);
    rings
}

/// A port's traffic as the switch sees it: what the port's user sends comes in.
pub(crate) fn turned(it: Traffic) -> Traffic {
    Traffic {
        ipackets: it.opackets,
        rbytes: it.obytes,
        ierrors: it.oerrors,
        opackets: it.ipackets,
        obytes: it.rbytes,
        oerrors: it.ierrors,
        rfused: it.ofused,
        ofused: it.rfused,
    }
}

/// Traffic of every flow.
pub(crate) fn flows(works: &Works, model: &Model) -> Vec<FlowStats> {
    flows_in(&works.engine.snapshot(), works, model)
}

fn flows_in(snapshot: &EngineSnapshot, works: &Works, model: &Model) -> Vec<FlowStats> {
    let stats = model.flows.iter().map(|(name, flow)| {
        let (now, held) = flow_in(snapshot, works, name);
        let traffic = now.and(works.before.of_flow(name));
        FlowStats { name: name.clone(), link: flow.link.clone(), traffic, held }
    });
    stats.collect()
}

/// What a flow has carried since it was told to the engine, and what is held back of it.
fn flow_in(snapshot: &EngineSnapshot, works: &Works, name: &FlowName) -> (Traffic, u64) {
    let counters = works.flows.get(name).and_then(|id| snapshot.flows.get(id)).copied();
    let [inward, outward] = counters.unwrap_or_default();
    let traffic = Traffic {
        ipackets: inward.packets,
        rbytes: inward.bytes,
        ierrors: inward.dropped,
        opackets: outward.packets,
        obytes: outward.bytes,
        oerrors: outward.dropped,
        rfused: inward.fused,
        ofused: outward.fused,
    };
    (traffic, held(&inward) + held(&outward))
}

/// Frames that arrived and have not ended.
fn held(counted: &OneWay) -> u64 {
    counted.arrived.saturating_sub(counted.passed + counted.dropped)
}

/// Frames that ended, by station and reason.
pub(crate) fn drops(works: &Works) -> Vec<DropInfo> {
    let info = |(reason, frames): (DropReason, u64)| DropInfo {
        station: reason.station().word().to_owned(),
        reason: reason.word().to_owned(),
        frames,
    };
    counted(works).counters.drops.iter().map(info).collect()
}
