//! Properties and views against a real daemon with real traffic: what is set acts, what is shown is true.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Sandbox};

/// The configuration of the demo.
fn two_tenants() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml")
}

fn started(sandbox: &Sandbox) -> Daemon<'_> {
    std::fs::create_dir_all(sandbox.folder().join("run/www")).expect("the sandbox's folder is writable");
    Daemon::start(sandbox, &two_tenants())
}

/// What ping says that the answer's hops were.
fn hops(sandbox: &Sandbox, to: &str) -> String {
    let said = sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", to]).expect_success();
    let word = said.split_whitespace().find_map(|word| word.strip_prefix("ttl="));
    word.unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// A connection from alice that is held open until it is dropped.
struct Held(Child);

impl Held {
    fn open(sandbox: &Sandbox, address: &str) -> Self {
        let script = format!("exec 3<>/dev/tcp/{address}/80; sleep 60");
        let mut command = sandbox.command("ip");
        command.args(["netns", "exec", "alice", "bash", "-c", &script]).stdin(Stdio::null());
        Self(command.spawn().expect("ip and bash are installed"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until the answer is as wanted.
fn until(daemon: &Daemon<'_>, args: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let said = daemon.firelane(args).expect_success();
        if wanted(&said) {
            return said;
        }
        assert!(Instant::now() < deadline, "{args:?}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn hops_are_those_that_were_set_now_and_after_a_restart_unless_temporary() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    assert_eq!((hops(&sandbox, "10.0.0.10"), hops(&sandbox, "fd00::10")), ("64".into(), "64".into()));
    daemon.firelane(&["ipadm", "set-prop", "-p", "ttl=9", "ipv4"]).expect_success();
    daemon.firelane(&["ipadm", "set-prop", "-t", "-p", "hoplimit=8", "ipv6"]).expect_success();
    assert_eq!((hops(&sandbox, "10.0.0.10"), hops(&sandbox, "fd00::10")), ("9".into(), "8".into()));
    let refused = daemon.firelane(&["ipadm", "set-prop", "-p", "ttl=0", "ipv4"]);
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("1-255"), "{}", refused.stderr);
    assert!(daemon.terminate().success());
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!((hops(&sandbox, "10.0.0.10"), hops(&sandbox, "fd00::10")), ("9".into(), "64".into()));
    let shown =
        daemon.firelane(&["ipadm", "show-prop", "-c", "-o", "current,persistent", "-p", "ttl", "ipv4"]);
    assert_eq!(shown.expect_success(), "9:9\n");
    daemon.firelane(&["ipadm", "reset-prop", "-p", "ttl", "ipv4"]).expect_success();
    assert_eq!(hops(&sandbox, "10.0.0.10"), "64");
}

#[test]
fn a_connection_is_shown_from_its_beginning_to_its_end() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    let listening = daemon.firelane(&["netstat", "-an", "-P", "tcp", "-f", "inet6"]).expect_success();
    assert!(listening.contains("*.80") && listening.contains("LISTEN"), "{listening}");
    let held = Held::open(&sandbox, "10.0.0.10");
    let v4 = ["netstat", "-n", "-P", "tcp", "-f", "inet"];
    let shown = until(&daemon, &v4, |said| said.contains("ESTABLISHED"));
    let row = shown.lines().find(|line| line.contains("ESTABLISHED")).expect("it is there");
    assert!(row.starts_with("10.0.0.10.80 ") && row.contains("10.0.0.1."), "{row}");
    let connstat = |fields: &str, filter: &str| {
        daemon.firelane(&["connstat", "-P", "-o", fields, "-F", filter]).expect_success()
    };
    // Nothing but the handshake has gone either way: no segment had text.
    let said = connstat("laddr,lport,raddr,inbytes,insegs,outsegs", "lport=80,state=ESTABLISHED");
    assert_eq!(said, "10.0.0.10,80,10.0.0.1,0,0,0\n");
    let said = connstat("laddr,raddr,rport", "lport=80,state=LISTEN");
    assert!(said.lines().any(|line| line == "::,::,0" || line == "0.0.0.0,0.0.0.0,0"), "{said}");
    assert!(connstat("laddr", "lport=81").is_empty());
    drop(held);
    until(&daemon, &v4, |said| !said.contains("ESTABLISHED"));
}

/// A counter of `netstat -s`.
fn counter(daemon: &Daemon, name: &str) -> u64 {
    let said = daemon.firelane(&["netstat", "-s", "-N", "web"]).expect_success();
    let found =
        said.split(['\t', '\n']).find_map(|it| it.split_once('=').filter(|(it, _)| it.trim() == name));
    let (_, value) = found.unwrap_or_else(|| panic!("{name} is not in\n{said}"));
    value.trim().parse().unwrap()
}

#[test]
fn protocols_count_what_programs_do() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    let names =
        ["tcpPassiveOpens", "tcpCurrEstab", "tcpInSegs", "tcpOutDataBytes", "icmpInEchos", "tcpOutRsts"];
    let before = names.map(|name| counter(&daemon, name));
    let rose = |at: usize| counter(&daemon, names[at]) - before[at];
    let get = |port: u16| {
        let url = format!("http://10.0.0.10:{port}/");
        sandbox.run(
            Some("alice"),
            "curl",
            &["-s", "-o", "/dev/null", "-w", "%{size_download} %{size_header}", &url],
        )
    };
    let sizes = get(80).expect_success();
    let sizes: u64 = sizes.split_whitespace().map(|it| it.parse::<u64>().unwrap()).sum();
    assert_eq!((rose(0), rose(3), rose(5)), (1, sizes, 0), "one connection, and the bytes that curl saw");
    assert!(rose(2) >= 4);
    assert_ne!(get(81).code(), 0);
    assert_eq!(rose(5), 1, "nobody listens on port 81");
    let held = Held::open(&sandbox, "10.0.0.10");
    let v4 = ["netstat", "-n", "-P", "tcp", "-f", "inet"];
    until(&daemon, &v4, |said| said.contains("ESTABLISHED"));
    assert_eq!(rose(1), 1);
    drop(held);
    sandbox.run(Some("alice"), "ping", &["-c", "3", "-i", "0.2", "-W", "5", "10.0.0.10"]).expect_success();
    assert_eq!(rose(4), 3);
    let groups = daemon.firelane(&["netstat", "-gn", "-N", "web"]).expect_success();
    assert!(
        groups.lines().any(|line| line.starts_with("web0 ") && line.contains(" ff02::1:ff00:10 ")),
        "{groups}"
    );
}

#[test]
fn a_shorter_time_wait_frees_the_ports_sooner() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    daemon.firelane(&["ipadm", "set-prop", "-p", "_time_wait_interval=2000", "tcp"]).expect_success();
    // Who closes first keeps TIME-WAIT, so the client reads to the end before it closes. curl does not: it
    // closes at the body's last byte, which may be before the server has.
    let asks = "exec 3<>/dev/tcp/10.0.0.10/80; \
                printf 'GET / HTTP/1.1\\r\\nHost: web\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
                cat <&3 >/dev/null";
    sandbox.run(Some("alice"), "bash", &["-c", asks]).expect_success();
    let args = ["netstat", "-n", "-P", "tcp", "-f", "inet"];
    until(&daemon, &args, |said| said.contains("TIME_WAIT"));
    let before = Instant::now();
    until(&daemon, &args, |said| !said.contains("TIME_WAIT"));
    assert!(before.elapsed() < Duration::from_secs(15));
}

#[test]
fn routes_neighbours_and_interfaces_are_the_netstacks() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    sandbox.run(Some("alice"), "ping", &["-c", "2", "-i", "0.2", "-W", "5", "10.0.0.10"]).expect_success();
    let row = |args: &[&str], begin: &str| -> Vec<String> {
        let said = daemon.firelane(args).expect_success();
        let line =
            said.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {said}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(
        row(&["netstat", "-rn", "-f", "inet"], "10.0.0.0/24"),
        ["10.0.0.0/24", "10.0.0.10", "U", "web0"]
    );
    assert_eq!(row(&["netstat", "-rn", "-f", "inet6"], "fd00::/64"), ["fd00::/64", "fd00::10", "U", "web0"]);
    let said = daemon.firelane(&["netstat", "-pn", "-f", "inet"]).expect_success();
    let neighbour = said.lines().find(|line| line.contains(" 10.0.0.1 ")).expect("alice was heard");
    assert!(neighbour.starts_with("web0 ") && neighbour.matches(':').count() == 5, "{said}");
    assert!(said.lines().any(|line| line.contains(" 10.0.0.10 ") && line.contains("SPLA")), "{said}");
    let counted = row(&["netstat", "-in", "-f", "inet"], "web0");
    assert_eq!(counted[1..4], ["9000", "10.0.0.0/24", "10.0.0.10"]);
    assert!(counted[4].parse::<u64>().is_ok_and(|packets| packets >= 2), "{counted:?}");
}

#[test]
fn routes_that_end_packets_end_them_as_they_say() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    let text = std::fs::read_to_string(two_tenants()).unwrap()
        + "[netstack.web]\nroutes = [\n\
           { destination = \"10.7.0.0/16\", kind = \"prohibit\" },\n\
           { destination = \"10.8.0.0/16\", kind = \"blackhole\" },\n]\n\
           tunables = { ipv4 = { forwarding = \"on\" } }\n";
    let file = sandbox.folder().join("ends.toml");
    std::fs::write(&file, &text).unwrap();
    daemon.firelane(&["apply", &file.to_string_lossy()]).expect_success();
    let shown = daemon.firelane(&["netstat", "-rn", "-f", "inet"]).expect_success();
    let flags = |network: &str| {
        let line = shown.lines().find(|line| line.starts_with(network)).unwrap_or_else(|| panic!("{shown}"));
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!([flags("10.7.0.0/16"), flags("10.8.0.0/16")], ["USR", "USB"], "{shown}");
    let words = ["-n", "alice", "route", "add", "10.0.0.0/8", "via", "10.0.0.10"];
    sandbox.run(None, "ip", &words).expect_success();
    let ping = |to: &str| sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "1", to]);
    let told = ping("10.7.0.1");
    assert!(told.stdout.contains("From 10.0.0.10") && told.stdout.contains("filtered"), "{told:?}");
    let told = ping("10.8.0.1");
    assert!(!told.status.success() && !told.stdout.contains("From "), "{told:?}");
    let drops = daemon.firelane(&["drops", "-p", "-o", "reason,frames"]).expect_success();
    for reason in ["ip_prohibited:1", "ip_blackhole:1"] {
        assert!(drops.lines().any(|line| line == reason), "{drops}");
    }
    daemon.firelane(&["apply", &two_tenants().to_string_lossy()]).expect_success();
    assert!(!daemon.firelane(&["netstat", "-rn"]).expect_success().contains("10.7.0.0"));
}
