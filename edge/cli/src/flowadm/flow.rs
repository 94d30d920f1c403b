//! `flowadm` verbs that make, remove and list flows.

use firelane_api::{Api, ApiError, Change, ChangeRequest, FlowInfo, Status, Which, set_flow_prop};
use firelane_model::{Cpus, FieldError, Flow, FlowMatch, FlowName, Fusing, LinkName};
use firelane_units::Priority;

use super::PROGRAM;
use crate::common::{Call, said_props};
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die, die_status};

const FLOW: &[Column] = &[
    col("FLOW", 12),
    col("LINK", 12),
    col("IPADDR", 25),
    col("PROTO", 7),
    col("LPORT", 8),
    col("RPORT", 8),
    col("DSFLD", 10),
    col("VLAN", 6),
    col("LMAC", 18),
    col("RMAC", 18),
];

pub(super) fn which(call: &Call<'_>) -> Which {
    if call.args.has('P') { Which::Persistent } else { Which::Active }
}

pub(super) fn flow_name(text: &str) -> Result<FlowName, Failure> {
    text.parse().map_err(|error| die(format!("invalid flow: '{text}' ({error})")))
}

/// The flows, those on the link of `-l` if it is given; the link must exist.
pub(super) fn flows(api: &dyn Api, call: &Call<'_>, which: Which) -> Result<Vec<FlowInfo>, Failure> {
    let mut flows = api.flows(which)?;
    if let Some(link) = call.args.value('l') {
        if !api.links(which)?.iter().any(|it| it.name.as_str() == link) {
            return Err(die(format!("invalid link '{link}'")));
        }
        flows.retain(|flow| flow.link.as_str() == link);
    }
    Ok(flows)
}

/// add-flow, create-flow
pub(super) fn add(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let link = call.args.value('l').ok_or_else(|| die("link is required"))?;
    let link: LinkName = link.parse().map_err(|error| die(format!("invalid link '{link}' ({error})")))?;
    // The later spelling has the attributes as an operand before the name.
    let (attributes, name) = match call.args.operands.as_slice() {
        [name] if !name.contains('=') => (call.args.values('a').collect::<Vec<_>>(), name),
        [attributes, name] if attributes.contains('=') && !name.contains('=') => {
            (call.args.values('a').chain([attributes.as_str()]).collect(), name)
        }
        _ => return Err(die("flow name is required")),
    };
    let name = flow_name(name)?;
    let mut flow = Flow {
        link,
        matching: FlowMatch::default(),
        maxbw: None,
        minbw: None,
        priority: Priority::Medium,
        fusion: Fusing::default(),
        cpus: Cpus::NONE,
    };
    flow.matching = matching(&attributes)?;
    for change in said_props(call, "flow property specified")? {
        set_flow_prop(&mut flow, &change).map_err(|error| match error.status {
            Status::BadProperty => die(format!("invalid flow property specified{}", error.detail())),
            _ => die_status("add flow failed", &error),
        })?;
    }
    let link = flow.link.clone();
    let request = ChangeRequest { temporary: call.args.has('t'), change: Change::AddFlow(name, flow) };
    session.api.change(&request).map_err(|error| match error.status {
        Status::LinkInvalid => die(format!("invalid link '{link}'")),
        _ => die_status("add flow failed", &error),
    })
}

/// Reads attributes; one that does not exist or is malformed as a whole has its own message, a value that is
/// not allowed the status of its kind.
fn matching(texts: &[&str]) -> Result<FlowMatch, Failure> {
    let mut matching = FlowMatch::default();
    for part in texts.iter().flat_map(|text| text.split(',')) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        matching.set(name, value).map_err(|fault| attribute_failure(fault, name))?;
    }
    Ok(matching)
}

fn attribute_failure(fault: FieldError, name: &str) -> Failure {
    let known = FlowMatch::ATTRIBUTES.contains(&name) || name == "protocol";
    let status = match name {
        "transport" | "protocol" => Status::BadTransport,
        "local_port" | "remote_port" => Status::BadPort,
        "dsfield" if is_mask(&fault.value) => Status::BadDsMask,
        "dsfield" => Status::BadDsField,
        "vlan_id" => Status::VidInvalid,
        "local_mac" | "remote_mac" => Status::MacInvalid,
        _ if fault.value.parse::<firelane_units::IpPrefix>()
            == Err(firelane_units::ParsePrefixError::Length) =>
        {
            Status::BadPrefixLength
        }
        _ => Status::BadIp,
    };
    let error = ApiError { status, ..fault.into() };
    if known && !error.value.is_empty() && !error.allowed.contains("once") {
        return die_status("add flow failed", &error);
    }
    die(format!("invalid flow attribute specified{}", error.detail()))
}

/// Whether of a `dsfield` it is the mask that is wrong: without it, it would be none.
fn is_mask(text: &str) -> bool {
    text.split_once(':').is_some_and(|(value, _)| FlowMatch::default().set("dsfield", value).is_ok())
}

/// remove-flow
pub(super) fn remove(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let temporary = call.args.has('t');
    let no_link = |link: &str| die(format!("invalid link '{link}'"));
    let change = match (call.args.value('l'), call.args.operands.as_slice()) {
        (Some(link), []) => Change::RemoveFlowsOf(link.parse().map_err(|_| no_link(link))?),
        (None, [name]) => Change::RemoveFlow(flow_name(name)?),
        _ => return Err(call.misused()),
    };
    session.api.change(&ChangeRequest { temporary, change }).map_err(|error| {
        match call.args.value('l').filter(|_| error.status == Status::NotFound) {
            Some(link) => no_link(link),
            None => die_status("remove flow failed", &error),
        }
    })
}

/// show-flow
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let mut list = flows(session.api, call, which(call))?;
    if let Some(name) = call.optional_operand()? {
        list.retain(|flow| flow.name.as_str() == name);
        if list.is_empty() {
            return Err(die(format!("invalid flow: '{name}'")));
        }
    }
    if call.args.has('j') {
        return session.json("flows", &list, false);
    }
    let style = Style { fields: call.args.value('o'), parsable: call.args.has('p'), ..Style::default() };
    let mut table = Table::open(session, PROGRAM, FLOW, "flow,link,ipaddr,proto,lport,rport,dsfld", style)?;
    for flow in &list {
        table.row(session, &row(flow))?;
    }
    Ok(())
}

fn row(flow: &FlowInfo) -> [String; 10] {
    let matching = &flow.matching;
    let local = matching.local_ip.map(|ip| format!("LCL:{ip}"));
    let remote = matching.remote_ip.map(|ip| format!("RMT:{ip}"));
    fn text(value: Option<impl ToString>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    [
        flow.name.to_string(),
        flow.link.to_string(),
        local.into_iter().chain(remote).collect::<Vec<_>>().join(","),
        text(matching.transport),
        text(matching.local_port),
        text(matching.remote_port),
        text(matching.dsfield),
        text(matching.vlan_id),
        text(matching.local_mac),
        text(matching.remote_mac),
    ]
}
