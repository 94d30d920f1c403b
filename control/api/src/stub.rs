//! A host without an engine: the interface over nothing but two models.
//!
//! Commands are tested against it from their arguments to their output, in one process. Its links are up,
//! its addresses usable and its counters whatever a test puts there.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use firelane_model::{AddrObjName, FactoryMac, LinkName, Mac, Model, automatic_mac};
use firelane_units::MacAddr;

use crate::{
    AccountingInfo, AddrInfo, AddrProperty, AddressState, Api, ApiError, CaptureRequest, Change,
    ChangeRequest, DestinationInfo, DeviceInfo, DropInfo, EtherstubInfo, FactorySlotInfo, Facts, FilterInfo,
    Finding, FlowInfo, FlowStats, FpmInfo, GroupInfo, IfInfo, IptunInfo, LeaseAction, Leased, LinkInfo,
    LinkState, LinkStats, MemoryInfo, NatInfo, NatSession, NeighbourInfo, NetstackInfo, ObjectProps,
    PlanReply, PlanStep, PoolsInfo, ProgramReport, Property, ProtocolCounters, ProtocolProperty, Replacing,
    RouteInfo, Snapshot, SocketInfo, SocketPage, Status, StatusInfo, StepInfo, Store, TraceReport,
    TraceRequest, Usage, UsageOf, UsageRequest, UsageSample, VnicInfo, Which, WireInfo, WireStats,
    device_is_there, informed_object, leased_object, made_permanent,
};

/// Plans from the second model to the first; `control/plan` wrapped by whoever may see it.
pub type Planner = fn(wanted: &Model, present: &Model) -> Vec<PlanStep>;

/// What time it is, always, in seconds since 1970.
const NOW: u64 = 1_795_400_000;

/// A host without an engine.
pub struct Stub {
    planner: Planner,
    store: Mutex<Store>,
    /// What `status` says is wrong.
    pub problems: Vec<String>,
    /// What `link_stats` answers.
    pub link_stats: Vec<LinkStats>,
    /// What `flow_stats` answers.
    pub flow_stats: Vec<FlowStats>,
    /// What `wire_stats` answers.
    pub wire_stats: Vec<WireStats>,
    /// What `drops` answers.
    pub drops: Vec<DropInfo>,
    /// What `trace` answers.
    pub trace: TraceReport,
    /// What `steps` answers.
    pub steps: Vec<StepInfo>,
    /// What `doctor` answers.
    pub findings: Vec<Finding>,
    /// What `sockets` answers, two on a page.
    pub sockets: Vec<SocketInfo>,
    /// What `program` answers.
    pub programs: Vec<ProgramReport>,
    /// What the DHCP clients of address objects have.
    pub leased: BTreeMap<AddrObjName, Leased>,
    /// The devices below links.
    pub devices: BTreeMap<LinkName, DeviceInfo>,
    /// What `routes` answers of every netstack.
    pub routes: Vec<RouteInfo>,
    /// What `neighbours` answers of every netstack.
    pub neighbours: Vec<NeighbourInfo>,
    /// What `destinations` answers of every netstack.
    pub destinations: Vec<DestinationInfo>,
    /// What `memory` answers.
    pub memory: MemoryInfo,
    /// What `counters` answers of every netstack.
    pub counters: Vec<ProtocolCounters>,
    /// What `groups` answers of every netstack.
    pub groups: Vec<GroupInfo>,
    /// What `fpm` answers.
    pub fpm: Vec<FpmInfo>,
    /// What `usage` answers, of links as of flows.
    pub usage: Vec<Usage>,
    /// What `usage_samples` answers of each of them.
    pub usage_samples: Vec<UsageSample>,
    /// What `filter` says of the counts; of rules in their order.
    pub filtered: FilterInfo,
    /// What `nat` says of the counts; of rules in their order.
    pub translated: NatInfo,
    /// What `nat_sessions` answers of every netstack.
    pub nat_sessions: Vec<NatSession>,
}

