//! What datagram sockets send: from a socket's queue to IP.
//!
//! Called by `mod.rs` with kicks and in every round. A record of several datagrams goes as one frame to where it is cut:
//! in the device, before it, or nowhere if its receiver lives in this process. What a limit does not admit waits in the
//! queue, and of such a record the datagrams that it does admit go before the others. All wait there while other lanes have too many of this
//! one's frames yet to take, as frames do in devices then (`poll.rs`): programs that send faster than those lanes work are kept back by
//! their own queues. What cannot be sent is counted, and its program is told at its next call (RFC 1122 §4.1.3.3, §4.1.4).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use firelane_classify::Tuple;
use firelane_flow::{Conversation, Credit};
use firelane_frame::{Envelope, Frame, SEGMENTS_MAX, SegmentKind, Segmentation};
use firelane_ip::{Egress, ErrorKind, LOOPBACK, RouteError, Upper};
use firelane_socket::{Flags, Ready, SocketError, Torn};
use firelane_udp::{ChecksumWork, append_payload, encode};
use firelane_units::{Bytes, Direction, DropReason, Instant, Port, SocketId};
use firelane_wire::{Ecn, IpProtocol, Ipv4View, Ipv6View, UdpView};

use super::datagrams::{DatagramSocket, PacketOptions, Way};
use super::echoes;
use super::inbound::Inside;
use super::limited::{Cause, LOOKS_AGAIN};
use super::next_hop::Hop;
use super::shard::Shard;
use crate::datagram_info::WaitsFor;
use crate::links::{Links, conversation_of};
use crate::message::{DatagramKind, Fault};
use crate::sent::Asked;
use crate::steps::Step;

/// How many records one socket may send before the next one has its turn.
const RECORDS_PER_TURN: usize = 32;

/// How much text the sockets of all netstacks may send in a round, as much each: with many of them, or large records, one keeps others
/// waiting as long as a connection does ([`super::turns`]).
pub(super) const TURN: usize = 128 << 10;

/// What a record costs beside its text: as much text is copied in about that time.
const RECORD_COST: usize = 2 << 10;

/// What it costs to ask a limit in vain.
const ASK_COST: usize = 256;

/// How many shares leave at once before something about their socket is changed: as much as it can queue, unless datagrams are tiny.
const SHARES_BEFORE: usize = 16;

/// What a limit counts of a packet besides: the Ethernet header with a tag.
const LINK_HEADER: u64 = 18;

/// How a socket's turn to send ended.
enum Pause {
    Empty,
    /// There is more, for the next turn.
    Again,
    Until(Cause, Instant),
}

/// Why a record was not sent.
enum Unsent {
    /// Not before that time.
    Until(Cause, Instant),
    /// Its next hop does not answer, or nobody can hear it, of which the program of this end is told.
    InVain(SocketAddr, ErrorKind),
    /// It cannot be, which the program is told.
    Never(SocketError),
}

impl From<SocketError> for Unsent {
    fn from(error: SocketError) -> Self {
        Self::Never(error)
    }
}

/// What of a record has left.
struct Left {
    len: usize,
    /// How many copies a switch may make of it.
    copies: usize,
}

/// One record on its way, or as much of it as goes now.
struct Letter {
    envelope: Envelope,
    len: usize,
    local: SocketAddr,
    upper: Upper,
}

