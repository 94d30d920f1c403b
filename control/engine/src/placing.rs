//! In which lane of its netstack a socket begins, and how netstacks follow when flows get lanes of their own or lose them.
//!
//! The registry has each netstack's steering, as its lanes have it. It is changed under the registry's lock, which whoever makes or
//! closes a listener holds as well: so a listener is in all lanes of its netstack. What began before a change stays where
//! it is, and is found there (`path/lane/src/stacks/steered.rs`) until [`Inner::settle_flows`] finds that nothing is left of it.

use std::io;
use std::iter;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use firelane_classify::{FlowLanes, FlowMatch, Steering};
use firelane_lane::{Control, DatagramKind, Lane, LaneMessage, SocketCommand, Strangers, datagram_lane};
use firelane_units::{IpPrefix, LaneId, NetstackId, Port, PortRange};
use firelane_wire::IpProtocol;

use crate::engine::{Engine, Inner};
use crate::error::ChangeError;
use crate::netstack_config::NetstackConfig;
use crate::queue::Queue;
use crate::registry::{Flow, Netstack, Registry};

/// How long a lane may take to hear of a steering: it does so at its next turn, but its CPU may be busy.
const HEARS_WITHIN: Duration = Duration::from_secs(10);

impl Engine {
    /// Lets go of lanes that nothing is left in of what flows had before they changed. Whoever changes flows does so as well;
    /// called from time to time besides, a lane does not wait for that.
    pub fn settle(&self) {
        let mut registry = self.0.registry();
        let settling = |(&id, it): (&NetstackId, &Netstack)| it.steering.is_settling().then_some(id);
        for id in registry.netstacks.iter().filter_map(settling).collect::<Vec<_>>() {
            // A lane that has failed has nothing left.
            let _ = self.0.settle_flows(&mut registry, id);
        }
        // Nor has one that has failed anything that is lent to it.
        let _ = self.0.take_back(&mut registry);
    }
}

impl Netstack {
    /// All lanes that may have sockets of it.
    pub(crate) fn all_lanes(&self) -> Vec<LaneId> {
        self.steering.lanes()
    }

    /// Whether a connection may be in another lane than the one in which it is asked for.
    fn is_spread(&self) -> bool {
        self.lanes.len() > 1 || self.steering.flows().is_some() || self.steering.is_settling()
    }
}

impl Registry {
    /// What the flows of a netstack's VNICs say of lanes; nothing if none of them has lanes of its own.
    fn flow_lanes(&self, id: NetstackId) -> Option<FlowLanes> {
        let netstack = self.netstacks.get(&id)?;
        let is_its = |vnic: &crate::registry::Vnic| vnic.netstack == Some(id);
        let is_of_its = |flow: &Flow| self.vnics.get(&flow.owner).is_some_and(is_its);
        // The others need not be looked at, of which there may be very many.
        if !self.flows_with_lanes().any(|(_, flow)| is_of_its(flow)) {
            return None;
        }
        let mut rules: Vec<_> = (self.flows.iter())
            .filter(|(_, flow)| is_of_its(flow))
            .filter_map(|(&id, flow)| Some((id, flow.rule?, &flow.lanes)))
            .collect();
        // Of those of two VNICs that are alike one that has lanes counts.
        rules.sort_by_key(|(_, _, lanes)| lanes.is_empty());
        let mut flows = FlowLanes::new();
        for (flow, rule, lanes) in rules {
            let lanes = if netstack.forwards() && !names_host(&rule) { &Vec::new() } else { lanes };
            let ports = match rule.transport {
                // A datagram socket has its port before its lane.
                Some(IpProtocol::UDP) => vec![rule.local_port],
                _ => beside_drawn(rule.local_port, &netstack.config.tcp_ports),
            };
            for local_port in ports {
                // Only what is identical is refused: each VNIC's flows have room in as many tables as there may be.
                let _ = flows.insert(&FlowMatch { local_port, ..rule }, flow, lanes.clone());
            }
        }
        (!flows.lanes().is_empty()).then_some(flows)
    }
}

/// Whether a flow is of one local address, to which nothing comes that is only passed on.
fn names_host(rule: &FlowMatch) -> bool {
    let is_one = |prefix: IpPrefix| prefix.prefix_len() == if prefix.addr().is_ipv4() { 32 } else { 128 };
    rule.local_ip.is_some_and(is_one)
}

