//! Pieces of datagrams, in whatever order they come: they share the fate of the first one (RFC 4787 REQ-14), and who sends
//! pieces alone takes nothing from others (REQ-14a).

mod common;

use core::time::Duration;

use common::*;
use firelane_nat::{NatConfig, NatCounts, Outcome};
use firelane_units::{
    Direction, DropReason, FilterPorts, FilterProtocol, LinkId, NatAction, NatLimits, NatRule, NatTarget,
    Port,
};
use firelane_wire::Ipv4View;
use proptest::prelude::*;

const HOST: End<'_> = ("10.0.0.5", 20_002);
const PEER: End<'_> = ("198.51.100.7", 53);
const OUT: (LinkId, LinkId) = (LAN, WAN);
const BACK: (LinkId, LinkId) = (WAN, LAN);
const WITHIN: (LinkId, LinkId) = (LAN, LAN);

fn net() -> Net {
    let web = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false);
    Net::new(vec![from_inside(to_link(RANGE)), web])
}

/// A piece that is never a first one.
fn later(src: &str, dst: &str, number: u16) -> Vec<u8> {
    cut(&udp((src, 20_002), (dst, 53), &[1; 16]), number, &[1]).pop().unwrap()
}

/// What happens before, which way a datagram goes, and from whom to whom it is when it arrives.
type Case = (&'static str, fn(&mut Net), (LinkId, LinkId), [End<'static>; 2], [End<'static>; 2]);

fn nothing(_: &mut Net) {}

fn ask(net: &mut Net) {
    net.out(&udp(HOST, PEER, b"ask")).unwrap();
}

fn ask_the_server(net: &mut Net) {
    net.back(&udp(PEER, (OUTSIDE, 80), b"ask")).unwrap();
}

fn ask_from_inside(net: &mut Net) {
    net.within(&udp(HOST, (OUTSIDE, 80), b"ask")).unwrap();
}

fn serve_alone(net: &mut Net) {
    let web = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false);
    net.nat.set(NatConfig { rules: vec![web], limits: NatLimits::default() });
}

fn ask_the_server_alone(net: &mut Net) {
    serve_alone(net);
    ask_the_server(net);
}

fn use_a_port(net: &mut Net) {
    net.router.used = vec![20_500];
}

fn map_one_for_one(net: &mut Net) {
    let target = NatTarget::Prefix("203.0.113.0/24".parse().unwrap());
    net.nat
        .set(NatConfig { rules: vec![from_inside(NatAction::Bimap(target))], limits: NatLimits::default() });
}

fn map_tcp_alone(net: &mut Net) {
    let rule = NatRule { protocol: FilterProtocol::Number(6), ..from_inside(to_link(RANGE)) };
    net.nat.set(NatConfig { rules: vec![rule], limits: NatLimits::default() });
}

const SERVER: End<'_> = ("10.0.0.9", 8080);
const CASES: [Case; 14] = [
    ("the first that leaves", nothing, OUT, [HOST, PEER], [(OUTSIDE, HOST.1), PEER]),
    ("one more that leaves", ask, OUT, [HOST, PEER], [(OUTSIDE, HOST.1), PEER]),
    ("an answer", ask, BACK, [PEER, (OUTSIDE, HOST.1)], [PEER, HOST]),
    ("for a server", nothing, BACK, [PEER, (OUTSIDE, 80)], [PEER, SERVER]),
    ("a server's answer", ask_the_server, OUT, [SERVER, PEER], [(OUTSIDE, 80), PEER]),
    ("to a name outside", nothing, WITHIN, [HOST, (OUTSIDE, 80)], [(OUTSIDE, HOST.1), SERVER]),
    ("back from there", ask_from_inside, WITHIN, [SERVER, (OUTSIDE, HOST.1)], [(OUTSIDE, 80), HOST]),
    (
        "an answer where nothing else is translated",
        ask_the_server_alone,
        OUT,
        [SERVER, PEER],
        [(OUTSIDE, 80), PEER],
    ),
    ("to a name outside there", serve_alone, WITHIN, [HOST, (OUTSIDE, 80)], [HOST, SERVER]),
    ("one for one, out", map_one_for_one, OUT, [HOST, PEER], [("203.0.113.5", HOST.1), PEER]),
    ("one for one, in", map_one_for_one, BACK, [PEER, ("203.0.113.9", 7)], [PEER, ("10.0.0.9", 7)]),
    ("for the netstack", use_a_port, BACK, [PEER, (OUTSIDE, 20_500)], [PEER, (OUTSIDE, 20_500)]),
    ("of the netstack", nothing, OUT, [("10.0.0.254", 7), PEER], [("10.0.0.254", 7), PEER]),
    ("what no rule is for", map_tcp_alone, OUT, [HOST, PEER], [HOST, PEER]),
];

