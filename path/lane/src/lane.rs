//! The lane: a link side, a shard of every netstack, and what both use.
//!
//! Owned by its squeue (`host.rs`); entered by messages ([`Lane::on_message`]) and by the worker's turn
//! (`turn.rs`). It owns no thread and no clock.

use core::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use firelane_filter::FilterCounts;
use firelane_flow::Origin;
use firelane_frame::{Arrival, Chain, Driver, Packed, PoolUsage, Pools};
use firelane_ip::{Egress, Membership};
use firelane_nat::{NatCounts, NatRow};
use firelane_socket::{ConnRef, LeftStream};
use firelane_units::{DropReason, Instant, LaneId, LinkId, NetstackId, Port, SocketId};

use crate::common::Common;
use crate::config::LaneConfig;
use crate::control::Refusal;
use crate::counters::{Snapshot, TableMemory};
use crate::datagram_info::DatagramInfo;
use crate::links::Links;
use crate::message::{Control, Frames, LaneMessage, Learned, PortUser, Stage, StreamOptions};
use crate::netstack_counters::NetstackCounters;
use crate::outbox::{Notice, Outlet};
use crate::poll::{Calls, Devices, PollPolicy};
use crate::squeue::SqueueStats;
use crate::stacks::{Heard, Stacks, Strangers, SynText, Unsaid};
use crate::stream_info::StreamInfo;
use crate::watch::{Cycles, Seen, StepCounts, Tracing};

/// With so many items that other lanes have no room for, as many as such a one has waiting, what packets teach is not told any more.
const UNTOLD_MAX: usize = 4096;

/// One CPU's vertical perimeter, for driver queues `D`.
pub struct Lane<D> {
    pub(crate) common: Common<D>,
    pub(crate) links: Links<D>,
    pub(crate) stacks: Stacks,
    pub(crate) policy: PollPolicy,
    pub(crate) devices: Devices,
    /// The worker has listened since devices were last read.
    pub(crate) has_listened: bool,
    /// Devices rest to which it is to listen before it sleeps or goes on for long.
    pub(crate) is_unheard: bool,
    /// When it last had.
    pub(crate) heard_at: Instant,
    /// The instant that the worker sleeps to, as its last turn said.
    pub(crate) sleeps_until: Option<Instant>,
    /// The end of the pause in which it sleeps.
    pub(crate) pause: Option<Instant>,
    /// Some device was full when the lane last sent.
    pub(crate) is_tx_full: bool,
    /// Devices have frames for which there was no buffer in the last turn.
    pub(crate) is_starved: bool,
    /// Storage of what is fetched, and of what netstacks make.
    pub(crate) fetched: Chain,
    pub(crate) departures: Chain,
}

impl<D: Driver> Lane<D> {
    /// A lane without links and netstacks.
    pub fn new(config: LaneConfig) -> Self {
        Self {
            links: Links::new(config.secrets.steering()),
            stacks: Stacks::new(&config),
            common: Common::new(&config),
            policy: PollPolicy::default(),
            devices: Devices::default(),
            has_listened: false,
            is_unheard: false,
            heard_at: Instant::ZERO,
            sleeps_until: None,
            pause: None,
            is_tx_full: false,
            is_starved: false,
            fetched: Chain::new(),
            departures: Chain::new(),
        }
    }

    /// Which lane it is.
    pub fn id(&self) -> LaneId {
        self.common.id
    }

    /// The worker has listened to all devices that wake it.
    pub fn listened(&mut self, calls: Calls<'_>) {
        match calls {
            Calls::Nobody => {}
            Calls::These(numbers) => {
                numbers.iter().for_each(|&number| self.links.queues.wake(number as usize))
            }
            Calls::Somebody => self.links.queues.wake_all(),
        }
        self.devices.listened(calls != Calls::Nobody);
        self.has_listened = true;
    }

