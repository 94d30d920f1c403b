//! The address that an interface makes for its link alone (RFC 4862 §5.3, RFC 7217, RFC 7527).

use crate::common;

use core::net::IpAddr;

use common::{LINK, Station, exchange, mac};
use firelane_ip::{
    AddressOrigin, AddressState, Configured, DadConfig, IfConfig, IidKind, Ip, IpConfig, IpEvent,
};
use firelane_units::{Instant, IpPrefix, LinkId, Mtu};
use firelane_wire::{IpProtocol, Ipv6View, NdpEnvelope, NdpMessage, NdpView, ethernet, ndp};

fn station(last: u8, dad: DadConfig, kind: IidKind) -> Station {
    let mut station = Station::bare(last, dad, true, 1500);
    let config = IpConfig { dad, link_local: Some(kind), ..IpConfig::new([last; 16]) };
    station.ip = Ip::new(config);
    let mtu = Mtu::new(1500).unwrap();
    station.ip.add_interface(IfConfig { link: LINK, mac: mac(last), mtu, is_home: true });
    station.ip.bring_up(Instant::ZERO, LINK);
    station
}

/// Runs the stations' timers, and carries their frames, until `end`.
fn run(stations: &mut [&mut Station], end: Instant) -> Vec<Vec<u8>> {
    let mut wire = Vec::new();
    loop {
        let Some(now) = stations.iter().filter_map(|s| s.ip.poll_at()).min().filter(|&at| at <= end) else {
            return wire;
        };
        for station in &mut *stations {
            station.ip.on_timer(now, &mut station.pools);
        }
        wire.extend(exchange(now, stations));
    }
}

fn link_local(station: &Station) -> Option<(IpPrefix, AddressState)> {
    let own = station.ip.addresses().find(|a| a.origin == AddressOrigin::LinkLocal)?;
    Some((own.prefix, own.state))
}

fn solicited(frame: &[u8]) -> Option<(NdpView<'_>, NdpEnvelope)> {
    let view = Ipv6View::parse(&frame[14..]).ok().filter(|v| v.next_header() == IpProtocol::ICMPV6)?;
    let envelope = NdpEnvelope { src: view.src(), dst: view.dst(), hop_limit: view.hop_limit() };
    let ndp = NdpView::parse(&envelope, view.payload()).ok()?;
    matches!(ndp.message(), NdpMessage::NeighbourSolicit { .. }).then_some((ndp, envelope))
}

#[test]
fn an_interface_that_comes_up_makes_tests_and_announces_its_address() {
    let mut a = station(1, DadConfig::FAST, IidKind::Eui64);
    let wire = run(&mut [&mut a], Instant::from_secs(10));
    let expected: IpPrefix = "fe80::ff:fe00:1/64".parse().unwrap();
    assert_eq!(link_local(&a), Some((expected, AddressState::Preferred)));
    let IpAddr::V6(target) = expected.addr() else { panic!("it is an IPv6 address") };
    let questions: Vec<_> = wire.iter().filter_map(|frame| solicited(frame).map(|s| (frame, s))).collect();
    assert_eq!(questions.len(), 3);
    for (frame, (ndp, envelope)) in questions {
        assert_eq!(ndp.message(), NdpMessage::NeighbourSolicit { target });
        assert!(envelope.src.is_unspecified());
        assert_eq!(envelope.dst, ndp::solicited_node(target));
        assert_eq!(frame[..6], ethernet::group_mac(envelope.dst.into()).0);
        assert_eq!(ndp.options().nonce().map(<[u8]>::len), Some(6));
        assert_eq!(ndp.options().source_mac(), None);
    }
    let configured = Configured::Address {
        link: LINK,
        prefix: expected,
        origin: AddressOrigin::LinkLocal,
        is_deprecated: false,
    };
    assert_eq!(a.events, [IpEvent::Configured(configured)]);
    // The other lanes copy it, and need no test of their own.
    let mut other = Station::bare(1, DadConfig::FAST, false, 1500);
    other.ip.on_configured(configured);
    assert_eq!(link_local(&other), Some((expected, AddressState::Preferred)));
    assert_eq!(other.ip.poll_at(), None);
    assert!(other.ip.is_local(expected.addr()));
}

#[test]
fn a_stable_address_returns_after_a_restart_and_tells_nothing_of_the_hardware() {
    let address = |last| {
        let mut a = station(last, DadConfig::OFF, IidKind::Stable);
        run(&mut [&mut a], Instant::from_secs(3));
        link_local(&a).unwrap().0
    };
    assert_eq!(address(1), address(1));
    assert_ne!(address(1), address(2));
    assert_ne!(address(1), "fe80::ff:fe00:1/64".parse().unwrap());
    assert!(address(1).to_string().starts_with("fe80::"));
}

