//! Lanes without threads: a world that takes turns in virtual time, with the devices and the applications of its lanes.
//!
//! Made for the tests of `path/lane`, and apart from them, so that its lane is compiled once and not for each of their programs.

mod applications;
mod devices;
mod messages;
pub mod router;

use std::sync::Arc;
use std::time::Duration;

use firelane_driver_memory::{End, WireConfig};
use firelane_flow::FlowConfig;
use firelane_frame::{Pools, PoolsConfig};
use firelane_ip::DadConfig;
use firelane_lane::*;
use firelane_socket::{Ready, SocketToken};
use firelane_units::{BitRate, FlowId, Instant, LaneId, LinkId, MacAddr, Mtu, NetstackId, Priority};

pub use applications::RINGS;
pub use devices::{AnyDriver, Copying, Doored, KernelDevice, RingDriver, Told, wire};

/// What lanes gave to the engine.
#[derive(Default)]
pub struct Mail {
    /// For other lanes, not yet brought.
    pub messages: Vec<(LaneId, LaneMessage<AnyDriver>)>,
    /// Sockets that became ready, and for what.
    pub ready: Vec<(SocketToken, Ready)>,
    /// What happened to addresses and links.
    pub notices: Vec<Notice>,
    /// Questions with their answers.
    pub answers: Vec<Question>,
    /// What sockets were told of what they had sent.
    pub faults: Vec<(SocketToken, Fault)>,
    /// Lanes that are to come, since others have taken what they had handed over.
    pub woken: Vec<LaneId>,
}

impl Outlet<AnyDriver> for Mail {
    fn fill(&mut self, lane: LaneId, message: LaneMessage<AnyDriver>) -> Result<(), LaneMessage<AnyDriver>> {
        self.messages.push((lane, message));
        Ok(())
    }

    fn wake(&mut self, lane: LaneId) {
        if !self.woken.contains(&lane) {
            self.woken.push(lane);
        }
    }

    fn ready(&mut self, token: SocketToken, ready: Ready) {
        self.ready.push((token, ready));
    }

    fn fault(&mut self, token: SocketToken, fault: &Fault) {
        self.faults.push((token, *fault));
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
    /// By their numbers.
    pub lanes: Vec<Lane<AnyDriver>>,
    /// What they have said.
    pub mail: Mail,
    /// The time of all of them.
    pub now: Instant,
}

/// The same in each run.
pub fn secrets() -> Secrets {
    Secrets::new(std::array::from_fn(|n| (n * 37 + 11) as u8))
}

impl World {
    /// So many lanes, at the time zero.
    pub fn new(lanes: u16) -> Self {
        Self::with_pools(lanes, PoolsConfig { small_slots: 8192, large_slots: 256 })
    }

    /// Lanes whose frames are as many as that.
    pub fn with_pools(lanes: u16, pools: PoolsConfig) -> Self {
        Self::with_secrets(lanes, pools, secrets())
    }

    /// The same with secrets of its own.
    pub fn with_secrets(lanes: u16, pools: PoolsConfig, secrets: Secrets) -> Self {
        let backlogs = Arc::new(Backlogs::new(usize::from(lanes)));
        let lane = |n| {
            let mut config = LaneConfig::new(LaneId(n), secrets, Arc::clone(&backlogs), Instant::ZERO);
            config.pools = pools;
            Lane::new(config)
        };
        let lanes = (0..lanes).map(lane).collect();
        Self { lanes, mail: Mail::default(), now: Instant::ZERO }
    }

    /// All lanes.
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

/// The address of the station `n`.
pub fn mac(n: u8) -> MacAddr {
    MacAddr([2, 8, 0x20, 0, 0, n])
}

/// A flow that carries a VNIC's or link's own limit.
pub fn plain_flow(flow: FlowId, owner: LinkId, maxbw: Option<BitRate>, home: Option<LaneId>) -> FlowSetup {
    let config = FlowConfig { parent: None, maxbw, priority: Priority::Medium };
    FlowSetup { flow, owner, rule: None, config, home }
}

/// A VNIC of the link `over` with the address [`mac`] of `mac_end`.
pub fn vnic(id: u32, over: u32, mac_end: u8, flow: u32, user: PortUser) -> PortConfig {
    let kind = PortKind::Vnic { mac: mac(mac_end), vlan: None, flow: FlowId(flow) };
    PortConfig { id: LinkId(id), over: LinkId(over), kind, user }
}

/// The netstack of a world that has one.
pub const NETSTACK: NetstackId = NetstackId(0);
/// Of all links.
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
