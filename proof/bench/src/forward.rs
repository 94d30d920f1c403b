//! `forward`: 64-byte datagrams through a router, memory ring to memory ring, in one real lane.
//!
//! The lane has two links with a wire each; a netstack with a VNIC on both forwards between them: hop and checksum,
//! both stations' addresses, the longest match. Frames are made once and go round; every frame is judged at the far
//! end and made what it was before it is offered again, outside the time that counts: the CPU time of the lane's
//! turns. Two lanes do so side by side, too. The peer is DPDK's testpmd (Debian package `dpdk`), which replays the same
//! frames from memory and swaps their MAC addresses without any look-up, one busy core.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use firelane_driver_memory::{End, WireConfig, wire};
use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Driver, Frame, Pools, PoolsConfig};
use firelane_ip::Forwarding;
use firelane_lane::{
    Backlogs, Control, FlowSetup, Host, Idle, Lane, LaneConfig, LaneMessage, LinkConfig, Mode,
    NetstackConfig, PortConfig, PortKind, PortUser, RouteConfig, Secrets, Squeue,
};
use firelane_units::{
    DropCounters, FlowId, Instant, IpPrefix, LaneId, LinkId, MacAddr, Mtu, NetstackId, Priority,
};
use firelane_wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View, update16,
};

use crate::alone::{NoBell, NoMail};
use crate::bridge::Moved;
use crate::peer::Result;
use crate::replay::Replay;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::side_by_side::{self, Rates, Rounds};

use crate::{alloc, cpu};

const SPAN: Duration = Duration::from_millis(300);
pub(crate) const FRAME_BYTES: usize = 64;
/// Frames that are offered between two looks at the clock: some of a lane's chains.
const OFFERED: usize = 256;
pub(crate) const ROUTER: NetstackId = NetstackId(0);
/// Above these bits a source port says in which round it is.
const PORT_SHIFT: u32 = 11;
const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(10, 255, 2, 7);

/// What is forwarded: how many routes, how many flows, and what is wanted.
pub(crate) struct Case {
    pub(crate) routes: u32,
    pub(crate) flows: u32,
    /// Source ports that a flow's frame has in turn, so that it is as many flows.
    pub(crate) ports: u32,
    pub(crate) wanted_mpps: f64,
}

const CASES: [Case; 3] = [
    Case { routes: 1, flows: 1, ports: 1, wanted_mpps: 15.0 },
    Case { routes: 10_000, flows: 10_000, ports: 1, wanted_mpps: 12.0 },
    // More flows than are remembered: most packets ask the table.
    Case { routes: 1_000_000, flows: 65_536, ports: 1, wanted_mpps: 8.0 },
];
/// Of testpmd, which looks nothing up.
const WANTED_RATIO: f64 = 0.4;
const WANTED_OF_TWO: f64 = 1.85;
const ALLOWED_APART: f64 = 0.05;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let both = side_by_side::measure(|_, _| World::new(&CASES[1]))?;
    cpu::bind(1)?;
    let table = Table::begin(
        "forward: 64-byte UDP from ring to ring through one lane's router, CPU time of its turns",
    );
    let mut beside = Vec::new();
    for case in &CASES {
        let mut world = World::new(case);
        world.go_round(SPAN)?;
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        let (mut allocations, mut frames) = (0, 0);
        for _ in 0..ROUNDS_MIN {
            let before = alloc::allocations();
            let moved = world.go_round(SPAN)?;
            allocations += alloc::allocations() - before;
            frames += moved.frames;
            ours.push(1000.0 / moved.nanos_per_frame());
            peer.push(1000.0 / Replay::measure(case.flows, SPAN)?.nanos_per_frame());
        }
        world.check()?;
        let what = format!("{} routes, {} flows", case.routes, case.flows);
        table.row(&what, &ours, "M/CPU-s");
        table.at_least(&what, ours.median(), case.wanted_mpps, "Mpps");
        table.row("  testpmd, pcap replay of as many -> macswap", &peer, "M/CPU-s");
        table.no_allocations("allocations per million frames", allocations, frames);
        beside.push((ours.median(), peer.median()));
    }
    table.note("testpmd's generator and sink are its own, and in its figure; ours are not in ours");
    both_ways(&table, &both);
    let (ours, peer) = beside[0];
    table.at_least("1 route beside testpmd", ours / peer, WANTED_RATIO, "of it");
    table.note("every frame was judged at the sink: addresses, hops, checksum, ports");
    Ok(Verdict {
        name: "forward",
        ratio: ours / peer,
        firelane: format!("{ours:.1} Mpps"),
        peer: format!("{peer:.1} Mpps, testpmd"),
    })
}

