//! Programs of two netstacks on one etherstub: with `fusion=on` at both, their connections are fused like those of one.

use std::path::Path;
use std::time::{Duration, Instant};

use firelane_interop::{On, Sandbox, Server, Stage};

const PATIENCE: Duration = Duration::from_secs(20);

fn flip() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/flip.py").to_string_lossy().into_owned()
}

fn say(stage: &Stage<'_>, link: &str, fusion: &str) {
    let fusion = format!("fusion={fusion}");
    stage.daemon().firelane(&["dladm", "set-linkprop", "-t", "-p", &fusion, link]).expect_success();
}

/// Fused bytes that a VNIC has got and sent.
fn fused(stage: &Stage<'_>, link: &str) -> [u64; 2] {
    let words = ["dlstat", "-p", "-o", "rfused,ofused", link];
    let shown = stage.daemon().firelane(&words).expect_success();
    let numbers: Vec<u64> = shown.trim().split(':').map(|word| word.parse().expect("a number")).collect();
    numbers.try_into().expect("two columns")
}

fn first_line(server: &Server) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some((line, _)) = server.log().split_once('\n') {
            return line.to_owned();
        }
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until what is known of a program says so.
fn until_explained(stage: &Stage<'_>, pid: &str, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let explained = stage.daemon().firelane(&["explain", pid]).expect_success();
        if explained.contains(what) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {explained}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two programs send each other what they can, checked byte by byte, while their VNICs change their minds.
fn change_minds(lanes: usize, time: Duration) {
    let sandbox = Sandbox::new();
    let stage = Stage::with_neighbour(&sandbox, lanes);
    let (script, seconds) = (flip(), "85");
    let words = ["/usr/bin/python3", &script, Stage::NEIGHBOUR, seconds, "serve"];
    let server = stage.serve(On::Neighbour, &words);
    let deadline = Instant::now() + PATIENCE;
    while !server.log().contains("listens") {
        assert!(Instant::now() < deadline, "it does not listen: {}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let client = stage.serve(On::Firelane, &["/usr/bin/python3", &script, Stage::NEIGHBOUR, seconds, "join"]);
    let pid = first_line(&client);
    until_explained(&stage, &pid, "not fused: its peer is on another netstack, and not both have fusion=on");
    assert_eq!([fused(&stage, "web0"), fused(&stage, "next0")], [[0; 2]; 2]);
    let end = Instant::now() + time;
    let mut changes = 0;
    while changes < 8 || Instant::now() < end {
        say(&stage, "web0", "on");
        say(&stage, "next0", "on");
        let (before, deadline) = (fused(&stage, "next0"), Instant::now() + PATIENCE);
        while fused(&stage, "next0").iter().zip(before).any(|(now, before)| *now == before) {
            assert!(Instant::now() < deadline, "not fused: {before:?} {}", client.log());
        }
        say(&stage, "next0", if changes % 2 == 0 { "off" } else { "same-zone" });
        changes += 1;
    }
    say(&stage, "next0", "off");
    until_explained(&stage, &pid, "not fused: fusion is off at link next0");
    let number =
        pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("it has printed its number");
    rustix::process::kill_process(number, rustix::process::Signal::USR1).expect("it runs");
    client.expect_success();
    println!("{changes} changes\n{}", server.expect_success());
    // What one has sent past the lanes, the other has got.
    let [web, next] = [fused(&stage, "web0"), fused(&stage, "next0")];
    assert_eq!(web, [next[1], next[0]]);
    stage.wait_until_nothing_is_left();
}

#[test]
fn streams_between_netstacks_are_whole_while_they_are_fused_and_parted() {
    (1..=2).for_each(|lanes| change_minds(lanes, Duration::from_secs(2)));
}

/// `make soak`.
#[test]
#[ignore = "takes a minute"]
fn soak_minds_change() {
    (1..=2).for_each(|lanes| change_minds(lanes, Duration::from_secs(40)));
}

#[test]
fn redis_on_one_netstack_serves_another_past_the_lanes() {
    let sandbox = Sandbox::new();
    let stage = Stage::with_neighbour(&sandbox, 2);
    say(&stage, "s1", "on");
    let words = ["redis-server", "--bind", Stage::NEIGHBOUR, "--save", "", "--protected-mode", "no"];
    let server = stage.serve(On::Neighbour, &words);
    let ask = ["redis-cli", "-h", Stage::NEIGHBOUR, "ping"];
    assert_eq!(stage.wait_for(&server, On::Firelane, &ask), "PONG\n");
    let bench =
        ["redis-benchmark", "-h", Stage::NEIGHBOUR, "-n", "20000", "-t", "get,set", "-q", "-d", "1000"];
    stage.ask(On::Firelane, &bench);
    let [got, sent] = fused(&stage, "next0");
    assert!(got > 20_000_000 && sent > 20_000_000, "{got} and {sent}");
    let packets = ["dlstat", "-p", "-o", "ipkts", "next0"];
    let packets: u64 = stage.daemon().firelane(&packets).expect_success().trim().parse().expect("a number");
    assert!(packets < 20_000, "{packets} packets");
    // The kernel's client is no neighbour of that kind.
    assert_eq!(stage.ask(On::Kernel, &ask), "PONG\n");
}
