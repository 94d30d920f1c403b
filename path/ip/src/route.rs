//! Routes and their longest-prefix match (RFC 1122 §3.3.1, RFC 1812 §5.2.4.3, RFC 4861 §5.2).
//!
//! One trie per family (`trie.rs`) says which routes are to the longest network that an address is in; which of them
//! is taken is decided here. An egress is cached by its user, so this is asked once per connection and change, or
//! once per forwarded flow and change.

use core::hash::{BuildHasher, Hash};
use core::net::IpAddr;

use firelane_units::{IpPrefix, LinkId};
use firelane_wire::RouterPreference;

use crate::gateways::{Entry, Gateway, GatewayId, Gateways, PLACE_BITS};
use crate::random::Keyed;
use crate::trie::{MANY, Trie};

/// A route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where to.
    pub destination: IpPrefix,
    /// Through whom; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// By which link; `None` is the one on which the gateway is.
    pub link: Option<LinkId>,
    /// Which sources' packets may take it; `None` for all.
    pub source: Option<IpPrefix>,
    /// What becomes of packets that take it.
    pub kind: RouteKind,
    /// Where it comes from.
    pub origin: Origin,
    /// What the operator has to say to transports about this way, in their words; zero is nothing.
    pub hint: u8,
}

/// What becomes of the packets that take a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum RouteKind {
    /// They go on.
    #[default]
    Unicast,
    /// They end, and nobody is told.
    Blackhole,
    /// They end, and their sender is told that the host cannot be reached.
    Unreachable,
    /// They end, and their sender is told that they are forbidden.
    Prohibit,
}

impl RouteKind {
    /// The word that is shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

/// Where a route comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// From an address of an interface.
    Address,
    /// From the operator.
    Operator,
    /// From a router that says so of its link (RFC 4861 §6.3.4).
    OnLink,
    /// From a router that says so of itself, and how much it is to be liked (RFC 4191).
    Router(RouterPreference),
    /// From a lease.
    Lease(Primacy),
    /// From a routing daemon.
    Daemon,
}

impl Origin {
    /// Whether a router has said it.
    pub const fn is_routers(self) -> bool {
        matches!(self, Self::OnLink | Self::Router(_))
    }
}

/// Whether a lease is that of the interface which the operator calls the primary one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Primacy {
    /// It is.
    Primary,
    /// It is another one's.
    Other,
}

impl Route {
    /// An operator's route at which packets end, or the beginning of one at which they go on.
    pub const fn ending(destination: IpPrefix, kind: RouteKind) -> Self {
        let origin = Origin::Operator;
        Self { destination, gateway: None, link: None, source: None, kind, origin, hint: 0 }
    }

    /// Whether both are the same way, whatever they say about it.
    fn is_same(&self, other: &Self) -> bool {
        *self == Self { hint: self.hint, ..*other }
    }

    /// The router that says it of itself, if one does.
    fn router(&self) -> Option<(LinkId, IpAddr)> {
        matches!(self.origin, Origin::Router(_)).then_some((self.link?, self.gateway?))
    }

    /// Whether a routing daemon has no say in it. Such a route comes before all of a daemon's to the same network, even where
    /// its router is silent or packets end: what is administered here holds, whatever is said elsewhere.
    pub(crate) const fn is_administered(&self) -> bool {
        !matches!(self.origin, Origin::Daemon)
    }

    /// Which of several to the same network comes first: a link that is directly attached is the shortest way; the
    /// operator's word counts more than a server's or router's, and theirs of their own link more than a routing daemon's.
    /// Among leases, the primary interface's comes first.
    const fn rank(&self) -> u8 {
        if !matches!(self.kind, RouteKind::Unicast) {
            // It says what happens when no other route is left.
            return if matches!(self.origin, Origin::Daemon) { u8::MAX } else { u8::MAX - 2 };
        }
        match (self.gateway, self.origin) {
            (_, Origin::Daemon) => u8::MAX - 1,
            (None, _) => 0,
            (Some(_), Origin::Lease(Primacy::Primary)) => 2,
            (Some(_), Origin::Lease(Primacy::Other)) => 3,
            (Some(_), Origin::Router(RouterPreference::High)) => 4,
            (Some(_), Origin::Router(RouterPreference::Medium)) => 5,
            (Some(_), Origin::Router(RouterPreference::Low)) => 6,
            (Some(_), _) => 1,
        }
    }
}

