//! Pieces of datagrams at a filter's gates, in lanes: the first one has the ports and is asked about where their state is, the others
//! follow it, and what is for the netstack itself is put together in one lane, in whatever order it comes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use firelane_filter::RuleList;
use firelane_lane::*;
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterProtocol, FilterRule, KeepState, LinkId, Mtu,
    NetstackId,
};
use firelane_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr};
use firelane_world::router::*;
use firelane_world::*;

use crate::translated_pieces::cut_at;

/// Where the pieces of a packet begin, behind all headers of the first.
const CUTS: [usize; 2] = [24, 48];
const BLOCK: FilterAction = FilterAction::Block(BlockAnswer::Silent);

fn set(world: &mut World, netstack: NetstackId, rules: &[FilterRule<LinkId>]) {
    let config = Arc::new(RuleList::new(rules.to_vec()));
    world.all(|| Control::SetFilter(netstack, Arc::clone(&config)));
    world.run();
}

/// Nothing comes in by `outside`; what goes the other way, by `inside` in this direction, may be answered.
fn answers_alone(inside: u32, direction: Direction, outside: u32) -> Vec<FilterRule<LinkId>> {
    let kept = |protocol: IpProtocol| {
        let mut rule = FilterRule::new(direction, FilterAction::Pass);
        rule.matching.protocol = FilterProtocol::Number(protocol.0);
        rule.keep_state = Some(KeepState::default());
        FilterRule { link: Some(LinkId(inside)), keep_frags: true, ..rule }
    };
    let block = FilterRule { link: Some(LinkId(outside)), ..FilterRule::new(Direction::In, BLOCK) };
    vec![block, kept(IpProtocol::UDP), kept(IpProtocol::TCP)]
}

/// A packet of one station to another address, whose payload begins with these words.
fn packet(side: usize, dst: Ipv4Addr, protocol: IpProtocol, words: &[u16], bytes: usize) -> Vec<u8> {
    let mut payload: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    payload.resize(payload.len() + bytes, 7);
    let mut frame = vec![0; 34];
    let to_router = mac(10 * side as u8 + 1);
    EthernetRepr { dst: to_router, src: mac(side as u8 + 7), ethertype: EtherType::IPV4 }.emit(&mut frame);
    Ipv4Repr::new(station(side).0, dst, protocol, payload.len() as u16).emit(&mut frame[14..]);
    [frame, payload].concat()
}

fn datagram(side: usize, dst: Ipv4Addr, (from, to): (u16, u16)) -> Vec<u8> {
    packet(side, dst, IpProtocol::UDP, &[from, to, 88, 0], 80)
}

/// A segment between port 53 of the second station and a port of the first; flags stand behind the header's length.
fn segment(side: usize, port: u16, [seq, ack]: [u16; 2], flags: u16, bytes: usize) -> Vec<u8> {
    let (from, to) = if side == 0 { (port, 53) } else { (53, port) };
    let words = [from, to, 0, seq, 0, ack, 0x5000 | flags, 16_000, 0, 0];
    packet(side, station(1 - side).0, IpProtocol::TCP, &words, bytes)
}

/// The router learns in each lane where the stations are.
fn ready(lanes: u16) -> Net {
    let mut net = Net::new(lanes);
    for (port, side) in (1..=64).flat_map(|port| [(port, 0), (port, 1)]) {
        net.send(side, &segment(side, port, [1, 0], 0x10, 0));
        if net.received(1 - side).first().is_some_and(|frame| frame[12..14] == [8, 6]) {
            net.answer(1 - side);
        }
    }
    (0..2).for_each(|side| drop(net.received(side)));
    net
}

/// How many frames the other station gets of pieces that are sent in this order.
fn passed(net: &mut Net, side: usize, pieces: &[Vec<u8>; 3], order: [usize; 3]) -> usize {
    order.iter().for_each(|&nth| net.send(side, &pieces[nth]));
    net.received(1 - side).len()
}

#[test]
fn a_forwarded_answer_passes_in_pieces_by_its_state() {
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        set(&mut net.world, ROUTER, &answers_alone(1, Direction::In, 11));
        for port in 1001..=1020 {
            let question = datagram(0, station(1).0, (port, 53));
            match port % 2 {
                0 => net.send(0, &question),
                _ => cut_at(&question, port, CUTS).iter().for_each(|piece| net.send(0, piece)),
            }
            assert_eq!(net.received(1).len(), [1, 3][usize::from(port % 2)], "{lanes} lanes, port {port}");
            let answer = cut_at(&datagram(1, station(0).0, (53, port)), port, CUTS);
            assert_eq!(passed(&mut net, 1, &answer, [0, 1, 2]), 3, "{lanes} lanes, port {port}");
            let stray = cut_at(&datagram(1, station(0).0, (54, port)), port + 500, CUTS);
            assert_eq!(passed(&mut net, 1, &stray, [0, 1, 2]), 0, "nobody has asked");
        }
        net.world.check_conservation();
    }
}

