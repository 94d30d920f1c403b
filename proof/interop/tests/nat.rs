//! Address translation against real programs: alice, inside, reaches bob, who knows no way to her; he reaches her server by the router's
//! address, and so does she.

use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_interop::{Background, Daemon, Output, Sandbox};

/// alice (10.1.0.2) inside, bob (10.2.0.2) outside, and a router on both etherstubs.
const CONFIG: &str = r#"
[etherstub.left0]
[etherstub.right0]
[vnic.alice0]
over = "left0"
tap = { namespace = "alice", addresses = ["10.1.0.2/24"] }
[vnic.bob0]
over = "right0"
tap = { namespace = "bob", addresses = ["10.2.0.2/24"] }
[vnic.r0]
over = "left0"
netstack = "router"
[vnic.r1]
over = "right0"
netstack = "router"
[netstack.router]
nat = [
    "map r1 10.1.0.0/24 -> 0/32 portmap tcp/udp 20000:60000",
    "map r1 10.1.0.0/24 -> 0/32",
    "rdr r1 10.2.0.1/32 port 80 -> 10.1.0.2 port 8080 tcp",
]
[netstack.router.addresses]
"r0/v4" = "10.1.0.1/24"
"r1/v4" = "10.2.0.1/24"
[netstack.router.tunables]
ipv4 = { forwarding = "on" }
"#;

/// How long a first answer may take: neighbours are asked for, servers start.
const PATIENCE: Duration = Duration::from_secs(20);

fn serve(sandbox: &Sandbox, who: &str, port: &str) -> Background {
    let folder = sandbox.folder().join(format!("www-{who}"));
    std::fs::create_dir_all(&folder).expect("the sandbox's folder is writable");
    std::fs::write(folder.join("who"), who).expect("the sandbox's folder is writable");
    let mut command = sandbox.command("ip");
    command.args(["netns", "exec", who, "python3", "-u", "-m", "http.server", port, "-d"]).arg(folder);
    let log = std::fs::File::create(sandbox.folder().join(format!("{who}.log"))).expect("a log");
    Background::start(command.stdout(Stdio::null()).stderr(log))
}

