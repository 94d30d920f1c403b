//! Tunnels in one another: how many headers of tunnels a packet begins with, and what RFC 2473 lets a packet say about that.
//!
//! A packet whose way leads round in a circle of tunnels grows by a header each time; without a limit it would grow to 64 KiB and
//! then in number (RFC 2473 §4.1). Where the outer packet is IPv6 the limit stands in it; where it is IPv4 the headers are counted.
//! A packet that was cut outside goes round as a piece, so headers are read in the first piece, too, and in what is cut short there.

use firelane_units::DropReason;
use firelane_wire::{IpProtocol, Ipv4View, Ipv6View};

use crate::gre::Header;

/// So many tunnels a packet may be in already when it enters another one, whatever its headers say.
pub const NESTED_MAX: usize = 4;

/// Bytes of an IPv6 fragment header.
const FRAGMENT_HEADER: usize = 8;

/// Bytes of the destination options header with the limit.
pub(crate) const LIMIT_HEADER: usize = 8;

/// The tunnel encapsulation limit option (RFC 2473 §4.1.1).
const LIMIT_OPTION: u8 = 4;

/// The header with the limit, before what `next` names.
pub(crate) const fn limit_header(next: IpProtocol, limit: u8) -> [u8; LIMIT_HEADER] {
    [next.0, 0, LIMIT_OPTION, 1, limit, 1, 1, 0]
}

/// What is inside a tunnel's packet: of `protocol` with this payload, as far as it is there.
pub fn inside_of(protocol: IpProtocol, payload: &[u8]) -> Option<&[u8]> {
    match protocol {
        IpProtocol::IPV4 | IpProtocol::IPV6 => Some(payload),
        IpProtocol::GRE => payload.get(Header::parse(payload).ok()?.len..),
        _ => None,
    }
}

/// What an IPv6 packet begins with, and where that is behind its header; if it is a piece, the first of them.
fn beginning<'a>(packet: &Ipv6View<'a>) -> Option<(IpProtocol, &'a [u8], usize)> {
    let (next, payload) = (packet.next_header(), packet.payload());
    if next != IpProtocol::FRAGMENT {
        return Some((next, payload, 0));
    }
    let (&[next, _, high, low, ..], rest) = payload.split_first_chunk::<FRAGMENT_HEADER>()?;
    let is_first = u16::from_be_bytes([high, low]) >> 3 == 0;
    is_first.then_some((IpProtocol(next), rest, FRAGMENT_HEADER))
}

/// What is said in an IPv6 packet of the tunnels that it may still enter, and where: directly behind its header.
fn limit_of(packet: &Ipv6View<'_>) -> Option<(u8, u16)> {
    let (next, options, begin) = beginning(packet)?;
    if next != IpProtocol::DESTINATION_OPTIONS {
        return None;
    }
    let len = 8 * (usize::from(*options.get(1)?) + 1);
    let options = options.get(..len)?;
    let mut at = 2;
    while let Some(&kind) = options.get(at) {
        if kind == LIMIT_OPTION && options.get(at + 1) == Some(&1) {
            let pointer = Ipv6View::HEADER_LEN + begin + at + 2;
            return options.get(at + 2).map(|&limit| (limit, pointer as u16));
        }
        at += if kind == 0 { 1 } else { 2 + usize::from(*options.get(at + 1)?) };
    }
    None
}

/// Where a packet with a limit of zero says so, for the error about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nested {
    /// RFC 2473 §4.1.1 (c): at this byte of the packet.
    LimitReached(u16),
    TooDeep,
}

/// What the limit of an outer packet is, if the tunnel gives `own` to packets that have none.
pub(crate) fn next_limit(packet: &[u8], own: Option<u8>) -> Result<Option<u8>, Nested> {
    if depth(packet) >= NESTED_MAX {
        return Err(Nested::TooDeep);
    }
    match Ipv6View::parse(packet).ok().and_then(|view| limit_of(&view)) {
        Some((0, pointer)) => Err(Nested::LimitReached(pointer)),
        Some((limit, _)) => Ok(Some(own.map_or(limit - 1, |own| own.min(limit - 1)))),
        None => Ok(own),
    }
}

/// How many headers of tunnels a packet begins with; beyond [`NESTED_MAX`] it does not matter.
fn depth(packet: &[u8]) -> usize {
    let mut packet = packet;
    for depth in 0..NESTED_MAX {
        match enter(packet) {
            Some(inside) => packet = inside,
            None => return depth,
        }
    }
    NESTED_MAX
}

/// What is in a packet, if it is a tunnel's, as far as it is there.
fn enter(packet: &[u8]) -> Option<&[u8]> {
    match packet.first()? >> 4 {
        4 => {
            let view = Ipv4View::parse_quoted(packet).ok().filter(|view| view.fragment_offset() == 0)?;
            inside_of(view.protocol(), view.payload())
        }
        6 => {
            let view = Ipv6View::parse_quoted(packet).ok()?;
            let (mut next, mut rest, _) = beginning(&view)?;
            if next == IpProtocol::DESTINATION_OPTIONS {
                let len = 8 * (usize::from(*rest.get(1)?) + 1);
                (next, rest) = (IpProtocol(rest[0]), rest.get(len..)?);
            }
            inside_of(next, rest)
        }
        _ => None,
    }
}

impl From<Nested> for DropReason {
    fn from(_: Nested) -> Self {
        Self::TunnelNested
    }
}
