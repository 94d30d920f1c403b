//! The listeners of an epoll set, for their accept queues. The kernel's set has them too, and tells of those connections that come by
//! messages.
//!
//! The set's waiter marks their queues with its slot, as it does streams, so the daemon rings its bell for what arrives while
//! somebody sleeps, and nobody waits for the listener's descriptor. A listener for which that cannot be is watched by whoever waits in
//! the kernel for the set, as often as there are such threads; so the daemon sends messages meanwhile. That is one where the waiter
//! has no slot of its own, and one of which a single set of many is to be told (`EPOLLEXCLUSIVE`), which the kernel chooses.
//!
//! Edges and one-shots are the kernel's business alone: of such a listener everything is told by messages, as of one in a set that
//! others watch. Those of a set that came by `fork` are such: parent and child would take each other's bells out of the kernel's set.
//! Used by `epoll.rs`, which holds the set.

use core::ffi::c_int;

use firelane_shm::AcceptQueue;
use libc::epoll_event;

use crate::table::{self, Word};
use crate::waiter::Waiter;
use crate::{accept_queue, process, session, socket};

/// More listeners of a set are told of by messages.
const MOST: usize = 16;

const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
/// What is not asked of a level.
const KERNELS: u32 = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;

#[derive(Clone, Copy)]
struct Listener {
    fd: c_int,
    word: Word,
    event: epoll_event,
    /// Whether its queue is watched as long as it is in the set.
    is_held: bool,
    /// What its queue is marked with; with zero it is watched by everybody who waits in the kernel.
    mark: u64,
}

impl Listener {
    /// How often it is watched by this set, in which so many threads wait in the kernel.
    fn watches(&self, asleep: u32) -> u32 {
        let by_sleepers = if self.mark == 0 { asleep } else { 0 };
        by_sleepers + u32::from(self.is_held)
    }

    fn asked(&self) -> u32 {
        self.event.events & READABLE
    }

    /// Whether connections wait of which the set is to tell. One that was closed past every hook is nobody's.
    fn has_some(&self) -> bool {
        let is_current = || table::get(self.fd).map(socket::shared) == Some(socket::shared(self.word));
        self.asked() != 0 && !self.is_held && accept_queue::has_some(self.word) && is_current()
    }
}

/// The listeners of a set.
pub(super) struct Listeners {
    all: [Option<Listener>; MOST],
    /// How many threads wait in the kernel.
    asleep: u32,
    /// Of which process they are: a child's copy of them is nobody.
    process: u32,
    /// Others watch the set, or have it too, so everything is told by messages.
    is_watched: bool,
}

impl Listeners {
    pub(super) const fn new() -> Self {
        Self { all: [None; MOST], asleep: 0, process: 0, is_watched: false }
    }

    /// What was asked of a listener in the kernel's set is this now. `waiter` is the set's, if it has one.
    pub(super) fn put(&mut self, fd: c_int, word: Word, event: epoll_event, waiter: Option<&Waiter>) {
        self.begin_anew();
        self.remove(fd);
        let Some(queue) = accept_queue::of(word) else { return };
        let is_held = self.is_watched || event.events & KERNELS != 0;
        let place = self.all.iter_mut().find(|place| place.is_none());
        let Some(place) = place else { return accept_queue::give_up(fd, word) };
        if is_held {
            accept_queue::end(fd, word);
        }
        let it = Listener { fd, word, event, is_held, mark: 0 };
        // Who asks nothing is not to be woken.
        let is_told = !is_held && it.asked() != 0 && event.events & libc::EPOLLEXCLUSIVE as u32 == 0;
        let mark = waiter.filter(|_| is_told).map_or(0, |waiter| waiter.mark(fd, word, queue));
        *place = Some(Listener { mark, ..it });
        if mark == 0 {
            (0..self.asleep).for_each(|_| queue.watch());
        }
    }

    /// Nothing is asked of it any more. Whether anything was.
    pub(super) fn remove(&mut self, fd: c_int) -> bool {
        let Some(place) = self.all.iter().position(|place| place.is_some_and(|it| it.fd == fd)) else {
            return false;
        };
        let gone = self.all[place].take();
        gone.iter().filter(|_| self.is_own()).for_each(|it| self.let_go(it));
        true
    }

