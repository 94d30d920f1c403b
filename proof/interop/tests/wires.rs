//! Wires between real kernels: ping shows the delay, the loss and the doubles, iperf3 the rate, and changes hold at once.
//!
//! What is exact is asked exactly (nothing comes too early, nothing passes faster, every loss is counted); how late something may
//! be depends on who else runs here, so the best of several is taken.

use firelane_interop::{Daemon, Iperf, Sandbox};

/// alice on one switch, bob on the other, and a wire of 20 ms between them.
const CONFIG: &str = r#"
[etherstub.left0]
[etherstub.right0]
mtu = 1500
[vnic.alice0]
over = "left0"
mtu = 1500
tap = { namespace = "alice", addresses = ["10.0.0.1/24"] }
[vnic.bob0]
over = "right0"
tap = { namespace = "bob", addresses = ["10.0.0.2/24"] }
[wire.wire0]
ends = ["left0", "right0"]
seed = 42
both = { delay = "20ms" }
"#;

fn modify(daemon: &Daemon<'_>, props: &str, side: Option<&str>) {
    let side: Vec<&str> = side.map_or(Vec::new(), |side| vec!["-d", side]);
    daemon
        .firelane(&[&["dladm", "modify-wire", "-p", props], &side[..], &["wire0"]].concat())
        .expect_success();
}

/// One counter of a direction, which its first end names.
fn counted(daemon: &Daemon<'_>, from: &str, field: &str) -> u64 {
    let fields = format!("from,{field}");
    let said = daemon.firelane(&["dladm", "show-wire", "-s", "-p", "-o", &fields, "wire0"]).expect_success();
    let line = said.lines().find_map(|line| line.strip_prefix(from)?.strip_prefix(':'));
    line.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

fn ping(sandbox: &Sandbox, args: &[&str]) -> String {
    let fixed = ["-n", "-W", "5", "10.0.0.2"];
    sandbox.run(Some("alice"), "ping", &[args, &fixed].concat()).stdout
}

#[test]
fn ping_shows_the_delay_of_each_direction() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    // The first one asks for neighbours, too.
    sandbox.shortest_trip("alice", "10.0.0.2");
    let there_and_back = sandbox.shortest_trip("alice", "10.0.0.2");
    assert!((40.0..50.0).contains(&there_and_back), "{there_and_back} ms");
    modify(&daemon, "delay=5ms", Some("back"));
    let uneven = sandbox.shortest_trip("alice", "10.0.0.2");
    assert!((25.0..35.0).contains(&uneven), "{uneven} ms");
    modify(&daemon, "delay=0", None);
    let plain = sandbox.shortest_trip("alice", "10.0.0.2");
    assert!(plain < 10.0, "{plain} ms");
}

#[test]
fn ping_shows_what_is_lost_and_what_comes_twice() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    modify(&daemon, "delay=0", None);
    ping(&sandbox, &["-c", "3", "-i", "0.05"]);
    modify(&daemon, "loss=20%", Some("forth"));
    let before = counted(&daemon, "left0", "lost");
    let said = ping(&sandbox, &["-q", "-c", "200", "-i", "0.01", "-W", "1"]);
    let number = |word: &str| {
        let part = said.split(", ").find(|part| part.contains(word)).unwrap_or_else(|| panic!("{said}"));
        part.split_whitespace().find_map(|it| it.parse::<u64>().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let missing = 200 - number("received");
    // Five standard deviations of 40 in 200.
    assert!((12..=68).contains(&missing), "{said}");
    // The kernel may have asked for a neighbour meanwhile.
    let lost = counted(&daemon, "left0", "lost") - before;
    assert!((missing..missing + 20).contains(&lost), "{lost} lost, {missing} missing");
    assert_eq!(counted(&daemon, "right0", "lost"), 0, "the other direction loses nothing");
    modify(&daemon, "loss=0,duplicate=100%", None);
    let said = ping(&sandbox, &["-q", "-c", "5", "-i", "0.05"]);
    // Each question comes twice, and each answer; ping ends with the first of the last four.
    let doubles = said.split(", ").find_map(|part| part.strip_prefix('+')?.strip_suffix(" duplicates"));
    assert!(doubles.is_some_and(|it| (12..=15).contains(&it.parse().unwrap_or(0))), "{said}");
    assert!(counted(&daemon, "right0", "doubled") >= 10);
    modify(&daemon, "duplicate=0,loss=100%", Some("back"));
    modify(&daemon, "duplicate=0", None);
    assert!(ping(&sandbox, &["-q", "-c", "2", "-i", "0.05", "-W", "1"]).contains(" 0 received"));
    assert!(daemon.firelane(&["drops"]).expect_success().contains("wire_loss"));
}

#[test]
fn iperf3_shows_the_rate_and_what_finds_the_queue_full_is_counted() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    let server = Iperf::serve(&sandbox, "bob", "10.0.0.2");
    modify(&daemon, "delay=1ms,rate=20M,queue=60000", None);
    // A frame of 1,514 bytes has 1,448 of text.
    let most = 20.0 * 1448.0 / 1514.0;
    let text = server.rate("alice", &[]);
    assert!(text <= most * 1.01, "{text} Mb/s of text through 20 Mb/s");
    assert!(text >= most * 0.8, "{text} Mb/s of text through 20 Mb/s");
    let before = counted(&daemon, "left0", "full");
    let text = server.rate("alice", &["-u", "-b", "40M", "-l", "1400"]);
    assert!(text <= 20.0 * 1400.0 / 1442.0 * 1.02, "{text} Mb/s of text through 20 Mb/s");
    assert!(counted(&daemon, "left0", "full") > before + 1000, "half of it finds no room");
    assert!(daemon.firelane(&["drops"]).expect_success().contains("ring_full"));
    modify(&daemon, "rate=none,delay=0", None);
    let free = server.rate("alice", &[]);
    assert!(free > 40.0, "{free} Mb/s without a rate");
}
