//! Lanes of a flow's own: on the CPUs that it names, for the connections and datagrams of a service, or for what passes a device.
//!
//! *Of a netstack's VNIC* the flow's connections and datagram sockets are in these lanes, from the next one on; what there is
//! stays where it is and goes on. The flow has to name local ports: what programs begin themselves is in the lanes where they
//! begin it. *Of a device* the frames of the flow go over to its lane where they are classified, which is one: there they are
//! limited and switched; a TAP has a queue for them in that lane (`aside.rs`). A limit above the flow keeps its lane, since one lane
//! keeps it for all that are below.

use firelane_classify::FlowMatch;
use firelane_lane::Control;
use firelane_units::{FlowId, LaneId, LinkId};

use crate::engine::{Engine, Inner};
use crate::error::ChangeError;
use crate::registry::Registry;

impl Engine {
    /// Gives a flow lanes of its own on these CPUs; without CPUs it has those of its link or netstack again. Traffic runs on.
    ///
    /// # Errors
    /// The flow does not exist, or is one that cannot have so many lanes; a CPU does not exist,
    /// is off line, or is not for this process; the engine has no lane left for it. Then everything is as before.
    pub fn set_flow_cpus(&self, flow: FlowId, cpus: &[usize]) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let known = registry.flows.get(&flow).ok_or(ChangeError::NoFlow(flow))?;
        let (owner, rule) = (known.owner, known.rule.ok_or(ChangeError::NoFlow(flow))?);
        let user = registry.user_of(owner);
        check(&rule, user.is_some(), cpus.len())?;
        let lanes = match cpus {
            [] => Vec::new(),
            _ => self.0.netstack_lanes(cpus, &registry).inspect_err(|_| self.0.rest_lanes(&registry))?,
        };
        let before = registry.give_lanes(flow, lanes);
        let steered = user.map_or(Ok(()), |id| self.0.steer(&mut registry, id));
        if steered.is_err() {
            registry.give_lanes(flow, before);
        }
        let homes = self.0.rehome_below(&mut registry, flow);
        steered.and(homes).and(self.0.take_back(&mut registry))
    }

    /// The CPUs on which a flow's own lanes may run, as the scheduler says; none if it has none.
    pub fn flow_cpus(&self, flow: FlowId) -> Vec<usize> {
        let registry = self.0.registry();
        registry.flows.get(&flow).map_or(Vec::new(), |it| self.0.own_cpus(&it.lanes))
    }
}

/// Whether a flow with these attributes can have so many lanes.
fn check(rule: &FlowMatch, is_netstacks: bool, count: usize) -> Result<(), ChangeError> {
    let tells_sockets = rule.local_port.is_some() && rule.tells_connections();
    match (is_netstacks, count) {
        (_, 0) => Ok(()),
        (true, _) if !tells_sockets => Err(ChangeError::NoService),
        (false, 2..) => Err(ChangeError::OneLane(count)),
        _ => Ok(()),
    }
}

impl Inner {
    /// Brings the lanes in which flows are limited up to date.
    pub(crate) fn rehome(&self, registry: &mut Registry) -> Result<(), ChangeError> {
        let moved = registry.rehome(self.fabric.lane_count());
        self.tell_homes(&moved)
    }

    /// The same after one flow has changed.
    pub(crate) fn rehome_below(&self, registry: &mut Registry, flow: FlowId) -> Result<(), ChangeError> {
        let moved = registry.rehome_below(flow, self.fabric.lane_count());
        self.tell_homes(&moved)
    }

    fn tell_homes(&self, moved: &[(FlowId, Option<LaneId>)]) -> Result<(), ChangeError> {
        moved.iter().try_for_each(|&(id, home)| self.tell_all(|_| Control::SetHome(id, home)))
    }

    /// After a flow came or went: those that there are may have another say in which lane something begins.
    pub(crate) fn flows_changed(&self, registry: &mut Registry, owner: LinkId) -> Result<(), ChangeError> {
        let has_aside = registry.queues.get(&owner).is_some_and(|it| !it.aside.is_empty());
        if has_aside || registry.flows_with_lanes().any(|(_, flow)| flow.owner == owner) {
            self.set_aside_of(registry, owner)?;
        }
        let user = registry.user_of(owner).filter(|id| registry.netstacks.contains_key(id));
        user.map_or(Ok(()), |id| self.steer(registry, id))
    }
}
