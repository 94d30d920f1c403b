//! `FILE` streams, and what is printed to a descriptor: libc's own calls of `read` and `write` pass every hook.

// The names are libc's.
#![allow(non_snake_case)]

use core::ffi::{c_char, c_int, c_void};

use libc::FILE;

use crate::real::hooks;
use crate::{descriptors, socket, stdio};

hooks! {
    /// A stream over one of our sockets reads and writes through the functions of this library.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE =
        // SAFETY: the caller's promise about the mode.
        socket::at(fd).map(|_| unsafe { stdio::open(fd, mode) });

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE =
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe { reopened(stream, |stream| next::freopen(path, mode, stream)) }));

    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE =
        // SAFETY: the caller's arguments.
        Some(Ok(unsafe { reopened(stream, |stream| next::freopen64(path, mode, stream)) }));

    /// The arguments are a `va_list`, which is handed on by its address.
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int =
        // SAFETY: the caller's promise about both.
        socket::at(fd).map(|_| unsafe { stdio::print(fd, format, arguments) });

    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int =
        // SAFETY: the caller's promise about both.
        socket::at(fd).map(|_| unsafe { stdio::print(fd, format, arguments) });
}

/// The stream becomes one of a file, under the same descriptor, which is no socket any more.
///
/// # Safety
/// `stream` is a stream.
unsafe fn reopened(stream: *mut FILE, reopen: impl FnOnce(*mut FILE) -> *mut FILE) -> *mut FILE {
    // SAFETY: the caller's promise.
    let fd = unsafe { libc::fileno(stream) };
    let new = reopen(stream);
    if !new.is_null() {
        descriptors::forget(fd..=fd);
        stdio::reopened(fd, new);
    }
    new
}

/// Variadic in C: what follows the format becomes a `va_list` (System V ABI for AMD64, 3.5.7), `skip` bytes of whose registers
/// are the named arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($name:ident, $to:ident, $skip:literal, $list:literal) => {
        /// # Safety
        /// As for the function of this name.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name() -> c_int {
            core::arch::naked_asm!(
                "sub rsp, 216",
                // The registers that may hold arguments, in their order, from rsp + 32 on.
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "jz 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                // The list: how far both kinds are read, where the others lie, and where these do.
                concat!("mov dword ptr [rsp + 8], ", $skip),
                "mov dword ptr [rsp + 12], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 16], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 24], rax",
                concat!("lea ", $list, ", [rsp + 8]"),
                "call {to}",
                "add rsp, 216",
                "ret",
                to = sym $to,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
variadic!(dprintf, vdprintf, 16, "rdx");
#[cfg(target_arch = "x86_64")]
variadic!(__dprintf_chk, __vdprintf_chk, 24, "rcx");
