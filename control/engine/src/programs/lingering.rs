//! Connections that were closed with SO_LINGER, for whose end their programs wait.
//!
//! Owned by `hub.rs`. close(2) is the program's own affair, and only the daemon knows that it was the last one; so the
//! program closes, and then asks until the peer has acknowledged everything, or as long as it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use firelane_shm::control::SocketId;
use firelane_socket::ConnRef;
use firelane_tcp::State;
use firelane_units::LaneId;

use super::segment::Joined;
use super::stream::Stream;
use crate::fabric::Fabric;

/// How many are remembered: who closes more at a time waits for none of them.
const LINGERING_MAX: usize = 4096;

/// A connection that is being closed.
#[derive(Debug)]
struct Closing {
    sessions: BTreeSet<u32>,
    lane: LaneId,
    conn: ConnRef,
    /// What went past the lane, and may be unread.
    joined: Option<Joined>,
    until: Instant,
}

/// All of them, by the names that their sockets had.
#[derive(Debug, Default)]
pub(super) struct Lingering(BTreeMap<SocketId, Closing>);

impl Lingering {
    /// `stream`, which had the name `socket` in these sessions, is being closed.
    pub(super) fn add(
        &mut self,
        socket: SocketId,
        sessions: BTreeSet<u32>,
        stream: &Stream,
        limit: Duration,
    ) {
        // Who has ended does not wait.
        let has_room = !sessions.is_empty() && self.0.len() < LINGERING_MAX;
        let Some(conn) = stream.conn().filter(|_| has_room) else { return };
        let joined = stream.joined().cloned();
        let now = Instant::now();
        // A time beyond the clock's is as good as a year.
        let until = now.checked_add(limit).unwrap_or(now + Duration::from_secs(1 << 25));
        self.0.insert(socket, Closing { sessions, lane: stream.lane(), conn, joined, until });
    }

    /// Whether a socket that `session` had is still being closed.
    pub(super) fn is_closing(&mut self, socket: SocketId, session: u32, fabric: &Fabric) -> bool {
        let Some(closing) = self.0.get(&socket).filter(|it| it.sessions.contains(&session)) else {
            return false;
        };
        let goes_on = closing.goes_on(fabric);
        if !goes_on {
            self.0.remove(&socket);
        }
        goes_on
    }

    /// Forgets those whose time is over. Whether there are others.
    pub(super) fn tidy(&mut self) -> bool {
        let now = Instant::now();
        self.0.retain(|_, closing| closing.until > now);
        !self.0.is_empty()
    }

    /// Nobody of this session waits any more.
    pub(super) fn forget(&mut self, session: u32) {
        self.0.retain(|_, closing| {
            closing.sessions.remove(&session);
            !closing.sessions.is_empty()
        });
    }
}

impl Closing {
    /// Whether text or the FIN is not acknowledged. Before the lane has closed it, it is as it was.
    fn goes_on(&self, fabric: &Fabric) -> bool {
        let state = fabric.stream_info(self.lane, self.conn).map(|info| info.tcp.state);
        let is_unread = || self.joined.as_ref().is_some_and(|joined| joined.unacknowledged() > 0);
        state.is_ok_and(|state| state.may_send_text() || state == State::FinWait2 && is_unread())
    }
}
