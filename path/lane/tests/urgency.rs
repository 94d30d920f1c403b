//! Which socket sends first where there is too much (SO_PRIORITY), and how fast a datagram socket may (SO_MAX_PACING_RATE).

use std::time::Duration;

use firelane_ip::DadConfig;
use firelane_lane::{Band, Control, DatagramOption, LaneMessage, SocketCommand, StreamOption};
use firelane_socket::{DatagramEnd, Ready, StreamEnd};
use firelane_units::{BitRate, FlowId, LaneId, Mtu, NetstackId, SocketId};
use firelane_world::*;

const SERVER: &str = "10.0.0.2:9";

/// Changes an option of a datagram socket of netstack 1.
fn set(world: &mut World, end: &DatagramEnd, socket: u32, option: DatagramOption) {
    let lane: LaneId = end.send.shared().lane();
    let command = SocketCommand::SetDatagramOption(SocketId(socket), option);
    let (now, message) = (world.now, LaneMessage::Socket(NetstackId(1), command));
    world.lanes[lane.index()].on_message(now, message);
}

/// Who sent what has come, in order.
fn senders(server: &mut DatagramEnd) -> Vec<u16> {
    let mut buffer = [0; 2000];
    std::iter::from_fn(|| server.recv.recv(&mut buffer).unwrap()).map(|it| it.envelope.peer.port()).collect()
}

#[test]
fn datagrams_that_wait_for_the_lane_go_in_the_order_of_their_bands() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut server = world.bind(2, 1, 0, SERVER);
    let bands = [(5003, Band::Bulk), (5002, Band::Usual), (5001, Band::Urgent)];
    let mut ends: Vec<DatagramEnd> =
        bands.iter().map(|(port, _)| world.bind(1, *port, 0, &format!("10.0.0.1:{port}"))).collect();
    for (end, (port, band)) in ends.iter_mut().zip(bands) {
        set(&mut world, end, port, DatagramOption::Band(band));
        world.send_to(end, port, SERVER.parse().unwrap(), b"first");
    }
    world.run();
    assert_eq!(senders(&mut server).len(), 3, "the neighbour is known");
    for _ in 0..12 {
        for (end, (port, _)) in ends.iter_mut().zip(bands) {
            world.send_to(end, port, SERVER.parse().unwrap(), &[0; 1000]);
        }
    }
    world.run();
    let order = senders(&mut server);
    assert_eq!(order.len(), 36);
    assert!(order.is_sorted(), "{order:?}");
    world.check_conservation();
}

#[test]
fn streams_that_wait_for_a_limit_go_in_the_order_of_their_bands() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let listener = world.listen(2, 1, "10.0.0.2:80", 8);
    let mut pairs: Vec<(StreamEnd, StreamEnd)> = Vec::new();
    for _ in 0..3 {
        let client = world.connect(1, 0, "10.0.0.2:80");
        world.run_for(Duration::from_millis(10));
        pairs.push((client, listener.accept().expect("the handshake is over").stream));
    }
    for ((client, _), band) in pairs.iter().zip([Band::Bulk, Band::Usual, Band::Urgent]) {
        world.command(client, |conn| SocketCommand::SetOption(conn, StreamOption::Band(band)));
    }
    world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
    world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(2))));
    let text = vec![7; 100_000];
    for (client, _) in &mut pairs {
        assert_eq!(world.write(client, &text), Ok(text.len()));
    }
    // When each has come as a whole.
    let mut got = [0; 3];
    let mut ended = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while ended.len() < 3 {
        world.run_for(Duration::from_millis(10));
        for (at, (_, server)) in pairs.iter_mut().enumerate() {
            while let Ok(count) = world.read(server, &mut buffer) {
                got[at] += count;
            }
            if got[at] == text.len() && !ended.contains(&at) {
                ended.push(at);
                if ended.len() == 1 {
                    assert!(at == 2 && got[0] < text.len() / 2, "{got:?} when the first has ended");
                }
            }
        }
    }
    assert_eq!(ended, [2, 1, 0], "the urgent one first, the bulk last");
    world.check_conservation();
}

/// A server, and a client that knows the way to it.
fn acquainted() -> (World, DatagramEnd, DatagramEnd) {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut server = world.bind(2, 1, 0, SERVER);
    let mut client = world.bind(1, 7, 0, "10.0.0.1:5000");
    world.send_to(&mut client, 7, SERVER.parse().unwrap(), b"first");
    world.run();
    assert_eq!(senders(&mut server).len(), 1);
    (world, server, client)
}

