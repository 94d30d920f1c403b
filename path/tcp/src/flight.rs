//! What a connection has sent and not yet seen acknowledged: the one door to round-trip estimation,
//! loss detection, congestion control and their timers.
//!
//! The connection owns one [`Flight`] and talks to nothing below it. Cursors are those of the send ring:
//! cursor 0 is the first byte after the SYN, and a FIN occupies one cursor after the last byte. The SYN
//! itself is the handshake's; of it the flight only learns the round-trip time and whether it was lost.
//!
//! Order of calls:
//!
//! - per ACK that passed RFC 9293's check (`una <= ack <= nxt`): [`Flight::on_ack`], once, then transmit;
//! - per transmission opportunity: [`Flight::poll_probe`], then [`Flight::next_retransmit`] while
//!   [`Flight::budget`] covers the segment, then new data under the same budget; [`Flight::on_sent`]
//!   after each segment, new or old; [`Flight::on_data_exhausted`] or [`Flight::on_window_exhausted`]
//!   with the reason why sending stopped;
//! - [`Flight::deadline`] is the earliest instant at which [`Flight::on_timer`] must be called.
#![allow(clippy::todo)]

use core::ops::Range;
use core::time::Duration;

use firelane_units::{Bytes, Instant, Mss};

use crate::congestion::Algorithm;
use crate::rtt::{RtoLimits, Rtt};

/// What a connection may choose about sending.
#[derive(Clone, Copy, Debug)]
pub struct FlightConfig {
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
    /// Bounds of the retransmission time-out.
    pub rto: RtoLimits,
    /// The first congestion window in segments; RFC 6928 says 10.
    pub initial_segments: u16,
    /// Whether an idle connection restarts from the initial window (RFC 5681 §4.1).
    pub slow_start_after_idle: bool,
}

/// The part of a segment's acknowledgement that loss detection needs, in send cursors.
#[derive(Clone, Copy, Debug)]
pub struct AckIn<'a> {
    /// The cumulative acknowledgement.
    pub ack: u64,
    /// The SACK blocks in the order of the segment; unchecked, the flight ignores bad ones.
    pub sack: &'a [Range<u64>],
    /// When the segment whose timestamp was echoed left, from [`crate::isn::TimestampClock::sent_at`].
    pub echoed: Option<Instant>,
    /// Whether RFC 5681 §2 calls it a duplicate: no data, no SYN or FIN, the same window and `ack == una`.
    pub duplicate: bool,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckOut {
    /// Bytes (and FIN) that the cumulative acknowledgement covered for the first time.
    pub acked: Bytes,
    /// Bytes that arrived, by cumulative or selective acknowledgement, for the first time.
    pub delivered: Bytes,
    /// Bytes that were found lost.
    pub lost: Bytes,
    /// A reduction was taken back because nothing had been lost.
    pub undone: bool,
}

/// What a deadline meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerFired {
    /// Nothing was due.
    Nothing,
    /// The reordering window passed; there may be ranges to retransmit.
    Reordering,
    /// A tail loss probe is due: the next [`Flight::poll_probe`] gives it.
    Probe,
    /// The retransmission time-out fired for the `count`-th time in a row; the first range is lost.
    Retransmission {
        /// Time-outs in a row without progress, this one included.
        count: u8,
    },
}

/// The state of the sender, as `tcp_info` calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing suspicious.
    #[default]
    Open,
    /// Duplicate acknowledgements or SACK blocks, no loss yet.
    Disorder,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission time-out.
    Loss,
}

/// Sent, unacknowledged data and everything that decides what may follow.
#[derive(Debug)]
pub struct Flight;

impl Flight {
    /// A flight for a connection whose SYN has not been answered.
    pub fn new(_config: &FlightConfig) -> Self {
        todo!()
    }

    /// The handshake finished: what was agreed, and how it went.
    ///
    /// `rtt` is the time from SYN to SYN-ACK if neither was retransmitted. A lost SYN shrinks the first
    /// window to one segment (RFC 6928 §2).
    pub fn on_established(
        &mut self,
        _now: Instant,
        _mss: Mss,
        _sack: bool,
        _rtt: Option<Duration>,
        _syn_lost: bool,
    ) {
        todo!()
    }

    /// The path's MSS changed.
    pub fn set_mss(&mut self, _mss: Mss) {
        todo!()
    }

    /// The round-trip estimator.
    pub fn rtt(&self) -> &Rtt {
        todo!()
    }

    /// The estimator, for the handshake's samples and time-outs.
    pub fn rtt_mut(&mut self) -> &mut Rtt {
        todo!()
    }

    /// The first cursor that is not acknowledged.
    pub fn una(&self) -> u64 {
        todo!()
    }

    /// The cursor after the last one that was ever sent.
    pub fn nxt(&self) -> u64 {
        todo!()
    }

    /// Whether everything sent is acknowledged.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// Bytes believed to be on the way (RFC 6675's pipe).
    pub fn in_flight(&self) -> Bytes {
        todo!()
    }

    /// The congestion window.
    pub fn window(&self) -> Bytes {
        todo!()
    }

    /// The slow start threshold, `None` before the first loss.
    pub fn slow_start_threshold(&self) -> Option<Bytes> {
        todo!()
    }

    /// The sender's state.
    pub fn phase(&self) -> Phase {
        todo!()
    }

    /// How many bytes congestion control lets go now, beside what is on the way. At least one segment
    /// if nothing is on the way. Send a segment only if it fits.
    pub fn budget(&self) -> Bytes {
        todo!()
    }

    /// The probe that [`TimerFired::Probe`] announced, once; it ignores [`Flight::budget`]. `fresh` is the
    /// next segment of new data if there is one that the peer's window admits.
    pub fn poll_probe(&mut self, _fresh: Option<Range<u64>>) -> Option<Range<u64>> {
        todo!()
    }

    /// The first lost range, cut to `limit`; `None` if there is none, or if new data should go first and
    /// `fresh` says that there is some (F-RTO). It stays lost until [`Flight::on_sent`] reports it.
    pub fn next_retransmit(&self, _limit: Bytes, _fresh: bool) -> Option<Range<u64>> {
        todo!()
    }

    /// A segment left. What lies below [`Flight::nxt`] is a retransmission; new data begin there exactly.
    pub fn on_sent(&mut self, _now: Instant, _range: Range<u64>) {
        todo!()
    }

    /// Sending stopped because the program has nothing to send.
    pub fn on_data_exhausted(&mut self) {
        todo!()
    }

    /// Sending stopped because of [`Flight::budget`] while data waited.
    pub fn on_window_exhausted(&mut self) {
        todo!()
    }

    /// An acknowledgement arrived; `una <= ack <= nxt` was checked.
    pub fn on_ack(&mut self, _now: Instant, _ack: &AckIn<'_>) -> AckOut {
        todo!()
    }

    /// The earliest instant at which [`Flight::on_timer`] has something to do; `None` if nothing is out.
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }

    /// Time passed. Calling it early is harmless.
    pub fn on_timer(&mut self, _now: Instant) -> TimerFired {
        todo!()
    }

    /// Gives memory back; call it when the connection has been idle for a while.
    pub fn shrink(&mut self) {
        todo!()
    }
}
