//! What `poll` says of each kind of descriptor that is ours, in its bits, which are epoll's too.

use core::ffi::c_int;

use firelane_shm::Readiness;

use crate::socket::{self, Kind};
use crate::stream::Stream;
use crate::table::Word;
use crate::{epoll, session};

/// All that happens to a socket whose daemon is gone.
const DEAD: u32 =
    Readiness::READABLE | Readiness::WRITABLE | Readiness::ERROR | Readiness::HANGUP | Readiness::PEER_CLOSED;

/// What is ready. A listener's connections are the kernel's to tell.
#[inline]
pub(crate) fn of(fd: c_int, word: Word) -> u32 {
    match socket::kind(word) {
        Kind::Stream if session::is_dead() => DEAD,
        Kind::Stream => {
            Stream::new(fd, socket::arena(word), socket::number(word)).map_or(DEAD, |stream| stream.poll().0)
        }
        Kind::Fresh if socket::is_datagram(word) => Readiness::WRITABLE,
        Kind::Fresh => Readiness::WRITABLE | Readiness::HANGUP,
        Kind::Epoll if epoll::is_ready(word) => Readiness::READABLE,
        Kind::Epoll | Kind::Listener | Kind::Ended | Kind::Private => 0,
    }
}
