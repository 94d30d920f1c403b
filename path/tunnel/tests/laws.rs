//! What goes into a tunnel comes out of it at the other end, and what is wrong with a packet has its reason.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_tunnel::{
    Arrived, Config, Gre, Inner, Kind, NESTED_MAX, Outer, Refusal, Refused, Tunnels, set_ecn,
};
use firelane_units::{DropReason, LinkId, Mtu};
use firelane_wire::{Ecn, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View};
use proptest::prelude::*;

const LINK: LinkId = LinkId(7);

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn v6(last: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()
}

fn config(kind: Kind, is_v4: bool) -> Config {
    let end = |n: u8| if is_v4 { v4(n) } else { v6(n.into()) };
    Config { link: LINK, kind, local: end(1), remote: end(2), hops: 64, limit: Some(4) }
}

/// The tunnels of both ends.
fn ends(config: Config) -> [Tunnels; 2] {
    let mut both = [Tunnels::default(), Tunnels::default()];
    assert!(both[0].set(config));
    assert!(both[1].set(Config { local: config.remote, remote: config.local, ..config }));
    both
}

fn packet_v4(len: usize, dont_fragment: bool, ecn: Ecn) -> Vec<u8> {
    let mut bytes = vec![0xa5; 20 + len];
    let base = Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, len as u16);
    Ipv4Repr { dont_fragment, ecn, dscp: 10, ..base }.emit(&mut bytes);
    bytes
}

fn packet_v6(len: usize, ecn: Ecn) -> Vec<u8> {
    let mut bytes = vec![0xa5; 40 + len];
    let [src, dst] = ["fd00::1", "fd00::2"].map(|text| text.parse().unwrap());
    Ipv6Repr { ecn, dscp: 10, ..Ipv6Repr::new(src, dst, IpProtocol::UDP, len as u16) }.emit(&mut bytes);
    bytes
}

/// What the other end gets: the header in front, then the packet.
fn payload(outer: &Outer, packet: &[u8]) -> Vec<u8> {
    [outer.head(), &packet[..outer.len]].concat()
}

/// What is behind the destination options, as IP finds it.
fn behind_options(outer: &Outer, bytes: &[u8]) -> (IpProtocol, Vec<u8>) {
    match outer.protocol {
        IpProtocol::DESTINATION_OPTIONS => (IpProtocol(bytes[0]), bytes[8..].to_vec()),
        protocol => (protocol, bytes.to_vec()),
    }
}

fn arrive(
    end: &mut Tunnels,
    sender: &Config,
    outer: &Outer,
    bytes: &[u8],
    ecn: Ecn,
) -> Result<Inner, Refused> {
    let (protocol, payload) = behind_options(outer, bytes);
    let arrived = Arrived { protocol, src: sender.local, dst: outer.remote, ecn, payload: &payload };
    end.decapsulate(&arrived)
}

fn kinds() -> impl Strategy<Value = Config> {
    let gre = (any::<Option<u32>>(), any::<bool>(), any::<bool>())
        .prop_map(|(key, checksum, sequence)| Kind::Gre(Gre { key, checksum, sequence }));
    let kind = prop_oneof![Just(Kind::Ip), gre];
    (kind, any::<bool>(), any::<bool>()).prop_map(|(kind, is_v4, has_limit)| {
        let config = config(kind, is_v4);
        Config { limit: config.limit.filter(|_| has_limit), ..config }
    })
}

