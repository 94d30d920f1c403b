//! Lanes without threads: a world that takes turns in virtual time, and a driver made of two rings.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod router;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use firelane_driver_memory::{End, WireConfig};
use firelane_flow::FlowConfig;
use firelane_frame::{
    Capabilities, Chain, Driver, FrameConsumer, FrameProducer, Pools, PoolsConfig, Weight, frame_ring,
};
use firelane_ip::DadConfig;
use firelane_lane::*;
use firelane_socket::{
    ConnRef, DatagramEnd, ListenerEnd, ListenerSlot, Nudge, ReadError, Ready, SocketToken, StreamConfig,
    StreamEnd, StreamSlot, WriteError, datagram, listener, stream,
};
use firelane_units::{
    BitRate, DropCounters, FlowId, Instant, LaneId, LinkId, MacAddr, Mtu, NetstackId, Port, Priority,
    SocketId,
};

/// One end of an in-process wire at full speed.
pub struct RingDriver {
    pub rx: FrameConsumer,
    pub tx: FrameProducer,
    pub capabilities: Capabilities,
}

pub fn wire(capabilities: Capabilities) -> (RingDriver, RingDriver) {
    let (a_tx, b_rx) = frame_ring(1024);
    let (b_tx, a_rx) = frame_ring(1024);
    (RingDriver { rx: a_rx, tx: a_tx, capabilities }, RingDriver { rx: b_rx, tx: b_tx, capabilities })
}

/// What the lanes of these tests drive: a ring at full speed, or a simulated wire.
pub enum AnyDriver {
    Ring(RingDriver),
    Wire(End),
    Doored(Doored),
    Copying(Copying),
    Kernel(KernelDevice),
}

/// A ring as a device of the kernel shows it: a descriptor tells of frames, nobody else does, and there is room for many.
pub struct KernelDevice {
    pub ring: RingDriver,
    pub is_reminded: bool,
    is_drained: bool,
}

impl KernelDevice {
    pub fn new(ring: RingDriver) -> Self {
        Self { ring, is_reminded: false, is_drained: false }
    }
}

/// A ring of another's frames, which are received as copies, as long as there are buffers for them.
pub struct Copying(pub RingDriver);

impl Copying {
    fn receive(&mut self, pools: &mut Pools, budget: usize, out: &mut Chain) -> usize {
        let (mut came, mut count) = (Chain::new(), 0);
        while count < budget && pools.small.free() > 0 && self.0.rx.pop_into(&mut came, 1) == 1 {
            let frame = came.pop().expect("it came");
            out.push(pools.copy_of(frame.as_slice()).expect("there is a buffer"));
            count += 1;
        }
        count
    }
}

/// A ring whose device shuts conversations out, told by their ports.
pub struct Doored {
    pub ring: RingDriver,
    shut: BTreeMap<[u8; 4], FlowId>,
    told: Vec<(FlowId, Weight)>,
}

impl Doored {
    pub fn new(ring: RingDriver) -> Self {
        Self { ring, shut: BTreeMap::new(), told: Vec::new() }
    }

    fn receive(&mut self, pools: &mut Pools, budget: usize, out: &mut Chain) -> usize {
        let (mut came, mut count) = (Chain::new(), 0);
        while count < budget && self.ring.rx.pop_into(&mut came, 1) == 1 {
            let frame = came.pop().expect("it came");
            match ports_of(frame.as_slice()).and_then(|ports| self.shut.get(&ports)) {
                Some(&flow) => {
                    self.told.push((flow, frame.weight()));
                    pools.put(frame);
                }
                None => {
                    out.push(frame);
                    count += 1;
                }
            }
        }
        count
    }
}

fn ports_of(frame: &[u8]) -> Option<[u8; 4]> {
    frame.get(34..38)?.try_into().ok()
}

impl From<RingDriver> for AnyDriver {
    fn from(ring: RingDriver) -> Self {
        Self::Ring(ring)
    }
}

