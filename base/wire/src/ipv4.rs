//! The IPv4 header and its options (RFC 791, RFC 1122 §3.2.1).
//!
//! [`Ipv4View`] believes the total length only as far as bytes are there and cuts padding off. Options are
//! walked, never interpreted here: `path/ip` refuses source routes and ignores the rest. A repr is emitted
//! without options, because this stack originates none.

use core::net::Ipv4Addr;

use crate::bytes::{array, be16, fixed, put};
use crate::{Ecn, IpProtocol, Sum, update16};

parse_error! {
    /// Why bytes are no IPv4 packet.
    Ipv4Error {
        /// Fewer than 20 bytes, or fewer than the header says it has.
        Truncated = "shorter than the IPv4 header" => BadHeader,
        /// The version is not 4.
        Version = "the IP version is not 4" => BadHeader,
        /// The header length is below 5 words.
        HeaderLength = "the IPv4 header length is below 20 bytes" => BadHeader,
        /// The total length is below the header's, or more than there is.
        TotalLength = "the IPv4 total length contradicts the header or the frame" => BadHeader,
    }
}

/// A packet whose lengths are consistent. Its checksum is checked by [`is_checksum_valid`](Self::is_checksum_valid).
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    header: &'a [u8; Ipv4View::HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl Ipv4View<'_> {
    /// Bytes of a header without options.
    pub const HEADER_LEN: usize = 20;
}

impl<'a> Ipv4View<'a> {
    /// Checks version and lengths.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let view = Self::parse_quoted(bytes)?;
        if usize::from(view.total_len()) > bytes.len() {
            return Err(Ipv4Error::TotalLength);
        }
        Ok(view)
    }

    /// Checks a packet that may be cut behind its header, as an ICMP error quotes it.
    #[inline]
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let (header, rest) =
            bytes.split_first_chunk::<{ Ipv4View::HEADER_LEN }>().ok_or(Ipv4Error::Truncated)?;
        if header[0] >> 4 != 4 {
            return Err(Ipv4Error::Version);
        }
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let options_len = header_len.checked_sub(Ipv4View::HEADER_LEN).ok_or(Ipv4Error::HeaderLength)?;
        let (options, rest) = rest.split_at_checked(options_len).ok_or(Ipv4Error::Truncated)?;
        let payload_len =
            usize::from(be16(header, 2)).checked_sub(header_len).ok_or(Ipv4Error::TotalLength)?;
        let payload = rest.get(..payload_len).unwrap_or(rest);
        Ok(Self { header, options, payload })
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        Ipv4View::HEADER_LEN + self.options.len()
    }

    /// Bytes of the packet.
    #[inline]
    pub fn total_len(&self) -> u16 {
        be16(self.header, 2)
    }

    /// The differentiated services code point.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.header[1] >> 2
    }

    /// The congestion field.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.header[1])
    }

    /// Which datagram a fragment belongs to.
    #[inline]
    pub fn identification(&self) -> u16 {
        be16(self.header, 4)
    }

    /// Whether routers must not fragment it.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.header[6] & 0x40 != 0
    }

    /// Whether fragments follow.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.header[6] & 0x20 != 0
    }

    /// Where the payload lies in the datagram, in bytes (a multiple of 8).
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (be16(self.header, 6) & 0x1fff) << 3
    }

    /// Whether it is a part of a datagram.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.header, 6) & 0x3fff != 0
    }

    /// How many more hops it may make.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// What the payload is.
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.header[9])
    }

    /// The header's checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, 10)
    }

    /// Whether the header's checksum is right.
    #[inline]
    pub fn is_checksum_valid(&self) -> bool {
        let fixed = Sum::of_fixed(self.header);
        let sum = if self.options.is_empty() { fixed } else { fixed.combine(Sum::of(self.options)) };
        sum.is_valid()
    }

    /// Who sent it.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4, _>(self.header, 12))
    }

    /// Who it is for.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4, _>(self.header, 16))
    }

    /// Whether there are options.
    #[inline]
    pub fn has_options(&self) -> bool {
        !self.options.is_empty()
    }

    /// The options, in order.
    pub fn options(&self) -> Ipv4Options<'a> {
        Ipv4Options { bytes: self.options, at: 0 }
    }

    /// The packet's payload, without padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The sum of the pseudo-header in front of the payload (not of a fragment's).
    #[inline]
    pub fn pseudo_header(&self) -> Sum {
        Sum::pseudo_v4(self.src(), self.dst(), self.protocol(), self.payload.len() as u16)
    }
}

