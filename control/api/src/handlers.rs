//! One function per route, with its entry in the OpenAPI text.

use utoipa::OpenApi;

use firelane_model::{LinkClass, Model};

use crate::accounting;
use crate::change::{
    AddFlow, CreateAddr, CreateEtherstub, CreateIf, CreateIptun, CreateVnic, ModifyIptun, ModifyVnic,
    RenameLink, SetProps,
};
use crate::dispatch::{Call, Route, body};
use crate::error::Problem;
use crate::history_handlers as history;
use crate::ip_handlers as ip;
use crate::rule_handlers as rules;
use crate::trace::{WATCH_SECONDS_MAX, within};
use crate::wires::{CreateWire, ModifyWire};
use crate::{
    AddrInfo, AddrProperty, Api, ApiError, Change, ChangeRequest, DropInfo, EtherstubInfo, Finding, FlowInfo,
    FlowStats, FpmInfo, GroupInfo, IfInfo, IptunInfo, LinkInfo, LinkStats, Method, NetstackInfo, ObjectProps,
    PlanReply, ProgramReport, Property, ProtocolCounters, ProtocolProperty, SocketPage, Status, StatusInfo,
    StepInfo, TellClient, TraceReport, TraceRequest, VnicInfo, WireInfo, WireStats, openapi, paths,
};

pub(crate) type Reply = Result<Vec<u8>, ApiError>;

const fn route(method: Method, path: &'static str, handler: crate::dispatch::Handler) -> Route {
    Route { method, path, handler }
}

