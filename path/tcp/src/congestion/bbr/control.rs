//! What follows from the model (§5.6): how fast segments leave and how many may be in flight.

use core::time::Duration;

use firelane_units::BitRate;

use super::bounds::INFINITE;
use super::{Bbr, State, Step, bytes_in, gain};
use crate::pace::QUANTUM_SEGMENTS;

/// 2.77: the least gain that doubles the rate each round.
const STARTUP_GAIN: u64 = 277;
/// PacingMarginPercent: one percent less than the model says, so that queues shrink.
const MARGIN: u64 = 99;
/// The most of one large segment, and the time that it holds (§5.6.3; `pace.rs` sends such ones).
const QUANTUM_MAX: u64 = 64 * 1024;
const QUANTUM: Duration = Duration::from_millis(1);

impl Bbr {
    /// The table of §5.6.1, in percent.
    pub(super) fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => STARTUP_GAIN,
            State::Drain => 50,
            State::Down => 90,
            State::Cruise | State::Refill | State::ProbeRtt => 100,
            State::Up => 125,
        }
    }

    fn window_gain(&self) -> u64 {
        match self.state {
            State::Up => 225,
            State::ProbeRtt => 50,
            _ => 200,
        }
    }

    /// How fast segments leave. We differ: nothing waits for longer than a second, as with Linux' `fq`. Text that had to wait for the
    /// peer's room was delivered at a rate that says nothing of the path, and who waits for minutes by it learns no better meanwhile.
    pub fn pacing_rate(&self) -> BitRate {
        BitRate::from_bps(self.pacing.max(QUANTUM_SEGMENTS * self.mss).saturating_mul(8))
    }

    /// InitPacingRate.
    pub(super) fn init_pacing(&mut self, rtt: Option<Duration>) {
        let rtt = rtt.unwrap_or(Duration::from_millis(1)).as_nanos().max(1);
        let nominal = u128::from(self.initial_window) * 1_000_000_000 / rtt;
        self.pacing = gain(u64::try_from(nominal).unwrap_or(INFINITE), STARTUP_GAIN);
    }

    /// SetPacingRateWithGain: until the pipe was full once, the rate only rises.
    pub(super) fn set_pacing(&mut self, percent: u64) {
        let rate = gain(gain(self.rate, percent), MARGIN);
        if self.full.reached || rate > self.pacing {
            self.pacing = rate;
        }
    }

    /// BDPMultiple.
    pub(super) fn bdp(&self, percent: u64) -> u64 {
        match self.rtt.get() {
            Some(rtt) => gain(bytes_in(self.rate, rtt), percent),
            None => self.initial_window,
        }
    }

    /// TargetInflight.
    pub(super) fn target(&self, window: u64) -> u64 {
        self.bdp(100).min(window)
    }

    /// MinPipeCwnd: enough for a peer that acknowledges every second segment.
    pub(super) fn least_window(&self) -> u64 {
        4 * self.mss
    }

    /// Inflight: the volume of a gain, with room for large segments on their way through both hosts.
    pub(super) fn inflight(&self, percent: u64) -> u64 {
        self.with_room(self.bdp(percent))
    }

    /// QuantizationBudget.
    fn with_room(&self, volume: u64) -> u64 {
        let quantum = bytes_in(self.pacing, QUANTUM).min(QUANTUM_MAX).max(2 * self.mss);
        let least = (3 * quantum).max(self.least_window());
        volume.max(least) + if self.state == State::Up { 2 * self.mss } else { 0 }
    }

    /// SetCwnd.
    pub(super) fn next_window(&self, step: &Step<'_>) -> u64 {
        let most = self.with_room(self.bdp(self.window_gain()) + self.clumps.extra());
        let (mut window, ack) = (step.window, step.ack);
        if self.full.reached {
            window = (window + ack.newly_delivered).min(most);
        } else if window < most || ack.delivered < self.initial_window {
            window += ack.newly_delivered;
        }
        window = window.max(self.least_window());
        if self.state == State::ProbeRtt {
            window = window.min(self.drained_window());
        }
        window.min(self.volume_cap())
    }

    /// BoundCwndForModel.
    fn volume_cap(&self) -> u64 {
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.bounds.inflight_long,
            State::Cruise | State::ProbeRtt => self.bounds.with_headroom(self.mss, self.least_window()),
            State::Startup | State::Drain => INFINITE,
        };
        cap.min(self.bounds.inflight_short).max(self.least_window())
    }
}
