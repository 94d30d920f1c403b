//! Attacks on IPv4 (conformance I01 to I13): expected behaviour, and the counter that rises.

use crate::attack;
use crate::common;
use crate::craft;

use core::net::Ipv4Addr;
use std::collections::BTreeSet;

use attack::{Attacked, silent};
use common::{Station, mac};
use craft::*;
use firelane_ip::{DadConfig, Sent, Upper};
use firelane_units::DropReason;
use firelane_wire::{Ecn, IpProtocol, Ipv4Repr, Ipv4View, TimeExceeded};

fn datagram() -> Vec<u8> {
    v4(&header_v4(IpProtocol::UDP), &udp(b"payload!"))
}

fn with(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut frame = datagram();
    for &(at, value) in changes {
        frame[L3 + at] = value;
    }
    repair_v4(&mut frame);
    frame
}

/// A fragment from the attacker.
fn piece(id: u16, offset: u16, content: &[u8], more: bool) -> Vec<u8> {
    let header = Ipv4Repr {
        identification: id,
        dont_fragment: false,
        more_fragments: more,
        fragment_offset: offset,
        ..header_v4(IpProtocol::UDP)
    };
    v4(&header, content)
}

#[test]
fn i01_lengths_that_contradict_each_other_are_dropped() {
    let frames = [
        with(&[(0, 0x55)]),
        with(&[(0, 0x65)]),
        with(&[(0, 0x44)]),
        with(&[(0, 0x40)]),
        with(&[(0, 0x4f)]),
        with(&[(2, 0xff)]),
        with(&[(3, 19)]),
        with(&[(2, 0), (3, 0)]),
        datagram()[..L3 + 19].to_vec(),
        datagram()[..L3].to_vec(),
    ];
    silent("i01", &frames, DropReason::BadHeader);
    // Padding behind the packet is no part of it.
    let mut attacked = Attacked::new();
    let mut padded = datagram();
    padded.extend([0xee; 20]);
    attacked.give(&[padded]);
    let delivered = attacked.station.delivered.pop().unwrap();
    assert_eq!(delivered.payload.len(), 16);
    assert!(attacked.counted().is_empty());
}

#[test]
fn i02_a_bad_checksum_is_silent_and_a_spent_ttl_is_no_error_for_a_host() {
    let mut broken = datagram();
    broken[L3 + 10] ^= 1;
    silent("checksum", &[broken], DropReason::BadChecksum);
    // RFC 1122 §3.2.1.7: what has arrived has arrived.
    let mut attacked = Attacked::new();
    attacked.give(&[with(&[(8, 0)]), with(&[(8, 1)])]);
    assert_eq!((attacked.station.delivered.len(), attacked.sent.len()), (2, 0));
}

#[test]
fn i03_sources_that_no_station_has_are_dropped_in_silence() {
    let sources = [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::new(127, 0, 0, 1),
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, 1, 2, 3),
        VICTIM_V4,
    ];
    let frames = sources.map(|src| v4(&Ipv4Repr { src, ..header_v4(IpProtocol::UDP) }, &udp(b"land")));
    silent("i03", &frames, DropReason::Martian);
}

#[test]
fn i04_options_that_lie_or_name_a_way_are_dropped_and_never_echoed() {
    let cases: [&[u8]; 9] = [
        &[7, 0, 4, 0],
        &[7, 1, 4, 0],
        &[7, 40, 4, 0],
        &[131, 7, 4, 10, 0, 0, 1, 0],
        &[137, 7, 4, 10, 0, 0, 1, 0],
        &[131, 3, 4, 0],
        &[148, 3, 0, 0],
        &[7, 7, 3, 0, 0, 0, 0, 0],
        &[68, 0, 5, 0],
    ];
    let frames = cases.map(|options| v4_with_options(&header_v4(IpProtocol::UDP), options, &udp(b"way")));
    for (options, frame) in cases.iter().zip(&frames) {
        let mut attacked = Attacked::new();
        attacked.give([frame]);
        let counted = attacked.counted();
        let is_read = counted.is_empty() && attacked.station.delivered.len() == 1;
        let is_refused = counted.get("ip_bad_option") == Some(&1);
        assert!(is_read || is_refused, "{options:?}: {counted:?}");
        let must_refuse = matches!(options[0], 131 | 137) || options[1] < 2 || options[1] == 40;
        assert!(is_refused || !must_refuse, "{options:?}");
        assert!(attacked.sent.is_empty());
    }
    // All forty bytes of nothing are read, and the answer has none of them.
    let mut attacked = Attacked::new();
    let echo = icmpv4_message(8, 0, &[0, 1, 0, 2, 9]);
    attacked.give(&[v4_with_options(&header_v4(IpProtocol::ICMPV4), &[1; 40], &echo)]);
    let view = Ipv4View::parse(&attacked.sent[0][L3..]).unwrap();
    assert_eq!((attacked.sent.len(), view.has_options()), (1, false));
}

