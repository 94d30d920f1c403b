//! What TCP does when its connection is fused with the peer's, and when it goes on alone (TCP Fusion).
//!
//! A fused connection sends nothing: the peer reads the send ring itself. TCP keeps its state for the day on which segments
//! are wanted again, and then goes on from the cursors that were reached meanwhile, as if the last ACK had just been
//! exchanged. Called by the lane, which has both connections before it.

use firelane_frame::RingWriter;
use firelane_units::{Instant, SeqNum};

use crate::busy::Doing;
use crate::connection::{Connection, Rings};
use crate::segment::{CloseReason, Disposition};
use crate::send::NOWHERE;
use crate::state::State;
use crate::timers::{QuietTimer, SendTimer};

/// How far both directions of a connection are, as one end counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reached {
    /// Up to which cursor of our stream the peer has everything.
    pub sent: u64,
    /// Up to which cursor of its stream we have.
    pub received: u64,
}

impl Connection {
    /// Whether this end may be fused: nothing but text is under way, or to be sent.
    pub fn may_fuse(&self) -> bool {
        self.state == State::Established
            && self.send.fin == NOWHERE
            && self.pending.is_empty()
            && !self.is_orphan()
            && !self.receive.holds_ahead()
            && self.options.urgent_sent() <= self.flight.una()
    }

    /// Whether the connection is there and neither end has finished.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// What was sent and what has arrived: two ends between which nothing is under way say the same.
    pub fn reached(&self) -> Reached {
        Reached { sent: self.flight.nxt(), received: self.receive.nxt }
    }

    /// The peer has all that was sent, and from here on reads the rest itself: no segment and no clock of the sender is
    /// left.
    pub fn fuse(&mut self, now: Instant, rings: &mut Rings<'_>) {
        let Reached { sent, received } = self.reached();
        rings.send.release((sent - rings.send.cursor()) as usize);
        self.go_on_at(now, Reached { sent, received });
        self.timers.note_traffic(now);
    }

    /// The peer has read up to these cursors, and segments are wanted again. The windows follow with
    /// [`Connection::open_window`].
    pub fn part(&mut self, now: Instant, reached: Reached) {
        self.go_on_at(now, reached);
        self.timers.note_traffic(now);
    }

    fn go_on_at(&mut self, now: Instant, Reached { sent, received }: Reached) {
        if sent != self.flight.una() {
            self.progress_at = now;
        }
        self.flight.go_on_at(now, sent);
        self.now_does(now, Doing::Idle);
        self.send.settle(sent);
        self.send.persist_backoff = 0;
        self.timers.send = SendTimer::Off;
        self.receive.go_on_at(received);
        (self.heard_at, self.is_unreachable) = (now, false);
        self.keepalive_probes = 0;
    }

    /// What the peer would learn from an ACK of ours: its number, the number that it acknowledges, and its window field.
    pub fn announce(&mut self, ring: &RingWriter) -> (SeqNum, u16) {
        let field = self.receive.announce(ring, self.options.room());
        (self.send.space.seq(self.flight.nxt()), field)
    }

    /// What the peer's ACK would tell us of its window.
    pub fn open_window(&mut self, (seq, field): (SeqNum, u16)) {
        let window = u32::from(field) << self.send.scale;
        self.send.renew_window(seq, self.flight.una(), window);
    }

    /// As [`Connection::on_timer`] while the connection is fused and has come so far; `owes` says that more is written than
    /// the peer's buffer would hold. The peer lives: its end is in the same process. But its program may have stopped, and
    /// ours may have said how long it waits (RFC 5482).
    pub fn on_fused_timer(
        &mut self,
        now: Instant,
        reached: Reached,
        owes: bool,
        rings: &mut Rings<'_>,
    ) -> Disposition {
        if reached != self.reached() {
            self.go_on_at(now, reached);
            self.timers.note_traffic(now);
        }
        if self.timers.take_idle(now, self.heard_at) {
            self.shrink(now, rings);
        }
        if let QuietTimer::Keepalive(at) = self.timers.quiet
            && at <= now
        {
            self.timers.quiet = QuietTimer::Off;
            self.start_keepalive(now);
        }
        if rings.send.available() > 0 {
            // It is neither silent nor heard of when it will be.
            self.timers.note_traffic(now);
        }
        if !owes {
            self.progress_at = now;
        } else if self.options.user_timeout().is_some_and(|limit| now >= self.progress_at + limit) {
            return Disposition { reply: None, ..self.die(now, CloseReason::TimedOut) };
        }
        Disposition::default()
    }

    /// This end, which is fused, has given the connection up, and nobody is to be told.
    pub fn end_fused(&mut self) -> Disposition {
        self.forget();
        Disposition::closed(CloseReason::Aborted)
    }

    /// Something is written to a ring that had no storage: it is looked after again.
    pub fn note_fused_traffic(&mut self, now: Instant) {
        self.timers.note_traffic(now);
    }
}
