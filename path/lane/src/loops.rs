//! What a netstack sends to itself, at the VNICs that have its addresses: their limits hold and their counters count, as
//! if a switch had carried it from one to the other.
//!
//! ```text
//!  netstack --> sender's VNIC: flow, limit --> receiver's VNIC: flow, limit --> the netstack's shard
//! ```
//!
//! Whose the addresses are only the netstack knows: `stacks/local.rs` asks both VNICs, one after the other. What must go on later, in
//! another lane or behind a limit, comes back to it by [`Links::take_loops`].

use core::mem;

use firelane_classify::Headers;
use firelane_flow::Verdict;
use firelane_frame::Frame;
use firelane_ip::LOOPBACK;
use firelane_units::{Direction, DropReason, FlowId, LaneId, LinkId, NetstackId};
use firelane_wire::IpProtocol;

use crate::common::Common;
use crate::links::Links;
use crate::message::{PortUser, Stage};
use crate::ports::home_elsewhere;
use crate::steer::lane_of_loop;
use crate::watch::Sight;

impl<D> Links<D> {
    /// Lets a frame pass one of the two VNICs. It comes back if it goes on now.
    pub(crate) fn pass_loop(
        &mut self,
        common: &mut Common<D>,
        netstack: NetstackId,
        (link, direction): (LinkId, Direction),
        mut frame: Frame,
        headers: &Headers,
    ) -> Option<Frame> {
        let flow = self.flow_of(link, headers, direction);
        if let Some(flow) = flow
            && let Some(home) = home_elsewhere(&self.places, common.id, flow)
        {
            self.note_far(common, home, (flow, direction), &frame);
            let stage = match direction {
                Direction::Out => Stage::LoopOut(netstack),
                Direction::In => Stage::LoopIn(netstack),
            };
            common.hand_over(home, stage, LOOPBACK, frame);
            return None;
        }
        common.see(frame.meta().trace, Sight::Flow(link, direction, flow));
        if direction == Direction::Out {
            self.count_loop(link, direction, &frame);
        }
        let Some(flow) = flow else {
            self.count_looped(link, direction, &frame);
            return Some(frame);
        };
        frame.meta_mut().flow = flow.into();
        if self.flows.pass_unlimited(flow, direction, frame.weight()) {
            self.count_looped(link, direction, &frame);
            return Some(frame);
        }
        if self.flows.must_cut(flow, direction, &frame) {
            self.admit_cut(common, direction, flow, link, frame);
            return None;
        }
        let trace = frame.meta().trace;
        match self.flows.admit(common.now, flow, direction, frame) {
            Verdict::Pass(frame) => {
                self.count_looped(link, direction, &frame);
                return Some(frame);
            }
            Verdict::Held => common.see(trace, Sight::Held(flow)),
            Verdict::Drop(frame, reason) => self.drop_at(common, link, direction, frame, reason),
        }
        None
    }

    /// Counts a frame that has passed the limits of the VNIC that gets it.
    fn count_looped(&mut self, link: LinkId, direction: Direction, frame: &Frame) {
        if direction == Direction::In {
            self.count_loop(link, direction, frame);
        }
    }

    fn count_loop(&mut self, link: LinkId, direction: Direction, frame: &Frame) {
        let chain = self.chain;
        if let Some(port) = self.ports.get_mut(link.0) {
            port.counters.of_mut(direction).count(frame.weight(), frame.meta().arrival, chain);
        }
    }

    /// The flow of a packet at the VNIC `link` that sends or gets it: its frame has the addresses of no link.
    pub(crate) fn flow_of(&self, link: LinkId, headers: &Headers, direction: Direction) -> Option<FlowId> {
        let (port, mac) = (self.ports.get(link.0)?, self.mac_of(link)?);
        let headers = match direction {
            Direction::Out => Headers { src: mac, ..*headers },
            Direction::In => Headers { dst: mac, ..*headers },
        };
        port.rules.lookup(&headers, direction).or(port.default_flow())
    }

    /// A limit of the port `owner` has released a frame of this kind, or let a part of it pass.
    pub(crate) fn go_on_looping(
        &mut self,
        common: &mut Common<D>,
        owner: Option<LinkId>,
        direction: Direction,
        frame: Frame,
        headers: &Headers,
    ) {
        let Some((link, netstack)) = owner.and_then(|link| Some((link, self.netstack_of(link)?))) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        self.count_looped(link, direction, &frame);
        match direction {
            Direction::Out => self.loops.push((Stage::LoopIn(netstack), frame)),
            Direction::In => self.loop_back(common, netstack, frame, headers),
        }
    }

    /// A flow of the port `owner` has ended that held a frame of this kind.
    pub(crate) fn loop_again(
        &mut self,
        common: &mut Common<D>,
        owner: LinkId,
        direction: Direction,
        frame: Frame,
    ) {
        match (self.netstack_of(owner), direction) {
            (Some(netstack), Direction::Out) => self.loops.push((Stage::LoopOut(netstack), frame)),
            (Some(netstack), Direction::In) => self.loops.push((Stage::LoopIn(netstack), frame)),
            (None, _) => common.drop_frame(frame, DropReason::NoPort),
        }
    }

    fn netstack_of(&self, link: LinkId) -> Option<NetstackId> {
        match self.ports.get(link.0)?.user {
            PortUser::Netstack(netstack) => Some(netstack),
            _ => None,
        }
    }

    /// Frames of this kind that are to go on, each at its stage.
    pub(crate) fn take_loops(&mut self) -> Vec<(Stage, Frame)> {
        mem::take(&mut self.loops)
    }

    /// Hands a frame that has passed both to the shard that it belongs to.
    pub(crate) fn loop_back(
        &mut self,
        common: &mut Common<D>,
        netstack: NetstackId,
        frame: Frame,
        headers: &Headers,
    ) {
        let steering = self.steerings.get(netstack.0.into());
        // Where flows have lanes of their own, whose segment it is only the netstack knows.
        if headers.protocol == IpProtocol::TCP && steering.is_some_and(|it| it.flows().is_some()) {
            return self.loops.push((Stage::Loopback(netstack), frame));
        }
        let lane = steering.map_or(common.id, |s| lane_of_loop(headers, s, &self.steering_key));
        self.loop_to(common, (netstack, lane), frame, headers);
    }

    /// The same, to the shard in this lane.
    pub(crate) fn loop_to(
        &mut self,
        common: &mut Common<D>,
        (netstack, lane): (NetstackId, LaneId),
        frame: Frame,
        headers: &Headers,
    ) {
        if lane != common.id {
            return common.hand_over(lane, Stage::Loopback(netstack), LOOPBACK, frame);
        }
        self.arrivals.push(netstack, LOOPBACK, frame, headers);
    }
}
