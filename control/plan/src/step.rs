//! One step of a plan: what is done, and what its traffic feels of it.

use core::fmt;
use std::collections::BTreeSet;

use firelane_model::{
    AccountName, Accounting, AddrObjName, Address, Cpus, Daemon, Etherstub, Filter, Flow, FlowName, Fpm,
    Interface, Iptun, Link, LinkKind, LinkName, Memif, Netstack, NetstackName, Nic, NicDriver, Programs,
    Prop, ReversePath, Route, Service, ServiceName, Sharing, Switch, Tunables, Vnic, VnicUser, Wire,
    WireSide, spell_rate,
};
use firelane_units::{BitRate, Mtu};

use crate::filter_lines;

/// What traffic feels of a step. Objects that a step does not name feel nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Effect {
    /// Nothing pauses.
    Live,
    /// The object's traffic pauses or loses a few frames; its connections stay.
    Brief,
    /// The object ends and is made anew: its connections are lost.
    Recreate,
    /// The object ends for good, with its connections.
    Ends,
    /// Nothing changes before the daemon's next start.
    Restart,
}

impl Effect {
    /// The word that plans show.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Brief => "brief",
            Self::Recreate => "recreate",
            Self::Ends => "ends",
            Self::Restart => "restart",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What is done. Changes carry the object before and after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ends a service.
    StopService(ServiceName),
    /// Removes a flow.
    RemoveFlow(FlowName),
    /// Removes a route.
    RemoveRoute(NetstackName, Route),
    /// Changes a netstack's packet filter.
    SetFilter(NetstackName, Filter, Filter),
    /// Changes what is said of an interface.
    SetInterface(NetstackName, LinkName, Interface, Interface),
    /// Removes an address.
    RemoveAddress(NetstackName, AddrObjName),
    /// Removes a VNIC.
    DeleteVnic(LinkName),
    /// Removes a wire.
    DeleteWire(LinkName),
    /// Removes a virtual switch.
    DeleteEtherstub(LinkName),
    /// Removes a link.
    DeleteLink(LinkName),
    /// Removes a netstack.
    DeleteNetstack(NetstackName),
    /// Changes the daemon's settings.
    SetDaemon(Daemon, Daemon),
    /// Makes a netstack with nothing but its lanes and its tunables.
    CreateNetstack(NetstackName, Cpus, Tunables),
    /// Makes a link.
    CreateLink(LinkName, Link),
    /// Makes a virtual switch.
    CreateEtherstub(LinkName, Etherstub),
    /// Makes a wire.
    CreateWire(LinkName, Wire),
    /// Changes what a wire is like.
    SetWire(LinkName, Wire, Wire),
    /// Moves the lanes of a netstack's own to other CPUs.
    SetCpus(NetstackName, Cpus, Cpus),
    /// Changes a netstack's tunables.
    SetTunables(NetstackName, Tunables, Tunables),
    /// Changes who may run programs on a netstack, and how much each may have.
    SetPrograms(NetstackName, Programs, Programs),
    /// Changes where a netstack's routing daemon is listened for, or ends that: its routes go then.
    SetFpm(NetstackName, Option<Fpm>, Option<Fpm>),
    /// Changes a link's properties.
    SetLink(LinkName, Link, Link),
    /// Changes a virtual switch's properties.
    SetEtherstub(LinkName, Etherstub, Etherstub),
    /// Changes a VNIC's properties, or the addresses and routes of its kernel interface.
    SetVnic(LinkName, Vnic, Vnic),
    /// Makes a VNIC.
    CreateVnic(LinkName, Vnic),
    /// Changes an address that stays.
    SetAddress(NetstackName, AddrObjName, Address, Address),
    /// Adds an address.
    AddAddress(NetstackName, AddrObjName, Address),
    /// Adds a route.
    AddRoute(NetstackName, Route),
    /// Changes a flow's limit or priority.
    SetFlow(FlowName, Flow, Flow),
    /// Adds a flow.
    AddFlow(FlowName, Flow),
    /// Changes the folder of a service.
    SetService(ServiceName, Service, Service),
    /// Begins a service.
    StartService(ServiceName, Service),
}

