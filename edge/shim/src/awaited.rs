//! What a call waits for at a stream. Below what it asks for, bytes that are there are nothing to wake up for: a wait that ended with them would
//! begin anew at once, and turn. Used by `stream.rs` and `poll.rs`; the same by poll's rule by `ready.rs`.

use std::sync::atomic::Ordering;

use firelane_shm::layout::status;
use firelane_shm::{Readiness, StreamEnd};

/// Nothing more comes, or an error is told.
const ENDED: u32 = Readiness::PEER_CLOSED | Readiness::ERROR | Readiness::HANGUP;

/// The least of a ring that is to be half full, if it has no size as yet (SO_RCVLOWAT).
const HALF: u32 = 32 << 10;

/// What is waited for. Errors and hang-ups end every wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// Room to write.
    Room,
    /// So many bytes that one read can give, or those before a mark.
    Bytes(usize),
    /// Whatever of these events poll(2) would tell of.
    Events(u32),
}

impl Awaited {
    /// The events of which one is needed.
    pub(crate) const fn events(self) -> u32 {
        match self {
            Self::Room => Readiness::WRITABLE,
            Self::Bytes(_) => Readiness::READABLE,
            Self::Events(events) => events,
        }
    }

    /// Whether it is there, where a look found `ready`.
    #[inline]
    pub(crate) fn is_there(self, end: &StreamEnd<'_>, ready: Readiness) -> bool {
        let ready = if matches!(self, Self::Events(_)) { told(end, ready) } else { ready };
        let has_one = ready.has(self.events() | Readiness::ERROR | Readiness::HANGUP);
        has_one
            && match self {
                Self::Room | Self::Bytes(..=1) => true,
                Self::Bytes(least) => !lacks_bytes(end, ready, least),
                Self::Events(events) => {
                    let others = ready.0 & !Readiness::READABLE;
                    Readiness(others).has(events) || !lacks_some(end, ready)
                }
            }
    }
}

/// What poll(2) tells of what is ready. A datagram socket that the daemon has ended is told of by its error, once, for in Linux none hangs
/// up and servers know no end of theirs; each call says what is the matter.
pub(crate) fn told(end: &StreamEnd<'_>, ready: Readiness) -> Readiness {
    const ALL: u64 = status::DATAGRAMS | status::CLOSED | status::READ_CLOSED;
    if end.status() & ALL != status::DATAGRAMS | status::CLOSED {
        return ready;
    }
    let quiet = Readiness::HANGUP | Readiness::PEER_CLOSED;
    let empty = if end.first_record().is_none() { Readiness::READABLE } else { 0 };
    Readiness(ready.0 & !(quiet | empty))
}

/// Whether fewer bytes are there than one read is to give at least, and more may come.
pub(crate) fn lacks_bytes(end: &StreamEnd<'_>, ready: Readiness, least: usize) -> bool {
    !ready.has(ENDED) && end.available() < least && !end.ends_at_mark()
}

/// Whether less is there than is worth telling of (SO_RCVLOWAT, half of the buffer at most), and more may come.
pub(crate) fn lacks_some(end: &StreamEnd<'_>, ready: Readiness) -> bool {
    let block = end.block();
    let least = block.low_water[0].load(Ordering::Relaxed);
    if least <= 1 || ready.has(ENDED) {
        return false;
    }
    let most = match block.capacity[1].load(Ordering::Relaxed) / 2 {
        0 => HALF,
        half => half,
    };
    end.unread_in_all() < least.min(most) as usize
}