impl Driver for AnyDriver {
    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Ring(ring) => ring.capabilities(),
            Self::Wire(wire) => wire.capabilities(),
            Self::Doored(doored) => doored.ring.capabilities(),
            Self::Copying(copying) => copying.0.capabilities(),
            Self::Kernel(device) => device.ring.capabilities(),
        }
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        match self {
            Self::Ring(ring) => ring.receive(pools, budget, out, drops),
            Self::Wire(wire) => wire.receive(pools, budget, out, drops),
            Self::Doored(doored) => doored.receive(pools, budget, out),
            Self::Copying(copying) => copying.receive(pools, budget, out),
            Self::Kernel(device) => {
                let count = device.ring.receive(pools, budget, out, drops);
                device.is_drained = count < budget;
                count
            }
        }
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        match self {
            Self::Ring(ring) => ring.transmit(chain, drops),
            Self::Wire(wire) => wire.transmit(chain, drops),
            Self::Doored(doored) => doored.ring.transmit(chain, drops),
            Self::Copying(copying) => copying.0.transmit(chain, drops),
            Self::Kernel(device) => device.ring.transmit(chain, drops),
        }
    }

    fn notify(&mut self, on: bool) -> bool {
        match self {
            Self::Ring(ring) => ring.notify(on),
            Self::Wire(wire) => wire.notify(on),
            Self::Doored(doored) => doored.ring.notify(on),
            Self::Copying(copying) => copying.0.notify(on),
            Self::Kernel(_) => false,
        }
    }

    fn remind(&mut self, on: bool) {
        if let Self::Kernel(device) = self {
            device.is_reminded = on;
        }
    }

    fn can_wait(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    fn is_drained(&self) -> bool {
        matches!(self, Self::Kernel(KernelDevice { is_drained: true, .. }))
    }

    fn next_event(&self) -> Option<Instant> {
        match self {
            Self::Ring(ring) => ring.next_event(),
            Self::Wire(wire) => wire.next_event(),
            Self::Doored(_) | Self::Copying(_) | Self::Kernel(_) => None,
        }
    }

    fn shut_out(&mut self, _: Instant, frame: &[u8], flow: FlowId) -> bool {
        let Self::Doored(doored) = self else { return false };
        ports_of(frame).is_some_and(|ports| {
            doored.shut.insert(ports, flow);
            true
        })
    }

    fn let_in(&mut self, _: Instant, flow: FlowId) {
        if let Self::Doored(doored) = self {
            doored.shut.retain(|_, shut| *shut != flow);
        }
    }

    fn turned_away(&mut self, tell: &mut dyn FnMut(FlowId, Weight)) {
        if let Self::Doored(doored) = self {
            doored.told.drain(..).for_each(|(flow, weight)| tell(flow, weight));
        }
    }

    fn advance(&mut self, now: Instant) {
        match self {
            Self::Ring(ring) => ring.advance(now),
            Self::Wire(wire) => wire.advance(now),
            Self::Doored(_) | Self::Copying(_) | Self::Kernel(_) => {}
        }
    }
}

impl Driver for RingDriver {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, _: &mut Pools, budget: usize, out: &mut Chain, _: &mut DropCounters) -> usize {
        self.rx.pop_into(out, budget)
    }

    fn transmit(&mut self, chain: &mut Chain, _: &mut DropCounters) {
        self.tx.push_chain(chain);
    }

    fn notify(&mut self, on: bool) -> bool {
        self.rx.wish_wake(on)
    }
}

/// What lanes gave to the engine.
#[derive(Default)]
pub struct Mail {
    pub messages: Vec<(LaneId, LaneMessage<AnyDriver>)>,
    pub ready: Vec<(SocketToken, Ready)>,
    pub notices: Vec<Notice>,
    pub answers: Vec<Question>,
}

impl Outlet<AnyDriver> for Mail {
    fn fill(&mut self, lane: LaneId, message: LaneMessage<AnyDriver>) -> Result<(), LaneMessage<AnyDriver>> {
        self.messages.push((lane, message));
        Ok(())
    }

    fn wake(&mut self, _: LaneId) {}

    fn ready(&mut self, token: SocketToken, ready: Ready) {
        self.ready.push((token, ready));
    }

    fn notice(&mut self, _: LaneId, notice: Notice) {
        self.notices.push(notice);
    }

    fn answer(&mut self, question: Question) {
        self.answers.push(question);
    }
}

