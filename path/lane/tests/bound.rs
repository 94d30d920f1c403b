//! Sockets that speak over one link alone (SO_BINDTODEVICE): two netstacks that meet on two networks.

use std::net::IpAddr;
use std::time::Duration;

use firelane_frame::Envelope;
use firelane_ip::SourceFilter;
use firelane_lane::{
    Bind, Connect, Control, DatagramKind, DatagramOption, Join, LaneMessage, LinkConfig, Listen,
    PacketOption, PortUser, Relisten, RouteConfig, Sharing, SocketCommand, StreamOptions,
};
use firelane_socket::{
    DatagramEnd, ListenerEnd, ReadError, SocketError, StreamEnd, datagram, listener, stream,
};
use firelane_units::{Family, FlowId, LaneId, LinkId, Mtu, NetstackId, SocketId};
use firelane_world::*;

/// The second network's links: its own, and each netstack's VNIC.
const BESIDE: LinkId = LinkId(10);
const OVER_BESIDE: [LinkId; 2] = [LinkId(11), LinkId(12)];

/// Netstacks 1 and 2 are at 10.0.0.1 and .2 on one network (VNICs 1 and 2), and at 10.0.1.1 and .2 on another.
fn two_networks(lanes: u16) -> World {
    let mut world = two_stacks(lanes, Mtu::ETHERNET);
    world.all(|| Control::AddLink(LinkConfig { link: BESIDE, mtu: Mtu::ETHERNET }));
    for (n, link) in [(1, OVER_BESIDE[0]), (2, OVER_BESIDE[1])] {
        world.add_flow(plain_flow(FlowId(link.0), link, None, None));
        let user = PortUser::Netstack(NetstackId(n));
        world.add_port(vnic(link.0, BESIDE.0, link.0 as u8, link.0, user), vec![]);
        let address = format!("10.0.1.{n}/24").parse().unwrap();
        world.all(|| Control::AddAddress(NetstackId(n), link, address));
    }
    world
}

fn over(link: Option<LinkId>) -> StreamOptions {
    StreamOptions { link, ..StreamOptions::default() }
}

fn listening(world: &mut World, socket: u32, link: Option<LinkId>, backlog: usize) -> ListenerEnd {
    listening_at(world, socket, ("0.0.0.0:80", link, false), backlog)
}

fn listening_at(
    world: &mut World,
    socket: u32,
    (local, link, shares): (&str, Option<LinkId>, bool),
    backlog: usize,
) -> ListenerEnd {
    let (end, slot) = listener(backlog);
    let (local, options) = (local.parse().unwrap(), over(link));
    let (rings, socket) = (RINGS, SocketId(socket));
    let listen = Listen { socket, local, v6_only: false, shares, slot, rings, options };
    for lane in &mut world.lanes {
        let command = SocketCommand::Listen(Box::new(listen.clone()));
        lane.on_message(world.now, LaneMessage::Socket(NetstackId(2), command));
    }
    end
}

/// A connection of netstack `from` begins.
fn begins(world: &mut World, from: u16, link: Option<LinkId>, remote: &str) -> StreamEnd {
    let (end, slot) = stream(RINGS, LaneId(0), NetstackId(from));
    let connect = Connect { remote: remote.parse().unwrap(), local: None, stream: slot, options: over(link) };
    let command = SocketCommand::Connect(Box::new(connect));
    world.lanes[0].on_message(world.now, LaneMessage::Socket(NetstackId(from), command));
    end
}

/// A connection of netstack `from`; what became of it.
fn connects(world: &mut World, from: u16, link: Option<LinkId>, remote: &str) -> (StreamEnd, Option<bool>) {
    let end = begins(world, from, link, remote);
    world.run_for(Duration::from_millis(100));
    let outcome = end.poll_connected().ok();
    (end, outcome)
}

#[test]
fn a_listener_hears_what_comes_by_its_link() {
    for lanes in [1, 2] {
        let mut world = two_networks(lanes);
        let passive = listening(&mut world, 1, Some(OVER_BESIDE[1]), 8);
        // From outside, and what the netstack sends to itself, which comes by the link that has the address.
        for from in [1, 2] {
            for (remote, outcome) in [("10.0.1.2:80", Some(true)), ("10.0.0.2:80", None)] {
                let (_client, told) = connects(&mut world, from, None, remote);
                assert_eq!(told, outcome, "{lanes} lanes, {from} to {remote}");
                assert_eq!(passive.accept().is_some(), outcome.is_some(), "{from} to {remote}");
            }
        }
        // Told later that it hears all.
        for lane in &mut world.lanes {
            let all = Box::new(Relisten { rings: RINGS, options: over(None) });
            let command = SocketCommand::Relisten(SocketId(1), all);
            lane.on_message(world.now, LaneMessage::Socket(NetstackId(2), command));
        }
        assert_eq!(connects(&mut world, 1, None, "10.0.0.2:80").1, Some(true));
        world.check_conservation();
    }
}

