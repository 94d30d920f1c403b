//! What no single noun can know: whether the things that a model names exist, and whether two of them collide.
//!
//! Every fault is reported, not only the first, each with the path of the field that has to change.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use firelane_units::Mtu;

use crate::filter::{self, FilterPart};
use crate::flow::{FLOW_KINDS, FLOW_RANGE_PAIRS};
use crate::interface::mtu_least;
use crate::limits::{
    ADDRESSES_MAX, FLOW_KINDS_MAX, FLOW_RANGE_PAIRS_MAX, LINKS_MAX, NETSTACKS_MAX, OBJECTS_MAX,
    ROUTE_SOURCES_MAX,
};
use crate::value::TextValue;
use crate::{
    FactorySlot, FieldError, Flow, FlowName, IfName, Iptun, LinkKind, LinkName, Mac, MemifRole, Model,
    Netstack, NetstackName, Nic, Over, Protocol, Route, Tap, Vnic,
};

impl Model {
    /// Every fault of the model; empty if there is none.
    pub fn validate(&self) -> Vec<FieldError> {
        let mut faults = Faults::default();
        self.check_counts(&mut faults);
        self.check_link_names(&mut faults);
        self.check_wires(&mut faults);
        self.check_vnics(&mut faults);
        self.check_tunnels(&mut faults);
        self.check_kernel_interfaces(&mut faults);
        self.check_memifs(&mut faults);
        self.check_netstacks(&mut faults);
        self.check_flows(&mut faults);
        self.check_services(&mut faults);
        faults.0.extend(crate::promise::faults(self));
        faults.0.extend(self.daemon.accounting.fault());
        faults.0
    }

    fn check_counts(&self, faults: &mut Faults) {
        let links = self.links.len() + self.etherstubs.len() + self.vnics.len();
        faults.limit("link, etherstub and vnic", links, LINKS_MAX);
        faults.limit("netstack", self.netstacks.len(), NETSTACKS_MAX);
        faults.limit("flow", self.flows.len(), OBJECTS_MAX);
        faults.limit("service", self.services.len(), OBJECTS_MAX);
        let mut interfaces: BTreeMap<&NetstackName, usize> = BTreeMap::new();
        for netstack in self.vnics.values().filter_map(Vnic::netstack) {
            *interfaces.entry(netstack).or_default() += 1;
        }
        for (name, netstack) in &self.netstacks {
            let own = interfaces.get(name).copied().unwrap_or_default();
            if netstack.addresses.len() + own > ADDRESSES_MAX {
                let allowed =
                    format!("at most {ADDRESSES_MAX} with those of its {own} VNICs for their links");
                faults.add(format!("netstack.{name}.addresses"), netstack.addresses.len(), allowed);
            }
            faults.limit(format!("netstack.{name}.routes"), netstack.routes.len(), OBJECTS_MAX);
            let sources: BTreeSet<_> = netstack.routes.iter().filter_map(|it| it.source()).collect();
            if sources.len() > ROUTE_SOURCES_MAX {
                let allowed = format!("routes of at most {ROUTE_SOURCES_MAX} sources");
                faults.add(format!("netstack.{name}.routes"), sources.len(), allowed);
            }
            let whose = |route: &Route| (route.destination(), route.source());
            let led: BTreeSet<_> =
                netstack.routes.iter().filter(|it| it.gateway().is_some()).map(whose).collect();
            let mut ways = BTreeMap::new();
            for route in &netstack.routes {
                let way = (route.destination(), route.gateway(), route.source());
                faults.unique(&mut ways, way, format!("netstack.{name}.routes"), route);
                if route.gateway().is_none() && led.contains(&whose(route)) {
                    let allowed = "a route that ends packets is the only one to its destination";
                    faults.add(format!("netstack.{name}.routes"), route, allowed);
                }
            }
        }
    }

    /// Links, etherstubs and VNICs share one name space.
    fn check_link_names(&self, faults: &mut Faults) {
        let mut taken = BTreeMap::new();
        for (name, class) in self.link_names() {
            let kind = match class {
                crate::LinkClass::Phys => "link",
                crate::LinkClass::Etherstub => "etherstub",
                crate::LinkClass::Vnic | crate::LinkClass::Vlan | crate::LinkClass::Iptun => "vnic",
            };
            faults.unique(&mut taken, name, format!("{kind}.{name}"), "");
        }
        for (name, stub) in &self.etherstubs {
            if stub.mtu > Mtu::ETHERSTUB {
                faults.add(
                    format!("etherstub.{name}.mtu"),
                    stub.mtu,
                    "an etherstub's mtu is from 576 to 9000",
                );
            }
        }
    }

