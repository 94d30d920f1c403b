//! Ways out: sources, routes, generations, offload metadata, oneself, and packets for others.

use crate::common;

use core::time::Duration;

use common::{ANSWER, Station, exchange, ip, mac};
use firelane_frame::{Checksum, Pools, PoolsConfig, SegmentKind, Segmentation};
use firelane_ip::{
    AddressError, AddressOrigin, Configured, DadConfig, Forwarding, IfConfig, Ip, IpConfig, IpEvent,
    LOOPBACK, Route, RouteError, RouteKind, RouteTableError, Sent, Upper,
};
use firelane_units::{DropReason, Instant, IpPrefix, LinkId, MacAddr, Mtu};
use firelane_wire::{
    Ecn, EtherType, EthernetRepr, Icmpv4Repr, Icmpv4View, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View,
    NdpEnvelope, NdpMessage, NdpView, Sum, TcpFlags, TcpRepr, icmpv4, tcp,
};
use proptest::prelude::*;

const NOW: Instant = Instant::from_secs(100);
const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

/// A netstack with two interfaces, whose addresses are usable.
fn two(addresses: &[(LinkId, &str)]) -> Ip {
    let mut stack = Ip::new(IpConfig { dad: DadConfig::OFF, ..IpConfig::new([1; 16]) });
    for (link, last, mtu) in [(A, 0xa, Mtu::ETHERNET), (B, 0xb, Mtu::ETHERSTUB)] {
        stack.add_interface(IfConfig { link, mac: mac(last), mtu, is_home: true });
    }
    for &(link, address) in addresses {
        stack.add_address(NOW, link, prefix(address)).unwrap();
    }
    stack
}

#[test]
fn the_source_suits_the_destination() {
    let mut stack = two(&[
        (A, "10.0.0.1/24"),
        (A, "10.1.0.1/24"),
        (B, "10.2.0.1/24"),
        (A, "fd00::1/64"),
        (A, "fe80::1/64"),
        (B, "fd00:2::1/64"),
    ]);
    stack.add_route(prefix("0.0.0.0/0"), Some(ip("10.1.0.254")), None).unwrap();
    stack.add_route(prefix("::/0"), Some(ip("fe80::fe")), Some(A)).unwrap();
    for (dst, src, link, hop) in [
        ("10.0.0.9", "10.0.0.1", A, "10.0.0.9"),
        ("10.1.0.9", "10.1.0.1", A, "10.1.0.9"),
        ("10.2.0.9", "10.2.0.1", B, "10.2.0.9"),
        ("192.0.2.1", "10.1.0.1", A, "10.1.0.254"),
        ("fd00::9", "fd00::1", A, "fd00::9"),
        ("fe80::9", "fe80::1", A, "fe80::9"),
        ("fd00:2::9", "fd00:2::1", B, "fd00:2::9"),
        ("2001:db8::1", "fd00::1", A, "fe80::fe"),
        ("10.0.0.1", "10.0.0.1", LOOPBACK, "10.0.0.1"),
        ("127.1.2.3", "127.0.0.1", LOOPBACK, "127.1.2.3"),
        ("::1", "::1", LOOPBACK, "::1"),
    ] {
        let egress = stack.egress(NOW, None, ip(dst)).unwrap();
        assert_eq!((egress.src, egress.link, egress.next_hop), (ip(src), link, ip(hop)), "{dst}");
    }
}

#[test]
fn groups_have_addresses_of_their_own() {
    let mut stack = two(&[(A, "10.0.0.1/24"), (B, "10.2.0.1/24"), (B, "fd00::1/64")]);
    for (src, dst, link, expected) in [
        (None, "10.0.0.255", A, MacAddr::BROADCAST),
        (None, "10.2.0.255", B, MacAddr::BROADCAST),
        (None, "255.255.255.255", A, MacAddr::BROADCAST),
        (Some("10.2.0.1"), "255.255.255.255", B, MacAddr::BROADCAST),
        (None, "224.0.0.251", A, MacAddr([1, 0, 0x5e, 0, 0, 251])),
        (None, "ff02::fb", B, MacAddr([0x33, 0x33, 0, 0, 0, 0xfb])),
    ] {
        let egress = stack.egress(NOW, src.map(ip), ip(dst)).unwrap();
        assert_eq!((egress.link, egress.dst_mac), (link, Some(expected)), "{dst}");
    }
}

#[test]
fn a_source_keeps_its_own_link_if_a_route_there_is_as_good() {
    let mut stack = two(&[(A, "10.0.0.1/24"), (B, "10.0.0.2/24")]);
    for (src, link) in [("10.0.0.1", A), ("10.0.0.2", B)] {
        assert_eq!(stack.egress(NOW, Some(ip(src)), ip("10.0.0.9")).unwrap().link, link);
    }
}

