//! A flow of a device with `cpus` gets its frames by a queue of the device of its own: real kernels' traffic comes by it into the flow's
//! lane and into no other, while it comes and goes under load.

use std::time::Duration;

use firelane_interop::{Comparing, Daemon, Sandbox, cpu_ends, serve_echoes, until};
use serde_json::Value;

/// With one common lane, or two.
fn tenants(lanes: usize) -> String {
    let tenant = |name: &str, n: usize| {
        format!(
            "[vnic.{name}0]\nover = \"s0\"\n\
             tap = {{ namespace = \"{name}\", addresses = [\"10.0.0.{n}/24\", \"fd00::{n}/64\"] }}\n"
        )
    };
    format!("[daemon]\nlanes = {lanes}\n[etherstub.s0]\n{}{}", tenant("alice", 1), tenant("bob", 2))
}

/// What a link's user has sent, in packets; and its rings: number, lane, and packets of these.
fn rings(daemon: &Daemon<'_>, link: &str) -> (u64, Vec<(u64, u64, u64)>) {
    let text = daemon.firelane(&["dlstat", "show-link", "-j", link]).expect_success();
    let said: Value = serde_json::from_str(&text).expect("dlstat -j writes JSON");
    let number = |it: &Value, field: &str| it[field].as_u64().expect("a number");
    let ring = |it: &Value| (number(it, "ring"), number(it, "lane"), number(it, "opackets"));
    let link = &said["links"][0];
    let rings = link["rings"].as_array().into_iter().flatten().map(ring).collect();
    (number(&link["traffic"], "opackets"), rings)
}

fn add_flow(daemon: &Daemon<'_>, link: &str, what: &str, name: &str) {
    daemon.firelane(&["flowadm", "add-flow", "-t", "-l", link, "-a", what, name]).expect_success();
}

fn set_cpus(daemon: &Daemon<'_>, flow: &str, cpu: &str) {
    let wanted = format!("cpus={cpu}");
    match cpu {
        "" => daemon.firelane(&["flowadm", "reset-flowprop", "-t", "-p", "cpus", flow]),
        _ => daemon.firelane(&["flowadm", "set-flowprop", "-t", "-p", &wanted, flow]),
    }
    .expect_success();
}

#[test]
fn a_flows_frames_come_by_a_queue_of_its_own_that_comes_and_goes_under_load() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, &tenants(2));
    let (first, last) = cpu_ends();
    let _server = serve_echoes(&sandbox);
    add_flow(&daemon, "alice0", "transport=tcp,remote_port=7", "asks");
    add_flow(&daemon, "bob0", "transport=tcp,local_port=7", "answers");
    let client = Comparing::begin(&sandbox, "alice", "5", "6");
    for nth in 0..24 {
        let flow = if nth % 2 == 0 { "asks" } else { "answers" };
        set_cpus(&daemon, flow, [first.as_str(), last.as_str(), ""][nth / 2 % 3]);
        if nth % 6 == 5 {
            let wanted = format!("rxrings={}", 1 + nth / 6 % 2);
            daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", &wanted, "alice0"]).expect_success();
        }
    }
    client.ends_well();
    for link in ["alice0", "bob0"] {
        let (sent, rings) = rings(&daemon, link);
        assert_eq!(rings.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 1, 2], "{rings:?}");
        assert!(rings[2].2 > 0, "by its own queue, too: {rings:?}");
        assert_eq!(rings.iter().map(|it| it.2).sum::<u64>(), sent, "{rings:?}");
    }
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
}

/// By which rings ten datagrams have come since they had carried so much.
fn by_which(now: &[u64], before: &[u64]) -> Vec<usize> {
    let more = now.iter().zip(before).map(|(now, before)| now - before >= 10);
    more.enumerate().filter(|it| it.1).map(|it| it.0).collect()
}

/// What alice's rings have carried, once ten datagrams are counted: who sends them does not wait for the lane.
fn counted(daemon: &Daemon<'_>, before: &[u64]) -> Vec<u64> {
    let carried = || -> Vec<u64> { rings(daemon, "alice0").1.iter().map(|it| it.2).collect() };
    until("a ring carries the datagrams", Duration::from_secs(20), || {
        !by_which(&carried(), before).is_empty()
    });
    carried()
}

#[test]
fn nobody_elses_frames_come_by_it() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, &tenants(1));
    let (_, last) = cpu_ends();
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "10.0.0.2"]).expect_success();
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "fd00::2"]).expect_success();
    add_flow(&daemon, "alice0", "transport=udp,remote_port=5000-5999", "many");
    // More specific, and with no lane of its own: it stays with the others.
    add_flow(&daemon, "alice0", "transport=udp,remote_port=5001", "one");
    set_cpus(&daemon, "many", &last);
    // The interface may have another name in its namespace, and another flow comes.
    sandbox.run(Some("alice"), "ip", &["link", "set", "alice0", "name", "renamed0"]).expect_success();
    add_flow(&daemon, "alice0", "remote_ip=10.0.0.2/32,transport=udp,remote_port=6000", "other");
    set_cpus(&daemon, "other", &last);
    let rings_of =
        |rings: &[(u64, u64, u64)]| rings.iter().map(|&(ring, lane, _)| (ring, lane)).collect::<Vec<_>>();
    let (_, before) = rings(&daemon, "alice0");
    assert_eq!(rings_of(&before), [(0, 0), (1, 1), (2, 1)], "both flows' queues are in the lane of that CPU");
    let sends = |to: &str, port: u16| {
        let family = if to.contains(':') { "AF_INET6" } else { "AF_INET" };
        let text = format!(
            "import socket\ns = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n\
             for n in range(10): s.sendto(b'x', ('{to}', {port}))\n"
        );
        sandbox.run(Some("alice"), "python3", &["-c", &text]).expect_success();
    };
    let mut counts: Vec<u64> = before.iter().map(|it| it.2).collect();
    for (to, port, ring) in [
        ("10.0.0.2", 5000, 1),
        ("fd00::2", 5999, 1),
        ("10.0.0.2", 5001, 0),
        ("10.0.0.2", 6000, 2),
        ("fd00::2", 6000, 0),
        ("10.0.0.2", 4999, 0),
    ] {
        sends(to, port);
        let now = counted(&daemon, &counts);
        assert_eq!(by_which(&now, &counts), [ring], "to {to} {port}: {counts:?} {now:?}");
        counts = now;
    }
    // The first of the two goes; the other one has its own all the same.
    set_cpus(&daemon, "many", "");
    sends("10.0.0.2", 6000);
    let now = counted(&daemon, &counts);
    assert_eq!(
        by_which(&now, &counts),
        [1],
        "it is the first queue beside the device's own now: {counts:?} {now:?}"
    );
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
}
