//! The interfaces of a netstack in one shard: the VNICs it has, and the loopback that it always has.

use firelane_units::{LinkId, MacAddr, Mtu};

use crate::config::{IfConfig, LOOPBACK, LOOPBACK_MAC};

/// The largest packet to oneself: the longest that IP has.
const LOOPBACK_MTU: u16 = u16::MAX;

/// The interfaces, few, in order of their links.
#[derive(Debug)]
pub(crate) struct Interfaces {
    list: Vec<IfConfig>,
    loopback: IfConfig,
}

impl Interfaces {
    pub(crate) fn new() -> Self {
        let mtu = Mtu::new(LOOPBACK_MTU).expect("the longest packet is an MTU");
        let loopback = IfConfig { link: LOOPBACK, mac: LOOPBACK_MAC, mtu, is_home: false };
        Self { list: Vec::new(), loopback }
    }

    /// Adds an interface, or changes it.
    pub(crate) fn set(&mut self, config: IfConfig) {
        match self.position(config.link) {
            Ok(at) => self.list[at] = config,
            Err(at) => self.list.insert(at, config),
        }
    }

    pub(crate) fn remove(&mut self, link: LinkId) -> bool {
        let found = self.position(link);
        found.map(|at| self.list.remove(at)).is_ok()
    }

    #[inline]
    pub(crate) fn get(&self, link: LinkId) -> Option<&IfConfig> {
        if link == LOOPBACK {
            return Some(&self.loopback);
        }
        self.position(link).ok().map(|at| &self.list[at])
    }

    pub(crate) fn is_home(&self, link: LinkId) -> bool {
        self.get(link).is_some_and(|interface| interface.is_home)
    }

    pub(crate) fn mac(&self, link: LinkId) -> Option<MacAddr> {
        self.get(link).map(|interface| interface.mac)
    }

    /// All but the loopback.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &IfConfig> {
        self.list.iter()
    }

    fn position(&self, link: LinkId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&link, |interface| interface.link)
    }
}
