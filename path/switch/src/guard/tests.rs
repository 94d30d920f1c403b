//! What guards stop, and what they learn.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use firelane_wire::checksum::Sum;

const MAC: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 2]);
const NOW: Instant = Instant::from_secs(100);

fn guard(kinds: &[Protection], allowed: &[&str]) -> Guard {
    let kinds = kinds.iter().fold(Protections::NONE, |all, &kind| all.with(kind));
    let allowed_ips = allowed.iter().map(|text| text.parse().unwrap()).collect();
    Guard::new(MAC, Rules { kinds, allowed_ips, allowed_cids: vec![b"alice".to_vec()] })
}

fn ip(src: &str) -> Packet<'static> {
    let src: IpAddr = src.parse().unwrap();
    let (ethertype, dst) = match src {
        IpAddr::V4(_) => (EtherType::IPV4, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99))),
        IpAddr::V6(_) => (EtherType::IPV6, IpAddr::V6(Ipv6Addr::LOCALHOST)),
    };
    Packet { addresses: Some((src, dst)), ..Packet::opaque(MAC, ethertype) }
}

impl Guard {
    /// Judges a frame, and looks at it if it passes.
    fn send(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        taught: impl FnMut(Lesson),
    ) -> Result<(), DropReason> {
        self.check(now, packet)?;
        self.sent(now, packet, taught);
        Ok(())
    }
}

fn judge(guard: &mut Guard, packet: &Packet<'_>) -> Result<(), DropReason> {
    guard.send(NOW, packet, |_| {})
}

#[test]
fn a12_each_kind_stops_its_own_and_counts() {
    let mut all = guard(&Protection::ALL, &["10.0.0.1", "fd00::/64"]);
    assert_eq!(judge(&mut all, &ip("10.0.0.1")), Ok(()));
    assert_eq!(judge(&mut all, &ip("fd00::7")), Ok(()));
    assert_eq!(judge(&mut all, &ip("0.0.0.0")), Ok(()));
    assert_eq!(judge(&mut all, &ip("10.0.0.2")), Err(DropReason::IpSpoofed));
    assert_eq!(judge(&mut all, &ip("fd00:0:0:1::7")), Err(DropReason::IpSpoofed));
    let malformed = Packet::opaque(MAC, EtherType::IPV4);
    assert_eq!(judge(&mut all, &malformed), Err(DropReason::IpSpoofed), "nobody can tell whose it is");
    let stolen = Packet { src: OTHER, ..ip("10.0.0.1") };
    assert_eq!(judge(&mut all, &stolen), Err(DropReason::MacSpoofed));
    let lldp = Packet::opaque(MAC, EtherType(0x88cc));
    assert_eq!(judge(&mut all, &lldp), Err(DropReason::Restricted));
    assert_eq!(all.counters(), [1, 1, 3, 0]);
    let mut none = guard(&[], &[]);
    assert_eq!(judge(&mut none, &stolen), Ok(()));
}

#[test]
fn a12_no_other_form_of_an_address_passes_for_it() {
    let mut guard = guard(&[Protection::IpNospoof], &["10.0.0.1", "fd00::1"]);
    let stolen =
        ["10.0.0.3", "::ffff:10.0.0.1", "::10.0.0.1", "fe80::1", "fd00::2", "127.0.0.1", "255.255.255.255"];
    for address in stolen {
        assert_eq!(judge(&mut guard, &ip(address)), Err(DropReason::IpSpoofed), "{address}");
    }
    assert_eq!(guard.counters()[Protection::IpNospoof as usize], stolen.len() as u64);
}

fn arp(sender: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1];
    bytes.extend(MAC.0);
    bytes.extend(sender);
    bytes.extend([0; 6]);
    bytes.extend([10, 0, 0, 99]);
    bytes
}

#[test]
fn a03_arp_is_judged_by_who_it_says_has_an_address() {
    let mut guard = guard(&[Protection::IpNospoof], &["10.0.0.1"]);
    let mut judged =
        |bytes: &[u8]| judge(&mut guard, &Packet { l3: bytes, ..Packet::opaque(MAC, EtherType::ARP) });
    assert_eq!(judged(&arp([10, 0, 0, 1])), Ok(()));
    assert_eq!(judged(&arp([0, 0, 0, 0])), Ok(()), "a probe claims nothing (RFC 5227)");
    assert_eq!(judged(&arp([10, 0, 0, 2])), Err(DropReason::IpSpoofed));
    assert_eq!(judged(&arp([10, 0, 0, 1])[..20]), Err(DropReason::IpSpoofed));
}

