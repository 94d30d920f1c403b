//! The preloaded library, second part: what is shared between processes, errors of ICMP, signals, echoes. Each script prints
//! the same on the netstack as in the kernel.

use std::path::Path;
use std::time::{Duration, Instant};

use firelane_interop::{
    On, Sandbox, Server, Stage, as_the_kernels, as_the_kernels_with, script, search_path, skipped,
};

mod conversations;

use conversations::converse;

#[test]
fn a_connection_that_another_process_has_ended_is_no_other_one() {
    as_the_kernels_with(&["on", "off"], "dissolved_elsewhere.py", 7);
}

#[test]
fn parents_and_children_share_what_is_theirs_and_nothing_else() {
    as_the_kernels("forked.py", 20);
}

#[test]
fn a_child_that_dies_in_a_call_leaves_its_parent_the_socket() {
    as_the_kernels("buried.py", 5);
}

#[test]
fn who_sleeps_on_a_connection_hears_that_it_is_ended_and_disturbs_no_other() {
    as_the_kernels("dissolved.py", 10);
}

/// One of the program's few first connections is asked for, all others are begun by words of blocks that it is offered.
#[test]
fn connections_that_a_program_begins_by_itself_are_as_those_that_it_asks_for() {
    as_the_kernels("begun.py", 60);
}

#[test]
fn sockets_that_were_closed_make_the_next_ones() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| {
            let told = stage.ask(on, &["/usr/bin/python3", &script("kept.py"), host]);
            let (passed, distinct) =
                told.split_once("distinct ").expect("it says how many descriptors it saw");
            let distinct: u32 = distinct.split_whitespace().next().unwrap().parse().unwrap();
            (passed.to_owned(), distinct)
        };
        let (kernels, all) = ask(On::Kernel, Stage::KERNEL);
        let (ours, some) = ask(On::Firelane, Stage::FIRELANE);
        assert_eq!(ours, kernels, "{lanes} lanes");
        assert!(all == 200 && some < 80, "{some} of {all}");
        stage.wait_until_nothing_is_left();
    }
}

/// Marks are root's to set, and so is the choice of another user.
#[test]
fn marks_and_addresses_that_are_nobodys_are_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    as_the_kernels("freely.py", 25);
}

#[test]
fn who_listens_where_the_netstack_is_not_yet_is_found_when_it_is() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let server = "import socket
one = socket.socket()
one.setsockopt(socket.IPPROTO_IP, 15, 1)
one.bind(('10.0.0.77', 7077))
one.listen()
print('ready', flush=True)
one.accept()[0].sendall(b'at last')";
    let server = stage.serve(On::Firelane, &["/usr/bin/python3", "-c", server]);
    wait_for_log(&server, "ready");
    let words = ["ipadm", "create-addr", "-t", "-T", "static", "-a", "10.0.0.77/24", "web0/later"];
    stage.daemon().firelane(&words).expect_success();
    let client = "import socket; print(socket.create_connection(('10.0.0.77', 7077)).recv(9))";
    assert_eq!(stage.wait_for(&server, On::Kernel, &["/usr/bin/python3", "-c", client]), "b'at last'\n");
    server.expect_success();
    stage.wait_until_nothing_is_left();
}

/// The send buffer grows many times on the way to a client that is 20 ms away, and what the program wants to be unsent at most is sent
/// again and again: each time it is to write on.
#[test]
fn who_waits_for_edges_hears_of_all_room_that_there_is() {
    for (lanes, unsent) in [(1, "0"), (2, "0"), (1, "16384"), (2, "131072")] {
        let sandbox = Sandbox::new();
        let stage = Stage::across_a_wire(&sandbox, lanes, "{ delay = \"10ms\" }");
        let words = ["ipadm", "set-prop", "-t", "-N", "web", "-p", "send_buf=16384", "tcp"];
        stage.daemon().firelane(&words).expect_success();
        let script = script("edges.py");
        let words = ["/usr/bin/python3", &script, "serve", Stage::FIRELANE, unsent];
        let server = stage.serve(On::Firelane, &words);
        wait_for_log(&server, "ready");
        for _ in 0..3 {
            let words = ["/usr/bin/python3", &script, "fetch", Stage::FIRELANE];
            assert_eq!(stage.ask(On::Kernel, &words), "whole\n", "{unsent}: {}", server.log());
        }
        assert!(!server.log().contains("no edge"), "{}", server.log());
        drop(server);
        stage.wait_until_nothing_is_left();
    }
}

