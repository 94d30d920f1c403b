//! Address translation at a netstack's doors: what comes in by a link is translated before the filter sees it, what leaves by one behind
//! the filter; so rules see the addresses of inside, as in IPFilter.
//!
//! A netstack's translator lives in its home lane, and while there is one all IPv4 packets that arrive by links go there
//! (`Links::set_doors`): one mapping serves whatever is at the other end, and the two ways of a translated conversation have no
//! hash in common. What is for the netstack itself then goes on to the lane that has its sockets. A known flow's session stands in its entry
//! among the forwarded flows (`onward.rs`), and its packets change without a search.

use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use firelane_classify::{ConnTable, Fragment, Headers, L3, Listeners, Steering, SteeringKey};
use firelane_frame::{Checksum, Frame};
use firelane_ip::{Adjacency, Ip, LOOPBACK};
use firelane_nat::{Arrived, Host, Nat, NatCounts, NatList, NatRef, NatRow, Outcome};
use firelane_udp::{Blamed, UdpTable};
use firelane_units::{Direction, Instant, LaneId, LinkId, NetstackId, Port};
use firelane_wire::IpProtocol;

use super::conn::Conns;
use super::early::Stay;
use super::inbound::Inside;
use super::shard::Shard;
use super::{NO_NETSTACK, Stacks};
use crate::common::Common;
use crate::control::Refusal;
use crate::message::{NetstackConfig, Stage};
use crate::steer::{connection_lane, datagram_lane, lane_of};
use crate::steps::Step;
use crate::watch::Sight;

/// The netstack that a translator works for, as it asks about it.
struct Own<'a> {
    config: &'a NetstackConfig,
    ip: &'a Ip,
    conns: &'a Conns,
    shard_conns: &'a ConnTable,
    listeners: &'a Listeners,
    udp: &'a UdpTable,
    echoes: &'a UdpTable,
    /// Which lanes have its other sockets, unless they were asked.
    elsewhere: Option<Elsewhere<'a>>,
}

/// The lanes that a netstack's sockets are in, seen from its home.
struct Elsewhere<'a> {
    steering: &'a Steering,
    key: SteeringKey,
    home: LaneId,
    /// What is expected may be for a socket in another of them.
    is_asked: Cell<bool>,
}

impl Elsewhere<'_> {
    /// Whether another lane would have the socket that a packet is for, if there is one: that one says.
    fn may_expect(&self, protocol: IpProtocol, local: SocketAddr, remote: SocketAddr) -> bool {
        let is_there = match protocol {
            IpProtocol::TCP | IpProtocol::UDP if self.steering.is_settling() => true,
            IpProtocol::TCP => Inside::<()>::tuple(local, remote)
                .is_some_and(|tuple| connection_lane(&tuple, self.steering, &self.key) != self.home),
            IpProtocol::UDP => datagram_lane(Port(local.port()), self.steering, &self.key) != self.home,
            _ => false,
        };
        self.is_asked.set(self.is_asked.get() || is_there);
        is_there
    }
}

impl Own<'_> {
    fn has_socket(&self, protocol: IpProtocol, local: SocketAddr, remote: SocketAddr) -> bool {
        let (address, port) = (local.ip(), Port(local.port()));
        match protocol {
            IpProtocol::TCP => self.listeners.lookup(address, port, || 0).is_some(),
            // Sockets that are bound to a device are asked about as if it were this one.
            IpProtocol::UDP => self.udp.lookup(LOOPBACK, local, remote).is_some(),
            IpProtocol::ICMPV4 => self.echoes.lookup(LOOPBACK, local, remote).is_some(),
            _ => false,
        }
    }

    fn is_connected(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let of_tuple = |tuple| self.shard_conns.lookup(&tuple, |id| self.conns.is_named(id, &tuple));
        Inside::<()>::tuple(local, remote).and_then(of_tuple).is_some()
    }

    /// Whether the netstack chooses ports of its own sockets from there on: whoever has one has asked somebody for something.
    fn is_chosen(&self, protocol: IpProtocol, local: SocketAddr) -> bool {
        let IpAddr::V4(address) = local.ip() else { return false };
        self.chooses_from(protocol, address).is_some_and(|first| first.0 <= local.port())
    }
}

