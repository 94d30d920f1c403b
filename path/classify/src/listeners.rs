//! From a local address and port to the socket that waits there.
//!
//! A specific address is found before a wildcard, and the IPv4 wildcard before a dual-stack IPv6 one (the order
//! of the original's bind table, here by three probes and not by order of insertion). One table per netstack
//! and transport protocol, in every lane. Only the operator's programs fill it.

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

    fn key(self) -> u128 {
        match self {
            Self::One(address) => key(address),
            Self::AnyV4 => mapped(Ipv4Addr::UNSPECIFIED),
            Self::AnyV6 { .. } => 0,
        }
    }
}

/// Another socket listens on the same address and port.
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
    socket: SocketId,
}

impl Listeners {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The socket that waits for what comes to `local` and `port`.
    pub fn lookup(&self, local: IpAddr, port: Port) -> Option<SocketId> {
        let exact = self.find(key(local), port);
        let found = match (exact, local.to_canonical()) {
            (Some(entry), _) => Some(entry),
            (None, IpAddr::V4(_)) => self
                .find(LocalAddr::AnyV4.key(), port)
                .or_else(|| self.find(0, port).filter(|dual| !dual.v6_only)),
            (None, IpAddr::V6(_)) => self.find(0, port),
        };
        found.map(|entry| entry.socket)
    }

    /// Enters a listener. A specific address and a wildcard may share a port; two equal ones may not.
    pub fn insert(&mut self, local: LocalAddr, port: Port, socket: SocketId) -> Result<(), ListenTaken> {
        let address = local.key();
        if let Some(taken) = self.find(address, port) {
            return Err(ListenTaken(taken.socket));
        }
        let entry = Entry { address, port, v6_only: local == LocalAddr::AnyV6 { v6_only: true }, socket };
        self.table.insert_unique(hash(address, port), entry, |e| hash(e.address, e.port));
        Ok(())
    }

    /// Removes a listener, if it is still `socket`'s.
    pub fn remove(&mut self, local: LocalAddr, port: Port, socket: SocketId) -> bool {
        let address = local.key();
        let same = |e: &Entry| e.address == address && e.port == port && e.socket == socket;
        match self.table.find_entry(hash(address, port), same) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// How many listeners there are.
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
    // Any odd constants do: only the operator's programs choose the keys.
    fold(low ^ 0x9e37_79b9_7f4a_7c15, high ^ u64::from(port.0) ^ 0xd1b5_4a32_d192_ed03)
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
            table.insert(local(text), PORT, SocketId(n)).unwrap();
        }
        table.lookup(ip(to), PORT).map(|s| s.0)
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
        table.insert(local("::"), PORT, SocketId(1)).unwrap();
        assert_eq!(table.insert(local("v6only"), PORT, SocketId(2)), Err(ListenTaken(SocketId(1))));
        assert_eq!(table.insert(local("::"), Port(81), SocketId(2)), Ok(()));
        assert!(!table.remove(local("::"), PORT, SocketId(2)));
        assert!(table.remove(local("::"), PORT, SocketId(1)) && table.lookup(ip("::1"), PORT).is_none());
        assert_eq!((table.len(), table.is_empty()), (1, false));
    }
}
