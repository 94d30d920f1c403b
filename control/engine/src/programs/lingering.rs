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
use super::shares::{Bounds, Most, Shares, Who};
use super::stream::Stream;
use crate::fabric::Fabric;

/// How many are remembered, of all programs, of one, and of all of one user: who closes more at a time waits for none of those.
const LINGERING_MAX: usize = 4096;
const BOUNDS: Bounds = Bounds {
    program: Most { places: LINGERING_MAX / 4, uses: 1 },
    user: Most { places: LINGERING_MAX / 4 * 3, uses: 1 },
};

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
    who: Who,
    sessions: BTreeSet<u32>,
    lane: LaneId,
    conn: ConnRef,
    /// What went past the lane, and may be unread.
    joined: Option<Joined>,
    until: Instant,
}

/// All of them, by the names that their sockets had.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    all: BTreeMap<SocketId, Closing>,
    shares: Shares<SocketId>,
}

impl Lingering {
    /// `stream`, which had the name `socket` in these sessions and was `who`s, is being closed.
    pub(super) fn add(
        &mut self,
        who: Who,
        socket: SocketId,
        sessions: BTreeSet<u32>,
        stream: &Stream,
        limit: Duration,
    ) {
        // Who has ended does not wait.
        let has_room = !sessions.is_empty() && self.all.len() < LINGERING_MAX;
        let Some(conn) = stream.conn().filter(|_| has_room) else { return };
        // A name comes again.
        self.remove(socket);
        if !self.shares.take(who, &socket, BOUNDS) {
            return;
        }
        let joined = stream.joined().cloned();
        let now = Instant::now();
        // A time beyond the clock's is as good as a year.
        let until = now.checked_add(limit).unwrap_or(now + Duration::from_secs(1 << 25));
        self.all.insert(socket, Closing { who, sessions, lane: stream.lane(), conn, joined, until });
    }

    /// Whether a socket that `session` had is still being closed.
    pub(super) fn is_closing(&mut self, socket: SocketId, session: u32, fabric: &Fabric) -> bool {
        let Some(closing) = self.all.get(&socket).filter(|it| it.sessions.contains(&session)) else {
            return false;
        };
        let goes_on = closing.goes_on(fabric);
        if !goes_on {
            self.remove(socket);
        }
        goes_on
    }

    /// Forgets those whose time is over. Whether there are others.
    pub(super) fn tidy(&mut self) -> bool {
        let now = Instant::now();
        self.retain(|closing| closing.until > now);
        !self.all.is_empty()
    }

    /// Nobody of this session waits any more.
    pub(super) fn forget(&mut self, session: u32) {
        self.retain(|closing| {
            closing.sessions.remove(&session);
            !closing.sessions.is_empty()
        });
    }

    fn retain(&mut self, mut stays: impl FnMut(&mut Closing) -> bool) {
        let Self { all, shares } = self;
        for (socket, gone) in all.extract_if(.., |_, closing| !stays(closing)) {
            shares.give(gone.who, &socket);
        }
    }

    fn remove(&mut self, socket: SocketId) {
        if let Some(gone) = self.all.remove(&socket) {
            self.shares.give(gone.who, &socket);
        }
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
    use crate::programs::Owner;

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

    #[test]
    fn neither_a_program_nor_a_user_takes_all_places() {
        let mut shares = Shares::default();
        let mut taken = |user, pid| {
            let who = Who::of(&Owner { user, pid, ..Owner::default() });
            let names = (0..LINGERING_MAX as u64).map(|n| SocketId(u64::from(pid) << 32 | n));
            names.filter(|name| shares.take(who, name, BOUNDS)).count()
        };
        let of_user: usize = (1..9).map(|pid| taken(1, pid)).sum();
        let of_other = taken(2, 9);
        assert!(of_other >= LINGERING_MAX / 8, "{of_other}");
        assert!(of_user > of_other && of_user + of_other <= LINGERING_MAX, "{of_user}, {of_other}");
    }
}
