//! What `poll` says of each kind of descriptor that is ours, in its bits, which are epoll's too.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use firelane_shm::Readiness;
use firelane_shm::layout::file;

use crate::awaited::{lacks_some, told};
use crate::socket::{self, Kind};
use crate::stream::Stream;
use crate::table::Word;
use crate::{accept_queue, epoll, waiter};

/// All that happens to a socket whose daemon is gone.
const DEAD: u32 =
    Readiness::READABLE | Readiness::WRITABLE | Readiness::ERROR | Readiness::HANGUP | Readiness::PEER_CLOSED;

/// Another name of POLLIN.
const ALSO_READABLE: u32 = libc::POLLRDNORM as u32;

/// Other names of POLLOUT. Of a stream Linux never says that urgent data may be sent.
fn also_writable(word: Word) -> u32 {
    let names =
        if socket::is_datagram(word) { libc::POLLWRNORM | libc::POLLWRBAND } else { libc::POLLWRNORM };
    names as u32
}

/// What is ready. The kernel tells of a listener's connections, too, those that come by messages.
#[inline]
pub(crate) fn of(fd: c_int, word: Word) -> u32 {
    let ready = bare(fd, word);
    let also = |bit, name| if ready & bit != 0 { name } else { 0 };
    ready | also(Readiness::READABLE, ALSO_READABLE) | also(Readiness::WRITABLE, also_writable(word))
}

/// What is asked of a socket by any name.
pub(crate) fn wanted(word: Word, events: u32) -> u32 {
    let also = |name, bit| if events & name != 0 { bit } else { 0 };
    events | also(ALSO_READABLE, Readiness::READABLE) | also(also_writable(word), Readiness::WRITABLE)
}

/// A number that is another whenever something has happened to a stream that [`of`] may tell of; zero if that is not known.
pub(crate) fn progress(fd: c_int, word: Word, events: u32) -> u64 {
    if socket::is_dead(word) {
        return 0;
    }
    let stream = Stream::new(fd, socket::arena(word), socket::number(word));
    stream
        .filter(|_| socket::kind(word) == Kind::Stream)
        .map_or(0, |stream| stream.end().progress(wanted(word, events)))
}

/// Connections end. Who has a datagram socket is told until a call has said so.
fn dead(word: Word) -> u32 {
    let Some(end) = waiter::end_of(word).filter(|_| socket::is_datagram(word)) else { return DEAD };
    let is_told = end.block().file.load(Ordering::Relaxed) & file::OVER != 0;
    match (is_told, end.first_record().is_some()) {
        (false, _) => DEAD,
        (true, true) => Readiness::READABLE,
        (true, false) => 0,
    }
}

fn bare(fd: c_int, word: Word) -> u32 {
    match socket::kind(word) {
        Kind::Stream if socket::is_dead(word) => dead(word),
        Kind::Stream => Stream::new(fd, socket::arena(word), socket::number(word)).map_or(DEAD, |stream| {
            let ready = told(&stream.end(), stream.poll());
            let lacks_some = !socket::is_datagram(word) && lacks_some(&stream.end(), ready);
            if lacks_some { ready.0 & !Readiness::READABLE } else { ready.0 }
        }),
        Kind::Fresh if socket::is_dead(word) => DEAD,
        Kind::Fresh if socket::is_datagram(word) => Readiness::WRITABLE,
        Kind::Fresh if socket::is_given_up(word) => {
            Readiness::WRITABLE | Readiness::HANGUP | Readiness::ERROR
        }
        Kind::Fresh => Readiness::WRITABLE | Readiness::HANGUP,
        Kind::Epoll if epoll::is_ready(word) => Readiness::READABLE,
        Kind::Listener if accept_queue::has_some(word) => Readiness::READABLE,
        Kind::Epoll | Kind::Listener | Kind::Ended | Kind::Private => 0,
    }
}
