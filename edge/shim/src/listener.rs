//! `accept`: connections come over the listener's own descriptor, as messages with a descriptor beside them.
//!
//! So waiting, O_NONBLOCK, signals, several processes at one listener and `poll` are the kernel's, as for any descriptor.

use core::ffi::c_int;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use firelane_shm::carry;
use firelane_shm::control::Arrived;
use rustix::io::Errno;

use crate::address::Shown;
use crate::socket::{self, Held, Kind};
use crate::{arenas, session, sys};

/// A connection, accepted.
pub(crate) struct Accepted {
    pub(crate) fd: c_int,
    pub(crate) peer: Shown,
}

/// Takes the next connection.
pub(crate) fn accept(listener: &Held, flags: c_int) -> Result<Accepted, Errno> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 || listener.kind() != Kind::Listener {
        return Err(Errno::INVAL);
    }
    let (arrived, fd) = loop {
        match next(listener) {
            Err(Errno::INTR) => crate::wait::interrupted(false)?,
            other => break other?,
        }
    };
    let arena = match arenas::find(arrived.place.arena) {
        Some(arena) => Some(arena),
        // Another process' listener: its connections lie in its arena.
        None => session::attach_owned(&fd)?.place.map(|(arena, _)| arena),
    };
    let arena = arena.ok_or(Errno::PROTO)?;
    let fd = session::given(fd, flags)?;
    let accepted = socket::accepted(fd, listener.is_v6(), arena, arrived.place.block);
    if let Some(stream) = accepted.stream() {
        stream.take();
        stream.set_nonblocking(flags & libc::SOCK_NONBLOCK != 0);
    }
    Ok(Accepted { fd, peer: Shown::new(arrived.remote, listener.is_v6()) })
}

/// Receives one message.
fn next(listener: &Held) -> Result<(Arrived, OwnedFd), Errno> {
    let (mut bytes, mut fds) = ([0; Arrived::BYTES], Vec::new());
    match carry::receive(sys::borrow(listener.fd), &mut bytes, &mut fds, true) {
        Ok(Arrived::BYTES) => {
            let arrived = Arrived::decode(&bytes).map_err(|_| Errno::PROTO)?;
            Ok((arrived, fds.pop().ok_or(Errno::MFILE)?))
        }
        // The program has shut the listener down, or the daemon is gone, whose descriptors close one after another:
        // only an answer shows that it lives.
        Ok(_) => Err(session::names(listener)
            .err()
            .filter(|&errno| errno == Errno::NETDOWN)
            .unwrap_or(Errno::INVAL)),
        // Without a free number the kernel drops the descriptor, and with it the connection.
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(Errno::MFILE),
        Err(error) => Err(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}
