//! A flow: a class of a link's traffic with a limit, a priority and counters of its own.
//!
//! The original allows one kind of match per link and a fixed list of combinations. We differ: any attributes
//! may be combined, and flows of different kinds may share a link, because that restriction is what
//! users of the original complain about most. Equal matches on one link stay refused.

use core::fmt;
use core::str::FromStr;

use firelane_units::{BitRate, DsField, IpPrefix, MacAddr, PortRange, Priority, VlanId};
use serde::{Deserialize, Serialize};

use crate::fusing::{Fusing, is_same_zone};
use crate::value::{self, TextValue, serde_as_text};
use crate::{Cpus, FieldError, LinkName};

/// The protocol above IP that a flow matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260.
    Sctp,
    /// RFC 792.
    Icmp,
    /// RFC 4443.
    Icmpv6,
    /// RFC 4303.
    Esp,
    /// One without a word here, by its number.
    Number(u8),
}

impl Transport {
    /// All that have a word.
    pub const NAMED: [Self; 6] = [Self::Tcp, Self::Udp, Self::Sctp, Self::Icmp, Self::Icmpv6, Self::Esp];

    /// The word used in commands; others are called by their number.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::Tcp => Some("tcp"),
            Self::Udp => Some("udp"),
            Self::Sctp => Some("sctp"),
            Self::Icmp => Some("icmp"),
            Self::Icmpv6 => Some("icmpv6"),
            Self::Esp => Some("esp"),
            Self::Number(_) => None,
        }
    }

    /// The number in the IP header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Icmp => 1,
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmpv6 => 58,
            Self::Esp => 50,
            Self::Sctp => 132,
            Self::Number(number) => number,
        }
    }

    /// Whether its header has ports.
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp | Self::Sctp)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word() {
            Some(word) => f.pad(word),
            None => self.number().fmt(f),
        }
    }
}

impl TextValue for Transport {
    const ALLOWED: &'static str =
        "a transport is tcp, udp, sctp, icmp, icmpv6, esp or a protocol's number from 0 to 255";

    fn read(text: &str) -> Option<Self> {
        let is_word = |t: &Self| t.word().is_some_and(|word| word.eq_ignore_ascii_case(text));
        if let Some(named) = Self::NAMED.into_iter().find(is_word) {
            return Some(named);
        }
        let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(Self::NAMED.into_iter().find(|t| t.number() == number).unwrap_or(Self::Number(number)))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

serde_as_text!(Transport);

/// What a flow matches; "local" is the link's own side: destination inward, source outward.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowMatch {
    /// The link's own address, or a prefix of it.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub local_ip: Option<IpPrefix>,
    /// The other side's address, or a prefix of it.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub remote_ip: Option<IpPrefix>,
    /// The protocol above IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The link's own port, or a range of them.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(schema_with = schema::port_or_range))]
    pub local_port: Option<PortRange>,
    /// The other side's port, or a range of them.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(schema_with = schema::port_or_range))]
    pub remote_port: Option<PortRange>,
    /// The differentiated-services field.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub dsfield: Option<DsField>,
    /// The VLAN of the frames' tag, as they pass the link.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>, minimum = 1, maximum = 4094))]
    pub vlan_id: Option<VlanId>,
    /// The link's own station.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub local_mac: Option<MacAddr>,
    /// The other side's station.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub remote_mac: Option<MacAddr>,
}

/// What a match pins: which attributes, how many bits of addresses and of the DS field, and whether ports are ranges.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FlowKind {
    is_v4: Option<bool>,
    lengths: [Option<u8>; 2],
    ports: [Option<bool>; 2],
    ds_mask: Option<u8>,
    others: [bool; 4],
}

/// Why a link has no flow of one more kind.
pub const FLOW_KINDS: &str = "the flows of a link are of at most 64 kinds: which attributes they name, how long their prefixes are, and \
     whether ports are ranges";

/// Why a link has no further flow of two ranges of ports.
pub const FLOW_RANGE_PAIRS: &str =
    "at most 64 flows of a link are alike but for their ranges of local and of remote ports";

/// What a link must have to carry flows: what passes between VNICs is in theirs.
pub const NO_WIRE: &str = "a VNIC, or a link that leads out";

