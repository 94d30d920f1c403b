//! Many sockets, one place to wait: what epoll is for descriptors.
//!
//! A program that serves many connections from one thread asks a [`Poller`] which of them have become ready,
//! instead of asking each. Events are edges, as with `EPOLLET`: one comes when something new has arrived since the
//! last, so a program reads until nothing is left. A lane that makes a watched socket ready finds the watch at the
//! socket's seat (`sleepers.rs`) and puts it in the poller's list; the list holds a watch at most once.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use firelane_socket::Ready;
use firelane_units::LaneId;

use crate::calls::{self, Call};
use crate::engine::Inner;
use crate::sleepers::{Seat, deadline_after};

/// Waits for any of many sockets.
///
/// ```
/// use std::io::Write;
/// use firelane::{Poller, Ready, Stack, TcpListener, TcpStream};
/// # fn main() -> std::io::Result<()> {
/// # let (left, right) = firelane::wire(firelane::WireConfig::default());
/// # let server = Stack::builder().interface(left).address("10.0.0.1/24")?.build()?;
/// # let client = Stack::builder().interface(right).address("10.0.0.2/24")?.build()?;
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let poller = Poller::new();
/// poller.watch(&listener, 1, Ready::READABLE)?;
/// let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
/// stream.write_all(b"hello")?;
/// let (mut events, mut text) = (Vec::new(), Vec::<u8>::new());
/// let mut accepted: Option<TcpStream> = None;
/// listener.set_nonblocking(true)?;
/// while text.len() < 5 {
///     poller.wait(&mut events, None);
///     // Events are edges: each is followed by calls until nothing is left.
///     while let Ok((stream, _peer)) = listener.accept() {
///         poller.watch(&stream, 2, Ready::READABLE)?;
///         accepted = Some(stream);
///     }
///     let mut room = [0; 64];
///     while let Some(Ok(len)) = accepted.as_ref().map(|it| it.try_read(&mut room)) {
///         text.extend(&room[..len]);
///     }
/// }
/// assert_eq!(text, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Poller {
    list: Arc<List>,
    homes: Homes,
}

/// Whose devices bring what the sockets of a poller wait for.
#[derive(Debug, Default)]
struct Homes {
    /// That of the first socket. Those of other engines are left to their workers.
    engine: OnceLock<Weak<Inner>>,
    /// A bit for each of its first 64 lanes. Others are left to their workers.
    lanes: AtomicU64,
}

impl Homes {
    fn note(&self, engine: &Arc<Inner>, lane: LaneId) {
        if Weak::as_ptr(self.engine.get_or_init(|| Arc::downgrade(engine))) == Arc::as_ptr(engine) {
            let lane = 1u64.checked_shl(lane.0.into()).unwrap_or_default();
            // Most are noted already, and others read this word.
            if self.lanes.load(Ordering::Relaxed) & lane == 0 {
                self.lanes.fetch_or(lane, Ordering::Relaxed);
            }
        }
    }

    /// Looks at devices that nobody else looks at now.
    fn look(&self) {
        let Some(engine) = self.engine.get().and_then(Weak::upgrade) else { return };
        let mut lanes = self.lanes.load(Ordering::Relaxed);
        while lanes != 0 {
            engine.fabric.look(LaneId(lanes.trailing_zeros() as u16));
            lanes &= lanes - 1;
        }
    }
}

/// A socket has become ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What the program called it.
    pub key: u64,
    /// For what: something arrived, or there is room; [`Ready::HANGUP`] if it is closed or has failed.
    pub ready: Ready,
}

/// A socket that a [`Poller`] can watch.
pub trait Source: sealed::Watched {}

impl<T: sealed::Watched> Source for T {}

pub(crate) mod sealed {
    use super::{Arc, Inner, LaneId, Ready, Seat};

    /// What a watch needs of a socket.
    pub trait Watched {
        /// Where a lane finds the watch.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn seat(&self) -> &Seat;

        /// The lane whose devices bring what it waits for, if that is one.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn home(&self) -> Option<(&Arc<Inner>, LaneId)> {
            None
        }

        /// Asks to be told of `ready` each time.
        #[doc(hidden)]
        fn stand(&self, ready: Ready);
    }
}

