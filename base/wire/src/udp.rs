//! The UDP header (RFC 768, RFC 1122 §4.1, RFC 8200 §8.1).
//!
//! A view is parsed from an IP payload, whose length must be the one that the header says. `path/udp`
//! checks the checksum, unless the driver has, and emits the header.

use core::net::IpAddr;

use firelane_units::Port;

use crate::bytes::{be16, fixed, put};
use crate::{IpProtocol, Sum};

parse_error! {
    /// Why bytes are no UDP datagram.
    UdpError {
        /// Fewer than 8 bytes.
        Truncated = "shorter than the UDP header" => BadDatagram,
        /// The length is below 8 or differs from the IP payload's.
        Length = "the UDP length differs from the IP payload's" => BadDatagram,
        /// The destination port is zero.
        DstPort = "the UDP destination port is zero" => BadDatagram,
    }
}

/// Where the checksum field begins in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A datagram whose length is right. Its checksum is checked by [`is_checksum_valid`](Self::is_checksum_valid).
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    header: &'a [u8; UdpView::HEADER_LEN],
    datagram: &'a [u8],
    payload: &'a [u8],
}

impl UdpView<'_> {
    /// Bytes of the header.
    pub const HEADER_LEN: usize = 8;
}

impl<'a> UdpView<'a> {
    /// Checks an IP payload. A source port of zero is legal: nobody can answer (RFC 768).
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, UdpError> {
        let (header, payload) =
            datagram.split_first_chunk::<{ UdpView::HEADER_LEN }>().ok_or(UdpError::Truncated)?;
        if usize::from(be16(header, 4)) != datagram.len() {
            return Err(UdpError::Length);
        }
        if be16(header, 2) == 0 {
            return Err(UdpError::DstPort);
        }
        Ok(Self { header, datagram, payload })
    }

    /// The sender's port; zero if nobody can answer.
    #[inline]
    pub fn src_port(&self) -> Port {
        Port(be16(self.header, 0))
    }

    /// The receiver's port, never zero.
    #[inline]
    pub fn dst_port(&self) -> Port {
        Port(be16(self.header, 2))
    }

    /// The checksum field; zero means "none".
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, 6)
    }

    /// Whether the checksum is right, or rightly absent: IPv4 allows none, IPv6 does not.
    #[inline]
    pub fn is_checksum_valid(&self, src: IpAddr, dst: IpAddr) -> bool {
        if self.checksum() == 0 {
            return dst.is_ipv4();
        }
        let pseudo = Sum::pseudo(src, dst, IpProtocol::UDP, self.datagram.len() as u32);
        pseudo.combine(Sum::of(self.datagram)).is_valid()
    }

    /// The datagram's payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A UDP header as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpRepr {
    /// The sender's port.
    pub src_port: Port,
    /// The receiver's port.
    pub dst_port: Port,
    /// Bytes of the payload, at most 65,527.
    pub payload_len: u16,
}

impl UdpRepr {
    /// The view's header as values.
    #[inline]
    pub fn parse(view: &UdpView<'_>) -> Self {
        Self { src_port: view.src_port(), dst_port: view.dst_port(), payload_len: view.payload.len() as u16 }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        UdpView::HEADER_LEN
    }

    /// Writes the header, with a checksum field of zero, to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = fixed::<{ UdpView::HEADER_LEN }>(buffer);
        put(header, 0, self.src_port.0.to_be_bytes());
        put(header, 2, self.dst_port.0.to_be_bytes());
        put(header, 4, (UdpView::HEADER_LEN as u16 + self.payload_len).to_be_bytes());
        put(header, 6, [0, 0]);
    }
}

/// Completes the checksum of a whole datagram whose checksum field is zero.
///
/// # Panics
/// If `datagram` is shorter than a header.
#[inline]
pub fn fill_checksum(datagram: &mut [u8], pseudo: Sum) {
    let checksum = pseudo.combine(Sum::of(datagram)).checksum_nonzero();
    put(fixed::<{ UdpView::HEADER_LEN }>(datagram), CHECKSUM_OFFSET, checksum.to_be_bytes());
}

