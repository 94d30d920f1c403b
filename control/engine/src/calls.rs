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
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::poller::List;

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

/// What this thread owes.
struct Owed {
    calls: RefCell<VecDeque<Call>>,
    /// How many stays there are, one in another.
    stays: Cell<usize>,
    /// It makes the calls now.
    is_calling: Cell<bool>,
    /// A lane whose worker this thread is has had a turn in one of them.
    has_turned: Cell<bool>,
}

thread_local! {
    static OWED: Owed = const {
        Owed {
            calls: RefCell::new(VecDeque::new()),
            stays: Cell::new(0),
            is_calling: Cell::new(false),
            has_turned: Cell::new(false),
        }
    };
}

/// Somebody is to be called: at once if this thread is in no stay.
pub(crate) fn owe(call: Call) {
    let mut call = Some(call);
    // A thread that ends may still wake others by what it drops.
    let _ = OWED.try_with(|owed| owed.calls.borrow_mut().extend(call.take()));
    call.into_iter().for_each(Call::make);
    drop(Stay::begin());
}

/// Whether this thread makes calls, and so stands in a waker. It sleeps for nobody then: those whom it would wait for may need it.
pub(crate) fn is_calling() -> bool {
    OWED.try_with(|owed| owed.is_calling.get()).unwrap_or(false)
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
    let _ = OWED.try_with(|owed| owed.has_turned.set(owed.has_turned.get() || owed.is_calling.get()));
}

/// Whether there was one since this was asked last: what the worker had found before may be otherwise by now.
pub(crate) fn take_turn() -> bool {
    OWED.try_with(|owed| owed.has_turned.replace(false)).unwrap_or(false)
}

/// While it lasts nobody is called by this thread. It belongs to the thread that began it.
#[derive(Debug)]
pub(crate) struct Stay(std::marker::PhantomData<*const ()>);

impl Stay {
    #[inline]
    pub(crate) fn begin() -> Self {
        let _ = OWED.try_with(|owed| owed.stays.set(owed.stays.get() + 1));
        Self(std::marker::PhantomData)
    }
}

impl Drop for Stay {
    #[inline]
    fn drop(&mut self) {
        let _ = OWED.try_with(|owed| {
            let left = owed.stays.get() - 1;
            owed.stays.set(left);
            if left == 0 && !owed.is_calling.get() && !owed.calls.borrow().is_empty() {
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
    fn make_all(&self) {
        self.is_calling.set(true);
        while let Some(call) = self.next() {
            call.make();
        }
        self.is_calling.set(false);
    }

    fn next(&self) -> Option<Call> {
        self.calls.borrow_mut().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

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
}
