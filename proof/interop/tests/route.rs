//! `route` against a real daemon: what it adds carries the answers to ping and curl, and what it deletes does not; what `-p` says is
//! there after a restart, and the rest is not.

use std::path::Path;

use firelane_interop::{Daemon, Sandbox};

/// An address of alice's that is on no subnet of netstack web.
const BEHIND: &str = "10.50.0.1";

/// How long an answer may take that is to come, and one that is not.
const COMES: &str = "5";
const DOES_NOT: &str = "0.4";

/// Whether ping and curl from there get an answer, which both do or neither.
fn reaches(sandbox: &Sandbox, time: &str) -> bool {
    let ping = ["-I", BEHIND, "-c", "1", "-W", time, "10.0.0.10"];
    let pings = sandbox.run(Some("alice"), "ping", &ping).code() == 0;
    let curl = ["-s", "--interface", BEHIND, "-o", "/dev/null", "--max-time", time, "http://10.0.0.10/"];
    let loads = sandbox.run(Some("alice"), "curl", &curl).code() == 0;
    assert_eq!(pings, loads, "ping and curl take the same way");
    pings
}

#[test]
fn a_route_that_is_added_carries_answers_until_it_is_deleted_and_stays_if_it_is_persistent() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.folder().join("run/www")).expect("the sandbox's folder is writable");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml");
    let daemon = Daemon::start(&sandbox, &config);
    let behind = format!("{BEHIND}/32");
    sandbox.run(Some("alice"), "ip", &["addr", "add", &behind, "dev", "lo"]).expect_success();
    let route = |daemon: &Daemon<'_>, words: &[&str]| daemon.firelane(&[&["route"], words].concat());

    assert!(!reaches(&sandbox, DOES_NOT), "before there is a route");
    let said = route(&daemon, &["add", "-net", "10.50.0.0/16", "10.0.0.1"]).expect_success();
    assert_eq!(said, "add net 10.50.0.0/16: gateway 10.0.0.1\n");
    assert!(reaches(&sandbox, COMES), "with the route");
    let got = route(&daemon, &["get", BEHIND]).expect_success();
    assert!(
        got.contains("    gateway: 10.0.0.1\n  interface: web0\n      flags: <UP,GATEWAY,STATIC>\n"),
        "{got}"
    );
    let table = daemon.firelane(&["netstat", "-rn"]).expect_success();
    assert!(table.contains("10.50.0.0/16         10.0.0.1             UGS   web0"), "{table}");
    route(&daemon, &["delete", "10.50.0.0/16", "10.0.0.1"]).expect_success();
    assert!(!reaches(&sandbox, DOES_NOT), "the route is deleted");

    route(&daemon, &["-p", "add", "default", "10.0.0.1"]).expect_success();
    route(&daemon, &["add", "10.60.0.0/16", "10.0.0.2"]).expect_success();
    assert!(reaches(&sandbox, COMES), "with a default route");
    let ended = route(&daemon, &["add", "10.50.0.1", "-blackhole"]);
    assert_eq!(ended.expect_success(), "add host 10.50.0.1: blackhole\n");
    assert!(!reaches(&sandbox, DOES_NOT), "answers end");
    daemon.kill();
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert!(reaches(&sandbox, COMES), "the default route is there after a restart, and the blackhole is not");
    let kept = route(&daemon, &["-p", "show"]).expect_success();
    assert_eq!(kept, "persistent: route add default 10.0.0.1\n");
    assert_eq!(route(&daemon, &["show"]).expect_success(), "active: route add default 10.0.0.1\n");

    let stranger = route(&daemon, &["delete", "10.0.0.0/24"]);
    assert_eq!(stranger.code(), 1);
    assert!(format!("{stranger:?}").contains("it belongs to an address on web0"), "{stranger:?}");
    let useless = route(&daemon, &["add", "10.70.0.0/16", "10.99.0.1"]);
    assert!(format!("{useless:?}").contains("10.99.0.1 is on no subnet of netstack web"), "{useless:?}");
    route(&daemon, &["-p", "change", "default", "10.0.0.2"]).expect_success();
    assert!(!reaches(&sandbox, DOES_NOT), "bob knows nothing of it");
    route(&daemon, &["-p", "change", "default", "10.0.0.1"]).expect_success();
    assert!(reaches(&sandbox, COMES), "by alice again");
    route(&daemon, &["-p", "flush"]).expect_success();
    assert!(!reaches(&sandbox, DOES_NOT), "no route is left");
    assert!(daemon.terminate().success());
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!(route(&daemon, &["-p", "show"]).expect_success(), "No persistent routes are defined\n");
}
