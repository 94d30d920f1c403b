//! BBR (draft-ietf-ccwg-bbr-06, BBRv3): the window and the pace follow a model of the path, not its losses.
//!
//! The model has two numbers, the greatest rate of delivery and the least round trip, and bounds learnt from losses.
//! A state machine sends now faster, now slower to keep them true. The files are its ideas: `round` the time of the
//! model, `bandwidth` and `min_rtt` its numbers, `aggregation` the clumps of ACKs, `bounds` what losses say;
//! `startup`, `probe_bw` and `probe_rtt` the states; `control` what follows for window and pace. Owned by
//! `flight`, which lends it to `recovery`; the window itself is [`super::Window`]'s.
//!
//! All sums are integers: rates in bytes per second, gains in percent.

mod aggregation;
mod bandwidth;
mod bounds;
mod control;
mod min_rtt;
mod probe_bw;
mod probe_rtt;
mod round;
mod startup;

use core::time::Duration;

use firelane_units::{Bytes, Instant, Mss};

use crate::sent::LossNote;

use aggregation::Aggregation;
use bandwidth::{FullPipe, MaxRate};
use bounds::{Bounds, INFINITE, inflight_at_loss, is_too_high};
use min_rtt::MinRtt;
use probe_bw::Cycle;
use probe_rtt::Draining;
use round::Round;

/// The states (§5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Doubles the rate each round until it finds the path's.
    Startup,
    /// Empties the queue that Startup made.
    Drain,
    /// Sends slower than the path delivers, to empty the queue of a probe.
    Down,
    /// Sends as fast as the path delivers.
    Cruise,
    /// Fills the pipe before a probe.
    Refill,
    /// Probes for more.
    Up,
    /// Drains the path to see its least round trip.
    ProbeRtt,
}

/// What an ACK that delivered something says to the model.
#[derive(Clone, Copy, Debug)]
pub struct BbrAck {
    /// When it came.
    pub now: Instant,
    /// The measured rate in bytes per second; zero if there is no reliable one.
    pub rate: u64,
    /// Bytes delivered in that measurement (RS.delivered).
    pub volume: u64,
    /// Whether the program was what limited it.
    pub app_limited: bool,
    /// Bytes that had been delivered when the newest range left that it delivers (RS.prior_delivered).
    pub prior_delivered: u64,
    /// Bytes delivered so far (C.delivered).
    pub delivered: u64,
    /// Bytes that this ACK delivered (RS.newly_acked).
    pub newly_delivered: u64,
    /// What was in flight when that range had left (RS.tx_in_flight), and what was lost since then (RS.lost).
    pub tx_in_flight: u64,
    /// What was lost since then (RS.lost).
    pub lost: u64,
    /// Whether it shows new losses.
    pub shows_loss: bool,
    /// The round trip of the newest range that it acknowledges.
    pub rtt: Option<Duration>,
    /// What is in flight now.
    pub in_flight: u64,
    /// Whether the window was the limit.
    pub window_limited: bool,
    /// Whether losses are being repaired.
    pub in_recovery: bool,
    /// Whether the peer says which segments arrived.
    pub sack: bool,
}

/// The model of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bbr {
    state: State,
    round: Round,
    max_rate: MaxRate,
    full: FullPipe,
    rtt: MinRtt,
    clumps: Aggregation,
    bounds: Bounds,
    cycle: Cycle,
    draining: Draining,
    undo: Undo,
    /// The last good window from before a recovery or ProbeRTT.
    prior_window: u64,
    initial_window: u64,
    drain_round: u32,
    idle_restart: bool,
    /// bw: the rate that the model believes in, within its bounds.
    rate: u64,
    /// Bytes per second at which segments leave.
    pacing: u64,
    mss: u64,
}

/// What a spurious recovery gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Undo {
    state: Option<State>,
    inflight_long: u64,
    inflight_short: u64,
    rate_short: u64,
}

/// The inputs of a step, beside the model.
struct Step<'a> {
    ack: &'a BbrAck,
    window: u64,
}

impl Bbr {
    /// The model of a connection that begins with `window`, after a first round trip of `rtt` if it is known.
    pub fn new(now: Instant, mss: Mss, window: Bytes, rtt: Option<Duration>) -> Self {
        let mut model = Self {
            state: State::Startup,
            round: Round::default(),
            max_rate: MaxRate::default(),
            full: FullPipe::default(),
            rtt: MinRtt::new(now, rtt),
            clumps: Aggregation::new(now),
            bounds: Bounds::new(),
            cycle: Cycle::new(now),
            draining: Draining::default(),
            undo: Undo { state: None, inflight_long: 0, inflight_short: 0, rate_short: 0 },
            prior_window: 0,
            initial_window: window.0,
            drain_round: 0,
            idle_restart: false,
            rate: 0,
            pacing: 0,
            mss: mss.bytes().into(),
        };
        model.init_pacing(rtt);
        model
    }

    /// The state, for diagnosis.
    pub fn state(&self) -> State {
        self.state
    }

    /// The path's segment size changed.
    pub fn set_mss(&mut self, mss: Mss) {
        self.mss = mss.bytes().into();
    }

