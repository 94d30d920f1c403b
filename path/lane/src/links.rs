//! The link side of a lane: from a driver or a netstack, through limits and switch, to a driver or a netstack.
//!
//! ```text
//!  driver --> out (sender's VNIC: flow, limit) --> switch --> inward (receiver's VNIC: flow, limit) --> deliver
//!    uplink ------------------------------------->
//!  netstack ->                                                                       deliver --> arrivals
//! ```
//!
//! An uplink with flows has the same two stations, where the link's flows stand in place of a VNIC's.
//!
//! Called by `turn.rs` with chains. Each function is one stage for one frame and ends it or calls the next; a
//! frame that must go on in another lane (a limit's home, a driver's queue) goes to the outbox with the stage
//! at which it goes on. What is for a netstack of this lane gathers in `arrivals`.

use core::mem;

use firelane_classify::{Headers, Steering, SteeringKey, Tuple};
use firelane_flow::{Conversation, Counters, Credit, FlowTable, Lender, Limits, Verdict};
use firelane_frame::{Arrival, Chain, Frame, Weight};
use firelane_ip::LOOPBACK;
use firelane_switch::{Destination, Guard, L2};
use firelane_table::Minted;
use firelane_units::{
    Bytes, Direction, DropReason, FlowId, Instant, LinkId, MacAddr, NetstackId, SwitchPortId,
};

use crate::arrivals::Arrivals;
use crate::common::Common;
use crate::far::Far;
use crate::guards;
use crate::lending::Borrower;
use crate::likeness::Likeness;
use crate::message::{LaneMessage, PortConfig, PortKind, PortUser, Stage};
use crate::open_sum;
use crate::poll::{Load, Senders};
use crate::ports::{FlowPlace, Port, SwitchedLink, TX_QUEUE_BUSY, TX_QUEUE_MAX, home_elsewhere};
use crate::probes;
use crate::queues::Queues;
use crate::sent::{Asked, At, Sent};
use crate::shut::{Flood, Shut};
use crate::snoop;
use crate::steer::lane_of;
use crate::watch::Sight;
use crate::ways::Ways;

/// The link side.
pub(crate) struct Links<D> {
    pub(crate) ports: Minted<Port>,
    pub(crate) switches: Minted<SwitchedLink>,
    pub(crate) flows: FlowTable,
    pub(crate) places: Minted<FlowPlace>,
    /// How many flows keep their connections from being fused, and how many let them be with other netstacks'.
    pub(crate) unfusing: usize,
    pub(crate) crossing: usize,
    pub(crate) queues: Queues<D>,
    /// Those that a round visits; kept for its storage.
    pub(crate) visited: Vec<usize>,
    /// Those with something to send; kept for its storage.
    pub(crate) sending: Vec<usize>,
    /// How many of them are not polled.
    pub(crate) unpolled: usize,
    /// A ring that ends had more when it was read last, and brought nothing of it.
    pub(crate) is_unended: bool,
    /// How many queues that were given away no other lane could take.
    pub(crate) came_back: u64,
    /// The frame at hand comes from a lane that has decided that it is to be delivered.
    pub(crate) is_decided: bool,
    /// Who looks at the frames of protected ports.
    pub(crate) guards: Minted<Guard>,
    /// Which lane of a netstack has the sockets for what.
    pub(crate) steerings: Minted<Steering>,
    /// Which lane of a netstack gets what arrives by its links.
    pub(crate) doors: Minted<Steering>,
    pub(crate) steering_key: SteeringKey,
    /// How often flow rules have changed: who remembers a look-up compares.
    pub(crate) rules_changed: u32,
    /// Ways that frames have taken.
    pub(crate) ways: Ways,
    /// What netstacks of this lane are about to get.
    pub(crate) arrivals: Arrivals,
    /// What is to enter tunnels of netstacks, by the ports of these (`stacks/tunneled.rs`).
    pub(crate) tunneled: Vec<(NetstackId, LinkId, Frame)>,
    /// What netstacks of this lane send to themselves and is to go on (`loops.rs`).
    pub(crate) loops: Vec<(Stage, Frame)>,
    /// The number of the chain that is being passed through, and how it came.
    pub(crate) chain: u32,
    pub(crate) arrival: Arrival,
    /// What the frames that came since this was last emptied were.
    pub(crate) load: Load,
    pub(crate) senders: Senders,
    /// A frame that its limit drops, of a flood that the turn may shut out.
    pub(crate) flood: Option<Flood>,
    /// Floods that end at their device's door.
    pub(crate) shut: Vec<Shut>,
    /// Storage of what doors tell.
    pub(crate) told: Vec<(FlowId, Weight)>,
    /// Who waits for credit (`lending.rs`), what connections of this lane have got, and storage.
    pub(crate) lender: Lender<(Borrower, Limits)>,
    pub(crate) lent: Vec<(Borrower, Bytes)>,
    pub(crate) granted: Vec<((Borrower, Limits), Bytes)>,
    /// Limits that other lanes keep, and what senders of this one have made in this round.
    pub(crate) far: Far,
    pub(crate) sent: Sent,
    /// Storage of what the limits release.
    released: Vec<(Direction, FlowId, Frame)>,
    /// Storage of copies: of a flood, and for those that look on.
    pub(crate) copies: Vec<(SwitchPortId, Frame)>,
    /// How many copies floods have made, or have missed, of the chain at hand.
    pub(crate) flooded: usize,
    /// Storage of headers that are read ahead.
    ahead: Vec<(Headers, Result<(), DropReason>)>,
}

