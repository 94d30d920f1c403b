//! How long a connection had something to send, and what kept it from sending it: Linux' chronographs.
//!
//! It is busy from when there is text (or a FIN) to send until all of that is acknowledged. Busy time in which the peer's
//! window alone kept a segment back counts twice: as busy, and as limited by the window. Called where text leaves (`send`,
//! `small`), where something was to leave and did not, and where the peer acknowledges (`ack`). Milliseconds in 32 bits that
//! wrap, as Linux' jiffies do: a time that is short counts as what the clock has moved in it, so sums are right.

use firelane_units::Instant;

use crate::connection::{Connection, Rings};
use crate::counts::Troubles;

/// What a connection is doing about sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Doing {
    /// Nothing is to be sent or acknowledged.
    #[default]
    Idle,
    /// It sends, or waits for acknowledgements, its own window, its pace or its program.
    Sending,
    /// What is to be sent does not fit the peer's window.
    WindowLimited,
}

/// The time that has been spent so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Busy {
    /// All but idle, without what has passed of the present.
    total: u32,
    /// When the present began.
    since: u32,
}

/// What `TCP_INFO` says of it, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BusyTimes {
    /// Something was to be sent or acknowledged.
    pub busy: u32,
    /// Of that, what was to be sent did not fit the peer's window.
    pub window_limited: u32,
}

impl Connection {
    /// It does this from now on.
    #[inline]
    pub(crate) fn now_does(&mut self, now: Instant, doing: Doing) {
        if self.doing != doing {
            self.change_doing(now, doing);
        }
    }

    fn change_doing(&mut self, now: Instant, doing: Doing) {
        let now = now.millis() as u32;
        let spent = now.wrapping_sub(self.busy.since);
        if self.doing != Doing::Idle {
            self.busy.total = self.busy.total.wrapping_add(spent);
        }
        if self.doing == Doing::WindowLimited {
            let limited = &mut self.troubles().window_limited;
            *limited = limited.wrapping_add(spent);
        }
        (self.doing, self.busy.since) = (doing, now);
    }

    /// Nothing leaves now; if something is to, this says whose fault it is. The peer's window is to blame only where the
    /// congestion window has room (Linux asks in the same order).
    pub(crate) fn note_held_back(&mut self, now: Instant, rings: &Rings<'_>) {
        let unsent = self.unsent(rings);
        if unsent > 0 {
            let piece = unsent.min(self.flight.mss().bytes().into());
            let is_limited = self.send.room(self.flight.nxt()) < piece && self.flight.budget().0 >= piece;
            self.now_does(now, if is_limited { Doing::WindowLimited } else { Doing::Sending });
        }
    }

    /// Something was acknowledged.
    #[inline]
    pub(crate) fn note_acknowledged(&mut self, now: Instant, rings: &Rings<'_>) {
        if self.flight.is_empty() && rings.send.available() == 0 {
            self.now_does(now, Doing::Idle);
        }
    }

    /// What a connection has spent, up to now.
    pub(crate) fn busy_times(&self, now: Instant) -> BusyTimes {
        let spent = |doing: bool| if doing { (now.millis() as u32).wrapping_sub(self.busy.since) } else { 0 };
        let limited = self.troubles.as_deref().map_or(0, |it: &Troubles| it.window_limited);
        BusyTimes {
            busy: self.busy.total.wrapping_add(spent(self.doing != Doing::Idle)),
            window_limited: limited.wrapping_add(spent(self.doing == Doing::WindowLimited)),
        }
    }
}
