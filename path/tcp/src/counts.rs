//! What a connection counts, ever: segments of both directions, and what was unusual about them.
//!
//! Called by the steps that see a segment (`connection`, `receive`, `ack`, `send`); `info` shows the counts. A large
//! segment counts as the pieces that it is on the wire. The counters are 32 bits wide and wrap, as those of Linux'
//! `tcp_info` do: a connection is small, and whoever watches one takes differences.

use firelane_units::{Bytes, Instant};
use firelane_wire::Ecn;

use crate::connection::Connection;
use crate::flight::AckOut;
use crate::segment::SegmentOut;

/// The counts of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Segments that arrived.
    pub segments_in: u32,
    /// Segments that left.
    pub segments_out: u32,
    /// Of those that arrived, the ones with text.
    pub text_in: u32,
    /// Of those that left, the ones with text or FIN.
    pub text_out: u32,
    /// When text last arrived, in milliseconds; when the connection began, if none ever did.
    text_at: u32,
}

/// What only a connection has to count on whose path something was lost, doubled, could be marked or was moved, or whose peer had
/// no room: this exists from the first of it on, and most connections never pay for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Troubles {
    /// Text that was sent more than once.
    pub repeated_bytes: Bytes,
    /// Text that came ahead of its turn.
    pub unordered_bytes: Bytes,
    /// Text that arrived at the peer with or before an acknowledgement that echoed a congestion mark.
    pub marked_bytes: Bytes,
    /// Segments that left and had left before.
    pub repeated: u32,
    /// Of these the SYNs and SYN-ACKs, which are not counted as text when they first leave.
    pub repeated_syns: u32,
    /// Duplicates that the peer reported (RFC 2883).
    pub duplicates: u32,
    /// Segments that came ahead of their turn.
    pub unordered: u32,
    /// Times that the peer was seen to receive out of order.
    pub reorderings: u32,
    /// Retransmission time-outs.
    pub timeouts: u32,
    /// Time-outs of segments and SYNs, each of which asks for another way.
    pub other_ways: u32,
    /// How many times they began: the peer had acknowledged something new since the one before, or there was none.
    pub silences: u32,
    /// Milliseconds from the first of them to what the peer acknowledged then, all together.
    silent: u32,
    /// When the present ones began, in milliseconds.
    silent_since: Option<u32>,
    /// Segments with text that arrived marked, where both ends take part in ECN.
    pub marks_received: u32,
    /// The text of those that could be marked, and was not by ECT(1), by ECT(0), or was.
    pub ecn_bytes: [u32; 3],
    /// Milliseconds in which what was to be sent did not fit the peer's window (`busy.rs`).
    pub(crate) window_limited: u32,
}

impl Counts {
    /// The connection begins, or its handshake is over: no text was there to come before.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.text_in == 0 {
            self.text_at = now.millis() as u32;
        }
    }

    /// A segment arrived, with `len` bytes of text in pieces of at most `piece`.
    #[inline]
    pub(crate) fn on_received(&mut self, now: Instant, len: usize, piece: usize) {
        let pieces = if len <= piece { 1 } else { len.div_ceil(piece) as u32 };
        self.segments_in = self.segments_in.wrapping_add(pieces);
        if len > 0 {
            self.text_in = self.text_in.wrapping_add(pieces);
            self.text_at = now.millis() as u32;
        }
    }

    /// A segment leaves.
    #[inline]
    pub(crate) fn on_sent(&mut self, out: &SegmentOut) {
        let pieces = out.pieces() as u32;
        self.segments_out = self.segments_out.wrapping_add(pieces);
        if out.segment_bytes > 0 {
            self.text_out = self.text_out.wrapping_add(pieces);
        }
    }

    /// A segment with text leaves for the first time, in one piece.
    #[inline]
    pub(crate) fn on_small_sent(&mut self) {
        self.segments_out = self.segments_out.wrapping_add(1);
        self.text_out = self.text_out.wrapping_add(1);
    }

    /// Milliseconds since text last arrived, or since it could.
    pub(crate) fn since_text(&self, now: Instant) -> u32 {
        (now.millis() as u32).wrapping_sub(self.text_at)
    }
}

impl Troubles {
    /// A segment leaves again.
    pub(crate) fn on_repeated(&mut self, out: &SegmentOut) {
        self.repeated = self.repeated.wrapping_add(out.pieces() as u32);
    }

