//! Programs' sockets as they are shown: all of them in one line each (`netstat`), and one process' with what explains them
//! (`firelane explain`).
//!
//! Called by `hub.rs`; what is shown is a copy.

use std::net::SocketAddr;

use firelane_filter::FilterCounts;
use firelane_lane::{DatagramInfo, DatagramKind, StreamInfo};
use firelane_units::{FilterRule, LaneId, LinkId, NetstackId};

use super::Owner;
use super::asked::Asked;
use super::socket::{Role, Socket};
use super::stream::Stream;

/// A program's socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramSocket {
    /// Whose it is.
    pub owner: Owner,
    /// Its netstack.
    pub netstack: NetstackId,
    /// Its own address.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub remote: Option<SocketAddr>,
    /// Whether it listens.
    pub is_listening: bool,
    /// Whether it is a datagram socket.
    pub is_datagram: bool,
    /// Whether its datagrams are echoes of ICMP.
    pub is_echo: bool,
    /// The lane of its connection.
    pub lane: Option<LaneId>,
    /// Bytes that the program has sent and received.
    pub carried: [u64; 2],
    /// Of these, what came and went past the lane, if it ever could.
    pub fused: Option<[u64; 2]>,
}

/// The same with what explains it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExplainedSocket {
    /// The inode of the program's descriptor.
    pub inode: u64,
    /// Whether nobody has asked for anything with it: it was made ahead, and the program may not have it yet.
    pub is_ahead: bool,
    /// The socket.
    pub socket: ProgramSocket,
    /// The options that were set, as `name` or `name=value`.
    pub options: Vec<String>,
    /// What its lane knows of its connection.
    pub info: Option<StreamInfo>,
    /// Of datagrams: what it knows of their way out.
    pub datagrams: Option<DatagramInfo>,
    /// The rules of its filter, if it has one, and what that has counted.
    pub filter: Option<(Vec<FilterRule<LinkId>>, FilterCounts)>,
}

impl Socket {
    pub(super) fn summary(&self) -> ProgramSocket {
        let [local, remote] = self.names();
        let (lane, carried) = match &self.role {
            Role::Stream(stream, _) => (Some(stream.lane()), stream.carried()),
            Role::Datagrams(Some(made), _) => (Some(made.lane()), made.carried()),
            _ => (None, [0; 2]),
        };
        ProgramSocket {
            owner: Owner::clone(&self.owner),
            netstack: self.stack.id(),
            local,
            remote,
            is_listening: matches!(self.role, Role::Listening(..)),
            is_datagram: matches!(self.role, Role::Datagrams(..)),
            is_echo: matches!(&self.role, Role::Datagrams(_, options) if options.kind == DatagramKind::Echo),
            lane,
            carried,
            fused: self.stream().and_then(Stream::fused),
        }
    }
}

impl ExplainedSocket {
    pub(super) fn new(inode: u64, socket: &Socket) -> Self {
        let asked =
            socket.stream().map(|stream| Asked::about(&socket.stack.inner.fabric, stream, &socket.arena));
        let shown = socket.summary();
        Self {
            inode,
            is_ahead: socket.is_ahead,
            options: match &socket.role {
                Role::Datagrams(made, options) => {
                    options.spelled(made.as_ref().map_or(0, |made| made.lost_faults()))
                }
                _ => socket.options.spelled(socket.bits()),
            },
            info: asked.and_then(|asked| asked.info().ok()).filter(|info| !info.has_ended()),
            datagrams: match &socket.role {
                Role::Datagrams(Some(made), _) => made.info(&socket.stack.inner.fabric),
                _ => None,
            },
            filter: socket.filter().map(|(filter, counts)| (filter.rules().cloned().collect(), counts)),
            socket: shown,
        }
    }
}
