//! The engine: lanes running on threads, and every change to what they carry.
//!
//! A change is checked here against the registry, then sent to every lane as a message; lanes never stop for
//! it. Used by the daemon, and by `stack.rs` for programs that embed one netstack.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_frame::PoolsConfig;
use firelane_ip::AutoconfConfig;
use firelane_lane::{
    Control, FlowSetup, FuseWith, LaneMessage, LinkConfig, Notice, Polling, PortConfig, PortKind, PortUser,
    RouteChange, RouteConfig, Wake,
};
use firelane_switch::Rules as ProtectionRules;
use firelane_units::{
    BitRate, FlowId, IpPrefix, LaneId, LinkId, MacAddr, Mtu, NetstackId, Priority, SocketId, VlanId,
};

use crate::calls::{self, Held};
use crate::chance::{Chance, mix};
use crate::cpus::Threads;
use crate::error::ChangeError;
use crate::fabric::{Fabric, LaneSizes};
use crate::queue::Queue;
use crate::registry::{Flow, Link, Queues, Registry, Vnic};
use crate::snapshot::EngineSnapshot;
use crate::worker::Worker;

/// More lanes than this serve no machine that one process runs on.
const LANES_MAX: usize = 256;

/// How an engine is made.
#[derive(Clone)]
pub struct EngineConfig {
    /// How many lanes.
    pub lanes: usize,
    /// How many more lanes are kept for links and netstacks that are to have lanes of their own ([`Engine::set_link_cpus`],
    /// [`Engine::add_netstack_on`]). They sleep until then.
    pub reserve: usize,
    /// The CPUs that the lanes' workers are bound to, in order; empty leaves them to the scheduler.
    pub cpus: Vec<usize>,
    /// The sizes of each lane's buffer pools.
    pub pools: PoolsConfig,
    /// Whether the engine starts a thread per lane. Without, the program drives [`Engine::workers`] itself.
    pub threads: bool,
    /// What the identifiers of automatic addresses are made from (RFC 7217). A host that keeps it comes back
    /// with the same addresses; `None` draws another at every start.
    pub stable_secret: Option<[u8; 16]>,
    /// What every other secret comes from: with the same seed, ports, initial sequence numbers and hashes are chosen
    /// alike. For laboratories only, because whoever knows it foresees them; `None` draws from the system.
    pub seed: Option<u64>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            lanes: 1,
            reserve: 0,
            cpus: Vec::new(),
            pools: PoolsConfig::default(),
            threads: true,
            stable_secret: None,
            seed: None,
        }
    }
}

/// A VNIC to be made.
#[derive(Clone, Debug)]
pub struct VnicConfig {
    /// Its address.
    pub mac: MacAddr,
    /// Its VLAN.
    pub vlan: Option<VlanId>,
    /// Its limit in each direction.
    pub maxbw: Option<BitRate>,
    /// Its priority.
    pub priority: Priority,
    /// What its user may say it is.
    pub protection: ProtectionRules,
}

impl VnicConfig {
    /// A VNIC without a limit.
    pub fn new(mac: MacAddr) -> Self {
        // Solaris' default for links.
        let protection = ProtectionRules::default();
        Self { mac, vlan: None, maxbw: None, priority: Priority::High, protection }
    }
}

/// Who uses a VNIC.
#[derive(Debug)]
pub enum VnicUser {
    /// Nobody yet.
    Nobody,
    /// A netstack of this engine.
    Netstack(NetstackId),
    /// A device with so many queues: the kernel through a TAP, another process, a wire.
    Device(Vec<Queue>),
}

