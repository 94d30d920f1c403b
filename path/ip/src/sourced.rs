//! Routes for packets of some sources (policy routing, `ip rule from` of Linux).
//!
//! Each source has a table of its own, which comes before that of all; the longest source comes first. Where none of them
//! has a match, the table of all decides. Asked by `egress.rs` for what has a source: the first packet of a forwarded flow,
//! and our own packets from an address that was chosen. Called by `stack.rs` with what the operator wants.

use core::net::IpAddr;

use firelane_units::{IpPrefix, LinkId};

use crate::random::Keyed;
use crate::route::{Route, RouteTableError, Routes};

/// Sources with routes of their own: the first packet of each flow asks for them one after the other.
const SOURCES_MAX: usize = 64;

/// The routes of sources, the longest source first.
#[derive(Debug)]
pub(crate) struct SourcedRoutes {
    tables: Vec<(IpPrefix, Routes)>,
    keyed: Keyed,
}

impl SourcedRoutes {
    pub(crate) const fn new(keyed: Keyed) -> Self {
        Self { tables: Vec::new(), keyed }
    }

    fn position(&self, source: IpPrefix) -> Option<usize> {
        self.tables.iter().position(|(other, _)| *other == source)
    }

    /// Adds a route of the source that it names.
    pub(crate) fn add(&mut self, mut route: Route, source: IpPrefix) -> Result<(), RouteTableError> {
        let source = source.network();
        if source.addr().is_ipv4() != route.destination.addr().is_ipv4() {
            return Err(RouteTableError::Family);
        }
        route.source = Some(source);
        if let Some(at) = self.position(source) {
            return self.tables[at].1.add(route);
        }
        if self.tables.len() == SOURCES_MAX {
            return Err(RouteTableError::Full);
        }
        let mut table = Routes::new(self.keyed);
        table.add(route)?;
        let at = self.tables.partition_point(|(other, _)| other.prefix_len() >= source.prefix_len());
        self.tables.insert(at, (source, table));
        Ok(())
    }

    /// Removes a route of the source that it names; a source without routes is gone.
    pub(crate) fn remove(&mut self, mut route: Route, source: IpPrefix) -> Result<(), RouteTableError> {
        let source = source.network();
        let at = self.position(source).ok_or(RouteTableError::Missing)?;
        route.source = Some(source);
        self.tables[at].1.remove(route)?;
        self.tables.retain(|(_, table)| !table.is_empty());
        Ok(())
    }

    /// The tables of a source, in their order.
    pub(crate) fn of(&self, src: Option<IpAddr>) -> impl Iterator<Item = &Routes> {
        let is_its = move |source: &IpPrefix| src.is_some_and(|src| source.contains(src));
        self.tables.iter().filter(move |(source, _)| is_its(source)).map(|(_, table)| table)
    }

    /// Whether no source has.
    pub(crate) const fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Whether a source has routes of its own.
    pub(crate) fn has(&self, src: IpAddr) -> bool {
        self.of(Some(src)).next().is_some()
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.tables.iter().flat_map(|(_, table)| table.iter())
    }

    /// Forgets all that go by `link`.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.tables.iter_mut().for_each(|(_, table)| _ = table.forget(link));
        self.tables.retain(|(_, table)| !table.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::RouteKind;

    fn route(destination: &str, gateway: &str) -> Route {
        let destination = destination.parse().unwrap();
        Route { gateway: Some(gateway.parse().unwrap()), ..Route::ending(destination, RouteKind::Unicast) }
    }

    fn gateways(routes: &SourcedRoutes, src: &str) -> Vec<String> {
        let dst: IpAddr = if src.contains(':') { "fd09::1" } else { "203.0.113.1" }.parse().unwrap();
        let of = routes.of(Some(src.parse().unwrap()));
        of.filter_map(|table| Some(table.best(dst, |_| Some(0))?.gateway?.to_string())).collect()
    }

    #[test]
    fn the_longest_source_comes_first_and_an_empty_one_is_gone() {
        let mut routes = SourcedRoutes::new(Keyed::new([0; 16], 0));
        let source = |text: &str| -> IpPrefix { text.parse().unwrap() };
        routes.add(route("0.0.0.0/0", "192.0.2.1"), source("10.0.0.0/8")).unwrap();
        routes.add(route("0.0.0.0/0", "192.0.2.2"), source("10.1.0.9/16")).unwrap();
        routes.add(route("198.51.100.0/24", "192.0.2.3"), source("10.1.1.0/24")).unwrap();
        routes.add(route("::/0", "fd00::1"), source("fd01::/64")).unwrap();
        assert_eq!(gateways(&routes, "10.1.1.1"), ["192.0.2.2", "192.0.2.1"]);
        assert_eq!(gateways(&routes, "10.2.0.1"), ["192.0.2.1"]);
        assert_eq!(gateways(&routes, "fd01::7"), ["fd00::1"]);
        assert_eq!(gateways(&routes, "172.16.0.1"), [""; 0]);
        assert!(routes.has("10.1.1.1".parse().unwrap()) && !routes.has("fd02::1".parse().unwrap()));
        assert_eq!(routes.iter().count(), 4);
        let again = routes.add(route("0.0.0.0/0", "192.0.2.2"), source("10.1.0.0/16"));
        assert_eq!(again, Err(RouteTableError::Exists));
        let other = routes.add(route("0.0.0.0/0", "192.0.2.2"), source("fd00::/8"));
        assert_eq!(other, Err(RouteTableError::Family));
        let gone = route("0.0.0.0/0", "192.0.2.2");
        routes.remove(gone, source("10.1.0.0/16")).unwrap();
        assert_eq!(routes.remove(gone, source("10.1.0.0/16")), Err(RouteTableError::Missing));
        assert_eq!(gateways(&routes, "10.1.1.1"), ["192.0.2.1"]);
    }

    #[test]
    fn there_are_so_many_sources_and_no_more() {
        let mut routes = SourcedRoutes::new(Keyed::new([0; 16], 0));
        let source = |n: usize| -> IpPrefix { format!("10.{n}.0.0/16").parse().unwrap() };
        let any = route("0.0.0.0/0", "192.0.2.1");
        (0..SOURCES_MAX).for_each(|n| routes.add(any, source(n)).unwrap());
        assert_eq!(routes.add(any, source(SOURCES_MAX)), Err(RouteTableError::Full));
        routes.add(route("198.51.100.0/24", "192.0.2.1"), source(3)).unwrap();
    }
}
