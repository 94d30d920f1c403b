//! The way of who speaks over one link alone (SO_BINDTODEVICE of socket(7)).

use crate::common;

use core::net::IpAddr;

use common::ip;
use firelane_frame::{Pools, PoolsConfig};
use firelane_ip::{DadConfig, IfConfig, Ip, IpConfig, RouteError, Sent, Upper};
use firelane_units::{Instant, LinkId, MacAddr, Mtu};
use proptest::prelude::*;

const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);

/// A host with two links; all that it has no network for goes by A's gateway, and one far network by B's.
fn host() -> Ip {
    let mut host = Ip::new(IpConfig { dad: DadConfig::OFF, ..IpConfig::new([1; 16]) });
    for (link, address) in
        [(A, "10.0.0.1/24"), (B, "10.1.0.1/24"), (A, "2001:db8:a::1/64"), (B, "2001:db8:b::1/64")]
    {
        let mac = MacAddr([2, 0, 0, 0, 0, link.0 as u8]);
        host.add_interface(IfConfig { link, mac, mtu: Mtu::ETHERNET, is_home: false });
        host.add_address(Instant::ZERO, link, address.parse().unwrap()).unwrap();
    }
    for (network, gateway) in
        [("0.0.0.0/0", "10.0.0.9"), ("192.0.2.0/24", "10.1.0.9"), ("192.0.2.128/25", "10.0.0.8")]
    {
        host.add_route(network.parse().unwrap(), Some(ip(gateway)), None).unwrap();
    }
    host
}

#[test]
fn only_routes_over_the_link_count() {
    for (link, dst, next, source) in [
        // The link's own network, and that of the other, whose stations are taken for neighbours.
        (A, "10.0.0.7", Ok("10.0.0.7"), "10.0.0.1"),
        (B, "10.0.0.7", Ok("10.0.0.7"), "10.1.0.1"),
        // The longest match over the link, though another link has a longer one.
        (A, "192.0.2.200", Ok("10.0.0.8"), "10.0.0.1"),
        (B, "192.0.2.200", Ok("10.1.0.9"), "10.1.0.1"),
        (A, "192.0.2.1", Ok("10.0.0.9"), "10.0.0.1"),
        (A, "198.51.100.1", Ok("10.0.0.9"), "10.0.0.1"),
        (B, "198.51.100.1", Ok("198.51.100.1"), "10.1.0.1"),
        (B, "2001:db8:a::7", Ok("2001:db8:a::7"), "2001:db8:b::1"),
        // Everybody and groups of the link.
        (B, "255.255.255.255", Ok("255.255.255.255"), "10.1.0.1"),
        (B, "224.0.0.251", Ok("224.0.0.251"), "10.1.0.1"),
        (B, "ff02::fb", Ok("ff02::fb"), "2001:db8:b::1"),
        // Nothing else that is ours is beyond a link.
        (A, "10.1.0.1", Err(RouteError::NoRoute), ""),
        (A, "127.0.0.1", Err(RouteError::NoRoute), ""),
        (A, "0.0.0.0", Err(RouteError::NoRoute), ""),
    ] {
        let found = host().egress_over(Instant::ZERO, link, None, ip(dst));
        assert_eq!(
            found.map(|it| (it.link, it.next_hop)),
            next.map(|next| (link, ip(next))),
            "{link:?} to {dst}"
        );
        if let Ok(egress) = found {
            assert_eq!((egress.src, egress.bound), (ip(source), Some(link)), "{link:?} to {dst}");
        }
    }
}

#[test]
fn a_source_must_be_ours_and_one_without_a_link_is_as_ever() {
    let mut host = host();
    let (now, dst) = (Instant::ZERO, ip("198.51.100.1"));
    for (src, found) in
        [("10.0.0.1", Ok(B)), ("10.0.0.2", Err(RouteError::SourceNotOurs)), ("::1", Err(RouteError::Family))]
    {
        assert_eq!(host.egress_over(now, B, Some(ip(src)), dst).map(|it| it.link), found, "{src}");
    }
    assert_eq!(host.egress_for(now, None, None, dst), host.egress(now, None, dst));
    let own = host.egress_over(now, A, None, ip("10.0.0.1")).map(|it| (it.link, it.bound));
    assert_eq!(own, Ok((firelane_ip::LOOPBACK, Some(A))));
    assert_eq!(host.egress_for(now, Some(B), None, dst), host.egress_over(now, B, None, dst));
}

