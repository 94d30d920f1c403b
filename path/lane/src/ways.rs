//! Remembered ways through the link side: from a port and a station's address to the port behind the switch.
//!
//! Most frames take a way that a frame before them took: no limit stands on it, no tag is set or stripped. Such a
//! way is decided once and remembered; a frame that finds it is asked for its flow where rules decide that, counted at
//! each station that it would have passed, and goes to the port at its end. Called by `links.rs`, which walks the stations one by one
//! for all other frames. Every change of ports, switches and flows makes all ways forgotten (`Links::changed`), and
//! a limit that is set later is asked for with each frame.

use core::num::NonZeroU32;

use firelane_classify::Headers;
use firelane_frame::Frame;
use firelane_units::{Direction, FlowId, LinkId, MacAddr, SwitchPortId};

use crate::common::Common;
use crate::links::Links;
use crate::message::{PortKind, PortUser};
use crate::ports::Port;

/// How many ways a lane remembers. A way that is not remembered costs what a frame cost without this file.
const WAYS: usize = 64;

/// The ways of a lane.
pub(crate) struct Ways {
    slots: Box<[Option<Way>; WAYS]>,
    /// Counts changes: ways of before are forgotten.
    version: NonZeroU32,
}

/// A way that frames from `ingress` to the station `dst` take.
struct Way {
    ingress: LinkId,
    dst: MacAddr,
    version: NonZeroU32,
    over: LinkId,
    from: SwitchPortId,
    at: SwitchPortId,
    to: LinkId,
    /// The flows at both ports.
    outward: FlowAt,
    inward: FlowAt,
    /// Nobody asks for the headers of a frame on its way: no rule, and no netstack at the end.
    is_blind: bool,
}

/// Which flow a frame belongs to at a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowAt {
    /// None: an uplink.
    Nowhere,
    /// Always the same.
    One(FlowId),
    /// The port's rules say it, frame by frame.
    ByRules,
}

impl Ways {
    pub(crate) fn new() -> Self {
        Self { slots: Box::new([const { None }; WAYS]), version: NonZeroU32::MIN }
    }

    #[inline]
    fn slot(ingress: LinkId, dst: MacAddr) -> usize {
        // Addresses of one switch differ in their last bytes, and all of them are ours or the link's.
        let mixed = (dst.to_u64() ^ (u64::from(ingress.0) << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % WAYS
    }

    #[inline]
    fn find(&self, ingress: LinkId, dst: MacAddr) -> Option<&Way> {
        let way = self.slots[Self::slot(ingress, dst)].as_ref()?;
        (way.ingress == ingress && way.dst == dst && way.version == self.version).then_some(way)
    }

    /// Forgets all ways.
    pub(crate) fn forget(&mut self) {
        self.version = self.version.checked_add(1).unwrap_or_else(|| {
            *self.slots = [const { None }; WAYS];
            NonZeroU32::MIN
        });
    }
}

/// The flow of what passes a port that is in no VLAN and that no guard looks at; `None` if the port is in one, is guarded,
/// or if the only flow's limit is kept by another lane.
fn flow_at<D>(links: &Links<D>, common: &Common<D>, port: &Port) -> Option<FlowAt> {
    if port.guarded || matches!(port.kind, PortKind::Vnic { vlan: Some(_), .. }) {
        return None;
    }
    if !port.rules.is_empty() {
        return Some(FlowAt::ByRules);
    }
    let Some(flow) = port.default_flow() else { return Some(FlowAt::Nowhere) };
    links.is_kept_here(common, flow).then_some(FlowAt::One(flow))
}

/// The flow of a frame at a port of its way.
#[inline]
fn flow_of(at: FlowAt, port: &Port, headers: &Headers, direction: Direction) -> Option<FlowId> {
    match at {
        FlowAt::Nowhere => None,
        FlowAt::One(flow) => Some(flow),
        FlowAt::ByRules => port.rules.lookup(headers, direction).or(port.default_flow()),
    }
}

impl<D> Links<D> {
    /// Whether no other lane keeps the limit of `flow`.
    #[inline]
    fn is_kept_here(&self, common: &Common<D>, flow: FlowId) -> bool {
        let home = self.places.get(flow.index()).and_then(|place| place.home);
        home.is_none_or(|home| home == common.id)
    }

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
        let (Some(port), Some(end)) = (self.ports.get(ingress.index()), self.ports.get(to.index())) else {
            return;
        };
        let flows = [port, end].map(|port| flow_at(self, common, port));
        let [Some(outward), Some(inward)] = flows else { return };
        if headers.tagged || headers.vlan.is_some() {
            return;
        }
        let ends_in_device = matches!(end.user, PortUser::Driver { .. }) && end.queue.is_some();
        let way = Way {
            ingress,
            dst: headers.dst,
            version: self.ways.version,
            over: port.over,
            from,
            at,
            to,
            outward,
            inward,
            is_blind: ends_in_device && outward != FlowAt::ByRules && inward != FlowAt::ByRules,
        };
        self.ways.slots[Ways::slot(ingress, headers.dst)] = Some(way);
    }

    /// Sends a netstack's frame by the way of those before it, to the port that it answers; `None` if the frame has to
    /// be looked at.
    #[inline]
    pub(crate) fn depart(&mut self, common: &mut Common<D>, frame: &mut Frame) -> Option<LinkId> {
        let &[a, b, c, d, e, f, ..] = frame.as_slice() else { return None };
        let ingress = frame.meta().ingress;
        // A netstack makes no tagged frames.
        let is_known = |way: &Way| way.is_blind;
        self.go(common, ingress, MacAddr([a, b, c, d, e, f]), frame, &Headers::EMPTY, is_known)
    }

    /// Sends a frame that a driver brought by the way of those before it, to the port that it answers; `None` if the
    /// frame has to be looked at.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        common: &mut Common<D>,
        ingress: LinkId,
        frame: &mut Frame,
        headers: &Headers,
    ) -> Option<LinkId> {
        self.go(common, ingress, headers.dst, frame, headers, |_| !headers.tagged)
    }

