//! What stands behind the names of the model: the engine's identifiers, the kernel's interfaces, services.
//!
//! Called by `host.rs`, which gives one step at a time. A step is carried out whole or not at all; what it
//! needs and is not there is an error, because at the start a step may rest on one that failed.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use firelane::{
    AutoconfConfig, Engine, IfRouting, IidKind, MemifStatus, Queue, Rings, VnicConfig, VnicUser, Wire,
};
use firelane_api::{ApiError, Informed, LaneReceived, Status, Traffic};
use firelane_model::{
    AddrObjName, Addrconf, Address, Cpus, Dhcp, Etherstub, Filter, Flow, FlowName, Fusing, IfProps, Instance,
    Interface, Link, LinkKind, LinkName, LinkRings, Mac, Model, NetstackName, Over, Polling, ReversePath,
    Service, StaticAddress, Switch, Tunables, Vnic,
};
use firelane_plan::{Action, Step, apply_to_model};
use firelane_units::{BitRate, FlowId, LinkId, MacAddr, Mtu, NetstackId, Priority};

use crate::dhcp::{Clients, Place};
use crate::filter;
use crate::fpm::Fpms;
use crate::history::accounting;
use crate::kernel::{Device, Kernel, Wanted};
use crate::listener;
use crate::mac::Macs;
use crate::memif;
use crate::nic::{self, Attached};
use crate::refusal::{refused, refused_to};
use crate::services::Services;
use crate::settings;

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Works {
    pub(crate) engine: Engine,
    pub(crate) kernel: Kernel,
    pub(crate) links: BTreeMap<LinkName, Lower>,
    pub(crate) vnics: BTreeMap<LinkName, Upper>,
    pub(crate) wires: BTreeMap<LinkName, Wire>,
    pub(crate) netstacks: BTreeMap<NetstackName, NetstackId>,
    pub(crate) flows: BTreeMap<FlowName, FlowId>,
    pub(crate) clients: Clients,
    pub(crate) fpms: Fpms,
    services: Services,
    pub(crate) macs: Macs,
    /// The socket for programs.
    door: PathBuf,
}

/// A link or etherstub.
#[derive(Debug)]
pub(crate) struct Lower {
    pub(crate) id: LinkId,
    pub(crate) uplink: Option<LinkId>,
    pub(crate) device: Option<Device>,
    pub(crate) memif: Option<MemifStatus>,
    pub(crate) nic: Option<Attached>,
    /// What VNICs that are gone have carried over it, where its counters are the sum of theirs.
    pub(crate) parted: Parted,
    /// When its interface, which had gone, did not get all that is said of the link.
    pub(crate) unsettled: Option<Instant>,
}

/// What VNICs that are gone have carried over an etherstub, as it counts: what they sent came in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parted {
    pub(crate) traffic: Traffic,
    pub(crate) lanes: Vec<LaneReceived>,
}

/// A VNIC.
#[derive(Debug)]
pub(crate) struct Upper {
    pub(crate) id: LinkId,
    pub(crate) mac: MacAddr,
    pub(crate) device: Option<Device>,
    pub(crate) memif: Option<MemifStatus>,
    /// The link below; without one it leads into a tunnel of its own.
    pub(crate) over: Option<LinkId>,
}

pub(crate) type Done = Result<(), ApiError>;

impl Works {
    /// Nothing but an engine. Services keep relative folders in `data`; programs come to the socket `door`.
    pub(crate) fn new(
        engine: Engine,
        kernel: Kernel,
        instance: &Instance,
        (data, door): (PathBuf, PathBuf),
        runtime: tokio::runtime::Handle,
        clients: Clients,
    ) -> Self {
        Self {
            fpms: Fpms::new(engine.clone(), instance.clone()),
            engine,
            kernel,
            links: BTreeMap::new(),
            vnics: BTreeMap::new(),
            wires: BTreeMap::new(),
            netstacks: BTreeMap::new(),
            flows: BTreeMap::new(),
            clients,
            services: Services::new(runtime, data),
            macs: Macs::of_host(instance),
            door,
        }
    }