    /// A SYN is to leave again, without text.
    pub(crate) fn on_repeated_syn(&mut self) {
        self.repeated = self.repeated.wrapping_add(1);
        self.repeated_syns = self.repeated_syns.wrapping_add(1);
    }

    /// An acknowledgement was digested that told of something unusual.
    pub(crate) fn on_ack(&mut self, ack: &AckOut, congested: bool) {
        self.duplicates = self.duplicates.wrapping_add(ack.duplicate.into());
        self.reorderings = self.reorderings.wrapping_add(ack.reordered.into());
        if congested {
            self.marked_bytes += ack.delivered;
        }
    }

    /// Something was not answered in time.
    pub(crate) fn on_silence(&mut self, now: Instant) {
        self.other_ways = self.other_ways.wrapping_add(1);
        if self.silent_since.is_none() {
            self.silences = self.silences.wrapping_add(1);
            self.silent_since = Some(now.millis() as u32);
        }
    }

    /// The peer acknowledged something new.
    pub(crate) fn on_answer(&mut self, now: Instant) {
        if let Some(since) = self.silent_since.take() {
            self.silent = self.silent.wrapping_add((now.millis() as u32).wrapping_sub(since));
        }
    }

    /// Milliseconds of all silences, the present one too.
    pub(crate) fn silent(&self, now: Instant) -> u32 {
        let present = self.silent_since.map_or(0, |since| (now.millis() as u32).wrapping_sub(since));
        self.silent.wrapping_add(present)
    }

    /// Text arrived, in pieces of `segment` bytes, where both ends take part in ECN.
    pub(crate) fn on_ecn(&mut self, ecn: Ecn, len: usize, segment: u16) {
        let kind = match ecn {
            Ecn::NotCapable => return,
            Ecn::Capable1 => 0,
            Ecn::Capable0 => 1,
            Ecn::Congested => 2,
        };
        self.ecn_bytes[kind] = self.ecn_bytes[kind].wrapping_add(len as u32);
        if ecn == Ecn::Congested {
            let pieces = len.div_ceil(usize::from(segment).max(1));
            self.marks_received = self.marks_received.wrapping_add(pieces as u32);
        }
    }

    /// Text came ahead of its turn.
    pub(crate) fn on_unordered(&mut self, len: usize, piece: usize) {
        self.unordered = self.unordered.wrapping_add(len.div_ceil(piece.max(1)) as u32);
        self.unordered_bytes += Bytes(len as u64);
    }
}

impl Connection {
    /// Where the unusual is counted.
    #[cold]
    pub(crate) fn troubles(&mut self) -> &mut Troubles {
        self.troubles.get_or_insert_default()
    }

    /// The peer acknowledged something new: a silence is over.
    #[inline]
    pub(crate) fn note_answer(&mut self, now: Instant) {
        if let Some(troubles) = self.troubles.as_deref_mut() {
            troubles.on_answer(now);
        }
    }

    /// An acknowledgement was digested.
    #[inline]
    pub(crate) fn count_ack(&mut self, ack: &AckOut, congested: bool) {
        if ack.duplicate || ack.reordered || congested {
            self.troubles().on_ack(ack, congested);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::SeqNum;
    use firelane_wire::TcpFlags;

    #[test]
    fn a_large_segment_counts_as_its_pieces() {
        let mut counts = Counts::default();
        for (len, pieces) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (64_000, 64)] {
            let before = counts;
            counts.on_received(Instant::from_millis(7), len, 1_000);
            assert_eq!(counts.segments_in - before.segments_in, pieces, "{len}");
            assert_eq!(counts.text_in - before.text_in, if len > 0 { pieces } else { 0 });
        }
        assert_eq!(counts.since_text(Instant::from_millis(10)), 3);
        let mut out = SegmentOut::control(SeqNum(1), None, TcpFlags::ACK);
        counts.on_sent(&out);
        (out.payload, out.segment_bytes) = (0..2_500, 1_000);
        counts.on_sent(&out);
        assert_eq!((counts.segments_out, counts.text_out), (4, 3));
        let mut troubles = Troubles::default();
        troubles.on_repeated(&out);
        troubles.on_unordered(2_500, 1_000);
        assert_eq!((troubles.repeated, troubles.unordered, troubles.unordered_bytes.0), (3, 3, 2_500));
    }
}
