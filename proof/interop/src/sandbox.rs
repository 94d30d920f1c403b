//! A user, mount and network namespace that a test owns.
//!
//! A holder process keeps the namespaces; commands enter them with `nsenter`. At its end the sandbox ends what runs inside,
//! and with the last process go the interfaces and mounts. If the test is killed, the holder and the commands each get a signal
//! (parent-death signal). `/run` is a private tmpfs, so network namespaces named there belong to the sandbox alone.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use firelane_skipped::skipped;

/// What the holder does: private `/run`, loopback up, say so, and wait for the end of its input.
const HOLDER: &str =
    "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link set lo up && echo ready && cat";

/// A world of its own for one test.
#[derive(Debug)]
pub struct Sandbox {
    holder: Child,
    pid: u32,
    folder: PathBuf,
    is_root: bool,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Standard output of a command that must have succeeded.
    ///
    /// # Panics
    /// With the whole output, if it failed.
    #[track_caller]
    pub fn expect_success(self) -> String {
        assert!(self.status.success(), "{}\n{}\n{}{}", self.command, self.status, self.stdout, self.stderr);
        self.stdout
    }

    /// The exit code; 128 plus the signal if one ended it, as a shell says.
    pub fn code(&self) -> i32 {
        self.status.code().or(self.status.signal().map(|s| 128 + s)).unwrap_or(-1)
    }
}

/// A program that runs beside a test and ends with the value.
#[derive(Debug)]
pub struct Background(Child);

impl Background {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("nsenter is installed"))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sandbox {
    /// Makes the namespaces.
    ///
    /// # Panics
    /// If they cannot be made: `unshare` is missing or user namespaces are forbidden.
    pub fn new() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--net", "--propagation", "private"]);
        if !is_root {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["sh", "-c", HOLDER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("setpriv and unshare (util-linux) are installed");
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().expect("stdout is piped"))
            .read_line(&mut line)
            .expect("readable");
        assert_eq!(line, "ready\n", "the sandbox could not be made: user and network namespaces are needed");
        let pid = holder.id();
        let folder = private_folder();
        Self { holder, pid, folder, is_root }
    }

    /// A folder that is removed with the sandbox.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A program of C in that folder.
    ///
    /// # Panics
    /// If there is no compiler, or it refuses the text.
    pub fn compiled(&self, name: &str, text: &str, flags: &[&str]) -> PathBuf {
        let (source, made) = (self.folder.join(format!("{name}.c")), self.folder.join(name));
        std::fs::write(&source, text).expect("the sandbox's folder is writable");
        let done = Command::new("cc").arg(&source).arg("-o").arg(&made).args(flags).status();
        assert!(done.expect("a C compiler is installed").success());
        made
    }

    /// A command that will run inside, and is told to end if the thread that started it does not see its end: SIGTERM, which
    /// `timeout` hands on.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.pid.to_string()).args(["--mount", "--net"]);
        if !self.is_root {
            command.args(["--user", "--preserve-credentials"]);
        }
        // Behind nsenter: who gets other rights loses the signal.
        command.args(["--wdns=/", "--", "setpriv", "--pdeathsig", "TERM"]);
        command.arg(program).env("PATH", search_path());
        command
    }

    /// Runs a command line inside, in the network namespace `netns` if one is named.
    pub fn run(&self, netns: Option<&str>, program: &str, args: &[&str]) -> Output {
        match netns {
            Some(name) => finish(&mut self.command_in(name, &[program]), args),
            None => finish(&mut self.command(program), args),
        }
    }

    /// A veth pair: `near` in the daemon's namespace, and `far` in the new one `netns`, where the kernel has this address. `false`, and
    /// said, if none can be made here: a thin place of the tests' world.
    pub fn veth(&self, near: &str, netns: &str, address: &str) -> bool {
        let lines = [
            format!("netns add {netns}"),
            format!("link add {near} type veth peer name far netns {netns}"),
            format!("-n {netns} address add {address} dev far"),
            format!("-n {netns} link set far up"),
            format!("link set {near} up"),
        ];
        let is_made = lines.iter().all(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            self.run(None, "ip", &words).status.success()
        });
        if !is_made {
            skipped("no veth pair can be made here");
        }
        is_made
    }

    /// The shortest of ten round trips from a namespace, in milliseconds.
    ///
    /// # Panics
    /// If no answer comes.
    pub fn shortest_trip(&self, from: &str, to: &str) -> f64 {
        let said = self.run(Some(from), "ping", &["-n", "-c", "10", "-i", "0.05", "-W", "5", to]).stdout;
        let times = said
            .lines()
            .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse::<f64>().ok());
        times.reduce(f64::min).unwrap_or_else(|| panic!("{from} to {to}: {said}"))
    }

    /// A command line that will run inside, in the network namespace `netns`.
    pub fn command_in(&self, netns: &str, words: &[&str]) -> Command {
        let mut command = self.command("ip");
        command.args(["netns", "exec", netns]).args(words);
        command
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command, args: &[&str]) -> Output {
    let output = command.args(args).stdin(Stdio::null()).output().expect("nsenter is installed");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Output {
        command: format!("{command:?}"),
        status: output.status,
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Administration programs are found even where the test's own PATH lacks `/usr/sbin`.
pub fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/sbin:/sbin")
}

fn private_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("firelane-test-{}-{number}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return folder,
            // A test that was killed has left it, whose process had the same id.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: {error}", folder.display()),
        }
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The holder's namespaces end with the last process inside, so those are ended first.
        for pid in processes_in_namespace_of(self.pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Every process that shares the mount namespace of `pid`, which only this sandbox's processes do.
fn processes_in_namespace_of(pid: u32) -> Vec<rustix::process::Pid> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let Some(ours) = namespace(&pid.to_string()) else { return Vec::new() };
    if namespace("self").is_some_and(|own| own == ours) {
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && namespace(name).as_ref() == Some(&ours))
        .filter_map(|name| rustix::process::Pid::from_raw(name.parse().ok()?))
        .collect()
}
