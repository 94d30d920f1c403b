//! What a netstack sends to itself in segments and datagrams: limits hold there, and it is counted, as on a switch.

use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_lane::{Control, FlowSetup, FusionTuning, LaneMessage, NetstackConfig, SocketCommand};
use firelane_socket::StreamEnd;
use firelane_units::{BitRate, FlowId, LaneId, LinkId, Mtu, NetstackId, Port, Priority, SocketId};
use firelane_wire::IpProtocol;
use firelane_world::*;

const WINDOW: Duration = Duration::from_millis(100);

/// A netstack's connection with itself, in segments.
struct Pair {
    world: World,
    client: StreamEnd,
    server: StreamEnd,
}

fn pair(lanes: u16, remote: &str) -> Pair {
    let mut world = two_stacks(lanes, Mtu::ETHERNET);
    let fusion = FusionTuning { is_on: false, ..FusionTuning::default() };
    let config = NetstackConfig { fusion, ..NetstackConfig::new(NetstackId(1)) };
    world.all(|| Control::Tune(config.clone()));
    let listener = world.listen(1, 1, if remote.starts_with('[') { "[::]:80" } else { "0.0.0.0:80" }, 8);
    let client = world.connect(1, lanes - 1, remote);
    world.run();
    let server = listener.accept().expect("the handshake is over").stream;
    Pair { world, client, server }
}

impl Pair {
    /// The limit of the VNIC, kept in its last lane.
    fn limit(&mut self, flow: FlowId, maxbw: Option<BitRate>) {
        let home = LaneId(self.world.lanes.len() as u16 - 1);
        self.world.all(|| Control::SetMaxbw(flow, maxbw));
        self.world.all(|| Control::SetHome(flow, maxbw.map(|_| home)));
    }

    /// Writes and reads without pause for so long: how much text has come in each window.
    fn saturate(&mut self, windows: usize) -> Vec<u64> {
        let Self { world, client, server } = self;
        let mut buffer = vec![0; 1 << 16];
        let mut came = Vec::new();
        for _ in 0..windows {
            let mut sum = 0;
            for _ in 0..WINDOW.as_millis() * 4 {
                while world.write(client, &[7; 1 << 14]).is_ok() {}
                world.run_for(WINDOW / 400);
                while let Ok(count @ 1..) = world.read(server, &mut buffer) {
                    sum += count as u64;
                }
            }
            came.push(sum);
        }
        came
    }

    /// What the VNIC and its flow have counted, inward and outward, in bytes.
    fn counted(&self) -> ([u64; 2], [u64; 2]) {
        let [mut of_port, mut of_flow] = [[0; 2]; 2];
        for lane in &self.world.lanes {
            let snapshot = lane.snapshot();
            let (_, port) =
                snapshot.ports.iter().find(|(id, _)| *id == LinkId(1)).expect("the VNIC is there");
            let (_, flow) = snapshot.flows.iter().find(|(id, _)| *id == FlowId(1)).expect("and its flow");
            of_port = [of_port[0] + port.inward.bytes, of_port[1] + port.outward.bytes];
            of_flow = [of_flow[0] + flow[0].bytes, of_flow[1] + flow[1].bytes];
        }
        (of_port, of_flow)
    }
}

/// Text of full segments below the limit, with their headers as wires count them.
fn text_of(rate: BitRate) -> u64 {
    rate.bytes_in(WINDOW).0 * 1448 / 1514
}

#[test]
fn every_window_of_a_limited_vnic_is_exact_to_its_own_address() {
    for lanes in [1, 2] {
        for remote in ["10.0.0.1:80", "[fd00::1]:80"] {
            let mut pair = pair(lanes, remote);
            let rate = BitRate::from_mbps(200);
            pair.limit(FlowId(1), Some(rate));
            let came = pair.saturate(8);
            // ACKs take their share of the same limit.
            for bytes in &came[2..] {
                let wanted = text_of(rate);
                assert!(
                    (wanted * 92 / 100..=wanted * 101 / 100).contains(bytes),
                    "{lanes} {remote}: {came:?}"
                );
            }
            let total: u64 = came.iter().sum();
            let (of_port, of_flow) = pair.counted();
            // The VNIC counts what is sent before the limit, as to a switch.
            assert_eq!((of_port[0], of_flow[0]), (of_flow[0], of_flow[1]));
            assert!(of_port[1] >= of_flow[1] && of_flow[0] > total, "{of_port:?} {of_flow:?} {total}");
            pair.world.check_conservation();
        }
    }
}

