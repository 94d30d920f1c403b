//! The one word that says who is inside a lane, and the cell it guards.
//!
//! Called by `squeue.rs` only. It is the leaf that holds the crate's unsafe code: everything else gets a
//! `&mut` from an [`Owner`]. The word counts the items that were announced and not yet taken, beside the
//! bits of ownership, so that "nobody is inside" and "something waits" change in one atomic step.
//!
//! Rules, referred to by number:
//! - R1. At most one [`Owner`] exists; only it may touch the cell.
//! - R2. An item is announced before it is put in the FIFO, so the FIFO never holds more than the count says:
//!   whoever sees the count zero passes nobody, not even an earlier item of his own.
//! - R3. Whoever makes the word change to "nobody inside, items waiting" owes the worker a wake-up: the
//!   announcer that finds it idle and empty, or the owner that leaves items behind.
//! - R4. A worker that finds somebody inside leaves the `WANTED` bit; the owner that clears it at its
//!   release owes the worker a wake-up.
//! - R5. An owner that unwinds poisons the perimeter: its state is half changed and nobody enters again. What is announced
//!   after that is withdrawn and never put in the FIFO, so the count comes to nothing when what was put there is taken out.

use crate::sync::{AtomicUsize, MutPtr, Ordering, UnsafeCell};
use core::ops::{Deref, DerefMut};

/// Somebody is inside.
const OWNED: usize = 1;
/// The worker came while somebody was inside, and went to sleep (R4).
const WANTED: usize = 2;
/// An owner unwound (R5).
const POISONED: usize = 4;
/// One announced item; the count fills the bits above the flags.
const ITEM: usize = 8;

/// A value that one thread at a time may be inside of, and the count of items waiting for it.
#[derive(Debug)]
pub(crate) struct Perimeter<S> {
    word: AtomicUsize,
    state: UnsafeCell<S>,
}

// SAFETY: the cell is reached only through an `Owner`, and at most one exists (R1: made by the
// compare-and-swap that sets OWNED, ended by the one that clears it), so `&Perimeter` gives exclusive access
// to `S` to one thread at a time, which needs `S: Send` and no more.
unsafe impl<S: Send> Sync for Perimeter<S> {}

/// What an announcement found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Announced {
    /// Items waiting, the announced one included.
    pub(crate) waiting: usize,
    /// The announcer must enter itself or wake the worker (R3).
    pub(crate) owes_wake: bool,
    /// Nobody was inside.
    pub(crate) was_idle: bool,
    /// An owner has unwound: the announcement is to be withdrawn (R5).
    pub(crate) is_poisoned: bool,
}

/// What a release left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Released {
    /// Items that nobody has taken.
    pub(crate) waiting: usize,
    /// The worker wanted in meanwhile.
    pub(crate) wanted: bool,
}

/// Nobody may enter any more: an owner unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poisoned;

impl<S> Perimeter<S> {
    pub(crate) fn new(state: S) -> Self {
        Self { word: AtomicUsize::new(0), state: UnsafeCell::new(state) }
    }

    /// Counts one more item, which its caller puts in the FIFO next (R2). The wake-up that the caller may
    /// owe comes after that.
    pub(crate) fn announce(&self) -> Announced {
        // SeqCst is not needed because ownership and count are one word.
        let old = self.word.fetch_add(ITEM, Ordering::AcqRel);
        let was_idle = old & OWNED == 0;
        let is_poisoned = old & POISONED != 0;
        Announced { waiting: old / ITEM + 1, owes_wake: was_idle && old < ITEM, was_idle, is_poisoned }
    }

    /// Takes an announcement back: the FIFO was full, or the item is for nobody any more.
    pub(crate) fn withdraw(&self) {
        self.word.fetch_sub(ITEM, Ordering::AcqRel);
    }

    /// Items that were announced and not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.word.load(Ordering::Acquire) / ITEM
    }

    /// Whether an owner unwound (R5).
    pub(crate) fn is_poisoned(&self) -> bool {
        self.word.load(Ordering::Relaxed) & POISONED != 0
    }

    /// Enters if nobody is inside and nothing waits.
    pub(crate) fn own_if_empty(&self) -> Option<Owner<'_, S>> {
        self.word.compare_exchange(0, OWNED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(self.owner())
    }

    /// Enters if nobody is inside.
    pub(crate) fn own(&self) -> Option<Owner<'_, S>> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & (OWNED | POISONED) != 0 {
                return None;
            }
            match self.word.compare_exchange_weak(word, word | OWNED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(self.owner()),
                Err(seen) => word = seen,
            }
        }
    }

    /// Enters if nobody is inside; otherwise leaves word that the worker wants in (R4).
    pub(crate) fn own_or_want(&self) -> Result<Option<Owner<'_, S>>, Poisoned> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & POISONED != 0 {
                return Err(Poisoned);
            }
            let next = if word & OWNED == 0 { word | OWNED } else { word | WANTED };
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if word & OWNED == 0 => return Ok(Some(self.owner())),
                Ok(_) => return Ok(None),
                Err(seen) => word = seen,
            }
        }
    }

    /// The state itself, when nobody else can reach it.
    pub(crate) fn into_inner(self) -> S {
        self.state.into_inner()
    }

    fn owner(&self) -> Owner<'_, S> {
        Owner { perimeter: self, state: Some(self.state.get_mut()) }
    }
}

