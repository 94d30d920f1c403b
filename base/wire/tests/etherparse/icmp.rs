//! ICMPv4, ICMPv6, neighbour discovery and its options.
//!
//! We handle fewer ICMPv4 types, keep ICMPv6 errors of unknown codes, and take only Ethernet's link-layer
//! addresses.

use core::net::Ipv6Addr;
use core::time::Duration;

use etherparse as theirs;
use firelane_units::MacAddr;
use firelane_wire::{
    Icmpv4Repr, Icmpv4Unreachable, Icmpv4View, Icmpv6Repr, Icmpv6View, NdpEnvelope, NdpMessage, NdpOption,
    NdpRepr, NdpView, PrefixInformation, RouterPreference, TimeExceeded, icmpv6,
};
use proptest::prelude::*;
use theirs::icmpv6::{Icmpv6PayloadSlice, NdpOptionSlice, NdpOptionsIterator};
use theirs::{Icmpv4Type, Icmpv6Type};

use crate::bytes;

const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const ENVELOPE: NdpEnvelope = NdpEnvelope { src: SRC, dst: DST, hop_limit: 255 };

/// A message of one of the first types with one of the first codes.
fn message(kinds: impl Strategy<Value = u8>) -> impl Strategy<Value = Vec<u8>> {
    (kinds, 0u8..18, bytes(80)).prop_map(|(kind, code, rest)| [&[kind, code][..], &rest].concat())
}

/// What they call our message, as type and code with the values beside it.
fn named_v4(ours: Option<Icmpv4Repr<'_>>) -> Option<Icmpv4Type> {
    use theirs::icmpv4::{DestUnreachableHeader, ParameterProblemHeader, TimeExceededCode};
    Some(match ours? {
        Icmpv4Repr::EchoRequest { identifier, sequence, .. } => {
            Icmpv4Type::EchoRequest(theirs::IcmpEchoHeader { id: identifier, seq: sequence })
        }
        Icmpv4Repr::EchoReply { identifier, sequence, .. } => {
            Icmpv4Type::EchoReply(theirs::IcmpEchoHeader { id: identifier, seq: sequence })
        }
        Icmpv4Repr::Unreachable { reason, .. } => {
            let next_hop_mtu = match reason {
                Icmpv4Unreachable::FragmentationNeeded { mtu } => mtu,
                _ => 0,
            };
            let header = DestUnreachableHeader::from_values(reason.code(), next_hop_mtu)?;
            Icmpv4Type::DestinationUnreachable(header)
        }
        Icmpv4Repr::TimeExceeded { reason, .. } => Icmpv4Type::TimeExceeded(match reason {
            TimeExceeded::InTransit => TimeExceededCode::TtlExceededInTransit,
            TimeExceeded::InReassembly => TimeExceededCode::FragmentReassemblyTimeExceeded,
        }),
        Icmpv4Repr::Redirect { code, gateway, .. } => Icmpv4Type::Redirect(theirs::icmpv4::RedirectHeader {
            code: theirs::icmpv4::RedirectCode::from_u8(code)?,
            gateway_internet_address: gateway.octets(),
        }),
        Icmpv4Repr::ParameterProblem { code, pointer, .. } => Icmpv4Type::ParameterProblem(match code {
            0 => ParameterProblemHeader::PointerIndicatesError(pointer),
            1 => ParameterProblemHeader::MissingRequiredOption,
            _ => ParameterProblemHeader::BadLength,
        }),
    })
}