#[test]
fn a_paced_socket_sends_no_faster_and_no_slower() {
    let (mut world, mut server, mut client) = acquainted();
    // 125 kB a second: 1,000 octets with headers every 8 ms.
    set(&mut world, &client, 7, DatagramOption::PacingLimit(Some(BitRate::from_mbps(1))));
    for _ in 0..50 {
        world.send_to(&mut client, 7, SERVER.parse().unwrap(), &[0; 972]);
    }
    let mut come = 0;
    for turn in 1..=5 {
        world.run_for(Duration::from_millis(80));
        come += senders(&mut server).len();
        assert!((turn * 10..=turn * 10 + 1).contains(&come), "{come} after {turn} times 80 ms");
    }
    world.send_to(&mut client, 7, SERVER.parse().unwrap(), &[0; 972]);
    world.send_to(&mut client, 7, SERVER.parse().unwrap(), &[0; 972]);
    set(&mut world, &client, 7, DatagramOption::PacingLimit(None));
    world.run_for(Duration::from_millis(20));
    assert_eq!(senders(&mut server).len() + come, 52, "without a rate nothing waits");
    world.check_conservation();
}

/// As Linux, where half of what a socket may have queued is free: who polls fills it again while the rest leaves.
#[test]
fn who_waits_for_room_is_told_when_half_has_left_and_not_for_each_datagram() {
    let (mut world, mut server, mut client) = acquainted();
    // One each 10 ms.
    set(&mut world, &client, 7, DatagramOption::PacingLimit(Some(BitRate::from_bps(800_000))));
    let mut all = 0;
    while world.offer_to(&mut client, 7, SERVER.parse().unwrap(), &[0; 972]) {
        all += 1;
    }
    assert!(all > 20, "{all}");
    let token = firelane_socket::SocketToken(9);
    client.send.shared().words().set_token(token);
    client.send.shared().words().watch(Ready::WRITABLE);
    let (mut come, mut told) = (0, Vec::new());
    while come < all {
        world.mail.ready.clear();
        world.run_for(Duration::from_millis(1));
        come += senders(&mut server).len();
        let calls = world.mail.ready.iter().filter(|it| **it == (token, Ready::WRITABLE)).count();
        told.extend(std::iter::repeat_n(come, calls));
    }
    assert!((all / 2..=all / 2 + 2).contains(&told[0]), "{told:?} of {all}");
    assert!(told.len() <= all.ilog2() as usize + 2, "each time that half of it has left: {told:?} of {all}");
    world.check_conservation();
}

#[test]
fn who_waits_for_his_pace_hears_of_another_one() {
    let (mut world, mut server, mut client) = acquainted();
    // 1,000 octets with headers every 100 s, at first.
    let pace = |world: &mut World, client: &DatagramEnd, bps| {
        set(world, client, 7, DatagramOption::PacingLimit(Some(BitRate::from_bps(bps))));
    };
    pace(&mut world, &client, 80);
    for _ in 0..30 {
        world.send_to(&mut client, 7, SERVER.parse().unwrap(), &[0; 972]);
    }
    world.run_for(Duration::from_millis(500));
    assert_eq!(senders(&mut server).len(), 1);
    pace(&mut world, &client, 800_000);
    world.run_for(Duration::from_millis(105));
    let faster = senders(&mut server).len();
    assert!((10..=11).contains(&faster), "one each 10 ms: {faster}");
    // Whoever says it again and again has no turns besides.
    for bps in (1..500).map(|n| 80_000 + n) {
        pace(&mut world, &client, bps);
        world.run_for(Duration::from_micros(100));
    }
    assert_eq!(senders(&mut server).len(), 1, "one each 100 ms, and 50 ms are over");
    world.run_for(Duration::from_secs(3));
    assert_eq!(senders(&mut server).len(), 30 - 1 - faster - 1);
    world.check_conservation();
}

#[test]
fn who_waits_for_a_limit_waits_as_one_of_the_band_that_he_has_by_now() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let mut server = world.bind(2, 1, 0, SERVER);
    world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
    world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(1))));
    let ports = 5001..5061;
    let mut ends: Vec<DatagramEnd> =
        ports.clone().map(|port| world.bind(1, port, 0, &format!("10.0.0.1:{port}"))).collect();
    for (end, port) in ends.iter_mut().zip(ports) {
        set(&mut world, end, port, DatagramOption::Band(Band::Bulk));
        for _ in 0..4 {
            world.send_to(end, port, SERVER.parse().unwrap(), &[0; 1000]);
        }
    }
    world.run_for(Duration::from_millis(60));
    let before = senders(&mut server);
    assert!(!before.is_empty() && !before.contains(&5060), "{before:?}");
    set(&mut world, &ends[59], 5060, DatagramOption::Band(Band::Urgent));
    world.run_for(Duration::from_secs(4));
    let behind = senders(&mut server);
    let last = behind.iter().rposition(|&port| port == 5060).unwrap();
    assert!(last < 12, "{last}: {behind:?}");
    world.check_conservation();
}

