//! Datagrams of programs that did not arrive: what a program with IP_RECVERR is told of each (ip(7), `struct sock_extended_err`).
//!
//! Called by `datagrams.rs` with what the lane says, and with what the program asks. The numbers are Linux' (`net/ipv4/icmp.c`
//! and `net/ipv6/icmp.c` of its source have the tables), so that one who reads them finds what he knows.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use firelane_ip::{ErrorKind, Said, TransportError};
use firelane_lane::Fault as LaneFault;
use firelane_shm::{Fault, Origin};
use firelane_wire::IpProtocol;
use rustix::io::Errno;

/// The most that wait for a program: what Linux' usual receive buffer has room for.
const WAITING_MAX: usize = 256;

/// What waits for a program.
#[derive(Debug, Default)]
pub(super) struct Faults {
    waiting: VecDeque<Fault>,
    /// How many had no room.
    lost: u64,
}

impl Faults {
    /// One more; whether it had room.
    pub(super) fn add(&mut self, fault: Fault) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.push_back(fault);
        } else {
            self.lost += 1;
        }
        has_room
    }

    /// The first, and the number of the next one.
    pub(super) fn take(&mut self) -> Option<(Fault, Option<i32>)> {
        let first = self.waiting.pop_front()?;
        Some((first, self.waiting.front().map(|next| next.errno)))
    }

    /// The program does not want them any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How many had no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