    /// Handles one item of its squeue. What it causes to be sent leaves with [`Lane::settle`] or the turn.
    pub fn on_message(&mut self, now: Instant, message: LaneMessage<D>) {
        self.common.now = now;
        if !matches!(message, LaneMessage::Kick { .. }) {
            self.stacks.take_kicks(&mut self.common);
        }
        match message {
            LaneMessage::Frames(frames) => self.on_frames(frames),
            LaneMessage::Kick { netstack, conn } => self.stacks.kick(&mut self.common, netstack, conn),
            LaneMessage::Carried(conn, carried) => self.count_beside(conn, carried),
            LaneMessage::KickDatagrams { netstack, socket } => {
                self.stacks.kick_datagrams(&mut self.common, netstack, socket);
            }
            LaneMessage::Socket(netstack, command) => {
                self.stacks.on_command(&mut self.common, &self.links, netstack, command);
            }
            LaneMessage::Control(control) => self.on_control(*control),
            LaneMessage::Learned(netstack, learned) => {
                self.stacks.on_learned(&mut self.common, netstack, *learned);
            }
            LaneMessage::Lesson(link, lesson) => self.links.learn(&mut self.common, link, lesson),
            LaneMessage::Heard(link, saying) => self.links.hear(link, saying),
            LaneMessage::Located(link, located) => self.links.locate(now, link, located),
            LaneMessage::Queue(moving) => self.links.take_queue(&mut self.common, *moving),
            LaneMessage::Fence(fence) => self.links.pass_fence(&mut self.common, fence),
            LaneMessage::Errand(errand) => self.links.run(&mut self.common, *errand),
            LaneMessage::ShowBoard(flow, side, to) => {
                self.links.show_board(&mut self.common, flow, side, to);
            }
            LaneMessage::Board(flow, side, home, board) => self.links.take_board(flow, side, home, board),
            LaneMessage::Look(mut look) => {
                self.stacks.look(&mut look);
                self.common.outbox.looks.push(*look);
            }
            LaneMessage::Ask(mut question) => {
                self.stacks.answer(now, self.common.id, &mut question);
                self.common.outbox.answers.push(*question);
            }
        }
        self.regroup();
    }

    /// Lets switches know to which groups netstacks listen now, before the next frame comes.
    fn regroup(&mut self) {
        while let Some((netstack, link)) = self.common.regrouped.pop() {
            self.links.set_groups(link, self.stacks.heard_groups(netstack, link));
        }
    }

    /// Frames that another lane hands over.
    fn on_frames(&mut self, frames: Frames) {
        let Frames { from, stage, link, mut chain } = frames;
        let count = chain.len();
        self.common.counters.taken += count as u64;
        self.links.next_chain(Arrival::Local);
        self.links.is_decided = stage == Stage::Deliver;
        self.links.flows.set_origin(Origin::Elsewhere(from));
        let went_on = catch_unwind(AssertUnwindSafe(|| {
            while let Some(frame) = chain.pop() {
                self.links.resume(&mut self.common, stage, link, frame);
            }
            self.links.is_decided = false;
            self.stacks.arrive(&mut self.common, &mut self.links);
        }));
        self.links.flows.set_origin(Origin::Home);
        // What a limit holds back stands on its board by now.
        let is_called = self.common.backlogs.consumed(from, self.common.id, count);
        // Who has fetched them waits for this lane to be done with them, also if it fails by one: who clears up behind it
        // calls all lanes (`Squeue::take_left`).
        went_on.unwrap_or_else(|panic| resume_unwind(panic));
        self.common.backlogs.recycle(chain);
        if is_called {
            self.common.outbox.wakes.push(from);
        }
    }

    fn on_control(&mut self, control: Control<D>) {
        let what = control.word();
        self.links.let_all_in(&mut self.common);
        let is_about_rules = matches!(control, Control::AddFlow(_) | Control::RemoveFlow(_));
        let is_about_limits = matches!(control, Control::SetMaxbw(..) | Control::SetHome(..));
        self.stacks.follow(&self.common, &self.links, &control);
        if let Err(why) = self.apply(control) {
            self.common.outbox.notices.push(Notice::Refused { what, why });
        }
        self.stacks.note_crossing(&self.links);
        if is_about_rules || is_about_limits {
            self.stacks.ask_limits_anew(self.common.now);
        }
        if is_about_rules {
            self.links.send_home(&mut self.common);
        } else if is_about_limits {
            self.links.ask_anew(&mut self.common);
        }
    }

    /// Somebody looks on, or no more.
    fn look_on(&mut self, taps: Control<D>) -> Result<(), Refusal> {
        match taps {
            Control::AddTap(tap) => self.common.taps.add(tap),
            Control::RemoveTap(id) => self.common.taps.remove(id),
            _ => {}
        }
        Ok(())
    }