/// Frames of a chain whose headers are read before the first of them goes on.
const AHEAD: usize = 32;

impl<D> Links<D> {
    pub(crate) fn new(steering_key: SteeringKey) -> Self {
        Self {
            steerings: Minted::new(),
            doors: Minted::new(),
            steering_key,
            rules_changed: 0,
            ways: Ways::new(),
            ports: Minted::new(),
            switches: Minted::new(),
            flows: FlowTable::new(),
            places: Minted::new(),
            unfusing: 0,
            crossing: 0,
            queues: Queues::new(),
            visited: Vec::new(),
            sending: Vec::new(),
            unpolled: 0,
            is_unended: false,
            came_back: 0,
            is_decided: false,
            guards: Minted::new(),
            arrivals: Arrivals::default(),
            tunneled: Vec::new(),
            loops: Vec::new(),
            chain: 0,
            arrival: Arrival::Local,
            load: Load::default(),
            senders: Senders::default(),
            flood: None,
            shut: Vec::new(),
            told: Vec::new(),
            lender: Lender::default(),
            lent: Vec::new(),
            granted: Vec::new(),
            far: Far::default(),
            sent: Sent::default(),
            released: Vec::new(),
            copies: Vec::new(),
            flooded: 0,
            ahead: vec![(Headers::EMPTY, Ok(())); AHEAD],
        }
    }

    /// From here on frames are of another chain than those before.
    pub(crate) fn next_chain(&mut self, arrival: Arrival) {
        self.chain = self.chain.wrapping_add(1);
        self.arrival = arrival;
    }

    /// Frames that the driver of `link` received.
    ///
    /// The headers of all are read before the first goes on: what is in no cache is fetched side by side, and who copies
    /// headers does not wait until they are written.
    pub(crate) fn take_received(
        &mut self,
        common: &mut Common<D>,
        link: LinkId,
        arrival: Arrival,
        chain: &mut Chain,
    ) {
        self.next_chain(arrival);
        let Some(port) = self.ports.get(link.0) else {
            return common.drop_chain(chain, DropReason::NoPort);
        };
        let has_flows = port.default_flow().is_some() || !port.rules.is_empty();
        let is_traced = common.watch.is_tracing();
        let mut ahead = mem::take(&mut self.ahead);
        while !chain.is_empty() {
            let count = read_ahead(chain, &mut ahead);
            for (frame, (headers, read)) in chain.drain_front(count).zip(&mut ahead) {
                let mut frame = frame;
                let meta = frame.meta_mut();
                (meta.ingress, meta.arrival) = (link, arrival);
                if read.is_ok() && open_sum::is_elsewhere(meta.checksum, headers) {
                    *read = open_sum::close(&mut frame, headers);
                }
                if let Err(reason) = *read {
                    common.see(frame.meta().trace, Sight::Received(link, frame.len(), None));
                    common.drop_frame(frame, reason);
                    continue;
                }
                self.load.add(&mut self.senders, headers, frame.len());
                let frame = match is_traced && self.follow(common, &mut frame, headers, Sight::Received) {
                    true => frame,
                    false => match self.enter(common, link, frame, headers) {
                        Ok(()) => continue,
                        Err(frame) => frame,
                    },
                };
                if has_flows {
                    self.out(common, link, frame, headers);
                } else {
                    let port = self.ports.get_mut(link.0).expect("it was there for the chain");
                    port.counters.outward.count(frame.weight(), arrival, self.chain);
                    self.switch(common, link, frame, headers);
                }
            }
        }
        self.ahead = ahead;
        self.settle_ways();
    }

