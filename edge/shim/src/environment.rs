//! What a program must find in its environment to be on the netstack of the one that starts it.
//!
//! Servers clean the environment of what they start (nginx before it executes its successor, dovecot, postfix): the child would
//! listen and connect past the netstack, with descriptors that it cannot use. So an environment that has none of the variables
//! gets all of them again. One that has any was chosen, and stays as it is: that is how a program leaves the netstack.

use core::ffi::{CStr, c_char};
use core::ptr;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use rustix::process::{getegid, geteuid, getgid, getuid};

use crate::wanted::{FILTER, NAMES, SOCKET};
use crate::{confining, standard_error};

/// A list of strings that ends with null (`environ(7)`).
pub(crate) type Strings = *const *mut c_char;

/// The loader's variable, and this library's (`wanted.rs`).
const OWN: [&CStr; 5] = [c"LD_PRELOAD", SOCKET, NAMES[0], NAMES[1], FILTER];

/// The most variables of an environment that was cleaned. It is written on the stack: a child of `vfork` has nothing else.
const MOST: usize = 500;

/// Those of this program, as they were at its start.
static KEPT: OnceLock<Vec<CString>> = OnceLock::new();

/// Keeps what the program was started with.
pub(crate) fn keep() {
    let kept = OWN.iter().filter_map(|name| {
        let value = std::env::var_os(OsStr::from_bytes(name.to_bytes()))?;
        CString::new([name.to_bytes(), b"=", value.as_bytes()].concat()).ok()
    });
    let _ = KEPT.set(kept.collect());
}

/// Whether a variable is one of those.
fn is_own(variable: &CStr) -> bool {
    OWN.iter().any(|name| {
        variable.to_bytes().strip_prefix(name.to_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
    })
}

/// Whether the kernel starts the loader of what is executed in secure mode, in which it leaves this library out: squid's master is 13 and root when it
/// starts its worker.
fn is_of_two_users() -> bool {
    getuid() != geteuid() || getgid() != getegid()
}

/// Calls `start` with the environment that a program is to have; with `None` if it is the one that was given.
///
/// # Safety
/// `given` is an environment, or null, which is an empty one.
pub(crate) unsafe fn with<T>(given: Strings, start: impl FnOnce(Option<Strings>) -> T) -> T {
    let Some(kept) = KEPT.get().filter(|kept| !kept.is_empty()) else { return start(None) };
    if !confining::is_confined() && is_of_two_users() {
        standard_error::say_once(
            "what a program starts whose real and effective user or group differ is loaded in secure mode (AT_SECURE), without this library: its sockets are the kernel's",
        );
    }
    let mut all = [ptr::null_mut(); MOST];
    let mut count = 0;
    if !given.is_null() {
        // SAFETY: the caller's promise: up to null there are strings.
        while let Some(variable) = ptr::NonNull::new(unsafe { *given.add(count) }) {
            // SAFETY: as above.
            let is_chosen = is_own(unsafe { CStr::from_ptr(variable.as_ptr()) });
            if is_chosen || count + kept.len() + 1 >= MOST {
                return start(None);
            }
            all[count] = variable.as_ptr();
            count += 1;
        }
    }
    for variable in kept {
        all[count] = variable.as_ptr().cast_mut();
        count += 1;
    }
    start(Some(all.as_ptr()))
}
