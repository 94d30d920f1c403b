//! A connection at rest: what must be remembered of one that is silent, in little more than half the memory.
//!
//! Most connections of a busy server say nothing for minutes. Once a second of silence has taken the books and the
//! rings' storage ([`Connection::shrink`]), [`Connection::rest`] folds the connection into an [`AtRest`], and
//! whatever happens to it next unfolds it first ([`AtRest::wake`]). Only an established connection with nothing
//! owed in either direction rests, so everything that is left out has one possible value; the law is that
//! folding and unfolding changes nothing. Called by the lane, after a connection's turn to send.

use core::mem::size_of;
use std::sync::Arc;

use firelane_units::{Instant, Mss};

use crate::busy::{Busy, Doing};
use crate::config::TcpConfig;
use crate::connection::{Connection, Pending, SocketOptions};
use crate::counts::{Counts, Troubles};
use crate::ecn::EcnState;
use crate::flight::{Flight, FlightRest};
use crate::receive::{ReceiveRest, ReceiveSide};
use crate::send::{SendRest, SendSide};
use crate::state::State;
use crate::timers::{QuietTimer, SendTimer, Timers};
use crate::timestamps::Timestamps;

/// An established connection that owes and is owed nothing.
#[derive(Debug)]
pub struct AtRest {
    config: Arc<TcpConfig>,
    flight: FlightRest,
    send: SendRest,
    receive: ReceiveRest,
    options: SocketOptions,
    stamps: Timestamps,
    ecn: EcnState,
    counts: Counts,
    busy: Busy,
    troubles: Option<Box<Troubles>>,
    heard_at: Instant,
    /// When keepalive looks again; far away if it is off.
    keepalive_at: Instant,
    peer_mss: Mss,
    active: bool,
}

// What an idle connection is, beside its place in the lane's tables.
const _: () = assert!(size_of::<AtRest>() <= 280);

impl Connection {
    /// The connection at rest, if it is quiet enough: to be used in its place.
    #[inline]
    pub fn rest(&mut self, now: Instant) -> Option<AtRest> {
        // Most calls end here: a connection that is in use has its look at the memory before it.
        if !self.timers.is_idle() || !self.may_rest(now) {
            return None;
        }
        self.fold()
    }

    fn may_rest(&self, now: Instant) -> bool {
        self.timers.send == SendTimer::Off
            && !self.awaits_storage
            && !matches!(self.timers.quiet, QuietTimer::FinWait2(_))
            && self.state == State::Established
            && self.flight.is_empty()
            && self.flight.pace_holds_until(now).is_none()
            && self.pending == Pending::default()
            && !self.receive.ack.awaits_answer(now)
            && self.keepalive_probes == 0
            && !self.options.orphan
            && self.challenged_at + self.config.challenge_interval <= now
    }

    /// What has no meaning while nothing is owed takes the value that it has after waking.
    fn settle(&mut self) {
        (self.progress_at, self.challenged_at) = (self.heard_at, Instant::ZERO);
        (self.challenges, self.syn_retries, self.is_unreachable) = (0, 0, false);
        self.flight.settle(&self.config.flight);
        self.send.settle(self.flight.nxt());
        self.receive.ack.rests();
        self.now_does(self.heard_at, Doing::Idle);
    }

    fn fold(&mut self) -> Option<AtRest> {
        self.settle();
        let (flight, send) = (self.flight.rest()?, self.send.rest(self.flight.nxt())?);
        let receive = self.receive.rest()?;
        let keepalive_at = self.timers.quiet.at();
        Some(AtRest {
            config: Arc::clone(&self.config),
            flight,
            send,
            receive,
            options: core::mem::take(&mut self.options),
            stamps: self.stamps,
            ecn: self.ecn,
            counts: self.counts,
            busy: self.busy,
            troubles: self.troubles.take(),
            heard_at: self.heard_at,
            keepalive_at,
            peer_mss: self.peer_mss,
            active: self.active,
        })
    }
}

impl AtRest {
    /// The connection as it was, to be used in the place of this.
    #[cold]
    pub fn wake(&mut self) -> Connection {
        let (options, troubles) = (core::mem::take(&mut self.options), self.troubles.take());
        self.unfold(options, troubles)
    }

