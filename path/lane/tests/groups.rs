//! Which multicast frames the VNIC of a netstack gets: those of the groups that its sockets have joined on it, in every lane.

use std::collections::BTreeMap;
use std::net::IpAddr;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_ip::SourceFilter;
use firelane_lane::*;
use firelane_units::{DropReason, FlowId, LinkId, MacAddr, NetstackId, SocketId};
use firelane_wire::ethernet::group_mac;
use firelane_world::*;
use proptest::prelude::*;

/// A device on an etherstub, one queue in each lane, and netstacks 1 and 2 with a VNIC of the same number each.
struct Scene {
    world: World,
    pools: Pools,
    queues: Vec<RingDriver>,
}

impl Scene {
    fn new(lanes: u16) -> Self {
        let mut world = two_stacks(lanes, MTU);
        world.add_flow(plain_flow(FlowId(3), LinkId(3), None, None));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..lanes {
            let (a, b) = wire(Capabilities::plain(MTU));
            ours.push(a);
            theirs.push(AnyDriver::from(b));
        }
        let user = PortUser::Driver { through: firelane_units::LaneId(0) };
        world.add_port(vnic(3, 0, 3, 3, user), theirs);
        world.run();
        let pools = Pools::new(PoolsConfig { small_slots: 512, large_slots: 4 });
        Self { world, pools, queues: ours }
    }

    fn tell(&mut self, netstack: u16, command: impl Fn() -> SocketCommand) {
        let now = self.world.now;
        for lane in &mut self.world.lanes {
            lane.on_message(now, LaneMessage::Socket(NetstackId(netstack), command()));
        }
        self.world.exchange();
    }

    fn join(&mut self, netstack: u16, socket: u32, group: IpAddr, filter: &SourceFilter) {
        let (socket, link) = (SocketId(socket), Some(LinkId(u32::from(netstack))));
        self.tell(netstack, || {
            SocketCommand::Join(Box::new(Join { socket, group, link, filter: filter.clone() }))
        });
    }

    /// How many frames the VNICs of both netstacks got.
    fn got(&self) -> [u64; 2] {
        let lanes = self.world.lanes.iter().map(|lane| lane.snapshot().ports);
        let all: Vec<_> = lanes.flatten().collect();
        [1, 2].map(|link| {
            let its = all.iter().filter(|(id, _)| *id == LinkId(link));
            its.map(|(_, counters)| counters.inward.packets).sum()
        })
    }

    /// Who gets a frame that the device sends to `dst` by the queue of a lane.
    fn send(&mut self, lane: usize, dst: MacAddr) -> [bool; 2] {
        let before = self.got();
        let mut frame = udp_frame(&mut self.pools, 3, 9, (1, 7), 60);
        frame.as_mut_slice()[..6].copy_from_slice(&dst.0);
        self.queues[lane].tx.push_chain(&mut Chain::from_iter([frame]));
        self.world.run();
        let after = self.got();
        [0, 1].map(|nth| after[nth] > before[nth])
    }
}

fn group(last: u8) -> IpAddr {
    [239, 1, 2, last].into()
}

#[test]
fn a_vnic_gets_the_groups_that_somebody_has_joined_on_it() {
    for lanes in [1, 2] {
        let mut scene = Scene::new(lanes);
        let any = SourceFilter::any();
        for lane in 0..usize::from(lanes) {
            let before = scene.world.counters().drops.of(DropReason::UnknownDestination);
            assert_eq!(scene.send(lane, group_mac(group(3))), [false; 2]);
            assert_eq!(scene.world.counters().drops.of(DropReason::UnknownDestination), before + 1);
        }
        scene.join(1, 70, group(3), &any);
        scene.join(1, 71, group(3), &any);
        scene.join(2, 70, "ff05::7".parse().unwrap(), &any);
        for lane in 0..usize::from(lanes) {
            assert_eq!(scene.send(lane, group_mac(group(3))), [true, false]);
            assert_eq!(
                scene.send(lane, group_mac([239, 129, 2, 3].into())),
                [true, false],
                "the same address"
            );
            assert_eq!(scene.send(lane, group_mac(group(4))), [false; 2]);
            assert_eq!(scene.send(lane, group_mac("ff05::7".parse().unwrap())), [false, true]);
            for everybodys in
                [MacAddr::BROADCAST, group_mac([224, 0, 0, 1].into()), group_mac("ff02::1".parse().unwrap())]
            {
                assert_eq!(scene.send(lane, everybodys), [true; 2]);
            }
            // Who has no such address yet may be about to test it.
            assert_eq!(scene.send(lane, group_mac("ff02::1:ff12:3456".parse().unwrap())), [true; 2]);
        }
        scene.join(1, 70, group(3), &SourceFilter::none());
        assert_eq!(scene.send(0, group_mac(group(3))), [true, false], "another one stays");
        scene.tell(1, || SocketCommand::LeaveGroups(SocketId(71)));
        assert_eq!(scene.send(0, group_mac(group(3))), [false; 2]);
        scene.world.check_conservation();
    }
}

