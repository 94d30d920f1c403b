//! What every part of a lane uses: identity, the turn's clock, buffers, counters, outbox.
//!
//! Passed down as one argument, so that the link side and the netstacks stay separate owners of their state.

use std::sync::Arc;

use firelane_frame::{Chain, Frame, Pools};
use firelane_units::{DropReason, Instant, LaneId};

use crate::backlog::Backlogs;
use crate::capture::Taps;
use crate::config::{LaneConfig, Secrets};
use crate::counters::LaneCounters;
use crate::outbox::Outbox;
use crate::probes;

/// The shared parts of a lane.
#[derive(Debug)]
pub(crate) struct Common<D> {
    pub(crate) id: LaneId,
    /// The clock as it was read for this turn.
    pub(crate) now: Instant,
    pub(crate) pools: Pools,
    pub(crate) counters: LaneCounters,
    pub(crate) outbox: Outbox<D>,
    pub(crate) secrets: Secrets,
    pub(crate) backlogs: Arc<Backlogs>,
    /// Who looks on.
    pub(crate) taps: Taps,
}

impl<D> Common<D> {
    pub(crate) fn new(config: &LaneConfig) -> Self {
        Self {
            id: config.id,
            now: config.start,
            pools: Pools::new(config.pools),
            counters: LaneCounters::default(),
            outbox: Outbox::new(Arc::clone(&config.backlogs)),
            secrets: config.secrets,
            backlogs: Arc::clone(&config.backlogs),
            taps: Taps::default(),
        }
    }

    /// Ends a frame's way here.
    pub(crate) fn drop_frame(&mut self, frame: Frame, reason: DropReason) {
        self.counters.drops.count(reason);
        self.taps.dropped(self.now, &frame, reason);
        probes::ip_drop(&frame, reason);
        self.pools.put(frame);
    }

    /// Ends the way of all frames of a chain here.
    pub(crate) fn drop_chain(&mut self, chain: &mut Chain, reason: DropReason) {
        self.counters.drops.add(reason, chain.len() as u64);
        chain.iter().for_each(|frame| probes::ip_drop(frame, reason));
        self.pools.put_all(chain);
    }

    /// Consumes a frame: a netstack has what it needs of it.
    pub(crate) fn deliver(&mut self, frame: Frame) {
        self.counters.delivered += 1;
        self.pools.put(frame);
    }
}