#[test]
fn i05_ping_of_death_frees_the_whole_queue() {
    let mut attacked = Attacked::new();
    let frames = [
        piece(1, 0, &[1; 1480], true),
        piece(1, 1480, &[2; 1480], true),
        piece(1, 65_528, &[3; 1480], false),
    ];
    attacked.give(&frames);
    attacked.assert_counted("i05", DropReason::BadFragment, 3);
    assert_eq!((attacked.station.ip.held_frames(), attacked.station.delivered.len()), (0, 0));
    attacked.assert_recovered("i05");
}

#[test]
fn i06_every_overlap_condemns_its_datagram() {
    for (name, second, len) in [
        ("teardrop: inside the first", 8, 8),
        ("newtear: ends inside", 24, 16),
        ("bonk: behind the first, past the second", 32, 40),
        ("boink: the same place, longer", 0, 80),
        ("syndrop: one unit back", 56, 16),
    ] {
        let mut attacked = Attacked::new();
        attacked.give(&[piece(9, 0, &[1; 64], true), piece(9, second, &vec![2; len], true)]);
        // What still comes is dropped too.
        attacked.give(&[piece(9, 64, &[3; 16], false)]);
        attacked.assert_counted(name, DropReason::BadFragment, 3);
        assert_eq!((attacked.station.ip.held_frames(), attacked.sent.len()), (0, 0), "{name}");
        attacked.assert_recovered(name);
    }
}

/// A station with buffers for more than the limits allow.
fn roomy() -> Attacked {
    let mut station = Station::new(2, &["10.0.0.2/24", "fd00::2/64"]);
    station.pools =
        firelane_frame::Pools::new(firelane_frame::PoolsConfig { small_slots: 20_000, large_slots: 64 });
    introduce(&mut station);
    Attacked::by(station)
}

#[test]
fn i07_rose_first_and_last_pieces_of_thousands_are_bounded() {
    let mut attacked = roomy();
    let count = 6000u16;
    for id in 0..count {
        attacked.give(&[piece(id, 0, &[1; 64], true), piece(id, 1000, &[2; 8], false)]);
        assert!(attacked.station.ip.held_frames() <= 2 * 512, "a quarter of 2,048 datagrams for one source");
    }
    let held = attacked.station.ip.held_frames();
    let given_up = 2 * usize::from(count) - held;
    attacked.assert_counted("i07", DropReason::ReassemblyLimit, given_up);
    attacked.pass(std::time::Duration::from_secs(31));
    attacked.assert_counted("i07, after its time", DropReason::ReassemblyLimit, held);
    attacked.assert_recovered("i07");
}