/// The parts of a range of ports that connections do not draw theirs from: those are of the lane that draws them. A single port
/// is drawn by nobody in another lane.
fn beside_drawn(ports: Option<PortRange>, drawn: &RangeInclusive<u16>) -> Vec<Option<PortRange>> {
    let Some(range) = ports.filter(|it| it.single().is_none()) else { return vec![ports] };
    let (first, last) = (range.first().0, range.last().0);
    let below = (first, last.min(drawn.start().saturating_sub(1)));
    let above = (first.max(drawn.end().saturating_add(1)), last);
    let part = |(first, last)| PortRange::new(Port(first), Port(last));
    let is_beside = |&(first, last): &(u16, u16)| first <= last && !drawn.contains(&first);
    [below, above].into_iter().filter(is_beside).map(part).filter(Option::is_some).collect()
}

/// Something is on its way to the lane that was chosen for it: meanwhile nothing is let go of.
#[derive(Debug)]
pub(crate) struct Placing(Arc<AtomicUsize>);

impl Placing {
    fn begin(netstack: &Netstack) -> Self {
        netstack.placing.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&netstack.placing))
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inner {
    /// A lane in which a connection of the netstack `id` may begin that has no port as yet.
    pub(crate) fn lane_to_begin(&self, id: NetstackId) -> io::Result<LaneId> {
        Ok(self.registry().netstack_mut(id).map(|it| self.some_lane(&it.lanes))?)
    }

    /// The one whose turn it is.
    pub(crate) fn lane_in_turn(&self, id: NetstackId, turn: usize) -> io::Result<LaneId> {
        Ok(self.registry().netstack_mut(id).map(|it| self.lane_of_turn(&it.lanes, turn))?)
    }

    /// The lane in which a connection of the netstack `id` begins, to be kept until it is told. One with a bound port belongs where
    /// its segments will arrive; any other draws a port that leads to whichever lane it is given to. With it comes what `read`
    /// takes from the netstack's tunables.
    pub(crate) fn lane_to_connect<T>(
        &self,
        id: NetstackId,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        read: impl FnOnce(&NetstackConfig) -> T,
    ) -> io::Result<(LaneId, Option<Placing>, T)> {
        let is_bound = |local: &SocketAddr| local.port() != 0;
        let choose = |it: &mut Netstack| {
            let bound = local.filter(|local| is_bound(local) && it.is_spread());
            let bound = bound.map(|bound| (bound, Placing::begin(it)));
            (self.some_lane(&it.lanes), bound, read(&it.config))
        };
        let (lane, bound, tunables) = self.registry().netstack_mut(id).map(choose)?;
        let Some((local, placing)) = bound else { return Ok((lane, None, tunables)) };
        let home = self.fabric.visit(lane, |now, lane| lane.lane_of_connect(now, id, local, remote));
        // Without a way there it fails in any lane, which says why.
        Ok((home.flatten().unwrap_or(lane), Some(placing), tunables))
    }

    /// The lane of a datagram socket, to be kept until it is told: that of others with its port, if they are there from before flows
    /// changed.
    pub(crate) fn lane_of_datagrams(
        &self,
        id: NetstackId,
        kind: DatagramKind,
        port: Port,
    ) -> io::Result<(LaneId, Placing)> {
        let choose = |it: &mut Netstack| (it.steering.clone(), Placing::begin(it));
        let (steering, placing) = self.registry().netstack_mut(id).map(choose)?;
        if kind == DatagramKind::Echo {
            return Ok((steering.home(), placing));
        }
        let has =
            |lane: &LaneId| self.fabric.visit(*lane, |_, it| it.has_datagrams_at(id, port)) == Some(true);
        let there = if steering.is_settling() { steering.lanes().into_iter().find(has) } else { None };
        let usual = || datagram_lane(port, &steering, &self.fabric.secrets.steering());
        Ok((there.unwrap_or_else(usual), placing))
    }

    /// Lets the sockets of a netstack begin in the lanes that its flows say now. Those that there are stay.
    pub(crate) fn steer(&self, registry: &mut Registry, id: NetstackId) -> Result<(), ChangeError> {
        let flows = registry.flow_lanes(id);
        let netstack = registry.netstack_mut(id)?;
        if flows.is_none() && netstack.steering.flows().is_none() {
            return Ok(());
        }
        let before = netstack.steering.lanes();
        let prepared = netstack.steering.prepared(flows.as_ref());
        let next = prepared.followed_by(flows.map(Arc::new));
        // From here on the home lane tells those that join what it learns.
        self.tell_steering(registry, id, prepared)?;
        // The listeners are in all of them, also if their home has failed.
        let mut tell = iter::once(next.home()).chain(before.iter().copied());
        let known = tell.find_map(|lane| self.fabric.visit(lane, |_, it| it.known(id)));
        let (learned, heard) = known.ok_or(ChangeError::LaneFailed)?;
        let joins = |lane: &LaneId| !before.contains(lane) && !self.fabric.has_failed(*lane);
        for lane in next.lanes().into_iter().filter(joins) {
            let learned = learned.iter().map(|it| LaneMessage::Learned(id, Box::new(it.clone())));
            let heard = heard.iter().flat_map(|(listen, filter)| {
                let filter = filter.iter().map(|it| SocketCommand::Filter(listen.socket, Arc::clone(it)));
                filter.chain([SocketCommand::Listen(Box::new(listen.clone()))])
            });
            let heard = heard.map(|command| LaneMessage::Socket(id, command));
            learned.chain(heard).try_for_each(|message| self.fabric.enter_surely(lane, message))?;
        }
        self.tell_steering(registry, id, next)?;
        self.settle_flows(registry, id)
    }

    /// Tells all lanes of a netstack's steering, and waits until the last of them has heard of it.
    fn tell_steering(
        &self,
        registry: &mut Registry,
        id: NetstackId,
        steering: Steering,
    ) -> Result<(), ChangeError> {
        let version = steering.version();
        registry.netstack_mut(id)?.steering = steering.clone();
        self.tell_all(|_| Control::Steer(id, steering.clone()))?;
        let hears = |lane: &mut Lane<Queue>| lane.steering_version(id) == Some(version);
        self.await_all(Instant::now() + HEARS_WITHIN, hears)
    }

    fn has_strangers(&self, lane: LaneId, id: NetstackId) -> bool {
        let mut from = 0;
        loop {
            match self.fabric.visit(lane, |_, it| it.strangers(id, from)) {
                Some(Strangers::NoneBefore(next)) => from = next,
                found => return found == Some(Strangers::Some),
            }
        }
    }

    /// Forgets what flows had before, if nothing is left that began by that. Lanes that have nothing more to do with the netstack
    /// hear of its listeners no more.
    fn settle_flows(&self, registry: &mut Registry, id: NetstackId) -> Result<(), ChangeError> {
        let netstack = registry.netstack_mut(id)?;
        if !netstack.steering.is_settling() || netstack.placing.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        let lanes = netstack.steering.lanes();
        // All lanes have heard of it, so what any has handed over by what was before waits for another one, or, in the second
        // round, for the one that that one has handed it to.
        let all = || self.fabric.lane_ids();
        let is_quiet = all().chain(all()).all(|lane| self.fabric.has_caught_up(lane));
        if !is_quiet || lanes.iter().any(|&lane| self.has_strangers(lane, id)) {
            return Ok(());
        }
        let settled = netstack.steering.settled();
        let stays = settled.lanes();
        self.tell_steering(registry, id, settled)?;
        for lane in lanes.into_iter().filter(|lane| !stays.contains(lane)) {
            let heard = self.fabric.visit(lane, |_, it| it.known(id).1).unwrap_or_default();
            for (listen, _) in heard {
                let unlisten = LaneMessage::Socket(id, SocketCommand::Unlisten(listen.socket));
                self.fabric.enter_surely(lane, unlisten)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_drawn_are_of_no_range() {
        let drawn = 32768..=60999;
        for (ports, beside) in [
            ("80", "80"),
            ("40000", "40000"),
            ("80-90", "80-90"),
            ("30000-65535", "30000-32767 61000-65535"),
            ("32768-60999", ""),
            ("40000-61000", "61000"),
            ("32767-32768", "32767"),
        ] {
            let parts = beside_drawn(Some(ports.parse().unwrap()), &drawn);
            let shown: Vec<_> = parts.iter().flatten().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), beside, "{ports}");
        }
        assert_eq!(beside_drawn(None, &drawn), [None]);
        assert!(beside_drawn(Some("1-65535".parse().unwrap()), &(1..=65535)).is_empty());
    }
}
