//! ARP and neighbour-discovery messages that lie or are spoiled (conformance A02, A06, A07, A09).
//!
//! Tables of single messages; sequences in virtual time are in `neighbours.rs`.

use crate::common;
use crate::craft;

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use common::{LINK, Station, ip, mac};
use craft::*;
use firelane_ip::{Hearsay, IfRouting, IpEvent, Neighbour, NeighbourState, Sent, Upper};
use firelane_units::{DropReason, MacAddr};
use firelane_wire::{
    ArpOperation, ArpRepr, ArpView, IpProtocol, Ipv6Repr, Ipv6View, NdpEnvelope, NdpMessage, NdpOption,
    NdpRepr, NdpView, icmpv6, ndp,
};

const LIAR: MacAddr = mac(0x66);

fn neighbour(station: &Station, addr: &str) -> Option<Neighbour> {
    station.ip.neighbours().find(|n| n.ip == ip(addr))
}

#[test]
fn questions_are_answered_for_our_own_addresses_only() {
    let mut station = victim();
    let mut ask = |target: Ipv4Addr| {
        let outcome = give(&mut station, &arp(&ArpRepr::request(ATTACKER_MAC, ATTACKER_V4, target)));
        outcome.sent.iter().map(|frame| ArpRepr::parse(&ArpView::parse(&frame[L3..]).unwrap())).next()
    };
    let answer = ask(VICTIM_V4).unwrap();
    assert_eq!(answer.operation, ArpOperation::Reply);
    assert_eq!((answer.sender_mac, answer.sender_ip), (VICTIM_MAC, VICTIM_V4));
    assert_eq!((answer.target_mac, answer.target_ip), (ATTACKER_MAC, ATTACKER_V4));
    assert_eq!(ask(Ipv4Addr::new(10, 0, 0, 3)), None);
    assert_eq!(ask(Ipv4Addr::LOCALHOST), None);
}

#[test]
fn a02_what_nobody_asked_for_makes_no_entry() {
    let mut station = victim();
    let count = station.ip.neighbours().count();
    let reply = ArpRepr::request(LIAR, Ipv4Addr::new(10, 0, 0, 1), VICTIM_V4).reply_from(LIAR);
    for packet in [
        ArpRepr { sender_ip: Ipv4Addr::new(10, 0, 0, 1), target_ip: VICTIM_V4, ..reply },
        ArpRepr::announcement(LIAR, Ipv4Addr::new(10, 0, 0, 1)),
        ArpRepr { operation: ArpOperation::Reply, ..ArpRepr::announcement(LIAR, Ipv4Addr::new(10, 0, 0, 1)) },
    ] {
        give(&mut station, &arp(&packet));
        assert_eq!(station.ip.neighbours().count(), count, "{packet:?}");
    }
    let target = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    for solicited in [false, true] {
        let dst = if solicited { VICTIM_V6 } else { ALL_NODES };
        give(&mut station, &advert(dst, target, LIAR, solicited, true));
        assert_eq!(station.ip.neighbours().count(), count);
    }
}

#[test]
fn a02_an_announcement_updates_what_is_known_and_is_not_trusted() {
    let mut station = victim();
    give(&mut station, &arp(&ArpRepr::announcement(LIAR, ATTACKER_V4)));
    let changed = neighbour(&station, "10.0.0.9").unwrap();
    assert_eq!((changed.mac, changed.state), (Some(LIAR), NeighbourState::Stale));
    // The next use asks the new one, and the old one may object.
    assert!(matches!(station.send(NOW, "10.0.0.9", b"x", Upper::udp()), Sent::Out));
    assert_eq!(neighbour(&station, "10.0.0.9").unwrap().state, NeighbourState::Delay);
}

/// A solicitation from the attacker, spoiled behind its checksum, which is made right again.
fn spoiled_solicit(spoil: impl FnOnce(&mut Ipv6Repr, &mut Vec<u8>)) -> Vec<u8> {
    let message = NdpMessage::NeighbourSolicit { target: VICTIM_V6 };
    let repr = NdpRepr { message, options: &[NdpOption::SourceLinkLayer(ATTACKER_MAC)] };
    let mut body = vec![0; repr.emitted_len()];
    repr.emit(&mut body);
    let mut header =
        Ipv6Repr { hop_limit: 255, dst: ndp::solicited_node(VICTIM_V6), ..header_v6(IpProtocol::ICMPV6) };
    spoil(&mut header, &mut body);
    icmpv6::fill_checksum(&mut body, header.src, header.dst);
    v6(&header, &body)
}

