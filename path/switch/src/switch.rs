//! The switch: its ports, and the decision for one frame.
//!
//! A lane owns a replica; ports are added and removed by messages, with the same identifiers everywhere. A frame
//! that comes from a port, or is on its way to one, when the port is removed is dropped as `no_port`.

use firelane_frame::{Frame, Weight};
use firelane_units::{DropReason, Instant, MacAddr, SwitchPortId, VlanId};

use crate::address_table::AddressTable;
use crate::counters::PortCounters;
use crate::exits::{Beyond, Exits};
use crate::flood::Vlans;
use crate::heard::Heard;
use crate::port::{GroupFilter, Port, PortConfig, PortError, Role};
use crate::tag;

/// What the switch needs to know of a frame's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct L2 {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// The VLAN of its tag.
    pub vlan: Option<VlanId>,
    /// Whether it has a tag, be it only a priority tag.
    pub tagged: bool,
}

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// It goes to one port.
    Port(SwitchPortId),
    /// It goes to every port of its VLAN but the one it came from; if it is for one station, to every exit.
    Flood,
    /// It is dropped; the port it came from has counted it.
    Drop(DropReason),
}

/// A station that was heard beyond an exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// Its address.
    pub station: MacAddr,
    /// Its VLAN.
    pub vlan: Option<VlanId>,
}

/// One virtual switch.
#[derive(Clone)]
pub struct Switch {
    pub(crate) ports: Vec<Option<Port>>,
    addresses: AddressTable,
    pub(crate) vlans: Vlans,
    uplink: Option<SwitchPortId>,
    pub(crate) exits: Exits,
    /// Who was heard last by an exit, until the other lanes are told.
    news: Option<Located>,
    /// Ports that look on, in order.
    pub(crate) onlookers: Vec<SwitchPortId>,
}

impl Default for Switch {
    fn default() -> Self {
        Self::new()
    }
}

impl Switch {
    /// A switch without ports.
    pub fn new() -> Self {
        let (ports, addresses, vlans) = (vec![], AddressTable::new(), Vlans::default());
        let (exits, news, onlookers) = (Exits::default(), None, vec![]);
        Self { ports, addresses, vlans, uplink: None, exits, news, onlookers }
    }

    /// Where a frame from `ingress` goes. Counts it for that port.
    #[inline]
    pub fn forward(&mut self, now: Instant, ingress: SwitchPortId, l2: &L2, frame: &Frame) -> Destination {
        let Some(port) = self.ports.get(ingress.index()).and_then(Option::as_ref) else {
            return Destination::Drop(DropReason::NoPort);
        };
        let vlan = port.vlan_of(l2.vlan);
        let decided = match check_ingress(port, l2) {
            Err(reason) => Destination::Drop(reason),
            Ok(()) => {
                if self.exits.learn() && self.exits.has(ingress) && self.port_of(l2.src, vlan).is_none() {
                    let is_news = self.exits.note(now, l2.src, vlan, ingress);
                    self.news = is_news.then_some(Located { station: l2.src, vlan });
                }
                if l2.dst.is_multicast() {
                    Destination::Flood
                } else {
                    self.towards(now, ingress, l2.dst, vlan)
                }
            }
        };
        if let Some(Some(port)) = self.ports.get_mut(ingress.index()) {
            match decided {
                Destination::Drop(_) => port.counters.oerrors += 1,
                Destination::Port(_) | Destination::Flood => port.counters.sent(frame.weight()),
            }
        }
        decided
    }

    /// Where a frame goes that is for one station.
    #[inline]
    fn towards(
        &self,
        now: Instant,
        ingress: SwitchPortId,
        station: MacAddr,
        vlan: Option<VlanId>,
    ) -> Destination {
        match self.addresses.lookup(station, vlan) {
            Some(found) if found != ingress => Destination::Port(found),
            // What comes in from elsewhere for nobody here has its way there.
            Some(_) if self.exits.has(ingress) => Destination::Drop(DropReason::UnknownDestination),
            Some(_) => Destination::Drop(DropReason::SamePort),
            None => match self.exits.towards(now, station, vlan, ingress, &self.ports) {
                Beyond::Port(exit) => Destination::Port(exit),
                Beyond::All => Destination::Flood,
                Beyond::Nowhere => Destination::Drop(DropReason::UnknownDestination),
            },
        }
    }

