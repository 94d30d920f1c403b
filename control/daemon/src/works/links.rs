//! Links and etherstubs, and the properties that links of every class have.
//!
//! Called by `works.rs` for each step that is about one, and by whoever gives an interface back that had gone.

use std::collections::BTreeSet;

use firelane::{MemifStatus, Queue, Rings};
use firelane_api::Status;
use firelane_model::{Cpus, Etherstub, Fusing, Link, LinkKind, LinkName, LinkRings, Model, Polling, Vnic};
use firelane_units::{BitRate, LinkId, MacAddr, Mtu, Priority};

use super::{Done, Lower, Works};
use crate::kernel::Device;
use crate::nic::Attached;
use crate::refusal::{refused, refused_to};
use crate::settings;

/// Where the lanes of a link run that says nothing of it.
pub(super) static NO_CPUS: Cpus = Cpus::NONE;

/// The properties that links of every class have.
#[derive(Clone, Copy)]
pub(crate) struct Properties<'a> {
    pub(crate) maxbw: Option<BitRate>,
    /// Of VNICs alone.
    pub(crate) minbw: Option<BitRate>,
    pub(crate) priority: Priority,
    pub(crate) fusion: Fusing,
    /// Of what has a device.
    pub(crate) polling: Polling,
    pub(crate) cpus: &'a Cpus,
    pub(crate) rings: Rings,
    /// Of VNICs alone: whether its user sees what is for others.
    pub(crate) looks_on: bool,
    /// What those by which frames come from the device are called, and the others.
    pub(crate) ring_names: [&'static str; 2],
}

impl<'a> From<&'a Link> for Properties<'a> {
    fn from(it: &'a Link) -> Self {
        let &Link { maxbw, priority, fusion, polling, ref cpus, ref kind, rings, .. } = it;
        let rings = if *kind == LinkKind::Memory { LinkRings::UNSAID } else { rings };
        let rings = Rings { fetched: counted(rings.rx), sent: counted(rings.tx) };
        Self { maxbw, minbw: None, priority, fusion, polling, cpus, rings, ..Self::UNLIMITED }
    }
}

impl From<&Etherstub> for Properties<'_> {
    fn from(it: &Etherstub) -> Self {
        let Etherstub { maxbw, priority, fusion, .. } = *it;
        Self { maxbw, priority, fusion, ..Self::UNLIMITED }
    }
}

impl<'a> From<&'a Vnic> for Properties<'a> {
    fn from(it: &'a Vnic) -> Self {
        let &Vnic { maxbw, minbw, priority, fusion, polling, ref cpus, rings, promisc_filtered, .. } = it;
        let has_device = it.tap().is_some() || it.memif().is_some();
        let rings = if has_device { rings } else { LinkRings::UNSAID };
        // What its user sends is fetched.
        let rings = Rings { fetched: counted(rings.tx), sent: counted(rings.rx) };
        let (looks_on, ring_names) = (!promisc_filtered.is_on(), ["txrings", "rxrings"]);
        Self { maxbw, minbw, priority, fusion, polling, cpus, rings, looks_on, ring_names }
    }
}

/// As the engine counts rings.
fn counted(rings: Option<firelane_model::Rings>) -> Option<u16> {
    match rings? {
        firelane_model::Rings::Software => Some(1),
        firelane_model::Rings::Hardware => None,
        firelane_model::Rings::Count(count) => Some(count),
    }
}

/// What leads out of a link.
#[derive(Default)]
pub(crate) struct Below {
    pub(crate) device: Option<Device>,
    pub(crate) memif: Option<MemifStatus>,
    pub(crate) nic: Option<Attached>,
    pub(crate) queues: Vec<Queue>,
}

/// Links and etherstubs.
impl Works {
    pub(crate) fn create_link(&mut self, name: &LinkName, link: &Link, present: &Model) -> Done {
        let below = self.below(name, link, present)?;
        self.create_lower(name, link.mtu, link.into(), below)
    }

    pub(super) fn create_etherstub(&mut self, name: &LinkName, stub: &Etherstub) -> Done {
        self.create_lower(name, stub.mtu, stub.into(), Below::default())
    }

    fn create_lower(&mut self, name: &LinkName, mtu: Mtu, properties: Properties<'_>, below: Below) -> Done {
        let Below { device, memif, nic, queues } = below;
        let made = self.engine.add_link(mtu).map_err(refused).and_then(|id| {
            let uplink = (!queues.is_empty()).then(|| self.engine.add_uplink(id, queues)).transpose();
            let set = uplink.map_err(refused).and_then(|uplink| {
                let lower = Lower { id, uplink, device: None, memif, nic, is_bare: false, unsettled: None };
                self.limit(id, Properties::UNLIMITED, properties).map(|()| lower)
            });
            set.inspect_err(|_| drop(self.engine.remove_link(id)))
        });
        match made {
            Ok(lower) => {
                self.links.insert(name.clone(), Lower { device, ..lower });
                Ok(())
            }
            Err(error) => {
                device.iter().for_each(|device| self.kernel.close(device));
                Err(error)
            }
        }
    }