proptest! {
    #[test]
    fn icmpv4(bytes in prop_oneof![bytes(12), message(0u8..20)]) {
        let ours = Icmpv4View::parse(&bytes);
        let repr = ours.ok().and_then(|view| Icmpv4Repr::parse(&view).ok());
        let theirs = theirs::Icmpv4Slice::from_slice(&bytes).ok();
        let handled = theirs.as_ref().map(|slice| slice.icmp_type()).filter(|kind| {
            !matches!(kind, Icmpv4Type::Unknown { .. }
                | Icmpv4Type::TimestampRequest(_) | Icmpv4Type::TimestampReply(_))
        });
        prop_assert_eq!(named_v4(repr), handled);
        if let (Some(repr), Ok(view), Some(theirs)) = (repr, ours, theirs) {
            prop_assert_eq!(view.payload(), theirs.payload());
            let mut emitted = vec![0; repr.emitted_len()];
            repr.emit(&mut emitted);
            let read = theirs::Icmpv4Slice::from_slice(&emitted).unwrap();
            prop_assert_eq!(read.icmp_type(), theirs.icmp_type());
            let sum = theirs::checksum::Sum16BitWords::new().add_slice(&emitted);
            prop_assert_eq!(sum.ones_complement(), 0);
        }
    }

    #[test]
    fn icmpv6_messages(bytes in prop_oneof![bytes(12), message(prop_oneof![0u8..6, 127u8..131])]) {
        let ours = Icmpv6View::parse(&bytes);
        let theirs = theirs::Icmpv6Slice::from_slice(&bytes);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        let (Ok(view), Ok(theirs)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!((view.kind(), view.code(), view.checksum()), (theirs.type_u8(), theirs.code_u8(), theirs.checksum()));
        prop_assert_eq!(view.payload(), theirs.payload());
        prop_assert_eq!(view.is_checksum_valid(SRC, DST), theirs.is_checksum_valid(SRC.octets(), DST.octets()));
        let Ok(repr) = Icmpv6Repr::parse(&view) else {
            prop_assert!(matches!(theirs.icmp_type(), Icmpv6Type::Unknown { .. }), "they read more");
            return Ok(());
        };
        match (repr, theirs.icmp_type()) {
            (Icmpv6Repr::EchoRequest { identifier, sequence, .. }, Icmpv6Type::EchoRequest(echo))
            | (Icmpv6Repr::EchoReply { identifier, sequence, .. }, Icmpv6Type::EchoReply(echo)) => {
                prop_assert_eq!((identifier, sequence), (echo.id, echo.seq));
            }
            (Icmpv6Repr::PacketTooBig { mtu: ours, .. }, Icmpv6Type::PacketTooBig { mtu }) => prop_assert_eq!(ours, mtu),
            (Icmpv6Repr::Unreachable { reason, .. }, Icmpv6Type::DestinationUnreachable(code)) => {
                prop_assert_eq!(reason.code(), code.code_u8());
            }
            (Icmpv6Repr::TimeExceeded { reason, .. }, Icmpv6Type::TimeExceeded(code)) => {
                prop_assert_eq!(reason.code(), code.code_u8());
            }
            (Icmpv6Repr::ParameterProblem { code, pointer, .. }, Icmpv6Type::ParameterProblem(header)) => {
                prop_assert_eq!((code, pointer), (header.code.code_u8(), header.pointer));
            }
            // Errors with codes or types that they do not know stay errors for us, as RFC 4443 wants.
            (_, Icmpv6Type::Unknown { type_u8, .. }) => prop_assert!(type_u8 < 128 || type_u8 == 2),
            (Icmpv6Repr::PacketTooBig { .. }, _) => prop_assert!(view.code() != 0),
            (ours, theirs) => prop_assert!(false, "{ours:?} is {theirs:?}"),
        }
        let mut emitted = vec![0; repr.emitted_len()];
        repr.emit(&mut emitted);
        icmpv6::fill_checksum(&mut emitted, SRC, DST);
        let read = theirs::Icmpv6Slice::from_slice(&emitted).unwrap();
        prop_assert!(read.is_checksum_valid(SRC.octets(), DST.octets()));
    }

    /// What we accept they read with the same values, option by option.
    #[test]
    fn neighbour_discovery_read(kind in 133u8..138, head in any::<[u8; 38]>(),
                                options in proptest::collection::vec((0u8..7, 0u8..6, any::<[u8; 40]>()), 0..5)) {
        let mut bytes = [&[kind, 0][..], &head].concat();
        let fixed = match kind { 133 => 8, 134 => 16, 137 => 40, _ => 24 };
        bytes.truncate(fixed);
        for (kind, units, body) in options {
            bytes.extend([kind, units]);
            bytes.extend(&body[..(usize::from(units) * 8).saturating_sub(2)]);
        }
        let payload = theirs::Icmpv6Slice::from_slice(&bytes).unwrap().payload_slice().unwrap();
        let ours = NdpView::parse(&ENVELOPE, &bytes);
        let options = options_of(&payload);
        // They take link-layer addresses of any length; ours are Ethernet's.
        let all_read = options.clone().all(|option| match option {
            Ok(NdpOptionSlice::SourceLinkLayerAddress(address)) => address.link_layer_address().len() == 6,
            Ok(NdpOptionSlice::TargetLinkLayerAddress(address)) => address.link_layer_address().len() == 6,
            other => other.is_ok(),
        });
        if let Ok(ours) = &ours {
            prop_assert!(fixed_part_equal(ours.message(), &payload, &bytes));
            prop_assert!(all_read, "we accept only what they can read");
            for (ours, theirs) in ours.options().zip(options.clone()) {
                prop_assert!(option_equal(&ours, &theirs.unwrap()), "{:?}", ours);
            }
            prop_assert_eq!(ours.options().count(), options.count());
        } else if let Err(firelane_wire::NdpError::OptionLength) = ours {
            prop_assert!(!all_read);
        }
    }

    #[test]
    fn neighbour_discovery_emitted(target: [u8; 16], flags in any::<[bool; 3]>(), mac: [u8; 6], mtu: u32,
                                   times in any::<(u16, u32, u32)>(), prefix: [u8; 16], prefix_len in 0u8..=128) {
        let target = Ipv6Addr::from(target);
        let [router, solicited, replace] = flags;
        let (valid, preferred) = (Duration::from_secs(u64::from(times.1)), Duration::from_secs(u64::from(times.2)));
        let prefix = PrefixInformation {
            prefix: prefix.into(), prefix_len, on_link: router, autonomous: solicited, valid, preferred,
        };
        let options = [NdpOption::SourceLinkLayer(MacAddr(mac)), NdpOption::Mtu(mtu), NdpOption::Prefix(prefix),
            NdpOption::Redirected(&[0x60; 48]), NdpOption::TargetLinkLayer(MacAddr(mac)), NdpOption::Nonce(&[7; 6])];
        for message in [
            NdpMessage::RouterSolicit,
            NdpMessage::RouterAdvert {
                hop_limit: times.0 as u8, managed: router, other: solicited, preference: RouterPreference::High,
                lifetime: Duration::from_secs(u64::from(times.0)),
                reachable: Duration::from_millis(u64::from(times.1)),
                retransmit: Duration::from_millis(u64::from(times.2)),
            },
            NdpMessage::NeighbourSolicit { target },
            NdpMessage::NeighbourAdvert { target, router, solicited, replace },
            NdpMessage::Redirect { target, destination: DST },
        ] {
            let repr = NdpRepr { message, options: &options };
            let mut bytes = vec![0xee; repr.emitted_len()];
            repr.emit(&mut bytes);
            icmpv6::fill_checksum(&mut bytes, SRC, DST);
            let slice = theirs::Icmpv6Slice::from_slice(&bytes).unwrap();
            prop_assert!(slice.is_checksum_valid(SRC.octets(), DST.octets()) || slice.checksum() == 0xffff);
            let payload = slice.payload_slice().unwrap();
            prop_assert!(fixed_part_equal(message, &payload, &bytes));
            let read: Vec<_> = options_of(&payload).map(|option| option.unwrap()).collect();
            prop_assert_eq!(read.len(), options.len());
            for (ours, theirs) in options.iter().zip(&read) {
                prop_assert!(option_equal(ours, theirs), "{:?}", ours);
            }
        }
    }
}

fn options_of<'a>(payload: &Icmpv6PayloadSlice<'a>) -> NdpOptionsIterator<'a> {
    match payload {
        Icmpv6PayloadSlice::RouterSolicitation(message) => message.options_iterator(),
        Icmpv6PayloadSlice::RouterAdvertisement(message) => message.options_iterator(),
        Icmpv6PayloadSlice::NeighborSolicitation(message) => message.options_iterator(),
        Icmpv6PayloadSlice::NeighborAdvertisement(message) => message.options_iterator(),
        Icmpv6PayloadSlice::Redirect(message) => message.options_iterator(),
        other => panic!("no neighbour discovery: {other:?}"),
    }
}

