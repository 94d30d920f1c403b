//! The way home for slots that were freed outside their pool: a stack that anyone pushes to and only the
//! owner empties.
//!
//! Used by `pool.rs` only. The links are a side array, so a slot's memory is not touched to return it.
//!
//! R1. Anyone who holds a slot may push it, once.
//! R2. Only the owner takes, and takes everything in one swap; so a head that was read can come back only
//!     with the same links below it, and the usual ABA fault of a stack cannot happen.
//! R3. A closed stack refuses pushes for ever; the refused slot stays with the one who pushed.

use crate::sync::{AtomicU32, CachePadded, Ordering};

const EMPTY: u32 = u32::MAX;
const CLOSED: u32 = u32::MAX - 1;

/// The most slots that a stack can link.
pub(crate) const SLOTS_MAX: u32 = CLOSED - 1;

/// The stack was closed.
#[derive(Debug)]
pub(crate) struct Closed;

pub(crate) struct ReturnStack {
    head: CachePadded<AtomicU32>,
    links: Box<[AtomicU32]>,
}

impl ReturnStack {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            head: CachePadded(AtomicU32::new(EMPTY)),
            links: (0..slots).map(|_| AtomicU32::new(EMPTY)).collect(),
        }
    }

    /// Returns a slot (R1).
    pub(crate) fn push(&self, slot: u32) -> Result<(), Closed> {
        self.push_linked(slot, slot)
    }

    /// Puts a slot before `rest`. Neither is returned yet: [`push_linked`](Self::push_linked) returns them together.
    /// Who holds a slot owns its link.
    pub(crate) fn link(&self, slot: u32, rest: u32) {
        self.links[slot as usize].store(rest, Ordering::Relaxed);
    }

    /// Returns the slots from `first` to `last`, linked in this order (R1), with one atomic operation.
    pub(crate) fn push_linked(&self, first: u32, last: u32) -> Result<(), Closed> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                return Err(Closed);
            }
            self.links[last as usize].store(head, Ordering::Relaxed);
            // Release: what was written into the slot and its link is seen by the owner, who acquires.
            // Pushes on top are read-modify-writes and continue the release sequence.
            match self.head.0.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(seen) => head = seen,
            }
        }
    }

    /// Takes everything that was returned. The owner only (R2).
    pub(crate) fn take_all(&self) -> Returned<'_> {
        // The look before the swap spares an atomic operation; in the models it would hide interleavings.
        let nothing = cfg!(not(loom)) && self.head.0.load(Ordering::Relaxed) == EMPTY;
        let next = if nothing { EMPTY } else { self.head.0.swap(EMPTY, Ordering::Acquire) };
        Returned { links: &self.links, next }
    }

    /// Refuses every later push, and takes what was returned before (R3). The owner only.
    pub(crate) fn close(&self) -> Returned<'_> {
        Returned { links: &self.links, next: self.head.0.swap(CLOSED, Ordering::AcqRel) }
    }
}

/// The slots that came home.
pub(crate) struct Returned<'a> {
    links: &'a [AtomicU32],
    next: u32,
}

impl Iterator for Returned<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next == EMPTY || self.next == CLOSED {
            return None;
        }
        let slot = self.next;
        self.next = self.links[slot as usize].load(Ordering::Relaxed);
        Some(slot)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_last_returned_comes_first_and_a_closed_stack_refuses() {
        let stack = ReturnStack::new(4);
        for slot in [2, 0, 3] {
            stack.push(slot).unwrap();
        }
        assert_eq!(stack.take_all().collect::<Vec<_>>(), [3, 0, 2]);
        assert_eq!(stack.take_all().count(), 0);
        stack.push(1).unwrap();
        stack.link(3, 0);
        stack.push_linked(3, 0).unwrap();
        assert_eq!(stack.take_all().collect::<Vec<_>>(), [3, 0, 1]);
        stack.push(1).unwrap();
        assert_eq!(stack.close().collect::<Vec<_>>(), [1]);
        assert!(stack.push(2).is_err());
        assert_eq!(stack.close().count(), 0);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use crate::sync::Arc;
    use loom::cell::UnsafeCell;
    use loom::thread;

    struct Model {
        stack: ReturnStack,
        // Loom reports an access that is not ordered after the holder's last one.
        slots: Vec<UnsafeCell<u32>>,
    }

    // SAFETY: the model's point is that the stack orders the accesses; loom checks that it does.
    unsafe impl Sync for Model {}
    // SAFETY: plain numbers.
    unsafe impl Send for Model {}

    fn model(slots: u32) -> Arc<Model> {
        let cells = (0..slots).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Model { stack: ReturnStack::new(slots), slots: cells })
    }

    // SAFETY of every cell access: the one who holds a slot is the only one to touch its cell.
    fn touch(model: &Model, slot: u32) {
        model.slots[slot as usize].with_mut(|p| unsafe { *p += 1 });
    }

    #[test]
    fn each_slot_comes_home_once_with_its_content() {
        loom::model(|| {
            let m = model(3);
            let pushers: Vec<_> = [vec![0], vec![1, 2]]
                .into_iter()
                .map(|slots| {
                    let m = Arc::clone(&m);
                    thread::spawn(move || {
                        slots.iter().for_each(|&slot| touch(&m, slot));
                        // Two slots go home together.
                        slots.windows(2).for_each(|pair| m.stack.link(pair[0], pair[1]));
                        m.stack.push_linked(slots[0], slots[slots.len() - 1]).unwrap();
                    })
                })
                .collect();
            let mut home: Vec<u32> = m.stack.take_all().collect();
            home.iter().for_each(|&slot| touch(&m, slot));
            pushers.into_iter().for_each(|p| p.join().unwrap());
            let rest: Vec<u32> = m.stack.take_all().collect();
            rest.iter().for_each(|&slot| touch(&m, slot));
            home.extend(rest);
            home.sort_unstable();
            assert_eq!(home, [0, 1, 2]);
        });
    }

    #[test]
    fn a_slot_is_either_returned_before_the_close_or_refused() {
        loom::model(|| {
            let m = model(2);
            let pusher = {
                let m = Arc::clone(&m);
                thread::spawn(move || {
                    [0, 1]
                        .into_iter()
                        .filter(|&slot| {
                            touch(&m, slot);
                            m.stack.push(slot).is_err()
                        })
                        .count()
                })
            };
            let home: Vec<u32> = m.stack.close().collect();
            home.iter().for_each(|&slot| touch(&m, slot));
            assert_eq!(home.len() + pusher.join().unwrap(), 2);
        });
    }
}
