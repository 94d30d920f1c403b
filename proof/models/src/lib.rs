//! Valid models out of arbitrary bytes, for property tests.
//!
//! Few names and few values are used, so that two generated models differ in every way that two models
//! can: an object gone, changed in one property, or made of something else under the same name.
//!
//! A crate of its own, so that the programs which tests run are built once, with the libraries that the tests have.

mod filter;
mod nat;

use core::net::{IpAddr, Ipv4Addr};

use firelane_model::{
    Addrconf, Address, CongestionControl, Cpus, Dhcp, Etherstub, Flow, FlowMatch, Fpm, Fusing, Guard,
    IfProps, Interface, Iptun, IptunType, Lanes, Link, LinkKind, LinkName, LinkRings, Mac, Memif, MemifRole,
    Model, Netstack, Nic, NicDriver, Over, Polling, Prop, ReversePath, Route, RouteEnd, Service, ServiceKind,
    Sharing, Switch, Tap, Transport, Vnic, VnicUser, Wire, WireSide,
};
use firelane_units::{
    BitRate, DsField, IpPrefix, MacAddr, Mtu, Port, PortRange, Priority, Protection, Protections, VlanId,
};

pub use filter::ipf_rule;
pub use nat::ipnat_line;

/// Choices read off a string of bytes; zero when it ends.
struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn below(&mut self, n: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % n
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 1).then(|| value(self))
    }

    fn rate(&mut self) -> BitRate {
        [BitRate::ZERO, BitRate::from_bps(1_200_001), BitRate::from_mbps(50), BitRate::from_mbps(2_000)]
            [self.below(4)]
    }

    fn ports(&mut self) -> PortRange {
        let first = Port(1 + self.below(3) as u16);
        PortRange::new(first, Port(first.0 + self.below(2) as u16 * 7)).expect("the last is not lower")
    }

    fn mtu(&mut self) -> Mtu {
        Mtu::new([1500, 576, 9000][self.below(3)]).expect("each is at least 576")
    }

    fn guard(&mut self) -> Guard {
        let kinds = [Protections::NONE, Protections::NONE.with(Protection::IpNospoof)][self.below(2)];
        Guard {
            kinds,
            allowed_ips: self.maybe(|dice| dice.prefix(0)).into_iter().collect(),
            ..Guard::default()
        }
    }

    fn priority(&mut self) -> Priority {
        Priority::ALL[self.below(3)]
    }

    fn polling(&mut self) -> Polling {
        Polling::ALL[self.below(2)]
    }

    fn cpus(&mut self) -> Cpus {
        ["0", "1,0"].get(self.below(4)).map_or(Cpus::NONE, |text| text.parse().expect("two lists"))
    }

    /// Only who has a device has lanes for it.
    fn rings(&mut self) -> LinkRings {
        let mut one = || ["", "sw", "hw", "1", "2", "128"][self.below(6)].parse().ok();
        LinkRings { rx: one(), tx: one() }
    }

    fn rings_of(&mut self, user: &VnicUser) -> LinkRings {
        if matches!(user, VnicUser::Nobody | VnicUser::Netstack(_)) {
            LinkRings::UNSAID
        } else {
            self.rings()
        }
    }

    fn cpus_of(&mut self, user: &VnicUser) -> Cpus {
        if matches!(user, VnicUser::Nobody | VnicUser::Netstack(_)) { Cpus::NONE } else { self.cpus() }
    }

    fn mac(&mut self) -> Mac {
        let fixed = Mac::Fixed(MacAddr([2, 0, 0, 0, 0, self.below(3) as u8]));
        [Mac::Auto, Mac::Random, fixed][self.below(3)]
    }

    /// One that its interface gets from others.
    fn automatic(&mut self) -> Address {
        match self.below(3) {
            0 => Address::Addrconf(Addrconf { temporary: self.below(2) == 1, ..Addrconf::default() }),
            _ => Address::Dhcp(Dhcp { primary: self.below(2) == 1, ..Dhcp::default() }),
        }
    }

    fn fusing(&mut self) -> Fusing {
        Fusing::ALL[self.below(3)]
    }

    /// Few ends, so that tunnels meet and change places.
    fn tunnel(&mut self) -> Iptun {
        let kind = [IptunType::Ipv4, IptunType::Gre][self.below(2)];
        let mut end = |of: u8| self.maybe(|dice| [10, 0, of, 1 + dice.below(2) as u8].into());
        let (local, remote) = (end(1), end(2));
        let key = self.maybe(|dice| dice.below(2) as u32).filter(|_| kind == IptunType::Gre);
        let hoplimit = 64 - self.below(2) as u8;
        Iptun { local, remote, key, hoplimit, ..Iptun::new(kind) }
    }

    fn memif(&mut self, number: usize) -> Memif {
        let role = if self.below(2) == 0 { MemifRole::Server } else { MemifRole::Client };
        Memif { id: self.below(2) as u32, ..Memif::new(role, format!("/run/m{number}")) }
    }

    fn fpm(&mut self) -> Fpm {
        let listen = std::net::SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 2620 + self.below(3) as u16);
        let namespace = self.maybe(|_| name("ns", 1));
        Fpm { listen, namespace, grace: 60 * self.below(2) as u32, settle: 5 }
    }

    fn nic(&mut self, number: usize) -> LinkKind {
        let driver = [NicDriver::Auto, NicDriver::Afxdp, NicDriver::Packet][self.below(3)];
        let sharings = [Sharing::Auto, Sharing::Shared, Sharing::Alone];
        let sharing = sharings[self.below(if driver == NicDriver::Packet { 2 } else { 3 })];
        LinkKind::Nic(Nic { ifname: name("n", number), driver, sharing })
    }

    fn prefix(&mut self, last: usize) -> IpPrefix {
        let host = Ipv4Addr::new(10, 0, self.below(3) as u8, 1 + last as u8);
        IpPrefix::new(IpAddr::V4(host), [24, 32, 30][self.below(3)]).expect("each is at most 32")
    }
}

