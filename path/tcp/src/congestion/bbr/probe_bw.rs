//! ProbeBW (§5.3.3): down, cruise, refill, up, and down again.
//!
//! Owns the cycle's clock and what the last probe taught. A flow probes every two to three seconds, or as often as
//! Reno's sawtooth would, so that Reno and CUBIC beside it keep their share.

use core::time::Duration;

use firelane_units::Instant;

use super::bounds::{INFINITE, is_too_high};
use super::{Bbr, State, Step};

/// The most rounds between two probes.
const RENO_ROUNDS: u64 = 63;

/// What the ACKs of now belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckPhase {
    /// Nothing in particular.
    Init,
    /// A pipe that is being filled.
    Refilling,
    /// A probe whose first segments are not acknowledged yet.
    Starting,
    /// A probe.
    Feedback,
    /// The last round of a probe.
    Stopping,
}

/// The cycle of probing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cycle {
    phase: AckPhase,
    since: Instant,
    wait: Duration,
    pub(super) rounds_since_up: u32,
    up_rounds: u8,
    up_acked: u64,
    up_acked_per_step: u64,
    /// The ACKs of now come from a probe that has not been answered with a lower bound yet.
    pub(super) is_sample: bool,
    /// The last probe lost too much.
    pub(super) prev_too_high: bool,
    /// The last probe ended early, out of caution.
    prev_precautionary: bool,
}

impl Cycle {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            phase: AckPhase::Init,
            since: now,
            wait: Duration::ZERO,
            rounds_since_up: 0,
            up_rounds: 0,
            up_acked: 0,
            up_acked_per_step: INFINITE,
            is_sample: false,
            prev_too_high: false,
            prev_precautionary: false,
        }
    }

    /// The ACKs of now are the last ones of whatever was tried.
    pub(super) fn stop(&mut self) {
        self.phase = AckPhase::Stopping;
    }

    /// PickProbeWait. The draws keep flows from probing together, no more; the instant and the volume at which a cycle
    /// begins are as good as a generator for that.
    fn pick_wait(&mut self, now: Instant, delivered: u64) {
        let seed = now.saturating_since(Instant::ZERO).as_nanos() as u64 ^ delivered.rotate_left(32);
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.rounds_since_up = (mixed >> 63) as u32;
        let spread = Duration::from_micros((mixed >> 20) % 1_000_000);
        self.wait = Duration::from_secs(2) + spread;
    }
}

impl Bbr {
    /// Whether the state is one of the cycle's.
    pub(super) fn is_in_cycle(&self) -> bool {
        matches!(self.state, State::Down | State::Cruise | State::Refill | State::Up)
    }

