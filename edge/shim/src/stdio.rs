//! `FILE` streams over sockets of ours. Libc's own would read the descriptor behind the socket, past every hook, so they
//! get functions of this library.

use core::ffi::{c_char, c_int, c_void};

use libc::{FILE, off64_t, ssize_t};
use rustix::io::Errno;

use crate::hooks::{descriptors, transfer};

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

unsafe extern "C" fn read(cookie: *mut c_void, buffer: *mut c_char, len: usize) -> ssize_t {
    // SAFETY: libc's own buffer.
    unsafe { transfer::read(cookie.addr() as c_int, buffer.cast(), len) }
}

unsafe extern "C" fn write(cookie: *mut c_void, buffer: *const c_char, len: usize) -> ssize_t {
    // SAFETY: libc's own buffer.
    let written = unsafe { transfer::write(cookie.addr() as c_int, buffer.cast(), len) };
    // Here an error is nothing written.
    written.max(0)
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream's own descriptor.
    unsafe { descriptors::close(cookie.addr() as c_int) }
}

/// A stream over `fd`.
///
/// # Safety
/// `mode` is a string.
pub(crate) unsafe fn open(fd: c_int, mode: *const c_char) -> Result<*mut FILE, Errno> {
    let functions = Functions { read, write, seek: None, close };
    let cookie = core::ptr::without_provenance_mut(fd.unsigned_abs() as usize);
    // SAFETY: the functions take such a cookie; the caller's promise about the mode.
    let file = unsafe { fopencookie(cookie, mode, functions) };
    if file.is_null() { Err(Errno::INVAL) } else { Ok(file) }
}