/// One listener for each device at one port (SO_REUSEPORT): each hears what comes by its own.
#[test]
fn listeners_that_share_hear_what_comes_by_their_links() {
    for lanes in [1, 2] {
        let mut world = two_networks(lanes);
        let at = |world: &mut World, n, link| listening_at(world, n, ("0.0.0.0:80", Some(link), true), 32);
        let listeners = [at(&mut world, 1, LinkId(2)), at(&mut world, 2, OVER_BESIDE[1])];
        for (remote, nth) in [("10.0.0.2:80", 0), ("10.0.1.2:80", 1)] {
            for from in [1, 2].repeat(8) {
                assert_eq!(connects(&mut world, from, None, remote).1, Some(true), "{remote} from {from}");
                assert!(listeners[nth].accept().is_some(), "{remote} from {from}");
            }
        }
        world.check_conservation();
    }
}

/// The same without sharing: no connection is for both.
#[test]
fn listeners_of_different_links_have_one_port() {
    for lanes in [1, 2] {
        let mut world = two_networks(lanes);
        let at = |world: &mut World, n, link| listening_at(world, n, ("0.0.0.0:80", Some(link), false), 32);
        let listeners = [at(&mut world, 1, LinkId(2)), at(&mut world, 2, OVER_BESIDE[1])];
        for (remote, nth) in [("10.0.0.2:80", 0), ("10.0.1.2:80", 1)] {
            for from in [1, 2] {
                assert_eq!(connects(&mut world, from, None, remote).1, Some(true), "{remote} from {from}");
                assert!(listeners[nth].accept().is_some(), "{remote} from {from}");
            }
        }
        // One is told that it keeps to none: it has what no other one keeps to.
        for lane in &mut world.lanes {
            let all = Box::new(Relisten { rings: RINGS, options: over(None) });
            let command = SocketCommand::Relisten(SocketId(1), all);
            lane.on_message(world.now, LaneMessage::Socket(NetstackId(2), command));
        }
        for (remote, nth) in [("10.0.0.2:80", 0), ("10.0.1.2:80", 1)] {
            assert_eq!(connects(&mut world, 1, None, remote).1, Some(true), "{remote}");
            assert!(listeners[nth].accept().is_some(), "{remote}");
        }
        world.check_conservation();
    }
}

/// Who listens at one address by another link alone leaves what comes by this one to who listens at all.
#[test]
fn a_listener_that_does_not_hear_a_link_hides_no_other() {
    let mut world = two_networks(1);
    let one = listening_at(&mut world, 1, ("10.0.0.2:80", Some(OVER_BESIDE[1]), false), 8);
    let all = listening(&mut world, 2, None, 8);
    for from in [1, 2] {
        assert_eq!(connects(&mut world, from, None, "10.0.0.2:80").1, Some(true));
        assert!(all.accept().is_some() && one.accept().is_none());
    }
}

#[test]
fn a_connection_keeps_to_its_link_whatever_routes_say_and_after_it_has_rested() {
    for lanes in [1, 2] {
        let mut world = two_networks(lanes);
        let passive = listening(&mut world, 1, None, 8);
        // Nobody there has the address.
        assert_eq!(connects(&mut world, 1, Some(LinkId(1)), "10.0.1.2:80").1, Some(false));
        let (mut client, told) = connects(&mut world, 1, Some(OVER_BESIDE[0]), "10.0.1.2:80");
        assert_eq!(told, Some(true));
        let mut server = passive.accept().unwrap().stream;
        // From now on others are led to a station that is not there.
        let dead = RouteConfig::via("10.0.1.2/32".parse().unwrap(), "10.0.0.99".parse().unwrap());
        for round in 0..2 {
            world.transfer(&mut client, &mut server, &[round; 20_000]);
            world.transfer(&mut server, &mut client, &[round; 20_000]);
            if round == 0 {
                world.all(|| Control::AddRoute(NetstackId(1), dead));
            }
            world.run_for(Duration::from_secs(10));
        }
        world.transfer(&mut client, &mut server, b"still there");
        assert_eq!(connects(&mut world, 1, None, "10.0.1.2:80").1, Some(false));
    }
}

/// A datagram socket of netstack 1 that speaks over one of its links alone.
fn datagrams_over(
    world: &mut World,
    kind: DatagramKind,
    socket: u32,
    local: &str,
    link: LinkId,
) -> DatagramEnd {
    let (end, slot) = datagram(1 << 16, 1 << 16, LaneId(0), NetstackId(1));
    let bind = Bind {
        socket: SocketId(socket),
        local: local.parse().unwrap(),
        v6_only: false,
        sharing: Sharing::default(),
        remote: None,
        kind,
        link: Some(link),
        slot,
    };
    let command = SocketCommand::Bind(Box::new(bind));
    world.lanes[0].on_message(world.now, LaneMessage::Socket(NetstackId(1), command));
    end
}

