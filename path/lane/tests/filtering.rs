//! A netstack's filter at both gates: what its rules say counts for every packet, from the next one on, and books balance.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use firelane_filter::{FilterCounts, RuleList, Verdict};
use firelane_lane::*;
use firelane_socket::SocketError;
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterLog, FilterPorts, FilterProtocol, FilterRule,
    KeepState, LinkId, Mtu, NetstackId, Port,
};
use firelane_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr};
use firelane_world::router::*;
use firelane_world::*;

const PASS: FilterAction = FilterAction::Pass;
const BLOCK: FilterAction = FilterAction::Block(BlockAnswer::Silent);
const TWO: NetstackId = NetstackId(2);

fn rule(direction: Direction, action: FilterAction) -> FilterRule<LinkId> {
    FilterRule::new(direction, action)
}

fn to_port(mut rule: FilterRule<LinkId>, protocol: IpProtocol, port: u16) -> FilterRule<LinkId> {
    rule.matching.protocol = FilterProtocol::Number(protocol.0);
    rule.matching.to.ports = FilterPorts::Equal(Port(port));
    rule
}

fn keep(mut rule: FilterRule<LinkId>) -> FilterRule<LinkId> {
    rule.keep_state = Some(KeepState::default());
    rule
}

fn list(rules: Vec<FilterRule<LinkId>>) -> Arc<RuleList> {
    Arc::new(RuleList::new(rules))
}

fn set(world: &mut World, netstack: NetstackId, rules: Vec<FilterRule<LinkId>>) {
    let list = list(rules);
    world.all(|| Control::SetFilter(netstack, Arc::clone(&list)));
    world.run();
}

fn counts(world: &World, netstack: NetstackId) -> FilterCounts {
    let mut sum = FilterCounts::default();
    world.lanes.iter().for_each(|lane| sum.merge(&lane.filter_counts(netstack).unwrap()));
    sum
}

/// The server lets in what is for port 80, keeps state, and lets nothing else in or out: a connection lives by its state.
#[test]
fn a_connection_lives_by_its_state_alone() {
    for lanes in [1, 2, 4] {
        for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            // Neighbour discovery is IPv6 and asked about like anything else; ARP is not.
            let listener = world.listen(2, 9, remote, 8);
            let mut neighbours = rule(Direction::In, PASS);
            neighbours.matching.protocol = FilterProtocol::Number(IpProtocol::ICMPV6.0);
            let rules = vec![
                rule(Direction::In, BLOCK),
                rule(Direction::Out, BLOCK),
                FilterRule { direction: Direction::Out, ..neighbours.clone() },
                neighbours,
                keep(to_port(rule(Direction::In, PASS), IpProtocol::TCP, 80)),
            ];
            set(&mut world, TWO, rules);
            let mut client = world.connect(1, lanes - 1, remote);
            world.run();
            assert_eq!(client.poll_connected(), Ok(true), "{remote}");
            let mut server = listener.accept().expect("the handshake is over").stream;
            world.transfer(&mut client, &mut server, &vec![7; 200_000]);
            world.transfer(&mut server, &mut client, &vec![8; 200_000]);
            let sum = counts(&world, TWO);
            assert_eq!((sum.states.active, sum.states.out_of_window), (1, 0));
            assert!(sum.rules[4].bytes > 400_000, "its packets count for its rule: {:?}", sum.rules);
            world.check_conservation();
        }
    }
}

/// `ipf -Fa` and then `ipf -f` leave a moment without rules, in which much may be sent.
#[test]
fn a_connection_outlives_a_while_without_rules() {
    for lanes in [1, 2] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let listener = world.listen(2, 9, "10.0.0.2:80", 8);
        let mut opens = keep(to_port(rule(Direction::In, PASS), IpProtocol::TCP, 80));
        opens.matching.flags = Some(firelane_units::TcpFlagsMatch { set: 2, mask: 0x12 });
        let rules = vec![rule(Direction::In, BLOCK), rule(Direction::Out, BLOCK), opens];
        set(&mut world, TWO, rules.clone());
        let mut client = world.connect(1, lanes - 1, "10.0.0.2:80");
        world.run();
        let mut server = listener.accept().expect("the handshake is over").stream;
        for _ in 0..2 {
            set(&mut world, TWO, Vec::new());
            world.transfer(&mut client, &mut server, &vec![7; 3_000_000]);
            world.transfer(&mut server, &mut client, &vec![8; 3_000_000]);
            set(&mut world, TWO, rules.clone());
            world.transfer(&mut client, &mut server, &vec![7; 200_000]);
            world.transfer(&mut server, &mut client, &vec![8; 200_000]);
        }
        assert_eq!(counts(&world, TWO).states.out_of_window, 0);
        world.check_conservation();
    }
}

