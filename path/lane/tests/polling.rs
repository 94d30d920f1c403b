//! Reading devices of the kernel: once per call (`Polling::Off`), and under load without one (`Polling::Auto`).
//!
//! A worker is played who does what the turn says: sleeps until somebody calls, pauses, or comes again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{BitRate, FlowId, Instant, LaneId, LinkId};
use firelane_world::*;
use proptest::prelude::*;

/// One lane, with a device from which frames come and a ring where they go.
struct Scene {
    world: World,
    pools: Pools,
    device: RingDriver,
    sink: RingDriver,
    /// What comes next, and whether the worker has been told of all that came before.
    sleep: Sleep,
    has_news: bool,
    polling: Polling,
    sleeps: u32,
    /// Frames that have come and were not delivered.
    waiting: usize,
}

impl Scene {
    fn new(polling: Polling) -> Self {
        let mut world = World::new(1);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let mut ends = Vec::new();
        for n in [1, 2] {
            world.add_flow(plain_flow(FlowId(n), LinkId(n), None, None));
            let (ours, theirs) = wire(Capabilities::plain(MTU));
            let config = vnic(n, 0, n as u8, n, PortUser::Driver { through: LaneId(0) });
            world.add_port(config, vec![AnyDriver::Kernel(KernelDevice::new(theirs))]);
            world.all(|| Control::SetPolling(LinkId(n), polling));
            ends.push(ours);
        }
        let sink = ends.pop().expect("two were made");
        let device = ends.pop().expect("two were made");
        let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
        let sleep = world.lanes[0].turn(Instant::ZERO, Idle::Sleeps);
        Self { world, pools, device, sink, sleep, has_news: false, polling, sleeps: 0, waiting: 0 }
    }

    /// Acknowledgements of a stream, which nobody waits for.
    fn bring(&mut self, count: usize) {
        let frames = (0..count).map(|_| {
            let mut frame = udp_frame(&mut self.pools, 1, 2, (1, 53), 60);
            let bytes = frame.as_mut_slice();
            (bytes[23], bytes[46], bytes[47]) = (6, 0x50, 0x10);
            frame
        });
        let chain = frames.collect();
        self.push(chain, count);
    }

    fn bring_datagrams(&mut self, count: usize) {
        let chain = (0..count).map(|_| udp_frame(&mut self.pools, 1, 2, (1, 53), 60)).collect();
        self.push(chain, count);
    }

    fn push(&mut self, mut chain: Chain, count: usize) {
        self.device.tx.push_chain(&mut chain);
        assert!(chain.is_empty(), "the device has room");
        self.has_news |= count > 0;
        self.waiting += count;
    }

