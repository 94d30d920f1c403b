//! Routers: which way, for whom, and that the way of a known flow is the way of its first packet.

use crate::common;

use common::{ANSWER, Station, ip, mac};
use firelane_frame::{Checksum, Frame, SegmentKind, Segmentation};
use firelane_ip::{
    Adjacency, DadConfig, FORESEEN_MAX, IfConfig, IfRouting, Input, Ip, IpConfig, NewFlow, Origin,
    ReversePath, Route, RouteKind, Upper,
};
use firelane_units::{DropReason, Instant, IpPrefix, LinkId, Mtu, Port};
use firelane_wire::checksum::Sum;
use firelane_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, TcpView, UdpRepr};
use proptest::prelude::*;

const NOW: Instant = Instant::from_secs(100);
const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);
const L3: usize = 14;

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

/// 10.0.0.0/24 and fd00::/64 on link A, 10.2.0.0/24 and fd02::/64 on link B; the nines are neighbours on both.
fn router() -> Station {
    let mut router = Station::bare(1, DadConfig::OFF, true, 1500);
    router.ip = Ip::new(IpConfig { dad: DadConfig::OFF, ..IpConfig::new([1; 16]) });
    for (link, last) in [(A, 0xa), (B, 0xb)] {
        router.ip.add_interface(IfConfig { link, mac: mac(last), mtu: Mtu::ETHERNET, is_home: true });
    }
    for (link, address) in [(A, "10.0.0.1/24"), (B, "10.2.0.1/24"), (A, "fd00::1/64"), (B, "fd02::1/64")] {
        router.ip.add_address(NOW, link, prefix(address)).unwrap();
    }
    router.ip.set_forwarding(true);
    for (peer, link) in [("10.0.0.9", A), ("10.0.0.8", A), ("10.2.0.9", B), ("fd00::9", A), ("fd02::9", B)] {
        let _ = router.send(NOW, peer, &[0; 8], Upper::udp());
        router.ip.on_neighbour_learned(NOW, (link, ip(peer)), Some(mac(9)), ANSWER);
    }
    router.ip.on_timer(NOW, &mut router.pools);
    while router.ip.poll_output().is_some() {}
    router
}

/// A datagram with these ends.
fn datagram(src: &str, dst: &str, hops: u8, payload: usize) -> Vec<u8> {
    let udp = UdpRepr { src_port: Port(1000), dst_port: Port(2000), payload_len: payload as u16 };
    let mut body = vec![0; 8 + payload];
    udp.emit(&mut body);
    let mut bytes = vec![0; L3];
    let ethertype = if ip(dst).is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    EthernetRepr { dst: mac(0xb), src: mac(9), ethertype }.emit(&mut bytes);
    match (ip(src), ip(dst)) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
            let mut header = Ipv4Repr::new(src, dst, IpProtocol::UDP, body.len() as u16);
            header.ttl = hops;
            bytes.extend([0; 20]);
            header.emit(&mut bytes[L3..]);
        }
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
            let mut header = Ipv6Repr::new(src, dst, IpProtocol::UDP, body.len() as u16);
            header.hop_limit = hops;
            bytes.extend([0; 40]);
            header.emit(&mut bytes[L3..]);
        }
        _ => unreachable!(),
    }
    bytes.extend(body);
    bytes
}

enum Fate {
    Forwarded(Option<Adjacency>),
    Dropped(DropReason),
    Other,
}

fn give(router: &mut Station, link: LinkId, bytes: &[u8]) -> Fate {
    let frame = router.frame(bytes);
    match router.ip.input(NOW, link, frame, L3, &mut router.pools) {
        Input::Forwarded(adjacency) => Fate::Forwarded(adjacency),
        Input::Drop(_, reason) => Fate::Dropped(reason),
        _ => Fate::Other,
    }
}

/// The fate of a packet in a word, and the ICMP error that its sender gets.
fn fate(router: &mut Station, link: LinkId, bytes: &[u8]) -> (String, Option<[u8; 2]>) {
    let fate = match give(router, link, bytes) {
        Fate::Forwarded(_) => "forwarded".to_owned(),
        Fate::Dropped(reason) => reason.to_string(),
        Fate::Other => "other".to_owned(),
    };
    let forwarded = (fate == "forwarded").then(|| router.ip.poll_output().unwrap());
    drop(forwarded);
    let error = router.ip.poll_output().map(|frame| {
        let at = if frame.as_slice()[L3] >> 4 == 4 { L3 + 20 } else { L3 + 40 };
        [frame.as_slice()[at], frame.as_slice()[at + 1]]
    });
    (fate, error)
}

