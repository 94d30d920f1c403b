//! A netstack's translation at its doors, in lanes: what leaves has another source and its answers find back, what is known of a flow
//! changes nothing, sockets of the netstack itself go on, and books balance.

use std::net::Ipv4Addr;
use std::sync::Arc;

use firelane_lane::*;
use firelane_nat::{NatConfig, NatCounts};
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterPorts, FilterProtocol, FilterRule, KeepState,
    LinkId, NatAction, NatEnd, NatLimits, NatPorts, NatRedirect, NatRule, NatTarget, Port,
};
use firelane_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View, UdpView};
use firelane_world::router::*;
use firelane_world::*;
use proptest::prelude::*;

/// The leg behind which outside is, and the router's address there.
pub(crate) const WAN: LinkId = LinkId(11);
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

pub(crate) fn map() -> NatRule<LinkId> {
    let ports = NatPorts::Range(Port(20_000), Port(29_999));
    let from = NatEnd { prefix: "10.1.0.0/24".parse().ok(), ..NatEnd::default() };
    NatRule { from, ..NatRule::new(WAN, NatAction::Map(NatTarget::OfLink, ports)) }
}

pub(crate) fn redirect(port: u16, to: Ipv4Addr, to_port: u16) -> NatRule<LinkId> {
    let to_port = Some(Port(to_port));
    let action =
        NatAction::Redirect(NatRedirect { address: to, second: None, port: to_port, is_range: false });
    let ports = FilterPorts::Equal(Port(port));
    let to = NatEnd { ports, ..NatEnd::default() };
    NatRule { protocol: FilterProtocol::Number(17), to, ..NatRule::new(WAN, action) }
}

pub(crate) fn translate(net: &mut Net, rules: &[NatRule<LinkId>]) {
    let config = Arc::new(NatConfig { rules: rules.to_vec(), limits: NatLimits::default() });
    net.change(|| Control::SetNat(ROUTER, Arc::clone(&config)));
}

pub(crate) fn counts(net: &Net) -> NatCounts {
    net.world.lanes[0].nat_counts(ROUTER).unwrap()
}

/// A datagram between two ends, to the router from a side.
fn datagram(side: usize, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    datagram_of(side, from, to, b"data")
}

/// The same with a text.
pub(crate) fn datagram_of(side: usize, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), text: &[u8]) -> Vec<u8> {
    let length = 8 + text.len() as u16;
    let mut bytes = vec![0; 34];
    let (station, leg) = ([7, 8][side], [1, 11][side]);
    EthernetRepr { dst: mac(leg), src: mac(station), ethertype: EtherType::IPV4 }.emit(&mut bytes);
    Ipv4Repr::new(from.0, to.0, IpProtocol::UDP, length).emit(&mut bytes[14..]);
    let mut udp = [from.1.to_be_bytes(), to.1.to_be_bytes(), length.to_be_bytes(), [0, 0]].concat();
    udp.extend(text);
    firelane_wire::udp::fill_checksum(
        &mut udp,
        firelane_wire::Sum::pseudo_v4(from.0, to.0, IpProtocol::UDP, length),
    );
    bytes.extend(udp);
    bytes
}

/// Between whom a frame's datagram goes; its sums are right.
pub(crate) fn ends(frame: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
    let view = Ipv4View::parse(&frame[14..]).unwrap();
    let udp = UdpView::parse(view.payload()).unwrap();
    assert!(view.is_checksum_valid() && udp.is_checksum_valid(view.src().into(), view.dst().into()));
    ((view.src(), udp.src_port().0), (view.dst(), udp.dst_port().0))
}

