//! Datagram sockets that wait until a limit, or their own pace, lets them send: the earliest first.
//!
//! Owned by `shard.rs`, used by `datagrams_out.rs`. A program has as many such sockets as it may have sockets, each with a time of its own,
//! so finding a place for one must not cost more the more there are.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use firelane_units::{Instant, SocketId};

/// Those of a shard.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    /// When, the how manieth it was, and which.
    waiting: BinaryHeap<Reverse<(Instant, u64, SocketId)>>,
    count: u64,
}

impl Limited {
    /// One goes on at that time, behind those that have it, too.
    pub(crate) fn put(&mut self, at: Instant, socket: SocketId) {
        self.count += 1;
        self.waiting.push(Reverse((at, self.count, socket)));
    }

    /// Takes the next one whose time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<SocketId> {
        self.next_at().filter(|&at| at <= now)?;
        self.waiting.pop().map(|Reverse((.., socket))| socket)
    }

    /// Takes all of them, whose limits may be others now.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = SocketId> + use<> {
        core::mem::take(&mut self.waiting)
            .into_sorted_vec()
            .into_iter()
            .rev()
            .map(|Reverse((.., socket))| socket)
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the first one goes on.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse((at, ..))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_go_on_in_order_of_time_and_then_as_they_came(times in prop::collection::vec(0u64..20, 0..60), now in 0u64..20) {
            let mut limited = Limited::default();
            for (nth, &time) in (0..).zip(&times) {
                limited.put(Instant::from_secs(time), SocketId(nth));
            }
            prop_assert_eq!(limited.next_at(), times.iter().min().map(|&time| Instant::from_secs(time)));
            let mut expected: Vec<_> = times.iter().copied().zip(0..).filter(|&(time, _)| time <= now).collect();
            expected.sort_by_key(|&(time, _)| time);
            let due: Vec<_> = core::iter::from_fn(|| limited.take_due(Instant::from_secs(now))).collect();
            prop_assert_eq!(due, expected.into_iter().map(|(_, nth)| SocketId(nth)).collect::<Vec<_>>());
        }
    }
}