#[test]
fn routes_that_end_packets_say_so_or_do_not() {
    for (kind, reason, v4, v6) in [
        (RouteKind::Blackhole, "ip_blackhole", None, None),
        (RouteKind::Unreachable, "ip_unreachable", Some([3, 1]), Some([1, 3])),
        (RouteKind::Prohibit, "ip_prohibited", Some([3, 13]), Some([1, 1])),
    ] {
        let mut router = router();
        for (any, ends, src, dst, hop, error) in [
            ("0.0.0.0/0", "192.0.2.0/24", "10.2.0.9", "192.0.2.1", "10.0.0.9", v4),
            ("::/0", "2001:db8::/32", "fd02::9", "2001:db8::1", "fd00::9", v6),
        ] {
            router.ip.add_route(prefix(any), Some(ip(hop)), None).unwrap();
            router.ip.insert_route(Route::ending(prefix(ends), kind)).unwrap();
            let packet = datagram(src, dst, 64, 10);
            // There is no hop for which it would have one too few: traceroute sees no more of a blackhole than other packets do.
            for hops in [64, 1] {
                let packet = datagram(src, dst, hops, 10);
                assert_eq!(fate(&mut router, B, &packet), (reason.to_owned(), error), "{dst}, {hops} hops");
            }
            assert!(router.ip.egress(NOW, None, ip(dst)).is_err(), "our own packets end there, too");
            router.ip.delete_route(Route::ending(prefix(ends), kind)).unwrap();
            assert_eq!(fate(&mut router, B, &packet).0, "forwarded", "the default route is left");
        }
    }
}

#[test]
fn an_interface_has_its_own_word_about_forwarding() {
    let off = IfRouting { forwards_v4: Some(false), ..IfRouting::default() };
    let packets = [datagram("10.2.0.9", "10.0.0.9", 64, 10), datagram("fd02::9", "fd00::9", 64, 10)];
    for (link, word) in [(A, "ip_not_forwarding"), (B, "ip_not_for_us")] {
        let mut router = router();
        assert!(router.ip.set_routing(link, off));
        assert_eq!(fate(&mut router, B, &packets[0]).0, word);
        assert_eq!(fate(&mut router, B, &packets[1]).0, "forwarded", "IPv6 is asked for itself");
        router.ip.set_forwarding(false);
        let on = IfRouting { forwards_v4: Some(true), ..IfRouting::default() };
        assert!([A, B].iter().all(|&link| router.ip.set_routing(link, on)));
        assert_eq!(fate(&mut router, B, &packets[0]).0, "forwarded", "two interfaces forward between them");
        assert_eq!(fate(&mut router, B, &packets[1]).0, "ip_not_for_us");
    }
    assert!(!router().ip.set_routing(LinkId(9), off));
}

#[test]
fn an_interface_has_its_own_word_about_the_size_of_each_familys_packets() {
    let mtu = |bytes| Mtu::new(bytes);
    let own = IfRouting { mtu_v4: mtu(600), mtu_v6: mtu(1300), ..IfRouting::default() };
    for (near, src, dst, limit, headers) in
        [("10.0.0.9", "10.2.0.9", "10.0.0.9", 600, 28), ("fd00::9", "fd02::9", "fd00::9", 1300, 48)]
    {
        let mut router = router();
        assert!(router.ip.set_routing(A, own));
        assert_eq!(router.ip.path_mtu(ip(near)), mtu(limit));
        let fits = datagram(src, dst, 64, usize::from(limit) - headers);
        let Fate::Forwarded(Some(way)) = give(&mut router, B, &fits) else { panic!("it fits") };
        assert_eq!(Some(way.mtu), mtu(limit), "the packets after it are as small");
        router.ip.poll_output();
        let large = datagram(src, dst, 64, usize::from(limit) - headers + 1);
        let error = if ip(dst).is_ipv4() { [3, 4] } else { [2, 0] };
        assert_eq!(fate(&mut router, B, &large), ("ip_too_big".to_owned(), Some(error)));
        // Never larger than what the link carries.
        assert!(router.ip.set_routing(A, IfRouting { mtu_v4: mtu(9000), mtu_v6: mtu(9000), ..own }));
        assert_eq!(router.ip.path_mtu(ip(near)), mtu(1500));
    }
}