impl<D> Inside<'_, D> {
    /// The application queued datagrams.
    pub(crate) fn kick_datagrams(&mut self, socket: SocketId) {
        if let Some(place) = self.shard.datagrams.get_mut(socket.0) {
            place.slot.shared().words().unkick();
            let has_storage = place.slot.send.attach();
            if !place.is_dirty {
                place.is_dirty = true;
                self.shard.dirty_datagrams.push(place.options.band, socket);
            }
            if has_storage {
                self.tell_datagrams(socket, Ready::WRITABLE);
            }
        }
    }

    /// Lets the sockets that have something to send at this moment send their shares, of what is `left` of the round for this netstack, if
    /// other lanes have not too much yet to take. Whether there is more, for its next one.
    pub(crate) fn transmit_datagrams(&mut self, links: &Links<D>, left: usize) -> bool {
        self.shard.hear_of_next_hops(self.common.now);
        let Shard { limited_datagrams, dirty_datagrams, datagrams, .. } = &mut *self.shard;
        let mut each = |socket: SocketId, ticket| {
            // One that was called meanwhile has had its turn, and may stand somewhere else.
            let its = datagrams.get_mut(socket.0).filter(|place| place.in_line == Some(ticket));
            if let Some(place) = its {
                place.in_line = None;
                dirty_datagrams.push(place.options.band, socket);
            }
        };
        limited_datagrams.wake(self.common.now, &mut each, |limits| links.sent.note_asked(limits));
        // Whoever takes them calls the lane then, and nothing else is to wait behind more: a connection that begins, least of all.
        let is_kept_back = self.shard.dirty_datagrams.len() > 0 && self.common.is_ahead();
        !is_kept_back && self.send_shares(links, left)
    }

    /// The same, however much others have yet to take: the last words of a netstack that ends.
    pub(super) fn send_shares(&mut self, links: &Links<D>, mut left: usize) -> bool {
        let mut more = false;
        for _ in 0..self.shard.dirty_datagrams.len() {
            if left == 0 {
                return true;
            }
            let Some(socket) = self.shard.dirty_datagrams.pop() else { break };
            let pause = self.send_datagrams(socket, links, &mut left);
            more |= matches!(pause, Pause::Again);
            match pause {
                Pause::Again => {
                    self.shard.dirty_datagrams.push(self.shard.band_of(socket), socket);
                }
                Pause::Until(cause, at) => {
                    self.wait_to_send(socket, cause, at);
                    // Asking costs something, and many may.
                    self.conns.add_sent(ASK_COST);
                    left = left.saturating_sub(ASK_COST);
                }
                Pause::Empty => self.rest_datagrams(socket),
            }
        }
        more
    }

    /// Something about a socket is to change: what was sent before that goes first, as it is, but for what a limit holds back.
    pub(crate) fn transmit_before(&mut self, socket: SocketId, links: &Links<D>) {
        // The lane may not have heard of it as yet.
        self.kick_datagrams(socket);
        for _ in 0..SHARES_BEFORE {
            // It stays where it waits for its turn, and will find nothing left, or more.
            if !matches!(self.send_datagrams(socket, links, &mut { TURN }), Pause::Again) {
                break;
            }
        }
    }

    /// A socket's first record waits.
    fn wait_to_send(&mut self, socket: SocketId, cause: Cause, at: Instant) {
        let now = self.common.now;
        let Some(place) = self.shard.datagrams.get_mut(socket.0) else { return };
        // A limit at which it would wait for ever does not keep the memory of a program that is gone.
        if place.given_up_at <= now {
            self.shard.drops.count(DropReason::FlowLimit);
            return self.rest_datagrams(socket);
        }
        let is_given_up = place.given_up_at != Instant::FAR_FUTURE;
        let cause = if is_given_up { Cause::Own } else { cause };
        let (cause, at) = cause.at_latest(at, (now + LOOKS_AGAIN).min(place.given_up_at));
        let ticket = self.common.tickets.of(&mut place.ticket);
        place.in_line = Some(ticket);
        self.shard.limited_datagrams.put((cause, at), place.options.band, ticket, socket);
    }

    /// How a socket is to send is something else now: if it waits, what it waits for is asked anew.
    pub(super) fn call_datagrams(&mut self, socket: SocketId) {
        let Shard { limited_datagrams, dirty_datagrams, datagrams, .. } = &mut *self.shard;
        let Some(place) = datagrams.get_mut(socket.0) else { return };
        if place.in_line.take().is_none() {
            return;
        }
        // The place where it stood is known by the ticket, so it needs another one.
        place.ticket = None;
        dirty_datagrams.push(place.options.band, socket);
        limited_datagrams.note_gone(|socket, ticket| {
            datagrams.get(socket.0).is_some_and(|place| place.in_line == Some(ticket))
        });
    }

    /// A socket has nothing left to send; a closed one goes.
    fn rest_datagrams(&mut self, socket: SocketId) {
        let Some(place) = self.shard.datagrams.get_mut(socket.0) else { return };
        (place.is_dirty, place.awaits, place.most_queued) = (false, None, 0);
        if place.slot.shared().words().flags().contains(Flags::CLOSED) {
            self.shard.datagrams.remove(socket.0);
            return;
        }
        self.tell_datagrams(socket, Ready::WRITABLE);
    }

    /// One socket's share, of what is `left` of its netstack's turn. Its program is told when half of what it had queued has left
    /// (`sock_writeable` of Linux): it fills the queue again while the other half leaves, and is not called for each datagram.
    fn send_datagrams(&mut self, socket: SocketId, links: &Links<D>, left: &mut usize) -> Pause {
        if let Some(place) = self.shard.datagrams.get_mut(socket.0) {
            place.most_queued = place.most_queued.max(place.slot.send.queued());
        }
        let pause = self.send_share_of_datagrams(socket, links, left);
        // Who has nothing left is told of that.
        if !matches!(pause, Pause::Empty)
            && let Some(place) = self.shard.datagrams.get_mut(socket.0)
        {
            let queued = place.slot.send.queued();
            if queued <= place.most_queued / 2 {
                place.most_queued = queued;
                self.tell_datagrams(socket, Ready::WRITABLE);
            }
        }
        pause
    }

    fn send_share_of_datagrams(&mut self, socket: SocketId, links: &Links<D>, left: &mut usize) -> Pause {
        for _ in 0..RECORDS_PER_TURN {
            if *left == 0 {
                return Pause::Again;
            }
            let Some(place) = self.shard.datagrams.get_mut(socket.0) else { return Pause::Empty };
            let (envelope, len) = match place.slot.send.first() {
                Ok(Some(first)) => first,
                Ok(None) if place.slot.send.has_lied() => return self.disown_datagrams(socket),
                Ok(None) => return Pause::Empty,
                Err(Torn) => return self.disown_datagrams(socket),
            };
            let send = |it: &mut Self| it.send_record(socket, (envelope, len), links);
            let mut gone = Left { len, copies: 0 };
            match self.step(Step::Udp, Direction::Out, 0, send) {
                Ok(part) => gone = part,
                Err(Unsent::Until(cause, at)) => return Pause::Until(cause, at),
                Err(Unsent::InVain(local, kind)) => {
                    self.give_up_record(socket, (&envelope, len), local, kind);
                }
                Err(Unsent::Never(error)) => self.cannot_send(socket, error, &envelope, len),
            }
            let sent = gone.len + RECORD_COST * (1 + gone.copies);
            self.conns.add_sent(sent);
            *left = left.saturating_sub(sent);
            if let Some(place) = self.shard.datagrams.get_mut(socket.0) {
                match gone.len < len {
                    true => place.slot.send.take_part(gone.len),
                    false => place.slot.send.skip(len),
                }
            }
        }
        Pause::Again
    }

    /// The program, another process, has written what cannot be: nothing more is believed of it.
    #[cold]
    fn disown_datagrams(&mut self, socket: SocketId) -> Pause {
        let Some(place) = self.shard.datagrams.get_mut(socket.0) else { return Pause::Empty };
        place.slot.send.clear();
        if !place.slot.shared().words().flags().contains(Flags::CLOSED) {
            self.common.counters.shm_lies += 1;
            place.fail(SocketError::Aborted);
            place.slot.shared().words().set_flags(Flags::CLOSED);
            let kind = place.kind;
            self.shard.datagram_table(kind).unbind(socket);
            self.tell_datagrams(socket, Ready::ALL);
        }
        Pause::Empty
    }

    /// Sends a socket's first record, or what of it the limits admit now, to all that it is for.
    fn send_record(
        &mut self,
        socket: SocketId,
        (mut envelope, whole): (Envelope, usize),
        links: &Links<D>,
    ) -> Result<Left, Unsent> {
        envelope.peer.set_ip(envelope.peer.ip().to_canonical());
        let Way { mut egress, local, flow_label } = self.way_to_somebody(socket, &envelope)?;
        let place = self.shard.datagrams.get(socket.0).ok_or(SocketError::Aborted)?;
        if let Some(until) = place.pace.not_before(self.common.now) {
            return Err(Unsent::Until(Cause::Own, until));
        }
        // All of it is looked at before a part leaves.
        check_segments(&envelope, whole, &egress)?;
        // Flows know ports, which an echo has none of: it waits on the link side, if a limit holds it.
        let (len, asked) = match place.kind {
            DatagramKind::Udp => {
                let tos = tos_of(place.options.packets(egress.dst), &envelope);
                self.ask_limits((&envelope, whole, tos), &egress, local, links)?
            }
            DatagramKind::Echo => (whole, None),
        };
        self.pass_next_hop(socket, (&envelope, len), (&egress, local), asked.is_some())?;
        let place = self.shard.datagrams.get(socket.0).ok_or(SocketError::Aborted)?;
        let options = place.options;
        if egress.is_broadcast() && !options.broadcast {
            return Err(SocketError::BroadcastDenied.into());
        }
        let is_multicast = egress.dst.is_multicast();
        let packets = options.packets(egress.dst);
        let mut upper = Upper { flow_label, ..upper(packets, &envelope, is_multicast) };
        if place.kind == DatagramKind::Echo {
            upper.protocol = echoes::protocol(egress.dst);
        }
        let letter = Letter { envelope, len, local, upper };
        let goes_out = egress.link != LOOPBACK;
        let is_heard_here = || self.shard.ip.core.is_member(egress.link, egress.dst);
        // A broadcast is for this host as well, as in Linux; who has no address yet asks others for one.
        let is_everybodys = egress.is_broadcast() && !egress.src.is_unspecified();
        if goes_out && (is_multicast && packets.multicast_loop && is_heard_here() || is_everybodys) {
            self.send_copy(socket, &letter, &mut egress.looped())?;
        }
        // RFC 1122 §3.2.1.7: without hops it goes to nobody else.
        if goes_out && letter.upper.hops == Some(0) {
            self.count_sent(socket, &letter, egress.dst);
            return Ok(Left { len, copies: 0 });
        }
        self.send_copy(socket, &letter, &mut egress)?;
        self.count_sent(socket, &letter, egress.dst);
        // What could not be sent is never charged, and nothing waits for it.
        if let Some((asked, bytes)) = asked {
            links.sent.note(asked, bytes);
        }
        if let Some(place) = self.shard.datagrams.get_mut(socket.0) {
            (place.ticket, place.awaits) = (None, None);
            place.pace.passed(self.common.now, octets_of(&letter.envelope, letter.len, &egress));
        }
        let is_copied = goes_out && (is_multicast || is_everybodys);
        Ok(Left { len, copies: if is_copied { links.neighbours(egress.link) } else { 0 } })
    }

    /// Whether a record may leave, or wait where frames do for its next hop's address.
    fn pass_next_hop(
        &mut self,
        socket: SocketId,
        (envelope, len): (&Envelope, usize),
        (egress, local): (&Egress, SocketAddr),
        is_limited: bool,
    ) -> Result<(), Unsent> {
        match self.hop_of(socket, egress, frames_of(envelope, len, egress), is_limited) {
            Hop::Go => Ok(()),
            Hop::StayUntil(until) => Err(Unsent::Until(Cause::NextHop(egress.link, egress.next_hop), until)),
            Hop::GiveUp => Err(Unsent::InVain(local, ErrorKind::HostUnreachable)),
        }
    }

    /// Sends a socket's first record over one way.
    fn send_copy(&mut self, socket: SocketId, letter: &Letter, egress: &mut Egress) -> Result<(), Unsent> {
        let place = self.shard.datagrams.get(socket.0).ok_or(SocketError::Aborted)?;
        let is_echo = place.kind == DatagramKind::Echo;
        let room = letter.len + if is_echo { echoes::header_of(place) } else { 0 };
        let mut frame = self.common.pools.take(room).ok_or(SocketError::NoBuffers)?;
        let is_filled = match is_echo {
            true => echoes::fill(place, (egress.src, egress.dst), letter.len, &mut frame),
            false => fill(place, letter, &mut frame),
        };
        if !is_filled {
            self.common.pools.put(frame);
            return Err(SocketError::MessageTooLong.into());
        }
        match self.shard.ip.send(self.common, egress, frame, letter.upper) {
            Ok(()) => Ok(()),
            Err(DropReason::TooBig) => Err(SocketError::MessageTooLong.into()),
            Err(DropReason::NoRoute) => Err(SocketError::NetworkUnreachable.into()),
            Err(_) => Err(SocketError::NoBuffers.into()),
        }
    }

    /// A record has gone, to however many it is for: a copy that stays in this host is no other one.
    fn count_sent(&mut self, socket: SocketId, letter: &Letter, dst: IpAddr) {
        let place = self.shard.datagrams.get(socket.0);
        match place.is_some_and(|it| it.kind == DatagramKind::Echo) {
            true => self.shard.ip.core.count_echo_sent(dst),
            false => self.shard.udp_counters.sent += letter.envelope.segments(letter.len) as u64,
        }
    }

    /// The same as [`Self::way_of`], unless nobody can be there.
    fn way_to_somebody(&mut self, socket: SocketId, envelope: &Envelope) -> Result<Way, Unsent> {
        let way = self.way_of(socket, envelope)?;
        // An echo has no port.
        let is_udp = |it: &DatagramSocket| it.kind == DatagramKind::Udp;
        let has_port = || self.shard.datagrams.get(socket.0).is_some_and(is_udp);
        match is_for_nobody(envelope, &way.egress) && has_port() {
            true => Err(Unsent::InVain(way.local, ErrorKind::PortUnreachable)),
            false => Ok(way),
        }
    }

    /// The way of a socket's record, and the local name and the label that it carries.
    fn way_of(&mut self, socket: SocketId, envelope: &Envelope) -> Result<Way, SocketError> {
        let place = self.shard.datagrams.get_mut(socket.0).ok_or(SocketError::Aborted)?;
        let port = place.local.port();
        let is_usual = envelope.local.is_none() && envelope.link.is_none();
        if let Some((last, way)) = &place.route
            && is_usual
            && *last == envelope.peer
            && self.shard.ip.core.is_current(&way.egress)
        {
            return Ok(*way);
        }
        let chosen = envelope.local.map(|local| local.to_canonical());
        // What waits for broadcasts has no address of its own to send from.
        let own = place.src().filter(|&ip| !self.shard.ip.core.is_broadcast(ip));
        let (dst, ip) = (envelope.peer.ip(), &mut self.shard.ip.core);
        // Who names no address, and says so, leaves it to the way.
        let src = chosen.or(own).filter(|ip| !ip.is_unspecified()).or_else(|| place.source_to(dst));
        if dst.is_ipv4() && place.is_v6_only() {
            return Err(SocketError::NetworkUnreachable);
        }
        let link = envelope.link.or(place.link).or(place.options.packets(dst).multicast_link);
        // What is for this netstack stays in it, wherever the question came by.
        // As in Linux, in IPv6 it is no more than a wish where the source is said.
        let is_wish = dst.is_ipv6() && src.is_some() && place.link.is_none();
        let is_kept = |&link: &_| !ip.is_local(dst) && (!is_wish || ip.leads_over(link, src, dst));
        let named = envelope.link.filter(is_kept);
        let egress = match place.link_to(dst, named) {
            Some(link) if link != LOOPBACK && src.is_none() && dst == Ipv4Addr::BROADCAST => {
                // Who has no address asks for one so.
                match ip.own_towards(link, dst) {
                    Some(own) => ip.egress_over(self.common.now, link, Some(own.into()), dst),
                    None => ip.egress_without_source(link),
                }
            }
            Some(link) => ip.egress_over(self.common.now, link, src, dst),
            None => ip.egress_by(self.common.now, link, src, dst),
        };
        let mut egress = egress.map_err(|error| way_error(error, dst))?;
        if let Some(most) = place.options.packet_max.filter(|_| egress.dst.is_ipv6()) {
            egress.mtu = egress.mtu.min(most);
        }
        let local = SocketAddr::new(egress.src, port);
        let flow_label = match place.kind {
            DatagramKind::Udp => {
                ip.flow_label(IpProtocol::UDP, local, SocketAddr::new(egress.dst, envelope.peer.port()))
            }
            DatagramKind::Echo => 0,
        };
        let way = Way { egress, local, flow_label };
        if is_usual {
            place.route = Some((envelope.peer, way));
        }
        Ok(way)
    }

    /// Asks the limits that have a say on a record. How much of it may leave, which have let that pass, and with how much on the wire.
    fn ask_limits(
        &self,
        (envelope, len, tos): (&Envelope, usize, u8),
        egress: &Egress,
        local: SocketAddr,
        links: &Links<D>,
    ) -> Result<(usize, Option<(Asked, Bytes)>), Unsent> {
        let end = |a: SocketAddr| (a.ip(), Port(a.port()));
        let tuple = || Tuple::new(IpProtocol::UDP, end(local), end(envelope.peer));
        let Some(tuple) = links.flows.has_limits().then(tuple).flatten() else {
            return Ok((len, None));
        };
        // Pieces of a packet are of a conversation without ports.
        let is_whole = envelope.segments(len) > 1
            || octets_of(envelope, len, egress) <= Bytes(u64::from(egress.mtu.bytes()));
        let speaker = Some(match is_whole {
            true => conversation_of(&tuple),
            false => Conversation::in_pieces(tuple.protocol(), tuple.local(), tuple.remote()),
        });
        let asked = Asked { flows: self.shard.flows_of(links, egress, &tuple, tos), speaker };
        let later = |until| Unsent::Until(Cause::Limits(asked.flows), until);
        let most = match links.credit(self.common, asked) {
            Credit::At(until) => return Err(later(until)),
            Credit::Unlimited => return Ok((len, None)),
            Credit::Bytes(most) => most,
        };
        let len = fitting(envelope, len, egress, most);
        let bytes = on_wire(envelope, len, egress);
        // One goes whatever its size, and behind others what there is room for.
        if bytes > most && links.sent.has_any(asked) {
            return Err(later(self.common.now));
        }
        Ok((len, Some((asked, bytes))))
    }

    fn cannot_send(&mut self, socket: SocketId, error: SocketError, envelope: &Envelope, len: usize) {
        if let Some(place) = self.shard.datagrams.get(socket.0) {
            place.fail(error);
            let to = SocketAddr::new(envelope.peer.ip().to_canonical(), envelope.peer.port());
            if error == SocketError::MessageTooLong
                && place.hears_faults(to.ip())
                && let Ok(Way { egress, .. }) = self.way_of(socket, &Envelope { peer: to, ..*envelope })
            {
                self.tell_fault(socket, Fault::TooLong { to, mtu: egress.mtu });
            }
        }
        self.shard.udp_counters.unsendable += envelope.segments(len) as u64;
        self.tell_datagrams(socket, Ready::ALL);
    }
}

