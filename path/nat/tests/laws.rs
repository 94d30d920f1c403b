//! Laws of translation: what goes out comes back, sums stay right, no name outside has two owners, blocks are kept to, everything ends in
//! its time, and floods take no more than they may.

mod common;

use std::collections::HashMap;

use common::*;
use firelane_nat::{NatConfig, NatRef, Outcome, Tuple};
use firelane_units::{
    Direction, DropReason, FilterPorts, Instant, NatAction, NatEnd, NatFiltering, NatLimits, NatPorts,
    NatRule, NatTarget, Port,
};
use firelane_wire::{IpProtocol, Ipv4View, TcpFlags};
use proptest::prelude::*;

const FIN: TcpFlags = TcpFlags::FIN;
const RST: TcpFlags = TcpFlags::RST;

fn host(nth: u8) -> String {
    format!("10.0.0.{}", 1 + nth % 250)
}

/// Whom hosts inside ask in [`ask`].
const PEER: End<'_> = ("198.51.100.7", 5353);

/// A question of somebody inside, and if it is answered. Whether it went.
fn ask(net: &mut Net, inside: End<'_>, is_answered: bool) -> bool {
    let has_gone = net.out(&udp(inside, PEER, b"")).is_ok();
    if is_answered {
        net.back(&udp(PEER, (OUTSIDE, inside.1), b"")).unwrap();
    }
    has_gone
}

fn build(protocol: u8, from: End<'_>, to: End<'_>, payload: &[u8]) -> Vec<u8> {
    match protocol % 3 {
        0 => udp(from, to, payload),
        1 => tcp(from, to, ACK, payload),
        _ => echo(from.0, to.0, false, from.1),
    }
}

/// The same packet with the ends of another, for comparing the rest.
fn without_ends(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[10..20].fill(0);
    match Ipv4View::parse(packet).unwrap().protocol() {
        IpProtocol::UDP => {
            bytes[20..24].fill(0);
            bytes[26..28].fill(0);
        }
        IpProtocol::TCP => {
            bytes[20..24].fill(0);
            bytes[36..38].fill(0);
        }
        _ => bytes[22..26].fill(0),
    }
    bytes
}

