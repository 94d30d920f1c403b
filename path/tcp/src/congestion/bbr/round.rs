//! Packet-timed round trips (§5.5.1): from the departure of a segment to the ACK of one that left after it.
//!
//! Rounds, not seconds, are the time of the model: silence and time-outs do not age it. Owned by `mod.rs`.

/// The count of rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Round {
    /// The round ends when something arrives that left after so many bytes had been delivered.
    end: u64,
    /// Whether the present ACK begins a round.
    pub(super) starts: bool,
    pub(super) count: u32,
}

impl Round {
    /// An ACK of data that left when `prior` bytes had been delivered; now `delivered` have. Says whether a round
    /// begins.
    pub(super) fn on_ack(&mut self, prior: u64, delivered: u64) -> bool {
        self.starts = prior >= self.end;
        if self.starts {
            self.end = delivered;
            self.count = self.count.wrapping_add(1);
        }
        self.starts
    }

    /// A round begins with what leaves from here on.
    pub(super) fn restart(&mut self, delivered: u64) {
        self.end = delivered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_with_what_left_in_it() {
        let mut round = Round::default();
        assert!(round.on_ack(0, 1_000), "the first ACK");
        assert!(!round.on_ack(0, 2_000));
        assert!(!round.on_ack(999, 3_000));
        assert!(round.on_ack(1_000, 4_000));
        assert_eq!(round.count, 2);
        round.restart(9_000);
        assert!(!round.on_ack(8_999, 10_000));
    }
}
