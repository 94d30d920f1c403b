//! The flows of one lane: what the lane asks per frame, and what it is told when configuration changes.
//!
//! Owned by a lane and asked from its turn only. Per frame, a flow without any limit above it costs one index and
//! five additions; everything else happens only where there is a limit. Changes come as messages between turns.

use std::collections::BinaryHeap;
use std::sync::Arc;

use firelane_frame::{Chain, Frame, Pools, Weight, offload};
use firelane_units::{
    BitRate, Bytes, Direction, DropCounters, DropReason, FlowId, Instant, LaneId, Priority,
};

use crate::board::{Board, Origin, UnderWay};
use crate::conversation::Conversation;
use crate::counters::Counters;
use crate::gate::Gate;
use crate::guarantee::Guarantee;
use crate::lender::Limits;
use crate::limiter::GATHER;
use crate::nest::{NEST_MAX, Node, Nodes, Side};
use crate::schedule::Alarm;

/// How many frames all flows of a lane may hold together, so that limited flows do not use up the pool that others
/// need. One flow may hold as many as are free (Choudhury and Hahne's dynamic threshold): a flood of small frames
/// gets half, and leaves the other half to its neighbours.
pub const HELD_FRAMES_MAX: usize = 4096;
/// What is lent at once at least, if that much is wanted: the text of an Ethernet frame.
const LOAN_LEAST: Bytes = Bytes(1460);
/// How many frames a flow may hold whatever the others hold.
const HELD_FRAMES_LEAST: usize = 4;

/// How many frames a flow loses before it is a flood ([`FlowTable::is_flooded`]): more than a TCP sender loses before it
/// hears of it.
const FLOOD: u32 = 64;

/// How a flow is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowConfig {
    /// What it is part of: the VNIC's flow, or the link's.
    pub parent: Option<FlowId>,
    /// The limit in each direction; zero lets nothing pass.
    pub maxbw: Option<BitRate>,
    /// Who goes first when several wait.
    pub priority: Priority,
}

/// What becomes of a frame.
#[derive(Debug)]
pub enum Verdict {
    /// It goes on.
    Pass(Frame),
    /// It waits here and comes out of [`FlowTable::release`].
    Held,
    /// This frame, or one of the same flow that has waited and makes room for it, is given back to be dropped and
    /// counted; the flow has counted it already.
    Drop(Frame, DropReason),
}

/// What a sender on this host may send now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// There is no limit.
    Unlimited,
    /// This many wire bytes, and always one frame.
    Bytes(Bytes),
    /// Nothing before this instant. Ask again then.
    At(Instant),
}

impl Credit {
    /// The same for who asks behind others that have sent so much in this round: until when he has to wait is known when that has come.
    #[must_use]
    pub fn behind(self, now: Instant, sent: Bytes) -> Self {
        match self {
            Self::At(at) if sent > Bytes::ZERO && at != Instant::FAR_FUTURE => Self::At(now),
            credit => credit,
        }
    }

    /// What two limits allow together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unlimited, only) | (only, Self::Unlimited) => only,
            (Self::At(one), Self::At(other)) => Self::At(one.max(other)),
            (Self::At(at), Self::Bytes(_)) | (Self::Bytes(_), Self::At(at)) => Self::At(at),
            (Self::Bytes(one), Self::Bytes(other)) => Self::Bytes(one.min(other)),
        }
    }
}

/// Why a flow could not be added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowError {
    /// The identifier is in use.
    Exists,
    /// There is no such flow.
    Unknown,
    /// The parent does not exist.
    NoParent,
    /// More than [`NEST_MAX`] levels.
    TooDeep,
    /// Other flows are part of it.
    HasChildren,
}

/// All flows of a lane.
#[derive(Default)]
pub struct FlowTable {
    pub(crate) nodes: Nodes,
    /// How many flows have a limit of their own.
    limits: usize,
    /// When which gate is worth looking at.
    pub(crate) alarms: BinaryHeap<Alarm>,
    /// Flows that hold frames but wait at no gate, because the gate was taken away.
    pub(crate) loose: Vec<(FlowId, Direction)>,
    /// The gate whose flows are served, while a release goes on.
    pub(crate) opened: Option<(FlowId, Direction)>,
    pub(crate) held: usize,
    /// Frames whose flow does not exist; they pass.
    stray: Counters,
    /// Where the frames at hand come from.
    origin: Origin,
    /// Where large frames are cut; kept for its storage.
    pieces: Chain,
}

