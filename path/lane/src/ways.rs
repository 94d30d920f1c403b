//! Remembered ways through the link side: from a port and a station's address to the port behind the switch.
//!
//! Most frames take a way that a frame before them took: no limit stands on it, no tag is set or stripped. Such a
//! way is decided once and remembered; a frame that finds it is asked for its flow where rules decide that, and goes to
//! the port at its end. Ports and switch count what went a way once per chain (`Links::settle_ways`). Called by
//! `links.rs`, which walks the stations one by one for all other frames. Every change of ports, switches and flows
//! makes all ways forgotten (`Links::changed`), and a limit that is set later is asked for with each frame.

use core::num::NonZeroU32;

use firelane_classify::Headers;
use firelane_frame::{FlowTag, Frame, Weight};
use firelane_table::Minted;
use firelane_units::{Direction, FlowId, LinkId, NetstackId, SwitchPortId};

use crate::common::Common;
use crate::links::Links;
use crate::message::{PortKind, PortUser};
use crate::ports::{FlowPlace, Port, TX_QUEUE_MAX};
use crate::steer::lane_of;

/// How many ways a lane remembers. A way that is not remembered costs what a frame cost without this file.
const WAYS: usize = u64::BITS as usize;

/// The ways of a lane.
pub(crate) struct Ways {
    slots: Box<[Option<Way>; WAYS]>,
    /// The slots of ways with frames that ports and switch have not counted yet, a bit for each.
    uncounted: u64,
    /// Counts changes: ways of before are forgotten.
    version: NonZeroU32,
}

/// A way that frames from `ingress` to the station `dst` take.
struct Way {
    ingress: LinkId,
    dst: Station,
    version: NonZeroU32,
    over: LinkId,
    from: SwitchPortId,
    at: SwitchPortId,
    to: LinkId,
    end: WayEnd,
    /// The flows at both ports.
    outward: FlowAt,
    inward: FlowAt,
    /// What went this way and is not counted yet: frames, and what they weigh.
    frames: u64,
    passed: Weight,
    /// Of those, what the netstack at the end has got in this lane.
    arrived: Weight,
    /// Nobody asks for the headers of a frame on its way: no rule, and no netstack at the end.
    is_blind: bool,
}

/// Who is at the end of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WayEnd {
    /// A driver's queue.
    Queue(usize),
    /// A netstack.
    Netstack(NetstackId),
    /// Who else may use a port.
    Other,
}

/// A station's address as a word: compared for each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Station(u64);

impl Station {
    #[inline]
    const fn new([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self(u32::from_le_bytes([a, b, c, d]) as u64 | (u16::from_le_bytes([e, f]) as u64) << 32)
    }
}

/// Which flow a frame belongs to at a port.
#[derive(Clone, Copy)]
struct FlowAt {
    /// That of all frames, or of those that no rule matches; none at an uplink.
    usual: Option<FlowId>,
    /// The port has rules, and they are asked with each frame.
    has_rules: bool,
}

impl FlowAt {
    #[inline]
    fn flow(
        self,
        ports: &Minted<Port>,
        port: LinkId,
        headers: &Headers,
        direction: Direction,
    ) -> Option<FlowId> {
        let rules = ports.get(port.0).filter(|_| self.has_rules).map(|port| &port.rules);
        rules.and_then(|rules| rules.lookup(headers, direction)).or(self.usual)
    }
}

impl Ways {
    pub(crate) fn new() -> Self {
        Self { slots: Box::new([const { None }; WAYS]), uncounted: 0, version: NonZeroU32::MIN }
    }

    #[inline]
    fn slot(ingress: LinkId, dst: Station) -> usize {
        // All addresses are ours or the link's. The product's highest bits are of all bits.
        let mixed = (dst.0 ^ (u64::from(ingress.0) << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - WAYS.ilog2())) as usize
    }

    #[cfg(test)]
    fn find(&mut self, ingress: LinkId, dst: Station) -> Option<&mut Way> {
        self.slots[Self::slot(ingress, dst)].as_mut().filter(|way| way.leads(ingress, dst, self.version))
    }

    /// Forgets all ways.
    pub(crate) fn forget(&mut self) {
        debug_assert_eq!(self.uncounted, 0, "changes come between chains");
        self.version = self.version.checked_add(1).unwrap_or_else(|| {
            *self.slots = [const { None }; WAYS];
            NonZeroU32::MIN
        });
    }
}

impl Way {
    /// Whether a frame from `ingress` to `dst` takes it.
    #[inline]
    fn leads(&self, ingress: LinkId, dst: Station, version: NonZeroU32) -> bool {
        self.ingress == ingress && self.dst == dst && self.version == version
    }

    #[inline]
    fn asks_rules(&self) -> bool {
        self.outward.has_rules || self.inward.has_rules
    }

    /// The flows of a frame where no rule decides.
    #[inline]
    fn usual(&self) -> (Option<FlowId>, Option<FlowId>) {
        (self.outward.usual, self.inward.usual)
    }

