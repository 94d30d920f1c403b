//! `fused-bulk`: one connection one way, in writes of 16 KB and of 128 KB.

use crate::cpu::PLACEMENTS;
use crate::peer::Result;
use crate::report::{Samples, Table, Verdict, number};
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
    // Gb/s and busy CPUs, by the size of writes and the placement.
    type Rates = [Placed; WRITES.len()];
    let mut all = streams(&scene)?.map(|streams| (streams, <[Rates; 2]>::default()));
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        for nth in 0..WRITES.len() {
            for placement in 0..PLACEMENTS.len() {
                for (streams, [rates, busy]) in &mut all {
                    let ([bytes, nanos, ..], used) =
                        streams.ask(placement, Use::Bulk, WRITES[nth], MILLIS)?;
                    rates[nth][placement].push(bytes as f64 * 8.0 / nanos as f64);
                    busy[nth][placement].push(used.busy());
                    foreign.push(used.foreign());
                }
            }
        }
    }
    let table = Table::begin("fused-bulk: one connection, one way, each side at its best placement");
    let mut worst = (f64::INFINITY, 0.0, 0.0);
    for (nth, bytes) in WRITES.iter().enumerate() {
        let [ours, theirs, _] = all.each_ref().map(|(streams, [rates, busy])| {
            let (placement, best) = greatest(&rates[nth]);
            let name = format!("{} KB: {}, {}", bytes >> 10, streams.side.name, PLACEMENTS[placement].0);
            table.row(&name, &rates[nth][placement], "Gb/s");
            table.row("  all parties busy", &busy[nth][placement], "CPUs");
            best
        });
        table.at_least("  of kernel loopback", ours / theirs, WANTED_RATIO, "times");
        if ours / theirs < worst.0 {
            worst = (ours / theirs, ours, theirs);
        }
    }
    table.disturbance(&foreign);
    let (ratio, ours, theirs) = worst;
    Ok(Verdict {
        name: "fused-bulk",
        ratio,
        firelane: format!("{} Gb/s", number(ours)),
        peer: format!("{} Gb/s", number(theirs)),
    })
}
