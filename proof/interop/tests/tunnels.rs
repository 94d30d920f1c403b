//! Tunnels between two netstacks that forward for one of the kernel's namespaces each: ping and iperf3 both ways through every kind, what
//! ICMP says, and a tunnel that is led elsewhere or ends while it runs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Output, Sandbox};

/// alice (10.1.0.2) behind router a, bob (10.2.0.2) behind router b, and a tunnel between the routers over an etherstub.
const CONFIG: &str = r#"
[etherstub.left0]
mtu = 1500
[etherstub.wan0]
mtu = 1500
[etherstub.right0]
mtu = 1500
[vnic.alice0]
over = "left0"
tap = { namespace = "alice", addresses = ["10.1.0.2/24", "fd01::2/64"] }
[vnic.bob0]
over = "right0"
tap = { namespace = "bob", addresses = ["10.2.0.2/24", "fd02::2/64"] }
[vnic.a0]
over = "left0"
netstack = "a"
[vnic.awan0]
over = "wan0"
netstack = "a"
[vnic.b0]
over = "right0"
netstack = "b"
[vnic.bwan0]
over = "wan0"
netstack = "b"
[vnic.atun0]
iptun = { LOCAL = "HERE", REMOTE = "THERE", KIND }
netstack = "a"
[vnic.btun0]
iptun = { REMOTE = "HERE", LOCAL = "THERE", KIND }
netstack = "b"
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
"atun0/v4" = "172.16.0.1/30"
"atun0/v6" = "fd16::1/64"
[netstack.a.tunables]
ipv4 = { forwarding = "on" }
ipv6 = { forwarding = "on" }
[netstack.b]
routes = [
    { destination = "10.1.0.0/24", gateway = "172.16.0.1" },
    { destination = "fd01::/64", gateway = "fd16::1" },
]
[netstack.b.addresses]
"b0/v4" = "10.2.0.1/24"
"b0/v6" = "fd02::1/64"
"bwan0/v4" = "192.0.2.2/24"
"bwan0/v6" = "fd99::2/64"
"btun0/v4" = "172.16.0.2/30"
"btun0/v6" = "fd16::2/64"
[netstack.b.tunables]
ipv4 = { forwarding = "on" }
ipv6 = { forwarding = "on" }
"#;

/// How long a first answer may take: IPv6's addresses are tested, neighbours are asked for.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

struct Net<'a> {
    sandbox: &'a Sandbox,
    daemon: Daemon<'a>,
}

impl<'a> Net<'a> {
    fn start(sandbox: &'a Sandbox, kind: &str, ends: [&str; 2]) -> Self {
        let text = CONFIG.replace("KIND", kind).replace("LOCAL", "local").replace("REMOTE", "remote");
        let text = text.replace("THERE", ends[1]).replace("HERE", ends[0]);
        let path = sandbox.folder().join("tunnels.toml");
        std::fs::write(&path, text).expect("the sandbox's folder is writable");
        let net = Self { sandbox, daemon: Daemon::start(sandbox, &path) };
        for (who, side) in [("alice", 1), ("bob", 2)] {
            for gateway in [format!("10.{side}.0.1"), format!("fd0{side}::1")] {
                let family = if gateway.contains(':') { "-6" } else { "-4" };
                let add = [family, "route", "add", "default", "via", &gateway];
                sandbox.run(Some(who), "ip", &add).expect_success();
            }
        }
        net.await_answers();
        net
    }

    fn await_answers(&self) {
        for (who, target) in
            [("alice", "10.2.0.2"), ("alice", "fd02::2"), ("bob", "10.1.0.2"), ("bob", "fd01::2")]
        {
            let begin = Instant::now();
            while self.ping(who, &["-c", "1", "-W", "1", target]).code() != 0 {
                assert!(begin.elapsed() < FIRST_ANSWER, "{target} answers {who}");
            }
        }
    }

    fn ping(&self, who: &str, words: &[&str]) -> Output {
        self.sandbox.run(Some(who), "ping", &[&["-n"], words].concat())
    }

    fn told(&self, words: &[&str]) -> String {
        let output = self.ping("alice", words);
        assert_ne!(output.code(), 0, "{output:?}");
        format!("{output:?}")
    }

    /// Transfers both ways, by both versions.
    fn transfer(&self) {
        let mut command = self.sandbox.command("ip");
        command.args(["netns", "exec", "bob", "iperf3", "-s"]).stdout(Stdio::null());
        let mut server = command.spawn().expect("ip");
        for words in
            [&["-4", "-c", "10.2.0.2"][..], &["-4", "-R", "-c", "10.2.0.2"], &["-6", "-c", "fd02::2"]]
        {
            let begin = Instant::now();
            loop {
                let args = [words, &["-n", "2M", "--connect-timeout", "5000"]].concat();
                let output = self.sandbox.run(Some("alice"), "iperf3", &args);
                if output.code() == 0 {
                    break;
                }
                assert!(begin.elapsed() < FIRST_ANSWER, "{words:?}: {output:?}");
            }
        }
        let _ = server.kill();
        let _ = server.wait();
    }

    fn packets(&self, link: &str) -> Vec<u64> {
        let words = ["dladm", "show-link", "-s", "-p", "-o", "ipackets,opackets", link];
        let text = self.daemon.firelane(&words).expect_success();
        text.trim().split(':').map(|count| count.parse().expect("a number")).collect()
    }
}