/// The right to be inside; ends with [`Owner::release`].
#[derive(Debug)]
pub(crate) struct Owner<'a, S> {
    perimeter: &'a Perimeter<S>,
    /// `None` once released. Loom's pointer also checks that accesses do not overlap.
    state: Option<MutPtr<S>>,
}

impl<S> Owner<'_, S> {
    /// Items that were announced and not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.perimeter.waiting()
    }

    /// Counts off `items` that were taken from the FIFO.
    pub(crate) fn took(&mut self, items: usize) {
        let old = self.perimeter.word.fetch_sub(items * ITEM, Ordering::Relaxed);
        debug_assert!(old / ITEM >= items, "only announced items are taken");
    }

    /// Leaves the perimeter.
    pub(crate) fn release(mut self) -> Released {
        self.state = None;
        let word = &self.perimeter.word;
        let old = word.fetch_and(!(OWNED | WANTED), Ordering::AcqRel);
        Released { waiting: old / ITEM, wanted: old & WANTED != 0 }
    }
}

impl<S> Drop for Owner<'_, S> {
    fn drop(&mut self) {
        if self.state.take().is_some() {
            // Dropped without a release: the owner is unwinding (R5).
            self.perimeter.word.fetch_or(POISONED, Ordering::AcqRel);
        }
    }
}

impl<S> Deref for Owner<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        let state = self.state.as_ref().expect("an owner holds the state until it is released");
        // SAFETY: this is the only owner (R1), the pointer is the cell's own, and the borrow of `self`
        // keeps any `&mut` from the same owner away while this reference lives.
        unsafe { &*pointer(state) }
    }
}

impl<S> DerefMut for Owner<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        let state = self.state.as_ref().expect("an owner holds the state until it is released");
        // SAFETY: as in `deref`, and `&mut self` excludes every other reference through this owner.
        unsafe { &mut *pointer(state) }
    }
}

#[cfg(not(loom))]
fn pointer<S>(state: &MutPtr<S>) -> *mut S {
    state.as_ptr()
}

#[cfg(loom)]
fn pointer<S>(state: &MutPtr<S>) -> *mut S {
    state.with(|pointer| pointer)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time() {
        let perimeter = Perimeter::new(7);
        let mut owner = perimeter.own().unwrap();
        *owner += 1;
        assert!(perimeter.own().is_none() && perimeter.own_if_empty().is_none());
        assert_eq!(owner.release(), Released { waiting: 0, wanted: false });
        assert_eq!(*perimeter.own_if_empty().unwrap(), 8);
    }

    #[test]
    fn the_first_to_announce_at_an_idle_perimeter_owes_the_wake_up() {
        let perimeter = Perimeter::new(());
        let first = perimeter.announce();
        assert!(first.owes_wake && first.was_idle && first.waiting == 1);
        assert!(!perimeter.announce().owes_wake);
        assert!(perimeter.own_if_empty().is_none(), "two items wait");
        let mut owner = perimeter.own().unwrap();
        owner.took(2);
        assert!(!perimeter.announce().owes_wake, "the owner will see it");
        assert_eq!(owner.release(), Released { waiting: 1, wanted: false });
    }

    #[test]
    fn the_worker_that_had_to_turn_back_is_remembered() {
        let perimeter = Perimeter::new(());
        let owner = perimeter.own().unwrap();
        assert!(perimeter.own_or_want().unwrap().is_none());
        assert!(owner.release().wanted);
        let again = perimeter.own_or_want().unwrap().unwrap();
        assert!(!again.release().wanted, "the wish is granted once");
    }

    #[test]
    fn an_owner_that_unwinds_shuts_the_door() {
        let perimeter = Perimeter::new(1);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _owner = perimeter.own().unwrap();
            panic!("inside");
        }));
        assert!(result.is_err() && perimeter.is_poisoned());
        assert!(perimeter.own().is_none() && perimeter.own_if_empty().is_none());
        assert!(perimeter.own_or_want().is_err());
    }
}