    /// §5.2.3: an ACK that delivered something. Gives the new window.
    pub fn on_ack(&mut self, ack: &BbrAck, window: Bytes) -> Bytes {
        let mut step = Step { ack, window: window.0 };
        self.update_signals(&step);
        let (is_round, is_startup) = (self.round.starts, !self.full.reached);
        let clump = (is_round, is_startup);
        self.clumps.on_ack(ack.now, ack.newly_delivered, self.rate, step.window, clump);
        if is_round && !ack.app_limited {
            self.full.on_round(ack.rate);
        }
        self.check_startup_done(&step);
        self.check_drain_done(&step);
        self.walk_cycle(&step);
        self.rtt.on_ack(ack.now, ack.rtt);
        self.check_probe_rtt(&mut step);
        self.bounds.advance(ack.rate, ack.volume);
        self.rate = self.max_rate.get().min(self.bounds.rate_short);
        self.set_pacing(self.pacing_gain());
        Bytes(self.next_window(&step))
    }

    /// UpdateLatestDeliverySignals and UpdateCongestionSignals.
    fn update_signals(&mut self, step: &Step<'_>) {
        let ack = step.ack;
        self.bounds.on_delivery(ack.rate, ack.volume, ack.prior_delivered, ack.delivered);
        if self.round.on_ack(ack.prior_delivered, ack.delivered) {
            self.cycle.rounds_since_up = self.cycle.rounds_since_up.saturating_add(1);
        }
        if ack.rate > 0 && (ack.rate >= self.max_rate.get() || !ack.app_limited) {
            self.max_rate.update(ack.rate);
        }
        self.bounds.events = self.bounds.events.saturating_add(ack.shows_loss.into());
        if self.bounds.round_starts && self.bounds.is_hurt && !self.is_probing_rate() {
            self.bounds.lower(self.max_rate.get(), step.window);
        }
    }

    /// §5.5.10.2: ranges were found lost; `worst` is the one at which the share of losses was greatest. `delivered` is
    /// what has been delivered so far.
    pub fn on_lost(&mut self, now: Instant, delivered: u64, worst: &LossNote, window: Bytes, sack: bool) {
        self.note_congestion(delivered, window);
        if !self.cycle.is_sample || !is_too_high(worst.lost, worst.in_flight, sack) {
            return;
        }
        self.cycle.prev_too_high = true;
        self.cycle.is_sample = false;
        if !worst.app_limited {
            let at_loss = inflight_at_loss(worst.in_flight, worst.lost, worst.len);
            self.bounds.inflight_long = at_loss.max(bounds::beta(self.target(window.0)));
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_down(now, delivered);
        }
    }

    /// NoteLoss: something was lost, or marked (RFC 3168), in this round.
    pub fn note_congestion(&mut self, delivered: u64, window: Bytes) {
        if self.bounds.note(delivered) {
            self.save(window);
        }
    }

    /// A recovery begins (§5.6.4.4).
    pub fn on_recovery(&mut self, window: Bytes, in_recovery: bool) {
        self.save_window(window.0, in_recovery);
        self.save(window);
    }

    /// A recovery has ended: the window that it gives back.
    pub fn on_recovered(&self, window: Bytes) -> Bytes {
        Bytes(window.0.max(self.prior_window))
    }

    /// §5.5.11: nothing had been lost.
    pub fn on_undo(&mut self, delivered: u64) {
        self.bounds.is_hurt = false;
        self.full.reset(0);
        self.bounds.rate_short = self.bounds.rate_short.max(self.undo.rate_short);
        self.bounds.inflight_short = self.bounds.inflight_short.max(self.undo.inflight_short);
        self.bounds.inflight_long = self.bounds.inflight_long.max(self.undo.inflight_long);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full.reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && self.state != State::ProbeRtt => {
                self.start_refill(delivered);
            }
            _ => {}
        }
    }

    /// §5.4: something is about to leave after silence. Gives the window if it changes.
    pub fn on_restart(&mut self, now: Instant, window: Bytes) -> Bytes {
        self.idle_restart = true;
        self.clumps.on_restart(now);
        if self.is_in_cycle() {
            self.set_pacing(100);
        } else if self.state == State::ProbeRtt && self.is_drained_long_enough(now) {
            return Bytes(self.leave_probe_rtt(now, 0, window.0));
        }
        window
    }

    /// Whether samples say nothing about what the path could do, because the model holds back on purpose.
    pub fn holds_back(&self) -> bool {
        self.state == State::ProbeRtt
    }

    fn save_window(&mut self, window: u64, in_recovery: bool) {
        let is_normal = !in_recovery && self.state != State::ProbeRtt;
        self.prior_window = if is_normal { window } else { self.prior_window.max(window) };
    }

    /// SaveStateUponLoss.
    fn save(&mut self, window: Bytes) {
        self.prior_window = self.prior_window.max(window.0);
        self.undo = Undo {
            state: None,
            inflight_long: self.bounds.inflight_long,
            inflight_short: self.bounds.inflight_short,
            rate_short: self.bounds.rate_short,
        };
    }
}

/// How many bytes pass in `span` at `rate` bytes per second.
fn bytes_in(rate: u64, span: Duration) -> u64 {
    let bytes = u128::from(rate) * span.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(INFINITE)
}

/// `percent` of `value`.
fn gain(value: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(INFINITE)
}

#[cfg(test)]
mod tests;
