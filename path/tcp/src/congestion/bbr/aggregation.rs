//! How much more than expected arrives at once (§5.5.9): ACKs come in clumps where receivers and links merge
//! segments, and the window must bridge the pauses between. Owned by `mod.rs`.

use firelane_units::Instant;

use super::bytes_in;

/// Half of the ten rounds for which a clump is remembered.
const HALF_WINDOW: u32 = 5;

/// The greatest clumps of two stretches of rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aggregation {
    since: Instant,
    delivered: u64,
    greatest: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, delivered: 0, greatest: [0; 2], rounds: 0 }
    }

    /// What the window holds for the sake of clumps.
    pub(super) fn extra(&self) -> u64 {
        self.greatest[0].max(self.greatest[1])
    }

    /// Sending begins after silence.
    pub(super) fn on_restart(&mut self, now: Instant) {
        self.since = now;
    }

    /// `delivered` bytes arrived where the model expects `rate`. In Startup only the last round counts.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        delivered: u64,
        rate: u64,
        window: u64,
        (is_round, is_startup): (bool, bool),
    ) {
        if is_round {
            self.rounds += 1;
            if self.rounds >= if is_startup { 1 } else { HALF_WINDOW } {
                self.rounds = 0;
                self.greatest = [self.greatest[1], 0];
            }
        }
        let mut expected = bytes_in(rate, now.saturating_since(self.since));
        if self.delivered <= expected {
            (self.since, self.delivered, expected) = (now, 0, 0);
        }
        self.delivered += delivered;
        let extra = self.delivered.saturating_sub(expected).min(window);
        self.greatest[1] = self.greatest[1].max(extra);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_clump_is_what_came_too_early() {
        let start = Instant::from_secs(1);
        let mut clumps = Aggregation::new(start);
        let at = |millis| start + Duration::from_millis(millis);
        // A thousand bytes per millisecond, in order: no more than one ACK's worth.
        for n in 1..20 {
            clumps.on_ack(at(n), 1_000, 1_000_000, 100_000, (false, false));
        }
        assert_eq!(clumps.extra(), 1_000);
        clumps.on_ack(at(20), 8_000, 1_000_000, 100_000, (false, false));
        assert_eq!(clumps.extra(), 8_000);
        for _ in 0..2 * HALF_WINDOW {
            clumps.on_ack(at(60), 0, 1_000_000, 100_000, (true, false));
        }
        assert_eq!(clumps.extra(), 0, "ten rounds later it is forgotten");
    }
}
