//! The timers of sent data: the retransmission time-out (RFC 6298), RACK's reordering timer and the tail loss probe's
//! (RFC 8985).
//!
//! Owns when each runs, and what a time-out does to the books. Called by `flight`, and after each ACK.

use core::time::Duration;

use firelane_units::{Bytes, Instant};

use super::ack::News;
use super::{Frto, Path, Recovery};
use crate::flight::{Phase, TimerFired};
use crate::rtt::Rto;
use crate::sent::Mark;

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
        if self.rto_at <= now && *timeouts > 0 && self.is_repair_held(path) {
            // RFC 6298 §5.5 backs off for what was sent again, and nobody has left that unanswered.
            self.rto_at = path.rtt.rto().after(now);
            return TimerFired::Held;
        }
        if self.rto_at <= now {
            *timeouts = timeouts.saturating_add(1);
            self.on_timeout(now, path, *timeouts > 1);
            return TimerFired::Retransmission { count: *timeouts };
        }
        TimerFired::Nothing
    }

    /// Whether the first segment has waited to leave again since the last time-out, for its pace, a limit or the device. A window that a
    /// model has made smaller meanwhile is opened by nothing but acknowledgements, or by the next time-out.
    fn is_repair_held(&self, path: &Path<'_>) -> bool {
        let Some(front) = self.sent.front().filter(|front| front.mark == Mark::Lost) else { return false };
        let in_flight = self.in_flight(path.mss);
        let least = front.len().min(Bytes(path.mss.bytes().into()));
        let may_leave = in_flight == Bytes::ZERO || in_flight + least <= path.control.window();
        self.phase == Phase::Loss && may_leave
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
            self.set_point(false);
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

    /// The time-out that runs is another.
    pub(crate) fn on_limits_changed(&mut self, before: Rto, after: Rto) {
        if self.rto_at != Instant::FAR_FUTURE {
            self.rto_at = after.instead_of(before, self.rto_at);
        }
    }

    pub(super) fn restart_timers(&mut self, now: Instant, path: &Path<'_>, news: &News) {
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

    /// RFC 8985 §7.2: a probe is for a quiet connection with data out and no probe under way.
    pub(super) fn schedule_probe(&mut self, now: Instant, path: &Path<'_>) {
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
