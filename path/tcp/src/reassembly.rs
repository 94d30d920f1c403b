//! RFC 2018, RFC 2883: what arrived ahead of its turn, and what the peer is told about it.
//!
//! Owns the set of receive-cursor ranges beyond the in-order point. The bytes themselves are already in the
//! receive ring (written ahead of its published cursor); this set says which. Called by `receive`: one
//! [`Reassembly::accept`] per segment with text, [`Reassembly::sack_blocks`] per ACK sent. The first copy
//! of a byte wins, so a peer cannot replace what it already sent, and the number of ranges is bounded by the text
//! in them, so a peer that sends every other byte pays for it and we do not (CVE-2018-5390), while one whose path
//! drops every other segment is told of all that has arrived.

use core::ops::Range;

/// How many separate ranges a connection holds, however little is in them: 1.5 KiB while they exist.
pub const RANGES_FREE: usize = 64;

/// How many it holds at most: what remains of 3 MB of which every other segment is lost. They cost 24 KiB, and to go through
/// them for an ACK costs a microsecond.
pub const RANGES_MAX: usize = 1024;

/// So much text pays for another range: the books are at most a quarter of the storage that it occupies anyway.
const BYTES_PER_RANGE: u64 = 4 * size_of::<Held>() as u64;

/// How many blocks fit a TCP header's options without timestamps.
pub const BLOCKS_MAX: usize = 4;

/// Ranges received ahead of the in-order cursor.
#[derive(Debug, Default)]
pub struct Reassembly {
    /// Sorted, disjoint and not adjacent.
    held: Vec<Held>,
    /// The duplicate to report in the next ACK; empty if there is none.
    duplicate: Range<u64>,
    /// Grows with each arrival; orders the blocks.
    arrivals: u32,
    /// How much text is in the ranges, which a window of 1 GiB limits.
    bytes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    start: u64,
    end: u64,
    /// The number of the last arrival that touched it.
    touched: u32,
}

impl Held {
    fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// What became of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// It moved the in-order cursor to `next`.
    InOrder {
        /// The in-order cursor after this segment and what it connected to.
        next: u64,
        /// Whether something had been waiting behind it (RFC 5681 §4.2: acknowledge at once).
        filled_hole: bool,
    },
    /// It lies ahead; acknowledge at once.
    Ahead,
    /// Every byte was there already; acknowledge at once.
    Duplicate,
    /// It lies ahead, and no more ranges may be held: nothing was taken, the peer sends it again.
    Full,
}

/// SACK blocks in receive cursors, in the order in which the option lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    blocks: [Range<u64>; BLOCKS_MAX],
    len: usize,
}

impl Blocks {
    /// The blocks.
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.blocks[..self.len]
    }

    fn push(&mut self, block: Range<u64>) {
        self.blocks[self.len] = block;
        self.len += 1;
    }
}

impl Reassembly {
    /// Nothing held; allocates nothing.
    pub const fn new() -> Self {
        Self { held: Vec::new(), duplicate: 0..0, arrivals: 0, bytes: 0 }
    }

    /// Whether nothing waits ahead of the in-order cursor.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the next ACK should carry a SACK option: something waits or a duplicate is to be reported.
    pub fn has_report(&self) -> bool {
        !self.held.is_empty() || !self.duplicate.is_empty()
    }

    /// How many blocks [`Self::sack_blocks`] would give.
    pub fn report_len(&self, limit: usize) -> usize {
        (self.held.len() + usize::from(!self.duplicate.is_empty())).min(limit.min(BLOCKS_MAX))
    }

    /// Bytes held ahead of the in-order cursor.
    pub fn held_bytes(&self) -> u64 {
        self.bytes.into()
    }

    /// Takes a segment that was cut to the receive window; `next` is the in-order cursor.
    ///
    /// Calls `write` for each part that was not there before, in order: those bytes and no others go to the
    /// ring.
    pub fn accept(&mut self, next: u64, segment: Range<u64>, mut write: impl FnMut(Range<u64>)) -> Accepted {
        debug_assert!(segment.start < segment.end, "a segment without text is not reassembled");
        debug_assert!(self.held.first().is_none_or(|first| first.start > next), "held ranges lie ahead");
        if segment.start <= next && self.held.is_empty() {
            return self.accept_simple(next, segment, write);
        }
        if segment.end <= next {
            self.duplicate = segment;
            return Accepted::Duplicate;
        }
        if segment.start < next {
            self.duplicate = segment.start..next;
        }
        let fresh = segment.start.max(next)..segment.end;
        // Ranges that overlap `fresh` or touch it become one with it.
        let first = self.held.partition_point(|held| held.end < fresh.start);
        let after = self.held.partition_point(|held| held.start <= fresh.end);
        if first == after && fresh.start > next && self.held.len() >= self.most_with(fresh.end - fresh.start)
        {
            return Accepted::Full;
        }
        let wrote = self.write_gaps(first..after, &fresh, &mut write);
        self.merge(next, first..after, fresh, wrote)
    }

