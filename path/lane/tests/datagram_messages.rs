//! What goes beside a datagram's payload, the largest datagrams, and several in one record.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;

use firelane_driver_memory::WireConfig;
use firelane_frame::{Capabilities, Envelope};
use firelane_ip::{ErrorKind, LOOPBACK, QuotedText, Said, TransportError};
use firelane_lane::{DatagramOption, LaneMessage, Learned, PacketOption};
use firelane_socket::{Datagram, DatagramEnd, Ready, SendDatagramError, SocketError, SocketToken};
use firelane_units::{Family, LinkId, Mtu, NetstackId, Port};
use firelane_wire::IpProtocol;
use firelane_world::*;

const FAMILIES: [(&str, &str, usize); 2] =
    [("0.0.0.0", "10.0.0.2:9", 65_507), ("[::]", "[fd00::2]:9", 65_527)];

fn to(peer: &str) -> Envelope {
    Envelope::to(peer.parse().unwrap())
}

fn take(end: &mut DatagramEnd) -> Option<(Datagram, Vec<u8>)> {
    let mut buffer = vec![0; 70_000];
    let got = end.recv.recv(&mut buffer).expect("nothing has failed")?;
    buffer.truncate(got.copied);
    Some((got, buffer))
}

#[test]
fn the_largest_datagram_crosses_a_link_of_1500_bytes_and_the_netstack_itself() {
    for (any, there, most) in FAMILIES {
        for netstack in [1, 2] {
            let mut world = two_stacks(1, Mtu::ETHERNET);
            let mut server = world.bind_large(2, 1, &format!("{any}:9"));
            let mut client = world.bind_large(netstack, 2, &format!("{any}:0"));
            let payload: Vec<u8> = (0..most).map(|n| (n % 251) as u8).collect();
            world.send_msg(&mut client, 2, to(there), &payload);
            world.run();
            let (got, bytes) = take(&mut server).expect("it has arrived");
            assert!((got.len, &bytes) == (most, &payload), "{there} from {netstack}");
            assert_eq!(
                client.send.send(there.parse().unwrap(), &vec![0; most + 1]),
                Err(SendDatagramError::TooLong)
            );
            assert_eq!(world.udp(netstack).sent, 1);
            world.check_conservation();
        }
    }
}

/// By a device that cuts, one that does not, and one that completes no sums either.
#[test]
fn one_send_becomes_datagrams_of_one_length() {
    for (udp_segmentation, checksum_offload) in [(true, true), (false, true), (false, false)] {
        let capabilities =
            Capabilities { udp_segmentation, checksum_offload, ..Capabilities::full(Mtu::ETHERNET) };
        for (any, there, _) in FAMILIES {
            let config = WireConfig { capabilities, ..WireConfig::default() };
            let (mut a, mut b) = two_hosts(1, config);
            let mut server = b.bind_large(2, 1, &format!("{any}:9"));
            let mut client = a.bind_large(1, 1, &format!("{any}:0"));
            for joins in [false, true] {
                b.set(2, 1, DatagramOption::ReceiveOffload(joins));
                server.recv.shared().words().set_token(SocketToken(5));
                server.recv.shared().words().watch(Ready::READABLE);
                let payload: Vec<u8> = (0..40 * 1200 + 7).map(|n| (n % 251) as u8).collect();
                a.send_msg(&mut client, 1, Envelope { segment: 1200, ..to(there) }, &payload);
                both(&mut a, &mut b);
                let got: Vec<_> = std::iter::from_fn(|| take(&mut server)).collect();
                let all: Vec<u8> = got.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
                assert!(all == payload, "{there} {capabilities:?}");
                let shape: Vec<_> = got.iter().map(|(it, _)| (it.len, it.envelope.segment)).collect();
                match joins {
                    true => assert_eq!(shape, [(payload.len(), 1200)]),
                    false => {
                        assert!(shape.len() == 41 && shape[..40] == [(1200, 0); 40] && shape[40] == (7, 0))
                    }
                }
            }
            assert_eq!(a.udp(1).sent, 82);
            assert_eq!(b.udp(2).received, 82);
            a.check_conservation();
            b.check_conservation();
        }
    }
}

