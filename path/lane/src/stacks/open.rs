//! How connections begin: a program's connect, or a SYN for a listener.
//!
//! A passive connection is made in the lane where its SYN arrived, which steering has made the right one. An
//! active one has the local port that its program has bound, or draws one whose answers will arrive in this lane
//! (`local_ports.rs`).

use core::net::{IpAddr, SocketAddr};

use firelane_classify::Tuple;
use firelane_ip::{Egress, LOOPBACK};
use firelane_socket::{Flags, Names, Ready, SocketError, StreamConfig, StreamSlot};
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{
    Birth, Connection, FastOpenAnswer, HalfOpen, NewRing, Opening, SegmentIn, TcpConfig, deferred_repeats,
};
use firelane_units::{ConnId, DropReason, Instant, LaneId, LinkId, Mss, NetstackId, Port, SeqNum, SocketId};

use super::Stacks;
use super::conn::Conn;
use super::inbound::{Inside, TABLED};
use super::local_ports::{Beginning, PORTS_AT_ONCE, canonical};
use super::outbound::mss_of;
use super::shard::Listening;
use crate::common::Common;
use crate::message::{Connect, StreamOptions};

impl Stacks {
    /// The way between two stations.
    pub(crate) fn way(&mut self, now: Instant, id: NetstackId, ends: (IpAddr, IpAddr)) -> Option<Egress> {
        let shard = self.shards.get_mut(id)?;
        shard.ip.core.egress(now, Some(ends.0), ends.1).ok()
    }

    /// The link that leads to a group.
    pub(crate) fn group_link(&self, id: NetstackId, group: IpAddr) -> Option<LinkId> {
        self.shards.get(id)?.ip.core.link_to_group(group)
    }

    /// The lane in which the segments of a connection from a bound `local` to `remote` will arrive: the same for all who
    /// ask, once the address from which it will speak is known. `None` without a way there.
    pub(crate) fn lane_of_connect<D>(
        &mut self,
        common: &Common<D>,
        now: Instant,
        id: NetstackId,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Option<LaneId> {
        let shard = self.shards.get_mut(id)?;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let src = match local.ip() {
            ip if ip.is_unspecified() => shard.ip.core.egress(now, None, remote.ip()).ok()?.src,
            ip => ip,
        };
        let tuple = Inside::<D>::tuple(SocketAddr::new(src, local.port()), remote)?;
        Some(shard.lane_of_ends(&tuple, &common.secrets.steering()))
    }
}

impl<D> Inside<'_, D> {
    /// A program's connect.
    pub(super) fn open_active(&mut self, beginning: Beginning) {
        let connect = &beginning.connect;
        let egress = match self.way_of_connect(connect) {
            Ok(egress) => egress,
            Err(error) => return fail(self.common, &connect.stream, error),
        };
        let port = connect.local.map_or(0, |local| local.port());
        if port == 0 {
            let mut room = PORTS_AT_ONCE;
            return self.open_by_drawn_port(beginning, egress, &mut room);
        }
        let (local, remote) = (SocketAddr::new(egress.src, port), canonical(connect.remote));
        let tuple = Self::tuple(local, remote).ok_or(SocketError::NetworkUnreachable);
        let claimed = tuple.and_then(|tuple| {
            let least_iss = self.claim(&tuple, (local, remote), egress.link == LOOPBACK);
            Ok((tuple, least_iss.ok_or(SocketError::AddressInUse)?))
        });
        match claimed {
            Ok((tuple, least_iss)) => self.open_between(beginning, egress, &tuple, least_iss),
            Err(error) => fail(self.common, &beginning.connect.stream, error),
        }
    }

