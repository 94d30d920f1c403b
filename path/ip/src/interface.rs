//! The interfaces of a netstack in one shard: the VNICs it has, and the loopback that it always has.

use core::net::IpAddr;

use firelane_units::{LinkId, MacAddr, Mtu};

use crate::config::{IfConfig, IfRouting, LOOPBACK, LOOPBACK_MAC};
use crate::event::LinkParameters;

/// The largest packet to oneself: the longest that IP has.
const LOOPBACK_MTU: u16 = u16::MAX;

/// The interfaces, few, in order of their links.
#[derive(Debug)]
pub(crate) struct Interfaces {
    list: Vec<Interface>,
    loopback: IfConfig,
}

/// An interface: what the lane says of it, what its routers say, what the operator says.
#[derive(Debug)]
struct Interface {
    config: IfConfig,
    parameters: LinkParameters,
    routing: IfRouting,
    /// The one other station that there is on a link between two.
    peer: Option<MacAddr>,
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
            Ok(at) => self.list[at].config = config,
            Err(at) => {
                let (parameters, routing) = (LinkParameters::default(), IfRouting::default());
                self.list.insert(at, Interface { config, parameters, routing, peer: None });
            }
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
        self.position(link).ok().map(|at| &self.list[at].config)
    }

    /// What the routers of a link have said.
    pub(crate) fn parameters(&self, link: LinkId) -> LinkParameters {
        self.position(link).map_or_else(|_| LinkParameters::default(), |at| self.list[at].parameters)
    }

    pub(crate) fn set_parameters(&mut self, link: LinkId, parameters: LinkParameters) {
        if let Ok(at) = self.position(link) {
            self.list[at].parameters = parameters;
        }
    }

    /// What the operator says of an interface.
    pub(crate) fn routing(&self, link: LinkId) -> IfRouting {
        self.position(link).map_or_else(|_| IfRouting::default(), |at| self.list[at].routing)
    }

    /// Whether there is the interface.
    pub(crate) fn set_routing(&mut self, link: LinkId, routing: IfRouting) -> bool {
        let found = self.position(link);
        found.map(|at| self.list[at].routing = routing).is_ok()
    }

    /// Whether there is the interface.
    pub(crate) fn set_mtu(&mut self, link: LinkId, mtu: Mtu) -> bool {
        let found = self.position(link);
        found.map(|at| self.list[at].config.mtu = mtu).is_ok()
    }

    /// The largest packet to `dst` by `link`: the operator may have said that a family's are smaller, and a router that
    /// IPv6's are.
    pub(crate) fn mtu(&self, link: LinkId, dst: IpAddr) -> Option<Mtu> {
        let own = self.get(link)?.mtu;
        if link == LOOPBACK {
            return Some(own);
        }
        let routing = self.routing(link);
        let said = self.parameters(link).mtu.filter(|_| dst.is_ipv6());
        let chosen = if dst.is_ipv4() { routing.mtu_v4 } else { routing.mtu_v6 };
        [said, chosen].into_iter().flatten().chain([own]).min()
    }

    /// The largest packet to `dst` by whichever link.
    pub(crate) fn largest_mtu(&self, dst: IpAddr) -> Option<Mtu> {
        self.iter().filter_map(|interface| self.mtu(interface.link, dst)).max()
    }

    pub(crate) fn is_home(&self, link: LinkId) -> bool {
        self.get(link).is_some_and(|interface| interface.is_home)
    }

    pub(crate) fn mac(&self, link: LinkId) -> Option<MacAddr> {
        self.get(link).map(|interface| interface.mac)
    }

    /// Says that a link leads to one other station, which has this address.
    pub(crate) fn set_peer(&mut self, link: LinkId, peer: MacAddr) {
        if let Ok(at) = self.position(link) {
            self.list[at].peer = Some(peer);
        }
    }

    /// The one other station on a link between two.
    pub(crate) fn peer(&self, link: LinkId) -> Option<MacAddr> {
        self.position(link).ok().and_then(|at| self.list[at].peer)
    }

    /// All but the loopback.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &IfConfig> {
        self.list.iter().map(|interface| &interface.config)
    }

    fn position(&self, link: LinkId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&link, |interface| interface.config.link)
    }
}
