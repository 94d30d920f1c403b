//! Wires between any two links: a NIC and an etherstub, two NICs, a VNIC in a VLAN, and etherstubs in a row.
//!
//! The NICs are ends of veth pairs; at the other ends are namespaces of the kernel's. As root; otherwise each test says why it is
//! skipped. What comes too early is wrong in any case; how late something may be depends on who else runs here.

use std::time::Duration;

use firelane_interop::{Daemon, Iperf, Output, Sandbox, until};

const LIMIT: Duration = Duration::from_secs(20);

/// A veth pair from the daemon's namespace, where it is `near<n>`, into `out<n>`, where the kernel has 10.9.0.<10 + n> on `far`.
fn veth(sandbox: &Sandbox, n: u32) -> bool {
    sandbox.veth(&format!("near{n}"), &format!("out{n}"), &format!("10.9.0.{}/24", 10 + n))
}

fn ip(sandbox: &Sandbox, line: &str) -> Output {
    sandbox.run(None, "ip", &line.split_whitespace().collect::<Vec<_>>())
}

/// That nothing comes too early, and not everything late.
fn takes(sandbox: &Sandbox, from: &str, to: &str, millis: f64) {
    let took = sandbox.shortest_trip(from, to);
    assert!((millis..millis + 10.0).contains(&took), "{from} to {to}: {took} ms");
}

fn reaches(sandbox: &Sandbox, from: &str, to: &str) -> bool {
    sandbox.run(Some(from), "ping", &["-n", "-c", "1", "-W", "1", to]).status.success()
}

