//! Lanes without threads for the lane target: one netstack on a switch with an uplink, in virtual time.
//!
//! The uplink and a second VNIC end in rings that the target holds. Laws are asserted wherever the lanes have
//! fallen silent: every frame is accounted for, and silence comes.

use std::sync::Arc;
use std::time::Duration;

use firelane_classify::Steering;
use firelane_flow::FlowConfig;
use firelane_frame::{
    Capabilities, Chain, Driver, Frame, FrameConsumer, FrameProducer, Pools, PoolsConfig, frame_ring,
};
use firelane_lane::{
    Backlogs, Control, FlowSetup, Idle, Lane, LaneConfig, LaneMessage, LinkConfig, NetstackConfig, Notice,
    Outlet, PortConfig, PortKind, PortUser, Secrets, Snapshot,
};
use firelane_socket::{Ready, SocketToken};
use firelane_tcp::{FastOpenPolicy, TcpConfig};
use firelane_units::{
    BitRate, DropCounters, FlowId, Instant, IpPrefix, LaneId, LinkId, MacAddr, Mtu, NetstackId, Priority,
};

use crate::feedback::{note, note_form};

pub(super) const NETSTACK: NetstackId = NetstackId(1);
pub(super) const UPLINK: LinkId = LinkId(0);
pub(super) const VNIC: LinkId = LinkId(1);
pub(super) const TAP: LinkId = LinkId(2);
pub(super) const MAC: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 2]);

/// One end of a wire at full speed.
pub(super) struct Ring {
    rx: FrameConsumer,
    tx: FrameProducer,
    capabilities: Capabilities,
}

impl Ring {
    fn pair(capabilities: Capabilities) -> (Self, Self) {
        let (a_tx, b_rx) = frame_ring(1024);
        let (b_tx, a_rx) = frame_ring(1024);
        (Self { rx: a_rx, tx: a_tx, capabilities }, Self { rx: b_rx, tx: b_tx, capabilities })
    }

    pub(super) fn send(&mut self, frame: Frame) {
        let mut chain = Chain::new();
        chain.push(frame);
        self.tx.push_chain(&mut chain);
    }

    pub(super) fn received(&mut self) -> Chain {
        let mut chain = Chain::new();
        self.rx.pop_into(&mut chain, usize::MAX);
        chain
    }
}

impl Driver for Ring {
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

/// What must add up.
#[derive(Debug)]
#[allow(dead_code, reason = "it is printed")]
struct Account {
    lane: LaneId,
    entered: [u64; 4],
    ended: [u64; 3],
    dropped: u64,
    held: u64,
}

impl Account {
    fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { lane, counters, held, .. } = snapshot;
        Self {
            lane: *lane,
            entered: [counters.received, counters.originated, counters.copied, counters.taken],
            ended: [counters.delivered, counters.forwarded, counters.handed],
            dropped: counters.drops.total(),
            held: *held,
        }
    }
}

#[derive(Default)]
struct Mail(Vec<(LaneId, LaneMessage<Ring>)>);

impl Outlet<Ring> for Mail {
    fn fill(&mut self, lane: LaneId, message: LaneMessage<Ring>) -> Result<(), LaneMessage<Ring>> {
        self.0.push((lane, message));
        Ok(())
    }

    fn wake(&mut self, _: LaneId) {}

    fn ready(&mut self, _: SocketToken, ready: Ready) {
        note_form(ready);
    }

    fn notice(&mut self, _: LaneId, notice: Notice) {
        note_form(notice);
    }
}

pub(super) struct World {
    pub(super) lanes: Vec<Lane<Ring>>,
    mail: Mail,
    pub(super) now: Instant,
    pub(super) uplink: Ring,
    pub(super) tap: Ring,
}

pub(super) fn secrets() -> Secrets {
    Secrets::new(core::array::from_fn(|n| (n * 37 + 11) as u8))
}

