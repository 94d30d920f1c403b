//! Filters of single sockets: who may begin a connection with a listener, and whose datagrams a socket gets.

use std::sync::Arc;
use std::time::Duration;

use firelane_filter::{FOREVER, FilterConfig, FilterCounts, FilterSetup, PoolChange};
use firelane_lane::*;
use firelane_socket::SocketError;
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterAddresses, FilterRule, LinkId, Mtu, NetstackId,
    SocketId,
};
use firelane_world::*;

const SERVER: NetstackId = NetstackId(2);
const SOCKET: SocketId = SocketId(9);

/// Blocks what comes, in this way.
fn block(answer: BlockAnswer) -> FilterRule<LinkId> {
    FilterRule::new(Direction::In, FilterAction::Block(answer))
}

fn set(world: &mut World, rules: Vec<FilterRule<LinkId>>) {
    let config = Arc::new(FilterSetup::new(FilterConfig { rules, pools: Vec::new() }, (1, 2)));
    for lane in &mut world.lanes {
        let command = SocketCommand::Filter(SOCKET, Arc::clone(&config));
        lane.on_message(world.now, LaneMessage::Socket(SERVER, command));
    }
    world.run();
}

fn counts(world: &World) -> FilterCounts {
    let mut sum = FilterCounts::default();
    let counted = world.lanes.iter().filter_map(|lane| lane.socket_filter_counts(SERVER, SOCKET));
    counted.for_each(|counted| sum.merge(&counted));
    sum
}

fn drops(world: &World) -> u64 {
    world.counters().drops.of(DropReason::FilterSocket)
}

#[test]
fn a_listener_hears_only_of_those_whom_its_rules_let_in_and_others_as_they_say() {
    let icmp = BlockAnswer::Icmp { code: 13, as_dest: false };
    for lanes in [1, 4] {
        for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
            for (answer, told) in [
                (BlockAnswer::Silent, Ok(false)),
                (BlockAnswer::Reset, Err(SocketError::Refused)),
                (icmp, Err(SocketError::HostUnreachable)),
            ] {
                let mut world = two_stacks(lanes, Mtu::ETHERNET);
                let listener = world.listen(2, SOCKET.0, remote, 8);
                let other = world.listen(2, 10, &remote.replace(":80", ":81"), 8);
                set(&mut world, vec![block(answer)]);
                let client = world.connect(1, 0, remote);
                world.run_for(Duration::from_millis(50));
                assert_eq!(client.poll_connected(), told, "{remote} {answer:?}");
                assert!(listener.accept().is_none());
                assert_eq!((drops(&world), counts(&world).blocked), (1, [1, 0]));
                // Another socket's peers are not asked about, and cost nothing.
                let neighbour = world.connect(1, 0, &remote.replace(":80", ":81"));
                world.run();
                assert_eq!(neighbour.poll_connected(), Ok(true));
                assert!(other.accept().is_some());
                assert_eq!(counts(&world).rules[0].packets, 1);
                world.check_conservation();
            }
        }
    }
}

#[test]
fn a_connection_that_has_begun_is_not_asked_about_again() {
    for lanes in [1, 4] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let listener = world.listen(2, SOCKET.0, "10.0.0.2:80", 8);
        let mut client = world.connect(1, 0, "10.0.0.2:80");
        world.run();
        set(&mut world, vec![block(BlockAnswer::Reset)]);
        // It waits to be accepted, and does not hear of the new rules.
        let mut server = listener.accept().expect("the handshake is over").stream;
        world.transfer(&mut client, &mut server, &vec![7; 200_000]);
        world.transfer(&mut server, &mut client, &vec![8; 200_000]);
        let late = world.connect(1, 0, "10.0.0.2:80");
        world.run();
        assert_eq!(late.poll_connected(), Err(SocketError::Refused));
        set(&mut world, Vec::new());
        let later = world.connect(1, 0, "10.0.0.2:80");
        world.run();
        assert_eq!(later.poll_connected(), Ok(true));
        assert_eq!((drops(&world), counts(&world)), (1, FilterCounts::default()));
        world.check_conservation();
    }
}

#[test]
fn who_connects_from_the_same_netstack_is_asked_about_too() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let _listener = world.listen(2, SOCKET.0, "0.0.0.0:80", 8);
    set(&mut world, vec![block(BlockAnswer::Reset)]);
    for remote in ["127.0.0.1:80", "10.0.0.2:80"] {
        let client = world.connect(2, 0, remote);
        world.run();
        assert_eq!(client.poll_connected(), Err(SocketError::Refused), "{remote}");
    }
    assert_eq!(drops(&world), 2);
    world.check_conservation();
}

