//! What happens to sent data: loss detection, recovery and its undoing.
//!
//! Owns everything that exists only while data are out: the sent ranges, RACK (RFC 8985) for peers with SACK
//! and duplicate ACKs (RFC 6582) for others, fast recovery with proportional rate reduction, the
//! retransmission time-out (RFC 6298) and F-RTO (RFC 5682), and asks `undo` whether anything had been lost at
//! all. Called by `flight` only, which lends the estimator and the congestion control.

mod calm;
mod model;

use core::ops::Range;
use core::time::Duration;

use firelane_units::{Bytes, Instant, Mss};

use crate::congestion::bbr::Bbr;
use crate::congestion::{AckSample, Control};
use crate::flight::{AckIn, AckOut, Phase, TimerFired};
use crate::pace::Pacer;
use crate::prr::{Prr, PrrAck};
use crate::rack::{DUP_THRESHOLD, Rack};
use crate::rate::{RateSample, RateSampler, Snapshot};
use crate::rtt::Rtt;
use crate::sent::{Judgement, Mark, SentRange, SentRanges};
use crate::tlp::{Tlp, Verdict};
use crate::undo::{Evidence, Undo};

/// What the flight lends for a call.
pub(crate) struct Path<'a> {
    pub(crate) rtt: &'a mut Rtt,
    pub(crate) control: &'a mut Control,
    pub(crate) mss: Mss,
    pub(crate) sack: bool,
    pub(crate) abe: bool,
}

/// The state of sent data.
#[derive(Debug)]
pub(crate) struct Recovery {
    sent: SentRanges,
    rack: Rack,
    tlp: Tlp,
    prr: Prr,
    pacer: Pacer,
    /// The model of BBR, if that is the algorithm.
    model: Option<Box<Bbr>>,
    rate: RateSampler,
    rate_sample: Option<RateSample>,
    phase: Phase,
    /// When everything before it is acknowledged, the recovery that began there ends.
    point: Option<u64>,
    mtu_probe: Option<Range<u64>>,
    undo: Undo,
    frto: Frto,
    /// Duplicate ACKs of a peer without SACK: each stands for a segment that left the path.
    duplicates: u32,
    /// [`Instant::FAR_FUTURE`] if the timer is not running.
    rto_at: Instant,
    reorder_at: Instant,
    /// Data up to here were sent while the window was the limit.
    limited_until: u64,
    /// The window was reduced, and the peer has yet to hear of it (RFC 3168 §6.1.2).
    is_reduced: bool,
    /// What ACKs without progress delivered, and the window has yet to grow for.
    unrewarded: Bytes,
}

/// RFC 5682 §3.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frto {
    Off,
    /// The first segment was sent again; the next ACK decides.
    Waiting,
    /// It was acknowledged: new data go next, to see whether the rest arrives by itself.
    SendNew,
}

/// What an ACK delivered.
#[derive(Debug, Default)]
struct News {
    acked: u64,
    delivered: u64,
    /// When the oldest and the newest of the cumulatively acknowledged first transmissions left.
    oldest: Option<Instant>,
    newest: Option<Instant>,
    /// The same for selectively acknowledged ones.
    sacked_oldest: Option<Instant>,
    acked_retransmission: bool,
    sacked: bool,
    /// A range that was held lost arrived, and it was sent only once.
    original: bool,
    dsack: Option<Range<u64>>,
    sample: Option<RateSample>,
    lost: u64,
}

impl News {
    fn on_piece(&mut self, piece: &SentRange, cumulative: bool) {
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
    pub(crate) fn new(cursor: u64) -> Self {
        Self {
            sent: SentRanges::new(cursor),
            rack: Rack::new(cursor),
            tlp: Tlp::new(),
            prr: Prr::default(),
            pacer: Pacer::default(),
            model: None,
            rate: RateSampler::default(),
            rate_sample: None,
            phase: Phase::Open,
            point: None,
            mtu_probe: None,
            undo: Undo::default(),
            frto: Frto::Off,
            duplicates: 0,
            rto_at: Instant::FAR_FUTURE,
            reorder_at: Instant::FAR_FUTURE,
            limited_until: cursor,
            is_reduced: false,
            unrewarded: Bytes::ZERO,
        }
    }

    pub(crate) fn sent(&self) -> &SentRanges {
        &self.sent
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn rate_sample(&self) -> Option<RateSample> {
        self.rate_sample
    }

    pub(crate) fn pacer(&mut self) -> &mut Pacer {
        &mut self.pacer
    }

    pub(crate) fn paced_until(&self) -> Option<Instant> {
        self.pacer.deadline()
    }

    /// Congestion control has changed: what it was before a reduction is nothing to return to.
    pub(crate) fn forget_undo(&mut self) {
        self.undo.forget();
    }

    pub(crate) fn take_reduced(&mut self) -> bool {
        core::mem::take(&mut self.is_reduced)
    }

    /// Whether something is held lost and repaired.
    fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovery | Phase::Loss)
    }

