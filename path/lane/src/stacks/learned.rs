//! What IP has to tell: to the netstack's other lanes, to the transports, to the operator.
//!
//! The home lane hears ARP, neighbour discovery and ICMP for all lanes of a netstack, so most of it is said there
//! and must reach the others. An ICMP error goes to the lane of the connection or socket that it quotes, which
//! believes it only if the quoted packet may be its own (RFC 5927 §4).

use core::net::{IpAddr, SocketAddr};

use firelane_classify::Tuple;
use firelane_ip::{Configured, ErrorKind, IpEvent, TransportError};
use firelane_socket::{Ready, SocketError};
use firelane_tcp::Disposition;
use firelane_udp::Blamed;
use firelane_units::{ConnId, LaneId, Port};
use firelane_wire::IpProtocol;

use super::inbound::Inside;
use crate::message::{DatagramKind, Fault, LaneMessage, Learned};
use crate::outbox::Notice;
use crate::steer::datagram_lane;

impl<D> Inside<'_, D> {
    /// Passes on what IP has said since the last time.
    pub(crate) fn pass_events(&mut self) {
        while let Some(event) = self.shard.ip.core.poll_event() {
            let netstack = self.shard.config.id;
            match event {
                IpEvent::NeighbourLearned { link, ip, mac, how } => {
                    self.tell_lanes(&Learned::Neighbour { link, ip, mac, how });
                }
                IpEvent::Configured(change) => {
                    self.tell_lanes(&Learned::Configured(change));
                    self.on_own_change(change);
                    self.common.outbox.notices.push(Notice::Configured(netstack, change));
                }
                IpEvent::Resolvers(link) => {
                    let resolvers = self.shard.ip.core.resolvers().find(|known| known.link == link);
                    let notice = resolvers.map(|known| Notice::Resolvers(netstack, known));
                    self.common.outbox.notices.extend(notice);
                }
                IpEvent::RouterFlags(link, flags) => {
                    self.common.outbox.notices.push(Notice::RouterFlags(netstack, link, flags));
                }
                IpEvent::PathMtu { dst, mtu } => self.tell_lanes(&Learned::PathMtu { dst, mtu }),
                IpEvent::AddressReady(link, prefix) => {
                    // Before the notice: who acts on it may do so in any lane.
                    self.tell_lanes(&Learned::Ready { link, ip: prefix.addr() });
                    self.common.outbox.notices.push(Notice::AddressReady(netstack, link, prefix));
                }
                IpEvent::AddressAgain(link, addr) => self.tell_lanes(&Learned::Again { link, ip: addr }),
                IpEvent::DuplicateAddress(link, prefix, mac) => {
                    self.tell_lanes(&Learned::Duplicate { link, ip: prefix.addr() });
                    let notice = Notice::DuplicateAddress(netstack, link, prefix, mac);
                    self.common.outbox.notices.push(notice);
                }
                IpEvent::TransportError(error) => self.blame(error, None),
            }
        }
    }

    /// Tells every other lane of the netstack.
    pub(super) fn tell_lanes(&mut self, learned: &Learned) {
        for n in 0..self.shard.others.len() {
            self.tell_lane(self.shard.others[n], learned.clone());
        }
    }

    pub(super) fn tell_lane(&mut self, lane: LaneId, learned: Learned) {
        let message = LaneMessage::Learned(self.shard.config.id, Box::new(learned));
        self.common.outbox.messages.push((lane, message));
    }

    /// Another lane has learned something.
    pub(crate) fn on_learned(&mut self, learned: Learned) {
        let now = self.common.now;
        let ip = &mut self.shard.ip;
        ip.touch();
        match learned {
            Learned::Neighbour { link, ip: whose, mac, how } => {
                ip.core.on_neighbour_learned(now, (link, whose), mac, how)
            }
            Learned::Anew => ip.core.forget_configured(),
            Learned::PathMtu { dst, mtu } => ip.core.on_path_mtu(now, dst, mtu),
            Learned::Ready { link, ip: addr } => ip.core.on_address_ready(link, addr),
            Learned::Duplicate { link, ip: addr } => ip.core.on_duplicate_address(now, link, addr),
            Learned::Again { link, ip: addr } => ip.core.on_address_again(link, addr),
            Learned::Configured(change) => {
                ip.core.on_configured(change);
                self.on_own_change(change);
            }
            Learned::Error(error, asked) => self.blame(error, asked),
            Learned::Filtered(packet) => self.shard.gate.adopt(&packet, now),
            Learned::FastOpen(news) => {
                self.shard.fast_opens.note(now, &news);
            }
        }
    }

    /// An address that has ended takes its connections with it. The operator's may be the same, and stays.
    fn on_own_change(&mut self, change: Configured) {
        if let Configured::NoAddress { addr, .. } = change
            && self.shard.ip.core.addresses().all(|it| it.prefix.addr() != addr)
        {
            self.end_connections_of(addr);
        }
    }

    /// An ICMP error: whose packet does it quote? One for which `asked` was asked first goes round as packets do.
    fn blame(&mut self, error: TransportError, asked: Option<LaneId>) {
        let (local, remote) = ((error.src, error.ports.0), (error.dst, error.ports.1));
        let key = self.common.secrets.steering();
        let (steering, me) = (&self.shard.config.steering, self.common.id);
        let tuple = Tuple::new(error.protocol, local, remote);
        let lane = match (error.protocol, &tuple) {
            (IpProtocol::TCP, Some(tuple)) => self.lane_of_ends(tuple),
            (IpProtocol::UDP, Some(_)) => datagram_lane(local.1, steering, &key),
            (IpProtocol::ICMPV4 | IpProtocol::ICMPV6, _) => steering.home(),
            _ => return,
        };
        if asked.is_none() && lane != me {
            return self.tell_lane(lane, Learned::Error(error, None));
        }
        let first = asked.unwrap_or(me);
        let next = steering.next_to_ask(me, first).filter(|_| steering.is_settling() && tuple.is_some());
        let is_here = match tuple {
            Some(tuple) if error.protocol == IpProtocol::TCP => self.blame_connection(&tuple, &error),
            _ => self.blame_datagrams(local, remote, &error),
        };
        if let Some(next) = next.filter(|_| !is_here) {
            self.tell_lane(next, Learned::Error(error, Some(first)));
        }
    }

    /// Whether it is here that the error is about.
    fn blame_connection(&mut self, tuple: &Tuple, error: &TransportError) -> bool {
        let Some(id) = self.lookup(tuple) else { return false };
        self.tell_connection(id, error);
        true
    }

    fn tell_connection(&mut self, id: ConnId, error: &TransportError) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        let Some(quoted) = error.seq else { return };
        // RFC 5082 §3: an error that is about a connection is one of the packets that are judged.
        if error.said.hops < conn.least_hops {
            return;
        }
        if let ErrorKind::TooBig { mtu } = error.kind {
            if conn.tcp().has_in_flight(quoted) {
                self.shard.ip.core.confirm_path_mtu(self.common.now, error.dst, mtu);
                self.shard.ip.touch();
                // The way is looked up again, and TCP told of the smaller MTU there.
                self.route_of(id);
                self.conclude(id, Disposition::default());
            }
            return;
        }
        // Who wants to hear of errors gives up a connection that does not stand yet for any of them, as in Linux; one that
        // stands is told, and stays.
        let hears = conn.tcp().hears_errors(error.dst.is_ipv6());
        // A neighbour that was asked for in vain is not there. A router's word of that is worth less, and may change.
        let is_final = is_hard(error.kind) || error.said.is_by_ourselves();
        let told = conn.tcp().on_unreachable(quoted, hears || is_final);
        if hears && (told.closed.is_some() || conn.tcp().has_in_flight(quoted)) {
            conn.stream.fail(failure_of(error));
            let token = conn.stream.tell(Ready::ALL);
            self.common.outbox.tell(token, Ready::ALL);
        }
        self.conclude(id, told);
    }

    /// The same of a datagram socket.
    pub(super) fn blame_datagrams(
        &mut self,
        local: (IpAddr, Port),
        remote: (IpAddr, Port),
        error: &TransportError,
    ) -> bool {
        let end = |(ip, port): (IpAddr, Port)| SocketAddr::new(ip, port.0);
        let kind = if error.protocol == IpProtocol::UDP { DatagramKind::Udp } else { DatagramKind::Echo };
        let Some(blamed) = self.shard.datagram_table(kind).blamed(end(local), end(remote)) else {
            return false;
        };
        self.tell_blamed(blamed, end(remote), error);
        true
    }

    fn tell_blamed(&mut self, blamed: Blamed, remote: SocketAddr, error: &TransportError) {
        let socket = blamed.socket();
        let Some(place) = self.shard.datagrams.get(socket.0) else { return };
        if let ErrorKind::TooBig { mtu } = error.kind {
            // Whoever has no peer may have sent it to anybody, but for the one that it sent the last to.
            let has_sent = matches!(blamed, Blamed::Connected(_)) || place.last_peer() == Some(remote);
            let ip = &mut self.shard.ip;
            match has_sent {
                true => ip.core.confirm_path_mtu(self.common.now, error.dst, mtu),
                false => ip.core.suppose_path_mtu(self.common.now, error.dst, mtu),
            }
            ip.touch();
        }
        if place.hears_faults(error.dst) {
            return self.tell_fault(socket, Fault::Told(*error));
        }
        let failure = match error.kind {
            ErrorKind::TooBig { .. } if place.hears_of_mtu(error.dst) => SocketError::MessageTooLong,
            kind if kind == ErrorKind::ParameterProblem || is_hard(kind) => failure_of(error),
            _ => return,
        };
        // RFC 1122 §4.1.3.3; an unconnected socket could not know which peer is meant.
        if let Blamed::Connected(_) = blamed {
            place.fail(failure);
            self.tell_datagrams(socket, Ready::ALL);
        }
    }
}