/// By which link a packet that came by link B goes on, or why not.
fn onward(router: &mut Station, bytes: &[u8]) -> Result<LinkId, String> {
    match give(router, B, bytes) {
        Fate::Forwarded(adjacency) => {
            while router.ip.poll_output().is_some() {}
            Ok(adjacency.expect("a whole packet's flow may follow").link)
        }
        Fate::Dropped(reason) => Err(reason.to_string()),
        Fate::Other => Err("other".to_owned()),
    }
}

#[test]
fn packets_of_a_source_take_its_routes_first() {
    let mut router = router();
    let from = |source: &str, to: &str, gateway: &str| Route {
        gateway: Some(ip(gateway)),
        source: Some(prefix(source)),
        ..Route::ending(prefix(to), RouteKind::Unicast)
    };
    router.ip.add_route(prefix("198.51.100.0/24"), Some(ip("10.0.0.9")), None).unwrap();
    router.ip.add_route(prefix("2001:db8::/32"), Some(ip("fd00::9")), None).unwrap();
    let packet = |src: &str, dst: &str| datagram(src, dst, 64, 10);
    // Of all sources, by link A; then those of 10.2.0.0/25 by link B, and one of them ends.
    assert_eq!(onward(&mut router, &packet("10.2.0.77", "198.51.100.1")), Ok(A));
    router.ip.insert_route(from("10.2.0.0/25", "198.51.100.0/24", "10.2.0.9")).unwrap();
    let ends = Route {
        source: Some(prefix("10.2.0.78/32")),
        ..Route::ending(prefix("0.0.0.0/0"), RouteKind::Prohibit)
    };
    router.ip.insert_route(ends).unwrap();
    router.ip.insert_route(from("fd02::/64", "2001:db8::/32", "fd02::9")).unwrap();
    for (src, dst, way) in [
        ("10.2.0.77", "198.51.100.1", Ok(B)),
        ("10.2.0.200", "198.51.100.1", Ok(A)),
        ("10.2.0.78", "198.51.100.1", Err("ip_prohibited")),
        // The source's table has no match: that of all decides.
        ("10.2.0.77", "10.0.0.8", Ok(A)),
        ("fd02::7", "2001:db8::1", Ok(B)),
        ("fd01::7", "2001:db8::1", Ok(A)),
    ] {
        assert_eq!(onward(&mut router, &packet(src, dst)), way.map_err(str::to_owned), "{src} {dst}");
    }
    router.ip.delete_route(from("10.2.0.0/25", "198.51.100.0/24", "10.2.0.9")).unwrap();
    assert_eq!(onward(&mut router, &packet("10.2.0.77", "198.51.100.1")), Ok(A));
}

/// The check of both families' sources.
fn both(mode: ReversePath) -> IfRouting {
    IfRouting { reverse_path_v4: mode, reverse_path_v6: mode, ..IfRouting::default() }
}

#[test]
fn each_family_has_a_check_of_its_own() {
    let v4_only = IfRouting { reverse_path_v4: ReversePath::Loose, ..IfRouting::default() };
    let v6_only = IfRouting { reverse_path_v6: ReversePath::Loose, ..IfRouting::default() };
    for (src, dst, checking, other) in
        [("198.51.100.1", "10.0.0.8", v4_only, v6_only), ("2001:db8:9::1", "fd00::8", v6_only, v4_only)]
    {
        let mut router = router();
        let packet = datagram(src, dst, 64, 10);
        assert!(router.ip.set_routing(B, other));
        assert_ne!(fate(&mut router, B, &packet).0, "ip_reverse_path", "{src}");
        assert!(router.ip.set_routing(B, checking));
        assert_eq!(fate(&mut router, B, &packet).0, "ip_reverse_path", "{src}");
    }
}

