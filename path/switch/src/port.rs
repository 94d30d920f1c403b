//! A switch port: who is attached, in which VLAN, and which groups it listens to.

use firelane_units::{MacAddr, SwitchPortId, VlanId};

use crate::counters::PortCounters;
use crate::heard::Heard;

/// How a port is attached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// What it leads to.
    pub role: Role,
    /// The addresses of the stations behind it. An uplink may have some too: those of the device itself.
    pub addresses: Vec<MacAddr>,
    /// Which multicast groups it gets.
    pub groups: GroupFilter,
}

impl PortConfig {
    /// The VLAN of the port's own stations.
    pub(crate) fn own_vlan(&self) -> Option<VlanId> {
        match self.role {
            Role::Station { vlan } => vlan,
            Role::Uplink | Role::Trunk => None,
        }
    }
}

/// What a port leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A VNIC's user. Its frames carry no tag; they are all in one VLAN, or in none.
    Station {
        /// The VLAN.
        vlan: Option<VlanId>,
    },
    /// The rest of the world: the lower link, where frames of a VLAN are tagged and others are not. A switch has one
    /// at most; an etherstub has none.
    Uplink,
    /// Another switch, by a wire. Tags are as at the uplink.
    Trunk,
}

impl Role {
    /// Whether its frames carry the tags of their VLANs, and any VLAN's come here.
    #[inline]
    pub(crate) fn is_tagged(self) -> bool {
        match self {
            Self::Station { .. } => false,
            Self::Uplink | Self::Trunk => true,
        }
    }
}

/// Which multicast groups a port gets. Broadcast is delivered to whoever is there, and so are the groups in which a station is asked for by
/// its IPv6 address (RFC 4291 §2.7.1): who tests an address for duplicates is asked before he may have it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum GroupFilter {
    /// What its user says in reports, once he says anything; until then every group.
    #[default]
    All,
    /// These groups, sorted.
    Only(Vec<MacAddr>),
    /// None, and no broadcast either: it has no user.
    Nothing,
}

impl GroupFilter {
    /// A filter for these groups.
    pub fn only(mut groups: Vec<MacAddr>) -> Self {
        groups.sort_unstable();
        Self::Only(groups)
    }

    #[inline]
    pub(crate) fn wants(&self, group: MacAddr) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::Only(groups) => {
                group.is_broadcast() || is_solicited_node(group) || groups.binary_search(&group).is_ok()
            }
        }
    }
}

pub(crate) fn is_solicited_node(group: MacAddr) -> bool {
    group.0.starts_with(&[0x33, 0x33, 0xff])
}

/// Why a port could not be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortError {
    /// The identifier is in use.
    Exists,
    /// A station needs an address, and it must be one station's.
    NotUnicast,
    /// Another port of the VLAN has the address.
    AddressTaken(SwitchPortId),
    /// The switch has an uplink already.
    SecondUplink(SwitchPortId),
}

#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) config: PortConfig,
    pub(crate) counters: PortCounters,
    pub(crate) heard: Heard,
}

impl Port {
    /// Whether a group's frames come here; `has_members` says whether any port is known to listen to it.
    pub(crate) fn wants(&self, group: MacAddr, has_members: bool) -> bool {
        match &self.config.groups {
            GroupFilter::All => self.heard.wants(group, has_members),
            only => only.wants(group),
        }
    }

    /// Whether it is known to listen to a group.
    pub(crate) fn is_member(&self, group: MacAddr) -> bool {
        match &self.config.groups {
            GroupFilter::All => self.heard.is_member(group),
            GroupFilter::Only(groups) => groups.binary_search(&group).is_ok(),
            GroupFilter::Nothing => false,
        }
    }

    /// Whether frames of a VLAN may leave here.
    pub(crate) fn carries(&self, vlan: Option<VlanId>) -> bool {
        match self.config.role {
            Role::Station { vlan: own } => own == vlan,
            Role::Uplink | Role::Trunk => true,
        }
    }

    /// The VLAN of a frame that came from here with this tag.
    #[inline]
    pub(crate) fn vlan_of(&self, tag: Option<VlanId>) -> Option<VlanId> {
        match self.config.role {
            Role::Station { vlan } => vlan,
            Role::Uplink | Role::Trunk => tag,
        }
    }
}
