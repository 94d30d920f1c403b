//! Who wants to hear that a lane has reported something: the waker of one task.
//!
//! Lanes tell it after each notice (`fabric.rs`); `Engine::noticed` waits for it, so that a program that acts on notices
//! sleeps between them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::calls::{self, Call};

/// Whether there is something new, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct News(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_new: bool,
    waker: Option<Waker>,
}

impl News {
    /// There is something new.
    pub(crate) fn tell(&self) {
        let mut inner = self.lock();
        inner.is_new = true;
        let waker = inner.waker.take();
        drop(inner);
        waker.into_iter().for_each(|waker| calls::owe(Call::Task(waker)));
    }

    /// Ready once for everything that was told since it was ready last.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.is_new) {
            return Poll::Ready(());
        }
        inner.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Two words that are true of each other at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