/// RFC 1122 §3.2.1.3 (g): what has the loopback's address is seen by nobody else, and so is what is sent by its device.
#[test]
fn what_the_loopback_sends_to_many_stays_here() {
    let (own, no_way, ours) = (Ok(firelane_ip::LOOPBACK), Err(RouteError::NoRoute), "10.0.0.1");
    let lo = Some(firelane_ip::LOOPBACK);
    for (link, src, group, everybody) in [
        (None, "127.0.0.1", own, own),
        (None, "127.9.9.9", own, own),
        (lo, "127.0.0.1", own, own),
        (lo, ours, own, own),
        (lo, "", own, own),
        (Some(A), "127.0.0.1", no_way, no_way),
        (Some(A), ours, Ok(A), Ok(A)),
        (Some(B), ours, Ok(B), Ok(B)),
    ] {
        for (dst, found) in [("239.1.1.1", group), ("255.255.255.255", everybody)] {
            let (mut host, now, src) = (host(), Instant::ZERO, src.parse().ok());
            let by = host.egress_by(now, link, src, ip(dst));
            assert_eq!(by.map(|it| it.link), found, "{link:?} {src:?} {dst}");
            if let Some(link) = link {
                assert_eq!(host.egress_over(now, link, src, ip(dst)), by, "{link:?} {src:?} {dst}");
            }
            if found == own {
                let told = by.map(|it| (it.src, it.is_broadcast()));
                assert_eq!(told, Ok((src.unwrap_or(ip("10.0.0.1")), dst == "255.255.255.255")));
            }
        }
    }
    let mut host = host();
    for dst in ["10.0.0.7", "10.0.0.255"] {
        let found = host.egress_over(Instant::ZERO, A, Some(ip("127.0.0.1")), ip(dst));
        assert_eq!(found.unwrap_err(), RouteError::NoRoute, "{dst}");
    }
    assert_eq!(
        host.egress_by(Instant::ZERO, Some(A), Some(ip("::1")), ip("ff02::1")).unwrap_err(),
        RouteError::NoRoute
    );
}

/// A neighbour of the link that is named is asked for there, and waited for there, whatever link the source is of.
#[test]
fn what_waits_for_a_neighbour_of_a_named_link_leaves_by_it() {
    let (now, dst, src) = (Instant::ZERO, ip("fe80::9"), ip("2001:db8:a::1"));
    let mut pools = Pools::new(PoolsConfig { small_slots: 64, large_slots: 4 });
    let mut host = host();
    host.add_address(now, B, "fe80::1/64".parse().unwrap()).unwrap();
    host.on_timer(now, &mut pools);
    while host.poll_output().is_some() {}
    let mut egress = host.egress_by(now, Some(B), Some(src), dst).unwrap();
    assert_eq!((egress.link, egress.bound, egress.dst_mac), (B, Some(B), None));
    let frame = pools.copy_of(&[0; 20]).unwrap();
    assert!(matches!(host.send(now, &mut egress, frame, Upper::udp(), &mut pools), Sent::Held));
    assert_eq!(egress.link, B);
    let asked: Vec<_> = std::iter::from_fn(|| host.poll_output()).map(|it| it.meta().ingress).collect();
    assert_eq!(asked, [B]);
    // Who is the only other one on a link is there, and on no other.
    let peer = MacAddr([2, 0, 0, 0, 0, 9]);
    for (link, known) in [(A, None), (B, Some(peer))] {
        host.set_peer(link, peer);
        assert_eq!(host.egress_by(now, Some(B), Some(src), dst).unwrap().dst_mac, known);
    }
}

proptest! {
    /// Whoever is bound to the link that his packets would take anyway has the same way.
    #[test]
    fn the_usual_link_changes_nothing(bits: u32) {
        let (mut host, dst) = (host(), IpAddr::V4(bits.into()));
        if let Ok(usual) = host.egress(Instant::ZERO, None, dst)
            && usual.link != firelane_ip::LOOPBACK
        {
            let bound = host.egress_over(Instant::ZERO, usual.link, None, dst);
            prop_assert_eq!(bound.map(|it| (it.link, it.next_hop, it.src)), Ok((usual.link, usual.next_hop, usual.src)));
        }
    }
}
