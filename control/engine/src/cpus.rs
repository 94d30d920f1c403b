//! On which CPUs the lanes run, changed while they do.
//!
//! A lane is a thread, and moves as the scheduler moves threads: between two of its instructions. Its connections, rings and
//! timers stay where they are, so nothing is lost and nothing has to be handed over. The original moved a
//! squeue's bound threads when a CPU was taken off line; here the kernel does that, and [`Engine::lane_cpus`] tells what
//! became of them.

use std::sync::{MutexGuard, PoisonError};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::engine::Engine;
use crate::error::ChangeError;

/// The lanes' threads, in their order.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) lanes: Vec<Pid>,
    /// Those in reserve, and the CPU on which each runs for links.
    pub(crate) own: Vec<(Pid, Option<usize>)>,
    /// Where they may run when nothing is said: the CPUs of the process that made them.
    pub(crate) whole: CpuSet,
}

impl Threads {
    pub(crate) fn of(lanes: Vec<Pid>, own: Vec<Pid>) -> Self {
        let own = own.into_iter().map(|thread| (thread, None)).collect();
        Self { lanes, own, whole: sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()) }
    }
}

pub(crate) fn listed(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

impl Engine {
    /// Moves the lanes, while they run: the first to the first of these CPUs, and round again if there are more lanes. Without
    /// CPUs each goes where the scheduler has room. Lanes that a program drives itself stay with it.
    ///
    /// # Errors
    /// A CPU does not exist, is off line, or is not for this process; then all lanes stay where they are.
    pub fn set_cpus(&self, cpus: &[usize]) -> Result<(), ChangeError> {
        let threads = self.lane_threads();
        // One that no lane is for has to exist as well: with more lanes it would be used.
        let mut spare = cpus.iter().skip(threads.lanes.len());
        if let Some(&cpu) = spare.find(|&&cpu| cpu >= CpuSet::MAX_CPU || !threads.whole.is_set(cpu)) {
            return Err(ChangeError::NoCpu { cpu, usable: listed(&threads.whole) });
        }
        let mut moved = Vec::new();
        for (nth, &lane) in threads.lanes.iter().enumerate() {
            let wanted = (!cpus.is_empty()).then(|| cpus[nth % cpus.len()]);
            let before = sched_getaffinity(Some(lane));
            if let Err(error) = bind(lane, wanted, &threads.whole) {
                for (lane, before) in moved {
                    // Where it was a moment ago it may be again.
                    let _ = sched_setaffinity(Some(lane), &before);
                }
                return Err(error);
            }
            moved.extend(before.ok().map(|before| (lane, before)));
        }
        Ok(())
    }

    /// The CPUs on which each lane may run now, as the scheduler says: what was asked for, unless such a CPU has gone off line
    /// since or somebody else has moved the lane.
    pub fn lane_cpus(&self) -> Vec<Vec<usize>> {
        let cpus =
            |&lane: &Pid| sched_getaffinity(Some(lane)).map_or_else(|_| Vec::new(), |set| listed(&set));
        self.lane_threads().lanes.iter().map(cpus).collect()
    }

    pub(crate) fn lane_threads(&self) -> MutexGuard<'_, Threads> {
        self.0.lane_threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn bind(lane: Pid, cpu: Option<usize>, whole: &CpuSet) -> Result<(), ChangeError> {
    let refused = |cpu| ChangeError::NoCpu { cpu, usable: listed(whole) };
    let set = match cpu {
        None => *whole,
        Some(cpu) if cpu >= CpuSet::MAX_CPU => return Err(refused(cpu)),
        Some(cpu) => {
            let mut set = CpuSet::new();
            set.set(cpu);
            set
        }
    };
    sched_setaffinity(Some(lane), &set).map_err(|error| match cpu {
        Some(cpu) => refused(cpu),
        None => ChangeError::Device(error.into()),
    })
}
