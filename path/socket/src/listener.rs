//! A listening socket: one accept queue that every lane fills.
//!
//! A SYN makes its connection in the lane where it arrived, so a listener is never a bottleneck; what the
//! lanes share is this queue and a count. With the backlog full, SYNs and the last ACKs of handshakes are dropped,
//! and their senders try again; lanes that finish handshakes at the same moment find [`HALF_OPEN_MAX`] places more.

use core::iter::once;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use firelane_frame::{MpscRing, RingArena};

use firelane_units::{LaneId, NetstackId};

use crate::stream::{stream, stream_in};
use crate::{AnyEnd, Flags, Names, Ready, Shared, SocketToken, StreamConfig, StreamEnd, StreamSlot, Words};

/// Places beside the backlog, for handshakes that end in several lanes at once.
pub const HALF_OPEN_MAX: usize = 1024;

/// How often a listener's queue may grow: from the places of the least backlog to those of 65,536, each time to twice as many or more.
const GROWTHS: usize = 6;

/// A connection that an application may take.
#[derive(Debug)]
pub struct Accepted<End = StreamEnd> {
    /// Its rings.
    pub stream: End,
    /// Its addresses.
    pub names: Names,
}

#[derive(Debug)]
struct Queue {
    words: Shared,
    /// Where its connections have their rings, if not in this process' own memory.
    arena: Option<Arc<RingArena>>,
    finished: Ring,
    /// Larger ones, of which each took the place of the one before it when the backlog grew.
    larger: [OnceLock<Box<Ring>>; GROWTHS],
    /// Finished connections that nobody has accepted.
    waiting: AtomicUsize,
    backlog: AtomicUsize,
    closed: AtomicBool,
}

type Ring = MpscRing<Accepted<AnyEnd>>;

impl Queue {
    /// Its rings, by the order in which what they hold came.
    fn rings(&self) -> impl Iterator<Item = &Ring> {
        once(&self.finished).chain(self.larger.iter().map_while(|ring| ring.get().map(|ring| &**ring)))
    }

    /// The one that is filled.
    fn last(&self) -> &Ring {
        self.rings().last().unwrap_or(&self.finished)
    }

    fn pop(&self) -> Option<Accepted<AnyEnd>> {
        self.rings().find_map(MpscRing::pop)
    }

    fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Acquire)
    }
}

/// Makes a listener's two sides, for at most `backlog` finished connections.
pub fn listener(backlog: usize) -> (ListenerEnd, ListenerSlot) {
    make(backlog, None)
}

/// The same for an application in another process: its connections have their rings in `arena`.
pub fn listener_in(arena: Arc<RingArena>, backlog: usize) -> (ListenerEnd, ListenerSlot) {
    make(backlog, Some(arena))
}

fn make(backlog: usize, arena: Option<Arc<RingArena>>) -> (ListenerEnd, ListenerSlot) {
    let backlog = backlog.max(1);
    let queue = Arc::new(Queue {
        words: Shared::default(),
        arena,
        finished: MpscRing::new(backlog + HALF_OPEN_MAX),
        larger: [const { OnceLock::new() }; GROWTHS],
        waiting: AtomicUsize::new(0),
        backlog: AtomicUsize::new(backlog),
        closed: AtomicBool::new(false),
    });
    (ListenerEnd { queue: Arc::clone(&queue) }, ListenerSlot { queue })
}

/// The application's side. Dropping it closes the listener; connections that nobody accepted are dropped
/// with it, and the lanes abort them when they are told.
#[derive(Debug)]
pub struct ListenerEnd {
    queue: Arc<Queue>,
}

impl ListenerEnd {
    /// The connection that has waited longest, of a listener of this process.
    pub fn accept(&self) -> Option<Accepted> {
        let Accepted { stream, names } = self.accept_any()?;
        match stream {
            AnyEnd::Here(stream) => Some(Accepted { stream, names }),
            AnyEnd::There(_) => {
                unreachable!("its connections are all of one kind, and this is not its application")
            }
        }
    }

