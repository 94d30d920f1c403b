//! An IPv4 packet whose addresses may change, and the change: in place, with its checksums brought up to date and not computed
//! anew (RFC 1624).
//!
//! Reads the header once (RFC 791). A packet that cannot be read is left alone: IP says what is wrong with it.

use core::net::Ipv4Addr;

use firelane_wire::checksum::Sum;
use firelane_wire::{IpProtocol, Ipv4View, TcpFlags};

use crate::tuple::Tuple;

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// All of it, or the piece with its ports.
    Head,
    /// A piece without.
    Body,
}

/// What is known of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub(crate) tuple: Tuple,
    pub(crate) part: Part,
    /// It is a piece of a datagram with this number.
    pub(crate) datagram: Option<u16>,
    /// TCP's flags; none of others.
    pub(crate) flags: TcpFlags,
    /// Where the transport begins.
    pub(crate) header: usize,
    /// Where the packet ends.
    pub(crate) end: usize,
    /// What it is about, if it is an ICMP error.
    pub(crate) is_error: bool,
}

const SRC: usize = 12;
const DST: usize = 16;
const IP_SUM: usize = 10;

/// Their checksums are over the addresses, too (RFC 3828 §3.1, RFC 4340 §9.1). Their ports are nobody's to change here.
const UDP_LITE: IpProtocol = IpProtocol(136);
const DCCP: IpProtocol = IpProtocol(33);

/// Where the transport's checksum is, behind the transport's begin.
const fn sum_at(protocol: IpProtocol) -> Option<usize> {
    match protocol {
        IpProtocol::TCP => Some(16),
        IpProtocol::UDP | UDP_LITE | DCCP => Some(6),
        _ => None,
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

/// The ports of what begins there, and the flags of TCP.
fn names(protocol: IpProtocol, transport: &[u8]) -> Option<([u16; 2], TcpFlags)> {
    match protocol {
        IpProtocol::TCP | IpProtocol::UDP => {
            let flags = if protocol == IpProtocol::TCP { transport.get(13).copied().unwrap_or(0) } else { 0 };
            let ports = [word(transport, 0)?, word(transport, 2)?];
            Some((ports, TcpFlags::from_bits(flags.into())))
        }
        IpProtocol::ICMPV4 => {
            let id = word(transport, 4)?;
            match transport.first()? {
                8 | 13 | 15 | 17 => Some(([id, 0], TcpFlags::default())),
                0 | 14 | 16 | 18 => Some(([0, id], TcpFlags::default())),
                _ => None,
            }
        }
        _ => Some(([0; 2], TcpFlags::default())),
    }
}

/// Whether an ICMP message is an error about a packet (RFC 792; quench is none any more).
const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 11 | 12)
}

impl Packet {
    /// Reads a packet that begins with its IP header; nothing of what has no addresses that may change.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        Self::of(&Ipv4View::parse(bytes).ok()?)
    }

    /// The same of one that an ICMP error quotes, cut off behind its first bytes.
    pub(crate) fn read_quoted(bytes: &[u8]) -> Option<Self> {
        Self::of(&Ipv4View::parse_quoted(bytes).ok()?).filter(|packet| packet.part == Part::Head)
    }

    fn of(view: &Ipv4View<'_>) -> Option<Self> {
        let (protocol, transport, header) = (view.protocol(), view.payload(), view.header_len());
        let part = if view.fragment_offset() == 0 { Part::Head } else { Part::Body };
        let is_error = part == Part::Head
            && protocol == IpProtocol::ICMPV4
            && transport.first().is_some_and(|&kind| is_error(kind));
        let (ports, flags) = match part {
            Part::Head if !is_error => names(protocol, transport)?,
            _ => ([0; 2], TcpFlags::default()),
        };
        let tuple = Tuple { src: view.src(), dst: view.dst(), ports, protocol };
        let datagram = view.is_fragment().then(|| view.identification());
        Some(Self { tuple, part, datagram, flags, header, end: usize::from(view.total_len()), is_error })
    }

    /// Gives a packet other ends. `is_open`: the transport's checksum is that of its pseudo-header as yet.
    #[inline]
    pub(crate) fn rewrite(&self, bytes: &mut [u8], to: &Tuple, is_open: bool) {
        let ports = if self.part == Part::Head { self.tuple.ports } else { to.ports };
        change(bytes, self.header, &Tuple { ports, ..self.tuple }, to, is_open, self.part == Part::Head);
    }

    /// What an ICMP error quotes, if what it quotes and the error itself are whole (RFC 5508 REQ-3); an error otherwise.
    pub(crate) fn quoted(&self, bytes: &[u8]) -> Result<Self, Damaged> {
        let message = bytes.get(self.header..self.end).ok_or(Damaged)?;
        let inner = message.get(ICMP_HEADER..).ok_or(Damaged)?;
        let is_whole = Sum::of(message).is_valid() || self.datagram.is_some();
        let header = usize::from(inner.first().ok_or(Damaged)? & 0x0f) * 4;
        let is_quote_whole = inner.get(..header).is_some_and(|header| Sum::of(header).is_valid());
        if !is_whole || !is_quote_whole {
            return Err(Damaged);
        }
        Self::read_quoted(inner).ok_or(Damaged)
    }

    /// What an ICMP redirect is about (RFC 792), if these bytes are one.
    pub(crate) fn redirected(bytes: &[u8]) -> Option<Self> {
        let view = Ipv4View::parse(bytes).ok()?;
        let is_redirect = view.protocol() == IpProtocol::ICMPV4 && view.payload().first() == Some(&REDIRECT);
        Self::read_quoted(view.payload().get(ICMP_HEADER..).filter(|_| is_redirect)?)
    }

    /// Gives what an error quotes other ends, and the error other addresses.
    pub(crate) fn rewrite_error(
        &self,
        bytes: &mut [u8],
        quoted: &Self,
        inner: &Tuple,
        [src, dst]: [Ipv4Addr; 2],
    ) {
        let message = self.header;
        let before = Sum::of(bytes.get(message + ICMP_HEADER..self.end).unwrap_or_default());
        if let Some(inside) = bytes.get_mut(message + ICMP_HEADER..self.end) {
            change(inside, quoted.header, &quoted.tuple, inner, false, true);
        }
        // The quote is a hundred bytes or so, and its fields overlap what may be cut off: its sum is taken as a whole.
        let after = Sum::of(bytes.get(message + ICMP_HEADER..self.end).unwrap_or_default());
        if let Some(sum) = word(bytes, message + 2) {
            let sum = Sum::ZERO.add_u16(!sum).add_u16(!before.folded()).combine(after).checksum();
            put(bytes, message + 2, sum);
        }
        let to = Tuple { src, dst, ..self.tuple };
        change(bytes, self.header, &self.tuple, &to, false, true);
    }

    /// Makes a SYN offer no larger segments than `most` (as RFC 6691 counts them).
    pub(crate) fn clamp_mss(&self, bytes: &mut [u8], most: u16, is_open: bool) {
        let Some(segment) = bytes.get_mut(self.header..self.end) else { return };
        let Some(options) = segment.get(12).map(|&at| usize::from(at >> 4) * 4) else { return };
        let mut at = 20;
        while at + 1 < options.min(segment.len()) {
            match (segment[at], segment[at + 1]) {
                (0, _) => return,
                (1, _) => at += 1,
                (2, 4) => {
                    let Some(offered) = word(segment, at + 2).filter(|&offered| offered > most) else {
                        return;
                    };
                    put(segment, at + 2, most);
                    if let Some(sum) = word(segment, 16).filter(|_| !is_open) {
                        // An option may begin at an odd place, where its bytes count the other way round.
                        let swap = |value: u16| if at % 2 == 0 { value } else { value.swap_bytes() };
                        let sum = Sum::ZERO.add_u16(!sum).add_u16(!swap(offered)).add_u16(swap(most));
                        put(segment, 16, sum.checksum());
                    }
                    return;
                }
                (_, length) => at += usize::from(length).max(2),
            }
        }
    }
}

