//! `dladm` verbs that list links.

use std::collections::BTreeSet;

use firelane_api::{Api, Status, VnicInfo, Which};
use firelane_model::LinkName;

use super::PROGRAM;
use crate::common::Call;
use crate::ofmt::{Column, Style, Table, UNKNOWN, col};
use crate::session::{Failure, Session, die};
use crate::stat::LinksBefore;

const LINK: &[Column] =
    &[col("LINK", 12), col("CLASS", 10), col("MTU", 7), col("STATE", 9), col("BRIDGE", 11), col("OVER", 30)];
const STATS: &[Column] = &[
    col("LINK", 15),
    col("IPACKETS", 10),
    col("RBYTES", 8),
    col("IERRORS", 10),
    col("OPACKETS", 12),
    col("OBYTES", 12),
    col("OERRORS", 8),
];
const VNIC: &[Column] = &[
    col("LINK", 13),
    col("OVER", 13),
    col("SPEED", 9),
    col("MACADDRESS", 18),
    col("MACADDRTYPE", 20),
    col("VID", 7),
    col("ZONE", 20),
];
const VLAN: &[Column] = &[col("LINK", 16), col("VID", 9), col("OVER", 13), col("FLAGS", 7)];
const ETHERSTUB: &[Column] = &[col("LINK", 32)];

pub(super) fn which(call: &Call<'_>) -> Which {
    if call.args.has('P') { Which::Persistent } else { Which::Active }
}

pub(super) fn style<'a>(call: &'a Call<'_>) -> Style<'a> {
    Style { fields: call.args.value('o'), parsable: call.args.has('p'), ..Style::default() }
}

/// The options that every list shares.
pub(super) fn check(call: &Call<'_>) -> Result<(), Failure> {
    if call.args.has('i') && !call.args.has('s') {
        return Err(die("the option -i can be used only with -s"));
    }
    if call.args.has('s') && call.args.has('P') {
        return Err(die("the option -P cannot be used with -s"));
    }
    Ok(())
}

/// Keeps the items called `name`, of which there must be one.
pub(super) fn only<T>(
    items: &mut Vec<T>,
    name: Option<&str>,
    of: impl Fn(&T) -> &str,
    what: &str,
) -> Result<(), Failure> {
    if let Some(name) = name {
        items.retain(|item| of(item) == name);
        if items.is_empty() {
            return Err(die(format!("{}: {}", what.replace("{}", name), Status::NotFound.text())));
        }
    }
    Ok(())
}

/// show-link
pub(super) fn links(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    check(call)?;
    let name = call.optional_operand()?;
    let mut links = session.api.links(which(call))?;
    only(&mut links, name, |link| link.name.as_str(), "link {} is not valid")?;
    if call.args.has('s') {
        return statistics(session, call, |_| Ok(None));
    }
    if call.args.has('j') {
        return session.json("links", &links, false);
    }
    let fields =
        if call.args.has('P') { "link,class,bridge,over" } else { "link,class,mtu,state,bridge,over" };
    let mut table = Table::open(session, PROGRAM, LINK, fields, style(call))?;
    for link in &links {
        let over = link.over.as_ref().map(ToString::to_string).unwrap_or_default();
        let state = link.state.word().to_owned();
        let row = [
            link.name.to_string(),
            link.class.word().to_owned(),
            link.mtu.to_string(),
            state,
            String::new(),
            over,
        ];
        table.row(session, &row)?;
    }
    Ok(())
}

/// Counters of the link of the operand, or else of those that `names` gives (none means all), once or at each interval. Who was made,
/// renamed or removed since the last report is in the next one as he is then.
fn statistics(
    session: &mut Session<'_>,
    call: &Call<'_>,
    names: impl Fn(&dyn Api) -> Result<Option<BTreeSet<LinkName>>, Failure>,
) -> Result<(), Failure> {
    let interval = call.interval()?;
    let only = call.optional_operand()?;
    let mut before = LinksBefore::default();
    let mut table = Table::open(
        session,
        PROGRAM,
        STATS,
        "link,ipackets,rbytes,ierrors,opackets,obytes,oerrors",
        style(call),
    )?;
    loop {
        let mut stats = session.api.link_stats()?;
        stats.retain(|link| only.is_none_or(|name| name == link.name.as_str()));
        if let Some(names) = names(session.api)? {
            stats.retain(|link| names.contains(&link.name));
        }
        before.subtract(&mut stats);
        if call.args.has('j') {
            session.json("links", &stats, interval.is_some())?;
        } else {
            for link in &stats {
                let t = link.traffic;
                let counters = [t.ipackets, t.rbytes, t.ierrors, t.opackets, t.obytes, t.oerrors];
                let row: Vec<_> =
                    std::iter::once(link.name.to_string()).chain(counters.map(|n| n.to_string())).collect();
                table.row(session, &row)?;
            }
            session.out.flush()?;
        }
        match interval {
            Some(interval) if (session.sleep)(interval) => {}
            _ => return Ok(()),
        }
    }
}

