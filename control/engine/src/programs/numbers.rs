//! Socket options by Linux' numbers, and what streams and datagram sockets mean alike by them.
//!
//! Used by `options.rs` and `datagram_options.rs`.

use firelane_lane::Band;
use firelane_units::{BitRate, Mtu};
use rustix::io::Errno;

/// The bits of a traffic class by which congestion is marked (RFC 3168).
pub(super) const ECN: u8 = 3;

/// The families of addresses (`linux/socket.h`).
pub(super) const AF_INET: u16 = 2;
pub(super) const AF_INET6: u16 = 10;

/// `SOL_SOCKET`, and its options (`asm-generic/socket.h`).
pub(crate) mod socket {
    pub(crate) const LEVEL: i32 = 1;
    pub(crate) const DEBUG: i32 = 1;
    pub(crate) const REUSEADDR: i32 = 2;
    pub(crate) const TYPE: i32 = 3;
    pub(crate) const ERROR: i32 = 4;
    pub(crate) const DONTROUTE: i32 = 5;
    pub(crate) const BROADCAST: i32 = 6;
    pub(crate) const SNDBUF: i32 = 7;
    pub(crate) const RCVBUF: i32 = 8;
    pub(crate) const KEEPALIVE: i32 = 9;
    pub(crate) const OOBINLINE: i32 = 10;
    pub(crate) const NO_CHECK: i32 = 11;
    pub(crate) const PRIORITY: i32 = 12;
    pub(crate) const LINGER: i32 = 13;
    pub(crate) const BSDCOMPAT: i32 = 14;
    pub(crate) const REUSEPORT: i32 = 15;
    pub(crate) const PASSCRED: i32 = 16;
    pub(crate) const PEERCRED: i32 = 17;
    pub(crate) const RCVLOWAT: i32 = 18;
    pub(crate) const SNDLOWAT: i32 = 19;
    pub(crate) const TIMESTAMP: i32 = 29;
    pub(crate) const ACCEPTCONN: i32 = 30;
    pub(crate) const SNDBUFFORCE: i32 = 32;
    pub(crate) const RCVBUFFORCE: i32 = 33;
    pub(crate) const PASSSEC: i32 = 34;
    pub(crate) const TIMESTAMPNS: i32 = 35;
    pub(crate) const MARK: i32 = 36;
    pub(crate) const PROTOCOL: i32 = 38;
    pub(crate) const DOMAIN: i32 = 39;
    pub(crate) const RXQ_OVFL: i32 = 40;
    pub(crate) const WIFI_STATUS: i32 = 41;
    pub(crate) const NOFCS: i32 = 43;
    pub(crate) const LOCK_FILTER: i32 = 44;
    pub(crate) const SELECT_ERR_QUEUE: i32 = 45;
    pub(crate) const BUSY_POLL: i32 = 46;
    pub(crate) const MAX_PACING_RATE: i32 = 47;
    pub(crate) const INCOMING_CPU: i32 = 49;
    pub(crate) const INCOMING_NAPI_ID: i32 = 56;
    pub(crate) const COOKIE: i32 = 57;
    pub(crate) const PEERGROUPS: i32 = 59;
    pub(crate) const ZEROCOPY: i32 = 60;
    pub(crate) const BINDTOIFINDEX: i32 = 62;
    pub(crate) const PREFER_BUSY_POLL: i32 = 69;
    pub(crate) const BUSY_POLL_BUDGET: i32 = 70;
    pub(crate) const RESERVE_MEM: i32 = 73;
    pub(crate) const PASSPIDFD: i32 = 76;
    pub(crate) const PEERPIDFD: i32 = 77;
    pub(crate) const PASSRIGHTS: i32 = 83;
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
    pub(crate) const SYNCNT: i32 = 7;
    pub(crate) const LINGER2: i32 = 8;
    pub(crate) const DEFER_ACCEPT: i32 = 9;
    pub(crate) const WINDOW_CLAMP: i32 = 10;
    pub(crate) const INFO: i32 = 11;
    pub(crate) const QUICKACK: i32 = 12;
    pub(crate) const CONGESTION: i32 = 13;
    pub(crate) const THIN_LINEAR_TIMEOUTS: i32 = 16;
    pub(crate) const THIN_DUPACK: i32 = 17;
    pub(crate) const USER_TIMEOUT: i32 = 18;
    pub(crate) const FASTOPEN: i32 = 23;
    pub(crate) const NOTSENT_LOWAT: i32 = 25;
    pub(crate) const SAVE_SYN: i32 = 27;
    pub(crate) const FASTOPEN_CONNECT: i32 = 30;
    pub(crate) const ULP: i32 = 31;
    pub(crate) const FASTOPEN_NO_COOKIE: i32 = 34;
    pub(crate) const INQ: i32 = 36;
    pub(crate) const TX_DELAY: i32 = 37;
    pub(crate) const IS_MPTCP: i32 = 43;
}

