//! `fused-pgbench`: PostgreSQL's own benchmark, select-only, over TCP, `postgres` and `pgbench` in the same place.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use crate::peer::{self, Result};
use crate::report::Verdict;
use crate::scene::{Scene, Server};

use super::{Contest, Side};

const SECONDS: &str = "1";
const CLIENTS: &str = "8";
/// PostgreSQL refuses to be root.
const AS_USER: [&str; 4] = ["unshare", "--user", "--map-user=1000", "--map-group=1000"];
/// Its programs are not in PATH on Debian.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// Runs words to their end, on a side: what they print.
fn ask(side: Side<'_>, words: &[&str]) -> Result<String> {
    let mut command = side.place.command(OsStr::new("timeout"))?;
    let output = command.arg("30").args(words).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// A server with its data, ready to be asked.
fn start(scene: &Scene, side: Side<'_>, nth: usize) -> Result<Server> {
    let data = scene.sandbox.folder().join(format!("data-{nth}")).to_string_lossy().into_owned();
    let initdb = format!("{PROGRAMS}/initdb");
    let words = [&initdb, "-D", &data, "-U", "test", "-A", "trust", "--no-sync"];
    scene.sandbox.run(None, AS_USER[0], &[&AS_USER[1..], &words].concat()).expect_success();
    std::fs::write(Path::new(&data).join("pg_hba.conf"), "host all all 0.0.0.0/0 trust\n")?;
    let (postgres, listen) = (format!("{PROGRAMS}/postgres"), format!("listen_addresses={}", side.host));
    let mut command = side.place.command(OsStr::new(AS_USER[0]))?;
    command.args(&AS_USER[1..]).args([&postgres, "-D", &data, "-c", &listen]);
    command.args(["-c", "unix_socket_directories=", "-F"]);
    let server = Server::start(&mut command)?;
    peer::retry(|| pgbench(side, &["-i", "-q"]))?;
    Ok(server)
}

fn pgbench(side: Side<'_>, words: &[&str]) -> Result<String> {
    ask(side, &[&["pgbench", "-h", side.host, "-U", "test"], words, &["postgres"]].concat())
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let contest = Contest {
        name: "fused-pgbench",
        title: "select-only, 8 clients",
        unit: "transactions/s",
        wanted: 1.3,
    };
    contest.run(start, |_, side| {
        let told = pgbench(side, &["-S", "-n", "-c", CLIENTS, "-j", "2", "-T", SECONDS])?;
        let rate = told.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.ok_or_else(|| format!("pgbench did not tell its rate: {told}").into())
    })
}
