//! An IP tunnel: a link whose frames become packets of the netstack that has it, between two addresses.
//!
//! In the model it is a VNIC that is over a tunnel in place of a link ([`Over`]), so that it has all that VNICs have: a netstack,
//! addresses, limits, flows, rules.

use core::fmt;
use core::net::IpAddr;

use firelane_units::Mtu;
use serde::{Deserialize, Serialize};

use crate::LinkName;

/// What a VNIC is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Over {
    /// A link or etherstub.
    Link(LinkName),
    /// A tunnel of its own.
    Tunnel(Iptun),
}

impl Over {
    /// The link or etherstub.
    pub const fn link(&self) -> Option<&LinkName> {
        match self {
            Self::Link(name) => Some(name),
            Self::Tunnel(_) => None,
        }
    }

    /// The tunnel.
    pub const fn tunnel(&self) -> Option<&Iptun> {
        match self {
            Self::Link(_) => None,
            Self::Tunnel(tunnel) => Some(tunnel),
        }
    }

    /// Whether it is the link or etherstub of this name.
    pub fn is(&self, name: &str) -> bool {
        self.link().is_some_and(|link| link.as_str() == name)
    }
}

impl fmt::Display for Over {
    /// The link's name, or the tunnel's ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(name) => fmt::Display::fmt(name, f),
            Self::Tunnel(tunnel) => fmt::Display::fmt(tunnel, f),
        }
    }
}

/// How a tunnel carries packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum IptunType {
    /// In IPv4: both versions.
    #[serde(rename = "ipv4")]
    Ipv4,
    /// In IPv6: both versions.
    #[serde(rename = "ipv6")]
    Ipv6,
    /// IPv6 in IPv4, to wherever the packet's address says.
    #[serde(rename = "6to4")]
    SixToFour,
    /// Behind GRE, in either.
    #[serde(rename = "gre")]
    Gre,
}

impl IptunType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ipv4, Self::Ipv6, Self::SixToFour, Self::Gre];

    /// The word in file and commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::SixToFour => "6to4",
            Self::Gre => "gre",
        }
    }

    /// The type of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }

    /// Whether a packet outside may have such addresses.
    pub const fn takes(self, address: IpAddr) -> bool {
        match self {
            Self::Ipv4 | Self::SixToFour => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
            Self::Gre => true,
        }
    }
}

/// A tunnel. One whose ends are not both known carries nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Iptun {
    /// How it carries packets.
    #[serde(rename = "type")]
    pub kind: IptunType,
    /// This end: an address of the netstack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub local: Option<IpAddr>,
    /// The other end; 6to4 has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub remote: Option<IpAddr>,
    /// TTL or hop limit of the packets outside.
    #[serde(default = "hoplimit", skip_serializing_if = "is_hoplimit")]
    #[cfg_attr(feature = "schema", schema(default = 64, minimum = 1))]
    pub hoplimit: u8,
    /// How many more tunnels a packet may enter inside this one, where the packets outside are IPv6; 0 says nothing about it.
    #[serde(default = "encaplimit", skip_serializing_if = "is_encaplimit")]
    #[cfg_attr(feature = "schema", schema(default = 4))]
    pub encaplimit: u8,
    /// GRE's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// Whether GRE's packets have a checksum.
    #[serde(default, skip_serializing_if = "is_false")]
    pub checksum: bool,
    /// Whether GRE's packets have numbers, so that late ones are dropped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sequence: bool,
}

impl Iptun {
    /// The hop limit of tunnels that name none, as in the original.
    pub const HOPLIMIT: u8 = 64;
    /// The encapsulation limit of tunnels that name none (RFC 2473 §6.6).
    pub const ENCAPLIMIT: u8 = 4;
    /// The largest packet that an operator may ask for: IP's longest, without the most that stands before it.
    pub const MTU_MAX: u16 = u16::MAX - 64;