/// One step of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// What its traffic feels of it.
    pub effect: Effect,
}

impl fmt::Display for Step {
    /// The step on one line, without its effect.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::StopService(name) => write!(f, "stop service {name}"),
            Action::RemoveFlow(name) => write!(f, "remove flow {name}"),
            Action::RemoveRoute(netstack, route) => {
                write!(f, "remove route {route} of netstack {netstack}")
            }
            Action::RemoveAddress(netstack, name) => {
                write!(f, "remove address {name} of netstack {netstack}")
            }
            Action::DeleteVnic(name) => write!(f, "delete vnic {name}"),
            Action::DeleteWire(name) => write!(f, "delete wire {name}"),
            Action::DeleteEtherstub(name) => write!(f, "delete etherstub {name}"),
            Action::DeleteLink(name) => write!(f, "delete link {name}"),
            Action::DeleteNetstack(name) => write!(f, "delete netstack {name}"),
            Action::SetDaemon(..)
            | Action::SetCpus(..)
            | Action::SetTunables(..)
            | Action::SetPrograms(..)
            | Action::SetFpm(..)
            | Action::SetFilter(..) => self.fmt_settings(f),
            Action::SetLink(..) | Action::SetEtherstub(..) | Action::SetVnic(..) => self.fmt_link_change(f),
            Action::SetFlow(..) | Action::SetService(..) | Action::SetWire(..) => self.fmt_upper_change(f),
            Action::SetInterface(..) | Action::SetAddress(..) => self.fmt_ip_change(f),
            _ => self.fmt_creation(f),
        }
    }
}

impl Step {
    /// What changes inside, line by line, if one line cannot say it.
    pub fn lines(&self) -> Vec<String> {
        match &self.action {
            Action::SetFilter(_, from, to) => filter_lines::lines(from, to),
            _ => Vec::new(),
        }
    }

