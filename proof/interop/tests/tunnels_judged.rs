//! Tunnels whose other end is scapy: what is outside and inside each packet, and what ICMP says, judged by an implementation that
//! is not ours (RFC 2003, 4213, 2473, 2784, 2890, 3056, 3964, 6040).
//!
//! The judge (`tunnels/judge.py`) has one of the kernel's namespaces on the outer network, and no address of the kernel's; alice
//! (10.1.0.2) is a host of the kernel's behind our router, and answers datagrams (`tunnels/alice.py`).

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Sandbox};

const CONFIG: &str = r#"
[etherstub.left0]
mtu = 1500
[etherstub.wan0]
mtu = 1500
[vnic.alice0]
over = "left0"
tap = { namespace = "alice", addresses = ["10.1.0.2/24", "fd01::2/64"] }
[vnic.judge0]
over = "wan0"
tap = { namespace = "judge" }
[vnic.a0]
over = "left0"
netstack = "a"
[vnic.awan0]
over = "wan0"
netstack = "a"
[vnic.tun0]
iptun = { local = "HERE", remote = "THERE", KIND }
netstack = "a"
[netstack.a]
routes = [
    { destination = "10.2.0.0/24", gateway = "172.16.0.2" },
    { destination = "fd02::/64", gateway = "fd16::2" },
]
[netstack.a.addresses]
"a0/v4" = "10.1.0.1/24"
"a0/v6" = "fd01::1/64"
"awan0/v4" = "192.0.2.1/24"
"awan0/v6" = "fd99::1/64"
"tun0/v4" = "172.16.0.1/30"
"tun0/v6" = "fd16::1/64"
[netstack.a.tunables]
ipv4 = { forwarding = "on" }
ipv6 = { forwarding = "on" }
"#;

/// The same router with the site that its outer address gives it (RFC 3056), and alice in that.
const SITE: &str = r#"
[etherstub.left0]
mtu = 1500
[etherstub.wan0]
mtu = 1500
[vnic.alice0]
over = "left0"
tap = { namespace = "alice", addresses = ["10.1.0.2/24", "fd01::2/64", "2002:c000:201:1::2/64"] }
[vnic.judge0]
over = "wan0"
tap = { namespace = "judge" }
[vnic.a0]
over = "left0"
netstack = "a"
[vnic.awan0]
over = "wan0"
netstack = "a"
[vnic.tun0]
iptun = { type = "6to4", local = "192.0.2.1" }
netstack = "a"
[netstack.a.addresses]
"a0/v4" = "10.1.0.1/24"
"a0/v6" = "fd01::1/64"
"a0/site" = "2002:c000:201:1::1/64"
"awan0/v4" = "192.0.2.1/24"
"tun0/v6" = "2002:c000:201::1/16"
[netstack.a.tunables]
ipv4 = { forwarding = "on" }
ipv6 = { forwarding = "on" }
"#;

const V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const V6: [&str; 2] = ["fd99::1", "fd99::2"];
const GRE: &str = "type = \"gre\", key = 7, checksum = true, sequence = true";

const PATIENCE: Duration = Duration::from_secs(60);

struct Net<'a> {
    sandbox: &'a Sandbox,
    daemon: Daemon<'a>,
    _alice: Background,
}

/// A program that ends with the value.
struct Background {
    child: Child,
    log: PathBuf,
}

