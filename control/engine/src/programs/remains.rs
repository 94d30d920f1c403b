//! What the dead have left to be sent: connections that nobody has any more, and whose peers are slow.
//!
//! An arena is address space (64 GiB) and memory, and a program that has ended is to keep neither, however long its last bytes wait for a
//! peer that does not read. So when nobody has an arena, what its connections have left to be sent is copied to memory of the daemon's own,
//! and the arena goes. Each program could leave as much as it was allowed to have; what all programs of a user leave is bounded here, and
//! connections beyond are reset, as Linux does with orphans (tcp_max_orphans, tcp_mem). Owned by `hub.rs`.

use std::collections::BTreeMap;

use firelane_lane::{LaneMessage, SocketCommand};
use firelane_socket::{LeftStream, StreamRef};

use super::arena::ProgramArena;
use crate::fabric::Fabric;

/// What the dead of one user may leave: as much as four thousand streams whose buffers nobody has made larger.
const OF_USER_MAX: u64 = 1 << 30;
/// And those of all users.
const MOST: u64 = 1 << 32;
/// How much is copied at a time: a hundredth of a second's work, in which programs wait for answers.
const AT_ONCE: u64 = 1 << 25;
/// What a connection counts at the least: it has more than its text.
const LEAST: u64 = 4096;
/// So often it is tried to copy what an arena has left. Who changes it all the time, or says what cannot be true, is not what died.
const TRIES: u32 = 8;

/// Streams of an arena that nobody holds any more, as long as their lanes may have them.
#[derive(Debug, Default)]
pub(super) struct Closed {
    streams: Vec<LeftStream>,
    /// How many there were after those that were over had last been taken out.
    kept: usize,
}

impl Closed {
    /// There are at least so many before somebody looks which of them are over.
    const FEW: usize = 64;

    pub(super) fn add(&mut self, stream: LeftStream) {
        // Half of what is looked at has come since the last look, so a stream costs a look or two.
        if self.streams.len() >= 2 * self.kept + Self::FEW {
            self.streams.retain(|it| !it.is_over());
            self.kept = self.streams.len();
        }
        self.streams.push(stream);
    }

    fn take(&mut self) -> Vec<LeftStream> {
        self.kept = 0;
        std::mem::take(&mut self.streams)
    }
}

/// What was copied and is not sent, and whose it is.
#[derive(Debug, Default)]
pub(super) struct Remains {
    /// Whose each arena is that was given out, and how often it was tried to empty it.
    arenas: BTreeMap<u64, (u32, u32)>,
    users: BTreeMap<u32, Left>,
    /// How much may be copied until [`Remains::tidy`].
    budget: u64,
    /// How many connections were reset because they had no room here.
    reset: u64,
}

/// What the dead of a user have left.
#[derive(Debug, Default)]
struct Left {
    streams: Vec<(LeftStream, u64)>,
    bytes: u64,
}

impl Left {
    fn tidy(&mut self) {
        self.streams.retain(|(stream, _)| !stream.is_over());
        self.bytes = self.streams.iter().map(|(_, bytes)| bytes).sum();
    }
}

/// What became of a connection's remains.
enum Became {
    /// It is over, or was moved.
    Done,
    /// There is no time to copy it now, or it has changed meanwhile.
    Later,
    /// There is no room for it.
    Lost,
}

impl Remains {
    /// A user's program has this arena.
    pub(super) fn belongs(&mut self, arena: u64, user: u32) {
        self.arenas.insert(arena, (user, 0));
    }

    /// It is gone.
    pub(super) fn forget(&mut self, arena: u64) {
        self.arenas.remove(&arena);
    }

    /// How many arenas a user's programs have, those among them that are dead and have left something.
    pub(super) fn arenas_of(&self, user: u32) -> usize {
        self.arenas.values().filter(|(its, _)| *its == user).count()
    }

    /// Forgets what was sent. There is time to copy again.
    pub(super) fn tidy(&mut self) {
        self.budget = AT_ONCE;
        self.users.values_mut().for_each(Left::tidy);
        self.users.retain(|_, left| !left.streams.is_empty());
    }

    /// Whether there was no time to copy all.
    pub(super) fn is_behind(&self) -> bool {
        self.budget == 0
    }

    /// How many connections had no room.
    pub(super) fn reset(&self) -> u64 {
        self.reset
    }

    /// Moves what is left in an arena that nobody has any more. Whether that was all.
    pub(super) fn empty(&mut self, fabric: &Fabric, arena: &ProgramArena) -> bool {
        let number = arena.arena().number();
        let (user, tries) = self.arenas.get(&number).copied().unwrap_or_default();
        let (mut left, closed) = (Vec::new(), arena.closed().take());
        let (mut has_failed, gives_up) = (false, tries >= TRIES);
        for stream in closed {
            let became = match stream.hold() {
                None => Became::Done,
                Some(_) if self.budget == 0 => Became::Later,
                Some(held) => {
                    let became = self.move_one(fabric, user, &held);
                    has_failed |= matches!(became, Became::Later);
                    if matches!(became, Became::Later) && gives_up { Became::Lost } else { became }
                }
            };
            match became {
                Became::Done => {}
                Became::Later => left.push(stream),
                Became::Lost => {
                    self.reset += 1;
                    give_up(fabric, &stream);
                    left.push(stream);
                }
            }
        }
        if has_failed {
            self.arenas.insert(number, (user, tries.saturating_add(1)));
        }
        left.retain(|stream| !stream.is_over());
        let is_empty = left.is_empty();
        left.into_iter().for_each(|stream| arena.closed().add(stream));
        is_empty
    }

    fn move_one(&mut self, fabric: &Fabric, user: u32, held: &StreamRef) -> Became {
        let Some(conn) = held.get().conn() else { return Became::Done };
        let Some(packed) = held.pack() else { return Became::Later };
        let bytes = (packed.bytes() as u64).max(LEAST);
        if !self.has_room(user, bytes) {
            return Became::Lost;
        }
        self.budget = self.budget.saturating_sub(bytes);
        let mut packed = Some(packed);
        let moved =
            fabric.visit(held.get().lane(), |_, lane| lane.move_home(conn, packed.take()?).transpose());
        match moved.flatten() {
            Some(Ok(stream)) => {
                let left = self.users.entry(user).or_default();
                left.streams.push((stream, bytes));
                left.bytes += bytes;
                Became::Done
            }
            Some(Err(_)) => Became::Later,
            // The lane has no such connection, or has failed.
            None => Became::Done,
        }
    }

    fn has_room(&self, user: u32, bytes: u64) -> bool {
        let of_user = self.users.get(&user).map_or(0, |left| left.bytes);
        let of_all: u64 = self.users.values().map(|left| left.bytes).sum();
        of_user + bytes <= OF_USER_MAX && of_all + bytes <= MOST
    }
}

/// Resets a connection.
fn give_up(fabric: &Fabric, stream: &LeftStream) {
    let Some(held) = stream.hold() else { return };
    let shared = held.get();
    let Some(conn) = shared.conn() else { return };
    // One that has a FIN to send is asked to be done with that first, and once more to be done in any case.
    for _ in 0..2 {
        let _ = fabric
            .enter_surely(shared.lane(), LaneMessage::Socket(shared.netstack(), SocketCommand::Abort(conn)));
    }
}
