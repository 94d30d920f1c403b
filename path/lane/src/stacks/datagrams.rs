//! Datagram sockets of a shard: from a packet to a socket's queue, and from its queue to IP.
//!
//! A socket lives in the lane that its local port steers to, so its queues have one lane's side. What does not
//! fit a receive queue is dropped and counted; what a limit does not admit waits in the send queue.

use core::net::{Ipv4Addr, SocketAddr};

use firelane_classify::Tuple;
use firelane_flow::Credit;
use firelane_frame::Frame;
use firelane_ip::{Delivered, Egress, Member, Upper};
use firelane_socket::{DatagramSlot, Flags, Ready, SocketError};
use firelane_udp::{Binding, ChecksumWork, Datagram, append_payload, encode, free_port, receive};
use firelane_units::{DropReason, Instant, LinkId, Port, SocketId};
use firelane_wire::IpProtocol;

use super::inbound::Inside;
use super::shard::Shard;
use crate::common::Common;
use crate::links::Links;
use crate::message::{Bind, DatagramOption};
use crate::steer::datagram_lane;

/// How many datagrams one socket may send before the next one has its turn.
const DATAGRAMS_PER_TURN: usize = 32;

/// A datagram socket.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    slot: DatagramSlot,
    /// The way to the peer that was sent to last.
    route: Option<(SocketAddr, Egress)>,
    /// The only link that it speaks over.
    link: Option<LinkId>,
    options: DatagramOptions,
    /// It has something to send and stands in the list of those that do.
    is_dirty: bool,
}

/// How a socket's datagrams to many are sent.
#[derive(Clone, Copy, Debug)]
struct DatagramOptions {
    multicast_hops: u8,
    multicast_loop: bool,
    multicast_link: Option<LinkId>,
    broadcast: bool,
}

impl Default for DatagramOptions {
    /// RFC 1112 §6.1, RFC 3493 §5.2.
    fn default() -> Self {
        Self { multicast_hops: 1, multicast_loop: true, multicast_link: None, broadcast: false }
    }
}

impl Shard {
    /// The netstack ends: whoever waits at a socket is told.
    pub(crate) fn fail_datagrams<D>(&mut self, common: &mut Common<D>) {
        for place in self.datagrams.iter() {
            let token = fail(&place.slot, SocketError::Aborted);
            common.outbox.tell(token, Ready::ALL);
        }
    }
}

impl DatagramSocket {
    /// What it is bound to.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.slot.shared().local()
    }

    /// Something that the program is told at its next call.
    pub(crate) fn fail(&self, error: SocketError) {
        self.slot.shared().words().fail(error);
    }
}

/// How a socket's turn to send ended.
enum Pause {
    Empty,
    Again,
    Until(Instant),
}