/// Lanes, and what they carry. Clones are the same engine; it ends with the last of them.
///
/// ```
/// use firelane::units::{BitRate, Mtu};
/// use firelane::{Engine, EngineConfig, TcpConfig, TcpListener, TcpStream, VnicConfig, VnicUser};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::start(&EngineConfig { lanes: 2, ..EngineConfig::default() })?;
/// // Two netstacks on a switch, one of them with a limit.
/// let switch = engine.add_link(Mtu::ETHERNET)?;
/// let mut stacks = Vec::new();
/// for n in 1..=2 {
///     let netstack = engine.add_netstack(TcpConfig::default())?;
///     let config = VnicConfig::new(format!("02:08:20:00:00:0{n}").parse()?);
///     let vnic = engine.add_vnic(switch, &config, VnicUser::Netstack(netstack))?;
///     engine.add_address(vnic, format!("10.0.0.{n}/24").parse()?)?;
///     if n == 1 {
///         engine.set_link_maxbw(vnic, Some(BitRate::from_mbps(100)))?;
///     }
///     stacks.push(engine.stack(netstack).ok_or("it was removed")?);
/// }
/// let listener = TcpListener::bind(&stacks[0], "10.0.0.1:80")?;
/// let stream = TcpStream::connect(&stacks[1], "10.0.0.1:80")?;
/// assert_eq!(listener.accept()?.1, stream.local_addr()?);
/// assert_eq!(engine.snapshot().lanes.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) fabric: Arc<Fabric>,
    registry: Mutex<Registry>,
    next_socket: AtomicU32,
    next_lane: AtomicU32,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) lane_threads: Mutex<Threads>,
    /// Notices that were looked at for what they say about addresses, and that nobody has taken.
    pub(crate) noted: Mutex<VecDeque<(LaneId, Notice)>>,
    pub(crate) stable_secret: Option<[u8; 16]>,
}

