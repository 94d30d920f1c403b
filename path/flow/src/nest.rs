//! The nest: flows and what they are part of.
//!
//! A frame belongs to one flow and passes the gates of that flow and of everything above it, from the leaf up.
//! All of them are charged together when it passes, none when it does not. The Solaris original did not nest:
//! a flow's traffic escaped its link's limit.

use firelane_frame::Frame;
use firelane_units::{BitRate, Bytes, Direction, DropReason, FlowId, Instant, Priority};

use crate::counters::Counters;
use crate::gate::{Gate, Links, RANKS};
use crate::hold::Hold;
use crate::table::Verdict;

/// How deep flows nest: flow, VNIC, link, and the link's zone.
pub const NEST_MAX: usize = 4;

/// One flow, VNIC or link.
pub(crate) struct Node {
    pub(crate) parent: Option<FlowId>,
    /// How many flows are part of it, itself not among them.
    pub(crate) children: u32,
    pub(crate) priority: Priority,
    pub(crate) sides: [Side; 2],
}

/// One direction of a flow.
#[derive(Default)]
pub(crate) struct Side {
    /// The tightest limit on the way up; `None` if there is no limit at all.
    pub(crate) tightest: Option<BitRate>,
    pub(crate) counters: Counters,
    pub(crate) gate: Option<Box<Gate>>,
    pub(crate) hold: Hold,
    /// Frames dropped at the limit since the flow last held none.
    pub(crate) flood: u32,
    /// The gate at which the held frames wait.
    pub(crate) waits_at: Option<FlowId>,
    next: Option<FlowId>,
    /// Bytes that deficit round robin owes to this flow.
    pub(crate) deficit: u64,
    /// Whether this round's quantum was added already.
    pub(crate) in_turn: bool,
}

impl Side {
    pub(crate) fn new(maxbw: Option<BitRate>, now: Instant) -> Self {
        Self { gate: maxbw.map(|rate| Box::new(Gate::new(rate, now))), ..Self::default() }
    }

    /// Counts a frame that the limit drops.
    pub(crate) fn drop(&mut self, frame: &Frame) {
        self.flood = self.flood.saturating_add(1);
        self.counters.drop(frame);
    }

    /// Drops a frame because the hold is full: one of the conversation that holds most, if `frame` can have its
    /// place, else `frame` itself.
    pub(crate) fn drop_one(&mut self, rate: BitRate, bytes: Bytes, frame: Frame) -> Verdict {
        let dropped = match self.hold.make_room(rate, bytes) {
            Some(first) => {
                self.counters.held += 1;
                self.hold.push(frame);
                first
            }
            None => frame,
        };
        self.drop(&dropped);
        Verdict::Drop(dropped, DropReason::FlowLimit)
    }
}

/// All flows of a lane, by their identifiers.
#[derive(Default)]
pub(crate) struct Nodes(Vec<Option<Node>>);

impl Node {
    pub(crate) fn side(&self, direction: Direction) -> &Side {
        &self.sides[direction.index()]
    }

    pub(crate) fn side_mut(&mut self, direction: Direction) -> &mut Side {
        &mut self.sides[direction.index()]
    }
}

/// The links of flows that wait in one direction.
struct SideLinks<'a>(&'a mut Nodes, Direction);

impl Links for SideLinks<'_> {
    fn next(&mut self, flow: FlowId) -> &mut Option<FlowId> {
        &mut self.0.at_mut(flow).side_mut(self.1).next
    }
}

