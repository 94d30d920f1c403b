//! Queues set aside: a flow of a device that has a lane of its own gets the frames of its device straight into that lane.
//!
//! A TAP can have one queue more for each such flow, in the flow's lane, and a program that gives it the flow's frames
//! (`drivers/tap/src/choosing.rs`). Who sends them wakes nobody else, and nobody else reads them. It is for what comes from the device alone:
//! to the device the lane sends by what is lent to it (`lent.rs`). Brought up to date whenever flows, lanes or rings change. Where
//! the system has no queue or program for it, or rules are too many to look through for each frame, the lanes that read the
//! device hand the flow's frames over.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use firelane_classify::FlowMatch;
use firelane_driver_tap::Selector;
use firelane_lane::{Control, Lane};
use firelane_units::{Direction, FlowId, LaneId, LinkId};

use crate::engine::Inner;
use crate::error::ChangeError;
use crate::own_lanes::STEP_MAX;
use crate::queue::Queue;
use crate::registry::{Choice, Flow, Queues, Registry};

/// How many rules a frame may be compared with when a device chooses its queue: some ten instructions each.
const RULES_MAX: usize = 64;
/// A sender that has chosen a queue is done with it by then: that takes less than a microsecond, unless the machine stops under it.
const GRACE: Duration = Duration::from_millis(2);

/// A queue of its own that a flow has, and the lane that reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Aside {
    /// None if it is nobody's: it has its number in the kernel, and gets no frames.
    flow: Option<FlowId>,
    lane: LaneId,
}

/// What becomes of the queues of a device that are set aside.
#[derive(PartialEq, Eq, Debug)]
struct Plan {
    /// The first ones stay, for these flows; those behind them end.
    stay: Vec<Aside>,
    /// Then these come.
    come: Vec<Aside>,
}

/// The kernel numbers queues anew when one ends that is not the last, and a lane that has failed ends none: those before it stay with
/// it, whosever they are then.
fn plan(there: &[Aside], wanted: &[Aside], has_failed: impl Fn(LaneId) -> bool) -> Plan {
    let mut come: Vec<_> = wanted.iter().copied().filter(|it| !has_failed(it.lane)).collect();
    let bound = there.iter().rposition(|it| has_failed(it.lane)).map_or(0, |last| last + 1);
    let (bound, free) = there.split_at(bound);
    let mut stay = bound.to_vec();
    for it in &mut stay {
        let its = come.iter().position(|wanted| wanted.lane == it.lane && it.flow == wanted.flow);
        it.flow = its.and_then(|at| come.remove(at).flow);
    }
    // What has become nobody's may be somebody else's.
    for it in stay.iter_mut().filter(|it| it.flow.is_none()) {
        let its = come.iter().position(|wanted| wanted.lane == it.lane && !free.contains(wanted));
        it.flow = its.and_then(|at| come.remove(at).flow);
    }
    let same = free.iter().zip(&come).take_while(|(there, wanted)| there == wanted).count();
    stay.extend(come.drain(..same));
    Plan { stay, come }
}

impl Registry {
    /// The flows of a port's device that are to have a queue of their own.
    fn wanted_aside(&self, port: LinkId) -> Vec<Aside> {
        let Some(queues) = self.queues.get(&port) else { return Vec::new() };
        let its = self.flows_with_lanes().filter(|(_, flow)| flow.owner == port && !queues.lanes.is_empty());
        // A limit above a flow may be kept in another lane, which then gets its frames.
        let own = |flow: &Flow| flow.lanes.first().copied().filter(|&it| flow.home == Some(it));
        let wanted: Vec<_> = its
            .filter_map(|(flow, it)| Some(Aside { flow: Some(flow), lane: own(it)? }))
            .filter(|it| !queues.lanes.contains(&it.lane))
            .collect();
        let is_long = |it: Choice| it.aside.len() > RULES_MAX;
        if self.choice(port, queues, &wanted).is_some_and(is_long) { Vec::new() } else { wanted }
    }

