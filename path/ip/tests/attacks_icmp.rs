//! Attacks by ICMP (conformance C01 to C07): expected behaviour, and the counter that rises.

use crate::attack;
use crate::common;
use crate::craft;

use core::net::Ipv4Addr;
use std::time::Duration;

use attack::{Attacked, silent};
use common::ip;
use craft::*;
use firelane_ip::{ErrorKind, IpEvent};
use firelane_units::DropReason;
use firelane_wire::{ArpRepr, IpProtocol, Ipv4Repr, Ipv6Repr};

/// What the victim is said to have sent to the attacker: a TCP segment's first bytes.
fn quoted_v4(src: Ipv4Addr, dst: Ipv4Addr, keep: usize) -> Vec<u8> {
    let header = Ipv4Repr::new(src, dst, IpProtocol::TCP, 20);
    let mut packet = vec![0; 20];
    header.emit(&mut packet);
    packet.extend([0x1f, 0x90, 0x30, 0x39, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    packet.truncate(keep);
    packet
}

fn error_v4(kind: u8, code: u8, rest: u32, quoted: &[u8]) -> Vec<u8> {
    let body = [&rest.to_be_bytes()[..], quoted].concat();
    v4(&header_v4(IpProtocol::ICMPV4), &icmpv4_message(kind, code, &body))
}

#[test]
fn c01_echoes_are_as_long_as_ip_says_and_a_flood_is_limited() {
    // INFRA:HALT: the frame is longer, or shorter, than the packet says.
    let mut frame = v4(&header_v4(IpProtocol::ICMPV4), &icmpv4_message(8, 0, &[0, 1, 0, 2, 9]));
    frame.extend([0xee; 100]);
    let mut attacked = Attacked::new();
    attacked.give(&[frame.clone()]);
    assert_eq!(answer_v4(&attacked.sent[0]).3, [9], "what is behind the packet is not echoed");
    let total = (frame.len() + 1 - L3) as u16;
    frame[L3 + 2..L3 + 4].copy_from_slice(&total.to_be_bytes());
    repair_v4(&mut frame);
    silent("longer than the frame", &[frame], DropReason::BadHeader);
    let mut attacked = Attacked::new();
    let echo = v4(&header_v4(IpProtocol::ICMPV4), &icmpv4_message(8, 0, &[0, 1, 0, 2, 9]));
    attacked.give(&vec![echo; 5000]);
    assert_eq!(attacked.sent.len(), 2000, "one source's burst");
    attacked.assert_counted("flood", DropReason::IcmpLimit, 3000);
    attacked.assert_recovered("c01");
}

#[test]
fn c02_errors_that_quote_nothing_of_ours_are_dropped() {
    let ours = |keep| quoted_v4(VICTIM_V4, ATTACKER_V4, keep);
    let frames = [
        error_v4(3, 3, 0, &ours(0)),
        error_v4(3, 3, 0, &ours(19)),
        error_v4(3, 3, 0, &ours(23)),
        error_v4(3, 3, 0, &quoted_v4(ATTACKER_V4, VICTIM_V4, 40)),
        error_v4(3, 4, 1400, &quoted_v4(Ipv4Addr::new(10, 0, 0, 77), ATTACKER_V4, 40)),
        error_v4(11, 0, 0, &ours(10)),
    ];
    silent("c02", &frames, DropReason::BadIcmp);
    let mut v5 = ours(40);
    v5[0] = 0x55;
    silent("a quoted packet that is none", &[error_v4(3, 3, 0, &v5)], DropReason::BadIcmp);
}

#[test]
fn c03_a_claimed_mtu_has_a_floor_never_grows_and_needs_a_transport_to_be_believed() {
    for (claimed, expected) in [(0u32, 576), (1, 576), (68, 576), (1000, 1000), (1400, 1400)] {
        let mut attacked = Attacked::new();
        let before = attacked.station.ip.path_mtu(ATTACKER_V4.into());
        attacked.give(&[error_v4(3, 4, claimed, &quoted_v4(VICTIM_V4, ATTACKER_V4, 40))]);
        assert_eq!(attacked.station.ip.path_mtu(ATTACKER_V4.into()), before, "nothing is believed here");
        let told = attacked.station.events.iter().find_map(|event| match event {
            IpEvent::TransportError(error) => Some(error.kind),
            _ => None,
        });
        let Some(ErrorKind::TooBig { mtu }) = told else { panic!("a transport is told: {told:?}") };
        assert_eq!(mtu.bytes(), expected, "{claimed}");
        attacked.station.ip.confirm_path_mtu(NOW, ATTACKER_V4.into(), mtu);
        assert_eq!(attacked.station.ip.path_mtu(ATTACKER_V4.into()).unwrap().bytes(), expected);
        let larger = firelane_units::Mtu::new(9000).unwrap();
        attacked.station.ip.confirm_path_mtu(NOW, ATTACKER_V4.into(), larger);
        assert_eq!(attacked.station.ip.path_mtu(ATTACKER_V4.into()).unwrap().bytes(), expected);
        attacked.pass(Duration::from_secs(601));
        assert_eq!(attacked.station.ip.path_mtu(ATTACKER_V4.into()), before, "after ten minutes");
        assert!(attacked.counted().is_empty());
    }
}

#[test]
fn c04_hard_errors_are_told_to_the_transport_and_change_nothing_here() {
    for (code, kind) in [(1, ErrorKind::HostUnreachable), (2, ErrorKind::ProtocolUnreachable)] {
        let mut attacked = Attacked::new();
        let generation = attacked.station.ip.generation();
        attacked.give(&[error_v4(3, code, 0, &quoted_v4(VICTIM_V4, ATTACKER_V4, 40))]);
        let [IpEvent::TransportError(error)] = attacked.station.events[..] else { panic!("one is told") };
        assert_eq!((error.kind, error.seq.map(|seq| seq.0)), (kind, Some(7)));
        assert_eq!(attacked.station.ip.generation(), generation);
    }
}

#[test]
fn c05_redirects_are_not_obeyed() {
    let mut attacked = Attacked::new();
    let before = attacked.station.ip.egress(NOW, None, ip("10.0.0.9")).unwrap();
    let gateway = u32::from_be_bytes([10, 0, 0, 66]);
    attacked.give(&vec![error_v4(5, 1, gateway, &quoted_v4(VICTIM_V4, ATTACKER_V4, 40)); 10]);
    attacked.assert_counted("IPv4", DropReason::BadIcmp, 10);
    let router = core::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    let message = firelane_wire::NdpMessage::Redirect { target: router, destination: ATTACKER_V6 };
    attacked.give(&vec![ndp_frame(router, VICTIM_V6, message, &[]); 10]);
    attacked.assert_counted("IPv6", DropReason::BadNdp, 10);
    assert_eq!(attacked.station.ip.egress(NOW, None, ip("10.0.0.9")).unwrap(), before);
    assert_eq!(attacked.station.ip.routes().count(), 2);
    attacked.assert_recovered("c05");
}

#[test]
fn c06_no_error_about_errors_groups_broadcasts_and_later_pieces() {
    let unknown = IpProtocol(200);
    let broadcast = Ipv4Repr { dst: Ipv4Addr::new(10, 0, 0, 255), ..header_v4(unknown) };
    let group = Ipv4Repr { dst: Ipv4Addr::new(224, 0, 0, 1), ..header_v4(unknown) };
    let group6 = Ipv6Repr { dst: ALL_NODES, ..header_v6(unknown) };
    let frames = [v4(&broadcast, &[0; 8]), v4(&group, &[0; 8]), v6(&group6, &[0; 8])];
    silent("to many", &frames, DropReason::UnknownProtocol);
    // An error that cannot be delivered makes none.
    let about_error = error_v4(3, 3, 0, &quoted_v4(Ipv4Addr::new(10, 0, 0, 77), ATTACKER_V4, 40));
    silent("about an error", &[about_error], DropReason::BadIcmp);
    let later = Ipv4Repr { dont_fragment: false, fragment_offset: 64, ..header_v4(unknown) };
    let mut attacked = Attacked::new();
    attacked.give(&[v4(&later, &[0; 8])]);
    attacked.pass(Duration::from_secs(31));
    attacked.assert_counted("a later piece", DropReason::ReassemblyLimit, 1);
    assert!(attacked.sent.is_empty());
}

#[test]
fn c07_what_is_answered_to_one_says_nothing_about_the_others() {
    // SAD DNS: an attacker spends the limit with forged sources and asks whether anything is left for him.
    let left_for_attacker = |seed: u8, forged: u32| {
        let mut station = common::Station::bare(seed, firelane_ip::DadConfig::OFF, true, 1500);
        station.ip.add_address(NOW, common::LINK, "10.0.0.2/8".parse().unwrap()).unwrap();
        station.ip.on_timer(NOW, &mut station.pools);
        station.outputs(NOW);
        let mut answered = |src: Ipv4Addr| {
            let question = arp(&ArpRepr::request(ATTACKER_MAC, src, VICTIM_V4));
            station.input_bytes(NOW, &question);
            station.outputs(NOW);
            let mut frame = v4(&Ipv4Repr { src, ..header_v4(IpProtocol(200)) }, &[0; 8]);
            frame[..6].copy_from_slice(&common::mac(seed).0);
            station.input_bytes(NOW, &frame);
            station.outputs(NOW).len()
        };
        for n in 0..forged {
            answered(Ipv4Addr::from(0x0a01_0000 + n));
        }
        answered(ATTACKER_V4)
    };
    // With nothing spent he is answered, with everything spent he is not; between, it is chance that decides, so
    // that one question tells nothing about how many others were asked.
    assert_eq!((left_for_attacker(2, 0), left_for_attacker(2, 400)), (1, 0));
    let between: Vec<usize> = (2..=40).map(|seed| left_for_attacker(seed, 100)).collect();
    assert!(between.contains(&0) && between.contains(&1), "{between:?}");
}
