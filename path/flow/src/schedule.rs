//! The release of held frames: which flow is next when a limit has room again.
//!
//! Each gate has its own queues of waiting flows and one alarm. When the alarm is due, for who is awake as soon as a frame may pass,
//! the gate serves who is owed of a guarantee, then the highest rank first and, inside a rank, deficit round robin: each flow gets
//! the same bytes per round whatever the size of its frames (Shreedhar and Varghese, 1995). A flow that another gate holds back
//! moves to that gate's queue. Every step serves, rotates or moves a flow, and a flow moves down only to a gate that has no room at
//! this instant, so a release ends.

use core::cmp::Reverse;

use firelane_frame::Frame;
use firelane_units::{Bytes, Direction, DropCounters, DropReason, FlowId, Instant};

use crate::gate::Gate;
use crate::table::FlowTable;

/// What is forgiven to who had more than his turn: all but so much.
const DEBT_MOST: i64 = 4 * 1514;

/// A gate to look at, earliest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Alarm(Reverse<(Instant, FlowId, Direction)>);

enum Step {
    /// A frame passed, or the flow's turn is over.
    Served,
    /// The flow waits elsewhere, or has nothing left.
    Left,
}

impl FlowTable {
    /// Releases what may pass at `now`, in order of priority and fairly inside it. Each frame goes to `pass` with its
    /// direction and flow. Frames whose limit was set to zero are dropped and counted in `drops`.
    ///
    /// Returns when to call again, if anything is held.
    pub fn release(
        &mut self,
        now: Instant,
        drops: &mut DropCounters,
        mut pass: impl FnMut(Direction, FlowId, Frame),
    ) -> Option<Instant> {
        while let Some((direction, flow, frame)) = self.release_next(now, drops) {
            pass(direction, flow, frame);
        }
        self.next_release()
    }

    /// Releases one of them. Who asks goes on with it before he asks for the next, until there is none: a frame that comes to a second limit
    /// on its way has to find those there that came before it.
    pub fn release_next(
        &mut self,
        now: Instant,
        drops: &mut DropCounters,
    ) -> Option<(Direction, FlowId, Frame)> {
        while let Some(&(flow, direction)) = self.loose.last() {
            let (step, frame) = self.serve(now, flow, direction, None, drops);
            if let Step::Left = step {
                self.loose.pop();
            }
            if let Some(frame) = frame {
                return Some((direction, flow, frame));
            }
        }
        loop {
            if let Some((gate, direction)) = self.opened {
                if let Some((flow, frame)) = self.pass_gate(now, gate, direction, drops) {
                    return Some((direction, flow, frame));
                }
                self.opened = None;
            }
            let Some(&Alarm(Reverse((at, gate, direction)))) =
                self.alarms.peek().filter(|it| it.0.0.0 <= now)
            else {
                self.forget_stale_alarms();
                return None;
            };
            self.alarms.pop();
            if let Some(state) = self.armed_at(gate, direction, at) {
                state.armed = None;
                self.opened = Some((gate, direction));
            }
        }
    }

    /// When [`release`](Self::release) has something to do for who is awake.
    #[inline]
    pub fn next_release(&self) -> Option<Instant> {
        if !self.loose.is_empty() {
            return Some(Instant::ZERO);
        }
        self.alarms.peek().map(|&Alarm(Reverse((at, ..)))| at)
    }

    /// When it is worth waking up for [`release`](Self::release): a little later, when more than a frame may pass.
    pub fn wake_for_release(&self) -> Option<Instant> {
        if !self.loose.is_empty() {
            return self.next_release();
        }
        let &Alarm(Reverse((at, gate, direction))) = self.alarms.peek()?;
        let gate = self.nodes.get(gate).and_then(|node| node.side(direction).gate.as_deref());
        let limiter = gate.map(|gate| &gate.limiter).filter(|limiter| !limiter.is_closed());
        Some(limiter.map_or(at, |limiter| at.max(limiter.wake_at())))
    }

    /// The gate, if this is its alarm and not one that a change of the limit has made void.
    fn armed_at(&mut self, flow: FlowId, direction: Direction, at: Instant) -> Option<&mut Gate> {
        let gate = self.nodes.get_mut(flow)?.side_mut(direction).gate.as_deref_mut()?;
        (gate.armed == Some(at)).then_some(gate)
    }

