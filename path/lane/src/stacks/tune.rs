//! A netstack's tunables change while it runs.
//!
//! What new connections begin with, and what belongs to the shard, changes at once. A running connection holds an
//! `Arc` of TCP's tunables and gets the new one when the hand comes to it (`sweep.rs`).

use super::{NO_NETSTACK, Stacks};
use crate::control::Refusal;
use crate::message::NetstackConfig;

impl Stacks {
    /// Gives a netstack other tunables.
    pub(crate) fn tune(&mut self, config: NetstackConfig) -> Result<(), Refusal> {
        let shard = self.shards.get_mut(config.id).ok_or(NO_NETSTACK)?;
        let NetstackConfig { steering, dad, .. } = shard.config.clone();
        shard.config = NetstackConfig { steering, dad, ..config };
        shard.ip.core.set_forwarding(shard.config.forwarding);
        shard.ip.core.set_hop_limits(shard.config.hops);
        shard.searches.forget_exhausted();
        shard.time_wait.set_interval(shard.config.time_wait);
        shard.resets.set_rate(shard.config.resets_per_second);
        self.conns.hand.ask_all();
        Ok(())
    }
}
