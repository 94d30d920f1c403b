//! `ipadm` verbs for properties of interfaces: set-ifprop, reset-ifprop, show-ifprop.

use firelane_api::{ApiError, Change, ChangeRequest, PropChange, ProtocolProperty, Status, Which};
use firelane_model::{IfProp, LinkName, Protocol};
use serde::Serialize;

use super::PROGRAM;
use super::protocol::{assignment, in_order, only_name, protocol, said_of, wanted_names};
use crate::common::Call;
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die, die_status};

const PROPERTY: &[Column] = &[
    col("IFNAME", 12),
    col("PROPERTY", 16),
    col("PROTO", 6),
    col("PERM", 5),
    col("CURRENT", 11),
    col("PERSISTENT", 11),
    col("DEFAULT", 11),
    col("POSSIBLE", 16),
];

/// set-ifprop
pub(super) fn set(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let (name, value) = assignment(call, "set-ifprop")?;
    change(session, call, "set-ifprop", name, Some(value))
}

/// reset-ifprop
pub(super) fn reset(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    change(session, call, "reset-ifprop", only_name(call)?, None)
}

fn change(
    session: &mut Session<'_>,
    call: &Call<'_>,
    verb: &str,
    name: &str,
    value: Option<&str>,
) -> Result<(), Failure> {
    let protocol = protocol(call.args.value('m').ok_or_else(|| call.misused())?)?;
    let text = call.operand()?;
    let refused = |error: ApiError| die_status(&format!("{verb}: {name}"), &said_of(name, error));
    let interface: LinkName = text.parse().map_err(|_| refused(Status::NoIf.into()))?;
    let property =
        PropChange { name: format!("{}.{name}", protocol.word()), value: value.map(str::to_owned) };
    let change = Change::SetIfProps(interface, vec![property]);
    session.api.change(&ChangeRequest { temporary: call.args.has('t'), change }).map_err(refused)
}

/// An interface's properties as JSON.
#[derive(Serialize)]
struct Properties {
    name: LinkName,
    properties: Vec<ProtocolProperty>,
}

/// show-ifprop
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    if call.args.has('c') && !call.args.has('o') {
        return Err(die("-c requires -o"));
    }
    let protocol = call.args.value('m').map(protocol).transpose()?;
    let wanted = wanted_names(call)?;
    let mut ifs = session.api.ifs(Which::Active)?;
    if let Some(name) = call.optional_operand()? {
        ifs.retain(|it| it.name.as_str() == name);
        if ifs.is_empty() {
            return Err(die_status("Could not get interface(s)", &Status::NoIf.into()));
        }
    }
    let mut failed = false;
    for name in wanted.iter().flatten() {
        if let Some(error) = unknown(name, protocol) {
            session.warn(PROGRAM, &format!("show-ifprop: {name}: {error}"));
            failed = true;
        }
    }
    let mut all = Vec::new();
    for it in ifs {
        let properties = session.api.if_props(it.name.as_str());
        let mut properties = properties.map_err(|error| die_status("Could not get interface(s)", &error))?;
        properties.retain(|prop| protocol.is_none_or(|only| prop.protocol == only.word()));
        if let Some(names) = &wanted {
            in_order(&mut properties, names, |prop| &prop.property);
        }
        all.push(Properties { name: it.name, properties });
    }
    if call.args.has('j') {
        session.json("properties", &all, false)?;
    } else {
        print(session, call, &all)?;
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

/// What is said of a property that none of the protocols has, or not the only one asked about.
fn unknown(name: &str, only: Option<Protocol>) -> Option<ApiError> {
    let asked = Protocol::ALL.into_iter().filter(|it| match only {
        Some(only) => *it == only,
        None => !IfProp::of(*it).is_empty(),
    });
    let refused: Option<Vec<_>> = asked.map(|it| IfProp::find(it, name).err()).collect();
    let allowed: Vec<_> = refused?.into_iter().map(|it| ApiError::from(it).allowed).collect();
    Some(ApiError::new(Status::PropUnknown, "", "", allowed.join("; ")))
}

fn print(session: &mut Session<'_>, call: &Call<'_>, all: &[Properties]) -> Result<(), Failure> {
    let parsable = call.args.has('c');
    let style = Style { fields: call.args.value('o'), parsable, wrap: !parsable, ..Style::default() };
    let fields = PROPERTY.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
    let mut table = Table::open(session, PROGRAM, PROPERTY, &fields, style)?;
    for Properties { name, properties } in all {
        for it in properties {
            let ProtocolProperty { protocol, property, perm, current, persistent, default, possible } =
                it.clone();
            let row = [name.to_string(), property, protocol, perm, current, persistent, default, possible];
            table.row(session, &row)?;
        }
    }
    Ok(())
}
