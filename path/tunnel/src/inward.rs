//! A packet that has come through a tunnel: which one, and what is inside.
//!
//! The outer source must be the tunnel's other end (RFC 4213 §3.6, §4): everybody else ends silently. What is inside is checked to be
//! a whole packet; whether its addresses may come by that interface is IP's to say, as of any other link.

use core::net::IpAddr;
use core::ops::Bound;

use firelane_units::{DropReason, LinkId};
use firelane_wire::{Ecn, IpProtocol, Ipv4View, Ipv6View};

use crate::ecn::behind;
use crate::gre::Header;
use crate::outward::embedded;
use crate::{Family, Kind, Name, Tunnels, nobody};

/// A packet for this netstack that is of a tunnel's protocol.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// IPv4, IPv6 or GRE.
    pub protocol: IpProtocol,
    /// Who sent it.
    pub src: IpAddr,
    /// Which of our addresses it is for.
    pub dst: IpAddr,
    /// The outer congestion field.
    pub ecn: Ecn,
    /// What is behind the outer IP header and its extensions.
    pub payload: &'a [u8],
}

/// The packet inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inner {
    /// By which link it comes.
    pub link: LinkId,
    /// Where in the payload it begins.
    pub at: usize,
    /// How many bytes it has.
    pub len: usize,
    /// Whether it is IPv4.
    pub is_v4: bool,
    /// What its congestion field becomes, if that is not what it is.
    pub ecn: Option<Ecn>,
}

/// Why nothing comes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no tunnel of that protocol at this address: the sender is told that the protocol is unknown here.
    NoTunnel,
    /// It ends here, silently.
    Drop(DropReason),
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

impl Tunnels {
    /// What is in a packet that has arrived.
    pub fn decapsulate(&mut self, arrived: &Arrived<'_>) -> Result<Inner, Refused> {
        let families: &[Family] = match arrived.protocol {
            IpProtocol::GRE => &[Family::Gre],
            IpProtocol::IPV6 => &[Family::Ip, Family::SixToFour],
            _ => &[Family::Ip],
        };
        if !families.iter().any(|&family| self.is_end(family, arrived.dst)) {
            return Err(Refused::NoTunnel);
        }
        let (protocol, skip, header) = match arrived.protocol {
            IpProtocol::GRE => {
                let header = Header::read(arrived.payload)?;
                (header.protocol, header.len, Some(header))
            }
            protocol => (protocol, 0, None),
        };
        let inside = arrived.payload.get(skip..).ok_or(DropReason::TunnelBadPacket)?;
        let key = header.and_then(|header| header.key);
        let link = families.iter().find_map(|&family| self.found(family, arrived, key));
        let tunnel = link.and_then(|link| self.by_link.get_mut(&link)).ok_or(DropReason::TunnelStranger)?;
        let (is_v4, len, ecn) = read(protocol, inside)?;
        match (tunnel.config.kind, header) {
            (Kind::SixToFour, _) => check_addresses(arrived, inside)?,
            (Kind::Gre(gre), Some(header)) => {
                if gre.checksum && !header.has_checksum {
                    return Err(DropReason::GreChecksum.into());
                }
                if gre.sequence {
                    let number = header.sequence.ok_or(DropReason::GreOrder)?;
                    // RFC 2890 §2.2: what is not newer than the last one is late.
                    if tunnel.next_in.is_some_and(|next| number.wrapping_sub(next) > u32::MAX / 2) {
                        return Err(DropReason::GreOrder.into());
                    }
                    tunnel.next_in = Some(number.wrapping_add(1));
                }
            }
            _ => {}
        }
        let marked = behind(ecn, arrived.ecn).ok_or(DropReason::TunnelCongested)?;
        let ecn = (marked != ecn).then_some(marked);
        Ok(Inner { link: tunnel.config.link, at: skip, len, is_v4, ecn })
    }

    /// Whether a tunnel of the family ends at `local`.
    fn is_end(&self, family: Family, local: IpAddr) -> bool {
        let first = Name { family, local, remote: nobody(local), key: None };
        let mut from = self.by_name.range((Bound::Included(first), Bound::Unbounded));
        from.next().is_some_and(|(name, _)| name.family == family && name.local == local)
    }

    fn found(&self, family: Family, arrived: &Arrived<'_>, key: Option<u32>) -> Option<LinkId> {
        let remote = if family == Family::SixToFour { nobody(arrived.dst) } else { arrived.src };
        self.by_name.get(&Name { family, local: arrived.dst, remote, key }).copied()
    }
}

/// The version, length and congestion field of what is inside, which is what the header before it says, and whole.
fn read(protocol: IpProtocol, inside: &[u8]) -> Result<(bool, usize, Ecn), DropReason> {
    match protocol {
        IpProtocol::IPV4 => {
            let view = Ipv4View::parse(inside).map_err(|_| DropReason::TunnelBadPacket)?;
            Ok((true, usize::from(view.total_len()), view.ecn()))
        }
        _ => {
            let view = Ipv6View::parse(inside).map_err(|_| DropReason::TunnelBadPacket)?;
            let len = Ipv6View::HEADER_LEN + usize::from(view.payload_len());
            Ok((false, len, view.ecn()))
        }
    }
}

/// RFC 3964 §4.1.1, §5.2: whoever sends by 6to4 does so from the IPv4 address that is in his own, to the one that is in ours.
/// Relays are nobody's here.
fn check_addresses(arrived: &Arrived<'_>, inside: &[u8]) -> Result<(), DropReason> {
    let view = Ipv6View::parse(inside).map_err(|_| DropReason::TunnelBadPacket)?;
    let is = |address, end: IpAddr| embedded(address).is_some_and(|it| IpAddr::V4(it) == end);
    let fits = is(view.src(), arrived.src) && is(view.dst(), arrived.dst);
    if fits { Ok(()) } else { Err(DropReason::TunnelStranger) }
}
