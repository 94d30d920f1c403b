//! The clocks of one connection, and the single deadline that the lane's wheel sees.
//!
//! Loss detection keeps its own deadline (`flight.rs`) and the delayed ACK its own (`delayed_ack.rs`); here are
//! the rest, and the least of all. Clocks that exclude each other are one sum. Keepalive is lazy: it leaves
//! its deadline where it is when traffic makes it moot, and looks again when it comes, so that segments do not
//! move wheel entries about.

use core::time::Duration;

use firelane_units::Instant;

/// What the sender waits for while nothing of its stream is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SendTimer {
    /// Nothing.
    #[default]
    Off,
    /// The SYN or SYN-ACK is sent again (RFC 6298 §5), or has waited for long enough to leave.
    Syn(Instant),
    /// Text or a FIN has waited for long enough to leave.
    Held(Instant),
    /// The peer's window is too small for what waits (RFC 9293 §3.8.6.1).
    Persist(Instant),
}

impl SendTimer {
    /// When it ends.
    #[inline]
    pub(crate) fn at(self) -> Instant {
        match self {
            Self::Off => Instant::FAR_FUTURE,
            Self::Syn(at) | Self::Held(at) | Self::Persist(at) => at,
        }
    }
}

/// What waits for the peer to say anything at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum QuietTimer {
    /// Nothing.
    #[default]
    Off,
    /// Keepalive (RFC 9293 §3.8.4).
    Keepalive(Instant),
    /// FIN-WAIT-2 with nobody left to read.
    FinWait2(Instant),
}

impl QuietTimer {
    /// When it ends.
    #[inline]
    pub(crate) fn at(self) -> Instant {
        match self {
            Self::Off => Instant::FAR_FUTURE,
            Self::Keepalive(at) | Self::FinWait2(at) => at,
        }
    }
}

/// How long after traffic an idle connection gives its memory back.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The clocks beside those of loss detection and the delayed ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    pub(crate) send: SendTimer,
    pub(crate) quiet: QuietTimer,
    /// When to look whether the connection has gone idle; far away if nothing happened since the last look.
    idle: Instant,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { send: SendTimer::Off, quiet: QuietTimer::Off, idle: Instant::FAR_FUTURE }
    }

    /// Whether nothing has happened since the last look at the memory.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.idle == Instant::FAR_FUTURE
    }

    /// Something happened. The look that is already due is not put off: at worst it finds traffic.
    #[inline]
    pub(crate) fn note_traffic(&mut self, now: Instant) {
        if self.idle == Instant::FAR_FUTURE {
            self.idle = now + IDLE_AFTER;
        }
    }

    /// Whether it is time to look at the memory, be the connection idle or not.
    #[inline]
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        self.idle <= now
    }

    /// Whether the look at the memory is due; `heard_at` is when traffic was last seen.
    pub(crate) fn take_idle(&mut self, now: Instant, heard_at: Instant) -> bool {
        if self.idle > now {
            return false;
        }
        let quiet_until = heard_at + IDLE_AFTER;
        self.idle = if quiet_until > now { quiet_until } else { Instant::FAR_FUTURE };
        quiet_until <= now
    }

    /// The look at the memory has left some that is of no use from then on, or has not found what somebody waits for.
    pub(crate) fn look_again(&mut self, at: Instant) {
        self.idle = self.idle.min(at);
    }

    /// The earliest of these and of `other`, or `None` if nothing runs.
    #[inline]
    pub(crate) fn earliest(&self, other: Instant) -> Option<Instant> {
        let at = self.send.at().min(self.quiet.at()).min(self.idle).min(other);
        (at != Instant::FAR_FUTURE).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_the_earliest_clock() {
        let at = Instant::from_millis;
        let mut timers = Timers::new();
        assert_eq!(timers.earliest(Instant::FAR_FUTURE), None);
        timers.quiet = QuietTimer::Keepalive(at(50));
        assert_eq!(timers.earliest(at(60)), Some(at(50)));
        timers.send = SendTimer::Persist(at(30));
        assert_eq!(timers.earliest(at(40)), Some(at(30)));
        assert_eq!(timers.earliest(at(1)), Some(at(1)));
    }

    #[test]
    fn memory_is_looked_at_once_after_the_traffic() {
        let at = Instant::from_millis;
        let mut timers = Timers::new();
        timers.note_traffic(at(0));
        timers.note_traffic(at(900));
        assert_eq!(timers.earliest(Instant::FAR_FUTURE), Some(at(1000)));
        assert!(!timers.take_idle(at(1000), at(900)));
        assert_eq!(timers.earliest(Instant::FAR_FUTURE), Some(at(1900)));
        assert!(timers.take_idle(at(1900), at(900)));
        assert_eq!(timers.earliest(Instant::FAR_FUTURE), None);
    }
}