fn name<T: core::str::FromStr>(prefix: &str, number: usize) -> T {
    let made = format!("{prefix}{number}").parse().ok();
    made.expect("a letter and a digit are every kind of name")
}

/// A valid model; the same bytes give the same model, and every byte matters.
pub fn model(bytes: &[u8]) -> Model {
    let dice = &mut Dice(bytes);
    let mut model = Model::default();
    model.daemon.lanes = dice.maybe(|dice| Lanes::Count(1 + dice.below(3) as u16)).unwrap_or_default();
    model.daemon.cpus = ["", "0", "1,0", "0-3"][dice.below(4)].parse().unwrap_or_default();
    roll_lower(&mut model, dice);
    for number in 0..3 {
        if dice.below(3) > 0 {
            let mut netstack = Netstack::default();
            if dice.below(3) == 1 {
                netstack.tunables.set(Prop::Ttl, ["1", "64"][dice.below(2)]).expect("both are in range");
            }
            netstack.cpus = dice.cpus();
            netstack.programs.sockets = dice.maybe(|dice| 1 + dice.below(2) as u32);
            netstack.programs.users.extend(dice.maybe(|dice| name("user", dice.below(2))));
            let gateway = Ipv4Addr::new(10, 0, 0, 200 + dice.below(2) as u8).into();
            let end = [RouteEnd::Blackhole, RouteEnd::Prohibit][dice.below(2)];
            netstack.routes.extend(dice.maybe(|dice| Route::ending(dice.prefix(100), end)));
            let route = dice.maybe(|dice| Route::new(dice.prefix(0), gateway)).flatten();
            let control = [None, Some(CongestionControl::Cubic), Some(CongestionControl::Bbr)][dice.below(3)];
            let route = route.map(|it| it.with_congestion_control(control));
            netstack.routes.extend(route);
            netstack.fpm = dice.maybe(Dice::fpm);
            model.netstacks.insert(name("n", number), netstack);
        }
    }
    for number in 0..5 {
        roll_vnic(&mut model, dice, number);
    }
    filter::roll_filters(&mut model, dice);
    for number in 0..4 {
        roll_flow(&mut model, dice, number);
    }
    for number in 0..3 {
        roll_service(&mut model, dice, number);
    }
    roll_wires(&mut model, dice);
    drop_faults(&mut model);
    model
}

/// Links and etherstubs under the same names.
fn roll_lower(model: &mut Model, dice: &mut Dice<'_>) {
    for number in 0..3 {
        match dice.below(4) {
            0 => {}
            1 => {
                let kind = match dice.below(4) {
                    0 => LinkKind::Memory,
                    1 => LinkKind::Tap(name("t", number)),
                    2 => dice.nic(number),
                    _ => LinkKind::Memif(dice.memif(number)),
                };
                let (mtu, maxbw, fusion) = (dice.mtu(), dice.maybe(Dice::rate), dice.fusing());
                let (cpus, rings) = match kind {
                    LinkKind::Memory => (Cpus::NONE, LinkRings::UNSAID),
                    _ => (dice.cpus(), dice.rings()),
                };
                let link =
                    Link { mtu, maxbw, fusion, polling: dice.polling(), cpus, rings, ..Link::new(kind) };
                model.links.insert(name("l", number), link);
            }
            _ => {
                let (mtu, maxbw, priority) = (dice.mtu(), dice.maybe(Dice::rate), dice.priority());
                let stub = Etherstub { mtu, maxbw, priority, fusion: dice.fusing() };
                model.etherstubs.insert(name("l", number), stub);
            }
        }
    }
}