fn until(what: &str, mut ask: impl FnMut() -> Output) -> String {
    let begin = Instant::now();
    loop {
        let output = ask();
        if output.code() == 0 {
            return output.expect_success();
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: {output:?}");
    }
}

fn curl(sandbox: &Sandbox, who: &str, url: &str) -> String {
    until(url, || sandbox.run(Some(who), "curl", &["-s", "-f", "--max-time", "3", url]))
}

#[test]
fn inside_goes_out_and_is_reached_by_the_address_outside() {
    let sandbox = Sandbox::new();
    let path = sandbox.folder().join("nat.toml");
    std::fs::write(&path, CONFIG).expect("the sandbox's folder is writable");
    let daemon = Daemon::start(&sandbox, &path);
    sandbox.run(Some("alice"), "ip", &["route", "add", "default", "via", "10.1.0.1"]).expect_success();
    // bob has no way to 10.1.0.0/24: what comes back comes back to the router.
    until("ping", || sandbox.run(Some("alice"), "ping", &["-n", "-c", "2", "-W", "1", "10.2.0.2"]));
    let (_alice, _bob) = (serve(&sandbox, "alice", "8080"), serve(&sandbox, "bob", "80"));
    assert_eq!(curl(&sandbox, "alice", "http://10.2.0.2/who"), "bob");
    let seen = std::fs::read_to_string(sandbox.folder().join("bob.log")).expect("a log");
    assert!(seen.contains("10.2.0.1 - - ") && !seen.contains("10.1.0.2"), "{seen}");
    assert_eq!(curl(&sandbox, "bob", "http://10.2.0.1/who"), "alice");
    assert_eq!(curl(&sandbox, "alice", "http://10.2.0.1/who"), "alice", "hairpin");
    // An error about what was translated finds back: nobody has that port.
    let refused = sandbox.run(Some("alice"), "curl", &["-s", "--max-time", "3", "http://10.2.0.2:81/"]);
    assert_eq!(refused.code(), 7, "{refused:?}");
    let text = std::fs::read_to_string(&path).expect("it was written");
    let other = sandbox.folder().join("other.toml");
    std::fs::write(&other, text.replace("port 80 -> 10.1.0.2", "port 81 -> 10.1.0.2")).expect("a file");
    let plan = daemon.firelane(&["apply", other.to_str().expect("a plain path")]).expect_success();
    assert!(plan.starts_with("live      set filter of netstack router: nat 1 added, 1 removed\n"), "{plan}");
    assert_eq!(curl(&sandbox, "bob", "http://10.2.0.1:81/who"), "alice");
    assert_eq!(curl(&sandbox, "alice", "http://10.2.0.2/who"), "bob");
}

#[test]
fn the_command_changes_rules_shows_sessions_and_ends_them() {
    let sandbox = Sandbox::new();
    let path = sandbox.folder().join("nat.toml");
    std::fs::write(&path, CONFIG).expect("the sandbox's folder is writable");
    let daemon = Daemon::start(&sandbox, &path);
    let ipnat = |words: &[&str]| daemon.firelane(&[&["ipnat"], words].concat());
    sandbox.run(Some("alice"), "ip", &["route", "add", "default", "via", "10.1.0.1"]).expect_success();
    let (_alice, _bob) = (serve(&sandbox, "alice", "8080"), serve(&sandbox, "bob", "80"));
    assert_eq!(curl(&sandbox, "alice", "http://10.2.0.2/who"), "bob");
    assert_eq!(curl(&sandbox, "bob", "http://10.2.0.1/who"), "alice");
    let list = ipnat(&["-lh"]).expect_success();
    assert!(list.starts_with("List of active MAP/Redirect filters:\n"), "{list}");
    let made =
        list.lines().find_map(|line| line.split_once(" map r1 from 10.1.0.0/24 to any -> 0/32 portmap"));
    assert!(made.is_some_and(|(made, _)| made.parse() != Ok(0u64)), "it has made sessions: {list}");
    let map = list.lines().find(|line| line.starts_with("MAP 10.1.0.2 ")).unwrap_or_else(|| panic!("{list}"));
    assert!(map.contains(" <- -> 10.2.0.1 ") && map.ends_with("[10.2.0.2 80]"), "{map}");
    let rdr = list.lines().find(|line| line.starts_with("RDR 10.1.0.2 ")).unwrap_or_else(|| panic!("{list}"));
    assert!(rdr.contains(" 8080  <- -> 10.2.0.1        80    [10.2.0.2 "), "{rdr}");
    let document = ipnat(&["-ls", "-j"]).expect_success();
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let sessions = document["nat"]["sessions"].as_array().expect("a list").len();
    assert!(sessions >= 2 && document["nat"]["totals"]["out"].as_u64() > Some(4), "{document}");
    assert!(ipnat(&["-F"]).expect_success().ends_with(" entries flushed from NAT table\n"));
    assert!(!ipnat(&["-l"]).expect_success().contains("10.2.0.2 80]"), "they are gone");
    // What comes next begins anew by the rules that there are.
    assert_eq!(curl(&sandbox, "alice", "http://10.2.0.2/who"), "bob");
    let file = sandbox.folder().join("ipnat.conf");
    let file = file.to_str().expect("a plain path");
    std::fs::write(file, "rdr r1 10.2.0.1/32 port 80 -> 10.1.0.2 port 8080 tcp\n").expect("a file");
    ipnat(&["-r", "-f", file]).expect_success();
    let refused = sandbox.run(Some("bob"), "curl", &["-s", "--max-time", "3", "http://10.2.0.1/"]);
    assert_ne!(refused.code(), 0, "nobody is redirected any more");
    std::fs::write(file, "rdr r1 10.2.0.1/32 port 82 -> 10.1.0.2 port 8080 tcp\n").expect("a file");
    ipnat(&["-f", file]).expect_success();
    assert_eq!(curl(&sandbox, "bob", "http://10.2.0.1:82/who"), "alice");
    assert_eq!(ipnat(&["-C"]).expect_success(), "3 entries cleared from NAT list\n");
    assert!(!ipnat(&["-l"]).expect_success().contains("r1"));
}

/// Neighbours outside ask who has an address of theirs: the VNIC has to have it, and it is somebody else's all the same.
#[test]
fn one_for_one_with_an_address_that_neighbours_ask_for() {
    let sandbox = Sandbox::new();
    let bimap = "nat = [\n    \"bimap r1 10.1.0.2/32 -> 10.2.0.77/32\",";
    let daemon = Daemon::start_as(&sandbox, &CONFIG.replace("nat = [", bimap));
    sandbox.run(Some("alice"), "ip", &["route", "add", "default", "via", "10.1.0.1"]).expect_success();
    let (_alice, _bob) = (serve(&sandbox, "alice", "8080"), serve(&sandbox, "bob", "80"));
    assert_eq!(curl(&sandbox, "bob", "http://10.2.0.2/who"), "bob");
    let ask = |url: &str| sandbox.run(Some("bob"), "curl", &["-s", "-f", "--max-time", "2", url]);
    assert_ne!(ask("http://10.2.0.77:8080/who").code(), 0, "nobody says that he has it");
    daemon
        .firelane(&["ipadm", "create-addr", "-T", "static", "-a", "10.2.0.77/32", "r1/alice"])
        .expect_success();
    assert_eq!(curl(&sandbox, "bob", "http://10.2.0.77:8080/who"), "alice");
    assert_eq!(curl(&sandbox, "alice", "http://10.2.0.2/who"), "bob");
    let seen = std::fs::read_to_string(sandbox.folder().join("bob.log")).expect("a log");
    assert!(seen.contains("10.2.0.77 - - "), "{seen}");
}

#[test]
fn limits_of_the_file_hold_and_change_while_it_runs() {
    let sandbox = Sandbox::new();
    let path = sandbox.folder().join("nat.toml");
    let with = |limits: &str| {
        let text = format!("{CONFIG}[netstack.router.nat_limits]\n{limits}\n");
        std::fs::write(&path, text).expect("the sandbox's folder is writable");
    };
    with("per_source = 3");
    let daemon = Daemon::start(&sandbox, &path);
    sandbox.run(Some("alice"), "ip", &["route", "add", "default", "via", "10.1.0.1"]).expect_success();
    let _bob = serve(&sandbox, "bob", "80");
    // Whoever asks too early begins a session each time: bob himself sees whether his server is there.
    assert_eq!(curl(&sandbox, "bob", "http://10.2.0.2/who"), "bob");
    assert_eq!(curl(&sandbox, "alice", "http://10.2.0.2/who"), "bob");
    // Each datagram from another port begins a session of alice's, in the place of one before that nobody has answered, or that is over.
    let ask = "import socket\nfor n in range(10):\n s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n \
               s.bind(('', 4000 + n)); s.sendto(b'x', ('10.2.0.2', 9))\n";
    sandbox.run(Some("alice"), "/usr/bin/python3", &["-c", ask]).expect_success();
    let sessions = || {
        let list = daemon.firelane(&["ipnat", "-l"]).expect_success();
        list.lines().filter(|line| line.starts_with("MAP 10.1.0.2 ")).count()
    };
    // Who sends them does not wait until the router has them.
    let gone = || {
        let counts = daemon.firelane(&["ipnat", "-s"]).expect_success();
        let of = |line: &str| line.strip_prefix("evicted\t")?.split('\t').next()?.parse::<u64>().ok();
        counts.lines().find_map(of).unwrap_or(0)
    };
    // Those that come in one turn of the lane do not push each other out: some may be refused.
    let refused = || {
        let drops = daemon.firelane(&["drops", "-p", "-o", "reason,frames"]).expect_success();
        let of = |line: &str| line.strip_prefix("nat_source_full:")?.parse::<u64>().ok();
        drops.lines().find_map(of).unwrap_or(0)
    };
    let make_no_more = || gone() + refused() >= 7 && sessions() == 3;
    firelane_interop::until("there are three at a time", PATIENCE, make_no_more);
    // A few seconds are enough for datagrams that come from now on.
    with("udp = 5");
    daemon.firelane(&["apply", &path.to_string_lossy()]).expect_success();
    daemon.firelane(&["ipnat", "-F"]).expect_success();
    sandbox.run(Some("alice"), "/usr/bin/python3", &["-c", ask]).expect_success();
    firelane_interop::until("three are no limit any more", PATIENCE, || sessions() == 10);
    firelane_interop::until("no session is left", PATIENCE, || sessions() == 0);
}

#[test]
fn iperf3_passes_translated() {
    let sandbox = Sandbox::new();
    let _daemon = Daemon::start_as(&sandbox, CONFIG);
    sandbox.run(Some("alice"), "ip", &["route", "add", "default", "via", "10.1.0.1"]).expect_success();
    let mut command = sandbox.command("ip");
    command.args(["netns", "exec", "bob", "iperf3", "-s"]).stdout(Stdio::null());
    let _server = Background::start(&mut command);
    for words in [&[][..], &["-R"], &["-u", "-b", "20M"]] {
        let ask = || sandbox.run(Some("alice"), "iperf3", &[&["-c", "10.2.0.2", "-t", "1"], words].concat());
        let text = until("iperf3", ask);
        assert!(text.contains("receiver"), "{text}");
    }
}