    /// What the device of a port is to be told: by which queues frames come, if these flows have one of their own; nothing if it may do
    /// as it likes.
    fn choice(&self, port: LinkId, queues: &Queues, aside: &[Aside]) -> Option<Choice> {
        let all = queues.lanes.len() as u16;
        let few = queues.rings.fetched.filter(|&rings| rings < all);
        if aside.is_empty() {
            return few.map(|rings| Choice { rings, aside: Vec::new() });
        }
        let direction = if self.vnics.contains_key(&port) { Direction::Out } else { Direction::In };
        let mut rules: Vec<_> = (self.flows.iter())
            .filter(|(_, flow)| flow.owner == port)
            .filter_map(|(&id, flow)| flow.rule.filter(FlowMatch::tells_connections).map(|rule| (rule, id)))
            .collect();
        rules.sort_by_key(|(rule, _)| rule.rank());
        let ring = |id: FlowId| {
            let nth = aside.iter().position(|it| it.flow == Some(id))?;
            Some(all + nth as u16)
        };
        let mut aside: Vec<_> =
            rules.iter().map(|(rule, id)| (selector(rule, direction), ring(*id))).collect();
        // What comes behind the last of them goes where the rest does.
        aside.truncate(aside.iter().rposition(|(_, ring)| ring.is_some()).map_or(0, |last| last + 1));
        Some(Choice { rings: few.unwrap_or(all), aside })
    }
}

/// What frames from a device have in common that are of a flow, if they go in this direction.
fn selector(rule: &FlowMatch, direction: Direction) -> Selector {
    let protocol = rule.transport.map(|it| it.0);
    let (local, remote) = ((rule.local_ip, rule.local_port), (rule.remote_ip, rule.remote_port));
    let ((source, source_port), (destination, destination_port)) = match direction {
        Direction::Out => (local, remote),
        Direction::In => (remote, local),
    };
    Selector { source, destination, protocol, source_port, destination_port }
}

impl Inner {
    /// Sets queues aside for the flows of all devices that are to have one, and for no others.
    pub(crate) fn set_aside(&self, registry: &mut Registry) -> Result<(), ChangeError> {
        let with_lanes = registry.flows_with_lanes().map(|(_, flow)| flow.owner);
        let before = registry.queues.iter().filter(|(_, it)| !it.aside.is_empty()).map(|(&port, _)| port);
        let ports: BTreeSet<_> = with_lanes.chain(before).collect();
        ports.into_iter().try_for_each(|port| self.set_aside_of(registry, port))
    }

    /// The same for one device.
    pub(crate) fn set_aside_of(&self, registry: &mut Registry, port: LinkId) -> Result<(), ChangeError> {
        let wanted = registry.wanted_aside(port);
        self.keep_aside(registry, port, &wanted)
    }

    /// Sets queues of a device aside for these flows and no others.
    pub(crate) fn keep_aside(
        &self,
        registry: &mut Registry,
        port: LinkId,
        wanted: &[Aside],
    ) -> Result<(), ChangeError> {
        let Some(queues) = registry.queues.get_mut(&port) else { return Ok(()) };
        let Plan { stay, come } = plan(&queues.aside, wanted, |lane| self.fabric.has_failed(lane));
        queues.aside[..stay.len()].copy_from_slice(&stay);
        while let Some(queues) = registry.queues.get_mut(&port)
            && queues.aside.len() > stay.len()
            && let Some(ended) = queues.aside.pop()
        {
            let ring = (queues.lanes.len() + queues.aside.len()) as u16;
            if let Err(error) = self.choose(registry, port) {
                registry.queues.get_mut(&port).into_iter().for_each(|it| it.aside.push(ended));
                return Err(error);
            }
            thread::sleep(GRACE);
            self.end_queue(port, ended.lane, ring)?;
        }
        for new in come {
            let Some(queues) = registry.queues.get_mut(&port) else { break };
            queues.aside.push(new);
            let ring = (queues.lanes.len() + queues.aside.len() - 1) as u16;
            let reader = queues.lanes.first().copied();
            let can_choose = self.choose(registry, port).is_ok();
            if !can_choose || !reader.is_some_and(|reader| self.add_queue(port, reader, new.lane, ring)) {
                registry.queues.get_mut(&port).and_then(|it| it.aside.pop());
                break;
            }
        }
        self.choose(registry, port)
    }

