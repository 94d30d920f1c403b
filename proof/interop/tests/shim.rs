//! The preloaded library: what a program sees is what Linux shows it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use firelane_interop::{On, Sandbox, Stage, as_the_kernels_with, binary, cpu_ends, script, skipped};

/// The answers of `firelane-calls`: state and call, and what was told.
fn answers(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| line.rsplit_once(": ").map(|(call, told)| (call.to_owned(), told.to_owned()));
    text.lines().filter_map(line).collect()
}

/// What the kernel answers, on an address of its own.
fn kernels(preload: &str) -> BTreeMap<String, String> {
    let sandbox = Sandbox::new();
    sandbox.run(None, "ip", &["addr", "add", "10.0.0.10/24", "dev", "lo"]).expect_success();
    let calls = binary("firelane-calls");
    let preload = format!("LD_PRELOAD={preload}");
    answers(
        &sandbox.run(None, "env", &[&preload, &calls.to_string_lossy(), Stage::FIRELANE]).expect_success(),
    )
}

/// Where the answers differ from the kernel's, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    // A connection that failed keeps its address until a call has said so.
    ("refused: bind", "0", "errno 22"),
    ("reset: bind", "0", "errno 22"),
    // The daemon notices a moment later that both directions, or the listener, have ended.
    ("listening: shutdown twice", "errno 107", "0"),
    ("peer finished: shutdown twice", "errno 107", "0"),
];

#[test]
fn wrong_calls_are_answered_as_the_kernel_answers_them() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let calls = binary("firelane-calls");
    let told = stage.ask(On::Firelane, &[&calls.to_string_lossy(), Stage::FIRELANE]);
    let (mut ours, kernels) = (answers(&told), kernels(""));
    assert!(ours.len() >= 700, "{}", ours.len());
    for (call, theirs, our_own) in DIFFERENT {
        assert_eq!(kernels.get(*call).map(String::as_str), Some(*theirs), "{call}: the kernel");
        let told = ours.insert((*call).to_owned(), (*theirs).to_owned());
        assert!([*theirs, *our_own].contains(&told.as_deref().unwrap_or("")), "{call}: {told:?}");
    }
    let all = kernels.iter().filter(|(call, told)| ours.get(*call) != Some(*told));
    let wrong: Vec<String> =
        all.map(|(call, told)| format!("{call}: {told}, not {:?}", ours.get(call))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn without_a_netstack_every_call_is_the_kernels() {
    let preload = binary("libfirelane_preload.so");
    assert_eq!(kernels(&preload.to_string_lossy()), kernels(""));
}

/// Runs a script, whose programs leave nothing behind in the daemon.
fn run(name: &str) {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        stage.ask(On::Firelane, &["/usr/bin/python3", &script(name), Stage::FIRELANE]);
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn bytes_go_in_and_out() {
    run("streams.py");
}

#[test]
fn many_are_waited_for() {
    run("waiting.py");
}

#[test]
fn confined_processes_go_on() {
    as_the_kernels("confined.py", 3);
}

#[test]
fn crowds_wait() {
    run("crowded.py");
}

#[test]
fn sockets_are_shared() {
    run("sharing.py");
}

#[test]
fn a_port_is_free_as_soon_as_its_listener_is_closed() {
    run("rebind.py");
}

#[test]
fn who_connects_behind_another_process_close_is_refused() {
    as_the_kernels("closed.py", 2);
}

#[test]
fn ports_are_shared_as_in_the_kernel() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        for (on, host) in [(On::Kernel, Stage::KERNEL), (On::Firelane, Stage::FIRELANE)] {
            stage.ask(on, &["/usr/bin/python3", &script("ports.py"), host]);
        }
        stage.wait_until_nothing_is_left();
    }
}

/// The cells of the tables in a page, below the heading `part`, row by row.
fn table(part: &str) -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/calls.md");
    let text = std::fs::read_to_string(page).unwrap();
    let part = text.split("\n## ").find(|it| it.starts_with(part)).expect("the page has such a part");
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|it| it.trim().to_owned()).collect();
    rows.map(cells).collect()
}

#[test]
fn the_page_of_calls_names_every_call_that_is_hooked() {
    let library = binary("libfirelane_preload.so");
    let told =
        std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    let symbols = String::from_utf8(told.stdout).unwrap();
    let hooked: std::collections::BTreeSet<String> =
        symbols.lines().filter_map(|line| Some(line.split_once(" T ")?.1.to_owned())).collect();
    let rows = table("Calls");
    let named = rows.iter().flat_map(|row| row[0].split(", ").map(|it| it.trim_matches('`').to_owned()));
    let named: std::collections::BTreeSet<String> = named.collect();
    assert!(hooked.len() > 40 && hooked == named, "{:?}", hooked.symmetric_difference(&named));
}

