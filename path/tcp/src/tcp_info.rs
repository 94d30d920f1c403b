//! `struct tcp_info` as Linux lays it out (include/uapi/linux/tcp.h of 6.x), up to `tcpi_accecn_opt_seen`.
//!
//! Makes the bytes that `getsockopt(TCP_INFO)` gives from an [`Info`]. Linux counts windows and what is under way in
//! segments; ours are counted in bytes and given in segments of the present MSS, rounded up (the congestion window
//! down, as only whole segments leave). Zero where Linux has a number and we keep none: the time that a sender waited for
//! room in its send buffer (how much that holds is known to the program's side alone), `fackets` (zero in Linux, too), and, of a
//! connection that has been silent for long enough to rest, the rate of delivery and the receiver's round trip. What the peer says of
//! marks in the options of RFC 9768, which we do not take part in, is zero.

use core::time::Duration;

use firelane_units::{Bytes, Mss, Mtu};

use crate::flight::Phase;
use crate::info::Info;
use crate::rack::DUP_THRESHOLD;
use crate::state::State;

/// How long the structure is, up to and with `tcpi_accecn_opt_seen`.
pub const TCP_INFO_LEN: usize = 280;

/// No threshold (`TCP_INFINITE_SSTHRESH`).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The window that a connection begins with (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;

/// What a connection does not know itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Surroundings {
    /// The largest packet of its way.
    pub path_mtu: Mtu,
    /// Text that the program wrote and that was never sent.
    pub unsent: Bytes,
    /// The receive buffer.
    pub receive_buffer: Bytes,
}

/// A socket without a connection: it has begun none, or its connection has ended and nothing more is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unconnected {
    /// It does nothing.
    Closed,
    /// It listens.
    Listening {
        /// Connections that nobody has accepted yet (`tcpi_unacked`).
        waiting: u32,
        /// How many may be (`tcpi_sacked`).
        backlog: u32,
    },
}

impl Unconnected {
    /// The structure's bytes: Linux counts a listener's connections where a connection counts segments.
    pub fn tcp_info(self) -> [u8; TCP_INFO_LEN] {
        let (state, waiting, backlog) = match self {
            Self::Closed => (TCP_CLOSE, 0, 0),
            Self::Listening { waiting, backlog } => (TCP_LISTEN, waiting, backlog),
        };
        let mut bytes = [0; TCP_INFO_LEN];
        bytes[0] = state;
        // tcpi_snd_cwnd and tcpi_reordering, and that neither tcpi_pacing_rate nor tcpi_max_pacing_rate is limited.
        let always = [(24, waiting), (28, backlog), (80, INITIAL_SEGMENTS), (88, DUP_THRESHOLD)];
        let unlimited = (104..120).step_by(4).map(|at| (at, u32::MAX));
        // tcpi_rto, tcpi_snd_mss, tcpi_rttvar, tcpi_snd_ssthresh and tcpi_min_rtt, before anything was measured.
        let (mss, infinite) = (Mss::DEFAULT_V4.bytes().into(), INFINITE_SSTHRESH);
        let unmeasured = [(8, 1_000_000), (16, mss), (72, 250_000), (76, infinite), (148, u32::MAX)];
        let is_closed = self == Self::Closed;
        let unmeasured = unmeasured.into_iter().filter(|_| is_closed);
        for (at, value) in always.into_iter().chain(unlimited).chain(unmeasured) {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        // No rate is one that the path limited.
        bytes[7] = is_closed.into();
        bytes
    }
}

/// Fields one after the other, in the machine's order.
struct Writer {
    bytes: [u8; TCP_INFO_LEN],
    at: usize,
}

impl Writer {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }

    fn bytes(&mut self, values: impl IntoIterator<Item = u8>) {
        values.into_iter().for_each(|value| self.put([value]));
    }

    fn halves(&mut self, values: impl IntoIterator<Item = u16>) {
        values.into_iter().for_each(|value| self.put(value.to_ne_bytes()));
    }

    fn words(&mut self, values: impl IntoIterator<Item = u32>) {
        values.into_iter().for_each(|value| self.put(value.to_ne_bytes()));
    }

    fn longs(&mut self, values: impl IntoIterator<Item = u64>) {
        values.into_iter().for_each(|value| self.put(value.to_ne_bytes()));
    }
}

impl Info {
    /// The structure's bytes.
    pub fn tcp_info(&self, around: &Surroundings) -> [u8; TCP_INFO_LEN] {
        let mut to = Writer { bytes: [0; TCP_INFO_LEN], at: 0 };
        self.put_state(&mut to);
        self.put_windows(&mut to, around);
        self.put_totals(&mut to, around);
        self.put_silence_and_marks(&mut to);
        debug_assert_eq!(to.at, TCP_INFO_LEN, "every field has its place");
        to.bytes
    }

