//! How many ICMP messages a netstack sends (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
//!
//! Two token buckets must both agree: one per hash of the destination, and one for all. The common one
//! takes a random number of tokens, so that its state cannot be read from outside (SAD DNS,
//! CVE-2020-25705).

use core::hash::BuildHasher;
use core::net::IpAddr;
use core::time::Duration;

use firelane_units::Instant;

use crate::random::{Keyed, Random};

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IcmpKind {
    /// Errors.
    Error,
    /// Answers to echoes.
    Echo,
}

/// A bucket's measure: messages per second, and how many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) per_second: u64,
    pub(crate) burst: u64,
}

/// Errors: Linux' measures.
const ERRORS_EACH: Rate = Rate { per_second: 10, burst: 20 };
const ERRORS_ALL: Rate = Rate { per_second: 1000, burst: 200 };
/// Echoes: enough for `ping -f`, too few to keep a lane busy.
const ECHOES_EACH: Rate = Rate { per_second: 20_000, burst: 2000 };
const ECHOES_ALL: Rate = Rate { per_second: 50_000, burst: 5000 };
/// Buckets for destinations; those that share one share its measure.
const BUCKETS: usize = 256;

/// A bucket as the time at which it is full (a virtual clock): no refill to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    pub(crate) fn take(&mut self, now: Instant, rate: Rate, tokens: u64) -> bool {
        let token = Duration::from_nanos(1_000_000_000 / rate.per_second);
        let full_at = self.full_at.max(now) + token * tokens as u32;
        let is_allowed = full_at <= now + token * rate.burst as u32;
        if is_allowed {
            self.full_at = full_at;
        }
        is_allowed
    }
}

/// The limits of a netstack's shard.
#[derive(Debug)]
pub(crate) struct IcmpLimit {
    keyed: Keyed,
    each: [Vec<Bucket>; 2],
    all: [Bucket; 2],
}

impl IcmpLimit {
    pub(crate) fn new(keyed: Keyed) -> Self {
        let buckets = || vec![Bucket::default(); BUCKETS];
        Self { keyed, each: [buckets(), buckets()], all: [Bucket::default(); 2] }
    }

    /// Whether a message may be sent to `dst`; if so it is charged.
    pub(crate) fn allow(&mut self, now: Instant, kind: IcmpKind, dst: IpAddr, random: &mut Random) -> bool {
        let (each, all) = match kind {
            IcmpKind::Error => (ERRORS_EACH, ERRORS_ALL),
            IcmpKind::Echo => (ECHOES_EACH, ECHOES_ALL),
        };
        let at = self.keyed.hash_one(dst) as usize % BUCKETS;
        let tokens = 1 + random.below(3);
        self.each[kind as usize][at].take(now, each, 1) && self.all[kind as usize].take(now, all, tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> (IcmpLimit, Random) {
        (IcmpLimit::new(Keyed::new([1; 16], 0)), Random::new(Keyed::new([1; 16], 1), 0))
    }

    #[test]
    fn one_destination_gets_its_burst_and_then_its_rate() {
        let (mut limit, mut random) = limit();
        let dst: IpAddr = "192.0.2.1".parse().unwrap();
        let mut ask = |now| limit.allow(now, IcmpKind::Error, dst, &mut random);
        assert_eq!((0..100).filter(|_| ask(Instant::ZERO)).count(), 20);
        assert!(!ask(Instant::from_millis(99)));
        assert!(ask(Instant::from_millis(100)));
        assert!(!ask(Instant::from_millis(101)));
    }

    #[test]
    fn c07_all_destinations_together_get_a_number_that_cannot_be_predicted() {
        let burst = |seed| {
            let mut limit = IcmpLimit::new(Keyed::new([seed; 16], 0));
            let mut random = Random::new(Keyed::new([seed; 16], 1), 0);
            let sent =
                |i: u32| limit.allow(Instant::ZERO, IcmpKind::Error, IpAddr::V4(i.into()), &mut random);
            (0..10_000).map(sent).filter(|&sent| sent).count()
        };
        let counts: Vec<usize> = (0..8).map(burst).collect();
        assert!(counts.iter().all(|count| (67..=200).contains(count)), "{counts:?}");
        assert!(counts.iter().any(|count| *count != counts[0]), "{counts:?}");
    }
}
