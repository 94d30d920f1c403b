//! What a shard tells the lane: for the other shards of the netstack, for transports, for the operator.

use core::net::IpAddr;
use core::time::Duration;

use firelane_units::{IpPrefix, LinkId, MacAddr, Mtu, Port, SeqNum};
use firelane_wire::IpProtocol;

use crate::address::AddressOrigin;
use crate::route::Route;

/// Something that others need to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpEvent {
    /// A neighbour's address: the other shards hear it by
    /// [`on_neighbour_learned`](crate::Ip::on_neighbour_learned).
    NeighbourLearned {
        /// On which link.
        link: LinkId,
        /// Whose.
        ip: IpAddr,
        /// What it is; none if it answers from where it is known to be, and does not say where (RFC 4861 §7.2.4).
        mac: Option<MacAddr>,
        /// How it was said.
        how: Hearsay,
    },
    /// An address passed the test; the home lane says so. The other shards hear it by
    /// [`on_address_ready`](crate::Ip::on_address_ready).
    AddressReady(LinkId, IpPrefix),
    /// Somebody else has the address; it is not used. The other shards hear it by
    /// [`on_duplicate_address`](crate::Ip::on_duplicate_address).
    DuplicateAddress(LinkId, IpPrefix, MacAddr),
    /// The home lane tests an address again that somebody else had. The other shards hear it by
    /// [`on_address_again`](crate::Ip::on_address_again).
    AddressAgain(LinkId, IpAddr),
    /// The home lane has configured something by itself: the other shards hear it by
    /// [`on_configured`](crate::Ip::on_configured).
    Configured(Configured),
    /// The name servers or search domains of a link have changed: [`Ip::resolvers`](crate::Ip::resolvers) has
    /// them.
    Resolvers(LinkId),
    /// The routers of a link say something new about DHCPv6.
    RouterFlags(LinkId, RouterFlags),
    /// A path's largest packet has changed in this shard: the others hear it by
    /// [`on_path_mtu`](crate::Ip::on_path_mtu).
    PathMtu {
        /// Towards whom.
        dst: IpAddr,
        /// How large.
        mtu: Mtu,
    },
    /// An error about a packet that this netstack is said to have sent.
    TransportError(TransportError),
}

/// How a neighbour has said its address, to another shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hearsay {
    /// In answer, which confirms the way there. Without `replace` another address that is known stays (RFC 4861 §7.2.5).
    Answer {
        /// Whether it takes the place of another one.
        replace: bool,
    },
    /// Unasked; it takes the place of another one.
    Claim,
}

/// What a link's routers say of DHCPv6 (RFC 4861 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterFlags {
    /// Addresses come from there (M).
    pub managed: bool,
    /// Other configuration does (O).
    pub other: bool,
}

/// Something that a host configured by itself, as its home lane decided and every lane has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Configured {
    /// An address is usable, and preferred or not.
    Address {
        /// On which link.
        link: LinkId,
        /// The address and its subnet.
        prefix: IpPrefix,
        /// Where it comes from.
        origin: AddressOrigin,
        /// Nothing new begins with it.
        is_deprecated: bool,
    },
    /// An address ends.
    NoAddress {
        /// On which link.
        link: LinkId,
        /// Which.
        addr: IpAddr,
    },
    /// A route begins.
    Route(Route),
    /// A route ends.
    NoRoute(Route),
    /// A router has said how packets are sent on its link.
    Link(LinkId, LinkParameters),
}

/// How IPv6 packets are sent on a link, as far as its routers say (RFC 4861 §6.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkParameters {
    /// The hop limit of packets that are sent; the netstack's own if no router has said one.
    pub hop_limit: Option<u8>,
    /// The largest packet, if it is smaller than the interface's.
    pub mtu: Option<Mtu>,
    /// How long a neighbour is taken for reachable after it was heard, before it is spread.
    pub reachable: Duration,
    /// Time between questions for a neighbour.
    pub retransmit: Duration,
}

impl Default for LinkParameters {
    /// What holds without a router (RFC 4861 §10).
    fn default() -> Self {
        let (reachable, retransmit) = (Duration::from_secs(30), Duration::from_secs(1));
        Self { hop_limit: None, mtu: None, reachable, retransmit }
    }
}

/// An error about a packet that this netstack is said to have sent. Whether it did is the transport's to
/// check: a socket with these ports, for TCP a sequence number in flight (RFC 5927 §4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportError {
    /// The packet's transport.
    pub protocol: IpProtocol,
    /// The packet's source: an address of this netstack.
    pub src: IpAddr,
    /// The packet's destination.
    pub dst: IpAddr,
    /// Its source and destination port: local and remote.
    pub ports: (Port, Port),
    /// A TCP segment's sequence number.
    pub seq: Option<SeqNum>,
    /// What happened to it.
    pub kind: ErrorKind,
    /// Who says so, and how.
    pub said: Said,
}

/// An ICMP error as it came, for programs that want to know (`IP_RECVERR` of Linux).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// Who sent it.
    pub from: IpAddr,
    /// By which link it came.
    pub link: Option<LinkId>,
    /// Its TTL or hop limit.
    pub hops: u8,
    /// Its traffic class.
    pub tos: u8,
    /// Type and code.
    pub icmp: [u8; 2],
    /// The four octets behind its checksum: an MTU, or where a problem is.
    pub rest: u32,
    /// What it quotes of what a program had sent.
    pub text: QuotedText,
}

/// The begin of a quoted text: as much as tells one question from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotedText {
    len: u8,
    octets: [u8; QuotedText::MOST],
}

impl QuotedText {
    /// The most of a quoted text that is kept.
    pub const MOST: usize = 64;

    /// The begin of `text`.
    pub fn of(text: &[u8]) -> Self {
        let (len, mut octets) = (text.len().min(Self::MOST), [0; Self::MOST]);
        octets[..len].copy_from_slice(&text[..len]);
        Self { len: len as u8, octets }
    }

    /// It.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

impl Said {
    /// What `from` would say of a host that does not answer: this station found it out itself.
    pub fn by_ourselves(from: IpAddr, text: &[u8]) -> Self {
        let icmp = if from.is_ipv4() { [3, 1] } else { [1, 3] };
        Self { from, link: None, hops: 64, tos: 0, icmp, rest: 0, text: QuotedText::of(text) }
    }

    /// Whether this station found it out itself: nobody can have made it up, and no router has another way.
    pub const fn is_by_ourselves(&self) -> bool {
        self.link.is_none()
    }
}

/// What happened to a packet. All are soft for an established connection (RFC 5461, RFC 1122 §4.2.3.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No way to the network (ENETUNREACH).
    NetworkUnreachable,
    /// The host does not answer (EHOSTUNREACH).
    HostUnreachable,
    /// The host does not have the protocol (ENOPROTOOPT).
    ProtocolUnreachable,
    /// Nobody listens on the port (ECONNREFUSED).
    PortUnreachable,
    /// An administrator forbids it (EACCES).
    Prohibited,
    /// Its hops or its reassembly time were used up (EHOSTUNREACH).
    TimeExceeded,
    /// A header field was refused (EPROTO).
    ParameterProblem,
    /// It was too large for a link on its way (EMSGSIZE). A transport that really sent it passes the MTU
    /// to [`Ip::confirm_path_mtu`](crate::Ip::confirm_path_mtu), one that may have to
    /// [`Ip::suppose_path_mtu`](crate::Ip::suppose_path_mtu); nothing is believed before.
    TooBig {
        /// That link's MTU, already within the limits of reason.
        mtu: Mtu,
    },
}
