//! Options that streams and datagram sockets have alike, and that the daemon keeps: a mark (SO_MARK), which nothing of ours looks
//! at; the only link that a socket speaks over (SO_BINDTOIFINDEX, and SO_BINDTODEVICE, whose names the daemon knows); and
//! that an address may be bound to which the netstack does not have, as yet (IP_FREEBIND, IPV6_FREEBIND of ip(7)). That flow labels are sent
//! that addresses name (IPV6_FLOWINFO_SEND) is kept alone: Java says so before it sets a traffic class, and names none.
//!
//! Kept by `options.rs` and `datagram_options.rs`. A connection has those of its listener, as in Linux.

use firelane_ip::LOOPBACK;
use firelane_units::{Family, LinkId};

use super::inert::Inert;
use super::numbers::{ip, ipv6, socket};

/// What a program has set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alike {
    mark: u32,
    /// The only link that it speaks over; programs call it by one more than its number.
    pub(super) link: Option<LinkId>,
    /// Its address need not be the netstack's.
    pub(super) binds_freely: bool,
    sends_flow_labels: bool,
    /// IP_UNICAST_IF and IPV6_UNICAST_IF, as the program says it: in the order of the net. Of streams it changes nothing, as in Linux.
    unicast: [i32; 2],
    /// SO_BUSY_POLL, in microseconds: no device of ours has a queue that its readers could poll.
    busy_poll: i32,
    /// SO_RCVLOWAT of what is no stream as yet, or never will be: a stream has it in its words.
    pub(super) low_water: u32,
    inert: Inert,
}

impl Default for Alike {
    fn default() -> Self {
        Self {
            mark: 0,
            link: None,
            binds_freely: false,
            sends_flow_labels: false,
            unicast: [0; 2],
            busy_poll: 0,
            low_water: 1,
            inert: Inert::ALL,
        }
    }
}

impl Alike {
    /// setsockopt(2): whether it is such an option. Who may set a mark is asked before.
    pub(super) fn set(&mut self, level: i32, name: i32, value: i32) -> bool {
        match (level, name) {
            (socket::LEVEL, socket::MARK) => self.mark = value.cast_unsigned(),
            (socket::LEVEL, socket::BINDTOIFINDEX) => self.link = link_of(value),
            (ip::LEVEL, ip::FREEBIND) | (ipv6::LEVEL, ipv6::FREEBIND) => self.binds_freely = value != 0,
            (ipv6::LEVEL, ipv6::FLOWINFO_SEND) => self.sends_flow_labels = value != 0,
            (ip::LEVEL, ip::UNICAST_IF) => self.unicast[0] = value,
            (ipv6::LEVEL, ipv6::UNICAST_IF) => self.unicast[1] = value,
            (socket::LEVEL, socket::BUSY_POLL) => self.busy_poll = value,
            // As in Linux, less than none is as much as there can be.
            (socket::LEVEL, socket::RCVLOWAT) => {
                self.low_water = u32::try_from(value).map_or(i32::MAX.unsigned_abs(), |least| least.max(1));
            }
            _ => return self.inert.set(level, name, value != 0),
        }
        true
    }

    /// getsockopt(2), if it is such an option.
    pub(super) fn get(&self, level: i32, name: i32) -> Option<i32> {
        Some(match (level, name) {
            (socket::LEVEL, socket::MARK) => self.mark.cast_signed(),
            (socket::LEVEL, socket::BINDTOIFINDEX) => self.link.map_or(0, index_of),
            (ip::LEVEL, ip::FREEBIND) | (ipv6::LEVEL, ipv6::FREEBIND) => self.binds_freely.into(),
            (ipv6::LEVEL, ipv6::FLOWINFO_SEND) => self.sends_flow_labels.into(),
            // Nothing has arrived on a CPU of its own, or by a queue of a device, that could be named: a lane is asked for the
            // first, and the second is what Linux answers without NAPI.
            (socket::LEVEL, socket::INCOMING_CPU) => -1,
            (socket::LEVEL, socket::INCOMING_NAPI_ID) => 0,
            (ip::LEVEL, ip::UNICAST_IF) => self.unicast[0],
            (ipv6::LEVEL, ipv6::UNICAST_IF) => self.unicast[1],
            (socket::LEVEL, socket::BUSY_POLL) => self.busy_poll,
            (socket::LEVEL, socket::RCVLOWAT) => self.low_water.cast_signed(),
            _ => return self.inert.get(level, name),
        })
    }

    /// By which link its packets of a family leave that go to one station.
    pub(super) fn unicast(&self, family: Family) -> Option<LinkId> {
        link_of(i32::from_be(self.unicast[family.index()]))
    }

    /// What was set, as words.
    pub(super) fn spelled(&self) -> impl Iterator<Item = String> {
        let mark = (self.mark != 0).then(|| format!("mark={:#x}", self.mark));
        let link = self.link.map(|link| format!("bindtodevice={}", index_of(link)));
        mark.into_iter().chain(link).chain(self.binds_freely.then(|| String::from("freebind")))
    }
}

/// What programs call the loopback device by.
const LOOPBACK_INDEX: u32 = 1;

/// The link that a program calls by this number; zero is none.
pub(super) fn link_of(index: i32) -> Option<LinkId> {
    match index.cast_unsigned() {
        0 => None,
        LOOPBACK_INDEX => Some(LOOPBACK),
        index => Some(LinkId(index - 1)),
    }
}

fn index_of(link: LinkId) -> i32 {
    if link == LOOPBACK { LOOPBACK_INDEX.cast_signed() } else { link.0.wrapping_add(1).cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_is_got_and_both_families_mean_the_same() {
        let mut kept = Alike::default();
        assert_eq!(
            [(1, 36), (0, 15), (41, 78), (1, 49), (1, 56)].map(|(l, n)| kept.get(l, n)),
            [Some(0), Some(0), Some(0), Some(-1), Some(0)]
        );
        assert!(kept.set(1, 36, -2) && kept.get(1, 36) == Some(-2));
        for (level, name, on) in [(0, 15, 5), (41, 78, 0), (41, 78, 1), (0, 15, 0)] {
            assert!(kept.set(level, name, on));
            assert_eq!([(0, 15), (41, 78)].map(|(l, n)| kept.get(l, n)), [Some((on != 0).into()); 2]);
        }
        assert!(!kept.set(1, 49, 1) && !kept.set(1, 2, 1) && kept.get(1, 2).is_none());
        for (index, link) in [(0, None), (1, Some(LOOPBACK)), (2, Some(LinkId(1))), (7, Some(LinkId(6)))] {
            assert!(kept.set(1, 62, index) && kept.link == link && kept.get(1, 62) == Some(index));
        }
        kept.set(0, 15, 1);
        assert_eq!(kept.spelled().collect::<Vec<_>>(), ["mark=0xfffffffe", "bindtodevice=7", "freebind"]);
    }
}