fn both(a: &mut World, b: &mut World) {
    for _ in 0..20 {
        a.run();
        b.run();
        b.now = a.now.max(b.now);
        a.now = b.now;
    }
}

#[test]
fn single_datagrams_of_one_turn_are_received_together() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut server = world.bind_large(2, 1, "10.0.0.2:9");
    let mut client = world.bind_large(1, 2, "10.0.0.1:0");
    world.set(2, 1, DatagramOption::ReceiveOffload(true));
    world.send_msg(&mut client, 2, to("10.0.0.2:9"), b"the neighbour's address is asked for");
    world.run();
    assert!(take(&mut server).is_some_and(|(it, _)| it.envelope.segment == 0), "one alone says no length");
    for len in [100, 100, 100, 30, 100] {
        client.send.send("10.0.0.2:9".parse().unwrap(), &vec![len as u8; len]).unwrap();
    }
    world.send_msg(&mut client, 2, to("10.0.0.2:9"), &[1; 100]);
    world.run();
    let shape: Vec<_> =
        std::iter::from_fn(|| take(&mut server)).map(|(it, _)| (it.len, it.envelope.segment)).collect();
    assert_eq!(shape, [(330, 100), (200, 100)]);
    world.check_conservation();
}

#[test]
fn a_program_that_cuts_too_large_is_told() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut client = world.bind_large(1, 2, "0.0.0.0:0");
    for (segment, fits) in [(1472, true), (1473, false)] {
        world.send_msg(&mut client, 2, Envelope { segment, ..to("10.0.0.2:9") }, &[0; 5000]);
        world.run();
        let told = client.send.shared().words().take_error();
        assert_eq!(told, (!fits).then_some(SocketError::MessageTooLong), "{segment}");
    }
    let counts = world.udp(1);
    assert_eq!((counts.sent, counts.unsendable), (4, 4));
}

#[test]
fn traffic_class_and_hops_are_the_datagrams_then_the_sockets_then_the_links() {
    for (any, there, _) in FAMILIES {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let mut server = world.bind_large(2, 1, &format!("{any}:9"));
        let mut client = world.bind_large(1, 2, &format!("{any}:0"));
        let usual = Envelope { hops: None, ..to(there) };
        let mut seen = |world: &mut World, envelope: Envelope, len: usize| {
            world.send_msg(&mut client, 2, envelope, &vec![0; len]);
            world.run();
            let (got, _) = take(&mut server).expect("it has arrived");
            let addr: SocketAddr = there.parse().unwrap();
            assert_eq!(
                (got.envelope.local, got.envelope.link.map(|link| link.0)),
                (Some(addr.ip()), Some(2))
            );
            (got.envelope.tos, got.envelope.hops)
        };
        assert_eq!(seen(&mut world, usual, 10), (Some(0), Some(64)));
        let family = Family::of(there.parse::<SocketAddr>().unwrap().ip());
        let other = Family::BOTH[1 - family.index()];
        for (of, tos, hops) in [(family, 0xb9, 7), (other, 0x44, 9)] {
            world.set(1, 2, DatagramOption::Packets(of, PacketOption::TrafficClass(tos)));
            world.set(1, 2, DatagramOption::Packets(of, PacketOption::Hops(NonZeroU8::new(hops))));
        }
        for len in [10, 4000] {
            assert_eq!(seen(&mut world, usual, len), (Some(0xb9), Some(7)), "{len}");
            let own = Envelope { tos: Some(0x22), hops: Some(3), ..usual };
            assert_eq!(seen(&mut world, own, len), (Some(0x22), Some(3)), "{len}");
        }
        let none = Envelope { hops: Some(0), ..usual };
        assert_eq!(seen(&mut world, none, 10), (Some(0xb9), Some(7)), "nothing goes without a hop");
        world.set(1, 2, DatagramOption::Packets(family, PacketOption::Hops(None)));
        assert_eq!(seen(&mut world, usual, 10), (Some(0xb9), Some(64)));
    }
}

