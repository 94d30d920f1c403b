//! What a socket is bound to, and which datagrams that means.
//!
//! A binding is a set of datagrams: local address and port, and for a connected socket the peer. Two
//! bindings conflict if a datagram belongs to both. `table.rs` keeps them; `ephemeral.rs` looks for free
//! ones.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_units::{LinkId, Port};

/// The local addresses of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LocalAddr {
    /// One address, in canonical form: an IPv4-mapped IPv6 address is the IPv4 address.
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

    /// How well a canonical address fits, higher is better; `None` if it does not.
    #[inline]
    pub(crate) fn fit(self, address: IpAddr) -> Option<u8> {
        match self {
            Self::One(one) => (one == address).then_some(2),
            Self::AnyV4 => address.is_ipv4().then_some(1),
            Self::AnyV6 { v6_only } => (address.is_ipv6() || !v6_only).then_some(0),
        }
    }

    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::One(one), set) | (set, Self::One(one)) => set.fit(one).is_some(),
            (Self::AnyV4, Self::AnyV6 { v6_only }) | (Self::AnyV6 { v6_only }, Self::AnyV4) => !v6_only,
            (Self::AnyV4, Self::AnyV4) | (Self::AnyV6 { .. }, Self::AnyV6 { .. }) => true,
        }
    }
}

/// Which other sockets may be bound where a datagram of this socket arrives: those that share in the same way, if it does.
/// Each gets every multicast datagram. The rest is the last one's to bind; if that spreads, one of those that it spreads with
/// gets it, always the same for a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sharing {
    /// Shared with all that say so, too (SO_REUSEADDR).
    pub shared: bool,
    /// Spread over all that say so, too, and belong to this user (SO_REUSEPORT).
    pub spread: Option<u32>,
}

impl Sharing {
    fn allows(self, other: Self) -> bool {
        self.shared && other.shared || self.spread.is_some() && self.spread == other.spread
    }
}

/// A socket cannot be connected to this peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteError {
    /// Its address is unspecified.
    Unspecified,
    /// The socket's local addresses are of the other version of IP.
    Family,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "the peer's address must be given",
            Self::Family => "the peer's address is of another version of IP than the socket's",
        })
    }
}

impl core::error::Error for RemoteError {}

/// What a socket is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Binding {
    local: LocalAddr,
    port: Port,
    remote: Option<Peer>,
    link: Option<LinkId>,
    sharing: Sharing,
}

/// A peer's canonical address and port. IPv6 scopes are not part of it: a netstack's addresses are unique.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    pub(crate) port: Port,
}

impl From<SocketAddr> for Peer {
    #[inline]
    fn from(address: SocketAddr) -> Self {
        Self { address: address.ip().to_canonical(), port: Port(address.port()) }
    }
}

impl Binding {
    /// Bound to `local`, for datagrams from everybody. An unspecified address means all; port zero is
    /// for [`free_port`](crate::free_port) to replace.
    pub fn new(local: SocketAddr, v6_only: bool) -> Self {
        Self {
            local: LocalAddr::of(local.ip(), v6_only),
            port: Port(local.port()),
            remote: None,
            link: None,
            sharing: Sharing::default(),
        }
    }

    /// The same for datagrams of one peer only. Its port may be zero, as for who asks for nothing but the way there: nobody answers from that.
    pub fn connected(self, remote: SocketAddr) -> Result<Self, RemoteError> {
        let peer = Peer::from(remote);
        if peer.address.is_unspecified() {
            return Err(RemoteError::Unspecified);
        }
        let same_family = match self.local {
            LocalAddr::One(one) => one.is_ipv4() == peer.address.is_ipv4(),
            any => any.fit(peer.address).is_some(),
        };
        if !same_family {
            return Err(RemoteError::Family);
        }
        Ok(Self { remote: Some(peer), ..self })
    }

    /// The same for datagrams of everybody.
    pub fn disconnected(self) -> Self {
        Self { remote: None, ..self }
    }

    /// The same at another port.
    pub fn at_port(self, port: Port) -> Self {
        Self { port, ..self }
    }

    /// The same at another local address, as connecting a socket that was bound to all of them fixes it.
    pub fn at_address(self, local: IpAddr) -> Self {
        Self { local: LocalAddr::of(local, false), ..self }
    }

    /// The same with others that share, or without.
    pub fn sharing(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// The same for what arrives by one link only (SO_BINDTODEVICE, Solaris' IP_BOUND_IF).
    pub fn on_link(self, link: Option<LinkId>) -> Self {
        Self { link, ..self }
    }

    /// Its local addresses.
    pub fn local(&self) -> LocalAddr {
        self.local
    }

    /// Its local port.
    pub fn port(&self) -> Port {
        self.port
    }

    /// Its peer, if it is connected.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote.map(|peer| SocketAddr::new(peer.address, peer.port.0))
    }

    pub(crate) fn peer(&self) -> Option<Peer> {
        self.remote
    }

    /// How well it fits a datagram to the canonical address `local` that came by `link`, if that is known. Its port
    /// and, if it is connected, its peer are known to be right.
    #[inline]
    pub(crate) fn fit(&self, local: IpAddr, link: Option<LinkId>) -> Option<u8> {
        let of_address = self.local.fit(local)?;
        // As in Linux one address counts most, then one link, and then which addresses all of them are.
        let is_one = matches!(self.local, LocalAddr::One(_));
        let is_of_link = match (self.link, link) {
            (Some(own), Some(link)) if own != link => return None,
            (own, link) => own.is_some() && link.is_some(),
        };
        Some(of_address + 4 * u8::from(is_of_link) + 8 * u8::from(is_one))
    }

