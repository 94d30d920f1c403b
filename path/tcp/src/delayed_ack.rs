//! RFC 1122 §4.2.3.2 and RFC 5681 §4.2: when received data are acknowledged.
//!
//! Owns the count of unacknowledged bytes and the delay's deadline. Called by `receive` per segment with text
//! ([`DelayedAck::on_data`]), by `send` for each segment that carries an ACK ([`DelayedAck::on_ack_sent`]);
//! the connection folds [`DelayedAck::deadline`] into its own.

use core::time::Duration;

use firelane_units::{Bytes, Instant, Mss};

/// Segments acknowledged at once before delaying starts, so that the peer's slow start gets its clock
/// (Linux's quick ACKs).
pub const QUICK_ACKS: u8 = 16;

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

/// What has been received and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct DelayedAck {
    /// [`Instant::FAR_FUTURE`] if no ACK is owed.
    deadline: Instant,
    unacknowledged: u32,
    quick: u8,
    due: Due,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self::new()
    }
}

impl DelayedAck {
    /// Nothing owed.
    pub const fn new() -> Self {
        Self { deadline: Instant::FAR_FUTURE, unacknowledged: 0, quick: QUICK_ACKS, due: Due::Late }
    }

    /// What a connection at rest remembers: how many ACKs are still quick; `None` while one is owed.
    pub(crate) fn rest(&self) -> Option<u8> {
        let Self { deadline: Instant::FAR_FUTURE, unacknowledged: 0, quick, due: Due::Late } = *self else {
            return None;
        };
        Some(quick)
    }

    /// The acknowledger that rested.
    pub(crate) fn wake_from(quick: u8) -> Self {
        Self { quick, ..Self::new() }
    }

    /// Data arrived. `mss` is the size of the peer's full segments: two of them are acknowledged at once
    /// (RFC 9293 SHLD-19).
    pub fn on_data(&mut self, now: Instant, len: Bytes, mss: Mss, arrival: Arrival, delay: Duration) {
        let len = u32::try_from(len.0).unwrap_or(u32::MAX);
        self.unacknowledged = self.unacknowledged.saturating_add(len);
        let two_segments = self.unacknowledged >= 2 * u32::from(mss.bytes());
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        if arrival == Arrival::Urgent || two_segments {
            self.due = Due::Now;
        } else if quick {
            self.due = self.due.max(Due::Soon);
        }
        self.deadline = self.deadline.min(now + delay.min(DELAY_MAX));
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
        self.quick = if on { QUICK_ACKS } else { 0 };
        if on && self.is_owed() {
            self.due = Due::Now;
        }
    }

    /// A segment with an ACK left. Data in it mean that the program answers, so delaying pays: ACKs ride on
    /// the answers.
    pub fn on_ack_sent(&mut self, with_data: bool) {
        if with_data && self.unacknowledged > 0 {
            self.quick = 0;
        }
        self.deadline = Instant::FAR_FUTURE;
        self.unacknowledged = 0;
        self.due = Due::Late;
    }

    /// Whether an ACK must go now, with data or without.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due > Due::Late || self.deadline <= now
    }

    /// Whether the ACK that is due is one that an answer may carry.
    #[inline]
    pub fn may_wait(&self, now: Instant) -> bool {
        self.due == Due::Soon && self.deadline > now
    }

    /// Whether any ACK is owed, now or later.
    pub fn is_owed(&self) -> bool {
        self.due > Due::Late || self.deadline != Instant::FAR_FUTURE
    }

    /// When the owed ACK must go.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        (self.deadline != Instant::FAR_FUTURE).then_some(self.deadline)
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
        ack.on_ack_sent(true);
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
        ack.on_ack_sent(false);
        assert!(!ack.is_owed() && ack.deadline().is_none());
    }

    #[test]
    fn holes_and_demands_are_acknowledged_at_once() {
        let mut ack = calm();
        data(&mut ack, NOW, 1, Arrival::Urgent);
        assert!(ack.is_due(NOW));
        ack.on_ack_sent(false);
        ack.demand();
        assert!(ack.is_due(NOW) && ack.is_owed() && ack.deadline().is_none());
    }

    #[test]
    fn the_first_segments_are_quick_until_the_program_answers() {
        let mut ack = DelayedAck::new();
        for n in 0..QUICK_ACKS {
            data(&mut ack, NOW, 100, Arrival::InOrder);
            assert!(ack.is_due(NOW), "segment {n}");
            ack.on_ack_sent(false);
        }
        data(&mut ack, NOW, 100, Arrival::InOrder);
        assert!(!ack.is_due(NOW));
        let mut answering = DelayedAck::new();
        data(&mut answering, NOW, 100, Arrival::InOrder);
        answering.on_ack_sent(true);
        data(&mut answering, NOW, 100, Arrival::InOrder);
        assert!(!answering.is_due(NOW), "the answer carries the ACK");
    }

    #[test]
    fn the_program_may_ask_for_haste_and_for_patience() {
        let mut ack = calm();
        data(&mut ack, NOW, 10, Arrival::InOrder);
        assert!(!ack.is_due(NOW));
        ack.set_quick(true);
        assert!(ack.is_due(NOW), "what is owed goes");
        ack.on_ack_sent(false);
        data(&mut ack, NOW, 10, Arrival::InOrder);
        assert!(ack.is_due(NOW), "and the next");
        ack.on_ack_sent(false);
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
        ack.on_ack_sent(false);
        data(&mut ack, NOW, 2_000, Arrival::InOrder);
        assert!(ack.is_due(NOW) && !ack.may_wait(NOW), "RFC 9293 SHLD-19");
        ack.on_ack_sent(false);
        assert!(!ack.may_wait(NOW), "nothing is owed");
    }

    #[test]
    fn it_is_small() {
        assert!(core::mem::size_of::<DelayedAck>() <= 16);
    }
}
