//! Listeners that have hung up and that the hub has yet to look at: they are there for lanes, but their programs have closed them, and
//! whoever connects there is to be refused, as he is by the kernel. Their ends have a set of their own beside the hub's, for whatever else
//! hangs up, as all sockets of a program that ends, holds up nobody's connection.
//!
//! A program that connects by a block that it was offered asks nobody (`offers.rs`), so whoever begins the connection for it looks here
//! first: there is one system call for that, and whoever ends as a process is found by it, too. With something there he leaves the
//! connection to the hub, which closes what has hung up, and begins it then. Who has begun one looks for the next when he has nothing
//! else to do, so that no connection waits for that; such a look is good for [`FRESH`]. A program that closes a listener asks for
//! its next connection there by a question, so nobody finds his own listener. Used by `mod.rs` and `hub.rs`.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use firelane_shm::control::SocketId;
use firelane_units::Instant;
use rustix::event::{Timespec, epoll};

/// Events of one look of the hub.
const EVENTS: usize = 256;

/// How long a look counts that was taken ahead: less than the end of a process takes between its descriptors and its parent's
/// hearing of it.
const FRESH: Duration = Duration::from_micros(10);

/// What a worker's last look has said.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// When nothing had hung up.
    nothing: Cell<Option<Instant>>,
    /// A connection was begun then, and the next may come soon.
    begun: Cell<Option<Instant>>,
}

/// What listeners' ends say, for the hub, and for who may not wait for it.
#[derive(Debug, Default)]
pub(super) struct Hangups {
    /// Their set; none as long as there is no hub.
    set: RwLock<Option<OwnedFd>>,
    /// The hub is ending some.
    is_ending: AtomicBool,
    /// Connections were left to the hub.
    is_held: AtomicBool,
}

