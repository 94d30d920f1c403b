//! Devices that do nothing rest: no turn looks at them, and none that calls, is sent to or is changed is forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{BitRate, FlowId, LaneId, LinkId};
use firelane_world::*;
use proptest::prelude::*;

/// A lane with devices of the kernel's on one link, and a ring that gets what they bring.
struct Scene {
    world: World,
    pools: Pools,
    devices: Vec<(RingDriver, Arc<Told>)>,
    sink: RingDriver,
    sleep: Sleep,
    /// Which devices have got frames since the worker last listened.
    news: Vec<bool>,
    waiting: usize,
}

impl Scene {
    fn new(count: u16) -> Self {
        let mut world = World::new(1);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let mut add = |n: u16, driver: AnyDriver| {
            world.add_flow(plain_flow(FlowId(n.into()), LinkId(n.into()), None, None));
            let config = vnic(n.into(), 0, n as u8, n.into(), PortUser::Driver { through: LaneId(0) });
            world.add_port(config, vec![driver]);
        };
        let (sink, theirs) = wire(Capabilities::plain(MTU));
        add(200, AnyDriver::Ring(theirs));
        let devices = (1..=count).map(|n| {
            let (ours, theirs) = wire(Capabilities::plain(MTU));
            let device = KernelDevice::new(theirs);
            let told = Arc::clone(&device.told);
            add(n, AnyDriver::Kernel(device));
            (ours, told)
        });
        let devices = devices.collect();
        let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
        let sleep = world.lanes[0].turn(world.now, Idle::Sleeps);
        let news = vec![false; count.into()];
        let mut scene = Self { world, pools, devices, sink, sleep, news, waiting: 0 };
        scene.work();
        scene
    }

    fn reads(&self) -> Vec<u64> {
        self.devices.iter().map(|(_, told)| told.reads.load(Ordering::Relaxed)).collect()
    }

    /// A frame comes from a device to `mac`.
    fn bring(&mut self, nth: usize, mac: u8) {
        let frame = udp_frame(&mut self.pools, 1 + nth as u8, mac, (1, 53), 60);
        let mut chain: Chain = [frame].into_iter().collect();
        self.devices[nth].0.tx.push_chain(&mut chain);
        assert!(chain.is_empty(), "the device has room");
        self.news[nth] = true;
        self.waiting += usize::from(mac == 200);
    }

    /// The worker listens; whether anybody has called.
    fn listen(&mut self) -> bool {
        let mut numbers = Vec::new();
        for (nth, is_new) in self.news.iter_mut().enumerate() {
            if std::mem::take(is_new) {
                numbers.push(self.devices[nth].1.number.load(Ordering::Relaxed));
            }
        }
        let calls = if numbers.is_empty() { Calls::Nobody } else { Calls::These(&numbers) };
        self.world.lanes[0].listened(calls);
        calls != Calls::Nobody
    }

    fn turn(&mut self) {
        self.sleep = self.world.lanes[0].turn(self.world.now, Idle::Sleeps);
        let mut came = Chain::new();
        self.waiting -= self.sink.rx.pop_into(&mut came, usize::MAX);
    }

    /// The worker goes on until it would sleep and nobody has called.
    fn work(&mut self) {
        for _ in 0..1000 {
            let listens = self.sleep.listens || !(self.sleep.work_left || self.sleep.is_deaf);
            let is_called = listens && self.listen();
            let until = self.sleep.until.filter(|_| self.sleep.is_deaf);
            match until {
                Some(until) => self.world.now = self.world.now.max(until),
                None if !self.sleep.work_left && !is_called => return,
                None => {}
            }
            self.turn();
        }
        panic!("the worker never sleeps");
    }
}

#[test]
fn no_turn_looks_at_devices_that_do_nothing() {
    let mut scene = Scene::new(12);
    let before = scene.reads();
    for n in 0..20 {
        // Somebody else wakes the worker, who has listened or not.
        if n % 3 == 0 {
            scene.listen();
        }
        scene.turn();
        scene.work();
    }
    assert_eq!(scene.reads(), before);
    scene.bring(5, 200);
    scene.work();
    assert_eq!(scene.waiting, 0);
    let read: Vec<bool> = scene.reads().iter().zip(&before).map(|(now, before)| now > before).collect();
    assert_eq!(read, (0..12).map(|nth| nth == 5).collect::<Vec<_>>(), "the one that has called");
}

#[test]
fn a_worker_that_is_kept_busy_listens_to_many_and_reads_a_few() {
    for (count, listens) in [(12, true), (3, false)] {
        let mut scene = Scene::new(count);
        scene.bring(2, 200);
        let mut asked = false;
        for _ in 0..2 {
            scene.turn();
            asked |= scene.sleep.listens;
        }
        assert_eq!((asked, scene.waiting == 0), (listens, !listens), "{count}");
        scene.work();
        assert_eq!(scene.waiting, 0);
    }
}

#[test]
fn a_device_that_rests_is_sent_to() {
    let mut scene = Scene::new(12);
    scene.bring(3, 8);
    scene.work();
    let mut came = Chain::new();
    assert_eq!(scene.devices[7].0.rx.pop_into(&mut came, usize::MAX), 1);
}

#[test]
fn who_does_not_sleep_reads_all() {
    let mut scene = Scene::new(12);
    for nth in [0, 11] {
        scene.bring(nth, 200);
    }
    scene.sleep = scene.world.lanes[0].turn(scene.world.now, Idle::StaysAwake);
    let mut came = Chain::new();
    assert_eq!(scene.sink.rx.pop_into(&mut came, usize::MAX), 2);
}

#[derive(Clone, Debug)]
enum Op {
    Bring(usize, bool),
    Turn,
    Work,
    Limit(usize, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0usize..8, any::<bool>()).prop_map(|(nth, to_sink)| Op::Bring(nth, to_sink)),
        2 => Just(Op::Turn),
        3 => Just(Op::Work),
        1 => (0usize..8, any::<bool>()).prop_map(|(nth, is_on)| Op::Limit(nth, is_on)),
    ]
}

proptest! {
    /// Whatever happens in whatever order: a worker who does what the turn says leaves no frame where nothing forbids it.
    #[test]
    fn whoever_calls_is_heard(ops in prop::collection::vec(op(), 1..80)) {
        let mut scene = Scene::new(8);
        for op in ops {
            match op {
                Op::Bring(nth, to_sink) => scene.bring(nth, if to_sink { 200 } else { 1 + (nth as u8 + 1) % 8 }),
                Op::Turn => scene.turn(),
                Op::Work => scene.work(),
                Op::Limit(nth, is_on) => {
                    let flow = FlowId(1 + nth as u32);
                    let maxbw = is_on.then_some(BitRate::ZERO);
                    scene.world.all(|| Control::SetMaxbw(flow, maxbw));
                    scene.world.all(|| Control::SetHome(flow, maxbw.map(|_| LaneId(0))));
                }
            }
        }
        for nth in 0..8 {
            scene.world.all(|| Control::SetMaxbw(FlowId(1 + nth), None));
            scene.world.all(|| Control::SetHome(FlowId(1 + nth), None));
            // Who is not mute any more calls if he has frames.
            scene.news[nth as usize] = true;
        }
        scene.turn();
        scene.work();
        prop_assert_eq!(scene.waiting, 0);
    }
}