/// Every route.
pub(crate) const ROUTES: &[Route] = &[
    route(Method::Get, paths::STATUS, status),
    route(Method::Get, paths::OPENAPI, openapi_json),
    route(Method::Get, paths::MODEL, dump_model),
    route(Method::Put, paths::MODEL, apply_model),
    route(Method::Post, paths::PLAN, plan_model),
    route(Method::Get, paths::LINKS, links),
    route(Method::Delete, "/v1/links/{name}/flows", remove_flows_of),
    route(Method::Delete, "/v1/links/{name}", delete_phys),
    route(Method::Get, "/v1/links/{name}/props", link_props),
    route(Method::Patch, "/v1/links/{name}/props", set_link_props),
    route(Method::Get, paths::LINK_PROPS, all_link_props),
    route(Method::Put, "/v1/links/{name}/name", rename_link),
    route(Method::Get, paths::IPTUNS, iptuns),
    route(Method::Post, paths::IPTUNS, create_iptun),
    route(Method::Patch, "/v1/iptuns/{name}", modify_iptun),
    route(Method::Delete, "/v1/iptuns/{name}", delete_iptun),
    route(Method::Get, paths::VNICS, vnics),
    route(Method::Post, paths::VNICS, create_vnic),
    route(Method::Patch, "/v1/vnics/{name}", modify_vnic),
    route(Method::Delete, "/v1/vnics/{name}", delete_vnic),
    route(Method::Get, paths::ETHERSTUBS, etherstubs),
    route(Method::Post, paths::ETHERSTUBS, create_etherstub),
    route(Method::Delete, "/v1/etherstubs/{name}", delete_etherstub),
    route(Method::Get, paths::WIRES, wires),
    route(Method::Post, paths::WIRES, create_wire),
    route(Method::Patch, "/v1/wires/{name}", modify_wire),
    route(Method::Delete, "/v1/wires/{name}", delete_wire),
    route(Method::Get, paths::FLOWS, flows),
    route(Method::Post, paths::FLOWS, add_flow),
    route(Method::Delete, "/v1/flows/{name}", remove_flow),
    route(Method::Get, "/v1/flows/{name}/props", flow_props),
    route(Method::Patch, "/v1/flows/{name}/props", set_flow_props),
    route(Method::Get, paths::FLOW_PROPS, all_flow_props),
    route(Method::Get, paths::IFS, ifs),
    route(Method::Post, paths::IFS, create_if),
    route(Method::Delete, "/v1/ifs/{name}", delete_if),
    route(Method::Get, "/v1/ifs/{name}/props", if_props),
    route(Method::Patch, "/v1/ifs/{name}/props", set_if_props),
    route(Method::Patch, "/v1/ifs/{name}", ip::enable_if),
    route(Method::Get, paths::ADDRS, addrs),
    route(Method::Post, paths::ADDRS, create_addr),
    route(Method::Patch, "/v1/addrs/{name}", ip::modify_addr),
    route(Method::Delete, "/v1/addrs/{name}", delete_addr),
    route(Method::Get, "/v1/addrprops/{name}", addr_props),
    route(Method::Patch, "/v1/addrprops/{name}", set_addr_props),
    route(Method::Post, "/v1/leases/{name}", tell_client),
    route(Method::Get, paths::NETSTACKS, netstacks),
    route(Method::Get, "/v1/netstacks/{name}/props", netstack_props),
    route(Method::Patch, "/v1/netstacks/{name}/props", set_netstack_props),
    route(Method::Get, "/v1/netstacks/{name}/routes", ip::routes),
    route(Method::Patch, "/v1/netstacks/{name}/routes", ip::change_routes),
    route(Method::Get, "/v1/netstacks/{name}/neighbours", ip::neighbours),
    route(Method::Get, "/v1/netstacks/{name}/destinations", ip::destinations),
    route(Method::Get, "/v1/netstacks/{name}/counters", counters),
    route(Method::Get, "/v1/netstacks/{name}/groups", groups),
    route(Method::Get, "/v1/netstacks/{name}/filter", rules::filter),
    route(Method::Patch, "/v1/netstacks/{name}/filter", rules::change_filter),
    route(Method::Get, "/v1/netstacks/{name}/pools", rules::pools),
    route(Method::Patch, "/v1/netstacks/{name}/pools", rules::change_pools),
    route(Method::Get, "/v1/netstacks/{name}/nat", rules::nat),
    route(Method::Patch, "/v1/netstacks/{name}/nat", rules::change_nat),
    route(Method::Patch, "/v1/netstacks/{name}/nat/limits", rules::set_nat_limits),
    route(Method::Get, "/v1/netstacks/{name}/nat/sessions", rules::nat_sessions),
    route(Method::Delete, "/v1/netstacks/{name}/nat/sessions", rules::flush_nat),
    route(Method::Get, paths::SOCKETS, sockets),
    route(Method::Get, "/v1/programs/{name}", program),
    route(Method::Get, paths::LINK_STATS, link_stats),
    route(Method::Get, paths::FLOW_STATS, flow_stats),
    route(Method::Get, paths::WIRE_STATS, wire_stats),
    route(Method::Get, paths::LINK_HISTORY, history::link_usage),
    route(Method::Get, "/v1/history/links/{name}", history::link_samples),
    route(Method::Get, paths::FLOW_HISTORY, history::flow_usage),
    route(Method::Get, "/v1/history/flows/{name}", history::flow_samples),
    route(Method::Get, paths::ACCOUNTING, accounting::accounting),
    route(Method::Patch, paths::ACCOUNTING, accounting::change_accounting),
    route(Method::Get, paths::DROPS, drops),
    route(Method::Get, paths::DOCTOR, doctor),
    route(Method::Get, paths::CAPTURE, capture),
    route(Method::Post, paths::TRACE, trace),
    route(Method::Get, paths::STEPS, steps),
    route(Method::Get, paths::FPM, fpm),
    route(Method::Get, paths::MEMORY, ip::memory),
];

