//! The preloaded library, third part: what programs do rarely, with options, times and lists at their ends. Each script prints the
//! same on the netstack as in the kernel.

use std::path::Path;
use std::time::{Duration, Instant};

use firelane_interop::{On, Sandbox, Stage, as_the_kernels, script, skipped};

#[test]
fn a_message_that_was_sent_in_part_is_the_last_of_its_call() {
    as_the_kernels("halves.py", 1);
}

#[test]
fn a_select_that_a_signal_ends_leaves_the_time_that_was_not_waited() {
    as_the_kernels("left_time.py", 3);
}

#[test]
fn a_list_as_long_as_there_may_be_descriptors_is_polled() {
    as_the_kernels("long_list.py", 2);
}

#[test]
fn more_threads_and_sets_wait_than_there_are_slots() {
    as_the_kernels("many_waiters.py", 4);
}

#[test]
fn who_sets_a_negative_time_does_not_wait() {
    as_the_kernels("negative_times.py", 11);
}

#[test]
fn a_signal_that_was_chosen_for_a_socket_is_not_the_next_ones() {
    as_the_kernels("own_signal.py", 7);
}

#[test]
fn what_a_child_does_to_an_inherited_set_leaves_its_parents_alone() {
    as_the_kernels("inherited_set.py", 12);
}

#[test]
fn what_goes_to_many_takes_the_kernels_way() {
    as_the_kernels("to_many.py", 28);
}

/// What a filter of system calls must allow, as docs/calls.md has it: `KIND=CALL,CALL`.
fn allowed() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/calls.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, table) = page.split_once("| what a confined process does |").expect("it has the table");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let calls: Vec<&str> = cells[1].split('`').skip(1).step_by(2).collect();
        format!("{}={}", cells[0], calls.join(","))
    })
    .collect()
}

/// As chrony and tor do: a filter knows the calls that a program makes, and no others.
#[test]
fn who_allows_himself_what_is_documented_goes_on() {
    let allowed = allowed();
    assert!(allowed.len() > 10 && allowed.contains(&"`close`=".to_owned()), "{allowed:?}");
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let program = sandbox.compiled("allowed", include_str!("shim/allowed.c"), &["-w", "-pthread"]);
        let program = program.to_string_lossy();
        let ask = |on, host| {
            let words: Vec<&str> =
                [&*program, host].into_iter().chain(allowed.iter().map(String::as_str)).collect();
            let told = stage.ask(on, &words);
            let wrong: Vec<&str> = told.lines().filter(|line| !line.ends_with(": 0")).collect();
            assert!(wrong.is_empty() && told.lines().count() > 100, "{lanes} lanes, {host}: {wrong:#?}");
        };
        ask(On::Kernel, Stage::KERNEL);
        ask(On::Firelane, Stage::FIRELANE);
        stage.wait_until_nothing_is_left();
    }
}

/// As sshd's child does that speaks with strangers.
#[test]
fn who_allows_himself_one_descriptor_waits_for_his_connection() {
    for (lanes, fusion) in [(1, "on"), (2, "off")] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        stage.set_fusion(fusion);
        let program = sandbox.compiled("one_descriptor", include_str!("shim/one_descriptor.c"), &["-w"]);
        let ask = |on, host| stage.ask(on, &[&*program.to_string_lossy(), host]);
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() == 6 && !kernels.contains("ended"), "{kernels}");
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "{lanes} lanes, fusion={fusion}");
        stage.wait_until_nothing_is_left();
    }
}

/// Whom a program in a PID namespace of its own asks has no number there.
#[test]
fn a_program_in_a_pid_namespace_of_its_own_is_on_the_netstack() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can make PID namespaces");
        return;
    }
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    // A descriptor from outside that no netstack has is left alone, and nothing is said of it.
    let program = "import os, socket, sys
one = socket.create_server((sys.argv[1], 0))
two = socket.create_connection(one.getsockname())
three = one.accept()[0]
three.sendall(b'text')
print(os.getpid(), two.recv(9), two.getpeername()[0])
near, far = (socket.socket(fileno=int(it)) for it in sys.argv[2:])
near.sendall(b'near')
print(far.recv(9))";
    let outside = "import os, socket, sys
