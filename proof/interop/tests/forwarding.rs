//! A netstack forwards between two of the kernel's namespaces: ping, iperf3, and what ICMP says when it cannot.

use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_interop::{Background, Daemon, Output, Sandbox, binary};

/// alice (10.1.0.2) and bob (10.2.0.2) on an etherstub each, and a router on both; its way to bob carries 1300 bytes.
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
[vnic.r0]
over = "left0"
netstack = "router"
[vnic.r1]
over = "right0"
netstack = "router"
[netstack.router]
routes = [
    { destination = "192.0.2.0/24", kind = "prohibit" },
    { destination = "10.2.0.0/24", kind = "prohibit", source = "10.1.0.3/32" }ROUTES
]
[netstack.router.addresses]
"r0/v4" = "10.1.0.1/24"
"r0/v6" = "fd01::1/64"
"r0/ll" = "fe80::1/64"
"r1/v4" = "10.2.0.1/24"
"r1/v6" = "fd02::1/64"
[netstack.router.interfaces.r1]
ipv4 = { mtu = 1300 }
ipv6 = { mtu = 1300 }
[netstack.router.tunables]
ipv4 = { forwarding = "on" }
ipv6 = { forwarding = "on" }
"#;

/// How long a first answer may take: IPv6's addresses are tested, neighbours are asked for.
const FIRST_ANSWER: Duration = Duration::from_secs(20);

struct Net<'a> {
    sandbox: &'a Sandbox,
    daemon: Daemon<'a>,
}

fn config(sandbox: &Sandbox, name: &str, routes: &str) -> std::path::PathBuf {
    let path = sandbox.folder().join(name);
    std::fs::write(&path, CONFIG.replace("ROUTES", routes)).expect("the sandbox's folder is writable");
    path
}

impl<'a> Net<'a> {
    fn start(sandbox: &'a Sandbox) -> Self {
        let daemon = Daemon::start(sandbox, &config(sandbox, "router.toml", ""));
        let net = Self { sandbox, daemon };
        for (who, side) in [("alice", 1), ("bob", 2)] {
            for gateway in [format!("10.{side}.0.1"), format!("fd0{side}::1")] {
                let family = if gateway.contains(':') { "-6" } else { "-4" };
                let add = [family, "route", "add", "default", "via", &gateway];
                net.sandbox.run(Some(who), "ip", &add).expect_success();
            }
        }
        for target in ["10.2.0.2", "fd02::2"] {
            let begin = Instant::now();
            while net.ping(&["-c", "1", "-W", "1", target]).code() != 0 {
                assert!(begin.elapsed() < FIRST_ANSWER, "bob answers at {target}");
            }
        }
        net
    }

    fn ping(&self, words: &[&str]) -> Output {
        self.sandbox.run(Some("alice"), "ping", &[&["-n"], words].concat())
    }

    /// What alice is told instead of an answer.
    fn told(&self, words: &[&str]) -> String {
        let output = self.ping(words);
        assert_ne!(output.code(), 0, "{output:?}");
        format!("{output:?}")
    }

    fn dropped(&self, reason: &str) -> u64 {
        let drops = self.daemon.firelane(&["drops", "-p", "-o", "reason,frames"]).expect_success();
        let of = drops.lines().find_map(|line| line.strip_prefix(&format!("{reason}:")));
        of.map_or(0, |frames| frames.parse().expect("a number"))
    }
}

#[test]
fn icmp_says_why_a_packet_did_not_arrive() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    for (words, said) in [
        (
            &["-c", "1", "-W", "5", "-t", "1", "10.2.0.2"][..],
            "From 10.1.0.1 icmp_seq=1 Time to live exceeded",
        ),
        (&["-c", "1", "-W", "5", "-t", "1", "fd02::2"], "From fd01::1 icmp_seq=1 Time exceeded: Hop limit"),
        (&["-c", "1", "-W", "5", "-M", "do", "-s", "1400", "10.2.0.2"], "mtu = 1300"),
        (&["-c", "1", "-W", "5", "-M", "do", "-s", "1400", "fd02::2"], "Packet too big: mtu=1300"),
        (&["-c", "1", "-W", "5", "192.0.2.9"], "From 10.1.0.1 icmp_seq=1 Packet filtered"),
        (&["-c", "1", "-W", "5", "198.51.100.9"], "Unreachable"),
    ] {
        let told = net.told(words);
        assert!(told.contains(said), "{words:?}: {told}");
    }
    // The same way from another source is another way.
    sandbox.run(Some("alice"), "ip", &["addr", "add", "10.1.0.3/24", "dev", "alice0"]).expect_success();
    let told = net.told(&["-c", "1", "-W", "5", "-I", "10.1.0.3", "10.2.0.2"]);
    assert!(told.contains("From 10.1.0.1 icmp_seq=1 Packet filtered"), "{told}");
    // What may be cut is cut, and put together by bob, who answers as long.
    net.ping(&["-c", "1", "-W", "5", "-M", "dont", "-s", "1400", "10.2.0.2"]).expect_success();
    assert!(net.dropped("ip_hops_exceeded") >= 2 && net.dropped("ip_prohibited") >= 2);
}

