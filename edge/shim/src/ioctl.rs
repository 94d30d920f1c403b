//! The `ioctl` requests that are about a socket of ours. Others go to the descriptor behind it, which knows none of a
//! terminal's or a file's either.

use core::ffi::{c_int, c_ulong};

use rustix::io::Errno;

use crate::socket::Held;
use crate::sys;

/// Unsent bytes (`linux/sockios.h`).
const SIOCOUTQNSD: c_ulong = 0x894b;
const SIOCATMARK: c_ulong = 0x8905;

/// How many bytes a request's argument has, if the request is one of these.
pub(crate) fn argument_bytes(request: c_ulong) -> usize {
    match request {
        libc::FIONREAD | libc::TIOCOUTQ | libc::FIONBIO | SIOCOUTQNSD | SIOCATMARK => size_of::<c_int>(),
        _ => 0,
    }
}

/// Carries a request out.
pub(crate) fn control(socket: Held, request: c_ulong, argument: &mut [u8]) -> Result<(), Errno> {
    if request == libc::FIONBIO {
        let on = argument.iter().any(|&byte| byte != 0);
        rustix::io::ioctl_fionbio(sys::borrow(socket.fd), on)?;
        socket.set_nonblocking(on);
        return Ok(());
    }
    if socket.is_listener() {
        return Err(Errno::INVAL);
    }
    let count = socket.stream().map_or(0, |stream| match request {
        libc::FIONREAD if socket.is_datagram() => crate::datagram::first_len(&stream),
        libc::FIONREAD => stream.end().available(),
        libc::TIOCOUTQ | SIOCOUTQNSD => stream.end().unacknowledged(),
        _ => 0,
    });
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    argument.copy_from_slice(&count.to_ne_bytes());
    Ok(())
}
