//! The list of sent ranges beside the send ring: when each left, how often, and what became of it.
//!
//! Owns the scoreboard of RFC 2018 and RFC 6675, and the per-transmission facts that RACK (RFC 8985) and
//! delivery-rate sampling need. The bytes stay in the send ring; a range is two cursors of it. Ranges are
//! sorted, adjacent and cover exactly `una..nxt`. Called by `recovery` only: it decides what is lost, this
//! file keeps the books.
//!
//! The work per ACK is bounded whatever the peer sends: neighbours that were selectively acknowledged become
//! one range, and [`RANGES_MAX`] limits into how many pieces a peer can cut the list (CVE-2019-11477 and
//! -11478).

mod range;
#[cfg(test)]
mod tests;

use core::ops::Range;
use std::collections::VecDeque;

use firelane_units::{Bytes, Instant, Mss};

use crate::rate::Snapshot;

pub use range::{Judgement, LOSS_SHARE, LossNote, Mark, SentRange};

/// How many pieces SACK blocks and small writes can cut the list into; 4096 of them take 256 KiB. Beyond it a
/// block that begins or ends inside a range is ignored for that range (SACK is advisory, RFC 2018 §8), and
/// new data are counted with the last range. Retransmissions may still split: at most once per segment.
pub const RANGES_MAX: usize = 4096;

/// Places that storage keeps which is used again: requests and answers need one.
const RANGES_KEPT: usize = 4;

/// All sent and not cumulatively acknowledged ranges of a connection.
#[derive(Debug)]
pub struct SentRanges {
    ranges: VecDeque<SentRange>,
    una: u64,
    nxt: u64,
    sacked: u64,
    lost: u64,
    /// Bytes under way that were sent more than once.
    resent: u64,
    sacked_segments: u32,
    /// No lost range begins before this cursor.
    lost_from: u64,
    /// Bytes ever found lost.
    lost_ever: u64,
    note: Option<LossNote>,
}

impl SentRanges {
    /// Nothing sent beyond `cursor`; allocates nothing.
    pub const fn new(cursor: u64) -> Self {
        Self {
            ranges: VecDeque::new(),
            una: cursor,
            nxt: cursor,
            sacked: 0,
            lost: 0,
            resent: 0,
            sacked_segments: 0,
            lost_from: cursor,
            lost_ever: 0,
            note: None,
        }
    }

    /// The same with the storage of this, which ends, unless that has become large.
    pub(crate) fn renewed(&mut self, cursor: u64) -> Self {
        let mut ranges = core::mem::take(&mut self.ranges);
        ranges.clear();
        ranges.shrink_to(RANGES_KEPT);
        Self { ranges, ..Self::new(cursor) }
    }

