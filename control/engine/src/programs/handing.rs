//! Handing on: whoever is inside the lane that has finished a handshake tells the listener's program of the connection, in the listener's
//! words, and by the bell of who sleeps and is marked there; or, if somebody waits for its descriptor, by a message over that. He calls
//! nobody to do it for him.
//!
//! Owned by `hub.rs`, which adds listeners and takes them away, and gets to know later what was handed on ([`Handing::take_handed`]).
//! Several lanes may finish handshakes of one listener at a time: one goes through all that is ready, and the others leave it to
//! him ([`Shared`]), and wait until he is done, which takes a microsecond, before they tell who has connected; without end nobody waits
//! inside a lane. So a listener's connections are told in their order, and who has connected and accepts finds his.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::hint::spin_loop;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use firelane_shm::control::{Arrived, Family, Place, SocketId};
use firelane_shm::{AcceptQueue, Feeder, carry};
use firelane_socket::{AnyEnd, Names, Ready};

use super::addresses::shown;
use super::arrivals::{Arrival, Home};
use super::options::Options;
use super::socket::Listening;
use super::stream::Stream;
use super::waiting::Waiting;
use crate::poller::{Event, Poller};

/// How often a lane looks whether another thread has handed its connections on: some hundred microseconds, of which one is what it takes.
const LOOKS_MAX: u32 = 8192;
const LOOKS_PER_YIELD: u32 = 64;

thread_local! {
    /// This thread is handing on: who calls from within is answered when that is done.
    static IS_AT_IT: Cell<bool> = const { Cell::new(false) };
}

/// All listeners of programs.
#[derive(Debug)]
pub(super) struct Handing {
    listeners: Poller,
    queues: Shared<Queues>,
    /// What was handed on since the hub has asked last.
    handed: Mutex<Vec<Arrival>>,
    /// Listeners whose descriptors have no room.
    full: Mutex<Vec<SocketId>>,
    /// Calls the hub.
    hub: Waker,
}

#[derive(Debug, Default)]
struct Queues {
    by_name: BTreeMap<SocketId, Queue>,
    /// Those that are to be gone on with.
    again: Vec<SocketId>,
    /// Room for what the listeners tell.
    events: Vec<Event>,
}

/// A listener, and what its connections begin with.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) listening: Arc<Listening>,
    pub(super) family: Family,
    pub(super) home: Arc<Home>,
    /// A copy of our end of the listener's pair. It goes before the other does, for closing that one may take long.
    pub(super) ours: OwnedFd,
    /// What puts connections into the listener's words, if it has any.
    pub(super) feeder: Option<Feeder<Arrived>>,
    /// Connections of which messages are to be sent, in their order: the descriptor had no room, or they have waited in the words.
    pub(super) unsent: VecDeque<Arrived>,
    /// The program knows that no more come.
    pub(super) has_ended: bool,
    /// Some wait that were not handed on when their lane told of them. Nobody knows that of a new one.
    pub(super) is_behind: bool,
    /// How many the listener has accepted.
    pub(super) accepted: u64,
}

/// Called by lanes that have finished handshakes.
struct Call(Weak<Handing>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The hub takes its listeners out before it ends, so nothing of theirs ends here.
        if let Some(handing) = self.0.upgrade() {
            // The lane tells who has connected next, and he may accept at once.
            handing.queues.call_and_wait(|queues| handing.hand_on(queues));
        }
    }
}

impl Handing {
    /// Without listeners. `hub` is woken when a descriptor has no room ([`Handing::take_full`]).
    pub(super) fn new(hub: Waker) -> Arc<Self> {
        Arc::new_cyclic(|handing| Self {
            listeners: Poller::inside(Waker::from(Arc::new(Call(Weak::clone(handing))))),
            queues: Shared::default(),
            handed: Mutex::default(),
            full: Mutex::default(),
            hub,
        })
    }

    /// From here on the connections of a listener, whose name is given, are handed on.
    pub(super) fn add(&self, name: SocketId, queue: Queue) {
        let listening = Arc::clone(&queue.listening);
        self.queues.change(|queues| queues.by_name.insert(name, queue), |queues| self.hand_on(queues));
        // It is new, so nobody else watches it. What is there already is told of at once.
        let _ = self.listeners.watch(&listening.listener, name.0, Ready::READABLE);
    }

