//! What a connection has sent and not yet seen acknowledged: the one door to round-trip estimation,
//! loss detection, congestion control and their timers.
//!
//! The connection owns one [`Flight`] and talks to nothing below it. Cursors are those of the send ring:
//! cursor 0 is the first byte after the SYN, and a FIN occupies one cursor after the last byte. The SYN
//! itself is the handshake's; of it the flight only learns the round-trip time and whether it was lost.
//!
//! Order of calls:
//!
//! - per ACK that passed RFC 9293's check (`una <= ack <= nxt`): [`Flight::on_ack`], once, then transmit;
//! - per transmission opportunity: [`Flight::poll_probe`], then [`Flight::next_retransmit`] while
//!   [`Flight::budget`] covers the segment, then new data under the same budget; [`Flight::on_sent`]
//!   after each segment, new or old; [`Flight::on_data_exhausted`] or [`Flight::on_window_exhausted`]
//!   with the reason why sending stopped;
//! - [`Flight::deadline`] is the earliest instant at which [`Flight::on_timer`] must be called.

use core::ops::Range;
use core::time::Duration;

use firelane_frame::read_all_ahead;
use firelane_units::{BitRate, Bytes, Instant, Mss};

use crate::congestion::bbr::Bbr;
use crate::congestion::{Algorithm, Control};
use crate::rack::RackRest;
use crate::rate::RateSample;
use crate::recovery::{Path, Recovery};
use crate::rtt::{RtoLimits, Rtt, RttRest};
use crate::sent::SentRange;

/// What a connection may choose about sending.
#[derive(Clone, Copy, Debug)]
pub struct FlightConfig {
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
    /// Bounds of the retransmission time-out.
    pub rto: RtoLimits,
    /// The first congestion window in segments; RFC 6928 says 10.
    pub initial_segments: u16,
    /// Whether an idle connection restarts from the initial window (RFC 5681 §4.1).
    pub slow_start_after_idle: bool,
    /// Whether an echoed congestion mark reduces the window by less than a loss does (RFC 8511).
    pub abe: bool,
    /// Whether the window is spread over the round trip, whatever the algorithm. BBR always does.
    pub pacing: bool,
}

/// The part of a segment's acknowledgement that loss detection needs, in send cursors.
#[derive(Clone, Copy, Debug)]
pub struct AckIn<'a> {
    /// The cumulative acknowledgement.
    pub ack: u64,
    /// The SACK blocks in the order of the segment; unchecked, the flight ignores bad ones.
    pub sack: &'a [Range<u64>],
    /// When the segment whose timestamp was echoed left, from [`crate::isn::TimestampClock::sent_at`].
    pub echoed: Option<Instant>,
    /// Whether RFC 5681 §2 calls it a duplicate: no data, no SYN or FIN, the same window and `ack == una`.
    pub duplicate: bool,
    /// Whether it echoes a congestion mark (ECE), on a connection with ECN.
    pub congested: bool,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckOut {
    /// Bytes (and FIN) that the cumulative acknowledgement covered for the first time.
    pub acked: Bytes,
    /// Bytes that arrived, by cumulative or selective acknowledgement, for the first time.
    pub delivered: Bytes,
    /// Bytes that were found lost.
    pub lost: Bytes,
    /// A reduction was taken back because nothing had been lost.
    pub undone: bool,
    /// It reported a duplicate (RFC 2883).
    pub duplicate: bool,
    /// It showed that the peer received out of order.
    pub reordered: bool,
}

/// What a deadline meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerFired {
    /// Nothing was due.
    Nothing,
    /// The reordering window passed; there may be ranges to retransmit.
    Reordering,
    /// A tail loss probe is due: the next [`Flight::poll_probe`] gives it.
    Probe,
    /// The retransmission time-out fired for the `count`-th time in a row; the first range is lost.
    Retransmission {
        /// Time-outs in a row without progress, this one included.
        count: u8,
    },
    /// The time-out fired again, and what it would send again has yet to leave: its pace, a limit or the device holds it.
    Held,
}

/// The state of the sender, as `tcp_info` calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing suspicious.
    #[default]
    Open,
    /// Duplicate acknowledgements or SACK blocks, no loss yet.
    Disorder,
    /// The window is being reduced because of a congestion mark (RFC 3168); nothing is lost.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission time-out.
    Loss,
}