    /// The flows of a frame by rules.
    #[inline]
    fn ruled(&self, ports: &Minted<Port>, headers: &Headers) -> (Option<FlowId>, Option<FlowId>) {
        let outward = self.outward.flow(ports, self.ingress, headers, Direction::Out);
        (outward, self.inward.flow(ports, self.to, headers, Direction::In))
    }
}

/// The flow of what passes a port that is in no VLAN and that no guard looks at; `None` if the port is in one, is guarded,
/// or if the only flow's limit is kept by another lane.
fn flow_at<D>(links: &Links<D>, common: &Common<D>, port: &Port) -> Option<FlowAt> {
    if port.guarded || matches!(port.kind, PortKind::Vnic { vlan: Some(_), .. }) {
        return None;
    }
    let (usual, has_rules) = (port.default_flow(), !port.rules.is_empty());
    // A link's own flows are asked at their stations.
    if port.kind == PortKind::Uplink && has_rules {
        return None;
    }
    // Where rules decide, where a limit is kept is asked with each frame.
    let is_here = has_rules || usual.is_none_or(|flow| is_kept_here(&links.places, common, flow));
    is_here.then_some(FlowAt { usual, has_rules })
}

/// Whether no other lane keeps the limit of `flow`.
#[inline]
fn is_kept_here<D>(places: &Minted<FlowPlace>, common: &Common<D>, flow: FlowId) -> bool {
    let home = places.get(flow.0).and_then(|place| place.home);
    home.is_none_or(|home| home == common.id)
}

/// Shows a frame to the taps of the port that it came by, and of the one that it goes to if a device is there: who looks may ask
/// for its flow at either.
#[cold]
fn show<D>(
    common: &mut Common<D>,
    frame: &mut Frame,
    over: LinkId,
    from: (LinkId, Option<FlowId>),
    to: Option<(LinkId, Option<FlowId>)>,
) {
    for ((port, flow), direction) in [(Some(from), Direction::Out), (to, Direction::In)]
        .into_iter()
        .filter_map(|(at, direction)| Some((at?, direction)))
    {
        frame.meta_mut().flow = flow.map_or(frame.meta().flow, FlowTag::from);
        common.taps.see(common.now, (port, over), direction, frame);
    }
}

impl<D> Links<D> {
    /// The switch has decided that a frame from `ingress` to `dst` goes from its port `from` to `at`, where our port
    /// `to` is: remembers it if nothing else has to be decided for the next one.
    pub(crate) fn remember(
        &mut self,
        common: &Common<D>,
        ingress: LinkId,
        headers: &Headers,
        (from, at): (SwitchPortId, SwitchPortId),
        to: LinkId,
    ) {
        let (Some(port), Some(end)) = (self.ports.get(ingress.0), self.ports.get(to.0)) else {
            return;
        };
        let flows = [port, end].map(|port| flow_at(self, common, port));
        let [Some(outward), Some(inward)] = flows else { return };
        if headers.tagged || headers.vlan.is_some() {
            return;
        }
        let end = match (end.user, end.queue) {
            (PortUser::Driver { .. }, Some(queue)) if end.kept.is_none() => WayEnd::Queue(queue),
            (PortUser::Netstack(netstack), _) => WayEnd::Netstack(netstack),
            _ => WayEnd::Other,
        };
        let dst = Station::new(headers.dst.0);
        let way = Way {
            ingress,
            dst,
            version: self.ways.version,
            over: port.over,
            from,
            at,
            to,
            end,
            outward,
            inward,
            frames: 0,
            passed: Weight::NONE,
            arrived: Weight::NONE,
            is_blind: matches!(end, WayEnd::Queue(_)) && !outward.has_rules && !inward.has_rules,
        };
        let slot = Ways::slot(ingress, dst);
        // The way that has the place may have something to count.
        if self.ways.uncounted >> slot & 1 != 0 {
            self.settle_ways();
        }
        self.ways.slots[slot] = Some(way);
    }

    /// Sends a netstack's frame by the way of those before it; gives it back if it has to be looked at.
    #[inline]
    pub(crate) fn depart(&mut self, common: &mut Common<D>, frame: Frame) -> Result<(), Frame> {
        let &[a, b, c, d, e, f, ..] = frame.as_slice() else { return Err(frame) };
        let ingress = frame.meta().ingress;
        // A netstack makes no tagged frames.
        let is_known = |way: &Way| way.is_blind;
        self.go(common, ingress, Station::new([a, b, c, d, e, f]), frame, &Headers::EMPTY, is_known)
    }

    /// Sends a frame that a driver brought by the way of those before it; gives it back if it has to be looked at.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        common: &mut Common<D>,
        ingress: LinkId,
        frame: Frame,
        headers: &Headers,
    ) -> Result<(), Frame> {
        self.go(common, ingress, Station::new(headers.dst.0), frame, headers, |_| !headers.tagged)
    }