fn packets() -> impl Strategy<Value = Vec<u8>> {
    let ecn = (0u8..4).prop_map(Ecn::from_bits);
    (any::<bool>(), 0usize..1300, any::<bool>(), ecn).prop_map(|(is_v4, len, dont_fragment, ecn)| match is_v4
    {
        true => packet_v4(len, dont_fragment, ecn),
        false => packet_v6(len, ecn),
    })
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(config in kinds(), packet in packets(), padding in 0usize..30) {
        let [mut near, mut far] = ends(config);
        let padded = [&packet[..], &vec![0; padding]].concat();
        let outer = near.encapsulate(LINK, &padded, Mtu::ETHERNET).unwrap();
        prop_assert_eq!(outer.len, packet.len());
        let outside = if config.local.is_ipv4() { 20 } else { 40 };
        prop_assert!(outer.head().len() + outside <= config.overhead());
        let bytes = payload(&outer, &packet);
        let inner = arrive(&mut far, &config, &outer, &bytes, outer.ecn).unwrap();
        let (_, behind) = behind_options(&outer, &bytes);
        prop_assert_eq!(&behind[inner.at..inner.at + inner.len], &packet[..]);
        prop_assert_eq!((inner.link, inner.ecn, inner.is_v4), (LINK, None, packet[0] >> 4 == 4));
        // To somebody else who has no tunnel it is an unknown protocol, and from somebody else it is a stranger's.
        prop_assert_eq!(arrive(&mut Tunnels::default(), &config, &outer, &bytes, outer.ecn), Err(Refused::NoTunnel));
        let stranger = Config { local: if config.local.is_ipv4() { v4(9) } else { v6(9) }, ..config };
        let refused = Err(Refused::Drop(DropReason::TunnelStranger));
        prop_assert_eq!(arrive(&mut far, &stranger, &outer, &bytes, outer.ecn), refused);
    }

    #[test]
    fn damage_is_never_more_than_a_refusal(config in kinds(), packet in packets(), cut in 0usize..80,
                                           at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let [mut near, mut far] = ends(config);
        let outer = near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap();
        let mut bytes = payload(&outer, &packet);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        bytes.truncate(bytes.len().saturating_sub(cut).max(8));
        let (_, behind) = behind_options(&outer, &bytes);
        if let Ok(inner) = arrive(&mut far, &config, &outer, &bytes, outer.ecn) {
            prop_assert!(inner.at + inner.len <= behind.len());
            prop_assert_eq!(behind[inner.at] >> 4 == 4, inner.is_v4);
        }
    }

    #[test]
    fn anything_may_arrive(config in kinds(), protocol in prop::sample::select(vec![4u8, 41, 47]),
                           payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let [_, mut far] = ends(config);
        let (src, dst, ecn) = (config.local, config.remote, Ecn::Congested);
        let arrived = Arrived { protocol: IpProtocol(protocol), src, dst, ecn, payload: &payload };
        if let Ok(inner) = far.decapsulate(&arrived) {
            prop_assert!(inner.at + inner.len <= payload.len());
        }
        let _ = far.encapsulate(LINK, &payload, Mtu::ETHERNET);
    }

    #[test]
    fn a_checksum_finds_a_changed_bit(key in any::<Option<u32>>(), packet in packets(),
                                      at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let config = config(Kind::Gre(Gre { key, checksum: true, sequence: false }), true);
        let [mut near, mut far] = ends(config);
        let outer = near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap();
        let mut bytes = payload(&outer, &packet);
        let head = outer.head().len();
        let at = head + at.index(bytes.len() - head);
        bytes[at] ^= 1 << bit;
        let refused = Err(Refused::Drop(DropReason::GreChecksum));
        prop_assert_eq!(arrive(&mut far, &config, &outer, &bytes, outer.ecn), refused);
    }
}

#[test]
fn mtu_and_fragments() {
    let small = Mtu::new(1300).unwrap();
    let [mut near, _] = ends(config(Kind::Ip, true));
    let mut go = |packet: &[u8], path| near.encapsulate(LINK, packet, path).map(|outer| outer.dont_fragment);
    let too_big = |bytes| Err(Refusal::TooBig(Mtu::new(bytes).unwrap()));
    let not = Ecn::NotCapable;
    // RFC 2003 §3.1: DF is copied; what may be cut enters, and is cut outside.
    assert_eq!(go(&packet_v4(1260, true, not), small), Ok(true));
    assert_eq!(go(&packet_v4(1261, true, not), small), too_big(1280));
    assert_eq!(go(&packet_v4(1460, false, not), small), Ok(false));
    // RFC 4213 §3.2.2: 1280 bytes enter in any case.
    assert_eq!(go(&packet_v6(1240, not), small), Ok(false));
    assert_eq!(go(&packet_v6(1241, not), small), too_big(1280));
    assert_eq!(go(&packet_v6(1440, not), Mtu::ETHERNET), Ok(true));
    assert_eq!(go(&packet_v6(1441, not), Mtu::ETHERNET), too_big(1480));
    let least = Mtu::new(576).unwrap();
    assert_eq!(go(&packet_v6(1240, not), least), Ok(false));
    assert_eq!(go(&packet_v6(1241, not), least), too_big(1280));
    assert_eq!(go(&packet_v4(556, true, not), least), Ok(false));
    assert_eq!(go(&packet_v4(557, true, not), least), too_big(576));
}

