//! A bounded FIFO that many threads push to: the squeue's queue and the listeners' accept queues.
//!
//! Dmitry Vyukov's bounded queue: each cell carries a turn number that says whose turn it is.
//!
//! R1. The lap of a position is where the ring was entered last before it. A cell may be filled at a position when its
//!     turn is that lap, and emptied when its turn is one more; the one who empties it sets the turn to the next lap, a
//!     capacity further. Turns begin at zero, so a new ring is zeroed memory, which costs what is touched.
//! R2. Positions are claimed by compare-and-swap of `tail` (pushers) and `head` (poppers). The claim of a
//!     position gives the cell to the claimer until it sets the turn, by a release store.
//! R3. Items come out in the order of the claims. An item whose pusher is between claim and release hides
//!     those behind it; that pusher's own wake-up, after its push, covers them.
//!
//! Popping is safe from any thread, but order means something only to one consumer at a time: the one who
//! owns the perimeter.

use core::fmt;
use core::mem::MaybeUninit;

use crate::sync::{AtomicUsize, CachePadded, Ordering, UnsafeCell};

struct Cell<T> {
    turn: AtomicUsize,
    item: UnsafeCell<MaybeUninit<T>>,
}

/// A bounded FIFO with many producers.
pub struct MpscRing<T> {
    tail: CachePadded<AtomicUsize>,
    head: CachePadded<AtomicUsize>,
    cells: Cells<T>,
}

#[cfg(not(loom))]
type Cells<T> = crate::zeroed::Zeroed<Cell<T>>;
#[cfg(loom)]
type Cells<T> = Box<[Cell<T>]>;

// SAFETY: (R2) a cell is touched by its claimer only, and items only move through.
unsafe impl<T: Send> Sync for MpscRing<T> {}
// SAFETY: the ring owns its items.
unsafe impl<T: Send> Send for MpscRing<T> {}

impl<T> MpscRing<T> {
    /// A ring for `capacity` items, rounded up to a power of two and at least two.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2).next_power_of_two();
        Self {
            tail: CachePadded(AtomicUsize::new(0)),
            head: CachePadded(AtomicUsize::new(0)),
            cells: Self::cells(capacity),
        }
    }

    #[cfg(not(loom))]
    fn cells(capacity: usize) -> Cells<T> {
        // SAFETY: a turn of zero is one, and an item may be any bytes until its cell is filled.
        unsafe { Cells::new(capacity) }
    }

    #[cfg(loom)]
    fn cells(capacity: usize) -> Cells<T> {
        let cell = |_| Cell { turn: AtomicUsize::new(0), item: UnsafeCell::new(MaybeUninit::uninit()) };
        (0..capacity).map(cell).collect()
    }

    /// How many items the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    fn cell(&self, position: usize) -> &Cell<T> {
        &self.cells[position & (self.cells.len() - 1)]
    }

    /// The turn at which the cell of a position may be filled.
    fn lap(&self, position: usize) -> usize {
        position & !(self.cells.len() - 1)
    }

    /// Puts an item in; gives it back if the ring is full.
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut position = self.tail.0.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(position);
            // Acquire: the popper is done with the cell.
            let ahead = cell.turn.load(Ordering::Acquire).wrapping_sub(self.lap(position)) as isize;
            if ahead < 0 {
                return Err(item);
            }
            if ahead > 0 {
                position = self.tail.0.load(Ordering::Relaxed);
                continue;
            }
            match self.tail.0.compare_exchange_weak(
                position,
                position.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // SAFETY: (R2) the position is claimed and the cell empty.
                    cell.item.with_mut(|slot| unsafe { (*slot).write(item) });
                    cell.turn.store(self.lap(position).wrapping_add(1), Ordering::Release);
                    return Ok(());
                }
                Err(seen) => position = seen,
            }
        }
    }

    /// Takes the first item.
    pub fn pop(&self) -> Option<T> {
        let mut item = None;
        self.pop_each(1, |popped| item = Some(popped));
        item
    }

    /// Gives up to `budget` items to `f`, in order, and returns how many: one claim for all of them.
    pub fn pop_each(&self, budget: usize, mut f: impl FnMut(T)) -> usize {
        let mut head = self.head.0.load(Ordering::Relaxed);
        let count = loop {
            let count = self.ready_from(head, budget);
            if count == 0 {
                // Another consumer may have moved on; a ring that stands still is empty.
                let seen = self.head.0.load(Ordering::Relaxed);
                if seen == head {
                    return 0;
                }
                head = seen;
                continue;
            }
            let end = head.wrapping_add(count);
            match self.head.0.compare_exchange_weak(head, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break count,
                Err(seen) => head = seen,
            }
        };
        for n in 0..count {
            let position = head.wrapping_add(n);
            let cell = self.cell(position);
            // SAFETY: (R2) the position is claimed, and `ready_from` saw by acquire that it is filled.
            let item = cell.item.with_mut(|slot| unsafe { (*slot).assume_init_read() });
            cell.turn.store(self.lap(position).wrapping_add(self.capacity()), Ordering::Release);
            f(item);
        }
        count
    }

    /// How many filled cells follow each other from `head`, up to `budget`.
    fn ready_from(&self, head: usize, budget: usize) -> usize {
        (0..budget.min(self.capacity()))
            .take_while(|&n| {
                let position = head.wrapping_add(n);
                self.cell(position).turn.load(Ordering::Acquire) == self.lap(position).wrapping_add(1)
            })
            .count()
    }

    /// Whether no position is claimed and not yet popped. A push that has begun counts as an item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items there are, those included whose push has begun. With other threads at work it is a
    /// snapshot.
    pub fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Acquire);
        let tail = self.tail.0.load(Ordering::Acquire);
        tail.wrapping_sub(head).min(self.capacity())
    }
}

