//! Two programs whose connection is fused: bytes go past the daemon, and whoever dies leaves the other an end.

use std::time::{Duration, Instant};

use firelane_interop::{On, Sandbox, Stage, binary, script, soak_seed};

/// Kills one of two programs at so many random moments.
fn kill(seed: u64, rounds: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1 + (seed % 2) as usize);
    let (seed, rounds) = (seed.to_string(), rounds.to_string());
    let words = ["/usr/bin/python3", &script("kill.py"), Stage::FIRELANE, &seed, &rounds];
    println!("{}", stage.ask(On::Firelane, &words));
    stage.wait_until_nothing_is_left();
}

#[test]
fn whoever_is_killed_the_other_gets_what_was_sent_and_an_end() {
    kill(1, 40);
    kill(2, 40);
}

/// `make soak`.
#[test]
#[ignore = "takes minutes"]
fn soak_whoever_is_killed() {
    let first = u64::from(soak_seed(100));
    (first..first + 50).for_each(|seed| kill(seed, 100));
}

#[test]
fn two_programs_talk_past_the_daemon() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let words = ["/usr/bin/python3", &script("fused.py"), Stage::FIRELANE];
        println!("{}", stage.ask(On::Firelane, &words));
        stage.wait_until_nothing_is_left();
    }
}

/// More than a program maps in its life.
#[test]
fn a_server_is_fused_with_any_number_of_programs_one_after_the_other() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    stage.ask(On::Firelane, &["/usr/bin/python3", &script("guests.py"), Stage::FIRELANE, "70"]);
    stage.wait_until_nothing_is_left();
}

#[test]
fn who_was_killed_while_he_waited_costs_the_peer_nothing() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    stage.ask(On::Firelane, &["/usr/bin/python3", &script("dead_waiters.py"), Stage::FIRELANE]);
    stage.wait_until_nothing_is_left();
}

#[test]
fn a_server_has_few_bells_and_keeps_none_of_programs_that_have_left() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    for [clients, threads] in [["4", "6"], ["6", "40"]] {
        let words = ["/usr/bin/python3", &script("bells.py"), Stage::FIRELANE, clients, threads];
        println!("{}", stage.ask(On::Firelane, &words));
    }
    stage.wait_until_nothing_is_left();
}

#[test]
fn who_had_no_descriptor_left_for_one_connection_reads_the_next() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    stage.ask(On::Firelane, &["/usr/bin/python3", &script("again_mapped.py"), Stage::FIRELANE]);
    stage.wait_until_nothing_is_left();
}

#[test]
fn memory_of_connections_at_rest_and_of_who_has_ended_goes_back() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let daemon = stage.daemon().pid().to_string();
    let words = ["/usr/bin/python3", &script("emptied.py"), Stage::FIRELANE, &daemon];
    println!("{}", stage.ask(On::Firelane, &words));
    stage.wait_until_nothing_is_left();
}

#[test]
fn so_many_writes_may_be_unread() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    for limit in ["0", "8", "1"] {
        let property = format!("_fusion_rcv_unread_min={limit}");
        let words = ["ipadm", "set-prop", "-t", "-N", "web", "-p", &property, "tcp"];
        stage.daemon().firelane(&words).expect_success();
        stage.ask(On::Firelane, &["/usr/bin/python3", &script("unread.py"), Stage::FIRELANE, limit]);
    }
    stage.wait_until_nothing_is_left();
}

/// Leaves so many fused connections alone.
fn rest(count: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let (count, daemon) = (count.to_string(), stage.daemon().pid().to_string());
    let words = ["/usr/bin/python3", &script("idle.py"), Stage::FIRELANE, &count, &daemon];
    println!("{}", stage.ask(On::Firelane, &words));
    stage.wait_until_nothing_is_left();
}

#[test]
fn fused_connections_that_nobody_uses_take_no_cpu() {
    rest(1000);
}

/// `make soak`.
#[test]
#[ignore = "takes a minute, and as many descriptors as a process may often have"]
fn soak_nine_thousand_fused_connections_rest() {
    rest(9000);
}

#[test]
fn every_answer_wakes_who_waits_for_it() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    stage.ask(On::Firelane, &["/usr/bin/python3", &script("questions.py"), Stage::FIRELANE, "200"]);
    stage.wait_until_nothing_is_left();
}

