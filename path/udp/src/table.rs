//! From a datagram's addresses and ports to the socket that gets it.
//!
//! Connected before bound to the address before wildcard, and the IPv4 wildcard before a dual-stack IPv6
//! one. Of sockets that share a binding the last to bind gets a unicast datagram, or one of those that it spreads with, by
//! highest random weight; multicast and broadcast go to all that fit (RFC 1122 §4.1.3.5, the original's walk of its bind bucket). One table per netstack
//! in every lane, with the sockets whose ports steer to it. Only the operator's programs fill it, so its
//! hash needs no key.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use hashbrown::HashTable;

use firelane_units::{LinkId, Port, SocketId};

use crate::binding::Peer;
use crate::{Binding, Sharing};

/// The most sockets of a table: 2^20, which is 16 for every port.
pub const SOCKETS_MAX: usize = 1 << 20;

/// Why a socket was not bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindError {
    /// Another socket would get the same datagrams.
    InUse(SocketId),
    /// The port is zero.
    NoPort,
    /// The socket is bound.
    Bound,
    /// The table is full.
    Full,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InUse(_) => "address already in use",
            Self::NoPort => "no port is given",
            Self::Bound => "the socket is bound already",
            Self::Full => "too many datagram sockets",
        })
    }
}

impl core::error::Error for BindError {}

/// Whose datagram an ICMP error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blamed {
    /// A socket that is connected to the peer: its program is told.
    Connected(SocketId),
    /// A socket that talks to everybody: its program hears of it only if it asked to, since it could not
    /// know which peer is meant.
    Unconnected(SocketId),
}

impl Blamed {
    /// The socket.
    pub const fn socket(self) -> SocketId {
        match self {
            Self::Connected(socket) | Self::Unconnected(socket) => socket,
        }
    }
}

/// The datagram sockets of one netstack in one lane.
#[derive(Clone, Default)]
pub struct UdpTable {
    /// Connected sockets by local port and peer: what a datagram asks.
    connected: HashTable<Entry>,
    /// Connected sockets by local port: what a bind asks.
    connected_at: HashTable<Entry>,
    /// The other sockets by local port.
    open: HashTable<Entry>,
    /// By socket.
    sockets: HashTable<Entry>,
    /// How many were bound so far: what makes one the last.
    bound: u64,
    /// By what peers are spread.
    key: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    binding: Binding,
    socket: SocketId,
    bound: u64,
}

