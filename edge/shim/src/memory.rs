//! Arrays of zeroed memory that cost nothing where they are not touched, and never come from `malloc`: a hook may run
//! where the program's allocator must not be entered.

use core::ops::{Deref, DerefMut, Range};
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use firelane_shm::Mapping;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MlockFlags, ProtFlags, mlock_with, mmap_anonymous, munmap};

/// What any bytes are a value of, and zeros mean nothing there.
///
/// # Safety
/// All bit patterns are valid, and there is nothing to drop.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: numbers.
unsafe impl Plain for crate::epoll::Interest {}
// SAFETY: three numbers.
unsafe impl Plain for libc::pollfd {}

/// What zeroed memory is a value of, that many threads may use.
///
/// # Safety
/// It is plain words and atomic ones, of which zeros are a value.
pub(crate) unsafe trait Zeroed: Sync {}

// SAFETY: atomic numbers.
unsafe impl Zeroed for crate::waiter::Place {}

/// `N` arrays of `LEN` values, zero at first, each made when it is first needed. They stay where they are for good.
pub(crate) struct Groups<T: Zeroed + 'static, const N: usize, const LEN: usize>([AtomicPtr<T>; N]);

impl<T: Zeroed, const N: usize, const LEN: usize> Groups<T, N, LEN> {
    /// None is made as yet.
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; N])
    }

    /// A group, if it was ever needed.
    #[inline]
    pub(crate) fn get(&self, group: usize) -> Option<&'static [T]> {
        let base = NonNull::new(self.0.get(group)?.load(Ordering::Acquire))?;
        // SAFETY: `make` has mapped so many values, of which zeros are one, and nobody unmaps them.
        Some(unsafe { slice::from_raw_parts(base.as_ptr(), LEN) })
    }

    /// A group, made if there is none. A handler may come between and do the same.
    pub(crate) fn make(&self, group: usize) -> Result<&'static [T], Errno> {
        if let Some(made) = self.get(group) {
            return Ok(made);
        }
        let place = self.0.get(group).ok_or(Errno::NFILE)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        let bytes = LEN * size_of::<T>();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
        let null = ptr::null_mut();
        if place.compare_exchange(null, base.cast(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it was mapped just now, and nobody else knows it.
            let _ = unsafe { munmap(base, bytes) };
        }
        self.get(group).ok_or(Errno::NOMEM)
    }
}

/// `len` values, zero at first.
pub(crate) struct Pages<T: Plain> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its values, which are plain.
unsafe impl<T: Plain + Send> Send for Pages<T> {}

impl<T: Plain> Pages<T> {
    /// Maps them.
    pub(crate) fn new(len: usize) -> Result<Self, Errno> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0).ok_or(Errno::NOMEM)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }
}

impl<T: Plain> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has `len` values, page-aligned, and zeros are values.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; it is owned.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no reference into it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

/// Whether there is room for so much in one piece.
pub(crate) fn has_room(len: u64) -> bool {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice, which nobody else knows when it goes again.
    unsafe {
        mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags)
            .is_ok_and(|base| munmap(base, len).is_ok())
    }
}

/// Locks memory, if the kernel can; what is not there, too, when it is touched.
pub(crate) fn lock(range: Range<usize>, on_fault: bool) {
    let flags = if on_fault { MlockFlags::ONFAULT } else { MlockFlags::empty() };
    // SAFETY: nothing is read, and what is written is page tables; a range that has gone meanwhile is an error.
    let _ = unsafe { mlock_with(ptr::with_exposed_provenance_mut(range.start), range.len(), flags) };
}

/// Gives address space of an arena back. The caller has seen that there is no other thread.
pub(crate) fn give_back(arena: &Mapping, room: u64) {
    // SAFETY: the only thread of the process is here, and so copies nothing; a handler that it came from in the middle of a copy has limited
    // the program's memory under its own feet.
    unsafe { arena.shrink(room) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_zero_and_stay_as_written() {
        let mut pages = Pages::<u32>::new(1 << 24).unwrap();
        assert_eq!((pages.len(), pages[0], pages[(1 << 24) - 1]), (1 << 24, 0, 0));
        pages[70_000] = 9;
        assert_eq!(pages[69_999..70_002], [0, 9, 0]);
        assert!(Pages::<u32>::new(0).is_err() && Pages::<u32>::new(usize::MAX).is_err());
        assert!(has_room(1 << 30) && !has_room(u64::MAX) && !has_room(0));
    }
}
