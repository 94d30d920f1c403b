//! FRR drives a netstack's routes over zebra's FPM stream: static routes that change under traffic, a zebra that dies and comes back,
//! somebody who writes garbage, and somebody who floods. As root; without FRR each test says why it is skipped.

use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Frr, Output, Sandbox};
use serde_json::Value;

/// alice on one side of a router, bob and carol on the other; FRR has an interface on both, and routes nothing itself.
const CONFIG: &str = r#"
[etherstub.left0]
mtu = 1500
[etherstub.right0]
mtu = 1500
[vnic.alice0]
over = "left0"
tap = { namespace = "alice", addresses = ["10.1.0.2/24", "fd01::2/64"] }
[vnic.bob0]
over = "right0"
tap = { namespace = "bob", addresses = ["10.2.0.2/24", "fd02::2/64"] }
[vnic.carol0]
over = "right0"
tap = { namespace = "carol", addresses = ["10.2.0.3/24", "fd02::3/64"] }
[vnic.f0]
over = "left0"
tap = { namespace = "frr", addresses = ["10.1.0.9/24", "fd01::9/64"] }
[vnic.f1]
over = "right0"
tap = { namespace = "frr", addresses = ["10.2.0.9/24", "fd02::9/64"] }
[vnic.r0]
over = "left0"
netstack = "router"
[vnic.r1]
over = "right0"
netstack = "router"
[netstack.router]
routes = [ROUTES]
[netstack.router.fpm]
namespace = "frr"
grace = GRACE
settle = 1
[netstack.router.addresses]
"r0/v4" = "10.1.0.1/24"
"r0/v6" = "fd01::1/64"
"r1/v4" = "10.2.0.1/24"
"r1/v6" = "fd02::1/64"
[netstack.router.tunables]
ipv4 = { forwarding = "on" }
ipv6 = { forwarding = "on" }
"#;

const ZEBRA: &str = "fpm address 127.0.0.1 port 2620\n";
/// The service is at bob's, and behind his link-local address; some of it at nobody's.
const STATIC: &str = "ip route 198.51.100.0/24 10.2.0.2\n\
                      ipv6 route 2001:db8:1::/48 fd02::2\n\
                      ipv6 route 2001:db8:2::/48 fe80::b f1\n\
                      ip route 192.0.2.0/25 blackhole\n\
                      ip route 192.0.2.128/25 reject\n";
const LIMIT: Duration = Duration::from_secs(30);

struct Net<'a> {
    sandbox: &'a Sandbox,
    daemon: Daemon<'a>,
    frr: Frr<'a>,
}

fn write(sandbox: &Sandbox, routes: &str, grace: u32) -> String {
    let path = sandbox.folder().join("host.toml");
    let text = CONFIG.replace("ROUTES", routes).replace("GRACE", &grace.to_string());
    std::fs::write(&path, text).expect("the sandbox's folder is writable");
    path.to_string_lossy().into_owned()
}

impl<'a> Net<'a> {
    /// With zebra, its static routes, and the service at bob's and carol's.
    fn start(sandbox: &'a Sandbox, grace: u32) -> Option<Self> {
        let config = write(sandbox, "", grace);
        let frr = Frr::new(sandbox, "frr")?;
        let daemon = Daemon::start(sandbox, config.as_ref());
        let net = Self { sandbox, daemon, frr };
        for (who, hop, line) in [("alice", 1, "alice0"), ("bob", 2, "bob0"), ("carol", 2, "carol0")] {
            net.ip(who, &format!("route add default via 10.{hop}.0.1"));
            net.ip(who, &format!("-6 route add default via fd0{hop}::1"));
            if who != "alice" {
                net.ip(who, "address add 198.51.100.1/32 dev lo");
                net.ip(who, "address add 2001:db8:1::1/128 dev lo");
                net.ip(who, "address add 2001:db8:2::1/128 dev lo");
            }
            if who == "bob" {
                net.ip(who, &format!("address add fe80::b/64 dev {line} nodad"));
            }
        }
        Some(net)
    }

    fn ip(&self, who: &str, line: &str) {
        self.sandbox.run(Some(who), "ip", &line.split(' ').collect::<Vec<_>>()).expect_success();
    }

