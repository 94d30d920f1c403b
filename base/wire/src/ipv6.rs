//! The IPv6 header (RFC 8200 §3).
//!
//! The payload is cut to the payload length; what its first bytes are is told by `ext.rs`, which walks the
//! extension headers. Jumbograms (RFC 2675) do not exist here: their payload length of zero is an empty
//! payload, and their option is unknown.

use core::net::Ipv6Addr;

use crate::bytes::{array, be16, be32, fixed, put};
use crate::{Ecn, IpProtocol, Sum};

parse_error! {
    /// Why bytes are no IPv6 packet.
    Ipv6Error {
        /// Fewer than 40 bytes.
        Truncated = "shorter than the IPv6 header" => BadHeader,
        /// The version is not 6.
        Version = "the IP version is not 6" => BadHeader,
        /// The payload length is more than there is.
        PayloadLength = "the IPv6 payload length is more than the frame has" => BadHeader,
    }
}

/// A packet whose lengths are consistent.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    header: &'a [u8; Ipv6View::HEADER_LEN],
    payload: &'a [u8],
}

impl Ipv6View<'_> {
    /// Bytes of the header.
    pub const HEADER_LEN: usize = 40;
}

impl<'a> Ipv6View<'a> {
    /// Checks version and length.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Ipv6Error> {
        let view = Self::parse_quoted(bytes)?;
        if view.payload.len() < usize::from(view.payload_len()) {
            return Err(Ipv6Error::PayloadLength);
        }
        Ok(view)
    }

    /// Checks a packet that may be cut behind its header, as an ICMP error quotes it.
    #[inline]
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, Ipv6Error> {
        let (header, rest) =
            bytes.split_first_chunk::<{ Ipv6View::HEADER_LEN }>().ok_or(Ipv6Error::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(Ipv6Error::Version);
        }
        let payload = rest.get(..usize::from(be16(header, 4))).unwrap_or(rest);
        Ok(Self { header, payload })
    }

    /// The differentiated services code point.
    #[inline]
    pub fn dscp(&self) -> u8 {
        (be16(self.header, 0) >> 6) as u8 & 0x3f
    }

    /// The congestion field.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.header[1] >> 4)
    }

    /// The flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.header, 0) & 0x000f_ffff
    }

    /// Bytes behind this header, as the header says.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        be16(self.header, 4)
    }

    /// What follows: an extension header or the upper layer.
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.header[6])
    }

    /// How many more hops it may make.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Who sent it.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16, _>(self.header, 8))
    }

    /// Who it is for.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16, _>(self.header, 24))
    }

    /// Everything behind the header, without padding: extension headers and upper layer.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An IPv6 header as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Repr {
    /// Who sends it.
    pub src: Ipv6Addr,
    /// Who it is for.
    pub dst: Ipv6Addr,
    /// What follows: an extension header or the upper layer.
    pub next_header: IpProtocol,
    /// How many hops it may make.
    pub hop_limit: u8,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// The congestion field.
    pub ecn: Ecn,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes of the payload, extension headers included.
    pub payload_len: u16,
}

impl Ipv6Repr {
    /// A packet with the usual fields: hop limit 64, no class, no flow label.
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol, payload_len: u16) -> Self {
        Self {
            src,
            dst,
            next_header,
            hop_limit: 64,
            dscp: 0,
            ecn: Ecn::NotCapable,
            flow_label: 0,
            payload_len,
        }
    }

    /// The view's header as values.
    #[inline]
    pub fn parse(view: &Ipv6View<'_>) -> Self {
        Self {
            src: view.src(),
            dst: view.dst(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            dscp: view.dscp(),
            ecn: view.ecn(),
            flow_label: view.flow_label(),
            payload_len: view.payload_len(),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        Ipv6View::HEADER_LEN
    }

    /// Writes the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = fixed::<{ Ipv6View::HEADER_LEN }>(buffer);
        let class = self.dscp << 2 | self.ecn.bits();
        let first = 6 << 28 | u32::from(class) << 20 | self.flow_label & 0x000f_ffff;
        put(header, 0, first.to_be_bytes());
        put(header, 4, self.payload_len.to_be_bytes());
        put(header, 6, [self.next_header.0, self.hop_limit]);
        put(header, 8, self.src.octets());
        put(header, 24, self.dst.octets());
    }

    /// The sum of the pseudo-header in front of the upper layer, if no extension header is between.
    #[inline]
    pub fn pseudo_header(&self) -> Sum {
        Sum::pseudo_v6(self.src, self.dst, self.next_header, u32::from(self.payload_len))
    }
}

