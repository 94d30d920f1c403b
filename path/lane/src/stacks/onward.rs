//! Forwarded flows: the list of steps and the next station that a flow's first packet found, for those after it.
//!
//! The classifier's cache holds both beside the flow's tuple, in IP's generation: whatever changes a route, a neighbour,
//! an address or a property begins another, and each flow's next packet takes the long way once (`inbound.rs`).

use core::hint::black_box;
use core::net::{IpAddr, Ipv4Addr};

use firelane_classify::{FlowCache, Headers, Tuple};
use firelane_frame::Frame;
use firelane_ip::{Adjacency, FORESEEN_MAX, LOOPBACK, NewFlow};
use firelane_units::{Instant, LinkId, StepListId};

use super::Stacks;
use super::inbound::Inside;
use super::shard::Shard;
use crate::arrivals::Arrival;
use crate::steps::{Onward, Step, StepLists, walk};

/// Next stations that flows of one generation share; what goes to others takes the long way.
const ADJACENCIES_MAX: usize = 1024;

/// A netstack's forwarded flows in one lane.
#[derive(Default)]
pub(crate) struct ForwardedFlows {
    cache: FlowCache<Known>,
    /// The next stations that flows name, of the generation of all of them.
    adjacencies: Vec<Adjacency>,
    /// A flow was entered, ever: a host's netstack is not asked.
    is_router: bool,
    /// A flow was entered since the last look ahead.
    is_learning: bool,
}

/// What is known of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    steps: StepListId,
    adjacency: u16,
}

impl Default for Known {
    fn default() -> Self {
        Self { steps: StepLists::FORWARD, adjacency: 0 }
    }
}

impl ForwardedFlows {
    /// Whether packets may belong to flows that are known.
    #[inline]
    pub(crate) const fn is_router(&self) -> bool {
        self.is_router
    }

    /// A flow's first packet went to `adjacency`: the next ones go there by `steps`.
    fn learn(&mut self, link: LinkId, tuple: &Tuple, steps: StepListId, adjacency: Adjacency) {
        if self.adjacencies.first().is_some_and(|first| first.generation != adjacency.generation) {
            self.adjacencies.clear();
        }
        let nth = match self.adjacencies.iter().position(|known| *known == adjacency) {
            Some(nth) => nth,
            None if self.adjacencies.len() == ADJACENCIES_MAX => return,
            None => {
                self.adjacencies.push(adjacency);
                self.adjacencies.len() - 1
            }
        };
        (self.is_router, self.is_learning) = (true, true);
        self.cache.insert(link, tuple, adjacency.generation, Known { steps, adjacency: nth as u16 });
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.cache.allocated_bytes()
    }
}

/// Arrivals that one look ahead is about: a lane's chain, and no more than the innermost cache keeps.
const AHEAD: usize = FORESEEN_MAX;
/// Fewer than these are not worth a look.
const AHEAD_LEAST: usize = 4;

impl Stacks {
    /// Reads what the packets of a chain will ask the tables for, all of them before the first is handled: so the
    /// memory is waited for once and not once per packet. New flows are looked up together.
    #[inline]
    pub(crate) fn look_ahead(&mut self, now: Instant, arrivals: &[Arrival]) {
        if arrivals.len() < AHEAD_LEAST {
            return;
        }
        let ahead = &arrivals[..arrivals.len().min(AHEAD)];
        let mut learning = false;
        for arrival in ahead {
            let Some(shard) = self.shards.get_mut(arrival.netstack.index()) else { continue };
            if shard.forwarded.is_router
                && let Some(tuple) = arrival.headers.tuple()
            {
                learning |= shard.forwarded.is_learning;
                black_box(shard.forwarded.cache.touch(arrival.link, &tuple));
            }
        }
        if learning {
            let learners = self.shards.iter_mut().filter(|shard| shard.forwarded.is_learning);
            learners.for_each(|shard| shard.foresee(now, ahead));
        }
    }
}

impl Shard {
    /// The flows of a chain that are not known, and are as most are, are known from here on.
    fn foresee(&mut self, now: Instant, ahead: &[Arrival]) {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let mut new = [NewFlow { link: LOOPBACK, src: nobody, dst: nobody }; AHEAD];
        let mut whose = [0; AHEAD];
        let mut count = 0;
        let Self { ip, forwarded, config, .. } = self;
        let generation = ip.core.generation();
        for (nth, arrival) in ahead.iter().enumerate() {
            let Some(tuple) = arrival.headers.tuple() else { continue };
            let is_ours = arrival.netstack == config.id && !arrival.headers.tagged;
            if is_ours && forwarded.cache.lookup(arrival.link, &tuple, generation).is_none() {
                new[count] = NewFlow { link: arrival.link, src: tuple.remote(), dst: tuple.local() };
                whose[count] = nth;
                count += 1;
            }
        }
        forwarded.is_learning = false;
        ip.core.foresee(now, &new[..count], |nth, adjacency| {
            let Arrival { link, headers, .. } = &ahead[whose[nth]];
            if let Some(tuple) = headers.tuple() {
                forwarded.learn(*link, &tuple, StepLists::FORWARD, adjacency);
            }
        });
        ip.touch();
    }
}

impl<D> Inside<'_, D> {
    /// A packet of a forwarded flow that is known: its walk. Gives the frame back if the flow is not known, or if the
    /// packet is not of the usual kind.
    #[inline]
    pub(crate) fn take_forwarded(
        &mut self,
        lists: &StepLists,
        link: LinkId,
        frame: Frame,
        headers: &Headers,
    ) -> Result<(), Frame> {
        let generation = self.shard.ip.core.generation();
        let flows = &self.shard.forwarded;
        let known = headers.tuple().filter(|_| !headers.tagged);
        let known = known.and_then(|tuple| flows.cache.lookup(link, &tuple, generation));
        let Some(known) = known else { return Err(frame) };
        let Some(adjacency) = flows.adjacencies.get(usize::from(known.adjacency)).copied() else {
            return Err(frame);
        };
        if known.steps == StepLists::FORWARD {
            return self.shard.ip.pass_on(&adjacency, frame);
        }
        let mut travelling = Some(frame);
        walk(lists.list(known.steps).inbound(), |step| match (step, travelling.take()) {
            (Step::Forward, Some(frame)) => match self.shard.ip.pass_on(&adjacency, frame) {
                Ok(()) => Onward::Next,
                Err(frame) => {
                    travelling = Some(frame);
                    Onward::Ended
                }
            },
            // A forwarded flow's list has no transport.
            (_, frame) => {
                travelling = frame;
                Onward::Ended
            }
        });
        travelling.map_or(Ok(()), Err)
    }

    /// A packet was forwarded the long way: its flow is known from here on.
    pub(crate) fn learn_forwarded(&mut self, link: LinkId, headers: &Headers, adjacency: Adjacency) {
        if let Some(tuple) = headers.tuple()
            && !headers.tagged
        {
            self.shard.forwarded.learn(link, &tuple, StepLists::FORWARD, adjacency);
        }
    }
}
