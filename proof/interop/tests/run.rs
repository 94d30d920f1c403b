//! `firelane run`: the path that a program gets, what it says, and what is left of it afterwards.
//!
//! The library is stood for by one that a test builds where only the way there matters: what the programs do over it
//! is tested where the library is.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Output, Sandbox, binary, skipped};

const HOST: &str = r#"
[etherstub.vswitch1]

[vnic.web0]
over = "vswitch1"
netstack = "web"
maxbw = "200M"

[vnic.alice0]
over = "vswitch1"
tap = { namespace = "alice", addresses = ["10.0.0.1/24"] }

[netstack.web]
routes = [{ destination = "192.0.2.0/24", gateway = "10.0.0.253" }]

[netstack.web.addresses]
"web0/v4" = "10.0.0.10/24"

[flow.iperf]
link = "web0"
match = { transport = "tcp", local_port = 5201, local_ip = "10.0.0.10" }
maxbw = "50M"
"#;

/// Prints what the loader was asked for, as a library would see it; ends with 7, or waits for a signal.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (char **it = (char *[]){"LD_PRELOAD", "FIRELANE_NETSTACK", "FIRELANE_VNIC", "FIRELANE_APP_SOCKET", 0}; *it; it++)
        printf("%s=%s\n", *it, getenv(*it) ? getenv(*it) : "");
    printf("argv0=%s pid=%d\n", argv[0], getpid());
    fflush(stdout);
    if (argc > 1) pause();
    return 7;
}
"#;

struct World<'a> {
    daemon: Daemon<'a>,
    sandbox: &'a Sandbox,
    library: PathBuf,
}

impl<'a> World<'a> {
    fn new(sandbox: &'a Sandbox) -> Self {
        Self::with(sandbox, HOST)
    }

    fn with(sandbox: &'a Sandbox, host: &str) -> Self {
        let config = sandbox.folder().join("host.toml");
        fs::write(&config, host).expect("the sandbox's folder is writable");
        let library = sandbox.compiled("libfirelane_preload.so", "int firelane_stands_for_it;", &["-shared"]);
        Self { daemon: Daemon::start(sandbox, &config), sandbox, library }
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_with(&self.library, args)
    }

