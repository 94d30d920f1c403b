//! `accept`: connections come over the listener's own descriptor, as messages. Who reads one takes the connection by a socket of
//! his own, whose name he leaves in its words.
//!
//! So waiting, O_NONBLOCK, signals, several processes at one listener and `poll` are the kernel's, as for any descriptor.

use core::ffi::c_int;
use core::time::Duration;

use firelane_shm::carry;
use firelane_shm::control::Arrived;
use rustix::io::Errno;

use crate::address::Shown;
use crate::socket::{Held, Kind};
use crate::{session, sys};

/// How long a blocking `accept` takes at a listener that has ended: less than the second within which all calls return.
const ENDED: Duration = Duration::from_millis(500);

/// A connection, accepted.
pub(crate) struct Accepted {
    pub(crate) fd: c_int,
    pub(crate) peer: Shown,
}

/// Takes the next connection.
pub(crate) fn accept(listener: &Held, flags: c_int) -> Result<Accepted, Errno> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 || !listener.is_listener() {
        return Err(Errno::INVAL);
    }
    if listener.kind() == Kind::Ended {
        return Err(ended(listener));
    }
    let arrived = loop {
        match next(listener) {
            Err(Errno::INTR) => crate::wait::interrupted(false)?,
            Err(Errno::NETDOWN) => {
                listener.ends();
                return Err(Errno::NETDOWN);
            }
            other => break other?,
        }
    };
    let fd = session::take_arrival(listener, arrived.place, flags)?;
    Ok(Accepted { fd, peer: Shown::new(arrived.remote, listener.is_v6()) })
}

/// What `accept` says of a dead daemon's listener from the second time on. Programs take it for an error of one
/// connection and call again at once (`accept(2)` asks them to), so a call that blocks takes its time.
fn ended(listener: &Held) -> Errno {
    let blocks = !listener.is_nonblocking().unwrap_or(false);
    if blocks && sys::ppoll(&mut [], Some(ENDED), None) == Err(Errno::INTR) {
        return Errno::INTR;
    }
    Errno::NETDOWN
}

/// Receives one message.
fn next(listener: &Held) -> Result<Arrived, Errno> {
    let mut bytes = [0; Arrived::BYTES];
    match carry::receive(sys::borrow(listener.fd), &mut bytes, &mut Vec::new(), true) {
        Ok(Arrived::BYTES) => Arrived::decode(&bytes).map_err(|_| Errno::PROTO),
        // The program has shut the listener down, or the daemon is gone, whose descriptors close one after another:
        // only an answer shows that it lives.
        Ok(_) => Err(session::names(listener)
            .err()
            .filter(|&errno| errno == Errno::NETDOWN)
            .unwrap_or(Errno::INVAL)),
        Err(error) => Err(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}
