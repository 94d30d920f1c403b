//! Datagrams between two netstacks of one process, with one, two and four lanes.

use firelane_frame::RECORD_BYTES;
use firelane_ip::DadConfig;
use firelane_lane::{Idle, Notice};
use firelane_socket::{Ready, SocketError, SocketToken};
use firelane_units::{DropReason, Mtu, NetstackId};
use firelane_world::*;

#[test]
fn a_question_and_its_answer() {
    for lanes in [1, 2, 4] {
        for (any, server) in [("0.0.0.0", "10.0.0.2:53"), ("[::]", "[fd00::2]:53")] {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            let mut dns = world.bind(2, 1, 0, &format!("{any}:53"));
            let mut client = world.bind(1, 2, lanes - 1, &format!("{any}:0"));
            let port = client.recv.shared().local().expect("it is bound at once").port();
            assert!(port >= 32_768);
            dns.recv.shared().words().set_token(SocketToken(7));
            dns.recv.shared().words().wait_for(Ready::READABLE);
            world.send_to(&mut client, 2, server.parse().unwrap(), b"who?");
            world.run();
            assert_eq!(world.mail.ready, [(SocketToken(7), Ready::READABLE)]);
            let mut buffer = [0; 100];
            let question = dns.recv.recv(&mut buffer).unwrap().expect("it has arrived");
            assert_eq!((&buffer[..question.copied], question.envelope.peer.port()), (&b"who?"[..], port));
            world.send_to(&mut dns, 1, question.envelope.peer, b"me");
            world.run();
            let answer = client.recv.recv(&mut buffer).unwrap().expect("it has arrived");
            assert_eq!(
                (&buffer[..answer.copied], answer.envelope.peer),
                (&b"me"[..], server.parse().unwrap())
            );
            world.check_conservation();
        }
    }
}

#[test]
fn a_full_queue_drops_and_counts() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let _server = world.bind(2, 1, 0, "10.0.0.2:9");
    let mut client = world.bind(1, 2, 0, "10.0.0.1:0");
    for _ in 0..100 {
        world.send_to(&mut client, 2, "10.0.0.2:9".parse().unwrap(), &[0; 1024 - RECORD_BYTES]);
        world.run();
    }
    // 64 KiB hold 64 records of 1,024 bytes.
    assert_eq!(world.counters().drops.of(DropReason::BufferFull), 36);
    world.check_conservation();
}

#[test]
fn nobody_has_the_port_and_two_cannot_share_it() {
    let mut world = two_stacks(2, Mtu::ETHERNET);
    let mut client = world.bind(1, 2, 0, "10.0.0.1:4000");
    world.send_to(&mut client, 2, "10.0.0.2:9".parse().unwrap(), b"x");
    world.run();
    assert_eq!(world.counters().drops.of(DropReason::NoSocket), 1);
    let mut second = world.bind(1, 3, 0, "10.0.0.1:4000");
    assert_eq!(second.recv.recv(&mut []), Err(SocketError::AddressInUse));
}

#[test]
fn a_datagram_larger_than_the_link_arrives_whole() {
    for lanes in [1, 2, 4] {
        for (any, to) in [("0.0.0.0", "10.0.0.2"), ("[::]", "[fd00::2]")] {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            let mut client = world.bind(1, 100, 0, &format!("{any}:0"));
            // Ports of every lane: the pieces meet in the home lane, the datagram in its socket's.
            for n in 0..8 {
                let mut server = world.bind(2, n, 0, &format!("{any}:{}", 5000 + n));
                let payload: Vec<u8> = (0..5000).map(|byte| (byte * 7 + n) as u8).collect();
                world.send_to(&mut client, 100, format!("{to}:{}", 5000 + n).parse().unwrap(), &payload);
                world.run();
                let mut buffer = vec![0; 6000];
                let got = server.recv.recv(&mut buffer).unwrap().expect("it has arrived");
                assert_eq!(buffer[..got.copied], payload);
            }
            world.check_conservation();
        }
    }
}

/// RFC 8200 §5: what a link carries is received whole.
#[test]
fn a_packet_as_large_as_the_link_arrives() {
    for mtu in [Mtu::ETHERNET, Mtu::ETHERSTUB] {
        for (any, to, headers) in [("0.0.0.0", "10.0.0.2", 28), ("[::]", "[fd00::2]", 48)] {
            let mut world = two_stacks(2, mtu);
            let mut server = world.bind(2, 1, 0, &format!("{any}:5000"));
            let mut client = world.bind(1, 2, 0, &format!("{any}:0"));
            let payload: Vec<u8> = (0..mtu.bytes() - headers).map(|byte| (byte * 7) as u8).collect();
            world.send_to(&mut client, 2, format!("{to}:5000").parse().unwrap(), &payload);
            world.run();
            let mut buffer = vec![0; usize::from(mtu.bytes())];
            let got = server.recv.recv(&mut buffer).unwrap().expect("it has arrived");
            assert_eq!(buffer[..got.copied], payload);
            world.check_conservation();
        }
    }
}

#[test]
fn a_netstack_talks_to_itself() {
    for lanes in [1, 4] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let mut server = world.bind(1, 1, 0, "0.0.0.0:53");
        let mut client = world.bind(1, 2, 0, "127.0.0.1:0");
        world.send_to(&mut client, 2, "127.0.0.1:53".parse().unwrap(), &[5; 9000]);
        world.run();
        let mut buffer = vec![0; 10_000];
        let got = server.recv.recv(&mut buffer).unwrap().expect("it has arrived");
        assert_eq!(
            (got.copied, got.envelope.peer.ip()),
            (9000, "127.0.0.1".parse::<std::net::IpAddr>().unwrap())
        );
        world.check_conservation();
    }
}

#[test]
fn who_hears_that_an_address_is_ready_can_use_it_in_every_lane() {
    for lane in 0..4 {
        let mut world = two_stacks(4, Mtu::ETHERNET);
        world.add_stack_tested(3, DadConfig::SLOW);
        // Only the home lane's clock goes on: the others are busy, or their thread is not scheduled.
        let home = firelane_classify::Steering::even(&world.lane_ids()).home().index();
        let is_ready = |notice: &Notice| matches!(notice, Notice::AddressReady(NetstackId(3), _, it) if it.addr().is_ipv4());
        while !world.mail.notices.iter().any(is_ready) {
            let sleep = world.lanes[home].turn(world.now, Idle::Sleeps);
            world.exchange();
            world.now = sleep.until.expect("the test of an address has an end").max(world.now);
        }
        let mut server = world.bind(2, 1, 0, "0.0.0.0:67");
        let mut client = world.bind(3, 2, lane, "0.0.0.0:0");
        world.send_to(&mut client, 2, "10.0.0.2:67".parse().unwrap(), b"renew");
        world.run();
        let mut buffer = [0; 9];
        let got = server.recv.recv(&mut buffer).unwrap();
        assert!(
            got.is_some_and(|it| it.envelope.peer.ip().to_string() == "10.0.0.3"),
            "lane {lane}: {got:?}"
        );
        world.check_conservation();
    }
}
