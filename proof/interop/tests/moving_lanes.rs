//! `cpus` of the daemon: its lanes move between CPUs while a tenant's traffic passes them.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use firelane_interop::{Comparing, Cpuset, Daemon, Sandbox, cpu_ends, serve_echoes, skipped, until};

const TENANTS: &str = "[etherstub.s0]\n\
    [vnic.alice0]\nover = \"s0\"\ntap = { namespace = \"alice\", addresses = [\"10.0.0.1/24\"] }\n\
    [vnic.bob0]\nover = \"s0\"\ntap = { namespace = \"bob\", addresses = [\"10.0.0.2/24\"] }\n";

/// The CPUs of each lane's thread, in the lanes' order, as the kernel spells them.
fn lanes(daemon: &Daemon<'_>) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("the daemon runs");
    let mut lanes: Vec<(String, String)> = tasks
        .filter_map(|task| {
            let folder = task.ok()?.path();
            let name = fs::read_to_string(folder.join("comm")).ok()?;
            Some((name.trim().strip_prefix("lane")?.to_owned(), allowed(&folder.join("status"))))
        })
        .collect();
    lanes.sort();
    lanes.into_iter().map(|(_, cpus)| cpus).collect()
}

fn allowed(status: &Path) -> String {
    let status = fs::read_to_string(status).expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("Linux tells").trim().to_owned()
}

/// How long what the daemon does by itself may take.
const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn lanes_follow_the_file_while_traffic_passes_and_a_wrong_cpu_moves_none() {
    let sandbox = Sandbox::new();
    let write = |name: &str, daemon: &str| {
        let path = sandbox.folder().join(name);
        fs::write(&path, format!("[daemon]\nlanes = 2\n{daemon}\n{TENANTS}")).expect("writable");
        path.to_string_lossy().into_owned()
    };
    let anywhere = write("anywhere.toml", "");
    let daemon = Daemon::start(&sandbox, Path::new(&anywhere));
    let all = allowed(Path::new("/proc/self/status"));
    assert_eq!(lanes(&daemon), [all.clone(), all.clone()]);
    // The first and the last CPU of what the kernel calls 0-1, or 0,2-3.
    let numbers: Vec<&str> = all.split([',', '-']).collect();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let ping = sandbox
        .command("ip")
        .args(["netns", "exec", "alice", "ping", "-q", "-i", "0.02", "-c", "150", "-W", "5", "10.0.0.2"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ping is installed");
    let each = if first == last { first.to_owned() } else { format!("{last},{first}") };
    let bound = write("bound.toml", &format!("cpus = \"{each}\""));
    for _ in 0..5 {
        let applied = daemon.firelane(&["apply", &bound]).expect_success();
        assert!(applied.starts_with("live") && applied.contains("set daemon cpus --"), "{applied}");
        assert_eq!(lanes(&daemon), [last, first]);
        daemon.firelane(&["apply", &anywhere]).expect_success();
        assert_eq!(lanes(&daemon), [all.clone(), all.clone()]);
    }
    daemon.firelane(&["apply", &bound]).expect_success();
    let wrong = write("wrong.toml", "cpus = \"1023\"");
    let refused = daemon.firelane(&["apply", &wrong]);
    assert!(refused.code() != 0 && refused.stderr.contains("CPU 1023 does not exist"), "{}", refused.stderr);
    assert_eq!(lanes(&daemon), [last, first], "and nothing has moved");
    assert!(daemon.firelane(&["dump"]).expect_success().contains(&format!("cpus = \"{each}\"")));
    let doctor = daemon.firelane(&["doctor"]);
    assert!(doctor.stdout.contains(&format!("in their order on {last},{first}")), "{}", doctor.stdout);
    // Somebody moves lanes behind the daemon's back, as the kernel does when a CPU goes off line and comes again.
    if first != last {
        let pid = daemon.pid().to_string();
        sandbox.run(None, "taskset", &["-a", "-c", "-p", &all, &pid]).expect_success();
        until("lanes return", LIMIT, || lanes(&daemon) == [last, first]);
        let doctor = daemon.firelane(&["doctor"]).stdout;
        assert!(doctor.contains(&format!("came back, once; the last time to CPU {last}")), "{doctor}");
        assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
    }
    let output = ping.wait_with_output().expect("ping ends");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("150 received"), "{told}");
}

#[test]
fn a_start_has_its_lanes_where_the_file_says() {
    let sandbox = Sandbox::new();
    let path = sandbox.folder().join("bound.toml");
    let all = allowed(Path::new("/proc/self/status"));
    let last = all.rsplit([',', '-']).next().expect("one at least");
    fs::write(&path, format!("[daemon]\nlanes = 2\ncpus = \"{last}\"\n{TENANTS}")).expect("writable");
    let daemon = Daemon::start(&sandbox, &path);
    assert_eq!(lanes(&daemon), [last, last]);
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
}

#[test]
fn a_start_with_a_cpu_that_is_gone_runs_anywhere_and_says_so() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, &format!("[daemon]\nlanes = 1\ncpus = \"1023\"\n{TENANTS}"));
    assert_eq!(lanes(&daemon), [allowed(Path::new("/proc/self/status"))]);
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(status.contains("problem:") && status.contains("CPU 1023 does not exist"), "{status}");
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "10.0.0.2"]).expect_success();
}