/// A DHCP message of the client `hardware` in a UDP datagram.
fn dhcp(reply: bool, kind: u8, hardware: MacAddr, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend([1 + u8::from(reply), 1, 6, 0, 1, 2, 3, 4]);
    bytes.resize(8 + 16, 0);
    bytes.extend([10, 0, 0, 7]);
    bytes.resize(8 + 28, 0);
    bytes.extend(hardware.0);
    bytes.resize(8 + 236, 0);
    bytes.extend([99, 130, 83, 99, 53, 1, kind]);
    bytes.extend(options);
    bytes.push(255);
    bytes
}

fn udp<'a>(src: &str, ports: (u16, u16), l4: &'a [u8]) -> Packet<'a> {
    let ports = Some((Port(ports.0), Port(ports.1)));
    Packet { l4, protocol: IpProtocol::UDP, ttl: 64, ports, ..ip(src) }
}

#[test]
fn dhcp_is_asked_in_the_links_own_name() {
    let mut guard = guard(&[Protection::DhcpNospoof], &[]);
    let mut judged = |message: &[u8]| judge(&mut guard, &udp("0.0.0.0", (68, 67), message));
    assert_eq!(judged(&dhcp(false, 1, MAC, &[])), Ok(()));
    assert_eq!(judged(&dhcp(false, 1, MAC, &[61, 7, 1, 2, 8, 0x20, 0, 0, 1])), Ok(()));
    assert_eq!(judged(&dhcp(false, 1, MAC, b"\x3d\x05alice")), Ok(()));
    assert_eq!(judged(&dhcp(false, 1, MAC, b"\x3d\x03bob")), Err(DropReason::DhcpSpoofed));
    assert_eq!(judged(&dhcp(false, 1, OTHER, &[])), Err(DropReason::DhcpSpoofed));
    assert_eq!(judged(b"short"), Err(DropReason::DhcpSpoofed));
    let from_elsewhere = dhcp(false, 1, OTHER, &[]);
    for message in [&b"short"[..], &from_elsewhere] {
        let judged = judge(&mut guard, &udp("0.0.0.0", (1068, 67), message));
        assert_eq!(judged, Err(DropReason::DhcpSpoofed), "servers do not ask from where");
    }
}

/// Whoever reads it in another way must not find somebody else's name in it.
#[test]
fn a11_a_question_names_one_client_and_in_one_place() {
    use crate::dhcp6::tests::message;
    let mut guard = guard(&[Protection::DhcpNospoof], &[]);
    let mut judged = |ports, message: &[u8]| judge(&mut guard, &udp("fe80::1", ports, message)) == Ok(());
    let own = [61, 7, 1, 2, 8, 0x20, 0, 0, 1];
    let two = [&b"\x3d\x03bob"[..], &own].concat();
    let overloaded = [&own[..], &[52, 1, 2]].concat();
    for (options, is_own) in [(&own[..], true), (&two, false), (&overloaded, false)] {
        assert_eq!(judged((68, 67), &dhcp(false, 1, MAC, options)), is_own, "{options:?}");
    }
    assert!(!judged((68, 67), &dhcp(true, 2, MAC, &[])), "a relay would carry that on");
    // Servers that know clients by where a relay has heard them believe who says that he is one (RFC 3046 section 5).
    assert!(!judged((68, 67), &dhcp(false, 1, MAC, b"\x52\x05\x01\x03bob")));
    let mut relayed = dhcp(false, 1, MAC, &[]);
    relayed[8 + 24..8 + 28].copy_from_slice(&[10, 0, 9, 1]);
    assert!(!judged((68, 67), &relayed));
    for kind in 0..=255 {
        let is_clients = [1, 3, 4, 5, 6, 8, 9, 11].contains(&kind);
        assert_eq!(judged((546, 547), &message(kind, 1, MAC, &[])), is_clients, "{kind}");
        assert!(!judged((1546, 547), &message(kind, 1, OTHER, &[])));
        let two = [&message(kind, 1, MAC, &[])[..], &[0, 1, 0, 3], b"bob"].concat();
        assert!(!judged((546, 547), &two));
    }
}

