//! A host: its lanes behind their squeues, as an engine has them, without threads.
//!
//! A lane's worker runs only when its bell rang or the instant has come to which its last turn let it sleep: a
//! wake-up or a deadline that is lost here is a hang, as it would be with threads. Everything else enters as
//! the engine's messages do, by one of the three modes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use firelane_classify::Steering;
use firelane_driver_memory::End;
use firelane_flow::FlowConfig;
use firelane_frame::PoolsConfig;
use firelane_ip::DadConfig;
use firelane_lane::{
    Backlogs, Control, Entered, FlowSetup, Host as Inside, Idle, Lane, LaneConfig, LaneMessage, LinkConfig,
    Mode, NetstackConfig, Notice, Outlet, PortConfig, PortKind, PortUser, Refused, Secrets, Snapshot, Squeue,
    StreamInfo, Wake,
};
use firelane_socket::{ConnRef, Ready, SocketToken};
use firelane_tcp::TcpConfig;
use firelane_units::{
    BitRate, FlowId, Instant, IpPrefix, LaneId, LinkId, MacAddr, Mtu, NetstackId, Priority, SocketId,
};

use crate::random::Random;
use crate::trace::Port;

/// Items that wait for one lane at most.
const FIFO: usize = 4096;

type Messages = LaneMessage<Port>;
type LaneSqueue = Squeue<Inside<Port, Post>, Messages, Bell>;
type Lanes = Vec<OnceCell<LaneSqueue>>;

/// A worker's wake-up, which stays until the worker runs.
#[derive(Clone, Debug, Default)]
struct Bell(Arc<Ringer>);

#[derive(Debug, Default)]
struct Ringer(AtomicBool);

impl Bell {
    fn ring(&self) {
        self.0.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(&self) {
        self.ring();
    }
}

impl std::task::Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What lanes tell the world.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) ready: Vec<(SocketToken, Ready)>,
    pub(crate) notices: Vec<Notice>,
}

/// Where one lane's outbox goes.
struct Post {
    lanes: Weak<Lanes>,
    mail: Rc<RefCell<Mail>>,
}

impl Outlet<Port> for Post {
    fn fill(&mut self, lane: LaneId, message: Messages) -> Result<(), Messages> {
        let Some(lanes) = self.lanes.upgrade() else { return Err(message) };
        let Some(squeue) = lanes.get(lane.index()).and_then(OnceCell::get) else { return Err(message) };
        match squeue.fill(message) {
            Ok(_) => Ok(()),
            Err(Refused::Full(message) | Refused::Poisoned(message)) => Err(message),
        }
    }

    fn wake(&mut self, lane: LaneId) {
        let lanes = self.lanes.upgrade();
        if let Some(squeue) = lanes.as_ref().and_then(|lanes| lanes.get(lane.index())?.get()) {
            squeue.waker().wake();
        }
    }

    fn ready(&mut self, token: SocketToken, ready: Ready) {
        self.mail.borrow_mut().ready.push((token, ready));
    }

    fn notice(&mut self, _: LaneId, notice: Notice) {
        self.mail.borrow_mut().notices.push(notice);
    }
}

/// What a host is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// How many lanes.
    pub lanes: u16,
    /// The sizes of each lane's pools.
    pub pools: PoolsConfig,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self { lanes: 1, pools: PoolsConfig { small_slots: 4096, large_slots: 32 } }
    }
}

/// How a netstack differs from the default one.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// The last byte of its addresses: 10.0.0.n, fd00::n and 02:08:20:00:00:n.
    pub number: u8,
    /// TCP's tunables.
    pub tcp: Arc<TcpConfig>,
    /// The limit of its VNIC.
    pub maxbw: Option<BitRate>,
    /// How long TIME-WAIT lasts.
    pub time_wait: Duration,
    /// How its addresses are tested.
    pub dad: DadConfig,
}

impl StackConfig {
    /// The default netstack with number `number`.
    pub fn new(number: u8) -> Self {
        let time_wait = Duration::from_secs(60);
        Self { number, tcp: Arc::default(), maxbw: None, time_wait, dad: DadConfig::OFF }
    }
}

