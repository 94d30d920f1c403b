//! What an operator says of an IP interface, family by family (`ipadm set-ifprop`): what is not said is as the netstack or
//! the link has it.
//!
//! In the file: `[netstack.default.interfaces.web0]` with `ipv4 = { forwarding = "on", mtu = 1400 }`. A property of the
//! original that cannot differ here is in a table of its own with its value and the reason, so that nobody sets it in vain.

use firelane_units::Mtu;
use serde::{Deserialize, Serialize};

use crate::{FieldError, LinkName, PropertyError, Protocol};

/// What is said of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// For IPv4.
    #[serde(default, skip_serializing_if = "IfProps::is_default")]
    pub ipv4: IfProps,
    /// For IPv6.
    #[serde(default, skip_serializing_if = "IfProps::is_default")]
    pub ipv6: IfProps,
}

/// What is said of one family of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IfProps {
    /// Whether packets for others are forwarded that come or would leave by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Switch>,
    /// The largest packet that leaves by it.
    #[serde(default, with = "crate::value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>))]
    pub mtu: Option<Mtu>,
    /// Whose addresses packets get that leave by it and name no source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub usesrc: Option<LinkName>,
    /// Whether the source of a packet must be where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpfilter: Option<ReversePath>,
}

/// Whether the source of a packet must be where it comes from (RFC 3704 §2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReversePath {
    /// Nobody asks.
    Off,
    /// There must be a route to it.
    Loose,
    /// One of the best routes to it must lead to the interface by which it came.
    Strict,
}

impl ReversePath {
    /// What is possible, as it is shown.
    pub const POSSIBLE: &'static str = "off,loose,strict";

    /// The mode of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Off, Self::Loose, Self::Strict].into_iter().find(|it| it.word() == word)
    }

    /// The word used in commands and in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Loose => "loose",
            Self::Strict => "strict",
        }
    }
}

/// Something that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

impl Switch {
    /// What is possible, as it is shown.
    pub const POSSIBLE: &'static str = "on,off";

    /// The switch of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::On, Self::Off].into_iter().find(|it| it.word() == word)
    }

    /// The word used in commands and in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// Whether it is on.
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

impl From<bool> for Switch {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl Interface {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        self.ipv4.is_default() && self.ipv6.is_default()
    }

    /// What is said of both families, IPv4's first.
    pub const fn families(&self) -> [(Protocol, &IfProps); 2] {
        [(Protocol::Ipv4, &self.ipv4), (Protocol::Ipv6, &self.ipv6)]
    }

    /// What is said of one of the two families.
    pub const fn family_mut(&mut self, protocol: Protocol) -> Option<&mut IfProps> {
        match protocol {
            Protocol::Ipv4 => Some(&mut self.ipv4),
            Protocol::Ipv6 => Some(&mut self.ipv6),
            _ => None,
        }
    }

    /// The interfaces whose addresses it uses.
    pub fn sources(&self) -> impl Iterator<Item = &LinkName> {
        self.families().into_iter().filter_map(|(_, props)| props.usesrc.as_ref())
    }

    /// Uses the addresses of `source` where `said` does and no other is used.
    pub fn use_again(&mut self, said: &Self, source: &LinkName) {
        for (props, said) in [(&mut self.ipv4, &said.ipv4), (&mut self.ipv6, &said.ipv6)] {
            if props.usesrc.is_none() && said.usesrc.as_ref() == Some(source) {
                props.usesrc = Some(source.clone());
            }
        }
    }

    /// Uses no addresses of interfaces that are `gone`.
    pub fn forget_sources(&mut self, gone: impl Fn(&LinkName) -> bool) {
        for props in [&mut self.ipv4, &mut self.ipv6] {
            props.usesrc = props.usesrc.take().filter(|it| !gone(it));
        }
    }
}

impl IfProps {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An interface's property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfProp {
    /// Packets for others are forwarded.
    Forwarding,
    /// The largest packet that leaves.
    Mtu,
    /// Whose addresses packets get that name no source.
    Usesrc,
    /// The source of a packet must be where it comes from; the original has no such property.
    Rpfilter,
    /// It has one value here.
    Fixed(&'static FixedProp),
}

/// A property of the original that has one value here.
#[derive(PartialEq, Eq, Debug)]
pub struct FixedProp {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: &'static str,
    /// Why it has no other.
    pub why: &'static str,
}

const ARP: FixedProp = FixedProp {
    name: "arp",
    value: "on",
    why: "without ARP nobody is reached, because there are no neighbours by hand",
};
const NUD: FixedProp = FixedProp {
    name: "nud",
    value: "on",
    why: "a neighbour that is gone would be sent to for ever (RFC 4861)",
};
const METRIC: FixedProp =
    FixedProp { name: "metric", value: "0", why: "no routing daemon could ask for it, and routes have none" };
const EXCHANGE_ROUTES: FixedProp =
    FixedProp { name: "exchange_routes", value: "off", why: "a netstack runs no routing daemon" };
const STANDBY: FixedProp = FixedProp {
    name: "standby",
    value: "off",
    why: "there are no groups of interfaces that stand in for each other",
};

impl IfProp {
    /// The properties of `protocol`, in the original's order.
    pub const fn of(protocol: Protocol) -> &'static [Self] {
        match protocol {
            Protocol::Ip => &[Self::Fixed(&STANDBY)],
            Protocol::Ipv4 => &[
                Self::Fixed(&ARP),
                Self::Forwarding,
                Self::Fixed(&METRIC),
                Self::Mtu,
                Self::Fixed(&EXCHANGE_ROUTES),
                Self::Usesrc,
                Self::Rpfilter,
            ],
            Protocol::Ipv6 => &[
                Self::Forwarding,
                Self::Fixed(&METRIC),
                Self::Mtu,
                Self::Fixed(&NUD),
                Self::Fixed(&EXCHANGE_ROUTES),
                Self::Usesrc,
                Self::Rpfilter,
            ],
            Protocol::Icmp | Protocol::Tcp | Protocol::Udp => &[],
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarding => "forwarding",
            Self::Mtu => "mtu",
            Self::Usesrc => "usesrc",
            Self::Rpfilter => "rpfilter",
            Self::Fixed(fixed) => fixed.name,
        }
    }

