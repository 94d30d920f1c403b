//! One netstack's IP side in one lane: what it is told, what it tells, and what is shown of it.
//!
//! Owns the tables and hands each packet to the file that knows its protocol. It reads no clock, waits for
//! nothing and sends nothing itself: frames and events lie ready until [`Ip::poll_output`] and
//! [`Ip::poll_event`] take them.

use core::net::IpAddr;
use std::collections::VecDeque;

use firelane_frame::{Chain, Frame, Pools};
use firelane_units::{DropCounters, DropReason, Instant, IpPrefix, LinkId, MacAddr, Mtu};

use crate::address::{Address, AddressError, AddressOrigin, Addresses, DadStep};
use crate::autoconf::Autoconf;
use crate::config::{Forwarding, HopLimits, IfConfig, IfRouting, IpConfig};
use crate::counts::{IpCounts, packets};
use crate::event::{Configured, Hearsay, IpEvent, LinkParameters};
use crate::flow_label::FlowLabels;
use crate::foresight::KnownGateways;
use crate::group_io::LinkReports;
use crate::groups::Groups;
use crate::icmp_limit::IcmpLimit;
use crate::ident::Identifications;
use crate::interface::Interfaces;
use crate::neighbour::{Due, Evidence, Neighbour, Neighbours};
use crate::news_limit::{self, NewsLimit};
use crate::pmtu::{NarrowPath, Paths};
use crate::random::{Keyed, Random};
use crate::reassembly::Reassembly;
use crate::recent_ways::RecentWays;
use crate::refused::Refused;
use crate::route::{Origin, Route, RouteKind, RouteTableError, Routes};
use crate::sourced::SourcedRoutes;

/// Events that wait to be taken; what comes on top is lost, and will be asked for again.
const EVENTS_MAX: usize = 1024;

/// Frames that were made here, as opposed to received or sent by a transport: with them a lane's frames
/// add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Made {
    /// Questions, answers and errors: ARP, neighbour discovery, ICMP.
    pub messages: u64,
    /// Fragments of datagrams that were cut.
    pub fragments: u64,
    /// Datagrams that were put together.
    pub datagrams: u64,
}

/// One netstack's IP side in one lane.
#[derive(Debug)]
pub struct Ip {
    pub(crate) config: IpConfig,
    pub(crate) interfaces: Interfaces,
    pub(crate) addresses: Addresses,
    pub(crate) autoconf: Autoconf,
    pub(crate) routes: Routes,
    /// Those of some sources, which come first.
    pub(crate) sourced: SourcedRoutes,
    pub(crate) neighbours: Neighbours,
    pub(crate) paths: Paths,
    pub(crate) groups: Groups,
    pub(crate) reports: Vec<LinkReports>,
    /// The addresses whose groups are joined.
    pub(crate) own_groups_are: u64,
    pub(crate) refused: Refused,
    /// Routers that have not answered, until they are heard again (RFC 4861 §6.3.6, RFC 1122 §3.3.1.4).
    pub(crate) suspects: Vec<(LinkId, IpAddr)>,
    pub(crate) identifications: Identifications,
    pub(crate) labels: FlowLabels,
    pub(crate) icmp_limit: IcmpLimit,
    pub(crate) news: NewsLimit,
    /// Paths of which anybody may have spoken.
    path_news: NewsLimit,
    pub(crate) reassembly: Reassembly,
    pub(crate) random: Random,
    /// The next stations of routes.
    pub(crate) gateways: KnownGateways,
    pub(crate) generation: u32,
    pub(crate) recent_ways: RecentWays,
    pub(crate) out: Chain,
    /// Storage for the pieces of a datagram that is being cut.
    pub(crate) pieces: Chain,
    pub(crate) made: Made,
    /// Between which addresses tunnels carry packets.
    pub(crate) tunnel_ends: Vec<(IpAddr, IpAddr)>,
    /// What an error outside quotes of a packet in a tunnel, until its sender is told.
    pub(crate) unreached: Vec<u8>,
    pub(crate) counts: IpCounts,
    events: VecDeque<IpEvent>,
    drops: DropCounters,
}