    /// Whether proportional rate reduction leads the window.
    fn is_reducing(&self) -> bool {
        matches!(self.phase, Phase::Recovery | Phase::Reduced)
    }

    pub(crate) fn set_mtu_probe(&mut self, range: Range<u64>) {
        self.mtu_probe = Some(range);
    }

    pub(crate) fn shrink(&mut self) {
        self.sent.shrink();
    }

    /// Bytes under way. Without SACK, each duplicate ACK stands for a segment that arrived.
    pub(crate) fn in_flight(&self, mss: Mss) -> Bytes {
        self.sent.in_flight().saturating_sub(self.duplicate_bytes(mss))
    }

    /// What duplicates stand for. The first segment is what is missing, so not for that; and not for more
    /// than twice what was out when recovery began, so that a peer that makes duplicates up gains nothing
    /// (Savage's duplicate ACK spoofing).
    fn duplicate_bytes(&self, mss: Mss) -> Bytes {
        let mss = u64::from(mss.bytes());
        let mut most = self.sent.outstanding().0.saturating_sub(mss);
        if self.phase == Phase::Recovery {
            most = most.min(2 * self.prr.outstanding().0);
        }
        Bytes((u64::from(self.duplicates) * mss).min(most))
    }
}

/// Sending.
impl Recovery {
    pub(crate) fn poll_probe(&mut self, fresh: Option<Range<u64>>, mss: Mss) -> Option<Range<u64>> {
        if !self.tlp.is_due() {
            return None;
        }
        if self.sent.is_empty() {
            self.tlp.cancel();
            return None;
        }
        let nxt = self.sent.nxt();
        let start = nxt.saturating_sub(u64::from(mss.bytes())).max(self.sent.una());
        Some(self.tlp.take(fresh, start..nxt))
    }

    pub(crate) fn owes_nothing(&self) -> bool {
        // What pacing held may have become moot since; only asking ends the wait.
        self.sent.lost() == Bytes::ZERO && !self.tlp.is_due() && self.pacer.deadline().is_none()
    }

    pub(crate) fn next_retransmit(&mut self, limit: Bytes, fresh: bool) -> Option<Range<u64>> {
        let lost = self.sent.first_lost()?;
        if self.frto == Frto::SendNew {
            if fresh {
                return None;
            }
            // RFC 5682 §2.1 step 2b: without new data the conventional recovery goes on.
            self.frto = Frto::Off;
        }
        let end = lost.end.min(lost.start + limit.0);
        (end > lost.start).then_some(lost.start..end)
    }

    pub(crate) fn on_sent(&mut self, now: Instant, range: Range<u64>, path: &Path<'_>) {
        let len = range.end - range.start;
        let is_new = range.start >= self.sent.nxt();
        let is_front = range.start == self.sent.una();
        self.pacer.on_sent(now, Bytes(len));
        let in_flight = self.sent.in_flight().0.saturating_add(len);
        let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        let snapshot = Snapshot { in_flight, ..self.rate.on_sent(now, self.sent.is_empty()) };
        self.sent.on_sent(now, range, snapshot);
        if self.is_reducing() {
            self.prr.on_sent(Bytes(len));
        }
        if !is_new {
            self.undo.on_resent(now, len);
        }
        if self.rto_at == Instant::FAR_FUTURE || (is_front && !is_new) {
            self.rto_at = path.rtt.rto().after(now);
        }
        self.schedule_probe(now, path);
        self.note_window_limit(path);
    }

    /// Whether the window, and not the program, is what limits: in slow start if more than half of it is
    /// used, since it doubles per round trip, else if no segment more fits.
    fn note_window_limit(&mut self, path: &Path<'_>) {
        let (window, in_flight) = (path.control.window().0, self.in_flight(path.mss).0);
        let is_full = in_flight + u64::from(path.mss.bytes()) > window;
        if is_full || (path.control.in_slow_start() && 2 * in_flight > window) {
            self.limited_until = self.sent.nxt();
        }
    }

