//! Datagram sockets of a shard: how they are bound and set, and a packet's way to a socket's queue.
//!
//! A socket lives in the lane that its local port steers to, so its queues have one lane's side. What does not
//! fit a receive queue is dropped and counted. What they send is `datagrams_out.rs`'s.

use core::mem;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU8;

use firelane_frame::{Envelope, Frame};
use firelane_ip::{Delivered, Egress, Member, RouteError, is_everybodys};
use firelane_socket::{DatagramSlot, Flags, Ready, SocketError};
use firelane_tcp::LEAVES_WITHIN;
use firelane_udp::{Binding, Datagram, LocalAddr, RemoteError, UdpTable, free_port, receive};
use firelane_units::{Bytes, DropReason, Family, Instant, LinkId, Mtu, Port, SocketId};

use super::bands::Band;
use super::inbound::Inside;
use super::limited::Ticket;
use super::next_hop::Awaited;
use super::pace::Pace;
use super::shard::Shard;
use crate::message::{Bind, ConnectDatagrams, DatagramKind, DatagramOption, Fault, PacketOption};
use crate::steer::datagram_lane;

/// The way of a socket's datagrams to a peer, and what each says of where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) egress: Egress,
    pub(super) local: SocketAddr,
    pub(super) flow_label: u32,
}

/// A datagram socket.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    pub(super) slot: DatagramSlot,
    /// What it was bound to by its program, and what it is now that it may have a peer.
    bound: SocketAddr,
    pub(super) local: SocketAddr,
    unconnected: Binding,
    /// The way to the peer that was sent to last.
    pub(super) route: Option<(SocketAddr, Way)>,
    pub(super) kind: DatagramKind,
    /// The only link that it speaks over.
    pub(super) link: Option<LinkId>,
    pub(super) options: DatagramOptions,
    pub(super) pace: Pace,
    /// When what its program has left behind is given up; at the end of time while there is a program.
    pub(super) given_up_at: Instant,
    /// Whose address its first record waits for, or the records before it have waited for in vain.
    pub(super) awaits: Option<Awaited>,
    /// Its place among those that wait for a limit.
    pub(super) ticket: Option<Ticket>,
    /// That by which it stands in line. With another one it stood there before, and was called.
    pub(super) in_line: Option<Ticket>,
    /// It has something to send and stands in the list of those that do.
    pub(super) is_dirty: bool,
    /// The most that its program had queued since it was told of room.
    pub(super) most_queued: usize,
    /// How many datagrams for it had no room.
    pub(super) dropped: u32,
    /// The last record of its receive queue is open, and it stands in the list of those of which that is so.
    is_joining: bool,
}

/// How a socket's datagrams are sent, and how it gets them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DatagramOptions {
    packets: [PacketOptions; 2],
    pub(super) broadcast: bool,
    /// The most that a packet over IPv6 may be; `None` is as much as the way carries.
    pub(super) packet_max: Option<Mtu>,
    /// Datagrams of one length that come together are handed over together (UDP_GRO).
    joins: bool,
    /// Its program is told of each error over IPv4, and over IPv6.
    hears: [bool; 2],
    /// Whether what it sends goes before others', or behind.
    pub(super) band: Band,
    /// Records of echoes have ICMP's header.
    pub(super) has_header: bool,
}

impl DatagramSocket {
    /// The only link by which what it sends to `dst` may leave, if its program says so of all that, of this record, which has
    /// `named` one beside it, or, where nothing else is named, of what is for one station.
    pub(super) fn link_to(&self, dst: IpAddr, named: Option<LinkId>) -> Option<LinkId> {
        let is_one = !dst.is_multicast() && dst != Ipv4Addr::BROADCAST;
        let of_one = || named.or(self.options.packets(dst).unicast_link);
        self.link.or_else(|| is_one.then(of_one).flatten())
    }

    /// From where what it sends to `dst` comes, if neither its name nor the record says so.
    pub(super) fn source_to(&self, dst: IpAddr) -> Option<IpAddr> {
        let source = self.options.packets(dst).multicast_source;
        source.filter(|_| dst.is_multicast()).map(IpAddr::V4)
    }

    /// Whether it has nothing to do with IPv4 (IPV6_V6ONLY).
    pub(super) fn is_v6_only(&self) -> bool {
        self.unconnected.local() == LocalAddr::AnyV6 { v6_only: true }
    }
}

