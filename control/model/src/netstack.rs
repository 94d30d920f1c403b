//! A netstack: one IP instance with its addresses, routes, packet filter and tunables.
//!
//! Its interfaces are the VNICs that name it as their user; an address object's first half is the VNIC.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    AddrObjName, Address, Cpus, Filter, Fpm, Interface, IpfRule, IpnatRule, LinkName, NatLimits, Pool,
    PoolNumber, Programs, Route, Tunables,
};

/// One IP instance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Netstack {
    /// The CPUs of lanes of its own, in which its connections are; without any they are in the daemon's lanes.
    #[serde(default, skip_serializing_if = "Cpus::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub cpus: Cpus,
    /// The addresses, by address object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<AddrObjName, Address>,
    /// What is said of its interfaces, by their VNICs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<LinkName, Interface>,
    /// The routes beyond those that the addresses imply.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub routes: BTreeSet<Route>,
    /// The routing daemon that gives it more of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<Fpm>,
    /// Who may run programs on it, and how much each may have.
    #[serde(default, skip_serializing_if = "Programs::is_default")]
    pub programs: Programs,
    /// The rules of its packet filter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<IpfRule>,
    /// The pools of networks that its rules name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Vec<String>>))]
    pub pools: BTreeMap<PoolNumber, Pool>,
    /// The rules by which its addresses are translated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nat: Vec<IpnatRule>,
    /// How much these may have made, and how long it lasts.
    #[serde(default, skip_serializing_if = "NatLimits::is_default")]
    pub nat_limits: NatLimits,
    /// The protocol properties that are set.
    #[serde(default, skip_serializing_if = "Tunables::is_default")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, BTreeMap<String, Object>>))]
    pub tunables: Tunables,
}

impl Netstack {
    /// Its route that is the same way as `route`, whatever it says about it.
    pub fn same_way(&self, route: Route) -> Option<Route> {
        // They stand beside each other: what a route says about its way is the last that it is sorted by.
        let first = self.routes.range(route.with_congestion_control(None)..).next();
        first.copied().filter(|it| it.is_same_way(route))
    }

    /// Its packet filter, with its rules of translation.
    pub fn packet_filter(&self) -> Filter {
        let (rules, pools, nat) = (self.filter.clone(), self.pools.clone(), self.nat.clone());
        Filter { rules, pools, nat, nat_limits: self.nat_limits }
    }

    /// Gives it another packet filter.
    pub fn set_packet_filter(&mut self, filter: Filter) {
        let Filter { rules, pools, nat, nat_limits } = filter;
        (self.filter, self.pools, self.nat, self.nat_limits) = (rules, pools, nat, nat_limits);
    }
}
