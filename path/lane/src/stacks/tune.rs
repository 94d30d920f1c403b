//! A netstack's tunables change while it runs.
//!
//! What new connections begin with, and what belongs to the shard, changes at once. A running connection holds an
//! `Arc` of TCP's tunables and gets the new one in its turn: so many places of the table per turn of the lane, because
//! a lane with a million connections must not be busy with a change for a tenth of a second.

use std::sync::Arc;

use firelane_units::{ConnId, Instant};

use super::{NO_NETSTACK, Stacks};
use crate::common::Common;
use crate::control::Refusal;
use crate::links::Links;
use crate::message::NetstackConfig;

/// Places that one turn looks at: a cache miss each, so well below a tenth of a millisecond.
const PLACES_PER_TURN: u32 = 256;

/// How far the connections follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    next: u32,
}

impl Sweep {
    pub(super) const fn begin() -> Self {
        Self { next: 0 }
    }
}

impl Stacks {
    /// Gives a netstack other tunables.
    pub(crate) fn tune(&mut self, config: NetstackConfig) -> Result<(), Refusal> {
        let shard = self.shards.get_mut(config.id.index()).ok_or(NO_NETSTACK)?;
        let NetstackConfig { steering, dad, .. } = shard.config.clone();
        shard.config = NetstackConfig { steering, dad, ..config };
        shard.ip.core.set_forwarding(shard.config.forwarding);
        shard.ip.core.set_hop_limits(shard.config.hops);
        shard.searches.forget_exhausted();
        shard.time_wait.set_interval(shard.config.time_wait);
        shard.resets.set_rate(shard.config.resets_per_second);
        self.sweep = Some(Sweep::begin());
        Ok(())
    }

    /// Hands the next connections their netstack's tunables, and asks whether they may be fused.
    pub(crate) fn sweep<D>(&mut self, common: &mut Common<D>, links: &Links<D>) {
        let Some(Sweep { next }) = self.sweep else { return };
        let end = next.saturating_add(PLACES_PER_TURN);
        for place in next..end {
            let id = ConnId(place);
            let Some(conn) = self.conns.slab.get_mut(id) else { continue };
            let Some(shard) = self.shards.get_mut(conn.netstack.index()) else { continue };
            conn.set_config(Arc::clone(&shard.config.tcp));
            self.reconsider(common, links, id);
            if self.conns.slab.get(id).is_some_and(|conn| !conn.fusion.is_on()) {
                // A time-out that runs may be another now.
                self.conns.arm(id, common.now);
            }
        }
        self.sweep = ((end as usize) < self.conns.slab.places()).then_some(Sweep { next: end });
    }

    /// When the sweep goes on: at once, if it is not over.
    pub(crate) fn sweep_at(&self, now: Instant) -> Option<Instant> {
        self.sweep.map(|_| now)
    }
}
