//! Limits on fused connections of one process: the lane grants credit, and every window of 100 ms is exact.

use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_lane::{
    Control, FlowSetup, FuseWith, FusionTuning, Idle, LaneMessage, NetstackConfig, SocketCommand,
};
use firelane_socket::{Flags, Ready, SocketToken, StreamEnd};
use firelane_units::{BitRate, FlowId, LaneId, LinkId, Mtu, NetstackId, Port, Priority};
use firelane_wire::IpProtocol;
use firelane_world::*;
use proptest::prelude::*;

const WINDOW: Duration = Duration::from_millis(100);

/// What has no limit is not written without end at one instant.
const ROUNDS: usize = 20;
const WRITES: usize = 16;

/// Connections of a netstack with itself, fused, and how much each has carried.
struct Pairs {
    world: World,
    pairs: Vec<(StreamEnd, StreamEnd)>,
    sent: Vec<u64>,
    got: Vec<u64>,
}

fn byte_at(cursor: u64) -> u8 {
    (cursor * 31 + (cursor >> 8)) as u8
}

fn pairs(lanes: u16, count: usize) -> Pairs {
    let mut world = two_stacks(lanes, Mtu::ETHERNET);
    let listener = world.listen(1, 1, "0.0.0.0:80", 64);
    let mut pairs = Vec::new();
    for n in 0..count {
        let client = world.connect(1, (n % usize::from(lanes)) as u16, "10.0.0.1:80");
        world.run();
        let server = listener.accept().expect("the handshake is over").stream;
        assert!(client.shared().words().flags().contains(Flags::FUSED));
        pairs.push((client, server));
    }
    Pairs { world, pairs, sent: vec![0; count], got: vec![0; count] }
}

fn fused(end: &StreamEnd) -> bool {
    end.shared().words().flags().contains(Flags::FUSED)
}

impl Pairs {
    /// The limit of a flow, kept in the last lane.
    fn limit(&mut self, flow: FlowId, maxbw: Option<BitRate>) {
        let home = LaneId(self.world.lanes.len() as u16 - 1);
        self.world.all(|| Control::SetHome(flow, maxbw.map(|_| home)));
        self.world.all(|| Control::SetMaxbw(flow, maxbw));
        self.world.run();
    }

    fn tune(&mut self, is_on: bool) {
        let fusion = FusionTuning { is_on, ..FusionTuning::default() };
        let config = NetstackConfig { fusion, ..NetstackConfig::new(NetstackId(1)) };
        self.world.all(|| Control::Tune(config.clone()));
        self.world.run();
    }

    /// Each writes as much as it can in pieces of `size` bytes, and its peer reads: whether any byte moved.
    fn exchange(&mut self, size: usize) -> bool {
        let mut moved = false;
        let mut buffer = vec![0; 1 << 18];
        for (n, (client, server)) in self.pairs.iter_mut().enumerate() {
            for _ in 0..WRITES {
                let piece: Vec<u8> = (self.sent[n]..self.sent[n] + size as u64).map(byte_at).collect();
                let Ok(count @ 1..) = self.world.write(client, &piece) else { break };
                self.sent[n] += count as u64;
                moved = true;
                if let Ok(count @ 1..) = self.world.read(server, &mut buffer) {
                    let came = &buffer[..count];
                    assert!(came.iter().zip(self.got[n]..).all(|(&byte, at)| byte == byte_at(at)));
                    self.got[n] += count as u64;
                }
                if !(fused(client)) {
                    break;
                }
            }
            while let Ok(count @ 1..) = self.world.read(server, &mut buffer) {
                let came = &buffer[..count];
                assert!(came.iter().zip(self.got[n]..).all(|(&byte, at)| byte == byte_at(at)));
                self.got[n] += count as u64;
                moved = true;
            }
        }
        moved
    }

