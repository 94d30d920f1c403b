//! RFC 1122 §4.2.3.2 and RFC 5681 §4.2: when received data are acknowledged.
//!
//! Owns the count of unacknowledged bytes and the delay's deadline. Called by `receive` per segment with text
//! ([`DelayedAck::on_data`], [`DelayedAck::on_push`]), by `send` for each segment that carries an ACK ([`DelayedAck::on_ack_sent`]);
//! the connection folds [`DelayedAck::deadline`] into its own.
//!
//! Waiting pays where the program answers, for the answer carries the ACK; that it does is seen by its answers, and that it does so no
//! more by an ACK that has waited in vain. A peer whose text nobody answers waits for ACKs with each small segment (RFC 896), so
//! then they leave as soon as the program has had its chance (Linux's `pingpong` and `ICSK_ACK_PUSHED`).

use core::time::Duration;

use firelane_units::{Bytes, Instant, Mss};

/// Segments acknowledged at once before delaying starts, so that the peer's slow start gets its clock
/// (Linux's quick ACKs).
pub const QUICK_ACKS: u8 = 16;

/// So much is no message that an answer is about, however large segments may be: a sender with a small buffer may have no room for more.
const BULK: u32 = 2 * 1460;

/// The delay when none is configured: Linux's least.
pub const DEFAULT_DELAY: Duration = Duration::from_millis(40);

/// No configuration delays an ACK for longer: RFC 9293 MUST-40 wants less than half a second, a lane's tick included.
const DELAY_MAX: Duration = Duration::from_millis(490);

/// How a segment with text came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// In order, and nothing waits for earlier data.
    InOrder,
    /// Ahead, a duplicate, or filling a hole: the peer needs to know at once (RFC 5681 §4.2).
    Urgent,
}

/// Whether a bare ACK must leave before the delay is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// The delay counts.
    Late,
    /// As soon as the program has had its chance to answer: it helps the peer, which does not wait for it.
    Soon,
    /// At once: the peer may be waiting.
    Now,
}

/// What is known of the program, by which delaying pays or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Habit {
    /// So many more ACKs leave without delay, if it does not answer.
    quick: u8,
    /// It answers: its answers carry the ACKs.
    answers: bool,
}

/// What has been received and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct DelayedAck {
    /// When the ACK that is owed must leave; once it has, until when text of the program is an answer.
    deadline: Instant,
    unacknowledged: u32,
    habit: Habit,
    due: Due,
    is_owed: bool,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self::new()
    }
}

impl DelayedAck {
    /// Nothing owed.
    pub const fn new() -> Self {
        Self::wake_from(Habit { quick: QUICK_ACKS, answers: false })
    }

    /// What a connection at rest remembers; `None` while an ACK is owed.
    pub(crate) fn rest(&self) -> Option<Habit> {
        (!self.is_owed()).then_some(self.habit)
    }

    /// The acknowledger that rested: of what is silent since long nothing is answered.
    pub(crate) const fn wake_from(habit: Habit) -> Self {
        Self { deadline: Instant::ZERO, unacknowledged: 0, habit, due: Due::Late, is_owed: false }
    }

    /// What is silent since long has no answer any more.
    pub(crate) fn rests(&mut self) {
        if !self.is_owed {
            self.deadline = Instant::ZERO;
        }
    }

    /// Whether text of the program would be an answer.
    pub(crate) fn awaits_answer(&self, now: Instant) -> bool {
        now < self.deadline
    }

    /// Data arrived. `mss` is the size of the peer's full segments: two of them are acknowledged at once
    /// (RFC 9293 SHLD-19).
    pub fn on_data(&mut self, now: Instant, len: Bytes, mss: Mss, arrival: Arrival, delay: Duration) {
        let (len, full) = (u32::try_from(len.0).unwrap_or(u32::MAX), u32::from(mss.bytes()));
        self.unacknowledged = self.unacknowledged.saturating_add(len);
        let two_segments = self.unacknowledged >= 2 * full;
        if arrival == Arrival::Urgent || two_segments {
            self.due = Due::Now;
        }
        let is_waited_for = !self.habit.answers && (self.habit.quick > 0 || len < full);
        if is_waited_for || self.unacknowledged >= BULK {
            self.demand_soon();
        }
        let deadline = now + delay.min(DELAY_MAX);
        self.deadline = if self.is_owed { self.deadline.min(deadline) } else { deadline };
        self.is_owed = true;
    }

    /// The data that have just arrived end what the peer had to say (PSH): it may wait to hear of it.
    #[inline]
    pub fn on_push(&mut self) {
        if self.is_owed && !self.habit.answers {
            self.demand_soon();
        }
    }

