//! How a lane's worker waits on a CPU that it shares with a program which it has told something: it lets that one go first, and then looks at
//! what it has said.
//!
//! Owned by each worker, asked by `Programs::await_news`. A worker that sleeps at once is woken by the program's first word and takes the CPU from
//! it in the middle of its work; with one word for each wake-up both switch at every call, for ever, while another CPU may idle: the
//! scheduler moves who may run, not who sleeps. Nobody rings for a worker that is awake, and what is said until it has the CPU again is one turn's.
//!
//! A program that computes keeps the CPU for as long as the scheduler lets it, and others' frames would wait for that. A worker that is woken takes
//! the CPU sooner, so who was held up sleeps at once for a while.

use std::time::Duration;

use firelane_shm::Spin;
use firelane_units::Instant;

/// The most turns that it gives to others before it sleeps. Where nobody wants the CPU, one takes two system calls.
const TURNS: u32 = 64;
/// Who has the CPU again later than this was held up. Programs that serve others take less from one wait to the next.
const HELD: Duration = Duration::from_micros(200);
/// The most waits in a row that sleep at once because of that: with thousands in a second, some tenths of one.
const REST_MAX: u32 = 16_384;
/// So many waits in a row that nobody held up make the next rest half as long.
const FORGIVES: u32 = 64;

/// What giving way has been worth.
#[derive(Debug)]
pub(crate) struct GivingWay {
    turns: Spin,
    /// How many waits from here on sleep at once, and how many do when it is held up the next time.
    rest: u32,
    next_rest: u32,
    /// Waits since it was held up, or forgave.
    unheld: u32,
}

impl GivingWay {
    /// On a machine with this many CPUs. On one it sleeps at once.
    pub(crate) fn new(cpus: usize) -> Self {
        Self { turns: Spin::in_bursts(TURNS, cpus), rest: 0, next_rest: 1, unheld: 0 }
    }

    /// Gives way until there `is_news` or a device `has_called`, as long as that is worth it. Whether there is. `now` is asked once for each turn
    /// that `yield_now` gives to others, and so are devices.
    pub(crate) fn until(
        &mut self,
        now: impl Fn() -> Instant,
        mut yield_now: impl FnMut(),
        is_news: impl Fn() -> bool,
        has_called: impl Fn() -> bool,
    ) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return is_news();
        }
        let (mut before, mut is_held) = (None, false);
        let is_there = self.turns.until(|| {
            // Where it is not worth a turn, it is only asked once.
            let Some(begin) = before.replace(now()) else { return is_news() };
            yield_now();
            let end = now();
            before = Some(end);
            is_held = end.saturating_since(begin) > HELD;
            is_held || is_news() || has_called()
        });
        if is_held {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest).min(REST_MAX);
            self.unheld = 0;
            return is_news() || has_called();
        }
        self.unheld += 1;
        if self.unheld >= FORGIVES {
            self.next_rest = (self.next_rest / 2).max(1);
            self.unheld = 0;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A CPU on which each turn takes this long, and brings news if it is the last one of so many.
    struct Others {
        now: Cell<Instant>,
        turns: Cell<u32>,
    }

    impl Others {
        fn new() -> Self {
            Self { now: Cell::new(Instant::ZERO), turns: Cell::new(0) }
        }

        /// Whether a wait has found news that come with the `nth` turn, each of which takes `each`; and how many it gave.
        fn wait(&self, way: &mut GivingWay, each: Duration, nth: u32) -> (bool, u32) {
            self.turns.set(0);
            let yield_now = || {
                self.turns.set(self.turns.get() + 1);
                self.now.set(self.now.get() + each);
            };
            let is_there = way.until(|| self.now.get(), yield_now, || self.turns.get() >= nth, || false);
            (is_there, self.turns.get())
        }
    }

    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_millis(3);

    #[test]
    fn what_is_said_meanwhile_is_found_without_sleeping() {
        let (mut way, others) = (GivingWay::new(2), Others::new());
        assert_eq!(others.wait(&mut way, SHORT, 0), (true, 0), "what is there already costs no turn");
        for nth in [1, 2, 5, 3] {
            assert_eq!(others.wait(&mut way, SHORT, nth), (true, nth));
        }
    }

    #[test]
    fn devices_are_asked_behind_each_turn() {
        let (mut way, asked) = (GivingWay::new(2), Cell::new(0));
        let has_called = || asked.replace(asked.get() + 1) == 2;
        assert!(way.until(|| Instant::ZERO, || {}, || false, has_called));
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn where_nothing_is_said_it_sleeps_at_once_but_for_a_trial_now_and_then() {
        let (mut way, others) = (GivingWay::new(2), Others::new());
        let gave =
            |way: &mut GivingWay| (0..1000).filter(|_| others.wait(way, SHORT, u32::MAX).1 > 0).count();
        assert!(gave(&mut way) < 60);
        assert!(gave(&mut way) < 5);
        // Who has begun to talk is found by the next trial.
        let found = (0..1024).find(|_| others.wait(&mut way, SHORT, 1).0);
        assert!(found.is_some());
        assert_eq!(others.wait(&mut way, SHORT, 1), (true, 1));
    }

    #[test]
    fn who_was_held_up_sleeps_at_once_for_a_while_that_gets_longer() {
        let (mut way, others) = (GivingWay::new(2), Others::new());
        for rest in [1, 2, 4, 8] {
            assert_eq!(others.wait(&mut way, LONG, 1), (true, 1), "what is there then is taken");
            assert!((0..rest).all(|_| others.wait(&mut way, LONG, 1) == (false, 0)), "{rest}");
        }
        // As long as another holds it up once for each of its rests, that is a part of its waits that gets smaller, to a bound.
        let mut held = 0;
        for _ in 0..100_000 {
            held += others.wait(&mut way, LONG, 1).1;
        }
        assert!((8..20).contains(&held), "{held}");
        assert_eq!(way.next_rest, REST_MAX);
    }

    #[test]
    fn who_is_held_up_seldom_rests_little() {
        let (mut way, others) = (GivingWay::new(2), Others::new());
        for _ in 0..50 {
            assert_eq!(others.wait(&mut way, LONG, 1).1, 1);
            let rests = (0..).take_while(|_| others.wait(&mut way, SHORT, 1) == (false, 0)).count();
            assert!(rests <= 2, "{rests}");
            for _ in 0..4 * FORGIVES {
                others.wait(&mut way, SHORT, 1);
            }
        }
    }

    #[test]
    fn on_one_cpu_it_sleeps_at_once() {
        let (mut way, others) = (GivingWay::new(1), Others::new());
        assert!((0..100).all(|_| others.wait(&mut way, SHORT, 1) == (false, 0)));
    }
}
