//! The lane, its clock, and what the calls ask of it.
//!
//! Time is virtual: it stands still while the lane works, and goes on when packetdrill sleeps, waits for a packet or asks
//! what time it is. Everything that is due on the way happens at its own instant.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use firelane_flow::FlowConfig;
use firelane_frame::PoolsConfig;
use firelane_lane::{
    Backlogs, Control, FlowSetup, Idle, Lane, LaneConfig, LaneMessage, LinkConfig, NetstackConfig, Notice,
    Outlet, PortConfig, PortKind, PortUser, RouteConfig, Secrets, SocketCommand, StreamInfo, StreamOptions,
    SynText,
};
use firelane_socket::{ConnRef, Ready, SocketToken};
use firelane_units::{FlowId, Instant, IpPrefix, LaneId, LinkId, NetstackId, Priority, SocketId};

use crate::errno::{Sys, fail};
use crate::link::{Device, Link, OUR_MAC, Sent, link};
use crate::options::Options;

/// The one lane.
pub(crate) const LANE: LaneId = LaneId(0);
/// The one netstack.
pub(crate) const NETSTACK: NetstackId = NetstackId(0);
const UPLINK: LinkId = LinkId(0);
const VNIC: LinkId = LinkId(1);
const FLOW: FlowId = FlowId(0);
/// Turns at one instant after which somebody must be talking to himself.
const TURNS_MAX: usize = 100_000;
/// The prefixes that packetdrill takes local addresses from.
const PREFIX_V4: u8 = 16;
const PREFIX_V6: u8 = 48;
/// The address from which a script connects that binds none.
const DEFAULT_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const DEFAULT_V6: Ipv6Addr = Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1);

/// What the lane says that nobody here waits for, but for refusals.
#[derive(Debug, Default)]
struct Post {
    refused: bool,
}

impl Outlet<Device> for Post {
    fn fill(&mut self, _: LaneId, message: LaneMessage<Device>) -> Result<(), LaneMessage<Device>> {
        // There is no other lane.
        Err(message)
    }

    fn wake(&mut self, _: LaneId) {}

    fn ready(&mut self, _: SocketToken, _: Ready) {}

    fn notice(&mut self, _: LaneId, notice: Notice) {
        self.refused |= matches!(notice, Notice::Refused { .. });
    }
}

/// The world that a script sees.
pub(crate) struct World {
    pub(crate) options: Options,
    lane: Lane<Device>,
    link: Link,
    post: Post,
    now: Instant,
    /// What the lane's last turn let it sleep to.
    until: Option<Instant>,
    sockets: u32,
}

impl World {
    pub(crate) fn new(options: Options) -> Self {
        let mut bits = options.seed;
        let secrets = Secrets::new(core::array::from_fn(|_| next_byte(&mut bits)));
        let now = Instant::from_secs(1);
        let mut config = LaneConfig::new(LANE, secrets, Arc::new(Backlogs::new(1)), now);
        config.connections = 16;
        // packetdrill locks all memory, which an ordinary user may do with little of it.
        config.pools = PoolsConfig { small_slots: 1024, large_slots: 16 };
        let (link, device) = link(options.mtu);
        let lane = Lane::new(config);
        let mut world = Self { options, lane, link, post: Post::default(), now, until: None, sockets: 0 };
        world.configure(device);
        world
    }