    /// Something else needs an ACK at once: a keep-alive, an unacceptable segment, a FIN ahead of its turn.
    pub fn demand(&mut self) {
        self.due = Due::Now;
    }

    /// Something needs an ACK, which the program's answer to it may carry: the peer's FIN, or its half of the
    /// handshake.
    pub fn demand_soon(&mut self) {
        self.due = self.due.max(Due::Soon);
    }

    /// The program asks for ACKs at once (for the next segments, and for what is owed), or wants them to wait for its
    /// answers.
    pub fn set_quick(&mut self, on: bool) {
        self.habit = Habit { quick: if on { QUICK_ACKS } else { self.habit.quick }, answers: !on };
        if on && self.is_owed() {
            self.due = Due::Now;
        }
    }

    /// A segment with an ACK left. Data in it that leave soon enough after the peer's are an answer; an ACK that leaves alone when its time
    /// is over has waited for one in vain.
    pub fn on_ack_sent(&mut self, now: Instant, with_data: bool) {
        if with_data {
            self.habit.answers |= self.awaits_answer(now);
        } else if self.is_late(now) {
            self.habit.answers = false;
        }
        if self.deadline != Instant::ZERO {
            self.habit.quick = self.habit.quick.saturating_sub(1);
        }
        self.settle();
    }

    /// What was owed is not, because the peer knows.
    pub(crate) fn settle(&mut self) {
        (self.unacknowledged, self.due, self.is_owed) = (0, Due::Late, false);
    }

    /// Whether the time of the ACK that is owed is over.
    fn is_late(&self, now: Instant) -> bool {
        self.is_owed && self.deadline <= now
    }