#[test]
fn a_source_that_is_elsewhere_is_refused_if_the_interface_asks() {
    let table = [
        // Mode, source of a packet by link B, fate.
        (ReversePath::Off, "10.0.0.9", "forwarded"),
        (ReversePath::Off, "198.51.100.1", "forwarded"),
        (ReversePath::Loose, "10.0.0.9", "forwarded"),
        (ReversePath::Loose, "198.51.100.1", "ip_reverse_path"),
        (ReversePath::Loose, "203.0.113.1", "ip_reverse_path"),
        (ReversePath::Strict, "10.0.0.9", "ip_reverse_path"),
        (ReversePath::Strict, "10.2.0.77", "forwarded"),
        (ReversePath::Strict, "192.0.2.1", "forwarded"),
    ];
    for (reverse_path, src, expected) in table {
        let mut router = router();
        // Reached over either link, and not at all.
        router.ip.add_route(prefix("192.0.2.0/24"), Some(ip("10.0.0.9")), None).unwrap();
        router.ip.add_route(prefix("192.0.2.0/24"), Some(ip("10.2.0.9")), None).unwrap();
        router.ip.insert_route(Route::ending(prefix("203.0.113.0/24"), RouteKind::Blackhole)).unwrap();
        assert!(router.ip.set_routing(B, both(reverse_path)));
        let packet = datagram(src, "10.0.0.8", 64, 10);
        assert_eq!(fate(&mut router, B, &packet).0, expected, "{reverse_path:?} {src}");
    }
}

/// A router with two uplinks gives one of its stations the way by the second: what comes for that station comes by it, too.
#[test]
fn the_way_back_is_that_of_whom_a_packet_is_for() {
    for mode in [ReversePath::Strict, ReversePath::Loose] {
        let mut router = router();
        router.ip.add_route(prefix("192.0.2.0/24"), Some(ip("10.0.0.9")), None).unwrap();
        let of_source = Route {
            gateway: Some(ip("10.2.0.9")),
            source: Some(prefix("10.0.0.8/32")),
            ..Route::ending(prefix("0.0.0.0/0"), RouteKind::Unicast)
        };
        router.ip.insert_route(of_source).unwrap();
        assert!([A, B].into_iter().all(|link| router.ip.set_routing(link, both(mode))));
        let mut fate = |link, src: &str, dst: &str| fate(&mut router, link, &datagram(src, dst, 64, 10)).0;
        let refused = if mode == ReversePath::Strict { "ip_reverse_path" } else { "forwarded" };
        assert_eq!(fate(B, "192.0.2.1", "10.0.0.8"), "forwarded", "{mode:?}");
        assert_eq!(fate(B, "198.51.100.1", "10.0.0.8"), "forwarded", "{mode:?}");
        assert_eq!(fate(B, "192.0.2.1", "10.0.0.9"), refused, "{mode:?}");
        assert_eq!(fate(A, "192.0.2.1", "10.0.0.8"), refused, "{mode:?}");
        assert_eq!(fate(B, "198.51.100.1", "10.0.0.9"), "ip_reverse_path", "{mode:?}");
    }
}

#[test]
fn flows_share_equal_routes() {
    let mut router = router();
    for hop in ["10.0.0.8", "10.0.0.9"] {
        router.ip.add_route(prefix("192.0.2.0/24"), Some(ip(hop)), None).unwrap();
    }
    router.ip.on_neighbour_learned(NOW, (A, ip("10.0.0.8")), Some(mac(8)), ANSWER);
    let mut by = [0; 2];
    for n in 0..250 {
        let packet = datagram("10.2.0.9", &format!("192.0.2.{n}"), 64, 10);
        for _ in 0..2 {
            assert!(matches!(give(&mut router, B, &packet), Fate::Forwarded(Some(_))));
            let frame = router.ip.poll_output().unwrap();
            by[usize::from(frame.as_slice()[5]) - 8] += 1;
        }
    }
    assert!(by.iter().all(|&n| n > 180 && n % 2 == 0), "a flow's packets go one way: {by:?}");
}

/// What a router sends, with the link.
fn sent(frame: Frame) -> (LinkId, Vec<u8>) {
    (frame.meta().ingress, frame.as_slice().to_vec())
}