/// Wires between links and VNICs, which may be joined already, or have users: those faults are dropped.
fn roll_wires(model: &mut Model, dice: &mut Dice<'_>) {
    for number in 0..3 {
        if dice.below(2) == 0 {
            continue;
        }
        let ends = [0, 1]
            .map(|_| if dice.below(3) == 0 { name("v", dice.below(5)) } else { name("l", dice.below(3)) });
        let mut wire = Wire { seed: dice.maybe(|dice| dice.below(2) as u32), ..Wire::new(ends) };
        for side in WireSide::ALL {
            let (word, value) =
                [("delay", "0"), ("delay", "3ms"), ("loss", "1%"), ("rate", "5M")][dice.below(4)];
            wire.side_mut(side).set(word, value).expect("each is a condition with a value that it may have");
        }
        model.wires.insert(name("w", number), wire);
    }
}

const REVERSE_PATHS: [ReversePath; 3] = [ReversePath::Off, ReversePath::Loose, ReversePath::Strict];

/// A route to a router that is known by its link alone.
fn by_link(dice: &mut Dice<'_>) -> Route {
    let destination = format!("fd00:{}::/32", dice.below(3)).parse().expect("a network");
    let router = format!("fe80::{}", 1 + dice.below(2)).parse().expect("an address");
    Route::new(destination, router).expect("both are of IPv6")
}

fn roll_user(dice: &mut Dice<'_>, number: usize) -> VnicUser {
    match dice.below(4) {
        0 => VnicUser::Nobody,
        3 => VnicUser::Memif(dice.memif(number)),
        1 => VnicUser::Tap(Tap {
            namespace: dice.maybe(|dice| name("ns", dice.below(2))),
            ifname: dice.maybe(|dice| name("t", dice.below(3))),
            addresses: dice.maybe(|dice| dice.prefix(number)).into_iter().collect(),
            routes: dice.maybe(by_link).into_iter().collect(),
        }),
        _ => VnicUser::Netstack(name("n", dice.below(3))),
    }
}

fn roll_vnic(model: &mut Model, dice: &mut Dice<'_>, number: usize) {
    let below: Vec<_> = model.links.keys().chain(model.etherstubs.keys()).cloned().collect();
    if below.is_empty() || dice.below(4) == 0 {
        return;
    }
    let vnic: LinkName = name("v", number);
    let user = roll_user(dice, number);
    if let VnicUser::Netstack(user) = &user
        && let Some(netstack) = model.netstacks.get_mut(user)
    {
        let addrobj = format!("{vnic}/a{}", dice.below(2)).parse().expect("interface and string");
        let address = Address::new(dice.prefix(number)).map(|address| match address {
            Address::Static(it) => Address::Static(it.with_deprecated(dice.below(3) == 1)),
            other => other,
        });
        netstack.addresses.extend(address.map(|address| (addrobj, address)));
        let automatic = dice.maybe(|dice| (format!("{vnic}/b{}", dice.below(2)), dice.automatic()));
        let named =
            |(addrobj, address): (String, _)| (addrobj.parse().expect("interface and string"), address);
        netstack.addresses.extend(automatic.map(named));
        let source = name("v", dice.below(5));
        let props = IfProps {
            forwarding: dice.maybe(|dice| Switch::from(dice.below(2) == 1)),
            mtu: None,
            usesrc: dice.maybe(|_| source),
            rpfilter: dice.maybe(|dice| REVERSE_PATHS[dice.below(3)]),
        };
        let interface = Interface { ipv4: props, ..Interface::default() };
        if !interface.is_default() {
            netstack.interfaces.insert(vnic.clone(), interface);
        }
    }
    let over = below[dice.below(below.len())].clone();
    if matches!(user, VnicUser::Nobody | VnicUser::Netstack(_)) && dice.below(4) == 1 {
        return roll_tunnel(model, dice, vnic, user);
    }
    let vlan = dice.maybe(|dice| VlanId::new(1 + dice.below(2) as u16)).flatten();
    let made = Vnic {
        mac: dice.mac(),
        is_vlan: vlan.is_some() && dice.below(2) == 1,
        vlan,
        guard: dice.guard(),
        mtu: dice.maybe(Dice::mtu).filter(|&mtu| Some(mtu) <= model.lower_mtu(over.as_str())),
        maxbw: dice.maybe(Dice::rate),
        minbw: dice.maybe(Dice::rate),
        priority: dice.priority(),
        fusion: dice.fusing(),
        polling: dice.polling(),
        cpus: dice.cpus_of(&user),
        rings: dice.rings_of(&user),
        promisc_filtered: (dice.below(4) > 0).into(),
        user,
        over: Over::Link(over),
    };
    model.vnics.insert(vnic, made);
}