impl Engine {
    /// Makes the lanes and starts their threads.
    ///
    /// # Errors
    /// The number of lanes is zero or above 256, a CPU cannot be bound to, or descriptors ran out.
    pub fn start(config: &EngineConfig) -> io::Result<Self> {
        if config.lanes == 0 || config.lanes + config.reserve > LANES_MAX {
            let text = format!("lanes {} and {}: 1 to {LANES_MAX}", config.lanes, config.reserve);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let fabric = Fabric::new(
            &LaneSizes { lanes: config.lanes, reserve: config.reserve, pools: config.pools },
            Chance::new(config.seed),
        )?;
        let engine = Self(Arc::new(Inner {
            fabric,
            registry: Mutex::default(),
            next_socket: AtomicU32::new(0),
            next_lane: AtomicU32::new(0),
            stop: Arc::default(),
            threads: Mutex::default(),
            lane_threads: Mutex::new(Threads::of(Vec::new(), &[], Vec::new())),
            noted: Mutex::default(),
            stable_secret: config.stable_secret,
        }));
        if config.threads {
            engine.start_threads(config)?;
        }
        Ok(engine)
    }

    fn start_threads(&self, config: &EngineConfig) -> io::Result<()> {
        let (sender, started) = channel();
        for (nth, mut worker) in self.workers().into_iter().enumerate() {
            let (is_common, has_cpus) = (nth < config.lanes, !config.cpus.is_empty());
            let cpu = (is_common && has_cpus).then(|| config.cpus[nth % config.cpus.len()]);
            let sender = sender.clone();
            let name = format!("{}{}", if is_common { "lane" } else { "own" }, worker.lane());
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                let bound = cpu.map_or(Ok(()), |cpu| worker.bind_to_cpu(cpu));
                let go_on = bound.is_ok();
                let this = (worker.lane(), rustix::thread::gettid());
                let _ = sender.send(bound.map(|()| this).map_err(|e| (cpu, e)));
                match go_on {
                    true => worker.run(),
                    false => worker.fall_silent(),
                }
            })?;
            self.0.threads().push(thread);
        }
        let mut lanes = Vec::new();
        for _ in 0..config.lanes + config.reserve {
            match started.recv() {
                Ok(Ok(lane)) => lanes.push(lane),
                Ok(Err((cpu, error))) => {
                    let text = format!("CPU {}: {error}", cpu.unwrap_or_default());
                    return Err(io::Error::new(error.kind(), text));
                }
                // A thread that has ended has said why.
                Err(_) => {}
            }
        }
        lanes.sort_unstable_by_key(|&(lane, _)| lane);
        let mut threads: Vec<_> = lanes.into_iter().map(|(_, thread)| thread).collect();
        let own = threads.split_off(config.lanes.min(threads.len()));
        *self.0.lane_threads() = Threads::of(threads, &config.cpus, own);
        Ok(())
    }

    /// The lanes' workers, for a program that drives them itself.
    pub fn workers(&self) -> Vec<Worker> {
        let make = |lane| {
            let (fabric, stop) = (Arc::clone(&self.0.fabric), Arc::clone(&self.0.stop));
            Worker::new(fabric, lane, stop, Arc::downgrade(&self.0))
        };
        self.0.fabric.lane_ids().map(make).collect()
    }

    /// How many lanes there are that netstacks spread over.
    pub fn lanes(&self) -> usize {
        self.0.fabric.lane_count()
    }

    /// Makes an etherstub, or the link above a device that [`Engine::add_uplink`] names.
    ///
    /// # Errors
    /// All lanes have failed.
    pub fn add_link(&self, mtu: Mtu) -> Result<LinkId, ChangeError> {
        let mut registry = self.0.registry();
        let (link, flow) = (registry.mint_link(), registry.mint_flow());
        self.0.tell_all(|_| Control::AddLink(LinkConfig { link, mtu }))?;
        let config = FlowConfig { parent: None, maxbw: None, priority: Priority::High };
        let setup = FlowSetup { flow, owner: link, rule: None, config, home: None };
        self.0.tell_all(|_| Control::AddFlow(setup))?;
        registry.flows.insert(flow, Flow { owner: link, rule: None, config, home: None, lanes: Vec::new() });
        registry.links.insert(link, Link { flow, uplink: None });
        Ok(link)
    }

    /// Removes a link.
    ///
    /// # Errors
    /// It does not exist, or has VNICs or a wire.
    pub fn remove_link(&self, link: LinkId) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let entry = registry.links.get(&link).ok_or(ChangeError::NoLink(link))?;
        let has_wire = registry.trunks.values().any(|trunk| trunk.over == link);
        if has_wire || registry.vnics.values().any(|vnic| vnic.over == link) {
            return Err(ChangeError::LinkBusy(link));
        }
        let (flow, uplink) = (entry.flow, entry.uplink);
        // What comes from the device until it goes is the link's, whose flow goes behind it.
        if let Some(uplink) = uplink {
            self.0.remove_flows(&mut registry, uplink)?;
            registry.queues.remove(&uplink);
            self.0.tell_all(|_| Control::RemovePort(uplink))?;
        }
        self.0.tell_all(|_| Control::RemoveFlow(flow))?;
        self.0.tell_all(|_| Control::RemoveLink(link))?;
        registry.forget_flow(flow);
        registry.links.remove(&link);
        registry.give_back_link(link);
        uplink.into_iter().for_each(|uplink| registry.give_back_link(uplink));
        self.0.rest_lanes(&registry);
        Ok(())
    }

    /// Gives a link its lower side: unknown destinations go there. The answer names its counters.
    ///
    /// # Errors
    /// The link does not exist or has an uplink, or a queue cannot be waited for.
    pub fn add_uplink(&self, link: LinkId, queues: Vec<Queue>) -> Result<LinkId, ChangeError> {
        let mut registry = self.0.registry();
        let entry = registry.links.get(&link).ok_or(ChangeError::NoLink(link))?;
        if entry.uplink.is_some() {
            return Err(ChangeError::HasUplink(link));
        }
        let id = registry.mint_link();
        let dealt = self.0.add_port(id, link, PortKind::Uplink, VnicUser::Device(queues));
        let dealt = dealt.inspect_err(|_| registry.give_back_link(id))?;
        registry.links.get_mut(&link).ok_or(ChangeError::NoLink(link))?.uplink = Some(id);
        registry.queues.insert(id, Queues::dealt(dealt));
        self.0.lend(&mut registry)?;
        Ok(id)
    }

    /// Takes its lower side from a link, with the flows of what passed there.
    ///
    /// # Errors
    /// The link does not exist or has no uplink.
    pub fn remove_uplink(&self, link: LinkId) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let entry = registry.links.get_mut(&link).ok_or(ChangeError::NoLink(link))?;
        let uplink = entry.uplink.take().ok_or(ChangeError::NoWire(link))?;
        self.0.remove_flows(&mut registry, uplink)?;
        registry.queues.remove(&uplink);
        self.0.tell_all(|_| Control::RemovePort(uplink))?;
        registry.give_back_link(uplink);
        self.0.take_back(&mut registry)
    }

    /// Makes a VNIC over a link.
    ///
    /// # Errors
    /// The link or netstack does not exist, the address is in use, or a queue cannot be waited for.
    pub fn add_vnic(&self, over: LinkId, config: &VnicConfig, user: VnicUser) -> Result<LinkId, ChangeError> {
        let mut registry = self.0.registry();
        let link = registry.links.get(&over).ok_or(ChangeError::NoLink(over))?;
        let parent = Some(link.flow);
        let is_taken = |v: &Vnic| v.over == over && v.mac == config.mac && v.vlan == config.vlan;
        if registry.vnics.values().any(is_taken) {
            return Err(ChangeError::MacTaken(config.mac));
        }
        let netstack = match user {
            VnicUser::Netstack(id) => Some(id),
            VnicUser::Nobody | VnicUser::Device(_) => None,
        };
        if let Some(id) = netstack.filter(|id| !registry.netstacks.contains_key(id)) {
            return Err(ChangeError::NoNetstack(id));
        }
        let (id, flow) = (registry.mint_link(), registry.mint_flow());
        let limits = FlowConfig { parent, maxbw: config.maxbw, priority: config.priority };
        let home = registry.home_of(flow, &limits, netstack, &self.0.lanes_left());
        let setup = FlowSetup { flow, owner: id, rule: None, config: limits, home };
        self.0.tell_all(|_| Control::AddFlow(setup))?;
        let kind = PortKind::Vnic { mac: config.mac, vlan: config.vlan, flow };
        self.0.guard(id, config.mac, &config.protection)?;
        match self.0.add_port(id, over, kind, user) {
            Ok(dealt) => drop(registry.queues.insert(id, Queues::dealt(dealt))),
            Err(error) => {
                self.0.tell_all(|_| Control::SetGuard(id, config.mac, None))?;
                self.0.tell_all(|_| Control::RemoveFlow(flow))?;
                registry.forget_flow(flow);
                registry.give_back_link(id);
                return Err(error);
            }
        }
        registry.flows.insert(flow, Flow { owner: id, rule: None, config: limits, home, lanes: Vec::new() });
        let vnic = Vnic { over, mac: config.mac, vlan: config.vlan, flow, netstack };
        registry.vnics.insert(id, vnic);
        self.0.lend(&mut registry)?;
        Ok(id)
    }

    /// Removes a VNIC with its flows and addresses.
    ///
    /// # Errors
    /// It does not exist.
    pub fn remove_vnic(&self, vnic: LinkId) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let flow = registry.vnics.get(&vnic).ok_or(ChangeError::NoLink(vnic))?.flow;
        // The port goes first: behind limits that are gone before it, all that waits for them would pass at once, uncounted.
        self.0.tell_all(|_| Control::RemovePort(vnic))?;
        registry.queues.remove(&vnic);
        self.0.remove_flows(&mut registry, vnic)?;
        self.0.tell_all(|_| Control::RemoveFlow(flow))?;
        registry.forget_flow(flow);
        registry.vnics.remove(&vnic);
        registry.give_back_link(vnic);
        for netstack in registry.netstacks.values_mut() {
            netstack.addresses.retain(|(link, _)| *link != vnic);
            netstack.configured.retain(|(link, _)| *link != vnic);
            netstack.routing.remove(&vnic);
        }
        self.0.take_back(&mut registry)
    }

    /// Protects a VNIC from its user, in another way, or no more; what it has learned and counted stays.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_protection(&self, vnic: LinkId, rules: &ProtectionRules) -> Result<(), ChangeError> {
        let mac = self.0.registry().vnics.get(&vnic).ok_or(ChangeError::NoLink(vnic))?.mac;
        self.0.tell_all(|_| Control::SetGuard(vnic, mac, (!rules.kinds.is_empty()).then(|| rules.clone())))
    }

    /// Changes the limit of a VNIC or of a link; traffic runs on.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_link_maxbw(&self, link: LinkId, maxbw: Option<BitRate>) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        let flow = registry.vnics.get(&link).map(|v| v.flow);
        let flow = flow.or_else(|| registry.links.get(&link).map(|l| l.flow));
        drop(registry);
        self.set_flow_maxbw(flow.ok_or(ChangeError::NoLink(link))?, maxbw)
    }

    /// Changes what a VNIC is guaranteed of its link's limit.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_link_minbw(&self, link: LinkId, minbw: Option<BitRate>) -> Result<(), ChangeError> {
        let flow = self.0.registry().vnics.get(&link).map(|v| v.flow);
        self.set_flow_minbw(flow.ok_or(ChangeError::NoLink(link))?, minbw)
    }

    /// Changes the priority of a VNIC or of a link.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_link_priority(&self, link: LinkId, priority: Priority) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        let flow = registry.vnics.get(&link).map(|v| v.flow);
        let flow = flow.or_else(|| registry.links.get(&link).map(|l| l.flow));
        drop(registry);
        self.set_flow_priority(flow.ok_or(ChangeError::NoLink(link))?, priority)
    }

    /// Says when the device of a VNIC, or of what a link has below, is read; one that has none is asked in vain.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_link_polling(&self, link: LinkId, polling: Polling) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        registry.port_of(link)?.map_or(Ok(()), |port| self.0.tell_all(|_| Control::SetPolling(port, polling)))
    }

    /// Says whether the user of a VNIC gets only what is for it; else he sees all that the stations of its VLAN over the
    /// same link send each other, as much as its limit lets pass: a device gets it, a netstack's captures see it.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_promisc_filtered(&self, vnic: LinkId, is_filtered: bool) -> Result<(), ChangeError> {
        self.0.registry().vnics.get(&vnic).ok_or(ChangeError::NoLink(vnic))?;
        self.0.tell_all(|_| Control::SetOnlooker(vnic, !is_filtered))
    }

    /// Says with whom connections may be fused that belong to a VNIC, or to any over a link. Those that run follow.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_link_fusion(&self, link: LinkId, with: FuseWith) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        let flow = registry.vnics.get(&link).map(|v| v.flow);
        let flow = flow.or_else(|| registry.links.get(&link).map(|l| l.flow));
        drop(registry);
        self.set_flow_fusion(flow.ok_or(ChangeError::NoLink(link))?, with)
    }

    /// The same of a flow.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_flow_fusion(&self, flow: FlowId, with: FuseWith) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        registry.flows.get(&flow).ok_or(ChangeError::NoFlow(flow))?;
        self.0.tell_all(|_| Control::SetFusion(flow, with))
    }

    /// Makes a flow of a VNIC, or of what passes the wire of a link.
    ///
    /// # Errors
    /// The link does not exist or has no wire, one of its flows has the same attributes, or there are too many kinds.
    pub fn add_flow(
        &self,
        link: LinkId,
        rule: FlowMatch,
        maxbw: Option<BitRate>,
        priority: Priority,
    ) -> Result<FlowId, ChangeError> {
        // What was carried up to now belongs to the flows that there are.
        self.0.fabric.count_fused();
        let mut registry = self.0.registry();
        let (owner, parent) = registry.owner_of(link)?;
        let flow = registry.mint_flow();
        if let Err(error) = registry.add_rule(owner, &rule, flow) {
            registry.forget_flow(flow);
            return Err(ChangeError::Rule(error));
        }
        let config = FlowConfig { parent, maxbw, priority };
        let home = registry.home_of(flow, &config, registry.user_of(owner), &self.0.lanes_left());
        let lanes = Vec::new();
        registry.flows.insert(flow, Flow { owner, rule: Some(rule), config, home, lanes });
        let setup = FlowSetup { flow, owner, rule: Some(rule), config, home };
        self.0.tell_all(|_| Control::AddFlow(setup)).inspect_err(|_| registry.forget_flow(flow))?;
        self.0.flows_changed(&mut registry, owner)?;
        Ok(flow)
    }

    /// Removes a flow.
    ///
    /// # Errors
    /// It does not exist.
    pub fn remove_flow(&self, flow: FlowId) -> Result<(), ChangeError> {
        self.0.fabric.count_fused();
        let mut registry = self.0.registry();
        let known = registry.flows.get(&flow).filter(|f| f.rule.is_some());
        let known = known.ok_or(ChangeError::NoFlow(flow))?;
        let (owner, had_lanes) = (known.owner, !known.lanes.is_empty());
        self.0.tell_all(|_| Control::RemoveFlow(flow))?;
        registry.forget_flow(flow);
        self.0.flows_changed(&mut registry, owner)?;
        // No lane serves fewer than before where it had none of its own.
        if had_lanes { self.0.take_back(&mut registry) } else { Ok(()) }
    }

    /// Changes a flow's limit; traffic runs on.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_flow_maxbw(&self, flow: FlowId, maxbw: Option<BitRate>) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        registry.flows.get_mut(&flow).ok_or(ChangeError::NoFlow(flow))?.config.maxbw = maxbw;
        // A limited flow always has its home: it comes before the limit and goes after it.
        if maxbw.is_some() {
            self.0.rehome_below(&mut registry, flow)?;
        }
        self.0.tell_all(|_| Control::SetMaxbw(flow, maxbw))?;
        self.0.rehome_below(&mut registry, flow)
    }

    /// Changes what a flow is guaranteed of the limits above it: until it has had that rate it comes before all others
    /// that wait for them, and what it does not use is theirs. Limits that cannot keep all promises serve first who has
    /// waited longest for his.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_flow_minbw(&self, flow: FlowId, minbw: Option<BitRate>) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        registry.flows.get(&flow).ok_or(ChangeError::NoFlow(flow))?;
        self.0.tell_all(|_| Control::SetMinbw(flow, minbw))
    }

    /// Changes a flow's priority.
    ///
    /// # Errors
    /// It does not exist.
    pub fn set_flow_priority(&self, flow: FlowId, priority: Priority) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        registry.flows.get_mut(&flow).ok_or(ChangeError::NoFlow(flow))?.config.priority = priority;
        self.0.tell_all(|_| Control::SetPriority(flow, priority))
    }

    /// Gives the netstack of a VNIC an address.
    ///
    /// # Errors
    /// The VNIC does not exist or has no netstack, or the netstack has the address.
    pub fn add_address(&self, vnic: LinkId, address: IpPrefix) -> Result<(), ChangeError> {
        let mut registry = self.0.registry_of_now();
        let id = registry.netstack_of(vnic)?;
        // Who takes it back later would take it from its owner.
        if registry.netstack_mut(id)?.has_address(address.addr()) {
            return Err(ChangeError::AddressTaken(address.addr()));
        }
        self.0.tell_all(|_| Control::AddAddress(id, vnic, address))?;
        registry.netstack_mut(id)?.addresses.push((vnic, address));
        Ok(())
    }

    /// Takes an address from the netstack of a VNIC; its connections are aborted. It is nobody's at once, and others are changed
    /// meanwhile; when this returns, programs and peers have been told, by lanes that run.
    ///
    /// # Errors
    /// The VNIC does not exist or has no netstack.
    pub fn remove_address(&self, vnic: LinkId, address: IpPrefix) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let id = registry.netstack_of(vnic)?;
        self.0.tell_all(|_| Control::RemoveAddress(id, vnic, address.addr()))?;
        registry.netstack_mut(id)?.addresses.retain(|a| *a != (vnic, address));
        drop(registry);
        self.0.await_ends();
        Ok(())
    }

    /// Lets a VNIC's netstack configure IPv6 on it by itself, in another way, or no more.
    ///
    /// # Errors
    /// The VNIC does not exist or has no netstack.
    pub fn set_autoconf(&self, vnic: LinkId, settings: Option<AutoconfConfig>) -> Result<(), ChangeError> {
        let id = self.0.registry().netstack_of(vnic)?;
        self.0.tell_all(|_| Control::SetAutoconf(id, vnic, settings))
    }

    /// Gives a netstack a route.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn add_route(&self, id: NetstackId, route: RouteConfig) -> Result<(), ChangeError> {
        self.0.registry().netstack_mut(id)?;
        self.0.tell_all(|_| Control::AddRoute(id, route))
    }

    /// Takes a route from a netstack.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn remove_route(&self, id: NetstackId, route: RouteConfig) -> Result<(), ChangeError> {
        self.0.registry().netstack_mut(id)?;
        self.0.tell_all(|_| Control::RemoveRoute(id, route))
    }

    /// Follows a routing daemon: its routes, apart from the operator's, begin and end in this order. Each lane takes so many
    /// of them at a time that its packets do not wait.
    ///
    /// # Errors
    /// The netstack does not exist, or all lanes are out of service.
    pub fn change_routes(&self, id: NetstackId, changes: &[RouteChange]) -> Result<(), ChangeError> {
        /// Some tens of microseconds of a lane.
        const AT_ONCE: usize = 64;
        self.0.registry().netstack_mut(id)?;
        changes.chunks(AT_ONCE).try_for_each(|some| {
            let some: Arc<[RouteChange]> = some.into();
            self.0.tell_all(|_| Control::ChangeRoutes(id, Arc::clone(&some)))
        })
    }

    /// Everything that can be read of all lanes.
    pub fn snapshot(&self) -> EngineSnapshot {
        EngineSnapshot::take(&self.0.fabric)
    }
}

