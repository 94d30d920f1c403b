//! What a netstack's shard does with a frame that is for it.
//!
//! The exact match comes first: a segment of a known connection walks the connection's own list of steps. The
//! rest goes through IP and then to whoever waits: a listener, TIME-WAIT, a datagram socket, or nobody.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use firelane_classify::{Fragment, Headers, Sought, Tuple};
use firelane_frame::Frame;
use firelane_ip::{Delivered, LOOPBACK};
use firelane_socket::Names;
use firelane_tcp::{
    AtListener, Disposition, HalfOpen, SegmentIn, SegmentOut, SynAnswer, TimeWaitAnswer, reset_for,
};
use firelane_units::{ConnId, Direction, DropReason, Family, LaneId, LinkId};
use firelane_wire::{Ecn, IpProtocol, TcpFlags, TcpView};

use super::Stacks;
use super::conn::{Conn, Conns};
use super::shard::Shard;
use super::translated::Changed;
use crate::arrivals::Arrival;
use crate::common::Common;
use crate::message::Stage;
use crate::probes;
use crate::steer::lane_of;
use crate::steps::{Onward, Step, StepLists, walk};
use crate::watch::{Owner, Sight};

/// One shard with the lane's connections: what every mechanism here needs.
pub(crate) struct Inside<'a, D> {
    pub(crate) common: &'a mut Common<D>,
    pub(crate) shard: &'a mut Shard,
    pub(crate) conns: &'a mut Conns,
}

/// A packet on its walk.
pub(crate) struct Travel<'a> {
    link: LinkId,
    headers: &'a Headers,
    /// What a trace calls it.
    trace: u32,
    /// Before IP.
    frame: Option<Frame>,
    /// Between IP and the transport.
    pub(crate) packet: Option<Delivered>,
    /// What the transport has to tell the socket.
    told: Disposition,
}

impl Stacks {
    /// One frame for a netstack of this lane. While somebody watches, it goes step by step.
    #[inline]
    pub(crate) fn arrive_one<D, const WATCHED: bool>(
        &mut self,
        common: &mut Common<D>,
        frame: Frame,
        arrival: &Arrival,
    ) {
        let Arrival { netstack, link, ref headers, .. } = *arrival;
        if WATCHED {
            common.see(frame.meta().trace, Sight::Netstack(netstack, link));
        }
        let Some(shard) = self.shards.get_mut(netstack) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        probes::ip_receive(&frame, link);
        let mut inside = Inside { common, shard, conns: &mut self.conns };
        let frame = match inside.shard.forwarded.is_router() {
            true => match inside.take_forwarded::<WATCHED>(&self.steps, frame, arrival) {
                Ok(()) => return,
                Err(frame) => frame,
            },
            false => frame,
        };
        let frame = match inside.shard.config.steering.is_settling() || arrival.asked.is_some() {
            true => match inside.ask_others(frame, arrival) {
                Some(frame) => frame,
                None => return,
            },
            false => frame,
        };
        let (frame, changed) = match inside.shard.gate.is_on() {
            true => match inside.pass_doors((link, arrival.asked), frame, headers) {
                Some(entered) => entered,
                None => return inside.let_follow(),
            },
            false => (frame, None),
        };
        inside.arrive_past_doors::<WATCHED>(&self.steps, frame, arrival, changed.as_ref());
    }
}

