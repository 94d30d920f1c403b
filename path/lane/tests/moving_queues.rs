//! Queues of devices move between lanes while frames pass: every frame arrives once, each sender's in their order, and books balance.

use std::collections::VecDeque;
use std::time::Duration;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{BitRate, DropReason, FlowId, LaneId, LinkId};
use firelane_world::*;
use proptest::prelude::*;

/// Stations of one etherstub, each a device with one queue or two.
const STATIONS: [u8; 3] = [1, 2, 3];

/// Limits let frames pass when time does.
const STEP: Duration = Duration::from_micros(100);

/// Lanes that take turns by chance, and whose items for each other are on their way for as long as chance likes.
struct Chaos {
    world: World,
    /// To each lane, in order: what is filled is there at once, and waits.
    ways: Vec<VecDeque<LaneMessage<AnyDriver>>>,
    pools: Pools,
    /// The far sides of each station's queues.
    devices: Vec<Vec<RingDriver>>,
    /// The lanes in which they are.
    places: Vec<Vec<LaneId>>,
    /// The lanes to which each station's device is lent.
    lent: Vec<Vec<LaneId>>,
    /// How many frames went from each station to each other one, and came there.
    sent: [[u16; 4]; 4],
    came: [[u16; 4]; 4],
    random: u64,
}

impl Chaos {
    fn new(lanes: u16, queues: usize, limited: Option<LaneId>, random: u64) -> Self {
        let mut world = World::new(lanes);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        let (mut devices, mut places) = (Vec::new(), Vec::new());
        for n in STATIONS {
            let limit = limited.filter(|_| n == 2);
            // High enough to let all pass, and every frame goes by its home.
            let maxbw = limit.map(|_| BitRate::from_mbps(100_000));
            world.add_flow(plain_flow(FlowId(n.into()), LinkId(n.into()), maxbw, limit));
            let (far, near): (Vec<_>, Vec<_>) =
                (0..queues.min(usize::from(lanes))).map(|_| wire(Capabilities::plain(MTU))).unzip();
            places.push((0..near.len()).map(|lane| LaneId(lane as u16)).collect());
            let through = PortUser::Driver { through: LaneId(0) };
            world.add_port(
                vnic(n.into(), 0, n, n.into(), through),
                near.into_iter().map(Into::into).collect(),
            );
            devices.push(far);
        }
        let ways = (0..lanes).map(|_| VecDeque::new()).collect();
        let pools = Pools::new(PoolsConfig { small_slots: 8192, large_slots: 4 });
        let (sent, came) = Default::default();
        let lent = STATIONS.map(|_| Vec::new()).to_vec();
        Self { world, ways, pools, devices, places, lent, sent, came, random }
    }

