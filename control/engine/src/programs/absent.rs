//! Options that Linux has and Firelane does not do: each is off, may be read and set so, and ENOPROTOOPT is the answer to who wants
//! it on.
//!
//! Called by `socket.rs` for what no other option is.

use rustix::io::Errno;

use super::numbers::{ip, ipv6, number, socket, tcp, udp};

/// Of every socket.
const OF_ALL: [(i32, i32); 9] = [
    (socket::LEVEL, socket::DONTROUTE),
    (socket::LEVEL, socket::ZEROCOPY),
    (ip::LEVEL, ip::TRANSPARENT),
    (ip::LEVEL, ip::CHECKSUM),
    (ip::LEVEL, ip::RECVERR_RFC4884),
    (ipv6::LEVEL, ipv6::FLOWINFO),
    (ipv6::LEVEL, ipv6::RECVERR_RFC4884),
    (ipv6::LEVEL, ipv6::TRANSPARENT),
    (ipv6::LEVEL, ipv6::RECVFRAGSIZE),
];

/// Of streams: text has no time at which it came, is not resent by other rules, and its segments are neither kept nor delayed.
const OF_STREAMS: [(i32, i32); 5] = [
    (socket::LEVEL, socket::TIMESTAMP),
    (socket::LEVEL, socket::TIMESTAMPNS),
    (tcp::LEVEL, tcp::THIN_LINEAR_TIMEOUTS),
    (tcp::LEVEL, tcp::SAVE_SYN),
    (tcp::LEVEL, tcp::TX_DELAY),
];

/// Of datagram sockets.
const OF_DATAGRAMS: [(i32, i32); 12] = [
    (socket::LEVEL, socket::NO_CHECK),
    (udp::LEVEL, udp::ENCAP),
    (udp::LEVEL, udp::NO_CHECK6_TX),
    (udp::LEVEL, udp::NO_CHECK6_RX),
    (ip::LEVEL, ip::RECVOPTS),
    (ip::LEVEL, ip::RETOPTS),
    (ip::LEVEL, ip::BIND_ADDRESS_NO_PORT),
    (ip::LEVEL, ip::RECVFRAGSIZE),
    (ipv6::LEVEL, ipv6::RECVHOPOPTS),
    (ipv6::LEVEL, ipv6::RECVRTHDR),
    (ipv6::LEVEL, ipv6::RECVDSTOPTS),
    (ipv6::LEVEL, ipv6::RECVPATHMTU),
];

fn is_one(option: (i32, i32), is_datagram: bool) -> bool {
    let own: &[_] = if is_datagram { &OF_DATAGRAMS } else { &OF_STREAMS };
    OF_ALL.contains(&option) || own.contains(&option)
}

/// getsockopt(2), if it is such an option.
pub(super) fn get(option: (i32, i32), is_datagram: bool) -> Option<Vec<u8>> {
    is_one(option, is_datagram).then(|| 0i32.to_ne_bytes().to_vec())
}

/// setsockopt(2), if it is such an option.
pub(super) fn set(option: (i32, i32), is_datagram: bool, value: &[u8]) -> Option<Result<(), Errno>> {
    let done = |value: i32| if value == 0 { Ok(()) } else { Err(Errno::NOPROTOOPT) };
    is_one(option, is_datagram).then(|| number(option.0, value).and_then(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_off_and_stays_so() {
        let (off, on) = (0i32.to_ne_bytes(), 1i32.to_ne_bytes());
        for (option, of_streams, of_datagrams) in [
            ((1, 5), true, true),
            ((1, 29), true, false),
            ((1, 11), false, true),
            ((17, 100), false, true),
            ((0, 19), true, true),
            ((1, 2), false, false),
        ] {
            for (is_datagram, is_one) in [(false, of_streams), (true, of_datagrams)] {
                let said = [&off, &on].map(|value| set(option, is_datagram, value));
                let wanted = [Ok(()), Err(Errno::NOPROTOOPT)].map(|said| is_one.then_some(said));
                assert_eq!(said, wanted, "{option:?} {is_datagram}");
                assert_eq!(get(option, is_datagram), is_one.then(|| off.to_vec()), "{option:?}");
            }
        }
        assert_eq!(set((1, 5), false, &[0]), Some(Err(Errno::INVAL)), "too short for a number");
    }
}
