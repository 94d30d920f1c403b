//! `connect`: beginning it, waiting for it, and asking again.
//!
//! A new socket that is this process' alone takes a block that the session's arena offers, and its lane reads there whom to connect to.
//! Any other asks the daemon.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::socket::Held;
use crate::{arenas, kept, options, process, session};

/// The next connection is asked for.
static ASKS: AtomicBool = AtomicBool::new(false);

/// This program closes a listener, which the daemon hears of by and by: before it answers a question it has looked. So who
/// connects there now is refused, as he is to be.
pub(crate) fn listener_closes() {
    ASKS.store(true, Ordering::Relaxed);
}

/// Begins a connection, and waits for its outcome unless the socket does not block.
pub(crate) fn begin(socket: &Held, to: SocketAddr) -> Result<(), Errno> {
    let is_nonblocking = socket.is_nonblocking()?;
    let offered = by_an_offer(socket, to);
    let is_offered = offered.is_some();
    let (arena, block) = offered.map_or_else(|| session::connect(socket, to), Ok)?;
    let stream = socket.becomes_stream(arena, block).stream().ok_or(Errno::PROTO)?;
    stream.set_nonblocking(is_nonblocking);
    if is_offered {
        stream.kick();
    }
    options::hand_times(socket, &stream)?;
    if is_nonblocking {
        // As Linux answers, also where the outcome is there at once: it is told when it is asked for.
        return Err(Errno::INPROGRESS);
    }
    stream.wait_connected()?;
    stream.tell_connected();
    Ok(())
}

/// Begins a connection by the words of a block that was offered, if there is one, and the daemon need not be asked.
fn by_an_offer(socket: &Held, to: SocketAddr) -> Option<(u16, u32)> {
    let is_plain = match to {
        SocketAddr::V4(_) => !socket.is_v6(),
        SocketAddr::V6(to) => socket.is_v6() && to.scope_id() == 0,
    };
    if ASKS.load(Ordering::Relaxed) && ASKS.swap(false, Ordering::Relaxed) {
        return None;
    }
    let arena = session::own_arena().filter(|_| is_plain && !process::is_borrowed())?;
    let memory = arenas::get(arena)?;
    let socket = kept::unasked(socket.fd)?;
    let block = memory.offers().take()?;
    let ip = match to.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    memory.block(block)?.ask_to_connect(socket.0, ip, to.port());
    Some((arena, block))
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
