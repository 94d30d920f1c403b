//! A link that has its carrier again: who is behind it may be another than before.

use core::time::Duration;

use firelane_ip::{AutoconfConfig, DadConfig, IidKind, IpEvent, NeighbourState, Sent, Upper};
use firelane_units::{Instant, LinkId};
use firelane_wire::{ArpRepr, ArpView, EtherType, EthernetView};

use crate::common::{ETHERNET, LINK, Station, exchange, ip, mac};
use crate::groups::reporting;

const NOW: Instant = Instant::from_nanos(5_000_000_000);

#[test]
fn a_station_in_anothers_place_is_found_at_once() {
    let (mut a, mut b) = (Station::new(1, &["10.0.0.1/24", "fd00::1/64"]), Station::new(2, &["10.0.0.2/24"]));
    let _ = a.send(NOW, "10.0.0.2", b"one", Upper::udp());
    exchange(NOW, &mut [&mut a, &mut b]);
    assert_eq!(b.delivered.len(), 1);
    // Another machine with the same address; what its predecessor was sent stays lost, as on a wire.
    let mut c = Station::new(3, &["10.0.0.2/24"]);
    let later = NOW + Duration::from_millis(10);
    assert!(matches!(a.send(later, "10.0.0.2", b"two", Upper::udp()), Sent::Out));
    exchange(later, &mut [&mut a, &mut c]);
    assert!(c.delivered.is_empty(), "it has another MAC");
    a.ip.rejoin(later, LINK, &mut a.pools);
    let heard: Vec<_> = exchange(later, &mut [&mut a, &mut c]);
    let is_own = |frame: &&Vec<u8>| {
        let arp = EthernetView::parse(frame).unwrap().ethertype() == EtherType::ARP;
        arp && ArpRepr::parse(&ArpView::parse(&frame[ETHERNET..]).unwrap())
            == ArpRepr::announcement(mac(1), "10.0.0.1".parse().unwrap())
    };
    assert_eq!(heard.iter().filter(is_own).count(), 1, "everybody hears where it is: {heard:?}");
    assert!(heard.len() >= 2, "of both addresses");
    let _ = a.send(later, "10.0.0.2", b"three", Upper::udp());
    exchange(later, &mut [&mut a, &mut c]);
    assert_eq!(c.delivered.len(), 1);
    let known = a.ip.neighbours().find(|it| it.ip == ip("10.0.0.2")).unwrap();
    assert_eq!((known.mac, known.state), (Some(mac(3)), NeighbourState::Reachable));
}

#[test]
fn what_waits_for_an_answer_ends_and_another_links_neighbours_stay() {
    let mut a = Station::new(1, &["10.0.0.1/24"]);
    let _ = a.send(NOW, "10.0.0.9", b"waits", Upper::udp());
    assert_eq!(waiting(&a), 1);
    a.ip.rejoin(NOW, LinkId(99), &mut a.pools);
    assert_eq!((waiting(&a), a.ip.neighbours().count()), (1, 1));
    a.ip.rejoin(NOW, LINK, &mut a.pools);
    assert_eq!((waiting(&a), a.ip.neighbours().count()), (0, 0));
}

#[test]
fn a_lane_that_is_not_the_addresses_home_says_nothing() {
    let mut a = Station::bare(1, DadConfig::OFF, false, 1500);
    a.ip.add_address(NOW, LINK, "10.0.0.1/24".parse().unwrap()).unwrap();
    a.ip.on_timer(NOW, &mut a.pools);
    let _ = a.outputs(NOW);
    a.ip.rejoin(NOW, LINK, &mut a.pools);
    assert!(a.outputs(NOW).is_empty());
}

#[test]
fn an_address_that_somebody_else_had_is_tested_again_and_used() {
    let (mut a, mut b) = (Station::bare(1, DadConfig::FAST, true, 1500), Station::new(2, &["10.0.0.1/24"]));
    a.ip.add_address(NOW, LINK, "10.0.0.1/24".parse().unwrap()).unwrap();
    let pass = |from: Instant, a: &mut Station, b: Option<&mut Station>| {
        let mut others: Vec<&mut Station> = b.into_iter().collect();
        let mut at = from;
        while at < from + Duration::from_secs(3) {
            let mut all = vec![&mut *a];
            all.extend(others.iter_mut().map(|it| &mut **it));
            exchange(at, &mut all);
            at += Duration::from_millis(50);
            a.ip.on_timer(at, &mut a.pools);
        }
        at
    };
    let at = pass(NOW, &mut a, Some(&mut b));
    assert!(!a.ip.is_local(ip("10.0.0.1")));
    // He is still there when the link is back: nothing changes. Then he is not.
    a.ip.rejoin(at, LINK, &mut a.pools);
    let at = pass(at, &mut a, Some(&mut b));
    assert!(!a.ip.is_local(ip("10.0.0.1")));
    a.ip.rejoin(at, LINK, &mut a.pools);
    let at = pass(at, &mut a, None);
    assert!(a.ip.is_local(ip("10.0.0.1")));
    let told = |event: &IpEvent| matches!(event, IpEvent::AddressAgain(LINK, _));
    assert_eq!(
        a.events.iter().filter(|it| told(it)).count(),
        2,
        "other lanes hear of each test: {:?}",
        a.events
    );
    assert!(at > NOW);
}

