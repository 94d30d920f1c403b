//! What an application is told when a socket fails.
//!
//! Set once by the lane in the error word, taken by the application. The engine translates into its
//! platform's error numbers.

use core::fmt;

/// Why a socket failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum SocketError {
    /// The peer answered a connection request with a reset, or a datagram with "port unreachable".
    Refused = 1,
    /// The peer reset the connection.
    Reset,
    /// The peer did not answer in time.
    TimedOut,
    /// A router says that the host cannot be reached, or its neighbour did not answer.
    HostUnreachable,
    /// There is no route.
    NetworkUnreachable,
    /// The connection was aborted on this side: its netstack or address went away.
    Aborted,
    /// All local ports towards this peer are in use.
    NoPort,
    /// The local address or port is in use.
    AddressInUse,
    /// The local address is not one of the netstack's.
    AddressNotAvailable,
    /// The datagram is larger than the way allows.
    MessageTooLong,
    /// A table or pool of the lane is full.
    NoBuffers,
    /// The socket was not allowed to send to everybody.
    BroadcastDenied,
    /// The peer's host does not have the protocol.
    ProtocolUnreachable,
    /// Somebody on the way forbids it.
    Prohibited,
    /// Somebody on the way did not understand a header.
    BadParameter,
    /// The peer reset the connection after it had ended its own direction: what was written reaches nobody.
    BrokenPipe,
}

impl SocketError {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Refused,
        Self::Reset,
        Self::TimedOut,
        Self::HostUnreachable,
        Self::NetworkUnreachable,
        Self::Aborted,
        Self::NoPort,
        Self::AddressInUse,
        Self::AddressNotAvailable,
        Self::MessageTooLong,
        Self::NoBuffers,
        Self::BroadcastDenied,
        Self::ProtocolUnreachable,
        Self::Prohibited,
        Self::BadParameter,
        Self::BrokenPipe,
    ];

    /// The error's number in the error word; zero means none.
    pub(crate) const fn code(self) -> u32 {
        self as u32
    }

    /// The error of that number.
    pub(crate) fn of_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset by peer",
            Self::TimedOut => "connection timed out",
            Self::HostUnreachable => "no route to host",
            Self::NetworkUnreachable => "network is unreachable",
            Self::Aborted => "connection aborted",
            Self::NoPort => "no local port is free",
            Self::AddressInUse => "address already in use",
            Self::AddressNotAvailable => "address not available",
            Self::MessageTooLong => "message too long",
            Self::NoBuffers => "no buffer space available",
            Self::BroadcastDenied => "the socket may not send to everybody",
            Self::ProtocolUnreachable => "the host does not have the protocol",
            Self::Prohibited => "somebody on the way forbids it",
            Self::BadParameter => "somebody on the way did not understand a header",
            Self::BrokenPipe => "broken pipe",
        })
    }
}

impl core::error::Error for SocketError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_its_word() {
        for (place, error) in SocketError::ALL.into_iter().enumerate() {
            assert_eq!(error.code() as usize, place + 1);
            assert_eq!(SocketError::of_code(error.code()), Some(error));
        }
        assert_eq!((SocketError::of_code(0), SocketError::of_code(99)), (None, None));
    }
}
