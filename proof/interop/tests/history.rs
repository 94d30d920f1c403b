//! What the history says of who was deleted or renamed: all that he had carried, once.

use std::time::Duration;

use firelane_interop::{Daemon, Sandbox, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

fn daemon(sandbox: &Sandbox) -> Daemon<'_> {
    let vnic = |name: &str, end: u8| {
        format!(
            "[vnic.{name}0]\nover = 's0'\ntap = {{ namespace = '{name}', addresses = ['10.0.0.{end}/24'] }}\n"
        )
    };
    let text = format!(
        "[etherstub.s0]\n{}{}[flow.pings]\nlink = 'bob0'\nmatch = {{ transport = 'icmp' }}\n",
        vnic("alice", 1),
        vnic("bob", 2)
    );
    let config = sandbox.folder().join("host.toml");
    std::fs::write(&config, text).unwrap();
    Daemon::start(sandbox, &config)
}

/// Packets that one has sent, as the history knows.
fn recorded(daemon: &Daemon<'_>, command: &[&str], name: &str) -> u64 {
    let text = daemon.firelane(command).expect_success();
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let its = all["usage"].as_array().expect("a list").iter().find(|it| it["name"] == name);
    its.map_or(0, |it| it["traffic"]["opackets"].as_u64().expect("a number"))
}

fn ping(sandbox: &Sandbox, count: &str) {
    let words = ["-q", "-c", count, "-i", "0.002", "-W", "5", "10.0.0.2"];
    sandbox.run(Some("alice"), "ping", &words).expect_success();
}

const FLOWS: [&str; 4] = ["flowstat", "-h", "-a", "-j"];
const LINKS: [&str; 4] = ["dladm", "show-usage", "-a", "-j"];

#[test]
fn the_last_second_of_a_flow_is_not_lost_and_a_switch_keeps_what_its_vnics_had_carried() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    ping(&sandbox, "200");
    daemon.firelane(&["flowadm", "remove-flow", "pings"]).expect_success();
    until("recorded", LIMIT, || recorded(&daemon, &FLOWS, "pings") == 200);
    let counted = |link: &str| {
        let shown = daemon.firelane(&["dlstat", "-p", "-o", "ipkts", link]).expect_success();
        shown.trim().parse::<u64>().expect("a number")
    };
    let by_lanes = || {
        let words = ["dlstat", "show-link", "-r", "-F", "-p", "-o", "fout,id,ipkts,rbytes", "s0"];
        let shown = daemon.firelane(&words).expect_success();
        let row = |line: &str| {
            let (row, counts) = (line.rsplitn(3, ':'), line);
            let [bytes, packets, name] = row.collect::<Vec<_>>()[..] else { panic!("{counts}") };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            (name.to_owned(), [number(packets), number(bytes)])
        };
        shown.lines().map(row).collect::<std::collections::BTreeMap<_, _>>()
    };
    let (before, lanes_before) = (counted("s0"), by_lanes());
    assert!(before >= 400, "{before}");
    daemon.firelane(&["dladm", "delete-vnic", "bob0"]).expect_success();
    // Alice's kernel may have asked for somebody in between.
    let after = counted("s0");
    assert!((before..before + 50).contains(&after), "{before} {after}");
    let lanes = by_lanes();
    for (row, [packets, bytes]) in &lanes_before {
        let now = lanes.get(row).unwrap_or_else(|| panic!("{row} is not in {lanes:?}"));
        assert!(now[0] >= *packets && now[1] >= *bytes, "{row}: {lanes_before:?}, then {lanes:?}");
    }
    until("bob0 is recorded", LIMIT, || recorded(&daemon, &LINKS, "bob0") >= 200);
    std::thread::sleep(Duration::from_millis(2500));
    let text = daemon.firelane(&["dladm", "show-usage", "-j"]).expect_success();
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let switch = all["usage"].as_array().expect("a list").iter().find(|it| it["name"] == "s0");
    let recorded = switch.expect("it is there")["traffic"]["ipackets"].as_u64().expect("a number");
    assert!((before..before + 100).contains(&recorded), "{before} {recorded}");
}

/// Another MTU makes the VNIC anew, with its flow; in the switch's sum it is counted once all the same.
#[test]
fn who_is_made_anew_has_carried_what_he_had() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    let counted = |link: &str| {
        let shown = daemon.firelane(&["dlstat", "-p", "-o", "ipkts,opkts", link]).expect_success();
        shown.trim().split(':').map(|it| it.parse::<u64>().expect("a number")).sum::<u64>()
    };
    let of_flow = || {
        let shown = daemon.firelane(&["flowstat", "-p", "-o", "ipkts,opkts", "pings"]).expect_success();
        shown.trim().to_owned()
    };
    ping(&sandbox, "200");
    let before = ["s0", "bob0"].map(counted);
    for mtu in ["mtu=1400", "mtu=1300"] {
        daemon.firelane(&["dladm", "set-linkprop", "-p", mtu, "bob0"]).expect_success();
        assert_eq!(of_flow(), "200:200", "{mtu}");
        // The kernels ask for each other, and say what they listen to.
        let now = ["s0", "bob0"].map(counted);
        for (before, now) in before.iter().zip(now) {
            assert!((*before..before + 100).contains(&now), "{mtu}: {before} {now}");
        }
    }
    ping(&sandbox, "100");
    assert_eq!(of_flow(), "300:300");
    let total = counted("bob0");
    until("recorded", LIMIT, || recorded(&daemon, &FLOWS, "pings") == 300);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(recorded(&daemon, &LINKS, "bob0") >= 300 && counted("bob0") < total + 100);
    daemon.firelane(&["flowadm", "remove-flow", "pings"]).expect_success();
    let words = ["add-flow", "-l", "bob0", "-a", "transport=icmp", "pings"];
    daemon.firelane(&[&["flowadm"], &words[..]].concat()).expect_success();
    assert_eq!(of_flow(), "0:0", "it is another flow");
    ping(&sandbox, "10");
    until("recorded", LIMIT, || recorded(&daemon, &FLOWS, "pings") == 310);
}

#[test]
fn under_another_name_a_link_and_its_flows_begin_anew() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    ping(&sandbox, "200");
    daemon.firelane(&["dladm", "rename-link", "bob0", "tenant2"]).expect_success();
    until("bob0 is recorded", LIMIT, || recorded(&daemon, &LINKS, "bob0") >= 200);
    ping(&sandbox, "100");
    until("tenant2 is recorded", LIMIT, || recorded(&daemon, &LINKS, "tenant2") >= 100);
    std::thread::sleep(Duration::from_millis(2500));
    let under = recorded(&daemon, &LINKS, "tenant2");
    assert!((100..200).contains(&under), "{under}");
    let text = daemon.firelane(&FLOWS).expect_success();
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let flows = all["usage"].as_array().expect("a list").iter();
    let sum: u64 = flows.map(|it| it["traffic"]["opackets"].as_u64().expect("a number")).sum();
    assert_eq!(sum, 300, "{text}");
}
