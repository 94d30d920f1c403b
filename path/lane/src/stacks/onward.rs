//! Forwarded flows: the list of steps and the next station that a flow's first packet found, for those after it.
//!
//! The classifier's cache holds both beside the flow's tuple, in IP's generation: whatever changes a route, a neighbour,
//! an address or a property begins another, and each flow's next packet takes the long way once (`inbound.rs`).
//! Where addresses are translated, what comes in is for whom its session says: with another session, or without one, it goes elsewhere
//! than the flow's packets before it, and the flow is learned anew.

use core::net::{IpAddr, Ipv4Addr};

use firelane_classify::{FlowCache, Foreseen as Place, Headers, Tuple};
use firelane_filter::{FlowNames, Ruling};
use firelane_frame::Frame;
use firelane_ip::{Adjacency, FORESEEN_MAX, LOOPBACK, NewFlow};
use firelane_nat::NatRef;
use firelane_units::{Direction, Instant, LinkId, StepListId};

use super::Stacks;
use super::awaited::is_of_server;
use super::filtered::Gone;
use super::inbound::Inside;
use super::passage::Judged;
use super::shard::Shard;
use super::translated::Changed;
use crate::arrivals::Arrival;
use crate::steps::{Onward, Step, StepLists, walk};
use crate::watch::{Owner, Sight};

/// Next stations that flows of one generation share; what goes to others takes the long way.
const ADJACENCIES_MAX: usize = 1024;

/// The next station of flows that have none: they take the long way.
const NOWHERE: u16 = u16::MAX;

const _: () = assert!(ADJACENCIES_MAX <= NOWHERE as usize);

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

/// What is known of a flow: with the flow's names it fills a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    steps: StepListId,
    adjacency: u16,
    /// By the filter, where its list has one.
    judged: Judged,
}

const _: () = assert!(size_of::<Known>() == 16);

/// What is known of an arrival's flow, in the generation in which it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreseen {
    generation: u32,
    known: Known,
}

/// The tuple of an arrival that may belong to a forwarded flow, and where that would be remembered.
type Asked = Option<(Place, Tuple)>;

impl Default for Known {
    fn default() -> Self {
        Self { steps: StepLists::FORWARD, adjacency: 0, judged: Judged::default() }
    }
}

impl ForwardedFlows {
    /// Whether packets may belong to flows that are known.
    #[inline]
    pub(crate) const fn is_router(&self) -> bool {
        self.is_router
    }

    /// A flow's first packet goes to `adjacency`: the next ones go there by `steps`. Answers the number of the next station,
    /// even if the flow is not remembered; nothing if there are too many.
    fn learn(
        &mut self,
        link: LinkId,
        tuple: &Tuple,
        (steps, judged): (StepListId, Judged),
        adjacency: &Adjacency,
    ) -> Option<u16> {
        if self.adjacencies.first().is_some_and(|first| first.generation != adjacency.generation) {
            self.adjacencies.clear();
        }
        let nth = match self.adjacencies.iter().position(|known| known == adjacency) {
            Some(nth) => nth,
            None if self.adjacencies.len() == ADJACENCIES_MAX => return None,
            None => {
                self.adjacencies.push(*adjacency);
                self.adjacencies.len() - 1
            }
        };
        (self.is_router, self.is_learning) = (true, true);
        let nth = nth as u16;
        self.cache.insert(link, tuple, adjacency.generation, Known { steps, adjacency: nth, judged });
        Some(nth)
    }

    /// What is known of a flow.
    #[inline]
    fn find(&self, arrival: &Arrival, generation: u32) -> Option<Known> {
        let tuple = arrival.headers.tuple().filter(|_| !arrival.headers.tagged)?;
        self.cache.lookup(arrival.link, &tuple, generation)
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.cache.allocated_bytes()
    }
}

/// Arrivals that one look ahead is about: a lane's chain, and no more than the innermost cache keeps.
pub(super) const AHEAD: usize = FORESEEN_MAX;
/// Fewer than these are not worth a look.
const AHEAD_LEAST: usize = 4;