#[test]
fn a11_nobody_answers_as_a_dhcp_server_from_a_guests_port() {
    let mut guarded = guard(&[Protection::DhcpNospoof], &[]);
    let offer = dhcp(true, 2, OTHER, &[]);
    let servers =
        [("10.0.0.1", (67, 68)), ("fe80::1", (547, 546)), ("10.0.0.1", (1067, 68)), ("fe80::1", (1547, 546))];
    for (src, ports) in servers {
        assert_eq!(judge(&mut guarded, &udp(src, ports, &offer)), Err(DropReason::DhcpSpoofed));
        let tcp = Packet { protocol: IpProtocol::TCP, ..udp(src, ports, &offer) };
        assert_eq!(judge(&mut guarded, &tcp), Ok(()), "the ports alone say nothing");
    }
    assert_eq!(guarded.counters()[Protection::DhcpNospoof as usize], 4);
    assert_eq!(judge(&mut guard(&[], &[]), &udp("10.0.0.1", (67, 68), &offer)), Ok(()));
}

/// RFC 7113 section 3: what nobody can read is not let through in the hope that it is harmless.
#[test]
fn a12_nothing_hides_behind_extension_headers_or_in_pieces() {
    let kinds =
        [(Protection::IpNospoof, DropReason::IpSpoofed), (Protection::DhcpNospoof, DropReason::DhcpSpoofed)];
    let advert = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &Ipv6Addr::LOCALHOST.octets()].concat();
    for (kind, reason) in kinds {
        let mut guard = guard(&[kind], &["fd00::1", "10.0.0.1"]);
        let mut judged =
            |src, protocol, piece, l4: &[u8]| judge(&mut guard, &Packet { protocol, piece, l4, ..ip(src) });
        let [echo, readable] = [&[128, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8]];
        for protocol in [0, 43, 44, 51, 60].map(IpProtocol) {
            for (piece, is_hidden) in [(Piece::Whole, true), (Piece::First, true), (Piece::Later, false)] {
                let expected = if is_hidden { Err(reason) } else { Ok(()) };
                assert_eq!(judged("fd00::1", protocol, piece, &[]), expected, "{protocol} {piece:?}");
            }
            assert_eq!(judged("10.0.0.1", protocol, Piece::Whole, readable), Ok(()), "that is IPv4's");
        }
        for piece in [Piece::Whole, Piece::First] {
            assert_eq!(judged("fd00::1", IpProtocol::UDP, piece, &[]), Err(reason), "without ports");
            assert_eq!(judged("fd00::1", IpProtocol::ICMPV6, piece, &[136, 0]), Err(reason));
            assert_eq!(judged("fd00::1", IpProtocol::ICMPV6, piece, echo), Ok(()));
            assert_eq!(judged("fd00::1", IpProtocol::TCP, piece, &[]), Ok(()));
        }
        assert_eq!(judged("fd00::1", IpProtocol::ICMPV6, Piece::First, &advert[..8]), Err(reason));
        assert_eq!(judged("fd00::1", IpProtocol::ICMPV6, Piece::Later, &advert), Ok(()), "it is text");
        let request = dhcp(false, 1, MAC, &[]);
        let first = Packet { piece: Piece::First, ..udp("10.0.0.1", (68, 67), &request) };
        let expected = if kind == Protection::DhcpNospoof { Err(reason) } else { Ok(()) };
        assert_eq!(judge(&mut guard, &first), expected, "its client may be named in another piece");
    }
}

#[test]
fn a_leased_address_may_be_used_until_it_ends() {
    let mut guard = guard(&[Protection::IpNospoof], &[]);
    assert_eq!(judge(&mut guard, &ip("10.0.0.7")), Err(DropReason::IpSpoofed));
    let mut lessons = Vec::new();
    let lease = [51, 4, 0, 0, 0, 60];
    let offered = dhcp(true, 5, MAC, &lease);
    guard.see(NOW, &udp("10.0.0.254", (67, 68), &offered), |lesson| lessons.push(lesson));
    assert!(lessons.is_empty(), "nobody had asked");
    let request = dhcp(false, 3, MAC, &[]);
    assert_eq!(guard.send(NOW, &udp("0.0.0.0", (68, 67), &request), |it| lessons.push(it)), Ok(()));
    let others = dhcp(true, 5, OTHER, &lease);
    guard.see(NOW, &udp("10.0.0.254", (67, 68), &others), |lesson| lessons.push(lesson));
    assert_eq!(lessons.len(), 1, "an answer to somebody else");
    guard.see(NOW, &udp("10.0.0.254", (67, 68), &offered), |lesson| lessons.push(lesson));
    assert_eq!(judge(&mut guard, &ip("10.0.0.7")), Ok(()));
    assert_eq!(judge(&mut guard, &ip("10.0.0.8")), Err(DropReason::IpSpoofed));
    let later = Instant::from_secs(161);
    assert_eq!(guard.send(later, &ip("10.0.0.7"), |_| {}), Err(DropReason::IpSpoofed));
    // Another lane's replica knows the same by what it was told.
    let mut replica = self::guard(&[Protection::IpNospoof], &[]);
    lessons.into_iter().for_each(|lesson| replica.learn(NOW, lesson, |_| {}));
    assert_eq!(judge(&mut replica, &ip("10.0.0.7")), Ok(()));
}