    /// A tunnel without ends.
    pub const fn new(kind: IptunType) -> Self {
        let (hoplimit, encaplimit) = (Self::HOPLIMIT, Self::ENCAPLIMIT);
        Self {
            kind,
            local: None,
            remote: None,
            hoplimit,
            encaplimit,
            key: None,
            checksum: false,
            sequence: false,
        }
    }

    /// This end and the other one, if both are known; 6to4 needs its own alone.
    pub fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        match (self.kind, self.local, self.remote) {
            (IptunType::SixToFour, Some(local), _) => Some((local, local)),
            (_, local, remote) => local.zip(remote),
        }
    }

    /// The largest packet inside, over a path of Ethernet's size.
    pub fn default_mtu(&self) -> Mtu {
        let is_v6 = match self.kind {
            IptunType::Ipv6 => true,
            IptunType::Ipv4 | IptunType::SixToFour => false,
            IptunType::Gre => self.local.or(self.remote).is_some_and(|it| it.is_ipv6()),
        };
        let outer = if is_v6 { 40 + if self.encaplimit > 0 { 8 } else { 0 } } else { 20 };
        let words = [self.key.is_some(), self.checksum, self.sequence].into_iter().filter(|&it| it).count();
        let gre = if self.kind == IptunType::Gre { 4 + 4 * words as u16 } else { 0 };
        Mtu::new(Mtu::ETHERNET.bytes() - outer - gre).unwrap_or(Mtu::ETHERNET)
    }

    /// The fields that are wrong by themselves: name, value, what is allowed.
    pub fn faults(&self) -> Vec<(&'static str, String, &'static str)> {
        let mut faults = Vec::new();
        for (field, address) in [("local", self.local), ("remote", self.remote)] {
            let Some(address) = address else { continue };
            if !self.kind.takes(address) {
                faults.push((field, address.to_string(), "an address of the version outside"));
            } else if !is_station(address) {
                faults.push((field, address.to_string(), "an address of one station"));
            }
        }
        if let (Some(local), Some(remote)) = (self.local, self.remote) {
            if self.kind == IptunType::SixToFour {
                faults.push(("remote", remote.to_string(), "6to4 has no other end"));
            } else if local == remote {
                faults.push(("remote", remote.to_string(), "another address than local"));
            } else if local.is_ipv4() != remote.is_ipv4() {
                faults.push(("remote", remote.to_string(), "an address of the same version as local"));
            }
        }
        if self.hoplimit == 0 {
            faults.push(("hoplimit", "0".to_owned(), "1 to 255"));
        }
        let of_gre = [("key", self.key.is_some()), ("checksum", self.checksum), ("sequence", self.sequence)];
        for (field, _) in of_gre.into_iter().filter(|&(_, is_set)| is_set && self.kind != IptunType::Gre) {
            faults.push((field, String::new(), "only type = \"gre\" has it"));
        }
        faults
    }

    /// Whether what arrives could be of either of two tunnels.
    pub fn meets(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.key == other.key
            && self.ends().is_some_and(|ends| other.ends() == Some(ends))
    }
}

impl fmt::Display for Iptun {
    /// The type and the ends: `ipv4 10.0.0.1 -> 10.0.0.2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |end: Option<IpAddr>| end.map_or_else(|| "--".to_owned(), |end| end.to_string());
        write!(f, "{} {} -> {}", self.kind.word(), shown(self.local), shown(self.remote))
    }
}

/// Whether one station can have an address that packets outside have.
fn is_station(address: IpAddr) -> bool {
    let never = address.is_unspecified() || address.is_multicast() || address.is_loopback();
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0);
    !never && !broadcast
}

const fn hoplimit() -> u8 {
    Iptun::HOPLIMIT
}

const fn is_hoplimit(it: &u8) -> bool {
    *it == Iptun::HOPLIMIT
}

const fn encaplimit() -> u8 {
    Iptun::ENCAPLIMIT
}

const fn is_encaplimit(it: &u8) -> bool {
    *it == Iptun::ENCAPLIMIT
}

