//! RFC 8985 §7: tail loss probes.
//!
//! When the last segments of a burst are lost, nothing arrives that could show it. After two round trips
//! without news, one segment more (new, or the last one again) provokes an acknowledgement, long before the
//! time-out. Owns the probe's deadline and the episode that it opens. Called by `recovery`.

use core::ops::Range;
use core::time::Duration;

use firelane_units::Instant;

use crate::rtt::Rtt;

/// How long a peer may hold back the ACK of a lone segment. Linux assumes 200 ms, which equals its least
/// time-out, so that a lone segment is never probed; the common delays are 40 ms (Linux) and 100 ms
/// (Solaris).
pub const MAX_ACK_DELAY: Duration = Duration::from_millis(100);

/// The probe timer never runs shorter: a wheel's tick would fire it at once.
pub const PROBE_MIN: Duration = Duration::from_millis(2);

/// The state of probing.
#[derive(Clone, Copy, Debug)]
pub struct Tlp {
    deadline: Instant,
    due: bool,
    /// The end of what was sent when the probe left, while its episode lasts.
    end: Option<u64>,
    is_retransmission: bool,
}

/// What an ACK says of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing yet, or nothing was lost.
    Nothing,
    /// The probe repaired a loss that nothing else showed: congestion control must hear of it.
    RepairedLoss,
}

impl Tlp {
    /// No probe.
    pub const fn new() -> Self {
        Self { deadline: Instant::FAR_FUTURE, due: false, end: None, is_retransmission: false }
    }

    /// The deadline; [`Instant::FAR_FUTURE`] if none runs.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the timer fired and the probe was not fetched yet.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Whether a probe's answer is awaited.
    pub fn in_episode(&self) -> bool {
        self.end.is_some()
    }

    /// Schedules a probe (§7.2), never after the time-out `rto_at`. `lone` says that at most one segment is
    /// out, whose ACK the peer may delay.
    #[inline]
    pub fn schedule(&mut self, now: Instant, rtt: &Rtt, lone: bool, rto_at: Instant) {
        const LONE: u64 = MAX_ACK_DELAY.as_nanos() as u64;
        const LEAST: u64 = PROBE_MIN.as_nanos() as u64;
        let Some(smoothed) = rtt.smoothed_nanos() else { return self.cancel() };
        let wait = 2 * smoothed + if lone { LONE } else { 0 };
        self.deadline = now.plus_nanos(wait.max(LEAST)).min(rto_at);
    }

    /// Stops the timer.
    pub fn cancel(&mut self) {
        self.deadline = Instant::FAR_FUTURE;
        self.due = false;
    }

    /// The timer fired.
    pub fn on_timer(&mut self) {
        self.deadline = Instant::FAR_FUTURE;
        self.due = true;
    }

    /// Gives the probe: `fresh` data if there are some, else `last`, the last segment sent (§7.3).
    pub fn take(&mut self, fresh: Option<Range<u64>>, last: Range<u64>) -> Range<u64> {
        self.due = false;
        self.is_retransmission = fresh.is_none();
        let probe = fresh.unwrap_or(last);
        self.end = Some(probe.end);
        probe
    }

    /// Whether an ACK ends the episode, and how (§7.4).
    pub fn on_ack(&mut self, ack: u64, dsack: Option<&Range<u64>>, bare_duplicate: bool) -> Verdict {
        let Some(end) = self.end else { return Verdict::Nothing };
        if ack < end {
            return Verdict::Nothing;
        }
        if !self.is_retransmission || dsack.is_some_and(|block| block.end == end) || bare_duplicate {
            self.end = None;
            return Verdict::Nothing;
        }
        if ack > end {
            self.end = None;
            return Verdict::RepairedLoss;
        }
        Verdict::Nothing
    }

    /// Whether a duplicate that the peer reports is the probe's, which no detector sent.
    pub fn explains(&self, block: &Range<u64>) -> bool {
        self.is_retransmission && self.end == Some(block.end)
    }

    /// Recovery began: the probe did its work.
    pub fn on_recovery(&mut self) {
        *self = Self::new();
    }
}

impl Default for Tlp {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::RtoLimits;

    fn rtt(millis: u64) -> Rtt {
        let mut rtt = Rtt::new(RtoLimits::default());
        rtt.on_sample(Instant::ZERO, Duration::from_millis(millis));
        rtt
    }

    #[test]
    fn two_round_trips_or_the_time_out() {
        let now = Instant::from_secs(1);
        let wait = |lone, millis, rto_millis| {
            let mut tlp = Tlp::new();
            tlp.schedule(now, &rtt(millis), lone, now + Duration::from_millis(rto_millis));
            tlp.deadline().saturating_since(now).as_millis()
        };
        assert_eq!(wait(false, 30, 400), 60);
        assert_eq!(wait(true, 30, 400), 160);
        assert_eq!(wait(true, 300, 500), 500, "not after the time-out");
        assert_eq!(wait(false, 0, 500), 2, "not before a tick");
        let mut untimed = Tlp::new();
        untimed.schedule(now, &Rtt::new(RtoLimits::default()), false, Instant::FAR_FUTURE);
        assert_eq!(untimed.deadline(), Instant::FAR_FUTURE);
    }

    #[test]
    fn how_an_episode_ends() {
        // (probe is new data, ack, dsack, duplicate) -> (verdict, episode over)
        let dsack = 4_000..5_000u64;
        for (fresh, ack, dsack, duplicate, verdict, over) in [
            (true, 6_000, None, false, Verdict::Nothing, true),
            (false, 4_000, None, false, Verdict::Nothing, false),
            (false, 5_000, None, false, Verdict::Nothing, false),
            (false, 5_000, Some(&dsack), false, Verdict::Nothing, true),
            (false, 5_000, None, true, Verdict::Nothing, true),
            (false, 6_000, None, false, Verdict::RepairedLoss, true),
            (false, 6_000, Some(&dsack), false, Verdict::Nothing, true),
        ] {
            let mut tlp = Tlp::new();
            tlp.on_timer();
            assert!(tlp.is_due());
            let probe = tlp.take(fresh.then_some(5_000..6_000), 4_000..5_000);
            assert_eq!(probe.start, if fresh { 5_000 } else { 4_000 });
            assert_eq!(tlp.on_ack(ack, dsack, duplicate), verdict, "{fresh} {ack} {dsack:?} {duplicate}");
            assert_eq!(!tlp.in_episode(), over, "{fresh} {ack} {dsack:?} {duplicate}");
        }
    }
}