/// Lanes of one process, and the time.
pub struct World {
    pub lanes: Vec<Lane<AnyDriver>>,
    pub mail: Mail,
    pub now: Instant,
}

pub fn secrets() -> Secrets {
    Secrets::new(std::array::from_fn(|n| (n * 37 + 11) as u8))
}

impl World {
    pub fn new(lanes: u16) -> Self {
        Self::with_pools(lanes, PoolsConfig { small_slots: 8192, large_slots: 256 })
    }

    /// Lanes whose frames are as many as that.
    pub fn with_pools(lanes: u16, pools: PoolsConfig) -> Self {
        let backlogs = Arc::new(Backlogs::new(usize::from(lanes)));
        let lane = |n| {
            let mut config = LaneConfig::new(LaneId(n), secrets(), Arc::clone(&backlogs), Instant::ZERO);
            config.pools = pools;
            Lane::new(config)
        };
        let lanes = (0..lanes).map(lane).collect();
        Self { lanes, mail: Mail::default(), now: Instant::ZERO }
    }

    pub fn lane_ids(&self) -> Vec<LaneId> {
        self.lanes.iter().map(Lane::id).collect()
    }

    /// Does something inside a lane, between two of its items.
    pub fn visit<R>(&mut self, lane: LaneId, inside: impl FnOnce(Instant, &mut Lane<AnyDriver>) -> R) -> R {
        inside(self.now, &mut self.lanes[lane.index()])
    }

    /// Sends the same change to every lane.
    pub fn all(&mut self, control: impl Fn() -> Control<AnyDriver>) {
        for lane in &mut self.lanes {
            lane.on_message(self.now, LaneMessage::Control(Box::new(control())));
        }
        self.exchange();
        self.mail.notices.retain(|notice| matches!(notice, Notice::Refused { .. }));
        assert_eq!(self.mail.notices, [], "every change is accepted");
    }

    /// A port whose driver has the queue `queues[n]` in lane n, if there is one.
    pub fn add_port(&mut self, config: PortConfig, queues: Vec<AnyDriver>) {
        let mut queues = queues.into_iter();
        for lane in &mut self.lanes {
            let control = Control::AddPort(config, queues.next());
            lane.on_message(self.now, LaneMessage::Control(Box::new(control)));
        }
        self.exchange();
        self.mail.notices.retain(|notice| matches!(notice, Notice::Refused { .. }));
        assert_eq!(self.mail.notices, [], "the port is accepted");
    }

    /// A flow with a limit of its own, or of its parent.
    pub fn add_flow(&mut self, setup: FlowSetup) {
        self.all(|| Control::AddFlow(setup));
    }

    /// Hands everything that lanes have for each other over; whether there was anything.
    pub fn exchange(&mut self) -> bool {
        for lane in &mut self.lanes {
            assert!(!lane.empty_outbox(&mut self.mail));
        }
        let messages = std::mem::take(&mut self.mail.messages);
        let moved = !messages.is_empty();
        for (lane, message) in messages {
            self.lanes[lane.index()].on_message(self.now, message);
        }
        moved
    }

    /// Puts a question to a lane until it has told everything; the rows, and how many answers it took.
    pub fn ask(&mut self, lane: u16, netstack: Option<u16>) -> (Vec<SocketRow>, usize) {
        let (mut rows, mut answers) = (Vec::new(), 0);
        let mut question = Question::new(7, netstack.map(NetstackId), Cursor::default());
        while question.cursor.is_some() {
            let lane = &mut self.lanes[usize::from(lane)];
            lane.on_message(self.now, LaneMessage::Ask(Box::new(question)));
            assert!(!lane.empty_outbox(&mut self.mail));
            question = self.mail.answers.pop().expect("every question comes back at once");
            assert!(question.ticket == 7 && question.rows.len() <= PLACES_PER_ANSWER as usize);
            rows.append(&mut question.rows);
            question.rows.reserve_exact(PLACES_PER_ANSWER as usize);
            answers += 1;
        }
        (rows, answers)
    }

