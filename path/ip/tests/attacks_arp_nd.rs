//! Attacks on address resolution (conformance A01 to A07, A10): expected behaviour, and the counter that rises.

use crate::attack;
use crate::common;
use crate::craft;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use attack::{Attacked, silent};
use common::{ip, mac};
use craft::*;
use firelane_ip::{IpEvent, Upper};
use firelane_units::DropReason;
use firelane_wire::{
    ArpOperation, ArpRepr, EtherType, FragmentRepr, IpProtocol, Ipv6Repr, Ipv6View, NdpMessage, NdpOption,
    RouterPreference, ndp,
};

const LIAR: firelane_units::MacAddr = mac(0x66);

fn request() -> Vec<u8> {
    arp(&ArpRepr::request(ATTACKER_MAC, ATTACKER_V4, VICTIM_V4))
}

#[test]
fn a01_arp_with_wrong_sizes_types_or_length_is_dropped() {
    let mut frames = Vec::new();
    for (at, value) in [(1, 6), (2, 0x86), (4, 5), (4, 7), (5, 3), (5, 16), (7, 0), (7, 5), (7, 25)] {
        let mut frame = request();
        frame[L3 + at] = value;
        frames.push(frame);
    }
    for len in [0, 1, 7, 8, 27] {
        frames.push(request()[..L3 + len].to_vec());
    }
    silent("sizes", &frames, DropReason::BadArp);
    let mut group = request();
    group[L3 + 8] = 1;
    let multicast = arp(&ArpRepr::request(ATTACKER_MAC, Ipv4Addr::new(224, 0, 0, 5), VICTIM_V4));
    silent("a sender that is no station", &[group, multicast], DropReason::BadArp);
}

#[test]
fn a02_answers_nobody_asked_for_make_no_entry() {
    let mut attacked = Attacked::new();
    let before = attacked.station.ip.neighbours().count();
    for n in 1..=200 {
        let packet = ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: LIAR,
            sender_ip: Ipv4Addr::new(10, 0, 0, n),
            target_mac: VICTIM_MAC,
            target_ip: VICTIM_V4,
        };
        attacked.give(&[arp(&packet), arp(&ArpRepr::announcement(LIAR, Ipv4Addr::new(10, 0, 0, 254)))]);
    }
    // All but the address that is known already, and our own, which is defended.
    assert_eq!(attacked.station.ip.neighbours().count(), before);
    assert!(attacked.sent.len() <= 1);
    assert!(attacked.counted().is_empty());
    attacked.assert_recovered("a02");
}

#[test]
fn a02_who_answers_without_end_leaves_other_stations_their_news() {
    let mut station = common::Station::new(2, &["10.0.0.2/24"]);
    let reply = |n| {
        arp(&ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: LIAR,
            sender_ip: Ipv4Addr::new(10, 0, 0, n),
            target_mac: VICTIM_MAC,
            target_ip: VICTIM_V4,
        })
    };
    let told = |station: &common::Station, n| {
        let of = IpAddr::from([10, 0, 0, n]);
        station
            .events
            .iter()
            .filter(|it| matches!(it, IpEvent::NeighbourLearned { ip, .. } if *ip == of))
            .count()
    };
    for n in [vec![66; 1000], vec![67]].concat() {
        station.input_bytes(NOW, &reply(n));
        station.outputs(NOW);
    }
    assert_eq!(told(&station, 67), 1);
    assert!((1..=64).contains(&told(&station, 66)));
    // A second later it has some again.
    station.events.clear();
    let later = NOW + Duration::from_secs(1);
    station.input_bytes(later, &reply(66));
    station.outputs(later);
    assert_eq!(told(&station, 66), 1);
}

