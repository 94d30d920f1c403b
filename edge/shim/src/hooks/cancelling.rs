//! The call that cancels a thread (`cancelling.rs`).

use core::ffi::c_int;

use libc::pthread_t;

use crate::cancelling;
use crate::real::hooks;

hooks! {
    fn pthread_cancel(thread: pthread_t) -> c_int = {
        // SAFETY: the caller's promise about the thread.
        let cancel = || unsafe { next::pthread_cancel(thread) };
        Some(Ok(cancelling::cancel(thread, cancel)))
    };
}