#[test]
fn a06_solicitations_that_are_to_be_discarded() {
    type Spoil = fn(&mut Ipv6Repr, &mut Vec<u8>);
    let cases: [(&str, Spoil); 12] = [
        ("hop limit 254", |h, _| h.hop_limit = 254),
        ("hop limit 0", |h, _| h.hop_limit = 0),
        ("hop limit 64", |h, _| h.hop_limit = 64),
        ("code 1", |_, b| b[1] = 1),
        ("shorter than its fields", |_, b| b.truncate(23)),
        ("a target that is a group", |_, b| b[8] = 0xff),
        ("option of length 0", |_, b| b[25] = 0),
        ("option past the end", |_, b| b[25] = 2),
        ("half an option", |_, b| b.truncate(28)),
        ("one byte of an option", |_, b| b.push(1)),
        ("from nobody, with a source address option", |h, _| h.src = Ipv6Addr::UNSPECIFIED),
        ("from nobody, to one", |h, b| {
            (h.src, h.dst) = (Ipv6Addr::UNSPECIFIED, VICTIM_V6);
            b.truncate(24);
        }),
    ];
    for (name, spoil) in cases {
        assert_silent_drop(name, &spoiled_solicit(spoil), DropReason::BadNdp);
    }
    let right = spoiled_solicit(|_, _| ());
    assert_eq!(give(&mut victim(), &right).sent.len(), 1, "the unspoiled message is answered");
    let mut wrong = right;
    wrong[L3 + 42] ^= 1;
    assert_silent_drop("checksum", &wrong, DropReason::BadIcmp);
}

#[test]
fn a06_advertisements_that_are_to_be_discarded() {
    let target = ATTACKER_V6;
    let good = |dst, solicited| advert(dst, target, LIAR, solicited, true);
    assert_silent_drop("solicited, to a group", &good(ALL_NODES, true), DropReason::BadNdp);
    let group = advert(VICTIM_V6, ALL_NODES, LIAR, true, true);
    assert_silent_drop("for a group", &group, DropReason::BadNdp);
    // A group as Ethernet address would make us send to everybody.
    let mut station = victim();
    give(&mut station, &advert(VICTIM_V6, target, MacAddr([0x33, 0x33, 0, 0, 0, 1]), true, true));
    assert_eq!(neighbour(&station, "fd00::9").unwrap().mac, Some(ATTACKER_MAC));
}

#[test]
fn a07_a09_router_advertisements_and_redirects_change_nothing() {
    let mut station = victim();
    let before: Vec<_> = station.ip.routes().copied().collect();
    let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    for kind in [133, 134, 137] {
        for rest in [&[0; 4][..], &[0; 12], &[0xff; 36], &[0; 36], &[0xff; 1000]] {
            let message = icmpv6_message(router, ALL_NODES, kind, 0, rest);
            let header =
                Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(router, ALL_NODES, IpProtocol::ICMPV6, 0) };
            let outcome = give(&mut station, &v6(&header, &message));
            assert_eq!(outcome.reason, Some(DropReason::BadNdp), "type {kind}, {} bytes", rest.len());
            assert!(outcome.sent.is_empty());
        }
    }
    assert_eq!(station.ip.routes().copied().collect::<Vec<_>>(), before);
    assert_eq!(station.ip.addresses().count(), 2);
}

#[test]
fn a09_an_answer_without_override_confirms_only_what_is_known() {
    let mut station = victim();
    give(&mut station, &advert(VICTIM_V6, ATTACKER_V6, ATTACKER_MAC, true, false));
    let confirmed = neighbour(&station, "fd00::9").unwrap();
    assert_eq!((confirmed.mac, confirmed.state), (Some(ATTACKER_MAC), NeighbourState::Reachable));
    give(&mut station, &advert(VICTIM_V6, ATTACKER_V6, LIAR, true, false));
    let doubted = neighbour(&station, "fd00::9").unwrap();
    assert_eq!((doubted.mac, doubted.state), (Some(ATTACKER_MAC), NeighbourState::Stale));
}

#[test]
fn a_neighbour_that_moves_is_followed_once_it_is_asked() {
    let mut station = victim();
    give(&mut station, &arp(&ArpRepr::request(ATTACKER_MAC, ATTACKER_V4, VICTIM_V4)));
    let egress = station.ip.egress(NOW, None, ATTACKER_V4.into()).unwrap();
    assert_eq!(egress.dst_mac, Some(ATTACKER_MAC));
    let answer = ArpRepr::request(VICTIM_MAC, VICTIM_V4, ATTACKER_V4).reply_from(LIAR);
    give(&mut station, &arp(&answer));
    assert!(!station.ip.is_current(&egress), "cached ways are void");
    assert_eq!(station.ip.egress(NOW, None, ATTACKER_V4.into()).unwrap().dst_mac, Some(LIAR));
}