    /// From here on they are not.
    pub(super) fn remove(&self, name: SocketId) {
        let gone = self.queues.change(|queues| queues.by_name.remove(&name), |queues| self.hand_on(queues));
        drop(gone);
    }

    /// The descriptor of a listener has room again, or its program waits there from now on.
    pub(super) fn go_on(&self, name: SocketId) {
        self.queues.change(|queues| queues.again.push(name), |queues| self.hand_on(queues));
        self.queues.call(|queues| self.hand_on(queues));
    }

    /// What was handed on since this was last asked. Lanes find room for as many again.
    pub(super) fn take_handed(&self) -> Vec<Arrival> {
        let room = Vec::with_capacity(self.handed());
        std::mem::replace(&mut lock(&self.handed), room)
    }

    /// How many those are.
    pub(super) fn handed(&self) -> usize {
        lock(&self.handed).len()
    }

    /// How many of a listener's connections its program has taken out, which it does in their order; none of who is no listener.
    pub(super) fn taken_out(&self, name: SocketId) -> Option<u64> {
        let taken_out = |queues: &mut Queues| queues.by_name.get_mut(&name).map(Queue::taken_out);
        self.queues.change(taken_out, |queues| self.hand_on(queues))
    }

    /// Listeners that are to be gone on with when their descriptors have room, since this was last asked.
    pub(super) fn take_full(&self) -> Vec<SocketId> {
        std::mem::take(&mut lock(&self.full))
    }

    /// Lanes have failed: who waits at a listener that has no other one finds its end. For who is inside no lane.
    pub(super) fn end_without_lanes(&self) {
        let all = |queues: &mut Queues| -> Vec<_> {
            queues.by_name.iter().map(|(&name, queue)| (name, Arc::clone(&queue.listening))).collect()
        };
        let mut ended = self.queues.change(all, |queues| self.hand_on(queues));
        ended.retain(|(_, listening)| listening.listener.has_no_lane());
        let end = |queues: &mut Queues| {
            for (name, listening) in &ended {
                let queue = queues.by_name.get_mut(name);
                queue.filter(|it| Arc::ptr_eq(&it.listening, listening)).into_iter().for_each(Queue::end);
            }
        };
        self.queues.change(end, |queues| self.hand_on(queues));
    }

    fn hand_on(&self, queues: &mut Queues) {
        let Queues { by_name, again, events } = queues;
        self.listeners.wait(events, Some(Duration::ZERO));
        for name in events.drain(..).map(|event| SocketId(event.key)).chain(again.drain(..)) {
            let Some(queue) = by_name.get_mut(&name) else { continue };
            if queue.hand_on(name, &self.handed) {
                lock(&self.full).push(name);
                self.hub.wake_by_ref();
            }
        }
    }
}

impl Queue {
    /// Hands on what the listener has accepted. Whether there is more and the descriptor has no room.
    fn hand_on(&mut self, name: SocketId, handed: &Mutex<Vec<Arrival>>) -> bool {
        while let Some(arrived) = self.next_to_send(name, handed) {
            match carry::send(&self.ours, &arrived.encode(), &[], false) {
                Ok(()) => self.feeder.iter_mut().for_each(Feeder::note_sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.push_front(arrived);
                    self.is_behind = true;
                    return true;
                }
                // The listener hangs up, and what waits there ends with it.
                Err(_) => return false,
            }
        }
        if self.listening.listener.is_over() {
            self.end();
        }
        false
    }

