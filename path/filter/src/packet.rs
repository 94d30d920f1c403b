//! A packet as rules look at it.
//!
//! Reads IPv4 (RFC 791) and IPv6 with its extension headers (RFC 8200 §4) once. Nothing is judged here: what cannot be
//! read is `short`, as ipf(5) calls it, and a rule may ask for that.

use core::net::IpAddr;

use firelane_units::{Direction, LinkId, Port};
use firelane_wire::ext;
use firelane_wire::{Icmpv4View, Icmpv6View, IpProtocol, Ipv4View, Ipv6View, Quoted, TcpView};

/// Whether a packet is a whole datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// It is.
    Whole,
    /// The piece with the transport header.
    First,
    /// Another.
    Later,
}

/// A packet that goes in or out.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// In to the netstack, or out of it.
    pub direction: Direction,
    /// By which link.
    pub link: LinkId,
    /// Where it says it comes from.
    pub src: IpAddr,
    /// Where it goes.
    pub dst: IpAddr,
    /// What it carries.
    pub protocol: IpProtocol,
    /// The DS field with its two ECN bits.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Whether it is a piece.
    pub piece: Piece,
    /// The number of its datagram, if it is a piece.
    pub datagram: u32,
    /// It has IP options, or extension headers beside a fragment's.
    pub has_options: bool,
    /// It ends before its transport header does.
    pub is_short: bool,
    /// Behind the IP header.
    transport: &'a [u8],
    /// All of its bytes.
    pub bytes: u32,
}

/// Bytes of the least transport header.
const fn least(protocol: IpProtocol) -> usize {
    match protocol {
        IpProtocol::TCP => 20,
        IpProtocol::UDP | IpProtocol::ICMPV4 => 8,
        IpProtocol::ICMPV6 => 4,
        _ => 0,
    }
}

