//! Zeroed memory for many cells, which costs what of it is touched.
//!
//! Used by `mpsc.rs`. A general allocator that has a piece of that size at hand, because one was given back before, clears it, and a
//! listener's accept queue takes longer to clear than all else that listening is. So much memory has address space of its own here,
//! which the kernel fills page by page.

use core::mem::needs_drop;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// From so many bytes on it is cheaper to map memory, and to take some page faults later, than to clear it.
const MAPPED_FROM: usize = 64 << 10;

/// So many `T`, all of whose bytes were zero at first.
pub(crate) struct Zeroed<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: it owns the cells, as a box does.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: it gives out shared references alone.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T> Zeroed<T> {
    /// Makes `count` cells.
    ///
    /// # Safety
    /// Bytes of zero are a valid `T`.
    pub(crate) unsafe fn new(count: usize) -> Self {
        const { assert!(!needs_drop::<T>() && size_of::<T>() > 0, "cells are not dropped") };
        let layout = Self::layout(count);
        let memory = if layout.size() >= MAPPED_FROM {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice is nobody else's.
            unsafe { mmap_anonymous(ptr::null_mut(), layout.size(), access, MapFlags::PRIVATE) }
                .map_or(ptr::null_mut(), |memory| memory.cast())
        } else {
            assert!(layout.size() > 0, "a ring has cells");
            // SAFETY: the layout has a size.
            unsafe { alloc_zeroed(layout).cast() }
        };
        let Some(first) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { first, count }
    }

    fn layout(count: usize) -> Layout {
        Layout::array::<T>(count).expect("cells fit into memory")
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: so many cells lie there as long as it lives, and were valid from the first.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        let (layout, memory) = (Self::layout(self.count), self.first.as_ptr());
        if layout.size() >= MAPPED_FROM {
            // SAFETY: it was mapped with this length, and nobody has a reference any more. It cannot fail then.
            let _ = unsafe { munmap(memory.cast(), layout.size()) };
        } else {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(memory.cast(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn all_is_zero_and_apart_in_memory_of_either_kind() {
        for count in [1, 2, MAPPED_FROM / 8 - 1, MAPPED_FROM / 8, MAPPED_FROM / 8 + 1, 1 << 17] {
            for _ in 0..3 {
                // SAFETY: zero is a number.
                let cells = unsafe { Zeroed::<AtomicU64>::new(count) };
                assert_eq!(cells.len(), count);
                assert!(cells.iter().all(|cell| cell.load(Ordering::Relaxed) == 0), "{count}");
                cells.iter().zip(1..).for_each(|(cell, nth)| cell.store(nth, Ordering::Relaxed));
                assert!(cells.iter().zip(1..).all(|(cell, nth)| cell.load(Ordering::Relaxed) == nth));
            }
        }
    }
}
