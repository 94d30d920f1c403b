//! What is known of a connection and its socket: what `getsockopt(TCP_INFO)`, `netstat` and `connstat` ask for.
//!
//! A value that [`Lane::stream_info`](crate::Lane::stream_info) makes for whoever visits the lane; nothing here is on
//! the path of a frame.

use core::net::SocketAddr;

use firelane_tcp::{Info, State, Surroundings, TCP_INFO_LEN};
use firelane_units::{Bytes, FlowId, LinkId, Mtu};

/// A connection, its rings and its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamInfo {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Its text does not go in segments: the peer reads the send ring.
    pub is_fused: bool,
    /// What keeps it from that, if it is known.
    pub unfused: Option<Unfused>,
    /// Whose limit is the tightest on what it sends, if any has a say.
    pub limited: Option<LimitedBy>,
    /// The flow that its text belongs to, if it has sent any lately.
    pub flow: Option<FlowId>,
    /// What TCP knows.
    pub tcp: Info,
    /// Text that the program wrote and that was never sent.
    pub unsent: Bytes,
    /// Text that the program has yet to read.
    pub unread: Bytes,
    /// The receive ring's size (SO_RCVBUF).
    pub receive_buffer: Bytes,
}

/// Why a connection is not fused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfused {
    /// The netstack's property `_fusion` is off.
    Property,
    /// The property `fusion` of a VNIC, or of the link below it.
    Link(LinkId),
    /// The property of a flow.
    Flow(FlowId),
    /// Somebody looks on at a VNIC or a flow of one of its ends.
    Captured,
    /// Its peer is of no netstack that is near: on the same switch, with its sockets in the same lane.
    Away,
    /// Its peer is of another netstack on the same switch, and not both say that they fuse with others.
    Apart,
    /// Its peer is of another netstack, and one of the two filters or translates packets.
    Filtered,
    /// Its program wants to know how many hops segments took (IP_MINTTL).
    Hops,
    /// Its program says how long text may stay unacknowledged (TCP_USER_TIMEOUT), and is another process, as its peer's: past the lane
    /// there are no clocks.
    Patience,
    /// Its program, another process, is signalled for what happens (O_ASYNC).
    Signalled,
}

/// Whose limit holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitedBy {
    /// That of a VNIC, or of the link below it.
    Link(LinkId),
    /// That of a flow.
    Flow(FlowId),
}

impl StreamInfo {
    /// The largest packet that the path takes, as far as we know.
    pub fn path_mtu(&self) -> Mtu {
        let headers = if self.remote.is_ipv4() { 20 + 20 } else { 40 + 20 };
        Mtu::new(self.tcp.path_mss.bytes().saturating_add(headers)).unwrap_or(Mtu::ETHERNET)
    }

    /// Whether the connection is over, and this is what was known at its end.
    pub fn has_ended(&self) -> bool {
        self.tcp.state == State::Closed
    }

    /// Linux' `struct tcp_info`, up to and with `tcpi_accecn_opt_seen`.
    pub fn tcp_info(&self) -> [u8; TCP_INFO_LEN] {
        let Self { unsent, receive_buffer, .. } = *self;
        self.tcp.tcp_info(&Surroundings { path_mtu: self.path_mtu(), unsent, receive_buffer })
    }
}
