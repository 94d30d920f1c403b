//! `cpus` of netstacks: programs' connections are in lanes of their netstack's own, and move with these to other CPUs.

use std::fs;

use firelane_interop::{COMPARES, Daemon, ECHOES, On, Sandbox, Stage, cpu_ends};

const LANES: usize = 2;
/// An address is tested for others that have it before it answers.
const ASKS: [&str; 7] = ["-c", "1", "-i", "0.2", "-w", "10", Stage::FIRELANE];

fn prop(daemon: &Daemon<'_>, name: &str) -> String {
    let words = ["dladm", "show-linkprop", "-c", "-o", "value", "-p", name, "web0"];
    daemon.firelane(&words).expect_success().trim().to_owned()
}

/// The lanes of all sockets that a program has, as `firelane explain` tells.
fn lanes_of(daemon: &Daemon<'_>, pid: &str) -> Vec<u64> {
    let sockets = daemon.explained_sockets(pid);
    sockets.iter().filter_map(|it| it["lane"].as_u64()).collect()
}

#[test]
fn programs_are_served_in_their_netstacks_own_lanes_which_move_with_all_connections() {
    let sandbox = Sandbox::new();
    let (first, last) = cpu_ends();
    let stage = Stage::with_own_lanes(&sandbox, LANES, &last);
    let daemon = stage.daemon();
    assert_eq!((prop(daemon, "cpus"), prop(daemon, "cpus-effective")), (last.clone(), last.clone()));
    let at_home = |text: &str| text.replace("10.0.0.2", Stage::FIRELANE);
    let told = format!("import os; print(os.getpid(), flush=True){}", at_home(ECHOES));
    let server = stage.serve(On::Firelane, &["python3", "-c", &told]);
    let probe = format!("import socket; socket.create_connection(('{}', 7)).close()", Stage::FIRELANE);
    stage.wait_for(&server, On::Kernel, &["python3", "-c", &probe]);
    // From the kernel, whose connections come in segments, and from the same netstack, whose are fused.
    let compares = at_home(COMPARES);
    let clients =
        [On::Kernel, On::Firelane].map(|on| stage.serve(on, &["python3", "-c", &compares, "3", "4"]));
    let pid = server.log().lines().next().expect("its number").to_owned();
    for nth in 0..20 {
        let cpu = [&first, &last][nth % 2];
        daemon
            .firelane(&["dladm", "set-linkprop", "-t", "-p", &format!("cpus={cpu}"), "web0"])
            .expect_success();
        assert_eq!(prop(daemon, "cpus-effective"), *cpu);
        let lanes = lanes_of(daemon, &pid);
        assert!(lanes.iter().all(|&lane| lane == LANES as u64), "{lanes:?}");
    }
    for client in clients {
        assert!(client.expect_success().starts_with("rounds"));
    }
    // More lanes, or none, are another netstack, and this one has sockets.
    let refused = daemon.firelane(&["dladm", "reset-linkprop", "-p", "cpus", "web0"]);
    let said = "cannot reset link property 'cpus' on 'web0': link busy";
    assert!(refused.code() == 1 && refused.stderr.contains(said), "{refused:?}");
    drop(server);
    stage.wait_until_nothing_is_left();
}

/// More lanes than programs can have sockets in.
#[test]
fn programs_are_served_however_many_lanes_there_are() {
    /// Python: answers when a question has long been acknowledged, so that no timer of its connection runs.
    const ANSWERS_LATE: &str = r"
import socket, threading, time
listener = socket.create_server(('10.0.0.2', 7), backlog=128)
def serve(stream):
    while question := stream.recv(8):
        time.sleep(0.5)
        stream.sendall(question)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";
    /// Python: each of many connections gets an answer.
    const ASKS_OFTEN: &str = r"
import socket
streams = [socket.create_connection(('10.0.0.2', 7), 30) for _ in range(64)]
for _ in range(3):
    for stream in streams:
        stream.sendall(b'question')
    for stream in streams:
        assert stream.recv(8) == b'question'
print('answered')
";
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 128);
    let at_home = |text: &str| text.replace("10.0.0.2", Stage::FIRELANE);
    let server = stage.serve(On::Firelane, &["python3", "-c", &at_home(ANSWERS_LATE)]);
    let asks = at_home(ASKS_OFTEN);
    assert_eq!(stage.wait_for(&server, On::Kernel, &["python3", "-c", &asks]), "answered\n");
    assert_eq!(stage.ask(On::Firelane, &["python3", "-c", &asks]), "answered\n");
}

