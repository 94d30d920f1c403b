//! One connection on the bench: the test is its peer, its program and its clock.
//!
//! Numbers are relative to the two initial ones, so the first octet of text is 1, as in packet scripts. What the
//! connection sends is shown as one line per segment.

use std::sync::Arc;
use std::time::Duration;

use firelane_frame::{RingReader, RingWriter, byte_ring};
use firelane_tcp::{
    Birth, Connection, Disposition, Events, FastOpenOffer, Rings, SegmentIn, SegmentOut, State, TcpConfig,
    TimestampClock, TransmitLimits, Willing,
};
use firelane_units::{Bytes, Instant, Mss, SeqNum};
use firelane_wire::{Ecn, SackBlocks, TcpFlags, TcpOptions};

/// Our and the peer's initial sequence numbers: both streams cross the wrap.
const ISS: SeqNum = SeqNum(u32::MAX - 500);
const IRS: SeqNum = SeqNum(u32::MAX - 100);

pub const ACK: TcpFlags = TcpFlags::ACK;
pub const FIN: TcpFlags = TcpFlags::FIN.with(TcpFlags::ACK);
pub const RST: TcpFlags = TcpFlags::RST;
pub const SYN: TcpFlags = TcpFlags::SYN;
pub const URG: TcpFlags = TcpFlags::URG.with(TcpFlags::ACK);

/// Nothing was sent.
pub const NOTHING: [&str; 0] = [];

/// When tests without a connection begin.
pub const START: Instant = Instant::from_secs(1_000);

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A segment of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub flags: TcpFlags,
    pub seq: u32,
    pub ack: Option<u32>,
    pub window: u16,
    pub text: usize,
    pub urgent: u16,
    pub options: TcpOptions,
    pub ecn: Ecn,
}

impl Peer {
    pub fn new(flags: TcpFlags, seq: u32) -> Self {
        let ack = flags.contains(ACK).then_some(1);
        Self {
            flags,
            seq,
            ack,
            window: 10_000,
            text: 0,
            urgent: 0,
            options: TcpOptions::EMPTY,
            ecn: Ecn::NotCapable,
        }
    }

    pub fn acks(self, ack: u32) -> Self {
        Self { ack: Some(ack), flags: self.flags.with(ACK), ..self }
    }

    pub fn win(self, window: u16) -> Self {
        Self { window, ..self }
    }

    pub fn text(self, text: usize) -> Self {
        Self { text, ..self }
    }

    pub fn stamps(self, value: u32, echo: u32) -> Self {
        Self { options: TcpOptions { timestamps: Some((value, echo)), ..self.options }, ..self }
    }

    pub fn ecn(self, ecn: Ecn) -> Self {
        Self { ecn, ..self }
    }

    pub fn options(self, options: TcpOptions) -> Self {
        Self { options, ..self }
    }

    /// SACK blocks of our stream.
    pub fn sacks(self, blocks: &[(u32, u32)]) -> Self {
        let sack: SackBlocks = blocks.iter().map(|&(from, to)| (ISS + from, ISS + to)).collect();
        Self { options: TcpOptions { sack, ..self.options }, ..self }
    }
}

pub struct Lab {
    pub connection: Connection,
    pub now: Instant,
    pub writer: RingWriter,
    pub reader: RingReader,
    send: RingReader,
    recv: RingWriter,
    pub limits: TransmitLimits,
    /// When a timer last had something to tell.
    pub told_at: Instant,
}

/// Without options, so that lines stay short and segments are 1,000 octets.
pub fn plain() -> TcpConfig {
    TcpConfig { timestamps: false, sack: Willing::Never, window_scaling: false, ..TcpConfig::default() }
}

impl Lab {
    fn birth() -> Birth {
        let clock = TimestampClock::from_offset(0);
        Birth { iss: ISS, clock, mss: Mss::clamped(1000), peer_default: Mss::DEFAULT_V4 }
    }

    fn with(now: Instant, connection: Connection, ring: usize) -> Self {
        let (writer, send) = byte_ring(1 << 20);
        let (recv, reader) = byte_ring(ring);
        let limits = TransmitLimits { max_segment_payload: Bytes(1) };
        Self { connection, now, writer, reader, send, recv, limits, told_at: now }
    }

    /// In SYN-SENT, nothing sent yet.
    pub fn opening(config: TcpConfig) -> Self {
        let now = Instant::from_secs(100);
        Self::with(now, Connection::open(&Arc::new(config), &Self::birth(), now), 10_000)
    }

    /// The same, and the SYN will bring text.
    pub fn opening_fast(config: TcpConfig) -> Self {
        let now = Instant::from_secs(100);
        let offer = FastOpenOffer { option: None, text: true, mss: Mss::clamped(1000) };
        Self::with(now, Connection::open_fast(&Arc::new(config), &Self::birth(), offer, now), 10_000)
    }

    /// In SYN-RECEIVED after a SYN with `options`.
    pub fn answering(config: TcpConfig, options: TcpOptions) -> Self {
        let now = Instant::from_secs(100);
        let syn = SegmentIn {
            seq: IRS,
            ack: None,
            flags: SYN,
            window: 10_000,
            urgent: 0,
            options,
            payload: &[],
            ecn: Ecn::NotCapable,
        };
        let connection = Connection::from_syn(&Arc::new(config), &Self::birth(), &syn, now);
        Self::with(now, connection, 10_000)
    }

    /// ESTABLISHED, with a receive ring of `ring` octets and delayed ACKs from the first segment on.
    pub fn established_with(config: TcpConfig, options: TcpOptions, ring: usize) -> Self {
        let mut lab = Self::answering(config, TcpOptions { mss: Some(1000), ..options });
        (lab.recv, lab.reader) = byte_ring(ring);
        lab.sent();
        let stamps = options.timestamps.map(|(value, _)| (value, lab.clock()));
        let out = lab.get(Peer::new(ACK, 1).options(TcpOptions { timestamps: stamps, ..TcpOptions::EMPTY }));
        assert!(out.events.contains(Events::CONNECTED));
        assert_eq!(lab.sent(), [""; 0]);
        lab
    }

