//! The life of a socket: `socket` to `shutdown`, and its options.

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicBool;

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;

use crate::real::hooks;
use crate::{address, buffers, descriptors, session, socket, standard_error};

/// That a program has one of those.
static IS_SAID: AtomicBool = AtomicBool::new(false);

/// Whether a program that is to be on a netstack asks for a socket that speaks with the network and is the kernel's.
fn is_past_netstacks(family: c_int, kind: c_int, protocol: c_int) -> bool {
    (family == libc::AF_PACKET || socket::is_foreign(family, kind, protocol)) && session::is_wanted()
}

hooks! {
    /// Makes a socket: ours if a netstack was asked for and the family is the internet's.
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int = {
        if is_past_netstacks(family, kind, protocol) {
            // SAFETY: the caller's promise.
            let fd = unsafe { next::socket(family, kind, protocol) };
            if fd >= 0 {
                standard_error::say(&IS_SAID, "raw and packet sockets, and those of other protocols than TCP and UDP, are the kernel's: what this program sends by them does not come from its netstack");
            }
            Some(Ok(fd))
        } else {
            socket::open(family, kind, protocol)
        }
    };

    /// Gives a socket an address.
    fn bind(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int =
        // SAFETY: the caller's promise about the address.
        socket::at(fd).map(|s| s.bind(unsafe { address::read(name, len) }?).map(|()| 0));

    /// Makes a socket a listener.
    fn listen(fd: c_int, backlog: c_int) -> c_int = socket::at(fd).map(|s| s.listen(backlog).map(|()| 0));

    /// Takes a connection from a listener.
    @point fn accept(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int =
        accept_with(fd, name, len, 0);

    /// Takes a connection from a listener, with flags for its descriptor.
    @point fn accept4(fd: c_int, name: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int =
        accept_with(fd, name, len, flags);

    /// Connects a socket.
    @point fn connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int =
        // SAFETY: the caller's promise about the address.
        socket::at(fd).map(|s| s.connect(unsafe { address::read_with_family(name, len) }?).map(|()| 0));

    /// Ends one or both directions.
    fn shutdown(fd: c_int, how: c_int) -> c_int = socket::at(fd).map(|s| s.shutdown(how).map(|()| 0));

    /// Reads an option.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int =
        socket::at(fd).map(|s| {
            buffers::check_mut(len.cast(), size_of::<socklen_t>())?;
            // SAFETY: the caller's promise about the length.
            let room = unsafe { len.read_unaligned() };
            let room = usize::try_from(room as i32).map_err(|_| Errno::INVAL)?;
            // SAFETY: the caller's promise about the value.
            let written = s.get_option(level, name, unsafe { buffers::bytes_mut(value, room) }?)?;
            // SAFETY: as it was read.
            unsafe { len.write_unaligned(written as socklen_t) };
            Ok(0)
        });

    /// Sets an option.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int =
        socket::at(fd).map(|s| {
            let len = usize::try_from(len as i32).map_err(|_| Errno::INVAL)?;
            // SAFETY: the caller's promise about the value.
            s.set_option(level, name, unsafe { buffers::bytes(value, len) }?).map(|()| 0)
        });
}

fn accept_with(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<Result<c_int, Errno>> {
    let listener = socket::at(fd)?;
    Some(listener.accept(flags).and_then(|accepted| {
        if !name.is_null() {
            // SAFETY: the caller's promise about the address and its length.
            if let Err(errno) = unsafe { address::write(&accepted.peer, name, len) } {
                descriptors::close(accepted.fd);
                return Err(errno);
            }
        }
        Ok(accepted.fd)
    }))
}
