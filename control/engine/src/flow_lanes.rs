//! Lanes of a flow's own: on the CPUs that it names, for the connections and datagrams of a service, or for what passes a device.
//!
//! *Of a netstack's VNIC* the flow's connections and datagram sockets are in these lanes, from the next one on; what there is
//! stays where it is and goes on. The flow has to name local ports: what programs begin themselves is in the lanes where they
//! begin it. *Of a device* the frames of the flow go over to its lane where they are classified, which is one: there they are
//! limited and switched; a TAP has a queue for them in that lane (`aside.rs`). A limit above the flow keeps its lane, since one lane
//! keeps it for all that are below. When a lane fails, its worker has what was limited there limited in another.

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

/// The lanes in which flows can be limited.
#[derive(Debug)]
pub(crate) struct LanesLeft {
    /// Those that netstacks spread over.
    pub(crate) common: Vec<LaneId>,
    /// Of all lanes those that have failed.
    pub(crate) failed: Vec<LaneId>,
}

impl LanesLeft {
    /// The `nth` of some lanes, round and round; if it has failed, the next one that has not.
    pub(crate) fn choose(&self, among: &[LaneId], nth: usize) -> Option<LaneId> {
        let in_turn = among.iter().cycle().skip(nth % among.len().max(1)).take(among.len());
        in_turn.copied().find(|lane| !self.failed.contains(lane))
    }
}

impl Inner {
    /// The lanes in which flows can be limited now.
    pub(crate) fn lanes_left(&self) -> LanesLeft {
        let failed = self.fabric.lane_ids().filter(|&lane| self.fabric.has_failed(lane)).collect();
        LanesLeft { common: self.fabric.common_lanes().collect(), failed }
    }

    /// A lane has failed: what was limited there is limited in another one. Senders would wait for a limit that goes on no more.
    #[cold]
    pub(crate) fn lane_lost(&self) {
        // Where all have failed nobody is left to be told.
        let _ = self.rehome(&mut self.registry());
    }

    /// Brings the lanes in which flows are limited up to date.
    pub(crate) fn rehome(&self, registry: &mut Registry) -> Result<(), ChangeError> {
        let moved = registry.rehome(&self.lanes_left());
        self.tell_homes(&moved)
    }

    /// The same after one flow has changed.
    pub(crate) fn rehome_below(&self, registry: &mut Registry, flow: FlowId) -> Result<(), ChangeError> {
        let moved = registry.rehome_below(flow, &self.lanes_left());
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use firelane_units::{BitRate, Mtu};

    use super::*;
    use crate::cpus::listed;
    use crate::{EngineConfig, NetstackConfig, UdpSocket, VnicConfig, VnicUser};

    /// Waits until `text` comes to the second one.
    fn passes([from, to]: &[UdpSocket; 2], text: &[u8]) -> bool {
        let (mut came, deadline) = ([0; 16], Instant::now() + Duration::from_secs(10));
        while Instant::now() < deadline {
            // Where it waits for the limit, there is no room some time.
            let _ = from.send_to(text, "10.0.0.2:9");
            if to.recv(&mut came).is_ok_and(|len| &came[..len] == text) {
                return true;
            }
        }
        false
    }

    #[test]
    fn what_is_limited_in_a_lane_that_has_failed_is_limited_in_one_that_is_left() {
        let config = EngineConfig { lanes: 2, reserve: 1, ..EngineConfig::default() };
        let engine = Engine::start(&config).unwrap();
        let link = engine.add_link(Mtu::ETHERNET).unwrap();
        engine.set_link_maxbw(link, Some(BitRate::from_mbps(10))).unwrap();
        let cpu = listed(&rustix::thread::sched_getaffinity(None).unwrap())[0];
        // They are in the lane in reserve, and the limit of their link is not.
        let sockets = [1, 2].map(|n| {
            let id = engine.add_netstack_on(&NetstackConfig::default(), &[cpu]).unwrap();
            let mac = format!("02:08:20:00:00:0{n}").parse().unwrap();
            let vnic = engine.add_vnic(link, &VnicConfig::new(mac), VnicUser::Netstack(id)).unwrap();
            engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
            let socket = UdpSocket::bind(&engine.stack(id).unwrap(), format!("10.0.0.{n}:9")).unwrap();
            socket.set_nonblocking(n == 1).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            socket
        });
        let home = || {
            let registry = engine.0.registry();
            registry.flows[&registry.links[&link].flow].home.unwrap()
        };
        let lost = home();
        assert!(passes(&sockets, b"before"));
        engine.0.fabric.fail(lost, || ());
        assert!(passes(&sockets, b"after"));
        let other = LaneId(1 - lost.0);
        assert_eq!(home(), other);
        // A limit that comes later does not go there either.
        engine.set_link_maxbw(link, None).unwrap();
        engine.set_link_maxbw(link, Some(BitRate::from_mbps(20))).unwrap();
        assert_eq!(home(), other);
        let taken = |lane| engine.0.fabric.visit(lane, |_, it| it.snapshot().counters.taken);
        let before = taken(other).unwrap();
        assert!(passes(&sockets, b"at last") && taken(other).unwrap() > before, "it is limited");
    }
}
