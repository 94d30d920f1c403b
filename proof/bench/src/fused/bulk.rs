//! `fused-bulk`: one connection one way, in writes of 16 KB and of 128 KB.

use crate::cpu::PLACEMENTS;
use crate::peer::Result;
use crate::report::{Table, Verdict, number};
use crate::scene::Scene;
use crate::stream::Use;

use super::{Placed, greatest, streams};

const ROUNDS: usize = 5;
const MILLIS: u32 = 150;
const WRITES: [usize; 2] = [16 << 10, 128 << 10];
const WANTED_RATIO: f64 = 2.0;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    // Gb/s, by the size of writes and the placement.
    let mut all = streams(&scene)?.map(|streams| (streams, <[Placed; WRITES.len()]>::default()));
    for _ in 0..ROUNDS {
        for nth in 0..WRITES.len() {
            for placement in 0..PLACEMENTS.len() {
                for (streams, rates) in &mut all {
                    let [bytes, nanos, ..] = streams.ask(placement, Use::Bulk, WRITES[nth], MILLIS)?;
                    rates[nth][placement].push(bytes as f64 * 8.0 / nanos as f64);
                }
            }
        }
    }
    let table = Table::begin("fused-bulk: one connection, one way, each side at its best placement");
    let mut worst = (f64::INFINITY, 0.0, 0.0);
    for (nth, bytes) in WRITES.iter().enumerate() {
        let [ours, theirs, _] = all.each_ref().map(|(streams, rates)| {
            let (placement, best) = greatest(&rates[nth]);
            let name = format!("{} KB: {}, {}", bytes >> 10, streams.side.name, PLACEMENTS[placement].0);
            table.row(&name, &rates[nth][placement], "Gb/s");
            best
        });
        table.at_least("  of kernel loopback", ours / theirs, WANTED_RATIO, "times");
        if ours / theirs < worst.0 {
            worst = (ours / theirs, ours, theirs);
        }
    }
    let (ratio, ours, theirs) = worst;
    Ok(Verdict {
        name: "fused-bulk",
        ratio,
        firelane: format!("{} Gb/s", number(ours)),
        peer: format!("{} Gb/s", number(theirs)),
    })
}