    /// No more connections come: who waits for one finds an end. The program still has the socket, whose descriptor hangs up when it
    /// closes that, so our end does not.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            // If the program has closed it meanwhile nobody waits.
            let _ = rustix::net::shutdown(&self.ours, rustix::net::Shutdown::Write);
            self.listening.waiting.iter().for_each(Waiting::tell);
        }
    }

    /// The next connection of which a message is to be sent. What has arrived before it waits in the words.
    fn next_to_send(&mut self, name: SocketId, handed: &Mutex<Vec<Arrival>>) -> Option<Arrived> {
        loop {
            if self.unsent.is_empty()
                && let Some((feeder, words)) = self.words()
                && feeder.is_watched(words)
            {
                self.unsent = feeder.take_back(words);
            }
            if let Some(unsent) = self.unsent.pop_front() {
                return Some(unsent);
            }
            let Some((arrival, arrived)) = self.accept(name) else {
                self.is_behind = false;
                return None;
            };
            // Before the program can know of it: what it asks about the connection finds it.
            lock(handed).push(arrival);
            let Some((feeder, words)) = self.words() else { return Some(arrived) };
            if let Err(arrived) = feeder.put(words, arrived.place.block, arrived) {
                return Some(arrived);
            }
            self.listening.waiting.iter().for_each(Waiting::tell);
        }
    }

    /// How many the program has taken out. A message that nobody has said that he has read is unread, unless all are read.
    fn taken_out(&mut self) -> u64 {
        let is_all_read = carry::is_all_read(&self.ours).unwrap_or(true);
        let on_the_way = match self.words().map(|(feeder, words)| feeder.on_the_way(words)) {
            Some([waiting, _]) if is_all_read => waiting,
            Some([waiting, unread]) => waiting + unread,
            None if is_all_read => 0,
            None => return 0,
        };
        self.accepted.saturating_sub((on_the_way + self.unsent.len()) as u64)
    }

    fn words(&mut self) -> Option<(&mut Feeder<Arrived>, &AcceptQueue)> {
        let words = self.listening.waiting.as_ref()?.words()?;
        Some((self.feeder.as_mut()?, words))
    }

    /// The connection that has waited longest, and the message about it.
    fn accept(&mut self, name: SocketId) -> Option<(Arrival, Arrived)> {
        let accepted = self.listening.listener.take_any()?;
        let Names { local, remote } = accepted.names;
        let AnyEnd::There(hold) = accepted.stream else {
            unreachable!("the listener was made with an arena");
        };
        let (options, rings) = self.listening.next(|next| (Options::of_accepted(&next.options), next.rings));
        let Home { stack, arena, .. } = &*self.home;
        let fabric = &stack.inner.fabric;
        let stream = Stream::accept(fabric, arena, hold, rings, options.beginning());
        // Its lane's worker, who tells of it now, fuses it next. Anybody else's lane has waited for who answers for it.
        if self.is_behind || !fabric.is_worker_of(stream.lane()) {
            stream.kick(fabric);
        }
        let place = Place { arena: arena.arena().number(), block: stream.number() };
        let [local, remote] = [local, remote].map(|address| shown(self.family, address));
        let from = Some((name, self.family));
        let arrival = Arrival::new(from, Arc::clone(&self.home), stream, options).after(self.accepted);
        self.accepted += 1;
        Some((arrival, Arrived { place, local, remote }))
    }
}

/// Something that whoever is called works on, one at a time. Who finds another at it goes away, and that one looks once more.
#[derive(Debug, Default)]
struct Shared<T> {
    inner: Mutex<T>,
    is_called: AtomicBool,
}

impl<T> Shared<T> {
    /// There is work, which this thread or the one that is at it does. It may call again from within. Whether it is done.
    fn call(&self, mut work: impl FnMut(&mut T)) -> bool {
        // As a rule nobody is at it, and nobody has to be told.
        if let Some(inner) = self.enter() {
            self.be_at_it(inner, &mut work);
            if self.is_called.load(Ordering::SeqCst) {
                self.work(work);
            }
            return true;
        }
        self.is_called.store(true, Ordering::SeqCst);
        // Either this thread finds the other gone, or that one finds the call.
        fence(Ordering::SeqCst);
        self.work(work)
    }

