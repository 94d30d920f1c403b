//! IPv4, IPv6, extension headers, the fragment header and the checksum.
//!
//! `etherparse` collects extension headers and obeys none, so the walk is compared in what both accept and in
//! where it ends.

use etherparse as theirs;
use firelane_wire::{
    ExtError, ExtFault, FragmentRepr, FragmentView, IpProtocol, Ipv4Error, Ipv4Repr, Ipv4View, Ipv6Repr,
    Ipv6View, Sum, copy_and_sum, ext,
};
use proptest::prelude::*;

use crate::{bytes, damaged};

/// An IPv4 packet with options of 0 to 40 bytes.
fn v4() -> impl Strategy<Value = Vec<u8>> {
    (any::<[u8; 20]>(), 0usize..=10, bytes(40)).prop_map(|(header, words, payload)| {
        let mut bytes = header.to_vec();
        bytes.resize(20 + words * 4, 1);
        bytes.extend(&payload);
        bytes[0] = 0x45 + words as u8;
        let total = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes
    })
}

/// An IPv6 packet whose payload is a chain of extension headers of sizes that fit, mostly.
fn v6_chain() -> impl Strategy<Value = Vec<u8>> {
    let kind = || prop_oneof![4 => Just(60u8), 2 => Just(43), 2 => Just(44), 1 => Just(0), 3 => Just(17)];
    let header = (kind(), 0u8..3, any::<bool>());
    (kind(), proptest::collection::vec(header, 0..9), any::<[u8; 32]>(), bytes(40)).prop_map(
        |(first, headers, addresses, upper)| {
            let mut payload = Vec::new();
            let mut kind = first;
            for (next, units, atomic) in headers {
                let units = if kind == 44 { 0 } else { units };
                let at = payload.len();
                payload.resize(at + 8 * (usize::from(units) + 1), 0);
                (payload[at], payload[at + 1]) = (next, units);
                if kind == 44 && !atomic {
                    payload[at + 3] = 0x41;
                }
                kind = next;
            }
            payload.extend(upper);
            let mut bytes = vec![0x60, 0, 0, 0, 0, payload.len() as u8, first, 64];
            bytes.extend(addresses);
            bytes.extend(payload);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn ipv4(bytes in prop_oneof![bytes(80), damaged(v4())]) {
        let ours = Ipv4View::parse(&bytes);
        // Their packet reader also reads an authentication header, which is a payload for us.
        let header = theirs::Ipv4HeaderSlice::from_slice(&bytes);
        let consistent = header.as_ref().is_ok_and(|header| {
            let total = usize::from(header.total_len());
            header.slice().len() <= total && total <= bytes.len()
        });
        prop_assert_eq!(ours.is_ok(), consistent);
        if let (Ok(ours), Ok(theirs)) = (ours, header) {
            prop_assert_eq!(ours.header_len(), theirs.slice().len());
            prop_assert_eq!(ours.total_len(), theirs.total_len());
            prop_assert_eq!(ours.payload().len(), usize::from(theirs.payload_len().unwrap()));
            prop_assert_eq!((ours.dscp(), ours.ecn().bits()), (theirs.dcp().value(), theirs.ecn().value()));
            prop_assert_eq!(ours.identification(), theirs.identification());
            prop_assert_eq!(ours.dont_fragment(), theirs.dont_fragment());
            prop_assert_eq!(ours.more_fragments(), theirs.more_fragments());
            prop_assert_eq!(usize::from(ours.fragment_offset()), usize::from(theirs.fragments_offset().byte_offset()));
            prop_assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
            prop_assert_eq!((ours.ttl(), ours.protocol().0), (theirs.ttl(), theirs.protocol().0));
            prop_assert_eq!((ours.src(), ours.dst()), (theirs.source_addr(), theirs.destination_addr()));
            prop_assert_eq!(ours.checksum(), theirs.header_checksum());
            let plain = bytes[6] & 0x80 == 0;
            let valid = theirs.to_header().calc_header_checksum() == theirs.header_checksum();
            prop_assert!(!plain || ours.is_checksum_valid() == valid, "theirs forgets the reserved flag");
        }
    }

    #[test]
    fn ipv4_emitted(bytes in v4()) {
        let repr = Ipv4Repr::parse(&Ipv4View::parse(&bytes).unwrap());
        let mut emitted = [0; 20];
        repr.emit(&mut emitted);
        let (header, _) = theirs::Ipv4Header::from_slice(&emitted).unwrap();
        prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
        prop_assert_eq!(&header.to_bytes()[..], &emitted[..]);
    }

    #[test]
    fn ipv6(bytes in prop_oneof![bytes(80), damaged(v6_chain())]) {
        let ours = Ipv6View::parse(&bytes);
        let theirs = theirs::Ipv6HeaderSlice::from_slice(&bytes);
        let fits = |header: &theirs::Ipv6HeaderSlice<'_>| 40 + usize::from(header.payload_length()) <= bytes.len();
        prop_assert_eq!(ours.is_ok(), theirs.as_ref().is_ok_and(fits));
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!((ours.dscp(), ours.ecn().bits()), (theirs.dscp().value(), theirs.ecn().value()));
            prop_assert_eq!(ours.flow_label(), theirs.flow_label().value());
            prop_assert_eq!(ours.payload().len(), usize::from(theirs.payload_length()));
            prop_assert_eq!((ours.next_header().0, ours.hop_limit()), (theirs.next_header().0, theirs.hop_limit()));
            prop_assert_eq!((ours.src(), ours.dst()), (theirs.source_addr(), theirs.destination_addr()));
            let mut emitted = [0; 40];
            Ipv6Repr::parse(&ours).emit(&mut emitted);
            prop_assert_eq!(emitted, theirs.to_header().to_bytes());
        }
    }

    /// They collect headers and obey none; so what we accept they accept and end at the same place, and what
    /// they refuse we refuse, unless it lies behind a real fragment header, where we stop.
    #[test]
    fn extension_headers(bytes in prop_oneof![v6_chain(), damaged(v6_chain())]) {
        let Ok(packet) = Ipv6View::parse(&bytes) else { return Ok(()) };
        let first = theirs::IpNumber(packet.next_header().0);
        let theirs = theirs::Ipv6ExtensionsSlice::from_slice(first, packet.payload());
        match (ext::walk(&packet), theirs) {
            // The one kind of header that they walk and we do not.
            (Ok(ours), _) if ours.upper == IpProtocol::AUTHENTICATION => {}
            (Ok(ours), Ok((extensions, upper, rest))) if !ours.is_fragment() => {
                prop_assert!(!extensions.is_fragmenting_payload());
                prop_assert_eq!(ours.upper.0, upper.0);
                prop_assert_eq!(ours.payload(&packet), rest);
            }
            (Ok(ours), Ok((extensions, ..))) => {
                prop_assert!(ours.is_fragment() && extensions.is_fragmenting_payload());
            }
            (Ok(ours), Err(_)) => prop_assert!(ours.is_fragment()),
            (Err(ExtError::Discard(ExtFault::Truncated)), Ok((extensions, ..))) => {
                prop_assert!(false, "we miss bytes that they found: {extensions:?}");
            }
            (Err(_), _) => {}
        }
    }

    #[test]
    fn fragment_header(bytes in bytes(12)) {
        let (ours, theirs) = (FragmentView::parse(&bytes), theirs::Ipv6FragmentHeaderSlice::from_slice(&bytes));
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            let ours = FragmentRepr::parse(&ours);
            prop_assert_eq!(ours.next_header.0, theirs.next_header().0);
            prop_assert_eq!(usize::from(ours.offset), usize::from(theirs.fragment_offset().byte_offset()));
            prop_assert_eq!((ours.more, ours.identification), (theirs.more_fragments(), theirs.identification()));
            prop_assert_eq!(!ours.is_atomic(), theirs.is_fragmenting_payload());
            let mut emitted = [0; 8];
            ours.emit(&mut emitted);
            prop_assert_eq!(emitted, theirs.to_header().to_bytes());
        }
    }

    #[test]
    fn checksum(bytes in bytes(2000)) {
        let theirs = theirs::checksum::Sum16BitWords::new().add_slice(&bytes).ones_complement();
        let theirs = u16::from_be(theirs);
        prop_assert_eq!(Sum::of(&bytes).checksum(), theirs);
        let mut copy = vec![0; bytes.len()];
        prop_assert_eq!(copy_and_sum(&mut copy, &bytes).checksum(), theirs);
        prop_assert_eq!(copy, bytes);
    }
}

#[test]
fn the_first_wrong_field_is_named_alike() {
    let err = |bytes: &[u8]| theirs::Ipv4Slice::from_slice(bytes).unwrap_err();
    use theirs::err::ipv4::{HeaderError, SliceError};
    let mut packet = [0; 24];
    packet[0] = 0x54;
    assert_eq!(Ipv4View::parse(&packet).unwrap_err(), Ipv4Error::Version);
    assert!(matches!(err(&packet), SliceError::Header(HeaderError::UnexpectedVersion { version_number: 5 })));
    packet[0] = 0x44;
    assert_eq!(Ipv4View::parse(&packet).unwrap_err(), Ipv4Error::HeaderLength);
    assert!(matches!(
        err(&packet),
        SliceError::Header(HeaderError::HeaderLengthSmallerThanHeader { ihl: 4 })
    ));
}
