//! From a local address and port to the socket that waits there.
//!
//! A specific address is found before a wildcard, and the IPv4 wildcard before a dual-stack IPv6 one (the order
//! of the original's bind table, here by three probes and not by order of insertion). One table per netstack
//! and transport protocol, in every lane. Only the operator's programs fill it.
//!
//! Sockets that say so share an address (SO_REUSEPORT). Each connection is one's, by highest random weight, so that a socket
//! that comes or goes changes nothing for the connections of the others.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::HashTable;

use firelane_units::{Port, SocketId};

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

#[derive(Clone)]
struct Entry {
    address: u128,
    port: Port,
    v6_only: bool,
    shares: bool,
    /// More than one share it; never none.
    sockets: Vec<SocketId>,
}

impl Entry {
    fn socket_for(&self, counts: impl Fn(SocketId) -> bool, hash: impl FnOnce() -> u32) -> Option<SocketId> {
        if let [only] = self.sockets[..] {
            return counts(only).then_some(only);
        }
        // Spread over all bits first: numbers that differ little would weigh much the same.
        let hash = u64::from(hash()).wrapping_mul(ODD) ^ OTHER_ODD;
        let weight = |socket: &SocketId| fold(hash, (u64::from(socket.0) + 1).wrapping_mul(OTHER_ODD) ^ ODD);
        self.sockets.iter().copied().filter(|&socket| counts(socket)).max_by_key(weight)
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
        let of = |entry: Option<&Entry>| entry?.socket_for(&counts, &hash);
        of(self.find(key(local), port))
            .or_else(|| of(is_v4.then(|| self.find(LocalAddr::AnyV4.key(), port)).flatten()))
            .or_else(|| of(self.find(0, port).filter(|dual| !(is_v4 && dual.v6_only))))
    }

    /// Enters a listener. A specific address and a wildcard may have the same port; two equal ones if both share.
    pub fn insert(
        &mut self,
        local: LocalAddr,
        port: Port,
        socket: SocketId,
        shares: bool,
    ) -> Result<(), ListenTaken> {
        let (address, v6_only) = (local.key(), local == LocalAddr::AnyV6 { v6_only: true });
        let same = |e: &Entry| e.address == address && e.port == port;
        if let Some(there) = self.table.find_mut(hash(address, port), same) {
            if !(shares && there.shares && v6_only == there.v6_only) || there.sockets.contains(&socket) {
                return Err(ListenTaken(there.sockets[0]));
            }
            there.sockets.push(socket);
        } else {
            let entry = Entry { address, port, v6_only, shares, sockets: vec![socket] };
            self.table.insert_unique(hash(address, port), entry, |e| hash(e.address, e.port));
        }
        Ok(())
    }

    /// Removes a listener, if `socket` is one.
    pub fn remove(&mut self, local: LocalAddr, port: Port, socket: SocketId) -> bool {
        let address = local.key();
        let same = |e: &Entry| e.address == address && e.port == port && e.sockets.contains(&socket);
        let Ok(mut found) = self.table.find_entry(hash(address, port), same) else { return false };
        found.get_mut().sockets.retain(|it| *it != socket);
        if found.get().sockets.is_empty() {
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
            table.insert(local(text), PORT, SocketId(n), false).unwrap();
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
        let mut table = Listeners::new();
        let taken = Err(ListenTaken(SocketId(1)));
        table.insert(local("::"), PORT, SocketId(1), false).unwrap();
        assert_eq!(table.insert(local("v6only"), PORT, SocketId(2), false), taken);
        assert_eq!(table.insert(local("::"), PORT, SocketId(2), true), taken, "the first does not share");
        assert_eq!(table.insert(local("::"), Port(81), SocketId(2), false), Ok(()));
        assert!(!table.remove(local("::"), PORT, SocketId(2)));
        assert!(table.remove(local("::"), PORT, SocketId(1)));
        assert!(table.lookup(ip("::1"), PORT, || 0).is_none());
        assert_eq!((table.len(), table.is_empty()), (1, false));
        table.insert(local("::"), PORT, SocketId(1), true).unwrap();
        assert_eq!(table.insert(local("v6only"), PORT, SocketId(2), true), taken, "other addresses");
        assert_eq!(table.insert(local("::"), PORT, SocketId(1), true), taken, "it is there");
        assert_eq!(table.insert(local("::"), PORT, SocketId(2), true), Ok(()));
    }

    #[test]
    fn who_shares_gets_an_equal_part_and_keeps_it_when_others_come_and_go() {
        let mut table = Listeners::new();
        let all = |table: &Listeners| -> Vec<SocketId> {
            let one = |n: u32| table.lookup(ip("10.0.0.1"), PORT, || n.wrapping_mul(0x9e37_79b9)).unwrap();
            (0..3000).map(one).collect()
        };
        for n in 0..3 {
            table.insert(local("10.0.0.1"), PORT, SocketId(n), true).unwrap();
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
        table.insert(local("10.0.0.1"), PORT, SocketId(1), true).unwrap();
        assert_eq!(all(&table), before);
    }
}
