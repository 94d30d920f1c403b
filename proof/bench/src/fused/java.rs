//! `fused-java`: a Java client sends strings to a Java echo server over plain sockets, 100,000 times.

use std::ffi::OsStr;

use crate::cpu::{ONE_CPU, PLACEMENTS, TWO_CPUS};
use crate::peer::{Peer, Result};
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::Scene;

use super::{Placed, Side, bound_to, least, sides};

const SOURCE: &str = include_str!("RoundTrips.java");
const ROUNDS: usize = 5;
/// Strings in a round, and before the first: more than 100,000 in all.
const STRINGS: u32 = 5_000;
const WARM: u32 = 10_000;
const WANTED: [(&str, f64); 2] =
    [("of kernel loopback's best", 3.0), ("of kernel loopback on two CPUs", 10.0)];

/// The two programs at a placement.
fn start(side: Side<'_>, folder: &str, nth: usize) -> Result<(Peer, Peer)> {
    let port = (7000 + nth).to_string();
    let [client, server] = PLACEMENTS[nth].1;
    let play = |what: &str, cpu: &str| {
        let java = ["java", "-cp", folder, "RoundTrips", what, side.host, &port];
        let words = [&bound_to(cpu)[..], &java].concat();
        let mut command = side.place.command(OsStr::new(words[0]))?;
        command.args(&words[1..]);
        Peer::start_command(what, command)
    };
    let server = play("serve", server)?;
    let mut client = play("ask", client)?;
    client.ask(&WARM.to_string())?;
    Ok((client, server))
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let folder = scene.sandbox.folder().to_string_lossy().into_owned();
    let source = scene.sandbox.folder().join("RoundTrips.java");
    std::fs::write(&source, SOURCE)?;
    scene.sandbox.run(None, "javac", &["-d", &folder, &source.to_string_lossy()]).expect_success();
    let (mut micros, mut busy) = <([Placed; 2], [Placed; 2])>::default();
    let mut foreign = Samples::default();
    for placement in 0..PLACEMENTS.len() {
        let mut pairs = Vec::new();
        for side in sides(&scene) {
            pairs.push(start(side, &folder, placement)?);
        }
        for _ in 0..ROUNDS {
            for (nth, (side, (client, server))) in sides(&scene).into_iter().zip(&mut pairs).enumerate() {
                let (answer, used) =
                    side.measure(&[client.pid(), server.pid()], || client.ask(&STRINGS.to_string()))?;
                let nanos = answer.first().copied().unwrap_or_default();
                micros[nth][placement].push(nanos as f64 * 1e-3 / f64::from(STRINGS));
                busy[nth][placement].push(used.busy());
                foreign.push(used.foreign());
            }
        }
    }
    let table = Table::begin("fused-java: a string there and back, each side at its best placement");
    for (side, (micros, busy)) in sides(&scene).iter().zip(micros.iter().zip(&busy)) {
        for (placement, (name, _)) in PLACEMENTS.iter().enumerate() {
            table.row(&format!("{}, {name}", side.name), &micros[placement], "us");
            table.row("  all parties busy", &busy[placement], "CPUs");
        }
    }
    let [(_, ours), (_, theirs)] = micros.each_ref().map(least);
    let peers = [theirs, micros[1][TWO_CPUS].median()];
    for ((what, wanted), peer) in WANTED.into_iter().zip(peers) {
        table.at_least(what, peer / ours, wanted, "times as fast");
    }
    table.disturbance(&foreign);
    table.fact("of kernel loopback on one CPU", &number(micros[1][ONE_CPU].median() / ours));
    Ok(Verdict {
        name: "fused-java",
        ratio: theirs / ours,
        firelane: format!("{} us", number(ours)),
        peer: format!("{} us", number(theirs)),
    })
}
