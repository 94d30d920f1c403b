//! Pieces of translated datagrams between real kernels: alice inside and bob outside of a router send each other datagrams of up to
//! 64 KiB over wires on which frames overtake each other, and each of them arrives whole (RFC 4787 REQ-14).
//!
//! What is exact is asked exactly: nothing is missing, all is what was sent, pieces had to wait where wires let them overtake, and none
//! where they do not.

use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_interop::{Background, Daemon, Output, Sandbox};

/// alice (10.1.0.2; 10.1.0.9, whom a bimap knows as 192.0.2.9) behind one wire, bob (10.2.0.2) behind another, a router between them.
const CONFIG: &str = r#"
[etherstub.left0]
mtu = 1500
[etherstub.left1]
mtu = 1500
[etherstub.right0]
mtu = 1500
[etherstub.right1]
mtu = 1500
[vnic.alice0]
over = "left0"
tap = { namespace = "alice", addresses = ["10.1.0.2/24", "10.1.0.9/24", "fd01::2/64"] }
[vnic.r0]
over = "left1"
netstack = "router"
[vnic.r1]
over = "right1"
netstack = "router"
[vnic.bob0]
over = "right0"
tap = { namespace = "bob", addresses = ["10.2.0.2/24", "fd02::2/64"] }
[wire.inside0]
ends = ["left0", "left1"]
seed = 7
both = { delay = "1ms", jitter = "200us" }
[wire.outside0]
ends = ["right1", "right0"]
seed = 8
both = { delay = "1ms", jitter = "200us" }
[netstack.router]
nat = [
    "bimap r1 10.1.0.9/32 -> 192.0.2.9/32",
    "map r1 10.1.0.0/24 -> 0/32 portmap tcp/udp 20000:60000",
    "map r1 10.1.0.0/24 -> 0/32",
    "rdr r1 10.2.0.1/32 port 7 -> 10.1.0.2 port 7007 udp",
]
[netstack.router.addresses]
"r0/v4" = "10.1.0.1/24"
"r0/v6" = "fd01::1/64"
"r1/v4" = "10.2.0.1/24"
"r1/v6" = "fd02::1/64"
[netstack.router.tunables]
ipv4 = { forwarding = "on" }
ipv6 = { forwarding = "on" }
"#;

/// Python: what a datagram to one of these addresses and ports says goes back to whom it is from.
const ECHOES: &str = r"
import select, socket, sys
ends = {}
for at in sys.argv[1:]:
    address, port = at.rsplit(':', 1)
    end = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    end.bind((address, int(port)))
    ends[end.fileno()] = end
while True:
    for end in select.select(list(ends.values()), [], [])[0]:
        text, peer = end.recvfrom(1 << 16)
        end.sendto(text, peer)
";

/// Python: sends bursts of datagrams of these sizes to an address and port, each burst behind the answers to the last one, and compares
/// those.
const COMPARES: &str = r"
import os, socket, sys
address, port = sys.argv[1].rsplit(':', 1)
end = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
end.settimeout(5)
if len(sys.argv) > 3:
    end.bind((sys.argv[3], 0))
end.connect((address, int(port)))
for burst in sys.argv[2].split(','):
    texts = [os.urandom(int(size)) for size in burst.split('+')]
    for text in texts:
        end.send(text)
    came = [end.recv(1 << 16) for text in texts]
    assert sorted(came) == sorted(texts), (burst, [len(text) for text in came])
";

/// Python: the second half of so many datagrams to 10.2.0.1, whose first halves never follow.
const HALVES: &str = r"
import socket, struct, sys
end = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for number in range(int(sys.argv[1])):
    header = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 0, 1000 + number, 185, 64, 17, 0,
                         socket.inet_aton('10.2.0.2'), socket.inet_aton('10.2.0.1'))
    end.sendto(header + bytes(500), ('10.2.0.1', 0))
";

/// Datagrams of two pieces, six, fourteen, and as many as one can have: 45.
const SIZES: &str = "1473,1473+8000+1473,1473,20000+20000+20000,8000,65507";
/// The same of IPv6, whose lengths leave its header out.
const SIZES_V6: &str = "1453,8000,65527";

/// How long a first answer may take: neighbours are asked for, servers start, IPv6's addresses are tested.
const FIRST_ANSWER: Duration = Duration::from_secs(20);

