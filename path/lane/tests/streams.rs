//! Connections between two netstacks of one process, over an etherstub, with one, two and four lanes.

use std::time::Duration;

use firelane_frame::PoolsConfig;
use firelane_lane::{Connect, Control, Idle, LaneMessage, SocketCommand, StreamInfo, StreamOptions};
use firelane_socket::{
    ConnRef, Flags, ReadError, Ready, SocketError, SocketToken, StreamEnd, WriteError, stream,
};
use firelane_units::{BitRate, FlowId, LaneId, LinkId, Mtu, NetstackId};
use firelane_world::*;

const REMOTES: [(&str, &str); 2] = [("10.0.0.2:80", "10.0.0.2:80"), ("[fd00::2]:80", "[fd00::2]:80")];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + (n >> 8)) as u8).collect()
}

/// A connection from stack 1, opened in `lane`, to a listener of stack 2.
fn connected(world: &mut World, lane: u16, listen: &str, remote: &str) -> (StreamEnd, StreamEnd) {
    let listener = world.listen(2, u32::from(lane), listen, 8);
    let client = world.connect(1, lane, remote);
    // A limit may hold even the handshake.
    world.run_for(Duration::from_millis(10));
    assert_eq!(client.poll_connected(), Ok(true));
    let accepted = listener.accept().expect("the handshake is over");
    assert_eq!(accepted.names.remote, client.shared().names().unwrap().local);
    (client, accepted.stream)
}

#[test]
fn bytes_travel_both_ways_and_the_end_is_seen() {
    for lanes in [1, 2, 4] {
        for (listen, remote) in REMOTES {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            let (mut client, mut server) = connected(&mut world, lanes - 1, listen, remote);
            assert_eq!(client.shared().lane(), LaneId(lanes - 1));
            world.transfer(&mut client, &mut server, &pattern(1_000_000));
            world.transfer(&mut server, &mut client, &pattern(300_000));
            world.command(&client, SocketCommand::Shutdown);
            world.run();
            let mut byte = [0];
            assert_eq!(world.read(&mut server, &mut byte), Ok(0));
            world.command(&server, SocketCommand::Close);
            world.run();
            assert_eq!(world.read(&mut client, &mut byte), Ok(0));
            world.check_conservation();
            let (connections, waiting) = (sum(&world, |s| s.connections), sum(&world, |s| s.time_wait));
            assert_eq!((connections, waiting), (0, 1), "who closed first waits");
            world.run_for(Duration::from_secs(70));
            assert_eq!(sum(&world, |s| s.time_wait), 0);
        }
    }
}

/// What a netstack sends to itself waits for nothing: no time passes here.
#[test]
fn a_netstack_opens_a_connection_to_itself_at_once() {
    for (listen, remote) in
        [("0.0.0.0:80", "127.0.0.1:80"), ("10.0.0.1:80", "10.0.0.1:80"), ("[::]:80", "[fd00::1]:80")]
    {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let listener = world.listen(1, 1, listen, 8);
        world.run();
        let mut client = world.connect(1, 0, remote);
        // Whoever runs the command inline goes no further than this; the worker is woken for what is left.
        let left = world.lanes[0].settle(world.now);
        assert!(left || client.poll_connected() == Ok(true), "{remote}: nobody would go on");
        world.run();
        assert_eq!(client.poll_connected(), Ok(true), "{remote}");
        let mut server = listener.accept().expect("the handshake is over").stream;
        assert_eq!(world.write(&mut client, b"x"), Ok(1));
        world.run();
        let mut byte = [0];
        assert_eq!(world.read(&mut server, &mut byte), Ok(1));
        world.check_conservation();
    }
}