#[test]
fn the_page_of_calls_tells_what_becomes_of_each_option() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let told = stage.ask(On::Firelane, &["/usr/bin/python3", &script("options.py")]);
    let rows: Vec<String> =
        table("Options").iter().map(|row| format!("| {} | {} | {} |", row[0], row[1], row[2])).collect();
    let told: Vec<&str> = told.lines().collect();
    assert!(told.len() > 60 && told == rows, "the page differs; it is to say\n{}", told.join("\n"));
}

/// As inetd does. The kernel's program answers; ours ends, because its user is not named, and hangs if it is not told.
#[test]
fn who_may_not_use_a_connection_that_he_is_given_is_told_that_it_is_gone() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("given_away.py"), host]);
    assert_eq!(ask(On::Kernel, Stage::KERNEL), "client: b'hello'\nprogram: 0\n");
    let ours = ask(On::Firelane, Stage::FIRELANE);
    assert!(ours.starts_with("client: ") && ours.ends_with("\nprogram: 3\n"), "{ours}");
    stage.wait_until_nothing_is_left();
}

/// The loader leaves the library away, in secure mode.
#[test]
fn who_starts_a_program_as_two_users_is_told_whose_sockets_that_has() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let told =
        |user| stage.ask(On::Firelane, &["/usr/bin/python3", &script("two_users.py"), Stage::FIRELANE, user]);
    assert_eq!(told("0"), "nothing\n");
    let two = told("13");
    assert!(two.starts_with("firelane: what a program starts") && two.contains("AT_SECURE"), "{two}");
}

#[test]
fn only_users_who_are_named_get_a_netstack_and_as_much_as_they_may() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ask = |user: &str, count: &str| {
        stage.ask(On::Firelane, &["/usr/bin/python3", &script("rights.py"), user, count]).trim().to_owned()
    };
    let config = std::fs::read_to_string(stage.folder().join("host.toml")).unwrap();
    let apply = |programs: &str| {
        let path = stage.folder().join("changed.toml");
        std::fs::write(&path, format!("{config}\n[netstack.web.programs]\n{programs}\n")).unwrap();
        stage.daemon().firelane(&["apply", &path.to_string_lossy()])
    };
    assert!(ask("1234", "1").starts_with("0; EACCES; firelane: this user may not come to the daemon"));
    apply("users = [\"1234\"]\nsockets = 3").expect_success();
    assert_eq!(ask("1234", "9"), "3; EMFILE;");
    assert_eq!(ask("1234", "3"), "3; no end;");
    let why = "firelane: user 1235 may not use netstack web: netstack.web.programs allows users 1234";
    assert_eq!(ask("1235", "1"), format!("0; EACCES; {why}"));
    apply("groups = [\"1235\"]").expect_success();
    assert_eq!(ask("1235", "5"), "5; no end;");
    apply("").expect_success();
    assert!(ask("1235", "1").starts_with("0; EACCES; firelane: this user may not come to the daemon"));
    let refused = apply("sockets = 0");
    assert!(!refused.status.success(), "zero is not allowed");
    assert!(refused.stderr.contains("netstack.web.programs.sockets: \"0\""), "{}", refused.stderr);
    stage.wait_until_nothing_is_left();
}

#[test]
fn splice_moves_bytes_as_the_kernels() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script("splice.py"), host]);
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() > 15, "{kernels}");
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels);
        stage.wait_until_nothing_is_left();
    }
}

/// What the script prints on the netstack, with and without fusion, and in the kernel, is the same.
fn as_the_kernels(name: &str, least: usize) {
    as_the_kernels_with(&["on", "off"], name, least);
}

#[test]
fn a_child_waits_at_its_parents_set_in_which_one_is_closed() {
    as_the_kernels("anew.py", 17);
}

#[test]
fn entries_that_are_left_out_of_a_poll_say_nothing() {
    as_the_kernels("left_out.py", 5);
}

#[test]
fn what_a_call_keeps_of_a_closed_descriptor_is_nobody_elses() {
    as_the_kernels("left.py", 2);
}

#[test]
fn a_range_that_the_kernel_does_not_close_stays_open() {
    as_the_kernels("ranges.py", 9);
}

#[test]
fn calls_that_few_programs_make_are_the_kernels() {
    as_the_kernels("vectors.py", 100);
}

