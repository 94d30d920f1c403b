//! A packet on its way into a tunnel: which headers stand before it, and whether it fits.

use core::net::{IpAddr, Ipv4Addr};

use firelane_units::{DropReason, LinkId, Mtu};
use firelane_wire::{Ecn, IpProtocol, Ipv4View, Ipv6View};

use crate::gre::HEADER_MAX;
use crate::nest::{LIMIT_HEADER, Nested, limit_header, next_limit};
use crate::{Config, Kind, Tunnels};

/// The outer packet, but for its addresses' way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// What stands directly behind the outer IP header.
    pub protocol: IpProtocol,
    /// Who it is for.
    pub remote: IpAddr,
    /// The differentiated services code point, which is the inner one (RFC 2003 §3.1, RFC 2983's uniform model).
    pub dscp: u8,
    /// The congestion field, which is the inner one (RFC 6040 §4.1).
    pub ecn: Ecn,
    /// TTL or hop limit.
    pub hops: u8,
    /// Whether it may not be cut outside.
    pub dont_fragment: bool,
    /// The bytes of the inner packet.
    pub len: usize,
    head: [u8; LIMIT_HEADER + HEADER_MAX],
    head_len: u8,
}

impl Outer {
    /// What stands between the outer IP header and the inner packet.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len)]
    }
}

/// Why a packet does not enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It ends here.
    Drop(DropReason),
    /// The same, and its sender is told how large it may be (RFC 2003 §5.1, RFC 4213 §3.2, RFC 2473 §7).
    TooBig(Mtu),
    /// It may enter no more tunnels, and its sender is told (RFC 2473 §4.1.1): the byte that says so.
    LimitReached(u16),
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// What a tunnel needs to know of a packet.
struct Seen {
    is_v4: bool,
    dscp: u8,
    ecn: Ecn,
    len: usize,
    /// Whether it may be cut where it is too large.
    may_cut: bool,
    dont_fragment: bool,
}

impl Seen {
    fn read(packet: &[u8]) -> Result<Self, DropReason> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => {
                let view = Ipv4View::parse(packet).map_err(|_| DropReason::TunnelBadPacket)?;
                let (dscp, ecn, dont_fragment) = (view.dscp(), view.ecn(), view.dont_fragment());
                let len = usize::from(view.total_len());
                Ok(Self { is_v4: true, dscp, ecn, len, may_cut: !dont_fragment, dont_fragment })
            }
            Some(6) => {
                let view = Ipv6View::parse(packet).map_err(|_| DropReason::TunnelBadPacket)?;
                let len = Ipv6View::HEADER_LEN + usize::from(view.payload_len());
                let (dscp, ecn) = (view.dscp(), view.ecn());
                Ok(Self { is_v4: false, dscp, ecn, len, may_cut: false, dont_fragment: true })
            }
            _ => Err(DropReason::TunnelBadPacket),
        }
    }

    /// The largest packet that every link carries (RFC 791, RFC 8200 §5): one that is no larger enters in any case, and is cut
    /// outside if it must be, because its sender could not make it smaller.
    const fn floor(&self) -> usize {
        if self.is_v4 { Mtu::MIN as usize } else { 1280 }
    }
}

impl Tunnels {
    /// To whom a packet goes that leaves by `link`.
    pub fn remote_of(&self, link: LinkId, packet: &[u8]) -> Result<IpAddr, DropReason> {
        end_of(self.get(link).ok_or(DropReason::TunnelDown)?, packet)
    }

