//! The nest: flows and what they are part of.
//!
//! A frame belongs to one flow and passes the gates of that flow and of everything above it, from the leaf up.
//! All of them are charged together when it passes, none when it does not. The Solaris original did not nest:
//! a flow's traffic escaped its link's limit. It had no guarantees either: at a gate, who has one below it
//! and is owed comes before all ranks.

use core::cmp::Reverse;

use firelane_frame::Frame;
use firelane_table::Minted;
use firelane_units::{BitRate, Bytes, Direction, DropReason, FlowId, Instant, Priority};

use crate::board::Origin;
use crate::counters::Counters;
use crate::gate::{Gate, Links, Neighbours, Owed, RANKS};
use crate::guarantee::Guarantee;
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
    pub(crate) guarantee: Option<Box<Guarantee>>,
    /// Whether it or anything on the way up has a guarantee.
    pub(crate) has_promise: bool,
    pub(crate) hold: Hold,
    /// Frames dropped at the limit since the flow last held none.
    pub(crate) flood: u32,
    /// The gate at which the held frames wait.
    pub(crate) waits_at: Option<FlowId>,
    /// The rank with which it waits there.
    rank: usize,
    neighbours: Neighbours,
    /// Bit n: it stands in the agenda of the gate n levels up.
    listed: u8,
    /// The last frame that passed because it was owed, by the count of them.
    pub(crate) served: u64,
    /// Bytes that deficit round robin owes to this flow; less than none if it had more than its turn.
    pub(crate) deficit: i64,
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
    pub(crate) fn drop_one(&mut self, rate: BitRate, bytes: Bytes, frame: Frame, origin: Origin) -> Verdict {
        let dropped = match self.hold.make_room(rate, bytes) {
            Some(first) => {
                self.counters.held += 1;
                self.hold.push(frame, origin);
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
pub(crate) struct Nodes {
    places: Minted<Node>,
    /// How many frames have passed because their flow was owed.
    pub(crate) served: u64,
}

impl Node {
    pub(crate) fn side(&self, direction: Direction) -> &Side {
        &self.sides[direction.index()]
    }

    pub(crate) fn side_mut(&mut self, direction: Direction) -> &mut Side {
        &mut self.sides[direction.index()]
    }

    /// Whether it has a limit of its own, which is one in both directions.
    pub(crate) fn is_limiting(&self) -> bool {
        self.side(Direction::Out).gate.is_some()
    }
}

/// The links of flows that wait in one direction.
struct SideLinks<'a>(&'a mut Nodes, Direction);

impl Links for SideLinks<'_> {
    fn of(&mut self, flow: FlowId) -> &mut Neighbours {
        &mut self.0.at_mut(flow).side_mut(self.1).neighbours
    }
}

impl Nodes {
    #[inline]
    pub(crate) fn get(&self, flow: FlowId) -> Option<&Node> {
        self.places.get(flow.0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, flow: FlowId) -> Option<&mut Node> {
        self.places.get_mut(flow.0)
    }

    /// A limit is another: what holds go by is what waits in them.
    pub(crate) fn forget_sizes(&mut self) {
        let sides = self.places.iter_mut().flat_map(|node| node.sides.iter_mut());
        sides.for_each(|side| side.hold.forget_sizes());
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

    /// Puts a flow in, whose number is free and whose parent is there.
    pub(crate) fn put(&mut self, flow: FlowId, node: Node) {
        if let Some(parent) = node.parent {
            self.at_mut(parent).children += 1;
        }
        assert!(self.places.insert(flow.0, node).is_ok(), "it was looked for");
        self.refresh(flow);
    }

    /// Takes out a flow that no other is part of.
    pub(crate) fn take(&mut self, flow: FlowId) -> Option<Node> {
        let node = self.places.remove(flow.0)?;
        if let Some(parent) = node.parent {
            self.at_mut(parent).children -= 1;
        }
        Some(node)
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.places.allocated_bytes()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowId, &Node)> {
        self.places.entries().map(|(id, node)| (FlowId(id), node))
    }

    /// The flow that stands in the `nth` place.
    fn id_at(&self, nth: usize) -> Option<FlowId> {
        self.places.at(nth).map(|(id, _)| FlowId(id))
    }

    /// The flow itself and everything above it.
    pub(crate) fn upward(&self, flow: FlowId) -> impl Iterator<Item = FlowId> {
        core::iter::successors(Some(flow), |&at| self.get(at)?.parent)
    }

    /// Where a flow stands among those that wait for the same limit: the priority of its VNIC counts before its own, so that lowering a
    /// link lowers all of its flows. What no flow of a VNIC takes is of medium priority in it. A VNIC is what is part of a root, which is
    /// the link that its neighbours share, or a root itself.
    pub(crate) fn rank(&self, flow: FlowId) -> usize {
        let node = self.at(flow);
        let vnic = node.parent.map(|parent| self.at(parent)).filter(|parent| parent.parent.is_some());
        let (outer, inner) = match vnic {
            Some(vnic) => (vnic.priority, node.priority),
            None => (node.priority, Priority::Medium),
        };
        let rank = outer as usize * Priority::ALL.len() + inner as usize;
        debug_assert!(rank < RANKS);
        rank
    }

    /// From when on a flow is owed at gate `here`: the first moment at which it, or something above it and below the gate,
    /// has not had what it is guaranteed. Far in the future if nothing there is guaranteed.
    pub(crate) fn owed_at(&self, flow: FlowId, direction: Direction, here: FlowId) -> Instant {
        if !self.at(flow).side(direction).has_promise {
            return Instant::FAR_FUTURE;
        }
        let below = self.upward(flow).take_while(|&at| at != here);
        let owed = below.filter_map(|at| Some(self.at(at).side(direction).guarantee.as_ref()?.owed_at()));
        owed.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The place of a flow among those that wait at gate `here`: its rank, or `None` if it is owed there.
    pub(crate) fn standing(
        &self,
        now: Instant,
        flow: FlowId,
        direction: Direction,
        here: FlowId,
    ) -> Option<usize> {
        (self.owed_at(flow, direction, here) > now).then(|| self.rank(flow))
    }

    /// The lowest gate that does not let a frame of `flow` pass now. A gate at which flows of at least the same
    /// rank wait, or such as are owed, lets nobody else pass.
    pub(crate) fn first_closed(&self, now: Instant, flow: FlowId, direction: Direction) -> Option<FlowId> {
        self.next_closed(now, flow, direction, None)
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
        let mut above = here.is_none();
        self.upward(flow).find(|&at| {
            let waiting_counts = above;
            above |= Some(at) == here;
            let Some(gate) = &self.at(at).side(direction).gate else { return false };
            let prefers_others = || gate.prefers_others(now, self.standing(now, flow, direction, at));
            !gate.limiter.is_ready(now) || (waiting_counts && prefers_others())
        })
    }

    /// Charges every gate and every guarantee on the way up. Gates below the one at which the flow has waited keep more of what was not used
    /// meanwhile: with only the slack of its own limit a flow would have less of the limit above than its neighbours, which have none.
    pub(crate) fn charge(
        &mut self,
        now: Instant,
        flow: FlowId,
        direction: Direction,
        bytes: Bytes,
        has_waited: bool,
    ) {
        let here = self.at(flow).side(direction).waits_at;
        let mut is_below = here.is_some();
        let mut at = Some(flow);
        while let Some(id) = at {
            is_below &= here != Some(id);
            let node = self.at_mut(id);
            at = node.parent;
            let side = node.side_mut(direction);
            if let Some(gate) = &mut side.gate {
                match is_below {
                    true => gate.limiter.charge_from_above(now, bytes),
                    false => gate.limiter.charge(now, bytes),
                }
            }
            if let Some(guarantee) = &mut side.guarantee {
                guarantee.charge(now, bytes, has_waited);
            }
        }
    }

    /// A flow that held nothing begins to wait: what its guarantees have earned in silence is forgotten.
    pub(crate) fn begin_waiting(&mut self, now: Instant, flow: FlowId, direction: Direction) {
        if !self.at(flow).side(direction).has_promise {
            return;
        }
        let mut at = Some(flow);
        while let Some(node) = at.map(|id| self.at_mut(id)) {
            at = node.parent;
            if let Some(guarantee) = &mut node.side_mut(direction).guarantee {
                guarantee.begin(now);
            }
        }
    }

    /// What a guaranteed flow may keep in front of the limits: what the largest guarantee on its way up has to have there.
    pub(crate) fn reserve(&self, flow: FlowId, direction: Direction) -> Bytes {
        if !self.at(flow).side(direction).has_promise {
            return Bytes::ZERO;
        }
        let of = |at| self.at(at).side(direction).guarantee.as_ref();
        self.upward(flow).filter_map(of).map(|it| it.reserve()).max().unwrap_or(Bytes::ZERO)
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
            let has_promise = self.upward(flow).any(|at| self.at(at).side(direction).guarantee.is_some());
            let side = self.at_mut(flow).side_mut(direction);
            (side.tightest, side.has_promise) = (tightest, has_promise);
            self.narrow_above(flow, direction);
        }
    }

    /// Who has a limit of his own brings to the gates above no more at a time than that keeps for him, so nobody has longer turns there.
    fn narrow_above(&mut self, flow: FlowId, direction: Direction) {
        let node = self.at(flow);
        let Some(kept) = node.side(direction).gate.as_ref().map(|gate| gate.limiter.kept()) else { return };
        let mut above = node.parent;
        while let Some(node) = above.map(|id| self.at_mut(id)) {
            above = node.parent;
            if let Some(gate) = &mut node.side_mut(direction).gate {
                gate.turn_most = gate.turn_most.min(kept);
            }
        }
    }

    /// The same for a flow whose limit or guarantee has changed, and for everything that is part of it.
    pub(crate) fn refresh_family(&mut self, flow: FlowId) {
        self.refresh(flow);
        if self.at(flow).children == 0 {
            return;
        }
        for nth in 0..self.places.places() {
            let Some(id) = self.id_at(nth).filter(|&id| id != flow) else { continue };
            if self.upward(id).any(|above| above == flow) {
                self.refresh(id);
            }
        }
    }

    /// Lets a flow wait at a gate, behind those of its rank.
    pub(crate) fn enqueue(&mut self, flow: FlowId, direction: Direction, gate: FlowId) {
        let rank = self.rank(flow);
        let side = self.at_mut(flow).side_mut(direction);
        (side.waits_at, side.rank) = (Some(gate), rank);
        self.with_gate(gate, direction, |gate, links| gate.push(flow, rank, links));
        self.list(flow, direction);
    }

    /// Takes a flow out of the queue in which it waits.
    pub(crate) fn leave(&mut self, flow: FlowId, direction: Direction) {
        let side = self.at_mut(flow).side_mut(direction);
        let rank = side.rank;
        if let Some(gate) = side.waits_at.take() {
            self.with_gate(gate, direction, |gate, links| gate.remove(flow, rank, links));
        }
    }

    /// Enters a flow that waits into the agenda of its gate, if anything is guaranteed below that and it is not there yet.
    pub(crate) fn list(&mut self, flow: FlowId, direction: Direction) {
        let side = self.at(flow).side(direction);
        let Some(gate) = side.waits_at.filter(|_| side.has_promise) else { return };
        let (at, served) = (self.owed_at(flow, direction, gate), side.served);
        let bit = 1 << self.upward(flow).take_while(|&at| at != gate).count();
        let side = self.at_mut(flow).side_mut(direction);
        if at == Instant::FAR_FUTURE || side.listed & bit != 0 {
            return;
        }
        side.listed |= bit;
        if let Some(gate) = &mut self.at_mut(gate).side_mut(direction).gate {
            gate.agenda.push(Reverse(Owed { at, served, flow }));
        }
    }

    /// What is part of a gate that is gone stands in no agenda of it.
    pub(crate) fn unlist_family(&mut self, gate: FlowId, direction: Direction) {
        for nth in 0..self.places.places() {
            let Some(id) = self.id_at(nth) else { continue };
            let level = self.upward(id).position(|at| at == gate);
            if let Some(level) = level {
                self.at_mut(id).side_mut(direction).listed &= !(1 << level);
            }
        }
    }

    /// The flow that waits at `gate` and has been owed for longest, if any is. Its entry stays, behind the others that are
    /// owed from the same instant on.
    pub(crate) fn most_owed(&mut self, now: Instant, gate: FlowId, direction: Direction) -> Option<FlowId> {
        loop {
            let agenda = &mut self.at_mut(gate).side_mut(direction).gate.as_mut()?.agenda;
            let Reverse(entry) = *agenda.peek().filter(|Reverse(first)| first.at <= now)?;
            agenda.pop();
            let flow = entry.flow;
            let Some(node) = self.get(flow) else { continue };
            let level = self.upward(flow).take_while(|&at| at != gate).count();
            let waits_here = node.side(direction).waits_at == Some(gate);
            let at = self.owed_at(flow, direction, gate);
            if !waits_here || at == Instant::FAR_FUTURE {
                self.at_mut(flow).side_mut(direction).listed &= !(1 << level);
                continue;
            }
            let is_owed = at <= now;
            self.served += u64::from(is_owed);
            let last = self.served;
            let side = self.at_mut(flow).side_mut(direction);
            if is_owed {
                side.served = last;
            }
            let entry = Owed { at, served: side.served, flow };
            self.at_mut(gate).side_mut(direction).gate.as_mut()?.agenda.push(Reverse(entry));
            if is_owed {
                return Some(flow);
            }
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