const V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const V6: [&str; 2] = ["fd99::1", "fd99::2"];

fn goes_through(kind: &str, ends: [&str; 2], mtu: u32) {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox, kind, ends);
    let fits = (mtu - 28).to_string();
    net.ping("alice", &["-c", "1", "-W", "5", "-M", "do", "-s", &fits, "10.2.0.2"]).expect_success();
    let told = net.told(&["-c", "1", "-W", "5", "-M", "do", "-s", "1472", "10.2.0.2"]);
    assert!(told.contains(&format!("mtu = {mtu}")), "{told}");
    let told = net.told(&["-c", "1", "-W", "5", "-M", "do", "-s", "1452", "fd02::2"]);
    assert!(told.contains(&format!("Packet too big: mtu={mtu}")), "{told}");
    // What may be cut is cut before the tunnel, and put together by bob.
    net.ping("alice", &["-c", "1", "-W", "5", "-M", "dont", "-s", "1472", "10.2.0.2"]).expect_success();
    let told = net.told(&["-c", "1", "-W", "5", "-t", "2", "10.2.0.2"]);
    assert!(
        told.contains("From 172.16.0.2 icmp_seq=1 Time to live exceeded"),
        "the tunnel is one hop: {told}"
    );
    net.transfer();
    let counted = net.packets("atun0");
    assert!(counted.iter().all(|&packets| packets > 100), "{counted:?}");
}

/// The way of a datagram from alice to bob, as a trace tells it from one tunnel's interface to the other's, whatever lanes it passes.
fn way(net: &Net<'_>, src: &str, dst: &str) -> Vec<String> {
    let words = ["trace", "-p", "-o", "station,decision", "-l", "alice0", "-t", "a0", "udp", src, dst];
    let told = net.daemon.firelane(&words).expect_success().replace('\\', "");
    let lines = told.lines().filter(|line| !line.starts_with("lane:handed over"));
    let from = lines.skip_while(|line| !line.starts_with("ip:sent by atun0"));
    from.take_while(|line| *line != "lane:to netstack b by btun0").map(str::to_owned).collect()
}

#[test]
fn a_trace_names_the_tunnel_that_a_frame_enters_and_leaves() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox, "type = \"ipv4\"", V4);
    for (src, dst, len, version) in
        [("10.1.0.2:7", "10.2.0.2:9", 42, 4), ("[fd01::2]:7", "[fd02::2]:9", 62, 41)]
    {
        let told = way(&net, src, dst);
        let expected = [
            format!("ip:sent by atun0, {len} bytes: udp {src} > {dst}"),
            "flow:out at atun0: its own flow".to_owned(),
            "switch:to atun0".to_owned(),
            "flow:in at atun0: no flow".to_owned(),
            "tunnel:step out".to_owned(),
            format!("ip:sent by awan0, {} bytes: protocol {version} 192.0.2.1 > 192.0.2.2", len + 20),
            "flow:out at awan0: its own flow".to_owned(),
            "switch:to bwan0".to_owned(),
            "flow:in at bwan0: its own flow".to_owned(),
            "lane:to netstack b by bwan0".to_owned(),
            "classify:no connection or flow is known: the slow path".to_owned(),
            "ip:step in".to_owned(),
            "tunnel:step in".to_owned(),
            format!("driver:received at btun0, {len} bytes: udp {src} > {dst}"),
            "switch:to btun0".to_owned(),
            "flow:in at btun0: its own flow".to_owned(),
        ];
        assert_eq!(told, expected, "{src}");
    }
}

#[test]
fn in_ipv4() {
    goes_through("type = \"ipv4\"", V4, 1480);
}

#[test]
fn in_ipv6() {
    goes_through("type = \"ipv6\"", V6, 1452);
}

#[test]
fn behind_gre_in_ipv4() {
    goes_through("type = \"gre\", key = 7, checksum = true, sequence = true", V4, 1464);
}

#[test]
fn behind_gre_in_ipv6() {
    goes_through("type = \"gre\"", V6, 1448);
}

#[test]
fn a_tunnel_that_ends_is_told_of_and_one_that_is_led_elsewhere_comes_back() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox, "type = \"ipv4\"", V4);
    let dladm = |words: &[&str]| net.daemon.firelane(&[&["dladm"], words].concat()).expect_success();
    // Nobody is there, so nothing comes back.
    dladm(&["modify-iptun", "-t", "-a", "remote=192.0.2.77", "atun0"]);
    net.told(&["-c", "1", "-W", "1", "10.2.0.2"]);
    dladm(&["modify-iptun", "-t", "-a", "remote=192.0.2.2", "atun0"]);
    net.await_answers();
    // The other end has no tunnel any more, and says so outside.
    net.daemon.firelane(&["ipadm", "delete-ip", "btun0"]).expect_success();
    let told = net.told(&["-c", "3", "-W", "2", "10.2.0.2"]);
    assert!(told.contains("Destination Host Unreachable"), "{told}");
    let drops = net.daemon.firelane(&["drops", "-p", "-o", "reason,frames"]).expect_success();
    assert!(drops.contains("ip_unknown_protocol:"), "{drops}");
}
