//! Routes, neighbours and narrow paths of a netstack, as its lanes have them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RouteInfo {
    /// Where to, `10.0.0.0/24` or `fd00::/64`.
    pub destination: String,
    /// Through whom; of a subnet of our own, our address there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// By which interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `U` it is in use, `G` it leads through a gateway, `H` to one host, `S` the operator made it, `D` a routing daemon, `B` and
    /// `R` packets end there, silently or refused.
    pub flags: String,
    /// Which sources' packets may take it, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which protocol told the routing daemon, as `ip route` of Linux names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What the routing daemon says of its worth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Which congestion control connections over it use, if not the netstack's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

/// A neighbour, or an address of our own on the same link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NeighbourInfo {
    /// On which interface.
    pub interface: String,
    /// Whose.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The Ethernet address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// `incomplete`, `reachable`, `stale`, `delay` or `probe` (RFC 4861 §7.3.2); `local` of an address of our own.
    pub state: String,
}

/// A destination whose path carries less than its link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationInfo {
    /// Which.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The longest packet that its path carries.
    pub mtu: u16,
    /// For how many seconds that is known.
    pub age: u64,
}