impl Registry {
    /// The port of a VNIC, or of what a link has below.
    pub(crate) fn port_of(&self, link: LinkId) -> Result<Option<LinkId>, ChangeError> {
        match self.links.get(&link) {
            Some(entry) => Ok(entry.uplink),
            None => self.vnics.get(&link).map(|_| Some(link)).ok_or(ChangeError::NoLink(link)),
        }
    }

    pub(crate) fn netstack_of(&self, vnic: LinkId) -> Result<NetstackId, ChangeError> {
        let vnic_entry = self.vnics.get(&vnic).ok_or(ChangeError::NoLink(vnic))?;
        vnic_entry.netstack.ok_or(ChangeError::NoUser(vnic))
    }
}

impl Inner {
    pub(crate) fn registry(&self) -> Held<'_, Registry> {
        calls::hold(&self.registry)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether lanes have threads of this engine's, which give them their turns.
    pub(crate) fn have_threads(&self) -> bool {
        !self.threads().is_empty()
    }

    pub(crate) fn mint_socket(&self) -> SocketId {
        SocketId(self.next_socket.fetch_add(1, Ordering::Relaxed))
    }

    /// One of `lanes`, in turn; one that has failed only if all have. Where a round begins is drawn by lot, so that no program's calls
    /// keep step with it: one that connects to two peers by turns would have the ports of half of the lanes for each.
    pub(crate) fn some_lane(&self, lanes: &[LaneId]) -> LaneId {
        let turn = self.draw_turn();
        let begins = mix((turn / lanes.len()) as u64) as usize;
        self.lane_of_turn(lanes, begins.wrapping_add(turn))
    }

