//! The packet filter against a real daemon with real programs: rules from an `ipf.conf` act at once, are counted, and are
//! there after a restart.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use firelane_interop::{Daemon, Sandbox};

/// The configuration of the demo.
fn two_tenants() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml")
}

fn started(sandbox: &Sandbox) -> Daemon<'_> {
    std::fs::create_dir_all(sandbox.folder().join("run/www")).expect("the sandbox's folder is writable");
    Daemon::start(sandbox, &two_tenants())
}

/// How curl ends that a tenant runs: 0 with an answer, 7 refused, 28 without one in time.
fn curl(sandbox: &Sandbox, tenant: &str, url: &str) -> i32 {
    sandbox.run(Some(tenant), "curl", &["-s", "-g", "-o", "/dev/null", "--max-time", "2", url]).code()
}

fn pings(sandbox: &Sandbox, tenant: &str) -> bool {
    sandbox.run(Some(tenant), "ping", &["-c", "1", "-W", "1", "10.0.0.10"]).code() == 0
}

/// Gives the netstack the rules of a file, and nothing else.
fn rules(sandbox: &Sandbox, daemon: &Daemon<'_>, text: &str) {
    let file = sandbox.folder().join("ipf.conf");
    std::fs::write(&file, text).expect("the sandbox's folder is writable");
    let file = file.to_str().expect("a plain path");
    daemon.firelane(&["ipf", "-Fa", "-f", file]).expect_success();
}

#[test]
fn rules_act_at_once_are_counted_and_stay() {
    const URL: &str = "http://10.0.0.10/";
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL)), (0, 0));
    rules(
        &sandbox,
        &daemon,
        "block in on web0 all\n\
         pass in quick on web0 proto tcp from 10.0.0.1 to any port = http flags S/SA keep state\n\
         block return-rst in quick on web0 proto tcp from 10.0.0.2 to any\n",
    );
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL)), (0, 7));
    assert_eq!(curl(&sandbox, "alice", "http://[fd00::10]/"), 28, "no rule lets IPv6 in");
    assert!(!pings(&sandbox, "alice"));
    let shown = daemon.firelane(&["ipfstat", "-ih"]).expect_success();
    let hits: Vec<u64> = shown.lines().filter_map(|line| line.split_once(' ')?.0.parse().ok()).collect();
    assert!(matches!(hits[..], [other, alice, bob] if other > 0 && alice > 1 && bob > 0), "{shown}");
    let states = daemon.firelane(&["ipfstat", "-s"]).expect_success();
    assert!(states.contains("\t1 added\n"), "{states}");
    assert!(daemon.terminate().success());
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL)), (0, 7), "after a restart");
    daemon.firelane(&["ipf", "-Fa"]).expect_success();
    assert_eq!(curl(&sandbox, "bob", URL), 0);
    assert!(pings(&sandbox, "alice"));
}

#[test]
fn pools_and_groups_of_the_configuration_act() {
    const URL: &str = "http://10.0.0.10/";
    const AT: &str = "[netstack.web.addresses]";
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    let text = std::fs::read_to_string(two_tenants()).expect("the example is there");
    let said = |pool: &str| {
        let rules = "filter = ['block return-icmp(port-unr) in on web0 from any to any head 1', 'pass in from pool/3 to any group 1']";
        let file = sandbox.folder().join("filter.toml");
        let text = text.replace(AT, &format!("[netstack.web]\n{rules}\npools = {{ 3 = ['{pool}'] }}\n{AT}"));
        std::fs::write(&file, text).expect("the sandbox's folder is writable");
        daemon.firelane(&["apply", file.to_str().expect("a plain path")]).expect_success()
    };
    let plan = said("10.0.0.1");
    assert!(
        plan.starts_with("live      set filter of netstack web: rules 2 added; pool/3 1 added\n"),
        "{plan}"
    );
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL)), (0, 7), "bob is told by ICMP");
    let plan = said("10.0.0.2/32");
    assert!(plan.starts_with("live      set filter of netstack web: pool/3 1 added, 1 removed\n"), "{plan}");
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL)), (7, 0));
}

/// How many networks every lane has in its pools.
fn pooled(daemon: &Daemon<'_>) -> u64 {
    let shown = daemon.firelane(&["ippool", "-s"]).expect_success();
    let nodes = shown.lines().find_map(|line| line.strip_prefix("Nodes:\t")?.parse().ok());
    nodes.unwrap_or_else(|| panic!("{shown}"))
}

#[test]
fn a_hundred_thousand_addresses_come_while_traffic_runs_and_some_end() {
    const URL: &str = "http://10.0.0.10/";
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    let ippool = |words: &[&str]| daemon.firelane(&[&["ippool"], words].concat()).expect_success();
    ippool(&["-A", "-m", "5"]);
    rules(
        &sandbox,
        &daemon,
        "block return-rst in quick on web0 proto tcp from pool/5 to any port = http\npass in all\npass out all\n",
    );
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL)), (0, 0));

    // A time to live ends by itself.
    ippool(&["-a", "-m", "5", "-T", "3", "-i", "10.0.0.2"]);
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL), pooled(&daemon)), (0, 7, 1));
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!((curl(&sandbox, "bob", URL), pooled(&daemon)), (0, 0));
    assert_eq!(ippool(&["-l"]), "table role = ipf type = tree number = 5\n\t{ };\n");

    // A hundred thousand, half of which end in an hour, come while alice counts what she hears.
    let file = sandbox.folder().join("ippool.conf");
    let address = |n: u32| Ipv4Addr::from(0x0b00_0000 + n);
    let entry = |n: u32| format!("{}{}; ", address(n), if n & 1 == 0 { " ttl 3600" } else { "" });
    let entries: String = (0..100_000).map(entry).collect();
    std::fs::write(&file, format!("table role = ipf type = tree number = 5 {{ {entries}10.0.0.2; }};\n"))
        .expect("the sandbox's folder is writable");
    let heard = std::thread::scope(|scope| {
        let words = ["-c", "300", "-i", "0.01", "-W", "2", "-q", "10.0.0.10"];
        let sandbox = &sandbox;
        let ping = scope.spawn(move || sandbox.run(Some("alice"), "ping", &words).expect_success());
        ippool(&["-f", file.to_str().expect("a plain path")]);
        ping.join().expect("ping's thread does not panic")
    });
    assert!(heard.contains("300 packets transmitted, 300 received"), "{heard}");
    assert_eq!((curl(&sandbox, "alice", URL), curl(&sandbox, "bob", URL), pooled(&daemon)), (0, 7, 100_001));

    // They are there after a restart, and go at once.
    assert!(daemon.terminate().success());
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!((curl(&sandbox, "bob", URL), pooled(&daemon)), (7, 100_001));
    daemon.firelane(&["ippool", "-r", "-m", "5", "-i", "10.0.0.2"]).expect_success();
    assert_eq!((curl(&sandbox, "bob", URL), pooled(&daemon)), (0, 100_000));
    daemon.firelane(&["ipf", "-Fa"]).expect_success();
    assert_eq!(daemon.firelane(&["ippool", "-F"]).expect_success(), "1 object flushed\n");
    assert_eq!(pooled(&daemon), 0);
}
