//! `cpus` of flows: a service's connections are in lanes of its flow's own, also those of a program that runs already, and what
//! there was before goes on where it is.

use std::fs;
use std::time::{Duration, Instant};

use firelane_interop::{COMPARES, Daemon, ECHOES, On, Sandbox, Stage, cpu_ends};

const LANES: usize = 1;
const FLOW: [&str; 7] = ["flowadm", "add-flow", "-l", "web0", "-a", "transport=tcp,local_port=7", "echo"];

fn prop(daemon: &Daemon<'_>, name: &str) -> String {
    let words = ["flowadm", "show-flowprop", "-c", "-o", "value", "-p", name, "echo"];
    daemon.firelane(&words).expect_success().trim().to_owned()
}

/// The lanes of all connections that a program has, as `firelane explain` tells.
fn lanes_of(daemon: &Daemon<'_>, pid: &str) -> Vec<u64> {
    let sockets = daemon.explained_sockets(pid);
    let connected = sockets.iter().filter(|it| it["remote"].as_str().is_some_and(|it| !it.is_empty()));
    connected.filter_map(|it| it["lane"].as_u64()).collect()
}

#[test]
fn a_running_programs_service_gets_a_lane_of_its_own_and_loses_it_under_load() {
    let sandbox = Sandbox::new();
    let (first, last) = cpu_ends();
    let stage = Stage::new(&sandbox, LANES);
    let daemon = stage.daemon();
    let at_home = |text: &str| text.replace("10.0.0.2", Stage::FIRELANE);
    let told = format!("import os; print(os.getpid(), flush=True){}", at_home(ECHOES));
    let server = stage.serve(On::Firelane, &["python3", "-c", &told]);
    let probe = format!("import socket; socket.create_connection(('{}', 7)).close()", Stage::FIRELANE);
    stage.wait_for(&server, On::Kernel, &["python3", "-c", &probe]);
    let pid = server.log().lines().next().expect("its number").to_owned();
    daemon.firelane(&FLOW).expect_success();
    assert!(prop(daemon, "cpus").is_empty() && prop(daemon, "cpus-effective").is_empty());
    let compares = at_home(COMPARES);
    let begin = |on| stage.serve(on, &["python3", "-c", &compares, "3", "4"]);
    let mut clients = vec![begin(On::Kernel), begin(On::Firelane)];
    for nth in 0..12 {
        let cpus = [first.as_str(), last.as_str(), ""][nth % 3];
        match cpus {
            "" => {
                daemon.firelane(&["flowadm", "reset-flowprop", "-t", "-p", "cpus", "echo"]).expect_success()
            }
            cpu => {
                let wanted = format!("cpus={cpu}");
                daemon.firelane(&["flowadm", "set-flowprop", "-t", "-p", &wanted, "echo"]).expect_success()
            }
        };
        assert_eq!(
            (prop(daemon, "cpus"), prop(daemon, "cpus-effective")),
            (cpus.to_owned(), cpus.to_owned())
        );
        clients.push(begin(On::Kernel));
    }
    for client in clients {
        assert!(client.expect_success().starts_with("rounds"));
    }
    // One that stands is in the lane, where `explain` sees it.
    daemon.firelane(&["flowadm", "set-flowprop", "-p", &format!("cpus={last}"), "echo"]).expect_success();
    let holds = format!(
        "import socket, time\ns = socket.create_connection(('{}', 7))\nprint('held', flush=True)\ntime.sleep(60)",
        Stage::FIRELANE
    );
    let holder = stage.serve(On::Kernel, &["python3", "-c", &holds]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holder.log().contains("held") || lanes_of(daemon, &pid).is_empty() {
        assert!(Instant::now() < deadline, "{}", holder.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let lanes = lanes_of(daemon, &pid);
    assert!(lanes.iter().all(|&lane| lane >= LANES as u64), "{lanes:?}");
    drop(holder);
    drop(server);
    // Its lane, and what that was lent to send to the kernel's interface by, are given back.
    daemon.firelane(&["flowadm", "reset-flowprop", "-p", "cpus", "echo"]).expect_success();
    stage.wait_until_nothing_is_left();
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
}

#[test]
fn a_plan_changes_them_live_and_what_cannot_be_is_refused() {
    let sandbox = Sandbox::new();
    let (_, last) = cpu_ends();
    let stage = Stage::new(&sandbox, LANES);
    let daemon = stage.daemon();
    let own = format!("cpus={last}");
    let [verb, add, rest @ ..] = FLOW;
    let words: Vec<_> = [verb, add, "-p", &own].into_iter().chain(rest).collect();
    daemon.firelane(&words).expect_success();
    assert_eq!(prop(daemon, "cpus-effective"), last);
    let file = sandbox.folder().join("wanted.toml");
    let path = file.to_string_lossy().into_owned();
    let dumped = daemon.firelane(&["dump"]).expect_success();
    let line = format!("cpus = \"{last}\"\n");
    assert!(dumped.contains(&line), "{dumped}");
    fs::write(&file, dumped.replace(&line, "")).expect("writable");
    let plan = daemon.firelane(&["plan", &path]).expect_success();
    assert_eq!(plan, format!("live      set flow echo cpus {last} -> --\n"));
    daemon.firelane(&["apply", &path]).expect_success();
    assert!(prop(daemon, "cpus-effective").is_empty());
    let refused = daemon.firelane(&["flowadm", "set-flowprop", "-p", "cpus=1023", "echo"]);
    assert!(refused.stderr.contains("non-existent processor ID"), "{refused:?}");
    let remote = ["flowadm", "add-flow", "-l", "web0", "-a", "remote_ip=10.9.0.0/16", "-p", &own, "far"];
    let refused = daemon.firelane(&remote);
    assert!(refused.code() == 1 && refused.stderr.contains("names local_port"), "{refused:?}");
    assert!(!daemon.firelane(&["flowadm", "show-flow", "-p", "-o", "flow"]).expect_success().contains("far"));
    // What was refused has left nothing: the same is there to be had, and what was to be limited is not.
    let half = ["flowadm", "add-flow", "-l", "web0", "-a", "transport=tcp,local_port=8"];
    let refused = daemon.firelane(&[&half[..], &["-p", "maxbw=1M,cpus=1023", "half"]].concat());
    assert!(refused.code() == 1 && refused.stderr.contains("non-existent processor ID"), "{refused:?}");
    daemon.firelane(&[&half[..], &["half"]].concat()).expect_success();
    let refused = daemon.firelane(&["flowadm", "set-flowprop", "-p", "maxbw=1M,cpus=1023", "half"]);
    assert_eq!(refused.code(), 1);
    let dumped = daemon.firelane(&["dump"]).expect_success();
    assert!(!dumped.contains("maxbw"), "{dumped}");
}
