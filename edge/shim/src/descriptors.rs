//! Copies of descriptors, their flags and their end: what the table must learn of them.
//!
//! The kernel's descriptor behind a socket of ours is what counts its copies, in this process and in others. So
//! closing one here is closing it there, and the daemon, which holds the other end, hears when the last is gone.
//! A child that borrows its parent's memory (`vfork`) has descriptors of its own: it leaves the table alone.

use core::ffi::{c_int, c_uint};
use core::ops::RangeInclusive;

use rustix::io::Errno;

use crate::socket::{Held, Kind};
use crate::table::Word;
use crate::{
    connecting, epoll, fused, holds, kept, lingering, process, session, signals, socket, standard_error,
    stdio, sys, table, untold,
};

/// Before `fd` is closed. A descriptor of this library's own is not there for the program.
pub(crate) fn closing(fd: c_int) -> Option<Result<c_int, Errno>> {
    let word = table::get(fd)?;
    if socket::is_private(word) {
        return Some(Err(Errno::BADF));
    }
    if process::is_borrowed() {
        return None;
    }
    let lingering = lingering::of(fd, word);
    let kept = kept::take(fd);
    // Nothing more waits by then.
    untold::forget(fd);
    if let Some(kept) = kept {
        if lingering.is_none() && !forget_one(fd) {
            kept.close(word);
            return Some(Ok(0));
        }
        kept.drop_copy();
    }
    if let Some(lingering) = lingering {
        return Some(lingering.close());
    }
    forget_one(fd);
    None
}

/// Closes one that the program has not been told of, as its `close` would.
pub(crate) fn close(fd: c_int) {
    if closing(fd).is_none() {
        sys::close(fd);
    }
}

/// The table knows `fd` no more. Whether calls that sleep on it hold what it was.
fn forget_one(fd: c_int) -> bool {
    table::take(fd).is_some_and(|word| {
        let is_held = holds::leave(fd, word);
        gone(fd, word);
        is_held
    })
}

/// What the table knew as this is closed.
fn gone(fd: c_int, word: Word) {
    match socket::kind(word) {
        Kind::Listener => {
            connecting::listener_closes(word);
            epoll::listener_closed(fd, word);
        }
        Kind::Stream => {
            connecting::closed(word);
            fused::closed(word);
        }
        _ => {}
    }
    epoll::closed(fd, word);
}

/// Before the descriptors `first..=last` are closed, or marked to be closed on exec. Answers itself if some of them
/// are this library's own, which stay open. What the kernel refuses changes nothing.
pub(crate) fn closing_range(first: c_uint, last: c_uint, flags: c_int) -> Option<Result<c_int, Errno>> {
    const KNOWN: u32 = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    if first > last || flags.cast_unsigned() & !KNOWN != 0 || process::is_borrowed() {
        return None;
    }
    let mut begin = first;
    let begins = c_int::try_from(first).unwrap_or(c_int::MAX);
    for fd in table::ours_from(begins).take_while(|&fd| fd as c_uint <= last) {
        let Some(word) = table::get(fd) else { continue };
        let is_private = socket::is_private(word);
        let lingering = if is_private || only_marks { None } else { lingering::of(fd, word) };
        if is_private || lingering.is_some() {
            // What is below it is closed by itself.
            if begin < fd as c_uint
                && let Err(errno) = sys::close_range(begin, fd as c_uint - 1, flags)
            {
                return Some(Err(errno));
            }
            begin = fd as c_uint + 1;
        }
        match lingering {
            Some(lingering) => _ = lingering.close(),
            None if !is_private && !only_marks => forget(fd..=fd),
            None => {}
        }
    }
    if begin == first {
        return None;
    }
    Some(if begin <= last { sys::close_range(begin, last, flags).map(|()| 0) } else { Ok(0) })
}

/// The kernel replaces or closes these descriptors.
pub(crate) fn forget(fds: RangeInclusive<c_int>) {
    for fd in fds {
        if table::get(fd).is_some() && !process::is_borrowed() {
            untold::forget(fd);
            kept::forget(fd);
            forget_one(fd);
        }
    }
}

/// The kernel has made `copy` of `fd`, or failed with -1.
pub(crate) fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0
        && copy != fd
        && let Some(word) = table::get(fd)
        && !process::is_borrowed()
    {
        kept::forget(fd);
        table::put(copy, socket::shared(word));
        table::replace(word, socket::shared(word));
    }
    stdio::changed(copy);
    copy
}

/// `copy` will make `to` a copy of `fd`, and closes what it was; if it fails, nothing is closed.
pub(crate) fn copied_over(
    fd: c_int,
    to: c_int,
    copy: impl FnOnce() -> c_int,
) -> Option<Result<c_int, Errno>> {
    standard_error::copies(fd, to);
    if table::get(fd).is_none() && table::get(to).is_none() || process::is_borrowed() {
        return None;
    }
    if table::get(to).is_some_and(socket::is_private) {
        // Ours moves out of the way: the program chose this number.
        session::make_way(to);
    }
    let replaced = table::get(to).filter(|_| fd != to);
    let lingering = replaced.and_then(|word| lingering::of(to, word));
    if replaced.is_some() {
        kept::forget(to);
    }
    let old = replaced.and_then(|_| table::take(to));
    if let Some(old) = old {
        holds::leave(to, old);
    }
    let answer = copy();
    match old {
        Some(old) if answer < 0 => table::put(to, old),
        Some(old) => gone(to, old),
        None => {}
    }
    let answer = copied(fd, answer);
    if let Some(lingering) = lingering.filter(|_| answer >= 0) {
        lingering.wait();
    }
    Some(Ok(answer))
}

/// `control` does what `command` says to the kernel's descriptor.
pub(crate) fn controlled(
    fd: c_int,
    command: c_int,
    argument: usize,
    control: impl FnOnce() -> c_int,
) -> Option<Result<c_int, Errno>> {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        // A set may be copied, too.
        return table::get(fd).filter(|&word| !socket::is_private(word)).map(|_| Ok(copied(fd, control())));
    }
    let socket: Held = socket::at(fd)?;
    if command == libc::F_SETFL {
        kept::changes_flags(fd);
    }
    let answer = control();
    if answer == 0 {
        if command == libc::F_SETFL {
            let never_blocks = argument as c_int & libc::O_NONBLOCK != 0;
            kept::has_changed_flags(fd, !never_blocks);
            socket.set_nonblocking(never_blocks);
        }
        signals::controlled(&socket, command, argument);
    }
    Some(Ok(answer))
}
