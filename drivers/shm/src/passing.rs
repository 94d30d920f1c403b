//! How a thread that looks lets others have its CPU meanwhile, so that whoever is to answer needs no CPU that idles.
//!
//! Owned by a [`crate::Spin`] that was told how. Two who wait for each other on one CPU, or for a third one there, would keep it from each other
//! by looking. If both sleep, that CPU goes idle at each turn, and what wakes it, an interrupt, takes ten times as long as the answer, more
//! under a hypervisor; the scheduler, too, moves who may run and not who sleeps. Who passes his CPU on is neither in the way nor asleep.
//!
//! Who has a single CPU, or shares his with the one he waits for, does nothing else: he passes it on at once, and for as long as somebody takes it.
//! If he slept, that one's first word would wake him, in the middle of what it does.
//!
//! A program that computes keeps the CPU for as long as the scheduler lets it: who was held up once does not pass it on for a while. Until
//! then he looks as if he was alone; but a lane, which must not keep the CPU from a program that it has told something, sleeps at once.

use std::time::Duration;

/// Who has the CPU again later than this was held up. Programs that serve others take less from one wait to the next, and a scheduler's slice
/// is some milliseconds. Nor does a wait pass on for longer altogether: meanwhile it hears of nothing that it does not look for, of the
/// kernel's descriptors in a set.
const HELD: Duration = Duration::from_micros(500);
/// What comes back sooner nobody has taken: a call alone takes less, two switches and a look more.
const TAKEN: Duration = Duration::from_micros(1);
/// The most waits in a row that do not pass because of that: with thousands in a second, some tenths of one.
const REST_MAX: u32 = 16_384;
/// So many waits in a row in which it passed, and nobody held it up, make the next rest half as long: each spares a wake-up, and one that is held
/// up takes as long as hundreds of those.
const FORGIVES: u32 = 1024;

/// What passing on has been worth.
#[derive(Debug)]
pub(crate) struct Passing {
    when: When,
    /// Passes on, and says how long it took to come back.
    pass: fn() -> Duration,
    /// How many waits from here on do not pass, and how many when it is held up the next time.
    rest: u32,
    next_rest: u32,
    /// Waits since it was held up, or forgave.
    unheld: u32,
    /// In this wait.
    may_pass: bool,
    has_passed: bool,
    took: Duration,
}

/// When it passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// Behind so many looks, and behind so many after these.
    Behind { first: u32, every: u32 },
    /// Between any two looks; it does not look where it must not pass.
    Always,
    /// The same, and it looks for as long as somebody takes the CPU.
    WhileTaken,
}

/// What came of a look and what followed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passed {
    /// It may look on.
    On,
    /// Somebody who was given the CPU has kept it for long.
    HeldUp,
    /// Nobody wants the CPU, or others have had it for long enough.
    Enough,
}

impl Passing {
    pub(crate) const fn new(when: When, pass: fn() -> Duration) -> Self {
        Self {
            when,
            pass,
            rest: 0,
            next_rest: 1,
            unheld: 0,
            may_pass: true,
            has_passed: false,
            took: Duration::ZERO,
        }
    }

    /// A wait begins: whether it may look.
    pub(crate) fn begin(&mut self) -> bool {
        (self.may_pass, self.took) = (self.rest == 0, Duration::ZERO);
        self.rest = self.rest.saturating_sub(1);
        self.may_pass || matches!(self.when, When::Behind { .. })
    }