    /// Carries out `step`; `present` is the model before it.
    pub(crate) fn carry_out(&mut self, step: &Step, present: &Model) -> Done {
        match &step.action {
            // Lanes are made at the start; status says what the next one changes. Where they run changes now.
            Action::SetDaemon(from, to) => {
                if from.accounting != to.accounting {
                    // Its writer follows by itself.
                    accounting::check(&to.accounting)?;
                }
                if from.cpus != to.cpus {
                    self.engine.set_cpus(&to.cpus.numbers().collect::<Vec<_>>()).map_err(refused)?;
                }
                if from.slice != to.slice {
                    self.engine.set_slice(to.slice.duration()).map_err(refused)?;
                }
                Ok(())
            }
            Action::CreateNetstack(name, cpus, tunables) => self.create_netstack(name, cpus, tunables),
            Action::SetCpus(name, _, cpus) => {
                let cpus: Vec<_> = cpus.numbers().collect();
                self.engine.set_netstack_cpus(self.netstack(name)?, &cpus).map_err(refused)
            }
            Action::SetTunables(name, _, tunables) => self.set_tunables(name, tunables),
            Action::DeleteNetstack(name) => {
                self.delete_netstack(name)?;
                self.set_door(step, present);
                Ok(())
            }
            Action::SetPrograms(..) => {
                self.set_door(step, present);
                Ok(())
            }
            Action::SetFilter(name, from, filter) => self.set_filter(name, from, filter),
            Action::SetFpm(name, _, fpm) => {
                self.fpms.set(name, self.netstack(name)?, fpm.as_ref())?;
                self.note_interfaces(present);
                Ok(())
            }
            Action::CreateLink(name, link) => self.create_link(name, link, present),
            Action::CreateEtherstub(name, stub) => self.create_etherstub(name, stub),
            Action::DeleteLink(name) | Action::DeleteEtherstub(name) => self.delete_lower(name),
            Action::SetLink(name, from, to) => {
                self.resize(name, (from, to.mtu), present)?;
                self.set_lower(name, from.into(), to.into())
            }
            Action::SetEtherstub(name, from, to) => self.set_etherstub(name, from, to),
            Action::CreateWire(..) | Action::SetWire(..) | Action::DeleteWire(_) => {
                self.step_of_wire(&step.action, present)
            }
            Action::CreateVnic(name, vnic) => self.create_vnic(name, vnic, present),
            Action::SetVnic(name, from, to) => self.set_vnic(name, from, to, present),
            Action::DeleteVnic(name) => self.delete_vnic(name),
            Action::AddFlow(..) | Action::SetFlow(..) | Action::RemoveFlow(_) => self.step_of_flow(step),
            Action::StartService(..) | Action::SetService(..) | Action::StopService(_) => {
                self.step_of_service(step)
            }
            _ => self.step_of_ip(step, present),
        }
    }

    fn step_of_ip(&mut self, step: &Step, present: &Model) -> Done {
        match &step.action {
            Action::AddAddress(netstack, name, address) => {
                let link = self.interface(name)?;
                match address {
                    Address::Static(it) => self.begin_static(link, *it),
                    Address::Addrconf(it) => self.begin_addrconf(netstack, name, it),
                    Address::Dhcp(it) => self.begin_dhcp(netstack, name, it),
                }
            }
            Action::RemoveAddress(netstack, name) => {
                let known = present.netstacks.get(netstack).and_then(|it| it.addresses.get(name));
                let address = known.ok_or(Status::NoAddrObj)?;
                let link = self.interface(name)?;
                self.clients.stop(name);
                match address {
                    Address::Static(it) if it.down => {
                        self.engine.abort_address(link, it.prefix()).map_err(refused)
                    }
                    Address::Static(it) => self.engine.remove_address(link, it.prefix()).map_err(refused),
                    Address::Addrconf(_) => self.engine.set_autoconf(link, None).map_err(refused),
                    Address::Dhcp(_) => Ok(()),
                }
            }
            Action::SetInterface(_, name, _, to) => {
                let mtu = present.vnics.get(name).and_then(|it| it.mtu);
                self.set_routing(self.upper(name)?.id, to, mtu)
            }
            Action::SetAddress(_, name, from, to) => self.set_address(name, from, to),
            Action::AddRoute(netstack, route) => {
                self.engine.add_route(self.netstack(netstack)?, settings::route(route)).map_err(refused)
            }
            Action::RemoveRoute(netstack, route) => {
                self.engine.remove_route(self.netstack(netstack)?, settings::route(route)).map_err(refused)
            }
            _ => Ok(()),
        }
    }

