//! The VLAN tag (IEEE 802.1Q) behind an Ethernet header whose type is [`EtherType::VLAN`].
//!
//! A view is parsed from the Ethernet payload and names the inner type. Only one tag is ever read: what a
//! tenant puts behind it is payload, so a double tag cannot hop VLANs.

use firelane_units::VlanId;

use crate::EtherType;
use crate::bytes::{be16, fixed, put};

parse_error! {
    /// Why bytes are no VLAN tag.
    VlanError {
        /// Fewer than 4 bytes behind the Ethernet header.
        Truncated = "shorter than a VLAN tag" => TooShort,
        /// Identifier 4095, which is reserved.
        Identifier = "the VLAN identifier 4095 is reserved" => BadVlan,
    }
}

/// A tag whose identifier is not the reserved one.
#[derive(Clone, Copy, Debug)]
pub struct VlanView<'a> {
    header: &'a [u8; VlanView::HEADER_LEN],
    payload: &'a [u8],
}

impl VlanView<'_> {
    /// Bytes of the tag and the inner type.
    pub const HEADER_LEN: usize = 4;
}

impl<'a> VlanView<'a> {
    /// Checks the payload of an Ethernet frame whose type is [`EtherType::VLAN`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, VlanError> {
        let (header, payload) = bytes.split_first_chunk().ok_or(VlanError::Truncated)?;
        if be16(header, 0) & 0x0fff == 0x0fff {
            return Err(VlanError::Identifier);
        }
        Ok(Self { header, payload })
    }

    /// The priority code point, 0 to 7.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.header[0] >> 5
    }

    /// Whether the frame may be dropped first.
    #[inline]
    pub fn drop_eligible(&self) -> bool {
        self.header[0] & 0x10 != 0
    }

    /// The VLAN; `None` is a priority tag, which names none.
    #[inline]
    pub fn id(&self) -> Option<VlanId> {
        VlanId::new(be16(self.header, 0) & 0x0fff)
    }

    /// What the payload is.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.header, 2))
    }

    /// Everything behind the tag.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A VLAN tag as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanRepr {
    /// The priority code point, 0 to 7.
    pub priority: u8,
    /// Whether the frame may be dropped first.
    pub drop_eligible: bool,
    /// The VLAN; `None` is a priority tag.
    pub id: Option<VlanId>,
    /// What the payload is.
    pub ethertype: EtherType,
}

impl VlanRepr {
    /// The view's tag as values.
    #[inline]
    pub fn parse(view: &VlanView<'_>) -> Self {
        Self {
            priority: view.priority(),
            drop_eligible: view.drop_eligible(),
            id: view.id(),
            ethertype: view.ethertype(),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        VlanView::HEADER_LEN
    }

    /// Writes tag and inner type to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        let control = u16::from(self.priority & 7) << 13
            | u16::from(self.drop_eligible) << 12
            | self.id.map_or(0, VlanId::id);
        let header = fixed::<{ VlanView::HEADER_LEN }>(buffer);
        put(header, 0, control.to_be_bytes());
        put(header, 2, self.ethertype.0.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(priority in 0u8..8, drop_eligible: bool, id in 0u16..4095, ethertype: u16) {
            let repr = VlanRepr { priority, drop_eligible, id: VlanId::new(id), ethertype: EtherType(ethertype) };
            let mut buffer = [0; 5];
            repr.emit(&mut buffer);
            let view = VlanView::parse(&buffer).unwrap();
            prop_assert_eq!(VlanRepr::parse(&view), repr);
            prop_assert_eq!(view.payload(), &[0]);
        }
    }

    #[test]
    fn bad_tags() {
        let cases: [(&[u8], VlanError); 3] = [
            (&[], VlanError::Truncated),
            (&[0, 1, 8], VlanError::Truncated),
            (&[0xff, 0xff, 8, 0], VlanError::Identifier),
        ];
        for (bytes, error) in cases {
            assert_eq!(VlanView::parse(bytes).unwrap_err(), error, "{bytes:02x?}");
        }
    }

    #[test]
    fn a_priority_tag_names_no_vlan() {
        let view = VlanView::parse(&[0xe0, 0x00, 0x08, 0x00]).unwrap();
        assert_eq!((view.id(), view.priority(), view.ethertype()), (None, 7, EtherType::IPV4));
    }
}
