//! DPDK's testpmd (Debian package dpdk-dev), the peer of memif, AF_XDP and forwarding.
//!
//! It runs without huge pages, NIC or rights, and never sleeps: who starts it ends it soon.

use std::io;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A testpmd that ends with its owner.
#[derive(Debug)]
pub struct Testpmd(Child);

impl Testpmd {
    /// Starts `program`: a DPDK with so much memory and further `environment` options of its own, and a testpmd in it
    /// that forwards in `mode` from its start, with `options`. Both outputs go to `output`.
    ///
    /// # Errors
    /// As the kernel gives them: the program may not be installed.
    pub fn start(
        mut program: Command,
        megabytes: u32,
        environment: &[String],
        mode: &str,
        options: &[&str],
        [out, errors]: [Stdio; 2],
    ) -> io::Result<Self> {
        program.args([
            "--no-huge",
            "--no-shconf",
            "--no-pci",
            "--no-telemetry",
            "-m",
            &megabytes.to_string(),
        ]);
        program
            .args(environment)
            // What has arrived before it forwards is not to be thrown away.
            .args(["--", "--auto-start", "--no-flush-rx", &format!("--forward-mode={mode}")])
            .args(options);
        program.stdin(Stdio::null()).stdout(out).stderr(errors).spawn().map(Self)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// What it prints, if its output was to be a pipe and nobody has taken it.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
