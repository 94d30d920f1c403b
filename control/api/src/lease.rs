//! What a DHCP client of an address object knows, and what the operator may tell it.

use std::net::IpAddr;

use firelane_model::{AddrObjName, Address, Model};
use firelane_units::IpPrefix;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AddressState, ApiError, Status};

/// A DHCP client of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseInfo {
    /// Its state, as RFC 2131 names it, or after what RFC 8415 calls what it does: `SELECTING`, `BOUND`, `SOLICITING`.
    pub state: String,
    /// Who gave the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub server: Option<IpAddr>,
    /// When it ends, in seconds since 1970; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// Who resolves names, as the network of an interface says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ResolverInfo {
    /// Who resolves names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub name_servers: Vec<IpAddr>,
    /// Where names are looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
}

impl ResolverInfo {
    /// Whether the network says nothing.
    pub fn is_empty(&self) -> bool {
        self.name_servers.is_empty() && self.domains.is_empty()
    }
}

/// What runs for an address object of DHCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leased {
    /// How far its address is usable.
    pub state: AddressState,
    /// The address, if a lease is in force.
    pub prefix: Option<IpPrefix>,
    /// Whether nothing new begins with it.
    pub deprecated: bool,
    /// Who resolves names there.
    pub resolvers: ResolverInfo,
    /// What its client knows.
    pub info: LeaseInfo,
}

/// What a client shall do at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeaseAction {
    /// Ask for more time, or for a lease again.
    Refresh,
    /// Give the lease back.
    Release,
}

/// Body: tells a client what to do.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TellClient {
    /// What.
    pub action: LeaseAction,
}

/// The address object `name` of `model`, which must be one that asks a server.
///
/// # Errors
/// There is no such object, or its address comes from elsewhere.
pub fn leased_object(model: &Model, name: &str) -> Result<AddrObjName, ApiError> {
    let known = model.addresses().find(|(_, it, _)| it.as_str() == name);
    let (_, name, address) = known.ok_or_else(|| ApiError::new(Status::NoAddrObj, "addrobj", name, ""))?;
    match address {
        Address::Dhcp(_) => Ok(name.clone()),
        Address::Addrconf(it) if it.stateful => Ok(name.clone()),
        other => Err(ApiError::new(Status::IpNotSupported, "type", other.kind(), "dhcp, addrconf")),
    }
}
