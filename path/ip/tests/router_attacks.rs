//! What a router gets that it must not send on: headers that lie, stations that cannot be, loops, and pieces of everything.
//!
//! The same attacks on a host are in `attacks_ipv4.rs` and `attacks_ipv6.rs`.

use crate::common;
use crate::craft;

use common::{ANSWER, Station, ip, mac};
use core::net::{Ipv4Addr, Ipv6Addr};
use craft::*;
use firelane_ip::{IfConfig, Upper};
use firelane_units::{DropReason, LinkId, Mtu};
use firelane_wire::{IpProtocol, Ipv4Repr, Ipv6Repr};

const INSIDE: LinkId = LinkId(9);

/// The attacker's link, and 10.2.0.0/24 and fd02::/64 behind, where the nines are.
fn router() -> Station {
    let mut router = victim();
    router.ip.add_interface(IfConfig { link: INSIDE, mac: mac(3), mtu: Mtu::ETHERNET, is_home: true });
    for address in ["10.2.0.1/24", "fd02::1/64"] {
        router.ip.add_address(NOW, INSIDE, address.parse().unwrap()).unwrap();
    }
    router.ip.set_forwarding(true);
    for peer in ["10.2.0.9", "fd02::9"] {
        let _ = router.send(NOW, peer, &[0; 8], Upper::udp());
        router.ip.on_neighbour_learned(NOW, (INSIDE, ip(peer)), Some(mac(8)), ANSWER);
    }
    router.ip.on_timer(NOW, &mut router.pools);
    router.outputs(NOW);
    router.events.clear();
    router
}

fn from_to_v4(src: [u8; 4], dst: [u8; 4]) -> Ipv4Repr {
    Ipv4Repr::new(Ipv4Addr::from(src), Ipv4Addr::from(dst), IpProtocol::UDP, 0)
}

fn from_to_v6(src: &str, dst: &str) -> Ipv6Repr {
    let addr = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    Ipv6Repr::new(addr(src), addr(dst), IpProtocol::UDP, 0)
}

const BEHIND: [u8; 4] = [10, 2, 0, 9];
const ATTACKER: [u8; 4] = [10, 0, 0, 9];

/// A packet for somebody behind the router, in the frame that brings it there.
fn onward_v4() -> Vec<u8> {
    v4(&from_to_v4(ATTACKER, BEHIND), &udp(b"onward"))
}

fn spoiled(spoil: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = onward_v4();
    spoil(&mut frame);
    frame
}

#[test]
fn what_lies_about_itself_or_names_its_way_is_not_sent_on() {
    let with = |options: &[u8]| v4_with_options(&from_to_v4(ATTACKER, BEHIND), options, &udp(b"way"));
    assert_eq!(give(&mut router(), &onward_v4()).end, "forwarded");
    assert_eq!(give(&mut router(), &with(&[1; 8])).end, "forwarded", "options that ask for nothing");
    for (name, frame, reason) in [
        ("loose source route", with(&[131, 7, 4, 10, 2, 0, 9, 0]), DropReason::BadOption),
        ("strict source route", with(&[137, 7, 4, 10, 2, 0, 9, 0]), DropReason::BadOption),
        ("an option without end", with(&[7, 40, 4, 0]), DropReason::BadOption),
        ("an option without length", with(&[7, 0, 4, 0]), DropReason::BadOption),
        ("a wrong sum", spoiled(|it| it[L3 + 10] ^= 1), DropReason::BadChecksum),
        ("a header of four bytes", spoiled(|it| it[L3] = 0x41), DropReason::BadHeader),
        ("longer than its frame", spoiled(|it| it[L3 + 2] = 4), DropReason::BadHeader),
        ("another version", spoiled(|it| it[L3] = 0x65), DropReason::BadHeader),
    ] {
        let mut router = router();
        let outcome = give(&mut router, &frame);
        assert_eq!((outcome.end, outcome.reason), ("drop", Some(reason)), "{name}");
        assert_eq!(outcome.sent, Vec::<Vec<u8>>::new(), "{name}");
    }
}