/// How many packets an exchange of a byte for a byte takes, if the program answers between two turns or does not.
#[test]
fn an_answer_before_the_next_turn_carries_the_ack() {
    let originated = |world: &World| world.counters().originated;
    for (answers, packets) in [(false, 2), (true, 3)] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let (mut client, mut server) = connected(&mut world, 0, REMOTES[0].0, REMOTES[0].1);
        let before = originated(&world);
        assert_eq!(client.send.write(&[7]), Ok(1));
        let conn = client.shared().conn().expect("it is connected");
        let (now, netstack) = (world.now, NetstackId(1));
        world.lanes[0].on_message(now, LaneMessage::Kick { netstack, conn });
        let sleep = world.lanes[0].turn(now, Idle::Sleeps);
        assert!(sleep.work_left, "the ACK leaves in the next turn, which comes at once");
        assert_eq!(originated(&world) - before, 1);
        if answers {
            let mut byte = [0];
            assert_eq!(world.read(&mut server, &mut byte), Ok(1));
            assert_eq!(world.write(&mut server, &byte), Ok(1));
        }
        world.run();
        assert_eq!(originated(&world) - before, packets);
        assert_eq!(client.recv.available(), usize::from(answers));
        world.check_conservation();
    }
}

fn sum(world: &World, of: impl Fn(&firelane_lane::Snapshot) -> usize) -> usize {
    world.lanes.iter().map(|lane| of(&lane.snapshot())).sum()
}

#[test]
fn nobody_listens() {
    let mut world = two_stacks(2, Mtu::ETHERNET);
    let client = world.connect(1, 0, "10.0.0.2:81");
    world.run();
    assert_eq!(client.poll_connected(), Err(SocketError::Refused));
    assert_eq!(sum(&world, |s| s.connections), 0);
    world.check_conservation();
}

/// No time passes here: resets to others are limited by the second.
#[test]
fn who_connects_to_his_own_netstack_is_refused_as_often_as_he_tries() {
    for remote in ["127.0.0.1:81", "10.0.0.1:81", "[::1]:81"] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let clients: Vec<StreamEnd> = (0..500).map(|_| world.connect(1, 0, remote)).collect();
        world.run();
        assert!(clients.iter().all(|it| it.poll_connected() == Err(SocketError::Refused)), "{remote}");
    }
}

#[test]
fn nobody_answers() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let client = world.connect(1, 0, "10.0.0.77:80");
    world.run_for(Duration::from_secs(400));
    // As on Linux: nobody has the address, which says more than "timed out" (RFC 9293 MUST-47).
    assert_eq!(client.poll_connected(), Err(SocketError::HostUnreachable));
    world.check_conservation();
}

#[test]
fn a_reset_reaches_the_other_side() {
    let mut world = two_stacks(2, Mtu::ETHERNET);
    let (client, mut server) = connected(&mut world, 1, "10.0.0.2:80", "10.0.0.2:80");
    world.command(&client, SocketCommand::Abort);
    world.run();
    let mut byte = [0];
    assert_eq!(world.read(&mut server, &mut byte), Err(ReadError::Failed(SocketError::Reset)));
    assert_eq!(world.write(&mut server, b"x"), Err(WriteError::Closed));
    assert_eq!(sum(&world, |s| s.connections + s.time_wait), 0);
}

/// As in Linux, which sends what is written there and then: the reset comes behind it.
#[test]
fn what_was_written_before_a_close_with_unread_text_arrives_before_the_reset() {
    for lanes in [1, 2] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let (mut client, mut server) = connected(&mut world, lanes - 1, "10.0.0.2:80", "10.0.0.2:80");
        assert_eq!(world.write(&mut server, b"nobody reads this"), Ok(17));
        world.run();
        // No lane has a turn between the two.
        assert_eq!(world.write(&mut client, b"end"), Ok(3));
        world.command(&client, SocketCommand::Close);
        world.run();
        let mut text = [0; 9];
        assert_eq!((world.read(&mut server, &mut text), &text[..3]), (Ok(3), &b"end"[..]));
        assert_eq!(world.read(&mut server, &mut text), Err(ReadError::Failed(SocketError::Reset)));
        assert_eq!(sum(&world, |s| s.connections + s.time_wait), 0);
    }
}

