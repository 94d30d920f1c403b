//! What only the running host knows about a configuration.
//!
//! Called by the views of `control/api` through [`Facts`].

use firelane_api::{AddressState, ConfiguredAddress, Facts, Leased, LinkState, ResolverInfo};
use firelane_model::{AddrObjName, LinkName, Model};
use firelane_units::MacAddr;

use crate::addresses::Addresses;
use crate::works::Works;

/// Facts of the active configuration.
pub(crate) struct Running<'a> {
    pub(crate) works: &'a Works,
    pub(crate) model: &'a Model,
    pub(crate) addresses: &'a Addresses,
}

/// Facts of the persistent configuration: none.
pub(crate) struct Stored;

impl Facts for Stored {}

impl Facts for Running<'_> {
    fn link_state(&self, name: &LinkName) -> LinkState {
        let runs = self.works.links.contains_key(name) || self.works.vnics.contains_key(name);
        match self.model.class_of(name.as_str()) {
            Some(_) if runs => LinkState::Up,
            Some(_) => LinkState::Down,
            None => LinkState::Unknown,
        }
    }

    fn mac(&self, name: &LinkName) -> Option<MacAddr> {
        self.works.vnics.get(name).map(|it| it.mac)
    }

    fn address_state(&self, name: &AddrObjName) -> AddressState {
        self.addresses.state(name)
    }

    fn leased(&self, name: &AddrObjName) -> Option<Leased> {
        self.works.clients.leased(name)
    }

    fn resolvers(&self, name: &AddrObjName) -> ResolverInfo {
        self.addresses.resolvers(name, self.works)
    }

    fn configured(&self, name: &AddrObjName) -> Vec<ConfiguredAddress> {
        self.addresses.configured(name, self.works)
    }
}