    pub(crate) fn delete_lower(&mut self, name: &LinkName) -> Done {
        let lower = self.links.get(name).ok_or(Status::LinkInvalid)?;
        self.engine.remove_link(lower.id).map_err(refused)?;
        if let Some(device) = self.links.remove(name).and_then(|it| it.device) {
            self.kernel.close(&device);
        }
        Ok(())
    }

    /// Changes a link where it is; on an error it is as before.
    pub(super) fn set_link(&mut self, name: &LinkName, from: &Link, to: &Link, present: &Model) -> Done {
        self.resize(name, (from, to.mtu), present)?;
        self.set_lower(name, from.into(), to.into()).inspect_err(|_| {
            let _ = self.resize(name, (to, from.mtu), present);
        })
    }

    /// The same of an etherstub.
    pub(super) fn set_etherstub(&mut self, name: &LinkName, from: &Etherstub, to: &Etherstub) -> Done {
        self.tell_mtu(name, from.mtu, to.mtu)?;
        self.set_lower(name, from.into(), to.into()).inspect_err(|_| {
            let _ = self.tell_mtu(name, to.mtu, from.mtu);
        })
    }

    fn set_lower(&self, name: &LinkName, from: Properties<'_>, to: Properties<'_>) -> Done {
        let id = self.links.get(name).ok_or(Status::LinkInvalid)?.id;
        self.limit(id, from, to)
    }

    /// Changes limit, guarantee, priority, fusion, polling and lanes; on an error they are as before.
    pub(crate) fn limit(&self, id: LinkId, from: Properties<'_>, to: Properties<'_>) -> Done {
        let change = |from: Properties<'_>, to: Properties<'_>| {
            // First, because a CPU or a ring may be refused.
            if from.cpus != to.cpus {
                self.engine.set_link_cpus(id, &to.cpus.numbers().collect::<Vec<_>>())?;
            }
            if from.rings != to.rings {
                self.engine.set_link_rings(id, to.rings)?;
            }
            if from.maxbw != to.maxbw {
                self.engine.set_link_maxbw(id, to.maxbw)?;
            }
            if from.minbw != to.minbw {
                self.engine.set_link_minbw(id, to.minbw)?;
            }
            if from.priority != to.priority {
                self.engine.set_link_priority(id, to.priority)?;
            }
            if from.fusion != to.fusion {
                self.engine.set_link_fusion(id, settings::fusion(to.fusion))?;
            }
            if from.polling != to.polling {
                self.engine.set_link_polling(id, settings::polling(to.polling))?;
            }
            if from.looks_on != to.looks_on {
                self.engine.set_promisc_filtered(id, !to.looks_on)?;
            }
            Ok(())
        };
        change(from, to).map_err(|error| {
            let _ = change(to, from);
            refused_to(error, to)
        })
    }

    /// Whether the device of a link is there: an interface that was not made here may go, all others are as long as the link is.
    pub(crate) fn has_device(&self, name: &LinkName) -> bool {
        let lower = self.links.get(name);
        lower.is_some_and(|it| it.nic.as_ref().is_none_or(Attached::is_there))
    }

    /// Interfaces are sought by the names that `model` has for them, if they are called so.
    pub(crate) fn take_names(&mut self, model: &Model) {
        for (name, lower) in &mut self.links {
            if let (Some(nic), Some(LinkKind::Nic(said))) =
                (&mut lower.nic, model.links.get(name).map(|it| &it.kind))
            {
                nic.take_name(said.ifname.as_str());
            }
        }
    }

    /// Tells which addresses VNICs have.
    pub(crate) fn is_taken(&self) -> impl Fn(&MacAddr) -> bool {
        let taken: BTreeSet<MacAddr> = self.vnics.values().map(|it| it.mac).collect();
        move |mac| taken.contains(mac)
    }
}

impl Properties<'_> {
    /// What a link of the engine begins with.
    pub(crate) const UNLIMITED: Self = Self {
        maxbw: None,
        minbw: None,
        priority: Priority::High,
        fusion: Fusing::SameZone,
        polling: Polling::Auto,
        cpus: &NO_CPUS,
        rings: Rings { fetched: None, sent: None },
        looks_on: false,
        ring_names: ["rxrings", "txrings"],
    };
}
