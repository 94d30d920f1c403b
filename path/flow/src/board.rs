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

use firelane_units::{BitRate, Bytes, Instant};

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
/// With fewer free queues there may be none for who begins to wait.
const FREE_LEAST: usize = QUEUES / 4;
/// For how long nobody has to look whether there is room, at most.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A hold's queues, as its owner has left them.
#[derive(Debug, Default)]
pub struct Board {
    /// To whom a queue belongs, and the bytes in it.
    queues: [AtomicU64; QUEUES],
    /// The largest frame that has come.
    largest: AtomicU64,
}

/// What waits for a limit, as one conversation sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Waiting {
    all: u64,
    own: u64,
    longest: u64,
    /// Queues that nobody has.
    free: usize,
}

/// What has been sent to a limit and is not there yet: in this round of a lane's senders, or to the limit's home in another lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnderWay {
    /// Of all who send in the flow.
    pub all: Bytes,
    /// Of the conversation that asks.
    pub own: Bytes,
}

impl UnderWay {
    /// So much more is.
    pub fn add(&mut self, bytes: Bytes, is_own: bool) {
        self.all += bytes;
        if is_own {
            self.own += bytes;
        }
    }
}

impl Board {
    /// What a frame of so many bytes on the wire counts for.
    pub fn weight_of(bytes: Bytes) -> Bytes {
        bytes.max(Bytes(FRAME_LEAST))
    }