/// Whether a datagram is for port 0 of this netstack, which nobody has; another host may say so of its own.
fn is_for_nobody(envelope: &Envelope, egress: &Egress) -> bool {
    envelope.peer.port() == 0 && egress.link == LOOPBACK && !egress.dst.is_multicast()
}

/// Why there is no way. As in Linux no network can be reached over IPv4 from what is no address of this host.
const fn way_error(error: RouteError, dst: IpAddr) -> SocketError {
    match (error, dst) {
        (RouteError::SourceNotOurs, IpAddr::V4(_)) => SocketError::NetworkUnreachable,
        _ => super::route_error(error),
    }
}

/// Whether a record may be cut as its program wants: it knows how much the way carries, so nothing is fragmented.
fn check_segments(envelope: &Envelope, len: usize, egress: &Egress) -> Result<(), SocketError> {
    if envelope.segments(len) == 1 {
        return Ok(());
    }
    let header = if egress.dst.is_ipv4() { Ipv4View::HEADER_LEN } else { Ipv6View::HEADER_LEN };
    let packet = header + UdpView::HEADER_LEN + usize::from(envelope.segment);
    let is_too_long = envelope.segments(len) > SEGMENTS_MAX || packet > usize::from(egress.mtu.bytes());
    if is_too_long { Err(SocketError::MessageTooLong) } else { Ok(()) }
}