/// Two lanes, each on a CPU of its own and with its router, one for each way: what goes one way never meets what goes the other.
fn both_ways(table: &Table, rates: &Rates) {
    table.row("10,000 routes, a lane alone", &rates.one, "M/CPU-s");
    table.row("10,000 routes, a lane for each way", &rates.two, "M/s of both");
    let scale = rates.two.median() / rates.one.median();
    table.at_least("two lanes, of one", scale, WANTED_OF_TWO, "times");
    table.at_most("the one's load beyond the other's", rates.apart, ALLOWED_APART, "of it");
    table.note(&format!(
        "the lanes changed CPUs after each round; the CPUs were {:.0} % apart",
        100.0 * rates.cpus_apart
    ));
}

impl Rounds for World {
    fn go_round(&mut self, span: Duration) -> Result<Moved> {
        self.go_round(span)
    }

    fn check(&mut self) -> Result<()> {
        self.check()
    }
}

/// A lane with a router between two wires.
pub(crate) struct World {
    squeue: Squeue<Host<End, NoMail>, LaneMessage<End>, NoBell>,
    epoch: Clock,
    /// The generator's end, and the sink's.
    far: [End; 2],
    pools: Pools,
    drops: DropCounters,
    waiting: Chain,
    offered: Chain,
    sunk: Chain,
    frames: usize,
    ports: u32,
    sent: u64,
}

const fn mac(n: u8) -> MacAddr {
    MacAddr([2, 8, 0x20, 0, 0, n])
}

/// The far station on a side, and the router's VNIC there.
const fn stations(side: u8) -> (MacAddr, MacAddr) {
    (mac(10 + side), mac(20 + side))
}

impl World {
    pub(crate) fn new(case: &Case) -> Self {
        let backlogs = Arc::new(Backlogs::new(1));
        let secrets = Secrets::new(std::array::from_fn(|n| n as u8));
        let lane = Lane::new(LaneConfig::new(LaneId(0), secrets, backlogs, Instant::ZERO));
        let squeue = Squeue::new(Host { lane, outlet: NoMail::unrefused() }, 64, NoBell);
        let frames = (case.flows as usize).max(2 * OFFERED);
        let config = WireConfig { capabilities: Capabilities::plain(Mtu::ETHERNET), ..WireConfig::default() };
        let ((far_a, near_a), (far_b, near_b)) = (wire(config.clone()), wire(config));
        let mut world = Self {
            squeue,
            epoch: Clock::now(),
            far: [far_a, far_b],
            pools: Pools::new(PoolsConfig { small_slots: frames as u32 + 64, large_slots: 0 }),
            drops: DropCounters::default(),
            waiting: Chain::with_capacity(frames + 1),
            offered: Chain::with_capacity(frames + 1),
            sunk: Chain::with_capacity(frames + 1),
            frames,
            ports: case.ports,
            sent: 0,
        };
        let config = NetstackConfig { forwarding: Forwarding::ON, ..NetstackConfig::new(ROUTER) };
        world.tell(Control::AddNetstack(config));
        world.add_side(0, near_a);
        world.add_side(1, near_b);
        world.add_routes(case.routes);
        (0..2).for_each(|side| world.introduce(side));
        for n in 0..frames as u32 {
            let frame = world.pools.copy_of(&frame(n % case.flows, case.routes)).expect("the pool holds all");
            world.waiting.push(frame);
        }
        world
    }

    pub(crate) fn tell(&mut self, control: Control<End>) {
        let message = LaneMessage::Control(Box::new(control));
        let entered = self.squeue.enter(Mode::Process, message, &|| Instant::ZERO);
        assert!(entered.is_ok(), "the lane is idle");
    }