    /// All write without pause for so many windows: how much has come in each.
    fn saturate(&mut self, size: usize, windows: usize) -> Vec<u64> {
        let mut came = Vec::new();
        for _ in 0..windows {
            let before: u64 = self.got.iter().sum();
            let end = self.world.now + WINDOW;
            let mut rounds = 0;
            while self.world.now < end {
                let next = self.world.run().unwrap_or(end);
                rounds += 1;
                if self.exchange(size) && rounds < ROUNDS {
                    continue;
                }
                self.world.now = next.min(end).max(self.world.now);
                rounds = 0;
            }
            came.push(self.got.iter().sum::<u64>() - before);
        }
        came
    }
}

fn exact(rate: BitRate, came: &[u64]) {
    let wanted = rate.bytes_in(WINDOW).0;
    let allowed = (wanted / 100).max(2 * 1514);
    assert!(came.iter().all(|bytes| bytes.abs_diff(wanted) <= allowed), "{came:?} for {wanted}");
}

fn part(flow: u32, parent: Option<u32>, port: u16, maxbw: Option<BitRate>, home: LaneId) -> FlowSetup {
    let rule = FlowMatch {
        transport: Some(IpProtocol::TCP),
        local_port: Some(Port(port).into()),
        ..FlowMatch::default()
    };
    let config = FlowConfig { parent: parent.map(FlowId), maxbw, priority: Priority::Medium };
    FlowSetup { flow: FlowId(flow), owner: LinkId(1), rule: Some(rule), config, home: Some(home) }
}

#[test]
fn every_window_of_a_limited_vnic_is_exact_in_one_lane_and_in_several() {
    for (lanes, count, size) in [(1, 1, 1 << 14), (1, 5, 100_000), (2, 1, 1 << 14), (4, 6, 3_000)] {
        let mut pairs = pairs(lanes, count);
        let packets = pairs.world.counters().originated;
        for mbps in [10, 300] {
            let rate = BitRate::from_mbps(mbps);
            pairs.limit(FlowId(1), Some(rate));
            exact(rate, &pairs.saturate(size, 3)[1..]);
        }
        assert_eq!(pairs.world.counters().originated, packets, "nobody went back to segments");
        assert!(pairs.pairs.iter().all(|(client, _)| fused(client)));
        pairs.world.check_conservation();
    }
}

#[test]
fn the_tightest_of_the_receivers_flow_and_the_vnic_holds() {
    let mut pairs = pairs(2, 2);
    pairs.limit(FlowId(1), Some(BitRate::from_mbps(400)));
    let rate = BitRate::from_mbps(50);
    // What comes to port 80 is limited; its home is another lane than the VNIC's.
    pairs.world.add_flow(part(9, None, 80, Some(rate), LaneId(0)));
    pairs.world.run();
    exact(rate, &pairs.saturate(1 << 14, 3)[1..]);
    pairs.world.all(|| Control::RemoveFlow(FlowId(9)));
    pairs.world.run();
    exact(BitRate::from_mbps(400), &pairs.saturate(1 << 14, 3)[1..]);
}

#[test]
fn a_limit_that_comes_goes_and_changes_holds_at_once_and_none_is_looked_at_afterwards() {
    let mut pairs = pairs(1, 1);
    pairs.limit(FlowId(1), Some(BitRate::ZERO));
    pairs.exchange(1 << 14);
    let stuck = pairs.got[0];
    assert_eq!(pairs.saturate(1 << 14, 2), [0, 0], "nothing passes zero: {stuck}");
    for mbps in [100, 20, 800] {
        pairs.limit(FlowId(1), Some(BitRate::from_mbps(mbps)));
        // What was lent before and not used is used first.
        exact(BitRate::from_mbps(mbps), &pairs.saturate(1 << 14, 3)[1..]);
    }
    pairs.limit(FlowId(1), None);
    let (client, server) = &mut pairs.pairs[0];
    let text: Vec<u8> = (pairs.sent[0]..pairs.sent[0] + 500_000).map(byte_at).collect();
    let mut came = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    assert_eq!(pairs.world.write(client, &text), Ok(text.len()), "as much as both buffers hold, at once");
    while let Ok(count @ 1..) = pairs.world.read(server, &mut buffer) {
        came.extend_from_slice(&buffer[..count]);
    }
    assert!(came.ends_with(&text));
}