    fn below(&mut self, limit: usize) -> usize {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % limit as u64) as usize
    }

    fn lanes(&self) -> usize {
        self.world.lanes.len()
    }

    fn post(&mut self, from: usize) {
        assert!(!self.world.lanes[from].empty_outbox(&mut self.world.mail));
        for (to, message) in self.world.mail.messages.drain(..) {
            self.ways[to.index()].push_back(message);
        }
        self.world.mail.notices.retain(|notice| matches!(notice, Notice::Refused { .. }));
        assert_eq!(self.world.mail.notices, []);
    }

    fn tell(&mut self, lane: usize, control: Control<AnyDriver>) {
        let now = self.world.now;
        self.world.lanes[lane].on_message(now, LaneMessage::Control(Box::new(control)));
        self.post(lane);
    }

    /// A station sends some frames by its first queue.
    fn send(&mut self) {
        let from = STATIONS[self.below(STATIONS.len())];
        let to = STATIONS[self.below(STATIONS.len())];
        let count = 1 + self.below(5);
        if from == to {
            return;
        }
        let mut chain = Chain::new();
        for _ in 0..count {
            let nth = &mut self.sent[usize::from(from)][usize::from(to)];
            chain.push(udp_frame(&mut self.pools, from, to, (*nth + 1, 53), 100));
            *nth += 1;
        }
        self.devices[usize::from(from) - 1][0].tx.push_chain(&mut chain);
        assert!(chain.is_empty(), "the rings are larger than all that is sent");
    }

    /// What has come to a station comes in the order in which it was sent.
    fn receive(&mut self) {
        for to in STATIONS {
            for device in &mut self.devices[usize::from(to) - 1] {
                let mut chain = Chain::new();
                device.rx.pop_into(&mut chain, usize::MAX);
                while let Some(frame) = chain.pop() {
                    let bytes = frame.as_slice();
                    let (from, nth) = (bytes[11], u16::from_be_bytes([bytes[34], bytes[35]]));
                    let came = &mut self.came[usize::from(from)][usize::from(to)];
                    assert_eq!(nth, *came + 1, "from {from} to {to}");
                    *came += 1;
                    self.pools.put(frame);
                }
            }
        }
    }

    /// Anything may happen next.
    fn step(&mut self) {
        self.world.now += STEP;
        match self.below(4) {
            0 => self.send(),
            1 => {
                let lane = self.below(self.lanes());
                let now = self.world.now;
                self.world.lanes[lane].turn(now, Idle::Sleeps);
                self.post(lane);
            }
            _ => {
                let (lane, now) = (self.below(self.ways.len()), self.world.now);
                let items = match self.below(2) {
                    0 => 1,
                    _ => 1 + self.below(3),
                };
                let items = items.min(self.ways[lane].len());
                for message in self.ways[lane].drain(..items) {
                    self.world.lanes[lane].on_message(now, message);
                }
                // Who entered settles before he leaves, and a worker takes a turn after all of them.
                match items {
                    0 => {}
                    1 => drop(self.world.lanes[lane].settle(now)),
                    _ => drop(self.world.lanes[lane].turn(now, Idle::Sleeps)),
                }
                self.post(lane);
            }
        }
        self.receive();
    }

    fn step_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("what was begun never ends");
    }

    /// As the engine moves a queue of a device.
    fn move_one(&mut self) {
        let station = self.below(STATIONS.len());
        let (which, to) = (self.below(self.places[station].len()), self.below(self.lanes()));
        let (from, to, port) =
            (self.places[station][which], LaneId(to as u16), LinkId(u32::from(STATIONS[station])));
        if from == to {
            return;
        }
        let lent = std::mem::take(&mut self.lent[station]);
        if !lent.is_empty() {
            self.direct(station);
            lent.iter().for_each(|lane| self.tell(lane.index(), Control::GiveBack(port)));
        }
        let there = self.world.lanes[to.index()].queues_of(port).0;
        self.tell(from.index(), Control::GiveQueue(port, to));
        self.step_until(|it| it.world.lanes[to.index()].queues_of(port).0 > there);
        self.places[station][which] = to;
        self.settle(port);
        for lane in
            (0..self.lanes()).filter(|&lane| !self.world.lanes[lane].sends_by_own(port)).collect::<Vec<_>>()
        {
            self.tell_and_wait(lane, Control::SendThrough(port, to));
        }
        self.settle(port);
        // Lanes without a queue of it may have one to send by.
        for lane in (0..self.lanes()).map(|lane| LaneId(lane as u16)) {
            if !self.places[station].contains(&lane) && self.below(3) == 0 {
                let (far, near) = wire(Capabilities::plain(MTU));
                self.devices[station].push(far);
                self.tell(lane.index(), Control::AddQueue(port, AnyDriver::Lent(near)));
                self.lent[station].push(lane);
            }
        }
        self.direct(station);
    }

    /// As many of a device's rings send as chance likes; who has none that does, and none that is lent, sends by the first.
    fn direct(&mut self, station: usize) {
        let port = LinkId(u32::from(STATIONS[station]));
        let senders = 1 + self.below(self.places[station].len());
        let senders = self.places[station][..senders].to_vec();
        let has_own = |lane: &LaneId| senders.contains(lane) || self.lent[station].contains(lane);
        let lanes = (0..self.lanes()).map(|lane| LaneId(lane as u16));
        let (own, others): (Vec<_>, Vec<_>) = lanes.partition(has_own);
        for lane in own {
            self.tell_and_wait(lane.index(), Control::SendThrough(port, lane));
        }
        self.settle(port);
        for lane in others {
            self.tell_and_wait(lane.index(), Control::SendThrough(port, senders[0]));
        }
        self.settle(port);
    }

    fn tell_and_wait(&mut self, lane: usize, control: Control<AnyDriver>) {
        self.tell(lane, control);
        for _ in 0..self.below(20) {
            self.step();
        }
    }

    fn settle(&mut self, port: LinkId) {
        self.step_until(|it| it.world.lanes.iter().all(|lane| lane.is_settled(port)));
    }

    fn is_silent(&self) -> bool {
        self.came == self.sent && self.ways.iter().all(VecDeque::is_empty)
    }
}