#[test]
fn who_goes_round_by_the_router_hears_of_the_shorter_way_if_that_is_on() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    let carol = ["10.1.0.77", "fd01::77"];
    for (family, to, gateway) in [("-4", carol[0], "10.1.0.1"), ("-6", carol[1], "fe80::1")] {
        sandbox
            .run(Some("alice"), "ip", &[family, "route", "add", to, "via", gateway, "dev", "alice0"])
            .expect_success();
    }
    let redirect = "Redirect Host(New nexthop: 10.1.0.77)";
    let ask = |to| net.told(&["-c", "1", "-W", "1", to]);
    assert!(!ask(carol[0]).contains("Redirect"));
    for protocol in ["ipv4", "ipv6"] {
        net.daemon.firelane(&["ipadm", "set-prop", "-p", "_send_redirects=on", protocol]).expect_success();
    }
    let told = ask(carol[0]);
    assert!(told.contains(redirect), "{told}");
    // Of IPv6 the kernel tells nobody, and follows.
    let route = || sandbox.run(Some("alice"), "ip", &["-6", "route", "get", carol[1]]).expect_success();
    assert!(route().contains("via fe80::1"), "{}", route());
    ask(carol[1]);
    assert!(!route().contains("via fe80::1"), "{}", route());
}

#[test]
fn iperf3_passes_over_the_smaller_way() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    let mut command = sandbox.command("ip");
    command.args(["netns", "exec", "bob", "iperf3", "-s"]).stdout(Stdio::null());
    let _server = Background::start(&mut command);
    for words in [&["-4"][..], &["-4", "-R"], &["-6"], &["-4", "-u", "-b", "20M"]] {
        let target = if words[0] == "-6" { "fd02::2" } else { "10.2.0.2" };
        let begin = Instant::now();
        let ask = || sandbox.run(Some("alice"), "iperf3", &[&["-c", target, "-t", "1"], words].concat());
        let mut output = ask();
        while output.code() != 0 && begin.elapsed() < FIRST_ANSWER {
            // The server has not started.
            output = ask();
        }
        let text = output.expect_success();
        assert!(text.contains("receiver"), "{text}");
    }
    assert_eq!(net.dropped("ip_no_route"), 0);
}

#[test]
fn routes_that_change_lose_nothing() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    let mut command = sandbox.command("ip");
    command.args(["netns", "exec", "alice", "ping", "-n", "-i", "0.02", "-c", "100", "-W", "5", "10.2.0.2"]);
    let pings = command.stdout(Stdio::piped()).spawn().expect("ip");
    for round in 0..4 {
        let more = r#", { destination = "198.51.100.0/24", gateway = "10.2.0.2" }, { destination = "203.0.113.0/24", gateway = "10.2.0.2" }"#;
        let path = config(&sandbox, "changed.toml", if round % 2 == 0 { more } else { "" });
        let path = path.to_str().expect("a plain path");
        net.daemon.firelane(&["apply", "-t", path]).expect_success();
    }
    let output = pings.wait_with_output().expect("ping ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("100 received, 0% packet loss"), "{text}");
}