/// The interface as OpenAPI.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Firelane",
        version = "1",
        description = "What can be asked of a Firelane host, over its unix socket.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "http://localhost", description = "the daemon's unix socket")),
    components(schemas(Problem, LinkClass)),
    paths(
        status, openapi_json, dump_model, apply_model, plan_model, links, delete_phys, link_props, set_link_props, all_link_props, vnics,
        rename_link, create_vnic, modify_vnic, delete_vnic, etherstubs, create_etherstub, delete_etherstub, wires, create_wire, modify_wire, delete_wire, wire_stats, flows, add_flow, remove_flow, remove_flows_of, iptuns, create_iptun, modify_iptun, delete_iptun,
        flow_props, set_flow_props, all_flow_props, ifs, create_if, ip::enable_if, delete_if, if_props, set_if_props, addrs, create_addr, ip::modify_addr, delete_addr, addr_props, set_addr_props, tell_client, netstacks,
        netstack_props, set_netstack_props, ip::routes, ip::change_routes, ip::neighbours, ip::destinations, ip::memory, counters, groups, sockets, program, link_stats, flow_stats, accounting::accounting, accounting::change_accounting, drops, doctor, capture, trace, steps, history::link_usage, history::link_samples, history::flow_usage, history::flow_samples, rules::filter, rules::change_filter, rules::pools, rules::change_pools, rules::nat, rules::change_nat, rules::set_nat_limits, rules::nat_sessions, rules::flush_nat, fpm
    )
)]
pub(crate) struct Document;

pub(crate) fn change(api: &dyn Api, temporary: bool, change: Change) -> Reply {
    api.change(&ChangeRequest { temporary, change })?;
    Ok(b"{}".to_vec())
}

/// What runs, and whether all is well.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = StatusInfo), (status = "4XX", body = Problem)))]
fn status(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.status()?)
}

/// This text.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, description = "OpenAPI 3.1")))]
fn openapi_json(_: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    Ok(openapi::openapi_text().into_bytes())
}

/// The whole configuration.
#[utoipa::path(get, path = "/v1/model",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Model), (status = "4XX", body = Problem)))]
fn dump_model(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.model(call.which()?)?)
}

/// Replaces the whole configuration and answers with the steps that were carried out.
#[utoipa::path(put, path = "/v1/model", request_body = Model,
    params(("temporary" = Option<bool>, Query, description = "gone after the next start"),
        ("empty" = Option<bool>, Query, description = "also by one without any object, which deletes all that there is"),
        ("configuration" = Option<String>, Query, description = "only as long as the status has this `configuration`")),
    responses((status = 200, body = PlanReply), (status = "4XX", body = Problem)))]
fn apply_model(api: &dyn Api, call: &Call<'_>) -> Reply {
    let wanted: Model = call.json()?;
    body(&api.apply(&wanted, call.replacing()?)?)
}

/// The steps that replacing the configuration would take; changes nothing.
#[utoipa::path(post, path = "/v1/plan", request_body = Model,
    responses((status = 200, body = PlanReply), (status = "4XX", body = Problem)))]
fn plan_model(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let wanted: Model = call.json()?;
    body(&api.plan(&wanted)?)
}

/// Links of every class.
#[utoipa::path(get, path = "/v1/links",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<LinkInfo>), (status = "4XX", body = Problem)))]
fn links(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.links(call.which()?)?)
}

/// The properties of a link, etherstub or VNIC.
#[utoipa::path(get, path = "/v1/links/{name}/props",
    params(("name" = String, Path, description = "the link"),
        ("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<Property>), (status = "4XX", body = Problem)))]
fn link_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.link_props(call.name, call.which()?)?)
}

/// The properties of all links, etherstubs and VNICs, as they are at one time.
#[utoipa::path(get, path = "/v1/link-props",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<ObjectProps>), (status = "4XX", body = Problem)))]
fn all_link_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.all_link_props(call.which()?)?)
}

/// Sets or resets properties of a link, etherstub or VNIC.
#[utoipa::path(patch, path = "/v1/links/{name}/props", request_body = SetProps,
    params(("name" = String, Path, description = "the link")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn set_link_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: SetProps = call.json()?;
    change(api, request.temporary, Change::SetLinkProps(call.parsed("link")?, request.changes()))
}