impl Default for FlightConfig {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            rto: RtoLimits::default(),
            initial_segments: 10,
            slow_start_after_idle: true,
            abe: false,
            pacing: false,
        }
    }
}

/// Sent, unacknowledged data and everything that decides what may follow.
///
/// What must be remembered while nothing is out is inline and small; the rest exists from the first segment
/// sent until [`Flight::shrink`].
#[derive(Debug)]
pub struct Flight {
    recovery: Option<Box<Recovery>>,
    kept: Kept,
    /// `una` and `nxt` while `recovery` does not exist.
    cursor: u64,
    last_sent_at: Instant,
    rtt: Rtt,
    control: Control,
    mss: Mss,
    initial_segments: u16,
    slow_start_after_idle: bool,
    abe: bool,
    pacing: bool,
    sack: bool,
    timeouts: u8,
    /// What loss detection had learned when `recovery` ended.
    rack: RackRest,
}

/// Memory for `recovery` while that does not exist: of no meaning, and not worth asking the allocator for each time.
#[derive(Default)]
pub(crate) struct Kept(Option<Box<Recovery>>);

impl core::fmt::Debug for Kept {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Kept")
    }
}

impl Kept {
    fn begin(&mut self, cursor: u64, rack: RackRest) -> Box<Recovery> {
        let mut recovery = match self.0.take() {
            Some(mut kept) => {
                kept.begin_again(cursor);
                kept
            }
            None => Box::new(Recovery::new(cursor)),
        };
        recovery.rack().wake_from(rack);
        recovery
    }
}

/// A flight with nothing out, of which the configuration says the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlightRest {
    cursor: u64,
    last_sent_at: Instant,
    rtt: RttRest,
    control: Control,
    mss: Mss,
    sack: bool,
    rack: RackRest,
}

impl Flight {
    /// Follows the configuration in what may change while nothing is out.
    pub(crate) fn settle(&mut self, config: &FlightConfig) {
        self.rtt.settle(config.rto);
        self.initial_segments = config.initial_segments;
        self.slow_start_after_idle = config.slow_start_after_idle;
        self.abe = config.abe;
        self.pacing = config.pacing;
    }

    /// What a connection at rest remembers, once [`Flight::shrink`] has taken the books.
    pub(crate) fn rest(&self) -> Option<FlightRest> {
        let Self {
            recovery: None, cursor, last_sent_at, ref rtt, control, mss, sack, timeouts: 0, rack, ..
        } = *self
        else {
            return None;
        };
        Some(FlightRest { cursor, last_sent_at, rtt: rtt.rest()?, control, mss, sack, rack })
    }

    /// The flight that rested.
    pub(crate) fn wake_from(rest: FlightRest, config: &FlightConfig) -> Self {
        let FlightRest { cursor, last_sent_at, rtt, control, mss, sack, rack } = rest;
        Self {
            recovery: None,
            kept: Kept::default(),
            cursor,
            last_sent_at,
            rtt: Rtt::wake_from(rtt, config.rto),
            control,
            mss,
            initial_segments: config.initial_segments,
            slow_start_after_idle: config.slow_start_after_idle,
            abe: config.abe,
            pacing: config.pacing,
            sack,
            timeouts: 0,
            rack,
        }
    }

    /// A flight for a connection whose SYN has not been answered.
    pub fn new(config: &FlightConfig) -> Self {
        let mss = Mss::DEFAULT_V4;
        Self {
            recovery: None,
            kept: Kept::default(),
            cursor: 0,
            last_sent_at: Instant::ZERO,
            rtt: Rtt::new(config.rto),
            control: Control::new(config.algorithm, mss, config.initial_segments),
            mss,
            initial_segments: config.initial_segments,
            slow_start_after_idle: config.slow_start_after_idle,
            abe: config.abe,
            pacing: config.pacing,
            sack: false,
            timeouts: 0,
            rack: RackRest::default(),
        }
    }

    /// The handshake finished: what was agreed, and how it went.
    ///
    /// `rtt` is the time from SYN to SYN-ACK if neither was retransmitted, or what a timestamp says of it. RFC 6928 §2: one
    /// repetition after a second may be due to a long path alone; more of them shrink the first window to one segment.
    pub fn on_established(
        &mut self,
        now: Instant,
        mss: Mss,
        sack: bool,
        rtt: Option<Duration>,
        syn_repeats: u8,
    ) {
        let segments = if syn_repeats > 1 { 1 } else { self.initial_segments };
        self.mss = mss;
        self.sack = sack;
        self.control = Control::new(self.control.algorithm(), mss, segments);
        self.last_sent_at = now;
        self.rtt.on_progress();
        self.timeouts = 0;
        match (rtt, syn_repeats) {
            (Some(rtt), 0) => self.rtt.on_sample(now, rtt),
            (Some(rtt), _) => self.rtt.on_coarse_sample(rtt),
            (None, 0) => {}
            (None, _) => self.rtt.on_untimed_handshake(),
        }
        self.begin_model(now);
    }

