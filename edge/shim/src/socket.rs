//! A socket of ours as one call sees it, and the words of the table that say what stands behind a descriptor.
//!
//! What a socket can do depends on what it is by now: *fresh* (TCP, neither connecting nor listening; the daemon has all
//! that is known of it), a *listener* (its connections wait in its accept queue, or come over its own descriptor), a *stream* (a block in an
//! arena), or a *datagram* socket. Each kind's calls are in a file of their own; here is who is asked.

use core::ffi::c_int;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU32, Ordering};

use firelane_frame::Envelope;
use rustix::io::Errno;

use crate::address::{Given, Shown};
use crate::buffers::{Sink, Source};
use crate::datagram::Extra;
use crate::pool::Mode;
use crate::stream::Stream;
use crate::table::{self, Word};
use crate::{
    accept_queue, arenas, connecting, datagram, echoes, elsewhere, faults, kept, listener, names, options,
    process, session, signals, stdio, to_itself, untold,
};

/// What a descriptor of ours is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A TCP socket without a connection.
    Fresh,
    /// A TCP socket that listens.
    Listener,
    /// A listener whose daemon, netstack or last lane is gone, which `accept` has said once. The descriptor behind it is at its end
    /// for good; who waits for it is told no more, or he would go round without end.
    Ended,
    /// A TCP socket with a block.
    Stream,
    /// An epoll descriptor with sockets of ours in it.
    Epoll,
    /// This library's own.
    Private,
}

// A word: kind, flags, arena (by its place in this process) and block, or the number of an epoll set. Places are small numbers. A socket without
// a block has in place of the arena the era of its daemon.
const KIND: u64 = 0xf;
const V6: u64 = 1 << 4;
const SHARED: u64 = 1 << 5;
const DATAGRAMS: u64 = 1 << 6;
const ECHOES: u64 = 1 << 7;
/// Of a listener: arena and number are those of its accept queue.
const QUEUED: u64 = 1 << 24;
/// Of a TCP socket without a connection: it was shut down while it connected, which the next call that tells an error says.
const GIVEN_UP: u64 = 1 << 25;
const ARENA_SHIFT: u32 = 8;
const NUMBER_SHIFT: u32 = 32;

const KINDS: [Kind; 6] = [Kind::Fresh, Kind::Listener, Kind::Stream, Kind::Epoll, Kind::Private, Kind::Ended];

/// A word of the table.
fn word(kind: Kind, flags: u64, arena: u16, number: u32) -> Word {
    let kind = 1 + KINDS.iter().position(|&k| k == kind).unwrap_or(0) as u64;
    let bits = kind | flags | u64::from(arena) << ARENA_SHIFT | u64::from(number) << NUMBER_SHIFT;
    Word::new(bits).unwrap_or_else(|| unreachable!("the kind is not zero"))
}

/// What kind of thing a word names.
pub(crate) fn kind(word: Word) -> Kind {
    KINDS[((word.bits() & KIND) as usize).clamp(1, KINDS.len()) - 1]
}

/// Whether the daemon of the socket behind a word is gone.
#[inline]
pub(crate) fn is_dead(word: Word) -> bool {
    match kind(word) {
        Kind::Stream => arenas::is_dead(arena(word)),
        Kind::Listener | Kind::Ended if is_queued(word) => arenas::is_dead(arena(word)),
        Kind::Fresh | Kind::Listener | Kind::Ended => session::is_dead() || arena(word) != session::era(),
        Kind::Epoll | Kind::Private => session::is_dead(),
    }
}

/// Whether a word is that of a descriptor of this library's own.
pub(crate) fn is_private(word: Word) -> bool {
    kind(word) == Kind::Private
}

/// The word of this library's own descriptors.
pub(crate) fn private() -> Word {
    word(Kind::Private, 0, 0, 0)
}

/// The word of a socket made ahead (`pool.rs`), which is private until the program is given one.
pub(crate) fn spare() -> Word {
    word(Kind::Private, 0, 0, 1)
}

/// The word of a copy that a sleeping call was left (`holds.rs`), which is private, too.
pub(crate) fn left() -> Word {
    word(Kind::Private, 0, 0, 2)
}

/// The word of an epoll set.
pub(crate) fn epoll(number: u32) -> Word {
    word(Kind::Epoll, 0, 0, number)
}

