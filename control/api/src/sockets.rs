//! Sockets as they are shown: `netstat` and `connstat` are made of these.
//!
//! There may be a million of them, so they come in pages: each page says where the next one begins. A page is what
//! its lanes held when they were asked; what begins or ends between two pages may be on either or on none.

use firelane_model::NetstackName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Some of the sockets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SocketPage {
    /// Some sockets, in no order.
    pub sockets: Vec<SocketInfo>,
    /// What asks for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A socket, or what is left of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SocketInfo {
    /// Whose it is.
    pub netstack: NetstackName,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The state as `netstat` calls it: `LISTEN`, `ESTABLISHED`, ..., `TIME_WAIT`; of datagram sockets `Idle` or
    /// `Connected`.
    pub state: String,
    /// Our end, `10.0.0.10:80` or `[fd00::10]:80`.
    #[schema(value_type = String)]
    pub local: std::net::SocketAddr,
    /// The peer's end, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote: Option<std::net::SocketAddr>,
    /// Of a listener: connections that nobody has accepted, and how many may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<[u64; 2]>,
    /// Of a record in TIME-WAIT: milliseconds until its ports are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_wait_ms: Option<u64>,
    /// Of an unmodified program's socket: whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramInfo>,
    /// Of a connection: what TCP knows of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Box<ConnectionInfo>>,
}

/// The program that a socket belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProgramInfo {
    /// Its user: the name that the host's own files have for it, or its number.
    pub user: String,
    /// Its process.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// The lane of its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<u16>,
    /// Bytes that the program has sent.
    pub sent: u64,
    /// Bytes that were handed to the program.
    pub received: u64,
}

/// What TCP knows of a connection.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ConnectionInfo {
    /// Text that arrived in order, ever, in bytes.
    pub inbytes: u64,
    /// Text that was acknowledged, ever, in bytes.
    pub outbytes: u64,
    /// Text that was sent more than once, ever, in bytes.
    pub retransbytes: u64,
    /// Segments with text that arrived.
    pub insegs: u32,
    /// Segments with text or FIN that left for the first time.
    pub outsegs: u32,
    /// Segments that left more than once.
    pub retranssegs: u32,
    /// Segments that came ahead of their turn.
    pub inunordersegs: u32,
    /// Text that came ahead of its turn, in bytes.
    pub inunorderbytes: u64,
    /// Bytes that arrived and the program has not read.
    pub recvq: u64,
    /// Bytes that the program wrote and the peer has not acknowledged.
    pub sendq: u64,
    /// Bytes that were sent and the peer has not acknowledged.
    pub suna: u64,
    /// Bytes that were written and not sent.
    pub unsent: u64,
    /// The peer's window in bytes.
    pub swnd: u64,
    /// Our window in bytes.
    pub rwnd: u64,
    /// The congestion window in bytes.
    pub cwnd: u64,
    /// The slow start threshold in bytes, after the first loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssthresh: Option<u64>,
    /// The text of a full segment in bytes.
    pub mss: u64,
    /// The retransmission time-out in microseconds.
    pub rto_us: u64,
    /// The smoothed round-trip time in microseconds, after the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// The sum of all round-trip times that were measured, in microseconds.
    pub rtts_us: u64,
    /// How many they were.
    pub rttc: u32,
    /// The round-trip time's mean deviation in microseconds.
    pub rttvar_us: u64,
    /// The least round-trip time of the last minutes in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rttmin_us: Option<u64>,
    /// The rate of delivery that was last measured, in bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_rate: Option<u64>,
    /// The congestion control.
    pub congestion: String,
    /// The sender's state: `open`, `disorder`, `recovery` or `loss`.
    pub phase: String,
    /// Whether both ends send timestamps.
    pub timestamps: bool,
    /// Whether the peer understands SACK.
    pub sack: bool,
    /// Whether both ends take part in ECN.
    pub ecn: bool,
    /// Whether text does not go in segments, but from one program's memory to the other's.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub fused: bool,
    /// Of an unmodified program: bytes that came and went that way, ever. They are not among `inbytes` and `outbytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_bytes: Option<[u64; 2]>,
    /// The next number that we send.
    pub snxt: u32,
    /// The oldest number that the peer has not acknowledged.
    pub suna_seq: u32,
    /// The next number that we expect.
    pub rnxt: u32,
    /// The last number that we acknowledged.
    pub rack: u32,
}
