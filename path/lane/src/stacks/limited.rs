//! Who waits until a limit, or his own pace, lets him send: the earliest first, and of those who are due at the same time who has waited
//! longest.
//!
//! `shard.rs` has one for its datagram sockets, `conn.rs` one for connections. A limit tells all who wait for it the same time, and who
//! has had his turn then waits again as those do who have not. So each has a ticket of the lane's, which he keeps until he has sent
//! something: without it the same few would go first each time, or connections before datagrams. A program has as many sockets as it may,
//! each with a time of its own, so finding a place for one must not cost more the more there are.

use core::cmp::Reverse;
use core::num::NonZeroU64;
use std::collections::BinaryHeap;

use firelane_units::Instant;

/// A place in line.
pub(crate) type Ticket = NonZeroU64;

/// A lane's tickets.
#[derive(Debug)]
pub(crate) struct Tickets(Ticket);

impl Default for Tickets {
    fn default() -> Self {
        Self(Ticket::MIN)
    }
}

impl Tickets {
    /// His, or the next one if he has none.
    pub(crate) fn of(&mut self, ticket: &mut Option<Ticket>) -> Ticket {
        *ticket.get_or_insert_with(|| {
            let next = self.0;
            self.0 = next.saturating_add(1);
            next
        })
    }
}

/// Those who wait.
#[derive(Debug)]
pub(crate) struct Limited<T> {
    /// When, since when, and who.
    waiting: BinaryHeap<Reverse<(Instant, Ticket, T)>>,
}

impl<T: Ord> Default for Limited<T> {
    fn default() -> Self {
        Self { waiting: BinaryHeap::new() }
    }
}

impl<T: Ord> Limited<T> {
    /// One goes on at that time.
    pub(crate) fn put(&mut self, at: Instant, ticket: Ticket, who: T) {
        self.waiting.push(Reverse((at, ticket, who)));
    }

    /// Since when the next one waits whose time has come.
    pub(crate) fn first_due(&self, now: Instant) -> Option<Ticket> {
        self.waiting.peek().filter(|Reverse((at, ..))| *at <= now).map(|Reverse((_, ticket, _))| *ticket)
    }

    /// Takes the next one whose time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<T> {
        self.next_at().filter(|&at| at <= now)?;
        self.waiting.pop().map(|Reverse((.., who))| who)
    }

    /// Takes all of them, whose limits may be others now: who has waited longest first.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        let mut all = core::mem::take(&mut self.waiting).into_vec();
        all.sort_unstable_by_key(|Reverse((_, ticket, _))| *ticket);
        all.into_iter().map(|Reverse((.., who))| who)
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
            let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
            for (nth, &time) in (0..).zip(&times) {
                limited.put(Instant::from_secs(time), tickets.of(&mut None), nth);
            }
            prop_assert_eq!(limited.next_at(), times.iter().min().map(|&time| Instant::from_secs(time)));
            let mut expected: Vec<_> = times.iter().copied().zip(0..).filter(|&(time, _)| time <= now).collect();
            expected.sort_by_key(|&(time, _)| time);
            let due: Vec<_> = core::iter::from_fn(|| limited.take_due(Instant::from_secs(now))).collect();
            prop_assert_eq!(due, expected.into_iter().map(|(_, nth)| nth).collect::<Vec<_>>());
        }

        /// Where a few of many may send each time, all have as many turns.
        #[test]
        fn each_has_his_turn(many in 1..40_usize, few in 1..5_usize) {
            let (mut limited, mut tickets, mut own) = (Limited::default(), Tickets::default(), vec![None; many]);
            let mut turns = vec![0; many];
            (0..many).for_each(|n| limited.put(Instant::ZERO, tickets.of(&mut own[n]), n));
            for second in 1..=(10 * many as u64) {
                let due: Vec<_> = core::iter::from_fn(|| limited.take_due(Instant::from_secs(second))).collect();
                for (place, n) in due.into_iter().enumerate() {
                    if place < few {
                        turns[n] += 1;
                        own[n] = None;
                    }
                    limited.put(Instant::from_secs(second + 1), tickets.of(&mut own[n]), n);
                }
            }
            let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{turns:?}");
        }
    }

    #[test]
    fn who_has_waited_longest_asks_first_when_all_do() {
        let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
        for (nth, time) in [9, 3, 5].into_iter().enumerate() {
            limited.put(Instant::from_secs(time), tickets.of(&mut None), nth);
        }
        assert_eq!(
            [2, 3].map(|now| limited.first_due(Instant::from_secs(now)).map(Ticket::get)),
            [None, Some(2)]
        );
        assert_eq!(limited.take_all().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(limited.is_empty());
    }
}
