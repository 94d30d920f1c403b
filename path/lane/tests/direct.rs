//! Segments without text inside a netstack: without packets where nobody would see them, and else with.

use std::sync::Arc;
use std::time::Duration;

use firelane_lane::{
    Control, FusionTuning, LaneMessage, NetstackConfig, NetstackCounters, SocketCommand, StreamInfo,
    TcpCounters,
};
use firelane_socket::{Flags, SocketError, StreamEnd};
use firelane_tcp::{TcpConfig, Willing};
use firelane_units::{Mtu, NetstackId};
use firelane_world::*;
use proptest::prelude::*;

use crate::fusion::{look_on, seen};

const ONE: NetstackId = NetstackId(1);
const REMOTES: [&str; 4] = ["127.0.0.1:80", "10.0.0.1:80", "[::1]:80", "[fd00::1]:80"];

fn anywhere(remote: &str) -> &'static str {
    if remote.starts_with('[') { "[::]:80" } else { "0.0.0.0:80" }
}

/// Two netstacks that have announced their addresses.
fn settled(lanes: u16) -> World {
    let mut world = two_stacks(lanes, Mtu::ETHERNET);
    world.run_for(Duration::from_secs(10));
    world
}

fn tcp(world: &World) -> TcpCounters {
    let mut sum = NetstackCounters::default();
    for counters in world.lanes.iter().filter_map(|lane| lane.netstack_counters(ONE)) {
        sum.merge(&counters);
    }
    sum.tcp
}

fn connections(world: &World) -> usize {
    world.lanes.iter().map(|lane| lane.snapshot().connections).sum()
}

fn info(world: &World, end: &StreamEnd) -> StreamInfo {
    let (lane, conn) = (end.shared().lane(), end.shared().conn().expect("it is in a table"));
    world.lanes[lane.index()].stream_info(world.now, conn).expect("it is there")
}

#[test]
fn a_connection_begins_and_ends_without_a_packet() {
    for lanes in [1, 4] {
        for remote in REMOTES {
            let mut world = settled(lanes);
            let before = world.counters();
            let listener = world.listen(1, 1, anywhere(remote), 8);
            let client = world.connect(1, lanes - 1, remote);
            world.run();
            assert_eq!(client.poll_connected(), Ok(true), "{remote}");
            let accepted = listener.accept().expect("the handshake is over");
            assert_eq!(accepted.names.remote, client.shared().names().unwrap().local);
            assert_eq!(accepted.names.local, remote.parse().unwrap());
            assert!(client.shared().words().flags().contains(Flags::FUSED), "{remote}");
            let counted = tcp(&world);
            assert_eq!((counted.active_opens, counted.passive_opens, counted.established), (1, 1, 2));
            assert_eq!((counted.segments_in, counted.segments_out), (3, 3), "{remote}");
            world.command(&client, SocketCommand::Close);
            world.run();
            assert!(accepted.stream.shared().words().flags().contains(Flags::PEER_CLOSED));
            world.command(&accepted.stream, SocketCommand::Close);
            world.run();
            let counted = tcp(&world);
            assert_eq!(
                (counted.segments_in, counted.segments_out, counted.established),
                (7, 7, 0),
                "{remote}"
            );
            assert_eq!((counted.repeated, counted.attempt_fails, counted.established_resets), (0, 0, 0));
            assert_eq!(connections(&world), 0, "{remote}");
            assert_eq!(world.counters().originated, before.originated, "{remote}");
            world.check_conservation();
        }
    }
}

#[test]
fn who_closes_as_soon_as_he_connects_is_accepted_and_has_ended() {
    for remote in REMOTES {
        let mut world = settled(1);
        let listener = world.listen(1, 1, anywhere(remote), 8);
        let client = world.connect(1, 0, remote);
        world.command(&client, SocketCommand::Close);
        world.run();
        let accepted = listener.accept().expect("the handshake is over").stream;
        assert!(accepted.shared().words().flags().contains(Flags::PEER_CLOSED), "{remote}");
        world.command(&accepted, SocketCommand::Close);
        // Nobody is there.
        let refused = world.connect(1, 0, &remote.replace(":80", ":81"));
        world.command(&refused, SocketCommand::Close);
        world.run();
        assert_eq!((connections(&world), tcp(&world).established_resets), (0, 0), "{remote}");
        world.check_conservation();
    }
}

#[test]
fn many_begin_in_one_turn() {
    let mut world = settled(1);
    let listener = world.listen(1, 1, "0.0.0.0:80", 200);
    let before = world.counters().originated;
    let clients: Vec<StreamEnd> = (0..200).map(|_| world.connect(1, 0, "10.0.0.1:80")).collect();
    world.run();
    assert!(clients.iter().all(|client| client.poll_connected() == Ok(true)));
    assert_eq!(core::iter::from_fn(|| listener.accept()).count(), 200);
    assert_eq!(world.counters().originated, before);
}

