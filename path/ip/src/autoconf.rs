//! What a host configures by itself on its links (RFC 4862).
//!
//! Owns, per link, the state machines of automatic configuration and says when the next of them has something
//! to do. They run in the home lane; what they decide is a [`Configured`], which this lane applies and the
//! others copy. So the lanes of a netstack never disagree about what a router has said.
//!
//! ```text
//! ra.rs ──┬── routers.rs ── prefixes.rs ──┐
//!         ├── slaac.rs ── temporary.rs    ├── Configured ── this lane's tables, and the others'
//!         └── resolvers.rs                │
//! own_address.rs ── iid.rs ───────────────┘
//! ```

use core::net::{IpAddr, Ipv6Addr};

use firelane_frame::Pools;
use firelane_units::{Instant, IpPrefix, LinkId, MacAddr};

use crate::address::{Address, AddressOrigin, AddressState};
use crate::event::{Configured, IpEvent, RouterFlags};
use crate::iid::IidKind;
use crate::own_address::OwnAddress;
use crate::prefixes::Prefixes;
use crate::resolvers::{Heard, ResolverLists, Resolvers};
use crate::route::{Origin, Route, RouteKind};
use crate::router_solicit::RouterSolicit;
use crate::routers::Routers;
use crate::slaac::{Change, Recipe, Slaac};
use crate::stack::Ip;

/// RFC 4291 §2.5.6.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
/// The upper half is the network's, the lower half the host's (RFC 4291 §2.5.1).
const HALF: u8 = 64;

/// What the operator wants to be configured automatically on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoconfConfig {
    /// How identifiers are made.
    pub iid: IidKind,
    /// Whether addresses are made from the prefixes that routers announce.
    pub stateless: bool,
    /// Whether temporary addresses are made beside them (RFC 8981).
    pub temporary: bool,
}

/// A link on which something is configured automatically.
#[derive(Debug)]
pub(crate) struct AutoLink {
    pub(crate) link: LinkId,
    mac: MacAddr,
    link_local: OwnAddress,
    /// `Some` if routers are listened to.
    pub(crate) settings: Option<AutoconfConfig>,
    pub(crate) solicit: RouterSolicit,
    /// What the last advertisement said of DHCPv6.
    pub(crate) flags: RouterFlags,
    pub(crate) routers: Routers,
    pub(crate) prefixes: Prefixes,
    pub(crate) slaac: Slaac,
    pub(crate) resolvers: ResolverLists,
}

/// All of them, in order of their links.
#[derive(Debug)]
pub(crate) struct Autoconf {
    links: Vec<AutoLink>,
    pub(crate) secret: [u8; 16],
    next: Option<Instant>,
}

impl Autoconf {
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self { links: Vec::new(), secret, next: None }
    }

    /// When something is due.
    pub(crate) const fn poll_at(&self) -> Option<Instant> {
        self.next
    }

    /// Whether a neighbour is a router of a link, as far as this lane hears routers.
    pub(crate) fn is_router(&self, link: LinkId, ip: IpAddr) -> bool {
        let IpAddr::V6(router) = ip else { return false };
        self.links.iter().any(|auto| auto.link == link && auto.routers.has(router))
    }

    pub(crate) fn link(&mut self, link: LinkId) -> Option<&mut AutoLink> {
        self.links.iter_mut().find(|auto| auto.link == link)
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        self.links.retain(|auto| auto.link != link);
        self.schedule();
    }

    /// Whether nothing new may begin with `addr`, which this host made.
    pub(crate) fn is_deprecated(&self, now: Instant, addr: IpAddr) -> bool {
        let IpAddr::V6(addr) = addr else { return false };
        self.links.iter().any(|auto| auto.slaac.is_deprecated(now, addr))
    }

    fn schedule(&mut self) {
        self.next = self.links.iter().filter_map(AutoLink::poll_at).min();
    }
}

impl AutoLink {
    fn poll_at(&self) -> Option<Instant> {
        let solicit = self.solicit.poll_at().filter(|_| self.settings.is_some());
        Instant::earliest([
            self.link_local.poll_at(),
            solicit,
            self.routers.poll_at(),
            self.prefixes.poll_at(),
            self.slaac.poll_at(),
            self.resolvers.poll_at(),
        ])
    }