#[test]
fn urgent_data_are_the_kernels() {
    as_the_kernels("urgent.py", 50);
}

#[test]
fn whose_peer_has_stopped_waits_as_long_as_he_says() {
    as_the_kernels("patience.py", 5);
}

#[test]
fn programs_are_signalled_as_by_the_kernel() {
    as_the_kernels("signals.py", 80);
}

#[test]
fn urgent_data_pass_between_the_kernel_and_programs() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let words =
        |role, host| ["/usr/bin/python3".into(), script("urgent_far.py"), role, host, "7007".to_owned()];
    let places = [(On::Firelane, Stage::FIRELANE), (On::Kernel, Stage::KERNEL)];
    for (server, host) in places {
        let words = |role: &str| words(role.to_owned(), host.to_owned());
        let client = if server == On::Firelane { On::Kernel } else { On::Firelane };
        let (serving, asking) = (words("server"), words("client"));
        let server = stage.serve(server, &serving.each_ref().map(String::as_str));
        assert_eq!(stage.ask(client, &asking.each_ref().map(String::as_str)), "done\n");
        assert_eq!(server.expect_success(), "ready\ndone\n");
    }
    stage.wait_until_nothing_is_left();
}

#[test]
fn datagrams_in_parts_and_what_is_said_of_one_are_the_kernels() {
    as_the_kernels("parts.py", 50);
}

#[test]
fn what_options_of_streams_bring_about_is_the_kernels() {
    as_the_kernels("chosen.py", 20);
}

#[test]
fn who_wants_little_to_be_unsent_is_held_up_as_in_the_kernel() {
    as_the_kernels_with(&["off"], "unsent.py", 15);
}

#[test]
fn groups_are_heard_as_in_the_kernel() {
    as_the_kernels_with(&["on"], "groups.py", 10);
}

#[test]
fn what_goes_beside_messages_is_the_kernels() {
    as_the_kernels("beside.py", 40);
}

#[test]
fn who_is_bound_to_the_loopback_device_is_alone_with_it_as_in_the_kernel() {
    as_the_kernels("lonely.py", 15);
}

#[test]
fn close_waits_as_the_kernels() {
    as_the_kernels("linger.py", 10);
}

#[test]
fn a_descriptor_that_is_slow_to_close_keeps_no_other_program() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let door = stage.daemon().runtime().join("app.sock");
    let words = ["/usr/bin/python3", &script("slow.py"), Stage::KERNEL, &door.to_string_lossy()];
    let slow = stage.serve(On::Kernel, &words);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !slow.log().contains("sent") {
        assert!(Instant::now() < deadline, "{}", slow.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let begun = Instant::now();
    stage.ask(On::Firelane, &["/usr/bin/python3", "-c", "import socket; socket.socket()"]);
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
    assert!(!slow.log().contains("ended"), "it was closed all the time");
}

#[test]
fn who_knocks_and_says_nothing_is_seen_off() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let door = stage.daemon().runtime().join("app.sock");
    let knock = "import socket, sys
knocks = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
for knock in knocks:
    knock.connect(sys.argv[1])
    knock.settimeout(60)
print(all(knock.recv(1) == b'' for knock in knocks))";
    let said = stage.ask(On::Kernel, &["/usr/bin/python3", "-c", knock, &door.to_string_lossy()]);
    assert!(said.contains("True"), "{said}");
    stage.ask(
        On::Firelane,
        &[
            "/usr/bin/python3",
            "-c",
            "import socket, time; s = socket.socket(); time.sleep(11); socket.socket()",
        ],
    );
}

#[test]
fn a_daemon_of_another_version_is_no_riddle() {
    let sandbox = Sandbox::new();
    let door = sandbox.folder().join("app.sock");
    let library = binary("libfirelane_preload.so");
    let environment = [
        format!("LD_PRELOAD={}", library.display()),
        format!("FIRELANE_APP_SOCKET={}", door.display()),
        "FIRELANE_NETSTACK=web".to_owned(),
    ];
    // It ends a session whose first message it does not know.
    let daemon = "import os, socket, sys
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.bind(sys.argv[1])
door.listen()
if os.fork() == 0:
    os.execvp('env', ['env', *sys.argv[2:]])
door.accept()[0].recv(4096)
os.wait()";
    let program = "import socket
try: socket.socket()
except OSError as error: print(error.strerror)";
    let door = door.to_string_lossy();
    let words: Vec<&str> = ["-c", daemon, &door]
        .into_iter()
        .chain(environment.iter().map(String::as_str))
        .chain(["/usr/bin/python3", "-c", program])
        .collect();
    let output = sandbox.run(None, "/usr/bin/python3", &words);
    assert_eq!(output.stdout, "Network is down\n", "{}", output.stderr);
    let said: Vec<&str> = output.stderr.lines().collect();
    assert!(said.len() == 1 && said[0].starts_with("firelane: ") && said[0].contains("version"), "{said:?}");
}