impl Host for Own<'_> {
    fn owns(&self, address: Ipv4Addr) -> bool {
        self.ip.is_local(address.into())
    }

    fn address_of(&self, link: LinkId) -> Option<Ipv4Addr> {
        self.ip.first_own(link)
    }

    fn link_of(&self, address: Ipv4Addr) -> Option<LinkId> {
        self.ip.link_of(address.into())
    }

    fn uses(&self, arrived: &firelane_nat::Tuple) -> bool {
        let (local, remote) = ends_of(arrived);
        self.has_socket(arrived.protocol, local, remote)
            || arrived.protocol == IpProtocol::TCP && self.is_connected(local, remote)
    }

    fn chooses_from(&self, protocol: IpProtocol, address: Ipv4Addr) -> Option<Port> {
        let ports = match protocol {
            IpProtocol::TCP => &self.config.tcp_ports,
            IpProtocol::UDP => &self.config.udp_ports,
            _ => return None,
        };
        self.owns(address).then(|| Port(*ports.start()))
    }

    fn expects(&self, arrived: &firelane_nat::Tuple) -> bool {
        let elsewhere = self.elsewhere.as_ref().filter(|_| self.owns(arrived.dst));
        let (local, remote) = ends_of(arrived);
        self.uses(arrived) || elsewhere.is_some_and(|it| it.may_expect(arrived.protocol, local, remote))
    }

    fn has_begun(&self, &Arrived { tuple, begins, is_of_ports }: &Arrived) -> bool {
        let (protocol, (local, remote)) = (tuple.protocol, ends_of(&tuple));
        // Who waits for whoever comes has begun nothing, and most programs that ask many of one socket let the netstack choose its port.
        let is_askers = || !is_of_ports && self.is_chosen(protocol, local);
        let is_here = match protocol {
            IpProtocol::TCP => self.is_connected(local, remote),
            IpProtocol::UDP => match self.udp.blamed(local, remote) {
                Some(Blamed::Connected(_)) => true,
                Some(Blamed::Unconnected(_)) => is_askers(),
                None => false,
            },
            _ => self.has_socket(protocol, local, remote),
        };
        // Another lane answers for all sockets that it has, and a flood of those who begin is not sent round.
        let may_be_there = match protocol {
            IpProtocol::TCP => !begins,
            _ => is_askers(),
        };
        let elsewhere = self.elsewhere.as_ref().filter(|_| may_be_there);
        is_here || elsewhere.is_some_and(|it| it.may_expect(protocol, local, remote))
    }
}

/// The netstack's end of what arrives, and the other.
fn ends_of(arrived: &firelane_nat::Tuple) -> (SocketAddr, SocketAddr) {
    let [from, to] = arrived.ports;
    (SocketAddr::new(arrived.dst.into(), to), SocketAddr::new(arrived.src.into(), from))
}

/// What came in has other ends now: its headers, and a whole packet's session.
pub(super) type Changed = (Headers, Option<NatRef>);

/// Whether a frame's checksum is that of the pseudo-header as yet.
pub(super) fn is_open(frame: &Frame) -> bool {
    matches!(frame.meta().checksum, Checksum::Partial { .. })
}

impl Stacks {
    /// A netstack's translator follows other rules; without any it goes, and what it has made with it. Answers which lanes get what
    /// arrives by the netstack's links from here on.
    pub(crate) fn set_nat<D>(
        &mut self,
        common: &mut Common<D>,
        id: NetstackId,
        list: &Arc<NatList>,
    ) -> Result<Steering, Refusal> {
        let mut inside = self.inside(common, id).ok_or(NO_NETSTACK)?;
        if list.is_empty() {
            inside.give_up_pieces();
        }
        let Inside { common, shard, .. } = inside;
        if shard.config.steering.home() == common.id {
            shard.gate.set_nat(list, common.secrets.of(id).nat());
        }
        shard.is_translated = !list.is_empty();
        // Forwarded flows' lists of steps are chosen anew.
        shard.ip.core.decide_anew();
        Ok(shard.doors())
    }

    /// Ends all that a netstack's translator has made; how many sessions there were.
    pub(crate) fn flush_nat(&mut self, id: NetstackId) -> Option<u64> {
        Some(self.shards.get_mut(id)?.gate.nat()?.flush())
    }

    /// What a netstack's translator has counted, if it lives in this lane.
    pub(crate) fn nat_counts(&self, id: NetstackId) -> Option<NatCounts> {
        Some(self.shards.get(id)?.gate.nat_seen()?.counts())
    }

