//! Attacks on IPv6 (conformance V01 to V10): expected behaviour, and the counter that rises.

use crate::attack;
use crate::craft;

use core::net::Ipv6Addr;

use attack::{Attacked, problem, silent};
use craft::*;
use firelane_units::DropReason;
use firelane_wire::{FragmentRepr, IpProtocol, Ipv6Repr};

/// A packet whose first header is `first`, and the bytes from there on.
fn behind(first: u8, headers: &[u8]) -> Vec<u8> {
    v6(&header_v6(IpProtocol(first)), headers)
}

/// An options header of eight bytes, padded with one option, before `next`.
const fn padded(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

fn fragment(id: u32, offset: u16, content: &[u8], more: bool) -> Vec<u8> {
    let repr = FragmentRepr { next_header: IpProtocol::UDP, offset, more, identification: id };
    let mut bytes = vec![0; repr.emitted_len()];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(content);
    behind(44, &bytes)
}

#[test]
fn v01_payload_lengths_that_lie_and_jumbograms() {
    let good = v6(&header_v6(IpProtocol::UDP), &udp(b"payload!"));
    let with = |at: usize, value| {
        let mut frame = good.clone();
        frame[L3 + at] = value;
        frame
    };
    let frames = [with(5, 17), with(4, 0xff), with(0, 0x40), with(0, 0x50), good[..L3 + 39].to_vec()];
    silent("lengths", &frames, DropReason::BadHeader);
    // RFC 2675's option asks for an answer where it is unknown.
    let jumbo = behind(0, &[&[17, 0, 0xc2, 4, 0, 1, 0, 0][..], &udp(b"jumbo")].concat());
    problem("jumbogram", &jumbo, DropReason::BadOption, 2, 42);
}

#[test]
fn v02_extension_chains_are_walked_so_far_and_no_further() {
    let chain = |count: usize, next: u8| {
        let mut headers = Vec::new();
        for n in 0..count {
            headers.extend(padded(if n + 1 == count { next } else { 60 }));
        }
        headers.extend(udp(b"end"));
        headers
    };
    let mut attacked = Attacked::new();
    attacked.give(&[behind(60, &chain(8, 17))]);
    assert_eq!((attacked.station.delivered.len(), attacked.counted().len()), (1, 0));
    problem("nine headers", &behind(60, &chain(9, 17)), DropReason::BadOption, 8, 40 + 64);
    problem("fifty headers", &behind(60, &chain(50, 17)), DropReason::BadOption, 8, 40 + 64);
    let again = [&padded(0)[..], &padded(17), &udp(b"x")].concat();
    problem("a second hop-by-hop header", &behind(0, &again), DropReason::BadOption, 1, 40);
    let late = [&padded(0)[..], &padded(17), &udp(b"x")].concat();
    problem("a hop-by-hop header that is not first", &behind(60, &late), DropReason::BadOption, 1, 40);
    let long = [&[17, 64, 1, 4, 0, 0, 0, 0][..], &vec![1; 600]].concat();
    problem("more than 512 bytes", &behind(60, &long), DropReason::BadOption, 7, 40 + 512);
    let frames = [
        behind(60, &[17]),
        behind(60, &[17, 4, 1, 4, 0, 0, 0, 0]),
        behind(60, &[17, 0, 5, 200, 0, 0, 0, 0]),
        behind(60, &[17, 0, 1, 5, 0, 0, 0, 0]),
    ];
    silent("cut off, or past its end", &frames, DropReason::BadOption);
}

#[test]
fn v03_unknown_options_do_what_their_type_says() {
    let option = |kind: u8| [17, 0, kind, 4, 0, 0, 0, 0];
    let packet = |kind, dst| {
        let header = Ipv6Repr { dst, ..header_v6(IpProtocol::DESTINATION_OPTIONS) };
        v6(&header, &[&option(kind)[..], &udp(b"option")].concat())
    };
    let mut attacked = Attacked::new();
    attacked.give(&[packet(0x3e, VICTIM_V6), packet(0x3e, ALL_NODES)]);
    assert_eq!(attacked.station.delivered.len(), 2, "00: skipped");
    silent("01: dropped", &[packet(0x7e, VICTIM_V6), packet(0x7e, ALL_NODES)], DropReason::BadOption);
    problem("10: reported", &packet(0xbe, VICTIM_V6), DropReason::BadOption, 2, 42);
    problem("11: reported unless to a group", &packet(0xfe, VICTIM_V6), DropReason::BadOption, 2, 42);
    problem("10, to a group: reported too", &packet(0xbe, ALL_NODES), DropReason::BadOption, 2, 42);
    silent("11, to a group", &[packet(0xfe, ALL_NODES)], DropReason::BadOption);
}

#[test]
fn v04_source_routes_are_not_followed() {
    let routed = |kind: u8, left: u8| {
        let mut header = vec![17, 2, kind, left, 0, 0, 0, 0];
        header.extend(ATTACKER_V6.octets());
        behind(43, &[header, udp(b"routed")].concat())
    };
    for kind in [0, 2, 4, 253] {
        let mut attacked = Attacked::new();
        attacked.give(&[routed(kind, 0)]);
        let counted = attacked.counted();
        assert_eq!(attacked.station.delivered.len() + counted.values().sum::<u64>() as usize, 1);
        let mut attacked = Attacked::new();
        attacked.give(&[routed(kind, 1)]);
        attacked.assert_counted("v04", DropReason::BadOption, 1);
        assert!(attacked.sent.len() <= 1 && attacked.station.delivered.is_empty());
        assert!(attacked.sent.iter().all(|f| answer_v6(f).0 == 4 && answer_v6(f).2 == 42));
        attacked.assert_recovered("v04");
    }
}

#[test]
fn v05_overlapping_fragment_drops_all() {
    let mut attacked = Attacked::new();
    attacked.give(&[fragment(1, 0, &[1; 64], true), fragment(1, 128, &[2; 64], true)]);
    assert_eq!(attacked.station.ip.held_frames(), 2);
    attacked.give(&[fragment(1, 32, &[3; 64], true)]);
    attacked.assert_counted("v05", DropReason::BadFragment, 3);
    // RFC 5722 §4: those that are still to come too, and nobody is told.
    attacked.give(&[fragment(1, 64, &[4; 64], true), fragment(1, 192, &[5; 8], false)]);
    attacked.assert_counted("v05, later", DropReason::BadFragment, 2);
    assert_eq!((attacked.sent.len(), attacked.station.ip.held_frames()), (0, 0));
    attacked.assert_recovered("v05");
    assert_eq!(attacked.station.delivered.len(), 0);
}

#[test]
fn v06_atomic_fragments_stand_alone_and_nested_ones_are_dropped() {
    let mut attacked = Attacked::new();
    // RFC 6946: with the number of a datagram that is waited for.
    attacked.give(&[fragment(7, 0, &udp(&[1; 56]), true), fragment(7, 0, &udp(b"atomic"), false)]);
    assert_eq!((attacked.station.delivered.len(), attacked.station.ip.held_frames()), (1, 1));
    assert!(attacked.counted().is_empty());
    // CVE-2021-24086: a fragment header behind a fragment header, whole and put together.
    let inner = FragmentRepr { next_header: IpProtocol::UDP, offset: 0, more: true, identification: 9 };
    let outer = FragmentRepr { next_header: IpProtocol::FRAGMENT, offset: 0, more: false, identification: 8 };
    let mut nested = vec![0; 16];
    outer.emit(&mut nested);
    inner.emit(&mut nested[8..]);
    nested.extend([0; 64]);
    silent("nested", &[behind(44, &nested)], DropReason::BadFragment);
}

#[test]
fn v07_first_pieces_without_their_headers_odd_lengths_and_too_much() {
    // RFC 7112 §5.
    let first = |next: u8, content: &[u8]| {
        let mut bytes = vec![next, 0, 0, 1, 0, 0, 0, 9];
        bytes.extend_from_slice(content);
        behind(44, &bytes)
    };
    problem("UDP's header is not there", &first(17, &[]), DropReason::BadFragment, 3, 0);
    problem("TCP's is half there", &first(6, &[0; 16]), DropReason::BadFragment, 3, 0);
    let odd = fragment(3, 0, &[0; 63], true);
    problem("not a multiple of eight", &odd, DropReason::BadOption, 0, 4);
    let past = fragment(3, 65_528, &[0; 64], false);
    problem("past 65,535", &past, DropReason::BadOption, 0, 42);
}

#[test]
fn v08_short_echoes_with_and_without_headers_in_front() {
    let short = |len: usize| icmpv6_message(ATTACKER_V6, VICTIM_V6, 128, 0, &[0; 4])[..len].to_vec();
    let mut frames = Vec::new();
    for len in 1..8 {
        let body = short(len);
        frames.push(v6(&header_v6(IpProtocol::ICMPV6), &body));
        frames.push(behind(0, &[&padded(58)[..], &body].concat()));
    }
    silent("v08", &frames, DropReason::BadIcmp);
}

#[test]
fn v09_addresses_that_cannot_be_on_a_wire() {
    let from = |src: Ipv6Addr| v6(&Ipv6Repr { src, ..header_v6(IpProtocol::UDP) }, &udp(b"from"));
    let mapped = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, 9);
    let sources = [Ipv6Addr::UNSPECIFIED, ALL_NODES, Ipv6Addr::LOCALHOST, mapped, VICTIM_V6].map(from);
    silent("sources", &sources, DropReason::Martian);
    let to = |dst: Ipv6Addr| v6(&Ipv6Repr { dst, ..header_v6(IpProtocol::UDP) }, &udp(b"to"));
    silent("::1", &[to(Ipv6Addr::LOCALHOST)], DropReason::Martian);
    let nobodys = [0xff01, 0xff00, 0xff05, 0xff0e].map(|first| to(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 1)));
    silent("groups that nobody joined, or that do not leave a host", &nobodys, DropReason::NotForUs);
}