/// How many pieces must have waited before a way counts as tried, and in how many rounds they must have come: of ten first pieces that
/// cross such a wire in a round two are overtaken.
const EARLY_LEAST: u64 = 3;
const ROUNDS_MAX: u32 = 30;

struct Net<'a> {
    sandbox: &'a Sandbox,
    daemon: Daemon<'a>,
    _echoes: [Background; 2],
}

impl<'a> Net<'a> {
    fn start(sandbox: &'a Sandbox) -> Self {
        let daemon = Daemon::start_as(sandbox, CONFIG);
        for (who, to, gateway) in [
            ("alice", "default", "10.1.0.1"),
            ("alice", "fd02::/64", "fd01::1"),
            // bob knows no way to 10.1.0.0/24.
            ("bob", "192.0.2.9", "10.2.0.1"),
            ("bob", "fd01::/64", "fd02::1"),
        ] {
            let family = if gateway.contains(':') { "-6" } else { "-4" };
            sandbox.run(Some(who), "ip", &[family, "route", "add", to, "via", gateway]).expect_success();
        }
        for target in ["10.2.0.2", "fd02::2"] {
            until(|| sandbox.run(Some("alice"), "ping", &["-n", "-c", "1", "-W", "1", target]));
        }
        let echoes = [
            ("alice", &["10.1.0.2:7007", "10.1.0.9:7", "fd01::2:7"][..]),
            ("bob", &["10.2.0.2:7", "fd02::2:7"]),
        ]
        .map(|(who, ends)| {
            let mut command = sandbox.command("ip");
            command.args(["netns", "exec", who, "/usr/bin/python3", "-c", ECHOES]).args(ends);
            Background::start(command.stdout(Stdio::null()))
        });
        let net = Self { sandbox, daemon, _echoes: echoes };
        for (who, to, from, _) in WAYS {
            until(|| net.compare(who, to, from, "1"));
        }
        net
    }

    fn compare(&self, who: &str, to: &str, from: Option<&str>, sizes: &str) -> Output {
        let fixed = ["-c", COMPARES, to, sizes];
        let from: Vec<&str> = from.into_iter().collect();
        self.sandbox.run(Some(who), "/usr/bin/python3", &[&fixed, &from[..]].concat())
    }

    fn overtake(&self, wire: &str, share: &str) {
        let prop = format!("reorder={share}");
        self.daemon.firelane(&["dladm", "modify-wire", "-p", &prop, wire]).expect_success();
    }

    /// A total of the translation, as programs get it.
    fn total(&self, name: &str) -> u64 {
        let said = self.daemon.firelane(&["ipnat", "-s", "-j"]).expect_success();
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        said["nat"]["totals"][name].as_u64().unwrap_or_else(|| panic!("{name}: {said}"))
    }

    /// Nothing was given up, nothing waits, and the kernels have put together all that they got.
    fn assert_nothing_is_lost(&self) {
        assert_eq!(["ended", "given_up", "waiting"].map(|name| self.total(name)), [0; 3]);
        let drops = self.daemon.firelane(&["drops"]).expect_success();
        assert!(!drops.contains("nat_"), "{drops}");
        for who in ["alice", "bob"] {
            assert_eq!(self.counted(who, "IpReasmFails"), 0, "{who}");
        }
    }

    /// A counter of a namespace's kernel.
    fn counted(&self, who: &str, counter: &str) -> u64 {
        let said = self.sandbox.run(Some(who), "nstat", &["-asz", counter]).expect_success();
        let line = said.lines().find_map(|line| line.strip_prefix(counter));
        let count = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        count.unwrap_or_else(|| panic!("{said}"))
    }

    /// Does something again and again until so many pieces have had to wait for their first one.
    fn until_pieces_were_early(&self, what: &str, mut again: impl FnMut()) {
        let before = self.total("early");
        for _ in 0..ROUNDS_MAX {
            again();
            if self.total("early") >= before + EARLY_LEAST {
                return;
            }
        }
        panic!("{what}: {} pieces were early", self.total("early") - before);
    }
}