    /// Looks at the connection as it is, and leaves it at rest.
    pub fn look<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        look(&self.unfold(self.options.clone(), self.troubles.clone()))
    }

    fn unfold(&self, options: SocketOptions, troubles: Option<Box<Troubles>>) -> Connection {
        let Self {
            flight,
            send,
            receive,
            stamps,
            ecn,
            counts,
            busy,
            heard_at,
            keepalive_at,
            peer_mss,
            active,
            ..
        } = *self;
        let flight = Flight::wake_from(flight, &self.config.flight);
        let mut timers = Timers::new();
        if keepalive_at != Instant::FAR_FUTURE {
            timers.quiet = QuietTimer::Keepalive(keepalive_at);
        }
        Connection {
            send: SendSide::wake_from(send, flight.nxt()),
            receive: ReceiveSide::wake_from(receive),
            flight,
            config: Arc::clone(&self.config),
            stamps,
            ecn,
            counts,
            busy,
            troubles,
            timers,
            heard_at,
            progress_at: heard_at,
            challenged_at: Instant::ZERO,
            options,
            peer_mss,
            state: State::Established,
            pending: Pending::default(),
            doing: Doing::Idle,
            challenges: 0,
            syn_retries: 0,
            keepalive_probes: 0,
            active,
            is_unreachable: false,
            awaits_storage: false,
        }
    }

    /// When it has to wake by itself, as [`Connection::poll_at`].
    pub fn poll_at(&self) -> Option<Instant> {
        (self.keepalive_at != Instant::FAR_FUTURE).then_some(self.keepalive_at)
    }

    /// Follows changed tunables from here on.
    pub fn set_config(&mut self, config: Arc<TcpConfig>) {
        self.config = config;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Keepalive;
    use crate::connection::{Birth, Rings};
    use crate::isn::TimestampClock;
    use crate::segment::{SegmentIn, SegmentOut};
    use crate::send::TransmitLimits;
    use core::time::Duration;
    use firelane_frame::{RingReader, RingWriter, byte_rings};
    use firelane_units::{Bytes, SeqNum};

    /// One end: a connection, its rings and the program's side of them.
    struct End {
        tcp: Connection,
        send: RingReader,
        recv: RingWriter,
        program: (RingWriter, RingReader),
    }

    impl End {
        fn new(make: impl FnOnce(&Arc<TcpConfig>, &Birth) -> Connection, iss: u32) -> Self {
            let clock = TimestampClock::from_offset(iss);
            let (mss, peer_default) = (Mss::clamped(1460), Mss::DEFAULT_V4);
            let birth = Birth { iss: SeqNum(iss), clock, mss, peer_default };
            let (program, (recv, send)) = byte_rings(1 << 16, 1 << 16);
            Self { tcp: make(&Arc::default(), &birth), send, recv, program }
        }

        fn take(&mut self, now: Instant, out: &SegmentOut, from: &RingReader) {
            let mut text = vec![0; out.payload_len()];
            from.copy_at(out.payload.start, &mut text);
            let seg = as_received(out, &text);
            self.tcp.on_segment(now, &seg, &mut Rings { send: &mut self.send, recv: &mut self.recv });
        }

        fn poll(&mut self, now: Instant) -> Option<SegmentOut> {
            let limits = TransmitLimits { max_segment_payload: Bytes(60_000) };
            self.tcp.poll_transmit(now, &mut Rings { send: &mut self.send, recv: &mut self.recv }, &limits)
        }

        fn tick(&mut self, now: Instant) {
            self.tcp.on_timer(now, &mut Rings { send: &mut self.send, recv: &mut self.recv });
        }
    }

    fn as_received<'a>(out: &SegmentOut, text: &'a [u8]) -> SegmentIn<'a> {
        SegmentIn {
            seq: out.seq,
            ack: out.ack,
            flags: out.flags,
            window: out.window,
            urgent: out.urgent,
            options: out.options,
            payload: text,
            ecn: out.ecn,
        }
    }

    /// Two ends that have shaken hands, `bytes` of text from the first to the second, and five silent seconds.
    fn quiet_pair(bytes: usize) -> (Instant, End, End) {
        let mut now = Instant::from_secs(100);
        let mut a = End::new(|config, birth| Connection::open(config, birth, now), 7000);
        let syn = a.poll(now).expect("a SYN");
        let mut b = End::new(
            |config, birth| Connection::from_syn(config, birth, &as_received(&syn, &[]), now),
            u32::MAX - 3,
        );
        for step in 0..60 {
            if step == 10 {
                a.program.0.write(&vec![b'x'; bytes]);
            }
            now += Duration::from_millis(100);
            for _ in 0..100 {
                let (from_a, from_b) = (a.poll(now), b.poll(now));
                from_a.iter().for_each(|out| b.take(now, out, &a.send));
                from_b.iter().for_each(|out| a.take(now, out, &b.send));
                if from_a.is_none() && from_b.is_none() {
                    break;
                }
            }
            let mut got = vec![0; bytes];
            b.program.1.read(&mut got);
            a.tick(now);
            b.tick(now);
        }
        (now, a, b)
    }

    /// Folding and unfolding changes nothing: every field has its value again.
    fn assert_survives_rest(end: &mut End, now: Instant) {
        end.tcp.settle();
        let before = format!("{:?}", end.tcp);
        let mut rest = end.tcp.rest(now).expect("it is quiet");
        assert_eq!(rest.poll_at(), end.tcp.poll_at());
        let info = rest.look(|tcp| tcp.info(now));
        end.tcp = rest.wake();
        assert_eq!(format!("{:?}", end.tcp), before);
        assert_eq!(info, end.tcp.info(now));
    }

    #[test]
    fn a_quiet_connection_is_the_same_after_its_rest() {
        for (bytes, keepalive) in [(0, None), (1, None), (50_000, Some(Keepalive::default()))] {
            let (now, mut a, mut b) = quiet_pair(bytes);
            for end in [&mut a, &mut b] {
                end.tcp.set_nodelay(true);
                end.tcp.set_keepalive(now, keepalive);
                assert_survives_rest(end, now);
                assert_eq!(end.tcp.poll_at().is_some(), keepalive.is_some());
            }
            a.program.0.write(b"more");
            let out = a.poll(now).expect("text");
            b.take(now, &out, &a.send);
            assert_eq!(b.program.1.available(), 4);
        }
    }

    /// Memory that another connection has left changes nothing: not what it is, not what it sends, not what it counts.
    #[test]
    fn a_connection_in_used_memory_is_as_in_new() {
        for bytes in [0, 1, 50_000] {
            let (now, mut new, mut peer) = quiet_pair(bytes);
            let (_, mut again, mut memory) = quiet_pair(bytes);
            // One that has something out, whose program chose something rare, and one that has never sent.
            memory.program.0.write(&[b'x'; 5000]);
            while memory.poll(now).is_some() {}
            memory.tcp.set_pacing_limit(now, Some(firelane_units::BitRate::from_bps(1_000_000)));
            memory.tcp.retire();
            let mut rest = again.tcp.rest(now).expect("it is quiet");
            memory.tcp.renew(rest.wake());
            (again.tcp, memory.tcp) = (memory.tcp, again.tcp);
            new.tcp.settle();
            let all = |end: &End| format!("{:?}", end.tcp);
            assert_eq!(all(&again), all(&new));
            for round in 0..3 {
                let now = now + Duration::from_millis(round);
                for end in [&mut new, &mut again] {
                    end.program.0.write(b"more");
                }
                let out = [&mut new, &mut again].map(|end| end.poll(now).expect("text"));
                assert_eq!(format!("{:?}", out[0]), format!("{:?}", out[1]));
                peer.take(now, &out[0], &new.send);
                let ack = peer.poll(now).expect("one of the first is acknowledged at once");
                for end in [&mut new, &mut again] {
                    end.take(now, &ack, &peer.send);
                }
                assert_eq!(all(&again), all(&new), "round {round}");
            }
        }
    }

    #[test]
    fn who_owes_or_is_owed_anything_does_not_rest() {
        let (now, mut a, mut b) = quiet_pair(10);
        assert!(a.tcp.rest(now + Duration::from_secs(1)).is_some());
        let (_, mut a, _) = quiet_pair(10);
        a.program.0.write(b"text");
        let out = a.poll(now).expect("text");
        assert!(a.tcp.rest(now).is_none(), "unacknowledged text");
        b.take(now, &out, &a.send);
        assert!(b.tcp.rest(now).is_none(), "a delayed acknowledgment");
        let (now, mut a, _) = quiet_pair(10);
        let rings = Rings { send: &mut a.send, recv: &mut a.recv };
        a.tcp.close(now, &rings);
        assert!(a.tcp.rest(now).is_none(), "a FIN");
    }
}
