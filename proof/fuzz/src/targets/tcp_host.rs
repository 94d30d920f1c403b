//! A host for the TCP targets: one connection, its rings, and a program that does what it is told.
//!
//! It asks and answers the connection as the lane does, and asserts what every segment must obey: text comes
//! out of the ring, acknowledgments and promises never go back, no call sends without end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firelane_frame::{RingReader, RingWriter, byte_ring};
use firelane_tcp::{
    Birth, CloseReason, Connection, Disposition, Events, Rings, SegmentIn, SegmentOut, State, TcpConfig,
    TimeWaitAnswer, TimeWaitTable, TimestampClock, TransmitLimits, Tuple, reset_for,
};
use firelane_units::{Bytes, Instant, Mss, SeqNum};
use firelane_wire::{Ecn, TcpFlags, TcpOptions};

use crate::feedback::{TRACES, note};
use crate::input::Input;

/// A segment on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) seq: SeqNum,
    pub(super) ack: Option<SeqNum>,
    pub(super) flags: TcpFlags,
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: TcpOptions,
    pub(super) payload: Vec<u8>,
    pub(super) ecn: Ecn,
}

impl Packet {
    pub(super) fn as_segment(&self) -> SegmentIn<'_> {
        SegmentIn {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
            options: self.options,
            payload: &self.payload,
            ecn: self.ecn,
        }
    }

    /// Cut as a device cuts: FIN and PSH belong to the last piece.
    fn cut(self, bytes: usize) -> Vec<Self> {
        if bytes == 0 || self.payload.len() <= bytes {
            return vec![self];
        }
        let pieces = self.payload.len().div_ceil(bytes);
        let piece = |n: usize| {
            let text = &self.payload[n * bytes..self.payload.len().min((n + 1) * bytes)];
            let last = TcpFlags::FIN.with(TcpFlags::PSH);
            let flags = if n + 1 < pieces { self.flags.without(last) } else { self.flags };
            Self { seq: self.seq + (n * bytes) as u32, flags, payload: text.to_vec(), ..self.clone() }
        };
        (0..pieces).map(piece).collect()
    }
}

/// What a host is born with.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) opens: bool,
    pub(super) config: TcpConfig,
    pub(super) mss: u16,
    pub(super) large: u64,
    pub(super) cut: bool,
    pub(super) iss: u32,
    pub(super) send_ring: usize,
    pub(super) recv_ring: usize,
}

impl Setup {
    /// Chosen by the input.
    pub(super) fn of(input: &mut Input<'_>, opens: bool) -> Self {
        let rings = [65_536, 1, 7, 100, 1000, 4096, 20_000, 30_000];
        let bits = input.u8();
        Self {
            opens,
            config: TcpConfig {
                // Time is the input's to spend: only what a program asks for may end a connection.
                abort_timeout: Duration::from_secs(1 << 32),
                connect_timeout: Duration::from_secs(1 << 32),
                timestamps: bits & 1 == 0,
                sack: (bits & 2 == 0).into(),
                window_scaling: bits & 4 == 0,
                max_buffer: if bits & 8 == 0 { 6 << 20 } else { 1 << 16 },
                ..TcpConfig::default()
            },
            mss: input.pick(&[1460, 88, 100, 536, 1220, 9000]),
            large: input.pick(&[65_535, 1, 1460, 16_384]),
            cut: bits & 16 == 0,
            iss: u32::MAX - u32::from(input.u16()),
            send_ring: input.pick(&rings),
            recv_ring: input.pick(&rings),
        }
    }
}

/// The byte at `cursor` of every stream.
pub(super) fn byte_at(cursor: u64) -> u8 {
    (cursor ^ cursor >> 8 ^ cursor >> 16).wrapping_mul(31) as u8
}

pub(super) struct Host {
    pub(super) setup: Setup,
    pub(super) connection: Option<Connection>,
    config: Arc<TcpConfig>,
    send: RingReader,
    recv: RingWriter,
    writer: RingWriter,
    reader: RingReader,
    /// How much the program read.
    pub(super) received: u64,
    pub(super) peer_closed: bool,
    pub(super) shut: bool,
    pub(super) connected: bool,
    pub(super) closed: Option<CloseReason>,
    time_wait: TimeWaitTable,
    pub(super) in_time_wait: bool,
    pub(super) outbox: Vec<Packet>,
    /// How much the program will write at most.
    pub(super) write_limit: u64,
    /// Whether what is read must be [`byte_at`].
    pub(super) checks_text: bool,
    promised: Option<(SeqNum, SeqNum)>,
    /// Our window's shift, and whether both ends shift.
    scale: u8,
    scales: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("setup", &self.setup)
            .field("connection", &self.connection)
            .field("written", &self.written())
            .field("unsent", &self.send.available())
            .field("received", &self.received)
            .field("unread", &self.reader.available())
            .field("peer_closed", &self.peer_closed)
            .field("shut", &self.shut)
            .field("connected", &self.connected)
            .field("closed", &self.closed)
            .field("in_time_wait", &self.in_time_wait)
            .finish_non_exhaustive()
    }
}