    /// Frames that netstacks made; each names its VNIC as its ingress.
    pub(crate) fn take_departures(&mut self, common: &mut Common<D>, chain: &mut Chain) {
        self.next_chain(Arrival::Local);
        let is_traced = common.watch.is_tracing();
        while let Some(mut frame) = chain.pop() {
            let link = frame.meta().ingress;
            probes::ip_send(&frame, link);
            let is_followed = is_traced && self.follow_departure(common, &mut frame);
            let frame = if is_followed { Err(frame) } else { self.depart(common, frame) };
            if let Err(mut frame) = frame {
                // One that is passed on came from a device once.
                frame.meta_mut().arrival = Arrival::Local;
                self.resume(common, Stage::Out, link, frame);
            }
        }
        self.settle_ways();
    }

    /// Somebody traces: whether he follows this frame, which begins its way or another part of it at its ingress.
    #[cold]
    fn follow(
        &self,
        common: &mut Common<D>,
        frame: &mut Frame,
        headers: &Headers,
        sight: impl Fn(LinkId, usize, Option<Headers>) -> Sight,
    ) -> bool {
        let ingress = frame.meta().ingress;
        let now = common.now;
        let flow_of = |owner: LinkId, mac: Option<MacAddr>| {
            let port = self.ports.get(owner.0)?;
            let goes_there = || match mac {
                Some(mac) => headers.dst == mac,
                None => self.port_towards(now, ingress, headers.dst) == Some(owner),
            };
            let direction = match owner == ingress {
                true => Direction::Out,
                false if goes_there() => Direction::In,
                false => return None,
            };
            port.rules.lookup(headers, port.side(direction)).or(port.default_flow())
        };
        let number = common.watch.number(frame.meta().trace, Some(headers), flow_of);
        frame.meta_mut().trace = number;
        common.see(number, sight(ingress, frame.len(), Some(*headers)));
        number != 0
    }

    #[cold]
    fn follow_departure(&self, common: &mut Common<D>, frame: &mut Frame) -> bool {
        match Headers::parse(frame.as_slice()) {
            Ok(headers) => self.follow(common, frame, &headers, Sight::Sent),
            // Whoever goes on with it says why not.
            Err(_) => true,
        }
    }

    /// Whether frames wait for their netstacks.
    pub(crate) fn has_arrivals(&self) -> bool {
        !(self.arrivals.is_empty() && self.loops.is_empty() && self.tunneled.is_empty())
    }

    /// Goes on with a frame at `stage` of `link`: one that was handed over, or held.
    pub(crate) fn resume(&mut self, common: &mut Common<D>, stage: Stage, link: LinkId, frame: Frame) {
        match Headers::parse(frame.as_slice()) {
            Ok(headers) => match stage {
                Stage::Out => self.out(common, link, frame, &headers),
                Stage::In => self.inward(common, link, frame, &headers),
                Stage::Deliver => self.deliver(common, link, frame, &headers),
                Stage::Door(netstack) => self.arrivals.push(netstack, link, frame, &headers),
                Stage::Asked(netstack, first) => {
                    self.arrivals.push_asked((netstack, first), link, frame, &headers);
                }
                Stage::Loopback(netstack) => self.loop_back(common, netstack, frame, &headers),
                Stage::LoopOut(_) | Stage::LoopIn(_) => self.loops.push((stage, frame)),
            },
            Err(reason) => common.drop_frame(frame, reason),
        }
    }

