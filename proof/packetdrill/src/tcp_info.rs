//! `struct tcp_info` as Linux lays it out, filled with what the connection knows.
//!
//! What a connection does not count is zero, as it is for a kernel that is older than the field.

use firelane_tcp::flight::Phase;
use firelane_tcp::{Info, State};
use firelane_units::Bytes;

/// How long the structure is in Linux 6.x.
pub(crate) const LEN: usize = 248;
/// Linux' word for "no threshold yet".
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The structure's bytes.
pub(crate) fn layout(info: &Info) -> Vec<u8> {
    let mut out = vec![0; LEN];
    let mss = u64::from(info.send_mss.bytes()).max(1);
    let segments = |bytes: Bytes| u32::try_from(bytes.0.div_ceil(mss)).unwrap_or(u32::MAX);
    let micros = |span: core::time::Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
    out[0] = state(info.state);
    out[1] = phase(info.phase);
    out[2] = info.timeouts;
    out[3] = info.window_probes.max(info.keepalive_probes);
    out[4] = info.timeouts.max(info.window_probes);
    out[5] = options(info);
    let (theirs, ours) = info.window_scales.unwrap_or_default();
    out[6] = theirs & 15 | ours << 4;
    let mut put = |at: usize, value: u32| out[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    put(8, micros(info.rto));
    put(16, info.send_mss.bytes().into());
    put(20, info.receive_mss.bytes().into());
    put(24, segments(info.unacknowledged));
    put(28, segments(info.sacked));
    put(32, segments(info.lost));
    put(68, info.rtt.map_or(0, micros));
    put(72, micros(info.rtt_variation));
    put(76, info.slow_start_threshold.map_or(INFINITE_SSTHRESH, segments));
    put(80, segments(info.congestion_window));
    put(84, info.receive_mss.bytes().into());
    put(148, info.rtt_minimum.map_or(u32::MAX, micros));
    put(228, u32::try_from(info.send_window.0).unwrap_or(u32::MAX));
    put(232, u32::try_from(info.receive_window.0).unwrap_or(u32::MAX));
    let mut put = |at: usize, value: u64| out[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    put(120, info.bytes_acknowledged.0);
    put(128, info.bytes_received.0);
    put(160, info.delivery_rate.map_or(0, |rate| rate.bps() / 8));
    put(208, info.bytes_retransmitted.0);
    out
}

/// `TCP_ESTABLISHED` and its like.
pub(crate) const fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

const fn phase(phase: Phase) -> u8 {
    match phase {
        Phase::Open => 0,
        Phase::Disorder => 1,
        Phase::Reduced => 2,
        Phase::Recovery => 3,
        Phase::Loss => 4,
    }
}

/// `TCPI_OPT_TIMESTAMPS`, `_SACK`, `_WSCALE`, `_ECN` and `_ECN_SEEN`.
fn options(info: &Info) -> u8 {
    let bits = [info.timestamps, info.sack, info.window_scales.is_some(), info.ecn, info.ecn_seen];
    bits.into_iter().rev().fold(0, |all, bit| all << 1 | u8::from(bit))
}