proptest! {
    /// Out and back: only ends and sums differ, all sums are right (`Net::forward` looks), and the way back leads to who asked.
    #[test]
    fn what_goes_out_comes_back(
        protocol: u8, nth: u8, port in 1_u16.., peer_port in 1_u16..,
        payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut net = Net::new(vec![from_inside(to_link(RANGE)), from_inside(to_link(NatPorts::Same))]);
        let (inside, peer) = (host(nth), "198.51.100.7");
        let packet = build(protocol, (&inside, port), (peer, peer_port), &payload);
        let left = net.out(&packet).unwrap();
        prop_assert_eq!(without_ends(&left), without_ends(&packet));
        let (address, outer) = seen(&left);
        prop_assert_eq!(address, ip(OUTSIDE));
        let answer = match protocol % 3 {
            2 => echo(peer, OUTSIDE, true, outer),
            _ => build(protocol, (peer, peer_port), (OUTSIDE, outer), &payload),
        };
        let back = net.back(&answer).unwrap();
        prop_assert_eq!(ends(&back).1, (ip(&inside), port));
        prop_assert_eq!(without_ends(&back), without_ends(&answer));
    }

    /// Whoever sends whatever: nobody outside is two inside, and nobody inside is two outside.
    #[test]
    fn no_name_outside_has_two_owners(
        sent in prop::collection::vec((0..2_u8, 0..40_u8, 0..12_u16, 0..4_u8, any::<bool>()), 1..300),
    ) {
        let range = NatPorts::Range(Port(3000), Port(3099));
        let mut net = Net::new(vec![from_inside(to_link(range))]);
        let (mut owners, mut names) = (HashMap::new(), HashMap::new());
        for (protocol, nth, port, peer, waits) in sent {
            let (inside, peer) = ((host(nth), 1000 + port), format!("198.51.100.{peer}"));
            match net.out(&build(protocol, (&inside.0, inside.1), (&peer, 9), b"x")) {
                Ok(left) => {
                    let name = (protocol, seen(&left));
                    prop_assert_eq!(owners.entry(name).or_insert_with(|| inside.clone()), &inside);
                    prop_assert_eq!(*names.entry((protocol, inside)).or_insert(name), name);
                }
                Err(outcome) => {
                    prop_assert_eq!(outcome, Outcome::Ended(DropReason::NatPorts));
                    prop_assert!(owners.keys().filter(|(its, _)| *its == protocol).count() == 100);
                }
            }
            if waits && owners.len() > 150 {
                net.wait(3 * 3600);
                while net.nat.counts().sessions > 0 {
                    net.nat.on_time(net.now);
                    net.wait(1);
                }
                owners.clear();
                names.clear();
            }
        }
        prop_assert_eq!(net.nat.counts().mappings, owners.len() as u64);
    }

    /// Who follows a known session does what who asks about each packet does.
    #[test]
    fn following_is_passing(steps in prop::collection::vec((any::<bool>(), 0..5_usize, 0..200_u64), 1..60)) {
        let mut nets = [(); 2].map(|()| Net::new(vec![from_inside(to_link(RANGE))]));
        let peer = ("198.51.100.7", 80);
        let mut known: [Option<NatRef>; 2] = [None; 2];
        let mut port = 20_500;
        for (goes_out, flags, seconds) in steps {
            let flags = [SYN, SYN.with(ACK), ACK, ACK.with(FIN), ACK.with(RST)][flags];
            let (direction, link, packet) = match goes_out {
                true => (Direction::Out, WAN, tcp(("10.0.0.5", 20_500), peer, flags, b"x")),
                false => (Direction::In, WAN, tcp(peer, (OUTSIDE, port), flags, b"x")),
            };
            let [plain, quick] = &mut nets;
            let (mut one, mut two) = (packet.clone(), packet);
            let outcome = plain.pass(direction, link, &mut one);
            let place = &mut known[usize::from(goes_out)];
            let has_followed = place
                .is_some_and(|known| quick.nat.follow(known, direction, &mut two, false, &quick.router, quick.now));
            match has_followed {
                true => prop_assert!(matches!(outcome, Outcome::Translated(Some(_)))),
                false => {
                    let other = quick.pass(direction, link, &mut two);
                    prop_assert_eq!(other, outcome);
                    if let Outcome::Translated(session) = other {
                        *place = session;
                    }
                }
            }
            prop_assert_eq!(&one, &two);
            if goes_out && matches!(outcome, Outcome::Translated(_)) {
                port = seen(&one).1;
            }
            for net in &mut nets {
                net.wait(seconds);
                net.nat.on_time(net.now);
            }
            let counts = nets.each_ref().map(|net| net.nat.counts());
            prop_assert_eq!(&counts[0], &counts[1]);
            prop_assert_eq!(nets[0].nat.rows(0, 9), nets[1].nat.rows(0, 9));
        }
    }

    /// Whatever bytes come: nothing breaks, and what is no packet is left as it is.
    #[test]
    fn nothing_that_comes_breaks_it(mut bytes in prop::collection::vec(any::<u8>(), 0..120), is_v4: bool, goes_in: bool) {
        let mut net = Net::new(vec![from_inside(to_link(RANGE)), redirect(FilterPorts::Any, "10.0.0.9", 1, false)]);
        if is_v4 && bytes.len() > 20 {
            let length = bytes.len() as u16;
            bytes[0] = 0x45 + bytes[0] % 2;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes[9] = [1, 6, 17, 47][usize::from(bytes[9] % 4)];
            bytes[12..16].copy_from_slice(&[10, 0, 0, 1]);
        }
        let before = bytes.clone();
        let direction = if goes_in { Direction::In } else { Direction::Out };
        if net.pass(direction, WAN, &mut bytes) == Outcome::Untouched {
            prop_assert_eq!(before, bytes);
        }
    }

    /// A frame whose sum is open as yet is right once it is filled in.
    #[test]
    fn an_open_sum_stays_open(protocol in 0..2_u8, port in 1_u16.., payload in prop::collection::vec(any::<u8>(), 0..50)) {
        let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
        let mut packet = build(protocol, ("10.0.0.5", port), ("198.51.100.7", 53), &payload);
        let at = 20 + if protocol == 0 { 6 } else { 16 };
        let fill = |packet: &mut [u8], is_open: bool| {
            let view = Ipv4View::parse(packet).unwrap();
            let length = view.payload().len() as u16;
            let pseudo = firelane_wire::Sum::pseudo_v4(view.src(), view.dst(), view.protocol(), length);
            if is_open {
                packet[at..at + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
            } else {
                let sum = firelane_wire::Sum::of(&packet[20..]).checksum_nonzero();
                packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
        };
        fill(&mut packet, true);
        let (router, now) = (Router::default(), Instant::from_secs(1));
        let outcome = net.nat.pass((Direction::Out, WAN), &mut packet, true, &router, now);
        prop_assert!(matches!(outcome, Outcome::Translated(Some(_))));
        fill(&mut packet, false);
        prop_assert!(is_whole(&packet));
    }
}

/// A stream from outside that nobody answers is followed, too, until the netstack itself has asked who sends it.
#[test]
fn what_nobody_answers_is_followed_until_it_may_be_for_the_netstack() {
    let mut net = Net::new(vec![redirect(FilterPorts::Equal(Port(5000)), "10.0.0.9", 6000, false)]);
    let sent = udp(PEER, (OUTSIDE, 5000), b"one way");
    let Outcome::Translated(Some(known)) = net.pass(Direction::In, WAN, &mut sent.clone()) else { panic!() };
    let follows = |net: &mut Net| {
        let mut packet = sent.clone();
        let follows = net.nat.follow(known, Direction::In, &mut packet, false, &net.router, net.now);
        (follows, packet != sent)
    };
    for _ in 0..3 {
        assert_eq!(follows(&mut net), (true, true));
    }
    let tuple = Tuple { src: ip(PEER.0), dst: ip(OUTSIDE), ports: [PEER.1, 5000], protocol: IpProtocol::UDP };
    net.router.begun.push(tuple);
    assert_eq!(follows(&mut net), (false, false));
    assert_eq!(net.pass(Direction::In, WAN, &mut sent.clone()), Outcome::Untouched);
}

/// RFC 3828 section 3.1, RFC 4340 section 9.1: a sum over the addresses follows them, also where nothing has a port to change; SCTP's is over none.
#[test]
fn sums_over_addresses_stay_right_whatever_the_transport() {
    let (udp_lite, dccp) = (IpProtocol(136), IpProtocol(33));
    let peer = "198.51.100.7";
    let text: Vec<u8> = (0..40).collect();
    for (protocol, covered, has_pseudo) in
        [(udp_lite, 40, true), (udp_lite, 8, true), (dccp, 40, true), (IpProtocol::SCTP, 40, false)]
    {
        let pseudo = |from: &str, to: &str| firelane_wire::Sum::pseudo_v4(ip(from), ip(to), protocol, 40);
        let mut transport = text.clone();
        transport[6..8].fill(0);
        if has_pseudo {
            let sum = firelane_wire::Sum::of(&transport[..covered]).combine(pseudo("10.0.0.5", peer));
            transport[6..8].copy_from_slice(&sum.checksum_nonzero().to_be_bytes());
        }
        let sent = packet("10.0.0.5", peer, protocol, &transport);
        let mut net = Net::new(vec![from_inside(to_link(NatPorts::Same))]);
        let left = net.out(&sent).unwrap();
        assert_eq!(Ipv4View::parse(&left).unwrap().src(), ip(OUTSIDE));
        let is_right = |packet: &[u8], from: &str, to: &str| {
            firelane_wire::Sum::of(&packet[20..20 + covered]).combine(pseudo(from, to)).is_valid()
        };
        match has_pseudo {
            true => assert!(is_right(&left, OUTSIDE, peer), "{protocol:?} {covered}"),
            false => assert_eq!(left[20..], sent[20..], "{protocol:?}"),
        }
        // And back.
        let mut answer = text.clone();
        answer[6..8].fill(0);
        let sum = firelane_wire::Sum::of(&answer[..covered]).combine(pseudo(peer, OUTSIDE));
        answer[6..8].copy_from_slice(&sum.checksum_nonzero().to_be_bytes());
        let back = net.back(&packet(peer, OUTSIDE, protocol, &answer)).unwrap();
        assert_eq!(Ipv4View::parse(&back).unwrap().dst(), ip("10.0.0.5"));
        assert!(!has_pseudo || is_right(&back, peer, "10.0.0.5"), "{protocol:?} {covered}");
    }
}

#[test]
fn rules_with_addresses_of_their_own_ask_for_none() {
    let rule = |nth: u8| {
        let to = NatTarget::Prefix(format!("203.0.113.{nth}/32").parse().unwrap());
        NatRule {
            from: NatEnd { prefix: format!("{}/32", host(nth)).parse().ok(), ..NatEnd::default() },
            ..from_inside(NatAction::Bimap(to))
        }
    };
    let mut net = Net::new((0..200).map(rule).collect());
    let own = udp(("198.51.100.7", 53), (OUTSIDE, 40_000), b"x");
    assert_eq!(net.back(&own), Ok(own));
    assert_eq!(net.router.asked.get(), 0);
}

#[test]
fn a_datagram_without_a_sum_stays_without() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let mut packet = udp(("10.0.0.5", 5), ("198.51.100.7", 53), b"x");
    packet[26..28].fill(0);
    assert_eq!(net.out(&packet).unwrap()[26..28], [0, 0]);
}

#[test]
fn each_source_keeps_to_its_block() {
    let blocks = NatPorts::Block(core::num::NonZeroU16::new(16));
    let target = NatTarget::Prefix("203.0.113.1/32".parse().unwrap());
    let mut net = Net::new(vec![from_inside(NatAction::Map(target, blocks))]);
    let mut first = HashMap::new();
    for nth in 0..20 {
        for port in 0..17 {
            let left = net.out(&udp((&host(nth), 9000 + port), ("198.51.100.7", 53), b"x"));
            match left {
                Ok(left) => {
                    let (_, outer) = seen(&left);
                    let block = (outer - 1024) / 16;
                    assert_eq!(*first.entry(nth).or_insert(block), block);
                }
                Err(outcome) => assert_eq!((outcome, port), (Outcome::Ended(DropReason::NatPorts), 16)),
            }
        }
    }
    let mut blocks: Vec<_> = first.values().collect();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!((blocks.len(), net.nat.counts().mappings), (20, 320));
}

/// RFC 5382 REQ-5, RFC 4787 REQ-5, RFC 5508 REQ-1: not before, and not much later.
#[test]
fn everything_ends_in_its_time() {
    let (peer, inside) = (("198.51.100.7", 80), ("10.0.0.5", 20_002));
    let talk = |segments: &[(bool, TcpFlags)]| {
        let segments = segments.to_vec();
        move |net: &mut Net| {
            for (goes_out, flags) in &segments {
                let passed = match goes_out {
                    true => net.out(&tcp(inside, peer, *flags, b"")),
                    false => net.back(&tcp(peer, (OUTSIDE, 20_002), *flags, b"")),
                };
                assert!(passed.is_ok());
            }
        }
    };
    let open = [(true, SYN), (false, SYN.with(ACK)), (true, ACK)];
    type Act = Box<dyn Fn(&mut Net)>;
    let question = move |ways: &'static [bool], port| {
        move |net: &mut Net| {
            for goes_out in ways {
                let passed = match goes_out {
                    true => net.out(&udp(inside, (peer.0, port), b"")),
                    false => net.back(&udp((peer.0, port), (OUTSIDE, 20_002), b"")),
                };
                assert!(passed.is_ok());
            }
        }
    };
    let cases: [(&str, Act, u64); 12] = [
        ("asked", Box::new(talk(&open[..1])), 240),
        ("answered", Box::new(talk(&open[..2])), 240),
        ("established", Box::new(talk(&open)), 7440),
        ("half closed", Box::new(talk(&[&open[..], &[(true, ACK.with(FIN))]].concat())), 7440),
        (
            "closed",
            Box::new(talk(&[&open[..], &[(true, ACK.with(FIN)), (false, ACK.with(FIN))]].concat())),
            240,
        ),
        ("reset", Box::new(talk(&[&open[..], &[(false, RST)]].concat())), 240),
        ("udp", Box::new(question(&[true], 5060)), 300),
        ("udp, answered", Box::new(question(&[true, false], 1024)), 300),
        ("a question of UDP", Box::new(question(&[true], 53)), 30),
        ("answered", Box::new(question(&[true, false, false], 53)), 30),
        ("a conversation", Box::new(question(&[true, false, true], 500)), 300),
        ("icmp", Box::new(move |net| drop(net.out(&echo(inside.0, peer.0, false, 1)).unwrap())), 60),
    ];
    for (name, act, seconds) in cases {
        let rules = vec![from_inside(to_link(RANGE)), from_inside(to_link(NatPorts::Same))];
        let mut net = Net::new(rules);
        act(&mut net);
        net.wait(seconds - 1);
        net.nat.on_time(net.now);
        assert_eq!(net.nat.counts().sessions, 1, "{name} after {} s", seconds - 1);
        net.wait(2);
        net.nat.on_time(net.now);
        let counts = net.nat.counts();
        assert_eq!((counts.sessions, counts.mappings, counts.expired), (0, 0, 1), "{name} after {seconds} s");
        assert_eq!((net.nat.poll_at(), net.nat.allocated_bytes()), (None, 0), "{name}");
    }
}

