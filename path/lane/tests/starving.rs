//! A lane without buffers waits for some, and does not ask its devices again and again for what it cannot take.

use std::time::Duration;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{FlowId, Instant, LaneId, LinkId};
use firelane_world::*;

const SLOTS: u32 = 32;

#[test]
fn frames_without_a_buffer_stay_in_their_device_and_the_lane_sleeps() {
    let mut world = World::with_pools(1, PoolsConfig { small_slots: SLOTS, large_slots: 4 });
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
    world.add_flow(plain_flow(FlowId(1), LinkId(1), None, None));
    world.add_flow(plain_flow(FlowId(2), LinkId(2), None, None));
    let (mut alice, a) = wire(Capabilities::plain(MTU));
    let (mut bob, b) = wire(Capabilities::plain(MTU));
    let through = LaneId(0);
    world.add_port(vnic(1, 0, 1, 1, PortUser::Driver { through }), vec![AnyDriver::Copying(Copying(a))]);
    world.add_port(vnic(2, 0, 2, 2, PortUser::Driver { through }), vec![b.into()]);
    let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
    let count = 4 * SLOTS as usize;
    let mut chain = Chain::new();
    chain.extend((0..count).map(|n| udp_frame(&mut pools, 1, 2, (n as u16 + 1, 53), 1000)));
    alice.tx.push_chain(&mut chain);
    let mut delivered = 0;
    while delivered < count {
        let turns = world.counters().turns;
        world.run_for(Duration::from_millis(100));
        let turns = world.counters().turns - turns;
        // It tries again every 100 us, for a full pool is told by nobody.
        assert!(turns <= 2_500, "{turns} turns in 100 ms");
        // As long as the receiver does not look, it has all buffers; what it takes goes back to their pool.
        let mut got = Chain::new();
        bob.rx.pop_into(&mut got, usize::MAX);
        delivered += got.len();
        while let Some(frame) = got.pop() {
            pools.put(frame);
        }
        assert!(world.now < Instant::ZERO + Duration::from_secs(60), "{delivered} frames in a minute");
    }
    world.check_conservation();
    assert_eq!(world.counters().received, count as u64, "every frame was taken in the end");
}
