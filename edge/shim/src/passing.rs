//! Sockets that come from elsewhere: by `exec`, or in a message from another program (SCM_RIGHTS).
//!
//! They come as bare descriptors. One whose other end the daemon holds may be a socket of its netstacks; it says which.

use core::ffi::c_int;

use firelane_shm::control::State;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::session::Attached;
use crate::{options, session, socket, sys};

/// A descriptor has arrived. If it is a socket of the daemon's, it is ours from now on.
pub(crate) fn arrived(fd: c_int) {
    if !may_be_ours(fd) || !session::is_of_daemon(fd) {
        return;
    }
    match session::attach(fd) {
        Ok(attached) => adopt(fd, &attached),
        // Another program's, and what lies behind it is of use.
        Err(Errno::NOTSOCK) if !session::sees_daemon() => {}
        // It stays what lies behind it, of no use: nobody is to look for the reason elsewhere.
        Err(errno) => {
            session::say_once(&format!("a socket that has come to this program cannot be used here: {errno}"))
        }
    }
}

/// Only a stream of the UNIX family can be one of ours. What is no socket says so with an error.
fn may_be_ours(fd: c_int) -> bool {
    let fd = sys::borrow(fd);
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(fd) == Ok(SocketType::STREAM)
}

fn adopt(fd: c_int, attached: &Attached) {
    let word = match (attached.state, attached.place) {
        (_, Some((arena, block))) if attached.is_datagram => {
            socket::bound_datagram_word(attached.is_v6, attached.is_echo, arena, block)
        }
        (_, None) if attached.is_datagram => socket::datagram_word(attached.is_v6, attached.is_echo),
        (State::Connected, Some((arena, block))) => socket::stream_word(attached.is_v6, arena, block),
        (State::Listening, queue) => socket::listener_word(attached.is_v6, queue),
        _ => socket::fresh_word(attached.is_v6),
    };
    options::note_times();
    socket::born(fd, word);
}

/// Looks for sockets that a program before this one, in the same process, has left open.
pub(crate) fn inherited() {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let open = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    open.for_each(arrived);
}