    /// An address is used from now on, if it is not down.
    fn begin_static(&self, link: LinkId, it: StaticAddress) -> Done {
        if it.down {
            return Ok(());
        }
        self.engine.add_address(link, it.prefix()).map_err(refused)?;
        match it.deprecated {
            true => self.engine.set_address(link, it.prefix(), true).map_err(refused),
            false => Ok(()),
        }
    }

    /// What changes of an address that stays.
    fn set_address(&mut self, name: &AddrObjName, from: &Address, to: &Address) -> Done {
        match to {
            Address::Static(it) => {
                let (link, was_down) =
                    (self.interface(name)?, matches!(from, Address::Static(from) if from.down));
                match (was_down, it.down) {
                    (false, false) => {
                        self.engine.set_address(link, it.prefix(), it.deprecated).map_err(refused)
                    }
                    (false, true) => {
                        self.clients.stop(name);
                        let before = from.prefix().unwrap_or(it.prefix());
                        self.engine.suspend_address(link, before).map_err(refused)
                    }
                    (true, _) => self.begin_static(link, *it),
                }
            }
            Address::Dhcp(it) => self.clients.change(name, it),
            Address::Addrconf(_) => Ok(()),
        }
    }

    /// What is said of an interface in the engine's words, and what its VNIC has for an MTU of its own: the engine knows that
    /// of the link below.
    fn set_routing(&self, link: LinkId, said: &Interface, of_vnic: Option<Mtu>) -> Done {
        let source = |props: &IfProps| props.usesrc.as_ref().map(|it| self.upper(it)).transpose();
        let mtu = |props: &IfProps| [props.mtu, of_vnic].into_iter().flatten().min();
        let routing = IfRouting {
            forwards_v4: said.ipv4.forwarding.map(Switch::is_on),
            forwards_v6: said.ipv6.forwarding.map(Switch::is_on),
            mtu_v4: mtu(&said.ipv4),
            mtu_v6: mtu(&said.ipv6),
            sources_v4: source(&said.ipv4)?.map(|it| it.id),
            sources_v6: source(&said.ipv6)?.map(|it| it.id),
            reverse_path_v4: reverse_path(&said.ipv4),
            reverse_path_v6: reverse_path(&said.ipv6),
        };
        self.engine.set_interface(link, routing).map_err(refused)
    }

    fn begin_dhcp(&mut self, netstack: &NetstackName, name: &AddrObjName, conf: &Dhcp) -> Done {
        let (stack, link, mac) = self.place(netstack, name)?;
        self.clients.start(name, conf, &Place { stack: &stack, link, mac })
    }

    /// Asks the servers of an address' network what it is like.
    pub(crate) fn inform(&mut self, asker: &Informed) -> Done {
        let (stack, link, mac) = self.place(&asker.netstack, &asker.name)?;
        self.clients.inform(asker, &Place { stack: &stack, link, mac })
    }

    /// The client comes before the routers are asked, whose answer it waits for.
    fn begin_addrconf(&mut self, netstack: &NetstackName, name: &AddrObjName, conf: &Addrconf) -> Done {
        let (stack, link, mac) = self.place(netstack, name)?;
        if conf.stateful {
            self.clients.start_v6(name, &Place { stack: &stack, link, mac })?;
        }
        let begun = self.engine.set_autoconf(link, Some(autoconf(conf))).map_err(refused);
        begun.inspect_err(|_| self.clients.stop(name))
    }

    /// Where a client of an address object works.
    fn place(
        &self,
        netstack: &NetstackName,
        name: &AddrObjName,
    ) -> Result<(firelane::Stack, LinkId, MacAddr), ApiError> {
        let absent = || ApiError::new(Status::NoIf, "interface", name.interface(), "");
        let (link, mac) = self.vnics.get(name.interface()).map(|it| (it.id, it.mac)).ok_or_else(absent)?;
        let stack = self.engine.stack(self.netstack(netstack)?).ok_or(Status::NotFound)?;
        Ok((stack, link, mac))
    }

