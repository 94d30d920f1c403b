//! Options of programs' datagram sockets: setsockopt(2) and getsockopt(2), by Linux' numbers (`ip(7)`, `ipv6(7)`, `udp(7)`).
//!
//! Kept here from the socket's begin, and given to the lane and to the program's words when there is a socket there.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use firelane_filter::FilterSetup;
use firelane_ip::HopLimits;
use firelane_lane::{DatagramKind, DatagramOption, PacketOption, Sharing};
use firelane_shm::layout::file;
use firelane_units::{BitRate, Family, LinkId};
use rustix::io::Errno;

use super::alike::Alike;
use super::headers::{HeaderOption, Headers, family_of};
use super::inert::Inert;
use super::joining::{self, Unbound};
use super::lingering::Linger;
use super::memberships::{Member, Memberships, Named, interface_of_groups};
use super::numbers::{
    band_of, buffer_of, buffer_shown, domain, ip, ipv6, number, pacing_of, pacing_shown, packet_max, socket,
    udp,
};
use super::shares::Seat;

/// `IP_PMTUDISC_DO` and `IP_PMTUDISC_PROBE`: datagrams are not cut.
const DISCOVER_DO: i32 = 2;
const DISCOVER_PROBE: i32 = 3;
const DISCOVER_WANT: i32 = 1;
const IPPROTO_ICMP: i32 = 1;
const IPPROTO_ICMPV6: i32 = 58;

/// What a change is to do to a socket that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    /// The lane is to know.
    Lane(DatagramOption),
    /// The send queue's size changes.
    SendQueue(usize),
    /// Of which datagrams the program is told that they did not arrive, by the bits of its word.
    /// Those that wait to be told may be dropped.
    Faults { bits: u64, are_dropped: bool },
    /// A membership begins, ends, or has another filter.
    Member(Member),
    /// The program's word has these bits.
    Program(u64),
    /// Only the answer to getsockopt(2) changes.
    Nothing,
}

/// What a program has set.
#[derive(Debug)]
pub(super) struct DatagramOptions {
    is_v6: bool,
    pub(super) v6_only: bool,
    pub(super) reuse_address: bool,
    pub(super) reuse_port: bool,
    broadcast: bool,
    buffers: [Option<usize>; 2],
    headers: Headers,
    /// By family, as the next three.
    discover: [i32; 2],
    priority: i32,
    pacing: Option<BitRate>,
    multicast_hops: [u8; 2],
    multicast_loop: [bool; 2],
    /// It hears groups that others of the netstack have joined.
    multicast_all: [bool; 2],
    multicast_link: [Option<u32>; 2],
    /// By which address IP_MULTICAST_IF named it.
    multicast_address: Ipv4Addr,
    groups: Memberships,
    /// What each takes of its program's share, by link and group.
    seats: BTreeMap<(u32, IpAddr), Seat>,
    /// Who is in them before the socket is bound.
    pub(super) unbound: Option<Unbound>,
    /// It has no meaning here, as in Linux.
    linger: Linger,
    inert: Inert,
    pub(super) alike: Alike,
    /// What its datagrams are.
    pub(super) kind: DatagramKind,
    /// Which datagrams it gets.
    pub(super) filter: Option<Arc<FilterSetup>>,
    /// What the program wants to be told with each datagram, and what it cuts by: [`mod@file`].
    bits: u64,
}

impl DatagramOptions {
    /// As a new socket has them.
    pub(super) fn new(is_v6: bool, kind: DatagramKind) -> Self {
        Self {
            is_v6,
            kind,
            filter: None,
            linger: Linger::default(),
            inert: Inert::DATAGRAM,
            alike: Alike::default(),
            v6_only: false,
            reuse_address: false,
            reuse_port: false,
            broadcast: false,
            buffers: [None; 2],
            headers: Headers::default(),
            discover: [DISCOVER_WANT; 2],
            priority: 0,
            pacing: None,
            multicast_hops: [1; 2],
            multicast_loop: [true; 2],
            // As in Linux a socket of IPv6 hears such groups of IPv4 only if it says so.
            multicast_all: [!is_v6, true],
            multicast_link: [None; 2],
            multicast_address: Ipv4Addr::UNSPECIFIED,
            groups: Memberships::default(),
            seats: BTreeMap::new(),
            unbound: None,
            bits: 0,
        }
    }

