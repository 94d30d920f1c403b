//! Bad and unusual packets, by the ids of the conformance table (I01 to I13, V01 to V10, C01 to C07), and the
//! law that no bytes can make a station panic.

use crate::common;

use core::net::{Ipv4Addr, Ipv6Addr};

use common::{ANSWER, LINK, Station, ip, mac};
use firelane_ip::{ErrorKind, IpEvent, LOOPBACK};
use firelane_units::{DropReason, Instant, LinkId, MacAddr};
use firelane_wire::{
    Ecn, EtherType, EthernetRepr, Icmpv4Repr, Icmpv4Unreachable, Icmpv6Repr, Icmpv6Unreachable, IpProtocol,
    Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, Sum, icmpv6,
};
use proptest::prelude::*;

const NOW: Instant = Instant::from_secs(100);
const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// A station that knows its peer.
fn station() -> Station {
    let mut a = Station::new(1, &["10.0.0.1/24", "fd00::1/64"]);
    for peer in ["10.0.0.2", "fd00::2"] {
        let _ = a.send(NOW, peer, &[0; 20], firelane_ip::Upper::udp());
        a.ip.on_neighbour_learned(NOW, (LINK, ip(peer)), Some(mac(2)), ANSWER);
    }
    a.outputs(NOW);
    a.events.clear();
    a
}

fn ethernet(dst: MacAddr, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    EthernetRepr { dst, src: mac(2), ethertype }.emit(&mut bytes);
    bytes.extend_from_slice(packet);
    bytes
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr::new(src, dst, protocol, payload.len() as u16);
    let mut packet = vec![0; 20];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    ethernet(mac(1), EtherType::IPV4, &packet)
}