fn wait_for_log(server: &Server, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !server.log().contains(text) {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Each side asks the other to call back, and to send back what it gets.
#[test]
fn sockets_speak_over_one_device_as_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let script = script("bound.py");
        let ask = |on, host, other, peer| {
            let server = stage.serve(other, &["/usr/bin/python3", &script, peer, host, "peer"]);
            wait_for_log(&server, "ready");
            let told = stage.ask(on, &["/usr/bin/python3", &script, host, peer]);
            server.expect_success();
            told
        };
        let kernels = ask(On::Kernel, Stage::KERNEL, On::Firelane, Stage::FIRELANE);
        assert!(kernels.lines().count() > 20, "{kernels}");
        let ours = ask(On::Firelane, Stage::FIRELANE, On::Kernel, Stage::KERNEL);
        assert_eq!(ours, kernels, "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

/// What the kernel has counted in the namespace of its programs.
fn counted_by_the_kernel(stage: &Stage<'_>, name: &str) -> u64 {
    let text = stage.ask(On::Kernel, &["/bin/cat", "/proc/net/netstat"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let named = |names: &Vec<&str>, row: &Vec<&str>| {
        names.iter().position(|&it| it == name).and_then(|at| row[at].parse().ok())
    };
    rows.chunks(2).find_map(|pair| named(&pair[0], &pair[1])).expect("the kernel counts it")
}

/// curl brings its request with the SYN, in both directions: the cookie is Linux' or ours, and so is what takes the text.
#[test]
fn curl_opens_fast_by_the_device_that_it_is_told() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    stage.ask(On::Kernel, &["/bin/sh", "-c", "echo 3 > /proc/sys/net/ipv4/tcp_fastopen"]);
    stage
        .daemon()
        .firelane(&["ipadm", "set-prop", "-t", "-N", "web", "-p", "_fastopen=3", "tcp"])
        .expect_success();
    let places = [(On::Firelane, Stage::FIRELANE, "web0"), (On::Kernel, Stage::KERNEL, "kernel0")];
    for ((client, own, device), (server, host, _), counter) in
        [(places[0], places[1], "TCPFastOpenPassive"), (places[1], places[0], "TCPFastOpenActive")]
    {
        let serve = format!(
            "import http.server as http
one = http.HTTPServer(('{host}', 8080), http.SimpleHTTPRequestHandler, bind_and_activate=False)
one.socket.setsockopt(6, 23, 5)
one.server_bind()
one.server_activate()
print('ready', flush=True)
one.serve_forever()"
        );
        let serving = stage.serve(server, &["/usr/bin/python3", "-c", &serve]);
        wait_for_log(&serving, "ready");
        let url = format!("http://{host}:8080/");
        let words = ["/usr/bin/curl", "-sS", "-m", "20", "-o", "/dev/null", "-w", "%{http_code} %{local_ip}"];
        let more = ["--tcp-fastopen", "--interface", device, &url];
        let words: Vec<&str> = words.into_iter().chain(more).collect();
        for fast in 0..3 {
            assert_eq!(stage.ask(client, &words), format!("200 {own}"));
            assert_eq!(counted_by_the_kernel(&stage, counter), fast, "{client:?}: all but the first");
        }
    }
    stage.wait_until_nothing_is_left();
}

/// What may be opened fast is the netstack's to say, as it is the namespace's in the kernel.
#[test]
fn text_goes_with_the_syn_of_a_connect_as_in_the_kernel() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let set = |property: &str| {
            let words = ["ipadm", "set-prop", "-t", "-N", "web", "-p", property, "tcp"];
            stage.daemon().firelane(&words).expect_success();
        };
        for (policy, more) in [("3", None), ("2", Some("off"))] {
            let write = format!("echo {policy} > /proc/sys/net/ipv4/tcp_fastopen");
            stage.ask(On::Kernel, &["/bin/sh", "-c", &write]);
            set(&format!("_fastopen={policy}"));
            let ask = |on, host| {
                let script = script("fast.py");
                let words: Vec<&str> = ["/usr/bin/python3", &script, host].into_iter().chain(more).collect();
                stage.ask(on, &words)
            };
            let kernels = ask(On::Kernel, Stage::KERNEL);
            assert!(kernels.lines().count() >= if more.is_some() { 3 } else { 50 }, "{kernels}");
            for fusion in ["on", "off"] {
                set(&format!("_fusion={fusion}"));
                assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "{lanes} lanes, fusion={fusion}");
            }
        }
        stage.wait_until_nothing_is_left();
    }
}

/// The same where a program in the kernel's namespace makes the routers' errors.
fn as_the_kernels_with_routers(name: &str, least: usize) {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| {
            let routers = ["/usr/bin/python3", &script("icmp.py"), Stage::KERNEL, "7100"];
            let routers = stage.serve(On::Kernel, &routers);
            let deadline = Instant::now() + Duration::from_secs(20);
            while !routers.log().contains("ready") {
                assert!(Instant::now() < deadline, "{}", routers.log());
                std::thread::sleep(Duration::from_millis(10));
            }
            let told = stage.ask(on, &["/usr/bin/python3", &script(name), host]);
            routers.expect_success();
            told
        };
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() > least, "{kernels}");
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn datagrams_that_do_not_arrive_are_told_as_the_kernels() {
    as_the_kernels_with_routers("faults.py", 50);
}

#[test]
fn echoes_are_asked_for_as_in_the_kernel() {
    as_the_kernels_with_routers("echoes.py", 30);
}

#[test]
fn ping_finds_who_is_there() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        // A copy has no rights of its own, with which the loader would leave the library away.
        let ping = stage.folder().join("ping");
        let installed =
            search_path().split(':').map(|folder| Path::new(folder).join("ping")).find(|it| it.exists());
        std::fs::copy(installed.expect("ping is installed"), &ping).unwrap();
        let ping = ping.to_string_lossy();
        for far in [Stage::KERNEL, Stage::FIRELANE] {
            let told = stage.ask(On::Firelane, &[&ping, "-n", "-c", "3", "-i", "0.2", far]);
            assert!(told.contains("3 packets transmitted, 3 received, 0% packet loss"), "{told}");
        }
        let silent = stage.run(On::Firelane, &[&ping, "-n", "-c", "1", "-W", "9", "10.0.0.77"]);
        assert!(!silent.status.success());
        assert!(silent.stdout.contains("Destination Host Unreachable"), "{silent:?}");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn priorities_and_paces_are_the_kernels() {
    as_the_kernels("priority.py", 30);
}

/// What arrives while nobody waits for a listener waits in memory, and else comes by its descriptor: nobody is to see a difference.
#[test]
fn connections_are_accepted_as_the_kernels_however_one_waits_for_them() {
    as_the_kernels("accepting.py", 80);
}

/// Fused and by segments.
#[test]
fn what_is_known_of_a_socket_is_told_before_and_after_its_connection_too() {
    as_the_kernels("known.py", 15);
}

#[test]
fn groups_on_the_loopback_device_are_the_kernels() {
    as_the_kernels("groups_on_lo.py", 15);
}

#[test]
fn datagrams_that_are_longer_than_a_buffer_are_sent_and_heard_as_in_the_kernel() {
    as_the_kernels("whole.py", 15);
}

#[test]
fn all_stations_groups_and_everybody_as_a_peer_are_the_kernels() {
    as_the_kernels("everybodys.py", 15);
}

#[test]
fn addresses_without_a_family_are_those_of_ipv4_where_linux_takes_them_for_such() {
    as_the_kernels("familyless.py", 20);
}

/// A netstack without an address leads to no group but by its loopback device, and so does a namespace that has nothing else.
#[test]
fn groups_that_no_way_leads_to_are_not_joined_as_in_the_kernel() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    stage.daemon().firelane(&["ipadm", "delete-addr", "web0/v4"]).expect_success();
    let words = ["/usr/bin/python3", &script("groups_on_lo.py"), "127.0.0.1", "nowhere"];
    let kernels = sandbox.run(None, words[0], &words[1..]).expect_success();
    assert!(kernels.lines().count() > 20, "{kernels}");
    assert_eq!(stage.ask(On::Firelane, &words), kernels);
    stage.wait_until_nothing_is_left();
}

