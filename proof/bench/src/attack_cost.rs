//! `attack-cost`: what a frame costs a lane that a neighbour sends to harm a host, whatever it is.
//!
//! The frames are those of `proof/sim/tests/attacked.rs`, of each kind as many as are different enough. They come by a memory wire
//! to a netstack that listens and has an established connection, and the CPU time of the lane's turns counts, with what it answers;
//! making frames and reading answers are outside of it. The peer is the kernel (`kernel.rs`) with the same listener, connection, routes and
//! frames, over a veth pair; what the sender and the pair cost is taken off. A frame that costs much is what an attacker looks for, so the last
//! line is about the kind that fares worst.

pub(crate) mod kernel;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use firelane_driver_memory::{End, WireConfig, wire};
use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Driver, Pools, PoolsConfig};
use firelane_lane::{
    Backlogs, Control, FlowSetup, Host, Idle, Lane, LaneConfig, LaneMessage, LinkConfig, Listen, Mode,
    NetstackConfig, PortConfig, PortKind, PortUser, RouteConfig, Secrets, Snapshot, SocketCommand, Squeue,
    StreamOptions,
};
use firelane_sim::attack::{ATTACKS, Attack, Victim};
use firelane_sim::{Random, station_mac};
use firelane_socket::{Accepted, ListenerEnd, StreamConfig, listener};
use firelane_units::{
    DropCounters, FlowId, Instant, IpPrefix, LaneId, LinkId, MacAddr, Mtu, NetstackId, Port, Priority,
    SeqNum, SocketId,
};
use firelane_wire::checksum::Sum;
use firelane_wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, IpProtocol, Ipv4Repr, TcpFlags, TcpOptions, TcpRepr,
    TcpView, tcp,
};

use crate::alone::{NoBell, NoMail};
use crate::bridge::Moved;
use crate::cpu::{self, Meter};
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict, number};

use kernel::Kernel;

const SPAN: Duration = Duration::from_millis(60);
/// Frames of a kind, in turn: more than a cache of recent answers would hold.
const DIFFERENT: usize = 4096;
/// Frames that are offered between two looks at the clock: some of a lane's chains.
const OFFERED: usize = 256;
const CHAIN: usize = 64;
/// The hosts of the connection: the peer, behind whom everybody else is, and the victim.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const PORT: u16 = 80;
const PEER_PORT: u16 = 40_000;
const NETSTACK: NetstackId = NetstackId(0);
const LINK: LinkId = LinkId(0);
const VNIC: LinkId = LinkId(1);
const WANTED_RATIO: f64 = 1.0;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut kernel = Kernel::new()?;
    cpu::bind(1)?;
    let mut world = World::new()?;
    let parties = [std::process::id(), kernel.pid()];
    let table = Table::begin(
        "attack-cost: a hostile neighbour's frames, CPU time of a lane's turns beside the kernel's",
    );
    let (mut worst, mut foreign) = (None::<(f64, Attack, f64, f64)>, Samples::default());
    for (kind, attack) in ATTACKS.into_iter().enumerate() {
        let frames = frames(attack, SocketAddr::new(PEER.into(), PEER_PORT), station_mac(2));
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        world.suffer(&frames, SPAN / 4)?;
        for _ in 0..ROUNDS_MIN {
            let meter = Meter::start(&parties);
            ours.push(world.suffer(&frames, SPAN)?.nanos_per_frame());
            theirs.push(kernel.suffer(kind, SPAN)?);
            foreign.push(meter.stop().foreign());
        }
        let name = name(attack);
        table.row(&format!("{name}: firelane"), &ours, "ns/frame");
        table.row(&format!("{name}: kernel"), &theirs, "ns/frame");
        let (ours, theirs) = (ours.median(), theirs.median());
        let ratio = theirs / ours;
        if worst.is_none_or(|(least, ..)| ratio < least) {
            worst = Some((ratio, attack, ours, theirs));
        }
    }
    world.check()?;
    kernel.check()?;
    let (ratio, attack, ours, theirs) = worst.ok_or("no attack was measured")?;
    table.at_least("the worst kind, beside the kernel", ratio, WANTED_RATIO, "times");
    table.disturbance(&foreign);
    table.note("firelane: taken from a ring, classified, judged, answered; the kernel: from its veth on, sender and pair taken off");
    table.note("both connections are there at the end");
    let name = name(attack);
    Ok(Verdict {
        name: "attack-cost",
        ratio,
        firelane: format!("{} ns for each of {name}", number(ours)),
        peer: format!("{} ns", number(theirs)),
    })
}

