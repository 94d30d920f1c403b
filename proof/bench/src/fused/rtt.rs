//! `fused-rtt`: 64 bytes and 1 KB there and back, one connection, both ends blocking, and both spinning.

use crate::cpu::{ONE_CPU, PLACEMENTS, TWO_CPUS};
use crate::peer::Result;
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::Scene;
use crate::stream::Use;

use super::{Placed, Streams, least, streams};

const ROUNDS: usize = 5;
const MILLIS: u32 = 90;
/// Each kind of trip: how both ends wait, its bytes, and how long it may take at the most.
const TRIPS: [(Use, usize, Option<f64>); 4] = [
    (Use::Spinning, 64, Some(0.8)),
    (Use::Spinning, 1024, Some(1.2)),
    (Use::Blocking, 64, None),
    (Use::Blocking, 1024, None),
];
const WANTED_SPINNING: f64 = 8.0;
const WANTED_TAIL: f64 = 5.0;

/// What two ends have measured, for each kind of trip and each placement: microseconds, and how many times longer than
/// the median the longest thousandth takes.
struct Measured<'a> {
    streams: Streams<'a>,
    micros: [Placed; TRIPS.len()],
    tails: [Placed; TRIPS.len()],
    /// CPUs of all parties.
    busy: [Placed; TRIPS.len()],
}

impl Measured<'_> {
    /// What others used of the machine meanwhile.
    fn round(&mut self, trip: usize, placement: usize) -> Result<f64> {
        let (what, bytes, _) = TRIPS[trip];
        let ([count, nanos, median, longest, _], used) = self.streams.ask(placement, what, bytes, MILLIS)?;
        self.micros[trip][placement].push(nanos as f64 * 1e-3 / count.max(1) as f64);
        self.tails[trip][placement].push(longest as f64 / median.max(1) as f64);
        self.busy[trip][placement].push(used.busy());
        Ok(used.foreign())
    }
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let start = |streams| {
        let [micros, tails, busy] = Default::default();
        Measured { streams, micros, tails, busy }
    };
    let mut foreign = Samples::default();
    let mut all = streams(&scene)?.map(start);
    for _ in 0..ROUNDS {
        for (trip, (what, ..)) in TRIPS.iter().enumerate() {
            for placement in 0..PLACEMENTS.len() {
                // Two that spin on one CPU wait for each other's time slices.
                if *what == Use::Spinning && placement != TWO_CPUS {
                    continue;
                }
                for side in &mut all {
                    foreign.push(side.round(trip, placement)?);
                }
            }
        }
    }
    let table = Table::begin("fused-rtt: there and back, one connection, each side at its best placement");
    for (trip, _) in TRIPS.iter().enumerate() {
        show(&table, &all, trip);
    }
    table.disturbance(&foreign);
    let [ours, theirs, _] = all.each_ref().map(|side| least(&side.micros[0]).1);
    Ok(Verdict {
        name: "fused-rtt",
        ratio: theirs / ours,
        firelane: format!("{} us, 64 bytes, spinning", number(ours)),
        peer: format!("{} us", number(theirs)),
    })
}

fn show(table: &Table, all: &[Measured<'_>; 3], trip: usize) {
    let (what, bytes, most) = TRIPS[trip];
    let kind = format!("{bytes} bytes, {}", what.word());
    let bests = all.each_ref().map(|measured| {
        let (placement, best) = least(&measured.micros[trip]);
        let name = format!("{kind}: {}, {}", measured.streams.side.name, PLACEMENTS[placement].0);
        table.row(&name, &measured.micros[trip][placement], "us");
        table.row("  all parties busy", &measured.busy[trip][placement], "CPUs");
        (placement, best)
    });
    let [fused, loopback, unix] = bests.map(|(_, best)| best);
    let tails: &Samples = &all[0].tails[trip][bests[0].0];
    table.row("  its p99.9, of its median", tails, "times");
    table.fact(
        "  kernel loopback and AF_UNIX, of it",
        &format!("{} {}", number(loopback / fused), number(unix / fused)),
    );
    if what == Use::Blocking {
        let one_cpu = &all[1].micros[trip][ONE_CPU];
        table.row("  kernel loopback, both ends on one CPU", one_cpu, "us");
        table.at_least("  of kernel loopback's best", loopback / fused, 1.0, "times as fast");
    } else {
        table.at_least("  of kernel loopback's", loopback / fused, WANTED_SPINNING, "times as fast");
    }
    if let Some(most) = most {
        table.at_most("  a trip", fused, most, "us");
    }
    table.at_most("  p99.9", tails.median(), WANTED_TAIL, "times the median");
}
