//! Real programs, run inside a tenant's namespace and read by what they print.
//!
//! Each runs under a time limit and dies with the demo, whatever happens to it.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::stage::place::search_path;

/// Seconds that any one program may take.
const LIMIT_SECONDS: &str = "120";

/// A command line in the namespace of a tenant.
fn command(tenant: &str, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "timeout", "--signal", "KILL", LIMIT_SECONDS]);
    command.args(["ip", "netns", "exec", tenant]).args(words).env("PATH", search_path());
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

/// A program that runs beside.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    /// Starts a program; its output is thrown away.
    pub(super) fn start(tenant: &str, words: &[&str]) -> Result<Self, String> {
        let mut command = command(tenant, words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).map_err(|e| format!("{}: {e}", words[0]))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
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

/// Bits per second that the receiver of an `iperf3 --json` run counted.
pub(super) fn read_iperf(text: &str) -> Option<f64> {
    let document: Value = serde_json::from_str(text).ok()?;
    document["end"]["sum_received"]["bits_per_second"].as_f64()
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
        assert_eq!(read_iperf(text), Some(47.8e6));
        assert_eq!(read_iperf(r#"{"error": "x"}"#), None);
    }
}