    fn fmt_creation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::CreateNetstack(name, cpus, _) if cpus.is_empty() => write!(f, "create netstack {name}"),
            Action::CreateNetstack(name, cpus, _) => write!(f, "create netstack {name} on cpus {cpus}"),
            Action::CreateLink(name, link) => match &link.kind {
                LinkKind::Tap(ifname) => write!(f, "create link {name} on tap {ifname}"),
                LinkKind::Nic(nic) => write!(f, "create link {name} on nic {}", Attached(nic)),
                LinkKind::Memif(memif) => write!(f, "create link {name} on {}", Shared(memif)),
                LinkKind::Memory => write!(f, "create link {name} in memory"),
            },
            Action::CreateEtherstub(name, _) => write!(f, "create etherstub {name}"),
            Action::CreateWire(name, wire) => fmt_wire(f, name, wire),
            Action::CreateVnic(name, vnic) => {
                let over = if vnic.over.tunnel().is_some() { "as" } else { "over" };
                write!(f, "create {} {name} {over} {}{}", vnic.class().word(), vnic.over, User(name, vnic))
            }
            Action::AddAddress(netstack, name, address) => {
                write!(f, "add address {name} {address} to netstack {netstack}")
            }
            Action::AddRoute(netstack, route) => write!(f, "add route {route} to netstack {netstack}"),
            Action::AddFlow(name, flow) => {
                write!(f, "add flow {name} on {}: {}", flow.link, flow.matching)?;
                flow.maxbw.map_or(Ok(()), |rate| write!(f, " maxbw={}", spell_rate(rate)))?;
                flow.minbw.map_or(Ok(()), |rate| write!(f, " minbw={}", spell_rate(rate)))
            }
            Action::StartService(name, service) => {
                write!(f, "start service {name} on netstack {} port {}", service.netstack, service.port)
            }
            _ => Ok(()),
        }
    }

    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::SetDaemon(from, to) => {
                let list = [
                    change("lanes", &from.lanes, &to.lanes),
                    change("cpus", &shown(&from.cpus), &shown(&to.cpus)),
                    change("slice", &from.slice, &to.slice),
                    change("accounting", &accounted(&from.accounting), &accounted(&to.accounting)),
                ];
                write!(f, "set daemon{}", Changes(&list))
            }
            Action::SetCpus(name, from, to) => {
                write!(f, "set netstack {name}{}", Changes(&[change("cpus", &shown(from), &shown(to))]))
            }
            Action::SetTunables(name, from, to) => {
                let differs = |prop: &&Prop| from.get(**prop) != to.get(**prop);
                let changed = Prop::ALL.iter().filter(differs);
                let list: Vec<_> = changed
                    .map(|&prop| change(&prop.to_string(), &from.effective(prop), &to.effective(prop)))
                    .collect();
                write!(f, "set tunables of netstack {name}{}", Changes(&list))
            }
            Action::SetPrograms(name, from, to) => {
                let list = [
                    change("users", &listed(&from.users), &listed(&to.users)),
                    change("groups", &listed(&from.groups), &listed(&to.groups)),
                    change("sockets", &optional(from.sockets), &optional(to.sockets)),
                    change("memory", &optional(from.memory), &optional(to.memory)),
                ];
                write!(f, "set programs of netstack {name}{}", Changes(&list))
            }
            Action::SetFpm(name, from, to) => {
                let said = |of: &dyn Fn(&Fpm) -> String| {
                    let text = |it: &Option<Fpm>| shown(it.as_ref().map(of).unwrap_or_default());
                    [text(from), text(to)]
                };
                let list = [
                    ("listen", said(&|it| it.listen.to_string())),
                    ("namespace", said(&|it| optional(it.namespace.as_ref()))),
                    ("grace", said(&|it| it.grace.to_string())),
                    ("settle", said(&|it| it.settle.to_string())),
                ];
                let list = list.map(|(name, [from, to])| change(name, &from, &to));
                write!(f, "set fpm of netstack {name}{}", Changes(&list))
            }
            Action::SetFilter(name, from, to) => {
                write!(f, "set filter of netstack {name}: {}", filter_lines::summary(from, to))
            }
            _ => Ok(()),
        }
    }

    fn fmt_link_change(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, changes) = match &self.action {
            Action::SetLink(name, from, to) => {
                let rates = change("maxbw", &rate(from.maxbw), &rate(to.maxbw));
                let list = [
                    change("mtu", &from.mtu, &to.mtu),
                    rates,
                    change("priority", &from.priority, &to.priority),
                    change("fusion", &from.fusion.word(), &to.fusion.word()),
                    change("polling", &from.polling.word(), &to.polling.word()),
                    change("cpus", &shown(&from.cpus), &shown(&to.cpus)),
                    change("rxrings", &optional(from.rings.rx), &optional(to.rings.rx)),
                    change("txrings", &optional(from.rings.tx), &optional(to.rings.tx)),
                ];
                ("link", name, list.to_vec())
            }
            Action::SetEtherstub(name, from, to) => {
                let rates = change("maxbw", &rate(from.maxbw), &rate(to.maxbw));
                let list = [
                    change("mtu", &from.mtu, &to.mtu),
                    rates,
                    change("priority", &from.priority, &to.priority),
                    change("fusion", &from.fusion.word(), &to.fusion.word()),
                ];
                ("etherstub", name, list.to_vec())
            }
            Action::SetVnic(name, from, to) => {
                let mtu = |vnic: &Vnic| vnic.mtu.map_or_else(|| "--".to_owned(), |mtu| mtu.to_string());
                let [(were, led), (are, lead)] = [from, to].map(of_tap);
                let list = [
                    change("iptun", &tunnel(from), &tunnel(to)),
                    change("mtu", &mtu(from), &mtu(to)),
                    change("maxbw", &rate(from.maxbw), &rate(to.maxbw)),
                    change("minbw", &rate(from.minbw), &rate(to.minbw)),
                    change("priority", &from.priority, &to.priority),
                    change("fusion", &from.fusion.word(), &to.fusion.word()),
                    change("polling", &from.polling.word(), &to.polling.word()),
                    change("cpus", &shown(&from.cpus), &shown(&to.cpus)),
                    change("rxrings", &optional(from.rings.rx), &optional(to.rings.rx)),
                    change("txrings", &optional(from.rings.tx), &optional(to.rings.tx)),
                    change("promisc-filtered", &from.promisc_filtered.word(), &to.promisc_filtered.word()),
                    change("protection", &shown(from.guard.kinds), &shown(to.guard.kinds)),
                    change("allowed-ips", &list_of(&from.guard.allowed_ips), &list_of(&to.guard.allowed_ips)),
                    change(
                        "allowed-dhcp-cids",
                        &list_of(&from.guard.allowed_cids),
                        &list_of(&to.guard.allowed_cids),
                    ),
                    change("addresses", &were, &are),
                    change("routes", &led, &lead),
                ];
                ("vnic", name, list.to_vec())
            }
            _ => return Ok(()),
        };
        write!(f, "set {kind} {name}{}", Changes(&changes))
    }

    fn fmt_ip_change(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::SetInterface(netstack, name, from, to) => {
                let mut list = Vec::new();
                for ((protocol, from), (_, to)) in from.families().into_iter().zip(to.families()) {
                    let word = |name: &str| format!("{}.{name}", protocol.word());
                    let switch = |it: Option<Switch>| shown(it.map_or("", Switch::word));
                    let mtu = |it: Option<Mtu>| shown(it.map(|it| it.to_string()).unwrap_or_default());
                    let reverse = |it: Option<ReversePath>| shown(it.map_or("", ReversePath::word));
                    let source = |it: &Option<LinkName>| shown(it.as_ref().map_or("", LinkName::as_str));
                    list.extend([
                        change(&word("forwarding"), &switch(from.forwarding), &switch(to.forwarding)),
                        change(&word("mtu"), &mtu(from.mtu), &mtu(to.mtu)),
                        change(&word("usesrc"), &source(&from.usesrc), &source(&to.usesrc)),
                        change(&word("rpfilter"), &reverse(from.rpfilter), &reverse(to.rpfilter)),
                    ]);
                }
                write!(f, "set interface {name} of netstack {netstack}{}", Changes(&list))
            }
            Action::SetAddress(netstack, name, from, to) => {
                write!(f, "set address {name} of netstack {netstack} {from} -> {to}")
            }
            _ => Ok(()),
        }
    }

    fn fmt_upper_change(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::SetFlow(name, from, to) => {
                let rates = change("maxbw", &rate(from.maxbw), &rate(to.maxbw));
                let list = [
                    rates,
                    change("minbw", &rate(from.minbw), &rate(to.minbw)),
                    change("priority", &from.priority, &to.priority),
                    change("fusion", &from.fusion.word(), &to.fusion.word()),
                    change("cpus", &shown(&from.cpus), &shown(&to.cpus)),
                ];
                write!(f, "set flow {name}{}", Changes(&list))
            }
            Action::SetWire(name, from, to) => {
                let sides = WireSide::ALL.into_iter().flat_map(|side| {
                    let words = from.side(side).words().zip(to.side(side).words());
                    words.map(move |((name, is), (_, shall))| {
                        change(&format!("{}.{name}", side.word()), &is, &shall)
                    })
                });
                write!(f, "set wire {name}{}", Changes(&sides.collect::<Vec<_>>()))
            }
            Action::SetService(name, from, to) => {
                let list = [change("root", &from.root.display(), &to.root.display())];
                write!(f, "set service {name}{}", Changes(&list))
            }
            _ => Ok(()),
        }
    }
}

