//! What is known of a datagram socket's way out: `firelane explain` asks for it.
//!
//! A value that [`Lane::datagram_info`](crate::Lane::datagram_info) makes for whoever visits the lane; nothing here is on the path of a
//! frame.

use core::net::IpAddr;

use firelane_units::FlowId;

use crate::stream_info::LimitedBy;

/// What is known of what a socket sends, by the way of what it has sent last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DatagramInfo {
    /// The flow that it is in.
    pub flow: Option<FlowId>,
    /// Whose limit is the tightest on it, if any has a say.
    pub limited: Option<LimitedBy>,
    /// What its first record waits for, if there is one that waits.
    pub waits: Option<WaitsFor>,
}

/// What a socket's first record waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// The limit.
    Limit,
    /// Its own pace (SO_MAX_PACING_RATE).
    Pace,
    /// The Ethernet address of its next hop.
    NextHop(IpAddr),
}
