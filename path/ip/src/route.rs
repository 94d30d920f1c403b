//! Routes and their longest-prefix match (RFC 1122 §3.3.1, RFC 1812 §5.2.4.3, RFC 4861 §5.2).
//!
//! One hashed table per family and prefix length, asked from the longest length that occurs to the
//! shortest: as many questions as there are different lengths, whatever the number of routes. An egress is
//! cached by its user, so this is asked once per connection and change, or per packet that is forwarded.

use core::net::IpAddr;

use firelane_units::{IpPrefix, LinkId};
use firelane_wire::RouterPreference;
use hashbrown::HashMap;

use crate::random::Keyed;

/// A route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where to.
    pub destination: IpPrefix,
    /// Through whom; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// By which link; `None` is the one on which the gateway is.
    pub link: Option<LinkId>,
    /// Where it comes from.
    pub origin: Origin,
    /// What the operator has to say to transports about this way, in their words; zero is nothing.
    pub hint: u8,
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
}

impl Route {
    /// Whether both are the same way, whatever they say about it.
    fn is_same(&self, other: &Self) -> bool {
        *self == Self { hint: self.hint, ..*other }
    }

    /// Which of several to the same network comes first: a link that is directly attached is the shortest way; the
    /// operator's word counts more than a router's.
    const fn rank(&self) -> u8 {
        match (self.gateway, self.origin) {
            (None, _) => 0,
            (Some(_), Origin::Router(RouterPreference::High)) => 2,
            (Some(_), Origin::Router(RouterPreference::Medium)) => 3,
            (Some(_), Origin::Router(RouterPreference::Low)) => 4,
            (Some(_), _) => 1,
        }
    }
}

/// Why a route is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteTableError {
    /// Destination and gateway are of different families.
    Family,
    /// Neither gateway nor link, or a gateway that is no station's address.
    Gateway,
    /// The same route is there already.
    Exists,
    /// There is no such route.
    Missing,
    /// There is no such interface.
    Link,
    /// As many routes as there may be.
    Full,
}

impl core::fmt::Display for RouteTableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Family => "destination and gateway are of different families",
            Self::Gateway => "a route needs a link or the address of a gateway",
            Self::Exists => "the route exists",
            Self::Missing => "there is no such route",
            Self::Link => "there is no such interface",
            Self::Full => "there are too many routes",
        })
    }
}

impl core::error::Error for RouteTableError {}

/// Routes of one netstack: a full table of the Internet does not belong into a service's netstack.
const ROUTES_MAX: usize = 65_536;

/// The routes.
#[derive(Debug)]
pub(crate) struct Routes {
    /// By network; more than one if they differ in gateway or link.
    table: HashMap<IpPrefix, Vec<Route>, Keyed>,
    /// The lengths that occur and how often, longest first, of IPv4 and IPv6.
    lengths: [Vec<(u8, usize)>; 2],
    count: usize,
}

impl Routes {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { table: HashMap::with_hasher(keyed), lengths: [Vec::new(), Vec::new()], count: 0 }
    }

    pub(crate) fn add(&mut self, mut route: Route) -> Result<(), RouteTableError> {
        route.destination = route.destination.network();
        check(&route)?;
        if self.count == ROUTES_MAX {
            return Err(RouteTableError::Full);
        }
        let same = self.table.entry(route.destination).or_default();
        if same.iter().any(|other| other.is_same(&route)) {
            return Err(RouteTableError::Exists);
        }
        let at = same.partition_point(|other| other.rank() <= route.rank());
        same.insert(at, route);
        self.count += 1;
        let lengths = &mut self.lengths[family(route.destination.addr())];
        let len = route.destination.prefix_len();
        match lengths.binary_search_by(|&(other, _)| len.cmp(&other)) {
            Ok(at) => lengths[at].1 += 1,
            Err(at) => lengths.insert(at, (len, 1)),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, mut route: Route) -> Result<(), RouteTableError> {
        route.destination = route.destination.network();
        let same = self.table.get_mut(&route.destination).ok_or(RouteTableError::Missing)?;
        let at = same.iter().position(|other| other.is_same(&route)).ok_or(RouteTableError::Missing)?;
        same.remove(at);
        if same.is_empty() {
            self.table.remove(&route.destination);
        }
        self.count -= 1;
        let lengths = &mut self.lengths[family(route.destination.addr())];
        let len = route.destination.prefix_len();
        if let Ok(at) = lengths.binary_search_by(|&(other, _)| len.cmp(&other)) {
            lengths[at].1 -= 1;
            if lengths[at].1 == 0 {
                lengths.remove(at);
            }
        }
        Ok(())
    }

    /// Of the longest matches that have a score, the one with the highest; of several, the first.
    pub(crate) fn best<S: Ord>(
        &self,
        dst: IpAddr,
        mut score: impl FnMut(&Route) -> Option<S>,
    ) -> Option<&Route> {
        self.lengths[family(dst)].iter().find_map(|&(len, _)| {
            let network = IpPrefix::new(dst, len)?.network();
            let scored = self.table.get(&network)?.iter().filter_map(|route| Some((score(route)?, route)));
            scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, route)| route)
        })
    }

    /// The longest match among the routes that `usable` accepts.
    pub(crate) fn lookup(&self, dst: IpAddr, mut usable: impl FnMut(&Route) -> bool) -> Option<&Route> {
        self.lengths[family(dst)].iter().find_map(|&(len, _)| {
            let network = IpPrefix::new(dst, len)?.network();
            self.table.get(&network)?.iter().find(|route| usable(route))
        })
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.table.values().flatten()
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

fn check(route: &Route) -> Result<(), RouteTableError> {
    let Some(gateway) = route.gateway else {
        return route.link.map(|_| ()).ok_or(RouteTableError::Gateway);
    };
    if gateway.is_ipv4() != route.destination.addr().is_ipv4() {
        return Err(RouteTableError::Family);
    }
    let is_station = !gateway.is_multicast() && !gateway.is_unspecified() && !gateway.is_loopback();
    if is_station { Ok(()) } else { Err(RouteTableError::Gateway) }
}

const fn family(addr: IpAddr) -> usize {
    if addr.is_ipv4() { 0 } else { 1 }
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
            origin: Origin::Operator,
            hint: 0,
        }
    }

    #[test]
    fn what_a_route_says_does_not_make_it_another() {
        let mut table = routes();
        let way = route("10.0.0.0/8", None, Some(1));
        table.add(Route { hint: 3, ..way }).expect("it is new");
        assert_eq!(table.add(way), Err(RouteTableError::Exists));
        assert_eq!(table.remove(way), Ok(()));
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
    fn refusals() {
        let mut table = routes();
        for (bad, error) in [
            (route("10.0.0.0/8", None, None), RouteTableError::Gateway),
            (route("10.0.0.0/8", Some("fd00::1"), None), RouteTableError::Family),
            (route("10.0.0.0/8", Some("224.0.0.1"), None), RouteTableError::Gateway),
        ] {
            assert_eq!(table.add(bad), Err(error));
        }
        let good = route("10.0.0.9/8", None, Some(1));
        assert_eq!(table.remove(good), Err(RouteTableError::Missing));
        assert_eq!(table.add(good), Ok(()));
        assert_eq!(table.add(good), Err(RouteTableError::Exists));
        assert_eq!(table.remove(good), Ok(()));
        assert_eq!((table.count, table.lengths[0].len()), (0, 0));
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
                let new = Route { destination, gateway: None, link: Some(LinkId(1)), origin: Origin::Operator, hint: 0 };
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
