//! Copies for every port of a VLAN: broadcast and multicast.
//!
//! The last receiver gets the frame itself, the others get copies. If too few buffers are free, the receivers that get no
//! copy are counted; the frame itself is always delivered.

use firelane_frame::{Frame, Pools};
use firelane_units::{DropCounters, DropReason, MacAddr, SwitchPortId, VlanId};

use crate::port::Port;
use crate::switch::{L2, Switch};

/// The ports of each VLAN, kept so that flooding looks at no others. The last ones are those of a VLAN without stations: the ports that
/// carry all of them.
#[derive(Clone)]
pub(crate) struct Vlans(Vec<(Option<VlanId>, Vec<SwitchPortId>)>);

impl Default for Vlans {
    fn default() -> Self {
        Self(vec![(None, vec![])])
    }
}

/// What a flood became.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flooded {
    /// Frames delivered: the frame itself and its copies.
    pub delivered: usize,
    /// Receivers without a copy; counted as [`DropReason::NoBuffer`].
    pub missed: usize,
}

impl Vlans {
    /// Sorts the ports by VLAN. Uplink and trunks carry all of them.
    pub(crate) fn rebuild(&mut self, ports: &[Option<Port>]) {
        let stations = ports.iter().flatten().filter(|port| !port.config.role.is_tagged());
        let mut vlans: Vec<_> = stations.map(|port| port.config.own_vlan()).collect();
        vlans.sort_unstable();
        vlans.dedup();
        let those = |belongs: &dyn Fn(&Port) -> bool| {
            let places = (0u32..).map(SwitchPortId).zip(ports);
            places.filter(|(_, port)| port.as_ref().is_some_and(belongs)).map(|(id, _)| id).collect()
        };
        self.0 = vlans.into_iter().map(|vlan| (vlan, those(&|port| port.carries(vlan)))).collect();
        self.0.push((None, those(&|port| port.config.role.is_tagged())));
    }

    /// The place of a VLAN's ports.
    fn of(&self, vlan: Option<VlanId>) -> usize {
        let last = self.0.len() - 1;
        self.0[..last].binary_search_by_key(&vlan, |(v, _)| *v).unwrap_or(last)
    }
}

impl Switch {
    /// Delivers a frame that [`forward`](Self::forward) sent to all: each receiver's goes to `deliver`, ready as
    /// after [`deliver`](Self::deliver). A frame that nobody listens to is dropped as
    /// [`DropReason::UnknownDestination`].
    pub fn flood(
        &mut self,
        ingress: SwitchPortId,
        l2: &L2,
        frame: Frame,
        pools: &mut Pools,
        drops: &mut DropCounters,
        mut deliver: impl FnMut(SwitchPortId, Frame),
    ) -> Flooded {
        let mut flooded = Flooded::default();
        let Some(Some(port)) = self.ports.get(ingress.index()) else {
            drops.count(DropReason::NoPort);
            pools.put(frame);
            return flooded;
        };
        let vlan = self.vlans.of(port.vlan_of(l2.vlan));
        let has_members = self.has_members(vlan, l2.dst);
        let mut last = None;
        for nth in 0..self.vlans.0[vlan].1.len() {
            let member = self.vlans.0[vlan].1[nth];
            if member == ingress || !self.listens(member, l2.dst, has_members) {
                continue;
            }
            // One receiver late, so that the last one is known to be the last.
            let Some(receiver) = last.replace(member) else { continue };
            if let Some(copy) = self.copy_for(ingress, receiver, l2, &frame, pools) {
                flooded.delivered += 1;
                deliver(receiver, copy);
            } else {
                flooded.missed += 1;
                drops.count(DropReason::NoBuffer);
            }
        }
        let mut frame = frame;
        match last {
            Some(receiver) if self.deliver(ingress, receiver, l2, &mut frame) => {
                flooded.delivered += 1;
                deliver(receiver, frame);
            }
            _ => {
                drops.count(DropReason::UnknownDestination);
                pools.put(frame);
            }
        }
        flooded
    }

    /// Whether a group's frames come to a port, or those for a station that nobody knows.
    pub(crate) fn listens(&self, member: SwitchPortId, group: MacAddr, has_members: bool) -> bool {
        if !group.is_multicast() {
            return self.exits.has(member);
        }
        matches!(self.ports.get(member.index()), Some(Some(port)) if port.wants(group, has_members))
    }

    /// Whether any port of the VLAN at that place is known to listen to a group.
    fn has_members(&self, vlan: usize, group: MacAddr) -> bool {
        let ports = self.vlans.0[vlan].1.iter().filter_map(|id| self.ports.get(id.index())?.as_ref());
        !group.is_broadcast() && ports.into_iter().any(|port| port.is_member(group))
    }

    /// The same of a VLAN.
    pub(crate) fn has_members_in(&self, vlan: Option<VlanId>, group: MacAddr) -> bool {
        self.has_members(self.vlans.of(vlan), group)
    }

    pub(crate) fn copy_for(
        &mut self,
        ingress: SwitchPortId,
        receiver: SwitchPortId,
        l2: &L2,
        frame: &Frame,
        pools: &mut Pools,
    ) -> Option<Frame> {
        if let Some(mut copy) = pools.spare_copy(frame)
            && self.deliver(ingress, receiver, l2, &mut copy)
        {
            return Some(copy);
        }
        if let Some(Some(port)) = self.ports.get_mut(receiver.index()) {
            port.counters.ierrors += 1;
        }
        None
    }
}
