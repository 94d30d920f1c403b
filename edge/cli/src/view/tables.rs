//! The other tables of `netstat`: routes (`-r`), neighbours (`-p`), groups (`-g`), interfaces (`-i`), destinations (`-d`) and
//! multicast forwarding (`-M`).

use firelane_api::{DestinationInfo, GroupInfo, IfInfo, NeighbourInfo, RouteInfo, Traffic, Which};
use firelane_model::NetstackName;
use serde::Serialize;

use crate::session::{Failure, Session};

/// The netstacks that are shown: the one that was named, or all.
pub(super) fn netstacks(session: &Session<'_>, named: Option<&str>) -> Result<Vec<NetstackName>, Failure> {
    let all = session.api.netstacks(Which::Active)?.into_iter().map(|it| it.name);
    let names: Vec<_> = all.filter(|it| named.is_none_or(|name| it.as_str() == name)).collect();
    match named {
        Some(name) if names.is_empty() => Err(super::no_netstack(name)),
        _ => Ok(names),
    }
}

/// One netstack's part of a JSON document.
#[derive(Serialize)]
struct Part<T> {
    netstack: NetstackName,
    #[serde(flatten)]
    it: T,
}

/// A table with a part for each family.
struct Listing<T> {
    /// What a JSON document calls it.
    name: &'static str,
    is_v6: fn(&T) -> bool,
    /// Its title, names and rules for IPv6 or IPv4.
    head: fn(bool) -> String,
    line: fn(&T) -> String,
}

