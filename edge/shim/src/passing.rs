//! Sockets that come from elsewhere: by `exec`, or in a message from another program (SCM_RIGHTS).
//!
//! They come as bare descriptors. One whose other end the daemon holds may be a socket of its netstacks; it says which.

use core::ffi::c_int;

use firelane_shm::control::State;
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use crate::session::Attached;
use crate::{options, session, socket, standard_error, sys};

/// A descriptor has arrived. If it is a socket of the daemon's, it is ours from now on.
pub(crate) fn arrived(fd: c_int) {
    if !may_be_ours(fd) {
        return;
    }
    // It may be the next one's.
    if session::look_for_death() {
        let _ = session::begin_again();
    }
    if !session::is_of_daemon(fd) {
        if session::is_forbidden(fd) {
            refuse(fd);
        }
        return;
    }
    match session::attach(fd) {
        Ok(attached) => adopt(fd, &attached),
        // Another program's, and what lies behind it is of use.
        Err(Errno::NOTSOCK) if !session::sees_daemon() => {}
        // It stays what lies behind it, of no use: nobody is to look for the reason elsewhere.
        Err(errno) => {
            standard_error::say_once(&format!(
                "a socket that has come to this program cannot be used here: {errno}"
            ));
            if matches!(errno, Errno::ACCESS | Errno::PERM) {
                refuse(fd);
            }
        }
    }
}

/// This user may not use it. What lies behind it would take what is written, and keep who reads waiting for ever: in its place comes what
/// says that the connection is gone.
fn refuse(fd: c_int) {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let Ok((gone, peer)) = pair else { return };
    // What its peer leaves unread is a reset.
    let _ = rustix::io::write(&gone, &[0]);
    drop(peer);
    let old = sys::borrow(fd);
    let blocks = !rustix::fs::fcntl_getfl(old).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
    let _ = rustix::io::ioctl_fionbio(&gone, !blocks);
    let closes = rustix::io::fcntl_getfd(old).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC));
    sys::replace(&gone, fd, closes);
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
