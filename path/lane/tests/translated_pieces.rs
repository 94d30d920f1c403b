//! Pieces of translated datagrams that overtake their first one, in lanes: they wait for it and follow it both ways, end in their time
//! without traffic, and books balance while they wait and after (RFC 4787 REQ-14).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use firelane_classify::Steering;
use firelane_filter::RuleList;
use firelane_lane::*;
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterPorts, FilterProtocol, FilterRule, NatRule, Port,
};
use firelane_wire::{Icmpv4Repr, IpProtocol, Ipv4Repr, Ipv4View};
use firelane_world::router::*;

use crate::translating::*;

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn cut(frame: &[u8], number: u16) -> [Vec<u8>; 3] {
    cut_at(frame, number, [16, 40])
}

/// A frame's packet in three pieces, the later of which begin so many bytes behind its header.
pub(crate) fn cut_at(frame: &[u8], number: u16, [second, third]: [usize; 2]) -> [Vec<u8>; 3] {
    let payload = &frame[34..];
    [(0, second), (second, third), (third, payload.len())].map(|(begin, end)| {
        let mut bytes = [&frame[..34], &payload[begin..end]].concat();
        let (length, more) = ((bytes.len() - 14) as u16, u16::from(end < payload.len()) << 13);
        bytes[16..18].copy_from_slice(&length.to_be_bytes());
        bytes[18..20].copy_from_slice(&number.to_be_bytes());
        bytes[20..22].copy_from_slice(&((begin / 8) as u16 | more).to_be_bytes());
        bytes[24..26].fill(0);
        let sum = firelane_wire::Sum::of(&bytes[14..34]).checksum();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    })
}

/// The frame that pieces were cut from.
fn join(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces = pieces.to_vec();
    pieces.sort_by_key(|frame| Ipv4View::parse(&frame[14..]).unwrap().fragment_offset());
    let view = Ipv4View::parse(&pieces[0][14..]).unwrap();
    let payload: Vec<_> = pieces.iter().flat_map(|frame| frame[34..].to_vec()).collect();
    let mut frame = pieces[0][..34].to_vec();
    Ipv4Repr::new(view.src(), view.dst(), view.protocol(), payload.len() as u16).emit(&mut frame[14..]);
    [frame, payload].concat()
}

/// Sends pieces from a side in an order; what the other gets of each.
fn send(net: &mut Net, side: usize, pieces: &[Vec<u8>; 3], order: [usize; 3]) -> Vec<Vec<Vec<u8>>> {
    net.received(1 - side);
    let mut got = Vec::new();
    for nth in order {
        net.send(side, &pieces[nth]);
        net.world.check_conservation();
        let frames = net.received(1 - side);
        got.push(frames.into_iter().filter(|frame| frame[12..14] == [8, 0]).collect());
    }
    got
}

/// How many frames are in the lanes.
fn held(net: &Net) -> u64 {
    net.world.lanes.iter().map(|lane| lane.snapshot().held).sum()
}

#[test]
fn pieces_pass_both_ways_in_any_order() {
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        translate(&mut net, &[redirect(80, station(0).0, 8080), map()]);
        let (inside, peer) = ((station(0).0, 20_100), (station(1).0, 53));
        for (nth, order) in ORDERS.into_iter().enumerate() {
            for (way, side, from, to, arrives) in [
                (0, 0, inside, peer, ((OUTSIDE, 20_100), peer)),
                (1, 1, peer, (OUTSIDE, 20_100), (peer, inside)),
                (2, 1, peer, (OUTSIDE, 80), (peer, (inside.0, 8080))),
                (3, 0, (inside.0, 8080), peer, ((OUTSIDE, 80), peer)),
            ] {
                let whole = datagram_of(side, from, to, &[7; 60]);
                let got = send(&mut net, side, &cut(&whole, nth as u16 * 4 + way), order);
                let first = order.iter().position(|&piece| piece == 0).unwrap();
                let counts: Vec<_> = got.iter().map(Vec::len).collect();
                let expected = [[3, 0, 0], [0, 2, 1], [0, 0, 3]][first];
                let expected = if first == 0 { [1, 1, 1] } else { expected };
                assert_eq!(counts, expected, "{lanes} lanes, {order:?}, way {way}");
                let left = got.concat();
                let offsets = left.iter().map(|it| Ipv4View::parse(&it[14..]).unwrap().fragment_offset());
                let before = order[..first].iter().map(|&piece| [0, 16, 40][piece]);
                let in_order: Vec<_> = [0].into_iter().chain(before).collect();
                assert_eq!(offsets.take(1 + first).collect::<Vec<_>>(), in_order, "{order:?}");
                let joined = join(&left);
                assert_eq!(ends(&joined), arrives, "{lanes} lanes, {order:?}, way {way}");
                assert_eq!(joined[42..], [7; 60]);
            }
        }
        assert_eq!((net.drops(DropReason::NatFragment), counts(&net).waiting, held(&net)), (0, 0, 0));
        assert_eq!(counts(&net).translated, [36, 36]);
    }
}

