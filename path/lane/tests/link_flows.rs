//! Flows of what passes a link's wire, in both directions, beside those of its VNICs: limits, counters, changes under load.

use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{BitRate, Direction, DropReason, FlowId, LaneId, LinkId, Priority};
use firelane_world::*;

const LINK: LinkId = LinkId(0);
const UPLINK: LinkId = LinkId(9);
const VNIC: LinkId = LinkId(1);
/// The station behind the wire; the VNIC's is 1.
const FAR: u8 = 77;

/// A link with a wire, and one VNIC over it whose limit is `vnic`.
struct Host {
    world: World,
    pools: Pools,
    far: RingDriver,
    near: RingDriver,
}

fn host(lanes: u16, vnic_limit: Option<BitRate>) -> Host {
    let mut world = World::new(lanes);
    world.all(|| Control::AddLink(LinkConfig { link: LINK, mtu: MTU }));
    world.add_flow(plain_flow(FlowId(0), LINK, None, None));
    let home = vnic_limit.map(|_| LaneId(lanes - 1));
    world.add_flow(plain_flow(FlowId(1), VNIC, vnic_limit, home));
    let (far, wire_end) = wire(Capabilities::plain(MTU));
    let (near, vnic_end) = wire(Capabilities::plain(MTU));
    let user = PortUser::Driver { through: LaneId(0) };
    let uplink = PortConfig { id: UPLINK, over: LINK, kind: PortKind::Uplink, user };
    world.add_port(uplink, vec![wire_end.into()]);
    world.add_port(vnic(1, 0, 1, 1, user), vec![vnic_end.into()]);
    let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
    Host { world, pools, far, near }
}

impl Host {
    /// A flow of the link: what has the host's end on a port of `ports`.
    fn add_flow(&mut self, flow: u32, ports: &str, maxbw: Option<BitRate>, home: Option<LaneId>) {
        let rule = FlowMatch { local_port: Some(ports.parse().unwrap()), ..FlowMatch::default() };
        let config = FlowConfig { parent: None, maxbw, priority: Priority::Medium };
        self.world.add_flow(FlowSetup { flow: FlowId(flow), owner: UPLINK, rule: Some(rule), config, home });
    }

    /// Frames from the wire to the host's `port`, and as many back from there; how many came through each way.
    fn exchange(&mut self, frames: usize, port: u16) -> (usize, usize) {
        self.offer(frames, port);
        self.world.run();
        self.arrived()
    }

    fn offer(&mut self, frames: usize, port: u16) {
        for _ in 0..frames {
            let mut one = Chain::new();
            one.push(udp_frame(&mut self.pools, FAR, 1, (5, port), 1000));
            self.far.tx.push_chain(&mut one);
            one.push(udp_frame(&mut self.pools, 1, FAR, (port, 5), 1000));
            self.near.tx.push_chain(&mut one);
        }
    }

    fn arrived(&mut self) -> (usize, usize) {
        let mut chain = Chain::new();
        let inward = self.near.rx.pop_into(&mut chain, usize::MAX);
        (inward, self.far.rx.pop_into(&mut chain, usize::MAX))
    }

    /// What the lanes have counted of a flow: frames that passed, inward and outward.
    fn passed(&self, flow: u32) -> [u64; 2] {
        let flows = self.world.lanes.iter().flat_map(|lane| lane.snapshot().flows);
        flows.filter(|(id, _)| *id == FlowId(flow)).fold([0, 0], |sum, (_, counters)| {
            Direction::ALL.map(|side| sum[side.index()] + counters[side.index()].passed)
        })
    }
}

#[test]
fn a_link_s_flow_has_what_passes_the_wire_and_its_vnic_s_flows_have_it_too() {
    for lanes in [1, 2] {
        let mut host = host(lanes, None);
        assert_eq!(host.exchange(10, 53), (10, 10), "the way is remembered before there are flows");
        host.add_flow(5, "50-60", None, None);
        host.add_flow(6, "53", None, None);
        assert_eq!(host.exchange(10, 53), (10, 10));
        assert_eq!(host.exchange(4, 54), (4, 4));
        assert_eq!(host.exchange(3, 61), (3, 3));
        assert_eq!((host.passed(6), host.passed(5)), ([10, 10], [4, 4]), "{lanes} lanes");
        assert_eq!(host.passed(1), [27, 27], "all of it is the VNIC's, with a rule on the wire or without");
        host.world.check_conservation();
    }
}

