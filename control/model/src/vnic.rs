//! A VNIC: a virtual NIC over a link or etherstub, with exactly one user.

use std::collections::BTreeSet;
use std::net::IpAddr;

use firelane_units::{BitRate, IpPrefix, Mtu, Priority, Protections, VlanId};
use serde::{Deserialize, Deserializer, Serialize};

use crate::fusing::{Fusing, is_same_zone};
use crate::link::{high, is_high};
use crate::polling::{self, Polling};
use crate::value::{self, TextValue};
use crate::{
    ClientId, Cpus, Guard, IfName, Iptun, LinkClass, LinkName, LinkRings, Mac, Memif, NamespaceName,
    NetstackName, Over, Rings, Route, Switch,
};

/// A kernel interface in a network namespace, which is the VNIC's other side.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tap {
    /// The namespace, which Firelane makes if it does not exist; without one, the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceName>,
    /// The interface's name; without one, the VNIC's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<IfName>,
    /// The addresses that Firelane gives the interface.
    #[serde(
        default,
        serialize_with = "value::list::serialize",
        deserialize_with = "station_list",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub addresses: Vec<IpPrefix>,
    /// The routes through the interface that Firelane gives its namespace, each to a router.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub routes: BTreeSet<Route>,
}

/// An address that an interface has: without its length nobody knows which network it is on.
struct StationAddress(IpPrefix);

impl TextValue for StationAddress {
    const ALLOWED: &'static str = "an address with its prefix length, such as 10.0.0.1/24 or fd00::1/64";

    fn read(text: &str) -> Option<Self> {
        IpPrefix::of_interface(text).map(Self)
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

fn station_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpPrefix>, D::Error> {
    let all: Vec<StationAddress> = value::list::deserialize(from)?;
    Ok(all.into_iter().map(|StationAddress(it)| it).collect())
}

/// Who sends and receives on a VNIC.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum VnicUser {
    /// Nobody yet.
    #[default]
    Nobody,
    /// A netstack of Firelane.
    Netstack(NetstackName),
    /// The kernel, through a TAP device.
    Tap(Tap),
    /// Another process, through shared memory.
    Memif(Memif),
}

/// A virtual NIC and its properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "VnicTable", into = "VnicTable")]
pub struct Vnic {
    /// The link or etherstub below it.
    pub over: Over,
    /// Where its Ethernet address comes from.
    pub mac: Mac,
    /// The VLAN it belongs to.
    pub vlan: Option<VlanId>,
    /// The largest packet it carries; without one, as much as what is below it.
    pub mtu: Option<Mtu>,
    /// Its limit, in each direction.
    pub maxbw: Option<BitRate>,
    /// What it is guaranteed of its link's limit, in each direction.
    pub minbw: Option<BitRate>,
    /// Its place when a lane cannot serve everything.
    pub priority: Priority,
    /// Whether its connections may be fused.
    pub fusion: Fusing,
    /// When its device is read, if its user is one.
    pub polling: Polling,
    /// The CPUs of lanes of its own, which serve its device; without any, all lanes do.
    pub cpus: Cpus,
    /// By how many rings of its device its user receives and sends.
    pub rings: LinkRings,
    /// Whether its user sees only what is for the VNIC, even in promiscuous mode.
    pub promisc_filtered: Switch,
    /// Whether commands call it a VLAN (`dladm create-vlan`); everything else is as of a VNIC.
    pub is_vlan: bool,
    /// How its user is kept from saying that it is somebody else.
    pub guard: Guard,
    /// Who sends and receives on it.
    pub user: VnicUser,
}

impl Vnic {
    /// A VNIC over `over` with the default properties and no user.
    pub fn new(over: LinkName) -> Self {
        Self {
            over: Over::Link(over),
            mac: Mac::Auto,
            vlan: None,
            mtu: None,
            maxbw: None,
            minbw: None,
            priority: Priority::High,
            fusion: Fusing::default(),
            polling: Polling::default(),
            cpus: Cpus::NONE,
            rings: LinkRings::UNSAID,
            promisc_filtered: Switch::On,
            is_vlan: false,
            guard: Guard::default(),
            user: VnicUser::Nobody,
        }
    }

    /// A tunnel that nobody uses.
    pub const fn of_tunnel(tunnel: Iptun) -> Self {
        Self {
            over: Over::Tunnel(tunnel),
            mac: Mac::Auto,
            vlan: None,
            mtu: None,
            maxbw: None,
            minbw: None,
            priority: Priority::High,
            fusion: Fusing::SameZone,
            polling: Polling::Auto,
            cpus: Cpus::NONE,
            rings: LinkRings::UNSAID,
            promisc_filtered: Switch::On,
            is_vlan: false,
            guard: Guard { kinds: Protections::NONE, allowed_ips: Vec::new(), allowed_cids: Vec::new() },
            user: VnicUser::Nobody,
        }
    }

