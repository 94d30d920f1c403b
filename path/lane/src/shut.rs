//! Flows that are flooded: their conversations are shut out at the device, if it has a door (`Driver::shut_out`).
//!
//! A limit drops what it cannot hold, but a frame has been read, classified and charged by then, and the next one of the same
//! conversation has the same fate. So who loses frames without end is shut out until the flow holds less than half of what
//! it may, but for ten milliseconds at most. What ended at the door is counted as if it had been read and
//! dropped here. Called by the turn, for what `links.rs` leaves when a limit drops a frame.

use core::mem;
use core::time::Duration;

use firelane_flow::FlowTable;
use firelane_frame::{Driver, Frame};
use firelane_units::{Direction, DropReason, FlowId, Instant, LinkId};

use crate::common::Common;
use crate::links::Links;
use crate::ports::Queue;

/// How long conversations are shut out at most while their flow has no room: half of what a hold holds, so that theirs are
/// served on with those of their neighbours.
const SHUT_MAX: Duration = Duration::from_millis(10);

/// A frame that a limit has decided to drop, while the flow loses frames without end.
pub(crate) struct Flood {
    pub(crate) port: LinkId,
    pub(crate) flow: FlowId,
    pub(crate) side: Direction,
    pub(crate) frame: Frame,
}

/// A flow with conversations that are shut out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shut {
    flow: FlowId,
    /// The flow's side.
    side: Direction,
    /// The port whose device has the door.
    port: LinkId,
    since: Instant,
}

impl<D: Driver> Links<D> {
    /// Shuts a flood out that has been seen, and drops its frame. While somebody looks at frames he is to see all of them.
    pub(crate) fn answer_flood(&mut self, common: &mut Common<D>) {
        let Some(Flood { port, flow, side, frame }) = self.flood.take() else { return };
        if !common.watch.is_tracing() && common.taps.is_empty() {
            self.shut_out(common.now, port, flow, side, &frame);
        }
        self.drop_at(common, port, Direction::Out, frame, DropReason::FlowLimit);
    }

    fn shut_out(&mut self, now: Instant, port: LinkId, flow: FlowId, side: Direction, frame: &Frame) {
        let Some(queue) = self.queue_of(port) else { return };
        if queue.driver.shut_out(now, frame.as_slice(), flow)
            && !self.shut.iter().any(|it| it.flow == flow && it.port == port)
        {
            self.shut.push(Shut { flow, side, port, since: now });
        }
    }

    /// Lets those in again whose flow has room, or who have been out for long.
    pub(crate) fn let_in(&mut self, common: &mut Common<D>) {
        if self.shut.is_empty() {
            return;
        }
        let now = common.now;
        self.open_doors(common, |flows, it| {
            flows.has_room(it.flow, it.side)
                // Behind a limit of zero nobody is ever served.
                || it.since + SHUT_MAX <= now && !flows.is_closed(it.flow, it.side)
        });
    }

    /// Flows, limits or rules are about to change: everybody is let in.
    pub(crate) fn let_all_in(&mut self, common: &mut Common<D>) {
        self.open_doors(common, |_, _| true);
    }

    fn open_doors(&mut self, common: &mut Common<D>, is_over: impl Fn(&FlowTable, &Shut) -> bool) {
        if self.shut.is_empty() {
            return;
        }
        let mut shut = mem::take(&mut self.shut);
        shut.retain(|it| {
            let is_over = is_over(&self.flows, it);
            if is_over {
                self.flows.forget_flood(it.flow, it.side);
                if let Some(queue) = self.queue_of(it.port) {
                    queue.driver.let_in(common.now, it.flow);
                }
                self.count_turned_away_at(common, *it);
            }
            !is_over
        });
        self.shut = shut;
    }

    /// Counts what has ended at the doors up to now.
    pub(crate) fn count_turned_away(&mut self, common: &mut Common<D>) {
        for nth in 0..self.shut.len() {
            self.count_turned_away_at(common, self.shut[nth]);
        }
    }

    fn count_turned_away_at(&mut self, common: &mut Common<D>, at: Shut) {
        let mut told = mem::take(&mut self.told);
        if let Some(queue) = self.queue_of(at.port) {
            queue.driver.turned_away(&mut |flow, weight| told.push((flow, weight)));
        }
        for (flow, weight) in told.drain(..) {
            self.flows.count_turned_away(flow, at.side, weight);
            common.counters.received += weight.packets;
            common.counters.drops.add(DropReason::FlowLimit, weight.packets);
            if let Some(port) = self.ports.get_mut(at.port.0) {
                let outward = &mut port.counters.outward;
                outward.packets += weight.packets;
                outward.bytes += weight.bytes;
                outward.dropped += weight.packets;
            }
        }
        self.told = told;
    }

    fn queue_of(&mut self, port: LinkId) -> Option<&mut Queue<D>> {
        // One by which nothing is sent has the same door.
        let sends = self.ports.get(port.0)?.queue;
        let place = sends.or_else(|| self.spare_queue(port, true))?;
        self.queues.get_mut(place)
    }
}