/// `IPPROTO_UDP`, and its options (`linux/udp.h`).
pub(crate) mod udp {
    pub(crate) const LEVEL: i32 = 17;
    pub(crate) const CORK: i32 = 1;
    pub(crate) const ENCAP: i32 = 100;
    pub(crate) const NO_CHECK6_TX: i32 = 101;
    pub(crate) const NO_CHECK6_RX: i32 = 102;
    pub(crate) const SEGMENT: i32 = 103;
    pub(crate) const GRO: i32 = 104;
}

/// `IPPROTO_IP`, and its options (`linux/in.h`).
pub(crate) mod ip {
    pub(crate) const LEVEL: i32 = 0;
    pub(crate) const TOS: i32 = 1;
    pub(crate) const TTL: i32 = 2;
    pub(crate) const OPTIONS: i32 = 4;
    pub(crate) const RECVOPTS: i32 = 6;
    pub(crate) const RETOPTS: i32 = 7;
    pub(crate) const PKTINFO: i32 = 8;
    pub(crate) const MTU_DISCOVER: i32 = 10;
    pub(crate) const RECVERR: i32 = 11;
    pub(crate) const MTU: i32 = 14;
    pub(crate) const FREEBIND: i32 = 15;
    pub(crate) const RECVTTL: i32 = 12;
    pub(crate) const RECVTOS: i32 = 13;
    pub(crate) const PASSSEC: i32 = 18;
    pub(crate) const TRANSPARENT: i32 = 19;
    pub(crate) const RECVORIGDSTADDR: i32 = 20;
    pub(crate) const MINTTL: i32 = 21;
    pub(crate) const CHECKSUM: i32 = 23;
    pub(crate) const BIND_ADDRESS_NO_PORT: i32 = 24;
    pub(crate) const RECVFRAGSIZE: i32 = 25;
    pub(crate) const RECVERR_RFC4884: i32 = 26;
    pub(crate) const MULTICAST_IF: i32 = 32;
    pub(crate) const MULTICAST_TTL: i32 = 33;
    pub(crate) const MULTICAST_LOOP: i32 = 34;
    pub(crate) const ADD_MEMBERSHIP: i32 = 35;
    pub(crate) const DROP_MEMBERSHIP: i32 = 36;
    pub(crate) const UNBLOCK_SOURCE: i32 = 37;
    pub(crate) const BLOCK_SOURCE: i32 = 38;
    pub(crate) const ADD_SOURCE_MEMBERSHIP: i32 = 39;
    pub(crate) const DROP_SOURCE_MEMBERSHIP: i32 = 40;
    pub(crate) const MSFILTER: i32 = 41;
    pub(crate) const MULTICAST_ALL: i32 = 49;
    pub(crate) const UNICAST_IF: i32 = 50;
}

/// `IPPROTO_IPV6`, and its options (`linux/in6.h`).
pub(crate) mod ipv6 {
    pub(crate) const LEVEL: i32 = 41;
    pub(crate) const FLOWINFO: i32 = 11;
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
    pub(crate) const MULTICAST_ALL: i32 = 29;
    pub(crate) const RECVERR_RFC4884: i32 = 31;
    pub(crate) const FLOWINFO_SEND: i32 = 33;
    pub(crate) const RECVPKTINFO: i32 = 49;
    pub(crate) const RECVHOPLIMIT: i32 = 51;
    pub(crate) const RECVHOPOPTS: i32 = 53;
    pub(crate) const RECVRTHDR: i32 = 56;
    pub(crate) const RECVDSTOPTS: i32 = 58;
    pub(crate) const RECVPATHMTU: i32 = 60;
    pub(crate) const DONTFRAG: i32 = 62;
    pub(crate) const RECVTCLASS: i32 = 66;
    pub(crate) const TCLASS: i32 = 67;
    pub(crate) const MINHOPCOUNT: i32 = 73;
    pub(crate) const RECVORIGDSTADDR: i32 = 74;
    pub(crate) const TRANSPARENT: i32 = 75;
    pub(crate) const UNICAST_IF: i32 = 76;
    pub(crate) const RECVFRAGSIZE: i32 = 77;
    pub(crate) const FREEBIND: i32 = 78;
}

