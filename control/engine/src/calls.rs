//! Wakers are called outside of everything: what a lane or a socket owes others is noted, and done when the thread has left.
//!
//! A waker is code of the program's: an executor may run a whole task in it, which calls sockets and the engine again. So it
//! is never called inside a lane, nor while the thread holds the registry or the names of a socket: whoever enters these begins a
//! [`Stay`], and with the end of the outermost one all calls are made that came together meanwhile, one after the other. What they
//! bring about is appended and not called from within them, so no chain of wakers is deeper than one.
//!
//! Used by `fabric.rs`, `sleepers.rs`, `poller.rs` and `news.rs`, which owe, and by every way into a lane.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;

use crate::poller::List;

/// How many calls a thread makes beyond those that it owed when it began: tasks that ask each other something have done by then.
const CHAIN_MAX: usize = 64;

/// Somebody who is to be called.
pub(crate) enum Call {
    /// A task, or a thread that sleeps.
    Task(Waker),
    /// Who waits at a poller.
    Poller(Arc<List>),
}

impl Call {
    /// What has a fault keeps no other from being called, and no lane from its work; its panic has said so by then.
    fn make(self) {
        let _ = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Task(waker) => waker.wake(),
            Self::Poller(list) => list.call(),
        }));
    }
}

/// What this thread owes. It has no destructor, so that a thread that ends calls nobody inside a lane, either: what it drops last may
/// still be a socket. The queue is empty whenever the outermost stay has ended.
struct Owed {
    calls: RefCell<ManuallyDrop<VecDeque<Call>>>,
    /// How many stays there are, one in another.
    stays: Cell<usize>,
    /// It makes the calls now.
    is_calling: Cell<bool>,
    /// A lane whose worker this thread is has had a turn in one of them.
    has_turned: Cell<bool>,
}

/// Gives the storage of the empty queue back when the thread ends.
struct Storage;

impl Drop for Storage {
    fn drop(&mut self) {
        OWED.with(Owed::shrink);
    }
}

thread_local! {
    static OWED: Owed = const {
        Owed {
            calls: RefCell::new(ManuallyDrop::new(VecDeque::new())),
            stays: Cell::new(0),
            is_calling: Cell::new(false),
            has_turned: Cell::new(false),
        }
    };

    static STORAGE: Storage = const { Storage };
}

/// What threads had to leave, and whether a thread makes it.
struct Left {
    calls: VecDeque<Call>,
    is_made: bool,
}

static LEFT: Mutex<Left> = Mutex::new(Left { calls: VecDeque::new(), is_made: false });

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves calls to a thread that has nothing else to do. Gives them back if there can be none.
fn hand_on(calls: VecDeque<Call>) -> VecDeque<Call> {
    if calls.is_empty() {
        return calls;
    }
    let mut left = left();
    left.calls.extend(calls);
    if !left.is_made {
        left.is_made = thread::Builder::new().name("calls".to_owned()).spawn(make_left).is_ok();
    }
    if left.is_made { VecDeque::new() } else { mem::take(&mut left.calls) }
}

/// Makes what was left, one after the other, until nothing is.
fn make_left() {
    loop {
        let mut left = left();
        let next = left.calls.pop_front();
        left.is_made = next.is_some();
        drop(left);
        match next {
            // What it brings about without end comes back behind what others have left.
            Some(call) => owe(call),
            None => return,
        }
    }
}

/// Somebody is to be called: at once if this thread is in no stay.
pub(crate) fn owe(call: Call) {
    OWED.with(|owed| owed.calls.borrow_mut().push_back(call));
    drop(Stay::begin());
}

/// Whether this thread makes calls, and so stands in a waker. It sleeps for nobody then: those whom it would wait for may need it.
pub(crate) fn is_calling() -> bool {
    OWED.with(|owed| owed.is_calling.get())
}

