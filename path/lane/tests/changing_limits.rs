//! Limits, rules and homes of flows that change again and again under load: nothing is lost, nothing is stuck, no frame
//! overtakes another, and what passes follows the limit of the moment.

use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_socket::StreamEnd;
use firelane_units::{BitRate, DropReason, FlowId, LaneId, LinkId, Mtu, Priority};
use firelane_world::*;

/// Bob's VNIC, its own limit, and the flow of what goes to port 53 there, part of it.
const BOB: LinkId = LinkId(2);
const WHOLE: FlowId = FlowId(2);
const PART: FlowId = FlowId(3);
const FRAME: usize = 1000;
/// Twelve frames of a thousand bytes per millisecond are 96 Mb/s: more than any limit here.
const OFFERED: usize = 12;

/// Choices that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % n
    }

    /// No limit, a closed one, or one that is always reached.
    fn limit(&mut self) -> Option<BitRate> {
        [None, Some(0), Some(1), Some(8), Some(40), Some(80)][self.below(6) as usize].map(BitRate::from_mbps)
    }
}

/// What goes to `ports`, part of bob's VNIC.
fn part(flow: FlowId, ports: &str, maxbw: Option<BitRate>, home: Option<LaneId>) -> FlowSetup {
    let rule = FlowMatch { local_port: Some(ports.parse().unwrap()), ..FlowMatch::default() };
    let config = FlowConfig { parent: Some(WHOLE), maxbw, priority: Priority::Medium };
    FlowSetup { flow, owner: BOB, rule: Some(rule), config, home }
}

/// Alice's and bob's VNICs on an etherstub; alice sends frames with numbers in their first bytes of text.
struct Stub {
    world: World,
    pools: Pools,
    alice: RingDriver,
    bob: RingDriver,
    sent: u32,
    got: u32,
    /// The number of the last frame that came.
    last: Option<u32>,
}

impl Stub {
    fn new(lanes: u16) -> Self {
        let mut world = World::new(lanes);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
        world.add_flow(plain_flow(FlowId(1), LinkId(1), None, None));
        let home = Some(LaneId(lanes - 1));
        world.add_flow(plain_flow(WHOLE, BOB, None, home));
        let (alice, a) = wire(Capabilities::plain(MTU));
        let (bob, b) = wire(Capabilities::plain(MTU));
        let user = PortUser::Driver { through: LaneId(0) };
        world.add_port(vnic(1, 0, 1, 1, user), vec![a.into()]);
        world.add_port(vnic(2, 0, 2, 2, user), vec![b.into()]);
        world.add_flow(part(PART, "53", None, home));
        let pools = Pools::new(PoolsConfig { small_slots: 8192, large_slots: 4 });
        Self { world, pools, alice, bob, sent: 0, got: 0, last: None }
    }

    /// A millisecond of traffic; how many frames came.
    fn millisecond(&mut self) -> u32 {
        let mut chain = Chain::new();
        for _ in 0..OFFERED {
            let mut frame = udp_frame(&mut self.pools, 1, 2, (9, 53), FRAME);
            frame.as_mut_slice()[42..46].copy_from_slice(&self.sent.to_be_bytes());
            self.sent += 1;
            chain.push(frame);
        }
        self.alice.tx.push_chain(&mut chain);
        self.world.run_for(Duration::from_millis(1));
        self.receive(true)
    }

    fn receive(&mut self, in_order: bool) -> u32 {
        let mut came = Chain::new();
        self.bob.rx.pop_into(&mut came, usize::MAX);
        let count = came.len() as u32;
        while let Some(frame) = came.pop() {
            let number = u32::from_be_bytes(frame.as_slice()[42..46].try_into().unwrap());
            assert!(!in_order || self.last < Some(number), "{number} after {:?}", self.last);
            self.last = Some(number);
            self.pools.put(frame);
        }
        self.got += count;
        count
    }

    fn held(&self) -> u64 {
        self.world.lanes.iter().map(|lane| lane.snapshot().held).sum()
    }

    /// Every frame came, is held, or was dropped by a limit.
    fn check(&self) {
        self.world.check_conservation();
        let drops = self.world.counters().drops;
        assert_eq!(drops.total(), drops.of(DropReason::FlowLimit), "{drops:?}");
        assert_eq!(u64::from(self.got) + self.held() + drops.total(), u64::from(self.sent));
    }

    /// Takes all limits away: whatever was held comes at once.
    fn lift(&mut self, in_order: bool) {
        let held = self.held();
        for flow in [PART, WHOLE] {
            self.world.all(|| Control::SetMaxbw(flow, None));
        }
        self.world.run();
        assert_eq!((u64::from(self.receive(in_order)), self.held()), (held, 0), "what was held is not stuck");
        self.check();
    }
}

