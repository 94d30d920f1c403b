//! Whose datagrams go next where several netstacks of a lane have some.

use std::num::NonZeroU8;
use std::time::Duration;

use firelane_ip::DadConfig;
use firelane_lane::{Control, DatagramOption, Idle, LaneMessage, PacketOption, STOP_ABOVE};
use firelane_socket::{DatagramEnd, StreamEnd};
use firelane_units::{BitRate, Family, FlowId, LaneId, Mtu};
use firelane_world::*;

const SERVER: &str = "10.0.0.2:9";
/// As many as a socket may send in a turn.
const RECORDS: usize = 32;

/// Who sent what has come, by the last octet of his address, in order.
fn senders(server: &mut DatagramEnd) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let all = std::iter::from_fn(|| server.recv.recv(&mut buffer).unwrap());
    all.map(|it| it.envelope.peer.to_string().split([':', '.']).nth(3).unwrap().parse().unwrap()).collect()
}

/// A world of three netstacks, in which the second hears and all know each other, and so many sockets of the first.
fn world_with(sockets: u32) -> (World, DatagramEnd, Vec<DatagramEnd>, DatagramEnd) {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    world.add_stack_tested(3, DadConfig::OFF);
    let mut server = world.bind_large(2, 1, "0.0.0.0:9");
    let many = (0..sockets).map(|nth| world.bind(1, 100 + nth, 0, "10.0.0.1:0")).collect();
    let mut one = world.bind(3, 2, 0, "10.0.0.3:0");
    let mut first = world.bind(1, 3, 0, "10.0.0.1:0");
    world.send_to(&mut first, 3, SERVER.parse().unwrap(), b"first");
    world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"first");
    world.run();
    assert_eq!(senders(&mut server).len(), 2, "neighbours are known");
    (world, server, many, one)
}

#[test]
fn who_has_many_sockets_keeps_no_other_netstack_waiting() {
    for bytes in [1, 1_400] {
        let (mut world, mut server, mut many, mut one) = world_with(200);
        for (nth, socket) in many.iter_mut().enumerate() {
            for _ in 0..RECORDS {
                world.send_to(socket, 100 + nth as u32, SERVER.parse().unwrap(), &vec![0; bytes]);
            }
        }
        world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"x");
        world.run();
        let order = senders(&mut server);
        let before = order.iter().position(|&sender| sender == 3);
        assert!(before.is_some_and(|before| before <= 2 * RECORDS), "{before:?} of {}", order.len());
        assert!(order.len() > 2 * RECORDS, "the others go on: {}", order.len());
        world.check_conservation();
    }
}

/// Each makes a frame for every VNIC of the link.
#[test]
fn who_speaks_to_all_keeps_no_other_netstack_waiting() {
    let (mut world, mut server, mut many, mut one) = world_with(2);
    for n in 4..200 {
        world.add_stack_tested(n, DadConfig::OFF);
    }
    let mut copied = world.counters().copied;
    for nth in 0..2 {
        world.set(1, 100 + nth, DatagramOption::Broadcast(true));
        for _ in 0..RECORDS {
            let socket = &mut many[nth as usize];
            world.send_to(socket, 100 + nth, "10.0.0.255:9".parse().unwrap(), b"all");
        }
    }
    world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"x");
    world.run();
    let order = senders(&mut server);
    let before = order.iter().position(|&sender| sender == 3);
    assert!(before.is_some_and(|before| before <= 1), "{before:?} of {}", order.len());
    assert!(order.len() > RECORDS, "the other goes on: {}", order.len());
    copied = world.counters().copied - copied;
    assert!(copied >= RECORDS as u64 * 190, "{copied} copies");
    world.check_conservation();
}

#[test]
fn what_cannot_be_sent_keeps_nothing_behind_it_waiting() {
    let (mut world, mut server, _, mut one) = world_with(0);
    for _ in 0..10 * RECORDS {
        world.send_to(&mut one, 2, "192.168.9.9:9".parse().unwrap(), b"nowhere");
    }
    world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"x");
    world.run();
    assert_eq!(senders(&mut server), [3]);
    world.check_conservation();
}

/// What a limit would charge them does not count.
#[test]
fn what_cannot_be_sent_keeps_nothing_behind_it_waiting_at_a_limit() {
    let (mut world, mut server, _, mut one) = world_with(0);
    world.all(|| Control::SetHome(FlowId(3), Some(LaneId(0))));
    world.all(|| Control::SetMaxbw(FlowId(3), Some(BitRate::from_mbps(2))));
    world.run_for(Duration::from_secs(1));
    for _ in 0..RECORDS - 1 {
        // Its program may not.
        world.send_to(&mut one, 2, "10.0.0.255:9".parse().unwrap(), &[0; 1_400]);
    }
    world.send_to(&mut one, 2, SERVER.parse().unwrap(), &[0; 1_400]);
    world.run_for(Duration::from_millis(5));
    assert_eq!(senders(&mut server), [3]);
    world.check_conservation();
}