#[test]
fn marks_go_in_and_come_out() {
    let config = config(Kind::Ip, false);
    let [mut near, mut far] = ends(config);
    for (inner, outer_mark, behind) in [
        (Ecn::Capable0, Ecn::Congested, Ok(Some(Ecn::Congested))),
        (Ecn::Capable0, Ecn::Capable1, Ok(Some(Ecn::Capable1))),
        (Ecn::Capable1, Ecn::Capable0, Ok(None)),
        (Ecn::Congested, Ecn::NotCapable, Ok(None)),
        (Ecn::NotCapable, Ecn::Capable0, Ok(None)),
        (Ecn::NotCapable, Ecn::Congested, Err(Refused::Drop(DropReason::TunnelCongested))),
    ] {
        let mut packet = packet_v4(100, true, inner);
        let outer = near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap();
        assert_eq!((outer.ecn, outer.dscp, outer.hops), (inner, 10, 64));
        let bytes = payload(&outer, &packet);
        let found = arrive(&mut far, &config, &outer, &bytes, outer_mark).map(|inner| inner.ecn);
        assert_eq!(found, behind, "{inner:?} in {outer_mark:?}");
        if let Ok(Some(ecn)) = found {
            set_ecn(&mut packet, ecn);
            let view = Ipv4View::parse(&packet).unwrap();
            assert!(view.is_checksum_valid() && view.ecn() == ecn);
        }
    }
}

#[test]
fn gre_names_numbers_and_sums() {
    let with = |key, checksum, sequence| config(Kind::Gre(Gre { key, checksum, sequence }), true);
    let packet = packet_v4(40, true, Ecn::NotCapable);
    let ends_with = |there: Config, here: Config| {
        let [mut near, _] = ends(there);
        let [_, mut far] = ends(here);
        let outer = near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap();
        arrive(&mut far, &there, &outer, &payload(&outer, &packet), Ecn::NotCapable).map(|inner| inner.at)
    };
    let refused = |reason| Err(Refused::Drop(reason));
    assert_eq!(ends_with(with(None, false, false), with(None, false, false)), Ok(4));
    assert_eq!(ends_with(with(Some(7), true, true), with(Some(7), true, true)), Ok(16));
    assert_eq!(ends_with(with(Some(7), true, true), with(Some(7), false, false)), Ok(16));
    assert_eq!(
        ends_with(with(Some(7), false, false), with(Some(8), false, false)),
        refused(DropReason::TunnelStranger)
    );
    assert_eq!(
        ends_with(with(Some(0), false, false), with(None, false, false)),
        refused(DropReason::TunnelStranger)
    );
    assert_eq!(
        ends_with(with(None, false, false), with(None, true, false)),
        refused(DropReason::GreChecksum)
    );
    assert_eq!(ends_with(with(None, false, false), with(None, false, true)), refused(DropReason::GreOrder));
}

#[test]
fn what_is_late_ends() {
    let config = config(Kind::Gre(Gre { key: None, checksum: false, sequence: true }), false);
    let [mut near, mut far] = ends(config);
    let packet = packet_v4(40, true, Ecn::NotCapable);
    let sent: Vec<_> = (0..4).map(|_| near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap()).collect();
    let mut get =
        |outer: &Outer| arrive(&mut far, &config, outer, &payload(outer, &packet), Ecn::NotCapable).is_ok();
    assert!(get(&sent[0]) && get(&sent[2]));
    assert!(!get(&sent[1]) && !get(&sent[2]), "one is late, one comes again");
    assert!(get(&sent[3]));
    // A tunnel that is changed goes on counting, one of another name does not.
    assert!(near.set(Config { hops: 9, ..config }));
    assert_eq!(near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap().head()[12..16], [0, 0, 0, 4]);
    assert!(near.set(Config { remote: v6(3), ..config }));
    assert_eq!(near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap().head()[12..16], [0; 4]);
}