#[test]
fn a_link_s_flow_is_closed_and_opened_while_others_pass() {
    for lanes in [1, 2] {
        let home = Some(LaneId(lanes - 1));
        let mut host = host(lanes, None);
        host.add_flow(5, "53", Some(BitRate::ZERO), home);
        assert_eq!((host.exchange(8, 53), host.exchange(8, 54)), ((0, 0), (8, 8)), "{lanes} lanes");
        assert_eq!(host.world.counters().drops.of(DropReason::FlowLimit), 16);
        host.world.all(|| Control::SetMaxbw(FlowId(5), None));
        assert_eq!(host.exchange(8, 53), (8, 8));
        host.world.all(|| Control::RemoveFlow(FlowId(5)));
        assert_eq!(host.exchange(8, 53), (8, 8));
        host.world.check_conservation();
    }
}

#[test]
fn a_link_s_flow_holds_its_limit_each_way_inside_a_wider_vnic() {
    for lanes in [1, 2] {
        let home = Some(LaneId(0));
        let mut host = host(lanes, Some(BitRate::from_mbps(80)));
        host.add_flow(5, "53", Some(BitRate::from_mbps(8)), home);
        let mut got = (0, 0);
        for _ in 0..500 {
            host.offer(2, 53);
            host.world.run_for(Duration::from_millis(1));
            let (inward, outward) = host.arrived();
            got = (got.0 + inward, got.1 + outward);
            host.world.check_conservation();
        }
        // Half a second of 8 Mb/s are 500 frames of 1,000 bytes; twice as many were offered.
        for (way, frames) in [("inward", got.0), ("outward", got.1)] {
            assert!((495..=502).contains(&frames), "{frames} {way} with {lanes} lanes");
        }
    }
}

#[test]
fn what_a_flow_of_the_link_held_goes_on_when_the_flow_goes() {
    for lanes in [1, 2] {
        let mut host = host(lanes, None);
        host.add_flow(5, "53", Some(BitRate::from_mbps(8)), Some(LaneId(lanes - 1)));
        let (inward, outward) = host.exchange(12, 53);
        let held: u64 = host.world.lanes.iter().map(|lane| lane.snapshot().held).sum();
        assert!(held > 0 && inward < 12 && outward < 12, "{held} are held");
        let dropped = host.world.counters().drops.total() as usize;
        host.world.all(|| Control::RemoveFlow(FlowId(5)));
        host.world.run();
        let rest = host.arrived();
        assert_eq!(inward + outward + rest.0 + rest.1 + dropped, 24, "{lanes} lanes");
        host.world.check_conservation();
    }
}

/// Each of a conversation's frames by the wire is followed, and none that stays on the link or has another port.
#[test]
fn a_link_s_flow_is_followed_both_ways() {
    let mut host = host(1, None);
    host.add_flow(5, "53", None, None);
    host.exchange(1, 53);
    let numbers = std::sync::Arc::new(Numbers::new(100));
    let of = Followed::Flow { flow: FlowId(5), owner: UPLINK, mac: None };
    host.world.visit(LaneId(0), |_, lane| lane.trace(Some(Tracing { of, numbers })));
    assert_eq!(host.exchange(1, 53), (1, 1));
    assert_eq!(host.exchange(1, 54), (1, 1));
    let seen = host.world.visit(LaneId(0), |_, lane| lane.take_seen().0);
    let received = seen.iter().filter_map(|it| match it.what {
        Sight::Received(port, ..) => Some(port),
        _ => None,
    });
    let mut received: Vec<_> = received.collect();
    received.sort_unstable();
    assert_eq!(received, [VNIC, UPLINK]);
    host.world.check_conservation();
}