#[test]
fn a_datagram_socket_gets_what_its_rules_let_in() {
    let mut world = two_stacks(2, Mtu::ETHERNET);
    let mut sender = world.bind(1, 5, 0, "10.0.0.1:4000");
    let mut receiver = world.bind(2, SOCKET.0, 0, "10.0.0.2:53");
    let mut bytes = [0; 99];
    for (rules, is_heard, dropped) in [
        (vec![block(BlockAnswer::Silent)], false, 1),
        (vec![block(BlockAnswer::Silent), FilterRule::new(Direction::In, FilterAction::Pass)], true, 1),
        (Vec::new(), true, 1),
        (vec![block(BlockAnswer::Silent)], false, 2),
    ] {
        set(&mut world, rules);
        world.send_to(&mut sender, 5, "10.0.0.2:53".parse().unwrap(), b"hello");
        world.run();
        assert_eq!(matches!(receiver.recv.recv(&mut bytes), Ok(Some(_))), is_heard);
        assert_eq!(drops(&world), dropped);
        world.check_conservation();
    }
}

#[test]
fn rules_name_the_link_by_which_somebody_comes() {
    for lanes in [1, 3] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let _listener = world.listen(2, SOCKET.0, "0.0.0.0:80", 8);
        for (link, told) in [(2, Err(SocketError::Refused)), (1, Ok(true))] {
            set(&mut world, vec![FilterRule { link: Some(LinkId(link)), ..block(BlockAnswer::Reset) }]);
            let client = world.connect(1, 0, "10.0.0.2:80");
            world.run();
            assert_eq!(client.poll_connected(), told, "link {link}, {lanes} lanes");
        }
        world.check_conservation();
    }
}

#[test]
fn rules_name_the_pools_of_the_netstack_as_they_are_just_now() {
    let change = |network: &str, until| PoolChange {
        pool: 7,
        network: network.parse().unwrap(),
        until,
        is_exception: false,
        group: None,
    };
    for lanes in [1, 3] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let _listener = world.listen(2, SOCKET.0, "10.0.0.2:80", 8);
        let mut rule = block(BlockAnswer::Reset);
        rule.matching.from.addresses = FilterAddresses::Pool(7);
        set(&mut world, vec![rule.clone()]);
        let connected = |world: &mut World| {
            let client = world.connect(1, 0, "10.0.0.2:80");
            world.run();
            client.poll_connected()
        };
        assert_eq!(connected(&mut world), Ok(true), "a pool that nobody made is empty");
        for (until, told) in [(Some(FOREVER), Err(SocketError::Refused)), (None, Ok(true))] {
            let changes: Arc<[_]> = [change("10.0.0.0/24", until)].into();
            world.all(|| Control::ChangePools(SERVER, Arc::clone(&changes)));
            assert_eq!(connected(&mut world), told, "{until:?}");
        }
        let changes: Arc<[_]> = [change("10.0.0.0/24", Some(FOREVER))].into();
        world.all(|| Control::ChangePools(SERVER, Arc::clone(&changes)));
        // A pool of its own is in front of the netstack's, also without anybody in it.
        let config = FilterConfig { rules: vec![rule], pools: vec![(7, Vec::new())] };
        let config = Arc::new(FilterSetup::new(config, (1, 2)));
        for lane in &mut world.lanes {
            let command = SocketCommand::Filter(SOCKET, Arc::clone(&config));
            lane.on_message(world.now, LaneMessage::Socket(SERVER, command));
        }
        assert_eq!(connected(&mut world), Ok(true));
        world.check_conservation();
    }
}

#[test]
fn a_filter_ends_with_its_socket() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    for _ in 0..3 {
        let listener = world.listen(2, SOCKET.0, "10.0.0.2:80", 8);
        assert_eq!(counts(&world), FilterCounts::default());
        set(&mut world, vec![block(BlockAnswer::Silent)]);
        assert_eq!(counts(&world).rules.len(), 1);
        let command = LaneMessage::Socket(SERVER, SocketCommand::Unlisten(SOCKET));
        world.lanes[0].on_message(world.now, command);
        drop(listener);
        world.run();
    }
}