/// What a netstack sends to a group, or to everybody on a network, its own sockets hear as what came by the link that it left by.
#[test]
fn who_is_bound_to_a_link_hears_what_his_own_netstack_sends_there_to_many() {
    let mut world = two_networks(1);
    let group = "239.1.1.1".parse().unwrap();
    let mut members = [(1, OVER_BESIDE[0]), (2, LinkId(1))].map(|(n, link)| {
        let end = datagrams_over(&mut world, DatagramKind::Udp, n, "0.0.0.0:5353", link);
        let join = Join { socket: SocketId(n), group, link: Some(link), filter: SourceFilter::any() };
        let command = SocketCommand::Join(Box::new(join));
        world.lanes[0].on_message(world.now, LaneMessage::Socket(NetstackId(1), command));
        end
    });
    let mut sender = datagrams_over(&mut world, DatagramKind::Udp, 3, "0.0.0.0:0", OVER_BESIDE[0]);
    world.set(1, 3, DatagramOption::Broadcast(true));
    for to in ["239.1.1.1:5353", "10.0.1.255:5353", "255.255.255.255:5353"] {
        world.send_msg(&mut sender, 3, Envelope::to(to.parse().unwrap()), b"x");
        world.run_for(Duration::from_millis(100));
        let heard = members.each_mut().map(|end| end.recv.recv(&mut [0; 8]).unwrap());
        let by = heard.map(|got| got.map(|it| (it.envelope.link, it.envelope.peer.ip())));
        assert_eq!(by, [Some((Some(OVER_BESIDE[0]), "10.0.1.1".parse().unwrap())), None], "{to}");
    }
    world.check_conservation();
}