#[test]
fn a03_a_claim_of_our_own_address_is_defended_once_in_ten_seconds_and_never_believed() {
    let mut attacked = Attacked::new();
    for _ in 0..1000 {
        attacked.give(&[arp(&ArpRepr::announcement(LIAR, VICTIM_V4))]);
        let claim =
            NdpMessage::NeighbourAdvert { target: VICTIM_V6, router: false, solicited: false, replace: true };
        attacked.give(&[ndp_frame(VICTIM_V6, ALL_NODES, claim, &[NdpOption::TargetLinkLayer(LIAR)])]);
    }
    assert_eq!(attacked.sent.len(), 1, "one defence");
    assert!(attacked.station.ip.is_local(VICTIM_V4.into()) && attacked.station.ip.is_local(VICTIM_V6.into()));
    assert!(attacked.station.ip.neighbours().all(|n| n.mac != Some(LIAR)));
    // A source that is our own address is a martian (I03).
    attacked.assert_counted("a03", DropReason::Martian, 1000);
    attacked.assert_recovered("a03");
}

#[test]
fn a04_a_scan_of_the_subnet_is_bounded_and_leaves_known_neighbours() {
    for base in ["10.0", "fd00::"] {
        let mut attacked = Attacked::by(common::Station::new(2, &["10.0.0.2/16", "fd00::2/64"]));
        introduce(&mut attacked.station);
        let mut asked = 0;
        for n in 0..65_536u32 {
            let dst = match base {
                "10.0" => IpAddr::from([10, 0, (n >> 8) as u8, n as u8]),
                _ => Ipv6Addr::new(0xfd00, 0, 0, 0, 1, 0, (n >> 16) as u16, n as u16).into(),
            };
            let is_subject = dst != IpAddr::from([10, 0, 0, 2]) && dst != IpAddr::from([10, 0, 0, 9]);
            if is_subject && attacked.station.ip.egress(attacked.now, None, dst).is_ok() {
                let text = dst.to_string();
                if dst != IpAddr::from([10, 0, 255, 255]) && dst != IpAddr::from([10, 0, 0, 0]) {
                    let _ = attacked.station.send(attacked.now, &text, b"scan", Upper::udp());
                    asked += 1;
                }
            }
            while attacked.station.ip.poll_output().is_some() {}
        }
        assert!(asked > 65_000);
        assert!(attacked.station.ip.neighbours().count() <= 300, "256 without an answer, and the known");
        assert!(attacked.station.ip.held_frames() <= 1024);
        let known = ["10.0.0.9", "fd00::9"].map(ip);
        assert!(known.iter().all(|k| attacked.station.ip.neighbours().any(|n| n.ip == *k)));
        // What was given up before its time, and what waits still, is all that was asked.
        let given_up = attacked.counted().get("ip_neighbour_unresolved").copied().unwrap_or_default();
        assert_eq!(given_up as usize + attacked.station.ip.held_frames(), asked);
        attacked.assert_recovered("a04");
    }
}

#[test]
fn a05_reverse_and_inverse_arp_are_ignored() {
    let mut frames = Vec::new();
    for operation in [3, 4, 8, 9] {
        let mut frame = request();
        frame[L3 + 7] = operation;
        frames.push(frame);
    }
    silent("operations", &frames, DropReason::BadArp);
    let rarp = ethernet_frame(VICTIM_MAC, EtherType(0x8035), &request()[L3..]);
    silent("reverse ARP by its own type", &[rarp], DropReason::UnknownEtherType);
}