/// What is watched, and what of it is ready and was not yet reported.
#[derive(Debug, Default)]
pub(crate) struct List {
    pending: Mutex<Pending>,
    bell: Condvar,
    /// Woken when something enters the empty list, for who sleeps elsewhere.
    waker: Option<Waker>,
    /// The waker is this crate's own and has to be called where something became ready, inside the lane.
    is_inside: bool,
}

#[derive(Debug, Default)]
struct Pending {
    /// By number, in places that are used again.
    watched: Vec<Watched>,
    free: Vec<u32>,
    /// The numbers of those that are ready, each once.
    ready: Vec<u32>,
    /// Threads that sleep.
    waiting: usize,
    /// The poller is gone.
    is_over: bool,
}

/// One watched socket.
#[derive(Debug)]
struct Watched {
    key: u64,
    /// What it has become ready for since it was last reported: not empty while it is among those that are ready.
    ready: Ready,
    /// Nobody watches it any more.
    is_forgotten: bool,
}

/// The place of a watched socket, which has this until it is forgotten.
#[derive(Debug)]
pub(crate) struct Watch {
    list: Arc<List>,
    number: u32,
}

impl List {
    /// Something has entered the empty list.
    pub(crate) fn tell(self: Arc<Self>) {
        if self.is_inside { self.call() } else { calls::owe(Call::Poller(self)) }
    }

    /// Calls one who waits: whoever comes takes all there is.
    pub(crate) fn call(&self) {
        if self.lock().waiting > 0 {
            self.bell.notify_one();
        }
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// A place that is ready for nothing as yet.
    fn add(&mut self, key: u64) -> u32 {
        let watched = Watched { key, ready: Ready::NONE, is_forgotten: false };
        if let Some(number) = self.free.pop() {
            self.watched[number as usize] = watched;
            return number;
        }
        self.watched.push(watched);
        // A process ends before it has 2^32 sockets.
        self.watched.len() as u32 - 1
    }

    /// Something has become ready. Whether it is the first that waits to be reported.
    fn ring(&mut self, number: u32, ready: Ready) -> bool {
        if self.is_over {
            return false;
        }
        let watched = &mut self.watched[number as usize];
        let is_news = watched.ready.is_empty() && !ready.is_empty();
        watched.ready |= ready;
        if is_news {
            self.ready.push(number);
        }
        is_news && self.ready.len() == 1
    }

    /// Puts all that is ready into `events`.
    fn report(&mut self, events: &mut Vec<Event>) {
        for number in self.ready.drain(..) {
            let watched = &mut self.watched[number as usize];
            events.push(Event { key: watched.key, ready: std::mem::take(&mut watched.ready) });
            if watched.is_forgotten {
                self.free.push(number);
            }
        }
    }
}

impl Watch {
    /// Something has become ready. Who gets a list calls those who wait for it, at once or when it has put there what else has
    /// become ready.
    #[must_use]
    pub(crate) fn ring(&self, ready: Ready) -> Option<Arc<List>> {
        self.list.lock().ring(self.number, ready).then(|| Arc::clone(&self.list))
    }
}

impl Watch {
    /// Whether its poller is gone, so that another one may watch.
    pub(crate) fn is_over(&self) -> bool {
        self.list.lock().is_over
    }

    fn is_of(&self, list: &Arc<List>) -> bool {
        Arc::ptr_eq(&self.list, list)
    }
}

impl Drop for Poller {
    /// Its watches stay where they are until another poller watches, and tell nobody.
    fn drop(&mut self) {
        self.list.lock().is_over = true;
    }
}

impl Drop for Watch {
    /// What waits to be reported is still reported.
    fn drop(&mut self) {
        let mut pending = self.list.lock();
        let watched = &mut pending.watched[self.number as usize];
        watched.is_forgotten = true;
        if watched.ready.is_empty() {
            pending.free.push(self.number);
        }
    }
}

impl Poller {
    /// A poller that watches nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A poller that wakes `waker` when it has events again, for who waits for other things too.
    pub fn waking(waker: Waker) -> Self {
        Self { list: Arc::new(List { waker: Some(waker), ..List::default() }), homes: Homes::default() }
    }

    /// The same for who is part of what lanes do, and is called inside them before they tell anything else.
    pub(crate) fn inside(waker: Waker) -> Self {
        let list = List { waker: Some(waker), is_inside: true, ..List::default() };
        Self { list: Arc::new(list), homes: Homes::default() }
    }

