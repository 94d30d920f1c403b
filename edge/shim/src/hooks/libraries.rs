//! Loading libraries while the program runs. With RTLD_DEEPBIND a library finds libc's functions past every preloaded library: its
//! sockets would be the kernel's, and ours in its hands none (PHP loads its extensions so). So the flag is left out. What a library that
//! is loaded without it finds first is what every library that was linked finds.
//!
//! `dlopen` looks for its caller, by whose RUNPATH and $ORIGIN it searches, so nothing may stand between the two: the call goes on with
//! its own return address.

use crate::real::Next;

static DLOPEN: Next = Next::new(c"dlopen");
static DLMOPEN: Next = Next::new(c"dlmopen");

extern "C" fn next_dlopen() -> *mut core::ffi::c_void {
    DLOPEN.address()
}

extern "C" fn next_dlmopen() -> *mut core::ffi::c_void {
    DLMOPEN.address()
}

/// Looks up the functions behind these.
pub(super) fn resolve() {
    next_dlopen();
    next_dlmopen();
}

/// The function of this name, whose flags are in the register `flags`, without RTLD_DEEPBIND among them.
#[cfg(target_arch = "x86_64")]
macro_rules! without_deepbind {
    ($name:ident, $next:ident, $flags:literal) => {
        /// # Safety
        /// As for the function of this name.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {next}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                concat!("and ", $flags, ", {others}"),
                "jmp rax",
                next = sym $next,
                others = const !libc::RTLD_DEEPBIND,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
without_deepbind!(dlopen, next_dlopen, "esi");
#[cfg(target_arch = "x86_64")]
without_deepbind!(dlmopen, next_dlmopen, "edx");
