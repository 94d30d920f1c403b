//! Memory that is read ahead: a hint to the processor to fetch what will be used soon.
//!
//! A packet waits for memory at each table that it is looked up in. Who has a chain of them tells the processor first where
//! all of them will look, and goes on meanwhile; it answers them side by side. Rings ask for their slots so, tables for places
//! and nodes.

/// How much of an item is fetched: more is rarely used.
const FETCHED_BYTES: usize = 192;

/// What a line is fetched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// Starts to fetch an item's cache lines, so that they are near when they are read.
#[inline]
pub fn read_ahead<T>(item: &T) {
    fetch(core::ptr::from_ref(item), Use::Read);
}

/// Starts to fetch an item's lines from the memory or the CPU that had them last.
#[inline]
pub(crate) fn fetch<T>(item: *const T, purpose: Use) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<T>().min(FETCHED_BYTES)).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        let address = item.cast::<i8>().wrapping_add(line);
        // SAFETY: a prefetch is a hint: it reads nothing that the program sees, and cannot fault.
        unsafe {
            match purpose {
                Use::Read => _mm_prefetch::<_MM_HINT_T0>(address),
                Use::Write => _mm_prefetch::<_MM_HINT_ET0>(address),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (item, purpose, FETCHED_BYTES);
}