    fn frr_begins(&mut self, routes: &str) {
        self.frr.start("zebra", ZEBRA);
        self.frr.start("staticd", routes);
    }

    /// Kills FRR, and removes what that leaves in its namespace's kernel: a new zebra takes it for its own, and may tell it once.
    fn frr_dies(&mut self) {
        self.frr.kill("staticd");
        self.frr.kill("zebra");
        for family in ["-4", "-6"] {
            for kind in ["unicast", "blackhole", "unreachable"] {
                let words = [family, "route", "flush", "proto", "196", "type", kind];
                self.sandbox.run(Some("frr"), "ip", &words);
            }
        }
        self.within("it is noticed", |net| net.shown()["state"] == "listening");
    }

    fn ping(&self, words: &[&str]) -> Output {
        self.sandbox.run(Some("alice"), "ping", &[&["-n"], words].concat())
    }

    fn reaches(&self, target: &str) -> bool {
        self.ping(&["-c", "1", "-W", "1", target]).code() == 0
    }

    #[track_caller]
    fn within(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < LIMIT, "{what}: {:#}", self.shown());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn shown(&self) -> Value {
        let text = self.daemon.firelane(&["show", "fpm", "-j", "router"]).expect_success();
        serde_json::from_str::<Value>(&text).expect("JSON")["fpm"][0].clone()
    }

    /// How many ways the netstack has to a destination.
    fn ways(&self, destination: &str) -> usize {
        let table = self.daemon.firelane(&["netstat", "-r"]).expect_success();
        table.lines().filter(|line| line.starts_with(destination)).count()
    }

    fn count(&self, what: &str) -> u64 {
        self.shown()[what].as_u64().unwrap_or_else(|| panic!("no {what}"))
    }

    fn refused(&self, why: &str) -> u64 {
        let shown = self.shown();
        let of = |it: &&Value| it["reason"] == why;
        shown["refused"].as_array().unwrap().iter().find(of).unwrap()["messages"].as_u64().unwrap()
    }

    fn dropped(&self, reason: &str) -> u64 {
        let drops = self.daemon.firelane(&["drops", "-p", "-o", "reason,frames"]).expect_success();
        let of = |line: &str| line.strip_prefix(&format!("{reason}:"))?.parse().ok();
        drops.lines().find_map(of).unwrap_or(0)
    }

    fn apply(&self, routes: &str, grace: u32) -> String {
        let path = write(self.sandbox, routes, grace);
        self.daemon.firelane(&["apply", &path]).expect_success()
    }

    /// Writes to where zebra would, from its namespace.
    fn somebody_writes(&self, python: &str) {
        let text = format!(
            "import os, socket, time\ns = socket.create_connection(('127.0.0.1', 2620))\n{python}\ntime.sleep(0.3)\n"
        );
        self.sandbox.run(Some("frr"), "python3", &["-c", &text]).expect_success();
    }
}

#[test]
fn static_routes_of_zebra_are_the_netstacks() {
    let sandbox = Sandbox::new();
    let Some(mut net) = Net::start(&sandbox, 60) else { return };
    assert_eq!(net.shown()["state"], "listening");
    net.frr_begins(STATIC);
    for target in ["198.51.100.1", "2001:db8:1::1", "2001:db8:2::1"] {
        net.within(target, |net| net.reaches(target));
    }
    net.within("all five are there", |net| net.count("routes") == 5);
    assert_eq!((net.count("unresolved"), net.count("stale"), net.count("sessions")), (0, 0, 1));
    assert_eq!(net.shown()["state"], "connected");
    // What zebra's namespace has of itself is not the router's business.
    assert!(net.refused("kernel_route") >= 4, "{:#}", net.shown());
    let table = net.daemon.firelane(&["netstat", "-r"]).expect_success();
    let has = |line: &str| table.lines().any(|it| it.split_whitespace().eq(line.split(' ')));
    for line in [
        "198.51.100.0/24 10.2.0.2 UGD r1 proto static metric 20",
        "192.0.2.0/25 UDB proto static metric 20",
        "192.0.2.128/25 UDR proto static metric 20",
        "2001:db8:2::/48 fe80::b UGD r1 proto static metric 20",
    ] {
        assert!(has(line), "{line}\n{table}");
    }
    let refused = net.daemon.firelane(&["route", "change", "198.51.100.0/24", "10.2.0.3"]).stderr;
    assert!(refused.contains("the routing daemon gave it (static), and takes it back"), "{refused}");
    assert_ne!(net.ping(&["-c", "1", "-W", "1", "192.0.2.1"]).code(), 0);
    assert_eq!(net.dropped("ip_blackhole"), 1);
    let told = net.ping(&["-c", "1", "-W", "5", "192.0.2.200"]).stdout;
    assert!(told.contains("Destination Host Unreachable"), "{told}");

    // The operator's word comes first, and the daemon's is there again when he takes it back.
    net.apply("{ destination = \"198.51.100.0/24\", kind = \"prohibit\" }", 60);
    let told = net.ping(&["-c", "1", "-W", "5", "198.51.100.1"]).stdout;
    assert!(told.contains("Packet filtered"), "{told}");
    net.apply("", 60);
    assert!(net.reaches("198.51.100.1"));
}

