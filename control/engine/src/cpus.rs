//! On which CPUs the lanes run, and how long at a time, changed while they do.
//!
//! A lane is a thread, and moves as the scheduler moves threads: between two of its instructions. Its connections, rings and
//! timers stay where they are, so nothing is lost and nothing has to be handed over. The original moved a
//! squeue's bound threads when a CPU was taken off line, and back when it came again; here the kernel does the first, and
//! [`Engine::return_lanes`] the second.

use std::sync::MutexGuard;
use std::time::Duration;

use firelane_units::LaneId;
use rustix::io::Errno;
use rustix::process::getpid;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::engine::Engine;
use crate::error::ChangeError;
use crate::sys;

/// A lane's thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) pid: Pid,
    /// The CPU on which it shall run; without, where the kernel likes.
    pub(crate) cpu: Option<usize>,
    /// Whether it was told that it does not run there.
    is_away: bool,
    /// Its lane has failed: it ends, and its number may be another thread's by now.
    is_lost: bool,
}

impl Thread {
    fn bound(pid: Pid, cpu: Option<usize>) -> Self {
        Self { pid, cpu, is_away: false, is_lost: false }
    }

    /// Whether it has not ended.
    pub(crate) fn is_left(&self) -> bool {
        !self.is_lost
    }

    /// Lets it run there from now on.
    pub(crate) fn bind(&mut self, cpu: Option<usize>, whole: &CpuSet) -> Result<(), ChangeError> {
        match cpu {
            _ if self.is_left() => bind(self.pid, cpu, whole)?,
            Some(cpu) if cpu >= CpuSet::MAX_CPU || !whole.is_set(cpu) => {
                return Err(ChangeError::NoCpu { cpu, usable: listed(whole) });
            }
            _ => {}
        }
        (self.cpu, self.is_away) = (cpu, false);
        Ok(())
    }

    /// On which CPUs it may run, as the scheduler says.
    pub(crate) fn affinity(&self) -> rustix::io::Result<CpuSet> {
        if self.is_lost { Err(Errno::SRCH) } else { sched_getaffinity(Some(self.pid)) }
    }

    /// Puts it back on its CPU if it is elsewhere and may be there; says what is new.
    fn look(&mut self, lane: LaneId, whole: &CpuSet) -> Option<CpuNews> {
        let cpu = self.cpu?;
        let is = listed(&self.affinity().ok()?);
        let is_there = is == [cpu];
        if is_there || bind(self.pid, Some(cpu), whole).is_ok() {
            let was_away = std::mem::take(&mut self.is_away);
            return (was_away || !is_there).then_some(CpuNews::Back { lane, cpu });
        }
        let was_away = std::mem::replace(&mut self.is_away, true);
        (!was_away).then_some(CpuNews::Away { lane, cpu, on: is })
    }
}

/// What became of a lane's CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpuNews {
    /// It went off line, or is not for this process any more.
    Away {
        /// The lane.
        lane: LaneId,
        /// Its CPU.
        cpu: usize,
        /// Where it may run meanwhile; none if it has slept since.
        on: Vec<usize>,
    },
    /// The lane runs there again.
    Back {
        /// The lane.
        lane: LaneId,
        /// Its CPU.
        cpu: usize,
    },
}

/// The lanes' threads, in their order.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) lanes: Vec<Thread>,
    /// Those in reserve, and the CPU on which each runs for links.
    pub(crate) own: Vec<Thread>,
    /// Where they may run when nothing is said: the CPUs of the process that made them.
    pub(crate) whole: CpuSet,
    /// Whether `whole` is what the process' first thread has, and changes with it.
    follows: bool,
}

impl Threads {
    /// The lanes are bound to `cpus` already, round again.
    pub(crate) fn of(lanes: Vec<Pid>, cpus: &[usize], own: Vec<Pid>) -> Self {
        let nth_cpu = |nth: usize| (!cpus.is_empty()).then(|| cpus[nth % cpus.len()]);
        let lanes = lanes.into_iter().enumerate().map(|(nth, pid)| Thread::bound(pid, nth_cpu(nth)));
        let own = own.into_iter().map(|pid| Thread::bound(pid, None));
        let whole = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let follows = sched_getaffinity(Some(getpid())).is_ok_and(|first| first == whole);
        Self { lanes: lanes.collect(), own: own.collect(), whole, follows }
    }

    /// CPUs come and go while lanes run: who may run anywhere gets those that came. Threads of lanes that have failed are left alone from
    /// here on.
    pub(crate) fn renew(&mut self, has_failed: impl Fn(LaneId) -> bool) {
        for (lane, thread) in (0u16..).map(LaneId).zip(self.lanes.iter_mut().chain(&mut self.own)) {
            thread.is_lost = has_failed(lane);
        }
        let now = sched_getaffinity(Some(getpid())).ok().filter(|now| self.follows && now.count() > 0);
        let Some(now) = now.filter(|now| *now != self.whole) else { return };
        let before = std::mem::replace(&mut self.whole, now);
        for thread in self.lanes.iter().chain(&self.own).filter(|it| it.cpu.is_none()) {
            // Somebody may have put it elsewhere, where it stays.
            if thread.affinity().is_ok_and(|is| is == before) {
                // One that cannot follow has what it had.
                let _ = sched_setaffinity(Some(thread.pid), &now);
            }
        }
    }