    /// Turns of every lane until none has work left; the earliest instant that any sleeps to.
    pub fn run(&mut self) -> Option<Instant> {
        for _ in 0..10_000 {
            let mut until: Option<Instant> = None;
            let mut busy = false;
            for n in 0..self.lanes.len() {
                let sleep = self.lanes[n].turn(self.now, Idle::Sleeps);
                busy |= sleep.work_left;
                until = [until, sleep.until].into_iter().flatten().min();
                busy |= self.exchange();
            }
            if !busy && until.is_none_or(|at| at > self.now) {
                return until;
            }
        }
        panic!("the lanes never become silent");
    }

    /// Lets time pass, from one deadline to the next.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.run().filter(|&at| at <= end) {
            self.now = at;
        }
        self.now = end;
        self.run();
    }

    /// The law of `counters.rs`, in each lane and over all of them.
    pub fn check_conservation(&self) {
        let (mut taken, mut handed) = (0, 0);
        for lane in &self.lanes {
            let snapshot = lane.snapshot();
            assert!(snapshot.is_conserved(), "{snapshot:#?}");
            taken += snapshot.counters.taken;
            handed += snapshot.counters.handed;
        }
        assert_eq!(taken, handed);
    }

    /// All lanes' counters.
    pub fn counters(&self) -> LaneCounters {
        let mut sum = LaneCounters::default();
        self.lanes.iter().for_each(|lane| sum.merge(&lane.snapshot().counters));
        sum
    }
}

pub fn mac(n: u8) -> MacAddr {
    MacAddr([2, 8, 0x20, 0, 0, n])
}

/// A flow that carries a VNIC's or link's own limit.
pub fn plain_flow(flow: FlowId, owner: LinkId, maxbw: Option<BitRate>, home: Option<LaneId>) -> FlowSetup {
    let config = FlowConfig { parent: None, maxbw, priority: Priority::Medium };
    FlowSetup { flow, owner, rule: None, config, home }
}

pub fn vnic(id: u32, over: u32, mac_end: u8, flow: u32, user: PortUser) -> PortConfig {
    let kind = PortKind::Vnic { mac: mac(mac_end), vlan: None, flow: FlowId(flow) };
    PortConfig { id: LinkId(id), over: LinkId(over), kind, user }
}

pub const NETSTACK: NetstackId = NetstackId(0);
pub const MTU: Mtu = Mtu::ETHERNET;

/// A UDP frame between the stations `from` and `to` of 10.0.0.0/24.
pub fn udp_frame(
    pools: &mut Pools,
    from: u8,
    to: u8,
    ports: (u16, u16),
    len: usize,
) -> firelane_frame::Frame {
    let mut bytes = vec![0u8; len.max(60)];
    let total = (bytes.len() - 14) as u16;
    bytes[0..6].copy_from_slice(&mac(to).0);
    bytes[6..12].copy_from_slice(&mac(from).0);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..24].copy_from_slice(&[0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0, 0, 64, 17]);
    bytes[26..34].copy_from_slice(&[10, 0, 0, from, 10, 0, 0, to]);
    bytes[34..36].copy_from_slice(&ports.0.to_be_bytes());
    bytes[36..38].copy_from_slice(&ports.1.to_be_bytes());
    let udp = total - 20;
    bytes[38..40].copy_from_slice(&udp.to_be_bytes());
    pools.copy_of(&bytes).expect("the test's pool is large enough")
}

/// Two netstacks on one etherstub, each with its addresses on a VNIC: 10.0.0.1 and .2, fd00::1 and ::2.
pub fn two_stacks(lanes: u16, link_mtu: Mtu) -> World {
    stacks_in(World::new(lanes), link_mtu)
}

/// The same in a world that is there.
pub fn stacks_in(mut world: World, link_mtu: Mtu) -> World {
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: link_mtu }));
    for n in 1..=2 {
        world.add_stack(n);
    }
    world
}