    /// What looks at a netstack's packets looks at them otherwise.
    fn follow_rules(&mut self, rules: Control<D>) -> Result<(), Refusal> {
        let Self { common, links, stacks, .. } = self;
        match rules {
            Control::SetGuard(id, mac, rules) => {
                links.set_guard(id, mac, rules);
                Ok(())
            }
            Control::SetFilter(id, list) => stacks.set_filter(id, &list),
            Control::ChangePools(id, changes) => stacks.change_pools(id, &changes),
            Control::SetNat(id, list) => {
                let doors = stacks.set_nat(common, id, &list)?;
                links.set_doors(id, Some(doors));
                Ok(())
            }
            Control::Await(id, link, family, number) => stacks.set_awaited(id, link, family, number),
            Control::SetTunnel(id, link, setup) => stacks.set_tunnel(id, link, setup),
            _ => Ok(()),
        }
    }

    /// A netstack begins or ends, or its sockets begin in other lanes from now on.
    fn place_netstack(&mut self, control: Control<D>) -> Result<(), Refusal> {
        let Self { common, links, stacks, departures, .. } = self;
        match control {
            Control::AddNetstack(config) => {
                links.set_steering(config.id, Some(config.steering.clone()));
                stacks.add(common, config)
            }
            Control::RemoveNetstack(id) => {
                links.set_steering(id, None);
                stacks.remove(common, links, departures, id)
            }
            Control::Steer(id, steering) => {
                let doors = stacks.steer(common, id, steering.clone())?;
                links.set_steering(id, Some(steering));
                links.set_doors(id, Some(doors));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An address ends, or is not used until it is added again.
    fn end_address(&mut self, control: Control<D>) -> Result<(), Refusal> {
        let Self { common, stacks, .. } = self;
        match control {
            Control::RemoveAddress(id, link, address) => stacks.remove_address(common, id, link, address),
            Control::SuspendAddress(id, link, address) => stacks.suspend_address(id, link, address),
            Control::AbortAddress(id, address) => stacks.abort_address(common, id, address),
            _ => Ok(()),
        }
    }

    /// A port's queue comes, or goes to another lane.
    fn deal_queue(&mut self, control: Control<D>) -> Result<(), Refusal> {
        let Self { common, links, .. } = self;
        match control {
            Control::AddQueue(port, driver) => links.give_one_more(port, driver),
            Control::GiveQueue(port, to) => links.give_queue(common, port, to),
            Control::EndQueue(port, ring) => links.end_queue(port, ring),
            Control::GiveBack(port) => links.give_back(port),
            _ => Ok(()),
        }
    }

    /// A port has another user.
    fn set_user(&mut self, id: LinkId, user: PortUser) -> Result<(), Refusal> {
        let Self { common, links, stacks, .. } = self;
        stacks.detach(common, id);
        links.set_user(id, user)?;
        match (user, links.port_config(id)) {
            (PortUser::Netstack(_), Some(config)) => stacks.attach(common, links, config),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, control: Control<D>) -> Result<(), Refusal> {
        let Self { common, links, stacks, .. } = self;
        match control {
            Control::AddLink(config) => links.add_link(config),
            Control::SetMtu(config) => stacks.set_mtu(config.mtu, &links.set_mtu(config)?),
            Control::RemoveLink(link) => links.remove_link(link),
            Control::AddPort(config, driver) => {
                links.add_port(config, driver)?;
                stacks.attach(common, links, config)
            }
            Control::RemovePort(id) => {
                stacks.detach(common, id);
                links.remove_port(common, id)
            }
            rules @ (Control::SetGuard(..)
            | Control::SetFilter(..)
            | Control::ChangePools(..)
            | Control::SetNat(..)
            | Control::Await(..)
            | Control::SetTunnel(..)) => self.follow_rules(rules),
            Control::SetUser(id, user) => self.set_user(id, user),
            Control::AddFlow(setup) => links.add_flow(common, setup),
            Control::RemoveFlow(flow) => links.remove_flow(common, flow),
            Control::SetHome(flow, home) => links.set_home(common, flow, home),
            Control::SetMaxbw(flow, maxbw) => links.set_maxbw(common, flow, maxbw),
            Control::SetMinbw(flow, minbw) => links.set_minbw(common, flow, minbw),
            Control::SetPriority(flow, priority) => links.set_priority(flow, priority),
            Control::SetFusion(flow, fuses) => links.set_fusion(flow, fuses),
            Control::SetPolling(port, polling) => links.set_polling(port, polling),
            Control::SetOnlooker(port, looks_on) => links.set_onlooker(port, looks_on),
            Control::Plug(port, user, queue) => links.plug(common, port, user, queue),
            Control::SendThrough(port, through) => links.send_through(common, port, through),
            queue @ (Control::AddQueue(..)
            | Control::GiveQueue(..)
            | Control::EndQueue(..)
            | Control::GiveBack(_)) => self.deal_queue(queue),
            netstacks @ (Control::AddNetstack(_) | Control::RemoveNetstack(_) | Control::Steer(..)) => {
                self.place_netstack(netstacks)
            }
            Control::AddAddress(id, link, address) => stacks.add_address(common, id, link, address),
            Control::SetAddress(id, link, addr, is_old) => stacks.set_address(id, link, addr, is_old),
            addresses @ (Control::RemoveAddress(..)
            | Control::SuspendAddress(..)
            | Control::AbortAddress(..)) => self.end_address(addresses),
            Control::AddRoute(id, route) => stacks.add_route(id, route),
            Control::SetAutoconf(id, link, settings) => stacks.set_autoconf(common, id, link, settings),
            Control::RemoveRoute(id, route) => stacks.remove_route(id, route),
            Control::SetRouting(id, link, routing) => stacks.set_routing(id, link, routing),
            Control::Rejoin(id, link) => stacks.rejoin(common, id, link),
            Control::ChangeRoutes(id, changes) => stacks.change_routes(id, &changes),
            Control::Tune(config) => stacks.tune(config),
            taps @ (Control::AddTap(_) | Control::RemoveTap(_)) => self.look_on(taps),
        }
    }

    /// Passes everything that is for somebody else on to `outlet`. Answers whether something could not be and
    /// has to be tried again. Lanes are told before the engine is: who hears of an address may use it at once, by any
    /// lane.
    pub fn empty_outbox(&mut self, outlet: &mut impl Outlet<D>) -> bool {
        if self.common.outbox.is_empty() {
            return false;
        }
        self.tell_listeners(outlet);
        let Common { id, outbox, backlogs, counters, pools, .. } = &mut self.common;
        // The backlog counts the frames before anybody can consume them.
        outbox.seal(*id, |frames| backlogs.add(*id, frames));
        let mut messages = outbox.take_messages();
        let (mut kept, mut is_called) = (Vec::new(), false);
        let mut full: Vec<LaneId> = Vec::new();
        for (lane, message) in messages.drain(..) {
            let frames = if let LaneMessage::Frames(frames) = &message { frames.chain.len() } else { 0 };
            // What is kept stays in order. Frames may pass it: they would be lost.
            let filled = match frames == 0 && full.contains(&lane) {
                true => Err(message),
                false => outlet.fill(lane, message),
            };
            match filled {
                Ok(()) => counters.handed += frames as u64,
                Err(LaneMessage::Frames(mut refused)) => {
                    is_called |= backlogs.consumed(*id, lane, frames);
                    counters.drops.add(DropReason::LaneFull, frames as u64);
                    pools.put_all(&mut refused.chain);
                    backlogs.recycle(refused.chain);
                }
                // A lane that gets more than it can take asks for itself, or learns it from the next packet.
                Err(message) if kept.len() >= UNTOLD_MAX && message.is_gossip() => counters.untold += 1,
                Err(message) => {
                    if !full.contains(&lane) {
                        full.push(lane);
                    }
                    kept.push((lane, message));
                }
            }
        }
        let is_left = !kept.is_empty();
        messages.append(&mut kept);
        outbox.put_back(messages);
        outbox.pass_on(outlet);
        if !is_left {
            outbox.pass_notices_on(*id, outlet);
        }
        is_left || is_called
    }

    /// Tells listeners of their connections, and lets programs that have those by now carry their text past the lane.
    fn tell_listeners(&mut self, outlet: &mut impl Outlet<D>) {
        self.common.outbox.tell_listeners(outlet);
        while let Some((_, id)) = self.common.outbox.accepted.pop() {
            self.stacks.join_accepted(&mut self.common, &self.links, id);
        }
    }

    /// Follows frames from here on, or none any more. What the trace before has seen is forgotten.
    pub fn trace(&mut self, tracing: Option<Tracing>) {
        self.common.watch.set_trace(tracing);
    }

    /// What the trace has seen since the last call, and how much of it found no room.
    pub fn take_seen(&mut self) -> (Vec<Seen>, u64) {
        self.common.watch.take_seen()
    }

    /// Takes a made-up frame as if the user or the driver of the port `link` had sent it, and follows it. Answers the
    /// frame's number; none without a trace, a port, or a buffer.
    pub fn invent(&mut self, now: Instant, link: LinkId, bytes: &[u8]) -> Option<u32> {
        self.common.now = now;
        self.links.ports.get(link.0)?;
        let mut frame = self.common.pools.copy_of(bytes)?;
        let Some(number) = self.common.watch.invent() else {
            self.common.pools.put(frame);
            return None;
        };
        frame.meta_mut().trace = number;
        self.common.counters.received += 1;
        // No device has brought it.
        let mut chain = Chain::from_iter([frame]);
        self.links.take_received(&mut self.common, link, Arrival::Local, &mut chain);
        Some(number)
    }

    /// Counts the frames and cycles of steps from nothing on, or no more.
    pub fn count_steps(&mut self, cycles: Option<Cycles>) {
        self.common.watch.count_steps(cycles);
    }

    /// What steps have cost since they are counted.
    pub fn step_counts(&self) -> StepCounts {
        self.common.watch.counts()
    }

    /// Counts what two programs have carried past the lane: what went from a connection to its peer, and what came.
    pub fn count_beside(&mut self, conn: ConnRef, carried: [u64; 2]) {
        self.stacks.count_beside(&mut self.links, conn, carried);
    }

    /// Counts what connections of this process have carried past TCP, a bounded number of places of the table from `from`
    /// on. Where to go on, if there are more.
    pub fn count_fused(&mut self, from: u32) -> Option<u32> {
        self.stacks.count_fused(&mut self.links, from)
    }

    /// Counts what has ended at the doors of devices, where no lane sees it.
    pub fn count_turned_away(&mut self) {
        self.links.count_turned_away(&mut self.common);
    }

    /// How many queues of a port's driver are here, and how many that were given away have come back since the lane began.
    pub fn queues_of(&self, port: LinkId) -> (usize, u64) {
        (self.links.queues_of(port), self.links.came_back)
    }

    /// The rings of a port's driver that are here, and whether this lane sends by them.
    pub fn rings_of(&self, port: LinkId) -> Vec<(u16, bool)> {
        let rings = self.links.rings();
        rings.into_iter().filter(|it| it.port == port && !it.is_lent).map(|it| (it.ring, it.sends)).collect()
    }

    /// Whether frames for a port's driver go by a queue of this lane.
    pub fn sends_by_own(&self, port: LinkId) -> bool {
        self.links.sends_by_own(port)
    }

    /// The driver of one of a port's queues that are here.
    pub fn driver_of(&self, port: LinkId) -> Option<&D> {
        self.links.driver_of(port)
    }

    /// Whether frames for a port's driver go on as they come: no move of a queue keeps them back.
    pub fn is_settled(&self, port: LinkId) -> bool {
        self.links.is_settled(port)
    }

    /// What is known of a connection at `now`. Of one that has ended it is what was known then, until its program closes the socket;
    /// `None` after that.
    pub fn stream_info(&self, now: Instant, conn: ConnRef) -> Option<StreamInfo> {
        self.stacks.stream_info(&self.common, &self.links, now, conn)
    }

    /// What is known of a datagram socket's way out at `now`; `None` if there is no such socket here.
    pub fn datagram_info(&self, now: Instant, id: NetstackId, socket: SocketId) -> Option<DatagramInfo> {
        self.stacks.datagram_info(&self.links, now, id, socket)
    }

    /// The program of a connection, another process, is gone: its rings leave that one's arena, with what was packed of them. Nothing is
    /// done if there is no such connection.
    ///
    /// # Errors
    /// Something else is to be sent by now.
    pub fn move_home(&mut self, conn: ConnRef, left: Packed) -> Result<Option<LeftStream>, Packed> {
        self.stacks.move_home(conn, left)
    }

    /// Whether connections of addresses or netstacks that were removed have yet to end. They are nobody's already; their programs and
    /// peers are told in the turns that follow.
    pub fn is_ending(&self) -> bool {
        self.stacks.is_ending()
    }

    /// Whether a program that is gone has left something that its peer has yet to acknowledge, as far as some places of the table of
    /// connections from `from` on say.
    pub fn find_unsaid(&self, netstack: Option<NetstackId>, from: u32) -> Unsaid {
        self.stacks.find_unsaid(netstack, from)
    }

    /// How far the peers of those have acknowledged what was left, added up for some places from `from` on, and where the next look begins.
    pub fn heard_of_unsaid(&self, from: u32) -> (u64, Option<u32>) {
        self.stacks.heard_of_unsaid(from)
    }

    /// Resets the connections that have, as the lane is about to end.
    pub fn reset_unsaid(&mut self, now: Instant) {
        self.common.now = now;
        self.stacks.reset_unsaid(&mut self.common);
    }

    /// In which lane a connection from a bound `local` to `remote` has to begin, because its segments will arrive there;
    /// `None` if there is no way to `remote`. Whoever draws the local port in its lane need not ask.
    pub fn lane_of_connect(
        &mut self,
        now: Instant,
        id: NetstackId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<LaneId> {
        self.stacks.lane_of_connect(&self.common, now, id, (local, remote))
    }

    /// Of which steering of a netstack this lane has heard last; `None` without that netstack.
    pub fn steering_version(&self, id: NetstackId) -> Option<u32> {
        self.stacks.steering_version(id)
    }

    /// Whether connections, from that place of the table on, or sockets of a netstack are in this lane that would begin in another
    /// one now.
    pub fn strangers(&self, id: NetstackId, from: u32) -> Strangers {
        self.stacks.strangers(&self.common, id, from)
    }

    /// Whether a datagram socket of a netstack with this port is in this lane.
    pub fn has_datagrams_at(&self, id: NetstackId, port: Port) -> bool {
        self.stacks.has_datagrams_at(id, port)
    }

    /// What another lane has to know of a netstack that it joins: what this one, its home, has learned, and its listeners.
    pub fn known(&self, id: NetstackId) -> (Vec<Learned>, Vec<Heard>) {
        (self.stacks.learned(id), self.stacks.heard(id))
    }

    /// What a connection that opens fast would do with text in its SYN, with these options; `None` if its SYN would carry none. It
    /// does if the netstack allows it, and the peer has given a cookie, or none is asked for.
    pub fn opens_with_text(
        &mut self,
        now: Instant,
        id: NetstackId,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &StreamOptions,
    ) -> Option<SynText> {
        self.stacks.opens_with_text(now, id, (local, remote), options)
    }

    /// The way between two stations, as far as this lane knows; `None` if there is none.
    pub fn way(&mut self, now: Instant, id: NetstackId, ends: (IpAddr, IpAddr)) -> Option<Egress> {
        self.stacks.way(now, id, ends)
    }

    /// The link by which a group is joined that is joined by none; `None` if no way leads there.
    pub fn group_link(&self, id: NetstackId, group: IpAddr) -> Option<LinkId> {
        self.stacks.group_link(id, group)
    }

    /// What a netstack has counted in this lane; `None` if it has no such netstack.
    pub fn netstack_counters(&self, id: NetstackId) -> Option<NetstackCounters> {
        self.stacks.netstack_counters(id)
    }

    /// What a netstack's translation has counted, if this is its home lane.
    pub fn nat_counts(&self, id: NetstackId) -> Option<NatCounts> {
        self.stacks.nat_counts(id)
    }

    /// The translated sessions of a netstack from a place on, and where to go on.
    pub fn nat_rows(&self, id: NetstackId, from: u32, most: usize) -> Option<(Vec<NatRow>, Option<u32>)> {
        self.stacks.nat_rows(id, from, most)
    }

    /// Ends a netstack's translated sessions; how many there were.
    pub fn flush_nat(&mut self, id: NetstackId) -> Option<u64> {
        self.stacks.flush_nat(id)
    }

    /// What a netstack's filter has counted in this lane; `None` if it has no such netstack.
    pub fn filter_counts(&self, id: NetstackId) -> Option<FilterCounts> {
        self.stacks.filter_counts(id)
    }

    /// How many networks the pools of a netstack's filter have here.
    pub fn pooled(&self, id: NetstackId) -> Option<usize> {
        self.stacks.pooled(id)
    }

    /// What the filter of a socket has counted in this lane, if it has one here.
    pub fn socket_filter_counts(&self, id: NetstackId, socket: SocketId) -> Option<FilterCounts> {
        self.stacks.socket_filter_counts(id, socket)
    }

    /// The groups that a netstack listens to; every lane knows all of them.
    pub fn memberships(&self, id: NetstackId) -> Vec<Membership> {
        self.stacks.memberships(id)
    }

    /// How its pools of frames stand, the small one first.
    pub fn pool_usage(&mut self) -> [PoolUsage; 2] {
        let Pools { small, large } = &mut self.common.pools;
        [small.usage(), large.usage()]
    }

    /// What its tables take.
    pub fn table_memory(&self) -> TableMemory {
        let of_stacks = self.stacks.memory();
        TableMemory { links: of_stacks.links + self.links.allocated_bytes(), ..of_stacks }
    }

    /// Everything that can be read, at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let waiting =
            self.links.flows.held_frames() + self.links.queued() + usize::from(self.links.flood.is_some());
        let held = waiting as u64 + self.stacks.held();
        let flows = self.links.flows.flows().map(|flow| (flow, self.links.flow_counters(flow))).collect();
        let (half_open, syn) = self.stacks.half_open();
        Snapshot {
            lane: self.common.id,
            counters: self.common.counters.clone(),
            held,
            ports: self.links.ports.iter().map(|port| (port.id, port.counters)).collect(),
            rings: self.links.rings(),
            guards: self.links.guard_counters(),
            flows,
            connections: self.stacks.connections(),
            time_wait: self.stacks.time_wait(),
            half_open,
            syn,
            fast_open: self.stacks.fast_open(),
            memory: self.table_memory(),
            squeue: SqueueStats::default(),
            sleeps: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_driver_memory::End;
    use firelane_ip::{Configured, Hearsay};
    use firelane_units::{IpPrefix, LinkId};
    use std::sync::Arc;

    use crate::backlog::Backlogs;
    use crate::config::Secrets;
    use crate::message::Learned;

    /// Writes down what it is told, in order; its queues may be full.
    #[derive(Default)]
    struct Log {
        is_full: bool,
        told: Vec<&'static str>,
        /// It has room for the next items again when it has refused so many.
        refuses: usize,
        /// Addresses of which it was told.
        heard: Vec<IpAddr>,
        /// Of the lane that fills, this many frames are consumed before it is refused.
        consumes: usize,
        backlogs: Option<Arc<Backlogs>>,
    }

    impl Outlet<End> for Log {
        fn fill(&mut self, _: LaneId, message: LaneMessage<End>) -> Result<(), LaneMessage<End>> {
            if let Some(backlogs) = &self.backlogs {
                assert!(!backlogs.consumed(LaneId(0), LaneId(1), std::mem::take(&mut self.consumes)));
            }
            let is_full = self.is_full || self.refuses > 0;
            self.refuses = self.refuses.saturating_sub(1);
            self.told.push(if is_full { "refused" } else { "lane" });
            if is_full {
                return Err(message);
            }
            if let LaneMessage::Learned(_, learned) = message
                && let Learned::Configured(Configured::NoAddress { addr, .. }) = *learned
            {
                self.heard.push(addr);
            }
            Ok(())
        }

        fn wake(&mut self, _: LaneId) {
            self.told.push("wake");
        }

        fn ready(&mut self, _: firelane_socket::SocketToken, _: firelane_socket::Ready) {}

        fn notice(&mut self, _: LaneId, _: Notice) {
            self.told.push("engine");
        }
    }

    #[test]
    fn the_engine_hears_of_an_address_after_every_lane_has_it() {
        let backlogs = Arc::new(Backlogs::new(2));
        let secrets = Secrets::new([7; Secrets::BYTES]);
        let mut lane = Lane::<End>::new(LaneConfig::new(LaneId(0), secrets, backlogs, Instant::ZERO));
        let (link, netstack) = (LinkId(1), NetstackId(0));
        let addr: IpPrefix = "fd00::1/64".parse().unwrap();
        let gone = Configured::NoAddress { link, addr: addr.addr() };
        let learned = LaneMessage::Learned(netstack, Box::new(Learned::Configured(gone)));
        let outbox = &mut lane.common.outbox;
        outbox.notices.push(Notice::Configured(netstack, gone));
        outbox.wakes.push(LaneId(1));
        outbox.messages.push((LaneId(1), learned));

        let mut log = Log { is_full: true, ..Log::default() };
        assert!(lane.empty_outbox(&mut log));
        assert_eq!(log.told, ["refused", "wake"], "the lane has not heard, so the engine must wait");
        log.is_full = false;
        assert!(!lane.empty_outbox(&mut log));
        assert_eq!(log.told[2..], ["lane", "engine"]);
    }

    #[test]
    fn what_packets_teach_waits_for_other_lanes_up_to_an_end() {
        let backlogs = Arc::new(Backlogs::new(2));
        let secrets = Secrets::new([7; Secrets::BYTES]);
        let mut lane = Lane::<End>::new(LaneConfig::new(LaneId(0), secrets, backlogs, Instant::ZERO));
        let (link, netstack) = (LinkId(1), NetstackId(0));
        let addr: IpAddr = "fd00::1".parse().unwrap();
        let heard = Learned::Neighbour { link, ip: addr, mac: None, how: Hearsay::Answer { replace: true } };
        let changed = Learned::Configured(Configured::NoAddress { link, addr });
        let mut log = Log { is_full: true, ..Log::default() };
        for _ in 0..3 {
            for learned in std::iter::repeat_n(&heard, UNTOLD_MAX).chain([&changed]) {
                let message = LaneMessage::Learned(netstack, Box::new(learned.clone()));
                lane.common.outbox.messages.push((LaneId(1), message));
            }
            assert!(lane.empty_outbox(&mut log));
        }
        let kept = lane.common.outbox.take_messages();
        let is_change = |(_, it): &&(LaneId, LaneMessage<End>)| matches!(it, LaneMessage::Learned(_, learned) if matches!(**learned, Learned::Configured(_)));
        assert_eq!((kept.len(), kept.iter().filter(is_change).count()), (UNTOLD_MAX + 3, 3));
        assert_eq!(lane.snapshot().counters.untold, 2 * UNTOLD_MAX as u64);
    }

    fn lane() -> (Lane<End>, Arc<Backlogs>) {
        let backlogs = Arc::new(Backlogs::new(2));
        let secrets = Secrets::new([7; Secrets::BYTES]);
        let config = LaneConfig::new(LaneId(0), secrets, Arc::clone(&backlogs), Instant::ZERO);
        (Lane::new(config), backlogs)
    }

    /// A full lane takes an item in the meantime, and has room for one more.
    #[test]
    fn what_a_full_lane_is_told_keeps_its_order() {
        let (mut lane, _) = lane();
        let addrs = [1, 2, 3].map(|n| IpAddr::from([10, 0, 0, n]));
        for addr in addrs {
            let gone = Configured::NoAddress { link: LinkId(1), addr };
            let message = LaneMessage::Learned(NetstackId(0), Box::new(Learned::Configured(gone)));
            lane.common.outbox.messages.push((LaneId(1), message));
        }
        let mut log = Log { refuses: 1, ..Log::default() };
        assert!(lane.empty_outbox(&mut log));
        assert!(!lane.empty_outbox(&mut log));
        assert_eq!(log.heard, addrs);
    }

    /// The last frames of a backlog are those that come back: nobody else calls.
    #[test]
    fn a_lane_whose_frames_come_back_goes_on_fetching() {
        let (mut lane, backlogs) = lane();
        backlogs.add(LaneId(0), 5);
        for _ in 0..3 {
            let frame = lane.common.pools.copy_of(&[0; 60]).expect("there are buffers");
            lane.common.outbox.hand_over(LaneId(1), Stage::Deliver, LinkId(1), frame);
        }
        let mut log =
            Log { is_full: true, consumes: 5, backlogs: Some(Arc::clone(&backlogs)), ..Log::default() };
        assert!(lane.empty_outbox(&mut log));
        assert_eq!(backlogs.of(LaneId(0)), 0);
        assert!(!lane.empty_outbox(&mut log));
    }
}
