//! Who looks on closely: a trace of single frames, and the cycles that steps take.
//!
//! A trace follows frames that somebody named, or made up: each gets a number (`FrameMeta::trace`), and every station and
//! step that it passes writes one [`Seen`]. Steps are counted with the cycles that each took. Both are asked about once per
//! chain: while nobody looks, frames take the ways in one piece that have no question in them (`ways.rs`, `take_expected`,
//! `take_forwarded`), and while somebody does, the chain goes station by station and step by step, which does the same.
//! Set and read by the engine between two items (`Lane::trace`, `Lane::count_steps`).

use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use firelane_classify::{Headers, L3};
use firelane_filter::Verdict;
use firelane_units::{Direction, DropReason, FlowId, Instant, LaneId, LinkId, MacAddr, NetstackId};

use crate::steps::Step;

/// What one lane writes down for one trace at the most; the rest is counted.
const SEEN_MAX: usize = 4096;

/// Which frames are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// Those from or to an address.
    Address(IpAddr),
    /// Those of a flow, which belongs to the VNIC `owner` with the address `mac`, or to the uplink or trunk `owner` of a link.
    Flow {
        /// The flow.
        flow: FlowId,
        /// Whose it is.
        owner: LinkId,
        /// A VNIC's address.
        mac: Option<MacAddr>,
    },
    /// Those that were put in with a number.
    Invented,
}

/// The numbers of a trace, which its lanes share: a frame has one in all of them, and what happened has one order.
#[derive(Debug)]
pub struct Numbers {
    frames: AtomicU32,
    most: u32,
    order: AtomicU32,
}

impl Numbers {
    /// Numbers for at most `most` frames.
    pub const fn new(most: u32) -> Self {
        Self { frames: AtomicU32::new(0), most, order: AtomicU32::new(0) }
    }

    /// The next frame's number, from one on; none if there are enough.
    fn frame(&self) -> Option<u32> {
        let next = |given: u32| (given < self.most).then_some(given + 1);
        self.frames.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|given| given + 1)
    }

    /// How many frames have a number.
    pub fn frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }
}

/// What a lane needs to know of a trace.
#[derive(Clone, Debug)]
pub struct Tracing {
    /// Which frames.
    pub of: Followed,
    /// What they are numbered with.
    pub numbers: Arc<Numbers>,
}

/// Something that happened to a followed frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The frame's number.
    pub frame: u32,
    /// The place among everything that was seen.
    pub order: u32,
    /// In which lane.
    pub lane: LaneId,
    /// In which turn.
    pub at: Instant,
    /// What it was.
    pub what: Sight,
}

/// A station or step that a frame passes, and what was decided there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant)] // A few thousand of them exist, and only while somebody looks.
pub enum Sight {
    /// It came in at a port. Nothing is known of a frame that nobody can read.
    Received(LinkId, usize, Option<Headers>),
    /// A netstack sent it by a link.
    Sent(LinkId, usize, Option<Headers>),
    /// The flow that it belongs to at a port, in a direction as the port's user sees it.
    Flow(LinkId, Direction, Option<FlowId>),
    /// The flow's limit holds it.
    Held(FlowId),
    /// The switch sends it to a port.
    Switched(LinkId),
    /// The switch sends a copy to so many ports.
    Flooded(usize),
    /// It waits for the device behind a port.
    Device(LinkId),
    /// Another lane goes on with it.
    Handed(LaneId),
    /// It reaches a netstack by a link.
    Netstack(NetstackId, LinkId),
    /// Whose packet it is there.
    Found(Owner),
    /// It enters a step.
    Step(Step, Direction),
    /// A netstack's filter has said so of it, and by the how manieth of its rules, if by one.
    Judged(NetstackId, Verdict, Option<u32>),
    /// The translator of addresses has given it these ends.
    Translated(Headers),
    /// IP has sent it onward by a route.
    Forwarded,
    /// IP keeps it: for the rest of its datagram, or until the neighbour has answered.
    Kept,
    /// The translator of addresses keeps it: until the first piece of its datagram has come.
    Early,
    /// IP itself was meant: ARP, ICMP and neighbour discovery end here.
    Consumed,
    /// A transport has what it needs of it.
    Delivered,
    /// It ends.
    Dropped(DropReason),
}

