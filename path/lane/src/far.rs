//! Limits whose home is another lane: what stands on their boards, and what is under way to them.
//!
//! Owned by `links.rs`, which asks it for senders of this lane. A limit has one home, to which frames of other lanes are
//! handed over (`Stage::Out`, `Stage::In`). Who sends them waits for it as he would at home (`firelane_flow::Board`): the lane asks
//! for the board with the first frame, and reads it before each frame from then on. What it has handed over and the home has not taken yet
//! stands on no board. That is known from how many frames the home has taken of this lane's in all (`backlog.rs`).

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use firelane_flow::{Board, Conversation, Credit, UnderWay};
use firelane_frame::Frame;
use firelane_table::Minted;
use firelane_units::{Bytes, Direction, FlowId, Instant, LaneId};

use crate::common::Common;
use crate::links::Links;
use crate::message::LaneMessage;
use crate::sent::{At, whose};

/// After how long without an answer a board is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How many runs of frames of one conversation are told apart that are under way to one lane. Of what is before them nothing is known.
const RUNS: usize = 256;

/// What a lane knows of limits that others keep.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// By flow, and by direction.
    boards: Minted<[Shown; 2]>,
    /// By lane: what was handed over to limits there, the oldest first.
    runs: Vec<VecDeque<Run>>,
}

/// What a home shows.
#[derive(Clone, Debug, Default)]
struct Shown {
    board: Option<Arc<Board>>,
    asked: Option<Instant>,
}

/// Frames of one conversation, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    flow: At,
    conversation: Conversation,
    bytes: Bytes,
    /// With which of all the frames handed over to that lane it ends.
    end: usize,
}

impl Far {
    fn shown(&mut self, (flow, direction): At) -> &mut Shown {
        &mut self.boards.get_or_default(flow.0)[direction.index()]
    }

    fn board(&self, (flow, direction): At) -> Option<&Board> {
        self.boards.get(flow.0)?[direction.index()].board.as_deref()
    }

    /// What the places of boards take.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.boards.allocated_bytes()
    }

    /// A flow's home is another, or it is gone.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        self.boards.remove(flow.0);
    }

    fn note(&mut self, home: LaneId, run: Run, taken: usize) {
        if self.runs.len() <= home.index() {
            self.runs.resize_with(home.index() + 1, VecDeque::new);
        }
        let runs = &mut self.runs[home.index()];
        while runs.front().is_some_and(|first| has_come(first, taken)) || runs.len() >= RUNS {
            runs.pop_front();
        }
        match runs.back_mut() {
            Some(last) if (last.flow, last.conversation) == (run.flow, run.conversation) => {
                (last.bytes, last.end) = (last.bytes + run.bytes, run.end);
            }
            _ => runs.push_back(run),
        }
    }

    fn under_way(
        &self,
        home: LaneId,
        flow: At,
        speaker: Option<Conversation>,
        taken: usize,
        sent: UnderWay,
    ) -> UnderWay {
        let mut sum = sent;
        let runs = self.runs.get(home.index()).into_iter().flatten();
        for run in runs.filter(|run| run.flow == flow && !has_come(run, taken)) {
            sum.add(run.bytes, whose(Some(run.conversation), speaker, |other| self.has_queue(flow, other)));
        }
        sum
    }

    fn has_queue(&self, flow: At, conversation: Conversation) -> bool {
        self.board(flow).is_some_and(|board| board.has(conversation))
    }
}

/// Whether a lane that has taken so many frames has taken all of a run. The count begins anew some time.
fn has_come(run: &Run, taken: usize) -> bool {
    (taken.wrapping_sub(run.end) as isize) >= 0
}