/// A path by a source's own route, or over a link that its user speaks over alone, is one like any.
#[test]
fn a_path_is_narrow_whoever_alone_has_a_way_there() {
    let (dst, mtu) = (ip("203.0.113.1"), Mtu::new(1000).unwrap());
    let mut stack = two(&[(A, "10.0.0.1/24"), (B, "10.2.0.1/24")]);
    let everywhere = Route::ending(prefix("0.0.0.0/0"), RouteKind::Unicast);
    let source = Some(prefix("10.0.0.1/32"));
    stack.insert_route(Route { source, gateway: Some(ip("10.0.0.9")), ..everywhere }).unwrap();
    assert_eq!(stack.egress(NOW, None, dst).unwrap_err(), RouteError::NoRoute);
    stack.confirm_path_mtu(NOW, dst, mtu);
    assert_eq!(stack.egress(NOW, Some(ip("10.0.0.1")), dst).unwrap().mtu, mtu);
    assert_eq!(stack.egress_over(NOW, B, None, dst).unwrap().mtu, mtu);
    assert_eq!(stack.poll_event(), Some(IpEvent::PathMtu { dst, mtu }));
    // What the path carries, whatever the link carries by which others go.
    let mut stack = two(&[(A, "10.0.0.1/24"), (B, "10.2.0.1/24")]);
    stack.add_route(prefix("0.0.0.0/0"), Some(ip("10.0.0.9")), None).unwrap();
    let mtu = Mtu::new(4000).unwrap();
    stack.confirm_path_mtu(NOW, dst, mtu);
    assert_eq!(stack.poll_event(), Some(IpEvent::PathMtu { dst, mtu }));
    assert_eq!(stack.egress_over(NOW, B, None, dst).unwrap().mtu, mtu);
    assert_eq!(stack.egress(NOW, None, dst).unwrap().mtu, Mtu::ETHERNET);
    // No link is as large as that.
    stack.confirm_path_mtu(NOW, ip("203.0.113.2"), Mtu::ETHERSTUB);
    assert_eq!((stack.poll_event(), stack.narrow_paths().count()), (None, 1));
}

#[test]
fn why_there_is_no_way() {
    let mut stack = two(&[(A, "10.0.0.1/24")]);
    for (src, dst, error) in [
        (None, "192.0.2.1", RouteError::NoRoute),
        (None, "0.0.0.0", RouteError::NoRoute),
        (None, "fd00::1", RouteError::NoRoute),
        (Some("10.0.0.7"), "10.0.0.9", RouteError::SourceNotOurs),
        (Some("10.0.0.1"), "fd00::1", RouteError::Family),
        (Some("127.0.0.1"), "10.0.0.9", RouteError::NoRoute),
    ] {
        assert_eq!(stack.egress(NOW, src.map(ip), ip(dst)).unwrap_err(), error, "{src:?} {dst}");
    }
    stack.add_route(prefix("fd00::/64"), None, Some(A)).unwrap();
    assert_eq!(stack.egress(NOW, None, ip("fd00::1")).unwrap_err(), RouteError::NoSource);
}

#[test]
fn routes_come_and_go_with_addresses_and_interfaces() {
    let mut pools = firelane_frame::Pools::default();
    let mut stack = two(&[(A, "10.0.0.1/24"), (A, "10.0.0.2/24")]);
    assert_eq!(stack.routes().count(), 1);
    stack.remove_address(A, ip("10.0.0.1")).unwrap();
    assert_eq!(stack.routes().count(), 1, "the other address still brings it");
    let egress = stack.egress(NOW, None, ip("10.0.0.9")).unwrap();
    assert!(stack.is_current(&egress));
    stack.remove_address(A, ip("10.0.0.2")).unwrap();
    assert!(!stack.is_current(&egress));
    assert_eq!((stack.routes().count(), stack.addresses().count()), (0, 0));
    assert_eq!(stack.remove_address(A, ip("10.0.0.2")), Err(AddressError::Missing));

    stack.add_address(NOW, B, prefix("10.2.0.1/24")).unwrap();
    stack.add_route(prefix("0.0.0.0/0"), Some(ip("10.2.0.254")), None).unwrap();
    assert_eq!(stack.add_route(prefix("10.9.0.0/16"), None, Some(LinkId(9))), Err(RouteTableError::Link));
    assert_eq!(stack.add_address(NOW, LinkId(9), prefix("10.9.0.1/24")), Err(AddressError::Link));
    stack.remove_interface(B, &mut pools);
    assert_eq!(stack.egress(NOW, None, ip("192.0.2.1")).unwrap_err(), RouteError::NoRoute);
    // A gateway without a link of its own waits until there is one again.
    stack.add_address(NOW, A, prefix("10.2.0.1/24")).unwrap();
    assert_eq!(stack.egress(NOW, None, ip("192.0.2.1")).unwrap().link, A);
    stack.remove_route(prefix("0.0.0.0/0"), Some(ip("10.2.0.254")), None).unwrap();
    assert_eq!(stack.remove_route(prefix("10.2.0.0/24"), None, Some(A)), Err(RouteTableError::Missing));
}

