//! The real daemon from its start to its end, and what every kind of end leaves behind.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_interop::{Background, Daemon, Sandbox, binary, until};

/// The configuration of the demo.
fn two_tenants() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml")
}

fn namespaces(sandbox: &Sandbox) -> Vec<String> {
    let list = sandbox.run(None, "ip", &["netns", "list"]).expect_success();
    let mut names: Vec<String> =
        list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    names.sort();
    names
}

fn interfaces(sandbox: &Sandbox, namespace: Option<&str>) -> String {
    sandbox.run(namespace, "ip", &["-o", "address"]).expect_success()
}

#[track_caller]
fn ping(sandbox: &Sandbox, from: &str, to: &str) {
    sandbox.run(Some(from), "ping", &["-c", "1", "-W", "5", to]).expect_success();
}

fn written(sandbox: &Sandbox, name: &str, text: &str) -> String {
    let path = sandbox.folder().join(name);
    fs::write(&path, text).expect("the sandbox's folder is writable");
    path.to_string_lossy().into_owned()
}

#[test]
fn a_configuration_becomes_namespaces_interfaces_and_a_path_between_them() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(status.contains("lanes") && !status.contains("problem"), "{status}");
    assert!(status.contains(&format!("pid {}", daemon.pid())), "{status}");
    assert_eq!(namespaces(&sandbox), ["alice", "bob"]);
    let alice = interfaces(&sandbox, Some("alice"));
    assert!(alice.contains("10.0.0.1/24") && alice.contains("fd00::1/64") && alice.contains("127.0.0.1"));
    ping(&sandbox, "alice", "10.0.0.2");
    ping(&sandbox, "bob", "fd00::1");
    let mode = fs::metadata(daemon.runtime().join("api.sock")).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn an_interface_has_all_addresses_of_one_subnet() {
    let sandbox = Sandbox::new();
    let text = "[etherstub.s1]\n[vnic.a0]\nover = \"s1\"\ntap = { namespace = \"a\", addresses = [\"10.0.0.1/24\", \
                \"10.0.0.2/24\", \"10.0.1.1/31\", \"fd00::1/64\", \"fd00::2/64\"] }\n";
    let _daemon = Daemon::start(&sandbox, Path::new(&written(&sandbox, "many.toml", text)));
    let there = interfaces(&sandbox, Some("a"));
    for address in [
        "10.0.0.1/24 brd 10.0.0.255 ",
        "10.0.0.2/24 brd 10.0.0.255 ",
        "10.0.1.1/31 ",
        "fd00::1/64 ",
        "fd00::2/64 ",
    ] {
        assert_eq!(there.matches(address).count(), 1, "{address}: {there}");
    }
}

#[test]
fn applying_what_is_there_says_so_and_a_bad_file_changes_nothing() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let file = two_tenants();
    let file = file.to_string_lossy();
    assert_eq!(daemon.firelane(&["apply", &file]).expect_success(), "no changes\n");
    // What is there until the next start only would be kept from then on.
    let dladm = |words: &[&str]| daemon.firelane(&[&["dladm"], words].concat()).expect_success();
    dladm(&["set-linkprop", "-t", "-p", "maxbw=7M", "web0"]);
    dladm(&["create-vnic", "-t", "-l", "vswitch1", "new0"]);
    let kept = || dladm(&["show-linkprop", "-P", "-c", "-o", "value", "-p", "maxbw", "web0"]);
    let there = written(&sandbox, "there.toml", &daemon.firelane(&["dump"]).expect_success());
    let said = "live      make permanent: set vnic web0 maxbw -- -> 7M\n\
                live      make permanent: create vnic new0 over vswitch1\n";
    assert_eq!(daemon.firelane(&["plan", &there]).expect_success(), said);
    assert_eq!(daemon.firelane(&["apply", "-t", &there]).expect_success(), "no changes\n");
    assert_eq!(kept(), "\n");
    assert_eq!(daemon.firelane(&["apply", &there]).expect_success(), said);
    assert_eq!(kept(), "7\n");
    for verb in ["plan", "apply"] {
        assert_eq!(daemon.firelane(&[verb, &there]).expect_success(), "no changes\n");
    }
    let before = daemon.firelane(&["dump"]).expect_success();
    let bad = written(&sandbox, "bad.toml", "[etherstub.vswitch1]\n[vnic.web0]\nover = \"vswitch7\"\n");
    let refused = daemon.firelane(&["apply", &bad]);
    assert_eq!(refused.code(), 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("vnic.web0.over") && refused.stderr.lines().count() == 1,
        "{}",
        refused.stderr
    );
    assert_eq!(daemon.firelane(&["dump"]).expect_success(), before);
}