    /// Makes a frame ready for `to`, which [`forward`](Self::forward) named: sets or strips the tag, and counts it.
    /// `false` if one of the ports was removed meanwhile: the caller drops the frame as [`DropReason::NoPort`].
    #[inline]
    #[must_use]
    pub fn deliver(&mut self, ingress: SwitchPortId, to: SwitchPortId, l2: &L2, frame: &mut Frame) -> bool {
        let vlan = match self.ports.get(ingress.index()) {
            Some(Some(port)) => port.vlan_of(l2.vlan),
            _ => return false,
        };
        let Some(Some(port)) = self.ports.get_mut(to.index()) else { return false };
        match (port.config.role, vlan) {
            (Role::Station { .. }, _) if l2.tagged => tag::pop(frame),
            (Role::Uplink | Role::Trunk, Some(vlan)) if !l2.tagged => tag::push(frame, vlan),
            (Role::Station { .. } | Role::Uplink | Role::Trunk, _) => {}
        }
        port.counters.received(frame.weight());
        true
    }

    /// Counts a frame that goes the way of one before it, which [`forward`](Self::forward) and
    /// [`deliver`](Self::deliver) let pass as it was. The caller looks again when ports have changed.
    #[inline]
    pub fn pass(&mut self, ingress: SwitchPortId, to: SwitchPortId, weight: Weight) {
        if let Some(Some(port)) = self.ports.get_mut(ingress.index()) {
            port.counters.sent(weight);
        }
        if let Some(Some(port)) = self.ports.get_mut(to.index()) {
            port.counters.received(weight);
        }
    }

    /// Says that a delivered frame could not be handed to the port's user ([`DropReason::PortFull`]).
    pub fn refuse(&mut self, to: SwitchPortId, frame: &Frame) {
        if let Some(Some(port)) = self.ports.get_mut(to.index()) {
            port.counters.refused(frame.weight());
        }
    }

    /// The identifier that the next port should get: the lowest that is free.
    pub fn free_port(&self) -> SwitchPortId {
        let free = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        SwitchPortId(free as u32)
    }

    /// Adds a port under an identifier that [`free_port`](Self::free_port) of one replica named.
    pub fn add_port(&mut self, id: SwitchPortId, config: PortConfig) -> Result<(), PortError> {
        self.check(id, &config)?;
        for &address in &config.addresses {
            self.addresses.insert(address, config.own_vlan(), id);
        }
        if config.role == Role::Uplink {
            self.uplink = Some(id);
        }
        if self.ports.len() <= id.index() {
            self.ports.resize_with(id.index() + 1, || None);
        }
        if config.role.is_tagged() {
            self.exits.set(id, true);
        }
        self.ports[id.index()] =
            Some(Port { config, counters: PortCounters::default(), heard: Heard::default() });
        self.vlans.rebuild(&self.ports);
        Ok(())
    }

    fn check(&self, id: SwitchPortId, config: &PortConfig) -> Result<(), PortError> {
        if self.config(id).is_some() {
            return Err(PortError::Exists);
        }
        if let (Role::Uplink, Some(uplink)) = (config.role, self.uplink) {
            return Err(PortError::SecondUplink(uplink));
        }
        let needs_address = !config.role.is_tagged() && config.addresses.is_empty();
        if needs_address || config.addresses.iter().any(|a| !a.is_unicast()) {
            return Err(PortError::NotUnicast);
        }
        for (n, &address) in config.addresses.iter().enumerate() {
            if let Some(taken) = self.addresses.lookup(address, config.own_vlan()) {
                return Err(PortError::AddressTaken(taken));
            }
            if config.addresses[..n].contains(&address) {
                return Err(PortError::AddressTaken(id));
            }
        }
        Ok(())
    }