    fn left(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a descriptor that is listened to would call: by levels or by edges.
    fn calls(&mut self) -> bool {
        match self.polling {
            Polling::Off => self.left(),
            Polling::Auto => std::mem::take(&mut self.has_news),
        }
    }

    fn turn(&mut self) -> usize {
        self.sleep = self.world.lanes[0].turn(self.world.now, Idle::Sleeps);
        self.take_delivered()
    }

    /// A thread that is about to wait looks at `now`, and the worker is told what it is told.
    fn look(&mut self, now: Instant) -> (usize, Looked) {
        self.world.now = self.world.now.max(now);
        let looked = self.world.lanes[0].look(self.world.now);
        match looked {
            Looked::NoPause => {}
            Looked::Until(until) => self.sleep.until = Some(until),
            Looked::CallWorker => self.sleep.work_left = true,
        }
        (self.take_delivered(), looked)
    }

    fn take_delivered(&mut self) -> usize {
        let mut came = Chain::new();
        let delivered = self.sink.rx.pop_into(&mut came, usize::MAX);
        self.waiting -= delivered;
        delivered
    }

    /// The worker goes on until it sleeps beyond `until`; the frames that were delivered.
    fn work(&mut self, until: Instant) -> usize {
        let mut delivered = 0;
        for _ in 0..10_000 {
            if self.sleep.work_left {
                if self.sleep.listens && self.calls() {
                    self.world.lanes[0].listened(Calls::Somebody);
                }
            } else if !self.sleep.is_deaf && self.calls() {
                self.world.lanes[0].listened(Calls::Somebody);
                self.sleeps += 1;
            } else {
                match self.sleep.until.filter(|&at| at <= until) {
                    Some(at) => self.world.now = self.world.now.max(at),
                    None => {
                        self.world.now = until;
                        return delivered;
                    }
                }
                self.sleeps += 1;
            }
            delivered += self.turn();
        }
        panic!("the worker never sleeps");
    }

    fn arrivals(&self) -> Arrivals {
        let snapshot = self.world.lanes[0].snapshot();
        let port = snapshot.ports.iter().find(|(id, _)| *id == LinkId(1)).expect("it exists");
        port.1.outward.arrivals
    }
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

#[test]
fn a_device_that_is_not_polled_is_read_once_per_call() {
    let mut scene = Scene::new(Polling::Off);
    scene.bring(200);
    assert_eq!(scene.turn(), 0, "somebody else woke the lane");
    for chain in [64, 64, 64, 8] {
        scene.world.lanes[0].listened(Calls::Somebody);
        assert_eq!(scene.turn(), chain);
        assert!(!scene.sleep.work_left && !scene.sleep.is_deaf && scene.sleep.listens);
        assert_eq!(scene.turn(), 0, "nobody has called since");
    }
    let arrivals = scene.arrivals();
    assert_eq!((arrivals.notified, arrivals.polled), (200, 0));
}

#[test]
fn nobody_listens_for_a_device_that_is_gone() {
    let mut scene = Scene::new(Polling::Off);
    for n in [1, 2] {
        scene.turn();
        assert!(scene.sleep.listens, "one is left");
        scene.world.all(|| Control::RemoveFlow(FlowId(n)));
        scene.world.all(|| Control::RemovePort(LinkId(n)));
    }
    scene.turn();
    assert!(!scene.sleep.listens);
}

#[test]
fn under_load_one_sleep_brings_many_chains_and_a_single_frame_waits_for_nothing() {
    let mut sleeps = [Polling::Off, Polling::Auto].map(|polling| {
        let mut scene = Scene::new(polling);
        scene.bring(LOADED_AT);
        let mut delivered = 0;
        for n in 0..1000 {
            delivered += scene.work(at(10 * n));
            scene.bring(1);
        }
        delivered += scene.work(at(20_000));
        assert_eq!(delivered, LOADED_AT + 1000);
        let arrivals = scene.arrivals();
        match polling {
            Polling::Off => assert_eq!((arrivals.notified, arrivals.polled), (LOADED_AT as u64 + 1000, 0)),
            Polling::Auto => assert!(arrivals.notified <= 20, "{arrivals:?}"),
        }
        let before = scene.world.now;
        scene.bring(1);
        assert_eq!(scene.work(before), 1, "the load is over, and it is told of at once");
        scene.sleeps
    });
    sleeps.sort_unstable();
    assert!(sleeps[0] * 5 <= sleeps[1], "{sleeps:?}");
}

#[test]
fn where_a_limit_keeps_neighbours_apart_the_lane_does_not_pause() {
    let mut scene = Scene::new(Polling::Auto);
    for (round, maxbw) in [(0, None), (1, Some(BitRate::from_mbps(1000))), (2, None)] {
        scene.world.all(|| Control::SetMaxbw(FlowId(1), maxbw));
        scene.world.all(|| Control::SetHome(FlowId(1), maxbw.map(|_| LaneId(0))));
        scene.work(at(10_000 * round));
        scene.bring(LOADED_AT);
        scene.world.lanes[0].listened(Calls::Somebody);
        assert_eq!(scene.turn(), LOADED_AT);
        assert_eq!(scene.sleep.is_deaf, maxbw.is_none(), "{maxbw:?}");
    }
}

#[test]
fn who_looks_finds_what_waits_and_the_worker_need_not_come() {
    let mut scene = Scene::new(Polling::Auto);
    assert_eq!(scene.look(at(0)), (0, Looked::NoPause), "it listens");
    scene.bring(LOADED_AT);
    scene.work(at(0));
    assert!(scene.sleep.is_deaf);
    let before = scene.sleeps;
    for n in 1..50 {
        scene.bring(STAYS_LOADED_AT);
        let (found, looked) = scene.look(at(80 * n));
        assert_eq!(found, STAYS_LOADED_AT);
        assert!(matches!(looked, Looked::Until(until) if until >= at(80 * n) + PAUSE), "{looked:?}");
        scene.work(at(80 * n));
    }
    assert_eq!(scene.sleeps, before, "the worker has slept all the time");
    scene.world.check_conservation();
}

#[test]
fn who_looks_calls_the_worker_where_a_limit_came_or_a_datagram() {
    for comes in [true, false] {
        let mut scene = Scene::new(Polling::Auto);
        scene.bring(LOADED_AT);
        scene.work(at(0));
        assert!(scene.sleep.is_deaf);
        if comes {
            scene.bring_datagrams(1);
        } else {
            scene.world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(1000))));
            scene.world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
        }
        assert_eq!(scene.look(at(10)), (usize::from(comes), Looked::CallWorker));
        scene.work(at(10));
        assert!(!scene.sleep.is_deaf, "it listens");
    }
}