#[test]
fn lanes_run_as_long_at_a_time_as_the_file_says() {
    let sandbox = Sandbox::new();
    let path = sandbox.folder().join("slice.toml");
    let write = |line: &str| {
        fs::write(&path, format!("[daemon]\nlanes = 2\n{line}\n{TENANTS}")).expect("writable");
        path.to_string_lossy().into_owned()
    };
    write("");
    let daemon = Daemon::start(&sandbox, &path);
    let slice =
        || daemon.firelane(&["doctor"]).stdout.lines().find(|it| it.contains("slice")).map(str::to_owned);
    let knows_slices = !slice().expect("doctor tells of it").contains("one for all threads");
    let expect = |wanted: &str| {
        let told = slice().expect("doctor tells of it");
        assert!(!knows_slices || told.contains(&format!("lanes run for {wanted} at a time")), "{told}");
    };
    expect("100us");
    let applied = daemon.firelane(&["apply", &write("slice = \"3ms\"")]).expect_success();
    assert!(applied.starts_with("live") && applied.contains("set daemon slice 100us -> 3ms"), "{applied}");
    expect("3ms");
    let refused = daemon.firelane(&["apply", &write("slice = \"50us\"")]);
    assert!(
        refused.code() != 0 && refused.stderr.contains("slice is kernel, or a time from 100us to 100ms"),
        "{}",
        refused.stderr
    );
    expect("3ms");
    daemon.firelane(&["apply", &write("slice = \"kernel\"")]).expect_success();
    assert!(daemon.firelane(&["dump"]).expect_success().contains("slice = \"kernel\""));
}

/// The first and the last CPU, a configuration whose lanes run on both and where bob0 has a lane of its own on the last, and
/// what takes CPUs away; `None` where they cannot be taken away.
fn two_cpus() -> Option<(String, String, String, Cpuset)> {
    let (first, last) = cpu_ends();
    let bob = format!("[vnic.bob0]\ncpus = \"{last}\"\n");
    let tenants = TENANTS.replace("[vnic.bob0]\n", &bob);
    let config = format!("[daemon]\nlanes = 2\ncpus = \"{last},{first}\"\n{tenants}");
    let cpuset = Cpuset::make().filter(|_| first != last);
    if cpuset.is_none() {
        skipped("no cpuset may be made here, or there is one CPU");
    }
    cpuset.map(|cpuset| (first, last, config, cpuset))
}

fn effective(daemon: &Daemon<'_>) -> String {
    let words = ["dladm", "show-linkprop", "-c", "-o", "value", "-p", "cpus-effective", "bob0"];
    daemon.firelane(&words).expect_success().trim().to_owned()
}

#[test]
fn lanes_return_to_a_cpu_that_was_taken_away_and_no_byte_is_lost() {
    let Some((first, last, config, cpuset)) = two_cpus() else { return };
    let sandbox = Sandbox::new();
    let (daemon, log) = Daemon::start_in(&sandbox, &cpuset, &config);
    let _server = serve_echoes(&sandbox);
    let compares = Comparing::begin(&sandbox, "alice", "6", "4");
    let logged = |text: &str| fs::read_to_string(&log).expect("it logs").matches(text).count();
    for round in 1..=3 {
        cpuset.allow(&first);
        until("the loss is told", LIMIT, || logged(&format!("lane 0 has lost CPU {last}")) == round);
        assert_eq!(lanes(&daemon), [&*first, &*first]);
        assert_eq!(effective(&daemon), first);
        for words in [&["status"][..], &["doctor"]] {
            let said = daemon.firelane(words).stdout;
            let of = |who: &str| {
                format!("cpus: {who} may run on {first}, not on {last} alone, which is off line or not for")
            };
            assert!(said.contains(&of("lane 0")) && said.contains(&of("lanes of bob0")), "{said}");
        }
        let asks = ["dladm", "set-linkprop", "-t", "-p", &format!("cpus={last}"), "alice0"];
        let refused = daemon.firelane(&asks);
        assert!(refused.code() == 1 && refused.stderr.contains("processor not online"), "{refused:?}");
        cpuset.allow(&format!("{first},{last}"));
        until("the return is told", LIMIT, || logged(&format!("lane 0 is back on CPU {last}")) == round);
        until("the link's lane returns", LIMIT, || effective(&daemon) == last);
        assert_eq!(lanes(&daemon), [&*last, &*first]);
        assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
        let doctor = daemon.firelane(&["doctor"]).stdout;
        let times = if round == 1 { "once".to_owned() } else { format!("{round} times") };
        assert!(doctor.contains(&format!("lane 0 had to leave its CPU and came back, {times};")), "{doctor}");
    }
    compares.ends_well();
}

#[test]
fn what_a_start_was_refused_is_given_when_the_cpu_comes() {
    let Some((first, last, config, cpuset)) = two_cpus() else { return };
    let sandbox = Sandbox::new();
    cpuset.allow(&first);
    let (daemon, _) = Daemon::start_in(&sandbox, &cpuset, &config);
    let status = daemon.firelane(&["status"]).expect_success();
    for what in ["set daemon cpus", "create vnic bob0"] {
        assert!(status.contains(&format!("problem: {what}")), "{status}");
    }
    assert_eq!(effective(&daemon), "");
    cpuset.allow(&format!("{first},{last}"));
    until("both are given", LIMIT, || lanes(&daemon) == [&*last, &*first]);
    until("nothing is missing", LIMIT, || !daemon.firelane(&["status"]).expect_success().contains("problem"));
}
