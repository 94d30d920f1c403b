//! Taking a reduction back that no loss had caused: Eifel (RFC 3522, 4015) and duplicate reports (RFC 3708).
//!
//! Owns what is remembered of an episode, from the reduction to its end or its undoing: the congestion control
//! as it was, and books of what was sent again. A reduction is taken back only if every retransmission of the
//! episode was spurious; the books are those of Linux (`undo_marker`, `undo_retrans`, `retrans_stamp`). Called
//! by `recovery`; F-RTO, the third way, is there, because it also decides what is sent.

use core::ops::Range;
use core::time::Duration;

use firelane_units::Instant;

use crate::congestion::Control;
use crate::isn::TimestampClock;
use crate::sent::{Mark, SentRange, SentRanges};

/// The books of a flight.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    episode: Option<Episode>,
    /// Bytes that were sent again, and bytes that were reported to have come twice, ever. A path that makes copies
    /// of its own reports more than we sent: its reports then say nothing.
    resent: u64,
    reported: u64,
}

/// What is needed to take a reduction back.
#[derive(Clone, Copy, Debug)]
struct Episode {
    before: Control,
    /// The acknowledgement when it began: a report of older data belongs to an earlier episode.
    marker: u64,
    /// When the first retransmission left, among those that were out when it began too.
    retransmitted_at: Option<Instant>,
    /// Bytes retransmitted and not reported as duplicates.
    unreported: u64,
    /// A retransmission arrived a round trip after it had left: it was needed, for all that timestamps can tell.
    repaired: bool,
}

/// What an acknowledgement says to these books.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// It acknowledged something new.
    pub(crate) progress: bool,
    /// When the segment left whose timestamp it carries.
    pub(crate) echoed: Option<Instant>,
    /// Everything that was out when the episode began is acknowledged.
    pub(crate) is_over: bool,
    /// It reports a duplicate.
    pub(crate) duplicate: bool,
    /// Bytes that were sent again and are still under way.
    pub(crate) resent_in_flight: u64,
}

impl Undo {
    /// A reduction is about to be made to `before`.
    pub(crate) fn begin(&mut self, before: Control, sent: &SentRanges) {
        // Retransmissions that are still out may be reported yet (Linux: `tcp_init_undo`).
        let unreported = sent.resent_in_flight().0;
        let is_out = |range: &&SentRange| range.mark == Mark::InFlight && range.is_retransmitted();
        let out = (unreported > 0).then(|| sent.iter().filter(is_out).map(|range| range.sent_at).min());
        let retransmitted_at = out.flatten();
        let marker = sent.una();
        self.episode = Some(Episode { before, marker, retransmitted_at, unreported, repaired: false });
    }

    /// The reduction has another cause than loss, or was undone: nothing takes it back.
    pub(crate) fn forget(&mut self) {
        self.episode = None;
    }

    /// A retransmission left.
    pub(crate) fn on_resent(&mut self, now: Instant, len: u64) {
        self.resent += len;
        if let Some(episode) = &mut self.episode {
            episode.unreported += len;
            episode.retransmitted_at.get_or_insert(now);
        }
    }

    /// The peer reports that `block` came twice. Says whether that can be the work of our retransmissions.
    pub(crate) fn on_report(&mut self, block: &Range<u64>) -> bool {
        self.reported += block.end - block.start;
        if self.reported > self.resent {
            return false;
        }
        if let Some(episode) = &mut self.episode {
            let len = block.end.saturating_sub(block.start.max(episode.marker));
            episode.unreported = episode.unreported.saturating_sub(len);
        }
        true
    }

    /// A piece arrived that the peer reports selectively. One that took a round trip from its last transmission is
    /// the answer to that, and the loss was real; the timestamp of such an ACK is about other data.
    pub(crate) fn on_sacked(&mut self, now: Instant, piece: &SentRange, least: Option<Duration>) {
        if let Some(episode) = &mut self.episode
            && piece.is_retransmitted()
        {
            episode.repaired |= now.saturating_since(piece.sent_at) >= least.unwrap_or_default();
        }
    }

    /// The congestion control to return to if this ACK shows that nothing had been lost. `recovering` says that
    /// the episode is not over; only duplicates can tell later.
    pub(crate) fn verdict(&self, evidence: &Evidence, recovering: bool) -> Option<Control> {
        let episode = self.episode.as_ref()?;
        let by_timestamp = recovering && evidence.progress && episode.is_refuted_by_time(evidence);
        let by_reports = evidence.duplicate && episode.retransmitted_at.is_some() && episode.unreported == 0;
        (by_timestamp || by_reports).then_some(episode.before)
    }