#[test]
fn what_nobody_accepts_goes_with_its_listener() {
    let mut world = two_stacks(2, Mtu::ETHERNET);
    let listener = world.listen(2, 5, "10.0.0.2:80", 8);
    let clients: Vec<StreamEnd> = (0..2).map(|lane| world.connect(1, lane, "10.0.0.2:80")).collect();
    world.run();
    drop(listener);
    for lane in &mut world.lanes {
        let command = SocketCommand::Unlisten(firelane_units::SocketId(5));
        let netstack = firelane_units::NetstackId(2);
        lane.on_message(world.now, firelane_lane::LaneMessage::Socket(netstack, command));
    }
    world.run();
    for client in &clients {
        assert!(client.shared().words().flags().contains(Flags::CLOSED));
    }
    assert_eq!(sum(&world, |s| s.connections), 0);
}

/// However many wait, others are served between.
#[test]
fn of_many_that_nobody_accepts_some_go_in_each_turn() {
    const WAIT: usize = 1_000;
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let listener = world.listen(2, 5, "10.0.0.2:80", WAIT);
    let mut clients: Vec<StreamEnd> = Vec::new();
    while clients.len() < WAIT {
        clients.push(world.connect(1, 0, "10.0.0.2:80"));
        world.run();
    }
    let closed = |clients: &[StreamEnd]| {
        clients.iter().filter(|client| client.shared().words().flags().contains(Flags::CLOSED)).count()
    };
    drop(listener);
    let command = SocketCommand::Unlisten(firelane_units::SocketId(5));
    let message = firelane_lane::LaneMessage::Socket(firelane_units::NetstackId(2), command);
    world.lanes[0].on_message(world.now, message);
    // What a peer says meanwhile is for nobody, and its connection ends all the same.
    assert_eq!(world.write(&mut clients[WAIT - 1], b"text"), Ok(4));
    let (mut before, mut turns) = (0, 0);
    while before < WAIT {
        let now = world.now;
        world.lanes[0].turn(now, firelane_lane::Idle::Sleeps);
        let after = closed(&clients);
        assert!(after > before && after - before <= 130, "{before}, then {after}");
        (before, turns) = (after, turns + 1);
    }
    assert!(turns > 5, "{turns}");
    world.run();
    assert_eq!(sum(&world, |s| s.connections), 0);
    world.check_conservation();
}

#[test]
fn who_comes_before_lanes_hear_of_a_close_is_refused() {
    for lanes in [1, 2] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        drop(world.listen(2, 5, "10.0.0.2:80", 8));
        let late = world.connect(1, lanes - 1, "10.0.0.2:80");
        world.run();
        assert_eq!(late.poll_connected(), Err(SocketError::Refused));
        assert_eq!(sum(&world, |s| s.connections), 0);
        world.check_conservation();
    }
}

#[test]
fn many_connections_spread_over_the_lanes() {
    let mut world = two_stacks(4, Mtu::ETHERNET);
    let listener = world.listen(2, 1, "10.0.0.2:80", 128);
    let mut clients: Vec<StreamEnd> = (0..100).map(|n| world.connect(1, n % 4, "10.0.0.2:80")).collect();
    world.run();
    let mut servers = Vec::new();
    while let Some(accepted) = listener.accept() {
        servers.push(accepted);
    }
    assert_eq!(servers.len(), 100);
    let mut in_lane = [0; 4];
    for accepted in &mut servers {
        in_lane[accepted.stream.shared().lane().index()] += 1;
        let client =
            clients.iter_mut().find(|c| c.shared().names().unwrap().local == accepted.names.remote).unwrap();
        world.transfer(client, &mut accepted.stream, &pattern(5000));
    }
    assert_eq!(in_lane, [25; 4], "both ends hash alike");
    world.check_conservation();
}

