//! Who waits for which socket: from the lanes' readiness to wakers.
//!
//! A socket gets a token at its birth and gives it back at its end. A lane that makes an interest true names
//! the token; here it finds the wakers. Blocking calls are wakers too: they unpark their thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use firelane_shm::Spin;
use firelane_socket::{Ready, SocketToken};
use rustix::io::Errno;
use tokio::task::coop::poll_proceed;

use crate::calls::{self, Call, Stay};
use crate::poller::{List, Watch};

/// The wakers of one socket.
#[derive(Debug, Default)]
pub(crate) struct Seat(Mutex<Wakers>);

/// One waits for each direction as a rule, or a poller watches for both; any number may.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    readable: Option<Waker>,
    writable: Option<Waker>,
    watch: Option<Watch>,
    crowd: Option<Box<Crowd>>,
}

/// What few sockets have: more who wait than one for each direction.
#[derive(Debug, Default)]
struct Crowd {
    others: Vec<(Ready, Waker)>,
}

impl Wakers {
    fn first(&mut self, side: Ready) -> &mut Option<Waker> {
        if side == Ready::READABLE { &mut self.readable } else { &mut self.writable }
    }

    fn leave(&mut self, side: Ready, waker: &Waker) {
        match self.first(side) {
            Some(first) if first.will_wake(waker) => {}
            Some(_) => {
                let others = &mut self.crowd.get_or_insert_default().others;
                if !others.iter().any(|(other, w)| *other == side && w.will_wake(waker)) {
                    others.push((side, waker.clone()));
                }
            }
            first => *first = Some(waker.clone()),
        }
    }

    /// Takes out whoever waits for a direction of `ready`, and tells the poller; answers its list if that begins with it.
    #[inline]
    fn take(&mut self, ready: Ready) -> (Self, Option<Arc<List>>) {
        let mut taken = Self::default();
        for side in [Ready::READABLE, Ready::WRITABLE] {
            if ready.intersects(side | Ready::HANGUP) {
                *taken.first(side) = self.first(side).take();
            }
        }
        let list = self.watch.as_ref().and_then(|watch| watch.ring(ready));
        if let Some(crowd) = self.crowd.take() {
            self.take_others(ready, crowd.others, &mut taken);
        }
        (taken, list)
    }

    #[cold]
    fn take_others(&mut self, ready: Ready, others: Vec<(Ready, Waker)>, taken: &mut Self) {
        for (side, waker) in others {
            let to = if ready.intersects(side | Ready::HANGUP) { &mut *taken } else { &mut *self };
            to.leave(side, &waker);
        }
    }

    /// Takes out one who has waited for a direction in vain. Whether he was there.
    fn forget(&mut self, side: Ready, waker: &Waker) -> bool {
        let first = self.first(side);
        let mut was_there = first.as_ref().is_some_and(|first| first.will_wake(waker));
        if was_there {
            *first = None;
        }
        if let Some(crowd) = &mut self.crowd {
            let before = crowd.others.len();
            crowd.others.retain(|(other, w)| *other != side || !w.will_wake(waker));
            was_there |= crowd.others.len() < before;
        }
        if self.crowd.as_ref().is_some_and(|crowd| crowd.others.is_empty()) {
            self.crowd = None;
        }
        was_there
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.readable.is_none() && self.writable.is_none() && self.crowd.is_none()
    }

    fn into_all(self) -> impl Iterator<Item = Waker> {
        let crowd = self.crowd.into_iter().flat_map(|crowd| crowd.others).map(|(_, waker)| waker);
        self.readable.into_iter().chain(self.writable).chain(crowd)
    }
}

impl Seat {
    fn wakers(&self) -> MutexGuard<'_, Wakers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a waker for one direction.
    pub(crate) fn leave(&self, ready: Ready, waker: &Waker) {
        self.wakers().leave(side_of(ready), waker);
    }

    /// Takes out the waker of this thread, which has waited long enough: nobody else would, before something comes.
    pub(crate) fn give_up(&self, ready: Ready) {
        let _ = self.wakers().forget(side_of(ready), &own_waker());
    }

    /// Takes out the waker of a wait that is over, and wakes it if it was still there: its task may wait here for something else as well,
    /// and leaves it again then.
    pub(crate) fn end_wait(&self, ready: Ready, waker: Waker) {
        let mut wakers = self.wakers();
        let was_there = wakers.forget(side_of(ready), &waker);
        drop(wakers);
        if was_there {
            calls::owe(Call::Task(waker));
        }
    }