/// An ICMP error that is not whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Damaged;

/// The kind of an ICMP redirect.
const REDIRECT: u8 = 5;

/// Bytes of an ICMP error before what it quotes.
const ICMP_HEADER: usize = 8;

/// Changes the ends of the packet in `bytes`, whose transport begins at `header`, from `from` to `to`.
#[inline]
fn change(bytes: &mut [u8], header: usize, from: &Tuple, to: &Tuple, is_open: bool, has_transport: bool) {
    let Some(ip) = bytes.get_mut(..20) else { return };
    let mut moved = Sum::ZERO;
    for (at, old, new) in [(SRC, from.src, to.src), (DST, from.dst, to.dst)] {
        if old != new {
            ip[at..at + 4].copy_from_slice(&new.octets());
            moved = moved.add_u32(!old.to_bits()).add_u32(new.to_bits());
        }
    }
    if let Some(sum) = word(ip, IP_SUM) {
        put(ip, IP_SUM, Sum::ZERO.add_u16(!sum).combine(moved).checksum());
    }
    if !has_transport {
        return;
    }
    let mut of_ports = Sum::ZERO;
    let places: &[usize] = match (from.protocol, bytes.get(header)) {
        (IpProtocol::TCP | IpProtocol::UDP, _) => &[0, 2],
        // The identifier is the port of whoever asks.
        (IpProtocol::ICMPV4, Some(_)) => &[4, 4],
        (UDP_LITE | DCCP, _) => &[],
        _ => return,
    };
    for (nth, &at) in places.iter().enumerate() {
        let (old, new) = (from.ports[nth], to.ports[nth]);
        if old != new {
            put(bytes, header + at, new);
            of_ports = of_ports.add_u16(!old).add_u16(new);
        }
    }
    let Some(at) = sum_at(from.protocol) else {
        // ICMP's checksum knows no addresses.
        if let Some(sum) = word(bytes, header + 2) {
            put(bytes, header + 2, Sum::ZERO.add_u16(!sum).combine(of_ports).checksum());
        }
        return;
    };
    let Some(sum) = word(bytes, header + at) else { return };
    let sum = match (is_open, from.protocol) {
        (true, _) => Sum::ZERO.add_u16(sum).combine(moved).folded(),
        // RFC 768: there is none. UDP-Lite's may not be missing, and whoever gets it says so.
        (false, IpProtocol::UDP | UDP_LITE) if sum == 0 => return,
        (false, IpProtocol::UDP | UDP_LITE) => {
            Sum::ZERO.add_u16(!sum).combine(moved).combine(of_ports).checksum_nonzero()
        }
        (false, _) => Sum::ZERO.add_u16(!sum).combine(moved).combine(of_ports).checksum(),
    };
    put(bytes, header + at, sum);
}