    pub fn established() -> Self {
        Self::established_with(plain(), TcpOptions::EMPTY, 10_000)
    }

    /// Gets the quick ACKs of a young connection over with: `count` octets, answered, so both streams stand at 2.
    pub fn past_quick_acks(mut self) -> Self {
        self.get(Peer::new(ACK, 1).text(1));
        self.write(1);
        assert_eq!(self.sent().len(), 1);
        self.get(Peer::new(ACK, 2).acks(2));
        self.read();
        assert_eq!(self.sent(), [""; 0]);
        self
    }

    /// The clock of our timestamps.
    pub fn clock(&self) -> u32 {
        self.now.millis() as u32
    }

    pub fn rings<T>(&mut self, what: impl FnOnce(&mut Connection, Instant, &mut Rings<'_>) -> T) -> T {
        let mut rings = Rings { send: &mut self.send, recv: &mut self.recv };
        what(&mut self.connection, self.now, &mut rings)
    }

    /// The peer sends.
    pub fn get(&mut self, peer: Peer) -> Disposition {
        let payload: Vec<u8> = (0..peer.text as u32).map(|n| peer.seq.wrapping_add(n) as u8).collect();
        let seg = SegmentIn {
            seq: IRS + peer.seq,
            ack: peer.ack.map(|ack| ISS + ack),
            flags: peer.flags,
            window: peer.window,
            urgent: peer.urgent,
            options: peer.options,
            payload: &payload,
            ecn: peer.ecn,
        };
        let foretold = self.connection.mark_to_come(&seg);
        let told = self.rings(|connection, now, rings| connection.on_segment(now, &seg, rings));
        // Whoever was shown the mark before the text was shown the right one.
        let mark = self.connection.urgent_mark().filter(|_| told.events.contains(Events::URGENT));
        assert!(foretold == mark || told.dropped.is_some(), "{foretold:?} was foretold, and {mark:?} came");
        told
    }

    /// Everything that the connection has to send, one line each.
    pub fn sent(&mut self) -> Vec<String> {
        let limits = self.limits;
        let mut lines = Vec::new();
        while let Some(out) =
            self.rings(|connection, now, rings| connection.poll_transmit(now, rings, &limits))
        {
            lines.push(line(&out));
        }
        lines
    }

    pub fn write(&mut self, len: usize) {
        assert_eq!(self.writer.write(&vec![7; len]), len);
    }

    /// The program reads everything; checks each octet.
    pub fn read(&mut self) -> usize {
        let mut text = vec![0; 1 << 20];
        let from = self.reader.cursor() as u32 + 1;
        let count = self.reader.read(&mut text);
        for (n, &byte) in text[..count].iter().enumerate() {
            assert_eq!(byte, (from + n as u32) as u8, "octet {n}");
        }
        self.rings(|connection, now, rings| connection.window_opened(now, rings));
        count
    }

    /// Time passes, deadline by deadline; what is sent meanwhile, with the milliseconds since the start.
    pub fn wait(&mut self, span: Duration) -> (Vec<String>, Disposition) {
        let (start, end) = (self.now, self.now + span);
        let (mut lines, mut told) = (Vec::new(), Disposition::default());
        while let Some(at) = self.connection.poll_at().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            let out = self.rings(|connection, now, rings| connection.on_timer(now, rings));
            if out != Disposition::default() {
                (told, self.told_at) = (out, self.now);
            }
            let after = self.now.saturating_since(start).as_millis();
            lines.extend(self.sent().into_iter().map(|line| format!("{after} {line}")));
        }
        self.now = end;
        (lines, told)
    }

    pub fn state(&self) -> State {
        self.connection.state()
    }

    pub fn shutdown(&mut self) -> Disposition {
        self.rings(|connection, now, rings| connection.shutdown_send(now, rings))
    }

    pub fn close(&mut self) -> Disposition {
        self.rings(|connection, now, rings| connection.close(now, rings))
    }
}

/// A segment as packet scripts write it.
pub fn line(out: &SegmentOut) -> String {
    let mut text = String::new();
    for (flag, letter) in
        [(SYN, 'S'), (TcpFlags::FIN, 'F'), (RST, 'R'), (TcpFlags::PSH, 'P'), (TcpFlags::URG, 'U'), (ACK, '.')]
    {
        if out.flags.contains(flag) {
            text.push(letter);
        }
    }
    let seq = out.seq.offset_from(ISS);
    text += &format!(" {seq}:{}({})", seq + out.payload_len() as i32, out.payload_len());
    if let Some(ack) = out.ack {
        text += &format!(" ack {} win {}", ack.offset_from(IRS), out.window);
    }
    if out.flags.contains(TcpFlags::URG) {
        text += &format!(" urg {}", out.urgent);
    }
    let options = out.options;
    if let Some(mss) = options.mss {
        text += &format!(" mss {mss}");
    }
    if options.sack_permitted {
        text += " sackOK";
    }
    if let Some((value, echo)) = options.timestamps {
        text += &format!(" ts {value} {echo}");
    }
    if let Some(scale) = options.window_scale {
        text += &format!(" ws {scale}");
    }
    for (from, to) in options.sack.iter() {
        text += &format!(" sack {}:{}", from.offset_from(IRS), to.offset_from(IRS));
    }
    text
}

/// The one line of a reply.
pub fn reply(out: &Disposition) -> String {
    out.reply.as_ref().map(line).unwrap_or_default()
}
