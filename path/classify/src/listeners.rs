//! From a local address and port to the socket that waits there.
//!
//! A specific address is found before a wildcard, and the IPv4 wildcard before a dual-stack IPv6 one (the order
//! of the original's bind table, here by three probes and not by order of insertion). One table per netstack
//! and transport protocol, in every lane. Only the operator's programs fill it.
//!
//! Sockets that say so share an address (SO_REUSEPORT). Each connection is one's, by highest random weight, so that a socket
//! that comes or goes changes nothing for the connections of the others. Those that keep to a link (SO_BINDTODEVICE) are asked before those
//! that do not, and share with those of the same link; sockets of several links have the same address without sharing it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::HashTable;

use firelane_units::{LinkId, Port, SocketId};

use crate::mix::{fold, halves};
use crate::tuple::mapped;

/// What a socket listens on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LocalAddr {
    /// One address. An IPv4-mapped IPv6 address is the IPv4 address.
    One(IpAddr),
    /// Every IPv4 address.
    AnyV4,
    /// Every IPv6 address, and every IPv4 address unless the socket said IPV6_V6ONLY.
    AnyV6 {
        /// Whether IPv4 is left to others.
        v6_only: bool,
    },
}

impl LocalAddr {
    /// What binding to `address` means: an unspecified one is the wildcard of its family.
    pub fn of(address: IpAddr, v6_only: bool) -> Self {
        match address.to_canonical() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Self::AnyV4,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Self::AnyV6 { v6_only },
            one => Self::One(one),
        }
    }

    /// What was bound to, and whether IPv4 is left to others: what [`of`](Self::of) is given.
    pub const fn parts(self) -> (IpAddr, bool) {
        match self {
            Self::One(address) => (address, false),
            Self::AnyV4 => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), false),
            Self::AnyV6 { v6_only } => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), v6_only),
        }
    }

    fn key(self) -> u128 {
        match self {
            Self::One(address) => key(address),
            Self::AnyV4 => mapped(Ipv4Addr::UNSPECIFIED),
            Self::AnyV6 { .. } => 0,
        }
    }
}

/// Any odd constants do: only the operator's programs choose the keys, and a connection's hash is keyed.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const OTHER_ODD: u64 = 0xd1b5_4a32_d192_ed03;

/// Another socket listens on the same address and port, and they do not share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenTaken(pub SocketId);

/// From local address and port to socket.
#[derive(Clone, Default)]
pub struct Listeners {
    table: HashTable<Entry>,
}

/// All that wait at one address and port; never none.
#[derive(Clone)]
struct Entry {
    address: u128,
    port: Port,
    /// In the order in which they came.
    groups: Vec<Group>,
}

/// Those that get the same connections.
#[derive(Clone)]
struct Group {
    v6_only: bool,
    /// The only link that they listen to.
    link: Option<LinkId>,
    shares: bool,
    /// More than one share it; never none.
    sockets: Vec<SocketId>,
}

impl Group {
    fn socket_for(&self, counts: impl Fn(SocketId) -> bool, hash: impl FnOnce() -> u32) -> Option<SocketId> {
        if let [only] = self.sockets[..] {
            return counts(only).then_some(only);
        }
        // Spread over all bits first: numbers that differ little would weigh much the same.
        let hash = u64::from(hash()).wrapping_mul(ODD) ^ OTHER_ODD;
        let weight = |socket: &SocketId| fold(hash, (u64::from(socket.0) + 1).wrapping_mul(OTHER_ODD) ^ ODD);
        self.sockets.iter().copied().filter(|&socket| counts(socket)).max_by_key(weight)
    }

    /// Whether a connection may be for both, so that both have to share. All have the same address and port.
    fn meets(&self, link: Option<LinkId>) -> bool {
        self.link == link || self.link.is_none() || link.is_none()
    }
}

impl Entry {
    /// One of those that `may` get it.
    fn socket_for(
        &self,
        may: impl Fn(&Group) -> bool,
        counts: impl Fn(SocketId) -> bool,
        hash: impl Fn() -> u32,
    ) -> Option<SocketId> {
        let keeps_to_link = |it: &&Group| it.link.is_some();
        let of = |it: &Group| it.socket_for(&counts, &hash);
        let all = || self.groups.iter().filter(|it| may(it));
        let bound = all().filter(keeps_to_link).find_map(of);
        bound.or_else(|| all().filter(|it| !keeps_to_link(it)).find_map(of))
    }
}

impl Listeners {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The socket that waits for what comes to `local` and `port`. `hash` is of the whole connection, and is asked for if
    /// several wait.
    pub fn lookup(&self, local: IpAddr, port: Port, hash: impl Fn() -> u32) -> Option<SocketId> {
        self.lookup_among(local, port, |_| true, hash)
    }