#[test]
fn what_is_written_before_the_end_is_read_and_nothing_waits_behind_the_end() {
    let mut pairs = pairs(1, 1);
    pairs.limit(FlowId(1), Some(BitRate::from_mbps(10)));
    pairs.saturate(1 << 16, 1);
    let (client, server) = &mut pairs.pairs[0];
    pairs.world.command(client, SocketCommand::Close);
    // The FIN is a segment, which waits for the limit.
    pairs.world.run_for(WINDOW);
    let mut buffer = vec![0; 1 << 18];
    while let Ok(count @ 1..) = pairs.world.read(server, &mut buffer) {
        pairs.got[0] += count as u64;
    }
    assert_eq!(pairs.got, pairs.sent);
    assert_eq!(pairs.world.read(server, &mut buffer), Ok(0));
    pairs.world.run_for(Duration::from_secs(1));
    pairs.world.check_conservation();
}

#[test]
fn segments_and_rings_share_one_limit() {
    let mut pairs = pairs(1, 2);
    let rate = BitRate::from_mbps(100);
    pairs.limit(FlowId(1), Some(rate));
    // One of the two goes in segments: a flow of its own forbids it to be fused.
    let port = pairs.pairs[1].0.shared().names().unwrap().local.port();
    pairs.world.add_flow(part(7, Some(1), port, None, LaneId(0)));
    pairs.world.all(|| Control::SetFusion(FlowId(7), FuseWith::Nobody));
    pairs.world.run();
    assert!(fused(&pairs.pairs[0].0) && !fused(&pairs.pairs[1].0));
    pairs.saturate(1 << 14, 2);
    let before = pairs.got.clone();
    let came = pairs.saturate(1 << 14, 4);
    let wanted = rate.bytes_in(WINDOW).0;
    assert!(came.iter().all(|&bytes| bytes <= wanted * 101 / 100 && bytes >= wanted * 88 / 100), "{came:?}");
    let shares: Vec<u64> = pairs.got.iter().zip(before).map(|(now, before)| now - before).collect();
    let total: u64 = shares.iter().sum();
    assert!(shares.iter().all(|share| share * 6 > total), "neither keeps the other out: {shares:?}");
    pairs.world.check_conservation();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever changes under load, no byte is lost and nobody waits for ever.
    #[test]
    fn whatever_changes_no_byte_is_lost_and_nobody_waits_for_ever(
        lanes in 1u16..3,
        changes in prop::collection::vec((0u8..5, 1u64..500, 100usize..60_000), 1..20),
    ) {
        let mut pairs = pairs(lanes, 2);
        for (change, number, size) in changes {
            match change {
                0 => pairs.limit(FlowId(1), Some(BitRate::from_mbps(number))),
                1 => pairs.limit(FlowId(1), None),
                2 => pairs.tune(number % 2 == 0),
                3 => pairs.world.all(|| Control::SetHome(FlowId(1), Some(LaneId((number % u64::from(lanes)) as u16)))),
                _ => {}
            }
            for _ in 0..10 {
                pairs.exchange(size);
                pairs.world.run_for(Duration::from_micros(number * 3));
            }
        }
        pairs.limit(FlowId(1), Some(BitRate::from_mbps(1_000)));
        pairs.tune(true);
        let before = pairs.got.clone();
        pairs.saturate(1 << 14, 2);
        prop_assert!(pairs.got.iter().zip(&before).all(|(now, before)| now > before));
        pairs.limit(FlowId(1), None);
        for _ in 0..1000 {
            pairs.world.run_for(Duration::from_millis(1));
            let Pairs { world, pairs: ends, got, sent } = &mut pairs;
            let mut buffer = vec![0; 1 << 18];
            for (n, (_, server)) in ends.iter_mut().enumerate() {
                while let Ok(count @ 1..) = world.read(server, &mut buffer) {
                    got[n] += count as u64;
                }
            }
            if got == sent {
                break;
            }
        }
        prop_assert_eq!(&pairs.got, &pairs.sent);
        pairs.world.check_conservation();
    }
}