    /// The address that this host made and that is `addr`.
    fn own_mut(&mut self, addr: Ipv6Addr) -> Option<&mut OwnAddress> {
        if self.link_local.addr() == addr {
            return Some(&mut self.link_local);
        }
        self.slaac.own_mut(addr)
    }

    /// What addresses are made from; `None` if none are.
    pub(crate) fn recipe(&self, secret: [u8; 16]) -> Option<Recipe> {
        let settings = self.settings.filter(|settings| settings.stateless)?;
        Some(Recipe { kind: settings.iid, mac: self.mac, secret, temporary: settings.temporary })
    }

    /// The route to a prefix that is on the link.
    pub(crate) const fn on_link_route(link: LinkId, prefix: IpPrefix) -> Route {
        Route {
            destination: prefix,
            gateway: None,
            link: Some(link),
            source: None,
            kind: RouteKind::Unicast,
            origin: Origin::OnLink,
            hint: 0,
        }
    }
}

impl Ip {
    /// An interface can be used: the home lane makes its link-local address, if the netstack wants one
    /// (RFC 4862 §5.3).
    pub fn bring_up(&mut self, now: Instant, link: LinkId) {
        if let Some(kind) = self.config.link_local {
            self.begin_auto_link(now, link, kind);
        }
    }

    /// The operator wants a link to be configured automatically, in another way, or no more. Does nothing in a lane
    /// that is not the interface's home.
    pub fn set_autoconf(&mut self, now: Instant, link: LinkId, settings: Option<AutoconfConfig>) {
        self.end_auto_link(now, link);
        if let Some(settings) = settings {
            self.begin_auto_link(now, link, settings.iid);
        }
        let solicit = RouterSolicit::begin(now, &mut self.random);
        if let Some(auto) = self.autoconf.link(link) {
            (auto.settings, auto.solicit) = (settings, solicit);
            // Whoever asks now has heard nothing yet.
            auto.flags = RouterFlags::default();
        }
        self.autoconf.schedule();
    }

    fn begin_auto_link(&mut self, now: Instant, link: LinkId, kind: IidKind) {
        let interface = self.interfaces.get(link).filter(|interface| interface.is_home);
        let Some(mac) = interface.map(|interface| interface.mac) else { return };
        if self.autoconf.link(link).is_some() {
            return;
        }
        let link_local = OwnAddress::new(now, kind, &self.autoconf.secret, mac, LINK_LOCAL);
        let solicit = RouterSolicit::begin(now, &mut self.random);
        self.autoconf.links.push(AutoLink {
            link,
            mac,
            link_local,
            settings: None,
            solicit,
            flags: RouterFlags::default(),
            routers: Routers::default(),
            prefixes: Prefixes::default(),
            slaac: Slaac::default(),
            resolvers: ResolverLists::default(),
        });
        self.autoconf.schedule();
    }

    /// Ends what routers have brought, and the link-local address if only they were the reason for it.
    fn end_auto_link(&mut self, now: Instant, link: LinkId) {
        while let Some(gone) = self.autoconf.link(link).and_then(|auto| auto.routers.pop()) {
            self.configure(Configured::NoRoute(gone.route(link)));
        }
        while let Some(gone) = self.autoconf.link(link).and_then(|auto| auto.prefixes.pop()) {
            self.configure(Configured::NoRoute(AutoLink::on_link_route(link, gone)));
        }
        let Some(auto) = self.autoconf.link(link) else { return };
        auto.slaac.clear();
        let link_local = auto.link_local.addr();
        let had_resolvers = auto.resolvers.poll_at().is_some() || auto.settings.is_some();
        auto.resolvers = ResolverLists::default();
        self.run_auto_link(now, link);
        if had_resolvers {
            self.tell(IpEvent::Resolvers(link));
        }
        if self.config.link_local.is_none() {
            self.configure(Configured::NoAddress { link, addr: link_local.into() });
            self.autoconf.forget(link);
        }
    }