    /// IsProbingBW: losses are then what probing costs.
    pub(super) fn is_probing_rate(&self) -> bool {
        matches!(self.state, State::Startup | State::Refill | State::Up)
    }

    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self, now: Instant, delivered: u64) {
        self.bounds.forget_signals();
        self.cycle.up_acked_per_step = INFINITE;
        self.cycle.pick_wait(now, delivered);
        self.cycle.since = now;
        self.cycle.phase = AckPhase::Stopping;
        self.round.restart(delivered);
        self.state = State::Down;
    }

    /// StartProbeBW_REFILL.
    pub(super) fn start_refill(&mut self, delivered: u64) {
        self.bounds.forget_short();
        (self.cycle.up_rounds, self.cycle.up_acked) = (0, 0);
        self.cycle.prev_precautionary = false;
        self.cycle.phase = AckPhase::Refilling;
        self.round.restart(delivered);
        self.state = State::Refill;
    }

    /// StartProbeBW_UP.
    fn start_up(&mut self, step: &Step<'_>) {
        self.cycle.phase = AckPhase::Starting;
        self.round.restart(step.ack.delivered);
        self.full.reset(step.ack.rate);
        self.state = State::Up;
        self.raise_slope(step.window);
    }

    /// UpdateProbeBWCyclePhase.
    pub(super) fn walk_cycle(&mut self, step: &Step<'_>) {
        if !self.full.reached || self.adapt_long_term(step) || !self.is_in_cycle() {
            return;
        }
        let (now, delivered) = (step.ack.now, step.ack.delivered);
        let state = self.state;
        match state {
            State::Down | State::Cruise if self.is_time_to_probe(step) => self.start_refill(delivered),
            State::Down if self.is_time_to_cruise(step) => self.state = State::Cruise,
            State::Refill if self.round.starts => {
                self.cycle.is_sample = true;
                self.start_up(step);
            }
            State::Up if self.is_time_to_go_down(step) => {
                self.cycle.prev_too_high = false;
                self.start_down(now, delivered);
            }
            _ => {}
        }
    }

    fn is_time_to_probe(&self, step: &Step<'_>) -> bool {
        // IsRenoCoexistenceProbeTime: in as many rounds as the window has segments.
        let rounds = (self.target(step.window) / self.mss).min(RENO_ROUNDS);
        let is_elapsed = step.ack.now > self.cycle.since + self.cycle.wait;
        is_elapsed || u64::from(self.cycle.rounds_since_up) >= rounds
    }

    fn is_time_to_cruise(&self, step: &Step<'_>) -> bool {
        let in_flight = step.ack.in_flight;
        in_flight <= self.bounds.with_headroom(self.mss, self.least_window())
            && in_flight <= self.inflight(100)
    }

    fn is_time_to_go_down(&mut self, step: &Step<'_>) -> bool {
        let long = self.bounds.inflight_long;
        if self.cycle.prev_too_high && step.ack.in_flight >= long {
            // §5.3.3.6: after a probe that lost too much, the next one only touches the line.
            self.cycle.prev_precautionary = true;
            return true;
        }
        if step.ack.window_limited && step.window >= long {
            // The bound limits, so a plateau says nothing.
            self.full.reset(step.ack.rate);
            return false;
        }
        self.full.now
    }

    /// AdaptLongTermModel. Says whether it decided on a state.
    fn adapt_long_term(&mut self, step: &Step<'_>) -> bool {
        let ack = step.ack;
        if self.cycle.phase == AckPhase::Starting && self.round.starts {
            self.cycle.phase = AckPhase::Feedback;
        }
        if self.cycle.phase == AckPhase::Stopping && self.round.starts {
            self.cycle.is_sample = false;
            self.cycle.phase = AckPhase::Init;
            if self.is_in_cycle() && !ack.app_limited {
                self.max_rate.advance();
            }
            if self.is_in_cycle() && self.cycle.prev_precautionary && !self.cycle.prev_too_high {
                self.start_refill(ack.delivered);
                return true;
            }
        }
        let is_safe = !is_too_high(ack.lost, ack.tx_in_flight, ack.sack);
        if is_safe && self.bounds.inflight_long < INFINITE {
            self.bounds.inflight_long = self.bounds.inflight_long.max(ack.tx_in_flight);
            if self.state == State::Up {
                self.probe_upward(step);
            }
        }
        false
    }

    /// ProbeInflightLongtermUpward: by one segment in the first round, two in the second, four in the third.
    fn probe_upward(&mut self, step: &Step<'_>) {
        if !step.ack.window_limited || step.window < self.bounds.inflight_long {
            return;
        }
        self.cycle.up_acked += step.ack.newly_delivered;
        let steps = self.cycle.up_acked / self.cycle.up_acked_per_step;
        self.cycle.up_acked %= self.cycle.up_acked_per_step;
        self.bounds.inflight_long = self.bounds.inflight_long.saturating_add(steps * self.mss);
        if self.round.starts {
            self.raise_slope(step.window);
        }
    }

    /// RaiseInflightLongtermSlope.
    fn raise_slope(&mut self, window: u64) {
        let growth = 1 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(30);
        self.cycle.up_acked_per_step = (window / growth).max(self.mss);
    }
}
