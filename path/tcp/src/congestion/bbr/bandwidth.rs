//! How fast the path delivers: the greatest rate of the last two cycles of probing (§5.5.2 to §5.5.6), and whether
//! sending faster still delivers faster (§5.3.1.2). Rates are bytes per second. Owned by `mod.rs`.

/// The greatest rate of this cycle and the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct MaxRate {
    before: u64,
    now: u64,
}

impl MaxRate {
    pub(super) fn get(self) -> u64 {
        self.before.max(self.now)
    }

    pub(super) fn update(&mut self, rate: u64) {
        self.now = self.now.max(rate);
    }

    /// A cycle of probing ended. One without a sample says nothing, and is no reason to forget.
    pub(super) fn advance(&mut self) {
        if self.now > 0 {
            *self = Self { before: self.now, now: 0 };
        }
    }
}

/// After so many rounds without growth the path is full.
const ROUNDS: u8 = 3;

/// Looks for the plateau of the rate while sending accelerates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FullPipe {
    /// What must be exceeded by a quarter.
    pub(super) baseline: u64,
    count: u8,
    /// The path is full now.
    pub(super) now: bool,
    /// It was full once.
    pub(super) reached: bool,
}

impl FullPipe {
    /// The search begins anew, above `baseline`.
    pub(super) fn reset(&mut self, baseline: u64) {
        *self = Self { baseline, reached: self.reached, ..Self::default() };
    }

    /// A round of which the program was not the limit delivered at `rate`.
    pub(super) fn on_round(&mut self, rate: u64) {
        if self.now {
            return;
        }
        if rate >= self.baseline + self.baseline / 4 {
            self.reset(rate);
            return;
        }
        self.count += 1;
        self.now = self.count >= ROUNDS;
        self.reached |= self.now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_two_cycles() {
        let mut rate = MaxRate::default();
        rate.update(10);
        rate.advance();
        rate.update(7);
        assert_eq!(rate.get(), 10);
        rate.advance();
        assert_eq!(rate.get(), 7);
        rate.advance();
        assert_eq!(rate.get(), 7, "a cycle without samples is no cycle");
    }

    #[test]
    fn three_rounds_without_a_quarter_more() {
        let mut pipe = FullPipe::default();
        for rate in [100, 130, 170, 180, 190] {
            pipe.on_round(rate);
            assert!(!pipe.now, "{rate}");
        }
        pipe.on_round(200);
        assert!(pipe.now && pipe.reached, "170 was the last great step");
        pipe.reset(0);
        assert!(!pipe.now && pipe.reached);
    }
}