impl Nodes {
    #[inline]
    pub(crate) fn get(&self, flow: FlowId) -> Option<&Node> {
        self.0.get(flow.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, flow: FlowId) -> Option<&mut Node> {
        self.0.get_mut(flow.index())?.as_mut()
    }

    /// A flow that a table or a queue refers to.
    #[inline]
    pub(crate) fn at(&self, flow: FlowId) -> &Node {
        self.get(flow).expect("parents outlive their children, and a removed flow waits nowhere")
    }

    /// A flow that a table or a queue refers to.
    #[inline]
    pub(crate) fn at_mut(&mut self, flow: FlowId) -> &mut Node {
        self.get_mut(flow).expect("parents outlive their children, and a removed flow waits nowhere")
    }

    /// Puts a flow in, whose parent is there.
    pub(crate) fn put(&mut self, flow: FlowId, node: Node) {
        if self.0.len() <= flow.index() {
            self.0.resize_with(flow.index() + 1, || None);
        }
        if let Some(parent) = node.parent {
            self.at_mut(parent).children += 1;
        }
        self.0[flow.index()] = Some(node);
        self.refresh(flow);
    }

    /// Takes out a flow that no other is part of.
    pub(crate) fn take(&mut self, flow: FlowId) -> Option<Node> {
        let node = self.0.get_mut(flow.index())?.take()?;
        if let Some(parent) = node.parent {
            self.at_mut(parent).children -= 1;
        }
        Some(node)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowId, &Node)> {
        (0u32..).map(FlowId).zip(&self.0).filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// The flow itself and everything above it.
    pub(crate) fn upward(&self, flow: FlowId) -> impl Iterator<Item = FlowId> {
        core::iter::successors(Some(flow), |&at| self.get(at)?.parent)
    }

    /// Where a flow stands among those that wait for the same limit: its parent's priority counts before its
    /// own, so that lowering a link lowers all of its flows. A parent's own traffic is of medium priority in it.
    pub(crate) fn rank(&self, flow: FlowId) -> usize {
        let node = self.at(flow);
        let (outer, inner) = match node.parent {
            Some(parent) => (self.at(parent).priority, node.priority),
            None => (node.priority, Priority::Medium),
        };
        let rank = outer as usize * Priority::ALL.len() + inner as usize;
        debug_assert!(rank < RANKS);
        rank
    }

    /// The lowest gate that does not let a frame of `flow` pass now. A gate at which flows of at least the same
    /// rank wait lets nobody else pass.
    pub(crate) fn first_closed(&self, now: Instant, flow: FlowId, direction: Direction) -> Option<FlowId> {
        let rank = self.rank(flow);
        self.upward(flow).find(|&at| {
            let gate = self.at(at).side(direction).gate.as_ref();
            gate.is_some_and(|gate| !gate.limiter.is_ready(now) || gate.has_waiting(rank))
        })
    }

    /// The gate that holds back a flow whose turn it is at gate `here`: one below that is not ready, or one above
    /// that is not ready or at which others wait.
    pub(crate) fn next_closed(
        &self,
        now: Instant,
        flow: FlowId,
        direction: Direction,
        here: Option<FlowId>,
    ) -> Option<FlowId> {
        let rank = self.rank(flow);
        let mut above = here.is_none();
        self.upward(flow).find(|&at| {
            let waiting_counts = above;
            above |= Some(at) == here;
            let gate = self.at(at).side(direction).gate.as_ref();
            gate.is_some_and(|gate| !gate.limiter.is_ready(now) || (waiting_counts && gate.has_waiting(rank)))
        })
    }

    /// Charges every gate on the way up.
    pub(crate) fn charge(&mut self, now: Instant, flow: FlowId, direction: Direction, bytes: Bytes) {
        let mut at = Some(flow);
        while let Some(id) = at {
            let node = self.at_mut(id);
            at = node.parent;
            if let Some(gate) = &mut node.side_mut(direction).gate {
                gate.limiter.charge(now, bytes);
            }
        }
    }

    /// Whether a limit of zero stands on the way.
    pub(crate) fn is_shut(&self, flow: FlowId, direction: Direction) -> bool {
        self.get(flow).is_some_and(|node| node.side(direction).tightest == Some(BitRate::ZERO))
    }

    /// Computes again what a flow knows about the limits above it.
    fn refresh(&mut self, flow: FlowId) {
        for direction in Direction::ALL {
            let rate = |at| Some(self.at(at).side(direction).gate.as_ref()?.limiter.rate());
            let tightest = self.upward(flow).filter_map(rate).min();
            self.at_mut(flow).side_mut(direction).tightest = tightest;
        }
    }

    /// The same for a flow whose limit has changed, and for everything that is part of it.
    pub(crate) fn refresh_family(&mut self, flow: FlowId) {
        self.refresh(flow);
        if self.at(flow).children == 0 {
            return;
        }
        for id in (0..self.0.len() as u32).map(FlowId) {
            if id != flow && self.get(id).is_some() && self.upward(id).any(|above| above == flow) {
                self.refresh(id);
            }
        }
    }

    /// Lets a flow wait at a gate, behind those of its rank.
    pub(crate) fn enqueue(&mut self, flow: FlowId, direction: Direction, gate: FlowId) {
        let rank = self.rank(flow);
        self.at_mut(flow).side_mut(direction).waits_at = Some(gate);
        self.with_gate(gate, direction, |gate, links| gate.push(flow, rank, links));
    }

    /// Takes the first flow of a rank out of a gate's queue.
    pub(crate) fn dequeue(&mut self, gate: FlowId, direction: Direction, rank: usize) {
        if let Some(flow) = self.with_gate(gate, direction, |gate, links| gate.pop(rank, links)).flatten() {
            self.at_mut(flow).side_mut(direction).waits_at = None;
        }
    }

    /// Takes a flow out of the queue in which it waits.
    pub(crate) fn leave(&mut self, flow: FlowId, direction: Direction) {
        if let Some(gate) = self.at_mut(flow).side_mut(direction).waits_at.take() {
            self.with_gate(gate, direction, |gate, links| gate.remove(flow, links));
        }
    }

    /// A gate and the links of its queues live in the same table; the gate is taken out meanwhile.
    fn with_gate<T>(
        &mut self,
        at: FlowId,
        direction: Direction,
        change: impl FnOnce(&mut Gate, &mut SideLinks<'_>) -> T,
    ) -> Option<T> {
        let mut gate = self.at_mut(at).side_mut(direction).gate.take()?;
        let result = change(&mut gate, &mut SideLinks(self, direction));
        self.at_mut(at).side_mut(direction).gate = Some(gate);
        Some(result)
    }
}