    /// Reports under `key` when `source` becomes ready for one of `interest`; being closed is always reported. What is
    /// ready already is reported once, whether it is or not: the program looks.
    ///
    /// # Errors
    /// `AlreadyExists` if a poller watches it; one that is gone does not.
    pub fn watch(&self, source: &impl Source, key: u64, interest: Ready) -> io::Result<()> {
        if let Some((engine, lane)) = source.home() {
            self.homes.note(engine, lane);
        }
        let begin = || {
            source.stand(interest | Ready::HANGUP);
            let mut pending = self.list.lock();
            let number = pending.add(key);
            // Who looks because of this misses nothing: what comes since then waits for the seat.
            let is_first = pending.ring(number, interest);
            drop(pending);
            (Watch { list: Arc::clone(&self.list), number }, is_first)
        };
        let is_first = source.seat().set_watch(begin).ok_or(io::ErrorKind::AlreadyExists)?;
        if is_first {
            Arc::clone(&self.list).tell();
        }
        Ok(())
    }

    /// Ends the watch. An event that is in the list is still reported.
    ///
    /// # Errors
    /// `NotFound` if this poller does not watch it.
    pub fn forget(&self, source: &impl Source) -> io::Result<()> {
        // Whoever watches from then on says anew of what he is to be told.
        let end_own = |watch: &mut Watch| {
            let is_own = watch.is_of(&self.list);
            if is_own {
                source.stand(Ready::NONE);
            }
            is_own
        };
        source.seat().take_watch(end_own).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// How many sockets it watches.
    pub(crate) fn watched(&self) -> usize {
        self.list.lock().watched.iter().filter(|it| !it.is_forgotten).count()
    }

    /// Waits for at most `limit` (`None`: for ever) until something is ready, and puts it in `events` in place of what
    /// was there. In a waker, whose thread others need, it does not wait.
    pub fn wait(&self, events: &mut Vec<Event>, limit: Option<Duration>) {
        events.clear();
        let waits = limit != Some(Duration::ZERO) && !calls::is_calling();
        let mut pending = self.list.lock();
        if pending.ready.is_empty() && waits {
            drop(pending);
            // What waits in a device that is left alone is better fetched than waited for.
            self.homes.look();
            pending = self.list.lock();
        }
        if pending.ready.is_empty() && waits {
            pending = self.sleep(pending, limit);
        }
        pending.report(events);
    }

    fn sleep<'a>(
        &'a self,
        mut pending: MutexGuard<'a, Pending>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, Pending> {
        let deadline = limit.and_then(deadline_after);
        while pending.ready.is_empty() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            pending.waiting += 1;
            pending = match left {
                None => self.list.bell.wait(pending).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.list.bell.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            pending.waiting -= 1;
        }
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket of which it is known what it was asked for, and whether nobody else could come in between.
    #[derive(Default)]
    struct Double(Seat, Mutex<Vec<(Ready, bool)>>);

    #[allow(private_interfaces)]
    impl sealed::Watched for Double {
        fn seat(&self) -> &Seat {
            &self.0
        }

        fn stand(&self, ready: Ready) {
            self.1.lock().unwrap().push((ready, self.0.is_held()));
        }
    }

    fn wait(poller: &Poller) -> Vec<(u64, Ready)> {
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::ZERO));
        events.iter().map(|event| (event.key, event.ready)).collect()
    }

    #[test]
    fn what_happens_twice_is_reported_once_and_both() {
        let (poller, source) = (Poller::new(), Double::default());
        poller.watch(&source, 9, Ready::READABLE).unwrap();
        assert_eq!(wait(&poller), [(9, Ready::READABLE)], "it may be ready already");
        assert_eq!(wait(&poller), []);
        _ = source.0.ring(Ready::READABLE);
        _ = source.0.ring(Ready::HANGUP);
        assert_eq!(wait(&poller), [(9, Ready::READABLE | Ready::HANGUP)]);
        assert_eq!(wait(&poller), []);
    }

    #[test]
    fn who_puts_the_first_event_into_the_list_calls_once_for_all() {
        let (poller, sources) = (Poller::new(), [Double::default(), Double::default()]);
        for (source, key) in sources.iter().zip(1..) {
            poller.watch(source, key, Ready::READABLE).unwrap();
        }
        wait(&poller);
        let called = [0, 1, 0].map(|nth| sources[nth].0.ring(Ready::READABLE).1.is_some());
        assert_eq!(called, [true, false, false]);
        assert_eq!(wait(&poller).len(), 2);
    }