/// How many frames a wire got from its end `from`.
fn sent(daemon: &Daemon<'_>, from: &str) -> u64 {
    let said = daemon.firelane(&["dladm", "show-wire", "-s", "-p", "-o", "from,sent"]).expect_success();
    let line = said.lines().find_map(|line| line.strip_prefix(from)?.strip_prefix(':'));
    line.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn a_nic_reaches_what_is_over_an_etherstub_by_the_wire_and_its_own_vnics_without() {
    ["1", "2"].into_iter().for_each(reaches_by_the_wire);
}

fn reaches_by_the_wire(lanes: &str) {
    let sandbox = Sandbox::new();
    if !veth(&sandbox, 0) {
        return;
    }
    let config = sandbox.folder().join("host.toml");
    let text = r#"
[link.net0]
kind = "nic"
ifname = "near0"
[etherstub.stub0]
mtu = 1500
[vnic.here0]
over = "net0"
tap = { namespace = "here", addresses = ["10.9.0.2/24"] }
[vnic.bob0]
over = "stub0"
tap = { namespace = "bob", addresses = ["10.9.0.3/24"] }
[wire.wire0]
ends = ["net0", "stub0"]
both = { delay = "20ms" }
"#;
    std::fs::write(&config, text).unwrap();
    let daemon = Daemon::start_with(&sandbox, &["--config", &config.to_string_lossy(), "--lanes", lanes]);
    let [out, here, bob] = ["10.9.0.10", "10.9.0.2", "10.9.0.3"];
    for (from, to) in [("out0", bob), ("bob", out), ("here", bob), ("bob", here)] {
        takes(&sandbox, from, to, 40.0);
    }
    takes(&sandbox, "out0", here, 0.0);
    takes(&sandbox, "here", out, 0.0);
    // Who lies where is known by now.
    let before = sent(&daemon, "net0");
    takes(&sandbox, "here", out, 0.0);
    let leaked = sent(&daemon, "net0") - before;
    assert!(leaked < 6, "{leaked} frames that the NIC's own stations exchange went by the wire");
    // What one kernel leaves to devices, checksums and large segments, is done before the wire.
    daemon.firelane(&["dladm", "modify-wire", "-p", "delay=0", "wire0"]).expect_success();
    let server = Iperf::serve(&sandbox, "bob", bob);
    assert!(server.rate("out0", &[]) > 20.0);
    assert!(server.rate("here", &[]) > 20.0);
    // The interface goes, and comes back, and the wire is there still.
    ip(&sandbox, "link del near0").expect_success();
    assert!(reaches(&sandbox, "here", bob));
    ip(&sandbox, "netns del out0").expect_success();
    assert!(veth(&sandbox, 0));
    until("the interface to be taken back", LIMIT, || reaches(&sandbox, "out0", bob));
}

#[test]
fn two_nics_are_one_network_with_the_wires_conditions_and_each_links_limit() {
    let sandbox = Sandbox::new();
    if !(veth(&sandbox, 0) && veth(&sandbox, 1)) {
        return;
    }
    let daemon = Daemon::start_as(
        &sandbox,
        r#"
[link.net0]
kind = "nic"
ifname = "near0"
[link.net1]
kind = "nic"
ifname = "near1"
[vnic.left0]
over = "net0"
vlan = 7
tap = { namespace = "left", addresses = ["10.7.0.1/24"] }
[vnic.right0]
over = "net1"
vlan = 7
tap = { namespace = "right", addresses = ["10.7.0.2/24"] }
[wire.wire0]
ends = ["net0", "net1"]
both = { delay = "15ms" }
"#,
    );
    takes(&sandbox, "out0", "10.9.0.11", 30.0);
    takes(&sandbox, "out1", "10.9.0.10", 30.0);
    // VLANs pass as they are.
    takes(&sandbox, "left", "10.7.0.2", 30.0);
    takes(&sandbox, "right", "10.7.0.1", 30.0);
    daemon.firelane(&["dladm", "modify-wire", "-p", "delay=0", "wire0"]).expect_success();
    let server = Iperf::serve(&sandbox, "out1", "10.9.0.11");
    assert!(server.rate("out0", &[]) > 30.0);
    daemon.firelane(&["dladm", "set-linkprop", "-p", "maxbw=20M", "net0"]).expect_success();
    let limited = server.rate("out0", &[]);
    assert!((5.0..20.5).contains(&limited), "{limited} Mb/s");
}

#[test]
fn what_is_behind_a_vnics_wire_is_in_its_vlan_its_limit_and_its_protection() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox, 0) {
        return;
    }
    let daemon = Daemon::start_as(
        &sandbox,
        r#"
[link.net0]
kind = "nic"
ifname = "near0"
[etherstub.stub0]
mtu = 1500
[vnic.door0]
over = "net0"
vlan = 7
[vnic.eve0]
over = "net0"
vlan = 7
tap = { namespace = "eve", addresses = ["10.7.0.1/24"] }
[vnic.ann0]
over = "stub0"
tap = { namespace = "ann", addresses = ["10.7.0.2/24"] }
[vnic.bob0]
over = "stub0"
tap = { namespace = "bob", addresses = ["10.7.0.3/24"] }
"#,
    );
    let refused = daemon.firelane(&["dladm", "create-wire", "-l", "ann0", "-l", "net0", "wire0"]);
    assert!(refused.stderr.contains("link busy (ends=ann0"), "{refused:?}");
    let create = ["dladm", "create-wire", "-l", "door0", "-l", "stub0", "-p", "delay=10ms", "wire0"];
    daemon.firelane(&create).expect_success();
    for (from, to) in [("eve", "10.7.0.2"), ("eve", "10.7.0.3"), ("bob", "10.7.0.1")] {
        takes(&sandbox, from, to, 20.0);
    }
    // Nobody is let into another VLAN.
    ip(&sandbox, "-n out0 address add 10.7.1.1/24 dev far").expect_success();
    sandbox.run(Some("bob"), "ip", &["address", "add", "10.7.1.3/24", "dev", "bob0"]).expect_success();
    assert!(!reaches(&sandbox, "out0", "10.7.1.3"));
    // Its user are many, of whom protection lets nobody pass.
    let protect = |how: &str| {
        daemon.firelane(&["dladm", "set-linkprop", "-p", how, "door0"]).expect_success();
    };
    protect("protection=mac-nospoof");
    assert!(!reaches(&sandbox, "eve", "10.7.0.3"));
    daemon.firelane(&["dladm", "reset-linkprop", "-p", "protection", "door0"]).expect_success();
    assert!(reaches(&sandbox, "eve", "10.7.0.3"));
    let server = Iperf::serve(&sandbox, "bob", "10.7.0.3");
    protect("maxbw=20M");
    let limited = server.rate("eve", &[]);
    assert!((5.0..20.5).contains(&limited), "{limited} Mb/s");
    // It is in use while the wire is there.
    let refused = daemon.firelane(&["dladm", "delete-vnic", "door0"]);
    assert!(refused.stderr.contains("link busy (wire=wire0)"), "{refused:?}");
    let refused = daemon.firelane(&["ipadm", "create-if", "door0"]);
    assert!(refused.stderr.contains("wire=wire0"), "{refused:?}");
    daemon.firelane(&["dladm", "delete-wire", "wire0"]).expect_success();
    assert!(!reaches(&sandbox, "eve", "10.7.0.3"));
    daemon.firelane(&create).expect_success();
    assert!(reaches(&sandbox, "eve", "10.7.0.3"));
}

#[test]
fn etherstubs_in_a_row_are_one_network_and_a_ring_is_refused() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(
        &sandbox,
        r#"
[etherstub.a0]
[etherstub.b0]
[etherstub.c0]
[vnic.ann0]
over = "a0"
tap = { namespace = "ann", addresses = ["10.0.0.1/24"] }
[vnic.bob0]
over = "b0"
tap = { namespace = "bob", addresses = ["10.0.0.2/24"] }
[vnic.cid0]
over = "c0"
tap = { namespace = "cid", addresses = ["10.0.0.3/24"] }
[wire.ab0]
ends = ["a0", "b0"]
both = { delay = "10ms" }
[wire.bc0]
ends = ["b0", "c0"]
both = { delay = "5ms" }
"#,
    );
    takes(&sandbox, "ann", "10.0.0.3", 30.0);
    takes(&sandbox, "cid", "10.0.0.2", 10.0);
    takes(&sandbox, "ann", "10.0.0.2", 20.0);
    let refused = daemon.firelane(&["dladm", "create-wire", "-l", "c0", "-l", "a0", "ca0"]);
    assert!(refused.stderr.contains("would go round for ever"), "{refused:?}");
    assert_ne!(refused.code(), 0);
}