/// All orders of so many.
fn orders(count: usize) -> Vec<Vec<usize>> {
    match count {
        0 => vec![vec![]],
        _ => orders(count - 1)
            .into_iter()
            .flat_map(|order| {
                (0..count).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, count - 1);
                    order
                })
            })
            .collect(),
    }
}

#[test]
fn pieces_arrive_in_any_order() {
    for (name, prepare, links, [from, to], [seen_from, seen_to]) in CASES {
        for order in orders(4) {
            let mut net = net();
            prepare(&mut net);
            let whole = udp(from, to, &[7; 100]);
            let pieces = cut(&whole, 99, &[1, 5, 9]);
            let mut left = Vec::new();
            for (nth, &at) in order.iter().enumerate() {
                let has_first = order[..=nth].contains(&0);
                left.extend(net.travel(links, &pieces[at]));
                assert!(!has_first || left.len() == nth + 1, "{name} {order:?}: what has its first goes on");
            }
            assert_eq!((left.len(), &net.ended[..], net.nat.waiting()), (4, &[][..], 0), "{name} {order:?}");
            let joined = join(&left);
            assert!(is_whole(&joined), "{name} {order:?}");
            assert_eq!(
                ends(&joined),
                ((ip(seen_from.0), seen_from.1), (ip(seen_to.0), seen_to.1)),
                "{name} {order:?}"
            );
            assert_eq!(joined[28..], whole[28..], "{name} {order:?}");
            let counts = net.nat.counts();
            assert_eq!((counts.waiting, counts.ended, counts.given_up), (0, 0, 0), "{name} {order:?}");
        }
    }
}

#[test]
fn who_waits_follows_the_first_in_the_order_in_which_it_came() {
    let mut net = net();
    let pieces = cut(&udp(HOST, PEER, &[7; 100]), 99, &[1, 5, 9]);
    for nth in [2, 3, 1] {
        assert!(net.travel(OUT, &pieces[nth]).is_empty());
    }
    assert_eq!((net.nat.waiting(), net.nat.counts().waiting), (3, 3));
    assert_eq!(net.nat.counts().early, 3);
    let left = net.travel(OUT, &pieces[0]);
    let offsets: Vec<_> =
        left.iter().map(|piece| Ipv4View::parse(piece).unwrap().fragment_offset()).collect();
    assert_eq!(offsets, [0, 40, 72, 8]);
    assert_eq!((net.nat.counts().early, net.nat.counts().waiting), (3, 0), "nothing waits twice");
}

/// What no rule is for is not delayed, though it has overtaken its first piece.
#[test]
fn what_concerns_nobody_goes_on_at_once() {
    let tcp_alone = NatRule { protocol: FilterProtocol::Number(6), ..from_inside(to_link(RANGE)) };
    for (rules, links, src, dst) in [
        (vec![from_inside(to_link(RANGE))], OUT, "172.16.0.1", PEER.0),
        (vec![from_inside(to_link(RANGE))], OUT, "10.0.0.254", PEER.0),
        (vec![from_inside(to_link(RANGE))], WITHIN, HOST.0, "10.0.0.6"),
        (vec![from_inside(to_link(RANGE))], BACK, PEER.0, "10.0.0.6"),
        (vec![tcp_alone], BACK, PEER.0, OUTSIDE),
        (vec![redirect(FilterPorts::Any, "10.0.0.9", 80, false)], BACK, PEER.0, "192.0.2.2"),
        (vec![redirect(FilterPorts::Any, "10.0.0.9", 80, false)], OUT, "10.0.0.9", PEER.0),
        (vec![redirect(FilterPorts::Any, "10.0.0.9", 80, false)], WITHIN, HOST.0, "10.0.0.254"),
    ] {
        let mut net = Net::new(rules);
        let piece = later(src, dst, 1);
        assert_eq!(net.travel(links, &piece), [piece], "{src} to {dst}");
    }
}