/// RFC 5942 §4: an address that this host made from a router's prefix says nothing of what is on the link, and its end takes no route
/// away.
#[test]
fn a_subnets_route_goes_with_the_operators_address_though_one_that_was_made_stays() {
    let mut stack = two(&[]);
    let made = Configured::Address {
        link: A,
        prefix: prefix("2001:db8:1::abc/64"),
        origin: AddressOrigin::Prefix,
        is_deprecated: false,
    };
    stack.on_configured(made);
    for last in [5, 6] {
        stack.add_address(NOW, A, prefix(&format!("2001:db8:1::{last}/64"))).unwrap();
    }
    assert_eq!((stack.addresses().count(), stack.routes().count()), (3, 1));
    stack.remove_address(A, ip("2001:db8:1::5")).unwrap();
    assert_eq!(stack.routes().count(), 1, "the other one is the operator's, too");
    stack.remove_address(A, ip("2001:db8:1::6")).unwrap();
    assert_eq!((stack.addresses().count(), stack.routes().count()), (1, 0));
}

#[test]
fn frames_that_wait_end_with_their_interface() {
    let mut a = Station::new(1, &["10.0.0.1/24"]);
    assert!(matches!(a.send(NOW, "10.0.0.2", &[0; 20], Upper::udp()), Sent::Held));
    a.ip.remove_interface(common::LINK, &mut a.pools);
    assert_eq!((a.ip.held_frames(), a.ip.take_drops().total()), (0, 1));
}

/// A large TCP segment as a connection makes it: offsets count from the TCP header.
fn large(a: &mut Station, src: &str, dst: &str, text: usize) -> firelane_frame::Frame {
    let mut frame = a.pools.take(text).unwrap();
    frame.append(text).fill(7);
    let header = TcpRepr {
        src_port: firelane_units::Port(80),
        dst_port: firelane_units::Port(443),
        seq: firelane_units::SeqNum(1),
        ack: None,
        flags: TcpFlags::ACK,
        window: 1,
        urgent: 0,
        options: Default::default(),
    };
    header.emit(frame.prepend(header.emitted_len()));
    let pseudo = Sum::pseudo(ip(src), ip(dst), IpProtocol::TCP, frame.len() as u32);
    tcp::fill_partial(frame.as_mut_slice(), pseudo);
    let kind = if ip(src).is_ipv4() { SegmentKind::TcpV4 } else { SegmentKind::TcpV6 };
    frame.meta_mut().checksum = Checksum::Partial { start: 0, offset: 16 };
    frame.meta_mut().segmentation =
        Some(Segmentation { kind, segment_bytes: 1400, header_bytes: 20, ecn: false });
    frame
}

#[test]
fn a_large_segment_passes_whole_and_can_be_cut_into_right_ones() {
    for (src, dst, header) in [("10.0.0.1", "10.0.0.2", 34), ("fd00::1", "fd00::2", 54)] {
        let mut a = Station::new(1, &[&format!("{src}/24")]);
        let _ = a.send(NOW, dst, &[0; 8], Upper::udp());
        a.ip.on_neighbour_learned(NOW, (common::LINK, ip(dst)), Some(mac(2)), ANSWER);
        a.outputs(NOW);
        let mut egress = a.ip.egress(NOW, None, ip(dst)).unwrap();
        let frame = large(&mut a, src, dst, 64_000);
        let sent = a.ip.send(NOW, &mut egress, frame, Upper::tcp(Ecn::Capable0), &mut a.pools);
        assert!(matches!(sent, Sent::Out));
        let frame = a.ip.poll_output().unwrap();
        assert_eq!((frame.len(), frame.meta().ingress), (header + 20 + 64_000, common::LINK));
        assert_eq!(frame.meta().checksum, Checksum::Partial { start: header as u16, offset: 16 });
        assert_eq!(frame.meta().segmentation.unwrap().header_bytes, header as u16 + 20);
        let mut cut = firelane_frame::Chain::default();
        assert_eq!(firelane_frame::offload::segment(frame, &mut a.pools, &mut cut), Ok(46));
        let mut b = Station::new(2, &[&format!("{dst}/24")]);
        for segment in cut.iter() {
            assert_eq!(b.input_bytes(NOW, segment.as_slice()), "deliver");
            let delivered = b.delivered.pop().unwrap();
            let view = firelane_wire::TcpView::parse(&delivered.frame.as_slice()[delivered.payload]).unwrap();
            assert!(view.is_checksum_valid(ip(src), ip(dst)));
            assert_eq!(delivered.ecn, Ecn::Capable0);
        }
    }
}

