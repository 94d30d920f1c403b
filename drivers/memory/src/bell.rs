//! Who is woken at one end of a wire. `end.rs` rings, the end's owner says whom: another one after each move to another lane.

use core::task::Waker;
use std::sync::{Mutex, PoisonError};

/// Rung only where a sleeper has wished it, so that the lock is taken for no frame that finds its receiver awake.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Option<Waker>>);

impl Bell {
    /// Whoever was woken before is not from now on.
    pub(crate) fn set(&self, waker: Waker) {
        let before = self.lock().replace(waker);
        // Its end may do anything, which the lock need not see.
        drop(before);
    }

    pub(crate) fn ring(&self) {
        let waker = self.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        // The waker is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