#[test]
fn who_waits_for_credit_is_told_that_none_is_needed_any_more() {
    for how in 0..3 {
        let mut test = pairs(1, 1);
        test.limit(FlowId(1), Some(BitRate::from_mbps(1)));
        let (client, server) = &mut test.pairs[0];
        // All that the limit has lent is used, and its peer has read it.
        while test.world.write(client, &[7; 1000]).is_ok() {}
        let mut buffer = vec![0; 1 << 18];
        while let Ok(1..) = test.world.read(server, &mut buffer) {}
        client.shared().words().set_token(SocketToken(9));
        client.shared().words().wait_for(Ready::WRITABLE);
        test.world.mail.ready.clear();
        match how {
            0 => test.tune(false),
            1 => test.world.command(server, SocketCommand::Shutdown),
            _ => test.world.command(server, SocketCommand::Close),
        }
        test.world.run();
        let told = test.world.mail.ready.iter().filter(|(token, _)| *token == SocketToken(9));
        let ready = told.fold(Ready::NONE, |all, (_, ready)| all | *ready);
        assert!(ready.contains(Ready::WRITABLE), "{how}: {ready:?}");
    }
}

#[test]
fn who_waits_for_credit_follows_a_flow_that_takes_his_connection_over() {
    let mut test = pairs(1, 1);
    test.limit(FlowId(1), Some(BitRate::from_mbps(400)));
    test.world.add_flow(part(9, Some(1), 80, Some(BitRate::ZERO), LaneId(0)));
    test.saturate(1 << 14, 1);
    let mut narrower = part(10, Some(1), 80, Some(BitRate::from_mbps(100)), LaneId(0));
    if let Some(rule) = &mut narrower.rule {
        rule.remote_ip = Some("10.0.0.1/32".parse().unwrap());
    }
    test.world.add_flow(narrower);
    exact(BitRate::from_mbps(100), &test.saturate(1 << 14, 3)[1..]);
}

/// What a connection has asked for in a lane that fails then never comes. It asks in the lane that the limit has from then on.
#[test]
fn who_has_asked_in_a_lane_that_fails_asks_in_the_next_one() {
    let mut pairs = pairs(2, 1);
    pairs.limit(FlowId(1), Some(BitRate::from_mbps(8)));
    pairs.saturate(1 << 12, 2);
    let alone = |pairs: &mut Pairs, span: Duration| {
        let (before, end) = (pairs.got[0], pairs.world.now + span);
        while pairs.world.now < end {
            let now = pairs.world.now;
            let until = pairs.world.lanes[0].turn(now, Idle::Sleeps).until.unwrap_or(end);
            assert!(!pairs.world.lanes[0].empty_outbox(&mut pairs.world.mail));
            pairs.world.mail.messages.clear();
            pairs.exchange(1 << 12);
            pairs.world.now = until.clamp(now + Duration::from_micros(10), end);
        }
        pairs.got[0] - before
    };
    // It writes what it still may, and asks.
    alone(&mut pairs, WINDOW);
    assert_eq!(alone(&mut pairs, WINDOW), 0, "nobody answers");
    let (now, home) = (pairs.world.now, Control::SetHome(FlowId(1), Some(LaneId(0))));
    pairs.world.lanes[0].on_message(now, LaneMessage::Control(Box::new(home)));
    alone(&mut pairs, WINDOW);
    let (got, promised) = (alone(&mut pairs, 4 * WINDOW), BitRate::from_mbps(8).bytes_in(4 * WINDOW).0);
    assert!(got.abs_diff(promised) <= promised / 10, "{got} of {promised}");
}