    /// A link with a wire, and the router's VNIC and address on it.
    fn add_side(&mut self, side: u8, near: End) {
        let (link, vnic) = (LinkId(u32::from(side) * 2), LinkId(u32::from(side) * 2 + 1));
        self.tell(Control::AddLink(LinkConfig { link, mtu: Mtu::ETHERNET }));
        let user = PortUser::Driver { through: LaneId(0) };
        let uplink = PortConfig { id: link, over: link, kind: PortKind::Uplink, user };
        self.tell(Control::AddPort(uplink, Some(near)));
        let flow = FlowId(u32::from(side));
        let config = FlowConfig { parent: None, maxbw: None, priority: Priority::Medium };
        self.tell(Control::AddFlow(FlowSetup { flow, owner: vnic, rule: None, config, home: None }));
        let kind = PortKind::Vnic { mac: stations(side).1, vlan: None, flow };
        self.tell(Control::AddPort(
            PortConfig { id: vnic, over: link, kind, user: PortUser::Netstack(ROUTER) },
            None,
        ));
        let address = IpPrefix::new(Ipv4Addr::new(10, 255, side + 1, 1).into(), 24).expect("24 bits");
        self.tell(Control::AddAddress(ROUTER, vnic, address));
    }

    fn add_routes(&mut self, routes: u32) {
        for n in 0..routes {
            let (network, len) = network(n, routes);
            let destination = IpPrefix::new(IpAddr::V4(network), len).expect("a length of IPv4");
            self.tell(Control::AddRoute(ROUTER, RouteConfig::via(destination, NEXT_HOP.into())));
        }
    }

    /// A far station asks for the router, by which the router learns where it is.
    fn introduce(&mut self, side: u8) {
        let (us, _) = stations(side);
        let address = |last| Ipv4Addr::new(10, 255, side + 1, last);
        let (operation, target_mac) = (ArpOperation::Request, MacAddr::ZERO);
        let arp =
            ArpRepr { operation, sender_mac: us, sender_ip: address(7), target_mac, target_ip: address(1) };
        let mut bytes = vec![0; 14 + arp.emitted_len()];
        EthernetRepr { dst: MacAddr::BROADCAST, src: us, ethertype: EtherType::ARP }.emit(&mut bytes);
        arp.emit(&mut bytes[14..]);
        self.offered.push(self.pools.copy_of(&bytes).expect("the pool is empty"));
        self.far[usize::from(side)].transmit(&mut self.offered, &mut self.drops);
        (0..2).for_each(|_| self.work());
        // The answer, and what the router announces of itself.
        for end in &mut self.far {
            end.receive(&mut self.pools, usize::MAX, &mut self.sunk, &mut self.drops);
        }
        self.pools.put_all(&mut self.sunk);
    }

    fn work(&mut self) {
        let epoch = self.epoch;
        let clock = || Instant::from_nanos(epoch.elapsed().as_nanos() as u64);
        self.squeue.work(Idle::StaysAwake, &clock).expect("the lane works");
    }

    /// Lets every flow's frame go round.
    pub(crate) fn go_all_round(&mut self) -> Result<()> {
        let all = self.sent + self.frames as u64 * u64::from(self.ports);
        while self.sent < all {
            self.go_round(Duration::from_millis(1))?;
        }
        Ok(())
    }

    /// Lets the frames go round until the lane has been busy for `span`.
    pub(crate) fn go_round(&mut self, span: Duration) -> Result<Moved> {
        let (mut busy, mut frames) = (Duration::ZERO, 0);
        while busy < span {
            self.waiting.move_front(OFFERED, &mut self.offered);
            let offered = self.offered.len();
            self.far[0].transmit(&mut self.offered, &mut self.drops);
            let start = cpu::thread_time();
            for _ in 0..offered.div_ceil(64) {
                self.work();
            }
            busy += cpu::thread_time() - start;
            self.far[1].receive(&mut self.pools, usize::MAX, &mut self.sunk, &mut self.drops);
            let mut sunk = 0;
            while let Some(mut frame) = self.sunk.pop() {
                if frame.as_slice()[12..14] == EtherType::ARP.0.to_be_bytes() {
                    // The router announces itself again.
                    self.pools.put(frame);
                    continue;
                }
                sunk += 1;
                judge(&frame)?;
                restore(&mut frame, self.ports);
                self.waiting.push(frame);
            }
            frames += sunk;
            if self.waiting.len() != self.frames {
                return Err(format!("{sunk} of {offered} frames arrived").into());
            }
        }
        self.sent += frames;
        Ok(Moved { frames, busy })
    }