    /// The property `name` of `protocol`.
    pub fn find(protocol: Protocol, name: &str) -> Result<Self, PropertyError> {
        let known = Self::of(protocol);
        known.iter().find(|it| it.name() == name).copied().ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|it| it.name()).collect();
            let allowed = match names[..] {
                [] => format!("{} has no properties of interfaces", protocol.word()),
                _ => format!("{} has {}", protocol.word(), names.join(", ")),
            };
            PropertyError::Unknown(FieldError::new(name, "", allowed))
        })
    }
}

/// The least that the largest packet of a family may be.
pub const fn mtu_least(protocol: Protocol) -> u16 {
    /// RFC 8200 §5.
    const IPV6: u16 = 1280;
    match protocol {
        Protocol::Ipv6 => IPV6,
        _ => Mtu::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    const HOST: &str = "[etherstub.s0]\n[vnic.web0]\nover = \"s0\"\nnetstack = \"default\"\n\
        [vnic.web1]\nover = \"s0\"\nnetstack = \"default\"\n[vnic.alien0]\nover = \"s0\"\n\
        [netstack.default]\n";

    #[test]
    fn what_is_said_reads_back() {
        let text = format!(
            "{HOST}[netstack.default.interfaces.web0]\nipv4 = {{ forwarding = \"on\", usesrc = \"web1\" }}\nipv6 = {{ mtu = 1280, rpfilter = \"strict\" }}\n"
        );
        let model = Model::from_toml("f", &text).unwrap();
        let Some(interface) = model.netstacks.values().next().and_then(|it| it.interfaces.values().next())
        else {
            panic!("it stands there")
        };
        assert_eq!((interface.ipv4.forwarding, interface.ipv6.forwarding), (Some(Switch::On), None));
        assert_eq!((interface.ipv4.rpfilter, interface.ipv6.rpfilter), (None, Some(ReversePath::Strict)));
        assert_eq!(interface.sources().map(LinkName::as_str).collect::<Vec<_>>(), ["web1"]);
        assert_eq!(Model::from_toml("f", &model.to_toml()).unwrap(), model);
    }

    #[test]
    fn no_address_of_ipv6_is_where_packets_are_shorter_than_it_asks_for() {
        let read = |stub: u16, vnic: &str, address: &str| {
            let text = format!(
                "[etherstub.s0]\nmtu = {stub}\n[vnic.web0]\nover = 's0'\nnetstack = 'web'\n{vnic}\n\
                 [netstack.web.addresses]\n'web0/a' = {address}\n"
            );
            Model::from_toml("f", &text).map(drop).map_err(|faults| faults[0].to_string())
        };
        let both = ["'fd00::1/64'", "'addrconf'"];
        for address in both {
            for (stub, vnic) in [(1279, ""), (1500, "mtu = 1279"), (576, "")] {
                let error = read(stub, vnic, address).unwrap_err();
                assert!(
                    error.contains("netstack.web.addresses.web0/a") && error.contains("it is 1280"),
                    "{error}"
                );
            }
            assert_eq!(read(1280, "", address), Ok(()));
            assert_eq!(read(9000, "mtu = 1280", address), Ok(()));
        }
        for address in ["'10.0.0.1/24'", "'dhcp'"] {
            assert_eq!(read(576, "", address), Ok(()));
        }
    }

    #[test]
    fn a_fault_is_named_by_its_path() {
        for (said, wanted) in [
            ("web9]", "netstack.default.interfaces.web9: web9 is no VNIC of this netstack"),
            ("alien0]", "netstack.default.interfaces.alien0: alien0 is no VNIC of this netstack"),
            (
                "web0]\nipv6 = { mtu = 1279 }",
                "netstack.default.interfaces.web0.ipv6.mtu: \"1279\": at least 1280",
            ),
            (
                "web0]\nipv4 = { usesrc = \"alien0\" }",
                "netstack.default.interfaces.web0.ipv4.usesrc: \"alien0\": another VNIC of this netstack",
            ),
            (
                "web0]\nipv4 = { usesrc = \"web0\" }",
                "netstack.default.interfaces.web0.ipv4.usesrc: \"web0\": another VNIC of this netstack",
            ),
            ("web0]\nipv4 = { forwarding = true }", ""),
            ("web0]\nipv4 = { arp = \"off\" }", ""),
            ("web0]\nipv4 = { rpfilter = \"on\" }", ""),
        ] {
            let text = format!("{HOST}[netstack.default.interfaces.{said}\n");
            let faults = Model::from_toml("f", &text).unwrap_err();
            let first = faults[0].to_string();
            assert!(first.contains(wanted), "{first}\nwanted {wanted}");
        }
    }

    #[test]
    fn every_property_is_found_by_its_name() {
        for protocol in Protocol::ALL {
            for prop in IfProp::of(protocol) {
                assert_eq!(IfProp::find(protocol, prop.name()), Ok(*prop));
            }
        }
        let unknown = IfProp::find(Protocol::Ip, "arp").unwrap_err().into_field();
        assert_eq!(unknown.allowed, "ip has standby");
    }
}