impl DatagramOptions {
    /// What packets to such an address are like.
    pub(super) fn packets(&self, to: IpAddr) -> &PacketOptions {
        &self.packets[Family::of(to).index()]
    }
}

/// What a socket's packets of one family are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketOptions {
    pub(super) hops: Option<NonZeroU8>,
    pub(super) tos: u8,
    pub(super) dont_fragment: bool,
    pub(super) multicast_hops: u8,
    pub(super) multicast_loop: bool,
    /// Whether it hears what others have joined; nothing is said of sockets that are not a program's.
    multicast_all: Option<bool>,
    pub(super) multicast_link: Option<LinkId>,
    multicast_source: Option<Ipv4Addr>,
    pub(super) unicast_link: Option<LinkId>,
}

impl PacketOptions {
    fn set(&mut self, option: PacketOption) {
        match option {
            PacketOption::Hops(hops) => self.hops = hops,
            PacketOption::TrafficClass(tos) => self.tos = tos,
            PacketOption::DontFragment(on) => self.dont_fragment = on,
            PacketOption::MulticastHops(hops) => self.multicast_hops = hops,
            PacketOption::MulticastLoop(on) => self.multicast_loop = on,
            PacketOption::MulticastAll(on) => self.multicast_all = Some(on),
            PacketOption::MulticastLink(link, source) => {
                (self.multicast_link, self.multicast_source) = (link, source);
            }
            PacketOption::UnicastLink(link) => self.unicast_link = link,
        }
    }
}

impl Default for PacketOptions {
    /// RFC 1112 §6.1, RFC 3493 §5.2.
    fn default() -> Self {
        Self {
            hops: None,
            tos: 0,
            dont_fragment: false,
            multicast_hops: 1,
            multicast_loop: true,
            multicast_all: None,
            multicast_link: None,
            multicast_source: None,
            unicast_link: None,
        }
    }
}

impl Shard {
    /// Who has which port, or identifier.
    pub(super) fn datagram_table(&mut self, kind: DatagramKind) -> &mut UdpTable {
        match kind {
            DatagramKind::Udp => &mut self.udp,
            DatagramKind::Echo => &mut self.echoes,
        }
    }

    /// Whether a socket hears what `source` sends to a group: one that it has joined itself, or, if its program says so, others who
    /// want to hear him. As in Linux a program that does not say so hears not even all stations' groups, unless it has joined them.
    fn hears_group(&self, socket: SocketId, link: LinkId, group: IpAddr, source: IpAddr) -> bool {
        let (member, ip) = (Member::Socket(socket.0), &self.ip.core);
        let hears_all = self.datagrams.get(socket.0).and_then(|it| it.options.packets(group).multicast_all);
        match (hears_all, ip.has_joined(member, link, group)) {
            (_, true) => ip.hears_group(member, link, group, source),
            (Some(hears_all), false) => hears_all && ip.is_heard(link, group, source),
            (None, false) => is_everybodys(group),
        }
    }

    /// How urgent what a socket sends is.
    pub(super) fn band_of(&self, socket: SocketId) -> Band {
        self.datagrams.get(socket.0).map_or(Band::default(), |place| place.options.band)
    }
}

impl DatagramSocket {
    /// What it is bound to.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    /// Whether its program wants to know that a router could not pass on to such an address what may not be cut.
    pub(crate) fn hears_of_mtu(&self, to: IpAddr) -> bool {
        self.options.packets(to).dont_fragment
    }

    /// Whether its program is told of each datagram to such an address that does not arrive.
    pub(crate) fn hears_faults(&self, to: IpAddr) -> bool {
        self.options.hears[usize::from(to.is_ipv6())]
    }

    /// Something that the program is told at its next call.
    pub(crate) fn fail(&self, error: SocketError) {
        self.slot.shared().words().fail(error);
    }
}

