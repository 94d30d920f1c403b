//! Two lanes, each on a thread and a CPU of its own: one alone after the other, then both at once.
//!
//! Used by `lanes_scale.rs` and `forward.rs`. Rates are per second of each lane's own CPU time, so that what others do on the machine
//! matters little; memory and caches are shared as they are. A CPU of a rented machine may be slower than the other for a while, whoever
//! is on it: the lanes change places after each round, and a lane's load is what it forwards on both.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use firelane_lane::Backlogs;
use firelane_units::LaneId;

use crate::bridge::Moved;
use crate::cpu;
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples};

/// As many on one CPU as on the other.
pub(crate) const ROUNDS: usize = 2 * ROUNDS_MIN;
pub(crate) const SPAN: Duration = Duration::from_millis(200);
const WARM_UP: Duration = Duration::from_millis(200);
pub(crate) const LANES: usize = 2;

/// What is measured: million frames per second.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// By a lane alone.
    pub(crate) one: Samples,
    /// By both at once.
    pub(crate) two: Samples,
    /// How much more the one lane forwards than the other meanwhile, as a share of that, each on either CPU for as long.
    pub(crate) apart: f64,
    /// The same of the CPUs, whoever is on them.
    pub(crate) cpus_apart: f64,
}

/// One lane's rates, round by round: alone, and beside the other.
type Lane = Vec<[f64; 2]>;

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
    let cpus = cpu::allowed()?;
    let measured = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|nth| {
                let (backlogs, turns, make, cpus) = (Arc::clone(&backlogs), &turns, &make, &cpus);
                scope.spawn(move || {
                    let bound = cpu::bind_among(cpus, nth);
                    let rounds = lane(make(LaneId(nth as u16), backlogs), nth, turns, cpus);
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
        rates.two.push(beside.sum::<f64>());
    }
    let (lanes, cpus): (Samples, Samples) =
        (0..ROUNDS).step_by(LANES).map(|first| halves(&measured, first)).unzip();
    (rates.apart, rates.cpus_apart) = (apart(&lanes), apart(&cpus));
    Ok(rates)
}

/// Which CPU a lane is on in a round.
const fn cpu_of(lane: usize, round: usize) -> usize {
    (lane + round) % LANES
}

/// Of two rounds in which each lane was on either CPU, how much the first lane forwarded beside the other, of what the other did; and
/// the same of the CPUs. A CPU that is slow in both rounds makes both lanes slow.
fn halves(measured: &[Lane], first: usize) -> (f64, f64) {
    let beside = |lane: usize, round: usize| measured[lane][first + round][1];
    let lanes = [0, 1].map(|lane| beside(lane, 0) + beside(lane, 1));
    let cpus = [0, 1].map(|cpu| beside(cpu_of(cpu, first), 0) + beside(cpu_of(cpu, first + 1), 1));
    (lanes[0] / lanes[1], cpus[0] / cpus[1])
}

/// How far the median is from one.
fn apart(ratios: &Samples) -> f64 {
    let ratio = ratios.median();
    ratio.max(1.0 / ratio) - 1.0
}

/// One lane's rates, alone and beside the other, round by round.
fn lane(mut world: impl Rounds, nth: usize, turns: &Barrier, cpus: &[usize]) -> Result<Lane> {
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
    let mut bound = Ok(());
    for round in 0..ROUNDS {
        bound = bound.and(cpu::bind_among(cpus, cpu_of(nth, round)));
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
    failed.map_or(bound, Err)?;
    world.check()?;
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_cpu_is_no_slow_lane_and_a_slow_lane_no_slow_cpu() {
        let measured = |rate: fn(usize, usize) -> f64| -> Vec<Lane> {
            let lane = |lane| (0..ROUNDS).map(|round| [0.0, rate(lane, cpu_of(lane, round))]).collect();
            (0..LANES).map(lane).collect()
        };
        for first in (0..ROUNDS).step_by(LANES) {
            let cpu = measured(|_, cpu| [12.0, 6.0][cpu]);
            assert_eq!(halves(&cpu, first), (1.0, 2.0));
            let lane = measured(|lane, _| [5.0, 10.0][lane]);
            assert_eq!(halves(&lane, first), (0.5, 1.0));
        }
        assert_eq!([2.0, 0.5, 1.0].map(|ratio| apart(&[ratio].into_iter().collect())), [1.0, 1.0, 0.0]);
    }
}