    /// It has looked so often: passes on if it is time to.
    #[inline]
    pub(crate) fn looked(&mut self, looks: u32) -> Passed {
        let is_time = match self.when {
            When::Behind { first, every } => looks >= first && (looks - first).is_multiple_of(every),
            When::Always | When::WhileTaken => true,
        };
        if !is_time || !self.may_pass {
            return Passed::On;
        }
        self.has_passed = true;
        let took = (self.pass)();
        self.took += took;
        if took > HELD {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest).min(REST_MAX);
            (self.unheld, self.has_passed) = (0, false);
            return Passed::HeldUp;
        }
        let is_untaken = took < TAKEN && self.is_while_taken();
        if is_untaken || self.took > HELD { Passed::Enough } else { Passed::On }
    }

    /// Whether it looks for as long as somebody takes the CPU.
    pub(crate) fn is_while_taken(&self) -> bool {
        self.when == When::WhileTaken
    }

    /// The wait has ended.
    pub(crate) fn end(&mut self) {
        if !std::mem::take(&mut self.has_passed) {
            return;
        }
        self.unheld += 1;
        if self.unheld >= FORGIVES {
            self.next_rest = (self.next_rest / 2).max(1);
            self.unheld = 0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Spin;
    use std::cell::Cell;

    thread_local! {
        static PASSED: Cell<u32> = const { Cell::new(0) };
        static TAKES: Cell<Duration> = const { Cell::new(SHORT) };
    }
    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_millis(3);

    fn pass() -> Duration {
        PASSED.set(PASSED.get() + 1);
        TAKES.get()
    }

    /// Whether a wait has found what is there when it has passed on so often, each time for so long; and how often it has.
    fn wait(spin: &mut Spin, takes: Duration, after: u32) -> (bool, u32) {
        PASSED.set(0);
        TAKES.set(takes);
        let is_there = spin.until(|| PASSED.get() >= after);
        (is_there, PASSED.get())
    }

    /// One that passes on between any two looks.
    fn passing(cpus: usize) -> Spin {
        Spin::in_bursts(64, cpus).passing_always(pass)
    }

    #[test]
    fn what_is_said_meanwhile_is_found_without_sleeping() {
        let mut spin = passing(2);
        assert_eq!(wait(&mut spin, SHORT, 0), (true, 0), "what is there already is found at once");
        for after in [1, 2, 5, 3] {
            assert_eq!(wait(&mut spin, SHORT, after), (true, after));
        }
    }

    #[test]
    fn it_passes_on_behind_the_first_looks_and_then_now_and_then() {
        let (mut spin, mut looks) = (Spin::new(2).passing(64, 16, pass), 0);
        PASSED.set(0);
        TAKES.set(SHORT);
        let mut passed = Vec::new();
        spin.until(|| {
            looks += 1;
            let count = PASSED.get() as usize;
            passed.resize_with(count, || looks - 1);
            looks == 200
        });
        assert_eq!(passed, [64, 80, 96, 112, 128, 144, 160, 176, 192]);
    }

    #[test]
    fn where_nothing_is_said_it_sleeps_at_once_but_for_a_trial_now_and_then() {
        let mut spin = passing(2);
        let passes = |spin: &mut Spin| (0..1000).filter(|_| wait(spin, SHORT, u32::MAX).1 > 0).count();
        assert!(passes(&mut spin) < 60);
        assert!(passes(&mut spin) < 5);
        // Who has begun to talk is found by the next trial.
        assert!((0..1024).any(|_| wait(&mut spin, SHORT, 1).0));
        assert_eq!(wait(&mut spin, SHORT, 1), (true, 1));
    }

    #[test]
    fn who_was_held_up_sleeps_at_once_for_a_while_that_gets_longer() {
        let mut spin = passing(2);
        for rest in [1, 2, 4, 8] {
            assert_eq!(wait(&mut spin, LONG, 1), (true, 1), "what is there then is taken");
            assert!((0..rest).all(|_| wait(&mut spin, LONG, 1) == (false, 0)), "{rest}");
        }
        // As long as somebody always holds it up, that happens less and less often, to a bound.
        let held: u32 = (0..100_000).map(|_| wait(&mut spin, LONG, 1).1).sum();
        assert!((12..20).contains(&held), "{held}");
    }

    #[test]
    fn a_trial_that_is_held_up_is_in_vain_and_not_the_last() {
        for mut spin in [passing(2), Spin::new(2).passing(8, 4, pass), Spin::beside(2).passing(8, 4, pass)] {
            (0..5_000).for_each(|_| assert!(!wait(&mut spin, LONG, u32::MAX).0));
            (0..5_000).for_each(|_| assert!(!wait(&mut spin, SHORT, u32::MAX).0));
            (0..5_000).for_each(|_| assert!(!wait(&mut spin, LONG, u32::MAX).0));
            assert!((0..40_000).any(|_| wait(&mut spin, SHORT, 1).0));
        }
    }

    #[test]
    fn who_is_held_up_seldom_rests_little() {
        let mut spin = passing(2);
        for _ in 0..50 {
            assert_eq!(wait(&mut spin, LONG, 1).1, 1);
            let rests = (0..).take_while(|_| wait(&mut spin, SHORT, 1) == (false, 0)).count();
            assert!(rests <= 2, "{rests}");
            (0..4 * FORGIVES).for_each(|_| assert!(wait(&mut spin, SHORT, 1).0));
        }
    }

    #[test]
    fn who_need_not_pass_looks_on_where_he_was_held_up() {
        let mut spin = Spin::new(2).passing(8, 4, pass);
        let mut wait = |takes, nth| {
            let mut looks = 0;
            PASSED.set(0);
            TAKES.set(takes);
            let is_there = spin.until(|| {
                looks += 1;
                looks > nth
            });
            (is_there, looks, PASSED.get())
        };
        assert_eq!(wait(LONG, 20), (false, 8 + 1, 1), "it is held up, and then looks once more");
        assert_eq!(wait(LONG, 20), (true, 21, 0), "it rests");
        assert_eq!(wait(SHORT, 20), (true, 21, 4));
    }

    #[test]
    fn on_one_cpu_it_passes_for_as_long_as_somebody_takes_it() {
        let mut spin = Spin::on_one_cpu(pass);
        assert_eq!(wait(&mut spin, SHORT, 0), (true, 0));
        assert!((0..100).all(|_| wait(&mut spin, SHORT, 3) == (true, 3)));
        spin.has_woken();
        assert_eq!(wait(&mut spin, Duration::from_nanos(300), 2), (false, 1), "nobody took it");
        // Who is elsewhere is not waited for: it costs a call now and then.
        let passes = |spin: &mut Spin, takes| (0..1000).map(|_| wait(spin, takes, u32::MAX).1).sum::<u32>();
        passes(&mut spin, Duration::ZERO);
        assert!(passes(&mut spin, Duration::ZERO) < 60);
        assert!((0..4096).any(|_| wait(&mut spin, SHORT, 1).0), "it is tried again");
        passes(&mut spin, SHORT);
        assert!(passes(&mut spin, SHORT) < 1000, "others who go on without answering");
    }

    #[test]
    fn a_wait_passes_for_no_longer_than_half_a_millisecond() {
        for mut spin in [passing(2), Spin::new(2).passing(8, 1, pass), Spin::on_one_cpu(pass)] {
            assert_eq!(wait(&mut spin, 10 * SHORT, u32::MAX), (false, 3));
            assert_eq!(wait(&mut spin, 10 * SHORT, 3), (true, 3), "what is there then is taken");
            // In a trial, too, which goes on from there.
            (0..5_000).for_each(|_| assert!(!wait(&mut spin, 10 * SHORT, u32::MAX).0));
            assert!((0..5_000).any(|_| wait(&mut spin, 10 * SHORT, 3).0));
            (0..5_000).for_each(|_| assert!(!wait(&mut spin, 10 * SHORT, u32::MAX).0));
        }
    }

    proptest::proptest! {
        /// Whatever others do with the CPU, and whoever sleeps: what is there is found, and no wait looks for longer than it may.
        #[test]
        fn whatever_comes_it_looks_on(waits in proptest::collection::vec((0..4_usize, 0..8_u32, proptest::bool::ANY), 1..2000)) {
            let takes = [Duration::ZERO, SHORT, 15 * SHORT, LONG];
            for mut spin in [
                passing(2), Spin::new(2).passing(8, 4, pass), Spin::beside(2).passing(64, 16, pass), Spin::on_one_cpu(pass),
            ] {
                for &(nth, after, was_asleep) in &waits {
                    if was_asleep {
                        spin.has_woken();
                    }
                    let after = if after < 7 { after } else { u32::MAX };
                    let (is_there, passes) = wait(&mut spin, takes[nth], after);
                    proptest::prop_assert_eq!(is_there, passes >= after);
                    proptest::prop_assert!(takes[nth] * passes.saturating_sub(1) <= HELD);
                }
            }
        }
    }

    #[test]
    fn on_one_cpu_nobody_looks() {
        let mut spin = passing(1);
        assert!((0..100).all(|_| wait(&mut spin, SHORT, 1) == (false, 0)));
    }
}