/// The same over IPv6, where a router reads hop-by-hop options and nothing else (RFC 8200 §4.2).
#[test]
fn what_lies_about_itself_over_ipv6_is_not_sent_on() {
    let header = |next| Ipv6Repr { next_header: IpProtocol(next), ..from_to_v6("fd00::9", "fd02::9") };
    let plain = || v6(&header(17), &udp(b"onward"));
    let spoiled = |at: usize, value: u8| {
        let mut frame = plain();
        frame[L3 + at] = value;
        frame
    };
    let with = |option: [u8; 6]| v6(&header(0), &[&[17, 0][..], &option, &udp(b"onward")].concat());
    for frame in [plain(), with([1, 4, 0, 0, 0, 0]), with([0x3e, 4, 0, 0, 0, 0])] {
        assert_eq!(give(&mut router(), &frame).end, "forwarded");
    }
    for (name, frame, reason, told) in [
        ("another version", spoiled(0, 0x40), DropReason::BadHeader, None),
        ("longer than its frame", spoiled(4, 4), DropReason::BadHeader, None),
        ("options past the end", v6(&header(0), &[17, 3, 1, 4, 0, 0, 0, 0]), DropReason::BadOption, None),
        ("an option past its header", with([1, 5, 0, 0, 0, 0]), DropReason::BadOption, None),
        ("an option that ends its packet", with([0x7e, 4, 0, 0, 0, 0]), DropReason::BadOption, None),
        ("one that is reported", with([0xbe, 4, 0, 0, 0, 0]), DropReason::BadOption, Some((4, 2, 42))),
        ("one that is reported to one", with([0, 0xfe, 3, 0, 0, 0]), DropReason::BadOption, Some((4, 2, 43))),
    ] {
        let outcome = give(&mut router(), &frame);
        assert_eq!((outcome.end, outcome.reason), ("drop", Some(reason)), "{name}");
        let answers: Vec<_> =
            outcome.sent.iter().map(|it| answer_v6(it)).map(|it| (it.0, it.1, it.2)).collect();
        assert_eq!(answers, told.into_iter().collect::<Vec<_>>(), "{name}");
    }
}

/// Sources that no station has, and destinations that no single one has.
#[test]
fn martians_are_not_sent_on() {
    let v4_frame = |src, dst| v4(&from_to_v4(src, dst), &udp(b"mars"));
    let sources_v4 = [
        [127, 0, 0, 1],
        [0, 0, 0, 0],
        [224, 0, 0, 9],
        [255; 4],
        [240, 0, 0, 1],
        [10, 0, 0, 2],
        [10, 0, 0, 255],
    ];
    let targets_v4 = [
        [127, 0, 0, 1],
        [0, 0, 0, 0],
        [224, 0, 0, 9],
        [239, 1, 1, 1],
        [255; 4],
        [240, 0, 0, 1],
        [10, 2, 0, 255],
    ];
    let v6_frame = |src, dst| v6(&from_to_v6(src, dst), &udp(b"mars"));
    let sources_v6 = ["::1", "::", "ff02::9", "fd00::2", "fe80::9"];
    let targets_v6 = ["::1", "::", "ff02::9", "ff0e::9", "fe80::9"];
    let frames = sources_v4.into_iter().map(|src| (format!("{src:?}"), v4_frame(src, BEHIND)));
    let frames =
        frames.chain(targets_v4.into_iter().map(|dst| (format!("{dst:?}"), v4_frame(ATTACKER, dst))));
    let frames = frames.chain(sources_v6.into_iter().map(|src| (src.to_owned(), v6_frame(src, "fd02::9"))));
    let frames = frames.chain(targets_v6.into_iter().map(|dst| (dst.to_owned(), v6_frame("fd00::9", dst))));
    for (name, frame) in frames {
        let mut router = router();
        let outcome = give(&mut router, &frame);
        // Broadcast addresses are the router's own as well.
        let is_taken = outcome.end == "deliver" && name.ends_with("255]");
        assert!(is_taken || outcome.end == "drop" && outcome.reason.is_some(), "{name}: {outcome:?}");
        let leaves = |it: &Vec<u8>| it[6..12] == mac(3).0;
        assert!(!outcome.sent.iter().any(leaves), "{name}: {:?}", outcome.sent);
    }
}