/// Why a route is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteTableError {
    /// Destination and source are of different families, or IPv6's destination has a gateway of IPv4.
    Family,
    /// Neither gateway nor link, or a gateway that is no station's address, or any of them where packets end.
    Gateway,
    /// The same route is there already.
    Exists,
    /// There is no such route.
    Missing,
    /// There is no such interface.
    Link,
    /// As many routes, or sources with routes of their own, as there may be.
    Full,
}

impl core::fmt::Display for RouteTableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Family => "destination, gateway and source are of different families",
            Self::Gateway => "a route needs a link or the address of a gateway",
            Self::Exists => "the route exists",
            Self::Missing => "there is no such route",
            Self::Link => "there is no such interface",
            Self::Full => "there are too many routes",
        })
    }
}

impl core::error::Error for RouteTableError {}

/// Routes of one netstack: the table of the whole Internet, twice.
const ROUTES_MAX: usize = 1 << PLACE_BITS;

/// The routes.
#[derive(Debug)]
pub(crate) struct Routes {
    v4: Trie<u32>,
    v6: Trie<u128>,
    /// The routes to one network, by the place in the trie's entry.
    same: Vec<Same>,
    free: Vec<u32>,
    /// Their gateways, by the number there.
    gateways: Gateways,
    count: usize,
    /// The routers that told us of routes, each as often as it has told one: they are few beside all routes.
    routers: Vec<(LinkId, IpAddr)>,
    keyed: Keyed,
}

/// The routes to one network, the first choice first. Most networks have one.
#[derive(Debug)]
enum Same {
    None,
    One(Route),
    Many(Box<[Route]>),
}

impl Same {
    const fn as_slice(&self) -> &[Route] {
        match self {
            Self::None => &[],
            Self::One(route) => core::slice::from_ref(route),
            Self::Many(routes) => routes,
        }
    }

    /// The gateway, and the link that is named, if there is one route and packets go on by it.
    fn only_gateway(&self) -> Option<Gateway> {
        match self {
            Self::One(route) if route.kind == RouteKind::Unicast => Some((route.gateway?, route.link)),
            _ => None,
        }
    }

    fn of(mut routes: Vec<Route>) -> Self {
        match routes.len() {
            0 => Self::None,
            1 => Self::One(routes.remove(0)),
            _ => Self::Many(routes.into_boxed_slice()),
        }
    }
}

impl Routes {
    pub(crate) fn new(keyed: Keyed) -> Self {
        let (same, free, gateways) = (Vec::new(), Vec::new(), Gateways::new(keyed));
        Self { v4: Trie::new(), v6: Trie::new(), same, free, gateways, count: 0, routers: Vec::new(), keyed }
    }

