//! From a connection's send ring to a frame: the outbound walk.
//!
//! The socket's limit is asked first (back-pressure first, loss last), then TCP for a segment, which is copied
//! once, from the ring into the frame. The checksum is left to whoever puts the frame on a medium: a device, or
//! `offload::prepare`, or nobody if the frame never leaves this host.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU8;

use firelane_flow::{Conversation, Credit, Limits};
use firelane_frame::{Checksum, Frame, SegmentKind, Segmentation};
use firelane_ip::{Egress, LOOPBACK, Upper};
use firelane_socket::{Names, Ready};
use firelane_tcp::{SegmentOut, TransmitLimits};
use firelane_units::{Bytes, ConnId, Direction, Family, Instant, LinkId, Mss, Mtu, Port};
use firelane_wire::{Ecn, IpProtocol, Sum, TcpFlags, TcpRepr, tcp};

use super::Stacks;
use super::conn::{Conn, Leaving};
use super::inbound::Inside;
use crate::common::Common;
use crate::fusion::Fusion;
use crate::links::{Links, conversation_of};
use crate::probes;
use crate::sent::Asked;
use crate::steps::{Onward, Step, StepLists, walk};

/// The most text of one large segment: what fits an IP packet beside the longest headers.
const SEGMENT_MAX: u64 = 65_535 - 60 - 60;

/// How many frames one connection may make before the next dirty one has its turn.
const FRAMES_PER_TURN: usize = 16;

/// How much text it may have put into them by then: what leaves the lane next is still in the CPU's own cache, as is the buffer that it
/// leaves and that the next frame takes.
const TEXT_PER_TURN: usize = 128 << 10;

/// How many connections send in one round, after which what they made goes to the devices. Enough to pay a
/// doorbell, few enough that the far side is not kept waiting: with all in one piece, two lanes that answer each
/// other would work in turn and never at the same time.
pub(crate) const CONNECTIONS_PER_ROUND: usize = 16;

/// Everything before the text, for what a limit's credit must cover.
const HEADERS_MAX: u64 = 18 + 40 + 60;

/// The text that a small frame holds beside the longest headers: the pool's slots are 2 KiB.
const SMALL_TEXT: u64 = 1500;

/// Without a limit, TCP may make the largest segments.
const UNLIMITED: TransmitLimits = TransmitLimits { max_segment_payload: Bytes(SEGMENT_MAX) };

/// A segment on its walk outward.
struct Outgoing {
    limits: TransmitLimits,
    /// Whom was asked, if a flow's limit had a say.
    asked: Option<Asked>,
    segment: Option<SegmentOut>,
    /// Why the walk ended early.
    pause: Option<Pause>,
}

/// How a connection's turn to send ended.
enum Pause {
    /// It has nothing to send.
    Empty,
    /// It has more, and others wait.
    Again,
    /// It waits for a limit or a device, and will be made dirty.
    Waits,
}

impl Stacks {
    /// Lets connections that are dirty at this moment send their share, one round's worth of them.
    pub(crate) fn transmit_streams<D>(&mut self, common: &mut Common<D>, links: &mut Links<D>) {
        self.conns.wake(common.now, |port| links.is_busy(port), |limits| links.sent.note_asked(limits));
        // What this round makes reaches the devices behind it.
        let is_any_busy = links.is_any_busy();
        for _ in 0..self.conns.dirty().min(CONNECTIONS_PER_ROUND) {
            if self.conns.is_turn_over() {
                return;
            }
            let Some(id) = self.conns.next_dirty() else { return };
            let Some(netstack) = self.home(id) else { continue };
            let Some(shard) = self.shards.get_mut(netstack) else { continue };
            let mut inside = Inside { common, shard, conns: &mut self.conns };
            let pause = inside.send_share(id, &self.steps, links, is_any_busy);
            match pause {
                Pause::Again => inside.conns.touch(id),
                Pause::Empty => {
                    inside.tune_sender(id);
                    inside.conns.ask_behind_segments(id);
                    inside.come_to_rest(id);
                }
                Pause::Waits => {}
            }
            if inside.conns.slab.get_mut(id).is_some_and(|conn| conn.has_unsent_limit()) {
                inside.relieve(id);
            }
            match pause {
                Pause::Empty => self.conns.arm(id, common.now),
                Pause::Again => self.conns.arm_later(id, common.now),
                Pause::Waits => self.conns.arm_waiting(id, common.now),
            }
        }
    }
}

