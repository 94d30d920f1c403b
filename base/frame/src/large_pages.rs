//! Large pages for large tables.
//!
//! A packet's place in a table of a million is in no cache, and where its page is stands in none either: the walk through the page
//! table costs as much as the place itself. Large pages need a five-hundredth of the entries, which stay near. Kernels give them to who asks
//! for them (`transparent_hugepage` is `madvise` nearly everywhere); where they do not, all is as before.

use rustix::mm::{Advice, madvise};

/// Storage of fewer bytes is not worth the memory that a large page takes as soon as one byte of it is used.
const LEAST: usize = 4 << 20;
/// What advice is given in.
const PAGE: usize = 4096;

/// Asks for large pages below the storage of `items`, of which those count that nobody has touched yet: who has just made it calls this.
/// The smaller is left alone.
pub fn prefer_large_pages<T>(items: &mut Vec<T>) {
    let bytes = items.capacity() * size_of::<T>();
    if bytes < LEAST {
        return;
    }
    let first = items.as_mut_ptr().cast::<u8>();
    let before = first.addr() % PAGE;
    let whole = (before + bytes).next_multiple_of(PAGE);
    // SAFETY: the pages of the storage are mapped, as it is in use, and this advice changes nothing that a program could read there
    // or beside it in the first and the last page. It may be refused, and nothing is lost by that.
    let _ = unsafe { madvise(first.wrapping_sub(before).cast(), whole, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_of_any_size_holds_what_it_is_given() {
        for count in [0, 1, LEAST / 8 - 1, LEAST / 8, LEAST / 8 + 1, LEAST] {
            let mut numbers: Vec<u64> = Vec::with_capacity(count);
            prefer_large_pages(&mut numbers);
            numbers.extend(0..count as u64);
            prefer_large_pages(&mut numbers);
            assert!(numbers.iter().zip(0..).all(|(number, nth)| *number == nth), "{count}");
        }
    }
}
