//! A process and its sockets, explained: which are Firelane's, which are the kernel's, and why.

use std::net::SocketAddr;

use firelane_model::NetstackName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RuleInfo;

/// A process, as far as its sockets go.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProgramReport {
    /// Its number, as the daemon sees it.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// `accelerated`: its sockets are Firelane's; `beside`: they are the kernel's, in a network namespace with a VNIC;
    /// `kernel`: Firelane has nothing to do with it.
    pub path: String,
    /// Why it is so.
    pub why: String,
    /// The netstack of its session or of its sockets, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netstack: Option<NetstackName>,
    /// Its sockets of the internet's families, by descriptor.
    pub sockets: Vec<SocketReport>,
    /// How many sockets of other families it has, which are the kernel's everywhere.
    pub others: u32,
}

/// The filter of a single socket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SocketFilterInfo {
    /// What came to the socket and was let in: who began a connection, datagrams.
    pub passed: u64,
    /// What was not.
    pub blocked: u64,
    /// Its rules, with what each has met.
    pub rules: Vec<RuleInfo>,
}

/// A socket of a process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SocketReport {
    /// The descriptor.
    pub fd: u32,
    /// `firelane` or `kernel`.
    pub path: String,
    /// Why it is the kernel's; of a connection of Firelane's, why its text goes in segments.
    pub why: String,
    /// `tcp`, `udp` or `raw`.
    pub protocol: String,
    /// The state as `netstat` calls it.
    pub state: String,
    /// Its own end, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub local: Option<SocketAddr>,
    /// The peer's end, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote: Option<SocketAddr>,
    /// The lane of its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<u16>,
    /// The flow that its text belongs to, if it is under one that has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Whether its text goes from ring to ring, without segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused: Option<bool>,
    /// The options that were set, as `name` or `name=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Its filter, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<SocketFilterInfo>,
    /// Bytes that the program has sent, of a socket of Firelane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Bytes that were handed to the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// What it cost: segments that came and that left, and those of them that left again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<[u32; 3]>,
}
