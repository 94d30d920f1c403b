//! IPv4 or IPv6. Sockets of IPv6 speak both, so what is said of packets says of which.

use core::net::IpAddr;

/// IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// AF_INET.
    V4,
    /// AF_INET6.
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// That of an address; one in mapped form is IPv4's.
    pub const fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Its place in an array of two.
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_is_of_ipv4() {
        for (address, family) in [
            ("10.0.0.1", Family::V4),
            ("::ffff:10.0.0.1", Family::V4),
            ("fd00::1", Family::V6),
            ("::1", Family::V6),
        ] {
            assert_eq!(Family::of(address.parse().unwrap()), family, "{address}");
        }
        assert_eq!(Family::BOTH.map(Family::index), [0, 1]);
    }
}