/// IP_MULTICAST_IF of ip(7): the address by which a link is named is the source of what goes to a group, where the socket has no other.
#[test]
fn what_goes_to_a_group_comes_from_the_address_that_names_the_link() {
    let mut world = two_networks(1);
    for address in ["10.0.1.7/24", "10.0.1.8/24"] {
        world.all(|| Control::AddAddress(NetstackId(1), OVER_BESIDE[0], address.parse().unwrap()));
    }
    let mut member = world.bind_large(2, 1, "0.0.0.0:5353");
    let (group, filter) = ("239.1.1.1".parse().unwrap(), SourceFilter::any());
    let join = Join { socket: SocketId(1), group, link: Some(OVER_BESIDE[1]), filter };
    let command = SocketCommand::Join(Box::new(join));
    world.lanes[0].on_message(world.now, LaneMessage::Socket(NetstackId(2), command));
    let (to_group, to_one) =
        (Envelope::to("239.1.1.1:5353".parse().unwrap()), Envelope::to("10.0.1.2:5353".parse().unwrap()));
    let beside = Envelope { local: "10.0.1.8".parse().ok(), ..to_group };
    let said = |source: &str| PacketOption::MulticastLink(Some(OVER_BESIDE[0]), source.parse().ok());
    for (nth, (name, source, envelope, from)) in [
        ("0.0.0.0:0", "10.0.1.7", to_group, "10.0.1.7"),
        ("[::]:0", "10.0.1.7", to_group, "10.0.1.7"),
        ("10.0.1.8:0", "10.0.1.7", to_group, "10.0.1.8"),
        ("0.0.0.0:0", "10.0.1.7", beside, "10.0.1.8"),
        ("0.0.0.0:0", "", to_group, "10.0.1.1"),
        ("0.0.0.0:0", "10.0.1.7", to_one, "10.0.1.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let socket = 2 + nth as u32;
        let mut sender = world.bind_large(1, socket, name);
        world.set(1, socket, DatagramOption::Packets(Family::V4, said(source)));
        world.send_msg(&mut sender, socket, envelope, b"x");
        world.run_for(Duration::from_millis(100));
        let got = member.recv.recv(&mut [0; 8]).unwrap();
        assert_eq!(got.map(|it| it.envelope.peer.ip()), from.parse().ok(), "{nth}");
        if name == "0.0.0.0:0" {
            let local = world.connect_datagrams(1, socket, Some(&envelope.peer.to_string())).unwrap();
            let from = if envelope == beside { source } else { from };
            assert_eq!(local.ip(), from.parse::<IpAddr>().unwrap(), "{nth}");
        }
    }
    world.check_conservation();
}

#[test]
fn who_is_bound_to_a_link_hears_the_echo_of_its_own_address() {
    let mut world = two_networks(1);
    let mut ping = datagrams_over(&mut world, DatagramKind::Echo, 1, "0.0.0.0:7", OVER_BESIDE[0]);
    for to in ["10.0.1.2:0", "10.0.1.1:0"] {
        world.send_msg(&mut ping, 1, Envelope::to(to.parse().unwrap()), b"\x08\0\0\0\0\0\0\x01text");
        world.run_for(Duration::from_millis(100));
        let answer = ping.recv.recv(&mut [0; 16]).unwrap();
        assert_eq!(answer.map(|it| it.envelope.peer), Some(to.parse().unwrap()));
    }
}

/// RFC 3542 §6.7, ip(7): the interface that stands beside a datagram is that by which it leaves, and routes over others do not count.
#[test]
fn a_datagram_leaves_by_the_interface_that_stands_beside_it() {
    let mut world = two_networks(1);
    let far = "192.0.2.1/32".parse().unwrap();
    world.all(|| Control::AddAddress(NetstackId(2), OVER_BESIDE[1], far));
    let dead = RouteConfig::via("192.0.2.0/24".parse().unwrap(), "10.0.0.99".parse().unwrap());
    world.all(|| Control::AddRoute(NetstackId(1), dead));
    let mut server = world.bind_large(2, 1, "0.0.0.0:9");
    let mut client = world.bind_large(1, 2, "0.0.0.0:0");
    let came_by = |world: &mut World, server: &mut DatagramEnd| {
        world.run_for(Duration::from_secs(5));
        server.recv.recv(&mut [0; 8]).unwrap().map(|got| got.envelope.link)
    };
    let beside = Envelope { link: Some(OVER_BESIDE[0]), ..Envelope::to("192.0.2.1:9".parse().unwrap()) };
    for preferred in [None, Some(LinkId(1))] {
        let option = PacketOption::UnicastLink(preferred);
        world.set(1, 2, DatagramOption::Packets(Family::V4, option));
        world.send_msg(&mut client, 2, beside, b"x");
        assert_eq!(came_by(&mut world, &mut server), Some(Some(OVER_BESIDE[1])), "{preferred:?}");
    }
    // In IPv6 it is a wish where the source is said, too, and yields to the routes.
    let mut far = world.bind_large(2, 4, "[::]:10");
    let mut near = world.bind_large(1, 5, "[::]:0");
    let to = Envelope::to("[fd00::2]:10".parse().unwrap());
    let wish = Envelope { local: "fd00::1".parse().ok(), link: Some(OVER_BESIDE[0]), ..to };
    world.send_msg(&mut near, 5, wish, b"x");
    assert_eq!(came_by(&mut world, &mut far), Some(Some(LinkId(2))));
    // What is for an address of the netstack's own stays in it, whatever stands beside it.
    let mut own = world.bind_large(1, 3, "0.0.0.0:9");
    let to_itself = Envelope { link: Some(OVER_BESIDE[0]), ..Envelope::to("10.0.0.1:9".parse().unwrap()) };
    world.send_msg(&mut client, 2, to_itself, b"x");
    assert!(came_by(&mut world, &mut own).is_some());
    world.check_conservation();
}

/// A listener's client whose handshake is not over hears all of it by the link that the listener keeps to, whatever routes say.
#[test]
fn what_is_half_open_keeps_to_its_listeners_link() {
    let led_astray = RouteConfig::via("10.0.1.1/32".parse().unwrap(), "10.0.0.99".parse().unwrap());
    for closes in [false, true] {
        let mut world = two_networks(1);
        let passive = listening(&mut world, 1, Some(OVER_BESIDE[1]), 1);
        world.all(|| Control::AddRoute(NetstackId(2), led_astray));
        let mut clients = [(); 2].map(|()| begins(&mut world, 1, Some(OVER_BESIDE[0]), "10.0.1.2:80"));
        world.run_for(Duration::from_millis(100));
        assert!(clients.iter().all(|client| client.poll_connected() == Ok(true)));
        assert_eq!(world.lanes[0].snapshot().half_open, 1, "the accept queue has room for one");
        if closes {
            let unlisten = SocketCommand::Unlisten(SocketId(1));
            world.lanes[0].on_message(world.now, LaneMessage::Socket(NetstackId(2), unlisten));
            world.run_for(Duration::from_millis(100));
            for client in &mut clients {
                assert_eq!(world.read(client, &mut [0]), Err(ReadError::Failed(SocketError::Reset)));
            }
        } else {
            assert!(passive.accept().is_some());
            // The answer is repeated, and acknowledged again.
            world.run_for(Duration::from_secs(10));
            assert!(passive.accept().is_some());
        }
        world.check_conservation();
    }
}
