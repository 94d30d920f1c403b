//! Startup and Drain (§5.3.1, §5.3.2): find the path's rate by doubling, then empty the queue that this made.

use super::bounds::is_too_high;
use super::{Bbr, State, Step};

/// BBRStartupFullLossCnt: so many ACKs of a round must show losses.
const LOSS_EVENTS: u8 = 6;

/// Rounds after which Drain ends although the queue seems to stand.
const DRAIN_ROUNDS: u32 = 3;

impl Bbr {
    /// CheckStartupDone.
    pub(super) fn check_startup_done(&mut self, step: &Step<'_>) {
        self.check_high_loss(step);
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.drain_round = self.round.count;
        }
        if self.bounds.round_starts {
            // UpdateCongestionSignals ends the round of losses; this was the last to look at it.
            (self.bounds.is_hurt, self.bounds.events) = (false, 0);
        }
    }

    /// §5.3.1.3: a path that loses much for a whole round of recovery is full.
    fn check_high_loss(&mut self, step: &Step<'_>) {
        let ack = step.ack;
        if self.state != State::Startup || self.full.reached || !ack.in_recovery {
            return;
        }
        let is_full = if ack.sack {
            let is_lossy = is_too_high(ack.lost, ack.tx_in_flight, true);
            self.bounds.round_starts && self.bounds.events >= LOSS_EVENTS && is_lossy
        } else {
            ack.lost > 0
        };
        if is_full {
            self.undo.state = Some(State::Startup);
            self.full.reached = true;
            self.bounds.inflight_long = self.bdp(100).max(self.bounds.inflight_latest);
        }
    }

    /// CheckDrainDone.
    pub(super) fn check_drain_done(&mut self, step: &Step<'_>) {
        let rounds = self.round.count.wrapping_sub(self.drain_round);
        if self.state == State::Drain && (step.ack.in_flight <= self.inflight(100) || rounds > DRAIN_ROUNDS) {
            self.start_down(step.ack.now, step.ack.delivered);
        }
    }
}