/// What every run has to keep.
fn check(lanes: u16, queues: usize, limited: Option<LaneId>, seed: u64, moves: usize) {
    let mut chaos = Chaos::new(lanes, queues, limited, seed | 1);
    for _ in 0..moves {
        for _ in 0..chaos.below(60) {
            chaos.step();
        }
        chaos.move_one();
    }
    // Nobody sends any more.
    for _ in 0..1000 {
        chaos.world.now += STEP;
        for lane in 0..chaos.lanes() {
            let now = chaos.world.now;
            chaos.world.lanes[lane].turn(now, Idle::Sleeps);
            chaos.post(lane);
            for way in 0..chaos.ways.len() {
                while let Some(message) = chaos.ways[way].pop_front() {
                    let lane = way;
                    chaos.world.lanes[lane].on_message(now, message);
                    chaos.world.lanes[lane].settle(now);
                    chaos.post(lane);
                }
            }
        }
        chaos.receive();
        if chaos.is_silent() {
            break;
        }
    }
    assert_eq!(chaos.came, chaos.sent, "every frame came");
    assert_eq!(chaos.world.counters().drops.total(), 0);
    // What the rings of a device have carried is what its port has.
    for station in STATIONS {
        let id = LinkId(station.into());
        let snapshots: Vec<_> = chaos.world.lanes.iter().map(Lane::snapshot).collect();
        let of_rings = snapshots.iter().flat_map(|it| &it.rings).filter(|it| it.port == id);
        let sums = of_rings.fold([0; 4], |[a, b, c, d], RingCounters { traffic: it, .. }| {
            let (fetched, sent) = (it.fetched, it.sent);
            [a + fetched.packets, b + fetched.bytes, c + sent.packets, d + sent.bytes]
        });
        let of_port = snapshots.iter().flat_map(|it| &it.ports).filter(|(port, _)| *port == id);
        let all = of_port.fold([0; 4], |[a, b, c, d], (_, it)| {
            let (out, inward) = (it.outward, it.inward);
            [a + out.packets, b + out.bytes, c + inward.packets, d + inward.bytes]
        });
        assert_eq!(sums, all, "station {station}");
    }
    chaos.world.check_conservation();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_is_lost_and_nothing_overtakes(
        lanes in 2u16..5,
        queues in 1usize..3,
        limited in proptest::option::of(0u16..2),
        seed: u64,
        moves in 1usize..12,
    ) {
        check(lanes, queues, limited.map(LaneId), seed, moves);
    }

}

/// Two queues of one device: who has both sends by one, in one order.
#[test]
fn queues_of_one_device_meet_in_a_lane_and_part_again() {
    let mut world = World::new(2);
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
    world.add_flow(plain_flow(FlowId(1), LinkId(1), None, None));
    let (far, near): (Vec<_>, Vec<_>) = (0..2).map(|_| wire(Capabilities::plain(MTU))).unzip();
    let user = PortUser::Driver { through: LaneId(0) };
    world.add_port(vnic(1, 0, 1, 1, user), near.into_iter().map(Into::into).collect());
    let count = |world: &World| [0, 1].map(|lane: usize| world.lanes[lane].queues_of(LinkId(1)).0);
    assert_eq!(count(&world), [1, 1]);
    let now = world.now;
    let tell = |world: &mut World, lane: usize, control| {
        world.lanes[lane].on_message(now, LaneMessage::Control(Box::new(control)));
        while world.exchange() {}
    };
    tell(&mut world, 1, Control::GiveQueue(LinkId(1), LaneId(0)));
    assert_eq!(count(&world), [2, 0]);
    tell(&mut world, 0, Control::GiveQueue(LinkId(1), LaneId(1)));
    assert_eq!(count(&world), [1, 1]);
    tell(&mut world, 0, Control::GiveQueue(LinkId(1), LaneId(1)));
    assert_eq!(count(&world), [0, 2]);
    tell(&mut world, 0, Control::GiveQueue(LinkId(1), LaneId(1)));
    assert!(
        matches!(world.mail.notices[..], [Notice::Refused { what: "give queue", why: "no queue here" }]),
        "{:?}",
        world.mail.notices
    );
    world.mail.notices.clear();
    world.all(|| Control::RemovePort(LinkId(1)));
    assert_eq!(count(&world), [0, 0], "a port that goes takes all its queues with it");
    drop(far);
}