#[test]
fn a_route_that_changes_loses_nothing() {
    let sandbox = Sandbox::new();
    let Some(mut net) = Net::start(&sandbox, 60) else { return };
    net.frr_begins(STATIC);
    net.within("bob answers", |net| net.reaches("198.51.100.1") && net.reaches("2001:db8:1::1"));
    net.ip("carol", "neighbour flush all");
    // Each in two steps: staticd withdraws the destination if it is told to leave the last way before it knows that the new one leads
    // anywhere, which it asks zebra.
    let to = |to: &str, last: &str| {
        let v6 = if to == "3" { "fd02::3" } else { "fd02::2" };
        let says = |lines: &[&str]| net.frr.says(&[&["configure terminal"], lines].concat());
        says(&[
            &format!("ip route 198.51.100.0/24 10.2.0.{to}"),
            &format!("ipv6 route 2001:db8:1::/48 {v6}"),
        ]);
        net.within("both ways are there", |net| net.ways("198.51.100.0") == 2);
        says(&[&format!("no ip route 198.51.100.0/24 10.2.0.{last}")]);
        net.within("one is left", |net| net.ways("198.51.100.0") == 1);
    };
    // Both neighbours are known before it counts.
    to("3", "2");
    net.within("carol answers", |net| net.reaches("198.51.100.1"));
    let counted = std::thread::scope(|scope| {
        let pings = ["198.51.100.1", "2001:db8:1::1"].map(|target| {
            let net = &net;
            scope.spawn(move || net.ping(&["-q", "-i", "0.002", "-c", "2000", target]))
        });
        for n in 0..12 {
            if n % 2 == 0 { to("2", "3") } else { to("3", "2") }
        }
        pings.map(|it| it.join().unwrap().stdout)
    });
    for said in counted {
        assert!(said.contains("2000 packets transmitted, 2000 received, 0% packet loss"), "{said}");
    }
    assert!(net.count("messages") > 40);
}

#[test]
fn routes_outlive_a_zebra_that_dies_until_it_is_back_or_the_time_is_over() {
    let sandbox = Sandbox::new();
    let Some(mut net) = Net::start(&sandbox, 600) else { return };
    net.frr_begins(STATIC);
    net.within("bob answers", |net| net.reaches("198.51.100.1") && net.count("routes") == 5);
    net.frr_dies();
    assert_eq!((net.count("routes"), net.count("stale")), (5, 5));
    assert!(net.reaches("198.51.100.1"), "the routes stay");
    // It is back with one of them.
    net.frr_begins("ip route 198.51.100.0/24 10.2.0.3\n");
    net.within("it says no more of the others", |net| net.count("routes") == 1);
    assert_eq!((net.count("stale"), net.count("swept"), net.count("sessions")), (0, 4, 2));
    assert!(net.reaches("198.51.100.1") && !net.reaches("2001:db8:1::1"));
    // It dies for good, and the operator has less patience.
    net.frr_dies();
    assert_eq!(net.count("stale"), 1);
    let said = net.apply("", 1);
    assert!(said.contains("set fpm of netstack router grace 600 -> 1"), "{said}");
    net.within("its route is gone", |net| net.count("routes") == 0);
    assert!(!net.reaches("198.51.100.1"));
    assert!(net.reaches("10.2.0.2"), "what is the router's own stays");
}

