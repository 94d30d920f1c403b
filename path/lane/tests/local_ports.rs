//! Local ports run out, and come back (R07 of the attack list; RFC 6056, RFC 6191).

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use firelane_lane::{Control, Idle, LaneMessage, LinkConfig, NetstackConfig, PortUser, SocketCommand};
use firelane_socket::{Flags, ListenerEnd, SocketError, StreamEnd, stream};
use firelane_tcp::TcpConfig;
use firelane_units::{FlowId, LaneId, LinkId, Mtu, NetstackId, SocketId};
use firelane_world::*;

const PORTS: RangeInclusive<u16> = 50_000..=50_003;
/// More than a message looks at, many times.
const MANY: RangeInclusive<u16> = 50_000..=53_999;

/// Two netstacks, of which the first has four local ports.
fn few_ports(timestamps: bool) -> World {
    with_ports(1, PORTS, timestamps)
}

/// The same with so many lanes and these ports.
fn with_ports(lanes: u16, tcp_ports: RangeInclusive<u16>, timestamps: bool) -> World {
    let mut world = World::new(lanes);
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: Mtu::ETHERNET }));
    for n in 1..=2u8 {
        let id = NetstackId(n.into());
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        let tcp = std::sync::Arc::new(TcpConfig { timestamps, ..TcpConfig::default() });
        let config =
            NetstackConfig { steering, tcp_ports: tcp_ports.clone(), tcp, ..NetstackConfig::new(id) };
        world.all(|| Control::AddNetstack(config.clone()));
        let (link, flow) = (LinkId(n.into()), FlowId(n.into()));
        world.add_flow(plain_flow(flow, link, None, None));
        world.add_port(vnic(link.0, 0, n, flow.0, PortUser::Netstack(id)), vec![]);
        let address = format!("10.0.0.{n}/24").parse().expect("a prefix");
        world.all(|| Control::AddAddress(id, link, address));
    }
    world
}

fn port(end: &StreamEnd) -> u16 {
    end.shared().names().expect("it has its addresses").local.port()
}

/// Opens as many as there are ports, and one too many.
fn open_all(world: &mut World, to: &str) -> Vec<StreamEnd> {
    let clients: Vec<StreamEnd> = PORTS.map(|_| world.connect(1, 0, to)).collect();
    world.run();
    let ports: HashSet<u16> = clients.iter().map(port).collect();
    assert_eq!((ports.len(), ports.iter().all(|port| PORTS.contains(port))), (PORTS.len(), true));
    let late = world.connect(1, 0, to);
    world.run();
    assert_eq!(late.poll_connected(), Err(SocketError::NoPort));
    clients
}

#[test]
fn r07_ports_in_use_are_refused_by_name_and_those_in_time_wait_come_back() {
    for (timestamps, rest) in [(true, Duration::from_secs(2)), (false, Duration::from_secs(62))] {
        let mut world = few_ports(timestamps);
        let listener = world.listen(2, 1, "10.0.0.2:80", 64);
        let clients = open_all(&mut world, "10.0.0.2:80");
        let elsewhere = world.connect(1, 0, "10.0.0.2:81");
        world.run();
        assert_eq!(elsewhere.poll_connected(), Err(SocketError::Refused), "another peer has its own ports");
        for client in &clients {
            world.command(client, SocketCommand::Close);
        }
        world.run();
        let servers: Vec<StreamEnd> =
            std::iter::from_fn(|| listener.accept()).map(|accepted| accepted.stream).collect();
        for server in &servers {
            world.command(server, SocketCommand::Close);
        }
        world.run();
        let snapshot = world.lanes[0].snapshot();
        assert_eq!((snapshot.connections, snapshot.time_wait), (0, PORTS.len()));
        let early = world.connect(1, 0, "10.0.0.2:80");
        world.run();
        assert_eq!(early.poll_connected(), Err(SocketError::NoPort), "they have just closed");
        world.run_for(rest);
        let again = open_all(&mut world, "10.0.0.2:80");
        assert!(again.iter().all(|client| client.poll_connected() == Ok(true)));
        world.check_conservation();
    }
}