/// Bytes that arrive in one second of a transfer that never ends, with `mbps` on the VNIC of stack `limited`.
fn bytes_in_a_second(lanes: u16, limited: u32, mbps: u64) -> (u64, World) {
    let mut world = two_stacks(lanes, Mtu::ETHERNET);
    let flow = FlowId(limited);
    world.all(|| Control::SetHome(flow, Some(LaneId(0))));
    world.all(|| Control::SetMaxbw(flow, Some(BitRate::from_mbps(mbps))));
    let (mut client, mut server) = connected(&mut world, 0, "10.0.0.2:80", "10.0.0.2:80");
    let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
    let chunk = pattern(1 << 16);
    let end = world.now + Duration::from_secs(1);
    while world.now < end {
        while world.write(&mut client, &chunk).is_ok() {}
        let until = world.run();
        while let Ok(count @ 1..) = world.read(&mut server, &mut buffer) {
            got += count as u64;
        }
        world.now = until.expect("a limited sender waits for its limit").min(end);
    }
    world.check_conservation();
    (got, world)
}

#[test]
fn a_limited_sender_waits_and_loses_nothing() {
    for mbps in [2, 50, 1000] {
        let (bytes, world) = bytes_in_a_second(1, 1, mbps);
        let promised = mbps * 1_000_000 / 8;
        let share = bytes as f64 / promised as f64;
        // Headers take 66 of 1,514 bytes.
        assert!((0.93..=0.965).contains(&share), "{mbps} Mb/s: {bytes} bytes, {share}");
        assert_eq!(world.counters().drops.total(), 0);
    }
}

#[test]
fn a_limited_receiver_holds_and_drops_and_its_sender_adapts() {
    for (lanes, mbps) in [(1, 20), (1, 200), (2, 50)] {
        let (bytes, _) = bytes_in_a_second(lanes, 2, mbps);
        let share = bytes as f64 / (mbps * 1_000_000 / 8) as f64;
        assert!((0.80..=0.965).contains(&share), "{lanes} lanes, {mbps} Mb/s: {bytes} bytes, {share}");
    }
}

#[test]
fn a_netstack_that_ends_takes_its_connections_along() {
    let mut world = two_stacks(2, Mtu::ETHERNET);
    let (client, mut server) = connected(&mut world, 1, "10.0.0.2:80", "10.0.0.2:80");
    let mut datagrams = world.bind(1, 9, 0, "10.0.0.1:9");
    world.all(|| Control::RemoveNetstack(NetstackId(1)));
    world.run();
    assert!(client.shared().words().flags().contains(Flags::CLOSED));
    assert_eq!(datagrams.recv.recv(&mut []), Err(SocketError::Aborted));
    assert_eq!(world.read(&mut server, &mut [0]), Err(ReadError::Failed(SocketError::Reset)));
    assert_eq!(sum(&world, |s| s.connections), 0);
    world.check_conservation();
}

#[test]
fn a_connection_without_a_way_sleeps_until_its_time_is_up() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let (mut client, _server) = connected(&mut world, 0, "10.0.0.2:80", "10.0.0.2:80");
    world.all(|| Control::RemovePort(LinkId(1)));
    world.write(&mut client, b"hello?").unwrap();
    let turns = world.counters().turns;
    world.run_for(Duration::from_secs(400));
    assert!(world.counters().turns - turns < 500, "{} turns", world.counters().turns - turns);
    assert_eq!(client.recv.read(&mut [0]), Err(ReadError::Failed(SocketError::TimedOut)));
}

/// A handshake, a transfer each way and a close with frames as few as that: how many packets it took.
fn life_with(pools: PoolsConfig) -> u64 {
    let mut world = stacks_in(World::with_pools(1, pools), Mtu::ETHERNET);
    let listener = world.listen(2, 0, REMOTES[0].0, 8);
    let mut client = world.connect(1, 0, REMOTES[0].1);
    world.run_for(Duration::from_secs(30));
    assert_eq!(client.poll_connected(), Ok(true), "{pools:?}");
    let mut server = listener.accept().expect("the handshake is over").stream;
    world.transfer(&mut client, &mut server, &pattern(60_000));
    world.transfer(&mut server, &mut client, &pattern(20_000));
    world.command(&client, SocketCommand::Close);
    world.command(&server, SocketCommand::Close);
    world.run_for(Duration::from_secs(120));
    world.check_conservation();
    assert_eq!((sum(&world, |s| s.connections), sum(&world, |s| s.time_wait)), (0, 0));
    world.counters().originated
}

