//! VNICs: made, changed where they are, and deleted.
//!
//! Called by `works.rs` for each step that is about one.

use std::collections::{BTreeMap, BTreeSet};

use firelane::{VnicConfig, VnicUser};
use firelane_api::{ApiError, Status};
use firelane_model::{Interface, LinkName, Mac, Model, Over, Vnic};
use firelane_units::LinkId;

use super::links::NO_CPUS;
use super::{Done, Properties, Upper, Works};
use crate::kernel::Wanted;
use crate::refusal::{refused, refused_to};
use crate::{memif, nic, settings};

/// The VNICs over each link: who asks this of all links would look at each VNIC for each of them.
#[derive(Debug, Default)]
pub(crate) struct Above(BTreeMap<LinkId, BTreeSet<LinkId>>);

impl Above {
    /// Those over `link`.
    pub(crate) fn of(&self, link: LinkId) -> impl Iterator<Item = LinkId> {
        self.0.get(&link).into_iter().flatten().copied()
    }

    fn insert(&mut self, link: LinkId, vnic: LinkId) {
        self.0.entry(link).or_default().insert(vnic);
    }

    fn remove(&mut self, link: LinkId, vnic: LinkId) {
        let Some(vnics) = self.0.get_mut(&link) else { return };
        vnics.remove(&vnic);
        if vnics.is_empty() {
            self.0.remove(&link);
        }
    }
}

/// VNICs.
impl Works {
    pub(super) fn create_vnic(&mut self, name: &LinkName, vnic: &Vnic, present: &Model) -> Done {
        if let Over::Tunnel(tunnel) = &vnic.over {
            return self.create_tunnel(name, vnic, tunnel);
        }
        let absent = || ApiError::new(Status::LinkInvalid, "over", &vnic.over, "");
        let over = vnic.over.link().and_then(|over| self.links.get(over)).ok_or_else(absent)?.id;
        let mtu = vnic.mtu.or_else(|| present.mtu_below(vnic)).ok_or_else(absent)?;
        let mac = match vnic.mac {
            Mac::Factory(slot) => nic::factory_mac(name, vnic, slot, present)?,
            wanted => self.macs.choose(name, wanted, self.is_taken()),
        };
        let (mut device, mut status) = (None, None);
        let user = match &vnic.user {
            firelane_model::VnicUser::Nobody => VnicUser::Nobody,
            firelane_model::VnicUser::Netstack(netstack) => VnicUser::Netstack(self.netstack(netstack)?),
            firelane_model::VnicUser::Tap(tap) => {
                let rings = vnic.rings.asked();
                let (opened, queues) = self.kernel.open(&Wanted { link: name, tap, mac, mtu, rings })?;
                device = Some(opened);
                VnicUser::Device(queues)
            }
            firelane_model::VnicUser::Memif(memif) => {
                let (queues, of) = memif::open(name, memif, mtu)?;
                status = Some(of);
                VnicUser::Device(queues)
            }
        };
        let config = VnicConfig {
            vlan: vnic.vlan,
            maxbw: vnic.maxbw,
            priority: vnic.priority,
            protection: settings::protection(&vnic.guard),
            ..VnicConfig::new(mac)
        };
        match self.engine.add_vnic(over, &config, user) {
            Ok(id) => {
                self.vnics.insert(name.clone(), Upper { id, mac, device, memif: status, over: Some(over) });
                self.above.insert(over, id);
                let begins =
                    Properties { maxbw: vnic.maxbw, priority: vnic.priority, ..Properties::UNLIMITED };
                let claimed = self.claim(over);
                let limited = claimed
                    .and_then(|()| self.wanted(vnic))
                    .and_then(|wanted| self.limit(id, begins, wanted));
                let made = limited.and_then(|()| match (vnic.mtu, vnic.netstack()) {
                    (Some(_), Some(_)) => self.set_routing(id, &Interface::default(), vnic.mtu),
                    _ => Ok(()),
                });
                made.inspect_err(|_| drop(self.delete_vnic(name)))
            }
            Err(error) => {
                device.iter().for_each(|device| self.kernel.close(device));
                Err(refused(error))
            }
        }
    }