#[test]
fn many_datagrams_are_looked_for_again_and_one_is_not() {
    for (count, looks) in [(1, false), (20, true)] {
        let mut scene = Scene::new(Polling::Auto);
        scene.bring_datagrams(count);
        scene.world.lanes[0].listened(Calls::Somebody);
        assert_eq!(scene.turn(), count);
        assert_eq!((scene.sleep.work_left, scene.sleep.yields), (looks, looks));
        scene.bring_datagrams(usize::from(looks));
        assert_eq!(scene.turn(), usize::from(looks), "though nobody has called");
        scene.work(at(0));
        assert!(!scene.sleep.is_deaf && scene.sleep.until.is_none(), "there is no pause");
    }
}

#[test]
fn a_change_holds_for_what_comes_next_and_loses_nothing() {
    let mut scene = Scene::new(Polling::Auto);
    let mut delivered = 0;
    for round in 0..40 {
        scene.bring(100);
        delivered += scene.work(at(100 * round));
        let polling = if round % 2 == 0 { Polling::Off } else { Polling::Auto };
        for port in [LinkId(1), LinkId(2)] {
            scene.world.all(|| Control::SetPolling(port, polling));
        }
        // Who changes it gives the worker a turn; a descriptor that is heard otherwise calls at once if it has frames.
        (scene.polling, scene.has_news) = (polling, scene.left());
        delivered += scene.turn();
    }
    delivered += scene.work(at(10_000));
    assert_eq!(delivered, 4000);
    scene.world.check_conservation();
}

proptest! {
    /// Whatever comes when, and however the device is read and by whom: everything is delivered, nothing later than a pause after
    /// it came, and a lane with nothing to do sleeps without an end.
    #[test]
    fn nothing_waits_longer_than_a_pause(
        is_off in any::<bool>(),
        gaps in proptest::collection::vec((0u64..2500, 0usize..90, 0usize..3, any::<bool>()), 1..60),
    ) {
        let mut scene = Scene::new(if is_off { Polling::Off } else { Polling::Auto });
        let (mut now, mut waiting) = (0, 0);
        for (gap, count, datagrams, is_looked_for) in gaps {
            scene.bring(count);
            scene.bring_datagrams(datagrams);
            waiting += count + datagrams;
            waiting -= scene.work(at(now));
            prop_assert!(waiting == 0 || !is_off);
            if is_looked_for {
                waiting -= scene.look(at(now + gap / 2)).0;
            }
            now += gap;
            waiting -= scene.work(at(now));
            prop_assert!(waiting == 0 || Duration::from_micros(gap) < PAUSE_MAX);
        }
        waiting -= scene.work(at(now) + PAUSE_MAX);
        prop_assert_eq!(waiting, 0);
        scene.work(at(now) + 3 * PAUSE_MAX);
        prop_assert!(!scene.sleep.is_deaf && scene.sleep.until.is_none());
        scene.world.check_conservation();
    }
}