impl Stub {
    /// A host with `model`.
    pub fn new(model: Model, planner: Planner) -> Self {
        let store = Mutex::new(Store::new(model));
        Self {
            planner,
            store,
            problems: Vec::new(),
            link_stats: Vec::new(),
            flow_stats: Vec::new(),
            wire_stats: Vec::new(),
            drops: Vec::new(),
            trace: TraceReport::default(),
            steps: Vec::new(),
            findings: Vec::new(),
            sockets: Vec::new(),
            programs: Vec::new(),
            leased: BTreeMap::new(),
            devices: BTreeMap::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
            destinations: Vec::new(),
            memory: MemoryInfo::default(),
            counters: Vec::new(),
            groups: Vec::new(),
            fpm: Vec::new(),
            usage: Vec::new(),
            usage_samples: Vec::new(),
            filtered: FilterInfo::default(),
            translated: NatInfo::default(),
            nat_sessions: Vec::new(),
        }
    }

    /// Both configurations as they are.
    pub fn store(&self) -> Store {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // The store is replaced whole, so a panic elsewhere cannot leave it half changed.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a link's device has from its factory.
    fn slots(&self, name: &LinkName) -> Vec<FactoryMac> {
        let known = self.devices.get(name).map(|it| it.factory.as_slice()).unwrap_or_default();
        known.iter().filter_map(FactorySlotInfo::mac).collect()
    }

    /// The address of a VNIC: a factory's, or as the model chooses.
    fn mac_of(&self, model: &Model, name: &LinkName) -> MacAddr {
        let vnic = model.vnics.get(name);
        let over = vnic.and_then(|vnic| vnic.over.link());
        let slots = over.map(|over| self.slots(over)).unwrap_or_default();
        let its = slots.iter().find(|it| vnic.is_some_and(|vnic| vnic.mac == Mac::Factory(Some(it.slot))));
        its.map_or_else(|| automatic_mac(name, 0, 0), |it| it.mac)
    }

    fn snapshot<T>(&self, which: Which, view: impl FnOnce(Snapshot<'_>) -> T) -> T {
        let store = self.lock();
        let facts: &dyn Facts = match which {
            Which::Active => &Running { stub: self, model: &store.active },
            Which::Persistent => &Stored,
        };
        view(Snapshot { model: store.model(which), persistent: &store.persistent, facts })
    }
}

struct Running<'a> {
    stub: &'a Stub,
    model: &'a Model,
}

impl Facts for Running<'_> {
    fn link_state(&self, _: &LinkName) -> LinkState {
        LinkState::Up
    }

    fn mac(&self, name: &LinkName) -> Option<MacAddr> {
        Some(self.stub.mac_of(self.model, name))
    }

    fn device(&self, name: &LinkName) -> Option<DeviceInfo> {
        self.stub.devices.get(name).cloned()
    }

    fn address_state(&self, _: &AddrObjName) -> AddressState {
        AddressState::Ok
    }

    fn leased(&self, name: &AddrObjName) -> Option<Leased> {
        self.stub.leased.get(name).cloned()
    }
}

struct Stored;

impl Facts for Stored {}

