//! Ports that look on: they get what others of their VLAN send each other, too.
//!
//! What a user in promiscuous mode sees of a VNIC whose `promisc-filtered` is off. The lane calls [`Switch::show`] once
//! a frame's way is decided; who gets it anyway gets no other copy, and no frame leaves its VLAN this way.

use firelane_frame::{Frame, Pools};
use firelane_units::{DropCounters, DropReason, SwitchPortId, VlanId};

use crate::flood::Flooded;
use crate::switch::{Destination, L2, Switch};

impl Switch {
    /// Lets a station's port look on, or no more. `false` if there is no such port.
    pub fn set_onlooker(&mut self, id: SwitchPortId, looks_on: bool) -> bool {
        if self.config(id).is_none_or(|config| config.role.is_tagged()) {
            return false;
        }
        self.onlookers.retain(|&port| port != id);
        if looks_on {
            self.onlookers.push(id);
            self.onlookers.sort_unstable();
        }
        true
    }

    /// Whether any port looks on.
    #[inline]
    pub fn has_onlookers(&self) -> bool {
        !self.onlookers.is_empty()
    }

    /// Copies of a frame, whose way [`forward`](Self::forward) has decided, for the ports that look on and that `wants`
    /// names; each goes to `deliver`, ready as after [`deliver`](Self::deliver).
    pub fn show(
        &mut self,
        (ingress, l2, decided): (SwitchPortId, &L2, Destination),
        frame: &Frame,
        pools: &mut Pools,
        drops: &mut DropCounters,
        wants: impl Fn(SwitchPortId) -> bool,
        mut deliver: impl FnMut(SwitchPortId, Frame),
    ) -> Flooded {
        let mut shown = Flooded::default();
        let Some(Some(port)) = self.ports.get(ingress.index()) else { return shown };
        let vlan = port.vlan_of(l2.vlan);
        for nth in 0..self.onlookers.len() {
            let onlooker = self.onlookers[nth];
            if onlooker == ingress || !self.is_shown(onlooker, vlan, l2, decided) || !wants(onlooker) {
                continue;
            }
            if let Some(copy) = self.copy_for(ingress, onlooker, l2, frame, pools) {
                shown.delivered += 1;
                deliver(onlooker, copy);
            } else {
                shown.missed += 1;
                drops.count(DropReason::NoBuffer);
            }
        }
        shown
    }

    /// Whether a frame of a VLAN is shown to a port that looks on: not one that may not pass at all, nor one that it gets.
    fn is_shown(&self, onlooker: SwitchPortId, vlan: Option<VlanId>, l2: &L2, decided: Destination) -> bool {
        let Some(Some(port)) = self.ports.get(onlooker.index()) else { return false };
        let is_for_others = match decided {
            Destination::Port(to) => to != onlooker,
            Destination::Flood => !self.listens(onlooker, l2.dst, self.has_members_in(vlan, l2.dst)),
            Destination::Drop(reason) => {
                matches!(reason, DropReason::UnknownDestination | DropReason::SamePort)
            }
        };
        port.config.own_vlan() == vlan && is_for_others
    }
}