/// The same number names another datagram later, whose ports are of another lane.
#[test]
fn later_pieces_follow_the_last_first_one_of_their_number() {
    for lanes in [2, 4] {
        let mut net = ready(lanes);
        set(&mut net.world, ROUTER, &answers_alone(1, Direction::In, 11));
        for port in 1001..=1020 {
            assert!(net.forward(station(1).0, port).is_some());
            let answer = cut_at(&datagram(1, station(0).0, (53, port)), 7, CUTS);
            assert_eq!(passed(&mut net, 1, &answer, [0, 1, 2]), 3, "{lanes} lanes, port {port}");
        }
        net.world.check_conservation();
    }
}

#[test]
fn a_forwarded_segment_passes_in_pieces_by_its_state() {
    const SYN: u16 = 0x02;
    const ACK: u16 = 0x10;
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        set(&mut net.world, ROUTER, &answers_alone(1, Direction::In, 11));
        for port in 1001..=1020 {
            let whole = [(0, [1, 0], SYN), (1, [5, 2], SYN | ACK), (0, [2, 6], ACK)];
            for (side, numbers, flags) in whole {
                net.send(side, &segment(side, port, numbers, flags, 0));
                assert_eq!(net.received(1 - side).len(), 1, "{lanes} lanes, port {port}");
            }
            for (side, numbers) in [(1, [6, 2]), (0, [2, 66])] {
                let pieces = cut_at(&segment(side, port, numbers, ACK, 60), port, CUTS);
                assert_eq!(passed(&mut net, side, &pieces, [0, 1, 2]), 3, "{lanes} lanes, port {port}");
            }
        }
        net.world.check_conservation();
    }
}

#[test]
fn an_answer_for_a_socket_passes_in_pieces_by_its_state() {
    for lanes in [1, 2, 4] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let mut server = world.bind(1, 1, 0, "10.0.0.1:53");
        set(&mut world, NetstackId(2), &answers_alone(2, Direction::Out, 2));
        for port in 1001..=1020_u16 {
            let local = format!("10.0.0.2:{port}");
            let mut client = world.bind(2, port.into(), 0, &local);
            world.send_to(&mut client, port.into(), "10.0.0.1:53".parse().unwrap(), &[1; 4000]);
            world.run();
            let mut buffer = [0; 8000];
            let question = server.recv.recv(&mut buffer).unwrap();
            assert_eq!(question.map(|it| it.copied), Some(4000), "{lanes} lanes, port {port}");
            world.send_to(&mut server, 1, local.parse().unwrap(), &[2; 4000]);
            world.run();
            let answer = client.recv.recv(&mut buffer).unwrap();
            assert_eq!(answer.map(|it| it.copied), Some(4000), "{lanes} lanes, port {port}");
        }
        world.check_conservation();
    }
}

/// Pieces that come before the first one go by rules alone, and still meet it.
#[test]
fn pieces_for_a_socket_meet_in_any_order() {
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        let router = Ipv4Addr::new(10, 1, 0, 1);
        let mut kept = FilterRule::new(Direction::In, FilterAction::Pass);
        kept.keep_state = Some(KeepState::default());
        set(&mut net.world, ROUTER, &[kept]);
        (1001..=1012).for_each(|port| meet_at(&mut net, router, port));
        assert_eq!(net.drops(DropReason::ReassemblyLimit), 0);
        net.world.check_conservation();
    }
}

/// Pieces of datagrams for a socket, in any order.
fn meet_at(net: &mut Net, router: Ipv4Addr, port: u16) {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut socket = net.world.bind(ROUTER.0, port.into(), 0, &format!("{router}:{port}"));
    for (nth, order) in orders.into_iter().enumerate() {
        let pieces = cut_at(&datagram(0, router, (53, port)), port * 8 + nth as u16, CUTS);
        assert_eq!(passed(net, 0, &pieces, order), 0);
        let mut buffer = [0; 100];
        let datagram = socket.recv.recv(&mut buffer).unwrap();
        assert_eq!(datagram.map(|it| it.copied), Some(80), "port {port}, {order:?}");
    }
}

/// States stay where rules go, and not every lane has some.
#[test]
fn pieces_meet_where_rules_have_gone_and_a_state_stands() {
    for first in 1001..=1006 {
        let mut net = ready(2);
        let router = Ipv4Addr::new(10, 1, 0, 1);
        let mut kept = FilterRule::new(Direction::In, FilterAction::Pass);
        kept.keep_state = Some(KeepState::default());
        set(&mut net.world, ROUTER, &[kept]);
        meet_at(&mut net, router, first);
        set(&mut net.world, ROUTER, &[]);
        (1011..=1016).for_each(|port| meet_at(&mut net, router, port));
    }
}
