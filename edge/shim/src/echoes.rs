//! Echoes of ICMP: SOCK_DGRAM with IPPROTO_ICMP or IPPROTO_ICMPV6 (icmp(7)), as `ping` uses them.
//!
//! Datagram sockets whose port is the identifier of their questions. A program writes and reads whole ICMP messages; the
//! lane makes type, code, checksum and identifier, so nothing but a question can be sent.

use core::ffi::c_int;

use rustix::io::Errno;

use crate::buffers::Source;
use crate::socket::Held;

/// ICMP's header, with identifier and sequence number.
const HEADER: usize = 8;
/// Types of a question (RFC 792, RFC 4443 §4.1).
const ECHO_V4: u8 = 8;
const ECHO_V6: u8 = 128;

/// The protocol of such a socket.
pub(crate) const fn protocol(is_v6: bool) -> c_int {
    if is_v6 { libc::IPPROTO_ICMPV6 } else { libc::IPPROTO_ICMP }
}

/// Whether what is sent is a question for an echo, as `ping_common_sendmsg` of Linux asks.
pub(crate) fn check(socket: &Held, source: Source<'_>) -> Result<(), Errno> {
    if source.len() > usize::from(u16::MAX) {
        return Err(Errno::MSGSIZE);
    }
    if source.len() < HEADER {
        return Err(Errno::INVAL);
    }
    let mut octets = source.from(0).flatten();
    let asks = if socket.is_v6() { ECHO_V6 } else { ECHO_V4 };
    if (octets.next(), octets.next()) == (Some(&asks), Some(&0)) { Ok(()) } else { Err(Errno::INVAL) }
}
