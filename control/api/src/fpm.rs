//! The routing daemons of netstacks: whether one is connected, and what was counted of what it says.

use firelane_model::NetstackName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The routing daemon of a netstack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FpmInfo {
    /// Whose.
    #[schema(value_type = String)]
    pub netstack: NetstackName,
    /// Where it is listened for.
    pub listen: String,
    /// In which network namespace of the configuration, if not the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `connected`, `listening`, or `failed` if it cannot be listened for any more.
    pub state: String,
    /// Who is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Why the last session ended, if it did not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Connections so far.
    pub sessions: u64,
    /// Connections that came while another was there, and were turned away.
    pub turned_away: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Messages that were read, the refused among them.
    pub messages: u64,
    /// Routes that are known.
    pub routes: usize,
    /// Those of them that nobody has confirmed since the session that told them ended.
    pub stale: usize,
    /// Those of them that have no way out at present.
    pub unresolved: usize,
    /// Ways that the netstack has been given for them.
    pub installed: usize,
    /// Next hops that are known.
    pub next_hops: usize,
    /// Routes that were removed because nobody confirmed them.
    pub swept: u64,
    /// What was refused, by reason.
    pub refused: Vec<RefusedInfo>,
}

/// Messages that were refused for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusedInfo {
    /// Why.
    pub reason: String,
    /// How many.
    pub messages: u64,
}