impl<'a> Packet<'a> {
    /// Reads a packet that begins with its IP header; `None` if it is none, which IP counts.
    pub fn read(direction: Direction, link: LinkId, bytes: &'a [u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Some(Self::read_v4(direction, link, &Ipv4View::parse(bytes).ok()?)),
            6 => Some(Self::read_v6(direction, link, &Ipv6View::parse(bytes).ok()?)),
            _ => None,
        }
    }

    /// The same of a packet that may be cut off behind its headers.
    pub fn read_cut(direction: Direction, link: LinkId, bytes: &'a [u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Some(Self::read_v4(direction, link, &Ipv4View::parse_quoted(bytes).ok()?)),
            6 => Some(Self::read_v6(direction, link, &Ipv6View::parse_quoted(bytes).ok()?)),
            _ => None,
        }
    }

    fn read_v4(direction: Direction, link: LinkId, view: &Ipv4View<'a>) -> Self {
        let piece = match (view.is_fragment(), view.fragment_offset()) {
            (false, _) => Piece::Whole,
            (true, 0) => Piece::First,
            (true, _) => Piece::Later,
        };
        let transport = view.payload();
        Self {
            direction,
            link,
            src: view.src().into(),
            dst: view.dst().into(),
            protocol: view.protocol(),
            tos: view.dscp() << 2 | view.ecn().bits(),
            ttl: view.ttl(),
            piece,
            datagram: view.identification().into(),
            has_options: view.has_options(),
            is_short: piece != Piece::Later && transport.len() < least(view.protocol()),
            transport,
            bytes: u32::from(view.total_len()),
        }
    }

    fn read_v6(direction: Direction, link: LinkId, view: &Ipv6View<'a>) -> Self {
        let mut packet = Self {
            direction,
            link,
            src: view.src().into(),
            dst: view.dst().into(),
            protocol: view.next_header(),
            tos: view.dscp() << 2 | view.ecn().bits(),
            ttl: view.hop_limit(),
            piece: Piece::Whole,
            datagram: 0,
            has_options: false,
            is_short: false,
            transport: view.payload(),
            bytes: u32::from(view.payload_len()) + Ipv6View::HEADER_LEN as u32,
        };
        let Ok(chain) = ext::walk(view) else {
            // Who it is for may know what is not known here, and must not get what a rule is about by that.
            packet.has_options = true;
            packet.is_short = !packet.reaches(view.next_header(), view.payload());
            return packet;
        };
        let mut headers = usize::from(chain.offset) - Ipv6View::HEADER_LEN;
        if let Some(fragment) = chain.fragment {
            headers = headers.saturating_sub(firelane_wire::FragmentView::HEADER_LEN);
            packet.datagram = fragment.repr.identification;
            packet.piece = match (fragment.repr.is_atomic(), fragment.repr.offset) {
                (true, _) => Piece::Whole,
                (false, 0) => Piece::First,
                (false, _) => Piece::Later,
            };
        }
        packet.protocol = chain.upper;
        packet.has_options = headers > 0;
        packet.transport = chain.payload(view);
        packet.is_short = packet.piece != Piece::Later && !packet.reaches(chain.upper, packet.transport);
        packet.has_options |= packet.protocol != chain.upper;
        packet
    }

    /// Whether `bytes` behind the header that names `first` have a transport header, which is what rules look at then: a piece's
    /// part of its datagram may begin with extension headers, too.
    fn reaches(&mut self, first: IpProtocol, bytes: &'a [u8]) -> bool {
        let Some((upper, transport)) = ext::skip(first, bytes) else { return false };
        (self.protocol, self.transport) = (upper, transport);
        transport.len() >= least(upper)
    }

    /// The transport's header and what follows; nothing of a piece that has none.
    fn header(&self) -> Option<&'a [u8]> {
        (self.piece != Piece::Later && !self.is_short).then_some(self.transport)
    }

    /// Source and destination port, of what has all of its header.
    pub fn ports(&self) -> Option<(Port, Port)> {
        self.header().and_then(|_| self.ports_shown())
    }

    /// The same for rules: a piece too short for TCP's header has them, and whoever puts it together gets what a rule is about.
    pub(crate) fn ports_shown(&self) -> Option<(Port, Port)> {
        let has_ports = self.piece != Piece::Later && self.protocol.has_ports();
        let &[a, b, c, d, ..] = Some(self.transport).filter(|_| has_ports)? else { return None };
        Some((Port(u16::from_be_bytes([a, b])), Port(u16::from_be_bytes([c, d]))))
    }

    /// TCP's header.
    pub fn segment(&self) -> Option<TcpView<'a>> {
        TcpView::parse(self.header().filter(|_| self.protocol == IpProtocol::TCP)?).ok()
    }

    /// ICMP's type and code.
    pub fn icmp(&self) -> Option<(u8, u8)> {
        let &[kind, code, ..] = self.header()? else { return None };
        matches!(self.protocol, IpProtocol::ICMPV4 | IpProtocol::ICMPV6).then_some((kind, code))
    }

    /// What an ICMP message has behind type, code and checksum: its parameter, and the rest.
    pub(crate) fn icmp_rest(&self) -> Option<(u32, &'a [u8])> {
        let header = self.header()?;
        match self.protocol {
            IpProtocol::ICMPV4 => Icmpv4View::parse(header).ok().map(|it| (it.parameter(), it.payload())),
            IpProtocol::ICMPV6 => Icmpv6View::parse(header).ok().map(|it| (it.parameter(), it.payload())),
            _ => None,
        }
    }

    /// What an ICMP error quotes.
    pub fn quoted(&self) -> Option<Quoted<'a>> {
        let ((kind, _), (_, rest)) = (self.icmp()?, self.icmp_rest()?);
        match (self.protocol, kind) {
            (IpProtocol::ICMPV4, 3 | 4 | 11 | 12) => Quoted::parse_v4(rest).ok(),
            (IpProtocol::ICMPV6, 1..=4) => Quoted::parse_v6(rest).ok(),
            _ => None,
        }
    }

    /// Whether it is for many.
    pub fn is_for_many(&self) -> bool {
        self.dst.is_multicast() || self.dst == IpAddr::V4(core::net::Ipv4Addr::BROADCAST)
    }
}
