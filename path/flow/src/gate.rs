//! A limiter, and the flows that wait for it.
//!
//! Waiting flows are linked through their own state, one FIFO per rank, so that waiting allocates nothing. A
//! flow waits at one gate at a time.

use firelane_units::{BitRate, FlowId, Instant};

use crate::limiter::Limiter;

/// Ranks of waiting flows: the parent's priority, then the flow's own.
pub(crate) const RANKS: usize = 9;

pub(crate) struct Gate {
    pub(crate) limiter: Limiter,
    /// When the schedule looks at this gate next.
    pub(crate) armed: Option<Instant>,
    queues: [Queue; RANKS],
    /// Bit n: queue n is not empty.
    occupied: u16,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    first: Option<FlowId>,
    last: Option<FlowId>,
}

/// Where a waiting flow keeps its link to the next one.
pub(crate) trait Links {
    fn next(&mut self, flow: FlowId) -> &mut Option<FlowId>;
}

impl Gate {
    pub(crate) fn new(rate: BitRate, now: Instant) -> Self {
        let limiter = Limiter::new(rate, now);
        Self { limiter, armed: None, queues: Default::default(), occupied: 0 }
    }

    /// Whether flows of at least this rank wait.
    #[inline]
    pub(crate) fn has_waiting(&self, rank: usize) -> bool {
        self.occupied >> rank != 0
    }

    /// The flow to serve next, and its rank.
    pub(crate) fn first(&self) -> Option<(FlowId, usize)> {
        let rank = (u16::BITS - 1).checked_sub(self.occupied.leading_zeros())? as usize;
        self.queues[rank].first.map(|flow| (flow, rank))
    }

    /// Appends a flow to its rank's queue. `links` reaches the flow's link.
    pub(crate) fn push(&mut self, flow: FlowId, rank: usize, links: &mut impl Links) {
        *links.next(flow) = None;
        let queue = &mut self.queues[rank];
        match queue.last.replace(flow) {
            Some(last) => *links.next(last) = Some(flow),
            None => queue.first = Some(flow),
        }
        self.occupied |= 1 << rank;
    }

    /// Takes the first flow of a rank.
    pub(crate) fn pop(&mut self, rank: usize, links: &mut impl Links) -> Option<FlowId> {
        let queue = &mut self.queues[rank];
        let flow = queue.first?;
        queue.first = links.next(flow).take();
        if queue.first.is_none() {
            queue.last = None;
            self.occupied &= !(1 << rank);
        }
        Some(flow)
    }

    /// Takes a flow out, wherever it stands.
    pub(crate) fn remove(&mut self, flow: FlowId, links: &mut impl Links) {
        for rank in 0..RANKS {
            let queue = core::mem::take(&mut self.queues[rank]);
            self.occupied &= !(1 << rank);
            let mut at = queue.first;
            while let Some(waiting) = at {
                at = links.next(waiting).take();
                if waiting != flow {
                    self.push(waiting, rank, links);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Next(Vec<Option<FlowId>>);

    impl Links for Next {
        fn next(&mut self, flow: FlowId) -> &mut Option<FlowId> {
            &mut self.0[flow.index()]
        }
    }

    proptest! {
        #[test]
        fn behaves_as_nine_lists(steps in prop::collection::vec((0u8..3, 0u32..12, 0usize..RANKS), 0..120)) {
            let mut gate = Gate::new(BitRate::from_mbps(1), Instant::ZERO);
            let mut links = Next(vec![None; 12]);
            let mut model: Vec<Vec<FlowId>> = vec![vec![]; RANKS];
            for (step, flow, rank) in steps {
                let flow = FlowId(flow);
                let waits = model.iter().any(|list| list.contains(&flow));
                match step {
                    0 if !waits => {
                        gate.push(flow, rank, &mut links);
                        model[rank].push(flow);
                    }
                    1 => {
                        gate.remove(flow, &mut links);
                        model.iter_mut().for_each(|list| list.retain(|&f| f != flow));
                    }
                    _ => {
                        let popped = gate.pop(rank, &mut links);
                        let wanted = (!model[rank].is_empty()).then(|| model[rank].remove(0));
                        prop_assert_eq!(popped, wanted);
                    }
                }
                let first = model.iter().enumerate().rev().find_map(|(r, list)| list.first().map(|&f| (f, r)));
                prop_assert_eq!(gate.first(), first);
                prop_assert_eq!(gate.has_waiting(rank), model[rank..].iter().any(|list| !list.is_empty()));
            }
        }
    }
}
