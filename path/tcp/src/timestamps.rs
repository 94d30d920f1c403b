//! RFC 7323 §3 to §5: the timestamps option of one connection, and protection against wrapped sequence numbers.
//!
//! Owns TS.Recent. Called by `receive.rs` before the sequence check (PAWS) and by `send.rs` for every segment.
//! The values that we send come from [`TimestampClock`], which is secret per pair of endpoints.

use firelane_units::Instant;

use crate::isn::TimestampClock;

/// How many seconds TS.Recent protects: after so much silence the peer's clock may have wrapped (RFC 7323 §5.5).
const RECENT_LIFETIME: u32 = 24 * 24 * 3600;

fn seconds(now: Instant) -> u32 {
    (now.millis() / 1000) as u32
}

/// The timestamps of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    clock: TimestampClock,
    /// TS.Recent, the value to echo.
    recent: u32,
    /// When `recent` was learned, in whole seconds: the protection lasts for days.
    recent_at: u32,
    on: bool,
}

impl Timestamps {
    pub(crate) fn new(clock: TimestampClock, on: bool) -> Self {
        Self { clock, recent: 0, recent_at: 0, on }
    }

    /// Both ends use the option.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn recent(&self) -> u32 {
        self.recent
    }

    pub(crate) fn clock(&self) -> TimestampClock {
        self.clock
    }

    /// The peer's SYN decides whether the option is used, and gives the first value to echo.
    pub(crate) fn agree(&mut self, now: Instant, value: Option<(u32, u32)>) {
        self.on &= value.is_some();
        if let Some((value, _)) = value {
            (self.recent, self.recent_at) = (value, seconds(now));
        }
    }

    /// RFC 7323 §5.3 R1: the segment is an old duplicate.
    #[inline]
    pub(crate) fn is_old(&self, now: Instant, value: u32) -> bool {
        (value.wrapping_sub(self.recent) as i32) < 0
            && seconds(now).saturating_sub(self.recent_at) < RECENT_LIFETIME
    }

    /// RFC 7323 §4.3 (2): `value` came with a segment that covers the last acknowledgment number sent.
    #[inline]
    pub(crate) fn note(&mut self, now: Instant, value: u32) {
        if !self.is_old(now, value) {
            (self.recent, self.recent_at) = (value, seconds(now));
        }
    }

    /// What the next segment carries.
    #[inline]
    pub(crate) fn option(&self, now: Instant) -> Option<(u32, u32)> {
        self.on.then(|| (self.clock.value(now), self.recent))
    }

    /// When the segment left that the peer echoes.
    #[inline]
    pub(crate) fn echoed(&self, now: Instant, option: Option<(u32, u32)>) -> Option<Instant> {
        let (_, echo) = option.filter(|_| self.on)?;
        self.clock.sent_at(echo, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_value_is_old_until_the_protection_ends() {
        let mut stamps = Timestamps::new(TimestampClock::from_offset(0), true);
        let start = Instant::from_secs(10);
        stamps.agree(start, Some((u32::MAX, 0)));
        // (value, days later, old)
        for (value, days, old) in [
            (u32::MAX, 0, false),
            (u32::MAX - 1, 0, true),
            (0, 0, false),
            (1 << 31, 1, true),
            (u32::MAX - 1, 23, true),
            (u32::MAX - 1, 24, false),
        ] {
            let now = start + Duration::from_secs(days * 86_400);
            assert_eq!(stamps.is_old(now, value), old, "{value} after {days} days");
        }
    }

    #[test]
    fn an_old_value_is_not_echoed() {
        let mut stamps = Timestamps::new(TimestampClock::from_offset(7), true);
        let now = Instant::from_secs(1);
        stamps.agree(now, Some((100, 0)));
        stamps.note(now, 99);
        assert_eq!(stamps.option(now), Some((1007, 100)));
        stamps.note(now, 101);
        assert_eq!(stamps.option(now), Some((1007, 101)));
    }

    #[test]
    fn a_peer_without_the_option_turns_it_off() {
        let mut stamps = Timestamps::new(TimestampClock::from_offset(7), true);
        stamps.agree(Instant::ZERO, None);
        assert!(!stamps.is_on());
        assert_eq!(stamps.option(Instant::ZERO), None);
    }
}
