//! Segments without text between two connections of one netstack in this lane: from the one to the other, without a packet.
//!
//! The handshake, acknowledgments and FINs of connections that will be, are or were fused. Both ends' TCP does what it would
//! do with the packet, in the same order; what is left out is the packet: its headers, its way through IP and the VNICs, and the search
//! for its owner. So it is done only where nobody would see it on that way: the terms are those of fusion (`across.rs`), and nothing may
//! ask packets (filter, translation, a limit, who looks at steps) or count their hops. A segment goes so only if nothing that its sender has sent
//! before can still be on that way. Called by `outbound.rs` for each segment without text; the SYN meets its listener here, too, and costs
//! no entry among half-open connections, because its handshake is over in the same turn.

use core::net::SocketAddr;

use firelane_ip::{Egress, LOOPBACK};
use firelane_socket::Names;
use firelane_tcp::{AtListener, Birth, HalfOpen, NewRing, Opening, SegmentIn, SegmentOut};
use firelane_units::{ConnId, Family, SocketId};

use super::Stacks;
use super::inbound::{Inside, TABLED};
use super::open::room_of;
use crate::links::Links;
use crate::probes;
use crate::steps::StepLists;

impl Stacks {
    /// Whether connections have got segments so since this was last asked: they may have answers.
    pub(crate) fn take_handed_across(&mut self) -> bool {
        core::mem::take(&mut self.conns.handed_across)
    }
}