/// Sends a datagram from a side and answers what the other gets.
fn pass(net: &mut Net, side: usize, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Option<Vec<u8>> {
    // What the router has said of an earlier one.
    net.received(1 - side);
    net.send(side, &datagram(side, from, to));
    let is_udp = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 17;
    net.received(1 - side).into_iter().find(is_udp)
}

pub(crate) fn ready(lanes: u16) -> Net {
    let mut net = Net::new(lanes);
    net.forward(station(1).0, 9);
    net
}

#[test]
fn what_leaves_has_another_source_and_answers_find_back() {
    for lanes in [1, 2, 4] {
        let mut net = ready(lanes);
        translate(&mut net, &[map()]);
        let (inside, peer) = (station(0).0, station(1).0);
        for port in 1..20_u16 {
            let mut outer = 0;
            // Each time what is known of the flow is another: nothing, its way, its session.
            for nth in 0..4 {
                let left = pass(&mut net, 0, (inside, port), (peer, 53 + port)).unwrap();
                let ((src, at), to) = ends(&left);
                assert_eq!((src, to), (OUTSIDE, (peer, 53 + port)), "{lanes} lanes, port {port}, time {nth}");
                assert!(nth == 0 || at == outer, "one mapping");
                outer = at;
                let back = pass(&mut net, 1, (peer, 53 + port), (OUTSIDE, outer)).unwrap();
                assert_eq!(ends(&back), ((peer, 53 + port), (inside, port)));
            }
            // Endpoint-independent, whatever lane the other's datagrams would go to.
            let other = pass(&mut net, 0, (inside, port), (peer, 1000 + port)).unwrap();
            assert_eq!(ends(&other).0, (OUTSIDE, outer));
        }
        let counts = counts(&net);
        assert_eq!((counts.sessions, counts.mappings, counts.translated), (38, 19, [76, 95]));
        net.world.check_conservation();
    }
}

#[test]
fn a_server_inside_is_reached_and_others_hear_nothing() {
    for lanes in [1, 3] {
        let mut net = ready(lanes);
        translate(&mut net, &[redirect(80, station(0).0, 8080), map()]);
        let (inside, peer) = (station(0).0, station(1).0);
        for _ in 0..3 {
            let asked = pass(&mut net, 1, (peer, 5), (OUTSIDE, 80)).unwrap();
            assert_eq!(ends(&asked), ((peer, 5), (inside, 8080)));
            let answered = pass(&mut net, 0, (inside, 8080), (peer, 5)).unwrap();
            assert_eq!(ends(&answered), ((OUTSIDE, 80), (peer, 5)));
        }
        let left = pass(&mut net, 0, (inside, 7), (peer, 53)).unwrap();
        let stranger = (Ipv4Addr::new(10, 2, 0, 77), 53);
        assert_eq!(pass(&mut net, 1, stranger, (OUTSIDE, ends(&left).0.1)), None);
        let filtered = net.drops(DropReason::NatFiltered);
        assert_eq!(filtered, u64::from(lanes == 1), "a lane that cannot know lets the sockets say so");
        net.world.check_conservation();
    }
}

/// Who is inside reaches the server inside by its name outside, though that is the router's own address.
#[test]
fn what_is_sent_to_a_name_outside_turns_round() {
    for lanes in [1, 2] {
        let mut net = ready(lanes);
        translate(&mut net, &[redirect(80, station(0).0, 8080), map()]);
        let inside = station(0).0;
        for nth in 0..4 {
            net.received(0);
            net.send(0, &datagram(0, (inside, 7), (OUTSIDE, 80)));
            let asked = net.received(0).into_iter().find(|frame| frame[12..14] == [8, 0]);
            let ((src, port), to) = ends(&asked.unwrap());
            assert_eq!((src, to), (OUTSIDE, (inside, 8080)), "{lanes} lanes, time {nth}");
            net.send(0, &datagram(0, (inside, 8080), (src, port)));
            let answered = net.received(0).into_iter().find(|frame| frame[12..14] == [8, 0]);
            assert_eq!(ends(&answered.unwrap()), ((OUTSIDE, 80), (inside, 7)));
        }
        net.world.check_conservation();
    }
}

#[test]
fn rules_come_and_go_live() {
    let mut net = ready(2);
    let (inside, peer) = (station(0).0, station(1).0);
    for _ in 0..3 {
        assert_eq!(ends(&pass(&mut net, 0, (inside, 7), (peer, 53)).unwrap()).0, (inside, 7));
    }
    translate(&mut net, &[map()]);
    let outer = (0..3).map(|_| ends(&pass(&mut net, 0, (inside, 7), (peer, 53)).unwrap()).0);
    let outer: Vec<_> = outer.collect();
    assert!(outer.iter().all(|it| *it == outer[0] && it.0 == OUTSIDE));
    translate(&mut net, &[redirect(80, inside, 8080), map()]);
    assert_eq!(ends(&pass(&mut net, 0, (inside, 7), (peer, 53)).unwrap()).0, outer[0], "its rule stays");
    assert_eq!(net.world.lanes[0].nat_rows(ROUTER, 0, 9).unwrap().0.len(), 1);
    assert_eq!(net.world.lanes[0].flush_nat(ROUTER), Some(1));
    assert!(pass(&mut net, 0, (inside, 7), (peer, 53)).is_some());
    translate(&mut net, &[]);
    assert_eq!(ends(&pass(&mut net, 0, (inside, 7), (peer, 53)).unwrap()).0, (inside, 7));
    assert!(net.world.lanes.iter().all(|lane| lane.nat_counts(ROUTER).is_none()));
    net.world.check_conservation();
}

#[test]
fn an_address_that_goes_takes_along_what_was_made_of_it() {
    let mut net = ready(1);
    translate(&mut net, &[map()]);
    let (inside, peer) = (station(0).0, station(1).0);
    let outer = |net: &mut Net| ends(&pass(net, 0, (inside, 7), (peer, 53)).unwrap()).0.0;
    assert_eq!(outer(&mut net), OUTSIDE);
    net.change(|| Control::AddAddress(ROUTER, WAN, "10.2.0.99/24".parse().unwrap()));
    assert_eq!(outer(&mut net), OUTSIDE, "it stays as long as it can");
    net.change(|| Control::RemoveAddress(ROUTER, WAN, OUTSIDE.into()));
    assert_eq!(outer(&mut net), Ipv4Addr::new(10, 2, 0, 99));
}

/// As in IPFilter: the filter knows the addresses of inside only, both ways.
#[test]
fn the_filter_sees_inside() {
    for lanes in [1, 2] {
        let mut net = ready(lanes);
        let (inside, peer) = (station(0).0, station(1).0);
        let block = |direction| FilterRule::new(direction, FilterAction::Block(BlockAnswer::Silent));
        let mut asks = FilterRule::new(Direction::In, FilterAction::Pass);
        asks.keep_state = Some(KeepState::default());
        asks.link = Some(LinkId(1));
        asks.matching.from.addresses =
            firelane_units::FilterAddresses::Prefix("10.1.0.0/24".parse().unwrap());
        let mut serves = FilterRule::new(Direction::In, FilterAction::Pass);
        serves.keep_state = Some(KeepState::default());
        serves.matching.protocol = FilterProtocol::Number(17);
        serves.matching.to.ports = FilterPorts::Equal(Port(8080));
        let rules = vec![block(Direction::In), block(Direction::Out), asks, serves];
        let filter = Arc::from(rules);
        net.change(|| Control::SetFilter(ROUTER, Arc::clone(&filter)));
        translate(&mut net, &[redirect(80, inside, 8080), map()]);
        for _ in 0..4 {
            let left = pass(&mut net, 0, (inside, 7), (peer, 53)).unwrap();
            let back = pass(&mut net, 1, (peer, 53), ends(&left).0).unwrap();
            assert_eq!((ends(&left).0.0, ends(&back).1), (OUTSIDE, (inside, 7)));
            let asked = pass(&mut net, 1, (peer, 5), (OUTSIDE, 80)).unwrap();
            assert_eq!(ends(&asked).1, (inside, 8080));
            let answered = pass(&mut net, 0, (inside, 8080), (peer, 5)).unwrap();
            assert_eq!(ends(&answered).0, (OUTSIDE, 80));
        }
        let states = net.world.lanes[0].filter_counts(ROUTER).unwrap().states;
        assert_eq!((states.active, states.out_of_window), (2, 0));
        net.world.check_conservation();
    }
}

/// Sockets of the netstack itself, in whatever lane, are reached as if nothing was translated.
#[test]
fn the_netstacks_own_connections_go_on() {
    for lanes in [1, 2, 4] {
        for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
            let mut world = two_stacks(lanes, firelane_units::Mtu::ETHERNET);
            let listener = world.listen(2, 9, remote, 8);
            for id in [1, 2] {
                let rule = NatRule { link: LinkId(10 * id), ..map() };
                let config = Arc::new(NatConfig { rules: vec![rule], limits: NatLimits::default() });
                let netstack = firelane_units::NetstackId(id as u16);
                world.all(|| Control::SetNat(netstack, Arc::clone(&config)));
            }
            world.run();
            for lane in 0..lanes {
                let mut client = world.connect(1, lane, remote);
                world.run();
                assert_eq!(client.poll_connected(), Ok(true), "{remote} {lanes} lanes");
                let mut server = listener.accept().expect("the handshake is over").stream;
                world.transfer(&mut client, &mut server, &vec![7; 100_000]);
                world.transfer(&mut server, &mut client, &vec![8; 100_000]);
            }
            world.check_conservation();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// What is known of flows changes nothing: a router that remembers does what one does that is watched and walks step by step.
    #[test]
    fn what_is_known_changes_nothing(
        sent in prop::collection::vec((any::<bool>(), 1..4_u16, 1..4_u16, 0..8_u8), 1..60), is_filtered: bool,
    ) {
        let mut nets = [ready(1), ready(1)];
        let (inside, peer) = (station(0).0, station(1).0);
        for net in &mut nets {
            translate(net, &[redirect(80, inside, 8080), map()]);
            if is_filtered {
                let rules = vec![FilterRule::new(Direction::In, FilterAction::Pass)];
                let filter = Arc::from(rules);
                net.change(|| Control::SetFilter(ROUTER, Arc::clone(&filter)));
            }
        }
        nets[1].world.visit(firelane_units::LaneId(0), |_, lane| lane.count_steps(Some(|| 0)));
        let mut outer = [20_000; 4];
        for (goes_out, port, to, kind) in sent {
            let results = nets.each_mut().map(|net| match (goes_out, kind) {
                (true, 0) => pass(net, 0, (inside, 8080), (peer, to)),
                (true, _) => pass(net, 0, (inside, port), (peer, to)),
                (false, 0) => pass(net, 1, (peer, to), (OUTSIDE, 80)),
                (false, _) => pass(net, 1, (peer, to), (OUTSIDE, outer[usize::from(port)])),
            });
            prop_assert_eq!(&results[0], &results[1]);
            if let Some(left) = results[0].as_ref().filter(|_| goes_out && kind > 0) {
                outer[usize::from(port)] = ends(left).0.1;
            }
            prop_assert_eq!(counts(&nets[0]), counts(&nets[1]));
        }
        let both = nets.each_ref().map(|net| net.world.lanes[0].nat_rows(ROUTER, 0, 99).unwrap().0.len());
        prop_assert_eq!(both[0], both[1]);
        nets.iter().for_each(|net| net.world.check_conservation());
    }
}
