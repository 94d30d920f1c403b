//! Who sends at a limit waits for it, whether its home is his lane or another: nothing is lost, and however many they are, all have the same
//! share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_socket::{DatagramEnd, StreamEnd};
use firelane_units::{BitRate, DropReason, FlowId, LaneId, LinkId, Mtu};
use firelane_world::*;

/// Who gets the datagrams: another netstack's socket, or one of the same, which they reach past the same VNIC twice.
const PEERS: [&str; 2] = ["10.0.0.2:9", "10.0.0.1:9"];
const TEXT: usize = 1400;
/// The wire bytes of a datagram of [`TEXT`].
const FRAME: u64 = TEXT as u64 + 42;
/// How long offers go on before the next ones.
const STEP: Duration = Duration::from_micros(200);

/// More than there are queues in a hold, most of them at home.
const MANY: [u16; 40] = {
    let mut lanes = [0; 40];
    let mut n = 28;
    while n < lanes.len() {
        lanes[n] = 1;
        n += 1;
    }
    lanes
};

/// Two netstacks on so many lanes; the VNIC of the first has a limit at home in lane 0.
fn limited(lanes: u16, mbps: u64) -> World {
    let mut world = two_stacks(lanes, Mtu::ETHERNET);
    world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
    world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(mbps))));
    world
}

/// Sockets of netstack 1 in these lanes that offer datagrams without pause, and the one that gets them.
struct Senders {
    world: World,
    ends: Vec<DatagramEnd>,
    receiver: DatagramEnd,
    peer: SocketAddr,
    got: BTreeMap<SocketAddr, u64>,
}

impl Senders {
    fn new(mut world: World, peer: &str, lanes: &[u16]) -> Self {
        let netstack = if peer == PEERS[0] { 2 } else { 1 };
        let receiver = world.bind(netstack, 99, 0, peer);
        let bind = |(n, &lane): (u32, &u16)| world.bind(1, n, lane, "10.0.0.1:0");
        let ends = (0..).zip(lanes).map(bind).collect();
        let peer = peer.parse().unwrap();
        let mut senders = Self { world, ends, receiver, peer, got: BTreeMap::new() };
        // Nothing waits for a neighbour's answer later on.
        for (n, socket) in (0..).zip(&mut senders.ends) {
            senders.world.send_to(socket, n, senders.peer, b"first");
            senders.world.run_for(Duration::from_millis(20));
        }
        senders.world.run_for(Duration::from_millis(100));
        senders
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.world.now + span;
        while self.world.now < end {
            self.offer();
            self.world.run_for(STEP);
            self.take();
        }
    }

    /// Each has as much to send as his queue has room for.
    fn offer(&mut self) {
        for (n, socket) in (0..).zip(&mut self.ends) {
            while self.world.offer_to(socket, n, self.peer, &[7; TEXT]) {}
        }
    }

    /// Counts what has arrived.
    fn take(&mut self) {
        let mut buffer = [0; TEXT];
        while let Ok(Some(datagram)) = self.receiver.recv.recv(&mut buffer) {
            *self.got.entry(datagram.envelope.peer).or_default() += FRAME;
        }
    }

    /// What each sent that has arrived in this time.
    fn arrived_in(&mut self, span: Duration) -> Vec<u64> {
        self.got.clear();
        self.run_for(span);
        let mut got: Vec<u64> = self.got.values().copied().collect();
        got.resize(self.ends.len().max(got.len()), 0);
        got
    }
}

#[test]
fn datagrams_wait_in_their_sockets_and_each_has_his_share() {
    for (peer, mbps) in PEERS.into_iter().flat_map(|peer| [1, 10, 100, 1000].map(|mbps| (peer, mbps))) {
        for lanes in [&[1][..], &[0, 1], &[0, 0, 1], &[0; 8], &[1; 12], &[0, 0, 0, 0, 0, 0, 0, 1], &MANY] {
            let case = format!("{mbps} Mb/s to {peer}, lanes {lanes:?}");
            let mut senders = Senders::new(limited(2, mbps), peer, lanes);
            senders.run_for(Duration::from_millis(100));
            let span = Duration::from_millis(if mbps < 10 { 1000 } else { 200 });
            let got = senders.arrived_in(span);
            let drops = senders.world.counters().drops;
            assert_eq!(drops.of(DropReason::FlowLimit), 0, "{case}: {got:?}");
            let promised = BitRate::from_mbps(mbps).bytes_in(span).0;
            match lanes.len() > 32 {
                true => check_many(&case, promised, &got, lanes.len()),
                false => check_shares(&case, promised, &got),
            }
            senders.world.check_conservation();
        }
    }
}