    /// Whether an ACK must go now, with data or without.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due > Due::Late || self.is_late(now)
    }

    /// Whether the ACK that is due is one that an answer may carry.
    #[inline]
    pub fn may_wait(&self, now: Instant) -> bool {
        self.due == Due::Soon && !self.is_late(now)
    }

    /// Whether any ACK is owed, now or later.
    pub fn is_owed(&self) -> bool {
        self.due > Due::Late || self.is_owed
    }

    /// When the owed ACK must go.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.is_owed.then_some(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Mss = Mss::clamped(1_000);
    const NOW: Instant = Instant::from_secs(1);

    /// An acknowledger whose peer is past its slow start.
    fn calm() -> DelayedAck {
        let mut ack = DelayedAck::new();
        ack.on_data(NOW, Bytes(1), MSS, Arrival::InOrder, DEFAULT_DELAY);
        ack.on_ack_sent(NOW, true);
        ack
    }

    fn data(ack: &mut DelayedAck, at: Instant, len: u64, arrival: Arrival) {
        ack.on_data(at, Bytes(len), MSS, arrival, DEFAULT_DELAY);
    }

    #[test]
    fn every_second_segment_or_the_delay() {
        let mut ack = calm();
        data(&mut ack, NOW, 1_000, Arrival::InOrder);
        assert!(!ack.is_due(NOW) && ack.is_owed());
        assert_eq!(ack.deadline(), Some(NOW + DEFAULT_DELAY));
        assert!(ack.is_due(NOW + DEFAULT_DELAY), "RFC 9293 MUST-40");
        data(&mut ack, NOW + Duration::from_millis(5), 1_000, Arrival::InOrder);
        assert!(ack.is_due(NOW), "RFC 9293 SHLD-19");
        assert_eq!(ack.deadline(), Some(NOW + DEFAULT_DELAY), "later data do not put the deadline off");
        ack.on_ack_sent(NOW, false);
        assert!(!ack.is_owed() && ack.deadline().is_none());
    }

    #[test]
    fn holes_and_demands_are_acknowledged_at_once() {
        let mut ack = calm();
        data(&mut ack, NOW, 1, Arrival::Urgent);
        assert!(ack.is_due(NOW));
        ack.on_ack_sent(NOW, false);
        ack.demand();
        assert!(ack.is_due(NOW) && ack.is_owed() && ack.deadline().is_none());
    }

    #[test]
    fn the_first_segments_are_quick_until_the_program_answers() {
        let mut ack = DelayedAck::new();
        for n in 0..QUICK_ACKS {
            data(&mut ack, NOW, 100, Arrival::InOrder);
            assert!(ack.is_due(NOW), "segment {n}");
            ack.on_ack_sent(NOW, false);
        }
        data(&mut ack, NOW, 1_000, Arrival::InOrder);
        assert!(!ack.is_due(NOW));
        let mut answering = DelayedAck::new();
        data(&mut answering, NOW, 100, Arrival::InOrder);
        answering.on_ack_sent(NOW, true);
        data(&mut answering, NOW, 100, Arrival::InOrder);
        assert!(!answering.is_due(NOW), "the answer carries the ACK");
    }

    /// RFC 896: the peer sends no other small segment before it has heard of the last one.
    #[test]
    fn what_nobody_answers_is_acknowledged_when_the_program_has_had_its_chance() {
        let mut ack = calm();
        let soon = |ack: &DelayedAck| ack.is_due(NOW) && ack.may_wait(NOW);
        data(&mut ack, NOW, 100, Arrival::InOrder);
        assert!(!ack.is_due(NOW), "it may be answered, as what came before");
        let late = NOW + DEFAULT_DELAY;
        ack.on_ack_sent(late, false);
        for _ in 0..100 {
            data(&mut ack, late, 100, Arrival::InOrder);
            assert!(ack.is_due(late) && ack.may_wait(late));
            ack.on_ack_sent(late, false);
        }
        data(&mut ack, late, 1_000, Arrival::InOrder);
        assert!(!ack.is_due(late), "a full segment is one of many");
        ack.on_push();
        assert!(ack.is_due(late) && ack.may_wait(late), "but for the last");
        // The answer comes behind the ACK: others will, too.
        ack.on_ack_sent(late, false);
        ack.on_ack_sent(late + Duration::from_millis(39), true);
        data(&mut ack, NOW, 100, Arrival::InOrder);
        ack.on_push();
        assert!(!soon(&ack));
        // What comes later than an ACK may wait is none.
        let mut ack = DelayedAck::wake_from(Habit { quick: 0, answers: false });
        data(&mut ack, NOW, 100, Arrival::InOrder);
        ack.on_ack_sent(NOW, false);
        ack.on_ack_sent(late, true);
        data(&mut ack, NOW, 100, Arrival::InOrder);
        assert!(soon(&ack));
    }

    /// Over loopback a segment has 64 KiB, and a small send buffer less than that.
    #[test]
    fn what_is_much_does_not_wait_for_an_answer() {
        let mut ack = calm();
        ack.on_data(NOW, Bytes(2_000), Mss::clamped(60_000), Arrival::InOrder, DEFAULT_DELAY);
        assert!(!ack.is_due(NOW));
        ack.on_data(NOW, Bytes(1_000), Mss::clamped(60_000), Arrival::InOrder, DEFAULT_DELAY);
        assert!(ack.is_due(NOW) && ack.may_wait(NOW));
    }

    #[test]
    fn the_program_may_ask_for_haste_and_for_patience() {
        let mut ack = calm();
        data(&mut ack, NOW, 10, Arrival::InOrder);
        assert!(!ack.is_due(NOW));
        ack.set_quick(true);
        assert!(ack.is_due(NOW), "what is owed goes");
        ack.on_ack_sent(NOW, false);
        data(&mut ack, NOW, 10, Arrival::InOrder);
        assert!(ack.is_due(NOW), "and the next");
        ack.on_ack_sent(NOW, false);
        ack.set_quick(true);
        assert!(!ack.is_due(NOW), "nothing is owed");
        ack.set_quick(false);
        data(&mut ack, NOW, 10, Arrival::InOrder);
        assert!(!ack.is_due(NOW));
    }

    #[test]
    fn what_an_answer_may_carry_waits_until_something_urgent_comes() {
        let mut ack = DelayedAck::new();
        data(&mut ack, NOW, 100, Arrival::InOrder);
        assert!(ack.is_due(NOW) && ack.may_wait(NOW), "a quick ACK");
        assert!(!ack.may_wait(NOW + DEFAULT_DELAY), "but for no longer than any");
        ack.demand_soon();
        assert!(ack.may_wait(NOW), "a FIN with it");
        data(&mut ack, NOW, 100, Arrival::Urgent);
        ack.demand_soon();
        assert!(ack.is_due(NOW) && !ack.may_wait(NOW), "a hole");
        ack.on_ack_sent(NOW, false);
        data(&mut ack, NOW, 2_000, Arrival::InOrder);
        assert!(ack.is_due(NOW) && !ack.may_wait(NOW), "RFC 9293 SHLD-19");
        ack.on_ack_sent(NOW, false);
        assert!(!ack.may_wait(NOW), "nothing is owed");
    }

    #[test]
    fn it_is_small() {
        assert!(core::mem::size_of::<DelayedAck>() <= 16);
    }
}