/// Two hosts on a wire: netstack 1 of the first, netstack 2 of the second, addresses as above.
pub fn two_hosts(lanes: u16, config: WireConfig) -> (World, World) {
    let mtu = config.capabilities.mtu;
    let (a, b) = firelane_driver_memory::wire(config);
    let host = |n: u8, end: End| {
        let mut world = World::new(lanes);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu }));
        let (kind, user) = (PortKind::Uplink, PortUser::Driver { through: LaneId(0) });
        let uplink = PortConfig { id: LinkId(0), over: LinkId(0), kind, user };
        world.add_port(uplink, vec![AnyDriver::Wire(end)]);
        world.add_stack(n);
        world
    };
    (host(1, a), host(2, b))
}

impl World {
    /// Netstack `n` with a VNIC of its own over link 0.
    fn add_stack(&mut self, n: u8) {
        self.add_stack_tested(n, DadConfig::OFF);
    }

    /// The same; its addresses are tested in this way.
    pub fn add_stack_tested(&mut self, n: u8, dad: DadConfig) {
        let id = NetstackId(u16::from(n));
        let steering = firelane_classify::Steering::even(&self.lane_ids());
        let config = NetstackConfig { steering, dad, ..NetstackConfig::new(id) };
        self.all(|| Control::AddNetstack(config.clone()));
        let (link, flow) = (LinkId(u32::from(n)), FlowId(u32::from(n)));
        self.add_flow(plain_flow(flow, link, None, None));
        self.add_port(vnic(link.0, 0, n, flow.0, PortUser::Netstack(id)), vec![]);
        for address in [format!("10.0.0.{n}/24"), format!("fd00::{n}/64")] {
            let address = address.parse().expect("a prefix");
            self.all(|| Control::AddAddress(id, link, address));
        }
    }
}

/// What an application does, without waiting.
impl World {
    pub fn listen(&mut self, netstack: u16, socket: u32, local: &str, backlog: usize) -> ListenerEnd {
        let (end, slot) = listener(backlog);
        self.listen_with(netstack, socket, local, slot);
        end
    }

    pub fn listen_with(&mut self, netstack: u16, socket: u32, local: &str, slot: ListenerSlot) {
        let listen = Listen {
            socket: SocketId(socket),
            local: local.parse().expect("an address and a port"),
            v6_only: false,
            shares: false,
            slot,
            rings: RINGS,
            options: StreamOptions::default(),
        };
        for lane in &mut self.lanes {
            let command = SocketCommand::Listen(Box::new(listen.clone()));
            lane.on_message(self.now, LaneMessage::Socket(NetstackId(netstack), command));
        }
    }

    pub fn connect(&mut self, netstack: u16, lane: u16, remote: &str) -> StreamEnd {
        let (end, slot) = stream(RINGS, LaneId(lane), NetstackId(netstack));
        self.connect_with(netstack, lane, remote, slot);
        end
    }

    pub fn connect_with(&mut self, netstack: u16, lane: u16, remote: &str, slot: StreamSlot) {
        let remote = remote.parse().expect("an address and a port");
        let options = StreamOptions::default();
        let connect = Connect { remote, local: None, stream: slot, options };
        let command = SocketCommand::Connect(Box::new(connect));
        let message = LaneMessage::Socket(NetstackId(netstack), command);
        self.lanes[usize::from(lane)].on_message(self.now, message);
    }

    pub fn command(&mut self, end: &StreamEnd, command: impl FnOnce(ConnRef) -> SocketCommand) {
        let shared = end.shared();
        let conn = shared.conn().expect("the connection is made");
        let message = LaneMessage::Socket(shared.netstack(), command(conn));
        self.lanes[shared.lane().index()].on_message(self.now, message);
    }

    fn kick(&mut self, end: &StreamEnd) {
        let shared = end.shared();
        let (netstack, conn) = (shared.netstack(), shared.conn().expect("the connection is made"));
        self.lanes[shared.lane().index()].on_message(self.now, LaneMessage::Kick { netstack, conn });
    }

    /// Writes what has room.
    pub fn write(&mut self, end: &mut StreamEnd, bytes: &[u8]) -> Result<usize, WriteError> {
        let count = end.send.write(bytes);
        let nudge = if count.is_ok() { end.send.nudge() } else { Nudge::default() };
        self.pass_nudge(end, nudge);
        if count == Err(WriteError::WouldBlock) && end.send.is_cramped() {
            self.kick(end);
        }
        count
    }