/// One IPv4 option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ipv4Option<'a> {
    /// Record route: one-based pointer and the addresses' bytes.
    RecordRoute(u8, &'a [u8]),
    /// Loose source route: one-based pointer and the addresses' bytes.
    LooseSourceRoute(u8, &'a [u8]),
    /// Strict source route: one-based pointer and the addresses' bytes.
    StrictSourceRoute(u8, &'a [u8]),
    /// Router alert (RFC 2113): its value.
    RouterAlert(u16),
    /// Any other: type and contents.
    Other(u8, &'a [u8]),
}

/// An option that cannot be read. The walk ends with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4OptionFault {
    /// Where in the packet the wrong byte is: the pointer of an ICMP parameter problem.
    pub pointer: u8,
}

/// The options of a packet, in order, without padding. At most 40 steps, since each takes a byte or more.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Options<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Ipv4Options<'a> {
    fn fault(&mut self, offset: usize) -> Ipv4OptionFault {
        let pointer = Ipv4View::HEADER_LEN + self.at + offset;
        self.at = self.bytes.len();
        Ipv4OptionFault { pointer: pointer as u8 }
    }

    /// Reads the option at the cursor, which is neither padding nor the end.
    fn read(&mut self, kind: u8) -> Result<Ipv4Option<'a>, Ipv4OptionFault> {
        let rest = &self.bytes[self.at..];
        let body = rest.get(1).and_then(|&length| rest.get(2..usize::from(length)));
        let Some(body) = body else { return Err(self.fault(1)) };
        let option = match (kind, body) {
            (7 | 131 | 137, [pointer, route @ ..]) => {
                // RFC 791 §3.1: the pointer is at least 4 and, when no room is left, one past the end.
                let past_end = body.len() + 3;
                let pointer_at = usize::from(*pointer);
                if route.len() % 4 != 0 {
                    return Err(self.fault(1));
                }
                if !(4..=past_end).contains(&pointer_at) || pointer_at % 4 != 0 {
                    return Err(self.fault(2));
                }
                match kind {
                    7 => Ipv4Option::RecordRoute(*pointer, route),
                    131 => Ipv4Option::LooseSourceRoute(*pointer, route),
                    _ => Ipv4Option::StrictSourceRoute(*pointer, route),
                }
            }
            (7 | 131 | 137, []) => return Err(self.fault(1)),
            (148, &[high, low]) => Ipv4Option::RouterAlert(u16::from_be_bytes([high, low])),
            (148, _) => return Err(self.fault(1)),
            (_, body) => Ipv4Option::Other(kind, body),
        };
        self.at += 2 + body.len();
        Ok(option)
    }
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Ipv4OptionFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.bytes.get(self.at)? {
                0 => {
                    self.at = self.bytes.len();
                    return None;
                }
                1 => self.at += 1,
                kind => return Some(self.read(kind)),
            }
        }
    }
}

/// An IPv4 header without options, as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Repr {
    /// Who sends it.
    pub src: Ipv4Addr,
    /// Who it is for.
    pub dst: Ipv4Addr,
    /// What the payload is.
    pub protocol: IpProtocol,
    /// How many hops it may make.
    pub ttl: u8,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// The congestion field.
    pub ecn: Ecn,
    /// Which datagram a fragment belongs to.
    pub identification: u16,
    /// Whether routers must not fragment it.
    pub dont_fragment: bool,
    /// Whether fragments follow.
    pub more_fragments: bool,
    /// Where the payload lies in the datagram, in bytes (a multiple of 8).
    pub fragment_offset: u16,
    /// Bytes of the payload, at most 65,515.
    pub payload_len: u16,
}

impl Ipv4Repr {
    /// A whole datagram with the usual fields: TTL 64, not to be fragmented, identification zero (which
    /// RFC 6864 §4.1 allows where fragments cannot exist).
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, payload_len: u16) -> Self {
        Self {
            src,
            dst,
            protocol,
            ttl: 64,
            dscp: 0,
            ecn: Ecn::NotCapable,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            payload_len,
        }
    }

    /// The view's header as values; its options are left out.
    #[inline]
    pub fn parse(view: &Ipv4View<'_>) -> Self {
        Self {
            src: view.src(),
            dst: view.dst(),
            protocol: view.protocol(),
            ttl: view.ttl(),
            dscp: view.dscp(),
            ecn: view.ecn(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset: view.fragment_offset(),
            payload_len: view.total_len() - view.header_len() as u16,
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        Ipv4View::HEADER_LEN
    }

    /// Writes the header, with its checksum, to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        let total_len = Ipv4View::HEADER_LEN as u16 + self.payload_len;
        let fragment = u16::from(self.dont_fragment) << 14
            | u16::from(self.more_fragments) << 13
            | self.fragment_offset >> 3;
        // The sum is taken from the values: reading back what was just stored would stall.
        let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let class = 0x4500 | u16::from(self.dscp << 2 | self.ecn.bits());
        let hops = u16::from(self.ttl) << 8 | u16::from(self.protocol.0);
        let (first, second) = (pair(class, total_len), pair(self.identification, fragment));
        let (src, dst) = (self.src.to_bits(), self.dst.to_bits());
        let sum = Sum::ZERO.add_u32(first).add_u32(second).add_u16(hops).add_u32(src).add_u32(dst);
        let header = fixed::<{ Ipv4View::HEADER_LEN }>(buffer);
        put(header, 0, first.to_be_bytes());
        put(header, 4, second.to_be_bytes());
        put(header, 8, pair(hops, sum.checksum()).to_be_bytes());
        put(header, 12, src.to_be_bytes());
        put(header, 16, dst.to_be_bytes());
    }

    /// The sum of the pseudo-header in front of the payload.
    #[inline]
    pub fn pseudo_header(&self) -> Sum {
        Sum::pseudo_v4(self.src, self.dst, self.protocol, self.payload_len)
    }
}

