//! Local ports run out, and come back (R07 of the attack list; RFC 6056, RFC 6191).

use std::collections::HashSet;
use std::time::Duration;

use firelane_lane::{Control, LinkConfig, NetstackConfig, PortUser, SocketCommand};
use firelane_socket::{SocketError, StreamEnd};
use firelane_tcp::TcpConfig;
use firelane_units::{FlowId, LinkId, Mtu, NetstackId};
use firelane_world::*;

const PORTS: std::ops::RangeInclusive<u16> = 50_000..=50_003;

/// Two netstacks, of which the first has four local ports.
fn few_ports(timestamps: bool) -> World {
    let mut world = World::new(1);
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: Mtu::ETHERNET }));
    for n in 1..=2u8 {
        let id = NetstackId(n.into());
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        let tcp = std::sync::Arc::new(TcpConfig { timestamps, ..TcpConfig::default() });
        let config = NetstackConfig { steering, tcp_ports: PORTS, tcp, ..NetstackConfig::new(id) };
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