    /// Reads what there is.
    pub fn read(&mut self, end: &mut StreamEnd, to: &mut [u8]) -> Result<usize, ReadError> {
        let count = end.recv.read(to)?;
        let nudge = end.recv.nudge();
        self.pass_nudge(end, nudge);
        Ok(count)
    }

    pub fn pass_nudge(&mut self, end: &StreamEnd, nudge: Nudge) {
        if nudge.kick {
            self.kick(end);
        }
        self.mail.ready.extend(nudge.wake);
    }

    /// Reads what still comes to an end until its peer's FIN, and shows it piece by piece; time passes meanwhile.
    pub fn read_to_end(&mut self, end: &mut StreamEnd, mut show: impl FnMut(&[u8])) {
        let mut bytes = vec![0; 1 << 20];
        for _ in 0..1000 {
            match self.read(end, &mut bytes) {
                Ok(0) => return,
                Ok(count) => show(&bytes[..count]),
                Err(error) => assert_eq!(error, ReadError::WouldBlock),
            }
            self.run_for(Duration::from_millis(10));
        }
        panic!("the end never comes");
    }

    /// Sends `bytes` from one end and reads them at the other; time passes when nothing else does.
    pub fn transfer(&mut self, from: &mut StreamEnd, to: &mut StreamEnd, bytes: &[u8]) {
        let (mut sent, mut got) = (0, Vec::with_capacity(bytes.len()));
        let mut buffer = vec![0; 256 * 1024];
        let mut idle = 0;
        while got.len() < bytes.len() {
            let mut moved = false;
            if sent < bytes.len()
                && let Ok(count) = self.write(from, &bytes[sent..])
            {
                sent += count;
                moved = true;
            }
            let until = self.run();
            while let Ok(count @ 1..) = self.read(to, &mut buffer) {
                got.extend_from_slice(&buffer[..count]);
                moved = true;
            }
            idle = if moved { 0 } else { idle + 1 };
            assert!(idle < 1000, "stuck at {} of {} bytes", got.len(), bytes.len());
            if !moved {
                self.now = until.expect("data are missing, so something is due");
            }
        }
        assert!(got == bytes, "the bytes arrive as they were sent");
    }
}

pub const RINGS: StreamConfig = StreamConfig { send_capacity: 256 * 1024, recv_capacity: 256 * 1024 };

impl World {
    /// A datagram socket in the lane that its port steers to; port zero is `lane`'s choice.
    pub fn bind(&mut self, netstack: u16, socket: u32, lane: u16, local: &str) -> DatagramEnd {
        let local: std::net::SocketAddr = local.parse().expect("an address and a port");
        let steering = firelane_classify::Steering::even(&self.lane_ids());
        let lane = match local.port() {
            0 => LaneId(lane),
            port => datagram_lane(Port(port), &steering, &secrets().steering()),
        };
        let (end, slot) = datagram(1 << 16, 1 << 16, lane, NetstackId(netstack));
        let bind = Bind {
            socket: SocketId(socket),
            local,
            v6_only: false,
            sharing: Sharing::default(),
            remote: None,
            kind: DatagramKind::Udp,
            link: None,
            slot,
        };
        let message = LaneMessage::Socket(NetstackId(netstack), SocketCommand::Bind(Box::new(bind)));
        self.lanes[lane.index()].on_message(self.now, message);
        end
    }

    pub fn send_to(&mut self, end: &mut DatagramEnd, socket: u32, peer: std::net::SocketAddr, bytes: &[u8]) {
        assert!(self.offer_to(end, socket, peer, bytes), "the queue has room");
    }

    /// The same if the socket's queue has room; whether it had.
    pub fn offer_to(
        &mut self,
        end: &mut DatagramEnd,
        socket: u32,
        peer: std::net::SocketAddr,
        bytes: &[u8],
    ) -> bool {
        let has_room = end.send.send(peer, bytes).is_ok();
        if has_room && end.send.kick() {
            let shared = end.send.shared();
            let (netstack, socket) = (shared.netstack(), SocketId(socket));
            let message = LaneMessage::KickDatagrams { netstack, socket };
            self.lanes[shared.lane().index()].on_message(self.now, message);
        }
        has_room
    }
}