impl FlowTable {
    /// No flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Frames that are asked for from here on come from there.
    #[inline]
    pub fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// Whether no limit stands on the way of this flow's frames, and none waits.
    #[inline]
    pub fn is_unlimited(&self, flow: FlowId, direction: Direction) -> bool {
        self.nodes.get(flow).is_some_and(|node| {
            let side = node.side(direction);
            side.tightest.is_none() && side.hold.is_empty()
        })
    }

    /// Lets a frame pass if no limit stands on its way, and counts it. If not, the caller asks
    /// [`admit`](Self::admit). Most frames need no more than this, and it moves none.
    #[inline]
    pub fn pass_unlimited(&mut self, flow: FlowId, direction: Direction, weight: Weight) -> bool {
        let is_unlimited = self.is_unlimited(flow, direction);
        if is_unlimited {
            self.count_passed(flow, direction, 1, weight);
        }
        is_unlimited
    }

    /// Whether no limit stands on the way of frames with these flows at the port they came from and at the port they go to, if
    /// there are such. Who lets frames pass counts them ([`count_both`](Self::count_both)).
    #[inline]
    pub fn are_unlimited(&self, outward: Option<FlowId>, inward: Option<FlowId>) -> bool {
        outward.is_none_or(|flow| self.is_unlimited(flow, Direction::Out))
            && inward.is_none_or(|flow| self.is_unlimited(flow, Direction::In))
    }

    /// Counts frames that have passed both flows.
    #[inline]
    pub fn count_both(
        &mut self,
        outward: Option<FlowId>,
        inward: Option<FlowId>,
        frames: u64,
        weight: Weight,
    ) {
        for (flow, direction) in [(outward, Direction::Out), (inward, Direction::In)] {
            if let Some(flow) = flow {
                self.count_passed(flow, direction, frames, weight);
            }
        }
    }

    #[inline]
    fn count_passed(&mut self, flow: FlowId, direction: Direction, frames: u64, weight: Weight) {
        if let Some(node) = self.nodes.get_mut(flow) {
            let counters = &mut node.side_mut(direction).counters;
            counters.arrived += frames;
            counters.pass_all(frames, weight);
        }
    }

    /// Asks whether a frame may pass. Frames of one conversation keep their order.
    pub fn admit(&mut self, now: Instant, flow: FlowId, direction: Direction, frame: Frame) -> Verdict {
        if self.pass_unlimited(flow, direction, frame.weight()) {
            return Verdict::Pass(frame);
        }
        let Some(node) = self.nodes.get_mut(flow) else {
            self.stray.arrived += 1;
            self.stray.pass(frame.weight());
            return Verdict::Pass(frame);
        };
        let bytes = Bytes::from(frame.wire_bytes());
        let side = node.side_mut(direction);
        side.counters.arrived += 1;
        let tightest = side.tightest.unwrap_or(BitRate::from_bps(u64::MAX));
        if tightest == BitRate::ZERO {
            side.drop(&frame);
            return Verdict::Drop(frame, DropReason::FlowLimit);
        }
        let gate = if side.hold.is_empty() { self.nodes.first_closed(now, flow, direction) } else { None };
        let side = self.nodes.at_mut(flow).side_mut(direction);
        if side.hold.is_empty() && gate.is_none() {
            side.counters.pass(frame.weight());
            self.nodes.charge(now, flow, direction, bytes, false);
            return Verdict::Pass(frame);
        }
        let share = HELD_FRAMES_MAX.saturating_sub(self.held).max(HELD_FRAMES_LEAST);
        if side.hold.len() >= share || !side.hold.has_room(tightest, &frame) {
            return side.drop_one(tightest, bytes, frame, self.origin);
        }
        side.counters.held += 1;
        side.hold.push(frame, self.origin);
        self.held += 1;
        if let Some(gate) = gate {
            self.nodes.begin_waiting(now, flow, direction);
            self.nodes.enqueue(flow, direction, gate);
            self.arm(gate, direction);
        }
        Verdict::Held
    }