#[test]
fn interfaces_are_the_netstacks() {
    run("interfaces.py");
}

/// Kilobytes that the daemon has in memory.
fn memory_of(stage: &Stage<'_>) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{}/status", stage.daemon().pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel tells");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let churn = |count: &str| {
        stage.ask(On::Firelane, &["/usr/bin/python3", &script("churn.py"), Stage::FIRELANE, count]);
        stage.wait_until_nothing_is_left();
        memory_of(&stage)
    };
    let before = churn("2000");
    let after = churn("10000");
    // What waits in TIME-WAIT is a small record each.
    assert!(after < before + 8192, "{before} KiB and then {after} KiB");
}

#[test]
fn a_dead_daemon_keeps_nobody() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 2);
    let ready = stage.folder().join("ready");
    let words = ["/usr/bin/python3", &script("death.py"), Stage::FIRELANE, &ready.to_string_lossy()];
    let server = stage.serve(On::Firelane, &words);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ready.exists() {
        assert!(Instant::now() < deadline, "the program does not come so far: {}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    stage.kill_daemon();
    server.expect_success();
}

#[test]
fn who_has_sockets_of_a_netstack_that_is_removed_is_told_and_does_not_go_round() {
    let sandbox = Sandbox::new();
    let (_, last) = cpu_ends();
    let stage = Stage::new(&sandbox, 2);
    let ready = stage.folder().join("ready");
    let words = ["/usr/bin/python3", &script("removed.py"), Stage::FIRELANE, &ready.to_string_lossy()];
    let server = stage.serve(On::Firelane, &words);
    wait_for_file(&ready, &server);
    let config = std::fs::read_to_string(stage.folder().join("host.toml")).unwrap();
    let path = stage.folder().join("changed.toml");
    // With other lanes it is another netstack.
    std::fs::write(&path, format!("{config}\n[netstack.web]\ncpus = \"{last}\"\n")).unwrap();
    stage.daemon().firelane(&["apply", &path.to_string_lossy()]).expect_success();
    server.expect_success();
}

/// Waits for a file that a program writes when it is ready: what is in it.
fn wait_for_file(path: &Path, server: &firelane_interop::Server) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        assert!(Instant::now() < deadline, "the program does not come so far: {}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_socket_of_a_process_is_explained() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let answer = "import socket,time; l = socket.create_server(('', 5000)); c = l.accept()[0]; \
                  c.recv(1000, socket.MSG_WAITALL); c.sendall(b'y'); time.sleep(60)";
    let _kernels = stage.serve(On::Kernel, &["/usr/bin/python3", "-c", answer]);
    stage.ask(On::Kernel, &["sh", "-c", "until ss -ltn | grep -q :5000; do sleep 0.01; done"]);
    let ready = stage.folder().join("ready");
    let words = ["/usr/bin/python3", &script("explained.py"), Stage::FIRELANE, Stage::KERNEL, "5000"];
    let server = stage.serve(On::Firelane, &[&words[..], &[&ready.to_string_lossy()]].concat());
    let told = wait_for_file(&ready, &server);
    let [pid, listener, client, datagrams, fresh] = told.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{told}")
    };
    let rows = |fields: &str| {
        let all = stage.daemon().firelane(&["explain", pid, "-p", "-o", fields]).expect_success();
        all.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        rows("fd,path,proto,state,lane,fused,sent,received,options,why"),
        [
            format!("{listener}:firelane:tcp:LISTEN:::::reuseaddr,keepalive=7200s,75s,9:"),
            format!(
                "{client}:firelane:tcp:ESTABLISHED:0:no:1000:1:nodelay:not fused\\: its peer is not on this netstack"
            ),
            format!("{datagrams}:firelane:udp:Idle:0::77:77::"),
            format!("{fresh}:firelane:tcp:CLOSED::::::"),
        ]
    );
    let all = stage.daemon().firelane(&["explain", pid]).expect_success();
    assert!(all.contains("\n2 sockets of other families are the kernel's\n"), "{all}");
    assert_eq!(rows("local")[0], format!("{}:5001", Stage::FIRELANE));
    let shown = stage.daemon().firelane(&["netstat", "-anu"]).expect_success();
    let whose = shown.lines().filter(|line| line.contains(&format!(" root     {pid:>6} python3        ")));
    assert_eq!(whose.count(), 3, "{shown}");
    assert_eq!(rows("remote")[1], format!("{}:5000", Stage::KERNEL));
    let headline = |pid: &str| {
        let all = stage.daemon().firelane(&["explain", pid]).expect_success();
        all.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        headline(pid),
        format!("python3 ({pid}): accelerated: its TCP and UDP sockets are on netstack web")
    );
    let own = std::process::id().to_string();
    assert!(headline(&own).contains("not accelerated: libfirelane_preload.so is not in front"));
}

