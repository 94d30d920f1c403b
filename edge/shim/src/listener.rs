//! `accept`, and the end of it: connections wait in the listener's accept queue, or come over its own descriptor, as messages, while
//! anybody waits for that. Who finds one takes the connection by a socket of his own, whose name he leaves in its words.
//!
//! So waiting, O_NONBLOCK, signals and several processes at one listener are the kernel's, as for any descriptor.

use core::ffi::c_int;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use firelane_shm::carry;
use firelane_shm::control::{Arrived, Place};
use rustix::io::Errno;

use crate::accept_queue::Watching;
use crate::address::Shown;
use crate::handlers::Seen;
use crate::socket::{self, Held, Kind};
use crate::sys::Manner;
use crate::{
    accept_queue, arenas, cancelling, connecting, interfaces, names, options, session, sys, table, to_itself,
    wait,
};

/// How long a blocking `accept` takes at a listener that has ended: less than the second within which all calls return.
const ENDED: Duration = Duration::from_millis(500);

/// A connection, accepted.
pub(crate) struct Accepted {
    pub(crate) fd: c_int,
    pub(crate) peer: Shown,
}

/// Takes the next connection.
pub(crate) fn accept(listener: &Held, flags: c_int) -> Result<Accepted, Errno> {
    let mut seen = Seen::now();
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno::INVAL);
    }
    if !listener.is_listener() {
        return Err(if listener.is_datagram() { Errno::OPNOTSUPP } else { Errno::INVAL });
    }
    if listener.kind() == Kind::Ended {
        return Err(ended(listener, seen));
    }
    if socket::is_dead(listener.word) {
        return Err(told(listener, Errno::NETDOWN));
    }
    if let Err(errno) = session::begin_to_take(listener) {
        let why = if has_hung_up(listener)? { why_hung_up(listener) } else { errno };
        return Err(told(listener, why));
    }
    if let Some(accepted) = accept_waiting(listener, flags)? {
        return Ok(accepted);
    }
    session::has_number(listener)?;
    let (place, remote) = loop {
        match next(listener, seen) {
            Err(Errno::INTR) => interrupted(listener, &mut seen)?,
            other => break other.map_err(|errno| told(listener, errno))?,
        }
    };
    let fd = session::take_arrival(listener, place, flags)?;
    Ok(Accepted { fd, peer: shown(listener, fd, remote) })
}

/// What becomes of an `accept` that a signal has come to. Who closes a listener under it, and signals that (OpenJDK's `ServerSocket`), may have
/// given its number to something else, from which a call that goes on would take.
fn interrupted(listener: &Held, seen: &mut Seen) -> Result<(), Errno> {
    let place = |word| (socket::arena(word), socket::number(word));
    let is_there = table::get(listener.fd).is_some_and(|word| {
        place(word) == place(listener.word) && socket::kind(word) == socket::kind(listener.word)
    });
    let may_go_on = !is_there || !options::limits_reads(listener)?;
    wait::interrupted(seen, may_go_on)?;
    // What is wrong with what is there now, if the kernel knows of anything.
    if is_there { Ok(()) } else { options::limits_reads(listener).and(Err(Errno::BADF)) }
}

/// What `accept` is about to say for the first time. Whose daemon is gone has ended.
fn told(listener: &Held, errno: Errno) -> Errno {
    if errno == Errno::NETDOWN {
        connecting::listener_closes(listener.word);
        listener.ends();
    }
    errno
}

/// The peer of a connection that was accepted.
fn shown(listener: &Held, fd: c_int, remote: SocketAddr) -> Shown {
    let on_link = socket::at(fd).filter(|_| interfaces::is_of_link(&remote));
    let known = on_link.and_then(|accepted| names::peer(&accepted).ok());
    known.unwrap_or_else(|| Shown::new(remote, listener.is_v6()))
}

/// Takes a connection that waits already, by a descriptor that is made before: mostly both are there, and the kernel is asked for
/// nothing but that.
fn accept_waiting(listener: &Held, flags: c_int) -> Result<Option<Accepted>, Errno> {
    let Some(queue) = accept_queue::of(listener.word).filter(|queue| !queue.is_empty()) else {
        return Ok(None);
    };
    let Some(made) = session::descriptor_ahead(listener, flags)? else { return Ok(None) };
    // Somebody else may have taken it meanwhile.
    let Some(block) = queue.take() else { return Ok(None) };
    let (place, remote) = waited(listener, block)?;
    let fd = made.becomes(listener, place, flags)?;
    Ok(Some(Accepted { fd, peer: shown(listener, fd, remote) }))
}