    fn check_wires(&self, faults: &mut Faults) {
        for (name, fault) in self.wiring_faults() {
            faults.add(format!("wire.{name}.ends"), fault.end(), fault.to_string());
        }
    }

    fn check_vnics(&self, faults: &mut Faults) {
        let (mut macs, mut slots) = (BTreeMap::new(), BTreeMap::new());
        for (name, vnic) in &self.vnics {
            let over = match &vnic.over {
                Over::Link(over) => over,
                Over::Tunnel(tunnel) => {
                    check_tunnel(name, vnic, tunnel, faults);
                    self.check_vnic_user(name, vnic, faults);
                    continue;
                }
            };
            let Some(lower) = self.lower_mtu(over.as_str()) else {
                let kind = if self.vnics.contains_key(over) { "a VNIC" } else { "unknown" };
                let allowed = format!("is {kind}; a VNIC is over a link or an etherstub");
                faults.add(format!("vnic.{name}.over"), over, allowed);
                continue;
            };
            if let Some(mtu) = vnic.mtu.filter(|&mtu| mtu > lower) {
                let allowed = format!("the mtu of {over} below it is {lower}");
                faults.add(format!("vnic.{name}.mtu"), mtu, allowed);
            }
            if let Mac::Fixed(mac) = vnic.mac {
                faults.unique(&mut macs, (over, vnic.vlan, mac), format!("vnic.{name}.mac"), mac);
            }
            if let Mac::Factory(slot) = vnic.mac {
                self.check_slot(name, over, slot, &mut slots, faults);
            }
            if vnic.is_vlan && vnic.vlan.is_none() {
                faults.add(
                    format!("vnic.{name}.vlan"),
                    "",
                    "missing; a VLAN link has an identifier from 1 to 4094",
                );
            }
            let listed = [
                ("allowed_ips", vnic.guard.allowed_ips.len()),
                ("allowed_dhcp_cids", vnic.guard.allowed_cids.len()),
            ];
            for (field, count) in listed {
                faults.limit(format!("vnic.{name}.{field}"), count, crate::Guard::LISTED_MAX);
            }
            self.check_vnic_user(name, vnic, faults);
        }
    }

    /// NICs alone have factory addresses, and each is had once, whatever the VLAN.
    fn check_slot<'a>(
        &self,
        name: &LinkName,
        over: &'a LinkName,
        slot: Option<FactorySlot>,
        taken: &mut BTreeMap<(&'a LinkName, FactorySlot), String>,
        faults: &mut Faults,
    ) {
        let (field, value) = (format!("vnic.{name}.mac"), Mac::Factory(slot).write());
        if !self.has_factory(over.as_str()) {
            let allowed = format!("{over} is no link of kind nic, which alone has addresses from a factory");
            faults.add(field, value, allowed);
        } else if let Some(slot) = slot {
            faults.unique(taken, (over, slot), field, value);
        }
    }

    /// Whether what is below the link `name` may have factory addresses.
    pub fn has_factory(&self, name: &str) -> bool {
        self.links.get(name).is_some_and(|link| matches!(link.kind, LinkKind::Nic(_)))
    }