/// The neighbour advertisement in a frame: to whom, and its flags.
fn advertised(frame: &[u8]) -> (MacAddr, Ipv6Addr, NdpMessage, Option<MacAddr>) {
    let view = Ipv6View::parse(&frame[L3..]).unwrap();
    let envelope = NdpEnvelope { src: view.src(), dst: view.dst(), hop_limit: view.hop_limit() };
    let message = NdpView::parse(&envelope, view.payload()).unwrap();
    let dst_mac = MacAddr(frame[..6].try_into().unwrap());
    (dst_mac, view.dst(), message.message(), message.options().target_mac())
}

#[test]
fn solicitations_are_answered_to_the_asker_or_if_he_has_no_address_to_all() {
    let target = VICTIM_V6;
    let answer = |solicited, router| NdpMessage::NeighbourAdvert { target, router, solicited, replace: true };
    let mut station = victim();
    let to_one = give(&mut station, &solicit(target));
    let expected = (ATTACKER_MAC, ATTACKER_V6, answer(true, false), Some(VICTIM_MAC));
    assert_eq!(advertised(&to_one.sent[0]), expected);
    let question = NdpMessage::NeighbourSolicit { target };
    let test = ndp_frame(Ipv6Addr::UNSPECIFIED, ndp::solicited_node(target), question, &[]);
    let to_all = give(&mut station, &test);
    let expected = (MacAddr([0x33, 0x33, 0, 0, 0, 1]), ALL_NODES, answer(false, false), Some(VICTIM_MAC));
    assert_eq!(advertised(&to_all.sent[0]), expected);
    station.ip.set_forwarding(true);
    let from_router = give(&mut station, &solicit(target));
    assert_eq!(advertised(&from_router.sent[0]).2, answer(true, true));
    // RFC 4861 §6.2.2: the interface's own word comes first.
    for (netstack, own) in [(true, false), (false, true)] {
        station.ip.set_forwarding(netstack);
        let routing = IfRouting { forwards_v6: Some(own), ..IfRouting::default() };
        assert!(station.ip.set_routing(LINK, routing));
        let answered = give(&mut station, &solicit(target));
        assert_eq!(advertised(&answered.sent[0]).2, answer(true, own));
    }
}

#[test]
fn other_lanes_hear_of_a_neighbour_when_there_is_news() {
    let learned = |addr: &str, mac| {
        let (link, ip, mac) = (LINK, ip(addr), Some(mac));
        IpEvent::NeighbourLearned { link, ip, mac, how: Hearsay::Claim }
    };
    let ask = |from: MacAddr| arp(&ArpRepr::request(from, Ipv4Addr::new(10, 0, 0, 40), VICTIM_V4));
    let mut station = victim();
    for (frame, news) in [
        (ask(ATTACKER_MAC), Some(learned("10.0.0.40", ATTACKER_MAC))),
        // The same again, and what changes nothing.
        (ask(ATTACKER_MAC), None),
        (arp(&ArpRepr::announcement(ATTACKER_MAC, Ipv4Addr::new(10, 0, 0, 40))), None),
        // Another Ethernet address.
        (ask(LIAR), Some(learned("10.0.0.40", LIAR))),
        // What nobody here knows or asked for, and another lane may.
        (arp(&ArpRepr::announcement(LIAR, Ipv4Addr::new(10, 0, 0, 41))), Some(learned("10.0.0.41", LIAR))),
        // A claim that may not replace.
        (advert(ALL_NODES, ATTACKER_V6, LIAR, false, false), None),
    ] {
        station.events.clear();
        give(&mut station, &frame);
        assert_eq!(station.events, news.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_neighbour_is_asked_from_the_address_that_it_will_answer() {
    // RFC 4861 §7.2.2: that of the packet that waits, although another is nearer to who is asked; each time.
    let mut station = victim();
    station.ip.add_address(NOW, LINK, "fe80::2/64".parse().unwrap()).unwrap();
    let from = VICTIM_V6.into();
    let mut egress = station.ip.egress(NOW, Some(from), ip("fe80::9")).unwrap();
    let frame = station.frame(b"a datagram");
    station.ip.send(NOW, &mut egress, frame, Upper::udp(), &mut station.pools);
    let mut sent = station.outputs(NOW);
    station.ip.on_timer(NOW + Duration::from_millis(1001), &mut station.pools);
    sent.extend(station.outputs(NOW));
    let asked = sent.iter().filter(|frame| frame[L3 + 40] == 135);
    let sources: Vec<_> = asked.map(|frame| Ipv6View::parse(&frame[L3..]).unwrap().src()).collect();
    assert_eq!(sources, [VICTIM_V6; 2]);
}