    /// The congestion control as it was, for who knows in another way that nothing had been lost.
    pub(crate) fn before(&self) -> Option<Control> {
        Some(self.episode.as_ref()?.before)
    }
}

impl Episode {
    /// RFC 3522 §3.2 steps 4 and 5: the ACK answers a segment that left before the first retransmission. One of
    /// several retransmissions may still be what repairs a loss; the others must have been answered.
    fn is_refuted_by_time(&self, evidence: &Evidence) -> bool {
        match (evidence.echoed, self.retransmitted_at) {
            (Some(echoed), Some(first)) => {
                let is_older = echoed < TimestampClock::tick_start(first);
                is_older && evidence.resent_in_flight == 0 && !self.repaired
            }
            // Everything that was held lost arrived before it was sent again.
            (_, None) => evidence.is_over,
            (None, Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Algorithm;
    use crate::rate::Snapshot;
    use firelane_units::{Bytes, Mss};

    const MSS: Mss = Mss::clamped(1000);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Ten segments, of which the first two were found lost and were sent again at 100 ms.
    fn episode() -> (Undo, SentRanges) {
        let mut sent = SentRanges::new(0);
        for n in 0..10 {
            sent.on_sent(at(n), n * 1_000..(n + 1) * 1_000, Snapshot::default());
        }
        sent.mark_front_lost(Bytes(2_000));
        let mut undo = Undo::default();
        undo.begin(Control::new(Algorithm::Cubic, MSS, 10), &sent);
        for n in 0..2 {
            sent.on_sent(at(100), n * 1_000..(n + 1) * 1_000, Snapshot::default());
            undo.on_resent(at(100), 1_000);
        }
        (undo, sent)
    }

    fn evidence(echoed: u64, resent_in_flight: u64) -> Evidence {
        let echoed = Some(at(echoed));
        Evidence { progress: true, echoed, is_over: false, duplicate: false, resent_in_flight }
    }

    #[test]
    fn an_old_timestamp_counts_when_no_retransmission_is_out() {
        let (undo, _) = episode();
        assert!(undo.verdict(&evidence(99, 0), true).is_some());
        for (echoed, out, recovering) in [(100, 0, true), (99, 1_000, true), (99, 0, false)] {
            assert!(undo.verdict(&evidence(echoed, out), recovering).is_none(), "{echoed} {out}");
        }
    }

    #[test]
    fn a_retransmission_that_was_answered_counts_as_needed() {
        let (mut undo, sent) = episode();
        let piece = *sent.front().expect("data are out");
        undo.on_sacked(at(149), &piece, Some(Duration::from_millis(50)));
        assert!(undo.verdict(&evidence(99, 0), true).is_some(), "sooner than any answer to it");
        undo.on_sacked(at(150), &piece, Some(Duration::from_millis(50)));
        assert!(undo.verdict(&evidence(99, 0), true).is_none());
    }

    #[test]
    fn every_retransmission_must_be_reported() {
        let (mut undo, _) = episode();
        let report = Evidence { progress: false, echoed: None, duplicate: true, ..evidence(0, 0) };
        undo.on_report(&(0..1_000));
        assert!(undo.verdict(&report, false).is_none());
        undo.on_report(&(1_000..2_000));
        assert!(undo.verdict(&report, false).is_some());
    }

    #[test]
    fn reports_of_older_data_and_of_foreign_copies_do_not_count() {
        let (mut undo, mut sent) = episode();
        let report = Evidence { progress: false, echoed: None, duplicate: true, ..evidence(0, 0) };
        sent.on_cumulative_ack(5_000, |_| {});
        sent.mark_front_lost(Bytes(1_000));
        undo.begin(Control::new(Algorithm::Cubic, MSS, 10), &sent);
        undo.on_resent(at(300), 1_000);
        assert!(undo.on_report(&(0..2_000)), "both were sent again once");
        assert!(undo.verdict(&report, true).is_none(), "but not in this episode");
        undo.reported += 1_000;
        assert!(!undo.on_report(&(5_000..6_000)), "more copies than were sent");
        assert!(undo.verdict(&report, true).is_none());
    }

    #[test]
    fn what_was_held_lost_and_came_unasked_was_not_lost() {
        let (mut undo, sent) = (Undo::default(), SentRanges::new(0));
        undo.begin(Control::new(Algorithm::Cubic, MSS, 10), &sent);
        let over = Evidence { is_over: true, echoed: None, ..evidence(0, 0) };
        assert!(undo.verdict(&Evidence { is_over: false, ..over }, true).is_none());
        assert!(undo.verdict(&over, true).is_some());
        undo.forget();
        assert!(undo.verdict(&over, true).is_none() && undo.before().is_none());
    }
}
