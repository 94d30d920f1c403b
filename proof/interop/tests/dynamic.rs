//! Two of Debian's FRR speak OSPF, and BGP, of both families for two Firelane routers with two wires between them; one wire is
//! lost, and traffic takes the other. The wires are veth pairs of the host. As root; without FRR or veth pairs each test says why
//! it is skipped.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Frr, Output, Sandbox, skipped};

/// What FRR has of the wires.
#[derive(Clone, Copy, PartialEq)]
enum Sees {
    /// What is for it and for groups.
    Own,
    /// What is for the router, too, whose netstack leaves the protocols alone.
    Routers,
}

/// The Ethernet address of a router's port.
fn mac(n: u8, port: char) -> String {
    format!("02:08:20:00:0{n}:0{}", if port == 'h' { 'c' } else { port })
}

/// alice behind r1, bob behind r2, wires a and b between them, and at each router a namespace for its FRR on the same links.
fn config(sees: Sees, addresses: impl Fn(u8, char) -> String) -> String {
    let (looks, filter) = match sees {
        Sees::Own => ("", ""),
        Sees::Routers => (
            "promisc_filtered = \"off\"\n",
            "filter = [\"block in quick proto ospf from any to any\",\n\
             \"block in quick proto tcp from any to any port = 179\",\n\
             \"block in quick proto tcp from any port = 179 to any\"]\n",
        ),
    };
    let mut text = String::from(
        "[etherstub.lan1]\nmtu = 1500\n[etherstub.lan2]\nmtu = 1500\n\
         [vnic.alice0]\nover = \"lan1\"\ntap = { namespace = \"alice\", addresses = [\"10.1.0.2/24\", \"fd01::2/64\"] }\n\
         [vnic.bob0]\nover = \"lan2\"\ntap = { namespace = \"bob\", addresses = [\"10.2.0.2/24\", \"fd02::2/64\"] }\n",
    );
    for n in [1, 2] {
        for wire in ['a', 'b'] {
            text += &format!("[link.w{wire}{n}]\nkind = \"nic\"\nifname = \"w{wire}{n}\"\n");
        }
        for (port, over) in [('h', format!("lan{n}")), ('a', format!("wa{n}")), ('b', format!("wb{n}"))] {
            let (mac, addresses) = (mac(n, port), addresses(n, port));
            text += &format!(
                "[vnic.r{n}{port}0]\nover = \"{over}\"\nnetstack = \"r{n}\"\nmac = \"{mac}\"\n\
                 [vnic.f{n}{port}0]\nover = \"{over}\"\n{looks}tap = {{ namespace = \"f{n}\", addresses = [{addresses}] }}\n"
            );
        }
        text += &format!(
            "[netstack.r{n}]\n{filter}[netstack.r{n}.fpm]\nnamespace = \"f{n}\"\n\
             [netstack.r{n}.tunables]\nipv4 = {{ forwarding = \"on\" }}\n\
             ipv6 = {{ forwarding = \"on\" }}\n\
             [netstack.r{n}.addresses]\n\"r{n}h0/v4\" = \"10.{n}.0.1/24\"\n\"r{n}a0/v4\" = \"10.0.1.{n}/24\"\n\
             \"r{n}b0/v4\" = \"10.0.2.{n}/24\"\n\"r{n}h0/v6\" = \"fd0{n}::1/64\"\n\"r{n}a0/v6\" = \"fd00:a::{n}/64\"\n\
             \"r{n}b0/v6\" = \"fd00:b::{n}/64\"\n\"r{n}h0/ll\" = \"fe80::c:{n}/64\"\n\
             \"r{n}a0/ll\" = \"fe80::a:{n}/64\"\n\"r{n}b0/ll\" = \"fe80::b:{n}/64\"\n"
        );
    }
    text
}

/// Until the protocols agree: OSPF sends again what was lost after some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Both protocols give a silent neighbour up after 3 or 4 seconds here.
const OUTAGE_MAX: Duration = Duration::from_secs(10);

