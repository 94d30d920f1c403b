//! Changes of the link side's configuration: links, ports, flows.
//!
//! Called by `lane.rs` for each [`crate::Control`] message. The engine has checked the change; what still contradicts
//! this replica is refused as a whole and reported.

use firelane_frame::{Driver, Frame};
use firelane_switch::{GroupFilter, PortConfig as SwitchPort, PortError, Role, Switch};
use firelane_units::{BitRate, Direction, FlowId, LaneId, LinkId, MacAddr, NetstackId, Priority};

use firelane_classify::{FlowRules, RuleError, Steering};
use firelane_flow::FlowError;
use firelane_ip::LOOPBACK;

use crate::common::Common;
use crate::counters::{PortCounters, PortTraffic};
use crate::links::Links;
use crate::message::{FlowSetup, FuseWith, LinkConfig, PortConfig, PortKind, PortUser, Stage};
use crate::poll::Polling;
use crate::ports::{FlowPlace, Port, Queue, SwitchedLink};

/// Why a change was refused, in words.
pub(crate) type Refusal = &'static str;

/// Which groups a user gets who has not said it: a VNIC without one is no receiver, and no copy is made for it.
fn groups_of(user: PortUser) -> GroupFilter {
    match user {
        PortUser::Nobody => GroupFilter::Nothing,
        _ => GroupFilter::All,
    }
}

impl<D: Driver> Links<D> {
    pub(crate) fn add_link(&mut self, config: LinkConfig) -> Result<(), Refusal> {
        let link = SwitchedLink { switch: Switch::new(), mtu: config.mtu, uplink: None, ports: Vec::new() };
        self.switches.insert(config.link.0, link).map_err(|_| "the link exists")
    }

    /// Answers with the netstacks' ports over the link.
    pub(crate) fn set_mtu(&mut self, config: LinkConfig) -> Result<Vec<(NetstackId, LinkId)>, Refusal> {
        self.changed();
        let link = self.switches.get_mut(config.link.0).ok_or("no such link")?;
        link.mtu = config.mtu;
        let uses = self.ports.iter().filter(|port| port.over == config.link);
        let netstacks = uses.filter_map(|port| match port.user {
            PortUser::Netstack(id) => Some((id, port.id)),
            _ => None,
        });
        Ok(netstacks.collect())
    }

    pub(crate) fn remove_link(&mut self, link: LinkId) -> Result<(), Refusal> {
        if self.ports.iter().any(|port| port.over == link) {
            return Err("the link has ports");
        }
        self.switches.remove(link.0).map(drop).ok_or("no such link")
    }

    pub(crate) fn add_port(&mut self, config: PortConfig, driver: Option<D>) -> Result<(), Refusal> {
        self.changed();
        if self.ports.get(config.id.0).is_some() {
            return Err("the port exists");
        }
        let link = self.switches.get_mut(config.over.0).ok_or("no such link")?;
        let at_switch = link.switch.free_port();
        let (role, addresses) = match config.kind {
            PortKind::Uplink => (Role::Uplink, Vec::new()),
            PortKind::Trunk { .. } => (Role::Trunk, Vec::new()),
            PortKind::Vnic { mac, vlan, .. } => (Role::Station { vlan }, vec![mac]),
        };
        let groups = groups_of(config.user);
        link.switch.add_port(at_switch, SwitchPort { role, addresses, groups }).map_err(
            |error| match error {
                PortError::Exists => "the switch port exists",
                PortError::NotUnicast => "the address is no station's",
                PortError::AddressTaken(_) => "another port has the address",
                PortError::SecondUplink(_) => "the switch has an uplink",
            },
        )?;
        if link.ports.len() <= at_switch.index() {
            link.ports.resize(at_switch.index() + 1, None);
        }
        link.ports[at_switch.index()] = Some(config.id);
        if config.kind == PortKind::Uplink {
            link.uplink = Some(config.id);
        }
        let queue = driver.map(|driver| self.queues.add(Queue::new(driver, config.id)));
        let PortConfig { id, over, kind, user } = config;
        let (rules, counters) = (FlowRules::new(), PortCounters::default());
        let guarded = self.guards.get(id.0).is_some();
        let port = Port {
            id,
            over,
            kind,
            user,
            at_switch,
            queue,
            kept: None,
            leaving: None,
            polling: Polling::default(),
            rules,
            guarded,
            counters,
            settled: PortTraffic::default(),
            given_back: Vec::new(),
        };
        self.ports.insert(id.0, port).map_err(|_| "the port exists")
    }

    /// Another queue of a port's driver is in this lane, which fetches from it and sends by the first.
    pub(crate) fn give_one_more(&mut self, id: LinkId, driver: D) -> Result<(), Refusal> {
        self.changed();
        self.ports.get(id.0).ok_or("no such port")?;
        self.add_queue(id, driver);
        Ok(())
    }

    /// A queue comes to a port that is there.
    fn add_queue(&mut self, id: LinkId, driver: D) -> usize {
        let polling = self.ports.get(id.0).map_or_else(Polling::default, |port| port.polling);
        let mut queue = Queue::new(driver, id);
        queue.polling = polling;
        if polling == Polling::Off {
            queue.driver.remind(true);
        }
        let place = self.queues.add(queue);
        self.count_unpolled();
        place
    }