/// What the classifier knows of a packet for a netstack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A connection, whose list of steps follows.
    Connection,
    /// A forwarded flow, whose list of steps follows.
    ForwardedFlow,
    /// Nothing: the slow path decides.
    Nobody,
}

/// Reads a counter of the CPU's cycles, or of what the machine has in their place. The lane has no clock of its own.
pub type Cycles = fn() -> u64;

/// What one step has cost since it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepCount {
    /// Frames, or segments outward.
    pub frames: u64,
    /// Cycles.
    pub cycles: u64,
}

/// What each step has cost, inward and outward.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepCounts([[StepCount; Direction::ALL.len()]; Step::ALL.len()]);

impl StepCounts {
    /// What `step` has cost in one direction.
    pub fn of(&self, step: Step, direction: Direction) -> StepCount {
        self.0[step as usize][direction.index()]
    }

    /// Adds another lane's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
            mine.frames += theirs.frames;
            mine.cycles += theirs.cycles;
        }
    }
}

/// Who looks at a lane.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    trace: Option<Box<Trace>>,
    meter: Option<Box<Meter>>,
}

#[derive(Debug)]
struct Trace {
    tracing: Tracing,
    seen: Vec<Seen>,
    lost: u64,
}

#[derive(Debug)]
struct Meter {
    cycles: Cycles,
    counts: StepCounts,
}

impl Watch {
    /// Whether chains go step by step.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.trace.is_some() || self.meter.is_some()
    }

    /// Whether frames are followed.
    #[inline]
    pub(crate) fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }

    pub(crate) fn set_trace(&mut self, tracing: Option<Tracing>) {
        self.trace = tracing.map(|tracing| {
            let seen = Vec::with_capacity(SEEN_MAX);
            Box::new(Trace { tracing, seen, lost: 0 })
        });
    }

    /// What was seen since the last call, and how much found no room.
    pub(crate) fn take_seen(&mut self) -> (Vec<Seen>, u64) {
        let Some(trace) = &mut self.trace else { return (Vec::new(), 0) };
        let seen = core::mem::replace(&mut trace.seen, Vec::with_capacity(SEEN_MAX));
        (seen, core::mem::take(&mut trace.lost))
    }

    pub(crate) fn count_steps(&mut self, cycles: Option<Cycles>) {
        self.meter = cycles.map(|cycles| Box::new(Meter { cycles, counts: StepCounts::default() }));
    }

    pub(crate) fn counts(&self) -> StepCounts {
        self.meter.as_ref().map(|meter| meter.counts.clone()).unwrap_or_default()
    }

    /// The number of a frame that begins its way here: its own if it has one, else a new one if it is followed.
    #[cold]
    pub(crate) fn number(
        &self,
        has: u32,
        headers: Option<&Headers>,
        flow_of: impl Fn(LinkId, Option<MacAddr>) -> Option<FlowId>,
    ) -> u32 {
        let Some(trace) = self.trace.as_ref().filter(|_| has == 0) else { return has };
        let is_meant = match (trace.tracing.of, headers) {
            (Followed::Address(address), Some(headers)) => has_address(headers, address),
            (Followed::Flow { flow, owner, mac }, Some(_)) => flow_of(owner, mac) == Some(flow),
            (Followed::Invented, _) | (_, None) => false,
        };
        if is_meant { trace.tracing.numbers.frame().unwrap_or_default() } else { 0 }
    }

    /// A number for an invented frame.
    pub(crate) fn invent(&self) -> Option<u32> {
        self.trace.as_ref()?.tracing.numbers.frame()
    }

    /// Something happens to the frame with the number `frame`; nothing is written of one without.
    #[inline]
    pub(crate) fn see(&mut self, (lane, at): (LaneId, Instant), frame: u32, what: Sight) {
        if frame != 0 {
            self.write(lane, at, frame, what);
        }
    }

    #[cold]
    fn write(&mut self, lane: LaneId, at: Instant, frame: u32, what: Sight) {
        let Some(trace) = &mut self.trace else { return };
        if trace.seen.len() == SEEN_MAX {
            trace.lost += 1;
            return;
        }
        let order = trace.tracing.numbers.order.fetch_add(1, Ordering::Relaxed);
        trace.seen.push(Seen { frame, order, lane, at, what });
    }

    /// The cycles before a step, if they are counted.
    #[inline]
    pub(crate) fn begin(&self) -> Option<u64> {
        self.meter.as_ref().map(|meter| (meter.cycles)())
    }

    /// A step that began at `began` is done with a frame.
    #[inline]
    pub(crate) fn end(&mut self, step: Step, direction: Direction, began: Option<u64>) {
        if let (Some(meter), Some(began)) = (&mut self.meter, began) {
            let count = &mut meter.counts.0[step as usize][direction.index()];
            count.frames += 1;
            count.cycles += (meter.cycles)().saturating_sub(began);
        }
    }
}

