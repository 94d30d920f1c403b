//! One small segment of new text: what a request and its answer leave in.
//!
//! A program writes less than a segment and waits. All of it goes at once unless something else has a claim: a
//! repair, a probe, a FIN, a window, pacing, Nagle. Where nothing has, few of the questions of `send.rs` are left;
//! this file asks whether that is so and makes the segment. Called by [`Connection::poll_transmit`] before the long
//! way, which would have done the same: that is the law tested here.

use core::ops::Range;

use firelane_units::Instant;
use firelane_wire::{Ecn, TcpFlags, TcpOptions};

use crate::busy::Doing;
use crate::connection::{Connection, Rings};
use crate::segment::SegmentOut;
use crate::send::NOWHERE;
use crate::state::State;
use crate::timers::SendTimer;

impl Connection {
    /// All that the program has written and that never left, in one segment; `None`, with nothing changed that the
    /// long way would not change, if that has to be thought about.
    #[inline]
    pub(crate) fn poll_small(&mut self, now: Instant, rings: &Rings<'_>) -> Option<SegmentOut> {
        let range = self.small_text(rings)?;
        self.flight.wake(now);
        if range.end - range.start > self.flight.budget().0 {
            return None;
        }
        let segment_bytes = self.plain_segment_bytes();
        if range.end - range.start != u64::from(segment_bytes) {
            self.send.note_small(range.end);
        }
        if self.flight.is_empty() {
            self.progress_at = now;
        }
        self.now_does(now, Doing::Sending);
        self.timers.send = SendTimer::Off;
        self.flight.on_last_sent(now, range.clone());
        self.counts.on_small_sent();
        let window = self.receive.announce(rings.recv, self.options.room());
        self.receive.ack.on_ack_sent(now, true);
        Some(SegmentOut {
            seq: self.send.space.seq(range.start),
            ack: Some(self.receive.space.seq(self.receive.nxt)),
            flags: TcpFlags::ACK | TcpFlags::PSH,
            window,
            urgent: 0,
            options: TcpOptions { timestamps: self.stamps.option(now), ..TcpOptions::EMPTY },
            payload: range,
            segment_bytes,
            ecn: Ecn::NotCapable,
            is_repeated: false,
        })
    }

    /// The new text, if it is of one segment at most and nothing keeps it.
    #[inline]
    fn small_text(&self, rings: &Rings<'_>) -> Option<Range<u64>> {
        let (una, nxt) = (self.flight.una(), self.flight.nxt());
        let end = rings.send.cursor() + rings.send.available() as u64;
        let queued = end.checked_sub(nxt).filter(|&queued| queued > 0)?;
        let is_plain = self.state == State::Established
            && self.send.fin == NOWHERE
            && self.pending.is_empty()
            && !self.ecn.is_on()
            && !self.receive.has_report()
            && self.options.is_plain();
        let is_small = queued <= u64::from(self.plain_segment_bytes()) && queued <= self.send.room(nxt);
        let goes = !self.options.cork && (self.options.nodelay || !self.send.is_small_under_way(una));
        (is_plain && is_small && goes && self.flight.is_free()).then_some(nxt..end)
    }
}
