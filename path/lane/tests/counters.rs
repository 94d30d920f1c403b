//! What a netstack says that it has counted is what happened, in one lane and in several.

use std::time::Duration;

use firelane_lane::{DatagramOption, LaneMessage, NetstackCounters, SocketCommand};
use firelane_units::{DropReason, LinkId, Mtu, NetstackId, SocketId};
use firelane_world::*;
use proptest::prelude::*;

/// A netstack's counters over all lanes.
fn counted(world: &World, netstack: u16) -> NetstackCounters {
    let mut sum = NetstackCounters::default();
    for lane in &world.lanes {
        sum.merge(&lane.netstack_counters(NetstackId(netstack)).unwrap());
    }
    sum
}

#[test]
fn both_ends_of_a_connection_count_the_same() {
    for lanes in [1, 2, 4] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let listener = world.listen(2, 1, "[::]:80", 10);
        let mut client = world.connect(1, lanes - 1, "10.0.0.2:80");
        world.run_for(Duration::from_millis(20));
        let mut server = listener.accept().unwrap().stream;
        let bytes: Vec<u8> = (0..100_000).map(|n| n as u8).collect();
        world.transfer(&mut client, &mut server, &bytes);
        world.run_for(Duration::from_millis(100));
        let [one, two] = [1, 2].map(|netstack| counted(&world, netstack));
        assert_eq!((one.tcp.active_opens, one.tcp.passive_opens, one.tcp.established), (1, 0, 1));
        assert_eq!((two.tcp.active_opens, two.tcp.passive_opens, two.tcp.established), (0, 1, 1));
        assert_eq!((one.tcp.text_bytes_out, one.tcp.repeated), (100_000, 0));
        assert!(one.tcp.text_segments_out >= 100_000 / 1460, "{} segments", one.tcp.text_segments_out);
        assert_eq!((one.tcp.segments_out, two.tcp.segments_out), (two.tcp.segments_in, one.tcp.segments_in));
        assert_eq!((one.ip.v4.sent, two.ip.v4.sent), (two.ip.v4.received, one.ip.v4.received));
        assert_eq!(one.ip.v4.received, one.ip.v4.delivered);
        assert_eq!(one.connections, 1);
        assert_eq!(world.lanes[0].netstack_counters(NetstackId(7)), None);

        world.command(&client, SocketCommand::Abort);
        world.run();
        let [one, two] = [1, 2].map(|netstack| counted(&world, netstack));
        assert_eq!((one.tcp.established, one.tcp.established_resets, one.tcp.resets_out), (0, 1, 1));
        assert_eq!((two.tcp.established, two.tcp.established_resets, two.tcp.resets_out), (0, 1, 0));

        // Nobody listens there: the attempt fails, and the other side says so.
        let refused = world.connect(1, 0, "[fd00::2]:81");
        world.run_for(Duration::from_millis(20));
        let [one, two] = [1, 2].map(|netstack| counted(&world, netstack));
        assert_eq!((one.tcp.active_opens, one.tcp.attempt_fails), (2, 1));
        assert_eq!((two.tcp.resets_out, two.drops.of(DropReason::NoConnection)), (1, 1));
        assert_eq!(one.drops.total(), 0);
        drop((refused, server));
        world.check_conservation();
    }
}

#[test]
fn datagrams_their_pieces_and_their_errors() {
    for lanes in [1, 2, 4] {
        for (to, is_v4) in [("10.0.0.2", true), ("[fd00::2]", false)] {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            let server = world.bind(2, 1, 0, "[::]:5000");
            let mut client = world.bind(1, 100, 0, if is_v4 { "0.0.0.0:0" } else { "[::]:0" });
            let before = [1, 2].map(|netstack| counted(&world, netstack));
            // Ports of every lane: pieces meet in the home lane, the datagram in its socket's.
            for port in 5000..5004 {
                world.send_to(&mut client, 100, format!("{to}:{port}").parse().unwrap(), &[7; 4000]);
                world.run();
            }
            let [one, two] = [1, 2].map(|netstack| counted(&world, netstack));
            let of = |it: &NetstackCounters| if is_v4 { it.ip.v4 } else { it.ip.v6 };
            assert_eq!((one.udp.sent, two.udp.received, two.drops.of(DropReason::NoSocket)), (4, 1, 3));
            assert_eq!((of(&one).cut, of(&one).pieces), (4, 12));
            assert_eq!((of(&two).fragments, of(&two).joined), (12, 4));
            // What nobody wanted is answered with an error each, in ICMP.
            assert_eq!((of(&two).icmp.errors_out, of(&one).icmp.errors_in), (3, 3));
            let asked = if is_v4 { 0 } else { 1 };
            assert!(of(&one).icmp.received - of(&before[0]).icmp.received >= 3 + asked);
            let received = of(&two).received - of(&before[1]).received;
            let of_icmp = of(&two).icmp.received - of(&before[1]).icmp.received;
            assert_eq!(received - of_icmp, 12, "each piece once, whichever lanes it saw");
            let delivered = of(&two).delivered - of(&before[1]).delivered;
            assert_eq!(delivered - of_icmp, 4);
            drop(server);
        }
    }
}