    /// A membership has begun, or changed, or ended; one that begins has to `take` a seat.
    pub(super) fn seat(
        &mut self,
        member: &Member,
        take: impl FnOnce((u32, IpAddr)) -> Option<Seat>,
    ) -> Result<(), Errno> {
        let place = (member.link, member.group);
        if member.filter.is_none() {
            self.seats.remove(&place);
        } else if !self.seats.contains_key(&place) {
            let Some(seat) = take(place) else {
                self.groups.undo(member);
                // As Linux has it of whoever is in too many (igmp_max_memberships).
                return Err(Errno::NOBUFS);
            };
            self.seats.insert(place, seat);
        }
        Ok(())
    }

    /// Which other sockets, of this user's for one, may be bound to the same.
    pub(super) fn sharing(&self, user: u32) -> Sharing {
        Sharing { shared: self.reuse_address, spread: self.reuse_port.then_some(user) }
    }

    /// The sizes of the queues.
    pub(super) fn queues(&self, usual: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|at| self.buffers[at].unwrap_or(usual[at]))
    }

    /// What a socket that has just been made is to be told.
    pub(super) fn all(&self) -> Vec<Setting> {
        let mut all = vec![
            Setting::Program(self.bits),
            Setting::Lane(DatagramOption::Broadcast(self.broadcast)),
            self.band(),
            Setting::Lane(DatagramOption::PacingLimit(self.pacing)),
            Setting::Lane(DatagramOption::ReceiveOffload(self.bits & file::GRO != 0)),
        ];
        all.extend(self.headers.changed().map(of_header));
        all.extend(Family::BOTH.into_iter().flat_map(|family| self.of_family(family)));
        all.push(Setting::Faults { bits: self.bits, are_dropped: false });
        all.push(Setting::Lane(DatagramOption::WholeMessages(self.kind == DatagramKind::Echo)));
        all.extend(self.groups.iter().cloned().map(Setting::Member));
        all
    }

    /// What its packets of a family are like, beside hops and class.
    fn of_family(&self, family: Family) -> [Setting; 6] {
        let at = family.index();
        [
            PacketOption::DontFragment(is_whole(self.discover[at])),
            PacketOption::MulticastHops(self.multicast_hops[at]),
            PacketOption::MulticastLoop(self.multicast_loop[at]),
            PacketOption::MulticastAll(self.multicast_all[at]),
            PacketOption::UnicastLink(self.alike.unicast(family)),
            self.way_to_groups(family),
        ]
        .map(|option| packets(family, option))
    }

    /// By which link what it sends to groups of IPv6 leaves (IPV6_MULTICAST_IF).
    pub(super) fn link_of_groups(&self) -> Option<LinkId> {
        self.multicast_link[Family::V6.index()].map(joining::link_named)
    }

    /// As in Linux what was named by its address has that as its source, too.
    fn way_to_groups(&self, family: Family) -> PacketOption {
        let link = self.multicast_link[family.index()].map(joining::link_named);
        let source = Some(self.multicast_address).filter(|it| family == Family::V4 && !it.is_unspecified());
        PacketOption::MulticastLink(link, source)
    }

    /// setsockopt(2). `link_of` finds the link that is named.
    pub(super) fn set(
        &mut self,
        level: i32,
        name: i32,
        value: &[u8],
        link_of: impl Fn(Named) -> Option<u32>,
    ) -> Result<Setting, Errno> {
        if let Some(member) = self.groups.set(level, name, value, &link_of) {
            return member.map(Setting::Member);
        }
        match (level, name) {
            (socket::LEVEL, socket::MAX_PACING_RATE) => {
                self.pacing = pacing_of(value)?;
                Ok(Setting::Lane(DatagramOption::PacingLimit(self.pacing)))
            }
            (socket::LEVEL, socket::LINGER) => {
                self.linger.set(value)?;
                Ok(Setting::Nothing)
            }
            (ip::LEVEL, ip::MULTICAST_IF) => {
                (self.multicast_link[0], self.multicast_address) = interface_of_groups(value, link_of)?;
                Ok(packets(Family::V4, self.way_to_groups(Family::V4)))
            }
            _ => self.set_number(level, name, number(level, value)?),
        }
    }

    fn set_number(&mut self, level: i32, name: i32, value: i32) -> Result<Setting, Errno> {
        let on = value != 0;
        if let Some(option) = self.headers.set((level, name), value, u8::MAX, &mut self.priority) {
            return option.map(of_header);
        }
        let family = family_of(level);
        Ok(match (level, name) {
            (socket::LEVEL, socket::REUSEADDR) => {
                self.reuse_address = on;
                Setting::Nothing
            }
            (socket::LEVEL, socket::REUSEPORT) => {
                self.reuse_port = on;
                Setting::Nothing
            }
            (socket::LEVEL, socket::BROADCAST) => {
                self.broadcast = on;
                Setting::Lane(DatagramOption::Broadcast(on))
            }
            (socket::LEVEL, socket::SNDBUF | socket::RCVBUF) => {
                let wanted = buffer_of(value);
                let receives = name == socket::RCVBUF;
                self.buffers[usize::from(receives)] = Some(wanted);
                match receives {
                    true => Setting::Lane(DatagramOption::ReceiveQueue(wanted)),
                    false => Setting::SendQueue(wanted),
                }
            }
            (ip::LEVEL, ip::MTU_DISCOVER) | (ipv6::LEVEL, ipv6::MTU_DISCOVER) if (0..=5).contains(&value) => {
                self.discover[family.index()] = value;
                packets(family, PacketOption::DontFragment(is_whole(value)))
            }
            (ip::LEVEL, ip::MTU_DISCOVER) | (ipv6::LEVEL, ipv6::MTU_DISCOVER) => return Err(Errno::INVAL),
            (ipv6::LEVEL, ipv6::MTU) => Setting::Lane(DatagramOption::PacketMax(packet_max(value)?)),
            (ipv6::LEVEL, ipv6::DONTFRAG) => {
                self.discover[1] = if on { DISCOVER_DO } else { DISCOVER_WANT };
                packets(Family::V6, PacketOption::DontFragment(on))
            }
            (ipv6::LEVEL, ipv6::V6ONLY) => {
                self.v6_only = on;
                Setting::Nothing
            }
            (udp::LEVEL, _) => return self.set_udp(name, value),
            _ => return self.set_for_many(level, name, value),
        })
    }

    fn set_udp(&mut self, name: i32, value: i32) -> Result<Setting, Errno> {
        let on = value != 0;
        match name {
            udp::SEGMENT => {
                let bytes = u16::try_from(value).map_err(|_| Errno::INVAL)?;
                self.bits = self.bits & !file::SEGMENT | u64::from(bytes) << file::SEGMENT_SHIFT;
                Ok(Setting::Program(self.bits))
            }
            udp::CORK => {
                self.set_bit(file::CORK, on);
                Ok(Setting::Program(self.bits))
            }
            udp::GRO => {
                self.set_bit(file::GRO, on);
                Ok(Setting::Lane(DatagramOption::ReceiveOffload(on)))
            }
            _ => Err(Errno::NOPROTOOPT),
        }
    }

    /// What concerns groups; and what the program wants to be told.
    fn set_for_many(&mut self, level: i32, name: i32, value: i32) -> Result<Setting, Errno> {
        let (on, family) = (value != 0, family_of(level));
        Ok(match (level, name) {
            (ip::LEVEL, ip::MULTICAST_TTL) | (ipv6::LEVEL, ipv6::MULTICAST_HOPS) => {
                let hops = if value == -1 { 1 } else { u8::try_from(value).map_err(|_| Errno::INVAL)? };
                self.multicast_hops[family.index()] = hops;
                packets(family, PacketOption::MulticastHops(hops))
            }
            (ip::LEVEL, ip::MULTICAST_LOOP) | (ipv6::LEVEL, ipv6::MULTICAST_LOOP) => {
                if family == Family::V6 && !(0..=1).contains(&value) {
                    return Err(Errno::INVAL);
                }
                self.multicast_loop[family.index()] = on;
                packets(family, PacketOption::MulticastLoop(on))
            }
            (ip::LEVEL, ip::MULTICAST_ALL) | (ipv6::LEVEL, ipv6::MULTICAST_ALL) => {
                if family == Family::V4 && !(0..=1).contains(&value) {
                    return Err(Errno::INVAL);
                }
                self.multicast_all[family.index()] = on;
                packets(family, PacketOption::MulticastAll(on))
            }
            (ipv6::LEVEL, ipv6::MULTICAST_IF) => {
                self.multicast_link[1] = u32::try_from(value).map_err(|_| Errno::NODEV)?.checked_sub(1);
                packets(Family::V6, self.way_to_groups(Family::V6))
            }
            (ip::LEVEL, ip::RECVERR) | (ipv6::LEVEL, ipv6::RECVERR) => {
                let bit = if level == ipv6::LEVEL { file::ERRORS_V6 } else { file::ERRORS_V4 };
                self.bits = if on { self.bits | bit } else { self.bits & !bit };
                // As in Linux, also those of the other family.
                Setting::Faults { bits: self.bits, are_dropped: !on }
            }
            (socket::LEVEL, socket::PRIORITY) => {
                self.priority = value;
                self.band()
            }
            (socket::LEVEL, socket::TIMESTAMP | socket::TIMESTAMPNS) => {
                // There is one time, told in one of two ways.
                self.set_bit(file::STAMP | file::STAMP_NANOS, false);
                let bit = if name == socket::TIMESTAMP { file::STAMP } else { file::STAMP_NANOS };
                self.set_bit(bit, on);
                Setting::Program(self.bits)
            }
            (ip::LEVEL, ip::UNICAST_IF) | (ipv6::LEVEL, ipv6::UNICAST_IF) => {
                self.alike.set(level, name, value);
                packets(family, PacketOption::UnicastLink(self.alike.unicast(family)))
            }
            _ if self.alike.set(level, name, value) || self.inert.set(level, name, on) => Setting::Nothing,
            _ => {
                let bit = told_bit(level, name).ok_or(Errno::NOPROTOOPT)?;
                self.set_bit(bit, on);
                Setting::Program(self.bits)
            }
        })
    }

    fn set_bit(&mut self, bit: u64, on: bool) {
        self.bits = if on { self.bits | bit } else { self.bits & !bit };
    }

    /// What was set and is not as it was, as words, and how many faults the program has missed.
    pub(super) fn spelled(&self, lost_faults: u64) -> Vec<String> {
        let flags = [
            (self.reuse_address, "reuseaddr"),
            (self.reuse_port, "reuseport"),
            (self.broadcast, "broadcast"),
            (self.v6_only, "v6only"),
            (self.bits & (file::ERRORS_V4 | file::ERRORS_V6) != 0, "recverr"),
            (self.bits & file::GRO != 0, "gro"),
        ];
        let mut words: Vec<String> =
            flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()).collect();
        words.extend((self.priority != 0).then(|| format!("priority={}", self.priority)));
        words.extend(self.pacing.map(|rate| format!("max_pacing_rate={}bps", rate.bps())));
        words.extend(self.alike.spelled());
        words.extend((lost_faults > 0).then(|| format!("recverr_lost={lost_faults}")));
        words
    }

    fn kept(&self, level: i32, name: i32, hops: HopLimits) -> Option<i32> {
        let kept = self.headers.get(level, name, hops).or(self.alike.get(level, name));
        kept.or(self.inert.get(level, name))
    }

    fn protocol(&self) -> i32 {
        match (self.kind, self.is_v6) {
            (DatagramKind::Udp, _) => udp::LEVEL,
            (DatagramKind::Echo, false) => IPPROTO_ICMP,
            (DatagramKind::Echo, true) => IPPROTO_ICMPV6,
        }
    }

    /// How urgent what it sends is.
    pub(super) fn band(&self) -> Setting {
        Setting::Lane(DatagramOption::Band(band_of(self.priority)))
    }

    /// The program's bits, which go with every change of an option.
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    /// getsockopt(2), at most `len` bytes.
    pub(super) fn get(
        &self,
        level: i32,
        name: i32,
        len: usize,
        usual: [usize; 2],
        hops: HopLimits,
    ) -> Result<Vec<u8>, Errno> {
        let buffer = |at: usize| buffer_shown(self.queues(usual)[at]);
        let at = family_of(level).index();
        let number: i32 = match (level, name) {
            (socket::LEVEL, socket::REUSEADDR) => self.reuse_address.into(),
            (socket::LEVEL, socket::REUSEPORT) => self.reuse_port.into(),
            (socket::LEVEL, socket::BROADCAST) => self.broadcast.into(),
            (socket::LEVEL, socket::SNDBUF) => buffer(0),
            (socket::LEVEL, socket::RCVBUF) => buffer(1),
            (socket::LEVEL, socket::TYPE) => 2,
            (socket::LEVEL, socket::SNDLOWAT) => 1,
            (socket::LEVEL, socket::LINGER) => {
                return Ok(self.linger.shown().into_iter().take(len).collect());
            }
            // Errors are in the socket's words.
            (socket::LEVEL, socket::ERROR | socket::ACCEPTCONN) => 0,
            (socket::LEVEL, socket::PROTOCOL) => self.protocol(),
            (socket::LEVEL, socket::DOMAIN) => domain(self.is_v6),
            (ip::LEVEL, ip::MTU_DISCOVER) | (ipv6::LEVEL, ipv6::MTU_DISCOVER) => self.discover[at],
            (ipv6::LEVEL, ipv6::DONTFRAG) => (self.discover[at] == DISCOVER_DO).into(),
            (ip::LEVEL, ip::MULTICAST_TTL) | (ipv6::LEVEL, ipv6::MULTICAST_HOPS) => {
                self.multicast_hops[at].into()
            }
            (ip::LEVEL, ip::MULTICAST_LOOP) | (ipv6::LEVEL, ipv6::MULTICAST_LOOP) => {
                self.multicast_loop[at].into()
            }
            (ip::LEVEL, ip::MULTICAST_ALL) | (ipv6::LEVEL, ipv6::MULTICAST_ALL) => {
                self.multicast_all[at].into()
            }
            (ip::LEVEL, ip::MULTICAST_IF) => i32::from_ne_bytes(self.multicast_address.octets()),
            (ipv6::LEVEL, ipv6::MULTICAST_IF) => {
                self.multicast_link[at].map_or(0, |link| i32::try_from(link + 1).unwrap_or(0))
            }
            (ipv6::LEVEL, ipv6::V6ONLY) => self.v6_only.into(),
            (socket::LEVEL, socket::PRIORITY) => self.priority,
            (socket::LEVEL, socket::MAX_PACING_RATE) => return Ok(pacing_shown(self.pacing, len)),
            (udp::LEVEL, udp::SEGMENT) => ((self.bits & file::SEGMENT) >> file::SEGMENT_SHIFT) as i32,
            (udp::LEVEL, udp::CORK) => (self.bits & file::CORK != 0).into(),
            (udp::LEVEL, udp::GRO) => (self.bits & file::GRO != 0).into(),
            _ => match self.kept(level, name, hops) {
                Some(number) => number,
                None => (self.bits & told_bit(level, name).ok_or(Errno::NOPROTOOPT)? != 0).into(),
            },
        };
        let mut value = number.to_ne_bytes().to_vec();
        value.truncate(len);
        Ok(value)
    }
}