/// Whose routes a test is about: what each router has to find, and where bob is.
struct Family {
    networks: [&'static str; 2],
    bob: &'static str,
    url: &'static str,
}

const V4: Family =
    Family { networks: ["10.2.0.0/24", "10.1.0.0/24"], bob: "10.2.0.2", url: "http://10.2.0.2/body" };
const V6: Family =
    Family { networks: ["fd02::/64", "fd01::/64"], bob: "fd02::2", url: "http://[fd02::2]/body" };

struct World<'a> {
    family: Family,
    sandbox: &'a Sandbox,
    daemon: Daemon<'a>,
    frr: [Frr<'a>; 2],
}

/// A server that ends with its test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> World<'a> {
    fn new(sandbox: &'a Sandbox, family: Family, config: &str) -> Option<Self> {
        let frr = [Frr::new(sandbox, "f1")?, Frr::new(sandbox, "f2")?];
        for wire in ["a", "b"] {
            let (near, far) = (format!("w{wire}1"), format!("w{wire}2"));
            let words = ["link", "add", &near, "type", "veth", "peer", "name", &far];
            if !sandbox.run(None, "ip", &words).status.success() {
                skipped("no veth pair can be made here");
                return None;
            }
            for end in [&near, &far] {
                sandbox.run(None, "ip", &["link", "set", end, "up"]).expect_success();
            }
        }
        let daemon = Daemon::start_as(sandbox, config);
        let world = Self { family, sandbox, daemon, frr };
        for (who, n) in [("alice", 1), ("bob", 2)] {
            world.ip(who, &format!("route add default via 10.{n}.0.1"));
            world.ip(who, &format!("-6 route add default via fd0{n}::1"));
        }
        Some(world)
    }

    fn ip(&self, who: &str, line: &str) {
        self.sandbox.run(Some(who), "ip", &line.split(' ').collect::<Vec<_>>()).expect_success();
    }

    fn ping(&self, words: &[&str]) -> Output {
        self.sandbox.run(Some("alice"), "ping", &[&["-n", "-W", "1"], words, &[self.family.bob]].concat())
    }

    /// The gateways of a netstack's routes to a network.
    fn gateways(&self, netstack: &str, to: &str) -> Vec<String> {
        let table = self.daemon.firelane(&["netstat", "-r", "-j"]).expect_success();
        let table: serde_json::Value = serde_json::from_str(&table).expect("JSON");
        let rows = table["routes"].as_array().expect("a list").iter();
        let its = rows.filter(|it| it["netstack"] == netstack && it["destination"] == to);
        let mut gateways: Vec<String> =
            its.filter_map(|it| it["gateway"].as_str().map(str::to_owned)).collect();
        gateways.sort();
        gateways
    }