impl<D> Inside<'_, D> {
    /// Ends a frame of this netstack here.
    pub(crate) fn drop_frame(&mut self, frame: Frame, reason: DropReason) {
        self.shard.drops.count(reason);
        self.common.drop_frame(frame, reason);
    }

    /// A packet is past the doors: its connection has it, or the long way. While somebody watches, it goes step by step.
    #[inline]
    pub(super) fn arrive_past_doors<const WATCHED: bool>(
        &mut self,
        lists: &StepLists,
        frame: Frame,
        arrival: &Arrival,
        changed: Option<&Changed>,
    ) {
        let (link, is_changed) = (arrival.link, changed.is_some());
        let headers = changed.map_or(&arrival.headers, |(changed, _)| changed);
        if headers.protocol == IpProtocol::TCP
            && let Some(tuple) = headers.tuple()
            && let Some(conn) = self.lookup_sought(arrival.sought.filter(|_| !is_changed), &tuple)
        {
            let frame = match WATCHED {
                true => Err(frame),
                false => self.take_expected(conn, &tuple, link, frame, headers),
            };
            if let Err(frame) = frame {
                self.walk_in(lists, conn, link, frame, headers);
            }
            return;
        }
        if WATCHED {
            self.common.see(frame.meta().trace, Sight::Found(Owner::Nobody));
        }
        self.slow_path(link, frame, &arrival.headers, changed);
        self.let_follow();
    }

    /// The connection of a tuple, unless its end has come.
    #[inline]
    pub(crate) fn lookup(&self, tuple: &Tuple) -> Option<ConnId> {
        self.shard.conns.lookup(tuple, |id| self.conns.is_named(id, tuple)).filter(|&id| !self.is_ended(id))
    }

    /// Whether the address of a connection of this netstack has gone since it began.
    #[inline]
    fn is_ended(&self, id: ConnId) -> bool {
        !self.shard.ending.is_empty() && !self.has(id)
    }

    /// The same, if a look ahead has perhaps looked for it. What came before it in its chain may have changed that.
    #[inline]
    fn lookup_sought(&self, sought: Option<Sought>, tuple: &Tuple) -> Option<ConnId> {
        let is_it = |id| {
            let conn = self.conns.slab.get(id);
            conn.is_some_and(|conn| conn.netstack == self.shard.config.id && conn.is_named(tuple))
        };
        match sought {
            Some(Sought::Found(id)) if is_it(id) && !self.is_ended(id) => Some(id),
            Some(Sought::Likely(id)) if is_it(id) && !self.is_ended(id) => {
                self.shard.conns.remember(tuple, id);
                Some(id)
            }
            Some(Sought::Under(hash)) => {
                let found = self.shard.conns.lookup_under(hash, tuple, |id| self.conns.is_named(id, tuple));
                found.filter(|&id| !self.is_ended(id))
            }
            _ => self.lookup(tuple),
        }
    }

    /// The next segment of a connection whose list has the steps of TCP alone: its walk in one piece. Gives the frame
    /// back if any step has more to do than usual.
    #[inline]
    fn take_expected(
        &mut self,
        id: ConnId,
        tuple: &Tuple,
        link: LinkId,
        frame: Frame,
        headers: &Headers,
    ) -> Result<(), Frame> {
        let conn = self.conns.slab.get_mut(id).expect(TABLED);
        // How many hops it has left is asked on the long way.
        let is_usual = conn.steps == StepLists::TCP && conn.least_hops == 0;
        let Some(route) = conn.route().filter(|_| is_usual) else { return Err(frame) };
        let l3_offset = usize::from(headers.l3_offset);
        let payload = self.shard.ip.core.returned(route, link, frame.as_slice(), l3_offset);
        let ends = || (tuple.remote(), tuple.local());
        let Some(Ok(view)) = payload.map(|payload| view(&frame, payload, ends)) else { return Err(frame) };
        let (tcp, mut rings) = conn.parts();
        let Some(told) = tcp.on_expected(self.common.now, &view, &mut rings) else { return Err(frame) };
        probes::tcp_receive(|| Some(*tuple), &view);
        self.shard.ip.core.count_returned(tuple.is_v4(), &frame);
        self.shard.tcp_counters.on_received(&frame);
        match told.dropped {
            None => self.common.deliver(frame),
            Some(reason) => self.drop_frame(frame, reason),
        }
        self.conclude_expected(id, told.events);
        Ok(())
    }

    /// A segment of a known connection: the steps of its list, in order.
    fn walk_in(&mut self, lists: &StepLists, conn: ConnId, link: LinkId, frame: Frame, headers: &Headers) {
        let steps = self.conns.slab.get(conn).expect(TABLED).steps;
        let trace = frame.meta().trace;
        let mut travel =
            Travel { link, headers, trace, frame: Some(frame), packet: None, told: Disposition::default() };
        self.common.see(trace, Sight::Found(Owner::Connection));
        walk(lists.list(steps).inbound(), |step| self.pass_in(step, conn, &mut travel));
    }

    /// One step of a segment's way in.
    fn pass_in(&mut self, step: Step, conn: ConnId, travel: &mut Travel<'_>) -> Onward {
        self.step(step, Direction::In, travel.trace, |inside| match step {
            Step::Ip => inside.pass_ip(conn, travel),
            Step::Tcp => inside.pass_tcp(conn, travel),
            Step::Socket => inside.pass_socket(conn, travel),
            Step::Fused => inside.pass_fused(conn, travel),
            // Connections have passed the filter before they were found, and have no datagrams.
            Step::Filter | Step::Nat | Step::Udp | Step::Forward | Step::Tunnel => Onward::Ended,
        })
    }

    /// Does a step's work, seen by whoever looks.
    #[inline]
    pub(crate) fn step<R>(
        &mut self,
        step: Step,
        direction: Direction,
        trace: u32,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.common.see(trace, Sight::Step(step, direction));
        let began = self.common.watch.begin();
        let result = work(self);
        self.common.watch.end(step, direction, began);
        result
    }

    fn pass_ip(&mut self, conn: ConnId, travel: &mut Travel<'_>) -> Onward {
        let Some(frame) = travel.frame.take() else { return Onward::Ended };
        let (ip, link, l3_offset) = (&mut self.shard.ip, travel.link, travel.headers.l3_offset);
        let judged = match self.conns.slab.get(conn).and_then(Conn::route) {
            Some(route) => ip.core.input_returned(route, link, frame, usize::from(l3_offset)),
            None => Err(frame),
        };
        travel.packet = match judged {
            Ok(packet) => Some(packet),
            Err(frame) => ip.input(self.common, link, frame, l3_offset),
        };
        if travel.packet.is_some() { Onward::Next } else { Onward::Ended }
    }

    fn pass_tcp(&mut self, conn: ConnId, travel: &mut Travel<'_>) -> Onward {
        let Some(packet) = travel.packet.take() else { return Onward::Ended };
        self.shard.tcp_counters.on_received(&packet.frame);
        let verdict =
            view(&packet.frame, packet.payload.clone(), || (packet.src, packet.dst)).and_then(|view| {
                self.conns.wake_up(conn);
                let conn = self.conns.slab.get_mut(conn).expect(TABLED);
                if packet.ttl < conn.least_hops {
                    return Err(DropReason::FewHops);
                }
                probes::tcp_receive(|| conn.tuple(), &view);
                let segment = segment_in(&view, packet.ecn);
                if segment.has(TcpFlags::URG)
                    && let Some(mark) = conn.tcp().mark_to_come(&segment)
                {
                    conn.stream.set_mark(mark);
                }
                let (tcp, mut rings) = conn.parts();
                Ok(tcp.on_segment(self.common.now, &segment, &mut rings))
            });
        match verdict {
            Ok(told) => {
                match told.dropped {
                    Some(reason) => self.drop_frame(packet.frame, reason),
                    None => self.common.deliver_seen(packet.frame),
                }
                travel.told = told;
                Onward::Next
            }
            Err(reason) => {
                self.drop_frame(packet.frame, reason);
                Onward::Ended
            }
        }
    }

    fn pass_socket(&mut self, conn: ConnId, travel: &mut Travel<'_>) -> Onward {
        self.conclude(conn, core::mem::take(&mut travel.told));
        Onward::Next
    }

    /// A packet of no known connection; it arrived with the headers `arrived`.
    pub(super) fn slow_path(
        &mut self,
        link: LinkId,
        frame: Frame,
        arrived: &Headers,
        changed: Option<&Changed>,
    ) {
        let headers = changed.map_or(arrived, |(changed, _)| changed);
        let trace = frame.meta().trace;
        let packet = self.step(Step::Ip, Direction::In, trace, |it| {
            it.shard.ip.input(it.common, link, frame, headers.l3_offset)
        });
        self.tell_unreached();
        let Some(packet) = packet else {
            if let Some(adjacency) = self.shard.ip.take_adjacency() {
                self.learn_forwarded(link, arrived, changed, adjacency);
            }
            // It is asked about on its way out before the next packet comes.
            self.go_out();
            return;
        };
        if headers.fragment != Fragment::Whole
            && let Some(lane) = self.lane_of_whole(&packet)
        {
            return self.hand_on(lane, packet);
        }
        let packet = match headers.fragment {
            Fragment::Whole => packet,
            _ => match self.take_joined(packet, headers, trace) {
                Some(packet) => packet,
                None => return,
            },
        };
        match packet.protocol {
            // RFC 9293 MUST-57, RFC 1122 §4.2.3.10: a segment to many is no segment.
            IpProtocol::TCP if packet.is_broadcast_or_multicast => {
                self.drop_frame(packet.frame, DropReason::BadSegment);
            }
            IpProtocol::TCP => self.step(Step::Tcp, Direction::In, trace, |it| it.stray_segment(packet)),
            IpProtocol::UDP => self.step(Step::Udp, Direction::In, trace, |it| it.datagram(packet)),
            IpProtocol::ICMPV4 | IpProtocol::ICMPV6 => self.echo_answer(packet),
            protocol if protocol.is_tunnel() => {
                self.step(Step::Tunnel, Direction::In, trace, |it| it.leave_tunnel(packet));
            }
            _ => self.drop_frame(packet.frame, DropReason::UnknownProtocol),
        }
    }

    /// The other lane that a datagram belongs to which was put together here: fragments have no ports, so they
    /// met in the home lane.
    fn lane_of_whole(&mut self, packet: &Delivered) -> Option<LaneId> {
        self.shard.ip.touch();
        let headers = Headers::parse(packet.frame.as_slice()).ok()?;
        let key = self.common.secrets.steering();
        let steering = &self.shard.config.steering;
        let lane = match packet.link {
            LOOPBACK => self.shard.lane_of_loop(&headers, &key),
            _ => lane_of(&headers, steering, &key),
        };
        (lane != self.common.id).then_some(lane)
    }

    fn hand_on(&mut self, lane: LaneId, packet: Delivered) {
        let stage = match packet.link {
            LOOPBACK => Stage::Loopback(self.shard.config.id),
            // Its pieces have come by the VNIC, which has counted them; and where addresses are translated, what came by it once more would
            // come to this lane again.
            _ => Stage::Door(self.shard.config.id),
        };
        self.shard.ip.core.count_handed_on(packet.dst.is_ipv4());
        self.common.hand_over(lane, stage, packet.link, packet.frame);
    }

    /// A segment that was put together here: fragments have no ports, so its connection is looked for only now. Gives the
    /// packet back if it belongs to none.
    #[cold]
    fn take_joined(&mut self, packet: Delivered, headers: &Headers, trace: u32) -> Option<Delivered> {
        let whole = Headers::parse(packet.frame.as_slice()).ok();
        let tuple = whole.filter(|whole| whole.protocol == IpProtocol::TCP).and_then(|whole| whole.tuple());
        let Some(conn) = tuple.and_then(|tuple| self.lookup(&tuple)) else { return Some(packet) };
        let is_fused = self.conns.slab.get(conn).expect(TABLED).steps == StepLists::FUSED;
        let (link, told) = (packet.link, Disposition::default());
        let mut travel = Travel { link, headers, trace, frame: None, packet: Some(packet), told };
        self.common.see(trace, Sight::Found(Owner::Connection));
        // It has been through IP, piece by piece.
        let steps = [Step::Fused, Step::Tcp, Step::Socket];
        walk(&steps[usize::from(!is_fused)..], |step| self.pass_in(step, conn, &mut travel));
        None
    }

    /// A segment that belongs to no connection: TIME-WAIT, a listener, or nobody.
    fn stray_segment(&mut self, packet: Delivered) {
        self.shard.tcp_counters.on_received(&packet.frame);
        let verdict = match view(&packet.frame, packet.payload.clone(), || (packet.src, packet.dst)) {
            Ok(view) => {
                let local = SocketAddr::new(packet.dst, view.dst_port().0);
                let remote = SocketAddr::new(packet.src, view.src_port().0);
                let segment = segment_in(&view, packet.ecn);
                match self.admits_segment(&packet, &segment, (local, remote)) {
                    true => self.answer_stray(&segment, (local, remote), (packet.link, packet.ttl)),
                    false => Err(DropReason::FilterSocket),
                }
            }
            Err(reason) => Err(reason),
        };
        match verdict {
            Ok(()) => self.common.deliver_seen(packet.frame),
            Err(reason) => self.drop_frame(packet.frame, reason),
        }
    }

    /// A half-open connection's handshake completes with `seg`, if there is room; else its SYN-ACK is repeated, and its peer answers
    /// again.
    fn promote_or_keep(
        &mut self,
        half_open: HalfOpen,
        seg: &SegmentIn<'_>,
        names: firelane_tcp::Tuple,
    ) -> Result<(), DropReason> {
        let (local, remote) = (names.local(), names.remote());
        let promoted = self.promote(&half_open, seg, Names { local, remote }, None);
        if promoted == Err(DropReason::ListenFull) {
            self.shard.half_open.enter(self.common.now, names, half_open);
        }
        promoted
    }

    fn answer_stray(
        &mut self,
        seg: &SegmentIn<'_>,
        (local, remote): (SocketAddr, SocketAddr),
        (link, hops): (LinkId, u8),
    ) -> Result<(), DropReason> {
        let names = firelane_tcp::Tuple::new(local, remote);
        let now = self.common.now;
        match self.shard.on_half_open(now, &names, seg) {
            SynAnswer::Unknown => {}
            SynAnswer::Drop(reason) => return Err(reason),
            SynAnswer::Waits => return Ok(()),
            SynAnswer::Reply(reply) => {
                self.send_half_open(&names, &reply);
                return Ok(());
            }
            SynAnswer::Promote(half_open) => return self.promote_or_keep(half_open, seg, names),
        }
        let is_own = link == LOOPBACK;
        let link = self.shard.link_of_arrival(link, local.ip());
        let listening = self.shard.listener(local, remote, link);
        let least_hops =
            listening.map_or(0, |(_, it)| it.options.least_hops[Family::of(remote.ip()).index()]);
        let listener = listening.map(|(socket, _)| socket);
        let is_heard = listener.is_some() && hops >= least_hops;
        let least_iss = match self.shard.time_wait.on_segment(now, &names, seg, is_heard) {
            TimeWaitAnswer::Unknown => None,
            TimeWaitAnswer::Drop(reason) => return Err(reason),
            TimeWaitAnswer::Reply(reply) => return self.answer_old(seg, (local, remote), &reply),
            TimeWaitAnswer::Reuse { least_iss } => Some(least_iss),
        };
        if hops < least_hops {
            return Err(DropReason::FewHops);
        }
        if let Some(socket) = listener {
            match AtListener::of(seg) {
                AtListener::Open => return self.on_syn(seg, socket, (local, remote), least_iss),
                AtListener::Ignore => return Err(DropReason::Unacceptable),
                AtListener::Reset => {}
            }
        }
        let read = match listener {
            Some(socket) => self.read_cookie(seg, socket, (local, remote)),
            None => Err(DropReason::NoConnection),
        };
        let refused = match read {
            Ok(half_open) => return self.promote(&half_open, seg, Names { local, remote }, None),
            Err(DropReason::ListenFull) => return Err(DropReason::ListenFull),
            Err(reason) => reason,
        };
        // RFC 9293 §3.10.7.1: a segment for nobody is answered with a RST, a RST with nothing. The limit is for others: who connects to
        // his own netstack is refused as often as he tries.
        if let Some(reply) = reset_for(seg)
            && (is_own || self.shard.resets.allow(self.common.now))
        {
            self.send_loose(local, remote, &reply);
        }
        Err(refused)
    }

    /// Answers for a connection in TIME-WAIT. Two ends that are out of step would do so without end (RFC 5961 §7); a FIN waits for its
    /// acknowledgment.
    fn answer_old(
        &mut self,
        seg: &SegmentIn<'_>,
        (local, remote): (SocketAddr, SocketAddr),
        reply: &SegmentOut,
    ) -> Result<(), DropReason> {
        let is_due = seg.has(TcpFlags::FIN) || self.shard.challenges.allow(self.common.now);
        if is_due { self.answer(local, remote, reply) } else { Ok(()) }
    }

    fn answer(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        reply: &SegmentOut,
    ) -> Result<(), DropReason> {
        self.send_loose(local, remote, reply);
        Ok(())
    }

    /// The shape of a connection's key in the connection table.
    pub(crate) fn tuple(local: SocketAddr, remote: SocketAddr) -> Option<Tuple> {
        let end = |a: SocketAddr| (a.ip(), firelane_units::Port(a.port()));
        Tuple::new(IpProtocol::TCP, end(local), end(remote))
    }
}

/// Why an index from the connection table names a connection.
pub(crate) const TABLED: &str = "a connection leaves its table before its place";

/// The segment at `payload` of a frame; `ends` gives source and destination, if its checksum has to be looked at.
#[inline]
pub(crate) fn view(
    frame: &Frame,
    payload: Range<usize>,
    ends: impl FnOnce() -> (IpAddr, IpAddr),
) -> Result<TcpView<'_>, DropReason> {
    let segment = frame.as_slice().get(payload).ok_or(DropReason::BadSegment)?;
    let view = TcpView::parse(segment).map_err(|_| DropReason::BadSegment)?;
    if frame.meta().checksum.needs_check() {
        let (src, dst) = ends();
        if !view.is_checksum_valid(src, dst) {
            return Err(DropReason::BadSegment);
        }
    }
    Ok(view)
}

pub(crate) fn segment_in<'a>(view: &TcpView<'a>, ecn: Ecn) -> SegmentIn<'a> {
    SegmentIn {
        seq: view.seq(),
        ack: view.ack(),
        flags: view.flags(),
        window: view.window(),
        urgent: view.urgent(),
        options: view.options(),
        payload: view.payload(),
        ecn,
    }
}