/// A netstack of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackId {
    /// Which host of the simulation.
    pub host: usize,
    /// Which netstack of the host.
    pub netstack: NetstackId,
    /// Its VNIC.
    pub vnic: LinkId,
    /// The last byte of its addresses.
    pub number: u8,
}

impl StackId {
    /// Its address of the family.
    pub fn ip(self, v6: bool) -> IpAddr {
        if v6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.number.into()).into()
        } else {
            Ipv4Addr::new(10, 0, 0, self.number).into()
        }
    }

    /// An end of a connection on it.
    pub fn at(self, v6: bool, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip(v6), port)
    }
}

/// The Ethernet address of netstack `number`.
pub const fn station_mac(number: u8) -> MacAddr {
    MacAddr([2, 8, 0x20, 0, 0, number])
}

/// One host.
pub struct Host {
    lanes: Rc<Lanes>,
    bells: Vec<Bell>,
    sleeps: Vec<Option<Instant>>,
    number: usize,
    links: u32,
    flows: u32,
    netstacks: u16,
    sockets: u32,
}

impl Host {
    pub(crate) fn new(
        number: usize,
        config: HostConfig,
        now: Instant,
        random: &mut Random,
        mail: &Rc<RefCell<Mail>>,
    ) -> Self {
        let count = usize::from(config.lanes);
        let secrets = Secrets::new(core::array::from_fn(|_| random.bits() as u8));
        let backlogs = Arc::new(Backlogs::new(count));
        let bells: Vec<Bell> = (0..count).map(|_| Bell::default()).collect();
        let lanes: Rc<Lanes> = Rc::new((0..count).map(|_| OnceCell::new()).collect());
        for (n, bell) in bells.iter().enumerate() {
            let mut lane_config = LaneConfig::new(LaneId(n as u16), secrets, Arc::clone(&backlogs), now);
            lane_config.pools = config.pools;
            lane_config.connections = 16;
            let outlet = Post { lanes: Rc::downgrade(&lanes), mail: Rc::clone(mail) };
            let inside = Inside { lane: Lane::new(lane_config), outlet };
            let made = lanes[n].set(Squeue::new(inside, FIFO, bell.clone()));
            assert!(made.is_ok(), "each lane is made once");
        }
        Self { lanes, bells, sleeps: vec![None; count], number, links: 0, flows: 0, netstacks: 0, sockets: 0 }
    }

    /// How many lanes it has.
    pub fn lanes(&self) -> usize {
        self.bells.len()
    }

    fn lane(&self, n: usize) -> &LaneSqueue {
        self.lanes[n].get().expect("every lane is made with the host")
    }

    /// Hands an item to a lane.
    pub(crate) fn enter(&self, lane: LaneId, mode: Mode, now: Instant, message: Messages) {
        let entered = self.lane(lane.index()).enter(mode, message, &|| now);
        assert!(matches!(entered, Ok(Entered::Ran | Entered::Queued)), "a lane refuses an item: {entered:?}");
    }

    /// Sends a change to every lane.
    pub(crate) fn control(&self, now: Instant, change: impl Fn(usize) -> Control<Port>) {
        for n in 0..self.lanes() {
            let message = LaneMessage::Control(Box::new(change(n)));
            self.enter(LaneId(n as u16), Mode::Process, now, message);
        }
    }

    /// Runs the workers that are due; whether there was one.
    pub(crate) fn work(&mut self, now: Instant) -> bool {
        let mut worked = false;
        for n in 0..self.lanes() {
            let is_due = self.sleeps[n].is_some_and(|at| at <= now);
            if !self.bells[n].take() && !is_due {
                continue;
            }
            worked = true;
            let sleep = self
                .lane(n)
                .work(Idle::Sleeps, &|| now)
                .expect("no handler panics")
                .expect("nobody else is inside");
            self.sleeps[n] = sleep.until;
            if sleep.work_left {
                self.bells[n].ring();
            }
        }
        worked
    }