/// A rate at which text would wait for ever does not keep the memory of a program that is gone.
#[test]
fn who_is_gone_sends_no_slower_than_in_a_minute() {
    for rate in [1, 8] {
        let slow = BitRate::from_bps(rate);
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let mut server = world.bind(2, 1, 0, SERVER);
        let mut client = world.bind(1, 7, 0, "10.0.0.1:5000");
        set(&mut world, &client, 7, DatagramOption::PacingLimit(Some(slow)));
        for _ in 0..5 {
            world.send_to(&mut client, 7, SERVER.parse().unwrap(), &[0; 900]);
        }
        world.run_for(Duration::from_secs(60));
        assert_eq!(senders(&mut server).len(), 1, "the others wait");
        let close = LaneMessage::Socket(NetstackId(1), SocketCommand::CloseDatagrams(SocketId(7)));
        let now = world.now;
        world.lanes[0].on_message(now, close);
        world.run_for(Duration::from_millis(10));
        assert_eq!(senders(&mut server).len(), 4, "{rate}");
        // The same of a stream.
        let listener = world.listen(2, 1, "10.0.0.2:80", 8);
        let mut client = world.connect(1, 0, "10.0.0.2:80");
        world.run_for(Duration::from_millis(10));
        let mut peer = listener.accept().unwrap().stream;
        world.command(&client, |conn| SocketCommand::SetOption(conn, StreamOption::PacingLimit(Some(slow))));
        assert_eq!(world.write(&mut client, &[7; 50_000]), Ok(50_000));
        world.run_for(Duration::from_secs(60));
        world.command(&client, SocketCommand::Close);
        world.run_for(Duration::from_secs(10));
        let mut come = 0;
        world.read_to_end(&mut peer, |bytes| come += bytes.len());
        assert_eq!(come, 50_000, "{rate}");
        world.check_conservation();
    }
}

/// Connects netstack 1 with netstack 2 so many times, each end as urgent as that.
fn many_streams(world: &mut World, count: usize, band: Band) -> Vec<(StreamEnd, StreamEnd)> {
    let listener = world.listen(2, 7, "10.0.0.2:81", count);
    let pairs: Vec<(StreamEnd, StreamEnd)> = (0..count)
        .map(|_| {
            let client = world.connect(1, 0, "10.0.0.2:81");
            world.run();
            (client, listener.accept().expect("the handshake is over").stream)
        })
        .collect();
    for (client, server) in &pairs {
        for end in [client, server] {
            world.command(end, |conn| SocketCommand::SetOption(conn, StreamOption::Band(band)));
        }
    }
    pairs
}

/// The programs of these connections write and read all that they can.
fn all_write_and_read(
    world: &mut World,
    pairs: &mut [(StreamEnd, StreamEnd)],
    text: &[u8],
    buffer: &mut [u8],
) {
    for (client, server) in pairs {
        while let Ok(1..) = world.read(server, buffer) {}
        let _ = world.write(client, text);
    }
}

/// In how many turns of its lane a byte of this netstack comes to its peer, beside connections of the first one that always have text.
fn turns_of_a_byte(band: Band, quiet_netstack: u16) -> usize {
    let pools = firelane_frame::PoolsConfig { small_slots: 60_000, large_slots: 2048 };
    let mut world = stacks_in(World::with_pools(1, pools), Mtu::ETHERNET);
    world.add_stack_tested(3, DadConfig::OFF);
    // More than the lane serves in a turn.
    let mut pairs = many_streams(&mut world, 1_200, band);
    let listener = world.listen(2, 1, "10.0.0.2:80", 1);
    let mut quiet = world.connect(quiet_netstack, 0, "10.0.0.2:80");
    world.run_for(Duration::from_millis(10));
    let peer = listener.accept().expect("the handshake is over").stream;
    let (text, mut buffer) = ([7; 100], [0; 1000]);
    all_write_and_read(&mut world, &mut pairs, &text, &mut buffer);
    assert_eq!(world.write(&mut quiet, b"x"), Ok(1));
    for turn in 1..=60 {
        let now = world.now;
        world.lanes[0].turn(now, firelane_lane::Idle::Sleeps);
        if peer.recv.available() > 0 {
            return turn;
        }
        all_write_and_read(&mut world, &mut pairs, &text, &mut buffer);
    }
    panic!("a byte waits for ever beside {band:?} streams");
}

/// SO_PRIORITY is any program's to say.
#[test]
fn what_one_netstack_calls_urgent_keeps_no_other_waiting() {
    for band in Band::ALL {
        assert!(turns_of_a_byte(band, 3) <= 2, "{band:?}");
    }
}

#[test]
fn what_is_urgent_keeps_a_first_byte_of_its_own_netstack_waiting_for_a_moment_alone() {
    for band in Band::ALL {
        assert!(turns_of_a_byte(band, 1) <= 24, "{band:?}");
    }
}