impl Ip {
    /// A netstack without interfaces.
    pub fn new(config: IpConfig) -> Self {
        let keyed = |purpose| Keyed::new(config.secret, purpose);
        let mut random = Random::new(keyed(0), config.replica);
        Self {
            config,
            interfaces: Interfaces::new(),
            addresses: Addresses::new(config.dad),
            autoconf: Autoconf::new(config.stable_secret),
            routes: Routes::new(keyed(1)),
            sourced: SourcedRoutes::new(keyed(1)),
            neighbours: Neighbours::new(keyed(2), &mut random),
            paths: Paths::new(keyed(3)),
            groups: Groups::default(),
            reports: Vec::new(),
            own_groups_are: 0,
            refused: Refused::default(),
            suspects: Vec::new(),
            identifications: Identifications::new(keyed(4), &mut random),
            labels: FlowLabels::new(keyed(7)),
            icmp_limit: IcmpLimit::new(keyed(5)),
            news: NewsLimit::new(keyed(8), news_limit::NEIGHBOURS),
            path_news: NewsLimit::new(keyed(9), news_limit::PATHS),
            reassembly: Reassembly::new(keyed(6)),
            random,
            gateways: KnownGateways::default(),
            generation: 1,
            recent_ways: RecentWays::default(),
            out: Chain::default(),
            pieces: Chain::default(),
            made: Made::default(),
            tunnel_ends: Vec::new(),
            unreached: Vec::new(),
            counts: IpCounts::default(),
            events: VecDeque::new(),
            drops: DropCounters::default(),
        }
    }

    /// Adds an interface, or changes it.
    pub fn add_interface(&mut self, config: IfConfig) {
        self.interfaces.set(config);
        self.begin_generation();
    }

    /// Says that the interface of `link` leads to one other station: it gets all that leaves there, and nobody is asked for, or
    /// who else has an address.
    pub fn set_peer(&mut self, link: LinkId, peer: MacAddr) {
        self.interfaces.set_peer(link, peer);
        self.begin_generation();
    }

    /// Removes an interface with its addresses, routes and neighbours.
    pub fn remove_interface(&mut self, link: LinkId, pools: &mut Pools) {
        if !self.interfaces.remove(link) {
            return;
        }
        let gone: Vec<IpAddr> = self.addresses.on(link).map(|a| a.prefix.addr()).collect();
        for addr in gone {
            self.addresses.remove(link, addr).expect("the address was just listed");
        }
        self.autoconf.forget(link);
        self.groups.forget(link);
        self.reports.retain(|(on, ..)| *on != link);
        self.routes.forget(link);
        self.sourced.forget(link);
        self.suspects.retain(|(on, _)| *on != link);
        let mut waiting = self.neighbours.forget(link);
        while let Some(frame) = waiting.pop() {
            self.give_up(frame, DropReason::NeighbourUnresolved, pools);
        }
        self.begin_generation();
    }

    /// A link has its carrier again, or another device: who is on it may be another than before. Everybody is asked again, routers too
    /// (RFC 4861 §6.3.7), and the lane that keeps the link's addresses tells that they are there (RFC 5227 §2.3, RFC 9131 §4), to which groups
    /// it listens, and tests those that somebody else had.
    pub fn rejoin(&mut self, now: Instant, link: LinkId, pools: &mut Pools) {
        let Some(interface) = self.interfaces.get(link) else { return };
        let announces = interface.is_home && self.interfaces.peer(link).is_none();
        self.suspects.retain(|(on, _)| *on != link);
        let mut waiting = self.neighbours.forget_stations(link);
        while let Some(frame) = waiting.pop() {
            self.give_up(frame, DropReason::NeighbourUnresolved, pools);
        }
        self.begin_generation();
        let usable = self.addresses.on(link).filter(|address| announces && address.is_usable());
        for addr in usable.map(|address| address.prefix.addr()).collect::<Vec<_>>() {
            self.announce(link, addr, pools);
        }
        self.addresses.test_duplicates(now, link);
        self.report_groups_again(now, link);
        self.solicit_again(now, link);
    }