fn set_whole(world: &mut World, is_whole: bool) {
    for family in Family::BOTH {
        world.set(1, 2, DatagramOption::Packets(family, PacketOption::DontFragment(is_whole)));
    }
}

/// One that says of itself whether it may be fragmented is believed, whatever the socket says.
#[test]
fn a_datagram_says_whether_it_may_be_fragmented() {
    for (any, there, _) in FAMILIES {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let mut server = world.bind_large(2, 1, &format!("{any}:9"));
        let mut client = world.bind_large(1, 2, &format!("{any}:0"));
        for is_whole in [false, true] {
            set_whole(&mut world, is_whole);
            for (own, arrives) in [(None, !is_whole), (Some(true), false), (Some(false), true)] {
                world.send_msg(&mut client, 2, Envelope { dont_fragment: own, ..to(there) }, &[0; 4000]);
                world.run();
                assert_eq!(take(&mut server).is_some(), arrives, "{there}: {is_whole} {own:?}");
                let told = client.recv.recv(&mut []).err();
                assert_eq!(told, (!arrives).then_some(SocketError::MessageTooLong));
            }
        }
    }
}

/// IPV6_MTU: what is larger goes in pieces of so much, or not at all; IPv4 knows no such limit.
#[test]
fn a_socket_says_how_large_its_packets_over_ipv6_may_be() {
    let most = Mtu::new(1280);
    for (any, there, _) in FAMILIES {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let mut server = world.bind_large(2, 1, &format!("{any}:9"));
        let mut client = world.bind_large(1, 2, &format!("{any}:0"));
        let is_v6 = there.starts_with('[');
        let mut before = 0;
        for (limit, pieces) in [(None, 3), (most, if is_v6 { 4 } else { 3 }), (Mtu::new(9000), 3), (None, 3)]
        {
            world.set(1, 2, DatagramOption::PacketMax(limit));
            world.send_msg(&mut client, 2, to(there), &[0; 4000]);
            world.run();
            assert_eq!(take(&mut server).expect("it has arrived").1.len(), 4000);
            let ip = world.lanes[0].netstack_counters(NetstackId(1)).unwrap().ip;
            let now = if is_v6 { ip.v6.pieces } else { ip.v4.pieces };
            assert_eq!(now - before, pieces, "{there}: {limit:?}");
            before = now;
        }
        world.set(1, 2, DatagramOption::PacketMax(most));
        set_whole(&mut world, true);
        for (len, arrives) in [(1232, true), (1233, !is_v6)] {
            world.send_msg(&mut client, 2, to(there), &vec![0; len]);
            world.run();
            assert_eq!(take(&mut server).is_some(), arrives, "{there}: {len}");
            let told = client.recv.recv(&mut []).err();
            assert_eq!(told, (!arrives).then_some(SocketError::MessageTooLong));
        }
    }
}

/// As in Linux, where nobody has that port. What goes to another host is his to refuse.
#[test]
fn what_goes_to_port_zero_of_this_netstack_is_refused() {
    for (any, own, other) in [
        ("0.0.0.0:0", "10.0.0.1:0", "10.0.0.2:0"),
        ("[::]:0", "[fd00::1]:0", "[fd00::2]:0"),
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0"),
    ] {
        let is_loopback = any.starts_with("127");
        for (to_whom, is_refused) in [(own, true), (other, is_loopback)] {
            let mut world = two_stacks(1, Mtu::ETHERNET);
            let mut client = world.bind_large(1, 2, any);
            assert!(world.connect_datagrams(1, 2, Some(to_whom)).is_ok(), "{to_whom}");
            world.send_msg(&mut client, 2, to(to_whom), b"x");
            world.run();
            let told = client.recv.recv(&mut []).err();
            assert_eq!(told, is_refused.then_some(SocketError::Refused), "{to_whom}");
            assert_eq!(world.udp(1).unsendable, u64::from(is_refused));
            world.check_conservation();
        }
    }
}