/// A drawn port that is the one connected to would make a simultaneous open of one socket with itself.
#[test]
fn nobody_is_connected_with_himself_by_a_port_that_he_has_drawn() {
    let mut world = few_ports(true);
    for _ in 0..3 * PORTS.len() {
        let alone = world.connect(1, 0, "10.0.0.1:50001");
        world.run();
        assert_eq!(alone.poll_connected(), Err(SocketError::Refused));
    }
    world.check_conservation();
}

/// Of a netstack with itself nothing old is under way: whoever has closed first, or both at once, the ports are there for the next
/// connections, and those work.
#[test]
fn r07_ports_of_connections_with_oneself_come_back_at_once() {
    for (timestamps, client_first, server_first) in
        [true, false].into_iter().flat_map(|it| [(it, true, false), (it, false, true), (it, true, true)])
    {
        let mut world = few_ports(timestamps);
        let listener = world.listen(1, 0, "10.0.0.1:80", 64);
        for round in 0..4 {
            let mut clients = open_all(&mut world, "10.0.0.1:80");
            let mut servers: Vec<StreamEnd> =
                std::iter::from_fn(|| listener.accept()).map(|accepted| accepted.stream).collect();
            let which = (round, timestamps, client_first, server_first);
            assert_eq!(servers.len(), PORTS.len(), "{which:?}");
            for (from, to) in servers.iter_mut().zip(&mut clients) {
                assert_eq!(world.write(from, b"x"), Ok(1));
                world.run();
                assert_eq!(world.read(to, &mut [0]), Ok(1));
            }
            let close = |world: &mut World, ends: &[StreamEnd]| {
                ends.iter().for_each(|end| world.command(end, SocketCommand::Close));
            };
            if client_first {
                close(&mut world, &clients);
            }
            if server_first {
                close(&mut world, &servers);
            } else {
                world.run();
                close(&mut world, &servers);
            }
            world.run();
            close(&mut world, &clients);
            world.run();
            let snapshot = world.lanes[0].snapshot();
            assert_eq!((snapshot.connections, snapshot.time_wait), (0, 0), "{which:?}");
        }
        world.check_conservation();
    }
}

/// A world all of whose many ports to a listener of the same netstack are taken.
fn all_taken() -> (World, ListenerEnd, Vec<StreamEnd>) {
    let mut world = with_ports(1, MANY, true);
    let listener = world.listen(1, 0, "10.0.0.1:80", MANY.len());
    let clients: Vec<StreamEnd> = MANY
        .map(|_| {
            let client = world.connect(1, 0, "10.0.0.1:80");
            world.run();
            client
        })
        .collect();
    // The last ones were hard to find.
    assert!(clients.iter().all(|client| client.poll_connected() == Ok(true)));
    (world, listener, clients)
}

fn turn(world: &mut World) {
    let now = world.now;
    world.lanes[0].turn(now, Idle::Sleeps);
    world.exchange();
}

/// Closes both ends of a connection of a netstack with itself.
fn end(world: &mut World, listener: &ListenerEnd, client: &StreamEnd) {
    let server = loop {
        let server = listener.accept().expect("it is there").stream;
        if server.shared().names().unwrap().remote.port() == port(client) {
            break server;
        }
    };
    for end in [client, &server] {
        world.command(end, SocketCommand::Close);
    }
}