    /// Whether a flow loses frames without end, so that it is worth keeping them from being read at all.
    pub fn is_flooded(&self, flow: FlowId, direction: Direction) -> bool {
        self.nodes.get(flow).is_some_and(|node| node.side(direction).flood >= FLOOD)
    }

    /// Frames of a flow are read again: it has to lose others before it is a flood.
    pub fn forget_flood(&mut self, flow: FlowId, direction: Direction) {
        if let Some(node) = self.nodes.get_mut(flow) {
            node.side_mut(direction).flood = 0;
        }
    }

    /// Whether a flow holds less than half of what it may hold.
    pub fn has_room(&self, flow: FlowId, direction: Direction) -> bool {
        let Some(side) = self.nodes.get(flow).map(|node| node.side(direction)) else { return true };
        side.tightest.is_none_or(|rate| side.hold.bytes().0 * 2 < side.hold.limit(rate))
    }

    /// Whether nothing of a flow ever passes.
    pub fn is_closed(&self, flow: FlowId, direction: Direction) -> bool {
        self.nodes.is_shut(flow, direction)
    }

    /// Counts frames that would have been dropped at the limit and that nobody has read.
    pub fn count_turned_away(&mut self, flow: FlowId, direction: Direction, weight: Weight) {
        let Some(node) = self.nodes.get_mut(flow) else {
            return;
        };
        let counters = &mut node.side_mut(direction).counters;
        counters.arrived += weight.packets;
        counters.dropped += weight.packets;
        counters.dropped_bytes += weight.bytes;
    }

    /// Asks for a frame that may be large: if it takes more of the limit than one piece should, it is cut into its
    /// segments first, and each is asked for. What passes goes to `pass`, what is dropped is counted in `drops`.
    #[allow(clippy::too_many_arguments)] // The lane's own parts, which no struct holds together.
    pub fn admit_cut(
        &mut self,
        now: Instant,
        flow: FlowId,
        direction: Direction,
        frame: Frame,
        pools: &mut Pools,
        drops: &mut DropCounters,
        mut pass: impl FnMut(Frame),
    ) {
        let mut settle = |verdict: Verdict, pools: &mut Pools| match verdict {
            Verdict::Pass(frame) => pass(frame),
            Verdict::Held => {}
            Verdict::Drop(frame, reason) => {
                drops.count(reason);
                pools.put(frame);
            }
        };
        if !self.must_cut(flow, direction, &frame) {
            return settle(self.admit(now, flow, direction, frame), pools);
        }
        let mut pieces = core::mem::take(&mut self.pieces);
        let cut = offload::segment(frame, pools, &mut pieces);
        while let Some(piece) = pieces.pop() {
            settle(self.admit(now, flow, direction, piece), pools);
        }
        self.pieces = pieces;
        if let Err(reason) = cut {
            drops.count(reason);
        }
    }

    /// Whether a frame takes more of its tightest limit than one frame should, and can be cut.
    #[inline]
    pub fn must_cut(&self, flow: FlowId, direction: Direction, frame: &Frame) -> bool {
        frame.meta().segmentation.is_some_and(|cut| cut.segments(frame.len()) > 1)
            && self.tightest_piece(flow, direction).is_some_and(|piece| frame.wire_bytes() as u64 > piece.0)
    }

    fn tightest_piece(&self, flow: FlowId, direction: Direction) -> Option<Bytes> {
        let node = self.nodes.get(flow)?;
        node.side(direction).tightest?;
        let gates = self.nodes.upward(flow).filter_map(|at| self.nodes.at(at).side(direction).gate.as_ref());
        gates.map(|gate| gate.limiter.piece()).min()
    }

    /// What a socket whose traffic belongs to `flow` may send now, and is of this conversation if it is known, behind what was sent
    /// in this round. A sender that stays within it and asks again when told to is never dropped at the limit.
    pub fn credit(
        &self,
        now: Instant,
        (flow, direction): (FlowId, Direction),
        speaker: Option<Conversation>,
        sent: UnderWay,
    ) -> Credit {
        let Some(node) = self.nodes.get(flow) else { return Credit::Unlimited };
        let side = node.side(direction);
        if side.tightest.is_none() && side.waits_at.is_none() {
            return Credit::Unlimited;
        }
        match (side.waits_at, sent.all.0) {
            (Some(at), _) => self.credit_behind(now, (flow, direction), at, speaker, sent),
            (None, sent) => match self.credit_at_gates(now, (flow, direction)) {
                Credit::Bytes(bytes) if sent > 0 && bytes.0 <= sent => Credit::At(now),
                // Who is the first may always send a frame.
                Credit::Bytes(bytes) => Credit::Bytes(Bytes(bytes.0.saturating_sub(sent))),
                credit => credit,
            },
        }
    }

