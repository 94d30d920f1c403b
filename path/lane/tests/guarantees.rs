//! What a VNIC is guaranteed of its link's limit, from ring to ring: it has that beside a VNIC of a higher priority that sends
//! without pause, in each direction, in any number of lanes, and live; what it does not use is the other's.

use std::time::Duration;

use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{BitRate, FlowId, LaneId, LinkId, Priority};
use firelane_world::*;

const LINK: FlowId = FlowId(0);
const ALICE: FlowId = FlowId(1);
const BOB: FlowId = FlowId(2);
const FRAME: usize = 1000;
/// Of the link.
const LIMIT: BitRate = BitRate::from_mbps(80);

/// Alice, who is of low priority, and bob, of high, send to carol on one etherstub with a limit.
struct Stub {
    world: World,
    pools: Pools,
    senders: [RingDriver; 2],
    carol: RingDriver,
}

impl Stub {
    fn new(lanes: u16) -> Self {
        let mut world = World::new(lanes);
        let home = Some(LaneId(lanes - 1));
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        world.add_flow(plain_flow(LINK, LinkId(0), Some(LIMIT), home));
        for (flow, priority) in [(ALICE, Priority::Low), (BOB, Priority::High), (FlowId(3), Priority::High)] {
            let config = FlowConfig { parent: Some(LINK), maxbw: None, priority };
            world.add_flow(FlowSetup { flow, owner: LinkId(flow.0), rule: None, config, home });
        }
        let ends = [1, 2, 3].map(|n| {
            let (outer, inner) = wire(Capabilities::plain(MTU));
            let user = PortUser::Driver { through: LaneId(0) };
            world.add_port(vnic(n, 0, n as u8, n, user), vec![inner.into()]);
            outer
        });
        let pools = Pools::new(PoolsConfig { small_slots: 8192, large_slots: 4 });
        let [alice, bob, carol] = ends;
        Self { world, pools, senders: [alice, bob], carol }
    }

    /// Lets those who are asked for send more than the limit for so long; how many bytes of each came to carol.
    fn run(&mut self, busy: [bool; 2], millis: usize) -> [u64; 2] {
        let mut came = [0; 2];
        for _ in 0..millis {
            for (n, sender) in self.senders.iter_mut().enumerate().filter(|(n, _)| busy[*n]) {
                let mut chain = Chain::new();
                chain.extend((0..12).map(|_| udp_frame(&mut self.pools, n as u8 + 1, 3, (9, 53), FRAME)));
                sender.tx.push_chain(&mut chain);
            }
            self.world.run_for(Duration::from_millis(1));
            let mut chain = Chain::new();
            self.carol.rx.pop_into(&mut chain, usize::MAX);
            while let Some(frame) = chain.pop() {
                came[usize::from(frame.as_slice()[11]) - 1] += frame.len() as u64;
                self.pools.put(frame);
            }
        }
        came
    }

    fn promise(&mut self, minbw: Option<BitRate>) {
        self.world.all(|| Control::SetMinbw(ALICE, minbw));
    }
}

fn share(rate: BitRate, millis: u64) -> u64 {
    rate.bytes_in(Duration::from_millis(millis)).0
}

#[test]
fn a_guarantee_holds_beside_a_higher_priority_and_follows_its_changes() {
    for lanes in [1, 2, 4] {
        let mut stub = Stub::new(lanes);
        stub.run([true, true], 30);
        let [alice, _] = stub.run([true, true], 200);
        assert!(
            alice <= share(LIMIT, 200) / 50,
            "{lanes} lanes: {alice} with a lower priority and no guarantee"
        );
        for mbps in [24, 8, 56] {
            let rate = BitRate::from_mbps(mbps);
            stub.promise(Some(rate));
            stub.run([true, true], 30);
            let [alice, bob] = stub.run([true, true], 300);
            let wanted = share(rate, 300);
            assert!(
                alice.abs_diff(wanted) <= wanted / 50 + 2 * FRAME as u64,
                "{lanes} lanes: {alice} of {wanted}"
            );
            let all = share(LIMIT, 300);
            assert!(
                (alice + bob).abs_diff(all) <= all / 100 + 2 * FRAME as u64,
                "{alice} and {bob} of {all}"
            );
        }
        // What alice does not use is bob's, and comes back at once. First her ring runs dry.
        let runs_dry = (0..100).any(|_| stub.run([false, true], 20)[0] == 0);
        assert!(runs_dry, "{lanes} lanes");
        let [_, bob] = stub.run([false, true], 200);
        assert!(bob >= share(LIMIT, 200) * 97 / 100, "{lanes} lanes: {bob}");
        stub.run([true, true], 5);
        let [alice, _] = stub.run([true, true], 100);
        assert!(alice >= share(BitRate::from_mbps(56), 100) * 98 / 100, "{lanes} lanes: {alice}");
        stub.promise(None);
        stub.run([true, true], 30);
        let [alice, _] = stub.run([true, true], 200);
        assert!(alice <= share(LIMIT, 200) / 50, "{lanes} lanes: {alice} without the guarantee");
        stub.world.check_conservation();
    }
}