    #[test]
    fn a_socket_has_one_poller() {
        let (one, two, source) = (Poller::new(), Poller::new(), Double::default());
        one.watch(&source, 1, Ready::READABLE).unwrap();
        assert_eq!(two.watch(&source, 2, Ready::READABLE).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((wait(&one).len(), wait(&two).len()), (1, 0));
        one.forget(&source).unwrap();
        assert_eq!(one.forget(&source).unwrap_err().kind(), io::ErrorKind::NotFound);
        _ = source.0.ring(Ready::READABLE);
        assert_eq!(wait(&one), [], "nobody watches");
        two.watch(&source, 2, Ready::READABLE).unwrap();
        assert_eq!(wait(&two).len(), 1);
    }

    #[test]
    fn who_ends_a_watch_changes_nothing_of_anothers() {
        let (one, two, source) = (Poller::new(), Poller::new(), Double::default());
        one.watch(&source, 1, Ready::READABLE).unwrap();
        assert!(two.forget(&source).is_err());
        one.forget(&source).unwrap();
        let asked = [(Ready::READABLE | Ready::HANGUP, true), (Ready::NONE, true)];
        assert_eq!(*source.1.lock().unwrap(), asked);
    }

    #[test]
    fn who_watches_in_a_stay_calls_behind_it() {
        struct Heard(AtomicU64);
        impl std::task::Wake for Heard {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let heard = Arc::new(Heard(AtomicU64::new(0)));
        let (poller, source) = (Poller::waking(Arc::clone(&heard).into()), Double::default());
        let stay = calls::Stay::begin();
        poller.watch(&source, 1, Ready::READABLE).unwrap();
        assert_eq!(heard.0.load(Ordering::Relaxed), 0);
        drop(stay);
        assert_eq!(heard.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_place_is_used_again_when_nothing_of_its_watch_is_left_to_report() {
        let (poller, sources) = (Poller::new(), [Double::default(), Double::default(), Double::default()]);
        let places = || poller.list.lock().watched.len();
        poller.watch(&sources[0], 1, Ready::READABLE).unwrap();
        poller.forget(&sources[0]).unwrap();
        // Its event waits, so the next watch has another place.
        poller.watch(&sources[1], 2, Ready::WRITABLE).unwrap();
        assert_eq!((wait(&poller), places()), (vec![(1, Ready::READABLE), (2, Ready::WRITABLE)], 2));
        poller.watch(&sources[2], 3, Ready::READABLE).unwrap();
        assert_eq!((wait(&poller), places()), (vec![(3, Ready::READABLE)], 2));
        // A socket that ends takes its watch along.
        drop(sources);
        let source = Double::default();
        poller.watch(&source, 4, Ready::NONE).unwrap();
        assert_eq!((wait(&poller), places()), (vec![], 2));
        _ = source.0.ring(Ready::HANGUP);
        assert_eq!(wait(&poller), [(4, Ready::HANGUP)]);
    }

    #[test]
    fn the_longest_limit_is_none() {
        let (poller, source) = (Poller::new(), Double::default());
        poller.watch(&source, 3, Ready::NONE).unwrap();
        let wait = || poller.wait(&mut Vec::new(), Some(Duration::MAX));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(wait);
            while !sleeper.is_finished() {
                if poller.list.lock().waiting > 0 {
                    source.0.ring(Ready::READABLE).1.iter().for_each(|list| list.call());
                }
                std::thread::yield_now();
            }
            assert!(sleeper.join().is_ok());
        });
    }

    #[test]
    fn a_sleeper_is_woken_and_a_limit_ends_the_wait() {
        let (poller, source) = (Poller::new(), Double::default());
        poller.watch(&source, 3, Ready::READABLE).unwrap();
        wait(&poller);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let mut events = Vec::new();
                poller.wait(&mut events, Some(Duration::from_secs(10)));
                events
            });
            while !sleeper.is_finished() {
                source.0.ring(Ready::WRITABLE).1.iter().for_each(|list| list.call());
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap()[0].key, 3);
        });
        wait(&poller);
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::from_millis(5)));
        assert_eq!(events, []);
    }
}