#[test]
fn without_its_first_piece_it_ends_in_its_time() {
    for (links, src, dst) in [(OUT, HOST.0, PEER.0), (BACK, PEER.0, OUTSIDE)] {
        let mut net = net();
        let began = net.now;
        assert!(net.travel(links, &later(src, dst, 1)).is_empty());
        net.now += Duration::from_millis(2000);
        assert!(net.travel(links, &later(src, dst, 1)).is_empty() && net.ended.is_empty());
        assert!(net.travel(links, &later(src, dst, 2)).is_empty());
        let until = began + Duration::from_secs(3);
        assert_eq!(net.nat.poll_at(), Some(until), "nothing has to come for it to end");
        net.now = began + Duration::from_millis(2999);
        net.expire();
        assert_eq!((net.nat.waiting(), net.ended.len()), (3, 0));
        net.now = until;
        net.expire();
        assert_eq!((net.nat.waiting(), &net.ended[..]), (1, &[DropReason::NatFragment; 2][..]), "both of it");
        net.wait(2);
        net.expire();
        let counts = net.nat.counts();
        assert_eq!((net.ended.len(), counts.ended, counts.waiting), (3, 3, 0));
        assert_eq!((counts.early, counts.given_up), (3, 3));
        assert_eq!((net.nat.poll_at(), net.nat.allocated_bytes()), (None, 0));
    }
}

/// What is refused is refused whole, with one reason.
#[test]
fn pieces_end_with_their_first() {
    let mut net = net();
    ask(&mut net);
    let pieces = cut(&udp(("203.0.113.9", 53), (OUTSIDE, HOST.1), &[7; 100]), 99, &[1, 5, 9]);
    for nth in [3, 1, 0, 2] {
        assert!(net.travel(BACK, &pieces[nth]).is_empty());
    }
    assert_eq!(net.ended, [DropReason::NatFiltered; 4]);
    assert_eq!((net.nat.waiting(), net.nat.counts().ended), (0, 4));
    assert_eq!(
        (net.nat.counts().early, net.nat.counts().given_up),
        (2, 0),
        "it was the first one that was refused"
    );

    let limits = NatLimits { per_source: 0, ..NatLimits::default() };
    let mut full = Net::with(vec![from_inside(to_link(RANGE))], limits);
    let pieces = cut(&udp(HOST, PEER, &[7; 100]), 99, &[1, 5]);
    assert!([2, 0, 1].iter().all(|&nth| full.travel(OUT, &pieces[nth]).is_empty()));
    assert_eq!(full.ended, [DropReason::NatSourceFull; 3]);
}

/// A datagram's number comes again: its first piece decides anew, and what it was before counts no more when its session has ended.
#[test]
fn a_number_that_comes_again_is_another_datagram() {
    let mut net = net();
    let pieces = cut(&udp(HOST, PEER, &[7; 100]), 99, &[1]);
    for piece in &pieces {
        assert_eq!(net.travel(OUT, piece).len(), 1);
    }
    net.nat.flush();
    assert!(net.travel(OUT, &pieces[1]).is_empty() && net.ended.is_empty(), "it waits");
    assert_eq!(net.travel(OUT, &pieces[0]).len(), 2);
}

#[test]
fn rules_that_go_let_pieces_go_on_and_a_translator_that_goes_ends_them() {
    let mut net = net();
    let pieces = cut(&udp(HOST, PEER, &[7; 100]), 99, &[1]);
    assert!(net.travel(OUT, &pieces[1]).is_empty());
    let web = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false);
    net.nat.set(NatConfig { rules: vec![web], limits: NatLimits::default() });
    assert_eq!(net.travel(OUT, &pieces[0]), pieces, "nobody translates them");
    assert!(net.travel(BACK, &later(PEER.0, OUTSIDE, 1)).is_empty());
    net.nat.give_up_pieces();
    net.expire();
    assert_eq!((net.nat.waiting(), &net.ended[..]), (0, &[DropReason::NatFragment][..]));
}

#[test]
fn one_datagram_has_128_pieces_that_wait() {
    let mut net = net();
    let whole = udp(HOST, PEER, &[7; 8 * 150]);
    let pieces = cut(&whole, 99, &(1..=134).collect::<Vec<_>>());
    pieces[1..].iter().for_each(|piece| assert!(net.travel(OUT, piece).is_empty()));
    assert_eq!((net.nat.waiting(), net.ended.len()), (128, 6), "the newest end");
    assert_eq!(net.travel(OUT, &pieces[0]).len(), 129);
}