#[test]
fn six_to_four_goes_where_the_address_says() {
    let config = config(Kind::SixToFour, true);
    let mut tunnels = Tunnels::default();
    assert!(tunnels.set(config));
    let make = |src: &str, dst: &str| {
        let mut bytes = vec![0; 48];
        Ipv6Repr::new(src.parse().unwrap(), dst.parse().unwrap(), IpProtocol::UDP, 8).emit(&mut bytes);
        bytes
    };
    // 192.0.2.1 here, 198.51.100.7 there.
    let (here, there) = ("2002:c000:0201::1", "2002:c633:6407::1");
    let outer = tunnels.encapsulate(LINK, &make(here, there), Mtu::ETHERNET).unwrap();
    assert_eq!((outer.remote, outer.protocol), (Ipv4Addr::new(198, 51, 100, 7).into(), IpProtocol::IPV6));
    for dst in ["2001:db8::1", "2002:7f00:1::1", "2002:e000:1::1", "2002::1", "2002:a9fe:1::1"] {
        let refused = tunnels.encapsulate(LINK, &make(here, dst), Mtu::ETHERNET);
        assert_eq!(refused, Err(Refusal::Drop(DropReason::TunnelAddress)), "{dst}");
    }
    let of_v4 = packet_v4(8, true, Ecn::NotCapable);
    assert_eq!(
        tunnels.encapsulate(LINK, &of_v4, Mtu::ETHERNET),
        Err(Refusal::Drop(DropReason::TunnelAddress))
    );
    let mut get = |src: &str, dst: &str, from: [u8; 4]| {
        let payload = make(src, dst);
        let (protocol, ecn) = (IpProtocol::IPV6, Ecn::NotCapable);
        let arrived =
            Arrived { protocol, src: Ipv4Addr::from(from).into(), dst: v4(1), ecn, payload: &payload };
        tunnels.decapsulate(&arrived).map(|inner| inner.len)
    };
    assert_eq!(get(there, here, [198, 51, 100, 7]), Ok(48));
    let refused = Err(Refused::Drop(DropReason::TunnelStranger));
    assert_eq!(get(there, here, [198, 51, 100, 8]), refused);
    assert_eq!(get("2001:db8::1", here, [198, 51, 100, 7]), refused, "a relay's");
    assert_eq!(get(there, "2001:db8::1", [198, 51, 100, 7]), refused);
}

#[test]
fn a_circle_of_tunnels_ends() {
    for (is_v4, limit) in [(true, None), (false, None), (false, Some(4))] {
        let config = Config { limit, ..config(Kind::Ip, is_v4) };
        let [mut near, _] = ends(config);
        let mut packet = packet_v6(8, Ecn::NotCapable);
        let mut entered = 0;
        let refusal = loop {
            let outer = match near.encapsulate(LINK, &packet, Mtu::ETHERNET) {
                Ok(outer) => outer,
                Err(refusal) => break refusal,
            };
            entered += 1;
            assert!(entered < 20, "it goes round without end");
            let payload = payload(&outer, &packet);
            packet = match (config.local, config.remote) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => {
                    let mut header = [0; 20];
                    Ipv4Repr::new(src, dst, outer.protocol, payload.len() as u16).emit(&mut header);
                    [&header[..], &payload].concat()
                }
                (IpAddr::V6(src), IpAddr::V6(dst)) => {
                    let mut header = [0; 40];
                    Ipv6Repr::new(src, dst, outer.protocol, payload.len() as u16).emit(&mut header);
                    [&header[..], &payload].concat()
                }
                _ => unreachable!("both ends are of one family"),
            };
        };
        assert_eq!(entered, NESTED_MAX);
        assert_eq!(refusal, Refusal::Drop(DropReason::TunnelNested));
    }
}

#[test]
fn a_limit_that_is_reached_is_told() {
    let limited = |limit| Config { limit: Some(limit), ..config(Kind::Ip, false) };
    let [mut near, _] = ends(limited(0));
    let packet = packet_v6(8, Ecn::NotCapable);
    let outer = near.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap();
    assert_eq!(outer.head(), [41, 0, 4, 1, 0, 1, 1, 0], "RFC 2473 §4.1.1, §5.1");
    let payload = payload(&outer, &packet);
    let mut outside = vec![0; 40];
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (v6(1), v6(2)) else { unreachable!("they are IPv6") };
    Ipv6Repr::new(src, dst, outer.protocol, payload.len() as u16).emit(&mut outside);
    outside.extend(payload);
    assert!(Ipv6View::parse(&outside).is_ok());
    let again = near.encapsulate(LINK, &outside, Mtu::ETHERNET);
    assert_eq!(again, Err(Refusal::LimitReached(44)), "the byte of the option's value");
    let [mut other, _] = ends(limited(9));
    outside[44] = 3;
    assert_eq!(
        other.encapsulate(LINK, &outside, Mtu::ETHERNET).unwrap().head()[4],
        2,
        "one less than inside"
    );
}

