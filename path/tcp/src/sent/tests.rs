//! The list against a model of single bytes, and what a peer can make of it.

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
fn new_data_that_join_a_repeated_range_count_as_repeated() {
    let mut sent = SentRanges::new(0);
    let full = RANGES_MAX as u64;
    for n in 0..full {
        sent.on_sent(at(n), n..n + 1, Snapshot::default());
    }
    sent.on_sent(at(full), full - 1..full, Snapshot::default());
    sent.on_sent(at(full + 1), full..full + 10, Snapshot::default());
    assert_eq!((sent.iter().count(), sent.resent_in_flight()), (RANGES_MAX, Bytes(11)));
    sent.on_cumulative_ack(full + 10, |_| {});
    assert_eq!(sent.resent_in_flight(), Bytes::ZERO);
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
