//! The whole configuration as one value, and the questions that need more than one noun.

use std::collections::BTreeMap;

use firelane_units::Mtu;
use serde::{Deserialize, Serialize};

use crate::{
    AddrObjName, Address, Daemon, Etherstub, Flow, FlowName, Link, LinkKind, LinkName, Netstack,
    NetstackName, Over, Service, ServiceName, Vnic, Wire,
};

/// Everything that a host shall have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Settings of the daemon.
    #[serde(default, skip_serializing_if = "Daemon::is_default")]
    pub daemon: Daemon,
    /// The links that lead out.
    #[serde(default, rename = "link", skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<LinkName, Link>,
    /// The virtual switches.
    #[serde(default, rename = "etherstub", skip_serializing_if = "BTreeMap::is_empty")]
    pub etherstubs: BTreeMap<LinkName, Etherstub>,
    /// The wires between links.
    #[serde(default, rename = "wire", skip_serializing_if = "BTreeMap::is_empty")]
    pub wires: BTreeMap<LinkName, Wire>,
    /// The virtual NICs.
    #[serde(default, rename = "vnic", skip_serializing_if = "BTreeMap::is_empty")]
    pub vnics: BTreeMap<LinkName, Vnic>,
    /// The IP instances.
    #[serde(default, rename = "netstack", skip_serializing_if = "BTreeMap::is_empty")]
    pub netstacks: BTreeMap<NetstackName, Netstack>,
    /// The classes of traffic.
    #[serde(default, rename = "flow", skip_serializing_if = "BTreeMap::is_empty")]
    pub flows: BTreeMap<FlowName, Flow>,
    /// The services that the daemon runs.
    #[serde(default, rename = "service", skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<ServiceName, Service>,
}

/// What kind of link a name stands for (the CLASS column).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LinkClass {
    /// A link that leads out.
    Phys,
    /// A virtual switch.
    Etherstub,
    /// A virtual NIC.
    Vnic,
    /// A virtual NIC that stands for a VLAN of what is below it.
    Vlan,
    /// An IP tunnel.
    Iptun,
}

impl LinkClass {
    /// The word used in commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Phys => "phys",
            Self::Etherstub => "etherstub",
            Self::Vnic => "vnic",
            Self::Vlan => "vlan",
            Self::Iptun => "iptun",
        }
    }
}

impl Model {
    /// What `name` stands for.
    pub fn class_of(&self, name: &str) -> Option<LinkClass> {
        if self.links.contains_key(name) {
            Some(LinkClass::Phys)
        } else if self.etherstubs.contains_key(name) {
            Some(LinkClass::Etherstub)
        } else {
            self.vnics.get(name).map(Vnic::class)
        }
    }

    /// Whether there is no object in it, whatever it says of the daemon.
    pub fn has_nothing(&self) -> bool {
        let Self { daemon: _, links, etherstubs, wires, vnics, netstacks, flows, services } = self;
        let have_lower = !(links.is_empty() && etherstubs.is_empty() && wires.is_empty() && vnics.is_empty());
        !have_lower && netstacks.is_empty() && flows.is_empty() && services.is_empty()
    }

    /// Whether `name` may have flows: a VNIC, or a link with a wire.
    pub fn carries_flows(&self, name: &str) -> bool {
        let leads_out = self.links.get(name).is_some_and(|link| link.kind != LinkKind::Memory);
        leads_out || self.vnics.contains_key(name)
    }

    /// Every link's name and class: what leads out first, then switches, then VNICs.
    pub fn link_names(&self) -> impl Iterator<Item = (&LinkName, LinkClass)> {
        let links = self.links.keys().map(|name| (name, LinkClass::Phys));
        let stubs = self.etherstubs.keys().map(|name| (name, LinkClass::Etherstub));
        links.chain(stubs).chain(self.vnics.iter().map(|(name, vnic)| (name, vnic.class())))
    }

    /// The MTU of `name`: its own, or that of what is below it.
    pub fn mtu_of(&self, name: &str) -> Option<Mtu> {
        if let Some(vnic) = self.vnics.get(name) {
            return vnic.mtu.or_else(|| self.mtu_below(vnic));
        }
        self.lower_mtu(name)
    }

    /// The largest packet that what is below a VNIC carries; of a tunnel what it is without another one.
    pub fn mtu_below(&self, vnic: &Vnic) -> Option<Mtu> {
        match &vnic.over {
            Over::Link(name) => self.lower_mtu(name.as_str()),
            Over::Tunnel(tunnel) => Some(tunnel.default_mtu()),
        }
    }

    /// The MTU of the link or etherstub `name`.
    pub fn lower_mtu(&self, name: &str) -> Option<Mtu> {
        let link = self.links.get(name).map(|link| link.mtu);
        link.or_else(|| self.etherstubs.get(name).map(|stub| stub.mtu))
    }

    /// The VNICs over `name`.
    pub fn vnics_over<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a LinkName, &'a Vnic)> {
        self.vnics.iter().filter(move |(_, vnic)| vnic.over.is(name))
    }

    /// A wire of which `name` is an end.
    pub fn wire_of(&self, name: &str) -> Option<(&LinkName, &Wire)> {
        self.wires.iter().find(|(_, wire)| wire.ends.iter().any(|end| end.as_str() == name))
    }

    /// The flows on `link`.
    pub fn flows_on<'a>(&'a self, link: &'a str) -> impl Iterator<Item = (&'a FlowName, &'a Flow)> {
        self.flows.iter().filter(move |(_, flow)| flow.link.as_str() == link)
    }

    /// Every address object with its netstack.
    pub fn addresses(&self) -> impl Iterator<Item = (&NetstackName, &AddrObjName, Address)> {
        self.netstacks.iter().flat_map(|(netstack, it)| {
            it.addresses.iter().map(move |(name, address)| (netstack, name, *address))
        })
    }
}
