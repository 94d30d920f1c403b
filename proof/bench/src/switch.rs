//! `switch`: 64-byte frames, memory ring -> classify -> flow -> switch -> memory ring, in one real lane.
//!
//! Frames are made once and go round: the far ends of the wires are fed and drained on the lane's own thread,
//! so their cost is in the figure; it is also shown apart. The lane stands behind its squeue as it does
//! in the engine, and its clock is read once per turn. Rates are per second of CPU time. The peer is the kernel's bridge (`bridge.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use firelane_classify::FlowMatch;
use firelane_driver_memory::{End, WireConfig, wire};
use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Driver, Frame, Pools, PoolsConfig};
use firelane_lane::{
    Backlogs, Control, FlowSetup, Host, Idle, Lane, LaneConfig, LaneMessage, LinkConfig, Mode, PortConfig,
    PortKind, PortUser, Secrets, Squeue,
};
use firelane_units::{DropCounters, FlowId, Instant, LaneId, LinkId, MacAddr, Mtu, Port, Priority};
use firelane_wire::IpProtocol;

use crate::alone::{NoBell, NoMail};
use crate::bridge::{Bridge, Moved};
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::{alloc, cpu};

const ROUNDS: usize = ROUNDS_MIN + 2;
const SPAN: Duration = Duration::from_millis(500);
/// One VNIC sends to the others. Frames that go round are eight of a lane's chains, of 256 different conversations.
const SHAPE: Shape = Shape { vnics: 4, flows_per_vnic: 8, senders: 1, frames: 512 };
const FRAME_BYTES: usize = 64;
/// Frames that the far end offers at once: a lane's chain.
const CHAIN: usize = 64;
const WANTED_MPPS: f64 = 8.0;

/// What a lane has to do with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) vnics: u32,
    /// Flows by port, besides the VNIC's own.
    pub(crate) flows_per_vnic: u32,
    /// How many of the VNICs send, a chain each in turn; the others receive.
    pub(crate) senders: u32,
    pub(crate) frames: usize,
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut bridge = Bridge::new(1)?;
    cpu::bind(1)?;
    let mut world = World::new(SHAPE, LaneId(0), Arc::new(Backlogs::new(1)));
    world.go_round(Duration::from_millis(200));
    let (mut ours, mut ends, mut gross, mut bare) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    let (mut allocations, mut frames) = (0, 0);
    for _ in 0..ROUNDS {
        let before = alloc::allocations();
        let moved = world.go_round(SPAN);
        allocations += alloc::allocations() - before;
        frames += moved.frames;
        ours.push(moved.nanos_per_frame());
        gross.push(bridge.forward(SPAN)?.nanos_per_frame());
        ends.push(world.far_ends_alone(SPAN / 5).nanos_per_frame());
        bare.push(bridge.bare(SPAN / 2)?.nanos_per_frame());
    }
    world.check()?;
    let rate = |samples: &Samples| samples.map(|nanos| 1000.0 / nanos);
    let table = Table::begin(
        "switch: 64-byte frames between virtual stations, one CPU, 4 VNICs with 8 flows each, chains of 64",
    );
    table.row("firelane lane, far ends included", &ours, "ns/frame");
    table.row("  far ends alone (feed and drain)", &ends, "ns/frame");
    table.row("kernel bridge, generator included", &gross, "ns/frame");
    table.row("  generator and one veth pair alone", &bare, "ns/frame");
    table.row("firelane lane, far ends included", &rate(&ours), "M/CPU-s");
    table.row("kernel bridge, generator included", &rate(&gross), "M/CPU-s");
    // In the peer's favour: its generator is taken off, our far ends stay in.
    let peer = 1000.0 / (gross.median() - bare.median()).max(1.0);
    table.fact(
        "kernel bridge, generator taken off",
        &format!("{peer:>10.2}  (the peer of the last line) Mpps"),
    );
    let firelane = rate(&ours).median();
    table.at_least("firelane lane", firelane, WANTED_MPPS, "Mpps");
    table.no_allocations("allocations per million frames", allocations, frames);
    table.note(&format!(
        "{allocations} allocations in {frames} frames; every frame came out where it belonged"
    ));
    Ok(Verdict {
        name: "switch",
        ratio: firelane / peer,
        firelane: format!("{firelane:.1} Mpps"),
        peer: format!("{peer:.2} Mpps, kernel bridge"),
    })
}

/// A lane with an etherstub, and the far ends of its VNICs' wires.
pub(crate) struct World {
    shape: Shape,
    lane: LaneId,
    squeue: Squeue<Host<End, NoMail>, LaneMessage<End>, NoBell>,
    epoch: Clock,
    /// The senders' ends first.
    far: Vec<End>,
    pools: Pools,
    drops: DropCounters,
    /// Frames that wait to be offered, in the order in which they came back.
    waiting: Chain,
    offered: Chain,
    sent: u64,
}

fn mac(n: u32) -> MacAddr {
    let [_, a, b, c] = n.to_be_bytes();
    MacAddr([2, 8, 0x20, a, b, c])
}

