//! What a lane tells of its sockets, and tunables that change while connections run.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use firelane_lane::{Control, NetstackConfig, PLACES_PER_ANSWER, SocketCommand, SocketKind, SocketRow};
use firelane_socket::StreamEnd;
use firelane_tcp::{State, TcpConfig};
use firelane_units::{Mtu, NetstackId};
use firelane_world::*;

/// Connections from stack 1 to a listener of stack 2, opened in every lane in turn.
fn connections(world: &mut World, lanes: u16, count: u16) -> Vec<(StreamEnd, StreamEnd)> {
    let listener = world.listen(2, 1, "[::]:80", 1000);
    let mut clients = Vec::new();
    for n in 0..count {
        clients.push(world.connect(1, n % lanes, "10.0.0.2:80"));
        // A neighbour that is not known yet keeps few frames.
        if n % 32 == 0 {
            world.run_for(Duration::from_millis(5));
        }
    }
    world.run_for(Duration::from_millis(50));
    let mut servers: Vec<_> = std::iter::from_fn(|| listener.accept()).map(|it| it.stream).collect();
    assert_eq!(servers.len(), usize::from(count));
    let pair = |client: StreamEnd| {
        let names = client.shared().names().unwrap();
        let at = servers.iter().position(|it| it.shared().names().unwrap().remote == names.local).unwrap();
        (client, servers.swap_remove(at))
    };
    let pairs = clients.into_iter().map(pair).collect();
    std::mem::forget(listener);
    pairs
}

fn states(rows: &[SocketRow], state: State) -> Vec<(SocketAddr, SocketAddr)> {
    let ends = |row: &SocketRow| match &row.what {
        SocketKind::Connection(it) if it.info.state == state => Some((row.local, row.remote?)),
        _ => None,
    };
    rows.iter().filter_map(ends).collect()
}

#[test]
fn every_socket_is_told_once_in_bounded_answers() {
    for lanes in [1, 2, 4] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let pairs = connections(&mut world, lanes, 700);
        let datagrams = world.bind(2, 9, 0, "10.0.0.2:53");
        // Every tenth client closes first, and both ends finish: a record in TIME-WAIT remains.
        for (client, server) in pairs.iter().step_by(10) {
            world.command(client, SocketCommand::Shutdown);
            world.run();
            world.command(server, SocketCommand::Close);
            world.run();
            world.command(client, SocketCommand::Close);
        }
        world.run();
        let mut rows = Vec::new();
        for lane in 0..lanes {
            let (some, answers) = world.ask(lane, None);
            assert!(answers >= some.len().div_ceil(PLACES_PER_ANSWER as usize), "{answers} answers");
            rows.extend(some);
        }
        let established = states(&rows, State::Established);
        assert_eq!(established.len(), 2 * 630, "{lanes} lanes");
        assert_eq!(established.iter().collect::<BTreeSet<_>>().len(), 2 * 630, "each once");
        let count = |wanted: fn(&SocketKind) -> bool| rows.iter().filter(|row| wanted(&row.what)).count();
        assert_eq!(count(|it| matches!(it, SocketKind::TimeWait { .. })), 70);
        assert_eq!(count(|it| matches!(it, SocketKind::Listener { waiting: 0, backlog: 1000 })), 1);
        assert_eq!(count(|it| matches!(it, SocketKind::Datagram)), 1);
        let of_one: usize =
            (0..lanes).map(|lane| states(&world.ask(lane, Some(1)).0, State::Established).len()).sum();
        assert_eq!(of_one, 630, "one netstack's alone");
        assert!(world.ask(0, Some(77)).0.is_empty());
        drop(datagrams);
    }
}

