//! What waits in a flow's hold, for the lanes to see that are not the limit's home.
//!
//! A sender at home asks the table itself. In another lane the table has the flow's limit, but no frames: these wait at the home. So
//! the home posts what each of the hold's queues has, word by word, and a sender elsewhere reads it before each frame, as a
//! socket of any kernel counts what of it waits in a queueing discipline. Nothing but the home writes. A reader may see one queue
//! from before a change and another from after it: he sends a frame more or less, for which a hold has room.
//!
//! What has left a lane and has yet to arrive at the home stands on no board; the lane adds it (`path/lane`, `far.rs`).

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use firelane_units::{BitRate, Bytes, Instant, LaneId};

use crate::conversation::Conversation;
use crate::hold::{self, QUEUES};
use crate::limiter::GATHER;
use crate::table::Credit;

/// How much of the line a conversation may have waiting at the home: enough for a home that is on another CPU, and may be late.
const AHEAD: Duration = Duration::from_millis(2);
/// And no more bytes than this, of which several conversations have room among the frames that a table holds.
const AHEAD_MAX: u64 = 128 << 10;
/// What a frame counts for at least, because it takes a buffer whatever its size.
const FRAME_LEAST: u64 = 128;
/// What a queue's word says: the lower bits of the conversation's number, the lane that it began with a frame of (zero is the home), that it
/// has several conversations' by now, and what its frames count for.
const OWNER_SHIFT: u32 = 40;
const LANE_SHIFT: u32 = 32;
const SHARED: u64 = 1 << 31;
const WEIGHT: u64 = SHARED - 1;
/// For how long nobody has to look whether there is room, at most.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A hold's queues, as its owner has left them.
#[derive(Debug, Default)]
pub struct Board {
    /// To whom a queue belongs, and the bytes in it.
    queues: [AtomicU64; QUEUES],
    /// The largest frame that has come.
    largest: AtomicU64,
    /// The lanes that it is shown to, a bit each.
    lanes: AtomicU64,
}

/// What waits for a limit, as one conversation sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Waiting {
    all: u64,
    own: u64,
    longest: u64,
    /// Queues that are of the lane that asks.
    mine: usize,
    /// Queues that nobody has.
    free: usize,
}

/// Where a frame was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// In the limit's home lane.
    #[default]
    Home,
    /// In another one, which has handed it over.
    Elsewhere(LaneId),
}

impl Origin {
    /// As a queue's word has it. Lanes beyond those that have a number there share one.
    fn number(self) -> u64 {
        match self {
            Self::Home => 0,
            Self::Elsewhere(lane) => (u64::from(lane.0) + 1).min(0xff),
        }
    }
}

/// Whether one of the lanes that ask may have a queue more, beside `others` of it that are under way: it has so many, so many are free, and
/// each of the lanes has as many at most. None of them hears in time what the others take, so what is free is nobody's alone.
pub(crate) fn has_queue(has: usize, free: usize, others: usize, each: usize) -> bool {
    has + others < each.min(has + free)
}

/// What has been sent to a limit and is not there yet: in this round of a lane's senders, or to the limit's home in another lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnderWay {
    /// Of all who send in the flow.
    pub all: Bytes,
    /// Of the conversation that asks.
    pub own: Bytes,
    /// How many others it is of who may each need a queue.
    pub others: usize,
}

/// Of whom something is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Of who asks.
    Own,
    /// Of another one, who has a queue there.
    Queued,
    /// Of another one.
    Others,
}

impl UnderWay {
    /// So much more is.
    pub fn add(&mut self, bytes: Bytes, whose: Whose) {
        self.all += bytes;
        match whose {
            Whose::Own => self.own += bytes,
            Whose::Queued => {}
            Whose::Others => self.others += 1,
        }
    }
}

impl Board {
    /// What a frame of so many bytes on the wire counts for.
    pub fn weight_of(bytes: Bytes) -> Bytes {
        bytes.max(Bytes(FRAME_LEAST))
    }