/// Completes the checksum of a header, whose field is zero, over a payload that was summed while it was
/// copied.
///
/// # Panics
/// If `header` is shorter than a header.
#[inline]
pub fn fill_checksum_with(header: &mut [u8], pseudo: Sum, payload: Sum) {
    let header = fixed::<{ UdpView::HEADER_LEN }>(header);
    let checksum = pseudo.combine(Sum::of_fixed(header)).combine(payload).checksum_nonzero();
    put(header, CHECKSUM_OFFSET, checksum.to_be_bytes());
}

/// Leaves the checksum to the device: the field gets the sum of the pseudo-header.
///
/// # Panics
/// If `header` is shorter than a header.
#[inline]
pub fn fill_partial(header: &mut [u8], pseudo: Sum) {
    put(fixed::<{ UdpView::HEADER_LEN }>(header), CHECKSUM_OFFSET, pseudo.folded().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    const V4: (IpAddr, IpAddr) =
        (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10)));
    const V6: (IpAddr, IpAddr) = (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));

    fn pseudo((src, dst): (IpAddr, IpAddr), datagram: &[u8]) -> Sum {
        Sum::pseudo(src, dst, IpProtocol::UDP, datagram.len() as u32)
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(src_port: u16, dst_port in 1u16.., v6: bool,
                                        payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let repr = UdpRepr {
                src_port: Port(src_port), dst_port: Port(dst_port), payload_len: payload.len() as u16,
            };
            let mut datagram = vec![0xee; 8];
            repr.emit(&mut datagram);
            datagram.extend(&payload);
            let ends = if v6 { V6 } else { V4 };
            let pseudo = pseudo(ends, &datagram);

            let mut apart = datagram.clone();
            fill_checksum_with(&mut apart[..8], pseudo, Sum::of(&payload));
            let mut partial = datagram.clone();
            fill_partial(&mut partial, pseudo);
            let completed = Sum::of(&partial).checksum_nonzero();
            fill_checksum(&mut datagram, pseudo);
            prop_assert_eq!(&apart, &datagram);

            let view = UdpView::parse(&datagram).unwrap();
            prop_assert_eq!(completed, view.checksum());
            prop_assert_eq!(UdpRepr::parse(&view), repr);
            prop_assert_eq!(view.payload(), &payload);
            prop_assert!(view.is_checksum_valid(ends.0, ends.1));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(view) = UdpView::parse(&bytes) {
                prop_assert_eq!(view.payload().len() + 8, bytes.len());
            }
        }
    }

    /// U01: a length that is not the IP payload's, no destination port, no checksum over IPv6.
    #[test]
    fn u01_malformed() {
        let datagram = |dst_port: u8, length: u8, bytes: usize| {
            let mut datagram = vec![0; bytes];
            datagram[3] = dst_port;
            datagram[5] = length;
            datagram
        };
        for (dst_port, length, bytes, error) in [
            (9, 7, 7, UdpError::Truncated),
            (9, 0, 8, UdpError::Length),
            (9, 7, 8, UdpError::Length),
            (9, 9, 8, UdpError::Length),
            (9, 8, 12, UdpError::Length),
            (9, 255, 12, UdpError::Length),
            (0, 12, 12, UdpError::DstPort),
        ] {
            let datagram = datagram(dst_port, length, bytes);
            assert_eq!(UdpView::parse(&datagram).unwrap_err(), error, "{datagram:?}");
        }
        let unsummed = datagram(9, 12, 12);
        let view = UdpView::parse(&unsummed).unwrap();
        assert!(view.is_checksum_valid(V4.0, V4.1));
        assert!(!view.is_checksum_valid(V6.0, V6.1));
    }
}
