//! A program's buffers: the pieces that a call gathers from or scatters to.
//!
//! The kernel answers EFAULT for memory that is not there, or may not be written, when it comes to use it. Where a piece begins is looked
//! at here: a page that was found there is remembered, for mostly the same buffers come again, and of another one the kernel is asked.
//! What lies behind its first page, and what goes away later, is believed.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::slice;
use core::sync::atomic::{AtomicUsize, Ordering};

use libc::iovec;
use rustix::io::Errno;

use crate::{confining, sys};

/// The most pieces of one call: UIO_MAXIOV.
const PIECES_MAX: usize = 1024;

/// The most bytes of one call: MAX_RW_COUNT.
const BYTES_MAX: usize = 0x7fff_f000;

/// The first page is never mapped for a program, and programs end here.
const LOWEST: usize = 4096;
const BEYOND: usize = 0x7fff_ffff_f000;

/// The least size of a page.
const PAGE: usize = 4096;
/// Whether a page may be written, too, stands below its number.
const WRITABLE: usize = 1;
/// Pages that were there, by their numbers.
static SEEN: [AtomicUsize; 1 << SEEN_SHIFT] = [const { AtomicUsize::new(0) }; 1 << SEEN_SHIFT];
const SEEN_SHIFT: u32 = 10;

/// Whether `len` bytes to be read lie at `address`. As in the kernel, a piece that does not is an error only when it is used.
#[inline]
pub(crate) fn check(address: *const c_void, len: usize) -> Result<(), Errno> {
    check_for(address, len, 0)
}

/// The same of bytes to be written.
#[inline]
pub(crate) fn check_mut(address: *const c_void, len: usize) -> Result<(), Errno> {
    check_for(address, len, WRITABLE)
}

#[inline]
fn check_for(address: *const c_void, len: usize, access: usize) -> Result<(), Errno> {
    let first = address as usize;
    let is_plausible = (LOWEST..=BEYOND).contains(&first) && len <= BEYOND - first;
    let is_there = || {
        let seen = SEEN[place_of(first)].load(Ordering::Relaxed);
        seen == mark(first, WRITABLE) || seen == mark(first, access) || look(first, access)
    };
    if len == 0 || is_plausible && is_there() { Ok(()) } else { Err(Errno::FAULT) }
}

/// What stands for a page.
const fn mark(first: usize, access: usize) -> usize {
    (first / PAGE) * 2 + access
}

/// Where it stands: threads' heaps, and arrays of buffers, lie apart by powers of two.
const fn place_of(first: usize) -> usize {
    (first / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> (usize::BITS - SEEN_SHIFT)
}

/// Asks the kernel. Who has confined himself may not ask.
#[cold]
fn look(first: usize, access: usize) -> bool {
    if confining::is_confined() {
        return true;
    }
    let is_there = sys::is_there(first, access == WRITABLE);
    if is_there {
        SEEN[place_of(first)].store(mark(first, access), Ordering::Relaxed);
    }
    is_there
}

/// The bytes at `address`.
///
/// # Safety
/// They are readable for `'a`, or are among what [`check`] refuses.
pub(crate) unsafe fn bytes<'a>(address: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    check(address, len)?;
    // SAFETY: the caller's promise; an empty slice needs no memory.
    Ok(if len == 0 { &[] } else { unsafe { slice::from_raw_parts(address.cast(), len) } })
}

/// The bytes at `address`, to be written.
///
/// # Safety
/// They are writable and nobody else's for `'a`, or are among what [`check`] refuses.
pub(crate) unsafe fn bytes_mut<'a>(address: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    check_mut(address, len)?;
    // SAFETY: as in `bytes`.
    Ok(if len == 0 { &mut [] } else { unsafe { slice::from_raw_parts_mut(address.cast(), len) } })
}

/// What to send: pieces in order.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pieces: &'a [iovec],
    len: usize,
    is_faulty: bool,
}

impl<'a> Source<'a> {
    /// # Safety
    /// Every piece is readable for `'a`, or is among what [`check`] refuses.
    pub(crate) unsafe fn new(pieces: &'a [iovec]) -> Result<Self, Errno> {
        Ok(Self { pieces, len: total(pieces)?, is_faulty: is_faulty(pieces) })
    }

    /// One piece of this process' own.
    pub(crate) fn of(bytes: &'a [u8]) -> Own<'a> {
        Own([iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }], PhantomData)
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a piece cannot be there, so that none may be used.
    pub(crate) fn is_faulty(&self) -> bool {
        self.is_faulty
    }

    /// The pieces that are not empty, from byte `from` on, up to `len`.
    pub(crate) fn from(&self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        self.ranges(from).map(|(base, len)| {
            // SAFETY: `new`'s promise, for pieces that are not faulty; the range lies within a piece.
            unsafe { slice::from_raw_parts(base.cast_const(), len) }
        })
    }

    /// What is left from byte `from` on, if it is one piece, as most are.
    #[inline]
    pub(crate) fn lone(&self, from: usize) -> Option<&'a [u8]> {
        if self.pieces.len() == 1 { self.from(from).next() } else { None }
    }

    fn ranges(&self, from: usize) -> impl Iterator<Item = (*mut u8, usize)> + use<'a> {
        ranges(self.pieces, from, if self.is_faulty { 0 } else { self.len })
    }
}

/// Bytes of this process' own, as what is sent.
pub(crate) struct Own<'a>([iovec; 1], PhantomData<&'a [u8]>);

