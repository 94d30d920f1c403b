//! What another process has made of a socket that this one takes for fresh: bound, connected, or made a listener.
//!
//! After `fork`, or when it was passed on, several processes have one socket, and each its own word of it. Who only uses
//! what the other has made finds out here: where the answer would else be that there is no connection. So nothing is
//! asked about a socket that is in use.

use core::ffi::c_int;

use firelane_shm::control::State;

use crate::socket::{self, Held, Kind};
use crate::{session, table};

/// The socket as it is by now, if another process has changed it.
#[cold]
pub(crate) fn changed(socket: &Held) -> Option<Held> {
    if socket.kind() != Kind::Fresh {
        return None;
    }
    let attached = session::attach(socket.fd).ok()?;
    match (attached.state, attached.place) {
        (State::Connected, Some((arena, block))) => socket.becomes_stream(arena, block),
        (State::Listening, queue) => socket.becomes_listener(queue),
        _ => None,
    }
}

/// Before somebody waits for a descriptor.
#[inline]
pub(crate) fn look(fd: c_int) {
    if let Some(word) = table::get(fd)
        && socket::kind(word) == Kind::Fresh
    {
        changed(&Held { fd, word });
    }
}