#[test]
fn what_passes_follows_a_limit_that_changes_while_frames_are_held() {
    const EPOCH_MS: u64 = 20;
    for lanes in [1, 2, 4] {
        let (mut stub, mut dice) = (Stub::new(lanes), Dice(u64::from(lanes)));
        let mut limits = [None; 2];
        for epoch in 0..150 {
            let which = dice.below(2) as usize;
            limits[which] = dice.limit();
            stub.world.all(|| Control::SetMaxbw([PART, WHOLE][which], limits[which]));
            let before = stub.held();
            let got: u32 = (0..EPOCH_MS).map(|_| stub.millisecond()).sum();
            stub.check();
            let tightest = limits.into_iter().flatten().min();
            let offered = OFFERED as u64 * EPOCH_MS;
            let wanted = match tightest.map(BitRate::bps) {
                None => before + offered,
                Some(bps) => bps / 8 * EPOCH_MS / 1000 / FRAME as u64,
            };
            // A frame that was begun under the limit of before is still paid for; a limit that was not reached before
            // remembers half a millisecond.
            let remembered = |bps: u64| bps / 8 / 2000 / FRAME as u64;
            let span = tightest.map(BitRate::bps).filter(|&bps| bps > 0).map_or(0, |bps| 2 + remembered(bps));
            let range = wanted.saturating_sub(span)..=wanted + span;
            assert!(
                range.contains(&u64::from(got)),
                "{lanes} lanes, epoch {epoch}, {limits:?}: {got} frames of {range:?}"
            );
        }
        stub.lift(true);
    }
}

/// What waits for a limit goes to its new home with it: two lanes that serve what each has would let pass twice as much.
#[test]
fn a_limit_that_moves_to_another_lane_takes_along_what_waits_for_it() {
    for (kbps, moves) in [(200, 1), (200, 3), (8000, 5)] {
        let mut stub = Stub::new(3);
        let rate = BitRate::from_bps(kbps * 1000);
        stub.world.all(|| Control::SetMaxbw(WHOLE, Some(rate)));
        for _ in 0..30 {
            stub.millisecond();
        }
        let mut got = 0;
        for nth in 0..moves {
            let home = Some(LaneId((1 + nth) % 3));
            for flow in [WHOLE, PART] {
                stub.world.all(|| Control::SetHome(flow, home));
            }
            got += (0..1000 / moves).map(|_| stub.millisecond()).sum::<u32>();
            stub.check();
        }
        let wanted = (rate.bps() / 8 / FRAME as u64) as u32;
        // Each home begins with a frame.
        let most = wanted + 2 + u32::from(moves);
        assert!((wanted - 2..=most).contains(&got), "{got} of {wanted} frames after {moves} moves");
    }
}

#[test]
fn rules_that_come_and_go_beside_a_limit_do_not_disturb_it() {
    for lanes in [1, 2, 4] {
        let mut stub = Stub::new(lanes);
        let home = Some(LaneId(lanes - 1));
        stub.world.all(|| Control::SetMaxbw(PART, Some(BitRate::from_mbps(40))));
        let mut got = 0;
        for n in 0..500 {
            // A wider range, which the single port comes before, and one that has nothing to do with it.
            match n % 4 {
                0 => stub.world.add_flow(part(FlowId(4), "50-60", Some(BitRate::ZERO), home)),
                1 => stub.world.add_flow(part(FlowId(5), "1000-2000", None, home)),
                2 => stub.world.all(|| Control::RemoveFlow(FlowId(4))),
                _ => stub.world.all(|| Control::RemoveFlow(FlowId(5))),
            }
            stub.world.all(|| Control::SetPriority(PART, Priority::ALL[n % 3]));
            got += stub.millisecond();
            stub.check();
        }
        // Half a second of 40 Mb/s are 2,500 frames.
        assert!((2498..=2502).contains(&got), "{got} frames with {lanes} lanes");
        stub.lift(true);
    }
}

#[test]
fn whatever_changes_under_load_nothing_is_lost_and_nothing_stays() {
    for (lanes, seed) in [(1, 1), (2, 2), (4, 3), (4, 4)] {
        let (mut stub, mut dice) = (Stub::new(lanes), Dice(seed));
        let mut extra = false;
        for _ in 0..600 {
            match dice.below(5) {
                0 => {
                    let limit = dice.limit();
                    stub.world.all(|| Control::SetMaxbw(PART, limit));
                }
                1 => {
                    let limit = dice.limit();
                    stub.world.all(|| Control::SetMaxbw(WHOLE, limit));
                }
                // A limit above moves what is part of it along, as the engine does.
                2 => {
                    let home = Some(LaneId(dice.below(u64::from(lanes)) as u16));
                    for flow in [WHOLE, PART] {
                        stub.world.all(|| Control::SetHome(flow, home));
                    }
                }
                3 if extra => {
                    stub.world.all(|| Control::RemoveFlow(FlowId(4)));
                    extra = false;
                }
                3 => {
                    // More specific than the port alone: it takes the frames over.
                    let mut setup = part(FlowId(4), "53", dice.limit(), None);
                    setup.home = Some(LaneId(dice.below(u64::from(lanes)) as u16));
                    setup.rule.as_mut().unwrap().transport = Some(firelane_wire::IpProtocol::UDP);
                    stub.world.add_flow(setup);
                    extra = true;
                }
                _ => {
                    let priority = Priority::ALL[dice.below(3) as usize];
                    stub.world.all(|| Control::SetPriority(PART, priority));
                }
            }
            let mut chain = Chain::new();
            for _ in 0..OFFERED {
                chain.push(udp_frame(&mut stub.pools, 1, 2, (9, 53), FRAME));
                stub.sent += 1;
            }
            stub.alice.tx.push_chain(&mut chain);
            stub.world.run_for(Duration::from_micros(dice.below(1500)));
            stub.receive(false);
            stub.check();
        }
        if extra {
            stub.world.all(|| Control::RemoveFlow(FlowId(4)));
        }
        stub.lift(false);
        assert_eq!(stub.millisecond_unordered(), OFFERED as u32, "and traffic goes on without limits");
    }
}

