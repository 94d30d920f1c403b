//! A limiter, and the flows that wait for it.
//!
//! Waiting flows are linked through their own state, one FIFO per rank, so that waiting allocates nothing. A
//! flow waits at one gate at a time. Those with a guarantee below the gate stand in its agenda as well, by the instant
//! from which on they are owed; their place in the FIFO stays as it is.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use firelane_units::{BitRate, Bytes, FlowId, Instant};

use crate::limiter::Limiter;

/// Ranks of waiting flows: the parent's priority, then the flow's own.
pub(crate) const RANKS: usize = 9;

pub(crate) struct Gate {
    pub(crate) limiter: Limiter,
    /// What those who have limits of their own below this one can bring in one turn: the least that any has had since this limit was set.
    pub(crate) turn_most: Bytes,
    /// When the schedule looks at this gate next.
    pub(crate) armed: Option<Instant>,
    /// When somebody who waits for credit here looks again.
    pub(crate) lends_at: Option<Instant>,
    queues: [Queue; RANKS],
    /// Bit n: queue n is not empty.
    occupied: u16,
    /// Flows that may be owed, the first of them first. An entry may be too early, or of a flow that waits elsewhere.
    pub(crate) agenda: BinaryHeap<Reverse<Owed>>,
}

/// From when on a flow is owed, and when it was last served because it was, by the count of such frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Owed {
    pub(crate) at: Instant,
    pub(crate) served: u64,
    pub(crate) flow: FlowId,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    first: Option<FlowId>,
    last: Option<FlowId>,
}

/// The neighbours of a flow in the queue in which it waits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Neighbours {
    next: Option<FlowId>,
    previous: Option<FlowId>,
}

/// Where a waiting flow keeps its neighbours.
pub(crate) trait Links {
    fn of(&mut self, flow: FlowId) -> &mut Neighbours;
}

impl Gate {
    pub(crate) fn new(rate: BitRate, now: Instant) -> Self {
        let limiter = Limiter::new(rate, now);
        Self {
            limiter,
            turn_most: Bytes(u64::MAX),
            armed: None,
            lends_at: None,
            queues: Default::default(),
            occupied: 0,
            agenda: BinaryHeap::new(),
        }
    }

    /// Bytes that each of those who wait here may send per round.
    pub(crate) fn turn(&self) -> Bytes {
        self.limiter.quantum().min(self.turn_most)
    }

    /// Whether others who wait come before a flow of `rank`, or before one that is owed if that is `None`.
    #[inline]
    pub(crate) fn prefers_others(&self, now: Instant, rank: Option<usize>) -> bool {
        self.occupied != 0 && (self.owes(now) || rank.is_some_and(|rank| self.occupied >> rank != 0))
    }

    /// Whether somebody may be owed who waits here.
    #[inline]
    pub(crate) fn owes(&self, now: Instant) -> bool {
        self.occupied != 0 && self.agenda.peek().is_some_and(|Reverse(first)| first.at <= now)
    }

    /// Whether anybody waits: with frames, or for credit.
    #[inline]
    pub(crate) fn has_waiting(&self, now: Instant) -> bool {
        self.occupied != 0 || self.lends_at.is_some_and(|at| now < at)
    }

    /// The flow to serve next, and its rank.
    pub(crate) fn first(&self) -> Option<(FlowId, usize)> {
        let rank = (u16::BITS - 1).checked_sub(self.occupied.leading_zeros())? as usize;
        self.queues[rank].first.map(|flow| (flow, rank))
    }

    /// Appends a flow to its rank's queue.
    pub(crate) fn push(&mut self, flow: FlowId, rank: usize, links: &mut impl Links) {
        let queue = &mut self.queues[rank];
        let previous = queue.last.replace(flow);
        *links.of(flow) = Neighbours { next: None, previous };
        match previous {
            Some(last) => links.of(last).next = Some(flow),
            None => queue.first = Some(flow),
        }
        self.occupied |= 1 << rank;
    }

    /// Takes a flow out of its rank's queue, wherever it stands.
    pub(crate) fn remove(&mut self, flow: FlowId, rank: usize, links: &mut impl Links) {
        let Neighbours { next, previous } = core::mem::take(links.of(flow));
        let queue = &mut self.queues[rank];
        match previous {
            Some(previous) => links.of(previous).next = next,
            None => queue.first = next,
        }
        match next {
            Some(next) => links.of(next).previous = previous,
            None => queue.last = previous,
        }
        if queue.first.is_none() {
            self.occupied &= !(1 << rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Table(Vec<Neighbours>);

    impl Links for Table {
        fn of(&mut self, flow: FlowId) -> &mut Neighbours {
            &mut self.0[flow.0 as usize]
        }
    }

    proptest! {
        #[test]
        fn behaves_as_nine_lists(steps in prop::collection::vec((0u8..3, 0u32..12, 0usize..RANKS), 0..120)) {
            let mut gate = Gate::new(BitRate::from_mbps(1), Instant::ZERO);
            let mut links = Table(vec![Neighbours::default(); 12]);
            let mut model: Vec<Vec<FlowId>> = vec![vec![]; RANKS];
            for (step, flow, rank) in steps {
                let flow = FlowId(flow);
                let waits_in = model.iter().position(|list| list.contains(&flow));
                match (step, waits_in) {
                    (0, None) => {
                        gate.push(flow, rank, &mut links);
                        model[rank].push(flow);
                    }
                    (1, Some(rank)) => {
                        gate.remove(flow, rank, &mut links);
                        model[rank].retain(|&other| other != flow);
                    }
                    (2, _) => {
                        if let Some((first, rank)) = gate.first() {
                            gate.remove(first, rank, &mut links);
                            prop_assert_eq!(first, model[rank].remove(0));
                        }
                    }
                    _ => {}
                }
                let first = model.iter().enumerate().rev().find_map(|(r, list)| list.first().map(|&f| (f, r)));
                prop_assert_eq!(gate.first(), first);
                let others = model[rank..].iter().any(|list| !list.is_empty());
                prop_assert_eq!(gate.prefers_others(Instant::ZERO, Some(rank)), others);
                prop_assert!(!gate.prefers_others(Instant::ZERO, None), "nobody has a guarantee");
            }
        }
    }
}
