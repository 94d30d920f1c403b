//! Addresses of ours in virtual time: how they are tested before they are used (RFC 4862 §5.4, RFC 5227), and defended afterwards
//! (RFC 5227 §2.4, RFC 3927 §2.5).

use std::time::Duration;

use firelane_ip::{DadConfig, IpEvent, Upper};
use firelane_units::{Instant, LinkId, MacAddr};
use firelane_wire::ndp::solicited_node;
use firelane_wire::{ArpRepr, NdpMessage, NdpOption};

use crate::common::{LINK, Station, exchange, ip, mac};
use crate::neighbours::{LATER, NOW, arp, ndp, run, settled, state};

/// The seconds at which a tested address is asked for, used and announced, for the home lane and another.
fn dad(dad: DadConfig, is_home: bool, address: &str) -> (Station, Vec<(u64, u8)>) {
    let mut a = Station::bare(1, dad, is_home, 1500);
    a.ip.add_address(Instant::ZERO, LINK, address.parse().unwrap()).unwrap();
    let sent = run(&mut a, 20);
    (a, sent)
}

#[test]
fn an_address_is_tested_by_the_home_lane_and_usable_in_all() {
    for address in ["10.0.0.1/24", "fd00::1/64"] {
        let (home, sent) = dad(DadConfig::SLOW, true, address);
        assert_eq!(sent.len(), 5, "three probes, two announcements");
        assert_eq!(home.events, [IpEvent::AddressReady(LINK, address.parse().unwrap())]);
        let (other, sent) = dad(DadConfig::SLOW, false, address);
        assert_eq!((sent.len(), other.events.len()), (0, 0));
        let addr = address.split('/').next().unwrap();
        assert!(home.ip.is_local(ip(addr)) && other.ip.is_local(ip(addr)));
    }
}

#[test]
fn the_first_address_is_of_the_links_network_and_the_least_there() {
    // In whatever order they came: an alias stands for itself.
    let steps = [
        ("10.2.0.7/32", "10.2.0.7"),
        ("fd00::1/64", "10.2.0.7"),
        ("10.2.0.77/24", "10.2.0.77"),
        ("10.2.0.2/32", "10.2.0.77"),
        ("10.2.0.99/24", "10.2.0.77"),
        ("10.2.0.5/24", "10.2.0.5"),
    ];
    let mut a = Station::bare(1, DadConfig::OFF, true, 1500);
    assert_eq!(a.ip.first_own(LINK), None);
    for (address, first) in steps {
        a.ip.add_address(Instant::ZERO, LINK, address.parse().unwrap()).unwrap();
        assert_eq!(a.ip.first_own(LINK).map(Into::into), Some(ip(first)), "with {address}");
    }
    // Nothing new begins with one that is on its way out.
    a.ip.change_address(LINK, "10.2.0.5/24".parse().unwrap(), true).unwrap();
    assert_eq!(a.ip.first_own(LINK).map(Into::into), Some(ip("10.2.0.77")));
    ["10.2.0.77", "10.2.0.99"].into_iter().for_each(|gone| a.ip.remove_address(LINK, ip(gone)).unwrap());
    assert_eq!(a.ip.first_own(LINK).map(Into::into), Some(ip("10.2.0.2")));
}

#[test]
fn a_lane_whose_own_clock_is_late_uses_an_address_as_soon_as_it_is_told() {
    for address in ["10.0.0.1/24", "fd00::1/64"] {
        let addr = ip(address.split('/').next().unwrap());
        let mut other = Station::bare(1, DadConfig::SLOW, false, 1500);
        other.ip.add_address(Instant::ZERO, LINK, address.parse().unwrap()).unwrap();
        let before = other.ip.generation();
        other.ip.on_address_ready(LinkId(9), addr);
        assert!(!other.ip.is_local(addr), "that was another link's");
        other.ip.on_address_ready(LINK, addr);
        assert!(other.ip.is_local(addr) && other.ip.generation() != before);
        // The same news twice is none, and nothing more is to be done.
        let before = other.ip.generation();
        other.ip.on_address_ready(LINK, addr);
        assert_eq!((other.ip.generation(), run(&mut other, 20).len()), (before, 0));
        // What another station has is not made usable by old news.
        other.ip.on_duplicate_address(NOW, LINK, addr);
        other.ip.on_address_ready(LINK, addr);
        assert!(!other.ip.is_local(addr));
    }
}

#[test]
fn a08_somebody_who_has_the_address_keeps_it() {
    for (address, other) in [("10.0.0.5/24", "10.0.0.5/24"), ("fd00::5/64", "fd00::5/64")] {
        let mut b = Station::new(2, &[other]);
        let mut a = Station::bare(1, DadConfig::FAST, true, 1500);
        a.ip.add_address(NOW, LINK, address.parse().unwrap()).unwrap();
        let at = a.ip.poll_at().unwrap();
        a.ip.on_timer(at, &mut a.pools);
        exchange(at, &mut [&mut a, &mut b]);
        assert_eq!(a.events, [IpEvent::DuplicateAddress(LINK, address.parse().unwrap(), mac(2))]);
        assert_eq!(run(&mut a, 20), [], "it gives up");
        assert!(!a.ip.is_local(ip(address.split('/').next().unwrap())));
        assert!(
            a.ip.egress(NOW, None, ip(if address.contains(':') { "fd00::9" } else { "10.0.0.9" })).is_err()
        );
    }
}