impl Api for Stub {
    fn status(&self) -> Result<StatusInfo, ApiError> {
        let store = self.lock();
        Ok(StatusInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lanes: 1,
            links: store.active.link_names().count(),
            flows: store.active.flows.len(),
            netstacks: store.active.netstacks.len(),
            configuration: store.mark(),
            problems: self.problems.clone(),
            ..StatusInfo::default()
        })
    }

    fn model(&self, which: Which) -> Result<Model, ApiError> {
        Ok(self.lock().model(which).clone())
    }

    fn plan(&self, wanted: &Model) -> Result<PlanReply, ApiError> {
        let store = self.lock();
        let mut next = store.replaced(wanted, false)?;
        next.settle(&store.active, &|name, _| self.slots(name))?;
        let mut steps = (self.planner)(&next.active, &store.active);
        steps.extend(made_permanent((self.planner)(&next.persistent, &store.kept_beside(&next))));
        Ok(PlanReply { steps })
    }

    fn apply(&self, wanted: &Model, how: Replacing) -> Result<PlanReply, ApiError> {
        let mut store = self.lock();
        let mut next = store.replaced_as(wanted, how)?;
        next.settle(&store.active, &|name, _| self.slots(name))?;
        let mut steps = (self.planner)(&next.active, &store.active);
        if !how.temporary {
            steps.extend(made_permanent((self.planner)(&next.persistent, &store.kept_beside(&next))));
        }
        *store = next;
        Ok(PlanReply { steps })
    }

    fn change(&self, request: &ChangeRequest) -> Result<(), ApiError> {
        let mut store = self.lock();
        if let Change::DeletePhys(name) = &request.change
            && self.devices.contains_key(name)
        {
            return Err(device_is_there(name));
        }
        let mut next = store.changed(&request.clone().at(NOW))?;
        next.settle(&store.active, &|name, _| self.slots(name))?;
        *store = next;
        Ok(())
    }

    fn tell_client(&self, name: &str, action: LeaseAction) -> Result<(), ApiError> {
        let model = &self.lock().active;
        match action {
            LeaseAction::Inform => informed_object(model, name).map(drop),
            LeaseAction::Refresh | LeaseAction::Release => leased_object(model, name).map(drop),
        }
    }

    fn links(&self, which: Which) -> Result<Vec<LinkInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.links()))
    }

    fn vnics(&self, which: Which) -> Result<Vec<VnicInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.vnics()))
    }

    fn iptuns(&self, which: Which) -> Result<Vec<IptunInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.iptuns()))
    }

    fn etherstubs(&self, which: Which) -> Result<Vec<EtherstubInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.etherstubs()))
    }

    fn wires(&self, which: Which) -> Result<Vec<WireInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.wires()))
    }

    fn flows(&self, which: Which) -> Result<Vec<FlowInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.flows()))
    }

    fn addrs(&self, which: Which) -> Result<Vec<AddrInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.addrs()))
    }

    fn ifs(&self, which: Which) -> Result<Vec<IfInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.ifs()))
    }

    fn netstacks(&self, which: Which) -> Result<Vec<NetstackInfo>, ApiError> {
        Ok(self.snapshot(which, |it| it.netstacks()))
    }

    fn link_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError> {
        self.snapshot(which, |it| it.link_props(name))
    }

    fn flow_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError> {
        self.snapshot(which, |it| it.flow_props(name))
    }

    fn all_link_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError> {
        Ok(self.snapshot(which, |it| it.all_link_props()))
    }

    fn all_flow_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError> {
        Ok(self.snapshot(which, |it| it.all_flow_props()))
    }

    fn netstack_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        self.snapshot(Which::Active, |it| it.netstack_props(name))
    }

    fn if_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        self.snapshot(Which::Active, |it| it.if_props(name))
    }

    fn addr_props(&self, name: &str) -> Result<Vec<AddrProperty>, ApiError> {
        self.snapshot(Which::Active, |it| it.addr_props(name))
    }

    fn routes(&self, name: &str) -> Result<Vec<RouteInfo>, ApiError> {
        self.snapshot(Which::Active, |it| it.netstack_props(name))?;
        Ok(self.routes.clone())
    }

    fn neighbours(&self, name: &str) -> Result<Vec<NeighbourInfo>, ApiError> {
        self.snapshot(Which::Active, |it| it.netstack_props(name))?;
        Ok(self.neighbours.clone())
    }

    fn destinations(&self, name: &str) -> Result<Vec<DestinationInfo>, ApiError> {
        self.snapshot(Which::Active, |it| it.netstack_props(name))?;
        Ok(self.destinations.clone())
    }

    fn memory(&self) -> Result<MemoryInfo, ApiError> {
        Ok(self.memory.clone())
    }

    fn counters(&self, name: &str) -> Result<Vec<ProtocolCounters>, ApiError> {
        self.snapshot(Which::Active, |it| it.netstack_props(name))?;
        Ok(self.counters.clone())
    }

    fn groups(&self, name: &str) -> Result<Vec<GroupInfo>, ApiError> {
        self.snapshot(Which::Active, |it| it.netstack_props(name))?;
        Ok(self.groups.clone())
    }

    fn fpm(&self) -> Result<Vec<FpmInfo>, ApiError> {
        Ok(self.fpm.clone())
    }

    fn filter(&self, name: &str) -> Result<FilterInfo, ApiError> {
        let store = self.lock();
        let netstack = store.active.netstacks.get(name);
        let netstack = netstack.ok_or_else(|| ApiError::new(Status::NotFound, "netstack", name, ""))?;
        Ok(self.filtered.clone().of_rules(&netstack.filter))
    }

    fn pools(&self, name: &str) -> Result<PoolsInfo, ApiError> {
        let store = self.lock();
        let netstack = store.active.netstacks.get(name);
        let netstack = netstack.ok_or_else(|| ApiError::new(Status::NotFound, "netstack", name, ""))?;
        let held = netstack.pools.values().map(|pool| pool.entries().len() as u64).sum();
        Ok(PoolsInfo::of(&netstack.pools, NOW, vec![held]))
    }

    fn nat(&self, name: &str) -> Result<NatInfo, ApiError> {
        let store = self.lock();
        let netstack = store.active.netstacks.get(name);
        let netstack = netstack.ok_or_else(|| ApiError::new(Status::NotFound, "netstack", name, ""))?;
        Ok(self.translated.clone().of_rules(&netstack.nat, &netstack.nat_limits))
    }

    fn nat_sessions(&self, name: &str) -> Result<Vec<NatSession>, ApiError> {
        self.nat(name).map(|_| self.nat_sessions.clone())
    }

    fn flush_nat(&self, name: &str) -> Result<u64, ApiError> {
        self.nat(name).map(|it| it.totals.sessions)
    }

    fn sockets(&self, netstack: Option<&str>, after: Option<&str>) -> Result<SocketPage, ApiError> {
        const ON_A_PAGE: usize = 2;
        let start = after.unwrap_or("0").parse::<usize>();
        let start =
            start.map_err(|_| ApiError::new(Status::BadArg, "after", after.unwrap_or_default(), ""))?;
        if let Some(name) = netstack
            && !self.lock().active.netstacks.keys().any(|it| it.as_str() == name)
        {
            return Err(ApiError::new(Status::NotFound, "netstack", name, ""));
        }
        let of_it = |it: &&SocketInfo| netstack.is_none_or(|name| it.netstack.as_str() == name);
        let all: Vec<_> = self.sockets.iter().filter(of_it).collect();
        let page = all.iter().skip(start).take(ON_A_PAGE).map(|it| (*it).clone()).collect();
        let next = start + ON_A_PAGE;
        Ok(SocketPage { sockets: page, next: (next < all.len()).then(|| next.to_string()) })
    }

    fn program(&self, pid: u32) -> Result<ProgramReport, ApiError> {
        let found = self.programs.iter().find(|it| it.pid == pid).cloned();
        found.ok_or_else(|| ApiError::new(Status::NotFound, "process", pid, ""))
    }

    fn link_stats(&self) -> Result<Vec<LinkStats>, ApiError> {
        Ok(self.link_stats.clone())
    }

    fn flow_stats(&self) -> Result<Vec<FlowStats>, ApiError> {
        Ok(self.flow_stats.clone())
    }

    fn wire_stats(&self) -> Result<Vec<WireStats>, ApiError> {
        Ok(self.wire_stats.clone())
    }

    fn usage(&self, request: &UsageRequest) -> Result<Vec<Usage>, ApiError> {
        let is_asked = |usage: &&Usage| usage.link.is_empty() == (request.of == UsageOf::Links);
        let shown = self.usage.iter().filter(is_asked).filter(|usage| request.all || !usage.deleted);
        Ok(shown.cloned().collect())
    }

    fn usage_samples(&self, name: &str, _: &UsageRequest) -> Result<Vec<UsageSample>, ApiError> {
        if !self.usage.iter().any(|usage| usage.name == name) {
            return Err(ApiError::new(Status::NotFound, "name", name, ""));
        }
        Ok(self.usage_samples.clone())
    }

    fn capture(&self, wanted: &CaptureRequest, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), ApiError> {
        sink(wanted.query().as_bytes());
        Ok(())
    }

    fn trace(&self, wanted: &TraceRequest, _: &dyn Fn() -> bool) -> Result<TraceReport, ApiError> {
        wanted.check()?;
        Ok(self.trace.clone())
    }

    fn steps(&self, _: u32, _: &dyn Fn() -> bool) -> Result<Vec<StepInfo>, ApiError> {
        Ok(self.steps.clone())
    }

    fn accounting(&self) -> Result<AccountingInfo, ApiError> {
        let accounting = self.lock().active.daemon.accounting.clone();
        Ok(AccountingInfo { accounting, fault: None })
    }

    fn drops(&self) -> Result<Vec<DropInfo>, ApiError> {
        Ok(self.drops.clone())
    }

    fn doctor(&self) -> Result<Vec<Finding>, ApiError> {
        Ok(self.findings.clone())
    }
}