/// RFC 2473 §4.1.1: a limit that a packet carries goes on, one less, also where the tunnel says none itself; over IPv4 there is no place.
#[test]
fn a_limit_is_handed_on_by_tunnels_that_say_none() {
    let [mut first, _] = ends(Config { limit: Some(2), ..config(Kind::Ip, false) });
    let inside = packet_v6(1300, Ecn::NotCapable);
    let outer = first.encapsulate(LINK, &inside, Mtu::ETHERNET).unwrap();
    let payload = payload(&outer, &inside);
    let mut packet = vec![0; 40];
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (v6(1), v6(2)) else { unreachable!("they are IPv6") };
    Ipv6Repr::new(src, dst, outer.protocol, payload.len() as u16).emit(&mut packet);
    packet.extend(payload);
    for (kind, head) in [(Kind::Ip, 8), (Kind::Gre(Gre::default()), 12)] {
        let [mut next, _] = ends(Config { limit: None, ..config(kind, false) });
        let outer = next.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap();
        assert_eq!((outer.head().len(), &outer.head()[1..6]), (head, &[0, 4, 1, 1, 1][..]), "{kind:?}");
        let path = |room: usize| Mtu::new((40 + head + room) as u16).unwrap();
        assert!(next.encapsulate(LINK, &packet, path(packet.len())).is_ok());
        let narrow = next.encapsulate(LINK, &packet, path(packet.len() - 1));
        assert!(matches!(narrow, Err(Refusal::TooBig(_))), "{narrow:?}");
        assert_eq!(next.encapsulate(LINK, &inside, Mtu::ETHERNET).unwrap().head().len(), head - 8);
    }
    let [mut next, _] = ends(Config { limit: None, ..config(Kind::Ip, true) });
    assert_eq!(next.encapsulate(LINK, &packet, Mtu::ETHERNET).unwrap().head(), []);
}

#[test]
fn two_tunnels_of_one_name_are_refused() {
    let mut tunnels = Tunnels::default();
    let first = config(Kind::Ip, true);
    assert!(tunnels.set(first));
    assert!(!tunnels.set(Config { link: LinkId(8), hops: 1, ..first }));
    assert!(tunnels.set(Config { link: LinkId(8), kind: Kind::Gre(Gre::default()), ..first }));
    let keyed = Gre { key: Some(1), ..Gre::default() };
    assert!(tunnels.set(Config { link: LinkId(9), kind: Kind::Gre(keyed), ..first }));
    tunnels.remove(LINK);
    assert!(tunnels.get(LINK).is_none() && tunnels.iter().count() == 2 && !tunnels.is_empty());
    assert!(tunnels.set(Config { link: LinkId(10), ..first }));
}

/// RFC 2473 §4.1: what is cut outside goes round as its first piece, which is cut again each time, in a circle of tunnels.
#[test]
fn what_is_cut_outside_goes_round_no_longer_than_what_is_whole() {
    for (is_v4, limit) in [(true, None), (false, None), (false, Some(1)), (false, Some(255))] {
        let [mut near, _] = ends(Config { limit, ..config(Kind::Ip, is_v4) });
        let mut packet =
            if is_v4 { packet_v4(1460, false, Ecn::NotCapable) } else { packet_v6(1240, Ecn::NotCapable) };
        let path = Mtu::new(packet.len() as u16).unwrap();
        for round in 0.. {
            assert!(round < 20, "it goes round without end");
            let outer = match near.encapsulate(LINK, &packet, path) {
                Ok(outer) => outer,
                Err(refusal) => {
                    let expected = match limit {
                        // Behind the outer header, that of the piece, and the first bytes of the options.
                        Some(1) => (Refusal::LimitReached(40 + 8 + 4), 2),
                        _ => (Refusal::Drop(DropReason::TunnelNested), NESTED_MAX),
                    };
                    assert_eq!((refusal, round), expected);
                    break;
                }
            };
            let mut part = payload(&outer, &packet);
            let head = if is_v4 { 20 } else { 40 + 8 };
            part.truncate((packet.len() - head) / 8 * 8);
            packet = if is_v4 { first_piece_v4(&outer, &part) } else { first_piece_v6(&outer, &part) };
        }
    }
}

fn first_piece_v4(outer: &Outer, part: &[u8]) -> Vec<u8> {
    let base = Ipv4Repr::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), outer.protocol, part.len() as u16);
    let mut head = [0; 20];
    Ipv4Repr { more_fragments: true, dont_fragment: outer.dont_fragment, ..base }.emit(&mut head);
    [&head[..], part].concat()
}

fn first_piece_v6(outer: &Outer, part: &[u8]) -> Vec<u8> {
    let [src, dst] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
    let mut head = [0; 40];
    Ipv6Repr::new(src, dst, IpProtocol::FRAGMENT, (8 + part.len()) as u16).emit(&mut head);
    [&head[..], &[outer.protocol.0, 0, 0, 1, 0, 0, 0, 7], part].concat()
}