    /// What arrives at a netstack can be of one of its tunnels only.
    fn check_tunnels(&self, faults: &mut Faults) {
        let of_netstacks =
            |(name, it): (_, &'_ Vnic)| Some((name, it.netstack()?.clone(), it.over.tunnel()?.clone()));
        let tunnels: Vec<(&LinkName, NetstackName, Iptun)> =
            self.vnics.iter().filter_map(of_netstacks).collect();
        for (nth, (name, netstack, tunnel)) in tunnels.iter().enumerate() {
            let is_same =
                |(_, its, other): &&(&LinkName, NetstackName, Iptun)| its == netstack && tunnel.meets(other);
            if let Some((first, ..)) = tunnels[..nth].iter().find(is_same) {
                let allowed = format!("vnic.{first}.iptun has it already");
                faults.add(format!("vnic.{name}.iptun"), tunnel, allowed);
            }
        }
    }

    fn check_vnic_user(&self, name: &LinkName, vnic: &Vnic, faults: &mut Faults) {
        if let Some(netstack) = vnic.netstack().filter(|&n| !self.netstacks.contains_key(n)) {
            faults.add(format!("vnic.{name}.netstack"), netstack, "there is no netstack of that name");
        }
        // Those of a VNIC without a user wait for the one that it gets.
        if !vnic.cpus.is_empty() && (vnic.netstack().is_some() || vnic.over.tunnel().is_some()) {
            let allowed =
                "cpus of the netstack says where its connections are; a tap or a memif has lanes of its own";
            faults.add(format!("vnic.{name}.cpus"), &vnic.cpus, allowed);
        }
        if let Some((field, rings)) = vnic.rings.of_device()
            && vnic.tap().is_none()
            && vnic.memif().is_none()
        {
            let allowed = "sw; only a VNIC whose user is a tap or a memif has a device with rings of its own";
            faults.add(format!("vnic.{name}.{field}"), rings, allowed);
        }
        let Some(tap) = vnic.tap() else { return };
        if tap.ifname(name).parse::<IfName>().is_err() {
            faults.add(format!("vnic.{name}.tap.ifname"), tap.ifname(name), IfName::ALLOWED);
        }
        let mut taken = BTreeMap::new();
        for &prefix in &tap.addresses {
            let field = format!("vnic.{name}.tap.addresses");
            if crate::Address::new(prefix).is_none() {
                let allowed = <crate::Address as crate::value::TextValue>::ALLOWED;
                faults.add(&field, prefix, allowed);
            }
            faults.unique(&mut taken, prefix.addr(), field, prefix);
        }
        let mut taken = BTreeMap::new();
        for &route in &tap.routes {
            let field = format!("vnic.{name}.tap.routes");
            if let Some(allowed) = tap.refuses(route) {
                faults.add(&field, route, allowed);
            }
            faults.unique(&mut taken, route.destination(), field, route);
        }
    }

    /// What memifs say, and one server per control socket.
    fn check_memifs(&self, faults: &mut Faults) {
        let links = self.links.iter().filter_map(|(name, link)| match &link.kind {
            LinkKind::Memif(memif) => Some((format!("link.{name}.memif"), memif)),
            _ => None,
        });
        let vnics =
            self.vnics.iter().filter_map(|(name, it)| Some((format!("vnic.{name}.memif"), it.memif()?)));
        let mut taken = BTreeMap::new();
        for (path, memif) in links.chain(vnics) {
            for (field, value, allowed) in memif.faults() {
                faults.add(format!("{path}.{field}"), value, allowed);
            }
            if memif.role == MemifRole::Server {
                faults.unique(&mut taken, memif.socket.as_str(), format!("{path}.socket"), &memif.socket);
            }
        }
    }

    /// One interface name per network namespace, those below links included.
    fn check_kernel_interfaces(&self, faults: &mut Faults) {
        let mut taken = BTreeMap::new();
        for (name, link) in &self.links {
            let ifname = match &link.kind {
                LinkKind::Tap(ifname) | LinkKind::Nic(Nic { ifname, .. }) => Some(ifname),
                LinkKind::Memif(_) | LinkKind::Memory => None,
            };
            if let Some(ifname) = ifname {
                faults.unique(&mut taken, (None, ifname.as_str()), format!("link.{name}.ifname"), ifname);
            }
        }
        for (name, vnic) in &self.vnics {
            if let Some(tap) = vnic.tap() {
                let Tap { namespace, .. } = tap;
                let ifname = tap.ifname(name);
                faults.unique(
                    &mut taken,
                    (namespace.as_ref(), ifname),
                    format!("vnic.{name}.tap.ifname"),
                    ifname,
                );
            }
        }
    }

    fn check_netstacks(&self, faults: &mut Faults) {
        let mut doors = BTreeMap::new();
        for (name, netstack) in &self.netstacks {
            if let Some(fpm) = &netstack.fpm {
                for (field, value, allowed) in fpm.faults() {
                    faults.add(format!("netstack.{name}.fpm.{field}"), value, allowed);
                }
                faults.unique(&mut doors, fpm.door(), format!("netstack.{name}.fpm.listen"), fpm.listen);
            }
            for fault in netstack.tunables.contradictions() {
                let field = format!("netstack.{name}.tunables.{}", fault.field);
                faults.add(field, fault.value, fault.allowed);
            }
            self.check_interfaces(name, netstack, faults);
            for (field, value, allowed) in netstack.programs.faults() {
                faults.add(format!("netstack.{name}.programs.{field}"), value, allowed);
            }
            for (field, value, allowed) in netstack.nat_limits.faults() {
                faults.add(format!("netstack.{name}.nat_limits.{field}"), value, allowed);
            }
            self.check_filter(name, netstack, faults);
            let (mut taken, mut automatic) = (BTreeMap::new(), BTreeMap::new());
            let mut primary = None;
            for (addrobj, address) in &netstack.addresses {
                let field = format!("netstack.{name}.addresses.{addrobj}");
                let interface = self.vnics.get(addrobj.interface());
                if interface.and_then(Vnic::netstack) != Some(name) {
                    let allowed = format!("{} is no VNIC of this netstack", addrobj.interface());
                    faults.add(&field, address, allowed);
                }
                let mtu = interface.and_then(|vnic| vnic.mtu.or_else(|| self.mtu_below(vnic)));
                let least = mtu_least(Protocol::Ipv6);
                if let Some(mtu) = mtu.filter(|mtu| address.is_v6() && mtu.bytes() < least) {
                    let name = addrobj.interface();
                    let allowed = format!(
                        "the mtu of {name} is {mtu}; where IPv6 is it is {least} at least (RFC 8200)"
                    );
                    faults.add(&field, address, allowed);
                }
                match address.addr() {
                    Some(addr) => faults.unique(&mut taken, addr, field, address),
                    // One interface is configured in one way, for each of IPv4 and IPv6.
                    None => {
                        let way = (addrobj.interface(), matches!(address, crate::Address::Dhcp(_)));
                        faults.unique(&mut automatic, way, field, address);
                    }
                }
                if matches!(address, crate::Address::Dhcp(it) if it.primary)
                    && let Some(other) = primary.replace(addrobj)
                {
                    let field = format!("netstack.{name}.addresses.{addrobj}");
                    faults.add(field, address, format!("{other} is the primary one already"));
                }
            }
        }
    }

    fn check_interfaces(&self, name: &NetstackName, netstack: &Netstack, faults: &mut Faults) {
        let is_its = |vnic: &LinkName| self.vnics.get(vnic).and_then(Vnic::netstack) == Some(name);
        faults.limit(format!("netstack.{name}.interfaces"), netstack.interfaces.len(), OBJECTS_MAX);
        for (vnic, interface) in &netstack.interfaces {
            let path = format!("netstack.{name}.interfaces.{vnic}");
            if !is_its(vnic) {
                faults.add(&path, "", format!("{vnic} is no VNIC of this netstack"));
            }
            for (protocol, props) in interface.families() {
                let least = mtu_least(protocol);
                if let Some(mtu) = props.mtu.filter(|mtu| mtu.bytes() < least) {
                    let field = format!("{path}.{}.mtu", protocol.word());
                    faults.add(field, mtu, format!("at least {least}"));
                }
                if let Some(source) = props.usesrc.as_ref().filter(|it| *it == vnic || !is_its(it)) {
                    let field = format!("{path}.{}.usesrc", protocol.word());
                    faults.add(field, source, "another VNIC of this netstack");
                }
            }
        }
    }

    fn check_filter(&self, name: &NetstackName, netstack: &Netstack, faults: &mut Faults) {
        let is_its = |vnic: &LinkName| self.vnics.get(vnic).and_then(Vnic::netstack) == Some(name);
        for (part, (value, allowed)) in
            filter::faults(&netstack.filter, &netstack.pools, &netstack.nat, is_its)
        {
            let field = match part {
                FilterPart::Filter => format!("netstack.{name}.filter"),
                FilterPart::Pools => format!("netstack.{name}.pools"),
                FilterPart::Nat => format!("netstack.{name}.nat"),
            };
            faults.add(field, value, allowed);
        }
    }

    fn check_flows(&self, faults: &mut Faults) {
        let mut taken = BTreeMap::new();
        let (mut kinds, mut pairs) = (BTreeMap::<_, BTreeSet<_>>::new(), BTreeMap::<_, usize>::new());
        for (name, flow) in &self.flows {
            self.check_flow(name, flow, faults);
            let field = || format!("flow.{name}.match");
            faults.unique(&mut taken, (&flow.link, flow.matching.canonical()), field(), &flow.matching);
            let its = kinds.entry(&flow.link).or_default();
            if its.insert(flow.matching.kind()) && its.len() > FLOW_KINDS_MAX {
                faults.add(field(), &flow.matching, FLOW_KINDS);
            }
            if let Some(rest) = flow.matching.beside_ranges() {
                let alike = pairs.entry((&flow.link, rest)).or_default();
                *alike += 1;
                if *alike > FLOW_RANGE_PAIRS_MAX {
                    faults.add(field(), &flow.matching, FLOW_RANGE_PAIRS);
                }
            }
        }
    }

    fn check_flow(&self, name: &FlowName, flow: &Flow, faults: &mut Faults) {
        let link = flow.link.as_str();
        if self.class_of(link).is_none() {
            faults.add(format!("flow.{name}.link"), link, "there is no link or VNIC of that name");
        } else if !self.carries_flows(link) {
            faults.add(format!("flow.{name}.link"), link, crate::flow::NO_WIRE);
        }
        let matching = &flow.matching;
        if matching.is_empty() {
            let allowed = format!("missing; at least one of {}", crate::FlowMatch::ATTRIBUTES.join(", "));
            faults.add(format!("flow.{name}.match"), "", allowed);
        }
        let ports = matching.local_port.is_some() || matching.remote_port.is_some();
        if ports && !matching.transport.is_some_and(crate::Transport::has_ports) {
            let allowed = "a local or remote port requires transport tcp, udp or sctp";
            let value = matching.transport.map(|it| it.to_string()).unwrap_or_default();
            faults.add(format!("flow.{name}.match.transport"), value, allowed);
        }
        let families = [matching.local_ip, matching.remote_ip].map(|ip| ip.map(|ip| ip.addr().is_ipv4()));
        if let [Some(local), Some(remote)] = families
            && local != remote
        {
            let field = format!("flow.{name}.match.remote_ip");
            let value = matching.remote_ip.map(|ip| ip.to_string()).unwrap_or_default();
            faults.add(field, value, "local_ip and remote_ip must be of one family");
        }
        if let Some(allowed) = self.no_lanes(flow) {
            faults.add(format!("flow.{name}.cpus"), &flow.cpus, allowed);
        }
    }

    /// Why a flow cannot have lanes of its own on the CPUs that it names.
    fn no_lanes(&self, flow: &Flow) -> Option<&'static str> {
        let is_netstacks = self.vnics.get(&flow.link).is_some_and(|vnic| vnic.netstack().is_some());
        match flow.cpus.numbers().count() {
            0 => None,
            _ if is_netstacks && !flow.matching.tells_sockets() => Some(
                "a flow of a netstack has lanes of its own if it names local_port, and nothing beside it but addresses and the transport",
            ),
            2.. if !is_netstacks => Some("one CPU: what passes a device is in one lane of its flow's"),
            _ => None,
        }
    }