#[test]
fn a_source_that_is_elsewhere_is_refused_where_the_operator_asks() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    net.sandbox.run(Some("alice"), "ip", &["addr", "add", "10.9.9.9/32", "dev", "lo"]).expect_success();
    let spoofed = ["-c", "1", "-W", "1", "-I", "10.9.9.9", "10.2.0.2"];
    net.told(&spoofed);
    assert_eq!(net.dropped("ip_reverse_path"), 0, "nobody asks: the answer finds no way back");
    net.daemon
        .firelane(&["ipadm", "set-ifprop", "-p", "rpfilter=strict", "-m", "ipv4", "r0"])
        .expect_success();
    net.told(&spoofed);
    assert_eq!(net.dropped("ip_reverse_path"), 1);
    net.ping(&["-c", "1", "-W", "5", "10.2.0.2"]).expect_success();
    net.daemon.firelane(&["ipadm", "reset-ifprop", "-p", "rpfilter", "-m", "ipv4", "r0"]).expect_success();
    net.told(&spoofed);
    assert_eq!(net.dropped("ip_reverse_path"), 1);
}

/// A host beside the router, for programs.
const SENDER: &str = r#"
[vnic.web0]
over = "left0"
netstack = "web"
[netstack.web]
routes = [{ destination = "0.0.0.0/0", gateway = "10.1.0.1" }, { destination = "::/0", gateway = "fd01::1" }]
[netstack.web.addresses]
"web0/v4" = "10.1.0.10/24"
"web0/v6" = "fd01::10/64"
"#;

/// Says of each connection how much came by it.
const COUNTS: &str = "import socket
door = socket.create_server(('::', 7), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    one, _ = door.accept()
    count = 0
    while text := one.recv(1 << 20):
        count += len(text)
    one.sendall(str(count).encode())
";

/// Sends 400,000 bytes and prints the answer, and how long its segments are (`tcpi_snd_mss`).
const SENDS: &str = "import socket, struct, sys, time
deadline = time.monotonic() + 20
while True:
    try:
        one = socket.create_connection((sys.argv[1], 7), 40)
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.1)
one.sendall(bytes(400000))
one.shutdown(socket.SHUT_WR)
print(one.recv(100).decode(), struct.unpack_from('I', one.getsockopt(6, 11, 104), 16)[0])
";

/// RFC 4821: what the router says of packets that are too long is lost on the way. All that a program sends arrives at the kernel at
/// the other end, in segments as long as the way carries.
#[test]
fn a_way_that_drops_what_is_too_long_in_silence_is_found_out() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    let file = |name: &str, text: &str| {
        let path = sandbox.folder().join(name);
        std::fs::write(&path, text).expect("the sandbox's folder is writable");
        path.to_str().expect("a plain path").to_owned()
    };
    let hosts = file("hosts.toml", &format!("{}{SENDER}", CONFIG.replace("ROUTES", "")));
    net.daemon.firelane(&["apply", "-t", &hosts]).expect_success();
    let rules = "block out quick on r0 proto icmp from any to any icmp-type unreach\n\
        block out quick on r0 proto ipv6-icmp from any to any icmp-type toobig\n";
    net.daemon.firelane(&["ipf", "-z", "router", "-Fa", "-f", &file("ipf.conf", rules)]).expect_success();
    let _server = Background::start(&mut sandbox.command_in("bob", &["/usr/bin/python3", "-c", COUNTS]));
    // Of 1300 bytes the headers of IP and TCP take 40 or 60, and timestamps 12.
    for (target, most) in [("10.2.0.2", 1_248), ("fd02::2", 1_228)] {
        let mut command = sandbox.command("timeout");
        command.env("FIRELANE_SOCKET", net.daemon.runtime().join("api.sock"));
        command.env("FIRELANE_PRELOAD", binary("libfirelane_preload.so"));
        command.args(["-k", "2", "80"]).arg(binary("firelane")).args([
            "run",
            "--quiet",
            "--require",
            "-v",
            "web0",
        ]);
        let output = command.args(["--", "/usr/bin/python3", "-c", SENDS, target]).output().expect("timeout");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (count, segment) = text.trim().split_once(' ').unwrap_or_else(|| panic!("{target}: {output:?}"));
        let segment: u32 = segment.parse().expect("a number");
        assert_eq!(count, "400000", "{target}");
        assert!((1_000..=most).contains(&segment), "{target}: {segment}");
    }
    let shown = net.daemon.firelane(&["ipfstat", "-oh", "-z", "router"]).expect_success();
    let hits = shown.lines().filter_map(|line| line.split_once(' ')?.0.parse::<u64>().ok());
    assert!(hits.take(2).all(|count| count > 0), "the router spoke, and nobody heard it: {shown}");
}
