//! The squeue's queue: bounded, many producers, one consumer at a time.
//!
//! Used by `squeue.rs` only. The consumer's end lives inside the perimeter, so that only an owner can reach
//! it. Under loom a mutex and a deque stand in: the model is about the perimeter's word, and the ring has
//! its own proof.

#[cfg(loom)]
pub(crate) use self::model::{FifoIn, FifoOut, fifo};
#[cfg(not(loom))]
pub(crate) use self::ring::{FifoIn, FifoOut, fifo};

#[cfg(not(loom))]
mod ring {
    use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

    #[derive(Debug)]
    pub(crate) struct FifoIn<T>(SyncSender<T>);

    #[derive(Debug)]
    pub(crate) struct FifoOut<T>(Receiver<T>);

    pub(crate) fn fifo<T>(capacity: usize) -> (FifoIn<T>, FifoOut<T>) {
        let (tx, rx) = sync_channel(capacity);
        (FifoIn(tx), FifoOut(rx))
    }

    impl<T> FifoIn<T> {
        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            self.0.try_send(item).map_err(|error| match error {
                TrySendError::Full(item) | TrySendError::Disconnected(item) => item,
            })
        }
    }

    impl<T> FifoOut<T> {
        pub(crate) fn pop(&mut self) -> Option<T> {
            self.0.try_recv().ok()
        }
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::{Arc, Mutex};
    use std::collections::VecDeque;

    #[derive(Debug)]
    pub(crate) struct FifoIn<T>(Arc<Mutex<VecDeque<T>>>, usize);
    #[derive(Debug)]
    pub(crate) struct FifoOut<T>(Arc<Mutex<VecDeque<T>>>);

    pub(crate) fn fifo<T>(capacity: usize) -> (FifoIn<T>, FifoOut<T>) {
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        (FifoIn(Arc::clone(&queue), capacity), FifoOut(queue))
    }

    impl<T> FifoIn<T> {
        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            let mut queue = self.0.lock().unwrap();
            if queue.len() == self.1 {
                return Err(item);
            }
            queue.push_back(item);
            Ok(())
        }
    }

    impl<T> FifoOut<T> {
        pub(crate) fn pop(&mut self) -> Option<T> {
            self.0.lock().unwrap().pop_front()
        }
    }
}