/// Lets a script serve itself in the flow `served`, which it may look at and change.
fn serve_in_a_flow(stage: &Stage<'_>, name: &str) {
    let flow = ["flowadm", "add-flow", "-t", "-l", "web0", "-a", "transport=tcp,local_port=7777", "served"];
    stage.daemon().firelane(&flow).expect_success();
    let firelane = binary("firelane").display().to_string();
    let words = ["/usr/bin/python3", &script(name), Stage::FIRELANE, &firelane];
    println!("{}", stage.ask(On::Firelane, &words));
    stage.wait_until_nothing_is_left();
}

#[test]
fn what_two_programs_carry_past_the_daemon_is_counted_to_the_byte() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        serve_in_a_flow(&stage, "counted.py");
        // The history has it, too, a second later, and forgets nothing of connections that are over.
        let shown = stage.daemon().firelane(&["flowstat", "-p", "-o", "rfused,ofused", "served"]);
        let shown = shown.expect_success();
        let deadline = Instant::now() + Duration::from_secs(20);
        while history_of("served", &stage) != shown {
            assert!(Instant::now() < deadline, "{} is not {shown}", history_of("served", &stage));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn what_a_program_marks_is_limited_and_counted_as_its_packets_would_be() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        serve_in_a_flow(&stage, "marked.py");
    }
}

/// Fused bytes of a flow, as `flowstat` shows them, summed over its history.
fn history_of(flow: &str, stage: &Stage<'_>) -> String {
    let history = stage.daemon().firelane(&["flowstat", "-h", "-j", flow]);
    if history.code() != 0 {
        // The second in which it was made is not over.
        return history.stderr;
    }
    let history: serde_json::Value = serde_json::from_str(&history.stdout).expect("flowstat prints JSON");
    let pieces = history["samples"].as_array().expect("there is history");
    let sum = |what: &str| pieces.iter().filter_map(|it| it["traffic"][what].as_u64()).sum::<u64>();
    format!("{}:{}\n", sum("rfused"), sum("ofused"))
}

/// What turns fusion off, and on again.
const SWITCHES: [[&[&str]; 2]; 3] = [
    [
        &["ipadm", "set-prop", "-t", "-N", "web", "-p", "_fusion=off", "tcp"],
        &["ipadm", "set-prop", "-t", "-N", "web", "-p", "_fusion=on", "tcp"],
    ],
    [
        &["dladm", "set-linkprop", "-t", "-p", "fusion=off", "web0"],
        &["dladm", "reset-linkprop", "-t", "-p", "fusion", "web0"],
    ],
    [
        &["flowadm", "set-flowprop", "-t", "-p", "fusion=off", "tcp"],
        &["flowadm", "set-flowprop", "-t", "-p", "fusion=same-zone", "tcp"],
    ],
];

/// Fuses and parts two programs' connection every few milliseconds, for so long, while both send what they can.
fn flip(seconds: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let time = seconds.to_string();
    let words = ["/usr/bin/python3", &script("flip.py"), Stage::FIRELANE, &time];
    let pumps = stage.serve(On::Firelane, &words);
    let flow = ["flowadm", "add-flow", "-t", "-l", "web0", "-a", "transport=tcp", "tcp"];
    stage.daemon().firelane(&flow).expect_success();
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut changes = 0;
    while Instant::now() < end {
        for words in SWITCHES.iter().flatten() {
            stage.daemon().firelane(words).expect_success();
            changes += 1;
        }
    }
    println!("{changes} changes\n{}", pumps.expect_success());
    stage.wait_until_nothing_is_left();
}