    /// Keeps the first alarm a true one, so that nobody wakes up for a void one.
    pub(crate) fn forget_stale_alarms(&mut self) {
        while let Some(&Alarm(Reverse((at, gate, direction)))) = self.alarms.peek()
            && self.armed_at(gate, direction, at).is_none()
        {
            self.alarms.pop();
        }
    }

    /// Sets a gate's alarm, if flows wait there and it has none.
    pub(crate) fn arm(&mut self, flow: FlowId, direction: Direction) {
        let Some(gate) = &mut self.nodes.at_mut(flow).side_mut(direction).gate else { return };
        if gate.armed.is_some() || gate.first().is_none() {
            return;
        }
        // A gate that was shut has frames to drop, which needs no waiting.
        let at = if gate.limiter.is_closed() { Instant::ZERO } else { gate.limiter.ready_at() };
        gate.limiter.note_waiting();
        gate.armed = Some(at);
        self.alarms.push(Alarm(Reverse((at, flow, direction))));
    }

    /// Serves the flows that wait at a gate until one of them has a frame that passes, or it has no room left.
    fn pass_gate(
        &mut self,
        now: Instant,
        gate: FlowId,
        direction: Direction,
        drops: &mut DropCounters,
    ) -> Option<(FlowId, Frame)> {
        loop {
            let state = self.nodes.get_mut(gate)?.side_mut(direction).gate.as_mut()?;
            let Some((first, _)) = state.first() else {
                state.limiter.forget_waiting();
                return None;
            };
            let turn = state.turn().0 as i64;
            if !state.limiter.is_ready(now) && !state.limiter.is_closed() {
                self.arm(gate, direction);
                return None;
            }
            let owed = self.nodes.most_owed(now, gate, direction);
            let served = owed.unwrap_or(first);
            if owed.is_none() {
                let side = self.nodes.at_mut(first).side_mut(direction);
                if !side.in_turn {
                    side.in_turn = true;
                    side.deficit += turn;
                }
                if side.hold.next_bytes().is_some_and(|bytes| bytes.0 as i64 > side.deficit) {
                    side.in_turn = false;
                    self.nodes.leave(first, direction);
                    self.nodes.enqueue(first, direction, gate);
                    continue;
                }
            }
            if let (_, Some(frame)) = self.serve(now, served, direction, Some(gate), drops) {
                return Some((served, frame));
            }
        }
    }

    /// Lets the first frame of a flow pass whose turn it is at gate `here`; or moves the flow to the gate that holds it
    /// back. Without a gate it waits nowhere, because its own was taken away.
    fn serve(
        &mut self,
        now: Instant,
        flow: FlowId,
        direction: Direction,
        here: Option<FlowId>,
        drops: &mut DropCounters,
    ) -> (Step, Option<Frame>) {
        let mut passed = None;
        let is_shut = self.nodes.is_shut(flow, direction);
        let closed = match is_shut {
            true => None,
            false => self.nodes.next_closed(now, flow, direction, here),
        };
        let side = self.nodes.at_mut(flow).side_mut(direction);
        if closed.is_none()
            && let Some(frame) = side.hold.pop()
        {
            self.held -= 1;
            let bytes = Bytes::from(frame.wire_bytes());
            // What was owed is part of the fair share, so that a guarantee below it changes nothing; what is above it is
            // forgiven but for a turn.
            side.deficit = (side.deficit - bytes.0 as i64).max(-DEBT_MOST);
            if is_shut {
                side.drop(&frame);
                drops.count(DropReason::FlowLimit);
            } else {
                side.counters.pass(frame.weight());
                self.nodes.charge(now, flow, direction, bytes, true);
                passed = Some(frame);
            }
        }
        let side = self.nodes.at_mut(flow).side_mut(direction);
        let is_done = side.hold.is_empty();
        if is_done {
            side.flood = 0;
        }
        if closed.is_none() && !is_done {
            return (Step::Served, passed);
        }
        (side.deficit, side.in_turn) = (0, false);
        self.nodes.leave(flow, direction);
        if let Some(closed) = closed
            && !is_done
        {
            self.nodes.enqueue(flow, direction, closed);
            self.arm(closed, direction);
        }
        (Step::Left, passed)
    }
}
