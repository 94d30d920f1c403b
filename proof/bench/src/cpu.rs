//! CPU time of processes and of the machine, and binding to CPUs.
//!
//! A process' time comes from the scheduler in nanoseconds (its CPU clock). Network work that the kernel does
//! while a process runs is in it; what `ksoftirqd` does is added; what falls into idle time belongs to nobody, so
//! a round also looks at the whole machine (`/proc/stat`, in ticks).

use std::fs;
use std::time::{Duration, Instant};

use crate::distance;
use crate::peer::Result;

/// Where client and server run: names for tables, and each one's CPU, for [`bind_to`].
pub(crate) const PLACEMENTS: [(&str, [&str; 2]); 3] =
    [("two CPUs", ["0", "1"]), ("one CPU", ["0", "0"]), ("anywhere", ["any", "any"])];
/// The first of them.
pub(crate) const TWO_CPUS: usize = 0;
/// The second.
pub(crate) const ONE_CPU: usize = 1;
/// The third.
pub(crate) const ANYWHERE: usize = 2;

/// Binds the calling thread, and what it starts, to the CPU with this number, unless it is `any`.
pub(crate) fn bind_to(cpu: &str) -> Result<()> {
    if cpu == "any" { Ok(()) } else { bind(cpu.parse()?) }
}

/// Binds the calling thread, and what it starts, to a CPU (modulo the number that there are).
pub(crate) fn bind(cpu: usize) -> Result<()> {
    Ok(rustix::thread::sched_setaffinity(None, &set_of(Some(cpu))?)?)
}

/// Binds all threads that a process has to the CPU with this number, or frees them if it is `any`.
pub(crate) fn bind_process(pid: u32, cpu: &str) -> Result<()> {
    let set = set_of(if cpu == "any" { None } else { Some(cpu.parse()?) })?;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let id = thread?.file_name().to_string_lossy().parse()?;
        let id = rustix::process::Pid::from_raw(id).ok_or("a thread has a number")?;
        match rustix::thread::sched_setaffinity(Some(id), &set) {
            // It has ended since.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The CPU with this number (modulo how many there are), or all of them.
fn set_of(cpu: Option<usize>) -> Result<rustix::thread::CpuSet> {
    let Some(cpu) = cpu else { return Ok(rustix::thread::sched_getaffinity(None)?) };
    Ok(set_among(&allowed()?, cpu))
}

/// The CPUs that the calling thread may be on. Once it is bound that is one.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&n| allowed.is_set(n)).collect())
}

/// Binds the calling thread to one of these (modulo their number), wherever it was bound before.
pub(crate) fn bind_among(cpus: &[usize], nth: usize) -> Result<()> {
    Ok(rustix::thread::sched_setaffinity(None, &set_among(cpus, nth))?)
}

fn set_among(cpus: &[usize], nth: usize) -> rustix::thread::CpuSet {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpus[nth % cpus.len()]);
    set
}

/// The CPU time that a process has used, by all its threads, those that have ended included.
pub(crate) fn process_time(pid: u32) -> Duration {
    let mut clock = 0;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write one value each, into a variable that outlives the call.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut now) == 0
    };
    if is_known { Duration::new(now.tv_sec as u64, now.tv_nsec as u32) } else { Duration::ZERO }
}

/// The CPU time of this process' children that have ended.
pub(crate) fn children_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes one value into a variable that outlives it, and zeros are such a value.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, 1000 * time.tv_usec as u32);
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// The calling thread's CPU time.
pub(crate) fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Measures a round: wall time, the processes that are party to it, and the machine.
#[derive(Debug)]
pub(crate) struct Meter {
    parties: Vec<u32>,
    start: Instant,
    times: Duration,
    machine: Machine,
}

/// What a round took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) wall: Duration,
    /// CPU time of the parties and of the kernel's network threads.
    pub(crate) parties: Duration,
    /// CPU time of all CPUs, whoever used it.
    pub(crate) machine: Duration,
    /// Time that the hypervisor gave to others.
    pub(crate) stolen: Duration,
}

impl Meter {
    /// Begins a round of the processes `parties`.
    pub(crate) fn start(parties: &[u32]) -> Self {
        distance::note();
        let mut parties = parties.to_vec();
        parties.extend(softirq_threads());
        let times = parties.iter().map(|&pid| process_time(pid)).sum();
        Self { parties, start: Instant::now(), times, machine: Machine::read() }
    }

    /// Ends it.
    pub(crate) fn stop(&self) -> Used {
        let times: Duration = self.parties.iter().map(|&pid| process_time(pid)).sum();
        let machine = Machine::read();
        Used {
            wall: self.start.elapsed(),
            parties: times.saturating_sub(self.times),
            machine: machine.busy.saturating_sub(self.machine.busy),
            stolen: machine.stolen.saturating_sub(self.machine.stolen),
        }
    }
}

impl Used {
    /// How many CPUs the parties kept busy.
    pub(crate) fn busy(&self) -> f64 {
        self.parties.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    /// The share of all CPU time that went to others than the parties, or was stolen.
    pub(crate) fn foreign(&self) -> f64 {
        let others = self.machine.saturating_sub(self.parties) + self.stolen;
        others.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }
}

/// The machine's CPU time since it started.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    busy: Duration,
    stolen: Duration,
}

impl Machine {
    fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let sum = |columns: &[usize]| columns.iter().filter_map(|&n| ticks.get(n)).sum::<u64>();
        // user nice system idle iowait irq softirq steal; the kernel's user interface has 100 ticks a second.
        let time = |ticks| Duration::from_millis(10 * ticks);
        Self { busy: time(sum(&[0, 1, 2, 5, 6])), stolen: time(sum(&[7])) }
    }
}

/// The kernel's threads that do network work which nobody else was there to do.
fn softirq_threads() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_uses_time() {
        let start = thread_time();
        let meter = Meter::start(&[std::process::id()]);
        while thread_time() - start < Duration::from_millis(20) {
            std::hint::black_box(0);
        }
        assert!(meter.stop().parties >= Duration::from_millis(10));
    }

    #[test]
    fn the_machines_line_is_read_by_column() {
        let machine = Machine::parse("cpu  1 2 3 1000 7 4 5 6 0 0\ncpu0 9 9 9 9\n");
        assert_eq!((machine.busy, machine.stolen), (Duration::from_millis(150), Duration::from_millis(60)));
    }
}
