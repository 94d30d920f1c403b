//! The frames of one flow that wait for its limit: a queue for each conversation, served in turn.
//!
//! A hold is short on purpose: two ticks of 10 ms at the flow's limit, as in the original. Longer queues would only add delay,
//! because a sender that gets no answer keeps sending. It is never less than six of the largest frames seen: a TCP sender hears of a loss
//! by three segments that come after it (RFC 5681 section 3.2), and with fewer on the way waits for a time-out while the limit stands idle. A
//! conversation that has nothing there has a frame's place whatever the others have, as long as there is a queue for it: with less than a frame in
//! the hold it has no turn, and who comes at the right moment would have them all. When the hold is full, the conversation that holds
//! most loses the frame that has waited longest: what comes after the gap tells a TCP receiver at once, while a gap at the end would be
//! found by a time-out.
//!
//! Queues are served by deficit round robin (Shreedhar and Varghese, 1995), so a conversation that sends without pause
//! takes only what its neighbours leave. A queue belongs to a conversation as long as it holds frames of it; only when more
//! than [`QUEUES`] wait do some share one. The original had one queue.

use core::time::Duration;
use std::sync::Arc;

use firelane_frame::{Chain, Frame};
use firelane_units::{BitRate, Bytes, LaneId};

use crate::board::{self, Board, Origin, UnderWay};
use crate::conversation::{Conversation, conversation};

/// Two of the original's clock ticks.
const HOLD_TIME: Duration = Duration::from_millis(20);
/// So many of the largest frames have room at any rate.
const FRAMES_LEAST: u64 = 6;
/// Conversations of one flow that wait and are told apart; the limit's own frames fit many times.
pub(crate) const QUEUES: usize = 32;
/// What a queue may send in its turn at least: an Ethernet frame.
const QUANTUM: u64 = 1514;

/// Queues with a common limit in wire bytes.
#[derive(Default)]
pub(crate) struct Hold {
    /// None until the first frame waits, then [`QUEUES`].
    queues: Vec<Queue>,
    /// Bit n: queue n holds frames.
    waiting: u32,
    /// Bit n: queue n began with a frame of another lane.
    elsewhere: u32,
    /// Bit n: queue n has been given to several conversations.
    shared: u32,
    /// The queue whose first frame is next, if any waits.
    turn: usize,
    frames: usize,
    bytes: u64,
    largest: u64,
    /// Where other lanes see what waits, once one of them has asked.
    board: Option<Arc<Board>>,
}

#[derive(Default)]
struct Queue {
    frames: Chain,
    /// To whom it was given when it was empty.
    conversation: u32,
    /// And of which lane the first frame was.
    origin: Origin,
    bytes: u64,
    deficit: u64,
}

impl Hold {
    /// Whether a frame may wait with the others, in a flow whose tightest limit is `rate`.
    pub(crate) fn has_room(&mut self, rate: BitRate, frame: &Frame) -> bool {
        let bytes = frame.wire_bytes() as u64;
        self.note_size(bytes);
        self.bytes + bytes <= self.limit(rate)
            || self.has_free_queue() && self.found(conversation(frame.as_slice())).is_none()
    }

    fn has_free_queue(&self) -> bool {
        self.waiting != u32::MAX
    }

    pub(crate) fn limit(&self, rate: BitRate) -> u64 {
        limit_of(rate, self.largest)
    }

    /// The largest frame that has come, or an Ethernet frame.
    pub(crate) fn largest(&self) -> Bytes {
        Bytes(frame_of(self.largest))
    }

    /// Where other lanes see what waits here.
    pub(crate) fn board(&mut self, reader: LaneId) -> Arc<Board> {
        let board = match &self.board {
            Some(board) => Arc::clone(board),
            None => {
                let board = self.board.insert(Arc::default()).clone();
                board.post_largest(self.largest);
                (0..self.queues.len()).for_each(|nth| self.post(nth));
                board
            }
        };
        board.note_reader(reader);
        board
    }

    /// Whether other lanes have asked to see what waits here.
    pub(crate) fn is_shown(&self) -> bool {
        self.board.is_some()
    }

    fn post(&self, nth: usize) {
        if let (Some(board), Some(queue)) = (&self.board, self.queues.get(nth)) {
            let is_shared = self.shared >> nth & 1 == 1;
            let load = (queue.bytes, queue.frames.len());
            board.post(nth, (queue.conversation, queue.origin, is_shared), load);
        }
    }