    /// The same where frames of the flow wait, at the gate `at`.
    fn credit_behind(
        &self,
        now: Instant,
        (flow, direction): (FlowId, Direction),
        at: FlowId,
        speaker: Option<Conversation>,
        sent: UnderWay,
    ) -> Credit {
        let side = self.nodes.at(flow).side(direction);
        let gate = self.nodes.at(at).side(direction).gate.as_deref();
        let shared = gate.filter(|_| self.is_shared(flow, at)).map_or(Bytes::ZERO, |gate| share(side, gate));
        let wanted = shared.max(self.nodes.reserve(flow, direction));
        // A device may bring a large frame where a byte was asked for.
        let room = side.tightest.map_or(0, |rate| side.hold.limit(rate) / 2);
        let room = room.saturating_sub(side.hold.largest().0);
        // Others of the flow, who do not ask, may never leave it empty: other lanes, and who forwards.
        let beside = || match speaker {
            Some(speaker) => side.hold.admits(side.tightest?, speaker, gate?.limiter.piece(), sent),
            None => side.hold.admits_of_device(side.tightest?, sent),
        };
        match wanted.0.min(room).checked_sub(side.hold.bytes().0 + sent.all.0) {
            Some(bytes) if bytes > 0 => Credit::Bytes(Bytes(bytes)),
            // The flow has frames of its own in the queue; more would only make it longer.
            _ => match beside() {
                Some(bytes) => Credit::Bytes(bytes),
                None => Credit::At(gate.map_or(now, |gate| gate.limiter.wake_at())),
            },
        }
    }

    /// The same where none does.
    fn credit_at_gates(&self, now: Instant, (flow, direction): (FlowId, Direction)) -> Credit {
        let node = self.nodes.at(flow);
        let side = node.side(direction);
        let is_shown = node.sides.iter().any(|side| side.hold.is_shown());
        let mut credit = Credit::Unlimited;
        for at in self.nodes.upward(flow) {
            let Some(gate) = &self.nodes.at(at).side(direction).gate else { continue };
            let others = gate.prefers_others(now, self.nodes.standing(now, flow, direction, at));
            let bytes = match gate.limiter.is_ready(now) && !others {
                true => gate.limiter.allowance(now),
                // A piece may wait where others do: a socket or a device has no other way to its share, and whoever
                // comes before others is served only if he is there when the limit has room. Who waits for credit always is.
                false if self.is_shared(flow, at) && !gate.limiter.is_closed() => share(side, gate),
                false if gate.has_waiting(now) && !gate.limiter.is_closed() => gate.limiter.piece(),
                // Senders of other lanes have frames where this limit is used up each time, here or at the one before it.
                false if is_shown && !gate.limiter.is_closed() => {
                    gate.limiter.piece().max(side.hold.largest())
                }
                false => return Credit::At(gate.limiter.wake_at()),
            };
            credit = credit.and(Credit::Bytes(bytes));
        }
        credit
    }

    /// Whether others may wait for the limit at `at`: their order and share are decided among what waits there.
    fn is_shared(&self, flow: FlowId, at: FlowId) -> bool {
        at != flow && self.nodes.at(at).children > 1
    }

    /// The board on which another lane sees what of `flow` waits here.
    pub fn board(&mut self, flow: FlowId, direction: Direction, reader: LaneId) -> Option<Arc<Board>> {
        Some(self.nodes.get_mut(flow)?.side_mut(direction).hold.board(reader))
    }

    /// Whether something of a conversation waits in a flow.
    pub fn has_waiting(&self, (flow, direction): (FlowId, Direction), conversation: Conversation) -> bool {
        self.nodes.get(flow).is_some_and(|node| node.side(direction).hold.has(conversation))
    }