/// The number in a word: of a block, or of an epoll set.
pub(crate) fn number(word: Word) -> u32 {
    (word.bits() >> NUMBER_SHIFT) as u32
}

/// The arena of a word, by its place in this process.
pub(crate) fn arena(word: Word) -> u16 {
    (word.bits() >> ARENA_SHIFT) as u16
}

/// Whether the program has connections in an arena, or bound datagram sockets.
pub(crate) fn are_in(place: u16) -> bool {
    let is_there = |word| kind(word) == Kind::Stream && arena(word) == place;
    table::programs().any(|fd| table::get(fd).is_some_and(is_there))
}

/// Whether it is a listener's with an accept queue ([`arena`] and [`number`] say where).
pub(crate) fn is_queued(word: Word) -> bool {
    word.bits() & QUEUED != 0
}

/// Whether it was connecting when it was shut down, and nobody has been told of that.
pub(crate) fn is_given_up(word: Word) -> bool {
    word.bits() & GIVEN_UP != 0
}

/// Whether a socket's family is AF_INET6.
pub(crate) fn is_v6(word: Word) -> bool {
    word.bits() & V6 != 0
}

/// The same for a descriptor that has copies.
pub(crate) fn shared(word: Word) -> Word {
    Word::new(word.bits() | SHARED).unwrap_or(word)
}

/// Whether other descriptors of this process may have the same word.
pub(crate) fn is_shared(word: Word) -> bool {
    word.bits() & SHARED != 0
}

/// A socket, as one call sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Its descriptor.
    pub(crate) fd: c_int,
    /// What the table said of it.
    pub(crate) word: Word,
}

/// What a receiving call got.
pub(crate) struct Received {
    /// How many bytes; with MSG_TRUNC how many there were.
    pub(crate) bytes: usize,
    /// Whom a datagram is from.
    pub(crate) from: Option<Shown>,
    /// What `recvmsg` puts in `msg_flags`.
    pub(crate) flags: c_int,
    /// What `recvmsg` may tell of it as control data.
    pub(crate) beside: Beside,
}

/// What goes beside what was received.
#[derive(Clone, Copy)]
pub(crate) enum Beside {
    Nothing,
    /// How much of a stream is left to read (TCP_INQ).
    Unread(c_int),
    /// What is written on a datagram, what its program wants to be told of that, and to which port it came.
    Datagram {
        envelope: Envelope,
        bits: u64,
        port: u16,
    },
}

/// The socket behind `fd`, if it is ours.
#[inline]
pub(crate) fn at(fd: c_int) -> Option<Held> {
    let word = table::get(fd)?;
    let is_socket = matches!(kind(word), Kind::Fresh | Kind::Listener | Kind::Ended | Kind::Stream);
    is_socket.then_some(Held { fd, word })
}

/// What a program may ask for that netstacks have.
enum Asked {
    Stream,
    Datagrams,
    Echoes,
}

/// What a call of socket(2) asks for; `None` if no netstack has it.
fn asked(family: c_int, kind: c_int, protocol: c_int) -> Option<(bool, Asked)> {
    let is_v6 = match family {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    let what = match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
        // Towards a peer without MPTCP it is TCP in Linux, too (RFC 8684 §3.1), and here every peer is one.
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP | libc::IPPROTO_MPTCP) => Asked::Stream,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Asked::Datagrams,
        (libc::SOCK_DGRAM, protocol) if protocol == echoes::protocol(is_v6) => Asked::Echoes,
        _ => return None,
    };
    Some((is_v6, what))
}

/// Whether a socket of the internet's families is one that no netstack has.
pub(crate) fn is_foreign(family: c_int, kind: c_int, protocol: c_int) -> bool {
    [libc::AF_INET, libc::AF_INET6].contains(&family) && asked(family, kind, protocol).is_none()
}

/// A new socket: ours if a netstack was asked for and has such.
pub(crate) fn open(family: c_int, kind: c_int, protocol: c_int) -> Option<Result<c_int, Errno>> {
    let (is_v6, what) = asked(family, kind, protocol)?;
    if !session::is_wanted() || process::is_borrowed() {
        return None;
    }
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    Some(match what {
        Asked::Stream => open_stream(is_v6, flags),
        Asked::Datagrams => datagram::open(is_v6, false, flags),
        Asked::Echoes => datagram::open(is_v6, true, flags),
    })
}

