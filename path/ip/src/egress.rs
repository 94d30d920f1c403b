//! The way to a destination, decided once and cached by its user (RFC 1122 §3.3.1, RFC 4861 §5.2).
//!
//! An [`Egress`] says which link, which source, which next hop and how large. It is good while the shard's
//! generation is its own; whatever changes ways (addresses, routes, neighbours, path MTUs) begins a new
//! generation, and [`Ip::send`](crate::Ip::send) looks again by itself.

use core::net::{IpAddr, Ipv4Addr};

use firelane_units::{Instant, LinkId, MacAddr, Mtu};
use firelane_wire::ethernet;

use crate::address::broadcast_of;
use crate::config::{LOOPBACK, LOOPBACK_MAC};
use crate::ident::CounterId;
use crate::neighbour::{NeighbourId, NextHop, Standing};
use crate::route::{Origin, Route, RouteKind, Routes};
use crate::stack::Ip;

/// Gateways that are taken for silent at once: each search for a way goes through them.
const SUSPECTS_MAX: usize = 64;

/// The way to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Egress {
    /// By which link; [`LOOPBACK`] if the destination is this netstack.
    pub link: LinkId,
    /// That link's own address.
    pub src_mac: MacAddr,
    /// Who takes it first: a gateway, or the destination.
    pub next_hop: IpAddr,
    /// The next hop's address, if it is known.
    pub dst_mac: Option<MacAddr>,
    /// The source address.
    pub src: IpAddr,
    /// The destination.
    pub dst: IpAddr,
    /// The largest packet on the way, as far as it is known.
    pub mtu: Mtu,
    /// The hop limit, or TTL, of packets that name none.
    pub hops: u8,
    /// What the route's operator has to say to transports; zero is nothing.
    pub hint: u8,
    /// The only link that its user speaks over, if there is one ([`Ip::egress_over`], [`Ip::egress_by`]).
    pub bound: Option<LinkId>,
    /// The generation in which this was found.
    pub generation: u32,
    /// Packets that come by this link from the destination to the source are in order.
    pub(crate) leads_back: bool,
    pub(crate) neighbour: Option<NeighbourId>,
    /// The counter of its datagrams' numbers, found when the first is cut or may be.
    pub(crate) counter: Option<CounterId>,
}

/// Why there is no way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteError {
    /// No route (ENETUNREACH).
    NoRoute,
    /// No address that may be the source (EADDRNOTAVAIL).
    NoSource,
    /// The source is not an address of this netstack, or not usable yet (EADDRNOTAVAIL).
    SourceNotOurs,
    /// Source and destination are of different families.
    Family,
}

impl core::fmt::Display for RouteError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoRoute => "no route to the destination",
            Self::NoSource => "no address that may be the source",
            Self::SourceNotOurs => "the source address is not usable here",
            Self::Family => "source and destination are of different families",
        })
    }
}

impl core::error::Error for RouteError {}

/// Why there is no way onward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoWay {
    /// Nobody has said one.
    NoRoute,
    /// A route at which packets end says so.
    Ends(RouteKind),
}

/// Where a packet goes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub(crate) link: LinkId,
    pub(crate) next_hop: IpAddr,
    /// The Ethernet address of a group, of oneself, or of the only other station; of others it is asked for.
    pub(crate) mac: Option<MacAddr>,
    pub(crate) hint: u8,
}

impl Ip {
    /// Whether an address is everybody's, on a subnet or on all.
    pub fn is_broadcast(&self, addr: IpAddr) -> bool {
        matches!(addr, IpAddr::V4(v4) if self.addresses.is_broadcast(v4))
    }

    /// The way to `dst`, from `src` or from the address that suits best.
    pub fn egress(&mut self, now: Instant, src: Option<IpAddr>, dst: IpAddr) -> Result<Egress, RouteError> {
        let Some(named) = src else { return self.egress_by(now, None, None, dst) };
        if let Some(recent) = self.recent_way(now, named, dst) {
            return Ok(recent);
        }
        let found = self.egress_by(now, None, src, dst)?;
        self.remember_way(&found);
        Ok(found)
    }

