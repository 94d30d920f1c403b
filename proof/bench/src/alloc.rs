//! An allocator that counts, so that "no allocation per frame" and "bytes per connection" are numbers.
//!
//! The counters are relaxed and global: a benchmark reads them before and after, on the thread that works.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with counters.
pub(crate) struct Counting;

/// How often memory was asked for since the process began, grown pieces included.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// The bytes that are allocated, as they were asked for.
pub(crate) fn live_bytes() -> u64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

fn count(grown: usize, shrunk: usize) {
    LIVE_BYTES.fetch_add(grown as u64, Ordering::Relaxed);
    LIVE_BYTES.fetch_sub(shrunk as u64, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator with the arguments as they came, and its answer goes back
// unchanged; the counters touch no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(layout.size(), 0);
        // SAFETY: the caller's promises are the ones that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(size, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let (times, bytes) = (allocations(), live_bytes());
        // Untouched, and more by far than other tests may give back meanwhile.
        let piece = std::hint::black_box(Vec::<u8>::with_capacity(1 << 30));
        assert!(allocations() > times);
        assert!(live_bytes() >= bytes + (1 << 29));
        drop(piece);
    }
}