/// Numbers of sockets only rise. Who asks after a day of short ones goes through those that there are, as memory is for those alone.
#[test]
fn sockets_that_have_been_cost_nothing() {
    for lanes in [1, 2] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let (listener, many) = (world.listen(2, 100_000, "[::]:80", 8), 100_001);
        let mut last = world.bind(2, many, 0, "10.0.0.2:53");
        let mut client = world.bind(1, many, 0, "10.0.0.1:0");
        world.send_to(&mut client, many, "10.0.0.2:53".parse().unwrap(), b"who?");
        let stream = world.connect(1, 0, "10.0.0.2:80");
        world.run();
        assert!(matches!(last.recv.recv(&mut [0; 9]), Ok(Some(_))));
        assert_eq!((stream.poll_connected(), listener.accept().is_some()), (Ok(true), true));
        let (mut rows, mut answers) = (0, 0);
        for lane in 0..lanes {
            let (some, more) = world.ask(lane, Some(2));
            (rows, answers) = (rows + some.len(), answers + more);
        }
        assert_eq!(rows, 3, "a listener, a connection and a datagram socket");
        assert!(answers <= 8 * usize::from(lanes), "{answers} answers of {PLACES_PER_ANSWER} places");
    }
}

#[test]
fn queues_and_numbers_are_those_of_the_connection() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let (mut client, server) = connections(&mut world, 1, 1).remove(0);
    world.write(&mut client, &[7; 5000]).unwrap();
    world.run_for(Duration::from_millis(100));
    let local = client.shared().names().unwrap().local;
    let (rows, _) = world.ask(0, None);
    let row = |is_client: bool| {
        let mine = rows.iter().find(|row| row.remote.is_some() && (row.local == local) == is_client).unwrap();
        match &mine.what {
            SocketKind::Connection(row) => *row,
            other => panic!("{other:?}"),
        }
    };
    let (sender, receiver) = (row(true), row(false));
    assert_eq!((sender.send_queue, receiver.receive_queue), (0, 5000), "all arrived, nothing is read");
    assert_eq!(sender.info.bytes_acknowledged.0, 5000);
    assert_eq!(receiver.info.bytes_received.0, 5000);
    let ([snxt, suna, ..], [.., rnxt, rack]) = (sender.sequence, receiver.sequence);
    assert_eq!((snxt, suna), (rnxt, rack), "what one has sent, the other has");
    drop(server);
}

#[test]
fn running_connections_follow_changed_tunables_a_few_at_a_time() {
    for lanes in [1, 4] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let pairs = connections(&mut world, lanes, 600);
        let floor = Duration::from_secs(5);
        let rtos = |world: &mut World, netstack: u16| -> Vec<Duration> {
            let rows = (0..lanes).flat_map(|lane| world.ask(lane, Some(netstack)).0).collect::<Vec<_>>();
            let rto = |row: &SocketRow| match &row.what {
                SocketKind::Connection(it) => Some(it.info.rto),
                _ => None,
            };
            rows.iter().filter_map(rto).collect()
        };
        assert!(rtos(&mut world, 1).iter().all(|rto| *rto < floor));
        let mut tcp = TcpConfig::default();
        tcp.flight.rto = firelane_tcp::rtt::RtoLimits::new(floor, floor, Duration::from_secs(60));
        let config = NetstackConfig { tcp: Arc::new(tcp), ..NetstackConfig::new(NetstackId(1)) };
        world.all(|| Control::Tune(config.clone()));
        world.run();
        assert_eq!(
            rtos(&mut world, 1).iter().filter(|rto| **rto >= floor).count(),
            600,
            "every connection of it"
        );
        assert!(rtos(&mut world, 2).iter().all(|rto| *rto < floor), "and of no other netstack");
        drop(pairs);
    }
}

#[test]
fn a_shorter_time_wait_is_that_of_who_closes_next() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let pairs = connections(&mut world, 1, 2);
    let close = |world: &mut World, n: usize| {
        world.command(&pairs[n].0, SocketCommand::Close);
        world.run();
        world.command(&pairs[n].1, SocketCommand::Close);
        world.run();
    };
    close(&mut world, 0);
    let config = NetstackConfig { time_wait: Duration::from_secs(5), ..NetstackConfig::new(NetstackId(1)) };
    world.all(|| Control::Tune(config.clone()));
    close(&mut world, 1);
    let waiting = |world: &World| world.lanes[0].snapshot().time_wait;
    assert_eq!(waiting(&world), 2);
    world.run_for(Duration::from_secs(8));
    assert_eq!(waiting(&world), 1, "the younger is gone");
    world.run_for(Duration::from_secs(60));
    assert_eq!(waiting(&world), 0);
}
