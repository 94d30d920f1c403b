//! Calls that are asleep on a socket hold it, as in Linux: who closes its last descriptor meanwhile leaves them a copy, and the last of them
//! closes that when it returns. Until then the connection stands, and nobody else is given its words.
//!
//! A call says here which words it sleeps on, and then looks whether its descriptor still stands for them; who closes takes the
//! descriptor out of the table first, and then looks here. So one of them sees the other. A forked child finds this wiped (`process.rs`),
//! and closes the copies: its parent's threads are not there. Nothing here locks: `close` may come in a signal handler.
//!
//! Who closes what he sleeps on himself is in a handler that has interrupted his call, or has jumped out of one (siglongjmp(3)): that call is over, and
//! holds nothing any more.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::socket::{self, Kind};
use crate::table::{self, Word};
use crate::{process, session, sys, thread};

/// How many calls may hold something at a time; those beyond hold nothing.
pub(crate) const PLACES: usize = 1024;
/// How many places words may be in, from the one on that their number says.
const PROBES: usize = 8;

/// A call that sleeps. Zeros are nobody.
#[repr(C)]
pub(crate) struct Place {
    /// What it sleeps on.
    key: AtomicU64,
    /// One more than the descriptor that it has been left; zero is none.
    left: AtomicI32,
    /// Whose call it is.
    thread: AtomicU32,
}

/// A call holds a socket until this is dropped.
pub(crate) struct Hold(&'static Place);

/// What copies of a descriptor have in common, if there are words behind it.
fn key(word: Word) -> Option<u64> {
    (socket::kind(word) == Kind::Stream).then(|| key_of(socket::arena(word), socket::number(word)))
}

/// The same by the place of the words.
fn key_of(arena: u16, number: u32) -> u64 {
    u64::from(number) << 32 | u64::from(arena) << 8 | 1
}

/// Whether a descriptor's word stands for these words.
pub(crate) fn is_of(word: Word, arena: u16, number: u32) -> bool {
    key(word) == Some(key_of(arena, number))
}

fn places(key: u64) -> impl Iterator<Item = &'static Place> {
    let first = (key >> 32) as usize * PROBES;
    process::holds().into_iter().flat_map(move |all| (0..PROBES).map(move |nth| &all[(first + nth) % PLACES]))
}

impl Hold {
    /// A call is about to sleep on these words, behind `fd`. `None` if too many do.
    ///
    /// # Errors
    /// EBADF: the descriptor was closed since the call began.
    pub(crate) fn begin(fd: c_int, arena: u16, number: u32) -> Result<Option<Self>, Errno> {
        let key = key_of(arena, number);
        let own = thread::name();
        let enter = |place: &&Place| {
            let is_free = place.key.compare_exchange(0, key, Ordering::SeqCst, Ordering::Relaxed);
            is_free.is_ok() || is_free == Err(key) && place.thread.load(Ordering::Relaxed) == own
        };
        let hold = places(key).find(enter).map(Self);
        if let Some(hold) = &hold {
            hold.0.thread.store(own, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        let is_closed = table::get(fd).is_none_or(|word| self::key(word).is_some_and(|it| it != key));
        if is_closed { Err(Errno::BADF) } else { Ok(hold) }
    }

    /// Whether the descriptor was closed meanwhile, and the call has been left a copy.
    pub(crate) fn is_left(&self) -> bool {
        self.0.left.load(Ordering::SeqCst) != 0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.is(thread::name()) {
            end(self.0);
        }
    }
}

impl Place {
    /// Whether it is a call of this thread.
    fn is(&self, thread: u32) -> bool {
        self.thread.load(Ordering::SeqCst) == thread
    }
}

fn end(place: &Place) {
    place.thread.store(0, Ordering::SeqCst);
    place.key.store(0, Ordering::SeqCst);
    take_left(place);
}

/// Closes what a call was left, unless the program has taken its number in this moment: it closes it then.
fn take_left(place: &Place) {
    let left = place.left.swap(0, Ordering::SeqCst);
    if left != 0 && table::take_as(left - 1, socket::left()) {
        sys::close(left - 1);
    }
}

/// What a call was left has another number. Whether there is such a call.
pub(crate) fn moved(from: c_int, to: c_int) -> bool {
    let moves = |place: &Place| {
        place.left.compare_exchange(from + 1, to + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    };
    process::holds().is_some_and(|all| all.iter().any(moves))
}

/// The table knows `fd` no more, behind which `word` was, and it is about to be closed: leaves copies to the calls that sleep on it.
/// Whether there are any.
pub(crate) fn leave(fd: c_int, word: Word) -> bool {
    let Some(key) = key(word) else { return false };
    fence(Ordering::SeqCst);
    let mut leaves = false;
    let own = thread::name();
    for place in places(key).filter(|place| place.key.load(Ordering::SeqCst) == key) {
        if place.is(own) {
            end(place);
            continue;
        }
        let Ok(copy) = fcntl_dupfd_cloexec(sys::borrow(fd), 0)
            .map_err(drop)
            .and_then(|copy| session::hide_left(copy).map_err(drop))
        else {
            continue;
        };
        match place.left.compare_exchange(0, copy + 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => leaves = true,
            // It was left one by who closed another copy.
            Err(_) => session::close_hidden(copy),
        }
        // It may have returned meanwhile.
        if place.key.load(Ordering::SeqCst) != key {
            take_left(place);
        }
    }
    leaves
}
