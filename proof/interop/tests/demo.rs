//! The demo itself, and what it leaves behind: nothing, also after its daemon was killed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use firelane_interop::{Daemon, Sandbox, binary, search_path};
use serde_json::Value;

/// A demo of its own: the number stands for a user, and so for a folder.
struct Demo {
    sandbox: Sandbox,
    owner: u32,
}

impl Demo {
    fn new(nth: u32) -> Self {
        // Above every number that a user has.
        Self { sandbox: Sandbox::new(), owner: 4_000_000_000 + std::process::id() * 4 + nth }
    }

    fn folder(&self) -> PathBuf {
        format!("/var/tmp/firelane-demo-{}", self.owner).into()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.command(binary("firelane"));
        command.arg("demo").args(words).env("FIRELANE_DEMO_OWNER", self.owner.to_string());
        command
    }

    fn clean(&self) {
        let output = self.command(&["--clean"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !self.folder().exists(), "{text}");
        let left = self.sandbox.run(None, "ip", &["netns", "list"]).expect_success();
        assert_eq!(left, "", "namespaces are left");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.command(&["--clean"]).output();
        let _ = std::fs::remove_dir_all(self.folder());
    }
}

/// An iperf3 whose server takes its time before it listens, as one on a busy machine does; the `PATH` that finds it first.
fn slow_iperf3(folder: &Path) -> String {
    let path = search_path();
    let real = path.split(':').map(|folder| Path::new(folder).join("iperf3")).find(|file| file.exists());
    let real = real.expect("make test installs iperf3");
    let script =
        format!("#!/bin/sh\ncase \"$*\" in *--server*) sleep 0.3 ;; esac\nexec {} \"$@\"\n", real.display());
    let file = folder.join("iperf3");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{path}", folder.display())
}

#[test]
fn everything_that_the_demo_wants_is_measured() {
    let demo = Demo::new(0);
    let path = slow_iperf3(demo.sandbox.folder());
    let output = demo.command(&["--json"]).env("PATH", path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let document: Value = serde_json::from_str(&text).expect("one JSON document");
    let checks = document["demo"]["checks"].as_array().expect("checks");
    assert_eq!(checks.len(), 9, "{text}");
    for check in checks {
        // A rate is measured against the clock of a machine that other tests share: a quarter is enough here.
        let wire = check["figures"]["wire_megabits_per_second"].as_f64();
        let wanted = check["wanted"].as_str().and_then(|w| w.split(' ').next()?.parse::<f64>().ok());
        let is_near = wire.zip(wanted).is_some_and(|(wire, wanted)| (wire / wanted - 1.0).abs() < 0.25);
        let is_fast = check["name"].as_str().is_some_and(|name| name.contains("without a limit"));
        let has_run = is_fast && check["figures"]["gigabits_per_second"].as_f64().is_some_and(|g| g > 0.1);
        assert!(check["ok"] == true || is_near || has_run, "{check:#}");
    }
    let flows = document["demo"]["flowstat"].as_array().expect("flows");
    assert!(flows.iter().any(|f| f["name"] == "iperf" && f["traffic"]["rbytes"].as_u64() > Some(1_000_000)));
    assert!(!demo.folder().exists(), "it cleans up after itself");
    demo.clean();
}

#[test]
fn a_demo_that_runs_on_can_be_used_killed_and_cleaned() {
    let demo = Demo::new(1);
    let output = demo.command(&["--keep"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("It runs on. Try:"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let page = demo.sandbox.run(Some("alice"), "curl", &["-sS", "http://10.0.0.10/"]).expect_success();
    assert!(page.contains("Served by Firelane"), "{page}");
    let pid = std::fs::read_to_string(demo.folder().join("daemon.pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    demo.clean();
}

#[test]
fn a_demo_beside_a_daemon_with_its_namespaces_says_what_is_in_the_way() {
    let demo = Demo::new(2);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml");
    let daemon = Daemon::start(&demo.sandbox, &example);
    let output = demo.command(&[]).output().unwrap();
    let (text, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), why.lines().count()), (Some(1), 1), "{text}{why}");
    assert!(why.contains("another firelaned") && why.contains("tap=alice0"), "{why}");
    assert!(!text.contains("FAILED"), "{text}");
    assert!(!demo.folder().exists(), "it cleans up after itself");
    // Whose namespaces they are has lost nothing.
    demo.sandbox.run(Some("alice"), "ping", &["-c", "1", "10.0.0.2"]).expect_success();
    daemon.terminate();
}
