//! `fused-redis`: redis GET on 50 connections, each request alone and sixteen at a time, `redis-server` and
//! `redis-benchmark` in the same place.

use crate::cpu::ANYWHERE;
use crate::peer::Result;
use crate::redis::Redis;
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::Scene;

use super::sides;

const ROUNDS: usize = 5;
/// How many requests a connection has under way, how many there are in a round, and how many times the kernel's figure
/// is wanted.
const KINDS: [(u32, u32, f64); 2] = [(1, 60_000, 5.0), (16, 400_000, 1.3)];

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let [fused, loopback] = sides(&scene);
    let mut ours = Redis::start(fused.name, fused.host, [fused.place; 2], Some(scene.daemon()), ANYWHERE)?;
    let mut theirs = Redis::start(loopback.name, loopback.host, [loopback.place; 2], None, ANYWHERE)?;
    let table = Table::begin("fused-redis: GET, 50 connections, client and server in the same place");
    let mut verdict = (0.0, 0.0);
    let mut foreign = Samples::default();
    for (pipeline, requests, wanted) in KINDS {
        for _ in 0..ROUNDS {
            foreign.push(ours.round(requests, pipeline)?);
            foreign.push(theirs.round(requests, pipeline)?);
        }
        for side in [&ours, &theirs] {
            let name = format!("{pipeline} at a time: {}", side.name);
            table.row(&name, &side.served, "k/CPU-s");
            table.row("  of all parties", &side.rates.cpu, "k/CPU-s");
            table.row("  in time", &side.rates.wall, "k/s");
        }
        let [mine, peers] = [&ours, &theirs].map(|side| side.served.median());
        table.at_least("  per CPU-second of the server", mine / peers, wanted, "times the kernel's");
        if pipeline == 1 {
            verdict = (mine, peers);
        }
        ours.begin();
        theirs.begin();
    }
    table.disturbance(&foreign);
    let (mine, peers) = verdict;
    Ok(Verdict {
        name: "fused-redis",
        ratio: mine / peers,
        firelane: format!("{} k/CPU-s of the server", number(mine)),
        peer: format!("{} k/CPU-s", number(peers)),
    })
}
