//! A worker whose CPU a program needs that it has woken lets that one run, without sleeping: who speaks to a lane that is awake need not
//! ring. Called by `mod.rs` for a worker that has nothing else to do.
//!
//! Who gives way is no sleeper whom a frame wakes: he is back when nobody else wants the CPU, or when the kernel thinks that it is his turn,
//! which takes milliseconds beside a program that computes. So that is tried seldom, and given up for long when it was so.

use std::time::{Duration, Instant};

/// Whether giving way pays, by what it has been worth.
#[derive(Debug, Default)]
pub(super) struct GivingWay {
    /// How often it is not tried.
    rest: u32,
    /// How often it was not the last time.
    last_rest: u32,
}

impl GivingWay {
    /// Who was gone for so long was kept from his CPU.
    const LONG: Duration = Duration::from_micros(200);
    /// Turns until it is tried again behind that: a tick of the kernel's is worth thousands of wake-ups.
    const REST_BEHIND_LONG: u32 = 4096;
    const REST_MAX: u32 = 1 << 16;

    /// Lets others run, if that pays. Whether there are news then.
    pub(super) fn give(&mut self, has_news: impl FnOnce() -> bool) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        let before = Instant::now();
        std::thread::yield_now();
        let has_news = has_news();
        self.learn(before.elapsed(), has_news);
        has_news
    }

    /// He was away for so long, and there were news behind that, or not.
    fn learn(&mut self, away: Duration, has_news: bool) {
        self.last_rest = match () {
            () if away >= Self::LONG => (2 * self.last_rest).clamp(Self::REST_BEHIND_LONG, Self::REST_MAX),
            () if has_news => 0,
            () => (2 * self.last_rest).clamp(1, 1024),
        };
        self.rest = self.last_rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many turns it is tried in, if each time comes to this.
    fn tries(way: &mut GivingWay, turns: u32, away: Duration, has_news: bool) -> u32 {
        let mut tries = 0;
        for _ in 0..turns {
            match way.rest {
                0 => {
                    tries += 1;
                    way.learn(away, has_news);
                }
                _ => way.rest -= 1,
            }
        }
        tries
    }

    #[test]
    fn what_pays_goes_on_and_what_does_not_is_tried_again() {
        let (mut way, soon) = (GivingWay::default(), Duration::from_micros(5));
        assert_eq!(tries(&mut way, 1000, soon, true), 1000);
        let in_vain = tries(&mut way, 10_000, soon, false);
        assert!((12..25).contains(&in_vain), "{in_vain}");
        assert!(tries(&mut way, 2000, soon, true) > 900, "it pays again");
    }

    #[test]
    fn who_was_kept_from_his_cpu_does_not_try_for_long_whatever_came_of_it() {
        for has_news in [false, true] {
            let (mut way, tick) = (GivingWay::default(), Duration::from_millis(4));
            assert_eq!(tries(&mut way, 4096, tick, has_news), 1);
            // A thousandth of what a tick lasts is what giving way may win at most.
            assert!(tries(&mut way, 1_000_000, tick, has_news) < 25);
            let again = tries(&mut way, GivingWay::REST_MAX + 1000, Duration::from_micros(5), true);
            assert!(again >= 999, "{again}");
        }
    }

    #[test]
    fn who_gives_way_sees_what_came_meanwhile() {
        let mut way = GivingWay::default();
        assert!(way.give(|| true));
        way.rest = 1;
        assert!(!way.give(|| panic!("it rests")));
    }
}
