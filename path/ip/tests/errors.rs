//! ICMP messages received, and errors about packets of others (conformance C01 to C03, C06).
//!
//! C07, the limiter that cannot be read from outside, is with the limiter in `icmp_limit.rs`.

use crate::common;
use crate::craft;

use core::net::IpAddr;
use core::time::Duration;

use common::{Station, ip};
use craft::*;
use firelane_ip::{ErrorKind, IfConfig, IpEvent, QuotedText, Said, TransportError};
use firelane_units::{DropReason, LinkId, Mtu, Port, SeqNum};
use firelane_wire::{IpProtocol, Ipv4Repr, Ipv6Repr};

#[test]
fn c01_messages_that_are_too_short_unknown_or_damaged() {
    let frame = |message: &[u8]| v4(&header_v4(IpProtocol::ICMPV4), message);
    for len in 0..8 {
        let message = icmpv4_message(8, 0, &[0; 4]);
        assert_silent_drop("short", &frame(&message[..len]), DropReason::BadIcmp);
    }
    let mut damaged = icmpv4_message(8, 0, b"\0\x01\0\x02hello");
    damaged[10] ^= 0x10;
    assert_silent_drop("damaged", &frame(&damaged), DropReason::BadIcmp);
    // Source quench (RFC 6633), redirect (C05), timestamp and mask (RFC 6918).
    for kind in [1, 2, 4, 5, 6, 7, 9, 10, 13, 14, 15, 16, 17, 18, 30, 255] {
        let message = icmpv4_message(kind, 0, &[0; 60]);
        assert_silent_drop(&format!("type {kind}"), &frame(&message), DropReason::BadIcmp);
    }
    for kind in [138, 139, 140, 141, 142, 151, 160, 200, 255] {
        let message = icmpv6_message(ATTACKER_V6, VICTIM_V6, kind, 0, &[0; 60]);
        let frame = v6(&header_v6(IpProtocol::ICMPV6), &message);
        assert_silent_drop(&format!("ICMPv6 type {kind}"), &frame, DropReason::BadIcmp);
    }
}

/// A TCP segment of the victim's, as an error quotes it: a header, and the first bytes behind.
fn quoted_v4(src: &str, dst: &str, behind: &[u8]) -> Vec<u8> {
    let header =
        Ipv4Repr { src: src.parse().unwrap(), dst: dst.parse().unwrap(), ..header_v4(IpProtocol::TCP) };
    v4(&header, behind)[L3..].to_vec()
}

/// The first eight bytes of a TCP header.
const SEGMENT: [u8; 8] = [0, 80, 0x1f, 0x90, 0x11, 0x22, 0x33, 0x44];

fn error_v4(kind: u8, code: u8, rest: u32, quoted: &[u8]) -> Vec<u8> {
    let body = [&rest.to_be_bytes()[..], quoted].concat();
    v4(&header_v4(IpProtocol::ICMPV4), &icmpv4_message(kind, code, &body))
}

fn error_v6(kind: u8, code: u8, rest: u32, quoted: &[u8]) -> Vec<u8> {
    let body = [&rest.to_be_bytes()[..], quoted].concat();
    let message = icmpv6_message(ATTACKER_V6, VICTIM_V6, kind, code, &body);
    v6(&header_v6(IpProtocol::ICMPV6), &message)
}