    /// Adds a route. The same way with another hint takes the place of the one that is there, so that it is there all the time.
    pub(crate) fn add(&mut self, mut route: Route) -> Result<(), RouteTableError> {
        route.destination = route.destination.network();
        check(&route)?;
        let entry = self.find(route.destination);
        let at = entry.map(Entry::place);
        let same = at.map_or(&[][..], |at| self.same[at as usize].as_slice());
        if let (Some(at), Some(nth)) = (at, same.iter().position(|other| other.is_same(&route))) {
            if same[nth].hint == route.hint {
                return Err(RouteTableError::Exists);
            }
            let mut routes = same.to_vec();
            routes[nth] = route;
            self.same[at as usize] = Same::of(routes);
            return Ok(());
        }
        if self.count == ROUTES_MAX {
            return Err(RouteTableError::Full);
        }
        match entry {
            Some(entry) => {
                let mut routes = same.to_vec();
                routes.insert(same.partition_point(|other| other.rank() <= route.rank()), route);
                self.replace(route.destination, entry, Same::of(routes));
            }
            None => {
                let at = self.free.pop().unwrap_or(self.same.len() as u32);
                let same = Same::One(route);
                let gateway = self.gateways.take(same.only_gateway());
                self.enter(route.destination, Entry::new(at, gateway));
                match self.same.get_mut(at as usize) {
                    Some(place) => *place = same,
                    None => self.same.push(same),
                }
            }
        }
        self.count += 1;
        self.routers.extend(route.router());
        Ok(())
    }

    pub(crate) fn remove(&mut self, mut route: Route) -> Result<(), RouteTableError> {
        route.destination = route.destination.network();
        let entry = self.find(route.destination).ok_or(RouteTableError::Missing)?;
        let at = entry.place();
        let mut routes = self.same[at as usize].as_slice().to_vec();
        let nth = routes.iter().position(|other| other.is_same(&route)).ok_or(RouteTableError::Missing)?;
        routes.remove(nth);
        if routes.is_empty() {
            let len = route.destination.prefix_len();
            match route.destination.addr() {
                IpAddr::V4(addr) => self.v4.remove(addr.to_bits(), len),
                IpAddr::V6(addr) => self.v6.remove(addr.to_bits(), len),
            };
            self.free.push(at);
            self.gateways.give_back(entry.gateway());
            self.same[at as usize] = Same::None;
        } else {
            self.replace(route.destination, entry, Same::of(routes));
        }
        self.count -= 1;
        let nth = route.router().and_then(|router| self.routers.iter().position(|other| *other == router));
        if let Some(nth) = nth {
            self.routers.swap_remove(nth);
        }
        Ok(())
    }

    /// The entry of exactly this network.
    fn find(&self, network: IpPrefix) -> Option<Entry> {
        let word = match network.addr() {
            IpAddr::V4(addr) => self.v4.get(addr.to_bits(), network.prefix_len()),
            IpAddr::V6(addr) => self.v6.get(addr.to_bits(), network.prefix_len()),
        };
        word.map(Entry::from_word)
    }

    /// Gives a network its entry.
    fn enter(&mut self, network: IpPrefix, entry: Entry) {
        match network.addr() {
            IpAddr::V4(addr) => self.v4.insert(addr.to_bits(), network.prefix_len(), entry.to_word()),
            IpAddr::V6(addr) => self.v6.insert(addr.to_bits(), network.prefix_len(), entry.to_word()),
        };
    }

    /// Gives a network that has an entry other routes.
    fn replace(&mut self, network: IpPrefix, entry: Entry, same: Same) {
        // Taken before it is given back, so that one that stays keeps its number.
        let gateway = self.gateways.take(same.only_gateway());
        self.gateways.give_back(entry.gateway());
        self.enter(network, Entry::new(entry.place(), gateway));
        self.same[entry.place() as usize] = same;
    }

    /// What `choose` finds among the routes to the longest network that `dst` is in; if nothing, among those to the
    /// next longest, and so on.
    fn search<'a, T>(&'a self, dst: IpAddr, mut choose: impl FnMut(&'a [Route]) -> Option<T>) -> Option<T> {
        let mut first = match dst {
            IpAddr::V4(addr) => self.v4.lookup(addr.to_bits()),
            IpAddr::V6(addr) => self.v6.lookup(addr.to_bits()),
        }?;
        loop {
            let same = self.same[Entry::from_word(first).place() as usize].as_slice();
            if let Some(found) = choose(same) {
                return Some(found);
            }
            let shorter = same.first()?.destination.prefix_len().checked_sub(1)?;
            first = match dst {
                IpAddr::V4(addr) => self.v4.longest(addr.to_bits(), shorter),
                IpAddr::V6(addr) => self.v6.longest(addr.to_bits(), shorter),
            }?
            .1;
        }
    }