/// R07: the search for a port is no work of one piece, and is not done again for whoever asks again.
#[test]
fn r07_a_search_for_a_port_takes_its_turns_and_what_came_of_it_is_remembered() {
    let (mut world, listener, clients) = all_taken();
    let late = world.connect(1, 0, "10.0.0.1:80");
    let mut turns = 0;
    let told = loop {
        let told = late.poll_connected();
        if told != Ok(false) {
            break told;
        }
        turns += 1;
        assert!(turns < 100, "the search never ends");
        turn(&mut world);
    };
    assert_eq!(told, Err(SocketError::NoPort));
    assert!((MANY.len() / 256 - 1..=MANY.len() / 256 + 1).contains(&turns), "{turns} turns");
    for _ in 0..1000 {
        let again = world.connect(1, 0, "10.0.0.1:80");
        assert_eq!(again.poll_connected(), Err(SocketError::NoPort), "it is known");
    }
    let elsewhere = world.connect(1, 0, "10.0.0.1:81");
    world.run();
    assert_eq!(elsewhere.poll_connected(), Err(SocketError::Refused), "another peer has its own ports");
    end(&mut world, &listener, &clients[1234]);
    world.run();
    let next = world.connect(1, 0, "10.0.0.1:80");
    world.run();
    assert_eq!((next.poll_connected(), port(&next)), (Ok(true), port(&clients[1234])));
    // A moment later it is looked for again.
    world.run_for(Duration::from_secs(1));
    let late = world.connect(1, 0, "10.0.0.1:80");
    world.run();
    assert_eq!(late.poll_connected(), Err(SocketError::NoPort));
    world.check_conservation();
}

#[test]
fn r07_who_waits_for_a_search_gets_the_ports_that_come_free_meanwhile_and_nobody_is_forgotten() {
    let (mut world, listener, clients) = all_taken();
    let mut waiting: Vec<StreamEnd> = (0..600).map(|_| world.connect(1, 0, "10.0.0.1:80")).collect();
    // Others do not wait for it.
    let elsewhere = world.connect(1, 0, "10.0.0.1:81");
    assert!(elsewhere.shared().conn().is_some());
    turn(&mut world);
    assert!(waiting.iter().all(|it| it.poll_connected() == Ok(false)), "they are looking");
    end(&mut world, &listener, &clients[77]);
    let first = waiting.remove(0);
    world.run();
    assert_eq!((first.poll_connected(), port(&first)), (Ok(true), port(&clients[77])));
    assert!(waiting.iter().all(|it| it.poll_connected() == Err(SocketError::NoPort)));
    world.check_conservation();
}

#[test]
fn r07_who_is_closed_while_its_port_is_searched_takes_none() {
    let (mut world, listener, clients) = all_taken();
    let connections = world.lanes[0].snapshot().connections;
    let (left, stays) = (world.connect(1, 0, "10.0.0.1:80"), world.connect(1, 0, "10.0.0.1:80"));
    let close = LaneMessage::Socket(NetstackId(1), SocketCommand::CloseUnmade(left.share()));
    let now = world.now;
    world.lanes[0].on_message(now, close);
    end(&mut world, &listener, &clients[5]);
    world.run();
    assert_eq!(left.poll_connected(), Err(SocketError::Aborted));
    assert_eq!((stays.poll_connected(), port(&stays)), (Ok(true), port(&clients[5])));
    assert_eq!(world.lanes[0].snapshot().connections, connections);
    // Nor does one whose netstack ends.
    let waits = world.connect(1, 0, "10.0.0.1:80");
    assert_eq!(waits.poll_connected(), Ok(false));
    world.all(|| Control::RemovePort(LinkId(1)));
    world.all(|| Control::RemoveNetstack(NetstackId(1)));
    assert_eq!(waits.poll_connected(), Err(SocketError::Aborted));
    world.run();
    world.check_conservation();
}