    #[track_caller]
    fn awaits(&self, netstack: &str, to: &str, gateways: &[&str]) {
        let begin = Instant::now();
        while self.gateways(netstack, to) != gateways {
            let shown = || self.daemon.firelane(&["show", "fpm"]).stdout;
            let is = self.gateways(netstack, to);
            assert!(begin.elapsed() < PATIENCE, "{netstack} to {to}: {is:?}, not {gateways:?}\n{}", shown());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn set_wire(&self, wire: &str, state: &str) {
        self.sandbox.run(None, "ip", &["link", "set", &format!("w{wire}1"), state]).expect_success();
    }

    /// bob serves a file.
    fn serve(&self) -> Ends {
        std::fs::write(self.sandbox.folder().join("body"), vec![b'x'; 300_000]).expect("writable");
        let mut command = self.sandbox.command("ip");
        command.args([
            "netns",
            "exec",
            "bob",
            "python3",
            "-m",
            "http.server",
            "80",
            "--bind",
            "::",
            "--directory",
        ]);
        let child = command.arg(self.sandbox.folder()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ends(child.expect("ip runs"))
    }

    fn fetches(&self) -> bool {
        let words = [
            "-sS",
            "-m",
            "5",
            "--retry",
            "3",
            "--retry-connrefused",
            "-o",
            "/dev/null",
            "-w",
            "%{size_download}",
        ];
        let words = [&words[..], &["-g", self.family.url]].concat();
        self.sandbox.run(Some("alice"), "curl", &words).stdout == "300000"
    }

    /// Loses wire a under traffic, and has it back: routes are `with` it or `without`.
    fn loses_a_wire(&self, with: [&[&str]; 2], without: [&str; 2]) {
        let _server = self.serve();
        let networks = self.family.networks;
        let both = |ways: [&[&str]; 2]| {
            self.awaits("r1", networks[0], ways[0]);
            self.awaits("r2", networks[1], ways[1]);
        };
        both(with);
        assert!(self.fetches());
        self.set_wire("a", "down");
        let begin = Instant::now();
        both([&[without[0]], &[without[1]]]);
        while self.ping(&["-c", "1"]).code() != 0 {
            assert!(begin.elapsed() < OUTAGE_MAX, "no other way after {:?}", begin.elapsed());
        }
        assert!(begin.elapsed() < OUTAGE_MAX, "the other way after {:?}", begin.elapsed());
        let said = self.ping(&["-q", "-i", "0.01", "-c", "300"]).stdout;
        assert!(said.contains("300 received, 0% packet loss"), "{said}");
        assert!(self.fetches());
        // That it is back costs nothing: both ways lead there before one of them is taken.
        self.set_wire("a", "up");
        both(with);
        let said = self.ping(&["-q", "-i", "0.01", "-c", "300"]).stdout;
        assert!(said.contains("300 received, 0% packet loss"), "{said}");
        assert!(self.fetches());
    }
}

const ZEBRA: &str = "fpm address 127.0.0.1 port 2620\n";

/// The namespace of FRR has the router's own addresses on interfaces without ARP: OSPF on a link between two speaks to groups
/// alone, so the neighbours learn the router's address from FRR, and its Ethernet address from the router.
#[test]
fn ospf_for_the_routers_own_addresses_takes_the_wire_that_is_left() {
    let sandbox = Sandbox::new();
    let Some(mut world) = World::new(&sandbox, V4, &config(Sees::Own, |_, _| String::new())) else { return };
    for n in [1, 2] {
        let who = format!("f{n}");
        for (port, address) in [
            ('h', format!("10.{n}.0.1/24")),
            ('a', format!("10.0.1.{n}/24")),
            ('b', format!("10.0.2.{n}/24")),
        ] {
            world.ip(&who, &format!("link set f{n}{port}0 arp off"));
            world.ip(&who, &format!("address add {address} dev f{n}{port}0"));
        }
    }
    for (n, frr) in (1..).zip(&mut world.frr) {
        let wire = |wire: char| {
            format!(
                "interface f{n}{wire}0\n ip ospf network point-to-point\n ip ospf hello-interval 1\n \
                 ip ospf dead-interval 4\n ip ospf retransmit-interval 3\n"
            )
        };
        let router = format!(
            "router ospf\n ospf router-id 10.{n}.0.1\n passive-interface f{n}h0\n timers throttle spf 0 50 100\n \
             network 10.0.0.0/8 area 0\n"
        );
        frr.start("zebra", ZEBRA);
        frr.start("ospfd", &[wire('a'), wire('b'), router].concat());
    }
    world.loses_a_wire([&["10.0.1.2", "10.0.2.2"], &["10.0.1.1", "10.0.2.1"]], ["10.0.2.2", "10.0.2.1"]);
    let table = world.daemon.firelane(&["netstat", "-r"]).expect_success();
    assert!(table.contains("proto ospf metric 20"), "{table}");
}

/// FRR has addresses of its own on the wires and names the router as the next hop of what it tells.
#[test]
fn bgp_with_the_router_as_next_hop_takes_the_wire_that_is_left() {
    let sandbox = Sandbox::new();
    let addresses = |n: u8, port: char| match port {
        'a' => format!("\"10.0.1.1{n}/24\""),
        'b' => format!("\"10.0.2.1{n}/24\""),
        _ => String::new(),
    };
    let Some(mut world) = World::new(&sandbox, V4, &config(Sees::Own, addresses)) else { return };
    for (n, frr) in (1..).zip(&mut world.frr) {
        let (own, other, far) = (65000 + n, 65003 - n, 3 - n);
        let [a, b] = [1, 2].map(|wire| format!("neighbor 10.0.{wire}.1{far}"));
        let bgp = format!(
            "router bgp {own}\n bgp router-id 10.{n}.0.1\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
             timers bgp 1 3\n {a} remote-as {other}\n {a} timers connect 1\n {b} remote-as {other}\n {b} timers connect 1\n \
             address-family ipv4 unicast\n  network 10.{n}.0.0/24\n  {a} route-map a-out out\n  {a} route-map a-in in\n  \
             {b} route-map b-out out\n exit-address-family\n\
             route-map a-out permit 10\n set ip next-hop 10.0.1.{n}\n\
             route-map b-out permit 10\n set ip next-hop 10.0.2.{n}\n\
             route-map a-in permit 10\n set local-preference 200\n"
        );
        frr.start("zebra", ZEBRA);
        frr.start("bgpd", &bgp);
    }
    world.loses_a_wire([&["10.0.1.2"], &["10.0.1.1"]], ["10.0.2.2", "10.0.2.1"]);
    let table = world.daemon.firelane(&["netstat", "-r"]).expect_success();
    assert!(table.contains("proto bgp metric 20"), "{table}");
    // bgpd alone dies: zebra takes its routes back at once, and with them go the router's.
    world.frr[0].kill("bgpd");
    world.awaits("r1", "10.2.0.0/24", &[]);
}

/// As with OSPF: what the neighbours learn as the next hop is the link-local address that FRR says hello from, so its namespace
/// has the router's own; towards alice, too, because ospf6d leaves an interface without such an address out. An interface without
/// ARP does not listen to neighbour solicitations either.
#[test]
fn ospf_of_ipv6_for_the_routers_link_local_addresses_takes_the_wire_that_is_left() {
    let sandbox = Sandbox::new();
    let Some(mut world) = World::new(&sandbox, V6, &config(Sees::Own, |_, _| String::new())) else { return };
    for n in [1, 2] {
        let who = format!("f{n}");
        for (port, addresses) in [
            ('h', vec![format!("fe80::c:{n}/64"), format!("fd0{n}::1/64")]),
            ('a', vec![format!("fe80::a:{n}/64"), format!("fd00:a::{n}/64")]),
            ('b', vec![format!("fe80::b:{n}/64"), format!("fd00:b::{n}/64")]),
        ] {
            let name = format!("f{n}{port}0");
            world.ip(&who, &format!("link set {name} arp off addrgenmode none"));
            world.ip(&who, &format!("-6 address flush dev {name} scope link"));
            for address in addresses {
                world.ip(&who, &format!("address add {address} dev {name}"));
            }
        }
    }
    for (n, frr) in (1..).zip(&mut world.frr) {
        let wire = |wire: char| {
            format!(
                "interface f{n}{wire}0\n ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n ipv6 ospf6 hello-interval 1\n \
                 ipv6 ospf6 dead-interval 4\n ipv6 ospf6 retransmit-interval 3\n"
            )
        };
        let rest = format!(
            "interface f{n}h0\n ipv6 ospf6 area 0\n ipv6 ospf6 passive\n\
             router ospf6\n ospf6 router-id 10.{n}.0.1\n timers throttle spf 0 50 100\n"
        );
        frr.start("zebra", ZEBRA);
        frr.start("ospf6d", &[wire('a'), wire('b'), rest].concat());
    }
    world
        .loses_a_wire([&["fe80::a:2", "fe80::b:2"], &["fe80::a:1", "fe80::b:1"]], ["fe80::b:2", "fe80::b:1"]);
    let table = world.daemon.firelane(&["netstat", "-r"]).expect_success();
    assert!(table.contains("proto ospf metric 20"), "{table}");
}

/// FRR has addresses of its own and names the router's: by wire a the link-local one counts, as is usual, by wire b the other.
#[test]
fn bgp_of_ipv6_with_the_router_as_next_hop_takes_the_wire_that_is_left() {
    let sandbox = Sandbox::new();
    let addresses = |n: u8, port: char| match port {
        'h' => String::new(),
        wire => format!("\"fd00:{wire}::1{n}/64\""),
    };
    let Some(mut world) = World::new(&sandbox, V6, &config(Sees::Own, addresses)) else { return };
    for (n, frr) in (1..).zip(&mut world.frr) {
        let (own, other, far) = (65000 + n, 65003 - n, 3 - n);
        let [a, b] = ['a', 'b'].map(|wire| format!("neighbor fd00:{wire}::1{far}"));
        let bgp = format!(
            "router bgp {own}\n bgp router-id 10.{n}.0.1\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
             no bgp default ipv4-unicast\n \
             timers bgp 1 3\n {a} remote-as {other}\n {a} timers connect 1\n {b} remote-as {other}\n {b} timers connect 1\n \
             address-family ipv6 unicast\n  network fd0{n}::/64\n  {a} activate\n  {b} activate\n  \
             {a} route-map a-out out\n  {a} route-map a-in in\n  \
             {b} route-map b-out out\n  {b} route-map b-in in\n exit-address-family\n\
             route-map a-out permit 10\n set ipv6 next-hop global fd00:a::{n}\n set ipv6 next-hop local fe80::a:{n}\n\
             route-map b-out permit 10\n set ipv6 next-hop global fd00:b::{n}\n set ipv6 next-hop local fe80::b:{n}\n\
             route-map a-in permit 10\n set local-preference 200\n\
             route-map b-in permit 10\n set ipv6 next-hop prefer-global\n"
        );
        frr.start("zebra", ZEBRA);
        frr.start("bgpd", &bgp);
    }
    world.loses_a_wire([&["fe80::a:2"], &["fe80::a:1"]], ["fd00:b::2", "fd00:b::1"]);
    let table = world.daemon.firelane(&["netstat", "-r"]).expect_success();
    assert!(table.contains("proto bgp metric 20"), "{table}");
    world.frr[0].kill("bgpd");
    world.awaits("r1", "fd02::/64", &[]);
}

/// FRR's namespace has the router's own addresses, those of Ethernet among them, and sees what is for the router: whoever answers
/// ARP says the same.
fn take_the_routers_place(world: &World<'_>) {
    for n in [1, 2] {
        let who = format!("f{n}");
        for (port, addresses) in [
            ('h', [format!("10.{n}.0.1/24"), format!("fd0{n}::1/64"), format!("fe80::c:{n}/64")]),
            ('a', [format!("10.0.1.{n}/24"), format!("fd00:a::{n}/64"), format!("fe80::a:{n}/64")]),
            ('b', [format!("10.0.2.{n}/24"), format!("fd00:b::{n}/64"), format!("fe80::b:{n}/64")]),
        ] {
            let name = format!("f{n}{port}0");
            world.ip(&who, &format!("link set {name} address {} addrgenmode none", mac(n, port)));
            world.ip(&who, &format!("-6 address flush dev {name} scope link"));
            // It is a router, and takes no default route of its neighbours' BGP, which advertises itself for RFC 8950.
            let knob = format!("net.ipv6.conf.{name}.accept_ra=0");
            world.sandbox.run(Some(&who), "sysctl", &["-q", "-w", &knob]).expect_success();
            for address in addresses {
                let dad = if address.contains(':') { " nodad" } else { "" };
                world.ip(&who, &format!("address add {address} dev {name}{dad}"));
            }
        }
    }
}

/// OSPF on links of many, with a designated router and packets to single stations.
#[test]
fn ospf_at_the_routers_own_addresses_takes_the_wire_that_is_left() {
    let sandbox = Sandbox::new();
    let Some(mut world) = World::new(&sandbox, V4, &config(Sees::Routers, |_, _| String::new())) else {
        return;
    };
    take_the_routers_place(&world);
    for (n, frr) in (1..).zip(&mut world.frr) {
        let wire = |wire: char| {
            format!(
                "interface f{n}{wire}0\n ip ospf hello-interval 1\n ip ospf dead-interval 4\n ip ospf retransmit-interval 3\n"
            )
        };
        let router = format!(
            "router ospf\n ospf router-id 10.{n}.0.1\n passive-interface f{n}h0\n timers throttle spf 0 50 100\n \
             network 10.0.0.0/8 area 0\n"
        );
        frr.start("zebra", ZEBRA);
        frr.start("ospfd", &[wire('a'), wire('b'), router].concat());
    }
    world.loses_a_wire([&["10.0.1.2", "10.0.2.2"], &["10.0.1.1", "10.0.2.1"]], ["10.0.2.2", "10.0.2.1"]);
    assert!(world.frr[0].says(&["show ip ospf interface f1a0"]).contains("Network Type BROADCAST"));
}

/// BGP between the routers' own addresses, whose next hops need no route map; IPv4's routes go by the same IPv6 next hops
/// (RFC 8950).
#[test]
fn bgp_at_the_routers_own_addresses_takes_the_wire_that_is_left() {
    let sandbox = Sandbox::new();
    let Some(mut world) = World::new(&sandbox, V6, &config(Sees::Routers, |_, _| String::new())) else {
        return;
    };
    take_the_routers_place(&world);
    for (n, frr) in (1..).zip(&mut world.frr) {
        let (own, other, far) = (65000 + n, 65003 - n, 3 - n);
        let [a, b] = ['a', 'b'].map(|wire| format!("neighbor fd00:{wire}::{far}"));
        let bgp = format!(
            "router bgp {own}\n bgp router-id 10.{n}.0.1\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
             no bgp default ipv4-unicast\n timers bgp 1 3\n \
             {a} remote-as {other}\n {a} timers connect 1\n {a} capability extended-nexthop\n \
             {b} remote-as {other}\n {b} timers connect 1\n {b} capability extended-nexthop\n \
             address-family ipv4 unicast\n  network 10.{n}.0.0/24\n  {a} activate\n  {b} activate\n  \
             {a} route-map a-in in\n exit-address-family\n \
             address-family ipv6 unicast\n  network fd0{n}::/64\n  {a} activate\n  {b} activate\n  \
             {a} route-map a-in in\n exit-address-family\n\
             route-map a-in permit 10\n set local-preference 200\n"
        );
        frr.start("zebra", ZEBRA);
        frr.start("bgpd", &bgp);
    }
    for family in [V6, V4] {
        world.family = family;
        world.loses_a_wire([&["fe80::a:2"], &["fe80::a:1"]], ["fe80::b:2", "fe80::b:1"]);
    }
}
