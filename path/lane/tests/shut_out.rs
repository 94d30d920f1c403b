//! A flood of one flow ends at its device's door: the lane reads little of it, its neighbours lose nothing, the limit stays
//! exact, and every frame is counted as if it had been read.

use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{BitRate, DropReason, FlowId, LinkId, Priority};
use firelane_world::*;

/// Alice's VNIC, and the flow of what she sends to port 53.
const ALICE: LinkId = LinkId(1);
const FLOODED: FlowId = FlowId(3);
const FRAME: usize = 100;
/// Two hundred frames of a hundred bytes per millisecond are 160 Mb/s.
const FLOOD: usize = 200;
const LIMIT: BitRate = BitRate::from_mbps(8);
const MILLIS: usize = 400;

/// Alice floods bob; what came, by source port.
struct Stub {
    world: World,
    pools: Pools,
    alice: RingDriver,
    bob: RingDriver,
    came: [u64; 3],
}

/// Source ports: of the flood, of its neighbour in the flow, and of what is in no flow, which goes to another port.
const PORTS: [(u16, u16); 3] = [(1, 53), (2, 53), (3, 80)];

impl Stub {
    fn new(limit: Option<BitRate>) -> Self {
        let mut world = World::new(1);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        world.add_flow(plain_flow(FlowId(1), ALICE, None, None));
        world.add_flow(plain_flow(FlowId(2), LinkId(2), None, None));
        let (alice, a) = wire(Capabilities::plain(MTU));
        let (bob, b) = wire(Capabilities::plain(MTU));
        let user = PortUser::Driver { through: world.lane_ids()[0] };
        world.add_port(vnic(1, 0, 1, 1, user), vec![AnyDriver::Doored(Doored::new(a))]);
        world.add_port(vnic(2, 0, 2, 2, user), vec![b.into()]);
        let rule = FlowMatch { remote_port: Some("53".parse().unwrap()), ..FlowMatch::default() };
        let config = FlowConfig { parent: Some(FlowId(1)), maxbw: limit, priority: Priority::Medium };
        let home = world.lane_ids().first().copied();
        world.add_flow(FlowSetup { flow: FLOODED, owner: ALICE, rule: Some(rule), config, home });
        let pools = Pools::new(PoolsConfig { small_slots: 8192, large_slots: 4 });
        Self { world, pools, alice, bob, came: [0; 3] }
    }

    /// A millisecond with so many frames of each source.
    fn millisecond(&mut self, counts: [usize; 3]) {
        let mut chain = Chain::new();
        for (ports, count) in PORTS.into_iter().zip(counts) {
            for _ in 0..count {
                chain.push(udp_frame(&mut self.pools, 1, 2, ports, FRAME));
            }
        }
        self.alice.tx.push_chain(&mut chain);
        assert!(chain.is_empty(), "the lane keeps up");
        self.world.run_for(Duration::from_millis(1));
        let mut came = Chain::new();
        self.bob.rx.pop_into(&mut came, usize::MAX);
        while let Some(frame) = came.pop() {
            self.came[usize::from(frame.as_slice()[35]) - 1] += 1;
            self.pools.put(frame);
        }
    }

    /// Every frame of the flow has passed, is held, or was dropped by the limit; frames that went through the limit's hands.
    fn check(&mut self, sent: [u64; 3]) -> u64 {
        let lane = self.world.lane_ids()[0];
        let read_before = self.snapshot().counters.received;
        self.world.visit(lane, |_, lane| lane.count_turned_away());
        self.world.check_conservation();
        let snapshot = self.snapshot();
        let [_, out] = snapshot.flows.iter().find(|(flow, _)| *flow == FLOODED).unwrap().1;
        assert_eq!(out.arrived, sent[0] + sent[1]);
        assert_eq!(out.passed + out.dropped + snapshot.held, out.arrived);
        assert_eq!(
            (out.passed, out.dropped_bytes),
            (self.came[0] + self.came[1], out.dropped * FRAME as u64)
        );
        assert_eq!(snapshot.counters.drops.of(DropReason::FlowLimit), out.dropped);
        assert_eq!(snapshot.counters.received, sent.iter().sum::<u64>());
        let (_, port) = snapshot.ports.iter().find(|(port, _)| *port == ALICE).unwrap();
        assert_eq!((port.outward.packets, port.outward.dropped), (sent.iter().sum(), out.dropped));
        read_before
    }

    fn snapshot(&self) -> Snapshot {
        self.world.lanes[0].snapshot()
    }
}

#[test]
fn a_flood_ends_at_the_door_and_its_neighbours_lose_nothing() {
    let mut stub = Stub::new(Some(LIMIT));
    // The neighbour has less than half of the limit, and others are in no flow.
    let counts = [FLOOD, 3, 20];
    (0..MILLIS).for_each(|_| stub.millisecond(counts));
    let sent = counts.map(|count| (count * MILLIS) as u64);
    stub.check(sent);
    let [flood, neighbour, others] = stub.came;
    assert_eq!(others, sent[2], "who is in no flow");
    assert!(neighbour + 60 >= sent[1], "{neighbour} of {}", sent[1]);
    let wanted = LIMIT.bytes_in(Duration::from_millis(MILLIS as u64)).0 / FRAME as u64;
    assert!((flood + neighbour).abs_diff(wanted) <= wanted / 100, "{} of {wanted}", flood + neighbour);
    // What the door turned away was never in a chain.
    let chains = stub.snapshot().ports[0].1.outward.arrivals;
    let read = chains.notified + chains.polled;
    assert!(read * 4 < sent.iter().sum(), "{read} of {sent:?} were read");
}

#[test]
fn behind_a_limit_of_zero_the_door_stays_shut_until_the_limit_changes() {
    let mut stub = Stub::new(Some(BitRate::ZERO));
    (0..50).for_each(|_| stub.millisecond([FLOOD, 0, 1]));
    stub.check([50 * FLOOD as u64, 0, 50]);
    assert_eq!(stub.came, [0, 0, 50]);
    stub.world.all(|| Control::SetMaxbw(FLOODED, None));
    stub.millisecond([FLOOD, 0, 0]);
    assert_eq!(stub.came, [FLOOD as u64, 0, 50]);
    stub.check([51 * FLOOD as u64, 0, 50]);
}

#[test]
fn a_flow_that_goes_takes_nobody_with_it() {
    let mut stub = Stub::new(Some(LIMIT));
    (0..20).for_each(|_| stub.millisecond([FLOOD, 0, 0]));
    stub.check([20 * FLOOD as u64, 0, 0]);
    stub.world.all(|| Control::RemoveFlow(FLOODED));
    let before = stub.came[0];
    (0..5).for_each(|_| stub.millisecond([FLOOD, 0, 0]));
    assert!(stub.came[0] - before >= 5 * FLOOD as u64, "nobody limits it, and nobody shuts it out");
    stub.world.check_conservation();
}