/// Options of groups that both families have (RFC 3678 §5, `linux/in.h`).
pub(crate) mod mcast {
    pub(crate) const JOIN_GROUP: i32 = 42;
    pub(crate) const BLOCK_SOURCE: i32 = 43;
    pub(crate) const LEAVE_GROUP: i32 = 45;
    pub(crate) const JOIN_SOURCE_GROUP: i32 = 46;
    pub(crate) const LEAVE_SOURCE_GROUP: i32 = 47;
    pub(crate) const MSFILTER: i32 = 48;
}

/// Linux counts its own bookkeeping in, so it doubles what is asked for and says so (`socket(7)`).
const BUFFER_FACTOR: usize = 2;
const BUFFER_MIN: usize = 4096;
const BUFFER_MAX: usize = 1 << 26;

/// The buffer of a program that asks for so much (`SO_SNDBUF`, `SO_RCVBUF`).
pub(super) fn buffer_of(value: i32) -> usize {
    // As in Linux, less than none is as much as there can be.
    usize::try_from(value).unwrap_or(BUFFER_MAX).clamp(BUFFER_MIN / 2, BUFFER_MAX)
}

/// What it is told of a buffer.
pub(super) fn buffer_shown(bytes: usize) -> i32 {
    i32::try_from(BUFFER_FACTOR * bytes).unwrap_or(i32::MAX)
}

/// Whether a program may have such a priority: root any, others 0 to 6 (socket(7)).
pub(super) fn may_have_priority(value: i32, user: u32) -> bool {
    user == 0 || (0..=6).contains(&value)
}

/// The band of a priority, as `pfifo_fast` has it (tc-prio(8)).
pub(super) fn band_of(priority: i32) -> Band {
    match priority & 15 {
        6 | 7 => Band::Urgent,
        1..=3 | 5 => Band::Bulk,
        _ => Band::Usual,
    }
}

/// The octet that a program says by IP_TOS, of which the last eight bits count, or by IPV6_TCLASS.
pub(super) fn class_of(level: i32, value: i32) -> Result<u8, Errno> {
    match value {
        _ if level == ip::LEVEL => Ok(value as u8),
        -1 => Ok(0),
        _ => u8::try_from(value).map_err(|_| Errno::INVAL),
    }
}

/// The priority that goes with a TOS (`ip_tos2prio` of Linux).
pub(super) const fn priority_of_tos(tos: u8) -> i32 {
    match (tos & 0x1e) >> 1 {
        4..=7 => 2,
        8..=11 => 6,
        12..=15 => 4,
        _ => 0,
    }
}

/// IPV6_MTU: zero takes the limit away, and no way carries less than 1280 (RFC 8200 §5).
pub(super) fn packet_max(value: i32) -> Result<Option<Mtu>, Errno> {
    match value {
        0 => Ok(None),
        ..1280 => Err(Errno::INVAL),
        _ => Ok(Mtu::new(u16::try_from(value).unwrap_or(u16::MAX))),
    }
}

/// SO_MAX_PACING_RATE, in bytes a second: 32 bits or 64. All ones are no limit.
pub(super) fn pacing_of(value: &[u8]) -> Result<Option<BitRate>, Errno> {
    let rate = match (value.first_chunk::<8>(), value.first_chunk::<4>()) {
        (Some(bytes), _) => u64::from_ne_bytes(*bytes),
        (None, Some(bytes)) => match u32::from_ne_bytes(*bytes) {
            u32::MAX => u64::MAX,
            rate => rate.into(),
        },
        (None, None) => return Err(Errno::INVAL),
    };
    Ok((rate != u64::MAX).then(|| BitRate::from_bps(rate.saturating_mul(8))))
}

/// The same as a program reads it, with room for so many bytes.
pub(super) fn pacing_shown(limit: Option<BitRate>, len: usize) -> Vec<u8> {
    let rate = limit.map_or(u64::MAX, |limit| limit.bps() / 8);
    if len >= 8 {
        rate.to_ne_bytes().to_vec()
    } else {
        u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes().to_vec()
    }
}

/// The number that an option is set to. Those of IPv4 may be an octet.
pub(super) fn number(level: i32, value: &[u8]) -> Result<i32, Errno> {
    match (value.first_chunk(), value) {
        (Some(bytes), _) => Ok(i32::from_ne_bytes(*bytes)),
        (None, [octet, ..]) if level == ip::LEVEL => Ok(i32::from(*octet)),
        _ => Err(Errno::INVAL),
    }
}

