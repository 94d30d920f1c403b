//! What an acknowledgement delivers: cumulatively, selectively (RFC 2018, 2883), and by being a duplicate of one.
//!
//! Owns the order in which an ACK is taken: first what arrived, then what that says of losses, then the window and the
//! timers. Called by `flight`.

use core::ops::Range;

use firelane_units::{Bytes, Instant};

use super::{Path, Recovery};
use crate::flight::{AckIn, AckOut, Phase};
use crate::rate::RateSample;
use crate::sent::{Mark, SentRange};
use crate::tlp::Verdict;

/// What an ACK delivered.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) acked: u64,
    pub(super) delivered: u64,
    /// When the oldest and the newest of the cumulatively acknowledged first transmissions left.
    pub(super) oldest: Option<Instant>,
    pub(super) newest: Option<Instant>,
    /// The same for selectively acknowledged ones.
    pub(super) sacked_oldest: Option<Instant>,
    pub(super) acked_retransmission: bool,
    pub(super) sacked: bool,
    /// A range that was held lost arrived, and it was sent only once.
    pub(super) original: bool,
    pub(super) dsack: Option<Range<u64>>,
    pub(super) sample: Option<RateSample>,
    pub(super) lost: u64,
}

impl News {
    pub(super) fn on_piece(&mut self, piece: &SentRange, cumulative: bool) {
        self.delivered += piece.len().0;
        self.sacked |= !cumulative;
        if piece.is_retransmitted() {
            self.acked_retransmission |= cumulative;
            return;
        }
        self.original |= piece.mark == Mark::Lost;
        self.newest = self.newest.max(Some(piece.sent_at));
        let oldest = if cumulative { &mut self.oldest } else { &mut self.sacked_oldest };
        if oldest.is_none_or(|oldest| piece.sent_at < oldest) {
            *oldest = Some(piece.sent_at);
        }
    }
}

impl Recovery {
    pub(crate) fn on_ack(&mut self, now: Instant, ack: &AckIn<'_>, path: &mut Path<'_>) -> AckOut {
        let before = self.sent.una();
        let limited = before < self.limited_until;
        let reorderings = self.rack.reorderings();
        let had_duplicates = self.duplicate_bytes(path.mss);
        let mut news = News::default();
        self.take_cumulative(now, ack, path, &mut news);
        self.take_selective(now, ack, path, &mut news);
        self.take_duplicate(ack, path, &mut news);
        self.sample_round_trip(now, ack, path, &news);
        news.sample = self.rate.on_ack_done(path.rtt.minimum().unwrap_or_default());
        if news.sample.is_some_and(|sample| sample.rate().is_some()) {
            self.rate_sample = news.sample;
        }
        self.settle_probe(ack, path, &news);
        let (una, nxt) = (self.sent.una(), self.sent.nxt());
        path.control.on_echo(Bytes(news.delivered), ack.congested, una, nxt);
        let undone = self.undo_if_spurious(ack, path, &news);
        self.advance_frto(ack, &news);
        self.leave_recovery(path, &news);
        self.detect(now, path, &mut news);
        self.tell_losses(now, path);
        self.enter_recovery(path);
        self.heed_mark(ack, path, &news);
        // Without SACK, what a duplicate stood for is not delivered again when it is acknowledged.
        let duplicates = self.duplicate_bytes(path.mss);
        let delivered = (news.delivered + duplicates.0).saturating_sub(had_duplicates.0);
        self.set_window(now, Bytes(delivered), limited, path, &news);
        self.restart_timers(now, path, &news);
        AckOut {
            acked: Bytes(news.acked),
            delivered: Bytes(news.delivered),
            lost: Bytes(news.lost),
            undone,
            duplicate: news.dsack.is_some(),
            reordered: self.rack.reorderings() != reorderings,
        }
    }

    fn take_cumulative(&mut self, now: Instant, ack: &AckIn<'_>, path: &mut Path<'_>, news: &mut News) {
        let (rack, rate, rtt) = (&mut self.rack, &mut self.rate, &*path.rtt);
        let acked = self.sent.on_cumulative_ack(ack.ack, |piece| {
            rack.on_delivered(now, piece, ack.echoed, rtt);
            rate.on_delivered(now, piece);
            news.on_piece(piece, true);
        });
        news.acked = acked.0;
        if news.acked > 0 {
            path.rtt.on_progress();
        }
    }

