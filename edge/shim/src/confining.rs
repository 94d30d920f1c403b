//! A process that is about to forbid itself system calls or descriptors (seccomp, RLIMIT_NOFILE), as sshd's children do that speak
//! with strangers.
//!
//! What it goes on with is reading, writing, waiting and closing, for which the kernel's sockets would need nothing else. Ours ask
//! the daemon some questions when they are first used in a process, so those are asked now. From then on nothing is called
//! that could be done without: other processes are woken by the daemon, and a closed socket is not kept for the next.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::socket::{self, Kind};
use crate::waiter::Waiter;
use crate::{process, ready, session, table, thread};

static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether calls may be forbidden. A forked child's are, too.
#[inline]
pub(crate) fn is_confined() -> bool {
    IS_CONFINED.load(Ordering::Relaxed)
}

/// Calls are about to be forbidden.
pub(crate) fn begin() {
    prepare();
    IS_CONFINED.store(true, Ordering::Relaxed);
}

/// Asks for all that this process' streams may need. Whatever cannot be had is missed where it is needed.
pub(crate) fn prepare() {
    if !session::is_wanted() || process::is_borrowed() || table::programs().next().is_none() {
        return;
    }
    session::number();
    thread::spinning(|_| ());
    thread::spinning_for_lane(|_| ());
    thread::spinning_beside(|_| ());
    let Ok(mut waiter) = Waiter::take() else { return };
    for fd in table::programs() {
        let Some(word) = table::get(fd).filter(|&word| socket::kind(word) == Kind::Stream) else { continue };
        // Who looks at a fused one maps its segment.
        let _ = ready::of(fd, word);
        let _ = waiter.watch(fd, word);
        waiter.unwatch(word);
    }
}