    fn step_of_flow(&mut self, step: &Step) -> Done {
        match &step.action {
            Action::AddFlow(name, flow) => self.add_flow(name, flow),
            Action::SetFlow(name, from, to) => self.set_flow(name, from, to),
            Action::RemoveFlow(name) => {
                match self.engine.remove_flow(self.flow(name)?) {
                    // Something behind its end was refused the last time.
                    Ok(()) | Err(firelane::ChangeError::NoFlow(_)) => {}
                    Err(error) => return Err(refused(error)),
                }
                self.flows.remove(name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn step_of_service(&mut self, step: &Step) -> Done {
        match &step.action {
            Action::StartService(name, service) => {
                let stack = self.stack_of(service)?;
                self.services.start(name, service, &stack)
            }
            Action::SetService(name, _, to) => self.services.change(name, to),
            Action::StopService(name) => {
                self.services.stop(name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends everything that is not in a lane: services, and then the interfaces with their namespaces.
    pub(crate) fn shut_down(&mut self) {
        self.services.stop_all();
        self.fpms.stop_all();
        for name in self.vnics.keys().cloned().collect::<Vec<_>>() {
            if let Err(error) = self.delete_vnic(&name) {
                tracing::warn!("vnic {name}: {error}");
            }
        }
        for name in self.links.keys().cloned().collect::<Vec<_>>() {
            if let Err(error) = self.delete_lower(&name) {
                tracing::warn!("link {name}: {error}");
            }
        }
        self.kernel.collect(&Model::default());
    }

    /// Interfaces that are attached in another way than the best, and why, and those that the kernel misses.
    pub(crate) fn detours(&self) -> Vec<String> {
        let nics = self.links.values().filter_map(|it| it.nic.as_ref());
        let nics = nics.flat_map(|nic| nic.detour().into_iter().chain(nic.cut_off()).chain(nic.renamed()));
        self.device_detours().chain(nics).collect()
    }

    /// Those of them that are in place of a TAP, and TAPs that have another name.
    pub(crate) fn device_detours(&self) -> impl Iterator<Item = String> {
        let links = self.links.values().map(|it| &it.device);
        let devices = links.chain(self.vnics.values().map(|it| &it.device));
        devices.flatten().flat_map(|it| it.detour().into_iter().chain(it.renamed()))
    }

    /// TAPs at whose door nothing hangs.
    pub(crate) fn doorless(&self) -> impl Iterator<Item = &str> {
        let links = self.links.values().map(|it| &it.device);
        let devices = links.chain(self.vnics.values().map(|it| &it.device));
        devices.filter_map(|it| it.as_ref()?.doorless())
    }

    pub(crate) fn netstack(&self, name: &NetstackName) -> Result<NetstackId, ApiError> {
        let known = self.netstacks.get(name).copied();
        known.ok_or_else(|| ApiError::new(Status::NotFound, "netstack", name, ""))
    }

    pub(crate) fn flow(&self, name: &FlowName) -> Result<FlowId, ApiError> {
        self.flows.get(name).copied().ok_or_else(|| ApiError::new(Status::NotFound, "flow", name, ""))
    }

    fn upper(&self, name: &LinkName) -> Result<&Upper, ApiError> {
        self.vnics.get(name).ok_or_else(|| ApiError::new(Status::NoIf, "interface", name, ""))
    }

    fn interface(&self, address: &AddrObjName) -> Result<LinkId, ApiError> {
        let known = self.vnics.get(address.interface());
        known.map(|it| it.id).ok_or_else(|| ApiError::new(Status::NoIf, "interface", address.interface(), ""))
    }

    fn stack_of(&self, service: &Service) -> Result<firelane::Stack, ApiError> {
        let id = self.netstack(&service.netstack)?;
        self.engine.stack(id).ok_or_else(|| Status::NotFound.into())
    }
}

/// The engine's words for how an interface configures itself; `stateful` is the DHCPv6 client's to follow.
fn autoconf(conf: &Addrconf) -> AutoconfConfig {
    AutoconfConfig {
        iid: conf.interface_id.map_or(IidKind::Stable, IidKind::Token),
        stateless: conf.stateless,
        temporary: conf.temporary,
    }
}

/// Netstacks.
impl Works {
    fn create_netstack(&mut self, name: &NetstackName, cpus: &Cpus, tunables: &Tunables) -> Done {
        let (config, cpus) = (settings::netstack(tunables), cpus.numbers().collect::<Vec<_>>());
        let id = self.engine.add_netstack_on(&config, &cpus).map_err(refused)?;
        self.netstacks.insert(name.clone(), id);
        Ok(())
    }

    fn set_tunables(&mut self, name: &NetstackName, tunables: &Tunables) -> Done {
        self.engine.tune(self.netstack(name)?, &settings::netstack(tunables)).map_err(refused)
    }

    /// Only what differs is told, so that rules go on counting and large pools are not filled anew. What comes into pools is there
    /// before the rules that name it, and what goes is there as long as they are.
    fn set_filter(&mut self, name: &NetstackName, from: &Filter, filter: &Filter) -> Done {
        let (rules, nat) = (filter::rules(filter, &self.vnics)?, filter::nat(filter, &self.vnics)?);
        let (netstack, engine) = (self.netstack(name)?, &self.engine);
        let (coming, going) = filter::pool_changes(from, filter, |until| filter::moment(engine, until));
        engine.change_pools(netstack, &coming).map_err(refused)?;
        if (&from.rules, &from.nat, from.nat_limits) != (&filter.rules, &filter.nat, filter.nat_limits) {
            engine.set_filter(netstack, rules).map_err(refused)?;
            engine.set_nat(netstack, nat).map_err(refused)?;
        }
        engine.change_pools(netstack, &going).map_err(refused)
    }

    /// Programs of others than the daemon's own may knock as long as the model names any.
    fn set_door(&self, step: &Step, present: &Model) {
        let mut model = present.clone();
        apply_to_model(&mut model, step);
        match listener::set_mode(&self.door, &model) {
            // At the daemon's start there is no socket yet, which is opened with the right mode.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: who may come to it was not changed: {error}", self.door.display());
            }
            _ => {}
        }
    }

    fn delete_netstack(&mut self, name: &NetstackName) -> Done {
        self.fpms.forget(name);
        self.engine.remove_netstack(self.netstack(name)?).map_err(refused)?;
        self.netstacks.remove(name);
        Ok(())
    }
}

/// Where the lanes of a link run that says nothing of it.
static NO_CPUS: Cpus = Cpus::NONE;

/// The properties that links of every class have.
#[derive(Clone, Copy)]
pub(crate) struct Properties<'a> {
    pub(crate) maxbw: Option<BitRate>,
    /// Of VNICs alone.
    pub(crate) minbw: Option<BitRate>,
    pub(crate) priority: Priority,
    pub(crate) fusion: Fusing,
    /// Of what has a device.
    pub(crate) polling: Polling,
    pub(crate) cpus: &'a Cpus,
    pub(crate) rings: Rings,
    /// Of VNICs alone: whether its user sees what is for others.
    pub(crate) looks_on: bool,
    /// What those by which frames come from the device are called, and the others.
    pub(crate) ring_names: [&'static str; 2],
}

impl<'a> From<&'a Link> for Properties<'a> {
    fn from(it: &'a Link) -> Self {
        let &Link { maxbw, priority, fusion, polling, ref cpus, ref kind, rings, .. } = it;
        let rings = if *kind == LinkKind::Memory { LinkRings::UNSAID } else { rings };
        let rings = Rings { fetched: counted(rings.rx), sent: counted(rings.tx) };
        Self { maxbw, minbw: None, priority, fusion, polling, cpus, rings, ..Self::UNLIMITED }
    }
}

impl From<&Etherstub> for Properties<'_> {
    fn from(it: &Etherstub) -> Self {
        let Etherstub { maxbw, priority, fusion, .. } = *it;
        Self { maxbw, priority, fusion, ..Self::UNLIMITED }
    }
}

impl<'a> From<&'a Vnic> for Properties<'a> {
    fn from(it: &'a Vnic) -> Self {
        let &Vnic { maxbw, minbw, priority, fusion, polling, ref cpus, rings, promisc_filtered, .. } = it;
        let has_device = it.tap().is_some() || it.memif().is_some();
        let rings = if has_device { rings } else { LinkRings::UNSAID };
        // What its user sends is fetched.
        let rings = Rings { fetched: counted(rings.tx), sent: counted(rings.rx) };
        let (looks_on, ring_names) = (!promisc_filtered.is_on(), ["txrings", "rxrings"]);
        Self { maxbw, minbw, priority, fusion, polling, cpus, rings, looks_on, ring_names }
    }
}

/// As the engine counts rings.
fn counted(rings: Option<firelane_model::Rings>) -> Option<u16> {
    match rings? {
        firelane_model::Rings::Software => Some(1),
        firelane_model::Rings::Hardware => None,
        firelane_model::Rings::Count(count) => Some(count),
    }
}

/// What leads out of a link.
#[derive(Default)]
pub(crate) struct Below {
    pub(crate) device: Option<Device>,
    pub(crate) memif: Option<MemifStatus>,
    pub(crate) nic: Option<Attached>,
    pub(crate) queues: Vec<Queue>,
}

/// Links and etherstubs.
impl Works {
    pub(crate) fn create_link(&mut self, name: &LinkName, link: &Link, present: &Model) -> Done {
        let below = self.below(name, link, present)?;
        self.create_lower(name, link.mtu, link.into(), below)
    }

    fn create_etherstub(&mut self, name: &LinkName, stub: &Etherstub) -> Done {
        self.create_lower(name, stub.mtu, stub.into(), Below::default())
    }

    fn create_lower(&mut self, name: &LinkName, mtu: Mtu, properties: Properties<'_>, below: Below) -> Done {
        let Below { device, memif, nic, queues } = below;
        let made = self.engine.add_link(mtu).map_err(refused).and_then(|id| {
            let uplink = (!queues.is_empty()).then(|| self.engine.add_uplink(id, queues)).transpose();
            let set = uplink.map_err(refused).and_then(|uplink| {
                let parted = Parted::default();
                let lower = Lower { id, uplink, device: None, memif, nic, parted, unsettled: None };
                self.limit(id, Properties::UNLIMITED, properties).map(|()| lower)
            });
            set.inspect_err(|_| drop(self.engine.remove_link(id)))
        });
        match made {
            Ok(lower) => {
                self.links.insert(name.clone(), Lower { device, ..lower });
                Ok(())
            }
            Err(error) => {
                device.iter().for_each(|device| self.kernel.close(device));
                Err(error)
            }
        }
    }

    pub(crate) fn delete_lower(&mut self, name: &LinkName) -> Done {
        let lower = self.links.get(name).ok_or(Status::LinkInvalid)?;
        self.engine.remove_link(lower.id).map_err(refused)?;
        if let Some(device) = self.links.remove(name).and_then(|it| it.device) {
            self.kernel.close(&device);
        }
        Ok(())
    }

    fn set_etherstub(&mut self, name: &LinkName, from: &Etherstub, to: &Etherstub) -> Done {
        self.tell_mtu(name, from.mtu, to.mtu)?;
        self.set_lower(name, from.into(), to.into())
    }

    fn set_lower(&mut self, name: &LinkName, from: Properties<'_>, to: Properties<'_>) -> Done {
        let id = self.links.get(name).ok_or(Status::LinkInvalid)?.id;
        self.limit(id, from, to)
    }

    /// Changes limit, guarantee, priority, fusion, polling and lanes; on an error they are as before.
    pub(crate) fn limit(&self, id: LinkId, from: Properties<'_>, to: Properties<'_>) -> Done {
        let change = |from: Properties<'_>, to: Properties<'_>| {
            // First, because a CPU or a ring may be refused.
            if from.cpus != to.cpus {
                self.engine.set_link_cpus(id, &to.cpus.numbers().collect::<Vec<_>>())?;
            }
            if from.rings != to.rings {
                self.engine.set_link_rings(id, to.rings)?;
            }
            if from.maxbw != to.maxbw {
                self.engine.set_link_maxbw(id, to.maxbw)?;
            }
            if from.minbw != to.minbw {
                self.engine.set_link_minbw(id, to.minbw)?;
            }
            if from.priority != to.priority {
                self.engine.set_link_priority(id, to.priority)?;
            }
            if from.fusion != to.fusion {
                self.engine.set_link_fusion(id, settings::fusion(to.fusion))?;
            }
            if from.polling != to.polling {
                self.engine.set_link_polling(id, settings::polling(to.polling))?;
            }
            if from.looks_on != to.looks_on {
                self.engine.set_promisc_filtered(id, !to.looks_on)?;
            }
            Ok(())
        };
        change(from, to).map_err(|error| {
            let _ = change(to, from);
            refused_to(error, to)
        })
    }

    /// Whether the device of a link is there: an interface that was not made here may go, all others are as long as the link is.
    pub(crate) fn has_device(&self, name: &LinkName) -> bool {
        let lower = self.links.get(name);
        lower.is_some_and(|it| it.nic.as_ref().is_none_or(Attached::is_there))
    }

    /// Interfaces are sought by the names that `model` has for them, if they are called so.
    pub(crate) fn take_names(&mut self, model: &Model) {
        for (name, lower) in &mut self.links {
            if let (Some(nic), Some(LinkKind::Nic(said))) =
                (&mut lower.nic, model.links.get(name).map(|it| &it.kind))
            {
                nic.take_name(said.ifname.as_str());
            }
        }
    }

    pub(crate) fn taken(&self) -> Vec<MacAddr> {
        self.vnics.values().map(|it| it.mac).collect()
    }
}

impl Properties<'_> {
    /// What a link of the engine begins with.
    pub(crate) const UNLIMITED: Self = Self {
        maxbw: None,
        minbw: None,
        priority: Priority::High,
        fusion: Fusing::SameZone,
        polling: Polling::Auto,
        cpus: &NO_CPUS,
        rings: Rings { fetched: None, sent: None },
        looks_on: false,
        ring_names: ["rxrings", "txrings"],
    };
}

/// VNICs.
impl Works {
    fn create_vnic(&mut self, name: &LinkName, vnic: &Vnic, present: &Model) -> Done {
        if let Over::Tunnel(tunnel) = &vnic.over {
            return self.create_tunnel(name, vnic, tunnel);
        }
        let absent = || ApiError::new(Status::LinkInvalid, "over", &vnic.over, "");
        let over = vnic.over.link().and_then(|over| self.links.get(over)).ok_or_else(absent)?.id;
        let mtu = vnic.mtu.or_else(|| present.mtu_below(vnic)).ok_or_else(absent)?;
        let mac = match vnic.mac {
            Mac::Factory(slot) => nic::factory_mac(name, vnic, slot, present)?,
            wanted => self.macs.choose(name, wanted, &self.taken()),
        };
        let (mut device, mut status) = (None, None);
        let user = match &vnic.user {
            firelane_model::VnicUser::Nobody => VnicUser::Nobody,
            firelane_model::VnicUser::Netstack(netstack) => VnicUser::Netstack(self.netstack(netstack)?),
            firelane_model::VnicUser::Tap(tap) => {
                let rings = vnic.rings.asked();
                let (opened, queues) = self.kernel.open(&Wanted { link: name, tap, mac, mtu, rings })?;
                device = Some(opened);
                VnicUser::Device(queues)
            }
            firelane_model::VnicUser::Memif(memif) => {
                let (queues, of) = memif::open(name, memif, mtu)?;
                status = Some(of);
                VnicUser::Device(queues)
            }
        };
        let config = VnicConfig {
            vlan: vnic.vlan,
            maxbw: vnic.maxbw,
            priority: vnic.priority,
            protection: settings::protection(&vnic.guard),
            ..VnicConfig::new(mac)
        };
        match self.engine.add_vnic(over, &config, user) {
            Ok(id) => {
                self.vnics.insert(name.clone(), Upper { id, mac, device, memif: status, over: Some(over) });
                let begins =
                    Properties { maxbw: vnic.maxbw, priority: vnic.priority, ..Properties::UNLIMITED };
                let claimed = self.claim(over);
                let limited = claimed
                    .and_then(|()| self.wanted(vnic))
                    .and_then(|wanted| self.limit(id, begins, wanted));
                let made = limited.and_then(|()| match (vnic.mtu, vnic.netstack()) {
                    (Some(_), Some(_)) => self.set_routing(id, &Interface::default(), vnic.mtu),
                    _ => Ok(()),
                });
                made.inspect_err(|_| drop(self.delete_vnic(name)))
            }
            Err(error) => {
                device.iter().for_each(|device| self.kernel.close(device));
                Err(refused(error))
            }
        }
    }

    /// What a VNIC shall have of the engine. Lanes are its user's, so they are not made before it has one; a CPU that there is
    /// not is refused at once.
    fn wanted<'a>(&self, vnic: &'a Vnic) -> Result<Properties<'a>, ApiError> {
        let wanted = Properties::from(vnic);
        if vnic.user != firelane_model::VnicUser::Nobody {
            return Ok(wanted);
        }
        let cpus: Vec<usize> = wanted.cpus.numbers().collect();
        self.engine.check_cpus(&cpus).map_err(|error| refused_to(error, wanted))?;
        Ok(Properties { cpus: &NO_CPUS, ..wanted })
    }

    fn delete_vnic(&mut self, name: &LinkName) -> Done {
        let vnic = self.vnics.get(name).ok_or(Status::LinkInvalid)?;
        let over = vnic.over;
        match over {
            None => self.engine.remove_tunnel(vnic.id),
            Some(_) => self.engine.remove_vnic(vnic.id),
        }
        .map_err(refused)?;
        if let Some(device) = self.vnics.remove(name).and_then(|it| it.device) {
            self.kernel.close(&device);
        }
        over.map_or(Ok(()), |over| self.claim(over))
    }

    fn set_vnic(&mut self, name: &LinkName, from: &Vnic, to: &Vnic, present: &Model) -> Done {
        let vnic = self.vnics.get(name).ok_or(Status::LinkInvalid)?;
        self.limit(vnic.id, self.wanted(from)?, self.wanted(to)?)?;
        if from.over != to.over {
            self.set_tunnel(vnic.id, to)?;
        }
        if from.guard != to.guard {
            self.engine.set_protection(vnic.id, &settings::protection(&to.guard)).map_err(refused)?;
        }
        if let Some(netstack) = to.netstack().filter(|_| from.mtu != to.mtu) {
            let said = present.netstacks.get(netstack).and_then(|it| it.interfaces.get(name));
            self.set_routing(vnic.id, &said.cloned().unwrap_or_default(), to.mtu)?;
        }
        let (Some(device), Some(is), Some(shall)) = (&vnic.device, from.tap(), to.tap()) else {
            return Ok(());
        };
        let readdressed = self.kernel.readdress(device, &is.addresses, &shall.addresses).and_then(|()| {
            // Routes that stay are lost with addresses that go.
            let rerouted = self.kernel.reroute(device, &is.routes, &shall.routes);
            rerouted.inspect_err(|_| {
                let _ = self.kernel.readdress(device, &shall.addresses, &is.addresses);
                let _ = self.kernel.reroute(device, &shall.routes, &is.routes);
            })
        });
        readdressed.inspect_err(|_| {
            // Nobody is told of what was done before the error.
            if from.guard != to.guard {
                let _ = self.engine.set_protection(vnic.id, &settings::protection(&from.guard));
            }
            drop(self.wanted(to).and_then(|to| self.limit(vnic.id, to, self.wanted(from)?)));
        })
    }
}

/// Names.
impl Works {
    /// A link of any class has another name from here on; what it is stays.
    pub(crate) fn rename_link(&mut self, from: &LinkName, to: &LinkName) -> Done {
        if let Some(lower) = self.links.remove(from) {
            self.links.insert(to.clone(), lower);
            return Ok(());
        }
        let upper = self.vnics.remove(from).ok_or(Status::LinkInvalid)?;
        self.vnics.insert(to.clone(), upper);
        Ok(())
    }
}

/// Flows.
impl Works {
    pub(crate) fn add_flow(&mut self, name: &FlowName, flow: &Flow) -> Done {
        let vnic = self.vnics.get(&flow.link).map(|it| it.id);
        let link = vnic.or_else(|| self.links.get(&flow.link).map(|it| it.id));
        let link = link.ok_or_else(|| ApiError::new(Status::LinkInvalid, "link", &flow.link, ""))?;
        let rule = settings::rule(&flow.matching);
        let id = self.engine.add_flow(link, rule, flow.maxbw, flow.priority).map_err(refused)?;
        self.flows.insert(name.clone(), id);
        let plain = Flow { minbw: None, fusion: Fusing::default(), cpus: Cpus::NONE, ..flow.clone() };
        self.set_flow(name, &plain, flow).inspect_err(|_| {
            // Half of it is nobody's.
            self.flows.remove(name);
            let _ = self.engine.remove_flow(id);
        })
    }

