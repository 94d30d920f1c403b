//! The packet filter against a real daemon with real programs: rules from an `ipf.conf` act at once, are counted, and are
//! there after a restart.

use std::path::{Path, PathBuf};

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
