//! `connect`: beginning it, waiting for it, and asking again.
//!
//! A new socket that is this process' alone takes a block that the session's arena offers, and its lane reads there whom to connect to,
//! and with which options (`untold.rs`).
//! Any other asks the daemon.

use core::ffi::c_int;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use firelane_shm::layout::request;
use rustix::io::Errno;

use crate::handlers::Seen;
use crate::kept::Glance;
use crate::ports::Ports;
use crate::socket::{Held, Kind};
use crate::stream::Stream;
use crate::table::Word;
use crate::{accept_queue, arenas, kept, options, process, session, socket, to_itself, untold, waiter};

/// The next connection is asked for.
static ASKS: AtomicBool = AtomicBool::new(false);
/// The next connection to each of these ports is.
static ASKED: Ports = Ports::none();

/// This program closes a listener, which the daemon hears of by and by: before it answers a question it has looked. So who
/// connects there now is refused, as he is to be.
pub(crate) fn listener_closes(word: Word) {
    match accept_queue::of(word) {
        Some(queue) => {
            to_itself::listens_no_more(queue.port());
            ASKED.put(queue.port());
        }
        None => ASKS.store(true, Ordering::Relaxed),
    }
}

/// Whether the next connection to this port is asked for. It is then.
fn asks(port: u16) -> bool {
    ASKED.take(port) || ASKS.load(Ordering::Relaxed) && ASKS.swap(false, Ordering::Relaxed)
}

/// Begins a connection, and waits for its outcome unless the socket does not block. One that the first write begins
/// (TCP_FASTOPEN_CONNECT) waits for nothing.
pub(crate) fn begin(socket: &Held, to: SocketAddr) -> Result<(), Errno> {
    let seen = Seen::now();
    let is_nonblocking = socket.is_nonblocking()?;
    let kept = kept::glance(socket.fd);
    let offered = by_an_offer(socket, to);
    let is_offered = offered.is_some();
    let place = offered.map_or_else(|| session::connect(socket, to, false), Ok)?;
    let stream = becomes(socket, &kept, place, is_nonblocking)?;
    if is_offered {
        stream.kick();
    }
    if stream.is_deferred() {
        return Ok(());
    }
    conclude((socket.fd, to), &stream, is_nonblocking, seen)
}

/// sendto(2) with MSG_FASTOPEN, of a socket without a connection: what is to be written to. Where the SYN carries no text, that is
/// a connection whose outcome was waited for.
pub(crate) fn begin_fast(socket: &Held, to: SocketAddr, flags: c_int) -> Result<Stream, Errno> {
    let seen = Seen::now();
    let is_nonblocking = socket.is_nonblocking()?;
    let kept = kept::glance(socket.fd);
    let stream = becomes(socket, &kept, session::connect(socket, to, true)?, is_nonblocking)?;
    if !stream.is_deferred() {
        conclude((socket.fd, to), &stream, is_nonblocking || flags & libc::MSG_DONTWAIT != 0, seen)?;
    }
    Ok(stream)
}

/// The socket, behind which `kept` lay, is the stream that the daemon or an offer has made of it.
fn becomes(
    socket: &Held,
    kept: &Glance,
    (arena, block): (u16, u32),
    is_nonblocking: bool,
) -> Result<Stream, Errno> {
    let Some(held) = socket.becomes_stream(arena, block) else {
        kept::leave_closed(kept, socket::stream_word(socket.is_v6(), arena, block));
        return Err(Errno::BADF);
    };
    let stream = held.stream().ok_or(Errno::PROTO)?;
    stream.set_nonblocking(is_nonblocking);
    options::hand_times(socket, &stream)?;
    Ok(stream)
}

fn conclude(
    (fd, to): (c_int, SocketAddr),
    stream: &Stream,
    is_nonblocking: bool,
    seen: Seen,
) -> Result<(), Errno> {
    if is_nonblocking {
        if stream.fails_here() {
            return stream.outcome().map_or(Err(Errno::INPROGRESS), |outcome| fails(fd, outcome));
        }
        to_itself::begun(stream, to);
        // As Linux answers, also where the outcome is there at once: it is told when it is asked for.
        return Err(Errno::INPROGRESS);
    }
    fails(fd, stream.wait_connected(seen))?;
    stream.tell_connected();
    Ok(())
}