fn has_address(headers: &Headers, address: IpAddr) -> bool {
    let is_it = |of: IpAddr| of == address;
    match headers.l3 {
        L3::V4 { src, dst } => is_it(src.into()) || is_it(dst.into()),
        L3::V6 { src, dst } => is_it(src.into()) || is_it(dst.into()),
        L3::Arp | L3::Malformed | L3::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracing(most: u32) -> (Watch, Arc<Numbers>) {
        let numbers = Arc::new(Numbers::new(most));
        let mut watch = Watch::default();
        watch.set_trace(Some(Tracing { of: Followed::Invented, numbers: Arc::clone(&numbers) }));
        (watch, numbers)
    }

    #[test]
    fn frames_get_numbers_until_there_are_enough() {
        let (watch, numbers) = tracing(2);
        assert_eq!([watch.invent(), watch.invent(), watch.invent()], [Some(1), Some(2), None]);
        assert_eq!(numbers.frames(), 2);
        assert_eq!(watch.number(1, None, |_, _| None), 1, "a number stays");
        assert_eq!(watch.number(0, None, |_, _| None), 0, "nobody has asked for it");
    }

    #[test]
    fn what_finds_no_room_is_counted_and_frames_without_a_number_are_nobodys() {
        let (mut watch, _) = tracing(1);
        let here = (LaneId(3), Instant::from_secs(1));
        watch.see(here, 0, Sight::Consumed);
        (0..SEEN_MAX + 7).for_each(|_| watch.see(here, 1, Sight::Consumed));
        let (seen, lost) = watch.take_seen();
        assert_eq!((seen.len(), lost), (SEEN_MAX, 7));
        assert!(seen.iter().enumerate().all(|(nth, it)| it.order == nth as u32 && it.lane == LaneId(3)));
        assert_eq!(watch.take_seen(), (Vec::new(), 0));
    }

    #[test]
    fn steps_are_counted_while_somebody_looks() {
        static NOW: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
        let mut watch = Watch::default();
        watch.end(Step::Ip, Direction::In, watch.begin());
        assert_eq!(watch.counts(), StepCounts::default());
        watch.count_steps(Some(|| NOW.fetch_add(5, Ordering::Relaxed)));
        watch.end(Step::Ip, Direction::In, watch.begin());
        watch.end(Step::Ip, Direction::In, watch.begin());
        let mut counts = watch.counts();
        counts.merge(&watch.counts());
        assert_eq!(counts.of(Step::Ip, Direction::In), StepCount { frames: 4, cycles: 20 });
        assert_eq!(counts.of(Step::Ip, Direction::Out), StepCount::default());
        watch.count_steps(None);
        assert!(!watch.is_on());
    }
}
