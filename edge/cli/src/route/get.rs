//! `route get`: which of a netstack's routes packets to a destination take.
//!
//! The daemon gives the routes, and the choice is that of `path/ip`: routes of sources before those of all, the longest prefix, the
//! operator's before others', a routing daemon's last. Of several that are alike flows share them, and all of them are shown.

use std::cmp::Reverse;
use std::net::IpAddr;

use firelane_api::{RouteInfo, RouteOrigin};
use firelane_model::NetstackName;
use firelane_units::IpPrefix;

use super::words::Words;
use super::{named, short};
use crate::session::{Failure, Session, die};

pub(super) fn run(
    session: &mut Session<'_>,
    words: &Words,
    netstack: &NetstackName,
    wanted: IpPrefix,
) -> Result<(), Failure> {
    let source = words.source.map(IpPrefix::addr);
    let best = best(session.api.routes(netstack.as_str())?, wanted, source);
    if best.is_empty() {
        return Err(Failure::Text(format!("get {}: not in table", named(wanted))));
    }
    for route in best {
        show(session, wanted, &route)?;
    }
    Ok(())
}

/// The routes that are in use to all of `wanted`, of whom none is better than another.
fn best(routes: Vec<RouteInfo>, wanted: IpPrefix, source: Option<IpAddr>) -> Vec<RouteInfo> {
    let rank = |it: &RouteInfo| {
        let (to, from) = (it.destination.parse::<IpPrefix>().ok()?, it.source.as_deref());
        let from = from.map(|it| it.parse::<IpPrefix>().ok()).map_or(Some(None), |it| it.map(Some))?;
        let leads = it.flags.contains('U')
            && to.prefix_len() <= wanted.prefix_len()
            && to.contains(wanted.addr())
            && from.is_none_or(|from| source.is_some_and(|source| from.contains(source)));
        let origin = match it.origin {
            RouteOrigin::Operator => 0,
            RouteOrigin::Daemon => 2,
            RouteOrigin::Address | RouteOrigin::OnLink | RouteOrigin::Router | RouteOrigin::Lease => 1,
        };
        leads.then_some((from.map(IpPrefix::prefix_len), to.prefix_len(), Reverse(origin)))
    };
    let most = routes.iter().filter_map(rank).max();
    routes.into_iter().filter(|it| most.is_some() && rank(it) == most).collect()
}

fn show(session: &mut Session<'_>, wanted: IpPrefix, route: &RouteInfo) -> Result<(), Failure> {
    let prefix: IpPrefix =
        route.destination.parse().map_err(|_| die(format!("{}: no network", route.destination)))?;
    let destination = if prefix.prefix_len() == 0 { short(prefix) } else { prefix.addr().to_string() };
    let mask = if prefix.prefix_len() == 0 { short(prefix) } else { mask(prefix) };
    let flags: Vec<_> = route.flags.chars().filter_map(flag).collect();
    let origin = match route.origin {
        RouteOrigin::Address => "address",
        RouteOrigin::Operator => "operator",
        RouteOrigin::OnLink | RouteOrigin::Router => "router",
        RouteOrigin::Lease => "lease",
        RouteOrigin::Daemon => "routing daemon",
    };
    let lines = [
        ("route to", Some(short(wanted))),
        ("destination", Some(destination)),
        ("mask", Some(mask)),
        ("from", route.source.clone()),
        ("gateway", route.gateway.clone()),
        ("interface", route.interface.clone()),
        ("flags", Some(format!("<{}>", flags.join(",")))),
        ("origin", Some(origin.to_owned())),
        ("protocol", route.protocol.clone()),
        ("congestion", route.congestion_control.clone()),
    ];
    for (name, text) in lines {
        if let Some(text) = text {
            writeln!(session.out, "{name:>11}: {text}")?;
        }
    }
    Ok(())
}

/// A flag of `netstat -r` in the words of the original.
const fn flag(letter: char) -> Option<&'static str> {
    match letter {
        'U' => Some("UP"),
        'G' => Some("GATEWAY"),
        'H' => Some("HOST"),
        'R' => Some("REJECT"),
        'S' => Some("STATIC"),
        'D' => Some("DYNAMIC"),
        'B' => Some("BLACKHOLE"),
        _ => None,
    }
}

fn mask(prefix: IpPrefix) -> String {
    let all: IpAddr = match prefix.addr() {
        IpAddr::V4(_) => u32::MAX.to_be_bytes().into(),
        IpAddr::V6(_) => u128::MAX.to_be_bytes().into(),
    };
    let masked = IpPrefix::new(all, prefix.prefix_len()).map(IpPrefix::network);
    masked.map_or_else(String::new, |it| it.addr().to_string())
}
