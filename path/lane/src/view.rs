//! What a lane tells of its sockets: a question that goes round, and what stands in its answer.
//!
//! A lane may have a million connections, and nobody who looks at them may stop it. So a question is an item of the
//! squeue like any other; the lane looks at no more than [`PLACES_PER_ANSWER`] places for it, writes what it finds into
//! storage that the asker brought, notes where it stopped, and gives the question back through its outlet. The asker
//! sends it again to go on. What begins or ends in between may be seen or not; what stays is seen exactly once.

use core::net::SocketAddr;
use core::time::Duration;

use firelane_tcp::Info;
use firelane_units::{NetstackId, SeqNum};

/// The places that one answer looks at: a cache miss or two each, so a few tens of microseconds.
pub const PLACES_PER_ANSWER: u32 = 128;

/// A question about a lane's sockets, and then its answer.
#[derive(Clone, Debug)]
pub struct Question {
    /// Whose question it is; the lane gives it back as it is.
    pub ticket: u64,
    /// Of which netstack; of all if none is named.
    pub netstack: Option<NetstackId>,
    /// Where to go on; where the lane stopped, or `None` when there is nothing more.
    pub cursor: Option<Cursor>,
    /// What was found. The lane writes no more than there is room for.
    pub rows: Vec<SocketRow>,
}

impl Question {
    /// A question that begins at `cursor`.
    pub fn new(ticket: u64, netstack: Option<NetstackId>, cursor: Cursor) -> Self {
        let rows = Vec::with_capacity(PLACES_PER_ANSWER as usize);
        Self { ticket, netstack, cursor: Some(cursor), rows }
    }
}

/// A place in a lane's tables, in the order in which they are looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Cursor {
    /// Which table.
    pub table: Table,
    /// Of which netstack; connections of all netstacks share one table.
    pub netstack: u16,
    /// The place in it.
    pub place: u32,
}

/// A lane's tables of sockets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Table {
    /// Listeners, which the netstack's home lane tells for all.
    #[default]
    Listeners,
    /// Connections.
    Connections,
    /// Records in TIME-WAIT.
    TimeWait,
    /// Datagram sockets.
    Datagrams,
}

impl Table {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Listeners, Self::Connections, Self::TimeWait, Self::Datagrams];

    /// The table after this one.
    pub(crate) const fn next(self) -> Option<Self> {
        match self {
            Self::Listeners => Some(Self::Connections),
            Self::Connections => Some(Self::TimeWait),
            Self::TimeWait => Some(Self::Datagrams),
            Self::Datagrams => None,
        }
    }
}

/// One socket, or what is left of it.
#[derive(Clone, Debug)]
pub struct SocketRow {
    /// Whose it is.
    pub netstack: NetstackId,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's, if it has one.
    pub remote: Option<SocketAddr>,
    /// What it is.
    pub what: SocketKind,
}

/// What a row is about.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // Most rows are connections, and a box each would be an allocation each.
pub enum SocketKind {
    /// A listener.
    Listener {
        /// Connections that nobody has accepted.
        waiting: usize,
        /// How many may wait.
        backlog: usize,
    },
    /// A connection.
    Connection(ConnectionRow),
    /// A connection that closed first: its ports rest.
    TimeWait {
        /// For so long.
        left: Duration,
    },
    /// A datagram socket.
    Datagram,
}

/// A connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionRow {
    /// What TCP knows of it.
    pub info: Info,
    /// The next number that we send, the oldest that the peer has not acknowledged, the next that we expect, and the
    /// last that we acknowledged.
    pub sequence: [SeqNum; 4],
    /// Bytes in the send ring: written and not acknowledged.
    pub send_queue: usize,
    /// Bytes in the receive ring: arrived and not read.
    pub receive_queue: usize,
    /// Its text does not go in segments.
    pub is_fused: bool,
}
