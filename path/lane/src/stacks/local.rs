//! What a netstack sends to itself, as the VNICs see it that have its addresses.
//!
//! Such traffic passes no link. It is still what the VNIC with the sender's address sends, and what the one with the
//! receiver's gets: their flows count it, and their limits hold (`loops.rs`). Loopback addresses are no VNIC's. Text of fused connections passes no lane
//! either: here is counted what others have seen of it, the rings' cursors (`fusion.rs`) and whoever serves programs.

use core::net::IpAddr;

use firelane_classify::{Headers, L3, SteeringKey, Tuple};
use firelane_flow::Limits;
use firelane_frame::{FlowTag, Frame};
use firelane_ip::{Egress, LOOPBACK};
use firelane_socket::ConnRef;
use firelane_units::{Bytes, ConnId, Direction, DropReason, LaneId, LinkId, MacAddr};

use super::Stacks;
use super::across::{Ends, turned};
use super::conn::Conns;
use super::inbound::Inside;
use super::shard::Shard;
use crate::common::Common;
use crate::fusion::Fusion;
use crate::likeness::Likeness;
use crate::links::Links;
use crate::message::{Control, Stage};
use crate::steer::{lane_of, lane_of_loop};

/// Places that one look for fused connections passes.
const PLACES_PER_LOOK: u32 = 1024;

/// Text that has gone from one end of a connection to the other past TCP, and is to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// From whom to whom, and how its sender marks packets.
    ends: Ends,
    tuple: Tuple,
    dsfield: u8,
    bytes: u64,
}

impl Conns {
    /// Notes what the peer of a connection of this process has read straight from its ring since this was last asked: when
    /// the connection is parted at the latest, because then TCP reads there. Of one that is over, all that was written will be read so.
    pub(super) fn note_passed(&mut self, id: ConnId) {
        let Some(conn) = self.slab.get(id) else { return };
        let send = &conn.stream.send;
        let unread = if conn.fusion == Fusion::Severed { send.available() as u64 } else { 0 };
        let bytes = send.take_passed(send.cursor() + unread);
        if let Some(tuple) = conn.tuple().filter(|_| bytes > 0) {
            self.passed.push(Passed { ends: conn.ends(), tuple, dsfield: conn.dsfield(), bytes });
        }
    }
}

impl Stacks {
    /// Counts text that two programs have carried past the lane: what went from the connection to its peer, and what came.
    pub(crate) fn count_beside<D>(&mut self, links: &mut Links<D>, conn: ConnRef, carried: [u64; 2]) {
        let Some(conn) = self.conns.slab.resolve(conn).and_then(|id| self.conns.slab.get(id)) else { return };
        let (ends, Some(tuple)) = (conn.ends(), conn.tuple()) else { return };
        let ways = [(ends, tuple), (turned(ends), tuple.reversed())];
        for ((ends, tuple), bytes) in ways.into_iter().zip(carried) {
            let dsfield = self.mark_of(ends[0], &tuple);
            self.conns.passed.push(Passed { ends, tuple, dsfield, bytes });
        }
        self.count_passed(links);
    }

    /// Counts what connections of this process have carried past TCP, of some places of the table from `from` on. Where to go
    /// on, if there are more.
    pub(crate) fn count_fused<D>(&mut self, links: &mut Links<D>, from: u32) -> Option<u32> {
        if self.conns.lent == 0 {
            return None;
        }
        let end = from.saturating_add(PLACES_PER_LOOK);
        for place in from..end {
            let id = ConnId(place);
            if self.conns.slab.get(id).is_some_and(|conn| conn.fusion.peer().is_some()) {
                self.conns.note_passed(id);
            }
        }
        self.count_passed(links);
        ((end as usize) < self.conns.slab.places()).then_some(end)
    }

    /// A change comes. If it may have a say in who is fused or limited, all connections are asked in the turns that follow.
    pub(crate) fn follow<D>(&mut self, common: &Common<D>, links: &Links<D>, change: &Control<D>) {
        let has_say = match change {
            Control::SetFusion(..) | Control::AddTap(_) | Control::RemoveTap(_) => true,
            Control::SetMaxbw(..) => true,
            // Two netstacks may have somebody between them now who was not there before.
            Control::RemovePort(_)
            | Control::SetOnlooker(..)
            | Control::Plug(..)
            | Control::SetUser(..)
            | Control::RemoveAddress(..)
            | Control::SuspendAddress(..)
            | Control::RemoveNetstack(_)
            | Control::SetFilter(..)
            | Control::ChangePools(..)
            | Control::SetNat(..) => links.crossing > 0,
            // What belonged to one that somebody looks at, that forbids it or that is limited, may belong to another.
            Control::AddFlow(setup) if setup.config.maxbw.is_some() => true,
            Control::AddFlow(_) | Control::RemoveFlow(_) => {
                !common.taps.is_empty() || links.unfusing > 0 || links.flows.has_limits()
            }
            _ => false,
        };
        if has_say {
            self.conns.hand.ask_all();
        }
        if matches!(change, Control::SetHome(..)) && links.flows.has_limits() {
            self.conns.hand.renew_all();
        }
    }

    /// Goes on with what netstacks send to themselves: limits have released it, or another lane has handed it over.
    pub(crate) fn go_on_looping<D>(&mut self, common: &mut Common<D>, links: &mut Links<D>) {
        if links.loops.is_empty() {
            return;
        }
        for (stage, frame) in links.take_loops() {
            let (netstack, from) = match stage {
                Stage::LoopOut(netstack) => (netstack, Some(Direction::Out)),
                Stage::LoopIn(netstack) => (netstack, Some(Direction::In)),
                Stage::Loopback(netstack) => (netstack, None),
                _ => unreachable!("no other stage is a netstack's way to itself"),
            };
            match self.shards.get(netstack) {
                Some(shard) => shard.send_to_itself(common, links, from, frame),
                None => common.drop_frame(frame, DropReason::NoPort),
            }
        }
    }