/// R14: memory may run out at any frame of a connection's life. What that takes away is made up for; no byte is lost, and
/// nothing stays behind. Two frames are the least: one waits for the neighbour that the other asks for.
#[test]
fn r14_frames_that_run_out_anywhere_change_packets_and_nothing_else() {
    let plenty = life_with(PoolsConfig { small_slots: 8192, large_slots: 256 });
    let mut others = 0;
    for small_slots in 2..24 {
        for large_slots in 0..3 {
            others += usize::from(life_with(PoolsConfig { small_slots, large_slots }) != plenty);
        }
    }
    assert!(others > 20, "memory was short {others} times");
}

/// A program may close its socket while its lane is still busy with something else: the connection ends as soon as it is made.
#[test]
fn a_close_before_the_connection_is_made_ends_it() {
    for remote in [REMOTES[0].1, "10.0.0.77:80", "192.0.2.1:80"] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let _listener = world.listen(2, 0, REMOTES[0].0, 8);
        let (end, slot) = stream(RINGS, LaneId(0), NetstackId(1));
        let closed = end.share();
        assert_eq!(closed.get().conn(), None);
        drop(end);
        world.connect_with(1, 0, remote, slot);
        let close = LaneMessage::Socket(NetstackId(1), SocketCommand::CloseUnmade(closed));
        let now = world.now;
        world.lanes[0].on_message(now, close);
        world.run_for(Duration::from_millis(100));
        assert_eq!(sum(&world, |s| s.connections), 0, "{remote}");
        world.check_conservation();
    }
}

/// What is known of a connection outlives it for as long as its program has the socket, and not after that, however it ended.
#[test]
fn what_was_known_at_the_end_is_told_until_the_socket_is_closed() {
    let told = |world: &World, end: &StreamEnd| {
        let conn = end.shared().conn().expect("it was in a table");
        world.lanes[end.shared().lane().index()].stream_info(world.now, conn)
    };
    type Ending = fn(ConnRef) -> SocketCommand;
    // How the client ends, and whether it has the socket after that.
    let endings: [(Ending, bool); 3] =
        [(SocketCommand::Close, false), (SocketCommand::Abort, true), (SocketCommand::Shutdown, true)];
    for remote in ["10.0.0.2:80", "10.0.0.1:80"] {
        for (how, has_socket) in endings {
            for has_unread in [false, true] {
                let mut world = two_stacks(2, Mtu::ETHERNET);
                world.run_for(Duration::from_secs(10));
                let server = if remote.contains(".2:") { 2 } else { 1 };
                let listener = world.listen(server, 1, "0.0.0.0:80", 8);
                let mut client = world.connect(1, 0, remote);
                world.run();
                let mut accepted = listener.accept().expect("the handshake is over").stream;
                world.transfer(&mut client, &mut accepted, &[7; 3_000]);
                if has_unread {
                    world.write(&mut accepted, b"nobody reads this").unwrap();
                    world.run();
                    let _ = world.write(&mut client, b"nor this");
                }
                world.command(&client, how);
                world.run();
                world.command(&accepted, SocketCommand::Shutdown);
                world.run_for(Duration::from_secs(1));
                let info = told(&world, &client).filter(StreamInfo::has_ended);
                assert_eq!(
                    info.map(|it| it.tcp.bytes_acknowledged.0 >= 3_000),
                    has_socket.then_some(true),
                    "{remote}"
                );
                let info = told(&world, &accepted).filter(StreamInfo::has_ended);
                assert!(info.is_some_and(|it| it.tcp.bytes_received.0 >= 3_000), "{remote} {has_unread}");
                for end in [&client, &accepted] {
                    world.command(end, SocketCommand::Close);
                    world.run();
                    assert_eq!(told(&world, end), None, "{remote} {has_unread}");
                }
            }
        }
    }
}