#[test]
fn a_clean_end_leaves_nothing_but_what_the_next_start_begins_with() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let before = daemon.firelane(&["dump"]).expect_success();
    let socket = daemon.runtime().join("api.sock");
    assert!(daemon.terminate().success());
    assert!(namespaces(&sandbox).is_empty() && !socket.exists());
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!(daemon.firelane(&["dump"]).expect_success(), before);
    ping(&sandbox, "alice", "10.0.0.2");
}

#[test]
fn after_a_kill_the_next_start_recovers_and_removes_what_nobody_wants() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    daemon.firelane(&["flowadm", "set-flowprop", "-p", "maxbw=80M", "iperf"]).expect_success();
    let carol = "[vnic.carol0]\nover = \"vswitch1\"\ntap = { namespace = \"carol\" }\n";
    let more = fs::read_to_string(two_tenants()).expect("readable") + "\n" + carol;
    let more = written(&sandbox, "more.toml", &more);
    let kept = daemon.firelane(&["dump"]).expect_success();
    daemon.firelane(&["apply", "--temporary", &more]).expect_success();
    assert_eq!(namespaces(&sandbox), ["alice", "bob", "carol"]);
    // A tenant's program, which knows nothing of the daemon.
    let mut program =
        sandbox.command("ip").args(["netns", "exec", "alice", "sleep", "60"]).spawn().expect("ip");
    daemon.kill();
    assert_eq!(namespaces(&sandbox), ["alice", "bob", "carol"], "nobody was there to remove them");

    let daemon = Daemon::start(&sandbox, &two_tenants());
    assert_eq!(namespaces(&sandbox), ["alice", "bob"], "what was temporary is gone");
    let dump = daemon.firelane(&["dump"]).expect_success();
    assert_eq!(dump, kept, "what was remembered, not the file and not what was temporary");
    assert!(dump.contains("80M"), "{dump}");
    ping(&sandbox, "alice", "10.0.0.2");
    let inside = sandbox.run(None, "ip", &["netns", "pids", "alice"]).expect_success();
    assert!(inside.contains(&program.id().to_string()), "the program is still in its namespace: {inside:?}");
    let _ = program.kill();
    let _ = program.wait();
}

#[test]
fn what_a_killed_daemon_left_can_be_removed_without_a_start() {
    let sandbox = Sandbox::new();
    Daemon::start(&sandbox, &two_tenants()).kill();
    assert_eq!(namespaces(&sandbox), ["alice", "bob"]);
    Daemon::run(&sandbox, &["--clean"]).expect_success();
    assert!(namespaces(&sandbox).is_empty());
    assert!(!sandbox.folder().join("run/api.sock").exists());
}

#[test]
fn namespaces_that_were_there_before_stay() {
    let sandbox = Sandbox::new();
    sandbox.run(None, "ip", &["netns", "add", "alice"]).expect_success();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    ping(&sandbox, "alice", "10.0.0.2");
    assert!(daemon.terminate().success());
    assert_eq!(namespaces(&sandbox), ["alice"]);
    assert!(!interfaces(&sandbox, Some("alice")).contains("alice0"));
}

/// A NIC that has another name today, with much above it.
#[test]
fn a_start_at_which_much_fails_takes_no_longer_than_another() {
    let sandbox = Sandbox::new();
    let mut text = "[link.net0]\nkind = 'nic'\nifname = 'nosuch'\n[netstack.web]\n".to_owned();
    for n in 0..500 {
        text += &format!("[vnic.v{n}]\nover = 'net0'\nnetstack = 'web'\n");
    }
    text += "[netstack.web.addresses]\n";
    for n in 0..500 {
        text += &format!("'v{n}/v4' = '10.{}.{}.1/24'\n", n / 250, n % 250);
    }
    let daemon = Daemon::start_as(&sandbox, &text);
    let status = daemon.firelane(&["status"]).expect_success();
    let missing = status.lines().filter(|line| line.contains("it rests on what failed")).count();
    assert_eq!(missing, 1000, "{}", status.lines().take(5).collect::<Vec<_>>().join("\n"));
}

