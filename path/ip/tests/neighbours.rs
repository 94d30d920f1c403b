//! Neighbours in virtual time: the sequences of RFC 4861 §7.3 for both protocols, and their limits (A01 to
//! A09).

use crate::common;

use core::net::IpAddr;
use std::time::Duration;

use common::{ANSWER, LINK, Station, exchange, ip, mac};
use firelane_ip::{
    Configured, DadConfig, ErrorKind, Hearsay, IpEvent, LinkParameters, NeighbourState, Origin, Route,
    RouteKind, Sent, Upper,
};
use firelane_units::{DropReason, Instant, MacAddr};
use firelane_wire::ndp::solicited_node;
use firelane_wire::{
    ArpOperation, ArpRepr, ArpView, EtherType, EthernetRepr, IpProtocol, Ipv6Repr, NdpMessage, NdpOption,
    NdpRepr, RouterPreference, icmpv6,
};
use proptest::prelude::*;

pub(crate) const NOW: Instant = Instant::from_secs(1);

pub(crate) fn arp(src: MacAddr, packet: &ArpRepr) -> Vec<u8> {
    let mut bytes = vec![0; 14 + packet.emitted_len()];
    EthernetRepr { dst: MacAddr::BROADCAST, src, ethertype: EtherType::ARP }.emit(&mut bytes);
    packet.emit(&mut bytes[14..]);
    bytes
}

fn reply(from: u8, ip: &str, to: &str) -> Vec<u8> {
    arp(
        mac(from),
        &ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: mac(from),
            sender_ip: ip.parse().unwrap(),
            target_mac: mac(1),
            target_ip: to.parse().unwrap(),
        },
    )
}

