//! What happens to sent data: loss detection, recovery and its undoing.
//!
//! Owns everything that exists only while data are out: the sent ranges, RACK (RFC 8985) for peers with SACK
//! and duplicate ACKs (RFC 6582) for others, fast recovery with proportional rate reduction, the
//! retransmission time-out (RFC 6298) and F-RTO (RFC 5682), and asks `undo` whether anything had been lost at
//! all. Called by `flight` only, which lends the estimator and the congestion control.

mod ack;
mod calm;
mod episode;
mod model;
mod timer;

use core::ops::Range;

use firelane_units::{Bytes, Instant, Mss};

use crate::congestion::Control;
use crate::congestion::bbr::Bbr;
use crate::flight::Phase;
use crate::pace::Pacer;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::rate::{RateSample, RateSampler, Snapshot};
use crate::rtt::Rtt;
use crate::sent::{Judgement, SentRange, SentRanges};
use crate::tlp::Tlp;
use crate::undo::Undo;

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
    /// A mark has set it: nothing before it was repaired.
    is_point_of_mark: bool,
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
            is_point_of_mark: false,
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

    /// As new, in the memory that it has.
    pub(crate) fn begin_again(&mut self, cursor: u64) {
        let sent = self.sent.renewed(cursor);
        *self = Self { sent, ..Self::new(cursor) };
    }

    /// What is known of the path's order.
    pub(crate) fn rack(&mut self) -> &mut Rack {
        &mut self.rack
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

    pub(crate) fn pace_holds_until(&self, now: Instant) -> Option<Instant> {
        self.pacer.holds_until(now)
    }

    /// Congestion control has changed: what it was before a reduction is nothing to return to.
    pub(crate) fn forget_undo(&mut self) {
        self.undo.forget();
    }

    pub(crate) fn take_reduced(&mut self) -> bool {
        core::mem::take(&mut self.is_reduced)
    }

    /// A reduction of before is told with what leaves next: until that is acknowledged, the peer repeats its mark.
    pub(crate) fn renew_reduction(&mut self) {
        self.is_reduced = true;
        // Where a recovery's end is still to be acknowledged, or nothing has left since, the point stays that one's.
        let is_passed = self.point.is_none_or(|point| self.sent.una() > point);
        self.is_point_of_mark |= is_passed;
        self.point = self.point.max(Some(self.sent.nxt()));
    }

    /// What is out now is the window of a reduction, or what a recovery repairs.
    fn set_point(&mut self, is_of_mark: bool) {
        self.point = Some(self.sent.nxt());
        self.is_point_of_mark = is_of_mark;
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

    pub(crate) fn owes_probe(&self) -> bool {
        self.tlp.is_due() && !self.sent.is_empty()
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
        self.set_point(false);
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
}
