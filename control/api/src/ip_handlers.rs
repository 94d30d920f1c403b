//! The interface's routes to what is in force of interfaces and addresses, to a netstack's routes, neighbours and narrow paths, and to
//! memory.
//!
//! `handlers.rs` has the table of routes.

use crate::dispatch::{Call, body};
use crate::enabling::{EnableIf, ModifyAddr};
use crate::error::Problem;
use crate::handlers::{Reply, change};
use crate::{Api, Change, ChangeRoutes, DestinationInfo, MemoryInfo, NeighbourInfo, RouteInfo};

/// Takes an interface out of what is in force until the next start, or takes it from what that begins with.
#[utoipa::path(patch, path = "/v1/ifs/{name}", request_body = EnableIf,
    params(("name" = String, Path, description = "the interface")),
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn enable_if(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let name = call.parsed("interface")?;
    let EnableIf { enabled } = call.json()?;
    change(api, true, if enabled { Change::EnableIf(name) } else { Change::DisableIf(name) })
}

/// Takes an address out of what is in force, takes it from what is kept, or marks it up or down.
#[utoipa::path(patch, path = "/v1/addrs/{name}", request_body = ModifyAddr,
    params(("name" = String, Path, description = "the address object")),
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn modify_addr(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let name = call.parsed("addrobj")?;
    match call.json()? {
        ModifyAddr::Enabled(true) => change(api, true, Change::EnableAddr(name)),
        ModifyAddr::Enabled(false) => change(api, true, Change::DisableAddr(name)),
        ModifyAddr::Up(up) => change(api, false, Change::MarkAddr(name, up)),
        ModifyAddr::UpTemporarily(up) => change(api, true, Change::MarkAddr(name, up)),
    }
}

/// The routes of a netstack.
#[utoipa::path(get, path = "/v1/netstacks/{name}/routes",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Vec<RouteInfo>), (status = "4XX", body = Problem)))]
pub(crate) fn routes(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.routes(call.name)?)
}

/// Changes the operator's routes of a netstack, all of them or none.
#[utoipa::path(patch, path = "/v1/netstacks/{name}/routes", request_body = ChangeRoutes,
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn change_routes(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: ChangeRoutes = call.json()?;
    change(api, request.temporary, Change::ChangeRoutes(call.parsed("netstack")?, request.change))
}

/// The neighbours of a netstack, and its own addresses beside them.
#[utoipa::path(get, path = "/v1/netstacks/{name}/neighbours",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Vec<NeighbourInfo>), (status = "4XX", body = Problem)))]
pub(crate) fn neighbours(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.neighbours(call.name)?)
}

/// The destinations of a netstack whose paths carry less than their links.
#[utoipa::path(get, path = "/v1/netstacks/{name}/destinations",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Vec<DestinationInfo>), (status = "4XX", body = Problem)))]
pub(crate) fn destinations(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.destinations(call.name)?)
}

/// The memory of lanes: pools of frames, the storage of rings, tables.
#[utoipa::path(get, path = "/v1/memory", responses((status = 200, body = MemoryInfo), (status = "4XX", body = Problem)))]
pub(crate) fn memory(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.memory()?)
}