/// Who writes to whom, from where, and over which wires: mapped, redirected, one for one in both directions, and from inside to a name
/// outside.
type Way = (&'static str, &'static str, Option<&'static str>, &'static [&'static str]);
const BOTH: &[&str] = &["inside0", "outside0"];
const WAYS: [Way; 5] = [
    ("alice", "10.2.0.2:7", None, BOTH),
    ("bob", "10.2.0.1:7", None, BOTH),
    ("alice", "10.2.0.2:7", Some("10.1.0.9"), BOTH),
    ("bob", "192.0.2.9:7", None, BOTH),
    ("alice", "10.2.0.1:7", None, &["inside0"]),
];

fn until(mut ask: impl FnMut() -> Output) {
    let begin = Instant::now();
    loop {
        let output = ask();
        if output.code() == 0 {
            return;
        }
        assert!(begin.elapsed() < FIRST_ANSWER, "{output:?}");
    }
}

#[test]
fn datagrams_arrive_whole_though_their_pieces_overtake_each_other() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    let ask = |(who, to, from, _): Way| net.compare(who, to, from, SIZES).expect_success();
    WAYS.into_iter().for_each(|way| drop(ask(way)));
    net.assert_nothing_is_lost();
    assert_eq!(net.total("early"), 0, "nothing overtakes");
    for wire in BOTH {
        net.overtake(wire, "20%");
        for way in WAYS.into_iter().filter(|(.., wires)| wires.contains(wire)) {
            net.until_pieces_were_early(&format!("{wire} {way:?}"), || drop(ask(way)));
        }
        net.overtake(wire, "0");
    }
    net.assert_nothing_is_lost();
    // What is not translated waits for nobody.
    BOTH.iter().for_each(|wire| net.overtake(wire, "20%"));
    let before = net.total("early");
    for (who, to) in [("alice", "fd02::2:7"), ("bob", "fd01::2:7")] {
        (0..3).for_each(|_| drop(net.compare(who, to, None, SIZES_V6).expect_success()));
    }
    assert_eq!(net.total("early"), before);
}

#[test]
fn every_large_ping_is_answered_though_its_pieces_overtake_each_other() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    BOTH.iter().for_each(|wire| net.overtake(wire, "20%"));
    for (who, to, from) in [
        ("alice", "10.2.0.2", "10.1.0.2"),
        ("alice", "10.2.0.2", "10.1.0.9"),
        ("bob", "192.0.2.9", "10.2.0.2"),
    ] {
        for (size, count) in [("1473", 20), ("8000", 20), ("65507", 3)] {
            net.until_pieces_were_early(&format!("{who} {to} {size}"), || {
                let before = net.counted(who, "IcmpInEchoReps");
                let times = count.to_string();
                let words = ["-n", "-q", "-I", from, "-s", size, "-c", &times, "-i", "0.02", "-W", "5", to];
                let said = sandbox.run(Some(who), "ping", &words).expect_success();
                assert!(said.contains(&format!("{count} packets transmitted")), "{said}");
                assert!(!said.contains("wrong data") && !said.contains("errors"), "{said}");
                // ping waits for the last answers as long as two others took; they come all the same.
                let begin = Instant::now();
                while net.counted(who, "IcmpInEchoReps") < before + count {
                    assert!(begin.elapsed() < FIRST_ANSWER, "{said}");
                }
            });
        }
    }
    net.assert_nothing_is_lost();
}

#[test]
fn pieces_whose_first_never_comes_are_shown_while_they_wait_and_when_they_are_given_up() {
    let sandbox = Sandbox::new();
    let net = Net::start(&sandbox);
    let shown = || net.daemon.firelane(&["ipnat", "-s"]).expect_success();
    sandbox.run(Some("bob"), "/usr/bin/python3", &["-c", HALVES, "5"]).expect_success();
    let begin = Instant::now();
    while net.total("early") < 5 {
        assert!(begin.elapsed() < FIRST_ANSWER, "{}", shown());
    }
    let said = shown();
    assert!(said.contains("early fragments\t5\twaiting\t5\tgiven up\t0\n"), "{said}");
    while net.total("waiting") > 0 {
        assert!(begin.elapsed() < FIRST_ANSWER, "{}", shown());
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = shown();
    assert!(said.contains("early fragments\t5\twaiting\t0\tgiven up\t5\n"), "{said}");
    assert!(said.contains("bad nat\t5\n"), "{said}");
    assert!(net.daemon.firelane(&["drops"]).expect_success().contains("nat_fragment"));
}