impl Stacks {
    /// Finds the forwarded flows of a chain before its first packet is handled: the memory is waited for once and not
    /// once per packet. New flows are looked up together.
    #[inline]
    pub(super) fn look_for_flows(&mut self, now: Instant, arrivals: &mut [Arrival]) {
        if arrivals.len() < AHEAD_LEAST {
            return;
        }
        let count = arrivals.len().min(AHEAD);
        for nth in 0..count {
            let (before, rest) = arrivals[..count].split_at_mut(nth);
            let netstack = rest[0].netstack;
            let is_router = self.shards.get(netstack).is_some_and(|shard| shard.forwarded.is_router);
            if is_router && before.iter().all(|other| other.netstack != netstack) {
                let shard = self.shards.get_mut(netstack).expect("it was there just now");
                shard.foresee(now, rest);
            }
        }
    }
}

impl Shard {
    /// Which steps a forwarded flow has that begins now.
    fn forward_steps(&self) -> StepListId {
        match (self.gate.has_nat(), self.gate.has_filter()) {
            (false, false) => StepLists::FORWARD,
            (false, true) => StepLists::FILTERED,
            (true, false) => StepLists::TRANSLATED,
            (true, true) => StepLists::TRANSLATED_FILTERED,
        }
    }

    /// Says of each arrival for this netstack what is known of its flow. New flows that are as most are, are known from
    /// here on.
    fn foresee(&mut self, now: Instant, ahead: &mut [Arrival]) {
        let (mut asked, mut new): ([Asked; AHEAD], _) = ([None; AHEAD], [0_u8; AHEAD]);
        let mut count = 0;
        let Self { ip, forwarded, config, gate, .. } = self;
        for (arrival, asked) in ahead.iter().zip(&mut asked) {
            let tuple = arrival.headers.tuple().filter(|_| !arrival.headers.tagged);
            let tuple = tuple.filter(|_| arrival.netstack == config.id);
            *asked = tuple.map(|tuple| (forwarded.cache.foresee(arrival.link, &tuple), tuple));
        }
        let generation = ip.core.generation();
        for (nth, (arrival, asked)) in ahead.iter_mut().zip(&asked).enumerate() {
            let Some((place, tuple)) = asked else { continue };
            match forwarded.cache.lookup_at(*place, arrival.link, tuple, generation) {
                Some(known) => {
                    arrival.foreseen = Some(Foreseen { generation, known });
                    gate.touch(known.judged);
                }
                None => {
                    new[count] = nth as u8;
                    count += 1;
                }
            }
        }
        // Where addresses are translated, a new flow goes where its translation says.
        if count > 0 && forwarded.is_learning && !gate.has_nat() {
            self.foresee_new(now, &new[..count], &asked, ahead);
        }
    }

    /// The same for the flows that are not known.
    fn foresee_new(&mut self, now: Instant, new: &[u8], asked: &[Asked; AHEAD], ahead: &mut [Arrival]) {
        // What leads to their states comes from memory while it is seen which may be forwarded, and states while the ways are found.
        let flows = || new.iter().map(|&nth| (&asked[usize::from(nth)], ahead[usize::from(nth)].link));
        let all_names = || flows().map(|(asked, _)| names(asked));
        let mut sought = self.gate.has_states().then(|| self.gate.filter().seek(all_names()));
        let going = self.ip.core.going_onward(flows().map(|(asked, link)| new_flow(asked, link)));
        let steps = self.forward_steps();
        let Self { ip, forwarded, gate, .. } = self;
        sought.iter_mut().for_each(|sought| gate.filter().approach(sought));
        forwarded.is_learning = false;
        ip.core.foresee(now, &going, |nth, adjacency| {
            let at = usize::from(new[nth]);
            let (Some((_, tuple)), arrival) = (&asked[at], &mut ahead[at]) else { return };
            let found = |sought| gate.filter().found(sought, nth, names(&asked[at]));
            let judged = sought.as_ref().and_then(found).map_or_else(Judged::default, Judged::state);
            let generation = adjacency.generation;
            if let Some(adjacency) = forwarded.learn(arrival.link, tuple, (steps, judged), adjacency) {
                arrival.foreseen = Some(Foreseen { generation, known: Known { steps, adjacency, judged } });
            }
        });
        ip.touch();
    }
}

