//! What a connection has to tell, to its socket and to the lane: the end of every call into TCP.
//!
//! Rings first, flags second, readiness last: an application that is told finds what it was told about.

use firelane_socket::{Accepted, Flags, ListenerClosed, Ready, SocketError};
use firelane_table::Numbered;
use firelane_tcp::{CloseReason, Disposition, Events};
use firelane_units::ConnId;

use super::conn::{Conn, Leaving};
use super::inbound::Inside;
use super::shard::Listening;
use crate::common::Common;
use crate::probes;

impl<D> Inside<'_, D> {
    /// Acts on what a call into TCP said, and makes the connection dirty if it may have something to send.
    pub(crate) fn conclude(&mut self, id: ConnId, told: Disposition) {
        let Disposition { events, reply, closed, dropped: _ } = told;
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        conn.show_state(&mut self.shard.tcp_counters);
        if events.contains(Events::CONNECTED) && !on_connected(id, conn, &self.shard.listening, self.common) {
            let told = conn.tcp().abort(self.common.now);
            return self.conclude(id, told);
        }
        if conn.stream.shared().words().flags().contains(Flags::DOUBTFUL) && !conn.tcp().doubts_way() {
            conn.stream.shared().words().clear_flags(Flags::DOUBTFUL);
        }
        if events.contains(Events::CONNECTED) || closed.is_some() {
            self.note_fast_open(id, closed);
        }
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if events.contains(Events::CONNECTED)
            && conn.listener().is_some()
            && (conn.is_local() || self.conns.crosses)
        {
            // A program's listener is told of it first (`join_accepted`): until then nobody answers for it.
            let is_told_first = self.common.outbox.accepted.last().is_some_and(|&(_, told)| told == id);
            match is_told_first && conn.stream.is_far() {
                true => conn.fusion = conn.fusion.wished(),
                false => self.conns.wish(id),
            }
        }
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if events.contains(Events::PEER_CLOSED) {
            conn.stream.shared().words().set_flags(Flags::PEER_CLOSED);
        }
        if events.contains(Events::URGENT)
            && let Some(mark) = conn.tcp().urgent_mark()
        {
            conn.stream.set_mark(mark);
        }
        if let Some(reason) = closed {
            on_closed(conn, reason);
        } else if events.contains(Events::TIME_WAIT) {
            conn.leaving = Leaving::TimeWait;
            // Where its record goes is there when the last acknowledgment is sent.
            let names = conn.stream.shared().names().filter(|_| !conn.is_local());
            names.iter().for_each(|it| {
                self.shard.time_wait.look_ahead(&firelane_tcp::Tuple::new(it.local, it.remote))
            });
        }
        self.tell(id, events, readiness(events, closed));
        if let Some(reply) = reply
            && (!events.contains(Events::CHALLENGE) || self.shard.challenges.allow(self.common.now))
        {
            self.send_reply(id, &reply);
        }
        self.conns.follow_up(id, self.common.now);
    }

    /// The same for a segment that was expected.
    #[inline]
    pub(crate) fn conclude_expected(&mut self, id: ConnId, events: Events) {
        self.tell(id, events, readiness(events, None));
        self.conns.follow_up(id, self.common.now);
    }

    /// Tells the application what it can do, and IP what has arrived.
    #[inline]
    fn tell(&mut self, id: ConnId, events: Events, ready: Ready) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if events.contains(Events::WRITABLE)
            && let Some(route) = conn.route()
        {
            // What the peer acknowledges has reached it: its neighbour entry needs no question.
            self.shard.ip.core.confirm_reachable(self.common.now, route);
        }
        if conn.stream.is_far() {
            self.attend(id, events);
        }
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if !ready.is_empty() {
            let token = conn.stream.tell(ready);
            self.common.outbox.tell(token, ready);
        }
    }

    /// What a connection of another process needs besides: storage to write to, and an end if it lies.
    #[cold]
    fn attend(&mut self, id: ConnId, events: Events) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if conn.leaving == Leaving::No && conn.stream.has_lied() {
            self.common.counters.shm_lies += 1;
            let told = conn.tcp().abort(self.common.now);
            return self.conclude(id, told);
        }
        // Who gets text will answer, and who has connected will ask.
        if events.contains(Events::READABLE) || events.contains(Events::CONNECTED) {
            conn.stream.attach();
        }
    }
}

fn readiness(events: Events, closed: Option<CloseReason>) -> Ready {
    if closed.is_some() {
        return Ready::ALL;
    }
    let mut ready = Ready::NONE;
    if events.contains(Events::URGENT) {
        ready |= Ready::URGENT;
    }
    if events.contains(Events::READABLE) || events.contains(Events::PEER_CLOSED) {
        ready |= Ready::READABLE;
    }
    if events.contains(Events::WRITABLE) || events.contains(Events::CONNECTED) {
        ready |= Ready::WRITABLE;
    }
    ready
}

/// The handshake is over: an active opener may write, a passive connection goes to its listener. `false` if
/// nobody accepts it.
fn on_connected<D>(
    id: ConnId,
    conn: &mut Conn,
    listening: &Numbered<Listening>,
    common: &mut Common<D>,
) -> bool {
    let words = conn.stream.shared().words();
    if words.flags().contains(Flags::CONNECTED) {
        // It began with the text of its SYN, and now its handshake is over, too.
        return true;
    }
    words.set_flags(Flags::CONNECTED);
    let Some((stream, socket)) = conn.hatch() else {
        probes::tcp_connect(|| conn.tuple());
        return true;
    };
    probes::tcp_accept(|| conn.tuple());
    let Some(listening) = listening.get(socket.0) else { return false };
    let names = stream.shared().names().expect("a passive connection is bound when it is made");
    match listening.slot.finish(Accepted { stream, names }) {
        Ok(token) => {
            common.outbox.accepted.extend(token.map(|token| (token, id)));
            true
        }
        Err(ListenerClosed) => false,
    }
}

/// Tells the socket that nothing more happens.
pub(crate) fn say_closed<D>(conn: &Conn, common: &mut Common<D>) {
    conn.stream.shared().words().set_flags(Flags::CLOSED);
    let token = conn.stream.tell(Ready::ALL);
    common.outbox.tell(token, Ready::ALL);
}

fn on_closed(conn: &mut Conn, reason: CloseReason) {
    let error = match reason {
        CloseReason::Finished => None,
        CloseReason::Refused => Some(SocketError::Refused),
        CloseReason::Reset => Some(SocketError::Reset),
        CloseReason::BrokenPipe => Some(SocketError::BrokenPipe),
        CloseReason::Unreachable => Some(SocketError::HostUnreachable),
        CloseReason::TimedOut => Some(SocketError::TimedOut),
        CloseReason::Aborted => Some(SocketError::Aborted),
    };
    if let Some(error) = error {
        conn.stream.fail(error);
    }
    conn.stream.shared().words().set_flags(Flags::CLOSED);
    conn.leaving = Leaving::Gone;
}