    /// The first cursor that is not cumulatively acknowledged.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// The cursor after the last one sent.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Whether nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.una == self.nxt
    }

    /// Bytes sent and not cumulatively acknowledged (RFC 5681's FlightSize).
    pub fn outstanding(&self) -> Bytes {
        Bytes(self.nxt - self.una)
    }

    /// Bytes selectively acknowledged.
    pub fn sacked(&self) -> Bytes {
        Bytes(self.sacked)
    }

    /// Bytes lost and not sent again yet.
    pub fn lost(&self) -> Bytes {
        Bytes(self.lost)
    }

    /// Bytes believed to be under way: neither acknowledged in any way nor lost (RFC 6675's pipe).
    pub fn in_flight(&self) -> Bytes {
        Bytes(self.nxt - self.una - self.sacked - self.lost)
    }

    /// Bytes under way that were sent more than once (Linux' `retrans_out`).
    pub fn resent_in_flight(&self) -> Bytes {
        Bytes(self.resent)
    }

    /// How many segments are selectively acknowledged.
    pub fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = &SentRange> {
        self.ranges.iter()
    }

    /// The first range.
    pub fn front(&self) -> Option<&SentRange> {
        self.ranges.front()
    }

    /// The last range.
    pub fn back(&self) -> Option<&SentRange> {
        self.ranges.back()
    }

    /// A segment left: `range` begins at [`SentRanges::nxt`], or lies wholly below it and is a
    /// retransmission.
    pub fn on_sent(&mut self, now: Instant, range: Range<u64>, snapshot: Snapshot) {
        debug_assert!(range.start < range.end && range.start >= self.una, "only outstanding data are sent");
        if range.start >= self.nxt {
            let lost_before = self.lost_ever as u32;
            self.push(SentRange { lost_before, ..SentRange::first(range, now, snapshot) });
            return;
        }
        debug_assert!(range.end <= self.nxt, "a retransmission carries no new data");
        let first = self.split_at(range.start);
        let after = self.split_at(range.end);
        for index in first..after {
            let sent = &mut self.ranges[index];
            let len = sent.end - sent.start;
            match sent.mark {
                Mark::Lost => self.lost -= len,
                Mark::InFlight if sent.is_retransmitted() => self.resent -= len,
                Mark::InFlight => {}
                // The peer has it and told us so: sending it again changes nothing in the books.
                Mark::Sacked => continue,
            }
            self.resent += len;
            sent.mark = Mark::InFlight;
            sent.sent_at = now;
            sent.snapshot = snapshot;
            sent.lost_before = self.lost_ever as u32;
            sent.transmissions = sent.transmissions.saturating_add(1);
        }
        if range.start <= self.lost_from {
            self.lost_from = self.lost_from.max(range.end);
        }
        self.join(after);
        self.join(first);
    }

    /// The same of new data while nothing is outstanding.
    #[inline]
    pub fn push_lone(&mut self, now: Instant, range: Range<u64>, snapshot: Snapshot) {
        debug_assert!(self.is_empty() && range.start == self.nxt, "nothing is out, and new data follow");
        self.nxt = range.end;
        let lost_before = self.lost_ever as u32;
        self.ranges.push_back(SentRange { lost_before, ..SentRange::first(range, now, snapshot) });
    }

    fn push(&mut self, range: SentRange) {
        debug_assert_eq!(range.start, self.nxt, "new data follow what was sent");
        self.nxt = range.end;
        let full = self.ranges.len() >= RANGES_MAX;
        if let Some(last) = self.ranges.back_mut() {
            let crowded = full && last.mark == Mark::InFlight;
            if last.shares_fate(&range) || crowded {
                last.end = range.end;
                // The later instant for both: the older bytes are then declared lost too late, never too
                // early.
                last.sent_at = range.sent_at;
                last.snapshot = range.snapshot;
                // They count with it, also as sent more than once.
                if last.is_retransmitted() {
                    self.resent += range.end - range.start;
                }
                return;
            }
        }
        self.ranges.push_back(range);
    }

    /// The peer acknowledged everything before `ack`. Calls `each` for every piece that it had not
    /// acknowledged selectively before, in order, with the mark it had.
    pub fn on_cumulative_ack(&mut self, ack: u64, mut each: impl FnMut(&SentRange)) -> Bytes {
        let ack = ack.clamp(self.una, self.nxt);
        let acked = Bytes(ack - self.una);
        while let Some(&front) = self.ranges.front() {
            if front.start >= ack {
                break;
            }
            let piece = SentRange { end: front.end.min(ack), ..front };
            match piece.mark {
                Mark::Sacked => self.sacked -= piece.len().0,
                Mark::Lost => self.lost -= piece.len().0,
                Mark::InFlight if piece.is_retransmitted() => self.resent -= piece.len().0,
                Mark::InFlight => {}
            }
            if piece.mark != Mark::Sacked {
                each(&piece);
            }
            if front.end > ack {
                self.ranges[0].start = ack;
                break;
            }
            self.sacked_segments -= u32::from(front.segments);
            self.ranges.pop_front();
        }
        self.una = ack;
        self.lost_from = self.lost_from.max(ack);
        acked
    }

    /// Takes out the only range, if there is but one and it left once: the peer acknowledged all of it.
    #[inline]
    pub fn take_lone(&mut self) -> Option<SentRange> {
        let lone = *self.ranges.front()?;
        if self.ranges.len() != 1 || lone.mark != Mark::InFlight || lone.is_retransmitted() {
            return None;
        }
        // The list begins again at the front of its storage, which is in the cache.
        self.ranges.clear();
        self.una = self.nxt;
        self.lost_from = self.lost_from.max(self.nxt);
        Some(lone)
    }

    /// The peer selectively acknowledged `block`, which lies within `una..nxt`. Calls `each` for every piece
    /// that is new, in order, with the mark it had.
    pub fn on_sack_block(&mut self, block: &Range<u64>, mss: Mss, mut each: impl FnMut(&SentRange)) {
        debug_assert!(self.is_valid_block(block), "the caller checks blocks");
        let mut at = block.start;
        while at < block.end {
            let index = self.index_of(at);
            let range = self.ranges[index];
            if range.mark == Mark::Sacked {
                at = range.end;
                continue;
            }
            let end = range.end.min(block.end);
            let cuts = usize::from(range.start < at) + usize::from(end < range.end);
            if cuts > 0 && self.ranges.len() + cuts > RANGES_MAX {
                at = range.end;
                continue;
            }
            let index = self.split_at(at);
            self.split_at(end);
            self.sack_one(index, mss, &mut each);
            at = end;
        }
    }

    /// Marks one whole range as sacked and joins it with sacked neighbours.
    fn sack_one(&mut self, index: usize, mss: Mss, each: &mut impl FnMut(&SentRange)) {
        let range = &mut self.ranges[index];
        each(range);
        let len = range.end - range.start;
        match range.mark {
            Mark::Lost => self.lost -= len,
            Mark::InFlight if range.is_retransmitted() => self.resent -= len,
            Mark::InFlight | Mark::Sacked => {}
        }
        range.mark = Mark::Sacked;
        range.segments = u16::try_from(len.div_ceil(u64::from(mss.bytes()))).unwrap_or(u16::MAX);
        self.sacked += len;
        self.sacked_segments += u32::from(range.segments);
        self.join_sacked(index + 1);
        self.join_sacked(index);
    }

    /// Whether a SACK block names outstanding data and nothing else (RFC 2018 §3; also refuses blocks of
    /// data that were never sent).
    pub fn is_valid_block(&self, block: &Range<u64>) -> bool {
        block.start < block.end && block.start >= self.una && block.end <= self.nxt
    }

    /// The first lost range.
    pub fn first_lost(&self) -> Option<Range<u64>> {
        if self.lost == 0 {
            return None;
        }
        let from = self.index_of(self.lost_from);
        let lost = self.ranges.range(from..).find(|range| range.mark == Mark::Lost)?;
        Some(lost.start..lost.end)
    }

    /// Bytes ever found lost.
    pub fn lost_ever(&self) -> u64 {
        self.lost_ever
    }

    /// What was found lost since the last question: the first range with which losses exceeded [`LOSS_SHARE`], or the
    /// last one if none did.
    pub fn take_note(&mut self) -> Option<LossNote> {
        self.note.take()
    }

    /// Looks at each range under way, in order; says how many bytes were judged lost.
    pub fn judge(&mut self, mut judge: impl FnMut(&SentRange) -> Judgement) -> Bytes {
        let before = self.lost;
        for range in &mut self.ranges {
            if range.mark != Mark::InFlight {
                continue;
            }
            match judge(range) {
                Judgement::Keep => {}
                Judgement::Lost => {
                    range.mark = Mark::Lost;
                    let len = range.end - range.start;
                    self.lost += len;
                    self.lost_ever += len;
                    if self.note.is_none_or(|note| !note.exceeds(LOSS_SHARE)) {
                        self.note = Some(LossNote::of(range, self.lost_ever));
                    }
                    if range.is_retransmitted() {
                        self.resent -= range.end - range.start;
                    }
                    self.lost_from = self.lost_from.min(range.start);
                }
                Judgement::Stop => break,
            }
        }
        Bytes(self.lost - before)
    }

    /// Marks the first `len` bytes lost, if they are under way: what duplicate acknowledgements without SACK
    /// say (RFC 6582). Says how many bytes that were.
    pub fn mark_front_lost(&mut self, len: Bytes) -> Bytes {
        let end = (self.una + len.0).min(self.nxt);
        self.split_at(end);
        self.judge(|range| if range.start >= end { Judgement::Stop } else { Judgement::Lost })
    }

    /// Takes every "lost" back: nothing was.
    pub fn unmark_lost(&mut self) {
        for range in &mut self.ranges {
            if range.mark == Mark::Lost {
                range.mark = Mark::InFlight;
                if range.is_retransmitted() {
                    self.resent += range.end - range.start;
                }
            }
        }
        self.lost = 0;
    }

    /// The peer forgot what it had acknowledged selectively (RFC 2018 §8): all of it counts as lost.
    pub fn on_reneged(&mut self) {
        for range in &mut self.ranges {
            if range.mark == Mark::Sacked {
                range.mark = Mark::Lost;
                range.segments = 0;
                self.lost += range.end - range.start;
            }
        }
        self.lost_from = self.una;
        self.sacked = 0;
        self.sacked_segments = 0;
    }

    /// Whether the front range is sacked, which only a peer that reneged leaves so for long.
    pub fn front_is_sacked(&self) -> bool {
        self.ranges.front().is_some_and(|front| front.mark == Mark::Sacked)
    }

    /// Gives memory back.
    pub fn shrink(&mut self) {
        self.ranges.shrink_to_fit();
    }

    /// The index of the range that contains `cursor`, or the number of ranges.
    fn index_of(&self, cursor: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= cursor)
    }

    /// Makes `cursor` a boundary; gives the index of the range that begins there.
    fn split_at(&mut self, cursor: u64) -> usize {
        let index = self.index_of(cursor);
        let Some(range) = self.ranges.get_mut(index) else { return index };
        if range.start >= cursor {
            return index;
        }
        // A sacked range is never split: its books are kept as a whole.
        if range.mark == Mark::Sacked {
            return index;
        }
        let tail = SentRange { start: cursor, ..*range };
        range.end = cursor;
        self.ranges.insert(index + 1, tail);
        index + 1
    }

    /// Joins the range at `index` to the one before if they share their fate.
    fn join(&mut self, index: usize) {
        if index == 0 || index >= self.ranges.len() {
            return;
        }
        if self.ranges[index - 1].shares_fate(&self.ranges[index]) {
            self.ranges[index - 1].end = self.ranges[index].end;
            self.ranges.remove(index);
        }
    }

    /// Joins the range at `index` to the one before if both are sacked.
    fn join_sacked(&mut self, index: usize) {
        if index == 0 || index >= self.ranges.len() {
            return;
        }
        let (before, here) = (self.ranges[index - 1], self.ranges[index]);
        if before.mark != Mark::Sacked || here.mark != Mark::Sacked {
            return;
        }
        let joined = &mut self.ranges[index - 1];
        joined.end = here.end;
        joined.sent_at = before.sent_at.max(here.sent_at);
        joined.transmissions = before.transmissions.max(here.transmissions);
        joined.segments = before.segments.saturating_add(here.segments);
        self.sacked_segments -= u32::from(before.segments) + u32::from(here.segments);
        self.sacked_segments += u32::from(joined.segments);
        self.ranges.remove(index);
    }
}
