//! A stack of indices that any thread may push and pop, without a lock: what is free of an arena (`arena.rs`), which has the links.
//!
//! S1. The head counts its changes, so a head that was read and came back is recognised.
//! S2. Who pops an index has it for himself until he pushes it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::ahead;

/// What lies below an index in its stack.
#[repr(transparent)]
pub(crate) struct Link(AtomicU32);

/// Where a stack has its links.
pub(crate) trait Links {
    fn link(&self, index: u32) -> &Link;
}

impl Links for [Link] {
    fn link(&self, index: u32) -> &Link {
        &self[index as usize]
    }
}

/// A stack of indices whose links lie beside it (S1): the count of changes above, the index plus one below.
#[derive(Default)]
pub(crate) struct Stack(AtomicU64);

impl Stack {
    pub(crate) fn push(&self, links: &(impl Links + ?Sized), index: u32) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            links.link(index).0.store(head as u32, Ordering::Relaxed);
            match self.0.compare_exchange_weak(
                head,
                after(head, index + 1),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// What is below is on its way to this CPU afterwards: the next one to be taken.
    pub(crate) fn pop(&self, links: &(impl Links + ?Sized)) -> Option<u32> {
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let index = (head as u32).checked_sub(1)?;
            let below = links.link(index).0.load(Ordering::Relaxed);
            match self.0.compare_exchange_weak(head, after(head, below), Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => {
                    if let Some(next) = below.checked_sub(1) {
                        ahead::fetch(links.link(next), ahead::Use::Write);
                    }
                    return Some(index);
                }
                Err(now) => head = now,
            }
        }
    }
}

/// The next head after `head`, with `top` as its index.
const fn after(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | top as u64
}
