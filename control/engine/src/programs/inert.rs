//! Options that change nothing about a socket of one kind, here as in Linux, which takes them and gives them back: what a
//! program wants to be told with each datagram, set on a stream; what becomes of a connection, set on a datagram socket.
//!
//! Kept by `options.rs`, `datagram_options.rs` and `alike.rs`.

use super::numbers::{ip, ipv6, socket};

/// Of streams: a segment is told with nothing, goes to no group, and is never cut.
const OF_STREAMS: [(i32, i32); 22] = [
    (ip::LEVEL, ip::MULTICAST_LOOP),
    (ipv6::LEVEL, ipv6::MULTICAST_LOOP),
    (ip::LEVEL, ip::MULTICAST_ALL),
    (ipv6::LEVEL, ipv6::MULTICAST_ALL),
    (ip::LEVEL, ip::RECVOPTS),
    (ip::LEVEL, ip::RETOPTS),
    (ip::LEVEL, ip::PKTINFO),
    (ip::LEVEL, ip::RECVTTL),
    (ip::LEVEL, ip::RECVTOS),
    (ipv6::LEVEL, ipv6::RECVPKTINFO),
    (ipv6::LEVEL, ipv6::RECVHOPLIMIT),
    (ipv6::LEVEL, ipv6::RECVTCLASS),
    (ipv6::LEVEL, ipv6::RECVHOPOPTS),
    (ipv6::LEVEL, ipv6::RECVRTHDR),
    (ipv6::LEVEL, ipv6::RECVDSTOPTS),
    (ipv6::LEVEL, ipv6::DONTFRAG),
    (ip::LEVEL, ip::RECVORIGDSTADDR),
    (ipv6::LEVEL, ipv6::RECVORIGDSTADDR),
    (ipv6::LEVEL, ipv6::RECVPATHMTU),
    (socket::LEVEL, socket::NO_CHECK),
    (socket::LEVEL, socket::RXQ_OVFL),
    (socket::LEVEL, socket::SELECT_ERR_QUEUE),
];

/// How many of them are set from the begin.
const ON_AT_FIRST: u32 = 4;

/// Of datagram sockets: there is no connection whose peer could be asked, and no urgent text.
const OF_DATAGRAMS: [(i32, i32); 2] =
    [(socket::LEVEL, socket::KEEPALIVE), (socket::LEVEL, socket::OOBINLINE)];

/// Of both: what is about a kernel's debugging, radio devices, security modules and drivers that are polled, of which Linux sees nothing
/// at a virtual device either; and that a socket's filter stays, where none can be had.
const OF_ALL: [(i32, i32); 6] = [
    (socket::LEVEL, socket::DEBUG),
    (socket::LEVEL, socket::WIFI_STATUS),
    (socket::LEVEL, socket::NOFCS),
    (socket::LEVEL, socket::LOCK_FILTER),
    (socket::LEVEL, socket::PREFER_BUSY_POLL),
    (ip::LEVEL, ip::PASSSEC),
];

/// Which of a kind's options a program has set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inert {
    all: &'static [(i32, i32)],
    set: u32,
}

impl Inert {
    pub(super) const STREAM: Self = Self { all: &OF_STREAMS, set: (1 << ON_AT_FIRST) - 1 };
    pub(super) const DATAGRAM: Self = Self { all: &OF_DATAGRAMS, set: 0 };
    pub(super) const ALL: Self = Self { all: &OF_ALL, set: 0 };

    fn bit(self, level: i32, name: i32) -> Option<u32> {
        self.all.iter().position(|&it| it == (level, name)).map(|at| 1 << at)
    }

    /// setsockopt(2): whether it is such an option.
    pub(super) fn set(&mut self, level: i32, name: i32, on: bool) -> bool {
        let Some(bit) = self.bit(level, name) else { return false };
        self.set = if on { self.set | bit } else { self.set & !bit };
        true
    }

    /// getsockopt(2), if it is such an option.
    pub(super) fn get(self, level: i32, name: i32) -> Option<i32> {
        self.bit(level, name).map(|bit| i32::from(self.set & bit != 0))
    }
}

impl Default for Inert {
    fn default() -> Self {
        Self::STREAM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_is_kept_and_given_back() {
        for (fresh, on_at_first) in [(Inert::STREAM, ON_AT_FIRST), (Inert::DATAGRAM, 0), (Inert::ALL, 0)] {
            for (at, &(level, name)) in fresh.all.iter().enumerate() {
                let mut kept = fresh;
                assert_eq!(kept.get(level, name), Some(i32::from((at as u32) < on_at_first)));
                for on in [true, false] {
                    assert!(kept.set(level, name, on));
                    assert_eq!(kept.get(level, name), Some(on.into()));
                    let others = fresh.all.iter().filter(|&&it| it != (level, name));
                    assert!(others.into_iter().all(|&(l, n)| kept.get(l, n) == fresh.get(l, n)));
                }
            }
            let mut kept = fresh;
            assert!(!kept.set(socket::LEVEL, socket::REUSEADDR, true));
            assert_eq!(kept.get(socket::LEVEL, socket::REUSEADDR), None);
        }
    }
}