    /// The outward side of the port whose user sent a frame.
    fn out(&mut self, common: &mut Common<D>, link: LinkId, mut frame: Frame, headers: &Headers) {
        let Some(port) = self.ports.get_mut(link.0) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        let side = port.side(Direction::Out);
        let flow = port.rules.lookup(headers, side).or(port.default_flow());
        if port.guarded
            && let Err(reason) = guards::judge(&mut self.guards, common, link, &frame, headers)
        {
            return self.drop_at(common, link, Direction::Out, frame, reason);
        }
        if let Some(flow) = flow
            && let Some(home) = home_elsewhere(&self.places, common.id, flow)
        {
            self.note_far(common, home, (flow, side), &frame);
            return common.hand_over(home, Stage::Out, link, frame);
        }
        let weight = frame.weight();
        let (trace, arrival) = (frame.meta().trace, frame.meta().arrival);
        let has_queue = port.queue.is_some();
        port.counters.outward.count(weight, arrival, self.chain);
        common.see(trace, Sight::Flow(link, Direction::Out, flow));
        let Some(flow) = flow else { return self.switch(common, link, frame, headers) };
        frame.meta_mut().flow = flow.into();
        if self.flows.pass_unlimited(flow, side, weight) {
            return self.switch(common, link, frame, headers);
        }
        if self.flows.must_cut(flow, side, &frame) {
            return self.admit_cut(common, Direction::Out, flow, link, frame);
        }
        match self.flows.admit(common.now, flow, side, frame) {
            Verdict::Pass(frame) => self.switch(common, link, frame, headers),
            Verdict::Held => common.see(trace, Sight::Held(flow)),
            Verdict::Drop(frame, reason) => {
                let is_flood = self.flood.is_none() && has_queue && self.flows.is_flooded(flow, side);
                match is_flood {
                    true => self.flood = Some(Flood { port: link, flow, side, frame }),
                    false => self.drop_at(common, link, Direction::Out, frame, reason),
                }
            }
        }
    }

    /// The switch of the link that `ingress` is attached to.
    fn switch(&mut self, common: &mut Common<D>, ingress: LinkId, mut frame: Frame, headers: &Headers) {
        let Some(port) = self.ports.get(ingress.0) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        let (over, from, guarded) = (port.over, port.at_switch, port.guarded);
        let Some(link) = self.switches.get_mut(over.0) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        common.taps.see(common.now, (ingress, over), Direction::Out, &frame);
        let l2 = l2(headers);
        let decided = link.switch.forward(common.now, from, &l2, &frame);
        if guarded && !matches!(decided, Destination::Drop(_)) {
            guards::show(&mut self.guards, common, (ingress, Direction::Out), &frame, headers);
        }
        let (is_shown, learns) = (link.switch.has_onlookers(), link.switch.learns());
        if learns && let Some(located) = link.switch.take_news() {
            common.tell_lanes(|| LaneMessage::Located(ingress, located));
        }
        if is_shown {
            self.show(common, over, (from, &l2, decided), &frame);
        }
        let Some(link) = self.switches.get_mut(over.0) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        match decided {
            Destination::Port(at) => {
                let before = frame.len();
                link.port(at).into_iter().for_each(|to| common.see(frame.meta().trace, Sight::Switched(to)));
                let to = link.port(at).filter(|_| link.switch.deliver(from, at, &l2, &mut frame));
                match to {
                    // A tag was set or stripped: the headers lie elsewhere.
                    Some(to) if frame.len() != before => self.resume(common, Stage::In, to, frame),
                    Some(to) => {
                        // Whoever looks on is shown each frame, and who lies where is learned from each.
                        if !is_shown && !learns {
                            self.remember(common, ingress, headers, (from, at), to);
                        }
                        self.inward(common, to, frame, headers);
                    }
                    None => common.drop_frame(frame, DropReason::NoPort),
                }
            }
            Destination::Flood => {
                snoop::listen(self, common, ingress, &frame, headers);
                self.flood(common, over, from, frame, &l2);
            }
            Destination::Drop(reason) => self.drop_at(common, ingress, Direction::Out, frame, reason),
        }
    }