#[test]
fn who_looks_on_sees_the_handshake_and_the_end() {
    for lanes in [1, 4] {
        for remote in ["10.0.0.1:80", "[fd00::1]:80"] {
            let mut world = settled(lanes);
            let mut readers = look_on(&mut world, Some(1), &[]);
            let listener = world.listen(1, 1, anywhere(remote), 8);
            let client = world.connect(1, 0, remote);
            world.run();
            let server = listener.accept().unwrap().stream;
            // Each is seen as it is sent and as it is got.
            assert_eq!(seen(&mut readers), [3, 3], "{remote}");
            world.command(&client, SocketCommand::Close);
            world.command(&server, SocketCommand::Close);
            world.run();
            assert!(seen(&mut readers).iter().sum::<usize>() >= 2 * 3, "{remote}");
            assert_eq!(connections(&world), 0);
        }
    }
}

#[test]
fn what_is_not_fused_has_packets() {
    let mut world = settled(1);
    let fusion = FusionTuning { is_on: false, ..FusionTuning::default() };
    let config = NetstackConfig { fusion, ..NetstackConfig::new(ONE) };
    world.all(|| Control::Tune(config.clone()));
    let before = world.counters().originated;
    let listener = world.listen(1, 1, "0.0.0.0:80", 8);
    let client = world.connect(1, 0, "10.0.0.1:80");
    world.run();
    assert!(client.poll_connected() == Ok(true) && listener.accept().is_some());
    assert_eq!(world.counters().originated, before + 3);
}

#[test]
fn nobody_listens_or_the_queue_is_full_as_it_would_be_by_packets() {
    let mut world = settled(1);
    let refused = world.connect(1, 0, "10.0.0.1:80");
    world.run();
    assert_eq!(refused.poll_connected(), Err(SocketError::Refused));
    let listener = world.listen(1, 1, "0.0.0.0:80", 1);
    let clients: Vec<StreamEnd> = (0..4).map(|_| world.connect(1, 0, "10.0.0.1:80")).collect();
    world.run();
    let there = |clients: &[StreamEnd]| clients.iter().filter(|it| it.poll_connected() == Ok(true)).count();
    let begun = there(&clients);
    assert!(begun < 4, "the queue has room for {begun}");
    let mut accepted = Vec::new();
    for _ in 0..4 {
        accepted.extend(core::iter::from_fn(|| listener.accept()));
        // Who was not heard repeats his SYN.
        world.run_for(Duration::from_secs(8));
    }
    accepted.extend(core::iter::from_fn(|| listener.accept()));
    assert_eq!((there(&clients), accepted.len()), (4, 4));
}

#[test]
fn a_listener_that_closes_resets_whom_nobody_has_accepted() {
    let mut world = settled(1);
    let listener = world.listen(1, 1, "0.0.0.0:80", 8);
    let client = world.connect(1, 0, "127.0.0.1:80");
    world.run();
    drop(listener);
    for lane in &mut world.lanes {
        let command = SocketCommand::Unlisten(firelane_units::SocketId(1));
        lane.on_message(world.now, LaneMessage::Socket(ONE, command));
    }
    world.run();
    assert_eq!(client.poll_connected(), Err(SocketError::Reset));
    world.command(&client, SocketCommand::Close);
    world.run();
    assert_eq!(connections(&world), 0);
}

/// What both ends know of each other, whoever looks on elsewhere: without clocks, which the two worlds may have differently.
fn both_ends(config: &TcpConfig, remote: &str, packets: bool) -> Vec<String> {
    let mut world = settled(1);
    let config = NetstackConfig { tcp: Arc::new(config.clone()), ..NetstackConfig::new(ONE) };
    world.all(|| Control::Tune(config.clone()));
    world.run();
    let _readers = packets.then(|| look_on(&mut world, Some(2), &[]));
    let before = world.counters().originated;
    let listener = world.listen(1, 1, anywhere(remote), 8);
    let mut client = world.connect(1, 0, remote);
    world.run();
    let mut server = listener.accept().expect("the handshake is over").stream;
    assert_eq!(world.counters().originated - before, if packets { 3 } else { 0 });
    let ends = |world: &World, client: &StreamEnd, server: &StreamEnd| {
        [client, server].map(|end| format!("{:?}", info(world, end)))
    };
    let mut told = ends(&world, &client, &server).to_vec();
    world.transfer(&mut client, &mut server, &[7; 30_000]);
    told.extend(ends(&world, &client, &server));
    world.command(&client, SocketCommand::Shutdown);
    world.run();
    told.extend(ends(&world, &client, &server));
    world.transfer(&mut server, &mut client, &[8; 30_000]);
    world.command(&server, SocketCommand::Close);
    world.command(&client, SocketCommand::Close);
    world.run();
    assert_eq!(connections(&world), 0);
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Nobody can tell from a connection whether its segments had packets.
    #[test]
    fn ends_that_had_no_packets_know_what_they_would_know(
        timestamps: bool, window_scaling: bool, sack: bool, remote in 0usize..4,
    ) {
        let sack = if sack { Willing::Active } else { Willing::Never };
        let config = TcpConfig { timestamps, window_scaling, sack, ..TcpConfig::default() };
        let [with, without] = [true, false].map(|packets| both_ends(&config, REMOTES[remote], packets));
        for (with, without) in with.iter().zip(&without) {
            prop_assert_eq!(with, without);
        }
    }
}