/// The error that a frame made known, if it did.
fn told(frame: &[u8]) -> Option<TransportError> {
    let mut station = victim();
    let outcome = give(&mut station, frame);
    assert!(outcome.sent.is_empty(), "an error is not answered");
    match station.events[..] {
        [] => None,
        [IpEvent::TransportError(error)] => Some(error),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn errors_about_our_packets_are_told_with_what_the_transport_needs_to_judge_them() {
    use ErrorKind::*;
    let quoted = quoted_v4("10.0.0.2", "192.0.2.7", &SEGMENT);
    for (kind, code, expected) in [
        (3, 0, NetworkUnreachable),
        (3, 1, HostUnreachable),
        (3, 2, ProtocolUnreachable),
        (3, 3, PortUnreachable),
        (3, 5, HostUnreachable),
        (3, 9, Prohibited),
        (3, 10, Prohibited),
        (3, 13, Prohibited),
        (11, 0, TimeExceeded),
        (11, 1, TimeExceeded),
        (12, 0, ParameterProblem),
    ] {
        let error = told(&error_v4(kind, code, 0, &quoted)).unwrap_or_else(|| panic!("{kind} {code}"));
        let expected = TransportError {
            protocol: IpProtocol::TCP,
            src: ip("10.0.0.2"),
            dst: ip("192.0.2.7"),
            ports: (Port(80), Port(8080)),
            seq: Some(SeqNum(0x1122_3344)),
            kind: expected,
            said: Said {
                from: error.said.from,
                link: error.said.link,
                hops: error.said.hops,
                tos: 0,
                icmp: [kind, code],
                rest: 0,
                text: QuotedText::of(&SEGMENT),
            },
        };
        assert_eq!(error, expected, "type {kind}, code {code}");
        assert_eq!((error.said.from, error.said.hops), (ATTACKER_V4.into(), 64), "as the attacker sent it");
    }
    let header = Ipv6Repr::new(VICTIM_V6, "2001:db8::7".parse().unwrap(), IpProtocol::TCP, 0);
    let quoted = v6(&header, &SEGMENT)[L3..].to_vec();
    for (kind, code, expected) in [
        (1, 0, NetworkUnreachable),
        (1, 1, Prohibited),
        (1, 3, HostUnreachable),
        (1, 4, PortUnreachable),
        (2, 0, TooBig { mtu: Mtu::new(1280).unwrap() }),
        (3, 0, TimeExceeded),
        (4, 0, ParameterProblem),
        (4, 1, ProtocolUnreachable),
    ] {
        let error = told(&error_v6(kind, code, 0, &quoted)).unwrap_or_else(|| panic!("{kind} {code}"));
        assert_eq!(error.kind, expected, "ICMPv6 type {kind}, code {code}");
        assert_eq!((error.ports, error.seq), ((Port(80), Port(8080)), Some(SeqNum(0x1122_3344))));
    }
}

#[test]
fn c02_errors_that_cannot_be_about_our_packets_are_dropped() {
    let whole = quoted_v4("10.0.0.2", "192.0.2.7", &SEGMENT);
    let mut later_piece = whole.clone();
    later_piece[7] = 1;
    let mut other_version = whole.clone();
    other_version[0] = 0x65;
    let mut header_too_long = whole.clone();
    header_too_long[0] = 0x4f;
    for (name, quoted) in [
        ("nothing", &[][..]),
        ("a byte", &whole[..1]),
        ("half a header", &whole[..19]),
        ("no ports", &whole[..20]),
        ("half the ports", &whole[..23]),
        ("a later piece, which has no ports", &later_piece),
        ("another version", &other_version),
        ("a header that is longer than the quote", &header_too_long),
        ("from somebody else", &quoted_v4("10.0.0.3", "192.0.2.7", &SEGMENT)),
        ("from the attacker", &quoted_v4("10.0.0.9", "10.0.0.2", &SEGMENT)),
        ("from nobody", &quoted_v4("0.0.0.0", "192.0.2.7", &SEGMENT)),
    ] {
        for (kind, code) in [(3, 1), (3, 4), (11, 0), (12, 0)] {
            let frame = error_v4(kind, code, 0x0000_0500, quoted);
            assert_silent_drop(name, &frame, DropReason::BadIcmp);
        }
    }
}

#[test]
fn c02_an_error_that_quotes_another_protocol_has_no_effect() {
    for protocol in [IpProtocol::ICMPV4, IpProtocol(200)] {
        let header = Ipv4Repr { src: VICTIM_V4, dst: "192.0.2.7".parse().unwrap(), ..header_v4(protocol) };
        let quoted = v4(&header, &[0; 8])[L3..].to_vec();
        assert_eq!(told(&error_v4(3, 3, 0, &quoted)), None, "{protocol:?}");
    }
}

#[test]
fn c03_an_mtu_is_within_reason_and_only_a_transport_makes_it_believed() {
    let quoted = quoted_v4("10.0.0.2", "10.0.0.9", &[&SEGMENT[..], &[0; 1400]].concat());
    for (claimed, told_mtu) in [(1400, 1400), (1000, 1000), (575, 576), (68, 576), (1, 576), (0, 1006)] {
        let error = told(&error_v4(3, 4, claimed, &quoted)).unwrap();
        assert_eq!(error.kind, ErrorKind::TooBig { mtu: Mtu::new(told_mtu).unwrap() }, "{claimed}");
    }
    let mut station = victim();
    give(&mut station, &error_v4(3, 4, 1000, &quoted));
    assert_eq!(station.ip.path_mtu(ip("10.0.0.9")), Some(Mtu::ETHERNET), "hearsay");
    let cached = station.ip.egress(NOW, None, ip("10.0.0.9")).unwrap();
    station.events.clear();
    station.ip.confirm_path_mtu(NOW, ip("10.0.0.9"), Mtu::new(1000).unwrap());
    assert!(!station.ip.is_current(&cached));
    let mtu = |station: &Station, dst: &str| station.ip.path_mtu(ip(dst)).unwrap().bytes();
    assert_eq!((mtu(&station, "10.0.0.9"), mtu(&station, "10.0.0.8")), (1000, 1500));
    for larger in [1001, 1500, 9000] {
        station.ip.confirm_path_mtu(NOW, ip("10.0.0.9"), Mtu::new(larger).unwrap());
        assert_eq!(mtu(&station, "10.0.0.9"), 1000, "never grows");
    }
    station.outputs(NOW);
    let news = IpEvent::PathMtu { dst: ip("10.0.0.9"), mtu: Mtu::new(1000).unwrap() };
    assert_eq!(station.events, [news], "told once");
    let expiry = NOW + Duration::from_secs(600);
    station.ip.on_timer(expiry - Duration::from_secs(1), &mut station.pools);
    assert_eq!(mtu(&station, "10.0.0.9"), 1000);
    station.ip.on_timer(expiry, &mut station.pools);
    assert_eq!(mtu(&station, "10.0.0.9"), 1500, "forgotten after ten minutes");
}

#[test]
fn c03_a_floor_for_ipv6_paths() {
    let mut station = victim();
    station.ip.confirm_path_mtu(NOW, ip("fd00::9"), Mtu::new(600).unwrap());
    assert_eq!(station.ip.path_mtu(ip("fd00::9")).map(Mtu::bytes), Some(1280));
}

/// A router with the attacker's network on one side and 192.0.2.0/24 on the other, with an MTU of 1280.
fn router() -> Station {
    let mut station = victim();
    station.ip.set_forwarding(true);
    let link = LinkId(8);
    let mtu = Mtu::new(1280).unwrap();
    station.ip.add_interface(IfConfig { link, mac: VICTIM_MAC, mtu, is_home: true });
    for address in ["192.0.2.1/24", "2001:db8::1/64"] {
        station.ip.add_address(NOW, link, address.parse().unwrap()).unwrap();
    }
    for _ in 0..3 {
        station.ip.on_timer(NOW + Duration::from_secs(9), &mut station.pools);
    }
    station.outputs(NOW);
    station.events.clear();
    station
}

fn onward(protocol: IpProtocol) -> Ipv4Repr {
    Ipv4Repr { dst: "192.0.2.50".parse().unwrap(), ..header_v4(protocol) }
}

#[test]
fn a_packet_whose_hops_are_used_up_is_reported_and_not_sent_on() {
    for ttl in [0, 1] {
        let frame = v4(&Ipv4Repr { ttl, ..onward(IpProtocol::UDP) }, &udp(b"x"));
        let outcome = give(&mut router(), &frame);
        assert_eq!(outcome.reason, Some(DropReason::HopsExceeded));
        let (kind, code, _, quote) = answer_v4(&outcome.sent[0]);
        assert_eq!((kind, code, &quote[..]), (11, 0, &frame[L3..]));
        let dst = "2001:db8::50".parse().unwrap();
        let frame = v6(&Ipv6Repr { dst, hop_limit: ttl, ..header_v6(IpProtocol::UDP) }, &udp(b"x"));
        let outcome = give(&mut router(), &frame);
        assert_eq!(outcome.reason, Some(DropReason::HopsExceeded));
        let (kind, code, _, quote) = answer_v6(&outcome.sent[0]);
        assert_eq!((kind, code, &quote[..]), (3, 0, &frame[L3..]));
    }
}

#[test]
fn a_packet_too_large_for_the_next_link_is_reported_with_its_mtu() {
    let frame = v4(&onward(IpProtocol::UDP), &udp(&[0; 1300]));
    let outcome = give(&mut router(), &frame);
    assert_eq!(outcome.reason, Some(DropReason::TooBig));
    let (kind, code, mtu, _) = answer_v4(&outcome.sent[0]);
    assert_eq!((kind, code, mtu), (3, 4, 1280));
    let dst = "2001:db8::50".parse().unwrap();
    let frame = v6(&Ipv6Repr { dst, ..header_v6(IpProtocol::UDP) }, &udp(&[0; 1300]));
    let outcome = give(&mut router(), &frame);
    assert_eq!(outcome.reason, Some(DropReason::TooBig));
    let (kind, code, mtu, _) = answer_v6(&outcome.sent[0]);
    assert_eq!((kind, code, mtu), (2, 0, 1280));
    let may_cut = Ipv4Repr { dont_fragment: false, ..onward(IpProtocol::UDP) };
    assert_eq!(give(&mut router(), &v4(&may_cut, &udp(&[0; 1300]))).end, "held", "for the next hop");
}

/// A busy host behind a router begins many connections whose first full segments do not fit, and somebody's scan makes errors beside it.
#[test]
fn sizes_of_paths_are_told_whatever_else_errors_are_about() {
    let mut router = router();
    let v6_dst = "2001:db8::50".parse().unwrap();
    let (mut nowhere, mut nowhere_v6) = (0, 0);
    for _ in 0..500 {
        let v4_scan =
            v4(&Ipv4Repr { dst: "203.0.113.9".parse().unwrap(), ..onward(IpProtocol::UDP) }, &udp(b"x"));
        nowhere += give(&mut router, &v4_scan).sent.len();
        let dst = "2001:db9::50".parse().unwrap();
        nowhere_v6 +=
            give(&mut router, &v6(&Ipv6Repr { dst, ..header_v6(IpProtocol::UDP) }, &udp(b"x"))).sent.len();
    }
    assert_eq!((nowhere, nowhere_v6), (20, 20), "each sender hears so much of other errors");
    for nth in 0..400 {
        let large = v4(&onward(IpProtocol::UDP), &udp(&[0; 1300]));
        let outcome = give(&mut router, &large);
        assert_eq!(outcome.sent.first().map(|frame| answer_v4(frame).0), Some(3), "{nth}");
        let large = v6(&Ipv6Repr { dst: v6_dst, ..header_v6(IpProtocol::UDP) }, &udp(&[0; 1300]));
        let outcome = give(&mut router, &large);
        assert_eq!(outcome.sent.first().map(|frame| answer_v6(frame).0), Some(2), "{nth}");
    }
}

#[test]
fn c06_errors_are_about_neither_errors_nor_later_pieces_nor_what_was_sent_to_many() {
    let dying = |protocol| Ipv4Repr { ttl: 1, ..onward(protocol) };
    let quote = quoted_v4("192.0.2.50", "10.0.0.9", &SEGMENT);
    let error = icmpv4_message(3, 1, &[&[0; 4][..], &quote].concat());
    let errors_v4 = [
        ("an error", v4(&dying(IpProtocol::ICMPV4), &error), DropReason::HopsExceeded),
        (
            "a redirect",
            v4(&dying(IpProtocol::ICMPV4), &icmpv4_message(5, 0, &[0; 32])),
            DropReason::HopsExceeded,
        ),
        ("half a message", v4(&dying(IpProtocol::ICMPV4), &[8, 0]), DropReason::HopsExceeded),
        (
            "a later piece",
            v4(&Ipv4Repr { fragment_offset: 64, ..dying(IpProtocol::UDP) }, &udp(b"x")),
            DropReason::HopsExceeded,
        ),
    ];
    for (name, frame, reason) in errors_v4 {
        let outcome = give(&mut router(), &frame);
        assert_eq!((outcome.reason, outcome.sent.len()), (Some(reason), 0), "{name}");
    }
    // What is like them and no error is reported.
    let echo = v4(&dying(IpProtocol::ICMPV4), &icmpv4_message(8, 0, b"\0\x01\0\x02"));
    assert_eq!(give(&mut router(), &echo).sent.len(), 1);
    let first = v4(&Ipv4Repr { more_fragments: true, ..dying(IpProtocol::UDP) }, &udp(b"eight by"));
    assert_eq!(give(&mut router(), &first).sent.len(), 1);
    let dst: core::net::Ipv6Addr = "2001:db8::50".parse().unwrap();
    let dying = |next| Ipv6Repr { dst, hop_limit: 1, ..header_v6(next) };
    for kind in [1, 2, 3, 4, 100, 127, 137] {
        let message = icmpv6_message(ATTACKER_V6, dst, kind, 0, &[0; 48]);
        let outcome = give(&mut router(), &v6(&dying(IpProtocol::ICMPV6), &message));
        assert_eq!(outcome.sent.len(), 0, "ICMPv6 type {kind}");
        // Behind an extension header it is the same message.
        let hidden = [&[58, 0, 1, 4, 0, 0, 0, 0][..], &message].concat();
        let outcome = give(&mut router(), &v6(&dying(IpProtocol::DESTINATION_OPTIONS), &hidden));
        assert_eq!(outcome.sent.len(), 0, "ICMPv6 type {kind}, hidden");
    }
    let message = icmpv6_message(ATTACKER_V6, dst, 128, 0, &[0; 4]);
    assert_eq!(give(&mut router(), &v6(&dying(IpProtocol::ICMPV6), &message)).sent.len(), 1);
}

#[test]
fn errors_over_ipv4_go_first_and_over_ipv6_none_goes_to_any_router() {
    let outcome = give(&mut victim(), &v4(&header_v4(IpProtocol(200)), b"who knows"));
    assert_eq!((outcome.sent.len(), outcome.sent[0][L3 + 1]), (1, 48 << 2));
    // RFC 4443 §2.4 (e.6).
    for (src, errors) in [("fd00::9", 1), ("fd00::", 0)] {
        let header = Ipv6Repr { src: src.parse().unwrap(), ..header_v6(IpProtocol(200)) };
        assert_eq!(give(&mut victim(), &v6(&header, b"who knows")).sent.len(), errors, "{src}");
    }
}

/// RFC 1122 §3.2.2, RFC 4443 §2.4 (e): whoever asks for an error, a filter for one, none is about what was sent to many, or by no
/// single station.
#[test]
fn c06_no_error_is_about_what_went_to_many_or_came_from_no_single_station() {
    let errors = |frame: &[u8]| {
        let mut station = victim();
        station.ip.refuse(NOW, &frame[L3..], 13, false, &mut station.pools);
        station.outputs(NOW).len()
    };
    let from_to = |src: &str, dst: &str| match (ip(src), ip(dst)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            v4(&Ipv4Repr { src, dst, ..header_v4(IpProtocol::UDP) }, &udp(b"x"))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            v6(&Ipv6Repr { src, dst, ..header_v6(IpProtocol::UDP) }, &udp(b"x"))
        }
        _ => unreachable!("addresses of one family"),
    };
    for (station, victim, groups, nobody) in [
        (
            "10.0.0.9",
            "10.0.0.2",
            &["255.255.255.255", "10.0.0.255", "224.0.0.1"][..],
            &["0.0.0.0", "255.255.255.255", "10.0.0.255", "224.0.0.1", "240.0.0.1"][..],
        ),
        ("fd00::9", "fd00::2", &["ff02::1"], &["::", "ff02::1"]),
    ] {
        assert_eq!(errors(&from_to(station, victim)), 1, "{station} to {victim}");
        for group in groups {
            assert_eq!(errors(&from_to(station, group)), 0, "to {group}");
        }
        for source in nobody {
            assert_eq!(errors(&from_to(source, victim)), 0, "from {source}");
        }
    }
}

/// A filter refuses packets before anybody else has looked at them.
#[test]
fn who_may_be_there_and_is_one_can_be_answered() {
    let mut station = Station::new(2, &["10.0.0.2/24", "fd00::2/64"]);
    let other = LinkId(8);
    let mac = common::mac(8);
    station.ip.add_interface(IfConfig { link: other, mac, mtu: Mtu::ETHERNET, is_home: true });
    station.ip.add_address(firelane_units::Instant::ZERO, other, "10.8.0.2/24".parse().unwrap()).unwrap();
    let may = |src: &str, dst: &str| station.ip.may_be_answered(common::LINK, ip(src), ip(dst));
    for (src, dst) in [
        ("10.0.0.9", "10.0.0.2"),
        ("192.0.2.1", "203.0.113.1"),
        ("fd00::9", "fd00::2"),
        ("fe80::9", "fd01::1"),
    ] {
        assert!(may(src, dst), "{src} to {dst}");
    }
    for src in [
        "0.0.0.0",
        "127.0.0.1",
        "10.0.0.2",
        "10.8.0.2",
        "10.0.0.255",
        "10.8.0.255",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        assert!(!may(src, "10.0.0.2"), "{src}");
    }
    for dst in ["0.0.0.0", "127.0.0.1", "10.0.0.255", "10.8.0.255", "224.0.0.1", "255.255.255.255"] {
        assert!(!may("10.0.0.9", dst), "{dst}");
    }
    for src in ["::", "::1", "fd00::2", "ff02::1", "::ffff:10.0.0.9"] {
        assert!(!may(src, "fd00::2"), "{src}");
    }
    for dst in ["::", "::1", "ff02::1"] {
        assert!(!may("fd00::9", dst), "{dst}");
    }
}
