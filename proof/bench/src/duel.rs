//! The same work on two sides, ours and the kernel's, by how much of it a CPU-second of all parties does.
//!
//! Used by `redis-tap`, `nginx-close` and `sendfile`. Each side has its best placement: client and server each on a CPU of its own, both on one, or
//! where the scheduler puts them, and the daemon on the server's CPU, where the kernel's own part of the work is. Servers of all placements live
//! through all rounds, which alternate.

use crate::cpu::{self, Meter, PLACEMENTS, bind_process};
use crate::peer::Result;
use crate::report::{Samples, Table, Verdict, number};

const ROUNDS: usize = 5;

/// Work in time, and per CPU-second of all parties.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    pub(crate) wall: Samples,
    pub(crate) cpu: Samples,
}

impl Rates {
    /// Has `work` done, which says how much it was. Parties are the processes in `parties` and those that the work starts
    /// and waits for. What others used of the machine meanwhile.
    pub(crate) fn measure(&mut self, parties: &[u32], work: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let children = cpu::children_time();
        let meter = Meter::start(parties);
        let amount = work()?;
        let mut used = meter.stop();
        used.parties += cpu::children_time().saturating_sub(children);
        self.wall.push(amount / used.wall.as_secs_f64());
        self.cpu.push(amount / used.parties.as_secs_f64());
        Ok(used.foreign())
    }
}

/// One side, at one placement.
pub(crate) struct Side<'a> {
    pub(crate) name: &'static str,
    /// The server's processes.
    pub(crate) servers: Vec<u32>,
    /// Ours.
    pub(crate) daemon: Option<u32>,
    /// A round of work: how much it was.
    pub(crate) work: Box<dyn FnMut() -> Result<f64> + 'a>,
}

impl Side<'_> {
    fn measure(&mut self, placement: usize, rates: &mut Rates) -> Result<f64> {
        if let Some(daemon) = self.daemon {
            let [_, server_cpu] = PLACEMENTS[placement].1;
            bind_process(daemon, server_cpu)?;
        }
        let parties: Vec<u32> = self.servers.iter().copied().chain(self.daemon).collect();
        rates.measure(&parties, &mut self.work)
    }
}

/// A side at each of [`PLACEMENTS`].
pub(crate) type Placed<T> = [T; PLACEMENTS.len()];

/// Starts it at each.
pub(crate) fn at_each_placement<T>(start: impl FnMut(usize) -> Result<T>) -> Result<Placed<T>> {
    let started: Vec<T> = (0..PLACEMENTS.len()).map(start).collect::<Result<_>>()?;
    Ok(started.try_into().unwrap_or_else(|_| unreachable!("one for each placement")))
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duel {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Of work.
    pub(crate) unit: &'static str,
    /// How many times the kernel's work per CPU-second.
    pub(crate) wanted: f64,
}

impl Duel {
    /// Measures both sides in turn, at each placement.
    pub(crate) fn run(self, sides: [Placed<Side<'_>>; 2]) -> Result<Verdict> {
        let Self { name, title, unit, wanted } = self;
        let mut sides = sides.map(|placed| placed.map(|side| (side, Rates::default())));
        let mut foreign = Samples::default();
        for _ in 0..ROUNDS {
            for placement in 0..PLACEMENTS.len() {
                for placed in &mut sides {
                    let (side, rates) = &mut placed[placement];
                    foreign.push(side.measure(placement, rates)?);
                }
            }
        }
        let table = Table::begin(&format!("{name}: {title}, each side at its best placement"));
        let [ours, theirs] = sides.each_ref().map(|placed| {
            for ((side, rates), (placement, _)) in placed.iter().zip(PLACEMENTS) {
                table.row(&format!("{}, {placement}", side.name), &rates.wall, &format!("{unit}/s"));
                table.row("  all parties", &rates.cpu, &format!("{unit}/CPU-s"));
            }
            placed.iter().map(|(_, rates)| rates.cpu.median()).fold(0.0, f64::max)
        });
        table.disturbance(&foreign);
        table.at_least("ratio", ours / theirs, wanted, "");
        let told = |rate| format!("{} {unit}/CPU-s", number(rate));
        Ok(Verdict { name, ratio: ours / theirs, firelane: told(ours), peer: told(theirs) })
    }
}