impl UdpTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty table, whose sockets that spread are chosen by a peer's address and this secret.
    pub fn keyed(key: u64) -> Self {
        Self { key, ..Self::default() }
    }

    /// Binds a socket.
    pub fn bind(&mut self, socket: SocketId, binding: Binding) -> Result<(), BindError> {
        if self.binding(socket).is_some() {
            return Err(BindError::Bound);
        }
        if self.sockets.len() >= SOCKETS_MAX {
            return Err(BindError::Full);
        }
        self.check(binding, None)?;
        self.insert(socket, binding);
        Ok(())
    }

    /// Binds a socket anew: connects it, or takes its peer away. If that fails it stays as it was.
    /// Does nothing if it is not bound.
    pub fn rebind(&mut self, socket: SocketId, binding: Binding) -> Result<(), BindError> {
        if self.binding(socket).is_some() {
            self.check(binding, Some(socket))?;
            self.unbind(socket);
            self.insert(socket, binding);
        }
        Ok(())
    }

    /// Others may share what the socket is bound to in another way from now on. Who is bound already stays.
    pub fn share(&mut self, socket: SocketId, sharing: Sharing) {
        let same = |entry: &Entry| entry.socket == socket;
        let Some(entry) = self.sockets.find_mut(hash_socket(socket), same) else { return };
        entry.binding = entry.binding.sharing(sharing);
        let binding = entry.binding;
        let at_port = hash_port(binding.port());
        let places = match binding.peer() {
            Some(peer) => [
                self.connected.find_mut(hash_peer(binding.port(), peer), same),
                self.connected_at.find_mut(at_port, same),
            ],
            None => [self.open.find_mut(at_port, same), None],
        };
        places.into_iter().flatten().for_each(|entry| entry.binding = binding);
    }

    /// Forgets a socket; `None` if it was not bound.
    pub fn unbind(&mut self, socket: SocketId) -> Option<Binding> {
        let same = |e: &Entry| e.socket == socket;
        let (entry, _) = self.sockets.find_entry(hash_socket(socket), same).ok()?.remove();
        let binding = entry.binding;
        if let Some(peer) = binding.peer() {
            remove(&mut self.connected, hash_peer(binding.port(), peer), socket);
            remove(&mut self.connected_at, hash_port(binding.port()), socket);
        } else {
            remove(&mut self.open, hash_port(binding.port()), socket);
        }
        Some(binding)
    }

    /// What a socket is bound to.
    pub fn binding(&self, socket: SocketId) -> Option<Binding> {
        self.sockets.find(hash_socket(socket), |e| e.socket == socket).map(|e| e.binding)
    }

    /// The socket that gets a unicast datagram from `remote` to `local`, which came by `link`.
    #[inline]
    pub fn lookup(&self, link: LinkId, local: SocketAddr, remote: SocketAddr) -> Option<SocketId> {
        self.find(Some(link), local, remote).map(Blamed::socket)
    }

    /// The sockets that get a multicast or broadcast datagram from `remote` to `local`, which came by `link`, in no
    /// certain order.
    pub fn lookup_all(
        &self,
        link: LinkId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> impl Iterator<Item = SocketId> + '_ {
        let (address, port) = (local.ip().to_canonical(), Port(local.port()));
        let peer = Peer::from(remote);
        self.connected_to(port, peer)
            .chain(self.open_at(port))
            .filter(move |entry| entry.binding.fit(address, Some(link)).is_some())
            .map(|entry| entry.socket)
    }

    /// The socket that sent a datagram from `local` to `remote`, which an ICMP error quotes. Whether the
    /// netstack has the address `local` was checked by `ip` (RFC 5927 §4).
    pub fn blamed(&self, local: SocketAddr, remote: SocketAddr) -> Option<Blamed> {
        self.find(None, local, remote)
    }

    /// Whether a socket could be bound with `binding` without sharing.
    pub(crate) fn is_free(&self, binding: &Binding) -> bool {
        !self.at_port(binding.port()).any(|entry| entry.binding.overlaps(binding))
    }

    /// How many sockets there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Every socket with what it is bound to, in no certain order.
    pub fn iter(&self) -> impl Iterator<Item = (SocketId, Binding)> + '_ {
        self.sockets.iter().map(|entry| (entry.socket, entry.binding))
    }

    #[inline]
    fn find(&self, link: Option<LinkId>, local: SocketAddr, remote: SocketAddr) -> Option<Blamed> {
        let (address, port) = (local.ip().to_canonical(), Port(local.port()));
        if !self.connected.is_empty()
            && let Some(entry) = best(self.connected_to(port, remote.into()), address, link)
        {
            return Some(Blamed::Connected(entry.socket));
        }
        let best = best(self.open_at(port), address, link)?;
        let socket =
            if best.binding.spreads_with(&best.binding) { self.one_of(best, remote) } else { best.socket };
        Some(Blamed::Unconnected(socket))
    }

    /// Of those that `best` spreads with the one for a peer.
    #[cold]
    fn one_of(&self, best: &Entry, remote: SocketAddr) -> SocketId {
        let peer = hash_peer(best.binding.port(), remote.into()) ^ self.key;
        let all = self.open_at(best.binding.port()).filter(|it| it.binding.spreads_with(&best.binding));
        let chosen = all.max_by_key(|it| mix(peer, it.bound.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        chosen.map_or(best.socket, |it| it.socket)
    }

    #[inline]
    fn connected_to(&self, port: Port, peer: Peer) -> impl Iterator<Item = &Entry> {
        self.connected
            .iter_hash(hash_peer(port, peer))
            .filter(move |e| e.binding.port() == port && e.binding.peer() == Some(peer))
    }

    #[inline]
    fn open_at(&self, port: Port) -> impl Iterator<Item = &Entry> {
        self.open.iter_hash(hash_port(port)).filter(move |e| e.binding.port() == port)
    }

    /// All sockets at a port.
    fn at_port(&self, port: Port) -> impl Iterator<Item = &Entry> {
        let connected = self.connected_at.iter_hash(hash_port(port));
        self.open_at(port).chain(connected.filter(move |e| e.binding.port() == port))
    }

    fn check(&self, binding: Binding, but: Option<SocketId>) -> Result<(), BindError> {
        if binding.port() == Port(0) {
            return Err(BindError::NoPort);
        }
        match self
            .at_port(binding.port())
            .find(|entry| Some(entry.socket) != but && entry.binding.conflicts(&binding))
        {
            Some(taken) => Err(BindError::InUse(taken.socket)),
            None => Ok(()),
        }
    }

    fn insert(&mut self, socket: SocketId, binding: Binding) {
        self.bound += 1;
        let entry = Entry { binding, socket, bound: self.bound };
        self.sockets.insert_unique(hash_socket(socket), entry, |e| hash_socket(e.socket));
        let at_port = |e: &Entry| hash_port(e.binding.port());
        if binding.peer().is_some() {
            self.connected.insert_unique(hash_connected(&entry), entry, hash_connected);
            self.connected_at.insert_unique(at_port(&entry), entry, at_port);
        } else {
            self.open.insert_unique(at_port(&entry), entry, at_port);
        }
    }
}

impl fmt::Debug for UdpTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The entry that fits best; of equals the last to bind.
#[inline]
fn best<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    local: IpAddr,
    link: Option<LinkId>,
) -> Option<&'a Entry> {
    entries
        .filter_map(|entry| Some((entry.binding.fit(local, link)?, entry)))
        .max_by_key(|&(fit, entry)| (fit, entry.bound))
        .map(|(_, entry)| entry)
}

