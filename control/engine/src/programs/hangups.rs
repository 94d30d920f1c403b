//! Descriptors of programs that have hung up and that the hub has yet to look at. A listener among them is there for lanes, but its
//! program has closed it: whoever connects then is to be refused, as he is by the kernel.
//!
//! A program that connects by a block that it was offered asks nobody (`offers.rs`), so whoever begins the connection for it looks here
//! first: there is one system call for that, and whoever ends as a process is found by it, too. With something there he leaves the
//! connection to the hub, which closes what has hung up, and begins it then. Who has begun one looks for the next when he has nothing
//! else to do, so that no connection waits for that; such a look is good for [`FRESH`]. A program that closes a listener asks for
//! its next connection there by a question, so nobody finds his own listener. Used by `mod.rs` and `hub.rs`.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use firelane_units::Instant;
use rustix::event::{Timespec, epoll};

/// Events of one look: a bell, listeners that have room again, and something that has hung up.
const EVENTS: usize = 16;

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

/// What the hub's set says, for who may not wait for the hub.
#[derive(Debug, Default)]
pub(super) struct Hangups {
    /// The hub's set; none as long as there is no hub.
    set: RwLock<Option<OwnedFd>>,
    /// The hub has taken out what has hung up and is ending it.
    is_looking: AtomicBool,
    /// Connections were left to the hub.
    is_held: AtomicBool,
}

impl Hangups {
    /// The hub has this set.
    pub(super) fn are_in(&self, set: Option<OwnedFd>) {
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = set;
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
        let holds = are_there() || self.is_looking.load(Ordering::SeqCst);
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
        let set = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let Some(set) = &*set else { return false };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let hung_up = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        // With so many events that others may be behind them the hub is better asked.
        epoll::wait(set.as_fd(), &mut events, Some(&now)).is_ok_and(|(events, rest)| {
            let has_hung_up = |event: &epoll::Event| {
                let flags = event.flags;
                flags.intersects(hung_up)
            };
            rest.is_empty() || events.iter().any(has_hung_up)
        })
    }

    /// The hub takes out what has hung up, with `look`.
    pub(super) fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        self.is_looking.store(true, Ordering::SeqCst);
        look()
    }

    /// Whether it has some in hand.
    pub(super) fn is_ending(&self) -> bool {
        self.is_looking.load(Ordering::Relaxed)
    }

    /// The hub has ended all that it has taken out.
    pub(super) fn have_ended(&self) {
        self.is_looking.store(false, Ordering::SeqCst);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::pairs::Pair;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn who_begins_a_connection_finds_what_has_hung_up_until_it_has_ended() {
        let hangups = Hangups::default();
        assert!(!hangups.holds(), "there is no hub");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        hangups.are_in(Some(set.try_clone().unwrap()));
        let bell = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        epoll::add(&set, &bell, epoll::EventData::new_u64(9), epoll::EventFlags::IN).unwrap();
        let Pair { ours, theirs, .. } = Pair::new(&set).unwrap();
        assert!(!hangups.holds() && !hangups.are_held(), "a bell is no hang-up");
        drop(theirs);
        assert!(hangups.holds() && hangups.holds(), "a look changes nothing");
        hangups.look(|| drop(ours));
        assert!(hangups.holds(), "it has yet to end");
        hangups.have_ended();
        assert!(!hangups.holds() && hangups.take_held() && !hangups.take_held());
        let pairs: Vec<Pair> = (0..EVENTS).map(|_| Pair::new(&set).unwrap()).collect();
        for pair in &pairs {
            let out = epoll::EventFlags::OUT;
            epoll::modify(&set, &pair.ours, epoll::EventData::new_u64(1), out).unwrap();
        }
        assert!(hangups.holds(), "there may be more than were seen");
    }
    #[test]
    fn a_look_that_was_taken_ahead_counts_for_a_moment() {
        let hangups = Hangups::default();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        hangups.are_in(Some(set.try_clone().unwrap()));
        let Pair { ours: _ours, theirs, .. } = Pair::new(&set).unwrap();
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
        hangups.look(|| ());
        looked.nothing.set(Some(late));
        assert!(hangups.holds_now(&looked, late), "the hub has it in hand");
    }
}