/// What a call answers that would sleep in a waker.
pub(crate) fn would_sleep() -> io::Error {
    io::Error::new(
        io::ErrorKind::Deadlock,
        "a call that waits was made in a waker, whose thread others need: use its non-blocking or asynchronous form",
    )
}

/// Notes a turn of a lane's in its own thread, if that is in a waker.
pub(crate) fn note_turn() {
    OWED.with(|owed| owed.has_turned.set(owed.has_turned.get() || owed.is_calling.get()));
}

/// Whether there was one since this was asked last: what the worker had found before may be otherwise by now.
pub(crate) fn take_turn() -> bool {
    OWED.with(|owed| owed.has_turned.replace(false))
}

/// While it lasts nobody is called by this thread. It belongs to the thread that began it.
#[derive(Debug)]
pub(crate) struct Stay(std::marker::PhantomData<*const ()>);

impl Stay {
    #[inline]
    pub(crate) fn begin() -> Self {
        OWED.with(|owed| owed.stays.set(owed.stays.get() + 1));
        Self(std::marker::PhantomData)
    }

    /// Ends that of a worker's turn. What the calls bring about without end is given back, for the turn that comes at once.
    pub(crate) fn end_turn(self) -> VecDeque<Call> {
        OWED.with(|owed| {
            let is_outermost = owed.stays.get() == 1 && !owed.is_calling.get();
            if is_outermost && owed.owes() { owed.make_some() } else { VecDeque::new() }
        })
    }
}

impl Drop for Stay {
    #[inline]
    fn drop(&mut self) {
        OWED.with(|owed| {
            let left = owed.stays.get() - 1;
            owed.stays.set(left);
            if left == 0 && !owed.is_calling.get() && owed.owes() {
                owed.make_all();
            }
        });
    }
}

/// A lock that is held, with the stay that lasts as long: who is called then may take it.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    // Dropped first.
    guard: MutexGuard<'a, T>,
    _stay: Stay,
}

