//! Frames for everybody: what their copies take from the sender's neighbours.

use firelane_frame::{Capabilities, Chain, Frame, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{DropReason, FlowId, LaneId, LinkId};
use firelane_world::*;

/// As many VNICs as a host of containers has.
const PORTS: u8 = 200;
/// What a round may bring of one device.
const ROUND: usize = 64;
const ROUNDS: usize = 200;

/// An etherstub of one lane with many devices.
struct Stub {
    world: World,
    pools: Pools,
    devices: Vec<RingDriver>,
}

impl Stub {
    fn new() -> Self {
        let mut world = World::with_pools(1, PoolsConfig { small_slots: 16_384, large_slots: 4 });
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let mut devices = Vec::new();
        for n in 1..=PORTS {
            let id = u32::from(n);
            let (outside, inside) = wire(Capabilities::plain(MTU));
            world.add_flow(plain_flow(FlowId(id), LinkId(id), None, None));
            let user = PortUser::Driver { through: LaneId(0) };
            // Of port 2 frames are copied into the lane's buffers, as of a TAP.
            let inside = if n == 2 { AnyDriver::Copying(Copying(inside)) } else { inside.into() };
            world.add_port(vnic(id, 0, n, id, user), vec![inside]);
            devices.push(outside);
        }
        let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
        Self { world, pools, devices }
    }

    fn frame(&mut self, from: u8, to: u8, port: u16) -> Frame {
        udp_frame(&mut self.pools, from, to, (port, 53), 60)
    }

    fn push(&mut self, from: u8, frame: Frame) {
        let mut chain = Chain::new();
        chain.push(frame);
        self.devices[usize::from(from) - 1].tx.push_chain(&mut chain);
        // What the ring has no room for is lost, as in a device.
        while let Some(frame) = chain.pop() {
            self.pools.put(frame);
        }
    }

    fn broadcast(&mut self, from: u8, port: u16) {
        let mut frame = self.frame(from, 1, port);
        frame.as_mut_slice()[..6].fill(0xff);
        self.push(from, frame);
    }

    fn turn(&mut self) {
        self.world.visit(LaneId(0), |now, lane| lane.turn(now, Idle::Sleeps));
    }

    /// What came out at a port: frames for it, and for everybody.
    fn heard(&mut self, at: u8) -> (usize, usize) {
        let mut chain = Chain::new();
        self.devices[usize::from(at) - 1].rx.pop_into(&mut chain, usize::MAX);
        let all = chain.iter().filter(|frame| frame.as_slice()[0] == 0xff).count();
        let count = (chain.len() - all, all);
        self.pools.put_all(&mut chain);
        count
    }
}

#[test]
fn copies_take_from_neighbours_no_more_than_frames_would() {
    let mut stub = Stub::new();
    let (mut copies, mut most, mut answered) = (0, 0, 0);
    for round in 0..ROUNDS {
        (0..ROUND as u16).for_each(|port| stub.broadcast(1, port));
        let asks = stub.frame(2, 3, round as u16);
        stub.push(2, asks);
        stub.turn();
        let mut all = 0;
        for port in 2..=PORTS {
            let (one, many) = stub.heard(port);
            all += many;
            answered += usize::from(port == 3) * one;
        }
        copies += all;
        most = most.max(all);
    }
    assert_eq!(answered, ROUNDS, "who asks is answered in the same round");
    // The first chain was fetched before anybody knew what it would be.
    let first = ROUND * usize::from(PORTS - 1);
    assert!(most <= first && copies <= first + ROUNDS * 2 * ROUND, "{copies} copies, {most} in a round");
    assert!(copies > ROUNDS * ROUND / 2, "and the sender has its share: {copies}");
    stub.world.check_conservation();
}

#[test]
fn a_flood_leaves_buffers_to_others() {
    let mut stub = Stub::new();
    // Nobody takes what is for everybody.
    for port in 0..2000_u16 {
        stub.broadcast(1, port);
        stub.turn();
    }
    let missed = stub.world.counters().drops.of(DropReason::NoBuffer);
    assert!(missed > 0, "the test floods");
    stub.heard(3);
    let asked = 200;
    let answered = (0..asked).map(|port| {
        let asks = stub.frame(2, 3, port);
        stub.push(2, asks);
        stub.turn();
        stub.heard(3).0
    });
    assert_eq!(answered.sum::<usize>(), usize::from(asked));
}