#[test]
fn i08_fragmentsmack_a_datagram_has_128_pieces_at_most() {
    let mut attacked = roomy();
    // In reverse, every other unit.
    let frames: Vec<Vec<u8>> = (0..2000u16).rev().map(|n| piece(5, 8 + n * 16, &[1; 8], true)).collect();
    attacked.give(&frames);
    // The hundred and twenty-ninth condemns the datagram; what comes later belongs to nothing.
    let expected = [("ip_bad_fragment", 2000 - 129), ("ip_reassembly_limit", 129)];
    assert_eq!(attacked.counted().into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(attacked.station.ip.held_frames(), 0);
    attacked.assert_recovered("i08");
}

#[test]
fn i09_a_transport_header_in_pieces_is_dropped() {
    let tcp = |offset, len: usize| {
        let header = Ipv4Repr {
            dont_fragment: false,
            more_fragments: true,
            fragment_offset: offset,
            ..header_v4(IpProtocol::TCP)
        };
        v4(&header, &vec![0; len])
    };
    silent("i09", &[tcp(0, 8), tcp(0, 16), tcp(8, 64), tcp(16, 64)], DropReason::BadFragment);
}

#[test]
fn i10_pieces_that_contradict_each_other_are_dropped() {
    let mut attacked = Attacked::new();
    attacked.give(&[piece(3, 0, &[1; 64], true), piece(3, 0, &[1; 64], true)]);
    attacked.assert_counted("an exact copy", DropReason::BadFragment, 1);
    attacked.give(&[piece(3, 0, &[9; 64], true)]);
    attacked.assert_counted("a copy with other data condemns", DropReason::BadFragment, 2);
    // RFC 3168 §5.3: not-ECT beside CE.
    let mut attacked = Attacked::new();
    let with_ecn = |offset, more, ecn| {
        let header = Ipv4Repr {
            identification: 4,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset,
            ecn,
            ..header_v4(IpProtocol::UDP)
        };
        v4(&header, &[0; 64])
    };
    attacked.give(&[with_ecn(0, true, Ecn::NotCapable), with_ecn(64, false, Ecn::Congested)]);
    attacked.assert_counted("congestion fields", DropReason::BadFragment, 2);
    // Pieces of another protocol belong to another datagram.
    let mut attacked = Attacked::new();
    let other = Ipv4Repr { identification: 3, fragment_offset: 64, ..header_v4(IpProtocol(200)) };
    attacked.give(&[piece(3, 0, &[1; 64], true), v4(&other, &[1; 64])]);
    assert_eq!(attacked.station.delivered.len(), 0);
    attacked.assert_recovered("i10");
}

#[test]
fn i11_tunnels_that_nobody_configured_are_refused_and_told_ten_times_a_second() {
    let inner = v4(&header_v4(IpProtocol::UDP), &udp(b"inner"))[L3..].to_vec();
    for protocol in [4, 41, 47, 50, 51, 94, 132] {
        let mut attacked = Attacked::new();
        let frame = v4(&header_v4(IpProtocol(protocol)), &inner);
        attacked.give(&vec![frame; 100]);
        attacked.assert_counted("i11", DropReason::UnknownProtocol, 100);
        assert_eq!(attacked.station.delivered.len(), 0, "never decapsulated");
        assert_eq!(attacked.sent.len(), 20, "Linux' burst for one destination");
        assert!(attacked.sent.iter().all(|frame| answer_v4(frame).0 == 3 && answer_v4(frame).1 == 2));
        attacked.pass(std::time::Duration::from_secs(60));
        attacked.assert_recovered("i11");
    }
}

#[test]
fn i12_smurf_echoes_to_groups_and_broadcasts_are_not_answered() {
    let echo = icmpv4_message(8, 0, &[0, 1, 0, 2, 9]);
    let frames = [Ipv4Addr::BROADCAST, Ipv4Addr::new(10, 0, 0, 255), Ipv4Addr::new(224, 0, 0, 1)]
        .map(|dst| v4(&Ipv4Repr { dst, ..header_v4(IpProtocol::ICMPV4) }, &echo));
    silent("i12", &frames, DropReason::BadIcmp);
    // A directed broadcast of another subnet is for nobody here.
    let dst = Ipv4Addr::new(10, 9, 9, 255);
    let other = v4(&Ipv4Repr { dst, ..header_v4(IpProtocol::ICMPV4) }, &echo);
    silent("another subnet", &[other], DropReason::NotForUs);
}

#[test]
fn i13_identifications_tell_nothing_about_other_destinations() {
    let mut station = Station::bare(2, DadConfig::OFF, true, 1500);
    station.ip.add_address(NOW, common::LINK, "10.0.0.2/16".parse().unwrap()).unwrap();
    station.ip.on_timer(NOW, &mut station.pools);
    station.outputs(NOW);
    let mut numbers = Vec::new();
    for n in 1..=200u16 {
        let peer = Ipv4Addr::new(10, 0, 1, n as u8);
        let question = firelane_wire::ArpRepr::request(mac(9), peer, VICTIM_V4);
        station.input_bytes(NOW, &arp(&question));
        station.outputs(NOW);
        let may_cut = station.send(NOW, &peer.to_string(), &udp(b"x"), Upper::udp());
        assert!(matches!(may_cut, Sent::Out));
        let sent = station.outputs(NOW);
        numbers.push(u16::from_be_bytes([sent[0][L3 + 4], sent[0][L3 + 5]]));
        // RFC 6864 §4.1: what cannot be cut has no number.
        station.send(NOW, &peer.to_string(), &[0; 20], Upper::tcp(Ecn::NotCapable));
        assert_eq!(station.outputs(NOW)[0][L3 + 4..L3 + 6], [0, 0]);
    }
    let near = numbers.windows(2).filter(|pair| pair[1].wrapping_sub(pair[0]) <= 16).count();
    assert!(near <= 3, "destinations share a sequence: {near}");
    assert!(numbers.iter().collect::<BTreeSet<_>>().len() > 190);
}

#[test]
fn i07_the_sender_is_told_that_its_time_was_up_only_if_the_first_piece_came() {
    for (frame, answers) in [(piece(1, 0, &[1; 64], true), 1), (piece(1, 64, &[1; 64], false), 0)] {
        let mut attacked = Attacked::new();
        attacked.give(&[frame]);
        attacked.pass(std::time::Duration::from_secs(31));
        attacked.assert_counted("its time", DropReason::ReassemblyLimit, 1);
        assert_eq!(attacked.sent.len(), answers);
        let exceeded = TimeExceeded::InReassembly as u8;
        assert!(attacked.sent.iter().all(|f| (answer_v4(f).0, answer_v4(f).1) == (11, exceeded)));
    }
}