    /// Removes a port. What waited for its device ends here; what its flows hold does when they are removed, behind it.
    pub(crate) fn remove_port(&mut self, common: &mut Common<D>, id: LinkId) -> Result<(), Refusal> {
        self.changed();
        let port = self.ports.remove(id.0).ok_or("no such port")?;
        self.guards.remove(id.0);
        if let Some(link) = self.switches.get_mut(port.over.0) {
            link.switch.remove_port(port.at_switch);
            link.ports[port.at_switch.index()] = None;
            if link.uplink == Some(id) {
                link.uplink = None;
            }
        }
        self.drop_queues(common, id);
        if let Some(mut kept) = port.kept {
            common.drop_chain(&mut kept, firelane_units::DropReason::NoPort);
        }
        Ok(())
    }

    /// Ends all queues of a port that are here.
    fn drop_queues(&mut self, common: &mut Common<D>, id: LinkId) {
        let is_its = |&place: &usize| self.queues.get(place).is_some_and(|queue| queue.port == id);
        for place in (0..self.queues.places()).filter(is_its).collect::<Vec<_>>() {
            if let Some(mut queue) = self.queues.remove(place) {
                common.drop_chain(&mut queue.tx, firelane_units::DropReason::NoPort);
            }
        }
        self.count_unpolled();
    }

    /// Gives a port another user. What it listens to is not known before it says so.
    pub(crate) fn set_user(&mut self, id: LinkId, user: PortUser) -> Result<(), Refusal> {
        self.changed();
        let port = self.ports.get_mut(id.0).ok_or("no such port")?;
        port.user = user;
        let (over, at) = (port.over, port.at_switch);
        if let Some(link) = self.switches.get_mut(over.0) {
            link.switch.set_groups(at, groups_of(user));
        }
        Ok(())
    }

    /// Connects a VNIC's port with another link, or no more. What waits for the wire or is on its way ends with it.
    pub(crate) fn plug(
        &mut self,
        common: &mut Common<D>,
        id: LinkId,
        user: PortUser,
        driver: Option<D>,
    ) -> Result<(), Refusal> {
        self.set_user(id, user)?;
        self.drop_queues(common, id);
        let queue = driver.map(|driver| self.add_queue(id, driver));
        let port = self.ports.get_mut(id.0).ok_or("no such port")?;
        port.queue = queue;
        let link = self.switches.get_mut(port.over.0).ok_or("no such link")?;
        let is_exit = matches!(user, PortUser::Driver { .. });
        link.switch.set_exit(port.at_switch, is_exit).then_some(()).ok_or("the port is no station's")
    }

    /// The groups that a port's user listens to; others are not copied for it.
    pub(crate) fn set_groups(&mut self, id: LinkId, groups: Vec<MacAddr>) {
        let Some(port) = self.ports.get(id.0) else { return };
        if let Some(link) = self.switches.get_mut(port.over.0) {
            link.switch.set_groups(port.at_switch, GroupFilter::only(groups));
        }
    }

    pub(crate) fn add_flow(&mut self, common: &Common<D>, setup: FlowSetup) -> Result<(), Refusal> {
        let FlowSetup { flow, owner, rule, config, home } = setup;
        self.flows.insert(common.now, flow, config).map_err(flow_refusal)?;
        if let Some(rule) = rule {
            let entered = match self.ports.get_mut(owner.0) {
                Some(port) => port.rules.insert(&rule, flow).map_err(rule_refusal),
                None => Err("no such port"),
            };
            if let Err(refusal) = entered {
                self.flows.remove(flow, |_, _| {}).expect("it was added just above");
                return Err(refusal);
            }
        }
        self.changed();
        self.places
            .insert(flow.0, FlowPlace { owner, rule, home, fuses: FuseWith::default() })
            .map_err(|_| "the flow exists")
    }

    /// Removes a flow; the frames that it held are classified again.
    pub(crate) fn remove_flow(&mut self, common: &mut Common<D>, flow: FlowId) -> Result<(), Refusal> {
        let mut held = Vec::new();
        self.flows.remove(flow, |direction, frame| held.push((direction, frame))).map_err(flow_refusal)?;
        self.changed();
        self.far.forget(flow);
        let place = self.places.remove(flow.0).ok_or("no such flow")?;
        if let Some(count) = self.fusing_mut(place.fuses) {
            *count -= 1;
        }
        if let (Some(rule), Some(port)) = (place.rule, self.ports.get_mut(place.owner.0)) {
            port.rules.remove(&rule);
        }
        self.ask_again(common, place.owner, held);
        Ok(())
    }