    /// Adds an address, whose test begins, and the route to its subnet.
    pub fn add_address(&mut self, now: Instant, link: LinkId, prefix: IpPrefix) -> Result<(), AddressError> {
        let interface = self.interfaces.get(link).ok_or(AddressError::Link)?;
        let is_elsewhere = !interface.is_home && link != crate::LOOPBACK;
        self.addresses.add(now, link, prefix, AddressOrigin::Operator, &mut self.random)?;
        if is_elsewhere {
            self.addresses.leave_to_home(now, prefix.addr());
        }
        if prefix != IpPrefix::host(prefix.addr()) {
            // Another address of the same subnet may have brought it already.
            let _ = self.routes.add(connected(link, prefix));
        }
        self.begin_generation();
        Ok(())
    }

    /// Removes an address, and the route to its subnet if no other address is in it.
    pub fn remove_address(&mut self, link: LinkId, addr: IpAddr) -> Result<(), AddressError> {
        let prefix = self.withdraw_address(link, addr)?;
        self.forget_subnet(link, prefix);
        Ok(())
    }

    /// Removes an address as [`Ip::remove_address`] does, but leaves the route to its subnet for what is still to be said in its name
    /// ([`Ip::egress_in_name`]); [`Ip::forget_subnet`] removes that. The address with its subnet.
    ///
    /// # Errors
    /// The link does not have it.
    pub fn withdraw_address(&mut self, link: LinkId, addr: IpAddr) -> Result<IpPrefix, AddressError> {
        let prefix = self.addresses.remove(link, addr)?.prefix;
        self.begin_generation();
        Ok(prefix)
    }

    /// Nothing more is said in the name of a withdrawn address: the route to its subnet goes if no other address is in it.
    pub fn forget_subnet(&mut self, link: LinkId, prefix: IpPrefix) {
        self.leave_subnet(link, prefix);
        self.begin_generation();
    }

    /// Gives an operator's address another prefix length, and says whether nothing new shall begin with it. What uses
    /// it goes on.
    pub fn change_address(
        &mut self,
        link: LinkId,
        prefix: IpPrefix,
        is_deprecated: bool,
    ) -> Result<(), AddressError> {
        let before = self.addresses.change(link, prefix, is_deprecated)?;
        if before != prefix {
            self.leave_subnet(link, before);
            if prefix != IpPrefix::host(prefix.addr()) {
                let _ = self.routes.add(connected(link, prefix));
            }
        }
        self.begin_generation();
        Ok(())
    }

    /// An operator's address leaves the subnet of `prefix`: the route there goes unless another one of his needs it. What this host
    /// made brings none, and takes none away.
    fn leave_subnet(&mut self, link: LinkId, prefix: IpPrefix) {
        let network = prefix.network();
        let brings_it = |it: &Address| it.origin == AddressOrigin::Operator && it.prefix.network() == network;
        if !self.addresses.on(link).any(brings_it) {
            let _ = self.routes.remove(connected(link, prefix));
        }
    }

    /// Adds an operator's route: through a gateway, by a link, or both.
    pub fn add_route(
        &mut self,
        destination: IpPrefix,
        gateway: Option<IpAddr>,
        link: Option<LinkId>,
    ) -> Result<(), RouteTableError> {
        self.insert_route(Route { gateway, link, ..Route::ending(destination, RouteKind::Unicast) })
    }

