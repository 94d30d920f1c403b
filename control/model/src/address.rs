//! An address of a netstack's interface: what stands behind an address object such as `web0/v4`.

use core::net::{IpAddr, Ipv6Addr};

use firelane_units::IpPrefix;

use crate::dhcp::{DHCP, Dhcp};
use crate::value::{TextValue, serde_as_text};

/// What an address object stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// One address with its prefix length.
    Static(StaticAddress),
    /// The IPv6 addresses that the interface configures by itself.
    Addrconf(Addrconf),
    /// The IPv4 address that a server gives.
    Dhcp(Dhcp),
}

/// An address that one station can have, with its prefix length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StaticAddress {
    prefix: IpPrefix,
    /// Whether nothing new shall begin with it.
    pub deprecated: bool,
    /// Whether it is not used now; what has begun with it waits.
    pub down: bool,
}

/// What stands behind a static address of which nothing new shall begin.
const DEPRECATED: &str = ",deprecated=on";
/// What stands behind that of one that is not used now.
const DOWN: &str = ",down=on";

impl StaticAddress {
    /// The address with its prefix length.
    pub const fn prefix(self) -> IpPrefix {
        self.prefix
    }

    /// The same address, of which nothing new shall begin, or something may.
    #[must_use]
    pub const fn with_deprecated(self, deprecated: bool) -> Self {
        Self { deprecated, ..self }
    }

    /// The same address, which is not used now, or is.
    #[must_use]
    pub const fn with_down(self, down: bool) -> Self {
        Self { down, ..self }
    }

    /// The same address with another prefix length; `None` if a station cannot have it there.
    #[must_use]
    pub fn with_prefix_len(self, len: u8) -> Option<Self> {
        match Address::new(IpPrefix::new(self.prefix.addr(), len)?)? {
            Address::Static(it) => Some(Self { prefix: it.prefix, ..self }),
            Address::Addrconf(_) | Address::Dhcp(_) => None,
        }
    }
}

/// How an interface configures IPv6 addresses by itself (`ipadm create-addr -T addrconf`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addrconf {
    /// The lower half of its addresses, if the operator chooses it.
    pub interface_id: Option<[u8; 8]>,
    /// Whether addresses are asked for by DHCPv6 if a router says so.
    pub stateful: bool,
    /// Whether addresses are made from the prefixes that routers announce.
    pub stateless: bool,
    /// Whether temporary addresses are made too (RFC 8981).
    pub temporary: bool,
}

impl Default for Addrconf {
    /// As Solaris has it.
    fn default() -> Self {
        Self { interface_id: None, stateful: true, stateless: true, temporary: false }
    }
}

/// The word of the file and of `ipadm -T`.
const ADDRCONF: &str = "addrconf";

impl Addrconf {
    /// Reads one `name=value`, as in `stateless=no` or `interface-id=::1`; `None` if there is no such thing.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Option<Self> {
        let is_on = || match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        match name {
            "stateful" => self.stateful = is_on()?,
            "stateless" => self.stateless = is_on()?,
            "temporary" => self.temporary = is_on()?,
            "interface-id" => self.interface_id = Some(read_interface_id(value)?),
            _ => return None,
        }
        Some(self)
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        words.next().filter(|word| *word == ADDRCONF)?;
        words.try_fold(Self::default(), |conf, word| {
            let (name, value) = word.split_once('=')?;
            conf.with(name, value)
        })
    }

    fn write(&self) -> String {
        let mut text = ADDRCONF.to_owned();
        if let Some([a, b, c, d, e, f, g, h]) = self.interface_id {
            let id = Ipv6Addr::from([0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]);
            text += &format!(",interface-id={id}");
        }
        let usual = Self::default();
        let words = [
            ("stateful", self.stateful, usual.stateful),
            ("stateless", self.stateless, usual.stateless),
            ("temporary", self.temporary, usual.temporary),
        ];
        for (name, is, _) in words.into_iter().filter(|(_, is, usual)| is != usual) {
            text += &format!(",{name}={}", if is { "yes" } else { "no" });
        }
        text
    }
}

/// Reads an address of which only the lower half is set, and some of it.
fn read_interface_id(text: &str) -> Option<[u8; 8]> {
    let [network @ .., a, b, c, d, e, f, g, h] = text.parse::<Ipv6Addr>().ok()?.octets();
    let id = [a, b, c, d, e, f, g, h];
    (network == [0; 8] && id != [0; 8]).then_some(id)
}

impl Address {
    /// `Some` if one station can have the address: it is unicast and, where the prefix leaves room for
    /// them, neither the network's own address nor its broadcast address.
    pub fn new(prefix: IpPrefix) -> Option<Self> {
        let of_it = || Self::Static(StaticAddress { prefix, deprecated: false, down: false });
        prefix.is_of_a_station().then(of_it)
    }

    /// The prefix length of an address that names none: IPv4 has that of its class, as in the original, and IPv6 has 64.
    pub const fn default_prefix_len(addr: IpAddr) -> u8 {
        match addr {
            IpAddr::V6(_) => 64,
            IpAddr::V4(v4) => match v4.octets()[0] {
                0..=127 => 8,
                128..=191 => 16,
                _ => 24,
            },
        }
    }