/// show-vnic
pub(super) fn vnics(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    check(call)?;
    let name = call.optional_operand()?;
    let over = call.args.value('l');
    let mut vnics = vnics_over(session.api, which(call), over)?;
    if call.args.has('P') {
        keep_addresses(session.api, &mut vnics)?;
    }
    if let Some(over) = over
        && !is_link(session.api, over, which(call))?
    {
        return Err(die(format!("invalid link name '{over}'")));
    }
    only(&mut vnics, name, |vnic| vnic.name.as_str(), "invalid vnic name '{}'")?;
    if call.args.has('s') {
        return statistics(session, call, |api| {
            let vnics = vnics_over(api, Which::Active, over)?;
            Ok(Some(vnics.into_iter().map(|vnic| vnic.name).collect()))
        });
    }
    if call.args.has('j') {
        return session.json("vnics", &vnics, false);
    }
    let fields = if call.args.has('P') {
        "link,over,macaddress,macaddrtype,vid"
    } else {
        "link,over,speed,macaddress,macaddrtype,vid"
    };
    let mut table = Table::open(session, PROGRAM, VNIC, fields, style(call))?;
    for vnic in &vnics {
        table.row(session, &vnic_row(vnic))?;
    }
    Ok(())
}

/// The VNICs that are no VLANs, over this link if one is named.
fn vnics_over(api: &dyn Api, which: Which, over: Option<&str>) -> Result<Vec<VnicInfo>, Failure> {
    let mut vnics = api.vnics(which)?;
    vnics.retain(|vnic| !vnic.is_vlan && over.is_none_or(|over| vnic.over.as_str() == over));
    Ok(vnics)
}

/// A chosen address is the same at the next start, and the one in force tells it. Of a VNIC that is another one then, nobody knows.
fn keep_addresses(api: &dyn Api, kept: &mut [VnicInfo]) -> Result<(), Failure> {
    let active = api.vnics(Which::Active)?;
    for vnic in kept.iter_mut().filter(|it| it.macaddress.is_none()) {
        let is_same = |it: &&VnicInfo| {
            (&it.name, &it.over, &it.macaddrtype) == (&vnic.name, &vnic.over, &vnic.macaddrtype)
        };
        vnic.macaddress = active.iter().find(is_same).and_then(|it| it.macaddress.clone());
    }
    Ok(())
}

fn is_link(api: &dyn Api, name: &str, which: Which) -> Result<bool, Failure> {
    Ok(api.links(which)?.iter().any(|link| link.name.as_str() == name))
}

fn vnic_row(vnic: &VnicInfo) -> [String; 7] {
    let zone = vnic.netstack.as_ref().map(ToString::to_string).or_else(|| vnic.namespace.clone());
    [
        vnic.name.to_string(),
        vnic.over.to_string(),
        vnic.speed.to_string(),
        vnic.macaddress.as_deref().map_or_else(|| UNKNOWN.to_owned(), short_mac),
        vnic.macaddrtype.clone(),
        vnic.vid.to_string(),
        zone.unwrap_or_default(),
    ]
}

/// The address as Solaris prints it, without leading zeros: `2:8:20:1:a:b`. What is none stays as it is.
pub(super) fn short_mac(text: &str) -> String {
    if !text.contains(':') {
        return text.to_owned();
    }
    let short = |byte: &str| match byte.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    };
    text.split(':').map(short).collect::<Vec<_>>().join(":")
}

/// show-vlan
pub(super) fn vlans(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let name = call.optional_operand()?;
    let mut vlans = session.api.vnics(which(call))?;
    vlans.retain(|vnic| vnic.is_vlan);
    only(&mut vlans, name, |vlan| vlan.name.as_str(), "invalid vlan name '{}'")?;
    if call.args.has('j') {
        return session.json("vlans", &vlans, false);
    }
    let mut table = Table::open(session, PROGRAM, VLAN, "link,vid,over,flags", style(call))?;
    for vlan in &vlans {
        // The flags of the original say what an aggregation or a forced creation did; neither exists here.
        let row = [vlan.name.to_string(), vlan.vid.to_string(), vlan.over.to_string(), "-----".to_owned()];
        table.row(session, &row)?;
    }
    Ok(())
}

/// show-etherstub
pub(super) fn etherstubs(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let name = call.optional_operand()?;
    let mut stubs = session.api.etherstubs(which(call))?;
    only(&mut stubs, name, |stub| stub.name.as_str(), "invalid etherstub name '{}'")?;
    if call.args.has('j') {
        return session.json("etherstubs", &stubs, false);
    }
    let mut table = Table::open(session, PROGRAM, ETHERSTUB, "link", style(call))?;
    for stub in &stubs {
        table.row(session, &[stub.name.to_string()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_no_leading_zeros() {
        assert_eq!(short_mac("02:08:20:00:0a:ff"), "2:8:20:0:a:ff");
    }
}