/// What a limit costs does not depend on how many wait for it: a few are asked each time, and in the order in which they have waited.
#[test]
fn a_thousand_who_wait_have_the_same_share() {
    for senders in [600, 1000] {
        let mut senders = Senders::new(limited(1, 100), PEERS[0], &vec![0; senders]);
        senders.run_for(Duration::from_millis(20));
        let span = Duration::from_millis(1000);
        let got = senders.arrived_in(span);
        let (all, promised) = (got.iter().sum::<u64>(), BitRate::from_mbps(100).bytes_in(span).0);
        assert!(all.abs_diff(promised) <= promised / 100, "{all}, {promised}");
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!(most - least <= 3 * FRAME, "{least} to {most}");
        assert_eq!(senders.world.counters().drops.of(DropReason::FlowLimit), 0);
        senders.world.check_conservation();
    }
}

/// Nobody's frames wait in the hold: the limit knows of who was told to come again.
#[test]
fn a_late_lane_loses_nothing_of_what_sockets_wait_for() {
    for (count, mbps, late) in [(1, 10, 9), (3, 100, 5), (40, 100, 2), (2, 20, 9), (600, 100, 2)] {
        let mut senders = Senders::new(limited(1, mbps), PEERS[0], &vec![0; count]);
        senders.run_for(Duration::from_millis(50));
        senders.got.clear();
        let (span, begin) = (Duration::from_millis(900), senders.world.now);
        while senders.world.now < begin + span {
            senders.world.now += Duration::from_millis(late);
            senders.world.run();

            senders.take();

            senders.offer();
        }
        let all: u64 = senders.got.values().sum();
        let promised = BitRate::from_mbps(mbps).bytes_in(span).0;
        assert!(
            all.abs_diff(promised) <= promised / 50,
            "{count} at {mbps} Mb/s, {late} ms: {all}, {promised}"
        );
    }
}

/// Each of several lanes that are not the home reads the same board, and none hears in time of what the others take.
#[test]
fn many_lanes_with_many_senders_lose_nothing_and_have_equal_shares() {
    for (lanes, mbps) in [(3, 10), (4, 10), (4, 100), (6, 10)] {
        let of: Vec<u16> = (0..lanes * 30).map(|n| n % lanes).collect();
        let mut senders = Senders::new(limited(lanes, mbps), PEERS[0], &of);
        senders.run_for(Duration::from_millis(100));
        senders.arrived_in(Duration::from_millis(2000));
        let case = format!("{lanes} lanes at {mbps} Mb/s");
        let mut by_lane = vec![0; usize::from(lanes)];
        for (end, lane) in senders.ends.iter().zip(&of) {
            let peer = end.recv.shared().local().unwrap();
            by_lane[usize::from(*lane)] += senders.got.get(&peer).copied().unwrap_or(0);
        }
        assert_eq!(senders.world.counters().drops.of(DropReason::FlowLimit), 0, "{case}: {by_lane:?}");
        let promised = BitRate::from_mbps(mbps).bytes_in(Duration::from_secs(2)).0;
        let all: u64 = by_lane.iter().sum();
        assert!(all.abs_diff(promised) <= promised / 100, "{case}: {by_lane:?}, {promised}");
        let share = promised / u64::from(lanes);
        assert!(by_lane.iter().all(|it| it.abs_diff(share) <= share / 3), "{case}: {by_lane:?}, {share}");
        senders.world.check_conservation();
    }
}

/// All have what the limit promises, and nobody nothing if there was a turn for each.
fn check_many(case: &str, promised: u64, got: &[u64], senders: usize) {
    let all: u64 = got.iter().sum();
    assert!(all.abs_diff(promised) <= (promised / 100).max(2 * FRAME), "{case}: {all}, {promised}");
    let share = promised / senders as u64;
    let had = got.iter().filter(|&&bytes| bytes >= share / 3).count();
    assert!(share < 5 * FRAME || had == senders, "{case}: {share} each, {got:?}");
}

