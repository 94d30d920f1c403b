//! Calls by which a process becomes somebody else, or gives rights away: the daemon may know only who it was before
//! (`session::come_in_before_rights_change`).

use core::ffi::{c_char, c_int, c_long, c_void};

use libc::{gid_t, size_t, uid_t};

use crate::real::hooks;
use crate::session;

macro_rules! becoming {
    ($( fn $name:ident($($arg:ident: $ty:ty),*); )*) => {
        hooks! {
            $(
                fn $name($($arg: $ty),*) -> c_int = {
                    session::come_in_before_rights_change();
                    None
                };
            )*
        }
    };
}

becoming! {
    fn setuid(user: uid_t);
    fn seteuid(user: uid_t);
    fn setreuid(real: uid_t, user: uid_t);
    fn setresuid(real: uid_t, user: uid_t, saved: uid_t);
    fn setfsuid(user: uid_t);
    fn setgid(group: gid_t);
    fn setegid(group: gid_t);
    fn setregid(real: gid_t, group: gid_t);
    fn setresgid(real: gid_t, group: gid_t, saved: gid_t);
    fn setfsgid(group: gid_t);
    fn setgroups(count: size_t, groups: *const gid_t);
    fn initgroups(user: *const c_char, group: gid_t);
    fn capset(header: *mut c_void, sets: *const c_void);
}

/// Whether a system call is one of those.
pub(super) fn is_one(number: c_long) -> bool {
    [
        libc::SYS_setuid,
        libc::SYS_setreuid,
        libc::SYS_setresuid,
        libc::SYS_setfsuid,
        libc::SYS_setgid,
        libc::SYS_setregid,
        libc::SYS_setresgid,
        libc::SYS_setfsgid,
        libc::SYS_setgroups,
        libc::SYS_capset,
    ]
    .contains(&number)
}