pair = [it.detach() for it in socket.socketpair()]
[os.set_inheritable(it, True) for it in pair]
command = ['unshare', '--pid', '--fork', '--kill-child', sys.executable, '-c', sys.argv[2], sys.argv[1]]
os.execvp(command[0], command + [str(it) for it in pair])";
    let words = ["/usr/bin/python3", "-c", outside, Stage::FIRELANE, program];
    let told = stage.run(On::Firelane, &words);
    assert_eq!(told.stderr, "");
    let wanted = format!("1 b'text' {}\nb'near'\n", Stage::FIRELANE);
    assert_eq!(told.expect_success(), wanted);
    stage.wait_until_nothing_is_left();
}

#[test]
fn sockets_of_mptcp_are_of_tcp_and_those_of_the_kernel_are_told() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let told = stage.ask(On::Firelane, &["/usr/bin/python3", &script("protocols.py"), Stage::FIRELANE]);
    let text = "b'text' 0\n".repeat(3);
    assert_eq!(told, format!("{text}said: \ntold of them: True\n"));
    stage.wait_until_nothing_is_left();
}

#[test]
fn who_answers_to_a_group_or_everybody_as_he_was_told_is_heard() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can bind the kernel's sockets to a device");
        return;
    }
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let (script, subnet) = (script("spec_dst.py"), "10.0.0.255");
    for (server, host, client, own, device) in [
        (On::Kernel, Stage::KERNEL, On::Firelane, Stage::FIRELANE, "web0"),
        (On::Firelane, Stage::FIRELANE, On::Kernel, Stage::KERNEL, "kernel0"),
    ] {
        let serving = stage.serve(server, &["/usr/bin/python3", &script, "serve", host]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !serving.log().contains("ready") {
            assert!(Instant::now() < deadline, "{}", serving.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        let told = stage.run(client, &["/usr/bin/python3", &script, "ask", own, host, subnet, device]);
        assert!(told.status.success(), "{told:?} {}", serving.log());
        let answers = ["239.1.2.3", "255.255.255.255", subnet, host];
        let wanted = answers.map(|to| format!("{to} (b'answer', ('{host}', 7177))\n")).concat();
        assert_eq!(told.stdout, wanted, "{}", serving.log());
        let heard = answers.map(|to| format!("to {to} True {host}\n"));
        let log = serving.expect_success();
        assert!(heard.iter().all(|line| log.contains(line)), "{log}");
    }
    stage.wait_until_nothing_is_left();
}

/// The memory that two fused programs share has room in who is handed the connection, and has reserved more for himself than he uses.
#[test]
fn who_is_handed_a_connection_and_has_little_address_space_reads_all_of_it() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let wanted = "read 1000\nb\"answered b'thanks'\\n\"\n";
    for on in [On::Kernel, On::Firelane] {
        assert_eq!(stage.ask(on, &["/usr/bin/python3", &script("narrowed.py")]), wanted);
    }
    stage.wait_until_nothing_is_left();
}

/// lighttpd asks so whether its client has ended or was reset.
#[test]
fn the_state_of_a_connection_follows_what_its_programs_have_been_told() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    for on in [On::Kernel, On::Firelane] {
        let told = stage.ask(on, &["/usr/bin/python3", &script("half.py")]);
        assert_eq!(told, "behind one's own end True\nbehind the peer's True\n", "{on:?}");
    }
    stage.wait_until_nothing_is_left();
}

/// A session begins with all of its descriptors, or not yet.
#[test]
fn who_is_short_of_descriptors_at_first_is_served_later() {
    as_the_kernels("short.py", 7);
}