/// What decides about an arrival's flow; about none that nothing is forwarded from.
#[inline]
fn new_flow(asked: &Asked, link: LinkId) -> NewFlow {
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    match asked {
        Some((_, tuple)) => NewFlow { link, src: tuple.remote(), dst: tuple.local() },
        None => NewFlow { link: LOOPBACK, src: nobody, dst: nobody },
    }
}

/// The names of an arrival's flow, for the filter.
#[inline]
fn names(asked: &Asked) -> FlowNames {
    let Some((_, tuple)) = asked else { return FlowNames::NOBODY };
    let ([dst, src], protocol) = (tuple.halves(), tuple.protocol());
    FlowNames { src, dst, ports: (tuple.remote_port(), tuple.local_port()), protocol }
}

/// What is remembered of a flow whose packet was translated on its way in, as `inward` says, and on its way out. One that did not
/// leave says nothing of those that will: the next one may be translated there.
fn translated(inward: Option<Option<NatRef>>, outward: Option<Gone>) -> Judged {
    let Some(Gone { session: outward, stays: false, .. }) = outward else { return Judged::default() };
    match (inward, outward) {
        (Some(Some(session)), None) | (None, Some(session)) => Judged::session(session),
        // What is translated twice has no one session.
        (Some(Some(session)), Some(_)) => Judged::inward(session),
        _ => Judged::default(),
    }
}

