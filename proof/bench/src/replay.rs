//! The peer of `forward`: DPDK's testpmd (Debian package `dpdk`), which replays frames from memory and swaps their MACs.
//!
//! It is started for each round, because it never sleeps, and ended when it has been measured. What it prints about its
//! frames once a second is read beside the CPU time that it has used by then.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use firelane_interop::Testpmd;

use crate::bridge::Moved;
use crate::cpu;
use crate::forward::frame;
use crate::peer::Result;
use crate::testpmd;

/// Frames that it replays: the driver keeps a copy of each in memory, and takes no more than this.
const FRAMES_MAX: u32 = 8192;

/// A running testpmd and its capture file.
pub(crate) struct Replay {
    testpmd: Testpmd,
    _capture: Capture,
}

impl Replay {
    /// What it moves in about `span`.
    pub(crate) fn measure(flows: u32, span: Duration) -> Result<Moved> {
        let capture = Capture::write(flows.min(FRAMES_MAX))?;
        let device = format!("--vdev=net_pcap0,rx_pcap={},infinite_rx=1", capture.0.display());
        let environment = ["-l".to_owned(), "0,1".to_owned(), device];
        let options = ["--stats-period=1", "--total-num-mbufs=40000", "--burst=32", "--nb-cores=1"];
        let testpmd =
            testpmd::start(256, &environment, "macswap", &options, [Stdio::piped(), Stdio::null()])?;
        Self { testpmd, _capture: capture }.read(span)
    }

    fn read(mut self, span: Duration) -> Result<Moved> {
        let pid = self.testpmd.pid();
        let lines = BufReader::new(self.testpmd.take_output().ok_or("testpmd has no output")?).lines();
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

/// A file that is removed at the end.
struct Capture(PathBuf);

impl Capture {
    /// The frames of so many flows (the classic format, one packet after the other).
    fn write(flows: u32) -> Result<Self> {
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
        let path = std::env::temp_dir().join(format!("firelane-bench-{}.pcap", std::process::id()));
        fs::write(&path, bytes)?;
        Ok(Self(path))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