/// Who hears that the attempt has failed may make another with the same socket.
fn fails(fd: c_int, outcome: Result<(), Errno>) -> Result<(), Errno> {
    // With EPIPE another thread has ended it, and the socket may have another connection by now.
    let goes_on = matches!(
        outcome,
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR | Errno::NETDOWN | Errno::BADF | Errno::PIPE)
    );
    if !goes_on && let Some(socket) = socket::at(fd) {
        // The daemon may be gone, which the next call says.
        let _ = end(&socket);
    }
    outcome
}

/// Ends what a stream is, as `tcp_disconnect` of Linux: the peer of a connection gets a reset, and the socket is without one, with its
/// options and the address that it was bound to.
pub(crate) fn end(socket: &Held) -> Result<Held, Errno> {
    end_as(socket, Held::becomes_fresh)
}

/// shutdown(2) of a socket that connects, as `tcp_disconnect` of Linux again: who waits for the connection is told ECONNRESET, or if
/// nobody does, the next call that tells an error.
pub(crate) fn give_up(socket: &Held) -> Result<(), Errno> {
    end_as(socket, Held::becomes_given_up).map(drop)
}

fn end_as(socket: &Held, becomes: impl FnOnce(&Held) -> Option<Held>) -> Result<Held, Errno> {
    let sleepers = socket.stream().map(|stream| (stream, waiter::watchers(socket.word)));
    if socket.kind() == Kind::Stream {
        closed(socket.word);
    }
    // The daemon reads from the words what they have of its options.
    let socket = becomes(socket).ok_or(Errno::BADF)?;
    session::disconnect(&socket)?;
    // Who wakes up finds what has happened before he looks at words that may be another connection's by now.
    if let Some((stream, watchers)) = sleepers {
        stream.wake();
        watchers.ring();
    }
    Ok(socket)
}

/// Begins a connection by the words of a block that was offered, if there is one, and the daemon need not be asked.
fn by_an_offer(socket: &Held, to: SocketAddr) -> Option<(u16, u32)> {
    let is_plain = match to {
        SocketAddr::V4(_) => !socket.is_v6(),
        // To whom an address of one link leads is the daemon's to judge, which knows the links.
        SocketAddr::V6(to) => socket.is_v6() && to.scope_id() == 0 && !to.ip().is_unicast_link_local(),
    };
    if asks(to.port()) {
        return None;
    }
    let arena = session::own_arena().filter(|_| is_plain && !process::is_borrowed())?;
    let memory = arenas::get(arena)?;
    let name = kept::unasked(socket.fd)?;
    let untold = untold::take(socket.fd);
    let offer = memory.take_offer().and_then(|offer| Some((offer, memory.block(offer.block)?)));
    let Some((offer, words)) = offer else {
        if let Some(untold) = untold {
            untold::tell_taken(socket, &untold);
        }
        return None;
    };
    let ip = match to.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let with = untold.zip(memory.untold(offer.place)).map_or(0, |(untold, beside)| {
        beside.put(untold.options());
        request::UNTOLD | untold.bits()
    });
    memory.offers().count(&offer, words);
    words.ask_to_connect(name.0, ip, to.port(), with);
    Some((arena, offer.block))
}

/// A stream is closed, or one descriptor of several, or its connection is ended: in its lane there is one less of this program's.
pub(crate) fn closed(word: Word) {
    let memory = if socket::is_dead(word) { None } else { arenas::get(socket::arena(word)) };
    if let Some(memory) = memory
        && let Some(words) = memory.block(socket::number(word))
    {
        memory.offers().uncount(words);
    }
}

/// A program asks again: how its connection stands.
pub(crate) fn again(socket: &Held) -> Result<(), Errno> {
    let stream = socket.stream().ok_or(Errno::PROTO)?;
    // What became of it since then is for others to tell.
    if stream.is_known_connected() {
        return Err(Errno::ISCONN);
    }
    match stream.outcome() {
        Some(Ok(())) if stream.tell_connected() => Ok(()),
        Some(Ok(())) => Err(Errno::ISCONN),
        Some(Err(errno)) => fails(socket.fd, Err(errno)),
        None if stream.is_deferred() => Err(Errno::ISCONN),
        None if stream.is_nonblocking() => Err(Errno::ALREADY),
        None => {
            fails(socket.fd, stream.wait_connected(Seen::now()))?;
            stream.tell_connected();
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_connection_to_a_closed_port_is_asked_for_and_no_other() {
        for port in [0, 63, 64, u16::MAX] {
            ASKED.put(port);
            assert_eq!([port ^ 1, port, port].map(asks), [false, true, false], "{port}");
        }
        ASKS.store(true, Ordering::Relaxed);
        assert_eq!([9, 9].map(asks), [true, false]);
    }
}
