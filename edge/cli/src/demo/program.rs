//! Real programs, run inside a tenant's namespace and read by what they print.
//!
//! Each runs under a time limit and dies with the demo, whatever happens to it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::stage::place::search_path;

/// Seconds that any one program may take.
const LIMIT_SECONDS: &str = "120";
/// How long a program may take to get ready, and to end, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// A command line in the namespace of a tenant.
fn command(tenant: &str, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "timeout", "--signal", "KILL", LIMIT_SECONDS]);
    // What `timeout` starts is told on its own that its parent has died.
    command.args(["ip", "netns", "exec", tenant, "setpriv", "--pdeathsig", "KILL"]);
    command.args(words).env("PATH", search_path());
    command
}

/// Runs a program to its end and answers what it printed; else what went wrong.
pub(super) fn run(tenant: &str, words: &[&str]) -> Result<String, String> {
    let output =
        command(tenant, words).stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", words[0]))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = stderr.lines().chain(stdout.lines()).rfind(|l| !l.trim().is_empty()).unwrap_or("no message");
    Err(format!("{}: {} ({})", words[0], why.trim(), output.status))
}

/// A program that runs beside, with what it says to be read line by line.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    child: Child,
    /// What it prints and what it complains about, as it comes.
    lines: Receiver<String>,
}

impl Running {
    /// Starts a program and waits until it says `ready`: how long that takes depends on what else the machine does.
    pub(super) fn start(tenant: &str, words: &[&str], ready: &str) -> Result<Self, String> {
        let mut command = command(tenant, words);
        // A group of its own, so that whatever stands before the program ends with it.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", words[0]))?;
        let (sender, lines) = mpsc::channel();
        read_lines(child.stdout.take(), sender.clone());
        read_lines(child.stderr.take(), sender);
        let running = Self { name: words[0].to_owned(), child, lines };
        running.wait_for(ready)?;
        Ok(running)
    }

    fn wait_for(&self, ready: &str) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = "no message".to_owned();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(ready) => return Ok(()),
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => line.trim().clone_into(&mut last),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("{} is not ready after {PATIENCE:?}: {last}", self.name));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("{} has ended: {last}", self.name));
                }
            }
        }
    }

    /// Waits until it has ended by itself, so that what it held is free for whoever comes next.
    pub(super) fn finish(mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if Instant::now() > deadline => {
                    return Err(format!("{} does not end", self.name));
                }
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Err(e) => return Err(format!("{}: {e}", self.name)),
            }
        }
    }
}

/// Passes on the lines of a stream until it ends.
fn read_lines(stream: Option<impl Read + Send + 'static>, lines: Sender<String>) {
    let Some(stream) = stream else { return };
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // Who waits may have heard enough; the program must be able to go on talking.
            let _ = lines.send(line);
        }
    });
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        if matches!(self.child.try_wait(), Ok(None)) {
            let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        }
        let _ = self.child.wait();
    }
}

/// What `ping -q` found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pinged {
    pub(super) answers: u32,
    pub(super) average_ms: f64,
}

/// Reads the summary of `ping -q`.
pub(super) fn read_ping(text: &str) -> Option<Pinged> {
    let answers = text.lines().find(|l| l.contains("packets transmitted"))?;
    let answers = answers.split(", ").nth(1)?.split(' ').next()?.parse().ok()?;
    let times = text.lines().find(|l| l.contains("min/avg/max"))?;
    let average_ms = times.split(" = ").nth(1)?.split('/').nth(1)?.parse().ok()?;
    Some(Pinged { answers, average_ms })
}

/// Bits per second that the receiver of an `iperf3 --json` run counted; else what iperf3 says went wrong, which it says
/// in its document, with the exit code of success.
pub(super) fn read_iperf(text: &str) -> Result<f64, String> {
    let document: Value =
        serde_json::from_str(text).map_err(|e| format!("iperf3 printed no document ({e}): {text:?}"))?;
    if let Some(error) = document["error"].as_str() {
        return Err(format!("iperf3: {error}"));
    }
    let rate = document["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.ok_or_else(|| format!("iperf3 printed no result: end is {}", document["end"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_summary_is_read() {
        let text = "PING x\n\n--- 10.0.0.10 ping statistics ---\n\
                    5 packets transmitted, 4 received, 20% packet loss, time 812ms\n\
                    rtt min/avg/max/mdev = 0.061/0.084/0.117/0.018 ms\n";
        assert_eq!(read_ping(text), Some(Pinged { answers: 4, average_ms: 0.084 }));
        assert_eq!(read_ping("5 packets transmitted, 0 received"), None);
    }

    #[test]
    fn iperfs_document_is_read() {
        let text = r#"{"end": {"sum_received": {"bits_per_second": 47.8e6}}}"#;
        assert_eq!(read_iperf(text), Ok(47.8e6));
        let refused =
            r#"{"start": {}, "end": {}, "error": "unable to connect to server: Connection refused"}"#;
        let words = "iperf3: unable to connect to server: Connection refused";
        assert_eq!(read_iperf(refused), Err(words.to_owned()), "it exits with 0 all the same");
        assert_eq!(read_iperf(r#"{"end": {}}"#), Err("iperf3 printed no result: end is {}".to_owned()));
        assert!(read_iperf("").is_err_and(|why| why.contains("no document")));
    }
}
