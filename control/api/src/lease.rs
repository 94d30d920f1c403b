//! What a DHCP client of an address object knows, and what the operator may tell it.

use std::net::{IpAddr, Ipv4Addr};

use firelane_model::{AddrObjName, Address, Model, NetstackName};
use firelane_units::IpPrefix;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AddressState, ApiError, Status};

/// A DHCP client of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LeaseInfo {
    /// Its state, as RFC 2131 names it, or after what RFC 8415 calls what it does: `SELECTING`, `BOUND`, `SOLICITING`. Of a
    /// static address `INFORMING`, `INFORMED`, `UNANSWERED`.
    pub state: String,
    /// Who gave the lease, or has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub server: Option<IpAddr>,
    /// When it began, in seconds since 1970: when it was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<u64>,
    /// When more time will be asked for; absent if it does not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<u64>,
    /// When it ends, in seconds since 1970; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Whether its routes and name servers come before those of the netstack's other leases.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub primary: bool,
    /// Messages that were sent.
    #[serde(default)]
    pub sent: u64,
    /// Messages that came and were for the client.
    #[serde(default)]
    pub received: u64,
    /// Addresses that were declined, because another station had them.
    #[serde(default)]
    pub declined: u64,
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
    /// What others say, behind what is said already.
    pub(crate) fn append(&mut self, more: &Self) {
        for server in &more.name_servers {
            if !self.name_servers.contains(server) {
                self.name_servers.push(*server);
            }
        }
        for domain in &more.domains {
            if !self.domains.contains(domain) {
                self.domains.push(domain.clone());
            }
        }
    }

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
    /// Ask what the network of a static address is like.
    Inform,
}

/// Body: tells a client what to do.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TellClient {
    /// What.
    pub action: LeaseAction,
}

/// The IPv4 address of the object `name` of `model`, of which a server can be asked what its network is like.
///
/// # Errors
/// There is no such object, its address is not static, not of IPv4 or not in use.
pub fn informed_object(model: &Model, name: &str) -> Result<Informed, ApiError> {
    let known = model.addresses().find(|(_, it, _)| it.as_str() == name);
    let (netstack, name, address) =
        known.ok_or_else(|| ApiError::new(Status::NoAddrObj, "addrobj", name, ""))?;
    let refused =
        |field, value: String, allowed| ApiError::new(Status::IpNotSupported, field, value, allowed);
    let Address::Static(it) = address else {
        return Err(refused(
            "type",
            address.kind().to_owned(),
            "static, whose -i asks; a lease says it by itself",
        ));
    };
    let IpAddr::V4(addr) = it.prefix().addr() else {
        let allowed = "IPv4; what IPv6's network is like its routers say (addrconf)";
        return Err(refused("address", it.prefix().to_string(), allowed));
    };
    if it.down {
        return Err(refused("address", it.prefix().to_string(), "one that is up"));
    }
    Ok(Informed { netstack: netstack.clone(), name: name.clone(), addr })
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Informed {
    /// In which netstack.
    pub netstack: NetstackName,
    /// Its address object.
    pub name: AddrObjName,
    /// Its address.
    pub addr: Ipv4Addr,
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
