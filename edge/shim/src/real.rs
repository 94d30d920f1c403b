//! The functions that ours stand in front of: the next ones of the same name in the order of loading.
//!
//! Each hook has one [`Next`]. They are looked up when the library is loaded; a call that comes before, from
//! another library's constructor, looks its own up. Nothing here locks or allocates after that, so a call that
//! is only handed on stays as safe in a signal handler, and between `vfork` and `exec`, as the original is.

use core::ffi::{CStr, c_long, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// One of libc's functions, found by its name.
pub(crate) struct Next {
    address: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { address: AtomicPtr::new(ptr::null_mut()), name }
    }

    /// Where it is. Threads that look at once find the same.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with zero; RTLD_NEXT begins after the library that this code is in.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() { missing as *mut c_void } else { found };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Stands in for a function that this libc does not have. Every hooked function returns a number in the same
/// register and takes its arguments from the caller's, so it may be called as any of them.
extern "C" fn missing() -> c_long {
    crate::answer::set_errno(libc::ENOSYS);
    -1
}

/// A call that is a point where its thread may be cancelled has ended.
#[inline(always)]
pub(crate) fn point<T>(ours: &Option<Result<T, rustix::io::Errno>>) {
    if matches!(ours, Some(Err(errno)) if *errno == rustix::io::Errno::INTR) {
        crate::cancelling::point_behind();
    }
}

/// Defines exported functions. Each first asks its expression, an `Option<Result<_, Errno>>`: `None` means that
/// the call is not about one of our sockets, and it is handed on as it came. Those with `@point` are points where a thread may be cancelled
/// (`cancelling.rs`). Libc's functions behind them are, too, so frames are taken down through all of these.
///
/// The test of this crate must not put itself in front of its own libc, so there the names are not exported.
macro_rules! hooks {
    ($( $(#[$doc:meta])* $(@$point:ident)? fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $ours:expr; )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As for the function of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
                $( $crate::cancelling::$point(); )?
                let ours: Option<Result<$ret, rustix::io::Errno>> = $ours;
                $( $crate::real::$point(&ours); )?
                match ours {
                    Some(result) => $crate::answer::answer(result),
                    // SAFETY: what the caller promised to the function of this name is handed on.
                    None => unsafe { next::$name($($arg),*) },
                }
            }
        )*

        /// The functions behind those of this file.
        pub(crate) mod next {
            #[allow(unused_imports)]
            use super::*;

            $(
                pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                    // SAFETY: the function of this name has this signature, up to the arity of a variadic one,
                    // whose arguments are all whole numbers or pointers and stand in the same registers.
                    unsafe {
                        let address = at::$name.address();
                        let function: unsafe extern "C-unwind" fn($($ty),*) -> $ret = core::mem::transmute(address);
                        function($($arg),*)
                    }
                }
            )*
        }

        #[allow(non_upper_case_globals)]
        mod at {
            use $crate::real::Next;

            $(
                pub(super) static $name: Next = Next::new(
                    match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    },
                );
            )*

            pub(super) static ALL: &[&Next] = &[$(&$name),*];
        }

        /// The functions behind those of this file.
        pub(super) fn behind() -> &'static [&'static $crate::real::Next] {
            at::ALL
        }
    };
}

pub(crate) use hooks;