#[test]
fn connections_that_have_ended_are_told_of_as_the_kernels() {
    as_the_kernels("ended.py", 40);
}

/// Which congestion control a connection has is its program's to say, else its route's, else the netstack's; hops are the program's
/// or the netstack's.
#[test]
fn what_decides_where_a_program_says_nothing_is_told() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let config = std::fs::read_to_string(stage.folder().join("host.toml")).unwrap();
    let path = stage.folder().join("changed.toml");
    let more = "[netstack.web]\ntunables = { tcp = { congestion_control = \"newreno\" }, \
        ipv4 = { ttl = 77 }, ipv6 = { hoplimit = 33 } }\n\
        routes = [{ destination = \"10.9.0.0/16\", gateway = \"10.0.0.1\", congestion_control = \"bbr\" }]\n";
    std::fs::write(&path, format!("{config}\n{more}")).unwrap();
    stage.daemon().firelane(&["apply", &path.to_string_lossy()]).expect_success();
    let told = "import socket
def control(one):
    return one.getsockopt(6, 13, 16).rstrip(bytes(1)).decode()
def begun(host, own=None):
    one = socket.socket()
    one.setblocking(False)
    if own:
        one.setsockopt(6, 13, own)
    one.connect_ex((host, 9))
    return control(one)
door = socket.socket()
door.bind(('10.0.0.10', 0))
door.listen()
caller = socket.create_connection(door.getsockname())
print(control(socket.socket()), control(door), control(caller), control(door.accept()[0]))
print(begun('10.0.0.77'), begun('10.9.0.1'), begun('10.9.0.1', b'dctcp'))
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    one = socket.socket(socket.AF_INET6, kind)
    one.setsockopt(0, 2, 9)
    print(socket.socket(type=kind).getsockopt(0, 2), one.getsockopt(0, 2), one.getsockopt(41, 16))";
    let told = stage.ask(On::Firelane, &["/usr/bin/python3", "-c", told]);
    assert_eq!(told, "reno reno reno reno\nreno bbr dctcp\n77 9 33\n77 9 33\n");
}

