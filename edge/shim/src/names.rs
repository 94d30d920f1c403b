//! `getsockname` and `getpeername`.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::Ordering;

use firelane_shm::AcceptQueue;
use firelane_shm::layout::margin;
use rustix::io::Errno;

use crate::address::Shown;
use crate::interfaces::scoped;
use crate::socket::{Held, Kind};
use crate::{accept_queue, elsewhere, kept, process, session, untold};

/// Where in the place a local port is.
const LOCAL_PORT: u32 = 32;

/// The socket's own address; the unspecified one until it has any.
pub(crate) fn local(socket: &Held) -> Result<Shown, Errno> {
    let known = match socket.kind() {
        Kind::Listener => accept_queue::of(socket.word).map(AcceptQueue::local),
        _ => socket.stream().and_then(|stream| local_of(stream.end().block())),
    };
    let address = match known {
        Some(address) => Some(address),
        None if is_nameless(socket) => None,
        None => session::names(socket)?.0,
    };
    let address = address.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    Ok(shown(socket, scoped(address, address.ip())))
}

/// Whether it is a new socket that nobody has bound, so that the daemon need not be asked.
fn is_nameless(socket: &Held) -> bool {
    socket.kind() == Kind::Fresh
        && !socket.is_datagram()
        && !process::is_borrowed()
        // In this order: whose `bind` was taken out to be told is claimed by then.
        && !untold::is_bound(socket.fd)
        && kept::is_unasked(socket.fd)
}

/// The peer's address.
pub(crate) fn peer(socket: &Held) -> Result<Shown, Errno> {
    let by_now = elsewhere::changed(socket);
    let socket = by_now.as_ref().unwrap_or(socket);
    let stream = socket.stream().filter(|stream| stream.is_connected()).ok_or(Errno::NOTCONN)?;
    if socket.is_datagram() && !stream.end().block().has_peer() {
        return Err(Errno::NOTCONN);
    }
    let (own, address) = match remote(stream.end().block()) {
        Some(address) => (local_of(stream.end().block()), Some(address)),
        None => session::names(socket)?,
    };
    // Who was connected to port zero has a peer, and nobody is told.
    let address = address.filter(|it| !socket.is_datagram() || it.port() != 0);
    let address = address.ok_or(Errno::NOTCONN)?;
    Ok(shown(socket, scoped(address, own.map_or(address.ip(), |own| own.ip()))))
}

/// The peer of a connection, as its words have it.
pub(crate) fn remote(block: &firelane_shm::Block) -> Option<SocketAddr> {
    words(block, margin::REMOTE, 48)
}

/// The peer of a datagram socket, as its words have it.
pub(crate) fn peer_of(socket: &Held) -> Option<SocketAddr> {
    let stream = socket.stream().filter(|stream| stream.end().block().has_peer())?;
    remote(stream.end().block())
}

/// The address that a socket has, as its words have it.
pub(crate) fn local_of(block: &firelane_shm::Block) -> Option<SocketAddr> {
    words(block, margin::LOCAL, LOCAL_PORT)
}

/// The port that a socket has.
pub(crate) fn port_of(block: &firelane_shm::Block) -> u16 {
    local_of(block).map_or(0, |it| it.port())
}

/// In which lane a socket that has an address is.
pub(crate) fn lane_of(block: &firelane_shm::Block) -> u16 {
    block.rings.margin[margin::PLACE].load(Ordering::Relaxed) as u16
}

fn shown(socket: &Held, address: SocketAddr) -> Shown {
    let unspecified = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    let is_any = address.ip().is_unspecified();
    Shown::new(if socket.is_v6() && is_any { unspecified } else { address }, socket.is_v6())
}

/// The address in a stream's words, if it is there: the first of its two words, and where in the place its port is.
fn words(block: &firelane_shm::Block, first: usize, port_shift: u32) -> Option<SocketAddr> {
    let words = &block.rings.margin;
    if words[margin::BOUND].load(Ordering::Acquire) == 0 {
        return None;
    }
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    let bits = u128::from(word(first)) << 64 | u128::from(word(first + 1));
    let port = (word(margin::PLACE) >> port_shift) as u16;
    Some(SocketAddr::new(Ipv6Addr::from_bits(bits).to_canonical(), port))
}