#[test]
fn garbage_is_refused_and_counted_and_the_rest_goes_on() {
    let sandbox = Sandbox::new();
    let Some(mut net) = Net::start(&sandbox, 600) else { return };
    net.frr_begins(STATIC);
    net.within("bob answers", |net| net.reaches("198.51.100.1") && net.count("routes") == 5);
    net.somebody_writes("pass");
    net.within("one at a time", |net| net.count("turned_away") == 1);
    net.frr_dies();
    net.somebody_writes("s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')");
    net.within("no FPM", |net| net.refused("version") == 1 && net.shown()["state"] == "listening");
    assert_eq!(net.shown()["fault"], "a frame of version 71: FPM's is 1");
    net.somebody_writes("s.sendall(bytes([1, 1, 0, 2]))");
    net.within("no frame", |net| net.refused("frame_length") == 1);
    net.somebody_writes(
        "s.sendall(bytes([1, 2, 0, 8, 1, 2, 3, 4]) + bytes([1, 1, 0, 200]) + os.urandom(20))",
    );
    net.within("protobuf, and half a frame", |net| net.refused("not_netlink") == 1);
    // A flood of frames with arbitrary bytes in each.
    net.somebody_writes(
        "for n in range(2000):\n  inside = os.urandom(96)\n  \
         s.sendall(bytes([1, 1, 0, 120, 116, 0, 0, 0, 24 + n % 2, 0]) + bytes(10) + inside[:96] + bytes(4))",
    );
    net.within("all are judged", |net| net.count("messages") >= 2000 && net.shown()["state"] == "listening");
    assert!(net.count("routes") < 1000, "{:#}", net.shown());
    assert!(net.reaches("198.51.100.1") && net.reaches("2001:db8:2::1"), "the routes of before stay");
    // And zebra is served as before.
    net.frr_begins("ip route 198.51.100.0/24 10.2.0.3\n");
    net.within("zebra's are all that is left", |net| net.count("routes") == 1 && net.count("stale") == 0);
    assert!(net.reaches("198.51.100.1"));
}

/// Tens of thousands of routes that come, go and come again as fast as they can be written, from somebody who dies at once.
const FLOOD: &str = "\
import struct
def route(n, kind):
  body = struct.pack('BBBBBBBBI', 2, 24, 0, 0, 254, 196, 0, 1, 0)
  body += struct.pack('HH', 8, 1) + struct.pack('!I', (100 << 24) + (n << 8))
  body += struct.pack('HH', 8, 5) + bytes([10, 2, 0, 2])
  message = struct.pack('IHHII', 16 + len(body), kind, 0, 0, 0) + body
  return struct.pack('!BBH', 1, 1, 4 + len(message)) + message
for kind in 24, 25, 24, 25, 24:
  s.sendall(b''.join(route(n, kind) for n in range(20000)))
";

#[test]
fn a_daemon_that_floods_and_dies_hinders_no_packet() {
    let sandbox = Sandbox::new();
    let Some(net) = Net::start(&sandbox, 1) else { return };
    net.within("bob answers", |net| net.reaches("10.2.0.2"));
    let mut pings = sandbox.command("ip");
    // As long as it takes, or about that; it waits for the last answers, too.
    pings.args(["netns", "exec", "alice", "ping", "-nq", "-c", "500", "-i", "0.01", "-W", "5", "10.2.0.2"]);
    let pings = pings.stdout(Stdio::piped()).spawn().expect("ip is installed");
    net.somebody_writes(FLOOD);
    net.within("all is judged", |net| net.count("messages") == 100_000);
    net.within("its routes end with it", |net| net.count("routes") == 0 && net.count("swept") == 20_000);
    assert_eq!(net.count("installed"), 0);
    let said = pings.wait_with_output().expect("our own child").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("500 packets transmitted, 500 received"), "{said}");
}
