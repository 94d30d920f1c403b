//! What the tables in `input.rs` do not reach: quotes, pointers, chains cut off, scopes of addresses.

use crate::common;
use crate::craft;

use common::{LINK, Station};
use craft::*;
use firelane_frame::{Frame, Pools, PoolsConfig};
use firelane_ip::{Sent, Upper};
use firelane_units::DropReason;
use firelane_wire::{ArpRepr, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, NdpMessage, NdpOption, ndp};

const HOP_BY_HOP: u8 = 0;

const ROUTING: u8 = 43;

const DESTINATION: u8 = 60;

const UDP: u8 = 17;

/// A UDP datagram behind extension headers; `first` names the first of them.
fn behind(first: u8, headers: &[u8]) -> Vec<u8> {
    let mut payload = headers.to_vec();
    payload.extend_from_slice(&udp(b"x"));
    v6(&header_v6(IpProtocol(first)), &payload)
}

/// Asserts that a frame is dropped for `reason` and answered with a parameter problem.
fn assert_problem(name: &str, frame: &[u8], reason: DropReason, code: u8, pointer: u32) {
    let outcome = give(&mut victim(), frame);
    assert_eq!((outcome.end, outcome.reason), ("drop", Some(reason)), "{name}");
    assert_eq!(outcome.sent.len(), 1, "{name}: one error");
    let (kind, sent_code, sent_pointer, quote) = answer_v6(&outcome.sent[0]);
    assert_eq!((kind, sent_code, sent_pointer), (4, code, pointer), "{name}");
    assert_eq!(quote, frame[L3..], "{name}: the packet as it came");
}

#[test]
fn i04_the_echo_of_a_packet_with_options_has_none() {
    let echo = icmpv4_message(8, 0, b"\0\x01\0\x02hello");
    let frame = v4_with_options(&header_v4(IpProtocol::ICMPV4), &[7, 7, 4, 0, 0, 0, 0, 0], &echo);
    let outcome = give(&mut victim(), &frame);
    assert_eq!(outcome.end, "consumed");
    let view = Ipv4View::parse(&outcome.sent[0][L3..]).unwrap();
    assert!(!view.has_options());
    assert_eq!(answer_v4(&outcome.sent[0]), (0, 0, 0x0001_0002, b"hello".to_vec()));
}

#[test]
fn i11_errors_quote_at_most_what_fits_576_bytes() {
    // RFC 1812 §4.3.2.3.
    let outcome = give(&mut victim(), &v4(&header_v4(IpProtocol(200)), &[0x5a; 1400]));
    assert_eq!(outcome.sent[0].len(), L3 + 576);
}

#[test]
fn an_address_that_is_being_tested_is_nobody() {
    let mut station = Station::bare(2, firelane_ip::DadConfig::SLOW, true, 1500);
    station.ip.add_address(NOW, LINK, "10.0.0.2/24".parse().unwrap()).unwrap();
    assert_eq!(give(&mut station, &v4(&header_v4(IpProtocol::UDP), &udp(b"x"))).end, "drop");
    let question = arp(&ArpRepr::request(ATTACKER_MAC, ATTACKER_V4, VICTIM_V4));
    assert!(give(&mut station, &question).sent.is_empty());
    // RFC 4862 §5.4: of IPv6 neither what is for it nor the question of a neighbour; that is no test by somebody else either.
    station.ip.add_address(NOW, LINK, "fd00::2/64".parse().unwrap()).unwrap();
    assert_eq!(give(&mut station, &v6(&header_v6(IpProtocol::UDP), &udp(b"x"))).end, "drop");
    let group = ndp::solicited_node(VICTIM_V6);
    let message = NdpMessage::NeighbourSolicit { target: VICTIM_V6 };
    let question = ndp_frame(ATTACKER_V6, group, message, &[NdpOption::SourceLinkLayer(ATTACKER_MAC)]);
    assert!(give(&mut station, &question).sent.is_empty());
    assert!(!station.ip.is_local(VICTIM_V6.into()) && station.events.is_empty());
    assert!(station.ip.egress(NOW, None, ATTACKER_V6.into()).is_err(), "nothing is sent from it");
}

