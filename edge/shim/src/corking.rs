//! Datagrams that a program writes in parts (UDP_CORK, MSG_MORE; udp(7)).
//!
//! The first part says where the datagram goes and what is written on it. It leaves with the first part that says nothing of
//! more, or when UDP_CORK is taken away. As in Linux one that becomes too long is lost with all its parts. Parts are kept by
//! the process that writes them: a child begins without its parent's.

use core::ffi::c_int;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;

use firelane_frame::Envelope;
use firelane_shm::layout::file;
use rustix::io::Errno;

use crate::buffers::Source;
use crate::datagram;
use crate::lock::{Guard, Lock};
use crate::socket::{self, Held};
use crate::stream::Stream;

/// A datagram that is not whole.
struct Begun {
    /// The use of its block.
    generation: u64,
    envelope: Envelope,
    text: Vec<u8>,
}

type All = BTreeMap<(u16, u32), Begun>;

static BEGUN: Lock<All> = Lock::new(BTreeMap::new());
/// How many there are: who never does this pays a look.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The process that they are of.
static PROCESS: AtomicUsize = AtomicUsize::new(0);

fn all() -> Guard<'static, All> {
    let mut all = BEGUN.take();
    let own = crate::process::number() as usize;
    if PROCESS.swap(own, Ordering::Relaxed) != own {
        let parents = core::mem::take(&mut *all);
        if all.is_inherited {
            // Another thread of the parent's was in the middle of changing it, so nobody can look through it.
            core::mem::forget(parents);
        }
    }
    all
}

fn place(socket: &Held) -> (u16, u32) {
    (socket::arena(socket.word), socket::number(socket.word))
}

fn take(socket: &Held, stream: &Stream) -> Option<Begun> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut all = all();
    let begun = all.remove(&place(socket));
    COUNT.store(all.len(), Ordering::Relaxed);
    // Another socket had the block.
    begun.filter(|it| it.generation == generation(stream))
}

fn put(socket: &Held, begun: Begun) {
    let mut all = all();
    all.insert(place(socket), begun);
    COUNT.store(all.len(), Ordering::Relaxed);
}

fn generation(stream: &Stream) -> u64 {
    stream.end().block().generation.load(Ordering::Acquire)
}

/// Whether a call with these flags leaves the datagram open.
pub(crate) fn holds(stream: &Stream, flags: c_int) -> bool {
    flags & libc::MSG_MORE != 0 || stream.end().block().file.load(Ordering::Relaxed) & file::CORK != 0
}

/// Whether the socket's next part may belong to a datagram that was begun.
pub(crate) fn may_have_begun() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Where the datagram goes that the socket has begun, if it has.
pub(crate) fn begun_to(socket: &Held) -> Option<SocketAddr> {
    let stream = socket.stream().filter(|_| may_have_begun())?;
    let all = all();
    let begun = all.get(&place(socket)).filter(|it| it.generation == generation(&stream))?;
    Some(begun.envelope.peer)
}

/// The first part.
pub(crate) fn begin(
    socket: &Held,
    stream: &Stream,
    envelope: Envelope,
    source: Source<'_>,
    flags: c_int,
) -> Result<usize, Errno> {
    datagram::check(stream, flags)?;
    let text: Vec<u8> = source.from(0).flatten().copied().collect();
    put(socket, Begun { generation: generation(stream), envelope, text });
    Ok(source.len())
}

/// Another part, if the socket has begun a datagram. One that is to go over IPv4 is no part of another.
pub(crate) fn go_on(
    socket: &Held,
    source: Source<'_>,
    flags: c_int,
    is_to_v4: bool,
) -> Option<Result<usize, Errno>> {
    let stream = socket.stream()?;
    let mut begun = take(socket, &stream)?;
    if socket.is_v6() && is_to_v4 && !begun.envelope.peer.ip().to_canonical().is_ipv4() {
        put(socket, begun);
        return Some(Err(Errno::INVAL));
    }
    let before = begun.text.len();
    if before + source.len() > begun.envelope.payload_max() {
        return Some(Err(Errno::MSGSIZE));
    }
    begun.text.extend(source.from(0).flatten());
    if holds(&stream, flags) {
        put(socket, begun);
        return Some(Ok(source.len()));
    }
    let sent = datagram::write(&stream, &begun.envelope, &begun.text, flags);
    if sent == Err(Errno::AGAIN) {
        begun.text.truncate(before);
        put(socket, begun);
    }
    Some(sent.map(|()| source.len()))
}

/// Sends what was begun: UDP_CORK is taken away.
pub(crate) fn flush(socket: &Held) -> Result<(), Errno> {
    let Some(stream) = socket.stream() else { return Ok(()) };
    let Some(begun) = take(socket, &stream) else { return Ok(()) };
    let sent = datagram::write(&stream, &begun.envelope, &begun.text, 0);
    if sent == Err(Errno::AGAIN) {
        put(socket, begun);
    }
    sent
}