    /// The owner of a queue and what is in it have changed.
    pub(crate) fn post(&self, nth: usize, conversation: u32, bytes: u64, frames: usize) {
        let weight = bytes.max(frames as u64 * FRAME_LEAST).min(u64::from(u32::MAX));
        let word = u64::from(conversation) << 32 | weight;
        if let Some(queue) = self.queues.get(nth) {
            queue.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn post_largest(&self, bytes: u64) {
        self.largest.store(bytes, Ordering::Relaxed);
    }

    fn read(&self, conversation: Option<Conversation>) -> Waiting {
        let (mut waiting, mut found, mut at_home) = (Waiting::default(), None, 0);
        for (nth, queue) in self.queues.iter().enumerate() {
            let word = queue.load(Ordering::Relaxed);
            let (owner, bytes) = ((word >> 32) as u32, word & u64::from(u32::MAX));
            waiting.free += usize::from(bytes == 0);
            waiting.all += bytes;
            waiting.longest = waiting.longest.max(bytes);
            if let Some(Conversation(number)) = conversation {
                if owner == number && bytes > 0 {
                    found = Some(bytes);
                }
                if nth == hold::home_of(number) {
                    at_home = bytes;
                }
            }
        }
        // With no queue free it would share the one that others have.
        waiting.own = found.unwrap_or(if waiting.free > 0 { 0 } else { at_home });
        waiting
    }

    /// What a sender in another lane may send to a limit of this rate, on whose way so much is.
    pub(crate) fn credit(
        &self,
        now: Instant,
        rate: BitRate,
        conversation: Option<Conversation>,
        under_way: UnderWay,
    ) -> Credit {
        if rate == BitRate::ZERO {
            return Credit::At(Instant::FAR_FUTURE);
        }
        let waiting = self.read(conversation);
        let largest = self.largest.load(Ordering::Relaxed);
        let frame = hold::frame_of(largest);
        let limit = hold::limit_of(rate, largest);
        let window = window(rate, frame);
        let (all, own) = (waiting.all + under_way.all.0, waiting.own + under_way.own.0);
        let most = match conversation {
            // A frame that comes alone has room, and makes as much for others as large.
            _ if all == 0 => window.min((limit / 2).max(frame)),
            // Nothing of it waits: it has a frame's place at least, also for others that are under way, or beside those who have more
            // than they could have asked for.
            Some(_) if own == 0 => {
                let has_place = waiting.free >= FREE_LEAST || waiting.longest > window + frame;
                let beside = if has_place { frame } else { 0 };
                window.min(limit.saturating_sub(all + frame)).max(beside)
            }
            Some(_) => window.saturating_sub(own).min((limit / 2).saturating_sub(all)),
            None => (limit / 2).saturating_sub(all),
        };
        if most >= frame {
            return Credit::Bytes(Bytes(most));
        }
        // When about half of what is in his way has left.
        let before = if conversation.is_some() && own > 0 { own } else { all };
        Credit::At(now + rate.time_for(Bytes(before / 2)).clamp(GATHER, LOOK_AGAIN))
    }
}

/// How much a conversation of another lane may have waiting, of frames so large.
pub(crate) fn window(rate: BitRate, frame: u64) -> u64 {
    rate.bytes_in(AHEAD).0.min(AHEAD_MAX).max(2 * frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<Conversation> = Some(Conversation::from_number(1));
    const FRAME: u64 = 1514;

    /// What conversation 1 may send where so much of it and of a second waits, at 10 Mb/s: a window of two frames, and a hold of 25,000.
    fn credit(own: u64, others: u64, speaker: Option<Conversation>, under_way: UnderWay) -> Credit {
        let board = Board::default();
        board.post_largest(FRAME);
        board.post(5, 1, own, (own / FRAME) as usize);
        board.post(6, 2, others, (others / FRAME) as usize);
        board.credit(Instant::ZERO, BitRate::from_mbps(10), speaker, under_way)
    }

    #[test]
    fn who_has_nothing_there_has_a_place_and_who_has_much_waits() {
        let none = UnderWay::default();
        let window = Credit::Bytes(Bytes(2 * FRAME));
        assert_eq!(credit(0, 0, ONE, none), window);
        assert_eq!(credit(FRAME, 0, ONE, none), Credit::Bytes(Bytes(FRAME)));
        assert!(matches!(credit(2 * FRAME, 0, ONE, none), Credit::At(_)));
        // Beside others that fill half of the hold, and up to the last frame.
        assert_eq!(credit(0, 12_500, ONE, none), window);
        assert!(matches!(credit(FRAME, 12_500, ONE, none), Credit::At(_)));
        let under_way = UnderWay { all: Bytes(22_000), own: Bytes(0) };
        assert_eq!(credit(0, 3_000, ONE, under_way), Credit::Bytes(Bytes(FRAME)));
        // Beside those who do not ask, who lose a frame for it.
        assert_eq!(credit(0, 25_000, ONE, none), Credit::Bytes(Bytes(FRAME)));
        // Where nearly every queue is taken there is no place.
        let board = Board::default();
        (0..30).for_each(|n| board.post(n, 100 + n as u32, 900, 1));
        let none_left = board.credit(Instant::ZERO, BitRate::from_mbps(10), ONE, none);
        assert!(matches!(none_left, Credit::At(_)), "{none_left:?}");
        // What is under way counts as if it were there.
        let under_way = UnderWay { all: Bytes(2 * FRAME), own: Bytes(2 * FRAME) };
        assert!(matches!(credit(0, 0, ONE, under_way), Credit::At(_)));
    }

    #[test]
    fn a_device_has_half_of_the_hold() {
        let none = UnderWay::default();
        assert_eq!(credit(0, 10_000, None, none), Credit::Bytes(Bytes(2_500)));
        assert!(matches!(credit(0, 12_000, None, none), Credit::At(_)));
    }

    #[test]
    fn who_waits_looks_again_when_half_has_left_and_never_behind_a_limit_of_zero() {
        let Credit::At(at) = credit(2 * FRAME, 0, ONE, UnderWay::default()) else { panic!("it waits") };
        assert_eq!(at, Instant::ZERO + BitRate::from_mbps(10).time_for(Bytes(FRAME)));
        let closed = Board::default().credit(Instant::ZERO, BitRate::from_bps(0), ONE, UnderWay::default());
        assert_eq!(closed, Credit::At(Instant::FAR_FUTURE));
    }

    #[test]
    fn small_frames_count_for_the_buffers_that_they_take() {
        let board = Board::default();
        board.post(0, 1, 20 * 64, 20);
        assert_eq!(board.read(ONE), Waiting { all: 2_560, own: 2_560, longest: 2_560, free: QUEUES - 1 });
        assert_eq!(Board::weight_of(Bytes(64)), Bytes(128));
    }
}