/// What a record is in packets, with their headers.
fn octets_of(envelope: &Envelope, len: usize, egress: &Egress) -> Bytes {
    let header = if egress.dst.is_ipv4() { Ipv4View::HEADER_LEN } else { Ipv6View::HEADER_LEN };
    let packets = envelope.segments(len);
    Bytes((len + packets * (header + UdpView::HEADER_LEN)) as u64)
}

/// What a limit counts of it.
fn on_wire(envelope: &Envelope, len: usize, egress: &Egress) -> Bytes {
    octets_of(envelope, len, egress) + Bytes(envelope.segments(len) as u64 * LINK_HEADER)
}

/// How much of a record goes into so much on the wire: as many of its datagrams as fit, one at least.
fn fitting(envelope: &Envelope, len: usize, egress: &Egress, most: Bytes) -> usize {
    let datagram = usize::from(envelope.segment);
    if envelope.segments(len) == 1 {
        return len;
    }
    let count = (most.0 / on_wire(envelope, datagram, egress).0).max(1);
    usize::try_from(count).map_or(len, |count| count.saturating_mul(datagram).min(len))
}

/// How many frames leave here: what is cut into datagrams is one, a datagram that is cut into pieces several.
fn frames_of(envelope: &Envelope, len: usize, egress: &Egress) -> usize {
    match envelope.segments(len) {
        1 => octets_of(envelope, len, egress).0.div_ceil(u64::from(egress.mtu.bytes())) as usize,
        _ => 1,
    }
}