    /// How many ranges may be held once `more` text is.
    fn most_with(&self, more: u64) -> usize {
        let paid = (self.held_bytes() + more) / BYTES_PER_RANGE;
        usize::try_from(paid).map_or(RANGES_MAX, |paid| (RANGES_FREE + paid).min(RANGES_MAX))
    }

    /// The common case: in order, and nothing waits.
    fn accept_simple(
        &mut self,
        next: u64,
        segment: Range<u64>,
        mut write: impl FnMut(Range<u64>),
    ) -> Accepted {
        if segment.start < next {
            self.duplicate = segment.start..segment.end.min(next);
            if segment.end <= next {
                return Accepted::Duplicate;
            }
        }
        write(next..segment.end);
        Accepted::InOrder { next: segment.end, filled_hole: false }
    }

    /// Hands the parts of `fresh` that no range of `overlapped` holds to `write`, and notes the first part
    /// that one does hold. Says whether there was anything to write.
    fn write_gaps(
        &mut self,
        overlapped: Range<usize>,
        fresh: &Range<u64>,
        write: &mut impl FnMut(Range<u64>),
    ) -> bool {
        let mut wrote = false;
        let mut at = fresh.start;
        for held in &self.held[overlapped] {
            if at < held.start {
                write(at..held.start.min(fresh.end));
                wrote = true;
            }
            let doubled = fresh.start.max(held.start)..fresh.end.min(held.end);
            // RFC 2883 §4: one block per ACK; it reports the first contiguous duplicate.
            if self.duplicate.is_empty() && !doubled.is_empty() {
                self.duplicate = doubled;
            }
            at = at.max(held.end);
        }
        if at < fresh.end {
            write(at..fresh.end);
            wrote = true;
        }
        wrote
    }

    fn merge(&mut self, next: u64, overlapped: Range<usize>, fresh: Range<u64>, wrote: bool) -> Accepted {
        let (first, after) = (overlapped.start, overlapped.end);
        let start = if first < after { fresh.start.min(self.held[first].start) } else { fresh.start };
        let end = if first < after { fresh.end.max(self.held[after - 1].end) } else { fresh.end };
        let before: u64 = self.held[first..after].iter().map(Held::len).sum();
        if start <= next {
            self.bytes -= before as u32;
            self.held.drain(..after);
            if self.held.is_empty() && self.held.capacity() > RANGES_FREE {
                self.held = Vec::new();
            }
            return Accepted::InOrder { next: end, filled_hole: true };
        }
        self.arrivals = self.arrivals.wrapping_add(1);
        self.bytes = self.bytes - before as u32 + (end - start) as u32;
        let merged = Held { start, end, touched: self.arrivals };
        if first < after {
            self.held[first] = merged;
            self.held.drain(first + 1..after);
        } else {
            self.held.insert(first, merged);
        }
        if wrote { Accepted::Ahead } else { Accepted::Duplicate }
    }

    /// The blocks for the next ACK, at most `limit` (3 beside timestamps, else 4): the duplicate first
    /// (RFC 2883 §4), reported once, then ranges by how recently they grew (RFC 2018 §4).
    pub fn sack_blocks(&mut self, limit: usize) -> Blocks {
        let mut blocks = Blocks::default();
        let limit = limit.min(BLOCKS_MAX);
        if limit == 0 {
            return blocks;
        }
        if !self.duplicate.is_empty() {
            blocks.push(core::mem::take(&mut self.duplicate));
        }
        // One pass over all of them, which may be many.
        let mut newest = [(u32::MAX, 0); BLOCKS_MAX];
        let newest = &mut newest[..limit - blocks.len];
        for (at, held) in self.held.iter().enumerate() {
            let mut younger = (self.arrivals.wrapping_sub(held.touched), at);
            if newest.last().is_none_or(|&(oldest, _)| younger.0 >= oldest) {
                continue;
            }
            for place in newest.iter_mut() {
                if younger.0 < place.0 {
                    core::mem::swap(place, &mut younger);
                }
            }
        }
        for &(_, at) in newest.iter().filter(|&&(age, _)| age != u32::MAX) {
            blocks.push(self.held[at].start..self.held[at].end);
        }
        blocks
    }