#[test]
fn buffers_hold_as_much_as_was_said_last() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("buffers.py"), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.lines().count() == 7 && !kernels.contains("False"), "{kernels}");
    for fusion in ["on", "off"] {
        stage.set_fusion(fusion);
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "fusion={fusion}");
    }
    stage.wait_until_nothing_is_left();
}

/// As PHP loads its extensions. The library itself says of a socket of the program which family it has.
#[test]
fn a_library_that_is_bound_deeply_is_on_the_netstack() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let library = sandbox.compiled("deep.so", include_str!("shim/deep.c"), &["-shared", "-fPIC"]);
    let program = sandbox.compiled("deep", include_str!("shim/deep.c"), &["-DPROGRAM"]);
    let ask = |on, host| stage.ask(on, &[&program.to_string_lossy(), &library.to_string_lossy(), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert_eq!(kernels, "2 1 deep.so\n");
    assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
}

#[test]
fn a_signal_ends_a_call_however_long_that_has_waited() {
    as_the_kernels("interrupted.py", 6);
}

/// Fused and by segments.
#[test]
fn a_handler_that_runs_before_a_call_sleeps_ends_it_as_in_the_kernel() {
    let sandbox = Sandbox::new();
    let program = sandbox.compiled("handled", include_str!("shim/handled.c"), &["-w", "-pthread"]);
    for (lanes, fusion) in [(1, "on"), (2, "off")] {
        let stage = Stage::new(&sandbox, lanes);
        stage.set_fusion(fusion);
        let ask = |on, host| stage.ask(on, &[&program.to_string_lossy(), host]);
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() > 700 && !kernels.contains("lost"), "{kernels}");
        assert_same_lines(&ask(On::Firelane, Stage::FIRELANE), &kernels, fusion);
        stage.wait_until_nothing_is_left();
    }
}

/// The lines that differ, of many.
#[track_caller]
fn assert_same_lines(ours: &str, kernels: &str, when: &str) {
    let differ: Vec<_> =
        ours.lines().zip(kernels.lines()).filter(|(ours, kernels)| ours != kernels).collect();
    assert!(differ.is_empty() && ours.len() == kernels.len(), "{when}: {differ:#?}");
}