/// Gives a link of any class another name; its traffic goes on.
#[utoipa::path(put, path = "/v1/links/{name}/name", request_body = RenameLink,
    params(("name" = String, Path, description = "the link")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn rename_link(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let RenameLink { name } = call.json()?;
    change(api, false, Change::RenameLink(call.parsed("link")?, name))
}

/// VNICs.
#[utoipa::path(get, path = "/v1/vnics",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<VnicInfo>), (status = "4XX", body = Problem)))]
fn vnics(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.vnics(call.which()?)?)
}

/// Makes a VNIC.
#[utoipa::path(post, path = "/v1/vnics", request_body = CreateVnic,
    responses((status = 200), (status = "4XX", body = Problem)))]
fn create_vnic(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: CreateVnic = call.json()?;
    change(api, request.temporary, Change::CreateVnic(request.name, request.vnic))
}

/// Makes a VNIC over something else, or with another address or VLAN.
#[utoipa::path(patch, path = "/v1/vnics/{name}", request_body = ModifyVnic,
    params(("name" = String, Path, description = "the VNIC")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn modify_vnic(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: ModifyVnic = call.json()?;
    change(api, request.temporary, Change::ModifyVnic(call.parsed("vnic")?, request.change))
}

/// Removes a VNIC.
#[utoipa::path(delete, path = "/v1/vnics/{name}",
    params(("name" = String, Path, description = "the VNIC"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn delete_vnic(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::DeleteVnic(call.parsed("vnic")?))
}

/// Tunnels.
#[utoipa::path(get, path = "/v1/iptuns",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<IptunInfo>), (status = "4XX", body = Problem)))]
fn iptuns(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.iptuns(call.which()?)?)
}

/// Makes a tunnel.
#[utoipa::path(post, path = "/v1/iptuns", request_body = CreateIptun,
    responses((status = 200), (status = "4XX", body = Problem)))]
fn create_iptun(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let CreateIptun { name, vnic, temporary } = call.json()?;
    change(api, temporary, Change::CreateIptun(name, vnic))
}

/// Leads a tunnel elsewhere.
#[utoipa::path(patch, path = "/v1/iptuns/{name}", request_body = ModifyIptun,
    params(("name" = String, Path, description = "the tunnel")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn modify_iptun(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: ModifyIptun = call.json()?;
    change(api, request.temporary, Change::ModifyIptun(call.parsed("iptun")?, request.change))
}

/// Removes a tunnel.
#[utoipa::path(delete, path = "/v1/iptuns/{name}",
    params(("name" = String, Path, description = "the tunnel"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn delete_iptun(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::DeleteIptun(call.parsed("iptun")?))
}

/// Virtual switches.
#[utoipa::path(get, path = "/v1/etherstubs",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<EtherstubInfo>), (status = "4XX", body = Problem)))]
fn etherstubs(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.etherstubs(call.which()?)?)
}

/// Makes a virtual switch.
#[utoipa::path(post, path = "/v1/etherstubs", request_body = CreateEtherstub,
    responses((status = 200), (status = "4XX", body = Problem)))]
fn create_etherstub(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: CreateEtherstub = call.json()?;
    change(api, request.temporary, Change::CreateEtherstub(request.name, request.etherstub))
}

/// Removes a link whose device is gone.
#[utoipa::path(delete, path = "/v1/links/{name}",
    params(("name" = String, Path, description = "the link"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn delete_phys(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::DeletePhys(call.parsed("link")?))
}

/// Removes a virtual switch.
#[utoipa::path(delete, path = "/v1/etherstubs/{name}",
    params(("name" = String, Path, description = "the etherstub"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn delete_etherstub(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::DeleteEtherstub(call.parsed("etherstub")?))
}

/// Wires.
#[utoipa::path(get, path = "/v1/wires",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<WireInfo>), (status = "4XX", body = Problem)))]
fn wires(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.wires(call.which()?)?)
}

/// Makes a wire between two virtual switches.
#[utoipa::path(post, path = "/v1/wires", request_body = CreateWire,
    responses((status = 200), (status = "4XX", body = Problem)))]
fn create_wire(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: CreateWire = call.json()?;
    change(api, request.temporary, Change::CreateWire(request.name, request.wire))
}

