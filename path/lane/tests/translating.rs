//! A netstack's translation at its doors, in lanes: what leaves has another source and its answers find back, what is known of a flow
//! changes nothing, sockets of the netstack itself go on, and books balance.

use std::net::Ipv4Addr;
use std::sync::Arc;

use firelane_filter::RuleList;
use firelane_lane::*;
use firelane_nat::{NatConfig, NatCounts, NatList};
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterPorts, FilterProtocol, FilterRule, KeepState,
    LinkId, MacAddr, NatAction, NatEnd, NatLimits, NatPorts, NatRedirect, NatRule, NatTarget, Port, SeqNum,
};
use firelane_wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View, TcpFlags, TcpOptions,
    TcpRepr, TcpView, UdpView,
};
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

/// Another station of the side inside.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 9);

/// A redirect of datagrams to two servers in turn.
fn turns(port: u16, [one, other]: [Ipv4Addr; 2], to_port: u16) -> NatRule<LinkId> {
    let to_port = Some(Port(to_port));
    let target = NatRedirect { address: one, second: Some(other), port: to_port, is_range: false };
    NatRule { action: NatAction::Redirect(target), ..redirect(port, one, 0) }
}

/// The other station says where it is.
fn introduce_other(net: &mut Net) {
    let mut hello = vec![0; 14];
    EthernetRepr { dst: mac(1), src: mac(9), ethertype: EtherType::ARP }.emit(&mut hello);
    let (operation, target_mac) = (ArpOperation::Request, MacAddr::ZERO);
    let (sender_ip, target_ip) = (OTHER, Ipv4Addr::new(10, 1, 0, 1));
    let arp = ArpRepr { operation, sender_mac: mac(9), sender_ip, target_mac, target_ip };
    hello.resize(14 + arp.emitted_len(), 0);
    arp.emit(&mut hello[14..]);
    net.send(0, &hello);
}