#[test]
fn who_turns_fusion_off_is_named() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let flow = ["flowadm", "add-flow", "-t", "-l", "web0", "-a", "transport=tcp", "tcp"];
    stage.daemon().firelane(&flow).expect_success();
    let pumps = stage.serve(On::Firelane, &["/usr/bin/python3", &script("flip.py"), Stage::FIRELANE, "85"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while pumps.log().lines().next().is_none() {
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = pumps.log().lines().next().unwrap_or_default().to_owned();
    // The last of those that are off below each other is the narrowest.
    let link = [
        ["dladm", "set-linkprop", "-t", "-p", "fusion=off", "s1"],
        SWITCHES[1][0].try_into().expect("six words"),
    ];
    for (words, why) in [
        (&link[0][..], "fusion is off at link s1"),
        (&link[1][..], "fusion is off at link web0"),
        (SWITCHES[2][0], "fusion is off at flow tcp"),
        (SWITCHES[0][0], "_fusion is off"),
    ] {
        stage.daemon().firelane(words).expect_success();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let explained = stage.daemon().firelane(&["explain", &pid]).expect_success();
            if explained.contains(why) {
                break;
            }
            assert!(Instant::now() < deadline, "{why}: {explained}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    stop(&pid);
    pumps.expect_success();
}

#[test]
fn streams_are_whole_while_fusion_is_turned_off_and_on() {
    flip(4);
}

/// Ends what `flip.py` does.
fn stop(pid: &str) {
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("it has printed its number");
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).expect("it runs");
}

/// Captures of two programs' connection come and go while both send what they can.
fn look_on(seconds: u32, lanes: usize) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, lanes);
    let flow = ["flowadm", "add-flow", "-t", "-l", "web0", "-a", "transport=tcp", "tcp"];
    stage.daemon().firelane(&flow).expect_success();
    let pumps = stage.serve(On::Firelane, &["/usr/bin/python3", &script("flip.py"), Stage::FIRELANE, "85"]);
    let counted =
        || stage.daemon().firelane(&["flowstat", "-p", "-o", "rfused,rbytes", "tcp"]).expect_success();
    let fuses = || {
        let (before, deadline) = (counted(), Instant::now() + Duration::from_secs(15));
        while counted() == before {
            assert!(Instant::now() < deadline, "not fused: {before}{}", pumps.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    fuses();
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut captures = 0;
    while Instant::now() < end {
        for what in [["-l", "web0"], ["-f", "tcp"], ["-l", "s1"]] {
            let file = stage.folder().join("captured").display().to_string();
            let words = [&["capture"][..], &what, &["-c", "150", "-w", &file]].concat();
            stage.daemon().firelane(&words).expect_success();
            captures += 1;
            let shown = sandbox.run(None, "tcpdump", &["-Z", "root", "-nr", &file]).expect_success();
            // The host's other stations have something to say, too.
            let text =
                shown.lines().filter(|line| line.contains("IP 10.0.0.10.") && !line.ends_with("length 0"));
            assert!(text.count() > 20 && shown.lines().count() == 150, "{shown}");
            fuses();
        }
    }
    // While one runs, what keeps the connection from being fused is said.
    let mut capture = sandbox.command(binary("firelane"));
    capture.env("FIRELANE_SOCKET", stage.daemon().runtime().join("api.sock"));
    capture.args(["capture", "-f", "tcp", "-w", "/dev/null"]);
    let mut capture = capture.spawn().expect("firelane is built");
    let pid = pumps.log().lines().next().unwrap_or_default().to_owned();
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        let explained = stage.daemon().firelane(&["explain", &pid]).expect_success();
        if explained.contains("not fused: a capture looks on at its VNIC or its flow") {
            break;
        }
        assert!(Instant::now() < deadline, "{explained}");
        std::thread::sleep(Duration::from_millis(20));
    }
    capture.kill().and_then(|()| capture.wait()).expect("our own child");
    fuses();
    stop(&pid);
    println!("{captures} captures\n{}", pumps.expect_success());
    stage.wait_until_nothing_is_left();
}

#[test]
fn captures_see_every_byte_of_fused_connections_and_let_them_be_fused_again() {
    (1..=2).for_each(|lanes| look_on(2, lanes));
}

/// `make soak`.
#[test]
#[ignore = "takes minutes"]
fn soak_captures_come_and_go() {
    (1..=2).for_each(|lanes| look_on(60, lanes));
}

/// `make soak`.
#[test]
#[ignore = "takes minutes"]
fn soak_fusion_is_turned_off_and_on() {
    flip(80);
}

#[test]
fn limits_hold_between_two_programs_and_follow_their_changes() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        serve_in_a_flow(&stage, "limited.py");
    }
}

#[test]
fn what_was_written_before_the_reader_looked_leaves_no_more_credit_than_the_limit_allows() {
    let sandbox = Sandbox::new();
    serve_in_a_flow(&Stage::new(&sandbox, 1), "limited_behind.py");
}

/// Of a program that forks for each connection, and of a buffer that grows.
#[test]
fn who_waits_at_a_fused_connection_hears_of_what_is_for_him_and_of_nothing_else() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let told = stage.ask(On::Firelane, &["/usr/bin/python3", &script("quiet_ends.py"), Stage::FIRELANE]);
    assert_eq!(told, "room is heard of: True\ndisturbed by each end: nobody\n");
    stage.wait_until_nothing_is_left();
}