    /// Its sessions from a place on, and where to go on.
    pub(crate) fn nat_rows(
        &self,
        id: NetstackId,
        from: u32,
        most: usize,
    ) -> Option<(Vec<NatRow>, Option<u32>)> {
        Some(self.shards.get(id)?.gate.nat_seen()?.rows(from, most))
    }
}

impl<D> Inside<'_, D> {
    /// A packet comes in past all that looks at it before the netstack: gives the frame back if it may, and what has changed if it
    /// has other ends now.
    pub(super) fn pass_doors(
        &mut self,
        (link, asked): (LinkId, Option<LaneId>),
        frame: Frame,
        headers: &Headers,
    ) -> Option<(Frame, Option<Changed>)> {
        let (frame, changed) = match self.shard.gate.has_nat() {
            true => self.translate_in((link, asked), frame, headers)?,
            false => (frame, None),
        };
        let headers = changed.as_ref().map_or(headers, |(changed, _)| changed);
        // A piece that another lane's filter has let through is asked about no more.
        let is_let_in = asked.is_some() && headers.fragment != Fragment::Whole;
        match self.shard.gate.has_filter() && !is_let_in {
            true => self.come_in(link, frame, headers).0.map(|frame| (frame, changed)),
            false => Some((frame, changed)),
        }
    }

    /// A packet comes in: gives the frame back unless it ends here or goes on in another lane, and of a translated one its new
    /// headers and its session.
    pub(super) fn translate_in(
        &mut self,
        (link, asked): (LinkId, Option<LaneId>),
        mut frame: Frame,
        headers: &Headers,
    ) -> Option<(Frame, Option<Changed>)> {
        let dst = match headers.l3 {
            L3::V4 { dst, .. } => IpAddr::V4(dst),
            L3::V6 { dst, .. } => IpAddr::V6(dst),
            _ => return Some((frame, None)),
        };
        if link == LOOPBACK {
            return Some((frame, None));
        }
        // What was made before it is asked about before it.
        self.go_out();
        let (outcome, is_in_doubt) = match self.is_awaited(link, &frame, headers) {
            true => (Outcome::Untouched, false),
            false => self.translate((Direction::In, link), &mut frame, headers.l3_offset, asked),
        };
        match outcome {
            Outcome::Ended(reason) => {
                self.drop_frame(frame, reason);
                None
            }
            Outcome::Early(piece) => {
                self.keep(piece, frame);
                None
            }
            // The lane that has its sockets has asked this one.
            Outcome::Untouched if asked.is_some() => Some((frame, None)),
            Outcome::Untouched if is_in_doubt && headers.tuple().is_some() => {
                self.ask_for(link, frame, headers);
                None
            }
            Outcome::Untouched => match self.lane_of_own(link, dst, &frame, headers) {
                Some(lane) => {
                    self.common.hand_over(lane, Stage::Door(self.shard.config.id), link, frame);
                    None
                }
                None if self.shard.config.steering.is_settling() => {
                    self.ask_next((link, asked), frame, headers).map(|frame| (frame, None))
                }
                None => Some((frame, None)),
            },
            Outcome::Translated(session) => match Headers::parse(frame.as_slice()) {
                Ok(headers) => Some((frame, Some((headers, session)))),
                Err(reason) => {
                    self.drop_frame(frame, reason);
                    None
                }
            },
        }
    }

    /// A packet leaves: its session if it was translated, or why it stays here.
    pub(crate) fn translate_out(
        &mut self,
        frame: &mut Frame,
        l3_offset: u16,
    ) -> Result<Option<NatRef>, Stay> {
        let link = frame.meta().ingress;
        match self.translate((Direction::Out, link), frame, l3_offset, None).0 {
            Outcome::Ended(reason) => Err(Stay::Ended(reason)),
            Outcome::Early(piece) => Err(Stay::Early(piece)),
            Outcome::Untouched => Ok(None),
            Outcome::Translated(session) => Ok(session),
        }
    }

    /// What becomes of a packet; and whether it may yet become another, if no other lane has a socket for it.
    fn translate(
        &mut self,
        (direction, link): (Direction, LinkId),
        frame: &mut Frame,
        l3_offset: u16,
        asked: Option<LaneId>,
    ) -> (Outcome, bool) {
        self.step(Step::Nat, direction, frame.meta().trace, |it| {
            let is_open = is_open(frame);
            let Some(packet) = frame.as_mut_slice().get_mut(usize::from(l3_offset)..) else {
                return (Outcome::Untouched, false);
            };
            let passed = it.ask_nat(asked, |nat, own, now| {
                let outcome = nat.pass((direction, link), packet, is_open, own, now);
                (outcome, own.elsewhere.as_ref().is_some_and(|it| it.is_asked.get()))
            });
            let passed = passed.unwrap_or((Outcome::Untouched, false));
            if matches!(passed.0, Outcome::Translated(_)) && frame.meta().trace != 0 {
                it.show_ends(frame);
            }
            passed
        })
    }

    /// Asks the translator, if there is one here, and lets it ask about this netstack; about sockets of other lanes, too, unless one of
    /// those has asked.
    #[inline]
    fn ask_nat<T>(
        &mut self,
        asked: Option<LaneId>,
        ask: impl FnOnce(&mut Nat, &Own<'_>, Instant) -> T,
    ) -> Option<T> {
        let Shard { gate, ip, conns, listeners, udp, echoes, others, config, .. } = &mut *self.shard;
        let (key, home, now) = (self.common.secrets.steering(), self.common.id, self.common.now);
        let nat = gate.nat()?;
        let is_spread = asked.is_none() && !others.is_empty();
        let is_asked = Cell::new(false);
        let elsewhere = is_spread.then_some(Elsewhere { steering: &config.steering, key, home, is_asked });
        let (ip, shard_conns) = (&ip.core, &*conns);
        let own = Own { config, ip, conns: self.conns, shard_conns, listeners, udp, echoes, elsewhere };
        Some(ask(nat, &own, now))
    }

    /// Somebody inside gets a packet unless another lane has a socket for it: that lane is asked, and what it has not comes back.
    #[cold]
    fn ask_for(&mut self, link: LinkId, frame: Frame, headers: &Headers) {
        let (steering, me) = (&self.shard.config.steering, self.common.id);
        let lane = match steering.is_settling() {
            true => steering.next_to_ask(me, me).unwrap_or(me),
            false => lane_of(headers, steering, &self.common.secrets.steering()),
        };
        self.common.hand_over(lane, Stage::Asked(self.shard.config.id, me), link, frame);
    }

    /// Tells whoever follows a frame which ends it has now.
    #[cold]
    fn show_ends(&mut self, frame: &Frame) {
        if let Ok(headers) = Headers::parse(frame.as_slice()) {
            self.common.see(frame.meta().trace, Sight::Translated(headers));
        }
    }

    /// The other lane that has the sockets for what is for this netstack itself.
    fn lane_of_own(&self, link: LinkId, dst: IpAddr, frame: &Frame, headers: &Headers) -> Option<LaneId> {
        let is_own = self.shard.ip.core.is_local(dst) || headers.dst.is_multicast();
        if self.shard.others.is_empty() || !is_own {
            return None;
        }
        let quoted = || self.lane_of_quoted(link, frame.as_slice(), headers);
        let (steering, key) = (&self.shard.config.steering, self.common.secrets.steering());
        let lane = Some(lane_of(headers, steering, &key)).filter(|&lane| lane != self.common.id);
        lane.or_else(quoted)
    }

    /// A packet of a known flow with a session, where nothing else looks at packets: its change and its way onward. Gives the frame back, of which nothing was
    /// counted then, if it has to be asked about.
    #[inline]
    pub(crate) fn pass_translated(
        &mut self,
        known: NatRef,
        adjacency: &Adjacency,
        mut frame: Frame,
    ) -> Result<(), Frame> {
        if adjacency.link == LOOPBACK {
            return Err(frame);
        }
        // What was made before it is asked about before it.
        self.go_out();
        let Some(usual) = adjacency.usual(&frame) else { return Err(frame) };
        let is_open = is_open(&frame);
        let Some(packet) = frame.as_mut_slice().get_mut(L3_OFFSET..) else { return Err(frame) };
        let followed = self.ask_nat(None, |nat, own, now| {
            nat.place_of(known).is_some_and(|at| nat.follow(known, at, packet, is_open, own, now))
        });
        if followed != Some(true) {
            return Err(frame);
        }
        self.shard.ip.pass_usual(adjacency, usual, frame);
        self.shard.gate.let_out();
        Ok(())
    }
}

/// Where the packet begins in a frame of the usual kind ([`Adjacency::usual`]).
const L3_OFFSET: usize = firelane_wire::EthernetView::HEADER_LEN;