/// Takes one hop off a packet that is forwarded. The packet has been parsed, and its hop limit is above
/// one.
///
/// # Panics
/// If `packet` is shorter than a header.
#[inline]
pub fn decrement_hop_limit(packet: &mut [u8]) {
    let header = fixed::<{ Ipv6View::HEADER_LEN }>(packet);
    header[7] = header[7].wrapping_sub(1);
}

/// Marks a packet as congested (RFC 3168 §5). The packet has been parsed and is of a capable transport.
///
/// # Panics
/// If `packet` is shorter than a header.
#[inline]
pub fn mark_congested(packet: &mut [u8]) {
    let header = fixed::<{ Ipv6View::HEADER_LEN }>(packet);
    header[1] |= Ecn::Congested.bits() << 4;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(src: [u8; 16], dst: [u8; 16], next: u8, hop_limit: u8, class: u8,
                                        flow_label in 0u32..1 << 20, payload_len: u16) {
            let repr = Ipv6Repr {
                src: src.into(), dst: dst.into(), next_header: IpProtocol(next), hop_limit,
                dscp: class >> 2, ecn: Ecn::from_bits(class), flow_label, payload_len,
            };
            let mut buffer = vec![0; 40 + usize::from(payload_len) + 2];
            repr.emit(&mut buffer);
            let view = Ipv6View::parse(&buffer).unwrap();
            prop_assert_eq!(Ipv6Repr::parse(&view), repr);
            prop_assert_eq!(view.payload().len(), usize::from(payload_len), "padding is cut off");
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..90), seem: bool) {
            if let (true, Some(first)) = (seem, bytes.first_mut()) {
                *first = 0x60;
            }
            if let Ok(view) = Ipv6View::parse_quoted(&bytes) {
                prop_assert!(40 + view.payload().len() <= bytes.len());
            }
        }
    }

    #[test]
    fn malformed() {
        let packet = |first: u8, payload: u16, length: usize| {
            let mut bytes = vec![0; length];
            bytes[0] = first;
            bytes[4..6].copy_from_slice(&payload.to_be_bytes());
            Ipv6View::parse(&bytes).map(|view| view.payload().len())
        };
        for (first, payload, length, expected) in [
            (0x60, 0, 39, Err(Ipv6Error::Truncated)),
            (0x45, 0, 40, Err(Ipv6Error::Version)),
            (0x60, 1, 40, Err(Ipv6Error::PayloadLength)),
            (0x60, 65_535, 1500, Err(Ipv6Error::PayloadLength)),
            (0x60, 0, 46, Ok(0)),
            (0x6f, 8, 48, Ok(8)),
        ] {
            assert_eq!(packet(first, payload, length), expected, "{first:#x}, {payload} of {length}");
        }
    }

    #[test]
    fn a_known_header() {
        let bytes = [
            &[0x6b, 0x81, 0x23, 0x45, 0, 0, 58, 255][..],
            &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0x10],
        ]
        .concat();
        let view = Ipv6View::parse(&bytes).unwrap();
        assert_eq!((view.dscp(), view.ecn(), view.flow_label()), (46, Ecn::NotCapable, 0x12345));
        assert_eq!((view.next_header(), view.hop_limit()), (IpProtocol::ICMPV6, 255));
        assert_eq!(view.src().to_string(), "fd00::1");
        assert_eq!(view.dst().to_string(), "ff02::1:ff00:10");
        let mut emitted = [0; 40];
        Ipv6Repr::parse(&view).emit(&mut emitted);
        assert_eq!(emitted[..], bytes[..]);
        decrement_hop_limit(&mut emitted);
        assert_eq!(emitted[7], 254);
    }
}
