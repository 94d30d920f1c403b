//! ProbeRTT (§5.3.4): once in five seconds, unless the path shows its least round trip by itself, half a
//! bandwidth-delay product stays in flight for 200 ms.

use core::time::Duration;

use firelane_units::Instant;

use super::{Bbr, State, Step};

/// ProbeRTTDuration.
const LASTS: Duration = Duration::from_millis(200);

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Draining {
    /// When it has lasted long enough, once the path is drained.
    done_at: Option<Instant>,
    round_done: bool,
}

impl Bbr {
    /// CheckProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, step: &mut Step<'_>) {
        let ack = step.ack;
        if self.state != State::ProbeRtt && self.rtt.expired && !self.idle_restart {
            self.save_window(step.window, ack.in_recovery);
            self.state = State::ProbeRtt;
            self.draining = Draining::default();
            self.cycle.stop();
            self.round.restart(ack.delivered);
        }
        if self.state == State::ProbeRtt {
            self.drain_path(step);
        }
        self.idle_restart = false;
    }

    /// HandleProbeRTT; the caller marks the samples of this state as limited by the program.
    fn drain_path(&mut self, step: &mut Step<'_>) {
        let ack = step.ack;
        if self.draining.done_at.is_none() {
            if ack.in_flight <= self.drained_window() {
                self.draining = Draining { done_at: Some(ack.now + LASTS), round_done: false };
                self.round.restart(ack.delivered);
            }
            return;
        }
        self.draining.round_done |= self.round.starts;
        if self.draining.round_done && self.is_drained_long_enough(ack.now) {
            step.window = self.leave_probe_rtt(ack.now, ack.delivered, step.window);
        }
    }

    pub(super) fn is_drained_long_enough(&self, now: Instant) -> bool {
        self.draining.done_at.is_some_and(|at| now > at)
    }

    /// ExitProbeRTT; gives the window back that was.
    pub(super) fn leave_probe_rtt(&mut self, now: Instant, delivered: u64, window: u64) -> u64 {
        self.rtt.on_probed(now);
        self.bounds.forget_short();
        if self.full.reached {
            self.start_down(now, delivered);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
        window.max(self.prior_window)
    }

    /// ProbeRTTCwnd.
    pub(super) fn drained_window(&self) -> u64 {
        self.bdp(50).max(self.least_window())
    }
}