#[test]
fn a_datagram_to_oneself_arrives_by_the_loopback() {
    for dst in ["10.0.0.1", "127.0.0.1", "fd00::1", "::1"] {
        let mut a = Station::new(1, &["10.0.0.1/24", "fd00::1/64"]);
        assert!(matches!(a.send(NOW, dst, &[9; 60_000], Upper::udp()), Sent::Out));
        assert_eq!(a.outputs(NOW).len(), 0);
        let delivered = a.delivered.pop().unwrap();
        assert_eq!((delivered.dst, delivered.link, delivered.payload.len()), (ip(dst), LOOPBACK, 60_000));
        a.ip.unreachable_port(NOW, &delivered, &mut a.pools);
        a.outputs(NOW);
        let is_told = matches!(a.events.pop(), Some(IpEvent::TransportError(_)));
        assert!(is_told, "an error to oneself arrives too");
    }
}

#[test]
fn a_cached_way_is_looked_up_again_when_something_changed() {
    let (mut a, mut b) = (Station::new(1, &["10.0.0.1/24"]), Station::new(2, &["10.0.0.2/24"]));
    let mut egress = a.ip.egress(NOW, None, ip("10.0.0.2")).unwrap();
    assert_eq!(egress.dst_mac, None);
    let mut send = |a: &mut Station| {
        let frame = a.frame(&[0; 20]);
        a.ip.send(NOW, &mut egress, frame, Upper::udp(), &mut a.pools)
    };
    assert!(matches!(send(&mut a), Sent::Held));
    exchange(NOW, &mut [&mut a, &mut b]);
    assert!(matches!(send(&mut a), Sent::Out));
    assert_eq!(a.outputs(NOW)[0][..6], mac(2).0);
    // The neighbour has a new address, and says so.
    let mut claim = vec![0; 42];
    EthernetRepr { dst: MacAddr::BROADCAST, src: mac(5), ethertype: EtherType::ARP }.emit(&mut claim);
    firelane_wire::ArpRepr::announcement(mac(5), "10.0.0.2".parse().unwrap()).emit(&mut claim[14..]);
    a.input_bytes(NOW, &claim);
    assert!(matches!(send(&mut a), Sent::Out));
    assert_eq!(a.outputs(NOW)[0][..6], mac(5).0);
    a.ip.remove_address(common::LINK, ip("10.0.0.1")).unwrap();
    assert!(matches!(send(&mut a), Sent::Drop(frame, DropReason::NoRoute) if frame.len() == 20));
}

/// A station between two networks of each family.
const BOTH_LINKS: [(LinkId, &str); 4] =
    [(A, "10.0.0.1/24"), (B, "10.2.0.1/24"), (A, "fd00::1/64"), (B, "fd02::1/64")];

/// RFC 1122 §3.1: a host with two interfaces is no router by that alone.
#[test]
fn who_has_two_interfaces_forwards_nothing_before_he_is_told_to() {
    let mut host = Station::bare(1, DadConfig::OFF, true, 1500);
    host.ip = two(&BOTH_LINKS);
    for dst in ["10.0.0.9", "fd00::9"] {
        let (result, out) = route(&mut host, &packet(dst, 100, 64, true));
        assert_eq!((result, out), ("drop", vec![]), "{dst}");
        assert_eq!(host.drops.pop(), Some(DropReason::NotForUs));
    }
}

/// A router between 10.0.0.0/24 and fd00::/64 on link A and 10.2.0.0/24 and fd02::/64 on link B, whose
/// neighbours it knows.
fn router(mtu_a: u16) -> Station {
    let mut router = Station::bare(1, DadConfig::OFF, true, 1500);
    router.ip = two(&BOTH_LINKS);
    router.ip.set_forwarding(true);
    let mtu = Mtu::new(mtu_a).unwrap();
    router.ip.add_interface(IfConfig { link: A, mac: mac(0xa), mtu, is_home: true });
    for (peer, link) in [("10.0.0.9", A), ("10.2.0.9", B), ("fd00::9", A), ("fd02::9", B)] {
        let _ = router.send(NOW, peer, &[0; 8], Upper::udp());
        router.ip.on_neighbour_learned(NOW, (link, ip(peer)), Some(mac(9)), ANSWER);
    }
    router.ip.on_timer(NOW, &mut router.pools);
    while router.ip.poll_output().is_some() {}
    router
}

