//! IP tunnels: what stands before a packet on its way through one, and what is taken off behind it.
//!
//! A tunnel belongs to the netstack whose addresses carry it. `path/lane` asks [`Tunnels::encapsulate`] for each packet that leaves
//! by a tunnel's interface, and [`Tunnels::decapsulate`] for each packet of a tunnel's protocol that is for the netstack. Sans-I/O:
//! packets in, headers and verdicts out; no clock, and nothing is stored but GRE's sequence numbers. RFC 2003 (IPv4 in IPv4),
//! 4213 (IPv6 in IPv4), 3056 and 3964 (6to4), 2473 (anything in IPv6), 2784 and 2890 (GRE), 6040 (congestion), 4459 (MTU).
#![forbid(unsafe_code)]

mod ecn;
mod gre;
mod inward;
mod nest;
mod outward;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use firelane_units::LinkId;

pub use ecn::set_ecn;
pub use gre::Gre;
pub use inward::{Arrived, Inner, Refused};
pub use nest::{NESTED_MAX, inside_of};
pub use outward::{Outer, Refusal};

/// How a tunnel carries packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Directly behind the outer IP header; both versions (RFC 2003, RFC 4213, RFC 2473).
    Ip,
    /// The same for IPv6 in IPv4, whose other end stands in the packet's own address (RFC 3056).
    SixToFour,
    /// Behind a GRE header.
    Gre(Gre),
}

/// A tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The link that leads into it.
    pub link: LinkId,
    /// How it carries packets.
    pub kind: Kind,
    /// This end.
    pub local: IpAddr,
    /// The other end, of the same family; of no meaning for 6to4.
    pub remote: IpAddr,
    /// TTL or hop limit of the packets outside.
    pub hops: u8,
    /// How many more tunnels a packet may enter inside this one (RFC 2473 §4.1.1); `None` if routers are not told. Where the
    /// outer packet is IPv4 there is no place to say it.
    pub limit: Option<u8>,
}

impl Config {
    /// Bytes that stand before each packet.
    pub const fn overhead(&self) -> usize {
        let outer = match self.local {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40 + if self.limit.is_some() { nest::LIMIT_HEADER } else { 0 },
        };
        let gre = match self.kind {
            Kind::Gre(gre) => gre.header_len(),
            Kind::Ip | Kind::SixToFour => 0,
        };
        outer + gre
    }
}

/// A tunnel and what it remembers.
#[derive(Clone, Debug)]
pub(crate) struct Tunnel {
    pub(crate) config: Config,
    /// GRE's next sequence number, and the least that is taken.
    pub(crate) next_out: u32,
    pub(crate) next_in: Option<u32>,
}

/// Which protocol's headers tell tunnels apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Family {
    Ip,
    SixToFour,
    Gre,
}

/// By what an arriving packet's tunnel is found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Name {
    pub(crate) family: Family,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) key: Option<u32>,
}

impl Name {
    fn of(config: &Config) -> Self {
        let (family, key) = match config.kind {
            Kind::Ip => (Family::Ip, None),
            Kind::SixToFour => (Family::SixToFour, None),
            Kind::Gre(gre) => (Family::Gre, gre.key),
        };
        let remote = if family == Family::SixToFour { nobody(config.local) } else { config.remote };
        Self { family, local: config.local, remote, key }
    }
}

/// The least address of a family.
pub(crate) const fn nobody(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// The tunnels of a netstack, as one lane knows them.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    by_link: BTreeMap<LinkId, Tunnel>,
    by_name: BTreeMap<Name, LinkId>,
}

impl Tunnels {
    /// Adds a tunnel, or changes the one of its link; whether that can be: another one has the same two ends, protocol and key.
    pub fn set(&mut self, config: Config) -> bool {
        let name = Name::of(&config);
        if self.by_name.get(&name).is_some_and(|&link| link != config.link) {
            return false;
        }
        let before = self.by_link.get(&config.link);
        // A tunnel that keeps its name goes on counting.
        let (next_out, next_in) = before
            .filter(|it| Name::of(&it.config) == name)
            .map_or((0, None), |it| (it.next_out, it.next_in));
        self.remove(config.link);
        self.by_name.insert(name, config.link);
        self.by_link.insert(config.link, Tunnel { config, next_out, next_in });
        true
    }

    /// Removes the tunnel of a link.
    pub fn remove(&mut self, link: LinkId) {
        if let Some(tunnel) = self.by_link.remove(&link) {
            self.by_name.remove(&Name::of(&tunnel.config));
        }
    }

    /// The tunnel of a link.
    pub fn get(&self, link: LinkId) -> Option<&Config> {
        self.by_link.get(&link).map(|tunnel| &tunnel.config)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_link.is_empty()
    }

    /// All of them, in order of their links.
    pub fn iter(&self) -> impl Iterator<Item = &Config> {
        self.by_link.values().map(|tunnel| &tunnel.config)
    }
}
