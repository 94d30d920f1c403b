//! A rule of the packet filter, in IPFilter's meaning: what it asks of a packet and what becomes of one that has it all.
//!
//! Nouns alone: `control/model` reads and writes them as `ipf.conf` has them, with links by name; `path/filter` follows
//! them, with links by number. Facts: ipf(5).

use core::num::NonZeroU32;

use crate::{Direction, IpPrefix, Port};

/// A rule; `L` is what a link is called.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FilterRule<L> {
    /// Of which packets, as the netstack sees them.
    pub direction: Direction,
    /// What becomes of those that match.
    pub action: FilterAction,
    /// Whether it is told when a packet matches.
    pub log: Option<FilterLog>,
    /// A match ends the search; without it the last match counts.
    pub quick: bool,
    /// Over which link only.
    pub link: Option<L>,
    /// What it asks of a packet.
    pub matching: FilterMatch,
    /// Remembers what the match lets through, so that what belongs to it passes without rules.
    pub keep_state: Option<KeepState>,
    /// Remembers the datagram of a first fragment, so that the others pass.
    pub keep_frags: bool,
    /// The group of rules that a match goes on with.
    pub head: Option<NonZeroU32>,
    /// The group that it is in; the main one if not said.
    pub group: Option<NonZeroU32>,
}

impl<L> FilterRule<L> {
    /// A rule that asks nothing of a packet but its direction.
    pub fn new(direction: Direction, action: FilterAction) -> Self {
        Self {
            direction,
            action,
            log: None,
            quick: false,
            link: None,
            matching: FilterMatch::default(),
            keep_state: None,
            keep_frags: false,
            head: None,
            group: None,
        }
    }

    /// Why a single socket cannot have the rule, which is asked about what comes to it and begins something; `None` if it can.
    pub fn unfit_for_socket(&self) -> Option<&'static str> {
        match self {
            _ if self.direction == Direction::Out => Some("a socket's rules are about what comes in"),
            _ if self.keep_state.is_some() => {
                Some("a socket's rules keep no state: a connection that has begun is not asked about again")
            }
            _ if self.keep_frags => Some("a socket's rules keep no fragments: a socket gets whole packets"),
            _ if self.log.is_some() || self.action == FilterAction::Log => {
                Some("a socket's rules do not log: what each has met is counted")
            }
            _ => None,
        }
    }

    /// The same rule with its link called otherwise, or why there is none.
    pub fn try_map<M, E>(self, link: impl FnOnce(L) -> Result<M, E>) -> Result<FilterRule<M>, E> {
        let Self { direction, action, log, quick, link: on, matching, keep_state, keep_frags, head, group } =
            self;
        let link = on.map(link).transpose()?;
        Ok(FilterRule { direction, action, log, quick, link, matching, keep_state, keep_frags, head, group })
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FilterAction {
    /// It goes on.
    Pass,
    /// It ends here.
    Block(BlockAnswer),
    /// It is counted, and nothing else.
    Count,
    /// It is told of, and nothing else.
    Log,
    /// The next so many rules of the group are left out.
    Skip(u16),
    /// The search goes on with the rules of the group that a map has for one of its addresses, and comes back.
    Call(GroupCall),
}

/// A map of networks to groups of rules, and whose group is looked for in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupCall {
    /// The map's number.
    pub map: u32,
    /// By which address.
    pub by: MapKey,
}

impl GroupCall {
    /// So many calls are within each other at most.
    pub const DEPTH_MAX: u8 = 16;
}

/// An address by which a group is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapKey {
    /// The packet's source.
    Source,
    /// Its destination.
    Destination,
}

/// What a sender hears of a packet that ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockAnswer {
    /// Nothing.
    Silent,
    /// A reset, if it was a segment of TCP.
    Reset,
    /// An ICMP error, destination unreachable, with a code of IPv4's; from the address that the packet was for if `as_dest`,
    /// else from the netstack's own.
    Icmp {
        /// RFC 792's and RFC 1812's codes.
        code: u8,
        /// As the one that it was sent to.
        as_dest: bool,
    },
}

/// What is told of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FilterLog {
    /// Of a state's packets the first one only.
    pub first: bool,
    /// The packet's first 128 bytes too.
    pub body: bool,
}

/// What a rule asks of a packet; all of it must be so.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FilterMatch {
    /// The whole byte of the DS field.
    pub tos: Option<u8>,
    /// Time to live, or hop limit.
    pub ttl: Option<u8>,
    /// What it carries.
    pub protocol: FilterProtocol,
    /// Where it comes from.
    pub from: FilterEnd,
    /// Where it goes.
    pub to: FilterEnd,
    /// TCP's flags.
    pub flags: Option<TcpFlagsMatch>,
    /// ICMP's type and code.
    pub icmp: Option<(u8, Option<u8>)>,
    /// Traits that it must have, or must not have.
    pub with: Vec<(PacketTrait, bool)>,
}