#[test]
fn v02_chains_of_headers_are_bounded() {
    let padded = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let chain = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|i| padded(if i + 1 < count { DESTINATION } else { UDP })).collect()
    };
    for count in [1, 7, 8] {
        let mut station = victim();
        let outcome = give(&mut station, &behind(DESTINATION, &chain(count)));
        assert_eq!(outcome.end, "deliver", "{count} headers");
        assert_eq!(station.delivered[0].payload.start, L3 + 40 + 8 * count);
        assert_eq!(station.delivered[0].protocol, IpProtocol::UDP);
    }
    for count in [9, 50, 150] {
        let outcome = give(&mut victim(), &behind(DESTINATION, &chain(count)));
        assert_eq!(outcome.reason, Some(DropReason::BadOption), "{count} headers");
        assert_eq!(answer_v6(&outcome.sent[0]).1, 8, "too many headers (RFC 8883 §3)");
    }
    // Two headers of 2 KiB each: few, but long.
    let mut long = vec![0; 4096];
    (long[0], long[1], long[2048], long[2049]) = (DESTINATION, 255, UDP, 255);
    let outcome = give(&mut victim(), &behind(DESTINATION, &long));
    assert_eq!(outcome.reason, Some(DropReason::BadOption));
    assert_eq!(answer_v6(&outcome.sent[0]).1, 7, "too long a chain (RFC 8883 §3)");
}

#[test]
fn v02_headers_in_the_wrong_place_or_cut_off() {
    let pad = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let second = |next: u8, first: u8| behind(first, &[pad(next), pad(UDP)].concat());
    // RFC 8200 §4.1: hop-by-hop options only directly behind the fixed header.
    assert_problem("twice", &second(HOP_BY_HOP, HOP_BY_HOP), DropReason::BadOption, 1, 40);
    assert_problem("second", &second(HOP_BY_HOP, DESTINATION), DropReason::BadOption, 1, 40);
    for (name, header) in [
        ("no room for a header", &[][..]),
        ("one byte", &[UDP]),
        ("length past the packet", &[UDP, 1, 1, 4, 0, 0, 0, 0]),
        ("an option past its header", &[UDP, 0, 1, 5, 0, 0, 0, 0]),
        ("an option without its length", &[UDP, 0, 1, 3, 0, 0, 0, 0x3e]),
    ] {
        for first in [HOP_BY_HOP, DESTINATION] {
            let frame = v6(&header_v6(IpProtocol(first)), header);
            assert_silent_drop(name, &frame, DropReason::BadOption);
        }
    }
}

#[test]
fn v03_the_pointer_names_the_option_behind_others() {
    let header = [UDP, 1, 1, 0, 0, 0x3e, 2, 0, 0, 1, 0, 0x9e, 2, 0, 0, 0];
    assert_problem("behind four others", &behind(DESTINATION, &header), DropReason::BadOption, 2, 51);
}

#[test]
fn v04_source_routes_are_not_followed() {
    let routing = |kind: u8, left: u8| {
        let mut header = [0; 24];
        header[..4].copy_from_slice(&[UDP, 2, kind, left]);
        header
    };
    for kind in [0, 2, 3, 4, 77] {
        // RFC 8200 §4.4: unknown and used up is passed over, unknown and not is reported; RFC 5095 §3: type
        // 0 is unknown.
        assert_eq!(give(&mut victim(), &behind(ROUTING, &routing(kind, 0))).end, "deliver", "type {kind}");
        for left in [1, 255] {
            let frame = behind(ROUTING, &routing(kind, left));
            assert_problem("segments left", &frame, DropReason::BadOption, 0, 42);
        }
    }
}

/// RFC 8200 §4 and §4.2: headers, and the options in them, are read in their order; the first that is wrong says what is done.
#[test]
fn of_two_problems_the_first_one_counts() {
    let options = |next: u8, kind: u8| [next, 0, kind, 4, 0, 0, 0, 0];
    let routing = |next: u8| [next, 0, 77, 1, 0, 0, 0, 0];
    let two = |first: [u8; 8], second: [u8; 8]| [first, second].concat();
    for (name, first, headers, code, pointer) in [
        ("a way, then an option", ROUTING, two(routing(DESTINATION), options(UDP, 0x9e)), 0, 42),
        ("an option, then a way", DESTINATION, two(options(ROUTING, 0x9e), routing(UDP)), 2, 42),
        ("an option, then nobody's header", HOP_BY_HOP, two(options(200, 0x9e), routing(200)), 2, 42),
        (
            "a way, then one to be dropped in silence",
            ROUTING,
            two(routing(DESTINATION), options(UDP, 0x5e)),
            0,
            42,
        ),
        ("two options of a header", DESTINATION, vec![UDP, 0, 0x9e, 0, 0x5e, 0, 0, 0], 2, 42),
    ] {
        assert_problem(name, &behind(first, &headers), DropReason::BadOption, code, pointer);
    }
    for (name, first, headers) in [
        ("one to be dropped in silence, then a way", DESTINATION, two(options(ROUTING, 0x5e), routing(UDP))),
        ("two options of a header", DESTINATION, vec![UDP, 0, 0x5e, 0, 0x9e, 0, 0, 0]),
    ] {
        assert_silent_drop(name, &behind(first, &headers), DropReason::BadOption);
    }
}

