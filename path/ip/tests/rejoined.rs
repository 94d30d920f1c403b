//! A link that has its carrier again: who is behind it may be another than before.

use core::time::Duration;

use firelane_ip::{DadConfig, NeighbourState, Sent, Upper};
use firelane_units::{Instant, LinkId};
use firelane_wire::{ArpRepr, ArpView, EtherType, EthernetView};

use crate::common::{ETHERNET, LINK, Station, exchange, ip, mac};

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
    a.ip.rejoin(LINK, &mut a.pools);
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
    a.ip.rejoin(LinkId(99), &mut a.pools);
    assert_eq!((waiting(&a), a.ip.neighbours().count()), (1, 1));
    a.ip.rejoin(LINK, &mut a.pools);
    assert_eq!((waiting(&a), a.ip.neighbours().count()), (0, 0));
}

#[test]
fn a_lane_that_is_not_the_addresses_home_says_nothing() {
    let mut a = Station::bare(1, DadConfig::OFF, false, 1500);
    a.ip.add_address(NOW, LINK, "10.0.0.1/24".parse().unwrap()).unwrap();
    a.ip.on_timer(NOW, &mut a.pools);
    let _ = a.outputs(NOW);
    a.ip.rejoin(LINK, &mut a.pools);
    assert!(a.outputs(NOW).is_empty());
}

fn waiting(station: &Station) -> usize {
    station.ip.neighbours().map(|it| it.waiting).sum()
}
