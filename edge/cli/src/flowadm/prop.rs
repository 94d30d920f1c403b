//! `flowadm` verbs for properties of flows.

use firelane_api::{Change, ChangeRequest, PropChange, Status, Which};

use super::PROGRAM;
use super::flow::{flow_name, flows, which};
use crate::common::{Call, name_list, prop_failure, said_props};
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
        false => name_list(&texts).ok_or_else(wrong)?,
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
    let mut list = flows(session.api, call, which)?;
    if let Some(name) = call.optional_operand()? {
        list.retain(|flow| flow.name.as_str() == name);
        if list.is_empty() {
            return Err(die(format!("invalid flow: '{name}'")));
        }
    }
    let texts: Vec<_> = call.args.values('p').collect();
    let wrong = || die(format!("invalid flow properties specified ({})", texts.join(",")));
    let wanted = if texts.is_empty() { None } else { Some(name_list(&texts).ok_or_else(wrong)?) };
    let mut all = Vec::new();
    for flow in &list {
        all.push((flow.name.to_string(), session.api.flow_props(flow.name.as_str(), which)?));
    }
    crate::dladm::print_props(session, call, PROPERTY, "flow", &mut all, wanted.as_deref())
}