#[test]
fn nothing_is_lost_to_the_limit_and_it_follows_its_changes() {
    let mut pair = pair(1, "10.0.0.1:80");
    let free = pair.saturate(1)[0];
    for mbps in [400, 50] {
        let rate = BitRate::from_mbps(mbps);
        pair.limit(FlowId(1), Some(rate));
        pair.saturate(1);
        let came = pair.saturate(2);
        let wanted = text_of(rate);
        assert!(
            came.iter().all(|bytes| (wanted * 92 / 100..=wanted * 101 / 100).contains(bytes)),
            "{came:?}"
        );
    }
    assert_eq!(pair.world.counters().drops.total(), 0, "the socket waits");
    pair.limit(FlowId(1), None);
    pair.saturate(1);
    assert!(pair.saturate(1)[0] >= free / 2);
    pair.world.check_conservation();
}

#[test]
fn a_flow_of_the_receiving_end_holds_back_what_it_gets() {
    let mut pair = pair(1, "10.0.0.1:80");
    let rate = BitRate::from_mbps(100);
    let rule = FlowMatch {
        transport: Some(IpProtocol::TCP),
        local_port: Some(Port(80).into()),
        ..FlowMatch::default()
    };
    let config = FlowConfig { parent: Some(FlowId(1)), maxbw: Some(rate), priority: Priority::Medium };
    let setup =
        FlowSetup { flow: FlowId(9), owner: LinkId(1), rule: Some(rule), config, home: Some(LaneId(0)) };
    pair.world.add_flow(setup);
    pair.saturate(1);
    let came = pair.saturate(3);
    let wanted = text_of(rate);
    assert!(
        came.iter().all(|bytes| (wanted * 98 / 100..=wanted * 101 / 100).contains(bytes)),
        "{came:?} {wanted}"
    );
    assert_eq!(
        pair.world.counters().drops.total(),
        0,
        "the sender is asked to wait for what its own host gets"
    );
    // A flow that ends under load gives back what it held.
    pair.world.all(|| Control::RemoveFlow(FlowId(9)));
    pair.saturate(1);
    pair.world.check_conservation();
}

/// What a flow held when it ended is asked for once more, and has been sent once.
#[test]
fn what_a_flow_held_when_it_ended_is_counted_once() {
    let mut pair = pair(1, "10.0.0.1:80");
    pair.limit(FlowId(1), Some(BitRate::from_mbps(8)));
    // Of several flows that wait for the limit of their VNIC each may have something there.
    for (flow, protocol) in [(8, IpProtocol::UDP), (9, IpProtocol::TCP)] {
        let rule = FlowMatch { transport: Some(protocol), ..FlowMatch::default() };
        let config = FlowConfig { parent: Some(FlowId(1)), maxbw: None, priority: Priority::Medium };
        let (flow, owner, home) = (FlowId(flow), LinkId(1), Some(LaneId(0)));
        pair.world.add_flow(FlowSetup { flow, owner, rule: Some(rule), config, home });
    }
    pair.saturate(1);
    assert!(pair.world.lanes[0].snapshot().held > 0);
    pair.world.all(|| Control::RemoveFlow(FlowId(9)));
    pair.limit(FlowId(1), None);
    pair.world.run_for(WINDOW);
    let ([inward, outward], _) = pair.counted();
    assert_eq!(outward, inward, "what was sent has come");
    pair.world.check_conservation();
}

#[test]
fn a_loopback_address_is_no_vnics() {
    let mut pair = pair(1, "127.0.0.1:80");
    pair.limit(FlowId(1), Some(BitRate::from_mbps(1)));
    let before = pair.counted();
    assert!(pair.saturate(1)[0] > 10_000_000);
    assert_eq!(pair.counted(), before);
}

#[test]
fn datagrams_wait_for_the_limit_and_copies_for_a_group_are_counted_once() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(8))));
    world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
    let mut sender = world.bind(1, 1, 0, "10.0.0.1:9000");
    let mut receiver = world.bind(1, 2, 0, "10.0.0.1:9001");
    let peer = "10.0.0.1:9001".parse().unwrap();
    let mut bytes = [0; 2000];
    let (mut sent, mut came) = (0, 0);
    for _ in 0..100 {
        // Twice what the limit lets pass: what has no room in the socket's queue is not sent.
        (0..2).for_each(|_| sent += u64::from(world.offer_to(&mut sender, 1, peer, &[1; 958])));
        world.run_for(Duration::from_millis(1));
        while let Ok(Some(_)) = receiver.recv.recv(&mut bytes) {
            came += 1;
        }
    }
    // 1000 bytes of frame each; a thousand a second.
    assert!((98..=103).contains(&came), "{came}");
    world.run_for(Duration::from_millis(200));
    while let Ok(Some(_)) = receiver.recv.recv(&mut bytes) {
        came += 1;
    }
    assert_eq!(came, sent, "nothing is lost at the limit");
    world.check_conservation();
}

