//! Whose a descriptor is that has come from elsewhere: of this session's daemon, of another one, or of nobody who is of interest here. The kernel says
//! which process and user have made the other end. Owned by `session.rs`.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::begun;
use crate::{process, sys};

/// The daemon's process and user ([`peer`]); at first nobody's.
static DAEMON: AtomicU64 = AtomicU64::new(u64::MAX);

/// The daemon is whoever has made the other end of this.
pub(super) fn is_behind(control: BorrowedFd<'_>) -> Result<(), Errno> {
    DAEMON.store(peer(control)?, Ordering::Relaxed);
    Ok(())
}

/// Whether the peer of a socket pair is the daemon, so that the descriptor may be one of its sockets. In a PID namespace that does not see the
/// daemon every process outside looks like it, but for its user.
pub(crate) fn is_of_daemon(fd: c_int) -> bool {
    drop(begun());
    let daemon = DAEMON.load(Ordering::Relaxed);
    // Its user has another number in another user namespace, and its process says enough.
    let is_it = |who| if sees_daemon() { who >> USER_BITS == daemon >> USER_BITS } else { who == daemon };
    peer(sys::borrow(fd)).is_ok_and(is_it)
}

/// Whether the other end of a descriptor was made by the daemon of this session, and not by one before it, as far as can be told: in a PID
/// namespace that does not see it they look alike.
pub(crate) fn is_of_sessions_daemon(fd: c_int) -> bool {
    process::has_session() && sees_daemon() && is_of_daemon(fd)
}

/// Whether this process' user may not come to the daemon, and what lies behind `fd` is a daemon's all the same: somebody who may has given
/// it away.
pub(crate) fn is_forbidden(fd: c_int) -> bool {
    matches!(begun().err(), Some(Errno::ACCESS | Errno::PERM)) && is_of_a_daemon(fd)
}

/// Whether who has made the other end of a socket is called like the daemon, for who does not know the daemon itself.
pub(crate) fn is_of_a_daemon(fd: c_int) -> bool {
    let named = |process: libc::pid_t| std::fs::read(format!("/proc/{process}/comm"));
    sys::peer(sys::borrow(fd))
        .is_ok_and(|(process, _)| named(process).is_ok_and(|name| name == b"firelaned\n"))
}

/// Whether the daemon has a number in the PID namespace of this process, so that nobody else is taken for it.
pub(crate) fn sees_daemon() -> bool {
    DAEMON.load(Ordering::Relaxed) >> USER_BITS != 0
}

const USER_BITS: u32 = libc::uid_t::BITS;

/// The process that has made the other end, and its user, in one word.
fn peer(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let (process, user) = sys::peer(fd)?;
    Ok(u64::from(process.cast_unsigned()) << USER_BITS | u64::from(user))
}