fn packet(dst: &str, len: usize, hops: u8, dont_fragment: bool) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    let ethertype = if ip(dst).is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    EthernetRepr { dst: mac(0xb), src: mac(9), ethertype }.emit(&mut bytes);
    if let std::net::IpAddr::V4(dst) = ip(dst) {
        let mut header = Ipv4Repr::new("10.2.0.9".parse().unwrap(), dst, IpProtocol::UDP, len as u16);
        (header.ttl, header.dont_fragment, header.identification) = (hops, dont_fragment, 77);
        bytes.extend([0; 20]);
        header.emit(&mut bytes[14..]);
    } else {
        let std::net::IpAddr::V6(dst) = ip(dst) else { unreachable!() };
        let mut header = Ipv6Repr::new("fd02::9".parse().unwrap(), dst, IpProtocol::UDP, len as u16);
        header.hop_limit = hops;
        bytes.extend([0; 40]);
        header.emit(&mut bytes[14..]);
    }
    bytes.extend((0..len).map(|i| i as u8));
    bytes
}

/// What a router makes of a packet that arrives by link B.
fn route(router: &mut Station, bytes: &[u8]) -> (&'static str, Vec<(LinkId, Vec<u8>)>) {
    let frame = router.frame(bytes);
    let result = router.input(NOW, B, frame);
    let mut out = Vec::new();
    while let Some(frame) = router.ip.poll_output() {
        out.push((frame.meta().ingress, frame.as_slice().to_vec()));
    }
    (result, out)
}

#[test]
fn a_packet_for_another_goes_on_with_one_hop_less() {
    for (dst, hops_at) in [("10.0.0.9", 22), ("fd00::9", 21)] {
        let mut router = router(1500);
        let bytes = packet(dst, 100, 64, true);
        let (result, out) = route(&mut router, &bytes);
        assert_eq!((result, out.len(), out[0].0), ("forwarded", 1, A));
        let sent = &out[0].1;
        assert_eq!((&sent[..6], &sent[6..12], sent[hops_at]), (&mac(9).0[..], &mac(0xa).0[..], 63));
        assert_eq!(sent[sent.len() - 100..], bytes[bytes.len() - 100..]);
        if ip(dst).is_ipv4() {
            assert!(Ipv4View::parse(&sent[14..]).unwrap().is_checksum_valid());
        }
        router.ip.set_forwarding(false);
        assert_eq!(route(&mut router, &bytes).0, "drop");
        assert_eq!(router.drops, [DropReason::NotForUs]);
    }
}

#[test]
fn who_sends_what_goes_back_to_his_link_is_told_of_the_shorter_way_if_the_operator_wants_it() {
    let with_redirects = Forwarding { redirects_v4: true, redirects_v6: true, ..Forwarding::ON };
    // Whither, by which next hop, and whether that can be named.
    let table = [
        ("10.2.0.5", "10.2.0.5", true),
        ("192.0.2.1", "10.2.0.77", true),
        // The sender is in another network than this one.
        ("192.0.3.1", "10.9.0.77", false),
        ("10.0.0.9", "10.0.0.9", false),
        ("fd02::5", "fd02::5", true),
        ("2001:db8::1", "fe80::77", true),
        // Another router is known by its link-local address.
        ("2001:db9::1", "fd02::77", false),
        ("fd00::9", "fd00::9", false),
    ];
    for ((dst, hop, can_be_named), is_on) in table.into_iter().flat_map(|case| [(case, true), (case, false)])
    {
        let mut router = router(1500);
        for address in ["fe80::1/64", "10.9.0.1/24"] {
            router.ip.add_address(NOW, B, prefix(address)).unwrap();
        }
        let ways = [
            ("192.0.2.0/24", "10.2.0.77"),
            ("192.0.3.0/24", "10.9.0.77"),
            ("2001:db8::/32", "fe80::77"),
            ("2001:db9::/32", "fd02::77"),
        ];
        for (network, gateway) in ways {
            router.ip.add_route(prefix(network), Some(ip(gateway)), Some(B)).unwrap();
        }
        let peer = if ip(hop) == ip(dst) { dst } else { hop };
        let _ = router.send(NOW, peer, &[0; 8], Upper::udp());
        router.ip.on_neighbour_learned(NOW, (B, ip(hop)), Some(mac(7)), ANSWER);
        router.ip.on_timer(NOW, &mut router.pools);
        while router.ip.poll_output().is_some() {}
        router.ip.set_forwarding(if is_on { with_redirects } else { Forwarding::ON });
        let bytes = packet(dst, 1300, 64, true);
        let (result, mut out) = route(&mut router, &bytes);
        assert_eq!(result, "forwarded", "{dst}");
        let told = usize::from(is_on && can_be_named);
        assert_eq!(out.len(), 1 + told, "{dst} {is_on}");
        let sent = out.pop().unwrap().1;
        assert_eq!(sent[14 + if ip(dst).is_ipv4() { 8 } else { 7 }], 63, "{dst}: it goes on");
        let Some((link, message)) = out.pop() else { continue };
        assert_eq!((link, &message[..6]), (B, &mac(9).0[..]));
        if let std::net::IpAddr::V4(gateway) = ip(hop) {
            let view = Ipv4View::parse(&message[14..]).unwrap();
            assert_eq!((view.src(), view.dst()), ("10.2.0.1".parse().unwrap(), "10.2.0.9".parse().unwrap()));
            let quoted = &bytes[14..14 + icmpv4::QUOTE_MAX];
            let want = Icmpv4Repr::Redirect { code: 1, gateway, quoted };
            let said = Icmpv4View::parse(view.payload()).unwrap();
            assert!(said.is_checksum_valid());
            assert_eq!(Icmpv4Repr::parse(&said), Ok(want));
        } else {
            let view = Ipv6View::parse(&message[14..]).unwrap();
            assert_eq!(
                (view.src(), view.dst(), view.hop_limit()),
                ("fe80::1".parse().unwrap(), "fd02::9".parse().unwrap(), 255)
            );
            assert!(message.len() <= 14 + 1280);
            let envelope = NdpEnvelope { src: view.src(), dst: view.dst(), hop_limit: 255 };
            let said = NdpView::parse(&envelope, view.payload()).unwrap();
            let (std::net::IpAddr::V6(target), std::net::IpAddr::V6(destination)) = (ip(hop), ip(dst)) else {
                unreachable!()
            };
            assert_eq!(said.message(), NdpMessage::Redirect { target, destination });
            assert_eq!(said.options().target_mac(), Some(mac(7)));
        }
        // RFC 4861 §8.2, RFC 1122 §3.2.2.2: a host tells nobody.
        router.ip.set_forwarding(Forwarding { v4: false, v6: false, ..with_redirects });
        assert_eq!(route(&mut router, &bytes), ("drop", vec![]), "{dst}");
    }
}