/// The traffic class of a record's packets.
fn tos_of(options: &PacketOptions, envelope: &Envelope) -> u8 {
    envelope.tos.unwrap_or(options.tos)
}

/// What IP is told: what stands on the record counts more than what the socket has.
fn upper(options: &PacketOptions, envelope: &Envelope, is_multicast: bool) -> Upper {
    let tos = tos_of(options, envelope);
    let usual = if is_multicast { Some(options.multicast_hops) } else { options.hops.map(|hops| hops.get()) };
    let own = envelope.hops.filter(|&hops| hops != 0 || is_multicast);
    Upper {
        hops: own.or(usual),
        dscp: tos >> 2,
        ecn: Ecn::from_bits(tos),
        dont_fragment: envelope.dont_fragment.unwrap_or(options.dont_fragment),
        ..Upper::udp()
    }
}

/// Makes the datagram, or the large frame that is cut into several. Whether it can be one.
fn fill(place: &DatagramSocket, letter: &Letter, frame: &mut Frame) -> bool {
    let &Letter { envelope, len, local, .. } = letter;
    let is_cut = envelope.segments(len) > 1;
    let work = match place.slot.send.payload(len) {
        _ if is_cut => {
            place.slot.send.copy_payload(frame.append(len));
            // The sum is the device's, or made for each where they are cut.
            ChecksumWork::Egress { headers: 0 }
        }
        Some((first, second)) => ChecksumWork::Payload(append_payload(frame, first, second)),
        None => {
            place.slot.send.copy_payload(frame.append(len));
            ChecksumWork::Compute
        }
    };
    if encode(frame, local, envelope.peer, work).is_err() {
        return false;
    }
    if is_cut {
        frame.meta_mut().segmentation = Some(Segmentation {
            kind: SegmentKind::Udp,
            segment_bytes: envelope.segment,
            header_bytes: UdpView::HEADER_LEN as u16,
            ecn: false,
        });
    }
    true
}