    /// The next turn of who has a lane.
    pub(crate) fn draw_turn(&self) -> usize {
        self.next_lane.fetch_add(1, Ordering::Relaxed) as usize
    }

    /// Whose turn it is of `lanes`; that of one that has failed is the next one's, unless all have.
    pub(crate) fn lane_of_turn(&self, lanes: &[LaneId], turn: usize) -> LaneId {
        let first = turn % lanes.len();
        let mut in_turn = lanes.iter().cycle().skip(first).take(lanes.len());
        let lives = in_turn.find(|&&lane| !self.fabric.has_failed(lane));
        lives.copied().unwrap_or(lanes[first])
    }

    /// Sends a change to every lane; it is in force everywhere when this has returned. One that has failed keeps no other from it, and
    /// nothing is in force there.
    ///
    /// # Errors
    /// All have failed.
    pub(crate) fn tell_all(&self, control: impl FnMut(LaneId) -> Control<Queue>) -> Result<(), ChangeError> {
        match self.tell_lanes(self.fabric.lane_ids(), control) {
            0 => Err(ChangeError::LaneFailed),
            _ => Ok(()),
        }
    }

    /// Tells those of some lanes that have not failed, and waits until they know; how many these are.
    pub(crate) fn tell_lanes(
        &self,
        lanes: impl IntoIterator<Item = LaneId>,
        mut control: impl FnMut(LaneId) -> Control<Queue>,
    ) -> usize {
        // All are told before the first is waited for.
        let tell = |&lane: &LaneId| self.send(lane, control(lane)).is_ok();
        let told: Vec<_> = lanes.into_iter().filter(tell).collect();
        told.iter().for_each(|&lane| self.fabric.catch_up(lane));
        told.len()
    }