/// RFC 8200 §8.4: the way that a question has come is not taken back.
#[test]
fn the_echo_of_a_packet_that_was_routed_has_no_routing_header() {
    let echo = icmpv6_message(ATTACKER_V6, VICTIM_V6, 128, 0, b"\0\x01\0\x02hello");
    for kind in [0, 4, 77] {
        let mut payload = vec![58, 2, kind, 0, 0, 0, 0, 0];
        payload.extend(ATTACKER_V6.octets());
        payload.extend_from_slice(&echo);
        let outcome = give(&mut victim(), &v6(&header_v6(IpProtocol(ROUTING)), &payload));
        assert_eq!((outcome.end, outcome.sent.len()), ("consumed", 1), "type {kind}");
        assert_eq!(answer_v6(&outcome.sent[0]), (129, 0, 0x0001_0002, b"hello".to_vec()));
    }
}

/// RFC 4861 §7.2.1: an interface hears the group of all stations, and of each address the group in which it is asked for, as
/// long as it has the address.
#[test]
fn a_station_is_in_the_groups_of_its_addresses() {
    let to = |dst| v6(&Ipv6Repr { dst, ..header_v6(IpProtocol::UDP) }, &udp(b"x"));
    let (second, other) = ("fd00::abcd:ef12".parse().unwrap(), "fd00::3".parse().unwrap());
    let mut station = victim();
    let hears = |station: &mut Station, group| give(station, &to(group)).end == "deliver";
    let groups =
        [ALL_NODES, ndp::solicited_node(VICTIM_V6), ndp::solicited_node(second), ndp::solicited_node(other)];
    assert_eq!(groups.map(|group| hears(&mut station, group)), [true, true, false, false]);
    // While an address is being tested too: its owner has to hear of others who want it (RFC 4862 §5.4.2).
    station.ip.add_address(NOW, LINK, "fd00::abcd:ef12/64".parse().unwrap()).unwrap();
    assert_eq!(groups.map(|group| hears(&mut station, group)), [true, true, true, false]);
    station.ip.remove_address(LINK, VICTIM_V6.into()).unwrap();
    assert_eq!(groups.map(|group| hears(&mut station, group)), [true, false, true, false]);
}

#[test]
fn v10_group_reports_and_queries_cost_nothing_and_change_nothing() {
    let mut station = victim();
    let before: Vec<_> = station.ip.neighbours().collect();
    for kind in [130, 131, 132, 143] {
        for rest in [&[][..], &[0; 4], &[0xff; 20], &[0xff; 200]] {
            let message = icmpv6_message(ATTACKER_V6, ALL_NODES, kind, 0, rest);
            let header = Ipv6Repr { dst: ALL_NODES, hop_limit: 1, ..header_v6(IpProtocol::ICMPV6) };
            let outcome = give(&mut station, &v6(&header, &message));
            let expected = if rest.is_empty() { DropReason::BadIcmp } else { DropReason::BadGroup };
            assert_eq!(outcome.reason, Some(expected), "type {kind}");
            assert!(outcome.sent.is_empty());
        }
    }
    for kind in [0x11, 0x16, 0x22] {
        let message = icmpv4_message(kind, 0, &[0xff; 40]);
        let header = Ipv4Repr { dst: [224, 0, 0, 1].into(), ttl: 1, ..header_v4(IpProtocol(2)) };
        let outcome = give(&mut station, &v4(&header, &message));
        let expected = if kind == 0x22 { DropReason::NotForUs } else { DropReason::BadGroup };
        assert_eq!(outcome.reason, Some(expected));
        assert!(outcome.sent.is_empty());
    }
    assert_eq!(station.ip.neighbours().collect::<Vec<_>>(), before);
}