#[test]
fn errors_renew_nothing_and_end_nothing() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let left = net.out(&udp(("10.0.0.5", 5), ("198.51.100.7", 5300), b"x")).unwrap();
    net.wait(299);
    assert!(net.back(&unreachable("198.51.100.7", &left)).is_ok());
    net.nat.on_time(net.now);
    assert_eq!(net.nat.counts().sessions, 1);
    net.wait(2);
    assert_eq!(
        net.back(&unreachable("198.51.100.7", &left)).map(|it| it[16..20].to_vec()),
        Ok(vec![192, 0, 2, 1])
    );
}

#[test]
fn nobody_outside_keeps_a_mapping_alone() {
    let mut net = Net::new(vec![redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 80, false)]);
    let ask = udp(("198.51.100.7", 53), (OUTSIDE, 80), b"x");
    net.back(&ask).unwrap();
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let inside = ("10.0.0.5", 20_002);
    net.out(&tcp(inside, ("198.51.100.7", 80), SYN, b"")).unwrap();
    for _ in 0..3 {
        net.wait(100);
        let _ = net.back(&tcp(("198.51.100.7", 80), (OUTSIDE, 20_002), SYN, b""));
    }
    net.nat.on_time(net.now);
    assert_eq!(net.nat.counts().sessions, 0, "RFC 4787 REQ-6: only who is inside keeps what it began");
}