/// RFC 4861 §8.2: as few as errors.
#[test]
fn redirects_are_limited() {
    for (dst, gateway) in [("192.0.2.1", "10.2.0.77"), ("fd02::5", "fd02::5")] {
        let mut router = router(1500);
        router.ip.add_address(NOW, B, prefix("fe80::1/64")).unwrap();
        router.ip.add_route(prefix("192.0.2.0/24"), Some(ip("10.2.0.77")), Some(B)).unwrap();
        let _ = router.send(NOW, gateway, &[0; 8], Upper::udp());
        router.ip.on_neighbour_learned(NOW, (B, ip(gateway)), Some(mac(7)), ANSWER);
        router.ip.on_timer(NOW, &mut router.pools);
        while router.ip.poll_output().is_some() {}
        router.ip.set_forwarding(Forwarding { redirects_v4: true, redirects_v6: true, ..Forwarding::ON });
        let mut told = 0;
        for _ in 0..500 {
            let (result, out) = route(&mut router, &packet(dst, 100, 64, true));
            assert_eq!(result, "forwarded", "{dst}");
            told += out.len() - 1;
        }
        assert!((1..=50).contains(&told), "{dst}: {told}");
    }
}

/// RFC 8200 §3, §4 and §4.7, RFC 6437 §3: what is not for a router it neither reads nor changes but for the hops.
#[test]
fn a_router_passes_headers_on_as_they_are() {
    let behind = |next: u8, headers: &[u8]| {
        let mut bytes = packet("fd00::9", headers.len(), 64, true);
        bytes[20] = next;
        bytes.truncate(54);
        bytes.extend_from_slice(headers);
        // Traffic class and flow label.
        bytes[14..18].copy_from_slice(&[0x6b, 0x91, 0x23, 0x45]);
        bytes
    };
    for (name, bytes) in [
        ("an option that a destination would report", behind(60, &[17, 0, 0xc2, 4, 0, 0, 0, 0, 1, 2, 3, 4])),
        ("an option that reaches past its header", behind(60, &[17, 0, 0x1e, 99, 0, 0, 0, 0])),
        ("segments left", behind(43, &[17, 0, 0, 9, 0, 0, 0, 0, 1, 2])),
        ("text behind no next header", behind(59, b"text that nobody reads")),
        ("a header that nobody knows", behind(200, b"what is this")),
        ("hop-by-hop options second", behind(60, &[0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0xc2, 4, 0, 0, 0, 0])),
        ("a first piece without its headers", behind(44, &[17, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3])),
    ] {
        let mut router = router(1500);
        let (result, out) = route(&mut router, &bytes);
        assert_eq!((result, out.len()), ("forwarded", 1), "{name}");
        let mut expected = bytes[14..].to_vec();
        expected[7] = 63;
        assert_eq!(out[0].1[14..], expected, "{name}");
    }
}

