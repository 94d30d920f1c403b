//! close(2) with SO_LINGER: waits until the peer has acknowledged what was written and the FIN, or the time is over.
//!
//! Only the daemon sees whether it was the last descriptor anywhere, and how far the connection is: it is asked after the
//! kernel's close, at growing intervals. As in Linux O_NONBLOCK does not matter, a signal ends the wait, and the close
//! has succeeded whatever becomes of the connection. A thread that is cancelled ends there.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;

use firelane_shm::control::SocketId;
use firelane_shm::layout::LINGERS;
use rustix::io::Errno;

use crate::socket::{self, Held, Kind};
use crate::sys::Signals;
use crate::table::{self, Word};
use crate::wait::Deadline;
use crate::{arenas, cancelling, descriptors, options, session, sys};

/// How long the first pause is, and the longest: a round trip of a near peer, and what nobody notices.
const PAUSES: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(10)];

/// A close that waits.
pub(crate) struct Lingering {
    fd: c_int,
    socket: SocketId,
    limit: Duration,
}

/// Whether closing `fd` waits, as far as this process knows.
pub(crate) fn of(fd: c_int, word: Word) -> Option<Lingering> {
    if socket::kind(word) != Kind::Stream || socket::is_datagram(word) || socket::is_dead(word) {
        return None;
    }
    // The stream's words alone: closing it is no reason to be found by the program with which it may be fused.
    let block = arenas::get(socket::arena(word))?.block(socket::number(word))?;
    if block.file.load(Ordering::Relaxed) & LINGERS == 0 {
        return None;
    }
    let held = Held { fd, word };
    let has_copy =
        socket::is_shared(word) && table::programs().any(|it| it != fd && table::get(it) == Some(word));
    let limit = options::linger(&held).ok().flatten().filter(|_| !has_copy)?;
    let socket = SocketId(rustix::fs::fstat(sys::borrow(fd)).ok()?.st_ino);
    Some(Lingering { fd, socket, limit })
}

impl Lingering {
    /// Closes, and waits.
    ///
    /// # Errors
    /// EINTR: the calling thread is to be cancelled, and it is closed.
    pub(crate) fn close(self) -> Result<c_int, Errno> {
        descriptors::forget(self.fd..=self.fd);
        sys::close(self.fd);
        self.wait();
        if cancelling::is_wanted() { Err(Errno::INTR) } else { Ok(0) }
    }

    /// Waits for what was closed.
    pub(crate) fn wait(self) {
        // One that comes while the daemon is asked ends the wait, too.
        let signals = Signals::hold_back();
        let deadline = Deadline::after(self.limit);
        let [mut pause, longest] = PAUSES;
        while session::is_closing(self.socket) && !deadline.has_passed() {
            if !cancelling::sleeping(false, || signals.pause(pause.min(deadline.left()))) {
                break;
            }
            pause = (2 * pause).min(longest);
        }
    }
}
