//! SYN cookies: a SYN-ACK whose number remembers the SYN, so that a flood costs no memory (RFC 4987 §3.6).
//!
//! Owns the code and its key; `syn.rs` says when a cookie is made and when one is believed. The code is Linux':
//!
//! ```text
//! cookie = H0(tuple) + IRS + (minute << 24) + ((H1(tuple, minute) + MSS index) mod 2^24)
//! ```
//!
//! so numbers still grow with the peer's, and one in 2^29 guesses passes within the two minutes that it lasts.
//! What else the SYN offered travels in the low six bits of our timestamp, which the peer echoes: window scale,
//! SACK, and one bit for ECN. A peer without timestamps gets a connection without them.

use core::hash::Hasher;

use firelane_units::{Instant, SeqNum};
use siphasher::sip::SipHasher24;

use crate::isn::TimestampClock;
use crate::tuple::Tuple;

/// How long the minute counter stands still.
const PERIOD_SECS: u64 = 60;
/// For how many counts a cookie is good, the one that made it included (Linux: `MAX_SYNCOOKIE_AGE`).
const AGE_MAX: u32 = 2;
/// Where the counter begins in the number.
const COUNT_SHIFT: u32 = 24;
const DATA_MASK: u32 = (1 << COUNT_SHIFT) - 1;

/// What four peers out of five announce, and what the rest can live with (Linux' tables).
const MSS_V4: [u16; 4] = [536, 1300, 1440, 1460];
const MSS_V6: [u16; 4] = [1220, 1420, 1440, 8940];

/// Milliseconds of our timestamp that give way to what the SYN offered.
const STAMP_BITS: u32 = 6;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
const STAMP_SACK: u32 = 1 << 4;
const STAMP_ECN: u32 = 1 << 5;
const STAMP_SCALE_MASK: u32 = 0xf;
/// The scale that says "none was offered": 14 is the largest there is.
const STAMP_NO_SCALE: u32 = 0xf;

/// What a SYN offered beside its MSS, as a timestamp remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offer {
    /// The peer's window scale, at most 14.
    pub(crate) scale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
}

impl Offer {
    /// Our timestamp for the SYN-ACK: the clock, up to 63 ms late, never ahead.
    pub(crate) fn stamp(self, clock: TimestampClock, now: Instant) -> u32 {
        let mut bits = self.scale.map_or(STAMP_NO_SCALE, |scale| u32::from(scale) & STAMP_SCALE_MASK);
        if self.sack {
            bits |= STAMP_SACK;
        }
        if self.ecn {
            bits |= STAMP_ECN;
        }
        let offset = clock.value(Instant::ZERO);
        let ticks = clock.value(now).wrapping_sub(offset);
        let mut stamp = ticks & !STAMP_MASK | bits;
        if ticks & STAMP_MASK < bits {
            stamp = stamp.wrapping_sub(1 << STAMP_BITS);
        }
        stamp.wrapping_add(offset)
    }

    /// What the timestamp remembers that the peer echoes.
    pub(crate) fn of_echo(clock: TimestampClock, echo: u32) -> Self {
        let bits = echo.wrapping_sub(clock.value(Instant::ZERO)) & STAMP_MASK;
        let scale = bits & STAMP_SCALE_MASK;
        Self {
            scale: (scale != STAMP_NO_SCALE).then_some(scale as u8),
            sack: bits & STAMP_SACK != 0,
            ecn: bits & STAMP_ECN != 0,
        }
    }
}

/// The key of a netstack's cookies, the same in every lane and for as long as the process lives.
pub(crate) struct Cookies {
    key: [u8; 16],
}

impl core::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Cookies(..)")
    }
}

impl Cookies {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The number of the SYN-ACK that answers a SYN numbered `irs` whose sender takes segments of `mss` bytes.
    pub(crate) fn make(&self, now: Instant, tuple: &Tuple, irs: SeqNum, mss: u16) -> SeqNum {
        let table = table(tuple);
        let index = table.iter().rposition(|&entry| entry <= mss).unwrap_or(0) as u32;
        let count = count(now);
        let data = self.word(tuple, Some(count)).wrapping_add(index) & DATA_MASK;
        irs + self.word(tuple, None).wrapping_add(count << COUNT_SHIFT).wrapping_add(data)
    }

