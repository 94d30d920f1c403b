//! Two hosts behind a router, whose routes change while a transfer runs through it.

use std::net::IpAddr;
use std::time::Duration;

use firelane_driver_memory::Conditions;
use firelane_flow::FlowConfig;
use firelane_ip::{Forwarding, RouteKind};
use firelane_lane::{
    Control, FlowSetup, LinkConfig, NetstackConfig, PortConfig, PortKind, PortUser, RouteConfig,
};
use firelane_sim::{
    Client, HostConfig, Plan, Plug, Server, Sim, SocketConfig, StackConfig, StackId, station_mac,
};
use firelane_units::{
    BitRate, Bytes, DropReason, FlowId, IpPrefix, LaneId, LinkId, Mtu, NetstackId, Priority,
};

const BYTES: u64 = 3_000_000;
const ROUTER: usize = 2;
/// What a host's first netstack and its VNIC are called.
const STACK: NetstackId = NetstackId(0);
const VNIC: LinkId = LinkId(1);
/// The router's second link, and its VNIC there.
const FAR: LinkId = LinkId(50);
const FAR_VNIC: LinkId = LinkId(51);

fn prefix(text: &str) -> IpPrefix {
    text.parse().expect("a prefix")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A host in 10.0.0.0/24 and fd00::/64, one in 10.9.0.0/24 and fd09::/64, and the router between them, over whose
/// second link packets of `mtu` bytes go.
fn world(lanes: u16, mtu: Mtu) -> (Sim, [StackId; 2]) {
    let mut sim = Sim::new(5);
    let sides = [1, 2].map(|number| {
        let host = sim.host(HostConfig::default(), Mtu::ETHERNET);
        sim.stack(host, &StackConfig::new(number))
    });
    let router = sim.host(HostConfig { lanes, ..HostConfig::default() }, Mtu::ETHERNET);
    sim.stack(router, &StackConfig::new(254));
    let config = NetstackConfig { forwarding: Forwarding::ON, ..NetstackConfig::new(STACK) };
    sim.control(router, || Control::Tune(config.clone()));
    sim.control(router, || Control::AddLink(LinkConfig { link: FAR, mtu }));
    let flow = FlowId(50);
    let limits = FlowConfig { parent: None, maxbw: None, priority: Priority::Medium };
    let setup = FlowSetup { flow, owner: FAR_VNIC, rule: None, config: limits, home: None };
    sim.control(router, || Control::AddFlow(setup));
    let kind = PortKind::Vnic { mac: station_mac(253), vlan: None, flow };
    let port = PortConfig { id: FAR_VNIC, over: FAR, kind, user: PortUser::Netstack(STACK) };
    sim.control(router, || Control::AddPort(port, None));
    for (own, theirs, gateway, here, hop) in [
        ("10.9.0.2/24", "10.0.0.2", "10.9.0.1/24", "10.9.0.0/24", "10.0.0.254"),
        ("fd09::2/64", "fd00::2", "fd09::1/64", "fd09::/64", "fd00::fe"),
    ] {
        sim.control(1, || Control::RemoveAddress(STACK, VNIC, ip(theirs)));
        sim.control(1, || Control::AddAddress(STACK, VNIC, prefix(own)));
        let any =
            IpPrefix::new(if ip(theirs).is_ipv4() { ip("0.0.0.0") } else { ip("::") }, 0).expect("no bits");
        let back = RouteConfig::via(any, prefix(gateway).addr());
        sim.control(1, || Control::AddRoute(STACK, back));
        sim.control(router, || Control::AddAddress(STACK, FAR_VNIC, prefix(gateway)));
        sim.control(0, || Control::AddRoute(STACK, RouteConfig::via(prefix(here), ip(hop))));
    }
    let wire = Conditions {
        rate: Some(BitRate::from_mbps(50)),
        delay: Duration::from_millis(2),
        queue: Bytes(200_000),
        ..Conditions::default()
    };
    let near = sim.uplink(0);
    let to = sim.uplink(router);
    sim.connect(near, to, Mtu::ETHERNET, wire.clone(), wire.clone());
    let far = sim.uplink(1);
    let from = Plug { host: router, link: FAR, vnic: None, lane: LaneId(0) };
    sim.connect(from, far, Mtu::ETHERNET, wire.clone(), wire);
    (sim, sides)
}

fn drops(sim: &Sim, reason: DropReason) -> u64 {
    let lanes = sim.hosts()[ROUTER].snapshots(sim.now());
    assert!(lanes.iter().all(firelane_lane::Snapshot::is_conserved));
    lanes.iter().map(|lane| lane.counters.drops.of(reason)).sum()
}

fn all_drops(sim: &Sim) -> u64 {
    DropReason::ALL.iter().map(|&reason| drops(sim, reason)).sum()
}

/// Uploads through the router while `change` happens to it every three milliseconds.
fn upload(lanes: u16, v6: bool, mtu: Mtu, change: impl Fn(&mut Sim, u32) + Clone + 'static) -> Sim {
    let (mut sim, sides) = world(lanes, mtu);
    let remote = std::net::SocketAddr::new(ip(if v6 { "fd09::2" } else { "10.9.0.2" }), 80);
    sim.spawn(Server::boxed(sides[1], remote, SocketConfig::of(1 << 20)));
    sim.settle();
    let start = sim.now();
    for n in 0..200 {
        let change = change.clone();
        sim.at(start + Duration::from_millis(3) * n, move |sim| change(sim, n));
    }
    let config = SocketConfig::of(1 << 20);
    sim.spawn(Client::boxed(sides[0], remote, Plan::upload(7, BYTES), config, Duration::ZERO));
    assert!(sim.run_until(start + Duration::from_secs(60), Sim::is_over), "lanes {lanes}, v6 {v6}: it ends");
    sim
}

#[test]
fn routes_change_under_a_transfer_and_nothing_is_lost() {
    for (lanes, v6) in [(1, false), (1, true), (2, false), (2, true)] {
        // A longer route to the same place comes and goes, and others that nobody uses.
        let (host, hop, other) = if v6 {
            ("fd09::2/128", "fd09::2", "2001:db8::/32")
        } else {
            ("10.9.0.0/28", "10.9.0.2", "192.0.2.0/24")
        };
        let sim = upload(lanes, v6, Mtu::ETHERNET, move |sim, n| {
            let longer = RouteConfig {
                gateway: None,
                link: Some(FAR_VNIC),
                ..RouteConfig::via(prefix(host), ip(hop))
            };
            let elsewhere = RouteConfig::via(prefix(other), ip(hop));
            for route in [longer, elsewhere] {
                match n % 2 {
                    0 => sim.control(ROUTER, || Control::AddRoute(STACK, route)),
                    _ => sim.control(ROUTER, || Control::RemoveRoute(STACK, route)),
                }
            }
        });
        assert_eq!(all_drops(&sim), 0, "lanes {lanes}, v6 {v6}");
        assert!(sim.notices().iter().all(|notice| !format!("{notice:?}").contains("Refused")));
    }
}

#[test]
fn a_hole_that_opens_for_a_while_is_counted_and_survived() {
    let sim = upload(1, false, Mtu::ETHERNET, |sim, n| {
        let hole = RouteConfig {
            gateway: None,
            kind: RouteKind::Blackhole,
            ..RouteConfig::via(prefix("10.9.0.2/32"), ip("10.9.0.2"))
        };
        match n {
            20 => sim.control(ROUTER, || Control::AddRoute(STACK, hole)),
            60 => sim.control(ROUTER, || Control::RemoveRoute(STACK, hole)),
            _ => {}
        }
    });
    let lost = drops(&sim, DropReason::Blackhole);
    assert!(lost > 0 && all_drops(&sim) == lost, "{lost} packets fell into the hole");
}

#[test]
fn the_sender_hears_of_a_smaller_link_behind_the_router() {
    for v6 in [false, true] {
        let sim = upload(1, v6, Mtu::new(1400).expect("an MTU"), |_, _| {});
        let refused = drops(&sim, DropReason::TooBig);
        assert!((1..100).contains(&refused), "v6 {v6}: {refused} packets were too large");
    }
}
