//! Two lanes, each on a thread and a CPU of its own: one alone after the other, then both at once.
//!
//! Used by `lanes_scale.rs` and `forward.rs`. Rates are per second of each lane's own CPU time, so that what others do on the machine
//! matters little; memory and caches are shared as they are.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use firelane_lane::Backlogs;
use firelane_units::LaneId;

use crate::bridge::Moved;
use crate::cpu;
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples};

pub(crate) const ROUNDS: usize = ROUNDS_MIN;
pub(crate) const SPAN: Duration = Duration::from_millis(400);
const WARM_UP: Duration = Duration::from_millis(200);
pub(crate) const LANES: usize = 2;

/// What is measured: million frames per second.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// By a lane alone.
    pub(crate) one: Samples,
    /// By both at once.
    pub(crate) two: Samples,
    /// How much more the one forwards than the other meanwhile, as a share of that.
    pub(crate) apart: Samples,
}

/// A lane whose frames go round.
pub(crate) trait Rounds {
    /// Lets them go round until the lane has been busy for `span`.
    fn go_round(&mut self, span: Duration) -> Result<Moved>;

    /// Whether the lane's books are balanced.
    fn check(&mut self) -> Result<()>;
}

/// Rates of lanes that `make` makes, each where it works.
pub(crate) fn measure<R: Rounds>(make: impl Fn(LaneId, Arc<Backlogs>) -> R + Sync) -> Result<Rates> {
    let backlogs = Arc::new(Backlogs::new(LANES));
    let turns = Barrier::new(LANES);
    let measured = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|nth| {
                let (backlogs, turns, make) = (Arc::clone(&backlogs), &turns, &make);
                scope.spawn(move || {
                    let bound = cpu::bind(nth);
                    let rounds = lane(make(LaneId(nth as u16), backlogs), nth, turns);
                    bound.and(rounds)
                })
            })
            .collect();
        let joined = lanes.into_iter().map(|lane| lane.join().map_err(|_| "a lane's thread panicked")?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    let mut rates = Rates::default();
    for round in 0..ROUNDS {
        let [alone, beside] = [0, 1].map(|which| measured.iter().map(move |rounds| rounds[round][which]));
        rates.one.push(alone.sum::<f64>() / LANES as f64);
        rates.two.push(beside.clone().sum::<f64>());
        let least = beside.clone().fold(f64::INFINITY, f64::min);
        rates.apart.push(beside.fold(0.0, f64::max) / least - 1.0);
    }
    Ok(rates)
}

/// One lane's rates, alone and beside the other, round by round.
fn lane(mut world: impl Rounds, nth: usize, turns: &Barrier) -> Result<Vec<[f64; 2]>> {
    // Whoever fails does so after the last turn: the others would wait for him.
    let mut failed = world.go_round(WARM_UP).err();
    let mut rate = || match world.go_round(SPAN) {
        Ok(moved) => 1000.0 / moved.nanos_per_frame(),
        Err(error) => {
            failed.get_or_insert(error);
            f64::NAN
        }
    };
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut alone = 0.0;
        for turn in 0..LANES {
            turns.wait();
            if turn == nth {
                alone = rate();
            }
        }
        turns.wait();
        rounds.push([alone, rate()]);
    }
    failed.map_or(Ok(()), Err)?;
    world.check()?;
    Ok(rounds)
}