/// Who watches lanes for a while does not keep the next daemon out of the folders.
#[test]
fn a_daemon_that_is_told_to_end_waits_for_nobody_who_looks() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    // Each who asks has a descriptor; those of before are still on their way out.
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).map_or(0, Iterator::count);
    let settled = (0..10).map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        descriptors()
    });
    let before = settled.min().unwrap_or_default();
    let mut look = sandbox.command(binary("firelane"));
    look.env("FIRELANE_SOCKET", daemon.runtime().join("api.sock"));
    let _look = Background::start(look.args(["show", "steps", "-i", "60"]));
    until("somebody looks", Duration::from_secs(20), || descriptors() > before);
    // The question follows at once.
    std::thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    daemon.terminate();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_runs_on() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let second = Daemon::run(&sandbox, &[]);
    assert_eq!(second.code(), 1);
    assert!(second.stderr.contains(&format!("process {}", daemon.pid())), "{}", second.stderr);
    assert_eq!(second.stderr.lines().count(), 1, "{}", second.stderr);
    assert_eq!(Daemon::run(&sandbox, &["--clean"]).code(), 1, "nor is it cleaned away");
    assert_eq!(namespaces(&sandbox), ["alice", "bob"]);
    daemon.firelane(&["status"]).expect_success();
}

