//! `lanes-scale`: what a second lane adds, and what many VNICs and flows cost.
//!
//! Each lane is that of `switch`: frames that were made once go round inside it, because on two CPUs there is none left for a
//! generator (`side_by_side.rs`). The peer is the kernel's bridge, one and then two of them.

use std::thread;
use std::time::Duration;

use crate::bridge::{Bridge, Moved};
use crate::peer::Result;
use crate::report::{Table, Verdict, number};
use crate::side_by_side::{self, LANES, ROUNDS, Rates, Rounds, SPAN};
use crate::switch::{Shape, World};

const WANTED_RATIO: f64 = 1.85;
const WANTED_MPPS: f64 = 6.0;
/// As in `switch`.
const FEW: Shape = Shape { vnics: 4, flows_per_vnic: 8, senders: 1, frames: 512 };
/// 1,000 VNICs with 10,000 flows; thirty-two of them send at a time.
const MANY: Shape = Shape { vnics: 1000, flows_per_vnic: 10, senders: 32, frames: 4096 };

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

impl Rounds for World {
    fn go_round(&mut self, span: Duration) -> Result<Moved> {
        Ok(self.go_round(span))
    }

    fn check(&mut self) -> Result<()> {
        self.check()
    }
}

/// Rates of lanes of a shape.
fn lanes(shape: Shape) -> Result<Rates> {
    side_by_side::measure(|lane, backlogs| World::new(shape, lane, backlogs))
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