    /// Counts what was noted.
    pub(crate) fn count_passed<D>(&mut self, links: &mut Links<D>) {
        while let Some(Passed { ends, tuple, dsfield, bytes }) = self.conns.passed.pop() {
            let likeness = self.likeness_between(links, ends, &tuple, dsfield);
            links.count_fused(self.way_between(ends, &tuple), &likeness, Bytes(bytes));
        }
    }
}

impl<D> Inside<'_, D> {
    /// Shows a packet that the netstack sends to itself to whoever looks on at the VNICs that have its addresses.
    #[cold]
    pub(super) fn show_loop(&mut self, links: &Links<D>, frame: &mut Frame) {
        let Ok(headers) = Headers::parse(frame.as_slice()) else { return };
        // The headers name the receiver's end as the local one.
        let Some(tuple) = headers.tuple().map(|tuple| tuple.reversed()) else { return };
        for (link, direction) in self.shard.local_way(&tuple) {
            if let Some(port) = links.ports.get(link.0) {
                frame.meta_mut().flow =
                    links.flow_of(link, &headers, direction).map_or_else(FlowTag::default, FlowTag::from);
                self.common.taps.see(self.common.now, (link, port.over), direction, frame);
            }
        }
    }
}

impl Shard {
    /// The VNICs that what goes from the tuple's local end to its remote one is of: which one sends it, and which one gets it.
    fn local_way(&self, tuple: &Tuple) -> impl Iterator<Item = (LinkId, Direction)> + use<> {
        self.way_between(tuple.local(), tuple.remote())
    }

    fn way_between(&self, from: IpAddr, to: IpAddr) -> impl Iterator<Item = (LinkId, Direction)> + use<> {
        let ends = [(from, Direction::Out), (to, Direction::In)];
        let way = ends.map(|(address, direction)| Some((self.ip.core.link_of(address)?, direction)));
        way.into_iter().flatten()
    }

    /// The flows in which what takes this way is sent and, if this netstack itself gets it, got; its sender marks it so.
    pub(super) fn flows_of<D>(&self, links: &Links<D>, way: &Egress, tuple: &Tuple, dsfield: u8) -> Limits {
        let likeness = Likeness::new(*tuple, dsfield);
        if way.link == LOOPBACK {
            return links.flows_along(self.local_way(tuple), &likeness);
        }
        let likeness = likeness.between(way.src_mac, way.dst_mac.unwrap_or(MacAddr::ZERO));
        let flow = links.flow_at(way.link, &likeness, Direction::Out);
        [flow.map(|flow| (flow, Direction::Out)), None]
    }

    /// Lets a frame that the netstack sends to itself pass the VNICs that have its addresses, from this one on unless it has passed
    /// both, and then arrive.
    pub(super) fn send_to_itself<D>(
        &self,
        common: &mut Common<D>,
        links: &mut Links<D>,
        from: Option<Direction>,
        mut frame: Frame,
    ) {
        let headers = match Headers::parse(frame.as_slice()) {
            Ok(headers) => headers,
            Err(reason) => return common.drop_frame(frame, reason),
        };
        let netstack = self.config.id;
        let ends: Option<[IpAddr; 2]> = match headers.l3 {
            L3::V4 { src, dst } => Some([src.into(), dst.into()]),
            L3::V6 { src, dst } => Some([src.into(), dst.into()]),
            _ => None,
        };
        // A copy of what goes to a group is no other packet: the VNIC that sends it has counted it.
        let ends = ends.filter(|[_, to]| to.is_loopback() || self.ip.core.link_of(*to).is_some());
        let way = ends.map(|[from, to]| self.way_between(from, to));
        for station @ (_, direction) in way.into_iter().flatten() {
            if from.is_none_or(|from| from == Direction::In && direction == Direction::Out) {
                continue;
            }
            match links.pass_loop(common, netstack, station, frame, &headers) {
                Some(passed) => frame = passed,
                None => return,
            }
        }
        let lane = self.lane_of_loop(&headers, &common.secrets.steering());
        links.loop_to(common, (netstack, lane), frame, &headers);
    }

    /// The lane of a packet that comes by the netstack's way to itself. Where a rule resets a connection in its peer's name (`return-rst
    /// out`), that is one by a link.
    pub(super) fn lane_of_loop(&self, headers: &Headers, key: &SteeringKey) -> LaneId {
        let src: Option<IpAddr> = match headers.l3 {
            L3::V4 { src, .. } => Some(src.into()),
            L3::V6 { src, .. } => Some(src.into()),
            _ => None,
        };
        match src.is_none_or(|src| self.ip.core.is_local(src)) {
            true => lane_of_loop(headers, &self.config.steering, key),
            false => lane_of(headers, &self.config.steering, key),
        }
    }
}

impl<D> Links<D> {
    /// Text has gone from the VNIC that has the tuple's local address to the one that has its remote address, in place of packets like these.
    fn count_fused(
        &mut self,
        way: impl Iterator<Item = (LinkId, Direction)>,
        likeness: &Likeness,
        bytes: Bytes,
    ) {
        for (link, direction) in way {
            if let Some(flow) = self.flow_at(link, likeness, direction) {
                self.flows.count_fused(flow, direction, bytes);
            }
            if let Some(port) = self.ports.get_mut(link.0) {
                let fused = &mut port.counters.of_mut(direction).fused;
                *fused = fused.saturating_add(bytes.0);
            }
        }
    }
}