    fn run_with(&self, library: &Path, args: &[&str]) -> Output {
        let output = self.command(library, args).stdin(Stdio::null()).output().expect("nsenter is installed");
        Output {
            command: format!("firelane run {args:?}"),
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn command(&self, library: &Path, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(binary("firelane"));
        command.env("FIRELANE_SOCKET", self.daemon.runtime().join("api.sock"));
        command.env("FIRELANE_PRELOAD", library).arg("run").args(args);
        command
    }

    /// The VNICs and flows that programs have got.
    fn beside(&self) -> String {
        let vnics = self.daemon.firelane(&["dladm", "show-vnic", "-p", "-o", "link"]).expect_success();
        let flows = self.daemon.firelane(&["flowadm", "show-flow", "-p", "-o", "flow"]).expect_success();
        let names = vnics.lines().chain(flows.lines()).filter(|name| name.contains("run"));
        names.collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn wait_until_nothing_is_beside(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.beside().is_empty() {
            assert!(Instant::now() < deadline, "{}", self.beside());
            std::thread::sleep(Duration::from_millis(20));
        }
        let namespaces = self.sandbox.run(None, "ip", &["netns", "list"]).expect_success();
        assert!(!namespaces.contains("run-"), "{namespaces}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folder's name is plain")
}

#[test]
fn a_dynamic_program_takes_the_commands_place_with_the_library_in_front() {
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let program = sandbox.compiled("program", PROGRAM, &[]);
    let done = world.run(&["-v", "web0", "--", text(&program)]);
    assert_eq!(done.code(), 7, "{}", done.stderr);
    let app = world.daemon.runtime().join("app.sock");
    for line in [
        format!("LD_PRELOAD={}", world.library.display()),
        "FIRELANE_NETSTACK=web".to_owned(),
        "FIRELANE_VNIC=web0".to_owned(),
        format!("FIRELANE_APP_SOCKET={}", app.display()),
    ] {
        assert!(done.stdout.lines().any(|it| it == line), "{line}\n{}", done.stdout);
    }
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("accelerated on netstack web (10.0.0.10/24)"), "{}", done.stderr);
    let quiet = world.run(&["-q", text(&program)]);
    assert_eq!((quiet.code(), quiet.stderr.as_str()), (7, ""));
    assert!(quiet.stdout.contains("FIRELANE_VNIC=\n"), "{}", quiet.stdout);
    assert_eq!(world.beside(), "");
}

#[test]
fn a_static_program_gets_a_namespace_with_the_same_limits_that_ends_with_it() {
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let program = sandbox.compiled("static", PROGRAM, &["-static"]);
    let mut child = world
        .command(&world.library, &["-v", "web0", "--", text(&program), "wait"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nsenter is installed");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("it is piped")));
    let says = lines.by_ref().map(|line| line.expect("readable")).find(|line| line.starts_with("argv0"));
    assert!(says.is_some_and(|line| line.starts_with(&format!("argv0={} ", program.display()))));
    let pid = child.id();
    assert_eq!(world.beside(), format!("run{pid} iperf-run{pid}"));
    let limits = world.daemon.firelane(&["dump"]).expect_success();
    let vnic = limits.split("[vnic.").find(|it| it.starts_with(&format!("run{pid}]"))).expect("its table");
    assert!(vnic.contains("maxbw = \"200M\"") && limits.contains("10.0.0.254/24"), "{limits}");
    let flow =
        limits.split("[flow.").find(|it| it.starts_with(&format!("iperf-run{pid}"))).expect("its table");
    assert!(limits.contains("local_ip = \"10.0.0.254") && flow.contains("maxbw = \"50M\""), "{limits}");
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "10.0.0.254"]).expect_success();
    // What nsenter started is the program itself, so it gets the signal and its parent the outcome.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
    assert_eq!(child.wait().expect("our child").signal(), Some(15));
    world.wait_until_nothing_is_beside();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("it is piped"), &mut said).expect("text");
    assert_eq!(said.lines().count(), 1, "{said}");
    for words in
        ["static: not accelerated: statically linked", "on vswitch1", "10.0.0.254/24", "limits of web0"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn programs_that_outlive_the_first_keep_the_namespace_and_two_at_once_have_two() {
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let missing = Path::new("/nonexistent/lib.so");
    // The first one ends at once; the second holds the namespace for a moment.
    let script = "ip -o -4 address; (sleep 1.5; ip -o route) & exit 3";
    let done = world.run_with(missing, &["--", "sh", "-c", script]);
    assert_eq!(done.code(), 3, "{}", done.stderr);
    assert!(done.stderr.contains("there is no /nonexistent/lib.so"), "{}", done.stderr);
    assert!(
        done.stdout.contains("10.0.0.254/24") && done.stdout.contains("192.0.2.0/24 via 10.0.0.253"),
        "{}",
        done.stdout
    );
    world.wait_until_nothing_is_beside();
    // The one stays until the other has said its address, and that until somebody hears it.
    let fifo = sandbox.folder().join("fifo");
    sandbox.run(None, "mkfifo", &[text(&fifo)]).expect_success();
    let one = |meets: &str| {
        let script = format!("ip -o -4 address show scope global; timeout 30 sh -c '{meets}' \"$0\"");
        world.run_with(missing, &["-q", "--", "sh", "-c", &script, text(&fifo)])
    };
    let both: Vec<_> = std::thread::scope(|scope| {
        let both = [scope.spawn(|| one("cat \"$0\" >/dev/null")), scope.spawn(|| one("echo >\"$0\""))];
        both.into_iter().map(|it| it.join().expect("no panic").expect_success()).collect()
    });
    let address = |text: &str| text.split_whitespace().nth(3).map(str::to_owned);
    assert!(address(&both[0]).is_some() && address(&both[0]) != address(&both[1]), "{both:?}");
    world.wait_until_nothing_is_beside();
}

#[test]
fn refusals_say_why_and_start_nothing() {
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let program = sandbox.compiled("static", PROGRAM, &["-static"]);
    for (args, code, words) in [
        (
            &["--require", "--", text(&program)][..],
            2,
            "static: cannot be accelerated: statically linked (--require)",
        ),
        (
            &["-v", "alice0", "--", "true"],
            2,
            "alice0: the kernel uses it, as alice0 in the network namespace alice",
        ),
        (&["-v", "nosuch0", "--", "true"], 2, "nosuch0: there is no such VNIC"),
        (&["-z", "nosuch", "--", "true"], 2, "zone nosuch: there is no such netstack"),
        (&["-v", "nonumber", "--", "true"], 2, "'nonumber'"),
        (&[], 2, "PROGRAM"),
        (&["--", "no-such-program"], 127, "no-such-program: not found in PATH"),
        (&["--", "/etc/passwd"], 126, "/etc/passwd: Permission denied"),
    ] {
        let done = world.run(args);
        assert_eq!(done.code(), code, "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains(words) && done.stderr.lines().count() == 1, "{args:?}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{args:?}");
    }
    for words in [
        &["dladm", "create-vnic", "-t", "-l", "vswitch1", "one0"][..],
        &["ipadm", "create-ip", "-t", "-N", "one", "one0"],
        &["ipadm", "create-addr", "-t", "-T", "static", "-a", "10.5.0.1/32", "one0/v4"],
    ] {
        world.daemon.firelane(words).expect_success();
    }
    let full = world.run(&["-v", "one0", "--", text(&program)]);
    let told = full.stderr.lines().collect::<Vec<_>>();
    assert!(full.code() == 2 && told.len() == 2 && told[1].contains("no free address"), "{}", full.stderr);
    assert!(
        told[0].contains("static: cannot be accelerated: statically linked; it needs"),
        "{}",
        full.stderr
    );
    assert_eq!(world.beside(), "");
    let away = sandbox.run(None, text(&binary("firelane")), &["run", "true"]);
    assert_eq!(away.code(), 75, "{}", away.stderr);
}

/// What the configuration above does not have: a guard, guarantees, and several ways to one network.
const GUARDED: &str = r#"
[etherstub.s0]
maxbw = "100M"

[vnic.web0]
over = "s0"
netstack = "web"
minbw = "80M"
protection = "ip-nospoof"
allowed_ips = ["10.0.0.10", "fd00::10"]

[vnic.alice0]
over = "s0"
tap = { namespace = "alice", addresses = ["10.0.0.1/24", "fd00::1/64"] }

[netstack.web]
routes = [
    { destination = "192.0.2.0/24", gateway = "10.0.0.1" },
    { destination = "192.0.2.0/24", gateway = "10.0.0.2" },
    { destination = "192.0.2.0/24", gateway = "10.0.0.3", source = "10.0.0.128/25" },
    { destination = "192.0.2.0/24", gateway = "10.0.0.4", source = "10.0.0.0/28" },
    { destination = "192.0.2.0/24", gateway = "10.0.0.3", source = "10.0.0.192/26" },
    { destination = "2001:db8::/32", gateway = "fd00::1" },
    { destination = "2001:db8::/32", gateway = "fd00::2" },
    { destination = "198.51.100.0/24", kind = "blackhole" },
    { destination = "198.51.100.0/24", kind = "unreachable", source = "10.0.0.0/24" },
]

[netstack.web.addresses]
"web0/v4" = "10.0.0.10/24"
"web0/v6" = "fd00::10/64"

[flow.http]
link = "web0"
match = { transport = "tcp", local_port = 80 }
minbw = "30M"
"#;

#[test]
fn beside_a_guarded_vnic_with_guarantees_a_program_has_its_network() {
    let sandbox = Sandbox::new();
    let world = World::with(&sandbox, GUARDED);
    let script = "ping -c 1 -W 5 10.0.0.1 >&2 && ping -c 1 -W 5 fd00::1 >&2 && ip route get 192.0.2.1 && \
                  ip route && ip -6 route && firelane dump";
    let path = format!("PATH={}:/usr/sbin:/sbin:/usr/bin:/bin", binary("").display());
    let done =
        world.run_with(Path::new("/nonexistent/lib.so"), &["-q", "--", "env", &path, "sh", "-c", script]);
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    let said = |words: &str| done.stdout.lines().any(|line| line.contains(words));
    for words in [
        "192.0.2.1 via 10.0.0.3 ",
        "192.0.2.0/24 via 10.0.0.1 ",
        "192.0.2.0/24 via 10.0.0.2 ",
        "via fd00::1 ",
        "via fd00::2 ",
        "unreachable 198.51.100.0/24",
        "blackhole 198.51.100.0/24",
    ] {
        assert!(said(words), "{words}: {}", done.stdout);
    }
    assert!(!said("10.0.0.4 "), "a route of others: {}", done.stdout);
    let of = |table: &str| {
        let tables = done.stdout.split("\n[");
        tables.filter(|it| it.starts_with(table)).map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let (vnic, flow) = (of("vnic.run"), of("flow.http-run"));
    assert!(vnic.contains("allowed_ips = [\"10.0.0.254/32\"") && !vnic.contains("minbw"), "{vnic}");
    assert!(flow.contains("local_port = 80") && !flow.contains("minbw"), "{flow}");
    world.wait_until_nothing_is_beside();
}

#[test]
fn what_an_accelerated_program_starts_is_on_the_netstack_that_was_asked_for() {
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let (program, fixed) =
        (sandbox.compiled("program", PROGRAM, &[]), sandbox.compiled("fixed", PROGRAM, &["-static"]));
    // The library itself: it gives an environment that was cleaned what a program needs to be on its netstack.
    let library = binary("libfirelane_preload.so");
    let command = binary("firelane");
    for (program, preload) in [(&fixed, library.as_path()), (&program, Path::new("/nonexistent/lib.so"))] {
        let script = format!(
            "FIRELANE_PRELOAD={} {} run -- {}",
            preload.display(),
            command.display(),
            program.display()
        );
        let done = world.run_with(&library, &["-v", "web0", "--", "sh", "-c", &script]);
        assert_eq!(done.code(), 7, "{}", done.stderr);
        assert!(done.stderr.contains("not accelerated"), "{}", done.stderr);
        for line in ["LD_PRELOAD=", "FIRELANE_NETSTACK=", "FIRELANE_VNIC=", "FIRELANE_APP_SOCKET="] {
            assert!(done.stdout.lines().any(|it| it == line), "{line}\n{}", done.stdout);
        }
    }
    let mut accelerated = world.command(&world.library, &["-q", "--", text(&program)]);
    accelerated.env("FIRELANE_APP_SOCKET", "/nonexistent/app.sock");
    accelerated.env("LD_PRELOAD", "/nonexistent/libfirelane_preload.so");
    let done = accelerated.output().expect("nsenter is installed");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    for line in [
        format!("LD_PRELOAD={}", world.library.display()),
        format!("FIRELANE_APP_SOCKET={}", world.daemon.runtime().join("app.sock").display()),
    ] {
        assert!(said.lines().any(|it| it == line), "{line}\n{said}");
    }
    world.wait_until_nothing_is_beside();
}

/// The process that waits for the program beside on `vnic`.
fn waiting_for(vnic: &str) -> rustix::process::Pid {
    let waits = |pid: i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = words.split(|&byte| byte == 0).collect();
        let is_there = |word: &str| words.contains(&word.as_bytes());
        is_there("run-cleanup") && is_there(vnic)
    };
    let numbers = fs::read_dir("/proc").expect("it is there").flatten();
    let mut numbers = numbers.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers.find(|&pid| waits(pid)).and_then(rustix::process::Pid::from_raw).expect("somebody waits")
}

/// A script beside, and the first line that it says.
fn start_beside(world: &World<'_>, script: &str) -> (std::process::Child, String) {
    let mut command = world.command(Path::new("/nonexistent/lib.so"), &["-q", "--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("nsenter is installed");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().expect("it is piped"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("text");
    (child, line.trim().to_owned())
}

#[test]
fn who_may_not_look_at_every_process_removes_nothing_that_a_program_is_in() {
    use rustix::process::{Pid, Signal, kill_process};
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let (mut first, number) = start_beside(&world, "sleep 60 >/dev/null & echo $!");
    let outlives = number.parse().ok().and_then(Pid::from_raw).expect("a number");
    first.wait().expect("our child");
    let vnic = format!("run{}", first.id());
    kill_process(waiting_for(&vnic), Signal::KILL).expect("it lives");
    let mut other = sandbox.command("setpriv");
    other.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", text(&binary("firelane"))]);
    other.env("FIRELANE_SOCKET", world.daemon.runtime().join("api.sock"));
    other.env("FIRELANE_PRELOAD", "/nonexistent/lib.so");
    let output = other.args(["run", "-q", "--", "true"]).output().expect("setpriv is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(world.beside().split(' ').any(|it| it == vnic), "{}", world.beside());
    kill_process(outlives, Signal::KILL).expect("it lives");
    if !rustix::process::geteuid().is_root() {
        // Processes outside the sandbox may not be looked at then.
        return;
    }
    assert!(world.run_with(Path::new("/nonexistent/lib.so"), &["-q", "--", "true"]).status.success());
    world.wait_until_nothing_is_beside();
}

#[test]
fn who_gets_no_socket_is_not_told_that_he_is_accelerated() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let told = || {
        let mut other = sandbox.command("setpriv");
        other.args(["--reuid=1234", "--regid=1234", "--clear-groups", text(&binary("firelane"))]);
        other.env("FIRELANE_SOCKET", world.daemon.runtime().join("api.sock"));
        other.env("FIRELANE_PRELOAD", &world.library).args(["run", "-z", "web", "--", "true"]);
        let output = other.output().expect("setpriv is installed");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(told(), "firelane: true: not accelerated: this user gets no socket on netstack web\n");
    let users = HOST.replace("[netstack.web]", "[netstack.web]\nprograms = { users = [\"1234\"] }");
    let path = sandbox.folder().join("users.toml");
    fs::write(&path, users).expect("the sandbox's folder is writable");
    world.daemon.firelane(&["apply", text(&path)]).expect_success();
    assert!(told().contains(": accelerated on netstack web (addresses not shown); "), "{}", told());
}

#[test]
fn who_ends_all_processes_of_a_service_at_once_leaves_nothing() {
    use rustix::process::{Pid, Signal, kill_process};
    let sandbox = Sandbox::new();
    let world = World::new(&sandbox);
    let (mut service, ready) = start_beside(&world, "echo ready; exec sleep 60");
    assert_eq!(ready, "ready");
    let waits = waiting_for(&format!("run{}", service.id()));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(waits, signal).expect("it lives");
    }
    kill_process(Pid::from_child(&service), Signal::TERM).expect("it lives");
    service.wait().expect("our child");
    world.wait_until_nothing_is_beside();
}
