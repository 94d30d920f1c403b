//! A gate before something that its owner has lent: one thread at a time may be inside, and the owner may shut it at any
//! moment without waiting.
//!
//! G1. Who enters an open gate has what is behind it to himself until he leaves.
//! G2. The owner that shuts a gate has it back at once if nobody is inside, and else from the moment at which he leaves
//!     who is: exactly one of the two is told so.

use crate::sync::{AtomicU32, Ordering};

const OPEN: u32 = 1;
const INSIDE: u32 = 2;

/// Shut, until its owner opens it.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicU32);

impl Gate {
    /// Owner: lends what is behind it, or takes back that it wanted it.
    pub(super) fn open(&self) {
        self.0.fetch_or(OPEN, Ordering::AcqRel);
    }

    /// Goes in, if it is open and nobody is inside.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        self.0.compare_exchange(OPEN, OPEN | INSIDE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Goes out. Whether the owner has shut the gate meanwhile and is to be told (G2).
    #[inline]
    pub(super) fn leave(&self) -> bool {
        self.0.fetch_and(!INSIDE, Ordering::AcqRel) & OPEN == 0
    }

    /// Owner: lets nobody in any more. Whether nobody is inside (G2).
    pub(super) fn shut(&self) -> bool {
        self.0.fetch_and(!OPEN, Ordering::AcqRel) & INSIDE == 0
    }

    /// Whether it is open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) & OPEN != 0
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use crate::sync::{Arc, UnsafeCell};
    use loom::thread;

    /// What is lent is used by one at a time, and the owner learns once that he has it back.
    #[test]
    fn the_owner_gets_it_back_once() {
        loom::model(|| {
            let lent = Arc::new((Gate::default(), UnsafeCell::new(0u32)));
            let (gate, _) = &*lent;
            gate.open();
            let user = {
                let lent = Arc::clone(&lent);
                thread::spawn(move || {
                    let (gate, cell) = &*lent;
                    let mut told = 0;
                    for _ in 0..2 {
                        if gate.enter() {
                            // SAFETY: (G1), which loom checks.
                            cell.with_mut(|at| unsafe { *at += 1 });
                            told += u32::from(gate.leave());
                        }
                    }
                    if told > 0 {
                        // The message that the owner acts on.
                        // SAFETY: as above.
                        cell.with_mut(|at| unsafe { *at += 10 });
                    }
                    told
                })
            };
            let at_once = gate.shut();
            if at_once {
                // SAFETY: as above.
                lent.1.with_mut(|at| unsafe { *at += 10 });
            }
            assert_eq!(user.join().unwrap() + u32::from(at_once), 1);
            assert!(!gate.enter());
        });
    }
}