    /// Takes out whoever waits for `ready`, and tells the poller; answers its list if somebody is to be called for it.
    #[must_use]
    pub(crate) fn ring(&self, ready: Ready) -> (Wakers, Option<Arc<List>>) {
        self.wakers().take(ready)
    }

    /// Lets a poller watch, which `begin` makes it do; `None` if one does already. Nobody rings meanwhile.
    pub(crate) fn set_watch<T>(&self, begin: impl FnOnce() -> (Watch, T)) -> Option<T> {
        let mut wakers = self.wakers();
        if wakers.watch.as_ref().is_some_and(|watch| !watch.is_over()) {
            return None;
        }
        let (watch, result) = begin();
        wakers.watch = Some(watch);
        Some(result)
    }

    /// Takes out such a watch, if it is there: nobody watches any more. Nobody else begins one or rings while `is_such` looks at it.
    pub(crate) fn take_watch(&self, is_such: impl FnOnce(&mut Watch) -> bool) -> Option<Watch> {
        self.wakers().watch.take_if(is_such)
    }
}

#[cfg(test)]
impl Seat {
    /// Whether somebody looks at it just now.
    pub(crate) fn is_held(&self) -> bool {
        self.0.try_lock().is_err()
    }
}

/// The direction whose waker stands for `ready`.
fn side_of(ready: Ready) -> Ready {
    if ready.contains(Ready::READABLE) { Ready::READABLE } else { Ready::WRITABLE }
}

/// A socket that somebody may wait for: it has its seat inside.
pub(crate) trait Seated: Send + Sync {
    /// Where who waits leaves wakers.
    fn seat(&self) -> &Seat;
}

impl Seated for Seat {
    fn seat(&self) -> &Seat {
        self
    }
}

/// All seats of an engine.
#[derive(Default)]
pub(crate) struct Sleepers {
    seats: RwLock<Seats>,
}

#[derive(Default)]
struct Seats {
    places: Vec<Place>,
    free: Vec<u32>,
}

/// A place that one socket after another has.
#[derive(Default)]
struct Place {
    socket: Option<Arc<dyn Seated>>,
    /// Which of them this is: lanes may still tell of those before, whose connections go on for a while.
    turn: u32,
}

/// The turns that a token can name. Its highest bit says that it is another process' (`programs`).
const TURNS: u32 = (1 << 31) - 1;
const TURN_SHIFT: u32 = 32;

impl Sleepers {
    /// A token for a socket.
    pub(crate) fn sit(&self, socket: Arc<dyn Seated>) -> SocketToken {
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        let place = seats.free.pop().map_or(seats.places.len(), |place| place as usize);
        if place == seats.places.len() {
            seats.places.push(Place::default());
        }
        let Place { socket: seated, turn } = &mut seats.places[place];
        *seated = Some(socket);
        SocketToken(u64::from(*turn) << TURN_SHIFT | (place as u64 + 1))
    }

    /// Gives a token back.
    pub(crate) fn stand_up(&self, token: SocketToken) {
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = seats.index_of(token) else { return };
        let place = &mut seats.places[index];
        let left = place.socket.take();
        place.turn = (place.turn + 1) & TURNS;
        // A process ends before it has 2^32 sockets.
        seats.free.push(index as u32);
        // A socket may be the last user of the engine, and with it of this table.
        drop((seats, left));
    }

    /// Wakes whoever waits for `ready` of a socket.
    pub(crate) fn wake(&self, token: SocketToken, ready: Ready) {
        self.wake_all(&[(token, ready)]);
    }

    /// The same of all that a lane has made ready, with one look at the table. Who waits at a poller is called when it has all that is
    /// new.
    pub(crate) fn wake_all(&self, told: &[(SocketToken, Ready)]) {
        // Who is woken may end a socket at once, which needs the table.
        let _stay = Stay::begin();
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        let rung = told.iter().filter_map(|&(token, ready)| seats.ring(token, ready));
        let mut lists = Vec::new();
        for (woken, list) in rung {
            woken.into_all().for_each(|waker| calls::owe(Call::Task(waker)));
            lists.extend(list);
        }
        drop(seats);
        lists.into_iter().for_each(List::tell);
    }
}

impl Sleepers {
    /// Lets everybody look at what he waits for, and pollers report all that they watch: a lane has failed.
    #[cold]
    pub(crate) fn wake_everybody(&self) {
        let _stay = Stay::begin();
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        let sockets = seats.places.iter().filter_map(|place| place.socket.as_ref());
        let mut lists = Vec::new();
        for (woken, list) in sockets.map(|it| it.seat().ring(Ready::READABLE | Ready::WRITABLE)) {
            woken.into_all().for_each(|waker| calls::owe(Call::Task(waker)));
            lists.extend(list);
        }
        drop(seats);
        lists.into_iter().for_each(List::tell);
    }
}

