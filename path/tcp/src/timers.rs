//! The clocks of one connection, and the single deadline that the lane's wheel sees.
//!
//! Loss detection keeps its own deadline (`flight.rs`) and the delayed ACK its own (`delayed_ack.rs`); here are
//! the rest, and the least of all. Clocks that exclude each other are one sum. Keepalive is lazy: it leaves
//! its deadline where it is when traffic makes it moot, and looks again when it comes, so that segments do not
//! move wheel entries about.

use firelane_units::Instant;

/// What the sender waits for while nothing of its stream is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SendTimer {
    /// Nothing.
    #[default]
    Off,
    /// The SYN or SYN-ACK is sent again (RFC 6298 §5).
    Syn(Instant),
    /// The peer's window is too small for what waits (RFC 9293 §3.8.6.1).
    Persist(Instant),
}

impl SendTimer {
    /// When it ends.
    #[inline]
    pub(crate) fn at(self) -> Instant {
        match self {
            Self::Off => Instant::FAR_FUTURE,
            Self::Syn(at) | Self::Persist(at) => at,
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

/// The clocks beside those of loss detection and the delayed ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers {
    pub(crate) send: SendTimer,
    pub(crate) quiet: QuietTimer,
}

impl Timers {
    /// The earliest of these and of `others`, or `None` if nothing runs.
    #[inline]
    pub(crate) fn earliest(&self, others: [Option<Instant>; 2]) -> Option<Instant> {
        let at = others
            .into_iter()
            .flatten()
            .fold(self.send.at().min(self.quiet.at()), |least, other| least.min(other));
        (at != Instant::FAR_FUTURE).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_the_earliest_clock() {
        let at = Instant::from_millis;
        let mut timers = Timers::default();
        assert_eq!(timers.earliest([None, None]), None);
        timers.quiet = QuietTimer::Keepalive(at(50));
        assert_eq!(timers.earliest([None, Some(at(60))]), Some(at(50)));
        timers.send = SendTimer::Persist(at(30));
        assert_eq!(timers.earliest([Some(at(40)), None]), Some(at(30)));
        assert_eq!(timers.earliest([Some(at(40)), Some(at(1))]), Some(at(1)));
    }
}
