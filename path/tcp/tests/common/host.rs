//! A host: one connection, its rings, and a program that writes, reads and closes by a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firelane_frame::{RingReader, RingWriter, byte_ring};
use firelane_tcp::{
    Birth, CloseReason, Connection, Disposition, Events, FastOpenOffer, Keepalive, Rings, SegmentOut, State,
    TcpConfig, TimeWaitAnswer, TimeWaitTable, TimestampClock, TransmitLimits, Tuple, reset_for,
};
use firelane_units::{Bytes, Instant, Mss, SeqNum};
use firelane_wire::TcpFlags;

use super::random::Random;
use super::wire::Packet;

/// What the program behind a connection does.
#[derive(Clone, Debug)]
pub struct Script {
    /// Opens actively; otherwise it waits for a SYN.
    pub opens: bool,
    pub config: TcpConfig,
    pub mss: u16,
    /// The most text of one large segment.
    pub large: u64,
    /// Whether the wire cuts large segments (software segmentation) or carries them whole.
    pub cut: bool,
    pub iss: u32,
    pub send_ring: usize,
    pub recv_ring: usize,
    /// How much it sends in all, and how much per write.
    pub bytes: u64,
    pub write: usize,
    /// Time between writes and between reads; zero means at once.
    pub write_every: Duration,
    pub read_every: Duration,
    /// How much one read takes.
    pub read: usize,
    /// Closes its sending side without waiting for the peer's end.
    pub closes_first: bool,
    /// Aborts after so much was received.
    pub abort_after: Option<u64>,
    pub nodelay: bool,
    pub keepalive: Option<Keepalive>,
    /// Reads nothing for so long after the connection is made.
    pub stall: Duration,
    /// Its SYN carries text, or it takes that of a SYN.
    pub fast: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            opens: false,
            config: TcpConfig::default(),
            mss: 1460,
            large: 65_535,
            cut: true,
            iss: 1,
            send_ring: 1 << 16,
            recv_ring: 1 << 16,
            bytes: 0,
            write: 1 << 14,
            write_every: Duration::ZERO,
            read_every: Duration::ZERO,
            read: 1 << 16,
            closes_first: false,
            abort_after: None,
            nodelay: false,
            keepalive: None,
            stall: Duration::ZERO,
            fast: false,
        }
    }
}

pub struct Host {
    pub script: Script,
    pub connection: Option<Connection>,
    send: RingReader,
    recv: RingWriter,
    pub writer: RingWriter,
    pub reader: RingReader,
    pub left_to_write: u64,
    pub received: u64,
    next_write: Instant,
    next_read: Instant,
    peer_closed: bool,
    shut: bool,
    pub closed: Option<CloseReason>,
    pub connected: bool,
    time_wait: TimeWaitTable,
    in_time_wait: bool,
    pub outbox: Vec<Packet>,
    /// Every state that it was seen in, in order.
    pub visited: Vec<State>,
    pub laws: Laws,
    salt: u64,
    last_timer: (Instant, u32),
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("script", &self.script)
            .field("connection", &self.connection)
            .field("left_to_write", &self.left_to_write)
            .field("received", &self.received)
            .field("unsent", &self.send.available())
            .field("free", &self.recv.free())
            .field("closed", &self.closed)
            .field("in_time_wait", &self.in_time_wait)
            .field("peer_closed", &self.peer_closed)
            .field("shut", &self.shut)
            .finish_non_exhaustive()
    }
}

/// The byte at `cursor` of every stream of this test.
pub fn byte_at(cursor: u64) -> u8 {
    (cursor ^ cursor >> 8 ^ cursor >> 16).wrapping_mul(31) as u8
}

impl Host {
    pub fn new(script: Script, random: &mut Random) -> Self {
        let (writer, send) = byte_ring(script.send_ring);
        let (recv, reader) = byte_ring(script.recv_ring);
        Self {
            connection: None,
            send,
            recv,
            writer,
            reader,
            left_to_write: script.bytes,
            received: 0,
            next_write: Instant::ZERO,
            next_read: Instant::ZERO,
            peer_closed: false,
            shut: false,
            closed: None,
            connected: false,
            time_wait: TimeWaitTable::new([3; 16], Duration::from_secs(60), 16),
            in_time_wait: false,
            outbox: Vec::new(),
            visited: Vec::new(),
            laws: Laws::default(),
            salt: random.next(),
            script,
            last_timer: (Instant::ZERO, 0),
        }
    }

