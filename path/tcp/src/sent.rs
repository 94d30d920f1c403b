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

use core::ops::Range;
use std::collections::VecDeque;

use firelane_units::{Bytes, Instant, Mss};

use crate::rate::Snapshot;

/// How many pieces SACK blocks and small writes can cut the list into; 4096 of them take 256 KiB. Beyond it a
/// block that begins or ends inside a range is ignored for that range (SACK is advisory, RFC 2018 §8), and
/// new data are counted with the last range. Retransmissions may still split: at most once per segment.
pub const RANGES_MAX: usize = 4096;

/// What is known of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Under way, as far as we know.
    InFlight,
    /// Selectively acknowledged.
    Sacked,
    /// Lost, and waiting to be sent again.
    Lost,
}

/// Consecutive bytes that share a fate: the same last transmission and the same mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentRange {
    /// The first cursor.
    pub start: u64,
    /// The cursor after the last.
    pub end: u64,
    /// When it was last sent.
    pub sent_at: Instant,
    /// The rate sampler's state when it was last sent.
    pub snapshot: Snapshot,
    /// The count of lost bytes then, modulo 2^32.
    pub lost_before: u32,
    /// How often it was sent.
    pub transmissions: u8,
    /// What is known of it.
    pub mark: Mark,
    /// How many segments a sacked range stands for.
    segments: u16,
}

impl SentRange {
    /// A range sent for the first time.
    pub fn first(range: Range<u64>, sent_at: Instant, snapshot: Snapshot) -> Self {
        Self {
            start: range.start,
            end: range.end,
            sent_at,
            snapshot,
            lost_before: 0,
            transmissions: 1,
            mark: Mark::InFlight,
            segments: 0,
        }
    }

    /// How many cursors it covers.
    pub fn len(&self) -> Bytes {
        Bytes(self.end - self.start)
    }

    /// A range covers at least one cursor.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether it was sent more than once, so that an acknowledgement does not tell which copy arrived.
    pub fn is_retransmitted(&self) -> bool {
        self.transmissions > 1
    }

    /// Whether the two differ only in their place.
    fn shares_fate(&self, next: &Self) -> bool {
        self.end == next.start
            && self.mark == Mark::InFlight
            && next.mark == Mark::InFlight
            && self.sent_at == next.sent_at
            && self.transmissions == next.transmissions
            && self.lost_before == next.lost_before
            && self.snapshot.shares_round(&next.snapshot)
    }
}

/// What to do with a range that loss detection looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Leave it.
    Keep,
    /// It is lost.
    Lost,
    /// Leave it and all later ones.
    Stop,
}

/// A range that was found lost: how much was, of what was in flight with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossNote {
    /// Its bytes.
    pub len: u64,
    /// What was in flight once it had left.
    pub in_flight: u64,
    /// What was found lost since then, itself included.
    pub lost: u64,
    /// Whether the program was the limit when it left.
    pub app_limited: bool,
}

impl LossNote {
    /// The note of `range`, after which `lost` bytes were ever lost.
    fn of(range: &SentRange, lost: u64) -> Self {
        Self {
            len: range.len().0,
            in_flight: range.snapshot.in_flight.into(),
            lost: (lost as u32).wrapping_sub(range.lost_before).into(),
            app_limited: range.snapshot.app_limited,
        }
    }

    /// Whether more than one byte in `share` was lost.
    pub fn exceeds(&self, share: u64) -> bool {
        self.lost.saturating_mul(share) > self.in_flight
    }
}

