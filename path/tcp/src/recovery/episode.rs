//! Episodes of recovery: how one begins, what the window does in it, how it ends, and when it is taken back.
//!
//! Owns the phases and the rules between them: fast recovery (RFC 6675, RFC 6582) with proportional rate reduction, a
//! marked window (RFC 3168), F-RTO (RFC 5682), and undoing. Called by `ack` and `timer`.

use firelane_units::{Bytes, Instant};

use super::ack::News;
use super::{Frto, Path, Recovery};
use crate::congestion::AckSample;
use crate::flight::{AckIn, Phase};
use crate::prr::{Prr, PrrAck};
use crate::rack::DUP_THRESHOLD;
use crate::undo::Evidence;

impl Recovery {
    pub(super) fn undo_if_spurious(&mut self, ack: &AckIn<'_>, path: &mut Path<'_>, news: &News) -> bool {
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

    pub(super) fn advance_frto(&mut self, ack: &AckIn<'_>, news: &News) {
        let beyond = self.point.is_none_or(|point| ack.ack >= point);
        let says_nothing = news.acked == 0 && !ack.duplicate && !news.sacked;
        self.frto = match self.frto {
            Frto::Waiting | Frto::SendNew if news.acked > 0 && !beyond => Frto::SendNew,
            unchanged if says_nothing => unchanged,
            _ => Frto::Off,
        };
    }

    pub(super) fn leave_recovery(&mut self, path: &mut Path<'_>, news: &News) {
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

    pub(super) fn detect(&mut self, now: Instant, path: &Path<'_>, news: &mut News) {
        let recovering = self.is_recovering();
        if path.sack {
            let window = self.rack.reordering_window(recovering, self.sent.sacked_segments(), path.rtt);
            let detection = self.rack.detect(now, &mut self.sent, window);
            news.lost += detection.lost;
            self.reorder_at = detection.again_at.unwrap_or(Instant::FAR_FUTURE);
        } else if !recovering && self.duplicates >= DUP_THRESHOLD {
            // RFC 6582 §3.2 step 2: duplicates of data from before the last recovery start no other one. A mark has begun
            // behind that, and repaired nothing.
            if self.is_point_of_mark || self.point.is_none_or(|point| self.sent.una() > point) {
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

    pub(super) fn enter_recovery(&mut self, path: &mut Path<'_>) {
        if self.is_recovering() || self.sent.lost() == Bytes::ZERO || self.is_probe_alone_lost() {
            return;
        }
        if self.phase == Phase::Reduced {
            // The reduction for this window was made when a mark came, and is not taken back.
            self.set_point(false);
            self.tlp.on_recovery();
        } else {
            self.begin_episode(path);
            self.prr = Prr::start(self.sent.outstanding());
        }
        self.phase = Phase::Recovery;
    }

    /// RFC 3168 §6.1.2: an echoed mark reduces the window as a loss does, once per window of data: until something
    /// is acknowledged that left after the last reduction, the peer repeats what it said before that.
    pub(super) fn heed_mark(&mut self, ack: &AckIn<'_>, path: &mut Path<'_>, news: &News) {
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
        self.set_point(true);
        if self.sent.is_empty() {
            path.control.on_recovered();
        } else {
            self.phase = Phase::Reduced;
            self.prr = Prr::start(outstanding);
        }
    }

    pub(super) fn begin_episode(&mut self, path: &mut Path<'_>) {
        self.undo.begin(*path.control, &self.sent);
        self.set_point(false);
        self.unrewarded = Bytes::ZERO;
        self.tell_recovery(path);
        path.control.on_loss(self.sent.outstanding());
        self.is_reduced = true;
        self.tlp.on_recovery();
    }

    pub(super) fn set_window(
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
}