fn fixed_part_equal(ours: NdpMessage, theirs: &Icmpv6PayloadSlice<'_>, bytes: &[u8]) -> bool {
    let kind = theirs::Icmpv6Slice::from_slice(bytes).expect("read before").icmp_type();
    match (ours, theirs, kind) {
        (
            NdpMessage::RouterSolicit,
            Icmpv6PayloadSlice::RouterSolicitation(_),
            Icmpv6Type::RouterSolicitation,
        ) => true,
        (
            NdpMessage::RouterAdvert { hop_limit, managed, other, lifetime, reachable, retransmit, .. },
            Icmpv6PayloadSlice::RouterAdvertisement(theirs),
            Icmpv6Type::RouterAdvertisement(header),
        ) => {
            hop_limit == header.cur_hop_limit
                && managed == header.managed_address_config
                && other == header.other_config
                && lifetime.as_secs() == u64::from(header.router_lifetime)
                && reachable.as_millis() == u128::from(theirs.reachable_time())
                && retransmit.as_millis() == u128::from(theirs.retrans_timer())
        }
        (
            NdpMessage::NeighbourSolicit { target },
            Icmpv6PayloadSlice::NeighborSolicitation(theirs),
            Icmpv6Type::NeighborSolicitation,
        ) => target == theirs.target_address(),
        (
            NdpMessage::NeighbourAdvert { target, router, solicited, replace },
            Icmpv6PayloadSlice::NeighborAdvertisement(theirs),
            Icmpv6Type::NeighborAdvertisement(header),
        ) => {
            target == theirs.target_address()
                && (router, solicited, replace) == (header.router, header.solicited, header.r#override)
        }
        (
            NdpMessage::Redirect { target, destination },
            Icmpv6PayloadSlice::Redirect(theirs),
            Icmpv6Type::Redirect,
        ) => target == theirs.target_address() && destination == theirs.destination_address(),
        _ => false,
    }
}

fn option_equal(ours: &NdpOption<'_>, theirs: &NdpOptionSlice<'_>) -> bool {
    match (ours, theirs) {
        (NdpOption::SourceLinkLayer(mac), NdpOptionSlice::SourceLinkLayerAddress(theirs)) => {
            mac.0[..] == *theirs.link_layer_address()
        }
        (NdpOption::TargetLinkLayer(mac), NdpOptionSlice::TargetLinkLayerAddress(theirs)) => {
            mac.0[..] == *theirs.link_layer_address()
        }
        (NdpOption::Prefix(ours), NdpOptionSlice::PrefixInformation(theirs)) => {
            ours.prefix.octets() == theirs.prefix()
                && ours.prefix_len == theirs.prefix_length()
                && ours.on_link == theirs.on_link()
                && ours.autonomous == theirs.autonomous_address_configuration()
                && ours.valid.as_secs() == u64::from(theirs.valid_lifetime())
                && ours.preferred.as_secs() == u64::from(theirs.preferred_lifetime())
        }
        (NdpOption::Redirected(quoted), NdpOptionSlice::RedirectedHeader(theirs)) => {
            *quoted == theirs.redirected_packet()
        }
        (NdpOption::Mtu(mtu), NdpOptionSlice::Mtu(theirs)) => *mtu == theirs.mtu(),
        (NdpOption::Nonce(body), NdpOptionSlice::Unknown(theirs)) => {
            theirs.option_type().0 == 14 && *body == theirs.data()
        }
        (NdpOption::Route(route), NdpOptionSlice::Unknown(theirs)) => {
            theirs.option_type().0 == 24 && theirs.data()[0] == route.prefix_len
        }
        (NdpOption::DnsSearch { names, .. }, NdpOptionSlice::Unknown(theirs)) => {
            theirs.option_type().0 == 31 && theirs.data()[6..] == **names
        }
        (NdpOption::Other(kind, body), NdpOptionSlice::Unknown(theirs)) => {
            *kind == theirs.option_type().0 && *body == theirs.data()
        }
        _ => false,
    }
}