impl World {
    pub(crate) fn new(shape: Shape, lane: LaneId, backlogs: Arc<Backlogs>) -> Self {
        let Shape { vnics, frames, senders, .. } = shape;
        let secrets = Secrets::new(std::array::from_fn(|n| n as u8));
        let host = Lane::new(LaneConfig::new(lane, secrets, backlogs, Instant::ZERO));
        let squeue = Squeue::new(Host { lane: host, outlet: NoMail::silent() }, 64, NoBell);
        let pools = Pools::new(PoolsConfig { small_slots: frames as u32, large_slots: 0 });
        let mut world = Self {
            shape,
            lane,
            squeue,
            epoch: Clock::now(),
            far: Vec::new(),
            pools,
            drops: DropCounters::default(),
            waiting: Chain::with_capacity(frames),
            offered: Chain::with_capacity(frames),
            sent: 0,
        };
        world.tell(Control::AddLink(LinkConfig { link: LinkId(0), mtu: Mtu::ETHERNET }));
        (0..vnics).for_each(|n| world.add_vnic(n));
        for n in 0..frames as u32 {
            let frame = frame(&mut world.pools, senders + n % (vnics - senders), n, 4 * shape.flows_per_vnic);
            world.waiting.push(frame);
        }
        world
    }

    fn tell(&mut self, control: Control<End>) {
        let message = LaneMessage::Control(Box::new(control));
        let entered = self.squeue.enter(Mode::Process, message, &|| Instant::ZERO);
        assert!(entered.is_ok(), "the lane is idle");
    }

    /// A VNIC with a wire, a flow of its own and flows by port.
    fn add_vnic(&mut self, n: u32) {
        let (id, flow) = (LinkId(n + 1), FlowId(n * (self.shape.flows_per_vnic + 1)));
        let setup = |flow, parent, rule| {
            let config = FlowConfig { parent, maxbw: None, priority: Priority::Medium };
            Control::AddFlow(FlowSetup { flow, owner: id, rule, config, home: None })
        };
        self.tell(setup(flow, None, None));
        let config = WireConfig { capabilities: Capabilities::plain(Mtu::ETHERNET), ..WireConfig::default() };
        let (far, near) = wire(config);
        self.far.push(far);
        let kind = PortKind::Vnic { mac: mac(n), vlan: None, flow };
        let user = PortUser::Driver { through: self.lane };
        self.tell(Control::AddPort(PortConfig { id, over: LinkId(0), kind, user }, Some(near)));
        for port in 0..self.shape.flows_per_vnic {
            let rule = FlowMatch {
                transport: Some(IpProtocol::UDP),
                local_port: Some(Port(port as u16).into()),
                ..FlowMatch::default()
            };
            self.tell(setup(FlowId(flow.0 + 1 + port), Some(flow), Some(rule)));
        }
    }

    /// Lets the frames go round for a while.
    pub(crate) fn go_round(&mut self, span: Duration) -> Moved {
        let (start, before) = (cpu::thread_time(), self.sent);
        let mut busy = Duration::ZERO;
        while busy < span {
            for _ in 0..64 {
                self.feed();
                let epoch = self.epoch;
                let clock = || Instant::from_nanos(epoch.elapsed().as_nanos() as u64);
                self.squeue.work(Idle::StaysAwake, &clock).expect("the lane works");
                self.drain();
            }
            busy = cpu::thread_time() - start;
        }
        Moved { frames: self.sent - before, busy }
    }

    /// The same calls of the far ends, with rings of their own instead of a lane.
    fn far_ends_alone(&mut self, span: Duration) -> Moved {
        let config = WireConfig { capabilities: Capabilities::plain(Mtu::ETHERNET), ..WireConfig::default() };
        let (mut a, mut b) = wire(config);
        let (start, mut frames) = (cpu::thread_time(), 0);
        let mut busy = Duration::ZERO;
        while busy < span {
            for _ in 0..64 {
                self.waiting.move_front(CHAIN, &mut self.offered);
                a.transmit(&mut self.offered, &mut self.drops);
                frames += b.receive(&mut self.pools, CHAIN, &mut self.waiting, &mut self.drops) as u64;
            }
            busy = cpu::thread_time() - start;
        }
        Moved { frames, busy }
    }

    fn feed(&mut self) {
        for far in &mut self.far[..self.shape.senders as usize] {
            self.waiting.move_front(CHAIN, &mut self.offered);
            let offered = self.offered.len();
            far.transmit(&mut self.offered, &mut self.drops);
            self.sent += (offered - self.offered.len()) as u64;
        }
    }

    fn drain(&mut self) {
        for end in &mut self.far[self.shape.senders as usize..] {
            end.receive(&mut self.pools, usize::MAX, &mut self.waiting, &mut self.drops);
        }
    }

    /// Whether all frames are still there and the lane's books are balanced.
    pub(crate) fn check(&mut self) -> Result<()> {
        let snapshot =
            self.squeue.visit(Instant::ZERO, |host| host.lane.snapshot()).ok_or("the lane is busy")?;
        let dropped = snapshot.counters.drops.total() + self.drops.total();
        let is_whole = self.waiting.len() + self.offered.len() == self.shape.frames;
        if !is_whole || dropped > 0 || !snapshot.is_conserved() || snapshot.counters.forwarded != self.sent {
            return Err(format!("frames were lost: {snapshot:?}").into());
        }
        Ok(())
    }
}

/// A UDP datagram in 64 bytes with its Ethernet header, from station 0 to station `dst` and one of so many ports.
fn frame(pools: &mut Pools, dst: u32, n: u32, ports: u32) -> Frame {
    let mut bytes = [mac(dst).0, mac(0).0].concat();
    bytes.extend_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    // A quarter of the destination ports has a flow of its own.
    bytes.extend_from_slice(&(40_000 + (n % 256) as u16).to_be_bytes());
    bytes.extend_from_slice(&((n % ports) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 30, 0, 0]);
    bytes.resize(FRAME_BYTES, 0);
    pools.copy_of(&bytes).expect("the pool holds all frames")
}
