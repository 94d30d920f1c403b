//! Error numbers, as the calls of Linux return them.

use firelane_socket::SocketError;

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

/// What a call returns.
pub(crate) type Sys<T> = Result<T, Errno>;

/// A failure, shorter to write where calls are checked.
pub(crate) const fn fail<T>(number: i32) -> Sys<T> {
    Err(Errno(number))
}

impl From<SocketError> for Errno {
    fn from(error: SocketError) -> Self {
        Self(match error {
            SocketError::Refused => libc::ECONNREFUSED,
            SocketError::Reset => libc::ECONNRESET,
            SocketError::TimedOut => libc::ETIMEDOUT,
            SocketError::HostUnreachable => libc::EHOSTUNREACH,
            SocketError::NetworkUnreachable => libc::ENETUNREACH,
            SocketError::Aborted => libc::ECONNABORTED,
            SocketError::NoPort | SocketError::AddressNotAvailable => libc::EADDRNOTAVAIL,
            SocketError::AddressInUse => libc::EADDRINUSE,
            SocketError::MessageTooLong => libc::EMSGSIZE,
            SocketError::NoBuffers => libc::ENOBUFS,
            SocketError::BroadcastDenied | SocketError::Prohibited => libc::EACCES,
            SocketError::ProtocolUnreachable => libc::ENOPROTOOPT,
            SocketError::BadParameter => libc::EPROTO,
            SocketError::BrokenPipe => libc::EPIPE,
        })
    }
}