    fn enter(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Who has come meanwhile and gone away has said so behind this.
    fn be_at_it(&self, mut inner: MutexGuard<'_, T>, work: &mut impl FnMut(&mut T)) {
        let at_it = AtIt::begin();
        work(&mut inner);
        drop((at_it, inner));
        fence(Ordering::SeqCst);
    }

    /// The same for who goes on when it is done, whoever does it; not for work of a thread that gets no CPU.
    fn call_and_wait(&self, mut work: impl FnMut(&mut T)) {
        let mut is_done = self.call(&mut work);
        for look in 1..=LOOKS_MAX {
            if is_done || IS_AT_IT.get() {
                return;
            }
            // The other may wait for this thread's CPU.
            if look % LOOKS_PER_YIELD == 0 {
                thread::yield_now()
            } else {
                spin_loop()
            }
            is_done = self.work(&mut work);
        }
    }

    /// Does what is to be done; `false` if another is at it, who looks once more.
    fn work(&self, mut work: impl FnMut(&mut T)) -> bool {
        loop {
            let Some(inner) = self.enter() else { return false };
            match self.is_called.swap(false, Ordering::SeqCst) {
                true => self.be_at_it(inner, &mut work),
                false => {
                    drop(inner);
                    fence(Ordering::SeqCst);
                }
            }
            if !self.is_called.load(Ordering::SeqCst) {
                return true;
            }
        }
    }

    /// Changes it: this waits for who is at it, so it is nothing for who is inside a lane. Who was called meanwhile and went away has
    /// his work done.
    fn change<R>(&self, change: impl FnOnce(&mut T) -> R, work: impl FnMut(&mut T)) -> R {
        let changed = change(&mut lock(&self.inner));
        fence(Ordering::SeqCst);
        self.work(work);
        changed
    }
}

/// This thread is handing on until this is dropped, also by a fault.
struct AtIt;

impl AtIt {
    fn begin() -> Self {
        IS_AT_IT.set(true);
        Self
    }
}

impl Drop for AtIt {
    fn drop(&mut self) {
        IS_AT_IT.set(false);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_fault_at_it_is_no_reason_to_wait_for_nobody_afterwards() {
        let shared = Shared::<()>::default();
        let fault =
            std::panic::AssertUnwindSafe(|| shared.call(|()| panic!("whoever is called has a fault")));
        assert!(std::panic::catch_unwind(fault).is_err());
        assert!(!IS_AT_IT.get() && shared.call(|()| ()));
    }

    /// Each of four threads puts things there and calls; a fifth one changes what is worked on. All are taken by the time that all
    /// have come back, and nobody is at it twice.
    #[test]
    fn who_finds_another_at_it_leaves_the_work_to_him() {
        const EACH: usize = 20_000;
        let (shared, there, inside) = (Shared::<usize>::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |taken: &mut usize| {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
            *taken += there.swap(0, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        there.fetch_add(1, Ordering::SeqCst);
                        shared.call(work);
                    }
                });
            }
            scope.spawn(|| (0..EACH).for_each(|_| shared.change(|_| {}, work)));
        });
        assert_eq!((*lock(&shared.inner), there.load(Ordering::SeqCst)), (4 * EACH, 0));
    }

    /// Two lanes: what one has put there was taken when it goes on, whoever has taken it. A thread that has no CPU is not waited for
    /// without end, so not each time.
    #[test]
    fn who_has_left_the_work_to_another_goes_on_when_it_is_done() {
        const EACH: usize = 20_000;
        let (shared, late) = (Shared::<usize>::default(), AtomicUsize::new(0));
        let (put, taken) =
            ([AtomicUsize::new(0), AtomicUsize::new(0)], [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let take_all = |_: &mut usize| {
            for (put, taken) in put.iter().zip(&taken) {
                taken.store(put.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            for (put, taken) in put.iter().zip(&taken) {
                scope.spawn(|| {
                    for nth in 1..=EACH {
                        put.store(nth, Ordering::SeqCst);
                        shared.call_and_wait(take_all);
                        late.fetch_add(usize::from(taken.load(Ordering::SeqCst) < nth), Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(late.load(Ordering::SeqCst) < EACH / 100, "{late:?} of {EACH}");
        assert!(!shared.is_called.load(Ordering::SeqCst), "nobody's work was left");
    }

    #[test]
    fn who_calls_from_within_is_answered_when_that_is_done() {
        let (shared, there) = (Shared::<Vec<usize>>::default(), AtomicUsize::new(3));
        shared.call(|taken| {
            let left = there.load(Ordering::SeqCst);
            taken.push(left);
            if left > 0 {
                there.store(left - 1, Ordering::SeqCst);
                shared.call(|_| panic!("somebody is at it"));
            }
        });
        assert_eq!(*lock(&shared.inner), [3, 2, 1, 0]);
    }
}