#[test]
fn mistakes_at_the_start_are_one_line_and_touch_nothing() {
    let sandbox = Sandbox::new();
    let files = [
        ("bad1.toml", "[vnic.web0]\nover = \"vswitch1\"\n", "vnic.web0.over"),
        ("bad2.toml", "[etherstub.vswitch1]\nmtu = \"big\"\n", "mtu"),
        ("bad3.toml", "etherstub = [[\n", "bad3.toml:"),
    ];
    for (name, text, word) in files {
        let file = written(&sandbox, name, text);
        let refused = Daemon::run(&sandbox, &["--config", &file]);
        assert_eq!(refused.code(), 2, "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains(word) && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    }
    for args in
        [&["--config", "/nonexistent.toml"][..], &["--lanes", "0"], &["--instance", "/"], &["--colour"]]
    {
        let refused = Daemon::run(&sandbox, args);
        assert_eq!(refused.code(), 2, "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(args[args.len() - 1]) || refused.stderr.contains(args[0]));
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    assert!(!sandbox.folder().join("run").exists());
}

#[test]
fn a_name_that_is_taken_costs_its_vnic_and_can_be_repaired() {
    let sandbox = Sandbox::new();
    sandbox.run(None, "ip", &["netns", "add", "alice"]).expect_success();
    let taken = &["link", "add", "alice0", "type", "veth", "peer", "name", "other0"];
    sandbox.run(Some("alice"), "ip", taken).expect_success();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(status.contains("create vnic alice0") && status.contains("already taken"), "{status}");
    ping(&sandbox, "bob", "10.0.0.2");
    sandbox.run(Some("alice"), "ip", &["link", "delete", "alice0"]).expect_success();
    let file = two_tenants();
    let applied = daemon.firelane(&["apply", &file.to_string_lossy()]).expect_success();
    assert!(applied.contains("create vnic alice0") && !applied.contains("bob0"), "{applied}");
    ping(&sandbox, "alice", "10.0.0.2");
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(!status.contains("problem"), "{status}");
}

#[test]
fn a_step_that_fails_takes_the_steps_before_it_back() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    sandbox.run(None, "ip", &["netns", "add", "dave"]).expect_success();
    let write = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
    sandbox.run(Some("dave"), "sh", &["-c", write]).expect_success();
    let more = "\n[vnic.carol0]\nover = \"vswitch1\"\ntap = { namespace = \"carol\" }\n\
                \n[vnic.dave0]\nover = \"vswitch1\"\ntap = { namespace = \"dave\", addresses = [\"fd00::4/64\"] }\n";
    let more = fs::read_to_string(two_tenants()).expect("readable") + more;
    let more = written(&sandbox, "more.toml", &more);
    let before = daemon.firelane(&["dump"]).expect_success();
    let refused = daemon.firelane(&["apply", &more]);
    assert!(refused.stderr.starts_with("firelane: create vnic dave0 over vswitch1"), "{}", refused.stderr);
    assert_eq!(refused.code(), 1, "{}", refused.stderr);
    assert_eq!(daemon.firelane(&["dump"]).expect_success(), before);
    assert_eq!(namespaces(&sandbox), ["alice", "bob", "dave"], "carol's was made and taken back");
    ping(&sandbox, "alice", "10.0.0.2");
}

/// Python: a connection to the service on `web` that is asked for something when a line comes, and not before.
const ASKS_LATER: &str = "import socket, sys\n\
    it = socket.create_connection(('10.0.0.10', 80), 5)\n\
    print('connected', flush=True)\n\
    sys.stdin.readline()\n\
    it.sendall(b'GET / HTTP/1.1\\r\\nHost: web\\r\\nConnection: close\\r\\n\\r\\n')\n\
    print(it.recv(8).decode(), flush=True)\n";

#[test]
fn what_plan_refuses_apply_refuses_before_it_has_touched_anything() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let taken = ["link", "add", "dave0", "type", "veth", "peer", "name", "other0"];
    sandbox.run(None, "ip", &taken).expect_success();
    let mut command = sandbox.command_in("alice", &["python3", "-c", ASKS_LATER]);
    let mut client =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
    let mut answers = BufReader::new(client.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert_eq!(answers.next().as_deref(), Some("connected"));
    let demo = fs::read_to_string(two_tenants()).expect("readable");
    let anew = demo.replace("netstack = \"web\"\n\n", "netstack = \"web\"\nmac = \"2:8:20:9:9:9\"\n\n");
    assert_ne!(anew, demo, "web0, and with it all its connections, would go");
    let before = daemon.firelane(&["dump"]).expect_success();
    for (said, step) in [
        ("[netstack.web]\ncpus = \"777\"\n", "create netstack web"),
        ("[netstack.more]\ncpus = \"777\"\n", "create netstack more"),
        ("[link.net0]\nkind = \"nic\"\nifname = \"nosuch0\"\n", "create link net0"),
        ("[vnic.dave0]\nover = \"vswitch1\"\ntap = {}\n", "create vnic dave0"),
        ("[link.net0]\nkind = \"tap\"\nifname = \"dave0\"\n", "create link net0"),
        ("[daemon.accounting]\nnet = \"basic\"\nfile = \"/nowhere/net\"\nactive = true\n", "set daemon"),
        (
            "[vnic.dave0]\nover = \"vswitch1\"\nmemif = { socket = \"/nowhere/m.sock\", role = \"server\" }\n",
            "create vnic dave0",
        ),
        (
            "[service.more]\nkind = \"http\"\nnetstack = \"web\"\nport = 81\nroot = \"/etc/passwd/www\"\n",
            "start service more",
        ),
        ("[netstack.web.fpm]\nlisten = \"192.0.2.9:2620\"\n", "set fpm of netstack web"),
    ] {
        let file = written(&sandbox, "refused.toml", &format!("{anew}\n{said}"));
        let refused = ["plan", "apply"].map(|verb| {
            let answer = daemon.firelane(&[verb, &file]);
            assert_eq!(answer.code(), 1, "{verb} {said}: {}{}", answer.stdout, answer.stderr);
            answer.stderr
        });
        assert!(refused[0].starts_with(&format!("firelane: {step}")), "{said}: {}", refused[0]);
        assert_eq!(refused[0], refused[1], "{said}");
    }
    assert_eq!(daemon.firelane(&["dump"]).expect_success(), before);
    writeln!(client.stdin.take().expect("a pipe"), "now").expect("it waits");
    assert_eq!(answers.next().as_deref(), Some("HTTP/1.1"), "its connection goes on");
    client.wait().expect("it ends");
}

#[test]
fn a_name_that_a_change_frees_may_be_had_by_the_same_change() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let file = fs::read_to_string(two_tenants()).expect("readable").replace("vnic.alice0", "vnic.carol0");
    let file =
        file.replace("tap = { namespace = \"alice\"", "tap = { ifname = \"alice0\", namespace = \"alice\"");
    daemon.firelane(&["apply", &written(&sandbox, "renamed.toml", &file)]).expect_success();
    assert!(daemon.firelane(&["dump"]).expect_success().contains("[vnic.carol0]"));
    ping(&sandbox, "alice", "10.0.0.2");
}

#[test]
fn a_state_that_cannot_be_read_is_set_aside_and_told() {
    let sandbox = Sandbox::new();
    let state = sandbox.folder().join("run/state");
    fs::create_dir_all(&state).expect("writable");
    fs::write(state.join("model.toml"), "[etherstub.vswitch1\nmtu = ").expect("writable");
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(status.contains("model.toml.broken"), "{status}");
    ping(&sandbox, "alice", "10.0.0.2");
    assert!(state.join("model.toml.broken").exists());
}

#[test]
fn a_full_disk_refuses_persistent_changes_and_nothing_else() {
    let sandbox = Sandbox::new();
    let state = sandbox.folder().join("run/state");
    fs::create_dir_all(&state).expect("writable");
    let state = state.to_string_lossy().into_owned();
    sandbox.run(None, "mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", &state]).expect_success();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let dumped = format!("{state}/dumped.toml");
    daemon.firelane(&["dump", &dumped]).expect_success();
    let read = || sandbox.run(None, "cat", &[&dumped]).expect_success();
    let kept = read();
    assert!(kept.contains("50M"), "{kept}");
    assert_eq!(
        sandbox.run(None, "stat", &["-c", "%a", &dumped]).expect_success(),
        "640
"
    );
    let fill = format!("cat /dev/zero > {state}/filler");
    sandbox.run(None, "sh", &["-c", &fill]);
    let refused = daemon.firelane(&["dump", &dumped]);
    assert!(refused.code() == 1 && refused.stderr.contains("No space left"), "{}", refused.stderr);
    assert_eq!(read(), kept, "it is as it was");
    let limit = |value: &str| format!("maxbw={value}");
    let refused = daemon.firelane(&["flowadm", "set-flowprop", "-p", &limit("70M"), "iperf"]);
    assert!(
        refused.stderr.contains("No space left") && refused.stderr.contains("model.toml"),
        "{}",
        refused.stderr
    );
    assert!(daemon.firelane(&["dump"]).expect_success().contains("50M"), "nothing changed");
    ping(&sandbox, "alice", "10.0.0.2");
    daemon.firelane(&["flowadm", "set-flowprop", "-t", "-p", &limit("70M"), "iperf"]).expect_success();
    assert!(daemon.firelane(&["dump"]).expect_success().contains("70M"), "temporary changes need no disk");
    sandbox.run(None, "rm", &[&format!("{state}/filler")]).expect_success();
    daemon.firelane(&["flowadm", "set-flowprop", "-p", &limit("60M"), "iperf"]).expect_success();
}

#[test]
fn a_first_configuration_that_cannot_be_written_is_written_by_the_next_apply() {
    let sandbox = Sandbox::new();
    let obstacle = sandbox.folder().join("run/state/model.new");
    fs::create_dir_all(&obstacle).expect("writable");
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let told = || daemon.firelane(&["status"]).expect_success().contains("model.toml");
    assert!(told(), "status says that it is not kept");
    let file = two_tenants().to_string_lossy().into_owned();
    let refused = daemon.firelane(&["apply", &file]);
    assert!(refused.stderr.contains("model.toml"), "{}{}", refused.stdout, refused.stderr);
    daemon.firelane(&["apply", "--temporary", &file]).expect_success();
    fs::remove_dir(&obstacle).expect("writable");
    daemon.firelane(&["apply", &file]).expect_success();
    assert!(daemon.runtime().join("state/model.toml").exists() && !told(), "it is kept");
}

#[test]
fn a_history_that_cannot_be_kept_is_said_and_all_else_runs() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.folder().join("run/state/history.db")).expect("writable");
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let status = daemon.firelane(&["status"]);
    assert!(
        status.stdout.contains("history.db") && status.stdout.contains("no history"),
        "{}",
        status.stdout
    );
    ping(&sandbox, "alice", "10.0.0.2");
    daemon.firelane(&["flowadm", "set-flowprop", "-p", "maxbw=70M", "iperf"]).expect_success();
    let usage = || daemon.firelane(&["dladm", "show-usage"]);
    assert!(usage().stderr.contains("firelane status says why"), "{}", usage().stderr);
    // Records of what is carried need no history, which begins when it can.
    let records = sandbox.folder().join("net.log");
    let words = ["acctadm", "-e", "extended", "-f", records.to_str().expect("a plain path"), "net"];
    daemon.firelane(&words).expect_success();
    ping(&sandbox, "alice", "10.0.0.2");
    daemon.firelane(&["acctadm", "-x", "net"]).expect_success();
    let written = fs::read_to_string(&records).expect("it is written when the command returns");
    assert!(written.contains("alice0"), "{written}");
    fs::remove_dir(sandbox.folder().join("run/state/history.db")).expect("it is empty");
    let usage = usage().expect_success();
    assert!(usage.contains("alice0"), "what came before is in it: {usage}");
    let is_told = || daemon.firelane(&["status"]).expect_success().contains("history.db");
    until("nothing is wrong any more", Duration::from_secs(10), || !is_told());
}

