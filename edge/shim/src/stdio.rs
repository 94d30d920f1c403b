//! `FILE` streams over sockets of ours. Libc's own would read and write the descriptor behind the socket, past every hook, so
//! they get functions of this library: those that a program opens (`fdopen`), and the three that it has from the beginning, as
//! soon as their descriptor is a socket of ours (a service of inetd's kind, `exec` of a program whose standard output is a
//! connection, a shell's `>&3`). What `printf` and its kin write goes to where `stdout` points, so that is what changes.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, off64_t, size_t, ssize_t};
use rustix::io::Errno;

use crate::hooks::{descriptors, transfer};
use crate::{answer, process, socket};

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
    fn fwide(stream: *mut FILE, mode: c_int) -> c_int;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// The beginning of a `FILE`, as glibc's headers show it (`bits/types/struct_FILE.h`).
#[repr(C)]
struct Head {
    flags: c_int,
    read: [*mut c_char; 3],
    write_base: *mut c_char,
    others: [*mut c_char; 9],
    fileno: c_int,
}

/// What libc began with, where a stream of ours is in its place.
static BEFORE: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

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

/// Of a descriptor that is no socket any more; a socket has no places.
unsafe extern "C" fn seek(cookie: *mut c_void, offset: *mut off64_t, from: c_int) -> c_int {
    // SAFETY: libc's own place for the offset.
    let reached = unsafe { libc::lseek64(cookie.addr() as c_int, *offset, from) };
    if reached < 0 {
        return -1;
    }
    // SAFETY: as above.
    unsafe { *offset = reached };
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream's own descriptor.
    unsafe { descriptors::close(cookie.addr() as c_int) }
}

/// A stream over `fd`, of which `fileno` tells.
///
/// # Safety
/// `mode` is a string.
pub(crate) unsafe fn open(fd: c_int, mode: *const c_char) -> Result<*mut FILE, Errno> {
    let functions = Functions { read, write, seek: Some(seek), close };
    let cookie = ptr::without_provenance_mut(fd.unsigned_abs() as usize);
    // SAFETY: the functions take such a cookie; the caller's promise about the mode.
    let file = unsafe { fopencookie(cookie, mode, functions) };
    if file.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: a stream of libc's, which begins so.
    unsafe { (*file.cast::<Head>()).fileno = fd };
    Ok(file)
}

/// The place of one of the first three descriptors.
fn before(fd: c_int) -> Option<&'static AtomicPtr<FILE>> {
    BEFORE.get(usize::try_from(fd).ok()?)
}

/// What a descriptor is has changed: if it is one of the first three, the program's stream of it goes by this library while it
/// is a socket of ours, and by libc again after.
pub(crate) fn changed(fd: c_int) {
    let Some(before) = before(fd) else { return };
    if process::is_borrowed() {
        // The streams are the parent's.
        return;
    }
    let known = before.load(Ordering::Relaxed);
    match (socket::at(fd).is_some(), known.is_null()) {
        (true, true) => {
            let mode = if fd == 0 { c"r" } else { c"w" };
            // SAFETY: a string.
            let Ok(next) = (unsafe { open(fd, mode.as_ptr()) }) else { return };
            if fd == 2 {
                // SAFETY: a new stream. Without a width `perror` would write by a copy of the descriptor, past every hook.
                unsafe {
                    libc::setvbuf(next, ptr::null_mut(), libc::_IONBF, 0);
                    fwide(next, -1);
                }
            }
            before.store(replace(fd, next), Ordering::Relaxed);
        }
        (false, false) => {
            replace(fd, known);
            before.store(ptr::null_mut(), Ordering::Relaxed);
        }
        _ => {}
    }
}

/// Another stream of libc's is the program's; which one was.
fn replace(fd: c_int, next: *mut FILE) -> *mut FILE {
    let stream = standard(fd);
    // SAFETY: libc's own variable, and streams of libc's, or none.
    unsafe {
        let old = *stream;
        if fd != 0 && !old.is_null() {
            hand_over(old, next);
        }
        *stream = next;
        old
    }
}

/// `stream` is libc's own again, by `freopen`: there is none to give back.
pub(crate) fn reopened(fd: c_int, stream: *mut FILE) {
    let Some(before) = before(fd) else { return };
    // SAFETY: libc's own variable.
    if unsafe { *standard(fd) } == stream {
        before.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Where the program's stream of a descriptor stands.
fn standard(fd: c_int) -> *mut *mut FILE {
    match fd {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// What was written to a stream and has not left it goes by the next one, to where its descriptor leads now.
///
/// # Safety
/// Both are streams of libc's.
unsafe fn hand_over(from: *mut FILE, to: *mut FILE) {
    // SAFETY: the caller's promise; so many bytes lie where its buffer for writing begins.
    unsafe {
        let count = __fpending(from);
        if count > 0 {
            libc::fwrite((*from.cast::<Head>()).write_base.cast(), 1, count, to);
            __fpurge(from);
        }
    }
}

/// `vdprintf` over a socket of ours: libc's would write past every hook.
///
/// # Safety
/// `format` and `arguments` are what `vdprintf` takes.
pub(crate) unsafe fn print(fd: c_int, format: *const c_char, arguments: *mut c_void) -> Result<c_int, Errno> {
    unsafe extern "C" {
        fn vasprintf(to: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    }
    let mut text = ptr::null_mut();
    // SAFETY: the caller's promise.
    let len = unsafe { vasprintf(&raw mut text, format, arguments) };
    if len < 0 {
        return Err(Errno::NOMEM);
    }
    let mut done = 0;
    while done < len {
        // SAFETY: of the text, `len` bytes long, what has not been written.
        let count = unsafe { transfer::write(fd, text.add(done as usize).cast(), (len - done) as usize) };
        if count < 0 {
            break;
        }
        done += count as c_int;
    }
    let result = if done < len { Err(answer::errno()) } else { Ok(len) };
    // SAFETY: `vasprintf` has allocated it.
    unsafe { libc::free(text.cast()) };
    result
}