#[test]
fn a_flood_pushes_out_the_oldest_half_open_and_nobody_else() {
    let limits = NatLimits { sessions: 1000, per_source: 800, ..NatLimits::default() };
    let mut net = Net::with(vec![from_inside(to_link(RANGE))], limits);
    let peer = ("198.51.100.7", 80);
    for port in 0..500 {
        let inside = ("10.0.0.5", 20_000 + port);
        net.out(&tcp(inside, peer, SYN, b"")).unwrap();
        net.back(&tcp(peer, (OUTSIDE, 20_000 + port), SYN.with(ACK), b"")).unwrap();
        net.out(&tcp(inside, peer, ACK, b"")).unwrap();
    }
    let mut bytes = 0;
    for nth in 0..20_000_u32 {
        let to = (format!("203.0.113.{}", nth % 256), 1 + (nth / 256) as u16);
        let outcome = net.out(&tcp((&host((nth % 100) as u8 + 10), 7), (&to.0, to.1), SYN, b""));
        assert!(outcome.is_ok(), "{outcome:?}");
        if nth == 5000 {
            bytes = net.nat.allocated_bytes();
        }
    }
    let counts = net.nat.counts();
    assert_eq!((counts.sessions, counts.half_open, counts.evicted), (1000, 500, 19_500));
    assert!(net.nat.allocated_bytes() <= bytes * 2, "{} after {bytes}", net.nat.allocated_bytes());
    for port in 0..500 {
        assert!(net.out(&tcp(("10.0.0.5", 20_000 + port), peer, ACK, b"x")).is_ok(), "the established stay");
    }
    assert_eq!(net.nat.counts().added, 20_500, "and were not made again");
}

