//! `cpus` of the daemon: its lanes move between CPUs while a tenant's traffic passes them.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use firelane_interop::{Daemon, Sandbox};

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
    // Somebody moves a lane behind the daemon's back, as the kernel does when a CPU goes off line.
    if first != last {
        let pid = daemon.pid().to_string();
        sandbox.run(None, "taskset", &["-a", "-c", "-p", &all, &pid]).expect_success();
        let status = daemon.firelane(&["status"]).expect_success();
        assert!(status.contains("problem: cpus: lane 0 may run on"), "{status}");
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
    let path = sandbox.folder().join("gone.toml");
    fs::write(&path, format!("[daemon]\nlanes = 1\ncpus = \"1023\"\n{TENANTS}")).expect("writable");
    let daemon = Daemon::start(&sandbox, &path);
    assert_eq!(lanes(&daemon), [allowed(Path::new("/proc/self/status"))]);
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(status.contains("problem:") && status.contains("CPU 1023 does not exist"), "{status}");
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "10.0.0.2"]).expect_success();
}
