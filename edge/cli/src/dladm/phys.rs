//! `dladm` verbs about what is below links that lead out: devices, their addresses and rings, and aggregations, of which there are
//! none.

use firelane_api::{DeviceInfo, DeviceModes, LinkInfo, Status, Which, device_speed};
use firelane_model::LinkClass;
use serde::Serialize;

use super::PROGRAM;
use super::show::{check, only, short_mac, style, which};
use crate::common::Call;
use crate::ofmt::{Column, Table, UNKNOWN, col};
use crate::session::{Failure, Session, die};

const PHYS: &[Column] = &[
    col("LINK", 13),
    col("MEDIA", 21),
    col("STATE", 11),
    col("SPEED", 9),
    col("DUPLEX", 9),
    col("DEVICE", 13),
];
/// What is kept says nothing of what there is.
const KEPT: &[Column] = &[col("LINK", 13), col("DEVICE", 13), col("MEDIA", 21), col("FLAGS", 7)];
const ADDRESSES: &[Column] =
    &[col("LINK", 13), col("SLOT", 9), col("ADDRESS", 19), col("INUSE", 5), col("CLIENT", 13)];
const RINGS: &[Column] = &[col("LINK", 13), col("RINGTYPE", 9), col("RINGS", 21), col("CLIENTS", 24)];
const ETHER: &[Column] = &[
    col("LINK", 16),
    col("PTYPE", 9),
    col("STATE", 9),
    col("AUTO", 6),
    col("SPEED-DUPLEX", 32),
    col("PAUSE", 7),
    col("REM_FAULT", 17),
];
const AGGR: &[Column] = &[
    col("LINK", 16),
    col("POLICY", 9),
    col("ADDRPOLICY", 21),
    col("LACPACTIVITY", 14),
    col("LACPTIMER", 12),
    col("FLAGS", 8),
];

/// show-phys
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    if ['m', 'H', 'P'].into_iter().filter(|letter| call.args.has(*letter)).count() > 1 {
        return Err(die("the options -m, -H and -P cannot be used together"));
    }
    let links = phys(session, call)?;
    if call.args.has('m') {
        return addresses(session, call, &links);
    }
    if call.args.has('H') {
        return rings(session, call, &links);
    }
    if call.args.has('j') {
        return session.json("links", &links, false);
    }
    if call.args.has('P') {
        return kept(session, call, &links);
    }
    let mut table = Table::open(session, PROGRAM, PHYS, "link,media,state,speed,duplex,device", style(call))?;
    for link in &links {
        let device = link.device.clone().unwrap_or_default();
        let (state, speed) = (link.state.word().to_owned(), link.speed.to_string());
        let row = [link.name.to_string(), "Ethernet".into(), state, speed, duplex(&below(link)), device];
        table.row(session, &row)?;
    }
    Ok(())
}

/// -P: which links there will be. None of them has flags.
fn kept(session: &mut Session<'_>, call: &Call<'_>, links: &[LinkInfo]) -> Result<(), Failure> {
    let mut table = Table::open(session, PROGRAM, KEPT, "link,device,media,flags", style(call))?;
    for link in links {
        let device = link.device.clone().unwrap_or_default();
        table.row(session, &[link.name.to_string(), device, "Ethernet".into(), "-----".into()])?;
    }
    Ok(())
}

/// The links that lead out, or the one that is named.
fn phys(session: &mut Session<'_>, call: &Call<'_>) -> Result<Vec<LinkInfo>, Failure> {
    let name = call.optional_operand()?;
    let mut links: Vec<LinkInfo> = session.api.links(which(call))?;
    links.retain(|link| link.class == LinkClass::Phys);
    only(&mut links, name, |link| link.name.as_str(), "link {} is not valid")?;
    Ok(links)
}

/// What the driver says; what is no interface of the kernel has nobody to wait for.
fn duplex(device: &DeviceInfo) -> String {
    let known = device.duplex.clone().or_else(|| (!device.is_interface).then(|| "full".to_owned()));
    known.unwrap_or_else(|| "unknown".to_owned())
}

