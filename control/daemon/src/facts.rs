//! What only the running host knows about a configuration.
//!
//! Called by the views of `control/api` through [`Facts`].

use firelane::{Engine, MemifStatus, Ring, Standing};
use firelane_api::{
    AddressState, ConfiguredAddress, DeviceInfo, DeviceRings, Facts, Leased, LinkState, ResolverInfo,
};
use firelane_model::{AddrObjName, FlowName, LinkClass, LinkKind, LinkName, Model};
use firelane_units::{LinkId, MacAddr};

use crate::addresses::Addresses;
use crate::kernel::Device;
use crate::nic::{self, Attached};
use crate::works::Works;

/// Facts of the active configuration.
pub(crate) struct Running<'a> {
    pub(crate) works: &'a Works,
    pub(crate) model: &'a Model,
    pub(crate) addresses: &'a Addresses,
}

fn is_connected(memif: &MemifStatus) -> bool {
    matches!(memif.standing(), Standing::Connected { .. })
}

impl Running<'_> {
    /// Whether the link below a VNIC is down.
    fn is_cut_off(&self, name: &LinkName) -> bool {
        let below = self.model.vnics.get(name).and_then(|vnic| vnic.over.link());
        below.is_some_and(|below| self.link_state(below) == LinkState::Down)
    }

    /// Whether a tunnel carries packets.
    fn leads_somewhere(&self, name: &LinkName) -> bool {
        let vnic = self.model.vnics.get(name).filter(|vnic| vnic.netstack().is_some());
        vnic.and_then(|vnic| vnic.over.tunnel()).is_some_and(|tunnel| tunnel.ends().is_some())
    }
}

/// Facts of the persistent configuration: none.
pub(crate) struct Stored;

impl Facts for Stored {}

impl Facts for Running<'_> {
    fn link_state(&self, name: &LinkName) -> LinkState {
        let lower = self.works.links.get(name);
        if let Some(interface) = lower.and_then(|it| it.nic.as_ref()) {
            return interface.state();
        }
        if lower.is_some_and(|it| it.is_bare) {
            return LinkState::Down;
        }
        let device = lower.map(|it| &it.device).or_else(|| self.works.vnics.get(name).map(|it| &it.device));
        if device.and_then(Option::as_ref).is_some_and(Device::is_down) {
            return LinkState::Down;
        }
        let links = lower.map(|it| &it.memif);
        let memif = links.or_else(|| self.works.vnics.get(name).map(|it| &it.memif));
        let runs = memif.is_some();
        match self.model.class_of(name.as_str()) {
            // Nobody is at the other end.
            Some(_) if memif.and_then(Option::as_ref).is_some_and(|it| !is_connected(it)) => LinkState::Down,
            // Nobody outside is reached by it.
            Some(LinkClass::Vnic | LinkClass::Vlan) if self.is_cut_off(name) => LinkState::Down,
            // A tunnel that leads nowhere.
            Some(LinkClass::Iptun) if !self.leads_somewhere(name) => LinkState::Down,
            Some(_) if runs => LinkState::Up,
            Some(_) => LinkState::Down,
            None => LinkState::Unknown,
        }
    }

    fn link_speed(&self, name: &LinkName) -> u64 {
        let nic = self.works.links.get(name).and_then(|it| it.nic.as_ref());
        nic.and_then(|it| nic::speed_of(&it.name())).unwrap_or(0)
    }

    fn device(&self, name: &LinkName) -> Option<DeviceInfo> {
        let (lower, link) = (self.works.links.get(name)?, self.model.links.get(name)?);
        let known = match &link.kind {
            LinkKind::Tap(_) | LinkKind::Nic(_) => {
                self.ifname(name).map_or_else(DeviceInfo::default, |it| nic::known_of(&it))
            }
            LinkKind::Memif(_) | LinkKind::Memory => DeviceInfo::default(),
        };
        let DeviceRings { all: rings, rx: rxrings, tx: txrings } =
            rings_of(&self.works.engine, lower.id, false);
        Some(DeviceInfo { rings, rxrings, txrings, ..known })
    }

    fn ifname(&self, name: &LinkName) -> Option<String> {
        let lower = self.works.links.get(name)?;
        let nic = lower.nic.as_ref().map(Attached::name);
        nic.or_else(|| lower.device.as_ref().map(Device::name))
    }

    fn rings(&self, name: &LinkName) -> DeviceRings {
        let lower = self.works.links.get(name).map(|it| rings_of(&self.works.engine, it.id, false));
        let upper = || self.works.vnics.get(name).map(|it| rings_of(&self.works.engine, it.id, true));
        lower.or_else(upper).unwrap_or_default()
    }

    fn flow_cpus(&self, name: &FlowName) -> Vec<usize> {
        self.works.flow(name).map(|id| self.works.engine.flow_cpus(id)).unwrap_or_default()
    }

    fn cpus(&self, name: &LinkName) -> Vec<usize> {
        let id = self.works.links.get(name).map(|it| it.id);
        let id = id.or_else(|| self.works.vnics.get(name).map(|it| it.id));
        id.map(|id| self.works.engine.link_cpus(id)).unwrap_or_default()
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

/// The rings of a link's device. A VNIC receives what is sent to its device.
fn rings_of(engine: &Engine, id: LinkId, is_vnic: bool) -> DeviceRings {
    let rings = engine.link_rings(id);
    let numbers =
        |is_its: &dyn Fn(&Ring) -> bool| rings.iter().filter(|it| is_its(it)).map(|it| it.ring).collect();
    let (fetched, sent) = (numbers(&|it| it.fetched), numbers(&|it| it.sent));
    let (rx, tx) = if is_vnic { (sent, fetched) } else { (fetched, sent) };
    DeviceRings { all: u16::try_from(rings.len()).unwrap_or(u16::MAX), rx, tx }
}