impl<D> Inside<'_, D> {
    /// One connection's share of a turn: walks of its outbound steps, one segment each.
    fn send_share(
        &mut self,
        id: ConnId,
        lists: &StepLists,
        links: &mut Links<D>,
        is_any_busy: bool,
    ) -> Pause {
        if self.conns.slab.get_mut(id).is_some_and(|conn| conn.has_sent_all(self.common.now)) {
            return Pause::Empty;
        }
        if is_any_busy && let Some(port) = self.busy_port(id, links) {
            self.conns.wait_for_device(id, port, self.common.now);
            return Pause::Waits;
        }
        // If the way has changed, TCP learns what it carries before it cuts the next segment.
        self.has_route(id);
        let Some(steps) = self.conns.slab.get(id).map(|conn| conn.steps) else { return Pause::Waits };
        let list = lists.list(steps).outbound();
        let mut text = 0;
        for _ in 0..FRAMES_PER_TURN {
            let mut outgoing = Outgoing { limits: UNLIMITED, asked: None, segment: None, pause: None };
            let is_watched = self.common.watch.is_on();
            walk(list, |step| match self.pass_out_seen(is_watched, step, id, links, &mut outgoing) {
                Ok(()) => Onward::Next,
                Err(pause) => {
                    outgoing.pause = Some(pause);
                    Onward::Ended
                }
            });
            if let Some(pause) = outgoing.pause {
                return pause;
            }
            let sent = outgoing.segment.map_or(0, |it| it.payload_len());
            self.conns.charge(self.shard.config.id, sent);
            if let Some(asked) = outgoing.asked {
                links.sent.note(asked, Bytes(sent as u64 + HEADERS_MAX));
                self.conns.has_had_credit(id);
            }
            if self.conns.slab.get_mut(id).is_some_and(|conn| conn.has_sent_all(self.common.now)) {
                return Pause::Empty;
            }
            text += sent;
            // The next question to the limit comes after this frame has been charged.
            if outgoing.asked.is_some() || text >= TEXT_PER_TURN {
                return Pause::Again;
            }
        }
        Pause::Again
    }

    /// One step of a segment's way out, counted if somebody looks.
    #[inline]
    fn pass_out_seen(
        &mut self,
        is_watched: bool,
        step: Step,
        id: ConnId,
        links: &Links<D>,
        outgoing: &mut Outgoing,
    ) -> Result<(), Pause> {
        match is_watched {
            true => self.step(step, Direction::Out, 0, |it| it.pass_out(step, id, links, outgoing)),
            false => self.pass_out(step, id, links, outgoing),
        }
    }

    /// One step of a segment's way out.
    #[inline]
    fn pass_out(
        &mut self,
        step: Step,
        id: ConnId,
        links: &Links<D>,
        outgoing: &mut Outgoing,
    ) -> Result<(), Pause> {
        match step {
            Step::Socket => (outgoing.limits, outgoing.asked) = self.limits(id, links)?,
            Step::Tcp => {
                let conn = self.conns.slab.get_mut(id).ok_or(Pause::Waits)?;
                let (tcp, mut rings) = conn.parts();
                outgoing.segment = tcp.poll_transmit(self.common.now, &mut rings, &outgoing.limits);
                if outgoing.segment.is_none() {
                    return Err(Pause::Empty);
                }
            }
            Step::Ip => {
                let segment = outgoing.segment.as_ref().ok_or(Pause::Empty)?;
                if outgoing.asked.is_some() || !self.hand_across(id, segment, links) {
                    self.send_segment(id, segment)?;
                }
            }
            // A connection's list has neither datagrams nor other stations' packets, and what is fused sends nothing.
            Step::Filter | Step::Nat | Step::Udp | Step::Forward | Step::Tunnel | Step::Fused => {
                return Err(Pause::Empty);
            }
        }
        Ok(())
    }

    /// The port that a connection's segments leave by, if its device has enough to do.
    fn busy_port(&self, id: ConnId, links: &Links<D>) -> Option<LinkId> {
        let route = self.conns.slab.get(id)?.route()?;
        let port = links.port_towards(self.common.now, route.link, route.dst_mac?)?;
        links.is_busy(port).then_some(port)
    }

    /// How much one segment may carry now, or why none may leave; and who said so, if it was a limit.
    fn limits(&mut self, id: ConnId, links: &Links<D>) -> Result<(TransmitLimits, Option<Asked>), Pause> {
        let mut most = SEGMENT_MAX;
        let mut limited = None;
        let asked = match links.flows.has_limits() {
            true => Asked { flows: self.flows_of(id, links), speaker: self.conversation_of(id) },
            false => Asked::default(),
        };
        match links.credit(self.common, asked) {
            Credit::Unlimited => {}
            // The rest of what others have left is no segment.
            Credit::Bytes(bytes) if bytes.0 < HEADERS_MAX + SMALL_TEXT && links.sent.has_any(asked) => {
                return Err(self.wait_for_credit(id, asked, self.common.now));
            }
            Credit::Bytes(bytes) => {
                most = most.min(bytes.0.saturating_sub(HEADERS_MAX));
                limited = Some(asked);
                self.cut_for_limits(id);
            }
            Credit::At(until) => {
                return Err(self.wait_for_credit(id, asked, until));
            }
        }
        // A segment that TCP has counted as sent must leave, so its buffer is made sure of first.
        if self.common.pools.small.free() == 0 {
            return Err(Pause::Again);
        }
        if self.common.pools.large.free() == 0 {
            most = most.min(SMALL_TEXT);
        }
        Ok((TransmitLimits { max_segment_payload: Bytes(most) }, limited))
    }

    /// A limit says "not before".
    fn wait_for_credit(&mut self, id: ConnId, asked: Asked, until: Instant) -> Pause {
        // Its program is gone, and nothing has begun: nobody waits for a SYN that would have left at once.
        let is_begun = self.conns.slab.get(id).is_some_and(|conn| conn.leaving == Leaving::Begun);
        if is_begun && until > self.common.now {
            return Pause::Empty;
        }
        self.conns.wait_for_credit(&mut self.common.tickets, id, asked.flows, (self.common.now, until));
        Pause::Waits
    }

    fn conversation_of(&self, id: ConnId) -> Option<Conversation> {
        self.conns.slab.get(id)?.tuple().as_ref().map(conversation_of)
    }

    /// The flows of a connection's segments, looked up again when rules have changed.
    fn flows_of(&mut self, id: ConnId, links: &Links<D>) -> Limits {
        let Some(conn) = self.conns.slab.get_mut(id) else { return Limits::default() };
        if let Some(flows) = conn.flows(links.rules_changed) {
            return flows;
        }
        let (Some(route), Some(tuple)) = (conn.route(), conn.tuple()) else { return Limits::default() };
        let flows = self.shard.flows_of(links, route, &tuple, conn.dsfield());
        conn.set_flows(links.rules_changed, flows);
        flows
    }

    /// A limit has a say: what goes to this netstack itself is cut as for a wire, because nothing less than a segment can wait.
    fn cut_for_limits(&mut self, id: ConnId) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if let Some(route) = conn.route().filter(|route| route.link == LOOPBACK) {
            let mss = mss_over(route.mtu.min(Mtu::ETHERNET), route.dst);
            conn.tcp().set_path_mss(mss);
        }
    }

    /// Builds a connection's segment and hands it to IP. Without a way or a buffer TCP sends it again, as if it
    /// were lost; without a way there is no hurry.
    #[inline]
    fn send_segment(&mut self, id: ConnId, out: &SegmentOut) -> Result<(), Pause> {
        if self.conns.slab.get(id).is_none_or(|conn| conn.front(&self.shard.ip.core).is_none()) {
            self.make_front(id)?;
        }
        let Some(conn) = self.conns.slab.get(id) else { return Err(Pause::Empty) };
        let Some(front) = conn.front(&self.shard.ip.core) else { return self.send_in_full(id, out) };
        let way = TcpWay { is_v4: front.is_v4(), pseudo: front.pseudo(0) };
        let Some(frame) = build(conn, &way, out, self.common) else { return self.refuse_segment() };
        probes::tcp_send(|| conn.tuple(), out);
        self.shard.tcp_counters.on_sent(out);
        match self.shard.ip.send_behind(self.common, front, frame, out.ecn) {
            Ok(()) => Ok(()),
            Err(frame) => self.send_by_route(id, frame, out.ecn),
        }
    }

    /// The way of a connection's segments is new: their headers are made ready for it, if it leads to somebody who is known.
    fn make_front(&mut self, id: ConnId) -> Result<(), Pause> {
        if !self.has_route(id) {
            return Err(Pause::Empty);
        }
        let Some(conn) = self.conns.slab.get_mut(id) else { return Err(Pause::Empty) };
        conn.make_front(&self.shard.ip.core);
        Ok(())
    }

    /// The same for a way whose next station has yet to answer.
    fn send_in_full(&mut self, id: ConnId, out: &SegmentOut) -> Result<(), Pause> {
        let Some(egress) = self.route_of(id) else { return Err(Pause::Empty) };
        let Some(conn) = self.conns.slab.get(id) else { return Err(Pause::Empty) };
        let Some(frame) = build(conn, &TcpWay::of(&egress), out, self.common) else {
            return self.refuse_segment();
        };
        probes::tcp_send(|| conn.tuple(), out);
        self.shard.tcp_counters.on_sent(out);
        self.send_by_route(id, frame, out.ecn)
    }

    fn send_by_route(&mut self, id: ConnId, frame: Frame, ecn: Ecn) -> Result<(), Pause> {
        let (Some(mut egress), Some(conn)) = (self.route_of(id), self.conns.slab.get(id)) else {
            self.common.pools.put(frame);
            return Err(Pause::Empty);
        };
        // What ends here is as good as lost: TCP sends it again.
        let upper = conn.upper(&self.shard.ip.core, ecn);
        let _ = self.shard.ip.send(self.common, &mut egress, frame, upper);
        Ok(())
    }

    /// There is no buffer for a segment.
    #[cold]
    fn refuse_segment(&mut self) -> Result<(), Pause> {
        self.common.counters.unsent += 1;
        Err(Pause::Again)
    }

    /// The way of a connection's segments.
    pub(crate) fn route_of(&mut self, id: ConnId) -> Option<Egress> {
        if !self.has_route(id) {
            return None;
        }
        self.conns.slab.get(id)?.route().copied()
    }

    /// Whether there is a way for a connection's segments, looked up again when routes or addresses have changed.
    #[inline]
    pub(super) fn has_route(&mut self, id: ConnId) -> bool {
        let conn = self.conns.slab.get(id);
        let is_current =
            conn.and_then(Conn::route).is_some_and(|egress| self.shard.ip.core.is_current(egress));
        is_current || self.find_route(id).is_some()
    }

    fn find_route(&mut self, id: ConnId) -> Option<()> {
        let conn = self.conns.slab.get_mut(id)?;
        let Names { local, remote } = conn.stream.shared().names()?;
        let (now, bound) = (self.common.now, conn.route().and_then(|route| route.bound));
        let egress = self.shard.ip.core.egress_for(now, bound, Some(local.ip()), remote.ip()).ok()?;
        conn.tcp().set_path_mss(mss_of(&egress));
        conn.set_route(egress);
        Some(())
    }

    /// A reply that belongs to no position in the stream: a RST or a challenge ACK.
    pub(crate) fn send_reply(&mut self, id: ConnId, out: &SegmentOut) {
        // Neither is ever sent again: what asked for it will come again.
        let _ = self.send_segment(id, out);
    }

    /// An answer to a segment of no connection.
    pub(crate) fn send_loose(&mut self, local: SocketAddr, remote: SocketAddr, out: &SegmentOut) {
        self.send_loose_over(None, local, remote, out);
    }

    /// What a half-open connection says: it leaves by the link that its listener keeps to, as its first answer did.
    pub(crate) fn send_half_open(&mut self, names: &firelane_tcp::Tuple, out: &SegmentOut) {
        let listener = self.shard.half_open.listener_of(names);
        let listening = listener.and_then(|it| self.shard.listening.get(it.0));
        let link = listening.and_then(|it| it.options.link);
        self.send_loose_over(link, names.local(), names.remote(), out);
    }

    /// A segment of no connection, by one link alone if that is asked for.
    pub(crate) fn send_loose_over(
        &mut self,
        link: Option<LinkId>,
        local: SocketAddr,
        remote: SocketAddr,
        out: &SegmentOut,
    ) {
        let (now, ip) = (self.common.now, &mut self.shard.ip.core);
        if let Ok(mut egress) = ip.egress_for(now, link, Some(local.ip()), remote.ip()) {
            self.send_by(&mut egress, local, remote, out);
        }
    }

    /// A segment of no connection, by a way that was found just now.
    pub(crate) fn send_by(
        &mut self,
        egress: &mut Egress,
        local: SocketAddr,
        remote: SocketAddr,
        out: &SegmentOut,
    ) {
        let Some(mut frame) = self.common.pools.take(0) else { return };
        TcpWay::of(egress).prepend((Port(local.port()), Port(remote.port())), &mut frame, out);
        self.shard.tcp_counters.on_sent(out);
        let flow_label = self.shard.ip.core.flow_label(IpProtocol::TCP, local, remote);
        // Who waits for it asks again.
        let upper = Upper { flow_label, ..self.upper_of(egress.link, (local, remote), out) };
        let _ = self.shard.ip.send_found(self.common, egress, frame, upper);
    }

    /// What the packet of a segment of no connection is like: that of a listener's answer as its program wants it.
    fn upper_of(&self, link: LinkId, (local, remote): (SocketAddr, SocketAddr), out: &SegmentOut) -> Upper {
        let usual = Upper::tcp(out.ecn);
        if !out.flags.contains(TcpFlags::SYN) {
            return usual;
        }
        // Of those that share a port the one that has the entry; a cookie has none.
        let socket = self.shard.half_open.listener_of(&firelane_tcp::Tuple::new(local, remote));
        let entered = socket.and_then(|it| self.shard.listening.get(it.0));
        let listener = entered.or_else(|| self.shard.listener(local, remote, link).map(|(_, it)| it));
        listener.map_or(usual, |it| {
            let (options, family) = (&it.options, Family::of(remote.ip()).index());
            Upper { hops: options.hops[family].map(NonZeroU8::get), dscp: options.dscp[family], ..usual }
        })
    }

    /// A program that wants little to be unsent hears that it may write on, once less than that is.
    pub(crate) fn relieve(&mut self, id: ConnId) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        let (tcp, rings) = conn.parts();
        let is_enough = tcp.unsent_limit().is_none_or(|limit| tcp.unsent(&rings) < u64::from(limit));
        if is_enough && conn.stream.shared().words().relieve() {
            let token = conn.stream.tell(Ready::WRITABLE);
            self.common.outbox.tell(token, Ready::WRITABLE);
        }
    }

    /// Everything was sent that may be: if there is room for more than the send ring holds, it grows, and the program may write on.
    #[inline]
    fn tune_sender(&mut self, id: ConnId) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        let (tcp, mut rings) = conn.parts();
        self.conns.are_held_up |= tcp.is_held_up(&rings);
        if tcp.tune_sender(&mut rings) {
            let token = conn.stream.tell(Ready::WRITABLE);
            self.common.outbox.tell(token, Ready::WRITABLE);
        }
    }

    /// A connection has nothing left to send.
    fn come_to_rest(&mut self, id: ConnId) {
        if self.conns.slab.get(id).is_some_and(|conn| conn.fusion == Fusion::Wished) {
            self.conns.wishes.push(id);
        }
        self.settle(id);
    }

    /// A connection has nothing left to send: if its end has come, it goes.
    pub(super) fn settle(&mut self, id: ConnId) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        match conn.leaving {
            Leaving::No => return,
            Leaving::Reset => {
                let told = conn.tcp().abort(self.common.now);
                return self.conclude(id, told);
            }
            Leaving::Begun => {
                let (tcp, rings) = conn.parts();
                let told = tcp.close(self.common.now, &rings);
                conn.leaving = Leaving::No;
                return self.conclude(id, told);
            }
            Leaving::TimeWait => {
                // Inside a netstack what each has sent has arrived in its order before either has closed: nothing old is under way.
                if !conn.is_local() {
                    let Some(Names { local, remote }) = conn.stream.shared().names() else { return };
                    let names = firelane_tcp::Tuple::new(local, remote);
                    let Some(record) = conn.tcp().time_wait_record(names) else { return };
                    self.shard.time_wait.insert(self.common.now, record);
                }
                super::events::say_closed(conn, self.common);
            }
            Leaving::Gone => {}
        }
        self.shard.ended.keep(self.common.now, conn);
        if conn.tcp().has_opened_fast() {
            self.shard.fast_opens.on_success();
        }
        if let Some(tuple) = conn.tuple() {
            self.shard.conns.remove(&tuple, id);
            let (local, remote) = (tuple.local_port(), tuple.remote_port());
            let end = |ip, port: Port| SocketAddr::new(ip, port.0);
            self.shard.searches.on_free(end(tuple.local(), local), end(tuple.remote(), remote));
        }
        self.conns.remove(id);
    }
}

