//! Several exits: who lies beyond which is known in every lane, whichever reads the exit's frames.

use firelane_frame::{Capabilities, Chain, Frame, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{FlowId, LaneId, LinkId};
use firelane_world::*;

/// Beyond one exit or the other; the station here is 1.
const FAR: u8 = 77;

/// A station with a queue in each of two lanes, and two trunks: one is read in lane 0 alone, the other in both.
struct Net {
    world: World,
    pools: Pools,
    station: [RingDriver; 2],
    one: RingDriver,
    other: [RingDriver; 2],
}

fn net() -> Net {
    let mut world = World::new(2);
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
    let pair = || wire(Capabilities::plain(MTU));
    let ((s0, s0_end), (s1, s1_end)) = (pair(), pair());
    let ((one, one_end), (o0, o0_end), (o1, o1_end)) = (pair(), pair(), pair());
    for flow in 1..=3 {
        world.add_flow(plain_flow(FlowId(flow), LinkId(flow), None, None));
    }
    let user = |through| PortUser::Driver { through: LaneId(through) };
    let trunk = |id, user| {
        let kind = PortKind::Trunk { flow: FlowId(id) };
        PortConfig { id: LinkId(id), over: LinkId(0), kind, user }
    };
    world.add_port(vnic(1, 0, 1, 1, user(0)), vec![s0_end.into(), s1_end.into()]);
    world.add_port(trunk(2, user(0)), vec![one_end.into()]);
    world.add_port(trunk(3, user(1)), vec![o0_end.into(), o1_end.into()]);
    let pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 4 });
    Net { world, pools, station: [s0, s1], one, other: [o0, o1] }
}

impl Net {
    fn broadcast(&mut self, from: u8) -> Frame {
        let mut frame = udp_frame(&mut self.pools, from, 1, (1, 2), 60);
        frame.as_mut_slice()[..6].fill(0xff);
        frame
    }

    /// What has come to one trunk and to the other since this was last asked.
    fn came(&mut self) -> [usize; 2] {
        self.world.run();
        let [o0, o1] = &mut self.other;
        let count = |ring: &mut RingDriver| ring.rx.pop_into(&mut Chain::new(), usize::MAX);
        [count(&mut self.one), count(o0) + count(o1)]
    }

    /// Where a frame goes that the station sends to the one beyond, by its queue in a lane.
    fn sent(&mut self, lane: usize) -> [usize; 2] {
        self.came();
        let frame = udp_frame(&mut self.pools, 1, FAR, (1, 2), 60);
        self.station[lane].tx.push_chain(&mut Chain::from_iter([frame]));
        self.came()
    }
}

#[test]
fn every_lane_knows_beyond_which_exit_a_station_is_and_hears_when_it_moves() {
    let mut net = net();
    assert_eq!([net.sent(0), net.sent(1)], [[1, 1]; 2], "nobody knows");
    let hello = net.broadcast(FAR);
    net.one.tx.push_chain(&mut Chain::from_iter([hello]));
    net.came();
    assert_eq!([net.sent(0), net.sent(1)], [[1, 0]; 2], "it was heard in lane 0");
    let hello = net.broadcast(FAR);
    net.other[1].tx.push_chain(&mut Chain::from_iter([hello]));
    net.came();
    assert_eq!([net.sent(0), net.sent(1)], [[0, 1]; 2], "it was heard in lane 1");
    net.world.check_conservation();
}