    /// Removes the flows of a VNIC or uplink, its own limit not among them.
    fn remove_flows(&self, registry: &mut Registry, owner: LinkId) -> Result<(), ChangeError> {
        for flow in registry.flows_of(owner) {
            self.tell_all(|_| Control::RemoveFlow(flow))?;
            registry.forget_flow(flow);
        }
        self.flows_changed(registry, owner)
    }

    /// Sends a change to a lane; it is in force when this has returned.
    pub(crate) fn tell(&self, lane: LaneId, control: Control<Queue>) -> Result<(), ChangeError> {
        self.send(lane, control)?;
        self.fabric.catch_up(lane);
        Ok(())
    }

    /// Sends a change to a lane, and gives its worker a turn: a new queue must be asked for notifications.
    fn send(&self, lane: LaneId, control: Control<Queue>) -> Result<(), ChangeError> {
        self.fabric.enter_surely(lane, LaneMessage::Control(Box::new(control)))?;
        self.fabric.squeue(lane).waker().wake();
        Ok(())
    }

    /// Protects a port that is about to be made.
    fn guard(&self, id: LinkId, mac: MacAddr, rules: &ProtectionRules) -> Result<(), ChangeError> {
        if rules.kinds.is_empty() {
            return Ok(());
        }
        self.tell_all(|_| Control::SetGuard(id, mac, Some(rules.clone())))
    }