fn below(link: &LinkInfo) -> DeviceInfo {
    link.below.clone().unwrap_or_default()
}

/// An address of a device, and who has it.
#[derive(Serialize)]
struct Slot {
    link: String,
    slot: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    inuse: bool,
    clients: Vec<String>,
}

/// -m: the address that a device has now, and those from its factory. What a virtual function has is that function's.
fn addresses(session: &mut Session<'_>, call: &Call<'_>, links: &[LinkInfo]) -> Result<(), Failure> {
    let vnics = session.api.vnics(Which::Active)?;
    let slots = |link: &LinkInfo| {
        let slot = |slot: String, address: Option<String>, function: Option<u32>| {
            let has_it = |mac: &Option<String>| address.is_some() && *mac == address;
            let its = vnics.iter().filter(|vnic| vnic.over == link.name && has_it(&vnic.macaddress));
            let its = its.map(|vnic| vnic.name.to_string());
            let clients: Vec<_> = its.chain(function.map(|function| format!("vf{function}"))).collect();
            Slot { link: link.name.to_string(), slot, inuse: !clients.is_empty(), address, clients }
        };
        let device = below(link);
        let own = slot("primary".to_owned(), device.macaddress, None);
        let factory = device.factory.into_iter();
        let factory = factory.map(|it| slot(it.slot.to_string(), Some(it.macaddress), it.function));
        std::iter::once(own).chain(factory).collect::<Vec<_>>()
    };
    let slots: Vec<_> = links.iter().flat_map(slots).collect();
    if call.args.has('j') {
        return session.json("slots", &slots, false);
    }
    let mut table = Table::open(session, PROGRAM, ADDRESSES, "link,slot,address,inuse,client", style(call))?;
    for it in slots {
        let address = it.address.as_deref().map(short_mac).unwrap_or_default();
        let inuse = if it.inuse { "yes" } else { "no" };
        table
            .row(session, &[it.link, it.slot.to_owned(), address, inuse.to_owned(), it.clients.join(",")])?;
    }
    Ok(())
}

/// Rings of a device in one direction, and whose frames they carry.
#[derive(Serialize)]
struct Rings {
    link: String,
    ringtype: &'static str,
    rings: Vec<u16>,
    /// Nobody's, if they are not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<Vec<String>>,
}

/// -H: classification is Firelane's own, so every ring that is used is of the default group, which all VNICs share.
fn rings(session: &mut Session<'_>, call: &Call<'_>, links: &[LinkInfo]) -> Result<(), Failure> {
    let vnics = session.api.vnics(Which::Active)?;
    let rows = links.iter().flat_map(|link| {
        let its = vnics.iter().filter(|vnic| vnic.over == link.name).map(|vnic| vnic.name.to_string());
        let clients: Vec<_> = its.collect();
        let device = below(link);
        let of = |ringtype, used: &[u16]| {
            let rings =
                |rings: Vec<u16>, clients| Rings { link: link.name.to_string(), ringtype, rings, clients };
            let spare: Vec<_> = (0..device.rings).filter(|ring| !used.contains(ring)).collect();
            let spare = Some(spare).filter(|it| !it.is_empty()).map(|it| rings(it, None));
            std::iter::once(rings(used.to_vec(), Some(clients.clone()))).chain(spare).collect::<Vec<_>>()
        };
        [of("RX", &device.rxrings), of("TX", &device.txrings)].into_iter().flatten()
    });
    let rows: Vec<_> = rows.collect();
    if call.args.has('j') {
        return session.json("rings", &rows, false);
    }
    let mut table = Table::open(session, PROGRAM, RINGS, "link,ringtype,rings,clients", style(call))?;
    for it in rows {
        let default = if it.ringtype == "RX" { "<default,mcast>" } else { "<default>" };
        let clients = it.clients.map(|clients| format!("{default}{}", clients.join(","))).unwrap_or_default();
        table.row(session, &[it.link, it.ringtype.to_owned(), ranges(&it.rings), clients])?;
    }
    Ok(())
}