/// More than one byte in so many is more than chance: BBR's line (draft-ietf-ccwg-bbr §2.5, LossThresh).
pub const LOSS_SHARE: u64 = 50;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: Mss = Mss::clamped(100);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// The slow reference: one entry per byte.
    #[derive(Default)]
    struct Model {
        una: usize,
        bytes: Vec<(Mark, Instant, u8)>,
    }

    impl Model {
        fn send(&mut self, now: Instant, range: Range<u64>) {
            for cursor in range.start as usize..range.end as usize {
                match self.bytes.get_mut(cursor) {
                    None => self.bytes.push((Mark::InFlight, now, 1)),
                    Some(byte) if byte.0 == Mark::Sacked => {}
                    Some(byte) => *byte = (Mark::InFlight, now, byte.2.saturating_add(1)),
                }
            }
        }

        fn count(&self, mark: Mark) -> u64 {
            self.bytes[self.una..].iter().filter(|byte| byte.0 == mark).count() as u64
        }

        fn first_lost(&self) -> Option<u64> {
            let lost = self.bytes[self.una..].iter().position(|byte| byte.0 == Mark::Lost)?;
            Some((self.una + lost) as u64)
        }

        fn outstanding(&mut self) -> &mut [(Mark, Instant, u8)] {
            &mut self.bytes[self.una..]
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(u64),
        Resend(u64, u64),
        ResendLost(u64),
        Ack(u64),
        Sack(u64, u64),
        LoseBefore(u64),
        LoseFront(u64),
        Unmark,
        Renege,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (1u64..400).prop_map(Step::Send),
            1 => (0u64..2_000, 1u64..300).prop_map(|(from, len)| Step::Resend(from, len)),
            4 => (1u64..300).prop_map(Step::ResendLost),
            3 => (0u64..600).prop_map(Step::Ack),
            6 => (0u64..2_000, 1u64..500).prop_map(|(from, len)| Step::Sack(from, len)),
            2 => (0u64..60).prop_map(Step::LoseBefore),
            1 => (1u64..300).prop_map(Step::LoseFront),
            1 => Just(Step::Unmark),
            1 => Just(Step::Renege),
        ];
        prop::collection::vec(step, 1..80)
    }

    fn resend(sent: &mut SentRanges, model: &mut Model, now: Instant, range: Range<u64>) {
        let range = range.start.min(sent.nxt())..range.end.min(sent.nxt());
        if range.start < range.end {
            sent.on_sent(now, range.clone(), Snapshot::default());
            model.send(now, range);
        }
    }

    fn acknowledge(sent: &mut SentRanges, model: &mut Model, ack: u64) {
        let mut delivered = 0;
        sent.on_cumulative_ack(ack, |piece| {
            for cursor in piece.start..piece.end {
                assert_eq!(model.bytes[cursor as usize].0, piece.mark);
            }
            assert_ne!(piece.mark, Mark::Sacked, "delivered twice");
            delivered += piece.len().0;
        });
        let ack = (ack as usize).max(model.una);
        let fresh = model.bytes[model.una..ack].iter().filter(|byte| byte.0 != Mark::Sacked);
        assert_eq!(delivered, fresh.count() as u64);
        model.una = ack;
    }

    fn sack(sent: &mut SentRanges, model: &mut Model, block: Range<u64>) {
        let is_valid = block.start >= model.una as u64 && block.end <= model.bytes.len() as u64;
        assert_eq!(sent.is_valid_block(&block), is_valid);
        if !is_valid {
            return;
        }
        let mut at = block.start;
        sent.on_sack_block(&block, MSS, |piece| {
            assert!(piece.start >= at, "pieces come in order");
            at = piece.end;
            for cursor in piece.start..piece.end {
                let byte = &mut model.bytes[cursor as usize];
                assert_eq!(byte.0, piece.mark);
                assert_ne!(byte.0, Mark::Sacked, "delivered twice");
                assert_eq!((byte.1, byte.2), (piece.sent_at, piece.transmissions));
                byte.0 = Mark::Sacked;
            }
        });
        let range = block.start as usize..block.end as usize;
        assert!(model.bytes[range].iter().all(|byte| byte.0 == Mark::Sacked));
    }

    fn take(sent: &mut SentRanges, model: &mut Model, now: Instant, step: &Step) {
        let una = sent.una();
        match *step {
            Step::Send(len) => {
                let range = sent.nxt()..sent.nxt() + len;
                sent.on_sent(now, range.clone(), Snapshot::default());
                model.send(now, range);
            }
            Step::Resend(from, len) => resend(sent, model, now, una + from..una + from + len),
            Step::ResendLost(limit) => {
                let lost = sent.first_lost();
                assert_eq!(lost.as_ref().map(|range| range.start), model.first_lost());
                if let Some(lost) = lost {
                    resend(sent, model, now, lost.start..lost.end.min(lost.start + limit));
                }
            }
            Step::Ack(len) => acknowledge(sent, model, (una + len).min(sent.nxt())),
            Step::Sack(from, len) => sack(sent, model, una + from..una + from + len),
            Step::LoseBefore(ago) => {
                let limit = now - core::time::Duration::from_millis(ago);
                let judge = |at: Instant| at <= limit;
                sent.judge(|range| if judge(range.sent_at) { Judgement::Lost } else { Judgement::Keep });
                for byte in model.outstanding() {
                    if byte.0 == Mark::InFlight && judge(byte.1) {
                        byte.0 = Mark::Lost;
                    }
                }
            }
            Step::LoseFront(len) => {
                sent.mark_front_lost(Bytes(len));
                for byte in model.outstanding().iter_mut().take(len as usize) {
                    if byte.0 == Mark::InFlight {
                        byte.0 = Mark::Lost;
                    }
                }
            }
            Step::Unmark => {
                sent.unmark_lost();
                model.outstanding().iter_mut().for_each(|byte| {
                    if byte.0 == Mark::Lost {
                        byte.0 = Mark::InFlight;
                    }
                });
            }
            Step::Renege => {
                sent.on_reneged();
                model.outstanding().iter_mut().for_each(|byte| {
                    if byte.0 == Mark::Sacked {
                        // The range remembers its newest transmission only.
                        *byte = (Mark::Lost, Instant::FAR_FUTURE, 0);
                    }
                });
            }
        }
    }

    /// The list covers `una..nxt` without gap or overlap, and says of each byte what the model says.
    fn compare(sent: &SentRanges, model: &mut Model) {
        let mut cursor = sent.una();
        let mut last_sacked = false;
        for range in sent.iter() {
            assert_eq!(range.start, cursor);
            assert!(range.start < range.end);
            for byte in &mut model.bytes[range.start as usize..range.end as usize] {
                assert_eq!(byte.0, range.mark);
                if byte.1 == Instant::FAR_FUTURE {
                    (byte.1, byte.2) = (range.sent_at, range.transmissions);
                }
                if range.mark != Mark::Sacked {
                    assert_eq!((byte.1, byte.2), (range.sent_at, range.transmissions));
                }
            }
            let sacked = range.mark == Mark::Sacked;
            assert!(!(sacked && last_sacked), "sacked neighbours are one range");
            last_sacked = sacked;
            cursor = range.end;
        }
        assert_eq!(cursor, sent.nxt());
        assert_eq!(sent.nxt(), model.bytes.len() as u64);
        assert_eq!(sent.in_flight(), Bytes(model.count(Mark::InFlight)));
        assert_eq!(sent.sacked(), Bytes(model.count(Mark::Sacked)));
        assert_eq!(sent.lost(), Bytes(model.count(Mark::Lost)));
        let resent = model.outstanding().iter().filter(|byte| byte.0 == Mark::InFlight && byte.2 > 1).count();
        assert_eq!(sent.resent_in_flight(), Bytes(resent as u64));
        assert_eq!(sent.sacked_segments() == 0, sent.sacked() == Bytes::ZERO);
        let front = model.bytes.get(model.una).is_some_and(|byte| byte.0 == Mark::Sacked);
        assert_eq!(sent.front_is_sacked(), front);
    }

    proptest! {
        #[test]
        fn agrees_with_a_model_of_single_bytes(steps in steps()) {
            let mut sent = SentRanges::new(0);
            let mut model = Model::default();
            for (n, step) in steps.iter().enumerate() {
                // Two steps per instant, so that ranges of one burst join.
                take(&mut sent, &mut model, at(1_000 + n as u64 / 2 * 10), step);
                compare(&sent, &mut model);
            }
        }
    }

    #[test]
    fn bursts_are_one_range_and_later_data_another() {
        let mut sent = SentRanges::new(0);
        for n in 0..10 {
            sent.on_sent(at(1), n * 100..(n + 1) * 100, Snapshot::default());
        }
        sent.on_sent(at(2), 1_000..1_100, Snapshot::default());
        let ranges: Vec<_> = sent.iter().map(|range| range.start..range.end).collect();
        assert_eq!(ranges, [0..1_000, 1_000..1_100]);
    }

    #[test]
    fn blocks_that_name_other_than_outstanding_data_are_invalid() {
        // T04: start >= end, beyond what was sent, below the acknowledgement.
        let mut sent = SentRanges::new(0);
        sent.on_sent(at(1), 0..1_000, Snapshot::default());
        sent.on_cumulative_ack(200, |_| {});
        for (block, valid) in [
            (200..1_000, true),
            (999..1_000, true),
            (300..300, false),
            (199..300, false),
            (500..1_001, false),
            (1_000..1_100, false),
            (0..u64::MAX, false),
        ] {
            assert_eq!(sent.is_valid_block(&block), valid, "{block:?}");
        }
        let backwards = Range { start: 400, end: 300 };
        assert!(!sent.is_valid_block(&backwards));
    }

    #[test]
    fn a_peer_cannot_cut_the_list_into_more_than_the_limit() {
        // R06: every other byte of a large window, then all the rest.
        let mut sent = SentRanges::new(0);
        sent.on_sent(at(1), 0..100_000, Snapshot::default());
        for n in 0..40_000 {
            sent.on_sack_block(&(2 * n + 1..2 * n + 2), MSS, |_| {});
            if n % 1_000 == 0 {
                assert!(sent.iter().count() <= RANGES_MAX);
            }
        }
        let sacked = sent.sacked().0;
        assert!(sacked < 40_000, "blocks that would cut more are ignored");
        assert_eq!(sent.in_flight().0, 100_000 - sacked);
        sent.on_sack_block(&(1..100_000), MSS, |_| {});
        assert_eq!(sent.sacked(), Bytes(99_999));
        assert_eq!(sent.iter().count(), 2);
        sent.on_cumulative_ack(100_000, |_| {});
        assert!(sent.is_empty() && sent.iter().count() == 0);
    }

    #[test]
    fn new_data_join_the_last_range_when_the_list_is_full() {
        let mut sent = SentRanges::new(0);
        for n in 0..2 * RANGES_MAX as u64 {
            sent.on_sent(at(n), n..n + 1, Snapshot::default());
        }
        assert_eq!(sent.iter().count(), RANGES_MAX);
        assert_eq!(sent.outstanding(), Bytes(2 * RANGES_MAX as u64));
    }

    #[test]
    fn three_segments_in_one_block_count_as_three() {
        let mut sent = SentRanges::new(0);
        sent.on_sent(at(1), 0..1_000, Snapshot::default());
        sent.on_sack_block(&(100..250), MSS, |_| {});
        assert_eq!(sent.sacked_segments(), 2);
        sent.on_sack_block(&(100..300), MSS, |_| {});
        assert_eq!(sent.sacked_segments(), 3);
        sent.on_cumulative_ack(300, |_| {});
        assert_eq!(sent.sacked_segments(), 0);
    }

    #[test]
    fn a_range_fits_a_cache_line() {
        assert!(core::mem::size_of::<SentRange>() <= 64);
    }
}
