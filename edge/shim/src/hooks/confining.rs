//! Calls by which a process forbids itself others (`confining.rs`), before which some things are done that need those.

use core::ffi::{c_int, c_long, c_uint, c_ulong};

use libc::{pid_t, rlimit, rlimit64};

use crate::real::hooks;
use crate::{buffers, confining, room};

hooks! {
    /// Variadic in C: those that are missing are handed on unread.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int = {
        note(by_prctl(option, [a, b]));
        None
    };

    fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int = {
        before_limit(0, resource, limit.cast());
        None
    };

    fn setrlimit64(resource: c_uint, limit: *const rlimit64) -> c_int = {
        before_limit(0, resource, limit.cast());
        None
    };

    fn prlimit(pid: pid_t, resource: c_uint, limit: *const rlimit, old: *mut rlimit) -> c_int = {
        before_limit(pid, resource, limit.cast());
        None
    };

    fn prlimit64(pid: pid_t, resource: c_uint, limit: *const rlimit64, old: *mut rlimit64) -> c_int = {
        before_limit(pid, resource, limit);
        None
    };
}

/// Calls of `syscall` that forbid others.
pub(super) fn note_syscall(number: c_long, arguments: [usize; 3]) {
    let [a, b, c] = arguments;
    match number {
        libc::SYS_seccomp => note(by_seccomp(a as c_uint, c)),
        libc::SYS_prctl => note(by_prctl(a as c_int, [b as c_ulong, c as c_ulong])),
        libc::SYS_setrlimit => before_limit(0, a as c_uint, b as *const rlimit64),
        libc::SYS_prlimit64 => before_limit(a as pid_t, b as c_uint, c as *const rlimit64),
        _ => {}
    }
}

fn note(forbids: bool) {
    if forbids {
        confining::begin();
    }
}

/// Whether seccomp(2) is to forbid calls. Libraries ask what the kernel can do by offering it no filter.
fn by_seccomp(operation: c_uint, filter: usize) -> bool {
    operation == libc::SECCOMP_SET_MODE_STRICT || operation == libc::SECCOMP_SET_MODE_FILTER && filter != 0
}

/// The same of prctl(2).
fn by_prctl(option: c_int, [mode, filter]: [c_ulong; 2]) -> bool {
    let is = |known: c_uint| mode == c_ulong::from(known);
    option == libc::PR_SET_SECCOMP
        && (is(libc::SECCOMP_MODE_STRICT) || is(libc::SECCOMP_MODE_FILTER) && filter != 0)
}

/// A program is about to limit itself or another, or only asks. (Both kinds of limits are the same on 64 bits.)
fn before_limit(pid: pid_t, resource: c_uint, limit: *const rlimit64) {
    if limit.is_null() {
        return;
    }
    match resource {
        libc::RLIMIT_NOFILE => confining::prepare(),
        libc::RLIMIT_AS if pid == 0 || pid.unsigned_abs() == std::process::id() => {
            before_room_is_limited(limit)
        }
        _ => {}
    }
}

fn before_room_is_limited(limit: *const rlimit64) {
    if buffers::check(limit.cast_mut().cast(), size_of::<rlimit64>()).is_ok() {
        // SAFETY: it was just looked at; and the caller's promise.
        let limit = unsafe { limit.read_unaligned() };
        room::is_limited(limit.rlim_cur);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_asks_is_not_confined() {
        // Strict; a filter; no filter; whether an action is known; the sizes of notifications.
        for (operation, filter, forbids) in
            [(0, 0, true), (1, 8, true), (1, 0, false), (2, 8, false), (3, 8, false)]
        {
            assert_eq!(by_seccomp(operation, filter), forbids, "{operation} {filter}");
        }
        for (option, mode, filter, forbids) in [
            (libc::PR_SET_SECCOMP, 1, 0, true),
            (libc::PR_SET_SECCOMP, 2, 8, true),
            (libc::PR_SET_SECCOMP, 2, 0, false),
            (libc::PR_GET_SECCOMP, 1, 8, false),
            (libc::PR_SET_NAME, 2, 8, false),
        ] {
            assert_eq!(by_prctl(option, [mode, filter]), forbids, "{option} {mode} {filter}");
        }
    }
}
