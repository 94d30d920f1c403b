//! The routes of what links and flows have carried over time.
//!
//! `handlers.rs` has the table of routes.

use crate::dispatch::{Call, body};
use crate::error::Problem;
use crate::handlers::Reply;
use crate::{Api, Usage, UsageOf, UsageRequest, UsageSample};

fn usage(api: &dyn Api, of: UsageOf, call: &Call<'_>) -> Reply {
    body(&api.usage(&UsageRequest::from_values(of, call.values(UsageRequest::VALUES)?)?)?)
}

fn samples(api: &dyn Api, of: UsageOf, call: &Call<'_>) -> Reply {
    let request = UsageRequest::from_values(of, call.values(UsageRequest::VALUES)?)?;
    body(&api.usage_samples(of.name(call.name)?, &request)?)
}

/// What every link has carried in a time.
#[utoipa::path(get, path = "/v1/history/links",
    params(("from" = Option<u64>, Query, description = "seconds since 1970; the beginning"),
        ("until" = Option<u64>, Query, description = "seconds since 1970, not included; now"),
        ("all" = Option<bool>, Query, description = "also what was deleted, and what carried nothing"),
        ("days" = Option<bool>, Query, description = "on which days something was carried")),
    responses((status = 200, body = Vec<Usage>), (status = "4XX", body = Problem)))]
pub(crate) fn link_usage(api: &dyn Api, call: &Call<'_>) -> Reply {
    usage(api, UsageOf::Links, call)
}

/// What a link has carried, by the second, minute or hour, as fine as can be read and is kept.
#[utoipa::path(get, path = "/v1/history/links/{name}",
    params(("name" = String, Path, description = "a link, present or past"),
        ("from" = Option<u64>, Query, description = "seconds since 1970; the beginning"),
        ("until" = Option<u64>, Query, description = "seconds since 1970, not included; now")),
    responses((status = 200, body = Vec<UsageSample>), (status = "4XX", body = Problem)))]
pub(crate) fn link_samples(api: &dyn Api, call: &Call<'_>) -> Reply {
    samples(api, UsageOf::Links, call)
}

/// What every flow has carried in a time.
#[utoipa::path(get, path = "/v1/history/flows",
    params(("from" = Option<u64>, Query, description = "seconds since 1970; the beginning"),
        ("until" = Option<u64>, Query, description = "seconds since 1970, not included; now"),
        ("all" = Option<bool>, Query, description = "also what was deleted, and what carried nothing"),
        ("days" = Option<bool>, Query, description = "on which days something was carried")),
    responses((status = 200, body = Vec<Usage>), (status = "4XX", body = Problem)))]
pub(crate) fn flow_usage(api: &dyn Api, call: &Call<'_>) -> Reply {
    usage(api, UsageOf::Flows, call)
}

/// What a flow has carried, by the second, minute or hour, as fine as can be read and is kept.
#[utoipa::path(get, path = "/v1/history/flows/{name}",
    params(("name" = String, Path, description = "a flow, present or past"),
        ("from" = Option<u64>, Query, description = "seconds since 1970; the beginning"),
        ("until" = Option<u64>, Query, description = "seconds since 1970, not included; now")),
    responses((status = 200, body = Vec<UsageSample>), (status = "4XX", body = Problem)))]
pub(crate) fn flow_samples(api: &dyn Api, call: &Call<'_>) -> Reply {
    samples(api, UsageOf::Flows, call)
}
