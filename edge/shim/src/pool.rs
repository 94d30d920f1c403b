//! Sockets made ahead: `socket` takes one of them, and the daemon makes more meanwhile.
//!
//! They are fresh sockets like any other, kept among this library's own descriptors until the program is given one. Who
//! makes few sockets has none here. A copy of a descriptor in another process is a reference to its socket, which would
//! outlive its program's `close`: so a forked child closes what it has of its parent's before it does anything else, and
//! nobody forks while some are on their way from the daemon to their places (`session.rs`).

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::os::fd::OwnedFd;

use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::{process, session, sys};

/// How many are asked for at a time.
pub(crate) const BATCH: usize = 16;
/// How many there may be of a family: more are asked for when half of them are gone.
const MOST: usize = 2 * BATCH;
/// So many sockets are made one by one before any is made ahead.
const FEW: u32 = 4;

/// How many descriptors of the program's range all of them take at the most.
pub(crate) const RANGE: u64 = 2 * MOST as u64;

/// A family's.
struct Pool {
    /// The descriptors; -1 is none.
    places: [AtomicI32; MOST],
    /// How many sockets the program has made, up to [`FEW`].
    made: AtomicU32,
}

static POOLS: [Pool; 2] =
    [const { Pool { places: [const { AtomicI32::new(-1) }; MOST], made: AtomicU32::new(0) } }; 2];

fn pool(is_v6: bool) -> &'static Pool {
    &POOLS[usize::from(is_v6)]
}

/// A socket for the program, at the lowest number that is free, as it would get it from the kernel; `None` if there is
/// none.
pub(crate) fn take(is_v6: bool, closes_on_exec: bool) -> Option<Result<OwnedFd, Errno>> {
    if !process::has_session() {
        return None;
    }
    let (place, hidden) = pool(is_v6).places.iter().find_map(|place| {
        let is_there = place.load(Ordering::Relaxed) >= 0;
        Some((place, place.swap(-1, Ordering::AcqRel))).filter(|&(_, fd)| is_there && fd >= 0)
    })?;
    let fd = sys::borrow(hidden);
    let lowest = if closes_on_exec { fcntl_dupfd_cloexec(fd, 0) } else { rustix::io::dup(fd) };
    if lowest.is_err() && place.compare_exchange(-1, hidden, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        return Some(lowest);
    }
    session::close_hidden(hidden);
    Some(lowest)
}

/// Whether more are to be asked for. The program has just made one.
pub(crate) fn is_low(is_v6: bool) -> bool {
    let pool = pool(is_v6);
    let made = pool.made.load(Ordering::Relaxed);
    if made < FEW {
        pool.made.store(made + 1, Ordering::Relaxed);
        return false;
    }
    pool.places.iter().filter(|place| place.load(Ordering::Relaxed) >= 0).count() <= MOST - BATCH
}

/// There are none to be had: for a while sockets are made one by one again.
pub(crate) fn refused(is_v6: bool) {
    pool(is_v6).made.store(0, Ordering::Relaxed);
}

/// Keeps a hidden descriptor. Whether there was a place.
pub(crate) fn put(is_v6: bool, hidden: c_int) -> bool {
    let mut places = pool(is_v6).places.iter();
    places.any(|place| place.compare_exchange(-1, hidden, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// A descriptor has another number.
pub(crate) fn moved(from: c_int, to: c_int) {
    for place in POOLS.iter().flat_map(|pool| &pool.places) {
        let _ = place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A forked child has no use for its parent's.
pub(crate) fn forget() {
    for place in POOLS.iter().flat_map(|pool| &pool.places) {
        let hidden = place.swap(-1, Ordering::AcqRel);
        if hidden >= 0 {
            session::close_hidden(hidden);
        }
    }
}
