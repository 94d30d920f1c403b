//! `connect`: beginning it, waiting for it, and asking again.

use core::net::SocketAddr;

use rustix::io::Errno;

use crate::socket::Held;
use crate::{options, session};

/// Begins a connection, and waits for its outcome unless the socket does not block.
pub(crate) fn begin(socket: &Held, to: SocketAddr) -> Result<(), Errno> {
    let is_nonblocking = socket.is_nonblocking()?;
    let (arena, block) = session::connect(socket, to)?;
    let stream = socket.becomes_stream(arena, block).stream().ok_or(Errno::PROTO)?;
    stream.set_nonblocking(is_nonblocking);
    options::hand_times(socket, &stream)?;
    if is_nonblocking {
        // As Linux answers, also where the outcome is there at once: it is told when it is asked for.
        return Err(Errno::INPROGRESS);
    }
    stream.wait_connected()?;
    stream.tell_connected();
    Ok(())
}

/// A program asks again: how its connection stands.
pub(crate) fn again(socket: &Held) -> Result<(), Errno> {
    let stream = socket.stream().ok_or(Errno::PROTO)?;
    match stream.outcome() {
        Some(Ok(())) if stream.tell_connected() => Ok(()),
        Some(Ok(())) => Err(Errno::ISCONN),
        Some(Err(errno)) => Err(errno),
        None if stream.is_nonblocking() => Err(Errno::ALREADY),
        None => {
            stream.wait_connected()?;
            stream.tell_connected();
            Ok(())
        }
    }
}