    /// The same as if only those were there that count.
    pub fn lookup_among(
        &self,
        local: IpAddr,
        port: Port,
        counts: impl Fn(SocketId) -> bool,
        hash: impl Fn() -> u32,
    ) -> Option<SocketId> {
        let is_v4 = local.to_canonical().is_ipv4();
        let of = |entry: Option<&Entry>| entry?.socket_for(|it| !(is_v4 && it.v6_only), &counts, &hash);
        of(self.find(key(local), port))
            .or_else(|| of(is_v4.then(|| self.find(LocalAddr::AnyV4.key(), port)).flatten()))
            .or_else(|| of(self.find(0, port)))
    }

    /// Enters a listener, which may keep to a link. A specific address and a wildcard may have the same port; two equal ones if both share,
    /// or keep to different links.
    pub fn insert(
        &mut self,
        local: LocalAddr,
        port: Port,
        (socket, link): (SocketId, Option<LinkId>),
        shares: bool,
    ) -> Result<(), ListenTaken> {
        let (address, v6_only) = (local.key(), local == LocalAddr::AnyV6 { v6_only: true });
        let same = |e: &Entry| e.address == address && e.port == port;
        let group = Group { v6_only, link, shares, sockets: vec![socket] };
        let Some(there) = self.table.find_mut(hash(address, port), same) else {
            let entry = Entry { address, port, groups: vec![group] };
            self.table.insert_unique(hash(address, port), entry, |e| hash(e.address, e.port));
            return Ok(());
        };
        let excludes = |it: &&Group| it.sockets.contains(&socket) || it.meets(link) && !(shares && it.shares);
        if let Some(taken) = there.groups.iter().find(excludes) {
            return Err(ListenTaken(taken.sockets[0]));
        }
        match there.groups.iter_mut().find(|it| (it.v6_only, it.link) == (v6_only, link)) {
            Some(group) => group.sockets.push(socket),
            None => there.groups.push(group),
        }
        Ok(())
    }

    /// Removes a listener, if `socket` is one.
    pub fn remove(&mut self, local: LocalAddr, port: Port, socket: SocketId) -> bool {
        let address = local.key();
        let has = |it: &Group| it.sockets.contains(&socket);
        let same = |e: &Entry| e.address == address && e.port == port && e.groups.iter().any(has);
        let Ok(mut found) = self.table.find_entry(hash(address, port), same) else { return false };
        let groups = &mut found.get_mut().groups;
        groups.iter_mut().for_each(|it| it.sockets.retain(|it| *it != socket));
        groups.retain(|it| !it.sockets.is_empty());
        if groups.is_empty() {
            found.remove();
        }
        true
    }

    /// How many addresses are listened to.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nobody listens.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn find(&self, address: u128, port: Port) -> Option<&Entry> {
        self.table.find(hash(address, port), |e| e.address == address && e.port == port)
    }
}