    /// Of the longest matches that have a score, the one with the highest; of several, the first.
    pub(crate) fn best<S: Ord>(
        &self,
        dst: IpAddr,
        mut score: impl FnMut(&Route) -> Option<S>,
    ) -> Option<&Route> {
        self.search(dst, |same| best_of(same, &mut score).map(|(_, route)| route))
    }

    /// The same for one of many flows: those whose routes are equally good take different ones, by their hash. Each
    /// weighs every route by itself, so a route that comes or goes moves no flow but its own (highest random weight,
    /// RFC 2992 §3).
    pub(crate) fn best_for_flow<S: Ord>(
        &self,
        dst: IpAddr,
        flow: u32,
        mut score: impl FnMut(&Route) -> Option<S>,
    ) -> Option<&Route> {
        self.search(dst, |same| {
            let (top, first) = best_of(same, &mut score)?;
            if same.len() == 1 {
                return Some(first);
            }
            let alike = same
                .iter()
                .filter(|route| route.rank() == first.rank() && score(route).as_ref() == Some(&top));
            alike.max_by_key(|route| self.keyed.hash_one((flow, route.gateway, route.link)))
        })
    }

    /// The longest match among the routes that `usable` accepts.
    pub(crate) fn lookup(&self, dst: IpAddr, mut usable: impl FnMut(&Route) -> bool) -> Option<&Route> {
        self.search(dst, |same| same.iter().find(|route| usable(route)))
    }

    /// For each of `asked`, a number and an address: the gateway of the only route to the longest network that the
    /// address is in, by its number. The table is gone through with all of them side by side, and nothing else is read.
    pub(crate) fn gateways(&self, asked: &[(usize, IpAddr)], found: &mut [GatewayId; MANY]) {
        let mut words = [None; MANY];
        let (mut v4, mut v6) = ([(0, 0); MANY], [(0, 0); MANY]);
        let (mut count_v4, mut count_v6) = (0, 0);
        for (nth, (_, addr)) in asked.iter().enumerate() {
            match addr {
                IpAddr::V4(addr) => {
                    v4[count_v4] = (nth, addr.to_bits());
                    count_v4 += 1;
                }
                IpAddr::V6(addr) => {
                    v6[count_v6] = (nth, addr.to_bits());
                    count_v6 += 1;
                }
            }
        }
        self.v4.lookup_many(&v4[..count_v4], &mut words);
        self.v6.lookup_many(&v6[..count_v6], &mut words);
        for (word, found) in words.iter().zip(found) {
            *found = word.map_or(GatewayId::NONE, |word| Entry::from_word(word).gateway());
        }
    }

    /// The gateway of this number.
    #[inline]
    pub(crate) fn gateway(&self, id: GatewayId) -> Option<Gateway> {
        self.gateways.get(id)
    }

    /// The default routes of both families.
    pub(crate) fn defaults(&self) -> impl Iterator<Item = &Route> {
        let words = [self.v4.get(0, 0), self.v6.get(0, 0)].into_iter().flatten();
        words.flat_map(|word| self.same[Entry::from_word(word).place() as usize].as_slice())
    }

    /// All routes to the longest network that `addr` is in.
    pub(crate) fn longest(&self, addr: IpAddr) -> &[Route] {
        self.search(addr, Some).unwrap_or(&[])
    }

    /// Whether a neighbour is a router that told us one.
    pub(crate) fn is_from_router(&self, link: LinkId, ip: IpAddr) -> bool {
        self.routers.contains(&(link, ip))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.same.iter().flat_map(Same::as_slice)
    }