    /// Whether what is sent to one of both may as well be the other's: they are bound to the same, and spread.
    pub(crate) fn spreads_with(&self, other: &Self) -> bool {
        self.sharing.spread.is_some()
            && self.sharing.spread == other.sharing.spread
            && (self.local, self.link) == (other.local, other.link)
    }

    /// Whether a datagram may belong to both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let peers_overlap = match (self.remote, other.remote) {
            (Some(mine), Some(theirs)) => mine == theirs,
            _ => true,
        };
        let links_overlap = match (self.link, other.link) {
            (Some(mine), Some(theirs)) => mine == theirs,
            _ => true,
        };
        self.port == other.port && peers_overlap && links_overlap && self.local.overlaps(other.local)
    }

    /// Whether both cannot be bound at once.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        !self.sharing.allows(other.sharing) && self.overlaps(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str) -> Binding {
        match text.strip_prefix('!') {
            Some(text) => Binding::new(text.parse().unwrap(), true),
            None => Binding::new(text.parse().unwrap(), false),
        }
    }

    /// A leading `!` means IPV6_V6ONLY.
    #[test]
    fn bindings_conflict_if_a_datagram_belongs_to_both() {
        for (a, b, conflict) in [
            ("0.0.0.0:53", "0.0.0.0:53", true),
            ("0.0.0.0:53", "0.0.0.0:54", false),
            ("0.0.0.0:53", "10.0.0.1:53", true),
            ("10.0.0.1:53", "10.0.0.2:53", false),
            ("10.0.0.1:53", "[::ffff:10.0.0.1]:53", true),
            ("0.0.0.0:53", "[::]:53", true),
            ("0.0.0.0:53", "![::]:53", false),
            ("10.0.0.1:53", "![::]:53", false),
            ("10.0.0.1:53", "[::]:53", true),
            ("0.0.0.0:53", "[fd00::1]:53", false),
            ("![::]:53", "[::]:53", true),
            ("[fd00::1]:53", "[::]:53", true),
        ] {
            let (a, b) = (bound(a), bound(b));
            assert_eq!(a.conflicts(&b), conflict, "{a:?} {b:?}");
            assert_eq!(b.conflicts(&a), conflict, "{b:?} {a:?}");
            let shared = Sharing { shared: true, spread: None };
            let spread = |user| Sharing { shared: false, spread: Some(user) };
            let both = Sharing { shared: true, spread: Some(1) };
            for (one, other, allowed) in [
                (shared, shared, true),
                (shared, Sharing::default(), false),
                (spread(1), spread(1), true),
                (spread(1), spread(2), false),
                (spread(1), shared, false),
                (both, spread(1), true),
                (both, shared, true),
                (both, spread(2), false),
            ] {
                let conflicts = a.sharing(one).conflicts(&b.sharing(other));
                assert_eq!(conflicts, conflict && !allowed, "{a:?} {one:?}, {b:?} {other:?}");
            }
        }
    }

    #[test]
    fn sockets_with_other_peers_do_not_conflict() {
        let peer = |text: &str| bound("10.0.0.1:53").connected(text.parse().unwrap()).unwrap();
        assert!(!peer("10.0.0.9:1").conflicts(&peer("10.0.0.9:2")));
        assert!(!peer("10.0.0.9:1").conflicts(&peer("10.0.0.8:1")));
        assert!(peer("10.0.0.9:1").conflicts(&peer("[::ffff:10.0.0.9]:1")));
        assert!(peer("10.0.0.9:1").conflicts(&bound("0.0.0.0:53")));
        assert!(!peer("10.0.0.9:1").conflicts(&bound("10.0.0.2:53")));
    }

    #[test]
    fn sockets_on_other_links_do_not_conflict() {
        let on = |link: Option<u32>| bound("0.0.0.0:68").on_link(link.map(LinkId));
        assert!(!on(Some(1)).conflicts(&on(Some(2))));
        assert!(on(Some(1)).conflicts(&on(Some(1))));
        assert!(on(Some(1)).conflicts(&on(None)) && on(None).conflicts(&on(Some(1))));
        assert!(!on(Some(1)).conflicts(&bound("0.0.0.0:67")));
    }

    #[test]
    fn peers_that_cannot_be() {
        for (local, peer, wanted) in [
            ("10.0.0.1:53", "10.0.0.9:0", None),
            ("10.0.0.1:53", "0.0.0.0:9", Some(RemoteError::Unspecified)),
            ("10.0.0.1:53", "[fd00::1]:9", Some(RemoteError::Family)),
            ("0.0.0.0:53", "[fd00::1]:9", Some(RemoteError::Family)),
            ("![::]:53", "10.0.0.9:9", Some(RemoteError::Family)),
            ("[fd00::1]:53", "10.0.0.9:9", Some(RemoteError::Family)),
            ("[::]:53", "10.0.0.9:9", None),
            ("[::]:53", "[fd00::9]:9", None),
            ("10.0.0.1:53", "[::ffff:10.0.0.9]:9", None),
        ] {
            assert_eq!(bound(local).connected(peer.parse().unwrap()).err(), wanted, "{local} to {peer}");
        }
    }
}