#[test]
fn one_source_has_a_quarter_and_loses_its_oldest() {
    let mut net = net();
    (0..100).for_each(|number| assert!(net.travel(OUT, &later(HOST.0, PEER.0, number)).is_empty()));
    assert_eq!((net.nat.waiting(), &net.ended[..]), (64, &[DropReason::NatFragment; 36][..]));
    assert_eq!((net.nat.counts().early, net.nat.counts().given_up), (100, 36));
    assert!(net.travel(OUT, &cut(&udp(HOST, PEER, &[1; 16]), 35, &[1])[0]).len() == 1, "it was given up");
    assert!(net.travel(OUT, &cut(&udp(HOST, PEER, &[1; 16]), 36, &[1])[0]).len() == 2, "it was not");
    // And of the memory: 256 frames of 2 KiB.
    let pieces = |number| cut(&udp(HOST, PEER, &[7; 8 * 61]), number, &(1..=60).collect::<Vec<_>>());
    let mut net = self::net();
    for number in 0..9 {
        pieces(number)[1..].iter().for_each(|piece| assert!(net.travel(OUT, piece).is_empty()));
        assert!(net.nat.waiting() <= 256);
    }
    assert_eq!((net.nat.waiting(), net.ended.len()), (240, 300), "whole datagrams go");
    // Large frames count as much as they hold.
    let mut net = self::net();
    for number in 0..30 {
        let large = cut(&udp(HOST, PEER, &[1; 4000]), number, &[1]).pop().unwrap();
        assert!(net.travel(OUT, &large).is_empty());
    }
    assert_eq!(net.nat.waiting(), 7);
}

#[test]
fn all_together_have_their_limit_and_the_oldest_goes_first() {
    let mut net = net();
    let source = |nth: u16| format!("198.51.{}.{}", 100 + nth / 200, 1 + nth % 200);
    (0..400).for_each(|nth| assert!(net.travel(BACK, &later(&source(nth), OUTSIDE, 1)).is_empty()));
    assert_eq!((net.nat.waiting(), net.ended.len()), (256, 144));
    let mut first =
        |nth| net.travel(BACK, &cut(&udp((&source(nth), 5), (OUTSIDE, 80), &[1; 16]), 1, &[1])[0]).len();
    assert_eq!((first(143), first(144)), (1, 2));
    // Of large frames the memory is what is short.
    let mut net = self::net();
    for nth in 0..40 {
        let large = cut(&udp((&source(nth), 5), (OUTSIDE, 80), &[1; 4000]), 1, &[1]).pop().unwrap();
        assert!(net.travel(BACK, &large).is_empty());
    }
    assert_eq!(net.nat.waiting(), 31);
}

/// RFC 4787 REQ-14a.
#[test]
fn a_flood_takes_nothing_from_others() {
    let mut net = net();
    let victims = cut(&udp(HOST, PEER, &[7; 100]), 99, &[1, 5]);
    let answer = cut(&udp(PEER, (OUTSIDE, HOST.1), &[7; 100]), 99, &[1, 5]);
    ask(&mut net);
    assert!(net.travel(OUT, &victims[2]).is_empty() && net.travel(BACK, &answer[1]).is_empty());
    // One inside, with later pieces and with first ones.
    let floods = |net: &mut Net, number: u16| {
        assert!(net.travel(OUT, &later("10.0.0.66", PEER.0, number)).len() <= 1);
        let first = &cut(&udp(("10.0.0.66", 9), PEER, &[1; 16]), number.wrapping_add(7000), &[1])[0];
        assert!(!net.travel(OUT, first).is_empty());
        // And one outside.
        net.travel(BACK, &later("203.0.113.66", OUTSIDE, number));
    };
    let mut bytes = 0;
    for number in 0..5000 {
        floods(&mut net, number);
        if number == 1000 {
            bytes = net.nat.allocated_bytes();
        }
    }
    assert!(net.nat.waiting() <= 2 * 65 && net.nat.allocated_bytes() <= 2 * bytes);
    assert_eq!(net.travel(OUT, &victims[0]).len(), 2, "what waited has waited");
    assert_eq!(net.travel(BACK, &answer[0]).len(), 2);
    // Between the first and the rest.
    (5000..9000).for_each(|number| floods(&mut net, number));
    assert_eq!((net.travel(OUT, &victims[1]).len(), net.travel(BACK, &answer[2]).len()), (1, 1));
    // However many seem to send from outside, who is inside waits.
    assert!(net.travel(OUT, &cut(&udp(HOST, PEER, &[7; 100]), 100, &[1])[1]).is_empty());
    for nth in 0..3000_u16 {
        let source = format!("203.0.{}.{}", nth / 250, 1 + nth % 250);
        net.travel(BACK, &later(&source, OUTSIDE, 1));
    }
    assert_eq!(net.travel(OUT, &cut(&udp(HOST, PEER, &[7; 100]), 100, &[1])[0]).len(), 2);
    assert!(net.out(&udp(HOST, PEER, b"whole")).is_ok());
}

