//! Where unmodified programs are tested: a real daemon with a netstack for them, and the kernel's beside it.
//!
//! [`On::Firelane`] is the netstack `web`, whose programs `firelane run` starts; [`On::Kernel`] is a network namespace
//! on the same switch, and [`On::Neighbour`] another netstack there, where a test asks for one. What a program leaves behind
//! in the daemon is counted in descriptors: each socket has one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, binary};
use crate::sandbox::{Output, Sandbox};

const HOST: &str = r#"
[etherstub.s1]
[vnic.web0]
over = "s1"
netstack = "web"
[vnic.kernel0]
over = "s1"
tap = { namespace = "kernel", addresses = ["10.0.0.1/24"] }
[netstack.web.addresses]
"web0/v4" = "10.0.0.10/24"
"#;

const NEIGHBOUR: &str = r#"
[vnic.next0]
over = "s1"
netstack = "next"
[netstack.next.addresses]
"next0/v4" = "10.0.0.20/24"
"#;

/// A second link for both. At each a third station has the same address of that link alone.
const SECOND_LINK: &str = r#""web0/ll" = "fe80::10/64"
"web1/ll" = "fe80::11/64"
[etherstub.s2]
[vnic.web1]
over = "s2"
netstack = "web"
[vnic.kernel1]
over = "s2"
tap = { namespace = "kernel", addresses = ["fe80::21/64"] }
[vnic.alice0]
over = "s1"
tap = { namespace = "alice", addresses = ["fe80::a/64"] }
[vnic.bob0]
over = "s2"
tap = { namespace = "bob", addresses = ["fe80::a/64"] }
"#;

/// A tunnel to the kernel's end, and one of 6to4, with an address of the first.
const TUNNELS: &str = r#""tun0/v4" = "172.16.0.1/30"
[vnic.tun0]
iptun = { type = "ipv4", local = "10.0.0.10", remote = "10.0.0.1" }
netstack = "web"
[vnic.tun1]
iptun = { type = "6to4", local = "10.0.0.10" }
netstack = "web"
"#;

/// How long a program may take, and a server may live.
const SECONDS: &str = "90";
/// How long a server may take to answer, and the daemon to forget a program.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a program's sockets are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// On the netstack, at [`Stage::FIRELANE`].
    Firelane,
    /// In the kernel's namespace, at [`Stage::KERNEL`].
    Kernel,
    /// On the other netstack, at [`Stage::NEIGHBOUR`].
    Neighbour,
}

/// Both places.
pub const BOTH: [On; 2] = [On::Firelane, On::Kernel];

/// A daemon with both.
#[derive(Debug)]
pub struct Stage<'a> {
    sandbox: &'a Sandbox,
    daemon: Daemon<'a>,
    /// The daemon's descriptors before the first program.
    descriptors: usize,
}

/// A server that ends with its test.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for its end, which must be a success: what it has printed.
    ///
    /// # Panics
    /// If it is none.
    #[track_caller]
    pub fn expect_success(mut self) -> String {
        let status = self.child.wait().expect("our own child");
        assert!(status.success(), "{status}\n{}", self.log());
        self.log()
    }

    /// Whether it ends within so much time.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if self.child.try_wait().expect("our own child").is_some() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its process, or that of `timeout` in front of it, which hands signals on.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

impl<'a> Stage<'a> {
    /// The netstack's address.
    pub const FIRELANE: &'static str = "10.0.0.10";
    /// The kernel's.
    pub const KERNEL: &'static str = "10.0.0.1";
    /// The other netstack's.
    pub const NEIGHBOUR: &'static str = "10.0.0.20";

    /// Starts a daemon with so many lanes.
    ///
    /// # Panics
    /// If it does not start.
    pub fn new(sandbox: &'a Sandbox, lanes: usize) -> Self {
        Self::start(sandbox, lanes, HOST, &["web0/v4"])
    }