impl<D> Inside<'_, D> {
    /// Opens a socket.
    pub(crate) fn bind(&mut self, bind: Bind) {
        let Bind { socket, local, v6_only, remote, link, slot } = bind;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        match self.bind_at(socket, (local, v6_only), remote, link) {
            Ok(local) => {
                slot.shared().bind(local);
                let route = None;
                let options = DatagramOptions::default();
                let place = DatagramSocket { slot, route, link, options, is_dirty: false };
                if let Err(refused) = self.shard.datagrams.insert(socket.index(), place) {
                    self.shard.udp.unbind(socket);
                    fail(&refused.slot, SocketError::AddressInUse);
                } else {
                    self.tell_datagrams(socket, Ready::WRITABLE);
                }
            }
            Err(error) => {
                let token = fail(&slot, error);
                self.common.outbox.tell(token, Ready::ALL);
            }
        }
    }

    fn bind_at(
        &mut self,
        socket: SocketId,
        (local, v6_only): (SocketAddr, bool),
        remote: Option<SocketAddr>,
        link: Option<LinkId>,
    ) -> Result<SocketAddr, SocketError> {
        let mut local = local;
        if let Some(remote) = remote
            && local.ip().is_unspecified()
        {
            let egress =
                self.shard.ip.core.egress_by(self.common.now, link, None, remote.ip().to_canonical());
            local.set_ip(egress.map_err(super::route_error)?.src);
        }
        let mut binding = Binding::new(local, v6_only).on_link(link);
        if let Some(remote) = remote {
            binding = binding.connected(remote).map_err(|_| SocketError::AddressNotAvailable)?;
        }
        if local.port() == 0 {
            let port = self.free_datagram_port(&binding).ok_or(SocketError::NoPort)?;
            binding = binding.at_port(port);
            local.set_port(port.0);
        }
        self.shard.udp.bind(socket, binding).map_err(|_| SocketError::AddressInUse)?;
        Ok(local)
    }

    /// A port that is free and whose datagrams arrive in this lane.
    fn free_datagram_port(&mut self, binding: &Binding) -> Option<Port> {
        let shard = &mut *self.shard;
        shard.port_counter = shard.port_counter.wrapping_add(1);
        let random = mix(self.common.secrets.ports() ^ u64::from(shard.port_counter) << 32);
        let key = self.common.secrets.steering();
        let (steering, me) = (&shard.config.steering, self.common.id);
        free_port(&shard.udp, binding, &shard.config.udp_ports, random, |port| {
            datagram_lane(port, steering, &key) == me
        })
    }

    /// The program closed a socket. What it had queued goes first.
    pub(crate) fn close_datagrams(&mut self, socket: SocketId) {
        self.shard.udp.unbind(socket);
        if let Some(place) = self.shard.datagrams.get_mut(socket.index()) {
            place.slot.shared().words().set_flags(Flags::CLOSED);
        }
        self.kick_datagrams(socket);
    }

    /// A datagram arrived.
    pub(crate) fn datagram(&mut self, packet: Delivered) {
        let Delivered { src, dst, .. } = packet;
        let datagram = match receive(&packet.frame, src, dst, packet.payload.clone()) {
            Ok(datagram) => datagram,
            Err(reason) => return self.drop_frame(packet.frame, reason),
        };
        let local = SocketAddr::new(dst, datagram.dst_port.0);
        let remote = SocketAddr::new(src, datagram.src_port.0);
        if packet.is_broadcast_or_multicast {
            return self.datagram_to_many(packet, local, remote, &datagram);
        }
        let Some(socket) = self.shard.udp.lookup(packet.link, local, remote) else {
            self.shard.ip.core.unreachable_port(self.common.now, &packet, &mut self.common.pools);
            self.shard.ip.touch();
            return self.drop_frame(packet.frame, DropReason::NoSocket);
        };
        let place = self.shard.datagrams.get_mut(socket.index()).expect("bound sockets have a place");
        let Delivered { frame, .. } = packet;
        let mut is_full = false;
        for piece in datagram.pieces() {
            is_full |= !place.slot.recv.push(remote, &frame.as_slice()[piece]);
        }
        self.tell_datagrams(socket, Ready::READABLE);
        match is_full {
            true => self.drop_frame(frame, DropReason::BufferFull),
            false => self.take_datagram(frame),
        }
    }

    /// A datagram has reached whoever it is for.
    fn take_datagram(&mut self, frame: Frame) {
        self.shard.udp_counters.received += 1;
        self.common.deliver(frame);
    }

    /// A datagram to a group or to everybody: for each socket at the port that hears it (RFC 1122 §4.1.3.5). We
    /// differ from Linux: a socket hears the groups that it joined itself, not those of others.
    fn datagram_to_many(
        &mut self,
        packet: Delivered,
        local: SocketAddr,
        remote: SocketAddr,
        datagram: &Datagram,
    ) {
        let Delivered { frame, src, dst, link, .. } = packet;
        let mut listeners = core::mem::take(&mut self.shard.listeners_of_many);
        listeners.extend(self.shard.udp.lookup_all(link, local, remote));
        listeners.retain(|socket| {
            !dst.is_multicast() || self.shard.ip.core.hears_group(Member::Socket(socket.0), link, dst, src)
        });
        let (is_heard, mut is_full) = (!listeners.is_empty(), false);
        for socket in listeners.drain(..) {
            let place = self.shard.datagrams.get_mut(socket.index()).expect("bound sockets have a place");
            for piece in datagram.pieces() {
                is_full |= !place.slot.recv.push(remote, &frame.as_slice()[piece]);
            }
            self.tell_datagrams(socket, Ready::READABLE);
        }
        self.shard.listeners_of_many = listeners;
        match (is_heard, is_full) {
            (false, _) => self.drop_frame(frame, DropReason::NoSocket),
            (true, true) => self.drop_frame(frame, DropReason::BufferFull),
            (true, false) => self.take_datagram(frame),
        }
    }

    /// The program changes an option.
    pub(crate) fn set_datagram_option(&mut self, socket: SocketId, option: DatagramOption) {
        let Some(place) = self.shard.datagrams.get_mut(socket.index()) else { return };
        match option {
            DatagramOption::MulticastHops(hops) => place.options.multicast_hops = hops,
            DatagramOption::MulticastLoop(on) => place.options.multicast_loop = on,
            DatagramOption::MulticastLink(link) => place.options.multicast_link = link,
            DatagramOption::Broadcast(on) => place.options.broadcast = on,
        }
        place.route = None;
    }

    pub(crate) fn tell_datagrams(&mut self, socket: SocketId, ready: Ready) {
        if let Some(place) = self.shard.datagrams.get(socket.index()) {
            let token = place.slot.tell(ready);
            self.common.outbox.tell(token, ready);
        }
    }

    /// The application queued datagrams.
    pub(crate) fn kick_datagrams(&mut self, socket: SocketId) {
        if let Some(place) = self.shard.datagrams.get_mut(socket.index()) {
            place.slot.shared().words().unkick();
            if !place.is_dirty {
                place.is_dirty = true;
                self.shard.dirty_datagrams.push_back(socket);
            }
        }
    }

    /// Lets every socket that has something to send at this moment send its share.
    pub(crate) fn transmit_datagrams(&mut self, links: &Links<D>) {
        while let Some(&(at, socket)) = self.shard.limited_datagrams.front()
            && at <= self.common.now
        {
            self.shard.limited_datagrams.pop_front();
            self.shard.dirty_datagrams.push_back(socket);
        }
        for _ in 0..self.shard.dirty_datagrams.len() {
            let Some(socket) = self.shard.dirty_datagrams.pop_front() else { return };
            match self.send_datagrams(socket, links) {
                Pause::Again => self.shard.dirty_datagrams.push_back(socket),
                Pause::Until(at) => {
                    let list = &mut self.shard.limited_datagrams;
                    let place = list.partition_point(|&(other, _)| other <= at);
                    list.insert(place, (at, socket));
                }
                Pause::Empty => self.rest_datagrams(socket),
            }
        }
    }

    /// A socket has nothing left to send; a closed one goes.
    fn rest_datagrams(&mut self, socket: SocketId) {
        let Some(place) = self.shard.datagrams.get_mut(socket.index()) else { return };
        place.is_dirty = false;
        if place.slot.shared().words().flags().contains(Flags::CLOSED) {
            self.shard.datagrams.remove(socket.index());
            return;
        }
        self.tell_datagrams(socket, Ready::WRITABLE);
    }

    fn send_datagrams(&mut self, socket: SocketId, links: &Links<D>) -> Pause {
        for _ in 0..DATAGRAMS_PER_TURN {
            let Some(place) = self.shard.datagrams.get(socket.index()) else { return Pause::Empty };
            let Some((peer, len)) = place.slot.send.first() else { return Pause::Empty };
            let sent = self.send_datagram(socket, peer, len, links);
            if let Err(Some(until)) = sent {
                return Pause::Until(until);
            }
            if let Some(place) = self.shard.datagrams.get_mut(socket.index()) {
                place.slot.send.skip(len);
            }
        }
        Pause::Again
    }

    /// Sends a socket's first datagram. `Err` with an instant means that a limit says "not before"; without one,
    /// that it cannot be sent at all, which the program is told.
    fn send_datagram(
        &mut self,
        socket: SocketId,
        peer: SocketAddr,
        len: usize,
        links: &Links<D>,
    ) -> Result<(), Option<Instant>> {
        let (mut egress, local) = match self.way_of(socket, peer) {
            Ok(way) => way,
            Err(error) => return self.cannot_send(socket, error),
        };
        if let Some(until) = self.not_before(&egress, local, peer, links) {
            return Err(Some(until));
        }
        let place = self.shard.datagrams.get(socket.index()).expect("its queue was looked at just above");
        let options = place.options;
        if egress.is_broadcast() && !options.broadcast {
            return self.cannot_send(socket, SocketError::BroadcastDenied);
        }
        let is_multicast = egress.dst.is_multicast();
        let upper = Upper { hops: is_multicast.then_some(options.multicast_hops), ..Upper::udp() };
        if is_multicast && options.multicast_loop && self.shard.ip.core.is_member(egress.link, egress.dst) {
            self.send_copy(socket, (local, peer), len, &mut egress.looped(), upper)?;
            if options.multicast_hops == 0 {
                return Ok(());
            }
        }
        self.send_copy(socket, (local, peer), len, &mut egress, upper)
    }

    /// Sends a socket's first datagram over one way.
    fn send_copy(
        &mut self,
        socket: SocketId,
        (local, peer): (SocketAddr, SocketAddr),
        len: usize,
        egress: &mut Egress,
        upper: Upper,
    ) -> Result<(), Option<Instant>> {
        let Some(mut frame) = self.common.pools.take(len) else {
            return self.cannot_send(socket, SocketError::NoBuffers);
        };
        let place = self.shard.datagrams.get(socket.index()).expect("its queue was looked at just above");
        let (first, second) = place.slot.send.payload(len);
        let sum = append_payload(&mut frame, first, second);
        if encode(&mut frame, local, peer, ChecksumWork::Payload(sum)).is_err() {
            return self.cannot_send(socket, SocketError::MessageTooLong);
        }
        self.shard.udp_counters.sent += 1;
        self.shard.ip.send(self.common, egress, frame, upper);
        Ok(())
    }

    /// The way from a socket to a peer, and the local name that its datagrams carry.
    fn way_of(&mut self, socket: SocketId, peer: SocketAddr) -> Result<(Egress, SocketAddr), SocketError> {
        let binding = self.shard.udp.binding(socket).ok_or(SocketError::Aborted)?;
        let place = self.shard.datagrams.get_mut(socket.index()).ok_or(SocketError::Aborted)?;
        let port = binding.port().0;
        if let Some((last, egress)) = &place.route
            && *last == peer
            && self.shard.ip.core.is_current(egress)
        {
            return Ok((*egress, SocketAddr::new(egress.src, port)));
        }
        let bound = place.slot.shared().local().map(|local| local.ip());
        let src = bound.filter(|ip| !ip.is_unspecified());
        let link = place.link.or(place.options.multicast_link);
        let src = src.filter(|src| !src.is_multicast());
        let (dst, ip) = (peer.ip().to_canonical(), &mut self.shard.ip.core);
        let egress = match place.link {
            Some(link) if src.is_none() && dst == Ipv4Addr::BROADCAST => ip.egress_without_source(link),
            _ => ip.egress_by(self.common.now, link, src, dst),
        };
        let egress = egress.map_err(super::route_error)?;
        place.route = Some((peer, egress));
        Ok((egress, SocketAddr::new(egress.src, port)))
    }

    /// Until when a limit wants a datagram to wait.
    fn not_before(
        &self,
        egress: &Egress,
        local: SocketAddr,
        peer: SocketAddr,
        links: &Links<D>,
    ) -> Option<Instant> {
        let end = |a: SocketAddr| (a.ip().to_canonical(), Port(a.port()));
        let tuple = Tuple::new(IpProtocol::UDP, end(local), end(peer))?;
        match links.credit(self.common, links.flow_out(egress.link, &tuple)?) {
            Credit::Unlimited | Credit::Bytes(_) => None,
            Credit::At(until) => Some(until),
        }
    }

    fn cannot_send(&mut self, socket: SocketId, error: SocketError) -> Result<(), Option<Instant>> {
        if let Some(place) = self.shard.datagrams.get(socket.index()) {
            place.slot.shared().words().fail(error);
        }
        self.shard.udp_counters.unsendable += 1;
        self.tell_datagrams(socket, Ready::ALL);
        Err(None)
    }
}

fn fail(slot: &DatagramSlot, error: SocketError) -> Option<firelane_socket::SocketToken> {
    slot.shared().words().fail(error);
    slot.shared().words().set_flags(Flags::CLOSED);
    slot.tell(Ready::ALL)
}

/// Spreads the bits of a counter and a key over a word.
const fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ word >> 29).wrapping_mul(0xd1b5_4a32_d192_ed03) ^ word >> 32
}