impl World {
    /// `lanes` lanes; the uplink's device does nothing itself, or everything; the VNIC may have a limit.
    pub(super) fn new(lanes: u16, offloads: bool, maxbw: Option<BitRate>) -> Self {
        let backlogs = Arc::new(Backlogs::new(usize::from(lanes)));
        let lane = |n| {
            let mut config = LaneConfig::new(LaneId(n), secrets(), Arc::clone(&backlogs), Instant::ZERO);
            config.pools = PoolsConfig { small_slots: 1024, large_slots: 24 };
            config.connections = 16;
            Lane::new(config)
        };
        let capabilities =
            if offloads { Capabilities::full(Mtu::ETHERNET) } else { Capabilities::plain(Mtu::ETHERNET) };
        let ((uplink, uplink_end), (tap, tap_end)) = (Ring::pair(capabilities), Ring::pair(capabilities));
        let mail = Mail::default();
        let mut world =
            Self { lanes: (0..lanes).map(lane).collect(), mail, now: Instant::from_secs(1000), uplink, tap };
        world.all(|| Control::AddLink(LinkConfig { link: UPLINK, mtu: Mtu::ETHERNET }));
        let through = PortUser::Driver { through: LaneId(0) };
        world.add_port(UPLINK, PortKind::Uplink, through, Some(uplink_end));
        let ids: Vec<LaneId> = world.lanes.iter().map(Lane::id).collect();
        // Every bit: text of SYNs is taken with a cookie and without.
        let fast_open = FastOpenPolicy::new(FastOpenPolicy::MAX);
        let tcp = Arc::new(TcpConfig { fast_open, ..TcpConfig::default() });
        let netstack =
            NetstackConfig { steering: Steering::even(&ids), tcp, ..NetstackConfig::new(NETSTACK) };
        world.all(|| Control::AddNetstack(netstack.clone()));
        world.add_vnic(VNIC, MAC, maxbw, PortUser::Netstack(NETSTACK), None);
        world.add_vnic(TAP, MacAddr([2, 8, 0x20, 0, 0, 3]), None, through, Some(tap_end));
        for address in ["10.0.0.2/24", "fd00::2/64"] {
            let address: IpPrefix = address.parse().expect("a prefix");
            world.all(|| Control::AddAddress(NETSTACK, VNIC, address));
        }
        world.run();
        world
    }

    fn add_vnic(
        &mut self,
        id: LinkId,
        mac: MacAddr,
        maxbw: Option<BitRate>,
        user: PortUser,
        driver: Option<Ring>,
    ) {
        let flow = FlowId(id.0);
        let config = FlowConfig { parent: None, maxbw, priority: Priority::Medium };
        let home = maxbw.map(|_| LaneId(0));
        self.all(|| Control::AddFlow(FlowSetup { flow, owner: id, rule: None, config, home }));
        self.add_port(id, PortKind::Vnic { mac, vlan: None, flow }, user, driver);
    }

    fn add_port(&mut self, id: LinkId, kind: PortKind, user: PortUser, mut driver: Option<Ring>) {
        let config = PortConfig { id, over: UPLINK, kind, user };
        for lane in 0..self.lanes.len() {
            let control = Control::AddPort(config, driver.take());
            self.message(lane, LaneMessage::Control(Box::new(control)));
        }
        self.exchange();
    }

    /// Sends the same change to every lane.
    pub(super) fn all(&mut self, control: impl Fn() -> Control<Ring>) {
        for lane in 0..self.lanes.len() {
            self.message(lane, LaneMessage::Control(Box::new(control())));
        }
        self.exchange();
    }

    pub(super) fn message(&mut self, lane: usize, message: LaneMessage<Ring>) {
        self.lanes[lane].on_message(self.now, message);
    }

    fn exchange(&mut self) -> bool {
        for lane in &mut self.lanes {
            assert!(!lane.empty_outbox(&mut self.mail));
        }
        let messages = core::mem::take(&mut self.mail.0);
        let moved = !messages.is_empty();
        for (lane, message) in messages {
            self.lanes[lane.index()].on_message(self.now, message);
        }
        moved
    }

    /// Turns of every lane until none has work left; the earliest instant that any sleeps to.
    pub(super) fn run(&mut self) -> Option<Instant> {
        for _ in 0..2000 {
            let (mut until, mut busy) = (None::<Instant>, false);
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

    /// Lets time pass, from one deadline to the next, but not past `most` of them.
    pub(super) fn run_for(&mut self, span: Duration, most: usize) {
        let end = self.now + span;
        for _ in 0..most {
            let Some(at) = self.run().filter(|&at| at <= end) else {
                self.now = end;
                self.run();
                return;
            };
            self.now = at;
        }
    }

    /// The law of the lane's counters, in each lane and over all of them.
    pub(super) fn check(&self) {
        let (mut taken, mut handed) = (0, 0);
        for lane in &self.lanes {
            let snapshot = lane.snapshot();
            let drops: Vec<_> = snapshot.counters.drops.iter().collect();
            assert!(snapshot.is_conserved(), "{:?}, drops {drops:?}", Account::of(&snapshot));
            taken += snapshot.counters.taken;
            handed += snapshot.counters.handed;
            drops.iter().for_each(|(reason, _)| note(reason));
            note((snapshot.connections.min(3), snapshot.time_wait.min(2), snapshot.held.min(3), drops.len()));
        }
        assert_eq!(taken, handed, "frames between lanes");
    }
}
