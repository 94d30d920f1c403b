//! UDP, TCP and TCP's options.
//!
//! We refuse UDP lengths that differ from the IP payload's, and ports of zero where nobody could have them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse as theirs;
use firelane_units::{Port, SeqNum};
use firelane_wire::{
    IpProtocol, SackBlocks, Sum, TcpFlags, TcpOptions, TcpRepr, TcpView, UdpRepr, UdpView, tcp, udp,
};
use proptest::prelude::*;
use theirs::TcpOptionElement as Element;

use crate::{bytes, damaged};

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 10));
const V6: (Ipv6Addr, Ipv6Addr) =
    (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10));

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    if v6 { (V6.0.into(), V6.1.into()) } else { (V4.0.into(), V4.1.into()) }
}

fn datagram() -> impl Strategy<Value = Vec<u8>> {
    (any::<(u16, u16)>(), any::<bool>(), bytes(60)).prop_map(
        |((source_port, destination_port), summed, payload)| {
            let length = 8 + payload.len() as u16;
            let mut header = theirs::UdpHeader { source_port, destination_port, length, checksum: 0 };
            if summed {
                let checksum = header.calc_checksum_ipv4_raw(V4.0.octets(), V4.1.octets(), &payload);
                header.checksum = checksum.expect("60 bytes fit");
            }
            [&header.to_bytes()[..], &payload].concat()
        },
    )
}

fn element() -> impl Strategy<Value = Element> {
    let blocks = any::<((u32, u32), [Option<(u32, u32)>; 3])>();
    prop_oneof![
        Just(Element::Noop),
        any::<u16>().prop_map(Element::MaximumSegmentSize),
        any::<u8>().prop_map(Element::WindowScale),
        Just(Element::SelectiveAcknowledgementPermitted),
        blocks.prop_map(|(first, rest)| Element::SelectiveAcknowledgement(first, rest)),
        any::<(u32, u32)>().prop_map(|(value, echo)| Element::Timestamp(value, echo)),
    ]
}

/// A list of elements read as our options.
fn collected(elements: impl IntoIterator<Item = Element>) -> TcpOptions {
    let mut options = TcpOptions::EMPTY;
    for element in elements {
        match element {
            Element::Noop => {}
            Element::MaximumSegmentSize(mss) => options.mss = Some(mss),
            Element::WindowScale(shift) => options.window_scale = Some(shift),
            Element::SelectiveAcknowledgementPermitted => options.sack_permitted = true,
            Element::SelectiveAcknowledgement(first, rest) => {
                let blocks = [Some(first)].into_iter().chain(rest).flatten();
                options.sack = blocks.map(|(a, b)| (SeqNum(a), SeqNum(b))).collect::<SackBlocks>();
            }
            Element::Timestamp(value, echo) => options.timestamps = Some((value, echo)),
        }
    }
    options
}

fn segment() -> impl Strategy<Value = Vec<u8>> {
    let elements = proptest::collection::vec(element(), 0..5);
    (any::<(u16, u16, u32, u16)>(), any::<u16>(), elements, bytes(60)).prop_map(
        |((src, dst, seq, window), flags, elements, payload)| {
            let mut header = theirs::TcpHeader::new(src, dst, seq, window);
            header.set_options(&elements).unwrap_or_default();
            let mut bytes = [&header.to_bytes()[..], &payload].concat();
            bytes[12] |= (flags >> 8) as u8 & 1;
            bytes[13] = flags as u8;
            bytes
        },
    )
}