    /// What a socket may send now whose flow has its limit at home in another lane, by what that one shows on its board and what is under
    /// way to it. Without a board yet: a frame, with which the lane asks for it.
    pub fn credit_far(
        &self,
        now: Instant,
        (flow, direction): (FlowId, Direction),
        asks: (LaneId, Option<Conversation>),
        board: Option<&Board>,
        under_way: UnderWay,
    ) -> Credit {
        let tightest = self.nodes.get(flow).and_then(|node| node.side(direction).tightest);
        let Some(rate) = tightest else { return Credit::Unlimited };
        match board {
            Some(board) => board.credit(now, rate, asks, under_way),
            None => Board::unseen().credit(now, rate, asks, under_way),
        }
    }

    /// A sender that was told to come again ([`Credit::At`]) has left frames behind, or has come again and `waits` no
    /// longer. If the lane is late for frames that wait, the limit makes up for it, wherever they do.
    pub fn note_waiting(&mut self, now: Instant, flow: FlowId, direction: Direction, waits: bool) {
        self.for_each_gate(flow, direction, |gate| match gate.first() {
            // Who waits here in a queue is noted already.
            Some(_) => {}
            None if !waits => gate.limiter.forget_waiting(),
            None if !gate.limiter.is_ready(now) => gate.limiter.note_waiting(),
            None => {}
        });
    }

    /// The same of senders who are asked again when the limit has room, and may be gone by then.
    pub fn note_told(&mut self, now: Instant, flow: FlowId, direction: Direction) {
        self.for_each_gate(flow, direction, |gate| {
            if gate.first().is_none() && !gate.limiter.is_ready(now) {
                gate.limiter.note_told();
            }
        });
    }

    /// These have been asked by now.
    pub fn forget_told(&mut self, now: Instant, flow: FlowId, direction: Direction) {
        self.for_each_gate(flow, direction, |gate| gate.limiter.forget_told(now));
    }

    /// The gates of a flow, its own first.
    fn for_each_gate(&mut self, flow: FlowId, direction: Direction, mut act: impl FnMut(&mut Gate)) {
        let mut at = Some(flow);
        while let Some(node) = at.and_then(|id| self.nodes.get_mut(id)) {
            at = node.parent;
            if let Some(gate) = &mut node.side_mut(direction).gate {
                act(gate);
            }
        }
    }

    /// Whether a limit stands on the way of what this flow carries.
    pub fn is_limited(&self, flow: FlowId, direction: Direction) -> bool {
        self.nodes.get(flow).is_some_and(|node| node.side(direction).tightest.is_some())
    }

    /// Whether any flow has a limit.
    #[inline]
    pub const fn has_limits(&self) -> bool {
        self.limits > 0
    }

    /// The flow, of this one and those that it is part of, that has the tightest limit, and that limit.
    pub fn tightest(&self, flow: FlowId, direction: Direction) -> Option<(BitRate, FlowId)> {
        self.nodes.get(flow)?;
        let rate = |at| Some((self.nodes.at(at).side(direction).gate.as_ref()?.limiter.rate(), at));
        self.nodes.upward(flow).filter_map(rate).min_by_key(|&(rate, _)| rate)
    }

    /// Lets up to `wanted` bytes pass that no frame carries, in all of these flows, and charges them: what is unused and one piece,
    /// but no crumbs. If one of their limits is not ready nothing passes, and it is time to ask again at that instant.
    pub(crate) fn lend(&mut self, now: Instant, ways: &Limits, wanted: Bytes) -> Result<Bytes, Instant> {
        let known = ways.map(|way| way.filter(|&(flow, _)| self.nodes.get(flow).is_some()));
        let (mut most, mut ready_at) = (wanted, None);
        for (flow, direction) in known.into_iter().flatten() {
            for at in self.nodes.upward(flow) {
                let Some(gate) = self.nodes.at(at).side(direction).gate.as_deref() else { continue };
                let limiter = &gate.limiter;
                if gate.owes(now) && self.nodes.standing(now, flow, direction, at).is_some() {
                    // Frames wait here that come first.
                    ready_at = ready_at.max(Some(limiter.wake_at().max(now + GATHER)));
                } else if limiter.is_ready(now) {
                    // Frames that wait get no more than is unused when it is their turn.
                    let shares = gate.first().is_some();
                    let lent = if shares { limiter.share(now) } else { limiter.allowance(now) };
                    most = most.min(lent.max(LOAN_LEAST));
                } else {
                    ready_at = ready_at.max(Some(limiter.wake_at()));
                }
            }
        }
        for (flow, direction) in known.into_iter().flatten() {
            match ready_at {
                None => self.nodes.charge(now, flow, direction, most, false),
                // Whom it keeps waiting at one limit must not lose at the other what the lane is late.
                Some(at) => {
                    self.note_waiting(now, flow, direction, true);
                    self.for_each_gate(flow, direction, |gate| {
                        if !gate.limiter.is_ready(now) {
                            gate.lends_at = Some(at);
                        }
                    });
                }
            }
        }
        ready_at.map_or(Ok(most), Err)
    }

