//! What gets through between two namespaces of the kernel, as iperf3 says.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::sandbox::{Background, Sandbox};

/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// An iperf3 server, which ends with the value.
#[derive(Debug)]
pub struct Iperf<'a> {
    sandbox: &'a Sandbox,
    address: &'a str,
    _server: Background,
}

impl<'a> Iperf<'a> {
    /// Starts one in the namespace that has this address.
    pub fn serve(sandbox: &'a Sandbox, namespace: &str, address: &'a str) -> Self {
        let mut command = sandbox.command_in(namespace, &["iperf3", "-s"]);
        Self { sandbox, address, _server: Background::start(command.stdout(Stdio::null())) }
    }

    /// What it gets from the namespace `from` in three seconds, in Mb/s of text, by a client with these arguments, too.
    ///
    /// # Panics
    /// If it gets nothing.
    pub fn rate(&self, from: &str, args: &[&str]) -> f64 {
        let begin = Instant::now();
        loop {
            let fixed = ["-c", self.address, "-t", "3", "-f", "k", "-J"];
            let output = self.sandbox.run(Some(from), "iperf3", &[&fixed, args].concat());
            // Where nobody listens as yet it says so in JSON, and may still call that a success.
            let said = serde_json::from_str::<serde_json::Value>(&output.stdout).unwrap_or_default();
            if let Some(bits) = said["end"]["sum_received"]["bits_per_second"].as_f64() {
                return bits / 1e6;
            }
            assert!(begin.elapsed() < PATIENCE, "{output:?}");
        }
    }
}