/// Sets or resets conditions of one direction of a wire, or of both.
#[utoipa::path(patch, path = "/v1/wires/{name}", request_body = ModifyWire,
    params(("name" = String, Path, description = "the wire")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn modify_wire(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let ModifyWire { side, props, temporary } = call.json()?;
    let changes = SetProps { props, temporary }.changes();
    change(api, temporary, Change::ModifyWire(call.parsed("wire")?, side, changes))
}

/// Removes a wire.
#[utoipa::path(delete, path = "/v1/wires/{name}",
    params(("name" = String, Path, description = "the wire"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn delete_wire(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::DeleteWire(call.parsed("wire")?))
}

/// What became of wires' frames since they were made.
#[utoipa::path(get, path = "/v1/stats/wires",
    responses((status = 200, body = Vec<WireStats>), (status = "4XX", body = Problem)))]
fn wire_stats(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.wire_stats()?)
}

/// Flows.
#[utoipa::path(get, path = "/v1/flows",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<FlowInfo>), (status = "4XX", body = Problem)))]
fn flows(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.flows(call.which()?)?)
}

/// Adds a flow.
#[utoipa::path(post, path = "/v1/flows", request_body = AddFlow,
    responses((status = 200), (status = "4XX", body = Problem)))]
fn add_flow(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: AddFlow = call.json()?;
    change(api, request.temporary, Change::AddFlow(request.name, request.flow))
}

/// Removes a flow.
#[utoipa::path(delete, path = "/v1/flows/{name}",
    params(("name" = String, Path, description = "the flow"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn remove_flow(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::RemoveFlow(call.parsed("flow")?))
}

/// Removes all flows of a link.
#[utoipa::path(delete, path = "/v1/links/{name}/flows",
    params(("name" = String, Path, description = "the link"),
        ("temporary" = Option<bool>, Query, description = "they return at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn remove_flows_of(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::RemoveFlowsOf(call.parsed("link")?))
}

/// The properties of a flow.
#[utoipa::path(get, path = "/v1/flows/{name}/props",
    params(("name" = String, Path, description = "the flow"),
        ("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<Property>), (status = "4XX", body = Problem)))]
fn flow_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.flow_props(call.name, call.which()?)?)
}

/// The properties of all flows, as they are at one time.
#[utoipa::path(get, path = "/v1/flow-props",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<ObjectProps>), (status = "4XX", body = Problem)))]
fn all_flow_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.all_flow_props(call.which()?)?)
}

/// Sets or resets properties of a flow.
#[utoipa::path(patch, path = "/v1/flows/{name}/props", request_body = SetProps,
    params(("name" = String, Path, description = "the flow")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn set_flow_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: SetProps = call.json()?;
    change(api, request.temporary, Change::SetFlowProps(call.parsed("flow")?, request.changes()))
}

/// IP interfaces.
#[utoipa::path(get, path = "/v1/ifs",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<IfInfo>), (status = "4XX", body = Problem)))]
fn ifs(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.ifs(call.which()?)?)
}

/// Gives a VNIC to a netstack.
#[utoipa::path(post, path = "/v1/ifs", request_body = CreateIf,
    responses((status = 200), (status = "4XX", body = Problem)))]
fn create_if(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: CreateIf = call.json()?;
    change(api, request.temporary, Change::CreateIf(request.name, request.netstack))
}

/// Takes a VNIC from its netstack, with its addresses.
#[utoipa::path(delete, path = "/v1/ifs/{name}",
    params(("name" = String, Path, description = "the interface"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn delete_if(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::DeleteIf(call.parsed("interface")?))
}

/// Address objects.
#[utoipa::path(get, path = "/v1/addrs",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<AddrInfo>), (status = "4XX", body = Problem)))]
fn addrs(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.addrs(call.which()?)?)
}

/// Adds an address.
#[utoipa::path(post, path = "/v1/addrs", request_body = CreateAddr,
    responses((status = 200), (status = "4XX", body = Problem)))]