    /// Does what is due on all links.
    pub(crate) fn run_autoconf(&mut self, now: Instant, pools: &mut Pools) {
        if self.autoconf.poll_at().is_none_or(|at| at > now) {
            return;
        }
        for n in 0..self.autoconf.links.len() {
            let auto = &mut self.autoconf.links[n];
            let link = auto.link;
            let asks = auto.settings.is_some() && auto.solicit.poll(now, &mut self.random);
            if let Some(addr) = auto.link_local.poll(now) {
                self.try_own(now, link, addr, AddressOrigin::LinkLocal);
            }
            if asks {
                self.send_router_solicit(link, pools);
            }
            self.run_auto_link(now, link);
        }
        self.autoconf.schedule();
    }

    /// Does what is due of what the link's routers have brought.
    pub(crate) fn run_auto_link(&mut self, now: Instant, link: LinkId) {
        let mut any_router_gone = false;
        while let Some(gone) = self.autoconf.link(link).and_then(|auto| auto.routers.poll(now)) {
            any_router_gone = true;
            self.configure(Configured::NoRoute(gone.route(link)));
        }
        while let Some(gone) = self.autoconf.link(link).and_then(|auto| auto.prefixes.poll(now)) {
            self.configure(Configured::NoRoute(AutoLink::on_link_route(link, gone)));
        }
        let secret = self.autoconf.secret;
        let Some(auto) = self.autoconf.links.iter_mut().find(|auto| auto.link == link) else { return };
        if let Some(recipe) = auto.recipe(secret) {
            auto.slaac.run(now, &recipe, &mut self.random);
        }
        let has_router = auto.routers.has_default();
        if auto.resolvers.run(now) {
            self.tell(IpEvent::Resolvers(link));
        }
        while let Some(change) = self.autoconf.link(link).and_then(|auto| auto.slaac.next_change()) {
            self.on_slaac(now, link, change);
        }
        if any_router_gone && !has_router {
            self.ask_for_another_router(now, link);
        }
        self.autoconf.schedule();
    }

    /// The last default router is gone.
    pub(crate) fn ask_for_another_router(&mut self, now: Instant, link: LinkId) {
        if let Some(auto) = self.autoconf.links.iter_mut().find(|auto| auto.link == link) {
            auto.solicit.on_no_router(now, &mut self.random);
        }
    }

    /// Who is on a link may be another than before: it may have other routers.
    pub(crate) fn solicit_again(&mut self, now: Instant, link: LinkId) {
        let solicit = RouterSolicit::begin(now, &mut self.random);
        if let Some(auto) = self.autoconf.link(link) {
            auto.solicit = solicit;
        }
        self.autoconf.schedule();
    }

    fn on_slaac(&mut self, now: Instant, link: LinkId, change: Change) {
        match change {
            Change::Begin { addr, is_temporary } => {
                let origin = if is_temporary { AddressOrigin::Temporary } else { AddressOrigin::Prefix };
                self.try_own(now, link, addr, origin);
            }
            Change::End(addr) => self.configure(Configured::NoAddress { link, addr: addr.into() }),
            Change::Forget(network) => self.forget_tried(link, network),
            Change::Deprecate { addr, is_deprecated } => {
                // An address that is still being tested is told as it is when it is ready.
                if self.addresses.set_deprecated(addr.into(), is_deprecated)
                    && let Some(&address) = self.addresses.get(addr.into())
                {
                    let (prefix, origin) = (address.prefix, address.origin);
                    self.configure(Configured::Address { link, prefix, origin, is_deprecated });
                }
            }
        }
    }

    /// The addresses of a network that this host made and another station had, or that were still tested, are nobody's any more.
    fn forget_tried(&mut self, link: LinkId, network: Ipv6Addr) {
        let Some(network) = IpPrefix::new(network.into(), HALF) else { return };
        let is_of_it = |it: &&Address| {
            matches!(it.origin, AddressOrigin::Prefix | AddressOrigin::Temporary)
                && !it.is_usable()
                && network.contains(it.prefix.addr())
        };
        let tried: Vec<IpAddr> =
            self.addresses.on(link).filter(is_of_it).map(|it| it.prefix.addr()).collect();
        for addr in tried {
            let _ = self.addresses.remove(link, addr);
        }
    }