    /// A copy for each member of a group.
    fn flood(&mut self, common: &mut Common<D>, over: LinkId, from: SwitchPortId, frame: Frame, l2: &L2) {
        let link = self.switches.get_mut(over.0).expect("the frame was switched there");
        let mut copies = mem::take(&mut self.copies);
        let trace = frame.meta().trace;
        let Common { pools, counters, .. } = common;
        let flooded = link.switch.flood(from, l2, frame, pools, &mut counters.drops, |at, copy| {
            copies.push((at, copy));
        });
        let copied = (flooded.delivered + flooded.missed).saturating_sub(1);
        counters.copied += copied as u64;
        self.flooded += copied;
        common.see(trace, Sight::Flooded(copies.len()));
        for (at, copy) in copies.drain(..) {
            match self.switches.get(over.0).and_then(|link| link.port(at)) {
                Some(to) => self.resume(common, Stage::In, to, copy),
                None => common.drop_frame(copy, DropReason::NoPort),
            }
        }
        self.copies = copies;
    }

    /// The inward side of the port that gets a frame.
    fn inward(&mut self, common: &mut Common<D>, to: LinkId, mut frame: Frame, headers: &Headers) {
        let Some(port) = self.ports.get(to.0) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        let side = port.side(Direction::In);
        let flow = port.rules.lookup(headers, side).or(port.default_flow());
        if port.guarded {
            guards::show(&mut self.guards, common, (to, Direction::In), &frame, headers);
        }
        let trace = frame.meta().trace;
        let Some(flow) = flow else {
            common.see(trace, Sight::Flow(to, Direction::In, None));
            return self.deliver(common, to, frame, headers);
        };
        if let Some(home) = home_elsewhere(&self.places, common.id, flow) {
            self.note_far(common, home, (flow, side), &frame);
            return common.hand_over(home, Stage::In, to, frame);
        }
        common.see(trace, Sight::Flow(to, Direction::In, Some(flow)));
        frame.meta_mut().flow = flow.into();
        if self.flows.pass_unlimited(flow, side, frame.weight()) {
            return self.deliver(common, to, frame, headers);
        }
        if self.flows.must_cut(flow, side, &frame) {
            return self.admit_cut(common, Direction::In, flow, to, frame);
        }
        match self.flows.admit(common.now, flow, side, frame) {
            Verdict::Pass(frame) => self.deliver(common, to, frame, headers),
            Verdict::Held => common.see(trace, Sight::Held(flow)),
            Verdict::Drop(frame, reason) => self.drop_at(common, to, Direction::In, frame, reason),
        }
    }

    /// Hands a frame to the user of a port.
    pub(crate) fn deliver(&mut self, common: &mut Common<D>, to: LinkId, frame: Frame, headers: &Headers) {
        let Some(port) = self.ports.get_mut(to.0) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        match (port.user, port.queue) {
            (PortUser::Netstack(netstack), _) => {
                let steering = self.doors.get(netstack.0.into());
                let lane = steering.map_or(common.id, |s| lane_of(headers, s, &self.steering_key));
                if lane != common.id {
                    return common.hand_over(lane, Stage::Deliver, to, frame);
                }
                port.counters.inward.count(frame.weight(), frame.meta().arrival, self.chain);
                common.taps.see(common.now, (to, port.over), Direction::In, &frame);
                self.arrivals.push(netstack, to, frame, headers);
            }
            (PortUser::Driver { .. }, _) if port.kept.is_some() && !self.is_decided => {
                self.keep(common, to, frame);
            }
            (PortUser::Driver { .. }, Some(queue)) => {
                let queue = self.queues.get_mut(queue).expect("a port's queue ends with the port");
                if queue.tx.len() >= TX_QUEUE_MAX {
                    port.counters.inward.dropped += 1;
                    return common.drop_frame(frame, DropReason::PortFull);
                }
                port.counters.inward.count(frame.weight(), frame.meta().arrival, self.chain);
                common.taps.see(common.now, (to, port.over), Direction::In, &frame);
                common.see(frame.meta().trace, Sight::Device(to));
                queue.tx.push(frame);
            }
            (PortUser::Driver { through }, None) if through != common.id => {
                common.hand_over(through, Stage::Deliver, to, frame);
            }
            (PortUser::Tunnel { through: Some(lane), .. }, _) if lane != common.id => {
                common.hand_over(lane, Stage::Deliver, to, frame);
            }
            (PortUser::Tunnel { netstack, .. }, _) => {
                port.counters.inward.count(frame.weight(), frame.meta().arrival, self.chain);
                common.taps.see(common.now, (to, port.over), Direction::In, &frame);
                self.tunneled.push((netstack, to, frame));
            }
            (PortUser::Driver { .. }, _) => {
                port.counters.inward.dropped += 1;
                common.drop_frame(frame, DropReason::PortFull);
            }
            // It is no fault of the link's, whose errors are those of frames that somebody was to get.
            (PortUser::Nobody, _) => common.drop_frame(frame, DropReason::NoUser),
        }
    }