/// What the table says.
fn name(attack: Attack) -> String {
    match attack {
        Attack::Blind(flags) if flags == TcpFlags::EMPTY => "own segments, ACK".to_owned(),
        Attack::Blind(flags) => format!("own segments, {flags:?}"),
        Attack::Syns => "SYNs from anywhere".to_owned(),
        Attack::Text => "own segments, text".to_owned(),
        Attack::TooLarge => "ICMP, too large".to_owned(),
        Attack::Unreachable => "ICMP, unreachable".to_owned(),
        Attack::Fragments => "first fragments of 1 KB".to_owned(),
        Attack::Datagrams => "datagrams to nobody".to_owned(),
        Attack::Scan => "ARP questions".to_owned(),
        Attack::Claims => "ARP claims".to_owned(),
        Attack::Noise => "noise".to_owned(),
    }
}

/// Frames of one kind against the connection with `peer`.
fn frames(attack: Attack, peer: SocketAddr, mac: MacAddr) -> Vec<Vec<u8>> {
    let mut random = Random::new(5);
    let victim = Victim { mac, own: SocketAddr::new(OWN.into(), PORT), peer };
    (0..DIFFERENT).map(|_| attack.frame(&mut random, &victim)).collect()
}

/// A lane with a netstack behind a wire.
struct World {
    squeue: Squeue<Host<End, NoMail>, LaneMessage<End>, NoBell>,
    epoch: Clock,
    far: End,
    pools: Pools,
    drops: DropCounters,
    offered: Chain,
    answers: Chain,
    listener: ListenerEnd,
    accepted: Option<Accepted>,
    /// Which frame is next.
    next: usize,
}

impl World {
    fn new() -> Result<Self> {
        let secrets = Secrets::new(std::array::from_fn(|n| n as u8));
        let backlogs = Arc::new(Backlogs::new(1));
        let lane = Lane::new(LaneConfig::new(LaneId(0), secrets, backlogs, Instant::ZERO));
        let squeue = Squeue::new(Host { lane, outlet: NoMail::unrefused() }, 64, NoBell);
        let config = WireConfig { capabilities: Capabilities::plain(Mtu::ETHERNET), ..WireConfig::default() };
        let (far, near) = wire(config);
        let (listener, slot) = listener(128);
        let mut world = Self {
            squeue,
            epoch: Clock::now(),
            far,
            pools: Pools::new(PoolsConfig { small_slots: 16 * OFFERED as u32, large_slots: 16 }),
            drops: DropCounters::default(),
            offered: Chain::with_capacity(OFFERED),
            answers: Chain::with_capacity(4 * OFFERED),
            listener,
            accepted: None,
            next: 0,
        };
        world.configure(near);
        world.tell(LaneMessage::Socket(
            NETSTACK,
            SocketCommand::Listen(Box::new(Listen {
                socket: SocketId(0),
                local: SocketAddr::new(OWN.into(), PORT),
                v6_only: false,
                shares: false,
                slot,
                rings: StreamConfig { send_capacity: 1 << 18, recv_capacity: 1 << 18 },
                options: StreamOptions::default(),
            })),
        ));
        world.introduce(ArpOperation::Request, MacAddr::ZERO);
        world.open()?;
        Ok(world)
    }

    fn tell(&mut self, message: LaneMessage<End>) {
        let entered = self.squeue.enter(Mode::Process, message, &|| Instant::ZERO);
        assert!(entered.is_ok(), "the lane is idle");
    }

    fn configure(&mut self, near: End) {
        let change = |world: &mut Self, control| world.tell(LaneMessage::Control(Box::new(control)));
        change(self, Control::AddLink(LinkConfig { link: LINK, mtu: Mtu::ETHERNET }));
        let user = PortUser::Driver { through: LaneId(0) };
        let uplink = PortConfig { id: LINK, over: LINK, kind: PortKind::Uplink, user };
        change(self, Control::AddPort(uplink, Some(near)));
        change(self, Control::AddNetstack(NetstackConfig::new(NETSTACK)));
        let config = FlowConfig { parent: None, maxbw: None, priority: Priority::Medium };
        let flow = FlowSetup { flow: FlowId(0), owner: VNIC, rule: None, config, home: None };
        change(self, Control::AddFlow(flow));
        let kind = PortKind::Vnic { mac: station_mac(2), vlan: None, flow: FlowId(0) };
        let user = PortUser::Netstack(NETSTACK);
        change(self, Control::AddPort(PortConfig { id: VNIC, over: LINK, kind, user }, None));
        let address = IpPrefix::new(OWN.into(), 24).expect("24 bits");
        change(self, Control::AddAddress(NETSTACK, VNIC, address));
        let any = IpPrefix::new(Ipv4Addr::UNSPECIFIED.into(), 0).expect("no bits");
        change(self, Control::AddRoute(NETSTACK, RouteConfig::via(any, IpAddr::V4(PEER))));
    }

