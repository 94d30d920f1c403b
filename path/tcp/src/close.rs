//! The ways a connection ends (RFC 9293 §3.6, §3.10.4, §3.10.5).
//!
//! Commands of the program: half close, close, abort; and what every end has in common. The FIN gets its place
//! in the stream the moment the program says that it has written everything; `send.rs` sends it when its turn
//! comes. Close returns at once: what was written is still delivered.

use core::time::Duration;

use firelane_units::{BitRate, Bytes, DropReason, Instant};
use firelane_wire::TcpFlags;

use crate::connection::{Connection, Rings};
use crate::segment::{CloseReason, Disposition, Events, SegmentOut};
use crate::send::NOWHERE;
use crate::state::{Event, State};
use crate::timers::{QuietTimer, SendTimer};

/// How long what a program that is gone has left to send may take to leave.
pub const LEAVES_WITHIN: Duration = Duration::from_secs(60);

/// Whether that leaves soon enough at the rate that it has chosen.
pub fn leaves_in_time(left: Bytes, rate: BitRate) -> bool {
    rate.time_for(left) <= LEAVES_WITHIN
}

impl Connection {
    /// The program will write no more (`shutdown(SHUT_WR)`): after what the send ring holds comes the FIN.
    pub fn shutdown_send(&mut self, now: Instant, rings: &Rings<'_>) -> Disposition {
        let mut out = Disposition::default();
        if self.send.fin != NOWHERE || self.state == State::Closed {
            return out;
        }
        if self.state != State::SynSent {
            self.send.fin = rings.send.cursor() + rings.send.available() as u64;
        }
        // RFC 9293 §3.10.4: in SYN-RECEIVED the close waits for ESTABLISHED; `establish` repeats it.
        self.enter(now, Event::Close, &mut out);
        out
    }

    /// The program reads no more (`shutdown(SHUT_RD)`), of which the peer hears nothing. Once it writes no more either, text that comes
    /// is as lost as after a close (RFC 9293 §3.6.1, RFC 1122 §4.2.2.13).
    pub fn shutdown_receive(&mut self) {
        self.options.read_shut = true;
    }

    /// Why text that comes now ends the connection, if nobody is left who could read it.
    pub fn lack_of_reader(&self) -> Option<CloseReason> {
        let has_finished = matches!(self.state, State::FinWait1 | State::FinWait2);
        match &self.options {
            options if options.orphan => Some(CloseReason::Aborted),
            options if options.read_shut && has_finished => Some(CloseReason::Reset),
            _ => None,
        }
    }

    /// The program has closed the socket: nobody will read or write it. Data that it did not read make it a
    /// reset, so that the peer does not take them for delivered (RFC 2525 §2.17, RFC 9293 SHLD-3).
    pub fn close(&mut self, now: Instant, rings: &Rings<'_>) -> Disposition {
        if rings.recv.unread() > 0 && self.state != State::Closed {
            return self.abort(now);
        }
        self.options.orphan = true;
        let left = Bytes(rings.send.available() as u64);
        // A program that is gone does not make its text wait for ever.
        if self.options.pacing_limit().is_some_and(|limit| !leaves_in_time(left, limit)) {
            self.set_pacing_limit(now, None);
        }
        let out = self.shutdown_send(now, rings);
        if self.state == State::FinWait2 {
            self.timers.quiet = QuietTimer::FinWait2(now + self.fin_wait_2_timeout());
        }
        out
    }

    /// Ends the connection now and tells the peer with a RST (RFC 9293 §3.10.5; `SO_LINGER` with zero).
    pub fn abort(&mut self, now: Instant) -> Disposition {
        if self.state == State::Closed {
            return Disposition::default();
        }
        let mut out = self.die(now, CloseReason::Aborted);
        out.dropped = None;
        out
    }

    /// Ends the connection because of a segment that cannot be honoured.
    pub(crate) fn reset_now(
        &mut self,
        now: Instant,
        reason: CloseReason,
        dropped: DropReason,
    ) -> Disposition {
        let mut out = self.die(now, reason);
        out.dropped = Some(dropped);
        out
    }

    /// Ends the connection for `reason`. The peer gets a RST if it knows of the connection (RFC 9293 §3.10.5:
    /// SYN-RECEIVED to FIN-WAIT-2 and CLOSE-WAIT; in the others it has said everything and hears nothing).
    pub(crate) fn die(&mut self, now: Instant, reason: CloseReason) -> Disposition {
        use State as S;
        let tell =
            matches!(self.state, S::SynReceived | S::Established | S::FinWait1 | S::FinWait2 | S::CloseWait);
        let mut out = Disposition::closed(self.said_by_the_network(reason));
        if tell {
            let ack = self.receive.space.seq(self.receive.nxt);
            let mut reset = SegmentOut::control(self.seq_without_text(), Some(ack), TcpFlags::RST);
            // RFC 7323 §3.2: SHOULD, so that a peer that checks them stricter than it must believes it.
            reset.options.timestamps = self.stamps.option(now);
            out.reply = Some(reset);
        }
        self.forget();
        out
    }

    /// Why a wait ended: the network may have said more than silence does.
    pub(crate) fn said_by_the_network(&self, reason: CloseReason) -> CloseReason {
        if reason == CloseReason::TimedOut && self.is_unreachable { CloseReason::Unreachable } else { reason }
    }

    /// Stops every clock; nothing leaves any more.
    pub(crate) fn forget(&mut self) {
        self.state = State::Closed;
        self.timers.send = SendTimer::Off;
        self.timers.quiet = QuietTimer::Off;
    }

    /// Moves to the next state and does what belongs to having entered it.
    pub(crate) fn enter(&mut self, now: Instant, event: Event, out: &mut Disposition) {
        let Some(next) = self.state.on(event) else { return };
        self.state = next;
        match next {
            State::FinWait2 if self.options.orphan => {
                self.timers.quiet = QuietTimer::FinWait2(now + self.fin_wait_2_timeout());
            }
            State::TimeWait => {
                self.timers.quiet = QuietTimer::Off;
                self.timers.send = SendTimer::Off;
                out.events |= Events::TIME_WAIT;
            }
            State::Closed => {
                self.forget();
                out.events |= Events::CLOSED;
                out.closed = Some(CloseReason::Finished);
            }
            _ => {}
        }
    }
}