    /// The same; packets to a group, to everybody, or to a neighbour by its link-local address leave by `link` if
    /// one is named.
    pub fn egress_by(
        &mut self,
        now: Instant,
        link: Option<LinkId>,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<Egress, RouteError> {
        if let Some(src) = src {
            self.check_source(src, dst)?;
        }
        if stays_here(link, src, dst) {
            return self.egress_to_own(now, src, dst);
        }
        let lone = || lone_way(link?, dst).filter(|_| !is_loopbacks(src));
        let mut way = self.way(src, dst).or_else(lone).ok_or(RouteError::NoRoute)?;
        let is_everywhere = dst.is_multicast() || is_link_local(dst) || way.mac == Some(MacAddr::BROADCAST);
        let Some(link) = link.filter(|_| is_everywhere && way.link != LOOPBACK) else {
            return self.leave_by(now, way, src, dst);
        };
        way.link = link;
        if is_link_local(dst) {
            way.mac = self.interfaces.peer(link);
        }
        // Whoever looks again, for the next generation or once the neighbour is known, is still to leave by it.
        Ok(Egress { bound: Some(link), ..self.leave_by(now, way, src, dst)? })
    }

    /// The way to everybody, or to the members of a group, in this netstack, and to nobody else. As in Linux, IPv6 has none.
    fn egress_to_own(
        &mut self,
        now: Instant,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<Egress, RouteError> {
        if dst.is_ipv6() {
            return Err(RouteError::NoRoute);
        }
        let mac = if dst.is_multicast() { LOOPBACK_MAC } else { MacAddr::BROADCAST };
        let way = Way { link: LOOPBACK, next_hop: dst, mac: Some(mac), hint: 0 };
        let src = src.or_else(|| self.choose_source(way, dst)).unwrap_or(Ipv4Addr::LOCALHOST.into());
        Ok(Egress { bound: Some(LOOPBACK), ..self.leave_by(now, way, Some(src), dst)? })
    }

    /// The way to `dst` of who speaks over `link` alone (SO_BINDTODEVICE of socket(7)): by the best of the routes over it, or, as in
    /// Linux, as to a neighbour if there is none. What is for an address of the link itself comes back to us, and no other of
    /// ours is beyond the link. (We differ there: Linux looks for a neighbour that has it.)
    pub fn egress_over(
        &mut self,
        now: Instant,
        link: LinkId,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<Egress, RouteError> {
        if let Some(src) = src {
            self.check_source(src, dst)?;
        }
        if stays_here(Some(link), src, dst) {
            return self.egress_to_own(now, src, dst);
        }
        let way = self.way_over(link, src, dst).ok_or(RouteError::NoRoute)?;
        let egress = self.leave_by(now, way, src, dst)?;
        Ok(Egress { bound: Some(link), ..egress })
    }

    /// Whether a route over `link` leads to `dst`.
    pub fn leads_over(&self, link: LinkId, src: Option<IpAddr>, dst: IpAddr) -> bool {
        is_link_local(dst)
            || dst.is_multicast()
            || self.routed((src, Some(link)), None, Some(link), dst).is_ok()
    }

    /// [`Ip::egress_over`] for who is bound to a link, and [`Ip::egress`] for all others.
    #[inline]
    pub fn egress_for(
        &mut self,
        now: Instant,
        bound: Option<LinkId>,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<Egress, RouteError> {
        match bound {
            None => self.egress(now, src, dst),
            Some(link) => self.egress_over(now, link, src, dst),
        }
    }

    fn way_over(&self, link: LinkId, src: Option<IpAddr>, dst: IpAddr) -> Option<Way> {
        if dst.is_unspecified() || self.is_local(dst) {
            return self.way(src, dst).filter(|_| self.link_of(dst).unwrap_or(LOOPBACK) == link);
        }
        if link == LOOPBACK || is_loopbacks(src) {
            return None;
        }
        let to_all = match dst {
            _ if dst.is_multicast() => Some(ethernet::group_mac(dst)),
            IpAddr::V4(v4) if self.addresses.is_broadcast(v4) => Some(MacAddr::BROADCAST),
            _ => None,
        };
        if to_all.is_some() {
            return Some(Way { link, next_hop: dst, mac: to_all, hint: 0 });
        }
        match self.routed((src, Some(link)), None, Some(link), dst) {
            _ if is_link_local(dst) => {}
            Ok(way) => return Some(way),
            Err(NoWay::Ends(_)) => return None,
            Err(NoWay::NoRoute) => {}
        }
        Some(Way { link, next_hop: dst, mac: self.interfaces.peer(link), hint: 0 })
    }

    fn leave_by(
        &mut self,
        now: Instant,
        way: Way,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<Egress, RouteError> {
        let src = match src {
            Some(src) => src,
            None => self.choose_source(way, dst).ok_or(RouteError::NoSource)?,
        };
        let interface = *self.interfaces.get(way.link).ok_or(RouteError::NoRoute)?;
        let neighbour = match way.mac {
            Some(_) => None,
            None => self.neighbours.resolve(now, way.link, way.next_hop),
        };
        Ok(Egress {
            link: way.link,
            src_mac: interface.mac,
            next_hop: way.next_hop,
            dst_mac: way.mac.or(neighbour.map(|(_, mac)| mac)),
            src,
            dst,
            mtu: self.paths.mtu(dst, self.interfaces.mtu(way.link, dst).unwrap_or(interface.mtu)),
            hops: self.hops(way.link, dst),
            hint: way.hint,
            bound: None,
            generation: self.generation,
            leads_back: self.is_way_back(way.link, src, dst),
            neighbour: neighbour.map(|(id, _)| id),
            counter: None,
        })
    }

    /// The way to `dst` of what is still said in the name of `src`, an address that `link` has had: as long as its subnet is known
    /// ([`Ip::withdraw_address`]), the way that it had.
    pub fn egress_in_name(
        &mut self,
        now: Instant,
        link: LinkId,
        src: IpAddr,
        dst: IpAddr,
    ) -> Result<Egress, RouteError> {
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(RouteError::Family);
        }
        let way = if self.is_local(dst) {
            Ok(Way { link: LOOPBACK, next_hop: dst, mac: Some(LOOPBACK_MAC), hint: 0 })
        } else if is_link_local(dst) {
            Ok(Way { link, next_hop: dst, mac: self.interfaces.peer(link), hint: 0 })
        } else {
            self.routed((Some(src), Some(link)), None, None, dst)
        };
        self.leave_by(now, way.map_err(|_| RouteError::NoRoute)?, Some(src), dst)
    }

    /// The way to everybody on `link` for a station that has no address there yet (RFC 1122 §3.2.1.3 (a), RFC 2131
    /// §4.1).
    pub fn egress_without_source(&self, link: LinkId) -> Result<Egress, RouteError> {
        let interface = self.interfaces.get(link).ok_or(RouteError::NoRoute)?;
        let dst = IpAddr::V4(Ipv4Addr::BROADCAST);
        Ok(Egress {
            link,
            src_mac: interface.mac,
            next_hop: dst,
            dst_mac: Some(MacAddr::BROADCAST),
            src: Ipv4Addr::UNSPECIFIED.into(),
            dst,
            mtu: interface.mtu,
            hops: self.config.hops.v4,
            hint: 0,
            bound: Some(link),
            generation: self.generation,
            // Nobody answers to no address.
            leads_back: false,
            neighbour: None,
            counter: None,
        })
    }

    /// Whether nothing has changed since `egress` was found.
    #[inline]
    pub const fn is_current(&self, egress: &Egress) -> bool {
        egress.generation == self.generation
    }

    /// What a packet finds that leaves by `egress` at this moment. Who has more to send than may wait for an address keeps it meanwhile.
    pub fn next_hop(&self, egress: &Egress) -> NextHop {
        match egress.dst_mac {
            Some(_) => NextHop::Known,
            None => self.neighbours.next_hop(egress.link, egress.next_hop),
        }
    }

    /// A transport made progress to `egress`' destination: its next hop need not be asked (RFC 4861
    /// §7.3.1). Cheap enough for every acknowledgment.
    #[inline]
    pub fn confirm_reachable(&mut self, now: Instant, egress: &Egress) {
        if let (Some(id), Some(mac)) = (egress.neighbour, egress.dst_mac)
            && self.is_current(egress)
        {
            self.neighbours.confirm(now, id, mac);
        }
    }

    /// A transport has waited in vain for `dst`: the next hop of `src`'s packets is asked whether it is there.
    pub fn doubt(&mut self, now: Instant, src: IpAddr, dst: IpAddr) {
        if let Ok(egress) = self.egress(now, Some(src), dst)
            && let Some(id) = egress.neighbour
        {
            self.neighbours.doubt(now, id);
        }
    }

    fn check_source(&self, src: IpAddr, dst: IpAddr) -> Result<(), RouteError> {
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(RouteError::Family);
        }
        if self.is_local(src) { Ok(()) } else { Err(RouteError::SourceNotOurs) }
    }

    /// Whether packets for `addr` are for this netstack: a usable address, or the loopback's.
    #[inline]
    pub fn is_local(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.addresses.is_usable(addr)
    }

    /// This host's own address of a link by which `peer` is spoken to: one of his subnet, before others.
    pub fn own_towards(&self, link: LinkId, peer: IpAddr) -> Option<Ipv4Addr> {
        match peer {
            IpAddr::V4(peer) if peer.is_loopback() => Some(Ipv4Addr::LOCALHOST),
            IpAddr::V4(_) => self.addresses.source_v4_towards(link, peer),
            IpAddr::V6(_) => None,
        }
    }

    /// This host's first own address of a link: aliases (/32) stand beside that one.
    pub fn first_own(&self, link: LinkId) -> Option<Ipv4Addr> {
        self.addresses.first_v4(link)
    }

    /// Where a packet for `dst` goes next.
    pub(crate) fn way(&self, src: Option<IpAddr>, dst: IpAddr) -> Option<Way> {
        if dst.is_unspecified() {
            return None;
        }
        if self.is_local(dst) {
            return Some(Way { link: LOOPBACK, next_hop: dst, mac: Some(LOOPBACK_MAC), hint: 0 });
        }
        if is_loopbacks(src) {
            return None;
        }
        let src_link = src.and_then(|src| self.addresses.get(src)).map(|address| address.link);
        if dst.is_multicast() {
            let link = self.group_link(src_link, dst)?;
            return Some(Way { link, next_hop: dst, mac: Some(ethernet::group_mac(dst)), hint: 0 });
        }
        if let IpAddr::V4(v4) = dst
            && self.addresses.is_broadcast(v4)
            && let Some(link) = self.broadcast_link(src_link, v4)
        {
            return Some(Way { link, next_hop: dst, mac: Some(MacAddr::BROADCAST), hint: 0 });
        }
        if is_link_local(dst) {
            let link = self.group_link(src_link, dst)?;
            return Some(Way { link, next_hop: dst, mac: self.interfaces.peer(link), hint: 0 });
        }
        self.routed((src, src_link), None, None, dst).ok()
    }

    /// Where a packet of another station goes next, that is for none of ours: as far as routes say so.
    pub(crate) fn way_onward(&self, flow: u32, src: IpAddr, dst: IpAddr) -> Result<Way, NoWay> {
        self.routed((Some(src), None), Some(flow), None, dst)
    }

    /// By the longest matching route; of several alike, by the one over the source's own link, whose limits
    /// the source's packets are subject to. `over` is the only link that counts.
    fn routed<'a>(
        &'a self,
        (src, src_link): (Option<IpAddr>, Option<LinkId>),
        flow: Option<u32>,
        over: Option<LinkId>,
        dst: IpAddr,
    ) -> Result<Way, NoWay> {
        let score = |route: &Route| {
            if route.kind != RouteKind::Unicast {
                return Some((route.is_administered(), Standing::Silent, false));
            }
            let link = self.route_link(route)?;
            let counts = over.is_none_or(|over| over == link);
            counts.then(|| (route.is_administered(), self.standing(route, link), src_link == Some(link)))
        };
        let best = |routes: &'a Routes| match flow {
            Some(flow) => routes.best_for_flow(dst, flow, score),
            None => routes.best(dst, score),
        };
        let of_source = self.sourced.of(src).find_map(&best);
        let route = of_source.or_else(|| best(&self.routes)).ok_or(NoWay::NoRoute)?;
        if route.kind != RouteKind::Unicast {
            return Err(NoWay::Ends(route.kind));
        }
        let link = self.route_link(route).ok_or(NoWay::NoRoute)?;
        let (next_hop, mac) = (route.gateway.unwrap_or(dst), self.interfaces.peer(link));
        Ok(Way { link, next_hop, mac, hint: route.hint })
    }

    /// Whether a route's router answers (RFC 4861 §6.3.6). The operator's are believed until they are found silent (RFC
    /// 1122 §3.3.1.4).
    fn standing(&self, route: &Route, link: LinkId) -> Standing {
        match (route.origin, route.gateway) {
            (_, Some(router)) if self.suspects.contains(&(link, router)) => Standing::Silent,
            (Origin::Router(_), Some(router)) => self.neighbours.standing(link, router),
            _ => Standing::Answers,
        }
    }

    /// A neighbour does not answer: if it is a router, another is asked first, until this one is heard again. Says whether
    /// that is new.
    pub(crate) fn suspect(&mut self, link: LinkId, ip: IpAddr) -> bool {
        let is_new_router = self.routes.is_from_router(link, ip) && self.note_suspect(link, ip);
        self.suspect_default(link, ip) || is_new_router
    }

    /// RFC 1122 §3.3.1.4: a neighbour in use has stopped to answer: if it is a default gateway of the operator's or of a lease, another one
    /// that is as good is asked from here on. Only default routes are looked at, which are few: anybody can make
    /// neighbours fail.
    pub(crate) fn suspect_default(&mut self, link: LinkId, ip: IpAddr) -> bool {
        let is_gateway = |route: &Route| {
            let is_his = !matches!(route.origin, Origin::Router(_));
            is_his && route.gateway == Some(ip) && self.route_link(route) == Some(link)
        };
        self.routes.defaults().any(is_gateway) && self.note_suspect(link, ip)
    }

    fn note_suspect(&mut self, link: LinkId, ip: IpAddr) -> bool {
        if self.suspects.contains(&(link, ip)) {
            return false;
        }
        // The oldest is tried again.
        if self.suspects.len() == SUSPECTS_MAX {
            self.suspects.remove(0);
        }
        self.suspects.push((link, ip));
        true
    }

    /// A route has ended: whoever is a gateway no more is no suspect if he becomes one again.
    pub(crate) fn absolve(&mut self, gone: &Route) {
        let is_his = |&(_, ip): &(LinkId, IpAddr)| gone.gateway == Some(ip);
        let is_looked_at = gone.destination.prefix_len() == 0 || gone.origin.is_routers();
        if !is_looked_at || !self.suspects.iter().any(is_his) {
            return;
        }
        let mut suspects = core::mem::take(&mut self.suspects);
        suspects.retain(|suspect| {
            let (link, ip) = *suspect;
            !is_his(suspect) || self.is_default_gateway(link, ip) || self.routes.is_from_router(link, ip)
        });
        self.suspects = suspects;
    }

    fn is_default_gateway(&self, link: LinkId, ip: IpAddr) -> bool {
        let is_his = |route: &Route| route.gateway == Some(ip) && self.route_link(route) == Some(link);
        self.routes.defaults().any(is_his)
    }

    /// Whether a neighbour is a gateway that some lane may take for silent. Only few routes are looked at: anybody can speak often.
    pub(crate) fn may_be_suspect(&self, link: LinkId, ip: IpAddr) -> bool {
        self.is_default_gateway(link, ip) || self.autoconf.is_router(link, ip)
    }

    /// The hop limit of packets that name none: a group's do not leave the link (RFC 1112 §6.1, RFC 3493 §5.2).
    fn hops(&self, link: LinkId, dst: IpAddr) -> u8 {
        match dst {
            _ if dst.is_multicast() => 1,
            IpAddr::V4(_) => self.config.hops.v4,
            IpAddr::V6(_) => self.interfaces.parameters(link).hop_limit.unwrap_or(self.config.hops.v6),
        }
    }

    /// The link of a route: its own, or the one on which its gateway is.
    pub(crate) fn route_link(&self, route: &Route) -> Option<LinkId> {
        self.link_towards(route.link, route.gateway)
    }

    /// The same of what a route says.
    pub(crate) fn link_towards(&self, link: Option<LinkId>, gateway: Option<IpAddr>) -> Option<LinkId> {
        let link = match (link, gateway) {
            (Some(link), _) => link,
            (None, Some(gateway)) if is_link_local(gateway) => self.group_link(None, gateway)?,
            (None, Some(gateway)) => {
                self.routes.lookup(gateway, |r| r.link.is_some() && r.gateway.is_none())?.link?
            }
            (None, None) => return None,
        };
        self.interfaces.get(link).map(|_| link)
    }

    /// The link for a destination that every link has: the source's, a route's, or the first that has an
    /// address of the family.
    pub(crate) fn group_link(&self, src_link: Option<LinkId>, dst: IpAddr) -> Option<LinkId> {
        let routed = || self.routes.lookup(dst, |r| r.destination.prefix_len() > 0).and_then(|r| r.link);
        let first = || {
            let same_family = |addr: IpAddr| addr.is_ipv4() == dst.is_ipv4();
            self.addresses.iter().find(|a| same_family(a.prefix.addr())).map(|a| a.link)
        };
        src_link.or_else(routed).or_else(first)
    }

    /// The link if `dst` is a broadcast address.
    fn broadcast_link(&self, src_link: Option<LinkId>, dst: Ipv4Addr) -> Option<LinkId> {
        if dst.is_broadcast() {
            return self.group_link(src_link, dst.into());
        }
        let of_subnet = |a: &&crate::Address| broadcast_of(a.prefix) == Some(dst);
        self.addresses.iter().find(of_subnet).map(|address| address.link)
    }
}

/// RFC 1122 §3.2.1.3 (g): such a source is seen by no other station.
fn is_loopbacks(src: Option<IpAddr>) -> bool {
    src.is_some_and(|src| src.is_loopback())
}

/// Whether what is for many is for those in this netstack alone: by the device that is named, or else by that of the source.
fn stays_here(link: Option<LinkId>, src: Option<IpAddr>, dst: IpAddr) -> bool {
    let is_for_many = dst.is_multicast() || dst == Ipv4Addr::BROADCAST;
    is_for_many && link.map_or(is_loopbacks(src), |link| link == LOOPBACK)
}

/// The way to a group by a link that has no address from which it could be found.
fn lone_way(link: LinkId, dst: IpAddr) -> Option<Way> {
    dst.is_multicast().then(|| Way { link, next_hop: dst, mac: Some(ethernet::group_mac(dst)), hint: 0 })
}

impl Egress {
    /// The same way back to this netstack: for its own members of the group that it leads to.
    pub fn looped(&self) -> Self {
        let mtu = Mtu::new(u16::MAX).unwrap_or(self.mtu);
        let (src_mac, dst_mac) = (LOOPBACK_MAC, Some(LOOPBACK_MAC));
        Self { link: LOOPBACK, src_mac, dst_mac, mtu, neighbour: None, ..*self }
    }

    /// Whether it leads to everybody on a link.
    pub fn is_broadcast(&self) -> bool {
        self.dst_mac == Some(MacAddr::BROADCAST)
    }
}

/// Whether an address means another station on every link (RFC 4291 §2.5.6). IPv4's 169.254/16 is routed
/// like a subnet, as it is one.
pub(crate) const fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::IpConfig;

    #[test]
    fn so_many_gateways_are_suspects_and_the_newest_stay() {
        let mut stack = Ip::new(IpConfig::new([1; 16]));
        let suspect = |n: u32| (LinkId(1), IpAddr::V4(Ipv4Addr::from_bits(n)));
        for n in (0..1000).flat_map(|n| [n, n]) {
            let (link, ip) = suspect(n);
            stack.note_suspect(link, ip);
        }
        let newest: Vec<_> = (1000 - SUSPECTS_MAX as u32..1000).map(suspect).collect();
        assert_eq!(stack.suspects, newest);
    }
}
