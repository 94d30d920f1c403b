//! VNICs that look on (`promisc-filtered=off`): a device gets what others of its VLAN send each other, a netstack's captures see it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use firelane_frame::{Capabilities, Chain, Frame, Pools, PoolsConfig, RingReader, byte_ring};
use firelane_ip::DadConfig;
use firelane_lane::*;
use firelane_units::{BitRate, FlowId, LaneId, LinkId, VlanId};
use firelane_world::*;

/// Devices 1, 2 and 3 on an etherstub, 3 with a limit if one is named, 4 in a VLAN, and netstack 5 with VNIC 5.
struct Scene {
    world: World,
    pools: Pools,
    devices: Vec<RingDriver>,
}

impl Scene {
    fn new(lanes: u16, limit: Option<BitRate>) -> Self {
        let mut world = World::new(lanes);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let home = limit.map(|_| LaneId(lanes - 1));
        let mut devices = Vec::new();
        for n in 1..=4 {
            let maxbw = limit.filter(|_| n == 3);
            world.add_flow(plain_flow(FlowId(n), LinkId(n), maxbw, home.filter(|_| n == 3)));
            let (near, far) = wire(Capabilities::plain(MTU));
            let PortConfig { id, over, kind, user } =
                vnic(n, 0, n as u8, n, PortUser::Driver { through: LaneId(0) });
            let kind = match kind {
                PortKind::Vnic { mac, flow, .. } if n == 4 => {
                    PortKind::Vnic { mac, flow, vlan: VlanId::new(7) }
                }
                kind => kind,
            };
            world.add_port(PortConfig { id, over, kind, user }, vec![far.into()]);
            devices.push(near);
        }
        world.add_stack_tested(5, DadConfig::OFF);
        world.run();
        let pools = Pools::new(PoolsConfig { small_slots: 1024, large_slots: 4 });
        Self { world, pools, devices }
    }

    fn look_on(&mut self, link: u32, looks_on: bool) {
        self.world.all(|| Control::SetOnlooker(LinkId(link), looks_on));
    }

    /// How many of so many frames between two devices each device gets.
    fn send(&mut self, from: u8, to: u8, count: usize) -> [usize; 4] {
        for _ in 0..count {
            let frame = udp_frame(&mut self.pools, from, to, (1, 7), 60);
            self.devices[usize::from(from) - 1].tx.push_chain(&mut Chain::from_iter([frame]));
        }
        self.world.run();
        // The netstack may ask for who has sent.
        let is_ours = |frame: &Frame| frame.as_slice().get(23) == Some(&17);
        let taken = |device: &mut RingDriver| {
            let mut chain = Chain::new();
            device.rx.pop_into(&mut chain, usize::MAX);
            chain.iter().filter(|frame| is_ours(frame)).count()
        };
        let got: Vec<usize> = self.devices.iter_mut().map(taken).collect();
        self.world.check_conservation();
        got.try_into().expect("four devices")
    }

    /// A capture at a link, in every lane.
    fn capture(&mut self, link: u32) -> Vec<RingReader> {
        let mut readers = Vec::new();
        for lane in &mut self.world.lanes {
            let (writer, reader) = byte_ring(1 << 16);
            let lost = Arc::new(AtomicU64::new(0));
            let link = Some(LinkId(link));
            let tap = CaptureTap { id: 1, link, flows: Vec::new(), snap: 96, writer, lost };
            lane.on_message(self.world.now, LaneMessage::Control(Box::new(Control::AddTap(tap))));
            readers.push(reader);
        }
        readers
    }
}

fn captured(readers: &mut [RingReader]) -> usize {
    let mut bytes = Vec::new();
    let mut count = 0;
    for reader in readers {
        while Captured::take(reader, &mut bytes).is_some() {
            count += usize::from(bytes.get(23) == Some(&17));
        }
    }
    count
}

#[test]
fn a_device_sees_what_others_of_its_vlan_send_each_other() {
    for lanes in [1, 2] {
        let mut scene = Scene::new(lanes, None);
        // The way is remembered, and forgotten when somebody begins to look on.
        assert_eq!(scene.send(1, 2, 5), [0, 5, 0, 0]);
        scene.look_on(3, true);
        scene.look_on(4, true);
        assert_eq!(scene.send(1, 2, 5), [0, 5, 5, 0]);
        assert_eq!(scene.send(1, 9, 5), [0, 0, 5, 0], "a station that is nowhere");
        assert_eq!(scene.send(1, 3, 5), [0, 0, 5, 0], "its own come once");
        assert_eq!(scene.send(3, 1, 5), [5, 0, 0, 0]);
        assert_eq!(scene.send(1, 5, 5), [0, 0, 5, 0], "what a netstack gets");
        scene.look_on(3, false);
        assert_eq!(scene.send(1, 2, 5), [0, 5, 0, 0]);
    }
}

#[test]
fn who_looks_on_gets_no_more_than_its_limit() {
    for lanes in [1, 2] {
        // Nothing passes.
        let mut scene = Scene::new(lanes, BitRate::from_bps(0).into());
        scene.look_on(3, true);
        assert_eq!(scene.send(1, 2, 20), [0, 20, 0, 0]);
    }
}

#[test]
fn captures_of_a_netstacks_vnic_see_it_and_the_netstack_does_not() {
    for lanes in [1, 2] {
        let mut scene = Scene::new(lanes, None);
        let mut readers = scene.capture(5);
        scene.send(1, 2, 5);
        assert_eq!(captured(&mut readers), 0);
        scene.look_on(5, true);
        let before = scene.world.counters().delivered;
        assert_eq!(scene.send(1, 2, 5), [0, 5, 0, 0]);
        assert_eq!(captured(&mut readers), 5);
        assert_eq!(scene.world.counters().delivered, before, "its netstack gets nothing of it");
        scene.send(1, 5, 5);
        assert_eq!(captured(&mut readers), 5, "its own are seen once");
        scene.look_on(5, false);
        scene.send(1, 2, 5);
        assert_eq!(captured(&mut readers), 0);
        scene.world.all(|| Control::RemoveTap(1));
        // A capture of the whole link sees each frame where it passes, and not beside.
        scene.look_on(5, true);
        let mut readers = scene.capture(0);
        scene.send(1, 2, 5);
        assert_eq!(captured(&mut readers), 10, "out of one port and into another");
    }
}
