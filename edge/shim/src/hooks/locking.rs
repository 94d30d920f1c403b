//! The call that locks all memory (`locking.rs`).

use core::ffi::c_int;

use crate::locking;
use crate::real::hooks;

hooks! {
    fn mlockall(flags: c_int) -> c_int = locking::lock_all(flags);
}