/// A flow and its properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The link or VNIC whose traffic it is part of.
    pub link: LinkName,
    /// What it matches.
    #[serde(rename = "match")]
    pub matching: FlowMatch,
    /// Its limit, in each direction.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "50M"))]
    pub maxbw: Option<BitRate>,
    /// What it is guaranteed of the limits above it, in each direction.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "10M"))]
    pub minbw: Option<BitRate>,
    /// Its place when a lane cannot serve everything.
    #[serde(default = "medium", with = "value", skip_serializing_if = "is_medium")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "medium"))]
    pub priority: Priority,
    /// Whether its connections may be fused.
    #[serde(default, skip_serializing_if = "is_same_zone")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "same-zone"))]
    pub fusion: Fusing,
    /// The CPUs of lanes of its own: where the connections and datagrams of a service are, or what passes a device is limited.
    #[serde(default, skip_serializing_if = "Cpus::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub cpus: Cpus,
}

fn medium() -> Priority {
    Priority::Medium
}

fn is_medium(priority: &Priority) -> bool {
    *priority == Priority::Medium
}

impl FlowMatch {
    /// The names of the attributes, as commands and file spell them.
    pub const ATTRIBUTES: [&'static str; 9] = [
        "local_ip",
        "remote_ip",
        "transport",
        "local_port",
        "remote_port",
        "dsfield",
        "vlan_id",
        "local_mac",
        "remote_mac",
    ];