fn fmt_wire(f: &mut fmt::Formatter<'_>, name: &LinkName, wire: &Wire) -> fmt::Result {
    let [first, second] = &wire.ends;
    write!(f, "create wire {name} from {first} to {second}")?;
    let sides = [("", &wire.forth), (" back", &wire.back)];
    // Where both directions are alike the second says nothing new.
    for (word, side) in sides.into_iter().take(if wire.forth == wire.back { 1 } else { 2 }) {
        let said = side.to_string();
        if !said.is_empty() {
            write!(f, "{word}: {said}")?;
        }
    }
    Ok(())
}

/// A tunnel's ends, and what else is said of it.
fn tunnel(vnic: &Vnic) -> String {
    let Some(tunnel) = vnic.over.tunnel() else { return "--".to_owned() };
    let mut words = vec![tunnel.to_string()];
    let differs = |is: u8, usual: u8| (is != usual).then_some(is);
    words.extend(differs(tunnel.hoplimit, Iptun::HOPLIMIT).map(|it| format!("hoplimit={it}")));
    words.extend(differs(tunnel.encaplimit, Iptun::ENCAPLIMIT).map(|it| format!("encaplimit={it}")));
    words.extend(tunnel.key.map(|key| format!("key={key}")));
    words.extend(tunnel.checksum.then(|| "checksum".to_owned()));
    words.extend(tunnel.sequence.then(|| "sequence".to_owned()));
    words.join(" ")
}