impl Seats {
    /// Takes out whoever waits for `ready` of a socket, and tells its poller.
    #[inline]
    fn ring(&self, token: SocketToken, ready: Ready) -> Option<(Wakers, Option<Arc<List>>)> {
        let socket = self.places[self.index_of(token)?].socket.as_ref()?;
        Some(socket.seat().ring(ready))
    }

    /// The place of a socket that has not given its token back.
    #[inline]
    fn index_of(&self, token: SocketToken) -> Option<usize> {
        let index = (token.0 as u32).checked_sub(1)? as usize;
        let place = self.places.get(index)?;
        (place.socket.is_some() && u64::from(place.turn) == token.0 >> TURN_SHIFT).then_some(index)
    }
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// Unparks this thread. One for all its calls, so that a seat knows who waits there already.
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));

    /// How long this thread looks for what another application is about to do before it sleeps: as long as that paid, and
    /// not at all on one CPU.
    static SPIN: RefCell<Spin> = RefCell::new(Spin::new(thread::available_parallelism().map_or(1, usize::from)));
}

fn own_waker() -> Waker {
    // A thread that ends may still wait in what it drops.
    WAKER.try_with(Waker::clone).unwrap_or_else(|_| Waker::from(Arc::new(Unpark(thread::current()))))
}

/// Looks again for a bounded while: between applications that answer each other directly, a sleep costs more than the
/// answer.
pub(crate) fn look_on<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut seen = None;
    SPIN.with_borrow_mut(|spin| {
        spin.until(|| {
            seen = look();
            seen.is_some()
        })
    });
    seen
}

/// When `limit` is over; `None` is never, beyond what a clock tells.
pub(crate) fn deadline_after(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

/// A task's wait at a seat. Who gives it up leaves nothing behind.
struct Wait<'a> {
    seat: &'a Seat,
    side: Ready,
    left: Option<Waker>,
}

impl Wait<'_> {
    fn note(&mut self, waker: &Waker) {
        if !self.left.as_ref().is_some_and(|left| left.will_wake(waker))
            && let Some(before) = self.left.replace(waker.clone())
        {
            self.seat.end_wait(self.side, before);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.left.take().into_iter().for_each(|waker| self.seat.end_wait(self.side, waker));
    }
}

/// Waits in a task until `poll`, which leaves the waker at `seat`, is ready. A task whose socket always is lets others have their turn, as
/// with tokio's own.
pub(crate) async fn wait_at<T>(
    seat: &Seat,
    side: Ready,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    let mut wait = Wait { seat, side, left: None };
    poll_fn(|context| {
        let budget = ready!(poll_proceed(context));
        match poll(context) {
            Poll::Ready(value) => {
                budget.made_progress();
                Poll::Ready(value)
            }
            Poll::Pending => {
                wait.note(context.waker());
                Poll::Pending
            }
        }
    })
    .await
}

/// Why a thread did not wait until something was ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vain {
    /// It has waited as long as it may.
    TimedOut,
    /// It is in a waker.
    InWaker,
}

impl From<Vain> for io::Error {
    fn from(vain: Vain) -> Self {
        match vain {
            Vain::TimedOut => Errno::TIMEDOUT.into(),
            Vain::InWaker => calls::would_sleep(),
        }
    }
}

