//! Header prediction: the next text in order, the next acknowledgment, or both.
//!
//! Nearly all segments of a connection in use are what it expects next: they have no control bits, no options but
//! timestamps and nothing before them missing. Of the steps of RFC 9293 §3.10.7.4 only "take the ACK, take the text"
//! is then left to do, straight from the header as it lies in the frame. Called by the lane before
//! [`Connection::on_segment`], which takes everything else; that it would have done the same is the law tested here.

use firelane_units::{DropReason, Instant};
use firelane_wire::{TcpFlags, TcpView};

use crate::connection::{Connection, Rings};
use crate::flight::AckIn;
use crate::segment::Events;
use crate::send::NOWHERE;
use crate::state::State;

/// What an expected segment did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// What the socket must hear.
    pub events: Events,
    /// Its text was not taken, and why.
    pub dropped: Option<DropReason>,
}

/// What is read of an expected segment's header.
struct Plain {
    /// The acknowledgment, as a send cursor between SND.UNA and SND.NXT.
    ack: u64,
    stamps: Option<(u32, u32)>,
}

impl Connection {
    /// Takes a segment, its checksum verified, if it is what comes next; `None`, with nothing done, leaves it to
    /// [`Connection::on_segment`].
    #[inline]
    pub fn on_expected(
        &mut self,
        now: Instant,
        seg: &TcpView<'_>,
        rings: &mut Rings<'_>,
    ) -> Option<Expected> {
        let Plain { ack, stamps } = self.expect(now, seg)?;
        let text = seg.payload();
        self.timers.note_traffic(now);
        self.counts.on_received(now, text.len(), self.receive.segment().into());
        (self.heard_at, self.keepalive_probes) = (now, 0);
        if let Some((value, _)) = stamps
            && self.receive.nxt <= self.receive.acknowledged
        {
            self.stamps.note(now, value);
        }
        let mut out = Expected { events: Events::NONE, dropped: None };
        let una = self.flight.una();
        let window = u32::from(seg.window()) << self.send.scale;
        let duplicate = ack == una && text.is_empty() && window == self.send.window;
        if !self.flight.is_empty() || (duplicate && self.flight.may_hear_of_copies()) {
            let digested = self.flight.on_calm_ack(now, ack).unwrap_or_else(|| {
                let echoed = self.stamps.echoed(now, stamps);
                self.flight.on_ack(now, &AckIn { ack, sack: &[], echoed, duplicate, congested: false })
            });
            self.count_ack(&digested, false);
        }
        self.send.update_window(seg.seq(), ack, window);
        if ack > una {
            out.events |= self.take_progress(now, una, ack, rings);
        }
        if !text.is_empty() {
            match self.place_text(now, self.receive.nxt as i64, text, stamps, rings.recv) {
                Ok(events) => out.events |= events,
                Err(reason) => out.dropped = Some(reason),
            }
            if seg.flags().contains(TcpFlags::PSH) {
                self.receive.ack.on_push();
            }
        }
        Some(out)
    }

    /// Whether `seg` is what comes next: nothing waits ahead, the acknowledgment moves forward or stands still, and
    /// no step but those of ACK and text would see anything in it.
    #[inline]
    fn expect(&self, now: Instant, seg: &TcpView<'_>) -> Option<Plain> {
        let is_plain = seg.flags().without(TcpFlags::PSH) == TcpFlags::ACK;
        let is_calm = self.state == State::Established
            && self.send.fin == NOWHERE
            && !self.is_orphan()
            // What ends a doubt is news for the lane.
            && !self.doubts_way()
            && !self.ecn.is_on()
            && !self.receive.holds_ahead();
        if !is_plain || !is_calm || seg.seq() != self.receive.space.seq(self.receive.nxt) {
            return None;
        }
        let stamps = match (self.stamps.is_on(), seg.option_bytes()) {
            (true, _) => Some(seg.lone_timestamps().filter(|&(value, _)| !self.stamps.is_old(now, value))?),
            (false, []) => None,
            (false, _) => return None,
        };
        let (una, nxt) = (self.flight.una(), self.flight.nxt());
        let ack = self.send.space.cursor(seg.ack_field(), nxt);
        (ack >= una as i64 && ack <= nxt as i64).then_some(Plain { ack: ack as u64, stamps })
    }
}
