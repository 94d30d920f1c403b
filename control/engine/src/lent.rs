//! Queues that are lent: a lane of a link's, netstack's or flow's own sends to TAPs without passing by the lanes that read them.
//!
//! A TAP takes frames from several threads at a time. So each lane in reserve that serves somebody, and has no queue of a TAP's own,
//! has one of its queues once more, to send by (`path/lane/src/moving.rs`), unless it is said by how many rings the TAP is
//! sent to (`txrings`). Brought up to date whenever lanes, devices or rings change; where the system has no descriptor left, frames
//! go through the lane that they went through before.

use std::collections::BTreeSet;

use firelane_lane::Control;
use firelane_units::{LaneId, LinkId};

use crate::engine::Inner;
use crate::error::ChangeError;
use crate::queue::Queue;
use crate::registry::Registry;

impl Inner {
    /// Lends queues to the lanes that are to have some, and takes back those of others.
    pub(crate) fn lend(&self, registry: &mut Registry) -> Result<(), ChangeError> {
        let common = self.fabric.lane_count();
        let sends = |lane: &LaneId| lane.index() >= common && !self.fabric.has_failed(*lane);
        let used: BTreeSet<_> = registry.lanes_in_use().into_iter().filter(sends).collect();
        for port in registry.queues.keys().copied().collect::<Vec<_>>() {
            let Some(queues) = registry.queues.get(&port) else { continue };
            let is_fixed = queues.rings.sent.is_some() || queues.lanes.is_empty();
            let borrows = |lane: &&LaneId| !is_fixed && !queues.lanes.contains(lane);
            let wanted: Vec<_> = used.iter().filter(borrows).copied().collect();
            self.lend_to(registry, port, &wanted)?;
        }
        Ok(())
    }

    /// Lanes that serve nobody any more give back what was lent to them or set aside, and rest.
    pub(crate) fn take_back(&self, registry: &mut Registry) -> Result<(), ChangeError> {
        let lent = self.lend(registry);
        let aside = self.set_aside(registry);
        self.rest_lanes(registry);
        lent.and(aside)
    }

    /// Lets these lanes and no others have one of the port's queues to send by, if its device can do that.
    pub(crate) fn lend_to(
        &self,
        registry: &mut Registry,
        port: LinkId,
        wanted: &[LaneId],
    ) -> Result<(), ChangeError> {
        let Some(queues) = registry.queues.get_mut(&port) else { return Ok(()) };
        let before = queues.lent.clone();
        let same = |reader: LaneId| self.ask_queue(reader, port, Queue::for_sending);
        let mut lent = before.clone();
        for &lane in wanted.iter().filter(|lane| !before.contains(lane)) {
            let Some(Ok(queue)) = queues.lanes.first().and_then(|&reader| same(reader)) else { break };
            self.tell(lane, Control::AddQueue(port, queue))?;
            lent.push(lane);
        }
        lent.retain(|lane| wanted.contains(lane));
        if lent == before {
            return Ok(());
        }
        queues.lent = lent;
        self.direct(port, queues)?;
        // One that has failed sends nothing by it, and gives nothing back.
        let ends = |lane: &&LaneId| !queues.lent.contains(lane) && !self.fabric.has_failed(**lane);
        let ended = before.iter().filter(ends);
        ended.copied().try_for_each(|lane| self.tell(lane, Control::GiveBack(port)))
    }
}
