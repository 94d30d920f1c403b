//! Remembered ways through the link side: from a port and a station's address to the port behind the switch.
//!
//! Most frames take a way that a frame before them took: no rule and no limit stands on it, no tag is set or
//! stripped. Such a way is decided once and remembered; a frame that finds it is counted at each station that it
//! would have passed, and goes to the port at its end. Called by `links.rs`, which walks the stations one by one
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
#[derive(Clone, Copy)]
struct Way {
    ingress: LinkId,
    dst: MacAddr,
    version: NonZeroU32,
    over: LinkId,
    from: SwitchPortId,
    at: SwitchPortId,
    to: LinkId,
    /// The flows of both ports; an uplink has none.
    flows: [Option<FlowId>; 2],
    /// The frames end in a device of this lane, so nobody needs their headers.
    ends_in_device: bool,
}

impl Ways {
    pub(crate) fn new() -> Self {
        Self { slots: Box::new([None; WAYS]), version: NonZeroU32::MIN }
    }

    #[inline]
    fn slot(ingress: LinkId, dst: MacAddr) -> usize {
        // Addresses of one switch differ in their last bytes, and all of them are ours or the link's.
        let mixed = (dst.to_u64() ^ (u64::from(ingress.0) << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % WAYS
    }

    #[inline]
    fn find(&self, ingress: LinkId, dst: MacAddr) -> Option<Way> {
        let way = self.slots[Self::slot(ingress, dst)]?;
        (way.ingress == ingress && way.dst == dst && way.version == self.version).then_some(way)
    }

    /// Forgets all ways.
    pub(crate) fn forget(&mut self) {
        self.version = self.version.checked_add(1).unwrap_or_else(|| {
            *self.slots = [None; WAYS];
            NonZeroU32::MIN
        });
    }
}

/// The flow of everything at a port that has no rules and is in no VLAN; `None` if it is not such a port, or if the
/// flow's limit is kept by another lane.
fn plain_flow<D>(links: &Links<D>, common: &Common<D>, port: &Port) -> Option<Option<FlowId>> {
    if !port.rules.is_empty() || matches!(port.kind, PortKind::Vnic { vlan: Some(_), .. }) {
        return None;
    }
    let flow = port.default_flow();
    let home = flow.and_then(|flow| links.places.get(flow.index())?.home);
    home.is_none_or(|home| home == common.id).then_some(flow)
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
        let (Some(port), Some(end)) = (self.ports.get(ingress.index()), self.ports.get(to.index())) else {
            return;
        };
        let flows = [port, end].map(|port| plain_flow(self, common, port));
        let [Some(outward), Some(inward)] = flows else { return };
        if headers.tagged || headers.vlan.is_some() {
            return;
        }
        let way = Way {
            ingress,
            dst: headers.dst,
            version: self.ways.version,
            over: port.over,
            from,
            at,
            to,
            flows: [outward, inward],
            ends_in_device: matches!(end.user, PortUser::Driver { .. }) && end.queue.is_some(),
        };
        self.ways.slots[Ways::slot(ingress, headers.dst)] = Some(way);
    }

    /// Sends a netstack's frame by the way of those before it; gives it back if it has to be looked at.
    #[inline]
    pub(crate) fn depart(&mut self, common: &mut Common<D>, frame: Frame) -> Result<(), Frame> {
        let dst = match frame.as_slice() {
            &[a, b, c, d, e, f, ..] => MacAddr([a, b, c, d, e, f]),
            _ => return Err(frame),
        };
        match self.ways.find(frame.meta().ingress, dst) {
            // A netstack makes no tagged frames.
            Some(way) if way.ends_in_device => self.go(common, &way, frame, &Headers::EMPTY),
            _ => Err(frame),
        }
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
        match self.ways.find(ingress, headers.dst) {
            Some(way) if !headers.tagged => self.go(common, &way, frame, headers),
            _ => Err(frame),
        }
    }

    /// Counts a frame at every station of its way and hands it to the port at the end.
    #[inline(always)]
    fn go(
        &mut self,
        common: &mut Common<D>,
        way: &Way,
        mut frame: Frame,
        headers: &Headers,
    ) -> Result<(), Frame> {
        let [outward, inward] = way.flows;
        let is_open = |flow: Option<FlowId>, direction| {
            flow.is_none_or(|flow| self.flows.is_unlimited(flow, direction))
        };
        if !is_open(outward, Direction::Out) || !is_open(inward, Direction::In) {
            return Err(frame);
        }
        let (Some(port), Some(link)) =
            (self.ports.get_mut(way.ingress.index()), self.switches.get_mut(way.over.index()))
        else {
            return Err(frame);
        };
        port.counters.outward.count(&frame);
        link.switch.pass(way.from, way.at, &frame);
        if let Some(flow) = outward {
            frame.meta_mut().flow = flow.into();
            self.flows.pass_unlimited(flow, Direction::Out, &frame);
        }
        common.taps.see(common.now, (way.ingress, way.over), Direction::Out, &frame);
        if let Some(flow) = inward {
            frame.meta_mut().flow = flow.into();
            self.flows.pass_unlimited(flow, Direction::In, &frame);
        }
        self.deliver(common, way.to, frame, headers);
        Ok(())
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
            flows: [None; 2],
            ends_in_device: true,
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