fn roll_tunnel(model: &mut Model, dice: &mut Dice<'_>, vnic: LinkName, user: VnicUser) {
    let mtu = dice.maybe(Dice::mtu);
    let made = Vnic { mtu, maxbw: dice.maybe(Dice::rate), user, ..Vnic::of_tunnel(dice.tunnel()) };
    model.vnics.insert(vnic, made);
}

fn roll_flow(model: &mut Model, dice: &mut Dice<'_>, number: usize) {
    let names = model.link_names().map(|(name, _)| name);
    let links: Vec<_> = names.filter(|name| model.carries_flows(name.as_str())).cloned().collect();
    if links.is_empty() || dice.below(3) == 0 {
        return;
    }
    let transport = dice.maybe(|dice| match dice.below(7) {
        6 => Transport::Number(47),
        n => Transport::NAMED[n],
    });
    let has_ports = transport.is_some_and(Transport::has_ports);
    let matching = FlowMatch {
        local_ip: dice.maybe(|dice| dice.prefix(0)),
        remote_ip: None,
        transport,
        local_port: dice.maybe(Dice::ports).filter(|_| has_ports),
        remote_port: dice.maybe(Dice::ports).filter(|_| has_ports),
        dsfield: dice.maybe(|dice| DsField::new(1 + dice.below(3) as u8, 0xff)).flatten(),
        vlan_id: dice.maybe(|dice| VlanId::new(1 + dice.below(2) as u16)).flatten(),
        local_mac: None,
        remote_mac: dice.maybe(|dice| MacAddr([2, 8, 0x20, 0, 0, dice.below(3) as u8])),
    };
    let link = links[dice.below(links.len())].clone();
    let (maxbw, priority, fusion) = (dice.maybe(Dice::rate), dice.priority(), dice.fusing());
    let minbw = dice.maybe(Dice::rate);
    let is_netstacks = model.vnics.get(&link).is_some_and(|vnic| vnic.netstack().is_some());
    let cpus = match (is_netstacks, dice.cpus()) {
        (true, cpus) if matching.tells_sockets() => cpus,
        (true, _) => Cpus::NONE,
        (false, cpus) => cpus.first_alone(),
    };
    let flow = Flow { link, matching, maxbw, minbw, priority, fusion, cpus };
    model.flows.insert(name("f", number), flow);
}

fn roll_service(model: &mut Model, dice: &mut Dice<'_>, number: usize) {
    if dice.below(2) == 1 {
        let kind = [ServiceKind::Http, ServiceKind::Echo, ServiceKind::Sink][dice.below(3)];
        let root = if kind.has_root() { ["www", "files"][dice.below(2)] } else { "" };
        let service = Service {
            kind,
            netstack: name("n", dice.below(3)),
            port: Port(80 + dice.below(2) as u16),
            root: root.into(),
        };
        model.services.insert(name("s", number), service);
    }
}

/// Takes out whatever `validate` objects to.
fn drop_faults(model: &mut Model) {
    while let Some(fault) = model.validate().into_iter().next() {
        let mut path = fault.field.splitn(3, '.');
        let (kind, object) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
        let removed = match kind {
            // What is guaranteed is more than the limit.
            "link" | "etherstub" if fault.field.ends_with(".maxbw") => {
                let link = model.links.get_mut(object).map(|it| &mut it.maxbw);
                let maxbw = link.or_else(|| model.etherstubs.get_mut(object).map(|it| &mut it.maxbw));
                maxbw.is_some_and(|it| it.take().is_some())
            }
            "vnic" => model.vnics.remove(object).is_some(),
            "flow" => model.flows.remove(object).is_some(),
            "wire" => model.wires.remove(object).is_some(),
            "service" => model.services.remove(object).is_some(),
            "netstack" => {
                let rest = path.next().unwrap_or_default();
                let addrobj = rest.strip_prefix("addresses.");
                let interface = rest.strip_prefix("interfaces.").and_then(|it| it.split('.').next());
                model.netstacks.get_mut(object).is_some_and(|it| {
                    if rest == "filter" {
                        return filter::drop_rule(it, &fault.value);
                    }
                    if rest == "fpm.listen" {
                        return it.fpm.take().is_some();
                    }
                    if rest == "routes" {
                        let before = it.routes.len();
                        it.routes.retain(|route| route.gateway().is_some());
                        return it.routes.len() < before;
                    }
                    addrobj.is_some_and(|name| it.addresses.remove(name).is_some())
                        || interface.is_some_and(|name| it.interfaces.remove(name).is_some())
                })
            }
            _ => false,
        };
        assert!(removed, "a generated model has a fault of an unexpected kind: {fault}");
    }
}