#[test]
fn nobody_is_told_that_a_tunnel_broadcasts() {
    let sandbox = Sandbox::new();
    let stage = Stage::with_tunnels(&sandbox, 1);
    let told = stage.ask(On::Firelane, &["/usr/bin/python3", &script("reach.py")]);
    let expected = [
        "web0 broadcast, multicast 0x1 address",
        "tun0 point to point, no ARP, multicast 0xfffe no address",
        "tun1 no ARP 0xfffe no address",
        "web0 10.0.0.10 10.0.0.255",
        "tun0 172.16.0.1 0.0.0.0",
        "tun0 point to point, no ARP, multicast of 0 bytes",
        "tun1 no ARP of 0 bytes",
        "web0 broadcast, multicast of 6 bytes",
        "tun0 point to point, no ARP, multicast 172.16.0.1",
        "web0 broadcast, multicast 10.0.0.255",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn names_and_lists_that_cannot_be_are_answered_as_by_the_kernel() {
    as_the_kernels("misplaced.py", 500);
}

#[test]
fn a_handler_that_runs_while_many_messages_are_waited_for_ends_what_it_ends_in_the_kernel() {
    as_the_kernels("between.py", 20);
}

#[test]
fn memory_that_is_not_there_is_told_as_by_the_kernel() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("nowhere.py"), host]);
    let kernels = ask(On::Kernel, Stage::KERNEL);
    assert!(kernels.lines().count() == 54 && kernels.matches("Bad address").count() > 45, "{kernels}");
    assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
    stage.wait_until_nothing_is_left();
}

#[test]
fn an_address_of_one_link_is_that_of_the_interface_beside_it() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::with_two_links(&sandbox, lanes);
        let links = script("links.py");
        let _servers =
            ["alice", "bob"].map(|name| stage.serve_in(name, &["/usr/bin/python3", &links, "serve", name]));
        let ask = |on, words: [&str; 3]| stage.ask(on, &[&["/usr/bin/python3", &links], &words[..]].concat());
        let kernels = ask(On::Kernel, ["kernel0", "kernel1", "fe80::20"]);
        assert!(kernels.lines().count() > 150, "{kernels}");
        assert_eq!(ask(On::Firelane, ["web0", "web1", "fe80::10"]), kernels, "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

/// Also at the address that an interface makes itself, whoever has said nothing of IPv6.
#[test]
fn names_of_one_link_tell_its_interface() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ask = |on, interface| stage.ask(on, &["/usr/bin/python3", &script("scopes.py"), interface]);
    let told = ask(On::Kernel, "kernel0");
    assert!(
        told.starts_with("named [0, True, True]\ngetifaddrs [0]\n") && told.lines().count() == 27,
        "{told}"
    );
    assert!(!told.contains(|it: char| it.is_ascii_digit() && it != '0'), "{told}");
    assert_eq!(ask(On::Firelane, "web0"), told);
    // It is told once where it is shown.
    stage.daemon().firelane(&["ipadm", "create-addr", "-T", "addrconf", "web0/v6"]).expect_success();
    assert_eq!(ask(On::Firelane, "web0"), told);
    stage.wait_until_nothing_is_left();
}

/// Its calls keep step with what deals them to lanes, each of which has a part of the ports.
#[test]
fn who_connects_to_two_peers_by_turns_has_all_ports_to_each() {
    const PORTS: usize = 200;
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    for property in ["smallest_anon_port=40000", "largest_anon_port=40199"] {
        let words = ["ipadm", "set-prop", "-t", "-N", "web", "-p", property, "tcp"];
        stage.daemon().firelane(&words).expect_success();
    }
    let words = ["/usr/bin/python3", &script("all_ports.py"), Stage::FIRELANE, &PORTS.to_string()];
    let told = stage.ask(On::Firelane, &words);
    let wanted = format!("{PORTS} ports []\nthen {{'EADDRNOTAVAIL'}} EADDRNOTAVAIL\n").repeat(2)
        + &format!("{PORTS} answers\n").repeat(2);
    assert_eq!(told, wanted);
    stage.wait_until_nothing_is_left();
}

#[test]
fn a_set_takes_sockets_where_descriptors_have_run_out() {
    as_the_kernels("full_set.py", 14);
}