/// Who opens and closes connections faster than closed ones are forgotten is not refused for that, nor pushes out who opens one or has
/// one open.
#[test]
fn what_is_over_gives_way_before_any_other() {
    let peer = ("198.51.100.7", 80);
    let connect = |net: &mut Net, inside: End<'_>| {
        net.out(&tcp(inside, peer, SYN, b"")).unwrap();
        net.back(&tcp(peer, (OUTSIDE, inside.1), SYN.with(ACK), b"")).unwrap();
        net.out(&tcp(inside, peer, ACK, b"")).unwrap();
    };
    let fin = firelane_wire::TcpFlags::FIN.with(ACK);
    for (sessions, per_source) in [(20, 9999), (9999, 18)] {
        let limits = NatLimits { sessions, per_source, ..NatLimits::default() };
        let mut net = Net::with(vec![from_inside(to_link(RANGE))], limits);
        connect(&mut net, ("10.0.0.5", 20_001));
        net.out(&tcp(("10.0.0.6", 20_002), peer, SYN, b"")).unwrap();
        for nth in 0..500 {
            let inside = ("10.0.0.7", 21_000 + nth);
            connect(&mut net, inside);
            net.out(&tcp(inside, peer, fin, b"")).unwrap();
            net.back(&tcp(peer, (OUTSIDE, inside.1), fin, b"")).unwrap();
        }
        let counts = net.nat.counts();
        assert_eq!((counts.sessions, counts.evicted), (20, 482));
        let own =
            [20_001, 20_002].map(|port| net.back(&tcp(peer, (OUTSIDE, port), SYN.with(ACK), b"")).is_ok());
        assert_eq!((own, net.nat.counts().added), ([true; 2], 502));
    }
}

