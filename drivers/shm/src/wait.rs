//! Waiting for a stream: look again for a bounded while, then sleep on the block's futex.
//!
//! - R1. Who sleeps counts himself, then reads the futex word, then looks a last time; who wakes changes what is
//!   waited for, then looks at the count, and only then changes the word and wakes. Fences stand between, so either
//!   the sleeper sees the change or the waker sees the sleeper.
//! - R2. Nobody sleeps longer than [`SLICE`] at a time: a daemon that died wakes nobody.
//! - R3. Looking again pays if the answer comes soon and another CPU makes it: on one CPU there is none, the ends of a joint
//!   know whether they share one ([`crate::Beside::meet`]), and who spins in vain spins shorter the next time, then not at
//!   all. Now and then he tries for as long as it could ever pay; the less often, the more often that was in vain.
//! - R4. Who has woken somebody looks until that one would have answered, whatever was learned of those who are awake. Else the two go on
//!   waking each other: each falls asleep before the other is awake, and a call takes two wake-ups instead of a look.
//! - R5. Who looks for longer than an answer from another CPU takes passes his own on meanwhile; on one CPU he passes it on at once, for as long as
//!   somebody takes it (`passing.rs`).

use std::mem;
use std::time::Duration;

use rustix::io::Errno;
#[cfg(not(loom))]
use rustix::thread::futex;

use crate::layout::Block;
use crate::passing::{Passed, Passing, When};
use crate::sync::{AtomicU32, Ordering, fence};

/// The longest sleep.
pub const SLICE: Duration = Duration::from_millis(250);

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// What was waited for is there.
    Ready,
    /// The time is over, or a slice of it: look whether the daemon lives, and wait again.
    TimeOut,
    /// A signal came.
    Interrupted,
}

/// How long a thread looks before it sleeps; one per thread, or per socket.
#[derive(Debug)]
pub struct Spin {
    looks: u32,
    most: u32,
    /// Calls until a new attempt, when none pays.
    pause: u32,
    /// How many there are before the next one; and at first.
    patience: u32,
    shortest: u32,
    /// The fewest looks that are worth beginning.
    least: u32,
    /// How many a trial takes.
    trial: u32,
    /// Attempts in vain, one after the other, that change nothing yet; and how many there were.
    forgives: u32,
    misses: u32,
    /// Who is waited for next was asleep.
    is_asleep: bool,
    /// Of waits for those who were: how many do not look until the next one that does, and how many there are after one in vain.
    rest: u32,
    longest_rest: u32,
    passing: Option<Passing>,
}

impl Spin {
    /// The most looks: some tens of microseconds, a wake-up's price.
    const MOST: u32 = 1000;
    const LEAST: u32 = 32;
    /// A pause is short at first: who was held up once is waited for in vain, and then not any more.
    const PAUSE: u32 = 4;
    const PAUSE_BESIDE: u32 = 16;
    const PAUSE_MAX: u32 = 1024;
    /// The most times that a CPU is passed on in one wait, which a few others share.
    const PASSES: u32 = 64;
    const FORGIVES: u32 = 2;
    const FORGIVES_BURSTS: u32 = 8;
    /// How many times as long as it ever looks it takes to wake somebody on a CPU that sleeps, at most.
    const WAKES: u32 = 4;
    /// The looks at least for somebody who was woken: twice what it takes on a CPU that sleeps, under a hypervisor.
    const LOOKS_FOR_WOKEN: u32 = 2048;

    /// For a machine with this many CPUs.
    pub const fn new(cpus: usize) -> Self {
        Self::at_most(Self::MOST, cpus)
    }

    /// For who has less to win than a thread that would be woken by another process.
    pub const fn at_most(looks: u32, cpus: usize) -> Self {
        let most = if cpus > 1 { looks } else { 0 };
        let (patience, least) = (Self::PAUSE, Self::LEAST);
        Self {
            looks: most / 4,
            most,
            pause: 0,
            patience,
            shortest: patience,
            least,
            trial: most,
            forgives: Self::FORGIVES,
            misses: 0,
            is_asleep: false,
            rest: 0,
            longest_rest: 1,
            passing: None,
        }
    }

