//! The sets that a set has inside it, with what is wanted of each, for the events that tell of one in vain.
//!
//! The kernel watches their descriptors and names an event by the program's data alone. So what has a set's data is
//! looked at: it is told if one of the sets with these data has something to tell. Used by `epoll.rs` alone.

use core::ffi::c_int;

use libc::epoll_event;

use crate::socket;
use crate::sys;
use crate::table::{self, Word};

/// How many are known; the kernel's word is taken for more.
const NESTED_MAX: usize = 16;

/// A set inside.
#[derive(Clone, Copy)]
struct Inside {
    fd: c_int,
    word: Word,
    event: epoll_event,
}

/// The sets inside a set.
#[derive(Clone, Copy)]
pub(super) struct Nested([Option<Inside>; NESTED_MAX]);

impl Nested {
    pub(super) const fn new() -> Self {
        Self([None; NESTED_MAX])
    }

    /// The kernel has done what `epoll_ctl` was asked for.
    pub(super) fn changed(&mut self, what: c_int, fd: c_int, word: Word, event: epoll_event) {
        let known = self.0.iter_mut().find(|it| it.is_some_and(|it| it.fd == fd));
        let wanted = (what != libc::EPOLL_CTL_DEL).then_some(Inside { fd, word, event });
        // One that the kernel has dropped with its descriptor gives its place to the next.
        let is_gone = |it: &Option<Inside>| it.is_none_or(|it| !it.is_current());
        let place = if known.is_some() { known } else { self.0.iter_mut().find(|it| is_gone(it)) };
        if let Some(place) = place {
            *place = wanted;
        }
    }

    /// Whether one of those that are looked at has something to tell.
    pub(super) fn has_something(&self, has_something: impl Fn(Word) -> bool) -> bool {
        self.0.iter().flatten().any(|it| {
            let is_wanted = it.event.events & libc::EPOLLIN as u32 != 0;
            is_wanted && it.is_current() && has_something(it.word)
        })
    }

    /// Whether an event that `epoll` has told is not that of a set with nothing to tell.
    pub(super) fn is_worth_telling(
        &self,
        epoll: c_int,
        event: &epoll_event,
        has_something: impl Fn(Word) -> bool,
    ) -> bool {
        let mut own =
            self.0.iter().flatten().filter(|it| it.event.u64 == event.u64 && it.is_current()).peekable();
        if own.peek().is_none() || own.clone().any(|it| has_something(it.word)) {
            return true;
        }
        // The kernel tells of these once, and takes this for it.
        for it in own.filter(|it| it.event.events & libc::EPOLLONESHOT as u32 != 0) {
            let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, it.fd, it.event);
        }
        false
    }
}

impl Inside {
    fn is_current(&self) -> bool {
        table::get(self.fd).map(socket::shared) == Some(socket::shared(self.word))
    }
}