    /// Removes a port and returns what it counted.
    pub fn remove_port(&mut self, id: SwitchPortId) -> Option<PortCounters> {
        let port = self.ports.get_mut(id.index())?.take()?;
        self.addresses.remove_port(id);
        self.onlookers.retain(|&port| port != id);
        self.exits.set(id, false);
        if self.uplink == Some(id) {
            self.uplink = None;
        }
        self.vlans.rebuild(&self.ports);
        Some(port.counters)
    }

    /// Changes which groups a port gets; what was heard of its user is forgotten. `false` if there is no such port.
    pub fn set_groups(&mut self, id: SwitchPortId, groups: GroupFilter) -> bool {
        match self.ports.get_mut(id.index()) {
            Some(Some(port)) => {
                port.config.groups = groups;
                port.heard = Heard::default();
                true
            }
            _ => false,
        }
    }

    /// A port's configuration.
    pub fn config(&self, id: SwitchPortId) -> Option<&PortConfig> {
        self.ports.get(id.index())?.as_ref().map(|port| &port.config)
    }

    /// What a port counted, in this lane.
    pub fn counters(&self, id: SwitchPortId) -> Option<PortCounters> {
        self.ports.get(id.index())?.as_ref().map(|port| port.counters)
    }

    /// The port of a station.
    pub fn port_of(&self, address: MacAddr, vlan: Option<VlanId>) -> Option<SwitchPortId> {
        self.addresses.lookup(address, vlan)
    }

    /// The port to the rest of the world.
    pub fn uplink(&self) -> Option<SwitchPortId> {
        self.uplink
    }

    /// Says whether others than its own station lie behind a station's port, so that what nobody here has goes there.
    pub fn set_exit(&mut self, id: SwitchPortId, is_exit: bool) -> bool {
        let is_station = self.config(id).is_some_and(|config| !config.role.is_tagged());
        if is_station {
            self.exits.set(id, is_exit);
        }
        is_station
    }

    /// Whether who lies beyond which exit is learned, from each frame that comes in there.
    #[inline]
    pub fn learns(&self) -> bool {
        self.exits.learn()
    }

    /// Who the frame that [`forward`](Self::forward) had just now comes from, if other replicas are to [hear](Self::locate) that he is
    /// beyond the port that it came by.
    pub fn take_news(&mut self) -> Option<Located> {
        self.news.take()
    }

    /// Another replica has heard a station beyond an exit.
    pub fn locate(&mut self, now: Instant, exit: SwitchPortId, Located { station, vlan }: Located) {
        if self.port_of(station, vlan).is_none() {
            self.exits.learn_of(now, station, vlan, exit);
        }
    }

    /// The port to which what a station sends to another goes, if it is one.
    pub fn way_towards(&self, now: Instant, from: SwitchPortId, dst: MacAddr) -> Option<SwitchPortId> {
        match self.towards(now, from, dst, self.config(from)?.own_vlan()) {
            Destination::Port(to) => Some(to),
            Destination::Flood | Destination::Drop(_) => None,
        }
    }

    /// The identifiers of all ports.
    pub fn ports(&self) -> impl Iterator<Item = SwitchPortId> {
        (0u32..).map(SwitchPortId).zip(&self.ports).filter_map(|(id, port)| port.as_ref().map(|_| id))
    }

    /// The same switch for another lane, with counters at zero.
    pub fn replica(&self) -> Self {
        let mut copy = self.clone();
        copy.ports.iter_mut().flatten().for_each(|port| port.counters = PortCounters::default());
        copy
    }
}

/// Whether a port may send this frame at all. Everything that protects a link from its own user is judged here,
/// before any table is asked.
#[inline]
fn check_ingress(port: &Port, l2: &L2) -> Result<(), DropReason> {
    if is_link_local(l2.dst) {
        return Err(DropReason::LinkLocalProtocol);
    }
    // A station that could tag its frames could hop to another VLAN.
    if l2.tagged && !port.config.role.is_tagged() {
        return Err(DropReason::BadVlan);
    }
    Ok(())
}

/// 01:80:C2:00:00:00 to 0F: bridges never forward them (IEEE 802.1Q table 8-1).
#[inline]
fn is_link_local(address: MacAddr) -> bool {
    address.to_u64() & !0x0f == 0x0180_c200_0000
}