    /// Opens one more queue of a device in this lane; whether that could be done.
    fn add_queue(&self, port: LinkId, reader: LaneId, lane: LaneId, ring: u16) -> bool {
        let Some(Ok(same)) = self.ask_queue(reader, port, Queue::for_sending) else { return false };
        let Some(Ok(mut queue)) = same.one_more(ring) else { return false };
        self.fabric.watch(lane, &mut queue).is_ok() && self.tell(lane, Control::AddQueue(port, queue)).is_ok()
    }

    /// Ends a queue by which nothing more comes, and waits until what was in it has been read.
    fn end_queue(&self, port: LinkId, lane: LaneId, ring: u16) -> Result<(), ChangeError> {
        self.tell(lane, Control::EndQueue(port, ring))?;
        let is_gone = |it: &mut Lane<Queue>| it.rings_of(port).iter().all(|&(other, _)| other != ring);
        self.await_lane(lane, Instant::now() + STEP_MAX, is_gone)
    }

    /// Tells a port's device by which queues frames are to come, if that is something else than what it was told last.
    pub(crate) fn choose(&self, registry: &mut Registry, port: LinkId) -> Result<(), ChangeError> {
        let Some(queues) = registry.queues.get(&port) else { return Ok(()) };
        let choice = registry.choice(port, queues, &queues.aside);
        if choice == queues.choice {
            return Ok(());
        }
        let spreader = |&lane: &LaneId| self.ask_queue(lane, port, Queue::spreader);
        let all = queues.lanes.len() as u16;
        let asked = choice.as_ref().map_or(all, |it| it.rings);
        let spreader =
            queues.lanes.iter().find_map(spreader).ok_or(ChangeError::FixedRings { asked, all })?;
        spreader.and_then(|it| it.spread(choice.as_ref())).map_err(ChangeError::Spread)?;
        if let Some(queues) = registry.queues.get_mut(&port) {
            queues.choice = choice;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: LaneId = LaneId(9);

    fn of(flow: u32, lane: u16) -> Aside {
        Aside { flow: Some(FlowId(flow)), lane: LaneId(lane) }
    }

    fn nobodys(lane: u16) -> Aside {
        Aside { flow: None, lane: LaneId(lane) }
    }

    #[test]
    fn queues_end_from_the_last_one_on_and_none_of_a_lane_that_has_failed() {
        let [a, b, c, lost] = [of(1, 1), of(2, 2), of(3, 3), of(4, LOST.0)];
        for (there, wanted, stay, come) in [
            (vec![a, b], vec![a, b, c], vec![a, b], vec![c]),
            (vec![a, b, c], vec![a, c], vec![a], vec![c]),
            (vec![lost, b], vec![b], vec![nobodys(9), b], vec![]),
            (vec![lost, b], vec![lost, b], vec![nobodys(9), b], vec![]),
            (vec![lost, b, c], vec![c], vec![nobodys(9)], vec![c]),
            (vec![lost], vec![a], vec![nobodys(9)], vec![a]),
            (vec![a, lost, c], vec![c], vec![nobodys(1), nobodys(9), c], vec![]),
            (vec![nobodys(1), nobodys(9), c], vec![of(7, 1), c], vec![of(7, 1), nobodys(9), c], vec![]),
            (vec![], vec![lost], vec![], vec![]),
        ] {
            let planned = plan(&there, &wanted, |lane| lane == LOST);
            assert_eq!(planned, Plan { stay, come }, "{there:?} {wanted:?}");
        }
    }
}