#[test]
fn a_file_of_records_whose_folder_is_mounted_later_gets_them_then() {
    let sandbox = Sandbox::new();
    let folder = sandbox.folder().join("later");
    let file = folder.join("net.log");
    let text = fs::read_to_string(two_tenants()).expect("readable")
        + &format!("\n[daemon.accounting]\nactive = true\nnet = \"basic\"\nfile = {file:?}\n");
    let daemon = Daemon::start(&sandbox, Path::new(&written(&sandbox, "accounting.toml", &text)));
    let told = || daemon.firelane(&["status"]).expect_success().contains("net.log");
    assert!(told(), "status says that there are none");
    fs::create_dir(&folder).expect("writable");
    let shows = || daemon.firelane(&["acctadm"]).expect_success().contains("Net accounting: active");
    until("accounting is active", Duration::from_secs(10), shows);
    assert!(!told());
    // From when this returns on all is accounted of.
    daemon.firelane(&["acctadm", "-e", "extended", "net"]).expect_success();
    ping(&sandbox, "alice", "10.0.0.2");
    daemon.firelane(&["acctadm", "-x", "net"]).expect_success();
    let written = fs::read_to_string(&file).expect("it is written when the command returns");
    assert!(written.contains("alice0"), "{written}");
}

#[test]
fn without_tap_devices_vnics_use_veth_pairs_and_status_says_why() {
    let sandbox = Sandbox::new();
    sandbox.run(None, "mount", &["-t", "tmpfs", "tmpfs", "/dev/net"]).expect_success();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(
        status.contains("alice0: veth pair") && status.contains("/dev/net/tun: No such file"),
        "{status}"
    );
    ping(&sandbox, "alice", "10.0.0.2");
    ping(&sandbox, "alice", "fd00::2");
    daemon.kill();
    let links = |sandbox: &Sandbox| sandbox.run(None, "ip", &["-o", "link"]).expect_success().lines().count();
    assert_eq!(links(&sandbox), 3, "a veth pair outlives its maker");
    Daemon::run(&sandbox, &["--clean"]).expect_success();
    assert_eq!(links(&sandbox), 1);
    assert!(namespaces(&sandbox).is_empty());
}