/// A program that has room for a part of it alone reads what comes first.
#[test]
fn what_stands_beside_a_datagram_has_the_kernels_order() {
    as_the_kernels("beside_short.py", 190);
}

/// Address space by the gigabyte is a matter of seconds there, if it is opened when it is mapped; its search for leaks reads all of it.
#[test]
fn a_program_under_valgrind_has_sockets() {
    let sandbox = Sandbox::new();
    let program = sandbox.compiled("checked", include_str!("shim/checked.c"), &["-g"]);
    let program = program.to_string_lossy();
    let stage = Stage::new(&sandbox, 1);
    let kernels = stage.ask(On::Kernel, &[&program, Stage::KERNEL]);
    let words = ["valgrind", "-q", "--leak-check=no", &program, Stage::FIRELANE];
    assert_eq!(stage.ask(On::Firelane, &words), kernels);
    stage.wait_until_nothing_is_left();
}

#[test]
fn what_is_looked_up_by_a_handle_of_libc_is_on_the_netstack() {
    let sandbox = Sandbox::new();
    let text = include_str!("shim/by_handle.c");
    let program = sandbox.compiled("by_handle", text, &["-w"]);
    let other = sandbox.compiled("libc.so.6", text, &["-w", "-shared", "-fPIC", "-DOTHER"]);
    let between = sandbox.compiled("between.so", text, &["-w", "-shared", "-fPIC", "-DBETWEEN"]);
    let [program, other, between] = [&program, &other, &between].map(|it| it.to_string_lossy());
    for lanes in [1, 2] {
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| stage.ask(on, &[&program, host, &other]);
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() > 50 && kernels.contains("GLIBC_9.9 -1"), "{kernels}");
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "{lanes} lanes");
        // Whoever stands between the library and libc is given libc's own: else each would call the other.
        let chain = format!("LD_PRELOAD=${{LD_PRELOAD:+$LD_PRELOAD:}}{between} exec {program} \"$@\"");
        let ask = |on, host| stage.ask(on, &["/bin/sh", "-c", &chain, "sh", host, &other]);
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "{lanes} lanes, with one between");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn who_keeps_a_descriptor_back_has_it_when_all_others_are_used_up() {
    as_the_kernels("reserve.py", 26);
}

/// As curl, Node and the JDK do. The daemon may have no processor for a while.
#[test]
fn what_is_set_before_a_connection_waits_for_nobody_and_holds() {
    let sandbox = Sandbox::new();
    for lanes in [1, 2] {
        let stage = Stage::new(&sandbox, lanes);
        let pid = stage.daemon().pid().to_string();
        let told =
            stage.ask(On::Firelane, &["/usr/bin/python3", &script("posted.py"), Stage::FIRELANE, &pid]);
        let connected = "[1, 1] [0, 0] b'text'\n".repeat(4);
        let wanted = format!(
            "did not wait True\n{:?}\n{connected}{}child [1, 0]\nparent [0, 1]\n[[0, 0], [0, 0]]\n",
            [[1, 1]; 4],
            "[0, 1]\n".repeat(8)
        );
        assert_eq!(told, wanted, "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

/// As servers and most clients do. The daemon is stopped from the first option on until all have begun to connect.
#[test]
fn who_sets_options_and_connects_waits_for_nobody() {
    let sandbox = Sandbox::new();
    for lanes in [1, 2] {
        let stage = Stage::new(&sandbox, lanes);
        let pid = stage.daemon().pid().to_string();
        let told =
            stage.ask(On::Firelane, &["/usr/bin/python3", &script("unasked.py"), Stage::FIRELANE, &pid]);
        let said = "('0.0.0.0', 0), 1, 'EINPROGRESS', 1, 'EINPROGRESS'";
        let connected = "[1, 1, 1, 60000, 40000, 60, 10, 3, 9000, 16] b'text'\n".repeat(4);
        assert_eq!(told, format!("did not wait True\n[{said}, {said}]\n{connected}"), "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn what_waits_for_a_connection_is_there_for_whoever_has_the_socket() {
    as_the_kernels("untold.py", 35);
}

/// Handlers of signals have little more than what the kernel puts there, and those of runtimes start programs that show what has happened.
#[test]
fn who_becomes_another_program_on_a_small_stack_does() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let program = sandbox.compiled("small_stack", include_str!("shim/small_stack.c"), &[]);
    let ask = |on| stage.ask(on, &[&program.to_string_lossy(), "4096", "32768"]);
    let kernels = ask(On::Kernel);
    let options = |way| format!("nodelay 1\n{way}, options 1: 0, signal 0\n");
    let wanted = ["execve", "vfork"].map(|way| format!("{way}, options 0: 0, signal 0\n{}", options(way)));
    assert_eq!(kernels, wanted.concat());
    assert_eq!(ask(On::Firelane), kernels);
    stage.wait_until_nothing_is_left();
}

#[test]
fn who_comes_when_the_memory_is_used_up_is_served() {
    let sandbox = Sandbox::new();
    let stage = Stage::with_memory(&sandbox, 1, 4 << 20);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("used_up.py"), host]);
    let wanted = ["first", "second", "third", "all closed"].map(|turn| format!("{turn} thanks for 600000\n"));
    assert_eq!(ask(On::Kernel, Stage::KERNEL), wanted.concat());
    for fusion in ["on", "off"] {
        stage.set_fusion(fusion);
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), wanted.concat(), "fusion {fusion}");
    }
    stage.wait_until_nothing_is_left();
}