    /// One that is in the set no more is neither marked nor watched by it.
    fn let_go(&self, gone: &Listener) {
        let Some(queue) = accept_queue::of(gone.word) else { return };
        (0..gone.watches(self.asleep)).for_each(|_| queue.unwatch());
        // A copy of its descriptor has the same queue and the same mark.
        let is_same = |it: &&Listener| accept_queue::of(it.word).is_some_and(|of| core::ptr::eq(of, queue));
        let still = self.all.iter().flatten().filter(is_same).fold(0, |marks, it| marks | it.mark);
        if gone.mark & !still != 0 {
            queue.unmark(gone.mark & !still);
        }
    }

    /// Those that wait, and what is marked, are not this process', which is the child of theirs; what is held its parent holds for
    /// itself, and this one from here on, too, with all the others.
    pub(super) fn begin_anew(&mut self) {
        if self.is_own() {
            return;
        }
        self.asleep = 0;
        self.process = session::own_process();
        for it in self.all.iter_mut().flatten() {
            self.is_watched = true;
            it.mark = 0;
            if core::mem::replace(&mut it.is_held, true) {
                accept_queue::of(it.word).into_iter().for_each(AcceptQueue::watch);
            } else {
                accept_queue::end(it.fd, it.word);
            }
        }
    }

    fn is_own(&self) -> bool {
        self.process == process::number()
    }

    /// The set is closed.
    pub(super) fn close(self) {
        let no_one = Self { all: [None; MOST], ..self };
        self.all.iter().flatten().filter(|_| self.is_own()).for_each(|it| no_one.let_go(it));
    }

    /// The accept queues of those that sleepers watch.
    fn unmarked(&self) -> impl Iterator<Item = &'static AcceptQueue> {
        self.all.iter().flatten().filter(|it| it.mark == 0).filter_map(|it| accept_queue::of(it.word))
    }

    /// The caller is about to wait in the kernel. Look once more first.
    pub(super) fn fall_asleep(&mut self) {
        self.begin_anew();
        self.unmarked().for_each(AcceptQueue::watch);
        self.asleep += 1;
    }

    /// He does not any more.
    pub(super) fn wake_up(&mut self) {
        if let Some(left) = self.asleep.checked_sub(1).filter(|_| self.is_own()) {
            self.unmarked().for_each(AcceptQueue::unwatch);
            self.asleep = left;
        }
    }

    /// Whether any thread of this process waits in the kernel.
    pub(super) fn is_any_asleep(&self) -> bool {
        self.asleep > 0 && self.is_own()
    }

    /// Others watch the set from now on.
    pub(super) fn is_watched(&mut self) {
        if !self.is_watched {
            self.is_watched = true;
            for it in self.all.iter_mut().flatten().filter(|it| !it.is_held) {
                accept_queue::end(it.fd, it.word);
                it.is_held = true;
            }
        }
    }

    /// Whether somebody waits in the kernel while connections wait here.
    pub(super) fn wants_a_bell(&self) -> bool {
        self.asleep > 0 && self.has_some()
    }

    /// Whether connections wait in any of the queues.
    pub(super) fn has_some(&self) -> bool {
        self.all.iter().flatten().any(Listener::has_some)
    }

    /// Tells of those where connections wait, as far as there is room; how many.
    pub(super) fn tell(&self, events: &mut [epoll_event]) -> usize {
        let ready = self.all.iter().flatten().filter(|it| it.has_some());
        let mut count = 0;
        for (it, place) in ready.zip(events) {
            *place = epoll_event { events: it.asked(), u64: it.event.u64 };
            count += 1;
        }
        count
    }

    /// Whether an event of the kernel's set is that of a listener that was told already.
    pub(super) fn is_told(&self, event: &epoll_event, told: &[epoll_event]) -> bool {
        let data = event.u64;
        let is_its = |it: &Listener| it.event.u64 == data;
        self.all.iter().flatten().any(is_its) && told.iter().any(|it| it.u64 == data)
    }
}