    /// The same, with the CPU given to others by `pass`, which says how long they had it, behind the `first` looks and every so many after
    /// them (R5).
    #[must_use]
    pub const fn passing(mut self, first: u32, every: u32, pass: fn() -> Duration) -> Self {
        self.passing = Some(Passing::new(When::Behind { first, every }, pass));
        self
    }

    /// The same between any two looks, for who shares his CPU with those whom he waits for.
    #[must_use]
    pub const fn passing_always(mut self, pass: fn() -> Duration) -> Self {
        self.passing = Some(Passing::new(When::Always, pass));
        self
    }

    /// For who has a single CPU, or shares his with the one he waits for: it is given to others between any two looks, as long as one of them
    /// takes it. Nobody spins.
    pub const fn on_one_cpu(pass: fn() -> Duration) -> Self {
        let mut spin = Self::in_bursts(Self::PASSES, 2);
        spin.passing = Some(Passing::new(When::WhileTaken, pass));
        spin
    }

    /// For who waits for another program, which may be asleep when it is tried whether looking pays: a trial lasts until it
    /// would have been woken and have answered. An answer that an interrupt delays is no reason to sleep.
    pub const fn beside(cpus: usize) -> Self {
        let (spin, patience) = (Self::new(cpus), Self::PAUSE_BESIDE);
        let (looks, trial) = (spin.most, Self::WAKES * spin.most);
        Self { looks, least: spin.most / 2, trial, patience, shortest: patience, forgives: 0, ..spin }
    }

    /// For who asks and is answered in bursts, with a pause between two of them: not every one is a reason to stop looking.
    pub const fn in_bursts(looks: u32, cpus: usize) -> Self {
        let spin = Self::at_most(looks, cpus);
        Self { looks: spin.most / 2, least: looks / 4, forgives: Self::FORGIVES_BURSTS, ..spin }
    }

    /// Whether the next wait is a trial.
    pub(crate) const fn is_trying(&self) -> bool {
        self.looks == 0 && self.most > 0 && self.pause <= 1
    }

    /// If looking does not pay as yet, the next wait is a trial: who is waited for tries, too.
    pub(crate) const fn try_now(&mut self) {
        if self.looks == 0 {
            self.pause = 1;
        }
    }

    /// Who the next wait is for had to be woken: he answers a wake-up later than who was awake (R4).
    pub const fn has_woken(&mut self) {
        self.is_asleep = true;
    }

    /// Looks until it is there, or looking is not worth it any more (R3).
    pub fn until(&mut self, mut is_ready: impl FnMut() -> bool) -> bool {
        let was_asleep = mem::take(&mut self.is_asleep);
        if self.passing.as_mut().is_some_and(|passing| !passing.begin()) {
            return is_ready();
        }
        // On one CPU who was woken runs as soon as it is passed on.
        let looks_for_woken = self.most > 0 && !self.passing.as_ref().is_some_and(Passing::is_while_taken);
        let is_there =
            if was_asleep && looks_for_woken { self.until_woken(is_ready) } else { self.look(is_ready) };
        if let Some(passing) = &mut self.passing {
            passing.end();
        }
        is_there
    }

    fn look(&mut self, mut is_ready: impl FnMut() -> bool) -> bool {
        if self.looks == 0 {
            if self.most == 0 {
                return is_ready();
            }
            self.pause -= 1;
            if self.pause > 0 {
                return is_ready();
            }
        }
        let is_trial = self.looks == 0;
        let looks = if is_trial { self.trial } else { self.looks };
        for look in 0..looks {
            if is_ready() {
                self.has_paid(look);
                return true;
            }
            match self.pass_on(look + 1) {
                Passed::On => {}
                Passed::HeldUp => {
                    if is_trial {
                        self.pause = self.patience;
                    }
                    return is_ready();
                }
                Passed::Enough if is_ready() => {
                    self.has_paid(look + 1);
                    return true;
                }
                Passed::Enough => break,
            }
        }
        if self.misses < self.forgives && !is_trial {
            self.misses += 1;
            return false;
        }
        self.looks /= 2;
        if is_trial {
            self.patience = (2 * self.patience).min(Self::PAUSE_MAX);
        }
        if self.looks < self.least {
            (self.looks, self.pause) = (0, self.patience);
        }
        false
    }
}

