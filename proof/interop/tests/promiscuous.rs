//! `promisc-filtered` of VNICs: what a real tcpdump in a tenant's namespace, and a capture at a netstack's VNIC, see of what others
//! send each other.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use firelane_interop::{Daemon, Dump, Sandbox, until};

const CONFIG: &str = r#"
[etherstub.s1]
[vnic.alice0]
over = "s1"
tap = { namespace = "alice", addresses = ["10.0.0.1/24"] }
[vnic.bob0]
over = "s1"
tap = { namespace = "bob", addresses = ["10.0.0.2/24"] }
[vnic.carol0]
over = "s1"
tap = { namespace = "carol", addresses = ["10.0.0.3/24"] }
[vnic.dave0]
over = "s1"
vlan = 7
promisc_filtered = "off"
tap = { namespace = "dave", addresses = ["10.0.0.4/24"] }
[vnic.web0]
over = "s1"
netstack = "web"
[netstack.web.addresses]
"web0/v4" = "10.0.0.10/24"
"#;

fn set(daemon: &Daemon<'_>, link: &str, value: &str) {
    let prop = format!("promisc-filtered={value}");
    daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", &prop, link]).expect_success();
}

/// A tcpdump of the packets between alice and bob.
fn dump(sandbox: &Sandbox, namespace: &str) -> Dump {
    let link = format!("{namespace}0");
    Dump::start(sandbox, namespace, &link, &["icmp and host 10.0.0.1 and host 10.0.0.2"])
}

#[track_caller]
fn sees(sandbox: &Sandbox, namespace: &str, why: &str) {
    let dump = dump(sandbox, namespace);
    until(why, Duration::from_secs(20), || dump.count("ICMP") >= 4);
}

#[track_caller]
fn sees_nothing(sandbox: &Sandbox, namespace: &str, why: &str) {
    let dump = dump(sandbox, namespace);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(dump.count("ICMP"), 0, "{why}");
}

#[test]
fn a_tenant_sees_the_frames_of_others_only_if_his_vnic_says_so() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    let words = ["show-linkprop", "-c", "-o", "value,default,possible", "-p", "promisc-filtered", "dave0"];
    let shown = daemon.firelane(&[&["dladm"], &words[..]].concat()).expect_success();
    assert_eq!(shown, "off:on:on,off\n");
    let mut pings = sandbox.command("ip");
    pings.args(["netns", "exec", "alice", "ping", "-i", "0.1", "10.0.0.2"]).stdout(Stdio::null());
    let mut pings = pings.spawn().expect("ip is installed");
    sees(&sandbox, "bob", "he is asked");
    sees_nothing(&sandbox, "carol", "she has not asked for it");
    set(&daemon, "carol0", "off");
    sees(&sandbox, "carol", "she has asked for it");
    sees(&sandbox, "bob", "who is asked answers as before");
    sees_nothing(&sandbox, "dave", "another VLAN is another wire");
    set(&daemon, "carol0", "on");
    sees_nothing(&sandbox, "carol", "she asks no more");
    // A netstack's VNIC has no promiscuous mode but the daemon's capture.
    set(&daemon, "web0", "off");
    let file = sandbox.folder().join("web0.pcapng").to_string_lossy().into_owned();
    daemon.firelane(&["capture", "-l", "web0", "-w", &file, "-c", "6"]).expect_success();
    let text = sandbox.run(None, "tcpdump", &["-Z", "root", "-nr", &file]).expect_success();
    assert!(text.contains("10.0.0.1 > 10.0.0.2: ICMP echo request"), "{text}");
    assert!(text.contains("10.0.0.2 > 10.0.0.1: ICMP echo reply"), "{text}");
    pings.kill().and_then(|()| pings.wait()).expect("it ran");
}

#[test]
fn what_has_no_neighbours_has_no_such_property_and_other_values_are_refused() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    daemon.firelane(&["dladm", "create-iptun", "-T", "ipv4", "tun0"]).expect_success();
    for (link, prop, said) in [
        ("carol0", "promisc-filtered=maybe", "link property 'promisc-filtered' must be one of: on,off"),
        ("s1", "promisc-filtered=off", "invalid link property 'promisc-filtered'"),
        ("tun0", "promisc-filtered=off", "invalid link property 'promisc-filtered'"),
    ] {
        let refused = daemon.firelane(&["dladm", "set-linkprop", "-p", prop, link]);
        assert!(refused.code() == 1 && refused.stderr.contains(said), "{refused:?}");
    }
}