    /// Asks once more for frames that a flow of the port `owner` held.
    fn ask_again(&mut self, common: &mut Common<D>, owner: LinkId, held: Vec<(Direction, Frame)>) {
        for (side, frame) in held {
            let direction = self.of_user(Some(owner), side);
            let is_loop = frame.meta().ingress == LOOPBACK;
            let ingress = if is_loop { owner } else { frame.meta().ingress };
            // It was counted before the flow held it, and is where it goes on.
            if direction == Direction::Out
                && let Some(port) = self.ports.get_mut(ingress.0)
            {
                port.counters.outward.uncount(frame.weight(), frame.meta().arrival);
            }
            match direction {
                direction if is_loop => self.loop_again(common, owner, direction, frame),
                Direction::Out => self.resume(common, Stage::Out, ingress, frame),
                Direction::In => self.resume(common, Stage::In, owner, frame),
            }
        }
    }

    pub(crate) fn set_maxbw(
        &mut self,
        common: &Common<D>,
        flow: FlowId,
        maxbw: Option<BitRate>,
    ) -> Result<(), Refusal> {
        self.flows.set_maxbw(common.now, flow, maxbw).map_err(flow_refusal)
    }

    pub(crate) fn set_minbw(
        &mut self,
        common: &Common<D>,
        flow: FlowId,
        minbw: Option<BitRate>,
    ) -> Result<(), Refusal> {
        self.flows.set_minbw(common.now, flow, minbw).map_err(flow_refusal)
    }

    pub(crate) fn set_priority(&mut self, flow: FlowId, priority: Priority) -> Result<(), Refusal> {
        self.flows.set_priority(flow, priority).map_err(flow_refusal)
    }

    /// A flow's limit is kept in another lane from now on. What it holds goes there: two lanes that serve what each of them has would let
    /// pass twice as much.
    pub(crate) fn set_home(
        &mut self,
        common: &mut Common<D>,
        flow: FlowId,
        home: Option<LaneId>,
    ) -> Result<(), Refusal> {
        self.changed();
        self.far.forget(flow);
        let place = self.places.get_mut(flow.0).ok_or("no such flow")?;
        place.home = home;
        let owner = place.owner;
        if home.is_some_and(|home| home != common.id) {
            let mut held = Vec::new();
            self.flows.hand_out(flow, |direction, frame| held.push((direction, frame)));
            self.ask_again(common, owner, held);
        }
        Ok(())
    }

    /// The device may have no queue in this lane.
    pub(crate) fn set_polling(&mut self, port: LinkId, polling: Polling) -> Result<(), Refusal> {
        self.ports.get_mut(port.0).ok_or("no such port")?.polling = polling;
        for place in 0..self.queues.places() {
            if self.queues.get(place).is_some_and(|queue| queue.port == port)
                && let Some(queue) = self.queues.get_mut(place)
            {
                queue.polling = polling;
                queue.driver.remind(polling == Polling::Off);
            }
        }
        self.count_unpolled();
        Ok(())
    }

    pub(crate) fn count_unpolled(&mut self) {
        self.unpolled = self.queues.iter().filter(|queue| queue.polling == Polling::Off).count();
    }

    pub(crate) fn set_fusion(&mut self, flow: FlowId, fuses: FuseWith) -> Result<(), Refusal> {
        let place = self.places.get_mut(flow.0).ok_or("no such flow")?;
        let before = core::mem::replace(&mut place.fuses, fuses);
        if let Some(count) = self.fusing_mut(before) {
            *count -= 1;
        }
        if let Some(count) = self.fusing_mut(fuses) {
            *count += 1;
        }
        Ok(())
    }

    /// How many flows fuse so, if that is counted.
    fn fusing_mut(&mut self, with: FuseWith) -> Option<&mut usize> {
        match with {
            FuseWith::Nobody => Some(&mut self.unfusing),
            FuseWith::Itself => None,
            FuseWith::Others => Some(&mut self.crossing),
        }
    }

    pub(crate) fn set_steering(&mut self, netstack: NetstackId, steering: Option<Steering>) {
        self.set_doors(netstack, steering.clone());
        self.steerings.remove(netstack.0.into());
        if let Some(steering) = steering {
            assert!(self.steerings.insert(netstack.0.into(), steering).is_ok(), "the place was emptied");
        }
    }

    /// Which lanes of a netstack get what arrives by its links: those of its sockets, unless its addresses are translated.
    pub(crate) fn set_doors(&mut self, netstack: NetstackId, steering: Option<Steering>) {
        self.doors.remove(netstack.0.into());
        if let Some(steering) = steering {
            assert!(self.doors.insert(netstack.0.into(), steering).is_ok(), "the place was emptied");
        }
        self.changed();
    }
}

fn flow_refusal(error: FlowError) -> Refusal {
    match error {
        FlowError::Exists => "the flow exists",
        FlowError::Unknown => "no such flow",
        FlowError::NoParent => "the flow's parent does not exist",
        FlowError::TooDeep => "flows nest too deep",
        FlowError::HasChildren => "other flows are part of it",
    }
}

fn rule_refusal(error: RuleError) -> Refusal {
    match error {
        RuleError::Empty => "the rule pins nothing",
        RuleError::MixedFamilies => "local and remote address are of different families",
        RuleError::Identical(_) => "another flow has the same attributes",
        RuleError::TooManyMaskSets => "too many kinds of rules",
        RuleError::TooManyRangePairs => "too many rules with ranges of local and remote ports",
    }
}