impl Background {
    /// One that has said that it is ready.
    fn start(sandbox: &Sandbox, netns: &str, words: &[&str]) -> Self {
        let log = sandbox.folder().join(format!("log-{netns}"));
        let mut command = sandbox.command("ip");
        command.args(["netns", "exec", netns, "/usr/bin/python3"]).args(words);
        let out = File::create(&log).expect("the folder is writable");
        command.stdin(Stdio::null()).stderr(out.try_clone().expect("a descriptor")).stdout(out);
        let started = Self { child: command.spawn().expect("nsenter is installed"), log };
        let begin = Instant::now();
        while !started.said().contains("ready") {
            assert!(begin.elapsed() < PATIENCE, "{words:?}: {}", started.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        started
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tunnels");
    folder.join(name).to_string_lossy().into_owned()
}

impl<'a> Net<'a> {
    fn start(sandbox: &'a Sandbox, kind: &str, ends: [&str; 2]) -> Self {
        Self::of(sandbox, &CONFIG.replace("KIND", kind).replace("THERE", ends[1]).replace("HERE", ends[0]))
    }

    fn of(sandbox: &'a Sandbox, text: &str) -> Self {
        let path = sandbox.folder().join("tunnels.toml");
        std::fs::write(&path, text).expect("the sandbox's folder is writable");
        let daemon = Daemon::start(sandbox, &path);
        for words in
            [["route", "add", "default", "via", "10.1.0.1"], ["-6", "route", "add", "default", "via"]]
        {
            let gateway: &[&str] = if words[0] == "-6" { &["fd01::1"] } else { &[] };
            sandbox.run(Some("alice"), "ip", &[&words[..], gateway].concat()).expect_success();
        }
        // Its addresses are tested first.
        let begin = Instant::now();
        while sandbox.run(Some("alice"), "ping", &["-n", "-c", "1", "-W", "1", "fd01::1"]).code() != 0 {
            assert!(begin.elapsed() < PATIENCE, "the router answers alice");
        }
        let alice = Background::start(sandbox, "alice", &[&script("alice.py")]);
        Self { sandbox, daemon, _alice: alice }
    }

    fn dropped(&self, reason: &str) -> u64 {
        let drops = self.daemon.firelane(&["drops", "-p", "-o", "reason,frames"]).expect_success();
        let of = drops.lines().find_map(|line| line.strip_prefix(&format!("{reason}:")));
        of.map_or(0, |frames| frames.parse().expect("a number"))
    }

    /// What the judge finds, and what the netstack has counted meanwhile.
    fn exchange(&self, kind: &str, least: usize, dropped: &[(&str, u64)]) {
        let words = [&script("judge.py"), "exchange", kind];
        let said = self.sandbox.run(Some("judge"), "/usr/bin/python3", &words).expect_success();
        let passed = said.lines().filter(|line| line.starts_with("ok: ")).count();
        assert!(passed >= least, "{said}");
        for &(reason, frames) in dropped {
            assert_eq!(self.dropped(reason), frames, "{reason}\n{said}");
        }
    }

    /// What alice is told while the judge answers each of her echoes with an error about the packet outside.
    fn told(&self, kind: &str, error: &str, words: &[&str]) -> String {
        let _judge = Background::start(self.sandbox, "judge", &[&script("judge.py"), "error", kind, error]);
        let words = [&["-n", "-c", "4", "-i", "0.5", "-W", "2"], words].concat();
        let output = self.sandbox.run(Some("alice"), "ping", &words);
        assert_ne!(output.code(), 0, "{output:?}");
        format!("{output:?}")
    }

    /// The judge says that the way outside carries 1300 bytes: alice is told what the tunnel carries.
    fn says_its_mtu(&self, kind: &str, mtu: u16) {
        let told = self.told(kind, "big", &["-M", "do", "-s", "1400", "10.2.0.2"]);
        assert!(told.contains(&format!("mtu = {mtu}")), "{told}");
    }
}

/// The outer network is a VLAN of an uplink, whose device the judge has.
#[test]
fn in_a_vlan_of_an_uplink() {
    let table = [
        ("ipip", "type = \"ipv4\"", V4, 14),
        ("ip6", "type = \"ipv6\"", V6, 12),
        ("gre", GRE, V4, 15),
        ("gre6", "type = \"gre\"", V6, 12),
    ];
    for (kind, words, ends, least) in table {
        let sandbox = Sandbox::new();
        let text = CONFIG
            .replace("[etherstub.wan0]", "[link.wan0]\nkind = \"tap\"\nifname = \"judge0\"")
            .replace("[vnic.judge0]\nover = \"wan0\"\ntap = { namespace = \"judge\" }\n", "")
            .replace("[vnic.awan0]", "[vnic.awan0]\nvlan = 7");
        let net = Net::of(
            &sandbox,
            &text.replace("KIND", words).replace("THERE", ends[1]).replace("HERE", ends[0]),
        );
        sandbox.run(None, "ip", &["link", "set", "judge0", "addrgenmode", "none", "up"]).expect_success();
        let words = ["JUDGE_VLAN=7", "/usr/bin/python3", &script("judge.py"), "exchange", kind];
        let said = sandbox.run(None, "env", &words).expect_success();
        assert!(said.lines().filter(|line| line.starts_with("ok: ")).count() >= least, "{said}");
        assert!(net.dropped("tunnel_stranger") >= 2, "{said}");
    }
}

#[test]
fn ipv4_and_ipv6_in_ipv4() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox, "type = \"ipv4\"", V4);
    net.exchange("ipip", 14, &[("tunnel_congested", 2), ("tunnel_stranger", 2)]);
    for (to, unreachable) in
        [("10.2.0.2", "Destination Host Unreachable"), ("fd02::2", "Address unreachable")]
    {
        let told = net.told("ipip", "host", &[to]);
        assert!(told.contains(unreachable), "{told}");
    }
    let told = net.told("ipip", "expired", &["10.2.0.2"]);
    assert!(told.contains("Unreachable"), "outside ran out of hops, which is no fault of hers: {told}");
    net.says_its_mtu("ipip", 1280);
}

#[test]
fn ipv4_and_ipv6_in_ipv6() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox, "type = \"ipv6\"", V6);
    net.exchange("ip6", 12, &[("tunnel_congested", 2), ("tunnel_stranger", 2)]);
    let told = net.told("ip6", "host", &["10.2.0.2"]);
    assert!(told.contains("Unreachable"), "{told}");
    net.says_its_mtu("ip6", 1252);
}

#[test]
fn behind_gre_in_ipv4_with_all_that_it_may_have() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox, GRE, V4);
    let strangers = ("tunnel_stranger", 4);
    let refused = [("gre_checksum", 2), ("gre_header", 1), ("gre_order", 1)];
    net.exchange("gre", 15, &[&[("tunnel_congested", 2), strangers], &refused[..]].concat());
    let told = net.told("gre", "host", &["10.2.0.2"]);
    assert!(told.contains("Unreachable"), "{told}");
    net.says_its_mtu("gre", 1264);
}

#[test]
fn behind_gre_in_ipv6() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox, "type = \"gre\"", V6);
    net.exchange("gre6", 12, &[("tunnel_congested", 2), ("tunnel_stranger", 2)]);
    net.says_its_mtu("gre6", 1248);
}

#[test]
fn ipv6_by_6to4() {
    let sandbox = Sandbox::new();
    let net = Net::of(&sandbox, SITE);
    // Three whose inner address is another's, and one whose outer one is.
    net.exchange("6to4", 3, &[("tunnel_stranger", 4)]);
}
