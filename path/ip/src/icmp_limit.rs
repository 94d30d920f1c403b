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
    /// What a path's packets may be as large as: without it a sender does not find out why nothing arrives. Who opens many connections needs
    /// many at once, so this is no part of what errors have, which anybody's scan can use up. Linux has no limit for it.
    TooBig,
}

/// How many kinds there are.
const KINDS: usize = 3;

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
/// Sizes of paths: one for each connection that a busy host begins, or each datagram that it sends; few enough not to keep a lane busy.
const SIZES_EACH: Rate = Rate { per_second: 10_000, burst: 2000 };
const SIZES_ALL: Rate = Rate { per_second: 50_000, burst: 5000 };
/// Buckets for destinations; those that share one share its measure.
const BUCKETS: usize = 256;

/// A bucket as the time at which it is full (a virtual clock): no refill to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    pub(crate) fn take(&mut self, now: Instant, rate: Rate, tokens: u64) -> bool {
        let without = self.without(now, rate, tokens);
        if let Some(full_at) = without {
            self.full_at = full_at;
        }
        without.is_some()
    }

    /// Takes one token, if all together have so many left: whom the others leave nothing has not had his own.
    pub(crate) fn take_with(
        &mut self,
        all: &mut Self,
        now: Instant,
        (own_rate, all_rate): (Rate, Rate),
        tokens: u64,
    ) -> bool {
        let Some(full_at) = self.without(now, own_rate, 1) else { return false };
        let is_allowed = all.take(now, all_rate, tokens);
        if is_allowed {
            self.full_at = full_at;
        }
        is_allowed
    }

    /// When it would be full without so many tokens, if it has them.
    fn without(&self, now: Instant, rate: Rate, tokens: u64) -> Option<Instant> {
        let token = Duration::from_nanos(1_000_000_000 / rate.per_second);
        let full_at = self.full_at.max(now) + token * tokens as u32;
        (full_at <= now + token * rate.burst as u32).then_some(full_at)
    }
}

/// What one destination gets, and what all get.
const fn rates(kind: IcmpKind) -> (Rate, Rate) {
    match kind {
        IcmpKind::Error => (ERRORS_EACH, ERRORS_ALL),
        IcmpKind::Echo => (ECHOES_EACH, ECHOES_ALL),
        IcmpKind::TooBig => (SIZES_EACH, SIZES_ALL),
    }
}

/// The limits of a netstack's shard.
#[derive(Debug)]
pub(crate) struct IcmpLimit {
    keyed: Keyed,
    each: [Vec<Bucket>; KINDS],
    all: [Bucket; KINDS],
}

impl IcmpLimit {
    pub(crate) fn new(keyed: Keyed) -> Self {
        let buckets = || vec![Bucket::default(); BUCKETS];
        Self { keyed, each: [(); KINDS].map(|()| buckets()), all: [Bucket::default(); KINDS] }
    }

    /// Whether no message at all may be sent now, to whomever: who knows it first spares himself the making of one. In a flood of
    /// what would be answered with errors that is nearly always so.
    #[inline]
    pub(crate) fn is_spent(&self, now: Instant, kind: IcmpKind) -> bool {
        self.all[kind as usize].without(now, rates(kind).1, 1).is_none()
    }

    fn bucket_of(&self, dst: IpAddr) -> usize {
        self.keyed.hash_one(dst) as usize % BUCKETS
    }

    /// Whether a message may be sent to `dst`; if so it is charged.
    pub(crate) fn allow(&mut self, now: Instant, kind: IcmpKind, dst: IpAddr, random: &mut Random) -> bool {
        let at = self.bucket_of(dst);
        let tokens = 1 + random.below(3);
        let (bucket, all) = (&mut self.each[kind as usize][at], &mut self.all[kind as usize]);
        bucket.take_with(all, now, rates(kind), tokens)
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
    fn sizes_of_paths_are_no_part_of_what_errors_have() {
        let (mut limit, mut random) = limit();
        let dst: IpAddr = "192.0.2.1".parse().unwrap();
        let mut count =
            |kind, dst| (0..20_000).filter(|_| limit.allow(Instant::ZERO, kind, dst, &mut random)).count();
        let sizes = count(IcmpKind::TooBig, dst);
        assert!((1000..=2000).contains(&sizes), "{sizes}: one connection each of a busy host's");
        assert_eq!(count(IcmpKind::Error, dst), 20, "errors have theirs");
        for other in 0..1000u32 {
            count(IcmpKind::Error, IpAddr::V4(other.into()));
        }
        assert!(!limit.is_spent(Instant::from_secs(1), IcmpKind::TooBig));
        assert!(limit.is_spent(Instant::ZERO, IcmpKind::Error));
    }

    #[test]
    fn what_is_spent_allows_nobody_anything_and_what_is_not_may() {
        let (mut limit, mut random) = limit();
        let (mut allowed_when_spent, mut spent) = (0, 0);
        for n in 0..100_000u32 {
            let now = Instant::from_nanos(u64::from(n) * 20_000);
            let is_spent = limit.is_spent(now, IcmpKind::Error);
            let is_allowed = limit.allow(now, IcmpKind::Error, IpAddr::V4(n.into()), &mut random);
            spent += u32::from(is_spent);
            allowed_when_spent += u32::from(is_spent && is_allowed);
        }
        assert_eq!(allowed_when_spent, 0);
        assert!(
            (80_000..100_000).contains(&spent),
            "{spent}: 50,000 are asked for in a second, 1,000 tokens come"
        );
        assert!(!limit.is_spent(Instant::from_secs(3), IcmpKind::Error));
    }

    #[test]
    fn who_is_refused_because_of_others_has_not_had_his_own() {
        let (mut limit, mut random) = limit();
        let dst: IpAddr = "192.0.2.1".parse().unwrap();
        let mut others = (0u32..).map(|n| IpAddr::V4(n.into()));
        while !limit.is_spent(Instant::ZERO, IcmpKind::Error) {
            let other = others.find(|&other| limit.bucket_of(other) != limit.bucket_of(dst)).unwrap();
            limit.allow(Instant::ZERO, IcmpKind::Error, other, &mut random);
        }
        let mut ask = |now| (0..100).filter(|_| limit.allow(now, IcmpKind::Error, dst, &mut random)).count();
        assert_eq!(ask(Instant::ZERO), 0);
        assert_eq!(ask(Instant::from_millis(200)), 20, "his burst is whole");
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