fn rate(rate: Option<BitRate>) -> String {
    rate.map_or_else(|| "--".to_owned(), spell_rate)
}

/// Of what records go where.
fn accounted(it: &Accounting) -> String {
    let state = if it.active { "active" } else { "inactive" };
    format!("{state},{},{}", it.net.words(), it.file.as_deref().unwrap_or("no file"))
}

fn listed(names: &BTreeSet<AccountName>) -> String {
    list_of(&names.iter().collect::<Vec<_>>())
}

fn optional(value: Option<impl fmt::Display>) -> String {
    shown(value.map_or_else(String::new, |value| value.to_string()))
}

fn list_of(values: &[impl fmt::Display]) -> String {
    shown(values.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// The addresses and the routes of a VNIC's kernel interface.
fn of_tap(vnic: &Vnic) -> (String, String) {
    let tap = vnic.tap().cloned().unwrap_or_default();
    (list_of(&tap.addresses), list_of(&tap.routes.iter().collect::<Vec<_>>()))
}

/// What is shown of a value that may be empty.
fn shown(value: impl fmt::Display) -> String {
    Some(value.to_string()).filter(|text| !text.is_empty()).unwrap_or_else(|| "--".to_owned())
}

/// `name from -> to`, or nothing if both read the same.
fn change(name: &str, from: &impl fmt::Display, to: &impl fmt::Display) -> Option<String> {
    let (from, to) = (from.to_string(), to.to_string());
    (from != to).then(|| format!(" {name} {from} -> {to}"))
}

struct Changes<'a>(&'a [Option<String>]);

impl fmt::Display for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().flatten().cloned().collect::<Vec<_>>().join(","))
    }
}

struct Attached<'a>(&'a Nic);

impl fmt::Display for Attached<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nic { ifname, driver, sharing } = self.0;
        write!(f, "{ifname}")?;
        if *driver != NicDriver::Auto {
            write!(f, " by {}", driver.word())?;
        }
        f.write_str(match sharing {
            Sharing::Auto => "",
            Sharing::Shared => " beside the kernel",
            Sharing::Alone => " alone",
        })
    }
}

struct Shared<'a>(&'a Memif);

impl fmt::Display for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memif { role, socket, id, .. } = self.0;
        write!(f, "memif {} {socket} id {id}", role.word())
    }
}

struct User<'a>(&'a LinkName, &'a Vnic);

impl fmt::Display for User<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.1.user {
            VnicUser::Nobody => Ok(()),
            VnicUser::Netstack(name) => write!(f, " for netstack {name}"),
            VnicUser::Memif(memif) => write!(f, " for {}", Shared(memif)),
            VnicUser::Tap(tap) => {
                write!(f, " for tap {}", tap.ifname(self.0))?;
                tap.namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
            }
        }
    }
}

/// What a plan without steps says.
pub const NO_CHANGES: &str = "no changes";

/// The plan for a person: one line per step, its effect first, and below it what changes inside; or [`NO_CHANGES`].
pub fn render(steps: &[Step]) -> String {
    if steps.is_empty() {
        return format!("{NO_CHANGES}\n");
    }
    let inside =
        |step: &Step| step.lines().iter().map(|line| format!("          {line}\n")).collect::<String>();
    steps.iter().map(|step| format!("{:<8}  {step}\n{}", step.effect, inside(step))).collect()
}

impl Action {
    /// An empty netstack's addresses and routes come as steps of their own.
    pub(crate) fn create_netstack(name: &NetstackName, netstack: &Netstack) -> Self {
        Self::CreateNetstack(name.clone(), netstack.cpus.clone(), netstack.tunables.clone())
    }
}