pub(crate) fn translate(net: &mut Net, rules: &[NatRule<LinkId>]) {
    let config = Arc::new(NatList::new(NatConfig { rules: rules.to_vec(), limits: NatLimits::default() }));
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
pub(crate) fn pass(
    net: &mut Net,
    side: usize,
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
) -> Option<Vec<u8>> {
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
        assert_eq!(net.drops(DropReason::NatFiltered), 1);
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

/// A session that ends takes along where its packets went, not only who they were for.
#[test]
fn what_belongs_to_no_session_goes_where_its_own_address_says() {
    for is_watched in [false, true] {
        let mut net = ready(1);
        translate(&mut net, &[map()]);
        if is_watched {
            net.world.visit(firelane_units::LaneId(0), |_, lane| lane.count_steps(Some(|| 0)));
        }
        let (inside, peer) = (station(0).0, station(1).0);
        for _ in 0..2 {
            let (outer, _) = ends(&pass(&mut net, 0, (inside, 7), (peer, 53)).unwrap());
            for _ in 0..3 {
                assert!(pass(&mut net, 1, (peer, 53), outer).is_some());
            }
            assert_eq!(net.world.lanes[0].flush_nat(ROUTER), Some(1));
            for _ in 0..3 {
                assert_eq!(pass(&mut net, 1, (peer, 53), outer), None, "it is for the router itself");
            }
        }
        net.world.check_conservation();
    }
}

/// Sends a segment from a side, and answers the first one that a side gets then: its frame, and its number.
pub(crate) fn segment(
    net: &mut Net,
    (side, heard): (usize, usize),
    ends: [(Ipv4Addr, u16); 2],
    what: (TcpFlags, u32, u32),
    text: &[u8],
) -> Option<(Vec<u8>, u32)> {
    net.received(heard);
    net.send(side, &segment_of(side, ends, what, text));
    let frame = net.received(heard).into_iter().find(|frame| frame[12..14] == [8, 0] && frame[23] == 6)?;
    let seq = TcpView::parse(Ipv4View::parse(&frame[14..]).unwrap().payload()).unwrap().seq().0;
    Some((frame, seq))
}

/// A segment between two ends, to the router from a side.
pub(crate) fn segment_of(
    side: usize,
    [from, to]: [(Ipv4Addr, u16); 2],
    (flags, seq, ack): (TcpFlags, u32, u32),
    text: &[u8],
) -> Vec<u8> {
    let mut bytes = datagram_of(side, from, to, &[0; 12]);
    let ack = flags.ack().then_some(SeqNum(ack));
    let (src_port, dst_port) = (Port(from.1), Port(to.1));
    let (seq, options) = (SeqNum(seq), TcpOptions::EMPTY);
    let repr = TcpRepr { src_port, dst_port, seq, ack, flags, window: 1000, urgent: 0, options };
    let mut segment = vec![0; repr.emitted_len()];
    repr.emit(&mut segment);
    segment.extend(text);
    let length = segment.len() as u16;
    let pseudo = firelane_wire::Sum::pseudo_v4(from.0, to.0, IpProtocol::TCP, length);
    firelane_wire::tcp::fill_checksum(&mut segment, pseudo);
    Ipv4Repr::new(from.0, to.0, IpProtocol::TCP, length).emit(&mut bytes[14..]);
    bytes.truncate(34);
    bytes.extend(segment);
    bytes
}

/// What was passed on inside before is for a socket of the netstack now, and for its connection behind that.
#[test]
fn what_belongs_to_no_session_finds_the_netstacks_own_connection() {
    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;
    let mut net = ready(1);
    translate(&mut net, &[map()]);
    let (inside, peer) = ((station(0).0, 7), (station(1).0, 53));
    let (left, _) = segment(&mut net, (0, 1), [inside, peer], (SYN, 9, 0), &[]).unwrap();
    let outer = (OUTSIDE, u16::from_be_bytes([left[34], left[35]]));
    for _ in 0..3 {
        let answered = segment(&mut net, (1, 0), [peer, outer], (SYN.with(ACK), 99, 10), &[]);
        assert!(answered.is_some(), "to who is inside");
    }
    assert_eq!(net.world.lanes[0].flush_nat(ROUTER), Some(1));
    let listener = net.world.listen(1, 9, &format!("{}:{}", outer.0, outer.1), 8);
    let (_, first) = segment(&mut net, (1, 1), [peer, outer], (SYN, 499, 0), &[]).unwrap();
    let ack = first.wrapping_add(1);
    segment(&mut net, (1, 1), [peer, outer], (ACK, 500, ack), &[]);
    let mut server = listener.accept().expect("the handshake is over").stream;
    segment(&mut net, (1, 1), [peer, outer], (ACK, 500, ack), b"text");
    let mut text = [0; 9];
    assert_eq!(net.world.read(&mut server, &mut text), Ok(4));
    assert_eq!(&text[..4], b"text");
}

/// A conversation that begins anew with the same names has another server, and another station.
#[test]
fn a_turn_of_servers_turns_their_stations_too() {
    let mut net = ready(1);
    let servers = [station(0).0, station(1).0];
    translate(&mut net, &[turns(80, servers, 8080)]);
    let asked = datagram(1, (Ipv4Addr::new(10, 2, 0, 77), 5), (OUTSIDE, 80));
    let mut stations = Vec::new();
    for _ in 0..3 {
        for _ in 0..4 {
            net.send(1, &asked);
            let heard = [0, 1].map(|side| net.received(side));
            let is_udp = |frame: &&Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 17;
            let got = heard.each_ref().map(|frames| frames.iter().find(is_udp));
            let side = got.iter().position(Option::is_some).expect("it goes to one of them");
            assert_eq!((ends(got[side].unwrap()).1, got[1 - side]), ((servers[side], 8080), None));
            stations.push(side);
        }
        assert_eq!(net.world.lanes[0].flush_nat(ROUTER), Some(1));
    }
    stations.dedup();
    assert_eq!(stations.len(), 3, "they took turns");
    net.world.check_conservation();
}

/// What is to be translated on its way in and on its way out goes nowhere with the one alone, whatever its flow is known by.
#[test]
fn what_finds_no_room_on_its_way_out_does_not_leave_half_translated() {
    let mut net = ready(1);
    let (inside, peer) = (station(0).0, station(1).0);
    let hidden = NatEnd { prefix: "10.2.0.0/24".parse().ok(), ..NatEnd::default() };
    let hide = NatRule { from: hidden, link: LinkId(1), ..map() };
    let set = |net: &mut Net, per_source| {
        let rules = vec![redirect(80, inside, 8080), hide];
        let config = Arc::new(NatList::new(NatConfig {
            rules,
            limits: NatLimits { per_source, ..NatLimits::default() },
        }));
        net.change(|| Control::SetNat(ROUTER, Arc::clone(&config)));
    };
    set(&mut net, 1);
    for nth in 0..5 {
        let got = pass(&mut net, 1, (peer, 5), (OUTSIDE, 80)).map(|frame| ends(&frame));
        assert_eq!(got, None, "time {nth}");
    }
    assert_eq!(net.drops(DropReason::NatSourceFull), 5);
    set(&mut net, 9);
    for nth in 0..5 {
        let (src, dst) = ends(&pass(&mut net, 1, (peer, 5), (OUTSIDE, 80)).unwrap());
        assert_eq!((src.0, dst), (Ipv4Addr::new(10, 1, 0, 1), (inside, 8080)), "time {nth}");
    }
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
        let filter = Arc::new(RuleList::new(rules));
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
                let config =
                    Arc::new(NatList::new(NatConfig { rules: vec![rule], limits: NatLimits::default() }));
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

    /// What is known of flows changes nothing: a router that remembers does what one does that is watched and walks step by step, and
    /// one that is told its rules again before each packet, and so knows no flow.
    #[test]
    fn what_is_known_changes_nothing(
        sent in prop::collection::vec((any::<bool>(), 1..4_u16, 1..4_u16, 0..10_u8), 1..60), is_filtered: bool,
    ) {
        let mut nets = [ready(1), ready(1), ready(1)];
        let (inside, peer) = (station(0).0, station(1).0);
        let rules = [turns(80, [inside, OTHER], 8080), map()];
        for net in &mut nets {
            introduce_other(net);
            translate(net, &rules);
            if is_filtered {
                let rules = vec![FilterRule::new(Direction::In, FilterAction::Pass)];
                let filter = Arc::new(RuleList::new(rules));
                net.change(|| Control::SetFilter(ROUTER, Arc::clone(&filter)));
            }
        }
        nets[1].world.visit(firelane_units::LaneId(0), |_, lane| lane.count_steps(Some(|| 0)));
        let mut outer = [20_000; 4];
        for (goes_out, port, to, kind) in sent {
            for net in nets.iter_mut().filter(|_| kind == 9) {
                net.world.lanes[0].flush_nat(ROUTER);
            }
            translate(&mut nets[2], &rules);
            let results = nets.each_mut().map(|net| match (goes_out, kind) {
                (true, 0) => pass(net, 0, (inside, 8080), (peer, to)),
                (true, _) => pass(net, 0, (inside, port), (peer, to)),
                (false, 0 | 1) => pass(net, 1, (peer, to), (OUTSIDE, 80)),
                (false, _) => pass(net, 1, (peer, to), (OUTSIDE, outer[usize::from(port)])),
            });
            for nth in [1, 2] {
                prop_assert_eq!(&results[0], &results[nth]);
                prop_assert_eq!(counts(&nets[0]), counts(&nets[nth]));
            }
            if let Some(left) = results[0].as_ref().filter(|_| goes_out && kind > 0) {
                outer[usize::from(port)] = ends(left).0.1;
            }
        }
        let all = nets.each_ref().map(|net| net.world.lanes[0].nat_rows(ROUTER, 0, 99).unwrap().0.len());
        prop_assert_eq!(all, [all[0]; 3]);
        nets.iter().for_each(|net| net.world.check_conservation());
    }
}