#[test]
fn who_has_no_descriptor_left_loses_no_connection() {
    as_the_kernels("full.py", 2);
}

/// Threads sleep at a set while another adds to it or changes what is wanted.
#[test]
fn who_sleeps_at_a_set_hears_of_what_is_added() {
    as_the_kernels("armed.py", 10);
}

#[test]
fn sockets_that_are_in_a_set_before_they_connect_or_listen_stay_there() {
    as_the_kernels("beforehand.py", 1);
}

#[test]
fn who_waits_for_more_than_is_there_hears_when_it_is_enough() {
    for fusion in ["on", "off"] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, 1);
        stage.set_fusion(fusion);
        converse(&stage, "enough.py", &[], 35);
    }
}

#[test]
fn what_a_program_sends_to_itself_is_there_at_once() {
    as_the_kernels("at_once.py", 5);
}

/// Redis serves those who wait for a stream in that order.
#[test]
fn sockets_of_an_epoll_set_are_told_as_they_became_ready() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("in_order.py"), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    for fusion in ["on", "off"] {
        stage.set_fusion(fusion);
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "fusion {fusion}");
    }
    stage.wait_until_nothing_is_left();
}

/// By sockets with a peer or with IP_RECVERR, while other programs compute.
#[test]
fn who_sends_to_nobody_on_this_host_is_told_at_once() {
    as_the_kernels("refused_at_once.py", 33);
}

#[test]
fn sockets_are_used_again_as_the_kernels() {
    as_the_kernels("again.py", 18);
}

#[test]
fn what_is_seldom_asked_is_answered_as_by_the_kernel() {
    as_the_kernels("odd.py", 14);
}

#[test]
fn an_attempt_to_connect_is_given_up_as_the_kernel_does() {
    as_the_kernels("given_up.py", 45);
}

/// Fused and by segments.
#[test]
fn who_sleeps_on_a_socket_holds_it() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("holding.py"), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.lines().count() > 15 && !kernels.contains("sleeps on"), "{kernels}");
    for fusion in ["on", "off"] {
        stage.set_fusion(fusion);
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "fusion={fusion}");
    }
    stage.wait_until_nothing_is_left();
}

#[test]
fn who_talks_with_himself_is_told_so() {
    as_the_kernels("alone.py", 18);
}

/// As OpenJDK does it.
#[test]
fn who_reads_what_another_thread_closes_is_interrupted() {
    as_the_kernels("replaced.py", 2);
}

/// As varnishtest ends its servers' threads.
#[test]
fn threads_are_cancelled_where_they_wait() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let program = sandbox.compiled("cancelled", include_str!("shim/cancelled.c"), &["-pthread"]);
    let ask = |on, host| stage.ask(on, &[&program.to_string_lossy(), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.lines().count() > 20 && !kernels.contains("NOT"), "{kernels}");
    assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
    stage.wait_until_nothing_is_left();
}

/// As programs do that start others in one thread, and wait for sockets in another.
#[test]
fn children_that_nobody_asks_about_interrupt_nobody() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let text = include_str!("shim/ended_children.c");
    let program = sandbox.compiled("ended_children", text, &["-w", "-pthread"]);
    let ask = |on, host| stage.ask(on, &[&program.to_string_lossy(), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.lines().count() == 7 && !kernels.contains("EINTR"), "{kernels}");
    assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
    stage.wait_until_nothing_is_left();
}

/// As Cassandra and chrony do.
#[test]
fn who_locks_his_memory_locks_his_own() {
    as_the_kernels("locked.py", 12);
}

/// In a root of their own there is no daemon to be found, and who is somebody else may not come to it.
#[test]
fn programs_that_lock_themselves_in_or_become_others_before_their_first_socket_have_sockets() {
    as_the_kernels("locked_in.py", 13);
}

#[test]
fn a_child_that_borrows_memory_becomes_another_for_itself_alone() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let program = sandbox.compiled("becoming", include_str!("shim/becoming.c"), &["-pthread"]);
    let ask = |on, host| stage.ask(on, &[&program.to_string_lossy(), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.contains("somebody else: 0\nthread: 0, user 65534"), "{kernels}");
    assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
    stage.wait_until_nothing_is_left();
}