    /// Adds a route; its hint is what transports find in [`Egress::hint`](crate::Egress::hint).
    pub fn insert_route(&mut self, route: Route) -> Result<(), RouteTableError> {
        if route.link.is_some_and(|link| self.interfaces.get(link).is_none()) {
            return Err(RouteTableError::Link);
        }
        match route.source {
            Some(source) => self.sourced.add(route, source)?,
            None => self.routes.add(route)?,
        }
        self.begin_generation();
        Ok(())
    }

    /// Removes an operator's route.
    pub fn remove_route(
        &mut self,
        destination: IpPrefix,
        gateway: Option<IpAddr>,
        link: Option<LinkId>,
    ) -> Result<(), RouteTableError> {
        self.delete_route(Route { gateway, link, ..Route::ending(destination, RouteKind::Unicast) })
    }

    /// Removes a route, whatever its hint.
    pub fn delete_route(&mut self, route: Route) -> Result<(), RouteTableError> {
        match route.source {
            Some(source) => self.sourced.remove(route, source)?,
            None => self.routes.remove(route)?,
        }
        self.absolve(&route);
        self.begin_generation();
        Ok(())
    }

    /// Turns forwarding on or off, for both families or each, where interfaces have nothing of their own to say.
    pub fn set_forwarding(&mut self, forwarding: impl Into<Forwarding>) {
        self.config.forwarding = forwarding.into();
        self.begin_generation();
    }

    /// Says what an interface does with packets for others; whether there is the interface.
    pub fn set_routing(&mut self, link: LinkId, routing: IfRouting) -> bool {
        self.begin_generation();
        self.interfaces.set_routing(link, routing)
    }

    /// Says how large packets by an interface may be from here on, which who sends minds from its next packet on; whether there is the
    /// interface.
    pub fn set_mtu(&mut self, link: LinkId, mtu: Mtu) -> bool {
        self.begin_generation();
        self.interfaces.set_mtu(link, mtu)
    }

    /// Changes the hops that packets made from here on may take.
    pub fn set_hop_limits(&mut self, hops: HopLimits) {
        if self.config.hops != hops {
            self.config.hops = hops;
            self.begin_generation();
        }
    }

    /// Another lane heard a neighbour: at `mac`, or where it is known to be if none is named. An answer confirms the way
    /// there for who has asked.
    pub fn on_neighbour_learned(
        &mut self,
        now: Instant,
        (link, ip): (LinkId, IpAddr),
        mac: Option<MacAddr>,
        how: Hearsay,
    ) {
        self.learn(now, link, ip, mac, Evidence::Hearsay(how));
    }

    /// The home lane has tested an address of ours, and nobody else has it.
    pub fn on_address_ready(&mut self, link: LinkId, addr: IpAddr) {
        if self.addresses.on_ready(link, addr) {
            self.begin_generation();
        }
    }

    /// Another lane heard that somebody else has an address of ours.
    pub fn on_duplicate_address(&mut self, now: Instant, link: LinkId, addr: IpAddr) {
        let home = self.interfaces.is_home(link).then_some(now);
        if self.addresses.on_duplicate(link, addr, home).is_some() {
            self.begin_generation();
        }
    }

    /// The home lane tests an address of ours again that somebody else had.
    pub fn on_address_again(&mut self, link: LinkId, addr: IpAddr) {
        self.addresses.on_again(link, addr);
    }

    /// Another lane learned a path's MTU.
    pub fn on_path_mtu(&mut self, now: Instant, dst: IpAddr, mtu: Mtu) {
        self.lower_path(now, dst, mtu);
    }

    /// A transport that really sent a packet to `dst` was told that it was too large: the path's MTU is
    /// believed, and if it is news, the other lanes are told.
    pub fn confirm_path_mtu(&mut self, now: Instant, dst: IpAddr, mtu: Mtu) {
        if let Some(mtu) = self.lower_path(now, dst, mtu) {
            self.tell(IpEvent::PathMtu { dst, mtu });
        }
    }

