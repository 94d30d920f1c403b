//! IP prefixes: an address and the number of its leading bits that count.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An address with a prefix length. The host bits are kept, so one type serves interface addresses
/// (`10.0.0.10/24`) and networks (`10.0.0.0/24`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IpPrefix {
    addr: IpAddr,
    len: u8,
}

impl IpPrefix {
    /// `Some` if `len` fits the address family (32 or 128).
    pub const fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let max = if addr.is_ipv4() { 32 } else { 128 };
        if len <= max { Some(Self { addr, len }) } else { None }
    }

    /// The prefix that holds only `addr`.
    pub const fn host(addr: IpAddr) -> Self {
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// Reads `address/length`, both said, as an interface's address needs them.
    pub fn of_interface(text: &str) -> Option<Self> {
        text.parse().ok().filter(|_| text.contains('/'))
    }

    /// The address, host bits included.
    pub const fn addr(self) -> IpAddr {
        self.addr
    }

    /// How many leading bits count.
    pub const fn prefix_len(self) -> u8 {
        self.len
    }

    /// Whether one station can have the address: it is unicast and, where the prefix leaves room for them, neither the network's own
    /// address nor its broadcast address.
    pub const fn is_of_a_station(self) -> bool {
        let is_usable = match self.addr {
            IpAddr::V4(addr) => {
                // RFC 1112 §4: groups and what is reserved are from 224 on.
                let is_unicast = !addr.is_loopback() && addr.octets()[0] != 0 && addr.octets()[0] < 224;
                let host_bits = match u32::MAX.checked_shr(self.len as u32) {
                    Some(bits) => bits,
                    None => 0,
                };
                let host = addr.to_bits() & host_bits;
                is_unicast && (self.len >= 31 || (host != 0 && host != host_bits))
            }
            // RFC 4291 §2.5.5.2: a mapped one stands for an IPv4 address inside a host, and is nobody's on a link.
            IpAddr::V6(addr) => {
                !addr.is_unspecified()
                    && !addr.is_loopback()
                    && !addr.is_multicast()
                    && addr.to_ipv4_mapped().is_none()
            }
        };
        is_usable && self.len > 0
    }

    /// Whether `addr` shares the counted bits. Families never match each other.
    pub fn contains(self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same_bits(a.to_bits().into(), b.to_bits().into(), 32, self.len),
            (IpAddr::V6(a), IpAddr::V6(b)) => same_bits(a.to_bits(), b.to_bits(), 128, self.len),
            _ => false,
        }
    }

    /// The same prefix with the host bits cleared.
    pub fn network(self) -> Self {
        let addr = match self.addr {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V4((a.to_bits() & mask).into())
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V6((a.to_bits() & mask).into())
            }
        };
        Self { addr, len: self.len }
    }
}

fn same_bits(a: u128, b: u128, width: u32, len: u8) -> bool {
    (a ^ b).checked_shr(width - u32::from(len)).unwrap_or(0) == 0
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.addr, self.len))
    }
}

/// Why a prefix could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParsePrefixError {
    /// The part before the slash is no IPv4 or IPv6 address.
    Address,
    /// The part after the slash is no number that fits the family.
    Length,
}

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "invalid IP address",
            Self::Length => "invalid IP prefix length",
        })
    }
}

impl core::error::Error for ParsePrefixError {}

impl FromStr for IpPrefix {
    type Err = ParsePrefixError;

    /// Reads `address` (a host) or `address/length`.
    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let Some((addr, len)) = text.split_once('/') else {
            return text.parse().map(Self::host).map_err(|_| ParsePrefixError::Address);
        };
        let addr = addr.parse().map_err(|_| ParsePrefixError::Address)?;
        let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
        let len = len.parse().ok().filter(|_| digits).ok_or(ParsePrefixError::Length)?;
        Self::new(addr, len).ok_or(ParsePrefixError::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    #[test]
    fn spellings() {
        let p: IpPrefix = "10.0.0.10/24".parse().unwrap();
        assert_eq!(p.network().to_string(), "10.0.0.0/24");
        assert!(p.contains(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 200))));
        assert!(!p.contains(IpAddr::V4(Ipv4Addr::new(10, 0, 1, 200))));
        assert_eq!("fd00::1".parse::<IpPrefix>().unwrap().prefix_len(), 128);
        assert_eq!(IpPrefix::of_interface("fd00::1"), None);
        assert_eq!(IpPrefix::of_interface("10.0.0.10/24"), Some(p));
        assert_eq!("10.0.0.1/33".parse::<IpPrefix>(), Err(ParsePrefixError::Length));
        assert_eq!("10.0.0.1/+8".parse::<IpPrefix>(), Err(ParsePrefixError::Length));
        assert_eq!("10.0.0/8".parse::<IpPrefix>(), Err(ParsePrefixError::Address));
    }

    #[test]
    fn which_addresses_one_station_can_have() {
        let is_ones = |text: &str| text.parse::<IpPrefix>().unwrap().is_of_a_station();
        for text in ["10.0.0.1/24", "10.0.0.0/31", "10.0.0.1/32", "fd00::1/64", "fe80::1/64", "fd00::/64"] {
            assert!(is_ones(text), "{text}");
        }
        for text in [
            "10.0.0.0/24",
            "10.0.0.255/24",
            "10.0.0.1/0",
            "0.0.0.0/24",
            "0.1.2.3/8",
            "127.0.0.1/8",
            "224.0.0.1/4",
            "240.0.0.1/4",
            "254.255.255.254/24",
            "255.255.255.255/32",
            "::/64",
            "::1/128",
            "ff02::1/64",
            "::ffff:10.0.0.1/120",
            "fd00::1/0",
        ] {
            assert!(!is_ones(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_contains_its_own_address_and_network(bits: u128, len in 0u8..=128) {
            let p = IpPrefix::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), len).unwrap();
            prop_assert!(p.contains(p.addr()) && p.contains(p.network().addr()));
            let p4 = IpPrefix::new(IpAddr::V4(Ipv4Addr::from_bits(bits as u32)), len.min(32)).unwrap();
            prop_assert!(p4.contains(p4.addr()) && p4.contains(p4.network().addr()));
        }
    }
}
