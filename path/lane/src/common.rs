//! What every part of a lane uses: identity, the turn's clock, buffers, counters, outbox.
//!
//! Passed down as one argument, so that the link side and the netstacks stay separate owners of their state.

use std::sync::Arc;

use firelane_frame::{Chain, Frame, Pools};
use firelane_units::{DropReason, Instant, LaneId, LinkId, NetstackId};

use crate::backlog::Backlogs;
use crate::capture::Taps;
use crate::config::{LaneConfig, Secrets};
use crate::counters::LaneCounters;
use crate::message::{LaneMessage, Stage};
use crate::outbox::Outbox;
use crate::poll::STOP_ABOVE;
use crate::probes;
use crate::stacks::Tickets;
use crate::watch::{Sight, Watch};

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
    /// What has come out of tunnels, and by which port it goes on; and storage of a chain of it.
    pub(crate) uncovered: (Vec<(LinkId, Frame)>, Chain),
    /// Links on which a netstack listens to other groups than before.
    pub(crate) regrouped: Vec<(NetstackId, LinkId)>,
    /// For those who wait for a limit.
    pub(crate) tickets: Tickets,
    /// Who looks on.
    pub(crate) taps: Taps,
    /// Who looks closely.
    pub(crate) watch: Watch,
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
            uncovered: (Vec::new(), Chain::new()),
            regrouped: Vec::new(),
            tickets: Tickets::default(),
            taps: Taps::default(),
            watch: Watch::default(),
        }
    }

    /// Something happens to the frame that a trace calls `frame`.
    #[inline]
    pub(crate) fn see(&mut self, frame: u32, what: Sight) {
        self.watch.see((self.id, self.now), frame, what);
    }

    /// Lets another lane go on with a frame.
    pub(crate) fn hand_over(&mut self, lane: LaneId, stage: Stage, link: LinkId, frame: Frame) {
        self.see(frame.meta().trace, Sight::Handed(lane));
        self.outbox.hand_over(lane, stage, link, frame);
    }

    /// Whether other lanes have so many of this one's frames yet to take that it makes no more which its programs could keep for it.
    pub(crate) fn is_ahead(&self) -> bool {
        self.backlogs.of(self.id) > STOP_ABOVE
    }

    /// Tells every other lane.
    pub(crate) fn tell_lanes(&mut self, message: impl Fn() -> LaneMessage<D>) {
        for lane in (0..self.backlogs.lanes()).map(|n| LaneId(n as u16)).filter(|&lane| lane != self.id) {
            self.outbox.messages.push((lane, message()));
        }
    }

    /// Ends a frame's way here.
    pub(crate) fn drop_frame(&mut self, frame: Frame, reason: DropReason) {
        self.counters.drops.count(reason);
        self.taps.dropped(self.now, &frame, reason);
        probes::ip_drop(&frame, reason);
        self.see(frame.meta().trace, Sight::Dropped(reason));
        self.pools.put(frame);
    }

    /// Ends the way of all frames of a chain here.
    pub(crate) fn drop_chain(&mut self, chain: &mut Chain, reason: DropReason) {
        self.counters.drops.add(reason, chain.len() as u64);
        for frame in chain.iter() {
            probes::ip_drop(frame, reason);
            self.watch.see((self.id, self.now), frame.meta().trace, Sight::Dropped(reason));
        }
        self.pools.put_all(chain);
    }

    /// Consumes a frame: a netstack has what it needs of it.
    pub(crate) fn deliver(&mut self, frame: Frame) {
        self.counters.delivered += 1;
        self.pools.put(frame);
    }

    /// The same at the end of a walk step by step.
    pub(crate) fn deliver_seen(&mut self, frame: Frame) {
        self.see(frame.meta().trace, Sight::Delivered);
        self.deliver(frame);
    }
}