    /// The same with another netstack.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with_neighbour(sandbox: &'a Sandbox, lanes: usize) -> Self {
        Self::start(sandbox, lanes, &format!("{HOST}{NEIGHBOUR}"), &["web0/v4", "next0/v4"])
    }

    /// The same with two tunnels of the netstack's.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with_tunnels(sandbox: &'a Sandbox, lanes: usize) -> Self {
        Self::start(sandbox, lanes, &format!("{HOST}{TUNNELS}"), &["web0/v4", "tun0/v4"])
    }

    /// The same with two links, to both places, and a station at each: `alice` and `bob`, which are called `fe80::a` there.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with_two_links(sandbox: &'a Sandbox, lanes: usize) -> Self {
        let host = HOST.replace("\"10.0.0.1/24\"", "\"10.0.0.1/24\", \"fe80::20/64\"");
        Self::start(sandbox, lanes, &format!("{host}{SECOND_LINK}"), &["web0/v4", "web0/ll", "web1/ll"])
    }

    /// The same with a netstack that has lanes of its own on these CPUs, beside those that all share.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with_own_lanes(sandbox: &'a Sandbox, lanes: usize, cpus: &str) -> Self {
        Self::start(sandbox, lanes, &format!("{HOST}[netstack.web]\ncpus = \"{cpus}\"\n"), &["web0/v4"])
    }

    /// The same with so many bytes of memory for each program.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with_memory(sandbox: &'a Sandbox, lanes: usize, bytes: usize) -> Self {
        let programs = format!("[netstack.web.programs]\nmemory = {bytes}\n");
        Self::start(sandbox, lanes, &format!("{HOST}{programs}"), &["web0/v4"])
    }

    /// The same with a wire between the two, of what it is made as in the file.
    ///
    /// # Panics
    /// If it does not start.
    pub fn across_a_wire(sandbox: &'a Sandbox, lanes: usize, both: &str) -> Self {
        let far = HOST.replace("[vnic.kernel0]\nover = \"s1\"", "[vnic.kernel0]\nover = \"s2\"");
        let wire = format!("[etherstub.s2]\n[wire.w0]\nends = [\"s1\", \"s2\"]\nboth = {both}\n");
        Self::start(sandbox, lanes, &format!("{far}{wire}"), &["web0/v4"])
    }

    fn start(sandbox: &'a Sandbox, lanes: usize, host: &str, addresses: &[&str]) -> Self {
        let config = sandbox.folder().join("host.toml");
        std::fs::write(&config, host).expect("the sandbox's folder is writable");
        // Servers that give up their rights still read and write here.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(sandbox.folder(), open).expect("the folder is ours");
        let lanes = lanes.to_string();
        let daemon = Daemon::start_with(sandbox, &["--config", &config.to_string_lossy(), "--lanes", &lanes]);
        // An address is nobody's before its conflict detection ends, and sockets cannot be bound to it.
        let deadline = Instant::now() + Duration::from_secs(20);
        for address in addresses {
            let shown = || daemon.firelane(&["ipadm", "show-addr", address]).expect_success();
            while !shown().contains(" ok ") {
                assert!(Instant::now() < deadline, "the address does not come: {}", shown());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let descriptors = descriptors_of(&daemon);
        Self { sandbox, daemon, descriptors }
    }

    /// A folder that is removed with the sandbox.
    pub fn folder(&self) -> &'a Path {
        self.sandbox.folder()
    }

    /// The daemon.
    pub fn daemon(&self) -> &Daemon<'a> {
        &self.daemon
    }

    /// Ends the daemon as the out-of-memory killer would.
    pub fn kill_daemon(self) {
        self.daemon.kill();
    }

    /// A command line.
    pub fn command(&self, on: On, words: &[&str]) -> Command {
        self.command_with(on, &[], words)
    }

    /// A command line with further options of `firelane run`, which the kernel's has none of.
    fn command_with(&self, on: On, options: &[&str], words: &[&str]) -> Command {
        let mut command = match on {
            On::Firelane | On::Neighbour => {
                let mut command = self.sandbox.command("timeout");
                command.env("FIRELANE_SOCKET", self.daemon.runtime().join("api.sock"));
                command.env("FIRELANE_PRELOAD", binary("libfirelane_preload.so"));
                command.args(["-k", "2", SECONDS]).arg(binary("firelane"));
                let vnic = if on == On::Firelane { "web0" } else { "next0" };
                command.args(["run", "--quiet", "--require", "-v", vnic]).args(options).arg("--");
                command
            }
            On::Kernel => {
                let mut command = self.sandbox.command("ip");
                command.args(["netns", "exec", "kernel", "timeout", "-k", "2", SECONDS]);
                command
            }
        };
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Starts a server.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn serve(&self, on: On, words: &[&str]) -> Server {
        self.serve_with(on, &[], words)
    }

    /// Starts a server with further options of `firelane run`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn serve_with(&self, on: On, options: &[&str], words: &[&str]) -> Server {
        self.spawn(&mut self.command_with(on, options, words))
    }

    fn spawn(&self, command: &mut Command) -> Server {
        let log = self.folder().join(format!("log-{}", self.folder().read_dir().map_or(0, Iterator::count)));
        let out = File::create(&log).expect("the folder is writable");
        let errors = out.try_clone().expect("a descriptor");
        let child = command.stdout(out).stderr(errors).spawn();
        Server { child: child.expect("nsenter is installed"), log }
    }

    /// Starts a server in another namespace.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn serve_in(&self, netns: &str, words: &[&str]) -> Server {
        let words = [&["timeout", "-k", "2", SECONDS], words].concat();
        self.spawn(self.sandbox.command_in(netns, &words).stdin(Stdio::null()))
    }

    /// Runs a program to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&self, on: On, words: &[&str]) -> Output {
        self.run_with(on, &[], words)
    }

    /// The same with further options of `firelane run`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run_with(&self, on: On, options: &[&str], words: &[&str]) -> Output {
        // Into files: what a program leaves running would hold a pipe open.
        let [out, errors] = ["out", "errors"].map(|name| self.folder().join(format!("{name}-{on:?}")));
        let file = |path: &Path| File::create(path).expect("the folder is writable");
        let mut command = self.command_with(on, options, words);
        let status = command.stdout(file(&out)).stderr(file(&errors)).status();
        let text =
            |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        Output {
            command: format!("{on:?}: {}", words.join(" ")),
            status: status.expect("nsenter is installed"),
            stdout: text(&out),
            stderr: text(&errors),
        }
    }

    /// What a program prints, which must succeed.
    ///
    /// # Panics
    /// With its output, if it fails.
    #[track_caller]
    pub fn ask(&self, on: On, words: &[&str]) -> String {
        self.run(on, words).expect_success()
    }

    /// Whether the netstack fuses its connections: a value of `_fusion`.
    ///
    /// # Panics
    /// It is no such value.
    #[track_caller]
    pub fn set_fusion(&self, fusion: &str) {
        let property = format!("_fusion={fusion}");
        let words = ["ipadm", "set-prop", "-t", "-N", "web", "-p", &property, "tcp"];
        self.daemon.firelane(&words).expect_success();
    }

    /// Asks until the server has started.
    ///
    /// # Panics
    /// With what the server said, if it never answers.
    #[track_caller]
    pub fn wait_for(&self, server: &Server, on: On, words: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.run(on, words);
            if output.status.success() {
                return output.stdout;
            }
            assert!(Instant::now() < deadline, "{output:?}\n{}", server.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The report of an iperf3 client, once its server listens: iperf3's server listens anew after each client, a moment
    /// after that client has left, and a client that is refused says so in its report and is content.
    ///
    /// # Panics
    /// With what it reported, if it is an error that stays.
    #[track_caller]
    pub fn iperf3(&self, server: &Server, on: On, words: &[&str]) -> serde_json::Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.wait_for(server, on, &[&["iperf3", "--json"], words].concat());
            let report: serde_json::Value = serde_json::from_str(&text).expect("iperf3 prints JSON");
            if report["error"].is_null() {
                return report;
            }
            assert!(Instant::now() < deadline, "{report}\n{}", server.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the daemon has nothing left of any program.
    ///
    /// # Panics
    /// If it keeps something.
    #[track_caller]
    pub fn wait_until_nothing_is_left(&self) {
        let deadline = Instant::now() + PATIENCE;
        while descriptors_of(&self.daemon) > self.descriptors {
            let left = descriptors_of(&self.daemon);
            assert!(Instant::now() < deadline, "{left} descriptors, {} before", self.descriptors);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn descriptors_of(daemon: &Daemon<'_>) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).map_or(0, Iterator::count)
}
