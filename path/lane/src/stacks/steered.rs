//! Which lane of a netstack has what, and how a shard follows when flows get lanes of their own, or lose them.
//!
//! A connection and a datagram socket stay in the lane where they began. When flows change, the steering remembers which lanes there
//! were, and a lane that lacks what a packet is for hands it to the next one until all were asked, and what nobody has comes back to the
//! first. A SYN goes round because a connection of its ends is not begun twice; not every one of a flood, which would be the other
//! lanes', too: what does not go round is answered, and not remembered. The engine asks for those that are elsewhere than they would begin now ([`Stacks::strangers`]), and lets the steering settle when there are none. A lane that joins is told what the others have learned and heard: engine and home lane see to that before a packet comes.

use core::net::SocketAddr;
use std::sync::Arc;

use firelane_classify::{Headers, Steering, SteeringKey, Tuple};
use firelane_filter::FilterSetup;
use firelane_frame::Frame;
use firelane_ip::{Address, AddressOrigin, AddressState, Configured, LOOPBACK};
use firelane_tcp::{HALF_OPEN_TOTAL, SynCookies};
use firelane_units::{ConnId, Instant, LaneId, LinkId, NetstackId, Port, SeqNum, SocketId};
use firelane_wire::{IpProtocol, TcpFlags};

use super::conn::Conn;
use super::inbound::Inside;
use super::shard::{Shard, others};
use super::{NO_NETSTACK, Stacks};
use crate::arrivals::Arrival;
use crate::common::Common;
use crate::control::Refusal;
use crate::message::{DatagramKind, Learned, Listen, Stage};
use crate::steer::{connection_lane, datagram_lane, loop_lane};

/// What a lane that joins a netstack has to hear of sockets: a listener, and the rules of its own filter, if it has any.
pub type Heard = (Listen, Option<Arc<FilterSetup>>);

/// Connections and half-open ones that one look for strangers looks at: a cache miss each.
const PLACES_PER_LOOK: usize = 4096;

/// For so many SYNs other lanes are asked.
pub(super) const ASKED_PER_SECOND: u32 = 1000;

/// What a look has found that would begin in another lane now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strangers {
    /// Something is here.
    Some,
    /// Nothing up to that place, where the next look goes on.
    NoneBefore(u32),
    /// Nothing is here.
    None,
}

impl Shard {
    /// The lane of a connection between these ends: one of the netstack with itself goes by no flow.
    pub(super) fn lane_of_ends(&self, tuple: &Tuple, key: &SteeringKey) -> LaneId {
        match self.ip.core.is_local(tuple.remote()) {
            true => loop_lane(tuple, &self.config.steering, key),
            false => connection_lane(tuple, &self.config.steering, key),
        }
    }

    /// Whether SYNs are answered about which no other lane was asked. A connection of the same ends may be there, and what would be
    /// remembered here of a SYN that somebody forged would take that one's segments.
    pub(super) fn asks_nobody(&self, now: Instant) -> bool {
        self.asks.is_spent(now) && self.config.tcp.syn_cookies != SynCookies::Off
    }

    /// Whether a packet finds what it is for here. What is in TIME-WAIT keeps no connection of the same ends from beginning where it belongs,
    /// and hides none that another lane has: those go on behind its numbers.
    fn knows(
        &self,
        link: LinkId,
        (headers, packet): (&Headers, &[u8]),
        tuple: &Tuple,
        has: impl FnOnce() -> bool,
    ) -> bool {
        let local = SocketAddr::new(tuple.local(), tuple.local_port().0);
        let remote = SocketAddr::new(tuple.remote(), tuple.remote_port().0);
        match headers.protocol {
            IpProtocol::TCP => {
                let names = firelane_tcp::Tuple::new(local, remote);
                let is_over = |seq| !begins(headers) && self.time_wait.has(&names, seq);
                has() || self.half_open.has(&names) || seq_of(headers, packet).is_some_and(is_over)
            }
            IpProtocol::UDP => {
                let link = self.link_of_arrival(link, local.ip());
                self.udp.lookup(link, local, remote).is_some()
            }
            _ => true,
        }
    }
}