/// A question is broadcast, so anybody can answer it, also when it was answered.
#[test]
fn a11_who_answers_once_more_takes_no_address_back() {
    let lease_of = |seconds: u32, last: u8, transaction: u8| {
        let mut answer = dhcp(true, 5, MAC, &[&[51, 4][..], &seconds.to_be_bytes()].concat());
        (answer[8 + 7], answer[8 + 19]) = (transaction, last);
        answer
    };
    let ask = |guard: &mut Guard, at: Instant, transaction: u8| {
        let mut question = dhcp(false, 3, MAC, &[]);
        question[8 + 7] = transaction;
        guard.send(at, &udp("0.0.0.0", (68, 67), &question), |_| {}).unwrap();
    };
    let answer = |guard: &mut Guard, at: Instant, answer: &[u8]| {
        guard.see(at, &udp("10.0.0.254", (67, 68), answer), |_| {});
    };
    let has = |guard: &mut Guard, at: Instant| guard.check(at, &ip("10.0.0.7")).is_ok();
    let after = |seconds| NOW + Duration::from_secs(seconds);
    let mut guarded = guard(&[Protection::IpNospoof], &[]);
    ask(&mut guarded, NOW, 1);
    for (seconds, is_known) in [(0, false), (600, true), (0, true), (60, true)] {
        answer(&mut guarded, NOW, &lease_of(seconds, 7, 1));
        assert_eq!(has(&mut guarded, NOW), is_known, "{seconds}");
    }
    assert!([after(599), after(600)].map(|at| has(&mut guarded, at)) == [true, false]);
    // One question is answered with an address, or some, and not with so many that the first is forgotten.
    for last in 8..200 {
        answer(&mut guarded, NOW, &lease_of(u32::MAX, last, 1));
    }
    assert!(has(&mut guarded, NOW));
    // Nor one after the other, each for a moment.
    let mut other = guard(&[Protection::IpNospoof], &[]);
    ask(&mut other, NOW, 1);
    answer(&mut other, NOW, &lease_of(600, 7, 1));
    for second in 1..100 {
        answer(&mut other, after(second), &lease_of(1, 100 + second as u8, 1));
    }
    assert!(has(&mut other, after(100)));
    // Nobody answers what was asked long ago.
    answer(&mut guarded, after(300), &lease_of(u32::MAX, 7, 1));
    assert!(!has(&mut guarded, after(700)));
    // The next question may shorten it.
    ask(&mut guarded, after(300), 2);
    answer(&mut guarded, after(300), &lease_of(10, 7, 2));
    assert!([after(309), after(310)].map(|at| has(&mut guarded, at)) == [true, false]);
}

#[test]
fn a_user_gives_back_the_address_that_he_names() {
    for (kind, options, current, is_back) in [
        (7, &b""[..], [10, 0, 0, 7], true),
        (7, b"", [10, 0, 0, 8], false),
        (7, b"", [0; 4], false),
        (4, b"\x32\x04\x0a\x00\x00\x07", [0; 4], true),
        (4, b"\x32\x04\x0a\x00\x00\x08", [10, 0, 0, 7], false),
    ] {
        let mut guard = guard(&[Protection::IpNospoof], &[]);
        judge(&mut guard, &udp("0.0.0.0", (68, 67), &dhcp(false, 3, MAC, &[]))).unwrap();
        let granted = dhcp(true, 5, MAC, &[51, 4, 0, 0, 0, 60]);
        guard.see(NOW, &udp("10.0.0.254", (67, 68), &granted), |_| {});
        let mut back = dhcp(false, kind, MAC, options);
        back[8 + 12..8 + 16].copy_from_slice(&current);
        judge(&mut guard, &udp("0.0.0.0", (68, 67), &back)).unwrap();
        assert_eq!(judge(&mut guard, &ip("10.0.0.7")).is_err(), is_back, "{kind} {current:?}");
    }
}