/// The largest TCP segment, text and options, that a way carries (RFC 6691).
pub(crate) fn mss_of(egress: &Egress) -> Mss {
    mss_over(egress.mtu, egress.dst)
}

fn mss_over(mtu: Mtu, dst: IpAddr) -> Mss {
    let headers = if dst.is_ipv4() { 20 + 20 } else { 40 + 20 };
    Mss::clamped(mtu.bytes() - headers)
}

/// A connection's segment as a frame that begins with its TCP header.
#[inline(always)]
fn build<D>(conn: &Conn, way: &TcpWay, out: &SegmentOut, common: &mut Common<D>) -> Option<Frame> {
    let len = out.payload_len();
    let mut frame = common.pools.take(len)?;
    if len > 0 {
        let copied = conn.stream.send.copy_at(out.payload.start, frame.append(len));
        debug_assert_eq!(copied, len, "unacknowledged text stays in the ring");
    }
    let [local, remote] = conn.stream.shared().ports();
    let header_bytes = way.prepend((Port(local), Port(remote)), &mut frame, out);
    if out.segment_bytes > 0 && len > usize::from(out.segment_bytes) {
        let kind = if way.is_v4 { SegmentKind::TcpV4 } else { SegmentKind::TcpV6 };
        let ecn = out.flags.contains(TcpFlags::CWR);
        let segment_bytes = out.segment_bytes;
        frame.meta_mut().segmentation = Some(Segmentation { kind, segment_bytes, header_bytes, ecn });
    }
    Some(frame)
}

