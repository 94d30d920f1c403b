//! Calls by which a process forbids itself others (`confining.rs`), or takes its way to the daemon from itself, before which some things are
//! done that need those.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong};
use core::ptr;

use libc::{pid_t, rlimit, rlimit64};
use rustix::io::Errno;

use super::becoming;
use crate::real::hooks;
use crate::{buffers, confining, room, session};

hooks! {
    /// Variadic in C: those that are missing are handed on unread.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int = {
        note(by_prctl(option, [a, b]));
        None
    };

    fn chroot(path: *const c_char) -> c_int = {
        session::come_in();
        None
    };

    fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int = {
        before_limit(0, resource, limit.cast(), ptr::null_mut())
    };

    fn setrlimit64(resource: c_uint, limit: *const rlimit64) -> c_int = {
        before_limit(0, resource, limit.cast(), ptr::null_mut())
    };

    fn prlimit(pid: pid_t, resource: c_uint, limit: *const rlimit, old: *mut rlimit) -> c_int = {
        before_limit(pid, resource, limit.cast(), old.cast())
    };

    fn prlimit64(pid: pid_t, resource: c_uint, limit: *const rlimit64, old: *mut rlimit64) -> c_int = {
        before_limit(pid, resource, limit, old)
    };
}

/// Calls of `syscall` that forbid others. `None` if the call is to be made as it came.
pub(super) fn by_number(number: c_long, arguments: [usize; 4]) -> Option<Result<c_int, Errno>> {
    let [a, b, c, d] = arguments;
    match number {
        libc::SYS_seccomp => note(by_seccomp(a as c_uint, b as c_uint, c)),
        libc::SYS_prctl => note(by_prctl(a as c_int, [b as c_ulong, c as c_ulong])),
        libc::SYS_chroot => session::come_in(),
        _ if becoming::is_one(number) => session::come_in_before_rights_change(),
        libc::SYS_setrlimit => return before_limit(0, a as c_uint, b as _, ptr::null_mut()),
        libc::SYS_prlimit64 => return before_limit(a as pid_t, b as c_uint, c as _, d as _),
        _ => {}
    }
    None
}

/// What a call forbids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forbids {
    Nothing,
    /// What a filter says.
    Some,
    /// All but reading, writing and ending.
    All,
}

fn note(forbids: Forbids) {
    if forbids != Forbids::Nothing {
        confining::begin(forbids == Forbids::All);
    }
}

/// What seccomp(2) is to forbid. Libraries ask what the kernel can do by offering it no filter, or what it does not take.
fn by_seccomp(operation: c_uint, flags: c_uint, filter: usize) -> Forbids {
    match operation {
        libc::SECCOMP_SET_MODE_STRICT if flags == 0 && filter == 0 => Forbids::All,
        libc::SECCOMP_SET_MODE_FILTER if filter != 0 => Forbids::Some,
        _ => Forbids::Nothing,
    }
}

/// The same of prctl(2).
fn by_prctl(option: c_int, [mode, filter]: [c_ulong; 2]) -> Forbids {
    let is = |known: c_uint| mode == c_ulong::from(known);
    match option {
        libc::PR_SET_SECCOMP if is(libc::SECCOMP_MODE_STRICT) => Forbids::All,
        libc::PR_SET_SECCOMP if is(libc::SECCOMP_MODE_FILTER) && filter != 0 => Forbids::Some,
        _ => Forbids::Nothing,
    }
}

/// A program is about to limit itself or another, or only asks. (Both kinds of limits are the same on 64 bits.) `None` if the call is to be
/// made as it came.
fn before_limit(
    pid: pid_t,
    resource: c_uint,
    limit: *const rlimit64,
    old: *mut rlimit64,
) -> Option<Result<c_int, Errno>> {
    if limit.is_null() {
        return None;
    }
    match resource {
        libc::RLIMIT_NOFILE => confining::prepare(),
        libc::RLIMIT_AS if pid == 0 || pid.unsigned_abs() == std::process::id() => {
            return before_room_is_limited(limit, old);
        }
        _ => {}
    }
    None
}

/// Sets a wider limit than the program asks for, where it would leave no room for what cannot be given back.
fn before_room_is_limited(limit: *const rlimit64, old: *mut rlimit64) -> Option<Result<c_int, Errno>> {
    buffers::check(limit.cast_mut().cast(), size_of::<rlimit64>()).ok()?;
    // SAFETY: it was just looked at; and the caller's promise.
    let asked = unsafe { limit.read_unaligned() };
    let is_set = room::is_limited(asked.rlim_cur, |more| {
        let wider = asked.rlim_cur.saturating_add(more);
        let wider = rlimit64 { rlim_cur: wider, rlim_max: asked.rlim_max.max(wider) };
        // SAFETY: the new limit lives through the call; where the old one is put is the caller's promise.
        let set = || unsafe { next::prlimit64(0, libc::RLIMIT_AS, &raw const wider, old) };
        asked.rlim_cur <= asked.rlim_max && set() == 0
    });
    // Who may not have as much is told what becomes of what he asked for.
    is_set.then_some(Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_asks_is_not_confined() {
        // Strict; the same with what the kernel refuses; a filter; no filter; whether an action is known; the sizes of notifications.
        for (operation, flags, filter, forbids) in [
            (0, 0, 0, Forbids::All),
            (0, 1, 0, Forbids::Nothing),
            (0, 0, 8, Forbids::Nothing),
            (1, 1, 8, Forbids::Some),
            (1, 1, 0, Forbids::Nothing),
            (2, 0, 8, Forbids::Nothing),
            (3, 0, 8, Forbids::Nothing),
        ] {
            assert_eq!(by_seccomp(operation, flags, filter), forbids, "{operation} {flags} {filter}");
        }
        for (option, mode, filter, forbids) in [
            (libc::PR_SET_SECCOMP, 1, 0, Forbids::All),
            (libc::PR_SET_SECCOMP, 2, 8, Forbids::Some),
            (libc::PR_SET_SECCOMP, 2, 0, Forbids::Nothing),
            (libc::PR_GET_SECCOMP, 1, 8, Forbids::Nothing),
            (libc::PR_SET_NAME, 2, 8, Forbids::Nothing),
        ] {
            assert_eq!(by_prctl(option, [mode, filter]), forbids, "{option} {mode} {filter}");
        }
    }
}