/// As if they came in order: the filter sees them when they are released, behind the first.
#[test]
fn the_filter_sees_them_behind_the_first() {
    for (port, arrived, blocked) in [(8080, 3, 0), (8081, 0, 3)] {
        let mut net = ready(1);
        let mut serves = FilterRule::new(Direction::In, FilterAction::Pass);
        serves.keep_frags = true;
        serves.matching.protocol = FilterProtocol::Number(17);
        serves.matching.to.ports = FilterPorts::Equal(firelane_units::Port(port));
        let blocks = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
        let filter = Arc::new(RuleList::new(vec![blocks, serves]));
        net.change(|| Control::SetFilter(ROUTER, Arc::clone(&filter)));
        translate(&mut net, &[redirect(80, station(0).0, 8080)]);
        let whole = datagram_of(1, (station(1).0, 5), (OUTSIDE, 80), &[7; 60]);
        let got = send(&mut net, 1, &cut(&whole, 1), [2, 1, 0]).concat();
        assert_eq!((got.len(), net.drops(DropReason::FilterBlocked)), (arrived, blocked));
        assert_eq!(held(&net), 0);
    }
}

#[test]
fn pieces_end_with_their_first_or_without_it() {
    for lanes in [1, 2, 4, 8] {
        let mut net = ready(lanes);
        translate(&mut net, &[map()]);
        let (inside, peer) = ((station(0).0, 20_100), (station(1).0, 53));
        for (side, from, to) in [(0, inside, peer), (1, peer, (OUTSIDE, 20_100))] {
            let pieces = cut(&datagram_of(side, from, to, &[7; 60]), 9);
            net.send(side, &pieces[2]);
            net.send(side, &pieces[1]);
            assert_eq!((counts(&net).waiting, held(&net)), (2, 2));
            let before = net.drops(DropReason::NatFragment);
            net.world.run_for(Duration::from_millis(2990));
            assert_eq!(net.drops(DropReason::NatFragment), before);
            net.world.check_conservation();
            net.world.run_for(Duration::from_millis(20));
            assert_eq!(
                (net.drops(DropReason::NatFragment), held(&net)),
                (before + 2, 0),
                "nothing had to come"
            );
            net.world.check_conservation();
        }
        assert_eq!(counts(&net).ended, 4);
        // A mapping lets nobody in whom nobody has sent to.
        net.send(0, &datagram_of(0, inside, peer, b"ask"));
        let stranger = (Ipv4Addr::new(10, 2, 0, 77), 53);
        let pieces = cut(&datagram_of(1, stranger, (OUTSIDE, 20_100), &[7; 60]), 9);
        let got = send(&mut net, 1, &pieces, [2, 0, 1]).concat();
        // Where another lane would have a socket for them they are put together for that, and nobody gets them.
        let steering = Steering::even(&net.world.lane_ids());
        let lane = datagram_lane(Port(20_100), &steering, &firelane_world::secrets().steering());
        let expected = if lane == steering.home() { [3, 0] } else { [0, 1] };
        let drops = [DropReason::NatFiltered, DropReason::NoSocket].map(|reason| net.drops(reason));
        assert_eq!((got.len(), drops, counts(&net).waiting), (0, expected, 0), "{lanes} lanes");
    }
}

/// What is for the netstack itself waits for its first piece alone, and not for the rest.
#[test]
fn the_netstacks_own_datagrams_are_put_together() {
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        translate(&mut net, &[map()]);
        let message = Icmpv4Repr::EchoRequest { identifier: 7, sequence: 1, data: &[7; 60] };
        let mut request = datagram_of(1, (station(1).0, 0), (OUTSIDE, 0), &[0; 60]);
        let header = Ipv4Repr::new(station(1).0, OUTSIDE, IpProtocol::ICMPV4, message.emitted_len() as u16);
        header.emit(&mut request[14..]);
        request.truncate(34);
        request.resize(34 + message.emitted_len(), 0);
        message.emit(&mut request[34..]);
        for (nth, order) in ORDERS.into_iter().enumerate() {
            let pieces = cut(&request, nth as u16);
            net.received(1);
            order.into_iter().for_each(|piece| net.send(1, &pieces[piece]));
            let answers = net.received(1).into_iter().filter(|it| it[12..14] == [8, 0] && it[34] == 0);
            assert_eq!(answers.count(), 1, "{lanes} lanes, {order:?}");
            net.world.check_conservation();
        }
        assert_eq!(held(&net), 0);
    }
}

#[test]
fn whoever_goes_takes_what_waits_along() {
    let piece = |number| {
        let [.., last] = cut(&datagram_of(0, (station(0).0, 20_100), (station(1).0, 53), &[7; 60]), number);
        last
    };
    let rules: [NatRule<_>; 1] = [map()];
    let mut net = ready(1);
    translate(&mut net, &rules);
    net.send(0, &piece(1));
    assert_eq!(held(&net), 1);
    translate(&mut net, &[]);
    assert_eq!((net.drops(DropReason::NatFragment), held(&net)), (1, 0));
    net.world.check_conservation();

    translate(&mut net, &rules);
    net.send(0, &piece(2));
    assert_eq!(held(&net), 1);
    net.change(|| Control::RemoveNetstack(ROUTER));
    assert_eq!((net.drops(DropReason::NoPort), held(&net)), (1, 0));
    net.world.check_conservation();
}