    fn birth(&self) -> Birth {
        Birth {
            iss: SeqNum(self.script.iss),
            clock: TimestampClock::from_offset(self.salt as u32),
            mss: Mss::clamped(self.script.mss),
            peer_default: Mss::DEFAULT_V4,
        }
    }

    fn tuple() -> Tuple {
        Tuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 4000).into())
    }

    pub fn state(&self) -> State {
        match &self.connection {
            Some(connection) => connection.state(),
            None if self.in_time_wait => State::TimeWait,
            None => State::Closed,
        }
    }

    pub fn is_done(&self) -> bool {
        (self.closed.is_some() || self.in_time_wait) && self.reader.available() == 0
    }

    /// When something happens here by itself.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let connection = match &self.connection {
            Some(connection) => connection.poll_at(),
            None if self.script.opens && self.closed.is_none() && !self.in_time_wait => Some(now),
            None => None,
        };
        let writes =
            self.connected && self.connection.is_some() && self.left_to_write > 0 && self.writer.free() > 0;
        let reads = self.reader.available() > 0;
        connection
            .into_iter()
            .chain(writes.then_some(self.next_write))
            .chain(reads.then_some(self.next_read))
            .min()
    }

    pub fn on_time(&mut self, now: Instant) {
        if self.connection.is_none() && self.script.opens && self.closed.is_none() && !self.in_time_wait {
            let (config, birth) = (Arc::new(self.script.config.clone()), self.birth());
            let offer = FastOpenOffer { option: None, text: true, mss: birth.peer_default };
            self.connection = Some(match self.script.fast {
                true => Connection::open_fast(&config, &birth, offer, now),
                false => Connection::open(&config, &birth, now),
            });
            if self.script.fast {
                self.write_piece();
            }
            self.set_options(now);
        }
        self.write(now);
        self.read(now);
        if let Some(mut connection) = self.connection.take() {
            if connection.poll_at().is_some_and(|at| at <= now) {
                // The same instant may need a few looks, not many.
                self.last_timer =
                    if self.last_timer.0 == now { (now, self.last_timer.1 + 1) } else { (now, 0) };
                assert!(self.last_timer.1 < 100, "a timer that stays due at {now:?}: {connection:#?}");
            }
            let out = connection.on_timer(now, &mut Rings { send: &mut self.send, recv: &mut self.recv });
            self.connection = Some(connection);
            self.act(now, out);
        }
        self.flush(now);
        // As in the lane: who is quiet rests, and wakes as if it had not.
        if let Some(mut rested) = self.connection.as_mut().and_then(|connection| connection.rest(now)) {
            self.connection = Some(rested.wake());
        }
    }

    fn set_options(&mut self, now: Instant) {
        self.next_read = now + self.script.stall;
        if let Some(connection) = &mut self.connection {
            connection.set_nodelay(self.script.nodelay);
            connection.set_keepalive(now, self.script.keepalive);
        }
    }

    pub fn on_packet(&mut self, now: Instant, packet: &Packet) {
        let seg = packet.as_segment();
        let Some(mut connection) = self.connection.take() else {
            self.on_stray(now, packet);
            return;
        };
        if std::env::var_os("TRACE").is_some() {
            let info = connection.info(now);
            eprintln!(
                "INFO {:?} {:?} rto {:?} rtt {:?} cwnd {:?} flight {:?} lost {:?}",
                info.state, info.phase, info.rto, info.rtt, info.congestion_window, info.in_flight, info.lost
            );
        }
        let out = connection.on_segment(now, &seg, &mut Rings { send: &mut self.send, recv: &mut self.recv });
        self.connection = Some(connection);
        self.act(now, out);
        self.read(now);
        self.flush(now);
    }

    /// A segment without a connection: TIME-WAIT, the listener, or a RST.
    fn on_stray(&mut self, now: Instant, packet: &Packet) {
        let seg = packet.as_segment();
        match self.time_wait.on_segment(now, &Self::tuple(), &seg, true) {
            TimeWaitAnswer::Reply(out) => return self.post(out),
            TimeWaitAnswer::Drop(_) | TimeWaitAnswer::Reuse { .. } => return,
            TimeWaitAnswer::Unknown => {}
        }
        let listens = !self.script.opens && self.closed.is_none() && !self.connected && !self.in_time_wait;
        if listens && packet.flags == TcpFlags::SYN {
            let (config, birth) = (Arc::new(self.script.config.clone()), self.birth());
            if self.script.fast && !seg.payload.is_empty() {
                let mut rings = Rings { send: &mut self.send, recv: &mut self.recv };
                let (connection, out) = Connection::accept_fast(&config, &birth, &seg, None, now, &mut rings);
                self.connection = Some(connection);
                self.set_options(now);
                self.act(now, out);
            } else {
                self.connection = Some(Connection::from_syn(&config, &birth, &seg, now));
                self.set_options(now);
            }
            self.flush(now);
        } else if let Some(out) = reset_for(&seg) {
            self.post(out);
        }
    }

    fn act(&mut self, now: Instant, out: Disposition) {
        if self.visited.last() != Some(&self.state()) {
            self.visited.push(self.state());
        }
        if out.events.contains(Events::CONNECTED) {
            // Who takes the text of a SYN is told when it comes, and when the handshake is over.
            assert!(!self.connected || (self.script.fast && !self.script.opens), "connected twice");
            self.connected = true;
        }
        if out.events.contains(Events::PEER_CLOSED) {
            assert!(!self.peer_closed, "the peer closed twice");
            self.peer_closed = true;
        }
        if let Some(reply) = out.reply {
            self.post(reply);
        }
        if let Some(reason) = out.closed {
            assert_eq!(self.closed, None, "closed twice");
            assert!(out.events.contains(Events::CLOSED));
            self.closed = Some(reason);
            self.connection = None;
        }
        self.program(now);
    }

    /// The program's decisions after each event.
    fn program(&mut self, now: Instant) {
        if self.connection.is_none() || !self.connected {
            return;
        }
        if self.script.abort_after.is_some_and(|limit| self.received >= limit) {
            let out = self.connection.as_mut().expect("checked").abort(now);
            return self.act(now, out);
        }
        let wrote_all = self.left_to_write == 0;
        let read_all = self.peer_closed && self.reader.available() == 0;
        if !self.shut && wrote_all && (self.script.closes_first || read_all) {
            self.shut = true;
            self.command(now, |connection, now, rings| connection.shutdown_send(now, rings));
        } else if self.shut && read_all && self.connection.is_some() && !self.in_time_wait {
            // A close after both halves are shut changes nothing that the peer could see.
            self.command(now, |connection, now, rings| connection.close(now, rings));
        }
    }

    fn command(
        &mut self,
        now: Instant,
        what: impl FnOnce(&mut Connection, Instant, &Rings<'_>) -> Disposition,
    ) {
        let Some(mut connection) = self.connection.take() else { return };
        let out = what(&mut connection, now, &Rings { send: &mut self.send, recv: &mut self.recv });
        self.connection = Some(connection);
        if out != Disposition::default() {
            self.act(now, out);
        }
    }

    fn write(&mut self, now: Instant) {
        while self.connected && self.connection.is_some() && self.left_to_write > 0 && self.next_write <= now
        {
            if self.write_piece() == 0 {
                break;
            }
            self.next_write = now + self.script.write_every;
        }
        self.program(now);
    }

    /// Writes what it writes at once, as far as there is room.
    fn write_piece(&mut self) -> usize {
        let at = self.writer.cursor();
        let len = (self.script.write as u64).min(self.left_to_write);
        let text: Vec<u8> = (at..at + len).map(byte_at).collect();
        let wrote = self.writer.write(&text);
        self.left_to_write -= wrote as u64;
        wrote
    }

    fn read(&mut self, now: Instant) {
        while self.next_read <= now {
            let mut text = vec![0; self.script.read.min(self.reader.available())];
            let count = self.reader.read(&mut text);
            if count == 0 {
                break;
            }
            for (n, &byte) in text[..count].iter().enumerate() {
                assert_eq!(byte, byte_at(self.received + n as u64), "octet {}", self.received + n as u64);
            }
            self.received += count as u64;
            self.next_read = now + self.script.read_every;
            if let Some(connection) = &mut self.connection {
                connection.window_opened(now, &Rings { send: &mut self.send, recv: &mut self.recv });
            }
        }
        self.program(now);
    }

    /// Sends all that the connection has to say.
    fn flush(&mut self, now: Instant) {
        let Some(mut connection) = self.connection.take() else { return };
        let limits = TransmitLimits { max_segment_payload: Bytes(self.script.large) };
        let mut count = 0;
        while let Some(out) =
            connection.poll_transmit(now, &mut Rings { send: &mut self.send, recv: &mut self.recv }, &limits)
        {
            count += 1;
            assert!(count < 100_000, "never stops sending: {connection:#?}");
            self.post(out);
        }
        if connection.state() == State::TimeWait {
            let record = connection.time_wait_record(Self::tuple()).expect("in TIME-WAIT");
            assert!(self.time_wait.insert(now, record));
            self.in_time_wait = true;
            return;
        }
        self.connection = Some(connection);
    }

    fn post(&mut self, out: SegmentOut) {
        let mut payload = vec![0; out.payload_len()];
        if !payload.is_empty() {
            assert_eq!(
                self.send.copy_at(out.payload.start, &mut payload),
                payload.len(),
                "sent what is not there"
            );
        }
        self.laws.note_sent(&out);
        let bytes = if self.script.cut { usize::from(out.segment_bytes) } else { 0 };
        self.outbox.extend(Packet::new(&out, payload).cut(bytes));
    }
}