/// Connects from an address that the program names.
fn connect_from(world: &mut World, local: &str, remote: &str) -> StreamEnd {
    let (end, slot) = stream(RINGS, LaneId(0), NetstackId(1));
    let [local, remote] = [local, remote].map(|it| it.parse().expect("an address and a port"));
    let connect = Connect { remote, local: Some(local), stream: slot, options: StreamOptions::default() };
    let message = LaneMessage::Socket(NetstackId(1), SocketCommand::Connect(Box::new(connect)));
    world.lanes[0].on_message(world.now, message);
    end
}

/// RFC 9293 MUST-43 to MUST-45: an open may name the local address, otherwise IP chooses it, and it stays the connection's when IP
/// would choose another one.
#[test]
fn a_connection_keeps_the_address_that_was_named_or_chosen() {
    // Of IPv4 addresses that suit equally the first is chosen, of IPv6 the last.
    for (remote, second, chosen, named, later) in [
        ("10.0.0.2:80", "10.0.0.11", "10.0.0.1", "10.0.0.11", "10.0.0.3/29"),
        ("[fd00::2]:80", "fd00::11", "fd00::11", "fd00::1", "fd00::3/126"),
    ] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let add = |world: &mut World, address: &str| {
            let address = address.parse().expect("a prefix");
            world.all(|| Control::AddAddress(NetstackId(1), LinkId(1), address));
            world.run_for(Duration::from_secs(10));
        };
        let is_v4 = remote.starts_with('1');
        add(&mut world, &format!("{second}/{}", if is_v4 { 24 } else { 64 }));
        let listener = world.listen(2, 1, if is_v4 { "0.0.0.0:80" } else { "[::]:80" }, 8);
        let open = |world: &mut World, local: Option<&str>| {
            let client = match local {
                Some(local) => connect_from(world, local, remote),
                None => world.connect(1, 0, remote),
            };
            world.run_for(Duration::from_millis(100));
            assert_eq!(client.poll_connected(), Ok(true), "{local:?} to {remote}");
            let accepted = listener.accept().expect("the handshake is over");
            (client, accepted.stream, accepted.names.remote.ip().to_string())
        };
        let bound = if is_v4 { format!("{named}:0") } else { format!("[{named}]:0") };
        let (mut client, mut server, from) = open(&mut world, None);
        let (mut other, mut its_server, other_from) = open(&mut world, Some(&bound));
        assert_eq!((from.as_str(), other_from.as_str()), (chosen, named), "IP would choose the other one");
        add(&mut world, later);
        assert_eq!(
            open(&mut world, None).2,
            later.split('/').next().unwrap(),
            "whoever begins now has another one"
        );
        for (client, server) in [(&mut client, &mut server), (&mut other, &mut its_server)] {
            world.transfer(client, server, &pattern(100_000));
            world.transfer(server, client, &pattern(100_000));
        }
    }
}

/// A program may begin something while its netstack is removed; it must not wait for ever.
#[test]
fn who_waits_for_a_netstack_that_is_gone_is_told() {
    for lanes in [1, 2] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let listener = world.listen(1, 1, "0.0.0.0:80", 8);
        listener.words().set_token(SocketToken(5));
        listener.words().wait_for(Ready::READABLE);
        world.all(|| Control::RemoveNetstack(NetstackId(1)));
        assert!(listener.words().flags().contains(Flags::CLOSED));
        world.run();
        assert!(world.mail.ready.contains(&(SocketToken(5), Ready::ALL)), "{:?}", world.mail.ready);
        let client = world.connect(1, lanes - 1, "10.0.0.2:80");
        assert_eq!(client.poll_connected(), Err(SocketError::Aborted));
        let datagrams = world.bind_large(1, 2, "10.0.0.1:9");
        let words = datagrams.send.shared().words();
        assert_eq!((words.error(), words.flags()), (Some(SocketError::Aborted), Flags::CLOSED));
        let late = world.listen(1, 3, "0.0.0.0:81", 8);
        assert!(late.words().flags().contains(Flags::CLOSED));
    }
}