    /// The path carries smaller segments than before. What left in larger ones cannot have arrived and goes again.
    /// RFC 8201 §5.4: that is no sign of congestion, so the window stays, but it is filled by slow start.
    pub(crate) fn on_path_shrunk(&mut self, path: &mut Path<'_>) {
        let most = u64::from(path.mss.bytes());
        let too_long =
            |range: &SentRange| if range.len().0 > most { Judgement::Lost } else { Judgement::Keep };
        if self.sent.judge(too_long) == Bytes::ZERO {
            return;
        }
        self.tlp.on_recovery();
        if matches!(self.phase, Phase::Recovery | Phase::Loss) {
            return;
        }
        self.undo.forget();
        self.point = Some(self.sent.nxt());
        self.phase = Phase::Loss;
        self.frto = Frto::Off;
        self.duplicates = 0;
        // What is too long for the path says nothing of how full it is.
        self.sent.take_note();
        path.control.on_path_shrunk(self.sent.in_flight());
    }

    pub(crate) fn on_window_exhausted(&mut self) {
        self.pacer.on_pause();
        self.limited_until = self.sent.nxt();
    }

    pub(crate) fn on_data_exhausted(&mut self, path: &Path<'_>) {
        let in_flight = self.in_flight(path.mss);
        if self.sent.lost() == Bytes::ZERO && in_flight < path.control.window() {
            self.rate.on_app_limited(in_flight);
        }
    }

    /// RFC 8985 §7.2: a probe is for a quiet connection with data out and no probe under way.
    fn schedule_probe(&mut self, now: Instant, path: &Path<'_>) {
        let is_calm = matches!(self.phase, Phase::Open | Phase::Reduced)
            && self.sent.sacked() == Bytes::ZERO
            && !self.sent.is_empty();
        if !path.sack || !is_calm || self.tlp.in_episode() {
            self.tlp.cancel();
        } else if !self.tlp.is_due() {
            let lone = self.sent.outstanding().0 <= u64::from(path.mss.bytes());
            self.tlp.schedule(now, path.rtt, lone, self.rto_at);
        }
    }
}

