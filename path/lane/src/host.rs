//! What stands inside a squeue: a lane, and the outlet through which its outbox is emptied.
//!
//! Called by the squeue only. Whoever is inside, worker or application, does the same before he leaves: the
//! lane settles (what is to be sent is sent), and its outbox goes to the engine.

use firelane_frame::Driver;
use firelane_units::Instant;

use crate::lane::Lane;
use crate::message::LaneMessage;
use crate::outbox::Outlet;
use crate::squeue::{Idle, Inside, Sleep};

/// A lane with its outlet.
pub struct Host<D, O> {
    /// The lane.
    pub lane: Lane<D>,
    /// Where its outbox goes.
    pub outlet: O,
}

impl<D: Driver, O: Outlet<D>> Inside<LaneMessage<D>> for Host<D, O> {
    fn run(&mut self, now: Instant, item: LaneMessage<D>) -> Option<LaneMessage<D>> {
        self.lane.on_message(now, item);
        None
    }

    fn leave(&mut self, now: Instant) -> bool {
        let wakes = self.lane.settle(now);
        self.lane.empty_outbox(&mut self.outlet) || wakes
    }

    fn turn(&mut self, now: Instant, idle: Idle) -> Sleep {
        let turned = self.lane.go_through(now, idle);
        // Others go on with what is for them while this one looks how long it may sleep.
        let is_left = self.lane.empty_outbox(&mut self.outlet);
        let mut sleep = self.lane.end_turn(turned, idle);
        sleep.work_left |= is_left;
        sleep
    }
}