impl Own<'_> {
    /// To be sent.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { pieces: &self.0, len: self.0[0].iov_len, is_faulty: false }
    }
}

/// Room of this process' own, for what is received.
pub(crate) struct OwnRoom<'a>([iovec; 1], PhantomData<&'a mut [u8]>);

impl OwnRoom<'_> {
    /// To be received into.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        Sink { pieces: &self.0, len: self.0[0].iov_len, is_faulty: false, writable: PhantomData }
    }
}

/// Where to put what is received: pieces in order.
pub(crate) struct Sink<'a> {
    pieces: &'a [iovec],
    len: usize,
    is_faulty: bool,
    writable: PhantomData<&'a mut [u8]>,
}

impl<'a> Sink<'a> {
    /// # Safety
    /// Every piece is writable and nobody else's for `'a`, or is among what [`check`] refuses.
    pub(crate) unsafe fn new(pieces: &'a [iovec]) -> Result<Self, Errno> {
        Ok(Self { pieces, len: total(pieces)?, is_faulty: is_faulty(pieces), writable: PhantomData })
    }

    /// One piece of this process' own.
    pub(crate) fn of(bytes: &'a mut [u8]) -> OwnRoom<'a> {
        OwnRoom([iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }], PhantomData)
    }

    /// How many bytes have room.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a piece cannot be there, so that none may be used.
    pub(crate) fn is_faulty(&self) -> bool {
        self.is_faulty
    }

    /// The pieces that are not empty, from byte `from` on.
    pub(crate) fn from(&mut self, from: usize) -> impl Iterator<Item = &mut [u8]> {
        let len = if self.is_faulty { 0 } else { self.len };
        ranges(self.pieces, from, len).map(|(base, len)| {
            // SAFETY: `new`'s promise, for pieces that are not faulty; the range lies within a piece, and each is given out once.
            unsafe { slice::from_raw_parts_mut(base, len) }
        })
    }

    /// What is left from byte `from` on, if it is one piece, as most are.
    #[inline]
    pub(crate) fn lone(&mut self, from: usize) -> Option<&mut [u8]> {
        if self.pieces.len() == 1 { self.from(from).next() } else { None }
    }
}

/// The array of `count` pieces at `address`.
///
/// # Safety
/// It is readable for `'a`, or is among what [`check`] refuses.
pub(crate) unsafe fn pieces<'a>(
    address: *const iovec,
    count: usize,
    too_many: Errno,
) -> Result<&'a [iovec], Errno> {
    if count > PIECES_MAX {
        return Err(too_many);
    }
    check(address.cast(), count * size_of::<iovec>())?;
    // SAFETY: the caller's promise.
    Ok(if count == 0 { &[] } else { unsafe { slice::from_raw_parts(address, count) } })
}

/// Whether a piece is not there. Whether one that is received into may be written is not asked: the kernel would have to make a page for
/// that, which a connection with nothing to read has no use for.
fn is_faulty(pieces: &[iovec]) -> bool {
    pieces.iter().any(|piece| check(piece.iov_base, piece.iov_len).is_err())
}

fn total(pieces: &[iovec]) -> Result<usize, Errno> {
    let mut sum = 0_usize;
    for piece in pieces {
        if piece.iov_len > isize::MAX as usize {
            return Err(Errno::INVAL);
        }
        sum = sum.saturating_add(piece.iov_len);
    }
    // As the kernel does: more is not an error, it is only not done at once.
    Ok(sum.min(BYTES_MAX))
}

/// The pieces of `len` bytes from `from` on.
fn ranges<'a>(
    pieces: &'a [iovec],
    from: usize,
    len: usize,
) -> impl Iterator<Item = (*mut u8, usize)> + use<'a> {
    let mut skip = from;
    let mut left = len.saturating_sub(from);
    pieces.iter().filter_map(move |piece| {
        let skipped = skip.min(piece.iov_len);
        skip -= skipped;
        let len = (piece.iov_len - skipped).min(left);
        left -= len;
        (len > 0).then(|| (piece.iov_base.cast::<u8>().wrapping_add(skipped), len))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &[u8]) -> iovec {
        iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn pieces_are_one_stream_from_any_byte_on() {
        let nothing = iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
        let all = [piece(b"abc"), nothing, piece(b"d"), piece(b"efgh")];
        // SAFETY: the pieces are constants.
        let source = unsafe { Source::new(&all) }.unwrap();
        for from in 0..=9 {
            assert_eq!(source.from(from).collect::<Vec<_>>().concat(), b"abcdefgh"[from.min(8)..]);
            assert_eq!(source.lone(from), None);
        }
    }

    #[test]
    fn what_is_left_of_one_piece_is_one() {
        let all = [piece(b"abc")];
        // SAFETY: the piece is a constant.
        let source = unsafe { Source::new(&all) }.unwrap();
        let left = |from| source.from(from).next();
        assert!((0..=4).all(|from| source.lone(from) == left(from)));
        assert_eq!([source.lone(0), source.lone(2), source.lone(3)], [Some(&b"abc"[..]), Some(b"c"), None]);
    }

    #[test]
    fn memory_that_cannot_be_there_is_refused() {
        for (address, len) in [(0, 1), (1, 1), (usize::MAX, 1), (BEYOND, 1), (LOWEST, BEYOND), (1 << 40, 1)] {
            assert_eq!(check(address as *const c_void, len), Err(Errno::FAULT), "{address:#x} {len}");
        }
        assert_eq!(check(core::ptr::null(), 0), Ok(()));
    }
}
