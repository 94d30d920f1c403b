//! `flowadm` verbs for properties of flows.

use std::collections::BTreeSet;

use firelane_api::{Change, ChangeRequest, ObjectProps, PropChange, Status, Which};

use super::PROGRAM;
use super::flow::{flow_name, flows, which};
use crate::common::{Call, prop_failure, prop_names, said_props};
use crate::ofmt::{Column, col};
use crate::session::{Failure, Session, die};

const PROPERTY: &[Column] =
    &[col("FLOW", 13), col("PROPERTY", 16), col("VALUE", 15), col("DEFAULT", 15), col("POSSIBLE", 21)];

/// set-flowprop
pub(super) fn set(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let changes = said_props(call, "flow property specified")?;
    change(session, call, (!changes.is_empty()).then_some(changes), false)
}

/// reset-flowprop
pub(super) fn reset(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let texts: Vec<_> = call.args.values('p').collect();
    let wrong = || die(format!("invalid flow property specified ({}: property[,...])", texts.join(",")));
    let names = match texts.is_empty() {
        true => ["maxbw", "minbw", "priority", "fusion", "cpus"].map(str::to_owned).to_vec(),
        false => prop_names(&texts).ok_or_else(wrong)?,
    };
    let changes = names.into_iter().map(|name| PropChange { name, value: None }).collect();
    change(session, call, Some(changes), true)
}

fn change(
    session: &mut Session<'_>,
    call: &Call<'_>,
    changes: Option<Vec<PropChange>>,
    reset: bool,
) -> Result<(), Failure> {
    call.no_root()?;
    let name = call.optional_operand()?.ok_or_else(|| die("flow name must be specified"))?;
    let name = flow_name(name)?;
    let changes = changes.ok_or_else(|| die("flow property must be specified"))?;
    if call.args.has('l') && !flows(session.api, call, Which::Active)?.iter().any(|flow| flow.name == name) {
        return Err(die(format!("invalid flow: '{name}'")));
    }
    let change = Change::SetFlowProps(name.clone(), changes);
    let result = session.api.change(&ChangeRequest { temporary: call.args.has('t'), change });
    result.map_err(|error| match error.status {
        Status::NotFound => die(format!("invalid flow: '{name}'")),
        _ => prop_failure(session, PROGRAM, "flow", name.as_str(), reset, &error),
    })
}

/// show-flowprop
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let which = which(call);
    let list = flows(session.api, call, which)?;
    let one = call.optional_operand()?;
    let absent = |name: &str| die(format!("invalid flow: '{name}'"));
    if let Some(name) = one.filter(|name| !list.iter().any(|flow| flow.name.as_str() == *name)) {
        return Err(absent(name));
    }
    let texts: Vec<_> = call.args.values('p').collect();
    let wrong = || die(format!("invalid flow properties specified ({})", texts.join(",")));
    let wanted = if texts.is_empty() { None } else { Some(prop_names(&texts).ok_or_else(wrong)?) };
    let mut all = match one {
        Some(name) => {
            let properties = session.api.flow_props(name, which).map_err(|error| match error.status {
                Status::NotFound => absent(name),
                _ => error.into(),
            })?;
            vec![ObjectProps { name: name.to_owned(), properties }]
        }
        // What is gone since the list was asked for is left out.
        None => {
            let listed: BTreeSet<_> = list.iter().map(|flow| flow.name.as_str()).collect();
            let mut all = session.api.all_flow_props(which)?;
            all.retain(|flow| listed.contains(flow.name.as_str()));
            all
        }
    };
    crate::dladm::print_props(session, call, PROPERTY, "flow", &mut all, wanted.as_deref())
}