    /// Counts text that went past every lane; limits are not asked.
    pub fn count_fused(&mut self, flow: FlowId, direction: Direction, bytes: Bytes) {
        if let Some(node) = self.nodes.get_mut(flow) {
            let fused = &mut node.side_mut(direction).counters.fused;
            *fused = fused.saturating_add(bytes.0);
        }
    }

    /// Adds a flow.
    pub fn insert(&mut self, now: Instant, flow: FlowId, config: FlowConfig) -> Result<(), FlowError> {
        if self.nodes.get(flow).is_some() {
            return Err(FlowError::Exists);
        }
        if let Some(parent) = config.parent {
            self.nodes.get(parent).ok_or(FlowError::NoParent)?;
            if self.nodes.upward(parent).count() >= NEST_MAX {
                return Err(FlowError::TooDeep);
            }
        }
        self.limits += usize::from(config.maxbw.is_some());
        let sides = Direction::ALL.map(|_| Side::new(config.maxbw, now));
        self.nodes.put(flow, Node { parent: config.parent, children: 0, priority: config.priority, sides });
        Ok(())
    }

    /// Removes a flow and hands out the frames that it held, to be classified again.
    pub fn remove(&mut self, flow: FlowId, held: impl FnMut(Direction, Frame)) -> Result<(), FlowError> {
        if self.nodes.get(flow).ok_or(FlowError::Unknown)?.children > 0 {
            return Err(FlowError::HasChildren);
        }
        self.hand_out(flow, held);
        let node = self.nodes.take(flow).ok_or(FlowError::Unknown)?;
        self.limits -= usize::from(node.is_limiting());
        Ok(())
    }

    /// Hands out the frames that a flow holds, as if they had not come, to be asked for elsewhere.
    pub fn hand_out(&mut self, flow: FlowId, mut held: impl FnMut(Direction, Frame)) {
        if self.nodes.get(flow).is_none() {
            return;
        }
        self.loose.retain(|&(loose, _)| loose != flow);
        for direction in Direction::ALL {
            self.nodes.leave(flow, direction);
            let side = self.nodes.at_mut(flow).side_mut(direction);
            (side.deficit, side.in_turn, side.flood) = (0, false, 0);
            self.held -= side.hold.len();
            side.counters.arrived -= side.hold.len() as u64;
            while let Some(frame) = side.hold.pop() {
                held(direction, frame);
            }
        }
    }

    /// Changes a flow's limit while traffic runs.
    pub fn set_maxbw(&mut self, now: Instant, flow: FlowId, maxbw: Option<BitRate>) -> Result<(), FlowError> {
        let was_limiting = self.nodes.get(flow).ok_or(FlowError::Unknown)?.is_limiting();
        self.limits = self.limits - usize::from(was_limiting) + usize::from(maxbw.is_some());
        for direction in Direction::ALL {
            let gate = &mut self.nodes.at_mut(flow).side_mut(direction).gate;
            match (gate, maxbw) {
                (Some(gate), Some(rate)) => {
                    gate.limiter.set_rate(now, rate);
                    gate.turn_most = Bytes(u64::MAX);
                    gate.armed = None;
                    self.arm(flow, direction);
                }
                (gate @ None, Some(rate)) => *gate = Some(Box::new(Gate::new(rate, now))),
                (gate @ Some(_), None) => {
                    *gate = None;
                    self.nodes.unlist_family(flow, direction);
                    self.loosen(flow, direction);
                }
                (None, None) => {}
            }
        }
        self.nodes.refresh_family(flow);
        self.nodes.forget_sizes();
        self.forget_stale_alarms();
        Ok(())
    }

