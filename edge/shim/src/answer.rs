//! How a call ends: a number, or -1 and `errno`. A call that succeeds leaves `errno` as it was.

use core::ffi::c_int;

use rustix::io::Errno;

/// What C functions return when they fail.
pub(crate) trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

/// What functions that answer with the number of an interface return.
impl Failed for core::ffi::c_uint {
    const FAILED: Self = 0;
}

impl Failed for () {
    const FAILED: Self = ();
}

impl Failed for core::ffi::c_long {
    const FAILED: Self = -1;
}

impl Failed for isize {
    const FAILED: Self = -1;
}

/// What functions that answer with a handler return (SIG_ERR).
impl Failed for libc::sighandler_t {
    const FAILED: Self = libc::SIG_ERR;
}

impl<T> Failed for *mut T {
    const FAILED: Self = core::ptr::null_mut();
}

/// The result as C wants it.
#[inline]
pub(crate) fn answer<T: Failed>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(|errno| {
        set_errno(errno.raw_os_error());
        T::FAILED
    })
}

/// The thread's `errno`, as the last call that failed left it.
pub(crate) fn errno() -> Errno {
    // SAFETY: the address is that of the calling thread's own variable.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// Sets the thread's `errno`.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the address is that of the calling thread's own variable.
    unsafe { *libc::__errno_location() = value }
}

/// A count of bytes as `read` and its kin return it.
#[inline]
pub(crate) fn count(bytes: usize) -> isize {
    // No call moves more than `isize::MAX` bytes: no buffer is longer.
    bytes as isize
}