    /// The way of a connection that a program wants, if there is one and somebody could answer.
    pub(super) fn way_of_connect(&mut self, connect: &Connect) -> Result<Egress, SocketError> {
        let remote = canonical(connect.remote);
        let src = connect.local.map(|local| local.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        match self.shard.ip.core.egress_for(self.common.now, connect.options.link, src, remote.ip()) {
            // RFC 9293 MUST-46: nobody connects to a group.
            Ok(egress) if egress.dst_mac.is_some_and(|mac| !mac.is_unicast()) => {
                Err(SocketError::NetworkUnreachable)
            }
            // No segment can be for it, so nobody would answer: what a peer says to whom it does not know.
            Ok(_) if remote.port() == 0 => Err(SocketError::Refused),
            Ok(egress) => Ok(egress),
            Err(error) => Err(super::route_error(error)),
        }
    }

    /// Begins a program's connection between two ends that nobody has, beyond `least_iss` if somebody had them.
    pub(super) fn open_between(
        &mut self,
        beginning: Beginning,
        egress: Egress,
        tuple: &Tuple,
        least_iss: Option<SeqNum>,
    ) {
        let Beginning { connect, first } = beginning;
        let Connect { remote, stream, options, .. } = *connect;
        let remote = canonical(remote);
        let names = Names { local: SocketAddr::new(tuple.local(), tuple.local_port().0), remote };
        let birth = self.birth(&egress, &names, least_iss, options.mss_limit);
        let offer = self.offer_fast_open(&names, &options);
        let (config, now) = (&self.shard.config.tcp, self.common.now);
        let mut tcp = match offer {
            Some(offer) => Connection::open_fast(config, &birth, offer, now),
            None => Connection::open(config, &birth, now),
        };
        set_options(&mut tcp, &options, &self.shard.config.tcp, self.common.now);
        set_congestion(&mut tcp, &options, egress.hint, self.common.now);
        let netstack = self.shard.config.id;
        let mut conn = Conn::new(tcp, stream, netstack, Some(egress), &mut self.conns.spares);
        conn.obey(&options, remote);
        self.shard.tcp_counters.active_opens += 1;
        let id = self.enter(conn, tuple, names);
        self.conns.touch(id);
        if first.is_some() {
            self.close_if_left(id);
        }
    }

    /// A SYN for a listener: it costs an entry of the half-open table, no connection.
    pub(crate) fn on_syn(
        &mut self,
        seg: &SegmentIn<'_>,
        socket: SocketId,
        (local, remote): (SocketAddr, SocketAddr),
        least_iss: Option<SeqNum>,
    ) -> Result<(), DropReason> {
        let now = self.common.now;
        let listening = self.shard.listening.get(socket.0).ok_or(DropReason::NoConnection)?;
        if !listening.slot.has_room() {
            return Err(DropReason::ListenFull);
        }
        let (room, options) = (room_of(listening), listening.options);
        let egress = self.shard.ip.core.egress_for(now, options.link, Some(local.ip()), remote.ip());
        let mut egress = egress.map_err(|_| DropReason::NoRoute)?;
        let names = Names { local, remote };
        let birth = self.birth(&egress, &names, least_iss, options.mss_limit);
        let granted = match self.judge_fast_open(socket, &names, seg) {
            FastOpenAnswer::Ordinary => None,
            FastOpenAnswer::Grant(cookie) => Some(cookie),
            FastOpenAnswer::Accept(renewed) => {
                return self.accept_fast(socket, names, &birth, renewed, egress, seg);
            }
        };
        let opening = Opening {
            tuple: firelane_tcp::Tuple::new(local, remote),
            listener: socket,
            config: &self.shard.config.tcp,
            birth,
            room,
            reopens: least_iss.is_some(),
            stateless: self.shard.asks_nobody(now),
            defer: deferred_repeats(options.defer),
        };
        let mut answer = self.shard.half_open.on_syn(now, &opening, seg)?;
        if let Some(cookie) = granted {
            answer.options = answer.options.with_fast_open(cookie);
        }
        self.send_by(&mut egress, local, remote, &answer);
        Ok(())
    }

    /// A segment that nobody knows and that is no SYN: the third of a handshake whose second was a cookie, or
    /// nobody's.
    pub(crate) fn read_cookie(
        &mut self,
        seg: &SegmentIn<'_>,
        socket: SocketId,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Result<HalfOpen, DropReason> {
        let listening = self.shard.listening.get(socket.0).ok_or(DropReason::NoConnection)?;
        if !self.shard.half_open.expects_cookie(self.common.now, socket) {
            return Err(DropReason::NoConnection);
        }
        let (room, has_room) = (room_of(listening), listening.slot.has_room());
        let (mss_limit, link) = (listening.options.mss_limit, listening.options.link);
        let egress = self.shard.ip.core.egress_for(self.common.now, link, Some(local.ip()), remote.ip());
        let egress = egress.map_err(|_| DropReason::NoRoute)?;
        let opening = Opening {
            tuple: firelane_tcp::Tuple::new(local, remote),
            listener: socket,
            config: &self.shard.config.tcp,
            birth: self.birth(&egress, &Names { local, remote }, None, mss_limit),
            room,
            reopens: false,
            stateless: false,
            defer: 0,
        };
        let half_open = self.shard.half_open.on_cookie(self.common.now, &opening, seg);
        let half_open = half_open.ok_or(DropReason::NoConnection)??;
        if has_room { Ok(half_open) } else { Err(DropReason::ListenFull) }
    }

    /// A half-open connection's handshake completes with `seg`: it gets its rings and its place. Its way is looked up, unless it
    /// was `found` just now.
    pub(crate) fn promote(
        &mut self,
        half_open: &HalfOpen,
        seg: &SegmentIn<'_>,
        names: Names,
        found: Option<Egress>,
    ) -> Result<(), DropReason> {
        let Some(listening) = self.shard.listening.get(half_open.listener().0) else {
            return Err(DropReason::NoConnection);
        };
        let Names { local, remote } = names;
        let tuple = Self::tuple(local, remote).ok_or(DropReason::BadSegment)?;
        let (now, link) = (self.common.now, listening.options.link);
        let look = || self.shard.ip.core.egress_for(now, link, Some(local.ip()), remote.ip()).ok();
        let route = found.or_else(look);
        // The listener's buffer may have become smaller since the SYN-ACK promised room.
        let recv_capacity = listening.rings.recv_capacity.max(half_open.room());
        let rings = StreamConfig { recv_capacity, ..listening.rings };
        let made = listening.slot.stream(rings, self.common.id, self.shard.config.id);
        // The program's arena is full, as its backlog may be.
        let (end, mut stream) = made.ok_or(DropReason::ListenFull)?;
        let mut tcp = half_open.connection();
        tcp.set_receive_buffer(listening.rings.recv_capacity, &mut stream.recv);
        set_options(&mut tcp, &listening.options, &self.shard.config.tcp, self.common.now);
        let hint = route.as_ref().map_or(0, |egress| egress.hint);
        set_congestion(&mut tcp, &listening.options, hint, self.common.now);
        let netstack = self.shard.config.id;
        let mut conn = Conn::new(tcp, stream, netstack, route, &mut self.conns.spares);
        conn.came_by(half_open.listener(), end);
        conn.obey(&listening.options, remote);
        self.shard.tcp_counters.passive_opens += 1;
        let id = self.enter(conn, &tuple, names);
        self.note_brought(half_open.listener(), id);
        let (tcp, mut rings) = self.conns.slab.get_mut(id).expect(TABLED).parts();
        let told = tcp.on_segment(self.common.now, seg, &mut rings);
        let dropped = told.dropped;
        self.conclude(id, told);
        dropped.map_or(Ok(()), Err)
    }

    /// A connection has come by a listener.
    pub(super) fn note_brought(&mut self, listener: SocketId, id: ConnId) {
        let conns = &*self.conns;
        let conn = conns.slab.get(id).and_then(|conn| conn.stream.shared().conn());
        if let Some((listening, conn)) = self.shard.listening.get_mut(listener.0).zip(conn) {
            listening.brought.push(conn, |it| conns.is_orphan(it, listener));
        }
    }

    /// Takes a new connection into the tables. Whether it has something to send at once is its caller's to say.
    #[inline]
    pub(super) fn enter(&mut self, conn: Conn, tuple: &Tuple, names: Names) -> ConnId {
        self.end_predecessor(tuple);
        let reference = self.conns.insert(conn);
        let (conns, id) = (&*self.conns, reference.conn);
        let entered = self.shard.conns.insert(tuple, id, |other| conns.is_named(other, tuple));
        entered.expect("the tuple was looked up and is free");
        let conn = conns.slab.get(id).expect("it was put in just above");
        conn.stream.shared().bind(reference, names);
        id
    }

    pub(super) fn birth(
        &self,
        egress: &Egress,
        names: &Names,
        least_iss: Option<SeqNum>,
        mss_limit: Option<Mss>,
    ) -> Birth {
        let Names { local, remote } = *names;
        let (iss, clock) = self.shard.secret.numbers(self.common.now, local, remote);
        // RFC 6191 §2: beyond everything that the incarnation before has sent.
        let iss = least_iss.filter(|&least| iss.before(least)).unwrap_or(iss);
        let peer_default = self.shard.config.tcp.default_mss[usize::from(remote.is_ipv6())];
        let mss = mss_limit.map_or(mss_of(egress), |limit| limit.min(mss_of(egress)));
        Birth { iss, clock, mss, peer_default }
    }
}

pub(super) fn set_options(tcp: &mut Connection, options: &StreamOptions, config: &TcpConfig, now: Instant) {
    let usual = options.keepalive_default.then_some(config.keepalive);
    tcp.set_tuning(options.tuning);
    tcp.set_nodelay(options.nodelay);
    tcp.set_keepalive(now, options.keepalive.or(usual));
    tcp.set_user_timeout(options.user_timeout);
    tcp.set_pacing_limit(now, options.pacing_limit);
    tcp.set_mss_limit(options.mss_limit);
    tcp.set_syn_retries(options.syn_retries);
    tcp.set_fin_wait_2(options.fin_wait_2);
    tcp.set_window_clamp(options.window_clamp);
    tcp.set_hears_errors(options.hears_errors);
}

/// What its connections announce at first.
pub(super) fn room_of(listening: &Listening) -> NewRing {
    let capacity = listening.rings.recv_capacity;
    let [capacity, foreseen] = [capacity, listening.slot.foreseen(capacity)]
        .map(|room| (room as u32).min(listening.options.window_clamp.unwrap_or(u32::MAX)));
    NewRing { capacity, foreseen }
}

/// What a socket asks for counts, then what its route says, then the netstack's own.
pub(super) fn set_congestion(tcp: &mut Connection, options: &StreamOptions, hint: u8, now: Instant) {
    if let Some(algorithm) = options.congestion.or(said_by(hint)) {
        tcp.set_algorithm(now, algorithm);
    }
}

/// What a route says of congestion control, as a hint: IP carries it and asks no questions.
pub(crate) fn hint_of(algorithm: Algorithm) -> u8 {
    Algorithm::ALL.iter().position(|&other| other == algorithm).map_or(0, |at| at as u8 + 1)
}

/// What a hint says of congestion control.
pub(crate) fn said_by(hint: u8) -> Option<Algorithm> {
    usize::from(hint).checked_sub(1).and_then(|at| Algorithm::ALL.get(at)).copied()
}

/// A port as the tables have it.
pub(crate) const fn port(address: SocketAddr) -> Port {
    Port(address.port())
}

/// Nothing comes of a connection that a program has begun.
pub(super) fn fail<D>(common: &mut Common<D>, stream: &StreamSlot, error: SocketError) {
    stream.fail(error);
    stream.shared().words().set_flags(Flags::CLOSED);
    common.outbox.tell(stream.tell(Ready::ALL), Ready::ALL);
}
