//! The routers of a link, and what they say lies behind them (RFC 4861 §6.3.4, RFC 4191).
//!
//! Owns, per link, the routes that router advertisements brought, with their lifetimes; a default router is a
//! router whose route leads everywhere. It says what changes in the table of routes, `autoconf.rs` changes it.
//! Both lists are bounded, so that a flood of advertisements costs a counter (A07).

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use firelane_units::{Instant, IpPrefix, LinkId};
use firelane_wire::RouterPreference;

use crate::lifetime::Until;
use crate::route::{Origin, Route, RouteKind};

/// A07: default routers of a link.
pub(crate) const ROUTERS_MAX: usize = 16;
/// A07: more specific routes of a link.
pub(crate) const ROUTES_MAX: usize = 16;

/// A route as a router announced it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Announced {
    /// Who.
    pub(crate) router: Ipv6Addr,
    /// Where to; everywhere if it is a default router.
    pub(crate) destination: IpPrefix,
    /// How much to like it.
    pub(crate) preference: RouterPreference,
}

impl Announced {
    /// The entry of the table of routes.
    pub(crate) const fn route(&self, link: LinkId) -> Route {
        Route {
            destination: self.destination,
            gateway: Some(IpAddr::V6(self.router)),
            link: Some(link),
            source: None,
            kind: RouteKind::Unicast,
            origin: Origin::Router(self.preference),
            hint: 0,
        }
    }
}

/// What comes of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouteChange {
    /// The route ends.
    pub(crate) gone: Option<Announced>,
    /// The route begins.
    pub(crate) new: Option<Announced>,
    /// There is no room for it.
    pub(crate) is_refused: bool,
}

/// The routes that a link's routers announce.
#[derive(Debug, Default)]
pub(crate) struct Routers {
    list: Vec<(Announced, Until)>,
}

/// Everywhere.
pub(crate) fn everywhere() -> IpPrefix {
    IpPrefix::new(Ipv6Addr::UNSPECIFIED.into(), 0).expect("zero fits every family")
}

impl Routers {
    /// A router announces a route; a lifetime of zero ends it.
    pub(crate) fn hear(&mut self, now: Instant, said: Announced, lifetime: Duration) -> RouteChange {
        let same =
            |old: &(Announced, Until)| old.0.router == said.router && old.0.destination == said.destination;
        let known = self.list.iter().position(same);
        let mut change = RouteChange::default();
        match (known, lifetime.is_zero()) {
            (None, true) => {}
            (Some(at), true) => change.gone = Some(self.list.remove(at).0),
            (Some(at), false) => {
                let old = core::mem::replace(&mut self.list[at], (said, Until::after(now, lifetime))).0;
                if old.preference != said.preference {
                    change.gone = Some(old);
                    change.new = Some(said);
                }
            }
            (None, false) if self.is_full(said.destination) => change.is_refused = true,
            (None, false) => {
                self.list.push((said, Until::after(now, lifetime)));
                change.new = Some(said);
            }
        }
        change
    }

    fn is_full(&self, destination: IpPrefix) -> bool {
        let is_default = |prefix: IpPrefix| prefix.prefix_len() == 0;
        let alike = self.list.iter().filter(|(r, _)| is_default(r.destination) == is_default(destination));
        alike.count() >= if is_default(destination) { ROUTERS_MAX } else { ROUTES_MAX }
    }

    /// Whether there is a default router.
    pub(crate) fn has_default(&self) -> bool {
        self.list.iter().any(|(route, _)| route.destination.prefix_len() == 0)
    }

    /// Whether `router` is a default router.
    pub(crate) fn is_default(&self, router: Ipv6Addr) -> bool {
        self.list.iter().any(|(route, _)| route.router == router && route.destination.prefix_len() == 0)
    }

    /// Whether `router` has announced any route.
    pub(crate) fn has(&self, router: Ipv6Addr) -> bool {
        self.list.iter().any(|(route, _)| route.router == router)
    }

    /// When the next route ends.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.list.iter().filter_map(|(_, until)| until.at()).min()
    }

    /// The next route whose time is up.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Announced> {
        let at = self.list.iter().position(|(_, until)| until.is_past(now))?;
        Some(self.list.remove(at).0)
    }

    /// Ends all of them, one by one.
    pub(crate) fn pop(&mut self) -> Option<Announced> {
        self.list.pop().map(|(route, _)| route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn said(router: u16, destination: &str, preference: RouterPreference) -> Announced {
        let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, router);
        Announced { router, destination: destination.parse().unwrap(), preference }
    }

    #[test]
    fn a_router_comes_stays_changes_and_goes() {
        let mut routers = Routers::default();
        let (now, medium, high) = (Instant::ZERO, RouterPreference::Medium, RouterPreference::High);
        let one = said(1, "::/0", medium);
        assert_eq!(routers.hear(now, one, Duration::ZERO), RouteChange::default());
        assert_eq!(routers.hear(now, one, HOUR).new, Some(one));
        assert_eq!(routers.hear(now + HOUR / 2, one, HOUR), RouteChange::default());
        let liked = said(1, "::/0", high);
        let change = routers.hear(now + HOUR / 2, liked, HOUR);
        assert_eq!((change.gone, change.new), (Some(one), Some(liked)));
        assert_eq!(routers.poll_at(), Some(now + HOUR / 2 + HOUR));
        assert!(routers.has_default());
        assert_eq!(routers.hear(now + HOUR, liked, Duration::ZERO).gone, Some(liked));
        assert!(!routers.has_default());
    }

    #[test]
    fn a07_the_seventeenth_is_refused_until_one_of_its_kind_is_gone() {
        let mut routers = Routers::default();
        let medium = RouterPreference::Medium;
        for n in 0..17 {
            let refused = routers.hear(Instant::ZERO, said(n, "::/0", medium), HOUR).is_refused;
            assert_eq!(refused, n == 16);
            let refused = routers.hear(Instant::ZERO, said(1, &format!("fd00:{n}::/32"), medium), HOUR);
            assert_eq!(refused.is_refused, n == 16);
        }
        assert_eq!(routers.poll(Instant::ZERO + HOUR / 2), None);
        let mut gone = 0;
        while routers.poll(Instant::ZERO + HOUR).is_some() {
            gone += 1;
        }
        assert_eq!((gone, routers.poll_at()), (32, None));
        assert!(!routers.hear(Instant::ZERO + HOUR, said(16, "::/0", medium), HOUR).is_refused);
    }
}