    /// Sets the attribute `name` from text; `protocol` is the later spelling of `transport`.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), FieldError> {
        fn put<T: TextValue>(slot: &mut Option<T>, name: &str, text: &str) -> Result<(), FieldError> {
            if slot.is_some() {
                return Err(FieldError::new(name, text, "each attribute may be given once"));
            }
            *slot = Some(T::read(text).ok_or_else(|| FieldError::new(name, text, T::ALLOWED))?);
            Ok(())
        }
        match name {
            "local_ip" => put(&mut self.local_ip, name, text),
            "remote_ip" => put(&mut self.remote_ip, name, text),
            "transport" | "protocol" => put(&mut self.transport, name, text),
            "local_port" => put(&mut self.local_port, name, text),
            "remote_port" => put(&mut self.remote_port, name, text),
            "dsfield" => put(&mut self.dsfield, name, text),
            "vlan_id" => put(&mut self.vlan_id, name, text),
            "local_mac" => put(&mut self.local_mac, name, text),
            "remote_mac" => put(&mut self.remote_mac, name, text),
            _ => Err(FieldError::new(name, text, format!("an attribute is {}", Self::ATTRIBUTES.join(", ")))),
        }
    }

    /// What equals what: the same match with host bits and spellings out of the way. A prefix without a length says which family it is of
    /// and nothing of an address, whichever side it stands on.
    pub fn canonical(&self) -> Self {
        let network = |prefix: Option<IpPrefix>| prefix.map(IpPrefix::network);
        let (mut local_ip, mut remote_ip) = (network(self.local_ip), network(self.remote_ip));
        let is_whole = |prefix: Option<IpPrefix>| prefix.is_some_and(|it| it.prefix_len() == 0);
        if is_whole(local_ip) && remote_ip.is_some() {
            local_ip = None;
        }
        if is_whole(remote_ip) && local_ip.is_some() {
            remote_ip = None;
        } else if is_whole(remote_ip) {
            local_ip = remote_ip.take();
        }
        Self { local_ip, remote_ip, ..self.clone() }
    }

    /// Of which kind it is: what it pins, whatever it pins it to.
    pub(crate) fn kind(&self) -> FlowKind {
        let Self { local_ip, remote_ip, .. } = self.canonical();
        let is_v4 = |prefix: IpPrefix| prefix.addr().is_ipv4();
        let pinned = |ports: Option<PortRange>| ports.map(|it| it.single().is_some());
        FlowKind {
            is_v4: local_ip.or(remote_ip).map(is_v4),
            lengths: [local_ip, remote_ip].map(|it| it.map(IpPrefix::prefix_len)),
            ports: [self.local_port, self.remote_port].map(pinned),
            ds_mask: self.dsfield.map(DsField::mask),
            others: [
                self.transport.is_some(),
                self.vlan_id.is_some(),
                self.local_mac.is_some(),
                self.remote_mac.is_some(),
            ],
        }
    }

    /// What it is but for its ports, if both are ranges.
    pub(crate) fn beside_ranges(&self) -> Option<Self> {
        let is_range = |ports: Option<PortRange>| ports.is_some_and(|it| it.single().is_none());
        let are_ranges = is_range(self.local_port) && is_range(self.remote_port);
        are_ranges.then(|| Self { local_port: None, remote_port: None, ..self.canonical() })
    }

    /// Whether it tells connections and datagram sockets of a netstack: by local ports, and at most by addresses and the transport beside
    /// them. The rest tells packets.
    pub const fn tells_sockets(&self) -> bool {
        let Self { local_port, dsfield, vlan_id, local_mac, remote_mac, .. } = self;
        local_port.is_some()
            && dsfield.is_none()
            && vlan_id.is_none()
            && local_mac.is_none()
            && remote_mac.is_none()
    }

    /// Whether nothing is matched, which no flow may.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for FlowMatch {
    /// The attributes as commands spell them, `transport=tcp,local_port=443`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.local_ip.map(|v| format!("local_ip={v}")),
            self.remote_ip.map(|v| format!("remote_ip={v}")),
            self.transport.map(|v| format!("transport={v}")),
            self.local_port.map(|v| format!("local_port={v}")),
            self.remote_port.map(|v| format!("remote_port={v}")),
            self.dsfield.map(|v| format!("dsfield={v}")),
            self.vlan_id.map(|v| format!("vlan_id={v}")),
            self.local_mac.map(|v| format!("local_mac={v}")),
            self.remote_mac.map(|v| format!("remote_mac={v}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

impl FromStr for FlowMatch {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let mut matching = Self::default();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| FieldError::new(part, "", "an attribute is written name=value"))?;
            matching.set(name, value)?;
        }
        Ok(matching)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};

    /// A number, or a text such as `8000-8999`.
    pub(super) fn port_or_range() -> Schema {
        let port = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(65535));
        let range = ObjectBuilder::new().schema_type(Type::String);
        Schema::OneOf(OneOfBuilder::new().item(port).item(range).build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_read_as_commands_spell_them() {
        let m: FlowMatch = "protocol=TCP,local_port=443".parse().unwrap();
        assert_eq!(m.to_string(), "transport=tcp,local_port=443");
        assert_eq!(m.to_string().parse::<FlowMatch>(), Ok(m));
        let m: FlowMatch = "local_ip=10.0.0.7/24,remote_ip=10.1.0.1,dsfield=0x2E:0xfc".parse().unwrap();
        assert_eq!(m.canonical().to_string(), "local_ip=10.0.0.0/24,remote_ip=10.1.0.1/32,dsfield=0x2c:0xfc");
        let text = "transport=sctp,local_port=1-1023,remote_port=9-9,vlan_id=7,local_mac=02:08:20:00:00:01,remote_mac=02:00:00:00:00:02";
        let m: FlowMatch = text.parse().unwrap();
        assert_eq!(m.to_string(), text.replace("9-9", "9"));
    }

    #[test]
    fn what_says_nothing_of_an_address_is_no_difference() {
        let canonical = |text: &str| text.parse::<FlowMatch>().unwrap().canonical().to_string();
        for (text, same) in [
            ("local_ip=0.0.0.0/0", "local_ip=0.0.0.0/0"),
            ("remote_ip=10.0.0.7/0", "local_ip=0.0.0.0/0"),
            ("local_ip=::/0,remote_ip=::/0", "local_ip=::/0"),
            ("local_ip=0.0.0.0/0,remote_ip=10.0.0.0/8", "remote_ip=10.0.0.0/8"),
            ("local_ip=10.0.0.0/8,remote_ip=0.0.0.0/0", "local_ip=10.0.0.0/8"),
            ("remote_ip=::/0,transport=tcp", "local_ip=::/0,transport=tcp"),
        ] {
            assert_eq!(canonical(text), same, "{text}");
        }
    }

    #[test]
    fn a_transport_is_a_word_or_the_number_of_one_without() {
        for (text, shown) in [("ESP", "esp"), ("50", "esp"), ("6", "tcp"), ("47", "47"), ("0", "0")] {
            assert_eq!(Transport::read(text).unwrap().to_string(), shown, "{text}");
        }
        for text in ["256", "-1", "+6", "", "gre"] {
            assert_eq!(Transport::read(text), None, "{text}");
        }
    }

    #[test]
    fn refusals_name_the_attribute() {
        for (text, field) in [
            ("local_port=0", "local_port"),
            ("local_port=65536", "local_port"),
            ("transport=tpc", "transport"),
            ("transport=tcp,protocol=udp", "protocol"),
            ("colour=red", "colour"),
            ("tcp", "tcp"),
            ("dsfield=46", "dsfield"),
            ("dsfield=0x0", "dsfield"),
            ("dsfield=0x1:0x0", "dsfield"),
            ("dsfield=0x+1", "dsfield"),
            ("local_ip=10.0.0", "local_ip"),
            ("local_port=9-8", "local_port"),
            ("local_port=0-8", "local_port"),
            ("vlan_id=0", "vlan_id"),
            ("vlan_id=4095", "vlan_id"),
            ("local_mac=2:8:20", "local_mac"),
            ("transport=256", "transport"),
        ] {
            assert_eq!(text.parse::<FlowMatch>().unwrap_err().field, field, "{text}");
        }
    }
}