#[test]
fn who_is_blocked_hears_what_the_rule_says() {
    let icmp = |as_dest| BlockAnswer::Icmp { code: 13, as_dest };
    let cases = [
        (BlockAnswer::Silent, Ok(false)),
        (BlockAnswer::Reset, Err(SocketError::Refused)),
        // RFC 1122 §4.2.3.9 and RFC 5461: while it connects, it gives up.
        (icmp(false), Err(SocketError::HostUnreachable)),
        (icmp(true), Err(SocketError::HostUnreachable)),
    ];
    for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
        for (answer, outcome) in cases {
            let mut world = two_stacks(1, Mtu::ETHERNET);
            let _listener = world.listen(2, 9, remote, 8);
            // Nothing may leave by rules: the answer is the filter's own.
            let blocked = to_port(rule(Direction::In, FilterAction::Block(answer)), IpProtocol::TCP, 80);
            let mut out = rule(Direction::Out, BLOCK);
            out.matching.protocol = FilterProtocol::Number(IpProtocol::TCP.0);
            set(&mut world, TWO, vec![blocked, out]);
            let client = world.connect(1, 0, remote);
            world.run_for(Duration::from_millis(50));
            let told = client.poll_connected();
            assert_eq!(told, outcome, "{remote} {answer:?}");
            let drops = &world.counters().drops;
            assert!(drops.of(DropReason::FilterBlocked) > 0);
            world.check_conservation();
        }
    }
}

#[test]
fn what_goes_out_is_asked_too() {
    let mut world = two_stacks(2, Mtu::ETHERNET);
    set(&mut world, TWO, vec![to_port(rule(Direction::Out, BLOCK), IpProtocol::UDP, 53)]);
    let mut sender = world.bind(2, 5, 0, "10.0.0.2:4000");
    let mut receiver = world.bind(1, 6, 0, "10.0.0.1:53");
    world.send_to(&mut sender, 5, "10.0.0.1:53".parse().unwrap(), b"not out");
    world.run();
    let mut bytes = [0; 99];
    assert_eq!(receiver.recv.recv(&mut bytes), Ok(None));
    assert_eq!(world.counters().drops.of(DropReason::FilterBlocked), 1);
    set(&mut world, TWO, Vec::new());
    world.send_to(&mut sender, 5, "10.0.0.1:53".parse().unwrap(), b"out");
    world.run();
    assert!(matches!(receiver.recv.recv(&mut bytes), Ok(Some(_))));
    world.check_conservation();
}

/// The operator is told of packets by rules that say so, and not of more than he can read.
#[test]
fn a_log_is_kept_and_is_bounded() {
    let mut net = Net::new(1);
    let mut loud = rule(Direction::In, BLOCK);
    loud.log = Some(FilterLog::default());
    set(&mut net.world, ROUTER, vec![loud]);
    (0..300).for_each(|port| assert!(net.forward(station(1).0, port + 1).is_none()));
    let of_filter = |notice: &Notice| matches!(notice, Notice::Filtered(ROUTER, _, Verdict::Block(_)));
    assert_eq!(net.world.mail.notices.iter().filter(|it| of_filter(it)).count(), 100);
    assert_eq!(net.drops(DropReason::FilterBlocked), 300);
}

