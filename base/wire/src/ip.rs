//! What both versions of IP share: protocol numbers and the ECN field.
//!
//! Both are total: any byte from a wire is a value. `ipv4.rs`, `ipv6.rs`, `ext.rs` and the pseudo-header
//! of `checksum.rs` use them.

use core::fmt;

/// A number from the registry "Assigned Internet Protocol Numbers" (IPv4's protocol, IPv6's next header).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMPV4: Self = Self(1);
    /// IGMP.
    pub const IGMP: Self = Self(2);
    /// IPv4 in a tunnel (RFC 2003, RFC 2473).
    pub const IPV4: Self = Self(4);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 in a tunnel (RFC 4213, RFC 2473).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header.
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: Self = Self(44);
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload.
    pub const ESP: Self = Self(50);
    /// Authentication header.
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// IPv6: nothing follows.
    pub const NO_NEXT: Self = Self(59);
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// SCTP.
    pub const SCTP: Self = Self(132);

    /// Whether it carries packets of its own: the protocols of tunnels.
    pub const fn is_tunnel(self) -> bool {
        matches!(self, Self::IPV4 | Self::IPV6 | Self::GRE)
    }

    /// Whether the header begins with a source and a destination port.
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP)
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match *self {
            Self::HOP_BY_HOP => "hop-by-hop",
            Self::ICMPV4 => "icmp",
            Self::IGMP => "igmp",
            Self::IPV4 => "ipv4",
            Self::TCP => "tcp",
            Self::UDP => "udp",
            Self::IPV6 => "ipv6",
            Self::ROUTING => "routing",
            Self::FRAGMENT => "fragment",
            Self::GRE => "gre",
            Self::ESP => "esp",
            Self::AUTHENTICATION => "ah",
            Self::ICMPV6 => "icmpv6",
            Self::NO_NEXT => "no-next",
            Self::DESTINATION_OPTIONS => "destination-options",
            Self::SCTP => "sctp",
            Self(number) => return write!(f, "protocol {number}"),
        };
        f.pad(word)
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The explicit congestion notification field (RFC 3168 §5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotCapable,
    /// ECT(1).
    Capable1,
    /// ECT(0).
    Capable0,
    /// Congestion experienced.
    Congested,
}

impl Ecn {
    /// From the low two bits of a traffic class.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Congested,
        }
    }

    /// As the low two bits of a traffic class.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecn_is_its_two_bits() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits);
            assert_eq!(Ecn::from_bits(bits | 0xfc).bits(), bits);
        }
        assert_eq!(Ecn::from_bits(3), Ecn::Congested);
    }

    #[test]
    fn numbers_without_a_name_are_shown_as_numbers() {
        assert_eq!(IpProtocol::TCP.to_string(), "tcp");
        assert_eq!(IpProtocol(200).to_string(), "protocol 200");
        assert!(IpProtocol::UDP.has_ports() && !IpProtocol::ICMPV6.has_ports());
    }
}
