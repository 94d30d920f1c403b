//! An allocator that counts, so that "no allocation per frame" and "bytes per connection" are numbers.
//!
//! Each thread counts for itself, so that a measured program pays for the counting no more than a few instructions; a benchmark
//! adds them up before and after.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many threads have counters of their own. Those that come later share the last.
const THREADS: usize = 64;

/// What some threads have counted.
#[repr(align(128))]
struct Counters {
    allocations: AtomicU64,
    /// May be less than nothing: what one has allocated another frees.
    live_bytes: AtomicU64,
}

static COUNTERS: [Counters; THREADS] =
    [const { Counters { allocations: AtomicU64::new(0), live_bytes: AtomicU64::new(0) } }; THREADS];
static THREADS_SEEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's counters.
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The system's allocator, with counters.
pub(crate) struct Counting;

/// How often memory was asked for since the process began, grown pieces included.
pub(crate) fn allocations() -> u64 {
    COUNTERS.iter().map(|it| it.allocations.load(Ordering::Relaxed)).sum()
}

/// The bytes that are allocated, as they were asked for.
pub(crate) fn live_bytes() -> u64 {
    COUNTERS.iter().fold(0, |sum, it| sum.wrapping_add(it.live_bytes.load(Ordering::Relaxed)))
}

fn own() -> usize {
    let number = |own: &Cell<Option<usize>>| {
        own.get().unwrap_or_else(|| {
            let number = THREADS_SEEN.fetch_add(1, Ordering::Relaxed).min(THREADS - 1);
            own.set(Some(number));
            number
        })
    };
    // A thread that ends counts with those that came late.
    OWN.try_with(number).unwrap_or(THREADS - 1)
}

fn count(allocations: u64, grown: usize, shrunk: usize) {
    let own = own();
    let Counters { allocations: count, live_bytes } = &COUNTERS[own];
    let change = (grown as u64).wrapping_sub(shrunk as u64);
    if own < THREADS - 1 {
        // Nobody else writes here.
        count.store(count.load(Ordering::Relaxed) + allocations, Ordering::Relaxed);
        live_bytes.store(live_bytes.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
    } else {
        count.fetch_add(allocations, Ordering::Relaxed);
        live_bytes.fetch_add(change, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the arguments as they came, and its answer goes back
// unchanged; the counters touch no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller's promises are the ones that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, 0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size, layout.size());
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
        let before = allocations();
        std::thread::spawn(|| drop(std::hint::black_box(vec![0u8; 64]))).join().unwrap();
        assert!(allocations() > before, "on other threads, too");
    }
}