#[test]
fn what_cannot_go_on_is_reported() {
    for (dst, len, hops, reason, kind) in [
        ("10.0.0.9", 100, 1, DropReason::HopsExceeded, [11, 0]),
        ("fd00::9", 100, 1, DropReason::HopsExceeded, [3, 0]),
        ("192.0.2.1", 100, 64, DropReason::NoRoute, [3, 0]),
        ("2001:db8::1", 100, 64, DropReason::NoRoute, [1, 0]),
        ("10.0.0.9", 1400, 64, DropReason::TooBig, [3, 4]),
        ("fd00::9", 1400, 64, DropReason::TooBig, [2, 0]),
    ] {
        let mut router = router(1300);
        let (result, out) = route(&mut router, &packet(dst, len, hops, true));
        assert_eq!((result, router.drops.as_slice()), ("drop", &[reason][..]), "{dst}");
        let at = if ip(dst).is_ipv4() { 34 } else { 54 };
        assert_eq!((out.len(), out[0].0, &out[0].1[at..at + 2]), (1, B, &kind[..]), "{dst}");
        if reason == DropReason::TooBig {
            assert_eq!(out[0].1[at + 6..at + 8], 1300u16.to_be_bytes());
        }
    }
}

#[test]
fn a_packet_that_may_be_cut_is_cut_on_the_way() {
    let mut router = router(576);
    let (result, out) = route(&mut router, &packet("10.0.0.9", 1400, 64, false));
    assert_eq!((result, out.len()), ("forwarded", 3));
    let mut end = Station::new(9, &["10.0.0.9/24"]);
    for (_, frame) in &out {
        let view = Ipv4View::parse(&frame[14..]).unwrap();
        assert!(view.is_checksum_valid() && view.ttl() == 63 && view.identification() == 77);
        end.input_bytes(NOW, frame);
    }
    let delivered = end.delivered.pop().unwrap();
    let expected: Vec<u8> = (0..1400).map(|i| i as u8).collect();
    assert_eq!(delivered.frame.as_slice()[delivered.payload], expected);
}

#[test]
fn the_options_of_a_packet_that_is_cut_go_where_they_belong() {
    // RFC 791 §3.1: a router alert is in every fragment, a record of the route in the first alone.
    let mut router = router(576);
    let mut whole = packet("10.0.0.9", 1400, 64, false);
    let options = [1, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0];
    whole.splice(34..34, options);
    whole[14] = 0x48;
    let len = (whole.len() - 14) as u16;
    whole[16..18].copy_from_slice(&len.to_be_bytes());
    whole[24..26].fill(0);
    let checksum = firelane_wire::checksum::Sum::of(&whole[14..46]).checksum();
    whole[24..26].copy_from_slice(&checksum.to_be_bytes());
    let (result, out) = route(&mut router, &whole);
    assert_eq!((result, out.len()), ("forwarded", 3));
    let mut content = Vec::new();
    for (n, (_, frame)) in out.iter().enumerate() {
        let view = Ipv4View::parse(&frame[14..]).unwrap();
        assert!(view.is_checksum_valid() && frame.len() <= 14 + 576);
        let expected: &[u8] = if n == 0 { &options } else { &[148, 4, 0, 0] };
        assert_eq!(&frame[34..14 + view.header_len()], expected);
        content.extend_from_slice(view.payload());
    }
    assert_eq!(content, (0..1400).map(|i| i as u8).collect::<Vec<u8>>());
}

#[test]
fn a_next_hop_that_does_not_answer_is_reported_to_the_sender() {
    for (dst, kind) in [("10.0.0.77", [3, 1]), ("fd00::77", [1, 3])] {
        let mut router = router(1500);
        let (result, out) = route(&mut router, &packet(dst, 100, 64, true));
        assert_eq!((result, out.len(), router.ip.held_frames()), ("held", 1, 1));
        let mut errors = Vec::new();
        for second in 101..110 {
            router.ip.on_timer(Instant::from_secs(second), &mut router.pools);
            while let Some(frame) = router.ip.poll_output() {
                let at = if ip(dst).is_ipv4() { 34 } else { 54 };
                if frame.meta().ingress == B
                    && [1, 58].contains(&frame.as_slice()[if at == 34 { 23 } else { 20 }])
                {
                    errors.push([frame.as_slice()[at], frame.as_slice()[at + 1]]);
                }
            }
        }
        errors.retain(|error| ![135, 136].contains(&error[0]));
        assert_eq!((errors, router.ip.take_drops().total()), (vec![kind], 1));
    }
}

#[test]
fn a_link_local_source_does_not_leave_its_link() {
    let mut router = router(1500);
    let mut bytes = packet("fd00::9", 100, 64, true);
    bytes[22..38].copy_from_slice(&"fe80::9".parse::<std::net::Ipv6Addr>().unwrap().octets());
    assert_eq!(route(&mut router, &bytes), ("drop", vec![]));
    assert_eq!(Ipv6View::parse(&bytes[14..]).unwrap().hop_limit(), 64);
}