    /// Whether lanes may run on these CPUs.
    pub(crate) fn check(&self, cpus: &[usize]) -> Result<(), ChangeError> {
        match cpus.iter().find(|&&cpu| cpu >= CpuSet::MAX_CPU || !self.whole.is_set(cpu)) {
            Some(&cpu) => Err(ChangeError::NoCpu { cpu, usable: listed(&self.whole) }),
            None => Ok(()),
        }
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
        let mut threads = self.lane_threads();
        // One that no lane is for has to exist as well: with more lanes it would be used.
        threads.check(cpus.get(threads.lanes.len()..).unwrap_or_default())?;
        let whole = threads.whole;
        let mut moved: Vec<(Option<usize>, Result<CpuSet, _>)> = Vec::new();
        for nth in 0..threads.lanes.len() {
            let wanted = (!cpus.is_empty()).then(|| cpus[nth % cpus.len()]);
            let lane = &mut threads.lanes[nth];
            let before = (lane.cpu, lane.affinity());
            if let Err(error) = lane.bind(wanted, &whole) {
                for (lane, (cpu, set)) in threads.lanes.iter_mut().zip(moved) {
                    // Where it was a moment ago it may be again.
                    let _ = set.map(|set| sched_setaffinity(Some(lane.pid), &set));
                    (lane.cpu, lane.is_away) = (cpu, false);
                }
                return Err(error);
            }
            moved.push(before);
        }
        Ok(())
    }

    /// Puts lanes back on the CPUs that they were given, where they do not run there: such a CPU was off line and is not any
    /// more, or is for this process again, or somebody has moved the lane. What is new since the last call is said.
    /// Connections go on meanwhile, as they did when the lane went.
    pub fn return_lanes(&self) -> Vec<CpuNews> {
        let mut threads = self.lane_threads();
        let Threads { lanes, own, whole, .. } = &mut *threads;
        let all = (0u16..).map(LaneId).zip(lanes.iter_mut().chain(own));
        all.filter_map(|(lane, thread)| thread.look(lane, whole)).collect()
    }

    /// Whether lanes may run on these CPUs.
    ///
    /// # Errors
    /// One does not exist, is off line, or is not for this process.
    pub fn check_cpus(&self, cpus: &[usize]) -> Result<(), ChangeError> {
        self.lane_threads().check(cpus)
    }

    /// The CPUs on which each lane may run now, as the scheduler says: what was asked for, unless such a CPU has gone off line
    /// since or somebody else has moved the lane.
    pub fn lane_cpus(&self) -> Vec<Vec<usize>> {
        let cpus = |lane: &Thread| lane.affinity().map_or_else(|_| Vec::new(), |set| listed(&set));
        self.lane_threads().lanes.iter().map(cpus).collect()
    }

    /// How long a lane may run before others that want its CPU come to their turn: 100 us to 100 ms, or as long as the kernel
    /// gives to everybody. One that wakes up takes the CPU from a thread with a longer slice, and has no more of it in the long
    /// run: beside programs that compute, its frames wait less. Kernels before Linux 6.12 have one slice for all.
    ///
    /// # Errors
    /// The kernel lets this process change nothing about its threads.
    pub fn set_slice(&self, slice: Option<Duration>) -> Result<(), ChangeError> {
        let threads = self.lane_threads();
        for thread in threads.lanes.iter().chain(&threads.own).filter(|it| it.is_left()) {
            sys::set_slice(thread.pid, slice.unwrap_or_default())
                .map_err(|error| ChangeError::Device(error.into()))?;
        }
        Ok(())
    }

    /// How long each lane may run at a time, as the scheduler says; zero where it has one slice for all.
    pub fn lane_slices(&self) -> Vec<Duration> {
        let slice = |lane: &Thread| match lane.is_left() {
            true => sys::slice(lane.pid).unwrap_or_default(),
            false => Duration::ZERO,
        };
        self.lane_threads().lanes.iter().map(slice).collect()
    }

    pub(crate) fn lane_threads(&self) -> MutexGuard<'_, Threads> {
        self.0.lane_threads()
    }
}