#[test]
fn a_veth_pair_whose_vnic_was_renamed_gives_its_place_to_nobody() {
    let sandbox = Sandbox::new();
    sandbox.run(None, "mount", &["-t", "tmpfs", "tmpfs", "/dev/net"]).expect_success();
    let text = "[etherstub.s1]\n[vnic.v0]\nover = \"s1\"\ntap = { namespace = \"a\", addresses = [\"10.0.0.1/24\"] }\n";
    let daemon = Daemon::start(&sandbox, Path::new(&written(&sandbox, "one.toml", text)));
    daemon.firelane(&["dladm", "rename-link", "v0", "w0"]).expect_success();
    let both = daemon.firelane(&["dump"]).expect_success()
        + "\n[vnic.v0]\nover = \"s1\"\ntap = { namespace = \"b\", addresses = [\"10.0.0.2/24\"] }\n";
    daemon.firelane(&["apply", &written(&sandbox, "both.toml", &both)]).expect_success();
    ping(&sandbox, "a", "10.0.0.2");
    daemon.kill();
    Daemon::run(&sandbox, &["--clean"]).expect_success();
    let left = sandbox.run(None, "ip", &["-o", "link"]).expect_success();
    assert_eq!(left.lines().count(), 1, "{left}");
}

#[test]
fn addresses_of_an_interface_change_in_place() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let text = fs::read_to_string(two_tenants()).expect("readable").replace("10.0.0.1/24", "10.0.0.9/24");
    let file = written(&sandbox, "moved.toml", &text);
    let applied = daemon.firelane(&["apply", &file]).expect_success();
    assert!(applied.contains("set vnic alice0 addresses"), "{applied}");
    let alice = interfaces(&sandbox, Some("alice"));
    assert!(alice.contains("10.0.0.9/24") && !alice.contains("10.0.0.1/24"), "{alice}");
    ping(&sandbox, "bob", "10.0.0.9");
}

