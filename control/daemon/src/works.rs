//! What stands behind the names of the model: the engine's identifiers, the kernel's interfaces, services.
//!
//! Called by `host.rs`, which gives one step at a time. A step is carried out whole or not at all; what it
//! needs and is not there is an error, because at the start a step may rest on one that failed.

mod links;
mod vnics;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use firelane::{AutoconfConfig, Engine, IfRouting, IidKind, MemifStatus, Wire};
use firelane_api::{ApiError, Informed, Status};
use firelane_model::{
    AddrObjName, Addrconf, Address, Cpus, Dhcp, Filter, Flow, FlowName, Fusing, IfProps, Instance, Interface,
    LinkName, Model, NetstackName, Pool, PoolNumber, ReversePath, Service, StaticAddress, Switch, Tunables,
};
use firelane_plan::{Action, Step, apply_to_model};
use firelane_units::{FlowId, LinkId, MacAddr, Mtu, NetstackId};

pub(crate) use links::{Below, Properties};
pub(crate) use vnics::Above;

use crate::carried::Before;
use crate::dhcp::{Clients, Place};
use crate::filter;
use crate::fpm::Fpms;
use crate::history::accounting::{self, Absent};
use crate::kernel::{Device, Kernel};
use crate::listener;
use crate::mac::Macs;
use crate::nic::Attached;
use crate::refusal::refused;
use crate::services::Services;
use crate::settings;

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Works {
    pub(crate) engine: Engine,
    pub(crate) kernel: Kernel,
    pub(crate) links: BTreeMap<LinkName, Lower>,
    pub(crate) vnics: BTreeMap<LinkName, Upper>,
    pub(crate) above: Above,
    pub(crate) wires: BTreeMap<LinkName, Wire>,
    pub(crate) netstacks: BTreeMap<NetstackName, NetstackId>,
    pub(crate) flows: BTreeMap<FlowName, FlowId>,
    /// What links and flows have carried by what was beneath them before.
    pub(crate) before: Before,
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
    /// What was made for it had to go for another one that could not be made as yet. An interface of the host tells that itself.
    pub(crate) is_bare: bool,
    /// When its interface, which had gone, did not get all that is said of the link.
    pub(crate) unsettled: Option<Instant>,
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
            above: Above::default(),
            wires: BTreeMap::new(),
            netstacks: BTreeMap::new(),
            flows: BTreeMap::new(),
            before: Before::default(),
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
                    accounting::check(&to.accounting, Absent::IsMade)?;
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
            Action::SetLink(name, from, to) => self.set_link(name, from, to, present),
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

    /// Whether a service could begin, as far as that is known beforehand.
    pub(crate) fn check_service(&self, service: &Service) -> Done {
        self.services.check(service)
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
        self.engine.leave_unsaid();
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

    /// The ends of what is in a netstack's pools are those of another time of day.
    pub(crate) fn reckon_ends(&self, name: &NetstackName, pools: &BTreeMap<PoolNumber, Pool>) -> Done {
        let (netstack, engine) = (self.netstack(name)?, &self.engine);
        let changes = filter::ends_anew(pools, |until| filter::moment(engine, until));
        engine.change_pools(netstack, &changes).map_err(refused)
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

/// Names.
impl Works {
    /// A link of any class has another name from here on; what it is stays.
    pub(crate) fn rename_link(&mut self, from: &LinkName, to: &LinkName) -> Done {
        if let Some(lower) = self.links.remove(from) {
            self.links.insert(to.clone(), lower);
        } else {
            let upper = self.vnics.remove(from).ok_or(Status::LinkInvalid)?;
            self.vnics.insert(to.clone(), upper);
        }
        self.before.rename_link(from, to);
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