    /// The same of a transport that may have sent one and cannot know. Anybody can make it hear that of as many destinations
    /// as he likes, and each costs all lanes their ways and another path its place: only so many are believed.
    pub fn suppose_path_mtu(&mut self, now: Instant, dst: IpAddr, mtu: Mtu) {
        let Some(largest) = self.interfaces.largest_mtu(dst) else { return };
        if self.paths.is_lower(dst, mtu, largest) && self.path_news.allow(now, dst) {
            self.confirm_path_mtu(now, dst, mtu);
        }
    }

    /// What is believed of a path from here on, if that is news. Any link may lead there: for some source, or for who speaks
    /// over it alone.
    fn lower_path(&mut self, now: Instant, dst: IpAddr, mtu: Mtu) -> Option<Mtu> {
        let largest = self.interfaces.largest_mtu(dst)?;
        if !self.paths.lower(now, dst, mtu, largest) {
            return None;
        }
        self.begin_generation();
        Some(self.paths.mtu(dst, largest))
    }

    /// The largest packet on the way to `dst`, if there is a way.
    pub fn path_mtu(&self, dst: IpAddr) -> Option<Mtu> {
        let way = self.way(None, dst)?;
        self.interfaces.mtu(way.link, dst).map(|mtu| self.paths.mtu(dst, mtu))
    }

    /// The next frame to be sent. Its meta's ingress is the VNIC that sends it, or
    /// [`LOOPBACK`](crate::LOOPBACK).
    #[inline]
    pub fn poll_output(&mut self) -> Option<Frame> {
        self.out.pop()
    }

