//! `struct tcp_info` as long as Linux 6.x has it.
//!
//! The layout is `firelane_tcp`'s; what comes after its end (time-outs in total) is zero, as it is for a kernel that
//! is older than the field.

use firelane_lane::StreamInfo;

/// How long the structure is in Linux 6.x.
pub(crate) const LEN: usize = 248;

/// The states of sockets without a connection: `TCP_SYN_SENT`, where the SYN waits for text, `TCP_CLOSE` and `TCP_LISTEN`.
pub(crate) const SYN_SENT: u8 = 2;
pub(crate) const CLOSED: u8 = 7;
pub(crate) const LISTEN: u8 = 10;

/// The structure's bytes.
pub(crate) fn layout(info: &StreamInfo) -> Vec<u8> {
    let mut out = info.tcp_info().to_vec();
    out.resize(LEN, 0);
    out
}