#[test]
fn a_change_of_rules_counts_for_the_next_packet_of_a_known_flow() {
    for lanes in [1, 2, 4] {
        let mut net = Net::new(lanes);
        let dst = station(1).0;
        (0..3).for_each(|_| assert!(net.forward(dst, 5).is_some()));
        let by_leg = |link, direction| FilterRule { link: Some(LinkId(link)), ..rule(direction, BLOCK) };
        // In by the first leg, or out by the second.
        for (nth, blocked) in [by_leg(1, Direction::In), by_leg(11, Direction::Out)].into_iter().enumerate() {
            set(&mut net.world, ROUTER, vec![blocked]);
            (0..3).for_each(|_| assert!(net.forward(dst, 5).is_none()));
            assert_eq!(net.drops(DropReason::FilterBlocked), 3 * (nth as u64 + 1));
            assert_eq!(counts(&net.world, ROUTER).rules[0].packets, 3, "each is counted");
            set(&mut net.world, ROUTER, vec![by_leg(1, Direction::Out), by_leg(11, Direction::In)]);
            (0..3).for_each(|_| assert!(net.forward(dst, 5).is_some()));
            set(&mut net.world, ROUTER, Vec::new());
            (0..3).for_each(|_| assert!(net.forward(dst, 5).is_some()));
        }
        net.world.check_conservation();
    }
}

/// A list of thousands takes milliseconds to make and to end: lanes have it as it was given, and leave the one before it to who has it.
#[test]
fn lanes_share_a_list_and_end_none() {
    for lanes in [1, 2, 4] {
        let mut net = Net::new(lanes);
        let blocked = |port| to_port(rule(Direction::In, BLOCK), IpProtocol::UDP, port);
        let first = list(vec![blocked(53)]);
        let second = list(vec![blocked(54), blocked(53)]);
        let mut used = |list: &Arc<_>| {
            net.world.all(|| Control::SetFilter(ROUTER, Arc::clone(list)));
            net.world.run();
        };
        used(&first);
        assert!(Arc::strong_count(&first) > usize::from(lanes));
        used(&second);
        assert_eq!(Arc::strong_count(&first), 1, "no lane ends it");
        assert!(Arc::strong_count(&second) > usize::from(lanes));
    }
}

/// What one leg's rule lets in with state may leave by the other, and its answer comes back, whatever other rules say.
#[test]
fn a_forwarded_flow_passes_both_gates_by_one_state() {
    for lanes in [1, 2, 4] {
        let mut net = Net::new(lanes);
        assert!(net.forward(station(1).0, 1).is_some());
        let passes = keep(to_port(rule(Direction::In, PASS), IpProtocol::UDP, 53));
        set(&mut net.world, ROUTER, vec![rule(Direction::In, BLOCK), rule(Direction::Out, BLOCK), passes]);
        (0..4).for_each(|_| assert!(net.forward(station(1).0, 7).is_some()));
        let back = net.back(7);
        net.send(1, &back);
        assert_eq!(net.received(0).len(), 1, "the answer");
        let stray = net.back(8);
        net.send(1, &stray);
        assert_eq!(net.received(0).len(), 0, "nobody has asked");
        // An error about the first's datagram, from somebody between: it is handled where the state is.
        let error = net.unreachable(7);
        net.send(1, &error);
        assert_eq!(net.received(0).len(), 1, "the error");
        let error = net.unreachable(8);
        net.send(1, &error);
        assert_eq!(net.received(0).len(), 0, "about a datagram that nobody has sent");
        // The lane that gets the answers has the state, too.
        let active = counts(&net.world, ROUTER).states.active;
        assert!((1..=2).contains(&active) && active <= lanes.into());
        // A state ends, and gives its memory back.
        net.world.run_for(Duration::from_secs(130));
        let sum = counts(&net.world, ROUTER).states;
        assert_eq!((sum.active, sum.expired), (0, active));
        net.world.check_conservation();
    }
}