    /// Begins the test of an address that this host made.
    fn try_own(&mut self, now: Instant, link: LinkId, addr: Ipv6Addr, origin: AddressOrigin) {
        let Some(prefix) = IpPrefix::new(addr.into(), HALF) else { return };
        // The operator may have given the netstack the same address: then it is his, and there already. The last
        // one that was tried and that another station had makes room.
        let is_duplicate = |a: &&Address| a.origin == origin && a.state == AddressState::Duplicate;
        let duplicate = self.addresses.on(link).find(is_duplicate).map(|a| a.prefix.addr());
        if let Some(old) = duplicate {
            let _ = self.addresses.remove(link, old);
        }
        if self.addresses.add(now, link, prefix, origin, &mut self.random).is_ok() {
            self.begin_generation();
        } else {
            self.refused.addresses += 1;
        }
    }

    /// Another station has `addr`, which this host may have made: the next identifier is tried, or none.
    pub(crate) fn on_own_duplicate(&mut self, now: Instant, link: LinkId, addr: IpAddr) {
        let IpAddr::V6(v6) = addr else { return };
        let secret = self.autoconf.secret;
        let Some(auto) = self.autoconf.link(link) else { return };
        match auto.own_mut(v6) {
            // The last one stays in the list, where an operator sees it.
            Some(own) => _ = own.on_duplicate(now, &secret),
            None => _ = auto.slaac.on_temporary_duplicate(now, v6),
        }
        self.autoconf.schedule();
    }

    pub(crate) fn note_resolvers(&mut self, heard: Heard, link: LinkId) {
        if heard == Heard::Changed {
            self.tell(IpEvent::Resolvers(link));
        }
    }

    /// The name servers and search domains that the routers of each link announce (RFC 8106); known in the
    /// home lane.
    pub fn resolvers(&self) -> impl Iterator<Item = Resolvers> {
        self.autoconf.links.iter().map(|auto| auto.resolvers.show(auto.link))
    }

    /// Applies, and tells the other lanes, what was decided here.
    pub(crate) fn configure(&mut self, change: Configured) {
        // Here the address is in the table since its test began.
        if !matches!(change, Configured::Address { .. }) {
            self.apply(change);
        }
        self.begin_generation();
        self.tell(IpEvent::Configured(change));
    }

    /// This lane has heard of nothing for a while: what the netstack's home lane has configured is told anew.
    pub fn forget_configured(&mut self) {
        let is_made = |it: &&Address| it.origin != AddressOrigin::Operator;
        let made = self.addresses.iter().filter(is_made);
        let made = made.map(|it| Configured::NoAddress { link: it.link, addr: it.prefix.addr() });
        let said = self.routes.iter().filter(|it| it.origin.is_routers());
        let said = said.map(|&route| Configured::NoRoute(route));
        for gone in made.chain(said).collect::<Vec<_>>() {
            self.apply(gone);
        }
        self.begin_generation();
    }

    /// Another lane of the netstack, its home, has configured something.
    pub fn on_configured(&mut self, change: Configured) {
        self.apply(change);
        self.begin_generation();
    }

    fn apply(&mut self, change: Configured) {
        match change {
            Configured::Address { link, prefix, origin, is_deprecated } => {
                let state = if is_deprecated { AddressState::Deprecated } else { AddressState::Preferred };
                // The home lane has room for it, so this one has too, unless the operator was faster here.
                let _ = self.addresses.copy(link, prefix, origin, state);
            }
            Configured::NoAddress { link, addr } => {
                let is_own = self.addresses.get(addr).is_some_and(|a| a.origin != AddressOrigin::Operator);
                if is_own {
                    let _ = self.addresses.remove(link, addr);
                }
            }
            // The table has room for what the lists above may hold; what is there already stays.
            Configured::Route(route) => _ = self.routes.add(route),
            Configured::NoRoute(route) => {
                let _ = self.routes.remove(route);
                self.absolve(&route);
            }
            Configured::Link(link, parameters) => {
                self.interfaces.set_parameters(link, parameters);
                // RFC 4861 §6.3.4: a new base is spread anew.
                let reachable = self.random.around(parameters.reachable);
                self.neighbours.set_timers(link, reachable, parameters.retransmit);
            }
        }
    }
}