/// Rings as the original lists them: `0-2,5`.
fn ranges(rings: &[u16]) -> String {
    let follows = |a: &u16, b: &u16| *b == *a + 1;
    let shown = |run: &[u16]| match *run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    rings.chunk_by(follows).map(shown).collect::<Vec<_>>().join(",")
}

/// show-ether: links on interfaces of the kernel. What their drivers do not say is shown as unknown.
pub(super) fn ether(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let mut links = phys(session, call)?;
    if let ([link], true) = (links.as_slice(), call.optional_operand()?.is_some())
        && !below(link).is_interface
    {
        return Err(die(format!("link {} is not valid: {}", link.name, Status::LinkInvalid.text())));
    }
    links.retain(|link| below(link).is_interface);
    if call.args.has('j') {
        return session.json("links", &links, false);
    }
    let fields = "link,ptype,state,auto,speed-duplex,pause";
    let mut table = Table::open(session, PROGRAM, ETHER, fields, style(call))?;
    for link in &links {
        let device = below(link);
        let row = |name: &str, ptype: &str, state: &str, [auto, speed, pause]: [String; 3]| {
            // Linux tells of no fault at the other end.
            [name, ptype, state, &auto, &speed, &pause, UNKNOWN].map(str::to_owned)
        };
        let current = [yes_no(device.autoneg), speed_duplex(&device), said(device.pause.clone())];
        table.row(session, &row(link.name.as_str(), "current", link.state.word(), current))?;
        if call.args.has('x') {
            let ends = [("capable", device.capable), ("adv", device.adv), ("peeradv", device.peeradv)];
            for (ptype, modes) in ends {
                table.row(session, &row("", ptype, "", end_of_cable(modes)))?;
            }
        }
    }
    Ok(())
}

/// Whether an end negotiates, its speeds, and its pause frames.
fn end_of_cable(modes: Option<DeviceModes>) -> [String; 3] {
    let speeds = modes.as_ref().map(|it| it.speeds.join(","));
    [yes_no(modes.as_ref().map(|it| it.autoneg)), said(speeds), said(modes.map(|it| it.pause))]
}

fn said(text: Option<String>) -> String {
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}

fn yes_no(is_so: Option<bool>) -> String {
    said(is_so.map(|is_so| if is_so { "yes" } else { "no" }.to_owned()))
}

/// As the original writes it: `1G-f`, `100M-h`.
fn speed_duplex(device: &DeviceInfo) -> String {
    let Some(speed) = device.speed else { return UNKNOWN.to_owned() };
    let speed = device_speed(speed);
    match device.duplex.as_deref() {
        Some("full") => format!("{speed}-f"),
        Some("half") => format!("{speed}-h"),
        _ => speed,
    }
}

/// show-aggr: links are not aggregated here, so there is none to show.
pub(super) fn aggr(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    if let Some(name) = call.optional_operand()? {
        return Err(die(format!("invalid aggregation name '{name}': {}", Status::NotFound.text())));
    }
    check(call)?;
    if call.args.has('j') {
        return session.json("aggrs", &[(); 0], false);
    }
    let fields = "link,policy,addrpolicy,lacpactivity,lacptimer,flags";
    // The fields are looked at even though no row comes.
    Table::open(session, PROGRAM, AGGR, fields, style(call)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_listed_in_ranges() {
        for (rings, want) in [(vec![], ""), (vec![0], "0"), (vec![0, 1, 2, 5], "0-2,5"), (vec![1, 3], "1,3")]
        {
            assert_eq!(ranges(&rings), want);
        }
    }

    #[test]
    fn speeds_are_written_as_the_original_does() {
        let device = |speed, duplex: Option<&str>| DeviceInfo {
            speed,
            duplex: duplex.map(str::to_owned),
            ..DeviceInfo::default()
        };
        for (speed, duplex, want) in [
            (Some(1000), Some("full"), "1G-f"),
            (Some(100), Some("half"), "100M-h"),
            (Some(2500), Some("full"), "2500M-f"),
            (Some(10_000), None, "10G"),
            (None, Some("full"), "?"),
        ] {
            assert_eq!(speed_duplex(&device(speed, duplex)), want);
        }
    }
}