/// Changes bytes of an IPv4 header and makes its checksum right again.
fn with_v4(mut frame: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for &(at, value) in changes {
        frame[14 + at] = value;
    }
    let len = (usize::from(frame[14] & 15) * 4).clamp(20, frame.len() - 14);
    frame[24..26].fill(0);
    let sum = Sum::of(&frame[14..14 + len]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn v4_with_options(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = options.to_vec();
    body.extend_from_slice(payload);
    let frame = v4(PEER4, OWN4, IpProtocol::UDP, &body);
    with_v4(frame, &[(0, 0x45 + (options.len() / 4) as u8)])
}

fn v6(src: Ipv6Addr, dst: Ipv6Addr, next: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Repr::new(src, dst, next, payload.len() as u16);
    let mut packet = vec![0; 40];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    ethernet(mac(1), EtherType::IPV6, &packet)
}

const UDP: IpProtocol = IpProtocol::UDP;

fn run(frame: &[u8]) -> (&'static str, Option<DropReason>, Vec<Vec<u8>>) {
    let mut a = station();
    let result = a.input_bytes(NOW, frame);
    let out = a.outputs(NOW);
    (result, a.drops.pop(), out)
}

/// The frame is dropped for `reason` and nothing is said about it.
#[track_caller]
fn silent(frame: &[u8], reason: DropReason) {
    assert_eq!(run(frame), ("drop", Some(reason), vec![]));
}

#[test]
fn i01_lengths() {
    let good = v4(PEER4, OWN4, UDP, &[0; 16]);
    assert_eq!(run(&good).0, "deliver");
    for changes in [&[(0, 0x65)][..], &[(0, 0x44)], &[(0, 0x4f)], &[(2, 1)], &[(3, 19)], &[(3, 37)]] {
        silent(&with_v4(good.clone(), changes), DropReason::BadHeader);
    }
    silent(&good[..33], DropReason::BadHeader);
    let mut padded = good;
    padded.extend([0xee; 30]);
    let mut a = station();
    assert_eq!(a.input_bytes(NOW, &padded), "deliver");
    assert_eq!(a.delivered[0].payload, 34..50, "padding is cut off");
}

#[test]
fn i02_checksum_and_ttl() {
    let good = v4(PEER4, OWN4, UDP, &[0; 16]);
    for at in 14..34 {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert_eq!(run(&bad).0, "drop", "byte {at}");
    }
    for ttl in [0, 1] {
        assert_eq!(run(&with_v4(good.clone(), &[(8, ttl)])).0, "deliver", "RFC 1122 §3.2.1.7");
    }
}

#[test]
fn i03_sources_that_no_station_has() {
    for src in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "10.0.0.255",
        "10.0.0.1",
    ] {
        silent(&v4(src.parse().unwrap(), OWN4, UDP, &[0; 16]), DropReason::Martian);
    }
    silent(&v4(PEER4, Ipv4Addr::LOCALHOST, UDP, &[0; 16]), DropReason::Martian);
}

/// Who has no address as yet asks everybody for one, by UDP and in no other way.
#[test]
fn i03_a_station_without_an_address_is_heard_only_where_it_may_ask_for_one() {
    let (nobody, everybody) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let mut a = station();
    assert_eq!(a.input_bytes(NOW, &v4(nobody, everybody, UDP, &[0; 16])), "deliver");
    assert!(a.delivered.pop().is_some_and(|it| it.is_broadcast_or_multicast && it.src == ip("0.0.0.0")));
    for (dst, protocol) in [
        (everybody, IpProtocol::TCP),
        (everybody, IpProtocol::ICMPV4),
        (Ipv4Addr::new(10, 0, 0, 255), UDP),
        (Ipv4Addr::new(224, 0, 0, 1), UDP),
    ] {
        silent(&v4(nobody, dst, protocol, &[0; 16]), DropReason::Martian);
    }
}

#[test]
fn i04_options() {
    let lsrr = [131, 7, 4, 10, 0, 0, 1, 0];
    let ssrr = [137, 7, 8, 10, 0, 0, 1, 0];
    for options in [
        &lsrr[..],
        &ssrr,
        &[68, 0, 0, 0],
        &[68, 1, 0, 0],
        &[7, 9, 4, 0],
        &[7, 7, 3, 0, 0, 0, 0, 0],
        &[7, 3, 12, 0],
    ] {
        silent(&v4_with_options(options, &[0; 16]), DropReason::BadOption);
    }
    let stream_id = [136, 4, 0, 1];
    let record = [7, 7, 8, 0, 0, 0, 0, 0];
    for options in [&[1, 1, 1, 0][..], &[148, 4, 0, 0], &record, &stream_id, &[0x99, 4, 1, 2], &[1; 40]] {
        let mut a = station();
        assert_eq!(a.input_bytes(NOW, &v4_with_options(options, &[5; 16])), "deliver", "{options:?}");
        let delivered = a.delivered.pop().unwrap();
        assert_eq!(delivered.frame.as_slice()[delivered.payload], [5; 16]);
    }
}

#[test]
fn i11_no_tunnel_and_no_unknown_protocol() {
    for protocol in [4, 41, 47, 50, 132, 253] {
        let (result, reason, out) = run(&v4(PEER4, OWN4, IpProtocol(protocol), &[0; 40]));
        assert_eq!((result, reason, out.len()), ("drop", Some(DropReason::UnknownProtocol), 1));
        assert_eq!(out[0][34..36], [3, 2], "protocol unreachable");
        assert_eq!(Ipv4View::parse(&out[0][14..]).unwrap().dst(), PEER4);
        let quoted = Ipv4View::parse_quoted(&out[0][42..]).unwrap();
        assert_eq!((quoted.src(), quoted.payload().len()), (PEER4, 40));
    }
    let (result, reason, out) = run(&v6(PEER6, OWN6, IpProtocol(253), &[0; 40]));
    assert_eq!((result, reason, out.len()), ("drop", Some(DropReason::UnknownProtocol), 1));
    assert_eq!((out[0][54], out[0][55], &out[0][58..62]), (4, 1, &[0, 0, 0, 6][..]), "next header field");
}

fn echo(data: &[u8]) -> Vec<u8> {
    let request = Icmpv4Repr::EchoRequest { identifier: 1, sequence: 2, data };
    let mut bytes = vec![0; request.emitted_len()];
    request.emit(&mut bytes);
    bytes
}

#[test]
fn i12_groups_get_no_answer() {
    for (dst, by) in [
        ("10.0.0.255", MacAddr::BROADCAST),
        ("255.255.255.255", MacAddr::BROADCAST),
        ("224.0.0.1", MacAddr([1, 0, 0x5e, 0, 0, 1])),
    ] {
        let dst: Ipv4Addr = dst.parse().unwrap();
        for (protocol, payload) in [(IpProtocol::ICMPV4, echo(b"x")), (IpProtocol(253), vec![0; 8])] {
            let mut frame = v4(PEER4, dst, protocol, &payload);
            frame[..6].copy_from_slice(&by.0);
            let (result, _, out) = run(&frame);
            assert_eq!((result, out.len()), ("drop", 0));
        }
        let mut frame = v4(PEER4, dst, UDP, &[0; 16]);
        frame[..6].copy_from_slice(&by.0);
        let mut a = station();
        assert_eq!(a.input_bytes(NOW, &frame), "deliver");
        assert!(a.delivered[0].is_broadcast_or_multicast);
        let delivered = a.delivered.pop().unwrap();
        a.ip.unreachable_port(NOW, &delivered, &mut a.pools);
        assert_eq!(a.outputs(NOW).len(), 0);
    }
    let mut frame = v4(PEER4, OWN4, UDP, &[0; 16]);
    frame[..6].fill(0xff);
    silent(&frame, DropReason::NotForUs);
    silent(&v4(PEER4, Ipv4Addr::new(239, 1, 1, 1), UDP, &[0; 16]), DropReason::NotForUs);
}

#[test]
fn i13_only_datagrams_that_may_be_cut_have_a_number() {
    let mut a = station();
    let id = |frame: &Vec<u8>| Ipv4View::parse(&frame[14..]).unwrap().identification();
    for _ in 0..8 {
        let _ = a.send(NOW, "10.0.0.2", &[0; 20], firelane_ip::Upper::tcp(Ecn::NotCapable));
        let _ = a.send(NOW, "10.0.0.2", &[0; 20], firelane_ip::Upper::udp());
    }
    let out = a.outputs(NOW);
    assert!(out.iter().step_by(2).all(|frame| id(frame) == 0));
    let numbers: std::collections::HashSet<u16> = out.iter().skip(1).step_by(2).map(id).collect();
    assert_eq!(numbers.len(), 8);
}

#[test]
fn v01_lengths() {
    let good = v6(PEER6, OWN6, UDP, &[0; 16]);
    assert_eq!(run(&good).0, "deliver");
    let mut long = good.clone();
    long[19] = 17;
    silent(&long, DropReason::BadHeader);
    silent(&good[..53], DropReason::BadHeader);
    let mut jumbo = v6(PEER6, OWN6, IpProtocol::HOP_BY_HOP, &[17, 0, 0xc2, 4, 0, 1, 0, 0]);
    let (result, reason, out) = run(&jumbo);
    assert_eq!((result, reason, out.len()), ("drop", Some(DropReason::BadOption), 1));
    assert_eq!((out[0][54], out[0][55], out[0][61]), (4, 2, 42), "unrecognized option");
    jumbo[18..20].fill(0);
    assert_eq!(run(&jumbo).0, "drop");
}

#[test]
fn v02_chains_are_walked_only_so_far() {
    let options = |count: usize| {
        let mut payload = Vec::new();
        for i in 0..count {
            payload.extend([if i + 1 == count { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        payload.extend([0; 16]);
        payload
    };
    assert_eq!(run(&v6(PEER6, OWN6, IpProtocol::DESTINATION_OPTIONS, &options(8))).0, "deliver");
    for count in [9, 50] {
        let (result, _, out) = run(&v6(PEER6, OWN6, IpProtocol::DESTINATION_OPTIONS, &options(count)));
        assert_eq!((result, out.len(), out[0][54], out[0][55]), ("drop", 1, 4, 8));
    }
    // Hop-by-hop behind destination options, and a header past the end.
    let late = [0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
    let (result, _, out) = run(&v6(PEER6, OWN6, IpProtocol::DESTINATION_OPTIONS, &late));
    assert_eq!((result, out[0][54], out[0][55]), ("drop", 4, 1));
    silent(
        &v6(PEER6, OWN6, IpProtocol::DESTINATION_OPTIONS, &[17, 9, 1, 4, 0, 0, 0, 0]),
        DropReason::BadOption,
    );
}

#[test]
fn v03_unknown_options_do_what_their_type_says() {
    let all_nodes = "ff02::1".parse().unwrap();
    let packet = |kind, dst| {
        let mut payload = vec![17, 0, kind, 4, 0, 0, 0, 0];
        payload.extend([0; 16]);
        let mut frame = v6(PEER6, dst, IpProtocol::DESTINATION_OPTIONS, &payload);
        if dst == all_nodes {
            frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        }
        frame
    };
    for (kind, dst, result, answers) in [
        (0x1e, OWN6, "deliver", 0),
        (0x5e, OWN6, "drop", 0),
        (0x9e, OWN6, "drop", 1),
        (0xde, OWN6, "drop", 1),
        (0x1e, all_nodes, "deliver", 0),
        (0x5e, all_nodes, "drop", 0),
        (0x9e, all_nodes, "drop", 1),
        (0xde, all_nodes, "drop", 0),
    ] {
        let (got, _, out) = run(&packet(kind, dst));
        assert_eq!((got, out.len()), (result, answers), "{kind:#x} {dst}");
        assert!(out.iter().all(|frame| frame[54..56] == [4, 2]));
    }
}

#[test]
fn v04_routing_headers_with_segments_left() {
    for (kind, left, result) in [(0, 0, "deliver"), (0, 1, "drop"), (4, 1, "drop"), (4, 0, "deliver")] {
        let mut payload = vec![17, 2, kind, left];
        payload.extend([0; 20 + 16]);
        let (got, _, out) = run(&v6(PEER6, OWN6, IpProtocol::ROUTING, &payload));
        assert_eq!((got, out.len()), (result, usize::from(left)), "type {kind}, {left} left");
    }
}

#[test]
fn v08_an_echo_is_eight_bytes_at_least() {
    for len in 0..8 {
        silent(&v6(PEER6, OWN6, IpProtocol::ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0][..len]), DropReason::BadIcmp);
    }
    let mut payload = vec![58, 0, 1, 4, 0, 0, 0, 0];
    payload.extend(echo6(OWN6, b"behind an option"));
    let (result, _, out) = run(&v6(PEER6, OWN6, IpProtocol::HOP_BY_HOP, &payload));
    assert_eq!((result, out.len(), out[0][20], out[0][54]), ("consumed", 1, 58, 129));
}

fn echo6(dst: Ipv6Addr, data: &[u8]) -> Vec<u8> {
    let request = Icmpv6Repr::EchoRequest { identifier: 1, sequence: 2, data };
    let mut bytes = vec![0; request.emitted_len()];
    request.emit(&mut bytes);
    icmpv6::fill_checksum(&mut bytes, PEER6, dst);
    bytes
}

#[test]
fn v09_addresses_that_may_not_be_on_a_wire() {
    for src in ["ff02::1", "::1", "::ffff:10.0.0.9", "::", "fd00::1"] {
        silent(&v6(src.parse().unwrap(), OWN6, UDP, &[0; 16]), DropReason::Martian);
    }
    for dst in ["ff01::1", "ff00::1", "ff0f::1", "ff02::2", "::", "fe80::9", "::ffff:10.0.0.1"] {
        silent(&v6(PEER6, dst.parse().unwrap(), UDP, &[0; 16]), DropReason::NotForUs);
    }
    silent(&v6(PEER6, "::1".parse().unwrap(), UDP, &[0; 16]), DropReason::Martian);
}

/// RFC 1122 §3.2.2.6, RFC 4443 §4.2: an answer goes to who asked; an answer to everybody is nobody's.
#[test]
fn an_echos_answer_is_handed_on() {
    let answer = |kind: u8| {
        let mut message = vec![kind, 0, 0, 0, 1, 2, 0, 3, b'x'];
        let sum = Sum::of(&message).checksum();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        message
    };
    let mut a = station();
    assert_eq!(a.input_bytes(NOW, &v4(PEER4, OWN4, IpProtocol::ICMPV4, &answer(0))), "deliver");
    let mut six = answer(129);
    six[2..4].fill(0);
    icmpv6::fill_checksum(&mut six, PEER6, OWN6);
    assert_eq!(a.input_bytes(NOW, &v6(PEER6, OWN6, IpProtocol::ICMPV6, &six)), "deliver");
    let everybody = v4(PEER4, Ipv4Addr::BROADCAST, IpProtocol::ICMPV4, &answer(0));
    silent(&everybody, DropReason::BadIcmp);
}

#[test]
fn c01_an_echo_is_as_long_as_ip_says() {
    let mut a = station();
    let mut frame = v4(PEER4, OWN4, IpProtocol::ICMPV4, &echo(b"1234"));
    frame.extend([0xee; 20]);
    assert_eq!(a.input_bytes(NOW, &frame), "consumed");
    let out = a.outputs(NOW);
    assert_eq!((out[0].len(), &out[0][42..]), (46, &b"1234"[..]));
    let mut answered = 0;
    for _ in 0..10_000 {
        a.input_bytes(NOW, &frame);
        answered += a.outputs(NOW).len();
    }
    assert!((1000..3000).contains(&answered), "{answered}");
    assert!(a.drops.iter().all(|&reason| reason == DropReason::IcmpLimit));
}

/// An ICMP error that quotes a packet from `src`.
fn error4(src: Ipv4Addr, reason: Icmpv4Unreachable, keep: usize) -> Vec<u8> {
    let mut quoted = vec![0; 20];
    Ipv4Repr::new(src, PEER4, IpProtocol::TCP, 1480).emit(&mut quoted);
    quoted.extend([0, 80, 1, 187, 0, 0, 0, 9]);
    quoted.truncate(keep);
    let message = Icmpv4Repr::Unreachable { reason, quoted: &quoted };
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    v4(Ipv4Addr::new(10, 0, 0, 254), OWN4, IpProtocol::ICMPV4, &bytes)
}

#[test]
fn c02_errors_that_quote_nothing_of_ours() {
    silent(&error4(Ipv4Addr::new(10, 0, 0, 7), Icmpv4Unreachable::Port, 28), DropReason::BadIcmp);
    for keep in [0, 19, 20, 27] {
        silent(&error4(OWN4, Icmpv4Unreachable::Port, keep), DropReason::BadIcmp);
    }
}

#[test]
fn c03_c04_errors_become_events_and_change_nothing_by_themselves() {
    let mtu = |bytes| ErrorKind::TooBig { mtu: firelane_units::Mtu::new(bytes).unwrap() };
    for (reason, kind) in [
        (Icmpv4Unreachable::Port, ErrorKind::PortUnreachable),
        (Icmpv4Unreachable::Network, ErrorKind::NetworkUnreachable),
        (Icmpv4Unreachable::Host, ErrorKind::HostUnreachable),
        (Icmpv4Unreachable::Prohibited, ErrorKind::Prohibited),
        (Icmpv4Unreachable::FragmentationNeeded { mtu: 1400 }, mtu(1400)),
        (Icmpv4Unreachable::FragmentationNeeded { mtu: 0 }, mtu(1492)),
        (Icmpv4Unreachable::FragmentationNeeded { mtu: 68 }, mtu(576)),
    ] {
        let mut a = station();
        let generation = a.ip.generation();
        assert_eq!(a.input_bytes(NOW, &error4(OWN4, reason, 28)), "consumed");
        a.outputs(NOW);
        let [IpEvent::TransportError(error)] = a.events[..] else { panic!("{:?}", a.events) };
        assert_eq!((error.kind, error.src, error.dst), (kind, OWN4.into(), PEER4.into()));
        assert_eq!((error.ports.0.0, error.ports.1.0, error.seq.unwrap().0), (80, 443, 9));
        assert_eq!(a.ip.generation(), generation);
    }
}

/// Whoever cannot know whether it has sent what is quoted believes few, and the same again costs nothing.
#[test]
fn c03_paths_that_are_only_supposed_are_believed_a_limited_number_of_times() {
    let mut a = station();
    let mtu = firelane_units::Mtu::new(1400).unwrap();
    let generation = a.ip.generation();
    for last in (1..=1000u32).flat_map(|last| [last, last]) {
        a.ip.suppose_path_mtu(NOW, std::net::Ipv4Addr::from_bits(0xc633_6400 + last).into(), mtu);
    }
    assert_eq!((a.ip.narrow_paths().count(), a.ip.generation() - generation), (64, 64));
    a.ip.confirm_path_mtu(NOW, PEER4.into(), mtu);
    assert_eq!(a.ip.narrow_paths().count(), 65, "who knows is believed");
    let one = NOW + std::time::Duration::from_secs(60);
    for bytes in (600..1400).rev() {
        a.ip.suppose_path_mtu(one, PEER4.into(), firelane_units::Mtu::new(bytes).unwrap());
    }
    assert_eq!(a.ip.generation() - generation, 65 + 8);
}

#[test]
fn c03_a_path_that_a_transport_confirms_is_lower_for_ten_minutes_in_all_lanes() {
    let (mut a, mut lane) = (station(), station());
    let (dst, mtu) = (PEER4.into(), firelane_units::Mtu::new(1400).unwrap());
    a.ip.confirm_path_mtu(NOW, dst, mtu);
    a.ip.confirm_path_mtu(NOW, dst, mtu);
    a.outputs(NOW);
    assert_eq!(a.events, [IpEvent::PathMtu { dst, mtu }]);
    lane.ip.on_path_mtu(NOW, dst, mtu);
    lane.outputs(NOW);
    assert_eq!(lane.events, []);
    for station in [&mut a, &mut lane] {
        assert_eq!(station.ip.egress(NOW, None, dst).unwrap().mtu, mtu);
        let later = NOW + std::time::Duration::from_secs(600);
        station.ip.on_timer(later, &mut station.pools);
        assert_eq!(station.ip.egress(later, None, dst).unwrap().mtu.bytes(), 1500);
    }
}

#[test]
fn c06_no_error_about_an_error_a_group_or_a_later_fragment() {
    let port = |a: &mut Station, frame: &[u8]| {
        assert_eq!(a.input_bytes(NOW, frame), "deliver");
        let delivered = a.delivered.pop().unwrap();
        a.ip.unreachable_port(NOW, &delivered, &mut a.pools);
        a.outputs(NOW)
    };
    let mut a = station();
    let out = port(&mut a, &v4(PEER4, OWN4, UDP, &[7; 1000]));
    assert_eq!((out.len(), &out[0][34..36], out[0].len()), (1, &[3, 3][..], 14 + 576));
    let out = port(&mut a, &v6(PEER6, OWN6, UDP, &[7; 1400]));
    assert_eq!((out.len(), &out[0][54..56], out[0].len()), (1, &[1, 4][..], 14 + 1280));
    let view = Ipv6View::parse(&out[0][14..]).unwrap();
    assert!(firelane_wire::Icmpv6View::parse(view.payload()).unwrap().is_checksum_valid(OWN6, PEER6));
    // An error with an unknown type about a protocol nobody has: an ICMP error all the same.
    let unknown = [42, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(run(&v4(PEER4, OWN4, IpProtocol::ICMPV4, &unknown)).2.len(), 0);
    let error = Icmpv6Repr::Unreachable { reason: Icmpv6Unreachable::Port, quoted: &[0; 60] };
    let mut bytes = vec![17, 0, 0x9e, 4, 0, 0, 0, 0];
    bytes[0] = 58;
    bytes.extend(vec![0; error.emitted_len()]);
    error.emit(&mut bytes[8..]);
    assert_eq!(run(&v6(PEER6, OWN6, IpProtocol::DESTINATION_OPTIONS, &bytes)).2.len(), 0);
}

#[test]
fn c07_u02_errors_are_few() {
    let mut a = station();
    let mut sent = 0;
    for _ in 0..1000 {
        assert_eq!(a.input_bytes(NOW, &v4(PEER4, OWN4, IpProtocol(253), &[0; 8])), "drop");
        sent += a.outputs(NOW).len();
    }
    assert_eq!(sent, 20);
}

#[test]
fn a_frame_of_an_unknown_kind_or_link_ends() {
    silent(&ethernet(mac(1), EtherType(0x88b5), &[0; 46]), DropReason::UnknownEtherType);
    let mut a = station();
    let frame = a.frame(&v4(PEER4, OWN4, UDP, &[0; 16]));
    assert_eq!(a.input(NOW, LinkId(99), frame), "drop");
}

fn forge(bytes: &mut [u8]) {
    // Lengths and checksums are made right half of the time by the caller; here the rest of the chance.
    if bytes.len() > 34 && bytes[12..14] == [8, 0] {
        bytes[14] = 0x45 | bytes[14] & 1;
        let len = (bytes.len() - 14) as u16;
        bytes[16..18].copy_from_slice(&len.to_be_bytes());
        bytes[30..34].copy_from_slice(&OWN4.octets());
        bytes[26..29].copy_from_slice(&PEER4.octets()[..3]);
        let fixed = with_v4(bytes.to_vec(), &[]);
        bytes.copy_from_slice(&fixed);
    }
    if bytes.len() > 54 && bytes[12..14] == [0x86, 0xdd] {
        bytes[14] = 0x60;
        let len = (bytes.len() - 54) as u16;
        bytes[18..20].copy_from_slice(&len.to_be_bytes());
        bytes[22..37].copy_from_slice(&PEER6.octets()[..15]);
        bytes[38..54].copy_from_slice(&OWN6.octets());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_a_station_panic(
        frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..200), 0u8..4, any::<bool>(), 0u8..9), 1..20),
        l3_offset in 0usize..40,
        forwarding: bool,
    ) {
        let mut a = station();
        a.ip.set_forwarding(forwarding);
        let free = a.pools.small.free() + a.pools.large.free();
        for (mut bytes, kind, forged, protocol) in frames {
            if bytes.len() >= 24 {
                let ethertype: u16 = [0x0800, 0x86dd, 0x0806, 0x8100][usize::from(kind)];
                bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
                bytes[0] &= 0xfe;
                let known = [1, 6, 17, 58, 44, 0, 60, 43, 2][usize::from(protocol)];
                if kind == 0 { bytes[23] = known } else { bytes[20] = known }
                if forged { forge(&mut bytes) }
            }
            a.input_bytes(NOW, &bytes);
            let frame = a.frame(&bytes);
            let _ = a.ip.input(NOW, LINK, frame, l3_offset, &mut a.pools);
            let frame = a.frame(&bytes);
            a.input(NOW, LOOPBACK, frame);
            a.outputs(NOW);
        }
        a.ip.on_timer(NOW + std::time::Duration::from_secs(1000), &mut a.pools);
        a.outputs(NOW);
        a.delivered.clear();
        while let Some(at) = a.ip.poll_at() {
            a.ip.on_timer(at, &mut a.pools);
            a.outputs(at);
        }
        prop_assert_eq!((a.ip.held_frames(), a.pools.small.free() + a.pools.large.free()), (0, free));
    }
}
