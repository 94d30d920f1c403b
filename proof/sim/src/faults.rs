//! What goes wrong on a wire, and when it stops.
//!
//! A world's weather is drawn from its seed: each wire gets a climate (rate, delay, queue) that it keeps, and
//! faults on top that change from time to time. At a known instant all faults stop; from then on everything has
//! to come to its end.

use std::collections::BTreeSet;
use std::time::Duration;

use firelane_driver_memory::{Chance, Conditions, Corruption, GilbertElliott, Loss, Mark, Reorder};
use firelane_units::{BitRate, Bytes, Instant, Mtu};

use crate::random::Random;
use crate::sim::Sim;

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Weather {
    /// Frames are lost, each with the same chance.
    Loss,
    /// Frames are lost in bursts.
    Bursts,
    /// Some frames take longer.
    Late,
    /// Some frames are passed by a number of later ones.
    Overtaken,
    /// Frames arrive twice.
    Doubles,
    /// A bit is flipped, and checksums have to show it.
    Corruption,
    /// The delay jumps.
    DelayJumps,
    /// The rate changes.
    RateChanges,
    /// For a while large packets vanish.
    MtuShrinks,
    /// For a while nothing gets through.
    Flaps,
    /// Packets of capable transports are marked.
    Marks,
}

impl Weather {
    /// All of it.
    pub const ALL: [Self; 11] = [
        Self::Loss,
        Self::Bursts,
        Self::Late,
        Self::Overtaken,
        Self::Doubles,
        Self::Corruption,
        Self::DelayJumps,
        Self::RateChanges,
        Self::MtuShrinks,
        Self::Flaps,
        Self::Marks,
    ];

    /// Changes `conditions` in its way.
    fn strike(self, conditions: &mut Conditions, random: &mut Random) {
        let percent =
            |random: &mut Random, most: u64| Chance::percent(random.size(1..most * 100) as f64 / 100.0);
        match self {
            Self::Loss => conditions.loss = Loss::Random(percent(random, 15)),
            Self::Bursts => {
                conditions.loss = Loss::Burst(GilbertElliott {
                    worsen: percent(random, 3),
                    recover: Chance::percent(random.within(10..60) as f64),
                    loss_good: Chance::NEVER,
                    loss_bad: Chance::percent(random.within(30..100) as f64),
                });
            }
            Self::Late => {
                let extra = random.micros(10..20_000);
                conditions.reorder = Reorder::Delay { chance: percent(random, 20), extra };
            }
            Self::Overtaken => {
                let later = random.within(1..12) as u32;
                let at_most = random.micros(1_000..50_000);
                conditions.reorder = Reorder::Positions { chance: percent(random, 20), later, at_most };
            }
            Self::Doubles => conditions.duplicate = percent(random, 20),
            Self::Corruption => {
                conditions.corrupt = percent(random, 8);
                conditions.corruption = Corruption::Shows;
            }
            Self::DelayJumps => conditions.delay = random.micros(0..150_000),
            Self::RateChanges => {
                conditions.rate = Some(BitRate::from_bps(random.size(500_000..1_000_000_000)))
            }
            Self::MtuShrinks => conditions.mtu = Mtu::new(random.within(576..1500) as u16),
            Self::Marks if random.one_in(2) => conditions.mark = Mark::Random(percent(random, 30)),
            Self::Marks => conditions.mark = Mark::Above(Bytes(random.size(1_500..100_000))),
            Self::Flaps => conditions.blackhole = random.one_in(3),
        }
    }
}

/// What a wire is like when nothing goes wrong.
pub fn random_conditions(random: &mut Random) -> Conditions {
    let rate = random.pick(&[None, Some(1000), Some(100), Some(20)]).map(BitRate::from_mbps);
    let delay = Duration::from_micros(random.pick(&[0, 0, 100, 1_000, 10_000, 40_000]));
    let queue = Bytes(random.pick(&[20_000, 100_000, 1_000_000]));
    let jitter = if random.one_in(4) { delay / 4 } else { Duration::ZERO };
    Conditions { rate, delay, queue, jitter, ..Conditions::default() }
}

/// Draws the kinds of weather of a world.
pub(crate) fn random_weather(random: &mut Random) -> BTreeSet<Weather> {
    // Mostly a few kinds, so that each shows what it alone does; now and then everything at once.
    let count = random.pick(&[0, 1, 1, 1, 2, 2, 3, 3, 4, 6, 20]);
    (0..count).map(|_| random.pick(&Weather::ALL)).collect()
}

/// The span for which a change of weather lasts.
const SPELL: std::ops::Range<u64> = 20_000..3_000_000;

/// Lets `weather` change on every wire from time to time until `stop`, when each gets its climate back.
pub(crate) fn schedule(sim: &mut Sim, weather: &BTreeSet<Weather>, stop: Instant, random: &mut Random) {
    for n in 0..sim.wires().len() {
        for is_forth in [true, false] {
            let control = {
                let wire = sim.wire(n);
                if is_forth { wire.forth.clone() } else { wire.back.clone() }
            };
            // Two bits flipped in one frame can hide each other from a sum of 16 bits, so only the first wire of a
            // way flips any.
            let may_corrupt = is_forth || sim.wires().len() == 1;
            let climate = control.conditions();
            let mut at = sim.now();
            while at < stop {
                let mut conditions = climate.clone();
                for kind in weather.iter().filter(|kind| **kind != Weather::Corruption || may_corrupt) {
                    kind.strike(&mut conditions, random);
                }
                let control = control.clone();
                sim.at(at, move |_| control.set(conditions));
                at += random.micros(SPELL);
            }
            sim.at(stop, move |_| control.set(climate));
        }
    }
}