    fn take_selective(&mut self, now: Instant, ack: &AckIn<'_>, path: &Path<'_>, news: &mut News) {
        if !path.sack {
            return;
        }
        news.dsack = self.reported_again(ack.sack);
        for block in in_order(ack.sack) {
            if !self.sent.is_valid_block(block) {
                continue;
            }
            let (rack, rate, undo) = (&mut self.rack, &mut self.rate, &mut self.undo);
            self.sent.on_sack_block(block, path.mss, |piece| {
                rack.on_delivered(now, piece, ack.echoed, path.rtt);
                rate.on_delivered(now, piece);
                undo.on_sacked(now, piece, path.rtt.minimum());
                news.on_piece(piece, false);
            });
        }
        if let Some(block) = &news.dsack
            && self.undo.on_report(block)
            && !self.tlp.explains(block)
        {
            self.rack.on_dsack(self.sent.una(), self.sent.nxt());
        }
    }

    /// RFC 2883 §4: a first block below the acknowledgement, or inside the second one, reports a duplicate.
    fn reported_again(&self, blocks: &[Range<u64>]) -> Option<Range<u64>> {
        let first = blocks.first()?;
        let is_below = first.start < first.end && first.end <= self.sent.una();
        let is_within = self.sent.is_valid_block(first) && is_within_next(blocks);
        (is_below || is_within).then(|| first.clone())
    }

    /// RFC 5681 §3.2 and RFC 6582 for peers without SACK.
    fn take_duplicate(&mut self, ack: &AckIn<'_>, path: &Path<'_>, news: &mut News) {
        if path.sack {
            return;
        }
        if news.acked > 0 {
            // One of the segments acknowledged filled the hole; the others had sent duplicates.
            let segments = news.acked.div_ceil(u64::from(path.mss.bytes())) as u32;
            self.duplicates = self.duplicates.saturating_sub(segments - 1);
            if !self.is_recovering() {
                self.duplicates = 0;
            }
            let is_partial = self.phase == Phase::Recovery && self.point.is_some_and(|p| self.sent.una() < p);
            if is_partial {
                news.lost += self.sent.mark_front_lost(Bytes(path.mss.bytes().into())).0;
            }
        } else if ack.duplicate && !self.sent.is_empty() && self.phase != Phase::Loss {
            // After a time-out everything is sent again: duplicates then say that it was not needed, no more.
            self.duplicates = self.duplicates.saturating_add(1);
        }
    }

    /// RFC 6298 §3 (Karn): first transmissions give samples; among retransmissions, a timestamp does.
    fn sample_round_trip(&mut self, now: Instant, ack: &AckIn<'_>, path: &mut Path<'_>, news: &News) {
        let since = |at: Instant| now.saturating_since(at);
        let cumulative = news.oldest.filter(|_| !news.acked_retransmission);
        if let Some(newest) = news.newest.filter(|_| !news.acked_retransmission) {
            path.rtt.on_least(now, since(newest));
        }
        if let Some(sent_at) = cumulative.or(news.sacked_oldest) {
            path.rtt.on_sample(now, since(sent_at));
        } else if let (Some(echoed), 1..) = (ack.echoed, news.acked) {
            path.rtt.on_coarse_sample(since(echoed));
        }
    }

    fn settle_probe(&mut self, ack: &AckIn<'_>, path: &mut Path<'_>, news: &News) {
        let bare_duplicate = ack.duplicate && ack.sack.is_empty();
        if self.tlp.on_ack(ack.ack, news.dsack.as_ref(), bare_duplicate) == Verdict::RepairedLoss
            && matches!(self.phase, Phase::Open | Phase::Disorder)
        {
            // What was out when the ACK came.
            path.control.on_loss(self.sent.outstanding() + Bytes(news.acked));
            path.control.on_recovered();
        }
    }
}

/// Whether the first block is inside the second one.
fn is_within_next(blocks: &[Range<u64>]) -> bool {
    let [first, second, ..] = blocks else { return false };
    second.start <= first.start && first.end <= second.end
}

/// The blocks in the order of the stream. In a segment the newest stands first (RFC 2018 §4); that one acknowledgement tells of
/// several together is no sign that they arrived out of order.
fn in_order(blocks: &[Range<u64>]) -> impl Iterator<Item = &Range<u64>> {
    let place = |block: &Range<u64>| (block.start, block.end);
    let mut last = None;
    core::iter::from_fn(move || {
        let rest = blocks.iter().filter(|block| last.is_none_or(|last| place(block) > last));
        let next = rest.min_by_key(|block| place(block))?;
        last = Some(place(next));
        Some(next)
    })
}