/// What `accept` says of a listener that the daemon has ended, or died with, from the second time on. Programs take it for an error of one
/// connection and call again at once (`accept(2)` asks them to), so a call that blocks takes its time; of those that
/// do not, every second one finds nothing, which is where a loop over all that waits ends (libuv's).
fn ended(listener: &Held, seen: Seen) -> Errno {
    static IS_NEXT_ONE_TOLD: AtomicBool = AtomicBool::new(true);
    if listener.is_nonblocking().unwrap_or(false) {
        return if IS_NEXT_ONE_TOLD.fetch_not(Ordering::Relaxed) { Errno::NETDOWN } else { Errno::AGAIN };
    }
    if sys::ppoll(&mut [], Some(ENDED), Manner::OWN, Some(seen)) == Err(Errno::INTR) {
        return Errno::INTR;
    }
    Errno::NETDOWN
}

/// A listener's program takes no more connections: the daemon sees the end, as if it were closed. Nobody gets those that wait.
pub(crate) fn stop(listener: &Held, how: c_int) -> Result<(), Errno> {
    if how == libc::SHUT_WR {
        return Ok(());
    }
    connecting::listener_closes(listener.word);
    accept_queue::drain(listener.word);
    rustix::net::shutdown(sys::borrow(listener.fd), rustix::net::Shutdown::Both)?;
    let mut unread = [0; Arrived::BYTES];
    while carry::receive(sys::borrow(listener.fd), &mut unread, &mut Vec::new(), false)
        .is_ok_and(|len| len > 0)
    {}
    Ok(())
}

/// Where the next connection's words are, and its peer.
fn next(listener: &Held, seen: Seen) -> Result<(Place, SocketAddr), Errno> {
    let Some(queue) = accept_queue::of(listener.word) else {
        return receive(listener, seen).map(|arrived| (arrived.place, arrived.remote));
    };
    if let Some(block) = queue.take() {
        return waited(listener, block);
    }
    let _watching = Watching::one(queue);
    if let Some(block) = queue.take() {
        return waited(listener, block);
    }
    let arrived = receive(listener, seen)?;
    let words = arenas::find(arrived.place.arena).and_then(arenas::get);
    words.and_then(|it| it.block(arrived.place.block)).into_iter().for_each(session::has_taken);
    queue.note_read();
    to_itself::accepts(queue.port());
    Ok((arrived.place, arrived.remote))
}

/// A connection of the accept queue.
fn waited(listener: &Held, block: u32) -> Result<(Place, SocketAddr), Errno> {
    let arena = socket::arena(listener.word);
    let words = arenas::get(arena).and_then(|memory| memory.block(block)).ok_or(Errno::PROTO)?;
    session::has_taken(words);
    let place = Place { arena: arenas::number(arena).ok_or(Errno::PROTO)?, block };
    to_itself::accepts(names::port_of(words));
    Ok((place, names::remote(words).ok_or(Errno::PROTO)?))
}

/// Receives one message.
fn receive(listener: &Held, seen: Seen) -> Result<Arrived, Errno> {
    let mut bytes = [0; Arrived::BYTES];
    let flags = if options::forbids_waits(listener)? { libc::MSG_DONTWAIT } else { 0 };
    let receive = || sys::receive(listener.fd, &mut bytes, flags, seen);
    match cancelling::sleeping(Err(Errno::INTR), receive) {
        Ok(Arrived::BYTES) => Arrived::decode(&bytes).map_err(|_| Errno::PROTO),
        // The daemon writes no more: the netstack is gone, or all its lanes are.
        Ok(_) if !has_hung_up(listener)? => Err(Errno::NETDOWN),
        Ok(_) => Err(why_hung_up(listener)),
        Err(errno) => Err(errno),
    }
}

/// Why a listener has hung up: its program has shut it down, or the daemon is gone, whose descriptors close one after another: only an
/// answer shows that it lives. The daemon that answers may be another one, which follows it, and does not know the listener; nor does one
/// that has seen its program shut it down.
fn why_hung_up(listener: &Held) -> Errno {
    match session::names(listener) {
        Ok(_) => Errno::INVAL,
        Err(errno) if errno != Errno::NETDOWN && session::is_of_sessions_daemon(listener.fd) => Errno::INVAL,
        Err(_) => Errno::NETDOWN,
    }
}

/// Whether both directions of a listener's descriptor have ended.
pub(crate) fn has_hung_up(listener: &Held) -> Result<bool, Errno> {
    let mut entry = [libc::pollfd { fd: listener.fd, events: 0, revents: 0 }];
    sys::ppoll(&mut entry, Some(Duration::ZERO), Manner::OWN, None)?;
    Ok(entry[0].revents & libc::POLLHUP != 0)
}