/// What a VNIC has counted over all lanes, packets and octets, towards its user and from him.
fn of_vnic(world: &World, link: u32) -> [(u64, u64); 2] {
    let mut sum = [(0, 0); 2];
    for (_, counters) in
        world.lanes.iter().flat_map(|lane| lane.snapshot().ports).filter(|(id, _)| *id == LinkId(link))
    {
        for (sum, traffic) in sum.iter_mut().zip([counters.inward, counters.outward]) {
            *sum = (sum.0 + traffic.packets, sum.1 + traffic.bytes);
        }
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Two VNICs on one switch: what the one sends the other gets, once each, whichever lane has the socket, and in how many pieces.
    /// And what programs have sent is counted once, and got once or answered.
    #[test]
    fn what_one_vnic_sends_the_other_gets_once(
        lanes in 1u16..5,
        sent in prop::collection::vec((0u16..12, 0usize..6000, any::<bool>()), 1..20),
    ) {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let mut servers: Vec<_> = (0..8).map(|n| world.bind(2, n, 0, &format!("[::]:{}", 5000 + n))).collect();
        let mut client = world.bind(1, 100, 0, "[::]:4000");
        let (mut heard, mut buffer) = (0, vec![0; 8000]);
        for &(port, len, is_v4) in &sent {
            let to = if is_v4 { "10.0.0.2" } else { "[fd00::2]" };
            world.send_to(&mut client, 100, format!("{to}:{}", 5000 + port).parse().unwrap(), &vec![7; len]);
            world.run();
            if let Some(server) = servers.get_mut(usize::from(port)) {
                let got = server.recv.recv(&mut buffer).unwrap().expect("it has arrived");
                prop_assert_eq!(got.copied, len);
                heard += 1;
            }
        }
        let [one, two] = [1, 2].map(|link| of_vnic(&world, link));
        prop_assert_eq!((one[1], two[1]), (two[0], one[0]));
        let [one, two] = [1, 2].map(|netstack| counted(&world, netstack));
        prop_assert_eq!((one.udp.sent, two.udp.received), (sent.len() as u64, heard));
        prop_assert_eq!(two.drops.of(DropReason::NoSocket), sent.len() as u64 - heard);
        world.check_conservation();
    }
}

/// A copy of what goes to many that comes back to its own host is no other datagram.
#[test]
fn what_goes_to_many_is_sent_once() {
    for lanes in [1, 2] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let mut here = world.bind(1, 1, 0, "0.0.0.0:5000");
        let mut there = world.bind(2, 2, 0, "0.0.0.0:5000");
        let mut client = world.bind(1, 100, 0, "0.0.0.0:4000");
        let lane = client.send.shared().lane();
        let allow = SocketCommand::SetDatagramOption(SocketId(100), DatagramOption::Broadcast(true));
        let now = world.now;
        world.lanes[lane.index()].on_message(now, LaneMessage::Socket(NetstackId(1), allow));
        for to in ["255.255.255.255:5000", "10.0.0.255:5000"] {
            world.send_to(&mut client, 100, to.parse().unwrap(), b"all of you");
            world.run();
            for server in [&mut here, &mut there] {
                assert!(matches!(server.recv.recv(&mut [0; 99]), Ok(Some(_))), "{to}");
            }
        }
        assert_eq!((counted(&world, 1).udp.sent, counted(&world, 1).udp.received), (2, 2));
        assert_eq!(counted(&world, 2).udp.received, 2);
        world.check_conservation();
    }
}
