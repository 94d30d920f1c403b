//! The routes of what a netstack says of packets: its filter and its address translation.
//!
//! `handlers.rs` has the table of routes.

use crate::dispatch::{Call, body};
use crate::error::Problem;
use crate::handlers::{Reply, change};
use crate::nat::{ChangeNat, Flushed};
use crate::{Api, Change, ChangeFilter, ChangePools, FilterInfo, NatInfo, NatSession, PoolsInfo, SetProps};

/// The packet filter of a netstack, and what it has counted.
#[utoipa::path(get, path = "/v1/netstacks/{name}/filter",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = FilterInfo), (status = "4XX", body = Problem)))]
pub(crate) fn filter(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.filter(call.name)?)
}

/// Changes the rules of a netstack's packet filter, all at once.
#[utoipa::path(patch, path = "/v1/netstacks/{name}/filter", request_body = ChangeFilter,
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn change_filter(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: ChangeFilter = call.json()?;
    change(api, request.temporary, Change::ChangeFilter(call.parsed("netstack")?, request.change))
}

/// The pools that the rules of a netstack's packet filter may name, and what is in them.
#[utoipa::path(get, path = "/v1/netstacks/{name}/pools",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = PoolsInfo), (status = "4XX", body = Problem)))]
pub(crate) fn pools(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.pools(call.name)?)
}

/// Changes the pools of a netstack's packet filter, all at once.
#[utoipa::path(patch, path = "/v1/netstacks/{name}/pools", request_body = ChangePools,
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn change_pools(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: ChangePools = call.json()?;
    change(api, request.temporary, Change::ChangePools(call.parsed("netstack")?, request.change))
}

/// The address translation of a netstack, and what it has counted.
#[utoipa::path(get, path = "/v1/netstacks/{name}/nat",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = NatInfo), (status = "4XX", body = Problem)))]
pub(crate) fn nat(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.nat(call.name)?)
}

/// Changes the rules of a netstack's address translation, all at once.
#[utoipa::path(patch, path = "/v1/netstacks/{name}/nat", request_body = ChangeNat,
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn change_nat(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: ChangeNat = call.json()?;
    change(api, request.temporary, Change::ChangeNat(call.parsed("netstack")?, request.change))
}

/// Sets or resets limits of a netstack's address translation.
#[utoipa::path(patch, path = "/v1/netstacks/{name}/nat/limits", request_body = SetProps,
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn set_nat_limits(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: SetProps = call.json()?;
    change(api, request.temporary, Change::SetNatLimits(call.parsed("netstack")?, request.changes()))
}

/// The sessions that a netstack's address translation has made.
#[utoipa::path(get, path = "/v1/netstacks/{name}/nat/sessions",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Vec<NatSession>), (status = "4XX", body = Problem)))]
pub(crate) fn nat_sessions(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.nat_sessions(call.name)?)
}

/// Ends all sessions of a netstack's address translation.
#[utoipa::path(delete, path = "/v1/netstacks/{name}/nat/sessions",
    params(("name" = String, Path, description = "the netstack")),
    responses((status = 200, body = Flushed), (status = "4XX", body = Problem)))]
pub(crate) fn flush_nat(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&Flushed { flushed: api.flush_nat(call.name)? })
}