/// A device of whom `polling=off` was said before another of its queues came is read by none of them without a call.
#[test]
fn a_queue_that_comes_later_is_polled_as_its_port_is() {
    for polling in [Polling::Off, Polling::Auto] {
        let scene = Scene::new(polling);
        let mut world = scene.world;
        let (_device, theirs) = wire(Capabilities::plain(MTU));
        let kernel = KernelDevice::new(theirs);
        let told = std::sync::Arc::clone(&kernel.told);
        let now = world.now;
        let control = Control::AddQueue(LinkId(1), AnyDriver::Kernel(kernel));
        world.lanes[0].on_message(now, LaneMessage::Control(Box::new(control)));
        world.lanes[0].turn(now, Idle::Sleeps);
        let reads = told.reads.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(reads > 0, polling == Polling::Auto, "{polling:?}: {reads}");
    }
}

/// While others have enough of its frames a lane does not go on asking a device that it would not read.
#[test]
fn a_lane_that_waits_for_consumers_sleeps() {
    for polling in [Polling::Off, Polling::Auto] {
        let mut world = World::new(2);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let (mut device, near) = wire(Capabilities::plain(MTU));
        let near = KernelDevice::new(near);
        let told = Arc::clone(&near.told);
        let (mut sink, far) = wire(Capabilities::plain(MTU));
        for n in [1, 2] {
            world.add_flow(plain_flow(FlowId(n), LinkId(n), None, None));
        }
        world.add_port(
            vnic(1, 0, 1, 1, PortUser::Driver { through: LaneId(0) }),
            vec![AnyDriver::Kernel(near)],
        );
        let config = vnic(2, 0, 2, 2, PortUser::Driver { through: LaneId(1) });
        let mut ring = Some(AnyDriver::from(far));
        for lane in 0..2 {
            let queue = if lane == 1 { ring.take() } else { None };
            let control = Control::AddPort(config, queue);
            world.lanes[lane].on_message(Instant::ZERO, LaneMessage::Control(Box::new(control)));
        }
        world.all(|| Control::SetPolling(LinkId(1), polling));
        let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
        let mut chain: Chain = (0..900).map(|n| udp_frame(&mut pools, 1, 2, (n, 53), 60)).collect();
        device.tx.push_chain(&mut chain);
        // One that is not polled tells of what it has as long as it has something.
        let is_left = || polling == Polling::Off && told.is_left.load(Ordering::Relaxed);
        let calls = || if is_left() { Calls::Nobody } else { Calls::Somebody };
        // The other lane does not come to work.
        let turn = |world: &mut World| {
            world.lanes[0].listened(calls());
            let sleep = world.lanes[0].turn(Instant::ZERO, Idle::Sleeps);
            assert!(!world.lanes[0].empty_outbox(&mut world.mail));
            sleep
        };
        let may_sleep = || polling == Polling::Auto || is_left();
        let turns = (1..100).find(|_| !turn(&mut world).work_left && may_sleep());
        assert!(turns.is_some(), "{polling:?}: it never sleeps");
        assert!((256..900).contains(&world.lanes[0].snapshot().counters.received));
        for _ in 0..100 {
            world.exchange();
            world.lanes[0].listened(calls());
            world.run();
        }
        let mut came = Chain::new();
        assert_eq!(sink.rx.pop_into(&mut came, usize::MAX), 900);
        world.check_conservation();
    }
}