    /// What lies before `cursor` arrived with the SYN. Called before [`Flight::on_established`], which begins a model anew:
    /// one that was chosen meanwhile has the books of before.
    pub(crate) fn begin_at(&mut self, cursor: u64) {
        debug_assert!(self.is_empty(), "nothing has left but the SYN");
        self.kept = self.retire();
        self.cursor = cursor;
    }

    /// Everything up to `cursor` has arrived, by another way than segments: nothing is out.
    pub(crate) fn go_on_at(&mut self, now: Instant, cursor: u64) {
        (self.recovery, self.cursor, self.timeouts) = (None, cursor, 0);
        self.begin_model(now);
    }

    /// A model begins with what is known of the path, if the algorithm has one.
    fn begin_model(&mut self, now: Instant) {
        let new = || Bbr::new(now, self.mss, self.control.window(), self.rtt.smoothed());
        let model = (self.control.algorithm() == Algorithm::Bbr).then(|| Box::new(new()));
        if model.is_some() || self.recovery.is_some() {
            self.parts().0.set_model(model);
        }
    }

    /// Begins with as many segments as the configuration says, whatever their size.
    pub fn begin_with_whole_segments(&mut self) {
        self.control.set_initial_segments(self.initial_segments);
    }

    /// The payload of a full segment on the path changed. If it became less, longer ranges under way are lost.
    pub fn set_mss(&mut self, mss: Mss) {
        let has_shrunk = mss < self.mss;
        self.mss = mss;
        self.control.set_mss(mss);
        if let Some(model) = self.model_mut() {
            model.set_mss(mss);
        }
        if has_shrunk && self.recovery.is_some() {
            let (recovery, mut path) = self.parts();
            recovery.on_path_shrunk(&mut path);
            if self.timeouts > 0 {
                // The one segment that a time-out lets go is a smaller one now.
                let in_flight = self.in_flight();
                self.control.on_timeout(in_flight);
            }
        }
    }

    /// Begins to fetch what exists while data are out.
    #[inline]
    pub(crate) fn look_ahead(&self) {
        self.recovery.as_deref().into_iter().for_each(read_all_ahead);
    }

    /// The payload of a full segment.
    pub fn mss(&self) -> Mss {
        self.mss
    }

    /// The round-trip estimator.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Other bounds of the retransmission time-out; one that runs is as long as if it had begun with them. Another initial
    /// window is for who has yet to be connected or to rest; whether segments are paced, and what a mark leaves, is asked at
    /// the next segment and the next mark.
    pub(crate) fn follow(&mut self, config: &FlightConfig) {
        self.initial_segments = config.initial_segments;
        self.slow_start_after_idle = config.slow_start_after_idle;
        self.abe = config.abe;
        self.pacing = config.pacing;
        let before = self.rtt.rto();
        self.rtt.set_limits(config.rto);
        if let Some(recovery) = &mut self.recovery {
            recovery.on_limits_changed(before, self.rtt.rto());
        }
    }

    /// The estimator, for the handshake's samples and time-outs.
    pub fn rtt_mut(&mut self) -> &mut Rtt {
        &mut self.rtt
    }

    /// The first cursor that is not acknowledged.
    pub fn una(&self) -> u64 {
        self.recovery.as_ref().map_or(self.cursor, |recovery| recovery.sent().una())
    }

    /// The cursor after the last one that was ever sent.
    pub fn nxt(&self) -> u64 {
        self.recovery.as_ref().map_or(self.cursor, |recovery| recovery.sent().nxt())
    }

