//! The preloaded library over a daemon without a netstack: what a program sees is what Linux shows it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Count, Loopback, Sandbox, binary};

/// A daemon in a folder of its own.
struct World {
    daemon: Loopback,
    folder: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("firelane-shim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { daemon: Loopback::start(&folder.join("app.sock")), folder }
    }

    fn preloaded(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program);
        command.env("LD_PRELOAD", binary("libfirelane_preload.so"));
        command.env("FIRELANE_APP_SOCKET", self.folder.join("app.sock")).env("FIRELANE_NETSTACK", "test");
        command.stdin(Stdio::null());
        command
    }

    fn script(&self, name: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim").join(name);
        expect_success(&self.preloaded("/usr/bin/python3").arg(script).output().unwrap());
        // What a program held is gone with it.
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.daemon.count() != Count::default() {
            assert!(Instant::now() < deadline, "left behind: {:?}", self.daemon.count());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn expect_success(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The answers of `firelane-calls`: state and call, and what was told.
fn answers(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| line.rsplit_once(": ").map(|(call, told)| (call.to_owned(), told.to_owned()));
    text.lines().filter_map(line).collect()
}

/// What the kernel answers, on an address of its own.
fn kernels(preload: &str) -> BTreeMap<String, String> {
    let sandbox = Sandbox::new();
    sandbox.run(None, "ip", &["addr", "add", "10.9.0.1/24", "dev", "lo"]).expect_success();
    let mut command = sandbox.command(binary("firelane-calls"));
    let output = command.arg("10.9.0.1").env("LD_PRELOAD", preload).output().unwrap();
    answers(&expect_success(&output))
}

/// Where the answers differ from the kernel's, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    // A connection that failed keeps its address until its socket is closed.
    ("refused: bind", "0", "errno 22"),
    ("reset: bind", "0", "errno 22"),
    // The daemon notices a moment later that both directions, or the listener, have ended.
    ("listening: shutdown twice", "errno 107", "0"),
    ("peer finished: shutdown twice", "errno 107", "0"),
];

#[test]
fn wrong_calls_are_answered_as_the_kernel_answers_them() {
    let world = World::new("calls");
    let output = world.preloaded(binary("firelane-calls")).arg("10.9.0.1").output().unwrap();
    let (mut ours, kernels) = (answers(&expect_success(&output)), kernels(""));
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

#[test]
fn bytes_go_in_and_out() {
    World::new("streams").script("streams.py");
}

#[test]
fn many_are_waited_for() {
    World::new("waiting").script("waiting.py");
}

#[test]
fn sockets_are_shared() {
    World::new("sharing").script("sharing.py");
}

#[test]
fn a_dead_daemon_keeps_nobody() {
    let world = World::new("death");
    let ready = world.folder.join("ready");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/death.py");
    let mut command = world.preloaded("/usr/bin/python3");
    let child =
        command.arg(script).arg(&ready).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ready.exists() {
        assert!(Instant::now() < deadline, "the program does not come so far");
        std::thread::sleep(Duration::from_millis(5));
    }
    // It closes all that it has, as the kernel does for one that was killed.
    world.daemon.stop();
    expect_success(&child.wait_with_output().unwrap());
}