/// What a program is told of it; `None` if Linux does not.
pub(super) fn told(fault: &LaneFault) -> Option<Fault> {
    match *fault {
        // Its receiver has waited in vain for another part of it.
        LaneFault::Told(error) if error.dst.is_ipv4() && error.said.icmp == [11, 1] => None,
        LaneFault::Told(error) => Some(of_icmp(&error)),
        LaneFault::TooLong { to, mtu } => Some(Fault {
            errno: Errno::MSGSIZE.raw_os_error(),
            origin: Origin::Local,
            icmp: [0; 2],
            info: mtu.bytes().into(),
            to,
            offender: unspecified(to.ip()),
            local: unspecified(to.ip()),
            interface: 0,
            hops: 0,
            tos: 0,
            text: Vec::new(),
        }),
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => core::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => core::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn of_icmp(error: &TransportError) -> Fault {
    let Said { from, link, hops, tos, icmp, rest, text } = error.said;
    let is_v4 = error.dst.is_ipv4();
    let info = match (error.kind, is_v4) {
        (ErrorKind::TooBig { mtu }, _) => mtu.bytes().into(),
        (_, false) => rest,
        // The octet that points at the problem.
        (_, true) if icmp[0] == 12 => rest >> 24,
        (_, true) => 0,
    };
    // An echo has no port.
    let port = if error.protocol == IpProtocol::UDP { error.ports.1.0 } else { 0 };
    Fault {
        errno: if is_v4 { errno_v4(icmp) } else { errno_v6(icmp) }.raw_os_error(),
        origin: if is_v4 { Origin::Icmp } else { Origin::Icmp6 },
        icmp,
        info,
        to: SocketAddr::new(error.dst, port),
        offender: from,
        local: error.src,
        interface: link.map_or(0, |link| link.0.wrapping_add(1)),
        hops,
        tos,
        text: text.as_slice().to_vec(),
    }
}

/// `icmp_err_convert` of Linux.
const fn errno_v4([kind, code]: [u8; 2]) -> Errno {
    match (kind, code) {
        (3, 0 | 6 | 9 | 11) => Errno::NETUNREACH,
        (3, 2) => Errno::NOPROTOOPT,
        (3, 3) => Errno::CONNREFUSED,
        (3, 4) => Errno::MSGSIZE,
        (3, 5) => Errno::OPNOTSUPP,
        (3, 7) => Errno::HOSTDOWN,
        (3, 8) => Errno::NONET,
        (12, _) => Errno::PROTO,
        _ => Errno::HOSTUNREACH,
    }
}

/// `icmpv6_err_convert` of Linux.
const fn errno_v6([kind, code]: [u8; 2]) -> Errno {
    match (kind, code) {
        (1, 0) => Errno::NETUNREACH,
        (1, 1 | 5 | 6) => Errno::ACCESS,
        (1, 2 | 3) | (3, _) => Errno::HOSTUNREACH,
        (1, 4) => Errno::CONNREFUSED,
        (2, _) => Errno::MSGSIZE,
        _ => Errno::PROTO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_ip::QuotedText;
    use firelane_units::{LinkId, Mtu, Port};

    fn error(icmp: [u8; 2], rest: u32, kind: ErrorKind, to: &str) -> LaneFault {
        let dst: SocketAddr = to.parse().unwrap();
        let src = if dst.is_ipv4() { IpAddr::from([10, 0, 0, 1]) } else { "fd00::1".parse().unwrap() };
        LaneFault::Told(TransportError {
            protocol: IpProtocol::UDP,
            src,
            dst: dst.ip(),
            ports: (Port(4000), Port(dst.port())),
            seq: None,
            kind,
            said: Said {
                from: [10, 0, 0, 9].into(),
                link: Some(LinkId(2)),
                hops: 61,
                tos: 0xc0,
                icmp,
                rest,
                text: QuotedText::of(b"what was sent"),
            },
        })
    }

    #[test]
    fn each_message_has_linux_number_and_what_goes_with_it() {
        let mtu = Mtu::new(1400).unwrap();
        let too_big = ErrorKind::TooBig { mtu };
        for (icmp, rest, kind, to, errno, info) in [
            ([3, 0], 7, ErrorKind::NetworkUnreachable, "10.0.0.2:9", Errno::NETUNREACH, 0),
            ([3, 1], 7, ErrorKind::HostUnreachable, "10.0.0.2:9", Errno::HOSTUNREACH, 0),
            ([3, 2], 7, ErrorKind::ProtocolUnreachable, "10.0.0.2:9", Errno::NOPROTOOPT, 0),
            ([3, 3], 7, ErrorKind::PortUnreachable, "10.0.0.2:9", Errno::CONNREFUSED, 0),
            ([3, 4], 1400, too_big, "10.0.0.2:9", Errno::MSGSIZE, 1400),
            ([3, 13], 7, ErrorKind::Prohibited, "10.0.0.2:9", Errno::HOSTUNREACH, 0),
            ([11, 0], 7, ErrorKind::TimeExceeded, "10.0.0.2:9", Errno::HOSTUNREACH, 0),
            ([12, 0], 9 << 24, ErrorKind::ParameterProblem, "10.0.0.2:9", Errno::PROTO, 9),
            ([1, 1], 0, ErrorKind::Prohibited, "[fd00::2]:9", Errno::ACCESS, 0),
            ([1, 4], 0, ErrorKind::PortUnreachable, "[fd00::2]:9", Errno::CONNREFUSED, 0),
            ([2, 0], 1400, too_big, "[fd00::2]:9", Errno::MSGSIZE, 1400),
            ([3, 0], 0, ErrorKind::TimeExceeded, "[fd00::2]:9", Errno::HOSTUNREACH, 0),
            ([4, 0], 40, ErrorKind::ParameterProblem, "[fd00::2]:9", Errno::PROTO, 40),
        ] {
            let told = told(&error(icmp, rest, kind, to)).unwrap();
            assert_eq!((told.errno, told.info), (errno.raw_os_error(), info), "{icmp:?} {to}");
            assert_eq!((told.icmp, told.to, told.interface), (icmp, to.parse().unwrap(), 3));
            assert_eq!((told.hops, told.tos, &told.text[..]), (61, 0xc0, &b"what was sent"[..]));
        }
        let far: SocketAddr = "10.0.0.2:9".parse().unwrap();
        let local = told(&LaneFault::TooLong { to: far, mtu }).unwrap();
        assert_eq!(told(&error([11, 1], 0, ErrorKind::TimeExceeded, "10.0.0.2:9")), None);
        assert_eq!(
            (local.origin, local.errno, local.info),
            (Origin::Local, Errno::MSGSIZE.raw_os_error(), 1400)
        );
    }

    #[test]
    fn they_come_in_order_and_too_many_are_counted() {
        let mut faults = Faults::default();
        let one = |port: u16| {
            told(&error([3, 3], 0, ErrorKind::PortUnreachable, &format!("10.0.0.2:{port}"))).unwrap()
        };
        for port in 0..WAITING_MAX as u16 + 3 {
            assert_eq!(faults.add(one(port)), usize::from(port) < WAITING_MAX);
        }
        assert_eq!(faults.lost(), 3);
        assert_eq!(faults.take(), Some((one(0), Some(Errno::CONNREFUSED.raw_os_error()))));
        for port in 1..WAITING_MAX as u16 - 1 {
            assert!(faults.take().is_some_and(|(fault, next)| fault == one(port) && next.is_some()));
        }
        assert_eq!(faults.take().map(|(_, next)| next), Some(None));
        assert_eq!(faults.take(), None);
    }
}
