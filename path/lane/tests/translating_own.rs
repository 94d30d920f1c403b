//! A netstack that translates and has sockets of its own, in however many lanes: each gets what is for it, and what is for none of them is for
//! those inside.

use std::net::Ipv4Addr;
use std::sync::Arc;

use firelane_filter::RuleList;
use firelane_lane::*;
use firelane_nat::{NatConfig, NatList};
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterPorts, FilterProtocol, FilterRule, NatAction,
    NatEnd, NatFiltering, NatLimits, NatPorts, NatRedirect, NatRule, NatTarget, Port,
};
use firelane_wire::{Ipv4View, TcpFlags, TcpView};
use firelane_world::router::*;

use crate::translating::*;

const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 77);

fn translate_with(net: &mut Net, rules: &[NatRule<firelane_units::LinkId>], filtering: NatFiltering) {
    let limits = NatLimits { filtering, ..NatLimits::default() };
    let config = Arc::new(NatList::new(NatConfig { rules: rules.to_vec(), limits }));
    net.change(|| Control::SetNat(ROUTER, Arc::clone(&config)));
}

/// RFC 4787 REQ-8: who is let in does not depend on the lanes.
#[test]
fn who_may_answer_is_let_in_whatever_the_lanes() {
    let (inside, peer) = (station(0).0, station(1).0);
    let NatAction::Map(_, ports) = map().action else { unreachable!() };
    // An address of nobody's in place of the router's own.
    let target = NatTarget::Prefix("10.2.0.99/32".parse().unwrap());
    let other = NatRule { action: NatAction::Map(target, ports), ..map() };
    for (lanes, rule) in [(1, map()), (2, map()), (4, map()), (2, other)] {
        for (filtering, lets_in) in [
            (NatFiltering::Anybody, [true, true]),
            (NatFiltering::Address, [true, false]),
            (NatFiltering::Port, [false, false]),
        ] {
            let mut net = ready(lanes);
            translate_with(&mut net, &[rule], filtering);
            for port in 1..9 {
                let left = pass(&mut net, 0, (inside, port), (peer, 53)).unwrap();
                let outer = ends(&left).0;
                for (from, is_let_in) in [(peer, 99), (STRANGER, 53)].into_iter().zip(lets_in) {
                    for nth in 0..3 {
                        let got = pass(&mut net, 1, from, outer).map(|frame| ends(&frame));
                        let expected = is_let_in.then_some((from, (inside, port)));
                        assert_eq!(got, expected, "{lanes} lanes, {filtering:?}, {port}, time {nth}");
                    }
                }
            }
            let refused = lets_in.iter().filter(|is_let_in| !**is_let_in).count() as u64;
            assert_eq!(net.drops(DropReason::NatFiltered), 24 * refused);
            net.world.check_conservation();
        }
    }
}

/// RFC 5382 REQ-4: who asks for a connection at a port of the translator's hears nothing, whatever lane his connections would be in.
#[test]
fn a_stranger_who_asks_for_a_connection_hears_nothing() {
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        translate(&mut net, &[map()]);
        for port in 20_000..20_010 {
            let ends = [(STRANGER, 5), (OUTSIDE, port)];
            let answer = segment(&mut net, (1, 1), ends, (TcpFlags::SYN, 9, 0), &[]);
            assert_eq!(answer, None, "{lanes} lanes, port {port}");
        }
        assert_eq!(net.drops(DropReason::NatUnsolicited), 10);
        net.world.check_conservation();
    }
}