#[test]
fn chains_of_new_flows_pass_the_gate_one_by_one() {
    let mut net = Net::new(1);
    assert!(net.forward(station(1).0, 1).is_some());
    let mut odd = to_port(rule(Direction::In, BLOCK), IpProtocol::UDP, 53);
    odd.matching.from.ports = FilterPorts::Inside(Port(99), Port(150));
    odd.head = NonZeroU32::new(1);
    set(&mut net.world, ROUTER, vec![odd]);
    for _ in 0..3 {
        let mut chain = firelane_frame::Chain::new();
        for n in 0..200_u16 {
            chain.push(net.pools.copy_of(&net.datagram(station(1).0, n + 1)).unwrap());
        }
        net.wires[0].tx.push_chain(&mut chain);
        net.world.run();
        assert_eq!(net.received(1).len(), 150);
    }
    assert_eq!(net.drops(DropReason::FilterBlocked), 150);
    net.world.check_conservation();
}

/// The router's own messages about what is forwarded pass the gate like anybody's; the filter's own do not.
#[test]
fn a_reset_for_a_forwarded_segment_comes_in_its_destinations_name() {
    let mut net = Net::new(1);
    assert!(net.forward(station(1).0, 1).is_some());
    let refuse = rule(Direction::In, FilterAction::Block(BlockAnswer::Icmp { code: 10, as_dest: true }));
    set(&mut net.world, ROUTER, vec![refuse, rule(Direction::Out, BLOCK)]);
    let datagram = net.datagram(station(1).0, 7);
    net.send(0, &datagram);
    let answers = net.received(0);
    let packet = firelane_wire::Ipv4View::parse(&answers.first().expect("an error")[14..]).unwrap();
    assert_eq!((IpAddr::V4(packet.src()), packet.dst()), (station(1).0.into(), station(0).0));
    assert_eq!(&packet.payload()[..2], &[3, 10]);
    assert_eq!(Ipv4Addr::from(<[u8; 4]>::try_from(&packet.payload()[20..24]).unwrap()), station(0).0);
    net.world.check_conservation();
}

/// What the first station hears of a frame of its own, and from whom; the router asks first where it is, if that lane does not know.
fn told(net: &mut Net, frame: &[u8]) -> Option<(Ipv4Addr, Vec<u8>)> {
    net.send(0, frame);
    let mut answers = net.received(0);
    if answers.first().is_some_and(|frame| frame[12..14] == [8, 6]) {
        net.answer(0);
        answers = net.received(0);
    }
    let answer = answers.pop()?;
    let packet = firelane_wire::Ipv4View::parse(&answer[14..]).unwrap();
    Some((packet.src(), packet.payload().to_vec()))
}

/// A way to who is refused may be known to no lane yet, or to others alone: the answer waits for it like any packet.
#[test]
fn a_refusal_in_its_destinations_name_arrives_from_every_lane() {
    for lanes in [1, 2, 4] {
        let mut net = Net::new(lanes);
        let block = |answer| rule(Direction::In, FilterAction::Block(answer));
        let unreachable = BlockAnswer::Icmp { code: 10, as_dest: true };
        let reset = FilterRule {
            matching: to_port(block(BlockAnswer::Reset), IpProtocol::TCP, 53).matching,
            ..block(BlockAnswer::Reset)
        };
        set(&mut net.world, ROUTER, vec![block(unreachable), reset]);
        for port in 1..=16 {
            let datagram = net.datagram(station(1).0, port);
            let error = told(&mut net, &datagram).map(|(from, error)| (from, [error[0], error[1]]));
            assert_eq!(error, Some((station(1).0, [3, 10])), "{lanes} lanes, port {port}");
            let reset = told(&mut net, &syn(port)).map(|(from, segment)| (from, segment[13]));
            assert_eq!(reset, Some((station(1).0, 0x14)), "{lanes} lanes, port {port}");
        }
        net.world.check_conservation();
    }
}

/// The first station begins a connection with the second's port 53.
fn syn(port: u16) -> Vec<u8> {
    let mut bytes = vec![0; 34];
    EthernetRepr { dst: mac(1), src: mac(7), ethertype: EtherType::IPV4 }.emit(&mut bytes);
    Ipv4Repr::new(station(0).0, station(1).0, IpProtocol::TCP, 20).emit(&mut bytes[14..]);
    let [high, low] = port.to_be_bytes();
    bytes.extend([high, low, 0, 53, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0]);
    bytes
}

