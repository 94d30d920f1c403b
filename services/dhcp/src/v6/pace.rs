//! How often a message is repeated (RFC 8415 §15, with the numbers of §7.6).
//!
//! Used by `client.rs` for every exchange: the wait doubles up to the longest, each time spread by a tenth.

use core::time::Duration;

use firelane_units::Instant;

use crate::random::Random;

/// One exchange: its number, since when it runs, and when it is asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    pub(crate) xid: u32,
    pub(crate) sent: u32,
    pub(crate) next: Instant,
    pub(crate) begun: Instant,
    wait: Duration,
}

impl Exchange {
    /// One that begins now.
    pub(crate) const fn new(now: Instant, random: &mut Random) -> Self {
        let xid = random.draw() as u32 & 0x00ff_ffff;
        Self { xid, sent: 0, next: now, begun: now, wait: Duration::ZERO }
    }

    /// Hundredths of a second since its first message (§21.9).
    pub(crate) fn elapsed(&self, now: Instant) -> u16 {
        u16::try_from(now.saturating_since(self.begun).as_millis() / 10).unwrap_or(u16::MAX)
    }
}

/// The numbers of one kind of message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// IRT.
    first: Duration,
    /// MRT; zero is none.
    pub(crate) longest: Duration,
    /// MRC; zero is none.
    tries: u32,
    /// MRD; zero is none.
    total: Duration,
    /// §18.2.1: the first wait for servers is not shortened.
    is_never_early: bool,
}

const fn pace(first: u64, longest: u64, tries: u32, total: u64) -> Pace {
    Pace {
        first: Duration::from_secs(first),
        longest: Duration::from_secs(longest),
        tries,
        total: Duration::from_secs(total),
        is_never_early: false,
    }
}

impl Pace {
    pub(crate) const SOLICIT: Self = Self { is_never_early: true, ..pace(1, 3600, 0, 0) };
    pub(crate) const REQUEST: Self = pace(1, 30, 10, 0);
    pub(crate) const CONFIRM: Self = pace(1, 4, 0, 10);
    /// CONFIRM of an address that is in use. We differ: a switch's port may forward only after half a minute, and a lease of
    /// another link may last for days.
    pub(crate) const VERIFY: Self = pace(1, 180, 0, 600);
    /// They end with T2 and with the lease, which is the client's to see.
    pub(crate) const RENEW: Self = pace(10, 600, 0, 0);
    pub(crate) const REBIND: Self = pace(10, 600, 0, 0);
    pub(crate) const INFORM: Self = pace(1, 3600, 0, 0);
    pub(crate) const RELEASE: Self = pace(1, 0, 4, 0);
    pub(crate) const DECLINE: Self = pace(1, 0, 4, 0);

    /// The same with another longest wait.
    pub(crate) const fn up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// When an exchange that began at `begun` is over, if nobody answers.
    pub(crate) fn end(&self, begun: Instant) -> Instant {
        if self.total.is_zero() { Instant::FAR_FUTURE } else { begun + self.total }
    }

    /// Whether it has been asked often or long enough.
    pub(crate) fn is_over(&self, now: Instant, it: &Exchange) -> bool {
        let is_long = !self.total.is_zero() && now.saturating_since(it.begun) >= self.total;
        is_long || (self.tries > 0 && it.sent >= self.tries)
    }

    /// A message was sent: when it is sent again.
    pub(crate) fn next(&self, now: Instant, it: Exchange, random: &mut Random) -> Exchange {
        let is_first = it.sent == 0;
        let base = if is_first { self.first } else { it.wait };
        let spread = base / 10;
        let mut wait = match is_first {
            true if self.is_never_early => base + random.up_to(spread),
            true => random.around(base, spread),
            false => random.around(base * 2, spread),
        };
        if !self.longest.is_zero() && wait > self.longest {
            wait = random.around(self.longest, self.longest / 10);
        }
        Exchange { sent: it.sent + 1, next: (now + wait).min(self.end(it.begun)), wait, ..it }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread_by_a_tenth() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let (mut now, mut least, mut most) = (Instant::from_secs(5), 1.0_f64, 1.1_f64);
            let mut it = Exchange::new(now, &mut random);
            for _ in 0..20 {
                it = Pace::SOLICIT.next(now, it, &mut random);
                let wait = it.next.saturating_since(now).as_secs_f64();
                assert!(
                    wait >= least.min(3240.0) - 1e-6 && wait <= most.min(3960.0) + 1e-6,
                    "{seed}: {wait}"
                );
                (least, most) = (least * 1.9, most * 2.1);
                now = it.next;
            }
        }
    }

    #[test]
    fn an_exchange_is_over_after_its_tries_or_its_time() {
        let mut random = Random::new(1);
        for (pace, tries, least, most) in
            [(Pace::REQUEST, 10, 100, 220), (Pace::CONFIRM, 0, 10, 10), (Pace::RELEASE, 4, 11, 19)]
        {
            let begun = Instant::from_secs(5);
            let (mut now, mut it) = (begun, Exchange::new(begun, &mut random));
            let mut sent = 0;
            while !pace.is_over(now, &it) {
                it = pace.next(now, it, &mut random);
                (now, sent) = (it.next, sent + 1);
            }
            let took = now.saturating_since(begun).as_secs();
            assert!(tries == 0 || sent == tries, "{pace:?} {sent}");
            assert!((least..=most).contains(&took), "{pace:?} {took}");
        }
    }
}
