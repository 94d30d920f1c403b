//! `rxrings` and `txrings` of links: by how many rings of its device a link receives and sends, changed while real programs' traffic
//! passes, and what each ring has carried.

use std::fs;
use std::path::Path;
use std::time::Duration;

use firelane_interop::{Comparing, Daemon, Sandbox, serve_echoes, until};
use serde_json::Value;

const TENANTS: &str = "[daemon]\nlanes = 2\n[etherstub.s0]\n\
    [vnic.alice0]\nover = \"s0\"\ntap = { namespace = \"alice\", addresses = [\"10.0.0.1/24\"] }\n\
    [vnic.bob0]\nover = \"s0\"\ntap = { namespace = \"bob\", addresses = [\"10.0.0.2/24\"] }\n\
    [vnic.web0]\nover = \"s0\"\nnetstack = \"web\"\n[netstack.web.addresses]\n\"web0/v4\" = \"10.0.0.10/24\"\n";

fn start<'a>(sandbox: &'a Sandbox, text: &str) -> Daemon<'a> {
    Daemon::start_as(sandbox, text)
}

fn value(daemon: &Daemon<'_>, link: &str, prop: &str) -> String {
    let words = ["dladm", "show-linkprop", "-c", "-o", "value", "-p", prop, link];
    daemon.firelane(&words).expect_success().trim().to_owned()
}

/// By how many rings a link receives and sends.
fn effective(daemon: &Daemon<'_>, link: &str) -> [String; 2] {
    ["rxrings-effective", "txrings-effective"].map(|prop| value(daemon, link, prop))
}

/// A link's counters without what this host's netstacks sent to it, which no device brought; and its rings'.
fn counted(daemon: &Daemon<'_>, link: &str) -> (Value, Vec<Value>) {
    let text = daemon.firelane(&["dlstat", "show-link", "-j", link]).expect_success();
    let said: Value = serde_json::from_str(&text).expect("dlstat -j writes JSON");
    let link = &said["links"][0];
    let list = |field: &str| link[field].as_array().cloned().unwrap_or_default();
    let lanes = list("lanes");
    let mut traffic = link["traffic"].clone();
    traffic["ipackets"] = (sum(&lanes, "intrs") + sum(&lanes, "polls")).into();
    traffic["rbytes"] = sum(&lanes, "fetched_bytes").into();
    (traffic, list("rings"))
}

fn sum(rings: &[Value], field: &str) -> u64 {
    rings.iter().map(|ring| ring[field].as_u64().expect("a counter")).sum()
}

#[test]
fn connections_of_programs_go_on_while_their_links_get_more_rings_and_fewer() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, TENANTS);
    assert_eq!(effective(&daemon, "bob0"), ["2", "2"]);
    let _server = serve_echoes(&sandbox);
    let compares = Comparing::begin(&sandbox, "alice", "6", "8");
    let set = |link: &str, prop: &str| {
        daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", prop, link]).expect_success();
    };
    for nth in 0..36 {
        let link = if nth % 2 == 0 { "alice0" } else { "bob0" };
        let (words, want) = [
            (["rxrings=1", "txrings=1"], ["1", "1"]),
            (["rxrings=hw", "txrings=sw"], ["2", "1"]),
            (["rxrings=sw", "txrings=2"], ["1", "2"]),
            (["rxrings=2", "txrings=hw"], ["2", "2"]),
        ][nth / 2 % 4];
        words.iter().for_each(|prop| set(link, prop));
        assert_eq!(effective(&daemon, link), want, "{words:?}");
    }
    compares.ends_well();
    for link in ["alice0", "bob0"] {
        let (traffic, rings) = counted(&daemon, link);
        assert_eq!(rings.len(), 2, "{rings:?}");
        for field in ["ipackets", "rbytes", "opackets", "obytes"] {
            assert_eq!(sum(&rings, field), traffic[field].as_u64().expect("a counter"), "{link} {field}");
            // Now by one, now by two.
            assert!(rings.iter().all(|ring| ring[field].as_u64() > Some(0)), "{rings:?}");
        }
    }
    // One that is not used carries nothing more.
    set("bob0", "rxrings=1,txrings=1");
    let (_, before) = counted(&daemon, "bob0");
    Comparing::begin(&sandbox, "alice", "0.5", "8").ends_well();
    let (_, after) = counted(&daemon, "bob0");
    for field in ["ipackets", "opackets"] {
        let came = |nth: usize| after[nth][field].as_u64() > before[nth][field].as_u64();
        assert_eq!(
            [came(0), came(1)].into_iter().filter(|&it| it).count(),
            1,
            "{field}: {before:?} {after:?}"
        );
    }
}

