//! `lanes-scale`: what a second lane adds, and what many VNICs and flows cost.
//!
//! Each lane is that of `switch`: frames that were made once go round inside it, because on two CPUs there is none left for a
//! generator. One lane alone on each CPU in turn, then both at once. Rates are per second of each lane's own CPU time, so that
//! what others do on the machine matters little; memory and caches are shared as they are. The peer is the kernel's bridge, one
//! and then two of them.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use firelane_lane::Backlogs;
use firelane_units::LaneId;

use crate::bridge::Bridge;
use crate::cpu;
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict, number};
use crate::switch::{Shape, World};

const ROUNDS: usize = ROUNDS_MIN;
const SPAN: Duration = Duration::from_millis(400);
const WARM_UP: Duration = Duration::from_millis(200);
const LANES: usize = 2;
const WANTED_RATIO: f64 = 1.85;
const WANTED_MPPS: f64 = 6.0;
/// As in `switch`.
const FEW: Shape = Shape { vnics: 4, flows_per_vnic: 8, senders: 1, frames: 512 };
/// 1,000 VNICs with 10,000 flows; thirty-two of them send at a time.
const MANY: Shape = Shape { vnics: 1000, flows_per_vnic: 10, senders: 32, frames: 4096 };

/// What is measured of one shape: million frames per second.
#[derive(Debug, Default)]
struct Rates {
    one: Samples,
    two: Samples,
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let few = lanes(FEW)?;
    let many = lanes(MANY)?;
    let bridges = bridges()?;
    let table = Table::begin("lanes-scale: 64-byte frames between virtual stations, one lane and two");
    for (what, rates) in [
        ("4 VNICs, 32 flows", &few),
        ("1,000 VNICs, 10,000 flows", &many),
        ("kernel bridges, generators included", &bridges),
    ] {
        table.row(&format!("{what}, one"), &rates.one, "M/CPU-s");
        table.row(&format!("{what}, two"), &rates.two, "M/s of both");
        table.note(&format!("{} times as much", number(rates.two.median() / rates.one.median())));
    }
    let scale = |rates: &Rates| rates.two.median() / rates.one.median();
    let ratio = scale(&few).min(scale(&many));
    table.at_least("two lanes, of one, the worse shape", ratio, WANTED_RATIO, "times");
    table.at_least("a lane with 1,000 VNICs and 10,000 flows", many.one.median(), WANTED_MPPS, "Mpps");
    Ok(Verdict {
        name: "lanes-scale",
        ratio,
        firelane: format!("{} Mpps by two lanes", number(few.two.median())),
        peer: format!(
            "{} Mpps by two bridges, {} times one",
            number(bridges.two.median()),
            number(scale(&bridges))
        ),
    })
}

/// Rates of lanes of a shape, each on a thread and a CPU of its own.
fn lanes(shape: Shape) -> Result<Rates> {
    let backlogs = Arc::new(Backlogs::new(LANES));
    let turns = Barrier::new(LANES);
    let measured = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|nth| {
                let (backlogs, turns) = (Arc::clone(&backlogs), &turns);
                scope.spawn(move || lane(shape, nth, backlogs, turns))
            })
            .collect();
        let joined = lanes.into_iter().map(|lane| lane.join().map_err(|_| "a lane's thread panicked")?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    let mut rates = Rates::default();
    for round in 0..ROUNDS {
        let sum = |which: usize| measured.iter().map(|rounds| rounds[round][which]).sum::<f64>();
        rates.one.push(sum(0) / LANES as f64);
        rates.two.push(sum(1));
    }
    Ok(rates)
}

/// One lane's rates, alone and beside the other, round by round.
fn lane(shape: Shape, nth: usize, backlogs: Arc<Backlogs>, turns: &Barrier) -> Result<Vec<[f64; 2]>> {
    let bound = cpu::bind(nth);
    let mut world = World::new(shape, LaneId(nth as u16), backlogs);
    world.go_round(WARM_UP);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut alone = 0.0;
        for turn in 0..LANES {
            turns.wait();
            if turn == nth {
                alone = 1000.0 / world.go_round(SPAN).nanos_per_frame();
            }
        }
        turns.wait();
        rounds.push([alone, 1000.0 / world.go_round(SPAN).nanos_per_frame()]);
    }
    // Whoever fails does so after the last turn: the others would wait for him.
    bound?;
    world.check()?;
    Ok(rounds)
}

/// The same of bridges, each with a generator on a CPU of its own.
fn bridges() -> Result<Rates> {
    let mut bridges = (0..LANES).map(Bridge::new).collect::<Result<Vec<_>>>()?;
    let mut rates = Rates::default();
    for _ in 0..ROUNDS {
        let mut alone = 0.0;
        for bridge in &mut bridges {
            alone += 1000.0 / bridge.forward(SPAN)?.nanos_per_frame();
        }
        rates.one.push(alone / LANES as f64);
        let both = thread::scope(|scope| {
            let bridges: Vec<_> =
                bridges.iter_mut().map(|bridge| scope.spawn(move || bridge.forward(SPAN))).collect();
            let moved = bridges.into_iter().map(|it| it.join().map_err(|_| "a bridge's thread panicked")?);
            moved.map(|moved| Ok(1000.0 / moved?.nanos_per_frame())).sum::<Result<f64>>()
        })?;
        rates.two.push(both);
    }
    Ok(rates)
}