impl<D> Inside<'_, D> {
    /// Takes a segment without text to the other end of its connection, or to its listener, if that can do without a packet. Whether it
    /// has.
    pub(super) fn hand_across(&mut self, id: ConnId, out: &SegmentOut, links: &Links<D>) -> bool {
        let Some(seg) = out.without_packet() else { return false };
        let Some(names) = self.names_of_direct(id, out, links) else { return false };
        let Some(tuple) = Self::tuple(names.remote, names.local) else { return false };
        match self.lookup(&tuple) {
            Some(peer) if peer != id && self.takes_direct(peer) => {
                self.note_sent_direct(id, out);
                self.take_direct(peer, &seg);
                true
            }
            None if AtListener::of(&seg) == AtListener::Open => {
                self.meet_listener(id, out, &seg, Names { local: names.remote, remote: names.local })
            }
            _ => false,
        }
    }

    /// The ends of a connection whose segments nobody would see on their way to the other one, and none of which is under way.
    fn names_of_direct(&mut self, id: ConnId, out: &SegmentOut, links: &Links<D>) -> Option<Names> {
        let conn = self.conns.slab.get(id)?;
        let may_be_direct = conn.is_local() && conn.least_hops == 0;
        if !may_be_direct || !conn.look(|tcp| tcp.has_acknowledged_before(out)) || self.is_seen(links) {
            return None;
        }
        if !self.has_route(id) {
            return None;
        }
        let conn = self.conns.slab.get(id)?;
        conn.stream.shared().names().filter(|_| conn.is_local())
    }

    /// Whether a packet of the netstack's to itself would pass anybody.
    fn is_seen(&self, links: &Links<D>) -> bool {
        !self.shard.config.fusion.is_on
            || !self.common.taps.is_empty()
            || self.common.watch.is_on()
            || links.unfusing > 0
            || self.shard.gate.is_on()
            || self.shard.config.steering.is_settling()
    }

    /// Whether a connection may get segments that had no packets.
    fn takes_direct(&self, id: ConnId) -> bool {
        self.conns.slab.get(id).is_some_and(|conn| conn.steps == StepLists::TCP && conn.least_hops == 0)
    }

    fn take_direct(&mut self, id: ConnId, seg: &SegmentIn<'_>) {
        self.conns.handed_across = true;
        self.shard.tcp_counters.on_received_direct();
        self.conns.wake_up(id);
        let conn = self.conns.slab.get_mut(id).expect(TABLED);
        probes::tcp_receive_direct(|| conn.tuple(), seg);
        let (tcp, mut rings) = conn.parts();
        let told = tcp.on_segment(self.common.now, seg, &mut rings);
        if let Some(reason) = told.dropped {
            self.shard.drops.count(reason);
        }
        self.conclude(id, told);
    }

    /// A SYN comes to a listener of this lane, and the whole handshake is over, as it would be in three packets. Whether it is: if not,
    /// somebody would ask or refuse a packet, or nobody listens.
    fn meet_listener(&mut self, client: ConnId, out: &SegmentOut, syn: &SegmentIn<'_>, ends: Names) -> bool {
        let Some((socket, egress, birth, room)) = self.opening_of_direct(client, syn, ends) else {
            return false;
        };
        let Names { local, remote } = ends;
        let (now, tuple) = (self.common.now, firelane_tcp::Tuple::new(local, remote));
        let config = &self.shard.config.tcp;
        let opening = Opening {
            tuple,
            listener: socket,
            config,
            birth,
            room,
            reopens: false,
            stateless: false,
            defer: 0,
        };
        let (entry, answer) = HalfOpen::begin(now, &opening, syn);
        let Some(syn_ack) = answer.without_packet() else { return false };
        self.note_sent_direct(client, out);
        self.shard.tcp_counters.on_received_direct();
        self.shard.tcp_counters.on_sent(&answer);
        self.take_direct(client, &syn_ack);
        if !self.complete(client, &entry, ends, egress) {
            self.shard.half_open.enter(now, tuple, entry);
            self.conns.touch(client);
        }
        true
    }

    /// The acknowledgment of a client that has got its SYN-ACK makes the connection of its listener. Whether it has: text beside it
    /// needs a packet, and an arena may be full.
    fn complete(&mut self, client: ConnId, entry: &HalfOpen, ends: Names, route: Egress) -> bool {
        let Some(conn) = self.conns.slab.get_mut(client) else { return false };
        let (tcp, rings) = conn.parts();
        let Some(out) = tcp.poll_ack(self.common.now, &rings) else { return false };
        let Some(ack) = out.without_packet() else { return false };
        self.note_sent_direct(client, &out);
        self.shard.tcp_counters.on_received_direct();
        self.conns.clean(client, self.common.now);
        let dropped = self.promote(entry, &ack, ends, Some(route)).err();
        dropped.into_iter().for_each(|reason| self.shard.drops.count(reason));
        dropped.is_none()
    }

    fn note_sent_direct(&mut self, id: ConnId, out: &SegmentOut) {
        probes::tcp_send(|| self.conns.slab.get(id)?.tuple(), out);
        self.shard.tcp_counters.on_sent(out);
    }

    /// The listener that takes a SYN as it is, the way of its connection, and what that would be born with.
    fn opening_of_direct(
        &mut self,
        client: ConnId,
        syn: &SegmentIn<'_>,
        ends: Names,
    ) -> Option<(SocketId, Egress, Birth, NewRing)> {
        let Names { local, remote } = ends;
        let socket = self.listener_of_direct(syn, local, remote)?;
        let listening = self.shard.listening.get(socket.0)?;
        let (room, link, mss_limit) =
            (room_of(listening), listening.options.link, listening.options.mss_limit);
        // Who speaks with himself goes one way there and back, which `names_of_direct` has found current.
        let clients = self.conns.slab.get(client)?.route().copied();
        let serves = |way: &Egress| (way.src, way.dst, way.bound) == (local.ip(), remote.ip(), link);
        let egress = match clients.filter(serves) {
            Some(egress) => egress,
            None => {
                self.shard.ip.core.egress_for(self.common.now, link, Some(local.ip()), remote.ip()).ok()?
            }
        };
        Some((socket, egress, self.birth(&egress, &ends, None, mss_limit), room))
    }

    /// The listener that takes a SYN as it is.
    fn listener_of_direct(
        &self,
        seg: &SegmentIn<'_>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<SocketId> {
        let asks = seg.options.fast_open().is_some() || !self.shard.socket_filters.is_empty();
        if asks || self.shard.half_open.has(&firelane_tcp::Tuple::new(local, remote)) {
            return None;
        }
        let link = self.shard.link_of_arrival(LOOPBACK, local.ip());
        let (socket, listening) = self.shard.listener(local, remote, link)?;
        let options = &listening.options;
        let takes = options.least_hops[Family::of(remote.ip()).index()] == 0
            && options.defer == 0
            && !self.shard.half_open.wants_cookie(socket, &self.shard.config.tcp)
            && listening.slot.has_room();
        takes.then_some(socket)
    }
}