    /// `tcpi_state` to `tcpi_fackets`.
    fn put_state(&self, to: &mut Writer) {
        let (peer, ours) = self.window_scales.unwrap_or_default();
        let has_ended = self.state == State::Closed;
        to.bytes([
            linux_state(self.state),
            linux_phase(self.phase),
            self.timeouts,
            self.window_probes.max(self.keepalive_probes),
            if has_ended { 0 } else { self.backoff },
            self.option_bits(),
            scales(peer, ours),
            // One bit, and two bits.
            u8::from(self.app_limited) | self.fast_open_failure << 1,
        ]);
        to.words([micros(self.rto), micros(self.delayed_ack)]);
        to.words([self.send_mss.bytes().into(), self.receive_segment.into()]);
        // What was under way at the end waits for nothing any more.
        let unacknowledged = if has_ended { Bytes::ZERO } else { self.unacknowledged };
        to.words([unacknowledged, self.sacked, self.lost, self.repeated].map(|bytes| self.segments(bytes)));
        to.words([0]);
    }

    /// `tcpi_last_data_sent` to `tcpi_total_retrans`.
    fn put_windows(&self, to: &mut Writer, around: &Surroundings) {
        // Linux does not remember when it last sent an ACK either.
        to.words([millis(self.last_sent), 0, millis(self.last_text), millis(self.last_heard)]);
        let receive_buffer = word(around.receive_buffer);
        to.words([around.path_mtu.bytes().into(), receive_buffer]);
        to.words([self.rtt.map_or(0, micros), micros(self.rtt_variation)]);
        let threshold = self.slow_start_threshold.map_or(INFINITE_SSTHRESH, |bytes| self.segments(bytes));
        let window = word(self.congestion_window) / u32::from(self.send_mss.bytes());
        to.words([threshold, window, self.receive_mss.bytes().into(), DUP_THRESHOLD]);
        to.words([self.receive_rtt.map_or(0, micros), receive_buffer]);
        to.words([self.troubles.repeated]);
    }

    /// `tcpi_pacing_rate` to `tcpi_rehash`.
    fn put_totals(&self, to: &mut Writer, around: &Surroundings) {
        let (counts, troubles) = (&self.counts, &self.troubles);
        let bytes_per_second = |rate: Option<firelane_units::BitRate>| rate.map(|rate| rate.bps() / 8);
        // Without pacing there is no such rate: Linux says the largest number.
        to.longs(
            [self.pacing_rate, self.pacing_limit].map(|rate| bytes_per_second(rate).unwrap_or(u64::MAX)),
        );
        to.longs([self.bytes_acknowledged.0, self.bytes_received.0]);
        to.words([counts.segments_out, counts.segments_in]);
        to.words([word(around.unsent), self.rtt_minimum.map_or(u32::MAX, micros)]);
        to.words([counts.text_in, counts.text_out]);
        to.longs([bytes_per_second(self.delivery_rate).unwrap_or(0)]);
        let micros = |millis: u32| u64::from(millis) * 1_000;
        to.longs([micros(self.busy.busy), micros(self.busy.window_limited), 0]);
        let delivered = [self.bytes_acknowledged + self.sacked, troubles.marked_bytes];
        to.words(delivered.map(|bytes| self.segments(bytes)));
        let sent = self.bytes_acknowledged + self.unacknowledged + troubles.repeated_bytes;
        to.longs([sent.0, troubles.repeated_bytes.0]);
        to.words([troubles.duplicates, troubles.reorderings, troubles.unordered]);
        to.words([word(self.send_window), word(self.receive_window), troubles.other_ways]);
    }

    /// `tcpi_total_rto` to `tcpi_accecn_opt_seen`.
    fn put_silence_and_marks(&self, to: &mut Writer) {
        let troubles = &self.troubles;
        to.halves([troubles.other_ways, troubles.silences].map(|n| u16::try_from(n).unwrap_or(u16::MAX)));
        to.words([millis(self.silent), troubles.marks_received]);
        to.words([0; 3]);
        to.words(troubles.ecn_bytes);
        to.halves([0; 2]);
    }

    /// `TCPI_OPT_...`.
    fn option_bits(&self) -> u8 {
        let scales = self.window_scales.is_some();
        let bits = [self.timestamps, self.sack, scales, self.ecn, self.ecn_seen, self.syn_text];
        bits.iter().enumerate().fold(0, |all, (n, &on)| all | u8::from(on) << n)
    }

    fn segments(&self, bytes: Bytes) -> u32 {
        let segments = bytes.0.div_ceil(u64::from(self.send_mss.bytes()));
        u32::try_from(segments).unwrap_or(u32::MAX)
    }
}

const TCP_CLOSE: u8 = 7;
const TCP_LISTEN: u8 = 10;

/// `TCP_ESTABLISHED` and so on (include/net/tcp_states.h).
const fn linux_state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        // A socket in TIME-WAIT is a record without a descriptor in Linux; who has the descriptor sees it closed.
        State::TimeWait | State::Closed => TCP_CLOSE,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// `TCP_CA_Open` and so on.
const fn linux_phase(phase: Phase) -> u8 {
    match phase {
        Phase::Open => 0,
        Phase::Disorder => 1,
        Phase::Reduced => 2,
        Phase::Recovery => 3,
        Phase::Loss => 4,
    }
}

/// Two fields of four bits: the first takes the lower half on little-endian machines, the upper on others.
const fn scales(first: u8, second: u8) -> u8 {
    if cfg!(target_endian = "little") { first | second << 4 } else { first << 4 | second }
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

fn word(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0).unwrap_or(u32::MAX)
}
