//! SIGIO and SIGURG (O_ASYNC, F_SETOWN, F_SETSIG; fcntl(2), socket(7)).
//!
//! What a program sets lies at the kernel's descriptor behind its socket, and so the kernel knows whom to signal, here and in every
//! process that has a copy. The daemon is told that there is somebody, and from then on writes a byte to its end of the pair for
//! what happens; the bytes say nothing and are read away by the next call that receives or sends. Used by `descriptors.rs` and the hook
//! of `ioctl`.

use core::ffi::{c_int, c_ulong};
use core::sync::atomic::{AtomicBool, Ordering};

use firelane_shm::control::{OWN_LEVEL, OWN_SIGNALS, SIGNAL_IO, SIGNAL_URGENT};
use rustix::fs::OFlags;
use rustix::net::{RecvFlags, recv};

use crate::socket::{Held, Kind};
use crate::{accept_queue, confining, kept, session, sys};

/// Requests of `ioctl` that say who is signalled, or whether.
const FIOASYNC: c_ulong = 0x5452;
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;

/// A command of `fcntl`: which signal comes in the place of SIGIO.
const F_SETSIG: c_int = 10;

/// What lies there is read in so many pieces at the most: each urgent byte ends one.
const PIECES: usize = 512;

/// Whether any socket of this process may be one that signals.
static ARE_THERE: AtomicBool = AtomicBool::new(false);

/// Whether a request of `ioctl` is about signals.
pub(crate) fn is_about(request: c_ulong) -> bool {
    [FIOASYNC, FIOSETOWN, SIOCSPGRP].contains(&request)
}

/// Whether the program is signalled for what happens to a descriptor.
pub(crate) fn is_async(fd: c_int) -> bool {
    rustix::fs::fcntl_getfl(sys::borrow(fd)).is_ok_and(|flags| flags.contains(async_flag()))
}

fn async_flag() -> OFlags {
    OFlags::from_bits_retain(libc::O_ASYNC.cast_unsigned())
}

/// The kernel has done what `fcntl` was asked for, and it may have been about signals.
pub(crate) fn controlled(socket: &Held, command: c_int, argument: usize) {
    if command == F_SETSIG {
        // The kernel keeps the signal with what the descriptor opens, and whoever gets that next has not asked for it.
        kept::forget(socket.fd);
    }
    let is_about = match command {
        libc::F_SETFL => argument as c_int & libc::O_ASYNC != 0 || ARE_THERE.load(Ordering::Relaxed),
        _ => [libc::F_SETOWN, sys::F_SETOWN_EX].contains(&command),
    };
    if is_about {
        changed(socket);
    }
}

/// Owner or O_ASYNC of a socket may be others now. If the daemon cannot be told it is gone, and there is nothing to signal.
#[cold]
pub(crate) fn changed(socket: &Held) {
    let kinds = match (sys::has_owner(socket.fd), is_async(socket.fd)) {
        (false, _) => 0,
        (true, false) => SIGNAL_URGENT,
        (true, true) => SIGNAL_URGENT | SIGNAL_IO,
    };
    if kinds == 0 && !ARE_THERE.load(Ordering::Relaxed) {
        return;
    }
    ARE_THERE.store(true, Ordering::Relaxed);
    // Whoever gets the descriptor next must not be signalled.
    kept::forget(socket.fd);
    let _ = session::set_option(socket, OWN_LEVEL, OWN_SIGNALS, &c_int::from(kinds).to_ne_bytes());
    if socket.kind() == Kind::Listener && kinds & SIGNAL_IO != 0 {
        accept_queue::give_up(socket.fd, socket.word);
    }
}

/// Reads away what lies at the descriptor of a socket that signals.
#[cold]
pub(crate) fn drain(fd: c_int) {
    let mut bytes = [0; 512];
    let mut reads =
        || recv(sys::borrow(fd), &mut bytes[..], RecvFlags::DONTWAIT).is_ok_and(|(len, _)| len > 0);
    if !confining::is_confined() {
        (0..PIECES).take_while(|_| reads()).count();
    }
}