/// Takes one hop off a packet that is forwarded and keeps its checksum right (RFC 1624). The packet has
/// been parsed, and its TTL is above one.
///
/// # Panics
/// If `packet` is shorter than a header.
#[inline]
pub fn decrement_ttl(packet: &mut [u8]) {
    let header = fixed::<{ Ipv4View::HEADER_LEN }>(packet);
    header[8] = header[8].wrapping_sub(1);
    // Of a word, only by how much it changes counts.
    let checksum = update16(be16(header, 10), 0x0100, 0);
    put(header, 10, checksum.to_be_bytes());
}

/// Marks a packet as congested and keeps its checksum right (RFC 3168 §5). The packet has been parsed and
/// is of a capable transport.
///
/// # Panics
/// If `packet` is shorter than a header.
#[inline]
pub fn mark_congested(packet: &mut [u8]) {
    let header = fixed::<{ Ipv4View::HEADER_LEN }>(packet);
    let old = be16(header, 0);
    let new = old | u16::from(Ecn::Congested.bits());
    let checksum = update16(be16(header, 10), old, new);
    put(header, 0, new.to_be_bytes());
    put(header, 10, checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn repr()(src: [u8; 4], dst: [u8; 4], protocol: u8, ttl: u8, class: u8, identification: u16,
                  flags in 0u8..4, offset in 0u16..0x2000, payload_len in 0u16..=65_515) -> Ipv4Repr {
            Ipv4Repr {
                src: src.into(), dst: dst.into(), protocol: IpProtocol(protocol), ttl, dscp: class >> 2,
                ecn: Ecn::from_bits(class), identification, dont_fragment: flags & 1 != 0,
                more_fragments: flags & 2 != 0, fragment_offset: offset * 8, payload_len,
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(repr in repr()) {
            let mut buffer = vec![0xee; 20 + usize::from(repr.payload_len) + 3];
            repr.emit(&mut buffer);
            let view = Ipv4View::parse(&buffer).unwrap();
            prop_assert_eq!(Ipv4Repr::parse(&view), repr);
            prop_assert!(view.is_checksum_valid());
            prop_assert_eq!(view.payload().len(), usize::from(repr.payload_len), "padding is cut off");
            prop_assert_eq!(view.is_fragment(), repr.more_fragments || repr.fragment_offset > 0);
        }

        #[test]
        fn rewriting_keeps_the_checksum_right(repr in repr()) {
            prop_assume!(repr.ttl > 0);
            let mut buffer = [0; 20];
            repr.emit(&mut buffer);
            decrement_ttl(&mut buffer);
            mark_congested(&mut buffer);
            let view = Ipv4View::parse_quoted(&buffer).unwrap();
            prop_assert!(view.is_checksum_valid());
            let expected = Ipv4Repr { ttl: repr.ttl - 1, ecn: Ecn::Congested, ..repr };
            prop_assert_eq!(Ipv4Repr::parse(&view), expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..90), seem: bool) {
            if let (true, Some(first)) = (seem, bytes.first_mut()) {
                *first = 0x40 | (*first & 0x0f);
            }
            if let Ok(view) = Ipv4View::parse_quoted(&bytes) {
                prop_assert!(view.header_len() + view.payload().len() <= bytes.len());
                prop_assert!(view.options().count() <= 40);
                prop_assert_eq!(Ipv4View::parse(&bytes).is_ok(), usize::from(view.total_len()) <= bytes.len());
            }
        }
    }

    /// A ping from 192.168.1.1 to 192.168.1.2, with 84 bytes.
    const PING: [u8; 20] = [
        0x45, 0x00, 0x00, 0x54, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x01, 0x9b, 0x0f, 192, 168, 1, 1, 192, 168, 1,
        2,
    ];

    #[test]
    fn a_known_header() {
        let view = Ipv4View::parse_quoted(&PING).unwrap();
        assert!(view.is_checksum_valid());
        let repr = Ipv4Repr::parse(&view);
        let expected = Ipv4Repr {
            identification: 0x1c46,
            ..Ipv4Repr::new([192, 168, 1, 1].into(), [192, 168, 1, 2].into(), IpProtocol::ICMPV4, 64)
        };
        assert_eq!(repr, expected);
        let mut emitted = [0; 20];
        repr.emit(&mut emitted);
        assert_eq!(emitted, PING);
    }

    /// I01: version, header length and total length that contradict each other or the frame.
    #[test]
    fn i01_malformed() {
        let packet = |first: u8, total: u16, length: usize| {
            let mut bytes = vec![0; length];
            bytes[0] = first;
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
            Ipv4View::parse(&bytes).map(|view| (view.header_len(), view.payload().len()))
        };
        for (first, total, length, expected) in [
            (0x55, 20, 20, Err(Ipv4Error::Version)),
            (0x65, 40, 40, Err(Ipv4Error::Version)),
            (0x40, 20, 20, Err(Ipv4Error::HeaderLength)),
            (0x44, 20, 20, Err(Ipv4Error::HeaderLength)),
            (0x46, 24, 20, Err(Ipv4Error::Truncated)),
            (0x4f, 60, 59, Err(Ipv4Error::Truncated)),
            (0x45, 20, 19, Err(Ipv4Error::Truncated)),
            (0x45, 0, 40, Err(Ipv4Error::TotalLength)),
            (0x45, 19, 40, Err(Ipv4Error::TotalLength)),
            (0x46, 23, 40, Err(Ipv4Error::TotalLength)),
            (0x45, 41, 40, Err(Ipv4Error::TotalLength)),
            (0x45, 65_535, 40, Err(Ipv4Error::TotalLength)),
            (0x45, 20, 46, Ok((20, 0))),
            (0x46, 26, 46, Ok((24, 2))),
        ] {
            assert_eq!(packet(first, total, length), expected, "{first:#x}, {total} of {length}");
        }
        assert_eq!(Ipv4View::parse(&[]).unwrap_err(), Ipv4Error::Truncated);
    }

    fn options(options: &[u8]) -> Vec<Result<Ipv4Option<'_>, u8>> {
        let walk = Ipv4Options { bytes: options, at: 0 };
        walk.map(|option| option.map_err(|fault| fault.pointer)).collect()
    }

    /// I04: lengths and pointers that lead nowhere end the walk at the byte that is wrong.
    #[test]
    fn i04_malformed_options() {
        for (bytes, pointer) in [
            (&[68, 0, 5, 0][..], 21),
            (&[68, 1, 5, 0], 21),
            (&[1, 1, 68, 1], 23),
            (&[68], 21),
            (&[1, 1, 1, 68], 24),
            (&[68, 5, 5, 0], 21),
            (&[68, 255, 5, 0], 21),
            (&[7, 2, 0, 0], 21),
            (&[7, 7, 0, 1, 2, 3, 4, 0], 22),
            (&[7, 7, 3, 1, 2, 3, 4, 0], 22),
            (&[137, 7, 5, 1, 2, 3, 4, 0], 22),
            (&[131, 7, 12, 1, 2, 3, 4, 0], 22),
            (&[131, 6, 4, 1, 2, 3, 0, 0], 21),
            (&[148, 3, 0, 0], 21),
        ] {
            assert_eq!(options(bytes), [Err(pointer)], "{bytes:?}");
        }
    }

    #[test]
    fn i04_forty_bytes_of_anything_are_walked_once() {
        assert_eq!(options(&[1; 40]), []);
        assert_eq!(options(&[0; 40]), []);
        let full = [&[137, 39, 40][..], &[9; 36], &[1]].concat();
        assert_eq!(options(&full), [Ok(Ipv4Option::StrictSourceRoute(40, &[9; 36]))]);
        assert_eq!(options(&[130, 2].repeat(20)).len(), 20);
    }

    #[test]
    fn known_options_are_told_apart_and_the_end_ends() {
        let bytes = [148, 4, 0, 0, 1, 7, 7, 8, 10, 0, 0, 1, 131, 3, 4, 222, 3, 9, 0, 137, 3, 4];
        let expected = [
            Ok(Ipv4Option::RouterAlert(0)),
            Ok(Ipv4Option::RecordRoute(8, &[10, 0, 0, 1])),
            Ok(Ipv4Option::LooseSourceRoute(4, &[])),
            Ok(Ipv4Option::Other(222, &[9])),
        ];
        assert_eq!(options(&bytes), expected);
    }
}
