//! A netstack's routes and neighbours in the words of the interface.
//!
//! Called by `host.rs` without its lock, because a lane has to be waited for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use firelane::{IpTables, Origin, Route, RouteConfig, RouteKind};
use firelane_api::{DestinationInfo, NeighbourInfo, RouteInfo, RouteOrigin};
use firelane_fpm::Whence;
use firelane_units::{IpPrefix, LinkId, MacAddr};

/// The names and addresses of a netstack's links.
pub(crate) type Names = BTreeMap<LinkId, (String, MacAddr)>;

/// The routes, those of our own subnets first, then by destination.
pub(crate) fn routes(
    tables: &IpTables,
    names: &Names,
    whence: impl Fn(IpPrefix) -> Option<Whence>,
) -> Vec<RouteInfo> {
    let mut sorted: Vec<_> = tables.routes.iter().collect();
    sorted.sort_by_key(|it| (it.gateway.is_some(), it.destination.addr(), it.destination.prefix_len()));
    let shown = |it: &Route| {
        let whence = Some(it.destination).filter(|_| it.origin == Origin::Daemon).and_then(&whence);
        let protocol = |it: Whence| it.word().map_or_else(|| it.protocol.to_string(), str::to_owned);
        RouteInfo {
            protocol: whence.map(protocol),
            metric: whence.map(|it| it.metric),
            ..route(tables, names, it)
        }
    };
    sorted.into_iter().map(shown).collect()
}

fn route(tables: &IpTables, names: &Names, it: &Route) -> RouteInfo {
    let on_link = |link: LinkId| names.get(&link).map(|(name, _)| name.clone());
    let own = tables
        .addresses
        .iter()
        .find(|own| Some(own.link) == it.link && own.prefix.network() == it.destination);
    let near =
        it.gateway.and_then(|gateway| tables.addresses.iter().find(|own| own.prefix.contains(gateway)));
    let gateway = it.gateway.or_else(|| own.map(|own| own.prefix.addr()));
    // One whose gateway is on no subnet leads nowhere, and is not in use.
    let leads = it.link.is_some() || near.is_some() || it.kind != RouteKind::Unicast;
    let mut flags = if leads { "U" } else { "" }.to_owned();
    if it.gateway.is_some() {
        flags.push('G');
    }
    if it.destination == IpPrefix::host(it.destination.addr()) {
        flags.push('H');
    }
    match it.origin {
        Origin::Operator => flags.push('S'),
        Origin::Daemon => flags.push('D'),
        Origin::Address | Origin::OnLink | Origin::Router(_) | Origin::Lease(_) => {}
    }
    match it.kind {
        RouteKind::Unicast => {}
        RouteKind::Blackhole => flags.push('B'),
        RouteKind::Unreachable | RouteKind::Prohibit => flags.push('R'),
    }
    RouteInfo {
        destination: it.destination.to_string(),
        gateway: gateway.map(|it| it.to_string()),
        interface: it.link.or_else(|| near.map(|near| near.link)).and_then(on_link),
        flags,
        origin: origin(it.origin),
        source: it.source.map(|it| it.to_string()),
        protocol: None,
        metric: None,
        congestion_control: RouteConfig::congestion_of(it).map(|control| control.word().to_owned()),
    }
}

const fn origin(of: Origin) -> RouteOrigin {
    match of {
        Origin::Address => RouteOrigin::Address,
        Origin::Operator => RouteOrigin::Operator,
        Origin::OnLink => RouteOrigin::OnLink,
        Origin::Router(_) => RouteOrigin::Router,
        Origin::Lease(_) => RouteOrigin::Lease,
        Origin::Daemon => RouteOrigin::Daemon,
    }
}

/// The destinations whose paths carry less than their links.
pub(crate) fn destinations(tables: &IpTables) -> Vec<DestinationInfo> {
    let info = |it: &firelane::KnownPath| DestinationInfo {
        address: it.dst,
        mtu: it.mtu.bytes(),
        age: it.age.as_secs(),
    };
    let mut all: Vec<_> = tables.paths.iter().map(info).collect();
    all.sort_by_key(|it| it.address);
    all
}

/// Our own addresses and the neighbours, by interface and address.
pub(crate) fn neighbours(tables: &IpTables, names: &Names) -> Vec<NeighbourInfo> {
    let unknown = || ("?".to_owned(), None);
    let named =
        |link: LinkId| names.get(&link).map_or_else(unknown, |(name, mac)| (name.clone(), Some(*mac)));
    let local = tables.addresses.iter().map(|own| {
        let (interface, mac) = named(own.link);
        info(interface, own.prefix.addr(), mac, "local")
    });
    let others = tables.neighbours.iter().map(|it| info(named(it.link).0, it.ip, it.mac, it.state.word()));
    let mut all: Vec<_> = local.chain(others).collect();
    all.sort_by(|a, b| (&a.interface, a.address).cmp(&(&b.interface, b.address)));
    all
}

fn info(interface: String, address: IpAddr, mac: Option<MacAddr>, state: &str) -> NeighbourInfo {
    NeighbourInfo { interface, address, mac: mac.map(|mac| mac.to_string()), state: state.to_owned() }
}