/// What a TCP header has to know of the packets that it goes in.
struct TcpWay {
    is_v4: bool,
    /// The sum of the pseudo-header without the length.
    pseudo: Sum,
}

impl TcpWay {
    fn of(egress: &Egress) -> Self {
        let pseudo = Sum::pseudo(egress.src, egress.dst, IpProtocol::TCP, 0);
        Self { is_v4: egress.dst.is_ipv4(), pseudo }
    }

    /// Puts the header before the text; its length.
    #[inline]
    fn prepend(&self, (src_port, dst_port): (Port, Port), frame: &mut Frame, out: &SegmentOut) -> u16 {
        let repr = TcpRepr {
            src_port,
            dst_port,
            seq: out.seq,
            ack: out.ack,
            flags: out.flags,
            window: out.window,
            urgent: out.urgent,
            options: out.options,
        };
        let header_bytes = repr.emitted_len();
        let header = frame.prepend(header_bytes);
        repr.emit(header);
        let pseudo = self.pseudo.add_u32(frame.len() as u32);
        tcp::fill_partial(frame.as_mut_slice(), pseudo);
        let offset = tcp::CHECKSUM_OFFSET as u8;
        frame.meta_mut().checksum = Checksum::Partial { start: 0, offset };
        header_bytes as u16
    }
}