    /// The peer asks for the victim, by which he is known, or answers him.
    fn introduce(&mut self, operation: ArpOperation, target_mac: MacAddr) {
        let (sender_mac, sender_ip) = (station_mac(1), PEER);
        let arp = ArpRepr { operation, sender_mac, sender_ip, target_mac, target_ip: OWN };
        let mut bytes = vec![0; 14 + arp.emitted_len()];
        EthernetRepr { dst: station_mac(2), src: sender_mac, ethertype: EtherType::ARP }.emit(&mut bytes);
        arp.emit(&mut bytes[14..]);
        self.send(&bytes);
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.offered.push(self.pools.copy_of(bytes).expect("the pool is empty"));
        self.far.transmit(&mut self.offered, &mut self.drops);
        (0..2).for_each(|_| self.work());
        self.far.receive(&mut self.pools, usize::MAX, &mut self.answers, &mut self.drops);
        let got = self.answers.iter().map(|frame| frame.as_slice().to_vec()).collect();
        self.pools.put_all(&mut self.answers);
        got
    }

    /// The peer opens the connection.
    fn open(&mut self) -> Result<()> {
        let answers = self.send(&segment(TcpFlags::SYN, 1000, None));
        let is_tcp = |frame: &&Vec<u8>| frame[12..14] == EtherType::IPV4.0.to_be_bytes();
        let answer = answers.iter().find(is_tcp).ok_or("the listener does not answer")?;
        let iss = TcpView::parse(&answer[34..]).map_err(|error| format!("{error:?}"))?.seq();
        self.send(&segment(TcpFlags::ACK, 1001, Some(iss.0.wrapping_add(1))));
        self.accepted = self.listener.accept();
        if self.accepted.is_some() { Ok(()) } else { Err("the connection is not accepted".into()) }
    }

    fn work(&mut self) {
        let epoch = self.epoch;
        let clock = || Instant::from_nanos(epoch.elapsed().as_nanos() as u64);
        self.squeue.work(Idle::StaysAwake, &clock).expect("the lane works");
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let snapshot = self.squeue.visit(Instant::ZERO, |host| host.lane.snapshot());
        snapshot.ok_or_else(|| "the lane is busy".into())
    }

    /// Lets these frames come until the lane has been busy for `span`.
    fn suffer(&mut self, frames: &[Vec<u8>], span: Duration) -> Result<Moved> {
        let before = self.snapshot()?.counters.received;
        let (mut busy, mut sent) = (Duration::ZERO, 0);
        while busy < span {
            for _ in 0..OFFERED {
                let bytes = &frames[self.next % frames.len()];
                self.next += 1;
                self.offered.push(self.pools.copy_of(bytes).ok_or("frames do not come back")?);
            }
            self.far.transmit(&mut self.offered, &mut self.drops);
            sent += OFFERED - self.offered.len();
            let start = cpu::thread_time();
            for _ in 0..OFFERED / CHAIN {
                self.work();
            }
            busy += cpu::thread_time() - start;
            self.read_answers();
        }
        let taken = self.snapshot()?.counters.received - before;
        if taken < sent as u64 || !self.offered.is_empty() {
            return Err(format!("the lane took {taken} of {sent} frames").into());
        }
        Ok(Moved { frames: sent as u64, busy })
    }

    /// Nobody cares for them, but that the peer says where he is when he is asked.
    fn read_answers(&mut self) {
        self.far.receive(&mut self.pools, usize::MAX, &mut self.answers, &mut self.drops);
        let is_question = |bytes: &[u8]| {
            bytes[12..14] == EtherType::ARP.0.to_be_bytes()
                && bytes[21] == 1
                && bytes[38..42] == PEER.octets()
        };
        let is_asked = self.answers.iter().any(|frame| is_question(frame.as_slice()));
        self.pools.put_all(&mut self.answers);
        if is_asked {
            self.introduce(ArpOperation::Reply, station_mac(2));
        }
    }

    /// Whether the connection is there, and the lane's books are balanced.
    fn check(&mut self) -> Result<()> {
        let snapshot = self.snapshot()?;
        let is_there = self.accepted.as_mut().is_some_and(|accepted| {
            accepted.stream.poll_connected() == Ok(true) && accepted.stream.recv.available() == 0
        });
        if snapshot.is_conserved() && is_there && snapshot.connections == 1 {
            return Ok(());
        }
        Err(format!("the connection is gone, or frames are: {snapshot:?}").into())
    }
}

/// A segment of the peer's.
fn segment(flags: TcpFlags, seq: u32, ack: Option<u32>) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: Port(PEER_PORT),
        dst_port: Port(PORT),
        seq: SeqNum(seq),
        ack: ack.map(SeqNum),
        flags,
        window: 65_535,
        urgent: 0,
        options: TcpOptions::default(),
    };
    let mut bytes = vec![0; 34 + repr.emitted_len()];
    EthernetRepr { dst: station_mac(2), src: station_mac(1), ethertype: EtherType::IPV4 }.emit(&mut bytes);
    let len = repr.emitted_len();
    Ipv4Repr::new(PEER, OWN, IpProtocol::TCP, len as u16).emit(&mut bytes[14..]);
    repr.emit(&mut bytes[34..]);
    let pseudo = Sum::pseudo(PEER.into(), OWN.into(), IpProtocol::TCP, len as u32);
    tcp::fill_checksum(&mut bytes[34..], pseudo);
    bytes
}