fn bind(lane: Pid, cpu: Option<usize>, whole: &CpuSet) -> Result<(), ChangeError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineConfig;

    fn usable() -> Vec<usize> {
        listed(&sched_getaffinity(None).unwrap())
    }

    /// An engine whose lanes are bound to the first and the last CPU.
    fn bound() -> (Engine, Vec<usize>) {
        let usable = usable();
        let cpus = vec![usable[0], usable[usable.len() - 1]];
        let config = EngineConfig { lanes: 2, reserve: 1, cpus: cpus.clone(), ..EngineConfig::default() };
        (Engine::start(&config).unwrap(), cpus)
    }

    #[test]
    fn a_lane_whose_cpu_is_gone_is_told_once_and_is_back_when_it_comes_again() {
        let (engine, cpus) = bound();
        assert_eq!(engine.return_lanes(), [], "lanes begin where they shall");
        let missing = (0..CpuSet::MAX_CPU).rev().find(|cpu| !usable().contains(cpu)).unwrap();
        let (first, second) = (LaneId(0), LaneId(1));
        engine.lane_threads().lanes[1].cpu = Some(missing);
        let away = CpuNews::Away { lane: second, cpu: missing, on: vec![cpus[1]] };
        assert_eq!(engine.return_lanes(), [away]);
        assert_eq!(engine.return_lanes(), [], "it is away still");
        engine.lane_threads().lanes[1].cpu = Some(cpus[1]);
        assert_eq!(engine.return_lanes(), [CpuNews::Back { lane: second, cpu: cpus[1] }]);
        assert_eq!(engine.return_lanes(), []);
        if cpus[0] != cpus[1] {
            // As the kernel leaves a lane whose CPU went and came between two looks.
            let lane = engine.lane_threads().lanes[0].pid;
            sched_setaffinity(Some(lane), &engine.lane_threads().whole).unwrap();
            assert_eq!(engine.return_lanes(), [CpuNews::Back { lane: first, cpu: cpus[0] }]);
            assert_eq!(engine.lane_cpus()[0], cpus[..1]);
        }
    }

    #[test]
    fn a_lane_that_may_run_anywhere_is_not_looked_after() {
        let (engine, cpus) = bound();
        engine.set_cpus(&[]).unwrap();
        let lane = engine.lane_threads().lanes[0].pid;
        bind(lane, Some(cpus[1]), &engine.lane_threads().whole).unwrap();
        assert_eq!(engine.return_lanes(), []);
        assert_eq!(engine.lane_cpus()[0], cpus[1..], "whoever put it there wants it there");
    }

    #[test]
    fn what_was_refused_leaves_lanes_where_they_shall_be() {
        let (engine, cpus) = bound();
        assert!(engine.set_cpus(&[cpus[1], CpuSet::MAX_CPU]).is_err());
        assert_eq!(engine.return_lanes(), [], "each is on its CPU");
        assert_eq!(engine.lane_cpus(), [&cpus[..1], &cpus[1..]]);
    }

    #[test]
    fn lanes_without_a_cpu_get_those_that_came() {
        let (engine, cpus) = bound();
        engine.set_cpus(&[]).unwrap();
        let mut threads = engine.0.lane_threads.lock().unwrap();
        // As if but one had been there when the engine began.
        let mut one = CpuSet::new();
        one.set(cpus[0]);
        threads.whole = one;
        sched_setaffinity(Some(threads.lanes[0].pid), &one).unwrap();
        drop(threads);
        engine.check_cpus(&cpus).unwrap();
        assert_eq!(engine.lane_cpus(), [usable(), usable()]);
    }

    /// The number of a thread that has ended may be anybody's.
    #[test]
    fn the_thread_of_a_lane_that_has_failed_is_left_alone() {
        let (engine, cpus) = bound();
        engine.0.fabric.fail(LaneId(1), || ());
        let stranger = rustix::thread::gettid();
        engine.lane_threads().lanes[1].pid = stranger;
        let before = (usable(), sys::slice(stranger).ok());
        let is_alone = || (usable(), sys::slice(stranger).ok()) == before;
        assert!(engine.return_lanes().is_empty() && is_alone());
        engine.set_cpus(&[cpus[1], cpus[0]]).unwrap();
        assert!(is_alone());
        assert_eq!(engine.lane_cpus(), [vec![cpus[1]], Vec::new()]);
        assert!(engine.set_cpus(&[cpus[0], CpuSet::MAX_CPU]).is_err() && is_alone());
        engine.set_cpus(&[]).unwrap();
        // Where threads may not be told how long they run, that is said of others.
        let _ = engine.set_slice(Some(Duration::from_millis(3)));
        assert!(is_alone());
    }

    #[test]
    fn a_lane_that_has_failed_is_nobodys_own() {
        let cpu = usable()[0];
        let engine = Engine::start(&EngineConfig { reserve: 2, ..EngineConfig::default() }).unwrap();
        let lanes = |engine: &Engine| {
            let id = engine.add_netstack_on(&Default::default(), &[cpu]).unwrap();
            engine.0.registry().netstacks[&id].lanes.clone()
        };
        let lost = lanes(&engine)[0];
        engine.0.fabric.fail(lost, || ());
        let left = lanes(&engine)[0];
        assert_ne!(left, lost, "it was on that CPU");
        assert!(!engine.0.fabric.has_failed(left));
        engine.0.fabric.fail(left, || ());
        let none = engine.add_netstack_on(&Default::default(), &[cpu]);
        assert!(matches!(none, Err(ChangeError::NoLane(_))), "{none:?}");
    }
}