impl<T: Serialize> Listing<T> {
    /// Shows what `ask` gets from each netstack.
    fn show(
        &self,
        session: &mut Session<'_>,
        netstacks: &[NetstackName],
        families: &[bool],
        json: bool,
        ask: impl Fn(&Session<'_>, &str) -> Result<Vec<T>, Failure>,
    ) -> Result<(), Failure> {
        let mut all = Vec::new();
        for netstack in netstacks {
            let asked = ask(session, netstack.as_str())?.into_iter();
            let shown = asked.filter(|it| families.contains(&(self.is_v6)(it)));
            all.extend(shown.map(|it| Part { netstack: netstack.clone(), it }));
        }
        if json {
            return session.json(self.name, &all, false);
        }
        for &is_v6 in families {
            let rows = all.iter().map(|part| &part.it).filter(|it| (self.is_v6)(it) == is_v6);
            let mut rows = rows.peekable();
            if rows.peek().is_none() {
                continue;
            }
            writeln!(session.out, "{}", (self.head)(is_v6))?;
            for it in rows {
                writeln!(session.out, "{}", (self.line)(it).trim_end())?;
            }
        }
        Ok(())
    }
}

/// `-r`
pub(super) fn routes(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    families: &[bool],
    json: bool,
) -> Result<(), Failure> {
    let table = Listing { name: "routes", is_v6: route_is_v6, head: routes_head, line: route };
    table.show(session, netstacks, families, json, |session, name| Ok(session.api.routes(name)?))
}

fn route_is_v6(it: &RouteInfo) -> bool {
    is_v6_text(&it.destination)
}

fn routes_head(is_v6: bool) -> String {
    let (version, names, [first, second]) = if is_v6 {
        let names = format!("  {:<25} {:<27} {:<5} {:<9}", "Destination/Mask", "Gateway", "Flags", "If");
        (6, names, [27, 27])
    } else {
        let names = format!("  {:<18} {:<20} {:<5} {:<9}", "Destination", "Gateway", "Flags", "Interface");
        (4, names, [20, 20])
    };
    format!("\nRouting Table: IPv{version}\n{names}\n{}", rules(&[first, second, 5, 9]))
}

fn route(it: &RouteInfo) -> String {
    let width = if route_is_v6(it) { 27 } else { 20 };
    let gateway = it.gateway.as_deref().unwrap_or_default();
    let interface = it.interface.as_deref().unwrap_or_default();
    let from = it.source.as_ref().map(|source| format!(" from {source}")).unwrap_or_default();
    let proto = it.protocol.as_ref().map(|protocol| format!(" proto {protocol}")).unwrap_or_default();
    let metric = it.metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    let whence = [from, proto, metric].concat();
    format!("{:<width$} {gateway:<width$} {:<5} {interface}{whence}", destination(it), it.flags)
}

fn is_v6_text(address: &str) -> bool {
    address.contains(':')
}

/// A host's route has no length, and that to everywhere has a name.
fn destination(route: &RouteInfo) -> &str {
    match route.destination.as_str() {
        "0.0.0.0/0" | "::/0" => "default",
        text => text.strip_suffix("/32").unwrap_or(text),
    }
}

/// `-p`
pub(super) fn neighbours(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    families: &[bool],
    json: bool,
) -> Result<(), Failure> {
    let is_v6 = |it: &NeighbourInfo| it.address.is_ipv6();
    let table = Listing { name: "neighbours", is_v6, head: neighbours_head, line: neighbour };
    table.show(session, netstacks, families, json, |session, name| Ok(session.api.neighbours(name)?))
}

fn neighbours_head(is_v6: bool) -> String {
    let (version, names, widths) = if is_v6 {
        let state =
            format!(" {:<8} {:<18} {:<7} {:<12} Destination/Mask", "If", "Physical Address", "Type", "State");
        (6, state, [9, 17, 7, 12, 27])
    } else {
        let flags = format!("{:<9} {:<20} {:<15} {:<8} Phys Addr", "Device", "IP Address", "Mask", "Flags");
        (4, flags, [9, 20, 15, 8, 17])
    };
    format!("\nNet to Media Table: IPv{version}\n{names}\n{}", rules(&widths))
}

/// Flags of IPv4: S and P our own address, L local, A we answer for it; U nobody has answered; o it is old.
fn neighbour(it: &NeighbourInfo) -> String {
    let mac = it.mac.as_deref().unwrap_or_default();
    let is_local = it.state == "local";
    if it.address.is_ipv6() {
        let kind = if is_local { "local" } else { "dynamic" };
        let state = if is_local { "REACHABLE".to_owned() } else { it.state.to_uppercase() };
        return format!("{:<9} {mac:<17} {kind:<7} {state:<12} {}", it.interface, it.address);
    }
    let flags = match it.state.as_str() {
        "local" => "SPLA",
        "incomplete" => "U",
        "reachable" => "",
        _ => "o",
    };
    format!("{:<9} {:<20} {:<15} {flags:<8} {mac}", it.interface, it.address, "255.255.255.255")
}

/// `-g`
pub(super) fn groups(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    families: &[bool],
    json: bool,
) -> Result<(), Failure> {
    let is_v6 = |it: &GroupInfo| it.group.is_ipv6();
    let table = Listing { name: "groups", is_v6, head: groups_head, line: group };
    table.show(session, netstacks, families, json, |session, name| Ok(session.api.groups(name)?))
}

fn groups_head(is_v6: bool) -> String {
    let (version, first, width) = if is_v6 { (6, " If", 27) } else { (4, "Interface", 20) };
    let names = format!("{first:<9} {:<width$} RefCnt", "Group");
    format!("\nGroup Memberships: IPv{version}\n{names}\n{}", rules(&[9, width, 6]))
}

fn group(GroupInfo { interface, group, members }: &GroupInfo) -> String {
    let width = if group.is_ipv6() { 27 } else { 20 };
    format!("{interface:<9} {:<width$} {members:>6}", group.to_string())
}

/// `-d`
pub(super) fn destinations(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    families: &[bool],
    json: bool,
) -> Result<(), Failure> {
    let is_v6 = |it: &DestinationInfo| it.address.is_ipv6();
    let table = Listing { name: "destinations", is_v6, head: destinations_head, line: destination_line };
    table.show(session, netstacks, families, json, |session, name| Ok(session.api.destinations(name)?))
}

fn destinations_head(is_v6: bool) -> String {
    let (version, width) = if is_v6 { (6, 27) } else { (4, 20) };
    let names = format!("{:<width$} {:>6} {:>5} Flags", "Address", "PMTU", "Age");
    format!("\nDestination Cache Entries: IPv{version}\n{names}\n{}", rules(&[width, 6, 5, 5]))
}

/// Flags: P its path's MTU is known, which is why it is here.
fn destination_line(DestinationInfo { address, mtu, age }: &DestinationInfo) -> String {
    let width = if address.is_ipv6() { 27 } else { 20 };
    format!("{:<width$} {mtu:>6} {age:>5} P", address.to_string())
}

/// The tables of a router of multicast: a netstack forwards none, so that they are as the original's are without a routing
/// daemon.
#[derive(Serialize)]
struct Multicast {
    interfaces: [(); 0],
    cache: [(); 0],
}

/// `-M`
pub(super) fn multicast(
    session: &mut Session<'_>,
    _: &[NetstackName],
    _: &[bool],
    json: bool,
) -> Result<(), Failure> {
    if json {
        return session.json("multicast", &Multicast { interfaces: [], cache: [] }, false);
    }
    Ok(writeln!(session.out, "\nVirtual Interface Table is empty\n\nMulticast Forwarding Cache is empty")?)
}

/// An interface with its addresses and its link's counters.
#[derive(Serialize)]
struct Interface {
    #[serde(flatten)]
    it: IfInfo,
    mtu: u16,
    addresses: Vec<String>,
    traffic: Traffic,
}

/// `-i`
pub(super) fn interfaces(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    families: &[bool],
    json: bool,
) -> Result<(), Failure> {
    let all = all_interfaces(session, netstacks)?;
    list_interfaces(session, &all, families, json)
}

/// `-i -I`
pub(super) fn interface(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    families: &[bool],
    name: &str,
    json: bool,
) -> Result<(), Failure> {
    let mut all = all_interfaces(session, netstacks)?;
    all.retain(|it| it.it.name.as_str() == name);
    match all.is_empty() {
        true => Err(crate::session::die(format!("no interface is called {name}"))),
        false => list_interfaces(session, &all, families, json),
    }
}

fn all_interfaces(session: &Session<'_>, netstacks: &[NetstackName]) -> Result<Vec<Interface>, Failure> {
    let (links, stats) = (session.api.links(Which::Active)?, session.api.link_stats()?);
    let addrs = session.api.addrs(Which::Active)?;
    let mut all = Vec::new();
    for it in session.api.ifs(Which::Active)? {
        if !netstacks.contains(&it.netstack) {
            continue;
        }
        let mtu = links.iter().find(|link| link.name == it.name).map_or(0, |link| link.mtu);
        let traffic =
            stats.iter().find(|link| link.name == it.name).map(|link| link.traffic).unwrap_or_default();
        let own = addrs.iter().filter(|addr| addr.name.interface() == it.name.as_str());
        let addresses = own.map(|addr| addr.addr.clone()).collect();
        all.push(Interface { it, mtu, addresses, traffic });
    }
    Ok(all)
}

fn list_interfaces(
    session: &mut Session<'_>,
    all: &[Interface],
    families: &[bool],
    json: bool,
) -> Result<(), Failure> {
    if json {
        return session.json("interfaces", &all, false);
    }
    for &is_v6 in families {
        let width = if is_v6 { 27 } else { 14 };
        let mut is_open = false;
        for it in all {
            for address in it.addresses.iter().filter(|text| is_v6_text(text) == is_v6) {
                if !core::mem::replace(&mut is_open, true) {
                    let names = "Ipkts  Ierrs Opkts  Oerrs Collis Queue";
                    writeln!(
                        session.out,
                        "Name      Mtu   {:<width$} {:<width$} {names}",
                        "Net/Dest", "Address"
                    )?;
                }
                writeln!(session.out, "{}", interface_line(it, address, width))?;
            }
        }
        if is_open {
            writeln!(session.out)?;
        }
    }
    Ok(())
}

/// There are no collisions on a virtual wire, and what waits to be sent waits in sockets.
fn interface_line(it: &Interface, address: &str, width: usize) -> String {
    let prefix = address.parse::<firelane_units::IpPrefix>().ok();
    let network = prefix.map(|prefix| prefix.network().to_string()).unwrap_or_default();
    let own = prefix.map(|prefix| prefix.addr().to_string()).unwrap_or_default();
    let Traffic { ipackets, ierrors, opackets, oerrors, .. } = it.traffic;
    format!(
        "{:<9} {:<5} {network:<width$} {own:<width$} {ipackets:<6} {ierrors:<5} {opackets:<6} {oerrors:<5} {:<6} 0",
        it.it.name, it.mtu, 0
    )
}

/// A line of dashes below each column.
fn rules(widths: &[usize]) -> String {
    widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>().join(" ")
}