fn open_stream(is_v6: bool, flags: c_int) -> Result<c_int, Errno> {
    session::begin_again()?;
    let era = session::era();
    let fd = session::open_socket(is_v6, flags)?;
    born(fd, fresh_word_of(is_v6, era));
    Ok(fd)
}

/// A descriptor is a socket of ours from now on; the program may have it in the place of one of its standard streams.
pub(crate) fn born(fd: c_int, word: Word) {
    table::put(fd, word);
    stdio::changed(fd);
}

/// A connection that has just been accepted.
pub(crate) fn accepted(fd: c_int, is_v6: bool, arena: u16, block: u32) -> Held {
    let word = stream_word(is_v6, arena, block);
    born(fd, word);
    Held { fd, word }
}

fn family(is_v6: bool) -> u64 {
    if is_v6 { V6 } else { 0 }
}

/// The word of a TCP socket without a connection.
pub(crate) fn fresh_word(is_v6: bool) -> Word {
    fresh_word_of(is_v6, session::era())
}

fn fresh_word_of(is_v6: bool, era: u16) -> Word {
    word(Kind::Fresh, family(is_v6), era, next_name())
}

/// The word of a datagram socket without an address.
pub(crate) fn datagram_word(is_v6: bool, is_echo: bool) -> Word {
    datagram_word_of(is_v6, is_echo, session::era())
}

/// The same of one whose daemon is that of an era.
pub(crate) fn datagram_word_of(is_v6: bool, is_echo: bool, era: u16) -> Word {
    word(Kind::Fresh, family(is_v6) | datagrams(is_echo), era, next_name())
}

fn datagrams(is_echo: bool) -> u64 {
    if is_echo { DATAGRAMS | ECHOES } else { DATAGRAMS }
}

/// What tells sockets without words apart: only copies of one descriptor have equal words, and change together.
fn next_name() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The word of a datagram socket with a block.
pub(crate) fn bound_datagram_word(is_v6: bool, is_echo: bool, arena: u16, block: u32) -> Word {
    word(Kind::Stream, family(is_v6) | datagrams(is_echo), arena, block)
}

/// Whether a word is a datagram socket's: *fresh* without an address, then with a block like a stream's.
pub(crate) fn is_datagram(word: Word) -> bool {
    word.bits() & DATAGRAMS != 0
}

/// The word of a listener, with the place of its accept queue if it has one.
pub(crate) fn listener_word(is_v6: bool, queue: Option<(u16, u32)>) -> Word {
    listening(family(is_v6), queue, session::era(), next_name)
}

fn listening(flags: u64, queue: Option<(u16, u32)>, era: u16, name: impl FnOnce() -> u32) -> Word {
    match queue {
        Some((arena, block)) => word(Kind::Listener, flags | QUEUED, arena, block),
        None => word(Kind::Listener, flags, era, name()),
    }
}

/// The word of a stream.
pub(crate) fn stream_word(is_v6: bool, arena: u16, block: u32) -> Word {
    word(Kind::Stream, family(is_v6), arena, block)
}

