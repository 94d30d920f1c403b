//! Routes, neighbours and narrow paths of a netstack, as its lanes have them, and how `route` changes the operator's routes.
//!
//! A change is whole: all that it says of routes is done, or it is refused and all stays as it is.

use std::net::IpAddr;

use firelane_model::{Netstack, Route};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::filter::Left;

/// What of a netstack's routes changes, in this order. What others than the operator have brought is none of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoutesChange {
    /// These routes go; each must be there, whatever its congestion control is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<Route>,
    /// These routes come; none may be there, whatever its congestion control is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Route>,
}

/// Body: changes the routes of a netstack.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRoutes {
    /// What changes.
    pub change: RoutesChange,
    /// Whether it is as before after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// What could not be followed is said of routes in these words.
pub(crate) const ROUTE_WORDS: [&str; 2] = ["no such route", "the route is there"];

impl RoutesChange {
    /// Changes the routes of `netstack` as far as it goes.
    pub(crate) fn follow(&self, netstack: &mut Netstack) -> Left<Route> {
        let mut left = Left { absent: Vec::new(), present: Vec::new() };
        for &route in &self.remove {
            match netstack.same_way(route) {
                Some(there) => drop(netstack.routes.remove(&there)),
                None => left.absent.push(route),
            }
        }
        for &route in &self.add {
            match netstack.same_way(route) {
                None => drop(netstack.routes.insert(route)),
                Some(_) => left.present.push(route),
            }
        }
        left
    }
}

/// Whose a route is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RouteOrigin {
    /// It comes with an address of an interface.
    Address,
    /// The operator's.
    Operator,
    /// A router advertises its destination as on the link.
    OnLink,
    /// A router advertises itself.
    Router,
    /// A lease brought it.
    Lease,
    /// The routing daemon's.
    Daemon,
}

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
    /// Whose it is.
    pub origin: RouteOrigin,
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