/// The same between any two addresses.
fn syn_between(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut bytes = syn(5);
    Ipv4Repr::new(from, to, IpProtocol::TCP, 20).emit(&mut bytes[14..]);
    bytes
}

/// RFC 1122 §3.2.2 and §4.2.3.10, RFC 1812 §5.3.7: an answer is for one station, from one. Nobody can be where a source is that is everybody's,
/// a group's, the loopback's or our own, so that our own sockets would hear of it; and where many have got a packet, each would answer
/// in the name of all.
#[test]
fn nobody_is_refused_who_cannot_be_there() {
    let icmp = |as_dest| BlockAnswer::Icmp { code: 10, as_dest };
    let station = station(0).0;
    let from = [
        "10.1.0.255",
        "255.255.255.255",
        "224.0.0.9",
        "240.0.0.1",
        "0.0.0.0",
        "127.0.0.1",
        "10.1.0.1",
        "10.2.0.1",
    ];
    let to = ["10.1.0.255", "10.2.0.255", "255.255.255.255", "224.0.0.1", "127.0.0.1", "0.0.0.0"];
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
    let strange = from.iter().map(|it| (address(it), Ipv4Addr::new(10, 2, 0, 8)));
    let all: Vec<_> = strange.chain(to.iter().map(|it| (station, address(it)))).collect();
    for lanes in [1, 2] {
        for answer in [BlockAnswer::Reset, icmp(false), icmp(true)] {
            let mut net = Net::new(lanes);
            set(&mut net.world, ROUTER, vec![rule(Direction::In, FilterAction::Block(answer))]);
            assert!(told(&mut net, &syn(5)).is_some(), "{answer:?}");
            let said = |net: &Net| -> u64 {
                let of = |lane: &Lane<AnyDriver>| lane.netstack_counters(ROUTER).unwrap();
                let said = |it: NetstackCounters| it.tcp.segments_out + it.ip.v4.icmp.errors_out;
                net.world.lanes.iter().map(|lane| said(of(lane))).sum()
            };
            let before = said(&net);
            for &(from, to) in &all {
                net.send(0, &syn_between(from, to));
                assert_eq!(said(&net), before, "{answer:?}: {from} to {to}");
                assert_eq!(
                    (net.received(0), net.received(1)),
                    (vec![], vec![]),
                    "{answer:?}: {from} to {to}"
                );
            }
            assert_eq!(
                net.drops(DropReason::FilterBlocked),
                1 + all.len() as u64,
                "they are blocked all the same"
            );
            net.world.check_conservation();
        }
    }
}

/// Sends a frame of a station; whether the other one gets it, where the router's lanes may have to ask for it first.
fn passes(net: &mut Net, side: usize, bytes: &[u8]) -> bool {
    net.send(side, bytes);
    let mut received = net.received(1 - side);
    if received.first().is_some_and(|frame| frame[12..14] == [8, 6]) {
        net.answer(1 - side);
        received = net.received(1 - side);
    }
    received.iter().any(|frame| frame[12..14] == [8, 0])
}

/// A limit is the rule's and not each lane's. What lanes tell each other of, so that answers pass, is one state all the same.
#[test]
fn a_limit_counts_the_states_of_all_lanes() {
    for lanes in [1, 2, 4] {
        for protocol in [IpProtocol::TCP, IpProtocol::UDP] {
            let mut net = Net::new(lanes);
            let mut limited = to_port(rule(Direction::In, PASS), protocol, 53);
            limited.keep_state = Some(KeepState { limit: NonZeroU32::new(10), ..KeepState::default() });
            let blocks = Direction::ALL.map(|direction| rule(direction, BLOCK));
            set(&mut net.world, ROUTER, [&blocks[..], &[limited]].concat());
            let frame = |net: &Net, port| match protocol {
                IpProtocol::TCP => syn(port),
                _ => net.datagram(station(1).0, port),
            };
            for port in 1..=60 {
                let bytes = frame(&net, port);
                assert_eq!(
                    passes(&mut net, 0, &bytes),
                    port <= 10,
                    "{lanes} lanes, {protocol:?}, port {port}"
                );
            }
            assert_eq!(
                (net.drops(DropReason::FilterFull), counts(&net.world, ROUTER).states.rule_full),
                (50, 50)
            );
            if protocol == IpProtocol::UDP {
                for port in 1..=10 {
                    let back = net.back(port);
                    assert!(passes(&mut net, 1, &back), "{lanes} lanes, port {port}");
                }
                // Half a minute later all are told of anew, and when they have ended others may begin.
                net.world.run_for(Duration::from_secs(30));
                let again = frame(&net, 3);
                assert!(passes(&mut net, 0, &again));
                net.world.run_for(Duration::from_secs(300));
                (0..2).for_each(|side| net.introduce(side));
                let heard = (101..=120).filter(|&port| {
                    let bytes = frame(&net, port);
                    passes(&mut net, 0, &bytes)
                });
                assert_eq!(heard.count(), 10, "{lanes} lanes");
            }
            net.world.check_conservation();
        }
    }
}