    fn set_flow(&mut self, name: &FlowName, from: &Flow, to: &Flow) -> Done {
        let id = self.flow(name)?;
        // What may be refused comes first, so that nothing else is half done.
        if from.cpus != to.cpus {
            self.engine.set_flow_cpus(id, &to.cpus.numbers().collect::<Vec<_>>()).map_err(refused)?;
        }
        if from.maxbw != to.maxbw {
            self.engine.set_flow_maxbw(id, to.maxbw).map_err(refused)?;
        }
        if from.minbw != to.minbw {
            self.engine.set_flow_minbw(id, to.minbw).map_err(refused)?;
        }
        if from.priority != to.priority {
            self.engine.set_flow_priority(id, to.priority).map_err(refused)?;
        }
        if from.fusion != to.fusion {
            self.engine.set_flow_fusion(id, settings::fusion(to.fusion)).map_err(refused)?;
        }
        Ok(())
    }
}

/// What is said of sources in the engine's words.
fn reverse_path(props: &IfProps) -> firelane::ReversePath {
    match props.rpfilter {
        Some(ReversePath::Strict) => firelane::ReversePath::Strict,
        Some(ReversePath::Loose) => firelane::ReversePath::Loose,
        Some(ReversePath::Off) | None => firelane::ReversePath::Off,
    }
}