/// One VNIC in a namespace of its own: its addresses, and what it may send from.
fn one_tenant(sandbox: &Sandbox, name: &str, addresses: &[&str], allowed: &str) -> String {
    let text = format!(
        "[etherstub.s1]\n[vnic.a0]\nover = \"s1\"\nprotection = \"ip-nospoof\"\nallowed_ips = [\"{allowed}\"]\n\
         tap = {{ namespace = \"a\", addresses = {addresses:?} }}\n\
         [vnic.b0]\nover = \"s1\"\ntap = {{ namespace = \"b\", addresses = [\"10.0.0.200/24\"] }}\n"
    );
    written(sandbox, name, &text)
}

#[test]
fn addresses_that_stay_outlive_those_of_their_subnet_that_go() {
    let sandbox = Sandbox::new();
    let first = one_tenant(&sandbox, "first.toml", &["10.0.0.1/24", "10.0.0.2/24"], "10.0.0.0/24");
    let daemon = Daemon::start(&sandbox, Path::new(&first));
    // The kernel's own default, with which the first address of a subnet takes the others along.
    for of in ["all", "a0"] {
        let path = format!("/proc/sys/net/ipv4/conf/{of}/promote_secondaries");
        sandbox.run(Some("a"), "sh", &["-c", &format!("echo 0 > {path}")]).expect_success();
    }
    let mut before = vec!["10.0.0.1/24", "10.0.0.2/24"];
    for (nth, addresses) in
        [&["10.0.0.9/24", "10.0.0.2/24"][..], &["10.0.1.1/24", "10.0.1.2/24"], &["10.0.1.3/24"], &[]]
            .into_iter()
            .enumerate()
    {
        let file = one_tenant(&sandbox, &format!("next{nth}.toml"), addresses, "10.0.0.0/24");
        daemon.firelane(&["apply", &file]).expect_success();
        let there = interfaces(&sandbox, Some("a"));
        for address in addresses {
            assert!(there.contains(&format!("{address} ")), "{address}: {there}");
        }
        for gone in before.iter().filter(|it| !addresses.contains(it)) {
            assert!(!there.contains(&format!("{gone} ")), "{gone}: {there}");
        }
        before = addresses.to_vec();
    }
}

#[test]
fn addresses_that_cannot_be_had_leave_those_of_before_and_what_they_may_send() {
    let sandbox = Sandbox::new();
    let first = one_tenant(&sandbox, "first.toml", &["10.0.0.1/24"], "10.0.0.1");
    let daemon = Daemon::start(&sandbox, Path::new(&first));
    let write = "echo 1 > /proc/sys/net/ipv6/conf/a0/disable_ipv6";
    sandbox.run(Some("a"), "sh", &["-c", write]).expect_success();
    let file = one_tenant(&sandbox, "second.toml", &["fd00::1/64"], "fd00::1");
    let refused = daemon.firelane(&["apply", &file]);
    assert!(!refused.status.success() && refused.stderr.contains("a0"), "{}", refused.stderr);
    let there = interfaces(&sandbox, Some("a"));
    assert!(there.contains("10.0.0.1/24 "), "{there}");
    ping(&sandbox, "a", "10.0.0.200");
    // What somebody inside has removed is no obstacle, and is not had back with a property that has nothing to do with it.
    sandbox.run(Some("a"), "ip", &["address", "del", "10.0.0.1/24", "dev", "a0"]).expect_success();
    daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", "maxbw=100M", "a0"]).expect_success();
    let there = interfaces(&sandbox, Some("a"));
    assert!(!there.contains("10.0.0.1/24 "), "{there}");
    let file = one_tenant(&sandbox, "third.toml", &["10.0.0.7/24"], "10.0.0.7");
    daemon.firelane(&["apply", &file]).expect_success();
    ping(&sandbox, "a", "10.0.0.200");
}