impl Hangups {
    /// There is a hub.
    pub(super) fn begin(&self) -> io::Result<()> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = Some(set);
        Ok(())
    }

    /// There is none any more.
    pub(super) fn end(&self) {
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn set(&self) -> RwLockReadGuard<'_, Option<OwnedFd>> {
        self.set.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A socket is to listen, whose end and name these are.
    pub(super) fn add(&self, ours: &OwnedFd, name: SocketId) -> io::Result<()> {
        let set = self.set();
        let Some(set) = &*set else { return Ok(()) };
        Ok(epoll::add(set, ours, epoll::EventData::new_u64(name.0), epoll::EventFlags::empty())?)
    }

    /// It does not, or is about to be closed.
    pub(super) fn remove(&self, ours: &OwnedFd) {
        if let Some(set) = &*self.set() {
            let _ = epoll::delete(set, ours);
        }
    }

    /// The hub ends those that have hung up, as many as it finds in one look.
    pub(super) fn end_all(&self, end: impl FnMut(SocketId)) {
        let found = self.set().as_ref().map(told).unwrap_or_default();
        // They leave the set when they end, and not before.
        if !found.is_empty() {
            self.is_ending.store(true, Ordering::SeqCst);
            found.into_iter().map(|(name, _)| SocketId(name)).for_each(end);
            self.is_ending.store(false, Ordering::SeqCst);
        }
    }

    /// Whether a connection must be left to the hub, which the caller wakes then.
    pub(super) fn holds(&self) -> bool {
        self.holds_if(|| self.are_there())
    }

    /// The same for a worker, who may have looked ahead.
    pub(super) fn holds_now(&self, looked: &Looked, now: Instant) -> bool {
        // A look is good for one connection: a turn's clock stands still, and what takes its time is other connections.
        let is_fresh = looked.nothing.take().is_some_and(|at| now.saturating_since(at) < FRESH);
        let holds = self.holds_if(|| !is_fresh && self.are_there());
        looked.begun.set((!holds).then_some(now));
        holds
    }

    fn holds_if(&self, are_there: impl FnOnce() -> bool) -> bool {
        // In this order: what has left the set is in the hub's hands, or has ended. The other way round it may leave it between the looks.
        let holds = are_there() || self.is_ending.load(Ordering::SeqCst);
        if holds {
            self.is_held.store(true, Ordering::SeqCst);
        }
        holds
    }

    /// A worker that has nothing to do looks ahead for the connection that comes next. It counts from when the last was begun, which
    /// costs no clock.
    pub(super) fn look_ahead(&self, looked: &Looked) {
        if let Some(at) = looked.begun.take() {
            looked.nothing.set((!self.are_there()).then_some(at));
        }
    }

    fn are_there(&self) -> bool {
        let set = self.set();
        let Some(set) = &*set else { return false };
        let mut event = [const { std::mem::MaybeUninit::uninit() }; 1];
        epoll::wait(set, &mut event, Some(&AT_ONCE)).is_ok_and(|(events, _)| !events.is_empty())
    }

    /// Whether connections were left to the hub.
    pub(super) fn are_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// The same for the hub, which begins them now.
    pub(super) fn take_held(&self) -> bool {
        self.are_held() && self.is_held.swap(false, Ordering::SeqCst)
    }
}

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What a set tells in one look, by its keys.
pub(super) fn told(set: &OwnedFd) -> Vec<(u64, epoll::EventFlags)> {
    let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
    match epoll::wait(set, &mut events, Some(&AT_ONCE)) {
        Ok((events, _)) => events.iter().map(|event| (event.data.u64(), event.flags)).collect(),
        // A signal; whoever waits comes again.
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::pairs::Pair;

    /// A hub's, and the ends of a socket that listens and of one that does not.
    fn begun() -> (Hangups, [Pair; 2], OwnedFd) {
        let hangups = Hangups::default();
        hangups.begin().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let pairs = [(); 2].map(|()| Pair::new(&set).unwrap());
        hangups.add(&pairs[0].ours, pairs[0].name).unwrap();
        (hangups, pairs, set)
    }

    #[test]
    fn who_begins_a_connection_finds_listeners_that_have_hung_up_until_they_have_ended() {
        assert!(!Hangups::default().holds(), "there is no hub");
        let (hangups, [listener, other], set) = begun();
        drop(other.theirs);
        assert_eq!(told(&set).len(), 1);
        assert!(!hangups.holds() && !hangups.are_held(), "what hangs up is no listener");
        drop(listener.theirs);
        assert!(hangups.holds() && hangups.holds(), "a look changes nothing");
        let mut ours = Some(listener.ours);
        hangups.end_all(|name| {
            assert_eq!(name, listener.name);
            hangups.remove(&ours.take().unwrap());
            assert!(hangups.holds(), "it has yet to end");
        });
        assert!(ours.is_none() && !hangups.holds() && hangups.take_held() && !hangups.take_held());
        hangups.end_all(|name| panic!("{name:?} has ended"));
        hangups.end();
        assert!(hangups.add(&other.ours, other.name).is_ok() && !hangups.holds(), "there is no hub");
    }

    #[test]
    fn a_look_that_was_taken_ahead_counts_for_a_moment() {
        let (hangups, [Pair { ours, theirs, .. }, _], _set) = begun();
        let (looked, begin) = (Looked::default(), Instant::from_secs(1));
        let late = begin + (FRESH - Duration::from_nanos(1));
        hangups.look_ahead(&looked);
        assert_eq!(looked.nothing.get(), None, "nothing was begun");
        assert!(!hangups.holds_now(&looked, begin));
        hangups.look_ahead(&looked);
        drop(theirs);
        assert!(!hangups.holds_now(&looked, late), "it was looked for that a moment ago");
        assert!(hangups.holds_now(&looked, late), "that was good for one connection");
        looked.begun.set(Some(late));
        hangups.look_ahead(&looked);
        assert!(hangups.holds_now(&looked, late) && hangups.are_held(), "it was seen ahead");
        hangups.look_ahead(&looked);
        assert!(hangups.holds_now(&looked, late), "nothing was begun that would have it looked for");
        let other = Looked::default();
        assert!(hangups.holds_now(&other, late), "another worker looks for himself");
        hangups.end_all(|_| {
            hangups.remove(&ours);
            looked.nothing.set(Some(late));
            assert!(hangups.holds_now(&looked, late), "the hub has it in hand");
        });
    }
}