impl<D> Links<D> {
    /// A frame is about to be handed over to the home of its flow's limit.
    pub(crate) fn note_far(&mut self, common: &mut Common<D>, home: LaneId, flow: At, frame: &Frame) {
        // A flow may have a home for its own lanes' sake.
        if !self.flows.is_limited(flow.0, flow.1) {
            return;
        }
        let (id, now) = (common.id, common.now);
        let end = common.outbox.handed_to(home).wrapping_add(1);
        let (conversation, bytes) =
            (Conversation::of(frame), Board::weight_of(Bytes::from(frame.wire_bytes())));
        self.far.note(home, Run { flow, conversation, bytes, end }, common.backlogs.taken(id, home));
        let shown = self.far.shown(flow);
        if shown.board.is_none() && shown.asked.is_none_or(|at| now >= at + ASK_AGAIN) {
            shown.asked = Some(now);
            common.outbox.messages.push((home, LaneMessage::ShowBoard(flow.0, flow.1, id)));
        }
    }

    /// What a sender of this lane may send, at a limit whose home is another.
    pub(crate) fn credit_far(
        &self,
        common: &Common<D>,
        home: LaneId,
        flow: At,
        speaker: Option<Conversation>,
    ) -> Credit {
        let sent = self.sent.of(flow, speaker, |other| self.far.has_queue(flow, other));
        let taken = common.backlogs.taken(common.id, home);
        let under_way = self.far.under_way(home, flow, speaker, taken, sent);
        let credit =
            self.flows.credit_far(common.now, flow, (common.id, speaker), self.far.board(flow), under_way);
        credit.behind(common.now, sent.all)
    }

    /// Another lane asks for a board.
    pub(crate) fn show_board(&mut self, common: &mut Common<D>, flow: FlowId, side: Direction, to: LaneId) {
        let is_at_home = self.places.get(flow.0).is_some_and(|place| place.home == Some(common.id));
        if is_at_home && let Some(board) = self.flows.board(flow, side, to) {
            common.outbox.messages.push((to, LaneMessage::Board(flow, side, common.id, board)));
        }
    }

    /// A home shows its board.
    pub(crate) fn take_board(&mut self, flow: FlowId, side: Direction, home: LaneId, board: Arc<Board>) {
        if self.places.get(flow.0).is_some_and(|place| place.home == Some(home)) {
            self.far.shown((flow, side)).board = Some(board);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: LaneId = LaneId(1);
    const FLOW: At = (FlowId(3), Direction::Out);

    fn run(far: &mut Far, conversation: u32, bytes: u64, end: usize, taken: usize) {
        let conversation = Conversation::from_number(conversation);
        far.note(HOME, Run { flow: FLOW, conversation, bytes: Bytes(bytes), end }, taken);
    }

    #[test]
    fn what_the_home_has_taken_is_under_way_no_more() {
        let (mut far, one) = (Far::default(), Some(Conversation::from_number(1)));
        let start = usize::MAX - 1;
        for (n, conversation) in [1, 1, 2, 1].into_iter().enumerate() {
            run(&mut far, conversation, 100, start.wrapping_add(n + 1), start);
        }
        let of = |far: &Far, speaker, taken: usize| {
            let UnderWay { all, own, .. } =
                far.under_way(HOME, FLOW, speaker, start.wrapping_add(taken), UnderWay::default());
            (all.0, own.0)
        };
        assert_eq!(of(&far, one, 0), (400, 300));
        assert_eq!(of(&far, None, 1), (400, 0), "a run is there when its last frame is");
        assert_eq!(of(&far, one, 2), (200, 100));
        assert_eq!(of(&far, one, 4), (0, 0));
        assert_eq!(
            far.under_way(HOME, (FlowId(3), Direction::In), one, start, UnderWay::default()),
            UnderWay::default()
        );
    }

    #[test]
    fn of_too_many_runs_the_oldest_are_forgotten() {
        let mut far = Far::default();
        for n in 0..2 * RUNS {
            run(&mut far, n as u32, 1, n + 1, 0);
        }
        assert_eq!(far.under_way(HOME, FLOW, None, 0, UnderWay::default()).all, Bytes(RUNS as u64));
    }
}