impl Held {
    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        kind(self.word)
    }

    /// Whether its family is AF_INET6.
    pub(crate) fn is_v6(&self) -> bool {
        is_v6(self.word)
    }

    /// It, if it is a stream.
    pub(crate) fn stream(&self) -> Option<Stream> {
        let is_stream = self.kind() == Kind::Stream;
        is_stream.then(|| Stream::new(self.fd, arena(self.word), number(self.word))).flatten()
    }

    /// The socket has become a stream, for all copies of its descriptor. `None` if there is none any more: another thread has closed it.
    pub(crate) fn becomes_stream(&self, arena: u16, block: u32) -> Option<Held> {
        let kept = self.word.bits() & (V6 | SHARED | DATAGRAMS | ECHOES);
        self.becomes(word(Kind::Stream, kept, arena, block))
    }

    /// The socket has become a listener.
    pub(crate) fn becomes_listener(&self, queue: Option<(u16, u32)>) -> Option<Held> {
        let (kept, era) = (self.word.bits() & (V6 | SHARED), arena(self.word));
        self.becomes(listening(kept, queue, era, || number(self.word)))
    }

    /// The stream has become a socket without a connection.
    pub(crate) fn becomes_fresh(&self) -> Option<Held> {
        self.becomes(self.without_connection(0))
    }

    /// The same, because it was shut down while it connected.
    pub(crate) fn becomes_given_up(&self) -> Option<Held> {
        self.becomes(self.without_connection(GIVEN_UP))
    }

    fn without_connection(&self, flags: u64) -> Word {
        let kept = self.word.bits() & (V6 | SHARED);
        // Who ends it while its daemon dies has nothing new.
        let is_older = arenas::is_buried(arena(self.word));
        word(Kind::Fresh, kept | flags, session::era().wrapping_sub(u16::from(is_older)), next_name())
    }

    /// Whether its connection was given up, which is told once: ECONNRESET.
    pub(crate) fn tells_given_up(&self) -> bool {
        let is_told = is_given_up(self.word);
        if is_told {
            self.becomes_fresh();
        }
        is_told
    }

    /// No more connections come to the listener, and its program knows now.
    pub(crate) fn ends(&self) {
        let kept = self.word.bits() & (V6 | SHARED | QUEUED);
        let ended = self.becomes(word(Kind::Ended, kept, arena(self.word), number(self.word)));
        let is_its = |&fd: &c_int| ended.is_some_and(|it| table::get(fd) == Some(it.word));
        table::programs().filter(is_its).for_each(crate::epoll::silence);
    }

    /// Whether it listens, or did.
    pub(crate) fn is_listener(&self) -> bool {
        matches!(self.kind(), Kind::Listener | Kind::Ended)
    }

    /// Whether O_NONBLOCK is set: the kernel's descriptor knows, if nobody else does.
    pub(crate) fn is_nonblocking(&self) -> Result<bool, Errno> {
        match crate::kept::mode(self.fd) {
            Mode::Blocks => return Ok(false),
            Mode::NeverBlocks => return Ok(true),
            Mode::Unknown => {}
        }
        let flags = rustix::fs::fcntl_getfl(crate::sys::borrow(self.fd))?;
        Ok(flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// Under its number may lie a file by now, whose calls are not to be the socket's.
    fn becomes(&self, to: Word) -> Option<Held> {
        // Another thread may have made a copy meanwhile.
        for (from, to) in [(self.word, to), (shared(self.word), shared(to))] {
            let is_there = match is_shared(from) {
                true => table::replace(from, to),
                false => table::replace_one(self.fd, from, to),
            };
            if is_there {
                crate::epoll::changed(self.fd, from, to);
                return Some(Held { fd: self.fd, word: to });
            }
        }
        // Or has found the same.
        let by_now = table::get(self.fd).filter(|&it| shared(it) == shared(to))?;
        Some(Held { fd: self.fd, word: by_now })
    }

    /// Whether it is a datagram socket.
    pub(crate) fn is_datagram(&self) -> bool {
        is_datagram(self.word)
    }

    /// Whether it is one for echoes.
    pub(crate) fn is_echo(&self) -> bool {
        self.word.bits() & ECHOES != 0
    }

    /// Gives it an address.
    pub(crate) fn bind(&self, to: Given) -> Result<(), Errno> {
        if self.is_datagram() {
            return datagram::bind(self, self.address_of(to)?).map(drop);
        }
        let address = self.address_of(to)?;
        if address.ip().is_unspecified() && address.port() == 0 && untold::keep_bound(self) {
            return Ok(());
        }
        untold::tell(self.fd);
        // Who finds it closed finds its address free.
        kept::forget(self.fd);
        session::bind(self, address)
    }

    /// What was given as an address, for a socket of this family; AF_UNSPEC stands for AF_INET as it did in 4.2BSD, as far as Linux has it.
    fn address_of(&self, given: Given) -> Result<SocketAddr, Errno> {
        match given {
            Given::Unspecified(Some(address)) if !self.is_v6() && address.ip().is_unspecified() => {
                Ok(address.into())
            }
            Given::Unspecified(None) => Err(Errno::INVAL),
            Given::Address(address) if address.is_ipv6() == self.is_v6() => Ok(address),
            // An IPv4 address is too short for a socket of IPv6.
            Given::Short | Given::Address(SocketAddr::V4(_)) => Err(Errno::INVAL),
            _ => Err(Errno::AFNOSUPPORT),
        }
    }

    /// Makes it a listener.
    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        if self.is_datagram() {
            return Err(Errno::OPNOTSUPP);
        }
        if self.kind() == Kind::Stream {
            return Err(Errno::INVAL);
        }
        if self.kind() == Kind::Fresh {
            untold::tell(self.fd);
            // Should another thread close it meanwhile, nobody has it any more.
            kept::forget(self.fd);
        }
        let queue = session::listen(self, backlog)?;
        if self.kind() == Kind::Fresh {
            let listener = self.becomes_listener(queue).ok_or(Errno::BADF)?;
            // Who is signalled for its connections gets them by messages.
            let queue = accept_queue::of(listener.word).filter(|_| !signals::is_async(self.fd));
            if let Some(queue) = queue {
                queue.begin();
                to_itself::listens(queue.port());
            }
        }
        Ok(())
    }

    /// Takes a connection.
    pub(crate) fn accept(&self, flags: c_int) -> Result<listener::Accepted, Errno> {
        let by_now = if self.is_listener() { None } else { elsewhere::changed(self) };
        listener::accept(by_now.as_ref().unwrap_or(self), flags)
    }

    /// Connects it.
    pub(crate) fn connect(&self, to: Given) -> Result<(), Errno> {
        match (self.kind(), to) {
            _ if self.is_datagram() => datagram::connect(self, to),
            (Kind::Fresh, Given::Unspecified(_)) => Ok(()),
            (Kind::Fresh, to) => match connecting::begin(self, self.address_of(to)?) {
                Err(Errno::ISCONN) => {
                    let by_now = elsewhere::changed(self).filter(|it| it.kind() == Kind::Stream);
                    by_now.map_or(Err(Errno::ISCONN), |it| connecting::again(&it))
                }
                done => done,
            },
            (Kind::Stream, Given::Unspecified(_)) => connecting::end(self).map(drop),
            (Kind::Stream, _) => connecting::again(self),
            _ => Err(Errno::ISCONN),
        }
    }

    /// Ends one or both directions.
    pub(crate) fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        if ![libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR].contains(&how) {
            return Err(Errno::INVAL);
        }
        match (self.kind(), self.stream()) {
            _ if self.is_datagram() => datagram::shutdown(self, how),
            (_, Some(stream)) if stream.is_connecting() => connecting::give_up(self),
            (_, Some(stream)) => stream.shutdown(how),
            (Kind::Listener, _) => listener::stop(self, how),
            (Kind::Fresh, _) if let Some(by_now) = elsewhere::changed(self) => by_now.shutdown(how),
            _ => Err(Errno::NOTCONN),
        }
    }

    /// Receives into `sink`.
    pub(crate) fn receive(&self, sink: &mut Sink<'_>, flags: c_int) -> Result<Received, Errno> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return faults::take(self, sink).map(|(received, _)| received);
        }
        match self.stream() {
            _ if self.is_datagram() => datagram::receive(self, sink, flags),
            Some(stream) => stream.receive(sink, flags),
            None if flags & libc::MSG_OOB == 0 && self.tells_given_up() => Err(Errno::CONNRESET),
            None if let Some(by_now) = elsewhere::changed(self) => by_now.receive(sink, flags),
            None if flags & libc::MSG_OOB != 0 && self.kind() == Kind::Fresh => Err(Errno::INVAL),
            None => Err(Errno::NOTCONN),
        }
    }

    /// Sends `source`.
    pub(crate) fn send(&self, source: Source<'_>, flags: c_int, to: Option<Given>) -> Result<usize, Errno> {
        self.send_with(source, flags, to, |_| Ok(Extra::default()))
    }

    /// The same with what goes beside a datagram, which is read when it is known whether that goes over IPv4.
    pub(crate) fn send_with(
        &self,
        source: Source<'_>,
        flags: c_int,
        to: Option<Given>,
        extra: impl FnOnce(bool) -> Result<Extra, Errno>,
    ) -> Result<usize, Errno> {
        match self.stream() {
            _ if self.is_datagram() => datagram::send(self, source, flags, to, extra),
            Some(stream) if flags & libc::MSG_FASTOPEN != 0 => {
                // As if connect(2) came first (`tcp_sendmsg_fastopen` of Linux).
                if !stream.is_deferred() {
                    connecting::again(self)?;
                }
                stream.send(source, flags)
            }
            Some(stream) => stream.send(source, flags),
            None if flags & libc::MSG_FASTOPEN == 0 && self.tells_given_up() => Err(Errno::CONNRESET),
            None if let Some(by_now) = elsewhere::changed(self) => by_now.send_with(source, flags, to, extra),
            None if flags & libc::MSG_FASTOPEN != 0 => self.send_fast(source, flags, to),
            None => Err(broken_pipe(flags)),
        }
    }

    /// Connects with text in the SYN, if the peer takes that.
    fn send_fast(&self, source: Source<'_>, flags: c_int, to: Option<Given>) -> Result<usize, Errno> {
        match (self.kind(), to) {
            (_, Some(Given::Unspecified(_))) => Err(Errno::OPNOTSUPP),
            (Kind::Fresh, None) => Err(Errno::INVAL),
            (Kind::Fresh, Some(to)) => {
                connecting::begin_fast(self, self.address_of(to)?, flags)?.send(source, flags)
            }
            _ => Err(Errno::ISCONN),
        }
    }

    /// Its own address.
    pub(crate) fn local(&self) -> Result<Shown, Errno> {
        names::local(self)
    }

    /// Its peer's address.
    pub(crate) fn peer(&self) -> Result<Shown, Errno> {
        names::peer(self)
    }

    /// Writes an option's value to `value`; how long it is.
    pub(crate) fn get_option(&self, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize, Errno> {
        options::get(self, level, name, value)
    }

    /// Sets an option.
    pub(crate) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
        options::set(self, level, name, value)
    }

    /// The program has set or cleared O_NONBLOCK on the descriptor, which is where it lives; a stream remembers it beside
    /// its words, so that a call need not ask the kernel.
    pub(crate) fn set_nonblocking(&self, on: bool) {
        if let Some(stream) = self.stream() {
            stream.set_nonblocking(on);
        }
    }
}

