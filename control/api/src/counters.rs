//! What a netstack has counted, protocol by protocol, and the groups that it listens to.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The counters of one protocol of a netstack, since it was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProtocolCounters {
    /// `udp`, `tcp`, `ip` (what is not told by version), `ipv4`, `ipv6`, `icmp`, `icmpv6` or `igmp`.
    pub protocol: String,
    /// Its counters, in the order in which they are shown.
    pub counters: Vec<Counter>,
}

/// A counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Counter {
    /// Its name, which is the original's if the original has it.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// A group that a netstack listens to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GroupInfo {
    /// On which interface.
    pub interface: String,
    /// Which group.
    #[schema(value_type = String)]
    pub group: IpAddr,
    /// How many listen: sockets, and the netstack itself.
    pub members: u64,
}