/// Runs `poll` on this thread until it is ready. If that was in vain, the waker that `poll` has left somewhere is still there.
///
/// # Errors
/// `limit` has passed, or the thread must not sleep.
pub(crate) fn block_on<T>(
    limit: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, Vain> {
    let waker = own_waker();
    let mut context = Context::from_waker(&waker);
    let deadline = limit.and_then(deadline_after);
    loop {
        if let Poll::Ready(value) = poll(&mut context) {
            return Ok(value);
        }
        if calls::is_calling() {
            return Err(Vain::InWaker);
        }
        match deadline {
            None => std::thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Vain::TimedOut);
                }
                std::thread::park_timeout(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_ready_socket_wakes_its_waiting_thread() {
        let (sleepers, seat) = (Sleepers::default(), Arc::new(Seat::default()));
        let token = sleepers.sit(Arc::clone(&seat) as Arc<dyn Seated>);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut polls = 0;
                block_on(Some(Duration::from_secs(10)), |context| {
                    polls += 1;
                    seat.leave(Ready::READABLE, context.waker());
                    if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            while !waiting.is_finished() {
                sleepers.wake(token, Ready::READABLE);
                std::thread::yield_now();
            }
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn who_gives_up_a_wait_in_a_stay_calls_behind_it() {
        struct Heard(AtomicUsize);
        impl Wake for Heard {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (seat, heard) = (Seat::default(), Arc::new(Heard(AtomicUsize::new(0))));
        let waker = Waker::from(Arc::clone(&heard));
        seat.leave(Ready::READABLE, &waker);
        let stay = Stay::begin();
        seat.end_wait(Ready::READABLE, waker);
        assert_eq!(heard.0.load(Ordering::Relaxed), 0);
        drop(stay);
        assert_eq!(heard.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_limit_ends_the_wait() {
        assert_eq!(block_on(Some(Duration::from_millis(5)), |_| Poll::<()>::Pending), Err(Vain::TimedOut));
    }

    #[test]
    fn the_longest_limit_is_none() {
        let mut polls = 0..3;
        let poll = |context: &mut Context<'_>| {
            context.waker().wake_by_ref();
            polls.next().map_or(Poll::Ready(()), |_| Poll::Pending)
        };
        assert_eq!(block_on(Some(Duration::MAX), poll), Ok(()));
    }

    #[test]
    fn who_waits_again_and_again_waits_once() {
        let seat = Seat::default();
        let wait = || {
            block_on(Some(Duration::from_millis(1)), |context| {
                seat.leave(Ready::READABLE, context.waker());
                Poll::<()>::Pending
            })
        };
        (0..3).for_each(|_| assert_eq!(wait(), Err(Vain::TimedOut)));
        assert!(seat.wakers().crowd.is_none(), "one thread is no crowd");
        // Others are still in one another's way, until they give up.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(wait(), Err(Vain::TimedOut));
                assert!(seat.wakers().crowd.is_some());
                seat.give_up(Ready::READABLE);
            });
        });
        assert!(seat.wakers().crowd.is_none() && seat.wakers().readable.is_some());
        seat.give_up(Ready::WRITABLE);
        assert!(seat.wakers().readable.is_some(), "it waits for the other direction");
        seat.give_up(Ready::READABLE);
        assert!(seat.wakers().is_empty());
    }

    #[test]
    fn places_are_used_again_and_stale_tokens_wake_nobody() {
        let (sleepers, seats) = (Sleepers::default(), [(); 3].map(|()| Arc::new(Seat::default())));
        let sit = |nth: usize| sleepers.sit(Arc::clone(&seats[nth]) as Arc<dyn Seated>);
        let first = sit(0);
        sleepers.stand_up(first);
        sleepers.wake(first, Ready::ALL);
        let second = sit(1);
        assert_ne!(first, second);
        let count = Arc::new(Count::default());
        seats[1].leave(Ready::READABLE, &Waker::from(Arc::clone(&count)));
        sleepers.stand_up(first);
        sleepers.wake(first, Ready::ALL);
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "it is another socket's place");
        sleepers.wake(second, Ready::ALL);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let third = sit(2);
        assert_ne!(second, third);
        assert_eq!(sleepers.seats.read().unwrap().places.len(), 2);
        assert!([first, second, third].iter().all(|token| token.0 >> 63 == 0 && *token != SocketToken(0)));
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_waiter_of_a_direction_is_woken_once_and_the_others_stay() {
        let (sleepers, seat) = (Sleepers::default(), Arc::new(Seat::default()));
        let token = sleepers.sit(Arc::clone(&seat) as Arc<dyn Seated>);
        let counts: [Arc<Count>; 4] = Default::default();
        let wakers = counts.clone().map(Waker::from);
        let sides = [Ready::READABLE, Ready::READABLE, Ready::READABLE, Ready::WRITABLE];
        for _ in 0..2 {
            for (side, waker) in sides.iter().zip(&wakers) {
                seat.leave(*side, waker);
            }
        }
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        sleepers.wake(token, Ready::READABLE);
        assert_eq!(woken(), [1, 1, 1, 0]);
        seat.leave(Ready::WRITABLE, &wakers[0]);
        sleepers.wake(token, Ready::READABLE);
        assert_eq!(woken(), [1, 1, 1, 0]);
        sleepers.wake(token, Ready::HANGUP);
        sleepers.wake(token, Ready::ALL);
        assert_eq!(woken(), [2, 1, 1, 1]);
    }
}
