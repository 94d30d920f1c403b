//! Wires between links of one engine, with a rate, a length and faults.
//!
//! A wire is the pair of ends that `drivers/memory` simulates. Over a link an end is a port of its own, behind which others lie, or it
//! is plugged into a VNIC that has no user, and then that VNIC's limits, flows, VLAN and protection are its own. The daemon makes one
//! for each of the model's; the conditions change while frames are under way.

use firelane_driver_memory::{Conditions, Control as Direction, WireConfig, WireCounters, wire};
use firelane_flow::FlowConfig;
use firelane_frame::Capabilities;
use firelane_lane::{Control, FlowSetup, PortKind, PortUser};
use firelane_units::{FlowId, LinkId, Mtu, Priority};

use crate::engine::{Engine, Inner, VnicUser};
use crate::error::ChangeError;
use crate::queue::Queue;
use crate::registry::{Flow, Queues, Registry};

/// A wire between two links. It stays until [`Engine::remove_wire`].
#[derive(Debug)]
pub struct Wire {
    ends: [End; 2],
    directions: [Direction; 2],
}

/// Where an end of it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// A port of its own over a link.
    Trunk(LinkId),
    /// A VNIC.
    Vnic(LinkId),
}

/// A trunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trunk {
    pub(crate) over: LinkId,
    flow: FlowId,
}

impl Wire {
    /// Sets the conditions of both directions, the first from the first end to the second. What is as it was stays undisturbed.
    pub fn set(&self, conditions: [Conditions; 2]) {
        for (direction, conditions) in self.directions.iter().zip(conditions) {
            if direction.conditions() != conditions {
                direction.set(conditions);
            }
        }
    }

    /// The ports of its own that it has over links.
    pub fn ports(&self) -> impl Iterator<Item = LinkId> {
        self.ends.into_iter().filter_map(|end| match end {
            End::Trunk(port) => Some(port),
            End::Vnic(_) => None,
        })
    }

    /// What became of the frames of both directions.
    pub fn counters(&self) -> [WireCounters; 2] {
        [0, 1].map(|side| self.directions[side].counters())
    }
}

impl Engine {
    /// Makes a wire between two links, or VNICs without users. Each frame is one packet of at most `mtu`: what was to be cut
    /// is cut before. Without a seed its faults are others each time. Nobody here sees whether wires make a loop.
    ///
    /// # Errors
    /// There is no such link or VNIC, the VNIC has a user, or the system has no random number.
    pub fn add_wire(
        &self,
        [first, second]: [LinkId; 2],
        mtu: Mtu,
        seed: Option<u64>,
        [forth, back]: [Conditions; 2],
    ) -> Result<Wire, ChangeError> {
        let mut random = [0; 8];
        if seed.is_none() {
            self.0.fabric.chance.fill(&mut random).map_err(ChangeError::Device)?;
        }
        let seed = seed.unwrap_or(u64::from_le_bytes(random));
        let capabilities = Capabilities::plain(mtu);
        let config = WireConfig { capabilities, seed, forth, back, timed: true, ..WireConfig::default() };
        let (one, two) = wire(config);
        let (Some(forth), Some(back)) = (one.control(), two.control()) else {
            unreachable!("a timed wire has controls");
        };
        let mut registry = self.0.registry();
        let begin = self.0.attach_end(&mut registry, first, Queue::from(one))?;
        let end = self.0.attach_end(&mut registry, second, Queue::from(two)).inspect_err(|_| {
            // It was made just above.
            let _ = self.0.detach_end(&mut registry, begin);
        })?;
        Ok(Wire { ends: [begin, end], directions: [forth, back] })
    }

    /// Removes a wire; what is under way is lost.
    ///
    /// # Errors
    /// All lanes have failed.
    pub fn remove_wire(&self, wire: &Wire) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        wire.ends.iter().try_for_each(|&end| self.0.detach_end(&mut registry, end))
    }
}

impl Inner {
    fn attach_end(&self, registry: &mut Registry, link: LinkId, queue: Queue) -> Result<End, ChangeError> {
        if registry.vnics.contains_key(&link) {
            self.plug(registry, link, queue).map(|()| End::Vnic(link))
        } else {
            self.add_trunk(registry, link, queue).map(End::Trunk)
        }
    }

    fn detach_end(&self, registry: &mut Registry, end: End) -> Result<(), ChangeError> {
        match end {
            End::Vnic(vnic) => {
                self.tell_all(|_| Control::Plug(vnic, PortUser::Nobody, None))?;
                registry.queues.insert(vnic, Queues::dealt(Vec::new()));
            }
            End::Trunk(port) => {
                let trunk = registry.trunks.remove(&port).ok_or(ChangeError::NoLink(port))?;
                // As with a VNIC, the port goes before its limit.
                registry.queues.remove(&port);
                self.tell_all(|_| Control::RemovePort(port))?;
                self.tell_all(|_| Control::RemoveFlow(trunk.flow))?;
                registry.forget_flow(trunk.flow);
                registry.give_back_link(port);
            }
        }
        self.take_back(registry)
    }

    /// Gives a VNIC without a user an end of a wire.
    fn plug(&self, registry: &mut Registry, vnic: LinkId, mut queue: Queue) -> Result<(), ChangeError> {
        let is_used = registry.user_of(vnic).is_some()
            || registry.tunnels.contains_key(&vnic)
            || registry.queues.get(&vnic).is_none_or(|queues| !queues.lanes.is_empty());
        if is_used {
            return Err(ChangeError::VnicBusy(vnic));
        }
        let through = self.lane_of_device(vnic, 0)?;
        self.fabric.watch(through, &mut queue)?;
        let mut queue = Some(queue);
        self.tell_all(|lane| {
            let here = if lane == through { queue.take() } else { None };
            Control::Plug(vnic, PortUser::Driver { through }, here)
        })?;
        registry.queues.insert(vnic, Queues::dealt(vec![through]));
        self.lend(registry)
    }

    /// Gives an end of a wire a port over a link, whose limit holds for what passes there.
    fn add_trunk(&self, registry: &mut Registry, over: LinkId, queue: Queue) -> Result<LinkId, ChangeError> {
        let parent = Some(registry.links.get(&over).ok_or(ChangeError::NoLink(over))?.flow);
        let (port, flow) = (registry.mint_link(), registry.mint_flow());
        let config = FlowConfig { parent, maxbw: None, priority: Priority::High };
        let home = registry.home_of(flow, &config, None, &self.lanes_left());
        self.tell_all(|_| Control::AddFlow(FlowSetup { flow, owner: port, rule: None, config, home }))?;
        let kind = PortKind::Trunk { flow };
        let dealt = self.add_port(port, over, kind, VnicUser::Device(vec![queue])).inspect_err(|_| {
            // Nothing has passed it.
            let _ = self.tell_all(|_| Control::RemoveFlow(flow));
            registry.forget_flow(flow);
            registry.give_back_link(port);
        })?;
        registry.queues.insert(port, Queues::dealt(dealt));
        registry.flows.insert(flow, Flow { owner: port, rule: None, config, home, lanes: Vec::new() });
        registry.trunks.insert(port, Trunk { over, flow });
        self.lend(registry)?;
        Ok(port)
    }
}
