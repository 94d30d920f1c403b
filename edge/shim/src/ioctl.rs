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

/// Whether a socket of this kind counts what the request asks for, which Linux looks at before the argument.
pub(crate) fn check(socket: &Held, request: c_ulong) -> Result<(), Errno> {
    match request {
        libc::FIONBIO | SIOCATMARK => Ok(()),
        _ if socket.is_listener() => Err(Errno::INVAL),
        // Of datagrams Linux has no such number.
        SIOCOUTQNSD if socket.is_datagram() => Err(Errno::NOTTY),
        _ => Ok(()),
    }
}

/// Carries a request out that was checked.
pub(crate) fn control(socket: Held, request: c_ulong, argument: &mut [u8]) -> Result<(), Errno> {
    if request == libc::FIONBIO {
        let on = argument.iter().any(|&byte| byte != 0);
        crate::kept::changes_flags(socket.fd);
        rustix::io::ioctl_fionbio(sys::borrow(socket.fd), on)?;
        crate::kept::has_changed_flags(socket.fd, !on);
        socket.set_nonblocking(on);
        return Ok(());
    }
    if request == SIOCATMARK {
        return argument_of(argument, is_at_mark(socket)?.into());
    }
    let count = socket.stream().map_or(0, |stream| match request {
        libc::FIONREAD if socket.is_datagram() => crate::datagram::first_len(&stream),
        libc::FIONREAD => stream.end().unread(),
        libc::TIOCOUTQ | SIOCOUTQNSD => stream.end().unacknowledged(),
        _ => 0,
    });
    argument_of(argument, c_int::try_from(count).unwrap_or(c_int::MAX))
}

fn argument_of(argument: &mut [u8], number: c_int) -> Result<(), Errno> {
    argument.copy_from_slice(&number.to_ne_bytes());
    Ok(())
}

/// Whether the urgent byte is the next one; datagrams have none.
pub(crate) fn is_at_mark(socket: Held) -> Result<bool, Errno> {
    if socket.is_datagram() {
        return Err(Errno::NOTTY);
    }
    Ok(socket.stream().is_some_and(|stream| stream.end().is_at_mark()))
}
