//! How far two CPUs are from each other: how long a cache line takes from one to the other and back.
//!
//! On a virtual machine that changes while it runs, by where the hypervisor puts its CPUs, and whatever two CPUs share
//! becomes several times as dear. Noted at the start of each round (`cpu.rs`), told above each table (`report.rs`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cpu;
use crate::report::Samples;

/// How often the line goes there and back in a burst, and how many bursts there are: the shortest is the one that nobody
/// interrupted.
const TRIPS: u32 = 100;
const BURSTS: u32 = 10;
/// Who has not come by then has no CPU.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often is looked between two looks at the clock.
const LOOKS: u32 = 1 << 10;

/// In nanoseconds, one for each round.
static NOTED: Mutex<Samples> = Mutex::new(Samples::new());

/// A word alone in its cache line, and in that beside it.
#[repr(align(128))]
struct Line(AtomicU32);

/// Notes how far the first two CPUs are from each other at present, where there are two.
pub(crate) fn note() {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    let cpus = CPUS.get_or_init(|| cpu::allowed().unwrap_or_default());
    let [one, other, ..] = cpus[..] else { return };
    if let Some(trip) = shortest([one, other]) {
        NOTED.lock().unwrap_or_else(PoisonError::into_inner).push(trip.as_nanos() as f64);
    }
}

/// What was noted so far.
pub(crate) fn noted() -> Samples {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// How long a trip takes in the shortest burst; nothing if none comes to its end.
fn shortest([one, other]: [usize; 2]) -> Option<Duration> {
    let line = &Line(AtomicU32::new(0));
    let deadline = Instant::now() + PATIENCE;
    let side = |cpu, step| {
        let is_bound = cpu::bind_among(&[cpu], 0).is_ok();
        let bursts = (0..BURSTS).map(|nth| burst(line, 2 * TRIPS * nth + step, deadline));
        bursts.take_while(|_| is_bound).map_while(|span| span).min()
    };
    let span = thread::scope(|scope| {
        scope.spawn(move || side(other, 1));
        scope.spawn(move || side(one, 0)).join().ok().flatten()
    });
    span.map(|span| span / TRIPS)
}

/// Makes one side's steps of a burst, each when the other side has made the one before it. How long they took.
fn burst(line: &Line, first: u32, deadline: Instant) -> Option<Duration> {
    let mut begun = None;
    for step in (first..).step_by(2).take(TRIPS as usize) {
        let mut looks = 0u32;
        while line.0.load(Ordering::Acquire) != step {
            looks += 1;
            if looks.is_multiple_of(LOOKS) && Instant::now() > deadline {
                return None;
            }
            std::hint::spin_loop();
        }
        begun = begun.or_else(|| Some(Instant::now()));
        line.0.store(step + 1, Ordering::Release);
    }
    begun.map(|begun| begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_time_and_who_is_alone_does_not_wait_for_ever() {
        if let [one, other, ..] = cpu::allowed().unwrap()[..] {
            let trip = shortest([one, other]);
            assert!(trip.is_none_or(|trip| trip > Duration::ZERO && trip < PATIENCE), "{trip:?}");
        }
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(burst(&Line(AtomicU32::new(0)), 1, soon), None, "nobody makes the step before");
    }
}
