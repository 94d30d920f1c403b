//! `ipadm` verbs for properties of address objects: set-addrprop, reset-addrprop, show-addrprop.

use std::collections::BTreeSet;

use firelane_api::{AddrProperty, ApiError, Change, ChangeRequest, PropChange, Status, Which};
use firelane_model::AddrObjName;
use serde::Serialize;

use super::PROGRAM;
use super::protocol::{assignment, in_order, only_name, said_of, wanted_names};
use crate::common::Call;
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die, die_status};

const PROPERTY: &[Column] = &[
    col("ADDROBJ", 18),
    col("PROPERTY", 11),
    col("PERM", 5),
    col("CURRENT", 16),
    col("PERSISTENT", 16),
    col("DEFAULT", 16),
    col("POSSIBLE", 15),
];

/// set-addrprop
pub(super) fn set(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let (name, value) = assignment(call, "set-addrprop")?;
    change(session, call, "set-addrprop", name, Some(value))
}

/// reset-addrprop
pub(super) fn reset(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    change(session, call, "reset-addrprop", only_name(call)?, None)
}

fn change(
    session: &mut Session<'_>,
    call: &Call<'_>,
    verb: &str,
    name: &str,
    value: Option<&str>,
) -> Result<(), Failure> {
    let text = call.operand()?;
    let refused = |error: ApiError| die_status(&format!("{verb}: {name}"), &said_of(name, error));
    let absent = || ApiError::new(Status::NoAddrObj, "addrobj", text, "");
    let object: AddrObjName = text.parse().map_err(|_| refused(absent()))?;
    let property = PropChange { name: name.to_owned(), value: value.map(str::to_owned) };
    let change = Change::SetAddrProps(object, vec![property]);
    session.api.change(&ChangeRequest { temporary: call.args.has('t'), change }).map_err(refused)
}

/// An address object's properties as JSON.
#[derive(Serialize)]
struct Properties {
    name: AddrObjName,
    properties: Vec<AddrProperty>,
}

/// show-addrprop
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    if call.args.has('c') && !call.args.has('o') {
        return Err(die("-c requires -o"));
    }
    let wanted = wanted_names(call)?;
    let mut names: Vec<_> = session.api.addrs(Which::Active)?.into_iter().map(|it| it.name).collect();
    // An object may have several addresses.
    names.dedup();
    // An interface alone means all of its addresses, as with a slash behind.
    match call.optional_operand()?.map(|name| (name, name.split_once('/').unwrap_or((name, "")))) {
        None => {}
        Some((_, (interface, ""))) => {
            names.retain(|it| it.interface() == interface);
            if names.is_empty() {
                super::addr::is_interface(session, Which::Active, interface)?;
            }
        }
        Some((name, _)) => {
            names.retain(|it| it.as_str() == name);
            if names.is_empty() {
                return Err(die("Address object not found"));
            }
        }
    }
    let mut all = Vec::new();
    for name in names {
        let properties = session.api.addr_props(name.as_str());
        let properties = properties.map_err(|error| die_status("Could not get address", &error))?;
        all.push(Properties { name, properties });
    }
    let mut failed = false;
    for name in wanted.iter().flatten() {
        if all.iter().any(|it| it.properties.iter().all(|prop| prop.property != *name)) {
            let known: BTreeSet<_> =
                all.iter().flat_map(|it| &it.properties).map(|it| it.property.as_str()).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let error = ApiError::new(Status::PropUnknown, "", "", known);
            session.warn(PROGRAM, &format!("show-addrprop: {name}: {error}"));
            failed = true;
        }
    }
    if let Some(names) = &wanted {
        all.iter_mut().for_each(|it| in_order(&mut it.properties, names, |prop| &prop.property));
    }
    if call.args.has('j') {
        session.json("properties", &all, false)?;
    } else {
        print(session, call, &all)?;
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

fn print(session: &mut Session<'_>, call: &Call<'_>, all: &[Properties]) -> Result<(), Failure> {
    let parsable = call.args.has('c');
    let style = Style { fields: call.args.value('o'), parsable, wrap: !parsable, ..Style::default() };
    let fields = PROPERTY.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
    let mut table = Table::open(session, PROGRAM, PROPERTY, &fields, style)?;
    for Properties { name, properties } in all {
        for it in properties {
            let AddrProperty { property, perm, current, persistent, default, possible } = it.clone();
            table
                .row(session, &[name.to_string(), property, perm, current, persistent, default, possible])?;
        }
    }
    Ok(())
}