#[test]
fn c06_a_later_fragment_that_cannot_go_on_is_not_reported() {
    for (offset, answers) in [(0u16, 1), (1480, 0)] {
        let mut router = router(1500);
        let mut bytes = packet("10.0.0.9", 104, 1, false);
        let mut header = Ipv4Repr::parse(&Ipv4View::parse(&bytes[14..]).unwrap());
        (header.fragment_offset, header.more_fragments) = (offset, true);
        header.emit(&mut bytes[14..]);
        let (result, out) = route(&mut router, &bytes);
        assert_eq!((result, out.len()), ("drop", answers));
    }
}

/// What may happen between two questions for a way.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    Time(u16),
    Address(usize, bool),
    Route(usize, bool),
    RouteOfSource(usize, bool),
    Neighbour(usize, u8),
    PathMtu(usize, u16),
}

const OWN: [(LinkId, &str); 5] =
    [(A, "10.0.0.1/16"), (A, "10.0.0.2/16"), (B, "10.0.0.3/16"), (A, "fd00::1/64"), (B, "fd00:2::1/64")];
const PEERS: [&str; 6] = ["10.0.0.9", "10.0.1.9", "192.0.2.1", "fd00::9", "2001:db8::1", "127.0.0.1"];

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Nothing),
        any::<u16>().prop_map(Change::Time),
        (0..OWN.len(), any::<bool>()).prop_map(|(which, on)| Change::Address(which, on)),
        (0..2usize, any::<bool>()).prop_map(|(which, on)| Change::Route(which, on)),
        (0..2usize, any::<bool>()).prop_map(|(which, on)| Change::RouteOfSource(which, on)),
        (0..PEERS.len(), 0..4u8).prop_map(|(which, last)| Change::Neighbour(which, last)),
        (0..PEERS.len(), 600..1600u16).prop_map(|(which, mtu)| Change::PathMtu(which, mtu)),
    ]
}

proptest! {
    /// A way that was found lately is the one that a search finds, whatever has happened since.
    #[test]
    fn who_asks_again_is_told_what_a_search_would_find(
        steps in prop::collection::vec((change(), 0..OWN.len(), 0..PEERS.len()), 1..80),
    ) {
        let mut stack = two(&OWN);
        let mut pools = Pools::new(PoolsConfig { small_slots: 64, large_slots: 4 });
        let mut now = NOW;
        for (change, src, dst) in steps {
            happen(&mut stack, &mut pools, &mut now, change);
            let (src, dst) = (prefix(OWN[src].1).addr(), ip(PEERS[dst]));
            let told = stack.egress(now, Some(src), dst);
            prop_assert_eq!(told, stack.egress_by(now, None, Some(src), dst));
        }
    }
}

fn happen(stack: &mut Ip, pools: &mut Pools, now: &mut Instant, change: Change) {
    let gateways = [("0.0.0.0/0", "10.0.0.9"), ("::/0", "fd00::9")].map(|(to, by)| (prefix(to), ip(by)));
    match change {
        Change::Nothing => {}
        Change::Time(millis) => *now += Duration::from_millis(u64::from(millis)),
        Change::Address(which, is_added) => {
            let (link, address) = (OWN[which].0, prefix(OWN[which].1));
            // It may be there already, or not.
            let _ = match is_added {
                true => stack.add_address(*now, link, address),
                false => stack.remove_address(link, address.addr()).map(drop),
            };
        }
        Change::Route(which, is_added) => {
            let (to, by) = gateways[which];
            let _ = match is_added {
                true => stack.add_route(to, Some(by), None),
                false => stack.remove_route(to, Some(by), None),
            };
        }
        Change::RouteOfSource(which, is_added) => {
            let (source, to) = [("10.0.0.2/32", "10.0.1.0/24"), ("fd00::1/128", "2001:db8::/32")][which];
            let by = gateways[which].1;
            let unicast = Route::ending(prefix(to), RouteKind::Unicast);
            let route = Route { source: Some(prefix(source)), gateway: Some(by), ..unicast };
            let _ = if is_added { stack.insert_route(route) } else { stack.delete_route(route) };
        }
        Change::Neighbour(which, last) => {
            stack.on_neighbour_learned(*now, (A, ip(PEERS[which])), Some(mac(last)), ANSWER)
        }
        Change::PathMtu(which, mtu) => stack.on_path_mtu(*now, ip(PEERS[which]), Mtu::new(mtu).unwrap()),
    }
    stack.on_timer(*now, pools);
    while stack.poll_output().is_some() {}
}