#[test]
fn a_device_gets_every_group_and_a_new_user_begins_anew() {
    let mut scene = Scene::new(1);
    scene.join(1, 70, group(3), &SourceFilter::any());
    scene.world.all(|| Control::SetUser(LinkId(1), PortUser::Netstack(NetstackId(2))));
    assert_eq!(scene.send(0, group_mac(group(3))), [false; 2], "the other netstack has not joined");
    scene.join(2, 72, group(3), &SourceFilter::any());
    // The socket joined on the VNIC that was its netstack's before.
    assert_eq!(scene.send(0, group_mac(group(3))), [false, true]);
    let mut frame = udp_frame(&mut scene.pools, 3, 9, (1, 7), 60);
    frame.as_mut_slice()[..6].copy_from_slice(&group_mac(group(8)).0);
    let (near, far) = wire(Capabilities::plain(MTU));
    scene.world.add_flow(plain_flow(FlowId(4), LinkId(4), None, None));
    let user = PortUser::Driver { through: firelane_units::LaneId(0) };
    scene.world.add_port(vnic(4, 0, 4, 4, user), vec![far.into()]);
    scene.queues[0].tx.push_chain(&mut Chain::from_iter([frame]));
    scene.world.run();
    let mut near = near;
    assert_eq!(near.rx.pop_into(&mut Chain::new(), 9), 1, "a device has not said what it wants");
    scene.world.check_conservation();
}

/// A scene with another device, 4, whose only queue is in lane 0.
fn with_neighbour(lanes: u16) -> (Scene, RingDriver) {
    let mut scene = Scene::new(lanes);
    scene.world.add_flow(plain_flow(FlowId(4), LinkId(4), None, None));
    let (near, far) = wire(Capabilities::plain(MTU));
    let user = PortUser::Driver { through: firelane_units::LaneId(0) };
    scene.world.add_port(vnic(4, 0, 4, 4, user), vec![far.into()]);
    (scene, near)
}

/// An IPv4 packet for many from device 4, with a hop limit of one; of nobody if the source is none.
fn say(scene: &mut Scene, device: &mut RingDriver, (protocol, source): (u8, u8), dst: IpAddr, body: &[u8]) {
    let IpAddr::V4(to) = dst else { panic!("{dst}") };
    let mut frame = udp_frame(&mut scene.pools, 4, 9, (0, 0), 34 + body.len());
    let bytes = frame.as_mut_slice();
    bytes[..6].copy_from_slice(&group_mac(dst).0);
    let total = (20 + body.len()) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    (bytes[22], bytes[23]) = (1, protocol);
    bytes[26..30].copy_from_slice(&if source == 0 { [0; 4] } else { [10, 0, 0, source] });
    bytes[30..34].copy_from_slice(&to.octets());
    bytes[34..34 + body.len()].copy_from_slice(body);
    device.tx.push_chain(&mut Chain::from_iter([frame]));
    scene.world.run();
}

/// An IGMPv2 message of device 4.
fn tell_igmp(scene: &mut Scene, device: &mut RingDriver, kind: u8, about: IpAddr) {
    let IpAddr::V4(about) = about else { panic!("{about}") };
    let mut body = [&[kind, 0, 0, 0][..], &about.octets()].concat();
    let words = body.chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]]))).sum::<u32>();
    let sum = !((words & 0xffff) + (words >> 16)) as u16;
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    say(scene, device, (2, 4), [224, 0, 0, 2].into(), &body);
}

/// Whether device 4 gets a frame for a group that device 3 sends by the queue of a lane.
fn hears(scene: &mut Scene, device: &mut RingDriver, lane: usize, group: IpAddr) -> bool {
    device.rx.pop_into(&mut Chain::new(), usize::MAX);
    scene.send(lane, group_mac(group));
    device.rx.pop_into(&mut Chain::new(), usize::MAX) > 0
}