impl<D> Inside<'_, D> {
    /// A packet of a forwarded flow that is known: its walk. Gives the frame back if the flow is not known, or if the
    /// packet is not of the usual kind.
    #[inline]
    pub(crate) fn take_forwarded<const WATCHED: bool>(
        &mut self,
        lists: &StepLists,
        frame: Frame,
        arrival: &Arrival,
    ) -> Result<(), Frame> {
        let generation = self.shard.ip.core.generation();
        let flows = &self.shard.forwarded;
        let foreseen = arrival.foreseen.filter(|foreseen| foreseen.generation == generation);
        let known = foreseen.map(|foreseen| foreseen.known).or_else(|| flows.find(arrival, generation));
        let Some(known) = known else { return Err(frame) };
        let Some(adjacency) = flows.adjacencies.get(usize::from(known.adjacency)).copied() else {
            return Err(frame);
        };
        let frame = match known.steps {
            StepLists::FORWARD if !WATCHED => return self.shard.ip.pass_on(&adjacency, frame),
            StepLists::FILTERED if !WATCHED => {
                match self.pass_gates(known.judged, &adjacency, frame, arrival) {
                    Ok(()) => return Ok(()),
                    Err(frame) => frame,
                }
            }
            StepLists::TRANSLATED if !WATCHED && arrival.link != LOOPBACK => {
                match known.judged.get_session() {
                    None => frame,
                    Some(session) => match self.pass_translated(session, &adjacency, frame) {
                        Ok(()) => return Ok(()),
                        Err(frame) => frame,
                    },
                }
            }
            _ => frame,
        };
        // No step has counted a packet that is to take the long way.
        if adjacency.usual(&frame).is_none() {
            return Err(frame);
        }
        self.common.see(frame.meta().trace, Sight::Found(Owner::ForwardedFlow));
        let judged = self.walk_onward(lists, known, &adjacency, frame, arrival)?;
        if judged != known.judged
            && judged != Judged::default()
            && let Some(tuple) = arrival.headers.tuple()
        {
            let known = Known { judged, ..known };
            self.shard.forwarded.cache.amend(arrival.link, &tuple, generation, known);
        }
        Ok(())
    }

    /// The steps of a forwarded flow's list, one by one, and what the filter said that counts for the flow's next packets.
    fn walk_onward(
        &mut self,
        lists: &StepLists,
        known: Known,
        adjacency: &Adjacency,
        frame: Frame,
        arrival: &Arrival,
    ) -> Result<Judged, Frame> {
        let (list, trace) = (lists.list(known.steps), frame.meta().trace);
        let (mut inward, mut outward) = (Ruling::default(), None);
        let mut changed: Option<Changed> = None;
        let mut travelling = Some(frame);
        let (mut has_passed, mut goes_elsewhere) = (false, false);
        walk(list.inbound(), |step| match (step, travelling.take()) {
            (Step::Nat, Some(frame)) => {
                let passed = self.translate_in((arrival.link, arrival.asked), frame, &arrival.headers);
                let Some((frame, translated)) = passed else { return Onward::Ended };
                (travelling, changed) = (Some(frame), translated);
                Onward::Next
            }
            (Step::Filter, Some(frame)) => {
                let headers = changed.as_ref().map_or(&arrival.headers, |(changed, _)| changed);
                (travelling, inward) = self.come_in(arrival.link, frame, headers);
                if travelling.is_some() { Onward::Next } else { Onward::Ended }
            }
            (Step::Forward, Some(frame)) if !self.keeps_its_way(known.judged, changed.as_ref()) => {
                (goes_elsewhere, travelling) = (true, Some(frame));
                Onward::Ended
            }
            (Step::Forward, Some(frame)) => {
                let passed =
                    self.step(step, Direction::In, trace, |it| it.shard.ip.pass_on(adjacency, frame));
                (has_passed, travelling) = (passed.is_ok(), passed.err());
                if has_passed { Onward::Next } else { Onward::Ended }
            }
            // A forwarded flow's list has no transport.
            (_, frame) => {
                travelling = frame;
                Onward::Ended
            }
        });
        if has_passed && !list.outbound().is_empty() {
            outward = self.go_out();
        }
        match travelling {
            Some(frame) if goes_elsewhere => {
                self.go_elsewhere(lists, known, frame, arrival, changed.as_ref());
                return Ok(Judged::default());
            }
            Some(frame) => return Err(frame),
            None => {}
        }
        Ok(match list.inbound().first() {
            Some(Step::Nat) => translated(changed.map(|(_, session)| session), outward),
            _ => Judged::of(inward, outward.map(|gone| gone.ruling)),
        })
    }

    /// Whether a flow's packet goes where those before it went: a session that translates what comes in says for whom it is, so it has
    /// to be the same one, or none as before. A session that is over cannot be asked which it was.
    fn keeps_its_way(&mut self, judged: Judged, changed: Option<&Changed>) -> bool {
        let Some(nat) = self.shard.gate.nat() else { return true };
        let known = judged.get_any_session();
        match changed {
            Some((_, session)) => session.is_some() && *session == known,
            None => known.is_none_or(|known| nat.place_of(known) == Some(Direction::Out)),
        }
    }

    /// A known flow's packet that is past the doors is for somebody else than those before it: it finds its own way, which the flow has
    /// from here on.
    #[cold]
    fn go_elsewhere(
        &mut self,
        lists: &StepLists,
        known: Known,
        frame: Frame,
        arrival: &Arrival,
        changed: Option<&Changed>,
    ) {
        if let Some(tuple) = arrival.headers.tuple() {
            let (generation, nowhere) =
                (self.shard.ip.core.generation(), Known { adjacency: NOWHERE, ..known });
            self.shard.forwarded.cache.amend(arrival.link, &tuple, generation, nowhere);
        }
        self.arrive_past_doors::<true>(lists, frame, arrival, changed);
    }

    /// A packet was forwarded the long way: its flow is known from here on.
    pub(super) fn learn_forwarded(
        &mut self,
        link: LinkId,
        headers: &Headers,
        changed: Option<&Changed>,
        adjacency: Adjacency,
    ) {
        let judged = match changed {
            None => Judged::default(),
            // It leaves only now.
            Some((_, Some(session))) => Judged::inward(*session),
            // What is of no session goes the long way each time.
            Some((_, None)) => return,
        };
        // The next one with these names may be what a client of the netstack's own waits for.
        if let Some(tuple) = headers.tuple()
            && !headers.tagged
            && !is_of_server(headers)
        {
            let steps = self.shard.forward_steps();
            let _ = self.shard.forwarded.learn(link, &tuple, (steps, judged), &adjacency);
        }
    }
}