#[test]
fn instances_on_one_host_keep_out_of_each_others_way() {
    let sandbox = Sandbox::new();
    let one = Daemon::start(&sandbox, &two_tenants());
    let folder = sandbox.folder().join("other");
    let file = two_tenants();
    let mut command = sandbox.command(firelane_interop::binary("firelaned"));
    command.arg("--config").arg(&file).arg("--runtime-dir").arg(&folder).args(["--instance", "two"]);
    let mut two = command.spawn().expect("firelaned starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while namespaces(&sandbox).len() < 4 {
        assert!(std::time::Instant::now() < deadline, "the second instance does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(namespaces(&sandbox), ["alice", "bob", "two-alice", "two-bob"]);
    let _ = two.kill();
    let _ = two.wait();
    assert!(one.terminate().success());
    assert_eq!(namespaces(&sandbox), ["two-alice", "two-bob"]);
}

#[test]
fn another_mtu_reaches_interfaces_while_their_programs_run_on() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    daemon.firelane(&["dladm", "set-linkprop", "-p", "mtu=1500", "vswitch1"]).expect_success();
    for tenant in ["alice", "bob"] {
        let links = sandbox.run(Some(tenant), "ip", &["-o", "link"]).expect_success();
        assert!(links.contains("mtu 1500"), "{links}");
    }
    ping(&sandbox, "alice", "10.0.0.2");
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(status.contains("links 4  flows 1") && !status.contains("problem"), "{status}");
}

#[test]
fn killed_at_any_moment_it_starts_again_and_leaves_nothing_in_the_end() {
    let sandbox = Sandbox::new();
    let file = two_tenants();
    for milliseconds in [0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        let mut command = sandbox.command(firelane_interop::binary("firelaned"));
        command.arg("--config").arg(&file).arg("--runtime-dir").arg(sandbox.folder().join("run"));
        let mut daemon = command.spawn().expect("firelaned starts");
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        let _ = daemon.kill();
        let _ = daemon.wait();
    }
    let daemon = Daemon::start(&sandbox, &file);
    assert_eq!(namespaces(&sandbox), ["alice", "bob"]);
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(!status.contains("problem"), "{status}");
    ping(&sandbox, "alice", "10.0.0.2");
    assert!(daemon.terminate().success());
    assert!(namespaces(&sandbox).is_empty());
}

#[test]
fn a_link_leads_to_the_host_and_counts_both_ways() {
    const HOST: &str = "[link.net0]\nkind = \"tap\"\nifname = \"fl0\"\n\
        [vnic.web0]\nover = \"net0\"\nnetstack = \"web\"\n\
        [netstack.web.addresses]\n\"web0/v4\" = \"10.9.0.10/24\"\n";
    let sandbox = Sandbox::new();
    let file = written(&sandbox, "host.toml", HOST);
    let daemon = Daemon::start_with(&sandbox, &["--config", &file]);
    sandbox.run(None, "ip", &["address", "add", "10.9.0.1/24", "dev", "fl0"]).expect_success();
    sandbox.run(None, "ping", &["-c", "3", "-i", "0.2", "-W", "5", "10.9.0.10"]).expect_success();
    let stats = daemon.firelane(&["dlstat", "show-link", "-j", "net0"]).expect_success();
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    let text = stats.to_string();
    let counter = |name: &str| {
        let link = &stats["links"][0];
        link["traffic"][name].as_u64().unwrap_or_else(|| panic!("{name} in {text}"))
    };
    assert!(counter("ipackets") >= 3 && counter("opackets") >= 3, "{text}");
}

#[test]
fn an_address_that_a_tenant_has_is_not_used_and_told() {
    let sandbox = Sandbox::new();
    let text = fs::read_to_string(two_tenants()).expect("readable").replace("10.0.0.10/24", "10.0.0.1/24");
    let file = written(&sandbox, "twice.toml", &text);
    let daemon = Daemon::start_with(&sandbox, &["--config", &file]);
    let addresses = daemon.firelane(&["ipadm", "show-addr"]).expect_success();
    let state = |name: &str| addresses.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(state("web0/v4").contains("duplicate") && state("web0/v6").contains(" ok "), "{addresses}");
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(status.contains("web0/v4 10.0.0.1/24: another station has it"), "{status}");
    ping(&sandbox, "bob", "10.0.0.1");
    ping(&sandbox, "bob", "fd00::10");
}
