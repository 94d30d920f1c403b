//! The peer of `forward`: DPDK's testpmd (Debian package `dpdk`), which replays frames from memory and swaps their MACs.
//!
//! It is started for each round, because it never sleeps, and ended with its standard input. What it prints about its
//! frames once a second is read beside the CPU time that it has used by then.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bridge::Moved;
use crate::cpu;
use crate::forward::frame;
use crate::peer::Result;

/// Frames that it replays: the driver keeps a copy of each in memory, and takes no more than this.
const FRAMES_MAX: u32 = 8192;

/// A running testpmd and its capture file.
pub(crate) struct Testpmd {
    child: Child,
    capture: PathBuf,
}

impl Testpmd {
    /// What it moves in about `span`.
    pub(crate) fn replay(flows: u32, span: Duration) -> Result<Moved> {
        let name = format!("firelane-bench-{}", std::process::id());
        let capture = std::env::temp_dir().join(format!("{name}.pcap"));
        write_capture(&capture, flows.min(FRAMES_MAX))?;
        let device = format!("net_pcap0,rx_pcap={},infinite_rx=1", capture.display());
        let mut command = Command::new("dpdk-testpmd");
        command.args([
            "-l",
            "0,1",
            "--no-huge",
            "-m",
            "256",
            "--no-pci",
            "--no-telemetry",
            "--file-prefix",
            &name,
        ]);
        command.args(["--vdev", &device, "--", "--forward-mode=macswap", "--auto-start", "--stats-period=1"]);
        command.args(["--total-num-mbufs=40000", "--burst=32", "--nb-cores=1"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("dpdk-testpmd (Debian package dpdk): {error}"))?;
        Self { child, capture }.measure(span)
    }

    fn measure(mut self, span: Duration) -> Result<Moved> {
        let pid = self.child.id();
        let lines = BufReader::new(self.child.stdout.take().ok_or("testpmd has no output")?).lines();
        let mut begin: Option<Moved> = None;
        for line in lines {
            let line = line?;
            let Some(count) = line.trim().strip_prefix("TX-packets:") else { continue };
            let frames: u64 = count.split_whitespace().next().unwrap_or_default().parse()?;
            let now = Moved { frames, busy: cpu::process_time(pid) };
            // The first figures hold its start.
            match begin {
                None if frames > 0 => begin = Some(now),
                Some(begin) if now.busy - begin.busy >= span => {
                    return Ok(Moved { frames: now.frames - begin.frames, busy: now.busy - begin.busy });
                }
                _ => {}
            }
        }
        Err("testpmd ended before it had told what it moved".into())
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // Either may have happened already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.capture);
    }
}

/// The frames of so many flows as a capture file (the classic format, one packet after the other).
fn write_capture(path: &Path, flows: u32) -> Result<()> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for n in 0..flows.max(64) {
        let frame = frame(n % flows, 1);
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    Ok(fs::write(path, bytes)?)
}
