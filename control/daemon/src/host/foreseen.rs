//! What the steps of a plan before one will have done, as far as the one depends on it: who has ended and left free what he had, and who has
//! come and has it.
//!
//! Part of the host: `checking.rs` asks, step by step. What cannot be told for certain counts as free: the step is refused when it is
//! carried out, then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use firelane_model::{Cpus, LinkKind, LinkName, Mac, Memif, MemifRole, Model, NetstackName, Vnic, VnicUser};
use firelane_plan::{Action, Step};
use firelane_units::{LinkId, MacAddr, Port, VlanId};

use crate::nic;
use crate::works::Works;

/// What the steps before one have done that it may count on.
#[derive(Default)]
pub(super) struct Before {
    /// Interfaces that have ended, by name and namespace.
    pub(super) interfaces: BTreeSet<(String, Option<PathBuf>)>,
    /// Control sockets of memifs that have ended.
    sockets: BTreeSet<String>,
    /// Ports of services that have ended.
    services: BTreeSet<(NetstackName, Port)>,
    netstacks: BTreeSet<NetstackName>,
    /// VNICs that have ended, or some of whose addresses have.
    freed: BTreeSet<LinkId>,
    /// Links that are made, or made anew.
    pub(super) made: BTreeSet<LinkName>,
    stations: Option<Stations>,
    /// Lanes of somebody's own are others'.
    has_changed_lanes: bool,
    /// How long what may be just ending is waited for.
    pub(super) wait: Duration,
}

impl Before {
    /// Before the first of `steps`.
    pub(super) fn the_first(steps: &[Step], works: &Works, present: &Model, wait: Duration) -> Self {
        let asks = |step: &Step| matches!(step.action, Action::CreateVnic(..));
        let stations = steps.iter().any(asks).then(|| Stations::of(works, present));
        Self { stations, wait, ..Self::default() }
    }

    /// Whether the memif at this socket has ended.
    pub(super) fn has_ended_at(&self, socket: &str) -> bool {
        self.sockets.contains(socket)
    }

    /// Whether a service has ended there.
    pub(super) fn has_freed(&self, netstack: &NetstackName, port: Port) -> bool {
        self.services.contains(&(netstack.clone(), port))
    }

    /// Whether a netstack that was there has ended, with all sockets and addresses.
    pub(super) fn has_lost(&self, netstack: &NetstackName) -> bool {
        self.netstacks.contains(netstack)
    }

    /// Whether a VNIC may have other addresses than it has now.
    pub(super) fn may_have_freed(&self, vnic: LinkId) -> bool {
        self.freed.contains(&vnic)
    }

    /// Whether it is as it is now who has which lanes of his own.
    pub(super) fn has_lanes_of_now(&self) -> bool {
        !self.has_changed_lanes
    }

    /// The address that a VNIC gets, and another one that has it over the same link, in the same VLAN.
    pub(super) fn rival(
        &self,
        works: &Works,
        name: &LinkName,
        vnic: &Vnic,
        next: &Model,
    ) -> Option<(MacAddr, &LinkName)> {
        let stations = self.stations.as_ref()?;
        let mac = stations.choose(works, name, vnic, next)?;
        let other = stations.at.get(&(vnic.over.link()?.clone(), vnic.vlan, mac))?;
        Some((mac, other))
    }

    /// Notes what `step` does.
    pub(super) fn note(&mut self, step: &Step, works: &Works, (present, next): (&Model, &Model)) {
        self.has_changed_lanes |= changes_lanes(&step.action, present);
        match &step.action {
            Action::DeleteVnic(name) => self.note_vnic_gone(name, works, present),
            Action::DeleteLink(name) => {
                let device = works.links.get(name).and_then(|it| it.device.as_ref());
                self.interfaces.extend(device.map(|it| (it.name(), it.place().1.cloned())));
                if let Some(LinkKind::Memif(memif)) = present.links.get(name).map(|it| &it.kind) {
                    self.sockets.extend(path_of(memif));
                }
            }
            Action::DeleteNetstack(name) => drop(self.netstacks.insert(name.clone())),
            Action::StopService(name) => {
                let its = present.services.get(name).map(|it| (it.netstack.clone(), it.port));
                self.services.extend(its);
            }
            Action::RemoveAddress(_, name) | Action::SetAddress(_, name, ..) => {
                self.freed.extend(works.vnics.get(name.interface()).map(|it| it.id));
            }
            Action::CreateLink(name, _) => drop(self.made.insert(name.clone())),
            Action::CreateVnic(name, vnic) => {
                if let Some(stations) = &mut self.stations
                    && let Some(mac) = stations.choose(works, name, vnic, next)
                {
                    stations.insert(name, vnic, mac);
                }
            }
            _ => {}
        }
    }