    /// The connection that has waited longest.
    pub fn accept_any(&self) -> Option<Accepted<AnyEnd>> {
        let accepted = self.queue.pop()?;
        self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
        accepted.stream.shared().words().set_flags(Flags::ACCEPTED);
        Some(accepted)
    }

    /// How many connections wait.
    pub fn waiting(&self) -> usize {
        self.queue.waiting.load(Ordering::Acquire)
    }

    /// How many may wait.
    pub fn backlog(&self) -> usize {
        self.queue.backlog()
    }

    /// From now on so many may wait; those that wait already stay. One caller at a time.
    pub fn set_backlog(&self, backlog: usize) {
        let (queue, backlog) = (&*self.queue, backlog.max(1));
        if queue.last().capacity() < backlog.saturating_add(HALF_OPEN_MAX)
            && let Some(larger) = queue.larger.iter().find(|ring| ring.get().is_none())
        {
            larger.get_or_init(|| Box::new(MpscRing::new(backlog + HALF_OPEN_MAX)));
        }
        let places = queue.last().capacity() - HALF_OPEN_MAX;
        queue.backlog.store(backlog.min(places), Ordering::Release);
    }

    /// Whether its netstack is gone, so that no connection comes any more.
    pub fn is_over(&self) -> bool {
        self.words().flags().contains(Flags::CLOSED)
    }

    /// Interest and token.
    pub fn words(&self) -> Words<'_> {
        self.queue.words.words()
    }
}

impl Drop for ListenerEnd {
    fn drop(&mut self) {
        self.queue.closed.store(true, Ordering::Release);
        while self.accept_dropped() {}
    }
}

impl ListenerEnd {
    fn accept_dropped(&self) -> bool {
        let dropped = self.queue.pop().is_some();
        if dropped {
            self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        dropped
    }
}

/// Nobody accepts the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenerClosed;

/// A lane's side; each lane has a clone.
#[derive(Clone, Debug)]
pub struct ListenerSlot {
    queue: Arc<Queue>,
}

impl ListenerSlot {
    /// Whether a handshake may begin or end.
    pub fn has_room(&self) -> bool {
        let queue = &*self.queue;
        !queue.closed.load(Ordering::Acquire) && queue.waiting.load(Ordering::Acquire) < queue.backlog()
    }

    /// A connection is established. Answers the application to tell, if one waits.
    /// With the listener closed, or all places taken, the connection's application side is dropped, and the lane aborts it.
    pub fn finish(&self, accepted: Accepted<AnyEnd>) -> Result<Option<SocketToken>, ListenerClosed> {
        let queue = &*self.queue;
        if queue.closed.load(Ordering::Acquire) {
            return Err(ListenerClosed);
        }
        queue.waiting.fetch_add(1, Ordering::AcqRel);
        if queue.last().push(accepted).is_err() {
            queue.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(ListenerClosed);
        }
        Ok(queue.words.words().tell(Ready::READABLE))
    }

    /// Nobody listens any more: the netstack ends. Answers the application to tell, if one waits.
    pub fn end(&self) -> Option<SocketToken> {
        let words = self.queue.words.words();
        words.set_flags(Flags::CLOSED);
        words.tell(Ready::ALL)
    }

    /// Makes the two sides of a connection where this listener's are; `None` if there is no place for them.
    pub fn stream(
        &self,
        rings: StreamConfig,
        lane: LaneId,
        netstack: NetstackId,
    ) -> Option<(AnyEnd, StreamSlot)> {
        match &self.queue.arena {
            None => {
                let (end, slot) = stream(rings, lane, netstack);
                Some((AnyEnd::Here(end), slot))
            }
            Some(arena) => {
                let (end, slot) = stream_in(arena, rings, lane, netstack)?;
                Some((AnyEnd::There(end), slot))
            }
        }
    }