impl Spin {
    /// It was there behind so many looks: room for twice as many, so that a little more does not miss.
    fn has_paid(&mut self, looks: u32) {
        self.looks = (2 * looks).clamp(self.looks / 2, self.most).max(self.least);
        self.patience = self.shortest;
        self.misses = 0;
    }

    /// Between two looks.
    #[inline]
    fn pass_on(&mut self, looks: u32) -> Passed {
        core::hint::spin_loop();
        self.passing.as_mut().map_or(Passed::On, |passing| passing.looked(looks))
    }

    /// Looks for the answer of somebody who was asleep (R4).
    #[cold]
    fn until_woken(&mut self, mut is_ready: impl FnMut() -> bool) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return is_ready();
        }
        for look in 0..self.trial.max(Self::LOOKS_FOR_WOKEN) {
            if is_ready() {
                self.longest_rest = 1;
                if self.looks == 0 {
                    (self.looks, self.misses) = (self.most / 2, 0);
                }
                return true;
            }
            if self.pass_on(look + 1) != Passed::On {
                return is_ready();
            }
        }
        self.rest = self.longest_rest;
        self.longest_rest = (2 * self.longest_rest).min(Self::PAUSE_MAX);
        false
    }
}

/// Where the threads of a stream sleep.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Sleep {
    /// What they wait to see changed.
    futex: AtomicU32,
    /// How many they are.
    sleepers: AtomicU32,
}

impl Sleep {
    /// Sleeps until `is_ready`, for at most `limit` and [`SLICE`].
    pub fn until(&self, limit: Duration, is_ready: impl FnMut() -> bool) -> Woken {
        self.until_by(limit, is_ready, sleep_on)
    }

    /// The same, asleep in a call of `sleep_on`, which does as the function of this name here.
    pub fn until_by(
        &self,
        limit: Duration,
        mut is_ready: impl FnMut() -> bool,
        sleep_on: impl FnOnce(&AtomicU32, u32, Duration) -> Result<(), Errno>,
    ) -> Woken {
        let before = self.sleepers.fetch_add(1, Ordering::SeqCst);
        if before > u32::MAX / 2 {
            // The words were another stream's when those came who have left since. What they have taken too much is made good, at worst
            // by more than one, who then wakes nobody now and then.
            self.sleepers.fetch_add(before.wrapping_neg(), Ordering::SeqCst);
        }
        let woken = self.sleep_counted(limit.min(SLICE), &mut is_ready, sleep_on);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        woken
    }

    fn sleep_counted(
        &self,
        limit: Duration,
        is_ready: &mut impl FnMut() -> bool,
        sleep_on: impl FnOnce(&AtomicU32, u32, Duration) -> Result<(), Errno>,
    ) -> Woken {
        let seen = self.futex.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if is_ready() {
            return Woken::Ready;
        }
        match sleep_on(&self.futex, seen, limit) {
            Err(Errno::INTR) => Woken::Interrupted,
            Err(Errno::TIMEDOUT) => Woken::TimeOut,
            // Woken, or the word had changed: who waited looks, and may wait again.
            _ if is_ready() => Woken::Ready,
            _ => Woken::TimeOut,
        }
    }

    /// Whether anybody sleeps here, or is about to, after what he waits for was changed (R1).
    pub(crate) fn has_sleepers(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) != 0
    }

    /// Wakes whoever sleeps here, after what he waits for was changed (R1). Whether anybody does.
    pub fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.wake_counted()
    }

    /// The same behind a fence that the caller has, or a change that is sequentially consistent.
    #[inline]
    pub(crate) fn wake_counted(&self) -> bool {
        let has_sleepers = self.sleepers.load(Ordering::SeqCst) != 0;
        if has_sleepers {
            self.futex.fetch_add(1, Ordering::SeqCst);
            // It cannot fail in a way that could be made good: at the worst a slice ends late.
            let _ = futex_wake(&self.futex);
        }
        has_sleepers
    }
}

impl Block {
    /// Sleeps until `is_ready`, for at most `limit` and [`SLICE`].
    pub fn sleep(&self, limit: Duration, is_ready: impl FnMut() -> bool) -> Woken {
        self.sleep.until(limit, is_ready)
    }