/// The question leaves by one lane, and the server's answer comes to another before that has heard of it.
#[test]
fn an_answer_waits_a_moment_for_a_question_that_another_lane_has_sent() {
    use crate::dhcp6::tests::message;
    let lease = [51, 4, 0, 0, 0, 60];
    let (asked, granted) = (dhcp(false, 3, MAC, &[]), dhcp(true, 5, MAC, &lease));
    let (asked6, granted6) = (message(3, 2, MAC, &[]), message(7, 2, MAC, &[("2001:db8::7", 60)]));
    let questions = [udp("0.0.0.0", (68, 67), &asked), udp("::", (546, 547), &asked6)];
    let answers = [udp("10.0.0.254", (67, 68), &granted), udp("fe80::1", (547, 546), &granted6)];
    let addresses = ["10.0.0.7", "2001:db8::7"];
    for (late, is_known) in [(0, true), (999, true), (1000, false)] {
        let (mut sender, mut receiver) =
            (guard(&[Protection::IpNospoof], &[]), guard(&[Protection::IpNospoof], &[]));
        for ((question, answer), address) in questions.iter().zip(&answers).zip(addresses) {
            let (mut asked, mut given) = (Vec::new(), Vec::new());
            sender.send(NOW, question, |lesson| asked.push(lesson)).unwrap();
            receiver.see(NOW, answer, |_| panic!("nobody has asked here"));
            assert_eq!(judge(&mut receiver, &ip(address)), Err(DropReason::IpSpoofed));
            let then = NOW + Duration::from_millis(late);
            asked.into_iter().for_each(|lesson| receiver.learn(then, lesson, |it| given.push(it)));
            given.into_iter().for_each(|lesson| sender.learn(then, lesson, |_| {}));
            let judged = [&mut sender, &mut receiver].map(|guard| judge(guard, &ip(address)).is_ok());
            assert_eq!(judged, [is_known; 2], "{address} {late} ms");
        }
    }
}

#[test]
fn an_address_of_dhcpv6_may_be_used_until_it_ends_or_is_given_back() {
    use crate::dhcp6::tests::message;
    let mut guard = guard(&[Protection::IpNospoof], &[]);
    let [one, two] = ["2001:db8::7", "2001:db8::8"];
    let mut lessons = Vec::new();
    let mut see = |guard: &mut Guard, kind, transaction, about: &[(&str, u32)]| {
        let answer = message(kind, transaction, MAC, about);
        guard.see(NOW, &udp("fe80::1", (547, 546), &answer), |lesson| lessons.push(lesson));
    };
    let ask = |guard: &mut Guard, kind, transaction, about: &[(&str, u32)]| {
        // Its own address of the link is known.
        let question = message(kind, transaction, MAC, about);
        judge(guard, &udp("::", (546, 547), &question)).unwrap();
    };
    see(&mut guard, 7, 1, &[(one, 60)]);
    ask(&mut guard, 3, 2, &[]);
    see(&mut guard, 7, 1, &[(one, 60)]);
    see(&mut guard, 2, 2, &[(one, 60)]);
    for address in [one, two] {
        assert_eq!(judge(&mut guard, &ip(address)), Err(DropReason::IpSpoofed), "nothing was granted");
    }
    see(&mut guard, 7, 2, &[(one, 60), (two, u32::MAX)]);
    assert_eq!([one, two].map(|it| judge(&mut guard, &ip(it))), [Ok(()); 2]);
    let later = Instant::from_secs(161);
    let judged = [one, two].map(|it| guard.send(later, &ip(it), |_| {}).is_ok());
    assert_eq!(judged, [false, true]);
    // RFC 8415 section 16.10: an answer names who has asked, whatever he is called.
    ask(&mut guard, 3, 6, &[]);
    let answer = |mac| message(7, 6, mac, &[("2001:db8::9", 60)]);
    for (mac, is_known) in [(OTHER, false), (MAC, true)] {
        guard.see(NOW, &udp("fe80::1", (547, 546), &answer(mac)), |_| assert!(is_known));
        assert_eq!(judge(&mut guard, &ip("2001:db8::9")).is_ok(), is_known);
    }
    // A time of zero takes an address back, and so does its user.
    ask(&mut guard, 5, 3, &[]);
    see(&mut guard, 7, 3, &[(one, 0)]);
    assert_eq!(judge(&mut guard, &ip(one)), Err(DropReason::IpSpoofed));
    ask(&mut guard, 8, 4, &[(one, 0), (two, 0)]);
    assert_eq!(judge(&mut guard, &ip(two)), Err(DropReason::IpSpoofed));
    // Who asks whether addresses fit the link is told so of anybody's.
    ask(&mut guard, 4, 5, &[(two, 0)]);
    see(&mut guard, 7, 5, &[(two, 60)]);
    assert_eq!(judge(&mut guard, &ip(two)), Err(DropReason::IpSpoofed));
    assert_eq!(lessons.len(), 3, "{lessons:?}");
}