fn tuple() -> Tuple {
    Tuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 4000).into())
}

impl Host {
    pub(super) fn new(setup: Setup) -> Self {
        let (writer, send) = byte_ring(setup.send_ring);
        let (recv, reader) = byte_ring(setup.recv_ring);
        Self {
            connection: None,
            config: Arc::new(setup.config.clone()),
            send,
            recv,
            writer,
            reader,
            received: 0,
            peer_closed: false,
            shut: false,
            connected: false,
            closed: None,
            time_wait: TimeWaitTable::new([3; 16], Duration::from_secs(60), 16),
            in_time_wait: false,
            outbox: Vec::new(),
            write_limit: u64::MAX,
            checks_text: true,
            promised: None,
            scale: 0,
            scales: false,
            setup,
        }
    }

    fn birth(&self) -> Birth {
        Birth {
            iss: SeqNum(self.setup.iss),
            clock: TimestampClock::from_offset(self.setup.iss ^ 0x5555),
            mss: Mss::clamped(self.setup.mss),
            peer_default: Mss::DEFAULT_V4,
        }
    }

    /// How much the program wrote.
    pub(super) fn written(&self) -> u64 {
        self.writer.cursor()
    }

    pub(super) fn is_done(&self) -> bool {
        self.closed.is_some() || self.in_time_wait
    }

    pub(super) fn poll_at(&self) -> Option<Instant> {
        self.connection.as_ref().and_then(Connection::poll_at)
    }

    pub(super) fn open(&mut self, now: Instant) {
        assert!(self.connection.is_none());
        self.connection = Some(Connection::open(&self.config, &self.birth(), now));
        self.flush(now);
    }

