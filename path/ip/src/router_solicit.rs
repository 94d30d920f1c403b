//! When a host asks for routers (RFC 4861 §6.3.7, RFC 7559).
//!
//! One state machine per link, driven by `autoconf.rs`: a first question after a random wait, further ones ever
//! more rarely, and none once a router has answered that it is a default router.

use core::time::Duration;

use firelane_units::Instant;

use crate::random::Random;

/// RFC 4861 §10: so that hosts do not ask all at once after a power failure.
const MAX_RTR_SOLICITATION_DELAY: Duration = Duration::from_secs(1);
/// RFC 7559 §2: IRT.
const FIRST_INTERVAL: Duration = Duration::from_secs(4);
/// RFC 7559 §2: MRT.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// Questions for routers on one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RouterSolicit {
    next: Option<Instant>,
    interval: Duration,
}

impl RouterSolicit {
    /// The link has just come up.
    pub(crate) fn begin(now: Instant, random: &mut Random) -> Self {
        let delay = random.below(MAX_RTR_SOLICITATION_DELAY.as_nanos() as u64);
        Self { next: Some(now + Duration::from_nanos(delay)), interval: Duration::ZERO }
    }

    /// When to ask.
    pub(crate) const fn poll_at(&self) -> Option<Instant> {
        self.next
    }

    /// Whether to ask now; then the next question waits longer.
    pub(crate) fn poll(&mut self, now: Instant, random: &mut Random) -> bool {
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        let base = match self.interval {
            Duration::ZERO => FIRST_INTERVAL,
            last if last * 2 > LONGEST_INTERVAL => LONGEST_INTERVAL,
            last => last * 2,
        };
        self.interval = spread(base, random);
        self.next = Some(now + self.interval);
        true
    }

    /// A default router has answered (RFC 7559 §2.1: another answer is none).
    pub(crate) const fn on_router(&mut self) {
        self.next = None;
    }

    /// The last default router is gone: it is asked for another one.
    pub(crate) fn on_no_router(&mut self, now: Instant, random: &mut Random) {
        if self.next.is_none() {
            *self = Self::begin(now, random);
        }
    }
}

/// RFC 3315 §14: RAND is between -0.1 and +0.1.
fn spread(base: Duration, random: &mut Random) -> Duration {
    let nanos = base.as_nanos() as u64;
    Duration::from_nanos(nanos - nanos / 10 + random.below(nanos / 5 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Keyed;

    fn random() -> Random {
        Random::new(Keyed::new([3; 16], 0), 0)
    }

    #[test]
    fn the_intervals_double_up_to_an_hour_and_never_end() {
        let mut random = random();
        let mut asking = RouterSolicit::begin(Instant::ZERO, &mut random);
        let mut last = Instant::ZERO;
        let mut gaps = Vec::new();
        for _ in 0..14 {
            let now = asking.poll_at().unwrap();
            assert!(!asking.poll(last, &mut random) || now == last);
            assert!(asking.poll(now, &mut random));
            gaps.push(now.saturating_since(last).as_secs_f64());
            last = now;
        }
        assert!(gaps[0] <= 1.0);
        let mut expected = 4.0;
        for gap in &gaps[1..] {
            assert!((expected * 0.9 - 0.001..=expected * 1.1 + 0.001).contains(gap), "{gaps:?}");
            expected = (gap * 2.0).min(3600.0);
        }
        assert!((3240.0..=3960.0).contains(gaps.last().unwrap()));
    }

    #[test]
    fn a_default_router_ends_the_questions_and_its_end_begins_them_again() {
        let mut random = random();
        let mut asking = RouterSolicit::begin(Instant::ZERO, &mut random);
        asking.on_router();
        assert_eq!(asking.poll_at(), None);
        assert!(!asking.poll(Instant::from_secs(9), &mut random));
        asking.on_no_router(Instant::from_secs(10), &mut random);
        let at = asking.poll_at().unwrap();
        assert!(at >= Instant::from_secs(10) && at <= Instant::from_secs(11));
        asking.on_no_router(Instant::from_secs(10), &mut random);
        assert_eq!(asking.poll_at(), Some(at));
    }
}