proptest! {
    #[test]
    fn udp_read(bytes in prop_oneof![bytes(40), damaged(datagram())]) {
        let ours = UdpView::parse(&bytes);
        let theirs = theirs::UdpHeader::from_slice(&bytes).ok();
        let strict = theirs.as_ref().is_some_and(|(header, _)| {
            usize::from(header.length) == bytes.len() && header.destination_port != 0
        });
        prop_assert_eq!(ours.is_ok(), strict, "we refuse other lengths and no destination port");
        if let (Ok(ours), Some((header, payload))) = (ours, theirs) {
            prop_assert_eq!((ours.src_port().0, ours.dst_port().0), (header.source_port, header.destination_port));
            prop_assert_eq!((ours.payload(), ours.checksum()), (payload, header.checksum));
            let (src, dst) = ends(false);
            let right = header.calc_checksum_ipv4_raw(V4.0.octets(), V4.1.octets(), payload).unwrap();
            let valid = header.checksum == 0 || header.checksum == right;
            prop_assert_eq!(ours.is_checksum_valid(src, dst), valid);
        }
    }

    #[test]
    fn udp_emitted(src: u16, dst in 1u16.., payload in bytes(200), v6: bool) {
        let repr = UdpRepr { src_port: Port(src), dst_port: Port(dst), payload_len: payload.len() as u16 };
        let mut ours = vec![0; 8];
        repr.emit(&mut ours);
        ours.extend(&payload);
        let (from, to) = ends(v6);
        let length = ours.len() as u32;
        udp::fill_checksum(&mut ours, Sum::pseudo(from, to, IpProtocol::UDP, length));
        let (header, _) = theirs::UdpHeader::from_slice(&ours).unwrap();
        let right = if v6 {
            header.calc_checksum_ipv6_raw(V6.0.octets(), V6.1.octets(), &payload)
        } else {
            header.calc_checksum_ipv4_raw(V4.0.octets(), V4.1.octets(), &payload)
        };
        prop_assert_eq!(header.checksum, right.unwrap());
        prop_assert_eq!(&header.to_bytes()[..], &ours[..8]);
    }

    #[test]
    fn tcp_read(bytes in prop_oneof![bytes(80), damaged(segment())]) {
        let (ours, theirs) = (TcpView::parse(&bytes), theirs::TcpSlice::from_slice(&bytes));
        let has_ports = |segment: &theirs::TcpSlice<'_>| segment.source_port() != 0 && segment.destination_port() != 0;
        prop_assert_eq!(ours.is_ok(), theirs.as_ref().is_ok_and(has_ports), "we refuse ports of zero");
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!((ours.src_port().0, ours.dst_port().0), (theirs.source_port(), theirs.destination_port()));
            prop_assert_eq!(ours.seq().0, theirs.sequence_number());
            prop_assert_eq!(ours.ack_field().0, theirs.acknowledgment_number());
            prop_assert_eq!(ours.ack(), theirs.ack().then_some(ours.ack_field()));
            let flags = [
                (theirs.fin(), TcpFlags::FIN), (theirs.syn(), TcpFlags::SYN), (theirs.rst(), TcpFlags::RST),
                (theirs.psh(), TcpFlags::PSH), (theirs.ack(), TcpFlags::ACK), (theirs.urg(), TcpFlags::URG),
                (theirs.ece(), TcpFlags::ECE), (theirs.cwr(), TcpFlags::CWR), (theirs.ns(), TcpFlags::AE),
            ];
            let flags = flags.iter().filter(|(set, _)| *set).fold(TcpFlags::EMPTY, |all, (_, flag)| all | *flag);
            prop_assert_eq!(ours.flags(), flags);
            prop_assert_eq!((ours.window(), ours.urgent()), (theirs.window_size(), theirs.urgent_pointer()));
            prop_assert_eq!((ours.option_bytes(), ours.payload()), (theirs.options(), theirs.payload()));
            let (src, dst) = ends(true);
            let right = theirs.calc_checksum_ipv6(V6.0.octets(), V6.1.octets()).unwrap();
            let reserved = bytes[12] & 0x0e != 0;
            let valid = ours.is_checksum_valid(src, dst);
            prop_assert!(reserved || valid == (right == ours.checksum()), "theirs forgets the reserved bits");
            // They stop at unknown options, where we go on; what both have read is the same.
            let elements: Result<Vec<_>, _> = theirs.options_iterator().collect();
            if let Ok(elements) = elements {
                prop_assert_eq!(ours.options(), collected(elements));
            }
        }
    }

    #[test]
    fn tcp_emitted(ports in (1u16.., 1u16..), seq: u32, ack: Option<u32>, flags: u16, window: u16, urgent: u16,
                   elements in proptest::collection::vec(element(), 0..5), payload in bytes(100), v6: bool) {
        let mut options = collected(elements);
        options.sack = options.sack.iter().take(options.sack_room()).collect();
        let repr = TcpRepr {
            src_port: Port(ports.0), dst_port: Port(ports.1), seq: SeqNum(seq), ack: ack.map(SeqNum),
            flags: TcpFlags::from_bits(flags), window, urgent, options,
        };
        let length = repr.emitted_len();
        let mut ours = vec![0; length];
        repr.emit(&mut ours);
        ours.extend(&payload);
        let (src, dst) = ends(v6);
        let pseudo = Sum::pseudo(src, dst, IpProtocol::TCP, ours.len() as u32);
        tcp::fill_checksum_with(&mut ours[..length], pseudo, Sum::of(&payload));
        let theirs = theirs::TcpSlice::from_slice(&ours).unwrap();
        let right = if v6 {
            theirs.calc_checksum_ipv6(V6.0.octets(), V6.1.octets()).unwrap()
        } else {
            theirs.calc_checksum_ipv4(V4.0.octets(), V4.1.octets()).unwrap()
        };
        prop_assert_eq!(theirs.checksum(), right);
        prop_assert_eq!((theirs.sequence_number(), theirs.ack()), (seq, ack.is_some()));
        prop_assert_eq!(theirs.acknowledgment_number(), ack.unwrap_or_default());
        prop_assert_eq!((theirs.window_size(), theirs.urgent_pointer()), (window, urgent));
        let read: Vec<_> = theirs.options_iterator().map(|element| element.unwrap()).collect();
        prop_assert_eq!(collected(read), options);
        prop_assert_eq!(theirs.payload(), &payload[..]);
    }
}