    fn read_static(text: &str) -> Option<Self> {
        let cut = |text, word| str::strip_suffix(text, word).map_or((text, false), |before| (before, true));
        let (text, down) = cut(text, DOWN);
        let (prefix, deprecated) = cut(text, DEPRECATED);
        match IpPrefix::of_interface(prefix).and_then(Self::new)? {
            Self::Static(it) => Some(Self::Static(StaticAddress { deprecated, down, ..it })),
            Self::Addrconf(_) | Self::Dhcp(_) => None,
        }
    }

    /// Whether it can become `other` while it is in use.
    pub fn can_become(self, other: Self) -> bool {
        match (self, other) {
            (Self::Static(a), Self::Static(b)) => a.prefix.addr() == b.prefix.addr(),
            (Self::Dhcp(a), Self::Dhcp(b)) => a.link_local == b.link_local,
            _ => self == other,
        }
    }

    /// The address with its prefix length, if it is static.
    pub const fn prefix(self) -> Option<IpPrefix> {
        match self {
            Self::Static(address) => Some(address.prefix()),
            Self::Addrconf(_) | Self::Dhcp(_) => None,
        }
    }

    /// The address alone, if it is static.
    pub fn addr(self) -> Option<IpAddr> {
        self.prefix().map(IpPrefix::addr)
    }

    /// Whether it is of IPv6, or will be.
    pub fn is_v6(self) -> bool {
        match self {
            Self::Static(it) => it.prefix.addr().is_ipv6(),
            Self::Addrconf(_) => true,
            Self::Dhcp(_) => false,
        }
    }

    /// The word of `ipadm -T`.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Static(_) => "static",
            Self::Addrconf(_) => ADDRCONF,
            Self::Dhcp(_) => DHCP,
        }
    }
}

impl TextValue for Address {
    const ALLOWED: &'static str = "a unicast IP address of a host with a prefix length, such as 10.0.0.10/24 or fd00::10/64, or addrconf, or dhcp";

    fn read(text: &str) -> Option<Self> {
        let addrconf = || Addrconf::read(text).map(Self::Addrconf);
        let dhcp = || Dhcp::read(text).map(Self::Dhcp);
        addrconf().or_else(dhcp).or_else(|| Self::read_static(text))
    }

    fn write(&self) -> String {
        match self {
            Self::Static(address) => {
                let word = |is: bool, word| if is { word } else { "" };
                let deprecated = word(address.deprecated, DEPRECATED);
                format!("{}{deprecated}{}", address.prefix(), word(address.down, DOWN))
            }
            Self::Addrconf(conf) => conf.write(),
            Self::Dhcp(conf) => conf.write(),
        }
    }
}

serde_as_text!(Address);

impl core::fmt::Display for Address {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addrconf_and_its_properties() {
        for text in [
            "addrconf",
            "dhcp",
            "dhcp,reqhost=web",
            "addrconf,stateless=no",
            "addrconf,interface-id=::1:2,stateful=no,temporary=yes",
            "10.0.0.1/24,deprecated=on",
            "fd00::1/64,deprecated=on",
            "fd00::1/64,down=on",
            "10.0.0.1/24,deprecated=on,down=on",
        ] {
            assert_eq!(Address::read(text).unwrap().to_string(), text);
        }
        let Some(Address::Addrconf(conf)) = Address::read("addrconf,interface-id=::a:b:c:d,stateful=yes")
        else {
            panic!("it is well formed")
        };
        assert_eq!(conf.interface_id, Some([0, 0xa, 0, 0xb, 0, 0xc, 0, 0xd]));
        assert_eq!((conf.stateful, conf.stateless, conf.temporary), (true, true, false));
        for bad in [
            "addrconf,",
            "addrconf,stateless",
            "addrconf,stateless=maybe",
            "addrconf,speed=yes",
            "addrconf,interface-id=::",
            "addrconf,interface-id=fd00::1",
            "addrconfig",
            "10.0.0.1/24,deprecated=off",
            "10.0.0.0/24,deprecated=on",
            "dhcp,deprecated=on",
            "dhcp,down=on",
            "10.0.0.1/24,down=off",
            "10.0.0.1/24,down=on,deprecated=on",
            "::ffff:10.0.0.1/120",
        ] {
            assert_eq!(Address::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_addresses_that_a_host_can_have() {
        for good in
            ["10.0.0.10/24", "10.0.0.0/31", "10.0.0.255/32", "192.0.2.1/32", "fd00::10/64", "fe80::1/64"]
        {
            assert!(Address::read(good).is_some(), "{good}");
        }
        let bad = [
            "10.0.0.0/24",
            "10.0.0.255/24",
            "192.0.2.1",
            "fd00::10",
            "0.0.0.0/32",
            "0.1.2.3/8",
            "127.0.0.1/8",
            "224.0.0.1/4",
            "255.255.255.255/32",
            "::/128",
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