/// Takes a lock that wakers' own calls take, too.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> Held<'_, T> {
    let stay = Stay::begin();
    Held { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), _stay: stay }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl Owed {
    #[inline]
    fn owes(&self) -> bool {
        !self.calls.borrow().is_empty()
    }

    fn make_all(&self) {
        loop {
            let back = hand_on(self.make_some());
            if back.is_empty() {
                return;
            }
            self.calls.borrow_mut().extend(back);
        }
    }

    /// Makes what is owed and a part of what that brings about; answers the rest.
    fn make_some(&self) -> VecDeque<Call> {
        let most = self.calls.borrow().len() + CHAIN_MAX;
        self.is_calling.set(true);
        (0..most).map_while(|_| self.next()).for_each(Call::make);
        self.is_calling.set(false);
        let rest = if self.owes() { mem::take(&mut **self.calls.borrow_mut()) } else { VecDeque::new() };
        if STORAGE.try_with(|_| ()).is_err() {
            self.shrink();
        }
        rest
    }

    fn next(&self) -> Option<Call> {
        self.calls.borrow_mut().pop_front()
    }

    fn shrink(&self) {
        self.calls.borrow_mut().shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::{Duration, Instant};

    use super::*;

    /// Does something when it is woken, once.
    struct Once(Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl Wake for Once {
        fn wake(self: Arc<Self>) {
            let act = self.0.lock().unwrap().take();
            act.into_iter().for_each(|act| act());
        }
    }

    fn owes(act: impl FnOnce() + Send + 'static) {
        owe(Call::Task(Waker::from(Arc::new(Once(Mutex::new(Some(Box::new(act))))))));
    }

    fn noted() -> (Arc<Mutex<Vec<u8>>>, impl Fn(u8) + Clone + Send + 'static) {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&notes);
        (notes, move |note| kept.lock().unwrap().push(note))
    }

    #[test]
    fn calls_are_made_when_the_outermost_stay_ends_and_in_order() {
        let (notes, note) = noted();
        let (outer, inner) = (Stay::begin(), Stay::begin());
        for n in [1, 2] {
            let note = note.clone();
            owes(move || note(n));
        }
        drop(inner);
        assert!(notes.lock().unwrap().is_empty());
        drop(outer);
        assert_eq!(*notes.lock().unwrap(), [1, 2]);
        owes(move || note(3));
        assert_eq!(*notes.lock().unwrap(), [1, 2, 3], "nothing keeps it");
    }

    #[test]
    fn what_a_call_brings_about_comes_behind_it() {
        let (notes, note) = noted();
        owes(move || {
            let inner = note.clone();
            owes(move || inner(2));
            assert!(is_calling());
            note(1);
        });
        assert_eq!(*notes.lock().unwrap(), [1, 2]);
        assert!(!is_calling());
    }

    #[test]
    fn who_has_a_fault_keeps_no_other_from_being_called() {
        let (notes, note) = noted();
        let stay = Stay::begin();
        owes(|| panic!("a waker has a fault"));
        owes(move || note(1));
        drop(stay);
        assert_eq!(*notes.lock().unwrap(), [1]);
    }

    /// What is called brings about another one, until `left` is none. Notes in which thread.
    fn goes_on(left: usize, note: impl Fn() + Clone + Send + 'static) {
        owes(move || {
            note();
            if left > 1 {
                goes_on(left - 1, note);
            }
        });
    }

    /// How many calls of a chain that goes on for long were made in this thread, and in others.
    fn places() -> (Arc<[AtomicUsize; 2]>, impl Fn() + Clone + Send + 'static) {
        let (counts, own) = (Arc::new([const { AtomicUsize::new(0) }; 2]), thread::current().id());
        let kept = Arc::clone(&counts);
        (counts, move || {
            kept[usize::from(thread::current().id() != own)].fetch_add(1, Ordering::SeqCst);
        })
    }

    const LONG: usize = 10_000;

    #[test]
    fn who_calls_those_that_answer_each_other_for_long_goes_on_and_another_calls_them() {
        let (counts, note) = places();
        goes_on(LONG, note);
        let made = || counts.each_ref().map(|it| it.load(Ordering::SeqCst));
        let until = Instant::now() + Duration::from_secs(20);
        while made().iter().sum::<usize>() < LONG && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(made(), [CHAIN_MAX + 1, LONG - CHAIN_MAX - 1], "none is lost");
    }

    #[test]
    fn a_worker_keeps_for_its_next_turn_what_has_no_end() {
        let (counts, note) = places();
        let stay = Stay::begin();
        goes_on(LONG, note);
        let mut left = stay.end_turn();
        let mut turns = 1;
        while !left.is_empty() {
            assert_eq!(counts[0].load(Ordering::SeqCst), turns * (CHAIN_MAX + 1));
            let stay = Stay::begin();
            left.into_iter().for_each(owe);
            left = stay.end_turn();
            turns += 1;
        }
        assert_eq!(counts.each_ref().map(|it| it.load(Ordering::SeqCst)), [LONG, 0]);
    }

    /// Owes something in a stay when its thread ends.
    struct Last(Option<Box<dyn FnOnce() + Send>>);

    impl Drop for Last {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|act| act());
        }
    }

    thread_local! {
        static BEFORE: RefCell<Last> = const { RefCell::new(Last(None)) };
        static BEHIND: RefCell<Last> = const { RefCell::new(Last(None)) };
    }

    #[test]
    fn a_thread_that_ends_calls_nobody_in_a_stay_either() {
        let (notes, note) = noted();
        let act = move || {
            let note = note.clone();
            Last(Some(Box::new(move || {
                let stay = Stay::begin();
                let called = note.clone();
                owes(move || called(2));
                note(1);
                drop(stay);
            })))
        };
        // Destructors have an order, so one of the two comes when those of this file are over.
        let ending = thread::spawn(move || {
            BEFORE.set(act());
            owes(|| ());
            BEHIND.set(act());
        });
        ending.join().unwrap();
        assert_eq!(*notes.lock().unwrap(), [1, 2, 1, 2]);
    }
}
