//! How long something that a router announced is good: for a span, or for ever.
//!
//! Used by every list that router advertisements fill (`routers.rs`, `prefixes.rs`, `slaac.rs`, `resolvers.rs`).

use core::time::Duration;

use firelane_units::Instant;
use firelane_wire::PrefixInformation;

/// Until when something is good; `Never` ends never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Until {
    /// Then.
    At(Instant),
    /// RFC 4861 §4.6.2: all bits one.
    Never,
}

impl Until {
    /// The end of a lifetime that begins now.
    pub(crate) fn after(now: Instant, lifetime: Duration) -> Self {
        if lifetime >= PrefixInformation::INFINITE { Self::Never } else { Self::At(now + lifetime) }
    }

    /// Whether it is past.
    pub(crate) fn is_past(self, now: Instant) -> bool {
        self.at().is_some_and(|at| at <= now)
    }

    /// The instant, if there is one.
    pub(crate) const fn at(self) -> Option<Instant> {
        match self {
            Self::At(at) => Some(at),
            Self::Never => None,
        }
    }

    /// What is left of it.
    pub(crate) fn left(self, now: Instant) -> Duration {
        match self {
            Self::At(at) => at.saturating_since(now),
            Self::Never => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_of_all_ones_has_no_end() {
        let now = Instant::from_secs(5);
        let short = Until::after(now, Duration::from_secs(2));
        assert_eq!((short.at(), short.left(now)), (Some(Instant::from_secs(7)), Duration::from_secs(2)));
        assert!(!short.is_past(Instant::from_secs(6)) && short.is_past(Instant::from_secs(7)));
        let ever = Until::after(now, Duration::from_secs(u32::MAX.into()));
        assert_eq!((ever, ever.at()), (Until::Never, None));
        assert!(!ever.is_past(Instant::from_secs(u64::from(u32::MAX))));
        assert!(short < ever);
    }
}