#[test]
fn what_is_said_does_not_come_into_a_file_of_the_programs() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let data = stage.folder().join("data");
    let words = ["/usr/bin/python3", &script("data_at_two.py"), &data.to_string_lossy()];
    let told = stage.ask(On::Firelane, &words);
    assert_eq!(told, "2 b'MAGICEND'\nnothing\nnothing\nb'firelane'\n");
    stage.wait_until_nothing_is_left();
}

/// Of a daemon that was followed by another, as by an upgrade, a server's new workers have the listener of their parent, who has not
/// noticed. What nobody may go round at is told as to the old ones: to root the daemon that is there speaks, and not to `nobody`.
#[test]
fn who_has_a_listener_of_a_daemon_that_was_followed_by_another_does_not_go_round() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let [ready, followed] = ["ready", "followed"].map(|name| stage.folder().join(name));
    let users: &[&str] = if rustix::process::geteuid().is_root() { &["0", "65534"] } else { &["0"] };
    let (ready_word, followed_word) = (ready.to_string_lossy(), followed.to_string_lossy());
    let script = script("next_worker.py");
    let words = ["/usr/bin/python3", &script, Stage::FIRELANE, &ready_word, &followed_word];
    let server = stage.serve(On::Firelane, &[&words, users].concat());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ready.exists() {
        assert!(Instant::now() < deadline, "the program does not come so far: {}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    stage.kill_daemon();
    let _next = Stage::new(&sandbox, 2);
    std::fs::write(&followed, "").expect("the folder is writable");
    let said = server.expect_success();
    let told: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("firelane: this user may not")).collect();
    assert_eq!(told, [&["EINVAL"][..], &vec!["right"; 2 * users.len()]].concat());
}

#[test]
fn who_has_seen_a_daemon_die_makes_new_sockets_with_the_next() {
    let sandbox = Sandbox::new();
    let mut stage = Stage::new(&sandbox, 2);
    let folder = stage.folder();
    let script = script("successor.py");
    let words = ["/usr/bin/python3", &script, Stage::FIRELANE, &folder.to_string_lossy()];
    let server = stage.serve(On::Firelane, &words);
    for round in 0..3 {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !folder.join(format!("ready{round}")).exists() {
            assert!(Instant::now() < deadline, "the program does not come so far: {}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        if round < 2 {
            stage.kill_daemon();
            stage = Stage::new(&sandbox, 2);
            std::fs::write(folder.join(format!("followed{}", round + 1)), "")
                .expect("the folder is writable");
        }
    }
    server.expect_success();
}