/// As a program that looks for a way changes the hops before each (traceroute).
#[test]
fn what_was_sent_before_an_option_is_as_it_was() {
    let (mut world, mut server, _, mut one) = world_with(0);
    for hops in 1..=3 {
        let option = PacketOption::Hops(NonZeroU8::new(hops));
        world.set(3, 2, DatagramOption::Packets(Family::V4, option));
        for _ in 0..3 * RECORDS {
            // Its lane has yet to hear of them.
            assert!(one.send.send(SERVER.parse().unwrap(), b"probe").is_ok());
        }
    }
    world.set(3, 2, DatagramOption::Packets(Family::V4, PacketOption::Hops(None)));
    world.run();
    let mut buffer = [0; 99];
    let come = std::iter::from_fn(|| server.recv.recv(&mut buffer).unwrap());
    let hops: Vec<u8> = come.filter_map(|it| it.envelope.hops).collect();
    assert_eq!(
        hops.chunk_by(|a, b| a == b).map(|all| (all[0], all.len())).collect::<Vec<_>>(),
        [(1, 96), (2, 96), (3, 96)]
    );
}

fn turn(world: &mut World) {
    let now = world.now;
    world.lanes[0].turn(now, Idle::Sleeps);
}

/// Programs write on meanwhile, and devices and messages wait.
#[test]
fn a_turn_of_the_lane_ends_whatever_there_is_to_send() {
    const MOST: usize = 1 << 20;
    let (mut world, mut server, _, _) = world_with(0);
    let mut many: Vec<DatagramEnd> = (0..64).map(|n| world.bind_large(1, 500 + n, "10.0.0.1:0")).collect();
    for (nth, socket) in many.iter_mut().enumerate() {
        for _ in 0..100 {
            world.send_to(socket, 500 + nth as u32, SERVER.parse().unwrap(), &[0; 1_400]);
        }
    }
    let before = world.udp(1).sent;
    turn(&mut world);
    let sent = 1_400 * (world.udp(1).sent - before) as usize;
    assert!(sent > MOST / 16 && sent < MOST, "{sent} bytes in a turn");
    world.run();
    assert!(!senders(&mut server).is_empty());

    let listener = world.listen(2, 7, "10.0.0.2:81", 64);
    let mut pairs: Vec<(StreamEnd, StreamEnd)> = Vec::new();
    for _ in 0..64 {
        let client = world.connect(1, 0, "10.0.0.2:81");
        world.run();
        pairs.push((client, listener.accept().expect("the handshake is over").stream));
    }
    let text = vec![7; 1 << 20];
    let written: usize = pairs.iter_mut().map(|(client, _)| world.write(client, &text).unwrap()).sum();
    assert!(written > 2 * MOST, "{written}");
    turn(&mut world);
    let come: usize = pairs.iter().map(|(_, server)| server.recv.available()).sum();
    assert!(come > MOST / 16 && come < MOST, "{come} bytes in a turn");
    world.check_conservation();
}

/// How many frames wait for the second lane.
fn handed(world: &World) -> usize {
    let frames = |(lane, message): &(LaneId, LaneMessage<_>)| match message {
        LaneMessage::Frames(frames) if *lane == LaneId(1) => frames.chain.len(),
        _ => 0,
    };
    world.mail.messages.iter().map(frames).sum()
}

/// A turn of the first lane, of which the second one has yet to hear.
fn turn_alone(world: &mut World) {
    turn(world);
    assert!(!world.lanes[0].empty_outbox(&mut world.mail));
}

/// A lane that is slower than programs of another send gets no more of it than of devices: what else it has to do, as to begin a
/// connection, waits behind that alone.
#[test]
fn what_another_lane_has_not_taken_is_bounded_and_goes_on_when_it_has() {
    for (netstack, host) in [(1, "10.0.0.1"), (2, "10.0.0.2")] {
        let mut world = two_stacks(2, Mtu::ETHERNET);
        let mut sender = world.bind(1, 1, 0, "10.0.0.1:0");
        let is_there = |end: &DatagramEnd| end.send.shared().lane() == LaneId(1);
        let bind = |port| world.bind(netstack, u32::from(port), 1, &format!("{host}:{port}"));
        let mut receiver = (100..200u16).map(bind).find(is_there).expect("one in two is");
        let peer = receiver.send.shared().local().unwrap();
        world.send_to(&mut sender, 1, peer, b"first");
        world.run();
        assert_eq!(senders(&mut receiver), [1], "the neighbour is known");

        for _ in 0..100 {
            while world.offer_to(&mut sender, 1, peer, &[0; 64]) {}
            turn_alone(&mut world);
            assert!(handed(&world) <= 2 * STOP_ABOVE, "{} frames wait", handed(&world));
        }
        assert!(handed(&world) > STOP_ABOVE, "{}", handed(&world));

        for (lane, message) in std::mem::take(&mut world.mail.messages) {
            world.lanes[lane.index()].on_message(world.now, message);
        }
        assert!(!world.lanes[1].empty_outbox(&mut world.mail));
        assert!(world.mail.woken.contains(&LaneId(0)), "it is called");
        turn_alone(&mut world);
        assert!(handed(&world) > 0, "it goes on");
        world.run();
        assert!(world.offer_to(&mut sender, 1, peer, &[0; 64]), "all have left");
        world.check_conservation();
    }
}