    /// Whether the lane's books are balanced.
    pub(crate) fn check(&mut self) -> Result<()> {
        let snapshot =
            self.squeue.visit(Instant::ZERO, |host| host.lane.snapshot()).ok_or("the lane is busy")?;
        let dropped = snapshot.counters.drops.total() + self.drops.total();
        if dropped > 0 || !snapshot.is_conserved() || snapshot.counters.forwarded < self.sent {
            return Err(format!("frames were lost: {snapshot:?}").into());
        }
        Ok(())
    }
}

/// The `n`th of `routes` networks: spread over the unicast space, the lengths that the Internet's table has most.
fn network(n: u32, routes: u32) -> (Ipv4Addr, u8) {
    let len = [24, 24, 24, 22, 23, 20, 24, 24][n as usize % 8];
    let slots: u32 = 200 << 16;
    let slot = n * (slots / routes);
    let [first, rest @ ..] = ((11 << 24) + (slot << 8)).to_be_bytes();
    // Where no station may be, another network is.
    let first = match first {
        127 => 220,
        169 => 221,
        first => first,
    };
    let bits = u32::from_be_bytes([first, rest[0], rest[1], rest[2]]);
    (Ipv4Addr::from_bits(bits & u32::MAX << (32 - len)), len)
}

/// The frame of flow `n`, from the generator to a host behind one of the routes.
pub(crate) fn frame(n: u32, routes: u32) -> Vec<u8> {
    let spread = (u64::from(n) * 0x9e37_79b1 % u64::from(routes)) as u32;
    let dst = Ipv4Addr::from_bits(network(spread, routes).0.to_bits() + 1 + n % 200);
    let mut bytes = vec![0; FRAME_BYTES];
    let (src_mac, dst_mac) = stations(0);
    EthernetRepr { dst: dst_mac, src: src_mac, ethertype: EtherType::IPV4 }.emit(&mut bytes);
    Ipv4Repr::new(Ipv4Addr::new(10, 255, 1, 7), dst, IpProtocol::UDP, 30).emit(&mut bytes[14..]);
    bytes[34..36].copy_from_slice(&(1024 + n as u16 % 50_000).to_be_bytes());
    bytes[36..42].copy_from_slice(&[0, 9, 0, 30, 0, 0]);
    bytes
}

/// Whether a frame is what the router should have made of it.
fn judge(frame: &Frame) -> Result<()> {
    let bytes = frame.as_slice();
    let (next, leg) = stations(1);
    let is_datagram = |view: Ipv4View<'_>| view.ttl() == 63 && view.is_checksum_valid();
    let is_right = bytes.len() == FRAME_BYTES
        && bytes[..6] == next.0
        && bytes[6..12] == leg.0
        && Ipv4View::parse(&bytes[14..]).is_ok_and(is_datagram)
        && bytes[36..42] == [0, 9, 0, 30, 0, 0];
    if is_right { Ok(()) } else { Err(format!("a frame came out wrong: {bytes:x?}").into()) }
}

/// Makes a frame what it was before it was forwarded, or the next of as many flows as there are `ports`.
fn restore(frame: &mut Frame, ports: u32) {
    let (src, dst) = stations(0);
    let bytes = frame.as_mut_slice();
    bytes[..6].copy_from_slice(&dst.0);
    bytes[6..12].copy_from_slice(&src.0);
    let [ttl, protocol, a, b] = [bytes[22], bytes[23], bytes[24], bytes[25]];
    let word = |ttl| u16::from_be_bytes([ttl, protocol]);
    let checksum = update16(u16::from_be_bytes([a, b]), word(ttl), word(ttl + 1));
    bytes[22] += 1;
    // The port's low bits are the flow's own.
    let port = u16::from_be_bytes([bytes[34], bytes[35]]);
    let next = (u32::from(port >> PORT_SHIFT) + 1) % ports.max(1);
    if ports > 1 {
        let port = (port & ((1 << PORT_SHIFT) - 1)) | (next as u16) << PORT_SHIFT;
        bytes[34..36].copy_from_slice(&port.to_be_bytes());
    }
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
}