/// All have what the limit promises, and none much more or less than the others.
fn check_shares(case: &str, promised: u64, got: &[u64]) {
    let all: u64 = got.iter().sum();
    assert!(all.abs_diff(promised) <= (promised / 100).max(2 * FRAME), "{case}: {all}, {promised}");
    let share = promised / got.len() as u64;
    for bytes in got {
        assert!(bytes.abs_diff(share) <= (share / 5).max(3 * FRAME), "{case}: {got:?}");
    }
}

/// The lanes of connections.
const LANES: [u16; 10] = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1];

#[test]
fn connections_wait_for_a_limit_elsewhere_and_lose_nothing() {
    for mbps in [2, 20, 200] {
        let mut world = limited(2, mbps);
        let listener = world.listen(2, 5, "10.0.0.2:80", 16);
        let mut clients: Vec<StreamEnd> =
            LANES.into_iter().map(|lane| world.connect(1, lane, "10.0.0.2:80")).collect();
        world.run_for(Duration::from_millis(500));
        let mut servers: Vec<StreamEnd> =
            std::iter::from_fn(|| listener.accept()).map(|it| it.stream).collect();
        assert_eq!(servers.len(), clients.len());
        let (text, mut buffer) = (vec![7; 1 << 16], vec![0; 1 << 16]);
        let mut got = [0; LANES.len()];
        let span = Duration::from_millis(if mbps < 20 { 3000 } else { 500 });
        let settled = world.now + Duration::from_millis(300);
        let end = settled + span;
        while world.now < end {
            for client in &mut clients {
                while world.write(client, &text).is_ok() {}
            }
            world.run_for(STEP);
            for (server, got) in servers.iter_mut().zip(&mut got) {
                while let Ok(count @ 1..) = world.read(server, &mut buffer) {
                    *got += if world.now > settled { count as u64 } else { 0 };
                }
            }
        }
        assert_eq!(world.counters().drops.total(), 0, "{mbps} Mb/s: {got:?}");
        // Headers take 66 of 1,514 bytes.
        let promised = BitRate::from_mbps(mbps).bytes_in(span).0 * 1448 / 1514;
        check_shares(&format!("{mbps} Mb/s"), promised, &got);
        world.check_conservation();
    }
}

/// Neither has a turn before the other each time.
#[test]
fn a_stream_and_datagrams_of_one_flow_have_equal_shares() {
    for (lanes, of_stream, of_datagrams) in [(1, 0, 0), (2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1)] {
        for mbps in [1, 10, 100, 500] {
            let case = format!("{mbps} Mb/s, lanes {of_stream} and {of_datagrams} of {lanes}");
            let mut senders = Senders::new(limited(lanes, mbps), PEERS[0], &[of_datagrams]);
            let listener = senders.world.listen(2, 5, "10.0.0.2:80", 8);
            let mut client = senders.world.connect(1, of_stream, "10.0.0.2:80");
            senders.world.run_for(Duration::from_millis(200));
            let mut server = listener.accept().expect("the handshake is over").stream;
            let (text, mut buffer) = (vec![7; 1 << 16], vec![0; 1 << 16]);
            let mut got = [0; 2];
            let span = Duration::from_millis(if mbps < 10 { 2000 } else { 200 });
            let settled = senders.world.now + Duration::from_millis(100);
            let end = settled + span;
            while senders.world.now < end {
                while senders.world.write(&mut client, &text).is_ok() {}
                let datagrams: u64 = senders.arrived_in(STEP).iter().sum();
                let mut stream = 0;
                while let Ok(count @ 1..) = senders.world.read(&mut server, &mut buffer) {
                    stream += count as u64 * 1514 / 1448;
                }
                if senders.world.now > settled {
                    got = [got[0] + stream, got[1] + datagrams];
                }
            }
            assert_eq!(senders.world.counters().drops.of(DropReason::FlowLimit), 0, "{case}: {got:?}");
            let half = BitRate::from_mbps(mbps).bytes_in(span).0 / 2;
            for bytes in got {
                // Large segments have larger turns than a socket's buffer may fill.
                let least = if mbps > 100 { half * 3 / 5 } else { half * 4 / 5 };
                assert!(bytes >= least, "{case}: {got:?}");
            }
            senders.world.check_conservation();
        }
    }
}

