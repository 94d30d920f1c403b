//! A rule of address translation, in ipnat's meaning: which packets have another address outside, and which.
//!
//! Nouns alone: `control/model` reads and writes them as `ipnat.conf` has them, with links by name; `path/nat` follows them,
//! with links by number. Facts: ipnat(5). IPv4 only.

use core::net::Ipv4Addr;
use core::num::NonZeroU16;
use core::time::Duration;

use crate::{FilterPorts, FilterProtocol, IpPrefix, Port};

/// A rule; `L` is what a link is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatRule<L> {
    /// The link behind which the other addresses are.
    pub link: L,
    /// What it asks of a packet's protocol.
    pub protocol: FilterProtocol,
    /// Where the packet comes from, as it arrives.
    pub from: NatEnd,
    /// Where it goes, as it arrives.
    pub to: NatEnd,
    /// What becomes of its addresses.
    pub action: NatAction,
    /// For how many seconds what it makes lasts without packets, forward and back, in place of the protocol's own times.
    pub age: Option<(u32, u32)>,
    /// The largest segment that a SYN may offer.
    pub mss: Option<NonZeroU16>,
}

/// One end of a packet's way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NatEnd {
    /// The address is *not* one of these.
    pub negated: bool,
    /// Those under a prefix; all of them if not said.
    pub prefix: Option<IpPrefix>,
    /// Which ports.
    pub ports: FilterPorts,
}

/// What becomes of a packet's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatAction {
    /// `map`, `map-block`: what leaves by the link has another source.
    Map(NatTarget, NatPorts),
    /// `bimap`: the same, one address for one, and what arrives by the link for the other address is for the inner one.
    Bimap(NatTarget),
    /// `rdr`: what arrives by the link is for somebody else.
    Redirect(NatRedirect),
}

/// The addresses outside.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatTarget {
    /// `0/32`: the first that the link has, whichever that is.
    OfLink,
    /// Those under a prefix.
    Prefix(IpPrefix),
}

/// The ports outside.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatPorts {
    /// The same as inside.
    Same,
    /// `portmap`, `icmpidmap`: one of these.
    Range(Port, Port),
    /// `map-block`, `portmap … auto`: each address inside has so many of its own; as many as there are for each if not said.
    Block(Option<NonZeroU16>),
}

/// Whom a packet is for instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatRedirect {
    /// The address.
    pub address: Ipv4Addr,
    /// Another, which takes turns with it.
    pub second: Option<Ipv4Addr>,
    /// The port; the same if not said.
    pub port: Option<Port>,
    /// The first of several ports goes to `port`, the next to the one behind it.
    pub is_range: bool,
}

/// Who may answer a mapping (RFC 4787 §5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NatFiltering {
    /// Everybody: endpoint-independent.
    Anybody,
    /// Every port of an address that was sent to: address-dependent.
    #[default]
    Address,
    /// Only who was sent to: address and port-dependent.
    Port,
}

impl NatFiltering {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Anybody, Self::Address, Self::Port];

    /// The word of the property.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Anybody => "endpoint-independent",
            Self::Address => "address-dependent",
            Self::Port => "address-and-port-dependent",
        }
    }
}

/// How long what packets have made lasts without others, and how much of it there may be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatLimits {
    /// Connections at once.
    pub sessions: u32,
    /// Of which one address may have begun so many.
    pub per_source: u32,
    /// Who may answer.
    pub filtering: NatFiltering,
    /// A TCP connection that both ends have shown to be theirs.
    pub tcp_established: Duration,
    /// One that begins, or ends.
    pub tcp_transitory: Duration,
    /// Datagrams.
    pub udp: Duration,
    /// ICMP queries.
    pub icmp: Duration,
    /// Anything else.
    pub other: Duration,
}

impl Default for NatLimits {
    /// The times are RFC 5382's (REQ-5), RFC 4787's (REQ-5) and RFC 5508's (REQ-1).
    fn default() -> Self {
        Self {
            sessions: 1 << 18,
            per_source: 1 << 14,
            filtering: NatFiltering::Address,
            tcp_established: Duration::from_secs(2 * 3600 + 4 * 60),
            tcp_transitory: Duration::from_secs(4 * 60),
            udp: Duration::from_secs(5 * 60),
            icmp: Duration::from_secs(60),
            other: Duration::from_secs(2 * 60),
        }
    }
}

impl NatEnd {
    /// Whether an address and a port are of this end; what has no port has none that a rule may ask for.
    pub fn contains(&self, address: Ipv4Addr, port: Option<Port>) -> bool {
        let is_port = self.ports == FilterPorts::Any || port.is_some_and(|port| self.ports.contains(port));
        self.has_address(address) && is_port
    }

    /// Whether an address is of this end, whatever the port.
    pub fn has_address(&self, address: Ipv4Addr) -> bool {
        self.prefix.is_none_or(|prefix| prefix.contains(address.into())) != self.negated
    }
}

impl<L> NatRule<L> {
    /// A rule for all packets by a link.
    pub fn new(link: L, action: NatAction) -> Self {
        let (from, to) = (NatEnd::default(), NatEnd::default());
        Self { link, protocol: FilterProtocol::Any, from, to, action, age: None, mss: None }
    }

    /// The same rule with its link called otherwise, or why there is none.
    pub fn try_map<M, E>(self, link: impl FnOnce(L) -> Result<M, E>) -> Result<NatRule<M>, E> {
        let Self { link: on, protocol, from, to, action, age, mss } = self;
        Ok(NatRule { link: link(on)?, protocol, from, to, action, age, mss })
    }
}

/// The ports that `map-block` deals out: those below are nobody's.
pub const NAT_BLOCKS_FROM: u16 = 1024;

/// How many ports each of `inside` addresses gets of `outside` ones, if they get equal shares.
pub const fn nat_block_ports(inside: u64, outside: u64) -> Option<NonZeroU16> {
    let all = (1 << 16) - NAT_BLOCKS_FROM as u64;
    if outside == 0 || inside == 0 {
        return None;
    }
    // Each address outside serves so many inside.
    NonZeroU16::new((all / inside.div_ceil(outside)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_ports_fit_what_there_is() {
        let cases = [(256, 256, 64_512), (256, 1, 252), (256, 4, 1008), (3, 2, 32_256), (64_512, 1, 1)];
        for (inside, outside, ports) in cases {
            assert_eq!(nat_block_ports(inside, outside), NonZeroU16::new(ports), "{inside} {outside}");
        }
        assert_eq!(nat_block_ports(64_513, 1), None, "not one for each");
        assert_eq!((nat_block_ports(1, 0), nat_block_ports(0, 1)), (None, None));
    }

    #[test]
    fn an_end_is_what_it_says() {
        let net = "10.0.0.0/8".parse().ok();
        let end = |negated, ports| NatEnd { negated, prefix: net, ports };
        let (inside, outside) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(192, 0, 2, 1));
        assert!(end(false, FilterPorts::Any).contains(inside, None));
        assert!(!end(false, FilterPorts::Any).contains(outside, None));
        assert!(end(true, FilterPorts::Any).contains(outside, Some(Port(1))));
        let web = FilterPorts::Equal(Port(80));
        assert!(end(false, web).contains(inside, Some(Port(80))) && !end(false, web).contains(inside, None));
        assert!(NatEnd::default().contains(outside, None));
    }
}
