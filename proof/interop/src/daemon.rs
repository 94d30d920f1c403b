//! A real `firelaned` inside a sandbox.
//!
//! Tests start it with a configuration, speak to it with the real `firelane` command, and may kill it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::cpuset::Cpuset;
use crate::sandbox::{Output, Sandbox, finish};

/// How long the daemon may take to answer after its start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running daemon.
#[derive(Debug)]
pub struct Daemon<'a> {
    sandbox: &'a Sandbox,
    child: Child,
    runtime: PathBuf,
}

impl<'a> Daemon<'a> {
    /// Starts `firelaned` with the configuration file `config` and waits until it answers.
    ///
    /// # Panics
    /// If it does not answer within ten seconds; its messages are on standard error then.
    pub fn start(sandbox: &'a Sandbox, config: &Path) -> Self {
        Self::start_with(sandbox, &["--config", &config.to_string_lossy()])
    }

    /// Starts `firelaned` with a configuration in words and waits until it answers.
    ///
    /// # Panics
    /// As [`Daemon::start`].
    pub fn start_as(sandbox: &'a Sandbox, config: &str) -> Self {
        let path = sandbox.folder().join("host.toml");
        std::fs::write(&path, config).expect("the sandbox's folder is writable");
        Self::start(sandbox, &path)
    }

    /// Starts `firelaned` with `args` and waits until it answers. The same sandbox means the same folders.
    ///
    /// # Panics
    /// As [`Daemon::start`].
    pub fn start_with(sandbox: &'a Sandbox, args: &[&str]) -> Self {
        let mut command = sandbox.command(binary("firelaned"));
        command.args(args);
        Self::await_start(sandbox, command)
    }

    /// Starts `firelaned` with a configuration in words, waits until it answers, and gives the file to which it writes its log.
    ///
    /// # Panics
    /// As [`Daemon::start`].
    pub fn start_logged(sandbox: &'a Sandbox, config: &str) -> (Self, PathBuf) {
        let [config_path, log] = ["host.toml", "log"].map(|name| sandbox.folder().join(name));
        std::fs::write(&config_path, config).expect("the sandbox's folder is writable");
        let mut command = sandbox.command(binary("firelaned"));
        command.arg("--config").arg(&config_path);
        command.stderr(std::fs::File::create(&log).expect("the sandbox's folder is writable"));
        (Self::await_start(sandbox, command), log)
    }

    /// Starts `firelaned` with a configuration in words, as a process of a cpuset, waits until it answers, and gives the file
    /// to which it writes its log.
    ///
    /// # Panics
    /// As [`Daemon::start`].
    pub fn start_in(sandbox: &'a Sandbox, cpuset: &Cpuset, config: &str) -> (Self, PathBuf) {
        let [config_path, log] = ["host.toml", "log"].map(|name| sandbox.folder().join(name));
        std::fs::write(&config_path, config).expect("the sandbox's folder is writable");
        let mut command = sandbox.command("sh");
        command.args(["-c", "echo 0 >\"$1\" && log=$2 && shift 2 && exec \"$@\" 2>\"$log\"", "sh"]);
        command.arg(cpuset.door()).arg(&log).arg(binary("firelaned")).arg("--config").arg(&config_path);
        (Self::await_start(sandbox, command), log)
    }

    fn await_start(sandbox: &'a Sandbox, mut command: Command) -> Self {
        let runtime = Self::runtime_in(sandbox);
        command.arg("--runtime-dir").arg(&runtime);
        if !says_lanes(&command) {
            command.args(["--lanes", "2"]);
        }
        let child = command.stdin(Stdio::null()).spawn().expect("firelaned starts");
        let daemon = Self { sandbox, child, runtime };
        let deadline = Instant::now() + START_TIMEOUT;
        while !daemon.firelane(&["status"]).status.success() {
            assert!(Instant::now() < deadline, "firelaned does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    /// Runs `firelaned` with `args` and the folders of [`Daemon::start`] to its end, which it must reach by itself.
    pub fn run(sandbox: &Sandbox, args: &[&str]) -> Output {
        let mut command = sandbox.command(binary("firelaned"));
        command.arg("--runtime-dir").arg(Self::runtime_in(sandbox));
        finish(&mut command, args)
    }

    fn runtime_in(sandbox: &Sandbox) -> PathBuf {
        sandbox.folder().join("run")
    }

    /// Runs the `firelane` command against this daemon.
    pub fn firelane(&self, args: &[&str]) -> Output {
        let mut command = self.sandbox.command(binary("firelane"));
        command.env("FIRELANE_SOCKET", self.runtime.join("api.sock"));
        finish(&mut command, args)
    }

    /// The sockets of a program, as `firelane explain` tells of them.
    ///
    /// # Panics
    /// If it does not.
    pub fn explained_sockets(&self, pid: &str) -> Vec<serde_json::Value> {
        let said = self.firelane(&["explain", "-j", pid]).expect_success();
        let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        report["program"]["sockets"].as_array().expect("a list").clone()
    }

    /// Where the daemon keeps its socket and state.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the daemon to end (SIGTERM) and waits until it has.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn terminate(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.child.wait().expect("our own child")
    }

    /// Ends the daemon without warning (SIGKILL).
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of one of our programs, built beside the tests.
///
/// # Panics
/// If it cannot be built.
pub fn binary(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(build);
    folder.join(name)
}

/// From when on it is said that a build has taken part of a test's time.
const LONG_BUILD: Duration = Duration::from_secs(2);

/// Where the programs lie that whoever runs the tests has built already (`make test` does).
const PROGRAMS: &str = "FIRELANE_PROGRAMS";

/// Builds the programs once per test run, in the profile of the tests, and returns their folder.
/// Whether the number of lanes is said by an option, or in the configuration. Where it is not tests have two: on the smallest machines
/// the daemon would have one, and whatever lanes have to do with each other would not be tried.
fn says_lanes(command: &Command) -> bool {
    let args: Vec<&OsStr> = command.get_args().collect();
    let config = args.windows(2).find(|pair| pair[0] == "--config").map(|pair| pair[1]);
    let text = config.and_then(|path| std::fs::read_to_string(path).ok());
    args.contains(&OsStr::new("--lanes")) || text.is_some_and(|it| it.contains("lanes"))
}

fn build() -> PathBuf {
    if let Some(folder) = std::env::var_os(PROGRAMS) {
        return folder.into();
    }
    let tests = std::env::current_exe().expect("a test is a file");
    let profile = tests.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps").to_owned();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "build",
        "--quiet",
        "--package",
        "firelane-cli",
        "--package",
        "firelane-daemon",
        "--package",
        "firelane-shim",
    ]);
    // The folder has the name of the profile, but for that of `dev`.
    let name = profile.file_name().expect("a folder has a name");
    if name != "debug" {
        command.arg("--profile").arg(name);
    }
    command.env("CARGO_TARGET_DIR", profile.parent().expect("target"));
    let begun = Instant::now();
    assert!(command.status().expect("cargo runs").success(), "the programs build");
    if begun.elapsed() > LONG_BUILD {
        // It is counted as the first test's time.
        eprintln!("the programs were built first, in {:.0?}", begun.elapsed());
    }
    profile
}
