//! Accept queues as this process uses them: it looks there first, and whoever waits for many sockets marks its queue with his slot.
//! Who has none, or waits in the kernel for a listener alone, watches the queue meanwhile.
//!
//! Used by `accept` (`listener.rs`), by `poll`, and by epoll sets (`epoll/listeners.rs`).

use core::ffi::c_int;

use firelane_shm::AcceptQueue;

use crate::socket::{self, Held, Kind};
use crate::table::Word;
use crate::waiter::Waiter;
use crate::{arenas, process, session};

/// So many listeners of one `poll` are watched while it waits.
const WATCHED: usize = 16;

/// The accept queue of a listener, if it has one.
#[inline]
pub(crate) fn of(word: Word) -> Option<&'static AcceptQueue> {
    if socket::kind(word) != Kind::Listener || !socket::is_queued(word) {
        return None;
    }
    arenas::get(socket::arena(word))?.accept_queue(socket::number(word))
}

/// Whether connections wait there.
pub(crate) fn has_some(word: Word) -> bool {
    of(word).is_some_and(|queue| !queue.is_empty())
}

/// From now on, until the caller unwatches the queue, all connections of a listener are told by messages, for somebody may wait in the
/// kernel of whom nobody here knows.
pub(crate) fn end(fd: c_int, word: Word) {
    let Some(queue) = of(word) else { return };
    queue.watch();
    take_back(fd, word, queue);
}

/// The same for as long as the listener is open.
pub(crate) fn give_up(fd: c_int, word: Word) {
    let Some(queue) = of(word) else { return };
    queue.give_up();
    take_back(fd, word, queue);
}

fn take_back(fd: c_int, word: Word, queue: &AcceptQueue) {
    if !queue.is_empty() {
        // The daemon looks, and takes back what waits there. If it is gone, so is the listener.
        let _ = session::is_watched(&Held { fd, word });
    }
}

/// Nothing waits there any more: who has taken it does nothing with it.
pub(crate) fn drain(word: Word) {
    let Some(queue) = of(word) else { return };
    queue.give_up();
    while queue.take().is_some() {}
}

/// A queue with somebody who waits.
#[derive(Clone, Copy)]
struct Watched {
    queue: &'static AcceptQueue,
    /// The slot by which he is told; zero is none, so he watches.
    mark: u64,
}

/// Who waits: some queues are marked or watched for him until this is dropped.
pub(crate) struct Watching {
    queues: [Option<Watched>; WATCHED],
    count: usize,
    /// A signal handler may fork, and the child of that is not who waits.
    process: u32,
}

impl Watching {
    /// Nobody's as yet.
    pub(crate) fn none() -> Self {
        Self { queues: [None; WATCHED], count: 0, process: session::own_process() }
    }

    /// One queue's, which its caller watches in the kernel.
    pub(crate) fn one(queue: &'static AcceptQueue) -> Self {
        let mut watching = Self::none();
        queue.watch();
        (watching.queues[0], watching.count) = (Some(Watched { queue, mark: 0 }), 1);
        watching
    }

    /// A listener's, too, for a waiter, or for who has none. Look once more before you wait.
    pub(crate) fn add(&mut self, fd: c_int, word: Word, waiter: Option<&Waiter>) {
        let Some(queue) = of(word) else { return };
        match self.queues.get_mut(self.count) {
            Some(place) => {
                let mark = waiter.map_or(0, |waiter| waiter.mark(fd, word, queue));
                if mark == 0 {
                    queue.watch();
                }
                *place = Some(Watched { queue, mark });
                self.count += 1;
            }
            None => give_up(fd, word),
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.process != process::number() {
            return;
        }
        for Watched { queue, mark } in self.queues.iter().take(self.count).flatten() {
            match mark {
                0 => queue.unwatch(),
                _ => queue.unmark(*mark),
            }
        }
    }
}