impl<D> Inside<'_, D> {
    /// Opens a socket.
    pub(crate) fn bind(&mut self, bind: Bind) {
        let Bind { socket, local, v6_only, sharing, remote, kind, link, mut slot } = bind;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let asked = local.ip();
        let binding = Binding::new(local, v6_only).on_link(link).sharing(sharing);
        match self.bind_at(socket, local, binding, remote, (kind, link)) {
            Ok(local) => {
                slot.shared().bind(local);
                // An application that is another process writes into storage that it finds.
                slot.send.attach();
                let place = DatagramSocket {
                    slot,
                    bound: SocketAddr::new(asked, local.port()),
                    local,
                    unconnected: binding,
                    route: None,
                    kind,
                    link,
                    options: DatagramOptions::default(),
                    pace: Pace::default(),
                    given_up_at: Instant::FAR_FUTURE,
                    awaits: None,
                    ticket: None,
                    in_line: None,
                    is_dirty: false,
                    most_queued: 0,
                    dropped: 0,
                    is_joining: false,
                };
                if let Err(refused) = self.shard.datagrams.insert(socket.0, place) {
                    self.shard.datagram_table(kind).unbind(socket);
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
        local: SocketAddr,
        binding: Binding,
        remote: Option<SocketAddr>,
        (kind, link): (DatagramKind, Option<LinkId>),
    ) -> Result<SocketAddr, SocketError> {
        let (mut local, mut binding) = (local, binding);
        if let Some(remote) = remote {
            binding = binding.connected(remote).map_err(peer_error)?;
            if local.ip().is_unspecified() {
                let remote = remote.ip().to_canonical();
                let egress = self.shard.ip.core.egress_by(self.common.now, link, None, remote);
                local.set_ip(egress.map_err(super::route_error)?.src);
                binding = binding.at_address(local.ip());
            }
        }
        if local.port() == 0 {
            let port = self.free_datagram_port(kind, &binding).ok_or(SocketError::NoPort)?;
            binding = binding.at_port(port);
            local.set_port(port.0);
        }
        self.shard.datagram_table(kind).bind(socket, binding).map_err(|_| SocketError::AddressInUse)?;
        Ok(local)
    }

    /// The program names a socket's only peer, another one, or nobody.
    pub(crate) fn connect_datagrams(&mut self, connect: &ConnectDatagrams) {
        let &ConnectDatagrams { socket, remote, link, .. } = connect;
        let over = |inside: &mut Self, link| {
            inside.shard.datagrams.get_mut(socket.0).map(|it| core::mem::replace(&mut it.link, link))
        };
        let before = over(self, link);
        let outcome = self.rebind(socket, remote);
        if let (Err(_), Some(before)) = (outcome, before) {
            over(self, before);
        }
        let told = connect.outcome.set(outcome);
        debug_assert!(told.is_ok(), "a command is carried out once");
    }

    fn rebind(&mut self, socket: SocketId, remote: Option<SocketAddr>) -> Result<SocketAddr, SocketError> {
        let shard = &mut *self.shard;
        let place = shard.datagrams.get_mut(socket.0).ok_or(SocketError::Aborted)?;
        let mut local = place.bound;
        let unconnected = place.unconnected.on_link(place.link);
        let mut binding = unconnected.at_port(Port(local.port()));
        if let Some(remote) = remote {
            // What the first peer has made of it stays until there is none, as in Linux.
            if place.local != place.bound {
                local = place.local;
                binding = binding.at_address(local.ip());
            }
            let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
            // Whoever answers an echo is heard, as in Linux: what was asked is told by its identifier.
            if place.kind == DatagramKind::Udp {
                binding = binding.connected(remote).map_err(peer_error)?;
            }
            let link = place.options.packets(remote.ip()).multicast_link;
            let (now, ip) = (self.common.now, &mut shard.ip.core);
            let src = Some(local.ip())
                .filter(|&it| !it.is_unspecified() && !it.is_multicast() && !ip.is_broadcast(it))
                .or_else(|| place.source_to(remote.ip()));
            let egress = match place.link_to(remote.ip(), None) {
                Some(link) => ip.egress_over(now, link, src, remote.ip()),
                None => ip.egress_by(now, link, src, remote.ip()),
            };
            match egress {
                Ok(egress) if egress.is_broadcast() && !place.options.broadcast => {
                    return Err(SocketError::BroadcastDenied);
                }
                Ok(egress) if local.ip().is_unspecified() => {
                    local.set_ip(egress.src);
                    binding = binding.at_address(local.ip());
                }
                // An address may come that the netstack does not have yet (IP_FREEBIND).
                Ok(_) | Err(RouteError::SourceNotOurs) => {}
                Err(error) => return Err(super::route_error(error)),
            }
        }
        let table = if place.kind == DatagramKind::Echo { &mut shard.echoes } else { &mut shard.udp };
        table.rebind(socket, binding).map_err(|_| SocketError::AddressInUse)?;
        (place.local, place.unconnected, place.route) = (local, unconnected, None);
        Ok(local)
    }

    /// A port that is free and whose datagrams arrive in this lane.
    fn free_datagram_port(&mut self, kind: DatagramKind, binding: &Binding) -> Option<Port> {
        let shard = &mut *self.shard;
        shard.port_counter = shard.port_counter.wrapping_add(1);
        // Lanes count apart, and what one draws says nothing of what another one does.
        let drawn = u64::from(self.common.id.0) << 32 | u64::from(shard.port_counter);
        let random = shard.ports.hash(&drawn.to_be_bytes());
        let key = self.common.secrets.steering();
        let (steering, me) = (&shard.config.steering, self.common.id);
        if kind == DatagramKind::Echo {
            return free_port(&shard.echoes, binding, &(1..=u16::MAX), random, |_| true);
        }
        free_port(&shard.udp, binding, &shard.config.udp_ports, random, |port| {
            datagram_lane(port, steering, &key) == me
        })
    }

    /// The program closed a socket. What it had queued goes first.
    pub(crate) fn close_datagrams(&mut self, socket: SocketId) {
        if let Some(place) = self.shard.datagrams.get_mut(socket.0) {
            let table =
                if place.kind == DatagramKind::Echo { &mut self.shard.echoes } else { &mut self.shard.udp };
            table.unbind(socket);
            place.slot.shared().words().set_flags(Flags::CLOSED);
            let may_go = place.pace.end(Bytes(place.slot.send.queued() as u64));
            place.given_up_at = place.given_up_at.min(self.common.now + LEAVES_WITHIN);
            if may_go {
                self.call_datagrams(socket);
            }
        }
        self.shard.socket_filters.remove(&socket);
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
        let link = self.shard.link_of_arrival(packet.link, local.ip());
        let Some(socket) = self.shard.udp.lookup(link, local, remote) else {
            self.shard.ip.core.unreachable_port(self.common.now, &packet, &mut self.common.pools);
            self.shard.ip.touch();
            return self.drop_frame(packet.frame, DropReason::NoSocket);
        };
        if !self.admits_datagram(&packet, socket) {
            return self.drop_frame(packet.frame, DropReason::FilterSocket);
        }
        let is_full = !self.put_datagram(socket, (&packet, None), remote, &datagram);
        match is_full {
            true => self.drop_frame(packet.frame, DropReason::BufferFull),
            false => self.take_datagram(packet.frame, &datagram),
        }
    }

    /// Puts what a frame brought into a socket's queue; whether all of it had room. If it came to many, this host has an address
    /// of its `own`.
    fn put_datagram(
        &mut self,
        socket: SocketId,
        (packet, own): (&Delivered, Option<Ipv4Addr>),
        remote: SocketAddr,
        datagram: &Datagram,
    ) -> bool {
        let place = self.shard.datagrams.get_mut(socket.0).expect("bound sockets have a place");
        let envelope = Envelope {
            peer: remote,
            local: Some(packet.dst),
            own,
            link: Some(packet.link),
            tos: Some(packet.traffic_class()),
            hops: Some(packet.ttl),
            dont_fragment: None,
            segment: 0,
            arrived: Some(self.common.now),
            dropped: place.dropped,
        };
        let (mut had_room, bytes) = (true, packet.frame.as_slice());
        for piece in datagram.pieces() {
            let payload = &bytes[piece];
            let has_room = match place.options.joins {
                true => place.slot.recv.join(&envelope, payload),
                false => place.slot.recv.push(&envelope, payload),
            };
            place.dropped = place.dropped.wrapping_add(u32::from(!has_room));
            had_room &= has_room;
        }
        if !place.options.joins {
            self.tell_datagrams(socket, Ready::READABLE);
        } else if !mem::replace(&mut place.is_joining, true) {
            self.shard.joining_datagrams.push(socket);
        }
        had_room
    }

    /// The frames that came together are through: what they brought for sockets that want it together is shown.
    pub(crate) fn show_joined(&mut self) {
        let mut joining = mem::take(&mut self.shard.joining_datagrams);
        for socket in joining.drain(..) {
            if let Some(place) = self.shard.datagrams.get_mut(socket.0) {
                place.is_joining = false;
                place.slot.recv.close();
                self.tell_datagrams(socket, Ready::READABLE);
            }
        }
        self.shard.joining_datagrams = joining;
    }

    /// A datagram has reached whoever it is for.
    fn take_datagram(&mut self, frame: Frame, datagram: &Datagram) {
        self.shard.udp_counters.received += datagram.pieces().count() as u64;
        self.common.deliver_seen(frame);
    }

    /// A datagram to a group or to everybody: for each socket at the port that hears it (RFC 1122 §4.1.3.5).
    fn datagram_to_many(
        &mut self,
        mut packet: Delivered,
        local: SocketAddr,
        remote: SocketAddr,
        datagram: &Datagram,
    ) {
        let Delivered { src, dst, link, .. } = packet;
        // What this netstack has sent itself comes as from the link that it left by, but for who has joined on any.
        packet.link = self.shard.link_of_arrival(link, src);
        let mut listeners = mem::take(&mut self.shard.listeners_of_many);
        listeners.extend(self.shard.udp.lookup_all(packet.link, local, remote));
        listeners.retain(|&socket| !dst.is_multicast() || self.shard.hears_group(socket, link, dst, src));
        let (is_heard, mut is_full, mut is_blocked) = (!listeners.is_empty(), false, true);
        let own = self.shard.ip.core.own_towards(packet.link, src);
        for socket in listeners.drain(..) {
            if !self.admits_datagram(&packet, socket) {
                continue;
            }
            is_blocked = false;
            is_full |= !self.put_datagram(socket, (&packet, own), remote, datagram);
        }
        self.shard.listeners_of_many = listeners;
        match (is_heard, is_full) {
            (false, _) => self.drop_frame(packet.frame, DropReason::NoSocket),
            (true, _) if is_blocked => self.drop_frame(packet.frame, DropReason::FilterSocket),
            (true, true) => self.drop_frame(packet.frame, DropReason::BufferFull),
            (true, false) => self.take_datagram(packet.frame, datagram),
        }
    }

    /// The program changes an option.
    pub(crate) fn set_datagram_option(&mut self, socket: SocketId, option: DatagramOption) {
        let Some(place) = self.shard.datagrams.get_mut(socket.0) else { return };
        place.route = None;
        match option {
            DatagramOption::Packets(family, option) => place.options.packets[family.index()].set(option),
            DatagramOption::Broadcast(on) => place.options.broadcast = on,
            DatagramOption::PacketMax(most) => place.options.packet_max = most,
            DatagramOption::ReceiveOffload(on) => place.options.joins = on,
            DatagramOption::ReceiveQueue(bytes) => place.slot.recv.set_limit(bytes),
            DatagramOption::Faults { v4, v6 } => place.options.hears = [v4, v6],
            DatagramOption::Band(band) if band != place.options.band => {
                place.options.band = band;
                self.call_datagrams(socket);
            }
            DatagramOption::PacingLimit(rate) if rate != place.pace.rate() => {
                place.pace.set(self.common.now, rate);
                self.call_datagrams(socket);
            }
            DatagramOption::Band(_) | DatagramOption::PacingLimit(_) => {}
            DatagramOption::WholeMessages(on) => place.options.has_header = on,
            DatagramOption::Sharing(sharing) => {
                place.unconnected = place.unconnected.sharing(sharing);
                let table = if place.kind == DatagramKind::Echo {
                    &mut self.shard.echoes
                } else {
                    &mut self.shard.udp
                };
                table.share(socket, sharing);
            }
        }
    }

    /// Tells a socket's program what became of a datagram.
    pub(super) fn tell_fault(&mut self, socket: SocketId, fault: Fault) {
        if let Some(place) = self.shard.datagrams.get(socket.0) {
            let token = place.slot.shared().words().token();
            self.common.outbox.faults.push((token, fault));
        }
    }

    pub(crate) fn tell_datagrams(&mut self, socket: SocketId, ready: Ready) {
        if let Some(place) = self.shard.datagrams.get(socket.0) {
            let token = place.slot.tell(ready);
            self.common.outbox.tell(token, ready);
        }
    }
}

const fn peer_error(error: RemoteError) -> SocketError {
    match error {
        RemoteError::Unspecified => SocketError::AddressNotAvailable,
        RemoteError::Family => SocketError::NetworkUnreachable,
    }
}

/// The netstack of a socket ends: whom to tell.
pub(super) fn end(socket: &DatagramSocket) -> Option<firelane_socket::SocketToken> {
    fail(&socket.slot, SocketError::Aborted)
}

pub(super) fn fail(slot: &DatagramSlot, error: SocketError) -> Option<firelane_socket::SocketToken> {
    slot.shared().words().fail(error);
    slot.shared().words().set_flags(Flags::CLOSED);
    slot.tell(Ready::ALL)
}