fn create_addr(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: CreateAddr = call.json()?;
    change(api, request.temporary, Change::CreateAddr(request.name, request.address))
}

/// Removes an address. The name contains a slash, which stands in the path as it is, or as `%2F`.
#[utoipa::path(delete, path = "/v1/addrs/{name}",
    params(("name" = String, Path, description = "the address object, such as web0/v4"),
        ("temporary" = Option<bool>, Query, description = "returns at the next start")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn delete_addr(api: &dyn Api, call: &Call<'_>) -> Reply {
    change(api, call.temporary()?, Change::DeleteAddr(call.parsed("addrobj")?))
}

/// The properties of an IP interface.
#[utoipa::path(get, path = "/v1/ifs/{name}/props",
    params(("name" = String, Path, description = "the interface")),
    responses((status = 200, body = Vec<ProtocolProperty>), (status = "4XX", body = Problem)))]
fn if_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.if_props(call.name)?)
}

/// Sets or resets properties of an IP interface, each named as `ipv4.forwarding`.
#[utoipa::path(patch, path = "/v1/ifs/{name}/props", request_body = SetProps,
    params(("name" = String, Path, description = "the interface")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn set_if_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: SetProps = call.json()?;
    change(api, request.temporary, Change::SetIfProps(call.parsed("interface")?, request.changes()))
}

/// The properties of an address object.
#[utoipa::path(get, path = "/v1/addrprops/{name}",
    params(("name" = String, Path, description = "the address object, such as web0/v4")),
    responses((status = 200, body = Vec<AddrProperty>), (status = "4XX", body = Problem)))]
fn addr_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.addr_props(call.name)?)
}

/// Sets or resets properties of an address object.
#[utoipa::path(patch, path = "/v1/addrprops/{name}", request_body = SetProps,
    params(("name" = String, Path, description = "the address object, such as web0/v4")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn set_addr_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: SetProps = call.json()?;
    change(api, request.temporary, Change::SetAddrProps(call.parsed("addrobj")?, request.changes()))
}

/// Tells the DHCP client of an address object to ask for more time, to give its lease back, or to ask about the network of a
/// static address.
#[utoipa::path(post, path = "/v1/leases/{name}", request_body = TellClient,
    params(("name" = String, Path, description = "the address object, such as web0/v4")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn tell_client(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let TellClient { action } = call.json()?;
    api.tell_client(call.name, action)?;
    body(&())
}

/// Netstacks.
#[utoipa::path(get, path = "/v1/netstacks",
    params(("persistent" = Option<bool>, Query, description = "what the next start begins with")),
    responses((status = 200, body = Vec<NetstackInfo>), (status = "4XX", body = Problem)))]
fn netstacks(api: &dyn Api, call: &Call<'_>) -> Reply {
    body(&api.netstacks(call.which()?)?)
}

/// The protocol properties of a netstack.
#[utoipa::path(get, path = "/v1/netstacks/{name}/props",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Vec<ProtocolProperty>), (status = "4XX", body = Problem)))]
fn netstack_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.netstack_props(call.name)?)
}

/// Sets or resets protocol properties of a netstack, each named as `tcp.send_buf`.
#[utoipa::path(patch, path = "/v1/netstacks/{name}/props", request_body = SetProps,
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200), (status = "4XX", body = Problem)))]
fn set_netstack_props(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: SetProps = call.json()?;
    change(api, request.temporary, Change::SetNetstackProps(call.parsed("netstack")?, request.changes()))
}

/// What a netstack has counted, protocol by protocol.
#[utoipa::path(get, path = "/v1/netstacks/{name}/counters",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Vec<ProtocolCounters>), (status = "4XX", body = Problem)))]
fn counters(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.counters(call.name)?)
}

/// The groups that a netstack listens to.
#[utoipa::path(get, path = "/v1/netstacks/{name}/groups",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Vec<GroupInfo>), (status = "4XX", body = Problem)))]
fn groups(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.groups(call.name)?)
}

