//! The clock of what may not leave: a limit or a device below keeps it.
//!
//! Nothing of it is under way, so nobody has left anything unanswered, and the time-outs of the flight do not run. Neither the program's
//! patience nor the handshake's is longer for it: as in Linux, where what waits in a queue of the host has left as far as TCP knows. It
//! has no sample of the round trip, and is no loss. Called by whoever asks for segments when he may not.

use firelane_units::Instant;

use crate::connection::{Connection, Rings};
use crate::segment::{CloseReason, Disposition};
use crate::timers::SendTimer;

impl Connection {
    /// What it has to send may not leave: if nothing else says for how long it may wait, a clock runs from here on. Harmless if it does.
    pub fn hold(&mut self, now: Instant, rings: &Rings<'_>) {
        if self.timers.send != SendTimer::Off {
            return;
        }
        if self.pending.syn {
            // Of a first SYN since connect(2), of a repeated one since the time-out before.
            self.timers.send = SendTimer::Syn(now + self.flight.rtt().rto().duration());
            return;
        }
        let has_more = self.unsent(rings) > 0 || self.owes_fin();
        if self.state.is_synchronized() && self.flight.is_empty() && has_more {
            self.progress_at = now;
            self.timers.send = SendTimer::Held(now + self.patience());
        }
    }

    /// Somebody waits for longer or shorter than before.
    pub(crate) fn follow_patience(&mut self) {
        if let SendTimer::Held(_) = self.timers.send {
            self.timers.send = SendTimer::Held(self.progress_at + self.patience());
        }
    }

    /// Text or a FIN still waits.
    pub(crate) fn on_held_timer(&mut self, now: Instant) -> Option<Disposition> {
        let until = self.progress_at + self.patience();
        if until <= now {
            return Some(self.die(now, CloseReason::TimedOut));
        }
        self.timers.send = SendTimer::Held(until);
        None
    }

    /// A SYN still waits: for as long as it would have been repeated. It is looked at as rarely as that.
    pub(crate) fn on_held_syn_timer(&mut self, now: Instant) -> Option<Disposition> {
        let patience = self
            .options
            .syn_retries()
            .map_or(self.config.connect_timeout, |most| self.config.repeats_within(most));
        let until = self.progress_at + patience;
        if until <= now {
            self.forget();
            return Some(Disposition::closed(self.said_by_the_network(CloseReason::TimedOut)));
        }
        let waited = now.saturating_since(self.progress_at).max(self.flight.rtt().rto().duration());
        self.timers.send = SendTimer::Syn(until.min(now + waited));
        None
    }
}