/// RFC 7857 section 2.2: a reset that anybody may have sent in a peer's name is not the end of a session, whoever needs room.
#[test]
fn what_somebody_has_reset_does_not_give_way() {
    let peer = ("198.51.100.7", 80);
    for (sessions, per_source) in [(20, 9999), (9999, 20)] {
        let limits = NatLimits { sessions, per_source, ..NatLimits::default() };
        let mut net = Net::with(vec![from_inside(to_link(RANGE))], limits);
        let connect = |net: &mut Net, port| {
            let inside = ("10.0.0.5", port);
            net.out(&tcp(inside, peer, SYN, b"")).unwrap();
            net.back(&tcp(peer, (OUTSIDE, port), SYN.with(ACK), b"")).unwrap();
            net.out(&tcp(inside, peer, ACK, b"")).unwrap();
        };
        connect(&mut net, 20_001);
        net.back(&tcp(peer, (OUTSIDE, 20_001), RST, b"")).unwrap();
        for port in 21_000..21_500 {
            connect(&mut net, port);
            net.out(&tcp(("10.0.0.5", port), peer, FIN.with(ACK), b"")).unwrap();
            net.back(&tcp(peer, (OUTSIDE, port), FIN.with(ACK), b"")).unwrap();
        }
        let left = net.out(&tcp(("10.0.0.5", 20_001), peer, ACK, b"")).unwrap();
        assert_eq!(seen(&left), (ip(OUTSIDE), 20_001));
        assert_eq!((net.nat.counts().added, net.nat.counts().evicted), (501, 481), "it was not made again");
    }
}