    /// Calls the connection, acts on what it says, and sends what it then has.
    pub(super) fn call(
        &mut self,
        now: Instant,
        what: impl FnOnce(&mut Connection, &mut Rings<'_>) -> Disposition,
    ) {
        let Some(mut connection) = self.connection.take() else { return };
        let out = what(&mut connection, &mut Rings { send: &mut self.send, recv: &mut self.recv });
        self.scales = connection.info(now).window_scales.is_some();
        note(("state", connection.state() as u8, out.events.contains(Events::CHALLENGE), out.dropped));
        self.connection = Some(connection);
        self.act(out);
        self.flush(now);
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        // One look may arm the next within the same instant, but not for ever.
        for _ in 0..100 {
            if self.poll_at().is_none_or(|at| at > now) {
                return;
            }
            self.call(now, |connection, rings| connection.on_timer(now, rings));
        }
        panic!("a timer that stays due at {now:?}: {:#?}", self.connection);
    }

    pub(super) fn on_packet(&mut self, now: Instant, packet: &Packet) {
        self.trace("gets", &packet.as_segment());
        if self.connection.is_none() {
            return self.on_stray(now, packet);
        }
        self.call(now, |connection, rings| connection.on_segment(now, &packet.as_segment(), rings));
    }

    /// A segment without a connection: TIME-WAIT, the listener, or a reset.
    fn on_stray(&mut self, now: Instant, packet: &Packet) {
        let seg = packet.as_segment();
        match self.time_wait.on_segment(now, &tuple(), &seg, true) {
            TimeWaitAnswer::Reply(out) => return self.post(out),
            TimeWaitAnswer::Drop(_) | TimeWaitAnswer::Reuse { .. } => return,
            TimeWaitAnswer::Unknown => {}
        }
        let listens = !self.setup.opens && !self.connected && !self.is_done();
        if listens && packet.flags == TcpFlags::SYN {
            self.connection = Some(Connection::from_syn(&self.config, &self.birth(), &seg, now));
            self.flush(now);
        } else if let Some(out) = reset_for(&seg) {
            self.post(out);
        }
    }

    fn act(&mut self, out: Disposition) {
        if out.events.contains(Events::CONNECTED) {
            assert!(!self.connected, "connected twice");
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
            assert!(self.closed.is_none() && out.events.contains(Events::CLOSED), "closed twice or silently");
            note(("closed", reason as u8));
            self.closed = Some(reason);
            self.connection = None;
        }
    }

    /// The program writes up to `count` bytes.
    pub(super) fn write(&mut self, now: Instant, count: u64) {
        if self.shut || self.is_done() {
            return;
        }
        let at = self.writer.cursor();
        let count = count.min(self.writer.free() as u64).min(self.write_limit.saturating_sub(at));
        let text: Vec<u8> = (at..at + count).map(byte_at).collect();
        assert_eq!(self.writer.write(&text) as u64, count);
        self.flush(now);
    }

    /// The program reads up to `count` bytes.
    pub(super) fn read(&mut self, now: Instant, count: u64) {
        let mut text = vec![0; count.min(self.reader.available() as u64) as usize];
        let count = self.reader.read(&mut text);
        for (at, &byte) in (self.received..).zip(&text[..count]) {
            assert!(!self.checks_text || byte == byte_at(at), "octet {at} of the stream is another");
        }
        self.received += count as u64;
        if count > 0 {
            self.call(now, |connection, rings| {
                connection.window_opened(now, rings);
                Disposition::default()
            });
        }
    }

    /// The program will write no more.
    pub(super) fn shutdown(&mut self, now: Instant) {
        self.shut |= self.connection.is_some();
        self.call(now, |connection, rings| connection.shutdown_send(now, rings));
    }

    /// Sends all that the connection has to say.
    fn flush(&mut self, now: Instant) {
        let Some(mut connection) = self.connection.take() else { return };
        let limits = TransmitLimits { max_segment_payload: Bytes(self.setup.large) };
        for count in 0.. {
            let rings = &mut Rings { send: &mut self.send, recv: &mut self.recv };
            let Some(out) = connection.poll_transmit(now, rings, &limits) else { break };
            assert!(count < 5000, "never stops sending: {connection:#?}");
            self.post(out);
        }
        connection.info(now);
        if connection.state() == State::TimeWait {
            let record = connection.time_wait_record(tuple()).expect("the connection is in TIME-WAIT");
            assert!(self.time_wait.insert(now, record));
            self.in_time_wait = true;
            return;
        }
        self.connection = Some(connection);
    }

    fn post(&mut self, out: SegmentOut) {
        let mut payload = vec![0; out.payload_len()];
        if !payload.is_empty() {
            let there = self.send.copy_at(out.payload.start, &mut payload);
            assert_eq!(there, payload.len(), "sent what is not there");
        }
        self.check_promises(&out);
        let SegmentOut { seq, ack, flags, window, urgent, options, segment_bytes, ecn, .. } = out;
        let packet = Packet { seq, ack, flags, window, urgent, options, payload, ecn };
        self.trace("sends", &packet.as_segment());
        self.outbox.extend(packet.cut(if self.setup.cut { usize::from(segment_bytes) } else { 0 }));
    }

    /// Text of an honest peer lies within what this host has promised.
    pub(super) fn check_allowed(&self, packet: &Packet) {
        if packet.payload.is_empty() {
            return;
        }
        let (_, edge) = self.promised.expect("text before anything was promised");
        let end = packet.seq + packet.payload.len() as u32;
        assert!(end.at_or_before(edge), "text to {end:?} beyond the window's edge {edge:?}");
    }

    /// With `FIRELANE_FUZZ_TRACE` set, what passes is printed: for replays.
    fn trace(&self, what: &str, seg: &SegmentIn<'_>) {
        if *TRACES {
            let SegmentIn { seq, ack, flags, window, options, payload, .. } = seg;
            let iss = self.setup.iss;
            eprintln!("{iss} {what} {flags} {seq:?}+{} {ack:?} win {window} {options:?}", payload.len());
        }
    }

    /// RFC 9293 §3.8.6.2.1: the window's right edge does not move left; acknowledgments do not go back.
    fn check_promises(&mut self, out: &SegmentOut) {
        let syn = out.flags.contains(TcpFlags::SYN);
        if out.flags.contains(TcpFlags::RST) {
            return;
        }
        if syn {
            self.scale = out.options.window_scale.unwrap_or(0);
            assert!(out.options.mss.is_some(), "a SYN announces an MSS");
        }
        let Some(ack) = out.ack else { return };
        let scale = if syn || !self.scales { 0 } else { self.scale };
        let edge = ack + (u32::from(out.window) << scale);
        let Some((last_ack, last_edge)) = self.promised.replace((ack, edge)) else { return };
        assert!(ack.at_or_after(last_ack), "the acknowledgment went back: {last_ack:?} {ack:?}");
        // RFC 7323 §2.4: the coarse field may hide less than one unit; a SYN-ACK cannot say more than 65,535.
        let slack = if syn { 1 << 30 } else { (1u32 << scale) - 1 };
        assert!((edge + slack).at_or_after(last_edge), "the window shrank: {last_edge:?} to {edge:?}");
        if last_edge.after(edge) {
            self.promised = Some((ack, last_edge));
        }
    }
}