pub(crate) fn ndp(from: u8, src: &str, dst: &str, message: NdpMessage, options: &[NdpOption<'_>]) -> Vec<u8> {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let repr = NdpRepr { message, options };
    let mut header = Ipv6Repr::new(src, dst, IpProtocol::ICMPV6, repr.emitted_len() as u16);
    header.hop_limit = 255;
    let mut bytes = vec![0; 54 + repr.emitted_len()];
    EthernetRepr { dst: mac(1), src: mac(from), ethertype: EtherType::IPV6 }.emit(&mut bytes);
    header.emit(&mut bytes[14..]);
    repr.emit(&mut bytes[54..]);
    icmpv6::fill_checksum(&mut bytes[54..], src, dst);
    bytes
}

pub(crate) fn state(station: &Station, of: &str) -> Option<(NeighbourState, Option<MacAddr>)> {
    station.ip.neighbours().find(|n| n.ip == ip(of)).map(|n| (n.state, n.mac))
}

/// What other lanes are told.
fn learned(of: &str, last: u8, is_answer: bool) -> IpEvent {
    let how = if is_answer { ANSWER } else { Hearsay::Claim };
    IpEvent::NeighbourLearned { link: LINK, ip: ip(of), mac: Some(mac(last)), how }
}

/// A station's lane that is not its home, and whose address is usable.
fn lane_elsewhere(address: &str) -> Station {
    let mut lane = Station::bare(1, DadConfig::OFF, false, 1500);
    lane.ip.add_address(NOW, LINK, address.parse().unwrap()).unwrap();
    run(&mut lane, 60);
    lane
}

/// Runs the timers up to `until`; the seconds at which frames left, with the first byte of their
/// destination (ff or 33: everybody; 02: one station).
pub(crate) fn run(station: &mut Station, until: u64) -> Vec<(u64, u8)> {
    let mut sent = Vec::new();
    while let Some(at) = station.ip.poll_at().filter(|at| *at <= Instant::from_secs(until)) {
        station.ip.on_timer(at, &mut station.pools);
        sent.extend(station.outputs(at).iter().map(|frame| (at.millis() / 1000, frame[0])));
    }
    sent
}

/// A station whose address was announced long ago.
pub(crate) fn settled(addresses: &[&str]) -> Station {
    let mut a = Station::new(1, addresses);
    run(&mut a, 60);
    a.events.clear();
    a
}

pub(crate) const LATER: Instant = Instant::from_secs(100);

#[test]
fn nobody_answers_three_questions_and_the_sender_hears_of_it() {
    for (own, other, group) in [("10.0.0.1/24", "10.0.0.9", 0xff), ("fd00::1/64", "fd00::9", 0x33)] {
        let mut a = settled(&[own]);
        let segment = [0, 80, 1, 187, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0];
        assert!(matches!(a.send(LATER, other, &segment, Upper::tcp(Default::default())), Sent::Held));
        let asked = a.outputs(LATER);
        assert_eq!(asked.len(), 1);
        if group == 0x33 {
            // RFC 4861 §7.2.2: in the group of the address, with one's own Ethernet address.
            let target = other.parse().unwrap();
            let dst = solicited_node(target).to_string();
            let question = NdpMessage::NeighbourSolicit { target };
            let mut expected = ndp(1, "fd00::1", &dst, question, &[NdpOption::SourceLinkLayer(mac(1))]);
            expected[..6].copy_from_slice(&[0x33, 0x33, 0xff, 0, 0, 9]);
            assert_eq!(asked[0], expected);
        }
        assert_eq!(state(&a, other), Some((NeighbourState::Incomplete, None)));
        assert_eq!(run(&mut a, 200), [(101, group), (102, group)]);
        assert_eq!((state(&a, other), a.ip.held_frames()), (None, 0));
        assert_eq!(a.ip.take_drops().of(DropReason::NeighbourUnresolved), 1);
        let Some(IpEvent::TransportError(error)) = a.events.pop() else { panic!("an error is due") };
        assert_eq!((error.kind, error.ports.0.0, error.ports.1.0), (ErrorKind::HostUnreachable, 80, 443));
        assert_eq!(error.seq.map(|seq| seq.0), Some(9));
    }
}

#[test]
fn a_neighbour_ages_and_is_asked_again_only_if_it_is_used() {
    for (own, other, peer) in
        [("10.0.0.1/24", "10.0.0.2", "10.0.0.2/24"), ("fd00::1/64", "fd00::2", "fd00::2/64")]
    {
        let (mut a, mut b) = (settled(&[own]), Station::new(2, &[peer]));
        let _ = a.send(LATER, other, &[0; 20], Upper::udp());
        exchange(LATER, &mut [&mut a, &mut b]);
        let reachable = Some((NeighbourState::Reachable, Some(mac(2))));
        assert_eq!(state(&a, other), reachable);
        let generation = a.ip.generation();
        assert_eq!(run(&mut a, 200), [], "an idle neighbour is left alone");
        assert_eq!(state(&a, other), Some((NeighbourState::Stale, Some(mac(2)))));
        assert_ne!(a.ip.generation(), generation, "its users look again");
        assert!(a.ip.poll_at().is_none(), "nothing wakes an idle station");

        let used = Instant::from_secs(300);
        assert!(matches!(a.send(used, other, &[0; 20], Upper::udp()), Sent::Out));
        assert_eq!(state(&a, other).unwrap().0, NeighbourState::Delay);
        a.outputs(used);
        assert_eq!(run(&mut a, 305), [(305, 2)], "one station is asked, five seconds later");
        assert_eq!(state(&a, other).unwrap().0, NeighbourState::Probe);
        let egress = a.ip.egress(Instant::from_secs(305), None, ip(other)).unwrap();
        assert_eq!(egress.dst_mac, Some(mac(2)), "meanwhile it is believed");
        // RFC 7048: then everybody is asked, once, since nobody uses it any more.
        let everybody = if own.contains(':') { 0x33 } else { 0xff };
        assert_eq!(run(&mut a, 400), [(306, 2), (307, 2), (308, everybody)]);
        assert_eq!(state(&a, other), None);
        assert!(!a.ip.is_current(&egress));
    }
}

/// RFC 1122 §3.3.1.4 and §3.3.1.5: of several default gateways the first is used while it answers, and another one that is as
/// good while it does not; of one alone there is no other.
#[test]
fn a_default_gateway_that_is_silent_gives_way_to_another_until_it_is_heard() {
    for (own, gateways, default, far) in [
        ("10.0.0.1/24", ["10.0.0.2", "10.0.0.3"], "0.0.0.0/0", "192.0.2.1"),
        ("fd00::1/64", ["fd00::2", "fd00::3"], "::/0", "2001:db8::1"),
    ] {
        let mut a = settled(&[own]);
        let next_hop = |a: &mut Station, at| a.ip.egress(at, None, ip(far)).unwrap().next_hop;
        for gateway in gateways {
            a.ip.add_route(default.parse().unwrap(), Some(ip(gateway)), None).unwrap();
        }
        let [first, second] = gateways.map(ip);
        assert_eq!(next_hop(&mut a, LATER), first);
        assert!(matches!(a.send(LATER, far, &[0; 20], Upper::udp()), Sent::Held));
        let egress = a.ip.egress(LATER, None, ip(far)).unwrap();
        run(&mut a, 200);
        assert!(!a.ip.is_current(&egress), "its users look again");
        assert_eq!(next_hop(&mut a, Instant::from_secs(200)), second);
        // It is back, and says so.
        let prefix = if far.contains(':') { 64 } else { 24 };
        let mut back = Station::new(2, &[&format!("{}/{prefix}", gateways[0])]);
        let _ = back.send(Instant::from_secs(201), own.split('/').next().unwrap(), &[0; 20], Upper::udp());
        exchange(Instant::from_secs(201), &mut [&mut a, &mut back]);
        assert_eq!(next_hop(&mut a, Instant::from_secs(202)), first);
        // It falls silent while it is used.
        for now in (202..211).map(Instant::from_secs) {
            let _ = a.send(now, far, &[0; 20], Upper::udp());
            a.outputs(now);
            run(&mut a, now.millis() / 1000 + 1);
        }
        assert_eq!(next_hop(&mut a, Instant::from_secs(211)), second);
        // No gateway answers: the first is asked again, as it was said.
        let _ = a.send(Instant::from_secs(212), far, &[0; 20], Upper::udp());
        run(&mut a, 400);
        assert_eq!(next_hop(&mut a, Instant::from_secs(400)), first);
    }
}

/// RFC 4861 §7.3.3: the last question is for everybody, and whoever went another way comes back when it is answered.
#[test]
fn a_gateway_that_answers_at_last_is_gone_by_again_at_once() {
    for (own, gateways, default, far) in [
        ("10.0.0.1/24", ["10.0.0.2", "10.0.0.3"], "0.0.0.0/0", "192.0.2.1"),
        ("fd00::1/64", ["fd00::2", "fd00::3"], "::/0", "2001:db8::1"),
    ] {
        let mut a = settled(&[own]);
        let (at, [first, second]) = (Instant::from_secs, gateways.map(ip));
        for gateway in gateways {
            a.ip.add_route(default.parse().unwrap(), Some(ip(gateway)), None).unwrap();
        }
        let answer = match own.split_once('/').unwrap().0 {
            v4 @ "10.0.0.1" => reply(2, gateways[0], v4),
            v6 => {
                let target = gateways[0].parse().unwrap();
                let message =
                    NdpMessage::NeighbourAdvert { target, router: true, solicited: true, replace: true };
                ndp(2, gateways[0], v6, message, &[NdpOption::TargetLinkLayer(mac(2))])
            }
        };
        let _ = a.send(LATER, far, &[0; 20], Upper::udp());
        a.input_bytes(LATER, &answer);
        assert_eq!(state(&a, gateways[0]).unwrap().0, NeighbourState::Reachable);
        run(&mut a, 200);
        for second in 200..209 {
            let _ = a.send(at(second), far, &[0; 20], Upper::udp());
            run(&mut a, second);
        }
        assert_eq!(state(&a, gateways[0]).unwrap().0, NeighbourState::Unreachable);
        let other = a.ip.egress(at(209), None, ip(far)).unwrap();
        assert_eq!((other.next_hop, a.ip.is_current(&other)), (second, true));
        a.input_bytes(at(209), &answer);
        assert!(!a.ip.is_current(&other), "its users look again");
        assert_eq!(a.ip.egress(at(209), None, ip(far)).unwrap().next_hop, first);
    }
}

/// Whatever a gateway says, the lanes that found it silent must hear that it is back: the lane that hears it knows it already.
#[test]
fn a_gateway_that_speaks_is_news_for_lanes_that_suspect_it() {
    let mut home = settled(&["10.0.0.1/24", "fd00::1/64"]);
    for (default, gateway) in [("0.0.0.0/0", "10.0.0.2"), ("::/0", "fd00::2")] {
        home.ip.add_route(default.parse().unwrap(), Some(ip(gateway)), None).unwrap();
    }
    let ask = |last, of: &str| {
        arp(mac(last), &ArpRepr::request(mac(last), of.parse().unwrap(), "10.0.0.1".parse().unwrap()))
    };
    let advert = |replace| {
        let target = "fd00::2".parse().unwrap();
        let message = NdpMessage::NeighbourAdvert { target, router: true, solicited: false, replace };
        ndp(2, "fd00::2", "ff02::1", message, &[NdpOption::TargetLinkLayer(mac(2))])
    };
    for (frame, first, again) in [
        (ask(2, "10.0.0.2"), vec![learned("10.0.0.2", 2, false)], vec![learned("10.0.0.2", 2, false)]),
        (ask(3, "10.0.0.3"), vec![learned("10.0.0.3", 3, false)], vec![]),
        (advert(true), vec![learned("fd00::2", 2, false)], vec![learned("fd00::2", 2, false)]),
        (advert(false), vec![], vec![]),
    ] {
        for news in [first, again] {
            home.events.clear();
            home.input_bytes(LATER, &frame);
            home.outputs(LATER);
            assert_eq!(home.events, news);
        }
    }
}

/// A lane whose first default gateway is silent, and the way that it goes then and later.
fn suspicious() -> (Station, [IpAddr; 2]) {
    let mut lane = lane_elsewhere("10.0.0.1/24");
    let gateways = ["10.0.0.2", "10.0.0.3"].map(ip);
    for gateway in gateways {
        lane.ip.add_route("0.0.0.0/0".parse().unwrap(), Some(gateway), None).unwrap();
    }
    let _ = lane.send(LATER, "192.0.2.1", &[0; 20], Upper::udp());
    run(&mut lane, 200);
    assert_eq!(next_hop(&mut lane), gateways[1]);
    (lane, gateways)
}

fn next_hop(lane: &mut Station) -> IpAddr {
    lane.ip.egress(Instant::from_secs(200), None, ip("192.0.2.1")).unwrap().next_hop
}

#[test]
fn a_gateway_is_suspected_until_it_is_heard_of_or_is_none_any_more() {
    let at = Instant::from_secs(200);
    let (mut lane, gateways) = suspicious();
    lane.ip.on_neighbour_learned(at, (LINK, gateways[0]), Some(mac(2)), Hearsay::Claim);
    assert_eq!(next_hop(&mut lane), gateways[0], "another lane has heard it");

    let default = "0.0.0.0/0".parse().unwrap();
    let (mut lane, gateways) = suspicious();
    for gateway in gateways {
        lane.ip.remove_route(default, Some(gateway), None).unwrap();
    }
    for gateway in gateways {
        lane.ip.add_route(default, Some(gateway), None).unwrap();
    }
    assert_eq!(next_hop(&mut lane), gateways[0], "it was none for a while");

    let (mut lane, gateways) = suspicious();
    let interface = *lane.ip.interfaces().next().unwrap();
    lane.ip.remove_interface(LINK, &mut lane.pools);
    lane.ip.add_interface(interface);
    lane.ip.add_address(at, LINK, "10.0.0.1/24".parse().unwrap()).unwrap();
    assert_eq!(next_hop(&mut lane), gateways[0], "its link was another");
}

#[test]
fn an_answer_to_a_probe_or_a_transport_confirms() {
    let (mut a, mut b) = (settled(&["10.0.0.1/24"]), Station::new(2, &["10.0.0.2/24"]));
    let _ = a.send(LATER, "10.0.0.2", &[0; 20], Upper::udp());
    exchange(LATER, &mut [&mut a, &mut b]);
    run(&mut a, 200);
    let at = Instant::from_secs(200);
    let egress = a.ip.egress(at, None, ip("10.0.0.2")).unwrap();
    assert_eq!(state(&a, "10.0.0.2").unwrap().0, NeighbourState::Delay);
    a.ip.confirm_reachable(at, &egress);
    assert_eq!(state(&a, "10.0.0.2").unwrap().0, NeighbourState::Reachable);
    assert_eq!(run(&mut a, 300), []);
    // Again stale; this time nobody confirms, and the answer to the probe does.
    let at = Instant::from_secs(300);
    a.ip.egress(at, None, ip("10.0.0.2")).unwrap();
    a.ip.on_timer(at + Duration::from_secs(5), &mut a.pools);
    exchange(at + Duration::from_secs(5), &mut [&mut a, &mut b]);
    assert_eq!(state(&a, "10.0.0.2").unwrap().0, NeighbourState::Reachable);
}

#[test]
fn a_confirmation_every_second_keeps_a_neighbour_reachable() {
    let (mut a, mut b) = (settled(&["10.0.0.1/24"]), Station::new(2, &["10.0.0.2/24"]));
    let _ = a.send(LATER, "10.0.0.2", &[0; 20], Upper::udp());
    exchange(LATER, &mut [&mut a, &mut b]);
    let egress = a.ip.egress(LATER, None, ip("10.0.0.2")).unwrap();
    for second in 100..300 {
        assert_eq!(run(&mut a, second), []);
        a.ip.confirm_reachable(Instant::from_secs(second), &egress);
        assert_eq!(state(&a, "10.0.0.2").unwrap().0, NeighbourState::Reachable);
    }
}

#[test]
fn a01_a05_malformed_arp_is_dropped() {
    let good = reply(2, "10.0.0.2", "10.0.0.1");
    for (at, value) in
        [(14, 9), (17, 9), (18, 5), (19, 16), (21, 0), (21, 3), (21, 4), (21, 9), (22, 1), (28, 224)]
    {
        let mut a = settled(&["10.0.0.1/24"]);
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(a.input_bytes(NOW, &bad), "drop", "byte {at}");
        assert_eq!((a.outputs(NOW).len(), a.drops.as_slice()), (0, &[DropReason::BadArp][..]));
    }
    let mut a = settled(&["10.0.0.1/24"]);
    assert_eq!(a.input_bytes(NOW, &good[..41]), "drop");
}

#[test]
fn a02_an_answer_that_nobody_asked_for_makes_no_entry_and_is_news_for_other_lanes() {
    let mut a = settled(&["10.0.0.1/24"]);
    assert_eq!(a.input_bytes(NOW, &reply(2, "10.0.0.2", "10.0.0.1")), "consumed");
    a.outputs(NOW);
    assert_eq!(state(&a, "10.0.0.2"), None);
    assert_eq!(a.events, [learned("10.0.0.2", 2, true)]);
}

/// An address that moves to another station is announced by that: the home lane may not need it, and others may.
#[test]
fn a_statement_to_all_makes_no_entry_and_is_news_for_other_lanes() {
    let advert = |replace| {
        let target = "fd00::2".parse().unwrap();
        let message = NdpMessage::NeighbourAdvert { target, router: false, solicited: false, replace };
        ndp(2, "fd00::2", "ff02::1", message, &[NdpOption::TargetLinkLayer(mac(2))])
    };
    let own = "10.0.0.2".parse().unwrap();
    let announcement = ArpRepr::announcement(mac(2), own);
    let by_reply = ArpRepr { operation: ArpOperation::Reply, ..announcement };
    let for_another = ArpRepr::request(mac(2), own, "10.0.0.3".parse().unwrap());
    for (frame, of, is_news) in [
        (arp(mac(2), &announcement), "10.0.0.2", true),
        (arp(mac(2), &by_reply), "10.0.0.2", true),
        (advert(true), "fd00::2", true),
        // A question for somebody else is no statement, and one that may not replace says nothing new.
        (arp(mac(2), &for_another), "10.0.0.2", false),
        (advert(false), "fd00::2", false),
    ] {
        let mut home = settled(&["10.0.0.1/24", "fd00::1/64"]);
        assert_eq!(home.input_bytes(NOW, &frame), "consumed");
        home.outputs(NOW);
        let news = is_news.then(|| learned(of, 2, false));
        assert_eq!((state(&home, of), home.events), (None, Vec::from_iter(news)), "{of}");
    }
    // There it replaces what is known, and confirms nothing.
    let mut lane = lane_elsewhere("10.0.0.1/24");
    let _ = lane.send(LATER, "10.0.0.2", &[0; 20], Upper::udp());
    lane.ip.on_neighbour_learned(LATER, (LINK, ip("10.0.0.2")), Some(mac(3)), ANSWER);
    run(&mut lane, 105);
    assert_eq!(state(&lane, "10.0.0.2"), Some((NeighbourState::Probe, Some(mac(3)))));
    let at = Instant::from_secs(105);
    for (last, expected) in [(3, NeighbourState::Probe), (2, NeighbourState::Stale)] {
        lane.ip.on_neighbour_learned(at, (LINK, ip("10.0.0.2")), Some(mac(last)), Hearsay::Claim);
        assert_eq!(state(&lane, "10.0.0.2"), Some((expected, Some(mac(last)))));
    }
}

/// RFC 4861 §7.2.4: who is asked alone need not say where he is; the home lane hears it, which may not have asked.
#[test]
fn an_answer_that_names_no_address_confirms_in_the_lane_that_asked() {
    let (mut home, mut lane) = (settled(&["fd00::1/64"]), lane_elsewhere("fd00::1/64"));
    let other = (LINK, ip("fd00::2"));
    let _ = lane.send(LATER, "fd00::2", &[0; 20], Upper::udp());
    lane.ip.on_neighbour_learned(LATER, other, Some(mac(2)), ANSWER);
    lane.outputs(LATER);
    assert_eq!(run(&mut lane, 105), [(105, 2)], "it is used and asked again");
    let (at, target) = (Instant::from_secs(105), "fd00::2".parse().unwrap());
    let message = NdpMessage::NeighbourAdvert { target, router: true, solicited: true, replace: false };
    home.input_bytes(at, &ndp(2, "fd00::2", "fd00::1", message, &[]));
    home.outputs(at);
    let told = IpEvent::NeighbourLearned {
        link: LINK,
        ip: other.1,
        mac: None,
        how: Hearsay::Answer { replace: false },
    };
    assert_eq!((state(&home, "fd00::2"), home.events), (None, vec![told]));
    lane.ip.on_neighbour_learned(at, other, None, ANSWER);
    assert_eq!(state(&lane, "fd00::2"), Some((NeighbourState::Reachable, Some(mac(2)))));
    // Nobody is known where nobody was asked for.
    lane.ip.on_neighbour_learned(at, (LINK, ip("fd00::3")), None, ANSWER);
    assert_eq!(state(&lane, "fd00::3"), None);
}

/// RFC 4861 §7.2.5, §7.2.7: whoever answers as well, and says that he replaces nobody, does so in no lane.
#[test]
fn an_answer_that_replaces_nothing_does_so_nowhere() {
    let advert = |last, replace| {
        let target = "fd00::2".parse().unwrap();
        let message = NdpMessage::NeighbourAdvert { target, router: false, solicited: true, replace };
        ndp(last, "fd00::2", "fd00::1", message, &[NdpOption::TargetLinkLayer(mac(last))])
    };
    // Who answers last, and what the lane believes then: home does not know the neighbour, or does.
    for (last, replace, is_known, expected) in [
        (3, false, false, (NeighbourState::Stale, Some(mac(2)))),
        (3, true, false, (NeighbourState::Stale, Some(mac(3)))),
        (2, false, false, (NeighbourState::Reachable, Some(mac(2)))),
        (3, false, true, (NeighbourState::Stale, Some(mac(3)))),
    ] {
        let (mut home, mut lane) = (settled(&["fd00::1/64"]), lane_elsewhere("fd00::1/64"));
        let _ = lane.send(LATER, "fd00::2", &[0; 20], Upper::udp());
        for _ in 0..2 {
            lane.ip.on_neighbour_learned(LATER, (LINK, ip("fd00::2")), Some(mac(2)), ANSWER);
        }
        // The lane goes by another answer than home, which it was not told of.
        if is_known {
            let _ = home.send(LATER, "fd00::2", &[0; 20], Upper::udp());
            home.input_bytes(LATER, &advert(last, true));
        }
        home.events.clear();
        home.input_bytes(LATER, &advert(last, replace));
        home.outputs(LATER);
        for event in home.events.drain(..) {
            let IpEvent::NeighbourLearned { link, ip, mac, how } = event else { continue };
            lane.ip.on_neighbour_learned(LATER, (link, ip), mac, how);
        }
        assert_eq!(state(&lane, "fd00::2"), Some(expected), "{last} {replace} {is_known}");
    }
}

#[test]
fn a_question_makes_an_entry_and_is_answered_by_the_home_lane_only() {
    for (is_home, answers) in [(true, 1), (false, 0)] {
        let mut a = Station::bare(1, DadConfig::OFF, is_home, 1500);
        a.ip.add_address(NOW, LINK, "10.0.0.1/24".parse().unwrap()).unwrap();
        run(&mut a, 60);
        let question = ArpRepr::request(mac(2), "10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
        assert_eq!(a.input_bytes(NOW, &arp(mac(2), &question)), "consumed");
        let out = a.outputs(NOW);
        assert_eq!(out.len(), answers);
        for answer in out {
            let answer = ArpRepr::parse(&ArpView::parse(&answer[14..]).unwrap());
            assert_eq!(answer, question.reply_from(mac(1)));
        }
        assert_eq!(state(&a, "10.0.0.2"), Some((NeighbourState::Stale, Some(mac(2)))));
    }
}

/// RFC 4861 §7.2.3: the same of IPv6; and a question for somebody else leaves nothing behind.
#[test]
fn a_solicitation_makes_or_changes_a_stale_entry_if_it_is_for_us() {
    let ask = |from: u8, target: &str| {
        let target = target.parse().unwrap();
        let dst = solicited_node(target).to_string();
        let question = NdpMessage::NeighbourSolicit { target };
        ndp(from, "fd00::2", &dst, question, &[NdpOption::SourceLinkLayer(mac(from))])
    };
    for (is_home, answers) in [(true, 1), (false, 0)] {
        let mut a = Station::bare(1, DadConfig::OFF, is_home, 1500);
        a.ip.add_address(NOW, LINK, "fd00::1/64".parse().unwrap()).unwrap();
        run(&mut a, 60);
        // The same group as our own address, and another one.
        for other in ["fd01::1", "fd00::7"] {
            assert_eq!((a.input_bytes(NOW, &ask(2, other)), a.outputs(NOW).len()), ("drop", 0), "{other}");
            assert_eq!(state(&a, "fd00::2"), None, "{other}");
        }
        for from in [2, 3] {
            assert_eq!(a.input_bytes(NOW, &ask(from, "fd00::1")), "consumed");
            assert_eq!(a.outputs(NOW).len(), answers);
            assert_eq!(state(&a, "fd00::2"), Some((NeighbourState::Stale, Some(mac(from)))));
        }
        // One that is believed to be there, and moves, is not believed any more.
        let _ = a.send(NOW, "fd00::2", &[0; 20], Upper::udp());
        let egress = a.ip.egress(NOW, None, ip("fd00::2")).unwrap();
        a.ip.confirm_reachable(NOW, &egress);
        a.input_bytes(NOW, &ask(3, "fd00::1"));
        assert_eq!(state(&a, "fd00::2"), Some((NeighbourState::Reachable, Some(mac(3)))));
        a.input_bytes(NOW, &ask(4, "fd00::1"));
        assert_eq!(state(&a, "fd00::2"), Some((NeighbourState::Stale, Some(mac(4)))));
    }
}

/// RFC 4861 §7.3.1: what nobody has asked for says nothing of the way there.
#[test]
fn only_an_answer_confirms_and_neither_a_claim_nor_a_question() {
    let target = "fd00::2".parse().unwrap();
    let advert = |dst: &str, solicited| {
        let message = NdpMessage::NeighbourAdvert { target, router: true, solicited, replace: true };
        ndp(2, "fd00::2", dst, message, &[NdpOption::TargetLinkLayer(mac(2))])
    };
    let own = "fd00::1".parse().unwrap();
    let question = NdpMessage::NeighbourSolicit { target: own };
    let question = ndp(2, "fd00::2", "fd00::1", question, &[NdpOption::SourceLinkLayer(mac(2))]);
    let (mut a, mut b) = (settled(&["fd00::1/64"]), Station::new(2, &["fd00::2/64"]));
    let _ = a.send(LATER, "fd00::2", &[0; 20], Upper::udp());
    exchange(LATER, &mut [&mut a, &mut b]);
    run(&mut a, 200);
    let mut at = Instant::from_secs(200);
    for expected in [NeighbourState::Stale, NeighbourState::Delay, NeighbourState::Probe] {
        for frame in [&advert("ff02::1", false), &advert("fd00::1", false), &question] {
            assert_eq!(a.input_bytes(at, frame), "consumed");
            assert_eq!(state(&a, "fd00::2"), Some((expected, Some(mac(2)))));
        }
        match expected {
            NeighbourState::Stale => _ = a.send(at, "fd00::2", &[0; 20], Upper::udp()),
            _ => _ = run(&mut a, 205),
        }
        at = Instant::from_secs(205);
    }
    a.input_bytes(at, &advert("fd00::1", true));
    assert_eq!(state(&a, "fd00::2"), Some((NeighbourState::Reachable, Some(mac(2)))));
}

#[test]
fn another_lane_that_asked_hears_the_answer_and_sends_what_waited() {
    let mut lane = lane_elsewhere("10.0.0.1/24");
    assert!(matches!(lane.send(LATER, "10.0.0.2", &[0; 20], Upper::udp()), Sent::Held));
    let question = lane.outputs(LATER);
    assert_eq!((question.len(), question[0][0]), (1, 0xff));
    lane.ip.on_neighbour_learned(LATER, (LINK, ip("10.0.0.2")), Some(mac(2)), ANSWER);
    let out = lane.outputs(LATER);
    assert_eq!((out.len(), &out[0][..6], lane.events.len()), (1, &mac(2).0[..], 0));
    // What another lane heard of strangers is of no interest.
    lane.ip.on_neighbour_learned(LATER, (LINK, ip("10.0.0.3")), Some(mac(3)), ANSWER);
    assert_eq!(state(&lane, "10.0.0.3"), None);
}

#[test]
fn a04_a_scan_is_bounded_and_leaves_known_neighbours_alone() {
    let (mut a, mut b) = (settled(&["10.0.0.1/8"]), Station::new(2, &["10.0.0.2/8"]));
    let _ = a.send(LATER, "10.0.0.2", &[0; 20], Upper::udp());
    exchange(LATER, &mut [&mut a, &mut b]);
    for i in 0..5000u32 {
        let target = std::net::Ipv4Addr::from_bits(0x0a01_0000 + i).to_string();
        let _ = a.send(LATER, &target, &[0; 20], Upper::udp());
        a.outputs(LATER);
    }
    assert_eq!(a.ip.neighbours().filter(|n| n.state == NeighbourState::Incomplete).count(), 256);
    assert_eq!(state(&a, "10.0.0.2").unwrap().0, NeighbourState::Reachable);
    assert_eq!(a.ip.held_frames(), 256);
    assert_eq!(a.ip.take_drops().of(DropReason::NeighbourUnresolved), 5000 - 256);
}

#[test]
fn a04_frames_that_wait_for_one_neighbour_are_bounded_and_the_newest_stay() {
    let mut a = settled(&["10.0.0.1/24"]);
    for i in 0..100u8 {
        let _ = a.send(LATER, "10.0.0.2", &[i; 20], Upper::udp());
    }
    assert_eq!((a.outputs(LATER).len(), a.ip.held_frames()), (1, 48));
    a.input_bytes(LATER, &reply(2, "10.0.0.2", "10.0.0.1"));
    let out = a.outputs(LATER);
    assert_eq!(out.iter().map(|frame| frame[34]).collect::<Vec<_>>(), (52..100).collect::<Vec<_>>());
}

#[test]
fn a_neighbour_that_changes_all_the_time_is_news_a_limited_number_of_times() {
    let mut a = settled(&["10.0.0.1/24"]);
    for n in 0..2000u32 {
        let mac = MacAddr([2, 0, 0, 0, (n >> 8) as u8, n as u8]);
        let packet = ArpRepr::request(mac, "10.0.0.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
        a.input_bytes(NOW, &arp(mac, &packet));
        a.outputs(NOW);
    }
    let told =
        |a: &Station| a.events.iter().filter(|e| matches!(e, IpEvent::NeighbourLearned { .. })).count();
    assert_eq!(told(&a), 32);
    // So do many of them together.
    for n in 0..2000u32 {
        let from = std::net::Ipv4Addr::from_bits(0x0a00_0100 + n);
        let packet = ArpRepr { operation: ArpOperation::Reply, ..ArpRepr::announcement(mac(2), from) };
        a.input_bytes(NOW, &arp(mac(2), &packet));
        a.outputs(NOW);
    }
    assert_eq!(told(&a), 256);
}

/// A station of this number and address asks for fd00::1.
fn asked_by(station: u8, src: &str) -> Vec<u8> {
    let target = "fd00::1".parse().unwrap();
    let group = solicited_node(target).to_string();
    let options = [NdpOption::SourceLinkLayer(mac(station))];
    ndp(station, src, &group, NdpMessage::NeighbourSolicit { target }, &options)
}

/// Anybody can have a router ask for addresses of its subnets at which nobody is, and whoever is on a link may ask in many
/// names: nobody's way leads there, so none is void.
#[test]
fn neighbours_that_are_new_or_never_answer_leave_the_ways_of_others_as_they_are() {
    for (own, nobody, from) in [("10.0.0.1/24", "10.0.0.9", 2), ("fd00::1/64", "fd00::9", 3)] {
        let mut a = settled(&[own]);
        let generation = a.ip.generation();
        assert!(matches!(a.send(LATER, nobody, &[0; 20], Upper::udp()), Sent::Held));
        run(&mut a, 200);
        assert_eq!((state(&a, nobody), a.ip.generation()), (None, generation));
        let question = match own.contains(':') {
            false => arp(mac(from), &ArpRepr::request(mac(from), [10, 0, 0, 7].into(), [10, 0, 0, 1].into())),
            true => asked_by(from, "fd00::7"),
        };
        assert_eq!(a.input_bytes(Instant::from_secs(200), &question), "consumed");
        assert_eq!((a.ip.neighbours().count(), a.ip.generation()), (1, generation));
    }
}

/// What a router says of asking is of its link, and ends with that.
#[test]
fn a_link_that_comes_again_is_asked_as_one_of_which_no_router_has_spoken() {
    let mut a = settled(&["fd00::1/64"]);
    let parameters = LinkParameters { retransmit: Duration::from_secs(20), ..LinkParameters::default() };
    a.ip.on_configured(Configured::Link(LINK, parameters));
    let interface = *a.ip.interfaces().next().unwrap();
    a.ip.remove_interface(LINK, &mut a.pools);
    a.ip.add_interface(interface);
    a.ip.add_address(NOW, LINK, "fd00::1/64".parse().unwrap()).unwrap();
    run(&mut a, 60);
    assert!(matches!(a.send(LATER, "fd00::9", &[0; 20], Upper::udp()), Sent::Held));
    a.outputs(LATER);
    assert_eq!(run(&mut a, 200), [(101, 0x33), (102, 0x33)]);
}

/// Of several routers of a link the one that is known comes first.
#[test]
fn a_router_that_is_new_as_a_neighbour_is_gone_by_at_once() {
    let mut a = settled(&["fd00::1/64"]);
    for router in ["fe80::7", "fe80::8"] {
        let route = Route {
            gateway: Some(ip(router)),
            link: Some(LINK),
            origin: Origin::Router(RouterPreference::Medium),
            ..Route::ending("2001:db8::/32".parse().unwrap(), RouteKind::Unicast)
        };
        a.ip.on_configured(Configured::Route(route));
    }
    let egress = a.ip.egress(LATER, None, ip("2001:db8::1")).unwrap();
    let unknown = if egress.next_hop == ip("fe80::7") { "fe80::8" } else { "fe80::7" };
    a.input_bytes(LATER, &asked_by(8, unknown));
    assert!(!a.ip.is_current(&egress));
    assert_eq!(a.ip.egress(LATER, None, ip("2001:db8::1")).unwrap().next_hop, ip(unknown));
}

#[test]
fn a_flood_of_questions_fills_the_table_and_no_more() {
    let mut a = settled(&["10.0.0.1/8"]);
    for i in 0..6000u32 {
        let from = std::net::Ipv4Addr::from_bits(0x0a01_0000 + i);
        a.input_bytes(NOW, &arp(mac(2), &ArpRepr::request(mac(2), from, "10.0.0.1".parse().unwrap())));
        a.outputs(NOW);
    }
    assert_eq!(a.ip.neighbours().count(), 4096);
    assert!(matches!(a.send(NOW, "10.0.0.2", &[0; 20], Upper::udp()), Sent::Held), "a new one finds room");
}

#[test]
fn a09_an_advertisement_replaces_what_is_known_only_if_it_says_so() {
    let target = "fd00::2".parse().unwrap();
    let advert = |mac: MacAddr, solicited, replace| {
        let message = NdpMessage::NeighbourAdvert { target, router: false, solicited, replace };
        let dst = if solicited { "fd00::1" } else { "ff02::1" };
        ndp(2, "fd00::2", dst, message, &[NdpOption::TargetLinkLayer(mac)])
    };
    let old = Some(mac(2));
    for (bytes, state_after, mac_after) in [
        (advert(mac(3), true, false), NeighbourState::Stale, old),
        (advert(mac(3), false, true), NeighbourState::Stale, Some(mac(3))),
        (advert(mac(2), false, true), NeighbourState::Reachable, old),
        (advert(mac(2), true, false), NeighbourState::Reachable, old),
        (advert(MacAddr::BROADCAST, true, true), NeighbourState::Reachable, old),
    ] {
        let (mut a, mut b) = (settled(&["fd00::1/64"]), Station::new(2, &["fd00::2/64"]));
        let _ = a.send(LATER, "fd00::2", &[0; 20], Upper::udp());
        exchange(LATER, &mut [&mut a, &mut b]);
        assert_eq!(a.input_bytes(LATER, &bytes), "consumed");
        assert_eq!(state(&a, "fd00::2"), Some((state_after, mac_after)));
    }
}

#[test]
fn a06_a07_a10_what_neighbour_discovery_discards() {
    let solicit = NdpMessage::NeighbourSolicit { target: "fd00::1".parse().unwrap() };
    let good = || ndp(2, "fd00::2", "fd00::1", solicit, &[NdpOption::SourceLinkLayer(mac(2))]);
    let mut low = good();
    low[21] = 254;
    let router = NdpMessage::RouterAdvert {
        hop_limit: 64,
        managed: false,
        other: false,
        preference: Default::default(),
        lifetime: Duration::from_secs(1800),
        reachable: Duration::ZERO,
        retransmit: Duration::ZERO,
    };
    let redirect =
        NdpMessage::Redirect { target: "fe80::2".parse().unwrap(), destination: "fd00::9".parse().unwrap() };
    let fragmented = {
        let plain = good();
        let mut bytes = plain[..54].to_vec();
        let len = (plain.len() - 54 + 8) as u16;
        bytes[18..20].copy_from_slice(&len.to_be_bytes());
        bytes[20] = 44;
        bytes.extend([58, 0, 0, 0, 0, 0, 0, 1]);
        bytes.extend(&plain[54..]);
        bytes
    };
    for bad in [
        low,
        ndp(2, "fe80::2", "ff02::1", router, &[]),
        ndp(2, "fe80::2", "fd00::1", redirect, &[]),
        fragmented,
    ] {
        let mut a = settled(&["fd00::1/64"]);
        assert_eq!(a.input_bytes(NOW, &bad), "drop");
        assert_eq!((a.outputs(NOW).len(), a.drops.as_slice()), (0, &[DropReason::BadNdp][..]));
    }
    let mut a = settled(&["fd00::1/64"]);
    assert_eq!((a.input_bytes(NOW, &good()), a.outputs(NOW).len()), ("consumed", 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any sequence of things that happen to a neighbour: what went in is sent, held or dropped, and an idle
    /// station comes to rest.
    #[test]
    fn frames_are_conserved_and_time_comes_to_rest(events in proptest::collection::vec((0u8..6, 0u8..3, 0u64..20), 1..60)) {
        let mut a = settled(&["10.0.0.1/24"]);
        let (mut now, mut sent, mut out, mut dropped) = (LATER, 0u64, 0u64, 0u64);
        for (what, who, wait) in events {
            now += Duration::from_secs(wait);
            let other = format!("10.0.0.{}", 2 + who);
            match what {
                0 | 1 => {
                    sent += 1;
                    prop_assert!(!matches!(a.send(now, &other, &[0; 20], Upper::udp()), Sent::Drop(..)));
                }
                2 => { a.input_bytes(now, &reply(2 + who, &other, "10.0.0.1")); }
                3 => { a.input_bytes(now, &reply(9, &other, "10.0.0.1")); }
                4 => a.ip.on_neighbour_learned(now, (LINK, ip(&other)), Some(mac(7)), ANSWER),
                _ => {
                    let egress = a.ip.egress(now, None, ip(&other)).unwrap();
                    a.ip.confirm_reachable(now, &egress);
                }
            }
            a.ip.on_timer(now, &mut a.pools);
            out += a.outputs(now).iter().filter(|frame| frame[12..14] == [8, 0]).count() as u64;
            dropped += a.ip.take_drops().total();
            prop_assert_eq!(sent, out + dropped + a.ip.held_frames() as u64);
        }
        run(&mut a, 10_000);
        prop_assert_eq!((a.ip.poll_at(), a.ip.held_frames()), (None, 0));
    }
}