/// What a program is told of an error: Linux' `icmp_err_convert` of both families.
fn failure_of(error: &TransportError) -> SocketError {
    match error.kind {
        ErrorKind::NetworkUnreachable => SocketError::NetworkUnreachable,
        ErrorKind::HostUnreachable | ErrorKind::TimeExceeded => SocketError::HostUnreachable,
        // Over IPv6 that is a header which is not known.
        ErrorKind::ProtocolUnreachable if error.dst.is_ipv6() => SocketError::BadParameter,
        ErrorKind::ProtocolUnreachable => SocketError::ProtocolUnreachable,
        ErrorKind::PortUnreachable => SocketError::Refused,
        ErrorKind::Prohibited if error.dst.is_ipv6() => SocketError::Prohibited,
        // RFC 1122 §3.2.2.1: code 9 is about the network, 10 and 13 are about the host.
        ErrorKind::Prohibited if error.said.icmp[1] == 9 => SocketError::NetworkUnreachable,
        ErrorKind::Prohibited => SocketError::HostUnreachable,
        ErrorKind::ParameterProblem => SocketError::BadParameter,
        ErrorKind::TooBig { .. } => SocketError::MessageTooLong,
    }
}

/// Whether trying again is useless (RFC 1122 §4.2.3.9).
const fn is_hard(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PortUnreachable | ErrorKind::ProtocolUnreachable | ErrorKind::Prohibited)
}