#[test]
fn a_link_has_as_many_rings_as_its_file_asks_for_and_what_cannot_be_changes_nothing() {
    let sandbox = Sandbox::new();
    let text = TENANTS.replace("[vnic.bob0]\n", "[vnic.bob0]\nrxrings = 1\ntxrings = 4\n");
    let daemon = start(&sandbox, &text);
    // Four queues on two lanes: the lanes fetch from two each in turn.
    assert_eq!(effective(&daemon, "bob0"), ["1", "4"]);
    assert_eq!(value(&daemon, "bob0", "rxrings-available"), "3");
    assert!(daemon.firelane(&["dump"]).expect_success().contains("rxrings = \"1\"\ntxrings = \"4\""));
    for (link, prop, said) in [
        (
            "bob0",
            "rxrings=5",
            "cannot set link property 'rxrings' on 'bob0': request hw rings failed (rxrings=5: ",
        ),
        (
            "bob0",
            "txrings=5",
            "cannot set link property 'txrings' on 'bob0': request hw rings failed (txrings=5: ",
        ),
        ("bob0", "rxrings=0", "0 is an invalid value for link property rxrings"),
        ("bob0", "rxrings=129", "129 is an invalid value for link property rxrings"),
        ("bob0", "txrings=many", "many is an invalid value for link property txrings"),
        ("bob0", "txrings-effective=1", "read-only property"),
        ("web0", "rxrings=hw", "cannot set link property 'rxrings' on 'web0': request hw rings failed"),
        ("s0", "rxrings=1", "invalid link property 'rxrings'"),
    ] {
        let refused = daemon.firelane(&["dladm", "set-linkprop", "-p", prop, link]);
        assert!(refused.code() == 1 && refused.stderr.contains(said), "{prop} {link}: {refused:?}");
        assert_eq!(effective(&daemon, "bob0"), ["1", "4"], "{prop} {link}");
    }
    daemon.firelane(&["dladm", "set-linkprop", "-p", "rxrings=sw", "web0"]).expect_success();
    assert_eq!(effective(&daemon, "web0"), ["", ""]);
    // Enough conversations for every ring.
    let sends = "import socket\nfor n in range(64):\n s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n \
                 s.bind(('10.0.0.2', 4000 + n))\n s.sendto(b'x', ('10.0.0.1', 9))\n";
    sandbox.run(Some("bob"), "ping", &["-c", "1", "-W", "5", "10.0.0.1"]).expect_success();
    sandbox.run(Some("bob"), "python3", &["-c", sends]).expect_success();
    // The lanes have what is sent a little later.
    until("each of four rings carries some", Duration::from_secs(20), || {
        let (_, rings) = counted(&daemon, "bob0");
        rings.len() == 4 && rings.iter().all(|ring| ring["opackets"].as_u64() > Some(0))
    });
    let rows = daemon.firelane(&["dlstat", "show-link", "-t", "bob0"]).expect_success();
    assert_eq!(rows.lines().filter(|line| line.contains("hw")).count(), 4, "{rows}");
    let wanted = sandbox.folder().join("wanted.toml");
    fs::write(&wanted, text.replace("txrings = 4", "txrings = 2")).expect("writable");
    let path = wanted.to_string_lossy().into_owned();
    let plan = daemon.firelane(&["plan", &path]).expect_success();
    assert!(plan.contains("live      set vnic bob0 txrings 4 -> 2\n"), "{plan}");
    daemon.firelane(&["apply", &path]).expect_success();
    assert_eq!(effective(&daemon, "bob0"), ["1", "2"]);
    // It is what the next start finds, too.
    daemon.terminate();
    let daemon = Daemon::start(&sandbox, Path::new(&path));
    assert_eq!(effective(&daemon, "bob0"), ["1", "2"]);
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
    daemon.firelane(&["dladm", "reset-linkprop", "-p", "rxrings,txrings", "bob0"]).expect_success();
    assert_eq!(effective(&daemon, "bob0"), ["2", "2"]);
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "10.0.0.2"]).expect_success();
}
