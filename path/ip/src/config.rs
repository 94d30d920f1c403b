//! What a netstack's IP side is told at the start and per interface.

use core::net::IpAddr;
use core::time::Duration;

use firelane_units::{LinkId, MacAddr, Mtu};

use crate::iid::IidKind;

/// The link of packets that a netstack sends to itself. No switch knows it: whoever takes frames out of
/// [`Ip::poll_output`](crate::Ip::poll_output) gives those with this link back to
/// [`Ip::input`](crate::Ip::input), in the lane that their addresses and ports steer to.
pub const LOOPBACK: LinkId = LinkId::LOOPBACK;

/// The address of both ends of [`LOOPBACK`].
pub const LOOPBACK_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x01]);

/// What a netstack's IP side is told at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpConfig {
    /// Random bytes, unknown outside: keys of tables, identifications, spread of timers.
    pub secret: [u8; 16],
    /// Which lane's replica this is: they share their keys, and draw different numbers.
    pub replica: u16,
    /// Whether packets for others are forwarded.
    pub forwarding: Forwarding,
    /// The hops that packets made here may take.
    pub hops: HopLimits,
    /// How an address is tested before it is used.
    pub dad: DadConfig,
    /// How the link-local address of an interface is made (RFC 4862 §5.3); `None` makes none.
    pub link_local: Option<IidKind>,
    /// Whether the groups that are listened to are reported (IGMP, MLD).
    pub group_reports: bool,
    /// Random bytes, unknown outside, that stay the same when the netstack comes back: its identifiers do so
    /// too (RFC 7217 §5).
    pub stable_secret: [u8; 16],
}

impl IpConfig {
    /// A host with the usual test for duplicate addresses, without addresses of its own making.
    pub const fn new(secret: [u8; 16]) -> Self {
        let dad = DadConfig::FAST;
        let (forwarding, hops) = (Forwarding::OFF, HopLimits::DEFAULT);
        let (link_local, group_reports) = (None, false);
        Self { secret, replica: 0, forwarding, hops, dad, link_local, group_reports, stable_secret: secret }
    }
}

/// Which family's packets for others are forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarding {
    /// IPv4's.
    pub v4: bool,
    /// IPv6's.
    pub v6: bool,
    /// Whether who sends what goes back to his own link is told of the shorter way, in IPv4.
    pub redirects_v4: bool,
    /// The same in IPv6.
    pub redirects_v6: bool,
}

impl Forwarding {
    /// A host's.
    pub const OFF: Self = Self { v4: false, v6: false, redirects_v4: false, redirects_v6: false };
    /// A router's.
    pub const ON: Self = Self { v4: true, v6: true, ..Self::OFF };
}

impl From<bool> for Forwarding {
    fn from(on: bool) -> Self {
        if on { Self::ON } else { Self::OFF }
    }
}

/// What the operator says of an interface: about packets for others, about who may send by it, about the packets that
/// leave by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IfRouting {
    /// Whether IPv4's packets are forwarded that come by it or would leave by it; `None` is as the netstack has it.
    pub forwards_v4: Option<bool>,
    /// The same for IPv6's.
    pub forwards_v6: Option<bool>,
    /// Whether IPv4's packets are taken only if their source is where they come from.
    pub reverse_path_v4: ReversePath,
    /// The same for IPv6's.
    pub reverse_path_v6: ReversePath,
    /// The largest IPv4 packet that leaves by it, if that is smaller than its link's.
    pub mtu_v4: Option<Mtu>,
    /// The same for IPv6.
    pub mtu_v6: Option<Mtu>,
    /// Packets that leave by it and name no source get an IPv4 address of this interface.
    pub sources_v4: Option<LinkId>,
    /// The same for IPv6.
    pub sources_v6: Option<LinkId>,
}

impl IfRouting {
    /// Whether the source `src` of a packet must be where it comes from.
    pub(crate) const fn reverse_path(&self, src: IpAddr) -> ReversePath {
        if src.is_ipv4() { self.reverse_path_v4 } else { self.reverse_path_v6 }
    }

    /// Whose addresses packets to `dst` get that name no source.
    pub(crate) const fn sources(&self, dst: IpAddr) -> Option<LinkId> {
        if dst.is_ipv4() { self.sources_v4 } else { self.sources_v6 }
    }
}

/// Whether the source of a packet must be where it comes from (RFC 3704 §2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReversePath {
    /// Nobody asks.
    #[default]
    Off,
    /// There must be a route to it that goes on (§2.4).
    Loose,
    /// One of the best routes to it must lead to the link by which it came (§2.3).
    Strict,
}

impl ReversePath {
    /// The word that is shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Loose => "loose",
            Self::Strict => "strict",
        }
    }
}

/// How many hops a packet of a transport may take (`ttl` of RFC 791, hop limit of RFC 8200). Neighbour discovery
/// has a number of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopLimits {
    /// IPv4's.
    pub v4: u8,
    /// IPv6's.
    pub v6: u8,
}

impl HopLimits {
    /// What IANA recommends.
    pub const DEFAULT: Self = Self { v4: 64, v6: 64 };
}

/// How an address is tested before it is used (RFC 5227 §2.1, RFC 4862 §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DadConfig {
    /// Questions before the address is used; with zero it is used at once.
    pub probes: u8,
    /// The longest wait before the first question; the wait is chosen at random.
    pub delay: Duration,
    /// Time between questions, and after the last.
    pub interval: Duration,
}

impl DadConfig {
    /// No test: addresses are used, and announced, at once.
    pub const OFF: Self = Self { probes: 0, delay: Duration::ZERO, interval: Duration::ZERO };
    /// Solaris' fast test, for links whose other stations answer at once: three questions in half a second.
    pub const FAST: Self =
        Self { probes: 3, delay: Duration::from_millis(100), interval: Duration::from_millis(150) };
    /// RFC 5227's, for links with slow stations: about five seconds.
    pub const SLOW: Self =
        Self { probes: 3, delay: Duration::from_secs(1), interval: Duration::from_millis(1500) };
}

/// What one lane's shard is told of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IfConfig {
    /// The VNIC.
    pub link: LinkId,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its largest packet.
    pub mtu: Mtu,
    /// Whether this lane answers for the interface (ARP, neighbour solicitations, echoes) and tests its
    /// addresses. One lane of the netstack does.
    pub is_home: bool,
}