    /// Whether everything sent is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.recovery.as_ref().is_none_or(|recovery| recovery.sent().is_empty())
    }

    /// Whether an acknowledgement of nothing new may say something of what has arrived already.
    #[inline]
    pub(crate) fn may_hear_of_copies(&self) -> bool {
        self.sack && self.recovery.is_some()
    }

    /// Bytes believed to be under way (RFC 6675's pipe).
    pub fn in_flight(&self) -> Bytes {
        self.recovery.as_ref().map_or(Bytes::ZERO, |recovery| recovery.in_flight(self.mss))
    }

    /// Bytes lost and not sent again yet.
    pub fn lost(&self) -> Bytes {
        self.recovery.as_ref().map_or(Bytes::ZERO, |recovery| recovery.sent().lost())
    }

    /// Bytes selectively acknowledged.
    pub fn sacked(&self) -> Bytes {
        self.recovery.as_ref().map_or(Bytes::ZERO, |recovery| recovery.sent().sacked())
    }

    /// The sent ranges, in order, for diagnosis.
    pub fn ranges(&self) -> impl Iterator<Item = &SentRange> {
        self.recovery.iter().flat_map(|recovery| recovery.sent().iter())
    }

    /// The congestion window.
    pub fn window(&self) -> Bytes {
        self.control.window()
    }

    /// The slow start threshold, `None` before the first loss.
    pub fn slow_start_threshold(&self) -> Option<Bytes> {
        self.control.slow_start_threshold()
    }

    /// The congestion control algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.control.algorithm()
    }

    /// The model of BBR, if that is the algorithm.
    pub fn bbr(&self) -> Option<&Bbr> {
        self.recovery.as_ref()?.model()
    }

    /// The sender's state.
    pub fn phase(&self) -> Phase {
        self.recovery.as_ref().map_or(Phase::Open, |recovery| recovery.phase())
    }

    /// Retransmission time-outs in a row without progress.
    pub fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// Bytes under way that were sent more than once.
    pub fn resent(&self) -> Bytes {
        self.recovery.as_ref().map_or(Bytes::ZERO, |recovery| recovery.sent().resent_in_flight())
    }

    /// When data last left.
    pub fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }

    /// The range that leaves next probes the path: its loss is no sign of congestion (RFC 4821 §7.6.1).
    pub fn set_mtu_probe(&mut self, range: Range<u64>) {
        self.parts().0.set_mtu_probe(range);
    }

    /// The latest measurement of how fast data arrive.
    pub fn delivery_rate(&self) -> Option<RateSample> {
        self.recovery.as_ref().and_then(|recovery| recovery.rate_sample())
    }

    /// How many bytes congestion control lets go now, beside what is under way. At least one segment
    /// if nothing is under way. Send a segment only if it fits.
    pub fn budget(&self) -> Bytes {
        let in_flight = self.in_flight();
        let room = self.control.window().saturating_sub(in_flight);
        if in_flight == Bytes::ZERO { room.max(Bytes(self.mss.bytes().into())) } else { room }
    }

    /// Something is about to leave: how much of it may, in one large segment, or `None` if pacing holds it until
    /// [`Flight::paced_until`]. `limit` is the program's own.
    #[inline]
    pub fn pace(&mut self, now: Instant, limit: Option<BitRate>) -> Option<Bytes> {
        let rate = self.pacing_rate(limit);
        let mss = self.mss;
        match &mut self.recovery {
            None if rate.is_none() => Some(Bytes(u64::MAX)),
            Some(recovery) => recovery.pacer().ask(now, rate, mss),
            None => self.parts().0.pacer().ask(now, rate, mss),
        }
    }

    /// The program's own limit is another one.
    pub(crate) fn change_pace(&mut self, now: Instant, limit: Option<BitRate>) {
        let rate = self.pacing_rate(limit);
        if let Some(recovery) = &mut self.recovery {
            recovery.pacer().change(now, rate);
        }
    }

    /// The rate at which segments leave, if anything paces them; `limit` is the program's own.
    pub fn pacing_rate(&self, limit: Option<BitRate>) -> Option<BitRate> {
        let own = match self.bbr() {
            Some(model) => Some(model.pacing_rate()),
            None if self.pacing => self.control.pacing_rate(self.rtt.smoothed()),
            None => None,
        };
        [own, limit].into_iter().flatten().min()
    }

    /// When that may leave which [`Flight::pace`] told to wait.
    #[inline]
    pub fn paced_until(&self) -> Option<Instant> {
        self.recovery.as_ref()?.paced_until()
    }

    /// Something else than pacing keeps the connection from sending.
    pub fn on_pause(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.pacer().on_pause();
        }
    }

    /// Another algorithm goes on from the present window.
    pub fn set_algorithm(&mut self, now: Instant, algorithm: Algorithm) {
        if algorithm == self.control.algorithm() {
            return;
        }
        self.control = self.control.turned_into(algorithm);
        self.begin_model(now);
        if let Some(recovery) = &mut self.recovery {
            recovery.forget_undo();
        }
    }

    /// The probe that [`TimerFired::Probe`] announced, once; it ignores [`Flight::budget`]. `fresh` is the
    /// next segment of new data if there is one that the peer's window admits.
    pub fn poll_probe(&mut self, fresh: Option<Range<u64>>) -> Option<Range<u64>> {
        self.recovery.as_mut()?.poll_probe(fresh, self.mss)
    }

    /// Whether [`Flight::poll_probe`] would give a probe.
    pub fn owes_probe(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.owes_probe())
    }

    /// Whether neither a probe nor a retransmission waits to be sent.
    pub fn owes_nothing(&self) -> bool {
        self.recovery.as_ref().is_none_or(|recovery| recovery.owes_nothing())
    }

    /// The first lost range, cut to `limit`; `None` if there is none, or if new data should go first and
    /// `fresh` says that there is some (F-RTO). It stays lost until [`Flight::on_sent`] reports it.
    pub fn next_retransmit(&mut self, limit: Bytes, fresh: bool) -> Option<Range<u64>> {
        self.recovery.as_mut()?.next_retransmit(limit, fresh)
    }

    /// A segment left. What lies below [`Flight::nxt`] is a retransmission; new data begin there exactly.
    pub fn on_sent(&mut self, now: Instant, range: Range<u64>) {
        self.wake(now);
        self.last_sent_at = now;
        let (recovery, path) = self.parts();
        recovery.on_sent(now, range, &path);
    }

    /// New text left, the last that there is: [`Flight::on_sent`] and [`Flight::on_data_exhausted`] in one, for who has
    /// asked [`Flight::wake`] just before and [`Flight::is_free`] before that.
    #[inline]
    pub(crate) fn on_last_sent(&mut self, now: Instant, range: Range<u64>) {
        self.last_sent_at = now;
        let (recovery, path) = self.parts();
        if recovery.is_at_peace() {
            return recovery.on_lone_sent(now, range, &path);
        }
        recovery.on_sent(now, range, &path);
        recovery.on_data_exhausted(&path);
    }

    /// Whether new text may leave without a thought of repairs, probes and pacing.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        !self.pacing && self.recovery.as_ref().is_none_or(|recovery| recovery.is_free())
    }

    /// Something is about to leave while nothing is out: asked before [`Flight::budget`], so that a large segment is not
    /// cut to a window of before the silence.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        if self.is_empty() {
            self.note_idle(now);
        }
    }

    /// RFC 5681 §4.1: after a time-out's worth of silence the window says nothing about the path.
    fn note_idle(&mut self, now: Instant) {
        let before = core::mem::replace(&mut self.last_sent_at, now);
        let idle = now.saturating_since(before);
        let window = self.control.window();
        if let Some(model) = self.model_mut() {
            let window = model.on_restart(now, window);
            return self.control.set_window(window);
        }
        let (idle_nanos, rto) = (now.nanos().saturating_sub(before.nanos()), self.rtt.rto().nanos());
        // The division is for the rare case: request and response come here each time.
        let timeouts = if idle_nanos < rto { 0 } else { idle_nanos / rto };
        let timeouts = u32::try_from(timeouts).unwrap_or(u32::MAX);
        let restart = self.slow_start_after_idle.then_some(self.initial_segments);
        self.control.on_idle(idle, timeouts, restart);
    }

    /// Sending stopped because the program has nothing to send.
    pub fn on_data_exhausted(&mut self) {
        if self.recovery.is_some() {
            let (recovery, path) = self.parts();
            recovery.on_data_exhausted(&path);
        }
    }

    /// Sending stopped because of [`Flight::budget`] while data waited.
    pub fn on_window_exhausted(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.on_window_exhausted();
        }
    }

    /// An acknowledgement arrived; `una <= ack <= nxt` was checked.
    pub fn on_ack(&mut self, now: Instant, ack: &AckIn<'_>) -> AckOut {
        debug_assert!(
            self.una() <= ack.ack && ack.ack <= self.nxt(),
            "RFC 9293 §3.10.7.4: SEG.ACK is acceptable"
        );
        if self.recovery.is_none() {
            return AckOut::default();
        }
        let (recovery, mut path) = self.parts();
        let out = recovery.on_ack(now, ack, &mut path);
        if out.acked > Bytes::ZERO {
            self.timeouts = 0;
        }
        out
    }

    /// An acknowledgement arrived, of whatever kind.
    #[inline]
    pub fn take_ack(&mut self, now: Instant, ack: &AckIn<'_>) -> AckOut {
        let may_be_calm = ack.sack.is_empty() && !ack.congested;
        let calm = if may_be_calm { self.on_calm_ack(now, ack.ack) } else { None };
        calm.unwrap_or_else(|| self.on_ack(now, ack))
    }

    /// An acknowledgement without SACK blocks and marks arrived. If nothing is suspicious and it covers all that is
    /// out, it is taken here at little cost; `None` leaves it to [`Flight::on_ack`], which would have done the same.
    #[inline]
    pub fn on_calm_ack(&mut self, now: Instant, ack: u64) -> Option<AckOut> {
        let recovery = self.recovery.as_deref_mut()?;
        if !self.sack || !recovery.is_calm(ack) {
            return None;
        }
        let out = recovery.on_calm_ack(now, &mut self.rtt, &mut self.control)?;
        self.timeouts = 0;
        Some(out)
    }

    /// Whether the window was reduced since the last question: the peer is told with CWR (RFC 3168 §6.1.2).
    pub fn take_reduced(&mut self) -> bool {
        self.recovery.as_mut().is_some_and(|recovery| recovery.take_reduced())
    }

    /// The window was reduced before the last silence, and the peer hears of it with what leaves next.
    #[cold]
    pub(crate) fn renew_reduction(&mut self) {
        self.parts().0.renew_reduction();
    }

    /// The earliest instant at which [`Flight::on_timer`] has something to do; `None` if nothing is out.
    pub fn deadline(&self) -> Option<Instant> {
        self.recovery.as_ref()?.deadline()
    }

    /// The earliest of that and of [`Flight::paced_until`]; [`Instant::FAR_FUTURE`] if there is neither.
    #[inline]
    pub(crate) fn next_at(&self) -> Instant {
        self.recovery.as_ref().map_or(Instant::FAR_FUTURE, |recovery| recovery.next_at())
    }

    /// Time passed. Calling it early is harmless; it reports one deadline per call, so call it until it
    /// answers [`TimerFired::Nothing`].
    pub fn on_timer(&mut self, now: Instant) -> TimerFired {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return TimerFired::Nothing;
        }
        let mut timeouts = self.timeouts;
        let (recovery, mut path) = self.parts();
        let fired = recovery.on_timer(now, &mut path, &mut timeouts);
        self.timeouts = timeouts;
        fired
    }

    /// Ends with what stands for it: only the memory is of use, to the next connection.
    pub(crate) fn retire(&mut self) -> Kept {
        Kept(self.recovery.take().or_else(|| self.kept.0.take()))
    }

    /// Uses such memory for what exists while data are out.
    pub(crate) fn keep(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// Until when what leaves next waits for its pace, whether it is there by now or not.
    pub(crate) fn pace_holds_until(&self, now: Instant) -> Option<Instant> {
        self.recovery.as_ref()?.pace_holds_until(now)
    }

    /// Gives memory back; call it when the connection has been idle for a while. One that `rests` next keeps it until then.
    pub fn shrink(&mut self, now: Instant, rests: bool) {
        // A model counts rounds by what the sampler has counted: both stay. So does a pace until it is over.
        if self.is_empty() && self.model_mut().is_none() && self.pace_holds_until(now).is_none() {
            self.cursor = self.nxt();
            if let Some(recovery) = &mut self.recovery {
                self.rack = recovery.rack().rest();
            }
            self.kept = Kept(self.recovery.take().filter(|_| rests));
        } else if let Some(recovery) = &mut self.recovery {
            recovery.shrink();
        }
    }

    fn model_mut(&mut self) -> Option<&mut Bbr> {
        self.recovery.as_mut()?.model_mut()
    }

    #[inline]
    fn parts(&mut self) -> (&mut Recovery, Path<'_>) {
        let (cursor, rack) = (self.cursor, self.rack);
        let recovery = self.recovery.get_or_insert_with(|| self.kept.begin(cursor, rack));
        let path = Path {
            rtt: &mut self.rtt,
            control: &mut self.control,
            mss: self.mss,
            sack: self.sack,
            abe: self.abe,
        };
        (recovery, path)
    }
}
