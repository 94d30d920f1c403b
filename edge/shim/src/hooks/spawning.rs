//! What makes processes that have copies of this one's descriptors, beside `fork`, of which libc tells (`session/forks.rs`).
//!
//! Sockets of ours are counted by the kernel's descriptors behind them, and so nothing has to be done but to say that there may
//! be copies (`kept.rs`). Where it is not seen when a child is there, that is said for ever.

// The names are libc's.
#![allow(non_snake_case)]

use core::ffi::{c_char, c_int, c_long, c_void};

use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::environment::{self, Strings};
use crate::kept::Passing;
use crate::real::hooks;
use crate::{process, session, untold};

unsafe extern "C" {
    static mut environ: Strings;
}

type Actions = *const posix_spawn_file_actions_t;
type Attributes = *const posix_spawnattr_t;

hooks! {
    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: Actions, attributes: Attributes, words: Strings, environment: Strings,
    ) -> c_int = {
        let _passing = Passing::begin();
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe {
            environment::with(environment, |own| {
                next::posix_spawn(pid, path, actions, attributes, words, own.unwrap_or(environment))
            })
        }))
    };

    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: Actions, attributes: Attributes, words: Strings, environment: Strings,
    ) -> c_int = {
        let _passing = Passing::begin();
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe {
            environment::with(environment, |own| {
                next::posix_spawnp(pid, file, actions, attributes, words, own.unwrap_or(environment))
            })
        }))
    };

    fn execve(path: *const c_char, words: Strings, environment: Strings) -> c_int = {
        untold::tell_all();
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe {
            environment::with(environment, |own| next::execve(path, words, own.unwrap_or(environment)))
        }))
    };

    fn execvpe(file: *const c_char, words: Strings, environment: Strings) -> c_int = {
        untold::tell_all();
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe {
            environment::with(environment, |own| next::execvpe(file, words, own.unwrap_or(environment)))
        }))
    };

    fn fexecve(fd: c_int, words: Strings, environment: Strings) -> c_int = {
        untold::tell_all();
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe {
            environment::with(environment, |own| next::fexecve(fd, words, own.unwrap_or(environment)))
        }))
    };

    fn execv(path: *const c_char, words: Strings) -> c_int = {
        untold::tell_all();
        // SAFETY: the caller's arguments, and this process' environment.
        unsafe { environment::with(environ, |own| own.map(|own| Ok(next::execve(path, words, own)))) }
    };

    fn execvp(file: *const c_char, words: Strings) -> c_int = {
        untold::tell_all();
        // SAFETY: the caller's arguments, and this process' environment.
        unsafe { environment::with(environ, |own| own.map(|own| Ok(next::execvpe(file, words, own)))) }
    };

    fn system(command: *const c_char) -> c_int = {
        let _passing = Passing::begin();
        // SAFETY: the caller's argument.
        Some(Ok(unsafe { next::system(command) }))
    };

    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE = {
        let _passing = Passing::begin();
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe { next::popen(command, mode) }))
    };

    /// Libc tells nobody of this fork.
    fn _Fork() -> c_int = {
        Passing::for_ever();
        None
    };

    /// Variadic in C: the last three may be missing, and are handed on unread.
    fn clone(
        function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: usize, tls: usize, child: usize,
    ) -> c_int = {
        note_clone(flags.into());
        None
    };
}

/// Calls of `syscall` that make processes, or make another program of this one.
pub(super) fn note_syscall(number: c_long, flags: usize) {
    match number {
        libc::SYS_clone => note_clone(flags as c_long),
        libc::SYS_execve | libc::SYS_execveat => untold::tell_all(),
        _ if number == libc::SYS_clone3 || is_fork(number) => {
            note_borrower();
            Passing::for_ever();
        }
        _ => {}
    }
}

#[cfg(target_arch = "x86_64")]
fn is_fork(number: c_long) -> bool {
    [libc::SYS_fork, libc::SYS_vfork].contains(&number)
}

#[cfg(not(target_arch = "x86_64"))]
fn is_fork(_: c_long) -> bool {
    false
}

/// A child is about to borrow this process' memory, and is to know that it is not this process (`session::come_in`).
fn note_borrower() {
    if session::is_wanted() {
        // Without memory for that it would not get any for a session either.
        let _ = process::watch();
        process::lend();
    }
}

/// A thread shares the table of descriptors, and copies nothing.
fn note_clone(flags: c_long) {
    if flags & c_long::from(libc::CLONE_FILES) == 0 {
        note_borrower();
        Passing::for_ever();
    }
}

/// `vfork` returns twice into the same frame, so no function that has one of its own can stand before it: this one has none.
///
/// # Safety
/// As for the function of this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {begin}",
        "add rsp, 8",
        // The child, which runs first, writes where the address to return to lies.
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test eax, eax",
        "jz 2f",
        "mov rdi, rax",
        "jmp {end}",
        "2: ret",
        begin = sym begin_vfork,
        end = sym end_vfork,
        number = const libc::SYS_vfork,
    )
}

/// The same; here the address to return to lies in a register.
///
/// # Safety
/// As for the function of this name.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {begin}",
        "ldp x29, x30, [sp], #16",
        "mov x0, #{flags}",
        "mov x1, xzr",
        "mov x8, #{number}",
        "svc #0",
        "cbz x0, 2f",
        "b {end}",
        "2: ret",
        begin = sym begin_vfork,
        end = sym end_vfork,
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        number = const libc::SYS_clone,
    )
}

extern "C" fn begin_vfork() {
    note_borrower();
    core::mem::forget(Passing::begin());
}

/// In the parent, once the child is another program or gone.
extern "C" fn end_vfork(result: c_long) -> c_int {
    process::take_back();
    Passing::end();
    if result < 0 {
        return crate::answer::answer(Err(rustix::io::Errno::from_raw_os_error(-result as c_int)));
    }
    result as c_int
}