    /// How much of a receive ring of this capacity a connection may promise before it is made: all, unless little memory is left
    /// where this listener's are.
    pub fn foreseen(&self, capacity: usize) -> usize {
        self.queue.arena.as_ref().map_or(capacity, |arena| arena.foreseen(capacity))
    }

    /// How many connections wait.
    pub fn waiting(&self) -> usize {
        self.queue.waiting.load(Ordering::Acquire)
    }

    /// How many may wait.
    pub fn backlog(&self) -> usize {
        self.queue.backlog()
    }

    /// Whether the application closed it.
    pub fn is_closed(&self) -> bool {
        self.queue.closed.load(Ordering::Acquire)
    }

    /// Whether both are clones of one listener's.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(port: u16) -> Accepted<AnyEnd> {
        let (stream, _) = stream(StreamConfig::default(), LaneId(0), NetstackId(0));
        let local = ([10, 0, 0, 1], 80).into();
        Accepted {
            stream: AnyEnd::Here(stream),
            names: Names { local, remote: ([10, 0, 0, 2], port).into() },
        }
    }

    #[test]
    fn connections_are_accepted_in_order_and_the_waiter_is_told() {
        let (app, lane) = listener(2);
        app.words().set_token(SocketToken(9));
        app.words().wait_for(Ready::READABLE);
        assert_eq!(lane.finish(finished(1)).unwrap(), Some(SocketToken(9)));
        assert_eq!(lane.clone().finish(finished(2)).unwrap(), None);
        assert_eq!(app.accept().unwrap().names.remote.port(), 1);
        assert_eq!(app.accept().unwrap().names.remote.port(), 2);
        assert!(app.accept().is_none());
    }

    #[test]
    fn a_full_backlog_has_no_room_but_places_for_a_race() {
        let (app, lane) = listener(1);
        assert!(lane.has_room());
        assert!(lane.finish(finished(1)).is_ok());
        assert!(!lane.has_room(), "one waits, and the backlog is one");
        assert!(lane.finish(finished(2)).is_ok(), "another lane was faster");
        drop((app.accept(), app.accept()));
        assert!(lane.has_room());
    }

    #[test]
    fn the_queue_has_an_end() {
        let (app, lane) = listener(1);
        let mut places = 0;
        while lane.finish(finished(1)).is_ok() {
            places += 1;
        }
        assert!(places > HALF_OPEN_MAX, "{places}");
        assert_eq!(app.waiting(), places);
    }

    #[test]
    fn a_backlog_that_changes_holds_for_what_comes_then() {
        let (app, lane) = listener(2);
        for port in 0..2 {
            assert!(lane.finish(finished(port)).is_ok());
        }
        assert!(!lane.has_room());
        for (backlog, has_room) in [(3, true), (1, false), (0, false), (4000, true), (9000, true)] {
            app.set_backlog(backlog);
            assert_eq!((lane.backlog(), lane.has_room()), (backlog.max(1), has_room));
        }
        // Wherever they wait.
        let mut count = 2;
        while lane.has_room() {
            assert!(lane.finish(finished(count)).is_ok());
            count += 1;
        }
        assert_eq!((count, app.waiting()), (9000, 9000));
        app.set_backlog(7);
        assert!((0..count).all(|port| app.accept().unwrap().names.remote.port() == port));
        assert!(app.accept().is_none() && lane.has_room());
    }

    #[test]
    fn a_listener_that_closes_drops_what_waits_wherever_it_does() {
        let (app, lane) = listener(1);
        for (backlog, port) in [(1, 1), (4000, 2), (9000, 3)] {
            app.set_backlog(backlog);
            assert!(lane.finish(finished(port)).is_ok());
        }
        drop(app);
        assert_eq!(lane.waiting(), 0);
    }

    #[test]
    fn a_closed_listener_takes_nothing() {
        let (app, lane) = listener(4);
        drop(app);
        assert!(lane.is_closed() && !lane.has_room());
        assert_eq!(lane.finish(finished(1)), Err(ListenerClosed));
    }
}