    /// The same, asleep in a call of `sleep_on` ([`Sleep::until_by`]).
    pub fn sleep_by(
        &self,
        limit: Duration,
        is_ready: impl FnMut() -> bool,
        sleep_on: impl FnOnce(&AtomicU32, u32, Duration) -> Result<(), Errno>,
    ) -> Woken {
        self.sleep.until_by(limit, is_ready, sleep_on)
    }

    /// Wakes whoever sleeps on the block. Whether anybody does.
    pub fn wake(&self) -> bool {
        self.sleep.wake()
    }
}

/// Sleeps on a word while it has the value that was seen, until it is woken or `limit` is over.
///
/// # Errors
/// TIMEDOUT, AGAIN if it has another value, INTR if a signal came.
#[cfg(not(loom))]
pub(crate) fn sleep_on(word: &AtomicU32, seen: u32, limit: Duration) -> Result<(), Errno> {
    let limit =
        futex::Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    // Not private: the other end is another process.
    futex::wait(word, futex::Flags::empty(), seen, Some(&limit))
}

#[cfg(not(loom))]
fn futex_wake(word: &AtomicU32) -> Result<usize, Errno> {
    futex::wake(word, futex::Flags::empty(), i32::MAX as u32)
}

/// In models a sleep ends when the word changes, and only then: a lost wake-up is a deadlock that loom finds.
#[cfg(loom)]
pub(crate) fn sleep_on(word: &AtomicU32, seen: u32, _limit: Duration) -> Result<(), Errno> {
    while word.load(Ordering::SeqCst) == seen {
        loom::thread::yield_now();
    }
    Ok(())
}