    /// Forgets all that go by `link`, and says whether there were any.
    pub(crate) fn forget(&mut self, link: LinkId) -> bool {
        let gone: Vec<Route> = self.iter().filter(|r| r.link == Some(link)).copied().collect();
        for route in &gone {
            self.remove(*route).expect("the route was just listed");
        }
        !gone.is_empty()
    }
}

/// The first of the routes with the highest score.
fn best_of<S: Ord>(same: &[Route], mut score: impl FnMut(&Route) -> Option<S>) -> Option<(S, &Route)> {
    let scored = same.iter().filter_map(|route| Some((score(route)?, route)));
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

fn check(route: &Route) -> Result<(), RouteTableError> {
    if route.kind != RouteKind::Unicast {
        let names_nobody = route.gateway.is_none() && route.link.is_none();
        return if names_nobody { Ok(()) } else { Err(RouteTableError::Gateway) };
    }
    let Some(gateway) = route.gateway else {
        return route.link.map(|_| ()).ok_or(RouteTableError::Gateway);
    };
    // RFC 8950: IPv4's packets may go by a router that is known by its IPv6 address.
    if gateway.is_ipv4() && !route.destination.addr().is_ipv4() {
        return Err(RouteTableError::Family);
    }
    let is_station = !gateway.is_multicast() && !gateway.is_unspecified() && !gateway.is_loopback();
    if is_station { Ok(()) } else { Err(RouteTableError::Gateway) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn routes() -> Routes {
        Routes::new(Keyed::new([0; 16], 0))
    }

    fn route(destination: &str, gateway: Option<&str>, link: Option<u32>) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            gateway: gateway.map(|g| g.parse().unwrap()),
            link: link.map(LinkId),
            source: None,
            kind: RouteKind::Unicast,
            origin: Origin::Operator,
            hint: 0,
        }
    }

    #[test]
    fn flows_spread_over_equal_routes_and_stay_when_another_goes() {
        let mut table = routes();
        let hop = |n: u32| route("10.0.0.0/8", Some(&format!("192.0.2.{n}")), Some(1));
        (1..=4).for_each(|n| table.add(hop(n)).unwrap());
        let dst: IpAddr = "10.1.2.3".parse().unwrap();
        let of = |table: &Routes, flow| table.best_for_flow(dst, flow, |_| Some(0)).unwrap().gateway;
        let before: Vec<_> = (0..4000).map(|flow| of(&table, flow)).collect();
        for n in 1..=4 {
            let share = before.iter().filter(|&&it| it == hop(n).gateway).count();
            assert!((850..1150).contains(&share), "{share} of 4000 by route {n}");
        }
        table.remove(hop(2)).unwrap();
        for (flow, &was) in before.iter().enumerate() {
            let is = of(&table, flow as u32);
            assert!(is == was || was == hop(2).gateway, "flow {flow} moved for nothing");
        }
        let usable = |route: &Route| (route.gateway == hop(3).gateway).then_some(0);
        assert_eq!(table.best_for_flow(dst, 7, usable).unwrap().gateway, hop(3).gateway);
    }

    #[test]
    fn a_route_that_ends_packets_is_the_last_choice_of_its_network_and_hides_shorter_ones() {
        let mut table = routes();
        let ends = |to: &str, kind| Route { kind, ..route(to, None, None) };
        table.add(route("0.0.0.0/0", Some("192.0.2.1"), Some(1))).unwrap();
        table.add(ends("10.0.0.0/8", RouteKind::Blackhole)).unwrap();
        let to = |table: &Routes| table.best("10.1.1.1".parse().unwrap(), |_| Some(0)).copied().unwrap();
        assert_eq!(to(&table).kind, RouteKind::Blackhole);
        table.add(route("10.0.0.0/8", Some("192.0.2.9"), Some(1))).unwrap();
        assert_eq!(to(&table).gateway, "192.0.2.9".parse().ok());
        let named = Route { link: Some(LinkId(1)), ..ends("10.0.0.0/8", RouteKind::Prohibit) };
        assert_eq!(table.add(named), Err(RouteTableError::Gateway));
    }

    #[test]
    fn what_a_route_says_does_not_make_it_another() {
        let mut table = routes();
        let way = route("10.0.0.0/8", None, Some(1));
        table.add(Route { hint: 3, ..way }).expect("it is new");
        assert_eq!(table.add(Route { hint: 3, ..way }), Err(RouteTableError::Exists));
        assert_eq!(table.add(way), Ok(()), "the hint changes in its place");
        assert_eq!((table.count, table.iter().map(|route| route.hint).collect()), (1, vec![0]));
        assert_eq!(
            table.remove(Route { hint: 3, ..way }),
            Ok(()),
            "which way it is says nothing but the way"
        );
        assert_eq!((table.count, table.iter().count()), (0, 0));
    }

    #[test]
    fn the_longest_prefix_wins_and_a_default_catches_the_rest() {
        let mut table = routes();
        table.add(route("10.1.2.0/24", None, Some(1))).unwrap();
        table.add(route("10.0.0.0/8", Some("10.1.2.1"), None)).unwrap();
        table.add(route("0.0.0.0/0", Some("10.1.2.254"), None)).unwrap();
        let by = |dst: &str| table.lookup(dst.parse().unwrap(), |_| true).map(|r| r.destination.to_string());
        assert_eq!(by("10.1.2.3").as_deref(), Some("10.1.2.0/24"));
        assert_eq!(by("10.9.2.3").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(by("192.0.2.1").as_deref(), Some("0.0.0.0/0"));
        assert_eq!(by("2001:db8::1"), None);
    }

    #[test]
    fn of_several_to_one_network_the_link_comes_first_and_the_operator_before_a_router() {
        let mut table = routes();
        let by = |gateway: &str, origin| Route { origin, ..route("::/0", Some(gateway), Some(1)) };
        for new in [
            by("fe80::3", Origin::Router(RouterPreference::Low)),
            by("fe80::1", Origin::Router(RouterPreference::High)),
            by("fe80::2", Origin::Router(RouterPreference::Medium)),
            by("fe80::9", Origin::Operator),
        ] {
            table.add(new).unwrap();
        }
        let dst: IpAddr = "2001:db8::1".parse().unwrap();
        let mut order = Vec::new();
        while let Some(first) = table.best(dst, |route| (!order.contains(&route.gateway)).then_some(0)) {
            order.push(first.gateway);
        }
        let text: Vec<String> = order.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(text, ["fe80::9", "fe80::1", "fe80::2", "fe80::3"]);
        let liked = table.best(dst, |route| Some(route.gateway == "fe80::3".parse().ok())).unwrap();
        assert_eq!(liked.gateway, "fe80::3".parse().ok());
    }

    #[test]
    fn a_router_is_known_as_such_while_a_route_of_its_own_is_there() {
        let mut table = routes();
        let by = |to: &str, gateway: &str, hint| Route {
            origin: Origin::Router(RouterPreference::Medium),
            hint,
            ..route(to, Some(gateway), Some(1))
        };
        let is_router =
            |table: &Routes, link, ip: &str| table.is_from_router(LinkId(link), ip.parse().unwrap());
        table.add(route("2001:db8::/32", Some("fe80::2"), Some(1))).unwrap();
        for new in [by("::/0", "fe80::1", 0), by("fd00::/8", "fe80::1", 0), by("::/0", "fe80::3", 0)] {
            table.add(new).unwrap();
        }
        table.add(by("::/0", "fe80::1", 7)).expect("it says something else");
        assert!(is_router(&table, 1, "fe80::1") && is_router(&table, 1, "fe80::3"));
        assert!(!is_router(&table, 1, "fe80::2") && !is_router(&table, 2, "fe80::1"));
        table.remove(by("::/0", "fe80::1", 0)).unwrap();
        assert!(is_router(&table, 1, "fe80::1"), "it has told another one");
        table.remove(by("fd00::/8", "fe80::1", 0)).unwrap();
        assert!(!is_router(&table, 1, "fe80::1") && is_router(&table, 1, "fe80::3"));
        table.forget(LinkId(1));
        assert!(table.routers.is_empty());
    }

    #[test]
    fn the_primary_interfaces_lease_comes_before_others_and_the_operator_before_both() {
        let mut table = routes();
        let by =
            |gateway: &str, link, origin| Route { origin, ..route("0.0.0.0/0", Some(gateway), Some(link)) };
        let other = by("10.0.1.1", 1, Origin::Lease(Primacy::Other));
        let primary = by("10.0.2.1", 2, Origin::Lease(Primacy::Primary));
        let operator = by("10.0.3.1", 3, Origin::Operator);
        let dst: IpAddr = "192.0.2.1".parse().unwrap();
        let of_flow = |table: &Routes, flow: u32| {
            table
                .best_for_flow(dst, flow, |_| Some(0))
                .and_then(|route| route.gateway)
                .map(|it| it.to_string())
        };
        let all = |table: &Routes| {
            (0..64).map(|flow| of_flow(table, flow).unwrap()).collect::<std::collections::BTreeSet<_>>()
        };
        table.add(other).unwrap();
        table.add(by("10.0.4.1", 4, Origin::Lease(Primacy::Other))).unwrap();
        assert_eq!(all(&table).len(), 2, "those of no primary interface are shared");
        table.add(primary).unwrap();
        assert_eq!(Vec::from_iter(all(&table)), ["10.0.2.1"]);
        table.add(operator).unwrap();
        assert_eq!(Vec::from_iter(all(&table)), ["10.0.3.1"]);
        table.remove(operator).unwrap();
        table.remove(primary).unwrap();
        assert_eq!(all(&table).len(), 2);
    }

    #[test]
    fn refusals() {
        let mut table = routes();
        for (bad, error) in [
            (route("10.0.0.0/8", None, None), RouteTableError::Gateway),
            (route("fd00::/8", Some("10.0.0.1"), None), RouteTableError::Family),
            (route("10.0.0.0/8", Some("224.0.0.1"), None), RouteTableError::Gateway),
        ] {
            assert_eq!(table.add(bad), Err(error));
        }
        let good = route("10.0.0.9/8", None, Some(1));
        assert_eq!(table.remove(good), Err(RouteTableError::Missing));
        assert_eq!(table.add(good), Ok(()));
        assert_eq!(table.add(good), Err(RouteTableError::Exists));
        assert_eq!(table.remove(good), Ok(()));
        assert_eq!((table.count, table.v4.len(), table.iter().count()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn lookup_agrees_with_trying_every_route(
            prefixes in proptest::collection::vec((0u32..16, 0u8..=32), 0..24),
            removed in proptest::collection::vec(any::<bool>(), 24),
            dst in 0u32..16,
        ) {
            // Few bits at both ends, so that prefixes nest and destinations hit.
            let spread = |bits: u32| IpAddr::V4(Ipv4Addr::from_bits(bits.rotate_right(2) | bits << 8));
            let mut table = routes();
            let mut naive: Vec<Route> = Vec::new();
            for (i, &(bits, len)) in prefixes.iter().enumerate() {
                let destination = IpPrefix::new(spread(bits), len).unwrap().network();
                let new = Route { destination, gateway: None, link: Some(LinkId(1)), ..route("0.0.0.0/0", None, None) };
                if table.add(new).is_ok() {
                    naive.push(new);
                }
                if removed[i] && let Some(old) = naive.pop() {
                    table.remove(old).unwrap();
                }
            }
            let dst = spread(dst);
            let expected = naive
                .iter()
                .filter(|r| r.destination.contains(dst))
                .max_by_key(|r| r.destination.prefix_len());
            prop_assert_eq!(table.lookup(dst, |_| true), expected);
        }
    }
}