#[test]
fn a06_neighbour_discovery_that_breaks_the_rules_is_dropped() {
    let target = VICTIM_V6;
    let solicited = ndp::solicited_node(target);
    let good = || {
        let options = [NdpOption::SourceLinkLayer(ATTACKER_MAC)];
        ndp_frame(ATTACKER_V6, solicited, NdpMessage::NeighbourSolicit { target }, &options)
    };
    let spoiled = |change: &dyn Fn(&mut Ipv6Repr, &mut Vec<u8>)| {
        let frame = good();
        let mut body = frame[L3 + 40..].to_vec();
        let mut header = Ipv6Repr { hop_limit: 255, dst: solicited, ..header_v6(IpProtocol::ICMPV6) };
        change(&mut header, &mut body);
        if body.len() >= 4 {
            body[2..4].fill(0);
            firelane_wire::icmpv6::fill_checksum(&mut body, header.src, header.dst);
        }
        v6(&header, &body)
    };
    let frames = [
        spoiled(&|h, _| h.hop_limit = 254),
        spoiled(&|h, _| h.hop_limit = 1),
        spoiled(&|_, b| b[1] = 1),
        spoiled(&|_, b| b[25] = 0),
        spoiled(&|_, b| b[25] = 2),
        spoiled(&|_, b| b.truncate(20)),
        spoiled(&|_, b| b[8] = 0xff),
        spoiled(&|h, _| h.src = Ipv6Addr::UNSPECIFIED),
        spoiled(&|h, b| {
            (h.src, h.dst) = (Ipv6Addr::UNSPECIFIED, VICTIM_V6);
            b.truncate(24);
        }),
    ];
    silent("a06", &frames, DropReason::BadNdp);
    let options = vec![NdpOption::Mtu(1500); 65];
    let many = ndp_frame(ATTACKER_V6, solicited, NdpMessage::NeighbourSolicit { target }, &options);
    silent("too many options", &[many], DropReason::BadNdp);
}

#[test]
fn a07_router_advertisements_to_a_host_that_listens_to_none_change_nothing() {
    let message = NdpMessage::RouterAdvert {
        hop_limit: 1,
        managed: false,
        other: false,
        preference: RouterPreference::High,
        lifetime: std::time::Duration::from_secs(9000),
        reachable: std::time::Duration::from_millis(1),
        retransmit: std::time::Duration::from_millis(1),
    };
    let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    let frames = [ndp_frame(router, ALL_NODES, message, &[NdpOption::Mtu(1280)])];
    silent("a07", &frames, DropReason::BadNdp);
}

/// The packet of a frame in fragments of so many bytes; one that is whole gets a fragment header all the same.
fn fragments(frame: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let header = Ipv6Repr::parse(&Ipv6View::parse(&frame[L3..]).unwrap());
    let body = &frame[L3 + 40..];
    let count = body.len().div_ceil(bytes);
    let piece = |(nth, piece): (usize, &[u8])| {
        let (offset, more) = ((nth * bytes) as u16, nth + 1 < count);
        let fragment = FragmentRepr { next_header: IpProtocol::ICMPV6, offset, more, identification: 7 };
        let mut payload = vec![0; fragment.emitted_len()];
        fragment.emit(&mut payload);
        payload.extend_from_slice(piece);
        v6(&Ipv6Repr { next_header: IpProtocol::FRAGMENT, ..header }, &payload)
    };
    body.chunks(bytes).enumerate().map(piece).collect()
}

/// RFC 6980 §5: whoever guards a link from false advertisements could not read them.
#[test]
fn a10_neighbour_discovery_in_fragments_is_dropped() {
    let target = VICTIM_V6;
    let options = [NdpOption::SourceLinkLayer(ATTACKER_MAC)];
    let asked = ndp_frame(
        ATTACKER_V6,
        ndp::solicited_node(target),
        NdpMessage::NeighbourSolicit { target },
        &options,
    );
    for whole in [
        asked,
        advert(VICTIM_V6, ATTACKER_V6, LIAR, true, true),
        advert(VICTIM_V6, ATTACKER_V6, LIAR, false, true),
    ] {
        // Put together it is one packet, counted once; alone, the fragment header is enough.
        for bytes in [8, 16, 64] {
            let pieces = fragments(&whole, bytes);
            let mut attacked = Attacked::new();
            attacked.give(&pieces);
            assert_eq!(attacked.sent, [] as [Vec<u8>; 0], "{bytes}");
            attacked.assert_counted("a10", DropReason::BadNdp, 1);
            attacked.assert_recovered("a10");
        }
    }
}