#[cfg(loom)]
fn futex_wake(_word: &AtomicU32) -> Result<usize, Errno> {
    Ok(0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::time::Instant;

    #[test]
    fn a_sleeper_is_woken_and_is_not_counted_any_more() {
        let (block, there) = (Sleep::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let is_ready = || there.load(Ordering::Acquire);
                while block.until(Duration::from_secs(5), is_ready) != Woken::Ready {}
            });
            while block.sleepers.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            there.store(true, Ordering::Release);
            block.wake();
            sleeper.join().unwrap();
        });
        assert_eq!(block.sleepers.load(Ordering::Relaxed), 0);
        let before = block.futex.load(Ordering::Relaxed);
        block.wake();
        assert_eq!(block.futex.load(Ordering::Relaxed), before, "nobody sleeps");
    }

    #[test]
    fn who_counts_himself_off_when_the_words_are_anothers_keeps_nobody_asleep() {
        let (sleep, there, begun) = (Sleep::default(), AtomicBool::new(false), Instant::now());
        // He came before the words were zeroed.
        sleep.sleepers.fetch_sub(1, Ordering::Relaxed);
        let is_there = || there.load(Ordering::Acquire);
        std::thread::scope(|scope| {
            scope.spawn(|| while sleep.until(Duration::from_secs(5), is_there) != Woken::Ready {});
            std::thread::sleep(Duration::from_millis(20));
            there.store(true, Ordering::Release);
            sleep.wake();
        });
        assert!(begun.elapsed() < Duration::from_millis(150), "{:?}", begun.elapsed());
        assert_eq!(sleep.sleepers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_sleep_ends_with_its_time() {
        let (block, before) = (Block::default(), Instant::now());
        assert_eq!(block.sleep(Duration::from_millis(5), || false), Woken::TimeOut);
        assert!(before.elapsed() >= Duration::from_millis(5));
        assert_eq!(block.sleep(Duration::from_secs(9), || true), Woken::Ready);
    }

    #[test]
    fn spinning_that_never_pays_stops_and_is_tried_again() {
        let looks = |spin: &mut Spin| {
            let mut looks = 0;
            spin.until(|| {
                looks += 1;
                false
            });
            looks
        };
        let mut spin = Spin::new(2);
        let tries: Vec<u32> = (0..100_000).map(|_| looks(&mut spin)).collect();
        let trials = |tries: &[u32]| tries.iter().filter(|&&looks| looks == Spin::MOST).count();
        assert!(tries[0] > 100 && (3..8).contains(&trials(&tries[..200])), "it is tried again");
        assert!(tries[200..].iter().all(|&looks| [1, Spin::MOST].contains(&looks)));
        assert!(tries.iter().sum::<u32>() < 250_000, "less and less often");
        let mut alone = Spin::new(1);
        assert!((0..100).all(|_| looks(&mut alone) == 1));
    }

    #[test]
    fn an_attempt_that_pays_begins_it_anew() {
        let mut spin = Spin::new(2);
        let mut takes = |answer: u32| {
            let mut looks = 0;
            spin.until(|| {
                looks += 1;
                looks > answer
            })
        };
        (0..70).for_each(|_| assert!(!takes(u32::MAX)));
        let waits = (0..).take_while(|_| !takes(700)).count();
        assert!(waits <= 70, "{waits} calls until it was tried, more than were in vain");
        assert!((0..100).all(|_| takes(700)), "it has learned how long to look");
    }

    #[test]
    fn who_asks_in_bursts_bears_pauses_and_stops_in_the_end() {
        let mut spin = Spin::in_bursts(256, 2);
        let mut takes = |answer: u32| {
            let mut looks = 0;
            let is_there = spin.until(|| {
                looks += 1;
                looks > answer
            });
            (is_there, looks)
        };
        for _ in 0..100 {
            assert!((0..20).all(|_| takes(30).0) && !takes(u32::MAX).0);
        }
        let looks: u32 = (0..10_000).map(|_| takes(u32::MAX).1).sum();
        assert!(looks < 20_000, "{looks} looks for nothing");
        let mut alone = Spin::in_bursts(256, 1);
        assert!(!alone.until(|| false));
    }

    /// What two who ask and answer each other in turn take, in looks: each of them `work` and, if he slept, `wakes` more. Once in a
    /// while one is held up for longer than anybody looks.
    fn talk(mut ends: [Spin; 2], [work, wakes]: [u32; 2], rounds: u32) -> u32 {
        let (mut sleeps, mut took) = ([true; 2], 0);
        for round in 0..rounds {
            let (asks, answers) = ((round % 2) as usize, ((round + 1) % 2) as usize);
            let had_to_wake = std::mem::take(&mut sleeps[answers]);
            if had_to_wake {
                ends[asks].has_woken();
            }
            let hold_up = if round % 200 == 10 { 20_000 } else { 0 };
            let answer = work + hold_up + if had_to_wake { wakes } else { 0 };
            let mut looks = 0;
            sleeps[asks] = !ends[asks].until(|| {
                looks += 1;
                looks > answer
            });
            took += answer;
        }
        took
    }

    #[test]
    fn two_who_were_held_up_once_do_not_go_on_waking_each_other() {
        let (work, wakes, rounds) = (100, 1500, 20_000);
        for spin in [|| Spin::in_bursts(2048, 2), || Spin::new(2)] {
            let took = talk([spin(), spin()], [work, wakes], rounds);
            let (least, held_up) = (rounds * work, rounds / 200 * 20_000);
            assert!(took < least + held_up + rounds / 200 * 8 * wakes, "{took}");
        }
    }

    #[test]
    fn looking_for_who_was_woken_is_given_up_where_it_never_pays() {
        let mut spin = Spin::in_bursts(2048, 2);
        let mut woken = |answer: u32| {
            spin.has_woken();
            let mut looks = 0;
            let is_there = spin.until(|| {
                looks += 1;
                looks > answer
            });
            (is_there, looks)
        };
        let looks: u32 = (0..10_000).map(|_| woken(u32::MAX).1).sum();
        assert!(looks < 80_000, "{looks} looks for nothing");
        let waits = (0..).take_while(|_| !woken(1500).0).count();
        assert!(waits <= 2 * Spin::PAUSE_MAX as usize, "{waits} calls until it was tried");
        assert!((0..100).all(|_| woken(1500).0));
        let mut alone = Spin::in_bursts(2048, 1);
        alone.has_woken();
        assert!(!alone.until(|| false));
    }

    #[test]
    fn spinning_that_pays_goes_on() {
        let mut spin = Spin::new(8);
        for _ in 0..100 {
            let mut looks = 0;
            assert!(spin.until(|| {
                looks += 1;
                looks == 200
            }));
        }
    }
}
