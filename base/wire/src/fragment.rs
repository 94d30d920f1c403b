//! The IPv6 fragment header (RFC 8200 §4.5).
//!
//! Met by the walk of `ext.rs`, which checks it against the packet around it; emitted by `path/ip` when it
//! cuts a datagram.

use crate::IpProtocol;
use crate::bytes::{be16, be32, fixed, put};

parse_error! {
    /// Why bytes are no fragment header.
    FragmentError {
        /// Fewer than 8 bytes.
        Truncated = "shorter than the IPv6 fragment header" => BadFragment,
    }
}

/// The fragment header (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug)]
pub struct FragmentView<'a> {
    header: &'a [u8; FragmentView::HEADER_LEN],
    payload: &'a [u8],
}

impl FragmentView<'_> {
    /// Bytes of the header.
    pub const HEADER_LEN: usize = 8;
}

impl<'a> FragmentView<'a> {
    /// Checks that there is a header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FragmentError> {
        let (header, payload) = bytes.split_first_chunk().ok_or(FragmentError::Truncated)?;
        Ok(Self { header, payload })
    }

    /// What the datagram's fragmentable part begins with.
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.header[0])
    }

    /// Where the payload lies in the fragmentable part, in bytes (a multiple of 8).
    pub fn offset(&self) -> u16 {
        be16(self.header, 2) & 0xfff8
    }

    /// Whether fragments follow.
    pub fn more(&self) -> bool {
        self.header[3] & 1 != 0
    }

    /// Which datagram the fragment belongs to.
    pub fn identification(&self) -> u32 {
        be32(self.header, 4)
    }

    /// The fragment's part of the datagram.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A fragment header as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentRepr {
    /// What the datagram's fragmentable part begins with.
    pub next_header: IpProtocol,
    /// Where the payload lies in the fragmentable part, in bytes (a multiple of 8).
    pub offset: u16,
    /// Whether fragments follow.
    pub more: bool,
    /// Which datagram the fragment belongs to.
    pub identification: u32,
}

impl FragmentRepr {
    /// The view's header as values.
    pub fn parse(view: &FragmentView<'_>) -> Self {
        Self {
            next_header: view.next_header(),
            offset: view.offset(),
            more: view.more(),
            identification: view.identification(),
        }
    }

    /// Whether the one fragment is all of the datagram (RFC 6946).
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub const fn emitted_len(&self) -> usize {
        FragmentView::HEADER_LEN
    }

    /// Writes the header to the front of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = fixed::<{ FragmentView::HEADER_LEN }>(buffer);
        put(header, 0, [self.next_header.0, 0]);
        put(header, 2, (self.offset & 0xfff8 | u16::from(self.more)).to_be_bytes());
        put(header, 4, self.identification.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(next: u8, offset in 0u16..0x2000, more: bool, identification: u32) {
            let offset = offset * 8;
            let repr = FragmentRepr { next_header: IpProtocol(next), offset, more, identification };
            let mut bytes = [0; 8];
            repr.emit(&mut bytes);
            prop_assert_eq!(FragmentRepr::parse(&FragmentView::parse(&bytes).unwrap()), repr);
        }
    }

    #[test]
    fn seven_bytes_are_no_header_and_reserved_bits_mean_nothing() {
        assert_eq!(FragmentView::parse(&[0; 7]).unwrap_err(), FragmentError::Truncated);
        let view = FragmentView::parse(&[17, 0xff, 0, 0x0e, 0, 0, 0, 1, 9]).unwrap();
        assert_eq!((view.offset(), view.more(), view.payload()), (8, false, &[9][..]));
    }
}
