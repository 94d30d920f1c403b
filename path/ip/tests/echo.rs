//! Echoes between stations: resolution, answers, fragments, oneself.

use crate::common;

use core::net::IpAddr;

use common::{Station, exchange, ip};
use firelane_ip::{Sent, Upper};
use firelane_units::Instant;
use firelane_wire::{Ecn, Icmpv4Repr, Icmpv6Repr, IpProtocol, icmpv6};

fn upper(protocol: IpProtocol) -> Upper {
    Upper { protocol, ..Upper::udp() }
}

fn request_v4(data: &[u8]) -> Vec<u8> {
    let request = Icmpv4Repr::EchoRequest { identifier: 1, sequence: 2, data };
    let mut bytes = vec![0; request.emitted_len()];
    request.emit(&mut bytes);
    bytes
}

#[test]
fn an_echo_resolves_the_neighbour_and_is_answered() {
    let mut a = Station::new(1, &["10.0.0.1/24"]);
    let mut b = Station::new(2, &["10.0.0.2/24"]);
    let now = Instant::from_secs(1);
    assert!(matches!(a.send(now, "10.0.0.2", &request_v4(b"hello"), upper(IpProtocol::ICMPV4)), Sent::Held));
    assert_eq!(a.ip.held_frames(), 1);
    let wire = exchange(now, &mut [&mut a, &mut b]);
    // Question, answer, echo, echo.
    assert_eq!(wire.len(), 4);
    assert_eq!(wire[3][34], 0);
    assert_eq!(&wire[3][42..], b"hello");
    // The answer is handed on: whoever asked is not IP's to know.
    assert_eq!((a.delivered.len(), a.drops, b.drops), (1, vec![], vec![]));
    assert_eq!(a.ip.held_frames(), 0);
}

fn request_v6(src: &str, dst: &str) -> Vec<u8> {
    let request = Icmpv6Repr::EchoRequest { identifier: 1, sequence: 2, data: b"hello" };
    let mut bytes = vec![0; request.emitted_len()];
    request.emit(&mut bytes);
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip(src), ip(dst)) else { unreachable!() };
    icmpv6::fill_checksum(&mut bytes, src, dst);
    bytes
}

/// RFC 1122 §3.2.2.6, RFC 4443 §4.2: whichever addresses a station has, an answer comes from the one that was asked.
#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    let now = Instant::from_secs(1);
    for asked in ["10.0.0.2", "10.0.0.3", "fd00::2", "fd00::3"] {
        let mut a = Station::new(1, &["10.0.0.1/24", "fd00::1/64"]);
        let mut b = Station::new(2, &["10.0.0.2/24", "10.0.0.3/24", "fd00::2/64", "fd00::3/64"]);
        let (request, protocol) = match ip(asked) {
            IpAddr::V4(_) => (request_v4(b"hello"), IpProtocol::ICMPV4),
            IpAddr::V6(_) => (request_v6("fd00::1", asked), IpProtocol::ICMPV6),
        };
        a.send(now, asked, &request, upper(protocol));
        exchange(now, &mut [&mut a, &mut b]);
        let sources: Vec<_> = a.delivered.iter().map(|answer| answer.src).collect();
        assert_eq!(sources, [ip(asked)]);
    }
}

#[test]
fn an_echo_over_ipv6_too() {
    let mut a = Station::new(1, &["fd00::1/64"]);
    let mut b = Station::new(2, &["fd00::2/64"]);
    let now = Instant::from_secs(1);
    let bytes = request_v6("fd00::1", "fd00::2");
    assert!(matches!(a.send(now, "fd00::2", &bytes, upper(IpProtocol::ICMPV6)), Sent::Held));
    let wire = exchange(now, &mut [&mut a, &mut b]);
    assert_eq!(wire.len(), 4);
    assert_eq!(wire[3][54], 129);
    assert_eq!(&wire[3][62..], b"hello");
    assert_eq!((a.delivered.len(), a.drops, b.drops), (1, vec![], vec![]));
}

#[test]
fn an_answer_travels_as_its_question_did_without_what_the_way_said_of_congestion() {
    let class = Upper { dscp: 46, ecn: Ecn::Congested, ..upper(IpProtocol::ICMPV4) };
    let mut a = Station::new(1, &["10.0.0.1/24"]);
    let mut b = Station::new(2, &["10.0.0.2/24"]);
    let now = Instant::from_secs(1);
    a.send(now, "10.0.0.2", &request_v4(b"hello"), class);
    let wire = exchange(now, &mut [&mut a, &mut b]);
    assert_eq!((wire[2][15], wire[3][15]), (46 << 2 | 3, 46 << 2));
}

#[test]
fn an_echo_to_oneself_never_reaches_the_wire() {
    let now = Instant::from_secs(1);
    for dst in ["10.0.0.1", "127.0.0.1"] {
        let mut a = Station::new(1, &["10.0.0.1/24"]);
        assert!(matches!(a.send(now, dst, &request_v4(b"x"), upper(IpProtocol::ICMPV4)), Sent::Out));
        assert_eq!(a.outputs(now), Vec::<Vec<u8>>::new());
        assert_eq!((a.delivered.len(), a.drops.len()), (1, 0), "the answer is handed on");
        assert_eq!(a.ip.made().messages, 2, "the address was announced, the echo answered");
    }
}