    /// What stands before a packet that leaves by `link`, if a packet outside may have `path` bytes. Bytes behind the packet's own
    /// length are padding and stay behind.
    pub fn encapsulate(&mut self, link: LinkId, packet: &[u8], path: Mtu) -> Result<Outer, Refusal> {
        let tunnel = self.by_link.get_mut(&link).ok_or(DropReason::TunnelDown)?;
        let config = tunnel.config;
        let seen = Seen::read(packet)?;
        let packet = &packet[..seen.len];
        let remote = end_of(&config, packet)?;
        let limit = next_limit(packet, config.limit).map_err(|nested| match nested {
            Nested::LimitReached(pointer) => Refusal::LimitReached(pointer),
            Nested::TooDeep => Refusal::Drop(DropReason::TunnelNested),
        })?;
        // Who carries a limit hands it on, whatever this tunnel says itself.
        let limit = limit.filter(|_| config.local.is_ipv6());
        let overhead = Config { limit, ..config }.overhead();
        let room = usize::from(path.bytes()).saturating_sub(overhead);
        let dont_fragment = fits(&seen, room)?;
        let mut outer = Outer {
            protocol: if seen.is_v4 { IpProtocol::IPV4 } else { IpProtocol::IPV6 },
            remote,
            dscp: seen.dscp,
            ecn: seen.ecn,
            hops: config.hops,
            dont_fragment,
            len: seen.len,
            head: [0; LIMIT_HEADER + HEADER_MAX],
            head_len: 0,
        };
        if let Kind::Gre(gre) = config.kind {
            let mut header = [0; HEADER_MAX];
            let len = gre.emit(packet, seen.is_v4, tunnel.next_out, &mut header);
            tunnel.next_out = tunnel.next_out.wrapping_add(1);
            outer.put(IpProtocol::GRE, &header[..len]);
        }
        if let Some(limit) = limit {
            outer.put(IpProtocol::DESTINATION_OPTIONS, &limit_header(outer.protocol, limit));
        }
        Ok(outer)
    }
}

impl Outer {
    /// Puts a header in front of those that there are.
    fn put(&mut self, protocol: IpProtocol, header: &[u8]) {
        let before = usize::from(self.head_len);
        self.head.copy_within(..before, header.len());
        self.head[..header.len()].copy_from_slice(header);
        self.head_len += header.len() as u8;
        self.protocol = protocol;
    }
}

/// Whether the packet outside may not be cut, if the one inside may enter (RFC 2003 §5.1, RFC 4213 §3.2.2, RFC 2473 §7).
fn fits(seen: &Seen, room: usize) -> Result<bool, Refusal> {
    let (fits, floor) = (seen.len <= room, seen.floor());
    if fits {
        // RFC 2003 §3.1: what may not be cut inside may not be cut outside. RFC 4213 §3.2.2: but what every link must carry is
        // not lost to a link outside that carries less.
        return Ok(seen.dont_fragment && (seen.len > floor || seen.is_v4 && room >= floor));
    }
    if seen.may_cut || seen.len <= floor {
        return Ok(false);
    }
    let most = u16::try_from(room.max(floor)).ok().and_then(Mtu::new);
    Err(most.map_or(Refusal::Drop(DropReason::TooBig), Refusal::TooBig))
}

/// The other end of a tunnel, for this packet.
fn end_of(config: &Config, packet: &[u8]) -> Result<IpAddr, DropReason> {
    match config.kind {
        Kind::SixToFour => other_end(packet).map(IpAddr::V4).ok_or(DropReason::TunnelAddress),
        Kind::Ip | Kind::Gre(_) => Ok(config.remote),
    }
}

/// 6to4's other end: the IPv4 address in the destination (RFC 3056 §2, §5.3), if it is one that a station outside can have.
fn other_end(packet: &[u8]) -> Option<Ipv4Addr> {
    let view = Ipv6View::parse(packet).ok()?;
    embedded(view.dst())
}

/// The IPv4 address in a 6to4 address, if one station can have it (RFC 3964 §5).
pub(crate) fn embedded(address: core::net::Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x20, 0x02, a, b, c, d, ..] = address.octets() else { return None };
    let v4 = Ipv4Addr::new(a, b, c, d);
    let is_station = a != 0 && a < 224 && !v4.is_loopback() && !v4.is_link_local();
    is_station.then_some(v4)
}