/// What IP refuses was not sent: it is counted as what it is, and the program is told once.
#[test]
fn what_ip_drops_is_not_counted_as_sent() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut client = world.bind_large(1, 2, "0.0.0.0:0");
    set_whole(&mut world, true);
    world.send_msg(&mut client, 2, to("10.0.0.2:9"), &[0; 1473]);
    world.run();
    assert_eq!(
        client.send.send("10.0.0.2:9".parse().unwrap(), b"x"),
        Err(SendDatagramError::Failed(SocketError::MessageTooLong))
    );
    world.send_msg(&mut client, 2, to("192.0.2.1:9"), b"no way");
    world.run();
    assert_eq!(client.recv.recv(&mut []), Err(SocketError::NetworkUnreachable));
    let counts = world.udp(1);
    assert_eq!((counts.sent, counts.unsendable), (0, 2));
    world.send_msg(&mut client, 2, to("10.0.0.2:9"), &[0; 1472]);
    world.run();
    assert_eq!(world.udp(1).sent, 1);
    world.check_conservation();
}

#[test]
fn a_socket_of_both_families_writes_to_an_ipv4_address_in_ipv6() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut server = world.bind_large(2, 1, "10.0.0.2:9");
    let mut client = world.bind_large(1, 2, "[::]:0");
    world.send_msg(&mut client, 2, to("[::ffff:10.0.0.2]:9"), b"hello");
    world.run();
    assert_eq!(take(&mut server).expect("it has arrived").1, b"hello");
}

#[test]
fn the_source_is_the_one_that_the_datagram_names_if_it_is_ours() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut server = world.bind_large(2, 1, "10.0.0.2:9");
    let mut client = world.bind_large(1, 2, "0.0.0.0:4000");
    let second = "10.0.0.77/24".parse().unwrap();
    world.all(|| firelane_lane::Control::AddAddress(NetstackId(1), firelane_units::LinkId(1), second));
    for (local, told) in
        [("10.0.0.77", None), ("10.0.0.1", None), ("10.0.0.9", Some(SocketError::NetworkUnreachable))]
    {
        let local: IpAddr = local.parse().unwrap();
        world.send_msg(&mut client, 2, Envelope { local: Some(local), ..to("10.0.0.2:9") }, b"x");
        world.run();
        assert_eq!(client.send.shared().words().take_error(), told);
        assert_eq!(take(&mut server).map(|(it, _)| it.envelope.peer.ip()), told.is_none().then_some(local));
    }
}

#[test]
fn a_socket_gets_another_peer_and_none() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut socket = world.bind_large(2, 1, "0.0.0.0:9");
    let mut one = world.bind_large(1, 2, "0.0.0.0:4001");
    let mut two = world.bind_large(1, 3, "0.0.0.0:4002");
    let mut heard = |world: &mut World| {
        for (end, id) in [(&mut one, 2), (&mut two, 3)] {
            world.send_msg(end, id, to("10.0.0.2:9"), b"x");
            world.run();
        }
        std::iter::from_fn(|| take(&mut socket)).map(|(it, _)| it.envelope.peer.port()).collect::<Vec<_>>()
    };
    assert_eq!(heard(&mut world), [4001, 4002]);
    let local = "10.0.0.2:9".parse().unwrap();
    assert_eq!(world.connect_datagrams(2, 1, Some("10.0.0.1:4001")), Ok(local));
    assert_eq!(heard(&mut world), [4001]);
    assert_eq!(world.connect_datagrams(2, 1, Some("10.0.0.1:4002")), Ok(local));
    assert_eq!(heard(&mut world), [4002]);
    assert_eq!(world.connect_datagrams(2, 1, Some("192.0.2.1:1")), Err(SocketError::NetworkUnreachable));
    assert_eq!(world.connect_datagrams(2, 1, Some("[fd00::1]:1")), Err(SocketError::NetworkUnreachable));
    assert_eq!(heard(&mut world), [4002], "it stays as it was");
    assert_eq!(world.connect_datagrams(2, 1, None), Ok("0.0.0.0:9".parse().unwrap()));
    assert_eq!(heard(&mut world), [4001, 4002]);
    assert_eq!(world.connect_datagrams(2, 99, None), Err(SocketError::Aborted), "nobody's");
}

