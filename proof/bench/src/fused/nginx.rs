//! `fused-nginx-close`: wrk asks nginx for 1 KB, with a connection for each request, both in the same place.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::peer::Result;
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::{Scene, Server};

use super::{Side, sides};

const ROUNDS: usize = 5;
const BYTES: usize = 1024;
const WANTED_RATIO: f64 = 3.0;
const PATIENCE: Duration = Duration::from_secs(10);
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
    let file = folder.join(format!("nginx-{nth}.conf"));
    std::fs::write(&file, config(folder, side.host, nth))?;
    let mut command = side.place.command(OsStr::new("nginx"))?;
    let server = Server::start(command.arg("-c").arg(file))?;
    let deadline = Instant::now() + PATIENCE;
    while !wrk(side, "1").is_ok_and(|rate| rate > 0.0) {
        if Instant::now() > deadline {
            return Err(format!("{}: nginx does not answer", side.name).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
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
        Some(rate) if !told.contains("Socket errors") => Ok(rate),
        _ => Err(format!("{}: {told}{}", side.name, String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    std::fs::write(scene.sandbox.folder().join("file"), [b'x'; BYTES])?;
    let mut all = Vec::new();
    for (nth, side) in sides(&scene).into_iter().enumerate() {
        all.push((side, start(&scene, side, nth)?, Samples::default()));
    }
    for _ in 0..ROUNDS {
        for (side, _, rates) in &mut all {
            rates.push(wrk(*side, "1")?);
        }
    }
    let table = Table::begin("fused-nginx-close: 1 KB, a connection for each request, 16 at a time");
    for (side, _, rates) in &all {
        table.row(side.name, rates, "requests/s");
    }
    let [ours, theirs] = [0, 1].map(|nth| all[nth].2.median());
    table.at_least("of kernel loopback", ours / theirs, WANTED_RATIO, "times");
    Ok(Verdict {
        name: "fused-nginx-close",
        ratio: ours / theirs,
        firelane: format!("{} requests/s", number(ours)),
        peer: format!("{} requests/s", number(theirs)),
    })
}