/// A device that takes nothing: what waits for it goes with its queue, and the port's end ends it.
#[test]
fn what_waits_for_a_device_goes_with_its_queue() {
    let mut world = World::new(2);
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
    for n in [1, 2] {
        world.add_flow(plain_flow(FlowId(n), LinkId(n), None, None));
    }
    let user = PortUser::Driver { through: LaneId(0) };
    let (mut alice, a) = wire(Capabilities::plain(MTU));
    let (bob, b) = wire(Capabilities::plain(MTU));
    world.add_port(vnic(1, 0, 1, 1, user), vec![a.into()]);
    world.add_port(vnic(2, 0, 2, 2, user), vec![b.into()]);
    let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
    // Bob's ring holds 1,024.
    for _ in 0..12 {
        let mut chain: Chain = (0..100).map(|n| udp_frame(&mut pools, 1, 2, (n + 1, 53), 100)).collect();
        alice.tx.push_chain(&mut chain);
        world.run_for(Duration::from_micros(1));
    }
    assert_eq!(world.lanes[0].snapshot().held, 1200 - 1024);
    let now = world.now;
    let control = Control::GiveQueue(LinkId(2), LaneId(1));
    world.lanes[0].on_message(now, LaneMessage::Control(Box::new(control)));
    while world.exchange() {}
    assert_eq!([0, 1].map(|lane: usize| world.lanes[lane].snapshot().held), [0, 1200 - 1024]);
    world.check_conservation();
    world.all(|| Control::RemovePort(LinkId(2)));
    assert_eq!(world.counters().drops.of(DropReason::NoPort), 1200 - 1024);
    world.check_conservation();
    drop(bob);
}

/// The lane that takes a queue has a way of its own to a device; frames from before are still on theirs, through another lane.
#[test]
fn a_queue_goes_when_its_frames_are_past_in_every_lane() {
    let mut chaos = Chaos::new(3, 1, None, 1);
    // Bob has a second queue: one in lane 1, one in lane 2. Alice's is in lane 0.
    let bob = LinkId(2);
    chaos.world.all(|| Control::RemovePort(bob));
    let (far, near): (Vec<_>, Vec<_>) = (0..2).map(|_| wire(Capabilities::plain(MTU))).unzip();
    let mut near = near.into_iter();
    for lane in 0..3 {
        let config = vnic(2, 0, 2, 2, PortUser::Driver { through: LaneId(1) });
        let queue = if lane == 0 { None } else { near.next().map(Into::into) };
        chaos.tell(lane, Control::AddPort(config, queue));
    }
    chaos.devices[1] = far;
    let send = |chaos: &mut Chaos| {
        let first = chaos.sent[1][2];
        let frames = (first..first + 5).map(|nth| udp_frame(&mut chaos.pools, 1, 2, (nth + 1, 53), 100));
        let mut chain: Chain = frames.collect();
        chaos.devices[0][0].tx.push_chain(&mut chain);
        chaos.sent[1][2] += 5;
    };
    let work = |chaos: &mut Chaos, lanes: &[usize]| {
        for _ in 0..10 {
            for &lane in lanes {
                let now = chaos.world.now;
                while let Some(message) = chaos.ways[lane].pop_front() {
                    chaos.world.lanes[lane].on_message(now, message);
                    chaos.world.lanes[lane].settle(now);
                    chaos.post(lane);
                }
                chaos.world.lanes[lane].turn(now, Idle::Sleeps);
                chaos.post(lane);
            }
            chaos.receive();
        }
    };
    send(&mut chaos);
    work(&mut chaos, &[0]);
    chaos.tell(0, Control::GiveQueue(LinkId(1), LaneId(2)));
    send(&mut chaos);
    work(&mut chaos, &[0, 2]);
    assert_eq!(chaos.came[1][2], 0, "lane 1 has not worked, and nothing overtakes what waits there");
    work(&mut chaos, &[0, 1, 2]);
    assert_eq!((chaos.came[1][2], chaos.world.lanes[2].queues_of(LinkId(1)).0), (10, 1));
    chaos.world.check_conservation();
}

