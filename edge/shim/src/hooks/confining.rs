//! Calls by which a process forbids itself others (`confining.rs`), before which some things are done that need those.

use core::ffi::{c_int, c_long, c_uint, c_ulong};

use libc::{pid_t, rlimit, rlimit64};

use crate::confining;
use crate::real::hooks;

hooks! {
    /// Variadic in C: those that are missing are handed on unread.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int = {
        note_prctl(option);
        None
    };

    fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int = {
        note_limit(resource, limit.is_null());
        None
    };

    fn setrlimit64(resource: c_uint, limit: *const rlimit64) -> c_int = {
        note_limit(resource, limit.is_null());
        None
    };

    fn prlimit(pid: pid_t, resource: c_uint, limit: *const rlimit, old: *mut rlimit) -> c_int = {
        note_limit(resource, limit.is_null());
        None
    };

    fn prlimit64(pid: pid_t, resource: c_uint, limit: *const rlimit64, old: *mut rlimit64) -> c_int = {
        note_limit(resource, limit.is_null());
        None
    };
}

/// Calls of `syscall` that forbid others.
pub(super) fn note_syscall(number: c_long, arguments: [usize; 3]) {
    let [a, b, c] = arguments;
    match number {
        libc::SYS_seccomp => confining::begin(),
        libc::SYS_prctl => note_prctl(a as c_int),
        libc::SYS_setrlimit => note_limit(a as c_uint, b == 0),
        libc::SYS_prlimit64 => note_limit(b as c_uint, c == 0),
        _ => {}
    }
}

fn note_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        confining::begin();
    }
}

fn note_limit(resource: c_uint, only_asks: bool) {
    if resource == libc::RLIMIT_NOFILE && !only_asks {
        confining::prepare();
    }
}