fn key(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(a) => mapped(a),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn hash(address: u128, port: Port) -> u64 {
    let [high, low] = halves(address);
    fold(low ^ ODD, high ^ u64::from(port.0) ^ OTHER_ODD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Port = Port(80);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn local(text: &str) -> LocalAddr {
        match text {
            "v6only" => LocalAddr::AnyV6 { v6_only: true },
            text => LocalAddr::of(ip(text), false),
        }
    }

    /// Who answers, with listeners entered in the order given: the position in the list.
    fn answers(listeners: &[&str], to: &str) -> Option<u32> {
        let mut table = Listeners::new();
        for (n, text) in (0..).zip(listeners) {
            table.insert(local(text), PORT, (SocketId(n), None), false).unwrap();
        }
        table.lookup(ip(to), PORT, || unreachable!("nobody shares")).map(|s| s.0)
    }

    #[test]
    fn specific_before_wildcard_in_any_order_of_insertion() {
        for (listeners, to, wanted) in [
            (&["0.0.0.0", "10.0.0.1"][..], "10.0.0.1", Some(1)),
            (&["10.0.0.1", "0.0.0.0"], "10.0.0.1", Some(0)),
            (&["0.0.0.0", "10.0.0.1"], "10.0.0.2", Some(0)),
            (&["10.0.0.1"], "10.0.0.2", None),
            (&["::"], "10.0.0.2", Some(0)),
            (&["::"], "fd00::1", Some(0)),
            (&["v6only"], "10.0.0.2", None),
            (&["v6only"], "fd00::1", Some(0)),
            (&["::", "0.0.0.0"], "10.0.0.2", Some(1)),
            (&["::", "0.0.0.0"], "fd00::1", Some(0)),
            (&["0.0.0.0"], "fd00::1", None),
            (&["::", "fd00::1"], "fd00::1", Some(1)),
            (&["::ffff:10.0.0.1"], "10.0.0.1", Some(0)),
        ] {
            assert_eq!(answers(listeners, to), wanted, "{listeners:?} asked for {to}");
        }
    }

    #[test]
    fn equal_listeners_exclude_each_other() {
        let (mut table, one, two) = (Listeners::new(), (SocketId(1), None), (SocketId(2), None));
        let taken = Err(ListenTaken(SocketId(1)));
        table.insert(local("::"), PORT, one, false).unwrap();
        assert_eq!(table.insert(local("v6only"), PORT, two, false), taken);
        assert_eq!(table.insert(local("::"), PORT, two, true), taken, "the first does not share");
        assert_eq!(table.insert(local("::"), Port(81), two, false), Ok(()));
        assert!(!table.remove(local("::"), PORT, SocketId(2)));
        assert!(table.remove(local("::"), PORT, SocketId(1)));
        assert!(table.lookup(ip("::1"), PORT, || 0).is_none());
        assert_eq!((table.len(), table.is_empty()), (1, false));
        table.insert(local("::"), PORT, one, true).unwrap();
        assert_eq!(table.insert(local("::"), PORT, one, true), taken, "it is there");
        assert_eq!(table.insert(local("::"), PORT, two, true), Ok(()));
    }

    /// In Linux a listener of IPv6 alone shares with one of both, too: what comes over IPv6 is the first one's.
    #[test]
    fn who_leaves_ipv4_to_others_may_share_with_who_has_it() {
        for (first, second) in [("::", "v6only"), ("v6only", "::")] {
            let mut table = Listeners::new();
            for (n, text) in [(1, first), (2, second)] {
                assert_eq!(table.insert(local(text), PORT, (SocketId(n), None), true), Ok(()), "{text}");
            }
            let answers = |table: &Listeners, to| table.lookup(ip(to), PORT, || 7).map(|it| it.0);
            let dual = if first == "::" { 1 } else { 2 };
            assert_eq!((answers(&table, "10.0.0.1"), answers(&table, "fd00::1")), (Some(dual), Some(1)));
            assert!(table.remove(local("::"), PORT, SocketId(dual)));
            assert_eq!((answers(&table, "10.0.0.1"), answers(&table, "fd00::1")), (None, Some(3 - dual)));
        }
    }

    #[test]
    fn listeners_of_several_links_have_one_address_and_go_before_who_has_none() {
        let (mut table, any) = (Listeners::new(), local("0.0.0.0"));
        let on = |n: u32| (SocketId(n), Some(LinkId(n)));
        assert_eq!(table.insert(any, PORT, on(1), false), Ok(()));
        assert_eq!(table.insert(any, PORT, on(2), false), Ok(()), "another link");
        let taken = Err(ListenTaken(SocketId(1)));
        assert_eq!(table.insert(any, PORT, (SocketId(3), Some(LinkId(1))), false), taken, "the same link");
        assert_eq!(
            table.insert(any, PORT, (SocketId(3), None), true),
            taken,
            "every link, and the first does not share"
        );
        // Each hears what comes by its own link, as the sockets say.
        let hears = |n: u32| move |socket: SocketId| socket == SocketId(n);
        let answers = |table: &Listeners, n| table.lookup_among(ip("10.0.0.1"), PORT, hears(n), || 0);
        assert_eq!([1, 2].map(|n| answers(&table, n)), [1, 2].map(|n| Some(SocketId(n))));
        assert!(
            table.remove(any, PORT, SocketId(1)) && table.remove(any, PORT, SocketId(2)) && table.is_empty()
        );
        for (n, link) in [(1, None), (2, Some(LinkId(2))), (3, Some(LinkId(3)))] {
            assert_eq!(table.insert(any, PORT, (SocketId(n), link), true), Ok(()));
        }
        // What comes by link 2 may be for two of them.
        let found = |hash: u32| table.lookup_among(ip("10.0.0.1"), PORT, |it| it != SocketId(3), || hash);
        assert!((0..100_u32).all(|hash| found(hash.wrapping_mul(0x9e37_79b9)) == Some(SocketId(2))));
        assert_eq!(table.lookup_among(ip("10.0.0.1"), PORT, hears(1), || 0), Some(SocketId(1)));
    }

    #[test]
    fn who_shares_gets_an_equal_part_and_keeps_it_when_others_come_and_go() {
        let mut table = Listeners::new();
        let all = |table: &Listeners| -> Vec<SocketId> {
            let one = |n: u32| table.lookup(ip("10.0.0.1"), PORT, || n.wrapping_mul(0x9e37_79b9)).unwrap();
            (0..3000).map(one).collect()
        };
        for n in 0..3 {
            table.insert(local("10.0.0.1"), PORT, (SocketId(n), None), true).unwrap();
        }
        let before = all(&table);
        for n in 0..3 {
            let part = before.iter().filter(|it| **it == SocketId(n)).count();
            assert!((800..1200).contains(&part), "{n} gets {part}");
        }
        assert!(table.remove(local("10.0.0.1"), PORT, SocketId(1)));
        let without = all(&table);
        assert!(without.iter().zip(&before).all(|(now, then)| now == then || *then == SocketId(1)));
        assert!(!without.contains(&SocketId(1)));
        table.insert(local("10.0.0.1"), PORT, (SocketId(1), None), true).unwrap();
        assert_eq!(all(&table), before);
    }
}