/// Acknowledgements.
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
        for (index, block) in ack.sack.iter().enumerate() {
            if self.sent.is_valid_block(block) {
                let (rack, rate, undo) = (&mut self.rack, &mut self.rate, &mut self.undo);
                let repeated = index == 0 && is_within_next(ack.sack);
                if repeated {
                    news.dsack = Some(block.clone());
                }
                self.sent.on_sack_block(block, path.mss, |piece| {
                    rack.on_delivered(now, piece, ack.echoed, path.rtt);
                    rate.on_delivered(now, piece);
                    undo.on_sacked(now, piece, path.rtt.minimum());
                    news.on_piece(piece, false);
                });
            } else if index == 0 && block.start < block.end && block.end <= self.sent.una() {
                // RFC 2883 §4: a first block below the acknowledgement reports a duplicate.
                news.dsack = Some(block.clone());
            }
        }
        if let Some(block) = &news.dsack
            && self.undo.on_report(block)
            && !self.tlp.explains(block)
        {
            self.rack.on_dsack(self.sent.una(), self.sent.nxt());
        }
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
            path.control.on_loss(self.sent.outstanding());
            path.control.on_recovered();
        }
    }

    fn undo_if_spurious(&mut self, ack: &AckIn<'_>, path: &mut Path<'_>, news: &News) -> bool {
        let recovering = self.is_recovering();
        let evidence = Evidence {
            progress: news.acked > 0,
            echoed: ack.echoed,
            is_over: self.point.is_some_and(|point| ack.ack >= point),
            duplicate: news.dsack.is_some(),
            resent_in_flight: self.sent.resent_in_flight().0,
        };
        // Without SACK, an ACK that also covers a retransmission may be due to that one alone.
        let original = news.original && (path.sack || !news.acked_retransmission);
        let by_frto = self.phase == Phase::Loss && self.frto != Frto::Off && original;
        let before = if by_frto { self.undo.before() } else { self.undo.verdict(&evidence, recovering) };
        let Some(before) = before else { return false };
        path.control.undo(&before);
        self.tell_undo();
        self.undo.forget();
        self.is_reduced = false;
        if recovering {
            self.sent.unmark_lost();
            self.phase = Phase::Open;
            self.frto = Frto::Off;
            self.duplicates = 0;
        }
        true
    }

    fn advance_frto(&mut self, ack: &AckIn<'_>, news: &News) {
        let beyond = self.point.is_none_or(|point| ack.ack >= point);
        let says_nothing = news.acked == 0 && !ack.duplicate && !news.sacked;
        self.frto = match self.frto {
            Frto::Waiting | Frto::SendNew if news.acked > 0 && !beyond => Frto::SendNew,
            unchanged if says_nothing => unchanged,
            _ => Frto::Off,
        };
    }

    fn leave_recovery(&mut self, path: &mut Path<'_>, news: &News) {
        let una = self.sent.una();
        if news.acked == 0 || self.point.is_none_or(|point| una < point) {
            return;
        }
        if self.phase == Phase::Reduced && (Some(una) > self.point || self.sent.is_empty()) {
            // Only what left after the reduction shows that the peer has heard of it.
            path.control.on_recovered();
            self.phase = Phase::Open;
        }
        if !self.is_recovering() {
            return;
        }
        if self.phase == Phase::Recovery {
            path.control.on_recovered();
        }
        self.tell_recovered(path);
        self.phase = Phase::Open;
        self.frto = Frto::Off;
        self.duplicates = 0;
        self.rack.on_recovered();
    }

    fn detect(&mut self, now: Instant, path: &Path<'_>, news: &mut News) {
        let recovering = self.is_recovering();
        if path.sack {
            let window = self.rack.reordering_window(recovering, self.sent.sacked_segments(), path.rtt);
            let detection = self.rack.detect(now, &mut self.sent, window);
            news.lost += detection.lost;
            self.reorder_at = detection.again_at.unwrap_or(Instant::FAR_FUTURE);
        } else if !recovering && self.duplicates >= DUP_THRESHOLD {
            // RFC 6582 §3.2 step 2: duplicates of data from before the last recovery start no other one.
            if self.point.is_none_or(|point| self.sent.una() > point) {
                news.lost += self.sent.mark_front_lost(Bytes(path.mss.bytes().into())).0;
            }
        }
        if !recovering && self.phase != Phase::Reduced {
            let quiet = self.sent.sacked() == Bytes::ZERO && self.duplicates == 0;
            self.phase = if quiet { Phase::Open } else { Phase::Disorder };
        }
    }

    /// Whether nothing is lost but the probe of the path's MTU.
    fn is_probe_alone_lost(&self) -> bool {
        let (Some(probe), Some(lost)) = (&self.mtu_probe, self.sent.first_lost()) else { return false };
        probe.start <= lost.start && lost.end <= probe.end && self.sent.lost().0 == lost.end - lost.start
    }

    fn enter_recovery(&mut self, path: &mut Path<'_>) {
        if self.is_recovering() || self.sent.lost() == Bytes::ZERO || self.is_probe_alone_lost() {
            return;
        }
        if self.phase == Phase::Reduced {
            // The reduction for this window was made when a mark came, and is not taken back.
            self.point = Some(self.sent.nxt());
            self.tlp.on_recovery();
        } else {
            self.begin_episode(path);
            self.prr = Prr::start(self.sent.outstanding());
        }
        self.phase = Phase::Recovery;
    }

    /// RFC 3168 §6.1.2: an echoed mark reduces the window as a loss does, once per window of data: until something
    /// is acknowledged that left after the last reduction, the peer repeats what it said before that.
    fn heed_mark(&mut self, ack: &AckIn<'_>, path: &mut Path<'_>, news: &News) {
        let is_repeated = self.point.is_some_and(|point| self.sent.una() <= point);
        if !ack.congested || is_repeated || self.is_recovering() || self.is_reducing() {
            return;
        }
        if self.tell_mark(path) {
            return;
        }
        // What was out when the ACK came.
        let outstanding = self.sent.outstanding() + Bytes(news.acked);
        path.control.on_mark(outstanding, path.abe);
        self.is_reduced = true;
        self.undo.forget();
        self.unrewarded = Bytes::ZERO;
        self.point = Some(self.sent.nxt());
        if self.sent.is_empty() {
            path.control.on_recovered();
        } else {
            self.phase = Phase::Reduced;
            self.prr = Prr::start(outstanding);
        }
    }

    fn begin_episode(&mut self, path: &mut Path<'_>) {
        self.undo.begin(*path.control, &self.sent);
        self.point = Some(self.sent.nxt());
        self.unrewarded = Bytes::ZERO;
        self.tell_recovery(path);
        path.control.on_loss(self.sent.outstanding());
        self.is_reduced = true;
        self.tlp.on_recovery();
    }

    fn set_window(
        &mut self,
        now: Instant,
        delivered: Bytes,
        limited: bool,
        path: &mut Path<'_>,
        news: &News,
    ) {
        if self.model.is_some() {
            self.follow_model(now, delivered, limited, path, news);
            return;
        }
        if self.is_reducing() {
            let ack = PrrAck {
                delivered,
                in_flight: self.in_flight(path.mss),
                slow_start_threshold: path.control.slow_start_threshold().unwrap_or(path.control.window()),
                safe: news.acked > 0 && news.lost == 0,
            };
            if delivered > Bytes::ZERO || news.lost > 0 {
                path.control.set_window(self.prr.on_ack(&ack, path.mss));
            }
            return;
        }
        self.unrewarded += delivered;
        // RFC 5681 §3.2 (1): duplicate ACKs do not open the window; what they delivered counts when the hole is filled.
        if news.acked > 0 && self.unrewarded > Bytes::ZERO {
            path.control.on_ack(&AckSample {
                now,
                delivered: core::mem::take(&mut self.unrewarded),
                una: self.sent.una(),
                nxt: self.sent.nxt(),
                rtt: news.newest.map(|at| now.saturating_since(at)),
                smoothed: path.rtt.smoothed().unwrap_or_default(),
                window_limited: limited,
            });
        }
    }

    fn restart_timers(&mut self, now: Instant, path: &Path<'_>, news: &News) {
        if self.sent.is_empty() {
            self.rto_at = Instant::FAR_FUTURE;
            self.reorder_at = Instant::FAR_FUTURE;
            self.tlp.cancel();
            return;
        }
        if news.acked > 0 {
            // RFC 6298 §5.3.
            self.rto_at = path.rtt.rto().after(now);
        }
        if news.delivered > 0 {
            self.schedule_probe(now, path);
        }
    }
}