fn remove(index: &mut HashTable<Entry>, hash: u64, socket: SocketId) {
    let entry = index.find_entry(hash, |e| e.socket == socket);
    entry.ok().expect("a bound socket is in the indices of its binding").remove();
}

fn hash_connected(entry: &Entry) -> u64 {
    let peer = entry.binding.peer().expect("only connected sockets are indexed by their peer");
    hash_peer(entry.binding.port(), peer)
}

#[inline]
fn hash_port(port: Port) -> u64 {
    mix(u64::from(port.0) ^ 0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03)
}

#[inline]
fn hash_peer(port: Port, peer: Peer) -> u64 {
    let ports = u64::from(port.0) << 16 | u64::from(peer.port.0);
    let (high, low) = match peer.address {
        IpAddr::V4(v4) => (0, u64::from(v4.to_bits())),
        IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, v6.to_bits() as u64),
    };
    mix(mix(low ^ 0x9e37_79b9_7f4a_7c15, ports ^ 0xd1b5_4a32_d192_ed03), high ^ 0x2545_f491_4f6c_dd1d)
}

fn hash_socket(socket: SocketId) -> u64 {
    mix(u64::from(socket.0) ^ 0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03)
}

/// One multiplication to 128 bits, folded: even in all bits.
#[inline]
const fn mix(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAR: &str = "10.9.9.9:999";
    const SHARED: Sharing = Sharing { shared: true, spread: None };
    const LINK: LinkId = LinkId(7);

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// "10.0.0.1:53", "![::]:53" for IPV6_V6ONLY, "10.0.0.1:53>10.0.0.9:1" for connected.
    fn binding(text: &str) -> Binding {
        let (text, v6_only) = text.strip_prefix('!').map_or((text, false), |text| (text, true));
        match text.split_once('>') {
            Some((local, peer)) => Binding::new(at(local), v6_only).connected(at(peer)).unwrap(),
            None => Binding::new(at(text), v6_only),
        }
    }

    fn sharing(bindings: &[&str]) -> UdpTable {
        let mut table = UdpTable::new();
        for (n, text) in (0..).zip(bindings) {
            table.bind(SocketId(n), binding(text).sharing(SHARED)).unwrap();
        }
        table
    }

    #[test]
    fn connected_before_address_before_wildcard_in_any_order_of_binding() {
        for (bindings, local, remote, wanted) in [
            (&["0.0.0.0:53", "10.0.0.1:53"][..], "10.0.0.1:53", FAR, Some(1)),
            (&["10.0.0.1:53", "0.0.0.0:53"], "10.0.0.1:53", FAR, Some(0)),
            (&["10.0.0.1:53", "0.0.0.0:53"], "10.0.0.2:53", FAR, Some(1)),
            (&["10.0.0.1:53"], "10.0.0.2:53", FAR, None),
            (&["10.0.0.1:53"], "10.0.0.1:54", FAR, None),
            (&["[::]:53", "0.0.0.0:53"], "10.0.0.1:53", FAR, Some(1)),
            (&["0.0.0.0:53", "[::]:53"], "10.0.0.1:53", FAR, Some(0)),
            (&["[::]:53"], "10.0.0.1:53", FAR, Some(0)),
            (&["![::]:53"], "10.0.0.1:53", FAR, None),
            (&["[::]:53"], "[fd00::1]:53", "[fd00::9]:9", Some(0)),
            (&["0.0.0.0:53"], "[fd00::1]:53", "[fd00::9]:9", None),
            (&["10.0.0.1:53>10.9.9.9:999", "10.0.0.1:53"], "10.0.0.1:53", FAR, Some(0)),
            (&["10.0.0.1:53", "10.0.0.1:53>10.9.9.9:999"], "10.0.0.1:53", FAR, Some(1)),
            // U04: a connected socket hears nobody else.
            (&["10.0.0.1:53>10.9.9.9:998"], "10.0.0.1:53", FAR, None),
            (&["10.0.0.1:53>10.9.9.8:999"], "10.0.0.1:53", FAR, None),
            (&["0.0.0.0:53>10.9.9.9:999", "10.0.0.1:53"], "10.0.0.1:53", FAR, Some(0)),
            (&["10.0.0.1:53>10.9.9.9:999", "0.0.0.0:53>10.9.9.9:999"], "10.0.0.1:53", FAR, Some(0)),
            (&["10.0.0.1:53", "10.0.0.1:53"], "10.0.0.1:53", FAR, Some(1)),
            (&["[::]:53>[::ffff:10.9.9.9]:999"], "10.0.0.1:53", FAR, Some(0)),
        ] {
            let table = sharing(bindings);
            let found = table.lookup(LINK, at(local), at(remote)).map(|s| s.0);
            assert_eq!(found, wanted, "{bindings:?}: from {remote} to {local}");
        }
    }

    #[test]
    fn who_shares_later_shares_with_those_who_come_after_that() {
        for first in ["10.0.0.1:53", "10.0.0.1:53>10.9.9.9:999"] {
            let mut table = UdpTable::new();
            table.bind(SocketId(0), binding(first)).unwrap();
            let second = binding("0.0.0.0:53").sharing(SHARED);
            assert_eq!(table.bind(SocketId(1), second), Err(BindError::InUse(SocketId(0))));
            table.share(SocketId(0), SHARED);
            table.bind(SocketId(1), second).unwrap();
            table.share(SocketId(0), Sharing::default());
            assert_eq!(table.bind(SocketId(2), second), Err(BindError::InUse(SocketId(0))));
            table.unbind(SocketId(0)).unwrap();
            table.bind(SocketId(2), second).unwrap();
        }
    }

    #[test]
    fn a_group_datagram_goes_to_all_that_fit() {
        let table = sharing(&[
            "0.0.0.0:53",
            "224.0.0.251:53",
            "10.0.0.1:53",
            "[::]:53",
            "![::]:53",
            "224.0.0.251:54",
            "224.0.0.251:53>10.9.9.9:999",
            "224.0.0.251:53>10.9.9.9:998",
        ]);
        let mut all: Vec<_> = table.lookup_all(LINK, at("224.0.0.251:53"), at(FAR)).map(|s| s.0).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 3, 6]);
        let mut all: Vec<_> =
            table.lookup_all(LINK, at("255.255.255.255:53"), at(FAR)).map(|s| s.0).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 3]);
    }

    #[test]
    fn who_spreads_gets_an_equal_part_of_the_peers_and_keeps_it() {
        let mut table = UdpTable::keyed(0x1234_5678_9abc_def1);
        let spread = binding("10.0.0.1:53").sharing(Sharing { shared: false, spread: Some(7) });
        for n in 0..3 {
            table.bind(SocketId(n), spread).unwrap();
        }
        let all = |table: &UdpTable| -> Vec<SocketId> {
            let from = |n: u16| SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], 1000 + n));
            (0..3000).map(|n| table.lookup(LINK, at("10.0.0.1:53"), from(n)).unwrap()).collect()
        };
        let before = all(&table);
        for n in 0..3 {
            let part = before.iter().filter(|it| **it == SocketId(n)).count();
            assert!((800..1200).contains(&part), "{n} gets {part}");
        }
        table
            .bind(SocketId(8), binding("0.0.0.0:53").sharing(Sharing { shared: false, spread: Some(7) }))
            .unwrap();
        assert_eq!(all(&table), before, "who is bound to all addresses gets what is no other's");
        table.unbind(SocketId(1));
        let without = all(&table);
        assert!(without.iter().zip(&before).all(|(now, then)| now == then || *then == SocketId(1)));
        assert!(
            !without.contains(&SocketId(1))
                && table.lookup_all(LINK, at("10.0.0.1:53"), at(FAR)).count() == 3
        );
    }

    /// As in Linux, whose DHCP servers and mDNS rely on it.
    #[test]
    fn a_socket_on_the_link_comes_before_others_at_as_many_addresses() {
        for (others, on_link, wanted) in [
            ("0.0.0.0:67", "0.0.0.0:67", true),
            ("0.0.0.0:67", "[::]:67", true),
            ("[::]:67", "0.0.0.0:67", true),
            ("10.0.0.1:67", "10.0.0.1:67", true),
            ("0.0.0.0:67", "10.0.0.1:67", true),
            ("10.0.0.1:67", "0.0.0.0:67", false),
        ] {
            for is_first in [true, false] {
                let mut table = UdpTable::new();
                let bound = binding(on_link).sharing(SHARED).on_link(Some(LINK));
                let free = binding(others).sharing(SHARED);
                for (n, binding) in if is_first { [(0, bound), (1, free)] } else { [(1, free), (0, bound)] } {
                    table.bind(SocketId(n), binding).unwrap();
                }
                let hears = |link| table.lookup(link, at("10.0.0.1:67"), at(FAR));
                assert_eq!(hears(LINK), Some(SocketId(u32::from(!wanted))), "{others} {on_link} {is_first}");
                assert_eq!(hears(LinkId(9)), Some(SocketId(1)), "{others} {on_link}");
            }
        }
    }

    #[test]
    fn an_error_blames_the_socket_that_sent() {
        let table = sharing(&["10.0.0.1:53", "10.0.0.1:53>10.9.9.9:999"]);
        let local = at("10.0.0.1:53");
        assert_eq!(table.blamed(local, at(FAR)), Some(Blamed::Connected(SocketId(1))));
        assert_eq!(table.blamed(local, at("10.9.9.9:1")), Some(Blamed::Unconnected(SocketId(0))));
        assert_eq!(table.blamed(at("10.0.0.1:54"), at(FAR)), None);
    }

    #[test]
    fn a_socket_on_a_link_hears_only_that_link() {
        let mut table = UdpTable::new();
        let other = LinkId(8);
        for (n, link) in [(1, LINK), (2, other)] {
            table.bind(SocketId(n), binding("0.0.0.0:68").on_link(Some(link))).unwrap();
        }
        let everybody = at("255.255.255.255:68");
        for (link, wanted) in [(LINK, Some(SocketId(1))), (other, Some(SocketId(2))), (LinkId(9), None)] {
            assert_eq!(table.lookup(link, at("10.0.0.1:68"), at(FAR)), wanted);
            assert!(table.lookup_all(link, everybody, at(FAR)).eq(wanted));
        }
        assert!(table.blamed(at("10.0.0.1:68"), at(FAR)).is_some(), "an error says no link");
    }

    #[test]
    fn bind_refuses_and_says_why() {
        let mut table = UdpTable::new();
        let (one, two) = (SocketId(1), SocketId(2));
        assert_eq!(table.bind(one, binding("0.0.0.0:0")), Err(BindError::NoPort));
        assert_eq!(table.bind(one, binding("0.0.0.0:53")), Ok(()));
        assert_eq!(table.bind(one, binding("0.0.0.0:54")), Err(BindError::Bound));
        assert_eq!(table.bind(two, binding("10.0.0.1:53")), Err(BindError::InUse(one)));
        assert_eq!(table.bind(two, binding("10.0.0.1:54")), Ok(()));
        assert_eq!(table.unbind(one), Some(binding("0.0.0.0:53")));
        assert_eq!((table.unbind(one), table.len()), (None, 1));
    }

    #[test]
    fn connecting_binds_anew_or_changes_nothing() {
        let mut table = UdpTable::new();
        let (one, two) = (SocketId(1), SocketId(2));
        table.bind(one, binding("0.0.0.0:53")).unwrap();
        table.bind(two, binding("10.0.0.1:54")).unwrap();
        let connected = binding("0.0.0.0:53").at_address("10.0.0.1".parse().unwrap());
        let connected = connected.connected(at(FAR)).unwrap();
        assert_eq!(table.rebind(one, connected), Ok(()));
        assert_eq!(table.lookup(LINK, at("10.0.0.1:53"), at(FAR)), Some(one));
        assert_eq!(table.lookup(LINK, at("10.0.0.1:53"), at("10.9.9.9:1")), None);
        assert_eq!(table.rebind(one, binding("10.0.0.1:54")), Err(BindError::InUse(two)));
        assert_eq!(table.binding(one), Some(connected));
        assert_eq!(table.rebind(one, connected.disconnected()), Ok(()));
        assert_eq!(table.lookup(LINK, at("10.0.0.1:53"), at("10.9.9.9:1")), Some(one));
    }

    /// The slow, stupid table: a list, asked socket by socket.
    #[derive(Default)]
    struct Reference(Vec<(SocketId, Binding)>);

    impl Reference {
        fn fits(&self, local: SocketAddr, remote: SocketAddr) -> Vec<((bool, u8, usize), SocketId)> {
            let mut fits = Vec::new();
            for (order, (socket, binding)) in self.0.iter().enumerate() {
                let peer = binding.remote();
                if binding.port().0 != local.port() || peer.is_some_and(|peer| peer != remote) {
                    continue;
                }
                if let Some(fit) = binding.local().fit(local.ip()) {
                    fits.push(((peer.is_some(), fit, order), *socket));
                }
            }
            fits
        }
    }

    fn some_binding() -> impl Strategy<Value = Binding> {
        let locals = vec!["0.0.0.0", "10.0.0.1", "10.0.0.2", "[::]", "[fd00::1]", "224.0.0.1"];
        let peers = vec!["10.0.0.8", "10.0.0.9", "[fd00::9]"];
        let peer = prop::option::of((prop::sample::select(peers), 1u16..3));
        (prop::sample::select(locals), 1u16..4, any::<bool>(), peer, any::<bool>()).prop_map(
            |(local, port, v6_only, peer, shared)| {
                let sharing = Sharing { shared, spread: None };
                let binding = Binding::new(at(&format!("{local}:{port}")), v6_only).sharing(sharing);
                let connect = |(ip, port)| binding.connected(at(&format!("{ip}:{port}"))).ok();
                peer.and_then(connect).unwrap_or(binding)
            },
        )
    }

    proptest! {
        #[test]
        fn answers_as_a_list_would(
            steps in prop::collection::vec((some_binding(), 0u32..12, 0u8..4), 1..60),
            port in 1u16..4, remote_port in 1u16..3,
        ) {
            let mut table = UdpTable::new();
            let mut list = Reference::default();
            for (binding, id, what) in steps {
                let socket = SocketId(id);
                let place = list.0.iter().position(|(s, _)| *s == socket);
                let conflict =
                    list.0.iter().any(|(s, other)| *s != socket && other.conflicts(&binding));
                match what {
                    0 => {
                        let gone = place.map(|place| list.0.remove(place).1);
                        prop_assert_eq!(table.unbind(socket), gone);
                    }
                    1 => {
                        prop_assert_eq!(table.rebind(socket, binding).is_err(), place.is_some() && conflict);
                        if let (Some(place), false) = (place, conflict) {
                            list.0.remove(place);
                            list.0.push((socket, binding));
                        }
                    }
                    _ => {
                        let bound = table.bind(socket, binding).is_ok();
                        prop_assert_eq!(bound, place.is_none() && !conflict);
                        if bound {
                            list.0.push((socket, binding));
                        }
                    }
                }
                prop_assert_eq!(table.len(), list.0.len());
                for (local, remote) in [
                    ("10.0.0.1", "10.0.0.9"), ("10.0.0.3", "10.0.0.8"), ("[fd00::1]", "[fd00::9]"),
                    ("224.0.0.1", "10.0.0.8"),
                ] {
                    let local = at(&format!("{local}:{port}"));
                    let remote = at(&format!("{remote}:{remote_port}"));
                    let mut fits = list.fits(local, remote);
                    prop_assert_eq!(table.lookup(LINK, local, remote), fits.iter().max().map(|(_, s)| *s));
                    let mut all: Vec<_> = table.lookup_all(LINK, local, remote).collect();
                    all.sort_unstable();
                    fits.sort_unstable_by_key(|(_, s)| *s);
                    prop_assert_eq!(all, fits.into_iter().map(|(_, s)| s).collect::<Vec<_>>());
                }
            }
        }
    }
}