/// A lane has the ports whose segments arrive there, so the ports of a netstack are those of all of its lanes.
#[test]
fn what_one_lane_has_no_port_for_goes_to_the_next() {
    const SOME: RangeInclusive<u16> = 50_000..=50_031;
    for lanes in [1, 2, 3] {
        let mut world = with_ports(lanes, SOME, true);
        let listener = world.listen(2, 1, "10.0.0.2:80", 64);
        let clients: Vec<StreamEnd> = SOME
            .map(|_| {
                let client = world.connect(1, lanes - 1, "10.0.0.2:80");
                world.run();
                client
            })
            .collect();
        assert!(clients.iter().all(|it| it.poll_connected() == Ok(true)), "{lanes} lanes");
        let ports: HashSet<u16> = clients.iter().map(port).collect();
        assert_eq!(ports.len(), SOME.len());
        let there: HashSet<LaneId> = clients.iter().map(|it| it.shared().lane()).collect();
        assert_eq!(there.len(), usize::from(lanes), "each of them has some");
        for lane in 0..lanes {
            let late = world.connect(1, lane, "10.0.0.2:80");
            world.run();
            assert_eq!(late.poll_connected(), Err(SocketError::NoPort), "{lane} of {lanes} lanes");
        }
        // They are connections like any other.
        for mut client in clients {
            let mut server = listener.accept().expect("it is there").stream;
            world.transfer(&mut server, &mut client, b"to and fro");
            assert_eq!(server.shared().names().unwrap().remote, client.shared().names().unwrap().local);
        }
        world.check_conservation();
    }
}

/// Where the netstack itself listens no port is drawn, until it does no more.
#[test]
fn r07_a_port_that_was_listened_on_comes_back_at_once() {
    let mut world = few_ports(true);
    let _listener = world.listen(2, 1, "10.0.0.2:80", 64);
    let own = world.listen(1, 5, "10.0.0.1:50001", 1);
    let held: Vec<StreamEnd> = PORTS.skip(1).map(|_| world.connect(1, 0, "10.0.0.2:80")).collect();
    let late = world.connect(1, 0, "10.0.0.2:80");
    world.run();
    assert_eq!(late.poll_connected(), Err(SocketError::NoPort));
    drop(own);
    let unlisten = LaneMessage::Socket(NetstackId(1), SocketCommand::Unlisten(SocketId(5)));
    let now = world.now;
    world.lanes[0].on_message(now, unlisten);
    let next = world.connect(1, 0, "10.0.0.2:80");
    world.run();
    assert_eq!((next.poll_connected(), port(&next), held.len()), (Ok(true), 50_001, 3));
    world.check_conservation();
}

/// Whoever closes a socket while its connection goes from lane to lane has closed it, wherever the lanes hear of it first.
#[test]
fn who_is_closed_between_two_lanes_is_closed() {
    let one = PORTS.end() - PORTS.start() + 1;
    for tells in 0..4 {
        let mut world = with_ports(2, PORTS, true);
        let _listener = world.listen(2, 1, "10.0.0.2:80", 64);
        // All that lead to the first lane.
        let mut held = Vec::new();
        let (end, close) = loop {
            let (end, slot) = stream(RINGS, LaneId(0), NetstackId(1));
            let close = LaneMessage::Socket(NetstackId(1), SocketCommand::CloseUnmade(end.share()));
            world.connect_with(1, 0, "10.0.0.2:80", slot);
            if end.shared().conn().is_none() {
                break (end, close);
            }
            held.push(end);
            assert!(held.len() < usize::from(one), "the other lane has some");
        };
        let now = world.now;
        let tell = |world: &mut World, lane: usize, close| world.lanes[lane].on_message(now, close);
        let expected = match tells {
            // In front of the connection, or behind it on its way.
            0 => {
                tell(&mut world, 1, close);
                world.exchange();
                Some(Err(SocketError::Aborted))
            }
            1 => {
                tell(&mut world, 0, close);
                world.exchange();
                Some(Err(SocketError::Aborted))
            }
            // When it is made.
            2 => {
                world.exchange();
                assert_eq!(end.shared().lane(), LaneId(1));
                tell(&mut world, 0, close);
                None
            }
            _ => {
                world.exchange();
                tell(&mut world, 1, close);
                None
            }
        };
        assert!(expected.is_none_or(|expected| end.poll_connected() == expected), "{tells}");
        world.run_for(Duration::from_secs(1));
        assert!(end.shared().words().flags().contains(Flags::CLOSED), "{tells}");
        let connections: usize = world.lanes.iter().map(|lane| lane.snapshot().connections).sum();
        assert_eq!(connections, 2 * held.len(), "nothing but the others is left: {tells}");
        world.check_conservation();
    }
}