/// What must be true of a host's segments, judged from what it has said itself.
#[derive(Debug, Default)]
pub struct Laws {
    scale: u8,
    peer_scales: bool,
    edge: Option<SeqNum>,
    ack: Option<SeqNum>,
    mss: u16,
    syn_window: Option<u16>,
}

impl Laws {
    /// A segment leaves this host: its promises may only grow.
    fn note_sent(&mut self, out: &SegmentOut) {
        if out.flags.contains(TcpFlags::RST) {
            return;
        }
        let syn = out.flags.contains(TcpFlags::SYN);
        if syn {
            self.scale = out.options.window_scale.unwrap_or(0);
            self.mss = out.options.mss.expect("a SYN announces an MSS");
        }
        let Some(ack) = out.ack else {
            self.syn_window = syn.then_some(out.window);
            return;
        };
        let scale = if syn || !self.peer_scales { 0 } else { self.scale };
        if let Some(last) = self.ack {
            assert!(ack.at_or_after(last), "the acknowledgment went back: {last:?} {ack:?}");
        }
        self.ack = Some(ack);
        let edge = ack + (u32::from(out.window) << scale);
        if let Some(last) = self.edge {
            // RFC 7323 §2.4: the coarse field may hide less than one unit of the edge.
            // A SYN-ACK that is repeated cannot say more than 65,535.
            let slack = if syn { 1 << 30 } else { (1u32 << scale) - 1 };
            assert!((edge + slack).at_or_after(last), "the window shrank: {last:?} to {edge:?}");
            self.edge = Some(if edge.after(last) { edge } else { last });
        } else {
            self.edge = Some(edge);
        }
    }

    /// A segment is on its way to this host: it may hold only what this host has allowed.
    pub fn check_allowed(&mut self, packet: &Packet) {
        if packet.flags.contains(TcpFlags::SYN) {
            self.peer_scales = packet.options.window_scale.is_some();
        }
        // The text of a SYN is sent on the chance that it is taken.
        if packet.payload.is_empty() || packet.flags.contains(TcpFlags::SYN) {
            return;
        }
        // Before its first acknowledgment it has promised what its SYN says, from a number that it did not know.
        let Some(edge) = self.edge.or_else(|| self.syn_window.map(|window| packet.seq + u32::from(window)))
        else {
            panic!("text before anything was promised");
        };
        let end = packet.seq + packet.payload.len() as u32;
        assert!(end.at_or_before(edge), "text to {end:?} beyond the window's edge {edge:?}");
    }
}