/// EPIPE, with the signal that goes with it.
pub(crate) fn broken_pipe(flags: c_int) -> Errno {
    if flags & libc::MSG_NOSIGNAL == 0 {
        crate::sys::raise(libc::SIGPIPE);
    }
    Errno::PIPE
}

#[cfg(test)]
mod tests {
    use super::*;

    // The table is one for the process, so each test has numbers of its own.

    #[test]
    fn what_lies_under_the_number_of_a_socket_that_another_thread_has_closed_stays_what_it_is() {
        let socket = Held { fd: 900_201, word: fresh_word(false) };
        let makes = |made: Option<Held>| assert!(made.is_none());
        for there in [None, Some(fresh_word(false)), Some(stream_word(false, 1, 9))] {
            table::take(socket.fd);
            there.into_iter().for_each(|word| table::put(socket.fd, word));
            makes(socket.becomes_stream(1, 7));
            makes(socket.becomes_listener(Some((1, 8))));
            makes(socket.becomes_fresh());
            socket.ends();
            assert_eq!(table::get(socket.fd), there, "it may be a file's");
        }
        table::put(socket.fd, socket.word);
        for _found_by_two_threads in 0..2 {
            assert_eq!(socket.becomes_stream(1, 7).map(|it| it.word), Some(stream_word(false, 1, 7)));
        }
        assert_eq!(table::take(socket.fd), Some(stream_word(false, 1, 7)));
    }

    #[test]
    fn copies_that_another_thread_makes_and_closes_meanwhile_are_what_the_socket_becomes() {
        let word = fresh_word(true);
        let becomes = shared(stream_word(true, 1, 7));
        for (known, are_there) in
            [(word, [true, true]), (shared(word), [true, true]), (shared(word), [false, true])]
        {
            let fds = [900_202, 900_203];
            fds.into_iter().zip(are_there).filter(|it| it.1).for_each(|(fd, _)| table::put(fd, shared(word)));
            let held = Held { fd: fds[0], word: known };
            assert_eq!(held.becomes_stream(1, 7).map(|it| it.word), Some(becomes));
            assert_eq!(fds.map(table::take), are_there.map(|is_there| is_there.then_some(becomes)));
        }
    }
}