    fn note_vnic_gone(&mut self, name: &LinkName, works: &Works, present: &Model) {
        let upper = works.vnics.get(name);
        self.freed.extend(upper.map(|it| it.id));
        let device = upper.and_then(|it| it.device.as_ref());
        self.interfaces.extend(device.map(|it| (it.name(), it.place().1.cloned())));
        self.sockets.extend(present.vnics.get(name).and_then(Vnic::memif).and_then(path_of));
        if let Some(stations) = &mut self.stations {
            stations.remove(name);
        }
    }
}

/// The path that a memif's server has; a client has none.
fn path_of(memif: &Memif) -> Option<String> {
    (memif.role == MemifRole::Server).then(|| memif.socket.clone())
}

/// Whether somebody gets lanes of his own by it, has others, or has none any more.
fn changes_lanes(action: &Action, present: &Model) -> bool {
    let has = |cpus: Option<&Cpus>| cpus.is_some_and(|it| !it.is_empty());
    match action {
        Action::CreateNetstack(_, cpus, _) => !cpus.is_empty(),
        Action::SetCpus(..) => true,
        Action::DeleteNetstack(name) => has(present.netstacks.get(name).map(|it| &it.cpus)),
        Action::CreateLink(_, link) => !link.cpus.is_empty(),
        Action::SetLink(_, from, to) => from.cpus != to.cpus,
        Action::DeleteLink(name) => has(present.links.get(name).map(|it| &it.cpus)),
        Action::CreateVnic(_, vnic) => !vnic.cpus.is_empty(),
        Action::SetVnic(_, from, to) => from.cpus != to.cpus,
        Action::DeleteVnic(name) => has(present.vnics.get(name).map(|it| &it.cpus)),
        Action::AddFlow(_, flow) => !flow.cpus.is_empty(),
        Action::SetFlow(_, from, to) => from.cpus != to.cpus,
        Action::RemoveFlow(name) => has(present.flows.get(name).map(|it| &it.cpus)),
        _ => false,
    }
}

/// For which CPUs a step asks for lanes, and whether programs are to have sockets in them; a VNIC gets those of its device with its user.
pub(super) fn lanes_wanted(action: &Action) -> Option<(&Cpus, bool)> {
    let is_used = |vnic: &Vnic| vnic.user != VnicUser::Nobody;
    let wanted = match action {
        Action::CreateNetstack(_, cpus, _) => (cpus, true),
        Action::AddFlow(_, flow) => (&flow.cpus, true),
        Action::SetFlow(_, from, to) if from.cpus != to.cpus => (&to.cpus, true),
        Action::CreateLink(_, link) => (&link.cpus, false),
        Action::SetLink(_, from, to) if from.cpus != to.cpus => (&to.cpus, false),
        Action::CreateVnic(_, vnic) if is_used(vnic) => (&vnic.cpus, false),
        Action::SetVnic(_, from, to) if is_used(to) && from.cpus != to.cpus => (&to.cpus, false),
        _ => return None,
    };
    Some(wanted).filter(|(cpus, _)| !cpus.is_empty())
}

/// A station's address, in its VLAN over its link.
type At = (LinkName, Option<VlanId>, MacAddr);

/// The addresses that VNICs have, however they got them.
#[derive(Default)]
struct Stations {
    at: BTreeMap<At, LinkName>,
    of: BTreeMap<LinkName, (Option<At>, MacAddr)>,
    /// How many have each.
    taken: BTreeMap<MacAddr, usize>,
}

impl Stations {
    fn of(works: &Works, present: &Model) -> Self {
        let mut stations = Self::default();
        for (name, upper) in &works.vnics {
            if let Some(vnic) = present.vnics.get(name) {
                stations.insert(name, vnic, upper.mac);
            }
        }
        stations
    }

    fn insert(&mut self, name: &LinkName, vnic: &Vnic, mac: MacAddr) {
        let at = vnic.over.link().map(|over| (over.clone(), vnic.vlan, mac));
        self.at.extend(at.clone().map(|at| (at, name.clone())));
        self.of.insert(name.clone(), (at, mac));
        *self.taken.entry(mac).or_default() += 1;
    }

    fn remove(&mut self, name: &LinkName) {
        let Some((at, mac)) = self.of.remove(name) else { return };
        at.iter().for_each(|at| drop(self.at.remove(at)));
        if let Some(count) = self.taken.get_mut(&mac) {
            *count -= 1;
            if *count == 0 {
                self.taken.remove(&mac);
            }
        }
    }

    /// The address that a VNIC gets when it is made, if it gets any.
    fn choose(&self, works: &Works, name: &LinkName, vnic: &Vnic, next: &Model) -> Option<MacAddr> {
        match vnic.mac {
            Mac::Factory(slot) => nic::factory_mac(name, vnic, slot, next).ok(),
            wanted => Some(works.macs.choose(name, wanted, |mac| self.taken.contains_key(mac))),
        }
    }
}
