//! Memory that is read ahead: a hint to the processor to fetch what will be used soon.
//!
//! A packet waits for memory at each table that it is looked up in. Who has a chain of them tells the processor first where
//! all of them will look, and goes on meanwhile; it answers them side by side. Rings ask for their slots so, tables for places
//! and nodes, and a lane asks so for what its next connections will use.

/// How much of an item is fetched: more is rarely used.
const FETCHED_BYTES: usize = 192;
const LINE_BYTES: usize = 64;

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

/// The same of an item of which no more than its first line is used.
#[inline]
pub fn read_begin_ahead<T>(item: &T) {
    fetch_bytes(core::ptr::from_ref(item).cast(), LINE_BYTES.min(size_of::<T>()), Use::Read);
}

/// The same of an item that is used from end to end.
#[inline]
pub fn read_all_ahead<T>(item: &T) {
    let first = core::ptr::from_ref(item).cast::<u8>();
    let before = first.addr() % LINE_BYTES;
    fetch_bytes(first.wrapping_sub(before), before + size_of::<T>(), Use::Read);
}

/// The same of the first bytes of memory that somebody else may write meanwhile.
#[inline]
pub fn read_bytes_ahead(first: *const u8, bytes: usize) {
    fetch_bytes(first, bytes.min(FETCHED_BYTES), Use::Read);
}

/// Starts to fetch an item's lines from the memory or the CPU that had them last.
#[inline]
pub(crate) fn fetch<T>(item: *const T, purpose: Use) {
    fetch_bytes(item.cast(), size_of::<T>().min(FETCHED_BYTES), purpose);
}

/// Starts to fetch the lines of so many bytes. They need not be there: a hint cannot fault.
#[inline]
pub(crate) fn fetch_bytes(item: *const u8, bytes: usize, purpose: Use) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(LINE_BYTES) {
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
    let _ = (item, bytes, purpose, LINE_BYTES);
}