/// What a device's user sends waits in its ring, where he sees it.
#[test]
fn frames_of_a_device_wait_in_it_for_a_limit_elsewhere() {
    for mbps in [1, 100] {
        let mut world = World::new(2);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let limit = Some(BitRate::from_mbps(mbps));
        world.add_flow(plain_flow(FlowId(1), LinkId(1), limit, Some(LaneId(0))));
        world.add_flow(plain_flow(FlowId(2), LinkId(2), None, None));
        let ([mut alice, mut bob], queues): ([RingDriver; 2], [RingDriver; 2]) = {
            let [(a, x), (b, y)] = [(); 2].map(|()| wire(Capabilities::plain(MTU)));
            ([a, b], [x, y])
        };
        let mut queues = queues.map(|queue| Some(AnyDriver::Ring(queue)));
        for lane in &mut world.lanes {
            for (nth, home) in [LaneId(1), LaneId(0)].into_iter().enumerate() {
                let user = PortUser::Driver { through: home };
                let (id, end) = (nth as u32 + 1, nth as u8 + 1);
                let here = if lane.id() == home { queues[nth].take() } else { None };
                let port = Control::AddPort(vnic(id, 0, end, id, user), here);
                lane.on_message(world.now, LaneMessage::Control(Box::new(port)));
            }
        }
        let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
        let (mut got, mut sent) = (0, 0);
        let span = Duration::from_millis(if mbps < 10 { 1000 } else { 200 });
        let end = world.now + span;
        while world.now < end {
            let mut chain = Chain::new();
            chain.extend((0..64u16).map(|n| udp_frame(&mut pools, 1, 2, (n + 1, 53), TEXT)));
            alice.tx.push_chain(&mut chain);
            sent += 64 - chain.len() as u64;
            pools.put_all(&mut chain);
            world.run_for(STEP);
            let mut came = Chain::new();
            bob.rx.pop_into(&mut came, usize::MAX);
            got += came.iter().map(|frame| frame.wire_bytes() as u64).sum::<u64>();
            pools.put_all(&mut came);
        }
        assert!(sent > 64, "some wait");
        assert_eq!(world.counters().drops.total(), 0, "{mbps} Mb/s");
        check_shares(&format!("{mbps} Mb/s"), BitRate::from_mbps(mbps).bytes_in(span).0, &[got]);
        world.check_conservation();
    }
}

/// A device's queue in the limit's lane is read, too, while senders of another lane fill the hold all the time.
#[test]
fn a_queue_of_the_home_is_read_beside_a_flood_of_another_lane() {
    for (mbps, conversations) in [(1, 1), (10, 1), (10, 12), (100, 12)] {
        let mut world = World::new(2);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let limit = Some(BitRate::from_mbps(mbps));
        world.add_flow(plain_flow(FlowId(1), LinkId(1), limit, Some(LaneId(0))));
        world.add_flow(plain_flow(FlowId(2), LinkId(2), None, None));
        let [(mut quiet, home), (mut flood, away), (mut bob, queue)] =
            [(); 3].map(|()| wire(Capabilities::plain(MTU)));
        let user = PortUser::Driver { through: LaneId(0) };
        world.add_port(vnic(1, 0, 1, 1, user), vec![home.into(), away.into()]);
        world.add_port(vnic(2, 0, 2, 2, user), vec![queue.into()]);
        let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
        let (mut asked, mut came) = (0, 0);
        let turn = BitRate::from_mbps(mbps).time_for(firelane_units::Bytes(FRAME * 16)).max(STEP);
        let end = world.now + turn * 40;
        while world.now < end {
            let mut chain = Chain::new();
            chain.extend((0..64u16).map(|n| udp_frame(&mut pools, 1, 2, (n % conversations + 1, 53), TEXT)));
            flood.tx.push_chain(&mut chain);
            pools.put_all(&mut chain);
            chain.push(udp_frame(&mut pools, 1, 2, (999, 53), 100));
            quiet.tx.push_chain(&mut chain);
            asked += 1 - chain.len();
            pools.put_all(&mut chain);
            world.run_for(turn);
            let mut got = Chain::new();
            bob.rx.pop_into(&mut got, usize::MAX);
            came += got.iter().filter(|frame| frame.len() < 200).count();
            pools.put_all(&mut got);
        }
        assert!(came + 4 >= asked, "{mbps} Mb/s beside {conversations}: {came} of {asked}");
        world.check_conservation();
    }
}