/// Nor with a SYN behind it, which nobody answers, or whose answer shows that the connection is there still (RFC 5961 section 4).
#[test]
fn a_reset_and_a_syn_in_a_peers_name_end_no_session() {
    let (inside, peer, outside) = (("10.0.0.5", 20_001), ("198.51.100.7", 80), (OUTSIDE, 20_001));
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    net.out(&tcp(inside, peer, SYN, b"")).unwrap();
    net.back(&tcp(peer, outside, SYN.with(ACK), b"")).unwrap();
    net.out(&tcp(inside, peer, ACK, b"")).unwrap();
    for flags in [RST, SYN] {
        net.back(&tcp(peer, outside, flags, b"")).unwrap();
    }
    let got = net.back(&tcp(peer, outside, ACK, b"text")).unwrap();
    assert_eq!((ends(&got).1, net.nat.counts().added), ((ip(inside.0), inside.1), 1));
    // Its own end begins anew after a reset, in the same names.
    for flags in [RST, SYN] {
        net.out(&tcp(inside, peer, flags, b"")).unwrap();
    }
    net.back(&tcp(peer, outside, SYN.with(ACK), b"")).unwrap();
    assert_eq!(net.nat.counts().added, 1);
}

/// The session that gives way may be the last one of the mapping that the newcomer needs.
#[test]
fn who_is_let_in_by_a_mapping_does_not_push_it_out() {
    let limits = NatLimits { sessions: 2, filtering: NatFiltering::Anybody, ..NatLimits::default() };
    let others = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
    let mut net = Net::with(vec![from_inside(to_link(RANGE))], limits);
    net.out(&udp(("10.0.0.5", 20_005), ("198.51.100.7", 53), b"")).unwrap();
    net.out(&udp(("10.0.0.6", 20_006), ("198.51.100.7", 53), b"")).unwrap();
    for other in others {
        let got = net.back(&udp((other, 53), (OUTSIDE, 20_005), b"")).unwrap();
        assert_eq!(ends(&got).1, (ip("10.0.0.5"), 20_005), "{other}");
    }
    // Nobody else's mapping is let go with those.
    net.out(&udp(("10.0.0.7", 20_007), ("198.51.100.7", 53), b"")).unwrap();
    net.out(&udp(("10.0.0.8", 20_008), ("198.51.100.7", 53), b"")).unwrap();
    for (port, inside) in [(20_008, "10.0.0.8"), (20_008, "10.0.0.8")] {
        let got = net.back(&udp(("203.0.113.9", 53), (OUTSIDE, port), b"")).unwrap();
        assert_eq!(ends(&got).1, (ip(inside), port));
    }
    // The same of those who meet inside.
    let mut net = Net::with(vec![from_inside(to_link(RANGE))], NatLimits { sessions: 3, ..limits });
    for nth in 0..9 {
        net.out(&udp(("10.0.0.5", 20_005), ("198.51.100.7", 53), b"")).unwrap();
        let met = net.within(&udp(("10.0.0.6", 20_100 + nth), (OUTSIDE, 20_005), b""));
        assert_eq!(ends(&met.unwrap()).1, (ip("10.0.0.5"), 20_005), "{nth}");
    }
}

#[test]
fn one_source_has_no_more_than_its_share() {
    let limits = NatLimits { per_source: 10, ..NatLimits::default() };
    let mut net = Net::with(vec![from_inside(to_link(RANGE))], limits);
    for nth in 0..30 {
        let inside = ("10.0.0.5", 20_000 + nth);
        net.wait(1);
        assert!(ask(&mut net, inside, nth % 2 == 0), "what it has asked before makes room, answered or not");
    }
    assert_eq!((net.nat.counts().sessions, net.nat.counts().evicted), (10, 20));
    for nth in 0..10 {
        net.wait(1);
        assert!(
            ask(&mut net, ("10.0.0.5", 21_000 + nth), true)
                && ask(&mut net, ("10.0.0.5", 21_000 + nth), true)
        );
    }
    let refused = net.out(&udp(("10.0.0.5", 99), PEER, b""));
    assert_eq!(refused, Err(Outcome::Ended(DropReason::NatSourceFull)), "conversations do not");
    assert!(ask(&mut net, ("10.0.0.6", 99), false), "others have theirs");
}