    /// Gives memory back; call it when the connection has been idle for a while.
    pub fn shrink(&mut self) {
        self.held.shrink_to_fit();
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a list of blocks may have one block
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A receiver over [`Reassembly`]: one entry per byte, holding the number of the segment that wrote it.
    #[derive(Default)]
    struct Receiver {
        set: Reassembly,
        next: u64,
        bytes: Vec<Option<usize>>,
    }

    impl Receiver {
        fn accept(&mut self, segment: Range<u64>, number: usize) -> Accepted {
            let bytes = &mut self.bytes;
            let mut last_end = 0;
            let accepted = self.set.accept(self.next, segment, |part| {
                assert!(part.start < part.end && part.start >= last_end, "parts come in order, none empty");
                last_end = part.end;
                bytes.resize(bytes.len().max(part.end as usize), None);
                for byte in &mut bytes[part.start as usize..part.end as usize] {
                    assert_eq!(*byte, None, "the first copy wins");
                    *byte = Some(number);
                }
            });
            if let Accepted::InOrder { next, .. } = accepted {
                assert!(next > self.next);
                self.next = next;
            }
            accepted
        }

        fn blocks(&mut self, limit: usize) -> Vec<Range<u64>> {
            self.set.sack_blocks(limit).as_slice().to_vec()
        }
    }

    #[test]
    fn rfc_2018_section_7_case_2() {
        // The first four of eight segments of 500 bytes arrive, the last four are lost.
        let mut receiver = Receiver { next: 5_000, ..Receiver::default() };
        for n in 0..4 {
            receiver.accept(5_000 + 500 * n..5_500 + 500 * n, 0);
            assert_eq!((receiver.next, receiver.blocks(4)), (5_500 + 500 * n, vec![]));
        }
    }

    #[test]
    fn rfc_2018_section_7_case_1_and_3() {
        // The first is lost, the other seven arrive.
        let mut receiver = Receiver { next: 5_000, ..Receiver::default() };
        for n in 1..8 {
            receiver.accept(5_000 + 500 * n..5_500 + 500 * n, 0);
            assert_eq!((receiver.next, receiver.blocks(4)), (5_000, vec![5_500..5_500 + 500 * n]));
        }
        // The second, fourth, sixth and eighth are lost.
        let mut receiver = Receiver { next: 5_000, ..Receiver::default() };
        receiver.accept(5_000..5_500, 0);
        receiver.accept(6_000..6_500, 0);
        assert_eq!(receiver.blocks(3), [6_000..6_500]);
        receiver.accept(7_000..7_500, 0);
        assert_eq!(receiver.blocks(3), [7_000..7_500, 6_000..6_500]);
        receiver.accept(8_000..8_500, 0);
        assert_eq!(receiver.blocks(3), [8_000..8_500, 7_000..7_500, 6_000..6_500]);
        // The fourth comes late: it joins its neighbours and is the most recent.
        receiver.accept(6_500..7_000, 0);
        assert_eq!(receiver.blocks(3), [6_000..7_500, 8_000..8_500]);
        // The second comes too: everything up to the sixth is in order.
        let filled = receiver.accept(5_500..6_000, 0);
        assert_eq!(filled, Accepted::InOrder { next: 7_500, filled_hole: true });
        assert_eq!(receiver.blocks(3), [8_000..8_500]);
    }

    #[test]
    fn rfc_2883_section_4_examples() {
        // §4.1.1: a full duplicate below the acknowledgement.
        let mut receiver = Receiver { next: 3_000, ..Receiver::default() };
        receiver.accept(3_000..4_000, 0);
        assert_eq!(receiver.accept(3_000..3_500, 0), Accepted::Duplicate);
        assert_eq!(receiver.blocks(4), [3_000..3_500]);
        assert_eq!(receiver.blocks(4), [], "reported once");
        // §4.1.2: a duplicate in a block beyond the acknowledgement: the block follows.
        receiver.accept(4_500..5_000, 0);
        receiver.accept(5_000..5_500, 0);
        receiver.blocks(4);
        assert_eq!(receiver.accept(4_500..5_000, 0), Accepted::Duplicate);
        assert_eq!(receiver.blocks(4), [4_500..5_000, 4_500..5_500]);
        // §4.2: part of the segment is a duplicate below the acknowledgement.
        receiver.accept(3_500..4_200, 0);
        assert_eq!(receiver.blocks(4), [3_500..4_000, 4_500..5_500]);
    }

    #[test]
    fn the_limit_holds_and_in_order_data_still_pass() {
        // R05: every other byte.
        let mut receiver = Receiver::default();
        for n in 0..RANGES_FREE as u64 {
            assert_eq!(receiver.accept(2 * n + 1..2 * n + 2, 0), Accepted::Ahead);
        }
        let beyond = 10_000..10_001;
        assert_eq!(receiver.accept(beyond.clone(), 0), Accepted::Full);
        assert_eq!(receiver.bytes.get(10_000), None, "nothing was taken");
        assert_eq!(receiver.accept(2..3, 0), Accepted::Ahead, "joins two, so it needs no room");
        assert_eq!(receiver.accept(beyond, 0), Accepted::Ahead);
        let all = receiver.accept(0..200, 0);
        assert_eq!(all, Accepted::InOrder { next: 200, filled_hole: true });
    }

    /// A full queue drops every other segment of a large window.
    #[test]
    fn text_pays_for_its_books() {
        let (mut receiver, len) = (Receiver::default(), 1_460);
        let lost = |n: u64| 2 * n * len..(2 * n + 1) * len;
        let came = |n: u64| (2 * n + 1) * len..2 * (n + 1) * len;
        for n in 0..RANGES_MAX as u64 {
            assert_eq!(receiver.accept(came(n), 0), Accepted::Ahead, "{n}");
            let newest = (0..=n).rev().take(4).map(came).collect::<Vec<_>>();
            assert_eq!(receiver.blocks(4), newest);
        }
        assert_eq!(receiver.set.held_bytes(), RANGES_MAX as u64 * len);
        let beyond = RANGES_MAX as u64;
        assert_eq!(receiver.accept(came(beyond), 0), Accepted::Full);
        for n in 0..beyond {
            assert_eq!(
                receiver.accept(lost(n), 0),
                Accepted::InOrder { next: came(n).end, filled_hole: true }
            );
        }
        assert_eq!((receiver.set.held_bytes(), receiver.set.held.capacity()), (0, 0));
    }

    #[test]
    fn books_are_small_beside_what_is_in_them() {
        for len in [1, 10, 50, 96, 200] {
            let mut receiver = Receiver::default();
            let ahead = |n: &u64| receiver.accept(n * 400 + 100..n * 400 + 100 + len, 0) == Accepted::Ahead;
            let ranges = (0..2 * RANGES_MAX as u64).take_while(ahead).count();
            let books = (ranges - RANGES_FREE) * size_of::<Held>();
            assert!(books as u64 <= receiver.set.held_bytes() / 4 + 24, "{len}: {ranges}");
            assert_eq!(ranges == RANGES_MAX, len >= 96, "{len}: {ranges}");
        }
    }

    #[test]
    fn nothing_held_is_nothing_allocated() {
        let mut receiver = Receiver::default();
        receiver.accept(0..1_000, 0);
        assert_eq!(receiver.set.held.capacity(), 0);
        receiver.accept(2_000..3_000, 0);
        receiver.accept(1_000..2_000, 0);
        receiver.set.shrink();
        assert_eq!(receiver.set.held.capacity(), 0);
        assert!(core::mem::size_of::<Reassembly>() <= 48);
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(
            segments in prop::collection::vec((0u64..600, 1u64..120), 1..80), limit in 0usize..6,
        ) {
            let mut receiver = Receiver::default();
            let mut model: Vec<Option<usize>> = vec![None; 1_000];
            for (number, &(start, len)) in segments.iter().enumerate() {
                let segment = start..start + len;
                let duplicate = segment.clone().find(|&at| model[at as usize].is_some());
                let accepted = receiver.accept(segment.clone(), number);
                if accepted == Accepted::Full {
                    prop_assert!(receiver.set.held.len() >= RANGES_FREE);
                    continue;
                }
                for byte in &mut model[start as usize..(start + len) as usize] {
                    byte.get_or_insert(number);
                }
                let next = model.iter().position(Option::is_none).unwrap_or(model.len());
                prop_assert_eq!(receiver.next, next as u64);
                let written = &receiver.bytes[..];
                prop_assert_eq!(written, &model[..written.len()]);
                prop_assert!(model[written.len()..].iter().all(Option::is_none));
                let beyond = model[next..].iter().filter(|byte| byte.is_some()).count() as u64;
                prop_assert_eq!(receiver.set.held_bytes(), beyond);
                prop_assert_eq!(receiver.set.is_empty(), beyond == 0);

                let blocks = receiver.blocks(limit);
                prop_assert!(blocks.len() <= limit.min(BLOCKS_MAX));
                let reported = blocks.first().filter(|_| duplicate.is_some());
                prop_assert_eq!(reported.map(|block| block.start), duplicate.filter(|_| limit > 0));
                let skip = usize::from(duplicate.is_some());
                for block in blocks.iter().skip(skip) {
                    prop_assert!(block.start > next as u64);
                    prop_assert!(model[block.start as usize..block.end as usize].iter().all(Option::is_some));
                    prop_assert!(model[block.start as usize - 1].is_none() && model[block.end as usize].is_none());
                }
                if accepted == Accepted::Ahead && blocks.len() > skip {
                    let first = &blocks[skip];
                    prop_assert!(first.start <= segment.start.max(next as u64) && segment.end <= first.end);
                }
                if limit == 0 {
                    receiver.blocks(1);
                }
            }
        }
    }
}