fn icmp6<'a>(src: &str, l4: &'a [u8]) -> Packet<'a> {
    let addresses = Some((src.parse().unwrap(), "ff02::1".parse().unwrap()));
    Packet { l4, addresses, protocol: IpProtocol::ICMPV6, ttl: 255, ..ip(src) }
}

/// A router's advertisement of prefixes: each with its length, and for how long its addresses are valid and preferred.
fn advert_of(prefixes: &[(&str, u8, u32, u32)]) -> Vec<u8> {
    let mut bytes = vec![134, 0, 0, 0, 64, 0, 0x07, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    for (prefix, len, valid, preferred) in prefixes {
        bytes.extend([3, 4, *len, 0xc0]);
        bytes.extend([valid.to_be_bytes(), preferred.to_be_bytes(), [0; 4]].concat());
        bytes.extend(prefix.parse::<Ipv6Addr>().unwrap().octets());
    }
    bytes
}

fn advert_of_prefix() -> Vec<u8> {
    advert_of(&[("2001:db8::", 64, 3600, 1800)])
}

/// A solicitation with which nobody tests an address.
fn solicit(target: Ipv6Addr) -> Vec<u8> {
    let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(target.octets());
    let (src, dst) = (Ipv6Addr::UNSPECIFIED, firelane_wire::ndp::solicited_node(target));
    let pseudo = Sum::pseudo_v6(src, dst, IpProtocol::ICMPV6, bytes.len() as u32);
    let sum = pseudo.combine(Sum::of(&bytes)).checksum();
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The header of an IPv6 packet with ICMPv6 directly behind it, as far as it matters.
const PLAIN: [u8; 8] = [0x60, 0, 0, 0, 0, 24, 58, 255];

fn test_of(target: Ipv6Addr, message: &[u8]) -> Packet<'_> {
    let group = firelane_wire::ndp::solicited_node(target);
    let addresses = Some((Ipv6Addr::UNSPECIFIED.into(), group.into()));
    Packet { addresses, dst: group_mac(group.into()), l3: &PLAIN, ..icmp6("::", message) }
}

#[test]
fn a12_only_a_test_that_others_hear_and_believe_claims_an_address() {
    let target: Ipv6Addr = "fe80::7".parse().unwrap();
    let message = solicit(target);
    let mut wrong = message.clone();
    wrong[3] ^= 1;
    let test = test_of(target, &message);
    let in_one_piece = [&PLAIN[..6], &[44, 255]].concat();
    for (name, packet, is_claim) in [
        ("to oneself", Packet { dst: MAC, ..test }, false),
        ("to another group", Packet { dst: MacAddr([0x33, 0x33, 0, 0, 0, 1]), ..test }, false),
        ("with a tag", Packet { tagged: true, ..test }, false),
        ("a wrong checksum", Packet { l4: &wrong, ..test }, false),
        ("a checksum that is to be another", Packet { is_unfinished: true, ..test }, false),
        ("a piece that is all", Packet { l3: &in_one_piece, ..test }, false),
        ("as it should be", test, true),
    ] {
        let mut guard = guard(&[Protection::IpNospoof], &[]);
        assert_eq!(guard.send(NOW, &packet, |_| assert!(is_claim, "{name}")), Ok(()), "{name}");
        assert_eq!(judge(&mut guard, &ip("fe80::7")).is_ok(), is_claim, "{name}");
    }
}

fn test(guard: &mut Guard, target: &str) -> Result<(), DropReason> {
    let target = target.parse().unwrap();
    judge(guard, &test_of(target, &solicit(target)))
}

#[test]
fn an_address_of_an_announced_prefix_may_be_used_once_it_was_tested() {
    let mut guard = guard(&[Protection::IpNospoof], &[]);
    assert_eq!(test(&mut guard, "2001:db8::7"), Ok(()), "a test claims nothing yet");
    assert_eq!(judge(&mut guard, &ip("2001:db8::7")), Err(DropReason::IpSpoofed), "no such prefix");
    let advert = advert_of_prefix();
    guard.see(NOW, &icmp6("fe80::1", &advert), |_| {});
    assert_eq!(judge(&mut guard, &ip("2001:db8::7")), Err(DropReason::IpSpoofed), "not tested since");
    assert_eq!(test(&mut guard, "2001:db8::7"), Ok(()));
    assert_eq!(judge(&mut guard, &ip("2001:db8::7")), Ok(()));
    assert_eq!(judge(&mut guard, &ip("2001:db8::8")), Err(DropReason::IpSpoofed));
    assert_eq!(test(&mut guard, "fe80::7"), Ok(()));
    assert_eq!(judge(&mut guard, &ip("fe80::7")), Ok(()), "link-local addresses need no router");
    // Whoever has it already says so, and that ends the claim.
    let mut defence = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    defence.extend("2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
    guard.see(NOW, &icmp6("2001:db8::7", &defence), |_| {});
    assert_eq!(judge(&mut guard, &ip("2001:db8::7")), Err(DropReason::IpSpoofed));
}

/// RFC 4862 section 5.5.3 (e): a host keeps an address for two hours that a router, or who says that he is one, takes back.
#[test]
fn a07_an_address_may_be_used_for_as_long_as_its_host_keeps_it() {
    const HOUR: u64 = 3600;
    // For how many seconds the prefix is announced, and once more after so many; when its addresses are in use still, and not.
    for (first, after, again, used, unused) in [
        (100_000, 10, 0, 2 * HOUR, 2 * HOUR + 11),
        (100_000, 10, 60, 2 * HOUR, 2 * HOUR + 11),
        (100_000, 10, 3 * 3600, 3 * HOUR, 5 * HOUR),
        (3600, 10, 0, HOUR, 2 * HOUR),
        (3600, 1799, 3600, 1798 + HOUR, 3 * HOUR),
        (3600, 10, u32::MAX, 1 << 32, u64::MAX),
        (u32::MAX, 10, 0, 2 * HOUR, 2 * HOUR + 11),
    ] {
        let mut guard = guard(&[Protection::IpNospoof], &[]);
        let advertise = |guard: &mut Guard, after, valid| {
            let advert = advert_of(&[("2001:db8::", 64, valid, 0)]);
            guard.see(NOW + Duration::from_secs(after), &icmp6("fe80::1", &advert), |_| {});
        };
        advertise(&mut guard, 0, first);
        test(&mut guard, "2001:db8::7").unwrap();
        advertise(&mut guard, after, again);
        let mut judged = |after| {
            let then = if after == u64::MAX { return false } else { NOW + Duration::from_secs(after) };
            guard.check(then, &ip("2001:db8::7")).is_ok()
        };
        assert_eq!([used, unused].map(&mut judged), [true, false], "{first}, and {again} after {after}");
    }
}

#[test]
fn a07_prefixes_that_hosts_do_not_believe_teach_nothing_and_take_no_place() {
    let mut guard = guard(&[Protection::IpNospoof], &[]);
    let see = |guard: &mut Guard, prefix: &str, len, valid, preferred| {
        let advert = advert_of(&[(prefix, len, valid, preferred)]);
        guard.see(NOW, &icmp6("fe80::1", &advert), |_| {});
    };
    for (prefix, len, valid, preferred) in [
        ("::", 0, 3600, 1800),
        ("2001:4860::", 32, 3600, 1800),
        ("2001:4860:4860::8800", 120, 3600, 1800),
        ("2001:4860:4860::", 64, 1800, 3600),
        ("ff02::", 64, 3600, 1800),
        ("fe80::", 64, 3600, 1800),
    ] {
        see(&mut guard, prefix, len, valid, preferred);
        test(&mut guard, "2001:4860:4860::8888").unwrap();
        assert!(judge(&mut guard, &ip("2001:4860:4860::8888")).is_err(), "{prefix}/{len}");
    }
    for n in 0..PREFIXES_MAX + 1 {
        see(&mut guard, &format!("2001:db8:0:{n:x}::"), 64, 3600, 1800);
    }
    let is_known = |n| {
        let mut guard = guard.clone();
        let address = format!("2001:db8:0:{n:x}::7");
        test(&mut guard, &address).unwrap();
        judge(&mut guard, &ip(&address)).is_ok()
    };
    assert!((0..PREFIXES_MAX).all(is_known), "who was there first stays");
    assert!(!is_known(PREFIXES_MAX), "there is no room");
    // What is over makes room.
    let later = NOW + Duration::from_secs(2 * 3600);
    let advert = advert_of(&[("2001:4860::", 64, 3600, 0)]);
    guard.see(later, &icmp6("fe80::1", &advert), |_| {});
    let target = "2001:4860::7".parse().unwrap();
    guard.send(later, &test_of(target, &solicit(target)), |_| {}).unwrap();
    assert_eq!(guard.send(later, &ip("2001:4860::7"), |_| {}), Ok(()));
}

/// RFC 6105: else two who agree would announce each other whatever they like.
#[test]
fn a12_who_may_not_forward_is_no_router() {
    let redirect = [&[137, 0, 0, 0, 0, 0, 0, 0][..], &[0xfe; 32]].concat();
    let with = |prefix| advert_of(&[("2001:db8::", 64, 3600, 1800), (prefix, 64, 3600, 1800)]);
    let (own, others, none) = (with("2001:db8:0:1::"), with("2001:4860::"), advert_of(&[]));
    let (listed, learned) = (&["fe80::/10", "2001:db8::/32"][..], &[][..]);
    for (name, allowed, message, expected) in [
        ("its own prefixes", listed, &own, true),
        ("somebody else's", listed, &others, false),
        ("none", listed, &none, true),
        ("a redirect", listed, &redirect, true),
        ("learned: its own", learned, &own, false),
        ("learned: none", learned, &none, false),
        ("learned: a redirect", learned, &redirect, false),
    ] {
        let mut guard = guard(&[Protection::IpNospoof], allowed);
        test(&mut guard, "fe80::7").unwrap();
        guard.see(NOW, &icmp6("fe80::1", &advert_of_prefix()), |_| {});
        let expected = if expected { Ok(()) } else { Err(DropReason::IpSpoofed) };
        assert_eq!(judge(&mut guard, &icmp6("fe80::7", message)), expected, "{name}");
    }
}

#[test]
fn who_teaches_without_end_is_not_followed_and_keeps_no_other_from_it() {
    use crate::allowance::MOST;
    let mut guard = guard(&[Protection::IpNospoof], &[]);
    let mut lessons = 0;
    for n in 0..4 * MOST {
        let advert = advert_of(&[("2001:db8::", 64, [u32::MAX, 86_400][usize::from(n % 2)], 0)]);
        guard.see(NOW, &icmp6("fe80::1", &advert), |_| lessons += 1);
    }
    assert_eq!(lessons, MOST, "of the neighbours");
    let request = dhcp(false, 3, MAC, &[]);
    let mut of_user = 0;
    guard.send(NOW, &udp("0.0.0.0", (68, 67), &request), |_| of_user += 1).unwrap();
    let mut test = |guard: &mut Guard, now: Instant, target: Ipv6Addr| {
        guard.send(now, &test_of(target, &solicit(target)), |_| of_user += 1).unwrap();
        of_user
    };
    let own = |n: u16| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n);
    let of_user = (0..4 * MOST).map(|n| test(&mut guard, NOW, own(n))).max();
    assert_eq!(of_user, Some(MOST), "of the user");
    let offered = dhcp(true, 5, MAC, &[51, 4, 0, 0, 0, 60]);
    guard.see(NOW, &udp("10.0.0.254", (67, 68), &offered), |_| lessons += 1);
    assert_eq!(judge(&mut guard, &ip("10.0.0.7")), Ok(()), "his lease is known all the same");
    let later = NOW + Duration::from_secs(11);
    test(&mut guard, later, own(0xffff));
    assert_eq!(guard.send(later, &ip("fe80::ffff"), |_| {}), Ok(()), "after a while he is heard again");
}