    /// What a VNIC shall have of the engine. Lanes are its user's, so they are not made before it has one; a CPU that there is
    /// not is refused at once.
    fn wanted<'a>(&self, vnic: &'a Vnic) -> Result<Properties<'a>, ApiError> {
        let wanted = Properties::from(vnic);
        if vnic.user != firelane_model::VnicUser::Nobody {
            return Ok(wanted);
        }
        let cpus: Vec<usize> = wanted.cpus.numbers().collect();
        self.engine.check_cpus(&cpus).map_err(|error| refused_to(error, wanted))?;
        Ok(Properties { cpus: &NO_CPUS, ..wanted })
    }

    pub(super) fn delete_vnic(&mut self, name: &LinkName) -> Done {
        let vnic = self.vnics.get(name).ok_or(Status::LinkInvalid)?;
        let (id, over) = (vnic.id, vnic.over);
        match over {
            None => self.engine.remove_tunnel(id),
            Some(_) => self.engine.remove_vnic(id),
        }
        .map_err(refused)?;
        over.iter().for_each(|over| self.above.remove(*over, id));
        if let Some(device) = self.vnics.remove(name).and_then(|it| it.device) {
            self.kernel.close(&device);
        }
        over.map_or(Ok(()), |over| self.claim(over))
    }

    /// Changes a VNIC where it is; on an error it is as before.
    pub(super) fn set_vnic(&self, name: &LinkName, from: &Vnic, to: &Vnic, present: &Model) -> Done {
        let vnic = self.vnics.get(name).ok_or(Status::LinkInvalid)?;
        let set = self.set_in_engine((name, vnic), from, to, present);
        set.and_then(|()| self.set_in_kernel(vnic, from, to)).inspect_err(|_| {
            // Nobody is told of what was done before the error.
            let _ = self.set_in_engine((name, vnic), to, from, present);
        })
    }

    fn set_in_engine(
        &self,
        (name, vnic): (&LinkName, &Upper),
        from: &Vnic,
        to: &Vnic,
        present: &Model,
    ) -> Done {
        self.limit(vnic.id, self.wanted(from)?, self.wanted(to)?)?;
        if from.over != to.over {
            self.set_tunnel(vnic.id, to)?;
        }
        if from.guard != to.guard {
            self.engine.set_protection(vnic.id, &settings::protection(&to.guard)).map_err(refused)?;
        }
        if let Some(netstack) = to.netstack().filter(|_| from.mtu != to.mtu) {
            let said = present.netstacks.get(netstack).and_then(|it| it.interfaces.get(name));
            self.set_routing(vnic.id, &said.cloned().unwrap_or_default(), to.mtu)?;
        }
        Ok(())
    }

    /// The addresses and routes of a TAP's interface; on an error they are as before.
    fn set_in_kernel(&self, vnic: &Upper, from: &Vnic, to: &Vnic) -> Done {
        let (Some(device), Some(is), Some(shall)) = (&vnic.device, from.tap(), to.tap()) else {
            return Ok(());
        };
        self.kernel.readdress(device, &is.addresses, &shall.addresses)?;
        // Routes that stay are lost with addresses that go.
        self.kernel.reroute(device, &is.routes, &shall.routes).inspect_err(|_| {
            let _ = self.kernel.readdress(device, &shall.addresses, &is.addresses);
            let _ = self.kernel.reroute(device, &shall.routes, &is.routes);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vnics_are_known_by_what_they_are_over() {
        let mut above = Above::default();
        let of = |above: &Above, link| above.of(LinkId(link)).map(|it| it.0).collect::<Vec<_>>();
        for (link, vnic) in [(1, 7), (2, 8), (1, 9)] {
            above.insert(LinkId(link), LinkId(vnic));
        }
        assert_eq!([1, 2, 3].map(|link| of(&above, link)), [vec![7, 9], vec![8], vec![]]);
        for (link, vnic) in [(1, 7), (1, 9), (3, 8), (2, 7)] {
            above.remove(LinkId(link), LinkId(vnic));
        }
        assert_eq!([1, 2].map(|link| of(&above, link)), [vec![], vec![8]]);
        assert_eq!(above.0.len(), 1, "nothing is left of what is over nothing");
    }
}