impl Stub {
    /// A millisecond of traffic whose order does not count.
    fn millisecond_unordered(&mut self) -> u32 {
        self.last = None;
        self.millisecond()
    }
}

/// A connection whose limit stands at the sender, where it waits for credit, or at the receiver, where frames are held.
#[test]
fn a_connection_follows_its_limit_and_loses_nothing() {
    const SETTLE: Duration = Duration::from_millis(300);
    const MEASURE: Duration = Duration::from_millis(300);
    for lanes in [1, 2] {
        for limited in [FlowId(1), FlowId(2)] {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            let listener = world.listen(2, 1, "10.0.0.2:5201", 8);
            let mut client = world.connect(1, 0, "10.0.0.2:5201");
            world.run_for(Duration::from_millis(10));
            let mut server = listener.accept().expect("the handshake is over").stream;
            world.all(|| Control::SetHome(limited, Some(LaneId(lanes - 1))));
            let mut stream = Stream::new();
            for mbps in [50, 100, 20, 80, 10] {
                world.all(|| Control::SetMaxbw(limited, Some(BitRate::from_mbps(mbps))));
                stream.flow_for(&mut world, &mut client, &mut server, SETTLE);
                let before = passed(&world, limited);
                stream.flow_for(&mut world, &mut client, &mut server, MEASURE);
                let wanted = mbps * 1_000_000 / 8 * MEASURE.as_millis() as u64 / 1000;
                let share = (passed(&world, limited) - before) as f64 / wanted as f64;
                assert!((0.99..1.01).contains(&share), "{lanes} lanes, {limited}: {share} of {mbps} Mb/s");
                world.check_conservation();
            }
            world.all(|| Control::SetMaxbw(limited, None));
            stream.finish(&mut world, &mut server);
            world.check_conservation();
        }
    }
}

/// The wire bytes of a flow that passed in the direction in which text goes: more than the other's.
fn passed(world: &World, flow: FlowId) -> u64 {
    let flows = world.lanes.iter().flat_map(|lane| lane.snapshot().flows).filter(|(id, _)| *id == flow);
    let [inward, outward] =
        flows.fold([0, 0], |[a, b], (_, [inward, outward])| [a + inward.bytes, b + outward.bytes]);
    inward.max(outward)
}

/// An endless text, and how much of it was written and has come.
struct Stream {
    text: Vec<u8>,
    written: usize,
    came: usize,
    buffer: Vec<u8>,
}

impl Stream {
    /// After so many bytes the text begins again: no power of two, as sizes of buffers are.
    const PERIOD: usize = 65_521;

    fn new() -> Self {
        let text = (0..2 * Self::PERIOD).map(|n| n % Self::PERIOD).map(|n| (n * 31 + (n >> 8)) as u8);
        Self { text: text.collect(), written: 0, came: 0, buffer: vec![0; Self::PERIOD] }
    }

    fn text(&self, at: usize) -> &[u8] {
        &self.text[at % Self::PERIOD..][..Self::PERIOD]
    }

    /// Writes as much as there is room for and reads what comes, for a while.
    fn flow_for(&mut self, world: &mut World, from: &mut StreamEnd, to: &mut StreamEnd, span: Duration) {
        for _ in 0..span.as_millis() {
            while let Ok(count @ 1..) = world.write(from, self.text(self.written)) {
                self.written += count;
            }
            world.run_for(Duration::from_millis(1));
            self.read(world, to);
        }
    }

    fn read(&mut self, world: &mut World, to: &mut StreamEnd) {
        while let Ok(count @ 1..) = world.read(to, &mut self.buffer) {
            assert!(
                self.buffer[..count] == self.text(self.came)[..count],
                "the bytes arrive as they were sent"
            );
            self.came += count;
        }
    }

    /// What was written arrives.
    fn finish(&mut self, world: &mut World, to: &mut StreamEnd) {
        for _ in 0..1000 {
            world.run_for(Duration::from_millis(1));
            self.read(world, to);
        }
        assert_eq!(self.came, self.written, "nothing is stuck");
    }
}