#[test]
fn an_interface_without_the_wish_for_one_and_another_lane_make_none() {
    let mut quiet = Station::bare(1, DadConfig::OFF, true, 1500);
    quiet.ip.bring_up(Instant::ZERO, LINK);
    assert_eq!(quiet.ip.poll_at(), None);
    let config = IpConfig { link_local: Some(IidKind::Stable), ..IpConfig::new([1; 16]) };
    let mut other = Ip::new(config);
    let mtu = Mtu::new(1500).unwrap();
    other.add_interface(IfConfig { link: LINK, mac: mac(1), mtu, is_home: false });
    other.bring_up(Instant::ZERO, LINK);
    other.bring_up(Instant::ZERO, LinkId(99));
    assert_eq!(other.poll_at(), None);
}

#[test]
fn a_second_bring_up_changes_nothing_and_removal_ends_it() {
    let mut a = station(1, DadConfig::FAST, IidKind::Stable);
    run(&mut [&mut a], Instant::from_secs(10));
    let before = link_local(&a);
    a.ip.bring_up(Instant::from_secs(10), LINK);
    assert_eq!((a.ip.poll_at(), link_local(&a)), (None, before));
    a.ip.remove_interface(LINK, &mut a.pools);
    assert_eq!((link_local(&a), a.ip.poll_at()), (None, None));
}

#[test]
fn a08_a_link_that_has_every_address_is_left_alone_after_three_tries() {
    let mut a = station(1, DadConfig::FAST, IidKind::Stable);
    let mut tried = Vec::new();
    let mut sent = 0;
    while let Some(now) = a.ip.poll_at() {
        a.ip.on_timer(now, &mut a.pools);
        for frame in a.outputs(now) {
            sent += 1;
            let Some((ndp, _)) = solicited(&frame) else { continue };
            let NdpMessage::NeighbourSolicit { target } = ndp.message() else { continue };
            tried.push(target);
            // Somebody else tests the same address, with a nonce of his own.
            let mut liar = frame.clone();
            liar[6..12].copy_from_slice(&mac(9).0);
            let nonce = liar.len() - 6;
            liar[nonce..].copy_from_slice(&[7; 6]);
            repair(&mut liar);
            assert_eq!(a.input_bytes(now, &liar), "consumed");
        }
    }
    assert_eq!((tried.len(), sent), (3, 3));
    assert!(tried[0] != tried[1] && tried[1] != tried[2] && tried[0] != tried[2]);
    let duplicates = a.events.iter().filter(|event| matches!(event, IpEvent::DuplicateAddress(..))).count();
    assert_eq!((duplicates, a.events.len()), (3, 3));
    assert_eq!(link_local(&a).map(|(_, state)| state), Some(AddressState::Duplicate));
}

#[test]
fn a_looped_link_delays_the_address_and_does_not_deny_it() {
    // RFC 7527: every question comes back for two seconds.
    let mut a = station(1, DadConfig::FAST, IidKind::Stable);
    let mut questions = 0;
    while let Some(now) = a.ip.poll_at() {
        a.ip.on_timer(now, &mut a.pools);
        for frame in a.outputs(now) {
            questions += usize::from(solicited(&frame).is_some());
            if now < Instant::from_secs(2) {
                a.input_bytes(now, &frame);
            }
        }
    }
    assert!(questions > 9, "{questions}");
    assert_eq!(link_local(&a).map(|(_, state)| state), Some(AddressState::Preferred));
    assert!(!a.events.iter().any(|event| matches!(event, IpEvent::DuplicateAddress(..))));
}

#[test]
fn two_stations_reach_each_other_by_their_link_local_addresses() {
    let mut a = station(1, DadConfig::FAST, IidKind::Stable);
    let mut b = station(2, DadConfig::FAST, IidKind::Stable);
    run(&mut [&mut a, &mut b], Instant::from_secs(5));
    let now = Instant::from_secs(5);
    let to = link_local(&b).unwrap().0.addr().to_string();
    a.send(now, &to, &[0; 16], firelane_ip::Upper::udp());
    exchange(now, &mut [&mut a, &mut b]);
    let arrived = b.delivered.pop().unwrap();
    assert_eq!(arrived.src, link_local(&a).unwrap().0.addr());
}

/// Makes the checksum of an ICMPv6 message in a frame right again.
fn repair(frame: &mut [u8]) {
    let view = Ipv6View::parse(&frame[14..]).unwrap();
    let (src, dst) = (view.src(), view.dst());
    frame[14 + 42..14 + 44].fill(0);
    firelane_wire::icmpv6::fill_checksum(&mut frame[14 + 40..], src, dst);
}
