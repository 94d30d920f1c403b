//! How often something may be told to all lanes that one frame is enough for.
//!
//! Used by `heard.rs`, `exits.rs` and `guard.rs`: what they learn from frames they tell every lane, and who sends such frames as fast as he can would
//! keep all of them busy with it.

use core::time::Duration;

use firelane_units::Instant;

/// So many times in a while: what a station says that has as many groups as are remembered, twice.
pub(crate) const MOST: u16 = 512;
/// How long that is.
const WHILE: Duration = Duration::from_secs(10);

/// What has been told in the present while.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Allowance {
    since: Instant,
    told: u16,
}

impl Allowance {
    /// Whether one more may be told now.
    pub(crate) fn allow(&mut self, now: Instant) -> bool {
        if now.saturating_since(self.since) >= WHILE {
            (self.since, self.told) = (now, 0);
        }
        let is_allowed = self.told < MOST;
        self.told += u16::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_allowed_in_each_while() {
        let mut allowance = Allowance::default();
        for start in [0, 10, 60] {
            let now = Instant::from_secs(start);
            assert_eq!((0..2 * MOST).filter(|_| allowance.allow(now)).count(), usize::from(MOST));
            assert!(!allowance.allow(now + WHILE / 2));
        }
    }
}