#[test]
fn a_socket_keeps_to_the_link_over_which_it_is_connected() {
    const LINK: Option<LinkId> = Some(LinkId(2));
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut socket = world.bind_large(2, 1, "0.0.0.0:9");
    let mut peer = world.bind_large(1, 2, "0.0.0.0:4001");
    // What it hears of a peer, and the peer of it.
    let mut talks = |world: &mut World| {
        world.send_msg(&mut peer, 2, to("10.0.0.2:9"), b"x");
        world.send_msg(&mut socket, 1, to("10.0.0.1:4001"), b"x");
        world.run();
        let error = socket.send.shared().words().take_error();
        (take(&mut socket).is_some(), take(&mut peer).is_some(), error)
    };
    let peers = Some("10.0.0.1:4001");
    let unreachable = SocketError::NetworkUnreachable;
    assert_eq!(world.connect_datagrams_over(2, 1, peers, Some(LOOPBACK)), Err(unreachable));
    assert_eq!(talks(&mut world), (true, true, None), "it stays as it was");
    assert!(world.connect_datagrams_over(2, 1, peers, LINK).is_ok());
    assert_eq!(talks(&mut world), (true, true, None));
    assert!(world.connect_datagrams_over(2, 1, None, Some(LOOPBACK)).is_ok());
    assert_eq!(talks(&mut world), (false, false, Some(unreachable)));
    assert!(world.connect_datagrams_over(2, 1, None, None).is_ok());
    assert_eq!(talks(&mut world), (true, true, None));
}

/// What netstack 1 hears: a router says that a datagram from its port 4000 to `dst` was too large.
fn too_big(world: &mut World, dst: [u8; 4], mtu: u16) {
    let (src, dst) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from(dst));
    let error = TransportError {
        protocol: IpProtocol::UDP,
        src,
        dst,
        ports: (Port(4000), Port(9)),
        seq: None,
        kind: ErrorKind::TooBig { mtu: Mtu::new(mtu).unwrap() },
        said: Said {
            from: dst,
            link: None,
            hops: 64,
            tos: 0,
            icmp: [3, 4],
            rest: 0,
            text: QuotedText::of(&[]),
        },
    };
    let message = LaneMessage::Learned(NetstackId(1), Box::new(Learned::Error(error, None)));
    world.lanes[0].on_message(world.now, message);
}

/// Anybody can quote datagrams to all the world that a socket without a peer might have sent.
#[test]
fn paths_of_which_anybody_may_have_spoken_are_believed_a_limited_number_of_times() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut client = world.bind_large(1, 2, "0.0.0.0:4000");
    let mut fits = |world: &mut World, last: u8, len: usize| {
        let envelope = Envelope { dont_fragment: Some(true), ..to(&format!("10.0.0.{last}:9")) };
        world.send_msg(&mut client, 2, envelope, &vec![0; len]);
        world.run();
        client.send.shared().words().take_error() != Some(SocketError::MessageTooLong)
    };
    let others = 3..=250;
    for last in others.clone() {
        too_big(&mut world, [10, 0, 0, last], 1000);
    }
    let believed = others.filter(|&last| !fits(&mut world, last, 1300)).count();
    assert_eq!(believed, 64);
    // Whom it has just sent something is another matter.
    assert!(fits(&mut world, 2, 1300));
    too_big(&mut world, [10, 0, 0, 2], 1000);
    assert!(!fits(&mut world, 2, 1300));
}

/// ICMP errors are the connected socket's own, before and after it changes its peer.
#[test]
fn an_error_is_for_who_is_connected() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut client = world.bind_large(1, 2, "0.0.0.0:4000");
    for (remote, told) in [(None, None), (Some("10.0.0.2:7"), Some(SocketError::Refused)), (None, None)] {
        world.connect_datagrams(1, 2, remote).unwrap();
        world.send_msg(&mut client, 2, to("10.0.0.2:7"), b"x");
        world.run_for(std::time::Duration::from_secs(2));
        assert_eq!(client.send.shared().words().take_error(), told);
    }
}