#[test]
fn a_netstack_gets_lanes_of_its_own_by_being_made_anew_and_a_plan_says_so() {
    let sandbox = Sandbox::new();
    let (first, last) = cpu_ends();
    let stage = Stage::new(&sandbox, LANES);
    let daemon = stage.daemon();
    assert!(prop(daemon, "cpus").is_empty() && prop(daemon, "cpus-effective").is_empty());
    daemon.firelane(&["dladm", "set-linkprop", "-p", &format!("cpus={last}"), "web0"]).expect_success();
    assert_eq!(prop(daemon, "cpus-effective"), last);
    sandbox.run(Some("kernel"), "ping", &ASKS).expect_success();
    let file = sandbox.folder().join("wanted.toml");
    let path = file.to_string_lossy().into_owned();
    let dumped = daemon.firelane(&["dump"]).expect_success();
    assert!(dumped.contains(&format!("[netstack.web]\ncpus = \"{last}\"\n")), "{dumped}");
    fs::write(&file, dumped.replace(&format!("cpus = \"{last}\""), &format!("cpus = \"{first}\"")))
        .expect("writable");
    let plan = daemon.firelane(&["plan", &path]).expect_success();
    let moves = format!("live      set netstack web cpus {last} -> {first}\n");
    assert_eq!(plan, if first == last { "no changes\n".to_owned() } else { moves });
    daemon.firelane(&["apply", &path]).expect_success();
    assert_eq!(prop(daemon, "cpus-effective"), first);
    fs::write(&file, dumped.replace(&format!("cpus = \"{last}\"\n"), "")).expect("writable");
    let plan = daemon.firelane(&["plan", &path]).expect_success();
    for step in ["delete vnic web0", "delete netstack web", "create netstack web", "add address web0/v4"] {
        assert!(plan.lines().any(|line| line.starts_with(&format!("recreate  {step}"))), "{step}: {plan}");
    }
    daemon.firelane(&["apply", &path]).expect_success();
    assert!(prop(daemon, "cpus-effective").is_empty());
    sandbox.run(Some("kernel"), "ping", &ASKS).expect_success();
    // A CPU that there is not changes nothing.
    let refused = daemon.firelane(&["dladm", "set-linkprop", "-p", "cpus=1023", "web0"]);
    assert!(refused.stderr.contains("non-existent processor ID"), "{refused:?}");
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
}

#[test]
fn what_a_vnic_is_made_with_is_its_netstacks_when_it_has_one_and_the_vnics_again_afterwards() {
    let sandbox = Sandbox::new();
    let (_, last) = cpu_ends();
    let config = sandbox.folder().join("host.toml");
    fs::write(&config, "[etherstub.s0]\n").unwrap();
    let daemon = Daemon::start(&sandbox, &config);
    let refused = daemon.firelane(&["dladm", "create-vnic", "-l", "s0", "-p", "cpus=1023", "web0"]);
    let said = "vnic creation over s0 failed: non-existent processor ID";
    assert!(refused.code() == 1 && refused.stderr.contains(said), "{refused:?}");
    let cpus = format!("cpus={last}");
    let given = |has_lane: bool| {
        let runs = if has_lane { last.as_str() } else { "" };
        assert_eq!((prop(&daemon, "cpus"), prop(&daemon, "cpus-effective")), (last.clone(), runs.to_owned()));
    };
    daemon.firelane(&["dladm", "create-vnic", "-l", "s0", "-p", &cpus, "web0"]).expect_success();
    given(false);
    for words in [["ipadm", "create-ip", "web0"], ["ipadm", "delete-ip", "web0"]] {
        daemon.firelane(&words).expect_success();
        given(words[1] == "create-ip");
    }
    let refused = daemon.firelane(&["dladm", "set-linkprop", "-p", "cpus=1023", "web0"]);
    assert!(refused.code() == 1 && refused.stderr.contains("non-existent processor ID"), "{refused:?}");
    given(false);
    daemon
        .firelane(&["ipadm", "create-addr", "-T", "static", "-a", "10.0.0.1/24", "web0/v4"])
        .expect_success();
    daemon.firelane(&["ipadm", "disable-if", "-t", "web0"]).expect_success();
    given(false);
    daemon.firelane(&["ipadm", "enable-if", "-t", "web0"]).expect_success();
    given(true);
}