    /// What a conversation that has nothing here may bring, a `piece` or a frame at most, beside those who do not ask, which is seen by how
    /// much is here, or who ask in other lanes: what there is room for, or so little beside what somebody has here that it is him who
    /// loses a frame for it.
    pub(crate) fn admits(
        &self,
        rate: BitRate,
        Conversation(number): Conversation,
        piece: Bytes,
        sent: UnderWay,
    ) -> Option<Bytes> {
        let (frame, longest) = (self.largest().0, ones(self.waiting).map(|n| self.queues[n].bytes).max()?);
        let limit = self.limit(rate);
        let limit = if self.is_shown() { board::shared_limit(limit) } else { limit };
        let room = limit.saturating_sub(self.bytes + sent.all.0);
        // Who asks in another lane has no more than a window.
        let asked = if self.is_shown() { board::window(rate, frame) } else { 0 };
        let beside = match longest > asked + frame {
            true => frame.max(longest / 2),
            false if self.has_queue_for_another(sent) => frame,
            // It waits for a queue of its own.
            false => return None,
        };
        // What it has sent in this round will be all that it has here.
        let [most, beside] = [piece.0.max(frame), beside].map(|bytes| bytes.saturating_sub(sent.own.0));
        let most = most.min(room.max(beside));
        let is_asked = !self.is_shown() && self.bytes <= 2 * piece.0.max(frame);
        let least = if sent.own == Bytes::ZERO { frame } else { 1 };
        (self.found(number).is_none() && !is_asked && most >= least).then_some(Bytes(most))
    }

    /// The same for a device of the home, whose frames are of whoever it may be: where other lanes ask as well, a few frames of the home's
    /// have room beside all that these have.
    pub(crate) fn admits_of_device(&self, rate: BitRate, sent: UnderWay) -> Option<Bytes> {
        let frame = self.largest().0;
        let of_home: u64 = ones(self.waiting & !self.elsewhere).map(|n| self.queues[n].bytes).sum();
        let room = (self.limit(rate) / 4).max(2 * frame).saturating_sub(of_home + sent.all.0);
        (self.is_shown() && self.has_queue_for_another(sent) && room >= frame).then_some(Bytes(room))
    }

    /// Whether a conversation of the home that asks may have a queue, beside those that were told so in this round.
    fn has_queue_for_another(&self, sent: UnderWay) -> bool {
        let of_home = (self.waiting & !self.elsewhere).count_ones() as usize;
        let free = QUEUES - self.waiting.count_ones() as usize;
        match &self.board {
            Some(board) => board::has_queue(of_home, free, sent.others, board.each()),
            None => sent.others < free,
        }
    }

    /// Frames are smaller than they were, or the limit is another: it goes by those that wait.
    pub(crate) fn forget_sizes(&mut self) {
        let frames = ones(self.waiting).flat_map(|n| self.queues[n].frames.iter());
        self.set_largest(frames.map(|frame| frame.wire_bytes() as u64).max().unwrap_or(0));
    }

    /// Makes room for a frame of `bytes`: the first frame of the longest queue, if that is enough.
    pub(crate) fn make_room(&mut self, rate: BitRate, bytes: Bytes) -> Option<Frame> {
        let longest = ones(self.waiting).max_by_key(|&n| self.queues[n].bytes)?;
        let first = self.queues[longest].frames.front()?.wire_bytes() as u64;
        // With those who had nothing there it may be more than full, and is to be no fuller.
        let limit = self.limit(rate).max(self.bytes);
        (self.bytes - first + bytes.0 <= limit).then(|| self.take(longest)).flatten()
    }

    pub(crate) fn push(&mut self, frame: Frame, origin: Origin) {
        if self.queues.is_empty() {
            self.queues.resize_with(QUEUES, Queue::default);
        }
        let bytes = frame.wire_bytes() as u64;
        let nth = self.queue_of(conversation(frame.as_slice()));
        self.note_size(bytes);
        self.bytes += bytes;
        self.frames += 1;
        if self.waiting >> nth & 1 == 0 {
            self.waiting |= 1 << nth;
            self.elsewhere = self.elsewhere & !(1 << nth) | u32::from(origin != Origin::Home) << nth;
            self.queues[nth].origin = origin;
        }
        let queue = &mut self.queues[nth];
        queue.bytes += bytes;
        queue.frames.push(frame);
        self.post(nth);
        self.next_turn();
    }

    fn note_size(&mut self, bytes: u64) {
        if bytes > self.largest {
            self.set_largest(bytes);
        }
    }

