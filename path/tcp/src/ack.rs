//! What an acknowledgment does (RFC 9293 §3.10.7.4 step 5 with RFC 5961 §5.2).
//!
//! Decides whether the number may be believed, hands it to `flight.rs` (loss detection, round-trip time,
//! congestion control), releases the send ring, keeps the peer's window and notices that our FIN arrived.

use core::ops::Range;

use firelane_units::{DropReason, Instant, SeqNum};
use firelane_wire::TcpFlags;

use crate::connection::{Connection, Rings};
use crate::flight::AckIn;
use crate::reassembly::BLOCKS_MAX;
use crate::segment::{Disposition, Events, SegmentIn, Verdict};
use crate::state::{Event, State};

impl Connection {
    /// RFC 9293 §3.10.7.4 step 5.
    pub(crate) fn check_ack(
        &mut self,
        now: Instant,
        seg: &SegmentIn<'_>,
        rings: &mut Rings<'_>,
        out: &mut Disposition,
    ) -> Verdict {
        let Some(number) = seg.ack else {
            return Err(Disposition::drop(DropReason::Unacceptable));
        };
        if self.state == State::SynReceived {
            self.check_syn_acknowledged(now, seg, number, rings, out)?;
        }
        let Some(ack) = self.credible(number) else {
            return Err(self.challenge(now, DropReason::Unacceptable));
        };
        if ack >= self.flight.una() {
            self.take_ack(now, ack, seg, rings, out);
        }
        if self.state == State::Closed { Err(core::mem::take(out)) } else { Ok(()) }
    }

    /// The send cursor of an acknowledgment; `None` if it is a guess (RFC 5961 §5.2: not SND.UNA - MAX.SND.WND <= SEG.ACK <=
    /// SND.NXT). So is a number before our first octet, which the window of a young connection would let pass: nothing
    /// was ever sent there, so nobody who got it acknowledges it. Linux has it so, too.
    pub(crate) fn credible(&self, number: SeqNum) -> Option<u64> {
        let (una, nxt) = (self.flight.una(), self.flight.nxt());
        let oldest = una.saturating_sub(self.send.max_window.into());
        let ack = u64::try_from(self.send.space.cursor(number, nxt)).ok()?;
        (oldest..=nxt).contains(&ack).then_some(ack)
    }

    /// An acknowledgment between SND.UNA and SND.NXT.
    pub(crate) fn take_ack(
        &mut self,
        now: Instant,
        ack: u64,
        seg: &SegmentIn<'_>,
        rings: &mut Rings<'_>,
        out: &mut Disposition,
    ) {
        let una = self.flight.una();
        let window = u32::from(seg.window) << self.send.scale;
        let duplicate = ack == una && seg.is_empty() && window == self.send.window;
        let is_out = !self.flight.is_empty();
        // That something came twice is most often reported when all has arrived (RFC 2883 §4, RFC 8985 §7.4.2).
        let reports = duplicate || !seg.options.sack.as_slice().is_empty();
        if is_out || (reports && self.flight.may_hear_of_copies()) {
            let (sack, blocks) = self.sack_cursors(seg);
            let ack_in = AckIn {
                ack,
                sack: &sack[..blocks],
                echoed: self.stamps.echoed(now, seg.options.timestamps),
                duplicate,
                // What says nothing of what is out is no measure for a reduction.
                congested: is_out && seg.has(TcpFlags::ECE) && self.ecn.is_on(),
            };
            let digested = self.flight.take_ack(now, &ack_in);
            self.count_ack(&digested, ack_in.congested);
        }
        self.send.update_window(seg.seq, ack, window);
        if ack > una {
            out.events |= self.take_progress(now, una, ack, rings);
            if ack > self.send.fin {
                self.enter(now, Event::FinAcknowledged, out);
            }
        }
    }

    /// SND.UNA moved: the ring gives its bytes up.
    #[inline]
    pub(crate) fn take_progress(
        &mut self,
        now: Instant,
        una: u64,
        ack: u64,
        rings: &mut Rings<'_>,
    ) -> Events {
        self.progress_at = now;
        self.is_unreachable = false;
        self.send.persist_backoff = 0;
        self.note_answer(now);
        let most = self.route_mss();
        if self.options.mtu_search_mut().is_some_and(|search| search.on_progress(now, ack, most)) {
            self.follow_path();
        }
        let text_end = ack.min(self.send.fin);
        let has_room = text_end > una;
        if has_room {
            rings.send.release((text_end - una) as usize);
        }
        self.note_acknowledged(now, rings);
        if has_room { Events::WRITABLE } else { Events::NONE }
    }

    /// The SACK blocks of a segment as send cursors. Blocks that begin before the stream are left out; the
    /// scoreboard judges the others (RFC 2018 §4, RFC 2883).
    #[inline]
    fn sack_cursors(&self, seg: &SegmentIn<'_>) -> ([Range<u64>; BLOCKS_MAX], usize) {
        let mut sack = [const { 0..0 }; BLOCKS_MAX];
        let mut count = 0;
        if !self.send.sack {
            return (sack, 0);
        }
        let near = self.flight.nxt();
        for &(left, right) in seg.options.sack.as_slice() {
            let left = self.send.space.cursor(left, near);
            let right = self.send.space.cursor(right, near);
            if left >= 0 && left < right && count < BLOCKS_MAX {
                sack[count] = left as u64..right as u64;
                count += 1;
            }
        }
        (sack, count)
    }
}