    /// Whose a queue is, and whether others have frames in it, or how many bytes and frames it has, have changed.
    pub(crate) fn post(
        &self,
        nth: usize,
        (conversation, origin, is_shared): (u32, Origin, bool),
        (bytes, frames): (u64, usize),
    ) {
        let weight = bytes.max(frames as u64 * FRAME_LEAST).min(WEIGHT);
        let shared = if is_shared { SHARED } else { 0 };
        let word = u64::from(conversation) << OWNER_SHIFT | origin.number() << LANE_SHIFT | shared | weight;
        if let Some(queue) = self.queues.get(nth) {
            queue.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn post_largest(&self, bytes: u64) {
        self.largest.store(bytes, Ordering::Relaxed);
    }

    /// It is shown to another lane.
    pub(crate) fn note_reader(&self, lane: LaneId) {
        self.lanes.fetch_or(1 << (lane.0 % 64), Ordering::Relaxed);
    }

    /// How many queues each lane may take whose senders ask, the home's as well: who comes at the right moment would take each one that is
    /// free.
    pub(crate) fn each(&self) -> usize {
        let lanes = 1 + self.lanes.load(Ordering::Relaxed).count_ones() as usize;
        (QUEUES / lanes).max(1)
    }

    /// One that is not shown as yet, or never, as where the home puts frames of another limit into it itself.
    pub(crate) fn unseen() -> Self {
        Self { lanes: AtomicU64::new(1), ..Self::default() }
    }

    /// Whether a conversation has a queue.
    pub fn has(&self, Conversation(number): Conversation) -> bool {
        let mut words = self.queues.iter().map(|queue| queue.load(Ordering::Relaxed));
        words.any(|word| word & WEIGHT > 0 && word >> OWNER_SHIFT == owner(number))
    }

    fn read(&self, reader: LaneId, conversation: Option<Conversation>) -> Waiting {
        let (mut waiting, mut found, mut at_home, mut is_shared) = (Waiting::default(), None, 0, false);
        let mine = Origin::Elsewhere(reader).number();
        for (nth, queue) in self.queues.iter().enumerate() {
            let word = queue.load(Ordering::Relaxed);
            let (whose, bytes) = (word >> OWNER_SHIFT, word & WEIGHT);
            waiting.free += usize::from(bytes == 0);
            waiting.mine += usize::from(bytes > 0 && word >> LANE_SHIFT & 0xff == mine);
            waiting.all += bytes;
            waiting.longest = waiting.longest.max(bytes);
            if let Some(Conversation(number)) = conversation {
                if whose == owner(number) && bytes > 0 {
                    found = Some(bytes);
                }
                if nth == hold::home_of(number) {
                    (at_home, is_shared) = (bytes, word & SHARED != 0);
                }
            }
        }
        // What is in a queue that several have may be its own; with none free it would share the one that others have.
        waiting.own = found.unwrap_or(if is_shared || waiting.free == 0 { at_home } else { 0 });
        waiting
    }

    /// What a sender in another lane may send to a limit of this rate, on whose way so much is.
    pub(crate) fn credit(
        &self,
        now: Instant,
        rate: BitRate,
        (reader, conversation): (LaneId, Option<Conversation>),
        under_way: UnderWay,
    ) -> Credit {
        if rate == BitRate::ZERO {
            return Credit::At(Instant::FAR_FUTURE);
        }
        let waiting = self.read(reader, conversation);
        let largest = self.largest.load(Ordering::Relaxed);
        let frame = hold::frame_of(largest);
        let limit = hold::limit_of(rate, largest);
        let window = window(rate, frame);
        let (all, own) = (waiting.all + under_way.all.0, waiting.own + under_way.own.0);
        // It has a frame's place at least if there is a queue for it beside those that are under way, or beside those who have more than
        // they could have asked for.
        let has_place = has_queue(waiting.mine, waiting.free, under_way.others, self.each())
            || waiting.longest > window + frame;
        let beside = if has_place { frame } else { 0 };
        let half = (limit / 2).saturating_sub(all);
        let most = match conversation {
            // A frame that comes alone has room, and makes as much for others as large.
            _ if all == 0 => window.min((limit / 2).max(frame)),
            // Without a queue of its own it waits for one, and who has one leaves it in his turn.
            Some(_) if !has_place => 0,
            Some(_) if own == 0 => window.min(half).max(beside),
            Some(_) => window.saturating_sub(own).min(half),
            // A device has frames of whoever it may be. Where others fill the hold its frames come one by one.
            None if under_way.all == Bytes::ZERO && (all + frame <= limit || all > limit) => half.max(beside),
            None => half,
        };
        if most >= frame {
            return Credit::Bytes(Bytes(most));
        }
        // When about half of what is in his way has left.
        let before = match conversation {
            Some(_) if own > 0 => own,
            _ => all,
        };
        Credit::At(now + rate.time_for(Bytes(before / 2)).clamp(GATHER, LOOK_AGAIN))
    }
}

/// What a queue's word has of a conversation's number.
const fn owner(number: u32) -> u64 {
    number as u64 & (u64::MAX >> OWNER_SHIFT)
}

/// How full a hold may become where several lanes put frames into it, each of which hears of the others' a moment later.
pub(crate) const fn shared_limit(limit: u64) -> u64 {
    limit / 4 * 3
}

/// How much a conversation of another lane may have waiting, of frames so large.
pub(crate) fn window(rate: BitRate, frame: u64) -> u64 {
    rate.bytes_in(AHEAD).0.min(AHEAD_MAX).max(2 * frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<Conversation> = Some(Conversation::from_number(1));
    const ME: LaneId = LaneId(3);
    const FRAME: u64 = 1514;

    /// What conversation 1 may send where so much of it and of a second waits, at 10 Mb/s: a window of two frames, and a hold of 25,000.
    fn credit(own: u64, others: u64, speaker: Option<Conversation>, under_way: UnderWay) -> Credit {
        let board = Board::default();
        board.post_largest(FRAME);
        board.post(5, (1, Origin::Elsewhere(ME), false), (own, (own / FRAME) as usize));
        board.post(6, (2, Origin::Home, false), (others, (others / FRAME) as usize));
        board.credit(Instant::ZERO, BitRate::from_mbps(10), (ME, speaker), under_way)
    }

    #[test]
    fn who_has_nothing_there_has_a_place_and_who_has_much_waits() {
        let none = UnderWay::default();
        let window = Credit::Bytes(Bytes(2 * FRAME));
        assert_eq!(credit(0, 0, ONE, none), window);
        assert_eq!(credit(FRAME, 0, ONE, none), Credit::Bytes(Bytes(FRAME)));
        assert!(matches!(credit(2 * FRAME, 0, ONE, none), Credit::At(_)));
        // Beside others that fill half of the hold, or more.
        assert_eq!(credit(0, 12_500, ONE, none), Credit::Bytes(Bytes(FRAME)));
        assert!(matches!(credit(FRAME, 12_500, ONE, none), Credit::At(_)));
        let under_way = UnderWay { all: Bytes(22_000), ..none };
        assert_eq!(credit(0, 3_000, ONE, under_way), Credit::Bytes(Bytes(FRAME)));
        // Beside those who do not ask, who lose a frame for it.
        assert_eq!(credit(0, 25_000, ONE, UnderWay { others: QUEUES, ..none }), Credit::Bytes(Bytes(FRAME)));
        // What is under way counts as if it were there.
        let under_way = UnderWay { all: Bytes(2 * FRAME), own: Bytes(2 * FRAME), ..none };
        assert!(matches!(credit(0, 0, ONE, under_way), Credit::At(_)));
    }

    /// Each lane that asks has as many queues as the others, and what is under way will take some of them.
    #[test]
    fn where_many_ask_each_lane_has_its_part_of_the_queues() {
        let has_place = |lanes: u16, home: usize, mine: usize, theirs: usize, others: usize| {
            let board = Board::default();
            (0..lanes).for_each(|nth| board.note_reader(LaneId(ME.0 + nth)));
            let origins =
                [(Origin::Home, home), (Origin::Elsewhere(ME), mine), (Origin::Elsewhere(LaneId(9)), theirs)];
            let all = origins.into_iter().flat_map(|(origin, count)| core::iter::repeat_n(origin, count));
            all.enumerate()
                .for_each(|(n, origin)| board.post(n, (100 + n as u32, origin, false), (2_000, 2)));
            let under_way = UnderWay { others, ..UnderWay::default() };
            let credit = board.credit(Instant::ZERO, BitRate::from_mbps(10), (ME, ONE), under_way);
            matches!(credit, Credit::Bytes(_))
        };
        assert!(has_place(1, 16, 15, 0, 0) && !has_place(1, 16, 16, 0, 0));
        assert!(!has_place(1, 16, 15, 0, 1) && has_place(1, 16, 3, 0, 12) && !has_place(1, 16, 3, 0, 13));
        // The home has more where it was alone.
        assert!(has_place(1, 30, 1, 0, 0) && !has_place(1, 30, 1, 0, 2) && !has_place(1, 31, 1, 0, 0));
        // Three other lanes, and the one that asks has no more than its part, whatever is free.
        assert!(has_place(3, 8, 7, 8, 0) && !has_place(3, 8, 8, 2, 0) && !has_place(3, 0, 7, 0, 1));
        assert!(has_place(3, 0, 0, 28, 0) && !has_place(3, 0, 0, 32, 0));
    }

    #[test]
    fn a_device_has_half_of_the_hold_and_a_frame_beside_many() {
        let none = UnderWay::default();
        assert_eq!(credit(0, 10_000, None, none), Credit::Bytes(Bytes(2_500)));
        assert_eq!(credit(0, 12_000, None, none), Credit::Bytes(Bytes(FRAME)));
        let under_way = UnderWay { all: Bytes(FRAME), others: 1, ..none };
        assert!(matches!(credit(0, 12_000, None, under_way), Credit::At(_)));
    }

    #[test]
    fn who_waits_looks_again_when_half_has_left_and_never_behind_a_limit_of_zero() {
        let Credit::At(at) = credit(2 * FRAME, 0, ONE, UnderWay::default()) else { panic!("it waits") };
        assert_eq!(at, Instant::ZERO + BitRate::from_mbps(10).time_for(Bytes(FRAME)));
        let closed =
            Board::default().credit(Instant::ZERO, BitRate::from_bps(0), (ME, ONE), UnderWay::default());
        assert_eq!(closed, Credit::At(Instant::FAR_FUTURE));
    }

    #[test]
    fn what_is_in_a_shared_queue_counts_as_ones_own() {
        let board = Board::default();
        board.post(1, (1 + QUEUES as u32, Origin::Elsewhere(ME), false), (5_000, 4));
        assert_eq!(board.read(ME, ONE).own, 0);
        board.post(1, (1 + QUEUES as u32, Origin::Elsewhere(ME), true), (5_000, 4));
        assert_eq!(board.read(ME, ONE).own, 5_000);
    }

    #[test]
    fn small_frames_count_for_the_buffers_that_they_take() {
        let board = Board::default();
        board.post(0, (1, Origin::Elsewhere(ME), false), (20 * 64, 20));
        let waiting = Waiting { all: 2_560, own: 2_560, longest: 2_560, mine: 1, free: QUEUES - 1 };
        assert_eq!(board.read(ME, ONE), waiting);
        assert_eq!(Board::weight_of(Bytes(64)), Bytes(128));
    }
}