    fn set_largest(&mut self, bytes: u64) {
        self.largest = bytes;
        if let Some(board) = &self.board {
            board.post_largest(bytes);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let turn = self.turn;
        let bytes = self.next_bytes()?;
        self.queues[turn].deficit -= bytes.0;
        self.take(turn)
    }

    /// The wire bytes of the frame that is next.
    pub(crate) fn next_bytes(&self) -> Option<Bytes> {
        Some(Bytes::from(self.queues.get(self.turn)?.frames.front()?.wire_bytes()))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.frames
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// The queue in which frames of a conversation wait, as far as that is known.
    /// Whether a conversation has a queue.
    pub(crate) fn has(&self, Conversation(number): Conversation) -> bool {
        self.found(number).is_some()
    }

    fn found(&self, conversation: u32) -> Option<usize> {
        let own = ones(self.waiting).find(|&n| self.queues[n].conversation == conversation);
        // What waits in a shared queue may be of this conversation.
        own.or_else(|| Some(home_of(conversation)).filter(|&home| self.shared >> home & 1 == 1))
    }

    /// The queue in which a conversation's frames wait, or may begin to.
    fn queue_of(&mut self, conversation: u32) -> usize {
        if let Some(own) = self.found(conversation) {
            return own;
        }
        let home = home_of(conversation);
        let Some(free) = ones(!self.waiting & 1 << home).chain(ones(!self.waiting)).next() else {
            self.shared |= 1 << home;
            return home;
        };
        self.queues[free].conversation = conversation;
        free
    }

    /// Takes the first frame of a queue that is not empty.
    fn take(&mut self, nth: usize) -> Option<Frame> {
        let queue = &mut self.queues[nth];
        let frame = queue.frames.pop()?;
        let bytes = frame.wire_bytes() as u64;
        queue.bytes -= bytes;
        self.bytes -= bytes;
        self.frames -= 1;
        if queue.frames.is_empty() {
            queue.deficit = 0;
            self.waiting &= !(1 << nth);
            self.shared &= !(1 << nth);
        }
        self.post(nth);
        self.next_turn();
        Some(frame)
    }

    /// Ends the turn of a queue that is empty or cannot pay for its first frame. A quantum is no less than the largest frame,
    /// so each queue is looked at once or twice.
    fn next_turn(&mut self) {
        let quantum = self.largest.max(QUANTUM);
        while self.waiting != 0 {
            let queue = &self.queues[self.turn];
            if queue.frames.front().is_some_and(|first| first.wire_bytes() as u64 <= queue.deficit) {
                return;
            }
            let after = self.waiting & u32::MAX.checked_shl(self.turn as u32 + 1).unwrap_or(0);
            self.turn = ones(if after == 0 { self.waiting } else { after }).next().unwrap_or(self.turn);
            self.queues[self.turn].deficit += quantum;
        }
    }
}

/// How much may wait, with frames up to that size, in a flow whose tightest limit is `rate`.
pub(crate) fn limit_of(rate: BitRate, largest: u64) -> u64 {
    rate.bytes_in(HOLD_TIME).0.max(FRAMES_LEAST * largest)
}

/// What is to be thought of as a frame, where the largest has that size.
pub(crate) fn frame_of(largest: u64) -> u64 {
    largest.max(QUANTUM)
}

/// The queue that a conversation gets before others, and the one that it shares if there is no other.
pub(crate) const fn home_of(conversation: u32) -> usize {
    conversation as usize % QUEUES
}

/// The numbers of the bits that are set, from the lowest on.
fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let nth = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (nth < u32::BITS).then_some(nth as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::tests::datagram;
    use firelane_frame::{Pool, PoolConfig, Pools, PoolsConfig};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, VecDeque};

    fn fill(hold: &mut Hold, pool: &mut Pool, rate: BitRate, bytes: usize) -> usize {
        loop {
            let mut frame = pool.take().unwrap();
            frame.append(bytes);
            if !hold.has_room(rate, &frame) {
                return hold.len();
            }
            hold.push(frame, Origin::Home);
        }
    }

    #[test]
    fn two_ticks_or_six_of_the_largest_frames() {
        let mut pool = Pool::new(PoolConfig { slots: 300, slot_bytes: 2048 });
        // 50 Mb/s for 20 ms are 125,000 bytes.
        let mut fast = Hold::default();
        assert_eq!(fill(&mut fast, &mut pool, BitRate::from_mbps(50), 1000), 125);
        let mut slow = Hold::default();
        assert_eq!(fill(&mut slow, &mut pool, BitRate::from_bps(1), 1000), 6);
        assert_eq!(slow.bytes(), Bytes(6000));
        assert_eq!((slow.next_bytes(), slow.pop().map(|f| f.len())), (Some(Bytes(1000)), Some(1000)));
        assert!(!slow.is_empty());
        assert_eq!(fill(&mut slow, &mut pool, BitRate::from_bps(1), 1000), 6);
    }

    fn pools() -> Pools {
        Pools::new(PoolsConfig { small_slots: 4096, large_slots: 0 })
    }

    /// Conversation and number of a frame that `datagram` made.
    fn told(frame: &Frame) -> (u16, u32) {
        let bytes = frame.as_slice();
        (
            u16::from_be_bytes([bytes[34], bytes[35]]),
            u32::from_be_bytes([bytes[42], bytes[43], bytes[44], bytes[45]]),
        )
    }

    proptest! {
        /// Also of more conversations than there are queues.
        #[test]
        fn conversations_keep_their_order_and_nothing_is_lost(
            steps in prop::collection::vec((0u8..5, 0u16..50, 46usize..1514), 1..400),
        ) {
            let (mut hold, mut pools) = (Hold::default(), pools());
            let mut model: BTreeMap<u16, VecDeque<u32>> = BTreeMap::new();
            let mut bytes = 0;
            for (serial, (step, conversation, len)) in (0..).zip(steps) {
                let out = match step {
                    0..3 => {
                        hold.push(pools.copy_of(&datagram(conversation, serial, len)).unwrap(), Origin::Home);
                        model.entry(conversation).or_default().push_back(serial);
                        bytes += len as u64;
                        None
                    }
                    3 => {
                        let next = hold.next_bytes();
                        let frame = hold.pop();
                        prop_assert_eq!(next, frame.as_ref().map(|frame| Bytes::from(frame.len())));
                        prop_assert_eq!(frame.is_none(), bytes == 0);
                        frame
                    }
                    _ => hold.make_room(BitRate::from_mbps(100_000), Bytes(0)),
                };
                if let Some(frame) = out {
                    let (conversation, serial) = told(&frame);
                    prop_assert_eq!(model.get_mut(&conversation).and_then(VecDeque::pop_front), Some(serial));
                    bytes -= frame.len() as u64;
                    pools.put(frame);
                }
                prop_assert_eq!(hold.bytes(), Bytes(bytes));
                prop_assert_eq!(hold.len(), model.values().map(VecDeque::len).sum::<usize>());
                prop_assert_eq!(hold.is_empty(), bytes == 0);
            }
        }

        /// Whatever the size of their frames, conversations that wait all the while get the same bytes.
        #[test]
        fn each_gets_its_share(sizes in prop::collection::vec(60usize..1514, 2..20)) {
            let (mut hold, mut pools) = (Hold::default(), pools());
            let mut served = vec![0u64; sizes.len()];
            let add = |hold: &mut Hold, n: usize, pools: &mut Pools| {
                hold.push(pools.copy_of(&datagram(n as u16, 0, sizes[n])).unwrap(), Origin::Home);
            };
            // The first has a long queue from the start.
            (0..100).for_each(|_| add(&mut hold, 0, &mut pools));
            (0..sizes.len()).for_each(|n| (0..3).for_each(|_| add(&mut hold, n, &mut pools)));
            for _ in 0..2000 {
                let frame = hold.pop().unwrap();
                let n = usize::from(told(&frame).0);
                served[n] += frame.len() as u64;
                pools.put(frame);
                add(&mut hold, n, &mut pools);
            }
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            prop_assert!(most - least <= 3 * QUANTUM, "{served:?}");
        }
    }

    #[test]
    fn who_holds_most_makes_room() {
        let (mut hold, mut pools) = (Hold::default(), pools());
        let rate = BitRate::from_mbps(50);
        hold.push(pools.copy_of(&datagram(1, 0, 1000)).unwrap(), Origin::Home);
        for serial in 0.. {
            let frame = pools.copy_of(&datagram(2, serial, 1000)).unwrap();
            if !hold.has_room(rate, &frame) {
                break;
            }
            hold.push(frame, Origin::Home);
        }
        for serial in 0..20 {
            assert_eq!(hold.make_room(rate, Bytes(1000)).map(|frame| told(&frame)), Some((2, serial)));
            hold.push(pools.copy_of(&datagram(2, 1000, 1000)).unwrap(), Origin::Home);
        }
        let soon: Vec<u16> = (0..3).map(|_| told(&hold.pop().unwrap()).0).collect();
        assert!(soon.contains(&1), "{soon:?}");
    }

    #[test]
    fn who_has_nothing_there_has_a_place_as_long_as_there_is_a_queue() {
        let (mut hold, mut pools) = (Hold::default(), pools());
        let rate = BitRate::from_mbps(1);
        let mut enters = |conversation: u16, serial: u32| {
            let frame = pools.copy_of(&datagram(conversation, serial, 1000)).unwrap();
            let enters = hold.has_room(rate, &frame);
            if enters {
                hold.push(frame, Origin::Home);
            }
            enters
        };
        assert_eq!((0..10).filter(|&serial| enters(0, serial)).count(), 6);
        for conversation in 1..QUEUES as u16 {
            assert!(enters(conversation, 0) && !enters(conversation, 1), "{conversation}");
        }
        assert!(!enters(QUEUES as u16, 0), "every queue is somebody's");
    }
}