    /// The earliest instant to which a worker sleeps.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.sleeps.iter().flatten().min().copied()
    }

    /// Every lane's books.
    pub fn snapshots(&self, now: Instant) -> Vec<Snapshot> {
        let read = |n| self.lane(n).visit(now, |inside| inside.lane.snapshot()).expect("nobody is inside");
        (0..self.lanes()).map(read).collect()
    }

    /// What is known of a connection, if it still exists.
    pub(crate) fn stream_info(&self, now: Instant, lane: LaneId, conn: ConnRef) -> Option<StreamInfo> {
        let lane = self.lane(lane.index());
        lane.visit(now, |inside| inside.lane.stream_info(now, conn)).expect("nobody is inside")
    }

    /// A link with its switch.
    pub(crate) fn add_link(&mut self, now: Instant, mtu: Mtu) -> LinkId {
        let link = self.next_link();
        self.control(now, |_| Control::AddLink(LinkConfig { link, mtu }));
        link
    }

    fn next_link(&mut self) -> LinkId {
        self.links += 1;
        LinkId(self.links - 1)
    }

    /// Connects an end of a wire: to the uplink of `over`, or as the VNIC `mac` of a station outside.
    /// Its queue belongs to `lane`.
    pub(crate) fn plug(&mut self, now: Instant, over: LinkId, vnic: Option<MacAddr>, end: End, lane: LaneId) {
        end.set_waker(Waker::from(Arc::clone(&self.bells[lane.index()].0)));
        let (id, kind) = match vnic {
            Some(mac) => {
                let id = self.next_link();
                (id, PortKind::Vnic { mac, vlan: None, flow: self.add_flow(now, id, None) })
            }
            None => (over, PortKind::Uplink),
        };
        let config = PortConfig { id, over, kind, user: PortUser::Driver { through: lane } };
        let end = RefCell::new(Some(Port::new(end, self.number)));
        self.control(now, |n| {
            let driver = if n == lane.index() { end.take() } else { None };
            Control::AddPort(config, driver)
        });
    }

    /// The flow that carries a VNIC's limit.
    fn add_flow(&mut self, now: Instant, owner: LinkId, maxbw: Option<BitRate>) -> FlowId {
        let flow = FlowId(self.flows);
        self.flows += 1;
        let config = FlowConfig { parent: None, maxbw, priority: Priority::Medium };
        let home = maxbw.map(|_| LaneId(0));
        self.control(now, |_| Control::AddFlow(FlowSetup { flow, owner, rule: None, config, home }));
        flow
    }

    /// A netstack with a VNIC over `over`.
    pub(crate) fn add_stack(
        &mut self,
        now: Instant,
        over: LinkId,
        config: &StackConfig,
    ) -> (NetstackId, LinkId) {
        let id = NetstackId(self.netstacks);
        self.netstacks += 1;
        let stack = self.netstack_config(id, config);
        self.control(now, |_| Control::AddNetstack(stack.clone()));
        let vnic = self.next_link();
        let flow = self.add_flow(now, vnic, config.maxbw);
        let kind = PortKind::Vnic { mac: station_mac(config.number), vlan: None, flow };
        let port = PortConfig { id: vnic, over, kind, user: PortUser::Netstack(id) };
        self.control(now, |_| Control::AddPort(port, None));
        let named = StackId { host: 0, netstack: id, vnic, number: config.number };
        for (address, len) in [(named.ip(false), 24), (named.ip(true), 64)] {
            let prefix = IpPrefix::new(address, len).expect("the length fits its family");
            self.control(now, |_| Control::AddAddress(id, vnic, prefix));
        }
        (id, vnic)
    }

    fn netstack_config(&self, id: NetstackId, config: &StackConfig) -> NetstackConfig {
        let all: Vec<LaneId> = (0..self.lanes()).map(|n| LaneId(n as u16)).collect();
        NetstackConfig {
            steering: Steering::even(&all),
            tcp: Arc::clone(&config.tcp),
            time_wait: config.time_wait,
            dad: config.dad,
            ..NetstackConfig::new(id)
        }
    }

    /// A netstack's tunables change while it runs.
    pub(crate) fn tune(&mut self, now: Instant, id: NetstackId, config: &StackConfig) {
        let config = self.netstack_config(id, config);
        self.control(now, |_| Control::Tune(config.clone()));
    }

    /// A name for a listener.
    pub(crate) fn next_socket(&mut self) -> SocketId {
        self.sockets += 1;
        SocketId(self.sockets - 1)
    }
}
