//! SO_LINGER: what a program says by it, and connections that were closed with it, for whose end their programs wait.
//!
//! Owned by `hub.rs`. close(2) is the program's own affair, and only the daemon knows that it was the last one; so the
//! program closes, and then asks until the peer has acknowledged everything, or as long as it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use firelane_shm::control::SocketId;
use firelane_socket::ConnRef;
use firelane_tcp::State;
use firelane_units::LaneId;
use rustix::io::Errno;

use super::segment::Joined;
use super::stream::Stream;
use crate::fabric::Fabric;

/// How many are remembered: who closes more at a time waits for none of them.
const LINGERING_MAX: usize = 4096;

/// SO_LINGER, as a program has said it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Linger {
    is_on: bool,
    /// Kept while it is off.
    seconds: u32,
}

impl Linger {
    /// setsockopt(2) with a `struct linger`.
    pub(super) fn set(&mut self, value: &[u8]) -> Result<(), Errno> {
        let word = |at: usize| value.get(at..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        let (on, seconds) = word(0).zip(word(4)).ok_or(Errno::INVAL)?;
        self.is_on = on != 0;
        if self.is_on {
            // As in Linux, less than none is for ever.
            self.seconds = u32::try_from(seconds).unwrap_or(i32::MAX.unsigned_abs());
        }
        Ok(())
    }

    /// getsockopt(2): all of the structure.
    pub(super) fn shown(self) -> Vec<u8> {
        let words = [i32::from(self.is_on), self.seconds.cast_signed()];
        words.into_iter().flat_map(i32::to_ne_bytes).collect()
    }

    /// How many seconds close(2) waits, if it is on; zero resets.
    pub(super) fn seconds(self) -> Option<u32> {
        self.is_on.then_some(self.seconds)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(on: i32, seconds: i32) -> Vec<u8> {
        [on, seconds].into_iter().flat_map(i32::to_ne_bytes).collect()
    }

    #[test]
    fn what_is_off_keeps_its_seconds_and_less_than_none_is_for_ever() {
        let mut linger = Linger::default();
        for (on, seconds, shown, waits) in [
            (0, 9, words(0, 0), None),
            (1, 0, words(1, 0), Some(0)),
            (-3, 5, words(1, 5), Some(5)),
            (0, 9, words(0, 5), None),
            (1, -1, words(1, i32::MAX), Some(i32::MAX.unsigned_abs())),
        ] {
            linger.set(&words(on, seconds)).unwrap();
            assert_eq!((linger.shown(), linger.seconds()), (shown, waits), "{on} {seconds}");
        }
        assert_eq!(linger.set(&words(0, 0)[..7]), Err(Errno::INVAL));
    }
}
