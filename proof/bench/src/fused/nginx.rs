//! `fused-nginx-close`: wrk asks nginx for 1 KB, with a connection for each request, both in the same place.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use crate::peer::{self, Result};
use crate::report::Verdict;
use crate::scene::{Scene, Server};

use super::{Contest, Side};

const BYTES: usize = 1024;
const PORT: u16 = 8080;

/// One worker, which is not who started it only where that is root.
fn config(folder: &Path, host: &str, nth: usize) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name}-{nth};"))
        .concat();
    format!(
        "user root; daemon off; worker_processes 1; pid {folder}/pid-{nth}; error_log {folder}/log-{nth};
        events {{}} http {{ access_log off; sendfile on; {temporary}
        server {{ listen {host}:{PORT}; root {folder}; }} }}"
    )
}

/// Starts nginx, and waits until it answers.
fn start(scene: &Scene, side: Side<'_>, nth: usize) -> Result<Server> {
    let folder = scene.sandbox.folder();
    std::fs::write(folder.join("file"), [b'x'; BYTES])?;
    let file = folder.join(format!("nginx-{nth}.conf"));
    std::fs::write(&file, config(folder, side.host, nth))?;
    let mut command = side.place.command(OsStr::new("nginx"))?;
    let server = Server::start(command.arg("-c").arg(file))?;
    peer::retry(|| wrk(side, "1"))?;
    Ok(server)
}

/// Requests per second.
fn wrk(side: Side<'_>, seconds: &str) -> Result<f64> {
    let mut command = side.place.command(OsStr::new("timeout"))?;
    command.args(["20", "wrk", "-t1", "-c16", "-H", "Connection: close", "-d", seconds]);
    let output = command.arg(format!("http://{}:{PORT}/file", side.host)).stdin(Stdio::null()).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    let rate = told.lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok());
    match rate {
        Some(rate) if rate > 0.0 && !told.contains("Socket errors") => Ok(rate),
        _ => Err(format!("{}: {told}{}", side.name, String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let contest = Contest {
        name: "fused-nginx-close",
        title: "1 KB, a connection for each request, 16 at a time",
        unit: "requests/s",
        wanted: 3.0,
    };
    contest.run(start, |side| wrk(side, "1"))
}