/// Whether a segment asks for a connection.
fn begins(headers: &Headers) -> bool {
    headers.tcp_flags.contains(TcpFlags::SYN) && !headers.tcp_flags.contains(TcpFlags::ACK)
}

/// A segment's number.
fn seq_of(headers: &Headers, frame: &[u8]) -> Option<SeqNum> {
    let seq = frame.get(usize::from(headers.l4_offset) + 4..)?.first_chunk()?;
    Some(SeqNum(u32::from_be_bytes(*seq)))
}

impl<D> Inside<'_, D> {
    /// The lane of a connection between these ends.
    pub(super) fn lane_of_ends(&self, tuple: &Tuple) -> LaneId {
        self.shard.lane_of_ends(tuple, &self.common.secrets.steering())
    }

    /// Things are not yet where they would begin now: hands a packet to the next lane that may have what it is for, if this one has
    /// it not. Whoever translates addresses looks at it first.
    #[cold]
    pub(super) fn ask_others(&mut self, frame: Frame, arrival: &Arrival) -> Option<Frame> {
        match self.shard.gate.has_nat() && arrival.asked.is_none() {
            true => Some(frame),
            false => self.ask_next((arrival.link, arrival.asked), frame, &arrival.headers),
        }
    }

    /// Whether a connection is the netstack's with itself, both of whose ends are in one lane.
    fn is_with_itself(&self, tuple: &Tuple) -> bool {
        self.shard.ip.core.is_local(tuple.remote())
    }

    /// The same of a packet for which `asked` was asked first.
    #[cold]
    pub(super) fn ask_next(
        &mut self,
        (link, asked): (LinkId, Option<LaneId>),
        frame: Frame,
        headers: &Headers,
    ) -> Option<Frame> {
        let (steering, me) = (&self.shard.config.steering, self.common.id);
        let first = asked.unwrap_or(me);
        // Who translates addresses asks for packets of others as well.
        let is_translators = self.shard.is_translated && asked == Some(steering.home());
        let Some(tuple) = headers.tuple() else { return Some(frame) };
        let is_own = self.shard.ip.core.is_local(tuple.local()) || headers.dst.is_multicast();
        if asked == Some(me)
            || !is_translators && !is_own
            || link == LOOPBACK && headers.protocol == IpProtocol::TCP && self.is_with_itself(&tuple)
            || self.shard.knows(link, (headers, frame.as_slice()), &tuple, || self.lookup(&tuple).is_some())
        {
            return Some(frame);
        }
        // Without cookies each SYN that is taken is remembered, so each goes round.
        let is_bounded = self.shard.config.tcp.syn_cookies != SynCookies::Off;
        let begins = asked.is_none() && begins(headers);
        if begins && is_bounded && !self.shard.asks.allow(self.common.now) {
            return Some(frame);
        }
        // What nobody has is judged where it would begin: that lane has sent the cookie, if it answers one.
        let next = steering.next_to_ask(me, first).filter(|_| steering.is_settling());
        let Some(next) = next.or(asked) else { return Some(frame) };
        self.common.hand_over(next, Stage::Asked(self.shard.config.id, first), link, frame);
        None
    }
}

impl Stacks {
    /// A netstack's sockets begin in other lanes from now on. Answers which lanes get what arrives by its links.
    pub(crate) fn steer<D>(
        &mut self,
        common: &Common<D>,
        id: NetstackId,
        steering: Steering,
    ) -> Result<Steering, Refusal> {
        let shard = self.shards.get_mut(id).ok_or(NO_NETSTACK)?;
        shard.config.steering = steering;
        shard.searches.forget_exhausted();
        shard.others = others(&shard.config, common.id);
        Ok(shard.doors())
    }

    /// Of which steering of a netstack this lane has heard last.
    pub(crate) fn steering_version(&self, id: NetstackId) -> Option<u32> {
        Some(self.shards.get(id)?.config.steering.version())
    }

