//! `ipadm` verbs for interfaces.

use std::collections::{BTreeMap, BTreeSet};

use firelane_api::{Change, ChangeRequest, IfInfo, Status, Which};
use firelane_model::{IptunType, LinkName, NetstackName};

use super::PROGRAM;
use crate::common::Call;
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die, die_status};

const INTERFACE: &[Column] =
    &[col("IFNAME", 11), col("CLASS", 10), col("STATE", 9), col("CURRENT", 13), col("PERSISTENT", 11)];

/// create-if, create-ip
pub(super) fn create(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let text = call.operand()?;
    let failed = format!("Could not create {text} ");
    let name: LinkName =
        text.parse().map_err(|error| die(format!("{failed}: {} ({error})", Status::NoDatalink.text())))?;
    let netstack = call.args.value('N').unwrap_or("default");
    let netstack: NetstackName = netstack
        .parse()
        .map_err(|error| die(format!("{failed}: {} (-N {netstack}: {error})", Status::BadName.text())))?;
    let request = ChangeRequest { temporary: call.args.has('t'), change: Change::CreateIf(name, netstack) };
    session.api.change(&request).map_err(|error| die_status(&failed, &error))
}

/// delete-if, delete-ip
pub(super) fn delete(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let text = call.operand()?;
    let failed = format!("Could not delete {text}");
    let name: LinkName =
        text.parse().map_err(|error| die(format!("{failed}: {} ({error})", Status::NoIf.text())))?;
    let request = ChangeRequest { temporary: false, change: Change::DeleteIf(name) };
    session.api.change(&request).map_err(|error| die_status(&failed, &error))
}

/// What only -t may be said of.
pub(super) fn only_temporary(call: &Call<'_>, verb: &str) -> Result<(), Failure> {
    match call.args.has('t') {
        true => Ok(()),
        false => Err(die(format!("persistent operation not supported for {verb}"))),
    }
}

/// enable-if
pub(super) fn enable(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let text = call.operand()?;
    only_temporary(call, "enable-if")?;
    // With a space, as in the original.
    set_enabled(session, text, &format!("Could not enable {text} "), Change::EnableIf)
}

/// disable-if
pub(super) fn disable(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let text = call.operand()?;
    only_temporary(call, "disable-if")?;
    set_enabled(session, text, &format!("Could not disable {text}"), Change::DisableIf)
}

fn set_enabled(
    session: &mut Session<'_>,
    text: &str,
    failed: &str,
    change: fn(LinkName) -> Change,
) -> Result<(), Failure> {
    let name: LinkName =
        text.parse().map_err(|error| die(format!("{failed}: {} ({error})", Status::NoIf.text())))?;
    let request = ChangeRequest { temporary: true, change: change(name) };
    session.api.change(&request).map_err(|error| die_status(failed, &error))
}

/// show-if
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let which = if call.args.has('P') { Which::Persistent } else { Which::Active };
    let mut ifs = session.api.ifs(which).map_err(|error| die_status("Could not get interface(s)", &error))?;
    if which == Which::Active {
        // What is kept and not in force is shown as disabled.
        let known: BTreeSet<_> = ifs.iter().map(|it| it.name.clone()).collect();
        let kept = session.api.ifs(Which::Persistent);
        let kept = kept.map_err(|error| die_status("Could not get interface(s)", &error))?;
        ifs.extend(kept.into_iter().filter(|it| !known.contains(&it.name)));
    }
    if let Some(name) = call.optional_operand()? {
        ifs.retain(|it| it.name.as_str() == name);
        if ifs.is_empty() {
            return Err(die(format!("Could not get interface(s): {}", Status::NoIf.text())));
        }
    }
    if call.args.has('j') {
        return session.json("interfaces", &ifs, false);
    }
    let style = Style { fields: call.args.value('o'), parsable: call.args.has('p'), ..Style::default() };
    let mut table = Table::open(session, PROGRAM, INTERFACE, "ifname,class,state,current,persistent", style)?;
    let tunnels = tunnels(session)?;
    for it in &ifs {
        let [name, class, state, current, persistent] = row(it, tunnels.get(&it.name).copied());
        // What the next start begins with is in no state.
        let [state, current] =
            if which == Which::Persistent { [String::new(), String::new()] } else { [state, current] };
        table.row(session, &[name, class, state, current, persistent])?;
    }
    Ok(())
}

/// The tunnels, those that are in force and those that are only kept.
fn tunnels(session: &Session<'_>) -> Result<BTreeMap<LinkName, IptunType>, Failure> {
    let mut tunnels = BTreeMap::new();
    for which in [Which::Persistent, Which::Active] {
        let known = session.api.iptuns(which);
        let known = known.map_err(|error| die_status("Could not get interface(s)", &error))?;
        tunnels.extend(known.into_iter().map(|it| (it.name, it.tunnel.kind)));
    }
    Ok(tunnels)
}

/// Flags: broadcast, multicast, point-to-point, IPv4 and IPv6; the letters between them (v I s i V a) belong to kinds of interface that
/// there are none of. A tunnel has nobody but its other end, and one of 6to4 not even that.
fn row(it: &IfInfo, tunnel: Option<IptunType>) -> [String; 5] {
    let persistent = if it.persistent { "-46" } else { "---" };
    let current = match tunnel {
        _ if it.state == "disabled" => "-----------",
        None => "bm-------46",
        Some(IptunType::SixToFour) => "----------6",
        Some(_) => "-mp------46",
    };
    [it.name.to_string(), "ip".into(), it.state.clone(), current.into(), persistent.into()]
}