#[test]
fn a_device_gets_what_it_reports_and_what_nobody_is_known_to_listen_to() {
    for lanes in [1, 2] {
        let (mut scene, mut device) = with_neighbour(lanes);
        let last = usize::from(lanes) - 1;
        scene.join(1, 70, group(3), &SourceFilter::any());
        assert!(hears(&mut scene, &mut device, last, group(3)), "it has said nothing yet");
        tell_igmp(&mut scene, &mut device, 0x16, group(5));
        assert!(!hears(&mut scene, &mut device, last, group(3)), "that is the netstack's");
        assert!(hears(&mut scene, &mut device, last, group(5)));
        assert!(hears(&mut scene, &mut device, last, group(6)), "nobody's");
        assert!(hears(&mut scene, &mut device, last, [224, 0, 0, 251].into()), "it stays on the link");
        tell_igmp(&mut scene, &mut device, 0x16, group(3));
        assert!(hears(&mut scene, &mut device, last, group(3)));
        tell_igmp(&mut scene, &mut device, 0x17, group(3));
        assert!(!hears(&mut scene, &mut device, last, group(3)));
        // A switch that asks is no router; a router gets all.
        say(&mut scene, &mut device, (2, 0), [224, 0, 0, 1].into(), &[0x11, 0, 0xee, 0xff, 0, 0, 0, 0]);
        assert!(!hears(&mut scene, &mut device, last, group(3)));
        say(&mut scene, &mut device, (2, 4), [224, 0, 0, 1].into(), &[0x11, 0, 0xee, 0, 0, 0, 0, 0]);
        assert!(!hears(&mut scene, &mut device, last, group(3)), "its checksum is wrong");
        say(&mut scene, &mut device, (103, 4), [224, 0, 0, 13].into(), &[0x20, 0, 0, 0]);
        assert!(hears(&mut scene, &mut device, last, group(3)));
        // Whoever has the port next says for himself what he listens to.
        scene
            .world
            .all(|| Control::SetUser(LinkId(4), PortUser::Driver { through: firelane_units::LaneId(0) }));
        assert!(hears(&mut scene, &mut device, last, group(3)));
        tell_igmp(&mut scene, &mut device, 0x17, group(9));
        assert!(!hears(&mut scene, &mut device, last, group(3)));
        scene.world.check_conservation();
    }
}

/// RFC 4541 section 2.1.1: behind the wire in a VNIC two stations listen, and one of them leaves.
#[test]
fn who_reports_beyond_a_wire_does_not_speak_for_others_there() {
    for lanes in [1, 2] {
        let (mut scene, _near) = with_neighbour(lanes);
        let (mut wire_end, far) = wire(Capabilities::plain(MTU));
        let mut far = Some(AnyDriver::from(far));
        let user = PortUser::Driver { through: firelane_units::LaneId(0) };
        let now = scene.world.now;
        for lane in &mut scene.world.lanes {
            let plug = Control::Plug(LinkId(4), user, far.take());
            lane.on_message(now, LaneMessage::Control(Box::new(plug)));
        }
        scene.join(1, 70, group(3), &SourceFilter::any());
        tell_igmp(&mut scene, &mut wire_end, 0x16, group(3));
        tell_igmp(&mut scene, &mut wire_end, 0x17, group(3));
        for lane in 0..usize::from(lanes) {
            assert!(hears(&mut scene, &mut wire_end, lane, group(3)), "another one is a member still");
        }
        scene.world.check_conservation();
    }
}

proptest! {
    /// Whatever joins and leaves, in whichever lane a frame comes: a VNIC gets it if and only if a socket of its netstack is in
    /// the group.
    #[test]
    fn a_group_comes_to_its_members_alone(
        lanes in 1u16..4,
        acts in proptest::collection::vec((0u8..4, 1u16..3, 0u32..3, 0u8..4, 0usize..4), 1..60),
    ) {
        let mut scene = Scene::new(lanes);
        let mut members: BTreeMap<(u16, u32, u8), ()> = BTreeMap::new();
        for (what, netstack, socket, number, lane) in acts {
            match what {
                0 => {
                    scene.join(netstack, socket, group(number), &SourceFilter::any());
                    members.insert((netstack, socket, number), ());
                }
                1 => {
                    scene.join(netstack, socket, group(number), &SourceFilter::none());
                    members.remove(&(netstack, socket, number));
                }
                2 => {
                    scene.tell(netstack, || SocketCommand::LeaveGroups(SocketId(socket)));
                    members.retain(|&(its, whose, _), ()| (its, whose) != (netstack, socket));
                }
                _ => {
                    let wanted = [1, 2]
                        .map(|id| members.keys().any(|&(its, _, joined)| (its, joined) == (id, number)));
                    let got = scene.send(lane % usize::from(lanes), group_mac(group(number)));
                    prop_assert_eq!(got, wanted);
                }
            }
        }
        scene.world.check_conservation();
    }
}
