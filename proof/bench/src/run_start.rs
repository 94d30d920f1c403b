//! `run-start`: what `firelane run` adds to the start of a program.
//!
//! A program that does nothing, and one that makes a socket and ends, each by itself and under `firelane run`, in turn.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::peer::{Place, Result};
use crate::report::{Samples, Table, Verdict};
use crate::scene::Scene;

const ROUNDS: usize = 41;
const WANTED_MILLIS: f64 = 30.0;
const PYTHON: &str = "/usr/bin/python3";
/// Names, and commands.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("true", &["true"]),
    ("python3 with a socket", &[PYTHON, "-S", "-E", "-c", "import _socket; _socket.socket(2, 1)"]),
];

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let table = Table::begin("run-start: from start to end of a program that does next to nothing");
    let mut worst = (f64::MIN, 0.0, 0.0);
    for (name, words) in PROGRAMS {
        let mut times = [Samples::default(), Samples::default()];
        for _ in 0..ROUNDS {
            let mut ours = scene.firelane()?;
            ours.args(["run", "-v", "web0", "--"]).args(words);
            let mut theirs = Place::Sandbox(&scene.sandbox).command(OsStr::new(words[0]))?;
            theirs.args(&words[1..]);
            for (command, times) in [ours, theirs].into_iter().zip(&mut times) {
                times.push(millis(command)?);
            }
        }
        let [ours, theirs] = times.each_ref().map(Samples::median);
        table.row(&format!("{name}, firelane run"), &times[0], "ms");
        table.row(&format!("{name}, by itself"), &times[1], "ms");
        table.at_most("  more", ours - theirs, WANTED_MILLIS, "ms");
        if ours - theirs > worst.0 {
            worst = (ours - theirs, ours, theirs);
        }
    }
    let (_, ours, theirs) = worst;
    Ok(Verdict {
        name: "run-start",
        ratio: theirs / ours,
        firelane: format!("{ours:.1} ms"),
        peer: format!("{theirs:.1} ms"),
    })
}

/// How long a command takes, which must succeed.
fn millis(mut command: Command) -> Result<f64> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    let took = start.elapsed();
    if output.status.success() {
        return Ok(took.as_secs_f64() * 1e3);
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