    /// Takes a frame to the end of its way, past the flows at both ports.
    #[inline(always)]
    fn go(
        &mut self,
        common: &mut Common<D>,
        ingress: LinkId,
        dst: Station,
        mut frame: Frame,
        headers: &Headers,
        is_known: impl Fn(&Way) -> bool,
    ) -> Result<(), Frame> {
        let Self { ways, ports, flows, places, queues, doors, steering_key, arrivals, .. } = self;
        let slot = Ways::slot(ingress, dst);
        let Some(way) = &mut ways.slots[slot] else { return Err(frame) };
        if !way.leads(ingress, dst, ways.version) || !is_known(way) {
            return Err(frame);
        }
        let asks_rules = way.asks_rules();
        let (outward, inward) = if asks_rules { way.ruled(ports, headers) } else { way.usual() };
        if asks_rules && ![outward, inward].into_iter().flatten().all(|it| is_kept_here(places, common, it)) {
            return Err(frame);
        }
        let queue = if let WayEnd::Queue(queue) = way.end { queues.get_mut(queue) } else { None };
        // A full queue drops the frame at its end, once the stations before it have counted it.
        if queue.as_ref().is_some_and(|queue| queue.tx.len() >= TX_QUEUE_MAX) {
            return Err(frame);
        }
        if !flows.are_unlimited(outward, inward) {
            return Err(frame);
        }
        let weight = frame.weight();
        // Where no rule decides, the flows are the way's.
        if asks_rules {
            flows.count_both(outward, inward, 1, weight);
        }
        way.frames += 1;
        way.passed += weight;
        ways.uncounted |= 1 << slot;
        let (over, to, is_watched) = (way.over, way.to, !common.taps.is_empty());
        if is_watched {
            let inner = queue.as_ref().map(|_| (to, inward));
            show(common, &mut frame, over, (ingress, outward), inner);
        }
        if let Some(flow) = inward.or(outward) {
            frame.meta_mut().flow = flow.into();
        }
        let is_here = |netstack: NetstackId| {
            let door = doors.get(netstack.0.into());
            door.is_none_or(|door| lane_of(headers, door, steering_key) == common.id)
        };
        match (queue, way.end) {
            (Some(queue), _) => queue.tx.push(frame),
            (None, WayEnd::Netstack(netstack)) if !is_watched && is_here(netstack) => {
                way.arrived += weight;
                arrivals.push(netstack, to, frame, headers);
            }
            (None, _) => self.deliver(common, to, frame, headers),
        }
        Ok(())
    }

    /// Ports and switches count what went by remembered ways: once per chain, not per frame.
    pub(crate) fn settle_ways(&mut self) {
        let Self { ways, ports, switches, flows, chain, arrival, .. } = self;
        let mut uncounted = core::mem::take(&mut ways.uncounted);
        while uncounted != 0 {
            let slot = uncounted.trailing_zeros() as usize;
            uncounted &= uncounted - 1;
            let Some(way) = &mut ways.slots[slot] else { continue };
            let passed = core::mem::replace(&mut way.passed, Weight::NONE);
            let arrived = core::mem::replace(&mut way.arrived, Weight::NONE);
            let frames = core::mem::take(&mut way.frames);
            if !way.asks_rules() {
                let (outward, inward) = way.usual();
                flows.count_both(outward, inward, frames, passed);
            }
            if let Some(link) = switches.get_mut(way.over.0) {
                link.switch.pass(way.from, way.at, passed);
            }
            if let Some(port) = ports.get_mut(way.ingress.0) {
                port.counters.outward.count(passed, *arrival, *chain);
            }
            let inward = match way.end {
                WayEnd::Queue(_) => passed,
                // What is handed to another lane is counted there, and `deliver` counts what it is given.
                WayEnd::Netstack(_) => arrived,
                WayEnd::Other => continue,
            };
            if let Some(port) = ports.get_mut(way.to.0) {
                port.counters.inward.count(inward, *arrival, *chain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_found_until_something_changes() {
        let (dst, other) = (Station::new([2, 8, 0x20, 0, 0, 1]), Station::new([2, 8, 0x20, 0, 0, 2]));
        let mut ways = Ways::new();
        let way = Way {
            ingress: LinkId(3),
            dst,
            version: ways.version,
            over: LinkId(1),
            from: SwitchPortId(0),
            at: SwitchPortId(1),
            to: LinkId(4),
            end: WayEnd::Other,
            outward: FlowAt { usual: None, has_rules: false },
            inward: FlowAt { usual: None, has_rules: false },
            frames: 0,
            passed: Weight::NONE,
            arrived: Weight::NONE,
            is_blind: true,
        };
        ways.slots[Ways::slot(LinkId(3), dst)] = Some(way);
        assert!(ways.find(LinkId(3), dst).is_some_and(|way| way.to == LinkId(4)));
        assert!(ways.find(LinkId(2), dst).is_none() && ways.find(LinkId(3), other).is_none());
        ways.forget();
        assert!(ways.find(LinkId(3), dst).is_none());
        ways.version = NonZeroU32::MAX;
        ways.forget();
        assert!(ways.slots.iter().all(Option::is_none), "versions begin again with nothing remembered");
    }
}
