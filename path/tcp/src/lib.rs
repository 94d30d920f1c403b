//! The Transmission Control Protocol, without I/O.
//!
//! A [`Connection`] is a value that its lane feeds with segments, time and the program's commands, and asks for
//! segments to send. It knows no socket, no address and no clock. The files are the table of contents of TCP:
//!
//! - the connection: `connection` walks the steps of RFC 9293 §3.10 that live in `handshake`, `reset`, `receive`,
//!   `ack`, `send` and `close`; `profile` says which system it looks like, `state` is the machine, `space` the one place that turns sequence numbers into
//!   cursors, `timers` its clocks, `segment` what comes in and goes out;
//! - the mechanisms: [`flight`] (what is sent and not acknowledged: round-trip time, loss detection, congestion
//!   control), [`reassembly`], [`delayed_ack`], [`nagle`], `timestamps`, `ecn`, [`isn`];
//! - `fusion`: how it goes on after its peer has read the send ring itself;
//! - what is less than a connection: `rest` (one that is silent), `listen` (what a listener takes), `syn` and `cookie`
//!   (not yet one), `fast_open` (text before it is one), `time_wait` (what is left of one), `reset` (answers to strays).
//!
//! A stream is counted by 64-bit cursors of its byte ring. The send ring is the retransmission buffer, and text
//! that arrives is copied once, from the frame to its place in the receive ring.
#![forbid(unsafe_code)]

mod ack;
mod busy;
mod close;
mod config;
pub mod congestion;
mod connection;
mod cookie;
mod counts;
pub mod delayed_ack;
mod ecn;
mod expected;
mod fast_open;
pub mod flight;
mod fusion;
mod handshake;
mod held;
mod info;
pub mod isn;
mod listen;
mod mtu_search;
pub mod nagle;
pub mod pace;
mod profile;
pub mod prr;
pub mod rack;
pub mod rate;
pub mod reassembly;
mod receive;
mod receive_tuning;
mod recovery;
mod reset;
mod rest;
pub mod rtt;
mod segment;
mod send;
mod send_tuning;
pub mod sent;
mod small;
mod space;
mod state;
mod storage;
mod syn;
mod tcp_info;
mod time_wait;
mod timers;
mod timestamps;
pub mod tlp;
mod tuple;
#[cfg(test)]
mod twin;
mod undo;

pub use busy::BusyTimes;
pub use close::{LEAVES_WITHIN, leaves_in_time};
pub use config::{Keepalive, MtuProbing, SynCookies, TcpConfig, Willing};
pub use connection::{Birth, Connection, Rings, Tuning};
pub use counts::{Counts, Troubles};
pub use expected::Expected;
pub use fast_open::{
    FastOpenAnswer, FastOpenCache, FastOpenCounters, FastOpenNews, FastOpenOffer, FastOpenPolicy,
    FastOpenReport, FastOpenServer,
};
pub use fusion::Reached;
pub use info::Info;
pub use isn::{Secret, TimestampClock};
pub use listen::AtListener;
pub use profile::Profile;
pub use reset::{ChallengeBudget, ResetBudget, reset_for};
pub use rest::AtRest;
pub use segment::{CloseReason, Disposition, Events, SegmentIn, SegmentOut};
pub use send::TransmitLimits;
pub use state::{Event, State};
pub use syn::{
    HALF_OPEN_TOTAL, HalfOpen, NewRing, Opening, SynAnswer, SynCounters, SynTable, deferred_repeats,
};
pub use tcp_info::{Surroundings, TCP_INFO_LEN, Unconnected};
pub use time_wait::{Reopening, TimeWaitAnswer, TimeWaitRecord, TimeWaitTable};
pub use tuple::Tuple;