/// Nobody inside has the names of the netstack's own conversations, and so gets what is for these.
#[test]
fn a_socket_of_the_netstacks_own_keeps_its_names() {
    let (inside, peer) = (station(0).0, station(1).0);
    let NatAction::Map(target, _) = map().action else { unreachable!() };
    let rules = [
        // From a range nobody is given a port that the netstack chooses from.
        (NatPorts::Range(Port(20_000), Port(60_000)), 40_000, true),
        (NatPorts::Range(Port(40_000), Port(60_000)), 40_000, false),
    ];
    for (ports, port, is_before) in rules {
        for lanes in [1, 2, 4] {
            if lanes > 1 && !is_before {
                // It is the home lane alone that knows.
                continue;
            }
            let mut net = ready(lanes);
            translate(&mut net, &[NatRule { action: NatAction::Map(target, ports), ..map() }]);
            if is_before {
                let left = pass(&mut net, 0, (inside, port), (peer, 53)).unwrap();
                assert!(ends(&left).0.1 < 32_768, "{lanes} lanes");
            }
            let mut end = net.world.bind(ROUTER.0, 100, 0, &format!("{OUTSIDE}:{port}"));
            if !is_before {
                net.world.connect_datagrams(ROUTER.0, 100, Some(&format!("{peer}:53"))).unwrap();
                let left = pass(&mut net, 0, (inside, port), (peer, 53)).unwrap();
                assert_ne!(ends(&left).0.1, port, "it stays that of the socket");
            }
            assert_eq!(pass(&mut net, 1, (peer, 53), (OUTSIDE, port)), None);
            let mut text = [0; 9];
            assert!(end.recv.recv(&mut text).unwrap().is_some(), "{lanes} lanes, {port}");
            net.world.check_conservation();
        }
    }
}

/// The whole address is somebody's inside, and the netstack asks others all the same: its connections, datagrams and echoes come back, and what
/// begins from outside goes inside.
#[test]
fn an_exposed_host_leaves_the_netstack_what_it_has_asked_for() {
    let (inside, peer) = (station(0).0, station(1).0);
    let NatAction::Redirect(to) = redirect(1, inside, 1).action else { unreachable!() };
    let all = NatAction::Redirect(NatRedirect { port: None, ..to });
    let end =
        |address: Ipv4Addr| NatEnd { prefix: format!("{address}/32").parse().ok(), ..NatEnd::default() };
    let exposed = NatRule { to: end(OUTSIDE), ..NatRule::new(WAN, all) };
    let own_of_one = NatRule { from: end(inside), ..NatRule::new(WAN, NatAction::Bimap(NatTarget::OfLink)) };
    for (lanes, rule) in [1, 2, 4].into_iter().flat_map(|lanes| [(lanes, exposed), (lanes, own_of_one)]) {
        let mut net = ready(lanes);
        translate(&mut net, &[rule, map()]);
        for lane in 0..lanes {
            net.received(1);
            let stream = net.world.connect(ROUTER.0, lane, &format!("{peer}:80"));
            net.world.run();
            let mut frames = net.received(1);
            if frames.first().is_some_and(|frame| frame[12..14] == [8, 6]) {
                // A lane that does not know the station yet asks for itself.
                net.answer(1);
                frames = net.received(1);
            }
            let syn = frames.iter().find(|frame| frame[12..14] == [8, 0] && frame[23] == 6).expect("a SYN");
            let view = Ipv4View::parse(&syn[14..]).unwrap();
            let asked = TcpView::parse(view.payload()).unwrap();
            let ends = [(peer, 80), (OUTSIDE, asked.src_port().0)];
            let answer = (TcpFlags::SYN.with(TcpFlags::ACK), 9, asked.seq().0.wrapping_add(1));
            let (third, _) = segment(&mut net, (1, 1), ends, answer, &[]).expect("its ACK");
            assert!(third[47] & 0x04 == 0, "{lanes} lanes, lane {lane}: no reset");
            drop(stream);
        }
        for nth in 0..8_u16 {
            let local = format!("{OUTSIDE}:{}", 40_000 + nth);
            let mut end = net.world.bind(ROUTER.0, 100 + u32::from(nth), 0, &local);
            if lanes == 1 && nth % 2 == 0 {
                net.world
                    .connect_datagrams(ROUTER.0, 100 + u32::from(nth), Some(&format!("{peer}:53")))
                    .unwrap();
            }
            assert_eq!(pass(&mut net, 1, (peer, 53), (OUTSIDE, 40_000 + nth)), None);
            let mut text = [0; 9];
            assert!(end.recv.recv(&mut text).unwrap().is_some(), "{lanes} lanes, {local}");
        }
        // A server of the netstack's own at that address is in the shade of the rule.
        let _server = net.world.bind(ROUTER.0, 200, 0, &format!("{OUTSIDE}:53"));
        for port in [53, 54] {
            let got = pass(&mut net, 1, (STRANGER, 9), (OUTSIDE, port))
                .map(|frame| super::translating::ends(&frame));
            assert_eq!(got, Some(((STRANGER, 9), (inside, port))), "{lanes} lanes");
        }
        net.world.check_conservation();
    }
}

