//! `ipadm` verbs for protocol properties: set-prop, reset-prop, show-prop.
//!
//! The original knows one set of properties per zone; here each netstack has its own, and `-N` says whose.

use firelane_api::{ApiError, Change, ChangeRequest, PropChange, ProtocolProperty, Status};
use firelane_model::{NetstackName, Protocol};

use super::PROGRAM;
use crate::common::{self, Call, name_list};
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die, die_status};

const PROPERTY: &[Column] = &[
    col("PROTO", 6),
    col("PROPERTY", 22),
    col("PERM", 5),
    col("CURRENT", 13),
    col("PERSISTENT", 13),
    col("DEFAULT", 13),
    col("POSSIBLE", 15),
];

/// set-prop
pub(super) fn set(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let (name, value) = assigned(call)?;
    change(session, call, "set-prop", name, Some(value))
}

/// The property and its new value in `-p`, which the verbs of interfaces and addresses share. None of theirs has several values.
pub(super) fn assignment<'a>(call: &'a Call<'_>, verb: &str) -> Result<(&'a str, &'a str), Failure> {
    let (name, value) = assigned(call)?;
    if let Some(name) = name.strip_suffix(SIGNS) {
        let error = ApiError::new(Status::InvalidArgument, "", value, "it has one value, which = sets");
        return Err(die_status(&format!("{verb}: {name}"), &error));
    }
    Ok((name, value))
}

/// What stands behind a property's name if the value is added to those that it has, or taken from them.
const SIGNS: [char; 2] = ['+', '-'];

/// What stands before and behind the `=` of `-p`.
fn assigned<'a>(call: &'a Call<'_>) -> Result<(&'a str, &'a str), Failure> {
    let text = call.args.value('p').ok_or_else(|| call.misused())?;
    let wrong = |why: &str| die(format!("{why}\nusage: {}", call.usage));
    match text.split_once('=') {
        None | Some((_, "")) => Err(wrong("please specify the value to be set.")),
        Some((_, value)) if value.contains('=') => {
            Err(wrong("cannot specify more than one prop=val at a time."))
        }
        Some((name, _)) if name.trim_end_matches(SIGNS).is_empty() => {
            Err(wrong("Invalid prop=val specified"))
        }
        Some(assigned) => Ok(assigned),
    }
}

/// The one property of `-p` that is reset.
pub(super) fn only_name<'a>(call: &'a Call<'_>) -> Result<&'a str, Failure> {
    let name = call.args.value('p').ok_or_else(|| call.misused())?;
    let wrong = |why: &str| die(format!("{why}\nusage: {}", call.usage));
    match name {
        _ if name.contains('=') => Err(wrong("incorrect syntax used for -p.")),
        _ if name.contains(',') => Err(wrong("cannot specify more than one prop at a time.")),
        "" => Err(wrong("Invalid prop specified")),
        _ => Ok(name),
    }
}

/// The properties of `-p` that are shown; `None` is all.
pub(super) fn wanted_names(call: &Call<'_>) -> Result<Option<Vec<String>>, Failure> {
    let Some(text) = call.args.value('p') else { return Ok(None) };
    name_list(&[text]).map(Some).ok_or_else(|| die("Invalid prop specified"))
}

/// What is said of the property `name`, whose name the message has already.
pub(super) fn said_of(name: &str, error: ApiError) -> ApiError {
    let field = error.field.rsplit('.').next().unwrap_or_default();
    if field == name { ApiError { field: String::new(), ..error } } else { error }
}

/// reset-prop
pub(super) fn reset(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    change(session, call, "reset-prop", only_name(call)?, None)
}

fn change(
    session: &mut Session<'_>,
    call: &Call<'_>,
    verb: &str,
    name: &str,
    value: Option<&str>,
) -> Result<(), Failure> {
    let protocol = protocol(call.operand()?)?;
    let netstack = netstack(session, call)?;
    let property =
        PropChange { name: format!("{}.{name}", protocol.word()), value: value.map(str::to_owned) };
    let change = Change::SetNetstackProps(netstack, vec![property]);
    let result = session.api.change(&ChangeRequest { temporary: call.args.has('t'), change });
    let name = name.strip_suffix(SIGNS).unwrap_or(name);
    result.map_err(|error| die_status(&format!("{verb}: {name}"), &said_of(name, error)))
}

pub(super) fn protocol(word: &str) -> Result<Protocol, Failure> {
    let known = Protocol::ALL.map(Protocol::word).join(", ");
    Protocol::from_word(word).ok_or_else(|| die(format!("invalid protocol '{word}' specified ({known})")))
}

/// The netstack of `-N`; without it `default`, or the only one.
pub(super) fn netstack(session: &mut Session<'_>, call: &Call<'_>) -> Result<NetstackName, Failure> {
    common::netstack(session, 'N', call.args.value('N'))
}

/// show-prop
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    if call.args.has('c') && !call.args.has('o') {
        return Err(die("-c requires -o"));
    }
    let protocol = call.optional_operand()?.map(protocol).transpose()?;
    let wanted = wanted_names(call)?;
    if wanted.is_some() && protocol.is_none() {
        return Err(die("protocol must be specified when property name is used"));
    }
    let netstack = netstack(session, call)?;
    let all = session.api.netstack_props(netstack.as_str());
    let mut all = all.map_err(|error| die_status(&format!("Could not get netstack {netstack}"), &error))?;
    all.retain(|it| protocol.is_none_or(|protocol| it.protocol == protocol.word()));
    let failed = select(session, &mut all, wanted.as_deref(), protocol, call.args.has('j'));
    if call.args.has('j') {
        session.json("properties", &all, false)?;
    } else {
        print(session, call, &all)?;
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

/// Keeps what was asked for, in that order; private properties must be asked for by name unless a program reads
/// them. Whether one does not exist.
fn select(
    session: &mut Session<'_>,
    all: &mut Vec<ProtocolProperty>,
    wanted: Option<&[String]>,
    protocol: Option<Protocol>,
    json: bool,
) -> bool {
    let Some(names) = wanted else {
        all.retain(|it| json || !it.property.starts_with('_'));
        return false;
    };
    let mut failed = false;
    for name in names {
        if all.iter().any(|it| it.property == *name) {
            continue;
        }
        if let Some(Err(error)) = protocol.map(|protocol| firelane_model::Prop::find(protocol, name)) {
            let error = ApiError { field: String::new(), ..ApiError::from(error) };
            session.warn(PROGRAM, &format!("show-prop: {name}: {error}"));
        }
        failed = true;
    }
    in_order(all, names, |it| &it.property);
    failed
}

/// Leaves those of these names, in the names' order.
pub(super) fn in_order<T>(all: &mut Vec<T>, names: &[String], name_of: impl Fn(&T) -> &str) {
    let place = |it: &T| names.iter().position(|name| name == name_of(it));
    all.retain(|it| place(it).is_some());
    all.sort_by_key(place);
}

fn print(session: &mut Session<'_>, call: &Call<'_>, all: &[ProtocolProperty]) -> Result<(), Failure> {
    let parsable = call.args.has('c');
    let style = Style { fields: call.args.value('o'), parsable, wrap: !parsable, ..Style::default() };
    let fields = PROPERTY.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
    let mut table = Table::open(session, PROGRAM, PROPERTY, &fields, style)?;
    for it in all {
        let ProtocolProperty { protocol, property, perm, current, persistent, default, possible } =
            it.clone();
        table.row(session, &[protocol, property, perm, current, persistent, default, possible])?;
    }
    Ok(())
}