    /// Changes what a flow is guaranteed of the limits above it, while traffic runs. Whether these can keep all promises is
    /// the caller's care; if they cannot, who has waited longest for his is served first.
    pub fn set_minbw(&mut self, now: Instant, flow: FlowId, minbw: Option<BitRate>) -> Result<(), FlowError> {
        self.nodes.get(flow).ok_or(FlowError::Unknown)?;
        let minbw = minbw.filter(|&rate| rate != BitRate::ZERO);
        for direction in Direction::ALL {
            let guarantee = &mut self.nodes.at_mut(flow).side_mut(direction).guarantee;
            match (guarantee.as_mut(), minbw) {
                (Some(guarantee), Some(rate)) => guarantee.set_rate(now, rate),
                (_, rate) => *guarantee = rate.map(|rate| Box::new(Guarantee::new(rate, now))),
            }
        }
        self.nodes.refresh_family(flow);
        let ids: Vec<_> = self.nodes.iter().map(|(id, _)| id).collect();
        for (id, direction) in ids.into_iter().flat_map(|id| Direction::ALL.map(|d| (id, d))) {
            self.nodes.list(id, direction);
        }
        Ok(())
    }

    /// What a flow is guaranteed.
    pub fn minbw(&self, flow: FlowId) -> Option<BitRate> {
        self.nodes.get(flow)?.side(Direction::In).guarantee.as_ref().map(|it| it.rate())
    }

    /// The flows that waited at a gate that is gone are tried again at the next release.
    fn loosen(&mut self, gate: FlowId, direction: Direction) {
        let waited = |node: &Node| node.side(direction).waits_at == Some(gate);
        let flows: Vec<_> = self.nodes.iter().filter(|(_, node)| waited(node)).map(|(id, _)| id).collect();
        for flow in flows {
            self.nodes.at_mut(flow).side_mut(direction).waits_at = None;
            self.loose.push((flow, direction));
        }
    }

    /// Changes a flow's priority, and with it the rank of what is part of it.
    pub fn set_priority(&mut self, flow: FlowId, priority: Priority) -> Result<(), FlowError> {
        self.nodes.get_mut(flow).ok_or(FlowError::Unknown)?.priority = priority;
        let family = |(id, node): &(FlowId, &Node)| *id == flow || node.parent == Some(flow);
        let ids: Vec<_> = self.nodes.iter().filter(family).map(|(id, _)| id).collect();
        for (id, direction) in ids.into_iter().flat_map(|id| Direction::ALL.map(|d| (id, d))) {
            if let Some(gate) = self.nodes.at(id).side(direction).waits_at {
                self.nodes.leave(id, direction);
                self.nodes.enqueue(id, direction, gate);
            }
        }
        Ok(())
    }

    /// A flow's configuration.
    pub fn config(&self, flow: FlowId) -> Option<FlowConfig> {
        let node = self.nodes.get(flow)?;
        let maxbw = node.side(Direction::In).gate.as_ref().map(|gate| gate.limiter.rate());
        Some(FlowConfig { parent: node.parent, maxbw, priority: node.priority })
    }

    /// What a flow's own traffic did in one direction; what is part of it is counted there.
    pub fn counters(&self, flow: FlowId, direction: Direction) -> Option<Counters> {
        self.nodes.get(flow).map(|node| node.side(direction).counters)
    }

    /// How many frames and wire bytes a flow holds.
    pub fn held(&self, flow: FlowId, direction: Direction) -> Option<(usize, Bytes)> {
        let hold = &self.nodes.get(flow)?.side(direction).hold;
        Some((hold.len(), hold.bytes()))
    }

    /// How many frames all flows hold.
    pub fn held_frames(&self) -> usize {
        self.held
    }

    /// Frames whose flow does not exist. They pass.
    pub fn stray(&self) -> Counters {
        self.stray
    }

    /// What the places of flows take.
    pub fn allocated_bytes(&self) -> usize {
        self.nodes.allocated_bytes()
    }

    /// The identifiers of all flows.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> {
        self.nodes.iter().map(|(id, _)| id)
    }
}

/// What a sender may have waiting at a gate that others wait for: with less than its turn there, and a frame for when its lane comes late
/// with the next ones, it would have less than they.
fn share(side: &Side, gate: &Gate) -> Bytes {
    gate.limiter.piece().max(gate.turn() + side.hold.largest())
}
