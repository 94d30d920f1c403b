//! The same work on two sides, ours and the kernel's, by how much of it a CPU-second of all parties does.
//!
//! Used by `redis-tap`, `nginx-close` and `sendfile`. Both sides live through all rounds, which alternate.

use crate::cpu::{self, Meter};
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

/// One side.
pub(crate) struct Side<'a> {
    pub(crate) name: &'static str,
    /// Servers, and the daemon.
    pub(crate) parties: Vec<u32>,
    /// A round of work: how much it was.
    pub(crate) work: Box<dyn FnMut() -> Result<f64> + 'a>,
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
    /// Measures both sides in turn.
    pub(crate) fn run(self, sides: [Side<'_>; 2]) -> Result<Verdict> {
        let Self { name, title, unit, wanted } = self;
        let mut sides = sides.map(|side| (side, Rates::default()));
        let mut foreign = Samples::default();
        for _ in 0..ROUNDS {
            for (side, rates) in &mut sides {
                foreign.push(rates.measure(&side.parties, &mut side.work)?);
            }
        }
        let table = Table::begin(&format!("{name}: {title}"));
        for (side, rates) in &sides {
            table.row(side.name, &rates.wall, &format!("{unit}/s"));
            table.row(&format!("{}, all parties", side.name), &rates.cpu, &format!("{unit}/CPU-s"));
        }
        table.disturbance(&foreign);
        let [ours, theirs] = sides.each_ref().map(|(_, rates)| rates.cpu.median());
        table.at_least("ratio", ours / theirs, wanted, "");
        let told = |rate| format!("{} {unit}/CPU-s", number(rate));
        Ok(Verdict { name, ratio: ours / theirs, firelane: told(ours), peer: told(theirs) })
    }
}
