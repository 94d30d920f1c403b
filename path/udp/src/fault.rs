//! What an ICMP error means to the socket whose datagram it quotes (RFC 1122 §4.1.3.3, RFC 4443 §2.4 (d)).
//!
//! The lane asks [`UdpTable::blamed`](crate::UdpTable::blamed) whose datagram it was. A connected socket is
//! told what is hard, because a program cannot do anything about a way that may come back.

use firelane_wire::{Icmpv4Repr, Icmpv4Unreachable, Icmpv6Repr, Icmpv6Unreachable};

/// Why a datagram did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// Nobody is bound to the port, or the host has no UDP.
    Refused,
    /// An administrator forbids it.
    Prohibited,
    /// The host does not answer, or is too far away.
    HostUnreachable,
    /// There is no way to its network.
    NetworkUnreachable,
    /// It is larger than a link on its way takes. `ip` learns how large that is.
    TooLong,
}

impl Fault {
    /// Whether it will not go away by itself: a connected socket's program is told.
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::Refused | Self::Prohibited)
    }

    /// What an ICMPv4 message means; `None` if it is no error or nothing that a socket can use.
    pub const fn of_icmpv4(message: &Icmpv4Repr<'_>) -> Option<Self> {
        match message {
            Icmpv4Repr::Unreachable { reason, .. } => Some(match reason {
                Icmpv4Unreachable::Port | Icmpv4Unreachable::Protocol => Self::Refused,
                // Codes 9 and 10 forbid the network and the host (RFC 1122 §3.2.2.1).
                Icmpv4Unreachable::Prohibited | Icmpv4Unreachable::Other(9 | 10) => Self::Prohibited,
                Icmpv4Unreachable::Network | Icmpv4Unreachable::Other(6 | 11) => Self::NetworkUnreachable,
                Icmpv4Unreachable::FragmentationNeeded { .. } => Self::TooLong,
                Icmpv4Unreachable::Host | Icmpv4Unreachable::SourceRoute | Icmpv4Unreachable::Other(_) => {
                    Self::HostUnreachable
                }
            }),
            Icmpv4Repr::TimeExceeded { .. } => Some(Self::HostUnreachable),
            Icmpv4Repr::ParameterProblem { .. }
            | Icmpv4Repr::Redirect { .. }
            | Icmpv4Repr::EchoRequest { .. }
            | Icmpv4Repr::EchoReply { .. } => None,
        }
    }

    /// What an ICMPv6 message means; `None` if it is no error or nothing that a socket can use.
    pub const fn of_icmpv6(message: &Icmpv6Repr<'_>) -> Option<Self> {
        match message {
            Icmpv6Repr::Unreachable { reason, .. } => Some(match reason {
                Icmpv6Unreachable::Port => Self::Refused,
                Icmpv6Unreachable::Prohibited
                | Icmpv6Unreachable::SourcePolicy
                | Icmpv6Unreachable::RejectRoute => Self::Prohibited,
                Icmpv6Unreachable::NoRoute => Self::NetworkUnreachable,
                Icmpv6Unreachable::BeyondScope | Icmpv6Unreachable::Address | Icmpv6Unreachable::Other(_) => {
                    Self::HostUnreachable
                }
            }),
            Icmpv6Repr::PacketTooBig { .. } => Some(Self::TooLong),
            Icmpv6Repr::TimeExceeded { .. } => Some(Self::HostUnreachable),
            Icmpv6Repr::ParameterProblem { .. }
            | Icmpv6Repr::OtherError { .. }
            | Icmpv6Repr::EchoRequest { .. }
            | Icmpv6Repr::EchoReply { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_wire::{Icmpv4View, Icmpv6View, TimeExceeded};

    fn message(kind: u8, code: u8) -> [u8; 8] {
        [kind, code, 0, 0, 0, 0, 0, 0]
    }

    #[test]
    fn icmpv4_codes() {
        for (kind, code, fault) in [
            (3, 0, Some(Fault::NetworkUnreachable)),
            (3, 1, Some(Fault::HostUnreachable)),
            (3, 2, Some(Fault::Refused)),
            (3, 3, Some(Fault::Refused)),
            (3, 4, Some(Fault::TooLong)),
            (3, 6, Some(Fault::NetworkUnreachable)),
            (3, 7, Some(Fault::HostUnreachable)),
            (3, 10, Some(Fault::Prohibited)),
            (3, 13, Some(Fault::Prohibited)),
            (11, 0, Some(Fault::HostUnreachable)),
            (12, 0, None),
            (8, 0, None),
        ] {
            let bytes = message(kind, code);
            let repr = Icmpv4Repr::parse(&Icmpv4View::parse(&bytes).unwrap()).unwrap();
            assert_eq!(Fault::of_icmpv4(&repr), fault, "{kind} {code}");
        }
    }

    #[test]
    fn icmpv6_codes() {
        for (kind, code, fault) in [
            (1, 0, Some(Fault::NetworkUnreachable)),
            (1, 1, Some(Fault::Prohibited)),
            (1, 3, Some(Fault::HostUnreachable)),
            (1, 4, Some(Fault::Refused)),
            (1, 6, Some(Fault::Prohibited)),
            (1, 99, Some(Fault::HostUnreachable)),
            (2, 0, Some(Fault::TooLong)),
            (3, 0, Some(Fault::HostUnreachable)),
            (4, 0, None),
            (100, 0, None),
            (129, 0, None),
        ] {
            let bytes = message(kind, code);
            let repr = Icmpv6Repr::parse(&Icmpv6View::parse(&bytes).unwrap()).unwrap();
            assert_eq!(Fault::of_icmpv6(&repr), fault, "{kind} {code}");
        }
    }

    #[test]
    fn only_what_stays_is_hard() {
        let expired = Icmpv4Repr::TimeExceeded { reason: TimeExceeded::InTransit, quoted: &[] };
        assert!(!Fault::of_icmpv4(&expired).unwrap().is_hard());
        assert!(Fault::Refused.is_hard() && Fault::Prohibited.is_hard());
        assert!(!Fault::TooLong.is_hard() && !Fault::NetworkUnreachable.is_hard());
    }
}
