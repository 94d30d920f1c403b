//! A lane and its devices: fetching under the polling policy, sending once per turn, notifications.
//!
//! Called by `turn.rs`. A chain is fetched, passed through the link side, and then the next queue has its turn,
//! so that no device starves the others.

use firelane_frame::{Chain, Driver, offload};
use firelane_units::Instant;

use crate::common::Common;
use crate::links::Links;

/// The frames that one queue may bring per round: long enough to pay the round's costs, short enough that they
/// are still in the cache when they leave.
pub(crate) const FETCH_FRAMES: usize = 64;

impl<D: Driver> Links<D> {
    /// Tells devices without a clock what time it is.
    pub(crate) fn advance(&mut self, now: Instant) {
        for queue in self.queues.iter_mut() {
            queue.driver.advance(now);
        }
    }

    /// Fetches one chain from every queue and passes it through; answers how many frames there were. After each
    /// chain `between` gets the chance to consume what has arrived.
    pub(crate) fn fetch(
        &mut self,
        common: &mut Common<D>,
        chain: &mut Chain,
        mut between: impl FnMut(&mut Self, &mut Common<D>),
    ) -> usize {
        let mut fetched = 0;
        let mut nth = 0;
        while nth < self.queues.places() {
            let place = nth;
            nth += 1;
            let Some(queue) = self.queues.get_mut(place) else { continue };
            let port = queue.port;
            let dropped = common.counters.drops.total();
            let Common { pools, counters, .. } = common;
            let frames = queue.driver.receive(pools, FETCH_FRAMES, chain, &mut counters.drops);
            // What the driver itself dropped had come in, too.
            common.counters.received += frames as u64 + (common.counters.drops.total() - dropped);
            if frames > 0 {
                fetched += frames;
                self.take_received(common, port, chain);
                between(self, common);
            }
        }
        fetched
    }

    /// Sends what waits for the devices. Answers whether some device is full and frames wait on.
    pub(crate) fn flush(&mut self, common: &mut Common<D>) -> bool {
        let mut full = false;
        for queue in self.queues.iter_mut() {
            if queue.tx.is_empty() {
                continue;
            }
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
            queue.driver.transmit(&mut queue.tx, &mut common.counters.drops);
            let dropped = common.counters.drops.total() - dropped;
            common.counters.forwarded += waiting - queue.tx.len() as u64 - dropped;
            queue.prepared = queue.tx.len();
            full |= !queue.tx.is_empty();
        }
        full
    }

    /// Turns notifications on or off; answers whether frames are waiting already.
    pub(crate) fn notify(&mut self, on: bool) -> bool {
        let mut waiting = false;
        for queue in self.queues.iter_mut() {
            waiting |= queue.driver.notify(on);
        }
        waiting
    }

    /// When a device will have something to do by itself.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|queue| queue.driver.next_event()).min()
    }

    /// Frames that wait for devices.
    pub(crate) fn queued(&self) -> usize {
        self.queues.iter().map(|queue| queue.tx.len()).sum()
    }
}