    /// What commands call it.
    pub const fn class(&self) -> LinkClass {
        match self.over {
            Over::Tunnel(_) => LinkClass::Iptun,
            Over::Link(_) if self.is_vlan => LinkClass::Vlan,
            Over::Link(_) => LinkClass::Vnic,
        }
    }

    /// The netstack that uses it.
    pub fn netstack(&self) -> Option<&NetstackName> {
        match &self.user {
            VnicUser::Netstack(name) => Some(name),
            _ => None,
        }
    }

    /// The kernel interface that uses it.
    pub fn tap(&self) -> Option<&Tap> {
        match &self.user {
            VnicUser::Tap(tap) => Some(tap),
            _ => None,
        }
    }

    /// The other process that uses it.
    pub fn memif(&self) -> Option<&Memif> {
        match &self.user {
            VnicUser::Memif(memif) => Some(memif),
            _ => None,
        }
    }
}

impl Tap {
    /// Why the kernel would not take a route by the interface, or not as it is meant.
    pub(crate) fn refuses(&self, route: Route) -> Option<&'static str> {
        let Some(gateway) = route.gateway() else {
            return Some("a route of a tap has a gateway");
        };
        if route.source().is_some() || route.congestion_control().is_some() {
            return Some(
                "a route of a tap is the kernel's: it has a destination and a gateway, and nothing else",
            );
        }
        let is_of_link = matches!(gateway, IpAddr::V6(addr) if addr.is_unicast_link_local());
        let is_near = |it: &IpPrefix| it.contains(gateway) && it.addr() != gateway;
        (!is_of_link && !self.addresses.iter().any(is_near)).then_some(
            "a gateway is another station on the network of one of the tap's addresses, or link-local",
        )
    }

    /// The kernel interface's name, for the VNIC called `vnic`. A valid model has one that Linux accepts.
    pub fn ifname<'a>(&'a self, vnic: &'a LinkName) -> &'a str {
        self.ifname.as_ref().map_or(vnic.as_str(), IfName::as_str)
    }
}

/// A VNIC as it stands in the file.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
struct VnicTable {
    /// The link or etherstub below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    over: Option<LinkName>,
    /// The tunnel that it is, in place of something below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iptun: Option<Iptun>,
    /// `auto`, `random` or an address.
    #[serde(default, skip_serializing_if = "is_auto")]
    mac: Mac,
    /// The VLAN it belongs to.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>, minimum = 1, maximum = 4094))]
    vlan: Option<VlanId>,
    /// The largest packet it carries; without one, as much as what is below it.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>, minimum = 576))]
    mtu: Option<Mtu>,
    /// Its limit, in each direction.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "50M"))]
    maxbw: Option<BitRate>,
    /// What it is guaranteed of the limits above it, in each direction.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "10M"))]
    minbw: Option<BitRate>,
    /// Its place when a lane cannot serve everything.
    #[serde(default = "high", with = "value", skip_serializing_if = "is_high")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "high"))]
    priority: Priority,
    /// Whether its connections may be fused.
    #[serde(default, skip_serializing_if = "is_same_zone")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "same-zone"))]
    fusion: Fusing,
    /// When its device is read.
    #[serde(default, skip_serializing_if = "polling::is_auto")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "auto"))]
    polling: Polling,
    /// The CPUs of lanes of its own, which serve its device; without any, all lanes do.
    #[serde(default, skip_serializing_if = "Cpus::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "0,2-3"))]
    cpus: Cpus,
    /// By how many rings of its device its user receives: `sw`, `hw` or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "2"))]
    rxrings: Option<Rings>,
    /// By how many its user sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "hw"))]
    txrings: Option<Rings>,
    /// Whether its user sees only what is for the VNIC, even in promiscuous mode.
    #[serde(default = "on", skip_serializing_if = "is_on")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "on"))]
    promisc_filtered: Switch,
    /// Whether commands call it a VLAN.
    #[serde(default, skip_serializing_if = "is_false")]
    is_vlan: bool,
    /// Its link protection: a list of `mac-nospoof`, `restricted`, `ip-nospoof` and `dhcp-nospoof`.
    #[serde(default, with = "value", skip_serializing_if = "is_unprotected")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "mac-nospoof,ip-nospoof"))]
    protection: Protections,
    /// What `ip-nospoof` allows; if empty, what its network gives it.
    #[serde(default, with = "value::list", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    allowed_ips: Vec<IpPrefix>,
    /// What `dhcp-nospoof` allows beside its own address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allowed_dhcp_cids: Vec<ClientId>,
    /// Its user, if that is a netstack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netstack: Option<NetstackName>,
    /// Its user, if that is the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tap: Option<Tap>,
    /// Its user, if that is another process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memif: Option<Memif>,
}

const fn on() -> Switch {
    Switch::On
}