/// Whoever sends what a rule keeps from leaving hears of it, as with rules about what comes in: another station, each time, whether the
/// rule was looked at or what it said is remembered.
#[test]
fn who_sends_what_may_not_leave_is_told() {
    for lanes in [1, 2, 4] {
        for as_dest in [false, true] {
            let mut net = Net::new(lanes);
            let leg = Some(LinkId(11));
            let block =
                |answer| FilterRule { link: leg, ..rule(Direction::Out, FilterAction::Block(answer)) };
            let unreachable = block(BlockAnswer::Icmp { code: 10, as_dest });
            let reset = to_port(block(BlockAnswer::Reset), IpProtocol::TCP, 53);
            // The way onward is known, so that packets get as far as the gate.
            for port in 1..=4 {
                assert!(net.forward(station(1).0, port).is_some());
                assert!(passes(&mut net, 0, &syn(port)));
            }
            set(&mut net.world, ROUTER, vec![unreachable, reset]);
            let from = if as_dest { station(1).0 } else { Ipv4Addr::new(10, 1, 0, 1) };
            for port in [1, 2, 3, 4, 1, 2, 1, 1] {
                let datagram = net.datagram(station(1).0, port);
                let error = told(&mut net, &datagram).map(|(from, error)| (from, [error[0], error[1]]));
                assert_eq!(error, Some((from, [3, 10])), "{lanes} lanes, port {port}");
                let reset = told(&mut net, &syn(port)).map(|(from, segment)| (from, segment[13]));
                assert_eq!(reset, Some((station(1).0, 0x14)), "{lanes} lanes, port {port}");
            }
            assert_eq!((net.drops(DropReason::FilterBlocked), net.received(1).len()), (16, 0));
            net.world.check_conservation();
        }
    }
}

/// The same of the netstack's own sockets.
#[test]
fn a_socket_is_told_that_it_may_not_send() {
    for lanes in [1, 2, 4] {
        for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            let listener = world.listen(2, 9, remote, 8);
            let port =
                |answer| to_port(rule(Direction::Out, FilterAction::Block(answer)), IpProtocol::TCP, 80);
            let icmp = |as_dest| BlockAnswer::Icmp { code: 13, as_dest };
            for (answer, told) in [
                (BlockAnswer::Reset, SocketError::Refused),
                // RFC 1122 §4.2.3.9, as of another station's.
                (icmp(false), SocketError::HostUnreachable),
                (icmp(true), SocketError::HostUnreachable),
            ] {
                set(&mut world, NetstackId(1), vec![port(answer)]);
                for _ in 0..3 {
                    let client = world.connect(1, 0, remote);
                    world.run();
                    assert_eq!(client.poll_connected(), Err(told), "{remote} {answer:?}");
                }
            }
            assert!(listener.accept().is_none());
            assert_eq!(counts(&world, NetstackId(1)).blocked, [0, 9]);
            set(&mut world, NetstackId(1), Vec::new());
            let client = world.connect(1, 0, remote);
            world.run();
            assert_eq!(client.poll_connected(), Ok(true));
            world.check_conservation();
        }
    }
}