/// What the filter answers is in the names that whoever hears it has sent to, though rules see those of inside.
#[test]
fn what_is_blocked_is_answered_in_the_names_outside() {
    let (inside, client, server) = (station(0).0, (station(1).0, 5), (OUTSIDE, 80));
    let answers = [BlockAnswer::Reset, BlockAnswer::Icmp { code: 13, as_dest: false }];
    for (lanes, answer) in [1, 2].into_iter().flat_map(|lanes| answers.map(|answer| (lanes, answer))) {
        let mut net = ready(lanes);
        translate(
            &mut net,
            &[NatRule { protocol: FilterProtocol::Number(6), ..redirect(80, inside, 8080) }, map()],
        );
        let mut block = FilterRule::new(Direction::In, FilterAction::Block(answer));
        block.matching.protocol = FilterProtocol::Number(6);
        block.matching.to.ports = FilterPorts::Equal(Port(8080));
        let filter = Arc::new(RuleList::new(vec![block]));
        net.change(|| Control::SetFilter(ROUTER, Arc::clone(&filter)));
        net.received(1);
        for nth in 0..3 {
            let reset = segment(&mut net, (1, 1), [client, server], (TcpFlags::SYN, 9, 0), &[]);
            match answer {
                BlockAnswer::Reset => {
                    let (frame, _) = reset.expect("a reset");
                    let view = Ipv4View::parse(&frame[14..]).unwrap();
                    let segment = TcpView::parse(view.payload()).unwrap();
                    assert!(view.is_checksum_valid());
                    assert!(segment.is_checksum_valid(view.src().into(), view.dst().into()));
                    assert_eq!((view.src(), segment.src_port().0), server, "{lanes} lanes, {nth}");
                }
                _ => assert_eq!(reset, None),
            }
        }
        if answer != BlockAnswer::Reset {
            net.send(1, &segment_of(1, [client, server], (TcpFlags::SYN, 9, 0), &[]));
            let frames = net.received(1);
            let frame = frames.iter().find(|it| it[12..14] == [8, 0] && it[23] == 1).expect("an error");
            let quoted = Ipv4View::parse_quoted(&frame[42..]).unwrap();
            assert_eq!((quoted.src(), quoted.dst()), (client.0, server.0), "{lanes} lanes");
            assert_eq!(quoted.payload()[..4], [0, 5, 0, 80]);
        }
        net.world.check_conservation();
    }
}

/// What another lane has a socket for reaches it, though somebody inside has the same names outside.
#[test]
fn a_socket_in_another_lane_comes_before_a_mapping() {
    let (inside, peer) = (station(0).0, station(1).0);
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        translate_with(&mut net, &[map()], NatFiltering::Anybody);
        for socket in 0..8_u32 {
            let left = pass(&mut net, 0, (inside, 7 + socket as u16), (peer, 53)).unwrap();
            let (address, port) = ends(&left).0;
            let local = format!("{address}:{port}");
            let mut end = net.world.bind(ROUTER.0, 100 + socket, 0, &local);
            assert_eq!(pass(&mut net, 1, (STRANGER, 9), (OUTSIDE, port)), None);
            let mut text = [0; 9];
            assert!(end.recv.recv(&mut text).unwrap().is_some(), "{lanes} lanes, {local}");
        }
        net.world.check_conservation();
    }
}