    /// The frames that are ready, as [`poll_output`](Self::poll_output) gives them one by one.
    #[inline]
    pub fn output(&mut self) -> &mut Chain {
        &mut self.out
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<IpEvent> {
        self.events.pop_front()
    }

    /// When [`on_timer`](Self::on_timer) has something to do.
    pub fn poll_at(&self) -> Option<Instant> {
        Instant::earliest([
            self.autoconf.poll_at(),
            self.groups_poll_at(),
            self.addresses.poll_at(),
            self.neighbours.poll_at(),
            self.paths.poll_at(),
            self.reassembly.poll_at(),
        ])
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant, pools: &mut Pools) {
        self.run_autoconf(now, pools);
        self.run_groups(now, pools);
        while let Some(step) = self.addresses.poll(now, &mut self.random) {
            self.on_dad_step(now, step, pools);
        }
        while let Some(due) = self.neighbours.poll(now) {
            self.on_due(now, due, pools);
        }
        self.expire_fragments(now, pools);
        if self.paths.on_timer(now) {
            self.begin_generation();
        }
    }

    fn on_dad_step(&mut self, now: Instant, step: DadStep, pools: &mut Pools) {
        if let DadStep::Ready(link, prefix, _) = step {
            self.report_again(now, link, prefix.addr());
        }
        match step {
            DadStep::Ready(link, prefix, AddressOrigin::Operator) => {
                self.begin_generation();
                if self.interfaces.is_home(link) {
                    self.tell(IpEvent::AddressReady(link, prefix));
                }
            }
            DadStep::Ready(link, prefix, origin) => {
                let is_deprecated = self.autoconf.is_deprecated(now, prefix.addr());
                self.addresses.set_deprecated(prefix.addr(), is_deprecated);
                self.configure(Configured::Address { link, prefix, origin, is_deprecated });
            }
            DadStep::Probe(link, ..) | DadStep::Announce(link, _)
                if !self.interfaces.is_home(link) || self.interfaces.peer(link).is_some() => {}
            DadStep::Probe(link, addr, nonce) => self.probe(link, addr, nonce, pools),
            DadStep::Announce(link, addr) => self.announce(link, addr, pools),
            DadStep::Again(link, addr) => self.tell(IpEvent::AddressAgain(link, addr)),
        }
    }

    fn on_due(&mut self, now: Instant, due: Due, pools: &mut Pools) {
        match due {
            Due::Ask { link, ip, to } => self.ask(link, ip, to, pools),
            Due::Failed { link, ip, had_address, mut queue } => {
                // Whoever has waited for it looks again by himself.
                if self.suspect(link, ip) || had_address {
                    self.begin_generation();
                }
                while let Some(frame) = queue.pop() {
                    self.on_unresolved(now, &frame, pools);
                    self.give_up(frame, DropReason::NeighbourUnresolved, pools);
                }
            }
            Due::Unreachable { link, ip } => {
                // Its users look for another way, or go on with this one.
                self.suspect_default(link, ip);
                self.begin_generation();
                self.ask(link, ip, None, pools);
            }
            Due::Aged => self.begin_generation(),
        }
    }

    /// Whenever this number changes, what was found by [`egress`](Self::egress) is to be found again.
    #[inline]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Frames that wait here: for a neighbour's address, or for the rest of their datagram.
    pub fn held_frames(&self) -> usize {
        self.neighbours.held() + self.reassembly.held()
    }

    /// Frames that were given up after they had been taken, since the last call.
    pub fn take_drops(&mut self) -> DropCounters {
        core::mem::take(&mut self.drops)
    }

    /// Frames that were made here.
    pub const fn made(&self) -> Made {
        self.made
    }

    /// What was counted since the netstack began.
    pub const fn counts(&self) -> IpCounts {
        self.counts
    }

    /// A packet arrived that was not given to [`input`](Self::input), but to its transport at once, as
    /// [`returned`](Self::returned) allows.
    #[inline]
    pub fn count_returned(&mut self, is_v4: bool, frame: &Frame) {
        let (counts, packets) = (self.counts.version(is_v4), packets(frame));
        counts.received += packets;
        counts.delivered += packets;
    }

    /// A packet that was given to a transport goes to another lane instead, which counts it again.
    pub const fn count_handed_on(&mut self, is_v4: bool) {
        let counts = self.counts.version(is_v4);
        counts.received -= 1;
        counts.delivered -= 1;
    }

    /// What was refused because a list was full.
    pub const fn refused(&self) -> Refused {
        self.refused
    }

    /// The interfaces, in order of their links.
    pub fn interfaces(&self) -> impl Iterator<Item = &IfConfig> {
        self.interfaces.iter()
    }

    /// The link whose address this is.
    pub fn link_of(&self, addr: IpAddr) -> Option<LinkId> {
        self.addresses.get(addr).map(|address| address.link)
    }

    /// The addresses, in order.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter()
    }

    /// How IPv6 packets are sent on a link.
    pub fn link_parameters(&self, link: LinkId) -> LinkParameters {
        self.interfaces.parameters(link)
    }

    /// The routes, in no order.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().chain(self.sourced.iter())
    }

    /// The destinations whose paths carry less than their link does, in no order.
    pub fn narrow_paths(&self) -> impl Iterator<Item = NarrowPath> {
        self.paths.iter()
    }

    /// The neighbours, in no order.
    pub fn neighbours(&self) -> impl Iterator<Item = Neighbour> {
        self.neighbours.iter()
    }

    pub(crate) const fn begin_generation(&mut self) {
        // Zero is no generation.
        self.generation = if self.generation == u32::MAX { 1 } else { self.generation + 1 };
    }

    pub(crate) fn tell(&mut self, event: IpEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    /// What was decided for flows is decided anew: something that is not IP's has changed.
    pub fn decide_anew(&mut self) {
        self.begin_generation();
    }

    /// Ends a frame that was taken before.
    pub(crate) fn give_up(&mut self, frame: Frame, reason: DropReason, pools: &mut Pools) {
        self.drops.count(reason);
        pools.put(frame);
    }
}

const fn connected(link: LinkId, prefix: IpPrefix) -> Route {
    Route { link: Some(link), origin: Origin::Address, ..Route::ending(prefix, RouteKind::Unicast) }
}