    /// Adds a port that has no queues.
    pub(crate) fn add_plain_port(&self, config: PortConfig) -> Result<(), ChangeError> {
        self.tell_all(|_| Control::AddPort(config, None))
    }

    /// Adds a port with its queues dealt to the lanes that are left, round and round. Different devices begin at different lanes,
    /// so that they do not crowd in the first.
    /// The answer is in which lane each queue is.
    pub(crate) fn add_port(
        &self,
        id: LinkId,
        over: LinkId,
        kind: PortKind,
        user: VnicUser,
    ) -> Result<Vec<LaneId>, ChangeError> {
        let through = self.lane_of_device(id, 0)?;
        let (user, queues) = match user {
            VnicUser::Nobody => (PortUser::Nobody, Vec::new()),
            VnicUser::Netstack(netstack) => (PortUser::Netstack(netstack), Vec::new()),
            VnicUser::Device(queues) => (PortUser::Driver { through }, queues),
        };
        let mut dealt: Vec<_> = self.fabric.lane_ids().map(|_| VecDeque::new()).collect();
        let mut places = Vec::new();
        for (nth, mut queue) in queues.into_iter().enumerate() {
            let lane = self.lane_of_device(id, nth)?;
            self.fabric.watch(lane, &mut queue)?;
            dealt[lane.index()].push_back(queue);
            places.push(lane);
        }
        let config = PortConfig { id, over, kind, user };
        self.tell_all(|lane| Control::AddPort(config, dealt[lane.index()].pop_front()))?;
        let mut rest = self.fabric.lane_ids().zip(dealt);
        let given = rest.try_for_each(|(lane, mut queues)| {
            queues.drain(..).try_for_each(|queue| self.tell(lane, Control::AddQueue(id, queue)))
        });
        // Its limits are taken away by who made them, behind it.
        given.inspect_err(|_| _ = self.tell_all(|_| Control::RemovePort(id)))?;
        Ok(places)
    }

    /// The lane that is to read the `nth` queue of a port's device.
    ///
    /// # Errors
    /// All have failed.
    pub(crate) fn lane_of_device(&self, port: LinkId, nth: usize) -> Result<LaneId, ChangeError> {
        let lives = |lane: &LaneId| !self.fabric.has_failed(*lane);
        let lanes: Vec<_> = self.fabric.common_lanes().filter(lives).collect();
        lanes
            .iter()
            .copied()
            .cycle()
            .nth((port.0 as usize + nth) % lanes.len().max(1))
            .ok_or(ChangeError::LaneFailed)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for lane in self.fabric.lane_ids() {
            self.fabric.squeue(lane).waker().wake();
        }
        let own = std::thread::current().id();
        let mut threads = self.threads();
        // They end by themselves. In a waker, whose thread may be one of theirs or that of a lane by which what they have to say would
        // leave, they are not waited for.
        if calls::is_calling() || threads.iter().any(|it| it.thread().id() == own) {
            return threads.clear();
        }
        for thread in threads.drain(..) {
            // A lane that panicked has said so already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