    fn check_services(&self, faults: &mut Faults) {
        let mut taken = BTreeMap::new();
        for (name, service) in &self.services {
            if !self.netstacks.contains_key(&service.netstack) {
                let field = format!("service.{name}.netstack");
                faults.add(field, &service.netstack, "there is no netstack of that name");
            }
            let field = format!("service.{name}.root");
            match (service.kind.has_root(), service.root.as_os_str().is_empty()) {
                (true, true) => faults.add(field, "", "missing; the folder to serve"),
                (false, false) => {
                    faults.add(field, service.root.display(), "only kind = \"http\" serves a folder")
                }
                _ => {}
            }
            faults.unique(
                &mut taken,
                (&service.netstack, service.port),
                format!("service.{name}.port"),
                service.port,
            );
        }
    }
}

fn check_tunnel(name: &LinkName, vnic: &Vnic, tunnel: &Iptun, faults: &mut Faults) {
    for (field, value, allowed) in tunnel.faults() {
        faults.add(format!("vnic.{name}.iptun.{field}"), value, allowed);
    }
    if let Some(mtu) = vnic.mtu.filter(|mtu| mtu.bytes() > Iptun::MTU_MAX) {
        faults.add(
            format!("vnic.{name}.mtu"),
            mtu,
            format!("a tunnel's mtu is from 576 to {}", Iptun::MTU_MAX),
        );
    }
    if vnic.netstack().is_some() && tunnel.ends().is_none() {
        let field = if tunnel.local.is_none() { "local" } else { "remote" };
        let allowed = "missing; a tunnel that a netstack has needs both its ends";
        faults.add(format!("vnic.{name}.iptun.{field}"), "", allowed);
    }
}

#[derive(Default)]
struct Faults(Vec<FieldError>);

impl Faults {
    fn add(
        &mut self,
        field: impl core::fmt::Display,
        value: impl core::fmt::Display,
        allowed: impl Into<String>,
    ) {
        self.0.push(FieldError::new(field, value, allowed));
    }

    fn limit(&mut self, field: impl core::fmt::Display, count: usize, max: usize) {
        if count > max {
            self.add(field, count, format!("at most {max}"));
        }
    }

    /// Notes that `field` takes `key`, which nothing else may.
    fn unique<K: Ord>(
        &mut self,
        taken: &mut BTreeMap<K, String>,
        key: K,
        field: String,
        value: impl core::fmt::Display,
    ) {
        match taken.entry(key) {
            Entry::Occupied(first) => {
                let allowed = format!("{} has it already", first.get());
                self.add(field, value, allowed);
            }
            Entry::Vacant(free) => {
                free.insert(field);
            }
        }
    }
}
