//! The Ethernet II header (RFC 894).
//!
//! The first view of every frame: `path/classify` parses it, drivers and `path/ip` emit it. A VLAN tag is
//! a header of its own behind it (`vlan.rs`). Lengths below [`EtherType::LEAST`] are IEEE 802.3 frames,
//! which no station here handles; they are shown as they are.

use core::fmt;
use core::net::IpAddr;

use firelane_units::MacAddr;

use crate::bytes::{array, be16, fixed, put};

/// What an Ethernet frame carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// Smaller numbers are lengths of IEEE 802.3 frames.
    pub const LEAST: u16 = 0x0600;
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// A VLAN tag (IEEE 802.1Q) follows.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// Pause and other MAC control frames.
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// A service tag (IEEE 802.1ad) follows.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// Link layer discovery.
    pub const LLDP: Self = Self(0x88cc);
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

parse_error! {
    /// Why bytes are no Ethernet frame.
    EthernetError {
        /// Fewer than 14 bytes.
        Truncated = "shorter than an Ethernet header" => TooShort,
    }
}

/// A frame that has at least a header.
#[derive(Clone, Copy, Debug)]
pub struct EthernetView<'a> {
    header: &'a [u8; EthernetView::HEADER_LEN],
    payload: &'a [u8],
}

impl EthernetView<'_> {
    /// Bytes of the header.
    pub const HEADER_LEN: usize = 14;
}

impl<'a> EthernetView<'a> {
    /// Checks that there is a header.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, EthernetError> {
        let (header, payload) = frame.split_first_chunk().ok_or(EthernetError::Truncated)?;
        Ok(Self { header, payload })
    }

    /// Who it is for.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(array(self.header, 0))
    }

    /// Who sent it.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(array(self.header, 6))
    }

    /// What the payload is.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.header, 12))
    }

    /// Everything behind the header, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An Ethernet header as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetRepr {
    /// Who it is for.
    pub dst: MacAddr,
    /// Who sends it.
    pub src: MacAddr,
    /// What the payload is.
    pub ethertype: EtherType,
}

impl EthernetRepr {
    /// The view's header as values.
    #[inline]
    pub fn parse(view: &EthernetView<'_>) -> Self {
        Self { dst: view.dst(), src: view.src(), ethertype: view.ethertype() }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        EthernetView::HEADER_LEN
    }

    /// Writes the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = fixed::<{ EthernetView::HEADER_LEN }>(buffer);
        put(header, 0, self.dst.0);
        put(header, 6, self.src.0);
        put(header, 12, self.ethertype.0.to_be_bytes());
    }
}

/// The Ethernet address of an IP multicast group (RFC 1112 §6.4, RFC 2464 §7).
pub fn group_mac(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            MacAddr([0x33, 0x33, a, b, c, d])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(dst: [u8; 6], src: [u8; 6], ethertype: u16) {
            let repr = EthernetRepr { dst: MacAddr(dst), src: MacAddr(src), ethertype: EtherType(ethertype) };
            let mut buffer = [0; 20];
            repr.emit(&mut buffer);
            let view = EthernetView::parse(&buffer).unwrap();
            prop_assert_eq!(EthernetRepr::parse(&view), repr);
            prop_assert_eq!(view.payload(), &[0; 6]);
        }
    }

    #[test]
    fn thirteen_bytes_are_no_frame() {
        assert_eq!(EthernetView::parse(&[0; 13]).unwrap_err(), EthernetError::Truncated);
        assert!(EthernetView::parse(&[0; 14]).unwrap().payload().is_empty());
    }

    #[test]
    fn groups_have_addresses_of_their_own() {
        for (group, mac) in [
            ("224.0.0.1", "01:00:5e:00:00:01"),
            ("239.255.255.250", "01:00:5e:7f:ff:fa"),
            ("ff02::1:ff00:10", "33:33:ff:00:00:10"),
        ] {
            assert_eq!(group_mac(group.parse().unwrap()).to_string(), mac);
        }
    }
}