/// Whether datagrams are never cut.
fn is_whole(discover: i32) -> bool {
    (DISCOVER_DO..=DISCOVER_PROBE).contains(&discover)
}

const fn packets(family: Family, option: PacketOption) -> Setting {
    Setting::Lane(DatagramOption::Packets(family, option))
}

fn of_header(option: HeaderOption) -> Setting {
    match option {
        HeaderOption::Hops(family, hops) => packets(family, PacketOption::Hops(hops)),
        HeaderOption::Class(family, class) => packets(family, PacketOption::TrafficClass(class)),
        HeaderOption::LeastHops(..) => Setting::Nothing,
    }
}

/// What a program may want to be told with each datagram.
const fn told_bit(level: i32, name: i32) -> Option<u64> {
    Some(match (level, name) {
        (socket::LEVEL, socket::TIMESTAMP) => file::STAMP,
        (socket::LEVEL, socket::TIMESTAMPNS) => file::STAMP_NANOS,
        (ip::LEVEL, ip::PKTINFO) => file::INFO_V4,
        (ip::LEVEL, ip::RECVTOS) => file::TOS_V4,
        (ip::LEVEL, ip::RECVTTL) => file::HOPS_V4,
        (socket::LEVEL, socket::RXQ_OVFL) => file::DROPS,
        (socket::LEVEL, socket::SELECT_ERR_QUEUE) => file::ERRORS_URGENT,
        (ip::LEVEL, ip::RECVERR) => file::ERRORS_V4,
        (ipv6::LEVEL, ipv6::RECVERR) => file::ERRORS_V6,
        (ip::LEVEL, ip::RECVORIGDSTADDR) => file::TARGET_V4,
        (ipv6::LEVEL, ipv6::RECVORIGDSTADDR) => file::TARGET_V6,
        (ipv6::LEVEL, ipv6::RECVPKTINFO) => file::INFO_V6,
        (ipv6::LEVEL, ipv6::RECVTCLASS) => file::TOS_V6,
        (ipv6::LEVEL, ipv6::RECVHOPLIMIT) => file::HOPS_V6,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_ip::SourceFilter;

    const USUAL: [usize; 2] = [1000, 2000];

    fn nobody(_: Named) -> Option<u32> {
        None
    }

    #[test]
    fn what_is_set_is_what_is_got_and_the_rest_is_refused() {
        let mut options = DatagramOptions::new(false, DatagramKind::Udp);
        for (level, name, value, got) in [
            (1, 6, 5, Ok(1)),
            (1, 8, 100_000, Ok(200_000)),
            (0, 1, 0xb8, Ok(0xb8)),
            (0, 1, 256, Ok(0)),
            (41, 67, 256, Err(Errno::INVAL)),
            (0, 2, 7, Ok(7)),
            (0, 2, 0, Err(Errno::INVAL)),
            (0, 8, 1, Ok(1)),
            (0, 10, 2, Ok(2)),
            (0, 10, 9, Err(Errno::INVAL)),
            (0, 11, 1, Ok(1)),
            (41, 25, 1, Ok(1)),
            (0, 15, 2, Ok(1)),
            (41, 78, 0, Ok(0)),
            (1, 36, 5, Ok(5)),
            (1, 49, 1, Err(Errno::NOPROTOOPT)),
            (1, 62, 3, Ok(3)),
            (0, 33, 4, Ok(4)),
            (41, 49, 1, Ok(1)),
            (1, 12, 3, Ok(3)),
            (1, 47, 4000, Ok(4000)),
            (41, 66, 0, Ok(0)),
            (1, 29, 1, Ok(1)),
            (1, 35, 1, Ok(1)),
            (1, 29, 0, Ok(0)),
            (1, 9, 3, Ok(1)),
            (1, 10, 1, Ok(1)),
            (1, 18, 0, Ok(1)),
            (1, 18, 7, Ok(7)),
            (1, 19, 1, Err(Errno::NOPROTOOPT)),
            (17, 103, 1200, Ok(1200)),
            (17, 103, 70_000, Err(Errno::INVAL)),
            (17, 104, 1, Ok(1)),
            (17, 1, 1, Ok(1)),
            (17, 100, 1, Err(Errno::NOPROTOOPT)),
            (6, 1, 1, Err(Errno::NOPROTOOPT)),
        ] {
            let set = options.set(level, name, &i32::to_ne_bytes(value), nobody).map(|_| ());
            let number = set.and_then(|()| options.get(level, name, 4, USUAL, HopLimits::DEFAULT));
            assert_eq!(number, got.map(|it: i32| it.to_ne_bytes().to_vec()), "{level} {name} {value}");
        }
        let on_lo = |named| matches!(named, Named::Address(it) if it.is_loopback()).then_some(0);
        for (value, said) in [
            (&[0, 0, 0, 0][..], Ok([0, 0, 0, 0])),
            (&[127, 0, 0, 1], Ok([127, 0, 0, 1])),
            (&[239, 1, 1, 1, 127, 0, 0, 1], Ok([127, 0, 0, 1])),
            (&[239, 1, 1, 1, 127, 0, 0, 1, 9], Ok([127, 0, 0, 1])),
            (&[239, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0], Ok([0, 0, 0, 0])),
            (&[239, 1, 1, 1, 127, 0, 0, 1, 0, 0, 0, 0, 7], Ok([127, 0, 0, 1])),
            (&[127, 0, 0], Err(Errno::INVAL)),
        ] {
            let set = options.set(0, 32, value, on_lo).map(|_| ());
            let got = set.and_then(|()| options.get(0, 32, 4, USUAL, HopLimits::DEFAULT));
            assert_eq!(got, said.map(|it| it.to_vec()), "{value:?}");
        }
        assert_eq!(options.set(0, 33, &[9], nobody), Ok(packets(Family::V4, PacketOption::MulticastHops(9))));
        assert_eq!(options.set(1, 6, &[1], nobody), Err(Errno::INVAL), "too short for a number");
        assert_eq!(options.queues(USUAL), [1000, 100_000]);
    }

    #[test]
    fn groups_are_joined_once_and_left_once() {
        let mut options = DatagramOptions::new(false, DatagramKind::Udp);
        let link_of = |named| match named {
            Named::Address(ip) => (ip.to_string() == "10.0.0.1").then_some(4),
            Named::Number(number) => Some(number),
            Named::Towards(_) => None,
        };
        let on_link = [224, 1, 1, 1, 10, 0, 0, 1];
        let of = |filter| Member { group: [224, 1, 1, 1].into(), link: 4, filter };
        let member = Setting::Member(of(SourceFilter::any()));
        assert_eq!(options.set(0, 35, &on_link, link_of), Ok(member.clone()));
        assert_eq!(options.set(0, 35, &on_link, link_of), Err(Errno::ADDRINUSE));
        assert_eq!(options.set(0, 35, &on_link[..4], link_of), Err(Errno::INVAL), "too short");
        assert!(options.all().contains(&member));
        let left = Setting::Member(of(SourceFilter::none()));
        assert_eq!(options.set(0, 36, &on_link, link_of), Ok(left));
        assert!(!options.all().iter().any(|it| matches!(it, Setting::Member(_))));
        assert_eq!(options.set(0, 36, &on_link, link_of), Err(Errno::ADDRNOTAVAIL));
        assert_eq!(options.set(0, 35, &[10, 0, 0, 9, 0, 0, 0, 0], link_of), Err(Errno::INVAL), "no group");
        assert_eq!(options.set(0, 35, &[224, 1, 1, 1, 9, 9, 9, 9], link_of), Err(Errno::NODEV));
        let mut v6 = vec![0xff, 2];
        v6.resize(16, 1);
        v6.extend(3u32.to_ne_bytes());
        assert!(matches!(options.set(41, 20, &v6, link_of), Ok(Setting::Member(Member { link: 2, .. }))));
    }
}