fn is_on(it: &Switch) -> bool {
    it.is_on()
}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_unprotected(it: &Protections) -> bool {
    it.is_empty()
}

fn is_auto(mac: &Mac) -> bool {
    *mac == Mac::Auto
}

/// The one user that is named, if any is.
fn user_of(
    netstack: Option<NetstackName>,
    tap: Option<Tap>,
    memif: Option<Memif>,
) -> Result<VnicUser, &'static str> {
    match (netstack, tap, memif) {
        (None, None, None) => Ok(VnicUser::Nobody),
        (Some(name), None, None) => Ok(VnicUser::Netstack(name)),
        (None, Some(tap), None) => Ok(VnicUser::Tap(tap)),
        (None, None, Some(memif)) => Ok(VnicUser::Memif(memif)),
        (Some(_), Some(_), None) => Err("netstack and tap: a VNIC has one user, so only one of them"),
        (_, _, Some(_)) => Err("memif beside netstack or tap: a VNIC has one user, so only one of them"),
    }
}

/// What a tunnel cannot have.
fn check_tunnel(
    has_vlan: bool,
    polling: Polling,
    promisc_filtered: Switch,
    user: &VnicUser,
) -> Result<(), &'static str> {
    if has_vlan {
        return Err("vlan: a tunnel has no VLAN of its own");
    }
    if polling != Polling::default() {
        return Err("polling: a tunnel has no device");
    }
    if !promisc_filtered.is_on() {
        return Err("promisc_filtered: a tunnel has no neighbours");
    }
    match user {
        VnicUser::Nobody | VnicUser::Netstack(_) => Ok(()),
        _ => Err("tap or memif: a tunnel's user is a netstack, whose addresses carry it"),
    }
}

impl TryFrom<VnicTable> for Vnic {
    type Error = &'static str;

    fn try_from(table: VnicTable) -> Result<Self, Self::Error> {
        let user = user_of(table.netstack, table.tap, table.memif)?;
        let VnicTable {
            over,
            iptun,
            mac,
            vlan,
            mtu,
            maxbw,
            minbw,
            priority,
            fusion,
            polling,
            cpus,
            rxrings: rx,
            txrings: tx,
            promisc_filtered,
            is_vlan,
            ..
        } = table;
        let rings = LinkRings { rx, tx };
        let over = match (over, iptun) {
            (Some(over), None) => Over::Link(over),
            (None, Some(iptun)) => Over::Tunnel(iptun),
            // The words of a field without which nothing can be read.
            (None, None) => return Err("missing field `over`"),
            (Some(_), Some(_)) => return Err("over and iptun: a VNIC is over a link or is a tunnel"),
        };
        if let Over::Tunnel(_) = over {
            check_tunnel(vlan.is_some() || is_vlan, polling, promisc_filtered, &user)?;
        }
        let guard = Guard {
            kinds: table.protection,
            allowed_ips: table.allowed_ips,
            allowed_cids: table.allowed_dhcp_cids,
        };
        Ok(Self {
            over,
            mac,
            vlan,
            mtu,
            maxbw,
            minbw,
            priority,
            fusion,
            polling,
            cpus,
            rings,
            promisc_filtered,
            is_vlan,
            guard,
            user,
        })
    }
}

impl From<Vnic> for VnicTable {
    fn from(vnic: Vnic) -> Self {
        let Vnic {
            over,
            mac,
            vlan,
            mtu,
            maxbw,
            minbw,
            priority,
            fusion,
            polling,
            cpus,
            rings,
            promisc_filtered,
            is_vlan,
            guard,
            user,
        } = vnic;
        let (over, iptun) = match over {
            Over::Link(over) => (Some(over), None),
            Over::Tunnel(iptun) => (None, Some(iptun)),
        };
        let (netstack, tap, memif) = match user {
            VnicUser::Nobody => (None, None, None),
            VnicUser::Netstack(name) => (Some(name), None, None),
            VnicUser::Tap(tap) => (None, Some(tap), None),
            VnicUser::Memif(memif) => (None, None, Some(memif)),
        };
        let Guard { kinds: protection, allowed_ips, allowed_cids: allowed_dhcp_cids } = guard;
        Self {
            over,
            iptun,
            mac,
            vlan,
            mtu,
            maxbw,
            minbw,
            priority,
            fusion,
            polling,
            cpus,
            rxrings: rings.rx,
            txrings: rings.tx,
            promisc_filtered,
            is_vlan,
            protection,
            allowed_ips,
            allowed_dhcp_cids,
            netstack,
            tap,
            memif,
        }
    }
}

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::{RefOr, schema::Schema};

    impl utoipa::PartialSchema for super::Vnic {
        fn schema() -> RefOr<Schema> {
            super::VnicTable::schema()
        }
    }

    impl utoipa::ToSchema for super::Vnic {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            super::VnicTable::schemas(schemas);
        }
    }
}
