//! The processes that a benchmark measures: this program again, in a role, perhaps inside a sandbox.
//!
//! A peer says `ready`, then answers each line of its input with a line of numbers, and ends with its input. It
//! thus lives through all rounds, and its CPU time can be read from outside between them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::Sandbox;

use crate::scene::Scene;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Errors of benchmarks are for a reader: a sentence.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Plays a role until the input ends.
pub(crate) fn play(role: &str, args: &[&str]) -> Result<()> {
    match role {
        "attack-victim" => crate::attack_cost::kernel::play_victim(),
        "attack-sender" => crate::attack_cost::kernel::play_sender(args),
        "bridge-sender" => crate::bridge::play_sender(args),
        "veth-generator" => crate::forward_veth::play_generator(args),
        "bulk-server" => crate::kernel::play_bulk_server(args),
        "bulk-client" => crate::kernel::play_bulk_client(args),
        "rr-server" => crate::kernel::play_rr_server(args),
        "rr-client" => crate::kernel::play_rr_client(args),
        "conn-server" => crate::conn_rate::play_server(args),
        "conn-client" => crate::conn_rate::play_client(args),
        "tap-server" => crate::tap_bulk::play_server(),
        "loss-relay" => crate::loss::play_relay(),
        "loss-sink" => crate::loss::play_sink(args),
        "loss-source" => crate::loss::play_source(),
        "stream-server" => crate::stream::play_server(args),
        "stream-client" => crate::stream::play_client(args),
        "conn-cases" => crate::fused::conn::play_cases(args),
        "udp-server" => crate::udp_kernel::play_server(args),
        "udp-client" => crate::udp_kernel::play_client(args),
        "udp-tap-server" => crate::udp::play_tap_server(),
        "crowd-server" => crate::shim_memory::play_server(args),
        "crowd-client" => crate::shim_memory::play_client(args),
        "idle-client" => crate::idle::play_client(),
        "polling-server" => crate::polling::play_server(),
        "polling-client" => crate::polling::play_client(),
        "noise" => crate::isolation::play_noise(),
        "wire-sink" => crate::limit::wire::play_sink(),
        "wire-source" => crate::limit::wire::play_source(),
        _ => Err(format!("no peer plays {role:?}").into()),
    }
}

/// Answers each line of standard input with the numbers that `answer` makes of its words.
pub(crate) fn serve(mut answer: impl FnMut(&[&str]) -> Result<Vec<u64>>) -> Result<()> {
    say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<String> = answer(&words)?.iter().map(u64::to_string).collect();
        say(&numbers.join(" "))?;
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// A process in a role; it ends with its owner.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts a peer in a sandbox, or in one of its network namespaces.
    pub(crate) fn start(place: Place<'_>, role: &str, args: &[&str]) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = place.command(program.as_os_str())?;
        command.arg("--peer").arg(role).args(args);
        Self::start_command(role, command)
    }

    /// Starts another program that speaks as peers do.
    pub(crate) fn start_command(role: &str, mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let commands = child.stdin.take();
        let mut peer = Self { child, commands, answers };
        match peer.line()?.as_str() {
            "ready" => Ok(peer),
            other => Err(format!("the {role} did not become ready: {other:?}").into()),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives it a command and waits for its answer.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Vec<u64>> {
        writeln!(self.commands.as_mut().expect("open until the end"), "{command}")?;
        let line = self.line()?;
        line.split_whitespace()
            .map(|word| word.parse().map_err(|_| format!("{command}: {line:?} is no answer").into()))
            .collect()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("a peer ended early".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a process runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// In a sandbox's namespaces.
    Sandbox(&'a Sandbox),
    /// In a named network namespace of a sandbox.
    Netns(&'a Sandbox, &'a str),
    /// On a netstack of a scene.
    Preloaded(&'a Scene, &'a str),
}

impl Place<'_> {
    /// A command there, which becomes the program itself.
    pub(crate) fn command(self, program: &OsStr) -> Result<Command> {
        match self {
            Self::Sandbox(sandbox) => Ok(sandbox.command(program)),
            Self::Netns(sandbox, name) => {
                let mut command = sandbox.command("ip");
                command.args(["netns", "exec", name]).arg(program);
                Ok(command)
            }
            Self::Preloaded(scene, netstack) => scene.preloaded(netstack, program),
        }
    }

    /// The same, bound to a CPU from its start unless that is `any`.
    pub(crate) fn command_on(self, cpu: &str, program: &OsStr) -> Result<Command> {
        if cpu == "any" {
            return self.command(program);
        }
        let mut command = self.command(OsStr::new("taskset"))?;
        command.args(["-c", cpu]).arg(program);
        Ok(command)
    }
}

/// Tries over and over until it works; who waits in vain gets the last error.
pub(crate) fn retry<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match work() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}

/// A daemon that does not answer, and what it wrote into its log.
pub(crate) fn not_started(log: &Path) -> Box<dyn std::error::Error + Send + Sync> {
    format!("firelaned does not start: {}", std::fs::read_to_string(log).unwrap_or_default()).into()
}

/// Runs `ip` with each line's words inside the sandbox.
pub(crate) fn ip(sandbox: &Sandbox, lines: &[&str]) -> Result<()> {
    lines.iter().try_for_each(|line| run(sandbox, None, "ip", line))
}

/// Runs `tc` with a line's words in a network namespace of the sandbox.
pub(crate) fn tc(sandbox: &Sandbox, netns: &str, line: &str) -> Result<()> {
    run(sandbox, Some(netns), "tc", line)
}

/// Runs a program with a line's words inside the sandbox, in the network namespace `netns` if one is named.
pub(crate) fn run(sandbox: &Sandbox, netns: Option<&str>, program: &str, line: &str) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = sandbox.run(netns, program, &words);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {line}: {}", output.stderr.trim()).into()),
    }
}
