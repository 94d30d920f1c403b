//! Socket options by Linux' numbers, and what streams and datagram sockets mean alike by them.
//!
//! Used by `options.rs` and `datagram_options.rs`.

/// `SOL_SOCKET`, and its options (`asm-generic/socket.h`).
pub(crate) mod socket {
    pub(crate) const LEVEL: i32 = 1;
    pub(crate) const REUSEADDR: i32 = 2;
    pub(crate) const TYPE: i32 = 3;
    pub(crate) const ERROR: i32 = 4;
    pub(crate) const BROADCAST: i32 = 6;
    pub(crate) const SNDBUF: i32 = 7;
    pub(crate) const RCVBUF: i32 = 8;
    pub(crate) const KEEPALIVE: i32 = 9;
    pub(crate) const OOBINLINE: i32 = 10;
    pub(crate) const LINGER: i32 = 13;
    pub(crate) const REUSEPORT: i32 = 15;
    pub(crate) const ACCEPTCONN: i32 = 30;
    pub(crate) const PROTOCOL: i32 = 38;
    pub(crate) const DOMAIN: i32 = 39;
    pub(crate) const MAX_PACING_RATE: i32 = 47;
}

/// `IPPROTO_TCP`, and its options (`linux/tcp.h`).
pub(crate) mod tcp {
    pub(crate) const LEVEL: i32 = 6;
    pub(crate) const NODELAY: i32 = 1;
    pub(crate) const MAXSEG: i32 = 2;
    pub(crate) const CORK: i32 = 3;
    pub(crate) const KEEPIDLE: i32 = 4;
    pub(crate) const KEEPINTVL: i32 = 5;
    pub(crate) const KEEPCNT: i32 = 6;
    pub(crate) const INFO: i32 = 11;
    pub(crate) const QUICKACK: i32 = 12;
    pub(crate) const CONGESTION: i32 = 13;
    pub(crate) const USER_TIMEOUT: i32 = 18;
}

/// `IPPROTO_UDP`, and its options (`linux/udp.h`).
pub(crate) mod udp {
    pub(crate) const LEVEL: i32 = 17;
    pub(crate) const CORK: i32 = 1;
    pub(crate) const SEGMENT: i32 = 103;
    pub(crate) const GRO: i32 = 104;
}

/// `IPPROTO_IP`, and its options (`linux/in.h`).
pub(crate) mod ip {
    pub(crate) const LEVEL: i32 = 0;
    pub(crate) const TOS: i32 = 1;
    pub(crate) const TTL: i32 = 2;
    pub(crate) const PKTINFO: i32 = 8;
    pub(crate) const MTU_DISCOVER: i32 = 10;
    pub(crate) const RECVERR: i32 = 11;
    pub(crate) const MTU: i32 = 14;
    pub(crate) const RECVTTL: i32 = 12;
    pub(crate) const RECVTOS: i32 = 13;
    pub(crate) const MULTICAST_IF: i32 = 32;
    pub(crate) const MULTICAST_TTL: i32 = 33;
    pub(crate) const MULTICAST_LOOP: i32 = 34;
    pub(crate) const ADD_MEMBERSHIP: i32 = 35;
    pub(crate) const DROP_MEMBERSHIP: i32 = 36;
}

/// `IPPROTO_IPV6`, and its options (`linux/in6.h`).
pub(crate) mod ipv6 {
    pub(crate) const LEVEL: i32 = 41;
    pub(crate) const UNICAST_HOPS: i32 = 16;
    pub(crate) const MULTICAST_IF: i32 = 17;
    pub(crate) const MULTICAST_HOPS: i32 = 18;
    pub(crate) const MULTICAST_LOOP: i32 = 19;
    pub(crate) const ADD_MEMBERSHIP: i32 = 20;
    pub(crate) const DROP_MEMBERSHIP: i32 = 21;
    pub(crate) const MTU_DISCOVER: i32 = 23;
    pub(crate) const MTU: i32 = 24;
    pub(crate) const RECVERR: i32 = 25;
    pub(crate) const V6ONLY: i32 = 26;
    pub(crate) const RECVPKTINFO: i32 = 49;
    pub(crate) const RECVHOPLIMIT: i32 = 51;
    pub(crate) const DONTFRAG: i32 = 62;
    pub(crate) const RECVTCLASS: i32 = 66;
    pub(crate) const TCLASS: i32 = 67;
}

/// Linux counts its own bookkeeping in, so it doubles what is asked for and says so (`socket(7)`).
const BUFFER_FACTOR: usize = 2;
const BUFFER_MIN: usize = 4096;
const BUFFER_MAX: usize = 1 << 26;

/// The buffer of a program that asks for so much (`SO_SNDBUF`, `SO_RCVBUF`).
pub(super) fn buffer_of(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0).clamp(BUFFER_MIN / 2, BUFFER_MAX)
}

/// What it is told of a buffer.
pub(super) fn buffer_shown(bytes: usize) -> i32 {
    i32::try_from(BUFFER_FACTOR * bytes).unwrap_or(i32::MAX)
}

/// `AF_INET6` or `AF_INET`.
pub(super) const fn domain(is_v6: bool) -> i32 {
    if is_v6 { 10 } else { 2 }
}
