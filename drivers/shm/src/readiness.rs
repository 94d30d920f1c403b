//! What poll(2) says of a stream, and how who waits for an edge knows that there was one.
//!
//! Asked by the program's side whenever it waits. An edge is judged by a number made of all that the answer depends on
//! ([`StreamEnd::progress`]): lane and peer change it, and so does a write that finds no room.

use crate::joint::Beside;
use crate::layout::{REFUSALS, file, margin, request, status};
use crate::stream::{Storage, StreamEnd};
use crate::sync::Ordering;

/// What poll(2) would say, in its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness(pub u32);

impl Readiness {
    /// POLLIN: bytes, or the end of the stream.
    pub const READABLE: u32 = 0x1;
    /// POLLPRI: urgent text.
    pub const URGENT: u32 = 0x2;
    /// POLLOUT: room to write, or the end of connecting.
    pub const WRITABLE: u32 = 0x4;
    /// POLLERR: it failed.
    pub const ERROR: u32 = 0x8;
    /// POLLHUP: it is closed in both directions.
    pub const HANGUP: u32 = 0x10;
    /// POLLRDHUP: the peer sends no more.
    pub const PEER_CLOSED: u32 = 0x2000;

    /// Whether any bit of `events` is there.
    pub const fn has(self, events: u32) -> bool {
        self.0 & events != 0
    }
}

// What a stream's words lie in is known to the crate alone.
#[allow(private_bounds)]
impl<M: Storage> StreamEnd<'_, M> {
    /// What poll(2) says. Writable is [`is_roomy`], as in Linux, so that writes are not crumbs.
    pub fn readiness(&self) -> Readiness {
        self.readiness_of(Readiness::READABLE | Readiness::WRITABLE)
    }

    /// The same as far as `events` go, and what comes unasked. What is not asked for is left in the peer's cache.
    #[inline]
    pub(crate) fn readiness_of(&self, events: u32) -> Readiness {
        let status = self.status();
        let mut ready = 0;
        let mut add = |when: bool, bits: u32| ready |= if when { bits } else { 0 };
        // As in Linux, an error alone is nothing to read: a stream that stands may have one (IP_RECVERR).
        let has_failed = status >> status::ERROR_SHIFT != 0 || status & status::FAULTS != 0;
        add(has_failed, Readiness::ERROR);
        add(has_failed && self.shows_errors_urgently(status), Readiness::URGENT);
        let closed = self.is_closed(status);
        add(closed, Readiness::HANGUP | Readiness::READABLE | Readiness::WRITABLE);
        let ended = closed || status & status::READ_CLOSED != 0 || self.peer_has_ended(status);
        add(ended, Readiness::PEER_CLOSED | Readiness::READABLE);
        add(status & status::WRITE_CLOSED != 0, Readiness::WRITABLE);
        add(status & status::WRITE_CLOSED != 0 && ended, Readiness::HANGUP);
        add(events & Readiness::READABLE != 0 && self.available() > 0, Readiness::READABLE);
        add(self.has_urgent(), Readiness::URGENT);
        if events & Readiness::WRITABLE != 0 && status & status::CONNECTED != 0 {
            let (room, unread) = self.room_and_unread();
            add(is_roomy(room as u64, unread as u64) && self.unsent_room() > 0, Readiness::WRITABLE);
        } else if status == 0 && self.is_deferred() {
            // Its program is to write, for that begins the connection.
            add(true, Readiness::WRITABLE);
        }
        Readiness(ready)
    }

    /// Whether its program waits for errors as for urgent text (SO_SELECT_ERR_QUEUE), which a stream's cannot.
    fn shows_errors_urgently(&self, status: u64) -> bool {
        status & status::DATAGRAMS != 0 && self.block.file.load(Ordering::Relaxed) & file::ERRORS_URGENT != 0
    }

    /// A write found no room, and whoever wrote waits for some. He looks once more after this.
    pub fn note_refusal(&self) {
        self.block.file.fetch_add(REFUSALS, Ordering::SeqCst);
    }

    /// A number that is another whenever lane or peer have changed what `StreamEnd::readiness_of` looks at for `events`, or a
    /// write was refused since: what the program has done and the lane has undone leaves everything else as it was.
    ///
    /// As in Linux, where a wake-up names its events, room to write is no news for who waits for text alone: lanes give and
    /// take a ring's storage as they like.
    pub fn progress(&self, events: u32) -> u64 {
        let rings = self.rings();
        let status = self.status();
        let end = if self.peer_has_ended(status) { status::PEER_CLOSED } else { 0 };
        let waits = u64::from(self.awaits_parting());
        let mark = rings.margin[margin::MARK].load(Ordering::Acquire);
        let unasked = [status & !status::ACCEPTED | end, mark, waits];
        let mixed = unasked.into_iter().fold(0, mix);
        let mixed = if events & Readiness::READABLE == 0 {
            mixed
        } else {
            let beside = self.beside.as_ref().map_or(0, Beside::written_there);
            // Who says that less is enough is told of what is there.
            let least = u64::from(self.block.low_water[0].load(Ordering::Relaxed));
            [rings.two.tail.load(Ordering::Acquire), beside, least].into_iter().fold(mixed, mix)
        };
        if events & Readiness::WRITABLE == 0 {
            return mixed;
        }
        let own = [
            self.block.file.load(Ordering::SeqCst) / REFUSALS,
            rings.two.head.load(Ordering::Acquire),
            self.own_room() as u64,
            self.block.requests.load(Ordering::Acquire) & request::FULL,
        ];
        let beside = self.beside.as_ref().map_or([0; 3], Beside::room_there);
        own.into_iter().chain(beside).fold(mixed, mix)
    }
}

/// Fibonacci hashing, one word after the other.
const fn mix(mixed: u64, word: u64) -> u64 {
    (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Whether a send ring is writable as poll(2) means it: a third of it is free.
pub const fn is_roomy(room: u64, unacknowledged: u64) -> bool {
    room > 0 && 2 * room >= unacknowledged
}