#[test]
fn who_makes_a_raw_socket_is_told_whose_it_is() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("raw.py"), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    let said = "firelane: raw and packet sockets, and those of other protocols than TCP and UDP, are the kernel's: what this program sends by them does not come from its netstack";
    assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels.replace("quiet", &format!("quiet {said}")));
}

/// AI_ADDRCONFIG, which libc asks of the kernel's addresses: those of the namespace in which the program was started are none.
#[test]
fn names_have_addresses_of_the_families_that_the_netstack_has() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("families.py"), host]);
    let of_kernel = |command: &str| _ = stage.ask(On::Kernel, &["/bin/sh", "-c", command]);
    let mut before = String::new();
    for step in 0..2 {
        if step == 0 {
            of_kernel("echo 1 > /proc/sys/net/ipv6/conf/kernel0/disable_ipv6");
        } else {
            of_kernel("echo 0 > /proc/sys/net/ipv6/conf/kernel0/disable_ipv6");
            of_kernel("ip address add 2001:db8::1/64 dev kernel0 nodad");
            stage
                .daemon()
                .firelane(&["ipadm", "create-addr", "-T", "static", "-a", "2001:db8::10/64", "web0/v6"])
                .expect_success();
        }
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() == 60 && kernels != before, "{kernels}");
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
        before = kernels;
    }
    stage.wait_until_nothing_is_left();
}

/// vsftpd and dovecot limit their own; where a whole arena has no room there is a smaller one, or the begin of another's.
#[test]
fn programs_that_limit_their_address_space_have_sockets() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("narrow.py"), host, ""]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.lines().count() == 33 && !kernels.contains("False"), "{kernels}");
    assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
    stage.wait_until_nothing_is_left();
}

/// What lies where such a program cannot reach it is told to be missing; what comes later is whole.
#[test]
fn a_program_without_room_for_what_a_connection_shares_loses_no_text_in_silence() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("unreachable.py"), host, "giver"]);
    let told = |later: [&str; 4]| {
        let [events, reads, writes, client] = later;
        let first = "it can write OUT\nit reads IN b'text'\nit writes 6\nit reads b''\nclient b'answer'\n";
        format!(
            "-- first\n{first}-- later\nevents {events}\nit reads {reads}\nit writes {writes}\nclient {client}\n"
        )
    };
    let kernels = ["IN", "[b'text', 'EAGAIN']", "6", "b'answer'"];
    assert_eq!(ask(On::Kernel, Stage::KERNEL), told(kernels));
    let ours = ["IN ERR HUP", "['ECONNABORTED', b'']", "EPIPE", "ECONNRESET"];
    for _ in 0..5 {
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), told(ours));
    }
    stage.wait_until_nothing_is_left();
}

/// Fused and by segments: which error it is, whose call tells it, and how often.
#[test]
fn ends_and_resets_are_told_as_the_kernels() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("resets.py"), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.lines().count() > 35, "{kernels}");
    for fusion in ["on", "off"] {
        stage.set_fusion(fusion);
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "fusion={fusion}");
    }
    stage.wait_until_nothing_is_left();
}

/// Standard input and output that are a connection, and what else libc reads and writes for a program, with functions and with
/// macros that check the format.
#[test]
fn the_streams_of_c_go_over_sockets() {
    for flags in [&["-O0"] as &[&str], &["-O2", "-D_FORTIFY_SOURCE=2"]] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, 2);
        let program = sandbox.compiled("streams", include_str!("shim/streams.c"), flags);
        let ask = |on, host| stage.ask(on, &[&program.to_string_lossy(), host]);
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.contains("== dprintf: 40139"), "{kernels}");
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
        stage.wait_until_nothing_is_left();
    }
}

/// What a shell's builtin commands print.
#[test]
fn a_shell_speaks_over_a_connection() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let echo = "import socketserver
class One(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile: self.wfile.write(b'heard ' + line)
server = socketserver.TCPServer(('0.0.0.0', 7078), One)
print('ready', flush=True)
server.serve_forever()";
    let server = stage.serve(On::Kernel, &["/usr/bin/python3", "-u", "-c", echo]);
    wait_for_log(&server, "ready");
    let text = format!(
        "exec 3<>/dev/tcp/{}/7078; echo one >&3; printf '%s\n' two >&3; read a <&3; read b <&3; echo \"$a, $b\"",
        Stage::KERNEL
    );
    assert_eq!(stage.ask(On::Firelane, &["/bin/bash", "-c", &text]), "heard one, heard two\n");
    stage.wait_until_nothing_is_left();
}

