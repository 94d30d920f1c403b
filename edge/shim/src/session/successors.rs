//! A daemon that follows one which is gone: who wants something new begins a session with it. What this process had of the first stays dead, and
//! every call on that says so. Owned by `session.rs`.
//!
//! Each daemon counts its arenas, sessions and segments from one. So what is known of a daemon is told apart by its *era*: how many daemons this
//! process, or a parent of it, has had before. Sockets without words have it in the table; those with words lie in an arena that is buried.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;

use super::{
    AHEAD, ATTACHED, CONTROL, SESSION, Session, begin, begun, close_hidden, connected, is_dead,
    leave_parents, look_for_death, second, taken_up,
};
use crate::standard_error::say_once;
use crate::wanted::wanted;
use crate::{arenas, confining, kept, pool, process};

static ERA: AtomicU32 = AtomicU32::new(0);

/// Which daemon is the one of now.
#[inline]
pub(crate) fn era() -> u16 {
    ERA.load(Ordering::SeqCst) as u16
}

/// This process wants something new: if its daemon is gone, of the one that has followed. It has a session from here on.
///
/// # Errors
/// ENETDOWN: none has. Or that one refuses this program.
#[inline]
pub(crate) fn begin_again() -> Result<(), Errno> {
    if is_time_to_look() {
        look_for_death();
    }
    match is_dead() {
        true => begin_with_next(),
        false if process::has_session() => Ok(()),
        false => begun().map(drop),
    }
}

/// Whoever has done nothing for long has not noticed. Once a second somebody looks.
fn is_time_to_look() -> bool {
    static LOOKED: AtomicU64 = AtomicU64::new(0);
    let now = second();
    LOOKED.load(Ordering::Relaxed) != now && {
        LOOKED.store(now, Ordering::Relaxed);
        !confining::is_confined()
    }
}

#[cold]
fn begin_with_next() -> Result<(), Errno> {
    // A child that borrows memory becomes another program, and who is confined may not ask.
    let may_ask = !process::is_borrowed() && !confining::is_confined();
    let wanted = wanted().filter(|_| may_ask).ok_or(Errno::NETDOWN)?;
    let mut session = SESSION.take();
    if !is_dead() {
        // Another thread was here.
        return Ok(());
    }
    let control = connected(wanted)?;
    // First: whoever keeps something of the first daemon meanwhile sees that, or it is found.
    ERA.fetch_add(1, Ordering::SeqCst);
    if process::has_session() {
        bury(session.take());
    } else {
        leave_parents(session.take());
    }
    bury_arenas()?;
    *session = Some(taken_up(begin(wanted, Some(control)))?);
    Ok(())
}

/// What there is from here on is another daemon's. A child has let go of what its parent had.
pub(super) fn follow() -> Result<(), Errno> {
    ERA.fetch_add(1, Ordering::SeqCst);
    bury_arenas()
}

fn bury_arenas() -> Result<(), Errno> {
    if arenas::bury() {
        return Ok(());
    }
    say_once("this program has seen too many daemons come and go: start it anew");
    Err(Errno::NETDOWN)
}

/// Lets go of what this process has of a daemon that is gone. Other threads may be in the middle of calls.
fn bury(session: Option<Session>) {
    // None of them is given out, and all are closed.
    [false, true].into_iter().for_each(|is_v6| _ = pool::take(is_v6));
    kept::forget_all();
    process::clear_session();
    AHEAD.store(false, Ordering::Relaxed);
    ATTACHED.store(0, Ordering::Relaxed);
    CONTROL.store(-1, Ordering::Relaxed);
    session.into_iter().for_each(|session| close_hidden(session.control));
}
