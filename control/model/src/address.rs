//! An address of a netstack's interface: what stands behind an address object such as `web0/v4`.

use core::net::IpAddr;

use firelane_units::IpPrefix;

use crate::value::{TextValue, serde_as_text};

/// A static address with its prefix length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address(IpPrefix);

impl Address {
    /// `Some` if one station can have the address: it is unicast and, where the prefix leaves room for
    /// them, neither the network's own address nor its broadcast address.
    pub fn new(prefix: IpPrefix) -> Option<Self> {
        let usable = match prefix.addr() {
            IpAddr::V4(addr) => {
                let unicast = !addr.is_unspecified()
                    && !addr.is_loopback()
                    && !addr.is_multicast()
                    && !addr.is_broadcast()
                    && addr.octets()[0] != 0;
                let host_bits = u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
                let host = addr.to_bits() & host_bits;
                unicast && (prefix.prefix_len() >= 31 || (host != 0 && host != host_bits))
            }
            IpAddr::V6(addr) => !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast(),
        };
        (usable && prefix.prefix_len() > 0).then_some(Self(prefix))
    }

    /// The address with its prefix length.
    pub const fn prefix(self) -> IpPrefix {
        self.0
    }

    /// The address alone.
    pub const fn addr(self) -> IpAddr {
        self.0.addr()
    }
}

impl TextValue for Address {
    const ALLOWED: &'static str =
        "a unicast IP address of a host with a prefix length, such as 10.0.0.10/24 or fd00::10/64";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Self::new)
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

serde_as_text!(Address);

impl core::fmt::Display for Address {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_a_host_can_have() {
        for good in ["10.0.0.10/24", "10.0.0.0/31", "10.0.0.255/32", "192.0.2.1", "fd00::10/64", "fe80::1/64"]
        {
            assert!(Address::read(good).is_some(), "{good}");
        }
        let bad = [
            "10.0.0.0/24",
            "10.0.0.255/24",
            "0.0.0.0",
            "0.1.2.3/8",
            "127.0.0.1/8",
            "224.0.0.1/4",
            "255.255.255.255",
            "::",
            "::1/128",
            "ff02::1/64",
            "10.0.0.1/0",
            "10.0.0.1/33",
            "10.0.0.1/",
            "host",
        ];
        for bad in bad {
            assert_eq!(Address::read(bad), None, "{bad}");
        }
    }
}