/// A frame of the kernel's that stands for segments of 1,000 bytes each, the last of which is shorter.
fn large_frame(router: &mut Station, dont_fragment: bool, bytes: usize) -> Frame {
    let (src, dst) = ("10.2.0.9".parse().unwrap(), "10.0.0.9".parse().unwrap());
    let len = (20 + bytes) as u16;
    let header =
        Ipv4Repr { identification: 7, dont_fragment, ..Ipv4Repr::new(src, dst, IpProtocol::TCP, len) };
    let mut packet = vec![0; L3 + 40];
    EthernetRepr { dst: mac(0xb), src: mac(9), ethertype: EtherType::IPV4 }.emit(&mut packet);
    header.emit(&mut packet[L3..]);
    packet[L3 + 20..].copy_from_slice(&[0, 80, 0, 81, 0, 0, 1, 0, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    let open = Sum::pseudo_v4(src, dst, IpProtocol::TCP, len).folded();
    packet[L3 + 36..L3 + 38].copy_from_slice(&open.to_be_bytes());
    packet.extend((0..bytes).map(|nth| (nth / 7) as u8));
    let mut frame = router.frame(&packet);
    let meta = frame.meta_mut();
    meta.checksum = Checksum::Partial { start: (L3 + 20) as u16, offset: 16 };
    let (segment_bytes, header_bytes) = (1000, (L3 + 40) as u16);
    meta.segmentation =
        Some(Segmentation { kind: SegmentKind::TcpV4, segment_bytes, header_bytes, ecn: false });
    frame
}

/// RFC 1812 §5.2.6: what may be cut is, whoever has put several segments into one frame.
#[test]
fn segments_that_may_be_cut_and_do_not_fit_are_cut_one_by_one() {
    let mut router = router();
    let narrow = IfRouting { mtu_v4: Mtu::new(600), ..IfRouting::default() };
    assert!(router.ip.set_routing(A, narrow));
    let frame = large_frame(&mut router, true, 3300);
    let fate = router.ip.input(NOW, B, frame, L3, &mut router.pools);
    assert!(matches!(fate, Input::Drop(_, DropReason::TooBig)));
    let error = router.ip.poll_output().unwrap();
    assert_eq!(error.as_slice()[L3 + 20..L3 + 22], [3, 4]);

    let frame = large_frame(&mut router, false, 3300);
    let fate = router.ip.input(NOW, B, frame, L3, &mut router.pools);
    assert!(matches!(fate, Input::Forwarded(_)), "{fate:?}");
    let mut datagrams: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut pieces = 0;
    while let Some(frame) = router.ip.poll_output() {
        let packet = Ipv4View::parse(&frame.as_slice()[L3..]).unwrap();
        assert!(packet.is_checksum_valid() && packet.total_len() <= 600 && packet.ttl() == 63);
        if packet.fragment_offset() == 0 {
            datagrams.push((packet.identification(), Vec::new()));
        }
        let (number, datagram) = datagrams.last_mut().unwrap();
        assert_eq!(
            (packet.identification(), usize::from(packet.fragment_offset())),
            (*number, datagram.len())
        );
        datagram.extend(packet.payload());
        assert_eq!(packet.more_fragments(), datagram.len() < 1020 && *number < 10);
        pieces += 1;
    }
    let (src, dst) = (ip("10.2.0.9"), ip("10.0.0.9"));
    let mut bytes: Vec<u8> = Vec::new();
    for (nth, (number, datagram)) in datagrams.iter().enumerate() {
        let segment = TcpView::parse(datagram).unwrap();
        assert!(segment.is_checksum_valid(src, dst));
        assert_eq!((usize::from(*number), segment.seq().0 as usize), (7 + nth, 256 + bytes.len()));
        bytes.extend(segment.payload());
    }
    assert_eq!(bytes, (0..3300).map(|nth| (nth / 7) as u8).collect::<Vec<_>>());
    assert_eq!((datagrams.len(), pieces), (4, 7), "the last one fits");
    let counts = router.ip.counts().v4;
    assert_eq!((counts.forwarded, counts.cut), (4, 4));
}

proptest! {
    #[test]
    fn a_known_flow_takes_the_way_of_its_first_packet(
        is_v4: bool,
        hops in 0u8..4,
        payload in prop::sample::select(vec![0usize, 10, 1400, 1440, 1460, 1480]),
        mtu in prop::sample::select(vec![1300u16, 1500]),
        padding in 0usize..20,
        flipped in prop::option::of((0usize..40, 0u8..8)),
    ) {
        let mut router = router();
        let mtu = Mtu::new(mtu).unwrap();
        router.ip.add_interface(IfConfig { link: A, mac: mac(0xa), mtu, is_home: true });
        let (src, dst) = if is_v4 { ("10.2.0.9", "10.0.0.9") } else { ("fd02::9", "fd00::9") };
        let Fate::Forwarded(Some(adjacency)) = give(&mut router, B, &datagram(src, dst, 64, 10)) else {
            panic!("the first packet of a flow goes on");
        };
        while router.ip.poll_output().is_some() {}
        prop_assert_eq!(adjacency.generation, router.ip.generation());
        let mut bytes = datagram(src, dst, hops, payload);
        bytes.resize(bytes.len() + padding, 0);
        // Addresses and ports are what the flow is known by.
        let key = if is_v4 { 12..20 } else { 8..40 };
        if let Some((at, bit)) = flipped && !key.contains(&at) {
            let at = (L3 + at).min(bytes.len() - 1);
            bytes[at] ^= 1 << bit;
        }
        let frame = router.frame(&bytes);
        match router.ip.pass_on(&adjacency, frame) {
            Ok(()) => {
                let short = sent(router.ip.poll_output().unwrap());
                prop_assert!(router.ip.poll_output().is_none());
                prop_assert!(matches!(give(&mut router, B, &bytes), Fate::Forwarded(_)));
                prop_assert_eq!(short, sent(router.ip.poll_output().unwrap()));
            }
            Err(frame) => {
                prop_assert_eq!(frame.as_slice(), &bytes[..], "it comes back as it was");
                let is_usual = flipped.is_none() && hops > 1 && bytes.len() - padding - L3 <= usize::from(mtu.bytes());
                prop_assert!(!is_usual);
            }
        }
    }

    #[test]
    fn a_change_loses_nothing_that_had_a_route_before_and_after(
        changes in prop::collection::vec((any::<bool>(), 0u8..8, 20u8..=32, any::<bool>()), 1..40),
    ) {
        // A default route stays; longer ones come and go beside it, some to the other neighbour.
        let mut router = router();
        router.ip.add_route(prefix("0.0.0.0/0"), Some(ip("10.0.0.9")), None).unwrap();
        let mut longer = std::collections::BTreeSet::new();
        for (adds, third, len, other) in changes {
            let to = IpPrefix::new(ip(&format!("192.0.{third}.1")), len).unwrap().network();
            let hop = ip(if other { "10.0.0.8" } else { "10.0.0.9" });
            if adds {
                prop_assert_eq!(router.ip.add_route(to, Some(hop), None).is_ok(), longer.insert((to, hop)));
            } else {
                prop_assert_eq!(router.ip.remove_route(to, Some(hop), None).is_ok(), longer.remove(&(to, hop)));
            }
            for third in 0..8 {
                let packet = datagram("10.2.0.9", &format!("192.0.{third}.1"), 64, 10);
                prop_assert!(matches!(give(&mut router, B, &packet), Fate::Forwarded(Some(_))));
                let frame = router.ip.poll_output().unwrap();
                prop_assert!(Ipv4View::parse(&frame.as_slice()[L3..]).unwrap().is_checksum_valid());
            }
        }
    }
}

/// Addresses of every kind that decides: neighbours, networks behind gateways and at which packets end, our own,
/// broadcasts, groups, nobody's, those that stay on a link or a host.
const EVERYWHERE: [&str; 18] = [
    "10.0.0.9",
    "10.2.0.9",
    "10.2.0.77",
    "10.0.0.1",
    "10.0.0.255",
    "192.0.2.7",
    "192.0.2.200",
    "198.51.100.3",
    "203.0.113.5",
    "224.0.0.5",
    "0.0.0.0",
    "127.0.0.1",
    "169.254.3.4",
    "250.0.0.1",
    "8.8.8.8",
    "255.255.255.255",
    "10.99.0.1",
    "192.0.2.129",
];
const EVERYWHERE_V6: [&str; 9] =
    ["fd00::9", "fd02::9", "fd00::1", "2001:db8::7", "2001:db8:1::1", "ff02::1", "::", "::1", "fe80::9"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// What is said of new flows together is what each first packet finds alone.
    #[test]
    fn what_is_foreseen_is_what_the_long_way_finds(
        pairs in prop::collection::vec((any::<bool>(), 0usize..18, 0usize..18, any::<bool>()), 1..FORESEEN_MAX + 9),
        strict in any::<bool>(),
        closed in any::<bool>(),
        sourced in any::<bool>(),
        sizes in any::<[bool; 2]>(),
    ) {
        let mut router = router();
        for (net, gateway) in [
            ("192.0.2.0/24", "10.0.0.9"),
            ("192.0.2.128/25", "10.2.0.9"),
            ("198.51.100.0/24", "10.0.0.9"),
            ("198.51.100.0/24", "10.0.0.8"),
            ("10.99.0.0/16", "10.0.0.77"),
            ("2001:db8::/32", "fd02::9"),
            ("203.0.113.0/29", "fd02::9"),
            ("0.0.0.0/0", "10.2.0.9"),
        ] {
            router.ip.add_route(prefix(net), Some(ip(gateway)), None).unwrap();
        }
        router.ip.insert_route(Route::ending(prefix("203.0.113.0/24"), RouteKind::Blackhole)).unwrap();
        router.ip.insert_route(Route::ending(prefix("2001:db8:1::/48"), RouteKind::Prohibit)).unwrap();
        let own = ["10.2.0.0/24", "fd02::/64"].map(prefix);
        for (source, to, gateway) in [(own[0], "192.0.2.0/24", "10.0.0.8"), (own[1], "2001:db8::/32", "fd00::9")] {
            let of_all = Route::ending(prefix(to), RouteKind::Unicast);
            let route = Route { gateway: Some(ip(gateway)), source: Some(source), ..of_all };
            if sourced {
                router.ip.insert_route(route).unwrap();
            }
        }
        let reverse_path = if strict { ReversePath::Strict } else { ReversePath::Off };
        let forwards_v4 = closed.then_some(false);
        let (mtu_v4, mtu_v6) = (Mtu::new(600).filter(|_| sizes[0]), Mtu::new(1300).filter(|_| sizes[1]));
        router.ip.set_routing(B, IfRouting { mtu_v4, mtu_v6, ..both(reverse_path) });
        router.ip.set_routing(A, IfRouting { forwards_v4, mtu_v4, mtu_v6, ..IfRouting::default() });
        let name = |is_v4: bool, n: usize| if is_v4 { EVERYWHERE[n] } else { EVERYWHERE_V6[n % 9] };
        let flows: Vec<_> = pairs
            .iter()
            .map(|&(is_v4, src, dst, by_a)| {
                let (src, dst) = (ip(name(is_v4, src)), ip(name(is_v4, dst)));
                NewFlow { link: if by_a { A } else { B }, src, dst }
            })
            .collect();
        let mut foreseen = vec![None; flows.len()];
        let going = router.ip.going_onward(flows.iter().copied());
        router.ip.foresee(NOW, &going, |nth, adjacency| foreseen[nth] = Some(*adjacency));
        for (nth, (flow, said)) in flows.iter().zip(foreseen).enumerate() {
            let packet = datagram(&flow.src.to_string(), &flow.dst.to_string(), 64, 10);
            let found = match give(&mut router, flow.link, &packet) {
                Fate::Forwarded(adjacency) => adjacency,
                Fate::Dropped(_) | Fate::Other => None,
            };
            while router.ip.poll_output().is_some() {}
            prop_assert!(said.is_none() || said == found, "{flow:?}: {said:?}, but {found:?}");
            // Nothing is said only of those that are not as most are.
            let usual = ["192.0.2.7", "203.0.113.5", "2001:db8::7"].map(ip);
            let is_by_v6 = flow.dst != usual[0];
            let is_usual = usual.contains(&flow.dst) && nth < FORESEEN_MAX && !(is_by_v6 && sizes.contains(&true));
            let has_own = sourced && own.iter().any(|source| source.contains(flow.src));
            prop_assert!(!is_usual || has_own || said == found, "{flow:?} goes {found:?}");
        }
    }
}

/// What a routing daemon says holds where nothing here says anything of the same network; its equal routes share the flows.
#[test]
fn a_routing_daemons_routes_come_after_all_others_to_the_same_network() {
    let to = prefix("192.0.2.0/24");
    let learned = |gateway: &str| Route {
        gateway: Some(ip(gateway)),
        origin: Origin::Daemon,
        ..Route::ending(to, RouteKind::Unicast)
    };
    let through = Route { gateway: Some(ip("10.0.0.9")), ..Route::ending(to, RouteKind::Unicast) };
    let mut router = router();
    let packet = datagram("10.2.0.9", "192.0.2.1", 64, 10);
    let of = |router: &mut Station| fate(router, B, &packet).0;
    router.ip.insert_route(learned("10.0.0.8")).unwrap();
    assert_eq!(of(&mut router), "forwarded");
    // The operator's ends packets, although the daemon's leads on; and leads on, although the daemon's ends packets.
    router.ip.insert_route(Route::ending(to, RouteKind::Blackhole)).unwrap();
    assert_eq!(of(&mut router), "ip_blackhole");
    router.ip.delete_route(Route::ending(to, RouteKind::Blackhole)).unwrap();
    assert_eq!(of(&mut router), "forwarded");
    let ending = Route { origin: Origin::Daemon, ..Route::ending(to, RouteKind::Prohibit) };
    router.ip.insert_route(ending).unwrap();
    assert_eq!(of(&mut router), "forwarded", "of the daemon's own the one that leads on");
    router.ip.delete_route(learned("10.0.0.8")).unwrap();
    assert_eq!(of(&mut router), "ip_prohibited");
    router.ip.insert_route(through).unwrap();
    assert_eq!(of(&mut router), "forwarded");
    // The same way may be told by both, and each takes back his own.
    router.ip.insert_route(learned("10.0.0.9")).unwrap();
    router.ip.delete_route(through).unwrap();
    assert_eq!(of(&mut router), "forwarded");
    router.ip.delete_route(learned("10.0.0.9")).unwrap();
    assert_eq!(of(&mut router), "ip_prohibited");
}

/// RFC 8950: a router that is known by its IPv6 address alone takes IPv4's packets, too.
#[test]
fn the_next_hop_of_ipv4_may_be_known_by_an_ipv6_address() {
    let mut router = router();
    for (net, gateway, link) in [("192.0.2.0/24", "fd02::9", None), ("198.51.100.0/24", "fe80::77", Some(B))]
    {
        router.ip.add_route(prefix(net), Some(ip(gateway)), link).unwrap();
    }
    let known = datagram("10.0.0.9", "192.0.2.1", 64, 10);
    let Fate::Forwarded(Some(way)) = give(&mut router, A, &known) else { panic!("the gateway is known") };
    assert_eq!((way.link, way.dst_mac), (B, mac(9)));
    let passed = router.ip.poll_output().unwrap();
    assert_eq!((&passed.as_slice()[..6], &passed.as_slice()[12..14]), (&mac(9).0[..], &[8, 0][..]));
    assert_eq!(passed.as_slice()[L3 + 20..], known[L3 + 20..]);
    // One that is not known is asked for by neighbour discovery, and packets wait for it.
    let waiting = datagram("10.0.0.9", "198.51.100.1", 64, 10);
    assert!(matches!(give(&mut router, A, &waiting), Fate::Other));
    let asked = router.ip.poll_output().unwrap();
    assert_eq!((&asked.as_slice()[12..14], asked.as_slice()[L3 + 40]), (&[0x86, 0xdd][..], 135));
    router.ip.on_neighbour_learned(NOW, (B, ip("fe80::77")), Some(mac(7)), ANSWER);
    let passed = router.ip.poll_output().unwrap();
    assert_eq!((&passed.as_slice()[..6], &passed.as_slice()[12..14]), (&mac(7).0[..], &[8, 0][..]));
    assert_eq!(passed.as_slice()[L3 + 20..], waiting[L3 + 20..]);
    // The other way round there is nothing to follow.
    assert!(router.ip.add_route(prefix("2001:db8::/32"), Some(ip("10.0.0.9")), None).is_err());
    // What leaves in pieces is counted where it belongs.
    router.ip.set_routing(B, IfRouting { mtu_v4: Mtu::new(576), ..IfRouting::default() });
    let mut large = datagram("10.0.0.9", "192.0.2.1", 64, 1000);
    let [src, dst] = ["10.0.0.9", "192.0.2.1"].map(|it| it.parse().unwrap());
    let mut header = Ipv4Repr::new(src, dst, IpProtocol::UDP, 1008);
    header.dont_fragment = false;
    header.emit(&mut large[L3..]);
    give(&mut router, A, &large);
    assert_eq!((router.ip.counts().v4.cut, router.ip.counts().v6.cut), (1, 0));
    // A piece whose end no datagram has is not cut.
    while router.ip.poll_output().is_some() {}
    for (offset, is_cut) in [(64_512, true), (64_536, false), (65_528, false)] {
        header.fragment_offset = offset;
        header.emit(&mut large[L3..]);
        let fate = give(&mut router, A, &large);
        match is_cut {
            true => assert!(matches!(fate, Fate::Forwarded(_)), "{offset}"),
            false => assert!(matches!(fate, Fate::Dropped(DropReason::BadFragment)), "{offset}"),
        }
    }
    assert_eq!((router.ip.counts().v4.cut, router.ip.counts().v4.pieces), (2, 4));
}
