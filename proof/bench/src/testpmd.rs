//! DPDK's testpmd, the peer of `forward`, `memif` and `afxdp`, as [`Testpmd`] starts it, with a word on where to get it.

use std::process::{Command, Stdio};

use firelane_interop::Testpmd;

use crate::peer::Result;

pub(crate) fn start(
    megabytes: u32,
    environment: &[String],
    mode: &str,
    options: &[&str],
    output: [Stdio; 2],
) -> Result<Testpmd> {
    Testpmd::start(Command::new("dpdk-testpmd"), megabytes, environment, mode, options, output)
        .map_err(|error| format!("dpdk-testpmd (Debian: dpdk-dev): {error}").into())
}