/// Timers.
impl Recovery {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let earliest = self.rto_at.min(self.reorder_at).min(self.tlp.deadline());
        (earliest != Instant::FAR_FUTURE).then_some(earliest)
    }

    pub(crate) fn on_timer(&mut self, now: Instant, path: &mut Path<'_>, timeouts: &mut u8) -> TimerFired {
        if self.reorder_at <= now {
            let mut news = News::default();
            self.detect(now, path, &mut news);
            self.tell_losses(now, path);
            self.enter_recovery(path);
            // A loss is no permission to send: in recovery the window follows what is under way.
            self.set_window(now, Bytes::ZERO, false, path, &news);
            return TimerFired::Reordering;
        }
        if self.tlp.deadline() <= now {
            self.tlp.on_timer();
            self.rto_at = path.rtt.rto().after(now);
            return TimerFired::Probe;
        }
        if self.rto_at <= now {
            *timeouts = timeouts.saturating_add(1);
            self.on_timeout(now, path, *timeouts > 1);
            return TimerFired::Retransmission { count: *timeouts };
        }
        TimerFired::Nothing
    }

    /// RFC 6298 §5.4 to §5.6, RFC 8985 §6.3, RFC 5681 §3.1.
    fn on_timeout(&mut self, now: Instant, path: &mut Path<'_>, repeated: bool) {
        let in_loss_window = self.point.is_some_and(|point| self.sent.una() < point);
        let recovering = self.is_recovering();
        let is_new = !recovering || !in_loss_window;
        if is_new && !(self.phase == Phase::Reduced && in_loss_window) {
            self.begin_episode(path);
        } else {
            // The reduction for this window was made. RFC 5682 §3.1: data sent meanwhile belong to it.
            self.point = Some(self.sent.nxt());
        }
        self.tlp.on_recovery();
        self.mark_on_timeout(now, path, recovering);
        self.tell_losses(now, path);
        self.duplicates = 0;
        self.phase = Phase::Loss;
        // RFC 5682 §2.1: only while no more than the first segment was sent again.
        self.frto = if is_new || repeated { Frto::Waiting } else { Frto::Off };
        self.reorder_at = Instant::FAR_FUTURE;
        path.rtt.on_timeout();
        path.control.on_timeout(self.sent.in_flight());
        self.rto_at = path.rtt.rto().after(now);
    }

    fn mark_on_timeout(&mut self, now: Instant, path: &Path<'_>, recovering: bool) {
        if self.sent.front_is_sacked() {
            // The peer holds the first byte that it asks for: it has thrown away what it reported.
            self.sent.on_reneged();
        }
        let window = if path.sack {
            self.rack.reordering_window(recovering, self.sent.sacked_segments(), path.rtt)
        } else {
            Duration::ZERO
        };
        if path.sack && path.rtt.smoothed().is_some() {
            self.rack.mark_on_timeout(now, &mut self.sent, window, path.mss);
        } else {
            // Nothing tells the segments apart: go back to the first.
            let all = self.sent.outstanding();
            self.sent.mark_front_lost(all);
        }
    }
}

/// RFC 2883 §4: a first block inside the second one reports a duplicate beyond the acknowledgement.
fn is_within_next(blocks: &[Range<u64>]) -> bool {
    let [first, second, ..] = blocks else { return false };
    second.start <= first.start && first.end <= second.end
}
