//! A lane and its devices: fetching under the polling policy, sending once per turn, notifications.
//!
//! Called by `turn.rs`. A chain is fetched, passed through the link side, and then the next queue has its turn,
//! so that no device starves the others.

use core::mem;
use firelane_flow::Credit;

use firelane_frame::{Arrival, Chain, Driver, offload};
use firelane_units::{Direction, FlowId, Instant, LinkId};

use crate::common::Common;
use crate::copies::Users;
use crate::links::Links;
use crate::message::PortKind;
use crate::poll::{Fetched, Load, Polling};
use crate::ports::Stay;
use crate::sent::Asked;

/// The frames that one queue may bring per round: long enough to pay the round's costs, short enough that they
/// are still in the cache when they leave.
pub(crate) const FETCH_FRAMES: usize = 64;

/// How many queues before its turn the memory of one is fetched, where many send: as much as a CPU fetches at once.
const NEAR: usize = 4;

/// How a round of fetching goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct How {
    /// Devices that are known to be empty are passed over.
    pub(crate) passes_empty: bool,
    /// It does not sleep, so that no device calls.
    pub(crate) ignores_calls: bool,
    /// The worker has listened since the last round, and somebody may have called.
    pub(crate) is_heard: bool,
}

impl<D: Driver> Links<D> {
    /// Tells devices without a clock what time it is.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.queues.each_awake(|queue| queue.driver.advance(now));
    }

    /// Fetches one chain from every queue that does not rest and passes it through. After each chain `between` gets the chance to consume what
    /// has arrived.
    pub(crate) fn fetch(
        &mut self,
        common: &mut Common<D>,
        how: How,
        chain: &mut Chain,
        mut between: impl FnMut(&mut Self, &mut Common<D>),
    ) -> Fetched {
        self.senders.advance(common.now);
        let mut fetched = Fetched::default();
        let mut visited = mem::take(&mut self.visited);
        visited.extend_from_slice(self.queues.awake_places());
        for place in visited.drain(..) {
            let ends = self.stay_of(place) == Some(Stay::Ends);
            let is_polled = how.ignores_calls || self.is_polled(place);
            let is_silent = how.passes_empty && self.may_pass_over(place)
                || !is_polled && !self.has_called(place, how.is_heard);
            if is_silent && !ends {
                continue;
            }
            self.load = Load::default();
            let frames = self.fetch_from(common, place, chain);
            if frames > 0 {
                if is_polled {
                    fetched.polled += frames;
                    fetched.load += self.load;
                    if !self.is_drained(place) {
                        fetched.before_more += frames;
                    }
                }
                between(self, common);
            }
            if ends && frames == 0 && !self.left_frames(place) {
                match self.leaves_some(place) {
                    true => self.is_unended = true,
                    false => self.forget_queue(place),
                }
            }
        }
        self.visited = visited;
        fetched
    }

    fn stay_of(&self, place: usize) -> Option<Stay> {
        self.queues.get(place).map(|queue| queue.stay)
    }

    fn is_polled(&self, place: usize) -> bool {
        self.queues.get(place).is_some_and(|queue| queue.polling == Polling::Auto)
    }

    /// Whether a device that is not polled may be read: it was asked to call since it was last read, and somebody has called;
    /// it had frames already when it was asked; or its limit lets frames pass again.
    fn has_called(&self, place: usize, is_heard: bool) -> bool {
        self.queues
            .get(place)
            .is_some_and(|queue| queue.notifies && is_heard || queue.has_more || queue.not_before.is_some())
    }

    /// Whether the lane may pause under load: all devices have room meanwhile, and may be read without a call, and no limit
    /// keeps neighbours apart.
    pub(crate) fn may_pause(&self) -> bool {
        self.queues.awake().all(|(_, queue)| queue.polling == Polling::Auto && queue.driver.can_wait())
            && !self.flows.has_limits()
    }

    fn may_pass_over(&self, place: usize) -> bool {
        self.is_drained(place) && !self.left_frames(place)
    }

    /// Whether a limit kept frames in a queue when it was read last.
    fn left_frames(&self, place: usize) -> bool {
        self.queues.get(place).is_some_and(|queue| queue.not_before.is_some())
    }

    /// Whether a ring that ends has frames for which there was no buffer, or that lie behind what it has refused.
    fn leaves_some(&mut self, place: usize) -> bool {
        self.queues.get_mut(place).is_some_and(|queue| queue.driver.notify(true))
    }

    /// Whether a ring that ends is to be read again. Nothing calls for it.
    pub(crate) fn take_unended(&mut self) -> bool {
        mem::take(&mut self.is_unended)
    }

    fn is_drained(&self, place: usize) -> bool {
        self.queues.get(place).is_some_and(|queue| queue.driver.is_drained())
    }

    /// Fetches from one queue. A port of its own limit is fetched from frame by frame, and not at all while it is
    /// over the limit: what it may not send stays in its ring, where its sender sees it.
    fn fetch_from(&mut self, common: &mut Common<D>, place: usize, chain: &mut Chain) -> usize {
        let Some(queue) = self.queues.get_mut(place).filter(|queue| queue.stay != Stay::Leaves) else {
            return 0;
        };
        (queue.not_before, queue.has_more) = (None, false);
        let (port, budget) = (queue.port, queue.copies.budget());
        if budget == 0 {
            // What its copies have taken from others they get first. Then it is its turn again.
            queue.not_before = Some(common.now);
            return 0;
        }
        let Some(flow) = self.own_limit(port) else {
            return self.fetch_chain(common, place, budget, chain);
        };
        let asked = Asked { flows: [Some((flow, Direction::Out)), None], speaker: None };
        let mut fetched = 0;
        let mut not_before = None;
        while fetched < budget {
            if let Credit::At(until) = self.credit(common, asked) {
                self.flows.note_waiting(common.now, flow, Direction::Out, true);
                not_before = Some(until);
                break;
            }
            if self.fetch_chain(common, place, 1, chain) == 0 {
                self.flows.note_waiting(common.now, flow, Direction::Out, false);
                break;
            }
            fetched += 1;
        }
        if let Some(queue) = self.queues.get_mut(place) {
            queue.not_before = not_before;
        }
        fetched
    }

    /// The flow that limits everything that a port's user sends, if there is such a limit.
    fn own_limit(&self, port: LinkId) -> Option<FlowId> {
        let port = self.ports.get(port.0)?;
        let flow = port.default_flow()?;
        let is_kept = self.places.get(flow.0)?.home.is_some();
        (is_kept && port.rules.is_empty()).then_some(flow)
    }

    fn fetch_chain(
        &mut self,
        common: &mut Common<D>,
        place: usize,
        budget: usize,
        chain: &mut Chain,
    ) -> usize {
        let Some(queue) = self.queues.get_mut(place) else { return 0 };
        let port = queue.port;
        let dropped = common.counters.drops.total();
        let Common { pools, counters, .. } = common;
        let frames = queue.driver.receive(pools, budget, chain, &mut counters.drops);
        // What the driver itself dropped had come in, too.
        common.counters.received += frames as u64 + (common.counters.drops.total() - dropped);
        if frames > 0 {
            let arrival = if mem::take(&mut queue.notifies) { Arrival::Notified } else { Arrival::Polled };
            queue.count_fetched(chain, arrival);
            self.flooded = 0;
            self.take_received(common, port, arrival, chain);
            let ports = &self.ports;
            let is_uplink = || ports.get(port.0).is_some_and(|port| port.kind == PortKind::Uplink);
            let users = || if is_uplink() { Users::Many } else { Users::One };
            if let Some(queue) = self.queues.get_mut(place) {
                queue.copies.charge(users, frames, self.flooded);
            }
        }
        frames
    }

    /// Sends what waits for the devices. Answers whether some device is full and frames wait on.
    pub(crate) fn flush(&mut self, common: &mut Common<D>) -> bool {
        let mut full = false;
        let mut sending = mem::take(&mut self.sending);
        sending.extend(self.queues.awake().filter(|(_, queue)| !queue.tx.is_empty()).map(|(at, _)| at));
        let is_many = sending.len() > NEAR;
        for (nth, &at) in sending.iter().enumerate() {
            if is_many {
                self.look_ahead(sending.get(nth + 2 * NEAR), false);
                self.look_ahead(sending.get(nth + NEAR), true);
            }
            full |= self.send(common, at);
        }
        sending.clear();
        self.sending = sending;
        full
    }

    /// The turn of a queue, if there is one, is near.
    #[inline]
    fn look_ahead(&self, at: Option<&usize>, has_begun: bool) {
        if let Some(queue) = at.and_then(|&at| self.queues.get(at)) {
            queue.driver.look_ahead(has_begun);
        }
    }

    /// Sends what waits for one device. Whether it is full and frames wait on.
    fn send(&mut self, common: &mut Common<D>, at: usize) -> bool {
        let Some(queue) = self.queues.get_mut(at) else { return false };
        if queue.prepared < queue.tx.len() {
            let before = queue.tx.len() as u64;
            let dropped = common.counters.drops.total();
            let Common { pools, counters, .. } = &mut *common;
            offload::prepare(&mut queue.tx, &queue.capabilities, pools, &mut counters.drops);
            let dropped = common.counters.drops.total() - dropped;
            common.counters.copied += (queue.tx.len() as u64 + dropped).saturating_sub(before);
        }
        let waiting = queue.tx.len() as u64;
        let dropped = common.counters.drops.total();
        // Whoever settles in the worker's stead comes long after the turn that told the time last.
        queue.driver.advance(common.now);
        queue.driver.transmit(&mut queue.tx, &mut common.counters.drops);
        let dropped = common.counters.drops.total() - dropped;
        common.counters.forwarded += waiting - queue.tx.len() as u64 - dropped;
        queue.prepared = queue.tx.len();
        !queue.tx.is_empty()
    }

    /// Turns notifications of the devices that are polled on or off; answers whether frames are waiting already.
    pub(crate) fn notify(&mut self, on: bool) -> bool {
        let mut waiting = false;
        self.queues.each_awake(|queue| {
            if queue.polling == Polling::Auto {
                waiting |= queue.notify(on);
            }
        });
        if on {
            self.queues.let_rest();
        }
        waiting
    }

    /// Asks the devices that are not polled to call, each once after it was read; answers whether frames are waiting already. What they
    /// have is left there while the lane may not fetch it: they would call for it without end.
    pub(crate) fn ask_unpolled(&mut self, may_fetch: bool) -> bool {
        if self.unpolled == 0 {
            return false;
        }
        let mut waiting = false;
        self.queues.each_awake(|queue| match (queue.polling, may_fetch) {
            (Polling::Off, true) => {
                if !queue.notifies {
                    queue.has_more = queue.notify(true);
                }
                waiting |= queue.has_more;
            }
            (Polling::Off, false) if queue.notifies => {
                queue.driver.leave(true);
                queue.notifies = false;
            }
            _ => {}
        });
        waiting
    }

    /// When a device will have something to do by itself, or a port may be fetched from again.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let times = self.queues.awake().map(|(_, queue)| match queue.not_before {
            // Behind a limit of zero nothing ever happens.
            Some(at) => (at != Instant::FAR_FUTURE).then_some(at),
            None => queue.driver.next_event(),
        });
        times.flatten().min()
    }

    /// Frames that wait for devices, or to go on.
    pub(crate) fn queued(&self) -> usize {
        let waiting = self.queues.iter().map(|queue| queue.tx.len()).sum::<usize>();
        waiting + self.loops.len() + self.tunneled.len() + self.kept()
    }
}