#[test]
fn a_burst_of_datagrams_waits_in_its_socket_and_none_is_lost_at_the_limit() {
    for (netstack, address) in [(1, "10.0.0.1:9001"), (2, "10.0.0.2:9001")] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(1))));
        world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
        let mut sender = world.bind(1, 1, 0, "10.0.0.1:9000");
        let mut receiver = world.bind(netstack, 2, 0, address);
        let peer = address.parse().unwrap();
        // They know each other, so that nothing waits for a neighbour.
        world.send_to(&mut sender, 1, peer, b"ready");
        world.run_for(Duration::from_millis(50));
        let mut bytes = [0; 2000];
        while let Ok(Some(_)) = receiver.recv.recv(&mut bytes) {}
        for _ in 0..36 {
            world.send_to(&mut sender, 1, peer, &[1; 1208]);
        }
        let mut came = Vec::new();
        for _ in 0..5 {
            world.run_for(Duration::from_millis(100));
            came.push(std::iter::from_fn(|| receiver.recv.recv(&mut bytes).ok().flatten()).count());
        }
        // 1250 bytes of frame each: ten in 100 ms.
        assert_eq!(came.iter().sum::<usize>(), 36, "{address}: {came:?}");
        assert!(came[..3].iter().all(|&count| (9..=12).contains(&count)), "{address}: {came:?}");
        world.check_conservation();
    }
}

#[test]
fn who_waits_for_a_limit_goes_on_when_it_is_lifted() {
    // Of a kilobit in a second a full frame would take twelve.
    for before in [BitRate::ZERO, BitRate::from_bps(1000)] {
        let mut pair = pair(1, "10.0.0.1:80");
        pair.limit(FlowId(1), Some(before));
        let written = pair.world.write(&mut pair.client, &[7; 3000]).expect("the ring has room");
        pair.world.run_for(Duration::from_secs(3));
        pair.limit(FlowId(1), None);
        pair.world.run_for(Duration::from_millis(10));
        let mut bytes = vec![0; 4000];
        let came = pair.world.read(&mut pair.server, &mut bytes);
        assert_eq!(came, Ok(written), "{before:?}");
        pair.world.check_conservation();
    }
}

#[test]
fn datagrams_that_wait_for_a_limit_go_on_when_it_is_lifted() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::ZERO)));
    world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
    let mut sender = world.bind(1, 1, 0, "10.0.0.1:9000");
    let mut receiver = world.bind(1, 2, 0, "10.0.0.1:9001");
    world.send_to(&mut sender, 1, "10.0.0.1:9001".parse().unwrap(), b"later");
    world.run_for(Duration::from_millis(50));
    let mut bytes = [0; 16];
    assert_eq!(receiver.recv.recv(&mut bytes).map(|it| it.is_some()), Ok(false));
    world.all(|| Control::SetMaxbw(FlowId(1), None));
    world.run_for(Duration::from_millis(10));
    assert_eq!(receiver.recv.recv(&mut bytes).map(|it| it.is_some()), Ok(true));
}

#[test]
fn who_owes_an_acknowledgment_behind_a_closed_limit_sleeps() {
    let (mut pair, mut bytes) = (pair(1, "10.0.0.1:80"), [0; 64]);
    // Beyond those that are acknowledged at once.
    for millis in [60; 18].into_iter().chain([5]) {
        pair.world.write(&mut pair.client, b"x").unwrap();
        pair.world.run_for(Duration::from_millis(millis));
        pair.world.read(&mut pair.server, &mut bytes).unwrap();
    }
    pair.limit(FlowId(1), Some(BitRate::ZERO));
    let turns = pair.world.counters().turns;
    pair.world.run_for(Duration::from_secs(5));
    assert!(pair.world.counters().turns - turns < 200, "{}", pair.world.counters().turns - turns);
    pair.limit(FlowId(1), None);
    pair.world.run_for(Duration::from_millis(50));
    pair.world.write(&mut pair.client, b"y").unwrap();
    pair.world.run_for(Duration::from_millis(50));
    assert_eq!(pair.world.read(&mut pair.server, &mut bytes), Ok(1));
}

/// What a program that is gone has left behind a limit does not keep its memory.
#[test]
fn datagrams_of_who_is_gone_wait_for_a_limit_no_longer_than_a_minute() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::ZERO)));
    world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
    let mut sender = world.bind(1, 1, 0, "10.0.0.1:9000");
    world.send_to(&mut sender, 1, "10.0.0.2:9001".parse().unwrap(), b"never");
    let shared = std::sync::Arc::clone(sender.send.shared());
    drop(sender);
    let close = LaneMessage::Socket(NetstackId(1), SocketCommand::CloseDatagrams(SocketId(1)));
    let now = world.now;
    world.lanes[0].on_message(now, close);
    world.run_for(Duration::from_secs(50));
    assert_eq!(std::sync::Arc::strong_count(&shared), 2, "it may leave as yet");
    world.run_for(Duration::from_secs(20));
    assert_eq!(std::sync::Arc::strong_count(&shared), 1);
    world.check_conservation();
}
