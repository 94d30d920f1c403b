//! Link protection and names against a real kernel on the other side of a TAP.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use firelane_interop::{Daemon, Sandbox};

/// The configuration of the demo.
fn two_tenants() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml")
}

fn reaches(sandbox: &Sandbox, from: &str) -> bool {
    let args = ["-c", "1", "-W", "1", "-I", from, "10.0.0.2"];
    sandbox.run(Some("alice"), "ping", &args).status.success()
}

/// What `dlstat -A` says of a counter of alice's VNIC.
fn counted(daemon: &Daemon<'_>, name: &str) -> u64 {
    let said = daemon.firelane(&["dlstat", "-A", "alice0"]).expect_success();
    let line = said.lines().find_map(|line| line.trim().strip_prefix(name)).expect("every counter is listed");
    line.trim().parse().expect("a number")
}

#[test]
fn a_tenant_sends_from_what_it_was_given_and_nothing_else() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let alice = |program: &str, args: &[&str]| sandbox.run(Some("alice"), program, args).expect_success();
    alice("ip", &["address", "add", "10.0.0.66/24", "dev", "alice0"]);
    assert!(reaches(&sandbox, "10.0.0.66"), "nothing is protected yet");
    let set =
        |value: &str| daemon.firelane(&["dladm", "set-linkprop", "-p", value, "alice0"]).expect_success();
    set("protection=mac-nospoof,ip-nospoof,restricted,allowed-ips=10.0.0.1,fe80::/10,fd00::1");
    assert!(reaches(&sandbox, "10.0.0.1"));
    assert!(!reaches(&sandbox, "10.0.0.66"), "not one of the allowed addresses");
    assert!(counted(&daemon, "ipspoofed") > 0);
    let own = daemon.firelane(&["dladm", "show-vnic", "-p", "-o", "macaddress", "alice0"]).expect_success();
    alice("ip", &["link", "set", "alice0", "address", "2:8:20:ff:ff:1"]);
    assert!(!reaches(&sandbox, "10.0.0.1"), "another Ethernet address");
    assert!(counted(&daemon, "macspoofed") > 0);
    let drops = daemon.firelane(&["drops"]).expect_success();
    assert!(drops.contains("ip_spoofed") && drops.contains("mac_spoofed"), "{drops}");
    alice("ip", &["link", "set", "alice0", "address", own.trim()]);
    set("protection=restricted");
    assert!(reaches(&sandbox, "10.0.0.66"), "taken back while it runs");
}

#[test]
fn a_link_gets_another_name_while_its_programs_run_on() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let mut command = sandbox.command("ip");
    command.args(["netns", "exec", "alice", "ping", "-q", "-i", "0.02", "-c", "60", "-W", "2", "10.0.0.2"]);
    let ping =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("ip and ping are installed");
    for (from, to) in [("alice0", "tenant1"), ("vswitch1", "front0"), ("tenant1", "tenant2")] {
        daemon.firelane(&["dladm", "rename-link", from, to]).expect_success();
    }
    let output = ping.wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("60 received"), "{said}");
    let links = daemon.firelane(&["dladm", "show-link", "-p", "-o", "link,over"]).expect_success();
    assert!(links.contains("tenant2:front0") && !links.contains("alice0"), "{links}");
    assert!(daemon.terminate().success());
    let daemon = Daemon::start_with(&sandbox, &[]);
    let vnic = ["dladm", "show-vnic", "-p", "-o", "over", "tenant2"];
    assert_eq!(daemon.firelane(&vnic).expect_success(), "front0\n");
    assert!(reaches(&sandbox, "10.0.0.1"));
    // With their old names they are what the file says, so that it takes nothing down.
    for (from, to) in [("tenant2", "alice0"), ("front0", "vswitch1")] {
        daemon.firelane(&["dladm", "rename-link", from, to]).expect_success();
    }
    let planned = daemon.firelane(&["plan", &two_tenants().to_string_lossy()]).expect_success();
    assert_eq!(planned, "no changes\n");
}

#[test]
fn an_address_stays_where_only_the_words_for_it_change() {
    let sandbox = Sandbox::new();
    let text = "[etherstub.s0]\n[vnic.a0]\nover = 's0'\nmac = 'random'\n\
                [vnic.b0]\nover = 's0'\nmac = 'random/2:8:21'\n";
    let file = sandbox.folder().join("host.toml");
    std::fs::write(&file, text).expect("writable");
    let daemon = Daemon::start(&sandbox, &file);
    let file = file.to_string_lossy().into_owned();
    let macs = || daemon.firelane(&["dladm", "show-vnic", "-p", "-o", "link,macaddress"]).expect_success();
    let had = macs();
    for (from, to) in [("a0", "c0"), ("b0", "d0"), ("c0", "a0"), ("d0", "b0")] {
        daemon.firelane(&["dladm", "rename-link", from, to]).expect_success();
    }
    assert_eq!(macs(), had);
    assert_eq!(daemon.firelane(&["plan", &file]).expect_success(), "no changes\n");
    assert_eq!(daemon.firelane(&["apply", &file]).expect_success(), "no changes\n");
    assert_eq!(macs(), had);
    assert!(
        daemon.firelane(&["dump"]).expect_success().contains("mac = \"random\""),
        "it is what the file says"
    );
    let other = text.replace("'random'", "'2:8:20:9:9:9'");
    std::fs::write(&file, other).expect("writable");
    let planned = daemon.firelane(&["plan", &file]).expect_success();
    assert!(planned.contains("recreate  create vnic a0") && !planned.contains("b0"), "{planned}");
}