/// The protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FilterProtocol {
    /// Any.
    #[default]
    Any,
    /// TCP and UDP alike.
    TcpUdp,
    /// The one with this number.
    Number(u8),
}

/// One end of a packet's way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FilterEnd {
    /// The address is *not* one of these.
    pub negated: bool,
    /// Which addresses.
    pub addresses: FilterAddresses,
    /// Which ports.
    pub ports: FilterPorts,
}

/// Addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FilterAddresses {
    /// All of them.
    #[default]
    Any,
    /// Those under a prefix.
    Prefix(IpPrefix),
    /// Those in the pool of this number.
    Pool(u32),
}

/// Ports, as ipf(5) compares them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FilterPorts {
    /// All, and packets without any.
    #[default]
    Any,
    /// `=`
    Equal(Port),
    /// `!=`
    NotEqual(Port),
    /// `<`
    Less(Port),
    /// `>`
    Greater(Port),
    /// `<=`
    AtMost(Port),
    /// `>=`
    AtLeast(Port),
    /// `a >< b`: between them, neither included.
    Inside(Port, Port),
    /// `a <> b`: below the first or above the second.
    Outside(Port, Port),
    /// `a : b`: between them, both included.
    Range(Port, Port),
}

impl FilterPorts {
    /// Whether a port is one of them.
    pub const fn contains(self, port: Port) -> bool {
        let port = port.0;
        match self {
            Self::Any => true,
            Self::Equal(one) => port == one.0,
            Self::NotEqual(one) => port != one.0,
            Self::Less(one) => port < one.0,
            Self::Greater(one) => port > one.0,
            Self::AtMost(one) => port <= one.0,
            Self::AtLeast(one) => port >= one.0,
            Self::Inside(low, high) => low.0 < port && port < high.0,
            Self::Outside(low, high) => port < low.0 || high.0 < port,
            Self::Range(low, high) => low.0 <= port && port <= high.0,
        }
    }
}

/// TCP flags that must be set, among those that are looked at; in the bits of RFC 9293's header, ECE and CWR above.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpFlagsMatch {
    /// These are set.
    pub set: u8,
    /// And of these no others.
    pub mask: u8,
}

/// What else a packet may be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketTrait {
    /// It has IP options, or extension headers that are none of a fragment.
    IpOptions,
    /// Too short for the header of what it carries.
    Short,
    /// A piece of a datagram.
    Fragment,
    /// A piece that is not the first.
    FragmentBody,
    /// A segment outside the window of the state that it belongs to.
    OutOfWindow,
    /// For many.
    Multicast,
}

impl PacketTrait {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::IpOptions,
        Self::Short,
        Self::Fragment,
        Self::FragmentBody,
        Self::OutOfWindow,
        Self::Multicast,
    ];

    /// The word of ipf(5).
    pub const fn word(self) -> &'static str {
        match self {
            Self::IpOptions => "ipopts",
            Self::Short => "short",
            Self::Fragment => "frag",
            Self::FragmentBody => "frag-body",
            Self::OutOfWindow => "oow",
            Self::Multicast => "multicast",
        }
    }
}

/// How a state is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct KeepState {
    /// Segments must come in order, each where the last one ended.
    pub strict: bool,
    /// ICMP errors about it do not pass by it.
    pub no_icmp_err: bool,
    /// At most so many states by this rule.
    pub limit: Option<NonZeroU32>,
    /// For how many seconds it lasts without packets, forward and back, in place of the protocol's own times.
    pub age: Option<(u32, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_compared_as_the_manual_says() {
        let (low, high) = (Port(1024), Port(2048));
        let cases: [(FilterPorts, &[u16], &[u16]); 10] = [
            (FilterPorts::Any, &[0, 1, 65535], &[]),
            (FilterPorts::Equal(low), &[1024], &[1023, 1025]),
            (FilterPorts::NotEqual(low), &[1023, 1025], &[1024]),
            (FilterPorts::Less(low), &[0, 1023], &[1024, 1025]),
            (FilterPorts::Greater(low), &[1025, 65535], &[1024, 0]),
            (FilterPorts::AtMost(low), &[0, 1024], &[1025]),
            (FilterPorts::AtLeast(low), &[1024, 65535], &[1023]),
            (FilterPorts::Inside(low, high), &[1025, 2047], &[1024, 2048]),
            (FilterPorts::Outside(low, high), &[1023, 2049], &[1024, 1500, 2048]),
            (FilterPorts::Range(low, high), &[1024, 1500, 2048], &[1023, 2049]),
        ];
        for (ports, inside, outside) in cases {
            assert!(inside.iter().all(|&port| ports.contains(Port(port))), "{ports:?}");
            assert!(!outside.iter().any(|&port| ports.contains(Port(port))), "{ports:?}");
        }
    }
}