/// What an option is set to, where nothing is zero: as Linux has it of IPv4's, but for those of which it asks for an octet.
pub(super) fn said((level, name): (i32, i32), value: &[u8]) -> Result<&[u8], Errno> {
    let wants_some = matches!(
        name,
        ip::TTL | ip::FREEBIND | ip::MINTTL | ip::MULTICAST_TTL | ip::MULTICAST_LOOP | ip::MULTICAST_ALL
    );
    match value {
        [] if level == ip::LEVEL && wants_some => Err(Errno::INVAL),
        [] if level == ip::LEVEL && name != ip::OPTIONS => Ok(&[0]),
        _ => Ok(value),
    }
}

/// As much of an option's value as a program has room for; a small number of IPv4's is an octet where there is none for more.
pub(super) fn cut((level, name): (i32, i32), mut value: Vec<u8>, room: usize) -> Vec<u8> {
    let number = value.as_slice().try_into().map(i32::from_ne_bytes);
    let octet = number.ok().and_then(|number| u8::try_from(number).ok());
    match octet {
        Some(octet) if level == ip::LEVEL && name != ip::MULTICAST_IF && (1..4).contains(&room) => {
            vec![octet]
        }
        _ => {
            value.truncate(room);
            value
        }
    }
}

/// A socket's family (SO_DOMAIN).
pub(super) fn domain(is_v6: bool) -> i32 {
    i32::from(if is_v6 { AF_INET6 } else { AF_INET })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_have_linux_bands_and_tos_has_linux_priorities() {
        for (priority, band) in [
            (0, Band::Usual),
            (1, Band::Bulk),
            (2, Band::Bulk),
            (3, Band::Bulk),
            (4, Band::Usual),
            (5, Band::Bulk),
            (6, Band::Urgent),
            (7, Band::Urgent),
            (8, Band::Usual),
            (15, Band::Usual),
            (16, Band::Usual),
            (22, Band::Urgent),
        ] {
            assert_eq!(band_of(priority), band, "{priority}");
        }
        for (tos, priority) in [(0, 0), (2, 0), (4, 0), (8, 2), (0x10, 6), (0x18, 4), (0xb8, 4), (0xe0, 0)] {
            assert_eq!(priority_of_tos(tos), priority, "{tos:#x}");
        }
        assert!(
            (0..=6).all(|it| may_have_priority(it, 1000))
                && ![-1, 7].map(|it| may_have_priority(it, 1)).contains(&true)
        );
        assert!(may_have_priority(100, 0));
    }

    #[test]
    fn numbers_of_ipv4_may_be_octets() {
        assert_eq!(
            [0, 41, 1].map(|level| number(level, &[7])),
            [Ok(7), Err(Errno::INVAL), Err(Errno::INVAL)]
        );
        assert_eq!(number(0, &[]), Err(Errno::INVAL));
        assert_eq!(said((0, 1), &[]), Ok(&[0][..]), "IP_TOS");
        assert_eq!(said((0, 2), &[]), Err(Errno::INVAL), "IP_TTL");
        assert_eq!([(0, 4), (41, 67), (1, 2)].map(|name| said(name, &[])), [Ok(&[][..]); 3]);
        let seven = || 7i32.to_ne_bytes().to_vec();
        assert_eq!(cut((0, 2), seven(), 2), [7]);
        assert_eq!(cut((0, 2), seven(), 0), []);
        assert_eq!(cut((0, 2), seven(), 9), seven());
        assert_eq!(cut((0, 14), 1500i32.to_ne_bytes().to_vec(), 2), 1500u16.to_ne_bytes());
        assert_eq!(cut((41, 16), seven(), 2), [7, 0]);
    }

    #[test]
    fn rates_have_32_bits_or_64() {
        for (rate, words) in [(None, [u64::MAX, u64::from(u32::MAX)]), (Some(8 << 20), [1 << 20, 1 << 20])] {
            let limit = rate.map(BitRate::from_bps);
            assert_eq!(pacing_shown(limit, 8), words[0].to_ne_bytes());
            assert_eq!(pacing_shown(limit, 4), (words[1] as u32).to_ne_bytes());
            assert_eq!(pacing_of(&pacing_shown(limit, 8)), Ok(limit));
            assert_eq!(pacing_of(&pacing_shown(limit, 4)), Ok(limit));
        }
        assert_eq!(pacing_of(&[1, 2]), Err(Errno::INVAL));
        assert_eq!(pacing_shown(Some(BitRate::from_bps(80 << 32)), 4), u32::MAX.to_ne_bytes());
    }
}