/// A first piece that is too short for ports decides nothing (RFC 1858): those behind it are not let through.
#[test]
fn a_first_piece_without_ports_decides_nothing() {
    let mut net = net();
    let pieces = cut(&udp(HOST, PEER, &[7; 100]), 99, &[1]);
    let mut tiny = pieces[0][..22].to_vec();
    tiny[2..4].copy_from_slice(&22_u16.to_be_bytes());
    tiny[10..12].fill(0);
    let sum = firelane_wire::Sum::of(&tiny[..20]).checksum();
    tiny[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(net.travel(OUT, &pieces[1]).is_empty());
    assert_eq!(net.pass(Direction::Out, WAN, &mut tiny), Outcome::Ended(DropReason::NatNameless));
    assert_eq!(net.nat.waiting(), 1);
}

/// A datagram of the law: its case, its number, where it is cut.
fn datagrams() -> impl Strategy<Value = Vec<(usize, u16, Vec<usize>)>> {
    let cuts = prop::collection::btree_set(1..12_usize, 1..6).prop_map(|cuts| cuts.into_iter().collect());
    prop::collection::vec((0..6_usize, any::<u16>(), cuts), 1..6)
}

proptest! {
    /// Whatever the order, the same packets leave, and nothing stays.
    #[test]
    fn any_order_is_as_good_as_the_right_one(
        sent in datagrams(), order in Just((0..36).collect::<Vec<usize>>()).prop_shuffle(), millis in 0..80_u64,
    ) {
        let ways: [(_, [End<'_>; 2]); 6] = [
            (OUT, [HOST, PEER]),
            (OUT, [("10.0.0.6", 20_004), PEER]),
            (BACK, [PEER, (OUTSIDE, HOST.1)]),
            (BACK, [PEER, (OUTSIDE, 80)]),
            (OUT, [SERVER, PEER]),
            (OUT, [("172.16.0.1", 20_006), PEER]),
        ];
        // Pieces of two datagrams with one name would be one's.
        let mut names = std::collections::HashSet::new();
        let pieces: Vec<_> = sent
            .into_iter()
            .filter(|(way, number, _)| names.insert((ways[*way].1.map(|end| end.0), *number)))
            .flat_map(|(way, number, cuts)| {
                let (links, [from, to]) = ways[way];
                let whole = udp(from, to, &[number as u8; 100]);
                cut(&whole, number, &cuts).into_iter().map(move |piece| (links, piece))
            })
            .collect();
        let mut nets = [net(), net()];
        for net in &mut nets {
            ask(net);
            ask_the_server(net);
        }
        let [right, other] = &mut nets;
        let mut left: Vec<_> = pieces.iter().flat_map(|(links, piece)| right.travel(*links, piece)).collect();
        let mut others = Vec::new();
        for nth in order {
            if let Some((links, piece)) = pieces.get(nth) {
                others.extend(other.travel(*links, piece));
                // All of them within the time that the first is waited for.
                other.now += Duration::from_millis(millis);
                other.expire();
            }
        }
        prop_assert_eq!(left.len(), pieces.len());
        left.sort();
        others.sort();
        prop_assert_eq!(left, others);
        prop_assert_eq!((other.nat.waiting(), &other.ended), (0, &vec![]));
        let [right, other] = nets.each_ref().map(|net| net.nat.counts());
        prop_assert_eq!((right.early, other.given_up), (0, 0));
        // Who has asked again behind an answer is a matter of the order.
        let half_open = right.half_open;
        prop_assert_eq!(right, NatCounts { early: 0, half_open, ..other });
    }
}