/// Whoever sends one datagram in each of many names to a server that answers takes no conversation's place, and no newcomer's.
#[test]
fn a_question_and_its_answer_give_way_and_conversations_stay() {
    let limits = NatLimits { sessions: 1000, ..NatLimits::default() };
    let rules =
        vec![redirect(FilterPorts::Equal(Port(53)), "10.0.0.9", 53, false), from_inside(to_link(RANGE))];
    let mut net = Net::with(rules, limits);
    let [asks_again, has_a_stream] = ["10.0.0.5", "10.0.0.6"];
    let all: Vec<_> = (20_000..20_300).map(|port| (asks_again, port)).collect();
    let streams: Vec<_> = (20_300..20_500).map(|port| (has_a_stream, port)).collect();
    all.iter().for_each(|&inside| assert!(ask(&mut net, inside, true) && ask(&mut net, inside, false)));
    streams.iter().for_each(|&inside| assert!(ask(&mut net, inside, true)));
    net.wait(2);
    streams.iter().for_each(|&(_, port)| drop(net.back(&udp(PEER, (OUTSIDE, port), b"")).unwrap()));
    for nth in 0..4000_u16 {
        let stranger = format!("203.0.113.{}", nth % 256);
        net.back(&udp((&stranger, nth + 1), (OUTSIDE, 53), b"?")).unwrap();
        for _ in 0..2 {
            net.out(&udp(("10.0.0.9", 53), (&stranger, nth + 1), b"!")).unwrap();
            net.now += core::time::Duration::from_millis(2);
        }
    }
    let counts = net.nat.counts();
    assert_eq!((counts.sessions, counts.half_open, counts.evicted), (1000, 500, 3500));
    for inside in all.into_iter().chain(streams) {
        net.out(&udp(inside, PEER, b"")).unwrap();
    }
    assert_eq!(net.nat.counts().added, counts.added, "the conversations are there");
    assert!(net.out(&tcp(("10.0.0.7", 7), ("198.51.100.7", 80), SYN, b"")).is_ok());
}

/// Whoever has the places since, nothing goes on by what was known of sessions that a flush or other rules have ended, and all sums say so.
#[test]
fn what_was_known_of_sessions_that_all_ended_is_nobodys() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let packet = |nth: u8| tcp((&host(nth), 1000 + u16::from(nth)), ("198.51.100.7", 80), SYN, b"");
    let begin = |net: &mut Net, nth| match net.pass(Direction::Out, WAN, &mut packet(nth)) {
        Outcome::Translated(Some(known)) => known,
        other => panic!("{other:?}"),
    };
    let known: Vec<NatRef> = (0..50).map(|nth| begin(&mut net, nth)).collect();
    assert_eq!(net.nat.flush(), 50);
    let counts = net.nat.counts();
    assert_eq!((counts.sessions, counts.half_open, counts.mappings, counts.flushed), (0, 0, 0, 50));
    assert_eq!((counts.rules[0].active, counts.rules[0].hits, net.nat.rows(0, 9).0.len()), (0, 50, 0));
    let since: Vec<NatRef> = (50..100).map(|nth| begin(&mut net, nth)).collect();
    let follows = |net: &mut Net, nth, known| {
        net.nat.follow(known, Direction::Out, &mut packet(nth), false, &net.router, net.now)
    };
    assert!((0..).zip(&known).all(|(nth, &known)| !follows(&mut net, nth, known)));
    assert!((50..).zip(&since).all(|(nth, &known)| follows(&mut net, nth, known)));
    let rules = vec![from_inside(to_link(NatPorts::Same))];
    net.nat.set(NatConfig { rules, limits: NatLimits::default() });
    let counts = net.nat.counts();
    assert_eq!((counts.sessions, counts.mappings, counts.flushed, counts.rules[0].hits), (0, 0, 100, 0));
    (0..50).for_each(|nth| _ = begin(&mut net, nth));
    assert!((50..).zip(&since).all(|(nth, &known)| !follows(&mut net, nth, known)));
}
