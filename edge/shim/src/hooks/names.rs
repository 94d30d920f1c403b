//! Who is at each end of a socket, and which addresses this host has.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};

use crate::real::hooks;
use crate::{address, socket};

hooks! {
    /// The socket's own address.
    fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int =
        // SAFETY: the caller's promise about the address and its length.
        socket::at(fd).map(|s| unsafe { address::write(&s.local()?, name, len) }.map(|()| 0));

    /// The peer's address.
    fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int =
        // SAFETY: the caller's promise about the address and its length.
        socket::at(fd).map(|s| unsafe { address::write(&s.peer()?, name, len) }.map(|()| 0));
}