const fn is_false(it: &bool) -> bool {
    !*it
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    const TEXT: &str = "[netstack.default]\n[link.net0]\nkind = \"memory\"\n[vnic.v0]\nover = \"net0\"\nnetstack = \"default\"\n";

    fn with(tunnel: &str) -> Result<Model, String> {
        Model::from_toml("f.toml", &format!("{TEXT}[vnic.tun0]\n{tunnel}\n"))
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn a_tunnel_stands_in_the_file_and_is_written_back() {
        let text = "netstack = \"default\"\n[vnic.tun0.iptun]\ntype = \"gre\"\nlocal = \"10.0.0.1\"\nremote = \"10.0.0.2\"\nkey = 7";
        let model = with(text).unwrap();
        let tunnel = model.vnics["tun0"].over.tunnel().unwrap();
        assert_eq!((tunnel.to_string(), tunnel.hoplimit), ("gre 10.0.0.1 -> 10.0.0.2".to_owned(), 64));
        assert_eq!(model.mtu_of("tun0"), Mtu::new(1472));
        assert_eq!(model.class_of("tun0"), Some(crate::LinkClass::Iptun));
        let again = Model::from_toml("f.toml", &model.to_toml()).unwrap();
        assert_eq!(again, model);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, wanted) in [
            ("iptun = { type = \"ipv5\" }", "unknown variant"),
            ("iptun = { type = \"ipv4\", local = \"fd00::1\" }", "vnic.tun0.iptun.local: \"fd00::1\""),
            ("iptun = { type = \"ipv4\", local = \"224.0.0.1\" }", "one station"),
            ("iptun = { type = \"ipv4\", local = \"10.0.0.1\", remote = \"10.0.0.1\" }", "another address"),
            ("iptun = { type = \"gre\", local = \"10.0.0.1\", remote = \"fd00::1\" }", "same version"),
            ("iptun = { type = \"6to4\", local = \"10.0.0.1\", remote = \"10.0.0.2\" }", "no other end"),
            ("iptun = { type = \"ipv4\", hoplimit = 0 }", "1 to 255"),
            ("iptun = { type = \"ipv4\", key = 1 }", "only type = \"gre\""),
            ("netstack = \"default\"\niptun = { type = \"ipv4\" }", "vnic.tun0.iptun.local: missing"),
            ("over = \"net0\"\niptun = { type = \"ipv4\" }", "over and iptun"),
            ("vlan = 7\niptun = { type = \"ipv4\" }", "a tunnel has no"),
            ("mtu = 65472\niptun = { type = \"ipv4\" }", "a tunnel's mtu is from 576 to 65471"),
            ("tap = {}\niptun = { type = \"ipv4\" }", "a tunnel's user"),
        ] {
            let error = with(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let ends = "netstack = \"default\"\niptun = { type = \"ipv4\", local = \"10.0.0.1\", remote = \"10.0.0.2\" }";
        let error = with(&format!("{ends}\n[vnic.tun1]\n{ends}")).unwrap_err();
        assert!(
            error.contains("vnic.tun1.iptun") && error.contains("vnic.tun0.iptun has it already"),
            "{error}"
        );
    }

    #[test]
    fn packets_inside_fit_a_path_of_ethernets_size() {
        let mtu = |kind, local: &str| {
            let local = Some(local.parse().unwrap());
            Iptun { local, ..Iptun::new(kind) }.default_mtu().bytes()
        };
        assert_eq!(mtu(IptunType::Ipv4, "10.0.0.1"), 1480);
        assert_eq!(mtu(IptunType::SixToFour, "10.0.0.1"), 1480);
        assert_eq!(mtu(IptunType::Gre, "10.0.0.1"), 1476);
        assert_eq!(mtu(IptunType::Ipv6, "fd00::1"), 1452);
        assert_eq!(mtu(IptunType::Gre, "fd00::1"), 1448);
    }
}