/// Two VNICs of drivers that send through the first lane: their far ends.
fn two_vnics(world: &mut World) -> (RingDriver, RingDriver) {
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
    for n in [1, 2] {
        world.add_flow(plain_flow(FlowId(n), LinkId(n), None, None));
    }
    let user = PortUser::Driver { through: LaneId(0) };
    let ((alice, a), (bob, b)) = (wire(Capabilities::plain(MTU)), wire(Capabilities::plain(MTU)));
    world.add_port(vnic(1, 0, 1, 1, user), vec![a.into()]);
    world.add_port(vnic(2, 0, 2, 2, user), vec![b.into()]);
    (alice, bob)
}

/// A ring that ends brings what is in it, also if its lane has no buffers for all of that at once.
#[test]
fn a_ring_that_ends_waits_for_buffers() {
    let mut world = World::with_pools(2, PoolsConfig { small_slots: 32, large_slots: 4 });
    let (_alice, mut bob) = two_vnics(&mut world);
    let (mut aside, near) = wire(Capabilities::plain(MTU));
    let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
    let mut chain: Chain = (0..300).map(|n| udp_frame(&mut pools, 1, 2, (n + 1, 53), 100)).collect();
    aside.tx.push_chain(&mut chain);
    let queue = Control::AddQueue(LinkId(1), AnyDriver::Copying(Copying(near)));
    let now = world.now;
    for control in [queue, Control::EndQueue(LinkId(1), 0)] {
        world.lanes[1].on_message(now, LaneMessage::Control(Box::new(control)));
    }
    let mut count = 0;
    for _ in 0..20 {
        world.run_for(Duration::from_millis(1));
        let mut came = Chain::new();
        bob.rx.pop_into(&mut came, usize::MAX);
        count += came.len();
        pools.put_all(&mut came);
    }
    assert_eq!((count, world.lanes[1].queues_of(LinkId(1)).0), (300, 0));
    world.check_conservation();
}

/// A device's second ring in a lane of its own, which sends through the other one.
#[test]
fn a_ring_that_ends_is_read_first_and_what_it_has_carried_stays_known() {
    let mut world = World::new(2);
    let (_alice, mut bob) = two_vnics(&mut world);
    let (mut aside, near) = wire(Capabilities::plain(MTU));
    let tell = |world: &mut World, lane: usize, control| {
        let now = world.now;
        world.lanes[lane].on_message(now, LaneMessage::Control(Box::new(control)));
        while world.exchange() {}
    };
    tell(&mut world, 1, Control::AddQueue(LinkId(1), near.into()));
    let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
    let mut chain: Chain = (0..300).map(|n| udp_frame(&mut pools, 1, 2, (n + 1, 53), 100)).collect();
    aside.tx.push_chain(&mut chain);
    tell(&mut world, 0, Control::EndQueue(LinkId(1), 0));
    assert_eq!(world.mail.notices.len(), 1, "by that ring its lane sends: {:?}", world.mail.notices);
    world.mail.notices.clear();
    tell(&mut world, 1, Control::EndQueue(LinkId(1), 0));
    world.run_for(Duration::from_micros(10));
    let mut came = Chain::new();
    bob.rx.pop_into(&mut came, usize::MAX);
    assert_eq!(came.len(), 300);
    let rings = world.lanes[1].snapshot().rings;
    let fetched =
        rings.iter().filter(|it| it.port == LinkId(1)).map(|it| (it.is_lent, it.traffic.fetched.packets));
    assert_eq!(fetched.collect::<Vec<_>>(), [(true, 300)]);
    assert_eq!([0, 1].map(|lane: usize| world.lanes[lane].queues_of(LinkId(1)).0), [1, 0]);
    pools.put_all(&mut came);
    world.check_conservation();
}