#[test]
fn the_owner_of_an_address_that_was_wanted_is_a_neighbour_like_any() {
    for (own, wanted) in [("10.0.0.1/24", "10.0.0.5/24"), ("fd00::1/64", "fd00::5/64")] {
        let mut b = Station::new(2, &[wanted]);
        let mut a = Station::bare(1, DadConfig::FAST, true, 1500);
        for address in [own, wanted] {
            a.ip.add_address(NOW, LINK, address.parse().unwrap()).unwrap();
        }
        while let Some(at) = a.ip.poll_at().filter(|at| *at < Instant::from_secs(9)) {
            a.ip.on_timer(at, &mut a.pools);
            exchange(at, &mut [&mut a, &mut b]);
        }
        let other = wanted.split('/').next().unwrap();
        let _ = a.send(LATER, other, &[9; 20], Upper::udp());
        exchange(LATER, &mut [&mut a, &mut b]);
        assert_eq!(b.delivered.len(), 1, "{wanted}");
    }
}

#[test]
fn two_that_test_the_same_address_at_once_both_give_up() {
    let probe = arp(mac(2), &ArpRepr::probe(mac(2), "10.0.0.5".parse().unwrap()));
    let target = "fd00::5".parse().unwrap();
    let solicited = solicited_node(target).to_string();
    let message = NdpMessage::NeighbourSolicit { target };
    let other_nonce = ndp(2, "::", &solicited, message, &[NdpOption::Nonce(&[1; 6])]);
    for (address, bytes) in [("10.0.0.5/24", probe), ("fd00::5/64", other_nonce)] {
        let mut a = Station::bare(1, DadConfig::FAST, true, 1500);
        a.ip.add_address(NOW, LINK, address.parse().unwrap()).unwrap();
        a.input_bytes(NOW, &bytes);
        a.outputs(NOW);
        assert_eq!(a.events, [IpEvent::DuplicateAddress(LINK, address.parse().unwrap(), mac(2))]);
    }
}

#[test]
fn a_probe_that_the_link_reflects_is_no_conflict() {
    for address in ["10.0.0.5/24", "fd00::5/64"] {
        let mut a = Station::bare(1, DadConfig::FAST, true, 1500);
        a.ip.add_address(NOW, LINK, address.parse().unwrap()).unwrap();
        while let Some(at) = a.ip.poll_at().filter(|at| *at < Instant::from_secs(9)) {
            a.ip.on_timer(at, &mut a.pools);
            let is_looped = at.saturating_since(NOW) < Duration::from_secs(1);
            for own in a.outputs(at).iter().filter(|_| is_looped) {
                a.input_bytes(at, own);
            }
        }
        assert_eq!(a.events, [IpEvent::AddressReady(LINK, address.parse().unwrap())], "{address}");
    }
}

#[test]
fn an_address_in_use_is_defended_once_in_ten_seconds() {
    let mut a = settled(&["10.0.0.1/24"]);
    let claim = arp(mac(9), &ArpRepr::announcement(mac(9), "10.0.0.1".parse().unwrap()));
    let sent: Vec<usize> = [100, 101, 105, 110, 111]
        .map(|second| {
            let now = Instant::from_secs(second);
            a.input_bytes(now, &claim);
            a.outputs(now).len()
        })
        .to_vec();
    assert_eq!(sent, [1, 0, 0, 1, 0]);
    assert!(a.ip.is_local(ip("10.0.0.1")));
    assert_eq!(state(&a, "10.0.0.1"), None);
}

#[test]
fn an_address_of_the_link_is_defended_once_and_then_left_to_the_other() {
    let mut a = settled(&["169.254.7.7/16"]);
    let own: std::net::Ipv4Addr = "169.254.7.7".parse().unwrap();
    let claim = arp(mac(9), &ArpRepr::announcement(mac(9), own));
    let mut at = |second: u64| {
        let now = Instant::from_secs(second);
        a.input_bytes(now, &claim);
        (a.outputs(now).len(), a.ip.is_local(own.into()))
    };
    // Eleven seconds apart each claim is the first.
    assert_eq!([at(100), at(111)], [(1, true), (1, true)]);
    assert_eq!(at(112), (0, false), "RFC 3927 §2.5 (b)");
    let prefix = "169.254.7.7/16".parse().unwrap();
    assert!(a.events.contains(&IpEvent::DuplicateAddress(LINK, prefix, mac(9))));
}

#[test]
fn answers_go_to_who_asked_but_those_of_an_address_of_the_link_to_everybody() {
    for (own, asker, to) in [
        ("10.0.0.1", "10.0.0.9", mac(9)),
        ("169.254.7.7", "169.254.9.9", MacAddr::BROADCAST),
        ("169.254.7.7", "0.0.0.0", MacAddr::BROADCAST),
    ] {
        let mut a = settled(&[&format!("{own}/16")]);
        let (own, asker) = (own.parse().unwrap(), asker.parse().unwrap());
        a.input_bytes(LATER, &arp(mac(9), &ArpRepr::request(mac(9), asker, own)));
        let answers = a.outputs(LATER);
        assert_eq!(answers.len(), 1, "{own} asked by {asker}");
        assert_eq!(
            (&answers[0][..6], answers[0][21]),
            (&to.0[..], 2),
            "RFC 3927 §2.5: {own} asked by {asker}"
        );
    }
}
