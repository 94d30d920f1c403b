//! How far each address is usable, as the lanes have reported it.
//!
//! Called by `host.rs`: steps begin and end addresses, notices say what duplicate address detection found.

use std::collections::BTreeMap;

use firelane::Notice;
use firelane_api::AddressState;
use firelane_model::{AddrObjName, Address};
use firelane_plan::{Action, Step};
use firelane_units::LaneId;

use crate::works::Works;

/// The state of every address object in force.
#[derive(Debug, Default)]
pub(crate) struct Addresses(BTreeMap<AddrObjName, (Address, AddressState)>);

impl Addresses {
    /// Notes an address that `step` has added or removed.
    pub(crate) fn follow(&mut self, step: &Step) {
        match &step.action {
            Action::AddAddress(_, name, address) => {
                self.0.insert(name.clone(), (*address, AddressState::Tentative));
            }
            Action::RemoveAddress(_, name) => drop(self.0.remove(name)),
            _ => {}
        }
    }

    /// Notes what the lanes of `works` report.
    pub(crate) fn note(&mut self, notices: Vec<(LaneId, Notice)>, works: &Works) {
        for (lane, notice) in notices {
            let (link, prefix, state) = match notice {
                Notice::AddressReady(_, link, prefix) => (link, prefix, AddressState::Ok),
                Notice::DuplicateAddress(_, link, prefix, mac) => {
                    tracing::error!("address {prefix}: the station {mac} has it already");
                    (link, prefix, AddressState::Duplicate)
                }
                Notice::Configured(..) => continue,
                Notice::Refused { what, why } => {
                    tracing::error!("lane {lane}: {what}: {why}");
                    continue;
                }
            };
            let interface = works.vnics.iter().find(|(_, it)| it.id == link).map(|(name, _)| name.as_str());
            let meant = self.0.iter_mut().find(|(name, (address, _))| {
                Some(name.interface()) == interface && address.addr() == prefix.addr()
            });
            if let Some((_, (_, known))) = meant {
                *known = state;
            }
        }
    }

    /// Whether some are still being tested.
    pub(crate) fn are_pending(&self) -> bool {
        self.0.values().any(|(_, state)| *state == AddressState::Tentative)
    }

    /// Addresses that are not used because another station has them, one line each.
    pub(crate) fn duplicates(&self) -> impl Iterator<Item = String> {
        let duplicates = self.0.iter().filter(|(_, (_, state))| *state == AddressState::Duplicate);
        duplicates.map(|(name, (address, _))| format!("address {name} {address}: another station has it"))
    }

    /// The state of `name`.
    pub(crate) fn state(&self, name: &AddrObjName) -> AddressState {
        self.0.get(name).map_or(AddressState::Disabled, |(_, state)| *state)
    }
}