/// A test whose questions nobody can hear ends well, and both have the address.
#[test]
fn an_address_that_was_tested_again_in_vain_is_left_to_its_owner_when_he_is_heard() {
    for (own, nobody) in [("10.0.0.1/24", "10.0.0.9"), ("fd00::1/64", "fd00::9")] {
        let mut a = Station::bare(1, DadConfig::FAST, true, 1500);
        let mut b = Station::new(2, &[own]);
        a.ip.add_address(NOW, LINK, own.parse().unwrap()).unwrap();
        let addr = ip(own.split('/').next().unwrap());
        let mut at = NOW;
        let mut pass = |a: &mut Station, b: Option<&mut Station>| {
            let mut b = b;
            for _ in 0..60 {
                at += Duration::from_millis(50);
                a.ip.on_timer(at, &mut a.pools);
                match &mut b {
                    Some(b) => drop(exchange(at, &mut [&mut *a, &mut **b])),
                    None => drop(a.outputs(at)),
                }
            }
            at
        };
        let now = pass(&mut a, Some(&mut b));
        assert!(!a.ip.is_local(addr));
        // The cable is out, or the switch does not forward yet.
        a.ip.rejoin(now, LINK, &mut a.pools);
        let now = pass(&mut a, None);
        assert!(a.ip.is_local(addr));
        // He asks for somebody, or tells where he is.
        let _ = b.send(now, nobody, b"asks", Upper::udp());
        b.ip.rejoin(now, LINK, &mut b.pools);
        let _ = exchange(now, &mut [&mut a, &mut b]);
        assert!(!a.ip.is_local(addr) && b.ip.is_local(addr), "{own}");
    }
}

#[test]
fn routers_are_asked_and_groups_told_again() {
    let mut a = reporting(DadConfig::OFF, IidKind::Eui64);
    a.ip.add_address(NOW, LINK, "fd00::1/64".parse().unwrap()).unwrap();
    a.ip.set_autoconf(
        NOW,
        LINK,
        Some(AutoconfConfig { iid: IidKind::Stable, stateless: true, temporary: false }),
    );
    let mut at = NOW;
    let mut sent = |a: &mut Station, kind: u8| {
        let mut count = 0;
        let until = at + Duration::from_secs(3);
        while at < until {
            at += Duration::from_millis(50);
            a.ip.on_timer(at, &mut a.pools);
            count += a.outputs(at).iter().filter(|it| icmpv6_type(it) == Some(kind)).count();
        }
        count
    };
    const SOLICIT: u8 = 133;
    const REPORT: u8 = 143;
    assert!(sent(&mut a, SOLICIT) > 0);
    let _ = (0..20).map(|_| sent(&mut a, REPORT)).sum::<usize>();
    assert_eq!(sent(&mut a, REPORT), 0, "all is said");
    let now = NOW + Duration::from_secs(3 * 22);
    a.ip.rejoin(now, LINK, &mut a.pools);
    assert!(sent(&mut a, REPORT) > 0);
    a.ip.rejoin(now + Duration::from_secs(3), LINK, &mut a.pools);
    assert!(sent(&mut a, SOLICIT) > 0);
}

/// The type of an ICMPv6 message, behind a hop-by-hop header or without.
fn icmpv6_type(frame: &[u8]) -> Option<u8> {
    let packet = &frame[ETHERNET..];
    if packet[0] >> 4 != 6 {
        return None;
    }
    match packet[6] {
        58 => packet.get(40).copied(),
        0 if packet[40] == 58 => packet.get(40 + 8 * (1 + usize::from(packet[41]))).copied(),
        _ => None,
    }
}

fn waiting(station: &Station) -> usize {
    station.ip.neighbours().map(|it| it.waiting).sum()
}
