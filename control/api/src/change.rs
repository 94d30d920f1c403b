//! Changes as values: one for each command that changes something, with the body that carries it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use firelane_model::{
    AddrObjName, Address, Etherstub, Flow, FlowName, LinkName, Mac, NetstackName, Vnic, Wire, WireSide,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AccountingChange, FilterChange, NatChange, PoolChange, RoutesChange};

/// One change of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Makes a virtual switch.
    CreateEtherstub(LinkName, Etherstub),
    /// Removes a link whose device is gone.
    DeletePhys(LinkName),
    /// Removes a virtual switch.
    DeleteEtherstub(LinkName),
    /// Makes a wire between two virtual switches.
    CreateWire(LinkName, Wire),
    /// Sets or resets conditions of one direction of a wire, or of both.
    ModifyWire(LinkName, Option<WireSide>, Vec<PropChange>),
    /// Removes a wire.
    DeleteWire(LinkName),
    /// Makes a VNIC.
    CreateVnic(LinkName, Vnic),
    /// Makes a VNIC over something else, or with another address or VLAN.
    ModifyVnic(LinkName, VnicChange),
    /// Removes a VNIC.
    DeleteVnic(LinkName),
    /// Makes a tunnel.
    CreateIptun(LinkName, Vnic),
    /// Leads a tunnel elsewhere.
    ModifyIptun(LinkName, IptunChange),
    /// Removes a tunnel.
    DeleteIptun(LinkName),
    /// Gives a link of any class another name.
    RenameLink(LinkName, LinkName),
    /// Sets or resets properties of a link, etherstub or VNIC.
    SetLinkProps(LinkName, Vec<PropChange>),
    /// Adds a flow.
    AddFlow(FlowName, Flow),
    /// Removes a flow.
    RemoveFlow(FlowName),
    /// Removes all flows of a link.
    RemoveFlowsOf(LinkName),
    /// Sets or resets properties of a flow.
    SetFlowProps(FlowName, Vec<PropChange>),
    /// Gives a VNIC to a netstack, which is made if it does not exist.
    CreateIf(LinkName, NetstackName),
    /// Takes a VNIC from its netstack, with its addresses.
    DeleteIf(LinkName),
    /// Sets or resets protocol properties of a netstack, each named as `tcp.send_buf`.
    SetNetstackProps(NetstackName, Vec<PropChange>),
    /// Changes the operator's routes of a netstack.
    ChangeRoutes(NetstackName, RoutesChange),
    /// Changes the rules of a netstack's packet filter.
    ChangeFilter(NetstackName, FilterChange),
    /// Changes the rules of a netstack's address translation.
    ChangeNat(NetstackName, NatChange),
    /// Sets or resets limits of a netstack's address translation.
    SetNatLimits(NetstackName, Vec<PropChange>),
    /// Changes the pools that the rules of a netstack's packet filter name.
    ChangePools(NetstackName, PoolChange),
    /// Adds an address; its interface is made as by `CreateIf` if it does not exist.
    CreateAddr(AddrObjName, Address),
    /// Removes an address.
    DeleteAddr(AddrObjName),
    /// Changes accounting to a file.
    SetAccounting(AccountingChange),
    /// Takes an interface with its addresses from what is kept into what is in force.
    EnableIf(LinkName),
    /// Takes an interface out of what is in force.
    DisableIf(LinkName),
    /// Takes an address from what is kept into what is in force.
    EnableAddr(AddrObjName),
    /// Takes an address out of what is in force.
    DisableAddr(AddrObjName),
    /// Marks an address up (true) or down.
    MarkAddr(AddrObjName, bool),
    /// Sets or resets properties of an interface, each named as `ipv4.forwarding`.
    SetIfProps(LinkName, Vec<PropChange>),
    /// Sets or resets properties of an address object.
    SetAddrProps(AddrObjName, Vec<PropChange>),
}

/// What of a VNIC changes; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VnicChange {
    /// The link or etherstub below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<LinkName>,
    /// Where its Ethernet address comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mac: Option<Mac>,
    /// Its VLAN; 0 is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

/// What of a tunnel changes; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IptunChange {
    /// This end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub local: Option<IpAddr>,
    /// The other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote: Option<IpAddr>,
}

/// Body: makes a tunnel.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateIptun {
    /// Its name.
    pub name: LinkName,
    /// Its `iptun`, and the properties of links.
    pub vnic: Vnic,
    /// Whether it is gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: leads a tunnel elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModifyIptun {
    /// What changes.
    pub change: IptunChange,
    /// Whether it is as before after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: changes a VNIC.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModifyVnic {
    /// What changes.
    pub change: VnicChange,
    /// Whether it is as before after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: gives a link another name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameLink {
    /// The new name.
    pub name: LinkName,
}

/// A change with its persistence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeRequest {
    /// Whether the change is gone after the next start (`-t`).
    pub temporary: bool,
    /// What changes.
    pub change: Change,
}

impl ChangeRequest {
    /// The same where times begin now, in seconds since 1970.
    #[must_use]
    pub fn at(mut self, now: u64) -> Self {
        if let Change::ChangePools(_, change) = &mut self.change {
            change.now = now;
        }
        self
    }
}

/// A property and its new value; without one it is reset to its default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PropChange {
    /// The property's name; a `+` or `-` behind it adds the value to those that it has, or takes it from them.
    pub name: String,
    /// The value as commands spell it.
    pub value: Option<String>,
}

/// The netstack that `ipadm` means unless told otherwise.
pub(crate) const DEFAULT_NETSTACK: &str = "default";

pub(crate) fn default_netstack() -> NetstackName {
    DEFAULT_NETSTACK.parse().expect("a plain word is a netstack's name")
}

/// Body: makes a virtual switch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEtherstub {
    /// Its name.
    pub name: LinkName,
    /// Its properties.
    #[serde(default)]
    pub etherstub: Etherstub,
    /// Whether it is gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: makes a VNIC.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVnic {
    /// Its name.
    pub name: LinkName,
    /// Its properties.
    pub vnic: Vnic,
    /// Whether it is gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: adds a flow.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddFlow {
    /// Its name.
    pub name: FlowName,
    /// What it matches, and its properties.
    pub flow: Flow,
    /// Whether it is gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: sets properties, and resets those whose value is null.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetProps {
    /// The properties' new values as commands spell them (`"maxbw": "50M"`); null resets. A `+` or `-` behind the name of one
    /// that has several values adds to them, or takes from them.
    pub props: BTreeMap<String, Option<String>>,
    /// Whether the values are gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

impl SetProps {
    pub(crate) fn changes(self) -> Vec<PropChange> {
        self.props.into_iter().map(|(name, value)| PropChange { name, value }).collect()
    }
}

/// Body: gives a VNIC to a netstack.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateIf {
    /// The VNIC's name.
    pub name: LinkName,
    /// The netstack, which is made if it does not exist; `default` if not given.
    #[serde(default = "default_netstack")]
    pub netstack: NetstackName,
    /// Whether it is gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: adds an address.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAddr {
    /// The address object's name.
    pub name: AddrObjName,
    /// The address with its prefix length.
    pub address: Address,
    /// Whether it is gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}