impl DatagramSocket {
    /// To whom it has sent last, if the record said nothing unusual.
    pub(super) fn last_peer(&self) -> Option<SocketAddr> {
        self.route.as_ref().map(|(peer, _)| *peer)
    }

    /// The way by which its last datagram left, between whom it was, and how its packets are marked; echoes have no ports and are in no flow.
    pub(super) fn last_way(&self) -> Option<(&Egress, Tuple, u8)> {
        let (peer, way) = self.route.as_ref().filter(|_| self.kind == DatagramKind::Udp)?;
        let [own, other] = [way.local, *peer].map(|end| (end.ip(), Port(end.port())));
        let tuple = Tuple::new(IpProtocol::UDP, own, other)?;
        Some((&way.egress, tuple, self.options.packets(way.egress.dst).tos))
    }

    /// What its first record waits for, if one waits.
    pub(super) fn waits_for(&self, now: Instant) -> Option<WaitsFor> {
        // Who waits has a place in line.
        self.ticket.filter(|_| self.is_dirty)?;
        Some(match self.awaits {
            Some((_, next_hop)) => WaitsFor::NextHop(next_hop),
            None if self.pace.not_before(now).is_some() => WaitsFor::Pace,
            None => WaitsFor::Limit,
        })
    }

    /// The source that its datagrams have, unless it is left to the way.
    fn src(&self) -> Option<IpAddr> {
        Some(self.local.ip()).filter(|ip| !ip.is_unspecified() && !ip.is_multicast())
    }
}