#[test]
fn no_next_header_means_that_nothing_follows() {
    let outcome = give(&mut victim(), &v6(&header_v6(IpProtocol::NO_NEXT), b"ignored"));
    assert_eq!((outcome.end, outcome.sent.len()), ("consumed", 0));
}

#[test]
fn unknown_protocols_are_reported_where_they_are_named() {
    assert_problem(
        "at once",
        &v6(&header_v6(IpProtocol(200)), b"payload"),
        DropReason::UnknownProtocol,
        1,
        6,
    );
    let frame = v6(&header_v6(IpProtocol(DESTINATION)), &[200, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3]);
    assert_problem("behind options", &frame, DropReason::UnknownProtocol, 1, 40);
    let to_all = Ipv6Repr { dst: ALL_NODES, ..header_v6(IpProtocol(200)) };
    assert_silent_drop("to a group", &v6(&to_all, b"payload"), DropReason::UnknownProtocol);
}

#[test]
fn errors_quote_at_most_what_fits_1280_bytes() {
    // RFC 4443 §2.4 (c).
    let outcome = give(&mut victim(), &v6(&header_v6(IpProtocol(200)), &[0x5a; 1400]));
    assert_eq!(outcome.sent[0].len(), L3 + 1280);
}

#[test]
fn a_link_local_address_is_ours_only_on_its_own_link() {
    let mut station: Station = victim();
    let other = firelane_units::LinkId(8);
    station.ip.add_interface(firelane_ip::IfConfig {
        link: other,
        mac: VICTIM_MAC,
        mtu: firelane_units::Mtu::ETHERNET,
        is_home: true,
    });
    station.ip.add_address(NOW, other, "fe80::2/64".parse().unwrap()).unwrap();
    let dst = "fe80::2".parse().unwrap();
    let src = "fe80::9".parse().unwrap();
    let frame = v6(&Ipv6Repr { src, dst, ..header_v6(IpProtocol::UDP) }, &udp(b"x"));
    assert_eq!(give(&mut station, &frame).reason, Some(DropReason::NotForUs));
    let frame = station.frame(&frame);
    assert_eq!(station.input(NOW, other, frame), "deliver");
}

#[test]
fn a_datagram_that_cannot_be_cut_for_want_of_buffers_comes_back_whole() {
    let mut station = victim();
    let payload = [7; 6000];
    let mut egress = station.ip.egress(NOW, None, ATTACKER_V4.into()).unwrap();
    let frame = station.frame(&payload);
    let mut taken: Vec<Frame> = core::iter::from_fn(|| station.pools.small.take()).collect();
    taken.extend(core::iter::from_fn(|| station.pools.large.take()));
    // Room for some pieces, not for all.
    taken.drain(..2).for_each(|frame| station.pools.put(frame));
    match station.ip.send(NOW, &mut egress, frame, Upper::udp(), &mut station.pools) {
        Sent::Drop(frame, reason) => {
            assert_eq!((frame.as_slice(), reason), (&payload[..], DropReason::NoBuffer));
        }
        other => panic!("{other:?}"),
    }
    assert!(station.outputs(NOW).is_empty(), "no piece is sent alone");
    let free = station.pools.small.free() + station.pools.large.free();
    assert_eq!((free, station.ip.made().fragments), (3, 0), "the two, and the payload's own");
}

#[test]
fn frames_that_wait_for_all_neighbours_together_are_bounded() {
    let mut station = Station::bare(2, firelane_ip::DadConfig::OFF, true, 1500);
    station.pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 0 });
    station.ip.add_address(NOW, LINK, "10.0.0.2/24".parse().unwrap()).unwrap();
    for host in 10..110 {
        for _ in 0..40 {
            let dst = format!("10.0.0.{host}");
            assert!(matches!(station.send(NOW, &dst, b"x", Upper::udp()), Sent::Held));
        }
    }
    let held = station.ip.held_frames();
    assert!((256..=1024).contains(&held), "{held}");
    assert_eq!(station.ip.take_drops().of(DropReason::NeighbourUnresolved), 4000 - held as u64);
    let waiting: usize = station.ip.neighbours().map(|neighbour| neighbour.waiting).sum();
    assert_eq!(waiting, held);
}
