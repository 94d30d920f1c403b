//! Connections that this process accepts: each gets a socket of the session's, made ahead if there is one. Owned by `session.rs`.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use firelane_shm::Block;
use firelane_shm::control::{Answer, Place, Request, SocketId};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::{
    ask, attach, given, is_attached, name_of, number_by_now, order_ahead, post_closed, refusal, spare,
};
use crate::socket::{self, Held};
use crate::{arenas, confining, kept, listener, options, pool, process, sys, to_itself};

/// A name that no socket has: what is taken under it ends.
const NOBODYS: SocketId = SocketId(u64::MAX);

/// This process is about to take connections at `listener`. The daemon hears of that before, for a connection that was taken ends with
/// a session that it knows to have the listener.
///
/// # Errors
/// There is no place for this process: it takes none, so that others do. Or the daemon has none for the listener, whose end is told.
pub(crate) fn begin_to_take(listener: &Held) -> Result<(), Errno> {
    let arena = socket::arena(listener.word);
    if !socket::is_queued(listener.word) || process::has_session() && is_attached(arena) {
        return Ok(());
    }
    match attach(listener.fd) {
        // Where the daemon is gone the listener says so.
        Err(errno) if errno != Errno::NETDOWN && !process::has_session() => Err(errno),
        // What waits there is of a daemon that this one has followed.
        Err(errno @ Errno::NOTSOCK) if listener::has_hung_up(listener) == Ok(true) => Err(errno),
        _ => Ok(()),
    }
}

/// This process has taken a connection, whose words these are.
pub(crate) fn has_taken(words: &Block) {
    match number_by_now() {
        0 => {}
        session => words.is_taken_by(session),
    }
}

/// Whether there is a number for the descriptor of the next connection. `accept` asks before it takes one, as in Linux: who has none left
/// loses none. Nothing is kept meanwhile, for a child that is forked would have it, too.
pub(crate) fn has_number(listener: &Held) -> Result<(), Errno> {
    if confining::is_confined() {
        // Of who may not copy descriptors the daemon's does not come.
        return Ok(());
    }
    match fcntl_dupfd_cloexec(sys::borrow(listener.fd), 0) {
        Err(errno @ (Errno::MFILE | Errno::NFILE)) => Err(errno),
        _ => Ok(()),
    }
}

/// A descriptor that the next connection will have. What becomes no connection's is closed.
pub(crate) struct Made {
    fd: c_int,
    is_v6: bool,
}

/// Makes one, if a socket is there that was made ahead.
///
/// # Errors
/// There is no number left.
pub(crate) fn descriptor_ahead(listener: &Held, flags: c_int) -> Result<Option<Made>, Errno> {
    let is_v6 = listener.is_v6();
    if confining::is_confined() {
        return Ok(None);
    }
    let Some(spare) = pool::take(is_v6) else { return Ok(None) };
    match kept::give(is_v6, spare, flags) {
        Ok(fd) => Ok(Some(Made { fd, is_v6 })),
        Err(errno @ (Errno::MFILE | Errno::NFILE)) => Err(errno),
        // Who may not copy descriptors (seccomp) asks the daemon.
        Err(_) => Ok(None),
    }
}

impl Made {
    /// From now on it is that of a connection that has arrived at `listener`.
    pub(crate) fn becomes(self, listener: &Held, place: Place, flags: c_int) -> Result<c_int, Errno> {
        let (arena, words) = place_of(listener, place)?;
        let is_v6 = self.is_v6;
        let fd = begin(listener, core::mem::ManuallyDrop::new(self).fd, arena, place.block, flags);
        words.taken_as.store(name_of(fd)?.0, Ordering::Release);
        // The next one finds some.
        order_ahead(is_v6);
        Ok(fd)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        match kept::take(self.fd) {
            Some(kept) => kept.close(socket::fresh_word(self.is_v6)),
            None => sys::close(self.fd),
        }
    }
}

/// From now on `fd` is the connection's.
fn begin(listener: &Held, fd: c_int, arena: u16, block: u32, flags: c_int) -> c_int {
    let accepted = socket::accepted(fd, listener.is_v6(), arena, block);
    if let Some(stream) = accepted.stream() {
        // The lane tells the listener first, and has been interrupted by its waking up: the other end, if it is this process', is to be told
        // that it is connected before its peer goes on, as in Linux. A server would keep what it has taken from others that have a CPU.
        if to_itself::may_be_own() && stream.end().interrupts_lane(sys::cpu()) {
            sys::pass();
        }
        stream.take();
        stream.set_nonblocking(flags & libc::SOCK_NONBLOCK != 0);
        // Without them it would wait for ever, and that is what most do.
        let _ = options::inherit_times(listener, &accepted);
    }
    fd
}

/// The descriptor of a connection that has arrived at `listener`, with SOCK_NONBLOCK and SOCK_CLOEXEC of `flags`.
pub(crate) fn take_arrival(listener: &Held, place: Place, flags: c_int) -> Result<c_int, Errno> {
    let (arena, words) = place_of(listener, place)?;
    has_taken(words);
    let is_v6 = listener.is_v6();
    let spared = spare(is_v6).ok().flatten().and_then(|spare| kept::give(is_v6, spare, flags).ok());
    if let Some(fd) = spared {
        return Made { fd, is_v6 }.becomes(listener, place, flags);
    }
    order_ahead(is_v6);
    let answer = ask(&Request::Take { place }, None);
    let made = answer.and_then(|(answer, fds)| match (&answer, fds.into_iter().next()) {
        (Answer::Sockets { .. }, fd) => given(fd.ok_or(Errno::MFILE)?, flags),
        _ => Err(refusal(&answer)),
    });
    if made.is_err() {
        give_up(words);
    }
    made.map(|fd| begin(listener, fd, arena, place.block, flags))
}

/// A connection that was taken cannot be had, and nobody else was told of it.
fn give_up(words: &Block) {
    words.taken_as.store(NOBODYS.0, Ordering::Release);
    post_closed(NOBODYS, None);
}

/// Where the words of a connection that was taken at `listener` are.
fn place_of(listener: &Held, place: Place) -> Result<(u16, &'static Block), Errno> {
    let words_in = |arena| arenas::get(arena).and_then(|it| it.block(place.block));
    let known = arena_of(listener, place.arena).and_then(|it| Ok((it, words_in(it).ok_or(Errno::PROTO)?)));
    known.inspect_err(|_| arenas::find(place.arena).and_then(words_in).into_iter().for_each(give_up))
}

/// Where a listener's arena is here. Who has it of his parent, or of another program, shows the listener first.
fn arena_of(listener: &Held, number: u64) -> Result<u16, Errno> {
    let is_known = |place: &u16| is_attached(*place) && process::has_session();
    if let Some(place) = arenas::find(number).filter(is_known) {
        return Ok(place);
    }
    attach(listener.fd)?;
    arenas::find(number).ok_or(Errno::PROTO)
}
