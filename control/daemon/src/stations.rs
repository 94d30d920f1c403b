//! Whose frames an interface gives us that the kernel keeps as well: its VNICs', as they come and go.
//!
//! Called by `works.rs` after each change of a VNIC, and by `interfaces.rs` where a link gets another interface. Wires are refused
//! there: who is behind one has an address that no VNIC has.

use std::collections::BTreeSet;

use firelane_api::{ApiError, Status};
use firelane_model::{LinkKind, LinkName, Model, Wire};
use firelane_units::{LinkId, MacAddr};

use crate::nic::{self, Attached};
use crate::works::{Done, Works};

impl Works {
    /// The stations of VNICs over a link.
    pub(crate) fn stations(&self, over: LinkId) -> BTreeSet<MacAddr> {
        self.vnics.values().filter(|vnic| vnic.over == Some(over)).map(|vnic| vnic.mac).collect()
    }

    /// Claims them where the kernel keeps the interface below as well.
    pub(crate) fn claim(&mut self, over: LinkId) -> Done {
        let mut its = self.links.iter().filter(|(_, it)| it.id == over);
        let shared = its.find(|(_, it)| it.nic.as_ref().is_some_and(Attached::is_shared));
        let Some(name) = shared.map(|(name, _)| name.clone()) else { return Ok(()) };
        let stations = self.stations(over);
        let nic = self.links.get_mut(&name).and_then(|it| it.nic.as_mut());
        nic.map_or(Ok(()), |nic| nic.claim(&stations))
    }

    /// Whether a wire of this model may be: behind no interface that the kernel keeps as well. Links `anew` do not have theirs yet.
    pub(crate) fn may_be_wired(&self, wire: &Wire, model: &Model, anew: &BTreeSet<LinkName>) -> Done {
        for end in &wire.ends {
            let link = model.switch_of(end);
            let Some(LinkKind::Nic(nic)) = model.links.get(link).map(|it| &it.kind) else { continue };
            let stays = self.links.get(link).filter(|_| !anew.contains(link));
            let attached = stays.and_then(|it| it.nic.as_ref());
            if attached.map_or_else(|| nic::is_shared(nic), Attached::is_shared) {
                let name = &nic.ifname;
                let allowed = format!(
                    "the kernel keeps {name} as well, and what is behind a wire needs every frame: shared = false makes it {link}'s alone"
                );
                return Err(ApiError::new(Status::NotSupported, "ends", end, allowed));
            }
        }
        Ok(())
    }
}