/// Two routers that send each other what neither can reach.
#[test]
fn a_loop_ends_each_packet_by_its_hops_and_few_are_told() {
    let mut routers = [router(), Station::new(4, &["10.0.0.4/24", "fd00::4/64"])];
    for attacker in ["10.0.0.9", "fd00::9"] {
        let _ = routers[1].send(NOW, attacker, &[0; 8], Upper::udp());
        routers[1].ip.on_neighbour_learned(NOW, (common::LINK, ip(attacker)), Some(ATTACKER_MAC), ANSWER);
    }
    routers[1].ip.set_forwarding(true);
    for (nth, last, gateways) in [(0, 4, ["10.0.0.4", "fd00::4"]), (1, 2, ["10.0.0.2", "fd00::2"])] {
        let router = &mut routers[nth];
        for (gateway, to) in gateways.into_iter().zip(["192.0.2.0/24", "2001:db8::/32"]) {
            let _ = router.send(NOW, gateway, &[0; 8], Upper::udp());
            router.ip.on_neighbour_learned(NOW, (common::LINK, ip(gateway)), Some(mac(last)), ANSWER);
            let _ = router.ip.add_route(to.parse().unwrap(), Some(ip(gateway)), None);
        }
        router.outputs(NOW);
        router.drops.clear();
    }
    let v4_frame = v4(&from_to_v4(ATTACKER, [192, 0, 2, 1]), &udp(b"round"));
    let v6_frame = v6(&from_to_v6("fd00::9", "2001:db8::1"), &udp(b"round"));
    const PACKETS: usize = 500;
    for frame in [v4_frame, v6_frame] {
        let hops = usize::from(frame[L3 + if frame[L3] >> 4 == 4 { 8 } else { 7 }]);
        let (mut passed, mut told) = (0, 0);
        for _ in 0..PACKETS {
            let mut next = Some((0, frame.clone()));
            while let Some((at, frame)) = next.take() {
                let router: &mut Station = &mut routers[at];
                passed += usize::from(router.input_bytes(NOW, &frame) == "forwarded");
                for sent in router.outputs(NOW) {
                    match sent[..6] == ATTACKER_MAC.0 {
                        true => told += 1,
                        false => assert!(next.replace((1 - at, sent)).is_none(), "one packet became two"),
                    }
                }
            }
        }
        assert_eq!(passed, PACKETS * (hops - 1));
        let ended: Vec<_> = routers.iter_mut().flat_map(|it| it.drops.drain(..)).collect();
        assert_eq!(ended, vec![DropReason::HopsExceeded; PACKETS]);
        assert!((1..=PACKETS / 4).contains(&told), "{told} errors");
    }
}

/// A router passes pieces on as they are: it puts nothing together, so no piece of anything makes it keep something.
#[test]
fn pieces_of_everything_are_passed_on_and_nothing_is_kept() {
    let mut router = router();
    let protocols = [1, 6, 17, 47, 50, 51, 58, 89, 132, 253].map(IpProtocol);
    let (mut given, mut passed) = (0, 0);
    for (id, protocol) in (0_u16..).zip(protocols) {
        for (begin, len, more) in [
            (0, 8, true),
            (8, 8, true),
            (4, 16, true),
            (0, 1400, false),
            (8, 0, true),
            (16, 7, true),
            (1480, 1400, true),
            (65_528, 1400, false),
            (65_528, 8, true),
        ] {
            let mut frame = v4(&Ipv4Repr { protocol, ..from_to_v4(ATTACKER, BEHIND) }, &vec![0xa5; len]);
            frame[L3 + 4..L3 + 6].copy_from_slice(&id.to_be_bytes());
            let offset = (begin / 8) as u16 | if more { 0x2000 } else { 0 };
            frame[L3 + 6..L3 + 8].copy_from_slice(&offset.to_be_bytes());
            repair_v4(&mut frame);
            let piece = fragment_header(protocol, begin as u16, more, id);
            let header = Ipv6Repr { next_header: IpProtocol(44), ..from_to_v6("fd00::9", "fd02::9") };
            let frame6 = v6(&header, &[&piece[..], &vec![0xa5; len]].concat());
            for frame in [frame, frame6] {
                given += 1;
                let outcome = give(&mut router, &frame);
                match outcome.end {
                    "forwarded" => {
                        passed += 1;
                        let l4 = if frame[L3] >> 4 == 4 { L3 + 20 } else { L3 + 40 };
                        assert_eq!(outcome.sent.len(), 1);
                        assert_eq!(outcome.sent[0][l4..], frame[l4..], "as it was");
                    }
                    end => assert!(end == "drop" && outcome.reason.is_some(), "{end}"),
                }
                assert_eq!(router.ip.held_frames(), 0);
            }
        }
    }
    assert!(passed > given / 2, "{passed} of {given}");
    assert_eq!(
        router.ip.poll_at().filter(|&at| at < NOW + core::time::Duration::from_secs(1)),
        None,
        "nothing waits"
    );
}

/// RFC 8200 §4.5.
fn fragment_header(next: IpProtocol, begin: u16, more: bool, id: u16) -> [u8; 8] {
    let offset = ((begin & !7) | u16::from(more)).to_be_bytes();
    let id = u32::from(id).to_be_bytes();
    [next.0, 0, offset[0], offset[1], id[0], id[1], id[2], id[3]]
}