    /// Ports, switches or flows have changed: what was looked up before counts no more.
    pub(crate) fn changed(&mut self) {
        self.rules_changed += 1;
        self.ways.forget();
    }

    /// The port to which a VNIC's frames for the station `mac` go, if it is one.
    pub(crate) fn port_towards(&self, now: Instant, vnic: LinkId, mac: MacAddr) -> Option<LinkId> {
        let port = self.ports.get(vnic.0)?;
        let link = self.switches.get(port.over.0)?;
        link.switch.way_towards(now, port.at_switch, mac).and_then(|at| link.port(at))
    }

    /// Asks the limits for a large frame in pieces, and goes on with those that pass.
    pub(crate) fn admit_cut(
        &mut self,
        common: &mut Common<D>,
        direction: Direction,
        flow: FlowId,
        link: LinkId,
        frame: Frame,
    ) {
        let side = self.ports.get(link.0).map_or(direction, |port| port.side(direction));
        let mut released = mem::take(&mut self.released);
        let Common { now, pools, counters, .. } = common;
        let (dropped, held) = (counters.drops.total(), self.flows.held_frames());
        self.flows.admit_cut(*now, flow, side, frame, pools, &mut counters.drops, |piece| {
            released.push((side, flow, piece));
        });
        let dropped = counters.drops.total() - dropped;
        let held = self.flows.held_frames() - held;
        counters.copied += (released.len() + held) as u64 + dropped - 1;
        self.count_drops(link, direction, dropped);
        released.drain(..).for_each(|piece| self.go_on(common, piece));
        self.released = released;
    }

    /// Goes on with the frames that their limits release at this instant.
    pub(crate) fn release(&mut self, common: &mut Common<D>) {
        if self.flows.next_release().is_none_or(|at| at > common.now) {
            return;
        }
        self.next_chain(Arrival::Local);
        while let Some(released) = self.flows.release_next(common.now, &mut common.counters.drops) {
            self.go_on(common, released);
        }
    }

    /// What comes after the limits: the switch for what a port's user sent, the user for what is sent to it.
    fn go_on(&mut self, common: &mut Common<D>, (side, flow, frame): (Direction, FlowId, Frame)) {
        let headers = match Headers::parse(frame.as_slice()) {
            Ok(headers) => headers,
            Err(reason) => return common.drop_frame(frame, reason),
        };
        let owner = self.places.get(flow.0).map(|place| place.owner);
        match (self.of_user(owner, side), owner) {
            (direction, owner) if frame.meta().ingress == LOOPBACK => {
                self.go_on_looping(common, owner, direction, frame, &headers);
            }
            (Direction::Out, _) => {
                let ingress = frame.meta().ingress;
                self.switch(common, ingress, frame, &headers);
            }
            (Direction::In, Some(owner)) => self.deliver(common, owner, frame, &headers),
            (Direction::In, None) => common.drop_frame(frame, DropReason::NoPort),
        }
    }

    /// Which way a frame goes for the user of the port `owner`, if it goes `side` for the flows there.
    pub(crate) fn of_user(&self, owner: Option<LinkId>, side: Direction) -> Direction {
        // Who is turned is turned back the same way.
        owner.and_then(|owner| self.ports.get(owner.0)).map_or(side, |port| port.side(side))
    }

    pub(crate) fn drop_at(
        &mut self,
        common: &mut Common<D>,
        link: LinkId,
        direction: Direction,
        frame: Frame,
        reason: DropReason,
    ) {
        self.count_drops(link, direction, 1);
        common.drop_frame(frame, reason);
    }

    fn count_drops(&mut self, link: LinkId, direction: Direction, dropped: u64) {
        if let Some(port) = self.ports.get_mut(link.0) {
            port.counters.of_mut(direction).dropped += dropped;
        }
    }

    /// The flow of packets that are like this, at the VNIC `link` that sends or gets them.
    pub(crate) fn flow_at(&self, link: LinkId, likeness: &Likeness, direction: Direction) -> Option<FlowId> {
        self.flow_of(link, &likeness.headers(), direction)
    }

