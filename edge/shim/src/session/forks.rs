//! What is done around `fork`: nobody is in the middle of putting sockets in their places, and the child has none of the
//! hidden descriptors of its parent's. Owned by `session.rs`.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};

use super::{SESSION, Session, close_hidden, own_begin};
use crate::kept::{self, Passing};
use crate::lock::Guard;
use crate::table::Word;
use crate::{pool, socket, sys, table};

thread_local! {
    /// Held by a thread that forks, while it does.
    static FORKING: RefCell<Option<(Guard<'static, Option<Session>>, Passing)>> = const { RefCell::new(None) };
}

/// Sees to it that a forked child has no hidden descriptors of its parent's sockets. Whether that could be done.
pub(super) fn watches_forks() -> bool {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    IS_DONE.load(Ordering::Relaxed)
        || sys::at_fork(before_fork, after_fork, begin_child).is_ok_and(|()| {
            // Two threads at once: what is done twice does no harm.
            IS_DONE.store(true, Ordering::Relaxed);
            true
        })
}

/// Nobody else is in the middle of putting sockets in their places.
extern "C" fn before_fork() {
    let _ = FORKING.try_with(|held| {
        if held.borrow().is_none() {
            // Who passes tells the daemon what it has not heard.
            let passing = Passing::begin();
            let session = SESSION.take();
            // The child may end before this call does.
            session.ignore_children();
            held.replace(Some((session, passing)));
        }
    });
}

extern "C" fn after_fork() {
    let _ = FORKING.try_with(|held| held.take());
}

extern "C" fn begin_child() {
    pool::forget();
    kept::forget_all();
    // Another thread of the parent was about to give one to the program, and no place had it.
    close_own(socket::spare());
    // Calls of the parent's threads sleep on, and are not here.
    close_own(socket::left());
    after_fork();
}

/// Closes the library's own descriptors that have this word.
pub(super) fn close_own(word: Word) {
    table::ours_from(own_begin()).filter(|&fd| table::get(fd) == Some(word)).for_each(close_hidden);
}