    /// Counts a frame at every station of its way, and answers the port at the end.
    #[inline(always)]
    fn go(
        &mut self,
        common: &mut Common<D>,
        ingress: LinkId,
        dst: MacAddr,
        frame: &mut Frame,
        headers: &Headers,
        is_known: impl Fn(&Way) -> bool,
    ) -> Option<LinkId> {
        let way = self.ways.find(ingress, dst).filter(|way| is_known(way))?;
        let (port, end) = (self.ports.get(ingress.index())?, self.ports.get(way.to.index())?);
        let outward = flow_of(way.outward, port, headers, Direction::Out);
        let inward = flow_of(way.inward, end, headers, Direction::In);
        for (at, flow, direction) in
            [(way.outward, outward, Direction::Out), (way.inward, inward, Direction::In)]
        {
            let Some(flow) = flow else { continue };
            let is_here = at != FlowAt::ByRules || self.is_kept_here(common, flow);
            if !is_here || !self.flows.is_unlimited(flow, direction) {
                return None;
            }
        }
        let weight = frame.weight();
        self.switches.get_mut(way.over.index())?.switch.pass(way.from, way.at, weight);
        self.ports.get_mut(ingress.index())?.counters.outward.count(weight);
        if let Some(flow) = outward {
            frame.meta_mut().flow = flow.into();
            self.flows.pass_unlimited(flow, Direction::Out, weight);
        }
        common.taps.see(common.now, (ingress, way.over), Direction::Out, frame);
        if let Some(flow) = inward {
            frame.meta_mut().flow = flow.into();
            self.flows.pass_unlimited(flow, Direction::In, weight);
        }
        Some(way.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_found_until_something_changes() {
        let (dst, other) = (MacAddr([2, 8, 0x20, 0, 0, 1]), MacAddr([2, 8, 0x20, 0, 0, 2]));
        let mut ways = Ways::new();
        let way = Way {
            ingress: LinkId(3),
            dst,
            version: ways.version,
            over: LinkId(1),
            from: SwitchPortId(0),
            at: SwitchPortId(1),
            to: LinkId(4),
            outward: FlowAt::Nowhere,
            inward: FlowAt::Nowhere,
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