    fn configure(&mut self, device: Device) {
        self.change(Control::AddLink(LinkConfig { link: UPLINK, mtu: self.options.mtu }));
        let user = PortUser::Driver { through: LANE };
        let uplink = PortConfig { id: UPLINK, over: UPLINK, kind: PortKind::Uplink, user };
        self.change(Control::AddPort(uplink, Some(device)));
        let netstack = NetstackConfig {
            tcp: Arc::new(self.options.tcp.clone()),
            time_wait: self.options.time_wait,
            ..NetstackConfig::new(NETSTACK)
        };
        self.change(Control::AddNetstack(netstack));
        let config = FlowConfig { parent: None, maxbw: None, priority: Priority::High };
        let setup = FlowSetup { flow: FLOW, owner: VNIC, rule: None, config, home: None };
        self.change(Control::AddFlow(setup));
        let kind = PortKind::Vnic { mac: OUR_MAC, vlan: None, flow: FLOW };
        let port = PortConfig { id: VNIC, over: UPLINK, kind, user: PortUser::Netstack(NETSTACK) };
        self.change(Control::AddPort(port, None));
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let destination = IpPrefix::new(any, 0).expect("zero fits every family");
            // Whoever it is, he answers for himself on this link.
            let route = RouteConfig::on_link(destination, VNIC);
            self.change(Control::AddRoute(NETSTACK, route));
        }
        for prefix in self.options.local.clone() {
            self.add_address(prefix);
        }
        assert!(!self.post.refused, "the lane takes the plug-in's configuration");
    }

    fn change(&mut self, control: Control<Device>) {
        self.tell(LaneMessage::Control(Box::new(control)));
    }

    fn add_address(&mut self, prefix: IpPrefix) {
        self.link.add_ours(prefix.addr());
        self.change(Control::AddAddress(NETSTACK, VNIC, prefix));
    }

    /// Makes an address ours if scripts may choose; whether it is.
    pub(crate) fn adopt(&mut self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if self.link.is_ours(ip) {
            return true;
        }
        let is_station = match ip {
            IpAddr::V4(a) => !(a.is_unspecified() || a.is_multicast() || a.is_broadcast() || a.is_loopback()),
            IpAddr::V6(a) => !(a.is_unspecified() || a.is_multicast() || a.is_loopback()),
        };
        if !is_station || !self.options.local.is_empty() {
            return false;
        }
        let len = if ip.is_ipv4() { PREFIX_V4 } else { PREFIX_V6 };
        self.add_address(IpPrefix::new(ip, len).expect("the length fits its family"));
        true
    }

    /// Makes sure that there is an address to connect from.
    pub(crate) fn adopt_default(&mut self, towards: IpAddr) {
        let towards = towards.to_canonical();
        let has_one = self.link.any_ours(towards.is_ipv4());
        if !has_one {
            self.adopt(if towards.is_ipv4() { DEFAULT_V4.into() } else { DEFAULT_V6.into() });
        }
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// A name for a socket.
    pub(crate) fn next_socket(&mut self) -> SocketId {
        self.sockets += 1;
        SocketId(self.sockets - 1)
    }

    /// A socket's command; whether the lane took it.
    pub(crate) fn command(&mut self, command: SocketCommand) -> bool {
        self.post.refused = false;
        self.tell(LaneMessage::Socket(NETSTACK, command));
        !self.post.refused
    }

    /// What would go with a connection's SYN, if text would.
    pub(crate) fn syn_text(
        &mut self,
        ends: (Option<SocketAddr>, SocketAddr),
        options: &StreamOptions,
    ) -> Option<SynText> {
        self.lane.opens_with_text(self.now, NETSTACK, ends.0, ends.1, options)
    }

    /// A program wrote or read.
    pub(crate) fn kick(&mut self, conn: ConnRef) {
        self.tell(LaneMessage::Kick { netstack: NETSTACK, conn });
    }

    /// A program queued datagrams.
    pub(crate) fn kick_datagrams(&mut self, socket: SocketId) {
        self.tell(LaneMessage::KickDatagrams { netstack: NETSTACK, socket });
    }

    /// What is known of a connection.
    pub(crate) fn info(&self, conn: ConnRef) -> Option<StreamInfo> {
        self.lane.stream_info(self.now, conn)
    }

    fn tell(&mut self, message: LaneMessage<Device>) {
        self.lane.on_message(self.now, message);
        self.settle();
    }

    /// Lets the lane work until it has nothing to do at this instant.
    fn settle(&mut self) {
        self.link.set_now(self.now);
        for _ in 0..TURNS_MAX {
            let sleep = self.lane.turn(self.now, Idle::Sleeps);
            let is_kept = self.lane.empty_outbox(&mut self.post);
            assert!(!is_kept, "one lane has nobody to pass anything on to");
            self.until = sleep.until;
            let is_due = sleep.until.is_some_and(|at| at <= self.now);
            if !sleep.work_left && !is_due && !self.link.is_pending() {
                return;
            }
        }
        panic!("the lane is never silent at {:?}", self.now);
    }

    /// A packet comes from packetdrill.
    pub(crate) fn inject(&mut self, packet: &[u8]) -> Sys<()> {
        let octets = |range: core::ops::Range<usize>| packet.get(range);
        let (dst, is_v6) = match packet.first().map(|byte| byte >> 4) {
            Some(4) => (octets(16..20).and_then(|b| <[u8; 4]>::try_from(b).ok()).map(IpAddr::from), false),
            Some(6) => (octets(24..40).and_then(|b| <[u8; 16]>::try_from(b).ok()).map(IpAddr::from), true),
            _ => (None, false),
        };
        let Some(dst) = dst else { return fail(libc::EINVAL) };
        // A packet for somebody else is dropped by the netstack, with its reason.
        let _ = self.adopt(dst);
        self.link.send(packet, is_v6);
        self.settle();
        Ok(())
    }

    /// The packet that left first.
    pub(crate) fn packet(&mut self) -> Option<Sent> {
        self.link.receive()
    }

    /// Whether a packet has left.
    pub(crate) fn has_packet(&self) -> bool {
        self.link.has_sent()
    }

    /// When the lane has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Time goes on to `at`, at the most to what is due before.
    pub(crate) fn step(&mut self, at: Instant) {
        let next = self.until.map_or(at, |until| until.min(at));
        self.now = next.max(self.now);
        if self.until.is_some_and(|until| until <= self.now) {
            self.settle();
        }
    }

    /// What time it is, a microsecond later than at any question before.
    pub(crate) fn ask_time(&mut self) -> Instant {
        self.step(self.now + Duration::from_micros(1));
        self.now
    }
}

/// A generator for secrets that must be the same in every run (splitmix64).
fn next_byte(state: &mut u64) -> u8 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) as u8
}