/// The routing daemons of netstacks, and what was counted of what they say.
#[utoipa::path(get, path = "/v1/fpm",
    responses((status = 200, body = Vec<FpmInfo>), (status = "4XX", body = Problem)))]
fn fpm(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.fpm()?)
}

/// Sockets, in pages: each says what asks for the next one.
#[utoipa::path(get, path = "/v1/sockets",
    params(("netstack" = Option<String>, Query, description = "only those of this netstack"),
        ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = SocketPage), (status = "4XX", body = Problem)))]
fn sockets(api: &dyn Api, call: &Call<'_>) -> Reply {
    let [netstack, after] = call.values(["netstack", "after"])?;
    body(&api.sockets(netstack, after)?)
}

/// A process and its sockets, explained.
#[utoipa::path(get, path = "/v1/programs/{name}",
    params(("name" = u32, Path, description = "the process' number, as the daemon sees it")),
    responses((status = 200, body = ProgramReport), (status = "4XX", body = Problem)))]
fn program(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.program(call.parsed("process")?)?)
}

/// Traffic of every link since it was made.
#[utoipa::path(get, path = "/v1/stats/links",
    responses((status = 200, body = Vec<LinkStats>), (status = "4XX", body = Problem)))]
fn link_stats(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.link_stats()?)
}

/// Traffic of every flow since it was made.
#[utoipa::path(get, path = "/v1/stats/flows",
    responses((status = 200, body = Vec<FlowStats>), (status = "4XX", body = Problem)))]
fn flow_stats(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.flow_stats()?)
}

/// What passes a link or belongs to a flow, as a pcapng stream that ends with the connection.
#[utoipa::path(get, path = "/v1/capture",
    params(("link" = Option<String>, Query, description = "a VNIC, link or etherstub"),
        ("flow" = Option<String>, Query, description = "a flow, instead of a link"),
        ("count" = Option<u64>, Query, description = "how many frames"),
        ("snap" = Option<u32>, Query, description = "how many bytes of each")),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-pcapng"),
        (status = "4XX", body = Problem)))]
fn capture(_: &dyn Api, call: &Call<'_>) -> Reply {
    call.capture()?;
    // Its answer has no end, so a server gives it without `dispatch`.
    Err(ApiError::new(Status::NotSupported, "path", paths::CAPTURE, "a connection of its own"))
}

/// Frames that ended, by station and reason, since the daemon's start.
#[utoipa::path(get, path = "/v1/drops",
    responses((status = 200, body = Vec<DropInfo>), (status = "4XX", body = Problem)))]
fn drops(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.drops()?)
}

/// Follows frames, real ones or one that is made up, and answers at the end of their way.
#[utoipa::path(post, path = "/v1/trace", request_body = TraceRequest,
    responses((status = 200, body = TraceReport), (status = "4XX", body = Problem)))]
fn trace(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let wanted: TraceRequest = call.json()?;
    wanted.check()?;
    body(&api.trace(&wanted, call.is_awaited)?)
}

/// The frames and cycles of steps, counted for so many seconds.
#[utoipa::path(get, path = "/v1/steps",
    params(("seconds" = Option<u32>, Query, description = "for how long, 1 to 60; 1 if not said")),
    responses((status = 200, body = Vec<StepInfo>), (status = "4XX", body = Problem)))]
fn steps(api: &dyn Api, call: &Call<'_>) -> Reply {
    let [seconds] = call.values(["seconds"])?;
    let bad = || ApiError::new(Status::BadArg, "seconds", seconds.unwrap_or_default(), "from 1 to 60");
    let seconds = seconds.map_or(Ok(1), |text| text.parse().map_err(|_| bad()))?;
    within("seconds", seconds, WATCH_SECONDS_MAX)?;
    body(&api.steps(seconds, call.is_awaited)?)
}

/// What the host offers, and what links and VNICs got of it.
#[utoipa::path(get, path = "/v1/doctor",
    responses((status = 200, body = Vec<Finding>), (status = "4XX", body = Problem)))]
fn doctor(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.doctor()?)
}
