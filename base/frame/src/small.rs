//! Storage of small rings that was given back, for the next rings of the same thread.
//!
//! Called by `byte_ring.rs` for what is smaller than extents. A connection that says a little and ends takes storage for both
//! directions and gives it back at once; a general allocator clears it each time and soon has more pieces in hand than it keeps near.
//! Each thread keeps a bounded number of each size. What was in them is not cleared: the rings show nothing that was not written.

use core::cell::RefCell;

/// The sizes that are kept, as powers of two.
const SHIFT_MIN: u32 = 6;
const SHIFT_MAX: u32 = 14;
const CLASSES: usize = (SHIFT_MAX - SHIFT_MIN + 1) as usize;
/// What a thread keeps of one size: as many as come and go in a turn of a busy lane, and no more bytes than that is worth.
const PIECES_MAX: usize = 256;
const BYTES_MAX: usize = 128 << 10;

type Kept = [Vec<Box<[u8]>>; CLASSES];

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new([const { Vec::new() }; CLASSES]) };
}

/// Which size it is, if it is one that is kept.
#[inline]
fn class_of(len: usize) -> Option<usize> {
    let shift = len.trailing_zeros();
    (len.is_power_of_two() && (SHIFT_MIN..=SHIFT_MAX).contains(&shift)).then(|| (shift - SHIFT_MIN) as usize)
}

/// Storage of `len` bytes that a ring of this thread has given back.
#[inline]
pub(crate) fn take(len: usize) -> Option<Box<[u8]>> {
    let class = class_of(len)?;
    // A thread that ends has nothing more.
    KEPT.try_with(|kept| kept.borrow_mut()[class].pop()).ok()?
}

/// Keeps storage for the next ring, or frees it.
#[inline]
pub(crate) fn give(storage: Box<[u8]>) {
    let Some(class) = class_of(storage.len()) else { return };
    let most = (BYTES_MAX / storage.len()).min(PIECES_MAX);
    let _ = KEPT.try_with(|kept| {
        let kept = &mut kept.borrow_mut()[class];
        if kept.len() < most {
            kept.push(storage);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(len: usize) -> usize {
        KEPT.with(|kept| kept.borrow()[class_of(len).unwrap()].len())
    }

    #[test]
    fn what_is_given_back_is_taken_again_by_the_same_thread() {
        assert!(take(512).is_none());
        let storage = vec![7; 512].into_boxed_slice();
        let at = storage.as_ptr();
        give(storage);
        assert!(std::thread::spawn(|| take(512).is_none()).join().unwrap(), "each thread has its own");
        assert!(take(1024).is_none(), "of another size");
        assert_eq!(take(512).map(|it| it.as_ptr()), Some(at));
        assert!(take(512).is_none());
    }

    #[test]
    fn what_is_kept_has_an_end() {
        for (len, most) in [(64, PIECES_MAX), (512, PIECES_MAX), (1024, 128), (16_384, 8)] {
            for _ in 0..=most {
                give(vec![0; len].into_boxed_slice());
            }
            assert_eq!(kept(len), most, "{len}");
        }
        for len in [0, 32, 96, 32_768] {
            give(vec![0; len].into_boxed_slice());
            assert!(take(len).is_none(), "{len}");
        }
    }
}