/// What a server starts is on its netstack though it cleans its environment; what is to leave it does.
#[test]
fn a_cleaned_environment_keeps_the_netstack_and_a_chosen_one_is_kept() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let told = stage.ask(On::Firelane, &["/usr/bin/python3", &script("cleaned.py"), Stage::FIRELANE]);
    let ways = ["execve", "fexecve", "posix_spawn", "subprocess", "env"];
    let wanted: String = ways.iter().map(|way| format!("{way} 0 0 0 1 [0, 0, 0, 1]\n")).collect();
    assert_eq!(told, wanted + "0 execv [0]\n");
    stage.wait_until_nothing_is_left();
}

/// Whose they are to set, and which number each socket has, as well.
#[test]
fn options_that_change_nothing_are_answered_as_by_the_kernel() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    as_the_kernels("said.py", 150);
}

/// Nothing of what took too many hops is heard; it is counted by a name.
#[test]
fn hops_that_must_be_left_are_looked_at_as_in_the_kernel() {
    as_the_kernels("hops.py", 20);
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let server = "import socket
passive = socket.create_server(('0.0.0.0', 7079))
passive.setsockopt(socket.IPPROTO_IP, 21, 255)
print('ready', flush=True)
active = passive.accept()[0]
print(active.recv(4), active.recv(3), flush=True)";
    let server = stage.serve(On::Firelane, &["/usr/bin/python3", "-c", server]);
    wait_for_log(&server, "ready");
    let client = |hops: &str| {
        let client = format!(
            "import socket, time
one = socket.socket()
one.settimeout(1)
one.setsockopt(socket.IPPROTO_IP, 2, {hops})
print(one.connect_ex(('{}', 7079)))
if {hops} == 255:
    one.sendall(b'near')
    one.setsockopt(socket.IPPROTO_IP, 2, 64)
    one.sendall(b'far')
    time.sleep(0.1)
    one.setsockopt(socket.IPPROTO_IP, 2, 255)
    time.sleep(1)",
            Stage::FIRELANE
        );
        stage.ask(On::Kernel, &["/usr/bin/python3", "-c", &client])
    };
    assert_eq!(client("64"), "11\n");
    let refused = || {
        let shown = stage.daemon().firelane(&["netstat", "-s", "-P", "tcp"]).expect_success();
        let words: Vec<&str> =
            shown.split(|it: char| it == '=' || it.is_whitespace()).filter(|it| !it.is_empty()).collect();
        let at = words.iter().position(|&it| it == "tcpInFewHops").expect("it is counted");
        words[at + 1].parse::<u64>().unwrap()
    };
    let syns = refused();
    assert!(syns > 0);
    // Of a connection, too: what has come from too far is sent again from nearer.
    assert_eq!(client("255"), "0\n");
    wait_for_log(&server, "b'near' b'far'");
    assert!(refused() > syns);
    server.expect_success();
    stage.wait_until_nothing_is_left();
}

/// The kernel keeps the SYN for its program.
#[test]
fn what_a_program_wants_of_its_packets_holds_from_the_syn_on() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let server = "import socket
passive = socket.create_server(('0.0.0.0', 7079))
passive.setsockopt(6, 27, 1)
print('ready', flush=True)
syn = passive.accept()[0].getsockopt(6, 28, 200)
print(f'TOS {syn[1]} TTL {syn[8]}', flush=True)";
    let server = stage.serve(On::Kernel, &["/usr/bin/python3", "-c", server]);
    wait_for_log(&server, "ready");
    let client = format!(
        "import socket
one = socket.socket()
one.setsockopt(0, 1, 0x10)
one.setsockopt(0, 2, 77)
one.connect(('{}', 7079))",
        Stage::KERNEL
    );
    stage.ask(On::Firelane, &["/usr/bin/python3", "-c", &client]);
    wait_for_log(&server, "TOS 16 TTL 77");
    server.expect_success();
    stage.wait_until_nothing_is_left();
}