/// Three that send without pause: under a flow's limit, to somebody who is not there, and at a pace of its own.
const WAITING: &str = "import os, socket, sys, time
def made(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('', port))
    s.setblocking(False)
    return s
kernel, nobody, ready = sys.argv[1:]
to = {made(7001): (kernel, 9), made(7002): (nobody, 10), made(7003): (kernel, 11)}
list(to)[2].setsockopt(socket.SOL_SOCKET, 47, 1000)
open(ready + '.tmp', 'w').write(str(os.getpid()))
os.rename(ready + '.tmp', ready)
while True:
    for s, peer in to.items():
        try: s.sendto(bytes(1000), peer)
        except OSError: pass
    time.sleep(.001)";

#[test]
fn a_datagram_socket_is_explained_by_what_it_waits_for() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ready = stage.folder().join("ready");
    let firelane = |words: &[&str]| stage.daemon().firelane(words).expect_success();
    firelane(&[
        "flowadm",
        "add-flow",
        "-l",
        "web0",
        "-a",
        "transport=udp,remote_port=9",
        "-p",
        "maxbw=1M",
        "slow",
    ]);
    let nobody =
        Stage::KERNEL.rsplit_once('.').map(|(net, _)| format!("{net}.250")).expect("an IPv4 address");
    let words = ["/usr/bin/python3", "-c", WAITING, Stage::KERNEL, &nobody, &ready.to_string_lossy()];
    let server = stage.serve(On::Firelane, &words);
    let pid = wait_for_file(&ready, &server);
    let expected = [
        "7001:slow:limited by flow slow; waits for its limit".to_owned(),
        format!("7002::waits for the Ethernet address of {nobody}"),
        "7003::waits for its own pace (SO_MAX_PACING_RATE)".to_owned(),
    ];
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let all = firelane(&["explain", &pid, "-p", "-o", "local,flow,why"]);
        let shown: Vec<_> = all.lines().map(|line| line.replace('\\', "")).collect();
        let is_there = |it: &String| shown.iter().any(|line| line.ends_with(it.as_str()));
        if shown.len() == 3 && expected.iter().all(is_there) {
            return;
        }
        assert!(Instant::now() < deadline, "{all}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As nginx's master does it: it becomes another process, shows its title where its environment was, and only waits.
#[test]
fn a_process_is_explained_by_the_sockets_that_it_has_and_not_by_its_environment() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let ready = stage.folder().join("ready");
    let server =
        stage.serve(On::Firelane, &["/usr/bin/python3", &script("titled.py"), &ready.to_string_lossy()]);
    let pid = wait_for_file(&ready, &server);
    let explained = || stage.daemon().firelane(&["explain", &pid, "-j"]).expect_success();
    let told: serde_json::Value = serde_json::from_str(&explained()).expect("JSON");
    let program = &told["program"];
    let said =
        [&program["path"], &program["netstack"], &program["why"]].map(|it| it.as_str().unwrap_or("--"));
    assert_eq!(said, ["accelerated", "web", "its TCP and UDP sockets are on netstack web"], "{told}");
    let sockets: Vec<_> = program["sockets"].as_array().into_iter().flatten().collect();
    assert!(sockets.len() == 1 && sockets[0]["state"] == "LISTEN", "{told}");
    assert_eq!(program["others"], 1, "{told}");

    // What it has stays when its netstack goes.
    let without = "[etherstub.s0]\n";
    let file = stage.folder().join("without.toml");
    std::fs::write(&file, without).expect("the folder is writable");
    stage.daemon().firelane(&["apply", "-t", &file.to_string_lossy()]).expect_success();
    let told = explained();
    assert!(
        told.contains("\"accelerated\"")
            && told.contains("the netstack of its TCP and UDP sockets has ended"),
        "{told}"
    );
}