impl<T> Drop for MpscRing<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T> fmt::Debug for MpscRing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpscRing({} of {})", self.len(), self.capacity())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::thread;

    proptest! {
        #[test]
        fn behaves_as_a_bounded_deque(steps in prop::collection::vec(0usize..6, 0..200)) {
            let ring = MpscRing::new(3);
            prop_assert_eq!(ring.capacity(), 4);
            let mut model = VecDeque::new();
            for (n, step) in steps.into_iter().enumerate() {
                if step < 3 {
                    let pushed = ring.push(Box::new(n)).is_ok();
                    prop_assert_eq!(pushed, model.len() < 4);
                    if pushed { model.push_back(n) }
                } else {
                    let budget = step - 2;
                    let mut got = Vec::new();
                    ring.pop_each(budget, |item| got.push(*item));
                    prop_assert_eq!(got, model.drain(..budget.min(model.len())).collect::<Vec<_>>());
                }
                prop_assert_eq!(ring.len(), model.len());
            }
        }
    }

    #[test]
    fn each_producers_items_come_out_in_its_order() {
        const EACH: usize = 10_000;
        let ring = Arc::new(MpscRing::new(64));
        let producers: Vec<_> = (0..3usize)
            .map(|who| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    for n in 0..EACH {
                        while ring.push((who, n)).is_err() {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0usize; 3];
        while next.iter().sum::<usize>() < 3 * EACH {
            let popped = ring.pop_each(16, |(who, n)| {
                assert_eq!(n, next[who]);
                next[who] += 1;
            });
            if popped == 0 {
                thread::yield_now();
            }
        }
        producers.into_iter().for_each(|p| p.join().unwrap());
        assert!(ring.is_empty() && ring.pop().is_none());
    }

    #[test]
    fn what_is_left_is_dropped_with_the_ring() {
        let item = Arc::new(());
        let ring = MpscRing::new(4);
        (0..3).for_each(|_| ring.push(Arc::clone(&item)).unwrap());
        drop(ring);
        assert_eq!(Arc::strong_count(&item), 1);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use crate::sync::Arc;
    use loom::thread;

    #[test]
    fn no_item_is_lost_doubled_or_torn() {
        loom::model(|| {
            let ring = Arc::new(MpscRing::new(2));
            let producers: Vec<_> = (1..=2u32)
                .map(|item| {
                    let ring = Arc::clone(&ring);
                    thread::spawn(move || ring.push(item).unwrap())
                })
                .collect();
            let mut got = Vec::new();
            ring.pop_each(2, |item| got.push(item));
            producers.into_iter().for_each(|p| p.join().unwrap());
            ring.pop_each(2, |item| got.push(item));
            got.sort_unstable();
            assert_eq!(got, [1, 2]);
        });
    }

    #[test]
    fn a_cell_is_reused_only_after_it_was_emptied() {
        loom::model(|| {
            let ring = Arc::new(MpscRing::new(2));
            ring.push(0).unwrap();
            let producer = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || [1, 2].into_iter().filter(|&n| ring.push(n).is_ok()).count())
            };
            let mut got: Vec<i32> = ring.pop().into_iter().collect();
            let pushed = producer.join().unwrap();
            while let Some(item) = ring.pop() {
                got.push(item);
            }
            assert_eq!(got, (0..=pushed as i32).collect::<Vec<_>>());
        });
    }
}