    /// The MSS that `cookie` remembers, if we made it in the last two minutes for this tuple and this SYN.
    pub(crate) fn read(&self, now: Instant, tuple: &Tuple, irs: SeqNum, cookie: SeqNum) -> Option<u16> {
        let rest = cookie.0.wrapping_sub(irs.0).wrapping_sub(self.word(tuple, None));
        let count = count(now);
        let age = count.wrapping_sub(rest >> COUNT_SHIFT) & 0xff;
        if age >= AGE_MAX {
            return None;
        }
        let made = self.word(tuple, Some(count.wrapping_sub(age)));
        let index = rest.wrapping_sub(made) & DATA_MASK;
        table(tuple).get(index as usize).copied()
    }

    fn word(&self, tuple: &Tuple, count: Option<u32>) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&tuple.to_bytes());
        if let Some(count) = count {
            hasher.write_u32(count);
        }
        hasher.finish() as u32
    }
}

fn table(tuple: &Tuple) -> &'static [u16; 4] {
    if tuple.remote().is_ipv4() { &MSS_V4 } else { &MSS_V6 }
}

fn count(now: Instant) -> u32 {
    (now.millis() / 1000 / PERIOD_SECS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    fn tuple(v6: bool, port: u16) -> Tuple {
        let (local, remote) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        let end = |ip: &str, port| core::net::SocketAddr::new(ip.parse().unwrap(), port);
        Tuple::new(end(local, 80), end(remote, port))
    }

    proptest! {
        #[test]
        fn a_cookie_gives_the_nearest_smaller_mss_back(
            v6: bool, port in 1u16.., irs: u32, mss: u16, at in 0u64..1 << 40, age in 0u64..60_000,
        ) {
            let cookies = Cookies::new([3; 16]);
            let (tuple, irs, made) = (tuple(v6, port), SeqNum(irs), Instant::from_millis(at));
            let cookie = cookies.make(made, &tuple, irs, mss);
            let read = cookies.read(made + Duration::from_millis(age), &tuple, irs, cookie);
            let least = if v6 { 1220 } else { 536 };
            prop_assert!(read.is_some_and(|read| read <= mss.max(least)), "{read:?}");
            let later = made + Duration::from_secs(120);
            prop_assert_eq!(cookies.read(later, &tuple, irs, cookie), None);
        }

        #[test]
        fn a_timestamp_remembers_the_offer_and_is_never_ahead(
            offset: u32, ms in 0u64..1 << 40, scale in proptest::option::of(0u8..=14), sack: bool, ecn: bool,
        ) {
            let (clock, now) = (TimestampClock::from_offset(offset), Instant::from_millis(ms));
            let offer = Offer { scale, sack, ecn };
            let stamp = offer.stamp(clock, now);
            prop_assert_eq!(Offer::of_echo(clock, stamp), offer);
            prop_assert!(clock.value(now).wrapping_sub(stamp) < 64);
        }
    }

    #[test]
    fn each_announced_mss_has_its_index() {
        let (cookies, now) = (Cookies::new([1; 16]), Instant::from_secs(1000));
        for (v6, mss, read) in [
            (false, 0, 536),
            (false, 1299, 536),
            (false, 1300, 1300),
            (false, 1459, 1440),
            (false, 65_535, 1460),
            (true, 536, 1220),
            (true, 1440, 1440),
            (true, 8940, 8940),
        ] {
            let cookie = cookies.make(now, &tuple(v6, 9), SeqNum(7), mss);
            assert_eq!(cookies.read(now, &tuple(v6, 9), SeqNum(7), cookie), Some(read), "{mss}");
        }
    }

    /// S14: who sees cookies of his own connections learns nothing about another one's.
    #[test]
    fn s14_a_cookie_is_for_one_tuple_one_syn_and_one_key() {
        let (cookies, now) = (Cookies::new([1; 16]), Instant::from_secs(1000));
        let cookie = cookies.make(now, &tuple(false, 9), SeqNum(7), 1460);
        assert_eq!(cookies.read(now, &tuple(false, 10), SeqNum(7), cookie), None);
        assert_eq!(cookies.read(now, &tuple(false, 9), SeqNum(1 << 30), cookie), None);
        assert_eq!(Cookies::new([2; 16]).read(now, &tuple(false, 9), SeqNum(7), cookie), None);
    }

    /// R02: of a million guesses, as many pass as 4 indices and 2 minutes in 2^32 say: almost none.
    #[test]
    fn r02_guesses_do_not_pass() {
        let (cookies, now) = (Cookies::new([5; 16]), Instant::from_secs(1000));
        let guess = |n: u32| SeqNum(n.wrapping_mul(0x9e37_79b9));
        let passed = (0..1_000_000)
            .filter(|&n| cookies.read(now, &tuple(false, 9), SeqNum(0), guess(n)).is_some())
            .count();
        assert!(passed <= 2, "{passed}");
    }
}