    /// A VNIC's address.
    pub(crate) fn mac_of(&self, link: LinkId) -> Option<MacAddr> {
        match self.ports.get(link.0)?.kind {
            PortKind::Vnic { mac, .. } => Some(mac),
            PortKind::Uplink | PortKind::Trunk { .. } => None,
        }
    }

    /// What a sender may send now.
    pub(crate) fn credit(&self, common: &Common<D>, Asked { flows, speaker }: Asked) -> Credit {
        let ask = |at: At| match home_elsewhere(&self.places, common.id, at.0) {
            Some(home) => self.credit_far(common, home, at, speaker),
            None => {
                let sent = self.sent.of(at, speaker, |other| self.flows.has_waiting(at, other));
                let credit = self.flows.credit(common.now, at, speaker, sent);
                if matches!(credit, Credit::At(_)) {
                    self.sent.note_told(at);
                }
                credit.behind(common.now, sent.all)
            }
        };
        flows.into_iter().flatten().map(ask).fold(Credit::Unlimited, Credit::and)
    }

    /// Limits hear that somebody waits for them: if the lane is late, they make up for it.
    pub(crate) fn hear_of_told(&mut self, now: Instant) {
        while let Some((flow, direction)) = self.sent.take_told() {
            self.flows.note_told(now, flow, direction);
        }
    }

    /// What a round has made has come here: whoever was asked in it and has sent nothing does not wait.
    pub(crate) fn hear_of_asked(&mut self, now: Instant) {
        while let Some((flow, direction)) = self.sent.take_asked() {
            self.flows.forget_told(now, flow, direction);
        }
    }

    /// What the places of links, ports, flows and steerings take.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.ports.allocated_bytes()
            + self.switches.allocated_bytes()
            + self.places.allocated_bytes()
            + self.guards.allocated_bytes()
            + self.flows.allocated_bytes()
            + self.far.allocated_bytes()
            + self.steerings.allocated_bytes()
            + self.doors.allocated_bytes()
    }

    /// A port's configuration.
    pub(crate) fn port_config(&self, id: LinkId) -> Option<PortConfig> {
        let port = self.ports.get(id.0)?;
        Some(PortConfig { id, over: port.over, kind: port.kind, user: port.user })
    }

    /// How many ports a frame for all may come to from this one.
    pub(crate) fn neighbours(&self, id: LinkId) -> usize {
        let port = self.ports.get(id.0);
        port.and_then(|port| self.switches.get(port.over.0)).map_or(0, |link| link.ports.len())
    }

    /// A flow's counters, inward and outward.
    pub(crate) fn flow_counters(&self, flow: FlowId) -> [Counters; 2] {
        Direction::ALL.map(|direction| self.flows.counters(flow, direction).unwrap_or_default())
    }

    /// Whether the device behind the port that a VNIC's frames to `mac` leave by has enough to do.
    pub(crate) fn is_busy(&self, to: LinkId) -> bool {
        let queue = self.ports.get(to.0).and_then(|port| self.queues.get(port.queue?));
        queue.is_some_and(|queue| queue.tx.len() >= TX_QUEUE_BUSY)
    }

    /// The same of any device.
    pub(crate) fn is_any_busy(&self) -> bool {
        self.queues.awake().any(|(_, queue)| queue.tx.len() >= TX_QUEUE_BUSY)
    }
}

/// Reads the headers of the first frames of a chain; of how many.
fn read_ahead(chain: &Chain, ahead: &mut [(Headers, Result<(), DropReason>)]) -> usize {
    for (frame, (headers, read)) in chain.iter().zip(&mut *ahead) {
        *read = headers.read(frame.as_slice());
    }
    chain.len().min(ahead.len())
}

fn l2(headers: &Headers) -> L2 {
    L2 { dst: headers.dst, src: headers.src, vlan: headers.vlan, tagged: headers.tagged }
}

/// The conversation of what goes from the tuple's local end to its remote one.
pub(crate) fn conversation_of(tuple: &Tuple) -> Conversation {
    let ends = [(tuple.local(), tuple.local_port()), (tuple.remote(), tuple.remote_port())];
    Conversation::between(tuple.protocol(), ends[0], ends[1])
}