    /// Whether something of a netstack is here that would begin elsewhere now. Connections are looked at by and by.
    pub(crate) fn strangers<D>(&self, common: &Common<D>, id: NetstackId, from: u32) -> Strangers {
        let Some(shard) = self.shards.get(id) else { return Strangers::None };
        let (key, me) = (common.secrets.steering(), common.id);
        let is_away = |port: u16| datagram_lane(Port(port), &shard.config.steering, &key) != me;
        let has_socket = || {
            let mut sockets = shard.datagrams.iter().filter(|(_, it)| it.kind == DatagramKind::Udp);
            sockets.any(|(_, it)| is_away(it.local.port()))
        };
        if from == 0 && has_socket() {
            return Strangers::Some;
        }
        let is_away = |tuple: Tuple| shard.lane_of_ends(&tuple, &key) != me;
        let is_stranger =
            |conn: &Conn| conn.netstack == id && !conn.is_local() && conn.tuple().is_some_and(is_away);
        // However many places there are by now.
        let (half_open, from) = (HALF_OPEN_TOTAL as usize, from as usize);
        let is_at = |place: usize| match place.checked_sub(half_open) {
            None => {
                let ends = shard.half_open.tuple_at(place);
                ends.and_then(|it| Inside::<D>::tuple(it.local(), it.remote())).is_some_and(is_away)
            }
            Some(place) => self.conns.slab.get(ConnId(place as u32)).is_some_and(is_stranger),
        };
        let end = from + PLACES_PER_LOOK;
        match (from..end).any(is_at) {
            true => Strangers::Some,
            false if end < half_open + self.conns.slab.places() => Strangers::NoneBefore(end as u32),
            false => Strangers::None,
        }
    }

    /// Whether a datagram socket here has the port.
    pub(crate) fn has_datagrams_at(&self, id: NetstackId, port: Port) -> bool {
        let shard = self.shards.get(id);
        shard.is_some_and(|shard| {
            shard.datagrams.iter().any(|(_, it)| it.kind == DatagramKind::Udp && it.local.port() == port.0)
        })
    }

    /// What another lane of the netstack has to know that joins now: what this one, its home, has configured by itself.
    pub(crate) fn learned(&self, id: NetstackId) -> Vec<Learned> {
        let Some(shard) = self.shards.get(id) else { return Vec::new() };
        let ip = &shard.ip.core;
        let of_address = |it: &Address| {
            let (link, prefix, origin) = (it.link, it.prefix, it.origin);
            let is_deprecated = it.state == AddressState::Deprecated;
            match (it.state, origin) {
                (AddressState::Preferred | AddressState::Deprecated, AddressOrigin::Operator) => {
                    Some(Learned::Ready { link, ip: prefix.addr() })
                }
                (AddressState::Preferred | AddressState::Deprecated, _) => {
                    Some(Learned::Configured(Configured::Address { link, prefix, origin, is_deprecated }))
                }
                (AddressState::Duplicate, AddressOrigin::Operator) => {
                    Some(Learned::Duplicate { link, ip: prefix.addr() })
                }
                _ => None,
            }
        };
        let of_link = |&link| Learned::Configured(Configured::Link(link, ip.link_parameters(link)));
        let parameters = shard.links.iter().map(of_link);
        let routes = ip.routes().filter(|route| route.origin.is_routers());
        let routes = routes.map(|&route| Learned::Configured(Configured::Route(route)));
        let paths = ip.narrow_paths().map(|it| Learned::PathMtu { dst: it.dst, mtu: it.mtu });
        let addresses = ip.addresses().filter_map(of_address);
        [Learned::Anew].into_iter().chain(addresses).chain(parameters).chain(routes).chain(paths).collect()
    }

    /// The listeners of a netstack.
    pub(crate) fn heard(&self, id: NetstackId) -> Vec<Heard> {
        let Some(shard) = self.shards.get(id) else { return Vec::new() };
        let heard = |(socket, listening): (SocketId, &super::shard::Listening)| {
            let (ip, v6_only) = listening.address.parts();
            let listen = Listen {
                socket,
                local: SocketAddr::new(ip, listening.port.0),
                v6_only,
                shares: listening.shares,
                slot: listening.slot.clone(),
                rings: listening.rings,
                options: listening.options,
            };
            (listen, shard.socket_filters.get(&socket).map(|it| Arc::clone(&it.setup)))
        };
        shard.listening.iter().map(|(number, it)| heard((SocketId(number), it))).collect()
    }
}
