//! `dladm` verbs for properties of links.

use firelane_api::{
    ApiError, Change, ChangeRequest, ObjectProps, PropChange, Property, Status, Which, absent_link_prop,
};
use firelane_model::LinkName;

use super::show::short_mac;
use super::{PROGRAM, temporary};
use crate::common::{Call, prop_failure, prop_names, said_props};
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die};

const PROPERTY: &[Column] = &[
    col("LINK", 13),
    col("PROPERTY", 16),
    col("PERM", 5),
    col("VALUE", 15),
    col("DEFAULT", 15),
    col("POSSIBLE", 20),
];

fn link(call: &Call<'_>) -> Result<LinkName, Failure> {
    let text = call.operand()?;
    text.parse()
        .map_err(|error| die(format!("link {text} is not valid: {} ({error})", Status::NotFound.text())))
}

fn change(
    session: &mut Session<'_>,
    call: &Call<'_>,
    changes: Vec<PropChange>,
    reset: bool,
) -> Result<(), Failure> {
    let name = link(call)?;
    let mac = changes.iter().find(|it| it.name == "mac-address").cloned();
    let change = Change::SetLinkProps(name.clone(), changes);
    let result = session.api.change(&ChangeRequest { temporary: temporary(call), change });
    // Of an address it is said by its field of the configuration, and of a slot by its own, what the property is to the command.
    let of_property = |error: ApiError| match mac {
        Some(PropChange { name: field, value }) if matches!(error.field.as_str(), "" | "mac" | "slot") => {
            ApiError { field, value: value.unwrap_or_default(), ..error }
        }
        _ => error,
    };
    result.map_err(of_property).map_err(|error| match error.status {
        Status::NotFound => die(format!("link {name} is not valid: {error}")),
        _ => prop_failure(session, PROGRAM, "link", name.as_str(), reset, &error),
    })
}

/// set-linkprop
pub(super) fn set(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let changes = said_props(call, "link properties specified")?;
    if changes.is_empty() {
        return Err(die("link property must be specified"));
    }
    change(session, call, changes, false)
}

/// reset-linkprop
pub(super) fn reset(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let texts: Vec<_> = call.args.values('p').collect();
    let wrong = || die(format!("invalid link properties specified ({}: property[,...])", texts.join(",")));
    let names = match texts.is_empty() {
        true => resettable(session, link(call)?.as_str())?,
        false => prop_names(&texts).ok_or_else(wrong)?,
    };
    change(session, call, names.into_iter().map(|name| PropChange { name, value: None }).collect(), true)
}

/// What `reset-linkprop` without names resets: all that can be set but address and VLAN, which say what the link is.
fn resettable(session: &mut Session<'_>, name: &str) -> Result<Vec<String>, Failure> {
    let invalid = |error: ApiError| match error.status {
        Status::NotFound => die(format!("link {name} is not valid: {error}")),
        _ => error.into(),
    };
    let all = session.api.link_props(name, Which::Active).map_err(invalid)?;
    let is_setting =
        |it: &Property| it.perm == "rw" && !matches!(it.property.as_str(), "mac-address" | "vlan-id");
    Ok(all.into_iter().filter(is_setting).map(|it| it.property).collect())
}

/// show-linkprop
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let which = if call.args.has('P') { Which::Persistent } else { Which::Active };
    let mut all = match call.optional_operand()? {
        None => session.api.all_link_props(which)?,
        Some(name) => {
            let absent = || die(format!("link {name} is not valid: {}", Status::NotFound.text()));
            name.parse::<LinkName>().map_err(|_| absent())?;
            let properties = session.api.link_props(name, which).map_err(|error| match error.status {
                Status::NotFound => absent(),
                _ => error.into(),
            })?;
            vec![ObjectProps { name: name.to_owned(), properties }]
        }
    };
    let texts: Vec<_> = call.args.values('p').collect();
    let wrong = || die(format!("invalid link properties specified ({})", texts.join(",")));
    let wanted = if texts.is_empty() { None } else { Some(prop_names(&texts).ok_or_else(wrong)?) };
    print(session, call, PROPERTY, "link", &mut all, wanted.as_deref())
}

/// Prints the properties of each object, all or those `wanted`; `template` says with which columns.
pub(crate) fn print(
    session: &mut Session<'_>,
    call: &Call<'_>,
    template: &[Column],
    kind: &str,
    all: &mut [ObjectProps],
    wanted: Option<&[String]>,
) -> Result<(), Failure> {
    let program = if kind == "link" { PROGRAM } else { "flowadm" };
    let mut failed = false;
    for name in wanted.unwrap_or_default() {
        // Objects of several classes are shown at once, and not all have the same.
        let is_of = |it: &ObjectProps| it.properties.iter().any(|prop| prop.property == *name);
        if !all.is_empty() && !all.iter().any(is_of) {
            let absent = absent_link_prop(name).filter(|_| kind == "link");
            let said = match absent.map(|error| ApiError { field: String::new(), ..error }) {
                Some(error) => format!("cannot show {kind} property '{name}': {error}"),
                None => format!("invalid {kind} property '{name}'"),
            };
            session.warn(program, &said);
            failed = true;
        }
    }
    for ObjectProps { properties: props, .. } in all.iter_mut() {
        if let Some(names) = wanted {
            let place = |prop: &Property| names.iter().position(|name| *name == prop.property);
            props.retain(|prop| place(prop).is_some());
            props.sort_by_key(place);
        }
    }
    if call.args.has('j') {
        session.json("properties", &all, false)?;
        return if failed { Err(Failure::Said) } else { Ok(()) };
    }
    let parsable = call.args.has('c');
    let style = Style { fields: call.args.value('o'), parsable, wrap: !parsable, ..Style::default() };
    let fields = template.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
    let mut table = Table::open(session, program, template, &fields, style)?;
    for ObjectProps { name, properties } in all.iter() {
        for prop in properties {
            // In the form of show-vnic, so that one can be compared with the other.
            let value = match prop.property.as_str() {
                "mac-address" => short_mac(&prop.value),
                _ => prop.value.clone(),
            };
            let perm = (kind == "link").then(|| prop.perm.clone());
            let row: Vec<_> = [name, &prop.property]
                .into_iter()
                .cloned()
                .chain(perm)
                .chain([value, prop.default.clone(), prop.possible.clone()])
                .collect();
            table.row(session, &row)?;
        }
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}
